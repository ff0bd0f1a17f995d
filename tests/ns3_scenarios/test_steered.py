# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Flights by programs: where a UAV is, and that no wrong program makes a wrong slot."""

import math
import struct
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from ns3_scenarios.mobility import Known
from ns3_scenarios.steered import Limits, SteeredFlight
from testbed import pilot

SLOT_S = 0.1
NAN, INF = math.nan, math.inf
LIMITS = Limits(20.0, 5.0, (50.0, 2000.0), (10.0, 100.0), Known(), [(0, 0, 30), (1500, 0, 30)])
START_M = (1000.0, 0.0, 20.0)


class Flown:
    """A UAV at (1000, 0, 20) m whose program publishes what it is given."""

    def __init__(self) -> None:
        self.published: bytes | None = None
        self.flight = SteeredFlight(np.array([START_M]), LIMITS)
        self.flight.read = lambda k: self.published
        self.slot = -1
        self.path = [np.array(START_M)]

    def publish(self, *numbers: float) -> None:
        self.published = struct.pack("<7d", *numbers)

    def next(self) -> tuple[list[float], int]:
        """The position in the next slot, and the status."""
        self.slot += 1
        (position_m,) = self.flight.positions(self.slot, 1, SLOT_S)[:, 0]
        self.path.append(position_m)
        return position_m.tolist(), self.flight.status[0]

    def until(self, slot: int) -> tuple[list[float], int]:
        found = self.next()
        while self.slot < slot:
            found = self.next()
        return found

    def check_path(self) -> None:
        """In no slot does the UAV fly faster than allowed, or outside of its region."""
        for before, after in pairwise(self.path):
            assert math.hypot(*(after - before)[:2]) <= 20 * SLOT_S * (1 + 1e-6)
            assert abs(after[2] - before[2]) <= 5 * SLOT_S * (1 + 1e-6)
            assert not LIMITS.excludes(after)


def test_a_uav_without_a_program_hovers_and_that_is_not_a_refusal() -> None:
    flown = Flown()
    assert flown.until(30) == (list(START_M), pilot.NO_RECORD)
    assert flown.flight.horizon == 1
    assert not flown.flight.accounts[0].slots
    assert not flown.flight.accounts[0].has_flown


def test_the_velocity_removes_the_lag_of_a_slot() -> None:
    """A state of 0.95 s: in slot 10 the UAV is 0.05 s further on."""
    flown = Flown()
    flown.until(9)
    flown.publish(0.95, 1000.0, 0.0, 20.0, -10.0, 4.0, 1.0)
    assert flown.next() == (pytest.approx([999.5, 0.2, 20.05]), pilot.FLOWN)
    assert flown.next() == (pytest.approx([998.5, 0.6, 20.15]), pilot.FLOWN)
    flown.publish(1.2, 997.0, 1.0, 20.2, 0.0, 0.0, 0.0)
    assert flown.until(40) == (pytest.approx([997.0, 1.0, 20.2]), pilot.FLOWN)
    flown.check_path()
    account = flown.flight.accounts[0]
    assert account.has_flown
    assert not account.slots


def test_a_moving_uav_whose_program_is_silent_hovers_after_a_second() -> None:
    flown = Flown()
    flown.publish(0.0, *START_M, 10.0, 0.0, 0.0)
    assert flown.until(10) == (pytest.approx([1010.0, 0.0, 20.0]), pilot.FLOWN)
    assert flown.until(30) == (pytest.approx([1010.0, 0.0, 20.0]), pilot.SILENT)
    assert flown.flight.accounts[0].slots == {pilot.SILENT: 20}
    flown.check_path()


@pytest.mark.parametrize(
    ("record", "status"),
    [
        *(
            ([1.0, *START_M, 0, 0, 0][:n] + [bad] + [0.0] * (6 - n), pilot.NOT_NUMBERS)
            for n in (0, 1, 3, 4, 6)
            for bad in (NAN, INF, -INF)
        ),
        ([1.6, *START_M, 0, 0, 0], pilot.WRONG_TIME),  # slot 10 begins at 1 s
        ([1e300, *START_M, 0, 0, 0], pilot.WRONG_TIME),
        ([-0.1, *START_M, 0, 0, 0], pilot.WRONG_TIME),  # one of 0 s is known
        ([-1e9, *START_M, 0, 0, 0], pilot.WRONG_TIME),
        ([0.9, *START_M, 20.1, 0, 0], pilot.TOO_FAST),
        ([0.9, *START_M, 15, -15, 0], pilot.TOO_FAST),
        ([0.9, *START_M, 0, 0, 5.1], pilot.TOO_FAST),
        ([0.9, *START_M, 0, 0, -1e308], pilot.TOO_FAST),
        ([0.9, 6000.0, 0.0, 20.0, 0, 0, 0], pilot.TOO_FAR),
        ([0.9, 1023.0, 0.0, 20.0, 0, 0, 0], pilot.TOO_FAR),
        ([0.9, 1e308, -1e308, 1e308, 0, 0, 0], pilot.TOO_FAR),
        ([0.9, 1000.0, 0.0, 26.0, 0, 0, 0], pilot.TOO_FAR),
        ([0.9, -1000.0, 0.0, 20.0, 0, 0, 0], pilot.TOO_FAR),
    ],
)
def test_a_wrong_record_is_refused_and_the_last_allowed_state_is_kept(
    record: list[float], status: int
) -> None:
    flown = Flown()
    flown.publish(0.0, *START_M, 0.0, 0.0, 0.0)
    flown.until(9)
    flown.publish(*record)
    assert flown.next() == (list(START_M), status)
    assert flown.until(14) == (list(START_M), status)
    account = flown.flight.accounts[0]
    assert account.slots == {status: 5}
    assert account.first[status][0] == 10
    # It goes on as soon as its program is right.
    flown.publish(1.45, *START_M, 10.0, 0.0, 0.0)
    assert flown.next() == (pytest.approx([1000.5, 0.0, 20.0]), pilot.FLOWN)
    flown.check_path()


@pytest.mark.parametrize("data", [b"?", bytes(55), bytes(57), bytes(28), bytes(1 << 20), b"\x00"])
def test_what_is_no_record_is_refused(data: bytes) -> None:
    flown = Flown()
    flown.published = data
    assert flown.until(3) == (list(START_M), pilot.NO_RECORD)
    assert flown.flight.accounts[0].slots == {pilot.NO_RECORD: 4}


@pytest.mark.parametrize(
    ("velocity", "end_m"),
    [
        ((20.0, 0.0, 0.0), (2000.0, 0.0, 20.0)),
        ((-20.0, 0.0, 0.0), (50.0, 0.0, 20.0)),
        ((0.0, 0.0, 5.0), (1000.0, 0.0, 100.0)),
        ((0.0, 0.0, -5.0), (1000.0, 0.0, 10.0)),
    ],
)
def test_a_uav_does_not_leave_its_region(velocity: Any, end_m: Any) -> None:
    """The program publishes in each slot where it believes to be."""
    flown = Flown()
    for slot in range(700):
        t = slot * SLOT_S
        flown.publish(t, *(np.array(START_M) + np.array(velocity) * t), *velocity)
        flown.next()
    flown.check_path()
    assert math.dist(flown.path[-1], end_m) <= 2.001
    assert {pilot.OUTSIDE, pilot.TOO_FAR} & set(flown.flight.accounts[0].slots)


def test_a_channel_holds_for_all_base_stations() -> None:
    """3000 m from both, while the second one is 1500 m away from the first one."""
    near = Limits(20, 5, (0, 9000), (1, 300), Known(farthest_m=3000), [(0, 0, 30), (1500, 0, 30)])
    assert not near.excludes(np.array([2900.0, 0, 50]))
    assert near.excludes(np.array([-1600.0, 0, 50]))


def test_a_uav_that_falls_behind_follows_at_its_highest_speed() -> None:
    """The program jumps by 12 m, which is less than a second of flight."""
    flown = Flown()
    flown.publish(0.0, *START_M, 0.0, 0.0, 0.0)
    flown.until(9)
    flown.publish(0.95, 1012.0, 0.0, 20.0, 0.0, 0.0, 0.0)
    assert [flown.next()[0][0] for _ in range(7)] == pytest.approx(
        [1002, 1004, 1006, 1008, 1010, 1012, 1012]
    )
    assert flown.flight.accounts[0].behind == 5
    flown.check_path()


def test_random_records_never_make_a_wrong_slot() -> None:
    rng, flown = np.random.default_rng(5), Flown()
    odd = [NAN, INF, -INF, 0.0, 1e300, -5000.0]
    for slot in range(3000):
        here = np.array([slot * SLOT_S, *flown.path[-1], 0, 0, 0])
        scale = rng.choice([0.01, 1.0, 30.0, 1e4])
        record = here + scale * rng.standard_normal(7)
        record[0] = here[0] - rng.choice([0.0, 0.05, 2.0, -0.2])
        if rng.random() < 0.1:
            record[rng.integers(7)] = rng.choice(odd)
        flown.publish(*record)
        if rng.random() < 0.05:
            flown.published = rng.bytes(int(rng.integers(60)))
        flown.next()
    flown.check_path()
    assert np.isfinite(flown.path).all()
    assert len(flown.flight.accounts[0].slots) == 6
