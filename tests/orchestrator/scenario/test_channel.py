# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A channel grows and caches itself, and never more than its source has."""

import numpy as np
import pytest

from ns3_scenarios.trace import ChannelTrace, Replay, TraceExhausted
from orchestrator.scenario.channel import FIRST_SLOTS, Channel

SLOT_S = 0.1


class Source:
    """Makes as many slots as it is asked for, and remembers that."""

    slot_s, uavs = SLOT_S, 2

    def __init__(self) -> None:
        self.asked: list[int] = []

    def trace(self, slots: int) -> ChannelTrace:
        self.asked.append(slots)
        gain = np.tile(np.arange(slots, dtype=float), (2, 1))
        return ChannelTrace(gain, SLOT_S, np.zeros((2, slots, 3)))


def test_what_is_there_is_not_asked_for_again() -> None:
    source = Source()
    channel = Channel(source)
    assert channel.now.slots == FIRST_SLOTS
    assert channel.trace(10) is channel.now
    assert channel.grow().slots == 2 * FIRST_SLOTS
    assert channel.trace(FIRST_SLOTS + 1) is channel.now
    assert source.asked == [FIRST_SLOTS, 2 * FIRST_SLOTS]


def test_what_is_known_ends_with_the_slot_of_the_moment() -> None:
    channel = Channel(Source())
    for time_s, slots in ((0.0, 1), (0.099, 1), (0.1, 2), (0.3, 4), (500.0, 5001)):
        known = channel.until(time_s)
        assert known.gain[0].tolist() == list(range(slots))
        assert known.position_m is not None
        assert known.position_m.shape == (2, slots, 3)


def test_a_trace_that_ends_is_given_whole_and_then_ends() -> None:
    whole = ChannelTrace(np.ones((1, 30)), SLOT_S)
    channel = Channel(Replay(whole))
    assert channel.now is channel.trace(1000) is whole
    with pytest.raises(TraceExhausted) as end:
        channel.grow()
    assert end.value.available == 30
    with pytest.raises(TraceExhausted):
        channel.until(3.05)
    assert channel.until(2.95).slots == 30


def test_a_channel_is_shared_not_wrapped() -> None:
    channel = Channel(Source())
    assert Channel.of(channel) is channel
    assert Channel.of(Source()) is not channel
