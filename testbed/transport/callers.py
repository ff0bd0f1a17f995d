# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Who calls: strangers are turned away, one by one, and nobody else notices."""

import hmac
import queue
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import Generic, TypeVar

from testbed.core.node import uav
from testbed.transport.wire import ConnectionLost, WireError

SPARE = 256
"""So many callers, beside those who are due, may be about to greet at a time. One more, and the one
who has taken longest is turned away: those who are of the run greet as soon as they are connected.
"""
MOST_TOLD = 20

Arrival = TypeVar("Arrival")
Greeting = TypeVar("Greeting")
Entered = TypeVar("Entered")


def check_token(given: bytes | bytearray, token: bytes | bytearray) -> None:
    """See that a caller knows the run's token.

    Raises:
        WireError: It does not.
    """
    if not hmac.compare_digest(given, token):
        raise WireError("token: a peer does not know this run's token")


class Callers:
    """Those who have called and not greeted yet: a bounded number, until the door is shut."""

    def __init__(self, due: int) -> None:
        self._most = due + SPARE
        self._turn_away: dict[object, Callable[[], object]] = {}
        """In the order in which they came."""
        self._lock = threading.Lock()
        self._refused = 0
        self.is_shut = False

    def let_in(
        self,
        who: str,
        turn_away: Callable[[], object],
        greet: Callable[[], Greeting],
        enter: Callable[[Greeting], Entered],
    ) -> Entered | None:
        """What `enter` answers; None where a caller is refused, or took too long to greet.

        Args:
            who: The caller's address.
            turn_away: Makes waiting for it end with `ConnectionLost`, from any thread.
            greet: Hears what the caller says first.
            enter: Takes the caller in, who is turned away no longer: the door may be shut before it
                has returned.
        """
        caller = object()
        with self._lock:
            oldest = None
            if self.is_shut:
                oldest = turn_away
            else:
                self._turn_away[caller] = turn_away
                if len(self._turn_away) > self._most:
                    oldest = self._turn_away.pop(next(iter(self._turn_away)))
        if oldest is not None:
            oldest()
        try:
            greeting = greet()
            if not self._remove(caller):
                raise ConnectionLost("it was turned away")
            return enter(greeting)
        except (ConnectionLost, WireError) as error:
            turn_away()
            self._tell(f"refused {who}: {error}")
            return None
        finally:
            self._remove(caller)

    def shut(self) -> None:
        """Turn away those who have not greeted, and whoever calls from now on."""
        with self._lock:
            self.is_shut = True
            waiting = list(self._turn_away.values())
        for turn_away in waiting:
            turn_away()

    def _remove(self, caller: object) -> bool:
        with self._lock:
            return self._turn_away.pop(caller, None) is not None

    def _tell(self, what: str) -> None:
        with self._lock:
            self._refused += 1
            if self._refused <= MOST_TOLD:
                sys.stderr.write(f"{what}\n")
                sys.stderr.flush()


class Meeting(Generic[Arrival]):
    """The UAVs that are due, each once, and what each brings with it."""

    def __init__(self, clients: Collection[int]) -> None:
        self._clients = len(clients)
        self._due = set(clients)
        self._arrivals: queue.SimpleQueue[tuple[int, Arrival]] = queue.SimpleQueue()

    def claim(self, client: int) -> None:
        """Be that UAV from now on; `come` follows.

        Raises:
            WireError: It is not due.
        """
        try:
            self._due.remove(client)  # One thread alone can.
        except KeyError:
            raise WireError(f"client: {client} is not one that is due") from None

    def come(self, client: int, arrival: Arrival) -> None:
        """Whoever waits for that UAV waits no longer."""
        self._arrivals.put((client, arrival))

    def all(self, limit_s: float) -> Iterator[tuple[int, Arrival]]:
        """Each UAV as it comes.

        Raises:
            ConnectionLost: They have not all come in time.
        """
        deadline = time.monotonic() + limit_s
        for _ in range(self._clients):
            try:
                yield self._arrivals.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                late = ", ".join(str(uav(client)) for client in sorted(self._due))
                raise ConnectionLost(
                    f"waited {limit_s:g} s for {late} to present themselves"
                ) from None
