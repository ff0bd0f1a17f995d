# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Sequences of tokens for language models: from arrays of tokens, or from texts.

Texts are text files (one document each), JSON lines, or tables with a column of texts. Their tokens
are joined in the order of the files, with the token of the end of a text after each document if the
tokenizer has one, and cut into sequences: sequence i has tokens i · length to (i + 1) · length, so
that every token but the first is predicted once. The remainder at the end is not used.
"""

import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from testbed.core.errors import InputError
from testbed.core.words import by_number
from testbed.system.files import (
    MOST_DATA_BYTES,
    check_regular,
    opened_regular,
    read_regular,
    sha256_of,
    walk,
    write_whole,
)
from testbed.system.folders import cache_folder
from workloads.data.clients import Metadata
from workloads.data.config import DataConfig
from workloads.data.partitions import NO_METADATA
from workloads.data.parts import FIELD, Division, divided, part_of_file, shown_names
from workloads.data.pictures import HELD_OUT_SHARE, Indices
from workloads.models.chain import Tokens
from workloads.models.language import BYTES, TOKENIZER, tokenizer_files

TEXTS, LINES, ARRAYS = ".txt", ".jsonl", (".npy", ".bin")
SUFFIXES = (TEXTS, LINES, *ARRAYS)
TEXT_COLUMN = "text"
"""Default column of texts."""
SMALL_VOCABULARY = 2**16
"""Largest vocabulary whose tokens are 16-bit integers in `.bin` files; others have 32 bits."""
MOST_TEXT_BYTES = 4 << 30
"""Size limit of a document."""


class TokenSequences:
    """Data whose samples are sequences of tokens, labelled with the next tokens."""

    classes: int
    labels: Indices
    """Zeros, because sequences have no labels; shape [N]."""
    described: str
    """Description of the source of the sequences."""
    metadata: Metadata = NO_METADATA

    def batch(self, indices: Indices) -> tuple[Tensor, Tensor]:
        """Tokens [n, length] and the next tokens [n, length]."""
        return shifted(np.asarray(self.sequences(indices), np.int64))

    def sequences(self, indices: Indices) -> npt.NDArray[Any]:
        """Sequences [n, length + 1]."""
        raise NotImplementedError


class TokenFile(TokenSequences):
    """Sequences from `train.npy` or `test.npy`: integers [N, length + 1], mapped into memory."""

    def __init__(self, file: Path, tokens: Tokens) -> None:
        self._sequences = found = _mapped(file)
        width = tokens.length + 1
        if found.ndim != 2 or found.shape[1] != width or found.dtype.kind not in "iu":
            raise InputError(
                f"workload.data.source: {file} must hold integers of shape [N, {width}], "
                f"not {found.dtype} of shape {list(found.shape)}"
            )
        _check_tokens(found, tokens, str(file))
        self.classes = tokens.vocabulary
        self.labels = np.zeros(len(found), np.int64)
        self.described = f"in {file.name}"

    def sequences(self, indices: Indices) -> npt.NDArray[Any]:
        """Sequences [n, length + 1]."""
        return self._sequences[indices]


class PackedTokens(TokenSequences):
    """Sequences cut from one stream of tokens."""

    def __init__(
        self, stream: npt.NDArray[Any], start: int, stop: int, tokens: Tokens, described: str
    ) -> None:
        """Take sequences `start` to `stop` - 1 of a stream [T]."""
        self._stream, self._start, self._length = stream, start, tokens.length
        self.classes = tokens.vocabulary
        self.labels = np.zeros(stop - start, np.int64)
        self.described = described

    def sequences(self, indices: Indices) -> npt.NDArray[Any]:
        """Sequences [n, length + 1]."""
        first = (np.asarray(indices) + self._start) * self._length
        return self._stream[first[:, None] + np.arange(self._length + 1)]  # type: ignore[no-any-return]


def shifted(sequences: Indices) -> tuple[Tensor, Tensor]:
    """Sequences [n, length + 1] as tokens and the next tokens, [n, length] each."""
    tokens = torch.from_numpy(sequences)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def open_tokens(config: DataConfig, tokens: Tokens, train: bool) -> TokenSequences:
    """Open the training or the held-out sequences of a source that is not `synthetic`.

    If no file belongs to a held-out part, the last tenth of the sequences is held out.

    Raises:
        InputError: The source is invalid; the message is one line.
    """
    root = Path(config.source).expanduser()
    fixed = root / "train.npy"
    if fixed.is_file() and _mapped(fixed).ndim != 1:
        return TokenFile(fixed if train else root / "test.npy", tokens)
    files = _files(root)
    own = files.held_out is not None and not train
    chosen = list(files.held_out if own and files.held_out is not None else files.train)
    kind = "bytes" if config.tokenizer in (None, "bytes") else "tokenizer of the folder"
    kind = "tokens" if chosen[0].suffix in ARRAYS else kind
    where = f"in {shown_names(chosen, root) if root.is_dir() else root.name} ({kind})"
    stream = _stream(chosen, config, tokens)
    count = max(0, (len(stream) - 1) // tokens.length)
    start, stop = 0, count
    if files.held_out is None:
        kept = count - max(1, round(HELD_OUT_SHARE * count))
        start, stop = (0, kept) if train else (kept, count)
        where += "" if train else ", the last tenth"
    if stop <= start:
        raise InputError(
            f"{FIELD}: {root} has {len(stream)} tokens to {'train' if train else 'evaluate'} on, "
            f"too few for sequences of {tokens.length} (workload.sequence_length)"
        )
    return PackedTokens(stream, start, stop, tokens, where)


def _files(root: Path) -> Division[Path]:
    """The files of a source by their use."""
    if root.is_file():
        if root.suffix not in (*SUFFIXES, ".parquet"):
            raise InputError(f"{FIELD}: {root} must end with {', '.join(SUFFIXES)} or .parquet")
        return Division([root], None)
    if not root.is_dir():
        raise InputError(f"{FIELD}: {root} is neither 'synthetic' nor a file or folder")
    # Imported here, because only tables need it.
    from workloads.data.tables import table_files

    found = [
        Path(place, name)
        for place, _, names in walk(root)
        if not any(part.startswith(".") for part in Path(place).relative_to(root).parts)
        for name in names
        if name.endswith(SUFFIXES) and not name.startswith(".")
    ]
    found.sort(key=lambda path: [by_number(name) for name in path.parts])
    tables = table_files(root)
    kinds = sorted({file.suffix for file in found})
    if tables is not None:
        if found:
            raise InputError(f"{FIELD}: {root} has tables and {kinds[0]} files; give one of them")
        return tables
    if not found:
        raise InputError(f"{FIELD}: {root} has no files that end with {', '.join(SUFFIXES)}")
    if len(kinds) > 1:
        raise InputError(f"{FIELD}: {root} has {' and '.join(kinds)} files; give one of them")
    return divided([(file, part_of_file(file, root)) for file in found], root)


def _mapped(file: Path) -> npt.NDArray[Any]:
    try:
        check_regular(file)
        mapped: Any = np.load(file, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # NumPy raises many types for broken headers.
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(f"{FIELD}: {file}: {why}") from None
    if not isinstance(mapped, np.ndarray):
        mapped.close()
        raise InputError(f"{FIELD}: {file}: is an archive of arrays, not an array")
    return mapped


def _check_tokens(found: npt.NDArray[Any], tokens: Tokens, where: str) -> None:
    if not len(found):
        raise InputError(f"{FIELD}: {where}: is empty")
    if found.min() < 0 or found.max() >= tokens.vocabulary:
        raise InputError(f"{FIELD}: {where}: tokens must be 0 to {tokens.vocabulary - 1}")


def _stream(files: Sequence[Path], config: DataConfig, tokens: Tokens) -> npt.NDArray[Any]:
    """The tokens of files, one after the other, shape [T]."""
    if files[0].suffix in ARRAYS:
        if config.text_column is not None:
            raise InputError(f"workload.data.text_column: {files[0]} has tokens, not texts")
        parts = [_array(file, tokens) for file in files]
        stream = parts[0] if len(parts) == 1 else np.concatenate(parts)
    elif config.tokenizer in (None, "bytes"):
        if tokens.vocabulary < BYTES:
            raise InputError(
                f"{TOKENIZER}: 'bytes' needs a vocabulary of at least {BYTES}, not "
                f"{tokens.vocabulary}; give the folder of a tokenizer"
            )
        encoded = (text.encode() for text in _documents(files, config.text_column))
        stream = np.frombuffer(b"".join(encoded), np.uint8)
    else:
        stream = _tokenised(files, config)
    _check_tokens(stream, tokens, str(files[0]))
    return stream


def _array(file: Path, tokens: Tokens) -> npt.NDArray[Any]:
    """The tokens of an array file: one-dimensional, or little-endian integers without a header."""
    if file.suffix == ".npy":
        found = _mapped(file)
        if found.ndim != 1 or found.dtype.kind not in "iu":
            raise InputError(
                f"{FIELD}: {file} must hold integers of shape [T], "
                f"not {found.dtype} of shape {list(found.shape)}"
            )
        return found
    kind = np.dtype("<u2" if tokens.vocabulary <= SMALL_VOCABULARY else "<u4")
    try:
        with opened_regular(file, MOST_DATA_BYTES) as (_, size):
            pass
    except ValueError as error:
        raise InputError(f"{FIELD}: {file} {error}") from None
    if not size or size % kind.itemsize:
        raise InputError(
            f"{FIELD}: {file} must hold integers of {kind.itemsize} bytes, and has {size} bytes"
        )
    return np.memmap(file, kind, "r")


def _documents(files: Sequence[Path], column: str | None) -> Iterator[str]:
    """All documents that are not empty, in order."""
    for file in files:
        try:
            if file.suffix == TEXTS:
                if column is not None:
                    raise InputError(f"workload.data.text_column: {file} has no columns")
                found: Iterator[str] = iter([_text(file)])
            elif file.suffix == LINES:
                found = _lines(file, column or TEXT_COLUMN)
            else:
                from workloads.data.tables import texts_of

                found = texts_of(file, column)
            yield from filter(None, found)
        except UnicodeDecodeError:
            raise InputError(f"{FIELD}: {file}: is not UTF-8") from None
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise InputError(f"{FIELD}: {file}: {why}") from None


def _text(file: Path) -> str:
    text = read_regular(file, MOST_TEXT_BYTES).decode()
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _lines(file: Path, column: str) -> Iterator[str]:
    with opened_regular(file, MOST_DATA_BYTES) as (opened, _):
        decoded = io.TextIOWrapper(opened, encoding="utf-8")
        lines = iter(partial(decoded.readline, MOST_TEXT_BYTES), "")
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                text = json.loads(line)[column]
            except (ValueError, KeyError, TypeError, IndexError, RecursionError):
                text = None
            if not isinstance(text, str):
                raise InputError(
                    f"{FIELD}: {file}:{number}: must be a JSON object with a text {column!r} "
                    "(workload.data.text_column)"
                )
            yield text


def _tokenised(files: Sequence[Path], config: DataConfig) -> npt.NDArray[Any]:
    """The tokens of texts by a tokenizer of transformers, kept in the cache folder."""
    folder = Path(str(config.tokenizer))
    digest = hashlib.sha256(f"1 {config.text_column}".encode())
    digest.update(f" {version('transformers')} {version('tokenizers')}".encode())
    for file in (*tokenizer_files(folder), *files):
        digest.update(bytes.fromhex(sha256_of(file)))
    path = cache_folder() / "data" / f"tokens-{digest.hexdigest()[:16]}.npy"
    with suppress(OSError, ValueError):
        return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
    from transformers import AutoTokenizer

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # transformers raises any type for files that do not fit.
        why = " ".join(str(error).split())[:200]
        raise InputError(f"{TOKENIZER}: {folder} cannot be read ({why})") from None
    end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    parts = [
        np.array(tokenizer.encode(text, add_special_tokens=False, verbose=False) + end, np.int32)
        for text in _documents(files, config.text_column)
    ]
    stream: npt.NDArray[Any] = np.concatenate(parts) if parts else np.zeros(0, np.int32)
    # If the folder is not writable, the next process tokenises again.
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)

        def fill(part: Path) -> None:
            with part.open("wb") as opened:
                np.save(opened, stream)

        write_whole(path, fill)
    return stream
