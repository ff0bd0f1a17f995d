# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Frames that the air took, by slot and by round: nothing is left out, nothing counts twice."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from orchestrator.analysis.frame_loss import by_round, by_slot
from testbed.control.messages import Direction
from testbed.network.injector import ImpairmentCounts, Report

NOTHING = Direction(**dict.fromkeys(Direction.__dataclass_fields__, 0))
MOMENTS = np.zeros(0, np.int64)


def report(*links: tuple[tuple[int, int], tuple[int, int]], air: Any = None) -> Report:
    """Lost and arrived frames up and down of each link."""
    ways = [
        [replace(NOTHING, lost_frames=lost, arrived_frames=arrived) for lost, arrived in way]
        for way in zip(*links, strict=True)
    ]
    return Report(*[MOMENTS] * 4, 0, *ways, "fifo", 0, 0, air=air)


def test_a_slot_has_what_was_lost_until_the_next_was_counted() -> None:
    # Counted as slots 7, 8 and 10 began: two links, both ways.
    lost = np.array([[[3, 0], [1, 0]], [[4, 0], [1, 2]], [[4, 5], [2, 2]]])
    asked = np.array([[[0.1, 0.0], [0.2, 0.5]]] * 2 + [[[0.3, 0.0], [0.2, 0.5]]])
    air = ImpairmentCounts(np.array([7, 8, 10]), lost, 10 * lost, asked)
    before = report(((3, 30), (0, 0)), ((1, 10), (0, 0)))
    after = report(((4, 40), (6, 60)), ((2, 20), (2, 25)), air=air)
    table = by_slot(5, 7, 0.1, before, after)
    assert list(table) == [
        *("round", "slot", "time_s", "client", "direction"),
        *("lost_frames", "arrived_frames", "asked_loss"),
    ]
    assert (table["round"] == 5).all()
    assert table["slot"].tolist() == [7] * 4 + [8] * 4 + [10] * 4
    assert np.allclose(table["time_s"], table["slot"] * 0.1)
    assert table["client"].tolist() == [1, 1, 2, 2] * 3
    assert table["direction"].tolist() == ["up", "down"] * 6
    assert table["lost_frames"].tolist() == [1, 0, 0, 2, 0, 5, 1, 0, 0, 1, 0, 0]
    assert table["arrived_frames"].tolist() == [10, 0, 0, 20, 0, 50, 10, 0, 0, 10, 0, 5]
    assert table["asked_loss"].tolist() == [0.1, 0, 0.2, 0.5] * 2 + [0.3, 0, 0.2, 0.5]


def test_a_round_has_what_its_slots_have_and_nothing_from_before() -> None:
    first = by_slot(0, 3, 0.1, report(((2, 9), (0, 1))), report(((5, 10), (1, 8))))
    assert first["slot"].tolist() == [3, 3]
    # After it the run was resumed: counters began anew.
    second = by_slot(1, 4, 0.1, report(((0, 0), (0, 0))), report(((1, 2), (3, 4))))
    table = by_round(pd.concat([first, second]))
    assert list(table) == ["round", "client", "direction", "lost_frames", "arrived_frames"]
    assert table.to_numpy().tolist() == [
        [0, 1, "up", 3, 1],
        [0, 1, "down", 1, 7],
        [1, 1, "up", 1, 2],
        [1, 1, "down", 3, 4],
    ]
