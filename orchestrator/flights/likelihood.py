# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Maximum likelihood of linear models with correlated shadowing along flights.

A measured value in dB is y = X b + s + e. Shadowing s is a Gaussian process along the path: two
values that are d metres of path apart have the correlation exp(-d / D) (Gudmundson, "Correlation
model for shadow fading in mobile radio systems", Electron. Lett. 27(23), 1991). The scatter e is
independent from one value to the next: small-scale fading that is not averaged out within a second,
turns of the UAV, and rounding. Such a process is Markov along the path, so that a Kalman filter
gives the exact likelihood in a time that is proportional to the number of values.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.engine.arrays import Array
from orchestrator.engine.core_library import library, pointer

LEAST_M, MOST_M = 0.1, 1e4
"""Limits of the decorrelation distance in m."""
LEAST_SHARE, MOST_SHARE = 1e-8, 1e4
"""Limits of the variance of the scatter, relative to the variance of shadowing."""
STARTS = ((20.0, 0.1), (60.0, 1.0), (10.0, 0.01))
"""Decorrelation distances in m and relative variances at which the search begins."""


@dataclass(frozen=True)
class Series:
    """Values in dB along the paths of flights, ordered by time."""

    value_db: Array
    """Measured values, shape [n]."""
    step_m: Array
    """Path in m since the previous value, shape [n]; infinite at the first value of a flight."""
    flight: npt.NDArray[np.int64]
    """Index of the flight of each value, shape [n]."""
    rounding_db: float = 0.0
    """Standard deviation of the rounding of values, which is the smallest scatter."""

    def chosen(self, which: "npt.NDArray[np.bool_]") -> "Series":
        """A subset of the values; the path lengths between them do not change.

        Args:
            which: Whether each value is chosen, shape [n].
        """
        way_m = np.cumsum(np.where(np.isinf(self.step_m), 0.0, self.step_m))[which]
        flight = self.flight[which]
        begins = np.diff(flight, prepend=-1) != 0
        step_m = np.where(begins, np.inf, np.diff(way_m, prepend=0.0))
        return Series(self.value_db[which], step_m, flight, self.rounding_db)


@dataclass(frozen=True)
class Estimate:
    """The most likely parameters of a linear model with correlated shadowing."""

    coefficients: Array
    """The coefficients b, shape [p]."""
    covariance: Array
    """Covariance of the errors of b, shape [p, p]."""
    shadowing_db: float
    """Standard deviation of shadowing."""
    scatter_db: float
    """Standard deviation of the scatter, which is independent from one value to the next."""
    decorrelation_m: float
    """Decorrelation distance D: the path after which the correlation of shadowing is 1/e."""
    log_likelihood: float
    """Natural logarithm of the likelihood of all values."""

    @property
    def parameters(self) -> int:
        """Number of parameters: b, both standard deviations and D."""
        return len(self.coefficients) + 3

    @property
    def start(self) -> tuple[float, float]:
        """Decorrelation distance and relative variance of the scatter, as in `STARTS`."""
        return self.decorrelation_m, (self.scatter_db / self.shadowing_db) ** 2

    @property
    def aic(self) -> float:
        """Akaike's information criterion (AIC); smaller values are better."""
        return 2 * self.parameters - 2 * self.log_likelihood

    def log_likelihood_of(self, series: Series, terms: Array) -> float:
        """Log-likelihood of other values with these parameters.

        Args:
            series: The values.
            terms: X, shape [n, p].
        """
        distance_m, share = self.start
        rest = series.value_db - terms @ self.coefficients
        white, log_scale = _whitened(rest[:, None], series.step_m, distance_m, share)
        variance = self.shadowing_db**2
        n = len(rest)
        return -0.5 * float(
            n * math.log(2 * math.pi * variance) + log_scale + (white**2).sum() / variance
        )


def most_likely(series: Series, terms: Array, near: Sequence[Estimate] = ()) -> Estimate:
    """The most likely parameters of y = X b + s + e.

    Args:
        series: y along the paths.
        terms: X, shape [n, p], of full rank.
        near: Estimates at which the search begins; empty: `STARTS`.
    """
    from scipy.optimize import minimize  # imported here, because it takes half a second

    columns = np.column_stack([series.value_db, terms])

    def misfit(point: Array) -> float:
        return -_profiled(columns, series, *_inside(point))[0]

    found = [
        minimize(
            misfit,
            np.log(np.maximum(start, 1e-12)),
            method="Nelder-Mead",
            options={"xatol": 1e-4, "fatol": 1e-4},
        )
        for start in ([one.start for one in near] or STARTS)
    ]
    best = min(found, key=lambda one: float(one.fun))
    distance_m, share = _inside(best.x)
    log_likelihood, coefficients, variance, spread = _profiled(columns, series, distance_m, share)
    return Estimate(
        coefficients,
        variance * spread,
        math.sqrt(variance),
        math.sqrt(variance * share),
        distance_m,
        log_likelihood,
    )


def _inside(point: Array) -> tuple[float, float]:
    """Decorrelation distance and relative variance at a point of the search, within limits."""
    distance_m, share = np.exp(np.clip(point, -50, 50))
    return (
        float(np.clip(distance_m, LEAST_M, MOST_M)),
        float(np.clip(share, LEAST_SHARE, MOST_SHARE)),
    )


def _profiled(
    columns: Array, series: Series, distance_m: float, share: float
) -> tuple[float, Array, float, Array]:
    """Profile likelihood: all parameters except the two given ones have their most likely values.

    The scatter is at least the rounding of the values: without this limit, the likelihood of values
    without noise has no maximum.

    Returns:
        The log-likelihood, b, the variance of shadowing, and (X' V^-1 X)^-1, where V is the
        covariance of the values relative to that variance.
    """
    white, log_scale = _whitened(columns, series.step_m, distance_m, share)
    n, products = len(white), white.T @ white
    spread = np.asarray(np.linalg.pinv(products[1:, 1:], hermitian=True), np.float64)
    coefficients = spread @ products[1:, 0]
    misfit = max(float(products[0, 0] - products[0, 1:] @ coefficients), 0.0)
    variance = max(misfit / n, series.rounding_db**2 / share, 1e-12)
    log_likelihood = -0.5 * (n * math.log(2 * math.pi * variance) + misfit / variance + log_scale)
    return log_likelihood, coefficients, variance, spread


def _whitened(
    columns: Array, step_m: Array, distance_m: float, share: float
) -> tuple[Array, float]:
    """Normalised innovations of each column, for shadowing with a variance of 1.

    Args:
        columns: Shape [n, m].
        step_m: Path in m since the previous value, shape [n].
        distance_m: The decorrelation distance.
        share: Variance of the scatter.

    Returns:
        The innovations divided by their standard deviations, shape [n, m], and the logarithm of the
        determinant of the covariance of the values.
    """
    given = np.ascontiguousarray(columns, float), np.ascontiguousarray(step_m, float)
    white = np.empty(columns.shape)
    log_scale = library().engine_whitened(
        *map(pointer, given), *columns.shape, distance_m, share, pointer(white)
    )
    return white, float(log_scale)
