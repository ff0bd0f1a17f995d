# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The link rates of a round, which grow with what is asked of them."""

import numpy as np
import pytest
from packet_cases import small

from ns3_scenarios.trace import ChannelTrace, Replay, TraceExhausted, trace_of
from orchestrator.emulated.rate_feed import RoundRates
from orchestrator.engine.plan import fixed_allocation, link_bytes, plan_round
from orchestrator.engine.radio import ShannonFdma
from orchestrator.scenario.channel import Channel
from orchestrator.scenario.profiles import profile_of


class Growing(Replay):
    """A channel that is made as it is asked for, as ns-3's is."""

    def trace(self, slots: int) -> ChannelTrace:
        """So many slots of it."""
        super().trace(slots)
        made = {"gain": self.whole.gain[:, :slots], "slot_s": self.slot_s}
        return trace_of(made, "trace")


def table(most: int) -> RoundRates:
    scenario = small()
    plan = plan_round(scenario, profile_of(scenario), fixed_allocation(scenario), link_bytes)
    gain = {"gain": np.full((scenario.uavs.count, most), 1e-9), "slot_s": 0.1}
    made = RoundRates(
        plan,
        ShannonFdma.of(scenario),
        Channel.of(Growing(trace_of(gain, "trace"))),
        0,
        None,
    )
    made.grow(50)
    return made


def test_who_plays_the_round_again_gets_as_many_slots_as_that_takes() -> None:
    """The engine may take longer over frames that are lost than the kernel has."""
    grows = table(1000)

    def played() -> int:
        slots = grows.gain.shape[1]
        if slots < 300:
            raise TraceExhausted(slots)
        return slots

    assert grows.retry_until_channel_suffices(played) == 400
    assert grows.rates.uplink.shape[1] == 400
    ends = table(250)

    def never() -> None:
        raise TraceExhausted(ends.gain.shape[1])

    with pytest.raises(TraceExhausted, match="250 slots"):
        ends.retry_until_channel_suffices(never)


@pytest.mark.parametrize("dilation", [1.0, 4.0])
def test_the_injector_gets_real_rates_by_the_phase_of_a_round(dilation: float) -> None:
    """An emulated second lasts `dilation` real ones, so that a link carries so much less in one."""
    made, given = table(1000), []

    class Injector:
        def rates(self, first: int, *tables: np.ndarray, warn_slots: int) -> None:
            given.append((first, tables, warn_slots))

    made.dilation = dilation
    made.give(Injector())
    ((first, tables, warn_slots),) = given
    assert (first, warn_slots) == (0, 20)
    for found, due in zip(tables, made.rates, strict=True):  # uplinks, broadcast, gradients
        np.testing.assert_array_equal(found, due / dilation)
