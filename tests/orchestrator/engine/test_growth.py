# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The work of a prediction is linear in clients and iterations: counted lines, not time.

The conductor plays all of these rounds, in a process of its own. The compiled fast path has no
lines of Python; `benchmarks/engine.py` times it. Queues add a logarithm. The calls around it have
budgets in `benchmarks/budgets.py`.
"""

import json
import subprocess
import sys
import tracemalloc
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ns3_scenarios.trace import ChannelTrace, Replay
from orchestrator.rounds import simulation
from orchestrator.rounds.loop import predict
from orchestrator.scenario.loading import load, varied
from orchestrator.scenario.schema import Scenario
from workloads.costs.profile import PAPER

SCENARIO = Path(__file__).parents[3] / "scenarios" / "paper.yaml"
SLOTS = 4000
CRASH = {"kind": "uav-crash", "nodes": ["uav2"], "at_s": 5.0}
PARADIGMS = ("cpsfl", "sfl-sp", "sfl-pp", "sfl-ps")
CASES = ("plain", "own iterations", "crash", "half of the clients", "slow nodes")
FEW, MANY = 20, 200
MOST_GROWTH = 1.4
"""Growth of the work per client, or per iteration, if there are ten times as many."""


def scenario_of(case: str, paradigm: str, clients: int, iterations: int = 2) -> Scenario:
    """The paper's scenario with other clients, and as much more of all that they share."""
    times = clients / 10
    scenario = varied(
        load(SCENARIO),
        {
            "paradigm": paradigm,
            "uavs.tx_power_w": [0.1] * clients,
            "radio.uplink_bandwidth_hz": 20e6 * times,
            "radio.downlink_bandwidth_hz": 20e6 * times,
            "base_station.tx_power_w": 40 * times,
            "base_station.compute_flops": 195e12 * times,
            "workload.local_iterations": iterations,
        },
    )
    slow = {"kind": "slow-node", "at_s": 2.0, "duration_s": 4.0, "factor": 2.0}
    more: dict[str, dict[str, Any]] = {
        "plain": {},
        "own iterations": {"workload.local_iterations": [1 + k % 3 for k in range(clients)]},
        "crash": {"faults.on_loss": "drop", "faults.events": [CRASH]},
        "half of the clients": {"participation.clients": clients // 2},
        "slow nodes": {
            "faults.events": [{**slow, "nodes": [f"uav{k}"]} for k in range(1, clients, 9)]
        },
    }
    return varied(scenario, more[case])


def replay_of(scenario: Scenario) -> Replay:
    """Gains that differ, so that no two clients do something at once."""
    gain = np.full((scenario.uavs.count, SLOTS), 1e-9)
    gain *= np.linspace(0.5, 1, scenario.uavs.count)[:, None]
    return Replay(ChannelTrace(gain, 0.1))


def lines_of(scenario: Scenario) -> int:
    """Number of lines of Python that the prediction of a round executes."""
    count, source = 0, replay_of(scenario)

    def step(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return step

    sys.settrace(step)
    try:
        predict(scenario, source, PAPER, rounds=1)
    finally:
        sys.settrace(None)
    return count


def main() -> None:
    """Print the lines of all cases as JSON: of few clients, of many, and of many iterations."""
    simulation.repeated = lambda *round_: [
        simulation._conducted(*round_[:4], round_[5], None, None)
    ]
    found = {}
    for paradigm in PARADIGMS:
        for case in CASES:
            each = [lines_of(scenario_of(case, paradigm, clients)) for clients in (FEW, MANY)]
            found[f"{case}, {paradigm}"] = each
        iterations = [lines_of(scenario_of("plain", paradigm, 5, count)) for count in (4, 40)]
        found[f"iterations, {paradigm}"] = iterations
    print(json.dumps(found))


@cache
def counted() -> dict[str, list[int]]:
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[int]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("paradigm", PARADIGMS)
@pytest.mark.parametrize("case", [*CASES, "iterations"])
def test_work_grows_as_clients_and_iterations(case: str, paradigm: str) -> None:
    few, many = counted()[f"{case}, {paradigm}"]
    assert few > 3000
    assert many / few < MOST_GROWTH * MANY / FEW


def test_a_prediction_of_1000_clients_needs_the_memory_of_ten_times_100() -> None:
    def peak_of(clients: int) -> int:
        scenario = scenario_of("plain", "cpsfl", clients)
        source = replay_of(scenario)
        predict(scenario, source, PAPER, rounds=1)  # builds the engine
        tracemalloc.start()
        try:
            predict(scenario, source, PAPER, rounds=1)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak_of(1000) < 11 * peak_of(100)


if __name__ == "__main__":
    main()
