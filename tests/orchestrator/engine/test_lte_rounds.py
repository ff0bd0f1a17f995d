# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Rounds over an LTE cell against a second implementation."""

from dataclasses import replace

import numpy as np
import pytest
from engine_cases import (
    EVERY,
    EVERY_COMBINATION,
    EVERY_ORDER,
    assert_equal_to_reference,
    quick,
    random_faults,
    random_lte_case,
)

from ns3_scenarios.trace import TraceExhausted, TwoWay, both_ways
from orchestrator.engine.lte import Lte
from orchestrator.engine.plan import Allocation, plan_round
from orchestrator.engine.tcp_model import tcp_model_of
from orchestrator.rounds.simulation import (
    service_order_of,
    simulate,
    simulate_batch,
    split_costs,
)
from orchestrator.scenario.loading import validate
from testbed.core.paradigm import paradigm
from workloads.costs.profile import PAPER


def over_radio(rng, case):
    """A case as over ns-3's LTE: TCP with grants, and a broadcast of one copy for each UAV."""
    plan, scenario, *rest = case
    window = int(rng.integers(1, 20))
    air = {"air": "ns3", "initial_window": window, "mtu": int(rng.integers(576, 3000))}
    tree = scenario.model_dump()
    radio = {"access": "lte", "lte": {"scheduler": scenario.radio.lte.scheduler}}
    tcp = tcp_model_of(validate(tree | {"emulation": air, "radio": radio}, "random"))
    return (replace(plan, unicast=True), scenario, *rest), tcp


@pytest.mark.parametrize("scheme", quick(3))
def test_agrees_with_the_reference(scheme):
    rng = np.random.default_rng(4000 + EVERY.index(scheme))
    for _ in range(12):
        assert_equal_to_reference(random_lte_case(rng, scheme))


@pytest.mark.full
@pytest.mark.parametrize("scheme", quick(3))
def test_agrees_with_the_reference_in_several_cells(scheme):
    """UAVs change among three cells, some in every slot."""
    rng = np.random.default_rng(9000 + EVERY.index(scheme))
    for _ in range(8):
        plan, scenario, gain, *at = random_lte_case(rng, scheme)
        slots = gain.shape[1]
        cells = rng.integers(0, 3, (plan.clients, slots))
        stays = rng.random(plan.clients) < 0.5
        cells[stays] = cells[stays][:, np.arange(slots) // 10 * 10]
        given = TwoWay(np.stack(both_ways(gain)), cells=cells)
        assert_equal_to_reference((plan, scenario, given, *at))


@pytest.mark.full
@pytest.mark.parametrize("scheme", EVERY, ids=lambda scheme: scheme.name)
def test_agrees_with_the_reference_in_many_rounds(scheme):
    rng = np.random.default_rng(7000 + EVERY.index(scheme))
    for _ in range(150):
        assert_equal_to_reference(random_lte_case(rng, scheme))


@pytest.mark.parametrize("scheme", quick(7, EVERY_COMBINATION))
def test_agrees_with_the_reference_whatever_goes_wrong(scheme):
    rng = np.random.default_rng(5000 + EVERY.index(scheme))
    for _ in range(12):
        case = random_lte_case(rng, scheme)
        assert_equal_to_reference(case, random_faults(rng, case[0].clients, *case[3:]))


@pytest.mark.parametrize("scheme", quick(7, EVERY_ORDER))
def test_agrees_over_a_radio_that_grants_what_is_sent(scheme):
    rng = np.random.default_rng(9000 + EVERY.index(scheme))
    for n in range(8):
        case, tcp = over_radio(rng, random_lte_case(rng, scheme))
        wrong = random_faults(rng, case[0].clients, *case[3:]) if n % 3 == 0 else None
        assert_equal_to_reference(case, wrong, tcp)
        assert_equal_to_reference(case, wrong)


def test_agrees_on_measured_slot_edges():
    rng = np.random.default_rng(8)
    for scheme in EVERY_COMBINATION[::4]:
        case = random_lte_case(rng, scheme)
        slots, slot_s = case[2].shape[1], case[3]
        edges_s = np.arange(slots + 1) * slot_s + rng.uniform(0, 0.4 * slot_s, slots + 1)
        edges_s[0] = 0
        assert_equal_to_reference(case, slot_edges_s=edges_s)


@pytest.mark.parametrize("name", ["cpsfl", "pipesfl", "sfl-pp", "sfl-sp"])
def test_a_trace_may_end_before_the_round(name):
    rng = np.random.default_rng(6)
    for _ in range(10):
        plan, scenario, gain, slot_s, start_s = random_lte_case(rng, paradigm(name))
        radio = Lte.of(scenario)
        end = round(simulate(plan, radio, gain, slot_s, start_s).end_s / slot_s)
        for slots in range(max(1, end - 3), end + 3):
            assert_equal_to_reference((plan, scenario, gain[:, :slots], slot_s, start_s))


def test_cases_have_outages_and_uavs_that_reach_some_blocks_only():
    rng = np.random.default_rng(7)
    seen = set()
    for _ in range(40):
        plan, scenario, gain, *_ = random_lte_case(rng, paradigm("sfl-pp"))
        radio, shares = Lte.of(scenario), plan.allocation
        seen.add(("shared", radio.is_shared))
        seen.add(("both ways", isinstance(gain, TwoWay)))
        if not radio.is_shared:
            continue
        alone, two = (
            radio.link_rates(shares, gain, in_turns=False, active=active).uplink
            for active in (1, 2)
        )
        up = both_ways(gain)[0]
        seen.add(("outage", bool(((alone == 0) & (up > 0)).any())))
        seen.add(("power is the limit", bool(((alone == two) & (alone > 0)).any())))
    assert seen == {(what, is_so) for what, _ in seen for is_so in (False, True)}


@pytest.mark.parametrize("scheme", EVERY[::3], ids=lambda scheme: scheme.name)
def test_a_rounds_own_order_changes_nothing(scheme):
    case = random_lte_case(np.random.default_rng(5), scheme)
    plan, scenario, *rest = case
    times = simulate(plan, Lte.of(scenario), *rest)
    turns = service_order_of(times.spans, plan.clients, plan.iterations)
    again = simulate(plan, Lte.of(scenario), *rest, service_order=turns)
    assert (again.spans == times.spans).all()


@pytest.mark.parametrize("scheduler", ["equal", "shares"])
@pytest.mark.parametrize("name", ["cpsfl", "pipesfl", "sfl-pp", "sfl-sp"])
def test_batch_and_chain_are_single_rounds(name, scheduler):
    rng = np.random.default_rng(3)
    tree = {
        "uavs": {"tx_power_w": [1, 0.4, 0.1, 0.2]},
        "paradigm": name,
        "workload": {"local_iterations": 2},
        "radio": {"access": "lte", "lte": {"scheduler": scheduler}},
    }
    scenario = validate(tree, "test")
    radio, costs = Lte.of(scenario), split_costs(scenario, PAPER)
    gain = 10 ** (-rng.uniform(110, 140, (2, 4, 5000)) / 10)
    if name == "cpsfl":
        gain = gain[0]
    gain = gain if gain.ndim == 2 else TwoWay(gain)
    split, equal = np.array([1, 2, 3, 4, 2]), np.full((5, 4), 1 / 4)
    alpha = rng.dirichlet(np.ones(4) * 5, 5)
    beta = equal if scheduler == "equal" else rng.dirichlet(np.ones(4) * 5, 5)
    batch = simulate_batch(costs, radio, gain, 0.1, 1.7, split, alpha, beta, equal)
    chain = simulate_batch(costs, radio, gain, 0.1, 1.7, split, alpha, beta, equal, follow=True)
    start_s = 1.7
    for n in range(5):
        plan = plan_round(scenario, PAPER, Allocation(int(split[n]), alpha[n], beta[n], equal[n]))
        one = simulate(plan, radio, gain, 0.1, 1.7)
        assert batch.latency_s[n] == pytest.approx(one.latency_s, abs=1e-12)
        assert batch.energy_j[n] == pytest.approx(one.energy_j, abs=1e-12)
        one = simulate(plan, radio, gain, 0.1, start_s)
        assert chain.start_s[n] == pytest.approx(start_s)
        assert chain.latency_s[n] == pytest.approx(one.latency_s, abs=1e-9)
        assert chain.energy_j[n] == pytest.approx(one.energy_j, abs=1e-9)
        start_s = one.end_s
    with pytest.raises(TraceExhausted):
        simulate_batch(
            costs, radio, gain[:, :100], 0.1, 1.7, split, alpha, beta, equal, follow=True
        )
