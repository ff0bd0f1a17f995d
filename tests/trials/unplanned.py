# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Faults that nobody planned: what commands leave, say and keep when the unusual happens to them.

    python tests/trials/unplanned.py [--runs 200] [--kinds NAME…] [--seed 1] [--minutes 60]
        [--workers N] [--json FILE]

`survival.py` harms one process of a run. Here: several nodes are stopped at once in the
middle of a round, some for good; the limit on processes is near (`ulimit -u`); two campaigns get a
folder; one of two commands that fill the same new cache is killed; the training of an agent is
killed, and resumed; a plug-in raises, or answers nonsense; hundreds of callers read the live view a
byte a second; a process of a session is killed. Each trial asks whether all ended in time, whether
anything is left (after `testbed clean` where an orchestrator was killed), whether what was said is
one line without a traceback, and whether what was kept is right. The draw depends on seed and
number alone; with a FILE that holds some trials, the others follow.
"""

import argparse
import contextlib
import functools
import hashlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
from rich.console import Console
from rich.table import Table
from survival import GONE_S, IN_TIME_S, SCENARIO, VARIABLE, harm, of_run

from testbed.system import leftovers
from testbed.system.files import write_json

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
from packages import write_package
from small_campaign import write_campaign

CALLERS = 600
AGENT_ROUNDS = 720
"""A checkpoint is written after 600, and at the end."""
NOBODY = 65534
CACHE = "torchinductor_*"
"""PyTorch's, which is there to stay."""
CACHES = ".cache .cache/uav-sfl-testbed .cache/uav-sfl-testbed/*.lock orchestrator"
ELSEWHERE = (
    *("unshare", "--mount", "--propagation", "private", "bash", "-ec"),
    'mount -t tmpfs tmpfs "$1"; for place in "$0" "$PWD"; do '
    'up="$1/$(basename "$place")"; mkdir "$up" "$up/upper" "$up/work"; '
    'mount -t overlay overlay -o "lowerdir=$place,upperdir=$up/upper,workdir=$up/work" "$place"; '
    f'cd "$place"; chmod 755 .; chown {NOBODY}:{NOBODY} . $(ls -d {CACHES} 2>/dev/null || true); '
    f"! [ -d orchestrator ] || chown -R {NOBODY}:{NOBODY} orchestrator/__pycache__; done; "
    'shift; exec "$@"',
)
"""Root's home and these sources as another's, to a command and nobody else: Python may be in the
one, and caches are in both."""
FAILURES = {0, 1, 2, 130, 143}
"""What a command may end with: well, failed, refused, SIGINT, SIGTERM."""
PLUGIN = """
import numpy as np

def policy(scenario):
    def decide(situation):
        {answer}
    return decide
"""
ANSWERS = (
    "raise ValueError('no idea\\nat all')",
    "raise KeyError('split')",
    "return np.ones(3)",
    "return None",
    "return 1 / 0",
    "raise SystemExit(0)",
    "import sys; sys.setrecursionlimit(100); return decide(situation)",
)

err = Console(stderr=True)


@dataclass
class Trial:
    """One fault, and what became of it."""

    run: int
    kind: str
    what: str = ""
    statuses: list[int | None] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    """The last line of each command."""
    left: list[str] = field(default_factory=list)
    untrue: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """In time, clean, truthful."""
        return None not in self.statuses and not self.left and not self.untrue


class Place:
    """A folder of a trial, and the commands that were started in it."""

    def __init__(self, folder: Path, trial: Trial) -> None:
        self.folder, self.trial = folder, trial
        self.started: list[subprocess.Popen[str]] = []
        self.tmp = folder / "tmp"
        self.tmp.mkdir()
        self.small = folder / "small.yaml"
        self.small.write_text(SCENARIO)

    def start(
        self, *words: object, before: Sequence[str] = (), **env: str
    ) -> "subprocess.Popen[str]":
        """A `testbed` command; what it says is in a file, which nobody needs to read meanwhile."""
        log = (self.folder / f"said{len(self.started)}").open("w+")
        marked = {VARIABLE: str(self.folder), "TMPDIR": str(self.tmp), "HOME": str(Path.home())}
        process = subprocess.Popen(
            [*before, sys.executable, "-m", "orchestrator", *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            text=True,
            cwd=Path(__file__).resolve().parents[2],
            start_new_session=True,
            env=os.environ | marked | env,
        )
        self.started.append(process)
        return process

    def finish(self, limit_s: float = IN_TIME_S) -> None:
        """Wait for all commands, and note how they ended and what they said."""
        deadline = time.monotonic() + limit_s
        for number, process in enumerate(self.started):
            status: int | None
            try:
                status = process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                status = None
                process.kill()
                process.wait()
            text = (self.folder / f"said{number}").read_text(errors="replace")
            lines = text.strip().splitlines()
            self.trial.statuses.append(status)
            self.trial.said.append(lines[-1] if lines else "")
            if "Traceback" in text:
                self.trial.untrue = f"a traceback: {lines[-1]}"
            elif status in (1, 2) and not (lines and lines[-1].startswith("testbed: ")):
                self.trial.untrue = f"no word why: {lines[-1:]}"
            elif status is not None and status not in FAILURES | {-signal.SIGKILL}:
                self.trial.untrue = f"status {status}"

    def look(self) -> None:
        """Note what is left, after `clean` where a command was killed."""
        found = self.remains()
        if found and -signal.SIGKILL in self.trial.statuses:
            clean = [sys.executable, "-m", "orchestrator", "clean"]
            subprocess.run(clean, stdout=subprocess.DEVNULL, check=True, timeout=300)
            found = self.remains()
        self.trial.left += found

    def remains(self) -> list[str]:
        """Processes, temporary files and notes of the commands, once they had time to vanish."""
        deadline = time.monotonic() + GONE_S
        while found := list(self._remains()):
            if time.monotonic() > deadline:
                break
            time.sleep(0.2)
        return found

    def _remains(self) -> Iterator[str]:
        for process in of_run(0, self.folder):
            with contextlib.suppress(psutil.Error):
                yield f"process {process.pid} {' '.join(process.cmdline())[:80]}"
        for path in self.tmp.iterdir():
            if not path.match(CACHE):
                yield f"file {path.name}"
        for process in self.started:
            for note in leftovers.notes().glob(f"*-{process.pid}-*"):
                yield f"note {note.name}"

    def await_process(self, words: str, of: "subprocess.Popen[str]") -> list[psutil.Process]:
        """The processes of the trial whose command has that word, once there are some."""
        while of.poll() is None:
            found = []
            for process in of_run(of.pid, self.folder):
                with contextlib.suppress(psutil.Error):
                    if words in process.cmdline():
                        found.append(process)
            if found:
                return found
            time.sleep(0.05)
        return []


# --- kinds ---------------------------------------------------------------------------------------


def hung(dice: random.Random, place: Place) -> None:
    """Several nodes stop at once; some go on after a while, some never."""
    run = place.start("run", place.small, "--out", place.folder / "out")
    names = dice.sample(["bs", "uav1", "uav2", "uav3"], dice.randint(1, 3))
    place.await_process("uav3", run)
    time.sleep(dice.uniform(0, 3))
    forever = dice.random() < 0.3
    victims = [process for name in names for process in place.await_process(name, run)[:1]]
    for process in victims:
        harm(process, "stop")
    pause_s = dice.uniform(0.1, 6)
    place.trial.what = f"{', '.join(names)} for {'ever' if forever else f'{pause_s:.1f} s'}"
    time.sleep(pause_s)
    if not forever:
        for process in victims:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGCONT)
    place.finish(2 * IN_TIME_S)
    _check_run(place, 0)


def _check_run(place: Place, number: int, rounds: int = 3) -> None:
    """What a run kept is whole, if it says so."""
    manifest = place.folder / "out" / "manifest.json"
    if place.trial.statuses[number] != 0:
        return
    if json.loads(manifest.read_text())["status"] != "complete":
        place.trial.untrue = "success without a whole run"
    measured = pd.read_parquet(manifest.with_name("measured.parquet"))
    if measured["round"].nunique() != rounds or measured.groupby("round").size().nunique() != 1:
        place.trial.untrue = "rounds are missing"


def processes(dice: random.Random, place: Place) -> None:
    """An ordinary user who may start few processes; root's are not limited."""
    most = dice.randint(1, 60)
    place.trial.what = f"ulimit -u {most}"
    for path in (place.folder, place.tmp):
        path.chmod(0o777)
    before = ["bash", "-c", f'ulimit -u {most}; exec "$@"', "bash"]
    if os.geteuid() == 0:
        user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        before = [*ELSEWHERE, str(Path.home()), str(place.folder / "home"), *user, *before]
        (place.folder / "home").mkdir()
    # Libraries start a thread a core when they are loaded, and end the process if they may not.
    few = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    place.start("run", place.small, "--out", place.folder / "out", before=before, **few)
    place.finish()
    _check_run(place, 0)


def same_folder(dice: random.Random, place: Place) -> None:
    """Two campaigns, one folder: one of them has it."""
    campaign = write_campaign(place.folder)
    words = ("campaign", "run", campaign, "--out", place.folder / "out", "--workers", 1)
    place.start(*words)
    delay_s = dice.uniform(0, 6)
    place.trial.what = f"the second after {delay_s:.1f} s"
    time.sleep(delay_s)
    place.start(*words)
    place.finish(3 * IN_TIME_S)
    if 0 not in place.trial.statuses:
        place.trial.untrue = "neither went to its end"
    else:
        table = pd.read_parquet(next((place.folder / "out").rglob("rounds.parquet")))
        if not len(table):
            place.trial.untrue = "no result"


def cache(dice: random.Random, place: Place) -> None:
    """Two commands fill one new cache, and one of them is killed: the other, and a third, go on."""
    env = {"XDG_CACHE_HOME": str(place.folder / "cache")}
    words = ("trace", place.small, "--slots", 50, "--out")
    victim = place.start(*words, place.folder / "a.npz", **env)
    place.start(*words, place.folder / "b.npz", **env)
    moment_s = dice.uniform(1, 20)
    place.trial.what = f"one killed after {moment_s:.1f} s"
    with contextlib.suppress(subprocess.TimeoutExpired):
        victim.wait(moment_s)
    victim.kill()
    place.start(*words, place.folder / "c.npz", **env)
    place.finish(4 * IN_TIME_S)
    files = [place.folder / f"{name}.npz" for name in "bc"]
    if place.trial.statuses[1:] != [0, 0]:
        place.trial.untrue = f"not all went to their end: {place.trial.said}"
    elif files[0].read_bytes() != files[1].read_bytes():
        place.trial.untrue = "not the same trace"


def agent(dice: random.Random, place: Place) -> None:
    """The training of an agent is killed, perhaps twice, and resumed to the same agent."""
    words = ("train", place.small, "--rounds", AGENT_ROUNDS, "--out")
    kills = dice.randint(1, 2)
    for kill in range(kills):
        victim = place.start(*words, place.folder / "agent")
        if kill == 0:
            while not (place.folder / "agent" / "agent.pt").exists() and victim.poll() is None:
                time.sleep(0.05)
        with contextlib.suppress(subprocess.TimeoutExpired):
            victim.wait(dice.uniform(0, 4 + 8 * kill))
        victim.kill()
        victim.wait()
    place.trial.what = f"{kills} kills"
    place.start(*words, place.folder / "agent")
    place.finish(3 * IN_TIME_S)
    if place.trial.statuses[-1] != 0:
        place.trial.untrue = f"not resumed: {place.trial.said[-1]}"
    elif _digest(place.folder / "agent" / "rounds.parquet") != undisturbed():
        place.trial.untrue = "another history than without the kill"


@functools.cache
def undisturbed() -> str:
    """What the training of an agent comes to that nobody kills."""
    with tempfile.TemporaryDirectory() as folder:
        scenario = Path(folder) / "small.yaml"
        scenario.write_text(SCENARIO)
        words = ("train", scenario, "--rounds", AGENT_ROUNDS, "--out", Path(folder) / "agent")
        command = [sys.executable, "-m", "orchestrator", *map(str, words)]
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        return _digest(Path(folder) / "agent" / "rounds.parquet")


def _digest(path: Path) -> str:
    table = pd.read_parquet(path)
    return hashlib.sha256(table.to_csv().encode()).hexdigest()


def plugin(dice: random.Random, place: Place) -> None:
    """A policy that raises, or answers what is no allocation."""
    answer = dice.choice(ANSWERS)
    place.trial.what = answer.splitlines()[0][:40]
    packages = place.folder / "packages"
    entries = "[testbed.policies]\nodd = odd:policy\n"
    write_package(packages, "odd", PLUGIN.format(answer=answer), entries)
    command = dice.choice(["predict", "run"])
    words = [command, place.small, "--set", "allocation.policy=odd"]
    if command == "run":
        words += ["--out", place.folder / "out"]
    place.start(*words, PYTHONPATH=str(packages))
    place.finish()
    if place.trial.statuses == [0]:
        place.trial.untrue = "it went on without a decision"


def view(dice: random.Random, place: Place) -> None:
    """Hundreds of slow callers of the live view: the run does not wait for them."""
    callers = dice.randint(CALLERS // 2, CALLERS)
    place.trial.what = f"{callers} callers"
    run = place.start("run", place.small, "--out", place.folder / "out", "--live")
    said = place.folder / "said0"
    while not (address := re.search(r"http://([\d.]+):(\d+)(\S*)", said.read_text())):
        if run.poll() is not None:
            break
        time.sleep(0.05)
    open_: list[socket.socket] = []
    while address and run.poll() is None:
        for caller in open_:
            with contextlib.suppress(OSError):
                caller.send(b"G")
        if len(open_) < callers:
            with contextlib.suppress(OSError):
                open_.append(socket.create_connection((address[1], int(address[2])), 0.2))
            continue
        time.sleep(1)
    for caller in open_:
        caller.close()
    place.finish()
    if place.trial.statuses != [0]:
        place.trial.untrue = place.trial.untrue or f"it failed: {place.trial.said}"
    _check_run(place, 0)


def session(dice: random.Random, place: Place) -> None:
    """A process of a session is killed at a random moment, its orchestrator among them."""
    node = "uav*=sleep 100"
    out = place.folder / "out"
    up = place.start("up", place.small, "--out", out, "--node", node, "--seconds", 4)
    time.sleep(dice.uniform(1, 9))
    everyone = [psutil.Process(up.pid)] if up.poll() is None else []
    everyone += list(of_run(up.pid, place.folder))
    victim = dice.choice(everyone) if everyone else None
    action = dice.choice(["kill", "terminate"])
    if victim is not None:
        with contextlib.suppress(psutil.Error):
            place.trial.what = f"{action} {' '.join(victim.cmdline())[-50:]}"
        harm(victim, action)
    place.finish()


KINDS: dict[str, tuple[Callable[[random.Random, Place], None], int]] = {
    "hung": (hung, 4),
    "session": (session, 4),
    "plugin": (plugin, 4),
    "processes": (processes, 3),
    "same-folder": (same_folder, 2),
    "view": (view, 2),
    "agent": (agent, 1),
    "cache": (cache, 1),
}
"""What happens, and how often beside the others."""


def trial(seed: int, run: int, kinds: Sequence[str]) -> Trial:
    """The trial of that number."""
    dice = random.Random(f"{seed}/{run}")
    (kind,) = dice.choices(kinds, [KINDS[kind][1] for kind in kinds])
    made = Trial(run, kind)
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="unplanned-"))
    try:
        place = Place(folder, made)
        KINDS[kind][0](dice, place)
        place.look()
    finally:
        shutil.rmtree(folder)
    made.seconds = time.monotonic() - began
    return made


def table_of(done: Sequence[Trial]) -> Table:
    """One row a kind."""
    table = Table("kind", "trials", "in time", "clean", "true", "ok", box=None)
    for kind in [*dict.fromkeys(t.kind for t in done), "all"]:
        own = [t for t in done if kind in (t.kind, "all")]
        counts: list[Any] = [
            len(own),
            sum(None not in t.statuses for t in own),
            sum(not t.left for t in own),
            sum(not t.untrue for t in own),
            sum(t.ok for t in own),
        ]
        table.add_row(kind, *map(str, counts))
    return table


def main() -> int:
    """Command line; 1 if a trial was not well."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60, help="begin nothing after that time")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    done: list[Trial] = []
    if options.json and options.json.exists():
        done = [Trial(**row) for row in json.loads(options.json.read_text())["trials"]]
    deadline = time.monotonic() + 60 * options.minutes
    have = {made.run for made in done}

    def one(run: int) -> Trial | None:
        return None if time.monotonic() > deadline else trial(options.seed, run, options.kinds)

    with ThreadPoolExecutor(options.workers) as pool:
        waiting = [pool.submit(one, run) for run in range(options.runs) if run not in have]
        for future in as_completed(waiting):
            made = future.result()
            if made is None:
                continue
            done.append(made)
            done.sort(key=lambda trial: trial.run)
            verdict = "ok" if made.ok else f"NOT OK {made.untrue} {made.left}"
            said = f"{made.run}: {made.kind}, {made.what}: {verdict}, {made.statuses} {made.said}"
            err.print(said, highlight=False, markup=False, soft_wrap=True)
            if options.json:
                trials = [asdict(each) for each in done]
                write_json(options.json, {"seed": options.seed, "trials": trials})
    Console().print(table_of(done))
    return int(not all(made.ok for made in done))


if __name__ == "__main__":
    sys.exit(main())
