# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Closed forms against the engine, theorems against exhaustive search, all on random networks."""

import io
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from ns3_scenarios.trace import ChannelTrace, Replay
from orchestrator.analytical import claims
from orchestrator.analytical.closed_forms import (
    COUNTEREXAMPLE,
    best_iteration_s,
    best_order_s,
    best_sequence_s,
    constant_durations,
    cpsfl_lower_bound_s,
    durations_of,
    iteration_latency_s,
    lag_of,
    larger_lag_first,
    order_latency_s,
    pipeline,
    pipesfl_without_at_hat_s,
    pipesfl_without_at_s,
    sfl_pp_s,
    upper_bound_s,
    without_at_hat_s,
    without_at_s,
)
from orchestrator.engine.fdma import ShannonFdma
from orchestrator.engine.plan import Allocation, RoundPlan
from orchestrator.rounds.simulation import simulate
from orchestrator.scenario.loading import load
from testbed.core.errors import InputError
from testbed.core.paradigm import paradigm
from workloads.costs.profile import PAPER

SCENARIOS = Path(__file__).parents[3] / "scenarios"


def network(rng, *, equal_uavs=False, adapters=0):
    """A plan for any paradigm, its radio, and gains that stay."""
    clients, iterations = int(rng.integers(1, 7)), int(rng.integers(1, 5))
    shares = [rng.dirichlet(np.full(clients, 5)) for _ in range(3)]

    def steady(scale):
        column = rng.exponential(scale, 1 if equal_uavs else clients) * np.ones(clients)
        return np.repeat(column[:, None], iterations, axis=1)

    forward, ratio = steady(0.1), float(rng.uniform(0.5, 3))
    smashed = np.full((clients, iterations), int(rng.integers(1, 3_000_000)))
    plan = RoundPlan(
        paradigm=paradigm("cpsfl"),
        allocation=Allocation(1, *shares),
        cf_s=forward,
        cb_s=ratio * forward,
        s_s=steady(0.1),
        sm_bytes=np.full(clients, adapters),
        ca_bytes=smashed,
        sg_bytes=smashed,
        cm_bytes=np.full(clients, adapters),
        backward_ratio=ratio,
        compute_power_w=16,
        energy_weight=4,
    )
    radio = ShannonFdma(20e6, 20e6, 4e-21, 40.0, rng.uniform(0.1, 1, clients))
    return plan, radio, 10 ** (-rng.uniform(80, 104, clients) / 10)


def engine_s(name, plan, radio, gain):
    return simulate(replace(plan, paradigm=paradigm(name)), radio, gain[:, None], 1e9).latency_s


@pytest.fixture(scope="module")
def networks():
    rng = np.random.default_rng(5)
    return [network(rng) for _ in range(300)]


def test_closed_forms_are_the_engines_latencies(networks):
    for plan, radio, gain in networks:
        d = constant_durations(plan, radio, gain)
        assert engine_s("cpsfl-no-at", plan, radio, gain) == pytest.approx(without_at_s(d))
        one_server = replace(plan, s_s=np.full_like(plan.s_s, plan.s_s[0, 0]))
        for name, form in (("sfl-pp", sfl_pp_s), ("pipesfl-no-at", pipesfl_without_at_s)):
            other = replace(one_server, paradigm=paradigm(name))
            d = constant_durations(other, radio, gain)
            assert engine_s(name, one_server, radio, gain) == pytest.approx(form(d))


def test_bounds_hold_where_they_must(networks):
    for plan, radio, gain in networks:
        d = constant_durations(plan, radio, gain)
        assert without_at_hat_s(d) <= without_at_s(d) * (1 + 1e-12)
        pipe = constant_durations(replace(plan, paradigm=paradigm("pipesfl")), radio, gain)
        assert pipesfl_without_at_hat_s(pipe) <= pipesfl_without_at_s(pipe) * (1 + 1e-12)


def test_upper_bound_needs_no_constant_channel():
    rng = np.random.default_rng(6)
    for _ in range(200):
        plan, radio, gain = network(rng, adapters=int(rng.integers(0, 500_000)))
        trace = gain[:, None] * 10 ** rng.normal(0, 0.4, (plan.clients, 3000))
        for name in ("sfl-ps", "cpsfl-no-at", "cpsfl-no-ps", "cpsfl"):
            times = simulate(replace(plan, paradigm=paradigm(name)), radio, trace, 0.1)
            bound_s = upper_bound_s(durations_of(times, plan.clients))
            assert times.latency_s <= bound_s * (1 + 1e-12)


def test_upper_bound_is_reached_when_the_largest_lag_goes_last():
    # Two clients, lags 0.6 and 1.1: the vanilla order of arrival serves the larger lag last.
    d = COUNTEREXAMPLE
    ready = (d.cf_s + d.ca_s + d.s_s)[:, 0]
    # 1.0 until all are computed, 2 gradients of 1.0, then the longer backward of 1.1.
    assert upper_bound_s(d) == pytest.approx(ready.max() + 2.0 + 1.1) == pytest.approx(4.1)


def test_what_holds_for_equal_uavs_only():
    rng = np.random.default_rng(7)
    for _ in range(300):
        plan, radio, gain = network(rng, equal_uavs=True)
        d = constant_durations(plan, radio, gain)
        assert engine_s("sfl-ps", plan, radio, gain) >= without_at_s(d) * (1 - 1e-12)
        assert engine_s("cpsfl", plan, radio, gain) >= cpsfl_lower_bound_s(d) * (1 - 1e-12)


def test_hand_solved_forms():
    # Lags 1.0 and 2.1, gradients 1.0; larger lag first: max(1 + 2.1, 2 + 1.0) = 3.1.
    d = COUNTEREXAMPLE
    assert lag_of(d) == pytest.approx([1.0, 2.1])
    assert larger_lag_first(lag_of(d)).tolist() == [1, 0]
    assert iteration_latency_s(d.sg_s[:, 0], lag_of(d), np.array([1, 0])) == pytest.approx(3.1)
    assert iteration_latency_s(d.sg_s[:, 0], lag_of(d), np.array([0, 1])) == pytest.approx(4.1)
    # tau_2 for I = 1: all ready at 1.0, then max(1 + 1.1, 2 + 0.1).
    assert without_at_s(d) == pytest.approx(1.0 + 2.1)
    assert without_at_hat_s(d) == pytest.approx(3.1)
    # SFL-PP: max(0.9 + 1.0 + 0.1, 1.0 + 1.0 + 1.1). PipeSFL: lags 1.8 and 3.0 without S of 0.1.
    assert sfl_pp_s(d) == pytest.approx(3.1)
    assert pipesfl_without_at_s(d) == pytest.approx(0.9 + max(0.1 + 2.1, 0.2 + 1.1))
    # Smallest lag: client 1; 0.9 + two gradients + its backward of 0.1.
    assert cpsfl_lower_bound_s(d) == pytest.approx(3.0)


def test_cpsfl_can_be_slower_than_without_at():
    p = pipeline(COUNTEREXAMPLE)
    assert order_latency_s(p, larger_lag_first(p.lag_s)) == pytest.approx(4.0)
    assert without_at_s(COUNTEREXAMPLE) == pytest.approx(3.1)
    # The best is to leave the downlink idle for 0.1 s, which no order of priority does.
    assert best_order_s(p) == pytest.approx(4.0)
    assert best_sequence_s(p) == pytest.approx(3.1)


def test_first_come_can_beat_larger_lag_when_backwards_differ(networks):
    # Larger lag first is best between iterations, but the last one ends with CB, not with the lag.
    ratios = [
        engine_s("sfl-ps", *case) / without_at_s(constant_durations(*case)) for case in networks
    ]
    assert min(ratios) < 0.999


def test_theorem_1_over_all_orders():
    rng = np.random.default_rng(8)
    for clients in range(1, 8):
        for _ in range(20):
            sg, lag = rng.exponential(1, clients), rng.exponential(2, clients)
            greedy = iteration_latency_s(sg, lag, larger_lag_first(lag))
            assert greedy == pytest.approx(best_iteration_s(sg, lag), rel=1e-12)
            worst = iteration_latency_s(sg, lag, larger_lag_first(-lag))
            assert worst >= greedy


def test_priority_by_lag_is_the_engine(networks):
    for plan, radio, gain in networks:
        p = pipeline(constant_durations(plan, radio, gain))
        latency_s = order_latency_s(p, larger_lag_first(p.lag_s))
        assert latency_s == pytest.approx(engine_s("cpsfl", plan, radio, gain))


def sequences(left):
    if not any(left):
        yield ()
    for k in range(len(left)):
        if left[k]:
            fewer = [n - (j == k) for j, n in enumerate(left)]
            yield from ((k, *rest) for rest in sequences(fewer))


def test_search_finds_the_best_of_all_sequences():
    rng = np.random.default_rng(9)
    gaps = []
    for clients, iterations in ((2, 1), (2, 3), (3, 2), (4, 1), (3, 2), (2, 3)) * 3:
        lag = rng.uniform(0.5, 5, clients)
        sg = np.full(clients, 1.0)
        tail = lag * rng.uniform(0.1, 0.5, clients)
        d = replace(
            COUNTEREXAMPLE,
            **{
                name: np.repeat(value[:, None], iterations, axis=1)
                for name, value in {
                    "cf_s": (lag - tail) / 2,
                    "ca_s": (lag - tail) / 2,
                    "s_s": 0 * lag,
                    "sg_s": sg,
                    "cb_s": tail,
                }.items()
            },
        )
        p = pipeline(d)

        def latency(sequence, p=p):
            ready, free, end = p.ready_s.copy(), 0.0, 0.0
            for k in sequence:
                free = max(free, ready[k]) + p.sg_s[k]
                ready[k] = free + p.lag_s[k]
                end = max(end, free + p.tail_s[k])
            return end

        best = min(latency(sequence) for sequence in sequences([iterations] * clients))
        assert best_sequence_s(p) == pytest.approx(best)
        orders = [order_latency_s(p, np.array(o)) for o in permutations(range(clients))]
        assert best_order_s(p) == min(orders) >= best - 1e-12
        gaps.append(order_latency_s(p, larger_lag_first(p.lag_s)) / best - 1)
    assert max(gaps) > 0.01  # theorem 2 says: never


def test_claims_of_the_paper_scenario():
    scenario = load(SCENARIOS / "paper.yaml")
    gain = np.repeat(10 ** (-np.linspace(82, 103, 10) / 10)[:, None], 1000, axis=1)
    table = claims.run(scenario, Replay(ChannelTrace(gain, 0.1)), PAPER)
    frame = table.frame()
    exact = frame[(frame["relation"] == "=") & (frame["equation"] != "theorem 2")]
    assert set(exact["equation"]) == {"(15)", "(16)", "(21)", "(23)", "theorem 1"}
    assert exact["holds"].all()
    assert frame[frame["equation"].isin(["(13)", "(18)"])]["holds"].all()
    worst = frame[frame["claim"].str.contains("all schedules") & frame["note"].ne("")]
    assert len(worst) == 1
    assert not worst["holds"].any()
    console = Console(width=200, file=io.StringIO())
    console.print(table)
    text = console.file.getvalue()
    assert "CPSFL w/o AT = tau_2" in text
    assert "[1]" in text
    # One client, one iteration: forms with nothing between iterations, searches with one order.
    alone = load(SCENARIOS / "paper.yaml", ["uavs.tx_power_w=[1]", "workload.local_iterations=1"])
    table = claims.run(alone, Replay(ChannelTrace(gain[:1], 0.1)), PAPER)
    assert table.frame()["holds"].all()


@pytest.mark.parametrize(
    ("relation", "value_s", "holds"),
    [
        ("=", 1.01, False),
        ("=", 0.99, False),
        ("=", 1.0, True),
        ("<=", 1.01, False),
        ("<=", 0.99, True),
        (">=", 1.01, True),
        (">=", 0.99, False),
    ],
)
def test_a_claim_can_fail(relation, value_s, holds):
    assert claims.Row("x", "", "-", value_s, relation, 1.0).holds is holds


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        ("paradigm=sfl-sp workload.gradient_aggregation=0.5", "workload.gradient_aggregation: "),
        ("uploads.sharing=sequential", "uploads.sharing: "),
        (
            "topology={edges:[{uavs:[1,2,3]}],backhaul:{uplink_bps:1e6,downlink_bps:1e6}}",
            "topology: ",
        ),
    ],
)
def test_what_the_paper_does_not_have_is_refused(keys: str, names: str) -> None:
    tree = [each.replace(":", ": ").replace(",", ", ") for each in keys.split()]
    scenario = load(SCENARIOS / "quickstart.yaml", tree)
    source = Replay(ChannelTrace(np.full((3, 9), 1e-10), 0.1))
    with pytest.raises(InputError, match=f"^{names}must be .* for closed forms"):
        claims.run(scenario, source, PAPER)
