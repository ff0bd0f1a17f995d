# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A flight as its base station sees it, and path losses, against numbers worked out by hand."""

import numpy as np
import pytest
from synthetic_flights import CARRIER_HZ, STATION_M, Route, lawnmower

from orchestrator.flights.geometry import Path
from testbed.core.errors import InputError

START_M = np.array([[30.0, 0, 50], [50, 0, 50], [70, 0, 50], [70, 40, 50]])


def path(start_m: np.ndarray = START_M, slot_s: float = 2.0) -> Path:
    return Path(start_m, slot_s, STATION_M)


def test_distances_belong_to_the_middle_of_each_slot() -> None:
    found = path()
    np.testing.assert_allclose(
        found.position_m, [[40, 0, 50], [60, 0, 50], [70, 20, 50], [70, 40, 50]]
    )
    # 40 m to the east and 40 m up: 56.57 m, at 45 degrees.
    np.testing.assert_allclose(found.far_m, np.sqrt([3200, 5200, 6900, 8100]))
    np.testing.assert_allclose(found.across_m, np.sqrt([1600, 3600, 5300, 6500]))
    assert found.elevation_deg[0] == pytest.approx(45)
    np.testing.assert_allclose(found.way_m, np.cumsum([0, 20, np.sqrt(500), 20]))
    np.testing.assert_allclose(found.decades_db, 5 * np.log10([3200, 5200, 6900, 8100]))
    np.testing.assert_array_equal(found.height_m, [50] * 4)


def test_velocity_away_is_per_second_and_has_a_sign() -> None:
    # 20 m in 2 s straight away; then 40 m to the north at the place (70, 20); then nothing.
    north = 20 * 20 / np.sqrt(5300)
    np.testing.assert_allclose(path().away_m_s, [10, 10, north, 0])
    back = path(START_M[::-1])
    assert back.away_m_s[1] == pytest.approx(-10)
    climbing = path(np.array([[30.0, 0, 50], [30, 0, 90]]))
    np.testing.assert_allclose(climbing.away_m_s, [0, 0], atol=1e-12)


def test_a_uav_below_the_antenna_has_a_negative_elevation_and_one_above_it_90_degrees() -> None:
    below = path(np.array([[10.0, 0, 0], [10, 0, 0]]))
    np.testing.assert_allclose(below.elevation_deg, [-45, -45])
    above = path(np.array([[0.0, 0, 30], [0, 0, 30]]))
    np.testing.assert_allclose(above.elevation_deg, [90, 90])
    np.testing.assert_array_equal(above.away_m_s, [0, 0])
    np.testing.assert_array_equal(path(np.array([[0.0, 0, 10]] * 2)).far_m, [1, 1])


def test_the_lawnmower_of_the_tests_is_seen_alike() -> None:
    route = lawnmower(300, climbs=True)
    found = Path(route.start_m, 1.0, STATION_M)
    for name in ("far_m", "way_m", "away_m_s", "elevation_deg"):
        np.testing.assert_allclose(getattr(found, name), getattr(route, name), atol=1e-6)


def test_path_losses_are_those_of_their_sources() -> None:
    route = Route(np.array([[200.0, 0, 40], [260, 0, 40], [260, 80, 40], [900, 80, 40]]))
    found = Path(route.start_m, 1.0, STATION_M)
    d, f = route.far_m, CARRIER_HZ / 1e9
    np.testing.assert_allclose(
        found.loss_db("free-space", CARRIER_HZ), route.free_space_db(), atol=1e-4
    )
    # TR 36.777, table B-2: RMa-AV above 10 m and UMa-AV above 22.5 m, both with line of sight.
    slope = max(23.9 - 1.8 * np.log10(40), 20)
    rma_db = slope * np.log10(d) + 20 * np.log10(40 * np.pi * f / 3)
    np.testing.assert_allclose(found.loss_db("rma-av", CARRIER_HZ), rma_db, atol=1e-6)
    uma_db = 28 + 22 * np.log10(d) + 20 * np.log10(f)
    np.testing.assert_allclose(found.loss_db("uma-av", CARRIER_HZ), uma_db, atol=1e-6)


def test_a_uav_on_the_ground_is_taken_as_high_as_the_models_reach() -> None:
    def lost(height_m: float) -> np.ndarray:
        high = path(np.array([[100.0, 0, height_m], [110, 0, height_m]]))
        return high.loss_db("uma-av", CARRIER_HZ)

    np.testing.assert_array_equal(lost(0.0), lost(1.5))


def test_a_model_that_does_not_hold_is_refused_in_a_line() -> None:
    far = path(np.array([[9000.0, 0, 50], [9010, 0, 50]]))
    with pytest.raises(InputError, match="UAV 1 is 50 m high and 9005 m from the base station"):
        far.loss_db("uma-av", CARRIER_HZ)
    with pytest.raises(InputError, match="nowhere-model"):
        far.loss_db("nowhere-model", CARRIER_HZ)
