# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Rician K factor of small-scale fading, for flights that are sampled densely enough."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ns3_scenarios.fading import LIGHT_M_S
from orchestrator.engine.arrays import Array
from orchestrator.flights.fitting import Flown

DENSEST = 0.5
"""Largest path between two values, in wavelengths, at which they resolve the fading."""
WINDOW = 20.0
"""Path in wavelengths over which the mean power is assumed to be constant; Lee, "Estimate of local
average power of a mobile radio signal", IEEE Trans. Veh. Technol. 34(1), 1985, gives 20 to 40."""
FEWEST_WINDOWS, FEWEST_IN_WINDOW = 10, 20
LEVEL_K_DB = (-20.0, 40.0)


@dataclass(frozen=True)
class Rician:
    """The Rician K factor, or the reason why it is unknown."""

    k_db: float | None
    """Power of the direct path relative to all others, in dB; None: unknown."""
    reason: str
    """Reason for which K is unknown; empty if it is known."""


def rician_of(flights: Sequence[Flown], field: str, carrier_hz: float) -> Rician:
    """Estimate the Rician K factor by the method of moments, in windows of `WINDOW` wavelengths.

    With mean m and standard deviation s of the power in a window, v = sqrt(m² - s²) is the power of
    the direct path and K = v / (m - v): Greenstein, Michelson and Erceg, "Moment-method estimation
    of the Ricean K-factor", IEEE Commun. Lett. 3(6), 1999.

    Args:
        flights: The flights.
        field: The level's name in `MeasuredFlight`.
        carrier_hz: Carrier frequency.
    """
    wavelength_m = LIGHT_M_S / carrier_hz
    found: list[float] = []
    steps: list[Array] = []
    for flight in flights:
        level_db = flight.level_db(field)
        used = flight.is_aloft & np.isfinite(level_db)
        turns = flight.path.way_m[used] / wavelength_m
        power = 10 ** (level_db[used] / 10)
        steps.append(np.diff(turns))
        windows = np.floor(turns / WINDOW)
        for window in np.unique(windows):
            inside = windows == window
            if inside.sum() < FEWEST_IN_WINDOW or np.ptp(turns[inside]) < WINDOW / 2:
                continue
            if np.diff(turns[inside]).max() > DENSEST:
                continue
            mean, variance = float(power[inside].mean()), float(power[inside].var())
            direct = np.sqrt(max(mean**2 - variance, 0.0))
            found.append(float(direct / max(mean - direct, 1e-12 * mean)))
    if len(found) < FEWEST_WINDOWS:
        median = float(np.median(np.concatenate(steps)))
        why = f"values are {median:.3g} wavelengths of path apart (median), not {DENSEST:g} or less"
        if median <= DENSEST:
            why = (
                f"values are dense enough in {len(found)} of the {FEWEST_WINDOWS} windows that are "
                f"needed ({WINDOW:g} wavelengths of path each)"
            )
        return Rician(None, why)
    k_db = 10 * np.log10(max(float(np.median(found)), 1e-9))
    return Rician(float(np.clip(k_db, *LEVEL_K_DB)), "")
