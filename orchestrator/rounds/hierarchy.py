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
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from ns3_scenarios.trace import SlotTrace
from orchestrator.engine.access import LinkRates, RadioAccess
from orchestrator.engine.core_library import LinkState, Slots, library
from orchestrator.engine.plan import Allocation, fixed_allocation, transfer_bytes
from orchestrator.engine.radio import radio_access
from orchestrator.engine.slot_impairments import DOWN, UP
from orchestrator.engine.tcp_model import TcpModel, given_links, tcp_model_of
from orchestrator.scenario.schema import IDEAL_LINKS, Scenario, Topology, Uavs
from testbed.core.timeline import BackhaulTransfer, Round
from workloads.costs.profile import SplitProfile

Way = Literal["up", "down"]


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


def topology_of(scenario: Scenario) -> Topology:
    """The hierarchy of a scenario that has one."""
    assert scenario.topology is not None
    return scenario.topology


def cloud_round(
    scenario: Scenario,
    index: int,
    start_s: float,
    edges: Sequence[Sequence[Round]],
    backhaul: BackhaulLinks,
    aggregate: Callable[[], None] = lambda: None,
) -> Round:
    """The cloud round of edge rounds that have been played: their models go to the cloud and back.

    Args:
        scenario: Scenario with a topology.
        index: Index of the cloud round, from 0.
        start_s: Start in s.
        edges: Edge rounds by edge server, in order.
        backhaul: Links to the cloud.
        aggregate: Called when the cloud has the models of all edge servers.
    """
    ready_s = [rounds[-1].end_s for rounds in edges]
    arrived_s = backhaul.sent("up", ready_s)
    aggregate()
    back_s = [max(arrived_s)] * len(edges)
    returned_s = backhaul.sent("down", back_s)
    hops: list[tuple[Way, Sequence[float], Sequence[float]]] = [
        ("up", ready_s, arrived_s),
        ("down", back_s, returned_s),
    ]
    every = [round_ for rounds in edges for round_ in rounds]
    latency_s = max(returned_s) - start_s
    energy_j = np.sum([round_.energy_j for round_ in every], axis=0)
    return Round(
        index=index,
        paradigm=scenario.scheme.name,
        split=_split(scenario, edges),
        start_s=start_s,
        latency_s=latency_s,
        energy_j=energy_j,
        objective=latency_s + scenario.objective.energy_weight * float(energy_j.max()),
        spans=_spans(scenario, edges),
        # A client that is lost for good is lost in each of the edge rounds that follow.
        lost=list(dict.fromkeys(loss for round_ in every for loss in round_.lost)),
        backhaul=[
            BackhaulTransfer(edge, way, begin_s, end_s, backhaul.bytes)
            for way, starts_s, ends_s in hops
            for edge, (begin_s, end_s) in enumerate(zip(starts_s, ends_s, strict=True), 1)
        ],
    )


def _split(scenario: Scenario, edges: Sequence[Sequence[Round]]) -> int | tuple[int, ...]:
    """The split points of the last edge rounds: one number if they are equal."""
    points = np.zeros(scenario.uavs.count, int)
    for members, rounds in zip(scenario.members, edges, strict=True):
        own = np.array(members) - 1
        points[own] = np.broadcast_to(rounds[-1].split, len(points))[own]
    return int(points[0]) if len(set(points)) == 1 else tuple(points.tolist())


def _spans(scenario: Scenario, edges: Sequence[Sequence[Round]]) -> npt.NDArray[np.void]:
    """The steps of all edge rounds by client; iterations are counted over the edge rounds."""
    parts = []
    for rounds in edges:
        for place, round_ in enumerate(rounds):
            spans = round_.spans.copy()
            spans["iteration"] += iterations_before(scenario, place)
            parts.append(spans)
    spans = np.concatenate(parts)
    return spans[np.argsort(spans["client"], kind="stable")]


def iterations_before(scenario: Scenario, edge_round: int) -> int:
    """Number of iterations of a cloud round before one of its edge rounds, counted from 0.

    An index that counts from the start of the run is allowed.
    """
    place = edge_round % scenario.edge_rounds
    return place * int(scenario.workload.largest("local_iterations"))


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
        "emulation": scenario.emulation.model_copy(update={"air": "links"}),
        "workload": scenario.workload.model_copy(update={"compute": "none", "split": 1}),
        "allocation": type(scenario.allocation)(),
    }
    # The kernel's links, and cables, have no such radio.
    if scenario.emulation.air == "ns3" or scenario.radio.kind.waits:
        fields["radio"] = type(scenario.radio)()
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
    air = LinkState(slots, given_links(1), tcp.fresh(1), None, 0.0)
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
