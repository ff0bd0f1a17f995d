# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A cell whose downlinks share its airtime: active downlinks get the share that others leave.

A single downlink has the whole bandwidth and power, and the rate R of its channel. A frame of L
bits takes L/R seconds of the cell's time; this time is shared, so that a UAV with a bad channel
costs the others no more than one with a good channel. Every `EVERY_NS` the injector reads the sent
and queued bytes of each downlink and sets it to its share of R: downlinks with a backlog get equal
shares, those that send less get their usage and a margin, and an idle one gets the share that it
would have if it started. So the sum of shares is exact while the same downlinks send; a downlink
that starts may exceed it until the next update.
"""

import math
from collections.abc import Sequence

EVERY_NS = 5_000_000
_GROWTH = 1.25
"""Factor by which a downlink without backlog may increase its usage until the next update."""


def divide(wanted: Sequence[float]) -> list[float]:
    """Max-min fair shares of one.

    Args:
        wanted: The share that each downlink can use: 0 if idle, infinity if it has a backlog.

    Returns:
        Shares whose sum is one if any downlink has a backlog. The share of an idle downlink does
        not count in the sum: it is the one that it would get if it started.
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
        """Current share of each downlink in the cell's airtime."""
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
