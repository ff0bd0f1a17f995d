# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""An asynchronous round at the base station as a protocol without I/O, as `server_round` is of the
others.

What goes on for one client, with events (▸) and instructions (◂)::

    ◂ SendAdapters  SM  ▸ BroadcastReceived
        per iteration
            ▸ SmashedArrived  ◂ Compute  S  ▸ Computed  ◂ SendGradient  SG  ▸ GradientDelivered
    ▸ UpdateArrived ◂ Mix, and ◂ SendAdapters anew; or ◂ Finish, once all updates are given out
    at any time ▸ Refused, ▸ TimePassed: ◂ GiveUp, or ◂ Abandon where nobody may be dropped

Iterations of a client count on from update to update. The update that a lost client was in is given
to whoever asks for one next.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from testbed.core.paradigm import Paradigm
from testbed.core.schedule import Resource, Schedule
from testbed.core.server_round import (
    Abandon,
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
)


@dataclass(frozen=True)
class UpdateArrived:
    """A client's trained adapters are in: an update is complete."""

    client: int
    at: float


@dataclass(frozen=True)
class Mix:
    """The update goes into the global model."""

    client: int
    staleness: int
    """How many others went in since its client was sent the model."""


@dataclass(frozen=True)
class SendAdapters:
    """A client's turn at the downlink begins: it gets the global adapters as they are now."""

    client: int
    iteration: int
    """The first of its update."""
    at: float


@dataclass(frozen=True)
class Finish:
    """There is no more to do for this client."""

    client: int


Event = (
    BroadcastReceived
    | SmashedArrived
    | Computed
    | GradientDelivered
    | UpdateArrived
    | Refused
    | TimePassed
)
Instruction = Mix | SendAdapters | Compute | SendGradient | Finish | GiveUp | Abandon


@dataclass
class _Client:
    iteration: int = 0
    """Of the last that is over, before an update; else the one that it is in."""
    step: Step = ""
    has_adapters: bool = False
    version: int = 0
    """How many updates were in the model that it was sent."""


class AsynchronousRound:
    """One round for clients that do not wait for each other."""

    def __init__(
        self,
        paradigm: Paradigm,
        clients: Collection[int],
        updates: int,
        iterations: int,
        start: float,
        lost_at: Mapping[int, float] | None = None,
        *,
        drops: bool = False,
    ):
        """Begin.

        Args:
            paradigm: Whose schedule it is.
            clients: Who takes part, from 1.
            updates: Of all of them together.
            iterations: Of an update, I.
            start: When the round does.
            lost_at: When a client counts as lost that has not finished by then.
            drops: Whether the round goes on without a lost client.
        """
        self.here = set(clients)
        self.finished: list[int] = []
        self.lost: dict[int, GiveUp] = {}
        self._lost_at = {k: at for k, at in (lost_at or {}).items() if k in self.here}
        self._drops = drops
        self._schedule = Schedule(paradigm, len(clients))
        self._clients = {client: _Client() for client in clients}
        self._left = updates
        self._iterations = iterations
        self._version = 0
        self._instructions: list[Instruction] = []
        for client in sorted(clients):
            self._next_update(client, start)

    @property
    def is_over(self) -> bool:
        """Whether everybody has finished."""
        return not self.here

    @property
    def next_loss(self) -> float:
        """When the next client counts as lost if it has not finished; infinity: never."""
        return min((self._lost_at[k] for k in self.here & self._lost_at.keys()), default=math.inf)

    def has_broadcast(self, client: int) -> bool:
        """Whether it has the adapters of its update."""
        return self._clients[client].has_adapters

    def may_be_lost(self, client: int) -> bool:
        """Whether it is, or will be if it does not finish before."""
        return client in self.lost or client in self._lost_at

    def lose_at(self, clients: Collection[int], at: float, *, drops: bool) -> None:
        """See `ServerRound.lose_at`."""
        self._drops = drops
        for client in self.here & set(clients):
            self._lost_at[client] = min(at, self._lost_at.get(client, math.inf))

    def waiting(self) -> dict[Resource, list[int]]:
        """See `Schedule.waiting`; any thread may ask."""
        return self._schedule.waiting()

    def tell(self, event: Event) -> None:
        """Take note of what happened; what is told of clients that are gone is nobody's concern."""
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
                self._schedule.smashed_arrived(event.client, event.iteration, event.at, 0)
            case Computed():
                client.step = ""
                self._schedule.computed(event.client, client.iteration, event.at, 0)
            case GradientDelivered():
                client.step = ""
                self._schedule.delivered(event.at)
            case UpdateArrived():
                staleness = self._version - client.version
                self._instructions.append(Mix(event.client, staleness))
                self._version += 1
                client.has_adapters = False
                self._next_update(event.client, event.at)
            case Refused():
                self._lose(event.client, event.at, event.why)

    def instructions(self) -> list[Instruction]:
        """What begins now; ask when all that happened at this moment has been told."""
        for start in self._schedule.start():
            client = self._clients[start.client]
            if start.resource == "compute":
                client.step = "S"
                self._instructions.append(Compute(start.client, client.iteration, start.at))
            elif client.has_adapters:
                client.step = "SG"
                self._instructions.append(SendGradient(start.client, client.iteration, start.at))
            else:
                client.step, client.version = "SM", self._version
                first = client.iteration + 1
                self._instructions.append(SendAdapters(start.client, first, start.at))
        given, self._instructions = self._instructions, []
        return given

    def _next_update(self, client: int, now: float) -> None:
        if self._left:
            self._left -= 1
            self._schedule.adapters_ready(client, now)
        else:
            self.here.remove(client)
            self.finished.append(client)
            self._instructions.append(Finish(client))

    def _lose(self, client: int, at: float, refused: str = "") -> None:
        if not self._drops:
            self._instructions.append(Abandon(client, at, refused))
            return
        state = self._clients[client]
        # Adapters that are on their way belong to the iteration that is to come.
        iteration = state.iteration + (state.step == "SM")
        self.lost[client] = GiveUp(client, at, refused, iteration, state.step)
        self._instructions.append(self.lost[client])
        self.here.remove(client)
        self._left += 1
        self._schedule.lost(client, at)
