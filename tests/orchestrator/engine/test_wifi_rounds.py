# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Rounds over a Wi-Fi cell, whose two directions share one channel, against a second engine."""

import numpy as np
import pytest
from engine_cases import (
    EVERY,
    EVERY_COMBINATION,
    EVERY_ORDER,
    assert_equal_to_reference,
    quick,
    random_faults,
    random_wifi_case,
)

from ns3_scenarios.trace import both_ways
from orchestrator.engine.plan import Allocation, plan_round
from orchestrator.engine.wifi import Wifi
from orchestrator.rounds.simulation import simulate, simulate_batch, split_costs
from orchestrator.scenario.loading import validate
from testbed.core.paradigm import paradigm
from workloads.costs.profile import PAPER


@pytest.mark.parametrize("scheme", quick(3, EVERY_COMBINATION))
def test_agrees_with_the_reference(scheme):
    rng = np.random.default_rng(6000 + EVERY.index(scheme))
    ended = [assert_equal_to_reference(random_wifi_case(rng, scheme)) for _ in range(8)]
    assert any(times is not None for times in ended)


@pytest.mark.parametrize("scheme", quick(3, EVERY_ORDER))
def test_agrees_with_the_reference_whatever_goes_wrong(scheme):
    rng = np.random.default_rng(8000 + EVERY.index(scheme))
    for _ in range(8):
        case = random_wifi_case(rng, scheme)
        assert_equal_to_reference(case, random_faults(rng, case[0].clients, *case[3:]))


def test_cases_have_outages_and_several_schemes():
    rng, seen = np.random.default_rng(7), set()
    for _ in range(40):
        plan, scenario, gain, *_ = random_wifi_case(rng, paradigm("sfl-pp"))
        rates = Wifi.of(scenario).link_rates(plan.allocation, gain, in_turns=False)
        up = both_ways(gain)[0]
        seen.add(("outage", bool(((rates.uplink == 0) & (up > 0)).any())))
        seen.add(("several schemes", len(np.unique(rates.uplink)) > 2))
    assert seen == {(what, is_so) for what, _ in seen for is_so in (False, True)}


def test_a_batch_is_single_rounds():
    tree = {
        "uavs": {"tx_power_w": [1, 0.4, 0.5, 0.2]},
        "paradigm": "sfl-pp",
        "workload": {"local_iterations": 2},
        "radio": {"access": "wifi"},
    }
    scenario = validate(tree, "test")
    radio, costs = Wifi.of(scenario), split_costs(scenario, PAPER)
    gain = 10 ** (-np.random.default_rng(3).uniform(80, 110, (4, 5000)) / 10)
    split, equal = np.array([1, 2, 3]), np.full((3, 4), 1 / 4)
    batch = simulate_batch(costs, radio, gain, 0.1, 1.7, split, equal, equal, equal)
    for n in range(3):
        plan = plan_round(scenario, PAPER, Allocation(int(split[n]), equal[n], equal[n], equal[n]))
        one = simulate(plan, radio, gain, 0.1, 1.7)
        assert batch.latency_s[n] == pytest.approx(one.latency_s, abs=1e-12)
        assert batch.energy_j[n] == pytest.approx(one.energy_j, abs=1e-12)
