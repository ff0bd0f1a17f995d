# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A flight that programs steer while the network runs, within limits.

A program publishes records of time t, position p and velocity v (`testbed.pilot`). In slot n, its
UAV is at ``p + v * (n * slot_s - t)``: so the flight has no lag of a slot. It goes on by v for at
most `HOVER_S` after t, and then hovers. A record that is no possible state is refused, and the UAV
keeps its last allowed state. In no slot does a UAV fly faster than its limits.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ns3_scenarios.mobility import Known
from ns3_scenarios.trace import Array
from testbed.pilot import (
    FLOWN,
    NO_RECORD,
    NOT_NUMBERS,
    OUTSIDE,
    RECORD,
    SILENT,
    TOO_FAR,
    TOO_FAST,
    WRONG_TIME,
)

HOVER_S = 1.0
"""Time after which a UAV whose program says nothing hovers, if it still moves."""
SLACK = 1 + 1e-9
"""Factor for rounding errors of speeds."""
REASONS = {
    NO_RECORD: "the file has no record of 56 bytes",
    NOT_NUMBERS: "a number is not finite",
    WRONG_TIME: "the time is in the future, or before that of an earlier record",
    TOO_FAST: "the velocity is above mobility.limits.speed_m_s or climb_m_s",
    TOO_FAR: f"the position is more than {HOVER_S:g} s of flight away",
    OUTSIDE: "the position is outside of mobility.limits.distance_m or height_m, or where "
    "radio.channel does not hold",
    SILENT: f"nothing was published for {HOVER_S:g} s while the UAV moved, so it hovered",
}


@dataclass(frozen=True)
class Limits:
    """The limits of a flight."""

    speed_m_s: float
    """Highest horizontal speed."""
    climb_m_s: float
    """Highest vertical speed."""
    distance_m: tuple[float, float]
    """Smallest and largest horizontal distance from the base station."""
    height_m: tuple[float, float]
    """Lowest and highest height."""
    known: Known
    """Range of validity of the channel."""
    station_m: Sequence[tuple[float, float, float]]
    """Positions of the base stations, the first one that of `distance_m`."""

    def excludes(self, position_m: Array) -> npt.NDArray[np.bool_]:
        """Whether a UAV must not be at positions, shape [..., 3]; NaN is nowhere."""
        across_m = position_m[..., None, :2] - np.array(self.station_m)[:, :2]
        far_m, height_m = np.hypot(across_m[..., 0], across_m[..., 1]), position_m[..., 2]
        (nearest, farthest), (lowest, highest) = self.distance_m, self.height_m
        inside = (nearest <= far_m[..., 0]) & (far_m[..., 0] <= farthest)
        inside &= (lowest <= height_m) & (height_m <= highest)
        beyond = self.known.excludes(height_m[..., None], far_m).any(axis=-1)
        return np.asarray(~inside | beyond)

    def are_exceeded(self, way_m: Array, seconds: float) -> bool:
        """Whether a way [3] is longer than a UAV can fly in a time."""
        across, up = math.hypot(way_m[0], way_m[1]), abs(way_m[2])
        most = SLACK * seconds
        return bool(across > self.speed_m_s * most or up > self.climb_m_s * most)

    def shortened(self, way_m: Array, seconds: float) -> Array:
        """A way as far as a UAV can fly in a time."""
        across, up = math.hypot(way_m[0], way_m[1]), abs(way_m[2])
        most = np.array([self.speed_m_s, self.speed_m_s, self.climb_m_s]) * seconds
        return np.asarray(way_m * np.minimum(1, most / np.maximum([across, across, up], 1e-12)))


@dataclass
class Account:
    """What became of the records of a UAV."""

    slots: dict[int, int] = field(default_factory=dict)
    """Number of slots by status, see `testbed.pilot`."""
    first: dict[int, tuple[int, str]] = field(default_factory=dict)
    """By status: the first slot, and the record in words."""
    behind: int = 0
    """Number of slots in which the UAV could not be where its program said: that is too fast."""
    has_flown: bool = False
    """Whether a program has published an allowed state."""

    def note(self, status: int, slot: int, record: str) -> None:
        """Count a slot."""
        self.slots[status] = self.slots.get(status, 0) + 1
        self.first.setdefault(status, (slot, record))


class SteeredFlight:
    """A `Flight` of which each slot is asked for as late as possible, one after the other.

    Args:
        start_m: Positions until programs give others, shape [K, 3]; they must be allowed.
        limits: Limits of all UAVs.
    """

    horizon = 1

    def __init__(self, start_m: Array, limits: Limits):
        self.limits = limits
        self.start_m = start_m
        self._state = [np.array([-math.inf, *at, 0, 0, 0]) for at in start_m]
        """The last allowed record of each UAV."""
        self._here_m = start_m.copy()
        """Positions in the last slot, shape [K, 3]."""
        self.read: Callable[[int], bytes | None] = lambda k: None
        """Reads the record of a UAV by its index, from 0; None: nothing was published."""
        self.accounts = [Account() for _ in start_m]
        self.status = [NO_RECORD] * len(start_m)
        """The present status of each UAV."""

    def positions(self, first: int, slots: int, slot_s: float) -> Array:
        """Positions at the start of each slot, shape [K, slots, 3]; see `Flight`."""
        assert slots == 1, "a steered flight is asked for one slot after the other"
        for k in range(len(self._state)):
            self._here_m[k] = self._next(k, first, slot_s)
        return self._here_m[:, None].copy()

    def _next(self, k: int, slot: int, slot_s: float) -> Array:
        """The position of a UAV in the next slot, shape [3]."""
        at_s, here_m, account = slot * slot_s, self._here_m[k], self.accounts[k]
        data = self.read(k)
        record = None
        if data is not None and len(data) == RECORD.size:
            record = np.array(RECORD.unpack(data))
        status = NO_RECORD
        if record is not None:
            status = self._judged(record, self._state[k], here_m, at_s, slot_s)
        if status == FLOWN:
            assert record is not None
            self._state[k], account.has_flown = record, True
        state = self._state[k]
        if status == FLOWN and at_s - state[0] > HOVER_S and state[4:].any():
            status = SILENT
        target_m = _at(state, at_s)
        if status == FLOWN and self.limits.excludes(target_m):
            status = OUTSIDE
        self.status[k] = status
        if status != FLOWN and (data is not None or account.has_flown):
            account.note(status, slot, "" if record is None else _words(record))
        way_m = target_m - here_m
        if self.limits.are_exceeded(way_m, slot_s):
            account.behind += status == FLOWN
            target_m = here_m + self.limits.shortened(way_m, slot_s)
        return here_m if self.limits.excludes(target_m) else target_m

    def _judged(
        self, record: Array, before: Array, here_m: Array, at_s: float, slot_s: float
    ) -> int:
        """The status of a record, as far as the record itself decides on it."""
        if not np.isfinite(record).all():
            return NOT_NUMBERS
        if not before[0] <= record[0] <= at_s + 1e-9:
            return WRONG_TIME
        if self.limits.are_exceeded(record[4:], 1.0):
            return TOO_FAST
        if self.limits.are_exceeded(_at(record, at_s) - here_m, HOVER_S + slot_s):
            return TOO_FAR
        if self.limits.excludes(record[1:4]):
            return OUTSIDE
        return FLOWN


def _at(state: Array, at_s: float) -> Array:
    """The position at a time by a record, shape [3]."""
    return np.asarray(state[1:4] + state[4:] * min(max(at_s - state[0], 0.0), HOVER_S))


def _words(record: Array) -> str:
    """A record in words."""
    t, *numbers = (f"{value:.6g}" for value in record)
    return f"t {t} s, ({', '.join(numbers[:3])}) m, ({', '.join(numbers[3:])}) m/s"
