# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Reads flights: QGroundControl's plans, and paths in KML."""

import json
import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd

from orchestrator.exchange.files import Flight, along, local_m, text_of
from testbed.core.errors import InputError

WAYPOINT, LOITER_TIME, RETURN, LAND, TAKE_OFF, CHANGE_SPEED = 16, 19, 20, 21, 22, 178
"""MAVLink's commands for positions and speeds (`MAV_CMD`)."""
ABOVE_SEA = 0
"""`MAV_FRAME` of heights above sea level; other heights are above the home or the ground."""
MULTIROTORS = {2, 3, 4, 13, 14, 15, 29, 35}
"""`MAV_TYPE`s that fly at a plan's hover speed; others fly at its cruise speed."""
KML = "{http://www.opengis.net/kml/2.2}"
GX = "{http://www.google.com/kml/ext/2.2}"
MOST_POINTS = 1_000_000
Origin = tuple[float, float]


def read_qgc(
    path: Path, origin: Origin | None, speed_m_s: float | None
) -> tuple[list[Flight], Origin]:
    """Read the flight of a plan (`.plan`), from its first to its last waypoint, and the origin.

    Hold times are included, and heights are above the planned home.

    Args:
        path: The plan.
        origin: Latitude and longitude of x = y = 0 (default: the planned home).
        speed_m_s: Speed (default: the plan's, with its changes; for multirotors the hover speed).

    Raises:
        InputError: It is not a plan, or it has patterns instead of waypoints.
    """
    try:
        plan = json.loads(text_of(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is not JSON ({str(error)[:80]})") from None
    mission = plan.get("mission") if isinstance(plan, dict) else None
    if not isinstance(mission, dict) or not isinstance(mission.get("items"), list):
        raise InputError(f"{path}: is not a QGroundControl plan: it has no mission.items")
    home = _numbers(mission.get("plannedHomePosition"), 3, f"{path}: mission.plannedHomePosition")
    speed = speed_m_s if speed_m_s is not None else _speed(mission, f"{path}: mission")
    places: list[list[float]] = []
    speeds: list[float] = []
    holds_s: list[float] = []
    for index, item in enumerate(mission["items"]):
        command, params = _item(item, f"{path}: mission.items.{index}")
        if command == CHANGE_SPEED and speed_m_s is None:
            speed = params[1] if params[1] > 0 else speed  # -1: unchanged
        if command not in (WAYPOINT, LOITER_TIME, RETURN, LAND, TAKE_OFF):
            continue
        at = params[4:]
        if command == RETURN:
            at = [*home[:2], places[-1][2] if places else 0.0]
        elif item.get("frame") == ABOVE_SEA:
            at[2] -= home[2]
        if at[:2] == [0.0, 0.0]:
            at[:2] = (places[-1] if places else home)[:2]  # omitted: the current position
        places.append(at)
        speeds.append(speed)
        holds_s.append(max(0.0, params[0]) if command in (WAYPOINT, LOITER_TIME) else 0.0)
    if not places:
        raise InputError(f"{path}: has no waypoints")
    origin = origin or (home[0], home[1])
    placed = _placed(places, origin, str(path))
    return [_flown(placed, np.array(speeds), np.array(holds_s))], origin


def _speed(mission: dict[str, Any], where: str) -> float:
    """Initial speed of a plan."""
    key = "hoverSpeed" if mission.get("vehicleType") in MULTIROTORS else "cruiseSpeed"
    speed = mission.get(key)
    if isinstance(speed, bool) or not isinstance(speed, int | float) or not 0 < speed < 1e4:
        raise InputError(f"{where}.{key} must be a speed in m/s, not {speed!r}")
    return float(speed)


def _item(item: Any, where: str) -> tuple[Any, list[float]]:
    """Command and seven parameters of a plan's item; null becomes 0."""
    if not isinstance(item, dict) or item.get("type") != "SimpleItem":
        kind = item.get("complexItemType", item.get("type")) if isinstance(item, dict) else item
        raise InputError(f"{where}: must be a SimpleItem, not {str(kind)[:40]!r}")
    params = item.get("params")
    if not isinstance(params, list) or len(params) != 7:
        raise InputError(f"{where}.params: must be seven numbers")
    numbers = _numbers([0.0 if v is None else v for v in params], 7, f"{where}.params")
    if not all(abs(number) < 1e12 for number in numbers):
        raise InputError(f"{where}.params: must be seven numbers, not {str(params)[:60]}")
    return item.get("command"), numbers


def _flown(places_m: Any, speeds_m_s: Any, holds_s: Any) -> Flight:
    """A flight that arrives at each place with its own speed, and stays for its hold time."""
    legs_s = np.linalg.norm(np.diff(places_m, axis=0), axis=1) / speeds_m_s[1:]
    steps_s = np.stack([np.concatenate([[0.0], legs_s]), holds_s], axis=1)
    return Flight(np.cumsum(steps_s.ravel()), np.repeat(places_m, 2, axis=0))


def read_kml(
    path: Path, origin: Origin | None, speed_m_s: float | None
) -> tuple[list[Flight], Origin]:
    """Read the paths of a KML file, one UAV each, and the origin.

    The times of a `gx:Track` are used; a `LineString` is flown at a constant speed.

    Args:
        path: The file.
        origin: Latitude and longitude of x = y = 0 (default: the first point of the first path).
        speed_m_s: Speed along each `LineString`.

    Raises:
        InputError: It is not KML, has no path, or a path is broken.
    """
    text = text_of(path)
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise InputError(f"{path}: has a document type, which KML does not need; refused")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise InputError(f"{path}: is not XML ({error})") from None
    if not root.tag.endswith("}kml") and root.tag != "kml":
        raise InputError(f"{path}: is not KML: its root is {root.tag[:40]!r}")
    tracks = [_track(track, str(path)) for track in root.iter(f"{GX}Track")]
    lines = [_line(line, str(path)) for line in root.iter(f"{KML}LineString")]
    if not tracks and not lines:
        raise InputError(f"{path}: has no path: neither a LineString nor a gx:Track of KML 2.2")
    if lines and speed_m_s is None:
        raise InputError("`speed`: is missing; a LineString does not contain a speed")
    first = (tracks[0][1] if tracks else lines[0])[0]
    origin = origin or (first[0], first[1])
    start_s = min((times[0] for times, _ in tracks), default=0.0)
    flown = [
        *(Flight(times - start_s, _placed(places, origin, str(path))) for times, places in tracks),
        *(along(_placed(places, origin, str(path)), float(speed_m_s or 1)) for places in lines),
    ]
    return flown, origin


def _line(line: ElementTree.Element, source: str) -> list[list[float]]:
    tuples = (line.findtext(f"{KML}coordinates") or "").split()
    if len(tuples) < 2:
        raise InputError(f"{source}: a LineString has {len(tuples)} points; a path has two or more")
    return [_coordinates(given.split(","), source) for given in tuples]


def _track(track: ElementTree.Element, source: str) -> tuple[Any, list[list[float]]]:
    whens = [when.text or "" for when in track.iter(f"{KML}when")]
    coordinates = [(place.text or "").split() for place in track.iter(f"{GX}coord")]
    if not whens or len(whens) != len(coordinates):
        raise InputError(
            f"{source}: a gx:Track has {len(whens)} times and {len(coordinates)} places"
        )
    moments = pd.to_datetime(
        pd.Series(whens).str.strip(), format="ISO8601", utc=True, errors="coerce"
    )
    if moments.isna().any():
        wrong = whens[int(moments.isna().argmax())]
        raise InputError(f"{source}: a gx:Track's time must be a date and time, not {wrong[:40]!r}")
    times = (moments - pd.Timestamp(0, tz="UTC")).dt.total_seconds().to_numpy()
    if not (np.diff(times) > 0).all():
        raise InputError(f"{source}: a gx:Track's times must rise")
    return times, [_coordinates(place, source) for place in coordinates]


def _coordinates(words: list[str], source: str) -> list[float]:
    """Latitude, longitude and height; in KML the longitude comes first."""
    try:
        longitude, latitude, *height = map(float, words)
    except ValueError:
        raise InputError(f"{source}: {','.join(words)[:40]!r} is not a place") from None
    return [latitude, longitude, height[0] if height else 0.0]


def _numbers(given: Any, count: int, where: str) -> list[float]:
    if not isinstance(given, list) or len(given) != count:
        raise InputError(f"{where}: must be {count} numbers")
    if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in given):
        raise InputError(f"{where}: must be {count} numbers, not {str(given)[:60]}")
    return [float(value) for value in given]


def _placed(places: list[list[float]], origin: Origin, source: str) -> Any:
    if len(places) > MOST_POINTS:
        raise InputError(f"{source}: has {len(places):,} points; {MOST_POINTS:,} may be imported")
    latitude, longitude, height = np.array(places).T
    for name, values, most in (("latitude", latitude, 90), ("longitude", longitude, 180)):
        if not (abs(values) <= most).all():
            raise InputError(f"{source}: a {name} is outside ±{most} degrees")
    if not (abs(height) < 1e5).all():
        raise InputError(f"{source}: a height is not plausible in metres")
    placed = local_m(latitude, longitude, height, origin)
    far_m = math.hypot(*np.abs(placed[:, :2]).max(axis=0))
    if far_m > 1e6:
        raise InputError(f"{source}: is {far_m / 1000:.0f} km away from the origin {origin}")
    return placed
