# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Tables of measurements: what they mean is understood and said, or refused in one line."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ns3_scenarios.aerial import free_space_db
from ns3_scenarios.trace import ChannelTrace, RateTrace, Replay
from orchestrator.cli.main import app
from orchestrator.exchange.importing import Imported, Options, imported, means
from orchestrator.rounds.loop import predict
from orchestrator.scenario.loading import load, validate
from testbed.core.errors import InputError
from workloads.costs.profile import PAPER

AERPAW = """time,Latitude,Longitude,Altitude,RSRP
2023-08-26 10:00:00.0,35.7274,-78.6962,30,-80
2023-08-26 10:00:01.0,35.7277,-78.6962,40,-83
2023-08-26 10:00:03.0,35.7277,-78.6952,40,-90
"""
COLUMNS = {
    "latitude": "Latitude",
    "longitude": "Longitude",
    "height": "Altitude:m",
    "rsrp_dbm": "RSRP",
}


def of(tmp_path: Path, *texts: str, **options: Any) -> Imported:
    """The import of tables with these texts, named a.csv, b.csv, …"""
    paths = []
    for letter, text in zip("abc", texts, strict=False):
        paths.append(tmp_path / f"{letter}.csv")
        paths[-1].write_text(text)
    return imported("csv", paths, Options(**options))


def gains_db(found: Imported) -> Any:
    assert isinstance(found.trace, ChannelTrace)
    return 10 * np.log10(found.trace.gain)


def rates(found: Imported) -> tuple[Any, Any]:
    assert isinstance(found.trace, RateTrace)
    return found.trace.uplink_bps, found.trace.downlink_bps


# --- values and slots ----------------------------------------------------------------------------


def test_measurements_hold_and_positions_change_evenly(tmp_path: Path) -> None:
    found = of(tmp_path, AERPAW, slot_s=0.5, columns=COLUMNS, tx_dbm=10.0)
    expected = [-90, -90, -93, -93, -93, -93, -100]
    np.testing.assert_allclose(gains_db(found)[0], expected, atol=1e-9)
    position = found.trace.position_m
    assert position is not None
    north_m = 0.0003 * np.pi / 180 * 6_359_000  # the meridian's radius at 35.7°, to a few km
    np.testing.assert_allclose(position[0, 2], [0, north_m, 40], rtol=2e-3, atol=1e-6)
    east_m = 0.001 * np.pi / 180 * 6_385_400 * np.cos(np.radians(35.7274))
    np.testing.assert_allclose(position[0, -1, 0], east_m, rtol=2e-3)
    np.testing.assert_allclose(position[0, 1], position[0, [0, 2]].mean(axis=0))
    assert found.origin == (35.7274, -78.6962)


def test_rates_and_uavs_of_a_table_make_a_trace_that_is_played(tmp_path: Path) -> None:
    rows = ["time,uav,uplink_bps,downlink_bps"]
    rows += [f"{t},{uav},{uav * 1e7},{uav * 4e7}" for t in range(60) for uav in (1, 2)]
    found = of(tmp_path, "\n".join(rows))
    up, _ = rates(found)
    assert up[:, 0].tolist() == [1e7, 2e7]
    scenario = validate({"uavs": {"tx_power_w": [1, 1]}}, "test")
    assert predict(scenario, Replay(found.trace), PAPER)[0].latency_s > 0


def test_a_slot_has_the_mean_of_what_holds_in_it(tmp_path: Path) -> None:
    fine = ["time,rate_bps"] + [f"{n / 100:.2f},{20e6 if n % 10 == 0 else 1e6}" for n in range(100)]
    up, down = rates(of(tmp_path, "\n".join(fine)))
    np.testing.assert_allclose(up, [[2.9e6] * 10], rtol=1e-12)
    np.testing.assert_array_equal(up, down)
    offset = "time,rate_bps\n0,1e6\n0.15,9e6\n0.25,1e6\n0.5,1e6\n"
    up, _ = rates(of(tmp_path, offset))
    np.testing.assert_allclose(up, [[1e6, 5e6, 5e6, 1e6, 1e6, 1e6]], rtol=1e-12)
    # Gains are powers: the mean of -80 and -90 dB is not -85 dB.
    found = of(tmp_path, "time,gain_db\n0,-80\n0.05,-90\n0.1,-90\n")
    np.testing.assert_allclose(found.trace.values, [[5.5e-9, 1e-9]])


def test_means_are_those_of_the_integral() -> None:
    rng = np.random.default_rng(1)
    times = np.sort(rng.uniform(-0.3, 5, 200))
    values = rng.uniform(0, 10, 200)
    found = means(times, values, 0.25, 20)
    at = (np.arange(200_000) + 0.5) / 200_000 * 5
    held = values[np.maximum(np.searchsorted(times, at, side="right") - 1, 0)]
    np.testing.assert_allclose(found, held.reshape(20, -1).mean(axis=1), rtol=2e-3)
    whole = means(np.arange(4) * 0.1, np.array([1 / 3, 0.1, 0.7, 1e7 / 3]), 0.1, 4)
    assert whole.tolist() == [1 / 3, 0.1, 0.7, 1e7 / 3]  # to the last digit


def test_a_table_of_positions_alone_gets_a_channel(tmp_path: Path) -> None:
    found = of(tmp_path, "time,x,y,z\n0,100,0,30\n10,200,0,30\n")
    expected = free_space_db(np.array([100.0, 150.0]), 2e9)
    np.testing.assert_allclose(-gains_db(found)[0, [0, 50]], expected, atol=1e-9)


# --- forms of tables -----------------------------------------------------------------------------


def test_units_are_converted(tmp_path: Path) -> None:
    text = "t,lat,lon,alt,link\n0,100000000,200000000,100,5\n1000,100000900,200000000,200,7\n"
    columns = {"time": "t:ms", "latitude": "lat:deg1e7", "longitude": "lon:deg1e7"}
    columns |= {"height": "alt:ft", "rate_bps": "link:Mbit/s"}
    found = of(tmp_path, text, slot_s=1.0, columns=columns)
    np.testing.assert_allclose(rates(found)[0], [[5e6, 7e6]])
    position = found.trace.position_m
    assert position is not None
    # 0.00009 degrees at 10 degrees of latitude, of 110.6 km each
    np.testing.assert_allclose(position[0, 1], [0, 9.955, 60.96], atol=5e-3)
    linear = of(tmp_path, "time,g\n0,1e-9\n1,0\n", slot_s=1.0, columns={"gain_db": "g:linear"})
    assert linear.trace.values.tolist() == [[1e-9, 0]]
    loss = of(tmp_path, "time,loss_db\n0,90\n1,100\n", slot_s=1.0)
    np.testing.assert_allclose(gains_db(loss), [[-90, -100]])


def test_a_table_without_names_a_wide_one_and_one_with_other_separators(tmp_path: Path) -> None:
    bare = of(
        tmp_path,
        "# seconds and Mbit/s\n0 5\n1 7.5\n",
        slot_s=1.0,
        header=False,
        columns={"time": "1:s", "rate_bps": "2:Mbit/s"},
    )
    np.testing.assert_allclose(rates(bare)[0], [[5e6, 7.5e6]])
    wide = of(
        tmp_path,
        "time;up_10;down_10;up_2;down_2\n0;1;2;3;4\n1;5;6;7;8\n",
        slot_s=1.0,
        columns={"uplink_bps": "up_*:Mbit/s", "downlink_bps": "down_*:Mbit/s"},
    )
    np.testing.assert_allclose(rates(wide)[0], [[3e6, 7e6], [1e6, 5e6]])
    np.testing.assert_allclose(rates(wide)[1], [[4e6, 8e6], [2e6, 6e6]])
    assert wide.names == ["2", "10"]
    whole = of(tmp_path, "time,a,b\n0,1,2\n1,2,3\n", columns={"rate_bps": "*:Mbit/s"})
    assert whole.names == ["a", "b"]
    with pytest.raises(InputError, match=r"has no column 'down_10' for downlink_bps"):
        of(
            tmp_path,
            "time,up_10,up_2,down_2\n0,1,2,3\n",
            columns={"uplink_bps": "up_*:Mbit/s", "downlink_bps": "down_*:Mbit/s"},
        )


def test_several_files_have_one_clock(tmp_path: Path) -> None:
    texts = ["time,gain_db\n100,-80\n102,-81\n", "time,gain_db\n101,-90\n103,-91\n"]
    found = of(tmp_path, *texts, slot_s=1.0, hold=True)
    np.testing.assert_allclose(gains_db(found), [[-80, -80, -81, -81], [-90, -90, -90, -91]])
    assert found.names == ["a", "b"]
    (tmp_path / "n").mkdir()
    for path in ("a.csv", "n/a.csv"):
        (tmp_path / path).write_text(texts[0])
    same = [tmp_path / "a.csv", tmp_path / "n" / "a.csv"]
    assert imported("csv", same, Options()).names == [*map(str, same)]
    with pytest.raises(InputError, match=r"`files`: .*a.csv is given twice"):
        imported("csv", [same[0], same[0]], Options())
    found = of(tmp_path, *texts, slot_s=1.0)
    np.testing.assert_array_equal(found.trace.values[1, :2] > 0, [False, True])
    each = of(tmp_path, *texts, slot_s=1.0, clock="each")
    np.testing.assert_allclose(gains_db(each), [[-80, -80, -81], [-90, -90, -91]])


def test_north_east_down_is_turned_and_heights_belong_to_any_coordinates(tmp_path: Path) -> None:
    found = of(tmp_path, "time,north,east,down\n0,0,0,-60\n1,50,20,-61\n", slot_s=1.0)
    assert found.trace.position_m is not None
    np.testing.assert_array_equal(found.trace.position_m[0], [[0, 0, 60], [20, 50, 61]])
    columns = {"north": "x", "east": "y", "down": "z"}  # Names of lengths in m.
    again = of(tmp_path, "time,x,y,z\n0,0,0,-60\n1,50,20,-61\n", slot_s=1.0, columns=columns)
    np.testing.assert_array_equal(again.trace.position_m, found.trace.position_m)
    xy = of(tmp_path, "time,x,y,height\n0,100,0,60\n1,110,0,60\n", slot_s=1.0)
    np.testing.assert_array_equal(xy.trace.position_m, [[[100, 0, 60], [110, 0, 60]]])
    both = "time,latitude,longitude,height,x,y,z\n0,10,20,50,0,0,9.8\n1,10.0001,20,50,0,0,9.8\n"
    places = {name: name for name in ("latitude", "longitude")}
    chosen = of(tmp_path, both, slot_s=1.0, columns=places).trace.position_m
    assert chosen is not None
    np.testing.assert_allclose(chosen[0, 1], [0, 11.06, 50], atol=5e-3)


def test_heights_above_the_sea_are_lowered_to_the_ground(tmp_path: Path) -> None:
    text = "time,latitude,longitude,height\n0,10,20,1640\n1,10.0001,20,1650\n"
    for ground_m, heights in ((1600.0, [40, 50]), ("lowest", [0, 10])):
        found = of(tmp_path, text, slot_s=1.0, ground_m=ground_m)
        assert found.trace.position_m is not None
        assert found.trace.position_m[0, :, 2].tolist() == heights
    assert "the ground is at 1640 m" in found.line()
    with pytest.raises(InputError, match="line 2: height 1640 m is probably above the sea"):
        of(tmp_path, text)


@pytest.mark.parametrize(
    ("times", "options"),
    [
        (["2024-05-31T12:00:00Z", "2024-05-31T14:00:01+02:00"], {}),
        (["2024-05-31 12:00:00", "2024-05-31 12:00:01"], {}),
        (["23:59:58", "23:59:59"], {}),
        (["31.05.2024 12:00:00", "31.05.2024 12:00:01"], {"time_format": "%d.%m.%Y %H:%M:%S"}),
        (["1717156800", "1717156801"], {}),
        (["1717156800000", "1717156801000"], {"columns": {"time": "time:ms"}}),
        (["0", "1000000000"], {"columns": {"time": "time:ns"}}),
        (["0", "60"], {"columns": {"time": "time:s"}, "slot_s": 1.0}),
    ],
)
def test_times_that_have_one_meaning_are_read(
    times: list[str], options: Any, tmp_path: Path
) -> None:
    text = f"time,gain_db\n{times[0]},-80\n{times[1]},-81\n"
    found = of(tmp_path, text, **{"slot_s": 0.5} | options)
    seconds = 60 if times[1] == "60" else 1
    slot_s = found.trace.slot_s
    assert found.trace.slots == int(seconds / slot_s) + 1
    np.testing.assert_allclose(gains_db(found)[0, [0, -2, -1]], [-80, -80, -81])


def test_rows_of_the_same_time_follow_a_rule(tmp_path: Path) -> None:
    text = "time,rate_bps\n0,1e6\n0,3e6\n1,5e6\n"
    for rule, expected in (("first", 1e6), ("last", 3e6), ("mean", 2e6)):
        assert rates(of(tmp_path, text, slot_s=1.0, same_time=rule))[0].tolist() == [
            [expected, 5e6]
        ]


ONE_UAV = {"uavs": {"count": 1, "tx_power_w": [0.5]}, "paradigm": "sfl-pp"}
SHANNON_HZ = {"uplink_bandwidth_hz": 5e6, "downlink_bandwidth_hz": 20e6}


@pytest.mark.parametrize(
    ("radio", "noise_w"),
    [
        # Noise in the whole band of each direction: -114 dBm/MHz is 10^-17.4 mW/Hz.
        (SHANNON_HZ, (5e6 * 10**-20.4, 20e6 * 10**-20.4)),
        (
            {"access": "lte", "lte": {"noise_figure_db": 9.0, "resource_blocks": 50}}
            | {"uplink_bandwidth_hz": 20e6, "downlink_bandwidth_hz": 20e6},
            (50 * 180e3 * 10**-19.5, 100 * 180e3 * 10**-19.5),
        ),
        (
            {"access": "wifi", "wifi": {"noise_figure_db": 7.0, "width_mhz": 40}},
            (40e6 * 10**-19.7,) * 2,
        ),
    ],
)
def test_a_signal_to_noise_ratio_is_a_gain_by_the_scenarios_power_and_noise(
    radio: Any, noise_w: tuple[float, float], tmp_path: Path
) -> None:
    station = {"base_station": {"tx_power_w": 10.0}}
    scenario = validate(ONE_UAV | station | {"radio": {"noise_dbm_per_mhz": -114.0} | radio}, "t")
    found = of(tmp_path, "time,snr_db\n0,20\n1,-3\n", slot_s=1.0, scenario=scenario)
    expected = np.array([[1e2, 10**-0.3]])
    assert isinstance(found.trace, ChannelTrace)
    np.testing.assert_allclose(found.trace.gain * 0.5 / noise_w[0], expected, rtol=1e-9)
    assert found.trace.gain_down is None
    text = "time,snr_up_db,snr_down_db\n0,20,10\n1,-3,0\n2,empty,5\n"
    found = of(
        tmp_path, text.replace("empty", "-99"), slot_s=1.0, scenario=scenario, no_signal="-99"
    )
    assert isinstance(found.trace, ChannelTrace)
    assert found.trace.gain_down is not None
    np.testing.assert_allclose(
        found.trace.gain * 0.5 / noise_w[0], [[1e2, 10**-0.3, 0.0]], rtol=1e-9
    )
    down = found.trace.gain_down * (scenario.access_point_power_w if "wifi" in radio else 10.0)
    np.testing.assert_allclose(down / noise_w[1], [[10.0, 1.0, 10**0.5]], rtol=1e-9)


def test_what_a_gain_of_a_ratio_needs_is_said(tmp_path: Path) -> None:
    text = "time,snr_db\n0,20\n1,59\n"
    with pytest.raises(
        InputError, match=r"`scenario`: is missing; a signal-to-noise ratio becomes"
    ):
        of(tmp_path, text, slot_s=1.0)
    three = load(Path("quickstart"))
    with pytest.raises(InputError, match=r"`scenario`: uavs.count is 3; the table's number of UA"):
        of(tmp_path, text, slot_s=1.0, scenario=three)
    weak = {"uavs": {"count": 1, "tx_power_w": [1e-6]}, "radio": {"noise_dbm_per_mhz": -90.0}}
    scenario = validate(ONE_UAV | weak, "t")
    with pytest.raises(InputError, match=r"line 3: snr_db 59 would need a gain of \d"):
        of(tmp_path, text, slot_s=1.0, scenario=scenario)
    with pytest.raises(InputError, match=r"line 3: snr_db 61 is not from -40 to 60 dB"):
        of(tmp_path, text.replace("59", "61"), slot_s=1.0, scenario=scenario)
    with pytest.raises(InputError, match="snr_up_db is missing"):
        of(tmp_path, text.replace("snr", "snr_down"), slot_s=1.0, scenario=scenario)


def test_a_link_without_signal_is_an_outage_if_the_user_says_so(tmp_path: Path) -> None:
    text = "time,rsrp_dbm\n0,-95\n1,0\n2,-96\n"
    found = of(tmp_path, text, slot_s=1.0, tx_dbm=18.0, no_signal="0")
    np.testing.assert_allclose(found.trace.values, [[10**-11.3, 0, 10**-11.4]])
    empty = of(tmp_path, "time,rate_bps\n0,1e6\n1,\n2,2e6\n", slot_s=1.0, no_signal="empty")
    assert rates(empty)[0].tolist() == [[1e6, 0, 2e6]]


def test_a_window_is_cut_and_a_trace_is_repeated(tmp_path: Path) -> None:
    text = "time,gain_db\n" + "".join(f"{100 + n},{-80 - n}\n" for n in range(10))
    found = of(tmp_path, text, slot_s=1.0, first="2.5", last="5.5")
    # The first slot has half of -82 dB and half of -83 dB.
    expected = [(10**-8.2 + 10**-8.3) / 2, (10**-8.3 + 10**-8.4) / 2, (10**-8.4 + 10**-8.5) / 2]
    np.testing.assert_allclose(found.trace.values, [expected])
    dated = "time,rate_bps\n" + "".join(f"2024-01-01T00:00:{n:02},{n}e6\n" for n in range(10))
    moments = {"first": "2024-01-01T00:00:03", "last": "2024-01-01 00:00:05"}
    assert rates(of(tmp_path, dated, slot_s=1.0, **moments))[0].tolist() == [[3e6, 4e6]]
    for repeat, slots in (("3", 30), ("25s", 25)):
        again = of(tmp_path, dated, slot_s=1.0, repeat=repeat)
        assert rates(again)[0][0].tolist() == [1e6 * (n % 10) for n in range(slots)]


# --- what is refused -----------------------------------------------------------------------------

LAT, XYZ = "time,latitude,longitude,height\n", "time,x,y,z\n"
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    # No table
    ("", {}, "is not a CSV file"),
    ("a,b\n1,2\n", {}, "has no column for time; it has a, b"),
    ("time,gain_db\n", {}, "has no rows"),
    ("time,gain_db\n0,-80\n1,-81,2\n", {}, "line 3 has 3 fields, and the lines before it have 2"),
    ("time,gain_db\n0,-80,1\n", {}, "is not a CSV file (a row has more fields"),
    ("time,gain_db,gain_db\n0,-80,-81\n", {}, "has two columns 'gain_db'"),
    ("0,-80\n1,-81\n", {}, "its first line has numbers; give `header`"),
    ('time,gain_db\n0,"-80\n1"\n', {}, "a quoted value contains a line break"),
    ("time,b\n0,1\n", {}, "has neither positions nor any of gain_db"),
    # Columns
    ("time,b\n0,1\n", {"columns": {"rsrp_dbm": "RSRP"}}, "has no column 'RSRP'; it has time"),
    ("time,b\n0,1\n", {"columns": {"power": "b"}}, "`columns` power: is not one of time, uav"),
    ("time,b\n0,1\n", {"columns": {"rate_bps": "b:Mbps"}}, "rate_bps: unit 'Mbps' is not one of"),
    ("time,lon\n0,1\n", {"columns": {"latitude": "lon"}}, "latitude: is mapped to the column"),
    ("time,dl\n0,1\n", {"columns": {"uplink_bps": "dl"}}, "uplink_bps: is mapped to the column"),
    ("time,uplink_bps\n0,1e6\n", {}, "downlink_bps is missing; rate_bps is the rate of both"),
    ("time,gain_db,rsrp_dbm\n0,-80,-70\n", {"tx_dbm": 30.0}, "has gain_db and rsrp_dbm; choose"),
    (LAT.replace("height", "x,y") + "0,1,2,3,4\n", {}, "has x and latitude; choose one"),
    ("time,x,z\n0,1,2\n", {}, "y is missing"),
    ("time,z\n0,1\n", {}, "has z and no other coordinates"),
    ("time,uav,gain_db\n0,,-80\n", {}, "line 2: uav is empty"),
    # Units
    ("t_ms,gain_db\n0,-80\n", {"columns": {"time": "t_ms"}}, "is column 't_ms' in ms? give its"),
    ("time,kbps\n0,5\n", {"columns": {"rate_bps": "kbps"}}, "is column 'kbps' in kbit/s?"),
    ("time,rate_bps\n0,5.5\n1,20\n", {}, "line 3: rate_bps is at most 20 bit/s; give its unit"),
    ("time,rate_bps\n0,1e12\n", {}, "line 2: rate_bps 1e+12 is not from 0 to 1e+11 bit/s"),
    ("time,gain_db\n0,1e-9\n1,2e-9\n", {}, "is not from -250 to 0 dB"),
    ("time,gain_db\n0,-1e-9\n1,-2e-9\n", {}, "almost 0 dB in all rows; is its unit linear?"),
    ("time,gain_db\n0,90\n", {}, "line 2: gain_db 90 is not from -250 to 0 dB"),
    ("time,loss_db\n0,-90\n", {}, "line 2: -loss_db 90 is not from -250 to 0 dB"),
    ("time,rsrp_dbm\n0,-95\n1,0\n", {"tx_dbm": 1.0}, "line 3: rsrp_dbm 0 is not from -156 to -31"),
    ("time,rsrp_dbm\n0,-95\n", {"tx_dbm": -99.0}, "gain_db (rsrp_dbm - tx_dbm) 4 is not from"),
    ("time,rsrp_dbm\n0,-80\n", {}, "`tx_dbm`: is missing"),
    # Cells
    ("time,gain_db\n\n0,-80\n\n1,loud\n", {}, "line 5: gain_db must be a number, not 'loud'"),
    ("time,gain_db\n0,-80\n1,\n", {}, "line 3: gain_db is empty"),
    ("time;gain_db\n0;-80,5\n", {}, "must be a number, not '-80,5'; decimals have a point"),
    # Times
    ("time,gain_db\n0,-80\n0,-81\n", {}, "line 3: its time is not after"),
    ("time,gain_db\n0,-80\n1,-81\n0.5,-81\n", {}, "line 4: its time is before"),
    ("time,gain_db\nsoon,-80\n", {}, "line 2: time 'soon' is neither a number nor of ISO 8601"),
    ("time,gain_db\n03/04/2024 10:00,-80\n", {}, "is neither a number nor of ISO 8601"),
    ("time,gain_db\n2024-02-30,-80\n", {}, "line 2: time '2024-02-30' does not exist"),
    (
        "time,gain_db\n2024-01-01T00:00:00Z,-80\n2024-01-01T00:00:01,-80\n",
        {},
        "line 3: some times have a time zone and some have none",
    ),
    ("time,gain_db\n1717156800000,-80\n", {}, "is too large for seconds; give the unit"),
    ("time,gain_db\n0,-80\n100,-80\n200,-80\n", {}, "times rise by 100 per row, which may be"),
    ("time,gain_db\n0,-80\n0.00001,-80\n", {}, "times rise by 1e-05 per row"),
    (
        "time,gain_db\n0,-80\n0.5,-80\n1,-80\n70.5,-80\n",
        {},
        "line 5: nothing is known for 69.5 s before",
    ),
    (
        "time,uav,gain_db\n0,1,-80\n0,2,-80\n90,1,-80\n",
        {"columns": {"time": "time:s"}, "longest_gap_s": 89.0},
        "line 4: nothing is known for 90 s before it",
    ),
    (
        "time,uav,gain_db\n0,1,-8\n0,2,-8\n50,1,-8\n99.5,1,-8\n",
        {"columns": {"time": "time:s"}},
        "is known for 99.5 s after it",
    ),
    ("time,gain_db\n0,-80\n1,-80\n", {"time_format": "%Y"}, "time '0' is not of `time_format`"),
    # Places
    (LAT + "0,120,10,30\n", {}, "line 2: latitude 120 is outside ±90 degrees"),
    (LAT + "0,10,200,30\n", {}, "line 2: longitude 200 is outside ±180 degrees"),
    (LAT + "0,4e8,1e8,3\n", {}, "degrees times 1e7 have the unit deg1e7"),
    (LAT + "0,0,0,30\n1,10,20,30\n", {}, "line 2: latitude and longitude are 0, as without"),
    (LAT + "0,10,20,30\n1,11,20,30\n", {}, "line 3: lies 111 km away from the origin 10.0"),
    (LAT + "0,10,20,30\n1,10.1,20,30\n", {}, "line 3: is reached at 11,061 m/s; at most 100"),
    (LAT + "0,10,20,1640\n", {}, "line 2: height 1640 m is probably above the sea"),
    ("time,latitude,longitude\n0,10,20\n", {}, "line 2: has no height; give `height_m`"),
    (XYZ + "0,0,0,-60\n", {}, "line 2: is 60 m below the ground; in a table with the axes"),
    (XYZ + "0,5e5,4e6,30\n", {}, "line 2: lies 4,031 km away from the origin 0,0"),
    (XYZ + "0,0,0,30\n1,500,0,30\n", {}, "line 3: is reached at 500 m/s"),
    (XYZ + "0,0,0,30\n1,100,0,30\n2,201,0,30\n", {}, "line 4: is reached at 101 m/s"),
    # Options that nothing uses
    ("time,gain_db\n0,-80\n", {"tx_dbm": 1.0}, "`tx_dbm`: is not used: the table has no rsrp"),
    ("time,gain_db\n0,-80\n", {"speed_m_s": 3.0}, "`speed`: is not used by the format csv"),
    ("time,gain_db\n0,-80\n", {"height_m": 3.0}, "`height_m`: is not used by the format csv"),
    ("time,gain_db\n0,-80\n", {"scenario": True}, "`scenario`: is not used by the format csv"),
    (XYZ + "0,0,0,3\n", {"origin": (1.0, 2.0)}, "`origin`: is not used by the format csv"),
    (XYZ + "0,0,0,3\n", {"no_signal": "0"}, "`no_signal`: is not used: the table has neither"),
    ("time,gain_db\n0,-80\n", {"down": [Path("x")]}, "`down`: is not used by the format csv"),
    (
        XYZ + "0,0,0,3\n",
        {"ground_m": 1.0, "height_m": 30.0},
        "`ground_m`: is not used: `height_m` replaces",
    ),
    # Options that are wrong
    ("time,gain_db\n0,-80\n", {"repeat": "often"}, "`repeat`: must be a number of times, or"),
    ("time,gain_db\n0,-80\n", {"first": "5"}, "`from`: must be within the 0.1 s of the file"),
    ("time,gain_db\n0,-80\n1,-80\n", {"last": "9"}, "`to`: must be after `from` and at most"),
    ("time,gain_db\n0,-80\n", {"first": "2024-01-01"}, "`from`: must be in seconds, as the file"),
    ("time,gain_db\n0,-80\n", {"no_signal": "0,,1"}, "`no_signal`: must be one or more values"),
    ("time,gain_db\n0,-80\n", {"same_time": "all"}, "`same_time`: 'all' is not one of first, la"),
    ("time,gain_db\n0,-80\n", {"slot_s": 1e-4}, "`slot_s`: must be from 0.001 to 10"),
    ("time,gain_db\n0,-80\n", {"longest_gap_s": 0.0}, "`longest_gap_s`: must be from 0.001"),
    ("time,gain_db\n0,-80\n", {"repeat": "9999999999s"}, "`repeat`: must be a number of times"),
    ("time,gain_db\n0,-80\n", {"repeat": "999999999"}, "may be imported"),
]


@pytest.mark.parametrize(("text", "options", "says"), REFUSED)
@pytest.mark.filterwarnings("error")
def test_what_cannot_be_right_is_one_line(
    text: str, options: Any, says: str, tmp_path: Path
) -> None:
    if "scenario" in options:
        options = options | {"scenario": load(Path("quickstart"))}
    with pytest.raises(InputError) as raised:
        of(tmp_path, text, **options)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_command_says_what_was_understood_or_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    table, out = tmp_path / "m.csv", tmp_path / "t.npz"
    rows = "".join(
        f"{t},{uav},{t * 10},0,{30 + t},{-80 - t}\n" for t in (0, 1) for uav in ("b", "a")
    )
    table.write_text("time,uav,x,y,z,gain_db\n" + rows)
    words = ["import", "csv", str(table), "--out", str(out), "--slot-s", "1"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    line = (
        f"{out}: 2 UAVs, 2 slots of 1 s (2 s), 10 m east-west x 0 m north-south, heights 30 to "
        "31 m, gains -81 to -80 dB; from 0 s to 2 s; uav1 = a, uav2 = b; heights are taken as "
        "above the ground\n"
    )
    assert done.stdout == line
    out.unlink()
    for more, says in (
        (["--column", "gain_db=x", "--column", "gain_db=y"], "`columns` gain_db: is given twice"),
        (["--column", "gain_db"], "`columns`: must be NAME=COLUMN[:UNIT], not 'gain_db'"),
        (["--set", "seed=1"], "`overrides`: apply to a scenario"),
    ):
        bad = CliRunner().invoke(app, [*words, *more])
        assert isinstance(bad.exception, InputError)
        assert says in str(bad.exception)
        assert not out.exists()
