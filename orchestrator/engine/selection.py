# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Rules that choose the participating clients when a round starts."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from ns3_scenarios.trace import SlotTrace, both_ways
from orchestrator.scenario.schema import COUNTED_RULES, Scenario
from testbed.core.errors import RunError
from testbed.core.registry import PARTICIPATION, failures
from testbed.core.timeline import Round


@dataclass(frozen=True)
class RoundStart:
    """The information that is available at the start of a round to choose its clients."""

    index: int
    """Index of the round, starting from 0."""
    start_s: float
    rounds: Sequence[Round]
    """Previous rounds."""
    channel: SlotTrace
    """The slots up to the one in which the round starts, but no future slots."""


Choose = Callable[[RoundStart], Collection[int]]
"""Chooses the clients of a round, from 1."""


def random(scenario: Scenario) -> Choose:
    """Random clients, by the scenario's seed and the round."""
    count, everyone = _count(scenario), np.arange(1, scenario.uavs.count + 1)

    def choose(start: RoundStart) -> Collection[int]:
        drawn = np.random.default_rng([scenario.seed, 0x9A27, start.index])
        chosen: list[int] = drawn.choice(everyone, count, replace=False).tolist()
        return chosen

    return choose


def by_channel(scenario: Scenario) -> Choose:
    """Select the clients with the best uplinks in the last known slot; if equal, those with lower
    numbers."""
    count = _count(scenario)

    def choose(start: RoundStart) -> Collection[int]:
        worst_first = np.argsort(-both_ways(start.channel.values)[0][:, -1], kind="stable")
        chosen: list[int] = (1 + worst_first[:count]).tolist()
        return chosen

    return choose


def round_robin(scenario: Scenario) -> Choose:
    """Select clients cyclically, in the order of their numbers."""
    count, clients = _count(scenario), scenario.uavs.count
    return lambda start: [1 + (start.index * count + n) % clients for n in range(count)]


def _count(scenario: Scenario) -> int:
    count = scenario.participation.clients
    return scenario.uavs.count if count is None else count


def selection(scenario: Scenario) -> Choose | None:
    """The rule that chooses the scenario's clients; None if all take part in every round.

    Raises:
        InputError: A plug-in rule cannot be loaded, or refuses its parameters.
    """
    section = scenario.participation
    if section.rule in COUNTED_RULES and section.clients is None:
        return None
    choose = PARTICIPATION.make(section.rule, section.parameters, scenario)
    return _checked(scenario, section.rule, choose)


def _checked(scenario: Scenario, name: str, choose: Choose) -> Choose:
    """A rule whose choices are checked, and sorted unless their order is that of uploads."""
    scheduled = scenario.scheme.uplink_order == "scheduled"

    def chosen(start: RoundStart) -> Collection[int]:
        where = f"participation.rule {name!r}, round {start.index}"
        with failures(where):
            clients = list(dict.fromkeys(int(client) for client in choose(start)))
        if not scheduled:
            clients.sort()
        if not clients or min(clients) < 1 or max(clients) > scenario.uavs.count:
            raise RunError(f"{where}: must choose some of 1 to {scenario.uavs.count}: {clients}")
        return clients

    return chosen
