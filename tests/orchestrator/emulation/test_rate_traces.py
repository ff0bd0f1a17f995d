# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A trace of rates, and a service order that asks for them, from the file to packets and kernel."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from console import TESTBED
from small_scenario import TEXT, TREE

import orchestrator as tb
from ns3_scenarios.trace import ChannelTrace, Replay
from orchestrator.packet_simulation.rounds import play
from orchestrator.prediction.engine import service_order_of
from orchestrator.prediction.plan import link_bytes
from orchestrator.prediction.rounds import predict
from orchestrator.scenario.loading import validate
from orchestrator.scenario.profiles import profile_of
from testbed.core.timeline import STEPS

ORDER = "shortest-job-first"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Three links whose rates change by slot and by direction; the downlinks are the slower."""
    rng = np.random.default_rng(11)
    up = rng.uniform(1e7, 2e7, (3, 2000))
    down = rng.uniform(2e6, 4e6, (3, 2000)) * np.array([[1], [2], [4]])
    path = tmp_path / "rates.npz"
    fields = {"uplink_bps": up, "downlink_bps": down, "slot_s": 0.1}
    ChannelTrace.of(fields, "trace").save(path)
    return path


def test_packets_carry_what_a_trace_of_rates_says(trace: Path) -> None:
    scenario = validate({**TREE, "rounds": 2, "order": ORDER}, "test")
    source, profile = Replay(ChannelTrace.load(trace)), profile_of(scenario)
    wire = predict(scenario, source, profile, sizing=link_bytes)
    played = play(scenario, source, profile).timeline
    for got, due in zip(played, wire, strict=True):
        assert got.latency_s == pytest.approx(due.latency_s, rel=2e-3)
        turns = [service_order_of(each.spans, 3, 2)[1] for each in (got, due)]
        assert (turns[0] == turns[1]).all()


@pytest.mark.guest
def test_the_kernel_carries_what_a_trace_of_rates_says(trace: Path, tmp_path: Path) -> None:
    path, result = tmp_path / "small.yaml", tmp_path / "run.json"
    path.write_text(TEXT + f"order: {ORDER}\n")
    words = ["run", path, "--trace", trace, "--set", "emulation.clock=virtual", "--json", result]
    done = subprocess.run(
        [*TESTBED, *map(str, words), "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr
    rounds = json.loads(result.read_text())
    (wire,), (seen,) = rounds["predicted_wire"], rounds["measured"]
    assert seen["latency_s"] == pytest.approx(wire["latency_s"], rel=1e-3)

    def turns(round_: dict[str, list[dict[str, float]]]) -> list[tuple[float, float]]:
        sent = [step for step in round_["steps"] if step["step"] == "SG"]
        sent.sort(key=lambda step: step["start_s"])
        return [(step["client"], step["iteration"]) for step in sent]

    assert turns(seen) == turns(wire)
    assert tb.read_run(tmp_path / "out").scenario.order == ORDER
    assert [client for client, _ in turns(wire)] == [2, 3, 1, 3, 2, 1]
    assert set(STEPS) == {step["step"] for step in seen["steps"]}
