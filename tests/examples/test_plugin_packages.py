# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Each plug-in of examples/skyward changes what is computed; examples/prophet has its own tests."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from packages import importable, write_package

import orchestrator as tb
from testbed.core.registry import METRICS, PARTITIONS

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "skyward"
PROJECT = tomllib.loads((FOLDER / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PLUGINS = {
    "lone": {"paradigm": "lone"},
    "nearly-done": {"order": "nearly-done", "order_parameters": {"patience_s": 0.1}},
    "fast": {"participation.rule": "fast", "participation.parameters": {"most": 1}},
    "circles": {"mobility.model": "circles", "mobility.parameters": {"radius_m": 20}},
    "rain": {"radio.channel": "rain", "radio.parameters": {"db_per_km": 8}},
    "gap": {"radio.access": "gap", "radio.access_parameters": {"gap_db": 6}},
    "prefixed": {"emulation.transport": "prefixed"},
}
"""The keys that use a plug-in in a prediction."""


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    groups = PROJECT["entry-points"].items()
    entries = "\n".join(
        line for group, own in groups for line in (f"[{group}]", *map(" = ".join, own.items()))
    )
    write_package(tmp_path, "skyward", (FOLDER / "skyward.py").read_text(encoding="utf-8"), entries)
    with importable(tmp_path, "skyward", monkeypatch):
        yield


def predicted(keys: dict[str, object]) -> tb.Timeline:
    return tb.predict(tb.load("paper", {"rounds": 2} | keys), wire="emulation.transport" in keys)


@pytest.mark.parametrize("name", PLUGINS)
def test_it_changes_the_prediction(name: str) -> None:
    without = {"emulation.transport": "tcp"} if name == "prefixed" else {}
    with_it, usual = (predicted(keys).rounds[-1].latency_s for keys in (PLUGINS[name], without))
    assert with_it != usual


def test_the_partition_gives_each_client_few_classes() -> None:
    labels = np.arange(600) % 6
    parts = PARTITIONS.function("few-classes")(labels, 3, np.random.default_rng(1), classes=2)
    assert sorted(np.concatenate(parts)) == list(range(600))
    assert max(len(set(labels[part])) for part in parts) == 2


def test_the_metric_is_the_time_between_server_and_downlink() -> None:
    steps = predicted({}).frame().set_index(["round", "client", "iteration", "step"])
    waits = steps.xs("SG", level="step").start_s - steps.xs("S", level="step").end_s
    found = METRICS.function("waiting")(predicted({}))
    assert found["worst"] == pytest.approx(waits.max())
    assert 0 <= found["mean"] <= found["worst"] * len(waits)


def test_every_plugin_is_tried() -> None:
    """`busiest` by the command on the page."""
    named = {name for group in PROJECT["entry-points"].values() for name in group}
    assert named == {*PLUGINS, "few-classes", "waiting", "busiest"}
