# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""When held downlinks are released, and with how much credit."""

import pytest

from testbed.core.clock import OPEN_S, EmulatedClock
from testbed.network.holding import Release, last_frames, releases
from testbed.network.shaping import SOON_POLL_S, Shape

SHAPE = Shape()
SLOT_S = 0.1
START = EmulatedClock(10**12, 0.03, 1.0)
LAST = 500


def of(*rates_by_slot: tuple[float, ...], clock: EmulatedClock = START) -> list[Release]:
    """Releases of downlinks with these rates in slot 0, slot 1, …"""
    links, rows = len(rates_by_slot[0]), dict(enumerate(rates_by_slot))
    return releases([1] * links, SHAPE, clock, SLOT_S, rows.get, [LAST] * links)


def test_links_open_together_with_what_they_would_have_carried_but_for_two_packets() -> None:
    (release,) = of((20e6, 30e6))
    assert release.at_ns == START.start_ns + round(OPEN_S * 1e9)
    assert release.places == (0, 1)
    assert release.rates_bps == (20e6, 30e6)
    for rate_bps, credit_s in zip(release.rates_bps, release.credits_s, strict=True):
        taken_s = 8 * (SHAPE.frame_bytes + LAST) / rate_bps
        assert credit_s == pytest.approx(OPEN_S + SOON_POLL_S / 2 - taken_s, abs=1e-9)


def test_a_slow_link_opens_when_its_two_packets_would_have_left() -> None:
    fast, slow = of((20e6, 1e6))
    assert [release.places for release in (fast, slow)] == [(0,), (1,)]
    waited_s = (slow.at_ns - START.start_ns) / 1e9
    assert waited_s == pytest.approx(8 * (SHAPE.frame_bytes + LAST) / 1e6, abs=0.2e-3)
    assert 0 < slow.credits_s[0] < 0.2e-3


def test_narrow_links_whose_moments_are_close_open_together() -> None:
    """Each a hundredth faster than the one before: 14.5 to 5.4 ms until two packets have left."""
    rates = tuple(1.11e6 * 1.01**k for k in range(100))
    found = of(rates)
    assert len(found) <= 10, "one a millisecond"
    assert sorted(place for release in found for place in release.places) == list(range(100))
    two_bits = 8 * (SHAPE.frame_bytes + LAST)
    for release in found:
        opens_s = (release.at_ns - START.start_ns) / 1e9
        each = zip(release.places, release.rates_bps, release.credits_s, strict=True)
        for place, rate_bps, credit_s in each:
            own_s = two_bits / rate_bps
            assert rate_bps == rates[place]
            assert -1e-8 < opens_s - own_s - 0.1e-3 < 1e-3, "not before its own moment"
            # What it has saved up by then, so that the transfer follows the integral.
            assert credit_s == pytest.approx(opens_s + SOON_POLL_S / 2 - own_s, abs=1e-8)


@pytest.mark.parametrize(
    ("size", "waits_s"), [(1, 0.1e-3), (2500, 1e-3 - 0.15e-3), (50_000, OPEN_S)]
)
def test_a_short_transfer_is_released_when_it_would_have_arrived(size: int, waits_s: float) -> None:
    """At 20 Mb/s, less the way to the receiver; its credit lets all of it leave."""
    (release,) = releases(
        [1], SHAPE, START, SLOT_S, {0: (20e6,)}.get, last_frames([size], SHAPE), [size]
    )
    assert release.at_ns == START.start_ns + round(waits_s * 1e9)
    first_and_last = SHAPE.frame_bytes + last_frames([size], SHAPE)[0]
    if waits_s < OPEN_S:
        assert release.credits_s[0] >= 8 * (size - first_and_last) / 20e6


def test_a_link_that_is_out_is_left_to_its_slots() -> None:
    (release,) = of((20e6, 0.0))
    assert release.places == (0,)


def test_rates_that_change_before_the_release_count_each_for_its_time() -> None:
    late = EmulatedClock(10**12, SLOT_S - OPEN_S / 2, 1.0)
    (release,) = of((20e6,), (40e6,), clock=late)
    assert release.rates_bps == (40e6,)
    bits = 20e6 * OPEN_S / 2 + 40e6 * (OPEN_S + SOON_POLL_S) / 2
    taken_bits = 8 * (SHAPE.frame_bytes + LAST)
    assert release.credits_s[0] == pytest.approx((bits - taken_bits) / 40e6, abs=1e-9)


def test_dilation_makes_slots_longer_not_the_wait() -> None:
    slow_time = EmulatedClock(10**12, 0.03, 4.0)
    (release,) = of((20e6,), clock=slow_time)
    assert release.at_ns == slow_time.start_ns + round(OPEN_S * 1e9)


def test_the_last_frame_is_what_full_ones_leave() -> None:
    full = SHAPE.frame_bytes
    assert last_frames([full, full + 1, 3 * full - 1, 60], SHAPE) == [full, 1, full - 1, 60]
