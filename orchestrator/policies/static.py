# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The best static allocation: optimised once, offline, and used for all rounds.

On a given trace it is optimised on rounds that start at evenly spaced times of the part that the
scenario's rounds need. Otherwise it is optimised on other data than it is evaluated on: rounds that
start at evenly spaced times of a long channel trace with another seed. The search is an evolution
strategy. It starts from the mean of the planner's choices for some of these rounds; each generation
adds noise to the best candidates and keeps those with the lowest mean objective over all rounds.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ns3_scenarios.trace import SlotTrace, SlotValues, TraceExhausted, each_way
from orchestrator.engine.flight import flight_cost
from orchestrator.engine.plan import Allocation, Array, fixed_allocation
from orchestrator.engine.radio import of_gains, radio_access
from orchestrator.policies.planner import (
    FORECAST_SLOT_S,
    LONGEST_FORECAST_SLOTS,
    Candidates,
    Outlook,
    candidates,
    for_all,
    joined,
    search,
    varied_shares,
    with_cells_of,
)
from orchestrator.policies.shares import lifted
from orchestrator.rounds.simulation import split_costs
from orchestrator.scenario.channel import ns3_source
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario

OTHER_SEED = 2**31 - 1
"""The search uses a trace with the seed `OTHER_SEED - scenario.seed % 2**30`."""
SPREAD_S = 300.0
"""Time between sampled rounds, s: long enough for independent positions of the UAVs."""
LEAST_SLOTS = 32
"""On a given trace, slots are merged while a round still has this number of them."""
PLANNED = 8
SIMULATED_ROUNDS, SIMULATED_GENERATIONS = 16, 6
"""Largest numbers of rounds and generations where rounds are played one by one, see `Outlook`:
2,000 rounds, for 6 s at 3 ms each."""
CHILDREN = 16
PARENTS = 4


def best_static(
    scenario: Scenario,
    members: Sequence[int] | None = None,
    *,
    rounds: int = 64,
    generations: int = 60,
) -> Allocation:
    """The allocation with the lowest mean objective over the sampled rounds.

    It depends on the channel's settings, not on the scenario's own trace.

    Args:
        scenario: The scenario.
        members: UAVs that share the resources, from 1. None: all.
        rounds: Number of rounds to optimise for.
        generations: Number of generations.
    """
    alone = scenario.model_copy(
        update={"seed": OTHER_SEED - scenario.seed % 2**30, "rounds": 1, "name": "static"}
    )
    own = None if members is None else tuple(members)
    return _best_static(alone.model_dump_json(), own, rounds, generations)


def best_on(
    scenario: Scenario,
    trace: SlotTrace,
    members: Sequence[int] | None = None,
    *,
    rounds: int = 64,
    generations: int = 60,
) -> Allocation:
    """The allocation with the lowest mean objective over rounds on a given trace.

    It is at least as good as equal shares with any common split. The rounds start at evenly spaced
    times; how much of the trace they cover follows from the scenario's number of rounds and the
    latency of the first one. A trace that is too short for a slow candidate is continued from its
    first slot.

    Args:
        scenario: The scenario.
        trace: The trace.
        members: UAVs that share the resources, from 1. None: all.
        rounds: Largest number of rounds to optimise for.
        generations: Number of generations.
    """
    at = _indices(scenario, members)
    radio = radio_access(scenario, trace).of_clients(at)
    costs = split_costs(scenario, profile_of(scenario), clients=members)
    equal = np.full(len(at), 1 / len(at))
    every = candidates([Allocation(u, equal, equal, equal) for u in range(1, costs.splits + 1)])

    def sampled(start_s: Array, fine: int, slots: int) -> list[Outlook]:
        return [
            Outlook(
                costs,
                radio,
                _merged(trace.values[:, (start + np.arange(slots * fine)) % trace.slots], fine)[at],
                fine * trace.slot_s,
                flight_cost(scenario, trace, 0.0),
            )
            for start in (start_s / trace.slot_s).astype(int).tolist()
        ]

    slots, fine = 128, 1
    while slots <= LONGEST_FORECAST_SLOTS:
        try:
            times = sampled(np.zeros(1), fine, slots)[0].play(every)
            latency_s = float(times.latency_s[np.argmin(times.objective)])
            # Slots are merged, to at most a second, where a round has many.
            fine = max(1, int(min(FORECAST_SLOT_S, latency_s / LEAST_SLOTS) / trace.slot_s))
            starts_s = np.linspace(
                0, scenario.rounds * latency_s, min(rounds, scenario.rounds), endpoint=False
            )
            outlooks = sampled(starts_s, fine, slots)
            rng = np.random.default_rng(scenario.seed)
            found = _evolved(outlooks, rng, generations, [every])
            return for_all(found, radio, members, scenario.uavs.count)
        except TraceExhausted:
            slots *= 2
    return fixed_allocation(scenario)  # With so bad a channel, no round ends.


@lru_cache(maxsize=32)
def _best_static(
    scenario_json: str, members: tuple[int, ...] | None, rounds: int, generations: int
) -> Allocation:
    scenario = Scenario.model_validate_json(scenario_json)
    rng = np.random.default_rng(scenario.seed)
    slots = 128
    while slots <= LONGEST_FORECAST_SLOTS:
        try:
            outlooks = _sampled(scenario, members, rounds, slots)
            found = _evolved(outlooks, rng, generations)
            return for_all(found, outlooks[0].radio, members, scenario.uavs.count)
        except TraceExhausted:
            slots *= 2
    return fixed_allocation(scenario)  # With so bad a channel, no round ends.


def _indices(scenario: Scenario, members: Sequence[int] | None) -> npt.NDArray[np.int64]:
    """Indices of some UAVs, from 0."""
    return np.array(sorted(members or range(1, scenario.uavs.count + 1))) - 1


def _sampled(
    scenario: Scenario, members: Sequence[int] | None, rounds: int, slots: int
) -> list[Outlook]:
    """Rounds on coarse slots, each on its own piece of one trace."""
    at = _indices(scenario, members)
    costs = split_costs(scenario, profile_of(scenario), clients=members)
    radio = of_gains(scenario).of_clients(at)
    fine = max(1, round(FORECAST_SLOT_S / scenario.slot_s))
    apart, length = round(SPREAD_S / scenario.slot_s), slots * fine
    with ns3_source(scenario) as source:
        trace = source.trace((rounds - 1) * apart + length)
    gain, cost = trace.values, flight_cost(scenario, trace, 0.0)
    starts = range(0, rounds * apart, apart)

    def piece(at: int) -> SlotValues:
        return _merged(gain[:, at : at + length], fine)

    slot_s = fine * scenario.slot_s
    return [Outlook(costs, radio, piece(start)[at], slot_s, cost) for start in starts]


def _merged(values: SlotValues, fine: int) -> SlotValues:
    """The means of `fine` slots each, and the cells in the first one."""

    def mean(way: Array) -> Array:
        return np.asarray(way.reshape(len(way), -1, fine).mean(axis=-1))

    return with_cells_of(each_way(mean, values), values, np.arange(0, values.shape[1], fine))


def _evolved(
    rounds: list[Outlook],
    rng: np.random.Generator,
    generations: int,
    others: Sequence[Candidates] = (),
) -> Allocation:
    """The best allocation for the rounds.

    Args:
        rounds: Rounds to optimise for.
        rng: Generator of the noise.
        generations: Number of generations.
        others: Candidates, in addition to the mean of the planner's choices.
    """

    if not rounds[0].is_compiled:
        rounds = rounds[:: math.ceil(len(rounds) / SIMULATED_ROUNDS)]
        generations = min(generations, SIMULATED_GENERATIONS)
    if not rounds[0].shares:
        generations = 0  # only split points differ

    def mean_objective(tried: Candidates) -> Array:
        return np.asarray(np.mean([round_.play(tried).objective for round_ in rounds], axis=0))

    some = rounds[:: max(1, len(rounds) // PLANNED)]
    planned = [search(round_, [], rng, generations=2)[0] for round_ in some]
    mean = [
        lifted(np.mean([getattr(plan, name) for plan in planned], axis=0))
        for name in ("alpha", "beta", "rho")
    ]
    splits = rounds[0].costs.splits
    split = np.repeat(np.arange(1, splits + 1)[:, None], len(mean[0]), axis=1)
    pool = Candidates(split, *(np.tile(shares, (splits, 1)) for shares in mean))
    pool = joined([rounds[0].possible(pool), *others])
    worth = mean_objective(pool)
    for _ in range(generations):
        keep = np.argsort(worth, kind="stable")[:PARENTS]
        pool, worth = pool.take(keep), worth[keep]
        parents = pool.take(rng.integers(len(keep), size=CHILDREN))
        children = varied_shares(rounds[0], parents, rng)
        pool = joined([pool, children])
        worth = np.concatenate([worth, mean_objective(children)])
    return pool.allocation(int(np.argmin(worth)), rounds[0].shares)
