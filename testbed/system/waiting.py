# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Waiting for a time of the monotonic clock or for input, as precisely as the machine allows."""

import os
import select
import time
from collections.abc import Iterable

from testbed.core.clock import sleep_ns
from testbed.system import inside

SPIN_NS = 100_000
"""Nanoseconds before the end at which waiting changes from sleep to a busy loop: a sleeping process
wakes up some 60 µs late, which would delay the start of every transfer."""


START_NS = 10_000_000_000
"""Nanoseconds between the times at which networks start in virtual time."""


def wait_for_start() -> None:
    """In virtual time, sleep until the clock is at a multiple of `START_NS`, to which it jumps.

    A network then starts at the same time in every guest, after imports of any duration: TCP
    depends on this time, not only on durations.
    """
    if inside.guest_settings() is not None:
        sleep_ns(START_NS - time.monotonic_ns() % START_NS)


def wait_until(moment_ns: int, spin_ns: int = SPIN_NS) -> None:
    """Wait for a time of the monotonic clock; returns at once if it has passed.

    The time is absolute, so that late wake-ups do not accumulate. In virtual time, sleep is exact
    and there is no busy loop.

    Args:
        moment_ns: Time of `time.monotonic_ns`.
        spin_ns: Duration of the busy loop in real time.
    """
    rest_ns = moment_ns - time.monotonic_ns() - (spin_ns if inside.guest_settings() is None else 0)
    if rest_ns > 0:
        sleep_ns(rest_ns)
    while time.monotonic_ns() < moment_ns:
        pass


class Inputs:
    """The files from which a process reads, of any number, for a process that has no other input.

    `poll` waits for whole milliseconds, and `select` for no file whose number is above 1023, of
    which the links of a hundred UAVs need more. So `select` waits for a single file, that of epoll,
    which takes the number of the standard input.
    """

    def __init__(self, files: Iterable[int]) -> None:
        self._files = select.epoll()
        for file in files:
            self._files.register(file, select.EPOLLIN)
        os.dup2(self._files.fileno(), 0)

    def wait(self, seconds: float | None) -> list[int]:
        """The files that can be read, as soon as there is one, or at the end of this time."""
        select.select((0,), (), (), seconds)
        return [file for file, _ in self._files.poll(0)]
