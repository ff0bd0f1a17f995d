"""Faults in the node programs: what befalls a UAV in a round, and whom the base station gives up.

Without faults both are there as well, and nothing comes of them.
"""

import contextlib
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from testbed.control.node import Message
from testbed.core.clock import EmulatedClock
from testbed.core.faults import BsFaults, UavFaults
from testbed.transport.wire import ConnectionLost, Header, WireError


class Fate:
    """What befalls a UAV in one round."""

    def __init__(self, order: Message | None, clock: EmulatedClock):
        """Begin.

        Args:
            order: Fields of `UavFaults`; None: nothing happens.
            clock: The round's.
        """
        self._faults = UavFaults(**order) if order else UavFaults()
        self._clock = clock
        self._was_wrong = False
        self.slow = self._faults.slow
        self.crashes = self._faults.crash_s is not None
        lost_s = self._faults.lost_s
        self.leaves_s = math.inf if lost_s is None else lost_s
        """When it leaves the round, if it has not finished."""

    @contextlib.contextmanager
    def leaving(self, hang_up: Callable[[], object]) -> Iterator[None]:
        """Play the round within: it ends there quietly once the client is lost.

        Args:
            hang_up: Ends all waiting for the base station.
        """
        timer = None
        if math.isfinite(self.leaves_s):
            rest_s = self.leaves_s - self._clock.now()
            timer = threading.Timer(max(0.0, rest_s * self._clock.dilation), hang_up)
            timer.daemon = True
            timer.start()
        try:
            yield
        except ConnectionLost:
            if not self._was_wrong and self._clock.now() < self.leaves_s:
                raise
        finally:
            if timer is not None:
                timer.cancel()

    def frames(self, header: Header) -> Sequence[Header]:
        """The headers to send smashed data with, one frame each, where this one is due."""
        wrong = self._faults.wrong
        if wrong is None or self._was_wrong or header.time_s < self._faults.wrong_s:
            return [header]
        self._was_wrong = True
        return [header, header] if wrong == "duplicate-frame" else [_Corrupted(**vars(header))]


class _Corrupted(Header):
    """A header of which a bit is lost on the way."""

    def pack(self) -> bytes:
        data = bytearray(super().pack())
        data[len(data) // 2] ^= 1
        return bytes(data)


@dataclass(frozen=True)
class Failed:
    """A thread of the base station failed."""

    client: int
    """With whom it dealt; 0: with all."""
    at_s: float
    error: BaseException


class RoundAbandoned(Exception):
    """The round may not go on without a client that was lost."""

    def __init__(self, client: int, lost_s: float, refused: str):
        super().__init__(f"client {client} was lost at {lost_s:g} s")
        self.client = client
        self.lost_s = lost_s
        self.refused = refused


class Losses:
    """Whom the base station gives up in one round, and when: without faults nobody."""

    def __init__(self, order: Message | None):
        """Begin; `order` has the fields of `BsFaults`."""
        self._faults = BsFaults(**order) if order else None
        self.slow = self._faults.slow if self._faults else ()
        lost_s = self._faults.lost_s if self._faults else ()
        self._due = {k: at_s for k, at_s in enumerate(lost_s, 1) if at_s is not None}
        self.noted: dict[int, tuple[float, str]] = {}
        """By client, when it was lost, and what was refused; nothing, where it was silence."""

    @property
    def next_s(self) -> float:
        """When the next client is to be given up, if it has not finished by then."""
        return min(self._due.values(), default=math.inf)

    def due(self, now_s: float) -> list[tuple[int, float]]:
        """Clients that are to be given up by now, and since when."""
        due = [(client, at_s) for client, at_s in self._due.items() if at_s <= now_s]
        for client, _ in due:
            del self._due[client]
        return due

    def note(self, client: int, lost_s: float, refused: str) -> None:
        """A client is lost.

        Raises:
            RoundAbandoned: It must not be.
        """
        if self._faults is None or not self._faults.drops:
            raise RoundAbandoned(client, lost_s, refused)
        self.noted[client] = lost_s, refused

    def explain(self, failed: Failed) -> bool:
        """Whether a failure is no more than what the loss of a client brings."""
        if failed.client in self.noted:
            return True
        if isinstance(failed.error, WireError):
            return self._faults is not None and failed.client > 0
        return isinstance(failed.error, ConnectionLost) and failed.client in self._due
