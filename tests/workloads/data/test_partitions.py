# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Partitions of packages: how they are called, and which answers are refused."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packages import importable, write_package
from small_scenario import TREE

from orchestrator.scenario.loading import validate
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from workloads.data.config import DataConfig
from workloads.data.partitions import partition

MODULE = """
import numpy as np

def halves(labels, clients, random, share=0.5):
    many = int(share * len(labels))
    order = random.permutation(len(labels))
    return [order[:many], *np.array_split(order[many:], clients - 1)]

def wrong(labels, clients, random, kind):
    whole = [np.arange(k, len(labels), clients) for k in range(clients)]
    whole[0] = {
        "empty": whole[0][:0],
        "beyond": whole[0] + len(labels),
        "negative": whole[0] - 1,
        "twice": np.repeat(whole[0], 2),
        "floats": whole[0] + 0.5,
        "table": whole[0][None],
    }.get(kind, whole[0])
    return whole[1:] if kind == "few" else 1 / 0 if kind == "fails" else whole
"""
ENTRIES = "[testbed.partitions]\nhalves = unfair:halves\nwrong = unfair:wrong\n"
LABELS = np.arange(40) % 4


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    write_package(tmp_path / "packages", "unfair", MODULE, ENTRIES)
    with importable(tmp_path / "packages", "unfair", monkeypatch):
        yield


@pytest.mark.usefixtures("package")
def test_a_partition_of_a_package() -> None:
    config = DataConfig(partition="halves", partition_parameters={"share": 0.75}, seed=3)
    parts = partition(LABELS, 3, config)
    assert [len(part) for part in parts] == [30, 5, 5]
    assert sorted(np.concatenate(parts).tolist()) == list(range(40))
    drawn = np.random.default_rng([3, 0x9A47]).permutation(40)
    assert parts[0].tolist() == sorted(drawn[:30].tolist())


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("empty", "must give client 1 one or more indices"),
        ("beyond", "client 1: indices must be 0 to 39"),
        ("negative", "client 1: indices must be 0 to 39"),
        ("twice", "client 1: an index is given twice"),
        ("floats", "must give client 1 one or more indices"),
        ("table", "must give client 1 one or more indices"),
        ("few", "must return 4 arrays, one for each client, not 3"),
        ("fails", "ZeroDivisionError"),
    ],
)
def test_answers_that_are_no_partition_are_refused(kind: str, why: str) -> None:
    config = DataConfig(partition="wrong", partition_parameters={"kind": kind})
    with pytest.raises(InputError) as refused:
        partition(LABELS, 4, config)
    assert str(refused.value).startswith("workload.data.partition: ")
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.usefixtures("package")
def test_scenarios_name_partitions_and_their_parameters() -> None:
    def scenario(data: object) -> Scenario:
        return validate(TREE | {"workload": TREE["workload"] | {"data": data}}, "s.yaml")

    data = {"partition": "halves", "partition_parameters": {"share": 0.75}}
    assert scenario(data).workload.data.partition == "halves"
    for wrong, why in [
        ({"partition": "halvs"}, r"workload\.data\.partition: 'halvs' is not one of iid,"),
        ({"partition": "halves", "partition_parameters": {"x": 1}}, r"partition_parameters\.x: "),
        ({"partition": "wrong"}, r"partition_parameters\.kind: is missing"),
        (
            {"partition": "dirichlet", "partition_parameters": {"concentration": 1}},
            r"workload\.data\.partition_parameters: are those of a plug-in",
        ),
    ]:
        with pytest.raises(InputError, match=why):
            scenario(wrong)


@pytest.mark.parametrize(
    ("kind", "digest"),
    [
        ("iid", "58c225ee5f7f0b75"),
        ("feature", "58c225ee5f7f0b75"),
        ("dirichlet", "949a4f4a47e1debf"),
        ("quantity", "2b2de87894c1e3cc"),
    ],
)
def test_built_in_partitions_are_those_of_earlier_versions(kind: str, digest: str) -> None:
    parts = partition(np.arange(1000) % 10, 7, DataConfig(partition=kind, seed=5))
    assert [part.dtype for part in parts] == [np.dtype(np.int64)] * 7
    found = hashlib.sha256(b"|".join(part.tobytes() for part in parts)).hexdigest()[:16]
    assert found == digest


def test_shards_are_equal_parts_of_samples_sorted_by_label() -> None:
    labels = np.random.default_rng(5).permutation(np.arange(400) % 10)
    parts = partition(labels, 10, DataConfig(partition="shards", shards=2, seed=3))
    assert [len(part) for part in parts] == [40] * 10
    assert sorted(np.concatenate(parts).tolist()) == list(range(400))
    assert all(len(np.unique(labels[part])) <= 2 for part in parts)
    other = partition(labels, 10, DataConfig(partition="shards", shards=2, seed=4))
    assert any(a.tolist() != b.tolist() for a, b in zip(parts, other, strict=True))
    with pytest.raises(InputError, match=r"workload.data.shards: 40 samples cannot make 60 shards"):
        partition(LABELS, 3, DataConfig(partition="shards", shards=20))
