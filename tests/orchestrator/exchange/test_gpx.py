# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Flights in GPX: times, places and names exactly as the file has them, and what is refused."""

from pathlib import Path

import numpy as np
import pytest

from orchestrator.exchange.gpx import read_gpx
from orchestrator.exchange.tracks import Track, Tracks
from testbed.core.errors import InputError

GPX = """<?xml version="1.0" encoding="UTF-8"?>
<gpx version="1.1" creator="GPSBabel" xmlns="http://www.topografix.com/GPX/1/1"
 xmlns:t="http://www.garmin.com/xmlschemas/TrackPointExtension/v1">%s</gpx>"""
NOON_S = 1_709_294_400.0
"""2024-03-01T12:00:00Z in s since 1970."""


def read(tmp_path: Path, *contents: str, gpx: str = GPX) -> Tracks:
    path = tmp_path / "flight.gpx"
    path.write_text(gpx % "".join(contents))
    return read_gpx(path)


def points(*rows: tuple[str, str, str, str], kind: str = "trkpt") -> str:
    """Points from latitude, longitude, height and minutes and seconds after twelve."""
    return "".join(
        f'<{kind} lat="{latitude}" lon="{longitude}">'
        + (f"<ele>{height}</ele>" if height else "")
        + (f"<time>2024-03-01T12:{time}Z</time>" if time else "")
        + "<extensions><t:time>1</t:time><t:ele>9</t:ele></extensions>"
        + f"</{kind}>"
        for latitude, longitude, height, time in rows
    )


def trk(*segments: str, name: str = "") -> str:
    found = "".join(f"<trkseg>{segment}</trkseg>" for segment in segments)
    return f"<trk><name>{name}</name>{found}</trk>"


def the(tracks: Tracks) -> Track:
    (found,) = tracks.tracks
    return found


FIRST = points(("10", "20", "40", "00:00"), ("10.0005", "20", "41.5", "00:05.5"))
SECOND = points(("10.001", "20", "42", "01:00"), ("10.0015", "20", "43", "01:10"))
WITHOUT = points(("10", "20", "40", ""), ("11", "20", "41", ""))
PLACES = [[10, 20, 40], [10.0005, 20, 41.5], [10.001, 20, 42], [10.0015, 20, 43]]
TIMES_S = NOON_S + np.array([0, 5.5, 60, 70])


@pytest.mark.parametrize("namespace", ["/GPX/1/1", "/GPX/1/0", None])
def test_a_track_is_a_flight_and_its_segments_follow_each_other(
    namespace: str | None, tmp_path: Path
) -> None:
    other = f"http://www.topografix.com{namespace}" if namespace else ""
    gpx = GPX.replace("http://www.topografix.com/GPX/1/1", other)
    tracks = read(tmp_path, trk(FIRST, "", SECOND, name="Hexa"), gpx=gpx)
    np.testing.assert_array_equal(the(tracks).places, PLACES)
    np.testing.assert_array_equal(the(tracks).times_s, TIMES_S)
    assert (the(tracks).name, the(tracks).above, tracks.origin) == ("Hexa", "sea", None)
    assert tracks.notes == [
        "2 segments of a track are one flight, with up to 54.5 s between them, for which the file "
        "has no places."
    ]
    assert read(tmp_path, trk(FIRST), gpx=gpx).notes == []


def test_several_tracks_are_a_uav_each_and_other_contents_are_passed_over(tmp_path: Path) -> None:
    route = f"<rte>{points(('1', '2', '3', ''), kind='rtept')}</rte>"
    mark = points(("1", "2", "3", ""), kind="wpt")
    tracks = read(
        tmp_path, mark, mark, route, trk(FIRST, name="A"), trk(), trk(), trk(SECOND, name="B")
    )
    np.testing.assert_array_equal(tracks.tracks[0].places, PLACES[:2])
    np.testing.assert_array_equal(tracks.tracks[1].places, PLACES[2:])
    np.testing.assert_array_equal(tracks.tracks[1].times_s, TIMES_S[2:])
    assert [found.name for found in tracks.tracks] == ["A", "B"]
    assert tracks.notes == [
        "2 trks without points are passed over.",
        "1 rte next to tracks is passed over.",
        "2 wpts next to paths are passed over.",
        "2 separate paths are one UAV each.",
    ]


def test_a_route_is_a_flight_without_times_where_there_is_no_track(tmp_path: Path) -> None:
    rows = (("10", "20", "40", ""), ("10.0005", "20", "41.5", ""))
    tracks = read(tmp_path, f"<rte><name>R</name>{points(*rows, kind='rtept')}</rte>")
    np.testing.assert_array_equal(the(tracks).places, PLACES[:2])
    assert (the(tracks).name, the(tracks).times_s, the(tracks).above) == ("R", None, "sea")
    assert tracks.notes == []


def test_segments_without_times_are_one_flight(tmp_path: Path) -> None:
    tracks = read(tmp_path, trk(WITHOUT, WITHOUT))
    assert the(tracks).times_s is None
    np.testing.assert_array_equal(the(tracks).places[:, 0], [10, 11, 10, 11])
    assert tracks.notes == ["2 segments of a track are one flight."]


def test_a_segment_that_begins_where_the_last_one_ended_shares_its_place(tmp_path: Path) -> None:
    on = points(("10.0005", "20", "41.5", "00:05.5"), ("11", "20", "42", "00:09"))
    found = the(read(tmp_path, trk(FIRST, on)))
    np.testing.assert_array_equal(found.times_s, NOON_S + np.array([0, 5.5, 9]))
    np.testing.assert_array_equal(found.places, [*PLACES[:2], [11, 20, 42]])


def test_a_track_without_heights_has_none(tmp_path: Path) -> None:
    found = the(read(tmp_path, trk(points(("1", "2", "", "00:00"), ("1", "3", "", "00:01")))))
    np.testing.assert_array_equal(found.places, [[1, 2, np.nan], [1, 3, np.nan]])
    assert found.above == "unknown"


def test_points_without_a_fix_are_passed_over(tmp_path: Path) -> None:
    lost = points(("0", "0", "0", "00:02")).replace("</trkpt>", "<fix>none</fix></trkpt>")
    tracks = read(tmp_path, trk(lost + FIRST.replace("</trkpt>", "<fix>3d</fix></trkpt>")))
    np.testing.assert_array_equal(the(tracks).places, PLACES[:2])
    assert tracks.notes == ["1 point without a position (fix none) is passed over."]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "has no trk and no rte with points; it has 0 wpts"),
        (points(("1", "2", "3", ""), kind="wpt"), "it has 1 wpt"),
        (trk(FIRST, FIRST), "trk 1: the time 2024-03-01T12:00:00Z comes after 2024-03-01T12:00:05"),
        (trk(FIRST + FIRST), "trk 1: the time 2024-03-01T12:00:00Z comes after"),
        (
            trk(FIRST) + trk(points(("1", "2", "3", "00:00"), ("1", "3", "3", "00:00"))),
            "trk 2: the time 2024-03-01T12:00:00Z comes again",
        ),
        (
            trk(FIRST, points(("1", "2", "3", ""))),
            "trk 1, place 3: has no time, but other places have one",
        ),
        (
            trk(points(("1", "2", "3", "00:00"), ("1", "3", "", "00:01"))),
            "trk 1, place 2: has no height, but other places have one",
        ),
        (trk(FIRST.replace("00:05.5", "noon")), "trk 1's time must be a date and time, not '2024"),
        (trk(points(("1", "2", "3", ""))), "trk 1 has 1 point and no time"),
        (trk(FIRST.replace('lat="10"', "")), "trk 1, place 1: lat must be a number, not ''"),
        (trk(FIRST.replace('lon="20"', 'lon="1e999"')), "lon must be a number, not '1e999'"),
        (trk(FIRST.replace("41.5", "nan")), "trk 1, place 2: ele must be a number, not 'nan'"),
    ],
)
def test_a_broken_file_is_one_line(content: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        read(tmp_path, content)
    assert says in str(raised.value)
    assert str(raised.value).startswith(f"{tmp_path}/flight.gpx: ")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("gpx", "says"),
    [
        ("<a>%s", "is not XML"),
        ("<kml>%s</kml>", "is not GPX: its root is 'kml'"),
        (
            GPX.replace("GPX/1/1", "GPX/1/2"),
            "GPX of the namespace 'http://www.topografix.com/GPX/1/2",
        ),
        ("<gpx xmlns='urn:x'>%s</gpx>", "GPX of the namespace 'urn:x' is not read"),
        ('<!DOCTYPE x [<!ENTITY a "b">]><gpx>%s</gpx>', "has a document type, which GPX does not"),
    ],
)
def test_what_is_no_gpx_is_refused(gpx: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"^{tmp_path}/flight.gpx: {says}"):
        read(tmp_path, gpx=gpx)
