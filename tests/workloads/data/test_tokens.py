# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Texts, JSON lines, tables and arrays of tokens as sequences of tokens."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from testbed.core.errors import InputError
from workloads.data.config import DataConfig
from workloads.data.digests import data_digests
from workloads.data.samples import client_data, open_data
from workloads.data.tokens import TokenSequences
from workloads.learning.examined import data_line
from workloads.learning.settings import ModelConfig
from workloads.models.chain import Images, Tokens

LENGTH = 4
BYTES = Tokens(LENGTH, 256)


def opened(root: Path, train: bool = True, tokens: Tokens = BYTES, **keys: Any) -> TokenSequences:
    data = open_data(DataConfig(str(root), **keys), tokens.vocabulary, tokens, train)
    assert isinstance(data, TokenSequences)
    return data


def all_of(data: TokenSequences) -> list[list[int]]:
    inputs, following = data.batch(np.arange(len(data.labels)))
    assert torch.equal(inputs[:, 1:], following[:, :-1])
    return torch.cat([inputs, following[:, -1:]], 1).tolist()


def test_a_text_is_cut_into_sequences_whose_last_tenth_is_held_out(tmp_path: Path) -> None:
    text = "The quick brown fox jumps över the lazy dog."
    file = tmp_path / "fox.txt"
    file.write_text(text, encoding="utf-8")
    stream = list(text.encode())
    wanted = [stream[i : i + LENGTH + 1] for i in range(0, len(stream) - LENGTH, LENGTH)]
    assert len(wanted) == 11
    for root in (file, tmp_path):
        assert all_of(opened(root)) == wanted[:10]
        assert all_of(opened(root, train=False)) == wanted[10:]


def test_files_are_documents_in_order_and_parts_have_their_names(tmp_path: Path) -> None:
    for name, text in {
        "train/b": "klmnop",
        "train/a": "abcdefghij",
        "validation": "0123456",
    }.items():
        (tmp_path / name).with_suffix(".txt").parent.mkdir(exist_ok=True)
        (tmp_path / name).with_suffix(".txt").write_text(text)
    found = ["".join(map(chr, row)) for row in all_of(opened(tmp_path))]
    assert found == ["abcde", "efghi", "ijklm"]
    assert ["".join(map(chr, row)) for row in all_of(opened(tmp_path, False))] == ["01234"]


def test_json_lines_and_tables_have_a_column_of_texts(tmp_path: Path) -> None:
    texts = ["abcdef", "", "ghijkl", "mnopqrstuvwxyz"]
    joined = list("".join(texts).encode())
    wanted = [joined[i : i + 5] for i in range(0, 24, 4)]
    lines, table, saved = (tmp_path / name for name in ("lines", "table", "saved"))
    for folder in (lines, table, saved):
        folder.mkdir()
    (lines / "all.jsonl").write_text(
        "\n".join(json.dumps({"text": text, "words": "other"}) for text in texts) + "\n\n"
    )
    rows = pa.table({"words": ["other"] * 4, "text": [texts[0], None, *texts[2:]]})
    pq.write_table(rows, table / "all.parquet", row_group_size=2)
    with pa.ipc.new_stream(saved / "data-00000.arrow", rows.schema) as sink:
        sink.write_table(rows)
    (saved / "state.json").write_text(
        json.dumps({"_data_files": [{"filename": "data-00000.arrow"}]})
    )
    for root in (lines, lines / "all.jsonl", table, table / "all.parquet", saved):
        assert all_of(opened(root)) + all_of(opened(root, False)) == wanted, root
        other = all_of(opened(root, text_column="words"))
        assert bytes(other[0]).decode() == "other"


def test_arrays_hold_tokens(tmp_path: Path) -> None:
    wanted = [[4 * i + k for k in range(5)] for i in range(5)]
    small, large = Tokens(LENGTH, 300), Tokens(LENGTH, 2**16 + 1)
    np.save(tmp_path / "a.npy", np.arange(21, dtype=np.int16))
    np.arange(21, dtype="<u2").tofile(tmp_path / "small.bin")
    np.arange(21, dtype="<u4").tofile(tmp_path / "large.bin")
    for name, tokens in (("a.npy", small), ("small.bin", small), ("large.bin", large)):
        root = tmp_path / name
        assert all_of(opened(root, tokens=tokens)) == wanted[:4], name
        assert all_of(opened(root, train=False, tokens=tokens)) == wanted[4:], name


def test_train_and_test_arrays_are_parts(tmp_path: Path) -> None:
    np.save(tmp_path / "train.npy", np.arange(9))
    np.save(tmp_path / "test.npy", np.arange(100, 106))
    assert all_of(opened(tmp_path)) == [[0, 1, 2, 3, 4], [4, 5, 6, 7, 8]]
    assert all_of(opened(tmp_path, False)) == [[100, 101, 102, 103, 104]]


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """A tokenizer of words, with a token of the end of a text."""
    pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"<end>": 0, "<unknown>": 1, **{f"w{i}": i + 2 for i in range(8)}}
    made = Tokenizer(models.WordLevel(words, unk_token="<unknown>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>"})
    )
    return folder


def test_a_tokenizer_ends_each_document(
    tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "1.txt").write_text("w0 w1 w2")
    (texts / "2.txt").write_text("w3 never w4 w5 w6")
    words = Tokens(LENGTH, 10)
    for _ in range(2):  # The second time from the cache.
        data = opened(texts, tokens=words, tokenizer=str(tokenizer))
        assert all_of(data) == [[2, 3, 4, 0, 5]]
        held_out = opened(texts, train=False, tokens=words, tokenizer=str(tokenizer))
        assert all_of(held_out) == [[5, 1, 6, 7, 8]]
    [kept] = (tmp_path / "cache").rglob("tokens-*.npy")
    assert np.load(kept).tolist() == [2, 3, 4, 0, 5, 1, 6, 7, 8, 0]
    (texts / "2.txt").write_text("w3 never w4 w5 w0")
    assert all_of(opened(texts, train=False, tokens=words, tokenizer=str(tokenizer)))[0][-1] == 2
    with pytest.raises(InputError, match=r"tokens must be 0 to 4"):
        opened(texts, tokens=Tokens(LENGTH, 5), tokenizer=str(tokenizer))


@pytest.mark.parametrize(
    ("files", "keys", "line"),
    [
        ({}, {}, r"has no files that end with \.txt, \.jsonl, \.npy, \.bin"),
        ({"a.txt": b"abcdefghijkl", "b.jsonl": b"{}"}, {}, r"has \.jsonl and \.txt files"),
        ({"a.txt": b""}, {}, r"a\.txt: is empty"),
        ({"a.txt": b"abcd"}, {}, r"has 4 tokens to train on, too few for sequences of 4"),
        ({"a.txt": b"abcdefgh"}, {}, r"has 8 tokens to train on"),
        ({"a.txt": b"\xff\xfe"}, {}, r"a\.txt: is not UTF-8"),
        ({"a.txt": b"abcdefghijkl"}, {"text_column": "t"}, r"text_column: .*a\.txt has no columns"),
        ({"a.jsonl": b'{"text": "a"}\n{"t": 1}'}, {}, r"a\.jsonl:2: must be a JSON object with"),
        ({"a.jsonl": b'{"text": "a"}\nx'}, {}, r"a\.jsonl:2: must be"),
        ({"a.bin": b"abc"}, {}, r"a\.bin must hold integers of 2 bytes, and has 3 bytes"),
        ({"a.bin": b"\x00\x01" * 12}, {}, r"a\.bin: tokens must be 0 to 255"),
        ({"a.bin": b"\x00\x00" * 12}, {"text_column": "t"}, r"text_column: .* not texts"),
        ({"test.txt": b"abc", "x.txt": b"abc"}, {}, r"has no training part"),
        ({"a.txt": b"abcdefghijkl"}, {"tokenizer": "nowhere"}, r"tokenizer: nowhere is neither"),
    ],
)
def test_unfit_sources_are_refused_in_a_line(
    files: dict[str, bytes], keys: dict[str, Any], line: str, tmp_path: Path
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=line) as refused:
        opened(tmp_path, **keys)
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith("workload.data.")


def test_small_vocabularies_have_no_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abcdefghijkl")
    with pytest.raises(InputError, match=r"tokenizer: 'bytes' needs a vocabulary of at least 256"):
        opened(tmp_path, tokens=Tokens(LENGTH, 255))


def test_other_files_and_places_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("abcdefghijkl")
    with pytest.raises(InputError, match=r"a\.md must end with \.txt"):
        opened(tmp_path / "a.md")
    with pytest.raises(InputError, match=r"neither 'synthetic' nor a file or folder"):
        opened(tmp_path / "b")


def test_images_have_no_tokenizer(tmp_path: Path) -> None:
    for keys in ({"tokenizer": "bytes"}, {"text_column": "a"}):
        with pytest.raises(InputError, match=r"workload\.data\.\w+: the model takes images"):
            open_data(DataConfig(str(tmp_path), **keys), 2, Images(8))


def test_sequences_have_no_labels(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abcdefghijkl" * 10)
    for partition in ("dirichlet", "feature"):
        config = DataConfig(str(tmp_path), partition=partition)  # type: ignore[arg-type]
        with pytest.raises(InputError, match=r"workload\.data\.partition"):
            client_data(open_data(config, 256, BYTES), config, 2, 2)
    config = DataConfig(str(tmp_path), partition="quantity", concentration=0.5)
    shares = client_data(open_data(config, 256, BYTES), config, 2, 2)
    assert sum(len(share.indices) for share in shares) == 26


def test_a_run_says_what_it_has_recognised(tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "a.txt").write_text("abcdefghijkl" * 10)
    parameters = {
        "config": {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 1}
        | {"vocab_size": 256, "intermediate_size": 8, "num_hidden_layers": 1},
        "length": LENGTH,
    }
    model = ModelConfig("hf:llama", 256, parameters=parameters, train_head=False)
    for root in (texts / "a.txt", texts):
        digests = data_digests(root, has_texts=True)
        assert list(digests) == ["a.txt"]
        assert data_line(model, DataConfig(str(root)), digests, True, tmp_path / "cache") == (
            "tokens 0 to 255, 26 training sequences in a.txt (bytes), 3 held out in a.txt (bytes), "
            "the last tenth"
        )
