# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The NR slots of each direction: their share of the time, and how long packets wait for them.

The waiting times are an approximation. Three idle round trips over 5G-LENA (NR-v4.0) were measured:
9.0 ms with FDD and 30 kHz, 6.0 ms with FDD and 60 kHz, 11.5 ms with TDD, `DDDU` and 30 kHz. The
first two are 3 ms and 12 NR slots; how these are divided between the directions is assumed. With
the waiting times of the pattern, the third becomes 11.4 ms.
"""

from orchestrator.scenario.schema import Nr

GAP_SLOT = 12 / 13
"""Data of an NR slot with a gap (`S`) relative to a downlink slot, as measured in 5G-LENA."""
FIXED_S = 1.5e-3
"""Time on each way that does not depend on the length of NR slots."""
GRANT_SLOTS = 5
"""Least number of NR slots from a UAV's request to the data of the grant for it."""
AHEAD_SLOTS = 2
"""NR slots from a decision for the downlink, or from an uplink grant, to the data; 5G-LENA's
`L1L2CtrlLatency` and `N2Delay`."""
ENTRY_S = 0.5e-3
"""Part of `FIXED_S` before the request: packets enter ns-3 at whole milliseconds."""


def slot_shares(nr: Nr) -> tuple[float, float]:
    """Shares of the NR slots that carry data of uplink and downlink."""
    if nr.duplex == "fdd":
        return 1.0, 1.0
    slots = nr.tdd_pattern
    down = slots.count("D") + GAP_SLOT * slots.count("S")
    return slots.count("U") / len(slots), down / len(slots)


def idle_delays_s(nr: Nr) -> tuple[float, float]:
    """Mean delay of a packet in an idle cell, in uplink and downlink.

    A packet waits for the next NR slot of its direction. In the uplink, this slot has the request;
    the data follow in the first uplink slot that is at least `GRANT_SLOTS` later. The scheduler
    decides `AHEAD_SLOTS` earlier.
    """
    up, down = ("U", "D") if nr.duplex == "fdd" else (nr.tdd_pattern,) * 2
    wait, granted = _waits(up, "U", GRANT_SLOTS)
    uplink = wait + granted + 1 + AHEAD_SLOTS
    downlink = _waits(down, "DS", 0)[0] + 1 + AHEAD_SLOTS
    return FIXED_S + nr.slot_s * uplink, FIXED_S + nr.slot_s * downlink


def grant_delays_s(nr: Nr) -> tuple[tuple[float, float], tuple[float, float]]:
    """The delays of `idle_delays_s` in two parts, for uplink and downlink: until the NR slot of the
    data begins, and from its end until they have arrived."""
    after_s = FIXED_S - ENTRY_S
    up_s, down_s = (whole_s - nr.slot_s - after_s for whole_s in idle_delays_s(nr))
    return (up_s, down_s), (after_s, after_s)


def ahead_slots(nr: Nr) -> tuple[float, float]:
    """Mean NR slots from the time at which data leave a queue until their own NR slot begins, in
    uplink and downlink.

    An uplink grant is sent in the last NR slot with a downlink that is at least `AHEAD_SLOTS`
    before; the base station takes data from its queue as early as it decides.
    """
    if nr.duplex == "fdd":
        return AHEAD_SLOTS, AHEAD_SLOTS
    pattern, slots = nr.tdd_pattern, []
    for slot in (n for n, way in enumerate(pattern) if way == "U"):
        ahead = AHEAD_SLOTS
        while pattern[(slot - ahead) % len(pattern)] == "U":
            ahead += 1
        slots.append(ahead)
    return sum(slots) / len(slots), AHEAD_SLOTS


def _waits(pattern: str, own: str, later: int) -> tuple[float, float]:
    """Mean NR slots until one of `own`, and from it until one at least `later` slots after it."""
    count = len(pattern)

    def until(slot: int) -> int:
        return next(n for n in range(count) if pattern[(slot + n) % count] in own)

    first = [(slot + until(slot)) % count for slot in range(1, count + 1)]
    # A packet arrives during a slot, and can be sent from the next one on.
    wait = sum(until(slot) for slot in range(1, count + 1)) / count + 0.5
    return wait, later + sum(until(slot + later) for slot in first) / count
