# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""All rounds of an asynchronous run at the base station as a protocol without I/O; `server_round`
is the protocol of synchronous rounds.

Sequence for one client, with events (▸) and instructions (◂)::

    ◂ SendAdapters  SM  ▸ BroadcastReceived
        per iteration
            ▸ SmashedArrived  ◂ Compute  S  ▸ Computed  ◂ SendGradient  SG  ▸ GradientDelivered
    ▸ UpdateArrived ◂ Mix, ◂ Aggregate if the buffer is full, then ◂ SendAdapters again
    at any time ▸ Refused, ▸ TimePassed: ◂ GiveUp, or ◂ Abandon if no client may be dropped

Where clients ask before they upload (`Paradigm.asks`), ▸ UploadReady ◂ AllowUpload precede an
upload. Sequential resources serve by the paradigm's order; the adapters of an update wait for the
downlink like gradients do. No turn waits for a client that has not asked for the resource.

The run is over when all updates have arrived. Updates that are in progress then are finished,
but no longer mixed; a client that has none receives ◂ Finish. Iterations of a client are counted
across updates.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from testbed.core.paradigm import Paradigm
from testbed.core.ranks import Outlook, Ranks, Standing
from testbed.core.schedule import Resource, Schedule
from testbed.core.server_round import (
    Abandon,
    AllowUpload,
    BroadcastReceived,
    Compute,
    Computed,
    GiveUp,
    GradientDelivered,
    Refused,
    SendGradient,
    SmashedArrived,
    Step,
    TimePassed,
    UploadReady,
)


@dataclass(frozen=True)
class UpdateArrived:
    """A client's trained adapters have arrived: an update is complete."""

    client: int
    at: float
    compute: float = 0
    """τ_CB of the last iteration."""
    upload: float = 0
    """τ_CM."""


@dataclass(frozen=True)
class Mix:
    """Mix a client's update into the global model, or add it to the buffer if there is one."""

    client: int
    staleness: int
    """Number of times that the global model has changed since the client was sent it."""
    at: float
    """Time at which the update arrived."""


@dataclass(frozen=True)
class Aggregate:
    """Apply the updates in the buffer to the global model."""


@dataclass(frozen=True)
class SendAdapters:
    """Start to send the current global adapters to a client."""

    client: int
    iteration: int
    """First iteration of the client's update."""
    at: float


@dataclass(frozen=True)
class Finish:
    """The client has no further updates."""

    client: int


Event = (
    BroadcastReceived
    | SmashedArrived
    | Computed
    | GradientDelivered
    | UploadReady
    | UpdateArrived
    | Refused
    | TimePassed
)
Instruction = (
    Mix
    | Aggregate
    | SendAdapters
    | AllowUpload
    | Compute
    | SendGradient
    | Finish
    | GiveUp
    | Abandon
)


@dataclass
class _Client(Standing):
    iteration: int = 0
    step: Step = ""
    has_adapters: bool = False
    version: int = 0
    """Number of changes of the model that the client received."""


class AsynchronousRound:
    """All rounds of clients that do not wait for each other."""

    def __init__(
        self,
        paradigm: Paradigm,
        clients: Collection[int],
        updates: int,
        start: float,
        lost_at: Mapping[int, float] | None = None,
        *,
        first_gradient: Callable[[int, float], float] = lambda client, at: 0.0,
        outlook: Outlook | None = None,
        drops: bool = False,
        buffer: int = 1,
        after_aggregation: bool = False,
        tick: float | None = None,
    ):
        """Begin the run.

        Args:
            paradigm: Determines the schedule.
            clients: Participating clients, from 1, in the order of scheduled uploads.
            updates: Number of updates of all clients together that must arrive.
            start: Start time of the run.
            lost_at: Time at which an unfinished client counts as lost.
            first_gradient: See `Ranks`, and so for `outlook` and `tick`.
            outlook: Used if the paradigm's order is not one of the paper's.
            drops: Whether the run continues without a lost client.
            buffer: Number of updates after which the server changes the global model.
            after_aggregation: Whether a client whose update is in the buffer waits until it is
                applied; otherwise it is sent the current model at once. If all clients wait, the
                buffer is applied as it is.
            tick: Unit in which lags and times of arrival are compared; None: as they are.
        """
        self.here = set(clients)
        self.finished: list[int] = []
        self.lost: dict[int, GiveUp] = {}
        self._lost_at = {k: at for k, at in (lost_at or {}).items() if k in self.here}
        self._drops = drops
        self._schedule = Schedule(paradigm, clients, tick)
        self._ranks = Ranks(paradigm, first_gradient, outlook, tick)
        self._clients = {client: _Client() for client in clients}
        self._missing = updates
        self._version = 0
        self._buffer, self._buffered = buffer, 0
        self._after_aggregation = after_aggregation
        self._waiting: set[int] = set()
        """Clients that wait for the buffer to be applied."""
        self._instructions: list[Instruction] = []
        for client in sorted(clients):
            self._next_update(client, start)

    @property
    def is_over(self) -> bool:
        """Whether all clients have finished or are lost."""
        return not self.here

    @property
    def next_loss(self) -> float:
        """Earliest time at which an unfinished client counts as lost; infinity: never."""
        if not self._lost_at:
            return math.inf
        return min((self._lost_at[k] for k in self.here & self._lost_at.keys()), default=math.inf)

    def has_broadcast(self, client: int) -> bool:
        """Whether the client has the adapters of its update."""
        return self._clients[client].has_adapters

    def may_be_lost(self, client: int) -> bool:
        """Whether the client is lost, or will be if it does not finish in time."""
        return client in self.lost or client in self._lost_at

    def lose_at(self, clients: Collection[int], at: float, *, drops: bool) -> None:
        """See `ServerRound.lose_at`."""
        self._drops = drops
        for client in self.here & set(clients):
            self._lost_at[client] = min(at, self._lost_at.get(client, math.inf))

    def waiting(self) -> dict[Resource, list[int]]:
        """See `Schedule.waiting`; may be called by any thread."""
        return self._schedule.waiting()

    def tell(self, event: Event) -> None:
        """Process an event; events of lost or finished clients are ignored."""
        if isinstance(event, TimePassed):
            for number in sorted(self.here & self._lost_at.keys()):
                if self._lost_at[number] <= event.at:
                    self._lose(number, self._lost_at[number])
        elif event.client in self.here:
            self._told(event, self._clients[event.client])

    def _told(self, event: Event, client: _Client) -> None:
        match event:
            case BroadcastReceived():
                client.step, client.has_adapters = "", True
                self._schedule.delivered(event.at)
            case SmashedArrived():
                client.iteration = event.iteration
                client.compute, client.upload = event.compute, event.at - event.sent
                self._schedule.uploaded(event.client, event.at)
                rank = self._ranks.rank("compute", event.client, client, event.at)
                self._schedule.smashed_arrived(event.client, event.iteration, event.at, rank)
            case Computed():
                client.step = ""
                rank = self._ranks.rank("transmit", event.client, client, event.at)
                self._schedule.computed(event.client, client.iteration, event.at, rank)
            case GradientDelivered():
                client.step = ""
                client.gradient = event.arrived - event.sent
                self._schedule.delivered(event.at)
            case UploadReady():
                self._schedule.upload_ready(event.client, event.at, adapters=False)  # without gates
            case UpdateArrived():
                client.has_adapters = False
                client.compute, client.upload = event.compute, event.upload
                self._schedule.uploaded(event.client, event.at)
                self._waiting.add(event.client)
                if self._missing:
                    staleness = self._version - client.version
                    self._instructions.append(Mix(event.client, staleness, event.at))
                    self._missing -= 1
                    self._buffered += 1
                self._go_on(event.at)
            case Refused():
                self._lose(event.client, event.at, event.why)

    def instructions(self, *, transmits: bool = True) -> list[Instruction]:
        """Instructions that follow; call it after all events of the same time.

        Args:
            transmits: See `Schedule.start`.
        """
        for start in self._schedule.start(transmits=transmits):
            client = self._clients[start.client]
            if start.resource == "upload":
                self._instructions.append(AllowUpload(start.client, start.at))
            elif start.resource == "compute":
                client.step, client.compute_start = "S", start.at
                self._instructions.append(Compute(start.client, client.iteration, start.at))
            elif client.has_adapters:
                client.step = "SG"
                self._instructions.append(SendGradient(start.client, client.iteration, start.at))
            else:
                client.step, client.version = "SM", self._version
                self._instructions.append(SendAdapters(start.client, client.first, start.at))
        given, self._instructions = self._instructions, []
        return given

    def _go_on(self, now: float) -> None:
        """Apply the buffer if it is time for it, and let clients continue that may do so."""
        stuck = self._after_aggregation and self._waiting == self.here
        if self._buffered >= self._buffer or (stuck and self._buffered):
            self._buffered = 0
            self._version += 1
            if self._buffer > 1:
                self._instructions.append(Aggregate())
        if not (self._after_aggregation and self._buffered and self._missing):
            for client in sorted(self._waiting):
                self._next_update(client, now)
            self._waiting.clear()
        if not self._missing:
            self._buffered = 0  # The run is over: what is in the buffer is not applied.

    def _next_update(self, client: int, now: float) -> None:
        if self._missing:
            state = self._clients[client]
            state.first, state.compute_start = state.iteration + 1, now
            rank = self._ranks.rank("transmit", client, state, now)
            self._schedule.adapters_ready(client, now, rank)
        else:
            self.here.remove(client)
            self.finished.append(client)
            self._instructions.append(Finish(client))

    def _lose(self, client: int, at: float, refused: str = "") -> None:
        if not self._drops and self._missing:
            self._instructions.append(Abandon(client, at, refused))
            return
        state = self._clients[client]
        # Adapters in transit belong to the next iteration.
        iteration = state.iteration + (state.step == "SM")
        self.lost[client] = GiveUp(client, at, refused, iteration, state.step)
        self._instructions.append(self.lost[client])
        self.here.remove(client)
        self._waiting.discard(client)
        self._schedule.lost(client, at)
        self._go_on(at)
