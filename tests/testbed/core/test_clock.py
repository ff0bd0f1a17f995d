# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Moments of emulated time, on a clock that stands where a test puts it."""

import math
from fractions import Fraction

import pytest

from testbed.core import clock as module
from testbed.core.clock import FILL_S, OPEN_S, EmulatedClock


@pytest.fixture
def at(monkeypatch):
    """The monotonic clock; sleeping moves it."""
    now = [0]

    def sleep(seconds: float) -> None:
        now[0] += round(seconds * 1e9)

    monkeypatch.setattr(module.time, "monotonic_ns", lambda: now[0])
    monkeypatch.setattr(module.time, "sleep", sleep)
    return now


@pytest.mark.parametrize("dilation", [1.0, 4.0])
def test_what_a_link_holds_back_is_handed_over_a_bit_ahead(at, dilation: float) -> None:
    clock = EmulatedClock(10**9, 7.0, dilation)
    assert clock.fill(7.0) == 7.0
    assert at[0] == 10**9 - round(FILL_S * 1e9)


@pytest.mark.parametrize("dilation", [1.0, 4.0])
def test_late_transfers_start_late_except_while_frames_are_held(at, dilation: float) -> None:
    clock = EmulatedClock(10**9, 7.0, dilation)
    at[0] = 10**9 + round(OPEN_S / 2 * 1e9)
    assert clock.fill(7.0) == 7.0
    at[0] = 10**9 + round((OPEN_S + 0.010) * 1e9)
    assert clock.fill(7.0) == pytest.approx(7.0 + 0.010 / dilation)


@pytest.mark.parametrize("duration_ns", [1, 3, 1_000_001, 9_938_479, 10**7 - 1, 5 * 10**12 + 1])
def test_a_sleep_is_of_so_many_nanoseconds(monkeypatch, duration_ns: int) -> None:
    slept: list[float] = []
    monkeypatch.setattr(module.time, "sleep", slept.append)
    module.sleep_ns(duration_ns)
    # As `time.sleep` rounds.
    assert math.ceil(Fraction(slept[0]) * 10**9) == duration_ns
