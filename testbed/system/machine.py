# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The machine beside a run: its clocks, and who took its processors."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PROGRAMS = 3
"""Columns of /proc/stat before this one: time in programs and in the kernel for them."""
_STEAL = 7
"""Column of /proc/stat: time for which another guest of the same host had this machine's CPU."""
_GUESTS = 8
"""Columns from here on count again what stands in earlier ones."""
_WORK, _WORK_S = 300_000, 5e-3
"""Numbers that are added up, and how long that takes an ordinary machine."""


def boot_id() -> str:
    """Of the kernel that runs here, since it does: the same for all who share it."""
    return _BOOT_ID.read_text().strip()


def slowness() -> float:
    """How many times longer than on ordinary machines computing takes here and now; 1 at least.

    Limits by which something is given up as hung are multiplied by it: an emulated processor takes
    tens of times as long, and so does one that many share.
    """
    began = time.perf_counter()
    sum(range(_WORK))
    return max(1.0, (time.perf_counter() - began) / _WORK_S)


@dataclass(frozen=True)
class Machine:
    """The machine's clocks and CPU accounts at a moment, or how far they went between two."""

    monotonic_ns: int
    raw_ns: int
    cpu_ticks: int
    """Of all CPUs, idle ones too."""
    stolen_ticks: int
    program_ticks: int
    """In all programs, and in the kernel for them."""
    own_s: float
    """CPU seconds of this process; over a round, of its nodes, too."""

    @classmethod
    def now(cls) -> "Machine":
        """As it is."""
        line = Path("/proc/stat").read_text().partition("\n")[0]
        ticks = [int(field) for field in line.split()[1:]]
        return cls(
            time.monotonic_ns(),
            time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW),
            sum(ticks[:_GUESTS]),
            ticks[_STEAL] if len(ticks) > _STEAL else 0,
            sum(ticks[:_PROGRAMS]),
            time.process_time(),
        )

    def since(self, before: "Machine", nodes_s: float) -> "Machine":
        """What has passed since then, while the nodes took those CPU seconds."""
        passed = {name: now - vars(before)[name] for name, now in vars(self).items()}
        return Machine(**passed | {"own_s": passed["own_s"] + nodes_s})

    @property
    def others(self) -> float:
        """Share of all CPU time that programs outside of the run took, of what has passed."""
        own_ticks = self.own_s * os.sysconf("SC_CLK_TCK")
        return max(0.0, self.program_ticks - own_ticks) / max(1, self.cpu_ticks)
