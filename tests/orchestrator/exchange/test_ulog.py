# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Flights in PX4's logs: times and places exactly as they are logged, and what is refused."""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ulog_file import message, written

from orchestrator.exchange import ulog
from orchestrator.exchange.tracks import Track, Tracks
from orchestrator.exchange.ulog import read_ulog
from testbed.core.errors import InputError

TIME = {"timestamp": "uint64_t"}
ESTIMATE = ("vehicle_global_position", {**TIME, "lat": "double", "lon": "double", "alt": "float"})
OLD_GPS = {**TIME, "lat": "int32_t", "lon": "int32_t", "alt": "int32_t", "fix_type": "uint8_t"}
NEW_GPS = {
    **TIME,
    "latitude_deg": "double",
    "longitude_deg": "double",
    "altitude_msl_m": "double",
    "fix_type": "uint8_t",
}
GNSS = {
    **TIME,
    "receiver.latitude": "double",
    "receiver.longitude": "double",
    "receiver.altitude_msl": "double",
    "receiver.fix_type": "uint8_t",
}
HOME = ("home_position", {**TIME, "lat": "double", "lon": "double", "alt": "float"})
ROWS = [
    (1_000_000, 47.5, 8.5, 500.5),
    (1_250_000, 47.5005, 8.5, 501.5),
    (3_000_000, 47.6, 8.6, 502),
]


def read(tmp_path: Path, *topics: Any, dropouts_ms: Sequence[int] = ()) -> Tracks:
    return read_ulog(written(tmp_path / "flight.ulg", topics, dropouts_ms))


def the(tracks: Tracks) -> Track:
    (found,) = tracks.tracks
    return found


def test_the_estimated_position_has_its_times_and_heights_above_the_sea(tmp_path: Path) -> None:
    gps = ("vehicle_gps_position", OLD_GPS, [(1_000_000, 10, 10, 10, 3)])
    tracks = read(tmp_path, gps, (*ESTIMATE, ROWS))
    np.testing.assert_array_equal(the(tracks).times_s, [1, 1.25, 3])
    np.testing.assert_array_equal(the(tracks).places, [row[1:] for row in ROWS])
    assert (the(tracks).name, the(tracks).above, tracks.origin) == ("", "sea", None)
    assert tracks.notes == []


@pytest.mark.parametrize(
    ("topic", "fields", "unit"),
    [
        ("vehicle_gps_position", OLD_GPS, (1e7, 1e7, 1e3)),
        ("vehicle_gps_position", NEW_GPS, (1, 1, 1)),
        ("sensor_gps", NEW_GPS, (1, 1, 1)),
        ("vehicle_gnss", GNSS, (1, 1, 1)),
    ],
)
def test_without_an_estimate_the_receiver_counts_while_it_has_a_fix(
    topic: str, fields: dict[str, str], unit: tuple[float, ...], tmp_path: Path
) -> None:
    places = [(47.5, 8.5, 500.5), (47.5000001, -8.25, 501.5)]
    whole = round if unit[0] > 1 else float
    logged = [[whole(v * u) for v, u in zip(place, unit, strict=True)] for place in places]
    lost = [(1, *logged[0], 0), (2, *logged[0], 2)]
    fixed = [(1_000_000 * (n + 1), *row, 3 + n) for n, row in enumerate(logged)]
    tracks = read(tmp_path, (topic, fields, lost + fixed))
    np.testing.assert_allclose(the(tracks).places, places, rtol=1e-15)
    np.testing.assert_array_equal(the(tracks).times_s, [1, 2])
    assert the(tracks).above == "sea"
    assert tracks.notes == [
        f"2 rows of {topic} without a valid position are passed over.",
        f"The positions are those of a satellite receiver ({topic}).",
    ]


def test_rows_that_are_marked_as_invalid_are_passed_over(tmp_path: Path) -> None:
    name, fields = ESTIMATE
    marked = (name, {**fields, "lat_lon_valid": "bool", "alt_valid": "bool"})
    flags = [(True, True), (False, True), (True, False)]
    rows = [(*row, *flag) for row, flag in zip(ROWS, flags, strict=True)]
    tracks = read(tmp_path, (*marked, [*rows, (4_000_000, np.nan, 8, 500, True, True)]))
    np.testing.assert_array_equal(the(tracks).places, [ROWS[0][1:]])
    assert tracks.notes == [
        "3 rows of vehicle_global_position without a valid position are passed over."
    ]
    gps = ("sensor_gps", NEW_GPS, [(5_000_000, 1, 2, 3, 3)])
    invalid = read(tmp_path, (*marked, [(*ROWS[0], False, True)]), gps)
    np.testing.assert_array_equal(the(invalid).places, [[1, 2, 3]])


def test_heights_count_from_the_home_when_the_log_first_has_one(tmp_path: Path) -> None:
    fields = {**HOME[1], "valid_alt": "bool"}
    homes = [(0, 0, 0, 9, False), (0, 47.5, 8.5, 480.5, True), (5, 47.5, 8.5, 480.9, True)]
    tracks = read(tmp_path, (*ESTIMATE, ROWS), (HOME[0], fields, homes))
    np.testing.assert_array_equal(the(tracks).places[:, 2], [20, 21, 21.5])
    np.testing.assert_array_equal(the(tracks).places[:, :2], [row[1:3] for row in ROWS])
    assert the(tracks).above == "ground"
    home = "Heights count from the home, 480.5 m above the sea (home_position)."
    assert tracks.notes == [home]
    later = [(0, 47.5, 8.5, 480.5), (5, 47.5, 8.5, 478)]
    changes = "The home's height changes by 2.5 m in the log."
    assert read(tmp_path, (*ESTIMATE, ROWS), (*HOME, later)).notes == [changes, home]
    without = [(0, 47.5, 8.5, 480.5, False)]
    assert the(read(tmp_path, (*ESTIMATE, ROWS), (HOME[0], fields, without))).above == "sea"


def test_of_rows_with_the_same_time_the_first_counts(tmp_path: Path) -> None:
    rows = [ROWS[0], (1_000_000, 1, 1, 1), (1_000_000, 1, 1, 1), *ROWS[1:]]
    tracks = read(tmp_path, (*ESTIMATE, rows))
    np.testing.assert_array_equal(the(tracks).places, [row[1:] for row in ROWS])
    assert tracks.notes == [
        "2 rows of vehicle_global_position with the time of another are passed over."
    ]


def test_a_time_that_falls_is_refused_by_its_name(tmp_path: Path) -> None:
    says = "vehicle_global_position: the time 1000000 µs comes after 1250000 µs"
    with pytest.raises(InputError, match=f"^{tmp_path}/flight.ulg: {says}"):
        read(tmp_path, (*ESTIMATE, [ROWS[1], ROWS[0]]))


def test_instances_and_gaps_are_noted(tmp_path: Path) -> None:
    other = (*ESTIMATE, [(1, 2, 3, 4)])
    tracks = read(tmp_path, (*ESTIMATE, ROWS), other, dropouts_ms=[20, 1500])
    np.testing.assert_array_equal(the(tracks).places, [row[1:] for row in ROWS])
    assert tracks.notes == [
        "The log has 2 instances of vehicle_global_position; the first is read.",
        "The log has 2 gaps of up to 1.5 s.",
    ]


def test_data_that_was_appended_counts_and_a_cut_is_noted(tmp_path: Path) -> None:
    path = written(tmp_path / "flight.ulg", [(*ESTIMATE, ROWS)])
    row = message("D", b"\0\0" + struct.pack("<Qddf", 4_000_000, 48, 9, 503))
    sync = message("S", bytes.fromhex("2f731320250cbb12"))
    data = path.read_bytes() + sync
    path.write_bytes(data + row[:-1])
    tracks = read_ulog(path)
    np.testing.assert_array_equal(the(tracks).places, [each[1:] for each in ROWS])
    assert tracks.notes == ["The log ends within a message."]
    offset = struct.pack("<Q", len(data) + 5)
    path.write_bytes(data[:27] + b"\1" + data[28:35] + offset + data[43:] + row[:5] + row)
    tracks = read_ulog(path)
    np.testing.assert_array_equal(the(tracks).places, [*(each[1:] for each in ROWS), [48, 9, 503]])
    assert tracks.notes == []


def test_fields_in_types_and_padding_have_their_places(tmp_path: Path) -> None:
    name, fields = ESTIMATE
    path = written(tmp_path / "flight.ulg", [(name, fields, [])])
    formats = message("F", b"pair:uint8_t[3] a;int16_t b;") + message(
        "F",
        f"{name}:pair[2] c;uint64_t timestamp;uint8_t _padding0;double lat;double lon;"
        "float alt;uint8_t[4] _padding1;".encode(),
    )
    subscribed = message("A", b"\0\7\0" + name.encode())
    place = struct.pack("<Q1x2df", 1_000_000, 48, 9, 503)
    rows = [message("D", b"\7\0" + bytes(10) + place + end) for end in (b"", bytes(4))]
    for row in rows:
        path.write_bytes(path.read_bytes()[:59] + formats + subscribed + row)
        np.testing.assert_array_equal(the(read_ulog(path)).places, [[48, 9, 503]])


def test_a_log_without_positions_is_refused_by_its_topics(tmp_path: Path) -> None:
    names = [f"topic_{letter}" for letter in "abcdefghijkl"]
    with pytest.raises(InputError) as raised:
        read(tmp_path, *((name, TIME, [(1,)]) for name in names))
    assert ", ".join(names[:10]) + " and 2 more" in str(raised.value)
    with pytest.raises(InputError, match=r"topic_j$"):
        read(tmp_path, *((name, TIME, [(1,)]) for name in names[:10]))
    with pytest.raises(InputError, match="its topics are none"):
        read(tmp_path)
    lost = ("sensor_gps", NEW_GPS, [(1, 1, 2, 3, 2)])
    with pytest.raises(InputError, match=r"has no valid position: .*; its topics are sensor_gps"):
        read(tmp_path, lost)


def test_what_is_no_log_or_a_damaged_one_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "flight.ulg", [(*ESTIMATE, ROWS)])
    data = path.read_bytes()
    gps = message("A", b"\0\x05\0sensor_gps")
    for broken, says in (
        (b"", "is not a ULog file of version 0 or 1"),
        (b"PK" + data, "is not a ULog file of version 0 or 1"),
        (data[:7] + b"\2" + data[8:], "is not a ULog file of version 0 or 1"),
        (data[:57] + data[60:], "is a damaged ULog file"),
        (data[:27] + b"\2" + data[28:], "it has parts that are not known"),
        (data[:28] + b"\1" + data[29:], "it has parts that are not known"),
        (b"PK" + data[2:], "is not a ULog file of version 0 or 1"),
        (data + message("[", b""), "is no kind of message"),
        (data[:35] + b"\1" + data[36:], "appended data is not where it should be"),
        (data + message("D", b"\x63\0ab"), "is a damaged ULog file"),
        (data + message("D", b"\0\0ab"), "a row of vehicle_global_position has 2 bytes"),
        (data + message("S", bytes(8)), "a mark is wrong"),
        (data + message("\0", b""), "is no kind of message"),
        (data + message("A", b"\0\5\0a\n"), "is no name of a topic"),
        (data + gps, "is a damaged ULog file"),
        (data + message("F", b"sensor_gps:sensor_gps a;sensor_gps b") + gps, "contains itself"),
        (data + message("F", b"sensor_gps:a[60000] b") + message("F", b"a:a[9] c") + gps, "itself"),
        (
            data + message("F", b"sensor_gps:a[60000] b") + message("F", b"a:char[60000] c") + gps,
            "too many fields",
        ),
    ):
        path.write_bytes(broken)
        with pytest.raises(InputError, match=says) as raised:
            read_ulog(path)
        assert "\n" not in str(raised.value)
    path.write_bytes(data)
    monkeypatch.setattr(ulog, "MOST_BYTES", len(data) - 1)
    with pytest.raises(InputError, match="cannot be read"):
        read_ulog(path)
