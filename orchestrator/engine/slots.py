# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Slots of a channel and the integral of a link's rate over them, for compiled code."""

import math
from typing import Any, NamedTuple

from orchestrator.engine.compiling import Array, Ints, inlined
from orchestrator.engine.radio_kernel import link_bps, shared_bps
from orchestrator.engine.slot_impairments import UP

HALF_NS = 0.5e-9
EXHAUSTED = math.inf


class Slots(NamedTuple):
    """A channel trace; `edges_s` is empty where slots are multiples of `slot_s`."""

    values: Array
    """Shape [2, K, S], up and down; [1, K, S] where both are equal."""
    slot_s: float
    edges_s: Array
    fading: Array | None = None
    """Power of small-scale fading relative to its mean in the blocks of each slot, shape
    [2, K, S, B]; None: there is none."""
    cells: Ints | None = None
    """Number of the cell that serves each client, shape [K, S]; None: there is one cell."""


@inlined
def slot_bps(slots: Slots, link: Any, way: int, k: int, slot: int) -> float:
    """The mean rate of a link in a slot, in bit/s; for a shared band, the rate while all clients of
    its cell are active."""
    return float(_slot_bps(slots.cells, slots.fading, slots.values, link, way, k, slot))


@inlined
def _slot_bps(
    cells: Ints | None,
    fading: Array | None,
    values: Array,
    link: Any,
    way: int,
    k: int,
    slot: int,
) -> float:
    value = values[min(way, values.shape[0] - 1), k, slot]
    if cells is not None and link.is_shared:
        count = 0
        for other in range(cells.shape[0]):
            count += cells[other, slot] == cells[k, slot]
        return float(shared_bps(link, value, count, 0)[0])
    if fading is None:
        return float(link_bps(link, value))
    total, powers = 0.0, fading[0 if way == UP else 1, k, slot]
    for power in powers:
        total += link_bps(link, value * power)
    return float(total / powers.size)


@inlined
def shared_slot_bps(
    slots: Slots, link: Any, way: int, k: int, slot: int, active: int, others: int
) -> tuple[float, float, float]:
    """The mean rate of a link in a slot, in bit/s, while `active` clients send in its direction and
    `others` in the other. Also the range of slot values in which it is the same: its lower end, and
    the first value above it."""
    shared: tuple[float, float, float] = _shared_slot_bps(
        slots.fading, slots.values, link, way, k, slot, active, others
    )
    return shared


@inlined
def _shared_slot_bps(
    fading: Array | None,
    values: Array,
    link: Any,
    way: int,
    k: int,
    slot: int,
    active: int,
    others: int,
) -> tuple[float, float, float]:
    value = values[min(way, values.shape[0] - 1), k, slot]
    if fading is None:
        shared: tuple[float, float, float] = shared_bps(link, value, active, others)
        return shared
    total, powers = 0.0, fading[0 if way == UP else 1, k, slot]
    for power in powers:
        total += shared_bps(link, value * power, active, others)[0]
    return total / powers.size, math.inf, -math.inf


@inlined
def edge_of(slots: Slots, slot: int) -> float:
    """Start of a slot, in s."""
    return slots.edges_s[slot] if slots.edges_s.size else slot * slots.slot_s


def end_of(slots: Slots) -> float:
    """End of the trace, in s."""
    last = slots.values.shape[2]
    return float(slots.edges_s[last]) if slots.edges_s.size else last * slots.slot_s


@inlined
def slot_at(slots: Slots, time_s: float, slot: int) -> int:
    """The slot that contains a moment, searched from an earlier slot on; a boundary belongs to the
    new slot."""
    while slot < slots.values.shape[2] and edge_of(slots, slot + 1) <= time_s + HALF_NS:
        slot += 1
    return slot


@inlined
def carried(
    slots: Slots,
    airtime: Array | None,
    way: int,
    k: int,
    bits: float,
    time_s: float,
    slot: int,
    link: Any,
) -> tuple[float, int]:
    """When a link has carried a number of bits, and in which slot.

    It ends when the integral of its slots' rates reaches its bits, eq. (3). In an outage the rate
    is 0 and the transfer waits. `airtime`, shape [3, K, S] or [3, K, 1], is how often a frame is
    sent in the mean; None stands for once.
    """
    slot = slot_at(slots, time_s, slot)
    if bits == 0.0:
        return time_s, slot
    while slot < slots.values.shape[2]:
        edge_s = edge_of(slots, slot + 1)
        rate = slot_bps(slots, link, way, k, slot)
        if airtime is not None:
            rate /= airtime[way, k, min(slot, airtime.shape[2] - 1)]
        if rate > 0.0:
            if bits <= rate * (edge_s - time_s + HALF_NS):
                return time_s + bits / rate, slot
            bits -= rate * (edge_s - time_s)
        time_s = edge_s
        slot += 1
    return EXHAUSTED, slot
