# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""An uplink that its active links share, for compiled code: fluid, from change to change.

Where each link has a share of its own, a transfer's end is known when it begins. Where a medium is
divided among the links that have something to send, each beginning and each end changes the rates
of all others. Between two such changes every active link has the rate of `shared_bps`, slot by
slot; `Medium` keeps how much each still has to send, and which transfer ends first if nothing else
changes.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orchestrator.engine.compiling import Array, Ints, inlined
from orchestrator.engine.radio_kernel import link_of, shared_bps
from orchestrator.engine.slot_impairments import UP
from orchestrator.engine.slots import EXHAUSTED, HALF_NS, Slots, edge_of, slot_at

NOW_S, NEXT_END_S = 0, 1
SLOT, COUNT, NEXT_CLIENT = 0, 1, 2


class Medium(NamedTuple):
    """The state of a shared uplink, which a round writes to."""

    active: npt.NDArray[np.bool_]
    """Whether each client has something to send, shape [K]."""
    left_bits: Array
    """What each active client has still to send, shape [K]."""
    times_s: Array
    """`NOW_S`: up to when `left_bits` counts; `NEXT_END_S`: when the next transfer ends, if no
    other begins before; infinity: never."""
    numbers: Ints
    """`SLOT` of `NOW_S`; `COUNT` of active clients; `NEXT_CLIENT`: whose transfer ends next."""


def medium_of(clients: int) -> Medium:
    """A medium on which nothing is sent yet, for that many clients."""
    times_s = np.array([0.0, EXHAUSTED])
    return Medium(np.zeros(clients, np.bool_), np.zeros(clients), times_s, np.zeros(3, np.int64))


@inlined
def clear(medium: Medium, start_s: float) -> None:
    """Nothing is sent yet, and a round begins."""
    medium.active[:] = False
    medium.times_s[NOW_S], medium.times_s[NEXT_END_S] = start_s, EXHAUSTED
    medium.numbers[:] = 0


@inlined
def begin_transfer(
    medium: Medium, links: Any, slots: Slots, k: int, bits: float, at_s: float
) -> None:
    """Let a client begin to send; no transfer that is under way ends before that moment."""
    _send_until(medium, links, slots, at_s)
    medium.active[k], medium.left_bits[k] = True, bits
    medium.numbers[COUNT] += 1
    _foresee(medium, links, slots)


@inlined
def end_transfer(medium: Medium, links: Any, slots: Slots) -> tuple[int, float]:
    """End the transfer that is due next: whose it was, and when."""
    k, at_s = medium.numbers[NEXT_CLIENT], medium.times_s[NEXT_END_S]
    _send_until(medium, links, slots, at_s)
    medium.active[k], medium.left_bits[k] = False, 0.0
    medium.numbers[COUNT] -= 1
    _foresee(medium, links, slots)
    return k, at_s


@inlined
def _bps(medium: Medium, links: Any, slots: Slots, k: int, slot: int) -> float:
    value = slots.values[0, k, slot]
    return float(shared_bps(link_of(links, UP, k), value, medium.numbers[COUNT]))


@inlined
def _send_until(medium: Medium, links: Any, slots: Slots, at_s: float) -> None:
    """Count what active clients have sent up to a moment."""
    at_s = max(at_s, medium.times_s[NOW_S])  # events of one nanosecond come in any order
    now_s, slot = medium.times_s[NOW_S], slot_at(slots, medium.times_s[NOW_S], medium.numbers[SLOT])
    while medium.numbers[COUNT] > 0 and now_s < at_s and slot < slots.values.shape[2]:
        until_s = min(at_s, edge_of(slots, slot + 1))
        for k in range(medium.active.size):
            if medium.active[k]:
                sent = _bps(medium, links, slots, k, slot) * (until_s - now_s)
                medium.left_bits[k] = max(0.0, medium.left_bits[k] - sent)
        now_s = until_s
        if now_s >= edge_of(slots, slot + 1):
            slot += 1
    medium.times_s[NOW_S] = at_s
    medium.numbers[SLOT] = slot_at(slots, at_s, slot)


@inlined
def _foresee(medium: Medium, links: Any, slots: Slots) -> None:
    """Find which transfer ends first if no other begins; ties go by client."""
    now_s, slot = medium.times_s[NOW_S], medium.numbers[SLOT]
    medium.times_s[NEXT_END_S] = EXHAUSTED
    left = medium.left_bits.copy()
    while medium.numbers[COUNT] > 0 and slot < slots.values.shape[2]:
        edge_s = edge_of(slots, slot + 1)
        for k in range(medium.active.size):
            if medium.active[k]:
                rate = _bps(medium, links, slots, k, slot)
                if left[k] <= rate * (edge_s - now_s + HALF_NS):
                    end_s = now_s + (left[k] / rate if left[k] > 0.0 else 0.0)
                    if end_s < medium.times_s[NEXT_END_S]:
                        medium.times_s[NEXT_END_S], medium.numbers[NEXT_CLIENT] = end_s, k
                left[k] -= rate * (edge_s - now_s)
        if medium.times_s[NEXT_END_S] < EXHAUSTED:
            break
        now_s = edge_s
        slot += 1
