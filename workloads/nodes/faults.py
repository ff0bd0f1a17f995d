# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Faults in the node programs: what befalls a UAV in a round, and whom the base station gives up.

Without faults both are there as well, and nothing comes of them.
"""

import contextlib
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from testbed.control.messages import LostClient
from testbed.core.clock import EmulatedClock
from testbed.core.faults import UavFaults
from testbed.transport.wire import ConnectionLost, Header


class Fate:
    """What befalls a UAV in one round."""

    def __init__(self, faults: UavFaults | None, clock: EmulatedClock):
        """Begin.

        Args:
            faults: What happens; None: nothing.
            clock: The round's.
        """
        self._faults = faults or UavFaults()
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

    def __init__(self, loss: LostClient):
        super().__init__(f"client {loss.client} was lost at {loss.lost_s:g} s")
        self.loss = loss
