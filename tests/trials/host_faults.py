# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Faults of hosts: what becomes of one run over three of them when something happens to one.

    python tests/trials/host_faults.py [--runs 50] [--kinds NAME…] [--seed 1] [--minutes 60]
        [--json FILE]

As root. Three hosts are namespaces of this machine, with clocks of their own, as in
`tests/support/three_hosts.py`. At a random moment of a run, the worker or the agent of a host is
killed, its network is cut for two seconds or for ever, or its clock jumps. Each trial asks whether
the run ended in time and as `faults.on_loss` says, by the name of the host; whether what was
measured is kept, and tells of the loss as of a UAV's death; and whether anything is left of agents,
worlds and nodes, and, after `testbed clean`, of their files. The draw depends on seed and number
alone; with a FILE that holds some trials, the others follow.
"""

import argparse
import dataclasses
import json
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from testbed.system.files import write_json

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
from small_scenario import TEXT
from three_hosts import HOSTS, Job, Place

KINDS = ("worker", "agent", "cut for 2 s", "cut for ever", "jump")
POLICIES = ("drop", "abort", "wait")
PLACES = {"alpha": ["bs", "uav1"], "beta": ["uav2"], "gamma": ["uav3"]}
ROUNDS = 10
WITHIN_S = 16.0
"""Since all nodes run, of which connecting and calibrating take one or two seconds."""
IN_TIME_S = 150.0
INSIDE = "HOST_FAULTS_INSIDE"
NAMESPACES = ("--net", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc")

err = Console(stderr=True)


@dataclass
class Trial:
    """One fault, and what became of it."""

    run: int
    kind: str
    host: str
    policy: str
    after_s: float
    came_to: str = ""
    said: str = ""
    untrue: list[str] = field(default_factory=list)
    """What is not as it should be."""
    left: list[str] = field(default_factory=list)
    seconds: float = 0.0
    stderr: str = ""
    """Of the run, where something is not well."""

    @property
    def ok(self) -> bool:
        """In time, truthful, clean."""
        return not self.untrue and not self.left


def drawn(seed: int, run: int, kinds: Sequence[str]) -> Trial:
    """The trial of that number, before it is made."""
    dice = random.Random(f"{seed}/{run}")
    kind = kinds[run % len(kinds)]
    host = dice.choices(list(HOSTS), [1, 2, 2])[0]
    return Trial(run, kind, host, dice.choice(POLICIES), dice.uniform(0, WITHIN_S))


def job_of(trial: Trial, folder: Path, out: Path) -> Job:
    """What the hosts are asked to do."""
    strike: Any = "cut" if trial.kind.startswith("cut") else trial.kind
    return Job(
        [str(folder / "small.yaml"), "--trace", str(folder / "trace.npz"),
         "--set", f"faults.on_loss={trial.policy}", "--out", str(out)],
        strike=strike,
        host=trial.host,
        after_s=trial.after_s,
        nodes=4,
        lasts_s=2.0 if trial.kind == "cut for 2 s" else None,
        jump_s=0.3,
        limit_s=IN_TIME_S,
    )  # fmt: skip


def judge(trial: Trial, told: dict[str, Any], out: Path) -> None:
    """Note what came of it, and what of that is not as it should be."""
    lines = told["stderr"].strip().splitlines()
    errors = [line for line in lines if line.startswith("testbed: ")]
    status, struck = told["status"], told["struck_s"] is not None
    trial.said = errors[-1] if errors and told["status"] else ""
    trial.seconds, trial.left = told["seconds"], told["left"] + told["files"]
    if told["unclean"]:
        trial.left.append(f"testbed clean: {told['unclean'].strip()}")
    if status == -9:
        trial.untrue.append("not in time")
    if "Traceback" in told["stderr"]:
        trial.untrue.append("a traceback")
    manifest = json.loads((out / "manifest.json").read_text()) if out.exists() else {}
    if status == 1:
        if trial.host not in trial.said:
            trial.untrue.append("the host is not named")
        if out.exists() and manifest["failure"] not in trial.said:
            trial.untrue.append("the manifest says something else")
    elif status != 0:
        trial.untrue.append(f"status {status}")
    kept = pd.read_parquet(out / "rounds.parquet") if out.exists() else pd.DataFrame()
    measured = kept[kept["kind"] == "measured"] if len(kept) else kept
    if status == 0 and len(measured) != ROUNDS:
        trial.untrue.append(f"{len(measured)} rounds are kept")
    lost = pd.read_parquet(out / "lost.parquet") if out.exists() else pd.DataFrame()
    rounds = f"{len(measured)} rounds"
    if not struck:
        trial.came_to = f"over before, {rounds}"
    elif trial.kind in ("jump", "cut for 2 s"):
        _judge_survived(trial, status, manifest, lost)
    else:
        _judge_loss(trial, status, manifest, lost)
    trial.came_to = trial.came_to or f"status {status}, {rounds}"


def _judge_survived(
    trial: Trial, status: int, manifest: dict[str, Any], lost: pd.DataFrame
) -> None:
    """It goes on to its end, loses nobody, and is not valid."""
    if status != 0:
        trial.untrue.append("it did not survive")
        return
    if len(lost):
        trial.untrue.append("somebody counts as lost")
    failed = [check["check"] for check in manifest["validity"] if not check["ok"]]
    if not failed:
        trial.untrue.append("it is called valid")
    if trial.kind == "jump":
        (host,) = [each for each in manifest["hosts"] if each["name"] == trial.host]
        if abs(host["clock"]["jumped_s"] - 0.3) > 0.05:
            trial.untrue.append(f"jumped by {host['clock']['jumped_s']:.3f} s")
        if "clock_error_s" not in failed:
            trial.untrue.append("the jump fails no check")
    trial.came_to = "survived, not valid: " + ", ".join(failed)


def _judge_loss(trial: Trial, status: int, manifest: dict[str, Any], lost: pd.DataFrame) -> None:
    """Its UAVs are lost in that round and absent from the next ones, or it ends the run."""
    uavs = {int(name[3:]) for name in PLACES[trial.host] if name != "bs"}
    centre = trial.host == "alpha"
    if status == 1:
        if trial.policy == "drop" and not centre and manifest:
            trial.untrue.append("on_loss drops it, and the run ended")
        trial.came_to = "ended by name" + (f" in round {len_of(manifest)}" if manifest else "")
        return
    if centre:
        trial.untrue.append("went on without its base station")
    (host,) = [each for each in manifest["hosts"] if each["name"] == trial.host]
    if not host["lost"]:
        # What happened behind the last round concerns nobody.
        trial.came_to = "over before"
        return
    struck = [fault for fault in manifest["faults"] if fault["origin"] == f"host {trial.host}"]
    if not struck:
        trial.came_to = "lost behind the last round"
        return
    own = lost[lost["cause"] == f"loss of host {trial.host}"]
    measured = own[own["kind"] == "measured"]
    first = int(measured["round"].min()) if len(measured) else ROUNDS
    due = {(index, client) for index in range(first, ROUNDS) for client in uavs}
    if {*zip(measured["round"], measured["client"], strict=True)} != due:
        trial.untrue.append("lost.parquet does not tell of it")
    if trial.policy != "drop":
        trial.untrue.append(f"on_loss is {trial.policy}, and the run went on")
    if len(own[own["kind"] == "predicted_wire"]) == 0 and len(measured):
        trial.untrue.append("the prediction does not know of it")
    trial.came_to = f"dropped in round {first}"


def len_of(manifest: dict[str, Any]) -> str:
    """The round that a failure names; a question mark where it names none."""
    named = re.match(r"round (\d+): ", str(manifest["failure"]))
    return named[1] if named else "?"


def table_of(done: Sequence[Trial]) -> Table:
    """One row a kind."""
    table = Table("kind", "trials", "in time", "true", "clean", "ok", "longest s", box=None)
    for kind in [*dict.fromkeys(t.kind for t in done), "all"]:
        own = [t for t in done if kind in (t.kind, "all")]
        counts = [
            len(own),
            sum("not in time" not in t.untrue for t in own),
            sum(not t.untrue for t in own),
            sum(not t.left for t in own),
            sum(t.ok for t in own),
            round(max(t.seconds for t in own)),
        ]
        table.add_row(kind, *map(str, counts))
    return table


def main() -> int:
    """Command line; 1 if a trial was not well."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60, help="begin nothing after that time")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    if not os.environ.get(INSIDE):
        words = ["unshare", *NAMESPACES, sys.executable, *sys.argv]
        os.execvpe("unshare", words, os.environ | {INSIDE: "yes"})
    done: list[Trial] = []
    if options.json and options.json.exists():
        done = [Trial(**row) for row in json.loads(options.json.read_text())["trials"]]
    have = {made.run for made in done}
    deadline = time.monotonic() + 60 * options.minutes
    folder = Path(tempfile.mkdtemp(prefix="host-faults-"))
    try:
        settings = {"calibrate": False, "placement": PLACES}
        text = f"{TEXT}rounds: {ROUNDS}\nemulation: {json.dumps(settings)}\n"
        (folder / "small.yaml").write_text(text)
        gain = 10 ** -np.random.default_rng(3).uniform(8.6, 9.4, (3, 2000))
        np.savez(folder / "trace.npz", gain=gain, slot_s=0.1)
        place = Place(folder, jumps=True)
        for run in (run for run in range(options.runs) if run not in have):
            if time.monotonic() > deadline:
                break
            made, out = drawn(options.seed, run, options.kinds), folder / f"run{run}"
            told = place.do(job_of(made, folder, out))
            judge(made, told, out)
            made.stderr = "" if made.ok else told["stderr"]
            shutil.rmtree(out, ignore_errors=True)
            done.append(made)
            verdict = "ok" if made.ok else f"NOT OK {made.untrue} {made.left}"
            line = f"{run}: {made.kind}, {made.host}, {made.policy}, {made.after_s:.1f} s"
            line += f": {made.came_to}; {verdict}; {made.said}"
            err.print(line, highlight=False, markup=False, soft_wrap=True)
            if options.json:
                trials = [dataclasses.asdict(each) for each in done]
                write_json(options.json, {"seed": options.seed, "trials": trials})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    Console().print(table_of(done))
    sys.stdout.flush()
    os._exit(int(not all(made.ok for made in done)))  # The scheduler and hosts end with us.


if __name__ == "__main__":
    sys.exit(main())
