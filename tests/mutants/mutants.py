# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Mutation testing of the modules that decide results: does a test fail when a line is wrong?

    python tests/mutants/mutants.py [--module NAME…] [--sample N] [--seed N] [--named]
        [--workers N] [--json FILE]

A mutant is a module with one operator, number, argument or statement changed, as mutmut changes
them. Mutmut itself cannot run here: it keeps all mutants of a function in one process, which
neither compiled functions nor the programs that tests start would notice. So each mutant is
written into a copy of the working tree, and the tests that `subjects.toml` names for its module
run there in a process of their own, up to the first that fails; a mutant that takes much longer
than the unmutated module is killed, too. Machine code is kept by the sources that it was compiled
from, and bytecode of the mutated file not at all, so nothing compiled is used again.

`named.toml` holds mutants found by hand; they come first, and `--named` runs no others.
`equivalent.toml` lists reviewed survivors that no test could kill, each with the reason.
The status is 1 if fewer than 95 % of the others are killed.
"""

import argparse
import ctypes
import difflib
import functools
import json
import multiprocessing
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import libcst as cst
import psutil
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators, operator_string
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ENOUGH = 0.95
"""Share of the mutants that are not equivalent; fewer killed are a failure."""
PRELOAD = ["docker", "hypothesis", "numba", "pandas", "pyarrow.parquet", "pydantic", "pytest"]
"""What most tests import and no mutant changes: loaded once, then forked."""
LEARNING = ["torch", "timm", "safetensors.torch"]
LEAST_S = 20.0
"""A mutant is never given less time."""
PATIENCE = 4.0
"""Times what the unmutated module takes."""
SAME_CALLS = {"cast", "isinstance", "len", "warn"}
"""Calls whose arguments are not changed: what comes of it is a crash, or nothing."""
PR_SET_PDEATHSIG = 1
OUTCOMES = ("killed", "survived", "equivalent")


@dataclass(frozen=True)
class Subject:
    """A module, and the tests that guard it, the fastest first."""

    name: str
    file: str
    tests: Sequence[str]
    """Arguments of pytest."""
    interpreted: bool = False
    """Whether compiled functions run as plain Python: compiling each mutant would take minutes."""
    compiled_apart: bool = False
    """Whether nothing of the module is compiled, so that the machine code of before is right."""


@dataclass(frozen=True)
class Mutant:
    """One change of a module."""

    subject: str
    within: str
    """The function or class that it is in."""
    line: int
    was: str
    """The changed lines, without what stands before and after."""
    now: str
    code: str


@dataclass(frozen=True)
class Outcome:
    """How a mutant fared."""

    subject: str
    within: str
    line: int
    was: str
    now: str
    outcome: str
    seconds: float
    by: str
    """The test that killed it, `time`, or the reason why it is equivalent."""


# --- mutants -------------------------------------------------------------------------------------


class _Places(cst.CSTVisitor):
    """Every change of a module: its place, and the node before and after."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        self.found: list[tuple[str, int, cst.CSTNode, cst.CSTNode]] = []
        self._within: list[str] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
            self._within.append(node.name.value)
        if _says_nothing(node):
            return False
        line = self.get_metadata(PositionProvider, node).start.line
        for kind, operator in mutation_operators:
            if isinstance(node, kind) and operator is not operator_string:
                for mutated in operator(node):
                    self.found.append((".".join(self._within), line, node, mutated))
        if isinstance(node, cst.Expr) and isinstance(node.value, cst.Call):
            nothing = cst.Expr(cst.Ellipsis())
            self.found.append((".".join(self._within), line, node, nothing))
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if isinstance(original_node, (cst.FunctionDef, cst.ClassDef)):
            self._within.pop()


def _says_nothing(node: cst.CSTNode) -> bool:
    """Whether what is below decides no result: types, imports, the wording of errors."""
    match node:
        case cst.Annotation() | cst.Import() | cst.ImportFrom() | cst.Raise() | cst.Assert():
            return True
        case cst.Decorator() | cst.FormattedString() | cst.TypeAlias():
            return True
        case cst.FunctionDef(name=cst.Name(value="__repr__")):
            return True
        case cst.Call(func=cst.Name(value=name)):
            return name in SAME_CALLS or name in ("TypeVar", "NamedTuple")
        case cst.If(test=cst.Name(value="TYPE_CHECKING")):
            return True
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))]):
            return name.isidentifier() and _is_type(node.value)
    return False


def _is_type(value: cst.BaseExpression) -> bool:
    text = cst.Module([]).code_for_node(value)
    return text.startswith(("npt.NDArray[", "TypeVar(", "Callable[")) or " | None" in text


def mutants_of(
    subject: Subject, number: int | None = None, seed: int = 1, root: Path = ROOT
) -> tuple[int, list[Mutant]]:
    """How many mutants a module has, and so many of them: always the same, and every longer sample
    begins with the shorter; all of them, by lines, where no number is given."""
    source = (root / subject.file).read_text()
    wrapper = MetadataWrapper(cst.parse_module(source))
    places = _Places()
    wrapper.visit(places)
    found = sorted(places.found, key=lambda place: place[1])
    if number is not None:
        random.Random(f"{seed}/{subject.name}").shuffle(found)
    mutants: list[Mutant] = []
    for within, line, node, mutated in found:
        if len(mutants) == number:
            break
        code = wrapper.module.deep_replace(node, mutated).code  # type: ignore[arg-type]
        try:
            compile(code, subject.file, "exec")
        except SyntaxError:
            continue
        if code != source:
            mutants.append(Mutant(subject.name, within, line, *_changed(source, code), code))
    return len(found), mutants


def _changed(source: str, code: str) -> tuple[str, str]:
    """The lines that differ, before and after."""
    lines, others = source.splitlines(), code.splitlines()
    was: list[str] = []
    now: list[str] = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, lines, others, False).get_opcodes():
        if kind != "equal":
            was += lines[a:b]
            now += others[c:d]
    return " ".join(map(str.strip, was)), " ".join(map(str.strip, now))


def named(subjects: Sequence[Subject], root: Path = ROOT) -> Iterator[Mutant]:
    """The mutants that people thought of, one or more replaced lines each."""
    by_name = {subject.name: subject for subject in subjects}
    for given in tomllib.loads((HERE / "named.toml").read_text())["mutants"]:
        subject = by_name.get(given["module"])
        if subject is None:
            continue
        source = (root / subject.file).read_text()
        if source.count(given["was"]) != 1:
            raise SystemExit(f"named.toml: {given['was']!r} stands not once in {subject.file}")
        line = source[: source.index(given["was"])].count("\n") + 1
        code = source.replace(given["was"], given["now"])
        yield Mutant(subject.name, given["what"], line, *_changed(source, code), code)


def reasons() -> dict[tuple[str, str, str, str], str]:
    """Why mutants are equivalent, by module, place, and lines before and after."""
    listed = tomllib.loads((HERE / "equivalent.toml").read_text()).get("mutants", [])
    return {(m["module"], m["within"], m["was"], m["now"]): m["why"] for m in listed}


# --- running -------------------------------------------------------------------------------------


class Place:
    """A copy of the working tree in which one mutant after the other is tested."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        for name in filter(None, listed.decode().split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)

    def test(self, subject: Subject, code: str, limit_s: float) -> tuple[str, float]:
        """What of the tests failed with this code in the module's place (nothing: ''), and the time
        that it took."""
        file = self.folder / subject.file
        file.write_text(code)
        for stale in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            stale.unlink()
        report = self.folder / "report.txt"
        report.unlink(missing_ok=True)
        context = multiprocessing.get_context("forkserver")
        began = time.monotonic()
        process = context.Process(target=_pytest, args=(str(self.folder), asdict(subject)))
        process.start()
        process.join(limit_s)
        timed_out = process.is_alive()
        _end(process.pid or 0)
        process.join()
        shutil.copy2(ROOT / subject.file, file)
        took_s = time.monotonic() - began
        if timed_out:
            return "time", took_s
        if process.exitcode == 0:
            return "", took_s
        text = report.read_text() if report.exists() else ""
        failed = [line for line in text.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return (failed[0] if failed else f"status {process.exitcode}")[:200], took_s


def _pytest(folder: str, subject: dict[str, Any]) -> None:
    """The tests of a module, in a child of its own session."""
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.chdir(folder)
    os.environ |= {"PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
    if subject["interpreted"]:
        os.environ["NUMBA_DISABLE_JIT"] = "1"
    sys.path[:] = [folder, *(place for place in sys.path if not _ours(place))]
    with Path("report.txt").open("w") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    if subject["interpreted"]:
        import numba

        numba.config.DISABLE_JIT = 1
    if subject["compiled_apart"]:
        from orchestrator.transmission import air

        machine_code = str(Path(folder) / "machine-code")
        mock.patch.object(air, "_machine_code_folder", return_value=machine_code).start()
    import pytest

    words = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly", "--tb=line"]
    only = ["-m", "not full and not docker and not guest"]
    status = pytest.main([*words, *only, *subject["tests"]])
    sys.stdout.flush()
    os._exit(status)


def _ours(place: str) -> bool:
    """Whether a folder of modules is of the tree that is not mutated."""
    path = Path(place or ".").resolve()
    return path.is_relative_to(ROOT) and not path.is_relative_to(ROOT / ".venv")


def _end(pid: int) -> None:
    """End a process and whatever it has started."""
    try:
        everyone = [psutil.Process(pid)]
        everyone += everyone[0].children(recursive=True)
    except psutil.NoSuchProcess:
        return
    for process in everyone:
        try:
            process.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue


def subjects_of(names: Sequence[str]) -> list[Subject]:
    """The modules of these names; all, if none are given."""
    listed = tomllib.loads((HERE / "subjects.toml").read_text())
    unknown = set(names) - listed.keys()
    if unknown:
        raise SystemExit(f"--module: {sorted(unknown)[0]} is none of {', '.join(listed)}")
    return [Subject(name, **listed[name]) for name in (names or listed)]


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--module", action="append", default=[], metavar="NAME")
    parser.add_argument("--sample", type=int, metavar="N", help="of each module; else all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--named", action="store_true", help="only those found by hand")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 1) // 2))
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    err = Console(stderr=True)
    subjects = subjects_of(options.module)
    drawn = list(named(subjects))
    total: dict[str, int] = {}
    if not options.named:
        for subject in subjects:
            total[subject.name], mutants = mutants_of(subject, options.sample, options.seed)
            drawn += mutants
    subjects = [s for s in subjects if any(mutant.subject == s.name for mutant in drawn)]
    # Threads that wait for each other by spinning would take the time of the other mutants.
    os.environ["OMP_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("forkserver")
    learns = any(subject.file.startswith("workloads/") for subject in subjects)
    context.set_forkserver_preload([*PRELOAD, *(LEARNING if learns else ())])
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder:
        first = Place(Path(folder) / "0")
        limits = {}
        for subject in subjects:
            failed, took_s = first.test(subject, (ROOT / subject.file).read_text(), 600)
            if failed:
                raise SystemExit(f"{subject.name}: unmutated, its tests fail: {failed}")
            limits[subject.name] = max(LEAST_S, PATIENCE * took_s)
            err.print(f"{subject.name}: {took_s:.1f} s unmutated", highlight=False)
        about = {"seed": options.seed, "sample": options.sample, "total": total}
        keep = functools.partial(_keep, options.json, about)
        outcomes = _play(drawn, subjects, limits, first, options.workers, keep, err)
    _show(outcomes, total)
    counts = Counter(outcome.outcome for outcome in outcomes)
    return int(counts["killed"] < ENOUGH * (counts["killed"] + counts["survived"]))


def _keep(file: Path | None, about: dict[str, Any], outcomes: Sequence[Outcome]) -> None:
    """Write what is known so far: it may be hours, and then be killed."""
    if file is not None:
        tree = about | {"mutants": [asdict(outcome) for outcome in outcomes]}
        file.write_text(json.dumps(tree, indent=1) + "\n")


def _play(
    drawn: Sequence[Mutant],
    subjects: Sequence[Subject],
    limits: dict[str, float],
    first: Place,
    workers: int,
    keep: Callable[[Sequence[Outcome]], None],
    err: Console,
) -> list[Outcome]:
    """Test every mutant, several side by side; what survives is told at once."""
    by_name = {subject.name: subject for subject in subjects}
    known = reasons()
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in drawn:
        waiting.put(mutant)
    outcomes: list[Outcome] = []
    keeping = threading.Lock()

    def work(place: Place) -> None:
        while True:
            try:
                mutant = waiting.get_nowait()
            except queue.Empty:
                return
            name = mutant.subject
            by, took_s = place.test(by_name[name], mutant.code, limits[name])
            what = (name, mutant.within, mutant.was, mutant.now)
            outcome = "killed" if by else "equivalent" if what in known else "survived"
            by = by or known.get(what, "")
            found = Outcome(*what[:2], mutant.line, *what[2:], outcome, round(took_s, 2), by)
            outcomes.append(found)
            if outcome == "survived":
                said = f"{name}:{mutant.line} {mutant.within}\n  - {mutant.was}\n  + {mutant.now}"
                err.print(said, highlight=False, markup=False)
            if len(outcomes) % 20 == 0:
                err.print(f"{len(outcomes)} of {len(drawn)}", highlight=False)
            with keeping:
                keep(outcomes)

    places = [first, *(Place(first.folder.parent / str(n)) for n in range(1, workers))]
    threads = [threading.Thread(target=work, args=(place,)) for place in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def _show(outcomes: Sequence[Outcome], all_of: dict[str, int]) -> None:
    table = Table("module", "mutants", "tried", *OUTCOMES, "killed of not equivalent")
    names = list(dict.fromkeys(outcome.subject for outcome in outcomes))
    for name in [*names, "all"]:
        own = [o for o in outcomes if name in (o.subject, "all")]
        counts = Counter(outcome.outcome for outcome in own)
        apart = counts["killed"] + counts["survived"]
        total = all_of.get(name, sum(all_of.values()) if name == "all" else 0)
        share = f"{100 * counts['killed'] / apart:.1f} %" if apart else ""
        cells = [total or "", len(own), *(counts[kind] for kind in OUTCOMES), share]
        table.add_row(name, *map(str, cells))
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
