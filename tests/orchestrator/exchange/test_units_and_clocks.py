# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Units, clocks, windows and rows of foreign files: read as they are meant, or refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ulog_file import written

from ns3_scenarios.trace import ChannelTrace, RateTrace, TraceError, load_trace
from orchestrator.exchange import csv_files
from orchestrator.exchange.importing import Imported, Options, imported
from testbed.core.errors import InputError


def of(tmp_path: Path, kind: str, *texts: str, **options: Any) -> Imported:
    """The import of files with these texts, named a, b, …"""
    paths = [tmp_path / f"{letter}.{kind}" for letter, _ in zip("abcd", texts, strict=False)]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    return imported(kind, paths, Options(**options))


def table(tmp_path: Path, *texts: str, **options: Any) -> Imported:
    return of(tmp_path, "csv", *texts, **options)


def refused(tmp_path: Path, kind: str, *texts: str, **options: Any) -> str:
    with pytest.raises(InputError) as raised:
        of(tmp_path, kind, *texts, **options)
    assert "\n" not in str(raised.value)
    return str(raised.value)


# --- units in the names of columns ---------------------------------------------------------------

TIMES = {
    "s": ("time_s", "Time (s)", "elapsed_sec", "Seconds", "t [s]", "time in seconds"),
    "ms": ("timeMS", "TimeMs", "time_ms", "ts(ms)", "TIME_MS", "Time / ms", "GPS_ms_of_week"),
    "us": ("timeUS", "time (µs)", "timestamp_microseconds", "t_usec"),
    "ns": ("timestampNs", "timestamp [ns]", "time.ns"),
    "min": ("time_min", "Time (min)", "time minutes elapsed"),
    "h": ("hours", "Time_hr", "t_h"),
    "d": ("days", "t [d]"),
    "": ("t", "timestamp", "time_m", "v (m/s)", "s_per_step", "1"),
}
LENGTHS = {
    "m": ("alt_m", "height(m)", "altitude(meters)", "Metres above ground"),
    "ft": ("alt_ft", "Altitude in feet MSL", "height_above_takeoff(feet)", "altFt"),
    "inch": ("x_inches", "x [in]"),
    "mm": ("rel_alt_mm",),
    "km": ("alt_km",),
    "": ("alt", "Altitude", "climb (m/s)", "area m²", "height in use", "miles"),
}
ANGLES = {
    "deg": ("latitude_deg", "Latitude (°)", "lat [degrees]"),
    "rad": ("lat_rad", "latRad", "Latitude (radians)"),
    "deg1e7": ("latE7", "lat_1e7", "lat_e7"),
    "": ("lat", "rate (deg/s)"),
}
RATES = {
    "bit/s": ("throughput_bps", "bits_per_second", "rate (b/s)"),
    "kbit/s": ("Kbps", "goodput [kbit/s]", "kilobits/s", "rateKbps", "Kb/s"),
    "Mbit/s": ("Mbps", "Throughput (Mb/s)", "DL Mbit per second", "rate_mbps", "mbit/s"),
    "B/s": ("rx_bytes_per_s", "Bps", "octets/sec"),
    "kB/s": ("rate_KBps", "KB/s", "kbytes/s"),
    "MB/s": ("Throughput (MB/s)", "MBps", "megabytes per second"),
    "GB/s": ("GB/s",),
    "MiB/s": ("rate MiB/s",),
    "": ("DL_bitrate", "MBPS", "bytes_per_min", "bit/ms", "Mbit"),
}


@pytest.mark.parametrize(
    ("ours", "units"),
    [("time", TIMES), ("height", LENGTHS), ("latitude", ANGLES), ("rate_bps", RATES)],
)
def test_the_name_of_a_column_states_its_unit(ours: str, units: dict[str, tuple[str, ...]]) -> None:
    for unit, names in units.items():
        for name in names:
            found = csv_files.stated_units(name, csv_files.UNITS[ours])
            assert found == ([unit] if unit else []), name


FAST = "".join(f"{n},{2e5 + n},{48 + n * 1e-6},11,50\n" for n in range(20))
HEAD = "time,rate,lat,lon,alt\n"


@pytest.mark.parametrize(
    ("name", "columns", "says"),
    [
        ("t", {"time": "t"}, "column 't' does not state its unit; give it as time=t:UNIT with one"),
        ("hours", {"time": "hours"}, "is column 'hours' in h? give its unit: time=hours:h or time"),
        ("DL_bitrate", {"rate_bps": "DL_bitrate"}, "with one of bit/s, kbit/s, Mbit/s"),
        ("kB/s", {"rate_bps": "kB/s"}, "is column 'kB/s' in kB/s? give its unit: rate_bps=kB/s:kB"),
        ("MB/s", {"rate_bps": "*"}, "is column 'MB/s' in MB/s? give its unit: rate_bps=*:MB/s or"),
        ("1", {"time": "1"}, "column '1' does not state its unit"),
    ],
)
def test_a_column_of_another_name_needs_its_unit(
    name: str, columns: dict[str, str], says: str, tmp_path: Path
) -> None:
    time = "time" if "rate_bps" in columns else name
    rate = name if "rate_bps" in columns else "rate_bps"
    text = f"{time},{rate}\n0,200000\n1,300000\n2,200000\n"
    assert says in refused(tmp_path, "csv", text, columns=columns)


@pytest.mark.parametrize(
    ("head", "columns", "first_bps", "end_s"),
    [
        ("time_min,rate_bps", {"time": "time_min:min"}, 2e5, 180),
        ("time,B/s", {"rate_bps": "B/s:B/s"}, 1.6e6, 3),
        ("time,MiB/s", {"rate_bps": "MiB/s:KiB/s"}, 2e5 * 8192, 3),
        ("Time,Rate bps", {"time": "Time", "rate_bps": "Rate bps"}, 2e5, 3),
        ("t_s,RATE_BPS", {"time": "t_s", "rate_bps": "RATE_BPS"}, 2e5, 3),
        ("time,rate_bps_1", {"rate_bps": "rate_bps_*"}, 2e5, 3),
    ],
)
def test_a_unit_is_the_given_one_or_that_of_the_name(
    head: str, columns: dict[str, str], first_bps: float, end_s: float, tmp_path: Path
) -> None:
    text = f"{head}\n0,200000\n1,300000\n2,200000\n"
    found = table(tmp_path, text, columns=columns, slot_s=1.0, longest_gap_s=100.0)
    assert isinstance(found.trace, RateTrace)
    assert found.trace.uplink_bps[0, 0] == first_bps
    assert found.trace.slots * found.trace.slot_s == pytest.approx(end_s, abs=60)


@pytest.mark.parametrize(
    ("ours", "given", "meant"),
    [
        *(("rate_bps", "mb/s", "Mbit/s"), ("rate_bps", "KBps", "kB/s"), ("time", "seconds", "s")),
        *(("time", "minutes", "min"), ("height", "feet", "ft"), ("latitude", "degrees", "deg")),
    ],
)
def test_the_proposed_unit_is_the_meant_one(
    ours: str, given: str, meant: str, tmp_path: Path
) -> None:
    says = refused(tmp_path, "csv", "a,b\n0,1\n", columns={ours: f"a:{given}"})
    assert f"{ours}: unit {given!r} is not one of " in says
    assert says.endswith(f"; did you mean {meant!r}?")


def test_angles_in_radians_and_heights_in_feet(tmp_path: Path) -> None:
    text = "time,lat_rad,lon_rad,alt_ft\n0,0.8377580410,0.1919862177,100\n"
    text += "1,0.8377597863,0.1919862177,200\n"
    columns = {"latitude": "lat_rad:rad", "longitude": "lon_rad:rad", "height": "alt_ft:ft"}
    found = table(tmp_path, text, columns=columns, slot_s=1.0).trace.position_m
    assert found is not None
    np.testing.assert_allclose(found[0, :, 2], [30.48, 60.96])
    np.testing.assert_allclose(found[0, 1, 1], 11.12, atol=0.02)


# --- times ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "says"),
    [
        ([n * 33.367 for n in range(60)], "times rise by 33.4 per row, which may be seconds or"),
        ([n * 10.5 for n in range(60)], "times rise by 10.5 per row"),
        ([1e3 + n * 16.667 for n in range(60)], "times rise by 16.7 per row"),
        ([45443.5 + n / 1440 for n in range(60)], "45443.5 may be a day, as a spreadsheet counts"),
        ([60461 + n / 86400 * 60 for n in range(300)], "60461 may be a day"),
        ([739403.25 + n / 1440 for n in range(60)], "739403.25 may be a day"),
        (
            [n / 1440 for n in range(60)],
            "all 60 rows of a UAV lie within 0.041 s, less than a slot",
        ),
        ([120_050 + n for n in (*range(10), *range(50, 60))], "120050 may be hours, minutes and"),
        ([93_000 + 100 * m + n for m in range(3) for n in range(0, 60, 5)], "93000 may be hours"),
        ([0, 0.01, 0.02], "all 3 rows of a UAV lie within 0.02 s"),
    ],
)
def test_times_whose_unit_is_not_clear_need_one(
    times: list[float], says: str, tmp_path: Path
) -> None:
    text = "time,gain_db\n" + "".join(f"{t:.6f},-80\n" for t in times)
    assert says in refused(tmp_path, "csv", text)


def test_times_that_only_look_strange_are_read(tmp_path: Path) -> None:
    """Gaps that are no ends of minutes, seconds of a day, and days that are given as days."""
    gap = [100, 101, 102, 150, 151, 152]
    assert table(tmp_path, rows(gap), slot_s=1.0).trace.slots == 53
    assert table(tmp_path, rows([45443.5 + n / 10 for n in range(50)])).trace.slots == 50
    days = [45443.5 + n / 1440 for n in range(60)]
    found = table(tmp_path, rows(days), slot_s=1.0, columns={"time": "time:d"}, longest_gap_s=61.0)
    assert found.span == "0 s to 3541 s"  # not a date, which would be counted from 1970


def rows(times: list[float]) -> str:
    return "time,gain_db\n" + "".join(f"{t:.6f},-80\n" for t in times)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"gain_db": "RSSI (dBm)"}, "is column 'RSSI (dBm)' dBm, not in dB? give its unit: gain_d"),
        ({"snr_db": "SINR_lin"}, "is column 'SINR_lin' linear, not in dB?"),
        ({"gain_db": "linear gain"}, "gain_db=linear gain:linear or gain_db=linear gain:dB"),
    ],
)
def test_a_power_is_no_gain(columns: dict[str, str], says: str, tmp_path: Path) -> None:
    (name,) = columns.values()
    assert says in refused(tmp_path, "csv", f"time,{name}\n0,-80\n1,-70\n", columns=columns)


def test_many_rows_in_a_slot_are_said(tmp_path: Path) -> None:
    text = "time,gain_db\n" + "".join(f"{n / 100:.2f},-80\n" for n in range(300))
    assert "a slot has the mean of up to 10 rows of a UAV" in table(tmp_path, text).notes
    assert not table(tmp_path, "time,gain_db\n0,-80\n1,-81\n").notes


ISO = "time,gain_db\n" + "".join(
    f"2024-05-31T{10 + n // 60:02}:{n % 60:02}:00{{0}},{-60 - n / 30:.4f}\n" for n in range(301)
)
GPX = """<gpx xmlns="http://www.topografix.com/GPX/1/1" version="1.1"><trk><trkseg>%s</trkseg></trk>
</gpx>"""
POINT = '<trkpt lat="%.6f" lon="11.0"><ele>10</ele><time>%s</time></trkpt>'
KML = """<kml xmlns="http://www.opengis.net/kml/2.2" xmlns:gx="http://www.google.com/kml/ext/2.2">
<Placemark><gx:Track>%s</gx:Track></Placemark></kml>"""


def gpx(*points: tuple[float, str]) -> str:
    return GPX % "".join(POINT % (48 + degrees, time) for degrees, time in points)


def kml(*points: tuple[float, str]) -> str:
    whens = "".join(f"<when>{time}</when>" for _, time in points)
    coords = "".join(f"<gx:coord>11 {48 + degrees} 10</gx:coord>" for degrees, _ in points)
    return KML % (whens + coords)


@pytest.mark.parametrize(
    ("zone", "given", "shown"),
    [
        ("+02:00", "2024-05-31 12:00:00", "2024-05-31T12:00:00+02:00"),
        ("+02:00", "2024-05-31T10:00:00Z", "2024-05-31T12:00:00+02:00"),
        ("+02:00", "2024-05-31T12:00:00+0200", "2024-05-31T12:00:00+02:00"),
        ("Z", "2024-05-31 12:00", "2024-05-31T12:00:00+00:00"),
        ("-0530", "2024-05-31T12:00:00", "2024-05-31T12:00:00-05:30"),
        ("", "2024-05-31T12:00:00", "2024-05-31T12:00:00"),
        ("", "7200", "2024-05-31T12:00:00"),
    ],
)
def test_a_date_of_a_window_has_the_zone_of_the_file(
    zone: str, given: str, shown: str, tmp_path: Path
) -> None:
    found = table(tmp_path, ISO.format(zone), slot_s=1.0, first=given, last="7260")
    np.testing.assert_allclose(10 * np.log10(found.trace.values), -64)
    assert found.span.startswith(f"{shown} to 2024-05-31T12:01:00")
    assert f"; from {found.span};" in found.line()
    ends = ((0, f"2024-05-31T10:00:00{zone}"), (0.09, f"2024-05-31T15:00:00{zone}"))
    for kind, text in (("gpx", gpx(*ends)), ("kml", kml(*ends))):
        flown = of(tmp_path, kind, text, slot_s=60.0 / 6, first=given, longest_gap_s=1e5)
        assert flown.trace.position_m is not None
        assert flown.trace.position_m[0, 0, 1] == pytest.approx(4003, abs=1)
        assert flown.span.startswith(shown)


@pytest.mark.parametrize(
    ("text", "given", "says"),
    [
        (ISO.format(""), "2024-05-31T12:00:00Z", "`from`: must have no time zone, as the times of"),
        ("time,gain_db\n10:00:00,-80\n10:00:09,-81\n", "10:60:00", "a time of day as in the file"),
        (ISO.format("Z"), "12:00:00", "`from`: must be seconds or a date and time of ISO 8601"),
        (ISO.format("Z"), "2024-05-31T16:00", "of the file (2024-05-31T10:00:00+00:00 to "),
        ("time,gain_db\n10:00:00,-80\n10:00:09,-81\n", "2024-05-31T10:00:00", "a time of day as"),
        ("time,gain_db\n10:00:00,-80\n10:00:09,-81\n", "09:59:59", "(10:00:00 to 10:00:09.100)"),
        (
            "time,gain_db\n5,-80\n9,-81\n",
            "10:00:00",
            "must be in seconds, as the file has no dates",
        ),
        (
            ISO.format("+02:00").replace("14:59:00+02:00", "13:59:00+01:00"),
            "2024-05-31T12:00:00",
            "must have a time zone, as the file has several (+01:00, +02:00)",
        ),
    ],
)
def test_a_moment_that_may_be_two_is_refused(
    text: str, given: str, says: str, tmp_path: Path
) -> None:
    assert says in refused(tmp_path, "csv", text, first=given)


def test_a_time_of_day_is_one_of_the_file(tmp_path: Path) -> None:
    text = "time,rate_bps\n" + "".join(f"23:59:{n:02},{n}e6\n" for n in range(50, 60))
    found = table(tmp_path, text, slot_s=1.0, first="23:59:52", last="23:59:54")
    assert isinstance(found.trace, RateTrace)
    assert found.trace.uplink_bps.tolist() == [[52e6, 53e6]]
    assert found.span == "23:59:52 to 23:59:54"
    local = text.replace("23:59", "11:59").replace(",5", " PM,5")
    formatted = table(tmp_path, local, slot_s=1.0, time_format="%I:%M:%S %p", first="23:59:55")
    assert formatted.span == "23:59:55 to 00:00:00 (+1 d)"


def test_formats_of_times_with_zones(tmp_path: Path) -> None:
    text = "time,gain_db\n31.05.2024 12:00:00 +0200,-80\n31.05.2024 12:00:09 +0200,-81\n"
    form = "%d.%m.%Y %H:%M:%S %z"
    found = table(tmp_path, text, time_format=form, first="2024-05-31T12:00:05")
    assert found.span.startswith("2024-05-31T12:00:05+02:00 to ")
    text = text.replace("31.05.2024 12:00:00 +0200", "+0200 31.05.2024 12:00:00")
    text = text.replace("31.05.2024 12:00:09 +0200", "+0200 31.05.2024 12:00:09")
    front = table(tmp_path, text, time_format="%z %d.%m.%Y %H:%M:%S", first="2024-05-31T12:00:05")
    assert front.span == found.span
    assert "`time_format`: 'k' is a bad" in refused(tmp_path, "csv", text, time_format="%k")
    text = text.replace("+0200", "CET")
    says = refused(tmp_path, "csv", text, time_format=form.replace("%z", "%Z"))
    assert "`time_format`: must not have %Z" in says


@pytest.mark.parametrize("make", [gpx, kml])
def test_tracks_that_mix_times_with_and_without_a_zone_are_refused(
    make: Any, tmp_path: Path
) -> None:
    kind = make.__name__
    mixed = make((0, "2024-05-31T12:00:00"), (1e-4, "2024-05-31T12:00:10Z"))
    assert "some times have a time zone and some have none" in refused(tmp_path, kind, mixed)
    texts = [
        make((0, f"2024-05-31T12:00:00{z}"), (1e-4, f"2024-05-31T12:00:10{z}")) for z in ("Z", "")
    ]
    assert "some have none" in refused(tmp_path, kind, *texts)
    names = of(tmp_path, kind, texts[0], texts[0], first="5").names
    assert names == ["a", "b"]


def test_times_since_a_start_are_no_dates(tmp_path: Path) -> None:
    fields = {"timestamp": "uint64_t", "lat": "double", "lon": "double", "alt": "float"}
    rows = [(1_000_000 * n, 47.5 + n * 1e-5, 8.5, 30) for n in range(1, 11)]
    path = written(tmp_path / "a.ulg", [("vehicle_global_position", fields, rows)], ())
    found = imported("ulog", [path], Options(first="4", last="5"))
    assert found.span == "4 s to 5.1 s"
    with pytest.raises(InputError, match="`from`: must be in seconds, as the file has no dates"):
        imported("ulog", [path], Options(first="1970-01-01T00:00:04Z"))


# --- the ends of a UAV ---------------------------------------------------------------------------

LATE = "time,uav,rate_bps\n" + "".join(
    f"{t},{uav},{uav}e6\n" for t in range(10) for uav in (1, 2) if uav == 1 or 2 <= t <= 5
)


def test_before_its_first_and_after_its_last_row_a_uav_has_an_outage(tmp_path: Path) -> None:
    found = table(tmp_path, LATE, slot_s=0.5)
    up = np.asarray(found.trace.values[1].values[0])
    assert (up[:4] == 0).all()
    assert (up[4:12] == 2e6).all()  # The last row holds for a second, as the others do.
    assert (up[12:] == 0).all()
    says = "uav2 (2) has no rows in the first 2 s and the last 3.5 s: an outage"
    assert says in found.notes
    held = table(tmp_path, LATE, slot_s=0.5, hold=True)
    assert (np.asarray(held.trace.values[1].values) == 2e6).all()
    assert says.replace("an outage", "its nearest value holds there") in held.notes
    window = table(tmp_path, LATE, slot_s=0.5, first="2", last="6")
    assert (np.asarray(window.trace.values[1].values) == 2e6).all()
    assert not window.notes


def test_a_part_of_a_slot_without_rows_does_not_lower_its_mean(tmp_path: Path) -> None:
    text = "time,uav,gain_db\n0,a,-80\n1,a,-80\n2,a,-80\n0.25,b,-70\n1.25,b,-70\n2.25,b,-70\n"
    found = table(tmp_path, text, slot_s=1.0)
    np.testing.assert_allclose(found.trace.values, [[1e-8] * 4, [1e-7] * 4])
    assert not found.notes


def test_one_row_does_not_hold_for_a_whole_file(tmp_path: Path) -> None:
    text = "time,uav,gain_db\n" + "".join(f"{t},a,-80\n" for t in range(20)) + "15,b,-70\n"
    found = table(tmp_path, text, slot_s=1.0)
    assert np.flatnonzero(found.trace.values[1]).tolist() == [15]
    alone = table(
        tmp_path, "time,uav,gain_db\n0,a,-80\n9,b,-70\n", slot_s=1.0, columns={"time": "time:s"}
    )
    assert np.flatnonzero(alone.trace.values[0]).tolist() == [0]


@pytest.mark.parametrize("make", [gpx, kml])
def test_positions_that_nobody_knows_are_refused(make: Any, tmp_path: Path) -> None:
    def flight(begin: int, end: int) -> str:
        return make(*((n * 1e-5, f"2024-05-31T12:00:{n:02}Z") for n in range(begin, end + 1)))

    kind, texts = make.__name__, (flight(0, 20), flight(5, 30))
    says = refused(tmp_path, kind, *texts)
    assert "`hold`: uav1 (a) has no position in the last 10 s; choose a window with `from`" in says
    assert "uav2 (b) has no position in the first 5 s" in refused(tmp_path, kind, *texts, last="20")
    found = of(tmp_path, kind, *texts, first="5", last="20")
    assert not any("no position" in note for note in found.notes)
    held = of(tmp_path, kind, *texts, hold=True)
    assert "uav2 (b) has no position in the first 5 s; it stays in place" in held.notes
    each = refused(tmp_path, kind, *texts, clock="each")
    assert "uav1 (a) has no position in the last 5 s" in each
    says = refused(tmp_path, kind, *texts, clock="each", first="2024-05-31T12:00:00Z")
    assert "`from`: must be in seconds, with `clock` each" in says


def test_positions_of_a_table_are_refused_as_well(tmp_path: Path) -> None:
    text = "time,uav,x,y,z\n0,a,0,0,30\n9,a,9,0,30\n3,b,0,0,30\n9,b,9,0,30\n"
    says = refused(tmp_path, "csv", text)
    assert "`hold`: uav2 (b) has no position in the first 3 s; choose" in says
    position = table(tmp_path, text, hold=True).trace.position_m
    assert position is not None
    assert (position[1, :30, 0] == 0).all()


def test_planned_flights_stay_where_they_end_and_it_is_said(tmp_path: Path) -> None:
    plans = [plan((47 + 1e-4 * n, 8.0, 25) for n in range(length)) for length in (3, 6)]
    found = of(tmp_path, "qgc", *plans)
    assert "UAVs whose path ends before that of another one stay at its end" in found.notes


# --- values that are none ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "gain_db\n0,-80\n1,0\n2,-80\n",
            "line 3: gain_db 0 dB means that all power arrives; if it",
        ),
        ("loss_db\n0,100\n1,0.0\n2,101\n", "line 3: loss_db 0 dB means that all power arrives"),
        ("gain_db\n0,-0.0\n1,-70\n", "line 2: gain_db -0 dB means that all power"),
        ("gain_up_db,gain_down_db\n0,-80,-80\n1,-80,0\n", "line 3: gain_down_db 0 dB means"),
    ],
)
def test_no_loss_at_all_is_no_measurement(text: str, says: str, tmp_path: Path) -> None:
    text = f"time,{text}"
    assert says in refused(tmp_path, "csv", text)
    found = table(tmp_path, text, no_signal="0", slot_s=1.0)
    assert "1 outage" in found.line()


@pytest.mark.parametrize("marks", ["-,nan,0,empty", "empty, 0.0 ,NAN,-"])
def test_several_marks_mean_an_outage(marks: str, tmp_path: Path) -> None:
    text = "time,gain_db\n0,-80\n1,-\n2,NaN\n3,0\n4,\n5,-81\n"
    found = table(tmp_path, text, slot_s=1.0, no_signal=marks)
    assert isinstance(found.trace, ChannelTrace)
    assert (found.trace.gain[0] > 0).tolist() == [True, False, False, False, False, True]
    assert "line 3: gain_db must be a number, not '-'" in refused(tmp_path, "csv", text)


# --- rows and fields that are not used -----------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("0,-80\n1,-81\ntime,gain_db\n0,-70\n", "line 4: time must be a number, as in the rows be"),
        ("0,-80\n1,-81\nMean,-80.5\n", "line 4: time must be a number, as in the rows before, not"),
        ("0,-80\n1,-81\n,\n", "line 4: time must be a number, as in the rows before, not ''"),
        ("10:00:00,-80\n10:00:01,-81\nend,-80\n", "line 4: time must be a time of day, as in the"),
        ("10:00:00,-80\n5,-81\n", "line 3: time must be a time of day, as in the rows before"),
        ("2024-05-31,-80\n2024-06-01,-81\nlast,-80\n", "line 4: time 'last' is neither a number"),
        ("s,dB\n0,-80\n", "line 2: time 's' is neither a number nor of ISO 8601"),
    ],
)
def test_the_row_that_is_wrong_is_named(rows: str, says: str, tmp_path: Path) -> None:
    assert says in refused(tmp_path, "csv", f"time,gain_db\n{rows}")


def test_lines_that_begin_with_a_hash_are_counted(tmp_path: Path) -> None:
    text = "# a logger\nuav,time,gain_db\n#1,0,-80\n#1,1,-80\n #2,0,-81\nb,0,-70\nb,1,-70\n"
    (note,) = table(tmp_path, text).notes
    assert note.endswith("a.csv: 3 lines beginning with # are passed over.")
    assert not table(tmp_path, "# a logger\ntime,gain_db\n0,-80\n1,-81\n").notes
    says = refused(tmp_path, "csv", "# time,gain_db\n0,-80\n1,-81\n")
    assert "its first line has numbers" in says
    assert "a line that begins with # is no header" in says


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("loss_upp", "the field 'loss_upp' is unknown; did you mean 'loss_up'?"),
        ("positions", "the field 'positions' is unknown; did you mean 'position'?"),
        ("delay", "the field 'delay' is unknown; did you mean 'delay_s'?"),
        ("slots", "the field 'slots' is unknown; did you mean 'slot_s'?"),
        ("arr_0", "the field 'arr_0' is unknown"),
    ],
)
def test_an_unknown_field_of_a_trace_is_refused(name: str, says: str, tmp_path: Path) -> None:
    gain = np.full((2, 5), 1e-9)
    np.savez(tmp_path / "t.npz", gain=gain, slot_s=0.1, **{name: gain})
    with pytest.raises(TraceError) as raised:
        load_trace(tmp_path / "t.npz")
    assert str(raised.value) == f"{tmp_path}/t.npz: {says}"


def test_files_keep_the_order_of_the_command_line(tmp_path: Path) -> None:
    def names(*order: str, text: str = "time,gain_db\n0,-80\n1,-81\n") -> list[str]:
        for name in order:
            (tmp_path / f"{name}.csv").write_text(text)
        return list(imported("csv", [tmp_path / f"{name}.csv" for name in order], Options()).names)

    assert names("north", "east") == ["north", "east"]
    assert names("uav2", "uav10", "uav1") == ["uav2", "uav10", "uav1"]
    assert names("leader", "follower10", "follower2") == ["leader", "follower10", "follower2"]
    text = "time,uav,gain_db\n" + "".join(f"0,u{n},-80\n1,u{n},-80\n" for n in (10, 2, 1))
    assert names("all", text=text) == ["u1", "u2", "u10"]


# --- windows and repetitions ---------------------------------------------------------------------


def plan(places: Any, **more: Any) -> str:
    items = [
        {"type": "SimpleItem", "command": 16, "frame": 3, "params": [0, 0, 0, None, *place]}
        for place in places
    ]
    mission = {"cruiseSpeed": 10, "plannedHomePosition": [47.0, 8.0, 400.0], "items": items}
    return json.dumps({"fileType": "Plan", "mission": mission | more.pop("mission", {}), **more})


SECONDS = [f"2024-05-31T12:00:{n:02}Z" for n in range(11)]
TEN_S = {
    "mahimahi": "".join(f"{ms}\n" for ms in range(100, 10_001, 100)),
    "csv": "time,gain_db\n" + "".join(f"{n},-80\n" for n in range(11)),
    "gpx": gpx(*((n * 1e-5, time) for n, time in enumerate(SECONDS))),
    "kml": kml(*((n * 1e-5, time) for n, time in enumerate(SECONDS))),
    "qgc": plan([(47, 8, 25), (47 + 100 / 111_180, 8, 25)]),
    "ns2": "$node_(0) set X_ 0\n$node_(0) set Y_ 0\n$node_(0) set Z_ 30\n"
    '$ns_ at 0.0 "$node_(0) setdest 100 0 10"\n',
}


@pytest.mark.parametrize("kind", TEN_S)
@pytest.mark.parametrize(
    "window", [("9.95", None), ("9.99", "9.999"), ("0", "0.001"), ("9.9", "10")]
)
def test_every_window_has_a_slot(kind: str, window: tuple[str, str | None], tmp_path: Path) -> None:
    found = of(tmp_path, kind, TEN_S[kind], first=window[0], last=window[1])
    assert 1 <= found.trace.slots <= 3
    found.trace.save(tmp_path / "t.npz")
    assert load_trace(tmp_path / "t.npz").slots == found.trace.slots
    assert found.span.endswith(" s") == (kind not in ("gpx", "kml"))


@pytest.mark.parametrize("kind", TEN_S)
@pytest.mark.parametrize("first", ["10.2", "11", "1e9", "-1"])
def test_a_window_outside_of_a_file_is_refused(kind: str, first: str, tmp_path: Path) -> None:
    says = refused(tmp_path, kind, TEN_S[kind], first=first)
    assert "`from`: must be within the " in says


@pytest.mark.parametrize(
    ("first", "last", "rates", "span"),
    [
        ("0.015", None, [1.2e6], "0.01 s to 0.02 s"),
        ("0.019", "0.0195", [1.2e6], "0.01 s to 0.02 s"),
        ("0", "0.004", [3.6e6], "0 s to 0.01 s"),
        ("0.005", "0.015", [3.6e6, 1.2e6], "0 s to 0.02 s"),
        ("0.0199999999", None, [1.2e6], "0.01 s to 0.02 s"),
    ],
)
def test_a_window_of_mahimahi_has_the_slots_that_it_meets(
    first: str, last: str | None, rates: list[float], span: str, tmp_path: Path
) -> None:
    text = "10\n10\n10\n20\n"
    found = of(tmp_path, "mahimahi", text, slot_s=0.01, first=first, last=last)
    assert isinstance(found.trace, RateTrace)
    np.testing.assert_allclose(found.trace.uplink_bps, [rates])
    assert found.span == span


def test_rates_that_no_command_reads_are_refused(tmp_path: Path) -> None:
    text = "1\n" * 100_000
    says = refused(tmp_path, "mahimahi", text, slot_s=0.001)
    assert says.endswith("a rate is at most 1e+12 bit/s, and not negative (UAV 1, slot 0)")


@pytest.mark.parametrize("kind", ["gpx", "kml", "qgc", "ns2"])
def test_a_flight_that_does_not_end_at_its_start_is_not_repeated(kind: str, tmp_path: Path) -> None:
    says = refused(tmp_path, kind, TEN_S[kind], repeat="20", slot_s=0.1)
    assert "`repeat`: uav1 ends " in says
    assert "at most 100 m/s (`fastest_m_s`)" in says
    assert of(tmp_path, kind, TEN_S[kind], repeat="1").trace.slots == 101
    slow = of(tmp_path, kind, TEN_S[kind], repeat="2", slot_s=2.0)
    assert slow.span.endswith(", repeated")
    whole, part = (of(tmp_path, kind, TEN_S[kind], repeat=repeat).span for repeat in ("1", "3s"))
    assert whole != part
    assert "repeated" not in part


def test_a_loop_is_repeated_and_a_jump_that_no_command_reads_is_refused(tmp_path: Path) -> None:
    places = [n * 1e-5 for n in (*range(6), *range(4, -1, -1))]
    found = of(tmp_path, "gpx", gpx(*zip(places, SECONDS, strict=True)), repeat="3")
    found.trace.save(tmp_path / "t.npz")
    assert load_trace(tmp_path / "t.npz").slots == 303
    jump = TEN_S["ns2"] + '$ns_ at 5.0 "$node_(0) set X_ 900"\n'
    assert "position[0, 50] would need 8" in refused(tmp_path, "ns2", jump)


# --- plans ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [16, 17, 19, 21, 22, 82, 84, 85])
def test_a_height_of_null_is_refused(command: int, tmp_path: Path) -> None:
    whole = json.loads(plan([(47, 8, 25), (47.001, 8, None), (47.002, 8, 25)]))
    whole["mission"]["items"][1]["command"] = command
    says = refused(tmp_path, "qgc", json.dumps(whole))
    assert "mission.items.1.params.6: the height must be a number, not null" in says
    inner = {"TransectStyleComplexItem": {"Items": whole["mission"]["items"]}}
    whole["mission"]["items"] = [inner]
    assert "Items.1.params.6: the height" in refused(tmp_path, "qgc", json.dumps(whole))


def test_half_a_place_is_refused_and_other_parameters_may_be_null(tmp_path: Path) -> None:
    says = refused(tmp_path, "qgc", plan([(47, 8, 25), (47.001, None, 25)]))
    assert "mission.items.1.params: latitude and longitude must be given both or not" in says
    whole = json.loads(plan([(47, 8, 25), (47.001, 8, 25), (None, None, 40)]))
    whole["mission"]["items"].append(
        {"type": "SimpleItem", "command": 20, "frame": 2, "params": [None] * 7}
    )
    position = of(tmp_path, "qgc", json.dumps(whole)).trace.position_m
    assert position is not None
    assert position[0, :, 2].min() == 25


def test_what_a_plan_loses_is_said(tmp_path: Path) -> None:
    whole = json.loads(plan([(47, 8, 25), (47.001, 8, 25)], version=7, mission={"version": 9}))
    whole["mission"]["items"].insert(
        1, {"type": "SimpleItem", "command": 178, "frame": 2, "params": [1, 5, -1, 0, 0, 0, 0]}
    )
    found = of(tmp_path, "qgc", json.dumps(whole), speed_m_s=20.0)
    assert found.notes == [
        "The version of the plan, 7, is not known; it is read as version 1.",
        "The version of the mission, 9, is not known; it is read as version 2.",
        "The file's own changes of the speed are not used, because a speed is given.",
    ]
    known = plan([(47, 8, 25), (47.001, 8, 25)], version=1, mission={"version": 2})
    assert not of(tmp_path, "qgc", known, speed_m_s=20.0).notes
    wpl = "QGC WPL 110\n0 1 0 16 0 0 0 0 47 8 400 1\n1 0 3 16 0 0 0 0 47 8 25 1\n"
    wpl += "2 0 3 178 1 5 -1 0 0 0 0 1\n3 0 3 16 0 0 0 0 47.001 8 25 1\n"
    assert of(tmp_path, "qgc", wpl, speed_m_s=20.0).notes == found.notes[2:]
