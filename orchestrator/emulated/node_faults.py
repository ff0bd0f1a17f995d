# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Faults of a round that is being emulated: processes to end, lost clients, and reports of dead
nodes."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from orchestrator.emulated.nodes import Nodes
from orchestrator.engine.faults import Fault, RoundFaults
from testbed.control.messages import Abandoned, LoseClients, LostClient, RoundReport, StepsSoFar
from testbed.core.clock import EmulatedClock
from testbed.core.faults import BsFaults, UavFaults
from testbed.core.node import BS, NodeId, uav
from testbed.core.timeline import Loss
from testbed.runtimes import HostLost

log = logging.getLogger(__name__)

NOTICE_S = 0.1
"""Real seconds in which a loss is reported to the base station before it takes effect."""


class NodeFaults:
    """The dead nodes and lost clients of one round.

    Link outages are part of the table of rates, and nodes handle their own faults
    (`workloads.nodes.faults`). This class ends processes, and collects the reports of nodes that
    have ended.
    """

    def __init__(self, nodes: Nodes, index: int, start_s: float, faults: RoundFaults | None):
        """Start a round; processes whose end is due are ended now."""
        self._nodes = nodes
        self._index = index
        self._start_s = start_s
        self._faults = faults
        self._clock: EmulatedClock | None = None
        self.unplanned: list[Fault] = []
        """Faults of lost hosts, which the scenario does not plan."""
        self._progress: dict[NodeId, StepsSoFar] = {}
        nodes.hears[StepsSoFar] = self._progress.__setitem__
        nodes.hears[Abandoned] = self._abandoned
        if faults is None:
            return
        for client, stop_s in enumerate(faults.stop_s.tolist(), 1):
            if stop_s <= start_s and uav(client) in nodes.alive:
                nodes.kill(uav(client))

    def handle_host_losses(
        self, add_fault: Callable[[Fault], RoundFaults], timeout_s: float
    ) -> None:
        """From now on, treat the loss of a host as a fault of the round.

        Args:
            add_fault: Adds a fault and returns all faults of the round.
            timeout_s: Emulated seconds of silence after which the nodes of the host are considered
                lost.
        """

        def lose(lost: HostLost) -> None:
            at_s, noticed_s = self._start_s, self._start_s
            if (clock := self._clock) is not None:
                at_s = max(at_s, clock.at(lost.at_ns))
                noticed_s = clock.now() + NOTICE_S / clock.dilation
            lost_s = max(at_s + timeout_s, noticed_s)
            fault = Fault.of_host(lost.host, lost.nodes, at_s, lost_s)
            log.warning("%s; its nodes are considered lost from %.3f s", lost, lost_s)
            self.unplanned.append(fault)
            self._faults = add_fault(fault)
            if clock is not None:
                self._report_to_bs(fault)

        self._nodes.on_lost = lose

    def _report_to_bs(self, fault: Fault) -> None:
        assert self._faults is not None
        clients = tuple(node.client for node in fault.nodes)
        self._nodes.send(BS, LoseClients(clients, fault.lost_s, self._faults.drops))

    def of_bs(self) -> BsFaults | None:
        """The faults that the base station must have in its order."""
        faults = self._faults
        return None if faults is None or faults.are_none else faults.of_bs()

    def of_uav(self, client: int) -> UavFaults | None:
        """The faults that a UAV must have in its order."""
        faults = self._faults
        return None if faults is None or faults.are_none else faults.of_uav(client)

    def follow(self, clock: EmulatedClock, ends_s: float = math.inf) -> None:
        """Start the clock of the round: processes are ended when it is time.

        Args:
            clock: The clock of the round.
            ends_s: Expected end of the run, after which the base station does not crash.
        """
        self._clock = clock
        for fault in self.unplanned:  # The base station was not ready earlier.
            self._report_to_bs(fault)
        if self._faults is None:
            return
        for client, stop_s in enumerate(self._faults.stop_s.tolist(), 1):
            if uav(client) in self._nodes.alive and math.isfinite(stop_s):
                kill = partial(self._nodes.kill, uav(client))
                self._nodes.at(clock.monotonic_ns(stop_s), kill)
        if math.isfinite(self._faults.bs_crash_s) and self._faults.bs_crash_s <= ends_s:
            self._nodes.at(clock.monotonic_ns(self._faults.bs_crash_s), self._bs_crashes)

    def reports(self, reports: Mapping[NodeId, RoundReport]) -> dict[NodeId, RoundReport]:
        """The reports after the end of the round, completed by substitutes for dead nodes."""
        self._nodes.forget_alarms()
        dead = {node: self._report_of_dead(node) for node in self._nodes.killed - reports.keys()}
        return dead | dict(reports)

    def _report_of_dead(self, node: NodeId) -> RoundReport:
        """The last reported progress of a node, or an empty report if it had reported nothing."""
        progress = self._progress.get(node, StepsSoFar((), ()))
        return RoundReport(progress.spans, progress.going, (), {"wire_errors": []}, 0.0)

    def lost(self, noted: Sequence[LostClient]) -> list[Loss]:
        """Clients that were absent from the start, or that the base station recorded as lost."""
        if self._faults is None:
            return []
        lost = {
            client: LostClient(client, float(self._faults.lost_s[client - 1]), "")
            for client, is_absent in enumerate(self._faults.absent & ~self._faults.resting, 1)
            if is_absent
        } | {loss.client: loss for loss in noted}
        return [
            self._faults.loss(client, loss.lost_s, loss.refused)
            for client, loss in sorted(lost.items())
        ]

    def _bs_crashes(self) -> None:
        assert self._faults is not None
        self._nodes.kill(BS)
        self._faults.check(self._index, self._faults.bs_crash_s, [])

    def _abandoned(self, _: NodeId, message: Abandoned) -> None:
        assert self._faults is not None
        lost = message.loss
        loss = self._faults.loss(lost.client, lost.lost_s, lost.refused)
        raise self._faults.ends(self._index, loss)
