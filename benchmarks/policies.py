# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a policy gains on real links: emulated rounds of the paper's scenario, beside predicted.

    python benchmarks/policies.py [--rounds N] [--policies equal,static,planner] [--json FILE]

All policies fly the same trace. The network is emulated in real time with messages of the real
sizes and no computing, so five rounds of three policies take some seven minutes. The baseline is
the first policy named.
"""

import argparse
import json
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Table

from orchestrator.cli.console import shown
from orchestrator.emulated.options import RunOptions
from orchestrator.emulated.run import run
from orchestrator.policies.registry import policy
from orchestrator.scenario.channel import ns3_source
from orchestrator.scenario.loading import load

PAPER = Path(__file__).parents[1] / "scenarios" / "paper.yaml"
KINDS = ("predicted", "predicted_wire", "measured")


def played(name: str, rounds: int) -> dict[str, Any]:
    scenario = load(
        PAPER, ["workload.local_iterations=5", "workload.compute=none", f"rounds={rounds}"]
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        ns3_source(scenario) as source,
        shown("emulated s") as show,
    ):
        options = RunOptions(decide=policy(scenario, name), progress=show)
        done = run(scenario, source, Path(folder), options).to_json()
    means = {
        kind: {
            "objective": fmean(round_["objective"] for round_ in done[kind]),
            "latency_s": fmean(round_["latency_s"] for round_ in done[kind]),
            "max_energy_j": fmean(max(round_["energy_j"]) for round_ in done[kind]),
        }
        for kind in KINDS
    }
    return {"valid": done["valid"]} | means


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--policies", default="equal,planner")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = {name: played(name, arguments.rounds) for name in arguments.policies.split(",")}
    table = Table("", "", "objective", "gain", "latency", "largest energy", box=None)
    baseline = next(iter(results.values()))
    for name, result in results.items():
        for kind in KINDS:
            row = result[kind]
            gain = 1 - row["objective"] / baseline[kind]["objective"]
            table.add_row(
                name if kind == "predicted" else "",
                kind,
                f"{row['objective']:.3f}",
                f"{100 * gain:.2f} %",
                f"{row['latency_s']:.3f} s",
                f"{row['max_energy_j']:.3f} J",
            )
        if not result["valid"]:
            table.add_row("", "not valid: the machine was not up to it")
    Console().print(table)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"rounds": arguments.rounds} | results) + "\n")


if __name__ == "__main__":
    main()
