# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a run leaves and says when something goes wrong at a random moment; whether it stays flat.

    python tests/trials/survival.py faults [--runs 200] [--workers N] [--json FILE]
    python tests/trials/survival.py soak [--minutes 60] [--json FILE] [--picture FILE.png]

`faults`: small runs (K = 3, three rounds, no computing), in turn in both runtimes. In each, at a
random moment, a random process of the run is killed, terminated, frozen for two seconds or stopped
for good, or the user presses Ctrl-C; or, in one run of four, the scenario itself plans two random
faults. Then three questions: did it end in time; is nothing left (at the latest after `testbed
clean`, where the orchestrator itself was killed); and is what it says true: status, the failure's
name, whole rounds in the tables of a run that kept some, and of planned faults that it lost whom it
was predicted to lose. The draw depends on seed and number of a run alone: with a FILE that holds
some runs, the others follow.

`soak`: the same small run again and again in one process; after each, the process's open files,
threads and memory, its children, and the network namespaces of the machine.
"""

import argparse
import contextlib
import gc
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pandas as pd
import psutil
from rich.console import Console
from rich.table import Table

from orchestrator.scenario.schema import FaultKind
from testbed.system import leftovers
from testbed.system.files import write_json, write_whole

SCENARIO = """
name: small
rounds: 3
uavs: {tx_power_w: [1, 0.4, 0.1]}
radio: {uplink_bandwidth_hz: 4e6, downlink_bandwidth_hz: 4e6}
workload:
  compute: none
  local_iterations: 2
  batch_size: 2
  split: 3
  profile:
    client_forward_flops: [1e10, 2e10, 4e10, 8e10]
    server_forward_flops: [8e10, 4e10, 2e12, 1e10]
    adapter_bytes: [20000, 40000, 80000, 160000]
    smashed_bytes: [400000, 200000, 100000, 50000]
"""
ROUNDS = 3
PLANNED = """
faults:
  on_loss: {on_loss}
  loss_timeout_s: 0.3
  random:
    count: 2
    kinds: [{kinds}]
    within_s: 2.5
    duration_s: [0.1, 1]
    seed: {run}
"""
"""A run of three rounds lasts some 2.8 s."""
POLICIES = ("wait", "drop", "abort")
RUNTIMES = ("namespace", "docker")
ROLES = {
    "namespace": ("orchestrator", "ns-3", "supervisor", "world", "fabric", "bs", "uav"),
    "docker": ("orchestrator", "ns-3", "reaper", "fabric", "bs", "uav"),
}
ACTIONS = {"kill": 5, "terminate": 2, "freeze": 2, "stop": 1}
"""What happens to a process, and how often beside the others."""
FREEZE_S = 2.0
IN_TIME_S = 120.0
"""A node that is silent is given up after the round's limit, which is above a minute."""
GONE_S = 20.0
VARIABLE = "TESTBED_SURVIVAL"
"""In the environment of every process of a run: the run's folder."""

err = Console(stderr=True)


@dataclass(frozen=True)
class Fault:
    """What is done to which process, and when."""

    runtime: str
    role: str
    """`scenario`: it is planned."""
    action: str
    """Of planned faults, what a round does about a loss."""
    moment: float
    """As a share of the time from the process's start to the end of an undisturbed run."""


@dataclass(frozen=True)
class Outcome:
    """A run with a fault, and how it fared."""

    run: int
    runtime: str
    role: str
    action: str
    moment_s: float
    hit: bool
    """Whether the process was there at that moment."""
    wall_s: float
    status: int | None
    """The orchestrator's exit status; None: it did not end in time."""
    said: str
    rounds_kept: int
    left: Sequence[str]
    """What was there when the run had ended."""
    left_after_clean: Sequence[str]
    untrue: str
    """What was not true of what it said, or nothing."""

    @property
    def ok(self) -> bool:
        """In time, clean, truthful; `clean` may be needed where the orchestrator was killed."""
        killed = self.status == -signal.SIGKILL
        clean = not (self.left_after_clean if killed else self.left)
        return self.status is not None and clean and not self.untrue


# --- faults --------------------------------------------------------------------------------------


def draw(seed: int, run: int) -> Fault:
    """The fault of that run."""
    dice = random.Random(f"{seed}/{run}")
    runtime = RUNTIMES[run % 2]
    if run % 8 in (6, 7):
        return Fault(runtime, "scenario", dice.choice(POLICIES), 0.0)
    role = dice.choice(ROLES[runtime])
    actions = dict(ACTIONS)
    if role == "orchestrator":
        # Nobody could end an orchestrator that is stopped for good; people press Ctrl-C.
        actions["interrupt"] = actions.pop("stop") + 2
    action = dice.choices(list(actions), list(actions.values()))[0]
    return Fault(runtime, role, action, dice.random())


def start(folder: Path, runtime: str, planned: str = "") -> subprocess.Popen[str]:
    """A small run into `folder`/out."""
    scenario = folder / "small.yaml"
    scenario.write_text(SCENARIO + planned)
    (folder / "tmp").mkdir(exist_ok=True)
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "orchestrator", "run", str(scenario)),
            *("--out", str(folder / "out"), "--set", f"emulation.runtime={runtime}"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, VARIABLE: str(folder), "TMPDIR": str(folder / "tmp")},
    )


def play(run: int, fault: Fault, usual_s: float, folder: Path) -> Outcome:
    """One run with its fault."""
    began = time.monotonic()
    if fault.role == "scenario":
        kinds = ", ".join(get_args(FaultKind))
        planned = PLANNED.format(on_loss=fault.action, kinds=kinds, run=run)
        process, moment_s, hit = start(folder, fault.runtime, planned), 0.0, True
    else:
        process = start(folder, fault.runtime)
        while find(fault, process, folder) is None and process.poll() is None:
            time.sleep(0.05)
        time.sleep(max(0.0, fault.moment * (began + usual_s - time.monotonic())))
        moment_s = time.monotonic() - began
        victim = find(fault, process, folder)
        hit = victim is not None and harm(victim, fault.action)
    try:
        _, said = process.communicate(timeout=IN_TIME_S)
        status: int | None = process.returncode
    except subprocess.TimeoutExpired:
        process.kill()
        _, said = process.communicate()
        status = None
    wall_s = time.monotonic() - began
    left = remains(process.pid, folder)
    after = []
    if left:
        clean = [sys.executable, "-m", "orchestrator", "clean"]
        subprocess.run(clean, stdout=subprocess.DEVNULL, check=True, timeout=120)
        after = remains(process.pid, folder)
    kept, untrue = judge(folder / "out", status, said, fault, hit)
    return Outcome(
        run,
        fault.runtime,
        fault.role,
        fault.action,
        moment_s,
        hit,
        wall_s,
        status,
        said.strip().splitlines()[-1] if said.strip() else "",
        kept,
        left,
        after,
        untrue,
    )


def find(fault: Fault, orchestrator: subprocess.Popen[str], folder: Path) -> psutil.Process | None:
    """The process of that role, if it is there by now."""
    if fault.role == "orchestrator":
        return psutil.Process(orchestrator.pid) if orchestrator.poll() is None else None
    words = {
        "ns-3": "ns3_scenarios.process",
        "supervisor": "testbed.runtimes.namespace",
        "world": "testbed.runtimes.namespace",
        "reaper": "testbed.runtimes.docker",
        "fabric": "fabric" if fault.runtime == "namespace" else "testbed.network.injector",
        "bs": "bs",
        "uav": "uav2",
    }
    for process in of_run(orchestrator.pid, folder):
        with contextlib.suppress(psutil.Error):
            if fault.role == "world" and process.ppid() == orchestrator.pid:
                continue
            if fault.role in ("bs", "uav") and fault.runtime == "docker":
                is_it = process.environ().get("HOSTNAME") == words[fault.role]
            else:
                is_it = words[fault.role] in process.cmdline()
            if is_it:
                return process
    return None


def of_run(orchestrator: int, folder: Path) -> Iterator[psutil.Process]:
    """The processes of the run of that orchestrator, containers' and the dead one's too."""
    containers = {container.attrs["State"]["Pid"] for container in containers_of(orchestrator)}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid == orchestrator or process.status() == psutil.STATUS_ZOMBIE:
                continue
            ours = process.environ().get(VARIABLE) == str(folder)
            if ours or process.pid in containers:
                yield process


def containers_of(orchestrator: int) -> list[Any]:
    """Its containers, running or not; none where no daemon answers."""
    import docker

    from testbed.runtimes.docker import MARK_LABEL

    try:
        found = docker_client().containers.list(
            all=True, filters={"label": MARK_LABEL}, ignore_removed=True
        )
    except docker.errors.DockerException:
        return []
    return [c for c in found if c.labels[MARK_LABEL].split("-")[2] == str(orchestrator)]


@cache
def docker_client() -> Any:
    """One client for all."""
    import docker

    return docker.from_env()


def harm(process: psutil.Process, action: str) -> bool:
    """Do it; whether the process was still there."""
    numbers = {
        "kill": signal.SIGKILL,
        "terminate": signal.SIGTERM,
        "interrupt": signal.SIGINT,
        "freeze": signal.SIGSTOP,
        "stop": signal.SIGSTOP,
    }
    try:
        process.send_signal(numbers[action])
        if action == "freeze":
            time.sleep(FREEZE_S)
            process.send_signal(signal.SIGCONT)
    except psutil.Error:
        return False
    return True


def remains(orchestrator: int, folder: Path) -> list[str]:
    """What is left of a run, once it had some time to vanish."""
    deadline = time.monotonic() + GONE_S
    while found := _remains(orchestrator, folder):
        if time.monotonic() > deadline:
            break
        time.sleep(0.2)
    return found


def _remains(orchestrator: int, folder: Path) -> list[str]:
    found = [f"process {p.pid} {p.info['name']}" for p in _with_name(of_run(orchestrator, folder))]
    found += [f"container {container.name}" for container in containers_of(orchestrator)]
    found += [f"device {name}" for name in psutil.net_if_addrs() if name not in DEVICES]
    allowed = {folder / "small.yaml", folder / "tmp", folder / "out"}
    # What a killed run had measured waits for `--resume`.
    parts = folder.glob(".*.part/checkpoint/round-*")
    allowed |= {path.parent.parent for path in parts}
    found += [f"file {path}" for path in folder.iterdir() if path not in allowed]
    found += [f"file {path}" for path in (folder / "tmp").iterdir()]
    notes = leftovers.notes().glob(f"*-{orchestrator}-*")
    return found + [f"note {path.name}" for path in notes]


def _with_name(processes: Iterator[psutil.Process]) -> Iterator[psutil.Process]:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.info = {"name": " ".join(process.cmdline())[:60]}
            yield process


DEVICES = frozenset(psutil.net_if_addrs())
"""Of this machine, before any run."""


def judge(out: Path, status: int | None, said: str, fault: Fault, hit: bool) -> tuple[int, str]:
    """How many rounds were kept, and what is untrue of a run's words and files."""
    kept, manifest = 0, None
    if out.exists():
        manifest = json.loads((out / "manifest.json").read_text())
        measured = pd.read_parquet(out / "measured.parquet")
        kept = measured["round"].nunique()
        lost = pd.read_parquet(out / "lost.parquet")
        whole = measured[~measured["round"].isin(lost["round"])]
        if whole.groupby("round").size().nunique() > 1:
            return kept, "a round that was kept is not whole"
        names = ["round", "client", "cause"]
        by_kind = {kind: own[names].to_numpy().tolist() for kind, own in lost.groupby("kind")}
        if by_kind.get("measured", []) != by_kind.get("predicted_wire", []):
            return kept, f"lost others than predicted: {by_kind}"
    if "Traceback" in said:
        return kept, "a traceback"
    words = said.strip().splitlines()[-1] if said.strip() else ""
    if fault.role == "scenario":
        ended = predicted_end(out.parent / "small.yaml")
        if (status == 0) != (ended is None):
            return kept, f"status {status}, predicted: {ended or 'all rounds'}"
        if ended is not None and ended.partition(":")[0] not in words:
            return kept, f"predicted: {ended}"
    if status == 0:
        whole = manifest is not None and manifest["status"] == "complete" and kept == ROUNDS
        return kept, "" if whole else "success without a whole run"
    if not hit:
        return kept, f"status {status} though nothing happened"
    if status == -signal.SIGKILL:
        # It may have been whole already: then the report was being written.
        whole = manifest is None or (manifest["status"] == "complete" and kept == ROUNDS)
        return kept, "" if whole else "killed, and yet a run directory"
    if not words.startswith("testbed: "):
        return kept, "no word why"
    if manifest is not None:
        if manifest["status"] != "failed":
            return kept, f"failed, but the manifest says {manifest['status']}"
        if manifest["failure"] not in words:
            return kept, "the manifest names another failure"
    wanted = {"interrupt": "SIGINT", "terminate": "SIGTERM"}.get(fault.action, "")
    if fault.role == "orchestrator" and wanted not in words:
        return kept, f"does not name {wanted}"
    if fault.role in ("bs", "uav") and fault.action == "kill":
        name = "bs" if fault.role == "bs" else "uav2"
        if name not in words:
            return kept, f"does not name {name}"
    return kept, ""


def predicted_end(path: Path) -> str | None:
    """Why a scenario's run ends before its last round, as predicted; None: it does not."""
    from orchestrator.engine.plan import link_bytes
    from orchestrator.rounds.loop import predict
    from orchestrator.scenario.channel import open_source
    from orchestrator.scenario.loading import load
    from orchestrator.scenario.profiles import profile_of

    scenario = load(path, [])
    with open_source(scenario, None) as source:
        ended = predict(scenario, source, profile_of(scenario), sizing=link_bytes).ended
    return None if ended is None else str(ended)


def faults(runs: int, seed: int, workers: int, minutes: float, file: Path | None) -> list[Outcome]:
    """Play runs that `file` does not hold yet, some at a time, for as long as there is time."""
    done: list[Outcome] = []
    if file is not None and file.exists():
        done = [Outcome(**row) for row in json.loads(file.read_text())["runs"]]
    deadline = time.monotonic() + 60 * minutes
    usual_s = {runtime: undisturbed(runtime) for runtime in RUNTIMES}
    have = {outcome.run for outcome in done}

    def one(run: int) -> Outcome | None:
        if time.monotonic() > deadline:
            return None
        fault = draw(seed, run)
        with tempfile.TemporaryDirectory(prefix="survival-") as folder:
            outcome = play(run, fault, usual_s[fault.runtime], Path(folder))
        if outcome.status == 0 and not outcome.hit:
            # Others' work on this machine makes runs longer and shorter.
            usual_s[fault.runtime] = outcome.wall_s
        return outcome

    with ThreadPoolExecutor(workers) as pool:
        for outcome in pool.map(one, [run for run in range(runs) if run not in have]):
            if outcome is None:
                break
            done.append(outcome)
            word = "ok" if outcome.ok else f"NOT OK {outcome.untrue} {outcome.left}"
            err.print(
                f"{outcome.run}: {outcome.runtime} {outcome.action} {outcome.role} "
                f"at {outcome.moment_s:.1f} s{'' if outcome.hit else ' (missed)'}: {word}, "
                f"status {outcome.status}, {outcome.wall_s:.0f} s, {outcome.said!r}",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )
            if file is not None:
                write_json(file, {"seed": seed, "runs": [asdict(row) for row in done]})
    return done


def undisturbed(runtime: str) -> float:
    """Seconds that a run takes if it is left in peace."""
    with tempfile.TemporaryDirectory(prefix="survival-") as folder:
        began = time.monotonic()
        process = start(Path(folder), runtime)
        _, said = process.communicate(timeout=IN_TIME_S)
        if process.returncode:
            sys.exit(f"an undisturbed run fails: {said}")
        return time.monotonic() - began


def faults_table(done: Sequence[Outcome]) -> Table:
    """One row a runtime and kind of fault."""
    table = Table(box=None, pad_edge=False)
    for column in ("runtime", "process", "fault", "runs", "hit", "in time", "clean", "true", "ok"):
        table.add_column(column, justify="left" if len(table.columns) < 3 else "right")
    kinds = sorted({(o.runtime, o.role, o.action) for o in done}, reverse=True)
    for kind in [*kinds, None]:
        rows = [o for o in done if kind is None or (o.runtime, o.role, o.action) == kind]
        if kind is None:
            table.add_section()
        counts = (
            len(rows),
            sum(o.hit for o in rows),
            sum(o.status is not None for o in rows),
            sum(not (o.left_after_clean if o.status == -9 else o.left) for o in rows),
            sum(not o.untrue for o in rows),
            sum(o.ok for o in rows),
        )
        table.add_row(*(kind or ("all", "", "")), *map(str, counts))
    return table


# --- soak ----------------------------------------------------------------------------------------


def soak(minutes: float, file: Path | None, picture: Path | None) -> pd.DataFrame:
    """Run after run in this process; one row a run."""
    from orchestrator.emulated.run import run
    from orchestrator.scenario.channel import open_source
    from orchestrator.scenario.loading import load

    rows: list[dict[str, Any]] = []
    me = psutil.Process()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="survival-") as place:
        path = Path(place) / "small.yaml"
        path.write_text(SCENARIO)
        scenario = load(path, [])
        while time.monotonic() - began < 60 * minutes:
            folder = Path(place) / f"run{len(rows)}"
            folder.mkdir()
            with open_source(scenario, None) as source:
                done = run(scenario, source, folder)
            subprocess.run(["rm", "-r", str(folder)], check=True)
            gc.collect()
            rows.append(
                {
                    "run": len(rows),
                    "minute": (time.monotonic() - began) / 60,
                    "latency_s": done.measured[-1].latency_s,
                    "open_files": me.num_fds(),
                    "threads": me.num_threads(),
                    "children": len(me.children(recursive=True)),
                    "memory_mib": anonymous_bytes(me) / 2**20,
                    "namespaces": network_namespaces(),
                    "temporary_files": len(list(Path(place).iterdir())) - 1,
                }
            )
            last = rows[-1]
            if file is not None:
                write_json(file, {"runs": rows})
            if len(rows) % 20 == 1:
                err.print(f"{last['minute']:.1f} min: {last}", highlight=False)
    table = pd.DataFrame(rows)
    if picture is not None:
        draw_soak(table, picture)
    return table


def anonymous_bytes(process: psutil.Process) -> int:
    """Memory that no file is behind.

    The unique set would not do: a library's pages belong to it whenever no other process on the
    machine has them mapped, so that it rises and falls by tens of MiB with what others do.
    """
    memory = process.memory_info()
    return int(memory.rss - memory.shared)


def network_namespaces() -> int:
    """How many there are on this machine, of all runs and of everyone."""
    found = set()
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                found.add((process / "ns/net").readlink())
    return len(found)


SOAKED = {
    "open_files": "open files",
    "threads": "threads",
    "children": "children",
    "namespaces": "network namespaces",
    "memory_mib": "memory (anonymous, MiB)",
}


def soak_table(table: pd.DataFrame) -> Table:
    """After the first ten runs, in the middle, and at the end; and the slope of memory."""
    shown = Table(box=None, pad_edge=False)
    for column in ("what", "after 10 runs", "half-way", "at the end", "lowest", "highest"):
        shown.add_column(column, justify="left" if column == "what" else "right")
    warm = table.iloc[min(9, len(table) - 1) :]
    for name, title in SOAKED.items():
        values = warm[name]
        middle, last = values.iloc[len(values) // 2], values.iloc[-1]
        cells = (values.iloc[0], middle, last, values.min(), values.max())
        shown.add_row(title, *(f"{value:.1f}".removesuffix(".0") for value in cells))
    return shown


def draw_soak(table: pd.DataFrame, picture: Path) -> None:
    """Each quantity over time, from zero."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 1.3 * len(SOAKED)), layout="constrained")
    rows = zip(figure.subplots(len(SOAKED), sharex=True), SOAKED.items(), strict=True)
    for axes, (name, title) in rows:
        axes.plot(table["minute"], table[name], color="#0072b2", linewidth=1)
        axes.set_ylim(0, 1.25 * max(1, table[name].max()))
        axes.set_title(title, fontsize=8, loc="left")
        axes.grid(alpha=0.3)
    axes.set_xlabel(f"minutes ({len(table)} runs)")
    write_whole(picture, lambda part: figure.savefig(part, format="png", dpi=150))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=("faults", "soak"))
    parser.add_argument("--runs", type=int, default=200, help="of `faults`, in all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1, help="of `faults`: runs at a time")
    parser.add_argument("--minutes", type=float, default=60, help="begin nothing after that time")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    out = Console()
    if options.part == "soak":
        out.print(soak_table(soak(options.minutes, options.json, options.picture)))
        return
    done = faults(options.runs, options.seed, options.workers, options.minutes, options.json)
    out.print(faults_table(done))
    said = Counter(outcome.said.removeprefix("testbed: ") for outcome in done)
    for words, count in said.most_common(12):
        out.print(f"{count:4d}  {words or '(nothing)'}", highlight=False, markup=False)
    out.print(f"{sum(outcome.ok for outcome in done)} of {len(done)}")


if __name__ == "__main__":
    main()
