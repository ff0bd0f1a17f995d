# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Processes of a world, looked at from outside."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

SMALL_WORLD = Path(__file__).with_name("small_world.py")


def until(condition, timeout_s=10):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def spawn(runtime, folder, python=sys.executable, **options):
    return subprocess.Popen(
        [python, SMALL_WORLD, runtime, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )


def family(process):
    """The processes of a world: the orchestrator's children, and theirs."""
    return psutil.Process(process.pid).children(recursive=True)


def nodes_of(process):
    """The processes of the nodes of its worlds."""
    return [p for p in family(process) if "link_program" in " ".join(arguments(p))]


def arguments(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def gone(processes):
    return all(map(_has_ended, processes))


def _has_ended(process):
    try:
        return process.status() == psutil.STATUS_ZOMBIE or not process.is_running()
    except psutil.NoSuchProcess:
        return True


def check_result(process):
    result = json.loads(process.stdout.readline())
    assert -0.001 < result["late_s"] < 1  # others compute beside it
    assert result["facts"]["capabilities"] == 0
    return result["facts"]


def assert_ends_with_its_parent(program, *words):
    """Check that a process ends when its parent is killed.

    Args:
        program: Python code of the parent, which prints the process IDs of the child, and of a
            sibling that holds its pipes open or 0.
        words: Arguments of the program.
    """
    with subprocess.Popen(
        [sys.executable, "-c", program, *words], stdout=subprocess.PIPE, text=True
    ) as parent:
        child, sibling = map(int, parent.stdout.readline().split())
        handle = os.pidfd_open(child)
        try:
            assert select.select([handle], [], [], 0.2)[0] == []
            parent.kill()
            assert select.select([handle], [], [], 10)[0] == [handle]
        finally:
            os.close(handle)
            if sibling:
                os.kill(sibling, signal.SIGKILL)
