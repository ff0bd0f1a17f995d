# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Mutation testing of the modules that decide results: does a test fail when a line is wrong?

    python tests/mutants/mutants.py [--module NAME…] [--sample N] [--seed N] [--named]
        [--workers N] [--json FILE]

A mutant is a module with one operator, number, argument or statement changed, as mutmut changes
them. Mutmut itself cannot run here: it keeps all mutants of a function in one process, which the
programs that tests start would not notice. So each mutant is written into a copy of the working
tree, and the tests that `subjects.toml` names for its module run there in a process of their own
(`nursery.py`), up to the first that fails; what takes much longer than with the unmutated module
has failed, too. First come the tests that execute the changed line, of these the ones that are fast
and have killed most. Bytecode of the mutated file is not kept.

`named.toml` holds mutants found by hand; they come first, and `--named` runs no others.
`equivalent.toml` lists reviewed survivors that no test could kill, each with the reason.
What FILE holds of modules that have not changed stays: there only survivors are tried again, and
mutants that are new. The status is 1 if of a module fewer than 95 % of those that are not
equivalent are killed.
"""

import argparse
import difflib
import fcntl
import hashlib
import json
import os
import queue
import random
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators, operator_string
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ENOUGH = 0.95
"""Share of the mutants that are not equivalent; fewer killed are a failure."""
BUILD = ROOT / "build" / "mutants"
"""Copies of the working tree, and what is known of each module's tests."""
LEAST_S = 60.0
"""A mutant is never given less time."""
PATIENCE = 4.0
"""Times what the unmutated module takes, watched."""
UNMUTATED_S = 900.0
SAME_CALLS = {"cast", "isinstance", "len", "warn"}
"""Calls whose arguments are not changed: what comes of it is a crash, or nothing."""
OUTCOMES = ("killed", "survived", "equivalent")


@dataclass(frozen=True)
class Subject:
    """A module, and the tests that guard it, the fastest first."""

    name: str
    file: str
    tests: Sequence[str]
    """Arguments of pytest."""


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
    """The test that killed it, `time`, or why it is equivalent."""


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
    return (
        text.startswith(("npt.NDArray[", "TypeVar(", "Callable[", "Literal[")) or " | None" in text
    )


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
        was, now = _changed(source, code)
        if _unchecked(was) != _unchecked(now):
            mutants.append(Mutant(subject.name, within, line, was, now, code))
    return len(found), mutants


def _unchecked(code: str) -> str:
    """The same without `strict=True`, which decides nothing but what becomes of mistakes."""
    return re.sub(r"(, ?strict=\w+)?,? ?\)", ")", code)


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


@dataclass(frozen=True)
class Watched:
    """What the tests of a module did with the module as it is."""

    tree: str
    """Digest of the working tree that this is of."""
    took_s: float
    seconds: dict[str, float]
    """By test."""
    lines: dict[str, list[int]]
    """Of the module, that a test executes in pytest's process."""
    modules: list[str]
    """What was imported in the end."""

    def order(self, line: int, kills: Counter[str]) -> list[str]:
        """Tests that execute the line, or what stands before it, first; of these the ones that
        promise most kills a second. The others follow: what a program that a test starts executes
        is not seen."""
        near = max((n for own in self.lines.values() for n in own if n <= line), default=0)

        def rank(test: str) -> tuple[bool, float]:
            promise = (kills[test] + 0.2) / (self.seconds[test] + 0.01)
            return near not in self.lines.get(test, ()), -promise

        return sorted(self.seconds, key=rank)


class Place:
    """A copy of the working tree in which one mutant after the other is tested."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.folder = folder
        self._nursery: subprocess.Popen[str] | None = None
        self._subject = ""
        folder.mkdir(parents=True, exist_ok=True)
        for path in list(folder.rglob("*")):
            apart = "__pycache__" in path.parts
            if not apart and not path.is_dir() and str(path.relative_to(folder)) not in names:
                path.unlink()
        for name in names:
            there = folder / name
            there.parent.mkdir(parents=True, exist_ok=True)
            if not there.exists() or _stamp(there) != _stamp(ROOT / name):
                shutil.copy2(ROOT / name, there)

    def watch(self, subject: Subject, tree: str) -> Watched:
        """The tests of a module as it is, which all must pass."""
        kept = BUILD / f"{subject.name}.json"
        modules: list[str] = []
        if kept.exists():
            known = Watched(**json.loads(kept.read_text()))
            if known.tree == tree:
                return known
            modules = known.modules
        self.start(subject, modules)
        job = {"watch": True, "limit_s": UNMUTATED_S, "times": 1, "order": [], "seconds": {}}
        found = self._ask(job)
        if found["status"] != 0:
            raise SystemExit(
                f"{subject.name}: unmutated, its tests fail: {found['failed']}; "
                f"{self.folder / 'report.txt'} says more"
            )
        self.end()
        own = {name: found[name] for name in ("took_s", "seconds", "lines", "modules")}
        watched = Watched(tree, **own)
        kept.write_text(json.dumps(asdict(watched)) + "\n")
        return watched

    def test(
        self, subject: Subject, mutant: Mutant, watched: Watched, kills: Counter[str]
    ) -> tuple[str, float]:
        """What of the tests failed with this code in the module's place (nothing: ''), and the time
        that it took."""
        if self._subject != subject.name:
            self.start(subject, watched.modules)
        job = {
            "watch": False,
            "order": watched.order(mutant.line, kills),
            "seconds": watched.seconds,
        }
        file = self.folder / subject.file
        file.write_text(mutant.code)
        took_s, by = 0.0, ""
        try:
            for times in (1, 4):  # What was late once may have been disturbed.
                limit_s = times * max(LEAST_S, PATIENCE * watched.took_s)
                found = self._ask(job | {"times": times, "limit_s": limit_s})
                took_s += found["took_s"]
                by = "" if found["status"] == 0 else found["failed"] or f"status {found['status']}"
                if not by.startswith("time"):
                    break
        finally:
            shutil.copy2(ROOT / subject.file, file)
        return by, took_s

    def start(self, subject: Subject, modules: Sequence[str]) -> None:
        """Import what the tests of a module need."""
        self.end()
        # Threads that wait for each other by spinning would take the time of the other mutants.
        env = os.environ | {"PYTHONPATH": str(self.folder), "OMP_NUM_THREADS": "1"}
        given = asdict(subject) | {"folder": str(self.folder), "modules": modules}
        command = [sys.executable, str(HERE / "nursery.py")]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._nursery = subprocess.Popen(command, env=env, **pipes)
        assert self._nursery.stdin is not None
        print(json.dumps(given), file=self._nursery.stdin, flush=True)
        self._subject = subject.name

    def end(self) -> None:
        """End the process that has imported, if there is one."""
        if self._nursery is not None:
            self._nursery.communicate()
        self._nursery, self._subject = None, ""

    def _ask(self, job: dict[str, Any]) -> dict[str, Any]:
        assert self._nursery is not None
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        print(json.dumps(job), file=self._nursery.stdin, flush=True)
        answer = self._nursery.stdout.readline()
        if not answer:
            raise SystemExit(f"{self._subject}: what runs its tests has ended")
        found: dict[str, Any] = json.loads(answer)
        return found


def _stamp(file: Path) -> tuple[int, int]:
    return file.stat().st_mtime_ns, file.stat().st_size


def working_tree() -> tuple[list[str], str]:
    """Its files, and a digest of them."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    names = [name for name in listed.decode().split("\0") if name and (ROOT / name).is_file()]
    digest = hashlib.sha256()
    for name in filter(lambda name: not name.startswith(("docs/", "benchmarks/")), names):
        digest.update(name.encode() + b"\0" + (ROOT / name).read_bytes())
    return names, digest.hexdigest()


class Results:
    """What is known of all mutants, in a file that can be gone on with."""

    def __init__(self, file: Path | None, seed: int) -> None:
        self._file, self._seed = file, seed
        self._writing = threading.Lock()
        self.total: dict[str, int] = {}
        self.outcomes: dict[tuple[str, ...], Outcome] = {}
        self._sources: dict[str, str] = {}
        if file is not None and file.exists():
            tree = json.loads(file.read_text())
            files = {subject.name: subject.file for subject in subjects_of([])}
            same = {n for n, digest in tree["sources"].items() if digest == _digest(files.get(n))}
            self.total = {name: tree["total"][name] for name in same if name in tree["total"]}
            self._sources = {name: tree["sources"][name] for name in same}
            for row in tree["mutants"]:
                if row["subject"] in same:
                    self._put(Outcome(**row))

    def kills(self, subject: str) -> Counter[str]:
        """How many mutants of a module each test has killed."""
        own = [o for o in list(self.outcomes.values()) if o.subject == subject]
        return Counter(o.by for o in own if o.outcome == "killed")

    def _put(self, outcome: Outcome) -> None:
        key = (outcome.subject, outcome.within, str(outcome.line), outcome.was, outcome.now)
        self.outcomes[key] = outcome

    def wanted(self, mutant: Mutant) -> bool:
        """Whether it is not known to be killed."""
        key = (mutant.subject, mutant.within, str(mutant.line), mutant.was, mutant.now)
        return key not in self.outcomes or self.outcomes[key].outcome != "killed"

    def add(self, subject: Subject, outcome: Outcome) -> None:
        """Keep it at once: there may be hours to go, and an end before that."""
        with self._writing:
            self._put(outcome)
            self._sources[subject.name] = _digest(subject.file)
            if self._file is not None:
                tree = {"seed": self._seed, "total": self.total, "sources": self._sources}
                rows = [asdict(outcome) for outcome in self.outcomes.values()]
                part = self._file.with_suffix(".part")
                part.write_text(json.dumps(tree | {"mutants": rows}, indent=1) + "\n")
                part.replace(self._file)


def _digest(file: str | None) -> str:
    return hashlib.sha256((ROOT / file).read_bytes()).hexdigest() if file else ""


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
    BUILD.mkdir(parents=True, exist_ok=True)
    alone = (BUILD / "lock").open("w")
    fcntl.flock(alone, fcntl.LOCK_EX)  # Copies and FILE are one run's at a time.
    results = Results(options.json, options.seed)
    by_hand = list(named(subjects))
    names, tree = working_tree()
    places = [Place(BUILD / str(number), names) for number in range(options.workers)]
    for subject in subjects:
        drawn = [mutant for mutant in by_hand if mutant.subject == subject.name]
        if not options.named:
            total, mutants = mutants_of(subject, options.sample, options.seed)
            results.total[subject.name] = total
            drawn += mutants
        if drawn := [mutant for mutant in drawn if results.wanted(mutant)]:
            watched = places[0].watch(subject, tree)
            took = f"{watched.took_s:.1f} s unmutated, watched"
            err.print(f"{subject.name}: {len(drawn)} mutants; {took}", highlight=False)
            _play(drawn, subject, watched, places, results, err)
    shares = _show(list(results.outcomes.values()), results.total)
    return int(min(shares, default=1.0) < ENOUGH)


def _play(
    drawn: Sequence[Mutant],
    subject: Subject,
    watched: Watched,
    places: Sequence[Place],
    results: Results,
    err: Console,
) -> None:
    """Test every mutant of a module, several side by side; what survives is told at once."""
    known = reasons()
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in drawn:
        waiting.put(mutant)

    def work(place: Place) -> None:
        while True:
            try:
                mutant = waiting.get_nowait()
            except queue.Empty:
                return place.end()
            by, took_s = place.test(subject, mutant, watched, results.kills(subject.name))
            what = (subject.name, mutant.within, mutant.was, mutant.now)
            outcome = "killed" if by else "equivalent" if what in known else "survived"
            by = by or known.get(what, "")
            found = Outcome(*what[:2], mutant.line, *what[2:], outcome, round(took_s, 2), by)
            results.add(subject, found)
            if outcome == "survived":
                where = f"{subject.name}:{mutant.line} {mutant.within}"
                said = f"{where}\n  - {mutant.was}\n  + {mutant.now}"
                err.print(said, highlight=False, markup=False, soft_wrap=True)

    with ThreadPoolExecutor(len(places)) as pool:
        for done in [pool.submit(work, place) for place in places]:
            done.result()


def _show(outcomes: Sequence[Outcome], all_of: dict[str, int]) -> list[float]:
    """The table, and of every module the share of what is not equivalent that was killed."""
    table = Table("module", "mutants", "tried", *OUTCOMES, "share", "s each")
    names = list(dict.fromkeys(outcome.subject for outcome in outcomes))
    shares = []
    for name in [*names, "all"]:
        own = [o for o in outcomes if name in (o.subject, "all")]
        counts = Counter(outcome.outcome for outcome in own)
        apart = counts["killed"] + counts["survived"]
        total = all_of.get(name, sum(all_of.values()) if name == "all" else 0)
        shares += [counts["killed"] / apart] if apart else []
        share = f"{100 * shares[-1]:.1f} %" if apart else ""
        mean_s = sum(outcome.seconds for outcome in own) / len(own) if own else 0.0
        cells = [total or "", len(own), *(counts[kind] for kind in OUTCOMES), share]
        table.add_row(name, *map(str, cells), f"{mean_s:.1f}")
    Console().print(table)
    return shares


if __name__ == "__main__":
    sys.exit(main())
