# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Federated data sets with named clients: LEAF's JSON files, and TensorFlow Federated's HDF5 files.

LEAF: objects `users`, `num_samples` and `user_data`, which has lists `x` and `y` of each user. TFF:
groups `examples/CLIENT` with one array per field, whose rows are the samples. Samples are square
pictures with labels, or texts. The part of a file (training, held out) follows from the names of
the file and its folders.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isqrt, prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from testbed.core.errors import InputError
from testbed.core.words import by_number
from testbed.system.files import MOST_DATA_BYTES, check_regular, json_value, opened_regular
from workloads.data.clients import CLIENT
from workloads.data.config import DataConfig
from workloads.data.parts import FIELD, Division, divided, part_of_file, shown_names
from workloads.data.pictures import Indices, Pictures, is_held_out, normalised
from workloads.data.tokens import TokenSequences
from workloads.models.chain import Images, Tokens
from workloads.models.language import BYTES

LEAF, TFF = (".json",), (".h5", ".hdf5")
MOST_JSON_BYTES = 512 << 20
"""Size limit of a JSON file. In memory, its numbers need several times this size."""
BEGINNING = re.compile(rb'\s*\{\s*"(users|num_samples|user_data|hierarchies)"\s*:')
"""What LEAF's files begin with."""
BEGINNING_BYTES = 4096
SAFE_BYTES, MOST_EXPANSION = 256 << 20, 200
"""An HDF5 file that claims more bytes, and more than this multiple of its size, is refused."""
FIELDS = (("pixels", "image"), ("label",), ("snippets",))
"""Names of TFF's fields: pictures, labels, texts."""
FILTERS = (None, "gzip", "lzf")
"""Compression of HDF5 that needs no library from another place."""


@dataclass(frozen=True)
class Samples:
    """The samples of one client."""

    x: Sequence[Any] | npt.NDArray[Any]
    """Pictures [n, ...] or texts."""
    y: Sequence[Any] | npt.NDArray[Any]
    """Labels [n], or the texts that follow `x`; empty: `x` are texts that follow each other."""


def array_files(root: Path) -> Division[Path] | None:
    """The JSON or HDF5 files of a folder by their use; None if there are none.

    Folders of tables, tokenizers and pictures also have JSON files, so a folder with other files
    is LEAF's only if a JSON file begins as LEAF's do.

    Raises:
        InputError: There are both, or it is not clear which files are for training.
    """
    found: dict[tuple[str, ...], list[Path]] = {}
    for kind in (LEAF, TFF):
        # LEAF's folder also has the files from which it made the parts.
        for place in ("train/*", "test/*", "*") if kind == LEAF else ("**/*",):
            files = [f for f in root.glob(place) if f.suffix in kind and not _is_hidden(f, root)]
            if files:
                found.setdefault(kind, []).extend(files)
            if place == "test/*" and found.get(kind):
                break
    leaf = found.get(LEAF, [])
    if leaf and not any(map(_begins_as_leaf, leaf)) and _has_other_files(root):
        del found[LEAF]
    if not found:
        return None
    if len(found) > 1:
        raise InputError(f"{FIELD}: {root} has JSON and HDF5 files; give one of them")
    (files,) = found.values()
    files.sort(key=lambda file: [by_number(name) for name in file.parts])
    return divided([(file, part_of_file(file, root)) for file in files], root)


def _is_hidden(file: Path, root: Path) -> bool:
    return any(name.startswith(".") for name in file.relative_to(root).parts)


def _begins_as_leaf(file: Path) -> bool:
    try:
        with opened_regular(file, MOST_JSON_BYTES) as (opened, _):
            return bool(BEGINNING.match(opened.read(BEGINNING_BYTES)))
    except (OSError, ValueError):
        return False


def _has_other_files(root: Path) -> bool:
    return any(
        file.suffix not in LEAF and not file.is_dir() and not _is_hidden(file, root)
        for file in root.rglob("*")
    )


class ArrayPictures(Pictures):
    """Pictures of named clients, in memory as they are stored."""

    def __init__(
        self,
        root: Path,
        files: Division[Path],
        images: Images,
        classes: int,
        seed: int,
        train: bool,
    ) -> None:
        """Open the files.

        Args:
            root: Folder of the files.
            files: The files by their use.
            images: Input format of the model.
            classes: Number of classes; some may have no samples.
            seed: Seed of the held-out tenth of each class if no part is held out.
            train: Whether to open the training set instead of the held-out one.

        Raises:
            InputError: A file is not valid; one line.
        """
        chosen = files.train if train or files.held_out is None else files.held_out
        pixels, labels, owners = [], [], []
        for file in chosen:
            for client, samples in _clients(file):
                where = f"{FIELD}: {file}: client {client[:40]!r}"
                pixels.append(_pictures(samples.x, where))
                labels.append(_labels(samples.y, classes, where))
                if len(pixels[-1]) != len(labels[-1]):
                    raise InputError(f"{where} has {len(pixels[-1])} x and {len(labels[-1])} y")
                owners += [client] * len(labels[-1])
        if len({(part.dtype.kind, part.shape[1:]) for part in pixels}) > 1:
            raise InputError(f"{FIELD}: {root} has pictures of different sizes or types")
        if not owners:
            raise InputError(f"{FIELD}: {root} has no samples to {'train' if train else 'test'} on")
        self.labels, names = np.concatenate(labels), np.array(owners)
        self._pixels = np.concatenate(pixels)
        if files.held_out is None:
            kept = is_held_out(self.labels, seed) != train
            self.labels, names, self._pixels = self.labels[kept], names[kept], self._pixels[kept]
            if not len(self.labels):
                raise InputError(f"{FIELD}: {root} has too few samples to hold a tenth out")
        self.metadata = {CLIENT: names}
        self.classes, self.names = classes, range(classes)
        self.part = "" if files.held_out is None else shown_names(chosen, root)
        self.unused = [str(file.relative_to(root)) for file in files.unused]
        self._to = images

    def images(self, indices: Sequence[int] | Indices) -> Tensor:
        """Images [n, 3, S, S]."""
        pixels = torch.from_numpy(self._pixels[np.asarray(indices)])
        scaled = pixels.float() / 255 if pixels.dtype == torch.uint8 else pixels.float()
        return normalised(scaled.expand(-1, -1, -1, 3).permute(0, 3, 1, 2), self._to)


class ArrayTexts(TokenSequences):
    """Texts of named clients, as the bytes of UTF-8: sequences [N, length + 1] in memory."""

    def __init__(
        self, root: Path, files: Division[Path], tokens: Tokens, config: DataConfig, train: bool
    ) -> None:
        """Open the files; arguments as for `ArrayPictures`.

        Raises:
            InputError: A file is not valid, or has no texts; one line.
        """
        if config.tokenizer not in (None, "bytes") or tokens.vocabulary < BYTES:
            raise InputError(
                f"{FIELD}: {root} has texts of clients, which are read as bytes; the model needs "
                f"workload.data.tokenizer 'bytes' and a vocabulary of at least {BYTES}"
            )
        chosen = files.train if train or files.held_out is None else files.held_out
        parts: list[npt.NDArray[np.uint8]] = []
        owners: list[str] = []
        for file in chosen:
            for client, samples in _clients(file):
                for text in _texts(samples, f"{FIELD}: {file}: client {client[:40]!r}"):
                    parts.append(_cut(text, tokens.length))
                    owners += [client] * len(parts[-1])
        if not owners:
            raise InputError(
                f"{FIELD}: {root} has no texts of {tokens.length + 1} bytes "
                "(workload.sequence_length and one more)"
            )
        self._sequences, names = np.concatenate(parts), np.array(owners)
        if files.held_out is None:
            kept = is_held_out(np.zeros(len(names), np.int64), config.seed) != train
            self._sequences, names = self._sequences[kept], names[kept]
        self.classes = tokens.vocabulary
        self.labels = np.zeros(len(names), np.int64)
        self.metadata = {CLIENT: names}
        self.described = f"in {shown_names(chosen, root)} (bytes)"

    def sequences(self, indices: Indices) -> npt.NDArray[Any]:
        """Sequences [n, length + 1]."""
        return self._sequences[indices]


def _cut(text: bytes, length: int) -> npt.NDArray[np.uint8]:
    """Sequences [n, length + 1] of a text; the remainder at its end is not used."""
    data = np.frombuffer(text, np.uint8)
    starts = np.arange(max(0, (len(data) - 1) // length)) * length
    return data[starts[:, None] + np.arange(length + 1)]  # type: ignore[no-any-return]


def _clients(file: Path) -> Iterator[tuple[str, Samples]]:
    """The clients of a file, by name, with their samples.

    Raises:
        InputError: The file is not valid; one line.
    """
    try:
        yield from (_of_leaf if file.suffix in LEAF else _of_tff)(file)
    except InputError:
        raise
    except ModuleNotFoundError:
        raise InputError(f"{FIELD}: {file} needs the package h5py: pip install h5py") from None
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, MemoryError) as error:
        # h5py raises all of these for broken files.
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(f"{FIELD}: {file} cannot be read ({why})") from None


def _of_leaf(file: Path) -> Iterator[tuple[str, Samples]]:
    tree = json_value(file, MOST_JSON_BYTES)
    data = tree.get("user_data") if isinstance(tree, dict) else None
    if not isinstance(data, dict) or not isinstance(tree.get("users"), list):
        raise ValueError("is not LEAF's form: an object with users, num_samples and user_data")
    if sorted(map(str, tree["users"])) != sorted(data):
        raise ValueError("users and user_data name different clients")
    for client, own in data.items():
        x, y = (own.get(key) if isinstance(own, dict) else None for key in "xy")
        if not isinstance(x, list) or not isinstance(y, list) or len(x) != len(y):
            raise ValueError(f"client {client[:40]!r} must have lists x and y of one length")
        if x:
            yield client, Samples(x, y)


def _of_tff(file: Path) -> Iterator[tuple[str, Samples]]:
    import h5py

    check_regular(file, MOST_DATA_BYTES)
    size, claimed = file.stat().st_size, 0
    with h5py.File(file, "r") as opened:
        clients = _own(opened, "examples", h5py.Group)
        for client in clients:
            fields = _own(clients, client, h5py.Group)
            found: list[npt.NDArray[Any] | None] = []
            for names in FIELDS:
                name = next((name for name in names if name in fields), None)
                if name is None:
                    found.append(None)
                    continue
                array = _own(fields, name, h5py.Dataset)
                # Texts have a size of their own each, which the file really holds.
                claimed += prod(array.shape) * max(array.dtype.itemsize, 16)
                if claimed > max(SAFE_BYTES, MOST_EXPANSION * size):
                    raise ValueError(f"claims {claimed:,} bytes of values in a file of {size:,}")
                if array.is_virtual or array.external or array.compression not in FILTERS:
                    raise ValueError(f"field {name} must lie in the file itself, or packed by gzip")
                if array.chunks and prod(array.chunks) * array.dtype.itemsize > SAFE_BYTES:
                    raise ValueError(f"field {name} has chunks of more than {SAFE_BYTES:,} bytes")
                found.append(array[()])
            x, y, texts = found
            if texts is not None:
                yield str(client), Samples(list(texts), [])
            elif x is None or y is None:
                raise ValueError(
                    f"client {str(client)[:40]!r} needs the fields {' or '.join(FIELDS[0])}, and "
                    f"{FIELDS[1][0]}; or {FIELDS[2][0]}"
                )
            elif len(x):
                yield str(client), Samples(x, y)


def _own(group: Any, name: str, kind: Any) -> Any:
    """A member of an HDF5 group, which must lie in the same file."""
    import h5py

    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise ValueError(f"{name[:40]!r} is missing, or a link to another place")
    if not isinstance(found := group[name], kind):
        raise ValueError(f"{name[:40]!r} is no {kind.__name__.lower()}")
    return found


def _pictures(x: Sequence[Any] | npt.NDArray[Any], where: str) -> npt.NDArray[Any]:
    """Square pictures [n, S, S, 1 or 3], uint8 or float32 from 0 to 1."""
    if isinstance(x, list) and not all(isinstance(row, list) for row in x):
        raise InputError(f"{where} has no pictures: x must be lists of numbers")
    found = _array(x, where)
    if isinstance(x, list) and found.ndim == 2:
        side = isqrt(found.shape[1])
        found = found.reshape(len(x), side, side) if side * side == found.shape[1] else found
    found = found[..., None] if found.ndim == 3 else found
    if found.ndim != 4 or found.shape[1] != found.shape[2] or found.shape[3] not in (1, 3):
        raise InputError(
            f"{where} has x of shape {list(np.shape(x))[:5]}; pictures are square, with 1 or 3 "
            "colours"
        )
    if found.shape[1] == 0 or found.dtype.kind not in "uif":
        raise InputError(f"{where} has x that are no pictures")
    if found.dtype != np.uint8:
        found = found.astype(np.float32)
        if not (found.min() >= 0 and found.max() <= 1):
            raise InputError(
                f"{where} has values from {found.min():g} to {found.max():g}; they must be from 0 "
                "to 1, or bytes"
            )
    return found


def _array(values: Sequence[Any] | npt.NDArray[Any], where: str) -> npt.NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError:
        raise InputError(f"{where} has lists of different lengths") from None


def _labels(y: Sequence[Any] | npt.NDArray[Any], classes: int, where: str) -> Indices:
    """Labels [n]."""
    found = _array(y, where)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise InputError(f"{where} has y that are not whole numbers")
    if found.min() < 0 or found.max() >= classes:
        value = found.min() if found.min() < 0 else found.max()
        raise InputError(
            f"{where} has the label {value}, and workload.classes is {classes}: labels are 0 to "
            f"{classes - 1}"
        )
    return found.astype(np.int64)


def _texts(samples: Samples, where: str) -> Iterator[bytes]:
    """The texts of a client: LEAF's with the character that follows; TFF's snippets in one."""
    x, y = samples.x, samples.y
    if isinstance(x, np.ndarray) or not all(isinstance(text, str | bytes) for text in x):
        raise InputError(f"{where} has no texts, which a language model needs")
    if not len(y):
        yield b"\n".join(t.encode() if isinstance(t, str) else t for t in x)
        return
    for text, following in zip(x, y, strict=True):
        if not isinstance(following, str):
            raise InputError(f"{where} has y that are no texts, which a language model needs")
        yield (text + following).encode()
