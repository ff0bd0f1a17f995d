# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Waiting for a moment, on a clock that goes on by what reads, sleeps and sleepers' delays take."""

from dataclasses import dataclass

import pytest

from testbed.system import waiting
from testbed.system.waiting import SPIN_NS, wait_until

READ_NS = 256
LATE_NS = 60_000
"""A sleeper's delay by the real clock."""


@dataclass
class Clock:
    now_ns: int = 10**9
    late_ns: int = 0
    reads: int = 0

    def monotonic_ns(self) -> int:
        self.reads += 1
        self.now_ns += READ_NS
        return self.now_ns

    def sleep_ns(self, duration_ns: int) -> None:
        self.now_ns += duration_ns + self.late_ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(waiting, "time", clock)
    monkeypatch.setattr(waiting, "sleep_ns", clock.sleep_ns)
    return clock


def test_by_the_real_clock_the_last_stretch_is_spent_awake(clock: Clock) -> None:
    clock.late_ns = LATE_NS
    moment_ns = clock.now_ns + 5_000_000
    wait_until(moment_ns)
    assert moment_ns <= clock.now_ns < moment_ns + READ_NS
    assert clock.reads == pytest.approx((SPIN_NS - LATE_NS) / READ_NS, abs=2)


def test_in_virtual_time_all_of_it_is_slept(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting.inside, "guest_settings", dict)
    moment_ns = clock.now_ns + 5_000_000
    wait_until(moment_ns)
    assert moment_ns <= clock.now_ns <= moment_ns + READ_NS
    assert clock.reads == 2


def test_a_moment_that_has_passed_is_not_waited_for(clock: Clock) -> None:
    wait_until(clock.now_ns - 1)
    assert clock.reads == 2
