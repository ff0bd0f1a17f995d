# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Run the tests in two parts: first those that can run in parallel, then the others one by one.

    python tests/suite.py [PYTEST ARGUMENTS…]

Tests marked `alone` judge by the real clock, so nothing may run at the same time. At the end, the
slowest files are listed. The last line counts both parts, and says how to run what these marks left
out. The status is 1 if either failed, and 130 after Ctrl-C. `build/durations.json` gets the seconds
of each test.
"""

import collections
import contextlib
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).with_name("support")))
import durations
import pytest
import warm

# Three more than there are cores, because many tests wait. More would take too much memory.
FITTING = min(len(os.sched_getaffinity(0)), 6) + 3
WORKERS = int(os.environ.get("TEST_WORKERS", FITTING))
# By files, in the order of `conftest.py`.
BY_FILE = ["--dist", "loadfile", "--no-loadscope-reorder"]
# A plug-in of another package, which is imported early; no test here uses it.
IMPORTED = ["-W", "ignore:Module already imported so cannot be rewritten; anyio"]
SLOWEST = 12
INTERRUPTED = 130


@contextlib.contextmanager
def side_by_side() -> Iterator[list[str]]:
    """Options of pytest for its workers.

    Workers are forked from a process that has imported the modules of tests. They share its memory.
    """
    if not WORKERS:
        yield []
        return
    with warm.shared(), tempfile.TemporaryDirectory() as folder:
        warm.python(python := Path(folder) / "python")
        yield ["--tx", f"{WORKERS}*popen//python={python}", *BY_FILE, *IMPORTED]


def part(
    what: str,
    marks: str,
    words: list[str],
    counts: collections.Counter[str],
    seconds: dict[str, float],
) -> bool:
    """Run the tests that these marks select, add up outcomes and seconds; whether all went well."""
    print(f"\n{f' {what} '.center(100, '=')}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "junit.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-m",
            marks,
            f"--junitxml={record}",
            *words,
        ]
        status = _result(command)
        if record.exists():
            root = ET.parse(record).getroot()
            counts.update(outcomes(root))
            for case in root.iter("testcase"):
                seconds[case.get("classname", "")] += float(case.get("time", 0))
            durations.add(durations.measured(root))
    if status == INTERRUPTED:
        raise KeyboardInterrupt
    return status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


def _result(command: list[str]) -> int:
    """Run pytest. Ctrl-C reaches it, too: wait for its list of failures."""
    with subprocess.Popen(command) as running:
        try:
            return running.wait()
        except KeyboardInterrupt:
            running.wait()
            return INTERRUPTED


def outcomes(root: ET.Element) -> collections.Counter[str]:
    """How many tests passed, failed, were skipped, or broke outside themselves."""
    counts: collections.Counter[str] = collections.Counter()
    names = {"failure": "failed", "error": "errors", "skipped": "skipped"}
    for case in root.iter("testcase"):
        kinds = [names[child.tag] for child in case if child.tag in names]
        counts.update(kinds or ["passed"])
    return counts


def summary(counts: collections.Counter[str], seconds: float, rest: str = "") -> str:
    """The closing line, as pytest writes it, and how to run the rest."""
    order = ("failed", "passed", "skipped", "errors")
    said = ", ".join(f"{counts[name]} {name}" for name in order if counts[name]) or "no tests ran"
    return f" {said} in {seconds:.2f}s{rest} ".center(100, "=")


def main() -> int:
    """Run both parts, even if the first one fails."""
    began = time.monotonic()
    words = sys.argv[1:]
    only = ""
    if "-m" in words:
        at = words.index("-m")
        only = f" and ({words[at + 1]})"
        del words[at : at + 2]
    counts: collections.Counter[str] = collections.Counter()
    seconds: dict[str, float] = collections.defaultdict(float)
    fine = []
    rest = "; `make test-all` also runs the slow tests" if "not slow" in only else ""
    with side_by_side() as workers:
        beside = f"1 of 2: tests in parallel, {WORKERS} workers"
        one_by_one = "2 of 2: tests with the real clock, one by one"
        try:
            fine.append(part(beside, f"not alone{only}", [*workers, *words], counts, seconds))
            fine.append(part(one_by_one, f"alone{only}", words, counts, seconds))
        except KeyboardInterrupt:
            print(f"\n{summary(counts, time.monotonic() - began, '; interrupted')}", flush=True)
            return INTERRUPTED
    slowest = sorted(seconds.items(), key=lambda entry: -entry[1])[:SLOWEST]
    took = (f"{spent_s:7.1f} s  {name}" for name, spent_s in slowest)
    print("\nslowest files, in seconds of all workers:", *took, sep="\n")
    # What came before may have left its last line open, on either stream.
    print(f"\n{summary(counts, time.monotonic() - began, rest)}", flush=True)
    return 0 if all(fine) and counts["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
