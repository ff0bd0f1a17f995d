# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""UMa-AV and UMi-AV, the urban channels of aerial vehicles, and free-space, two-ray and
log-distance models.

Source: 3GPP TR 36.777 v15.0.0, Annex B: path loss (table B-2), LOS probability (B-1), shadow fading
(B-3), for UAVs above 22.5 m; up to 22.5 m TR 38.901's UMa and UMi apply (`ground`). Correlation
distances of shadowing and LOS state: TR 38.901, tables 7.5-6 and 7.6.3.1-2. Distances are in m,
losses in dB; `rma_av` has the rural channel. Free space and two rays follow ns-3's
FriisPropagationLossModel and TwoRayGroundPropagationLossModel.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ns3_scenarios import ground
from ns3_scenarios.ground import Ground

Array = npt.NDArray[np.float64]
Loss = Callable[[Array, Array, float], Array]
"""Path loss in dB, from height in m, 3D distance in m and carrier frequency in Hz."""
LIGHT_M_S = 299_792_458.0
LOG_DISTANCE = "log-distance"
EXPONENTS = 0.5, 8.0
"""The smallest and the largest path loss exponent."""


@dataclass(frozen=True)
class Aerial:
    """One of TR 36.777's channels, and its range of validity."""

    name: str
    ground: Ground
    """The channel of UAVs up to 22.5 m."""
    lowest_m: float
    """Smallest height of a UAV."""
    highest_m: float
    highest_nlos_m: float
    """Above this height every link is in line of sight."""
    farthest_m: float
    """Largest horizontal distance."""
    los_db: Loss
    nlos_db: Loss
    los_probability: Callable[[Array, Array], Array]
    """LOS probability from height and horizontal distance."""
    los_deviation_db: Callable[[Array], Array]
    """Standard deviation of shadow fading in LOS, from the height."""
    nlos_deviation_db: float
    state_m: float
    """Correlation distance of the LOS state; the next two are those of shadowing."""
    los_shadow_m: float
    nlos_shadow_m: float


def free_space_db(distance_m: npt.ArrayLike, carrier_hz: float) -> Array:
    """Free-space path loss (Friis)."""
    return np.asarray(20 * np.log10(4 * np.pi * np.asarray(distance_m) * carrier_hz / LIGHT_M_S))


def two_ray_db(
    height_m: npt.ArrayLike, bs_height_m: float, distance_m: npt.ArrayLike, carrier_hz: float
) -> Array:
    """Two rays over flat ground: free space up to 4 π h h' / λ, beyond it d⁴ / (h h')²."""
    heights, distance = np.asarray(height_m) * bs_height_m, np.asarray(distance_m)
    crossover_m = 4 * np.pi * heights * carrier_hz / LIGHT_M_S
    beyond = 40 * np.log10(distance) - 20 * np.log10(heights)
    return np.where(distance <= crossover_m, free_space_db(distance, carrier_hz), beyond)


def log_distance_db(distance_m: npt.ArrayLike, carrier_hz: float, exponent: float = 2.0) -> Array:
    """Free space up to 1 m, and 10 · exponent dB per decade of the distance beyond it."""
    return np.asarray(free_space_db(1.0, carrier_hz) + 10 * exponent * np.log10(distance_m))


def check_exponent(exponent: Any = 2.0) -> None:
    """Check the parameter of the log-distance model.

    Raises:
        ValueError: The exponent is not a number, or not within `EXPONENTS`.
    """
    low, high = EXPONENTS
    is_number = isinstance(exponent, int | float) and not isinstance(exponent, bool)
    if not (is_number and low <= exponent <= high):
        raise ValueError(
            f"parameters.exponent: must be a number from {low:g} to {high:g}, not {exponent!r}"
        )


def _by_distance(distance_m: Array, p1: Array, d1: Array) -> Array:
    """LOS probability of table B-1: 1 up to d1, then decreasing with p1."""
    near = d1 / np.maximum(distance_m, d1)
    return np.asarray(near + np.exp(-distance_m / p1) * (1 - near))


def _uma_los_db(height_m: Array, distance_m: Array, carrier_hz: float) -> Array:
    return np.asarray(28.0 + 22 * np.log10(distance_m) + 20 * np.log10(carrier_hz / 1e9))


def _uma_nlos_db(height_m: Array, distance_m: Array, carrier_hz: float) -> Array:
    slope = 46 - 7 * np.log10(height_m)
    carrier_db = 20 * np.log10(40 * np.pi * (carrier_hz / 1e9) / 3)
    return np.asarray(-17.5 + slope * np.log10(distance_m) + carrier_db)


def _uma_probability(height_m: Array, distance_m: Array) -> Array:
    p1 = 4300 * np.log10(height_m) - 3800
    d1 = np.maximum(460 * np.log10(height_m) - 700, 18)
    return np.where(height_m > UMA.highest_nlos_m, 1.0, _by_distance(distance_m, p1, d1))


def _umi_los_db(height_m: Array, distance_m: Array, carrier_hz: float) -> Array:
    slope = 22.25 - 0.5 * np.log10(height_m)
    loss_db = 30.9 + slope * np.log10(distance_m) + 20 * np.log10(carrier_hz / 1e9)
    return np.asarray(np.maximum(free_space_db(distance_m, carrier_hz), loss_db))


def _umi_nlos_db(height_m: Array, distance_m: Array, carrier_hz: float) -> Array:
    slope = 43.2 - 7.6 * np.log10(height_m)
    loss_db = 32.4 + slope * np.log10(distance_m) + 20 * np.log10(carrier_hz / 1e9)
    return np.asarray(np.maximum(_umi_los_db(height_m, distance_m, carrier_hz), loss_db))


def _umi_probability(height_m: Array, distance_m: Array) -> Array:
    p1 = 233.98 * np.log10(height_m) - 0.95
    d1 = np.maximum(294.05 * np.log10(height_m) - 432.94, 18)
    return _by_distance(distance_m, p1, d1)


UMA = Aerial(
    name="uma-av",
    ground=ground.UMA,
    lowest_m=1.5,
    highest_m=300.0,
    highest_nlos_m=100.0,
    farthest_m=4000.0,
    los_db=_uma_los_db,
    nlos_db=_uma_nlos_db,
    los_probability=_uma_probability,
    los_deviation_db=lambda height_m: 4.64 * np.exp(-0.0066 * height_m),
    nlos_deviation_db=6.0,
    state_m=50.0,
    los_shadow_m=37.0,
    nlos_shadow_m=50.0,
)
UMI = Aerial(
    name="umi-av",
    ground=ground.UMI,
    lowest_m=1.5,
    highest_m=300.0,
    highest_nlos_m=300.0,
    farthest_m=4000.0,
    los_db=_umi_los_db,
    nlos_db=_umi_nlos_db,
    los_probability=_umi_probability,
    los_deviation_db=lambda height_m: np.maximum(5 * np.exp(-0.01 * height_m), 2.0),
    nlos_deviation_db=8.0,
    state_m=50.0,
    los_shadow_m=10.0,
    nlos_shadow_m=13.0,
)
AERIAL = {model.name: model for model in (UMA, UMI)}
