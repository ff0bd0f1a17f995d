# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The physics of the air, as Python and as the compiled kernel state it: they say the same."""

import itertools

import numpy as np
import pytest
from engine_cases import EVERY_COMBINATION, random_case

from ns3_scenarios.trace import TwoWay, both_ways
from orchestrator.engine import engine, kernel
from orchestrator.engine.rates import OUTAGE_S, first_gradient_s, link_rates, shannon_bps
from orchestrator.engine.slots import rate_of


def case(scheme, seed):
    """A plan, its radio, and gains with everything from an outage to a neighbour."""
    rng = np.random.default_rng(seed)
    plan, radio, *_ = random_case(rng, scheme)
    gain = 10 ** rng.uniform(-22, -6, (plan.clients, 40))
    gain[:, ::7] = 0.0
    return plan, radio, gain


def ways(gain):
    """One gain for both directions, one for each, and rates."""
    both = np.stack([gain, gain[:, ::-1]])
    return gain, TwoWay(both), TwoWay(1e15 * both, are_rates=True)


def kernel_links(plan, radio, gain):
    rules, bands = engine._rules(plan.paradigm), engine._bands(radio, gain)
    return kernel.links_of(rules, bands, plan.allocation.beta, plan.allocation.rho)


@pytest.mark.parametrize("scheme", EVERY_COMBINATION, ids=lambda scheme: scheme.name)
def test_links_have_the_rates_of_the_kernel(scheme) -> None:
    plan, radio, gain = case(scheme, 1)
    for gains in ways(gain):
        ours, theirs = link_rates(plan, radio, gains), kernel_links(plan, radio, gains)
        up, down = both_ways(gains)
        for k, slot in itertools.product(range(plan.clients), range(gain.shape[1])):
            for rate_bps, way, hz, snr in (
                (ours.uplink, up, theirs.uplink_hz[k], theirs.uplink_snr[k]),
                (ours.broadcast, down, theirs.broadcast_hz, theirs.broadcast_snr),
                (ours.gradient, down, theirs.gradient_hz[k], theirs.gradient_snr[k]),
            ):
                expected = rate_of(hz, snr * way[k, slot])
                assert rate_bps[k, slot] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("scheme", EVERY_COMBINATION, ids=lambda scheme: scheme.name)
def test_the_first_lag_is_that_of_the_kernel(scheme) -> None:
    plan, radio, gain = case(scheme, 2)
    plan.sg_bytes[:] = np.maximum(plan.sg_bytes, 1)
    for gains in ways(gain):
        assert_first_lags(plan, radio, gains)


def assert_first_lags(plan, radio, gain):
    seconds = first_gradient_s(plan, link_rates(plan, radio, gain).gradient)
    down = both_ways(gain)[1]
    work = kernel.Work(
        *(plan.cf_s, plan.cb_s, plan.s_s, plan.sm_bytes, plan.ca_bytes, plan.sg_bytes),
        *(plan.cm_bytes, float(plan.backward_ratio)),
    )
    links, air = kernel_links(plan, radio, gain), engine._air(gain, 0.1, None)
    begin = np.zeros((plan.clients, 5 * plan.iterations + 2))
    for k, slot in itertools.product(range(plan.clients), range(gain.shape[1])):
        place = (kernel.COMPUTING, k, 0, slot)
        lag_s = kernel._lag(work, links, air, None, *place, begin, begin)
        own_s = (1 + plan.backward_ratio) * plan.cf_s[k, 0]
        if down[k, slot] == 0:
            assert (lag_s, seconds[k, slot]) == (np.inf, OUTAGE_S)
        elif seconds[k, slot] < OUTAGE_S:
            assert own_s + seconds[k, slot] == pytest.approx(lag_s, rel=1e-12)


def test_a_rate_keeps_the_digits_of_a_tiny_signal() -> None:
    snr = np.array([1e-13, 1e-9, 1e-3, 1.0, 3.0])
    exact = [1e-13, 1e-9 - 5e-19, 1e-3 - 5e-7 + 1e-9 / 3 - 1e-12 / 4, np.log(2), 2 * np.log(2)]
    assert shannon_bps(20e6, snr) == pytest.approx(20e6 * np.array(exact) / np.log(2), rel=1e-12)
