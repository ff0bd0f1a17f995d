# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Who is chosen for a round: rules that pick some of the clients when it starts."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from ns3_scenarios.trace import SlotTrace, both_ways
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import RunError
from testbed.core.registry import PARTICIPATION, reason
from testbed.core.timeline import Round


@dataclass(frozen=True)
class RoundStart:
    """What is known when a round starts, for whoever chooses its clients."""

    index: int
    """The round's, from 0."""
    start_s: float
    rounds: Sequence[Round]
    """Rounds done so far."""
    channel: SlotTrace
    """Slots up to the one in which the round starts; nothing of the future."""


Choose = Callable[[RoundStart], Collection[int]]
"""The clients of a round, from 1."""


def random(scenario: Scenario) -> Choose:
    """As many as the scenario says, by its seed and the round."""
    count, everyone = _count(scenario), np.arange(1, scenario.uavs.count + 1)

    def choose(start: RoundStart) -> Collection[int]:
        drawn = np.random.default_rng([scenario.seed, 0x9A27, start.index])
        chosen: list[int] = drawn.choice(everyone, count, replace=False).tolist()
        return chosen

    return choose


def by_channel(scenario: Scenario) -> Choose:
    """Those with the best uplinks in the slot that is known last; ties go by client."""
    count = _count(scenario)

    def choose(start: RoundStart) -> Collection[int]:
        worst_first = np.argsort(-both_ways(start.channel.values)[0][:, -1], kind="stable")
        chosen: list[int] = (1 + worst_first[:count]).tolist()
        return chosen

    return choose


def round_robin(scenario: Scenario) -> Choose:
    """One after the other, in the clients' order."""
    count, clients = _count(scenario), scenario.uavs.count
    return lambda start: [1 + (start.index * count + n) % clients for n in range(count)]


def _count(scenario: Scenario) -> int:
    count = scenario.participation.clients
    return scenario.uavs.count if count is None else count


def selection(scenario: Scenario) -> Choose | None:
    """Who chooses the scenario's clients; None where all take part in every round.

    Raises:
        InputError: A package's rule cannot be loaded, or refuses its parameters.
    """
    section = scenario.participation
    if section.rule in PARTICIPATION.built_in and section.clients is None:
        return None
    choose = PARTICIPATION.make(section.rule, section.parameters, scenario)
    return _checked(scenario, section.rule, choose)


def _checked(scenario: Scenario, name: str, choose: Choose) -> Choose:
    """A rule whose choices are checked, and sorted."""

    def chosen(start: RoundStart) -> Collection[int]:
        where = f"participation.rule {name!r}, round {start.index + 1}"
        try:
            clients = sorted({int(client) for client in choose(start)})
        except Exception as error:
            raise RunError(f"{where}: {reason(error)}") from error
        if not clients or clients[0] < 1 or clients[-1] > scenario.uavs.count:
            raise RunError(f"{where}: must choose some of 1 to {scenario.uavs.count}: {clients}")
        return clients

    return chosen
