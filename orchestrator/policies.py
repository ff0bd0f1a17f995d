"""Who decides a round's allocation: every policy is a function from a `Situation` to it."""

from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import numpy as np
import pandas as pd

from ns3_scenarios.trace import ChannelSource
from orchestrator.plan import Allocation, fixed_allocation
from orchestrator.planner import planner
from orchestrator.predict import Decide, Situation, predict
from orchestrator.profiles import profile_of
from orchestrator.scenario import Scenario
from testbed.errors import InputError

POLICIES = ("fixed", "equal", "static", "planner", "agent")
"""`fixed`: the scenario's shares; `equal`: 1/K; `static`: the best allocation that never changes;
`planner`: searched before each round; `agent`: a trained one. Split points: the scenario's for the
first two, else decided."""


def policy(scenario: Scenario, name: str, agent: Path | None = None) -> Decide:
    """The policy of that name.

    Args:
        scenario: What it decides for.
        name: One of `POLICIES`.
        agent: Where a trained agent is: `agent.pt` or the folder that holds it.

    Raises:
        InputError: No such policy, or no such agent.
    """
    if name in {"fixed", "equal"}:
        unchanging = fixed_allocation(scenario)
        if name == "equal":
            equal = np.full(scenario.uavs.count, 1 / scenario.uavs.count)
            unchanging = Allocation(scenario.workload.split, equal, equal, equal)
        return always(unchanging)
    if name == "static":
        from orchestrator.static import best_static

        return always(best_static(scenario))
    if name == "planner":
        return planner(scenario)
    if name == "agent":
        from orchestrator.agent import agent_policy  # torch takes seconds to import

        if agent is None:
            raise InputError("allocation.agent: is missing; the policy 'agent' needs a trained one")
        return agent_policy(scenario, agent)
    raise InputError(f"allocation.policy: must be one of {', '.join(POLICIES)}, not {name!r}")


def decider(scenario: Scenario) -> Decide | None:
    """The scenario's own policy; None where its split and shares simply stand in it.

    Raises:
        InputError: No such agent.
    """
    section = scenario.allocation
    if section.policy in {"fixed", "equal"}:
        return None
    return policy(scenario, section.policy, None if section.agent is None else Path(section.agent))


def always(allocation: Allocation) -> Decide:
    """A policy that never changes its mind."""

    def decide(now: Situation) -> Allocation:
        return allocation

    return decide


class Timed:
    """A policy that remembers how long it took to decide."""

    def __init__(self, decide: Decide):
        self.decide = decide
        self.seconds: list[float] = []

    def __call__(self, now: Situation) -> Allocation:
        """Decide."""
        began = perf_counter()
        allocation = self.decide(now)
        self.seconds.append(perf_counter() - began)
        return allocation


def evaluate(
    scenario: Scenario,
    source: ChannelSource,
    decide: Decide,
    *,
    rounds: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> pd.DataFrame:
    """Predict rounds under a policy.

    Args:
        scenario: What happens in a round.
        source: Channels.
        decide: The policy.
        rounds: How many; left out: the scenario's.
        progress: Called after each round with the number of rounds done.

    Returns:
        One row a round: round, paradigm, split, start_s, latency_s, max_energy_j, objective,
        decision_s.

    Raises:
        InputError: The source's UAVs are not the scenario's, or its trace is too short.
    """
    timed = Timed(decide)
    timeline = predict(
        scenario, source, profile_of(scenario), rounds=rounds, decide=timed, progress=progress
    )
    return timeline.summary().assign(decision_s=timed.seconds)
