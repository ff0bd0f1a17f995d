# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Rules that choose the participating clients when a round starts."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

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
    members: Sequence[int] | None = None
    """The UAVs of the edge server, of which the rule chooses some, from 1; None: all UAVs, without
    `topology`."""
    edge: int = 0
    """Number of the edge server, starting from 1; 0 without `topology`."""

    def among(self, scenario: Scenario) -> npt.NDArray[np.int64]:
        """The UAVs that may be chosen, from 1, in ascending order."""
        return np.array(self.members or range(1, scenario.uavs.count + 1))

    def seed(self, scenario: Scenario, word: int) -> list[int]:
        """Seed of the random numbers of a rule with its own word, for this round."""
        return [scenario.seed, word, self.index, *([self.edge] if self.edge else [])]


Choose = Callable[[RoundStart], Collection[int]]
"""Chooses the clients of a round, from 1."""


def random(scenario: Scenario) -> Choose:
    """Random clients, by the scenario's seed and the round."""

    def choose(start: RoundStart) -> Collection[int]:
        rng, everyone = np.random.default_rng(start.seed(scenario, 0x9A27)), start.among(scenario)
        chosen: list[int] = rng.choice(everyone, _count(scenario, start), replace=False).tolist()
        return chosen

    return choose


def by_channel(scenario: Scenario) -> Choose:
    """Select the clients with the best uplinks in the last known slot; if equal, those with lower
    numbers."""

    def choose(start: RoundStart) -> Collection[int]:
        everyone = start.among(scenario)
        uplinks = both_ways(start.channel.values)[0][everyone - 1, -1]
        best_first = everyone[np.argsort(-uplinks, kind="stable")]
        chosen: list[int] = best_first[: _count(scenario, start)].tolist()
        return chosen

    return choose


def round_robin(scenario: Scenario) -> Choose:
    """Select clients cyclically, in the order of their numbers."""

    def choose(start: RoundStart) -> Collection[int]:
        everyone, count = start.among(scenario), _count(scenario, start)
        turns = (start.index * count + np.arange(count)) % len(everyone)
        chosen: list[int] = everyone[turns].tolist()
        return chosen

    return choose


def _count(scenario: Scenario, start: RoundStart) -> int:
    count = scenario.participation.clients
    return len(start.among(scenario)) if count is None else count


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
        if not clients or not set(clients) <= set(start.among(scenario).tolist()):
            own = start.members and f"the UAVs {', '.join(map(str, start.members))}"
            fits = own or f"1 to {scenario.uavs.count}"
            raise RunError(f"{where}: must choose one or more of {fits}, not {clients}")
        return clients

    return chosen
