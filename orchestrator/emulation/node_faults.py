"""Faults of a round that is being emulated: who is ended, who is lost, what the dead have left."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from orchestrator.emulation.nodes import BS, Nodes, uav
from orchestrator.prediction.faults import RoundFaults
from testbed.control.node import Message
from testbed.core.clock import EmulatedClock
from testbed.core.timeline import Loss

UNTOLD: Message = {
    "spans": [],
    "going": [],
    "overruns_s": [],
    "notes": {"wire_errors": []},
    "cpu_s": 0.0,
}
"""The report of a node that has told nothing."""


class NodeFaults:
    """The dead and the lost of one round; without faults there are none.

    Links fall silent by the table of rates alone, and nodes leave by themselves
    (`workloads.nodes.faults`); this ends processes, and puts together what is known of those that
    ended.
    """

    def __init__(self, nodes: Nodes, index: int, start_s: float, faults: RoundFaults | None):
        """Begin; whose process should have ended before the round ends now."""
        self._nodes = nodes
        self._index = index
        self._faults = faults
        self._told: dict[str, Message] = {}
        if faults is None:
            return
        nodes.hears["steps"] = self._told.__setitem__
        nodes.hears["abandoned"] = self._abandoned
        for client, stop_s in enumerate(faults.stop_s.tolist(), 1):
            if stop_s <= start_s and uav(client) in nodes.names:
                nodes.kill(uav(client))

    def of_bs(self) -> dict[str, Any]:
        """What the base station is told besides."""
        return {} if self._faults is None else {"faults": vars(self._faults.of_bs())}

    def of_uav(self, client: int) -> dict[str, Any]:
        """What a UAV is told besides."""
        return {} if self._faults is None else {"faults": vars(self._faults.of_uav(client))}

    def follow(self, clock: EmulatedClock) -> None:
        """The round begins: end processes when it is time."""
        if self._faults is None:
            return
        for client, stop_s in enumerate(self._faults.stop_s.tolist(), 1):
            if uav(client) in self._nodes.names and math.isfinite(stop_s):
                kill = partial(self._nodes.kill, uav(client))
                self._nodes.at(clock.monotonic_ns(stop_s), kill)
        if math.isfinite(self._faults.bs_crash_s):
            self._nodes.at(clock.monotonic_ns(self._faults.bs_crash_s), self._bs_crashes)

    def reports(self, reports: Mapping[str, Message]) -> dict[str, Message]:
        """The round has ended: the reports, and what stands in for those of the dead."""
        self._nodes.forget_alarms()
        dead = {
            name: UNTOLD | self._told.get(name, {}) for name in self._nodes.killed - reports.keys()
        }
        return dead | dict(reports)

    def lost(self, reports: Mapping[str, Message]) -> list[Loss]:
        """Who was lost, or absent from the start."""
        if self._faults is None:
            return []
        noted = {int(client): found for client, found in reports[BS]["lost"].items()}
        absent = {
            client: (self._faults.lost_s[client - 1], "")
            for client, is_absent in enumerate(self._faults.absent, 1)
            if is_absent
        }
        return [
            self._faults.loss(client, float(lost_s), refused)
            for client, (lost_s, refused) in sorted((absent | noted).items())
        ]

    def _bs_crashes(self) -> None:
        assert self._faults is not None
        self._nodes.kill(BS)
        self._faults.check(self._index, self._faults.bs_crash_s, [])

    def _abandoned(self, _: str, message: Message) -> None:
        assert self._faults is not None
        loss = self._faults.loss(message["client"], message["lost_s"], message["refused"])
        raise self._faults.ends(self._index, loss)
