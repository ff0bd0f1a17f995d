# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""CPU seconds of a small run: on this machine, in a guest of its own, and in a copy of a warm one.

    python benchmarks/warm_guests.py [--runs 5] [--json FILE]

The run is the quick start without learning, from the scenario in memory to the written run
directory, in a process that has imported already. CPU seconds are of this process and of all its
children; the native run takes as long as its emulated time. The digests of `measured` in virtual
time must be equal.
"""

import argparse
import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import cpu_s, show

import orchestrator as tb
from orchestrator.emulated import guests
from orchestrator.emulated.options import RunOptions
from orchestrator.emulated.run import run
from orchestrator.emulated.virtual import run_in_guest
from orchestrator.policies.registry import decider
from orchestrator.scenario.channel import open_source
from orchestrator.scenario.schema import Scenario
from testbed.system.files import write_json

NATIVE = {"workload.compute": "none", "emulation.dilation": 1.0}
VIRTUAL = {"workload.compute": "none", "emulation.clock": "virtual"}


def native(scenario: Scenario, folder: Path) -> None:
    """A run by the real clock."""
    with open_source(scenario, None) as source:
        run(scenario, source, folder, RunOptions(decide=decider(scenario, source)))


def in_guest(scenario: Scenario, folder: Path) -> None:
    """A run in virtual time."""
    run_in_guest(scenario, None, folder)


def measured(play: Callable[[Scenario, Path], None], scenario: Scenario) -> dict[str, Any]:
    """One run: its CPU and wall seconds, and a digest of `measured`."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        began, before_s = time.monotonic(), cpu_s()
        play(scenario, Path(folder))
        used_s, wall_s = cpu_s() - before_s, time.monotonic() - began
        digest = hashlib.sha256((Path(folder) / "measured.parquet").read_bytes()).hexdigest()
    return {"cpu_s": round(used_s, 2), "wall_s": round(wall_s, 2), "measured": digest[:16]}


def main() -> None:
    """Play all kinds of runs and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, help="Number of runs of each kind.")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    real, virtual = tb.load("quickstart", NATIVE), tb.load("quickstart", VIRTUAL)
    measured(in_guest, virtual)  # compiles and caches
    measured(native, real)
    found = {
        "native": [measured(native, real) for _ in range(asked.runs)],
        "guest of its own": [measured(in_guest, virtual) for _ in range(asked.runs)],
    }
    with guests.warm():
        measured(in_guest, virtual)
        found["copy of a warm guest"] = [measured(in_guest, virtual) for _ in range(asked.runs)]
    rows = []
    for kind, runs in found.items():
        cpu = sorted(each["cpu_s"] for each in runs)
        wall = sorted(each["wall_s"] for each in runs)
        middle = len(runs) // 2
        numbers = (cpu[middle], cpu[0], cpu[-1], wall[middle])
        rows.append([kind, *(f"{number:.2f}" for number in numbers)])
    show(["run", "CPU s, median", "smallest", "largest", "wall s, median"], rows)
    if asked.json is not None:
        write_json(asked.json, {"load": os.getloadavg()[0], "runs": found})
    if (
        len({each["measured"] for kind, runs in found.items() if kind != "native" for each in runs})
        > 1
    ):
        sys.exit("runs in virtual time differ")


if __name__ == "__main__":
    main()
