# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Policies by name, and their evaluation."""

from pathlib import Path

import numpy as np
import pytest

from ns3_scenarios.trace import ChannelTrace, Replay
from orchestrator import api
from orchestrator.engine.plan import Allocation
from orchestrator.policies.registry import always, checked, evaluate, policy
from orchestrator.policies.static import best_static
from orchestrator.rounds.loop import Situation, predict
from orchestrator.scenario.channel import ns3_source, replay
from orchestrator.scenario.loading import load
from testbed.core.errors import InputError, RunError
from workloads.costs.profile import PAPER

PAPER_FILE = Path(__file__).parents[3] / "scenarios" / "paper.yaml"
SCENARIO = load(PAPER_FILE, ["workload.local_iterations=5"])


@pytest.fixture(scope="module")
def trace():
    with ns3_source(SCENARIO) as source:
        return source.trace(4000)


def test_equal_shares_and_fixed_ones(trace):
    shares = [0.2] * 4 + [0.2 / 6] * 6
    scenario = load(PAPER_FILE, [f"allocation.beta={shares}", "workload.split=3"])
    start = Situation(0, 0.0, [], [], trace)
    fixed, equal = (policy(scenario, name)(start) for name in ("fixed", "equal"))
    np.testing.assert_allclose(fixed.beta, shares)
    np.testing.assert_allclose(equal.beta, 0.1)
    assert fixed.split == equal.split == 3


def test_evaluation_is_the_prediction_with_decision_times(trace):
    rows = evaluate(SCENARIO, Replay(trace), policy(SCENARIO, "equal"), rounds=3)
    timeline = predict(SCENARIO, Replay(trace), PAPER, rounds=3)
    assert rows["objective"].tolist() == [round_.objective for round_ in timeline]
    assert rows["start_s"].tolist() == [round_.start_s for round_ in timeline]
    assert (rows["decision_s"] >= 0).all()


def test_policies_rank_as_they_should(trace):
    """On the same rounds: the planner below the best static one, that below equal shares."""
    means = {
        name: evaluate(SCENARIO, Replay(trace), policy(SCENARIO, name), rounds=8)[
            "objective"
        ].mean()
        for name in ("equal", "static", "planner")
    }
    assert means["planner"] < means["static"] - 0.3
    assert means["static"] < 0.87 * means["equal"]


def test_the_best_static_decision_is_optimised_on_the_trace_that_rounds_use():
    """The given gains favour other shares than the scenario's own channel, and change in time."""
    near = np.full(10, 1e-9)
    near[[0, 4]] = 3e-12
    swing = 1 + 0.5 * np.sin(np.arange(4000) / 40)
    given = ChannelTrace(near[:, None] * swing, 1.0)
    scenario = load(PAPER_FILE, ["rounds=2", "uavs.compute_flops=1e14"])

    def latency_s(name, *overrides):
        changed = load(PAPER_FILE, ["rounds=2", "uavs.compute_flops=1e14", *overrides])
        source = replay(changed, given)
        return evaluate(changed, source, policy(changed, name, source=source))["objective"].mean()

    found = latency_s("static")
    assert found < 0.8 * min(latency_s("equal", f"workload.split={u}") for u in (1, 2, 3, 4))
    own = always(best_static(scenario, rounds=4, generations=4))
    assert found < 0.8 * evaluate(scenario, Replay(given), own)["objective"].mean()
    timeline = api.predict(scenario, given, "static")
    assert np.mean([round_.objective for round_ in timeline]) == found


def test_the_best_static_decision_needs_a_trace_of_its_uavs():
    bps = np.full((10, 100), 1e7)
    with pytest.raises(InputError, match="trace: gain has 9 rows, one per UAV"):
        api.predict(SCENARIO, ChannelTrace(bps[:9] / 1e17, 1.0), "static")


def test_unknown_policies_and_missing_agents_are_refused():
    with pytest.raises(InputError, match=r"allocation\.policy: 'best' is not one of fixed, equal"):
        policy(SCENARIO, "best")
    with pytest.raises(InputError, match=r"allocation\.agent: is missing"):
        policy(SCENARIO, "agent")
    with pytest.raises(InputError, match="no such agent"):
        policy(SCENARIO, "agent", Path("nowhere"))


def test_an_unchanging_policy_is_asked_every_round(trace):
    allocation = policy(SCENARIO, "fixed")(Situation(0, 0.0, [], [], trace))
    assert always(allocation)(Situation(5, 9.0, [], [], trace)) is allocation


EQUAL = np.full(10, 0.1)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (
            Allocation(np.array([2, 3]), EQUAL, EQUAL, EQUAL),
            "split must have one entry per UAV: 10",
        ),
        (Allocation(np.full(500, 2), EQUAL, EQUAL, EQUAL), "split must have one entry per UAV: 10"),
        (Allocation([2, 3], EQUAL, EQUAL, EQUAL), "split must have one entry per UAV: 10"),
        (
            Allocation(np.array([]), EQUAL, EQUAL, EQUAL),
            "split must have one entry per UAV: 10, not 0",
        ),
        (Allocation(np.full(10, 2.5), EQUAL, EQUAL, EQUAL), "split must be 1 to 4, not 2.5"),
        (Allocation(np.arange(10), EQUAL, EQUAL, EQUAL), "split must be 1 to 4, not (0, 1, 2, 3"),
        (Allocation(np.array(2.0), EQUAL, EQUAL, EQUAL), "split must be 1 to 4, not (2.0,)"),
        (Allocation(2.0, EQUAL, EQUAL, EQUAL), "split must be 1 to 4, not 2.0"),
        (Allocation(None, EQUAL, EQUAL, EQUAL), "split must be 1 to 4, not None"),
        (Allocation("2", EQUAL, EQUAL, EQUAL), "split must be 1 to 4, not '2'"),
        (Allocation(5, EQUAL, EQUAL, EQUAL), "split must be 1 to 4, not 5"),
        (Allocation(2, "much", EQUAL, EQUAL), "alpha must be 10 positive shares"),
        (Allocation(2, EQUAL, [[1], [1, 2]], EQUAL), "beta must be 10 positive shares"),
        (Allocation(2, EQUAL, EQUAL, EQUAL[:9]), "rho must be 10 positive shares"),
        (Allocation(2, EQUAL, EQUAL, EQUAL * np.nan), "rho must be 10 positive shares"),
        (np.zeros((99, 99)), "must return an Allocation, not array"),
        (Allocation(True, EQUAL, EQUAL, EQUAL), "split must be 1 to 4, not True"),
        (
            Allocation(2, EQUAL, EQUAL, EQUAL, (99,)),
            "clients must be one or more UAVs of 1 to 10, each once, not (99,)",
        ),
        (
            Allocation(2, EQUAL, EQUAL, EQUAL, "ab"),
            "clients must be one or more UAVs of 1 to 10, each once, not 'ab'",
        ),
    ],
)
def test_what_a_plugin_decides_is_refused_in_one_line(answer, says):
    decide = checked(SCENARIO, "mine", lambda now: answer)
    with pytest.raises(RunError) as error:
        decide(Situation(0, 0.0, [], [], None))
    line = str(error.value)
    assert line.startswith(f"allocation.policy 'mine', round 0: {says}")
    assert "\n" not in line
    assert len(line) < 200


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (SystemExit(0), "SystemExit: 0"),
        (ZeroDivisionError("two\nlines"), "ZeroDivisionError: two lines"),
    ],
)
def test_a_plugin_that_fails_ends_the_run_in_one_line_whatever_it_raises(error, says):
    def decide(now):
        raise error

    with pytest.raises(RunError) as told:
        checked(SCENARIO, "mine", decide)(Situation(0, 0.0, [], [], None))
    line = decide.__code__.co_firstlineno + 1
    place = f"({__file__}, line {line})"
    assert str(told.value) == f"allocation.policy 'mine', round 0: {says} {place}"


def test_numpys_integers_and_lists_are_fine():
    given = Allocation(np.int64(2), EQUAL.tolist(), EQUAL, EQUAL)
    decide = checked(SCENARIO, "mine", lambda now: given)
    assert decide(Situation(0, 0.0, [], [], None)) is given
