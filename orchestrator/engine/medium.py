# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Uplink and downlink that their active links share, for compiled code: fluid, event by event.

If each link has a fixed share, a transfer's end is known when it begins. If a medium is divided
among the links that have something to send, each beginning and each end changes the rates of all
others, with Wi-Fi also those of the other direction. Between two such events, every active link has
the rate of `shared_bps` in a slot; `Medium` contains the bits that each still has to send. A link
in an outage is not counted: the others have its part. If there are several cells, links share the
cell to which they belong.
"""

from typing import Any, NamedTuple

import numpy as np

from orchestrator.engine.compiling import Array, Ints, inlined
from orchestrator.engine.radio_kernel import link_of
from orchestrator.engine.slot_impairments import DOWN, UP
from orchestrator.engine.slots import EXHAUSTED, HALF_NS, Slots, edge_of, shared_slot_bps, slot_at

COUNT, UNTIL = 0, 1
STALE = -1


class Medium(NamedTuple):
    """The state of both directions, which a round writes to; uplink k is link k, downlink k is link
    K + k."""

    clients: Ints
    """The clients that are active in each direction, in any order, shape [2, K]."""
    left_bits: Array
    """Bits that each active client still has to send, shape [2, K]."""
    bps: Array
    """The present rate of each active client, shape [2, K]."""
    least: Array
    """Lowest slot value for which the rate is valid, shape [2, K]."""
    below: Array
    """Slot value from which on the rate is no longer valid, shape [2, K]."""
    now_s: Array
    """Time for which `left_bits` is valid, shape [1]."""
    numbers: Ints
    """For each direction: the `COUNT` of active clients, and the slot `UNTIL` which their rates are
    valid, or `STALE`; shape [2, 2]."""


def medium_of(clients: int) -> Medium:
    """A medium for a number of clients on which nothing has been sent yet."""
    left_bits, bps, least, below = np.zeros((4, 2, clients))
    active, numbers = np.zeros((2, clients), np.int64), np.array([[0, 0], [STALE, STALE]])
    return Medium(active, left_bits, bps, least, below, np.zeros(1), numbers)


@inlined
def clear(medium: Medium, start_s: float) -> None:
    """Reset the medium for the start of a round."""
    medium.now_s[0] = start_s
    medium.numbers[COUNT], medium.numbers[UNTIL] = 0, STALE


@inlined
def is_busy(medium: Medium) -> bool:
    """Whether any link has something to send."""
    return bool(medium.numbers[COUNT, UP] + medium.numbers[COUNT, DOWN] > 0)


@inlined
def begin_transfer(medium: Medium, way: int, k: int, bits: float, at_s: float) -> None:
    """Start the sending of a client, when the medium has advanced up to that nanosecond."""
    numbers = medium.numbers
    medium.now_s[0] = max(medium.now_s[0], at_s)
    medium.clients[way, numbers[COUNT, way]], medium.left_bits[way, k] = k, bits
    numbers[COUNT, way] += 1
    numbers[UNTIL] = STALE


@inlined
def end_transfer(medium: Medium, way: int, k: int) -> None:
    """Stop the sending of a client, whether or not it has sent everything."""
    clients, numbers = medium.clients, medium.numbers
    last = numbers[COUNT, way] - 1
    for place in range(last + 1):
        if clients[way, place] == k:
            clients[way, place] = clients[way, last]
            numbers[COUNT, way] = last
            numbers[UNTIL] = STALE
            break


@inlined
def advance(
    medium: Medium, links: Any, slots: Slots, slot: int, until_s: float
) -> tuple[int, int, float, int]:
    """Send until a transfer ends, but no longer than until a moment.

    Returns:
        The direction and the client whose transfer ends first, or -1; when; and in which slot. Ties
        go by direction, then by client. The moment is `EXHAUSTED` if no transfer ends before the
        trace does.
    """
    left_bits, bps, numbers, clients = medium.left_bits, medium.bps, medium.numbers, medium.clients
    now_s = medium.now_s[0]
    while is_busy(medium) and now_s < until_s + HALF_NS:
        slot = slot_at(slots, now_s, slot)
        if slot >= slots.values.shape[2]:
            return -1, -1, EXHAUSTED, slot
        first_way, first, first_s = -1, -1, EXHAUSTED
        if slot >= min(numbers[UNTIL, UP], numbers[UNTIL, DOWN]):
            _share(medium, links, slots, slot)
        for way in (UP, DOWN):
            for place in range(numbers[COUNT, way]):
                k = clients[way, place]
                end_s = now_s
                if left_bits[way, k] > 0.0:
                    end_s = EXHAUSTED
                    if bps[way, k] > 0.0:
                        end_s = now_s + left_bits[way, k] / bps[way, k]
                if end_s < first_s or (end_s == first_s and way == first_way and k < first):
                    first_way, first, first_s = way, k, end_s
        horizon_s = min(first_s, until_s)
        for way in (UP, DOWN):
            _reach(medium, slots, way, horizon_s)
            horizon_s = min(horizon_s, edge_of(slots, numbers[UNTIL, way]))
        if first_s > horizon_s + HALF_NS:
            first_way, first, first_s = -1, -1, max(now_s, horizon_s)
        for way in (UP, DOWN):
            for place in range(numbers[COUNT, way]):
                k = clients[way, place]
                sent = bps[way, k] * (first_s - now_s)
                left_bits[way, k] = max(0.0, left_bits[way, k] - sent)
        now_s = first_s
        if first >= 0:
            medium.now_s[0] = now_s
            end_transfer(medium, first_way, first)
            return first_way, first, now_s, slot
        if now_s >= until_s:
            break
    medium.now_s[0] = max(now_s, until_s)
    return -1, -1, until_s, slot


@inlined
def _share(medium: Medium, links: Any, slots: Slots, slot: int) -> None:
    """Compute the rates of all active clients in a slot."""
    bps, least, below, clients = medium.bps, medium.least, medium.below, medium.clients
    numbers = medium.numbers
    sharing = numbers[COUNT, UP], numbers[COUNT, DOWN]
    for again in range(2):
        up, down = 0, 0
        for way in (UP, DOWN):
            every, others = sharing if way == UP else (sharing[1], sharing[0])
            for place in range(numbers[COUNT, way]):
                k = clients[way, place]
                if not again or bps[way, k] > 0.0:
                    link = link_of(links, way, k)
                    active = sharing_with(slots.cells, medium, way, k, slot, again > 0, every)
                    bps[way, k], least[way, k], below[way, k] = shared_slot_bps(
                        slots, link, way, k, slot, active, others
                    )
                carries = bps[way, k] > 0.0
                up, down = up + (carries and way == UP), down + (carries and way == DOWN)
        if (up, down) == sharing:
            break
        sharing = up, down  # the others are in an outage, however many send
    numbers[UNTIL] = slot + 1


@inlined
def sharing_with(
    cells: Ints | None, medium: Medium, way: int, k: int, slot: int, carrying: bool, every: int
) -> int:
    """Number of active clients that share the band with a client, including the client.

    Args:
        cells: The cells of `Slots`.
        medium: State of the medium.
        way: The direction.
        k: The client.
        slot: The slot.
        carrying: Whether only those count that have a rate.
        every: Number of links that share a single cell.
    """
    if cells is None:
        return every
    count = 0
    for place in range(medium.numbers[COUNT, way]):
        other = medium.clients[way, place]
        count += cells[other, slot] == cells[k, slot] and (
            not carrying or medium.bps[way, other] > 0.0
        )
    return count


@inlined
def same_cell(cells: Ints | None, k: int, slot: int) -> bool:
    """Whether a client is in the same cell as in the slot before."""
    return cells is None or cells[k, slot] == cells[k, slot - 1]


@inlined
def _reach(medium: Medium, slots: Slots, way: int, until_s: float) -> None:
    """Find how long the rates of a direction hold, up to a moment."""
    values, clients, least, below = slots.values, medium.clients, medium.least, medium.below
    row, until, same = min(way, values.shape[0] - 1), medium.numbers[UNTIL, way], True
    while same and until < values.shape[2] and edge_of(slots, until) < until_s:
        for place in range(medium.numbers[COUNT, way]):
            k = clients[way, place]
            same = same and least[way, k] <= values[row, k, until] < below[way, k]
            same = same and same_cell(slots.cells, k, until)
        until += same
    medium.numbers[UNTIL, way] = until
