# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A round of the emulated base station: threads that execute `testbed.core.server_round`.

One thread per client receives frames in place and posts events; only the main thread passes events
to the protocol and executes its instructions; one worker thread computes, most urgent work first;
one thread per transfer sends.
"""

import contextlib
import heapq
import itertools
import math
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from testbed.control.messages import (
    Credits,
    Keeping,
    LearnedBatch,
    LoseClients,
    LostClient,
    ServeRound,
    Span,
    Started,
    SwitchDownlinks,
)
from testbed.core import asynchronous_round
from testbed.core.asynchronous_round import (
    Aggregate,
    AsynchronousRound,
    Finish,
    Mix,
    SendAdapters,
    UpdateArrived,
)
from testbed.core.clock import EmulatedClock
from testbed.core.faults import BsFaults, slowed_end
from testbed.core.ranks import Outlook
from testbed.core.server_round import (
    Abandon,
    AdaptersArrived,
    AllowUpload,
    BroadcastReceived,
    Compute,
    ContinueClients,
    GiveUp,
    GradientDelivered,
    Instruction,
    Refused,
    SendGradient,
    SendShared,
    ServerRound,
    SetPriorities,
    SharedReceived,
    SmashedArrived,
    StartClients,
    TimePassed,
    UploadReady,
)
from testbed.core.server_round import Computed as ComputingOver
from testbed.transport import wire
from testbed.transport.wire import Header, Kind
from workloads.learning.work import Buffer, place_for
from workloads.nodes.faults import Failed, RoundAbandoned
from workloads.nodes.progress import ProgressReporter
from workloads.nodes.station import Station

NOTHING = memoryview(b"")
HIGHEST_DSCP = 63
"""Largest differentiated services codepoint of a packet (RFC 2474)."""


@dataclass(frozen=True)
class Arrived:
    """A frame of a client has arrived completely."""

    header: Header
    end_s: float


@dataclass(frozen=True)
class Worked:
    """The real work on a client's batch is done, or will be done before its step ends."""

    client: int
    done_s: float


Event = Arrived | Worked | Failed | LoseClients


@dataclass(frozen=True, order=True)
class Task:
    """The modelled end of a step, ordered by due time."""

    due_s: float
    serial: int
    client: int = field(compare=False)


@dataclass(frozen=True, order=True)
class Work:
    """Queued real work: first that of services that have begun, then by due time."""

    ahead: bool
    due_s: float
    serial: int
    client: int = field(compare=False)
    iteration: int = field(compare=False)


class KeptStates:
    """States of an asynchronous run that are kept for evaluations. A state that is due is kept
    before the next update changes it, so none is kept after the last update."""

    def __init__(self, keeping: Keeping, start_s: float, keep: Callable[[], object]):
        self.evaluations: list[tuple[int, float, int]] = []
        """See `BaseStationReport.kept`."""
        self._keeping = keeping
        self._keep = keep
        self._updates = self._periods = 0
        self._start_s = self._changed_s = start_s
        self._kept_updates: list[int] = []
        """Number of updates in each state that was kept."""

    def changes(self, now_s: float) -> None:
        """An update that arrived at `now_s` is about to change the state."""
        if self._updates and any(self._updates % n == 0 for n in self._keeping.every_updates):
            self._note(self._changed_s)
        every_s = self._keeping.every_s
        while every_s and (due_s := self._start_s + (self._periods + 1) * every_s) < now_s:
            self._periods += 1
            self._note(due_s)
        self._updates += 1
        self._changed_s = now_s

    def _note(self, time_s: float) -> None:
        if self._updates not in self._kept_updates[-1:]:
            self._keep()
            self._kept_updates.append(self._updates)
        self.evaluations.append((self._updates, time_s, len(self._kept_updates) - 1))


@dataclass
class Turn:
    """State of the service for a client in its current iteration."""

    start_s: float
    iteration: int = 1
    due_s: float = 0.0
    computing: bool = False
    """Whether its server computing has begun."""
    work_done_s: float | None = None
    gradient: memoryview | None = None
    shared_start_s: float | None = None
    """Start of the broadcast of aggregated gradients; None: there was none in this iteration."""
    lacks_shared: bool = False
    """Whether the aggregated gradients are being sent to the client."""


class EmulatedServerRound:
    """One round at the base station."""

    def __init__(self, station: Station, order: ServeRound, clock: EmulatedClock):
        self.station = station
        self.order = order
        self.terms = order.terms
        self.clock = clock
        self.work = station.work
        self.ahead = self.terms.modelled and not self.work.in_turn
        """Whether real work begins when its data have arrived, even if its modelled start is
        later."""
        self.turns = {client: Turn(clock.start_s) for client in order.clients}
        faults = order.faults or BsFaults()
        self.slow = faults.slow
        lost_at = {k: at_s for k, at_s in enumerate(faults.lost_s, 1) if at_s is not None}
        outlook = Outlook(order.ahead.at, clock.start_s) if order.ahead else None
        self.protocol = (
            AsynchronousRound(
                station.setup.paradigm,
                order.clients,
                self.terms.updates,
                clock.start_s,
                lost_at,
                first_gradient=self._first_gradient_s,
                outlook=outlook,
                drops=faults.drops,
                buffer=self.terms.buffer,
                after_aggregation=self.terms.after_aggregation,
            )
            if self.terms.updates
            else ServerRound(
                station.setup.paradigm,
                order.clients,
                self._first_gradient_s,
                lost_at,
                outlook=outlook,
                drops=faults.drops,
                mac_orders=station.setup.mac_orders,
                own_gradients=self.terms.sizes.gradient > 0,
                iterations={k: order.of(k).iterations for k in order.clients},
            )
        )
        self.more: dict[int, queue.SimpleQueue[bool]] = {
            client: queue.SimpleQueue() for client in order.clients
        }
        """In an asynchronous round: whether to receive another update of a client."""
        self.kept = KeptStates(order.keeping, clock.start_s, self.work.keep)
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.tasks: queue.PriorityQueue[Work] = queue.PriorityQueue()
        self.due: list[Task] = []
        self.serial = itertools.count()
        self.reporter: ProgressReporter | None = None
        self.spans: list[Span] = []
        self.going: list[Span] = []
        """Steps in progress for clients when they were lost; their end is infinity."""
        self.receipts: list[Span] = []
        """Received transfers of UAVs, which their own reports contain only after the round."""
        self.overruns: list[float] = []
        self.batches: list[LearnedBatch] = []
        self.lost: list[LostClient] = []
        self.shared = NOTHING
        """The aggregated gradients of the last iteration."""
        self.variant = 1
        """The present variant of the downlinks' rates, once all clients have the adapters."""
        self.marked = dict.fromkeys(order.clients, 0)
        """DSCP of the packets to each client."""

    def run(self) -> list[int]:
        """Broadcast, serve every iteration, and collect the adapters; returns the finished clients.

        Raises:
            RoundAbandoned: A client was lost and must not be dropped.
        """
        asynchronous = self.terms.updates > 0
        self._start_threads(self._receive_updates if asynchronous else self._receive, self.turns)
        (worker,) = self._start_threads(self._compute, [0])
        if asynchronous:
            self._tell_started()
            self._begin_all()
        elif self.turns:
            self._start_threads(self._broadcast, self.turns)
        else:
            self._begin_all()  # All clients were lost before.
        try:
            with self._hearing():
                while not self.protocol.is_over:
                    for event in self._all_that_happened():
                        self._happened(event)
                    self._steps_come_due()
                    self.protocol.tell(TimePassed(self.clock.now()))
                    self._begin_all()
        finally:
            if self.reporter is not None:
                self.reporter.stop()
        self.tasks.put(Work(True, float("inf"), next(self.serial), 0, 0))
        worker.join()
        return self.protocol.finished

    # Events.

    def _happened(self, event: Event) -> None:
        match event:
            case Worked():
                self._worked(event)
            case Failed() if isinstance(event.error, wire.WireError):
                self.protocol.tell(Refused(event.client, event.at_s, str(event.error)))
            case Failed():
                pass  # Loss of the client is handled by its time limit.
            case LoseClients():
                self.protocol.lose_at(event.clients, event.lost_s, drops=event.drops)
            case Arrived(header) if header.client in self.protocol.here:
                self._arrived(header, event.end_s)

    def _arrived(self, header: Header, end_s: float) -> None:
        turn = self.turns[header.client]
        match header.kind:
            case Kind.RECEIPT if not self.protocol.has_broadcast(header.client):
                self._receipt(header, "SM", turn.start_s)
                self.protocol.tell(BroadcastReceived(header.client, header.time_s))
            case Kind.RECEIPT if turn.lacks_shared:
                turn.lacks_shared = False
                if not self.terms.sizes.gradient:
                    self._receipt(header, "SG", turn.start_s)
                assert isinstance(self.protocol, ServerRound)
                self.protocol.tell(SharedReceived(header.client, header.time_s))
            case Kind.RECEIPT:
                start_s = turn.start_s if turn.shared_start_s is None else turn.shared_start_s
                self._receipt(header, "SG", start_s)
                delivered_s = header.time_s
                self.protocol.tell(
                    GradientDelivered(header.client, start_s, delivered_s, delivered_s)
                )
            case Kind.REQUEST:
                # Only synchronous clients, which count iterations from 1, wait for adapters.
                adapters = header.iteration > self.order.of(header.client).iterations
                self.protocol.tell(UploadReady(header.client, header.time_s, adapters))
            case Kind.SMASHED:
                self._note(header, "CA", end_s)
                turn.iteration = header.iteration
                turn.computing, turn.work_done_s = False, None
                turn.shared_start_s = None
                if self.ahead:
                    self._work(header.client, end_s, ahead=True)
                self.protocol.tell(
                    SmashedArrived(
                        header.client, header.iteration, header.time_s, end_s, header.compute_s
                    )
                )
            case _:
                self._note(header, "CM", end_s)
                if isinstance(self.protocol, AsynchronousRound):
                    upload_s = end_s - header.time_s
                    self.protocol.tell(
                        UpdateArrived(header.client, end_s, header.compute_s, upload_s)
                    )
                else:
                    self.protocol.tell(AdaptersArrived(header.client, end_s))

    def _first_gradient_s(self, client: int, arrived_s: float) -> float:
        table = self.order.first_gradients
        return 0.0 if table is None else table.at(client, arrived_s)

    def _work(self, client: int, start_s: float, ahead: bool) -> None:
        """Queue the real work of a service that begins at `start_s`, or at this time at the
        earliest."""
        due_s = self._modelled_end_s(client, start_s)
        iteration = self.turns[client].iteration
        self.tasks.put(Work(ahead, due_s, next(self.serial), client, iteration))

    def _modelled_end_s(self, client: int, start_s: float) -> float:
        return slowed_end(start_s, self.order.s_s[client - 1], self.slow)

    def _worked(self, event: Worked) -> None:
        if event.client not in self.protocol.here:
            return
        turn = self.turns[event.client]
        turn.work_done_s = event.done_s
        if turn.computing:
            self._end_computing(event.client, event.done_s)

    def _end_computing(self, client: int, done_s: float) -> None:
        """End server computing at its modelled end, or when the work is done if that is later."""
        end_s = done_s
        if self.terms.modelled:
            due_s = self.turns[client].due_s
            end_s = max(done_s, due_s)
            self.overruns.append(end_s - due_s)
        heapq.heappush(self.due, Task(end_s, next(self.serial), client))

    def _computed(self, client: int, end_s: float) -> None:
        turn = self.turns[client]
        self.spans.append((client, turn.iteration, "S", turn.start_s, end_s, 0))
        turn.gradient, learned = self.work.served(client)
        if learned is not None:
            self.batches.append(
                LearnedBatch(client, turn.iteration, learned.loss, learned.accuracy)
            )
        self.protocol.tell(ComputingOver(client, end_s))

    def _note(self, header: Header, step: str, end_s: float) -> None:
        self.spans.append(
            (header.client, header.iteration, step, header.time_s, end_s, header.payload_bytes)
        )

    def _receipt(self, header: Header, step: str, start_s: float) -> None:
        self.receipts.append((header.client, header.iteration, step, start_s, header.time_s, 0))

    # Instructions.

    def _begin_all(self) -> None:
        for instruction in self.protocol.instructions():
            self._begin(instruction)

    def _begin(self, instruction: Instruction | asynchronous_round.Instruction) -> None:
        match instruction:
            case Mix(client, staleness, at_s):
                self.kept.changes(at_s)
                self.work.mix(client, staleness)
            case Aggregate():
                self.work.apply_buffer()
            case SendAdapters(client, iteration, at_s):
                turn = self.turns[client]
                turn.start_s, turn.iteration = at_s, iteration
                self.work.begin_update(client)
                self.more[client].put(True)
                self._start_threads(self._broadcast, [client])
            case Finish(client):
                self.more[client].put(False)
                self._send_word(client, Kind.END)
            case StartClients():
                self._start_clients(instruction)
            case ContinueClients(clients, at_s):
                for client in clients:
                    self._send_word(client, Kind.START, at_s)
            case AllowUpload(client, at_s):
                self._send_word(client, Kind.GRANT, at_s)
            case SendShared(clients, _, at_s):
                self._switch(0)
                self.shared = self.work.shared_gradient(clients)
                for client in clients:
                    turn = self.turns[client]
                    turn.start_s, turn.lacks_shared = at_s, True
                self._start_threads(self._transmit_shared, clients)
            case Compute(client, _, at_s):
                turn = self.turns[client]
                turn.start_s, turn.due_s = at_s, self._modelled_end_s(client, at_s)
                turn.computing = True
                if turn.work_done_s is not None:
                    self._end_computing(client, turn.work_done_s)
                else:
                    self._work(client, at_s, ahead=False)
            case SendGradient(client, _, at_s):
                if self.terms.sizes.shared_gradient:
                    self._switch(1)
                self.turns[client].start_s = at_s
                self._start_threads(self._transmit, [client])
            case SetPriorities(clients):
                self._mark(clients)
            case GiveUp():
                self._give_up(instruction)
            case Abandon(client, at_s, refused):
                raise RoundAbandoned(LostClient(client, at_s, refused))

    def _tell_started(self) -> None:
        self.station.control.send(Started())
        if self.order.live:
            self.reporter = ProgressReporter(
                self.station.control, (self.spans, self.receipts), self.protocol.waiting
            )

    def _start_clients(self, start: StartClients) -> None:
        self._tell_started()
        for client in start.clients:
            self._send_word(client, Kind.START, start.at)

    def _switch(self, variant: int) -> None:
        """Set the rates of the links to those of broadcasts, or of gradients."""
        if variant != self.variant:
            self.variant = variant
            self.station.control.send(SwitchDownlinks(variant))

    def _mark(self, clients: tuple[int, ...]) -> None:
        """Mark gradients by their place in the service order.

        Packets to clients without a gradient have priority: the acknowledgements of their uploads,
        which would otherwise wait for all gradients. Without any gradient, DSCP is 0.
        """
        places = {client: max(HIGHEST_DSCP - n, 1) for n, client in enumerate(clients, 1)}
        for client, marked in self.marked.items():
            dscp = places.get(client, HIGHEST_DSCP if places else 0)
            if dscp != marked:
                self.station.links[client].set_dscp(dscp)
                self.marked[client] = dscp

    def _give_up(self, lost: GiveUp) -> None:
        self.lost.append(LostClient(lost.client, lost.at, lost.refused))
        if lost.step:
            sizes, start_s = self.order.of(lost.client).sizes, self.turns[lost.client].start_s
            size = {"SM": sizes.adapters, "S": 0, "SG": sizes.gradient}[lost.step]
            self.going.append((lost.client, lost.iteration, lost.step, start_s, math.inf, size))
        self.more[lost.client].put(False)
        self.station.links[lost.client].hang_up()

    def _send_word(self, client: int, kind: Kind, time_s: float | None = None) -> None:
        """Send a frame without payload: from this thread, unless a connection has to be opened for
        it, which waits for the client."""

        def send(client: int) -> None:
            self._send(client, kind, 0, time_s=time_s)

        if self.station.setup.settings.connection != "kept":
            self._start_threads(send, [client])
            return
        try:
            send(client)
        except wire.ConnectionLost as error:
            self.events.put(Failed(client, self.clock.now(), error))

    # Threads.

    @contextlib.contextmanager
    def _hearing(self) -> Iterator[None]:
        """Context in which `LoseClients` is received, if clients are on other machines."""
        if not self.order.may_lose:
            yield
            return
        over, ended = socket.socketpair()

        def hear(_: int) -> None:
            while self.station.control.wait(over):
                self.events.put(self.station.control.expect(LoseClients))

        (thread,) = self._start_threads(hear, [0])
        try:
            yield
        finally:
            ended.close()
            thread.join()
            over.close()

    def _start_threads(
        self, target: Callable[[int], None], clients: Iterable[int]
    ) -> list[threading.Thread]:
        def guarded(client: int) -> None:
            try:
                target(client)
            except BaseException as error:
                self.events.put(Failed(client, self.clock.now(), error))

        threads = [
            threading.Thread(target=guarded, args=(client,), daemon=True) for client in clients
        ]
        for thread in threads:
            thread.start()
        return threads

    def _receive(self, client: int) -> None:
        """Receive all frames of one client in this round, in the only valid order."""
        self._receive_from(client, 1)

    def _receive_updates(self, client: int) -> None:
        """Receive all frames of one client in an asynchronous round, while it has updates."""
        first = 1
        while self.more[client].get():
            self._receive_from(client, first)
            first += self.order.of(client).iterations

    def _receive_from(self, client: int, first: int) -> None:
        last = first + self.order.of(client).iterations - 1
        self._arrival(client, Kind.RECEIPT, first)
        sizes = self.order.of(client).sizes
        for iteration in range(first, last + 1):
            if self.order.of(client).asks_for_smashed:
                self._arrival(client, Kind.REQUEST, iteration)
            self._arrival(
                client,
                Kind.SMASHED,
                iteration,
                partial(self.work.smashed_buffer, client),
                self.work.labels_buffer(client),
                varies="smashed" in sizes.varying,
            )
            for _ in range(1 + (sizes.shared_gradient > 0 and sizes.gradient > 0)):
                self._arrival(client, Kind.RECEIPT, iteration)
        if self.terms.asks:
            self._arrival(client, Kind.REQUEST, last + 1)
        given = bytearray(self.order.of(client).sizes.adapters_header)
        self._arrival(
            client,
            Kind.ADAPTERS,
            last,
            partial(self.work.adapters_buffer, client),
            memoryview(given),
            varies="adapters_up" in sizes.varying,
        )
        if given != self.work.adapters_header(client):
            raise wire.WireError(f"adapters: client {client} sent unexpected tensors")

    def _arrival(
        self,
        client: int,
        kind: Kind,
        iteration: int,
        buffer: Buffer = lambda size: NOTHING,
        extra: memoryview = NOTHING,
        *,
        varies: bool = False,
    ) -> None:
        link = self.station.links[client]
        header = link.receive_header(kind)
        payload = place_for(buffer, header.payload_bytes, varies)
        header.expect(kind, self.terms.round, len(extra), len(payload))
        if header.client != client:
            raise wire.WireError(f"client: {header.client} sends on the link of {client}")
        if header.iteration != iteration:
            raise wire.WireError(
                f"iteration: {header.iteration} instead of {iteration} (client {client})"
            )
        arrived_ns = link.receive_into(extra)
        if payload or not extra:  # Adapters of no bytes have only names.
            arrived_ns = link.receive_into(payload)
        self.events.put(Arrived(header, self.clock.at(arrived_ns)))

    def _compute(self, _: int) -> None:
        worked: set[tuple[int, int]] = set()
        while (task := self.tasks.get()).client:
            if task.client not in self.protocol.here or (task.client, task.iteration) in worked:
                continue  # It was queued twice: at the arrival of its data and at its start.
            rest_s = float("inf")
            if self.terms.modelled:
                rest_s = (self.clock.monotonic_ns(task.due_s) - time.monotonic_ns()) / 1e9
            size = self.work.pass_size(1 + self.tasks.qsize(), rest_s)
            group = {task.client: task.iteration}
            while len(group) < size and not self.tasks.empty():
                other = self.tasks.get()
                if (other.client, other.iteration) not in worked:
                    group[other.client] = other.iteration
            worked |= set(group.items())
            self.work.forward_backward(list(group))
            done_s = self.clock.now()
            for client in group:
                self.events.put(Worked(client, done_s))

    def _credits(self, client: int) -> Credits:
        if self.order.credits:
            return self.order.credits[client - 1]
        return Credits.of_all(self.station.setup.credit_s)

    def _broadcast(self, client: int) -> None:
        header, turn = self.work.adapters_header(client), self.turns[client]
        adapters = self.work.broadcast(client)
        if self.order.held:
            start_s = self.clock.fill(turn.start_s)
        else:
            # A message of one frame has no use for the credit of its link.
            credit_s = self._credits(client).broadcast if adapters else 0.0
            start_s = self.clock.depart(turn.start_s, credit_s)
        self._send(client, Kind.BROADCAST, turn.iteration, adapters, start_s, extra=header)

    def _transmit(self, client: int) -> None:
        turn = self.turns[client]
        assert turn.gradient is not None
        credit_s = self._credits(client).gradient if turn.gradient else 0.0
        turn.start_s = self.clock.depart(turn.start_s, credit_s)
        self._send(client, Kind.GRADIENT, turn.iteration, turn.gradient, turn.start_s)

    def _transmit_shared(self, client: int) -> None:
        turn = self.turns[client]
        turn.start_s = self.clock.depart(turn.start_s, self._credits(client).shared)
        turn.shared_start_s = turn.start_s
        self._send(client, Kind.SHARED, turn.iteration, self.shared, turn.start_s)

    def _send(
        self,
        client: int,
        kind: Kind,
        iteration: int,
        payload: memoryview = NOTHING,
        time_s: float | None = None,
        extra: bytes = b"",
    ) -> None:
        if time_s is None:
            time_s = self.clock.now()
        header = Header(
            kind, client, iteration, self.terms.round, len(extra), len(payload), time_s, 0.0
        )
        self.station.links[client].send(header, extra, payload)

    # Waiting.

    def _next(self, timeout_s: float) -> Event | None:
        """The next event, or None after `timeout_s` real seconds; raises the errors of threads."""
        try:
            event = self.events.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(event, Failed) and not self._explained(event):
            raise event.error
        return event

    def _all_that_happened(self) -> list[Event]:
        """Wait for an event, then return all available ones, so that ties are resolved correctly.

        Raises:
            ConnectionLost: There was no event within the time limit.
        """
        rest_s = self.station.setup.settings.timeout_s
        next_s = min(self.due[0].due_s if self.due else math.inf, self.protocol.next_loss)
        if next_s < math.inf:
            rest_s = (self.clock.monotonic_ns(next_s) - time.monotonic_ns()) / 1e9
        event = self._next(max(rest_s, 0.0))
        if event is None and next_s == math.inf:
            raise wire.ConnectionLost(f"no event for {rest_s:g} s")
        happened = []
        while event is not None:
            happened.append(event)
            event = self._next(0)
        return happened

    def _steps_come_due(self) -> None:
        """Pass computing steps that are due to the protocol."""
        now_s = self.clock.now()
        while self.due and self.due[0].due_s <= now_s:
            task = heapq.heappop(self.due)
            if task.client in self.protocol.here:
                self._computed(task.client, task.due_s)

    def _explained(self, failed: Failed) -> bool:
        """Whether a failure is a consequence of the loss of a client."""
        if failed.client in self.protocol.lost:
            return True
        if isinstance(failed.error, wire.WireError):
            return self.order.faults is not None and failed.client > 0
        if not isinstance(failed.error, wire.ConnectionLost):
            return False
        # The loss of a machine may be noticed here before `LoseClients` arrives.
        is_away = self.order.may_lose and failed.client > 0
        return is_away or self.protocol.may_be_lost(failed.client)
