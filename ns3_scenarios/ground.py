# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""UMa and UMi of TR 38.901, which TR 36.777 uses for UAVs up to 22.5 m.

Source: 3GPP TR 38.901, tables 7.4.1-1 (path loss, standard deviation of shadow fading) and 7.4.2-1
(LOS probability, outdoors). Distances are in m, losses in dB. UMa's second ray is reflected at an
effective height of the surroundings, which note 1 of table 7.4.1-1 draws for each link; here it is
drawn once per UAV, so that the path loss of a link is continuous.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
LIGHT_M_S = 3.0e8
"""Speed of light in m/s, as TR 38.901 uses it for the break point."""
HIGHEST_M = 22.5


@dataclass(frozen=True)
class Geometry:
    """Geometry of links, as arrays whose shapes can be broadcast."""

    height_m: Array
    """Heights of the UAVs."""
    bs_height_m: float
    across_m: Array
    """Horizontal distance."""
    distance_m: Array
    """Distance in three dimensions."""
    environment_m: Array
    """h_E, the effective height of the surroundings; see `environment_m`."""


@dataclass(frozen=True)
class Ground:
    """One of TR 38.901's channels."""

    los_db: Callable[[Geometry, float], Array]
    """Path loss in dB, from the geometry and the carrier frequency in Hz; `nlos_db` as well."""
    nlos_db: Callable[[Geometry, float], Array]
    los_probability: Callable[[Array, Array], Array]
    """LOS probability from height and horizontal distance."""
    los_deviation_db: float
    """Standard deviation of shadow fading; `nlos_deviation_db` as well."""
    nlos_deviation_db: float
    draws_environment: bool
    """Whether h_E is drawn at random; otherwise it is 1 m."""


def _higher(height_m: Array) -> Array:
    """((h - 13) / 10)^1.5, 0 up to 13 m."""
    return np.asarray((np.maximum(height_m - 13, 0) / 10) ** 1.5)


def _far(across_m: Array) -> Array:
    """5/4 (d / 100)³ exp(-d / 150), 0 up to 18 m."""
    far = 1.25 * (across_m / 100) ** 3 * np.exp(-across_m / 150)
    return np.where(across_m <= 18, 0.0, far)


def environment_m(height_m: Array, across_m: Array, reflects: Array, which: Array) -> Array:
    """h_E of UMa: 1 m with probability 1 / (1 + C), else one of 12, 15, … up to h - 1.5.

    Args:
        height_m: Heights of the UAVs, up to `HIGHEST_M`.
        across_m: Horizontal distance.
        reflects: Uniform random numbers from 0 to 1 that decide whether h_E is above 1 m.
        which: Uniform random numbers from 0 to 1 that choose h_E in that case.
    """
    chance = 1 / (1 + _higher(height_m) * _far(across_m))
    heights = np.floor(np.maximum(height_m - 1.5 - 12, 0) / 3) + 1  # how many there are
    high = 12 + 3 * np.floor(which * heights)
    low = (reflects <= chance) | (height_m < 13.5)
    return np.where(low, 1.0, np.minimum(high, np.maximum(height_m - 1.5, 1.0)))


def _rays_db(links: Geometry, carrier_hz: float, first: float, near: float, bend: float) -> Array:
    """LOS path loss: one slope up to the break point, 40 dB per decade beyond."""
    # Antennas below the effective height of the surroundings have no reflection.
    bs_m = np.maximum(links.bs_height_m - links.environment_m, 0.5)
    uav_m = np.maximum(links.height_m - links.environment_m, 0.5)
    break_m = 4 * bs_m * uav_m * carrier_hz / LIGHT_M_S
    carrier_db = 20 * np.log10(carrier_hz / 1e9)
    rise_m = links.bs_height_m - links.height_m
    below = first + near * np.log10(links.distance_m) + carrier_db
    beyond = first + 40 * np.log10(links.distance_m) + carrier_db
    beyond = beyond - bend * np.log10(break_m**2 + rise_m**2)
    return np.asarray(np.where(links.across_m <= break_m, below, beyond))


def _along_streets(across_m: Array, fades_m: float) -> Array:
    """LOS probability: 1 within 18 m, then decreasing with the distance."""
    near = 18 / np.maximum(across_m, 18)
    return np.asarray(near + np.exp(-across_m / fades_m) * (1 - near))


def _uma_los_db(links: Geometry, carrier_hz: float) -> Array:
    return _rays_db(links, carrier_hz, 28.0, 22.0, 9.0)


def _uma_nlos_db(links: Geometry, carrier_hz: float) -> Array:
    loss_db = 13.54 + 39.08 * np.log10(links.distance_m) + 20 * np.log10(carrier_hz / 1e9)
    high_db = 0.6 * (links.height_m - 1.5)
    return np.asarray(np.maximum(_uma_los_db(links, carrier_hz), loss_db - high_db))


def _uma_probability(height_m: Array, across_m: Array) -> Array:
    chance = _along_streets(across_m, 63)
    return np.where(across_m <= 18, 1.0, chance * (1 + _higher(height_m) * _far(across_m)))


def _umi_los_db(links: Geometry, carrier_hz: float) -> Array:
    return _rays_db(links, carrier_hz, 32.4, 21.0, 9.5)


def _umi_nlos_db(links: Geometry, carrier_hz: float) -> Array:
    loss_db = 22.4 + 35.3 * np.log10(links.distance_m) + 21.3 * np.log10(carrier_hz / 1e9)
    high_db = 0.3 * (links.height_m - 1.5)
    return np.asarray(np.maximum(_umi_los_db(links, carrier_hz), loss_db - high_db))


def _umi_probability(height_m: Array, across_m: Array) -> Array:
    return _along_streets(across_m, 36)


UMA = Ground(_uma_los_db, _uma_nlos_db, _uma_probability, 4.0, 6.0, draws_environment=True)
UMI = Ground(_umi_los_db, _umi_nlos_db, _umi_probability, 4.0, 7.82, draws_environment=False)
