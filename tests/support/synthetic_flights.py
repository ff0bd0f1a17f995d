# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Flights whose channel is known: levels drawn with the full covariance matrix of their path.

Nothing here is taken from the package that fits and forecasts, so that both can be compared.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.flights.measured import MeasuredFlight

Array = npt.NDArray[np.float64]
CARRIER_HZ = 3.5e9
STATION_M = np.array([0.0, 0.0, 10.0])


@dataclass(frozen=True)
class Route:
    """Positions at the start of each second, shape [S, 3], and what follows from them by second."""

    start_m: Array

    @property
    def middle_m(self) -> Array:
        """Positions at the middle of each second, shape [S, 3]; the UAV stops in the last one."""
        return np.array([(a + b) / 2 for a, b in zip(self.start_m, self._ends, strict=True)])

    @property
    def _ends(self) -> Array:
        return np.vstack([self.start_m[1:], self.start_m[-1:]])

    @property
    def far_m(self) -> Array:
        """Distance from the base station, shape [S]."""
        return np.sqrt(((self.middle_m - STATION_M) ** 2).sum(axis=1))

    @property
    def way_m(self) -> Array:
        """Path flown until the middle of each second, shape [S]."""
        legs = np.sqrt(((self.middle_m[1:] - self.middle_m[:-1]) ** 2).sum(axis=1))
        return np.array([legs[:i].sum() for i in range(len(self.start_m))])

    @property
    def away_m_s(self) -> Array:
        """Horizontal velocity away from the base station, shape [S]."""
        angle = np.arctan2(*(self.middle_m - STATION_M).T[1::-1])
        moved = self._ends - self.start_m
        return np.asarray(moved[:, 0] * np.cos(angle) + moved[:, 1] * np.sin(angle))

    @property
    def elevation_deg(self) -> Array:
        """Elevation of the UAV seen from the base station, shape [S]."""
        up = (self.middle_m - STATION_M)[:, 2] / self.far_m
        return np.asarray(np.arcsin(up) * 180 / np.pi)

    def free_space_db(self) -> Array:
        """Loss of free space, shape [S]; Friis in km and MHz."""
        return np.asarray(
            20 * np.log10(self.far_m / 1e3) + 20 * np.log10(CARRIER_HZ / 1e6) + 32.44778322
        )


def lawnmower(
    seconds: int = 1600, seed: int = 0, height_m: float = 25.0, climbs: bool = False
) -> Route:
    """Lanes of 300 m over a field of 300 m x 200 m around the base station, at 2 to 9 m/s.

    The UAV is slow at the turns. With `climbs` its height changes from lane to lane.
    """
    rng = np.random.default_rng((0x1A3, seed))
    spacing_m, lanes = 20.0, 11
    corners = []
    for turn in range(60):
        lane = turn % (2 * lanes - 2)
        y = min(lane, 2 * lanes - 2 - lane) * spacing_m - 100
        z = height_m * (1 + 0.8 * rng.random()) if climbs else height_m
        ends = (-150.0, 150.0) if turn % 2 == 0 else (150.0, -150.0)
        corners += [(x, y, z) for x in ends]
    corner_m = np.array(corners)
    at_m = np.concatenate([[0], np.cumsum(np.linalg.norm(np.diff(corner_m, axis=0), axis=1))])
    way_m, ways_m = 0.0, []
    for _ in range(seconds):
        ways_m.append(way_m)
        left_m = np.abs(at_m - way_m).min()
        way_m += min(9.0, 2.0 + left_m / 6) * rng.uniform(0.9, 1.0)
    return Route(np.stack([np.interp(ways_m, at_m, axis) for axis in corner_m.T], axis=1))


def shadowing(
    way_m: Array, deviation_db: float, distance_m: float, rng: np.random.Generator
) -> Array:
    """A draw of shadowing along a path from the Cholesky factor of its covariance, shape [S]."""
    apart_m = np.abs(way_m[:, None] - way_m[None, :])
    covariance = deviation_db**2 * np.exp(-apart_m / distance_m)
    factor = np.linalg.cholesky(covariance + 1e-9 * np.eye(len(way_m)))
    return np.asarray(factor @ rng.standard_normal(len(way_m)))


@dataclass(frozen=True)
class Truth:
    """How levels are drawn: offset - loss + terms + shadowing + scatter."""

    offset_db: float = -20.0
    exponent: float | None = None
    """None: free space."""
    shadowing_db: float = 3.0
    decorrelation_m: float = 30.0
    scatter_db: float = 1.2
    heading: float = 0.0
    elevation: float = 0.0

    def mean_db(self, route: Route) -> Array:
        """The level without shadowing and scatter, shape [S]."""
        loss_db = route.free_space_db()
        if self.exponent is not None:
            loss_db = 10 * self.exponent * np.log10(route.far_m)
        terms = self.heading * route.away_m_s + self.elevation * route.elevation_deg
        return np.asarray(self.offset_db - loss_db + terms)

    def drawn_db(self, route: Route, rng: np.random.Generator) -> Array:
        """A draw of the level, shape [S]."""
        slow = shadowing(route.way_m, self.shadowing_db, self.decorrelation_m, rng)
        fast = self.scatter_db * rng.standard_normal(len(slow))
        return np.asarray(self.mean_db(route) + slow + fast)


def flight_on(route: Route, **values: Any) -> MeasuredFlight:
    """A measured flight of one UAV on a route, with values of shape [S]."""
    one = {
        name: value[None] if isinstance(value, np.ndarray) and value.ndim == 1 else value
        for name, value in values.items()
        if name != "base_station"
    }
    one["base_station"] = values.get("base_station", STATION_M)
    return MeasuredFlight(
        route.start_m[None],
        1.0,
        **({"carrier_up_hz": CARRIER_HZ, "carrier_down_hz": CARRIER_HZ} | one),
    )


def measured_level(truth: Truth, route: Route, seed: int, **values: Any) -> MeasuredFlight:
    """A flight whose RSRP is drawn from the truth and rounded to 1 dB, as receivers report it."""
    rng = np.random.default_rng((0x5EED, seed))
    return flight_on(route, rsrp_dbm=np.round(truth.drawn_db(route, rng)), **values)
