# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Channels that are made from another one close it, so that no process of ns-3 is left."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ns3_scenarios.cells import Cells, CellsChannel
from ns3_scenarios.fading import Fading, FadingChannel
from ns3_scenarios.fitted import Direction, FittedChannel
from ns3_scenarios.modelled import ModelledChannel
from ns3_scenarios.trace import ChannelTrace


class Source:
    """A source of gains of two UAVs that counts how often it is closed."""

    slot_s, uavs = 0.1, 2

    def __init__(self) -> None:
        self.closed = 0

    def trace(self, slots: int) -> ChannelTrace:
        return ChannelTrace(np.full((2, slots), 1e-9), self.slot_s, np.zeros((2, slots, 3)))

    def close(self) -> None:
        self.closed += 1


def fitted(source: Any) -> FittedChannel:
    way = Direction(offset_db=0.0, shadowing_db=1.0, decorrelation_m=10.0)
    return FittedChannel(source, way, way, correlation=0.0, bs_position_m=(0, 0, 0), seed=1)


def fading(source: Any) -> FadingChannel:
    return FadingChannel(source, Fading("rayleigh", 0.0, 1e-3, 2e9, 5.0, 1))


def modelled(source: Any) -> ModelledChannel:
    return ModelledChannel("own", lambda position_m, _: np.full(position_m.shape[:2], 1e-9), source)


@pytest.mark.parametrize("make", [fitted, fading, modelled])
def test_the_source_is_closed_once(make: Callable[[Any], Any]) -> None:
    source = Source()
    with make(source) as channel:
        assert (channel.slot_s, channel.uavs) == (0.1, 2)
        assert channel.trace(4).slots >= 4
        assert source.closed == 0
    assert source.closed == 1


def test_the_sources_of_all_cells_are_closed_once() -> None:
    sources = [Source() for _ in range(3)]
    cells = Cells((1.0, 1.0, 1.0), (0.1, 0.1), (1e-13, 1e-13), None, 0.0, (0.0,) * 3)
    with CellsChannel(sources[0], sources[1:], cells, lambda cell, position_m: None) as channel:
        assert channel.trace(4).slots >= 4
    assert [source.closed for source in sources] == [1, 1, 1]
