# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Likelihood and estimates against the full covariance matrix of all values."""

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import multivariate_normal

from orchestrator.flights.likelihood import Estimate, Series, most_likely

Array = npt.NDArray[np.float64]
N = 60
SPLIT = 25
"""First value of the second flight."""


def covariance(way_m: Array, flight: Array, sigma: float, distance_m: float, tau: float) -> Array:
    """Of all values: shadowing within each flight, and scatter."""
    apart_m = np.abs(np.subtract.outer(way_m, way_m))
    same = np.equal.outer(flight, flight)
    shadowing = np.where(same, sigma**2 * np.exp(-apart_m / distance_m), 0.0)
    return np.asarray(shadowing + tau**2 * np.eye(len(way_m)))


def two_flights(seed: int = 3) -> tuple[Series, Array, Array]:
    """Values of two flights with random steps and gaps, the terms, and the path of each value."""
    rng = np.random.default_rng(seed)
    step_m = rng.uniform(0, 12, N)
    step_m[[5, 30]] = 0.0  # the UAV hovers
    step_m[[10, 40]] = 150.0  # nothing was measured for a while
    step_m[[0, SPLIT]] = 0.0
    way_m = np.cumsum(step_m)
    flight = (np.arange(N) >= SPLIT).astype(np.int64)
    terms = np.column_stack([flight == 0, flight == 1, rng.normal(0, 3, N)]).astype(np.float64)
    root = np.linalg.cholesky(covariance(way_m, flight, 3.0, 25.0, 1.0))
    value_db = terms @ np.array([-70.0, -64.0, 0.5]) + root @ rng.standard_normal(N)
    steps = step_m.copy()
    steps[[0, SPLIT]] = np.inf
    return Series(value_db, steps, flight), terms, way_m


@pytest.mark.parametrize(
    ("sigma", "distance_m", "tau"),
    [(3.0, 25.0, 0.0), (3.0, 25.0, 1.0), (0.7, 200.0, 2.0), (0.1, 5.0, 8.0), (4.0, 0.3, 0.5)],
)
def test_the_log_likelihood_is_that_of_the_full_covariance(
    sigma: float, distance_m: float, tau: float
) -> None:
    series, terms, way_m = two_flights()
    coefficients = np.array([-69.0, -66.0, 0.7])
    estimate = Estimate(coefficients, np.eye(3), sigma, tau, distance_m, 0.0)
    whole = covariance(way_m, series.flight, sigma, distance_m, tau)
    # Without scatter, two values at one place would be equal: the covariance is singular.
    rows = np.flatnonzero(~np.isin(np.arange(N), (5, 30) if tau == 0 else ()))
    right = multivariate_normal(terms[rows] @ coefficients, whole[np.ix_(rows, rows)]).logpdf(
        series.value_db[rows]
    )
    which = np.isin(np.arange(N), rows)
    assert estimate.log_likelihood_of(series.chosen(which), terms[which]) == pytest.approx(
        right, rel=1e-9
    )


def test_chosen_values_keep_their_places_on_the_path() -> None:
    series, terms, way_m = two_flights()
    which = np.random.default_rng(1).random(N) < 0.5
    which[[0, SPLIT, SPLIT + 1]] = False  # both flights lose their first values
    chosen = series.chosen(which)
    np.testing.assert_array_equal(chosen.value_db, series.value_db[which])
    np.testing.assert_array_equal(chosen.flight, series.flight[which])
    places = np.flatnonzero(which)
    for i, place in enumerate(places):
        begins = i == 0 or series.flight[place] != series.flight[places[i - 1]]
        right = np.inf if begins else way_m[place] - way_m[places[i - 1]]
        assert chosen.step_m[i] == pytest.approx(right, abs=1e-9)
    estimate = Estimate(np.array([-69.0, -66.0, 0.7]), np.eye(3), 2.0, 0.5, 40.0, 0.0)
    part = covariance(way_m, series.flight, 2.0, 40.0, 0.5)[np.ix_(places, places)]
    right = multivariate_normal(terms[which] @ estimate.coefficients, part).logpdf(
        series.value_db[which]
    )
    assert estimate.log_likelihood_of(chosen, terms[which]) == pytest.approx(right, rel=1e-9)


def test_all_values_chosen_are_the_same_values() -> None:
    series, _, _ = two_flights()
    same = series.chosen(np.ones(N, np.bool_))
    np.testing.assert_allclose(same.step_m, series.step_m, atol=1e-9)


def profiled(
    series: Series, terms: Array, way_m: Array, distance_m: float, share: float
) -> tuple[float, Array, Array, float]:
    """Log-likelihood, b, its covariance and the shadowing by generalised least squares."""
    v = covariance(way_m, series.flight, 1.0, distance_m, np.sqrt(share))
    weight = np.linalg.inv(v)
    normal = np.linalg.inv(terms.T @ weight @ terms)
    b = normal @ terms.T @ weight @ series.value_db
    rest = series.value_db - terms @ b
    variance = float(rest @ weight @ rest) / N
    log = float(multivariate_normal(terms @ b, variance * v).logpdf(series.value_db))
    return log, b, variance * normal, float(np.sqrt(variance))


def test_the_estimate_is_that_of_generalised_least_squares() -> None:
    series, terms, way_m = two_flights()
    found = most_likely(series, terms)
    share = (found.scatter_db / found.shadowing_db) ** 2
    log, b, spread, sigma = profiled(series, terms, way_m, found.decorrelation_m, share)
    assert found.log_likelihood == pytest.approx(log, rel=1e-9)
    np.testing.assert_allclose(found.coefficients, b, rtol=1e-8)
    np.testing.assert_allclose(found.covariance, spread, rtol=1e-7)
    assert found.shadowing_db == pytest.approx(sigma, rel=1e-8)
    assert found.log_likelihood_of(series, terms) == pytest.approx(log, rel=1e-9)
    assert found.parameters == 6
    assert found.aic == pytest.approx(12 - 2 * log)


@pytest.mark.parametrize("seed", range(3))
def test_no_other_parameters_are_more_likely(seed: int) -> None:
    series, terms, way_m = two_flights(seed)
    found = most_likely(series, terms)
    for distance_m in np.geomspace(0.5, 1e3, 12):
        for share in np.geomspace(1e-4, 1e3, 12):
            log = profiled(series, terms, way_m, float(distance_m), float(share))[0]
            assert log <= found.log_likelihood + 1e-3
