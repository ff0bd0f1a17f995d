# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The server's schedule as a state machine without clock or I/O.

It receives events and returns the services that start. All decisions about order, queues and gates
of the base station are in this file; durations are not. The engine implements the same rules in
compiled form, and tests check that both agree. `testbed.core.server_round` is the protocol around
it.

Times are numbers in a unit chosen by the caller; ranks (`testbed.core.orders`; the lowest is served
first) have any unit. Both are only compared.
"""

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from testbed.core.paradigm import Paradigm, Sharing

Resource = Literal["compute", "transmit", "upload"]


@dataclass(frozen=True)
class Start:
    """The service of a client at a resource begins."""

    resource: Resource
    client: int
    at: float
    """Time at which everything that it waited for was available."""


@dataclass(frozen=True, order=True)
class Waiting:
    """A queue entry, sorted by rank, arrival time and client."""

    rank: float
    enqueued: float
    client: int
    arrived: float = field(compare=False)
    """Time of arrival; `enqueued` is this time in ticks, if there are any."""
    ready: float = field(compare=False)
    """Time at which the gate admitted it to the queue."""


class _Server:
    """One resource: its gate, its queue, and the time since which it is free."""

    def __init__(
        self,
        resource: Resource,
        sharing: Sharing,
        gated: bool,
        clients: int,
        tick: float | None,
        iterations: Mapping[int, int],
        turns: Collection[int] = (),
        *,
        in_places: bool = False,
        passes_over: bool = False,
    ):
        self.resource = resource
        self.sequential = sharing == "sequential"
        self.gated = gated
        self.clients = clients
        self.tick = tick
        self.iterations = dict(iterations)
        """Number of iterations of each client in the round; empty: the same number for all."""
        self.last = Counter(self.iterations.values())
        """Number of clients by their number of iterations."""
        self.place = 0 if in_places and self.sequential else None
        """The rank that is served next; None: the lowest rank that waits."""
        self.busy = False
        self.serves = 0
        """The client in service, if the resource is sequential and busy."""
        self.free = 0.0
        self.queue: list[Waiting] = []
        self.held: dict[int, list[Waiting]] = defaultdict(list)
        self.order = list(turns)
        self.turns = deque(turns)
        """Clients in the order in which they are served, again and again; empty: by rank. A client
        that waits at the gate is passed over, and when the gate opens, the order begins again."""
        self.passes_over = passes_over
        """Whether clients that have not asked for their turn are passed over, too."""

    def enqueue(
        self, client: int, iteration: int, now: float, rank: float, *, gated: bool | None = None
    ) -> None:
        enqueued = now if self.tick is None else round(now / self.tick)
        waiting = Waiting(rank, enqueued, client, now, now)
        if not (self.gated if gated is None else gated):
            heapq.heappush(self.queue, waiting)
            return
        if self.turns and client == self._next_turn():
            self.free = max(self.free, now)  # The others have waited for it until now.
        self.held[iteration].append(waiting)
        self._pass_gate(iteration, now)

    def _pass_gate(self, iteration: int, now: float) -> None:
        held = self.held[iteration]
        over = sum(count for last, count in self.last.items() if last < iteration)
        if len(held) == self.clients - over:
            ready = max(now, *(waiting.arrived for waiting in held))
            for waiting in self.held.pop(iteration):
                heapq.heappush(self.queue, replace(waiting, ready=ready))
            self.turns = deque(client for client in self.order if client in self.turns)

    def _next_turn(self) -> int | None:
        """The client that is served next in turn; None if there are no turns, all in turn wait at
        the gate, or all are passed over."""
        if self.passes_over:
            asking = {waiting.client for waiting in self.queue}
            return next((client for client in self.turns if client in asking), None)
        held = {waiting.client for group in self.held.values() for waiting in group}
        return next((client for client in self.turns if client not in held), None)

    def leave(self, client: int) -> None:
        """A client has had its last service; the others no longer wait for its turn."""
        if client in self.turns:
            self.turns.remove(client)

    def lose(self, client: int, now: float) -> None:
        self.clients -= 1
        if client in self.iterations:
            self.last[self.iterations.pop(client)] -= 1
        self.queue = [waiting for waiting in self.queue if waiting.client != client]
        heapq.heapify(self.queue)
        if self.turns and self._next_turn() == client:
            self.free = now  # The others have waited for it until now.
        self.leave(client)
        if self.busy and self.serves == client:
            self.release(now)
        for iteration, held in list(self.held.items()):
            held[:] = [waiting for waiting in held if waiting.client != client]
            if held:
                self._pass_gate(iteration, now)

    def release(self, now: float) -> None:
        self.busy = False
        self.free = now

    def waiting(self) -> list[int]:
        held = [waiting for group in list(self.held.values()) for waiting in list(group)]
        return [waiting.client for waiting in [*sorted(self.queue.copy()), *held]]

    def start(self) -> list[Start]:
        started = []
        while self.queue and not (self.sequential and self.busy):
            if self.turns:
                turn = self._next_turn()
                due = [waiting for waiting in self.queue if waiting.client == turn]
                if not due:
                    break
                self.turns.rotate(-1 - self.turns.index(due[0].client))
                self.queue.remove(due[0])
                heapq.heapify(self.queue)
                waiting = due[0]
            else:
                if self.place is not None:
                    if self.queue[0].rank != self.place:
                        break
                    self.place += 1
                waiting = heapq.heappop(self.queue)
            at = max(waiting.ready, self.free) if self.sequential else waiting.ready
            started.append(Start(self.resource, waiting.client, at))
            self.busy, self.serves = True, waiting.client
        return started


class Schedule:
    """The schedule of one round for some clients under a paradigm.

    Args:
        paradigm: Determines how resources are shared, gates and orders.
        clients: The clients, in the order of scheduled uploads; or their number.
        tick: Unit in which times of arrival are compared; None: they are compared as they are.
        iterations: Number of iterations of each client, if they differ. Gates wait for the clients
            that do the iteration; others have already done theirs.
        in_places: Whether ranks are places in the order of service, from 0: a sequential resource
            then waits for the client with the next place.
    """

    def __init__(
        self,
        paradigm: Paradigm,
        clients: Collection[int] | int,
        tick: float | None = None,
        iterations: Mapping[int, int] | None = None,
        *,
        in_places: bool = False,
    ):
        turns: Collection[int] = ()
        if not isinstance(clients, int):
            turns = clients if paradigm.uplink_order == "scheduled" else ()
            clients = len(clients)
        own = iterations or {}
        self._compute = _Server(
            "compute",
            paradigm.server_compute,
            paradigm.compute_waits_for_all,
            clients,
            tick,
            own,
            in_places=in_places,
        )
        self._transmit = _Server(
            "transmit",
            paradigm.gradient_transmission,
            paradigm.transmission_waits_for_all,
            clients,
            tick,
            own,
            in_places=in_places,
        )
        self._upload = _Server(
            *("upload", paradigm.uplink, False, clients, tick, {}, turns),
            # Clients of an asynchronous round do not wait for each other.
            passes_over=paradigm.asynchronous,
        )
        self._adapters_wait = paradigm.adapters_wait_for_all
        self._servers = [self._compute, self._transmit]
        if paradigm.asks:
            self._servers.append(self._upload)

    def smashed_arrived(self, client: int, iteration: int, now: float, rank: float) -> None:
        """Smashed data have arrived; `rank` applies to sequential computing."""
        self._compute.enqueue(client, iteration, now, rank)

    def computed(self, client: int, iteration: int, now: float, rank: float) -> None:
        """A gradient is ready; `rank` applies to sequential transmission."""
        self.computing_over(now)
        self.gradient_ready(client, iteration, now, rank)

    def computing_over(self, now: float) -> None:
        """The server has finished a batch, whose gradient is not sent yet."""
        self._compute.release(now)

    def gradient_ready(self, client: int, iteration: int, now: float, rank: float) -> None:
        """A gradient can be sent; see `computed`."""
        self._transmit.enqueue(client, iteration, now, rank)

    def upload_ready(self, client: int, now: float, *, adapters: bool) -> None:
        """A client asks to send smashed data, or its adapters."""
        self._upload.enqueue(client, 0, now, 0, gated=adapters and self._adapters_wait)

    def uploaded(self, client: int, now: float) -> None:
        """A client's upload has arrived, which frees a sequential uplink if it had its turn."""
        if self._upload.busy and self._upload.serves == client:
            self._upload.release(now)

    def finished(self, client: int, now: float) -> None:
        """A client's adapters have arrived, its last upload of the round."""
        self.uploaded(client, now)
        self._upload.leave(client)

    def adapters_ready(self, client: int, now: float, rank: float) -> None:
        """The global adapters of an asynchronous round are ready for a client; see `computed`."""
        self._transmit.enqueue(client, 0, now, rank)

    def delivered(self, now: float) -> None:
        """A gradient, or the adapters of an asynchronous round, have arrived at the client."""
        self._transmit.release(now)

    def lost(self, client: int, now: float) -> None:
        """A client has left the round: gates no longer wait for it, and its resources are free."""
        for server in self._servers:
            server.lose(client, now)

    def waiting(self) -> dict[Resource, list[int]]:
        """Clients that wait for each resource in service order, then those blocked by a gate.

        May be called by any thread.
        """
        return {server.resource: server.waiting() for server in self._servers}

    def start(self, *, transmits: bool = True) -> list[Start]:
        """Services that begin now; call it after all events of the same time.

        Args:
            transmits: Whether the downlink serves, too. A caller whose server needs no time lets it
                serve once all computing of that time is over.
        """
        return [
            start
            for server in self._servers
            if transmits or server is not self._transmit
            for start in server.start()
        ]
