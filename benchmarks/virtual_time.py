# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Whether runs in virtual time repeat to the byte, and how close they come to their prediction.

    python benchmarks/virtual_time.py [CASE...] [--runs 10] [--hogs 5] [--user UID] [--json FILE]

Plays each case so often, `--at-once` beside each other; beside the last runs, four processes that
do nothing but compute, and the very last two from another folder, with another home, environment
and empty cache, and, if asked, as another user (who must be able to read this folder and Python).
Of each run: a digest of `measured` as `--json` writes it, one of the accounts, captures and
adapters that it keeps, and what its checks of validity have seen. A case has passed when all its
digests are one. FILE is written after each run; what it holds already is not played again.
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
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from common import ROOT, show
from rich.console import Console

from testbed.system.files import write_json
from testbed.virtual.kernel import kernels

NONE = ("--set", "workload.compute=none")
FAULTS = (
    "faults.on_loss=drop",
    "faults.loss_timeout_s=0.3",
    "faults.random.count=3",
    "faults.random.kinds=[uav-crash, link-outage, slow-node]",
    "faults.random.within_s=8",
    "faults.random.duration_s=[0.1, 1]",
)
MANY = (
    *("uavs.tx_power_w=0.4", "radio.uplink_bandwidth_hz=2e8", "radio.downlink_bandwidth_hz=2e8"),
    # As much as a downlink carries until an acknowledgement has come over the slow uplink.
    *("emulation.initial_window=150", f"emulation.memory_bytes={10 << 30}"),
)
CASES: dict[str, tuple[str, ...]] = {
    "quickstart": ("quickstart", *NONE),
    "captured": ("quickstart", *NONE, "--capture"),
    "learning": ("quickstart", "--rounds", "1"),
    "faults": ("quickstart", *NONE, *(word for fault in FAULTS for word in ("--set", fault))),
    "tls": ("quickstart", *NONE, "--set", "emulation.transport=tls"),
    "grpc": ("quickstart", *NONE, "--set", "emulation.transport=grpc", "--capture"),
    "quic": ("quickstart", *NONE, "--set", "emulation.transport=quic"),
    **{
        paradigm: ("paper", *NONE, "--set", f"paradigm={paradigm}")
        for paradigm in (
            *("sfl-pp", "sfl-sp", "pipesfl", "pipesfl-no-at", "pipesfl-no-ps", "sfl-ps"),
            *("cpsfl", "cpsfl-no-at", "cpsfl-no-ps"),
        )
    },
}
"""Arguments of `testbed run`."""
LARGE: dict[str, tuple[str, ...]] = {
    "hundred": ("hundred",),
    "thousand": (
        *("hundred", "--set", "uavs.count=1000"),
        *(word for change in MANY for word in ("--set", change)),
    ),
}
"""Cases that are played by name alone: they take minutes and gigabytes."""
KEPT = ("accounts.parquet", "adapters.safetensors", "pcap/*.pcap")
"""What of a run directory must repeat, too."""
HOGS = 4
OTHERS = 2
"""The last runs, elsewhere."""

SHOWN = ("round", "SM", "CA", "SG", "CM")
"""Of a run's errors, those in the table."""
UNTOLD = ("errors", "checks")
"""Of a run, what stands in FILE alone."""

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
    """One run: its digests, what its checks have seen, and how far it is from its prediction."""
    folder.mkdir(mode=0o755)
    result, out = folder / "run.json", folder / "out"
    words = [sys.executable, "-m", "orchestrator", "run", *(CASES | LARGE)[case]]
    words += ["--json", str(result), "--set", "emulation.clock=virtual", "--out", str(out)]
    options: dict[str, Any] = {"cwd": ROOT}
    if elsewhere:
        options = another_place(folder)
        if user is not None:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, user, user)
            options |= {"user": user, "group": user, "extra_groups": []}
    began = time.monotonic()
    with (folder / "said").open("w+") as said:
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=said, **options)
        # Of the command and all that it has waited for.
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall_s = time.monotonic() - began
        said.seek(0)
        *_, line = ["it says nothing", *said.read().strip().splitlines()]
    if process.returncode:
        return {"measured": f"failed with status {process.returncode}: {line}", "kept": ""}
    rounds = json.loads(result.read_text())
    kept = hashlib.sha256()
    for path in sorted(path for pattern in KEPT for path in out.glob(pattern)):
        kept.update(path.name.encode() + b"\0" + path.read_bytes())
    manifest = json.loads((out / "manifest.json").read_text())
    return {
        "measured": hashlib.sha256(json.dumps(rounds["measured"]).encode()).hexdigest(),
        "kept": kept.hexdigest(),
        "valid": manifest["valid"],
        "checks": {check["check"]: check["value"] for check in manifest["validity"]},
        "elsewhere": elsewhere,
        "load": round(os.getloadavg()[0], 1),
        "wall_s": round(wall_s, 1),
        "cpu_s": round(used.ru_utime + used.ru_stime, 1),
        "memory_mib": used.ru_maxrss >> 10,
        "errors": errors(rounds),
    }


def another_place(folder: Path) -> dict[str, Any]:
    """Options of a process with another working directory, home, environment and empty cache."""
    cache = folder / "a" / "rather" / "long" / "way" / "to" / "the" / "cache"
    shutil.copytree(kernels(), cache / "uav-sfl-testbed" / "kernels")
    return {
        "cwd": folder,
        "env": {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "XDG_CACHE_HOME": str(cache),
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(
                ":"
            ),
            "USER": "elsewhere",
            "NOISE": "x" * 2000,
        },
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
    for step in SHOWN[1:]:
        of_step = error[(both["step"] == step) & (predicted > 0)]
        found[step] = float(np.quantile(of_step, 0.95))
    return found


def digests(runs: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """What the runs of a case came to; one, where they are equal."""
    return {(run["measured"], run["kept"]) for run in runs}


def row(case: str, runs: list[dict[str, Any]]) -> list[str]:
    """A line of the table."""
    (measured, kept), *others = digests(runs)
    said = f"{measured[:16]} {kept[:8]} × {len(runs)}"
    found = runs[0].get("errors", {})
    shares = [f"{100 * found[name]:.4f} %" if found else "" for name in SHOWN]
    walls = [run["wall_s"] for run in runs if "wall_s" in run]
    wall = f"{min(walls)} to {max(walls)}" if walls else ""
    memory = str(max((run.get("memory_mib", 0) for run in runs), default=0))
    valid = "yes" if all(run.get("valid") for run in runs) else "no"
    return [case, f"{1 + len(others)} DIFFERENT" if others else said, valid, *shares, wall, memory]


def main() -> None:
    """Play, write the figures as they come, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", choices=[[], *CASES, *LARGE], metavar="CASE")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--hogs", type=int, default=5, help="Of the runs, the last so many.")
    parser.add_argument("--at-once", type=int, default=1, help="So many runs beside each other.")
    parser.add_argument(
        "--user", type=int, help="Number of another user for the last two; as root."
    )
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    known = asked.json is not None and asked.json.exists()
    played: dict[str, list[dict[str, Any]]] = json.loads(asked.json.read_text()) if known else {}

    def one(case: str, run: int) -> dict[str, Any]:
        elsewhere = run >= max(1, asked.runs - OTHERS)
        with tempfile.TemporaryDirectory(dir="/tmp") as temporary:
            Path(temporary).chmod(0o755)
            return play(case, Path(temporary) / "run", elsewhere, asked.user)

    for case in asked.cases or CASES:
        runs = played.setdefault(case, [])
        left = range(len(runs), asked.runs)
        for disturbed, numbers in groupby(left, lambda run: run >= asked.runs - asked.hogs):
            with hogs(HOGS * disturbed), ThreadPoolExecutor(asked.at_once) as pool:
                for found in pool.map(partial(one, case), numbers):
                    err.print(case, {k: v for k, v in found.items() if k not in UNTOLD})
                    runs.append(found)
                    if asked.json is not None:
                        write_json(asked.json, played)
    head = ["case", "digests", "valid", *SHOWN, "wall (s)", "memory (MiB)"]
    show(head, [row(case, runs) for case, runs in played.items()])
    if failed := [run["measured"] for runs in played.values() for run in runs if not run["kept"]]:
        sys.exit(f"{len(failed)} runs failed; the first {failed[0]}")
    if any(len(digests(runs)) > 1 for runs in played.values()):
        sys.exit("runs differ")


if __name__ == "__main__":
    main()
