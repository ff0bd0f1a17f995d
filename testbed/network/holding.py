# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Transfers that are due at a known moment: their first frames are held and then released together.

Programs that wake up to send do so one after the other, each late by another amount. Therefore the
valves (`testbed.network.shaping`) of the base station's idle downlinks are closed, and senders fill
their sockets `FILL_S` ahead. Shortly after the moment, one message opens all valves and sets, for
each link, the credit in bytes that it would have carried by then. That much leaves at once, and
from there on the transfer follows the integral of the rates.

Two packets are subtracted from the credit: the first one has been charged already
(`testbed.network.shaping`), and the last one leaves when the shaper reaches it, not at the end of
its own transmission time. A link whose two packets take longer than `OPEN_S` is released when they
would have left.

Serial lines (`testbed.network.serial_line`) hold frames by the rate 0, and get their rates at the
moment itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from testbed.core.clock import OPEN_S, EmulatedClock
from testbed.network.shaping import SOON_POLL_S, WITHOUT_CREDIT_S, Shape

_WAY_S = WITHOUT_CREDIT_S
_LATEST_OPEN_S = 0.1
"""Upper limit of the wait of slow links: TCP waits twice as long before it retransmits."""
_SPARE_S = 0.1e-3
"""The least credit of a link when it is released, in seconds."""
_SOON_NS = 1_000_000
"""Time before a release at which its valves are prepared, in ns."""
_TOGETHER_NS = 1_000_000
"""Links whose moments differ by less are released together, at the latest of these moments."""
_RESTORE_NS = 2_000_000
"""Time after a release at which the usual burst of its links is restored, in ns."""
Row = Callable[[int], Sequence[float] | None]
"""The rates of the downlinks in a slot in bit/s; None where none were given."""


@dataclass(frozen=True)
class Release:
    """Downlinks whose frames are released at the same moment."""

    at_ns: int
    places: tuple[int, ...]
    """Indices of the downlinks, from 0."""
    rates_bps: tuple[float, ...]
    credits_s: tuple[float, ...]
    """Credit of each link at that time, in seconds at its rate."""
    has_valves: bool = True
    """Whether valves hold the frames; they are prepared before the release, and a burst is restored
    after it."""

    def steps(self) -> "list[Step]":
        """The steps of the release, in the order of time."""
        if not self.has_valves:
            return [Step(self.at_ns, "open", self)]
        return [
            Step(self.at_ns - _SOON_NS, "ready", self),
            Step(self.at_ns, "open", self),
            Step(self.at_ns + _RESTORE_NS, "restore", self),
        ]


@dataclass(frozen=True)
class Step:
    """One step of a release: valves are made ready, opened, or their usual burst is restored."""

    at_ns: int
    what: Literal["ready", "open", "restore"]
    release: Release


def releases(
    packet_frames: Sequence[int],
    shape: Shape,
    clock: EmulatedClock,
    slot_s: float,
    row: Row,
    last_bytes: Sequence[int],
    all_bytes: Sequence[int] = (),
) -> list[Release]:
    """When to release the downlinks of transfers that start with the clock.

    A downlink without a rate at that time is not held: it opens with the slot that has a rate.

    Args:
        packet_frames: Frames per packet of each downlink.
        shape: Shape of the links.
        clock: Begins when the transfers do.
        slot_s: Emulated length of a slot.
        row: The downlinks' rates.
        last_bytes: Bytes charged for the last frame of each downlink's transfer.
        all_bytes: Bytes charged for all frames of each transfer: one that takes less than `OPEN_S`
            is released when it would have arrived. Empty: all take longer.
    """
    first = row(_slot(clock, slot_s, clock.start_ns)) or ()
    if shape.serial:
        places = tuple(place for place, bps in enumerate(first) if bps)
        rates = tuple(first[place] for place in places)
        nothing = (0.0,) * len(places)
        return [Release(clock.start_ns, places, rates, nothing, False)] if places else []
    floor_bps = shape.lowest_rate(slot_s * clock.dilation)
    due = list[tuple[int, int, float]]()
    for place, (frames, rate_bps) in enumerate(zip(packet_frames, first, strict=False)):
        if rate_bps < floor_bps:
            continue
        taken_bits = 8 * _two_packets_bytes(frames, shape, last_bytes[place])
        wait_s = max(OPEN_S, taken_bits / rate_bps + _SPARE_S)
        if all_bytes and (lasts_s := 8 * all_bytes[place] / rate_bps) < wait_s:
            # All of it leaves at once.
            wait_s = max(_SPARE_S, lasts_s - _WAY_S)
            taken_bits -= _WAY_S * rate_bps
        wait_s = min(wait_s, _LATEST_OPEN_S)
        due.append((clock.start_ns + round(wait_s * 1e9), place, taken_bits))
    found = []
    for together in _together(sorted(due)):
        at_ns = together[-1][0]
        opens_ns = at_ns + round(SOON_POLL_S / 2 * 1e9)
        released = []
        for _, place, taken_bits in sorted(together, key=lambda each: each[1]):
            now_bps, bits = _carried(place, clock, slot_s, row, opens_ns)
            if now_bps >= floor_bps:
                released.append((place, now_bps, (bits - taken_bits) / now_bps))
        if released:
            places, rates_bps, credits_s = map(tuple, zip(*released, strict=True))
            found.append(Release(at_ns, places, rates_bps, credits_s))
    return found


def _together(due: Sequence[tuple[int, int, float]]) -> list[list[tuple[int, int, float]]]:
    """Moments in the order of time, in groups that are shorter than `_TOGETHER_NS`."""
    groups = list[list[tuple[int, int, float]]]()
    for each in due:
        if not groups or each[0] - groups[-1][0][0] >= _TOGETHER_NS:
            groups.append([])
        groups[-1].append(each)
    return groups


def last_frames(transfer_bytes: Sequence[int], shape: Shape) -> list[int]:
    """The charge in bytes of each transfer's last frame, from the charge of all of its frames."""
    return [(size - 1) % shape.frame_bytes + 1 for size in transfer_bytes]


def _two_packets_bytes(frames: int, shape: Shape, last_bytes: int) -> float:
    """The size of the first and the last packet; of several frames, the last has half on average.

    Args:
        frames: Frames of a full packet.
        shape: Shape of the links.
        last_bytes: Bytes charged for the last frame.
    """
    first_bytes = frames * shape.frame_bytes
    return first_bytes + (last_bytes if frames == 1 else first_bytes / 2)


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
