# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a round in virtual time costs, and how close it is to its prediction, by number of UAVs.

    python benchmarks/many_uavs.py [K...] [--figure docs/many-uavs.svg] [--json FILE]

Plays a round of `scenarios/paper.yaml` with K UAVs of 0.4 W, one iteration, batches of 2 and no
learning. Errors are those of `benchmarks/virtual_time.py`. FILE is written after each run; what it
holds already is not played again.

TCP's initial window is 150 segments: as much as a downlink carries until an acknowledgement has
come over an uplink that is 800 times slower, as with 1,000 UAVs. With the kernel's ten segments
(`--window 10`), slow start waits for acknowledgements, which the prediction only approximates.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))
import virtual_time

from orchestrator.reporting.plots import STYLE
from testbed.system.files import write_json
from testbed.virtual.guest import MEMORY_BYTES

COUNTS = (10, 30, 100, 300, 1000)
LOAD = (
    "workload.compute=none",
    "workload.batch_size=2",
    "workload.local_iterations=1",
    "uavs.tx_power_w=0.4",
)
WINDOW = 150
MEMORY_OF_UAV = 6 << 20
"""Bytes of the guest's memory per UAV, beyond the default."""
SHOWN = {"round": "round", "SM": "broadcast", "CA": "smashed data", "SG": "gradients"}
"""Errors in the table and in the figure."""


def played(count: int, window: int) -> dict[str, Any]:
    """The result of a run with this number of UAVs and this initial window in segments."""
    memory = f"emulation.memory_bytes={MEMORY_BYTES + MEMORY_OF_UAV * count}"
    changes = (f"uavs.count={count}", f"emulation.initial_window={window}", memory, *LOAD)
    words = (word for change in changes for word in ("--set", change))
    virtual_time.CASES[str(count)] = ("paper", "--rounds", "1", *words)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        return virtual_time.play(str(count), Path(folder) / "run", elsewhere=False, user=None)


def figure(runs: dict[int, dict[str, Any]]) -> Figure:
    """Costs on the left, errors on the right, over the number of UAVs."""
    drawing = Figure(figsize=(7.2, 2.6), layout="constrained")
    costs, errors = drawing.subplots(1, 2)
    counts = sorted(runs)
    # CPU time is about wall time: an open marker around a small one keeps both visible.
    for name, label, line, size in (
        ("wall_s", "wall time (s)", "o-", 3),
        ("cpu_s", "CPU time (s)", "o:", 7),
    ):
        costs.loglog(
            counts,
            [runs[k][name] for k in counts],
            line,
            label=label,
            markersize=size,
            markerfacecolor="none",
        )
    memory = [runs[k]["memory_mib"] / 1024 for k in counts]
    costs.loglog(counts, memory, "s--", label="memory (GiB)", markersize=4)
    for name, label in SHOWN.items():
        shares = [max(1e-5, 100 * runs[k]["errors"][name]) for k in counts]
        errors.loglog(counts, shares, "o-", label=label, markersize=4)
    errors.set_ylabel("Error (%)")
    for axes in (costs, errors):
        axes.set_xlabel("Number of UAVs")
        axes.set_xticks(counts, [str(k) for k in counts])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    return drawing


def main() -> None:
    """Play, print a table, and draw it if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("counts", nargs="*", type=int, metavar="K", default=COUNTS)
    parser.add_argument("--window", type=int, default=WINDOW, metavar="SEGMENTS")
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    runs: dict[int, dict[str, Any]] = {}
    if asked.json is not None and asked.json.exists():
        runs = {int(k): run for k, run in json.loads(asked.json.read_text()).items()}
    for count in asked.counts:
        if count not in runs:
            runs[count] = played(count, asked.window)
            if "errors" not in runs[count]:
                sys.exit(f"K = {count}: {runs[count]['measured']}")
        if asked.json is not None:
            write_json(asked.json, {str(k): run for k, run in runs.items()})
    table = Table("K", "valid", *SHOWN.values(), "CPU (s)", "wall (s)", "memory (GiB)")
    for count, run in sorted(runs.items()):
        shares = [f"{100 * run['errors'][name]:.4f} %" for name in SHOWN]
        costs = f"{run['cpu_s']:.0f}", f"{run['wall_s']:.0f}", f"{run['memory_mib'] / 1024:.1f}"
        table.add_row(str(count), "yes" if run["valid"] else "no", *shares, *costs)
    Console(width=120).print(table)
    if asked.figure is not None:
        with mpl.rc_context(STYLE | {"svg.hashsalt": "many-uavs"}):
            figure(runs).savefig(asked.figure, metadata={"Date": None})
        drawn = (line.rstrip() for line in asked.figure.read_text().splitlines())
        asked.figure.write_text("\n".join(drawn) + "\n")


if __name__ == "__main__":
    main()
