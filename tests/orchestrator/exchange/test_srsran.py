# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Flights that were measured with srsRAN: each second has its row, and what is refused."""

import hashlib
import json
import math
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import srsran as made
from srsran import FOUND, START, STATION, Logs, at, enb_row, write_flight
from typer.testing import CliRunner

from orchestrator.cli.main import app
from orchestrator.exchange.importing import Options, measured
from orchestrator.exchange.srsran import Found, slots_of_rows
from orchestrator.flights.measured import MeasuredFlight, load_flight
from testbed.core.errors import InputError

SECONDS = 40
T = np.arange(SECONDS)
CIRCLE = np.stack([80 * np.cos(T / 20), 80 * np.sin(T / 20), np.clip(5.0 * T, 0, 25)], axis=1)
"""A flight that begins with a climb."""
HEIGHT_M = 10.0


def found_in(logs: Logs, **options: Any) -> Found:
    given = {"base_station": (*STATION, HEIGHT_M)} | options
    return measured([], Options(**logs._asdict(), **given))


def flight_of(logs: Logs, **options: Any) -> MeasuredFlight:
    return found_in(logs, **options).flight


def apart_m(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Distance of two places by the haversine formula, on a sphere."""
    (a, b), (c, d) = (map(math.radians, place) for place in (one, other))
    h = math.sin((c - a) / 2) ** 2 + math.cos(a) * math.cos(c) * math.sin((d - b) / 2) ** 2
    return 2 * 6_371_000 * math.asin(math.sqrt(h))


# --- values --------------------------------------------------------------------------------------


def test_each_second_has_what_was_printed_for_it(tmp_path: Path) -> None:
    rates = 1e6 * (1 + T % 19)
    logs = write_flight(
        tmp_path,
        CIRCLE,
        rsrp_dbm=-60 - T,
        snr_db=30 - T % 20,
        snr_up_db=T / 10,
        cqi=T % 16,
        mcs_up=T % 29,
        uplink_bps=rates,
        ok_up=800 - T,
        nok_up=T,
        mcs_down=T % 5,
        downlink_bps=1000.0 * (1 + T % 9),
        ok_down=7,
        nok_down=T % 3,
        buffer_up_bytes=1000.0 * (1 + T),
    )
    flight = flight_of(logs)
    for name, expected in {
        "rsrp_dbm": -60 - T,
        "snr_db": 30 - T % 20,
        "snr_up_db": np.array([float(f"{t / 10:.1f}") for t in T]),
        "cqi": T % 16,
        "mcs_up": T % 29,
        "uplink_bps": rates,
        "bler_up": T / 800,
        "blocks_up": np.full(SECONDS, 800),
        "mcs_down": T % 5,
        "downlink_bps": 1000.0 * (1 + T % 9),
        "bler_down": (T % 3) / (7 + T % 3),
        "buffer_up_bytes": 1000.0 * (1 + T),
        "connected": np.ones(SECONDS),
    }.items():
        np.testing.assert_array_equal(getattr(flight, name), [expected], err_msg=name)
    np.testing.assert_allclose(flight.position, [CIRCLE], atol=0.01)
    assert flight.base_station is not None
    assert flight.origin is not None
    assert flight.base_station.tolist() == [0, 0, HEIGHT_M]
    assert flight.origin.tolist() == list(STATION)
    assert flight.start == START.replace(" ", "T")
    assert flight.resource_blocks == 100
    source = json.loads(str(flight.source))
    for name, path in logs._asdict().items():
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        assert source[name] == {"name": path.name, "sha256": digest}


def test_positions_change_evenly_between_rows_and_the_flight_ends_with_them(tmp_path: Path) -> None:
    logs = write_flight(tmp_path, CIRCLE)
    rows = logs.vehicle.read_text().splitlines()
    # Row n is at 1.25 n s.
    late = [row.replace(at(n), at(1.25 * n)) for n, row in enumerate(rows[:21])]
    logs.vehicle.write_text("\n".join(late))
    flight = flight_of(logs)
    assert flight.slots == 26  # The last position is at 25 s.
    expected = np.stack([np.interp(np.arange(26) / 1.25, T, column) for column in CIRCLE.T], axis=1)
    np.testing.assert_allclose(flight.position[0], expected, atol=0.01)


def test_without_a_base_station_the_first_place_is_the_origin(tmp_path: Path) -> None:
    logs = write_flight(tmp_path, CIRCLE)
    found = found_in(logs, base_station=None)
    assert found.flight.base_station is None
    np.testing.assert_allclose(found.flight.position[0, 0], [0, 0, 0], atol=1e-6)
    np.testing.assert_allclose(found.flight.origin, made.degrees(CIRCLE[:1])[0], atol=1e-8)
    first, second = found.lines()
    assert "`testbed fit` needs --base-station" in first
    assert "not checked, because the base station is unknown" in second


def test_what_was_not_measured_is_not_a_number(tmp_path: Path) -> None:
    is_idle = T % 4 == 0
    logs = write_flight(
        tmp_path,
        CIRCLE,
        rsrp_dbm=np.where(T == 7, np.nan, -70.0),
        snr_up_db=np.where(is_idle, np.nan, 3.0),
        uplink_bps=np.where(T == 9, np.nan, np.where(is_idle, 0.0, 1e6)),
        ok_up=np.where(is_idle, 0, 3),
        nok_up=0,
        ok_down=0,
        nok_down=0,
        mcs_up=np.where(T == 10, 29, 5),
    )
    flight = flight_of(logs)
    np.testing.assert_array_equal(np.isnan(flight.rsrp_dbm[0]), T == 7)
    np.testing.assert_array_equal(np.isnan(flight.buffer_up_bytes[0]), T == 7)
    np.testing.assert_array_equal(np.isnan(flight.uplink_bps[0]), T == 9)
    np.testing.assert_array_equal(flight.uplink_bps[0, is_idle], 0)
    np.testing.assert_array_equal(flight.blocks_up[0, is_idle], 0)
    np.testing.assert_array_equal(np.isnan(flight.snr_up_db[0]), is_idle | (T == 9))
    np.testing.assert_array_equal(np.isnan(flight.bler_up[0]), is_idle | (T == 9))
    # 29 to 31 are retransmissions.
    np.testing.assert_array_equal(np.isnan(flight.mcs_up[0]), is_idle | (T == 9) | (T == 10))
    assert np.isnan(flight.mcs_down).all()
    assert np.isnan(flight.bler_down).all()
    np.testing.assert_array_equal(np.isnan(flight.connected[0]), T == 7)


def test_a_row_goes_to_the_second_in_which_most_of_it_lies(tmp_path: Path) -> None:
    for late_s, shift in ((0.49, 0), (-0.49, 0), (0.51, 1), (-0.51, -1), (7.0, 7)):
        logs = write_flight(tmp_path, CIRCLE, rsrp_dbm=-60 - T, late_s=(late_s, late_s))
        rsrp = flight_of(logs).rsrp_dbm[0]
        expected = np.roll(-60.0 - T, shift)
        expected[: max(shift, 0)] = np.nan
        expected[SECONDS + min(shift, 0) :] = np.nan
        np.testing.assert_array_equal(rsrp, expected)


@pytest.mark.parametrize(
    ("shifted_s", "expected"),
    [
        ([0.0, 1.0, 2.0], [0, 1, 2]),
        ([-0.5, 0.5, 1.5], [0, 1, 2]),
        ([-0.51, 2.49, 2.5], [-1, 2, -1]),
        # Two rows of one second: the nearer one stays, the other goes next door, where that is free
        ([0.6, 1.1], [0, 1]),
        ([1.1, 1.4], [1, 2]),
        ([0.0, 0.6, 1.1], [0, -1, 1]),
        # A first choice is never taken by a second choice.
        ([0.9, 1.3, 2.45], [1, -1, 2]),
        # A row from before the flight does not enter it.
        ([-0.6, 1.0], [-1, 1]),
    ],
)
def test_rows_of_one_second_go_where_there_is_room(
    shifted_s: list[float], expected: list[int]
) -> None:
    assert slots_of_rows(np.array(shifted_s), 3).tolist() == expected


def test_rows_of_two_identifiers_are_one_ue(tmp_path: Path) -> None:
    more = enb_row("52", (9, 2000, 3, 1), (3, 5e6, 30, 970), cqi=4, snr=1.5)
    fewer = enb_row("53", (2, 1000, 1, 0), (7, 1e6, 1, 1), cqi=12, snr=9.5)
    logs = write_flight(
        tmp_path,
        CIRCLE,
        ok_up=500,
        nok_up=0,
        events=[(6.2001, "enb", more), (6.5, "enb", fewer)],
    )
    flight = flight_of(logs)
    of_second = {name: getattr(flight, name)[0, 5] for name in ("snr_up_db", "mcs_up", "cqi")}
    assert of_second == {"snr_up_db": 1.5, "mcs_up": 3, "cqi": 10}
    assert flight.uplink_bps[0, 5] == 14e6
    assert flight.blocks_up[0, 5] == 1502
    assert flight.bler_up[0, 5] == 971 / 1502
    assert flight.downlink_bps[0, 5] == 7700
    assert flight.mcs_down[0, 5] == 4  # 10 blocks have the first row's.
    assert flight.mcs_up[0, 6] == 10
    both = [(t + 1.2001, "enb", fewer) for t in range(35)]
    with pytest.raises(InputError, match=r"line \d+: two UEs send for more than 30 s"):
        flight_of(write_flight(tmp_path, CIRCLE, events=both))


def test_a_ue_is_not_connected_from_a_failure_until_it_is_again(tmp_path: Path) -> None:
    silent = np.isin(T, [*range(10, 15), 20, 21, 25, 30, 31])
    events = [
        (9.98, "ue", "Warning: Detected Radio-Link Failure"),
        (10.3, "ue", "Random Access Complete.     c-rnti=0x61, ta=2"),
        (12.0, "ue", "RRC IDLE"),
        (15.02, "ue", "RRC Connected"),
        # It is about the second before.
        (15.1, "ue", "--- disconnected ---"),
        (20.9, "ue", "--- disconnected ---"),
        # Re-established within the second.
        (27.5, "ue", "Warning: Detected Radio-Link Failure"),
        (27.6, "ue", "Reestablishment OK"),
        (30.0, "ue", "Received RRC Connection Release (releaseCause: other)"),
        (31.0, "ue", "Network attach successful. IP: 10.45.0.9"),
    ]
    rsrp = np.where(silent, np.nan, -70.0)
    found = found_in(write_flight(tmp_path, CIRCLE, rsrp_dbm=rsrp, events=events))
    lost = [*range(10, 15), 20, 21, 30]
    expected = np.where(np.isin(T, lost), 0.0, np.where(np.isin(T, [25, 31]), np.nan, 1.0))
    np.testing.assert_array_equal(found.flight.connected, [expected])
    assert found.disconnections == 4
    assert "10 seconds without a row of srsUE and 0 of srsENB, 4 disconnections" in found.lines()[0]


@pytest.mark.parametrize(
    ("number", "mhz"),
    [
        ("6670", (3517.0, 3417.0)),
        ("0", (2110.0, 1920.0)),
        ("599", (2169.9, 1979.9)),
        ("1575", (1842.5, 1747.5)),
        ("3400", (2685.0, 2565.0)),
        ("9435", (780.5, 725.5)),
        ("4950", None),  # between two bands
        ("70000", None),
    ],
)
def test_the_carrier_is_that_of_the_channel_number(
    number: str, mhz: tuple[float, float] | None, tmp_path: Path
) -> None:
    line = made.EARFCN.replace("3400", number)
    found = found_in(write_flight(tmp_path, CIRCLE, events=[(5.0, "ue", line)]))
    flight = found.flight
    expected = mhz or (2680.0, 2560.0)
    assert (flight.carrier_down_hz, flight.carrier_up_hz) == tuple(1e6 * f for f in expected)
    says = f"that of EARFCN {number}, {expected[0]:g} MHz down" if mhz else "is outside bands 1 to"
    assert says in found.lines()[0]


def test_several_channel_numbers_are_no_carrier(tmp_path: Path) -> None:
    events = [(t, "ue", made.EARFCN.replace("3400", str(3400 + t))) for t in (5, 9)]
    found = found_in(write_flight(tmp_path, CIRCLE, events=events))
    assert found.flight.carrier_down_hz is None
    assert "several carriers (EARFCN 3405, 3409)" in found.lines()[0]


def test_other_columns_of_newer_versions_are_read_by_name(tmp_path: Path) -> None:
    logs = write_flight(tmp_path, CIRCLE, rsrp_dbm=-60 - T)
    text = logs.ue.read_text().replace(" cc  pci", "rat  pci").replace("   0    7 ", " lte    7 ")
    logs.ue.write_text(text)
    enb = (
        logs.enb.read_text()
        .replace("rat rnti", "rat  pci rnti")
        .replace("lte   46", "lte    1   46")
    )
    logs.enb.write_text(enb)
    np.testing.assert_array_equal(flight_of(logs).rsrp_dbm, [-60 - T])
    np.testing.assert_array_equal(flight_of(logs).snr_up_db, 15.0)


@pytest.mark.parametrize(
    ("header", "row"),
    [
        (
            "pci rnti  cqi  ri  mcs  brate   ok  nok  (%) | pusch  rsrp  mcs  brate   ok  nok  (%)",
            "  1 4601   15   1   28   4.7k    9    1  10% |  15.0  -8.2   10   8.0M  900  100  10%",
        ),
        (
            "pci rnti  cqi  mcs  brate   ok  nok  (%) | pusch  mcs  brate   ok  nok  (%)    bsr",
            "  1 4601   15   28   4.7k    9    1  10% |   ovl   10   8.0M  900  100  10%  300.0",
        ),
        (
            "pci rnti | cqi  ri  mcs  brate  ok  nok (%) dl | pusch rsrp ri mcs brate ok nok (%)",
            "  1 4601 |  15   1   28   4.7k   9    1 10%  0 |  15.0 -8.2  1  10  8.0M  9   1 10%",
        ),
        (
            "rat rnti  cqi  ri  mcs  brate   ok  nok  (%) | pusch  rsrp  mcs  brate   ok  nok  (%)",
            " nr 4601   15   1   28   4.7k    9    1  10% |  15.0  -8.2   10   8.0M  900  100  10%",
        ),
    ],
)
def test_logs_of_5g_base_stations_are_refused(header: str, row: str, tmp_path: Path) -> None:
    logs = write_flight(tmp_path, CIRCLE, rsrp_dbm=-60 - T)
    stamp = "[2024-05-14 10:20:31.400000] "
    logs.enb.write_text("\n".join(stamp + line for line in (header, row, row)))
    with pytest.raises(InputError, match=r"enb\.txt: is a log of a 5G base station \(its columns"):
        found_in(logs)


def test_incomplete_rows_and_rows_without_a_fix_are_passed_over_and_counted(tmp_path: Path) -> None:
    logs = write_flight(tmp_path, CIRCLE, rsrp_dbm=-60 - T)
    lines = logs.ue.read_text().splitlines()
    row = next(n for n, line in enumerate(lines) if " -65 " in line)
    torn = [lines[row][:70] + "RRC IDLE", lines[row][:-1], lines[row] + " 5", "no time | at | all"]
    logs.ue.write_text("\n".join([*lines[:row], *torn, *lines[row + 1 :]]))
    places = logs.vehicle.read_text().splitlines()
    places[3] = places[3].replace(",5,12", ",1,2").replace("48.26", "48.99")
    logs.vehicle.write_text("\n".join(places))
    found = found_in(logs)
    assert np.isnan(found.flight.rsrp_dbm[0, 5])
    assert np.isfinite(found.flight.rsrp_dbm).sum() == SECONDS - 1
    (line, _) = found.lines()
    assert f"{logs.ue}: 39 rows of metrics, 3 other lines, 4 incomplete rows skipped" in line
    assert f"1 row of {logs.vehicle} without a GPS fix skipped" in line
    np.testing.assert_allclose(found.flight.position[0, 3], CIRCLE[[2, 4]].mean(axis=0), atol=0.01)


def test_a_gpx_file_has_the_positions_in_utc(tmp_path: Path) -> None:
    zone = "Software Radio Systems RAN (srsRAN) 14/5/2024 8:20:07 TZ:0"
    logs = write_flight(tmp_path, CIRCLE, rsrp_dbm=-60 - T, events=[(-22.9, "ue", zone)])
    points = "".join(
        f'<trkpt lat="{latitude:.9f}" lon="{longitude:.9f}"><ele>{100 + height:.3f}</ele>'
        f"<time>{datetime.fromisoformat(at(t - 2 * 3600)).isoformat()}Z</time></trkpt>"
        for t, (latitude, longitude), height in zip(
            T, made.degrees(CIRCLE), CIRCLE[:, 2], strict=True
        )
    )
    gpx = tmp_path / "flight.gpx"
    gpx.write_text(
        f'<gpx xmlns="http://www.topografix.com/GPX/1/1"><trk><trkseg>{points}</trkseg></trk></gpx>'
    )
    flight = flight_of(logs._replace(vehicle=gpx), ground_m="100")
    np.testing.assert_allclose(flight.position, [CIRCLE], atol=0.01)
    np.testing.assert_array_equal(flight.rsrp_dbm, [-60 - T])
    assert flight.start == START.replace(" ", "T")
    without = write_flight(tmp_path, CIRCLE)._replace(vehicle=gpx)
    with pytest.raises(InputError, match="does not contain its time zone"):
        flight_of(without, ground_m="100")


# --- what a user reads ---------------------------------------------------------------------------


def test_the_command_says_what_was_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    away = np.stack([50.0 + 5 * T, 0 * T, np.full(SECONDS, 25)], axis=1)
    rsrp = np.round(-20 * np.log10(np.hypot(away[:, 0], 15.0)) - 30)
    logs = write_flight(tmp_path, away, rsrp_dbm=rsrp)
    out = tmp_path / "f.npz"
    station = f"--base-station={STATION[0]},{STATION[1]},{HEIGHT_M}"
    done = CliRunner().invoke(
        app, ["import", "srsran", *logs.options(), station, "--out", str(out)]
    )
    assert done.exit_code == 0, done.output
    first, second = done.stdout.splitlines()
    assert first == (
        f"{out}: 40 slots of 1 s, 40 of them in flight, 2024-05-14 10:20:30 to 10:21:10 local "
        "time, 195 m east-west x 0 m north-south, heights 25 m, 52.2 to 245.5 m from the base "
        f"station, RSRP {rsrp.min():g} to {rsrp.max():g} dBm, SNR of the downlink 20 dB, SNR of "
        "the uplink 15 dB, MCS of the uplink 10, rate of the uplink 8 Mbit/s, 0 seconds without "
        "a row of srsUE and 0 of srsENB, 0 disconnections; "
        f"{logs.ue}: 40 rows of metrics, 3 other lines; "
        f"{logs.enb}: 40 rows of metrics, 6 other lines"
    )
    assert second.startswith(
        f"{out}: clock and base station: RSRP follows the distance best with a shift of +0 s "
    )
    assert second.endswith(
        "the smallest distance, 52.2 m, is at 0 s, the largest RSRP, -64 dBm, at 0 s, 52.2 m away"
    )
    np.testing.assert_array_equal(load_flight(out).rsrp_dbm, [rsrp])


def test_rows_that_are_not_used_are_counted_also_of_a_short_flight(tmp_path: Path) -> None:
    row = made.ue_row(-99, 3, 1, 1e3, 1e3)
    logs = write_flight(tmp_path, CIRCLE[:8], events=[(2.2, "ue", row)])
    found = found_in(logs)
    np.testing.assert_array_equal(found.flight.rsrp_dbm, [[-70] * 8])
    assert f"1 row of {logs.ue} not used: other rows are nearer" in found.lines()[0]
    assert "RSRP does not follow the distance; the smallest" in found.lines()[1]


@pytest.mark.parametrize("lag", [-7, 3, 10])
def test_a_clock_that_is_late_is_noticed(lag: int, tmp_path: Path) -> None:
    t = np.arange(200)
    position = np.stack([100 + 60 * np.sin(t / 9) + t / 4, t * 0.5, np.full(200, 25)], axis=1)
    rsrp = -60 - 20 * np.log10(np.linalg.norm(np.roll(position, lag, axis=0), axis=1))
    found = found_in(write_flight(tmp_path, position, rsrp_dbm=np.round(rsrp)))
    assert f"RSRP follows the distance best with a shift of {lag:+d} s" in found.lines()[1]


def test_a_cut_header_is_passed_over(tmp_path: Path) -> None:
    for name, number, cut in (
        ("ue", 18, lambda line: line.replace("snr", "RRC IDLE")),
        ("ue", 5, lambda line: line[:60]),
        ("enb", 5, lambda line: line.replace(" bsr", "")),
        ("enb", 5, lambda line: line[:80]),
    ):
        logs = write_flight(tmp_path, CIRCLE, rsrp_dbm=-60 - T, snr_up_db=T / 10)
        flight = flight_of(line_of(name, number, cut)(logs))
        np.testing.assert_array_equal(flight.rsrp_dbm, [-60 - T])
        np.testing.assert_allclose(flight.snr_up_db, [T / 10])


def test_a_clock_that_jumps_during_the_flight_is_refused(tmp_path: Path) -> None:
    t = np.arange(900)
    position = np.stack([t / 10, 0 * t, np.full(900, 25)], axis=1)
    for first, last in ((100, 702), (100, 698)):
        rsrp = np.where((t > first) & (t < last), np.nan, -70)
        logs = write_flight(tmp_path, position, rsrp_dbm=rsrp)
        if last - first < 600:
            assert found_in(logs).flight.slots == 900
        else:
            with pytest.raises(
                InputError, match=r"ue.txt, line \d+: is 602 s after the previous row"
            ):
                found_in(logs)


# --- what is refused -----------------------------------------------------------------------------


def changed(name: str, change: Callable[[str], str]) -> Callable[[Logs], Logs]:
    def of(logs: Logs) -> Logs:
        path: Path = getattr(logs, name)
        text = change(path.read_text())
        assert text != path.read_text()
        path.write_text(text)
        return logs

    return of


def replaced(name: str, old: str, new: str) -> Callable[[Logs], Logs]:
    return changed(name, lambda text: text.replace(old, new))


def line_of(name: str, number: int, change: Callable[[str], str]) -> Callable[[Logs], Logs]:
    """Change one line, numbered from 1."""

    def of(text: str) -> str:
        lines = text.splitlines()
        before = lines[number - 1]
        lines[number - 1] = change(before)
        assert lines[number - 1] != before
        return "\n".join(lines)

    return changed(name, of)


def cell(number: int, column: int, value: str) -> Callable[[Logs], Logs]:
    """Change a cell of the vehicle file."""

    def of(line: str) -> str:
        cells = line.split(",")
        cells[column] = value
        return ",".join(cells)

    return line_of("vehicle", number, of)


def half_seconds(text: str) -> str:
    """A log whose rows come each half second."""
    lines = [line for line in text.splitlines() if " lte " in line.replace("]", " ")]
    return text + "\n".join(
        f"[{at(40.5 + n / 2)}]{line.partition(']')[2]}" for n, line in enumerate(lines * 2)
    )


REFUSED: list[tuple[Callable[[Logs], Logs], str]] = [
    # Files
    (lambda logs: logs._replace(ue=logs.ue.with_name("none")), "none: no such file"),
    (lambda logs: logs._replace(ue=logs.enb, enb=logs.ue), "is a log of srsENB, not of srsUE"),
    (lambda logs: logs._replace(enb=logs.ue), "ue.txt: is a log of srsUE, not of srsENB"),
    (lambda logs: logs._replace(ue=logs.vehicle), "vehicle.txt: has no table of metrics of srsUE"),
    (lambda logs: logs._replace(vehicle=logs.ue), "ue.txt, line 1: must have 9 columns"),
    (lambda logs: logs._replace(vehicle=logs.ue.with_suffix(".ulg")), "has times since boot"),
    (changed("ue", lambda _: ""), "ue.txt: has no table of metrics of srsUE"),
    (replaced("ue", "-70", "x"), "ue.txt: has no row of metrics of srsUE"),
    (replaced("ue", " rsrp ", " rssi "), "ue.txt: has no table of metrics of srsUE"),
    (replaced("ue", "snr", "cnr"), "ue.txt: the metrics of srsUE have no column 'snr'"),
    (replaced("enb", "pusch", "pusc"), "the metrics of srsENB have no column 'pusch'"),
    (
        line_of("ue", 19, lambda line: line.replace("mcs  snr", "snr  mcs")),
        "with different columns",
    ),
    (
        changed("enb", lambda text: text.replace("[", "(")),
        "has no table of metrics of srsENB in lines that begin with [DATE TIME]",
    ),
    (
        line_of("enb", 9, lambda line: line.partition("] ")[2]),
        "line 9: the row of metrics has no [DATE TIME]",
    ),
    # Values
    (
        line_of("ue", 9, lambda line: line.replace("-70", "+12")),
        "line 9: rsrp +12 is not from -160",
    ),
    (
        line_of("ue", 9, lambda line: line.replace(" 20 ", "142 ")),
        "line 9: snr 142 is not from -40",
    ),
    (line_of("ue", 9, lambda line: line.replace("85k", "85T")), "line 9: buff must be a number"),
    (
        line_of("enb", 9, lambda line: line.replace("8.0M", "-8.0")),
        "line 9: brate -8.0 is not from",
    ),
    (line_of("enb", 9, lambda line: line.replace(" 10 ", " 99 ")), "line 9: cqi 99 is not from 0"),
    (replaced("enb", "lte ", " nr "), "is a row of NR or of a second carrier"),
    (replaced("ue", "   0    7 ", "   1    7 "), "is a row of NR or of a second carrier"),
    (replaced("ue", "PRB=100", "PRB=50"), "its resource blocks (PRB) differ from those in"),
    (replaced("enb", "DL=2680.0", "DL=2.6.0"), "DL=2.6.0, UL=2560.0 are not frequencies"),
    # Clocks
    (line_of("ue", 9, lambda line: line.replace("10:", "09:")), "line 9: its time is 3599 s befor"),
    (
        line_of("ue", 9, lambda line: line.replace("10:20:33", "10:20:31")),
        "line 9: its time is 1 s b",
    ),
    (
        line_of("ue", 9, lambda line: line.replace("05-14", "05-32")),
        "'2024-05-32 10:20:33.200000' does no",
    ),
    (replaced("enb", "05-14", "05-07"), "rows are from 2024-05-07 10:20:31 to 2024-05-07 10:21:10"),
    (replaced("ue", " 10:2", " 14:2"), "but the flight in"),
    (changed("enb", half_seconds), "has one row per 0.5 s; it must have one per second"),
    # Positions
    (cell(9, 1, ""), "vehicle.txt, line 9: longitude must be a number, not ''"),
    (cell(9, 2, "nan"), "vehicle.txt, line 9: latitude must be a number"),
    (line_of("vehicle", 9, lambda line: line[:-3]), "line 9: must have 9 columns (number, longit"),
    (cell(1, 0, "number"), "vehicle.txt, line 1: number must be a number, not 'number'"),
    (cell(9, 6, "soon"), "vehicle.txt, line 9: time must be a local date and time, not 'soon'"),
    (cell(9, 6, "2024-05-14 10:61:00"), "line 9: the time '2024-05-14 10:61:00' does not exist"),
    (cell(9, 6, at(6.5)), "the time 2024-05-14 10:20:36.750000 comes after"),
    (cell(9, 6, at(7.0)), "the time 2024-05-14 10:20:37.250000 comes again"),
    (
        line_of("vehicle", 40, lambda line: line.replace(at(39), at(700))),
        "line 40: nothing is known",
    ),
    (lambda logs: cell(9, 2, "0")(cell(9, 1, "0")(logs)), "line 9: latitude and longitude are 0"),
    (
        lambda logs: cell(9, 7, "1")(cell(9, 2, "0")(cell(9, 1, "0")(logs))),
        "line 9: latitude and longitude are 0",
    ),
    (cell(9, 2, "95"), "line 9: latitude 95 is outside ±90 degrees"),
    (cell(9, 2, "48.2753"), "line 9: is reached at "),
    (cell(9, 2, "49.3365"), "line 9: lies 119 km away from the origin"),
    (cell(9, 3, "1200"), "line 9: height 1200 m above take-off is not from -5 to 300 m"),
    (cell(9, 3, "-40"), "line 9: height -40 m above take-off is not from -5 to 300 m"),
    (cell(9, 5, "399"), "line 9: battery 399 % and fix 5 are not valid; the columns are"),
    (cell(9, 7, "35.7"), "line 9: battery 99 % and fix 35.7 are not valid"),
    (changed("vehicle", lambda text: text.splitlines()[0]), "has 1 position; a flight needs 2"),
]


@pytest.mark.parametrize(("change", "says"), REFUSED)
def test_what_cannot_be_right_is_one_line(
    change: Callable[[Logs], Logs], says: str, tmp_path: Path
) -> None:
    logs = change(write_flight(tmp_path, CIRCLE, events=[(-5.0, "ue", FOUND)]))
    out = tmp_path / "f.npz"
    station = f"--base-station={STATION[0]},{STATION[1]},{HEIGHT_M}"
    done = CliRunner().invoke(
        app, ["import", "srsran", *logs.options(), station, "--out", str(out)]
    )
    assert isinstance(done.exception, InputError), done.output
    assert says in str(done.exception)
    assert "\n" not in str(done.exception)
    assert not out.exists()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--slot-s", "0.5"], "`slot_s`: is not used by the format srsran"),
        (["--from", "3"], "`from`: is not used by the format srsran"),
        (["--to", "3"], "`to`: is not used by the format srsran"),
        (["--repeat", "2"], "`repeat`: is not used by the format srsran"),
        (["--scenario", "quickstart"], "`scenario`: is not used by the format srsran"),
        (["--height-m", "30"], "`height_m`: is not used by the format srsran"),
        (["--origin", "1,2"], "`origin`: is not used by the format srsran"),
        (["--speed", "3"], "`speed`: is not used by the format srsran"),
        (["--clock", "each"], "`clock`: is not used by the format srsran"),
        (["--column", "time=t"], "`columns`: is not used by the format srsran"),
        (["--down", "x"], "`down`: is not used by the format srsran"),
        (["--ground-m", "100"], "`ground_m`: must be absent: the heights in"),
        (["more.txt"], "`files`: are not used by the format srsran"),
        (["--fastest-m-s", "3.9"], "line 2: is reached at 6 m/s; at most 3.9 m/s"),
        (["--within-km", "0.08"], "lies 0 km away from the origin"),
        (["--longest-gap-s", "0.5"], "nothing is known for 1 s before it"),
        (["--base-station", "48.2653,11.6707"], "`base_station`: must be LAT,LON,HEIGHT"),
        (["--base-station", "48.2653,11.6707,-3"], "`base_station`: must be LAT,LON,HEIGHT"),
        (["--base-station", "nan,11.6707,3"], "`base_station`: must be LAT,LON,HEIGHT"),
        (["--base-station", "11.6707,48.2653,10"], "km away from the origin 11.670700,48.265300"),
    ],
)
def test_an_option_that_is_wrong_or_not_used_is_refused(
    more: list[str], says: str, tmp_path: Path
) -> None:
    logs = write_flight(tmp_path, CIRCLE)
    out = tmp_path / "f.npz"
    words = ["import", "srsran", *logs.options(), "--out", str(out)]
    if "--base-station" not in more:
        words.append(f"--base-station={STATION[0]},{STATION[1]},{HEIGHT_M}")
    done = CliRunner().invoke(app, [*words, *more])
    assert isinstance(done.exception, InputError), done.output
    assert says in str(done.exception)
    assert not out.exists()


def test_files_that_are_missing_are_named(tmp_path: Path) -> None:
    logs = write_flight(tmp_path, CIRCLE)
    for name in logs._fields:
        given = logs._asdict() | {name: None}
        with pytest.raises(InputError, match=f"`{name}`: is missing; the format srsran needs it"):
            measured([], Options(**given))
    done = CliRunner().invoke(app, ["import", "csv", "--out", str(tmp_path / "t.npz")])
    assert str(done.exception) == "`files`: is missing; give the files to import"


# --- real flights --------------------------------------------------------------------------------


LW1 = (35.72747884, -78.69591754)
"""The tower of AERPAW at which these flights were measured."""


def plain(word: str) -> float:
    """A number of a console log."""
    if word == "n/a":
        return np.nan
    return float(word.replace("k", "e3").replace("M", "e6"))


def rows_of(path: Path, is_row: Callable[[str], bool]) -> list[tuple[datetime, list[str]]]:
    """Time and words of the rows of a log."""
    return [
        (datetime.fromisoformat(line[1:27]), line[28:].replace("|", " ").split())
        for line in path.read_text().splitlines()
        if is_row(line)
    ]


@pytest.mark.skipif(
    "TESTBED_FLIGHTS" not in os.environ,
    reason="TESTBED_FLIGHTS does not name a folder with measured flights",
)
def test_ten_seconds_of_each_real_flight_are_as_the_logs_have_them() -> None:
    folders = [path for path in Path(os.environ["TESTBED_FLIGHTS"]).iterdir() if path.is_dir()]
    assert folders
    for folder in folders:
        logs = Logs(
            *(folder / f"{name}.txt" for name in ("ue_radio_log", "enb_radio_log", "vehicleOut"))
        )
        flight = flight_of(logs, base_station=(*LW1, HEIGHT_M))
        table = [line.split(",") for line in logs.vehicle.read_text().splitlines()]
        start = datetime.fromisoformat(table[0][6])
        times = [(datetime.fromisoformat(row[6]) - start).total_seconds() for row in table]
        longitude, latitude, height = np.array([row[1:4] for row in table], float).T
        assert flight.slots == int(times[-1]) + 1
        of_ue = rows_of(logs.ue, lambda line: line.count("%") == 2 and "mcs" not in line)
        of_enb = rows_of(logs.enb, lambda line: " lte " in line)

        def of_second(rows: Any, second: int, start: datetime = start) -> list[list[str]]:
            offsets = [((time - start).total_seconds() - 1 - second, row) for time, row in rows]
            return [row for offset, row in offsets if -0.5 <= offset < 0.5]

        chosen = np.random.default_rng(1).permutation(flight.slots)
        checked = 0
        for second in map(int, chosen):
            if checked == 10:
                break
            ue, enb = of_second(of_ue, second), of_second(of_enb, second)
            if len(ue) != 1 or len(enb) != 1:
                continue
            (seen,), (served,) = ue, enb
            place = np.interp(second, times, latitude), np.interp(second, times, longitude)
            across = apart_m(LW1, (float(place[0]), float(place[1])))
            away = math.hypot(across, np.interp(second, times, height) - HEIGHT_M)
            assert flight.distances_m is not None
            assert flight.distances_m[0, second] == pytest.approx(away, rel=5e-3)
            ok, nok = plain(served[14]), plain(served[15])
            for name, expected in {
                "rsrp_dbm": plain(seen[2]),
                "snr_db": plain(seen[6]),
                "buffer_up_bytes": plain(seen[12]),
                "snr_up_db": plain(served[9]),
                "mcs_up": plain(served[12]) if ok + nok else np.nan,
                "uplink_bps": plain(served[13]),
                "blocks_up": ok + nok,
                "bler_up": nok / (ok + nok) if ok + nok else np.nan,
            }.items():
                found = getattr(flight, name)[0, second]
                np.testing.assert_equal(found, expected, err_msg=f"{folder} {second} {name}")
            checked += 1
        assert checked == 10
