# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What commands cost: CPU seconds and memory of each, here and in another checkout.

    python benchmarks/commands.py [NAME]... [--against CHECKOUT] [--repeats N] [--json FILE]

A row is a command in a process of its own, with its children. CPU seconds are user and system time,
the smallest of all repetitions, which depends least on what else the machine does; memory is that
of the largest process. Each command is run once beforehand, so that caches are filled. Commands of
another checkout run in this Python environment.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
CAMPAIGN = f"""name: few
scenario: {ROOT}/scenarios/quickstart.yaml
set: {{rounds: 20}}
repeats: 1
mode: predict
studies:
  s: {{axes: {{x: {{draws: 10, of: {{h: {{key: uavs.height_m, uniform: [20, 100]}}}}}}}}}}
"""
NO_LEARNING = ["--set", "workload.compute=none", "--rounds", "1"]
COMMANDS: dict[str, list[str]] = {
    "help": ["--help"],
    "predict": ["predict", "quickstart"],
    "theory": ["theory", "quickstart"],
    "trace": ["trace", "quickstart", "--slots", "1000", "--out", "trace.npz"],
    "trace-long": ["trace", "paper", "--slots", "1000000", "--out", "long.npz"],
    "predict-trace-long": ["predict", "paper", "--rounds", "10", "--trace", "long.npz"],
    "learn": ["learn", "quickstart", "--rounds", "1", "--out", "learned", "--overwrite"],
    "validate": ["validate", "quickstart", "--model", "tau2-hat", "--samples", "100"],
    "campaign": ["campaign", "run", "few.yaml", "--out", "few", "--workers", "2", "--overwrite"],
    "campaign-status": ["campaign", "status", "few"],
    "run": [
        *("run", "quickstart", "--set", "emulation.clock=virtual", *NO_LEARNING),
        *("--out", "run", "--overwrite"),
    ],
    "report": ["report", "run"],
    "predict-10000": ["predict", "paper", "--rounds", "10000"],
    "predict-10000-json": ["predict", "paper", "--rounds", "10000", "--json", "rounds.json"],
    "predict-10000-steps": ["predict", "paper", "--rounds", "10000", "--steps", "steps.parquet"],
    "predict-100-uavs": ["predict", "hundred", "--rounds", "1000"],
}
NEEDS = {"predict-trace-long": "trace-long", "campaign-status": "campaign", "report": "run"}
"""Commands that read what another one writes."""
KB_PER_MB = 1000


def cost(words: list[str], checkout: Path, folder: Path) -> tuple[float, float]:
    """CPU seconds of a command and its children, and MB of the largest of these processes.

    Raises:
        SystemExit: The command failed.
    """
    env = os.environ | {"PYTHONPATH": str(checkout)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(
            [sys.executable, "-m", "orchestrator", *words],
            cwd=folder,
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            said.seek(0)
            sys.exit(f"{checkout}: testbed {' '.join(words)}: {said.read().decode()[-500:]}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / KB_PER_MB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(COMMANDS)}")
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="other sources")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    if unknown := set(options.names) - set(COMMANDS):
        parser.error(f"NAME: must be of {', '.join(COMMANDS)}, not {', '.join(unknown)}")
    checkouts = [ROOT] if options.against is None else [options.against.resolve(), ROOT]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="commands-") as temporary:
        for checkout in checkouts:
            (folder := Path(temporary, str(len(rows)))).mkdir()
            (folder / "few.yaml").write_text(CAMPAIGN, encoding="utf-8")
            for name in options.names or COMMANDS:
                if name in NEEDS and not (folder / COMMANDS[name][-1]).exists():
                    cost(COMMANDS[NEEDS[name]], checkout, folder)
                made = [cost(COMMANDS[name], checkout, folder) for _ in range(options.repeats + 1)]
                cpu_s, most_mb = (min(values) for values in zip(*made[1:], strict=True))
                row = {"command": name, "checkout": str(checkout), "cpu_s": cpu_s, "mb": most_mb}
                rows.append(row)
                print(f"{checkout}: {name}: {cpu_s:.2f} s, {most_mb:.0f} MB", file=sys.stderr)
    shown = Table(box=None, pad_edge=False)
    for column in (
        "command",
        "CPU s",
        "MB",
        *(("CPU s before", "MB before"),)[: len(checkouts) - 1],
    ):
        for text in (column,) if isinstance(column, str) else column:
            shown.add_column(text, justify="left" if text == "command" else "right")
    for name in options.names or COMMANDS:
        own = [row for row in reversed(rows) if row["command"] == name]
        shown.add_row(name, *(t for r in own for t in (f"{r['cpu_s']:.2f}", f"{r['mb']:.0f}")))
    Console().print(shown)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
