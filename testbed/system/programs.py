# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""CPU time of the programs on this machine that do not belong to a process and its children."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

_PARENT, _USER, _KERNEL, _BORN = 1, 11, 12, 19
"""Fields of /proc/PID/stat, counted from the one after the program's name."""
MOST = 3
"""Largest number of programs that are named."""
LEAST_CORES = 0.01
"""Smallest share of a core of a program that is named."""


@dataclass(frozen=True)
class Programs:
    """CPU seconds of each program at one time."""

    at_s: float
    taken_s: dict[tuple[int, int], tuple[str, float]]
    """Name and CPU seconds of each process, by PID and start time, so that reused PIDs differ."""

    @classmethod
    def outside(cls, process: int) -> "Programs":
        """All visible programs except a process and its descendants."""
        parents: dict[int, int] = {}
        taken_s: dict[tuple[int, int], tuple[str, float]] = {}
        tick_s = 1 / os.sysconf("SC_CLK_TCK")
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                text = (folder / "stat").read_text(errors="replace")
            except OSError:
                continue  # The process has just ended.
            name, _, rest = text.partition(" (")[2].rpartition(") ")
            fields, pid = rest.split(), int(folder.name)
            parents[pid] = int(fields[_PARENT])
            ticks = int(fields[_USER]) + int(fields[_KERNEL])
            taken_s[pid, int(fields[_BORN])] = (name, ticks * tick_s)
        own = {process}
        for pid in sorted(parents):
            line = [pid]
            while line[-1] in parents and line[-1] not in own:
                line.append(parents[line[-1]])
            if line[-1] in own:
                own.update(line)
        others = {key: value for key, value in taken_s.items() if key[0] not in own}
        return cls(time.monotonic(), others)

    def since(self, before: "Programs") -> list[str]:
        """The programs with most CPU time since then, as text: name, PID, and number of busy
        cores."""
        passed_s = max(self.at_s - before.at_s, 1e-3)
        shares = [
            ((seconds - before.taken_s.get(key, (name, 0.0))[1]) / passed_s, name, key[0])
            for key, (name, seconds) in self.taken_s.items()
        ]
        return [
            f"{name} ({pid}) {cores:.2f}"
            for cores, name, pid in sorted(shares, reverse=True)[:MOST]
            if cores >= LEAST_CORES
        ]
