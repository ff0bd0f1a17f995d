# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Pictures out of tables: parquet as hubs have it, and what `datasets` saves to disk."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torchvision.io import encode_png

from testbed.core.errors import InputError
from workloads.data.config import DataConfig
from workloads.data.samples import Dataset, client_data, open_data
from workloads.models.chain import Images, Tokens

SIZE = 32


def picture(label: int, index: int) -> bytes:
    """Red by its class, green by its place."""
    pixels = torch.zeros(3, SIZE, SIZE, dtype=torch.uint8)
    pixels[0], pixels[1] = 10 * label, index
    return bytes(encode_png(pixels).numpy())


def table(labels: list[Any], **more: list[Any]) -> pa.Table:
    numbers = [ord(label) - 97 if str(label).isalpha() else int(label) for label in labels]
    cells = [{"bytes": picture(n, i), "path": None} for i, n in enumerate(numbers)]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    return pa.table({"image": pa.array(cells, kind), "label": labels} | more)


def saved(folder: Path, *parts: pa.Table) -> None:
    """As `Dataset.save_to_disk` leaves it."""
    folder.mkdir(parents=True)
    names = [f"data-{n:05}-of-{len(parts):05}.arrow" for n in range(len(parts))]
    for name, part in zip(names, parts, strict=True):
        with pa.ipc.new_stream(str(folder / name), part.schema) as stream:
            stream.write_table(part)
    state = {"_data_files": [{"filename": name} for name in names]}
    (folder / "state.json").write_text(json.dumps(state))


def opened(root: Path, train: bool = True, classes: int = 3, **keys: Any) -> Dataset:
    return open_data(DataConfig(source=str(root), **keys), classes, Images(SIZE), train=train)


def seen(data: Dataset) -> list[tuple[int, int]]:
    """What each picture says of itself: its class and its place."""
    images, _ = data.batch(np.arange(len(data.labels)))
    mean, deviation = torch.tensor(Images(SIZE).mean), torch.tensor(Images(SIZE).deviation)
    pixels = 255 * (images * deviation.view(3, 1, 1) + mean.view(3, 1, 1))
    middle = pixels[:, :, SIZE // 2, SIZE // 2].round().long()
    return [(int(red) // 10, int(green)) for red, green, _ in middle.tolist()]


TRAIN, TEST = [0, 2, 1, 2, 0, 1, 2], [2, 1]


def test_parquet_files_by_their_parts(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    rows = table(TRAIN)
    pq.write_table(rows.slice(0, 4), folder / "train-00000-of-00002.parquet", row_group_size=2)
    pq.write_table(rows.slice(4), folder / "train-00001-of-00002.parquet")
    pq.write_table(table(TEST), folder / "test-00000-of-00001.parquet")
    train, test = opened(tmp_path), opened(tmp_path, train=False)
    assert train.labels.tolist() == TRAIN
    assert train.classes == 3
    assert seen(train) == list(zip(TRAIN, range(7), strict=True))
    assert seen(test) == list(zip(TEST, range(2), strict=True))


def test_what_datasets_saved_to_disk(tmp_path: Path) -> None:
    root, rows = tmp_path / "set", table(TRAIN)
    saved(root / "train", rows.slice(0, 3), rows.slice(3))
    saved(root / "validation", table(TEST))
    (root / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "validation"]}))
    assert seen(opened(root)) == list(zip(TRAIN, range(7), strict=True))
    assert opened(root, train=False).labels.tolist() == TEST


def test_without_parts_a_tenth_of_each_class_is_held_out(tmp_path: Path) -> None:
    labels = [k % 2 for k in range(40)]
    saved(tmp_path / "one", table(labels))
    train, test = (opened(tmp_path / "one", train, 2) for train in (True, False))
    assert sorted(test.labels.tolist()) == [0, 0, 1, 1]
    places = [place for _, place in [*seen(train), *seen(test)]]
    assert sorted(places) == list(range(40)), "every picture is in one of them"
    assert all(label == place % 2 for label, place in seen(test))


def test_parts_are_found_where_hubs_have_them(tmp_path: Path) -> None:
    """In the folder of a configuration; or one part alone, of which a tenth is held out."""
    folder = tmp_path / "plain_text"
    folder.mkdir()
    pq.write_table(table(TRAIN), folder / "train-00000-of-00001.parquet")
    pq.write_table(table(TEST), folder / "test-00000-of-00001.parquet")
    assert opened(tmp_path).labels.tolist() == TRAIN
    assert opened(tmp_path, train=False).labels.tolist() == TEST
    for part in ("train", "test"):
        root = tmp_path / f"{part} alone"
        saved(root / part, table([0, 1] * 20))
        (root / "dataset_dict.json").write_text("{}")
        assert len(opened(root, classes=2).labels) == 36
        assert len(opened(root, False, 2).labels) == 4


def test_columns_are_found_or_named(tmp_path: Path) -> None:
    folder = tmp_path / "two"
    folder.mkdir()
    pq.write_table(table(["b", "a", "b"], coarse=[1, 1, 0]), folder / "all.parquet")
    with pytest.raises(InputError, match=r"label_column: must name .* columns: label, coarse"):
        opened(folder)
    with pytest.raises(InputError, match=r"label_column: 'fine' is not suitable"):
        opened(folder, label_column="fine")
    assert opened(folder, classes=2, label_column="label").labels.tolist() == [1, 0, 1]
    assert opened(folder, classes=2, label_column="coarse").labels.tolist() == [1, 1, 0]


def test_what_is_wrong_is_said_in_one_line(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "train.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(InputError, match=r"train\.parquet cannot be read as a table"):
        opened(bad)
    alone = tmp_path / "alone"
    alone.mkdir()
    pq.write_table(table(TRAIN), alone / "train.parquet")
    pq.write_table(table([7]), alone / "test.parquet")
    with pytest.raises(InputError, match="has the class 7, which train lacks"):
        opened(alone, train=False)
    broken = table([0, 1]).set_column(0, "image", pa.array([b"no picture", b""], pa.binary()))
    pq.write_table(broken, alone / "train.parquet")
    from workloads.data import tables

    tables._opened.cache_clear()
    with pytest.raises(InputError, match=r"row 0 of .*train\.parquet: is none of JPEG") as refusal:
        opened(alone, classes=2).batch(np.array([0]))
    assert "\n" not in str(refusal.value)


def shares(partition: Any, **keys: Any) -> list[Any]:
    config = DataConfig(samples=400, partition=partition, **keys)
    return client_data(open_data(config, 4, Images(16)), config, 4, batch_size=8)


def test_quantity_skew_is_of_sizes_and_not_of_classes() -> None:
    found = shares("quantity", concentration=0.5)
    sizes = [len(share.indices) for share in found]
    assert sum(sizes) == 400
    assert max(sizes) > 2 * min(sizes)
    whole = np.concatenate([share.indices for share in found])
    assert sorted(whole.tolist()) == list(range(400))
    for share in found:
        if len(share.indices) >= 60:
            counts = np.bincount(share.dataset.labels[share.indices], minlength=4)
            assert counts.max() < 0.45 * len(share.indices)
    assert [len(s.indices) for s in shares("quantity", concentration=1000.0)] == pytest.approx(
        [100] * 4, abs=12
    )


def test_feature_skew_grows_from_client_to_client() -> None:
    noisy, plain = shares("feature", noise=0.8), shares("iid")
    for k, (one, other) in enumerate(zip(noisy, plain, strict=True), 1):
        assert one.indices.tolist() == other.indices.tolist()
        images, labels = one.batch(0, 1)
        clean, same = other.batch(0, 1)
        assert labels.tolist() == same.tolist()
        assert float((images - clean).std()) == pytest.approx(0.8 * k / 4, rel=0.05)
        assert torch.equal(images, one.batch(0, 1)[0]), "by seed"
    config = DataConfig(samples=40, partition="feature")
    tokens = open_data(config, 5, Tokens(4, 5))
    with pytest.raises(InputError, match="'feature' requires images"):
        client_data(tokens, config, 2, 4)


def test_labels_that_are_texts_are_numbered_by_the_numbers_in_them(tmp_path: Path) -> None:
    labels = [str(n % 12) for n in range(48)]
    pq.write_table(table(labels), tmp_path / "train.parquet")
    pq.write_table(table(labels[::-1]), tmp_path / "test.parquet")
    data = opened(tmp_path, classes=12)
    assert list(data.names) == [str(n) for n in range(12)]
    assert data.labels.tolist() == list(map(int, labels))
    assert opened(tmp_path, train=False, classes=12).labels.tolist() == list(map(int, labels[::-1]))


def test_tables_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for part in (10, 2, 1):
        pq.write_table(table([part] * 3), tmp_path / f"train-{part}.parquet")
    assert opened(tmp_path, classes=11).labels.tolist() == [1] * 3 + [2] * 3 + [10] * 3
