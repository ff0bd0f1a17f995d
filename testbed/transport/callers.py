# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Accepts and authenticates connections; rejected peers have no effect on others."""

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
"""Number of unauthenticated connections that are kept in addition to the expected ones. If there
are more, the oldest is rejected: nodes of the run authenticate as soon as they are connected."""
MOST_TOLD = 20

Arrival = TypeVar("Arrival")
Greeting = TypeVar("Greeting")
Entered = TypeVar("Entered")


def check_token(given: bytes | bytearray, token: bytes | bytearray) -> None:
    """Check that a peer presents the run's token.

    Raises:
        WireError: The token is wrong.
    """
    if not hmac.compare_digest(given, token):
        raise WireError("token: a peer does not know this run's token")


class Callers:
    """A bounded set of connections that are not authenticated yet."""

    def __init__(self, due: int) -> None:
        self._most = due + SPARE
        self._turn_away: dict[object, Callable[[], object]] = {}
        """Function that closes each connection, in order of arrival."""
        self._lock = threading.Lock()
        self._refused = 0
        self._log = sys.stderr
        """That of the creating thread: others may still report when stderr has been replaced."""
        self.is_shut = False

    def let_in(
        self,
        who: str,
        turn_away: Callable[[], object],
        greet: Callable[[], Greeting],
        enter: Callable[[Greeting], Entered],
    ) -> Entered | None:
        """Authenticate a peer; returns the result of `enter`, or None if the peer is rejected.

        Args:
            who: Address of the peer.
            turn_away: Closes the connection, so that waiting for it raises `ConnectionLost`; may be
                called by any thread.
            greet: Receives and checks the greeting.
            enter: Admits the peer, which is no longer rejected, even if `shut` is called meanwhile.
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
                raise ConnectionLost("rejected by this node")
            return enter(greeting)
        except (ConnectionLost, WireError) as error:
            turn_away()
            self._tell(f"refused {who}: {error}")
            return None
        finally:
            self._remove(caller)

    def shut(self) -> None:
        """Reject all unauthenticated connections, and all later ones."""
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
                self._log.write(f"{what}\n")
                self._log.flush()


class Meeting(Generic[Arrival]):
    """The expected UAVs, once each, and the connections of those that have arrived."""

    def __init__(self, clients: Collection[int]) -> None:
        self._clients = len(clients)
        self._due = set(clients)
        self._arrivals: queue.SimpleQueue[tuple[int, Arrival]] = queue.SimpleQueue()

    def claim(self, client: int) -> None:
        """Reserve a UAV's place for a connection, before `come`.

        Raises:
            WireError: The UAV is not expected.
        """
        try:
            self._due.remove(client)  # Succeeds in one thread only.
        except KeyError:
            raise WireError(f"client: {client} is not expected") from None

    def come(self, client: int, arrival: Arrival) -> None:
        """Pass on the connection of a UAV to `all`."""
        self._arrivals.put((client, arrival))

    def all(self, limit_s: float) -> Iterator[tuple[int, Arrival]]:
        """Yield UAVs and their connections in order of arrival.

        Raises:
            ConnectionLost: A UAV did not connect in time.
        """
        deadline = time.monotonic() + limit_s
        for _ in range(self._clients):
            try:
                yield self._arrivals.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                late = ", ".join(str(uav(client)) for client in sorted(self._due))
                raise ConnectionLost(f"waited {limit_s:g} s for {late} to connect") from None
