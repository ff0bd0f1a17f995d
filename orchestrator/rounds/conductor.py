# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The conductor: plays every round, synchronous or not, over any carrier of its transfers.

What happens in a round is written once, in `testbed.core.server_round` and `asynchronous_round`:
the protocol of the base station, which the emulated one follows, too. The conductor says *when*: it
has the clients, the durations of computing, the faults and a queue of events. A `Carrier` says *how
long* a transfer takes (`computed`, `packets`).

Events are simultaneous if they are in the same nanosecond; all events of one moment happen before
the base station decides. Within a moment, those of a lower `order`, then of a lower client, then
the earlier scheduled ones come first. The moment of an event is the time at which the base station
receives it; if links have delay, that is later than the time that the event reports.
"""

import heapq
import itertools
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ns3_scenarios.trace import TraceExhausted
from orchestrator.engine.arrays import Array, Ints
from orchestrator.engine.core_library import EXHAUSTED
from orchestrator.engine.faults import RoundFaults
from orchestrator.engine.plan import RoundPlan, prospects_of, remaining_work
from orchestrator.engine.slot_impairments import BROADCAST, DOWN, UP
from testbed.core import asynchronous_round, orders, server_round
from testbed.core.asynchronous_round import (
    Aggregate,
    AsynchronousRound,
    Finish,
    Mix,
    SendAdapters,
    UpdateArrived,
)
from testbed.core.faults import slowed_end
from testbed.core.ranks import Outlook
from testbed.core.server_round import (
    AdaptersArrived,
    AllowUpload,
    BroadcastReceived,
    Compute,
    Computed,
    ContinueClients,
    GiveUp,
    GradientDelivered,
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

SHARED = -1
"""The broadcast of aggregated gradients, which is a part of the step SG."""

Then = Callable[[float], None]
"""An action at a time, which is its argument."""


class Carrier(Protocol):
    """Carries the transfers of one round; clients count from 1, directions are those of
    `slot_impairments`."""

    credit_s: float
    """Time that the sender of gradients makes up for, after it has waited for a receipt."""
    end_s: float
    """End of the channel; infinity: none."""
    slots: int
    """Number of slots of the channel; 0: any."""
    unicasts: bool
    """Whether broadcasts are copies of their own over a band that active links share."""

    def begin(self, step: int, client: int, way: int, size: int, at_s: float, then: Then) -> None:
        """Carry `size` bytes of a step from a time on, which is not in the past.

        `then` happens at the end of the transfer, as an event of the client.
        """

    def word(
        self, way: int, client: int, at_s: float, then: Then, *, answers: bool = False
    ) -> None:
        """Carry a message without content; `then` happens when it arrives.

        `answers`: it is the receipt of a transfer, and returns on the transfer's connection.
        """

    def advance(self, until_s: float) -> bool:
        """Carry until a transfer of a shared medium ends, but no longer than until a moment.

        Returns:
            Whether events were scheduled.
        """

    def rate(self, way: int, client: int, at_s: float) -> float:
        """The rate of a link at a time in bit/s; 0 after the end of the channel."""

    def lose(self, client: int) -> None:
        """Stop what is being carried for a client."""

    def broadcasts(self, *, now: bool) -> None:
        """The downlinks are those of a broadcast from now on, or no longer."""


MakeCarrier = Callable[["Conductor"], Carrier]


class Conductor:
    """One round, or all rounds of an asynchronous run.

    Args:
        plan: Durations and sizes.
        start_s: Start of the round.
        carrier: Makes the carrier.
        faults: Faults of the round. A step of a lost client may end after its loss; the caller cuts
            it.
        service_order: Shape [2, K, I]: places in the order in which computing and downlink serve,
            from 0, in place of the paradigm's rules.
        shown: Plan whose sizes the steps show. Default: that of the transfers.
    """

    def __init__(
        self,
        plan: RoundPlan,
        start_s: float,
        carrier: MakeCarrier,
        faults: RoundFaults | None = None,
        service_order: Ints | None = None,
        shown: RoundPlan | None = None,
    ):
        self.plan, self.start_s, self.faults = plan, start_s, faults
        self.now_s = self.end_s = start_s
        """The present; and the end of the round as far as it is known."""
        self._events: list[tuple[int, int, int, int, float, Then]] = []
        """Moment in whole ns, order, client, serial number, exact moment, and what follows."""
        self._serial = itertools.count()
        clients = list(plan.allocation.clients or range(1, plan.clients + 1))
        self.lost_s: Array = np.full(plan.clients, np.inf)
        """Time at which each client was lost, shape [K]; infinity: it was not."""
        self._stop_s, self._lost_at = [math.inf] * plan.clients, {}
        if faults is not None:
            self.lost_s = np.where(faults.absent, faults.lost_s, np.inf)
            clients = [client for client in clients if not faults.absent[client - 1]]
            self._stop_s = faults.stop_s.tolist()
            lost_at = {client: float(faults.lost_s[client - 1]) for client in clients}
            self._lost_at = {k: at_s for k, at_s in lost_at.items() if math.isfinite(at_s)}
        self.clients = clients
        sized = plan if shown is None else shown
        self._work_s = {CF: plan.cf_s.tolist(), CB: plan.cb_s.tolist(), S: plan.s_s.tolist()}
        self._is_instant = not plan.s_s.all()
        """Whether the server computes some batches in no time."""
        self._bytes, self._shown = _sizes(plan), _sizes(sized)
        self._own_iterations = plan.iterations_of.tolist()
        self._asks = [False] * plan.clients if plan.asks_ca is None else plan.asks_ca.tolist()
        self._iteration = [1] * (plan.clients + 1)
        self._backward_s = [0.0] * (plan.clients + 1)
        """Duration of each client's last backward pass, before the first one ς τ_CF(1)."""
        self._uploads: dict[int, Then] = {}
        """The action of each client once its upload is allowed."""
        self._shared_s = [0.0] * (plan.clients + 1)
        """When the broadcast of aggregated gradients to each client began."""
        self._spans: dict[tuple[int, int, int], list[Any]] = {}
        """Start, end and bytes of each step, by client, iteration and step."""
        self._arrived = 0
        self._has_news = True
        """Whether the base station has had an event since it was last asked for instructions."""
        self.carrier = carrier(self)
        self.protocol = self._protocol(service_order)

    def _protocol(self, service_order: Ints | None) -> ServerRound | AsynchronousRound:
        plan, carrier = self.plan, self.carrier
        prospects = prospects_of(plan) if plan.updates else None

        def first_gradient_s(client: int, at_s: float) -> float:
            if not plan.paradigm.asks_for_first_gradient:
                return 0.0
            size = float(plan.sg_bytes[client - 1, 0])
            return orders.transfer_s(size, carrier.rate(DOWN, client, at_s))

        def ahead(client: int, iteration: int, at_s: float) -> orders.Ahead:
            up_bps, down_bps = (carrier.rate(way, client, at_s) for way in (UP, DOWN))
            if prospects is not None:
                return prospects.ahead(client, iteration, up_bps, down_bps)
            return remaining_work(plan, client, iteration, up_bps, down_bps)

        outlook = Outlook(ahead, self.start_s)
        if plan.updates:
            return AsynchronousRound(
                plan.paradigm,
                self.clients,
                plan.updates,
                self.start_s,
                self._lost_at,
                first_gradient=first_gradient_s,
                outlook=outlook,
                drops=True,
                buffer=max(1, plan.starts_after),
                after_aggregation=plan.starts_after > 1,
                tick=1e-9,
            )
        return ServerRound(
            plan.paradigm,
            self.clients,
            first_gradient_s,
            self._lost_at,
            outlook=outlook,
            drops=True,
            own_gradients=plan.own_gradients,
            tick=1e-9,
            iterations=dict(enumerate(self._own_iterations, 1)),
            places=None if service_order is None else _places(service_order),
        )

    def play(self) -> npt.NDArray[np.void]:
        """Play the round; returns its steps, dtype `SPAN`, by client, then start.

        The end of a step that the channel does not reach is infinity.

        Raises:
            TraceExhausted: The channel ends before the round, or before the last update arrives.
        """
        if not self.plan.updates:
            self._broadcast()
        events, protocol, carrier = self._events, self.protocol, self.carrier
        moment: float = _ns(self.start_s)
        while not protocol.is_over:
            if self._has_news and not (events and events[0][0] <= moment):
                if self._is_instant:
                    self._obey(transmits=False)
                    if events and events[0][0] <= moment:
                        self._has_news = True
                        continue  # Computing took no time: there is more to this moment.
                self._obey()
                continue
            loss_s = protocol.next_loss
            due_s = events[0][4] if events else math.inf
            if carrier.advance(due_s if due_s < loss_s else loss_s):
                continue
            if not events and loss_s == math.inf:
                self.exhausted()
                break
            loss_ns = math.inf if loss_s == math.inf else _ns(loss_s)
            moment = events[0][0] if events else loss_ns
            if loss_ns <= moment:
                moment, self.now_s = loss_ns, loss_s
            while events and events[0][0] == moment:
                *_, self.now_s, then = heapq.heappop(events)
                then(self.now_s)
            if loss_ns <= moment:
                self._happens(TimePassed(loss_s))
        self._obey()
        table = np.empty(len(self._spans), SPAN)
        columns = zip(*((*step, *rest) for step, rest in self._spans.items()), strict=True)
        for name, column in zip(table.dtype.names or (), columns, strict=False):
            table[name] = column
        return table[np.lexsort((table["end_s"], table["start_s"], table["client"]))]

    # --- for carriers

    def at(self, client: int, time_s: float, then: Then, order: int = 0) -> None:
        """Schedule what follows at a time that is not in the past; never, if that is infinite."""
        if time_s < EXHAUSTED:
            entry = _ns(time_s), order, client, next(self._serial), time_s, then
            heapq.heappush(self._events, entry)

    def soon(self, client: int, time_s: float, then: Then) -> None:
        """As `at`; what follows now happens at once."""
        if time_s == self.now_s:
            then(time_s)
        else:
            self.at(client, time_s, then)

    def exhausted(self) -> None:
        """Nothing can be carried any more: end an asynchronous run with all its updates.

        Raises:
            TraceExhausted: The round cannot end.
        """
        if not self.plan.updates or self._arrived < self.plan.updates:
            raise TraceExhausted(self.carrier.slots)
        self._events.clear()

    def never(self, client: int) -> None:
        """A transfer of a client does not end before the channel does.

        Raises:
            TraceExhausted: The round cannot end without it.
        """
        lost_s = min(self._lost_at.get(client, math.inf), float(self.lost_s[client - 1]))
        if not self.plan.updates and not lost_s < self.carrier.end_s:
            raise TraceExhausted(self.carrier.slots)

    # --- the base station

    def _broadcast(self) -> None:
        way = DOWN if self.plan.unicast and self.carrier.unicasts else BROADCAST
        copies = len(self.clients) if self.plan.unicast and way == BROADCAST else 1
        self.carrier.broadcasts(now=True)
        for client in self.clients:
            has = partial(self._has_broadcast, client)
            self._send(client, SM, way, self.start_s, has, copies)

    def _happens(self, event: "server_round.Event | asynchronous_round.Event") -> None:
        """Pass an event to the base station."""
        self._has_news = True
        self.protocol.tell(event)  # type: ignore[arg-type]  # each protocol has its own events

    def _obey(self, *, transmits: bool = True) -> None:
        self._has_news = False
        for instruction in self.protocol.instructions(transmits=transmits):
            self._do(instruction)

    def _do(self, what: "server_round.Instruction | asynchronous_round.Instruction") -> None:
        match what:
            case Compute(client, iteration, at_s):
                end_s = self._computed_s(0, at_s, self._work_s[S][client - 1][iteration - 1])
                self._note(client, S, at_s, end_s)
                self.at(client, end_s, partial(self._computed, client))
            case SendGradient(client, _, at_s):
                shared, total = self._gradient_bytes(self._bytes, client)
                start_s = self._departs(at_s)
                begin_s = start_s if self.plan.shared_bytes is None else self._shared_s[client]
                self.carrier.broadcasts(now=False)
                self._note(client, SG, begin_s, math.inf)
                arrived = partial(self._has_gradient, client, begin_s)
                self.carrier.begin(SG, client, DOWN, total - shared, start_s, arrived)
            case SendAdapters(client, iteration, at_s):
                self._iteration[client] = iteration
                self._send(client, SM, DOWN, self._departs(at_s), partial(self._has_own, client))
            case StartClients(clients, at_s):
                self.carrier.broadcasts(now=False)
                for client in clients:
                    self._tell(client, partial(self._forward, client, at_s))
            case AllowUpload(client, at_s):
                self._tell(client, partial(self._allowed, self._uploads.pop(client), at_s))
            case SendShared(clients, _, at_s):
                self.carrier.broadcasts(now=True)
                way = DOWN if self.plan.unicast and self.carrier.unicasts else BROADCAST
                for client in clients:
                    size, _ = self._gradient_bytes(self._bytes, client)
                    start_s = self._shared_s[client] = self._departs(at_s)
                    self._note(client, SG, start_s, math.inf)
                    arrived = partial(self._has_shared, client, start_s)
                    self.carrier.begin(SHARED, client, way, size, start_s, arrived)
            case ContinueClients(clients, at_s):
                for client in clients:
                    self._tell(client, partial(self._backward, client, at_s))
            case Mix(_, _, at_s):
                self._arrived += 1
                self.end_s = at_s
            case GiveUp(client, at_s):
                self.lost_s[client - 1] = at_s
                if not self.plan.updates or self._arrived < self.plan.updates:
                    self.end_s = max(self.end_s, at_s)
                self.carrier.lose(client)
            case Aggregate() | Finish():
                pass
            case _:
                raise AssertionError(what)

    def _computed(self, client: int, end_s: float) -> None:
        self._happens(Computed(client, end_s))

    def _departs(self, at_s: float) -> float:
        """When the base station begins to send data that it may send from a time on."""
        return max(at_s, self.now_s - self.carrier.credit_s)

    def _tell(self, client: int, then: Then) -> None:
        self.carrier.word(DOWN, client, self.now_s, then)

    def _report(self, client: int, at_s: float, event: "server_round.Event") -> None:
        """Report an event that a client notices at a time."""
        answers = not isinstance(event, UploadReady)
        self.carrier.word(UP, client, at_s, lambda _: self._happens(event), answers=answers)

    def _gradient_bytes(self, sizes: "_Sizes", client: int) -> tuple[int, int]:
        """Aggregated gradients and all gradients of a batch, in bytes."""
        total = sizes[SG][client - 1][self._iteration[client] - 1]
        if self.plan.shared_bytes is None:
            return 0, total
        return (sizes[SHARED][client - 1][0] if self.plan.own_gradients else total), total

    # --- the client

    def _has_broadcast(self, client: int, end_s: float) -> None:
        self._report(client, end_s, BroadcastReceived(client, end_s))

    def _has_own(self, client: int, end_s: float) -> None:
        self._report(client, end_s, BroadcastReceived(client, end_s))
        self._forward(client, end_s, end_s)

    def _has_shared(self, client: int, start_s: float, end_s: float) -> None:
        self._note(client, SG, start_s, end_s)
        self._report(client, end_s, SharedReceived(client, end_s))

    def _has_gradient(self, client: int, begin_s: float, end_s: float) -> None:
        self._note(client, SG, begin_s, end_s)
        self._report(client, end_s, GradientDelivered(client, begin_s, end_s, end_s))
        self._backward(client, end_s, end_s)

    def _forward(self, client: int, start_s: float, told_s: float) -> None:
        i = self._iteration[client]
        end_s = max(self._computed_s(client, start_s, self._work_s[CF][client - 1][i - 1]), told_s)
        self._note(client, CF, start_s, end_s)
        if i == 1:
            self._backward_s[client] = self.plan.backward_ratio * (end_s - start_s)
        compute_s = self._backward_s[client] + end_s - start_s
        smashed = partial(self._smashed, client, compute_s)
        self._upload(client, end_s, smashed, asks=self._asks[client - 1], adapters=False)

    def _smashed(self, client: int, compute_s: float, start_s: float) -> None:
        shown_at_end, i = "", self._iteration[client]
        if self.faults is not None and start_s >= self.faults.wrong_s[client - 1]:
            wrong = str(self.faults.wrong[client - 1])
            if wrong == "duplicate-frame":
                shown_at_end = wrong
            else:
                self.at(client, start_s, partial(self._refused, client, wrong))

        def arrived(end_s: float) -> None:
            if shown_at_end:
                self._refused(client, shown_at_end, end_s)
            self._happens(SmashedArrived(client, i, start_s, end_s, compute_s))

        self._send(client, CA, UP, start_s, arrived)

    def _refused(self, client: int, why: str, at_s: float) -> None:
        self._happens(Refused(client, at_s, why))

    def _backward(self, client: int, start_s: float, told_s: float) -> None:
        i = self._iteration[client]
        end_s = max(self._computed_s(client, start_s, self._work_s[CB][client - 1][i - 1]), told_s)
        self._note(client, CB, start_s, end_s)
        self._backward_s[client] = end_s - start_s
        if i % self._own_iterations[client - 1]:
            self._iteration[client] += 1
            self._forward(client, end_s, end_s)
        else:
            asks = self.plan.paradigm.asks != ""
            self._upload(client, end_s, partial(self._adapters, client), asks=asks, adapters=True)

    def _adapters(self, client: int, start_s: float) -> None:
        self._send(client, CM, UP, start_s, partial(self._finished, client, start_s))

    def _finished(self, client: int, start_s: float, end_s: float) -> None:
        if self.plan.updates:
            compute_s, upload_s = self._backward_s[client], end_s - start_s
            self._happens(UpdateArrived(client, end_s, compute_s, upload_s))
            return
        if client in self.protocol.here:
            self.end_s = max(self.end_s, end_s)
        self._happens(AdaptersArrived(client, end_s))

    def _upload(self, client: int, at_s: float, send: Then, *, asks: bool, adapters: bool) -> None:
        """Send after permission, or at once; a client whose process has ended does neither."""
        if at_s >= self._stop_s[client - 1]:
            return
        if not asks:
            send(at_s)
            return

        def allowed(start_s: float) -> None:
            if start_s < self._stop_s[client - 1]:
                send(start_s)

        self._uploads[client] = allowed
        self._report(client, at_s, UploadReady(client, at_s, adapters))

    def _allowed(self, send: Then, at_s: float, told_s: float) -> None:
        send(max(at_s, told_s - self.carrier.credit_s))

    # --- time and links

    def _computed_s(self, node: int, start_s: float, work_s: float) -> float:
        """The time at which computing ends that a node (0 is the base station) starts."""
        if self.faults is None:
            return start_s + work_s
        return slowed_end(start_s, work_s, self.faults.slow_of(node))

    def _send(
        self, client: int, step: int, way: int, start_s: float, then: Then, copies: int = 1
    ) -> None:
        """Carry the only transfer of a step."""
        sizes = self._bytes[step][client - 1]
        size = sizes[min(self._iteration[client], len(sizes)) - 1]
        span = self._note(client, step, start_s, math.inf)

        def arrived(end_s: float) -> None:
            span[1] = end_s
            then(end_s)

        self.carrier.begin(step, client, way, copies * size, start_s, arrived)

    def _note(self, client: int, step: int, start_s: float, end_s: float) -> list[Any]:
        """Note a step: its start, its end and its bytes."""
        i, size = self._iteration[client], 0
        if step == SG:
            _, size = self._gradient_bytes(self._shown, client)
        elif (sizes := self._shown.get(step)) is not None:
            own = sizes[client - 1]
            size = own[i - 1] if i <= len(own) else own[0]
        span = self._spans[client, i, step] = [start_s, end_s, size]
        return span


_Sizes = Mapping[int, list[list[int]]]
"""Bytes of each transfer, by step, client and iteration; of some steps only one for all iterations.
"""


def _sizes(plan: RoundPlan) -> _Sizes:
    tables = {SM: plan.sm_bytes, CA: plan.ca_bytes, SG: plan.sg_bytes, CM: plan.cm_bytes}
    if plan.shared_bytes is not None:
        tables[SHARED] = plan.shared_bytes
    return {step: size.reshape(plan.clients, -1).tolist() for step, size in tables.items()}


def _places(service_order: Ints) -> Callable[[str, int, int], int]:
    """The place of a client's iteration in the service order of a resource."""

    def place(resource: str, client: int, iteration: int) -> int:
        station = 0 if resource == "compute" else 1
        return int(service_order[station, client - 1, iteration - 1])

    return place


def _ns(time_s: float) -> int:
    """The nanosecond of a moment: for comparisons only, not for arithmetic."""
    return int(time_s * 1e9 + 0.5)
