# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Asynchronous split learning: a round in which nobody waits for anybody's adapters.

Each client gets the global adapters (SM), trains for I iterations with the server, and sends its
own (CM); the server mixes them into the global model as they come, and sends that back at once, as
long as the round has updates left. Downlink transfers, adapters and gradients alike, share or queue
for the downlink as the paradigm says; queues go by arrival, then by client.

Iterations of a client count on from update to update; SM counts to the first of its update, CM to
the last.
"""

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ns3_scenarios.trace import TraceExhausted
from orchestrator.prediction.kernel import Links, transfer
from orchestrator.prediction.plan import RoundPlan
from orchestrator.transmission.air import EXHAUSTED, Air, compiled
from orchestrator.transmission.transport import DOWN, UP, Paths, note
from testbed.core.timeline import CA, CB, CF, CM, SG, SM, SPAN, S


@compiled
def _transfer(
    paths: Paths | None,
    way: int,
    air: Air,
    k: int,
    size: int,
    time_s: float,
    slot: int,
    hz: float,
    snr: float,
) -> tuple[float, int]:
    return transfer(paths, way, air, k, size, time_s, slot, hz, snr)


Waiting = tuple[float, int, int]
"""Since when, the client, and the step it waits for."""


@dataclass
class _Station:
    """Server's computing or downlink: who waits, whom it serves."""

    sequential: bool
    free_s: float
    busy: bool = False
    queue: deque[Waiting] = field(default_factory=deque)

    def begins(self) -> Iterator[Waiting]:
        """Who is served from when on, and with what."""
        while self.queue and not (self.sequential and self.busy):
            came_s, k, step = self.queue.popleft()
            self.busy = True
            yield max(came_s, self.free_s) if self.sequential else came_s, k, step


class _Round:
    """One asynchronous round; clients and iterations count from 0 in here."""

    def __init__(
        self, plan: RoundPlan, links: Links, air: Air, paths: Paths | None, start_s: float
    ):
        self.plan, self.links, self.air, self.paths = plan, links, air, paths
        self.computing = _Station(plan.paradigm.server_compute == "sequential", start_s)
        self.downlink = _Station(plan.paradigm.gradient_transmission == "sequential", start_s)
        self.left = plan.updates
        self.iteration = [-1] * plan.clients
        if air.edges_s.size:
            first = int(np.searchsorted(air.edges_s, start_s, side="right")) - 1
        else:
            first = int(start_s / air.slot_s) - 1
        self.slot = [max(0, first)] * plan.clients
        self.spans: list[tuple[int, int, int, float, float, int]] = []
        self.events: list[tuple[int, int, float, int]] = []
        """Moment in whole ns, client, exact moment, and the step that ends there."""
        for k in range(plan.clients):
            self._begin_update(k, start_s)

    def play(self) -> npt.NDArray[np.void]:
        """All its steps, dtype `SPAN`, by client, then start.

        Raises:
            TraceExhausted: The round lasts longer than the trace.
        """
        self._serve(-1)
        while self.events:
            moment = self.events[0][0]
            while self.events and self.events[0][0] == moment:
                _, k, now_s, step = heapq.heappop(self.events)
                self._ended(k, step, now_s)
            self._serve(moment)
        return np.sort(np.array(self.spans, SPAN), order=["client", "start_s", "end_s"])

    def _serve(self, moment: int) -> None:
        for now_s, k, step in self.computing.begins():
            self._computes(k, step, now_s)
        if self.events and self.events[0][0] == moment:
            return  # computing took no time: there is more to this moment
        for now_s, k, step in self.downlink.begins():
            self._transfers(k, step, now_s)

    def _begin_update(self, k: int, now_s: float) -> None:
        if self.left:
            self.left -= 1
            self.iteration[k] += 1
            self.downlink.queue.append((now_s, k, SM))

    def _ended(self, k: int, step: int, now_s: float) -> None:
        if step == SM:
            self.downlink.busy = False
            self._forward(k, now_s)
        elif step == CA:
            self.computing.queue.append((now_s, k, S))
        elif step == S:
            self.computing.busy = False
            self.downlink.queue.append((now_s, k, SG))
        elif step == SG:
            self.downlink.busy = False
            self._backward(k, now_s)
        else:
            self._begin_update(k, now_s)

    def _forward(self, k: int, now_s: float) -> None:
        end_s = now_s + float(self.plan.cf_s[k, self.iteration[k]])
        self._note(k, CF, now_s, end_s)
        self._transfers(k, CA, end_s)

    def _backward(self, k: int, now_s: float) -> None:
        end_s = now_s + float(self.plan.cb_s[k, self.iteration[k]])
        self._note(k, CB, now_s, end_s)
        if (self.iteration[k] + 1) % self.plan.iterations_of_update:
            self.iteration[k] += 1
            self._forward(k, end_s)
        else:
            self._transfers(k, CM, end_s)

    def _computes(self, k: int, step: int, now_s: float) -> None:
        end_s = now_s + float(self.plan.s_s[k, self.iteration[k]])
        self.computing.free_s = end_s
        self._note(k, step, now_s, end_s)
        self._happens(k, step, end_s)

    def _transfers(self, k: int, step: int, now_s: float) -> None:
        plan, links, down = self.plan, self.links, step in (SM, SG)
        sizes = {SM: plan.sm_bytes, CA: plan.ca_bytes, SG: plan.sg_bytes, CM: plan.cm_bytes}
        size = int(sizes[step][k, self.iteration[k]])
        hz, snr = (
            (links.gradient_hz[k], links.gradient_snr[k])
            if down
            else (links.uplink_hz[k], links.uplink_snr[k])
        )
        way = DOWN if down else UP
        end_s, self.slot[k] = _transfer(
            self.paths, way, self.air, k, size, now_s, self.slot[k], hz, snr
        )
        if end_s == EXHAUSTED:
            raise TraceExhausted(self.air.gain.shape[2])
        self._note(k, step, now_s, end_s, size)
        self._happens(k, step, end_s)
        if down:
            self.downlink.free_s = end_s
            if self.paths is not None:
                # The next one waits for the receipt, and makes up for a bit of that.
                received_s = note(self.paths, UP, k, end_s)
                self.downlink.free_s = max(end_s, received_s - self.paths.credit_s)

    def _note(self, k: int, step: int, start_s: float, end_s: float, size: int = 0) -> None:
        self.spans.append((k + 1, self.iteration[k] + 1, step, start_s, end_s, size))

    def _happens(self, k: int, step: int, now_s: float) -> None:
        heapq.heappush(self.events, (round(now_s * 1e9), k, now_s, step))


def play_asynchronously(
    plan: RoundPlan, links: Links, air: Air, paths: Paths | None, start_s: float
) -> npt.NDArray[np.void]:
    """The steps of an asynchronous round, dtype `SPAN`, by client, then start.

    Args:
        plan: With an entry an iteration in every array, shape [K, updates · I].
        links: See `kernel.links_of`.
        air: The channel.
        paths: Links that delay and lose; None: they do neither.
        start_s: When the round starts.

    Raises:
        TraceExhausted: The round lasts longer than the trace.
    """
    return _Round(plan, links, air, paths, start_s).play()
