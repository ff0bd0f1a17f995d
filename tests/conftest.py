# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Marks and order of the tests, and checks of what they need.

Tests that take long are marked `slow`, and those too long for CI `full`, if `durations.json` says
so: that file is measured. Those that `essential.toml` lists are neither, so that `make test` plays
a whole run of each kind.
Tests that judge by the real clock are marked `alone`: `suite.py` runs them one by one. Tests that
only use links and nodes are not, because a run that is late under load is as good an example.
Tests marked `docker` need root and a Docker daemon, and those marked `guest` the kernel of virtual
time. In CI all of these must be present. Unless they judge by the clock, they run in parallel.
"""

import functools
import itertools
import os
import re
from pathlib import Path
from typing import Any

import docker
import durations
import pytest
import warm
from durations import pytest_fixture_setup, pytest_runtest_makereport  # noqa: F401  hooks
from required import lacks
from xdist.scheduler import LoadScopeScheduling

from testbed.virtual import kernel

HERE = Path(__file__).parent
ALONE = (
    "orchestrator/emulated/test_validity.py",
    *(f"testbed/network/test_{name}.py" for name in ("air", "fabric", "shaping")),
)
"""Files, and folders of files, whose tests are `alone`; others mark them one by one."""
LONG = (
    "repository/test_doc_commands.py",
    "orchestrator/emulated/test_resume.py",
    "orchestrator/cli/test_extras.py",
    "orchestrator/emulated/test_faults_emulated.py",
)
"""Files of the longest tests: their tests go to any worker. Most of the time, they wait."""
FIRST = (
    "orchestrator/emulated/test_exact.py",
    "orchestrator/emulated/test_exact_faults.py",
    "orchestrator/emulated/test_virtual_time.py",
    "orchestrator/emulated/test_warm_guests.py",
    "orchestrator/emulated/test_virtual_radio.py",
    "workloads/learning/test_learning.py",
    "workloads/nodes/test_work.py",
    "workloads/offload/test_offload.py",
)
"""Files that compute longest: these come first, because others can run next to them."""


def scope_of(nodeid: str) -> str:
    """Unit of work of one worker: a file, or one of the longest tests."""
    file = nodeid.partition("::")[0]
    return nodeid if file.removeprefix(f"{HERE.name}/") in LONG else file


class ByFile(LoadScopeScheduling):
    """A file's tests share its fixtures: they stay with one worker; the longest go to any."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    """Called by xdist where tests run side by side."""
    return ByFile(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where only tests that run alone are wanted, do not import files that have none."""
    if collection_path.suffix != ".py" or not config.option.markexpr.startswith("alone"):
        return None
    if any(collection_path.is_relative_to(HERE / name) for name in ALONE):
        return None
    return not re.search(r"mark\.alone\b", collection_path.read_text("utf-8")) or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by the file they stand in; put those that compute longest first, and one that
    mostly waits before each other file, so that workers do not all wait at one time."""
    alone = tuple(HERE / name for name in ALONE)
    table = durations.Table.read()
    scopes: dict[str, list[pytest.Item]] = {}
    for item in items:
        if any(item.path.is_relative_to(place) for place in alone):
            item.add_marker(pytest.mark.alone)
        name = durations.name_of(item)
        if table.slow(name, durations.fixtures_of(item)):
            item.add_marker(pytest.mark.slow)
        if table.full(name):
            item.add_marker(pytest.mark.full)
        scopes.setdefault(scope_of(item.nodeid), []).append(item)
    first = [scopes.pop(f"{HERE.name}/{name}", []) for name in FIRST]
    waiting = [tests for scope, tests in scopes.items() if "::" in scope]
    others = [tests for scope, tests in scopes.items() if "::" not in scope]
    pairs = itertools.zip_longest(waiting, others, fillvalue=[])
    items[:] = itertools.chain(*first, *itertools.chain(*pairs))


def pytest_unconfigure() -> None:
    """Nothing that a session has started outlasts it."""
    warm.end()


@functools.cache
def _no_docker() -> str:
    if os.geteuid() != 0:
        return "plugging links into containers needs root"
    try:
        client = docker.from_env()
        client.ping()
        client.close()
    except docker.errors.DockerException as error:
        return f"no Docker daemon answers: {error}"
    return ""


@functools.cache
def _no_kernel() -> str:
    built = kernel.find() is not None
    return "" if built else "no kernel is built: `testbed kernel build` does it"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip such a test where something is missing; where that must be there, fail it."""
    needs = (("docker", "CI", _no_docker), ("guest", "GUEST", _no_kernel))
    for mark, variable, missing in needs:
        if item.get_closest_marker(mark) and (why := missing()):
            lacks(why, variable)
