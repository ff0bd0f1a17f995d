# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Policies by name; a policy is a function from a `Situation` to an allocation."""

from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from ns3_scenarios.trace import ChannelSource, GivenTrace
from orchestrator.engine.plan import Allocation, Array, fixed_allocation, split_of
from orchestrator.policies.decisions import DecisionCheck, shown
from orchestrator.policies.planner import planner
from orchestrator.rounds.loop import Decide, Situation, predict
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError, RunError
from testbed.core.registry import POLICIES, failures

if TYPE_CHECKING:
    import pandas as pd


def policy(
    scenario: Scenario,
    name: str,
    agent: Path | None = None,
    source: ChannelSource | None = None,
) -> Decide:
    """The policy with a name.

    Args:
        scenario: The scenario for which the policy decides.
        name: `fixed`: the scenario's shares; `equal`: 1/K; `static`: the best constant allocation;
            `planner`: a search before each round; `per-client-planner`: the same with a split point
            per client; `agent`: a trained agent; or the name of a plug-in. `fixed` and `equal` use
            the scenario's split points, the others decide them.
        agent: Path of a trained agent's `agent.pt` or of its folder.
        source: The channel of the rounds. `static` is optimised on it if it replays a given trace,
            otherwise on other flights of the scenario's own channel.

    Raises:
        InputError: There is no such policy or agent, or a plug-in refuses its parameters.
    """
    if agent is not None:
        section = scenario.allocation.model_copy(update={"agent": str(agent)})
        scenario = scenario.model_copy(update={"allocation": section})
    if scenario.topology is not None:
        own = [
            _policy(there, name, source, members)
            for there, members in zip(scenario.at_edges, scenario.members, strict=True)
        ]
        return lambda now: own[now.edge - 1](now)
    return _policy(scenario, name, source)


def _policy(
    scenario: Scenario,
    name: str,
    source: ChannelSource | None,
    members: Sequence[int] | None = None,
) -> Decide:
    """The policy of one base station, with the UAVs `members` or with all."""
    if name == "static":
        return static(scenario, source, members)
    if name in POLICIES.built_in:
        decide: Decide = POLICIES.make(name, {}, scenario)
        return decide
    return checked(scenario, name, POLICIES.make(name, scenario.allocation.parameters, scenario))


def fixed(scenario: Scenario) -> Decide:
    """The policy that takes the scenario's own split and shares."""
    return always(fixed_allocation(scenario))


def equal(scenario: Scenario) -> Decide:
    """The policy that takes the scenario's own split, and the share 1/K for each UAV."""
    shares = np.full(scenario.uavs.count, 1 / scenario.uavs.count)
    return always(Allocation(split_of(scenario), shares, shares, shares))


def static(
    scenario: Scenario,
    source: ChannelSource | None = None,
    members: Sequence[int] | None = None,
) -> Decide:
    """The policy of the best allocation that never changes; see `policy`.

    Args:
        scenario: The scenario.
        source: The channel of the rounds.
        members: UAVs that share the resources, from 1. None: all.
    """
    from orchestrator.policies.static import best_on, best_static

    if isinstance(source, GivenTrace):
        return always(best_on(scenario, source.whole, members))
    return always(best_static(scenario, members))


def per_client_planner(scenario: Scenario) -> Decide:
    """The planner that also chooses a split point for each client."""
    return planner(scenario, per_client=True)


def trained(scenario: Scenario) -> Decide:
    """The policy of the agent that the scenario names.

    Raises:
        InputError: The scenario names no agent.
    """
    from orchestrator.policies.agent import agent_policy  # torch takes seconds to import

    if scenario.allocation.agent is None:
        raise InputError("allocation.agent: is missing; the policy 'agent' needs a trained one")
    return agent_policy(scenario, Path(scenario.allocation.agent))


def decider(scenario: Scenario, source: ChannelSource) -> Decide | None:
    """The scenario's policy; None if its split and shares are fixed in the scenario.

    Args:
        scenario: The scenario.
        source: The channel of the rounds; see `policy`.

    Raises:
        InputError: See `policy`.
    """
    section = scenario.allocation
    if not section.kind.decides:
        return None
    return policy(scenario, section.policy, source=source)


def checked(scenario: Scenario, name: str, decide: Decide) -> Decide:
    """Wrap a plug-in's policy and check its decisions.

    Raises (when it decides):
        RunError: The plug-in failed, or its decision is not a valid allocation.
    """

    splits, check = profile_of(scenario).splits, DecisionCheck(scenario)

    def decided(now: Situation) -> Allocation:
        where = f"allocation.policy {name!r}, round {now.index}"
        with failures(where):
            allocation = decide(now)
        if not isinstance(allocation, Allocation):
            raise RunError(f"{where}: must return an Allocation, not {shown(allocation)}")
        split: object = allocation.split  # may have any type
        points = split if isinstance(split, tuple) else (split,)
        if not all(_is_split(u, splits) for u in points):
            raise RunError(f"{where}: split must be 1 to {splits}, not {shown(split)}")
        if len(points) not in (1, scenario.uavs.count):
            raise RunError(
                f"{where}: split must have one entry per UAV: {scenario.uavs.count}, "
                f"not {len(points)}"
            )
        if len(points) > 1 and scenario.workload.server_adapters == "shared":
            raise RunError(f"{where}: split must be one number where server_adapters is 'shared'")
        if len(points) > 1 and scenario.scheme.gradient_aggregation:
            raise RunError(f"{where}: split must be one number where gradients are aggregated")
        for share in ("alpha", "beta", "rho"):
            if not _is_shares(getattr(allocation, share), scenario.uavs.count):
                raise RunError(
                    f"{where}: {share} must be {scenario.uavs.count} positive shares that sum to 1"
                )
        return check(allocation, where, now.clients)

    return decided


def _is_split(given: Any, splits: int) -> bool:
    is_whole = isinstance(given, (int, np.integer)) and not isinstance(given, bool)
    return is_whole and 1 <= given <= splits


def _is_shares(given: object, count: int) -> bool:
    """Whether `given` is an array of `count` positive numbers that sum to 1."""
    try:
        value = np.asarray(given, float)
    except (TypeError, ValueError):
        return False
    return value.shape == (count,) and bool((value > 0).all()) and abs(value.sum() - 1) <= 1e-6


def always(allocation: Allocation) -> Decide:
    """A policy that always returns the same allocation."""

    def decide(now: Situation) -> Allocation:
        return allocation

    return decide


class Timed:
    """A policy that measures how long its decisions take."""

    def __init__(self, decide: Decide):
        self.decide = decide
        self.seconds: list[float] = []

    def __call__(self, now: Situation) -> Allocation:
        """Decide."""
        began_ns = perf_counter_ns()
        allocation = self.decide(now)
        self.seconds.append((perf_counter_ns() - began_ns) / 1e9)
        return allocation

    def by_round(self, scenario: Scenario, rounds: int) -> Array:
        """Seconds of the first rounds, in each of which every edge server decides for itself."""
        each = len(scenario.members) * scenario.edge_rounds
        return np.asarray(np.reshape(self.seconds[: rounds * each], (rounds, each)).sum(axis=1))


def evaluate(
    scenario: Scenario,
    source: ChannelSource,
    decide: Decide,
    *,
    rounds: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> "pd.DataFrame":
    """Predict rounds under a policy.

    Args:
        scenario: The scenario.
        source: The channel.
        decide: The policy.
        rounds: Number of rounds (default: the scenario's).
        progress: Called after each round with the number of finished rounds.

    Returns:
        One row per round: round, paradigm, split, start_s, latency_s, max_energy_j, objective,
        decision_s.

    Raises:
        InputError: The source does not have the scenario's UAVs, or its trace is too short.
    """
    timed = Timed(decide)
    timeline = predict(
        scenario, source, profile_of(scenario), rounds=rounds, decide=timed, progress=progress
    )
    return timeline.summary().assign(decision_s=timed.by_round(scenario, len(timeline)))
