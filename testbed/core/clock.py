# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Emulated time: the clock of a round.

Emulated time runs `dilation` times slower than the machine's monotonic clock and is paused between
rounds, because aggregation and decisions take no modelled time. Processes and containers of one
machine share the monotonic clock, so a begin message with two numbers synchronises them all.
"""

import time
from dataclasses import dataclass

FILL_S = 15e-3
"""Real seconds before the start of held transfers at which senders begin to fill their sockets."""
OPEN_S = 2e-3
"""Real seconds after their start at which held frames are released; a sender that has filled its
socket by then is on time."""

TICK_NS = 10_000_000
"""Nanoseconds: a multiple of the kernel's timer tick, which is 1, 4 or 10 ms."""


def sleep_ns(duration_ns: int) -> None:
    """Sleep for `duration_ns` nanoseconds, at least 1, as precisely as the kernel does.

    `time.sleep` takes a float and rounds up, which may add a nanosecond.
    """
    time.sleep((duration_ns - 0.5) / 1e9)


def next_tick() -> int:
    """Sleep until the monotonic clock is at a multiple of `TICK_NS`, and return that time.

    Work that begins there always has the same phase relative to the kernel's timers. In virtual
    time, this makes runs repeatable between users and machines.
    """
    now = time.monotonic_ns()
    due = (now // TICK_NS + 1) * TICK_NS
    sleep_ns(due - now)
    return due


@dataclass(frozen=True)
class EmulatedClock:
    """Emulated seconds of one round: `start_s` at monotonic time `start_ns`."""

    start_ns: int
    start_s: float
    dilation: float

    def now(self) -> float:
        """The emulated time, in seconds."""
        return self.at(time.monotonic_ns())

    def at(self, monotonic_ns: int) -> float:
        """The emulated time in seconds at a time of the monotonic clock."""
        return self.start_s + (monotonic_ns - self.start_ns) / 1e9 / self.dilation

    def monotonic_ns(self, emulated_s: float) -> int:
        """The time of the monotonic clock at which the emulated time is `emulated_s`."""
        return self.start_ns + round((emulated_s - self.start_s) * self.dilation * 1e9)

    def depart(self, due_s: float, credit_s: float) -> float:
        """Wait until a transfer may start to send, and return its emulated start time.

        An idle link sends `credit_s` real seconds of traffic at once. A sender that starts late by
        this time uses up the credit and is then on time; further delay of the sender, up to the
        same amount, causes no error. The start of a still later sender is later.
        """
        start_s = max(due_s, self.now() - credit_s / self.dilation)
        rest = self.monotonic_ns(start_s) + round(credit_s * 1e9) - time.monotonic_ns()
        if rest > 0:
            sleep_ns(rest)
        return start_s

    def fill(self, due_s: float) -> float:
        """Wait until a transfer that its link holds back may be written; return its emulated start.

        A held transfer starts when it is due if all of it is handed over before its frames are
        released (`testbed.network.holding`); otherwise it starts later.
        """
        rest = self.monotonic_ns(due_s) - round(FILL_S * 1e9) - time.monotonic_ns()
        if rest > 0:
            sleep_ns(rest)
        return max(due_s, self.now() - OPEN_S / self.dilation)
