# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""When gates open for transfers that start together, and with what saved up."""

from types import SimpleNamespace
from typing import Any

import pytest

from testbed.core.clock import OPEN_S, EmulatedClock
from testbed.network.gates import Opening, last_frames, openings
from testbed.network.shaping import SOON_POLL_S, End, Shape

SHAPE = Shape()
SLOT_S = 0.1
START = EmulatedClock(10**12, 0.03, 1.0)
LAST = 500


def of(*rates_by_slot: tuple[float, ...], clock: EmulatedClock = START) -> list[Opening]:
    """Openings of links with these rates in slot 0, slot 1, …"""
    ends = [End(index, SHAPE) for index, _ in enumerate(rates_by_slot[0], 1)]
    site: Any = SimpleNamespace(ends=ends)
    rows = dict(enumerate(rates_by_slot))
    return openings(site, SHAPE, clock, SLOT_S, rows.get, [LAST] * len(ends))


def test_links_open_together_with_what_they_would_have_carried_but_for_two_packets() -> None:
    (opening,) = of((20e6, 30e6))
    assert opening.at_ns == START.start_ns + round(OPEN_S * 1e9)
    assert [end.index for end in opening.ends] == [1, 2]
    assert opening.rates_bps == (20e6, 30e6)
    for rate_bps, credit_s in zip(opening.rates_bps, opening.credits_s, strict=True):
        taken_s = 8 * (SHAPE.frame_bytes + LAST) / rate_bps
        assert credit_s == pytest.approx(OPEN_S + SOON_POLL_S / 2 - taken_s, abs=1e-9)


def test_a_slow_link_opens_when_its_two_packets_would_have_left() -> None:
    fast, slow = of((20e6, 1e6))
    assert [len(opening.ends) for opening in (fast, slow)] == [1, 1]
    waited_s = (slow.at_ns - START.start_ns) / 1e9
    assert waited_s == pytest.approx(8 * (SHAPE.frame_bytes + LAST) / 1e6, abs=0.2e-3)
    assert 0 < slow.credits_s[0] < 0.2e-3


def test_a_link_that_is_out_is_left_to_its_slots() -> None:
    (opening,) = of((20e6, 0.0))
    assert [end.index for end in opening.ends] == [1]


def test_rates_that_change_before_gates_open_count_each_for_its_time() -> None:
    late = EmulatedClock(10**12, SLOT_S - OPEN_S / 2, 1.0)
    (opening,) = of((20e6,), (40e6,), clock=late)
    assert opening.rates_bps == (40e6,)
    bits = 20e6 * OPEN_S / 2 + 40e6 * (OPEN_S + SOON_POLL_S) / 2
    taken_bits = 8 * (SHAPE.frame_bytes + LAST)
    assert opening.credits_s[0] == pytest.approx((bits - taken_bits) / 40e6, abs=1e-9)


def test_dilation_makes_slots_longer_not_gates() -> None:
    slow_time = EmulatedClock(10**12, 0.03, 4.0)
    (opening,) = of((20e6,), clock=slow_time)
    assert opening.at_ns == slow_time.start_ns + round(OPEN_S * 1e9)


def test_the_last_frame_is_what_full_ones_leave() -> None:
    full = SHAPE.frame_bytes
    assert last_frames([full, full + 1, 3 * full - 1, 60], SHAPE) == [full, 1, full - 1, 60]
