# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The link rates of a round, which grow with what is asked of them."""

import numpy as np
import pytest
from packet_cases import small

from ns3_scenarios.trace import ChannelTrace, Replay, TraceExhausted, trace_of
from orchestrator.emulated.rate_feed import RoundRates, divided_rates, extreme_rates
from orchestrator.engine.fdma import ShannonFdma
from orchestrator.engine.lte import Lte
from orchestrator.engine.plan import fixed_allocation, link_bytes, plan_round
from orchestrator.scenario.channel import Channel
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario


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


def lte(**lte_keys: object) -> Scenario:
    radio = {"access": "lte", "uplink_bandwidth_hz": 5e6, "downlink_bandwidth_hz": 5e6}
    return small(radio=radio | {"lte": lte_keys}, uavs={"tx_power_w": [1.0, 0.1] * 6})


@pytest.mark.parametrize("in_turns", [False, True])
def test_divided_rates_are_those_of_the_radio_for_each_number_of_active_links(
    in_turns: bool,
) -> None:
    scenario = lte()
    radio, shares = Lte.of(scenario), fixed_allocation(scenario)
    gain = 10 ** np.random.default_rng(2).uniform(-15, -9, (12, 30))
    up, down = divided_rates(radio, shares, gain, in_turns=in_turns)
    assert len(up.division) == 12
    assert len(up.rows) == 6, "of 25 blocks: 25, 12, 8, 6, 5, and 4 for 6 links and more"
    assert len(down.division) == (1 if in_turns else 12)
    assert len(down.rows) == 1
    for active in range(1, 13):
        rates = radio.link_rates(shares, gain, in_turns=in_turns, active=active)
        for way, bps in ((up, rates.uplink), (down, rates.gradient)):
            row, part = way.division[min(active, len(way.division)) - 1]
            np.testing.assert_allclose(part * way.rows[row], bps, rtol=1e-12)


def test_a_round_of_an_lte_cell_is_given_rates_by_the_number_of_active_links() -> None:
    scenario, given = lte(), []

    class Injector:
        def rates(self, first: int, *tables: object, warn_slots: int) -> None:
            given.extend(tables)

    plan = plan_round(scenario, profile_of(scenario), fixed_allocation(scenario), link_bytes)
    gain = {"gain": np.full((12, 300), 1e-12), "slot_s": 0.1}
    made = RoundRates(
        plan, Lte.of(scenario), Channel.of(Growing(trace_of(gain, "trace"))), 7, None, dilation=4.0
    )
    made.grow(50)
    made.give(Injector())
    up, broadcast, down = given
    due, _ = divided_rates(made.radio, plan.allocation, made.gain[:, 7:50], in_turns=True)
    np.testing.assert_array_equal(up.rows, due.rows / 4)
    np.testing.assert_array_equal(broadcast, made.rates.broadcast / 4)
    np.testing.assert_array_equal(down.rows[0], broadcast)
    assert len(down.division) == 1, "gradients are sent in turns"


def test_a_calibration_uses_rates_of_links_alone_and_together() -> None:
    gain = np.full((12, 3), 1e-12)
    for scenario, slots in ((lte(), 6), (lte(scheduler="shares"), 3)):
        radio, shares = Lte.of(scenario), fixed_allocation(scenario)
        found = extreme_rates(radio, shares, gain, in_turns=False)
        assert {way.shape for way in found} == {(12, slots)}
        together = radio.link_rates(shares, gain, in_turns=False)
        np.testing.assert_array_equal(found.uplink[:, :3], together.uplink)
        if slots == 6:
            alone = radio.link_rates(shares, gain, in_turns=False, active=1)
            np.testing.assert_array_equal(found.gradient[:, 3:], alone.gradient)
