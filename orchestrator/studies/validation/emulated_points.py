# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Evaluates points on the kernel's links, each by its own `testbed run`.

In virtual time, if its kernel is built, one run per core is executed in parallel, because runs do
not disturb each other; with the real clock they are executed one after the other.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from orchestrator.analysis import metrics
from orchestrator.records.manifest import source_sha256
from orchestrator.records.reader import read_run
from orchestrator.scenario.schema import Scenario
from orchestrator.scenario.yaml_text import dump
from orchestrator.studies.validation.space import at
from testbed.core.errors import RunError
from testbed.core.progress import Progress
from testbed.virtual import kernel as guest_kernel


def play(
    scenario: Scenario,
    points: Sequence[dict[str, Any]],
    metric: str,
    folder: Path,
    progress: Progress,
) -> list[dict[str, Any]]:
    """Emulate points without training.

    Returns:
        For each point its `clock`, whether it is `valid`, the failed checks (`missed`), the
        metric's measured `value` (None if the run failed), the `budget` of its error in s, and
        `failure`, if any.
    """
    virtual = bool(points) and guest_kernel.find() is not None
    changes: dict[str, Any] = {"workload.compute": "none", "workload.compute_time": "modelled"}
    if virtual:
        changes["emulation.clock"] = "virtual"
    emulated = [at(scenario, keys | changes, "space") for keys in points]
    places = [folder / "kernel" / str(number) for number in range(len(points))]
    progress("points on the kernel", 0, len(points))
    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)) if virtual else 1)
    commands = _Commands()
    try:
        runs = [
            pool.submit(_emulated, point, metric, place, commands)
            for point, place in zip(emulated, places, strict=True)
        ]
        for done, _ in enumerate(as_completed(runs), 1):
            progress("points on the kernel", done, len(points))
        return [run.result() for run in runs]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        commands.end()
        pool.shutdown()


class _Commands:
    """Commands for which threads wait; an interrupt ends them, because they may take minutes."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[str]] = set()
        self._over = False
        self._lock = threading.Lock()

    def run(self, words: Sequence[str]) -> tuple[int, str]:
        """Run `testbed` with these words; returns its status and the text on stderr."""
        with self._lock:
            if self._over:
                raise CancelledError
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", "orchestrator", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            self._running.add(child)
        with child:
            said = child.communicate()[1]
        with self._lock:
            self._running.discard(child)
        return child.returncode, said

    def end(self) -> None:
        """End all commands in an orderly way, and start no more."""
        with self._lock:
            self._over = True
            for child in self._running:
                child.terminate()


def _emulated(scenario: Scenario, metric: str, place: Path, commands: _Commands) -> dict[str, Any]:
    clock = scenario.emulation.clock
    about: dict[str, Any] = {"clock": clock, "valid": False, "missed": [], "value": None}
    # Runs of another version of the program are repeated.
    text = f"# sources {source_sha256()}\n"
    text += dump(scenario.model_dump(mode="json"))
    file, out = place.with_suffix(".yaml"), place
    if not (
        file.is_file() and file.read_text("utf-8") == text and (out / "manifest.json").is_file()
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
        status, said = commands.run(["run", str(file), "--out", str(out), "--overwrite"])
        if status:
            lines = said.strip().splitlines() or [f"status {status}"]
            return about | {"failure": lines[-1]}
    run = read_run(out)
    try:
        value = metrics.value_of(metric, metrics.metric(metric), run.measured)
    except RunError as error:
        return about | {"failure": str(error)}
    budget = run.budget
    by_part = {} if budget.empty else budget.iloc[0].dropna().to_dict()
    checks = run.checks
    missed = checks.loc[checks["ok"] == False, "check"].tolist()  # noqa: E712 (a column)
    return about | {
        "valid": bool(run.valid),
        "missed": missed,
        "value": value,
        "budget": by_part,
    }
