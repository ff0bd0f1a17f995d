# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Federated data sets with named clients: what is read, who has it, and refusals with reasons."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torchvision.io import write_png

from testbed.core.errors import InputError
from workloads.data.config import DataConfig
from workloads.data.samples import client_data, open_data
from workloads.models.chain import DEVIATION, MEAN, Images, Tokens

WRITERS = {"f0_1": 5, "f1_2": 3, "f2_3": 8}
"""Clients and their numbers of samples."""


def leaf(file: Path, data: dict[str, Any], **different: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    counts = [len(own["y"]) for own in data.values()]
    tree = {"users": list(data), "num_samples": counts, "user_data": data}
    file.write_text(json.dumps(tree | different))


def pixels_of(client: int, count: int, side: int = 4) -> np.ndarray:
    """Each sample has one value, by which it is recognised."""
    values = (client * 16 + np.arange(count)) / 256
    return np.repeat(values, side * side).reshape(count, side, side)


def femnist(root: Path, part: str = "train", writers: dict[str, int] = WRITERS) -> None:
    data = {
        name: {"x": pixels_of(k, n).reshape(n, -1).tolist(), "y": [i % 3 for i in range(n)]}
        for k, (name, n) in enumerate(writers.items())
    }
    names = list(data)
    for number in (0, 1):  # LEAF divides the users among files.
        own = {name: data[name] for name in names[number::2]}
        leaf(root / part / f"all_data_{number}.json", own)


def emnist(file: Path, kind: type = np.float32) -> None:
    with h5py.File(file, "w") as opened:
        for k, (name, count) in enumerate(WRITERS.items()):
            group = opened.create_group(f"examples/{name}")
            pixels = pixels_of(k, count)
            pixels = np.rint(pixels * 255).astype(kind) if kind is np.uint8 else pixels.astype(kind)
            group.create_dataset("pixels", data=pixels, compression="gzip")
            group["label"] = np.arange(count, dtype=np.int32) % 3


def opened(root: Path, train: bool = True, **keys: Any) -> Any:
    config = DataConfig(source=str(root), partition="column", **keys)
    return open_data(config, 3, Images(4), train), config


@pytest.mark.parametrize("form", ["leaf", "tff", "tff bytes"])
def test_each_client_has_its_own_samples(tmp_path: Path, form: str) -> None:
    for part in ("train", "test"):
        if form == "leaf":
            femnist(tmp_path, part)
            (tmp_path / "all_data").mkdir(exist_ok=True)
            (tmp_path / "all_data" / "x.json").write_text("not read")
        else:
            emnist(tmp_path / f"fed_{part}.h5", np.uint8 if "bytes" in form else np.float32)
    data, config = opened(tmp_path)
    assert len(opened(tmp_path, train=False)[0].labels) == 16
    for k, (name, share) in enumerate(zip(WRITERS, client_data(data, config, 3, 2), strict=True)):
        count = WRITERS[name]
        assert set(data.metadata["client"][share.indices]) == {name}
        assert data.labels[share.indices].tolist() == [i % 3 for i in range(count)]
        images = data.images(share.indices) * torch.tensor(DEVIATION).view(3, 1, 1)
        images += torch.tensor(MEAN).view(3, 1, 1)
        expected = torch.from_numpy(pixels_of(k, count)).float()[:, None].expand(-1, 3, -1, -1)
        torch.testing.assert_close(images, expected, atol=1 / 255, rtol=0)


def test_without_a_held_out_part_a_tenth_is_held_out(tmp_path: Path) -> None:
    leaf(tmp_path / "a.json", {"one": {"x": [[0.5] * 16] * 90, "y": [0, 1, 2] * 30}})
    assert [len(opened(tmp_path, train)[0].labels) for train in (True, False)] == [81, 9]


def test_more_clients_than_uavs_are_chosen_by_seed(tmp_path: Path) -> None:
    femnist(tmp_path, writers={f"w{n:02}": 4 for n in range(12)})
    chosen = []
    for seed in (1, 1, 2):
        data, config = opened(tmp_path, seed=seed)
        shares = client_data(data, config, 5, 2)
        names = [set(data.metadata["client"][share.indices]) for share in shares]
        assert all(len(own) == 1 for own in names)
        chosen.append([own.pop() for own in names])
        assert chosen[-1] == sorted(set(chosen[-1]))
    assert chosen[0] == chosen[1] != chosen[2]
    with pytest.raises(InputError, match="'client' names 12 clients, fewer than the 13 UAVs"):
        client_data(data, config, 13, 2)


def test_texts_are_cut_client_by_client(tmp_path: Path) -> None:
    lines = {"ROMEO": "But soft, what light", "JULIET": "O Romeo, Romeo! wher"}
    data = {
        who: {"x": [line[n : n + 8] for n in range(10)], "y": [line[n + 8] for n in range(10)]}
        for who, line in lines.items()
    }
    leaf(tmp_path / "train" / "a.json", data)
    with h5py.File(tmp_path.parent / "snippets.h5", "w"):
        pass
    config = DataConfig(source=str(tmp_path), partition="column")
    found = open_data(config, 256, Tokens(8, 256))
    # All of them come from one part, so that a tenth is held out.
    for who, share in zip(sorted(lines), client_data(found, config, 2, 1), strict=True):
        texts = {bytes(row.tolist()).decode() for row in found.sequences(share.indices)}
        assert texts < {lines[who][n : n + 9] for n in range(10)}
        assert len(texts) == len(share.indices)
    (tff := tmp_path / "tff").mkdir()
    with h5py.File(tff / "shakespeare_train.h5", "w") as file:
        for who, line in lines.items():
            file[f"examples/{who}/snippets"] = [line.encode(), line.upper().encode()]
    config = DataConfig(source=str(tff), partition="column")
    found = open_data(config, 256, Tokens(4, 256))
    rows = {bytes(row.tolist()) for row in found.sequences(np.arange(len(found.labels)))}
    whole = {who: f"{line}\n{line.upper()}" for who, line in lines.items()}
    cut = {t[n : n + 5].encode() for t in whole.values() for n in range(0, len(t) - 4, 4)}
    assert rows < cut
    with pytest.raises(InputError, match="no texts of 81 bytes"):
        open_data(config, 256, Tokens(80, 256))


GOOD = {"x": [[0.5] * 16] * 4, "y": [0, 1, 2, 0]}
BROKEN: dict[str, tuple[Any, str]] = {
    "no object": ([1], "not LEAF's form"),
    "no user_data": ({"users": ["a"]}, "not LEAF's form"),
    "other users": ({"users": ["b"], "user_data": {"a": GOOD}}, "name different clients"),
    "no x": ({"users": ["a"], "user_data": {"a": {"y": [1]}}}, "lists x and y"),
    "fewer y": ({"users": ["a"], "user_data": {"a": GOOD | {"y": [0]}}}, "of one length"),
    "no square": ({"users": ["a"], "user_data": {"a": {"x": [[0.5] * 60], "y": [0]}}}, "square"),
    "ragged": ({"users": ["a"], "user_data": {"a": {"x": [[1], [1, 0]], "y": [0, 1]}}}, "a.json"),
    "texts": ({"users": ["a"], "user_data": {"a": {"x": ["abc"], "y": ["d"]}}}, "no pictures"),
    "normalised": (
        {"users": ["a"], "user_data": {"a": {"x": [[-3] * 4], "y": [0]}}},
        "from 0 to 1",
    ),
    "NaN": ({"users": ["a"], "user_data": {"a": {"x": [[float("nan")] * 4], "y": [0]}}}, "0 to 1"),
    "label 3": ({"users": ["a"], "user_data": {"a": GOOD | {"y": [0, 1, 2, 3]}}}, "the label 3"),
    "label -1": ({"users": ["a"], "user_data": {"a": GOOD | {"y": [0, -1, 2, 0]}}}, "label -1"),
    "label 0.5": ({"users": ["a"], "user_data": {"a": GOOD | {"y": [0.5] * 4}}}, "whole numbers"),
    "label true": ({"users": ["a"], "user_data": {"a": GOOD | {"y": [True] * 4}}}, "whole numbers"),
    "no samples": ({"users": ["a"], "user_data": {"a": {"x": [], "y": []}}}, "no samples"),
    "empty pictures": (
        {"users": ["a"], "user_data": {"a": {"x": [[]] * 2, "y": [0, 1]}}},
        "x that",
    ),
}


@pytest.mark.parametrize("notes", [{"licence": "CC0"}, [{"id": 1}]])
def test_pictures_and_texts_may_have_json_files_beside_them(tmp_path: Path, notes: Any) -> None:
    shade = torch.full((3, 4, 4), 60, dtype=torch.uint8)
    for part in ("train", "test"):
        (tmp_path / "texts").mkdir(exist_ok=True)
        (tmp_path / "texts" / f"{part}.txt").write_text("abcdefghi")
        for label in "abc":
            folder = tmp_path / "pictures" / part / label
            folder.mkdir(parents=True)
            write_png(shade, str(folder / "1.png"))
        (tmp_path / "pictures" / part / "notes.json").write_text(json.dumps(notes))
    for kind in ("pictures", "texts"):
        (tmp_path / kind / "notes.json").write_text(json.dumps(notes))
    pictures = open_data(DataConfig(source=str(tmp_path / "pictures")), 3, Images(4))
    assert pictures.labels.tolist() == [0, 1, 2]
    tokens = Tokens(4, 256)
    texts = open_data(DataConfig(source=str(tmp_path / "texts")), 256, tokens)
    assert bytes(texts.batch(np.array([0]))[0][0].tolist()) == b"abcd"


def test_leaf_may_have_other_files_beside_it(tmp_path: Path) -> None:
    femnist(tmp_path)
    femnist(tmp_path, "test")
    (tmp_path / "README.txt").write_text("about")
    assert len(opened(tmp_path, train=False)[0].labels) == 16


@pytest.mark.parametrize(("tree", "why"), BROKEN.values(), ids=BROKEN)
def test_broken_leaf_is_refused_in_one_line(tmp_path: Path, tree: Any, why: str) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "a.json").write_text(json.dumps(tree))
    with pytest.raises(InputError, match=why) as refused:
        opened(tmp_path)
    assert str(refused.value).startswith("workload.data.source: ")
    assert "\n" not in str(refused.value)


def other_place(file: Any, folder: Path) -> None:
    file.create_group("examples")["a"] = h5py.ExternalLink("other.h5", "/examples/a")


def soft_link(file: Any, folder: Path) -> None:
    file.create_group("examples")["a"] = h5py.SoftLink("/")


def external(file: Any, folder: Path) -> None:
    (folder / "secret").write_bytes(bytes(64))
    group = file.create_group("examples/a")
    place = [(str(folder / "secret"), 0, 64)]
    group.create_dataset("pixels", (4, 4, 4), np.uint8, external=place)
    group["label"] = [0, 1, 2, 0]


def virtual(file: Any, folder: Path) -> None:
    layout = h5py.VirtualLayout((4, 4, 4), np.uint8)
    layout[:] = h5py.VirtualSource("other.h5", "x", shape=(4, 4, 4))
    group = file.create_group("examples/a")
    group.create_virtual_dataset("pixels", layout)
    group["label"] = [0, 1, 2, 0]


def claims(file: Any, folder: Path) -> None:
    group = file.create_group("examples/a")
    group.create_dataset("pixels", (1 << 24, 28, 28), np.float32, chunks=(1, 28, 28))
    group.create_dataset("label", (1 << 24,), np.int32, chunks=(1024,))


def one_chunk(file: Any, folder: Path) -> None:
    group = file.create_group("examples/a")
    group.create_dataset(
        "pixels", (1, 4, 4), np.uint8, chunks=(1 << 25, 4, 4), maxshape=(None, 4, 4)
    )
    group["label"] = [0]


def no_label(file: Any, folder: Path) -> None:
    file["examples/a/pixels"] = np.zeros((4, 4, 4), np.uint8)


def fewer_labels(file: Any, folder: Path) -> None:
    file["examples/a/pixels"] = np.zeros((4, 4, 4), np.uint8)
    file["examples/a/label"] = [0, 1]


def no_group(file: Any, folder: Path) -> None:
    file["examples"] = [1, 2]


def nothing(file: Any, folder: Path) -> None:
    file.attrs["a"] = 1


HOSTILE = {
    other_place: "a link to another place",
    soft_link: "a link to another place",
    external: "must lie in the file itself",
    virtual: "must lie in the file itself",
    claims: "claims .* bytes of values in a file of",
    one_chunk: "chunks of more than",
    no_label: "needs the fields pixels or image, and label",
    fewer_labels: "has 4 x and 2 y",
    no_group: "is no group",
    nothing: "'examples' is missing",
}


@pytest.mark.parametrize(("make", "why"), HOSTILE.items(), ids=[m.__name__ for m in HOSTILE])
def test_hostile_hdf5_is_refused_in_one_line(
    tmp_path: Path, make: Callable[[Any, Path], None], why: str
) -> None:
    (root := tmp_path / "data").mkdir()
    with h5py.File(root / "fed_train.h5", "w") as file:
        make(file, tmp_path)
    with pytest.raises(InputError, match=why) as refused:
        opened(root)
    assert str(refused.value).startswith(f"workload.data.source: {root / 'fed_train.h5'}")
    assert "\n" not in str(refused.value)
