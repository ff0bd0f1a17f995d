# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Turns signals that end the console script into an exception, so that every context is left.

Python may run a signal's handler in a function that C code has called back, as compilers do. An
exception raised there is lost, or worse. Therefore libraries get some time to return first, and an
exception that was lost is raised again.
"""

import signal
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from testbed.core.signals import ending_signals

RETRY_S = 0.05
LIBRARY_TIMEOUT_S = 2.0
"""Time that code of libraries may take to return, s."""
LIBRARIES = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})


class Stopped(BaseException):
    """A signal asked to end; contexts clean up while this exception leaves them."""

    def __init__(self, number: int):
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.status = 128 + number


@contextmanager
def stoppable() -> Iterator[None]:
    """Raise `Stopped` in this context when one of `ending_signals` arrives."""
    received: list[tuple[int, float]] = []
    """Signal numbers, and until when libraries may run on."""

    def receive(number: int, frame: FrameType | None) -> None:
        received.append((number, time.monotonic() + LIBRARY_TIMEOUT_S))
        signal.setitimer(signal.ITIMER_REAL, RETRY_S, RETRY_S)
        end(frame)

    def retry(_: int, frame: FrameType | None) -> None:
        if not _is_ending():
            end(frame)

    def end(frame: FrameType | None) -> None:
        number, until_s = received[0]
        if not _is_of_library(frame) or time.monotonic() > until_s:
            raise Stopped(number)

    signal.signal(signal.SIGALRM, retry)
    for number in ending_signals():
        signal.signal(number, receive)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _is_of_library(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_code.co_filename.startswith(LIBRARIES)


def _is_ending() -> bool:
    """Whether `Stopped` is already propagating."""
    error = sys.exc_info()[1]
    while error is not None and not isinstance(error, Stopped):
        error = error.__context__
    return error is not None
