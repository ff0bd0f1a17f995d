# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Small-scale fading in the engine: a slot has the mean rate of its blocks."""

import numpy as np
import pytest
from engine_cases import random_case

from ns3_scenarios.trace import ChannelTrace, RateTrace, TwoWay
from orchestrator.engine.fdma import ShannonFdma
from orchestrator.engine.lte import Lte
from orchestrator.rounds.simulation import simulate
from orchestrator.scenario.channel import replay
from orchestrator.scenario.loading import validate
from testbed.core.errors import InputError
from testbed.core.paradigm import paradigm
from testbed.core.timeline import CA

SLOT_S = 0.1
SCENARIO = {
    "uavs": {"tx_power_w": [1, 0.4, 0.1]},
    "workload": {"compute": "none"},
    "radio": {"fading": "rayleigh", "doppler_hz": 20},
}


def scenario_with(**radio):
    return validate({**SCENARIO, "radio": {**SCENARIO["radio"], **radio}}, "test")


def channel(slots=4000, seed=3):
    rng = np.random.default_rng(seed)
    values = 10 ** rng.uniform(-13, -9, (2, 3, slots))
    values[rng.random(values.shape) < 0.03] = 0.0
    return TwoWay(values, rng.exponential(1, (2, 3, slots, 10)).astype(np.float32))


@pytest.mark.parametrize("name", ["cpsfl", "pipesfl", "sfl-pp"])
@pytest.mark.parametrize("access", ["shannon", "equal", "shares"])
def test_a_round_is_that_of_the_mean_rates(name, access) -> None:
    """Where links are fixed, a faded channel and its mean rates give the same round."""
    rng, values = np.random.default_rng(5), channel()
    plan = None
    while plan is None or plan.clients != 3:
        plan, *_ = random_case(rng, paradigm(name))
    lte = {"access": "lte", "lte": {"scheduler": access}}
    scenario = scenario_with(**({} if access == "shannon" else lte))
    radio = ShannonFdma.of(scenario) if access == "shannon" else Lte.of(scenario)
    found = simulate(plan, radio, values, SLOT_S)
    rates = radio.link_rates(plan.allocation, values, in_turns=plan.in_turns)

    def carried(bps, span):
        edges = SLOT_S * np.arange(bps.size + 1)
        own = np.minimum(edges[1:], span["end_s"]) - np.maximum(edges[:-1], span["start_s"])
        return (bps * own.clip(min=0)).sum()

    for span in found.spans[
        np.isin(found.spans["step"], (0, 2, 4, 6)[: 4 if access != "equal" else 1])
    ]:
        way = {0: rates.broadcast, 4: rates.gradient}.get(int(span["step"]), rates.uplink)
        bits = carried(way[span["client"] - 1], span)
        assert bits == pytest.approx(8 * span["bytes"], rel=1e-6, abs=1)


def test_a_lone_link_of_a_shared_band_has_its_mean_rate() -> None:
    scenario = scenario_with(access="lte")
    radio, values = Lte.of(scenario), channel()
    rng = np.random.default_rng(2)
    plan = None
    while plan is None or plan.clients != 1:
        plan, *_ = random_case(rng, paradigm("cpsfl"))
    one, alone = radio.of_clients(np.array([1])), values[1:2]
    rates = one.link_rates(plan.allocation, alone, in_turns=True, active=1)
    upload = next(s for s in simulate(plan, one, alone, SLOT_S).spans if s["step"] == CA)
    edges = SLOT_S * np.arange(4001)
    own = np.minimum(edges[1:], upload["end_s"]) - np.maximum(edges[:-1], upload["start_s"])
    assert (rates.uplink[0] * own.clip(min=0)).sum() == pytest.approx(8 * upload["bytes"], rel=1e-6)


def test_a_trace_of_gains_fades_as_the_scenario_says() -> None:
    gains = ChannelTrace(np.full((3, 50), 1e-10), SLOT_S)
    given = replay(scenario_with(), gains).whole
    assert given.values.fading.shape == (2, 3, 50, 100)
    assert replay(scenario_with(fading_block="slot"), gains).whole.fading.shape == (2, 3, 50, 1)
    np.testing.assert_array_equal(given.gain, gains.gain)
    again = replay(scenario_with(), gains).whole
    np.testing.assert_array_equal(again.fading, given.fading)
    rates = RateTrace(np.full((3, 50), 1e6), np.full((3, 50), 1e6), SLOT_S)
    with pytest.raises(
        InputError, match=r"radio\.fading: must be 'none' where the trace has rates"
    ):
        replay(scenario_with(), rates)


def test_a_direct_path_raises_the_mean_rate() -> None:
    """At equal mean power, Shannon's rate is the lower, the more the power varies."""
    gains = ChannelTrace(np.full((3, 200), 1e-11), SLOT_S)
    mean = {}
    for kind in ("none", "rician", "rayleigh"):
        scenario = scenario_with(fading=kind)
        values = replay(scenario, gains).whole.values
        share = random_case(np.random.default_rng(1), paradigm("cpsfl"))[0].allocation
        equal = type(share)(1, *(np.full(3, 1 / 3),) * 3)
        rates = ShannonFdma.of(scenario).link_rates(equal, values, in_turns=False)
        mean[kind] = rates.uplink.mean()
    assert mean["none"] > mean["rician"] > mean["rayleigh"] > 0.8 * mean["none"]
