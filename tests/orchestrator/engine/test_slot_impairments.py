# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Losses by signal-to-noise ratio, delays by distance, columns of a trace: what slots come to."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ns3_scenarios.trace import ChannelTrace, trace_of
from orchestrator.engine.access import LinkRates
from orchestrator.engine.fdma import ShannonFdma
from orchestrator.engine.plan import fixed_allocation, link_bytes, plan_round, prospects_of
from orchestrator.engine.radio import radio_access
from orchestrator.engine.rates import ahead_of, link_rates, on_channel
from orchestrator.engine.slot_impairments import (
    BROADCAST,
    DOWN,
    UP,
    SlotImpairments,
    error_rate,
    impairments_by_slot,
)
from orchestrator.engine.tcp_model import tcp_model_of
from orchestrator.rounds.loop import predict
from orchestrator.scenario.channel import replay
from orchestrator.scenario.loading import validate
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario, SnrLoss
from testbed.control.messages import RoundAhead
from testbed.core.errors import InputError

SLOTS = 3000
GAIN = np.random.default_rng(1).uniform(1e-12, 1e-11, (2, SLOTS))
POSITION = np.stack([np.linspace(100, 2e4, 2 * SLOTS).reshape(2, SLOTS)] * 3, axis=-1)


def scenario(links: dict[str, Any], **keys: Any) -> Scenario:
    tree = {"uavs": {"tx_power_w": [1.0, 0.4]}, "links": links, **keys}
    workload = {"compute": "none", "local_iterations": 1}
    return validate({**tree, "workload": workload}, "test")


def trace(**columns: Any) -> ChannelTrace:
    return trace_of({"gain": GAIN, "slot_s": 0.1, **columns}, "test")


def slots_of(made: Scenario, given: ChannelTrace) -> SlotImpairments:
    plan = plan_round(made, profile_of(made), fixed_allocation(made), link_bytes)
    transport = on_channel(tcp_model_of(made), plan, ShannonFdma.of(made), given)
    assert transport is not None
    assert transport.slots is not None
    return transport.slots


def test_the_ratio_is_the_one_of_the_rate() -> None:
    made = scenario({}, paradigm="sfl-pp", allocation={"rho": [0.3, 0.7], "beta": [0.6, 0.4]})
    radio, shares = ShannonFdma.of(made), fixed_allocation(made)
    plan = plan_round(made, profile_of(made), shares, link_bytes)
    rates, snr = link_rates(plan, radio, GAIN), radio.snr(shares, GAIN, in_turns=False)
    beta = shares.beta[:, None]
    for way, rate, hz in (
        (UP, rates.uplink, beta * radio.uplink_hz),
        (DOWN, rates.gradient, beta * radio.downlink_hz),
        (BROADCAST, rates.broadcast, radio.downlink_hz),
    ):
        np.testing.assert_allclose(hz * np.log2(1 + snr[way]), rate)


def test_a_curve_and_a_table_say_how_many_frames_err() -> None:
    curve = SnrLoss(model="snr", threshold_db=10, width_db=2)
    ratio = 10 ** (np.array([8.0, 10.0, 12.0]) / 10)
    np.testing.assert_allclose(error_rate(curve, ratio), [1 / (1 + np.exp(-1)), 0.5, 0.26894142])
    assert error_rate(curve, np.zeros(1)) == 1.0
    table = SnrLoss(model="snr", table=[(0, 0.8), (20, 0.2)])
    ratio = np.array([0.1, 10.0, 1e4])
    np.testing.assert_allclose(error_rate(table, ratio), [0.8, 0.5, 0.2])


def test_retransmissions_cost_airtime_and_delay_and_leave_few_losses() -> None:
    """Against frames drawn one by one."""
    links = {"model": "snr", "table": [[0, 0.4]], "retransmissions": 2, "retransmission_s": 0.01}
    found = slots_of(scenario({"loss": {"up": links}, "one_way_delay_s": 0.005}), trace())
    errs = np.random.default_rng(2).random((200_000, 3)) < 0.4
    tries = np.where(errs.all(axis=1), 3, errs.argmin(axis=1) + 1)
    arrived = ~errs.all(axis=1)
    late_s = 0.005 + 0.01 * (tries[arrived] - 1)
    assert found.loss[UP, 0, 0] == pytest.approx(1 - arrived.mean(), rel=0.02)
    assert found.airtime[UP, 0, 0] == pytest.approx(tries.mean(), rel=0.01)
    assert found.delay_s[UP, 0, 0] == pytest.approx(late_s.mean(), rel=0.01)
    assert found.jitter_s[UP, 0, 0] == pytest.approx(late_s.std(), rel=0.01)
    np.testing.assert_array_equal(found.airtime[DOWN:], 1)
    np.testing.assert_array_equal(found.loss[DOWN:], 0)
    never = slots_of(scenario({"loss": {"model": "snr", "table": [[0, 1]]}}), trace())
    np.testing.assert_allclose(never.loss, 1)


def test_frames_that_are_sent_again_take_their_share_of_a_links_rate() -> None:
    up, broadcast, down = np.full((3, 2, 4), 12e6)
    airtime = np.ones((3, 2, 9))
    airtime[UP], airtime[DOWN], airtime[BROADCAST] = 2, 3, 4
    airtime[:, 1, 3] *= 2
    air = SlotImpairments(airtime=airtime, loss=airtime, delay_s=airtime, jitter_s=airtime)
    left = LinkRates(up, broadcast, down).slowed(air, 2)
    for found, times in ((left.uplink, 2), (left.gradient, 3), (left.broadcast, 4)):
        due = np.full((2, 4), 12e6 / times)
        due[1, 1] /= 2
        np.testing.assert_allclose(found, due)
    np.testing.assert_array_equal(
        LinkRates(up, broadcast, down).slowed(air).uplink[1], [6e6, 6e6, 6e6, 3e6]
    )


def test_the_downlink_whose_ratio_counts_is_the_paradigms() -> None:
    """In turns each has all of band and power, else its shares."""
    curve = {"model": "snr", "threshold_db": 3, "width_db": 9}
    for paradigm, in_turns in (("cpsfl", True), ("sfl-pp", False)):
        made = scenario({"loss": curve}, paradigm=paradigm, allocation={"rho": [0.3, 0.7]})
        found, shares = slots_of(made, trace()), fixed_allocation(made)
        snr = ShannonFdma.of(made).snr(shares, GAIN, in_turns=in_turns)
        for way in (UP, DOWN, BROADCAST):
            due = error_rate(SnrLoss(model="snr", threshold_db=3, width_db=9), snr[way])
            np.testing.assert_allclose(found.loss[way], due)
        assert (found.loss[DOWN] == found.loss[BROADCAST]).all() == in_turns
    plain = scenario({}, paradigm="cpsfl")
    plan = plan_round(plain, profile_of(plain), fixed_allocation(plain), link_bytes)
    assert on_channel(None, plan, ShannonFdma.of(plain), trace()) is None
    constant = tcp_model_of(plain)
    assert on_channel(constant, plan, ShannonFdma.of(plain), trace()) is constant


def test_an_order_of_a_package_knows_the_rates_to_come() -> None:
    made = scenario({}, paradigm="cpsfl")
    plan = plan_round(made, profile_of(made), fixed_allocation(made), link_bytes)
    rates = LinkRates(*np.arange(12.0).reshape(3, 2, 2))
    assert ahead_of(plan, rates, 7, 0.1) is None
    other = replace(plan, paradigm=replace(plan.paradigm, order="round-robin"))
    ahead = ahead_of(other, rates, 7, 0.1)
    assert ahead == RoundAhead(
        prospects_of(plan), 7, 0.1, ((0.0, 1.0), (2.0, 3.0)), ((8.0, 9.0), (10.0, 11.0))
    )


def test_distance_and_columns_are_taken_slot_by_slot() -> None:
    made = scenario({"one_way_delay_s": {"model": "distance", "base_s": 0.001}})
    given = trace(position=POSITION)
    far_m = np.sqrt(((POSITION - np.array(made.base_station.position_m)) ** 2).sum(axis=-1))
    found = slots_of(made, given)
    for way in (UP, DOWN, BROADCAST):
        np.testing.assert_allclose(found.delay_s[way], 0.001 + far_m / 299_792_458)
    column = {"model": "trace"}
    made = scenario({"one_way_delay_s": column, "jitter_s": column, "loss": {"down": column}})
    shares = np.linspace(0, 1, GAIN.size).reshape(GAIN.shape)
    given = trace(delay_s=shares, jitter_up_s=shares / 2, jitter_down_s=shares / 3, loss=shares)
    found = impairments_by_slot(made, given, None)
    np.testing.assert_array_equal(found.delay_s, [shares] * 3)
    np.testing.assert_array_equal(found.jitter_s, [shares / 2, shares / 3, shares / 3])
    np.testing.assert_array_equal(found.loss, [0 * shares, shares, shares])
    up, broadcast, down = found.given(5, 7, 2.0)
    assert up.shape == (2, 2, 3)
    np.testing.assert_array_equal(broadcast[..., 0], 2 * shares[:, 5:7])
    np.testing.assert_array_equal(down[..., 2], shares[:, 5:7])


def test_slots_that_are_alike_are_as_one_number() -> None:
    """Also for the compiled engine: the same frames are lost."""
    number = scenario({"loss": 0.02, "one_way_delay_s": 0.01, "jitter_s": 0.001})
    column = {"model": "trace"}
    slots = scenario({"loss": column, "one_way_delay_s": column, "jitter_s": column})
    columns = {
        name: np.full_like(GAIN, value)
        for name, value in (("loss", 0.02), ("delay_s", 0.01), ("jitter_s", 0.001))
    }
    columns["gain"] = 1e3 * GAIN
    given = trace(**columns)
    one, other = (
        predict(made, replay(made, given), profile_of(made), sizing=link_bytes).rounds[0]
        for made in (number, slots)
    )
    np.testing.assert_array_equal(one.spans, other.spans)
    later = np.full_like(GAIN, 0.01)
    later[:, 5:] = 0.5
    soon, late = (
        predict(slots, replay(slots, given), profile_of(slots), sizing=link_bytes).rounds[0]
        for delay_s in (columns["delay_s"], later)
        for given in [trace(**columns | {"delay_s": delay_s, "loss": 0 * GAIN})]
    )
    assert late.latency_s > soon.latency_s + 0.4


@pytest.mark.parametrize(
    ("links", "columns", "message"),
    [
        ({"loss": {"model": "trace"}}, {}, "links.loss: 'trace' needs a trace with loss"),
        ({"loss": {"down": {"model": "trace"}}}, {}, "links.loss: 'trace' needs a trace with"),
        (
            {"one_way_delay_s": {"model": "trace"}},
            {"loss": GAIN},
            "links.one_way_delay_s: 'trace' needs a trace with delay_s",
        ),
        (
            {"one_way_delay_s": {"model": "distance"}},
            {},
            "links.one_way_delay_s: 'distance' needs a trace with positions",
        ),
    ],
)
def test_what_a_trace_does_not_say_is_named(
    links: dict[str, Any], columns: dict[str, Any], message: str
) -> None:
    made = scenario(links)
    with pytest.raises(InputError) as refused:
        replay(made, trace(**columns))
    assert str(refused.value).startswith(message)


def test_rates_have_no_signal_to_noise_ratio() -> None:
    made = scenario({"loss": {"model": "snr", "threshold_db": 3}})
    rates = {"uplink_bps": GAIN * 1e18, "downlink_bps": GAIN * 1e18, "slot_s": 0.1}
    with pytest.raises(
        InputError, match=r"links\.loss: must not be 'snr' where the trace has rates"
    ):
        radio_access(made, trace_of(rates, "test"))
