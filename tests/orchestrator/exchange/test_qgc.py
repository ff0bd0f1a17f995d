# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Planned flights: where, when and above what a UAV is, and which items are refused."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orchestrator.exchange import qgc
from orchestrator.exchange.qgc import read_qgc, read_wpl
from orchestrator.exchange.tracks import Track, Tracks
from testbed.core.errors import InputError

HOME = (35.0, -78.0, 100.0)
NORTH = 100 / 110_941.0
"""Degrees of 100 m of the meridian at 35 degrees, to a few cm."""
NORTHERN = HOME[0] + NORTH
FURTHER = HOME[0] + 2 * NORTH

Item = dict[str, Any]


def item(command: int, *params: float | None, frame: int | None = 3) -> Item:
    given = [*params, *[0] * (7 - len(params))]
    return {"type": "SimpleItem", "command": command, "frame": frame, "params": given}


def at(latitude: Any, height_m: float, command: int = 16, frame: int | None = 3) -> Item:
    return item(command, 0, 0, 0, None, latitude, HOME[1], height_m, frame=frame)


def plan(tmp_path: Path, *items: Any, **mission: Any) -> Path:
    rest = {"cruiseSpeed": 10, "hoverSpeed": 5, "plannedHomePosition": HOME, "vehicleType": 2}
    path = tmp_path / "flight.plan"
    path.write_text(json.dumps({"fileType": "Plan", "mission": {"items": items} | rest | mission}))
    return path


def read(tmp_path: Path, *items: Any, speed: float | None = None, **mission: Any) -> Tracks:
    return read_qgc(plan(tmp_path, *items, **mission), speed)


def the(tracks: Tracks) -> Track:
    (found,) = tracks.tracks
    assert found.times_s is not None
    assert (np.diff(found.times_s) > 0).all()
    return found


FIRST, SECOND = at(HOME[0], 30), at(NORTHERN, 30)
"""100 m at 5 m/s."""


# --- plans ---------------------------------------------------------------------------------------


def test_a_plan_is_flown_from_its_first_waypoint_to_its_last(tmp_path: Path) -> None:
    tracks = read(tmp_path, FIRST, SECOND, at(FURTHER, 55))
    np.testing.assert_array_equal(
        the(tracks).places, [[HOME[0], -78, 30], [NORTHERN, -78, 30], [FURTHER, -78, 55]]
    )
    times_s = [0, 20, 20 + np.hypot(100, 25) / 5]
    np.testing.assert_allclose(the(tracks).times_s, times_s, rtol=1e-3)
    assert (the(tracks).name, the(tracks).above) == ("", "ground")
    assert (tracks.origin, tracks.notes) == (HOME[:2], [])


def test_times_count_holds_and_speeds(tmp_path: Path) -> None:
    items = [
        item(22, 0, 0, 0, None, 0, 0, 30),  # at the home
        item(16, 2, 0, 0, None, NORTHERN, -78, 30),
        item(178, 1, 10, -1, 0, frame=2),
        item(203, frame=2),
        item(93, 3, frame=2),
        item(178, 1, -1, -1, 0, frame=2),
        item(19, 4, 0, 0, None, FURTHER, -78, 140, frame=0),
        item(178, 1, -2, -1, 0, frame=2),
        item(20, frame=2),
    ]
    tracks = read(tmp_path, *items)
    north = [NORTHERN, -78, 30], [FURTHER, -78, 40]
    np.testing.assert_array_equal(
        the(tracks).places,
        [[35, -78, 30], north[0], north[0], north[1], north[1], [35, -78, 40]],
    )
    leg_s = np.hypot(100, 10) / 10
    times_s = np.array([0, 20, 25, 25 + leg_s, 29 + leg_s, 69 + leg_s])
    np.testing.assert_allclose(the(tracks).times_s, times_s, rtol=1e-3)
    assert tracks.notes == []
    faster = the(read(tmp_path, *items, speed=50.0)).times_s
    assert faster is not None
    np.testing.assert_allclose(faster[-1], 2 + 5 + np.hypot(100, 10) / 50 + 4 + 4, rtol=1e-3)


def test_a_fixed_wing_flies_at_its_cruise_speed_and_circles(tmp_path: Path) -> None:
    loiter = item(19, 4, 0, 50, None, NORTHERN, -78, 30)
    tracks = read(tmp_path, FIRST, loiter, vehicleType=1)
    np.testing.assert_allclose(the(tracks).times_s, [0, 10, 14], rtol=1e-3)
    circles = "Circles (loitering) are not flown; the UAV stays at their centres."
    assert tracks.notes == [circles]
    assert read(tmp_path, FIRST, loiter).notes == []


def test_multirotors_fly_at_their_hover_speed(tmp_path: Path) -> None:
    for kind in range(50):
        at_hover = kind in (2, 3, 4, 13, 14, 15, 29, 35)
        tracks = read(tmp_path, FIRST, SECOND, vehicleType=kind)
        np.testing.assert_allclose(the(tracks).times_s, [0, 20 if at_hover else 10], rtol=1e-3)


def test_a_position_that_is_omitted_is_the_current_one(tmp_path: Path) -> None:
    up, down = item(16, 0, 0, 0, 0, None, 0, 80), item(21, 0, 0, 0, 0, 0, None, 10)
    found = the(read(tmp_path, up, SECOND, down))
    np.testing.assert_array_equal(
        found.places, [[*HOME[:2], 80], [NORTHERN, -78, 30], [NORTHERN, -78, 10]]
    )


@pytest.mark.parametrize(
    ("frame", "height_m"), [(0, 20), (5, 20), (3, 120), (6, 120), (10, 120), (11, 120), (None, 120)]
)
def test_heights_are_above_the_home(frame: int | None, height_m: float, tmp_path: Path) -> None:
    tracks = read(tmp_path, at(HOME[0], 120, frame=frame), at(NORTHERN, 50))
    np.testing.assert_array_equal(the(tracks).places[:, 2], [height_m, 50])
    terrain = ["Heights above the terrain are taken as heights above the home."]
    assert tracks.notes == (terrain if frame in (10, 11) else [])


def test_a_flight_that_begins_with_the_return_begins_at_the_home(tmp_path: Path) -> None:
    found = the(read(tmp_path, item(20, frame=2), at(HOME[0], 30)))
    np.testing.assert_array_equal(found.places, [[*HOME[:2], 0], [*HOME[:2], 30]])
    assert found.above == "ground"
    assert the(read(tmp_path, item(20, frame=2))).above == "ground"


@pytest.mark.parametrize("command", [17, 21, 22, 82, 84, 85])
def test_other_positions_are_flown_to(command: int, tmp_path: Path) -> None:
    other = at(NORTHERN, 30, command)
    other["params"][0] = 0 if command == 82 else 15  # a pitch, for example
    tracks = read(tmp_path, FIRST, other)
    np.testing.assert_allclose(the(tracks).times_s, [0, 20], rtol=1e-3)
    np.testing.assert_array_equal(the(tracks).places[1], [NORTHERN, -78, 30])
    spline = ["Spline waypoints are flown in straight lines."]
    assert tracks.notes == (spline if command == 82 else [])


def test_a_place_that_comes_again_at_once_counts_once(tmp_path: Path) -> None:
    hold = item(16, 3, 0, 0, None, NORTHERN, -78, 30)
    found = the(read(tmp_path, FIRST, FIRST, hold, hold, SECOND))
    np.testing.assert_allclose(found.times_s, [0, 20, 23, 26], rtol=1e-3)
    np.testing.assert_array_equal(found.places[:, 0], [HOME[0], *[NORTHERN] * 3])


def test_the_waypoints_of_a_survey_are_those_saved_with_it(tmp_path: Path) -> None:
    def pattern(kind: str, *items: Item) -> Item:
        return {
            "type": "ComplexItem",
            "complexItemType": kind,
            "TransectStyleComplexItem": {"Items": items, "HoverAndCapture": False, "version": 2},
        }

    survey = pattern("survey", SECOND, item(206, 25, 0, 1, frame=2), at(FURTHER, 40))
    corridor = pattern("CorridorScan", at(FURTHER, 40), item(530, 0, 2, None, frame=2), SECOND)
    tracks = read(tmp_path, FIRST, survey, corridor)
    latitudes = [HOME[0], NORTHERN, FURTHER, NORTHERN]
    np.testing.assert_array_equal(the(tracks).places[:, 0], latitudes)
    assert tracks.notes == []
    with pytest.raises(InputError, match=r"items\.0: this 'survey' has been saved without its way"):
        read(tmp_path, pattern("survey"))
    with pytest.raises(InputError, match=r"items\.0\.TransectStyleComplexItem\.Items\.1: the comm"):
        read(tmp_path, pattern("survey", SECOND, item(18)))
    with pytest.raises(InputError, match=r"Items\.0: must be a SimpleItem, not 'CorridorScan'"):
        read(tmp_path, pattern("survey", corridor))


@pytest.mark.parametrize("kind", ["StructureScan", "fwLandingPattern", "vtolLandingPattern"])
def test_a_pattern_without_waypoints_is_refused_by_its_name(kind: str, tmp_path: Path) -> None:
    given = {"type": "ComplexItem", "complexItemType": kind}
    with pytest.raises(InputError, match=rf"items\.1: must be a SimpleItem, not '{kind}'"):
        read(tmp_path, FIRST, given)


# --- commands ------------------------------------------------------------------------------------


def test_every_command_is_in_one_list(tmp_path: Path) -> None:
    lists = [
        *(qgc.PLACES, qgc.HARMLESS, qgc.NOTED.keys(), qgc.REFUSED.keys() - qgc.JUMPS),
        *(qgc.CONDITIONS, qgc.JUMPS, {qgc.RETURN, qgc.DELAY, qgc.CHANGE_SPEED}),
    ]
    together = [command for commands in lists for command in commands]
    assert len(together) == len(set(together))


HARMLESS = [
    *(80, 95, 115, 159, 181, 182, 183, 184, 187, 188, 189, 195, 196, 197, 198),
    *(200, 201, 202, 203, 204, 205, 206, 207, 210, 211, 212, 214, 215, 216, 217, 220, 223, 240),
    *(241, 242, 243, 245, 260, 300, 400, 401, 405, 406, 410, *range(500, 535), 600),
    *(1000, 1001, 2000, 2001, 2002, 2003, 2004, 2005, 2010, *range(2500, 2512), 2520, 2600, 2800),
    *(3001, 5000, 5001, 5002, 5003, 5004, 5100, 5300, 10001, 30002, 42004, 42005, 42006, 42007),
    *(42424, 42425, 42426, 42428, 42429, 42501, 42502, 42503, 42505, 42600, 42650, 42651),
]


def test_what_does_not_move_the_vehicle_is_passed_over(tmp_path: Path) -> None:
    others = [item(command, 1, 2, 3, 4, 5, 6, 7, frame=2) for command in HARMLESS]
    tracks = read(tmp_path, FIRST, *others, SECOND)
    np.testing.assert_allclose(the(tracks).times_s, [0, 20], rtol=1e-3)
    assert tracks.notes == []


def test_all_other_commands_are_refused(tmp_path: Path) -> None:
    supported = {*HARMLESS, 16, 17, 19, 20, 21, 22, 82, 84, 85, 93, 112, 114, 178, 179, 180, 3000}
    numbers = (*range(-1, 610), *range(990, 1010), *range(1990, 2020), *range(2490, 2900))
    numbers += (*range(2990, 3010), *range(4990, 5310), 10000, *range(30000, 30004))
    numbers += tuple(range(42000, 42660))
    for command in sorted(set(numbers) - supported)[::5]:
        with pytest.raises(InputError, match=rf"the command {command} \("):
            read(tmp_path, FIRST, item(command, 1, 2), SECOND)


@pytest.mark.parametrize(
    ("command", "note"),
    [
        (179, "DO_SET_HOME is passed over; the home stays the planned one."),
        (180, "DO_SET_PARAMETER is passed over."),
        (3000, "DO_VTOL_TRANSITION is passed over; the speed stays the same."),
    ],
)
def test_what_may_matter_is_noted_once(command: int, note: str, tmp_path: Path) -> None:
    assert read(tmp_path, FIRST, item(command), item(command), SECOND).notes == [note]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        *((18, "NAV_LOITER_TURNS"), (30, "NAV_CONTINUE_AND_CHANGE_ALT"), (31, "NAV_LOITER_TO_ALT")),
        *((34, "DO_ORBIT"), (36, "NAV_ARC_WAYPOINT"), (92, "NAV_GUIDED_ENABLE")),
        *((94, "NAV_PAYLOAD_PLACE"), (113, "CONDITION_CHANGE_ALT"), (176, "DO_SET_MODE")),
        *((177, "DO_JUMP"), (185, "DO_FLIGHTTERMINATION"), (601, "DO_JUMP_TAG")),
        *((4501, "CONDITION_GATE"), (31000, "unknown"), (-1, "unknown")),
    ],
)
def test_what_moves_the_vehicle_otherwise_is_refused(
    command: int, name: str, tmp_path: Path
) -> None:
    says = rf"items\.1: the command {command} \({name}\) is not supported"
    with pytest.raises(InputError, match=says):
        read(tmp_path, FIRST, item(command, 1, 2), SECOND)


def test_a_jump_that_is_made_no_time_is_passed_over(tmp_path: Path) -> None:
    tracks = read(tmp_path, FIRST, item(177, 1, 0), SECOND, item(601, 1, 0))
    np.testing.assert_allclose(the(tracks).times_s, [0, 20], rtol=1e-3)


def test_nothing_comes_after_loitering_for_ever(tmp_path: Path) -> None:
    forever = at(NORTHERN, 30, 17)
    assert len(the(read(tmp_path, FIRST, forever, item(206))).places) == 2
    with pytest.raises(InputError, match=r"items\.2: comes after NAV_LOITER_UNLIM, which has no"):
        read(tmp_path, FIRST, forever, item(20, frame=2))


def test_waiting_counts_in_flight_and_not_until_a_time_of_day(tmp_path: Path) -> None:
    tracks = read(tmp_path, item(93, 50), FIRST, item(93, 0), item(93, 0.5), SECOND)
    np.testing.assert_allclose(the(tracks).times_s, [0, 0.5, 20.5], rtol=1e-3)
    with pytest.raises(InputError, match=r"items\.1: waits until a time of day"):
        read(tmp_path, FIRST, item(93, -1, 12, 30, 0))


def test_a_speed_that_changes_within_a_leg_or_of_a_climb_is_not_taken(tmp_path: Path) -> None:
    for condition in (112, 114):
        fast = [item(condition, 5), item(178, 1, 10)]
        with pytest.raises(InputError, match=r"items\.2: changes the speed within a leg"):
            read(tmp_path, FIRST, *fast, SECOND)
        assert the(read(tmp_path, FIRST, *fast, SECOND, speed=50.0)).times_s[-1] < 3
        before = read(tmp_path, item(condition, 5), FIRST, item(178, 1, 10), SECOND)
        np.testing.assert_allclose(the(before).times_s, [0, 10], rtol=1e-3)
    for kind in (2, 3):
        tracks = read(tmp_path, FIRST, item(178, kind, 1), SECOND)
        np.testing.assert_allclose(the(tracks).times_s, [0, 20], rtol=1e-3)
        assert tracks.notes == ["Changes of the climb and descent speed are passed over."]
    unchanged = read(tmp_path, FIRST, item(178, 1, 0), item(178, 1, -1), SECOND)
    np.testing.assert_allclose(the(unchanged).times_s, [0, 20], rtol=1e-3)
    for kind in (0, 1):
        for items in ((FIRST, item(178, kind, 1), SECOND), (item(178, kind, 1), FIRST, SECOND)):
            np.testing.assert_allclose(the(read(tmp_path, *items)).times_s, [0, 100], rtol=1e-3)


@pytest.mark.parametrize(
    ("items", "mission", "says"),
    [
        ([], {}, "has no waypoints"),
        ([item(203)], {}, "has no waypoints"),
        ([at(35, 1, frame=2)], {}, "items.0: a position of frame 2 is not supported"),
        ([at(35, 1, frame=1)], {}, "items.0: a position of frame 1 is not supported"),
        ([at(35, 1) | {"frame": "3"}], {}, "items.0.frame: must be a whole number, not '3'"),
        ([at(35, 1) | {"command": None}], {}, "items.0.command: must be a whole number, not 'No"),
        ([at(35, 1) | {"command": [16]}], {}, "items.0.command: must be a whole number"),
        ([at(35, 1) | {"command": True}], {}, "items.0.command: must be a whole number"),
        (
            [at(float("nan"), 1)],
            {},
            "items.0.params: must be seven numbers, not [0, 0, 0, 0.0, nan",
        ),
        ([at(1e12, 1)], {}, "items.0.params: must be seven numbers"),
        ([at("35", 1)], {}, "items.0.params: must be seven numbers"),
        ([at(True, 1)], {}, "items.0.params: must be seven numbers"),
        ([{"type": "Other"}], {}, "items.0: must be a SimpleItem, not 'Other'"),
        ([at(10**400, 1)], {}, "items.0.params: must be seven numbers"),
        ([at(35, 1) | {"params": [1]}], {}, "items.0.params: must be seven numbers"),
        ([at(35, 1) | {"params": None}], {}, "items.0.params: must be seven numbers"),
        ([5], {}, "items.0: must be a SimpleItem, not '5'"),
        (
            [FIRST, item(178, 1, 1e-320)],
            {},
            "items.1: the speed must be a speed in m/s, not 1e-320",
        ),
        ([FIRST], {"hoverSpeed": 0}, "mission.hoverSpeed must be a speed in m/s, not 0"),
        ([FIRST], {"hoverSpeed": 1e4}, "mission.hoverSpeed must be a speed in m/s"),
        ([FIRST], {"vehicleType": [2], "cruiseSpeed": True}, "mission.cruiseSpeed must be a speed"),
        ([FIRST], {"plannedHomePosition": [1]}, "plannedHomePosition: must be 3 numbers"),
        (
            [FIRST],
            {"plannedHomePosition": [1, 2, float("inf")]},
            "must be 3 numbers, not [1, 2, inf",
        ),
        ([FIRST], {"items": {}}, "is not a QGroundControl plan: it has no mission.items"),
    ],
)
def test_a_broken_plan_is_one_line(
    items: Sequence[Any], mission: Item, says: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as raised:
        read(tmp_path, *items, **mission)
    assert says in str(raised.value)
    assert str(raised.value).startswith(f"{tmp_path}/flight.plan: ")
    assert "\n" not in str(raised.value)


def test_what_is_no_plan_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "flight.plan"
    for text, says in (
        ("[]", "it has no mission.items"),
        ('{"mission": []}', "it has no mission.items"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=says):
            read_qgc(path, None)


# --- waypoint files ------------------------------------------------------------------------------


def wpl(tmp_path: Path, *rows: str, header: str = "QGC WPL 110", between: str = "\t") -> Path:
    """A waypoint file from rows without their index: current, frame, command, params."""
    lines = [
        between.join(f"{index} {row} 1".split()) if not row.startswith("#") else row
        for index, row in enumerate(rows)
    ]
    path = tmp_path / "flight.waypoints"
    path.write_text("\r\n".join([header, *lines, ""]))
    return path


ROW_HOME = "1 0 16 0 0 0 0 35.0 -78.0 100.0"
ROW_UP = "0 3 22 0 0 0 0 0.000000 0.000000 30"
ROW_NORTH = f"0 3 16 0 0 0 0 {NORTHERN} -78.0 30"
ROW_EAST = f"0 3 16 0 0 0 0 {NORTHERN} -77.999 30"
ROW_SEA = f"0 0 16 2 0 0 0 {FURTHER} -78.0 130"
ROW_BACK = "0 0 20 0 0 0 0 0 0 0"
ROW_SPEED = "0 3 178 1 10 0 0 0 0 0"


@pytest.mark.parametrize("between", ["\t", " ", "\t\t"])
def test_a_waypoint_file_begins_with_its_home(between: str, tmp_path: Path) -> None:
    rows = [ROW_HOME, ROW_UP, ROW_NORTH, ROW_SPEED, ROW_SEA, ROW_BACK]
    tracks = read_wpl(wpl(tmp_path, *[*rows[:2], ROW_SPEED, *rows[2:]], between=between), None)
    north = [[latitude, -78, 30] for latitude in (NORTHERN, FURTHER, FURTHER)]
    np.testing.assert_array_equal(the(tracks).places, [[35, -78, 30], *north, [35, -78, 30]])
    np.testing.assert_allclose(the(tracks).times_s, [0, 10, 20, 22, 42], rtol=1e-3)
    assert (the(tracks).above, tracks.origin, tracks.notes) == ("ground", HOME[:2], [])
    given = the(read_wpl(wpl(tmp_path, *rows, between=between), 5.0))
    np.testing.assert_allclose(given.times_s, [0, 20, 40, 42, 82], rtol=1e-3)


def test_a_waypoint_file_without_a_speed_is_refused(tmp_path: Path) -> None:
    path = wpl(tmp_path, ROW_HOME, ROW_UP, ROW_NORTH, ROW_SPEED, ROW_SEA)
    with pytest.raises(InputError, match=r"^`speed`: is missing; .*, line 4 is reached at an unkn"):
        read_wpl(path, None)
    assert len(the(read_wpl(wpl(tmp_path, ROW_HOME, ROW_UP), None)).places) == 1


@pytest.mark.parametrize("header", ["QGC WPL 120", "QGC WPL 110"])
def test_without_a_home_heights_are_what_the_file_says(header: str, tmp_path: Path) -> None:
    home = [ROW_HOME.replace("35.0 -78.0", "0 0")] if header.endswith("110") else []
    tracks = read_wpl(wpl(tmp_path, *home, ROW_NORTH, ROW_NORTH, ROW_BACK, header=header), 5.0)
    np.testing.assert_array_equal(the(tracks).places, [[NORTHERN, -78, 30]])
    assert (the(tracks).above, tracks.origin) == ("ground", None)
    assert tracks.notes == ["The file has no home; the UAV returns to its first place."]
    flown = read_wpl(wpl(tmp_path, *home, ROW_NORTH, ROW_EAST, ROW_BACK, header=header), 5.0)
    np.testing.assert_allclose(the(flown).times_s, [0, 18.27, 36.54], rtol=1e-3)
    np.testing.assert_array_equal(the(flown).places[2], [NORTHERN, -78, 30])
    tracks = read_wpl(wpl(tmp_path, *home, ROW_SEA, ROW_SEA, header=header), 5.0)
    np.testing.assert_array_equal(the(tracks).places[:, 2], 130)
    assert the(tracks).above == "sea"
    for rows, says in (
        ([ROW_NORTH, ROW_SEA], "counts its height from another level than the items before"),
        ([ROW_UP], "has no position, and the file has no home"),
        ([ROW_BACK], "returns to a home that the file does not have"),
    ):
        with pytest.raises(InputError, match=says):
            read_wpl(wpl(tmp_path, *home, *rows, header=header), 5.0)


def test_a_home_of_unknown_height_leaves_heights_above_the_sea(tmp_path: Path) -> None:
    home = ROW_HOME.replace("1 0 16", "1 3 16")
    tracks = read_wpl(wpl(tmp_path, home, ROW_SEA), 5.0)
    assert (the(tracks).above, tracks.origin) == ("sea", HOME[:2])
    np.testing.assert_array_equal(the(tracks).places[0], [FURTHER, -78, 130])


def test_the_first_row_may_have_no_command_and_circles_are_noted(tmp_path: Path) -> None:
    home = ROW_HOME.replace("1 0 16", "1 0 0")
    tracks = read_wpl(wpl(tmp_path, home, ROW_NORTH.replace("3 16 0", "3 19 5.5")), 5.0)
    np.testing.assert_array_equal(the(tracks).times_s, [0, 5.5])
    assert tracks.origin == HOME[:2]
    assert tracks.notes == ["Circles (loitering) are not flown; the UAV stays at their centres."]


def test_comments_empty_lines_and_unused_parameters_are_harmless(tmp_path: Path) -> None:
    path = tmp_path / "flight.txt"
    rows = [
        f"0 {ROW_HOME} 1",
        "# a comment",
        "",
        f"1 {ROW_NORTH} 1".replace("16 0 0", "16 nan NaN"),
    ]
    path.write_text("\n".join(["QGC WPL 110  ", *rows]))
    found = the(read_wpl(path, 5.0))
    np.testing.assert_array_equal(found.places, [[NORTHERN, -78, 30]])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "line 1: must be 'QGC WPL 110' or 120, not ''"),
        ("QGC WPL 100", "line 1: must be 'QGC WPL 110' or 120, not 'QGC WPL 100'"),
        ("QGC WPL 110", "has no waypoints"),
        (f"QGC WPL 110\n0 {ROW_HOME} 1", "has no waypoints"),
        (f"QGC WPL 110\n0 {ROW_UP} 1", "line 2: must be the home (16), not command 22"),
        (f"QGC WPL 110\n0 {ROW_HOME.replace('16', '1')} 1", "line 2: must be the home (16), not c"),
        (f"QGC WPL 110\n0 {ROW_HOME}", "line 2: must have 12 columns, not 11"),
        (f"QGC WPL 110\n0 {ROW_HOME} 1\n\n5 {ROW_NORTH} 1", "line 4: must have the index 1, not 5"),
        (
            f"QGC WPL 110\n0 {ROW_HOME.replace('16', '1.5')} 1",
            "column 4 must be a whole number, no",
        ),
        (f"QGC WPL 110\n0 {ROW_HOME.replace('35.0', 'x')} 1", "column 9 must be a number, not 'x'"),
        (
            f"QGC WPL 110\n0 {ROW_HOME.replace('35.0', 'nan')} 1",
            "column 9 must be a number, not 'n",
        ),
        (f"QGC WPL 110\n0 {ROW_HOME.replace('35.0', '1e12')} 1", "column 9 must be a number, not"),
        (
            f"QGC WPL 110\n0 {ROW_HOME} 1\n1 0 3 18 0 0 0 0 1 1 1 1",
            "line 3: the command 18 (NAV_LO",
        ),
    ],
)
def test_a_broken_waypoint_file_is_one_line(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "flight.waypoints"
    path.write_text(text)
    with pytest.raises(InputError) as raised:
        read_wpl(path, 5.0)
    assert says in str(raised.value)
    assert str(raised.value).startswith(f"{path}")
    assert "\n" not in str(raised.value)
