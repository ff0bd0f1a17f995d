"""Emulated time: what the round believes the clock says.

Emulated time runs `dilation` times slower than the machine's monotonic clock and stands still
between rounds, where aggregation and decision cost no modelled time. Processes and containers of
one machine share that clock, so a begin message with two numbers sets them all.
"""

import time
from dataclasses import dataclass

SPIN_NS = 100_000
"""How long before a deadline waiting turns from sleep into a busy loop: a sleeper wakes some 60 µs
late, and that would go into every transfer's start."""


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

    def wait_until(self, emulated_s: float) -> None:
        """Sleep until that emulated time; returns at once if it has passed.

        The deadline is absolute: waking late does not add up over steps.
        """
        deadline = self.monotonic_ns(emulated_s)
        rest = deadline - time.monotonic_ns()
        if rest > SPIN_NS:
            time.sleep((rest - SPIN_NS) / 1e9)
        while time.monotonic_ns() < deadline:
            pass
