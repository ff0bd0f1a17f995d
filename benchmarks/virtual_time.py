# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Whether runs in virtual time repeat to the byte, and how close they come to their prediction.

    python benchmarks/virtual_time.py [CASE...] [--runs 10] [--hogs 5] [--user UID] [--json FILE]

Plays each case so often; beside the last runs, four processes that do nothing but compute, and the
very last two from another folder, with another home, environment and empty cache, and, if asked, as
another user (who must be able to read this folder and Python). Of each run: a digest of `measured`
as `--json` writes it, and one of the accounts, captures and adapters that it keeps. A case has
passed when all its digests are one.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from testbed.system.files import write_json
from testbed.virtual.kernel import kernels

ROOT = Path(__file__).resolve().parents[1]
NONE = ("--set", "workload.compute=none")
FAULTS = (
    "faults.on_loss=drop",
    "faults.loss_timeout_s=0.3",
    "faults.random.count=4",
    "faults.random.kinds=[uav-crash, link-outage, slow-node]",
    "faults.random.within_s=8",
    "faults.random.duration_s=[0.1, 1]",
)
CASES: dict[str, tuple[str, ...]] = {
    "quickstart": ("quickstart", *NONE),
    "captured": ("quickstart", *NONE, "--pcap"),
    "learning": ("quickstart", "--rounds", "1"),
    "faults": ("quickstart", *NONE, *(word for fault in FAULTS for word in ("--set", fault))),
    "tls": ("quickstart", *NONE, "--set", "emulation.transport=tls"),
    "grpc": ("quickstart", *NONE, "--set", "emulation.transport=grpc"),
    **{
        paradigm: ("paper", *NONE, "--set", f"paradigm={paradigm}")
        for paradigm in (
            *("sfl-pp", "sfl-sp", "pipesfl", "pipesfl-no-at", "pipesfl-no-ps", "sfl-ps"),
            *("cpsfl", "cpsfl-no-at", "cpsfl-no-ps"),
        )
    },
}
"""Arguments of `testbed run`."""
KEPT = ("accounts.parquet", "adapters.safetensors", "pcap/*.pcap")
"""What of a run directory must repeat, too."""
HOGS = 4
OTHERS = 2
"""The last runs, elsewhere."""

err = Console(stderr=True)


@contextmanager
def hogs(count: int) -> Iterator[None]:
    """Processes that compute, for as long as the context lasts."""
    alive = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    pass"
    program = [sys.executable, "-c", alive]
    running = [subprocess.Popen(program) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def play(case: str, folder: Path, elsewhere: bool, user: int | None) -> dict[str, Any]:
    """One run: its digests, and how far it is from its prediction."""
    folder.mkdir(mode=0o755)
    result, out = folder / "run.json", folder / "out"
    words = [sys.executable, "-m", "orchestrator", "run", *CASES[case], "--json", str(result)]
    words += ["--set", "emulation.clock=virtual", "--out", str(out)]
    options: dict[str, Any] = {"cwd": ROOT}
    if elsewhere:
        cache = folder / "a" / "rather" / "long" / "way" / "to" / "the" / "cache"
        shutil.copytree(kernels(), cache / "uav-sfl-testbed" / "kernels")
        options = {
            "cwd": folder,
            "env": {
                "PATH": os.environ["PATH"],
                "HOME": str(folder),
                "XDG_CACHE_HOME": str(cache),
                "PYTHONPATH": str(ROOT),
                "NOISE": "x" * 2000,
            },
        }
        if user is not None:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, user, user)
            options |= {"user": user, "group": user, "extra_groups": []}
    began = time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    wall_s = time.monotonic() - began
    if done.returncode:
        *_, line = [f"status {done.returncode}", *done.stderr.strip().splitlines()]
        return {"measured": f"failed: {line}", "kept": ""}
    rounds = json.loads(result.read_text())
    kept = hashlib.sha256()
    for path in sorted(path for pattern in KEPT for path in out.glob(pattern)):
        kept.update(path.name.encode() + b"\0" + path.read_bytes())
    return {
        "measured": hashlib.sha256(json.dumps(rounds["measured"]).encode()).hexdigest(),
        "kept": kept.hexdigest(),
        "valid": json.loads((out / "manifest.json").read_text())["valid"],
        "elsewhere": elsewhere,
        "wall_s": round(wall_s, 1),
        "errors": errors(rounds),
    }


def errors(rounds: dict[str, Any]) -> dict[str, float]:
    """Relative errors against `predicted_wire`: of the rounds, the 95th percentile of each step."""
    pairs = zip(rounds["predicted_wire"], rounds["measured"], strict=True)
    latency = [abs(m["latency_s"] / p["latency_s"] - 1) for p, m in pairs]
    keys = ["round", "client", "iteration", "step"]
    tables = [
        pd.DataFrame([{"round": r["round"], **s} for r in rounds[kind] for s in r["steps"]])
        for kind in ("predicted_wire", "measured")
    ]
    both = tables[0].merge(tables[1], on=keys, suffixes=("", "_measured"))
    predicted = both["end_s"] - both["start_s"]
    seen = both["end_s_measured"] - both["start_s_measured"]
    error = (seen / predicted - 1).abs()
    found = {"round": max(latency)}
    for step in ("SM", "CA", "SG", "CM"):
        of_step = error[(both["step"] == step) & (predicted > 0)]
        found[step] = float(np.quantile(of_step, 0.95))
    return found


def main() -> None:
    """Play, print a table, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", choices=[[], *CASES], metavar="CASE")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--hogs", type=int, default=5, help="Of the runs, the last so many.")
    parser.add_argument(
        "--user", type=int, help="Number of another user for the last two; as root."
    )
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    table = Table("case", "digests", "round", "SM", "CA", "SG", "CM", "wall (s)")
    played: dict[str, list[dict[str, Any]]] = {}
    for case in asked.cases or CASES:
        played[case] = []
        for run in range(asked.runs):
            elsewhere = run >= max(1, asked.runs - OTHERS)
            disturbed = run >= asked.runs - asked.hogs
            with tempfile.TemporaryDirectory(dir="/tmp") as temporary:
                Path(temporary).chmod(0o755)
                with hogs(HOGS * disturbed):
                    played[case].append(play(case, Path(temporary) / "run", elsewhere, asked.user))
            err.print(case, run, {k: v for k, v in played[case][-1].items() if k != "errors"})
        first = played[case][0]
        digests = {(each["measured"], each["kept"]) for each in played[case]}
        said = f"{first['measured'][:16]} {first['kept'][:8]} × {asked.runs}"
        if len(digests) > 1:
            said = f"{len(digests)} DIFFERENT"
        shares = [f"{100 * value:.4f} %" for value in first.get("errors", {}).values()]
        walls = [each.get("wall_s", 0.0) for each in played[case]]
        table.add_row(case, said, *(shares or [""] * 5), f"{min(walls)} to {max(walls)}")
    Console().print(table)
    if asked.json is not None:
        write_json(asked.json, played)
    if any(len({(e["measured"], e["kept"]) for e in runs}) > 1 for runs in played.values()):
        sys.exit("runs differ")


if __name__ == "__main__":
    main()
