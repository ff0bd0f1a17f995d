# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Faults, as nodes know them: when one ends, slows down, sends nonsense, or is given up.

What is planned, and what a round does about it, is the orchestrator's business
(`orchestrator.engine.faults`); a node is told what happens to itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Wrong = Literal["corrupt-frame", "duplicate-frame"]
"""Frames that no UAV should send: a flipped bit in the header; the same frame twice."""


def slowed_end(start_s: float, work_s: float, slow: Sequence[Sequence[float]]) -> float:
    """When computing ends that takes `work_s` at full speed.

    Args:
        start_s: When it starts.
        work_s: Its duration on a node without faults.
        slow: Rows of start, end and factor, disjoint and in order: between start and end all
            computing takes factor times as long.
    """
    now_s, left_s = start_s, work_s
    for row in range(len(slow)):  # numba compiles this function, too, with an array for `slow`
        begin_s, end_s, factor = slow[row][0], slow[row][1], slow[row][2]
        if end_s <= now_s:
            continue
        if now_s + left_s <= begin_s:
            break
        if now_s < begin_s:
            left_s -= begin_s - now_s
            now_s = begin_s
        if now_s + left_s * factor <= end_s:
            return now_s + left_s * factor
        left_s -= (end_s - now_s) / factor
        now_s = end_s
    return now_s + left_s


@dataclass(frozen=True)
class UavFaults:
    """What happens to one UAV in a round; times in emulated seconds."""

    crash_s: float | None = None
    """When its process ends, by SIGKILL; until then it tells each of its steps."""
    lost_s: float | None = None
    """When it counts as lost, and leaves the round, if it has not finished by then."""
    wrong: Wrong | None = None
    wrong_s: float = 0.0
    """The first smashed data sent from then on are sent wrongly."""
    slow: Sequence[Sequence[float]] = ()
    """See `slowed_end`."""


@dataclass(frozen=True)
class BsFaults:
    """Whom the base station gives up in a round, and how fast it computes."""

    lost_s: Sequence[float | None] = ()
    """For each client, when it counts as lost."""
    drops: bool = False
    """Whether the round goes on without a lost client; else the run ends."""
    slow: Sequence[Sequence[float]] = ()
