# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Communication of a process in virtual time with the host.

A guest's first process stores the settings from the host in a file; see `testbed.virtual`.
"""

import json
import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

SETTINGS_FILE = Path("/dev/tmp/testbed-guest.json")
"""File of the settings, which exists only in a guest."""
KERNEL_LOG = "/dev/kmsg"
ENDLESS = "computes without end: "
"""Start of the kernel's message about a program; its node and its name follow."""
UPTIME_S = 1000
"""Time of a guest's monotonic clock at which its command starts. Some programs take the first
second of this clock for a clock that has not been read."""
TEMPLATE = Path("/dev/template")
"""Device of the guest's kernel, see `become_copy`."""
PROGRESS_FD = 3
"""File descriptor of the guest's command for its progress."""


@cache
def guest_settings() -> dict[str, Any] | None:
    """The settings that the host gave to this guest; None outside of a guest."""
    try:
        return dict(json.loads(SETTINGS_FILE.read_text(encoding="utf-8")))
    except OSError:
        return None


def become_copy() -> dict[str, Any]:
    """Make this guest a template; returns in each of its copies, with the copy's settings."""
    with TEMPLATE.open("rb", buffering=0) as device:
        settings = Path(device.read(4096).decode()).read_bytes()
    SETTINGS_FILE.write_bytes(settings)
    guest_settings.cache_clear()
    return guest_settings() or {}


def computing() -> Path | None:
    """Folder for requests to the host to compute learning passes; None if it does not compute."""
    place = (guest_settings() or {}).get("computing")
    return None if place is None else Path(place)


def take_turns() -> None:
    """Use the scheduling policy of virtual time: processes run one after the other until they
    sleep.

    The ordinary policy orders processes by their CPU time, which in virtual time is the number of
    times that a process has read the clock.
    """
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def endless() -> list[str]:
    """The programs in virtual time that the kernel has found to compute without end, each with the
    host name of its node; none outside of a guest."""
    if guest_settings() is None:
        return []
    found: dict[str, None] = {}
    log = os.open(KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK)
    try:
        # One message per read, until there is none.
        with suppress(BlockingIOError):
            while line := os.read(log, 1 << 13).decode(errors="replace"):
                _, marked, program = line.partition(f";{ENDLESS}")
                if marked:
                    found[program.splitlines()[0]] = None
    finally:
        os.close(log)
    return list(found)


def draw_as(name: str) -> None:
    """In virtual time, reseed the random numbers of this process and of its future children.

    They then depend only on `name`: not on earlier random numbers, nor on the number of processes
    started so far, which differs between users and machines.
    """
    if guest_settings() is not None:
        Path("/dev/urandom").write_bytes(name.encode())


def report_progress(what: str, done: float, total: float) -> None:
    """Report progress for the host to show."""
    _say([what, done, total])


def report_state(state: dict[str, Any]) -> None:
    """Report the state of the run for the host's live page."""
    _say(state)


def _say(what: Any) -> None:
    os.set_inheritable(PROGRESS_FD, False)
    line = json.dumps(what).encode() + b"\n"
    while line:
        line = line[os.write(PROGRESS_FD, line) :]
