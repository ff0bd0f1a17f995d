# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The planner, the best static allocation, and the bound that neither may undercut."""

from pathlib import Path

import numpy as np
import pytest

from ns3_scenarios.rma_av import los_path_loss_db
from ns3_scenarios.trace import ChannelTrace, Replay
from orchestrator.analytical.lower_bound import lower_bound
from orchestrator.engine.fdma import ShannonFdma
from orchestrator.engine.plan import Allocation
from orchestrator.policies.planner import (
    FORECAST_SLOT_S,
    Outlook,
    balanced,
    candidates,
    forecast,
    planner,
    search,
)
from orchestrator.policies.registry import evaluate, policy
from orchestrator.policies.shares import least_share, lifted, scaled
from orchestrator.policies.static import best_static
from orchestrator.rounds.simulation import simulate_batch, split_costs
from orchestrator.scenario.channel import ns3_source
from orchestrator.scenario.loading import load, validate
from testbed.core.errors import InputError
from testbed.core.paradigm import BUILT_IN
from workloads.costs.profile import PAPER

PAPER_FILE = Path(__file__).parents[3] / "scenarios" / "paper.yaml"
EQUAL = np.full(10, 0.1)


def paper(*overrides):
    return load(PAPER_FILE, ["workload.local_iterations=5", *overrides])


@pytest.fixture(scope="module")
def trace():
    with ns3_source(paper()) as source:
        return source.trace(6000)


def flying(velocity, slots=11, start=(300.0, 0.0), gain=None):
    """One UAV that flies straight, and the gain that RMa-AV gives it."""
    time_s = 0.1 * np.arange(slots)[:, None]
    ground = np.array(start) + time_s * np.array(velocity)
    position = np.column_stack([ground, np.full(slots, 20.0)])[None]
    if gain is None:
        gain = rma_av_gain(position)
    return ChannelTrace(gain, 0.1, position)


def rma_av_gain(position):
    distance = np.linalg.norm(position - [0, 0, 30], axis=-1)
    return 10 ** (-los_path_loss_db(20.0, distance, 2e9) / 10)


ONE_UAV = {"uavs": {"tx_power_w": [1.0], "rings_m": [[100, 550]]}}


# --- shares --------------------------------------------------------------------------------------


def test_scaling_is_the_papers():
    shares = np.array([0.7, 0.25, 0.04, 0.01])
    least = 1 / 20
    expected = (1 - 4 * least) / (1 - 4 * 0.01) * (shares - 0.01) + least
    np.testing.assert_allclose(scaled(shares), expected, rtol=1e-14)
    assert scaled(shares).sum() == pytest.approx(1, abs=1e-12)
    assert scaled(shares).min() == pytest.approx(least, abs=1e-15)


def test_scaling_leaves_what_respects_the_least_share():
    shares = np.array([[0.4, 0.3, 0.25, 0.05], [0.25] * 4])
    np.testing.assert_array_equal(scaled(shares), shares)


def test_lifted_shares_sum_to_one_and_respect_the_least():
    rng = np.random.default_rng(1)
    shares = lifted(rng.exponential(size=(100, 7)))
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-12)
    assert shares.min() >= least_share(7)
    np.testing.assert_allclose(lifted(shares), shares, rtol=1e-6)


# --- the forecast --------------------------------------------------------------------------------


def test_forecast_flies_on_as_the_uav_just_flew():
    known = flying((3.0, 1.0))
    made = forecast(validate(ONE_UAV, "test"), known, 1.0, 40)
    times_s = 1.0 + FORECAST_SLOT_S * (np.arange(40) + 0.5)
    position = np.column_stack([300 + 3 * times_s, times_s, np.full(40, 20.0)])
    np.testing.assert_allclose(made[0], rma_av_gain(position), rtol=1e-9)


def test_forecast_counts_from_the_rounds_start():
    known = flying((4.0, 0.0))  # its last slot starts at 1.0 s
    early, late = (forecast(validate(ONE_UAV, "test"), known, t, 3)[0] for t in (1.0, 1.09))
    position = np.array([[300 + 4 * (1.09 + 0.5), 0.0, 20.0]])
    assert late[0] == pytest.approx(rma_av_gain(position)[0], rel=1e-9)
    assert (late < early).all()


def test_forecast_turns_back_at_the_rings_edge():
    known = flying((4.0, 0.0), start=(500.0, 0.0))
    made = forecast(validate(ONE_UAV, "test"), known, 1.0, 40)[0]
    assert made.argmin() == pytest.approx((550 - 504) / 4, abs=1)
    assert made[30] > 1.001 * made.min()
    assert made.min() >= rma_av_gain(np.array([[550.0, 0.0, 20.0]]))[0] * (1 - 1e-9)


def test_forecast_keeps_what_the_path_loss_does_not_explain():
    known = flying((3.0, 0.0))
    faded = ChannelTrace(known.gain * 0.1, 0.1, known.position_m)
    scenario = validate(ONE_UAV, "test")
    np.testing.assert_allclose(
        forecast(scenario, faded, 1.0, 9), 0.1 * forecast(scenario, known, 1.0, 9), rtol=1e-12
    )


def test_forecast_without_positions_holds_the_last_gain():
    scenario = validate({"uavs": {"tx_power_w": [1.0, 1.0]}}, "test")
    gain = np.array([[1e-9, 2e-9, 3e-9], [4e-9, 5e-9, 0.0]])
    made = forecast(scenario, ChannelTrace(gain, 0.1), 0.25, 4)
    np.testing.assert_array_equal(made, [[3e-9] * 4, [5e-9] * 4])  # an outage is taken for over


# --- the search ----------------------------------------------------------------------------------


def outlook(scenario, trace, start=0, slots=200):
    """The true round, on coarse slots."""
    gain = trace.gain[:, start : start + 10 * slots].reshape(-1, slots, 10).mean(axis=2)
    return Outlook(split_costs(scenario, PAPER), ShannonFdma.of(scenario), gain, 1.0)


def test_search_beats_the_best_known_static_objective(trace):
    """Equal shares cost 122; what an earlier, longer search found in this round was 101.8."""
    ahead = outlook(paper(), trace)
    allocation, objective = search(ahead, [], np.random.default_rng(1))
    assert objective < 102.3
    assert allocation.split == 2
    for shares in (allocation.alpha, allocation.beta):
        assert shares.sum() == pytest.approx(1, abs=1e-9)
        assert shares.min() >= 0.02 - 1e-12
    again = ahead.play(candidates([allocation]))
    assert again.objective[0] == objective


def test_balancing_is_where_ends_and_energies_are_level(trace):
    """Where nobody waits, it comes to rest with everyone at one of the two bounds."""
    ahead = outlook(paper("paradigm=sfl-pp"), trace, slots=400)
    made = candidates([Allocation(2, EQUAL, EQUAL, EQUAL)])
    times = ahead.play(made)
    largest_j = 0.9 * times.energy_j.max()
    for _ in range(40):
        made = balanced(ahead, made, times, np.full(1, largest_j))
        times = ahead.play(made)
    at_energy = times.energy_j[0] > 0.99 * largest_j
    at_end = times.finish_s[0] > 0.99 * times.latency_s[0]
    assert at_energy.any()
    assert at_end.any()
    assert (at_energy | at_end).all()
    assert times.energy_j[0].max() < 1.01 * largest_j


def test_search_keeps_a_warm_start_that_is_best(trace):
    ahead = outlook(paper(), trace)
    good, objective = search(ahead, [], np.random.default_rng(2), generations=20)
    _, kept = search(ahead, [good], np.random.default_rng(3), generations=0)
    assert kept == objective


def test_search_takes_only_the_splits_it_may(trace):
    allocation, _ = search(
        outlook(paper(), trace), [], np.random.default_rng(1), splits=(1, 3), generations=2
    )
    assert allocation.split == 1


MIXED = "uavs.compute_flops=[0.5e12,1e12,2.5e12,5e12,1e13,0.5e12,1e12,2.5e12,5e12,1e13]"


def test_each_client_is_cut_where_it_computes_best(trace):
    """UAVs of 0.5 to 10 TFLOP/s: fast ones keep more of the model; on equal ones all cuts agree."""
    ahead = outlook(paper(MIXED), trace, slots=400)
    common, one = search(ahead, [], np.random.default_rng(1), generations=6)
    apart, each = search(ahead, [], np.random.default_rng(1), generations=6, per_client=True)
    assert isinstance(common.split, int)
    assert each < 0.9 * one
    assert apart.splits[[4, 9]].min() > apart.splits[[0, 5]].max()
    assert ahead.play(candidates([apart])).objective[0] == each
    kept, again = search(ahead, [apart], np.random.default_rng(2), generations=0, per_client=True)
    assert again == each
    assert kept.split == apart.split
    alike, _ = search(
        outlook(paper(), trace), [], np.random.default_rng(1), generations=3, per_client=True
    )
    assert alike.split == 2


def test_a_policy_cuts_each_client_for_itself(trace):
    scenario = paper(MIXED, "allocation.policy=per-client-planner")
    rows = evaluate(scenario, Replay(trace), policy(scenario, "per-client-planner"), rounds=1)
    assert len(rows["split"][0]) == 10
    with pytest.raises(InputError, match=r"allocation\.policy: must not be 'per-client-planner'"):
        paper("allocation.policy=per-client-planner", "workload.server_adapters=shared")


@pytest.mark.parametrize("name", [scheme.name for scheme in BUILT_IN])
def test_search_improves_every_paradigm(trace, name):
    ahead = outlook(paper(f"paradigm={name}"), trace, slots=400)
    _, objective = search(ahead, [], np.random.default_rng(1), generations=6)
    equal = ahead.play(candidates([Allocation(2, EQUAL, EQUAL, EQUAL)])).objective[0]
    assert objective < 0.95 * equal


def test_planner_depends_on_the_past_alone(trace):
    """A trace with another future gives the same first decisions."""
    scenario = paper()
    changed = trace.gain.copy()
    changed[:, 600:] *= 0.5
    runs = [
        evaluate(scenario, Replay(one), planner(scenario, generations=3), rounds=2)
        for one in (trace, ChannelTrace(changed, 0.1, trace.position_m))
    ]
    assert runs[0]["objective"].tolist() == runs[1]["objective"].tolist()


def test_planner_plans_without_positions_and_through_outages(trace):
    scenario = paper()
    gain = trace.gain.copy()
    gain[3, :5] = 0.0
    bare = ChannelTrace(gain, 0.1)
    rows = evaluate(scenario, Replay(bare), planner(scenario, generations=3), rounds=2)
    assert rows["objective"].max() < 110


def test_planner_gives_up_on_a_channel_without_hope():
    scenario = paper()
    flat = ChannelTrace(np.full((10, 10), 1e-30), 0.1)
    from orchestrator.rounds.loop import Situation

    made = planner(scenario)(Situation(0, 0.0, [], [], flat))
    np.testing.assert_array_equal(made.beta, EQUAL)


# --- best static, and the bound ------------------------------------------------------------------


def test_best_static_beats_equal_shares_on_a_trace_it_never_saw(trace):
    scenario = paper()
    static = best_static(scenario, rounds=8, generations=10)
    costs, radio = split_costs(scenario, PAPER), ShannonFdma.of(scenario)
    for start_s in (0.0, 300.0):
        found, equal = (
            simulate_batch(
                costs, radio, trace.gain, 0.1, start_s, np.array([a.split]),
                a.alpha[None], a.beta[None], a.rho[None],
            ).objective[0]
            for a in (static, Allocation(2, EQUAL, EQUAL, EQUAL))
        )  # fmt: skip
        assert found < 0.87 * equal


@pytest.mark.parametrize(
    ("name", "weight"),
    [("cpsfl", 4), ("pipesfl", 4), ("sfl-pp", 4), ("sfl-sp", 4), ("cpsfl", 0), ("cpsfl", 16)],
)
def test_no_allocation_is_below_the_bound(trace, name, weight):
    """Random allocations, and those that a search for the lowest finds."""
    scenario = paper(f"paradigm={name}", f"objective.energy_weight={weight}")
    costs, radio = split_costs(scenario, PAPER), ShannonFdma.of(scenario)
    rng = np.random.default_rng(5)
    ahead = outlook(scenario, trace, slots=400)
    found, _ = search(ahead, [], rng)
    tried = [found] + [
        Allocation(int(rng.integers(1, 5)), *(lifted(rng.dirichlet(np.full(10, 9.0), 3))))
        for _ in range(100)
    ]
    made = candidates(tried)
    objective = simulate_batch(
        costs, radio, trace.gain, 0.1, 0.0, made.split, made.alpha, made.beta, made.rho
    ).objective
    # Told of a worse objective, the bound cannot lean on the best one found.
    bound = lower_bound(costs, radio, trace.gain, 0.1, np.zeros(1), 1.1 * objective[:1])[0]
    assert bound < objective.min()
    assert bound > (0.9 if weight else 0.6) * objective[0]  # and it says something


@pytest.mark.parametrize("name", ["cpsfl", "pipesfl", "sfl-pp"])
def test_no_allocation_with_mixed_cuts_is_below_their_bound(trace, name):
    scenario = paper(f"paradigm={name}", MIXED)
    costs, radio = split_costs(scenario, PAPER), ShannonFdma.of(scenario)
    rng = np.random.default_rng(5)
    ahead = outlook(scenario, trace, slots=400)
    found, _ = search(ahead, [], rng, generations=6, per_client=True)
    tried = [found] + [
        Allocation(tuple(rng.integers(1, 5, 10)), *(lifted(rng.dirichlet(np.full(10, 9.0), 3))))
        for _ in range(100)
    ]
    made = candidates(tried)
    objective = simulate_batch(
        costs, radio, trace.gain, 0.1, 0.0, made.split, made.alpha, made.beta, made.rho
    ).objective
    reached = 1.1 * objective[:1]
    one, each = (
        lower_bound(costs, radio, trace.gain, 0.1, np.zeros(1), reached, per_client=mixed)[0]
        for mixed in (False, True)
    )
    assert 0.85 * objective[0] < each < objective.min()
    assert each < one, "more may be chosen"


def test_bound_is_reached_where_nothing_is_relaxed():
    """One UAV in a channel that stays: it waits for nobody, so the bound is the objective."""
    scenario = validate(ONE_UAV | {"workload": {"local_iterations": 3}}, "test")
    gain = np.full((1, 4000), 3e-10)
    costs, radio = split_costs(scenario, PAPER), ShannonFdma.of(scenario)
    whole = np.ones((4, 1))
    best = simulate_batch(
        costs, radio, gain, 0.1, 0.0, np.arange(1, 5), whole, whole, whole
    ).objective.min()
    bound = lower_bound(costs, radio, gain, 0.1, np.zeros(1), np.array([best]))
    assert bound[0] == pytest.approx(best, rel=1e-6)
    assert bound[0] <= best
