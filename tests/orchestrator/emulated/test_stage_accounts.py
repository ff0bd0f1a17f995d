# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Books of nodes and counters of links belong together, whatever a program says on its own."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from orchestrator.analysis.byte_accounts import BYTES, SET_UP
from orchestrator.emulated import stage
from orchestrator.emulated.stage import Stage
from testbed.control.messages import Direction, FramesSent
from testbed.core.node import BS, uav
from testbed.network.injector import Report
from testbed.network.shaping import Shape
from testbed.transport.accounts import Counts, TcpCount

NOTHING = Direction(**dict.fromkeys(Direction.__dataclass_fields__, 0))


def report(asked_ns: int, sent_bytes: int, slots: int = 0) -> Report:
    """One UAV's link, which has carried so much up."""
    moments = np.arange(slots, dtype=np.int64)
    up = [replace(NOTHING, sent_bytes=sent_bytes)]
    return Report(moments, moments, moments, moments, asked_ns, up, [NOTHING], "fifo", 0, 0)


def books(size: int) -> dict[Any, FramesSent]:
    """The UAV has sent so much, and nothing else."""
    counts = Counts("SMASHED", 1, size, 0, 0, 0, 0, 0, TcpCount(data_bytes=size))
    return {BS: FramesSent(()), uav(1): FramesSent(((1, counts),))}


def of(reports: list[Report], told: list[dict[Any, FramesSent]]) -> Stage:
    """A stage whose injector and nodes say this, one after the other."""
    playing: Any = object.__new__(Stage)
    playing._counters = None
    playing.shape = Shape()
    playing.scenario = SimpleNamespace(emulation=SimpleNamespace(transport="tcp"))
    playing.injector = SimpleNamespace(report=iter(reports).__next__)
    playing.nodes = SimpleNamespace(
        alive=[BS, uav(1)], send_all=lambda _: None, collect=lambda *_: next(answers)
    )
    answers = iter(told)
    made: Stage = playing
    return made


def of_uplink(table: pd.DataFrame) -> tuple[int, int]:
    """All bytes up, and those that the links counted beyond the books."""
    up = table[table["direction"] == "up"]
    return int(up[list(BYTES)].to_numpy().sum()), int(up["other_bytes"].sum())


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "REST_S", 0.0)


def test_books_are_read_until_nothing_went_meanwhile() -> None:
    reports = [report(1, 100, slots=3), report(2, 166), report(3, 166)]
    playing = of(reports, [books(100), books(66)])
    assert of_uplink(playing.account(0)) == (166, 0)
    counters = playing.counters
    assert (counters.asked_ns, counters.uplink[0].sent_bytes) == (3, 166)
    assert counters.slot.tolist() == [0, 1, 2], "those that were set before"


def test_links_that_never_rest_are_read_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "REST_TRIES", 2)
    reports = [report(n, 100 * n) for n in (1, 2, 3, 4)]
    playing = of(reports, [books(100), books(100), books(100)])
    assert of_uplink(playing.account(0)) == (300, 100)


def test_what_went_between_two_rounds_is_the_later_ones() -> None:
    reports = [report(1, 100), report(2, 100), report(3, 366), report(4, 366)]
    playing = of(reports, [books(100), books(266)])
    assert of_uplink(playing.account(SET_UP)) == (100, 0)
    assert of_uplink(playing.account(0)) == (266, 0)
