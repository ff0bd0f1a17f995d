# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A round at the base station as a protocol without I/O: waiting, service and loss of clients.

Theory of operation. A driver passes in all events of the same time and then asks for the
instructions that follow, so that ties are resolved correctly; it carries them out with its own
clock and links. One driver is the emulated base station (`workloads.nodes.server_round`), the other
one predicts rounds (`orchestrator.rounds.conductor`). This file uses no sockets, threads or clocks.

Sequence for one client, with events (▸) and instructions (◂)::

    SM  ▸ BroadcastReceived; after all clients ◂ StartClients per iteration
        ▸ SmashedArrived  ◂ Compute  S  ▸ Computed  ◂ SendGradient  SG  ▸ GradientDelivered
    ▸ AdaptersArrived: the client has finished at any time ▸ Refused, ▸ TimePassed: ◂ GiveUp, or ◂
    Abandon if no client may be dropped

Where clients ask before they upload (`Paradigm.asks`), ▸ UploadReady ◂ AllowUpload precede an
upload. Where gradients are aggregated, ▸ Computed of all clients ◂ SendShared ▸ SharedReceived of
all clients precede ◂ SendGradient; if all gradients are aggregated, ◂ ContinueClients follows
instead.

Times and durations are numbers in the driver's unit: emulated seconds, or whole nanoseconds, which
keep ties exact. They are only added, subtracted and compared.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from testbed.core.paradigm import Paradigm
from testbed.core.ranks import Outlook, Ranks, Standing
from testbed.core.schedule import Resource, Schedule

Step = Literal["", "SM", "S", "SG"]
"""The step of the base station for a client; empty while the client itself computes or sends."""


# Events. Clients and iterations count from 1.


@dataclass(frozen=True)
class BroadcastReceived:
    """A client reports that it received the global adapters at time `at`."""

    client: int
    at: float


@dataclass(frozen=True)
class SmashedArrived:
    """A client's smashed data have arrived."""

    client: int
    iteration: int
    sent: float
    at: float
    compute: float
    """τ_CB(i-1) + τ_CF(i): duration of the client's computing."""


@dataclass(frozen=True)
class Computed:
    """The server has finished the forward and backward pass for a client."""

    client: int
    at: float


@dataclass(frozen=True)
class GradientDelivered:
    """A client reports that it has received the gradient."""

    client: int
    sent: float
    arrived: float
    """Time of arrival at the client."""
    at: float
    """Time from which the downlink is free for the next transfer."""


@dataclass(frozen=True)
class SharedReceived:
    """A client reports that it has received the aggregated gradients at time `at`."""

    client: int
    at: float


@dataclass(frozen=True)
class UploadReady:
    """A client asks to upload smashed data or adapters, which are ready at time `at`."""

    client: int
    at: float
    adapters: bool


@dataclass(frozen=True)
class AdaptersArrived:
    """A client's trained adapters have arrived: it has finished."""

    client: int
    at: float = 0


@dataclass(frozen=True)
class Refused:
    """A client has sent an invalid frame."""

    client: int
    at: float
    why: str


@dataclass(frozen=True)
class TimePassed:
    """Time has advanced to `at`: clients whose time limit has passed are lost."""

    at: float


Event = (
    BroadcastReceived
    | SmashedArrived
    | Computed
    | GradientDelivered
    | SharedReceived
    | UploadReady
    | AdaptersArrived
    | Refused
    | TimePassed
)

# Instructions.


@dataclass(frozen=True)
class StartClients:
    """All remaining clients have the broadcast: start them together."""

    clients: tuple[int, ...]
    at: float
    """Common start time: when the last client had received the broadcast."""


@dataclass(frozen=True)
class Compute:
    """Start server computing for a client."""

    client: int
    iteration: int
    at: float


@dataclass(frozen=True)
class SendGradient:
    """Start to send a gradient to a client."""

    client: int
    iteration: int
    at: float


@dataclass(frozen=True)
class SendShared:
    """All gradients of an iteration are computed: broadcast the aggregated ones."""

    clients: tuple[int, ...]
    iteration: int
    at: float


@dataclass(frozen=True)
class ContinueClients:
    """All clients have the aggregated gradients, and there are no others: continue together."""

    clients: tuple[int, ...]
    at: float


@dataclass(frozen=True)
class AllowUpload:
    """A client may send what it has asked to upload."""

    client: int
    at: float


@dataclass(frozen=True)
class SetPriorities:
    """The gradients that are being sent are others than before: set the order in which the radio's
    scheduler serves their packets."""

    clients: tuple[int, ...]
    """Clients whose gradient has not arrived yet; the first one is served first."""


@dataclass(frozen=True)
class GiveUp:
    """Drop a client: the round continues without it."""

    client: int
    at: float
    refused: str
    """Error in the frame that the client sent; empty if it sent nothing in time."""
    iteration: int
    step: Step
    """Step of the base station for the client at that time."""


@dataclass(frozen=True)
class Abandon:
    """End the round, because a client is lost and must not be dropped."""

    client: int
    at: float
    refused: str


Instruction = (
    StartClients
    | Compute
    | SendGradient
    | SendShared
    | ContinueClients
    | AllowUpload
    | SetPriorities
    | GiveUp
    | Abandon
)


@dataclass
class _Client(Standing):
    step: Step = "SM"
    place: tuple[float, float, int] = (0, 0, 0)
    """Place of its gradient in the service order: the rank, the time of arrival and the number."""


class ServerRound:
    """One round of the participating clients under a paradigm."""

    def __init__(
        self,
        paradigm: Paradigm,
        clients: Collection[int],
        first_gradient: Callable[[int, float], float],
        lost_at: Mapping[int, float] | None = None,
        *,
        outlook: Outlook | None = None,
        drops: bool = False,
        mac_orders: bool = False,
        own_gradients: bool = True,
        tick: float | None = None,
        iterations: Mapping[int, int] | None = None,
        places: Callable[[Resource, int, int], int] | None = None,
    ):
        """Begin the round.

        Args:
            paradigm: Determines the schedule.
            clients: Participating clients, from 1, in the order of scheduled uploads.
            first_gradient: τ'_SG(0) by client and arrival time of its smashed data.
            lost_at: Time at which an unfinished client counts as lost.
            outlook: Used if the paradigm's order is not one of the paper's.
            drops: Whether the round continues without a lost client.
            mac_orders: Whether the radio's scheduler orders sequential gradients: each is sent once
                it is computed, and `SetPriorities` gives the order of service.
            own_gradients: Whether some gradients are not aggregated, if the paradigm aggregates
                any, so that each client is also sent separate gradients.
            tick: Unit in which lags and times of arrival are compared, so that rounding errors do
                not break ties; None: they are compared as they are.
            iterations: Number of iterations of each client. Default: the same number for all.
            places: Place of a client's iteration in the order in which a resource serves, from 0,
                in place of the paradigm's order. Sequential resources then wait for the client with
                the next place.
        """
        self.here = set(clients)
        """Clients that have neither finished nor been lost."""
        self.finished: list[int] = []
        self.lost: dict[int, GiveUp] = {}
        self._paradigm = paradigm
        self._ranks = Ranks(paradigm, first_gradient, outlook, tick, places)
        self._mac_orders = mac_orders and paradigm.gradient_transmission == "sequential"
        if self._mac_orders:
            paradigm = replace(paradigm, gradient_transmission="parallel")
        own = {client: n for client, n in (iterations or {}).items() if client in self.here}
        self._schedule = Schedule(paradigm, clients, tick, own, in_places=places is not None)
        self._own_gradients = own_gradients
        self._computed: dict[int, float] = {}
        """Clients whose gradients wait to be aggregated, with the times when they were computed."""
        self._shared: dict[int, float] = {}
        """Clients that have the aggregated gradients, with the times of arrival."""
        self._lack_shared: set[int] | None = None
        """Clients that lack the aggregated gradients; None: none are being broadcast."""
        self._sending: set[int] = set()
        """Clients whose gradient is being sent, if the radio's scheduler orders them."""
        self._served_order: tuple[int, ...] = ()
        """The clients of the last `SetPriorities`."""
        self._lost_at = {k: at for k, at in (lost_at or {}).items() if k in self.here}
        self._drops = drops
        self._clients = {client: _Client() for client in clients}
        self._without_broadcast: set[int] | None = set(clients)
        """Clients that lack the broadcast; None: all have started."""
        self._start_at: float = 0
        self._instructions: list[Instruction] = []

    @property
    def is_over(self) -> bool:
        """Whether all clients have started, and then finished or been lost."""
        return self._without_broadcast is None and not self.here

    @property
    def next_loss(self) -> float:
        """Earliest time at which an unfinished client counts as lost; infinity: never."""
        if not self._lost_at:
            return math.inf
        return min((self._lost_at[k] for k in self.here & self._lost_at.keys()), default=math.inf)

    def has_broadcast(self, client: int) -> bool:
        """Whether the client has the broadcast."""
        return self._clients[client].step != "SM"

    def may_be_lost(self, client: int) -> bool:
        """Whether the client is lost, or will be if it does not finish in time."""
        return client in self.lost or client in self._lost_at

    def lose_at(self, clients: Collection[int], at: float, *, drops: bool) -> None:
        """Treat these clients as lost at time `at` if they have not finished."""
        self._drops = drops
        for client in self.here & set(clients):
            self._lost_at[client] = min(at, self._lost_at.get(client, math.inf))

    def waiting(self) -> dict[Resource, list[int]]:
        """See `Schedule.waiting`; may be called by any thread."""
        return self._schedule.waiting()

    def tell(self, event: Event) -> None:
        """Process an event; events of lost or finished clients are ignored."""
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
                self._schedule.uploaded(event.client, event.at)
                rank = self._ranks.rank("compute", event.client, client, event.at)
                self._schedule.smashed_arrived(event.client, event.iteration, event.at, rank)
            case Computed():
                client.step = ""
                self._schedule.computing_over(event.at)
                if self._paradigm.gradient_aggregation:
                    self._computed[event.client] = event.at
                else:
                    self._gradient_ready(event.client, event.at)
            case GradientDelivered():
                client.step = ""
                client.gradient = event.arrived - event.sent
                self._sending.discard(event.client)
                self._schedule.delivered(event.at)
            case SharedReceived():
                self._shared[event.client] = event.at
                if self._lack_shared is not None:
                    self._lack_shared.discard(event.client)
            case UploadReady():
                self._schedule.upload_ready(event.client, event.at, adapters=event.adapters)
            case AdaptersArrived():
                self._schedule.finished(event.client, event.at)
                self.here.remove(event.client)
                self.finished.append(event.client)
            case Refused():
                self._lose(event.client, event.at, event.why)

    def _gradient_ready(self, number: int, at: float) -> None:
        """Add a gradient to the queue of the downlink from a time on."""
        client = self._clients[number]
        rank = self._ranks.rank("transmit", number, client, at)
        client.place = (rank, at, number)
        self._schedule.gradient_ready(number, client.iteration, at, rank)

    def _lost_times(self) -> list[float]:
        """The times at which clients were lost: a gate that waited for one opens no earlier."""
        return [lost.at for lost in self.lost.values()]

    def _aggregate(self) -> None:
        """Broadcast the aggregated gradients once all are computed; continue once all clients have
        them."""
        if self._lack_shared is None and self._computed and self._computed.keys() == self.here:
            clients = tuple(sorted(self._computed))
            at = max([*self._computed.values(), *self._lost_times()])
            for number in clients:
                self._clients[number].step = "SG"
            self._lack_shared = set(clients)
            self._computed, self._shared = {}, {}
            iteration = self._clients[clients[0]].iteration
            self._instructions.append(SendShared(clients, iteration, at))
        elif self._lack_shared is not None and not self._lack_shared:
            self._lack_shared = None
            clients = tuple(sorted(self._shared.keys() & self.here))
            at = max([*self._shared.values(), *self._lost_times()], default=0)
            if self._own_gradients:
                for number in clients:
                    self._gradient_ready(number, at)
            elif clients:
                for number in clients:
                    self._clients[number].step = ""
                self._instructions.append(ContinueClients(clients, at))

    def instructions(self, *, transmits: bool = True) -> list[Instruction]:
        """Instructions that follow; call it after all events of the same time.

        Args:
            transmits: See `Schedule.start`.
        """
        if self._without_broadcast is not None and not self._without_broadcast:
            self._without_broadcast = None
            self._instructions.append(StartClients(tuple(sorted(self.here)), self._start_at))
        self._aggregate()
        starts = self._schedule.start(transmits=transmits)
        if self._mac_orders:
            self._sending |= {start.client for start in starts if start.resource == "transmit"}
            order = tuple(sorted(self._sending, key=lambda client: self._clients[client].place))
            if order != self._served_order:
                self._served_order = order
                self._instructions.append(SetPriorities(order))
        for start in starts:
            client = self._clients[start.client]
            if start.resource == "upload":
                self._instructions.append(AllowUpload(start.client, start.at))
            elif start.resource == "compute":
                client.step, client.compute_start = "S", start.at
                self._instructions.append(Compute(start.client, client.iteration, start.at))
            else:
                client.step = "SG"
                self._instructions.append(SendGradient(start.client, client.iteration, start.at))
        given, self._instructions = self._instructions, []
        return given

    def _has_broadcast(self, client: int, at: float) -> None:
        """Record that a client has the broadcast, or is lost."""
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
        self._sending.discard(client)
        self._computed.pop(client, None)
        if self._lack_shared is not None:
            self._lack_shared.discard(client)
        self._has_broadcast(client, at)
        self._schedule.lost(client, at)
