# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A cell whose downlinks share its airtime: a downlink may use what the others leave.

Alone, a downlink has all of the band and power, and the rate R that its own channel allows. A frame
of L bits takes L/R of the cell's time; it is this time that is shared, so that a UAV with a bad
channel costs the others no more than one with a good one. Every `EVERY_NS` the injector looks at
what each downlink has sent and has waiting, and sets it to its share of R: those that have a queue
get equal shares, those that send less get what they use and some more, and one that is idle is set
to what it would get if it began. The sum is therefore exact as long as the same downlinks send; one
that begins to send may exceed it until the next look.
"""

import math
from collections.abc import Sequence

EVERY_NS = 5_000_000
_GROWTH = 1.25
"""A downlink without a queue may use so many times more than it has used since the last look."""


def divide(wanted: Sequence[float]) -> list[float]:
    """Max-min fair shares of one.

    Args:
        wanted: The share that each downlink can use: 0 if idle, infinity if it has a backlog.

    Returns:
        Shares, whose sum is one where any has a queue. Idle downlinks do not count in the sum: they
        have the share that they would get if they began.
    """
    active = sorted((want, place) for place, want in enumerate(wanted) if want > 0)
    shares, left = [0.0] * len(wanted), 1.0
    for others, (want, place) in zip(range(len(active), 0, -1), active, strict=True):
        shares[place] = min(want, left / others)
        left -= shares[place]
    begun = max(left, 1 / (len(active) + 1))
    return [share + left if want > 0 else begun for share, want in zip(shares, wanted, strict=True)]


class Airtime:
    """Divides the airtime of a cell among its downlinks."""

    def __init__(self, downlinks: int) -> None:
        self.shares = divide([0.0] * downlinks)
        """The current share of each downlink in the cell's time."""
        self._sent = [0] * downlinks

    def look(
        self,
        sent_bytes: Sequence[int],
        queued_bytes: Sequence[int],
        rates_bps: Sequence[float],
        passed_s: float,
    ) -> None:
        """Update the shares.

        Args:
            sent_bytes: Bytes that each downlink has sent so far.
            queued_bytes: Backlog of each downlink.
            rates_bps: Rate of each downlink without the others.
            passed_s: Seconds since the last update.
        """
        wanted = []
        for now, before, queued, rate in zip(
            sent_bytes, self._sent, queued_bytes, rates_bps, strict=True
        ):
            if not rate:
                wanted.append(0.0)
            elif queued:
                wanted.append(math.inf)
            else:
                wanted.append(_GROWTH * (now - before) * 8 / rate / passed_s)
        self.shares = divide(wanted)
        self._sent = list(sent_bytes)
