# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Rounds over loss and delay: the engine's model, ns-3's packets and the kernel, side by side.

python benchmarks/air.py [--control cubic|bbr]... [--loss P,...] [--delay-ms D,...] [--seeds N]
    [--without ns-3|kernel]... [--json FILE]

The kernel plays in virtual time. One of its rounds of the paper at 1 % loss takes minutes.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from statistics import mean, stdev

from rich.console import Console
from rich.progress import track
from rich.table import Table

from orchestrator.packet_simulation.rounds import play
from orchestrator.prediction.plan import link_bytes
from orchestrator.prediction.rounds import predict
from orchestrator.scenario.channel import ns3_source
from orchestrator.scenario.loading import load
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario

PAPER = Path(__file__).resolve().parents[1] / "scenarios" / "paper.yaml"
TESTBED = Path(sys.executable).with_name("testbed")
EXECUTIONS = ("engine", "ns-3", "kernel")


def engine(scenario: Scenario, _: Sequence[str]) -> float:
    """Seconds of a round, with frames, windows and losses."""
    with ns3_source(scenario) as source:
        timeline = predict(scenario, source, profile_of(scenario), sizing=link_bytes)
    return timeline.rounds[0].latency_s


def packets(scenario: Scenario, _: Sequence[str]) -> float:
    """The same, packet by packet."""
    with ns3_source(scenario) as source:
        return play(scenario, source, profile_of(scenario)).timeline.rounds[0].latency_s


def kernel(_: Scenario, overrides: Sequence[str]) -> float:
    """The same, in Linux, in virtual time."""
    words = [word for each in (*overrides, "emulation.clock=virtual") for word in ("--set", each)]
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        subprocess.run(
            [TESTBED, "run", PAPER, *words, "--json", result],
            check=True,
            capture_output=True,
        )
        return float(json.loads(result.read_text())["measured"][0]["latency_s"])


def by_cell(
    cells: Sequence[tuple[str, float, float]], seeds: int, executions: Sequence[str]
) -> list[dict[str, float | str]]:
    """One row a cell: congestion control, loss, delay; mean and its standard error for each."""
    run: dict[str, Callable[[Scenario, Sequence[str]], float]] = {
        "engine": engine,
        "ns-3": packets,
        "kernel": kernel,
    }
    rows = []
    for control, loss, delay_s in track(cells, "cells", console=Console(stderr=True)):
        row: dict[str, float | str] = {"control": control, "loss": loss, "delay_s": delay_s}
        for name in executions:
            found = []
            for seed in range(1, seeds + 1 if loss else 2):
                overrides = [
                    *("workload.compute=none", "rounds=1", f"seed={seed}"),
                    f"emulation.congestion_control={control}",
                    *(f"links.loss={loss}", f"links.one_way_delay_s={delay_s}"),
                ]
                found.append(run[name](load(PAPER, overrides), overrides))
            row[f"{name}_s"] = mean(found)
            row[f"{name}_error_s"] = stdev(found) / len(found) ** 0.5 if len(found) > 1 else 0.0
        rows.append(row)
    return rows


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--control", action="append", choices=("cubic", "bbr", "reno"))
    parser.add_argument("--loss", type=_numbers, default=[0.0, 0.001, 0.01])
    parser.add_argument("--delay-ms", type=_numbers, default=[0.0, 5.0, 20.0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--without", action="append", choices=EXECUTIONS[1:], default=[])
    parser.add_argument("--json", type=Path)
    wanted = parser.parse_args()
    delays_s = [delay_ms / 1e3 for delay_ms in wanted.delay_ms]
    cells = list(product(wanted.control or ["cubic", "bbr"], wanted.loss, delays_s))
    executions = [name for name in EXECUTIONS if name not in wanted.without]
    rows = by_cell(cells, wanted.seeds, executions)
    table = Table(box=None, pad_edge=False)
    for column in ("control", "loss", "delay ms", *(f"{name} s" for name in executions)):
        table.add_column(column, justify="right")
    for row in rows:
        told = (f"{row[f'{n}_s']:.3f} ± {row[f'{n}_error_s']:.3f}" for n in executions)
        delay_ms = f"{1e3 * float(row['delay_s']):g}"
        table.add_row(str(row["control"]), f"{row['loss']:g}", delay_ms, *told)
    Console().print(table)
    if wanted.json:
        wanted.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
