# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Asynchronous split learning: no client waits for the adapters of another.

Each client receives the global adapters (SM), trains for I iterations with the server, and sends
its own (CM). The server merges them into the global model as they arrive, and sends the result back
at once, or, with semi-asynchronous aggregation, after it has aggregated enough updates. All rounds
of a run are played as one session without a barrier, until all updates have arrived; updates
that are in progress then are finished, but are not part of the run (`windows`). Downlink transfers
(adapters and gradients) share the downlink or queue for it, depending on the paradigm; queues are
served by arrival, then by client.

Iterations of a client are numbered across updates; SM belongs to the first iteration of its update,
CM to the last.
"""

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ns3_scenarios.trace import TraceExhausted
from orchestrator.engine.compiling import Array, compiled
from orchestrator.engine.faults import RoundFaults
from orchestrator.engine.kernel import transfer
from orchestrator.engine.plan import RoundPlan
from orchestrator.engine.slot_impairments import DOWN, UP
from orchestrator.engine.slots import EXHAUSTED, Slots, end_of
from orchestrator.engine.tcp_model import Paths, note
from testbed.core.faults import slowed_end
from testbed.core.timeline import CA, CB, CF, CM, SG, SM, SPAN, S

LOST = 99
"""The step number of the event that a client is lost."""


_transfer = compiled(transfer)
Waiting = tuple[float, int, int]
"""Start of the waiting time, client, and the step for which it waits."""


@dataclass
class _Station:
    """A resource that serves clients: the server's computing, or the downlink."""

    sequential: bool
    free_s: float
    busy: bool = False
    serves: int = -1
    """The client that was served last."""
    queue: deque[Waiting] = field(default_factory=deque)

    def begins(self) -> Iterator[Waiting]:
        """Pairs of a start time and the client and step whose service begins."""
        while self.queue and not (self.sequential and self.busy):
            came_s, k, step = self.queue.popleft()
            self.busy, self.serves = True, k
            yield max(came_s, self.free_s) if self.sequential else came_s, k, step

    def lose(self, k: int, now_s: float) -> None:
        """Remove a client."""
        self.queue = deque(waiting for waiting in self.queue if waiting[1] != k)
        if self.busy and self.serves == k:
            self.busy, self.free_s = False, now_s


class _Session:
    """All rounds of an asynchronous run; clients and iterations count from 0 here."""

    def __init__(
        self,
        plan: RoundPlan,
        links: Any,
        slots: Slots,
        paths: Paths | None,
        start_s: float,
        faults: RoundFaults | None,
    ):
        self.plan, self.links, self.slots, self.paths = plan, links, slots, paths
        self.faults = faults
        self.lost_s = (
            np.full(plan.clients, np.inf) if faults is None else np.array(faults.lost_s, float)
        )
        self.gone: list[bool] = [False] * plan.clients if faults is None else faults.absent.tolist()
        """Whether each client is absent, lost, or finished."""
        self.trace_end_s = end_of(slots)
        self.end_s = start_s
        self.computing = _Station(plan.paradigm.server_compute == "sequential", start_s)
        self.downlink = _Station(plan.paradigm.gradient_transmission == "sequential", start_s)
        self.own_iterations = plan.iterations_of.tolist()
        self.arrived = 0
        self.buffered = 0
        """Updates that have arrived since the last aggregation, if clients wait for it."""
        self.waiting: list[int] = []
        """Clients that wait for the next aggregation."""
        self.trace_ended = False
        """Whether a transfer could not end on the trace."""
        self.iteration = [-1] * plan.clients
        if slots.edges_s.size:
            first = int(np.searchsorted(slots.edges_s, start_s, side="right")) - 1
        else:
            first = int(start_s / slots.slot_s) - 1
        self.slot = [max(0, first)] * plan.clients
        self.spans: list[tuple[int, int, int, float, float, int]] = []
        self.events: list[tuple[int, bool, int, float, int]] = []
        """Time in whole ns, whether it is a loss, client, exact time, and the step that ends."""
        for k in range(plan.clients):
            if not self.gone[k]:
                self._begin_update(k, start_s)
                self._watch(k)

    def play(self) -> npt.NDArray[np.void]:
        """Simulate the session; returns all its steps, dtype `SPAN`, by client, then start.

        The end of a step that the trace does not reach is infinity.

        Raises:
            TraceExhausted: The trace ends before the last update arrives.
        """
        self._serve(-1)
        while self.events:
            moment = self.events[0][0]
            while self.events and self.events[0][0] == moment:
                _, _, k, now_s, step = heapq.heappop(self.events)
                if not self.gone[k]:
                    self._ended(k, step, now_s)
            self._serve(moment)
        if self.trace_ended and self.arrived < self.plan.updates:
            raise TraceExhausted(self.slots.values.shape[2])
        return np.sort(np.array(self.spans, SPAN), order=["client", "start_s", "end_s"])

    def _serve(self, moment: int) -> None:
        for now_s, k, step in self.computing.begins():
            self._computes(k, step, now_s)
        if self.events and self.events[0][0] == moment:
            return  # computing took no time, so there are more events now
        for now_s, k, step in self.downlink.begins():
            self._transfers(k, step, now_s)

    def _begin_update(self, k: int, now_s: float) -> None:
        if self.arrived < self.plan.updates:
            self.iteration[k] += 1
            self.downlink.queue.append((now_s, k, SM))
        else:
            self.gone[k], self.lost_s[k] = True, np.inf

    def _arrives(self, k: int, now_s: float) -> None:
        """Count an update that has arrived; those after the last one are not part of the run."""
        if self.arrived < self.plan.updates:
            self.arrived += 1
            self.buffered += 1
            self.end_s = now_s
        self.waiting.append(k)
        self._aggregate(now_s)

    def _aggregate(self, now_s: float) -> None:
        """Start clients that wait for an aggregation, if it is time for it: when enough updates
        have arrived, or no other client can send one, or the run is over."""
        present = self.gone.count(False)
        if self.waiting and (
            self.buffered >= self.plan.starts_after
            or len(self.waiting) == present
            or self.arrived == self.plan.updates
        ):
            begin, self.waiting, self.buffered = sorted(self.waiting), [], 0
            for k in begin:
                self._begin_update(k, now_s)

    def _watch(self, k: int) -> None:
        """Schedule the loss of a client."""
        if self.lost_s[k] < np.inf:
            self._happens(k, LOST, float(self.lost_s[k]))

    def _give_up(self, k: int, now_s: float) -> None:
        self.gone[k] = True
        if self.arrived < self.plan.updates:
            self.end_s = max(self.end_s, now_s)
        self.waiting = [waiting for waiting in self.waiting if waiting != k]
        for station in (self.computing, self.downlink):
            station.lose(k, now_s)
        self._aggregate(now_s)

    def _ended(self, k: int, step: int, now_s: float) -> None:
        if step == LOST:
            if now_s == self.lost_s[k]:
                self._give_up(k, now_s)
        elif step == SM:
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
            self._arrives(k, now_s)

    def _end(self, node: int, start_s: float, work_s: float) -> float:
        """The time at which computing ends that a node (0 is the base station) starts."""
        if self.faults is None:
            return start_s + work_s
        return slowed_end(start_s, work_s, self.faults.slow_of(node))

    def _forward(self, k: int, now_s: float) -> None:
        end_s = self._end(k + 1, now_s, float(self.plan.cf_s[k, self.iteration[k]]))
        self._note(k, CF, now_s, end_s)
        self._transfers(k, CA, end_s)

    def _backward(self, k: int, now_s: float) -> None:
        end_s = self._end(k + 1, now_s, float(self.plan.cb_s[k, self.iteration[k]]))
        self._note(k, CB, now_s, end_s)
        if (self.iteration[k] + 1) % self.own_iterations[k]:
            self.iteration[k] += 1
            self._forward(k, end_s)
        else:
            self._transfers(k, CM, end_s)

    def _computes(self, k: int, step: int, now_s: float) -> None:
        end_s = self._end(0, now_s, float(self.plan.s_s[k, self.iteration[k]]))
        self.computing.free_s = end_s
        self._note(k, step, now_s, end_s)
        self._happens(k, step, end_s)

    def _transfers(self, k: int, step: int, now_s: float) -> None:
        plan, down = self.plan, step in (SM, SG)
        sizes = {SM: plan.sm_bytes, CA: plan.ca_bytes, SG: plan.sg_bytes, CM: plan.cm_bytes}
        size = int(sizes[step][k, self.iteration[k]])
        way = DOWN if down else UP
        end_s, self.slot[k] = _transfer(
            self.paths, way, self.slots, k, size, now_s, self.slot[k], self.links
        )
        self._note(k, step, now_s, end_s, size)
        if self.faults is not None and self._fails(self.faults, k, step, now_s, end_s):
            return
        if end_s == EXHAUSTED:
            self.trace_ended = True
            return
        self._happens(k, step, end_s)
        if down:
            self.downlink.free_s = end_s
            if self.paths is not None:
                # The next transfer waits for the receipt, and catches up part of this time.
                received_s = note(self.paths, self.slots, self.links, UP, k, end_s, self.slot[k])
                self.downlink.free_s = max(end_s, received_s - self.paths.credit_s)

    def _fails(self, faults: RoundFaults, k: int, step: int, now_s: float, end_s: float) -> bool:
        """Whether a transfer cannot start, or its client is lost before it ends."""
        if step in (CA, CM) and now_s >= faults.stop_s[k]:
            return True  # it was lost before
        if step == CA and now_s >= faults.wrong_s[k]:
            shown_s = end_s if faults.wrong[k] == "duplicate-frame" else now_s
            self.lost_s[k] = min(self.lost_s[k], shown_s)
            self._watch(k)
        if end_s == EXHAUSTED and not self.lost_s[k] < self.trace_end_s:
            self.trace_ended = True
        return bool(end_s > self.lost_s[k])

    def _note(self, k: int, step: int, start_s: float, end_s: float, size: int = 0) -> None:
        self.spans.append((k + 1, self.iteration[k] + 1, step, start_s, end_s, size))

    def _happens(self, k: int, step: int, now_s: float) -> None:
        heapq.heappush(self.events, (round(now_s * 1e9), step == LOST, k, now_s, step))


def play_asynchronously(
    plan: RoundPlan,
    links: Any,
    slots: Slots,
    paths: Paths | None,
    start_s: float,
    faults: RoundFaults | None = None,
) -> tuple[npt.NDArray[np.void], float, Array]:
    """Simulate an asynchronous run. Returns its steps, dtype `SPAN`, by client, then start, with
    those of updates that arrive after its end; its end, which is the arrival of the last update;
    and the time at which each client was lost, shape [K], infinity if it was not.

    Args:
        plan: Plan with one entry per iteration in every array, shape [K, updates · I].
        links: See `radio_kernel.links_of`.
        slots: The channel.
        paths: Links with delay and loss; None: links without either.
        start_s: Start of the run.
        faults: Faults of the run; a step of a lost client may end after its loss, and is cut by
            the caller.

    Raises:
        TraceExhausted: The trace ends before the last update arrives.
    """
    session = _Session(plan, links, slots, paths, start_s, faults)
    return session.play(), session.end_s, session.lost_s
