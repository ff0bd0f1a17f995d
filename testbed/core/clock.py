# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Emulated time: what the round believes the clock says.

Emulated time runs `dilation` times slower than the machine's monotonic clock and stands still
between rounds, where aggregation and decision cost no modelled time. Processes and containers of
one machine share that clock, so a begin message with two numbers sets them all.
"""

import time
from dataclasses import dataclass

FILL_S = 15e-3
"""Real seconds before the start of held transfers at which senders begin to fill their sockets."""
OPEN_S = 2e-3
"""Real seconds after their start at which held frames are released; a sender that has filled its
socket by then is on time."""

TICK_NS = 10_000_000
"""A whole number of ticks of the kernel's coarse timers, of 1, 4 or 10 ms."""


def sleep_ns(duration_ns: int) -> None:
    """Sleep for so many nanoseconds, 1 or more, to the nanosecond where the kernel does.

    `time.sleep` rounds up, which makes one more of a whole number whose float lies above it.
    """
    time.sleep((duration_ns - 0.5) / 1e9)


def next_tick() -> int:
    """Sleep until the monotonic clock is at a whole `TICK_NS`, and return that moment.

    What begins there meets the kernel's timers in the same phase each time, however long what came
    before has taken. In virtual time, runs then repeat between users and machines.
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
        """The emulated time of a moment of the monotonic clock, in seconds."""
        return self.start_s + (monotonic_ns - self.start_ns) / 1e9 / self.dilation

    def monotonic_ns(self, emulated_s: float) -> int:
        """The moment of the monotonic clock at which it is that emulated time."""
        return self.start_ns + round((emulated_s - self.start_s) * self.dilation * 1e9)

    def depart(self, due_s: float, credit_s: float) -> float:
        """Wait until a transfer that is due at an emulated time may send, and return its start.

        A link that was idle sends `credit_s` real seconds' worth at once. Who sends so much later
        than the transfer starts uses that up, and is where it would be without credit; a delay in
        the sender up to as much is made up for. A sender later than that starts later.
        """
        start_s = max(due_s, self.now() - credit_s / self.dilation)
        rest = self.monotonic_ns(start_s) + round(credit_s * 1e9) - time.monotonic_ns()
        if rest > 0:
            sleep_ns(rest)
        return start_s

    def fill(self, due_s: float) -> float:
        """Wait until a transfer that its link holds back may be handed to it, and return its start.

        A held transfer starts when it is due if all of it is handed over before its frames are
        released (`testbed.network.holding`); otherwise it starts later.
        """
        rest = self.monotonic_ns(due_s) - round(FILL_S * 1e9) - time.monotonic_ns()
        if rest > 0:
            sleep_ns(rest)
        return max(due_s, self.now() - OPEN_S / self.dilation)
