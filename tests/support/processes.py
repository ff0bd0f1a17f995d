# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Processes of a world, looked at from outside."""

import json
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
