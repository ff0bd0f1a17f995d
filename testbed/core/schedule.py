"""Who is served next: the server's schedule as a state machine without clock or I/O.

It is told what happened and answers what starts now. Everything that decides about order, queues
and gates of the emulated base station is in this file; how long things take is not. The engine
states the same rules in compiled form, and tests hold the two together.
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
    at_s: float
    """When everything it had to wait for was there."""


@dataclass(frozen=True, order=True)
class Waiting:
    """A place in a queue: first what counts, then when it came, then who."""

    rank: float
    enqueued_s: float
    client: int
    ready_s: float = field(compare=False)
    """When the gate let it into the queue."""


class _Server:
    """One resource: gate, queue, and since when it is free."""

    def __init__(
        self, resource: Resource, sharing: Sharing, by_lag: bool, gated: bool, clients: int
    ):
        self.resource = resource
        self.sequential = sharing == "sequential"
        self.by_lag = by_lag
        self.gated = gated
        self.clients = clients
        self.busy = False
        self.serves = 0
        """Whom, where it is sequential and busy."""
        self.free_s = 0.0
        self.queue: list[Waiting] = []
        self.held: dict[int, list[Waiting]] = defaultdict(list)

    def enqueue(self, client: int, iteration: int, now_s: float, lag_s: float) -> None:
        waiting = Waiting(-lag_s if self.by_lag else 0.0, now_s, client, now_s)
        if not self.gated:
            heapq.heappush(self.queue, waiting)
            return
        self.held[iteration].append(waiting)
        self._pass_gate(iteration, now_s)

    def _pass_gate(self, iteration: int, now_s: float) -> None:
        held = self.held[iteration]
        if len(held) == self.clients:
            ready_s = max(now_s, *(waiting.enqueued_s for waiting in held))
            for waiting in self.held.pop(iteration):
                heapq.heappush(self.queue, replace(waiting, ready_s=ready_s))

    def lose(self, client: int, now_s: float) -> None:
        self.clients -= 1
        self.queue = [waiting for waiting in self.queue if waiting.client != client]
        heapq.heapify(self.queue)
        if self.busy and self.serves == client:
            self.release(now_s)
        for iteration, held in list(self.held.items()):
            held[:] = [waiting for waiting in held if waiting.client != client]
            if held:
                self._pass_gate(iteration, now_s)

    def release(self, now_s: float) -> None:
        self.busy = False
        self.free_s = now_s

    def waiting(self) -> list[int]:
        held = [waiting for group in list(self.held.values()) for waiting in list(group)]
        return [waiting.client for waiting in [*sorted(self.queue.copy()), *held]]

    def start(self) -> list[Start]:
        started = []
        while self.queue and not (self.sequential and self.busy):
            waiting = heapq.heappop(self.queue)
            at_s = max(waiting.ready_s, self.free_s) if self.sequential else waiting.ready_s
            started.append(Start(self.resource, waiting.client, at_s))
            self.busy, self.serves = True, waiting.client
        return started


class Schedule:
    """The schedule of one round for K clients under a paradigm. Times in emulated seconds."""

    def __init__(self, paradigm: Paradigm, clients: int):
        by_lag = paradigm.order == "larger-lag"
        self._compute = _Server(
            "compute", paradigm.server_compute, by_lag, paradigm.compute_waits_for_all, clients
        )
        self._transmit = _Server(
            "transmit",
            paradigm.gradient_transmission,
            by_lag,
            paradigm.transmission_waits_for_all,
            clients,
        )

    def smashed_arrived(self, client: int, iteration: int, now_s: float, lag_s: float) -> None:
        """Smashed data are in; `lag_s` is the lag for sequential computing."""
        self._compute.enqueue(client, iteration, now_s, lag_s)

    def computed(self, client: int, iteration: int, now_s: float, lag_s: float) -> None:
        """A gradient is ready; `lag_s` is the lag for sequential transmission."""
        self._compute.release(now_s)
        self._transmit.enqueue(client, iteration, now_s, lag_s)

    def delivered(self, now_s: float) -> None:
        """A gradient has arrived at its client."""
        self._transmit.release(now_s)

    def lost(self, client: int, now_s: float) -> None:
        """A client has left the round: nobody waits for it, and what it held is free."""
        self._compute.lose(client, now_s)
        self._transmit.lose(client, now_s)

    def waiting(self) -> dict[Resource, list[int]]:
        """Clients that wait for each resource, by their turn; then those whom a gate holds back.

        Any thread may ask.
        """
        return {server.resource: server.waiting() for server in (self._compute, self._transmit)}

    def start(self) -> list[Start]:
        """What begins now; call it when all that happened at this moment has been told."""
        return self._compute.start() + self._transmit.start()
