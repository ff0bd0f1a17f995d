# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The console script as a process.

`TESTBED` really starts one; see `warm` for when that is needed.
"""

import os
import subprocess
import sys
import time
from typing import Any

import psutil
import warm

TESTBED = [sys.executable, "-m", "orchestrator"]


def run_testbed(
    *words: object, check: bool = True, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, see `warm.run`."""
    done = warm.run(*words, **options)
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
