# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Faults of nodes: crash, slow computing, invalid frames, loss.

The orchestrator plans faults and the reaction of a round (`orchestrator.engine.faults`); each node
receives only its own faults.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Wrong = Literal["corrupt-frame", "duplicate-frame"]
"""Invalid frames of a UAV: a flipped bit in the header; the same frame twice."""


def slowed_end(start_s: float, work_s: float, slow: Sequence[Sequence[float]]) -> float:
    """End time of a computation that takes `work_s` at full speed.

    Args:
        start_s: Start time.
        work_s: Duration on a node without faults.
        slow: Rows of start, end and factor, disjoint and in order: between start and end,
            computing takes factor times as long.
    """
    now_s, left_s = start_s, work_s
    for begin_s, end_s, factor in slow:
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
    """Faults of one UAV in a round; times in emulated seconds."""

    crash_s: float | None = None
    """Time at which its process is killed by SIGKILL; until then it reports each step."""
    lost_s: float | None = None
    """Time at which it counts as lost and leaves the round if it has not finished."""
    wrong: Wrong | None = None
    wrong_s: float = 0.0
    """Time from which the next smashed data are sent as an invalid frame."""
    slow: Sequence[Sequence[float]] = ()
    """See `slowed_end`."""


@dataclass(frozen=True)
class BsFaults:
    """Clients that the base station drops in a round, and its own slow periods."""

    lost_s: Sequence[float | None] = ()
    """Time at which each client counts as lost; None: never."""
    drops: bool = False
    """Whether the round continues without a lost client; otherwise the run ends."""
    slow: Sequence[Sequence[float]] = ()
