# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The file of a measured flight: what comes back, and what is refused in one line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orchestrator.flights.measured import BOUNDS, MeasuredFlight, load_flight
from testbed.core.errors import InputError

POSITION = np.array([[[0.0, 0, 25], [3, 4, 25], [6, 8, 26]]])


def fields(**changed: Any) -> dict[str, Any]:
    given = {"position": POSITION, "slot_s": 1.0, "rsrp_dbm": np.array([[-60.0, np.nan, -62.5]])}
    return {name: value for name, value in (given | changed).items() if value is not None}


def test_a_flight_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    values = {name: np.array([[0.0, np.nan, least + 1]]) for name, (least, _) in BOUNDS.items()}
    given = MeasuredFlight(
        POSITION,
        1.0,
        **(values | {"connected": np.array([[0.0, np.nan, 1.0]])}),
        base_station=np.array([0.0, 0, 10]),
        origin=np.array([35.7, -78.6]),
        carrier_up_hz=3.41e9,
        carrier_down_hz=3.51e9,
        resource_blocks=100,
        start="2024-05-14T10:20:30.250000",
        source=json.dumps({"ue": {"file": "u", "sha256": "0"}}),
    )
    given.save(tmp_path / "f.npz")
    found = load_flight(tmp_path / "f.npz")
    for name in MeasuredFlight.__dataclass_fields__:
        np.testing.assert_equal(getattr(found, name), getattr(given, name), err_msg=name)
    assert (found.uavs, found.slots) == (1, 3)
    np.testing.assert_array_equal(found.times_s, [0, 1, 2])


def test_a_flight_needs_only_positions_and_one_level(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", **fields())
    found = load_flight(tmp_path / "f.npz")
    np.testing.assert_array_equal(found.rsrp_dbm, [[-60, np.nan, -62.5]])
    assert np.isnan(found.mcs_up).all()
    assert found.mcs_up.shape == (1, 3)
    assert found.base_station is None
    assert found.resource_blocks is None
    found.save(tmp_path / "again.npz")
    with np.load(tmp_path / "again.npz") as file:
        assert sorted(file.files) == ["position", "rsrp_dbm", "slot_s"]


def test_the_gains_of_a_trace_are_decibels(tmp_path: Path) -> None:
    position = np.repeat(POSITION, 2, axis=0)
    gain = np.array([[1e-9, 0, 1e-10], [1e-8, 1e-8, 1e-7]])
    np.savez(tmp_path / "t.npz", gain=gain, position=position, slot_s=1.0)
    found = load_flight(tmp_path / "t.npz")
    np.testing.assert_allclose(found.gain_db, [[-90.0, np.nan, -100.0], [-80.0, -80.0, -70.0]])
    np.testing.assert_array_equal(found.gain_down_db, found.gain_db)
    np.savez(tmp_path / "t.npz", gain_up=gain, gain_down=gain / 10, position=position, slot_s=1.0)
    found = load_flight(tmp_path / "t.npz")
    np.testing.assert_allclose(found.gain_down_db, found.gain_db - 10)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"position": None}, "position is missing"),
        ({"slot_s": None}, "slot_s is missing"),
        ({"slot_s": 0.0}, "slot_s must be one number from"),
        ({"rsrp_dbm": None}, "has no value of rsrp_dbm, snr_db, snr_up_db, nor gains"),
        ({"rsrp_dbm": np.full((1, 3), np.nan)}, "has no value of rsrp_dbm"),
        ({"rsrp_dbm": np.array([[-60.0, 3, -62]])}, "rsrp_dbm[0, 1] is 3: must be from -160 to 0"),
        ({"rsrp_dbm": np.array([[-60.0, -np.inf, 0]])}, "rsrp_dbm[0, 1] is -inf"),
        (
            {"rsrp_dbm": np.full(3, -60.0)},
            "rsrp_dbm must be real numbers of shape (1, 3), not float64 of shape (3,)",
        ),
        ({"rsrp_dbm": np.full((1, 3), "x")}, "rsrp_dbm must be real numbers"),
        ({"snr_db": np.full((1, 3), 61.0)}, "snr_db[0, 0] is 61: must be from -40 to 60"),
        ({"mcs_up": np.full((1, 3), 32.0)}, "mcs_up[0, 0] is 32: must be from 0 to 31"),
        ({"bler_up": np.full((1, 3), 6.0)}, "bler_up[0, 0] is 6: must be from 0 to 1"),
        ({"uplink_bps": np.full((1, 3), -1.0)}, "uplink_bps[0, 0] is -1: must be from 0"),
        ({"connected": np.full((1, 3), 0.5)}, "connected[0, 0] is 0.5: must be 0 or 1"),
        ({"position": POSITION[0]}, "position must be numbers of shape [K, S, 3]"),
        ({"position": POSITION * np.nan}, "position[0, 0] is (NaN, NaN, NaN)"),
        ({"position": POSITION * [1000, 1000, 1]}, "position[0, 1] would need"),
        (
            {"base_station": np.array([0.0, 0])},
            "base_station must have 3 finite numbers, not [0.0, 0.0]",
        ),
        ({"base_station": np.array([0.0, 0, -1])}, "base_station [0.0, 0.0, -1.0] is not"),
        ({"origin": np.array([95.0, 0])}, "origin must be latitude and longitude"),
        ({"carrier_up_hz": 3410.0}, "carrier_up_hz must be from 1e+07"),
        ({"resource_blocks": 12.5}, "resource_blocks must be an integer"),
        ({"resource_blocks": 0}, "resource_blocks must be from 1 to 275, not 0"),
        ({"start": "yesterday"}, "start must be a date and time of ISO 8601, not 'yesterday'"),
        ({"source": "{"}, "source must be JSON, not '{'"),
        ({"source": np.array([{}], object)}, "not an NPZ trace"),
        ({"gain": np.full((1, 3), 1e-9)}, "has rsrp_dbm and gain; give one or the other"),
        ({"rsrp_dbm": None, "gain": np.full((1, 3), 3.0)}, "gain[0, 0] is 3"),
        ({"rsrp_dbm": None, "position": None, "gain": np.full((1, 3), 1e-9)}, "position is missin"),
    ],
)
def test_what_cannot_be_right_is_one_line(
    changed: dict[str, Any], says: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "f.npz", **fields(**changed))
    with pytest.raises(InputError) as raised:
        load_flight(tmp_path / "f.npz")
    assert f"{tmp_path / 'f.npz'}: {says}" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_no_flight_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_flight(tmp_path / "f.npz")
    (tmp_path / "f.npz").write_text("PK")
    with pytest.raises(InputError, match="not an NPZ trace"):
        load_flight(tmp_path / "f.npz")
