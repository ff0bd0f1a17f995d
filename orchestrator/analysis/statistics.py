# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Statistics of results: confidence intervals, and which differences count.

An interval exists only where something varied. Every 95 % interval is made by `Interval.of`,
which gives none for a single value or for values that are all equal.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Self

import numpy as np

from orchestrator.engine.arrays import Array

NEGLIGIBLE = 1e-4
"""Relative difference below which two means are regarded as equal."""
ROUNDING = 1e-12
"""Relative difference up to which values are equal except for rounding."""
NORMAL_95 = 1.959963984540054
"""Quantile of the standard normal distribution at 0.975."""
RESAMPLES = 1000
"""Number of bootstrap samples of an interval."""


@dataclass(frozen=True)
class Interval:
    """A statistic and its 95 % confidence interval."""

    value: float
    low: float = math.nan
    """Lower end; NaN: there is no interval."""
    high: float = math.nan

    @classmethod
    def of(cls, value: float, sample: Array, ends: Callable[[], tuple[float, float]]) -> Self:
        """The statistic of a sample, with an interval if the sample varies.

        Args:
            value: The statistic.
            sample: Independent values, shape [n].
            ends: Computes the ends of the interval.
        """
        return cls(value, *ends()) if varies(sample) else cls(value)

    @property
    def exists(self) -> bool:
        """Whether there is an interval."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def overlaps(self, other: Self) -> bool:
        """Whether two intervals have a value in common; true if one of them does not exist."""
        return not (self.low > other.high or self.high < other.low)

    def to_json(self) -> dict[str, float | None]:
        """value, low and high; null where there is none."""
        ends = (self.low, self.high) if self.exists else (None, None)
        value = self.value if math.isfinite(self.value) else None
        return {"value": value, "low": ends[0], "high": ends[1]}


def varies(sample: Array) -> bool:
    """Whether a sample has two or more values that differ by more than rounding."""
    if len(sample) < 2:
        return False
    return bool(not np.ptp(sample) <= ROUNDING * np.abs(sample).max())


def half_width(values: Array) -> float:
    """Half width of the mean's 95 % confidence interval (Student's t); NaN: there is none."""
    found = mean_of(values)
    return (found.high - found.low) / 2


def mean_of(values: Array) -> Interval:
    """The mean of independent values, shape [n], with its interval (Student's t)."""
    mean = float(values.mean()) if len(values) else math.nan

    def ends() -> tuple[float, float]:
        half = _t_quantile(len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
        return float(mean - half), float(mean + half)

    return Interval.of(mean, values, ends)


@cache
def _t_quantile(freedom: int) -> float:
    """The 97.5 % quantile of Student's t; the mean of each group of seeds needs the same one."""
    from scipy import stats  # imported here, because it takes half a second

    return float(stats.t.ppf(0.975, freedom))


def share_of(count: float, total: float) -> Interval:
    """A share of independent cases with its interval (Wilson); none for a single case.

    Equal cases have an interval, too: 7 of 7 leave room for a share below 1.

    Args:
        count: Number of cases that are counted.
        total: Number of cases; a fraction if it is the number of independent ones among correlated
            ones.
    """
    if not total:
        return Interval(math.nan)
    share, z = count / total, NORMAL_95
    if total < 2:
        return Interval(share)
    middle = (share + z**2 / (2 * total)) / (1 + z**2 / total)
    half = math.sqrt(share * (1 - share) / total + (z / (2 * total)) ** 2) * z / (1 + z**2 / total)
    return Interval(share, max(0.0, middle - half), min(1.0, middle + half))


def resampled(values: Array, of: Callable[..., Array], seed: int) -> Interval:
    """A statistic of independent values with its interval (bootstrap).

    Args:
        values: Shape [n].
        of: Computes the statistic along `axis`.
        seed: Seed of the bootstrap samples.
    """

    def ends() -> tuple[float, float]:
        rng = np.random.default_rng(seed)
        found = np.concatenate(
            [
                of(values[rng.integers(len(values), size=(50, len(values)))], axis=1)
                for _ in range(RESAMPLES // 50)
            ]
        )
        low, high = np.quantile(found, [0.025, 0.975])
        return float(low), float(high)

    return Interval.of(float(of(values, axis=0)), values, ends)


def independent(series: Array) -> float:
    """Number of independent values among correlated ones, from 1 to n.

    n is divided by 1 + 2 (sum of the autocorrelations up to the first that is not positive); Geyer,
    "Practical Markov chain Monte Carlo", Stat. Sci. 7(4), 1992. A constant series gives n.

    Args:
        series: Values in the order of time, shape [n].
    """
    n = len(series)
    if not varies(series):
        return float(n)
    rest = series - series.mean()
    covariance = np.correlate(rest, rest, "full")[n - 1 :]
    correlation = covariance[1:] / covariance[0]
    ends = np.flatnonzero(correlation <= 0)
    positive = correlation[: ends[0]] if len(ends) else correlation
    return float(np.clip(n / (1 + 2 * positive.sum()), 1, n))
