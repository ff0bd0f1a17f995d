"""The base station's program: one server for all clients, serving them as the paradigm says.

A thread a client receives into place and posts what arrived; the main thread alone decides, by
`testbed.core.schedule`; one worker thread computes, most urgent first; a thread a transfer sends.
"""

import heapq
import itertools
import math
import queue
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field

from testbed import transport
from testbed.control.node import Message, NodeControl
from testbed.core.clock import EmulatedClock
from testbed.core.faults import slowed_end
from testbed.core.paradigm import Paradigm
from testbed.core.schedule import Schedule, Start
from testbed.transport import Link, TransportSettings, wire
from testbed.transport.wire import Header, Kind
from workloads.learning.work import BatchResult, RoundSizes, ServerWork
from workloads.nodes.faults import Failed, Losses, RoundAbandoned
from workloads.nodes.probe import Probe, Received, exchange
from workloads.nodes.progress import ProgressReporter
from workloads.nodes.uav import Span, settle

NOTHING = memoryview(b"")


@dataclass(frozen=True)
class Arrived:
    """A frame of a client is in, whole."""

    header: Header
    end_s: float

    @property
    def client(self) -> int:
        """Whose it is."""
        return self.header.client


@dataclass(frozen=True)
class Computed:
    """The real work on a client's batch is done."""

    client: int
    done_s: float
    gradient: memoryview
    result: BatchResult | None


Event = Arrived | Computed | Failed


@dataclass(frozen=True, order=True)
class Task:
    """Server work that waits: the one due first goes first."""

    due_s: float
    serial: int
    client: int = field(compare=False)


@dataclass(frozen=True, order=True)
class Work:
    """Real work in line: that of turns which have begun goes first, then the one due first."""

    ahead: bool
    due_s: float
    serial: int
    client: int = field(compare=False)
    iteration: int = field(compare=False)


@dataclass
class Progress:
    """How far a client is in its current iteration."""

    iteration: int = 1
    step: str = "SM"
    """What the base station does for it; nothing while it is the client's turn."""
    arrived_s: float = 0.0
    lag_s: float = 0.0
    """τ_CB(i-1) + τ_CF(i) + τ_CA(i)."""
    start_s: float = 0.0
    due_s: float = 0.0
    computing: bool = False
    """Whether its turn at the server's computing has begun."""
    work_done_s: float | None = None
    gradient: memoryview | None = None
    gradient_s: float | None = None
    """τ_SG of the previous iteration."""


class BaseStation:
    """The base station for the length of a run."""

    def __init__(self, control: NodeControl, setup: Message, work: ServerWork):
        self.control = control
        self.settings = TransportSettings.from_json(setup["settings"])
        self.credit_s: float = setup["credit_s"]
        self.work = work
        self.paradigm = Paradigm(**setup["paradigm"])
        self.links: dict[int, Link] = {}

    def serve(self) -> None:
        """Run rounds until the orchestrator says stop."""
        while (order := self.control.receive())["kind"] != "stop":
            if order["kind"] == "accept":
                self._accept(order)
                continue
            if order["kind"] == "save":
                self.control.send("saved", self.work.state())
                continue
            if order["kind"] == "count":
                self.control.send("counts", sent=self._count())
                continue
            if order["kind"] == "probe":
                self.control.send("probed", received=self._probe(order))
                continue
            if order["kind"] == "restore":
                self.work.restore(order["blob"])
                self.control.send("restored")
                continue
            if order["kind"] == "evaluate":
                self.control.send("evaluated", **asdict(self.work.evaluate()))
                continue
            self.work.begin_round(order["round"], order["split"], RoundSizes(**order["sizes"]))
            settle()
            self.control.send("ready")
            begin = self.control.expect("begin", self.settings.timeout_s)
            clock = EmulatedClock(begin["start_ns"], begin["start_s"], begin["dilation"])
            cpu_s = time.process_time()
            round_ = ServerRound(self, order, clock)
            try:
                round_.run()
            except RoundAbandoned as over:
                self.control.send("abandoned", **vars(over))
                continue
            cpu_s = time.process_time() - cpu_s
            self.work.aggregate(round_.finished)
            self.control.send(
                "report",
                spans=round_.spans,
                going=round_.going,
                lost=round_.losses.noted,
                overruns_s=round_.overruns,
                results=round_.results,
                notes=self.work.notes(),
                cpu_s=cpu_s,
            )

    def _accept(self, order: Message) -> None:
        """Connect to UAVs, or to those that have been lost anew."""
        for client in order["clients"]:
            if client in self.links:
                self.links[client].hang_up()
                self.links[client].close()
        address = (order["address"], order["port"])
        self.links |= transport.accept(
            self.settings, address, order["clients"], lambda: self.control.send("listening")
        )
        self.control.send("connected")

    def _count(self) -> list[tuple[int, Message]]:
        """What was sent to each client since the last time."""
        return [
            (client, asdict(counts))
            for client, link in self.links.items()
            for counts in link.count()
        ]

    def _probe(self, order: Message) -> list[Received]:
        """All links' part of a calibration, a thread each."""
        probes = [Probe(*fields) for fields in order["probes"]]
        clock = EmulatedClock(**order["clock"])

        def of_link(client: int) -> list[Received]:
            own = [probe for probe in probes if probe.client == client]
            return exchange(self.links[client], own, clock, self.credit_s, at_uav=False)

        with ThreadPoolExecutor(len(self.links)) as pool:
            return [row for rows in pool.map(of_link, self.links) for row in rows]


class ServerRound:
    """One round at the base station."""

    def __init__(self, station: BaseStation, order: Message, clock: EmulatedClock):
        self.station = station
        self.order = order
        self.clock = clock
        self.work = station.work
        self.sizes = RoundSizes(**order["sizes"])
        self.iterations: int = order["iterations"]
        self.modelled = order["compute_time"] == "modelled"
        self.ahead = self.modelled and not self.work.in_turn
        """Whether real work begins when its data are in, be it modelled to begin later."""
        self.clients = {client: Progress(start_s=clock.start_s) for client in order["clients"]}
        self.here = set(self.clients)
        """Who takes part still: has neither finished nor been lost."""
        self.finished: list[int] = []
        self.losses = Losses(order.get("faults"))
        self.schedule = Schedule(station.paradigm, len(self.clients))
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.tasks: queue.PriorityQueue[Work] = queue.PriorityQueue()
        self.due: list[Task] = []
        self.serial = itertools.count()
        self.spans: list[Span] = []
        self.going: list[Span] = []
        """What was done for clients when they were lost; the end is infinity."""
        self.receipts: list[Span] = []
        """What UAVs have received: their own reports have it too, but only after the round."""
        self.overruns: list[float] = []
        self.results: list[tuple[int, int, float, float]] = []

    def run(self) -> None:
        """Broadcast, serve every iteration, and collect the clients' adapters."""
        self._start_threads(self._receive, self.clients)
        (worker,) = self._start_threads(self._compute, [0])
        self._start_threads(self._broadcast, self.clients)

        started_s = self._all_have_the_broadcast()
        self.station.control.send("started")
        teller = None
        if self.order.get("live"):
            teller = ProgressReporter(
                self.station.control, (self.spans, self.receipts), self.schedule
            )
        try:
            for client in sorted(self.here):
                self._send(client, Kind.START, 0, time_s=started_s)
            self._serve()
        finally:
            if teller is not None:
                teller.stop()
        self.tasks.put(Work(True, float("inf"), next(self.serial), 0, 0))
        worker.join()

    def _all_have_the_broadcast(self) -> float:
        """Wait for that; the moment from which all clients go on."""
        waiting, started_s = set(self.here), 0.0
        while waiting:
            for event in self._all_that_happened():
                if isinstance(event, Arrived):
                    self.clients[event.client].step = ""
                    started_s = max(started_s, event.header.time_s)
                    self._receipt(event.header, "SM", self.clock.start_s)
                    waiting.discard(event.client)
            started_s = max(started_s, *self._give_up_the_lost(), 0.0)
            waiting &= self.here
        return started_s

    def _serve(self) -> None:
        """All iterations of all clients."""
        while self.here:
            for event in self._all_that_happened():
                if event.client not in self.here:
                    continue
                if isinstance(event, Failed):
                    self._failed(event)
                elif isinstance(event, Computed):
                    self._work_done(event)
                elif event.header.kind is Kind.SMASHED:
                    self._smashed(event.header, event.end_s)
                elif event.header.kind is Kind.RECEIPT:
                    self._delivered(event.header)
                else:
                    self._note(event.header, "CM", event.end_s)
                    self.here.remove(event.client)
                    self.finished.append(event.client)
            self._steps_come_due()
            self._give_up_the_lost()
            for start in self.schedule.start():
                self._begin(start)

    # What happened.

    def _smashed(self, header: Header, end_s: float) -> None:
        client = self.clients[header.client]
        client.iteration = header.iteration
        client.arrived_s = end_s
        client.lag_s = header.compute_s + end_s - header.time_s
        client.computing, client.work_done_s = False, None
        self._note(header, "CA", end_s)
        if self.ahead:
            self._work(header.client, end_s, ahead=True)
        if client.gradient_s is None:
            client.gradient_s = self._first_gradient_s(header.client, end_s)
        self.schedule.smashed_arrived(
            header.client, header.iteration, end_s, client.lag_s + client.gradient_s
        )

    def _first_gradient_s(self, client: int, arrived_s: float) -> float:
        """τ'_SG(0): the gradient at the rate of the slot in which the smashed data arrived."""
        slots = self.order["gradient_s"]
        if slots is None:
            return 0.0
        at = int(arrived_s / slots["slot_s"]) - slots["first_slot"]
        row = slots["seconds"][client - 1]
        return float(row[min(max(at, 0), len(row) - 1)])

    def _work(self, client: int, start_s: float, ahead: bool) -> None:
        """Put the real work of a turn in line that begins then, or would at the earliest."""
        due_s = self._modelled_end_s(client, start_s)
        iteration = self.clients[client].iteration
        self.tasks.put(Work(ahead, due_s, next(self.serial), client, iteration))

    def _modelled_end_s(self, client: int, start_s: float) -> float:
        return slowed_end(start_s, self.order["s_s"][client - 1], self.losses.slow)

    def _work_done(self, event: Computed) -> None:
        client = self.clients[event.client]
        client.gradient, client.work_done_s = event.gradient, event.done_s
        if event.result is not None:
            self.results.append(
                (event.client, client.iteration, event.result.loss, event.result.accuracy)
            )
        if client.computing:
            self._end_computing(event.client, event.done_s)

    def _end_computing(self, client_id: int, done_s: float) -> None:
        """A turn at computing ends when it is modelled to, or with the work where that is later."""
        end_s = done_s
        if self.modelled:
            due_s = self.clients[client_id].due_s
            end_s = max(done_s, due_s)
            self.overruns.append(end_s - due_s)
        heapq.heappush(self.due, Task(end_s, next(self.serial), client_id))

    def _computed(self, client_id: int, end_s: float) -> None:
        client = self.clients[client_id]
        client.step = ""
        self.spans.append((client_id, client.iteration, "S", client.start_s, end_s, 0))
        self.schedule.computed(
            client_id, client.iteration, end_s, client.lag_s + end_s - client.start_s
        )

    def _delivered(self, header: Header) -> None:
        client = self.clients[header.client]
        client.step = ""
        client.gradient_s = header.time_s - client.start_s
        self._receipt(header, "SG", client.start_s)
        self.schedule.delivered(header.time_s)

    def _note(self, header: Header, step: str, end_s: float) -> None:
        self.spans.append(
            (header.client, header.iteration, step, header.time_s, end_s, header.payload_bytes)
        )

    def _receipt(self, header: Header, step: str, start_s: float) -> None:
        self.receipts.append((header.client, header.iteration, step, start_s, header.time_s, 0))

    # What begins.

    def _begin(self, start: Start) -> None:
        client = self.clients[start.client]
        client.step = "S" if start.resource == "compute" else "SG"
        if start.resource == "compute":
            client.start_s = start.at_s
            client.due_s = self._modelled_end_s(start.client, start.at_s)
            client.computing = True
            if client.work_done_s is not None:
                self._end_computing(start.client, client.work_done_s)
            else:
                self._work(start.client, start.at_s, ahead=False)
        else:
            client.start_s = start.at_s
            self._start_threads(self._transmit, [start.client])

    # Threads.

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
        """All frames of one client in this round, in the only order in which they may come."""
        self._arrival(client, Kind.RECEIPT, 1)
        for iteration in range(1, self.iterations + 1):
            self._arrival(
                client,
                Kind.SMASHED,
                iteration,
                self.work.smashed_buffer(client),
                self.work.labels_buffer(client),
            )
            self._arrival(client, Kind.RECEIPT, iteration)
        given = bytearray(self.sizes.adapters_header)
        self._arrival(
            client,
            Kind.ADAPTERS,
            self.iterations,
            self.work.adapters_buffer(client),
            memoryview(given),
        )
        if given != self.work.adapters_header():
            raise wire.WireError(f"adapters: client {client} sent other tensors than are due")

    def _arrival(
        self,
        client: int,
        kind: Kind,
        iteration: int,
        payload: memoryview = NOTHING,
        extra: memoryview = NOTHING,
    ) -> None:
        link = self.station.links[client]
        header = link.receive_header(kind)
        header.expect(kind, self.order["round"], len(extra), len(payload))
        if header.client != client:
            raise wire.WireError(f"client: {header.client} speaks on the link of {client}")
        if header.iteration != iteration:
            raise wire.WireError(
                f"iteration: {header.iteration} where {iteration} is due (client {client})"
            )
        link.receive_into(extra)
        arrived_ns = link.receive_into(payload)
        self.events.put(Arrived(header, self.clock.at(arrived_ns)))

    def _compute(self, _: int) -> None:
        worked: set[tuple[int, int]] = set()
        while (task := self.tasks.get()).client:
            if task.client not in self.here or (task.client, task.iteration) in worked:
                continue  # It was in line twice: since its data came, and since its turn began.
            rest_s = float("inf")
            if self.modelled:
                rest_s = (self.clock.monotonic_ns(task.due_s) - time.monotonic_ns()) / 1e9
            size = self.work.pass_size(1 + self.tasks.qsize(), rest_s)
            group = {task.client: task.iteration}
            while len(group) < size and not self.tasks.empty():
                other = self.tasks.get()
                if (other.client, other.iteration) not in worked:
                    group[other.client] = other.iteration
            worked |= set(group.items())
            clients = list(group)
            served = self.work.forward_backward(clients)
            done_s = self.clock.now()
            for client, (gradient, result) in zip(clients, served, strict=True):
                self.events.put(Computed(client, done_s, gradient, result))

    def _broadcast(self, client: int) -> None:
        header = self.work.adapters_header()
        start_s = self.clock.depart(self.clock.start_s, self.station.credit_s)
        self._send(client, Kind.BROADCAST, 1, self.work.broadcast(), start_s, extra=header)

    def _transmit(self, client: int) -> None:
        progress = self.clients[client]
        assert progress.gradient is not None
        progress.start_s = self.clock.depart(progress.start_s, self.station.credit_s)
        self._send(client, Kind.GRADIENT, progress.iteration, progress.gradient, progress.start_s)

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
            kind, client, iteration, self.order["round"], len(extra), len(payload), time_s, 0.0
        )
        self.station.links[client].send(header, extra, payload)

    # Waiting.

    def _next(self, timeout_s: float) -> Event | None:
        """The next event, or None after that many real seconds. Raises what a thread raised."""
        try:
            event = self.events.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(event, Failed) and not self.losses.explain(event):
            raise event.error
        return event

    def _all_that_happened(self) -> list[Event]:
        """Wait until something happens, then take all of it, so that ties are seen whole.

        Raises:
            ConnectionLost: Nothing happened for the whole deadline.
        """
        rest_s = self.station.settings.timeout_s
        next_s = min(self.due[0].due_s if self.due else math.inf, self.losses.next_s)
        if next_s < math.inf:
            rest_s = (self.clock.monotonic_ns(next_s) - time.monotonic_ns()) / 1e9
        event = self._next(max(rest_s, 0.0))
        if event is None and next_s == math.inf:
            raise wire.ConnectionLost(f"nothing happened for {rest_s:g} s")
        happened = []
        while event is not None:
            happened.append(event)
            event = self._next(0)
        return happened

    def _steps_come_due(self) -> None:
        """Tell the schedule of computing steps whose time is over."""
        now_s = self.clock.now()
        while self.due and self.due[0].due_s <= now_s:
            task = heapq.heappop(self.due)
            if task.client in self.here:
                self._computed(task.client, task.due_s)

    # Who is lost.

    def _give_up_the_lost(self) -> list[float]:
        """Go on without those whose time is over; when that was, of each."""
        lost = [one for one in self.losses.due(self.clock.now()) if one[0] in self.here]
        for client, lost_s in lost:
            self._lose(client, lost_s)
        return [lost_s for _, lost_s in lost]

    def _failed(self, failed: Failed) -> None:
        """Go on without a client that sent what it should not have; silence has its own time."""
        if isinstance(failed.error, wire.WireError):
            self._lose(failed.client, failed.at_s, str(failed.error))

    def _lose(self, client_id: int, lost_s: float, refused: str = "") -> None:
        self.losses.note(client_id, lost_s, refused)
        client = self.clients[client_id]
        if client.step:
            size = {"SM": self.sizes.adapters, "S": 0, "SG": self.sizes.smashed}[client.step]
            self.going.append(
                (client_id, client.iteration, client.step, client.start_s, math.inf, size)
            )
        self.here.remove(client_id)
        self.schedule.lost(client_id, lost_s)
        self.station.links[client_id].hang_up()
