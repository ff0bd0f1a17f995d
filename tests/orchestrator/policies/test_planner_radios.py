# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The planner and the best static allocation on every radio, with every protocol and load."""

from typing import Any

import numpy as np
import pytest
from packages import importable, write_package
from small_scenario import TREE

import orchestrator as tb
from ns3_scenarios.trace import ChannelTrace, RateTrace, Replay, Served, Sites, SlotTrace, TwoWay
from orchestrator.engine.plan import Allocation, plan_round
from orchestrator.engine.radio import of_gains, radio_access
from orchestrator.policies.planner import Outlook, candidates, forecast, planner, search
from orchestrator.policies.shares import decided_shares, lifted, whole_steps
from orchestrator.rounds.loop import Situation, predict
from orchestrator.rounds.simulation import SplitCosts, split_costs
from orchestrator.scenario.loading import validate, varied
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError

SLOTS = 4000
GAIN = ChannelTrace(np.repeat([[3e-11], [2e-12], [2e-13]], SLOTS, axis=1), 0.1)
NEAR = ChannelTrace(np.repeat([[1e-7], [3e-8], [1e-8]], SLOTS, axis=1), 0.1)
UP_BPS, DOWN_BPS = np.array([[8e6], [4e6], [1e6]]), np.array([[2e6], [3e6], [9e6]])
EVERY = np.ones((1, SLOTS))
RATES, CELL = (
    RateTrace(UP_BPS * EVERY, DOWN_BPS * EVERY, 0.1, downlink_is=kind) for kind in ("link", "cell")
)
LTE = {
    "radio.access": "lte",
    "radio.uplink_bandwidth_hz": 5e6,
    "radio.downlink_bandwidth_hz": 5e6,
}
SHARES = LTE | {"radio.lte.scheduler": "shares"}
IN_TURN = {"uploads.sharing": "sequential"}
GATE = {"uploads.adapters_wait_for_all": True}
AGGREGATED = {"workload.gradient_aggregation": 0.5, "paradigm": "sfl-sp"}
LOADS = {"workload.batch_size": [1, 2, 6], "workload.local_iterations": [3, 1, 2]}
GAP = "import math\n\ndef gap(snr, hz):\n    return hz * min(6.0, math.log2(1 + snr / 2))\n"


def small(**keys: Any) -> Scenario:
    tree = TREE | {"workload": TREE["workload"] | {"backward_ratio": 2}, "paradigm": "sfl-pp"}
    return varied(validate(tree, "test"), {"base_station.compute_flops": 4e12} | keys)


@pytest.fixture
def package(tmp_path, monkeypatch):
    write_package(tmp_path, "gaps", GAP, "[testbed.radios]\ngap = gaps:gap\n")
    with importable(tmp_path, "gaps", monkeypatch):
        yield


def objective(keys: dict[str, Any], trace: SlotTrace, policy: str, **more: Any) -> float:
    scenario = small(**keys, **{"allocation.policy": policy, "rounds": 1}, **more)
    return tb.predict(scenario, trace)[0].objective


@pytest.mark.parametrize(
    ("keys", "trace", "gained"),
    [
        ({}, GAIN, 0.05),
        (SHARES, GAIN, 0.1),
        (SHARES | {"paradigm": "cpsfl"}, GAIN, 0.1),
        (LTE, GAIN, 0.02),
        (LTE | {"paradigm": "pipesfl"}, GAIN, 0.0),
        ({"radio.access": "gap"}, GAIN, 0.05),
        ({"radio.access": "wifi"}, NEAR, 0.02),
        (IN_TURN, GAIN, 0.05),
        (IN_TURN | {"paradigm": "cpsfl"}, GAIN, 0.03),
        (GATE, GAIN, 0.04),
        (AGGREGATED, GAIN, 0.03),
        (LOADS, GAIN, 0.1),
        (LOADS | GATE, GAIN, 0.1),
        ({}, RATES, 0.01),
        ({}, CELL, 0.05),
        ({"paradigm": "pipesfl"}, RATES, 0.0),
    ],
)
def test_the_planner_beats_equal_shares_with_the_best_common_split(
    package, keys, trace, gained
) -> None:
    """On a channel that stays, its forecast is true; the engine predicts both."""
    equal = min(objective(keys, trace, "equal", **{"workload.split": u}) for u in range(1, 5))
    assert objective(keys, trace, "planner") <= (1 - gained) * equal * (1 + 1e-9)


@pytest.mark.parametrize("keys", [LTE | {"paradigm": "pipesfl"}, IN_TURN, SHARES])
def test_a_split_point_for_each_client_is_no_worse(keys) -> None:
    fast = keys | {"uavs.compute_flops": [0.2e12, 1e12, 2e13]}
    common, each = (objective(fast, GAIN, name) for name in ("planner", "per-client-planner"))
    assert each <= common * (1 + 1e-9)


@pytest.mark.parametrize(("keys", "trace"), [(SHARES, GAIN), ({}, CELL), (LOADS, GAIN)])
def test_the_best_static_allocation_is_found_on_the_given_trace(keys, trace) -> None:
    equal = min(objective(keys, trace, "equal", **{"workload.split": u}) for u in range(1, 5))
    assert objective(keys, trace, "static") < 0.97 * equal


# --- candidates ----------------------------------------------------------------------------------


def outlook(trace: SlotTrace = GAIN, **keys: Any) -> Outlook:
    scenario = small(**keys)
    costs = split_costs(scenario, profile_of(scenario))
    gain = forecast(scenario, trace.first(20), 2.0, 400)
    return Outlook(costs, radio_access(scenario, trace), gain, 1.0)


@pytest.mark.parametrize("keys", [{}, LOADS, SHARES, {"paradigm": "cpsfl"}])
def test_one_by_one_candidates_have_the_times_of_the_compiled_batch(keys) -> None:
    ahead, rng = outlook(**keys), np.random.default_rng(1)
    tried = candidates(
        [Allocation(tuple(rng.integers(1, 5, 3)), *lifted(rng.dirichlet([9] * 3, 3)))] * 5
    )
    assert ahead.is_compiled
    together, alone = ahead.play(tried), ahead._one_by_one(tried)
    for name in ("start_s", "latency_s", "energy_j", "objective", "finish_s"):
        np.testing.assert_array_equal(getattr(together, name), getattr(alone, name))


@pytest.mark.parametrize(
    ("keys", "per_client", "most"),
    [(IN_TURN, False, 150), (GATE, True, 470)],
)
def test_a_decision_plays_no_more_candidates_than_it_may(monkeypatch, keys, per_client, most):
    played = []
    alone = Outlook._one_by_one
    monkeypatch.setattr(
        Outlook, "_one_by_one", lambda self, t: played.append(len(t.split)) or alone(self, t)
    )
    search(outlook(**keys), [], np.random.default_rng(1), per_client=per_client)
    assert 50 < sum(played) <= most


def test_only_shares_with_an_effect_are_decided() -> None:
    """Those that radio or paradigm fix stay equal; blocks of an LTE cell are all used."""
    for keys, trace, decided in (
        ({}, GAIN, {"alpha", "beta", "rho"}),
        (SHARES, GAIN, {"alpha", "beta"}),
        (LTE, GAIN, {"alpha"}),
        (IN_TURN, GAIN, {"alpha", "beta", "rho"}),
        (IN_TURN | {"paradigm": "cpsfl"}, GAIN, {"alpha"}),
        ({}, RATES, {"alpha"}),
        ({}, CELL, {"alpha", "rho"}),
        ({"paradigm": "pipesfl"}, CELL, {"rho"}),
    ):
        ahead = outlook(trace, **keys)
        assert set(ahead.shares) == decided, keys
        found, _ = search(ahead, [], np.random.default_rng(1), generations=2)
        unequal = {n for n in ("alpha", "beta", "rho") if np.ptp(getattr(found, n)) > 1e-12}
        assert unequal <= decided
        blocks = 25 * found.beta
        if keys is SHARES:
            assert "beta" in unequal
            np.testing.assert_allclose(blocks, np.rint(blocks), atol=1e-9)
            assert blocks.sum() == pytest.approx(25)


@pytest.mark.parametrize("keys", [SHARES, LTE, {}])
def test_a_single_uav_has_everything(keys) -> None:
    alone = outlook(ChannelTrace(GAIN.gain[1:2], 0.1), **keys, **{"uavs.tx_power_w": [1.0]})
    found, objective = search(alone, [], np.random.default_rng(1), generations=2)
    whole = candidates([Allocation(u, *np.ones((3, 1))) for u in range(1, 5)])
    assert objective == pytest.approx(alone.play(whole).objective.min())
    assert found.beta == pytest.approx(1)


def test_shares_in_whole_steps() -> None:
    rng = np.random.default_rng(1)
    shares = lifted(rng.dirichlet([3] * 6, 50), 1 / 15)
    made = whole_steps(shares, 1 / 15)
    np.testing.assert_allclose(15 * made, np.rint(15 * made), atol=1e-9)
    np.testing.assert_allclose(made.sum(axis=1), 1)
    assert made.min() > 1 / 15 - 1e-9
    assert np.abs(made - shares).max() < 1 / 15
    np.testing.assert_allclose(whole_steps(made, 1 / 15), made, rtol=1e-12)


# --- the costs -----------------------------------------------------------------------------------

MODEL = {
    "workload.profile": "auto",
    "workload.model": "swin_nano_patch4_window4_64",
    "workload.classes": 10,
}


def same(one: Any, other: Any) -> None:
    for name, value in vars(other).items():
        if name != "allocation":
            np.testing.assert_array_equal(getattr(one, name), value, err_msg=name)


@pytest.mark.parametrize(
    "keys", [LOADS, GATE, IN_TURN, AGGREGATED, MODEL | {"workload.lora_rank": [1, 4, 2]}]
)
def test_costs_make_the_plan_of_any_allocation(keys) -> None:
    scenario, rng = small(**keys), np.random.default_rng(1)
    profile = profile_of(scenario)
    costs = split_costs(scenario, profile)
    splits = (2,) if keys is AGGREGATED else (2, (1, 3, 4))
    for split in splits:
        allocation = Allocation(split, *lifted(rng.dirichlet([9] * 3, 3)))
        same(costs.plan(allocation), plan_round(scenario, profile, allocation))


def test_costs_of_some_clients_are_those_of_a_round_of_these() -> None:
    """Aggregated gradients are divided among them, and their scheduled order is kept."""

    def costs(clients: tuple[int, ...], **keys: Any) -> tuple[SplitCosts, Any]:
        scenario = small(**keys)
        profile, third = profile_of(scenario), np.full(3, 1 / 3)
        whole = plan_round(scenario, profile, Allocation(2, third, third, third).among(clients))
        return split_costs(scenario, profile, clients=clients), whole

    half = np.full(2, 0.5)
    some, whole = costs((3, 1), **IN_TURN, **{"workload.batch_size": [1, 2, 6]})
    plan = some.plan(Allocation(2, half, half, half))
    assert plan.allocation.clients == (2, 1)
    assert (plan.clients, plan.iterations) == (2, 2)
    np.testing.assert_array_equal(plan.cf_s, whole.cf_s[[0, 2]])
    np.testing.assert_allclose(plan.s_s, whole.s_s[[0, 2]], rtol=1e-12)
    some, whole = costs((1, 2), **AGGREGATED)
    np.testing.assert_array_equal(some.plan(Allocation(2, half, half, half)).s_s, whole.s_s[:2])
    some, _ = costs((2, 3), **{"workload.local_iterations": [5, 1, 2]})
    assert some.common.iterations == 2
    assert some.iterations_of.tolist() == [1, 2]


@pytest.mark.parametrize("keys", [IN_TURN | {"uploads.order": "scheduled"}, SHARES, LOADS])
def test_the_planner_plans_for_the_clients_of_the_round(keys) -> None:
    """Its own prediction is what the engine then plays with the others absent."""
    scenario, seen = small(**keys, **{"participation.clients": 2, "rounds": 2}), []
    decide = planner(scenario, generations=2)

    def decided(now: Situation) -> Allocation:
        seen.append((now.clients, decide(now)))
        return seen[-1][1]

    rounds = predict(scenario, Replay(GAIN), profile_of(scenario), decide=decided)
    assert [len(clients) for clients, _ in seen] == [2, 2]
    for (clients, made), round_ in zip(seen, rounds, strict=True):
        at = np.array(sorted(clients)) - 1
        costs = split_costs(scenario, profile_of(scenario), clients=clients)
        ahead = Outlook(costs, of_gains(scenario).of_clients(at), GAIN.gain[at], GAIN.slot_s)
        alone = Allocation(made.split, made.alpha[at], made.beta[at], made.rho[at])
        assert ahead.play(candidates([alone])).objective[0] == pytest.approx(round_.objective)


# --- the forecast, and what is refused -----------------------------------------------------------


def test_the_forecast_keeps_rates_and_cells() -> None:
    moving = np.zeros((3, SLOTS, 3))
    moving[..., 0] = 100 + np.arange(SLOTS)
    rates = RateTrace(UP_BPS * EVERY, DOWN_BPS * EVERY, 0.1, position_m=moving)
    made = forecast(small(), rates.first(30), 3.0, 5)
    np.testing.assert_array_equal(made.values, np.stack([UP_BPS, DOWN_BPS]) * np.ones((1, 1, 5)))
    cells = np.repeat([[0, 0, 1], [1, 1, 1], [0, 2, 2]], 10, axis=1)
    gain = np.stack([GAIN.gain[:, :30]] * 2)
    sites = Sites(np.ones((2, 3, 3, 30)), np.zeros(3), np.ones((3, 30)))
    known = ChannelTrace(GAIN.gain[:, :30], 0.1, served=Served(gain, cells, sites))
    made = forecast(small(**LTE), known, 3.0, 4)
    assert isinstance(made, TwoWay)
    np.testing.assert_array_equal(made.cells, np.repeat([[1], [1], [2]], 4, axis=1))


def test_aggregated_gradients_need_a_common_split() -> None:
    with pytest.raises(InputError, match=r"allocation\.policy: must not be 'per-client-planner'"):
        small(**AGGREGATED, **{"allocation.policy": "per-client-planner"})
    empty = {"workload.profile.smashed_bytes": [0, 200000, 100000, 50000]}
    small(**AGGREGATED, **empty)
    with pytest.raises(InputError, match=r"profile\.smashed_bytes: must not be 0"):
        small(**AGGREGATED, **empty, **{"allocation.policy": "planner"})


def test_a_policy_may_not_give_shares_without_effect() -> None:
    assert decided_shares(small(**LTE).scheme, of_gains(small(**LTE))) == ("alpha",)
    with pytest.raises(InputError, match=r"allocation\.beta: must be 'equal' where the UAVs"):
        tb.predict(small(**LTE, **{"allocation.beta": [0.2, 0.3, 0.5]}), GAIN)
