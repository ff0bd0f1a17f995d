# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Channels that are made from another one follow it slot by slot, and close it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ns3_scenarios.cells import Cells, CellsChannel, Followed
from ns3_scenarios.fading import Fading, FadingChannel
from ns3_scenarios.fitted import Direction, FittedChannel
from ns3_scenarios.modelled import ModelledChannel
from ns3_scenarios.trace import PER_SLOT, BeyondHorizon, ChannelTrace
from orchestrator.scenario.channel import Channel
from tests.support.given_slots import Given

SLOTS = 97


def flown(horizon: int | None = None, seed: int = 1) -> Given:
    """Gains of two UAVs that change from slot to slot, on flights with changing speeds."""
    rng = np.random.default_rng(seed)
    position_m = np.random.default_rng(1).uniform(-2, 3, (2, SLOTS, 3)).cumsum(axis=1)
    gain = 10 ** (-rng.uniform(85, 100, (2, 6)).repeat(17, axis=1)[:, :SLOTS] / 10)
    return Given(ChannelTrace(gain, 0.1, position_m), horizon)


def fitted(source: Any) -> FittedChannel:
    way = Direction(0.0, shadowing_db=1.0, decorrelation_m=10.0, scatter_db=2.0)
    return FittedChannel(source, way, way, correlation=0.0, bs_position_m=(0, 0, 0), seed=1)


def fading(source: Any) -> FadingChannel:
    return FadingChannel(source, Fading("rayleigh", 0.0, 1e-3, 2e9, 5.0, 1))


def modelled(source: Any) -> ModelledChannel:
    return ModelledChannel("own", lambda position_m, _: np.full(position_m.shape[:2], 1e-9), source)


def in_cells(source: Any) -> CellsChannel:
    cells = Cells((1.0, 1.0, 1.0), (0.1, 0.1), (1e-13, 1e-13), 1.0, 0.05, (0.0, 0.3, 0.0))
    followed = Followed(2, 0.1)
    further = [modelled(followed), flown(seed=2)]
    return CellsChannel(source, further, followed, cells, lambda cell, position_m, first: None)


KINDS = [fitted, fading, modelled, in_cells]


def parts(trace: ChannelTrace) -> dict[str, bytes]:
    """The bytes of all that a trace has for its slots."""
    found = {name: getattr(trace, name) for name in PER_SLOT if hasattr(trace, name)}
    served = found.pop("served")
    if served is not None:
        found |= {"cells": served.cells, "left": served.gain}
        found |= {"strength": served.sites.strength, "kept": served.sites.kept}
    return {name: values.tobytes() for name, values in found.items() if values is not None}


@pytest.mark.parametrize("make", KINDS)
def test_slot_by_slot_it_is_the_same_channel(make: Callable[[Any], Any]) -> None:
    """Also at constant effort: a source is asked for each of its slots once."""
    source = flown(horizon=1)
    stepped = make(source)
    for slots in range(1, SLOTS + 1):
        assert stepped.trace(slots).slots == slots == source.made
        assert stepped.trace(slots) is stepped.trace(slots)
    by_tens = make(flown())
    for slots in (2, 10, 40, SLOTS):
        by_tens.trace(slots)
    whole = make(flown()).trace(SLOTS)
    wanted = parts(whole)
    assert parts(by_tens.trace(SLOTS)) == wanted
    assert parts(stepped.trace(SLOTS)) == wanted
    if make is in_cells:
        assert np.ptp(whole.served.cells, axis=1).all()
        assert (whole.served.sites.kept < 1).any()


@pytest.mark.parametrize("make", KINDS)
def test_slots_beyond_the_horizon_are_not_given(make: Callable[[Any], Any]) -> None:
    source = flown(horizon=1)
    channel = Channel(make(source))
    assert channel.horizon == 1
    assert channel.now.slots == channel.trace(1).slots == 1
    for slots in (3, 97):
        with pytest.raises(BeyondHorizon, match=f"{slots} slots were asked for, but 1 are made"):
            channel.trace(slots)
    assert channel.trace(2).slots == channel.now.slots == 2
    assert channel.grow().slots == 3
    assert channel.until(0.95).slots == source.made == 10
    assert Channel(make(flown())).horizon is None


@pytest.mark.parametrize("make", [fitted, fading, modelled])
def test_the_source_is_closed_once(make: Callable[[Any], Any]) -> None:
    source = flown()
    with make(source) as channel:
        assert (channel.slot_s, channel.uavs) == (0.1, 2)
        assert channel.trace(4).slots >= 4
        assert source.closed == 0
    assert source.closed == 1


def test_the_sources_of_all_cells_are_closed_once() -> None:
    sources = [flown() for _ in range(3)]
    cells = Cells((1.0, 1.0, 1.0), (0.1, 0.1), (1e-13, 1e-13), None, 0.0, (0.0,) * 3)
    flight = Followed(2, 0.1)
    with CellsChannel(sources[0], sources[1:], flight, cells, lambda *_: None) as channel:
        assert channel.trace(4).slots >= 4
    assert [source.closed for source in sources] == [1, 1, 1]
