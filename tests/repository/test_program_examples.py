# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The examples of other people's programs on the network: they work as they are."""

import os
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
from required import lacks

from orchestrator import api

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TRACE = {"gain": np.full((3, 400), 1e-10), "slot_s": 0.1}


def needs(*programs: str) -> None:
    """Skip where one is missing; in CI, fail."""
    search = os.environ["PATH"] + ":/usr/sbin"
    if missing := [p for p in programs if shutil.which(p, path=search) is None]:
        lacks(f"{', '.join(missing)}: not installed")


def play(name: str, out: Path, monkeypatch, **changes) -> None:
    monkeypatch.setenv("PATH", os.environ["PATH"] + ":/usr/sbin")
    scenario = api.load(EXAMPLES / name / "scenario.yaml", changes)
    done = api.play_session(
        scenario, TRACE, out, commands={}, seconds=38.0, began=lambda _: nullcontext()
    )
    said = {log.name: log.read_text() for log in (out / "logs").iterdir()}
    assert done.succeeded, said


def test_iperf3_carries_what_the_rates_allow(tmp_path, monkeypatch) -> None:
    needs("iperf3")
    play("iperf3", tmp_path / "out", monkeypatch, **{"nodes.uav*.env": {"SECONDS_EACH": 2}})
    monkeypatch.syspath_prepend(EXAMPLES / "iperf3")
    from compare import compare

    table = compare(tmp_path / "out")
    assert (table.slots >= 10).all()
    # Exact on an idle machine; here, others may compute.
    assert (table.overall_percent.abs() < 10).all()
    assert table.of_carried_percent.between(95, 101).all()
    sys.modules.pop("compare")


def test_every_uavs_message_reaches_the_broker(tmp_path, monkeypatch) -> None:
    needs("mosquitto", "mosquitto_pub", "mosquitto_sub")
    play("mqtt", tmp_path / "out", monkeypatch)
    lines = sorted((tmp_path / "out/nodes/bs/received").read_text().splitlines())
    assert lines == [f"models/uav{k} 200000" for k in (1, 2, 3)]
