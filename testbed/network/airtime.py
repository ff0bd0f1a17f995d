# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A direction of a cell that its active links divide: a link may use the airtime that the others do
not use.

The rate of a link depends on how many links are active (`SlotRates`). In an LTE cell, for example,
n active uplinks have 1/n of the resource blocks each; two downlinks that are limited by airtime
have half of the rate that each would have alone, so that a UAV with a bad channel takes as much
from the others as one with a good channel. At intervals, the injector reads the bytes that each
link has sent and its backlog, and sets the rates accordingly. There are two ways to do so:

- `Airtime` divides by use, for any traffic: links that have a backlog get equal shares. Links that
  send less get the rate that they use plus a margin. An idle link is set to the rate that it would
  get if it began to send. The sum is exact as long as the same links send; a link that begins to
  send may exceed it until the next look.
- `Transfers` divides by backlog, for links that carry one transfer at a time, or acknowledgements,
  which do not count. The bytes carried show when a transfer has really begun or ended. The excess
  or deficit of the other links since then is balanced until the next look.
"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

EVERY_NS = 5_000_000
TRANSFERS_EVERY_NS = 1_000_000
"""Minimum time between two looks at transfers."""
_GROWTH = 1.25
"""Factor by which the use of a link without a backlog may grow from one look to the next."""
_KEPT_NS = 20_000_000
"""Age up to which the beginning or the end of a transfer can be noticed, in ns."""
_LATEST_BACKLOG_NS = 6_000_000
"""Time for which a link may send without a backlog until it is considered active, in ns."""
_EVER_NS = 1e15
"""Longer than any transfer."""
_NEAR_S = 10e-6
"""A link that is ahead or behind by less, in seconds at its rate, is not corrected."""
_MOST_CHANGE = 4.0
"""A correction changes a rate by no larger factor."""
Division = Sequence[tuple[int, float]]
"""For each number of active links from 1 on: a row of rates, and the fraction of it that a link
has.

One entry: the rates are the same however many links are active."""


class SlotRates(NamedTuple):
    """Rates of a direction's links in a slot, in bit/s."""

    rows: Sequence[Sequence[float]]
    """Rows of rates by link, from 0."""
    division: Division

    @property
    def is_divided(self) -> bool:
        """Whether the rates depend on the number of active links."""
        return len(self.division) > 1

    def bps(self, link: int, active: int) -> float:
        """The rate of a link while `active` links are active, including this link."""
        row, part = self.division[min(max(active, 1), len(self.division)) - 1]
        return part * self.rows[row][link]

    def together(self) -> Sequence[float]:
        """The rate that each link has while all are active."""
        row, part = self.division[-1]
        return [part * bps for bps in self.rows[row]] if self.is_divided else self.rows[row]

    def at_share(self, link: int, share: float) -> float:
        """The rate of a link with a share of the cell, interpolated between shares 1/n."""
        most = len(self.division)
        if share * most <= 1:
            return self.bps(link, most) * share * most
        n = min(int(1 / share + 1e-9), most - 1)
        least, below = self.bps(link, n + 1), 1 / (n + 1)
        return least + (self.bps(link, n) - least) * (share - below) / (1 / n - below)

    def share_of(self, link: int, bps: float) -> float:
        """The share of the cell with which a link has a rate; above 1 if it never has."""
        below, least = 0.0, 0.0
        for n in range(len(self.division), 0, -1):
            share, most = 1 / n, self.bps(link, n)
            if least < bps <= most:
                return below + (share - below) * (bps - least) / (most - least)
            below, least = share, most
        return bps / least if least else 0.0


class Count(Protocol):
    """The bytes that a link has sent, and its backlog."""

    @property
    def sent_bytes(self) -> int:
        """Bytes sent so far."""

    @property
    def backlog_bytes(self) -> int:
        """Bytes in the queue."""


class Divider(Protocol):
    """Divides a direction: `Airtime` or `Transfers`."""

    every_ns: int
    """Minimum time between two looks."""

    def rates(self, slot: SlotRates) -> list[float]:
        """The rates that the links are to have in a slot."""

    def given(self, at_ns: int, slot: SlotRates, rates: Sequence[float]) -> None:
        """Record that the links have these rates from a moment on."""

    def look(
        self, counts: Sequence[Count], read_ns: Sequence[int], slot: SlotRates, next_ns: int
    ) -> None:
        """Record the bytes that links have sent.

        Args:
            counts: Counters of each link.
            read_ns: Time at which each counter was read.
            slot: The links' rates.
            next_ns: Time until the next look.
        """


def divide(wanted: Sequence[float]) -> list[float]:
    """Max-min fair shares of a total of 1.

    Args:
        wanted: The share that each link can use: 0 if idle, infinity if it has a backlog.

    Returns:
        Shares, whose sum is one where any has a queue. Idle links do not count in the sum: they
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
    """Divides a direction by the use of its links."""

    every_ns = EVERY_NS
    """Minimum time between two looks."""

    def __init__(self, links: int, now_ns: int = 0) -> None:
        self.shares = divide([0.0] * links)
        """The current share of each link in the cell."""
        self._sent = [0] * links
        self._looked_ns = now_ns

    def rates(self, slot: SlotRates) -> list[float]:
        """See `Divider.rates`."""
        return [slot.at_share(link, share) for link, share in enumerate(self.shares)]

    def given(self, at_ns: int, slot: SlotRates, rates: Sequence[float]) -> None:
        """See `Divider.given`."""

    def look(
        self, counts: Sequence[Count], read_ns: Sequence[int], slot: SlotRates, next_ns: int
    ) -> None:
        """Update the shares; see `Divider.look`."""
        passed_s = (read_ns[0] - self._looked_ns) * 1e-9
        wanted = []
        for link, (count, before) in enumerate(zip(counts, self._sent, strict=True)):
            if not slot.bps(link, 1):
                wanted.append(0.0)
            elif count.backlog_bytes:
                wanted.append(math.inf)
            else:
                used_bps = (count.sent_bytes - before) * 8 / passed_s
                wanted.append(slot.share_of(link, _GROWTH * used_bps))
        self.shares = divide(wanted)
        self._sent = [count.sent_bytes for count in counts]
        self._looked_ns = read_ns[0]


class _Piece(NamedTuple):
    """From a moment on, the links of a slot had these rates."""

    since_ns: float
    slot: SlotRates
    rates: Sequence[float]


class Transfers:
    """Divides a direction among the links that carry a transfer.

    The beginning of an active link is computed from the bytes sent and the rates that were set; its
    end is the moment at which those rates have carried all of these bytes. This is the meaning of
    the beginning and the end of a transfer in the emulation: see `Shape.burst_s`.
    """

    every_ns = TRANSFERS_EVERY_NS
    """Minimum time between two looks."""

    def __init__(self, packet_bits: Sequence[float]) -> None:
        """Begin without transfers.

        Args:
            packet_bits: Size of a full packet of each link, in bits.
        """
        links = len(packet_bits)
        self._links, self._packet_bits = range(links), packet_bits
        self._begun_ns, self._ended_ns = [0.0] * links, [0.0] * links
        """When each link was active the last time; an end of infinity: it still is."""
        self._waits_ns = [0.0] * links
        """Since when an idle link has sent without a backlog; 0: it has not."""
        self._took_ns, self._sent_bits = [0.0] * links, [0.0] * links
        """Bits that it has sent since then, and the time in which its rates carry them."""
        self._until_ns = [0.0] * links
        """The last time at which an active link had a backlog, or up to when its rates have carried
        all that it has sent."""
        self._excess_bits = [0.0] * links
        """Bits that an active link has sent by then in excess of its rates: packets leave as a
        whole, and a change of the rate does not affect the packet that left last."""
        self._owed_bits = [0.0] * links
        """Bits that active links are owed from before the pieces that are kept."""
        self._pieces: list[_Piece] = []
        self._correction_bps = [0.0] * links
        self._sent: list[int] = []
        self._read_ns: Sequence[int] = ()

    def rates(self, slot: SlotRates) -> list[float]:
        """See `Divider.rates`."""
        active = sum(self._is_active(k) and slot.bps(k, 1) > 0 for k in self._links)
        found = []
        for k in self._links:
            bps = slot.bps(k, active + (not self._is_active(k)))
            corrected = bps + self._correction_bps[k] if self._is_active(k) else bps
            found.append(min(max(bps / _MOST_CHANGE, corrected), bps * _MOST_CHANGE))
        return found

    def given(self, at_ns: int, slot: SlotRates, rates: Sequence[float]) -> None:
        """See `Divider.given`."""
        self._pieces.append(_Piece(at_ns, slot, rates))
        self._correction_bps = [0.0] * len(self._links)

    def look(
        self, counts: Sequence[Count], read_ns: Sequence[int], slot: SlotRates, next_ns: int
    ) -> None:
        """Find the active links, and correct the shares of the others since then; see
        `Divider.look`."""
        if self._sent and self._pieces:
            self._forget(min(read_ns) - _KEPT_NS)
            for k, count in enumerate(counts):
                self._note(k, 8 * (count.sent_bytes - self._sent[k]), count, read_ns[k])
            active = sum(self._is_active(k) and slot.bps(k, 1) > 0 for k in self._links)
            for k, bits in enumerate(self._owed(max(read_ns))):
                is_near = abs(bits) < slot.bps(k, active) * _NEAR_S
                self._correction_bps[k] = 0.0 if is_near else bits / (next_ns * 1e-9)
        self._sent, self._read_ns = [count.sent_bytes for count in counts], read_ns

    def _is_active(self, link: int) -> bool:
        return self._ended_ns[link] == math.inf

    def _note(self, link: int, bits: int, count: Count, read_ns: int) -> None:
        """Record the bits that a link has sent since the last look."""
        before_ns = self._read_ns[link]
        middle_ns = (before_ns + read_ns) / 2
        has_backlog = count.backlog_bytes > 0
        if not self._is_active(link):
            self._note_beginning(link, bits, has_backlog, before_ns, read_ns)
            return
        until_ns, excess_bits = self._until_ns[link], self._excess_bits[link]
        if has_backlog:
            excess_bits += bits - self._carried_bits(link, until_ns, read_ns)
            if until_ns < before_ns:
                excess_bits = 0.0  # The sender paused: what it has missed is lost.
            self._until_ns[link] = read_ns
            self._set_excess(link, excess_bits)
            return
        self._until_ns[link] = self._carried_at(link, bits + excess_bits, until_ns)
        self._excess_bits[link] = 0.0
        if self._until_ns[link] <= middle_ns:
            self._ended_ns[link] = self._until_ns[link]

    def _note_beginning(
        self, link: int, bits: int, has_backlog: bool, before_ns: int, read_ns: int
    ) -> None:
        """Record the bits that an idle link has sent since the last look.

        The transfer is assumed to have begun before its first backlog, by the time in which the
        link's rates carry the bits sent by then. A sender may need some acknowledgements until it
        uses up its link's credit, which is a time and does not depend on the rate.
        """
        took_ns = self._carried_at(link, bits, before_ns) - before_ns
        if not self._waits_ns[link]:
            if not has_backlog and took_ns <= (read_ns - before_ns) / 2:
                return  # acknowledgements
            self._waits_ns[link] = before_ns
            self._took_ns[link] = self._sent_bits[link] = 0.0
        self._took_ns[link] += took_ns
        self._sent_bits[link] += bits
        waited_ns = read_ns - self._waits_ns[link]
        if not has_backlog and waited_ns <= _LATEST_BACKLOG_NS:
            return
        self._forget(min(self._ended_ns[link], read_ns))
        took_ns, self._waits_ns[link] = self._took_ns[link], 0.0
        if not has_backlog and took_ns < waited_ns / 2:  # It was a short one.
            self._begun_ns[link] = read_ns - waited_ns
            self._ended_ns[link] = self._begun_ns[link] + took_ns
            return
        self._begun_ns[link] = max(read_ns - took_ns, self._pieces[0].since_ns)
        self._ended_ns[link] = math.inf
        self._until_ns[link], self._owed_bits[link] = read_ns, 0.0
        carried_bits = self._carried_bits(link, self._begun_ns[link], read_ns)
        self._set_excess(link, self._sent_bits[link] - carried_bits)

    def _set_excess(self, link: int, bits: float) -> None:
        """Take note of an excess; if it is more than a packet, it becomes part of the account."""
        if abs(bits) > self._packet_bits[link]:
            self._owed_bits[link] -= bits
            bits = 0.0
        self._excess_bits[link] = bits

    def _carried_bits(self, link: int, from_ns: float, until_ns: float) -> float:
        """Bits that a link's rates carry between two moments."""
        return sum(
            piece.rates[link] * max(0.0, end_ns - max(from_ns, piece.since_ns)) * 1e-9
            for piece, end_ns in self._with_ends(until_ns)
        )

    def _carried_at(self, link: int, bits: float, from_ns: float) -> float:
        """When a link's rates have carried that much since a moment, if they do not change."""
        until_ns = from_ns
        for piece, end_ns in self._with_ends(math.inf):
            bps = piece.rates[link]
            if end_ns <= until_ns or not bits:
                continue
            if bps * min(end_ns - until_ns, _EVER_NS) * 1e-9 >= bits:
                return until_ns + bits / bps * 1e9
            if end_ns == math.inf:
                break  # It is in an outage.
            bits, until_ns = bits - bps * (end_ns - until_ns) * 1e-9, end_ns
        return until_ns

    def _with_ends(self, until_ns: float) -> list[tuple[_Piece, float]]:
        """The pieces before a moment, each with its end."""
        ends_ns = [piece.since_ns for piece in self._pieces[1:]] + [math.inf]
        return [
            (piece, min(end_ns, until_ns))
            for piece, end_ns in zip(self._pieces, ends_ns, strict=True)
            if piece.since_ns < until_ns
        ]

    def _owed(self, until_ns: float) -> list[float]:
        """The share of each active link up to a moment, less the bits it has sent."""
        owed = list(self._owed_bits)
        for piece, end_ns in self._with_ends(until_ns):
            within = {piece.since_ns, end_ns}
            for moment_ns in (*self._begun_ns, *self._ended_ns):
                if piece.since_ns < moment_ns < end_ns:
                    within.add(moment_ns)
            moments_ns = sorted(within)
            for since_ns, next_ns in itertools.pairwise(moments_ns):
                active = [
                    k
                    for k in self._links
                    if self._begun_ns[k] <= since_ns < self._ended_ns[k] and piece.slot.bps(k, 1)
                ]
                for k in active:
                    missing_bps = piece.slot.bps(k, len(active)) - piece.rates[k]
                    owed[k] += missing_bps * (next_ns - since_ns) * 1e-9
        return [bits if self._is_active(k) else 0.0 for k, bits in enumerate(owed)]

    def _forget(self, until_ns: float) -> None:
        """Drop the pieces before a moment, and keep the bits that links were owed by then."""
        if until_ns <= self._pieces[0].since_ns:
            return
        self._owed_bits = self._owed(until_ns)
        later = [piece for piece in self._pieces if piece.since_ns > until_ns]
        now = self._pieces[len(self._pieces) - len(later) - 1]
        self._pieces = [now._replace(since_ns=until_ns), *later]
