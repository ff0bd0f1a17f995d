# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Physical bounds that all imported places and times are checked against."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from orchestrator.exchange.files import Array, Flight, local_m
from orchestrator.exchange.tracks import Above, Origin
from testbed.core.errors import InputError

WITHIN_KM, FASTEST_M_S, LONGEST_GAP_S = 30.0, 100.0, 60.0
"""Default bounds: distance from the origin, speed of a UAV, time without a row."""
HIGHEST_M, LOWEST_M = 300.0, -2.0
"""Heights above the ground: the highest of TR 36.777, and the error of a barometer on the ground.
Higher ones are probably above the sea."""
Where = Callable[[int], str]
"""Names the i-th place of a file, for messages."""


@dataclass(frozen=True)
class Bounds:
    """Bounds that a user may change."""

    within_km: float = WITHIN_KM
    fastest_m_s: float = FASTEST_M_S
    longest_gap_s: float = LONGEST_GAP_S


def check_degrees(latitude: Array, longitude: Array, where: Where) -> None:
    """Check that places are on the earth, and that none is the (0, 0) of a receiver without a fix.

    Raises:
        InputError: A place is wrong; the message names it.
    """
    for name, values, most in (("latitude", latitude, 90), ("longitude", longitude, 180)):
        if (i := first(~(np.abs(values) <= most))) is not None:
            hint = "; degrees times 1e7 have the unit deg1e7" if abs(values[i]) > 1e5 else ""
            raise InputError(
                f"{where(i)}: {name} {values[i]:.12g} is outside ±{most} degrees{hint}"
            )
    if (i := first((latitude == 0) & (longitude == 0))) is not None:
        raise InputError(f"{where(i)}: latitude and longitude are 0, as without a GPS fix")


def placed(places: Array, origin: Origin, bounds: Bounds, where: Where) -> Array:
    """East, north and height in m of checked places (latitude, longitude, height), shape [n, 3].

    Raises:
        InputError: A place is not on the earth or too far from the origin; the message names it.
    """
    check_degrees(places[:, 0], places[:, 1], where)
    position_m = local_m(places[:, 0], places[:, 1], places[:, 2], origin)
    check_distance(position_m, bounds, where, f"{origin[0]:.6f},{origin[1]:.6f}")
    return position_m


def check_distance(position_m: Array, bounds: Bounds, where: Where, origin: str = "0,0") -> None:
    """Check that all places are within the given distance of x = y = 0.

    Raises:
        InputError: A place is too far away; the message names it.
    """
    far_km = np.hypot(position_m[:, 0], position_m[:, 1]) / 1000
    if (i := first(~(far_km <= bounds.within_km))) is not None:
        raise InputError(
            f"{where(i)}: lies {far_km[i]:,.0f} km away from the origin {origin}; at most "
            f"{bounds.within_km:g} km (`within_km`)"
        )


def above_ground(
    heights_m: Array, above: Above, ground_m: float | str | None, where: Where
) -> tuple[Array, str | None]:
    """Heights above the ground, shape [n], and a remark for the user.

    Args:
        heights_m: Heights of the file.
        above: Reference of the heights.
        ground_m: Height of the ground on the file's scale; `lowest`: the lowest of `heights_m`.
        where: Function that names a place in messages.

    Raises:
        InputError: Heights are missing, below the ground, or above the sea without `ground_m`.
    """
    if (i := first(np.isnan(heights_m))) is not None:
        raise InputError(f"{where(i)}: has no height; give `height_m`")
    if ground_m is not None:
        if above == "ground":
            raise InputError(f"`ground_m`: is not used: the heights of {where(0)} are above ground")
        level = float(heights_m.min()) if ground_m == "lowest" else float(ground_m)
        heights_m = heights_m - level
        note = f"the ground is at {level:g} m"
    elif above == "ground":
        note = None
    else:
        note = f"heights{' above the sea' * (above == 'sea')} are taken as above the ground"
        if (i := first(heights_m > HIGHEST_M)) is not None:
            raise InputError(
                f"{where(i)}: height {heights_m[i]:g} m is probably above the sea; give `ground_m`"
            )
    if (i := first(heights_m < LOWEST_M)) is not None:
        raise InputError(
            f"{where(i)}: is {-heights_m[i]:g} m below the ground; in a table with the axes "
            "north, east, down, its columns have these names"
        )
    return heights_m, note


def check_speed(flight: Flight, bounds: Bounds, where: Where) -> None:
    """Check that a UAV can fly as fast as its waypoints demand; two equal times are a jump.

    Raises:
        InputError: The flight is too fast; the message names the waypoint that it cannot reach in
            time.
    """
    step_s = np.diff(flight.times_s)
    far_m = np.linalg.norm(np.diff(flight.position_m, axis=0), axis=1)
    if (i := first((step_s > 0) & (far_m > bounds.fastest_m_s * step_s * (1 + 1e-9)))) is not None:
        raise InputError(
            f"{where(i + 1)}: is reached at {far_m[i] / step_s[i]:,.0f} m/s; at most "
            f"{bounds.fastest_m_s:g} m/s (`fastest_m_s`)"
        )


def check_gaps(times_s: Array, first_s: float, last_s: float, bounds: Bounds, where: Where) -> None:
    """Check that the longest time without a row is short enough, from the first to the last time.

    Raises:
        InputError: A gap is too long; the message names the row after it.
    """
    edges = np.concatenate([[min(first_s, times_s[0])], times_s, [max(last_s, times_s[-1])]])
    steps_s = np.diff(edges)
    if (i := first(steps_s > bounds.longest_gap_s + 1e-9)) is not None:
        at, side = (i, "before") if i < len(times_s) else (i - 1, "after")
        hint = "" if 0 < i < len(times_s) else "; see also `clock` each"
        raise InputError(
            f"{where(at)}: nothing is known for {steps_s[i]:,.6g} s {side} it; at most "
            f"{bounds.longest_gap_s:g} s (`longest_gap_s`){hint}"
        )


def first(wrong: "np.typing.NDArray[np.bool_]") -> int | None:
    """Index of the first true value; None if there is none."""
    return int(np.argmax(wrong)) if wrong.any() else None
