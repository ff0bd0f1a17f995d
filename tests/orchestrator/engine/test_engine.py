# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The engine against a second implementation, hand-solved rounds, and laws."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest
from engine_cases import (
    CONTENTION,
    EVERY,
    EVERY_COMBINATION,
    EVERY_ORDER,
    MB,
    assert_equal_to_reference,
    by_hand,
    random_case,
)

from ns3_scenarios.trace import TraceExhausted
from orchestrator.engine.fdma import ShannonFdma
from orchestrator.engine.plan import Allocation, fixed_allocation, plan_round
from orchestrator.rounds.simulation import (
    round_of,
    round_of_spans,
    service_order_of,
    simulate,
    simulate_batch,
    split_costs,
)
from orchestrator.scenario.loading import validate
from testbed.core.paradigm import BUILT_IN, paradigm
from testbed.core.timeline import CA, CB, CF, CM, SG, SPAN, STEPS, Loss, S
from workloads.costs.profile import PAPER


@pytest.mark.parametrize("scheme", BUILT_IN, ids=lambda scheme: scheme.name)
def test_agrees_with_the_reference(scheme):
    rng = np.random.default_rng(BUILT_IN.index(scheme))
    for _ in range(250):
        assert_equal_to_reference(random_case(rng, scheme))


@pytest.mark.parametrize("scheme", EVERY_COMBINATION, ids=lambda scheme: scheme.name)
def test_agrees_for_every_combination_of_fields(scheme):
    rng = np.random.default_rng(1000 + EVERY_COMBINATION.index(scheme))
    for _ in range(40):
        assert_equal_to_reference(random_case(rng, scheme))


@pytest.mark.parametrize("scheme", EVERY_ORDER, ids=lambda scheme: scheme.name)
def test_agrees_for_every_other_service_order(scheme):
    rng = np.random.default_rng(3000 + EVERY_ORDER.index(scheme))
    for _ in range(40):
        assert_equal_to_reference(random_case(rng, scheme))


def test_agrees_on_measured_slot_edges():
    rng = np.random.default_rng(7)
    for _ in range(100):
        case = random_case(rng, paradigm("cpsfl"))
        gain, slot_s = case[2], case[3]
        late = rng.uniform(0, 0.4 * slot_s, gain.shape[1] + 1)
        late[0] = 0
        assert_equal_to_reference(case, slot_edges_s=np.arange(len(late)) * slot_s + late)


# --- hand-solved ---------------------------------------------------------------------------------
#
# Bandwidths of 1 MHz a client and N0 = 1e-6 W/Hz, so that a client of 1 W has an SNR of 1 at gain 1
# and its uplink 1 Mb/s = 125 kB/s; at gain 3, 2 Mb/s. The base station of 3 K W has an SNR of 3 at
# gain 1, so the whole downlink carries 2 K Mb/s, and a share 1/K of band and power 2 Mb/s.


def starts_and_ends(times, step, iteration=1):
    return [
        (start, end)
        for _, i, s, start, end, _ in times.spans.tolist()
        if STEPS[s] == step and i == iteration
    ]


def near(pairs):
    return [pytest.approx(pair, abs=1e-9) for pair in pairs]


@pytest.mark.parametrize(
    ("name", "gradients"),
    [
        # Client 1 is alone at 0.7. When it is done, at 1.7, client 3 has the larger lag.
        ("cpsfl", [(0.7, 1.7), (2.7, 3.7), (1.7, 2.7)]),
        ("cpsfl-no-ps", [(0.7, 1.7), (1.7, 2.7), (2.7, 3.7)]),
        # All wait for the last one computed, at 1.1.
        ("cpsfl-no-at", [(3.1, 4.1), (2.1, 3.1), (1.1, 2.1)]),
        ("sfl-ps", [(1.1, 2.1), (2.1, 3.1), (3.1, 4.1)]),
        ("sfl-pp", [(0.7, 3.7), (0.9, 3.9), (1.1, 4.1)]),
    ],
)
def test_hand_solved_gradients(name, gradients):
    plan, radio = by_hand(name, **CONTENTION)
    times = simulate(plan, radio, np.ones((3, 100)), 0.1)
    assert starts_and_ends(times, "SG") == near(gradients)
    # Backward 0.2, nothing more to send: the round ends 0.2 after the last gradient.
    assert times.latency_s == pytest.approx(max(end for _, end in gradients) + 0.2)
    # Energy: 10 W for 0.1 + 0.2 s of computing, and 1 W while the smashed data are sent.
    assert times.energy_j == pytest.approx([3.5, 3.7, 3.8])
    assert times.objective == pytest.approx(times.latency_s + 4 * 3.8)


@pytest.mark.parametrize(
    ("name", "computing", "gradients"),
    [
        # Smashed data in at 0.6, 0.8, 0.9. Client 1 is alone; at 1.0 lags of 2 and 3 are
        # 0.3 + CA + 3 s of gradient: 3 goes first.
        ("pipesfl", [(0.6, 1.0), (1.4, 1.8), (1.0, 1.4)], [(1.0, 4.0), (1.8, 4.8), (1.4, 4.4)]),
        (
            "pipesfl-no-ps",
            [(0.6, 1.0), (1.0, 1.4), (1.4, 1.8)],
            [(1.0, 4.0), (1.4, 4.4), (1.8, 4.8)],
        ),
        # All wait for the last smashed data, at 0.9.
        (
            "pipesfl-no-at",
            [(1.7, 2.1), (1.3, 1.7), (0.9, 1.3)],
            [(2.1, 5.1), (1.7, 4.7), (1.3, 4.3)],
        ),
        # And here also for the last gradient computed, at 2.1.
        (
            "sfl-sp",
            [(0.9, 1.3), (1.3, 1.7), (1.7, 2.1)],
            [(2.1, 5.1), (2.1, 5.1), (2.1, 5.1)],
        ),
    ],
)
def test_hand_solved_computing(name, computing, gradients):
    plan, radio = by_hand(name, **(CONTENTION | {"s": [0.4, 0.4, 0.4]}))
    times = simulate(plan, radio, np.ones((3, 100)), 0.1)
    assert starts_and_ends(times, "S") == near(computing)
    assert starts_and_ends(times, "SG") == near(gradients)


def test_hand_solved_round_of_two_iterations():
    # Two clients; SM 1 Mb over 4 Mb/s: 0.25. CF 0.1: 0.35. CA 0.5 and 0.4: 0.85 and 0.75.
    # S 0.3 and 0.5: 1.15 and 1.25. SG 4 Mb: 1 s each: 1.15-2.15 and 2.15-3.15.
    # Client 1: CB 2.35, CF 2.45, CA 2.95, S 3.25; client 2: CB 3.35, CF 3.45, CA 3.85, S 4.35.
    # SG 3.25-4.25 and 4.35-5.35; CB 4.45 and 5.55; CM 0.1 Mb: 4.55 and 5.65.
    plan, radio = by_hand(
        "cpsfl", [0.1, 0.1], [0.5, 0.4], [0.3, 0.5], [4, 4], sm=1, cm=0.1, iterations=2
    )
    times = simulate(plan, radio, np.ones((2, 100)), 0.1, start_s=0.0)
    assert starts_and_ends(times, "SM") == near([(0, 0.25), (0, 0.25)])
    assert starts_and_ends(times, "SG", 1) == near([(1.15, 2.15), (2.15, 3.15)])
    assert starts_and_ends(times, "SG", 2) == near([(3.25, 4.25), (4.35, 5.35)])
    assert starts_and_ends(times, "CM", 2) == near([(4.45, 4.55), (5.55, 5.65)])
    assert times.latency_s == pytest.approx(5.65)
    # 10 W for twice 0.3 s; 1 W for twice CA and once CM.
    assert times.energy_j == pytest.approx([6 + 1.1, 6 + 0.9])
    # The same round later, from within a slot: everything is shifted.
    later = simulate(plan, radio, np.ones((2, 100)), 0.1, start_s=1.23)
    assert later.spans["end_s"] == pytest.approx(times.spans["end_s"] + 1.23)


def test_all_begin_when_the_slowest_has_the_broadcast():
    # The whole downlink of 2 MHz at gains 1 and 7/3: SNR 3 and 7, 4 and 6 Mb/s; 12 Mb: 3 and 2 s.
    plan, radio = by_hand("cpsfl", [0.1, 0.1], [1, 1], [0, 0], [4, 4], sm=12)
    times = simulate(plan, radio, np.repeat([[1.0], [7 / 3]], 100, axis=1), 0.1)
    assert starts_and_ends(times, "SM") == near([(0, 3), (0, 2)])
    assert starts_and_ends(times, "CF") == near([(3, 3.1), (3, 3.1)])


def test_transfer_is_the_integral_of_the_slots_and_waits_out_an_outage():
    # 1 s slots at 1, 0, 0, 2, 1 Mb/s. From 0.5, 2 Mb: 0.5 in slot 0, 1.5 of 2 in slot 3: to 3.75.
    plan, radio = by_hand("sfl-pp", [0.5], [2], [0], [0])
    gain = np.array([[1.0, 0.0, 0.0, 3.0, 1.0, 1.0]])
    assert starts_and_ends(simulate(plan, radio, gain, 1.0), "CA") == near([(0.5, 3.75)])
    # A transfer that starts on an edge belongs to the new slot; one that fills its slot ends there.
    plan, radio = by_hand("sfl-pp", [3.0], [2], [0], [0])
    assert starts_and_ends(simulate(plan, radio, gain, 1.0), "CA") == near([(3, 4)])
    plan, radio = by_hand("sfl-pp", [0.0], [1], [0], [0])
    assert starts_and_ends(simulate(plan, radio, gain, 1.0), "CA") == near([(0, 1)])
    # The rates change when they really did: 0.2 s late. 0.7 in slot 0, 1.3 of 2 from 3.2.
    plan, radio = by_hand("sfl-pp", [0.5], [2], [0], [0])
    edges = np.arange(7) + np.array([0, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2])
    times = simulate(plan, radio, gain, 1.0, slot_edges_s=edges)
    assert starts_and_ends(times, "CA") == near([(0.5, 3.85)])


def test_first_lag_of_pipesfl_estimates_the_gradient_from_the_slot_of_arrival():
    # Client 1 computes 0.1-1.1; 2 and 3 arrive at 0.5 and 0.6, in slots of 0.5 s: both in slot 1.
    # Gains 1 and 3 there; 3 has sent 0.6 Mb at gain 1 and 3. Estimates for 6 Mb at SNR 3 and 9:
    # 3 s and 6/log2(10) = 1.81 s. Lags 0 + 0.5 + 3 and 0 + 0.6 + 1.81: client 2 first, although in
    # later slots its gradient would take 6/log2(1 + 3 * 100) = 0.73 s.
    plan, radio = by_hand("pipesfl", [0, 0, 0], [0.1, 0.5, 0.6], [1, 1, 1], [6, 6, 6], ratio=0)
    gain = np.ones((3, 100))
    gain[2, 1:] = 3
    gain[1, 2:] = 100
    times = simulate(plan, radio, gain, 0.5)
    assert starts_and_ends(times, "S")[1:] == near([(1.1, 2.1), (2.1, 3.1)])
    # A gradient that cannot be sent in the slot of arrival has an infinite lag: client 3 first.
    gain[2, 1] = 0
    plan.ca_bytes[2, 0] = round(0.5 * MB)  # in at the edge 0.5, which is slot 1's
    times = simulate(plan, radio, gain, 0.5)
    assert starts_and_ends(times, "S")[1:] == near([(2.1, 3.1), (1.1, 2.1)])


def test_ties_go_by_arrival_then_client():
    # Equal lags of 0.5: client 2 is computed at 0.3, 1 and 3 at 0.5 while 2 is being sent.
    plan, radio = by_hand("cpsfl", [0.4, 0.1, 0.4], [0, 0, 0], [0.1, 0.2, 0.1], [6, 6, 6], ratio=0)
    plan.s_s[1] = 0.2
    times = simulate(plan, radio, np.ones((3, 100)), 0.1)
    assert starts_and_ends(times, "SG") == near([(1.3, 2.3), (0.3, 1.3), (2.3, 3.3)])


def test_a_moment_is_a_nanosecond_not_a_float():
    # Both are computed at 0.3, but 0.2 + 0.1 > 0.15 + 0.15 in floats. Client 2 has the larger lag,
    # 0.3 + 2 * 0.2 against 0.3 + 2 * 0.15, so it goes first.
    assert 0.2 + 0.1 > 0.15 + 0.15
    plan, radio = by_hand("cpsfl", [0.15, 0.2], [0, 0], [0.15, 0.1], [4, 4])
    times = simulate(plan, radio, np.ones((2, 100)), 0.1)
    assert starts_and_ends(times, "SG") == near([(1.3, 2.3), (0.3, 1.3)])


def test_rounding_cannot_pick_a_wrong_slot():
    # Slot n carries n + 1 Mb/s; a broadcast of 8 bits that starts on edge n must feel that rate.
    slots = 3000
    plan, radio = by_hand("cpsfl", [0], [0], [0], [0])
    plan.sm_bytes[:] = 1
    gain = (2.0 ** np.linspace(1, 60, slots) - 1)[None, :] / 3
    rates = np.linspace(1, 60, slots) * 1e6
    summed = np.cumsum(np.full(slots, 0.1)) - 0.1  # drifts off the edges by some 1e-11
    for n in range(1, slots):
        for start_s in (n * 0.1, n / 10, summed[n], np.nextafter(n * 0.1, 0)):
            (start, end) = starts_and_ends(simulate(plan, radio, gain, 0.1, start_s), "SM")[0]
            assert end - start == pytest.approx(8 / rates[n], abs=1e-12 * (1 + start_s))


def test_an_edge_belongs_to_the_new_slot_whatever_its_last_bit():
    # Smashed data of clients 2 and 3 are in at 0.3 and 0.299. The edge 3 * 0.1 is one bit above
    # 0.3, yet 2 has arrived in slot 3, where its gradient would take 3 s as 3's would: so lags are
    # 0.3 and 0.299 and 2 goes first. In slot 2 it would have been estimated to take no time.
    assert 3 * 0.1 > 0.3
    plan, radio = by_hand("pipesfl", [0.1, 0.3, 0.299], [0] * 3, [1] * 3, [6] * 3, ratio=0)
    gain = np.ones((3, 100))
    gain[1, 2] = 1e200
    times = simulate(plan, radio, gain, 0.1)
    assert starts_and_ends(times, "S")[1:] == near([(1.1, 2.1), (2.1, 3.1)])


def test_a_transfer_that_fills_its_slots_does_not_wait_out_the_outage_after_them():
    for slots in range(1, 300):
        plan, radio = by_hand("sfl-pp", [0], [slots / 10], [0], [0])
        gain = np.ones((1, 1000))
        gain[0, slots:900] = 0
        assert starts_and_ends(simulate(plan, radio, gain, 0.1), "CA") == near([(0, slots / 10)])


def test_rates_keep_their_digits_at_a_vanishing_snr():
    # SNR 1e-13: log2(1 + x) is x / ln 2, which 1 + x in floats would miss by a tenth of a percent.
    plan, radio = by_hand("sfl-pp", [0], [0], [0], [0])
    plan.ca_bytes[0, 0] = 1
    times = simulate(plan, radio, np.full((1, 10), 1e-13), 1e12)
    assert times.latency_s == pytest.approx(8 / (1e6 * 1e-13 / math.log(2)), rel=1e-12, abs=0.21)


def test_trace_exhausted_says_how_many_slots_there_were():
    plan, radio = by_hand("cpsfl", [0.0], [2], [0], [0])
    # 2 Mb at 1 Mb/s take exactly 20 slots of 0.1 s; nothing is left to do after them.
    assert simulate(plan, radio, np.ones((1, 20)), 0.1).latency_s == pytest.approx(2.2)
    for slots in (1, 19):
        with pytest.raises(TraceExhausted) as end:
            simulate(plan, radio, np.ones((1, slots)), 0.1)
        assert end.value.available == slots
    with pytest.raises(TraceExhausted):
        simulate(plan, radio, np.ones((1, 20)), 0.1, start_s=5.0)


# --- laws ----------------------------------------------------------------------------------------


def test_more_bandwidth_never_makes_sfl_pp_slower():
    rng = np.random.default_rng(11)
    for _ in range(200):
        plan, radio, gain, slot_s, start_s = random_case(rng, paradigm("sfl-pp"))
        gain = np.maximum(gain, 1e-11)
        wider = ShannonFdma(
            radio.uplink_hz * rng.uniform(1, 3),
            radio.downlink_hz * rng.uniform(1, 3),
            radio.noise_w_per_hz,
            radio.downlink_power_w,
            radio.uplink_power_w,
        )
        try:
            narrow = simulate(plan, radio, gain, slot_s, start_s).latency_s
        except TraceExhausted:
            continue
        assert simulate(plan, wider, gain, slot_s, start_s).latency_s <= narrow + 1e-9


@pytest.mark.parametrize("scheme", EVERY, ids=lambda scheme: scheme.name)
def test_a_sequential_station_serves_one_at_a_time_and_never_idles_without_cause(scheme):
    rng = np.random.default_rng(12)
    for _ in range(20):
        try:
            times = simulate(*random_case(rng, scheme))
        except TraceExhausted:
            continue
        for sharing, step, before, gated in (
            (scheme.server_compute, "S", "CA", scheme.compute_waits_for_all),
            (scheme.gradient_transmission, "SG", "S", scheme.transmission_waits_for_all),
        ):
            spans = times.spans[times.spans["step"] == STEPS.index(step)]
            came = times.spans[times.spans["step"] == STEPS.index(before)]["end_s"]
            if sharing == "parallel" and not gated:
                assert spans["start_s"] == pytest.approx(came, abs=1e-9)
            if sharing == "sequential":
                order = np.argsort(spans["start_s"], kind="stable")
                starts, ends = spans["start_s"][order], spans["end_s"][order]
                assert (starts[1:] >= ends[:-1] - 1e-9).all()
                if not gated:
                    free = np.concatenate(([0.0], ends[:-1]))
                    first_waiting = [
                        came[order][n:].min() for n in range(len(order))
                    ]  # among those not yet served
                    assert starts == pytest.approx(np.maximum(free, first_waiting), abs=1e-8)


# --- many rounds ---------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", EVERY, ids=lambda p: p.name)
def test_a_rounds_own_order_changes_nothing(scheme):
    plan, radio, gain, slot_s, start_s = random_case(np.random.default_rng(5), scheme)
    times = simulate(plan, radio, gain, slot_s, start_s)
    turns = service_order_of(times.spans, plan.clients, plan.iterations)
    again = simulate(plan, radio, gain, slot_s, start_s, service_order=turns)
    assert (again.spans == times.spans).all()


def test_a_station_waits_for_whose_turn_it_is():
    """Clients 1 and 2 are ready first; told to serve client 3 first, the downlink stands still."""
    plan, radio = by_hand("cpsfl", **CONTENTION)
    turns = np.array([[[0], [1], [2]], [[1], [2], [0]]])
    turns.flags.writeable = False
    times = simulate(plan, radio, np.ones((3, 100)), 0.1, service_order=turns)
    assert starts_and_ends(times, "SG") == near([(2.1, 3.1), (3.1, 4.1), (1.1, 2.1)])
    assert (service_order_of(times.spans, 3, 1)[1] == turns[1]).all()


def paper_like(**workload):
    return validate(
        {
            "uavs": {"tx_power_w": [1, 0.4, 0.1, 0.2]},
            "paradigm": workload.pop("paradigm", "cpsfl"),
            "workload": workload,
        },
        "test",
    )


@pytest.mark.parametrize("name", ["cpsfl", "pipesfl", "sfl-pp", "sfl-sp"])
def test_batch_and_chain_are_single_rounds(name):
    rng = np.random.default_rng(3)
    scenario = paper_like(paradigm=name, local_iterations=2)
    gain = 10 ** (-rng.uniform(85, 103, (4, 3000)) / 10)
    radio, costs = ShannonFdma.of(scenario), split_costs(scenario, PAPER)
    split = np.array([1, 2, 3, 4, 2])
    alpha, beta, rho = (rng.dirichlet(np.ones(4) * 5, 5) for _ in range(3))
    rounds = (0.1, 1.7, split, alpha, beta, rho)
    batch = simulate_batch(costs, radio, gain, *rounds)
    chain = simulate_batch(costs, radio, gain, *rounds, follow=True)
    start_s = 1.7
    for n in range(5):
        allocation = Allocation(int(split[n]), alpha[n], beta[n], rho[n])
        plan = plan_round(scenario, PAPER, allocation)
        one = simulate(plan, radio, gain, 0.1, 1.7)
        assert batch.start_s[n] == 1.7
        assert batch.latency_s[n] == pytest.approx(one.latency_s, abs=1e-12)
        assert batch.energy_j[n] == pytest.approx(one.energy_j, abs=1e-12)
        assert batch.objective[n] == pytest.approx(one.objective, abs=1e-12)
        one = simulate(plan, radio, gain, 0.1, start_s)
        assert chain.start_s[n] == pytest.approx(start_s)
        assert chain.latency_s[n] == pytest.approx(one.latency_s, abs=1e-9)
        assert chain.energy_j[n] == pytest.approx(one.energy_j, abs=1e-9)
        start_s = one.end_s
    with pytest.raises(TraceExhausted) as end:
        simulate_batch(costs, radio, gain[:, :100], *rounds, follow=True)
    assert end.value.available == 100


def test_rates_are_the_papers():
    # Eqs. (rate_uplink), (rate_downlink_broadcast), (rate_downlink), written out for one client of
    # four at 550 m: 97.541 dB, N0 = -114 dBm/MHz.
    scenario = paper_like(paradigm="sfl-pp", local_iterations=1)
    gain = np.full((4, 2000), 10**-9.7541)
    times = simulate(
        plan_round(scenario, PAPER, fixed_allocation(scenario)), ShannonFdma.of(scenario), gain, 0.1
    )
    noise = 10 ** (-114 / 10) * 1e-3 * 1e-6
    share = 20e6 / 4
    up = share * math.log2(1 + 1 * 10**-9.7541 / (share * noise))
    broadcast = 20e6 * math.log2(1 + 40 * 10**-9.7541 / (20e6 * noise))
    down = share * math.log2(1 + 10 * 10**-9.7541 / (share * noise))
    took = {STEPS[s]: end - start for _, _, s, start, end, _ in times.spans[:7].tolist()}
    assert took["SM"] == pytest.approx(612 * 8192 / broadcast)
    assert took["CA"] == pytest.approx(8 * 1176 * 8192 / up)
    assert took["SG"] == pytest.approx(8 * 1176 * 8192 / down)
    assert took["CM"] == pytest.approx(612 * 8192 / up)
    assert took["CF"] == pytest.approx(8 * 12.5e9 / 2.5e12)
    assert took["S"] == pytest.approx(4 * 8 * 3 * 57.78e9 / 195e12)


def test_round_of_a_timeline():
    plan, radio = by_hand("cpsfl", [0.1], [1], [0.1], [1])
    entry = round_of(3, plan, simulate(plan, radio, np.ones((1, 100)), 0.1, 0.4)).to_json()
    assert (entry["round"], entry["paradigm"], entry["split"]) == (3, "cpsfl", 1)
    assert entry["start_s"] == 0.4
    assert [step["step"] for step in entry["steps"]] == list(STEPS)
    assert [step["bytes"] for step in entry["steps"]] == [0, 0, MB, 0, MB, 0, 0]


def test_a_round_of_spans_from_elsewhere_has_their_energy_and_their_order():
    rng = np.random.default_rng(3)
    plan, radio, *_ = random_case(rng, paradigm("cpsfl"))
    steps = [CF, CA, S, SG, CB, CM]
    spans = np.zeros(2 * len(steps), SPAN)
    spans["client"], spans["step"] = [2] * len(steps) + [1] * len(steps), 2 * steps
    spans["start_s"] = np.arange(len(spans), 0.0, -1)
    spans["end_s"] = spans["start_s"] + [1, 2, 4, 8, 16, 32] * 2
    found = round_of_spans(5, plan, radio, 0.25, spans)
    due = np.full(plan.clients, 17 * plan.compute_power_w) + 34 * radio.uplink_power_w
    due[2:] = 0  # They are in no span.
    np.testing.assert_allclose(found.energy_j, due)
    assert (found.index, found.paradigm, found.split) == (5, "cpsfl", plan.allocation.split)
    assert (found.start_s, found.latency_s) == (0.25, 39 - 0.25)
    assert found.objective == pytest.approx(found.latency_s + plan.energy_weight * due.max())
    np.testing.assert_array_equal(found.spans, spans[::-1])
    late = Loss(1, 99.0, 98.0, "uav-crash")
    lost = round_of_spans(5, plan, radio, 0.25, spans, (late,))
    assert (lost.latency_s, lost.lost) == (98.75, (late,))


def test_a_missing_compiler_is_one_line_that_says_how_to_get_it(tmp_path):
    (tmp_path / "s.yaml").write_text("uavs: {tx_power_w: [1]}\n")
    np.savez(tmp_path / "t.npz", gain=np.full((1, 5000), 1e-9), slot_s=0.1)
    words = ["predict", "s.yaml", "--trace", "t.npz", "--rounds", "1", "--json", "out.json"]
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", *words],
        env=os.environ | {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stderr.splitlines()[-1]
    assert last.startswith("testbed: ")
    assert last.endswith(": the engine cannot be built: g++ is missing: apt-get install g++")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out.json").exists()
