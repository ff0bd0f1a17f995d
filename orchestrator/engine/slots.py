# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Slots of a channel and the integral of a link's rate over them, for compiled code."""

import math
from typing import Any, NamedTuple

from orchestrator.engine.compiling import Array, inlined
from orchestrator.engine.radio_kernel import link_bps

HALF_NS = 0.5e-9
EXHAUSTED = math.inf


class Slots(NamedTuple):
    """A channel trace; `edges_s` is empty where slots are multiples of `slot_s`."""

    values: Array
    """Shape [2, K, S], up and down; [1, K, S] where they are alike."""
    slot_s: float
    edges_s: Array


@inlined
def edge_of(slots: Slots, slot: int) -> float:
    """When a slot begins."""
    return slots.edges_s[slot] if slots.edges_s.size else slot * slots.slot_s


@inlined
def slot_at(slots: Slots, time_s: float, slot: int) -> int:
    """The slot of a moment, searched from an earlier slot on; an edge belongs to the new slot."""
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
    row = min(way, slots.values.shape[0] - 1)
    if bits == 0.0:
        return time_s, slot
    while slot < slots.values.shape[2]:
        edge_s = edge_of(slots, slot + 1)
        rate = link_bps(link, slots.values[row, k, slot])
        if airtime is not None:
            rate /= airtime[way, k, min(slot, airtime.shape[2] - 1)]
        if rate > 0.0:
            if bits <= rate * (edge_s - time_s + HALF_NS):
                return time_s + bits / rate, slot
            bits -= rate * (edge_s - time_s)
        time_s = edge_s
        slot += 1
    return EXHAUSTED, slot
