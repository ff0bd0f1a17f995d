# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Common functions of readers: text files, numbers of slots, positions between waypoints."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from testbed.core.errors import InputError
from testbed.core.words import why
from testbed.system.files import read_regular

Array = npt.NDArray[np.float64]
MOST_BYTES = 64 << 20
"""Size limit of a file."""
MOST_SLOTS, MOST_VALUES = 10_000_000, 50_000_000
"""Limits of a trace: slots, and slots times UAVs."""
EARTH_M = 6_378_137.0
"""Equatorial radius of WGS 84."""
FLATTENING = 1 / 298.257_223_563


def bytes_of(path: Path, most_bytes: int) -> bytes:
    """Read a whole file.

    Raises:
        InputError: The file is missing, not regular, or too long.
    """
    try:
        return read_regular(path, most_bytes)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({why(error)})") from None


def decoded(data: bytes, path: Path) -> str:
    """Decode UTF-8, with or without a byte order mark.

    Raises:
        InputError: The bytes are not UTF-8.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not UTF-8 text") from None


def text_of(path: Path) -> str:
    """Read the whole text of a file.

    Raises:
        InputError: The file is missing, not regular, too long, or not UTF-8.
    """
    return decoded(bytes_of(path, MOST_BYTES), path)


def names_of(paths: Sequence[Path]) -> dict[Path, str]:
    """A name for each file: its name without suffix where these differ, otherwise its path.

    Raises:
        InputError: A file is given twice.
    """
    if twice := [path for path in paths if list(paths).count(path) > 1]:
        raise InputError(f"`files`: {twice[0]} is given twice")
    stems = [path.stem for path in paths]
    return {path: path.stem if stems.count(path.stem) == 1 else str(path) for path in paths}


def is_number(text: str) -> bool:
    """Whether a text is a finite number."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def slots_of(seconds: float, slot_s: float, uavs: int, source: object) -> int:
    """Number of slots for a duration.

    Raises:
        InputError: The number exceeds a limit.
    """
    slots = max(1, math.ceil(min(seconds / slot_s, 1e15) - 1e-9))
    if slots > MOST_SLOTS or slots * uavs > MOST_VALUES:
        raise InputError(
            f"{source}: {seconds:g} s of {uavs} UAVs are {slots * uavs:,} slots of {slot_s:g} s; "
            f"{MOST_SLOTS:,} a UAV and {MOST_VALUES:,} in all may be imported"
        )
    return slots


@dataclass(frozen=True)
class Flight:
    """Waypoints of one UAV, which flies straight between them.

    The UAV stays at its first waypoint before that one's time, and at its last one afterwards.
    """

    times_s: Array
    """Times of the waypoints, shape [n], increasing; two equal times are a jump."""
    position_m: Array
    """Positions in m, shape [n, 3]."""
    name: str = ""
    """The UAV's name in the file; empty where the file has none."""

    def at(self, times_s: Array) -> Array:
        """Positions at some times, shape [S, 3]."""
        columns = [np.interp(times_s, self.times_s, column) for column in self.position_m.T]
        return np.stack(columns, axis=1)


def sampled(
    flights: Sequence[Flight],
    slot_s: float,
    source: object,
    first_s: float = 0.0,
    last_s: float | None = None,
) -> Array:
    """Positions at the start of every slot from a first to a last time, shape [K, S, 3].

    Args:
        flights: The flights.
        slot_s: Length of a slot, s.
        source: Name of the file in messages.
        first_s: Time at which slot 0 starts, on the flights' clock.
        last_s: Time until which slots start, except for the last one, which may start later (None:
            the end of all flights).

    Raises:
        InputError: The number of slots exceeds a limit.
    """
    if last_s is None:
        last_s = max(float(flight.times_s[-1]) for flight in flights)
    slots = slots_of(last_s - first_s, slot_s, len(flights), source) + 1
    times_s: Array = first_s + slot_s * np.arange(slots, dtype=np.float64)
    return np.stack([flight.at(times_s) for flight in flights])


def along(waypoints_m: Array, speed_m_s: float) -> Flight:
    """A flight at a constant speed."""
    legs = np.linalg.norm(np.diff(waypoints_m, axis=0), axis=1)
    return Flight(np.concatenate([[0.0], np.cumsum(legs)]) / speed_m_s, waypoints_m)


def local_m(
    latitude: Array, longitude: Array, height_m: Array, origin: tuple[float, float]
) -> Array:
    """East, north and height in m of WGS 84 coordinates, shape [n, 3]; the origin is in degrees.

    Positions are in the plane tangent to the ellipsoid at the origin; the error is below 1 m
    within 30 km.
    """
    phi = math.radians(origin[0])
    squared = FLATTENING * (2 - FLATTENING)
    curved = 1 - squared * math.sin(phi) ** 2
    across, along_m = EARTH_M / math.sqrt(curved), EARTH_M * (1 - squared) / curved**1.5
    turn = (np.asarray(longitude) - origin[1] + 180) % 360 - 180
    east = np.radians(turn) * across * math.cos(phi)
    north = np.radians(np.asarray(latitude) - origin[0]) * along_m
    return np.stack([east, north, np.asarray(height_m)], axis=1)
