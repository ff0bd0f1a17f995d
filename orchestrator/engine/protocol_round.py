# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Event-driven simulation of rounds whose protocol extends the paper's.

These are rounds with a gate before the upload of adapters, sequential uploads, or aggregated
gradients (`Paradigm.is_plain` is false). The base station follows
`testbed.core.server_round.ServerRound`, as the emulated one does; durations and transfers are those
of the compiled engine, `orchestrator.engine.kernel`.

The moment of an event is the time at which the base station receives it. If links have delay, that
is later than the time that the event reports.
"""

import heapq
import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ns3_scenarios.trace import TraceExhausted
from orchestrator.engine.compiling import Array, compiled
from orchestrator.engine.faults import RoundFaults
from orchestrator.engine.kernel import transfer
from orchestrator.engine.plan import RoundPlan, prospects_of
from orchestrator.engine.radio_kernel import link_of
from orchestrator.engine.slot_impairments import BROADCAST, DOWN, UP
from orchestrator.engine.slots import EXHAUSTED, Slots, end_of, slot_at, slot_bps
from orchestrator.engine.tcp_model import Paths, note
from testbed.core import orders
from testbed.core.faults import slowed_end
from testbed.core.orders import Ahead
from testbed.core.server_round import (
    AdaptersArrived,
    AllowUpload,
    BroadcastReceived,
    Compute,
    Computed,
    ContinueClients,
    Event,
    GiveUp,
    GradientDelivered,
    Instruction,
    Outlook,
    Refused,
    SendGradient,
    SendShared,
    ServerRound,
    SharedReceived,
    SmashedArrived,
    StartClients,
    TimePassed,
    UploadReady,
)
from testbed.core.timeline import CA, CB, CF, CM, SG, SM, SPAN, S

_transfer = compiled(transfer)


@compiled
def _rate(slots: Slots, links: Any, way: int, k: int, time_s: float) -> float:
    """The rate of a link at a time, in bit/s; 0 after the end of the trace."""
    slot = slot_at(slots, time_s, 0)
    if slot >= slots.values.shape[2]:
        return 0.0
    return float(slot_bps(slots, link_of(links, way, k), way, k, slot))


def _ns(time_s: float) -> int:
    return round(min(time_s, 9e9) * 1e9)


class _Round:
    """One round; clients and iterations count from 1, as in `ServerRound`."""

    def __init__(
        self,
        plan: RoundPlan,
        links: Any,
        uplinks: Any,
        slots: Slots,
        paths: Paths | None,
        start_s: float,
        faults: RoundFaults | None,
    ):
        self.plan, self.links, self.uplinks, self.slots = plan, links, uplinks, slots
        self.paths, self.start_s, self.faults = paths, start_s, faults
        self.trace_end_s = end_of(slots)
        self.lost_s = np.full(plan.clients, np.inf)
        clients = list(plan.allocation.clients or range(1, plan.clients + 1))
        if faults is not None:
            self.lost_s = np.where(faults.absent, faults.lost_s, np.inf)
            clients = [client for client in clients if not faults.absent[client - 1]]
        self.clients = clients
        self.iterations_of = dict(enumerate(plan.iterations_of.tolist(), start=1))
        prospects = prospects_of(plan)

        def ahead(client: int, iteration: int, at_s: float) -> Ahead:
            up_bps, down_bps = (
                _rate(slots, of_way, way, client - 1, at_s)
                for way, of_way in ((UP, uplinks), (DOWN, links))
            )
            return prospects.ahead(client, iteration, up_bps, down_bps)

        self.protocol = ServerRound(
            plan.paradigm,
            clients,
            self._first_gradient_s,
            {} if faults is None else {k: float(faults.lost_s[k - 1]) for k in clients},
            outlook=Outlook(ahead, start_s),
            drops=True,
            own_gradients=plan.own_gradients,
            tick=1e-9,
            iterations=self.iterations_of,
        )
        self.iteration = dict.fromkeys(clients, 1)
        self.backward_s = dict.fromkeys(clients, 0.0)
        """Duration of each client's last backward pass, before the first one ς τ_CF(1)."""
        self.uploads: dict[int, Callable[[float], None]] = {}
        """The next action of each client once its upload is allowed."""
        self.shared_at_s = dict.fromkeys(clients, 0.0)
        """When the broadcast of aggregated gradients to each client began."""
        self.end_s = self.now_s = start_s
        self.slot = [0] * plan.clients
        """The slot in which each client's last transfer ended; transfers start in this order."""
        self.spans: dict[tuple[int, int, int], tuple[float, float, int]] = {}
        """Start, end and bytes of each step, by client, iteration and step."""
        self.events: list[tuple[int, int, int, float, Event]] = []
        """Moment in whole ns, client, serial number, exact moment, and the event."""
        self.serial = itertools.count()

    def play(self) -> npt.NDArray[np.void]:
        """Play the round; returns its steps, dtype `SPAN`, by client, then start.

        Raises:
            TraceExhausted: The round lasts longer than the trace.
        """
        for client in self.clients:
            size = int(self.plan.sm_bytes[client - 1])
            end_s = self._sends(client, SM, BROADCAST, size, self.start_s)
            self._reports(client, end_s, BroadcastReceived(client, end_s))
        while not self.protocol.is_over:
            loss_s = self.protocol.next_loss
            moment = min(self.events[0][0] if self.events else _ns(math.inf), _ns(loss_s))
            if moment == _ns(math.inf):
                raise TraceExhausted(self.slots.values.shape[2])
            if _ns(loss_s) <= moment:
                self.now_s = loss_s
            while self.events and self.events[0][0] == moment:
                _, _, _, self.now_s, event = heapq.heappop(self.events)
                self._happens(event)
            if _ns(loss_s) <= moment:
                self.protocol.tell(TimePassed(loss_s))
            for instruction in self.protocol.instructions():
                self._do(instruction)
        spans = np.array([(*step, *rest) for step, rest in self.spans.items()], SPAN)
        return np.sort(spans, order=["client", "start_s", "end_s"])

    def _happens(self, event: Event) -> None:
        if isinstance(event, AdaptersArrived) and event.client in self.protocol.here:
            self.end_s = max(self.end_s, event.at)
        self.protocol.tell(event)

    def _at(self, client: int, moment_s: float, event: Event) -> None:
        """Deliver an event to the base station at a moment, unless this never happens."""
        if moment_s < EXHAUSTED:
            key = _ns(moment_s), client, next(self.serial)
            heapq.heappush(self.events, (*key, moment_s, event))

    def _reports(self, client: int, at_s: float, event: Event) -> None:
        """Schedule the report of an event that a client notices at a time."""
        if self.paths is not None and at_s < EXHAUSTED:
            at_s = self._noted(UP, client, at_s)
        self._at(client, at_s, event)

    def _told_s(self, client: int) -> float:
        """When a client receives a message that the base station sends now."""
        if self.paths is None:
            return self.now_s
        return self._noted(DOWN, client, self.now_s)

    def _noted(self, way: int, client: int, at_s: float) -> float:
        """Time at which a message of one frame arrives."""
        assert self.paths is not None
        k, links = client - 1, self.uplinks if way == UP else self.links
        return float(note(self.paths, self.slots, links, way, k, at_s, self.slot[k]))

    def _do(self, instruction: Instruction) -> None:
        match instruction:
            case StartClients(clients, at_s):
                self.end_s = max(self.end_s, at_s)
                for client in clients:
                    self._forward(client, at_s, self._told_s(client))
            case Compute(client, iteration, at_s):
                end_s = self._computes(0, at_s, float(self.plan.s_s[client - 1, iteration - 1]))
                self._note(client, S, at_s, end_s)
                self._at(client, end_s, Computed(client, end_s))
            case SendShared(clients, _, at_s):
                assert self.plan.shared_bytes is not None
                for client in clients:
                    size, total = self._gradient_bytes(client)
                    start_s = self.shared_at_s[client] = self._departs(at_s)
                    end_s = self._carried(client, BROADCAST, size, start_s)
                    # If gradients of its own follow, the step ends with them.
                    until_s = math.inf if self.plan.own_gradients else end_s
                    self._note(client, SG, start_s, until_s, total)
                    self._reports(client, end_s, SharedReceived(client, end_s))
            case SendGradient(client, _, at_s):
                shared, total = self._gradient_bytes(client)
                start_s = self._departs(at_s)
                begin_s = start_s if self.plan.shared_bytes is None else self.shared_at_s[client]
                end_s = self._carried(client, DOWN, total - shared, start_s)
                self._note(client, SG, begin_s, end_s, total)
                if end_s < EXHAUSTED:
                    self._reports(client, end_s, GradientDelivered(client, begin_s, end_s, end_s))
                    self._backward(client, end_s, end_s)
            case ContinueClients(clients, at_s):
                for client in clients:
                    self._backward(client, at_s, self._told_s(client))
            case AllowUpload(client, at_s):
                told_s = self._told_s(client)
                if self.paths is not None:
                    at_s = max(at_s, told_s - self.paths.credit_s)
                self.uploads.pop(client)(at_s)
            case GiveUp(client, at_s):
                self.lost_s[client - 1] = at_s
                self.end_s = max(self.end_s, at_s)
            case _:
                raise AssertionError(instruction)

    def _gradient_bytes(self, client: int) -> tuple[int, int]:
        """Aggregated gradients and all gradients of a batch, in bytes."""
        k = client - 1
        total = int(self.plan.sg_bytes[k, self.iteration[client] - 1])
        if self.plan.shared_bytes is None:
            return 0, total
        return (int(self.plan.shared_bytes[k]) if self.plan.own_gradients else total), total

    # --- the client

    def _forward(self, client: int, start_s: float, told_s: float) -> None:
        k, i = client - 1, self.iteration[client]
        end_s = max(self._computes(client, start_s, float(self.plan.cf_s[k, i - 1])), told_s)
        self._note(client, CF, start_s, end_s)
        if i == 1:
            self.backward_s[client] = self.plan.backward_ratio * (end_s - start_s)
        compute_s = self.backward_s[client] + end_s - start_s
        smashed = partial(self._smashed, client, compute_s)
        asks = self.plan.asks_ca is not None and bool(self.plan.asks_ca[k])
        self._upload(client, end_s, smashed, asks=asks, adapters=False)

    def _smashed(self, client: int, compute_s: float, start_s: float) -> None:
        i, faults = self.iteration[client], self.faults
        size = int(self.plan.ca_bytes[client - 1, i - 1])
        end_s = self._sends(client, CA, UP, size, start_s)
        if faults is not None and start_s >= faults.wrong_s[client - 1]:
            wrong = str(faults.wrong[client - 1])
            shown_s = end_s if wrong == "duplicate-frame" else start_s
            self._at(client, shown_s, Refused(client, shown_s, wrong))
        self._at(client, end_s, SmashedArrived(client, i, start_s, end_s, compute_s))

    def _backward(self, client: int, start_s: float, told_s: float) -> None:
        i = self.iteration[client]
        cb_s = float(self.plan.cb_s[client - 1, i - 1])
        end_s = max(self._computes(client, start_s, cb_s), told_s)
        self._note(client, CB, start_s, end_s)
        self.backward_s[client] = end_s - start_s
        if i < self.iterations_of[client]:
            self.iteration[client] = i + 1
            self._forward(client, end_s, end_s)
        else:
            asks = self.plan.paradigm.asks != ""
            self._upload(client, end_s, partial(self._adapters, client), asks=asks, adapters=True)

    def _adapters(self, client: int, start_s: float) -> None:
        end_s = self._sends(client, CM, UP, int(self.plan.cm_bytes[client - 1]), start_s)
        self._at(client, end_s, AdaptersArrived(client, end_s))

    def _upload(
        self,
        client: int,
        at_s: float,
        send: Callable[[float], None],
        *,
        asks: bool,
        adapters: bool,
    ) -> None:
        """Send after permission, or at once; a client whose process has ended does neither."""
        if self.faults is not None and at_s >= self.faults.stop_s[client - 1]:
            return
        if not asks:
            send(at_s)
            return

        def allowed(start_s: float) -> None:
            if self.faults is None or start_s < self.faults.stop_s[client - 1]:
                send(start_s)

        self.uploads[client] = allowed
        self._reports(client, at_s, UploadReady(client, at_s, adapters))

    # --- time and links

    def _departs(self, at_s: float) -> float:
        """When the base station begins to send data that it may send from a time on."""
        if self.paths is None:
            return at_s
        return max(at_s, self.now_s - self.paths.credit_s)

    def _computes(self, node: int, start_s: float, work_s: float) -> float:
        """The time at which computing ends that a node (0 is the base station) starts."""
        if self.faults is None:
            return start_s + work_s
        return slowed_end(start_s, work_s, self.faults.slow_of(node))

    def _sends(self, client: int, step: int, way: int, size: int, start_s: float) -> float:
        """Carry the only transfer of a step; see `_carried`."""
        end_s = self._carried(client, way, size, start_s)
        self._note(client, step, start_s, end_s, size)
        return end_s

    def _carried(self, client: int, way: int, size: int, start_s: float) -> float:
        """When a transfer of `size` bytes ends; infinity if its client is lost before.

        Raises:
            TraceExhausted: The round does not end within the trace.
        """
        k, links = client - 1, self.uplinks if way == UP else self.links
        end_s, self.slot[k] = _transfer(
            self.paths, way, self.slots, k, size, start_s, self.slot[k], links
        )
        if end_s == EXHAUSTED:
            lost_s = math.inf if self.faults is None else float(self.faults.lost_s[k])
            if not min(lost_s, self.lost_s[k]) < self.trace_end_s:
                raise TraceExhausted(self.slots.values.shape[2])
        return end_s

    def _note(self, client: int, step: int, start_s: float, end_s: float, size: int = 0) -> None:
        self.spans[client, self.iteration[client], step] = start_s, end_s, size

    def _first_gradient_s(self, client: int, arrived_s: float) -> float:
        if not self.plan.paradigm.asks_for_first_gradient:
            return 0.0
        bps = float(_rate(self.slots, self.links, DOWN, client - 1, arrived_s))
        return orders.transfer_s(float(self.plan.sg_bytes[client - 1, 0]), bps)


def play_protocol(
    plan: RoundPlan,
    links: Any,
    uplinks: Any,
    slots: Slots,
    paths: Paths | None,
    start_s: float,
    faults: RoundFaults | None = None,
) -> tuple[npt.NDArray[np.void], float, Array]:
    """Simulate a round of a paradigm that is not plain. Returns its steps, dtype `SPAN`, by client,
    then start; its end; and the time at which each client was lost, shape [K], infinity if it was
    not.

    Args:
        plan: Plan of the round.
        links: Broadcasts and downlinks, see `radio_kernel.links_of`.
        uplinks: Rates of the uplinks, of the same shape.
        slots: The channel.
        paths: Links with delay and loss; None: links without either.
        start_s: Start of the round.
        faults: Faults of the round; a step of a lost client may end after its loss, and is cut by
            the caller.

    Raises:
        TraceExhausted: The round lasts longer than the trace.
    """
    round_ = _Round(plan, links, uplinks, slots, paths, start_s, faults)
    return round_.play(), round_.end_s, round_.lost_s
