# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Natural clients: columns of tables, folders, and what a partition of a package is told."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from packages import importable, write_package
from torchvision.io import encode_png, write_png

from testbed.core.errors import InputError
from workloads.data.clients import owners_of
from workloads.data.config import DataConfig
from workloads.data.partitions import check_partition, partition
from workloads.data.samples import client_data, open_data
from workloads.models.chain import Images

WRITERS = ["ann", "ben", "ann", "cy", "ben", "ann"] * 4
LABELS = [0, 1, 1, 0, 0, 1] * 4


def png(shade: int) -> bytes:
    return encode_png(torch.full((3, 16, 16), shade, dtype=torch.uint8)).numpy().tobytes()


def table(root: Path, writers: Any = WRITERS) -> None:
    root.mkdir(exist_ok=True)
    columns = {"image": [png(n) for n in range(24)], "label": LABELS, "writer": writers}
    for part in ("train", "test"):
        pq.write_table(pa.table(columns), root / f"{part}.parquet")


def shares(root: Path, clients: int = 3, **keys: Any) -> Any:
    config = DataConfig(source=str(root), partition="column", **keys)
    data = open_data(config, 2, Images(16))
    return data, client_data(data, config, clients, 2)


@pytest.mark.parametrize("kind", [str, lambda name: ["ann", "ben", "cy"].index(name) * 10**10])
def test_a_column_of_a_table_names_the_clients(tmp_path: Path, kind: Any) -> None:
    table(tmp_path, list(map(kind, WRITERS)))
    data, found = shares(tmp_path, partition_column="writer")
    assert list(data.metadata) == ["label", "writer"]
    for name, share in zip(("ann", "ben", "cy"), found, strict=True):
        assert share.indices.tolist() == [n for n, own in enumerate(WRITERS) if own == name]


def test_columns_that_cannot_name_clients_are_refused(tmp_path: Path) -> None:
    table(tmp_path)
    for column, why in (
        (None, "partition_column: must be given; columns that describe the samples: label, writer"),
        ("author", "partition_column: has no 'author'; columns"),
        ("image", "partition_column: has no 'image'; columns"),
    ):
        with pytest.raises(InputError, match=why):
            shares(tmp_path, partition_column=column, label_column="label")
    with pytest.raises(InputError, match="'writer' names 3 clients, fewer than the 4 UAVs"):
        shares(tmp_path, 4, partition_column="writer")
    table(tmp_path / "nulls", [None, *WRITERS[1:]])
    with pytest.raises(InputError, match="value is missing in column 'writer'"):
        shares(tmp_path / "nulls", partition_column="writer")
    with pytest.raises(InputError, match=r"must be given; columns .*: none"):
        shares(Path("synthetic"))


def pictures(root: Path, places: list[str]) -> None:
    for n, place in enumerate(places):
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        write_png(torch.full((3, 16, 16), n, dtype=torch.uint8), str(root / place))


@pytest.mark.parametrize("part", ["", "train/"])
def test_folders_by_client(tmp_path: Path, part: str) -> None:
    places = [
        f"{part}{who}/{what}/{n}.png" for who in "abc" for what in ("cat", "dog") for n in "12"
    ]
    pictures(tmp_path, [*places[:-2], *(["test/z/dog/1.png"] if part else [])])
    data, found = shares(tmp_path)
    assert list(data.names) == ["cat", "dog"]
    assert [sorted(set(data.metadata["client"][s.indices])) for s in found] == [["a"], ["b"], ["c"]]
    assert sum(len(share.indices) for share in found) == len(data.labels) == (10 if part else 9)
    assert set(data.labels[found[2].indices]) == {0}, "a client may lack a class"
    pictures(tmp_path / "flat", ["a/1.png", "b/2.png"])
    with pytest.raises(InputError, match="must be a client's folder with one folder per class"):
        shares(tmp_path / "flat")


def test_a_table_beside_pictures_names_the_clients(tmp_path: Path) -> None:
    pictures(tmp_path, [f"{what}/{n}.png" for what in ("cat", "dog") for n in range(20)])
    rows = [f"{what}/{n}.png,w{n % 2}" for what in ("cat", "dog") for n in range(20)]
    (tmp_path / "metadata.csv").write_text("\n".join(["file_name,writer", *rows]))
    data, found = shares(tmp_path, 2, partition_column="writer")
    assert len(data.labels) == 36
    for name, share in zip(("w0", "w1"), found, strict=True):
        assert {Path(data._paths[n]).stem for n in share.indices} <= {
            str(n) for n in range(20) if n % 2 == int(name[1])
        }
    for text, why in (
        ("file_name,writer\n" + "\n".join(rows[1:30]), "has no row in a metadata.csv for"),
        ("name,writer\n" + "\n".join(rows), "has no column file_name"),
        ("file_name,writer\ncat/1.png", "line 2 lacks a column"),
        ("file_name,writer\ncat/1.png,a,b", "line 2 lacks a column or has one too many"),
        ("file_name,writer\n\xff", "cannot be read as a table"),
        ('file_name,writer\n"cat', "cannot be read as a table"),
    ):
        (tmp_path / "metadata.csv").write_bytes(text.encode("latin-1"))
        with pytest.raises(InputError, match=why) as refused:
            shares(tmp_path, 2, partition_column="writer")
        assert "\n" not in str(refused.value)


def test_owners_say_who_is_left_out() -> None:
    metadata = {"client": np.array([f"w{n}" for n in range(30)])}
    owners = owners_of(metadata, 10, DataConfig())
    assert len(set(owners.chosen.tolist())) == 10
    assert owners.line.startswith("workload.data.partition_column: 10 of 30 clients are UAVs")
    rest = [name for n, name in enumerate(owners.names) if n not in owners.chosen]
    assert f"not used: {', '.join(rest[:8])}, …" in owners.line
    assert owners_of(metadata, 30, DataConfig()).line == ""


PLUGINS = """
import numpy as np

def old(labels, clients, random, offset=0):
    return np.array_split(np.arange(offset, len(labels)), clients)

def by_time(labels, clients, random, metadata, column="hour"):
    return np.array_split(np.argsort(metadata[column], kind="stable"), clients)
"""


def test_a_partition_of_a_package_may_ask_for_the_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = "[testbed.partitions]\nold = parts:old\nby-time = parts:by_time\n"
    write_package(tmp_path, "parts", PLUGINS, entries)
    labels, hours = np.zeros(8, np.int64), np.array([5, 1, 7, 3, 0, 2, 6, 4])
    with importable(tmp_path, "parts", monkeypatch):
        for name, more in (("old", {"offset": 2}), ("by-time", {"column": "time"})):
            check_partition(name, more)
        config = DataConfig(partition="by-time")
        early, late = partition(labels, 2, config, {"hour": hours})
        assert sorted(hours[early]) == [0, 1, 2, 3]
        assert sorted(hours[late]) == [4, 5, 6, 7]
        assert partition(labels, 2, DataConfig(partition="old"), {"hour": hours})[1][0] == 4
        with pytest.raises(InputError, match=r"plugin 'by-time' \(parts:by_time\) fails: KeyError"):
            partition(labels, 2, config)
        with pytest.raises(InputError, match=r"partition_parameters\.metadata: is given by"):
            check_partition("by-time", {"metadata": 1})
        with pytest.raises(InputError, match=r"partition_parameters\.metadata: "):
            check_partition("old", {"metadata": 1})
