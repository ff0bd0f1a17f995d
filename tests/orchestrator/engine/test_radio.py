# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Rates of links with fixed shares, against a second implementation."""

import itertools

import numpy as np
import pytest
from engine_cases import EVERY_COMBINATION, random_case
from reference_engine import Fdma

from ns3_scenarios.trace import ChannelTrace, RateTrace, TwoWay, both_ways
from orchestrator.engine.fdma import ShannonFdma, shannon_bps
from orchestrator.engine.plan import Allocation
from orchestrator.engine.radio import Rates, check_shares, describe_radio, radio_access
from orchestrator.engine.rates import OUTAGE_S, first_gradient_s, link_rates
from orchestrator.scenario.loading import validate
from testbed.core.errors import InputError


def cases(scheme, seed):
    """A plan with one gain for both directions, with one for each, and with rates.

    Gains have everything from an outage to a neighbour.
    """
    rng = np.random.default_rng(seed)
    plan, radio, *_ = random_case(rng, scheme)
    gain = 10 ** rng.uniform(-22, -6, (plan.clients, 40))
    gain[:, ::7] = 0.0
    both = np.stack([gain, gain[:, ::-1]])
    rates, bps = Rates(radio.uplink_power_w), TwoWay(1e15 * both)
    cell = Rates(radio.uplink_power_w, is_cell=True)
    return [
        *((plan, radio, gain), (plan, radio, TwoWay(both))),
        *((plan, rates, bps), (plan, cell, bps)),
    ]


def rate_of(plan, radio, way, k, value):
    """The rate of a link in bit/s by the reference engine, or that of a trace."""
    if way == "down" and plan.in_turns:
        way = "broadcast"
    if isinstance(radio, ShannonFdma):
        return Fdma(radio, plan.allocation).rate(way, k, value)
    return value * (plan.allocation.rho[k] if way == "down" and radio.is_cell else 1)


@pytest.mark.parametrize("scheme", EVERY_COMBINATION, ids=lambda scheme: scheme.name)
def test_links_have_the_rates_of_the_second_implementation(scheme) -> None:
    for plan, radio, values in cases(scheme, 1):
        found = link_rates(plan, radio, values)
        up, down = both_ways(values)
        for bps, value, way in (
            (found.uplink, up, "up"),
            (found.broadcast, down, "broadcast"),
            (found.gradient, down, "down"),
        ):
            for k, slot in itertools.product(range(plan.clients), range(value.shape[1])):
                expected = rate_of(plan, radio, way, k, value[k, slot])
                assert bps[k, slot] == pytest.approx(expected, rel=1e-12)


def test_a_slot_with_fading_has_the_mean_rate_of_its_blocks() -> None:
    (plan, radio, values), *_ = cases(EVERY_COMBINATION[0], 3)
    powers = np.random.default_rng(3).exponential(1, (2, *values.shape, 7)).astype(np.float32)
    found = link_rates(plan, radio, TwoWay(np.stack([values, values]), fading=powers))
    for side, bps, way in ((0, found.uplink, "up"), (1, found.gradient, "down")):
        blocks = [
            [
                np.mean([rate_of(plan, radio, way, k, value * float(p)) for p in row])
                for value, row in zip(values[k], powers[side, k], strict=True)
            ]
            for k in range(plan.clients)
        ]
        assert bps == pytest.approx(np.array(blocks), rel=1e-9)


def test_a_trace_decides_which_radio_a_scenario_has() -> None:
    tree = {"uavs": {"tx_power_w": [1, 0.4]}, "workload": {"compute": "none"}}
    some = np.ones((2, 3))
    radio = radio_access(validate(tree, "test"), ChannelTrace(1e-9 * some, 0.1))
    assert isinstance(radio, ShannonFdma)
    assert radio.decides == {"beta", "rho"}
    given = radio_access(validate(tree, "test"), RateTrace(some, 2 * some, 0.1))
    assert isinstance(given, Rates)
    assert not given.decides
    assert given.of_clients(np.array([1])).uplink_power_w.tolist() == [0.4]
    half = np.full(2, 0.5)
    check_shares(given, Allocation(1, np.array([0.1, 0.9]), half, half))
    for shares in ((np.array([0.1, 0.9]), half), (half, np.array([0.1, 0.9]))):
        check_shares(radio, Allocation(1, half, *shares))
        with pytest.raises(InputError, match="must be 'equal' where the trace has rates"):
            check_shares(given, Allocation(1, half, *shares))


LTE = "LTE, 100 resource blocks, shared equally, 64QAM, 1 layer"


@pytest.mark.parametrize(
    ("radio", "words"),
    [
        ({}, "Shannon's rates, FDMA"),
        ({"access": "lte"}, LTE),
        (
            {"access": "lte", "lte": {"resource_blocks": 50, "scheduler": "shares"}},
            "LTE, 50 resource blocks, in shares beta, 64QAM, 1 layer",
        ),
        (
            {"access": "lte", "lte": {"layers": 2, "highest_modulation": "256QAM"}}
            | {"uplink_bandwidth_hz": 10e6},
            "LTE, 50 uplink and 100 downlink resource blocks, shared equally, 256QAM, 2 layers",
        ),
        ({"access": "wifi"}, "802.11n, 20 MHz, access point with 1 W"),
        (
            {
                "access": "wifi",
                "wifi": {
                    "standard": "ax",
                    "width_mhz": 80,
                    "rts": True,
                    "access_point_power_w": 0.25,
                },
            },
            "802.11ax, 80 MHz, RTS/CTS, access point with 0.25 W",
        ),
        ({"fading": "rayleigh"}, "Shannon's rates, FDMA, Rayleigh fading, 1 ms"),
        ({"access": "lte", "fading": "rayleigh"}, f"{LTE}, Rayleigh fading, 1 ms"),
        (
            {"fading": "rician", "rician_k_db": 6.5, "fading_block": "slot"},
            "Shannon's rates, FDMA, Rician fading with K = 6.5 dB, 100 ms",
        ),
    ],
)
def test_a_radio_is_described_in_one_line(radio, words) -> None:
    tree = {"radio": radio, "uavs": {"tx_power_w": [1.0] * 10}, "workload": {"compute": "none"}}
    scenario = validate(tree, "test")
    some = np.ones((10, 3))
    assert describe_radio(scenario) == words
    assert describe_radio(scenario, ChannelTrace(1e-9 * some, 0.1)) == words
    assert describe_radio(scenario, RateTrace(some, some, 0.1)) == "rates of a trace"


def test_a_radio_that_has_no_description_is_named() -> None:
    scenario = validate({"uavs": {"tx_power_w": [1.0]}, "workload": {"compute": "none"}}, "test")
    radio = scenario.radio.model_copy(update={"access": "constant"})
    assert describe_radio(scenario.model_copy(update={"radio": radio})) == "constant"


@pytest.mark.parametrize("scheme", EVERY_COMBINATION, ids=lambda scheme: scheme.name)
def test_the_first_gradient_takes_what_its_rate_allows(scheme) -> None:
    for plan, radio, values in cases(scheme, 2):
        plan.sg_bytes[:] = np.maximum(plan.sg_bytes, 1)
        seconds = first_gradient_s(plan, link_rates(plan, radio, values).gradient)
        down = both_ways(values)[1]
        for k, slot in itertools.product(range(plan.clients), range(down.shape[1])):
            bps = rate_of(plan, radio, "down", k, down[k, slot])
            due_s = 8 * plan.sg_bytes[k, 0] / bps if bps else OUTAGE_S
            assert seconds[k, slot] == pytest.approx(min(due_s, OUTAGE_S), rel=1e-12)


def test_a_rate_keeps_the_digits_of_a_tiny_signal() -> None:
    snr = np.array([1e-13, 1e-9, 1e-3, 1.0, 3.0])
    exact = [1e-13, 1e-9 - 5e-19, 1e-3 - 5e-7 + 1e-9 / 3 - 1e-12 / 4, np.log(2), 2 * np.log(2)]
    assert shannon_bps(20e6, snr) == pytest.approx(20e6 * np.array(exact) / np.log(2), rel=1e-12)
