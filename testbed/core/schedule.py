# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Who is served next: the server's schedule as a state machine without clock or I/O.

It is told what happened and answers what starts now. Everything that decides about order, queues
and gates of the base station is in this file; how long things take is not. The engine states the
same rules in compiled form, and tests hold the two together. `testbed.core.server_round` is the
protocol around it.

Moments are numbers of one unit, which is the caller's, and ranks (`testbed.core.orders`; the lowest
goes first) of any: they are compared, and no more.
"""

import heapq
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Literal

from testbed.core.paradigm import Paradigm, Sharing

Resource = Literal["compute", "transmit"]


@dataclass(frozen=True)
class Start:
    """A client's turn at a resource begins."""

    resource: Resource
    client: int
    at: float
    """When everything it had to wait for was there."""


@dataclass(frozen=True, order=True)
class Waiting:
    """A place in a queue: first what counts, then when it came, then who."""

    rank: float
    enqueued: float
    client: int
    ready: float = field(compare=False)
    """When the gate let it into the queue."""


class _Server:
    """One resource: gate, queue, and since when it is free."""

    def __init__(self, resource: Resource, sharing: Sharing, gated: bool, clients: int):
        self.resource = resource
        self.sequential = sharing == "sequential"
        self.gated = gated
        self.clients = clients
        self.busy = False
        self.serves = 0
        """Whom, where it is sequential and busy."""
        self.free = 0.0
        self.queue: list[Waiting] = []
        self.held: dict[int, list[Waiting]] = defaultdict(list)

    def enqueue(self, client: int, iteration: int, now: float, rank: float) -> None:
        waiting = Waiting(rank, now, client, now)
        if not self.gated:
            heapq.heappush(self.queue, waiting)
            return
        self.held[iteration].append(waiting)
        self._pass_gate(iteration, now)

    def _pass_gate(self, iteration: int, now: float) -> None:
        held = self.held[iteration]
        if len(held) == self.clients:
            ready = max(now, *(waiting.enqueued for waiting in held))
            for waiting in self.held.pop(iteration):
                heapq.heappush(self.queue, replace(waiting, ready=ready))

    def lose(self, client: int, now: float) -> None:
        self.clients -= 1
        self.queue = [waiting for waiting in self.queue if waiting.client != client]
        heapq.heapify(self.queue)
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
            waiting = heapq.heappop(self.queue)
            at = max(waiting.ready, self.free) if self.sequential else waiting.ready
            started.append(Start(self.resource, waiting.client, at))
            self.busy, self.serves = True, waiting.client
        return started


class Schedule:
    """The schedule of one round for K clients under a paradigm."""

    def __init__(self, paradigm: Paradigm, clients: int):
        self._compute = _Server(
            "compute", paradigm.server_compute, paradigm.compute_waits_for_all, clients
        )
        self._transmit = _Server(
            "transmit",
            paradigm.gradient_transmission,
            paradigm.transmission_waits_for_all,
            clients,
        )

    def smashed_arrived(self, client: int, iteration: int, now: float, rank: float) -> None:
        """Smashed data are in; `rank` is that for sequential computing."""
        self._compute.enqueue(client, iteration, now, rank)

    def computed(self, client: int, iteration: int, now: float, rank: float) -> None:
        """A gradient is ready; `rank` is that for sequential transmission."""
        self._compute.release(now)
        self._transmit.enqueue(client, iteration, now, rank)

    def adapters_ready(self, client: int, now: float) -> None:
        """The global adapters are to be sent, in an asynchronous round."""
        self._transmit.enqueue(client, 0, now, 0)

    def delivered(self, now: float) -> None:
        """A gradient, or the adapters of an asynchronous round, have arrived at their client."""
        self._transmit.release(now)

    def lost(self, client: int, now: float) -> None:
        """A client has left the round: nobody waits for it, and what it held is free."""
        self._compute.lose(client, now)
        self._transmit.lose(client, now)

    def waiting(self) -> dict[Resource, list[int]]:
        """Clients that wait for each resource, by their turn; then those whom a gate holds back.

        Any thread may ask.
        """
        return {server.resource: server.waiting() for server in (self._compute, self._transmit)}

    def start(self) -> list[Start]:
        """What begins now; call it when all that happened at this moment has been told."""
        return self._compute.start() + self._transmit.start()
