# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The console script as a process."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

TESTBED = [sys.executable, "-m", "orchestrator"]


def run_testbed(*words: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*TESTBED, *map(str, words)], capture_output=True, text=True, timeout=240)
    assert not check or done.returncode == 0, done.stderr
    return done


MARK = f"TESTBED_TEST_{os.getpid()}"
"""In the environment of every process of these tests' runs, and of no other."""
os.environ[MARK] = "1"


def family() -> list[psutil.Process]:
    """The processes of these tests' runs that are still there."""
    found = []
    for process in psutil.process_iter():
        try:
            line = " ".join(process.cmdline())
            of_a_run = "workloads.nodes.program" in line or "testbed.runtimes" in line
            if of_a_run and MARK in process.environ():
                found.append(process)
        except psutil.Error:
            continue
    return found


def wait_until_gone(limit_s: float = 15) -> None:
    deadline = time.monotonic() + limit_s
    while family() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert family() == []
