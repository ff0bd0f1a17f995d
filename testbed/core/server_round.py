# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A round at the base station as a protocol without I/O: who waits, who is served, who is lost.

Theory of operation. A driver tells what happened, all of a moment, and then asks what begins now,
so that ties are seen whole; it carries that out with its own clock and links. The emulated base
station's threads are one driver (`workloads.nodes.server_round`), ns-3's packets the other
(`orchestrator.packet_simulation.round`). Nothing in this file knows a socket, a thread or a clock.

What goes on for one client, with events (▸) and instructions (◂)::

    SM  ▸ BroadcastReceived; when all have it ◂ StartClients
    per iteration
        ▸ SmashedArrived  ◂ Compute  S  ▸ Computed  ◂ SendGradient  SG  ▸ GradientDelivered
    ▸ AdaptersArrived: it has finished
    at any time ▸ Refused, ▸ TimePassed: ◂ GiveUp, or ◂ Abandon where nobody may be dropped

Moments and durations are numbers of one unit, the driver's: emulated seconds, or whole nanoseconds,
which keep ties exact. They are added, subtracted and compared, and no more.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from testbed.core import orders
from testbed.core.errors import RunError
from testbed.core.orders import Ahead
from testbed.core.paradigm import Paradigm
from testbed.core.schedule import Resource, Schedule

Step = Literal["", "SM", "S", "SG"]
"""What the base station does for a client; nothing while it is the client's turn."""


# What happened. Clients and iterations count from 1.


@dataclass(frozen=True)
class BroadcastReceived:
    """The client says that it has had the global adapters since then."""

    client: int
    at: float


@dataclass(frozen=True)
class SmashedArrived:
    """A client's smashed data are in."""

    client: int
    iteration: int
    sent: float
    at: float
    compute: float
    """τ_CB(i-1) + τ_CF(i): what the client has computed for."""


@dataclass(frozen=True)
class Computed:
    """The server's forward and backward pass for a client is over."""

    client: int
    at: float


@dataclass(frozen=True)
class GradientDelivered:
    """The client says that it has the gradient."""

    client: int
    sent: float
    arrived: float
    """When the client had it."""
    at: float
    """From when on the downlink is free for the next."""


@dataclass(frozen=True)
class AdaptersArrived:
    """A client's trained adapters are in: it has finished."""

    client: int


@dataclass(frozen=True)
class Refused:
    """A client has sent what it should not have."""

    client: int
    at: float
    why: str


@dataclass(frozen=True)
class TimePassed:
    """It is that late: clients whose time is over are lost."""

    at: float


Event = (
    BroadcastReceived
    | SmashedArrived
    | Computed
    | GradientDelivered
    | AdaptersArrived
    | Refused
    | TimePassed
)

# What begins.


@dataclass(frozen=True)
class StartClients:
    """All clients that are left have the broadcast: tell them to start together."""

    clients: tuple[int, ...]
    at: float
    """The moment that all of them start at: when the last one had it."""


@dataclass(frozen=True)
class Compute:
    """A client's turn at the server's computing begins."""

    client: int
    iteration: int
    at: float


@dataclass(frozen=True)
class SendGradient:
    """A client's turn at the downlink begins."""

    client: int
    iteration: int
    at: float


@dataclass(frozen=True)
class GiveUp:
    """The round goes on without a client: have no more to do with it."""

    client: int
    at: float
    refused: str
    """What was wrong with what it sent; nothing, where it was silence."""
    iteration: int
    step: Step
    """What was being done for it."""


@dataclass(frozen=True)
class Abandon:
    """The round may not go on without this client, which is lost."""

    client: int
    at: float
    refused: str


Instruction = StartClients | Compute | SendGradient | GiveUp | Abandon


@dataclass
class _Client:
    iteration: int = 1
    step: Step = "SM"
    compute: float = 0
    """τ_CB(i-1) + τ_CF(i)."""
    upload: float = 0
    """τ_CA(i)."""
    gradient: float | None = None
    """τ_SG(i-1), the last summand of eq. (22); None: there was none yet."""
    compute_start: float = 0


@dataclass(frozen=True)
class Outlook:
    """What an order may know that is none of the paper's."""

    ahead: Callable[[int, int, float], Ahead]
    """Of a client and an iteration, by the moment at which it is asked."""
    start: float
    """When the round began."""
    second: float = 1
    """How many of the driver's units there are in a second."""


class ServerRound:
    """One round for the clients that take part, under a paradigm."""

    def __init__(
        self,
        paradigm: Paradigm,
        clients: Collection[int],
        first_gradient: Callable[[int, float], float],
        lost_at: Mapping[int, float] | None = None,
        *,
        outlook: Outlook | None = None,
        drops: bool = False,
    ):
        """Begin.

        Args:
            paradigm: Whose schedule it is.
            clients: Who takes part, from 1.
            first_gradient: τ'_SG(0) of a client whose smashed data are in at a moment.
            lost_at: When a client counts as lost that has not finished by then.
            outlook: Asked where the paradigm's order is none of the paper's.
            drops: Whether the round goes on without a lost client.
        """
        self.here = set(clients)
        """Who takes part still: has neither finished nor been lost."""
        self.finished: list[int] = []
        self.lost: dict[int, GiveUp] = {}
        self._paradigm = paradigm
        self._rank_of = paradigm.rank
        self._outlook = outlook
        self._schedule = Schedule(paradigm, len(clients))
        self._first_gradient = first_gradient
        self._lost_at = {k: at for k, at in (lost_at or {}).items() if k in self.here}
        self._drops = drops
        self._clients = {client: _Client() for client in clients}
        self._without_broadcast: set[int] | None = set(clients)
        """None: all have started."""
        self._start_at: float = 0
        self._instructions: list[Instruction] = []

    @property
    def is_over(self) -> bool:
        """Whether everybody has started, and then finished or been lost."""
        return self._without_broadcast is None and not self.here

    @property
    def next_loss(self) -> float:
        """When the next client counts as lost if it has not finished; infinity: never."""
        return min((self._lost_at[k] for k in self.here & self._lost_at.keys()), default=math.inf)

    def has_broadcast(self, client: int) -> bool:
        """Whether it has the broadcast."""
        return self._clients[client].step != "SM"

    def may_be_lost(self, client: int) -> bool:
        """Whether it is, or will be if it does not finish before."""
        return client in self.lost or client in self._lost_at

    def lose_at(self, clients: Collection[int], at: float, *, drops: bool) -> None:
        """Let clients count as lost at a moment, if they have not finished by then."""
        self._drops = drops
        for client in self.here & set(clients):
            self._lost_at[client] = min(at, self._lost_at.get(client, math.inf))

    def waiting(self) -> dict[Resource, list[int]]:
        """See `Schedule.waiting`; any thread may ask."""
        return self._schedule.waiting()

    def tell(self, event: Event) -> None:
        """Take note of what happened; what is told of clients that are gone is nobody's concern."""
        if isinstance(event, TimePassed):
            for client in sorted(self.here & self._lost_at.keys()):
                if self._lost_at[client] <= event.at:
                    self._lose(client, self._lost_at[client])
        elif event.client in self.here:
            self._told(event, self._clients[event.client])

    def _told(self, event: Event, client: _Client) -> None:
        match event:
            case BroadcastReceived():
                client.step = ""
                self._has_broadcast(event.client, event.at)
            case SmashedArrived():
                client.iteration = event.iteration
                client.compute, client.upload = event.compute, event.at - event.sent
                rank = self._rank("compute", event.client, event.at)
                self._schedule.smashed_arrived(event.client, event.iteration, event.at, rank)
            case Computed():
                client.step = ""
                rank = self._rank("transmit", event.client, event.at)
                self._schedule.computed(event.client, client.iteration, event.at, rank)
            case GradientDelivered():
                client.step = ""
                client.gradient = event.arrived - event.sent
                self._schedule.delivered(event.at)
            case AdaptersArrived():
                self.here.remove(event.client)
                self.finished.append(event.client)
            case Refused():
                self._lose(event.client, event.at, event.why)

    def _rank(self, resource: Resource, number: int, at: float) -> float:
        """Of a client that comes to a resource: the lowest is served first."""
        client, order = self._clients[number], self._paradigm.order
        if order == orders.FIRST_COME:
            return 0
        if order == orders.LARGER_LAG:
            return -self._lag(resource, number, at)
        sharing = self._paradigm.server_compute
        if resource == "transmit":
            sharing = self._paradigm.gradient_transmission
        if sharing == "parallel":
            return 0  # Nobody waits.
        assert self._rank_of is not None
        assert self._outlook is not None
        second, ahead = self._outlook.second, self._outlook.ahead(number, client.iteration, at)
        at_downlink = resource == "transmit"
        asked = orders.request(
            at_downlink,
            number,
            client.iteration,
            (at - self._outlook.start) / second,
            client.compute / second,
            client.upload / second,
            (at - client.compute_start) / second if at_downlink else ahead.server_s,
            -1.0 if client.gradient is None else client.gradient / second,
            ahead,
        )
        rank = self._rank_of(asked)
        if (place := orders.place(rank)) == orders.NO_RANK:
            raise RunError(f"order: {order!r} answers with {rank} to {asked}")
        return place

    def _lag(self, resource: Resource, number: int, at: float) -> float:
        """Eq. (22) before computing, eq. (12) before the downlink."""
        client = self._clients[number]
        lag = client.compute + client.upload
        if resource == "transmit":
            return lag + at - client.compute_start
        if client.gradient is not None:
            return lag + client.gradient
        return lag + self._first_gradient(number, at)

    def instructions(self) -> list[Instruction]:
        """What begins now; ask when all that happened at this moment has been told."""
        if self._without_broadcast is not None and not self._without_broadcast:
            self._without_broadcast = None
            self._instructions.append(StartClients(tuple(sorted(self.here)), self._start_at))
        for start in self._schedule.start():
            client = self._clients[start.client]
            if start.resource == "compute":
                client.step, client.compute_start = "S", start.at
                self._instructions.append(Compute(start.client, client.iteration, start.at))
            else:
                client.step = "SG"
                self._instructions.append(SendGradient(start.client, client.iteration, start.at))
        given, self._instructions = self._instructions, []
        return given

    def _has_broadcast(self, client: int, at: float) -> None:
        """The client has it, or will never have it."""
        if self._without_broadcast is not None:
            self._without_broadcast.discard(client)
            self._start_at = max(self._start_at, at)

    def _lose(self, client: int, at: float, refused: str = "") -> None:
        if not self._drops:
            self._instructions.append(Abandon(client, at, refused))
            return
        state = self._clients[client]
        self.lost[client] = GiveUp(client, at, refused, state.iteration, state.step)
        self._instructions.append(self.lost[client])
        self.here.remove(client)
        self._has_broadcast(client, at)
        self._schedule.lost(client, at)
