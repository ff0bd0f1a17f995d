# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Faults in the node programs: faults of a UAV, and loss of clients at the base station.

Without faults, the same code runs without effect.
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


class RoundFaults:
    """The faults of a UAV in one round."""

    def __init__(self, faults: UavFaults | None, clock: EmulatedClock):
        """Begin a round.

        Args:
            faults: The planned faults; None: none.
            clock: The clock of the round.
        """
        self._faults = faults or UavFaults()
        self._clock = clock
        self._was_wrong = False
        self.slow = self._faults.slow
        self.crashes = self._faults.crash_s is not None
        lost_s = self._faults.lost_s
        self.leaves_s = math.inf if lost_s is None else lost_s
        """Time at which the UAV leaves the round if it has not finished."""

    @contextlib.contextmanager
    def leaving(self, hang_up: Callable[[], object]) -> Iterator[None]:
        """Context of a round, which ends without an error when the client is lost.

        Args:
            hang_up: Unblocks all waiting for the base station.
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
        """Headers of the frames to send instead of one frame of smashed data with this header."""
        wrong = self._faults.wrong
        if wrong is None or self._was_wrong or header.time_s < self._faults.wrong_s:
            return [header]
        self._was_wrong = True
        return [header, header] if wrong == "duplicate-frame" else [_Corrupted(**vars(header))]


class _Corrupted(Header):
    """A header that is sent with a flipped bit."""

    def pack(self) -> bytes:
        data = bytearray(super().pack())
        data[len(data) // 2] ^= 1
        return bytes(data)


@dataclass(frozen=True)
class Failed:
    """A thread of the base station failed."""

    client: int
    """Client of the thread; 0: all clients."""
    at_s: float
    error: BaseException


class RoundAbandoned(Exception):
    """The round ends because a client was lost and must not be dropped."""

    def __init__(self, loss: LostClient):
        super().__init__(f"client {loss.client} was lost at {loss.lost_s:g} s")
        self.loss = loss
