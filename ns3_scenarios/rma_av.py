# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""RMa-AV, the rural channel of aerial vehicles, in plain numpy: reference formulas.

Source: 3GPP TR 36.777 v15.0.0, Annex B: path loss (table B-2), LOS probability (B-1) and shadow
fading (B-3). The channel itself comes from the ns-3 model in ``cpp/``; this module shares no code
with it. Heights are those of the UAV above ground, 10 m < h <= 300 m; lower UAVs have TR 38.901's
RMa, of which only the LOS path loss is here. NLOS exists up to 40 m; above, every link is in line
of sight.
"""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

GROUND_HEIGHT_M = 10.0
"""Up to this height UAVs have the channel of users on the ground."""
FARTHEST_GROUND_NLOS_M = 5000.0
"""Largest horizontal distance of NLOS up to that height."""
GROUND_BS_HEIGHT_M = (10.0, 150.0)
"""Range of base station heights for which the channel up to that height is valid."""
BUILDING_HEIGHT_M = 5.0
"""Average height of buildings, of TR 38.901's range the default."""
LIGHT_M_S = 3.0e8
"""Speed of light in m/s, as TR 38.901 uses it for the break point."""
HIGHEST_NLOS_HEIGHT_M = 40.0
"""Above this height every link is in line of sight."""


def los_path_loss_db(
    height_m: npt.ArrayLike, distance_3d_m: npt.ArrayLike, carrier_hz: float
) -> Array:
    """LOS path loss in dB of UAVs at `height_m`, `distance_3d_m` from the base station."""
    exponent = np.maximum(23.9 - 1.8 * np.log10(height_m), 20)
    return np.asarray(exponent * np.log10(distance_3d_m) + _carrier_loss_db(carrier_hz))


def ground_los_path_loss_db(
    height_m: npt.ArrayLike, bs_height_m: float, distance_3d_m: npt.ArrayLike, carrier_hz: float
) -> Array:
    """LOS path loss in dB of UAVs up to 10 m: RMa of TR 38.901, table 7.4.1-1."""
    height, far = np.asarray(height_m, float), np.asarray(distance_3d_m, float)
    across = np.sqrt(np.maximum(far**2 - (height - bs_height_m) ** 2, 0))
    break_m = 2 * np.pi * bs_height_m * height * carrier_hz / LIGHT_M_S
    bend = np.where(across > break_m, break_m, far)
    power = BUILDING_HEIGHT_M**1.72
    near = (
        _carrier_loss_db(carrier_hz)
        + (20 + min(0.03 * power, 10)) * np.log10(bend)
        - min(0.044 * power, 14.77)
        + 0.002 * np.log10(BUILDING_HEIGHT_M) * bend
    )
    return np.asarray(near + 40 * np.log10(far / bend))


def nlos_path_loss_db(
    height_m: npt.ArrayLike, distance_3d_m: npt.ArrayLike, carrier_hz: float
) -> Array:
    """NLOS path loss in dB; for 10 m < height <= 40 m; never below the LOS path loss."""
    exponent = 35 - 5.3 * np.log10(height_m)
    loss = -12 + exponent * np.log10(distance_3d_m) + _carrier_loss_db(carrier_hz)
    return np.maximum(los_path_loss_db(height_m, distance_3d_m, carrier_hz), loss)


def los_probability(height_m: npt.ArrayLike, distance_2d_m: npt.ArrayLike) -> Array:
    """Probability that a UAV at horizontal distance `distance_2d_m` is in line of sight."""
    height, distance = np.broadcast_arrays(
        np.asarray(height_m, float), np.asarray(distance_2d_m, float)
    )
    p1 = np.maximum(15021 * np.log10(height) - 16053, 1000)
    d1 = np.maximum(1350.8 * np.log10(height) - 1602, 18)
    near = d1 / np.maximum(distance, d1)
    probability = near + np.exp(-distance / p1) * (1 - near)
    return np.where(height > HIGHEST_NLOS_HEIGHT_M, 1.0, probability)


def shadow_deviation_db(height_m: npt.ArrayLike, line_of_sight: npt.ArrayLike) -> Array:
    """Standard deviation of shadow fading in dB."""
    return np.where(line_of_sight, 4.2 * np.exp(-0.0046 * np.asarray(height_m, float)), 6.0)


def _carrier_loss_db(carrier_hz: float) -> float:
    return float(20 * np.log10(40 * np.pi * (carrier_hz / 1e9) / 3))
