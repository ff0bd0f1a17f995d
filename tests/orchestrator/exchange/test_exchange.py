# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Files of other tools: what comes in, what goes out again, and what is refused in one line."""

import json
import math
import os
import random
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ns3_scenarios import build
from ns3_scenarios.aerial import free_space_db
from ns3_scenarios.rma_av import los_path_loss_db
from ns3_scenarios.trace import ChannelTrace, RateTrace, both_ways, load_trace
from orchestrator.cli.main import app
from orchestrator.exchange import mahimahi, ns2
from orchestrator.exchange.exporting import exported
from orchestrator.exchange.files import sampled
from orchestrator.exchange.importing import Options, imported
from orchestrator.scenario.loading import load, validate
from testbed.core.errors import InputError
from testbed.system import building

ROOT = Path(__file__).resolve().parents[3]


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


# --- Mahimahi ------------------------------------------------------------------------------------


def test_a_millisecond_of_mahimahi_is_a_packet_of_1500_bytes(tmp_path: Path) -> None:
    up = written(tmp_path / "up", "1\n3\n10\n11\n25\n25\n30\n")
    trace = mahimahi.read([up], [], 0.01)
    assert isinstance(trace, RateTrace)
    # Slots end with their last millisecond: 1, 3, 10 | 11 | 25, 25, 30.
    np.testing.assert_allclose(trace.uplink_bps, [[3 * 1.2e6, 1.2e6, 3 * 1.2e6]])
    np.testing.assert_array_equal(trace.downlink_bps, trace.uplink_bps)


def test_shorter_files_start_anew_as_mahimahi_plays_them(tmp_path: Path) -> None:
    up = written(tmp_path / "up", "4\n10\n")
    down = written(tmp_path / "down", "30\n")
    trace = mahimahi.read([up], [down], 0.01)
    np.testing.assert_allclose(trace.uplink_bps, [[2.4e6] * 3])  # 4, 10 | 14, 20 | 24, 30
    np.testing.assert_allclose(trace.downlink_bps, [[0, 0, 1.2e6]])


def test_a_short_mahimahi_file_repeats_without_being_written_out(tmp_path: Path) -> None:
    """The work of an import is linear in its lines, whichever file is the shorter one."""
    down = written(tmp_path / "down", "1\n")

    def work_of(lines: int) -> tuple[int, int]:
        up = written(tmp_path / "up", "".join(f"{ms}\n" for ms in range(1, lines + 1)))
        calls = 0

        def count(frame: object, event: str, argument: object) -> None:
            nonlocal calls
            calls += 1

        tracemalloc.start()
        sys.setprofile(count)
        try:
            trace = mahimahi.read([up], [down], 0.1)
        finally:
            sys.setprofile(None)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        np.testing.assert_allclose(trace.uplink_bps, 12e6)
        np.testing.assert_allclose(trace.downlink_bps, 12e6)
        return calls, peak

    few, many = work_of(4000), work_of(40_000)
    assert many[0] < 10 * few[0]
    assert many[1] < 11 * few[1]


@pytest.mark.parametrize(("slot_ms", "off_ms"), [(1, 0), (10, 10), (100, 100)])
def test_a_round_trip_loses_no_more_than_the_slot(
    slot_ms: int, off_ms: int, tmp_path: Path
) -> None:
    rng = np.random.default_rng(slot_ms)
    times = np.sort(rng.integers(1, 20_000, 5000))
    times[-1] = 20_000
    up = written(tmp_path / "up", "".join(f"{t}\n" for t in times))
    trace = mahimahi.read([up], [], slot_ms / 1000)
    trace.save(tmp_path / "t.npz")
    files = exported("mahimahi", tmp_path / "t.npz", None, tmp_path / "out")
    assert [path.name for path in files] == ["uav1.up", "uav1.down"]
    back = np.loadtxt(files[0], dtype=int)
    assert len(back) == len(times)
    assert abs(back - times).max() <= max(0, off_ms - (slot_ms > 1))
    if slot_ms == 1:
        assert files[0].read_text() == up.read_text()
    again = mahimahi.read([files[0]], [], slot_ms / 1000)
    np.testing.assert_array_equal(again.uplink_bps, trace.uplink_bps)


def test_gains_are_exported_as_the_rates_of_a_scenario(tmp_path: Path) -> None:
    scenario = validate({"uavs": {"tx_power_w": [1, 0.4]}, "paradigm": "sfl-pp"}, "test")
    trace = ChannelTrace(np.full((2, 50), 1e-11), 0.1)
    trace.save(tmp_path / "t.npz")
    with pytest.raises(InputError, match="`scenario`: is missing"):
        exported("mahimahi", tmp_path / "t.npz", None, tmp_path / "out")
    up, *_ = exported("mahimahi", tmp_path / "t.npz", scenario, tmp_path / "out")
    noise = 1e-3 * 10 ** (-114 / 10) / 1e6
    rate = 10e6 * np.log2(1 + 1e-11 / (10e6 * noise))
    assert abs(len(np.loadtxt(up)) - rate * 5.0 / 12000) <= 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("5\n3\n", "line 2: 3 is below 5"),
        ("5\nx\n", "line 2: must be a millisecond, not 'x'"),
        ("-5\n", "line 1: must be a millisecond"),
        ("1.5\n", "line 1: must be a millisecond"),
        ("0\n0\n", "its last line is 0"),
        ("9" * 12 + "\n", "may be imported"),
        ("9" * 4000 + "\n", "line 1: must be a millisecond"),
    ],
)
def test_a_wrong_mahimahi_trace_is_one_line(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        mahimahi.read([written(tmp_path / "up", text)], [], 0.1)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


# --- ns-2 ----------------------------------------------------------------------------------------

MOVEMENT = """# made by hand
$node_(0) set X_ 10.0
$node_(0) set Y_ 20.0
$node_(0) set Z_ 25.0
$god_ set-dist 0 1 2
$ns_ at 1.0 "$node_(0) setdest 110.0 20.0 10.0"
$ns_ at 5.0 "$node_(0) setdest 50.0 100.0 5.0"
$node_(1) set X_ 0.5
$node_(1) set Y_ 0
$node_(1) set Z_ 30
$ns_ at 0.5 "$node_(1) setdest 3 4 1"
$ns_ at 9.0 "$node_(1) setdest 3 4 0"
$ns_ at 12.25 "$node_(1) setdest -30 4.5 2.5e0"
$ns_ at 14.0 "$node_(1) setdest -30 4.5 0.0"
"""


def by_ns3(movement: Path, nodes: int, slot_s: float, slots: int, folder: Path) -> np.ndarray:
    """Positions as ns-3's Ns2MobilityHelper reads them."""
    version, wheel = build.wheel()
    libraries = ("mobility", "network", "core")
    command = ["g++", *building.FLAGS, *build._options(version, wheel, (), libraries)]
    source = (ROOT / "tests" / "support" / "ns2_positions.cc").read_text()
    program = folder / "ns2"
    subprocess.run([*command, "-o", str(program)], input=source, text=True, check=True, timeout=300)
    words = [program, movement, nodes, slot_s, slots]
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=True)
    return np.array(done.stdout.split(), float).reshape(slots, nodes, 3).swapaxes(0, 1)


def test_a_movement_is_what_ns3_itself_reads(tmp_path: Path) -> None:
    movement = written(tmp_path / "m.tcl", MOVEMENT)
    position = sampled(ns2.read(movement), 0.1, movement)
    read = by_ns3(movement, 2, 0.1, position.shape[1], tmp_path)
    np.testing.assert_allclose(position, read, atol=2e-5)  # ns-3 was asked a microsecond later
    assert np.ptp(position[0, :, 0]) > 30


def test_a_movement_has_the_gains_of_free_space_or_of_a_scenario(tmp_path: Path) -> None:
    movement = written(tmp_path / "m.tcl", MOVEMENT)
    free = imported("ns2", [movement], Options()).trace
    assert free.position_m is not None
    far_m = np.linalg.norm(free.position_m - [0, 0, 30], axis=2)
    expected = free_space_db(np.maximum(far_m, 1), 2e9)
    np.testing.assert_allclose(-10 * np.log10(free.gain), expected, atol=1e-9)
    paper = imported("ns2", [movement], Options(scenario=load(Path("paper")))).trace
    assert paper.position_m is not None
    np.testing.assert_array_equal(paper.position_m, free.position_m)
    height = paper.position_m[..., 2]
    expected = los_path_loss_db(height, far_m, 2e9)
    np.testing.assert_allclose(-10 * np.log10(paper.gain), expected, atol=1e-9)
    high = imported("ns2", [movement], Options(height_m=120.0)).trace
    assert high.position_m is not None
    assert (high.position_m[..., 2] == 120).all()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "moves no nodes"),
        ("<xml/>\n", "line 1: is not a command of an ns-2 movement file"),
        ("$node_(0) set X_ abc\n", "line 1: is not a command"),
        ('$node_(0) set X_ 1\n$ns_ at -1 "$node_(0) setdest 1 1 1"\n', "line 2: time and speed"),
        ('$node_(0) set X_ 1\n$ns_ at 1 "$node_(0) setdest 1 1 -1"\n', "line 2: time and speed"),
        ("$node_(0) set X_ 1\n$node_(2) set X_ 1\n", "$node_(1) is missing"),
        ('$node_(0) set X_ 1\n$ns_ at 1e9 "$node_(0) setdest 2 2 1"\n', "may be imported"),
        ('$node_(0) set X_ 1\n$ns_ at 1 "$node_(0) setdest 2 2 1e-320"\n', "may be imported"),
        ("$node_(0) set X_ 1e999\n", "line 1: numbers must be from -1e12 to 1e12, not 1e999"),
    ],
)
def test_a_wrong_movement_is_one_line(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        imported("ns2", [written(tmp_path / "m.tcl", text)], Options())
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_flight_beyond_the_channel_is_refused(tmp_path: Path) -> None:
    movement = written(tmp_path / "m.tcl", MOVEMENT)
    with pytest.raises(InputError, match=r"UAV 1 is 0.5 m high .* at heights from 1 m to 300 m"):
        imported("ns2", [movement], Options(scenario=load(Path("paper")), height_m=0.5))


# --- plans and paths -----------------------------------------------------------------------------


def plan(*places: tuple[float, float, float], **mission: Any) -> str:
    items = [
        {"type": "SimpleItem", "command": 16, "params": [0, 0, 0, None, *place]} for place in places
    ]
    rest = {"cruiseSpeed": 10, "plannedHomePosition": [35.0, -78.0, 100.0]} | mission
    return json.dumps({"fileType": "Plan", "mission": {"items": items} | rest})


NORTH = 100 / (6_356_800 * np.pi / 180)
"""Degrees of 100 m of a meridian at 35 degrees, near enough."""


def test_a_plan_is_flown_from_waypoint_to_waypoint(tmp_path: Path) -> None:
    path = written(tmp_path / "a.plan", plan((35.0, -78.0, 30.0), (35.0 + NORTH, -78.0, 30.0)))
    trace = imported("qgc", [path], Options()).trace
    assert trace.position_m is not None
    np.testing.assert_allclose(trace.position_m[0, 50], [0, 50, 30], rtol=5e-3, atol=1e-6)
    np.testing.assert_allclose(trace.position_m[0, -1], [0, 100, 30], rtol=5e-3, atol=1e-6)


def test_a_plan_says_how_fast_where_it_waits_and_above_what(tmp_path: Path) -> None:
    """As QGroundControl writes one for a quadrotor; heights above the sea are frame 0."""

    def item(command: int, *params: float | None, frame: int = 3) -> dict[str, Any]:
        given = [*params, *[0] * (7 - len(params))]
        return {"type": "SimpleItem", "command": command, "frame": frame, "params": given}

    items = [
        item(22, 0, 0, 0, None, 0, 0, 30),  # take off from the home, in half a second of nothing
        item(16, 2, 0, 0, None, 35.0 + NORTH, -78.0, 30),  # 100 m at 5 m/s, wait 2 s
        item(178, 1, 10, -1, 0, frame=2),
        item(203, frame=2),  # the camera's
        item(19, 4, 0, 0, None, 35.0 + 2 * NORTH, -78.0, 140, frame=0),  # at 10 m/s, 10 m higher
        item(20, frame=2),  # and home
    ]
    text = plan(items=items, hoverSpeed=5, vehicleType=2)
    path = written(tmp_path / "a.plan", text)
    trace = imported("qgc", [path], Options(slot_s=1.0)).trace
    assert trace.position_m is not None
    leg_s = np.hypot(100, 10) / 10
    back_s = np.array([0, 20, 22, 22 + leg_s, 26 + leg_s, 46 + leg_s])
    north_m = [0, 100, 100, 200, 200, 0]
    times = np.arange(trace.slots)
    np.testing.assert_allclose(
        trace.position_m[0, :, 1], np.interp(times, back_s, north_m), atol=1.5
    )
    np.testing.assert_allclose(
        trace.position_m[0, :, 2], np.interp(times, back_s, [30, 30, 30, 40, 40, 40]), atol=0.1
    )
    fixed_wing = imported("qgc", [written(path, plan(items=items, vehicleType=1))], Options()).trace
    assert fixed_wing.slots == pytest.approx(10 * (back_s[-1] - 10), abs=3)
    faster = imported("qgc", [written(path, text)], Options(speed_m_s=50.0)).trace
    assert faster.slots == pytest.approx(10 * (2 + 2 + 2 + 4 + 4), abs=3)


def test_uavs_of_several_plans_keep_their_distance(tmp_path: Path) -> None:
    """The second one's home lies 100 m north of the first one's."""
    homes = [35.0, 35.0 + NORTH]
    paths = [
        written(
            tmp_path / f"{n}.plan", plan((home, -78.0, 30.0), plannedHomePosition=[home, -78.0, 0])
        )
        for n, home in enumerate(homes)
    ]
    trace = imported("qgc", paths, Options()).trace
    assert trace.position_m is not None
    np.testing.assert_allclose(trace.position_m[:, 0, 1], [0, 100], rtol=5e-3, atol=1e-6)


def test_a_speed_that_is_none_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.plan", plan((35.0, -78.0, 30.0)))
    with pytest.raises(InputError, match=r"`speed`: must be from 0\.01 to 100, not -3"):
        imported("qgc", [path], Options(speed_m_s=-3.0))


KML = """<?xml version="1.0"?><kml xmlns="http://www.opengis.net/kml/2.2"
 xmlns:gx="http://www.google.com/kml/ext/2.2"><Document>%s</Document></kml>"""
LINE = "<Placemark><LineString><coordinates>%s</coordinates></LineString></Placemark>"
TRACK = """<Placemark><gx:Track><when>2023-01-01T00:00:00Z</when><when>2023-01-01T00:00:04Z</when>
<gx:coord>-78 35 30</gx:coord><gx:coord>-78 35.001 50</gx:coord></gx:Track></Placemark>"""


def test_paths_of_a_map_are_flights(tmp_path: Path) -> None:
    """Points of a track have times; the others are flown at one speed."""
    path = written(tmp_path / "a.kml", KML % TRACK)
    found = imported("kml", [path], Options(speed_m_s=20.0))
    assert "the speed is not used, for all paths have times" in found.notes
    track = found.trace.position_m
    assert track is not None
    np.testing.assert_allclose(track[0, 20, 2], 40)  # two of four seconds
    # The same moments, as a clock two hours ahead of UTC has them.
    elsewhere = TRACK.replace("00:00:04Z", "02:00:04+02:00")
    again = imported("kml", [written(tmp_path / "b.kml", KML % elsewhere)], Options()).trace
    np.testing.assert_array_equal(again.position_m, track)
    line = written(tmp_path / "c.kml", KML % (LINE % f"-78,35,30 -78,{35 + NORTH},30"))
    trace = imported("kml", [line], Options(speed_m_s=20.0)).trace
    assert trace.position_m is not None
    np.testing.assert_allclose(trace.position_m[0, 25, 1], 50, rtol=5e-3)
    with pytest.raises(InputError, match="`clock`: is not used by the format kml: its paths have"):
        imported("kml", [line], Options(speed_m_s=20.0, clock="each"))
    with pytest.raises(InputError, match="`speed`: is missing; a path without times"):
        imported("kml", [line], Options())


def test_uavs_have_the_names_of_their_files_and_nodes(tmp_path: Path) -> None:
    named = TRACK.replace("<Placemark>", "<Placemark><name>alpha</name>")
    paths = [written(tmp_path / f"{n}.kml", KML % named) for n in ("a", "b")]
    assert imported("kml", paths[:1], Options()).names == ["alpha"]
    assert imported("kml", paths, Options()).names == ["a alpha", "b alpha"]
    assert imported("kml", [written(tmp_path / "c.kml", KML % TRACK)], Options()).names == ["c"]
    from_one = MOVEMENT.replace("node_(1)", "node_(2)").replace("node_(0)", "node_(1)")
    movement = written(tmp_path / "m.tcl", from_one)
    assert imported("ns2", [movement], Options()).names == ["1", "2"]


def test_a_window_of_a_flight_has_the_slots_that_start_in_it(tmp_path: Path) -> None:
    path = written(tmp_path / "a.kml", KML % TRACK)
    whole = imported("kml", [path], Options()).trace.position_m
    assert whole is not None
    assert whole.shape[1] == 41
    for first, last in ((0, 9), (5, 15), (11, 40)):
        options = Options(first=f"{first / 10}", last=f"{last / 10}")
        found = imported("kml", [path], options).trace.position_m
        np.testing.assert_allclose(found, whole[:, first : last + 1], atol=1e-9)


def test_flights_of_several_files_have_one_clock(tmp_path: Path) -> None:
    for name, start in (("a", "00:00:0"), ("b", "00:00:3"), ("c", "10:00:0")):
        written(tmp_path / f"{name}.kml", KML % TRACK.replace("00:00:0", start))
    first, second, later = (tmp_path / f"{name}.kml" for name in "abc")
    with pytest.raises(
        InputError, match=r"`hold`: uav1 \(a\) has no position in the last 30 s; choose a w"
    ):
        imported("kml", [first, second], Options(slot_s=1.0))
    trace = imported("kml", [first, second], Options(slot_s=1.0, hold=True)).trace
    assert trace.position_m is not None
    np.testing.assert_allclose(trace.position_m[:, [0, 2, 4], 2], [[30, 40, 50], [30, 30, 30]])
    np.testing.assert_allclose(trace.position_m[:, [30, 32, 34], 2], [[50] * 3, [30, 40, 50]])
    with pytest.raises(InputError, match="`clock`: c starts 36,000 s after the first UAV; say"):
        imported("kml", [first, later], Options(slot_s=1.0))
    with pytest.raises(InputError, match="`clock`: must be `each` for several logs"):
        imported("ulog", [first, later], Options())
    each = imported("kml", [first, later], Options(slot_s=1.0, clock="each")).trace
    np.testing.assert_array_equal(each.values[0], each.values[1])


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        ("qgc", "[]", "it has no mission.items"),
        ("qgc", "{", "is not JSON"),
        ("qgc", "[" * 100_000, "is not JSON"),
        ("qgc", plan(), "has no waypoints"),
        ("qgc", plan((95.0, 0.0, 30.0)), "place 1: latitude 95 is outside ±90"),
        ("qgc", plan((1.0, 0.0, 30.0)), "km away from the origin"),
        ("qgc", plan((35.0, -78.0, 30.0), cruiseSpeed=0), "mission.cruiseSpeed must be a speed"),
        ("qgc", plan((35.0, -78.0, 30.0), vehicleType=2), "mission.hoverSpeed must be a speed"),
        ("qgc", plan((35.0, -78.0, 30.0), plannedHomePosition=[1]), "must be 3 numbers"),
        ("qgc", plan((35.0, -78.0, math.nan)), "mission.items.0.params: must be seven numbers"),
        (
            "qgc",
            plan((35.0, -78.0, 30.0), items=[{"type": "ComplexItem", "complexItemType": "survey"}]),
            "mission.items.0: must be a SimpleItem, not 'survey'",
        ),
        ("kml", "<a/>", "is not KML: its root is 'a'"),
        ("kml", "<a>", "is not XML"),
        ("kml", '<!DOCTYPE x [<!ENTITY a "b">]><kml/>', "has a document type"),
        ("kml", KML % "", "has no path"),
        ("kml", KML % (LINE % "-78,35"), "has 1 point"),
        ("kml", KML % (LINE % "-78,35 here"), "'here' is not a place"),
        ("kml", KML % TRACK.replace("00:00:04", "00:00:00"), "comes again"),
        ("kml", KML % TRACK.replace("2023-01-01T00:00:04Z", "soon"), "soon"),
    ],
)
def test_a_wrong_flight_is_one_line(kind: str, text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        imported(
            kind, [written(tmp_path / "f", text)], Options(speed_m_s=None if kind == "qgc" else 5.0)
        )
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


# --- the door ------------------------------------------------------------------------------------


WHOLE = {
    "mahimahi": "1\n5\n5\n10\n20\n33\n",
    "ns2": MOVEMENT,
    "csv": "time,uav,x,y,z,gain_db\n0,1,2,3,4,-80\n1,1,5,6,7,-81\n0,2,8,9,1,-82\n1,2,8,9,1,-83\n",
    "kml": KML % (TRACK + LINE % "-78,35,30 -78,35.001,30"),
    "qgc": plan((35.0, -78.0, 30.0), (35.0 + NORTH, -78.0, 30.0)),
}
OTHERWISE = [
    "nan",
    "1e999",
    "-1e308",
    "1e-320",
    "-1",
    "0",
    "",
    "9" * 30,
    "null",
    "[]",
    '"',
    "\0",
    "é",
]


@pytest.mark.parametrize("kind", WHOLE)
@pytest.mark.filterwarnings("error")
def test_a_file_with_something_wrong_is_one_line_or_a_trace(kind: str, tmp_path: Path) -> None:
    text, rng = WHOLE[kind], random.Random(kind)
    words = list(re.finditer(r"-?\d+\.?\d*|\w+|[^\w\s]", text))
    refusals = []
    for _ in range(150):
        word, other = rng.choice(words), rng.choice(OTHERWISE)
        path = written(tmp_path / "f", text[: word.start()] + other + text[word.end() :])
        try:
            speed_m_s = 20.0 if kind in ("kml", "qgc") else None
            trace = imported(kind, [path], Options(slot_s=0.1, speed_m_s=speed_m_s)).trace
        except InputError as error:
            refusals.append(str(error))
        else:
            assert np.isfinite(both_ways(trace.values)[0]).all()
            assert trace.position_m is None or np.isfinite(trace.position_m).all()
    assert 15 < len(refusals) < 150
    assert all(map(str.isprintable, refusals))


@pytest.mark.parametrize("kind", ["mahimahi", "ns2", "csv", "kml", "qgc"])
def test_what_is_no_file_is_refused(kind: str, tmp_path: Path) -> None:
    endless, fifo = Path("/dev/zero"), tmp_path / "fifo"
    os.mkfifo(fifo)
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00" * 100)
    for path, says in (
        (endless, "cannot be read"),
        (fifo, "cannot be read"),
        (tmp_path / "nothing", "no such file"),
        (binary, "is not UTF-8 text"),
    ):
        with pytest.raises(InputError, match=says):
            imported(kind, [path], Options())


def test_a_file_that_is_too_long_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.exchange.files.MOST_BYTES", 100)
    with pytest.raises(InputError, match="cannot be read"):
        mahimahi.read([written(tmp_path / "up", "1\n" * 200)], [], 0.1)


def test_the_command_writes_a_trace_or_nothing(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    up, out = written(tmp_path / "up", "5\n10\n"), tmp_path / "t.npz"
    words = ["import", "mahimahi", str(up), str(up), "--out", str(out), "--slot-s", "0.01"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert load_trace(out).uavs == 2
    out.unlink()
    bad = CliRunner().invoke(app, ["import", "mahimahi", "/dev/null", "--out", str(out)])
    assert isinstance(bad.exception, InputError)
    assert not out.exists()
