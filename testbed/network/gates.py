# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Transfers that are due at a known moment: they wait behind closed gates, and are let go at once.

Programs that wake up to send do so one after the other, each late by another amount. So the gates
of an idle site's links are closed, and senders fill their sockets `FILL_S` ahead. A bit after the
moment one message opens all gates, and says of each link how much it would have carried by then:
that leaves at once, and from there on the transfer is where the integral of the rates is.

Of what would have been carried, two packets are taken off. The first one has been charged already
(`testbed.network.shaping`), and the last one leaves when its turn comes, not when its own time is
over. A link whose two packets take longer than `OPEN_S` is opened when they would have left.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from testbed.core.clock import OPEN_S, EmulatedClock
from testbed.network.fabric import Site
from testbed.network.shaping import SOON_POLL_S, End, Shape
from testbed.system.netlink import Batch

_LATEST_OPEN_S = 0.1
"""The same of links so slow that two packets take longer than that: TCP waits twice as long before
it tries again."""
_SPARE_S = 0.1e-3
"""What a link has saved up at least when its gate opens."""
_SOON_NS = 1_000_000
"""So long before they open, gates are made ready."""
_RESTORE_NS = 2_000_000
"""So long after they have opened, links save up as always."""
Row = Callable[[int], Sequence[float] | None]
"""The rates of a slot in bit/s, of each link of a site."""


@dataclass(frozen=True)
class Opening:
    """Gates that open at the same moment."""

    at_ns: int
    ends: tuple[End, ...]
    rates_bps: tuple[float, ...]
    credits_s: tuple[float, ...]
    """What each link has saved up by then."""

    @property
    def soon_ns(self) -> int:
        """When the gates are made ready."""
        return self.at_ns - _SOON_NS

    @property
    def restored_ns(self) -> int:
        """When links save up as always."""
        return self.at_ns + _RESTORE_NS

    def soon(self) -> Batch:
        """Makes the gates ready."""
        return Batch([message for end in self.ends for message in end.soon()])

    def open(self) -> Batch:
        """Opens them."""
        of_ends = zip(self.ends, self.rates_bps, self.credits_s, strict=True)
        return Batch([message for end, rate, s in of_ends for message in end.release(rate, s)])

    def restore(self) -> Batch:
        """Lets the links save up as always, at the rates that they have by now."""
        return Batch([message for end in self.ends for message in end.restore()])


def openings(
    site: Site,
    shape: Shape,
    clock: EmulatedClock,
    slot_s: float,
    row: Row,
    last_bytes: Sequence[int],
) -> list[Opening]:
    """When the gates of a site are to open for transfers that start with the clock.

    Args:
        site: Whose gates; links without a rate then are left to the slot in which they get one.
        shape: How links treat frames.
        clock: Begins when the transfers do.
        slot_s: Emulated length of a slot.
        row: The links' rates.
        last_bytes: What the last frame of each link's transfer is charged.
    """
    first = row(_slot(clock, slot_s, clock.start_ns)) or ()
    moments: dict[int, list[tuple[End, float, float]]] = {}
    for place, (end, rate_bps) in enumerate(zip(site.ends, first, strict=False)):
        if rate_bps < shape.lowest_rate(slot_s * clock.dilation):
            continue
        taken_bits = 8 * _two_packets_bytes(end, shape, last_bytes[place])
        wait_s = min(max(OPEN_S, taken_bits / rate_bps + _SPARE_S), _LATEST_OPEN_S)
        at_ns = clock.start_ns + round(wait_s * 1e9)
        now_bps, bits = _carried(place, clock, slot_s, row, at_ns + round(SOON_POLL_S / 2 * 1e9))
        if now_bps < shape.lowest_rate(slot_s * clock.dilation):
            continue
        opening = end, now_bps, (bits - taken_bits) / now_bps
        moments.setdefault(at_ns, []).append(opening)
    return [
        Opening(at_ns, *map(tuple, zip(*of_ends, strict=True)))
        for at_ns, of_ends in sorted(moments.items())
    ]


def last_frames(transfer_bytes: Sequence[int], shape: Shape) -> list[int]:
    """What the last frame of each transfer is charged, of what all of its frames are."""
    return [(size - 1) % shape.frame_bytes + 1 for size in transfer_bytes]


def _two_packets_bytes(end: End, shape: Shape, last_bytes: int) -> float:
    """The first packet and the last: where packets have several frames, half of one in the mean."""
    first_bytes = end.packet_frames * shape.frame_bytes
    return first_bytes + (last_bytes if end.packet_frames == 1 else first_bytes / 2)


def _slot(clock: EmulatedClock, slot_s: float, at_ns: int) -> int:
    return int(clock.at(at_ns) / slot_s + 1e-9)


def _carried(
    place: int, clock: EmulatedClock, slot_s: float, row: Row, until_ns: int
) -> tuple[float, float]:
    """A link's rate at a moment, and the bits that it would have carried since the clock began."""
    rate_bps, bits, at_ns = 0.0, 0.0, clock.start_ns
    while at_ns < until_ns:
        slot = _slot(clock, slot_s, at_ns)
        rates = row(slot)
        if rates is None:
            break
        rate_bps = rates[place]
        end_ns = min(until_ns, clock.monotonic_ns((slot + 1) * slot_s))
        bits += rate_bps * (end_ns - at_ns) * 1e-9
        at_ns = end_ns
    return rate_bps, bits
