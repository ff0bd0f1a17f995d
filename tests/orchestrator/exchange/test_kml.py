# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Flights in KML: times, places and names exactly as the file has them, and what is refused."""

import zipfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from orchestrator.exchange import files
from orchestrator.exchange.kml import read_kml
from orchestrator.exchange.tracks import Track, Tracks
from testbed.core.errors import InputError

KML = """<?xml version="1.0" encoding="UTF-8"?><kml xmlns="http://www.opengis.net/kml/2.2"
 xmlns:gx="http://www.google.com/kml/ext/2.2"><Document>%s</Document></kml>"""
NOON_S = 1_709_294_400.0
"""2024-03-01T12:00:00Z in s since 1970."""


def read(tmp_path: Path, *contents: str, kml: str = KML) -> Tracks:
    path = tmp_path / "flight.kml"
    path.write_text(kml % "".join(contents))
    return read_kml(path)


def mark(content: str, name: str = "") -> str:
    return f"<Placemark><name>{name}</name>{content}</Placemark>"


def line(*places: str, mode: str = "relativeToGround") -> str:
    coordinates = " ".join(places)
    return (
        f"<LineString><altitudeMode>{mode}</altitudeMode>"
        f"<coordinates>{coordinates}</coordinates></LineString>"
    )


def track(*rows: str, mode: str = "absolute", gx: str = "gx:") -> str:
    """A track from its rows: minutes and seconds after twelve, and a place."""
    times, places = zip(*(row.split(" ", 1) for row in rows), strict=True)
    return (
        f"<{gx}Track>"
        + (f"<altitudeMode>{mode}</altitudeMode>" if mode else "")
        + "".join(f"<when>2024-03-01T12:{time}Z</when>" for time in times)
        + "".join(f"<{gx}coord>{place.strip('-')}</{gx}coord>" for place in places)
        + f"</{gx}Track>"
    )


def point(time: str, place: str, mode: str = "absolute") -> str:
    stamp = f"<TimeStamp><when>2024-03-01T12:{time}Z</when></TimeStamp>" if time else ""
    return mark(
        f"{stamp}<Point><altitudeMode>{mode}</altitudeMode>"
        f"<coordinates>{place}</coordinates></Point>"
    )


def multi(*tracks: str, interpolate: str = "") -> str:
    return mark(f"<gx:MultiTrack>{interpolate}{''.join(tracks)}</gx:MultiTrack>")


def the(tracks: Tracks) -> Track:
    (found,) = tracks.tracks
    return found


NORTH = ["00:00 20 10.0000 40", "00:05 20 10.0005 40", "00:10 20 10.0010 40"]
LATER = ["01:00 20 10.0010 40", "01:05 20 10.0015 40", "01:10 20 10.0020 40"]
PLACES = [[10.0, 20.0, 40.0], [10.0005, 20.0, 40.0], [10.001, 20.0, 40.0]]
FURTHER = [[10.001, 20.0, 40.0], [10.0015, 20.0, 40.0], [10.002, 20.0, 40.0]]


# --- tracks --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "above"),
    [
        ("absolute", "sea"),
        ("relativeToGround", "ground"),
        ("", "unknown"),
        ("clampToGround", "unknown"),
        ("relativeToSeaFloor", "unknown"),
        ("clampToSeaFloor", "unknown"),
    ],
)
def test_a_track_has_its_times_and_places_and_the_level_of_its_heights(
    mode: str, above: str, tmp_path: Path
) -> None:
    tracks = read(tmp_path, mark(track(*NORTH, mode=mode), "Hexa"))
    found = the(tracks)
    np.testing.assert_array_equal(found.places, PLACES)
    np.testing.assert_array_equal(found.times_s, NOON_S + np.array([0, 5, 10]))
    assert (found.name, found.above, tracks.origin, tracks.notes) == ("Hexa", above, None, [])
    lines = read(tmp_path, mark(line("20,10,40", "20,10.001,40", mode=mode)))
    assert the(lines).above == above


def test_a_mode_of_google_counts_and_two_that_differ_say_nothing(tmp_path: Path) -> None:
    of_google = track(*NORTH).replace("altitudeMode", "gx:altitudeMode")
    assert the(read(tmp_path, mark(of_google))).above == "sea"
    both = "<gx:altitudeMode>relativeToSeaFloor</gx:altitudeMode><when>"
    assert the(read(tmp_path, mark(track(*NORTH).replace("<when>", both, 1)))).above == "unknown"
    with pytest.raises(InputError, match=r"Track 1: altitudeMode must not be 'high'"):
        read(tmp_path, mark(track(*NORTH, mode="high")))


@pytest.mark.parametrize(
    "namespace",
    [
        "http://www.opengis.net/kml/2.2",
        "http://www.opengis.net/kml/2.3",
        "http://earth.google.com/kml/2.0",
        "http://earth.google.com/kml/2.1",
        "http://earth.google.com/kml/2.2",
        "",
    ],
)
def test_kml_of_all_namespaces_is_read(namespace: str, tmp_path: Path) -> None:
    kml = KML.replace("http://www.opengis.net/kml/2.2", namespace)
    for content in (line("20,10,40", "20,10.0005,40", "20,10.001,40"), track(*NORTH, gx="")):
        np.testing.assert_array_equal(the(read(tmp_path, mark(content), kml=kml)).places, PLACES)


@pytest.mark.parametrize(
    "namespace",
    ["http://www.opengis.net/kml/2.1", "http://earth.google.com/kml/2.3", "http://kml.example/2.2"],
)
def test_kml_of_another_namespace_is_refused_by_its_name(namespace: str, tmp_path: Path) -> None:
    kml = KML.replace("http://www.opengis.net/kml/2.2", namespace)
    with pytest.raises(InputError, match=f"^{tmp_path}/.*: KML of the namespace '{namespace}' is"):
        read(tmp_path, mark(track(*NORTH)), kml=kml)


def test_a_geometry_need_not_be_in_a_placemark(tmp_path: Path) -> None:
    assert the(read(tmp_path, line("20,10,40", "20,11,40"))).name == ""


def test_an_empty_place_is_passed_over_with_its_time(tmp_path: Path) -> None:
    one = mark(track(NORTH[0], "00:05 -", NORTH[2]))
    assert read(tmp_path, one, one).notes[0] == "2 times of tracks without a place are passed over."
    tracks = read(tmp_path, one)
    np.testing.assert_array_equal(the(tracks).places, [PLACES[0], PLACES[2]])
    np.testing.assert_array_equal(the(tracks).times_s, NOON_S + np.array([0, 10]))
    assert tracks.notes == ["1 time of tracks without a place is passed over."]


def test_the_order_of_times_and_places_and_other_arrays_does_not_matter(tmp_path: Path) -> None:
    rows = "".join(
        f"<when> 2024-03-01T14:00:{second:02}+02:00\n</when><gx:coord>{place}</gx:coord>"
        for second, place in ((0, "20 10 40"), (5, "20 10.0005 40"), (10, "20 10.001 40"))
    )
    data = "<ExtendedData><SchemaData><gx:SimpleArrayData><gx:value>1</gx:value>" + (
        "</gx:SimpleArrayData></SchemaData></ExtendedData>"
    )
    found = the(read(tmp_path, mark(f"<gx:Track>{rows}{data}</gx:Track>")))
    np.testing.assert_array_equal(found.places, PLACES)
    np.testing.assert_array_equal(found.times_s, NOON_S + np.array([0, 5, 10]))


def test_times_of_all_centuries_are_read(tmp_path: Path) -> None:
    text = track("00:00 20 10 40", "00:05 20 11 40")
    text = text.replace("2024-03-01T12:00:00Z", "0001-01-01T00:00:00Z")
    np.testing.assert_array_equal(
        the(read(tmp_path, mark(text))).times_s, [-62135596800, NOON_S + 5]
    )


def test_heights_that_are_not_given_are_none(tmp_path: Path) -> None:
    for content in (track("00:00 20 10", "00:05 20 10.5"), line("20,10", "20,10.5,")):
        found = the(read(tmp_path, mark(content)))
        np.testing.assert_array_equal(found.places, [[10, 20, np.nan], [10.5, 20, np.nan]])
        assert found.above == "unknown"


def test_an_offset_of_heights_is_added(tmp_path: Path) -> None:
    offset = "<gx:altitudeOffset>-5.5</gx:altitudeOffset><coordinates>"
    content = line("20,10,40", "20,10.001,41").replace("<coordinates>", offset)
    np.testing.assert_array_equal(the(read(tmp_path, mark(content))).places[:, 2], [34.5, 35.5])


# --- several tracks ------------------------------------------------------------------------------


def test_tracks_of_a_multitrack_are_one_flight(tmp_path: Path) -> None:
    flown = "<gx:interpolate>1</gx:interpolate>"
    tracks = read(tmp_path, multi(track(*NORTH), track(*LATER), interpolate=flown))
    np.testing.assert_array_equal(the(tracks).places, PLACES + FURTHER)
    times_s = NOON_S + np.array([0, 5, 10, 60, 65, 70])
    np.testing.assert_array_equal(the(tracks).times_s, times_s)
    assert tracks.notes == []
    for no in ("", "<gx:interpolate>0</gx:interpolate>"):
        tracks = read(tmp_path, multi(track(*NORTH), track(*LATER), interpolate=no))
        np.testing.assert_array_equal(the(tracks).times_s, times_s)
        assert tracks.notes == [
            "2 tracks of a MultiTrack are one flight, with up to 50 s between them, for which the "
            "file has no places."
        ]


def test_the_mode_of_a_multitrack_counts_where_its_tracks_have_none(tmp_path: Path) -> None:
    mode = "<altitudeMode>relativeToGround</altitudeMode>"
    bare = [track(*rows, mode="") for rows in (NORTH, LATER)]
    assert the(read(tmp_path, multi(*bare, interpolate=mode))).above == "ground"
    with pytest.raises(InputError, match="a MultiTrack: its tracks count heights from different"):
        read(tmp_path, multi(track(*NORTH), bare[1], interpolate=mode))


def test_a_track_that_begins_where_the_last_one_ended_shares_its_place(tmp_path: Path) -> None:
    on = ["00:10 20 10.0010 40", "00:15 20 10.0015 40"]
    tracks = read(tmp_path, multi(track(*NORTH), track(*on)))
    assert "with up to 0 s between them" in tracks.notes[0]
    np.testing.assert_array_equal(the(tracks).times_s, NOON_S + np.array([0, 5, 10, 15]))
    np.testing.assert_array_equal(the(tracks).places, [*PLACES, FURTHER[1]])


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (["00:10 20 10.5 40"], "a MultiTrack: the time 2024-03-01T12:00:10Z comes again"),
        (NORTH, "the time 2024-03-01T12:00:00Z comes after 2024-03-01T12:00:10Z"),
    ],
)
def test_tracks_of_a_multitrack_must_not_overlap(
    second: list[str], says: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=says):
        read(tmp_path, multi(track(*NORTH), track(*second)))


def test_names_are_those_that_only_one_uav_has(tmp_path: Path) -> None:
    contents = [mark(track(*NORTH), name) for name in ("A", "B", "B", "")]
    tracks = read(tmp_path, *contents)
    assert [found.name for found in tracks.tracks] == ["A", "", "", ""]
    assert tracks.notes == ["4 separate paths are one UAV each."]


# --- lines ---------------------------------------------------------------------------------------


def test_lines_that_follow_each_other_are_one_flight_without_times(tmp_path: Path) -> None:
    ends = ["20,10,40", "20,10.001,40", "20,10.002,40", "20,10.003,40"]
    lines = [mark(line(*pair), "leg") for pair in pairwise(ends)]
    tracks = read(tmp_path, *lines)
    latitudes = [10, 10.001, 10.002, 10.003]
    np.testing.assert_array_equal(the(tracks).places, [[at, 20, 40] for at in latitudes])
    assert the(tracks).times_s is None
    assert the(tracks).name == "leg"
    assert tracks.notes == ["3 LineStrings that follow each other are one flight."]
    assert the(read(tmp_path, lines[0], lines[1].replace("leg", "other"))).name == ""


@pytest.mark.parametrize(
    ("begins", "together"),
    [
        ("20.0000004,10.001,40", True),  # 4 cm to the east
        ("20.000001,10.001,40", False),  # 11 cm
        ("20,10.001,40.2", False),
    ],
)
def test_centimetres_make_no_gap_between_lines(begins: str, together: bool, tmp_path: Path) -> None:
    contents = [line("20,10,40", "20,10.001,40"), line(begins, "20,10.002,40")]
    tracks = read(tmp_path, *map(mark, contents))
    assert len(tracks.tracks) == 2 - together
    assert len(tracks.tracks[0].places) == 2 + together


def test_lines_without_heights_are_joined_among_themselves(tmp_path: Path) -> None:
    flat, on, high = line("20,10", "20,10.001"), line("20,10.001", "20,10.002"), "20,10.002,5"
    tracks = read(tmp_path, mark(flat), mark(on), mark(line(high, "20,10.003,5")))
    np.testing.assert_array_equal(tracks.tracks[0].places[:, 0], [10, 10.001, 10.002])
    np.testing.assert_array_equal(tracks.tracks[1].places[:, 0], [10.002, 10.003])


def test_lines_apart_and_loops_from_one_place_are_uavs(tmp_path: Path) -> None:
    home, loops = "20,10,40", ("20,10.001,40", "20.001,10,40")
    for contents in (
        [line(home, loops[0]), line("21,10,40", "21,10.001,40")],
        [line(home, loops[0], home), line(home, loops[1], home)],
        [line(home, loops[0]), line(loops[0], home, mode="absolute")],
        [line(home, loops[0], home), line(home, loops[1])],
        [line(loops[1], home), line(home, loops[0], home)],
    ):
        tracks = read(tmp_path, *map(mark, contents))
        assert len(tracks.tracks) == 2
        assert tracks.notes == ["2 separate paths are one UAV each."]


def test_lines_next_to_a_track_are_passed_over(tmp_path: Path) -> None:
    drawn = mark(line("20,10,40", "20,10.001,40"))
    tracks = read(tmp_path, drawn, mark(track(*NORTH)), drawn)
    np.testing.assert_array_equal(the(tracks).places, PLACES)
    np.testing.assert_array_equal(the(tracks).times_s, NOON_S + np.array([0, 5, 10]))
    assert tracks.notes == ["2 LineStrings next to tracks are passed over."]


def test_times_of_lines_are_not_used_without_a_word(tmp_path: Path) -> None:
    span = "<TimeSpan><begin>2024-03-01</begin><end>2024-03-02</end></TimeSpan>"
    tracks = read(tmp_path, mark(span + line("20,10,40", "20,10.001,40")))
    assert tracks.notes == ["The times of LineStrings (TimeStamp, TimeSpan) are not used."]


# --- points --------------------------------------------------------------------------------------


def test_points_with_times_are_a_flight_in_each_folder(tmp_path: Path) -> None:
    folders = [
        f"<Folder><name>{name}</name>{''.join(points)}</Folder>"
        for name, points in (
            ("C", [point("00:04", "30,10,40")]),
            ("A", [point("00:00", "20,10,40"), point("", "0,0"), point("00:09", "20,11,41")]),
            ("B", [point("00:04", "30,10,40"), point("00:05", "30,11,41")]),
        )
    ]
    tracks = read(tmp_path, *folders)
    assert [found.name for found in tracks.tracks] == ["A", "B"]
    np.testing.assert_array_equal(tracks.tracks[0].places, [[10, 20, 40], [11, 20, 41]])
    np.testing.assert_array_equal(tracks.tracks[0].times_s, NOON_S + np.array([0, 9]))
    np.testing.assert_array_equal(tracks.tracks[1].times_s, NOON_S + np.array([4, 5]))
    assert {found.above for found in tracks.tracks} == {"sea"}
    assert tracks.notes == [
        "2 Points outside the flights are passed over.",
        "2 separate paths are one UAV each.",
    ]


def test_points_in_a_document_have_its_name(tmp_path: Path) -> None:
    points = [point("00:00", "20,10,40"), point("00:09", "20,11,41")]
    assert the(read(tmp_path, "<name>Log</name>", *points)).name == "Log"


def test_points_in_folders_of_their_own_are_no_flight(tmp_path: Path) -> None:
    folders = [f"<Folder>{point(*each)}</Folder>" for each in (("00:00", "1,1"), ("00:09", "1,2"))]
    assert the(read(tmp_path, mark(line("1,1", "1,2")), *folders)).times_s is None
    with pytest.raises(InputError, match=r"has no path: .*; it has 2 Points"):
        read(tmp_path, *folders)


def test_a_span_is_the_time_of_its_begin(tmp_path: Path) -> None:
    points = [point("00:00", "20,10,40"), point("00:09", "20,11,41")]
    spans = [text.replace("TimeStamp", "TimeSpan").replace("when", "begin") for text in points]
    np.testing.assert_array_equal(the(read(tmp_path, *spans)).times_s, NOON_S + np.array([0, 9]))


def test_points_with_times_count_more_than_a_line_through_them(tmp_path: Path) -> None:
    points = [point("00:00", "20,10,40"), point("00:09", "20,11,41")]
    tracks = read(tmp_path, mark(line("20,10,40", "20,11,41")), *points, point("", "1,1"))
    np.testing.assert_array_equal(the(tracks).times_s, NOON_S + np.array([0, 9]))
    assert tracks.notes == [
        "1 Point outside the flights is passed over.",
        "1 LineString through points with times is passed over.",
    ]
    tracks = read(tmp_path, mark(line("20,10,40", "20,12,41")), *points)
    assert the(tracks).times_s is None
    assert tracks.notes == ["2 Points with a time next to paths are passed over."]


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (point("00:00", "20,11,41"), "points with times 1: the time 2024-03-01T12:00:00Z comes a"),
        (point("00:05", "20"), r"points with times 1, place 2: '20' is not a place"),
        (point("00:05", "20,11"), "points with times 1, place 2: has no height"),
        (point("00:05", "20,11,1", mode="relativeToGround"), "heights from different levels"),
    ],
)
def test_points_with_times_are_checked(second: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=says):
        read(tmp_path, point("00:00", "20,10,40"), second)


# --- what is not a path --------------------------------------------------------------------------


def test_what_is_no_path_is_harmless_next_to_one(tmp_path: Path) -> None:
    ring = "<LinearRing><coordinates>1,1 2,2 3,3 1,1</coordinates></LinearRing>"
    others = [
        mark(f"<Polygon><outerBoundaryIs>{ring}</outerBoundaryIs></Polygon>"),
        point("", "1,1"),
        "<GroundOverlay/><ScreenOverlay/><Style/>",
    ]
    tracks = read(tmp_path, *others, mark(track(*NORTH)), '<a:b xmlns:a="urn:x"><a:Track/></a:b>')
    assert len(tracks.tracks) == 1
    assert tracks.notes == []
    tracks = read(tmp_path, mark(track(*NORTH)), "<NetworkLink/>")
    assert tracks.notes == ["1 NetworkLink to other files is passed over."]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "nor points with times"),
        (mark("<Polygon/>") * 2 + point("", "1,1"), "; it has 1 Point, 2 Polygons"),
        (point("00:00", "1,1,1"), "; it has 1 Point"),
        (mark(line("20,10,40")), "LineString 1 has 1 point; a path has two or more"),
        (mark("<LineString/>"), "LineString 1 has 0 points"),
        (mark(line("20,10,40", "here")), "LineString 1, point 2: 'here' is not a place"),
        (mark(line("20,10,40", "20,10,40,5")), "point 2: '20,10,40,5' is not a place"),
        (mark(line("20,10,40", "20,1_0,40")), "point 2: '20,1_0,40' is not a place"),
        (mark(line("20,10,40", "nan,10,40")), "point 2: 'nan,10,40' is not a place"),
        (mark(line("20,10,40", "20,10,1e999")), "point 2: '20,10,1e999' is not a place"),
        (mark(line("20,10,40", "20,10")), "LineString 1, place 2: has no height, but other"),
        (
            mark(track("00:00 20 10", "00:00.5 20 11", "00:00.5 20 12")),
            "Track 1: the time 2024-03-01T12:00:00.5Z comes again",
        ),
        (mark("<gx:Track/>"), "Track 1 has 0 times and 0 places"),
        (mark(track("00:00 -")), "Track 1 has no places"),
        (
            mark(track(*NORTH).replace("<when>", "<who>", 1).replace("</when>", "</who>", 1)),
            "Track 1 has 2 times and 3 places",
        ),
        (
            mark(track("00:00 20 10", "00:99 20 10")),
            "must be a date and time, not '2024-03-01T12:00",
        ),
        (
            mark(track(*NORTH)) + mark(track(NORTH[1], NORTH[1])),
            "Track 2: the time 2024-03-01T12:00:05Z comes again",
        ),
        (
            mark(track(NORTH[1], NORTH[0])),
            "Track 1: the time 2024-03-01T12:00:00Z comes after 2024-03-01T12:00:05Z",
        ),
        (
            mark(
                line("20,10,40", "20,10,41").replace(
                    "<coordinates>", "<gx:altitudeOffset>up</gx:altitudeOffset><coordinates>"
                )
            ),
            "altitudeOffset must be a number, not 'up'",
        ),
    ],
)
def test_a_broken_file_is_one_line(content: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        read(tmp_path, content)
    assert says in str(raised.value)
    assert str(raised.value).startswith(f"{tmp_path}/flight.kml: ")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("kml", "says"),
    [
        ("<a>%s", "is not XML"),
        ("<a>%s</a>", "is not KML: its root is 'a'"),
        ('<!DOCTYPE x [<!ENTITY a "b">]><kml>%s</kml>', "has a document type"),
    ],
)
def test_what_is_no_kml_is_refused(kml: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=says):
        read(tmp_path, kml=kml)


# --- KMZ -----------------------------------------------------------------------------------------


def packed(tmp_path: Path, **contents: str) -> Path:
    path = tmp_path / "flight.kmz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in contents.items():
            archive.writestr(name.replace("_", "."), text)
    return path


def test_a_kmz_file_is_the_kml_file_in_it(tmp_path: Path) -> None:
    text = KML % mark(track(*NORTH))
    found = the(read_kml(packed(tmp_path, files_png="", path_kml=text)))
    np.testing.assert_array_equal(found.places, PLACES)
    several = read_kml(packed(tmp_path, a_kml=KML % "", doc_kml=text))
    np.testing.assert_array_equal(the(several).places, PLACES)
    assert several.notes == ["doc.kml is read; the file has 1 other .kml file."]


def test_a_kmz_file_with_another_content_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=r"is a zip file without a \.kml file"):
        read_kml(packed(tmp_path, a_png=""))
    with pytest.raises(InputError, match=r"has 2 \.kml files, but no doc\.kml"):
        read_kml(packed(tmp_path, a_kml="", b_kml=""))
    (tmp_path / "cut.kmz").write_bytes(packed(tmp_path, a_kml="<kml/>").read_bytes()[:-30])
    with pytest.raises(InputError, match="is not a KMZ file"):
        read_kml(tmp_path / "cut.kmz")
    monkeypatch.setattr(files, "MOST_BYTES", 1000)
    with pytest.raises(InputError, match=r"'a\.kml' is longer than 1,000 bytes"):
        read_kml(packed(tmp_path, a_kml=" " * 1001))


def test_a_zip_file_that_lies_about_its_size_is_not_unpacked_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 1000)
    data = packed(tmp_path, a_kml=" " * 100_000).read_bytes()
    (tmp_path / "liar.kmz").write_bytes(data.replace((100_000).to_bytes(4, "little"), b"\5\0\0\0"))
    with pytest.raises(InputError, match=r"is not a KMZ file|is longer"):
        read_kml(tmp_path / "liar.kmz")
    assert len(data) < 1000
