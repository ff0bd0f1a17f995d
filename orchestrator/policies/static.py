# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The best static allocation: optimised once, offline, and used for all rounds.

On a given trace it is optimised on rounds that start at evenly spaced times of the part that the
scenario's rounds need. Otherwise it is optimised on other data than it is evaluated on: rounds that
start at evenly spaced times of a long channel trace with another seed. The search is an evolution
strategy. It starts from the mean of the planner's choices for some of these rounds; each generation
adds noise to the best candidates and keeps those with the lowest mean objective over all rounds.
"""

from collections.abc import Sequence
from functools import lru_cache, partial

import numpy as np

from ns3_scenarios.trace import SlotTrace, SlotValues, TraceExhausted, each_way
from orchestrator.engine.engine import split_costs
from orchestrator.engine.fdma import ShannonFdma
from orchestrator.engine.plan import Allocation, Array, fixed_allocation
from orchestrator.engine.radio import radio_access
from orchestrator.policies.planner import (
    FORECAST_SLOT_S,
    LONGEST_FORECAST_SLOTS,
    Candidates,
    Outlook,
    candidates,
    joined,
    search,
    varied_shares,
)
from orchestrator.policies.shares import lifted
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
CHILDREN = 16
PARENTS = 4


def best_static(scenario: Scenario, *, rounds: int = 64, generations: int = 60) -> Allocation:
    """The allocation with the lowest mean objective over the sampled rounds.

    It depends on the channel's settings, not on the scenario's own trace.

    Args:
        scenario: The scenario.
        rounds: Number of rounds to optimise for.
        generations: Number of generations.
    """
    alone = scenario.model_copy(
        update={"seed": OTHER_SEED - scenario.seed % 2**30, "rounds": 1, "name": "static"}
    )
    return _best_static(alone.model_dump_json(), rounds, generations)


def best_on(
    scenario: Scenario, trace: SlotTrace, *, rounds: int = 64, generations: int = 60
) -> Allocation:
    """The allocation with the lowest mean objective over rounds on a given trace.

    It is at least as good as equal shares with any common split. The rounds start at evenly spaced
    times; how much of the trace they cover follows from the scenario's number of rounds and the
    latency of the first one. A trace that is too short for a slow candidate is continued from its
    first slot.

    Args:
        scenario: The scenario.
        trace: The trace.
        rounds: Largest number of rounds to optimise for.
        generations: Number of generations.

    Raises:
        InputError: The trace has rates, with which shares have no effect.
    """
    radio = radio_access(scenario, trace)
    assert isinstance(radio, ShannonFdma)  # `radio_access` refuses the others
    costs = split_costs(scenario, profile_of(scenario))
    equal = np.full(scenario.uavs.count, 1 / scenario.uavs.count)
    every = candidates([Allocation(u, equal, equal, equal) for u in range(1, costs.splits + 1)])

    def sampled(start_s: Array, fine: int, slots: int) -> list[Outlook]:
        def piece(values: Array, start: int) -> Array:
            at = (start + np.arange(slots * fine)) % trace.slots
            return np.asarray(values[:, at].reshape(len(values), slots, fine).mean(axis=-1))

        return [
            Outlook(
                costs,
                radio,
                each_way(partial(piece, start=start), trace.values),
                fine * trace.slot_s,
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
            return _evolved(outlooks, np.random.default_rng(scenario.seed), generations, [every])
        except TraceExhausted:
            slots *= 2
    return fixed_allocation(scenario)  # With so bad a channel, no round ends.


@lru_cache(maxsize=32)
def _best_static(scenario_json: str, rounds: int, generations: int) -> Allocation:
    scenario = Scenario.model_validate_json(scenario_json)
    rng = np.random.default_rng(scenario.seed)
    slots = 128
    while True:
        try:
            return _evolved(_sampled(scenario, rounds, slots), rng, generations)
        except TraceExhausted:
            slots *= 2


def _sampled(scenario: Scenario, rounds: int, slots: int) -> list[Outlook]:
    """Rounds on coarse slots, each on its own piece of one trace."""
    costs, radio = split_costs(scenario, profile_of(scenario)), ShannonFdma.of(scenario)
    fine = max(1, round(FORECAST_SLOT_S / scenario.slot_s))
    apart, length = round(SPREAD_S / scenario.slot_s), slots * fine
    with ns3_source(scenario) as source:
        gain = source.trace((rounds - 1) * apart + length).values
    starts = range(0, rounds * apart, apart)

    def mean(values: Array) -> Array:
        return np.asarray(values.reshape(len(values), slots, fine).mean(axis=-1))

    def piece(at: int) -> SlotValues:
        return each_way(mean, gain[:, at : at + length])

    return [Outlook(costs, radio, piece(at), fine * scenario.slot_s) for at in starts]


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
    pool = joined([pool, *others])
    worth = mean_objective(pool)
    for _ in range(generations):
        keep = np.argsort(worth, kind="stable")[:PARENTS]
        pool, worth = pool.take(keep), worth[keep]
        children = varied_shares(pool.take(rng.integers(PARENTS, size=CHILDREN)), rng)
        pool = joined([pool, children])
        worth = np.concatenate([worth, mean_objective(children)])
    return pool.allocation(int(np.argmin(worth)), rounds[0].costs.paradigm)
