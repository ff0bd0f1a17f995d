# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Clocks and CPU accounts of the machine during a run."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PROGRAMS = 3
"""Columns of /proc/stat before this one: CPU time of programs in user and kernel mode."""
_STEAL = 7
"""Column of /proc/stat: steal time, in which other guests of the same host had this machine's
CPU."""
_GUESTS = 8
"""Columns from here on repeat time that earlier columns contain."""
_WORK, _WORK_S = 300_000, 5e-3
"""Count of numbers to add up, and the seconds that this takes on an ordinary machine."""


def boot_id() -> str:
    """Random ID of the running kernel's boot, which is equal for all hosts that share a kernel."""
    return _BOOT_ID.read_text().strip()


def slowness() -> float:
    """Current computing time relative to an ordinary machine, at least 1.

    Time limits that detect hanging processes are multiplied by it: an emulated or heavily shared
    processor may be tens of times slower.
    """
    began = time.perf_counter()
    sum(range(_WORK))
    return max(1.0, (time.perf_counter() - began) / _WORK_S)


@dataclass(frozen=True)
class Machine:
    """Clocks and CPU accounts of the machine at one time, or their differences between two
    times."""

    monotonic_ns: int
    raw_ns: int
    cpu_ticks: int
    """Time of all CPUs, including idle time."""
    stolen_ticks: int
    program_ticks: int
    """Time of all programs in user and kernel mode."""
    own_s: float
    """CPU seconds of this process; as a difference over a round, also of its nodes."""

    @classmethod
    def now(cls) -> "Machine":
        """The current values."""
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
        """Differences since then; `nodes_s` are the CPU seconds of the nodes."""
        passed = {name: now - vars(before)[name] for name, now in vars(self).items()}
        return Machine(**passed | {"own_s": passed["own_s"] + nodes_s})

    @property
    def others(self) -> float:
        """Share of the CPU time that programs outside of the run took."""
        own_ticks = self.own_s * os.sysconf("SC_CLK_TCK")
        return max(0.0, self.program_ticks - own_ticks) / max(1, self.cpu_ticks)


def gpus() -> int:
    """The number of NVIDIA GPUs of this machine."""
    return len(list(Path("/proc/driver/nvidia/gpus").glob("*")))
