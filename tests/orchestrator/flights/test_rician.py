# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Rician K of fading that is a sum of plane waves, and why it is not seen in sparse values."""

import numpy as np
import numpy.typing as npt
import pytest
from synthetic_flights import CARRIER_HZ, STATION_M

from orchestrator.flights.measured import MeasuredFlight
from orchestrator.flights.result import flown_in
from orchestrator.flights.rician import Rician, rician_of

Array = npt.NDArray[np.float64]
WAVELENGTH_M = 299792458.0 / CARRIER_HZ
WAVES = 60


def faded_db(turns: Array, k_db: float, seed: int) -> Array:
    """Power in dB along a straight path in wavelengths: waves from all around, and a direct one."""
    rng = np.random.default_rng((0xFADE, seed))
    angles = 2 * np.pi * (np.arange(WAVES) + rng.random(WAVES)) / WAVES
    phases = rng.uniform(0, 2 * np.pi, WAVES)
    k = 10 ** (k_db / 10)
    field = np.zeros(len(turns), complex)
    for angle, phase in zip(angles, phases, strict=True):
        field += np.exp(1j * (2 * np.pi * turns * np.cos(angle) + phase))
    field *= np.sqrt(1 / WAVES / (k + 1))
    field += np.sqrt(k / (k + 1)) * np.exp(2j * np.pi * turns * np.cos(1.0))
    return np.asarray(20 * np.log10(np.abs(field)))


def seen(
    k_db: float, step: float, slots: int = 12000, seed: int = 1, slope_db: float = 0.0
) -> Rician:
    """What is found on a straight flight with values that are `step` wavelengths apart."""
    turns = step * np.arange(slots)
    start_m = np.zeros((slots, 3)) + np.array([50.0, 0, 25])
    start_m[:, 1] = turns * WAVELENGTH_M
    # Slow changes of the mean: shadowing of 8 dB over 100 wavelengths.
    level_db = -80 + faded_db(turns, k_db, seed) + slope_db * np.sin(2 * np.pi * turns / 400)
    flight = MeasuredFlight(
        start_m[None], 0.01, rsrp_dbm=np.maximum(level_db, -159)[None], base_station=STATION_M
    )
    return rician_of(flown_in({"f": flight}), "rsrp_dbm", CARRIER_HZ)


@pytest.mark.parametrize("k_db", [0.0, 6.0, 12.0])
@pytest.mark.parametrize("slope_db", [0.0, 4.0])
def test_k_is_found_in_dense_values(k_db: float, slope_db: float) -> None:
    found = seen(k_db, 0.2, slope_db=slope_db)
    assert found.reason == ""
    assert found.k_db == pytest.approx(k_db, abs=1.5)


def test_rayleigh_fading_has_a_low_k() -> None:
    found = seen(-60.0, 0.2)
    assert found.k_db is not None
    assert found.k_db < -2


def test_values_half_a_wavelength_apart_are_the_sparsest_that_show_k() -> None:
    assert seen(6.0, 0.49).k_db == pytest.approx(6.0, abs=1.5)
    sparse = seen(6.0, 0.55)
    assert sparse.k_db is None
    assert sparse.reason == "values are 0.55 wavelengths of path apart (median), not 0.5 or less"


def test_a_second_at_some_metres_per_second_does_not_show_k() -> None:
    assert seen(6.0, 70.0, slots=300).reason.startswith("values are 70 wavelengths of path apart")


@pytest.mark.parametrize(("slots", "windows"), [(140, 1), (940, 9)])
def test_a_short_path_does_not_show_k_and_says_so(slots: int, windows: int) -> None:
    # 100 values per window of 20 wavelengths; one of less than half that length does not count.
    found = seen(6.0, 0.2, slots=slots)
    assert found.k_db is None
    assert found.reason == (
        f"values are dense enough in {windows} of the 10 windows that are needed "
        "(20 wavelengths of path each)"
    )


def test_a_uav_at_rest_does_not_show_k() -> None:
    found = seen(6.0, 0.0, slots=500)
    assert found == Rician(
        None,
        "values are dense enough in 0 of the 10 windows that are needed "
        "(20 wavelengths of path each)",
    )


def test_the_ratio_of_the_uplink_is_taken_without_its_noise() -> None:
    turns = 0.2 * np.arange(6000)
    start_m = np.zeros((6000, 3)) + np.array([50.0, 0, 25])
    start_m[:, 1] = turns * WAVELENGTH_M
    ratio = 10 ** (faded_db(turns, 6.0, 1) / 10)  # 0 dB on average: the noise is as strong
    flight = MeasuredFlight(
        start_m[None],
        0.01,
        snr_up_db=10 * np.log10(1 + ratio)[None],
        base_station=STATION_M,
    )
    found = rician_of(flown_in({"f": flight}), "snr_up_db", CARRIER_HZ)
    assert found.k_db == pytest.approx(6.0, abs=1.5)
