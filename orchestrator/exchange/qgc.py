# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Reads planned flights: QGroundControl's plans, and waypoint files (`QGC WPL`).

Both are lists of MAVLink's mission items. Items that neither move the vehicle nor change its speed
are ignored; an item that does, and is not supported, is refused.
"""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.exchange.files import local_m, text_of
from orchestrator.exchange.reading import number
from orchestrator.exchange.tracks import Above, Track, Tracks
from testbed.core.errors import InputError
from testbed.core.words import place_of

WAYPOINT, LOITER_FOREVER, LOITER_TIME, RETURN, LAND, TAKE_OFF = 16, 17, 19, 20, 21, 22
SPLINE, VTOL_TAKE_OFF, VTOL_LAND, DELAY, CHANGE_SPEED = 82, 84, 85, 93, 178
"""MAVLink's commands (`MAV_CMD`) for positions, waiting and speeds."""
PLACES = {WAYPOINT, LOITER_FOREVER, LOITER_TIME, LAND, TAKE_OFF, SPLINE, VTOL_TAKE_OFF, VTOL_LAND}
HOLDS = {WAYPOINT, LOITER_TIME, SPLINE}
"""Positions at which a vehicle stays for a time."""
JUMPS = {177, 601}
"""DO_JUMP and DO_JUMP_TAG, with the number of jumps as their second parameter."""
CONDITIONS = {112, 114}
"""CONDITION_DELAY and CONDITION_DISTANCE: the next items are executed later, during the next leg.
"""
HARMLESS = {
    *(95, 159, 240),  # NAV_LAST, CONDITION_LAST, DO_LAST: no operation
    *(80, 195, 196, 197, 198, 201),  # regions of interest
    *(115, 210),  # CONDITION_YAW, DO_INVERTED_FLIGHT: attitude
    *(181, 182, 183, 184, 187),  # relays, servos, actuators
    *(188, 189, 600),  # marks: DO_RETURN_PATH_START, DO_LAND_START, JUMP_TAG
    *(200, 202, 203, 204, 205, 206, 214, 220, 260),  # cameras and their mounts
    *(207, 5000, 5001, 5002, 5003, 5004, 5100),  # fences and rally points
    *(211, 216, 30002, 42600),  # gripper, sprayer, payload, winch
    *(212, 215, 217, 223),  # autotuning, resumption, messages to scripts, engine
    *(241, 242, 243, 245),  # preflight settings
    *(300, 400, 401),  # MISSION_START, arming
    *(405, 406, 410, 2520, 2600, 3001, 5300, 10001),  # lights, information
    *range(500, 535),  # messages, camera modes
    *(1000, 1001),  # gimbals
    *(2000, 2001, 2002, 2003, 2004, 2005, 2010, 2800),  # images
    *range(2500, 2512),  # videos, logging
    *(42004, 42005, 42006, 42007, 42424, 42425, 42426, 42428, 42429),  # calibrations
    *(42501, 42502, 42503, 42505, 42650, 42651),
}
"""Commands that neither move a vehicle nor change its speed."""
NOTED = {
    179: "DO_SET_HOME is passed over; the home stays the planned one.",
    180: "DO_SET_PARAMETER is passed over.",
    3000: "DO_VTOL_TRANSITION is passed over; the speed stays the same.",
}
"""Notes on commands that are ignored although they may matter."""
REFUSED = {
    18: "NAV_LOITER_TURNS",
    23: "NAV_LAND_LOCAL",
    24: "NAV_TAKEOFF_LOCAL",
    25: "NAV_FOLLOW",
    30: "NAV_CONTINUE_AND_CHANGE_ALT",
    31: "NAV_LOITER_TO_ALT",
    32: "DO_FOLLOW",
    33: "DO_FOLLOW_REPOSITION",
    34: "DO_ORBIT",
    35: "DO_FIGURE_EIGHT",
    36: "NAV_ARC_WAYPOINT",
    81: "NAV_PATHPLANNING",
    83: "NAV_ALTITUDE_WAIT",
    92: "NAV_GUIDED_ENABLE",
    94: "NAV_PAYLOAD_PLACE",
    113: "CONDITION_CHANGE_ALT",
    176: "DO_SET_MODE",
    177: "DO_JUMP",
    185: "DO_FLIGHTTERMINATION",
    186: "DO_CHANGE_ALTITUDE",
    190: "DO_RALLY_LAND",
    191: "DO_GO_AROUND",
    192: "DO_REPOSITION",
    193: "DO_PAUSE_CONTINUE",
    194: "DO_SET_REVERSE",
    208: "DO_PARACHUTE",
    213: "NAV_SET_YAW_SPEED",
    218: "DO_AUX_FUNCTION",
    222: "DO_GUIDED_LIMITS",
    224: "DO_SET_MISSION_CURRENT",
    252: "OVERRIDE_GOTO",
    601: "DO_JUMP_TAG",
    4501: "CONDITION_GATE",
    42702: "NAV_SCRIPT_TIME",
    42703: "NAV_ATTITUDE_TIME",
}
"""Names of commands that are refused, as all others are."""
ABOVE_SEA = {0, 5}
"""`MAV_FRAME`s of heights above the sea."""
ABOVE_HOME, ABOVE_TERRAIN = {3, 6}, {10, 11}
MULTIROTORS = {2, 3, 4, 13, 14, 15, 29, 35}
"""`MAV_TYPE`s that fly at a plan's hover speed; others fly at its cruise speed."""
VERSIONS = {"plan": 1, "mission": 2}
"""Versions of QGroundControl's files that are read."""
LEAST_M_S, MOST_M_S = 1e-3, 1e4
"""Limits of speeds in a plan."""


Home = tuple[float, float, float]
"""Latitude and longitude in degrees and height above the sea in m; NaN is an unknown height."""


@dataclass(frozen=True)
class _Item:
    """A mission item."""

    where: str
    """The item's place in the file, for messages."""
    command: int
    params: list[float]
    frame: int | None
    """`MAV_FRAME` of the item's position; None: heights are above the home."""


@dataclass
class _Flight:
    """The legs of a flight, while its items are read."""

    home: Home | None
    speed_m_s: float | None
    """Speed at the beginning; None: not known."""
    keeps_speed: bool
    """Whether no item changes the speed."""
    circles: bool
    """Whether the vehicle is, or may be, one that flies circles where a multirotor would hover."""
    places: list[list[float]] = field(default_factory=list)
    holds_s: list[float] = field(default_factory=list)
    legs: list[tuple[str, float | None]] = field(default_factory=list)
    """The item of each place, and the speed of the leg to it."""
    levels: set[Above] = field(default_factory=set)
    notes: dict[str, None] = field(default_factory=dict)

    def read(self, items: Iterable[_Item]) -> None:
        """Follow all items.

        Raises:
            InputError: An item is not supported.
        """
        speed, later, last = self.speed_m_s, False, False
        for item in items:
            command, params = item.command, item.params
            if command in PLACES or command == RETURN:
                if last:
                    raise InputError(
                        f"{item.where}: comes after NAV_LOITER_UNLIM, which has no end"
                    )
                self._fly(item, speed)
                later, last = False, command == LOITER_FOREVER
            elif command == CHANGE_SPEED:
                if later and not self.keeps_speed:
                    raise InputError(f"{item.where}: changes the speed within a leg; not supported")
                speed = self._changed(speed, item)
            elif command == DELAY:
                if params[0] < 0:
                    raise InputError(f"{item.where}: waits until a time of day; not supported")
                if self.holds_s:
                    self.holds_s[-1] += params[0]
            elif command in CONDITIONS:
                later = True
            elif command in NOTED:
                self.notes[NOTED[command]] = None
            elif command not in HARMLESS and not (command in JUMPS and params[1] == 0):
                name = REFUSED.get(command, "unknown")
                raise InputError(f"{item.where}: the command {command} ({name}) is not supported")

    def _changed(self, speed: float | None, item: _Item) -> float | None:
        """The speed after an item that changes it."""
        kind, new = item.params[:2]
        if kind in (2, 3):
            self.notes["Changes of the climb and descent speed are passed over."] = None
            return speed
        if self.keeps_speed:
            if new > 0 and new != speed:
                self.notes[
                    "The file's own changes of the speed are not used, because a speed is given."
                ] = None
            return speed
        if new == -2:
            return self.speed_m_s
        return _speed(new, f"{item.where}: the speed") if new > 0 else speed  # -1: unchanged

    def _fly(self, item: _Item, speed: float | None) -> None:
        """Add a leg to an item's position."""
        at = item.params[4:]
        before = self.places[-1] if self.places else self.home
        if item.command == RETURN:
            home = self.home or (self.places[0] if self.places else None)
            if home is None:
                raise InputError(f"{item.where}: returns to a home that the file does not have")
            if self.home is None:
                self.notes["The file has no home; the UAV returns to its first place."] = None
            at = [*home[:2], self.places[-1][2] if self.places else 0.0]
        else:
            at[2] = self._height_m(item)
        if at[:2] == [0.0, 0.0]:  # omitted: the current position
            if before is None:
                raise InputError(f"{item.where}: has no position, and the file has no home")
            at[:2] = before[:2]
        if item.command == SPLINE:
            self.notes["Spline waypoints are flown in straight lines."] = None
        if self.circles and item.command in (LOITER_FOREVER, LOITER_TIME):
            self.notes["Circles (loitering) are not flown; the UAV stays at their centres."] = None
        self.places.append(at)
        self.holds_s.append(max(0.0, item.params[0]) if item.command in HOLDS else 0.0)
        self.legs.append((item.where, speed))

    def _height_m(self, item: _Item) -> float:
        """Height of an item above the home, or above the sea where the home's is not known."""
        height_m = item.params[6]
        level: Above = "ground"
        if item.frame in ABOVE_SEA:
            if self.home is None or math.isnan(self.home[2]):
                level = "sea"
            else:
                height_m -= self.home[2]
        elif item.frame in ABOVE_TERRAIN:
            self.notes["Heights above the terrain are taken as heights above the home."] = None
        elif item.frame is not None and item.frame not in ABOVE_HOME:
            raise InputError(f"{item.where}: a position of frame {item.frame} is not supported")
        self.levels.add(level)
        if len(self.levels) > 1:
            raise InputError(
                f"{item.where}: counts its height from another level than the items before, and "
                "the height of the home is not known"
            )
        return height_m

    def tracks(self, path: Path) -> Tracks:
        """The flight, from the first to the last position.

        Raises:
            InputError: The plan has no positions, or no speed.
        """
        if not self.places:
            raise InputError(f"{path}: has no waypoints")
        for where, speed in self.legs[1:]:
            if speed is None:
                raise InputError(f"`speed`: is missing; {where} is reached at an unknown speed")
        places = np.array(self.places)
        origin = self.home[:2] if self.home else (places[0, 0], places[0, 1])
        speeds = np.array([speed or math.nan for _, speed in self.legs])
        placed_m = local_m(places[:, 0], places[:, 1], places[:, 2], origin)
        legs_s = np.linalg.norm(np.diff(placed_m, axis=0), axis=1) / speeds[1:]
        steps_s = np.stack([np.concatenate([[0.0], legs_s]), self.holds_s], axis=1)
        times_s = np.cumsum(steps_s.ravel())
        rises = np.diff(times_s, prepend=-1.0) > 0  # A place without a hold counts once.
        places = np.repeat(places, 2, axis=0)[rises]
        above: Above = next(iter(self.levels), "ground")
        track = Track("", places, times_s[rises], above)
        return Tracks([track], origin if self.home else None, list(self.notes))


def read_qgc(path: Path, speed_m_s: float | None) -> Tracks:
    """Read the flight of a plan (`.plan`), from its first to its last waypoint.

    Hold times are included. Heights are above the planned home, which is the origin. The waypoints
    of surveys and corridor scans are those that QGroundControl has saved with them.

    Args:
        path: The plan.
        speed_m_s: Speed (default: the plan's, with its changes; for multirotors the hover speed).

    Raises:
        InputError: The file is not a plan, or has items that are not supported.
    """
    try:
        plan = json.loads(text_of(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is not JSON{place_of(error)}") from None
    mission = plan.get("mission") if isinstance(plan, dict) else None
    if not isinstance(mission, dict) or not isinstance(mission.get("items"), list):
        raise InputError(f"{path}: is not a QGroundControl plan: it has no mission.items")
    home = _numbers(mission.get("plannedHomePosition"), 3, f"{path}: mission.plannedHomePosition")
    multirotor = mission.get("vehicleType") in list(MULTIROTORS)
    speed = speed_m_s
    if speed is None:
        key = "hoverSpeed" if multirotor else "cruiseSpeed"
        speed = _speed(mission.get(key), f"{path}: mission.{key}")
    flight = _Flight((home[0], home[1], home[2]), speed, speed_m_s is not None, not multirotor)
    for name, of in (("plan", plan), ("mission", mission)):
        if (version := of.get("version", VERSIONS[name])) != VERSIONS[name]:
            flight.notes[
                f"The version of the {name}, {str(version)[:20]}, is not known; it is read as "
                f"version {VERSIONS[name]}."
            ] = None
    flight.read(_items(mission["items"], f"{path}: mission.items"))
    return flight.tracks(path)


def _items(items: Sequence[Any], where: str) -> Iterator[_Item]:
    """The items of a plan; surveys and corridor scans contain items themselves."""
    for index, item in enumerate(items):
        at = f"{where}.{index}"
        inner = item.get("TransectStyleComplexItem") if isinstance(item, dict) else None
        if isinstance(inner, dict) and isinstance(inner.get("Items"), list):
            if not inner["Items"]:
                kind = str(item.get("complexItemType"))
                raise InputError(f"{at}: this {kind[:40]!r} has been saved without its waypoints")
            for number_of, each in enumerate(inner["Items"]):
                yield _simple(each, f"{at}.TransectStyleComplexItem.Items.{number_of}")
        else:
            yield _simple(item, at)


def _simple(item: Any, where: str) -> _Item:
    """A plan's item; null parameters, which are not given, become 0.

    Raises:
        InputError: The item is not one, or it is a position with a height of null.
    """
    if not isinstance(item, dict) or item.get("type") != "SimpleItem":
        kind = item.get("complexItemType", item.get("type")) if isinstance(item, dict) else item
        raise InputError(f"{where}: must be a SimpleItem, not {str(kind)[:40]!r}")
    params = item.get("params")
    given = [0.0 if v is None else v for v in params] if isinstance(params, list) else None
    numbers = _numbers(given, 7, f"{where}.params")
    command, frame = item.get("command"), item.get("frame")
    for name, value in (("command", command), ("frame", 3 if frame is None else frame)):
        if not isinstance(value, int) or isinstance(value, bool):
            raise InputError(f"{where}.{name}: must be a whole number, not {str(value)[:40]!r}")
    if command in PLACES:
        given = params[4:]  # type: ignore[index]
        if given[2] is None:
            raise InputError(f"{where}.params.6: the height must be a number, not null")
        if None in given and any(given[:2]):
            raise InputError(f"{where}.params: latitude and longitude must be given both or not")
    return _Item(where, command, numbers, frame)  # type: ignore[arg-type]


def read_wpl(path: Path, speed_m_s: float | None) -> Tracks:
    """Read the flight of a waypoint file (`QGC WPL 110` or `120`).

    The first item of version 110 is the home. If it is set, heights are above it, and it is the
    origin.

    Args:
        path: The file.
        speed_m_s: Speed (default: the one that items of the file set).

    Raises:
        InputError: The file is not a waypoint file, has no speed, or has items that are not
            supported.
    """
    header, *lines = text_of(path).splitlines() or [""]
    if header.split() not in (["QGC", "WPL", "110"], ["QGC", "WPL", "120"]):
        raise InputError(f"{path}, line 1: must be 'QGC WPL 110' or 120, not {header[:40]!r}")
    rows = [
        (f"{path}, line {at}", line.split())
        for at, line in enumerate(lines, 2)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    items = [_row(words, at, where) for at, (where, words) in enumerate(rows)]
    home: Home | None = None
    if header.split()[2] == "110" and items:
        first, *items = items
        if first.command not in (0, WAYPOINT):
            raise InputError(f"{first.where}: must be the home (16), not command {first.command}")
        latitude, longitude, height_m = first.params[4:]
        if (latitude, longitude) != (0, 0):
            home = (latitude, longitude, height_m if first.frame in ABOVE_SEA else math.nan)
    flight = _Flight(home, speed_m_s, speed_m_s is not None, True)
    flight.read(items)
    return flight.tracks(path)


def _row(words: Sequence[str], at: int, where: str) -> _Item:
    """An item of a waypoint file; unused parameters may be `nan`."""
    if len(words) != 12:
        raise InputError(f"{where}: must have 12 columns, not {len(words)}")
    numbers = []
    for column, word in enumerate(words):
        unused = 4 <= column < 8 and word.lower() == "nan"
        found = 0.0 if unused else number(word)
        if found is None or abs(found) >= 1e12 or (column < 4 and not found.is_integer()):
            kind = "a whole number" if column < 4 else "a number"
            raise InputError(f"{where}: column {column + 1} must be {kind}, not {word[:40]!r}")
        numbers.append(found)
    if numbers[0] != at:
        raise InputError(f"{where}: must have the index {at}, not {words[0][:40]}")
    return _Item(where, int(numbers[3]), numbers[4:11], int(numbers[2]))


def _speed(speed: Any, where: str) -> float:
    wrong = isinstance(speed, bool) or not isinstance(speed, int | float)
    if wrong or not LEAST_M_S <= speed < MOST_M_S:
        raise InputError(f"{where} must be a speed in m/s, not {speed!r:.40}")
    return float(speed)


def _numbers(given: Any, count: int, where: str) -> list[float]:
    words = "seven" if count == 7 else count
    if not isinstance(given, list) or len(given) != count:
        raise InputError(f"{where}: must be {words} numbers")
    for value in given:
        wrong = isinstance(value, bool) or not isinstance(value, int | float)
        if wrong or not abs(value) < 1e12:
            raise InputError(f"{where}: must be {words} numbers, not {str(given)[:60]}")
    return [float(value) for value in given]
