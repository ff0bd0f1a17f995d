# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Wait until no other program computes on this machine."""

import time
from collections.abc import Callable

import psutil

from testbed.core.errors import RunError
from testbed.core.progress import Progress, silent
from testbed.system.leftovers import running

QUIET_SHARE = 0.1
"""Share of all cores in use below which the machine counts as quiet."""
LOOK_S = 2.0
LOOKS = 3
"""Number of consecutive quiet measurements that are required."""


def wait_until_quiet(
    limit_s: float,
    progress: Progress = silent,
    *,
    busy: Callable[[float], float] | None = None,
) -> None:
    """Return as soon as the machine has been quiet for some seconds.

    Args:
        limit_s: Time limit in s.
        progress: Called with the waiting time.
        busy: Measures the share of all cores in use, over a given number of seconds.

    Raises:
        RunError: The machine was not quiet in time; the message names the busiest programs.
    """
    busy = busy or _busy
    began_s, quiet = time.monotonic(), 0
    while True:
        progress("waiting for a quiet machine", time.monotonic() - began_s, limit_s)
        share = busy(LOOK_S)
        quiet = quiet + 1 if share < QUIET_SHARE and not running() else 0
        if quiet == LOOKS:
            return
        if not quiet and time.monotonic() - began_s > limit_s:
            raise RunError(
                f"the machine was not quiet within {limit_s:g} s: {share:.0%} of its cores are busy"
                + _who()
            )


def _busy(seconds: float) -> float:
    return psutil.cpu_percent(interval=seconds) / 100


def _who() -> str:
    """The programs that use most CPU time, as the end of a message."""
    processes = []
    for process in psutil.process_iter(["pid", "name"]):
        try:
            process.cpu_percent()
        except psutil.Error:
            continue
        processes.append(process)
    time.sleep(0.5)
    shares = []
    for process in processes:
        try:
            shares.append((process.cpu_percent() / 100, process.info["name"], process.pid))
        except psutil.Error:
            continue
    found = [f"{name} ({pid}) {share:.1f}" for share, name, pid in sorted(shares)[:-4:-1] if share]
    emulations = [f"emulation {pid}" for pid in running()]
    return f"; cores by program: {', '.join(found + emulations)}" if found or emulations else ""
