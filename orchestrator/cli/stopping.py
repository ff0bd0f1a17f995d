# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How a signal ends the console script: as an exception, which leaves every context in order.

Python runs a signal's handler between any two instructions. If these belong to a function that C
calls back, as compilers do, nobody passes its exception on: it is printed and lost, or worse. So
libraries get some time to return to us first, and an exception that was lost is raised again.
"""

import signal
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

AGAIN_S = 0.05
PATIENCE_S = 2.0
"""How long a library may go on."""
LIBRARIES = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})


class Stopped(BaseException):
    """A signal asks us to end: every context is left, so that all that was made is removed."""

    def __init__(self, number: int):
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.status = 128 + number


def ending() -> list[signal.Signals]:
    """The signals that ask us to end: Ctrl-C, a machine that goes down, a terminal that is closed.

    The last is left out where whoever has started us wants us to outlive it, as `nohup` does.
    """
    outlives = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([] if outlives else [signal.SIGHUP])]


@contextmanager
def stoppable() -> Iterator[None]:
    """Raise `Stopped` in this context when a signal asks us to end."""
    asked: list[tuple[int, float]] = []
    """By which signal, and until when libraries may go on."""

    def ask(number: int, frame: FrameType | None) -> None:
        asked.append((number, time.monotonic() + PATIENCE_S))
        signal.setitimer(signal.ITIMER_REAL, AGAIN_S, AGAIN_S)
        end(frame)

    def again(_: int, frame: FrameType | None) -> None:
        if not _is_ending():
            end(frame)

    def end(frame: FrameType | None) -> None:
        number, until_s = asked[0]
        if not _is_of_library(frame) or time.monotonic() > until_s:
            raise Stopped(number)

    signal.signal(signal.SIGALRM, again)
    for number in ending():
        signal.signal(number, ask)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _is_of_library(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_code.co_filename.startswith(LIBRARIES)


def _is_ending() -> bool:
    """Whether contexts are being left since `Stopped` was raised."""
    error = sys.exc_info()[1]
    while error is not None and not isinstance(error, Stopped):
        error = error.__context__
    return error is not None
