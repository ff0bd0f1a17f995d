# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a split point for each client gains over the best one for all, against lower bounds.

    python benchmarks/splits.py [--rounds N] [--seeds S] [--json FILE]

Both planners fly the same traces, seed by seed, so the gain is paired. Two fleets: the paper's,
whose UAVs compute equally fast, and one in which they do not, from 0.5 to 10 TFLOP/s. Intervals are
95 % over seeds. One core; five seeds of twenty rounds take some four minutes.
"""

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from common import PAPER
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from orchestrator.analysis.statistics import half_width
from orchestrator.analytical.lower_bound import lower_bound
from orchestrator.engine.fdma import ShannonFdma
from orchestrator.policies.registry import evaluate, policy
from orchestrator.reporting.formatting import plus_minus
from orchestrator.rounds.simulation import split_costs
from orchestrator.scenario.channel import Channel, ns3_source
from orchestrator.scenario.loading import load
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario
from testbed.system.files import write_json

MIXED = [0.5e12, 1e12, 2.5e12, 5e12, 10e12] * 2
FLEETS = {"paper.yaml": [], "0.5 to 10 TFLOP/s": [f"uavs.compute_flops={json.dumps(MIXED)}"]}
PLANNERS = {"one split point": "planner", "one for each client": "per-client-planner"}


def planned(scenario: Scenario, name: str, rounds: int) -> dict[str, Any]:
    """Means over the rounds of one seed, their lower bound, and how often each split was chosen."""
    with ns3_source(scenario) as source:
        channel = Channel(source)
        found = evaluate(scenario, channel, policy(scenario, name), rounds=rounds)
        start_s, objective = found["start_s"].to_numpy(), found["objective"].to_numpy()
        gain = channel.trace(int((start_s[-1] + objective.max()) / scenario.slot_s) + 2).values
    bound = lower_bound(
        split_costs(scenario, profile_of(scenario)),
        ShannonFdma.of(scenario),
        gain,
        scenario.slot_s,
        start_s,
        objective,
        per_client=name != "planner",
    )
    points = Counter(
        u for split in found["split"] for u in np.broadcast_to(split, scenario.uavs.count).tolist()
    )
    return {
        "objective": float(objective.mean()),
        "bound": float(bound.mean()),
        "decision_s": float(found["decision_s"][1:].median()),
        "splits": {str(u): count for u, count in sorted(points.items())},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results: dict[str, dict[str, list[dict[str, Any]]]] = {}
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(FLEETS) * len(PLANNERS) * arguments.seeds)
        for fleet, keys in FLEETS.items():
            results[fleet] = {title: [] for title in PLANNERS}
            for seed in range(1, arguments.seeds + 1):
                scenario = load(PAPER, ["workload.local_iterations=5", f"seed={seed}", *keys])
                for title, name in PLANNERS.items():
                    progress.update(task, description=f"{fleet}, seed {seed}, {title}")
                    results[fleet][title].append(planned(scenario, name, arguments.rounds))
                    progress.advance(task)
    table = Table("fleet", "", "objective", "lower bound", "over it", "decision", "u", box=None)
    for fleet, by_title in results.items():
        for title, seeds in by_title.items():
            objective = np.array([one["objective"] for one in seeds])
            bound = np.array([one["bound"] for one in seeds])
            points = sum((Counter(one["splits"]) for one in seeds), Counter())
            table.add_row(
                fleet,
                title,
                _interval(objective),
                _interval(bound),
                f"{100 * (objective.mean() / bound.mean() - 1):.1f} %",
                f"{1e3 * np.median([one['decision_s'] for one in seeds]):.0f} ms",
                ", ".join(
                    f"{u}: {100 * n / points.total():.0f} %" for u, n in sorted(points.items())
                ),
            )
        one, each = (np.array([s["objective"] for s in by_title[title]]) for title in PLANNERS)
        gain = 100 * (1 - each / one)
        table.add_row(fleet, "gain", f"{_interval(gain)} %")
    Console().print(table)
    if arguments.json is not None:
        write_json(arguments.json, {"rounds": arguments.rounds} | results)


def _interval(values: np.ndarray) -> str:
    return f"{values.mean():.2f}{plus_minus(half_width(values))}"


if __name__ == "__main__":
    main()
