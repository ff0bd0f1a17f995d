# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Rounds of a hierarchy: UAVs, edge servers and a cloud (HierFAVG, Liu et al. 2020).

In a cloud round, each edge server plays some edge rounds with its own UAVs and sends its model to
the cloud. Once the cloud has all of them, it sends their mean back, and the round ends when the
last edge server has it. Edge servers have bands and backhaul links of their own: they affect each
other only at the cloud. The rounds of one edge server can therefore be played after those of
another one, although they happen at the same time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from ns3_scenarios.trace import SlotTrace
from orchestrator.engine.access import LinkRates, RadioAccess
from orchestrator.engine.core_library import Air, Slots, library
from orchestrator.engine.plan import Allocation, fixed_allocation, transfer_bytes
from orchestrator.engine.radio import radio_access
from orchestrator.engine.slot_impairments import DOWN, UP
from orchestrator.engine.tcp_model import TcpModel, given_links, tcp_model_of
from orchestrator.scenario.schema import IDEAL_LINKS, Scenario, Topology, Uavs
from testbed.core.timeline import BackhaulTransfer, Round
from workloads.costs.profile import SplitProfile

Way = Literal["up", "down"]
PlayEdge = Callable[[int, int, float, Allocation], Round]
"""Plays an edge round: index of the edge server, index of the edge round since the start of the
run, its start in s, its allocation."""


class BackhaulLinks(Protocol):
    """The links between edge servers and cloud."""

    def sent(self, way: Way, start_s: Sequence[float]) -> list[float]:
        """Send a model over each link; returns the times of arrival in s.

        Args:
            way: Direction.
            start_s: Start of the transfer of each edge server, in s.
        """

    @property
    def bytes(self) -> int:
        """Size of a transfer."""


@dataclass(frozen=True)
class CloudRound:
    """A cloud round and its parts."""

    whole: Round
    edges: Sequence[Sequence[Round]]
    """Edge rounds by edge server, in order; their indices count from the start of the run."""

    @property
    def slowest(self) -> int:
        """Index of the edge server whose model reached the cloud last."""
        return int(np.argmax([each.end_s for each in self.whole.backhaul[: len(self.edges)]]))


def topology_of(scenario: Scenario) -> Topology:
    """The hierarchy of a scenario that has one."""
    assert scenario.topology is not None
    return scenario.topology


def play_cloud_round(
    scenario: Scenario,
    index: int,
    start_s: float,
    allocation: Allocation,
    play: PlayEdge,
    backhaul: BackhaulLinks,
    aggregate: Callable[[], None] = lambda: None,
) -> CloudRound:
    """Play a cloud round.

    Args:
        scenario: Scenario with a topology.
        index: Index of the cloud round, from 0.
        start_s: Start in s.
        allocation: Allocation of all UAVs; those of an edge server divide its resources.
        play: Plays an edge round.
        backhaul: Links to the cloud.
        aggregate: Called when the cloud has the models of all edge servers.
    """
    count = scenario.edge_rounds
    edges: list[list[Round]] = []
    for edge, members in enumerate(scenario.members):
        rounds: list[Round] = []
        for number in range(index * count, (index + 1) * count):
            begin_s = rounds[-1].end_s if rounds else start_s
            rounds.append(play(edge, number, begin_s, allocation.among(members)))
        edges.append(rounds)
    ready_s = [rounds[-1].end_s for rounds in edges]
    arrived_s = backhaul.sent("up", ready_s)
    aggregate()
    back_s = [max(arrived_s)] * len(edges)
    returned_s = backhaul.sent("down", back_s)
    hops: list[tuple[Way, Sequence[float], Sequence[float]]] = [
        ("up", ready_s, arrived_s),
        ("down", back_s, returned_s),
    ]
    transfers = [
        BackhaulTransfer(edge, way, begin_s, end_s, backhaul.bytes)
        for way, starts_s, ends_s in hops
        for edge, (begin_s, end_s) in enumerate(zip(starts_s, ends_s, strict=True), 1)
    ]
    return CloudRound(_whole(scenario, index, start_s, allocation, edges, transfers), edges)


def _whole(
    scenario: Scenario,
    index: int,
    start_s: float,
    allocation: Allocation,
    edges: Sequence[Sequence[Round]],
    transfers: Sequence[BackhaulTransfer],
) -> Round:
    """The cloud round of edge rounds; iterations are counted over all edge rounds."""
    parts = []
    for rounds in edges:
        for place, round_ in enumerate(rounds):
            spans = round_.spans.copy()
            spans["iteration"] += place * int(scenario.workload.largest("local_iterations"))
            parts.append(spans)
    spans = np.concatenate(parts)
    energy_j = np.sum([round_.energy_j for rounds in edges for round_ in rounds], axis=0)
    latency_s = max(each.end_s for each in transfers) - start_s
    return Round(
        index=index,
        paradigm=scenario.scheme.name,
        split=allocation.split,
        start_s=start_s,
        latency_s=latency_s,
        energy_j=energy_j,
        objective=latency_s + scenario.objective.energy_weight * float(energy_j.max()),
        spans=spans[np.argsort(spans["client"], kind="stable")],
        backhaul=transfers,
    )


def backhaul_scenario(scenario: Scenario) -> Scenario:
    """A scenario whose base station is the cloud, and whose UAVs are the edge servers; only its
    links are used."""
    topology = topology_of(scenario)
    fields = {name: getattr(scenario, name) for name in type(scenario).model_fields}
    fields |= {
        "topology": None,
        "uavs": Uavs(count=len(topology.edges), tx_power_w=1.0),
        "links": IDEAL_LINKS.model_copy(
            update={"one_way_delay_s": topology.backhaul.one_way_delay_s}
        ),
        "emulation": scenario.emulation.model_copy(update={"one_way_delay_s": 0.0}),
        "workload": scenario.workload.model_copy(update={"compute": "none", "split": 1}),
        "allocation": type(scenario.allocation)(),
    }
    return type(scenario).model_construct(**fields)


def backhaul_bytes(scenario: Scenario, profile: SplitProfile, *, framed: bool) -> int:
    """Size of a transfer between an edge server and the cloud: all trainable parameters, and with
    `framed` also the overhead of the link."""
    if not framed:
        return profile.trainable_bytes
    model = profile.adapter_header_bytes[-1] + profile.trainable_bytes
    return transfer_bytes(scenario.emulation, 0, model)


class PredictedBackhaul:
    """Predicted transfers between edge servers and cloud.

    Args:
        scenario: Scenario with a topology.
        profile: Costs of each split.
        framed: Whether frames and windows count; otherwise a transfer takes the time of its payload
            at the link's rate, and the delay.
    """

    def __init__(self, scenario: Scenario, profile: SplitProfile, *, framed: bool):
        self._links = topology_of(scenario).backhaul
        self._tcp = tcp_model_of(backhaul_scenario(scenario)) if framed else None
        self.bytes = backhaul_bytes(scenario, profile, framed=framed)

    def sent(self, way: Way, start_s: Sequence[float]) -> list[float]:
        """See `BackhaulLinks.sent`."""
        links = self._links
        bps = links.uplink_bps if way == "up" else links.downlink_bps
        if self._tcp is None:
            took_s = 8 * self.bytes / bps + links.one_way_delay_s
            return [begin_s + took_s for begin_s in start_s]
        return [begin_s + _window_s(self._tcp, way, bps, self.bytes) for begin_s in start_s]


def _window_s(tcp: TcpModel, way: Way, bps: float, size: int) -> float:
    """Duration of a transfer over a link with a constant rate and a delay."""
    slots = Slots(np.full((1, 1), bps), 1e9)
    air = Air(slots, given_links(1), tcp.fresh(1), None, 0.0)
    side = UP if way == "up" else DOWN
    return float(library().engine_transfer(air.address, side, 0, size, 0.0))


def rates_at_edges(
    scenario: Scenario, trace: SlotTrace, rates: Callable[[RadioAccess, Allocation], LinkRates]
) -> LinkRates:
    """Rates of all links, each at its own edge server, or at the base station without `topology`.

    Args:
        scenario: The scenario.
        trace: Channel of the scenario's UAVs.
        rates: Computes the rates [K, n] of all links with a radio and an allocation.
    """
    shares, made = fixed_allocation(scenario), None
    for there, members in zip(scenario.at_edges, scenario.members, strict=True):
        found = rates(radio_access(there, trace), shares.among(members))
        made = made or LinkRates(*(np.zeros_like(each) for each in found))
        own = np.array(members) - 1
        for whole, part in zip(made, found, strict=True):
            whole[own] = part[own]
    assert made is not None
    return made
