# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The kernel's shaper frame by frame, as an account: what tests hold real transfers against."""

from collections.abc import Iterable, Sequence

from testbed.network.shaping import Shape


def transfer_end_s(
    shape: Shape,
    rates_bps: Sequence[float],
    slot_s: float,
    start_s: float,
    frame_bytes: Iterable[int],
) -> float:
    """When the shaper lets go of the last frame of a transfer that begins on an idle link.

    This is the kernel's accounting frame by frame, in contrast to the integral of the rates: a
    frame is charged at the rate of the moment it leaves, its charge is not rescaled when the rate
    changes, an idle link has saved up `Shape.burst_at`, and the last frame has left when its turn
    comes. The two differ by some frames at most, unless rates jump at few frames a slot.

    Args:
        shape: How the link treats frames.
        rates_bps: Rate of each slot in bit/s from time 0, 0 for an outage; the last one stays.
        slot_s: Length of a slot.
        start_s: When the first frame is queued.
        frame_bytes: What each frame is charged.
    """
    last = len(rates_bps) - 1
    now_s = start_s
    rate = next(
        (r for r in reversed(rates_bps[: min(last, int(start_s / slot_s)) + 1]) if r),
        next(r for r in rates_bps if r),
    )
    free_s = start_s - shape.burst_at(rate)
    for size in frame_bytes:
        now_s = max(now_s, free_s)
        slot = min(last, int(now_s / slot_s))
        if rates_bps[slot]:
            rate = rates_bps[slot]
        free_s = max(free_s, now_s - shape.burst_at(rate)) + size * 8 / rate
        while not rates_bps[slot]:
            slot += 1
            now_s = slot * slot_s
    return now_s
