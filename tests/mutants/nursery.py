# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The tests of one module, again and again: each time in a child of a process that has imported.

    python nursery.py, with JSON objects on stdin: the subject, then a line a job, each answered

Most of a short run of pytest is spent on imports. This process imports all that the tests need but
the module and what imports it, and forks for every mutant; what is left to import has its bytecode.
The first run, of the module as it is, is watched: which test executes which lines, for how long,
and what they import. From then on the caller says in which order tests run; the first that fails,
or that takes much longer than it did, ends the run.
"""

import ast
import contextlib
import ctypes
import gc
import importlib
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import coverage
import psutil
import pytest

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
PACKAGES = ("ns3_scenarios", "orchestrator", "testbed", "workloads")
LEAST_S, PATIENCE = 10.0, 20.0
"""A test is given this many times what it took, and never less than that."""
DATA_BYTES = 12 * 2**30
"""A mutant that takes more memory has failed."""
REPORT, FOUND = Path("report.txt"), Path("found.json")


# --- what can be imported before -----------------------------------------------------------------


def dependents(folder: Path, file: str) -> set[str]:
    """The module and those that import it when they are imported, by whatever way."""
    paths = {
        ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__"): path
        for package in PACKAGES
        for path in (folder / package).rglob("*.py")
    }
    paths |= {path.stem: path for path in (folder / "tests" / "support").glob("*.py")}
    importers: dict[str, set[str]] = defaultdict(set)
    for name, path in paths.items():
        for word in (name.rpartition(".")[0], *_imports(ast.parse(path.read_bytes()).body)):
            parts = word.split(".")
            for length in range(1, len(parts) + 1):
                importers[".".join(parts[:length])].add(name)
    found, todo = set(), {name for name, path in paths.items() if path == folder / file}
    while todo:
        name = todo.pop()
        found.add(name)
        todo |= importers[name] - found
    return found


def _imports(body: Sequence[ast.AST]) -> Iterator[str]:
    """The names that statements import at once, those of modules among them."""
    for statement in body:
        match statement:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=orelse):
                yield from _imports(orelse)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                continue
            case _:
                kinds = (ast.stmt, ast.ExceptHandler, ast.match_case)
                below = [n for n in ast.iter_child_nodes(statement) if isinstance(n, kinds)]
                yield from _imports(below)


def preload(names: Sequence[str], apart: set[str]) -> None:
    """Import these modules, none of which may import one of `apart`."""
    for name in names:
        if name not in apart:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    if early := apart & sys.modules.keys():
        raise SystemExit(f"{sorted(early)[0]} was imported before it was mutated")


def _imported(folder: str) -> list[str]:
    """Modules that are there now, tests aside, in their order."""
    names = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        ours = file.startswith(f"{folder}/tests/") and "/support/" not in file
        if file and not ours and not name.startswith(("__", "tests")) and name != "conftest":
            names.append(name)
    return names


# --- in a child ----------------------------------------------------------------------------------


class Watch:
    """A plug-in of pytest: which test executes which lines of a file, and how long it takes."""

    def __init__(self, file: str) -> None:
        self.seconds: dict[str, float] = {}
        self.coverage = coverage.Coverage(data_file=None, config_file=False, include=[file])
        self.coverage.start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration

    def lines(self, file: str) -> dict[str, list[int]]:
        """Lines by test; what is executed when the module is imported belongs to none."""
        self.coverage.stop()
        found: dict[str, list[int]] = defaultdict(list)
        for line, tests in self.coverage.get_data().contexts_by_lineno(file).items():
            for test in filter(None, tests):
                found[test].append(line)
        return found


class Order:
    """A plug-in of pytest: tests in this order, each with a limit; the first that fails."""

    def __init__(self, order: Sequence[str], seconds: dict[str, float], times: float) -> None:
        self.rank = {test: rank for rank, test in enumerate(order)}
        self.seconds = seconds
        self.times = times
        self.failed = ""

    @pytest.hookimpl(trylast=True)  # After `conftest.py`, which sorts by files.
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: self.rank.get(item.nodeid, len(self.rank)))
        for item in items:
            if item.nodeid in self.seconds:
                limit_s = max(LEAST_S, PATIENCE * self.seconds[item.nodeid])
                item.add_marker(pytest.mark.timeout(self.times * limit_s))

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and not self.failed:
            late = "time: " if "Failed: Timeout" in report.longreprtext else ""
            self.failed = late + report.nodeid

    pytest_runtest_logreport = pytest_collectreport


def _child(subject: dict[str, Any], job: dict[str, Any]) -> None:
    """Run pytest, and write what was found; never returns."""
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES, DATA_BYTES))
    with REPORT.open("w") as out, Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    file = str(Path(subject["file"]).absolute())
    watch = Watch(file) if job["watch"] else None
    if watch is None:
        sys.dont_write_bytecode = True
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    order = Order(job["order"], job["seconds"], job["times"])
    words = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly", "--tb=short"]
    only = ["-m", "not full and not docker and not guest"]
    plugins: list[Any] = [order] if watch is None else [order, watch]
    status = int(pytest.main([*words, *only, *subject["tests"]], plugins=plugins))
    found: dict[str, Any] = {"status": status, "failed": order.failed}
    if watch is not None:
        found |= {"seconds": watch.seconds, "lines": watch.lines(file)}
        found["modules"] = _imported(str(Path.cwd()))
    FOUND.write_text(json.dumps(found))
    sys.stdout.flush()


# --- in the parent -------------------------------------------------------------------------------


def run(subject: dict[str, Any], job: dict[str, Any]) -> dict[str, Any]:
    """What a child found within its limit; whatever it started is ended."""
    FOUND.unlink(missing_ok=True)
    for stale in Path(subject["file"]).parent.glob(f"__pycache__/{Path(subject['file']).stem}.*"):
        stale.unlink()
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        try:
            _child(subject, job)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    found: dict[str, Any] = {"status": -1, "failed": "time"}
    while time.monotonic() < began + job["limit_s"]:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            found["failed"] = "a crash"
            break
        time.sleep(0.005)
    _end()
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(FOUND.read_bytes())
    return found | {"took_s": time.monotonic() - began}


def _end() -> None:
    """End all that was started; orphans come to this process."""
    while everyone := psutil.Process().children(recursive=True):
        for process in everyone:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.001)


def main() -> None:
    """Import, then serve."""
    subject = json.loads(sys.stdin.readline())
    folder = Path(subject["folder"])
    os.chdir(folder)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    sys.path[:] = [str(folder), str(folder / "tests" / "support"), *map(str, _others(folder))]
    apart = dependents(folder, subject["file"])
    preload(subject["modules"], apart)
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        print(json.dumps(run(subject, json.loads(line))), file=answers, flush=True)


def _others(folder: Path) -> Iterator[str]:
    """Folders of modules, but those of the tree that is not mutated."""
    root = Path(__file__).resolve().parents[2]
    for place in sys.path[1:]:
        path = Path(place or ".").resolve()
        if path.is_relative_to(root / ".venv") or not path.is_relative_to(root):
            yield place


if __name__ == "__main__":
    main()
