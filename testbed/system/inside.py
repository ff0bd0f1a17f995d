# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a process in virtual time knows of the host, and how it tells of its progress.

A guest's first process lays down what the host told it; see `testbed.virtual`.
"""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

TOLD = Path("/dev/tmp/testbed-guest.json")
"""Only a guest has it: elsewhere /dev is the system's own."""
PROGRESS_FD = 3
"""Of the guest's command: takes its progress."""


@cache
def told() -> dict[str, Any] | None:
    """What the host has told this guest; None where this is no guest."""
    try:
        return dict(json.loads(TOLD.read_text(encoding="utf-8")))
    except OSError:
        return None


def computing() -> Path | None:
    """Folder in which the host is asked to compute what nodes learn; None where it does not."""
    place = (told() or {}).get("computing")
    return None if place is None else Path(place)


def take_turns() -> None:
    """Be scheduled as everybody is in virtual time: in turns, each until it sleeps.

    The ordinary policy orders processes by what each has computed so far, which there is the number
    of times that it has looked at the clock.
    """
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def draw_as(name: str) -> None:
    """In virtual time, begin this process's random numbers anew, and those of all it starts next.

    They come from `name` alone: not from what it drew before, nor from how many processes it or
    its parents have started, which differs between users and places.
    """
    if told() is not None:
        Path("/dev/urandom").write_bytes(name.encode())


def tell(what: str, done: float, total: float) -> None:
    """Progress, for the host to show."""
    _say([what, done, total])


def show(state: dict[str, Any]) -> None:
    """How the run stands, for the host's page."""
    _say(state)


def _say(what: Any) -> None:
    os.set_inheritable(PROGRESS_FD, False)
    line = json.dumps(what).encode() + b"\n"
    while line:
        line = line[os.write(PROGRESS_FD, line) :]
