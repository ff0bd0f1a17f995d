# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Emulated links between edge servers and cloud: a second network of nodes and links.

Its base station is the cloud, and its UAVs are the edge servers. The transfers have the size of the
models; the models themselves pass through the orchestrator, which averages them.
"""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ns3_scenarios.trace import RateTrace, Replay
from orchestrator.emulated.learning import startup_limit_s
from orchestrator.emulated.nodes import Nodes
from orchestrator.emulated.stage import ANSWER_TIMEOUT_S, LEAD_S, Stage, start_network
from orchestrator.engine.access import LinkRates
from orchestrator.rounds.hierarchy import Way, backhaul_bytes, backhaul_scenario, topology_of
from orchestrator.scenario.channel import Channel
from orchestrator.scenario.schema import ResolvedScenario
from testbed.control.messages import Probe, Probed, ProbeLinks
from testbed.core.clock import EmulatedClock, next_tick
from testbed.core.node import BS, uavs
from testbed.core.timeline import Timeline
from workloads.costs.profile import SplitProfile

SLOT_S = 1e6
"""Length of the only slot of these links, whose rates are constant."""


class EmulatedBackhaul:
    """Started nodes of the cloud and the edge servers.

    Args:
        scenario: Scenario of the run.
        profile: Costs of each split.
        stage: The nodes, connected.
    """

    def __init__(self, scenario: ResolvedScenario, profile: SplitProfile, stage: Stage):
        self._stage = stage
        self._dilation = scenario.dilation
        links, edges = topology_of(scenario).backhaul, len(scenario.members)
        self._rates = [
            np.full((edges, 1), bps / scenario.dilation)
            for bps in (links.uplink_bps, links.downlink_bps)
        ]
        self._payload = profile.trainable_bytes + profile.adapter_header_bytes[-1]
        self.bytes = backhaul_bytes(scenario, profile, framed=True)
        least_bps = min(links.uplink_bps, links.downlink_bps)
        self._longest_s = 2 * 8 * self.bytes / least_bps + links.one_way_delay_s

    def sent(self, way: Way, start_s: Sequence[float]) -> list[float]:
        """See `BackhaulLinks.sent`.

        Raises:
            RunError: A node or link failed, or a timeout expired.
        """
        stage, injector = self._stage, self._stage.injector
        first_s = min(start_s)
        injector.rates(0, *self._rates, warn_slots=0)
        clock = EmulatedClock(next_tick() + round(LEAD_S * 1e9), first_s, self._dilation)
        injector.epoch(clock, SLOT_S)
        probes = [
            Probe(edge, way == "up", at_s, self._payload) for edge, at_s in enumerate(start_s, 1)
        ]
        stage.nodes.send(BS, ProbeLinks(tuple(probes), clock))
        for node, probe in zip(uavs(len(probes)), probes, strict=True):
            stage.nodes.send(node, ProbeLinks((probe,), clock))
        lasts_s = (max(start_s) - first_s + self._longest_s) * self._dilation
        reports = stage.nodes.collect(Probed, stage.nodes.alive, ANSWER_TIMEOUT_S + 3 * lasts_s)
        injector.pause()
        ends_s = {
            edge: end_s for report in reports.values() for edge, _, _, end_s in report.received
        }
        return [ends_s[edge] for edge in range(1, len(probes) + 1)]


@contextlib.contextmanager
def open_backhaul(
    scenario: ResolvedScenario, profile: SplitProfile, folder: Path, predicted: Timeline
) -> Iterator[EmulatedBackhaul]:
    """Nodes of the cloud and the edge servers, connected by links with rate and delay.

    Args:
        scenario: Scenario of the run.
        profile: Costs of each split.
        folder: Existing folder for the logs of the nodes.
        predicted: Prediction of the run, which gives the timeouts.
    """
    there, links = backhaul_scenario(scenario), topology_of(scenario).backhaul
    assert isinstance(there, ResolvedScenario)
    up, down = (
        np.full((there.uavs.count, 1), bps) for bps in (links.uplink_bps, links.downlink_bps)
    )
    channel = Channel(Replay(RateTrace(up, down, SLOT_S)))
    folder = folder / "logs" / "backhaul"
    folder.mkdir(parents=True, exist_ok=True)
    network = start_network(there, folder, None, None, LinkRates(up, down, down), channel)
    with network, contextlib.ExitStack() as stack:
        stage = Stage(network, Nodes(network.world, stack, startup_limit_s(there)), predicted, None)
        stage.set_up(None)
        stage.impair()
        yield EmulatedBackhaul(scenario, profile, stage)
        stage.stop()
