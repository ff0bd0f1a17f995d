# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Parameters that are fitted to flights with a known channel: near the truth, and calibrated."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from synthetic_flights import Truth, lawnmower, measured_level

from orchestrator.flights.fitting import Level, fitted
from orchestrator.flights.geometry import LOG_DISTANCE
from orchestrator.flights.likelihood import Estimate, Series, most_likely
from orchestrator.flights.result import flown_in

Array = npt.NDArray[np.float64]
SEEDS = 20
ROUTE = lawnmower()
FREE_SPACE = Truth()
SLOPE = Truth(exponent=2.6, offset_db=-30.0)
ROUNDED_DB = float(np.hypot(FREE_SPACE.scatter_db, np.sqrt(1 / 12)))
"""Scatter of levels that are rounded to 1 dB."""


def level_of(truth: Truth, seeds: Sequence[int]) -> Level:
    flights = flown_in({f"f{seed}": measured_level(truth, ROUTE, seed) for seed in seeds})
    return Level.of(flights, "rsrp_dbm", [flight.values("rsrp_dbm") for flight in flights])


@dataclass(frozen=True)
class Found:
    """Estimates of all seeds, and the coefficients that are right."""

    estimates: Sequence[Estimate]
    right: Array

    def each(self, name: str) -> Array:
        return np.array([getattr(one, name) for one in self.estimates])

    @property
    def z(self) -> Array:
        """Errors of the coefficients in the standard errors that the estimates have for them."""
        errors = [np.sqrt(np.diag(one.covariance)) for one in self.estimates]
        return np.asarray((self.each("coefficients") - self.right) / np.array(errors))


@pytest.fixture(scope="module")
def known() -> Found:
    """Fits of an offset where the path loss is that of free space."""
    found = []
    for seed in range(SEEDS):
        series = level_of(FREE_SPACE, [seed]).series
        lossless = Series(series.value_db + ROUTE.free_space_db(), series.step_m, series.flight)
        found.append(most_likely(lossless, np.ones((len(ROUTE.start_m), 1))))
    return Found(found, np.array([FREE_SPACE.offset_db]))


@pytest.fixture(scope="module")
def slopes() -> Found:
    """Fits of an offset at 1 m and an exponent."""
    found = []
    for seed in range(SEEDS):
        series = level_of(SLOPE, [seed]).series
        terms = np.column_stack([np.ones(len(series.value_db)), -10 * np.log10(ROUTE.far_m)])
        found.append(most_likely(series, terms))
    return Found(found, np.array([SLOPE.offset_db, SLOPE.exponent]))


def test_the_offset_is_found(known: Found) -> None:
    offsets_db = known.each("coefficients")[:, 0]
    assert offsets_db.mean() == pytest.approx(FREE_SPACE.offset_db, abs=0.3 / 2)
    # One flight reaches 0.24 dB: 10 km of path are 160 times the correlation, 2 D.
    effective = ROUTE.way_m[-1] / (2 * FREE_SPACE.decorrelation_m)
    errors_db = np.sqrt(known.each("covariance")[:, 0, 0])
    assert errors_db.mean() == pytest.approx(FREE_SPACE.shadowing_db / effective**0.5, rel=0.1)


def test_the_exponent_is_found(slopes: Found) -> None:
    offsets_db, exponents = slopes.each("coefficients").T
    assert exponents.mean() == pytest.approx(SLOPE.exponent, abs=0.05)
    # Offset and exponent err together; the level at the distances of the flight is well known.
    decades_db = float(10 * np.log10(ROUTE.far_m).mean())
    levels_db = offsets_db - exponents * decades_db
    right_db = SLOPE.offset_db - 2.6 * decades_db
    assert levels_db.mean() == pytest.approx(right_db, abs=0.3)
    np.testing.assert_allclose(levels_db, right_db, atol=0.9)


@pytest.mark.parametrize("which", ["known", "slopes"])
def test_standard_errors_are_calibrated(which: str, request: pytest.FixtureRequest) -> None:
    z = request.getfixturevalue(which).z
    assert (np.abs(z) < 3).all()
    assert ((z.std(axis=0, ddof=1) > 0.7) & (z.std(axis=0, ddof=1) < 1.4)).all()
    assert (np.abs(z.mean(axis=0)) < 3 / np.sqrt(SEEDS)).all()


@pytest.mark.parametrize("which", ["known", "slopes"])
def test_shadowing_decorrelation_and_scatter_are_found(
    which: str, request: pytest.FixtureRequest
) -> None:
    found: Found = request.getfixturevalue(which)
    for name, right, single, mean in (
        ("shadowing_db", FREE_SPACE.shadowing_db, 0.10, 0.02),
        ("decorrelation_m", FREE_SPACE.decorrelation_m, 0.25, 0.06),
        ("scatter_db", ROUNDED_DB, 0.12, 0.02),
    ):
        values = found.each(name)
        np.testing.assert_allclose(values, right, rtol=single, err_msg=name)
        assert values.mean() == pytest.approx(right, rel=mean), name


def test_a_fit_subtracts_the_loss_and_names_what_it_found() -> None:
    level = level_of(SLOPE, [0, 1])
    fit = fitted(level, LOG_DISTANCE, np.zeros(2 * len(ROUTE.start_m)), fits_exponent=True)
    slope = np.concatenate([-10 * np.log10(ROUTE.far_m)] * 2)
    assert (fit.flights, fit.values) == (2, 3200)
    assert fit.offsets_db.shape == (2,)
    assert fit.offset_db == pytest.approx(fit.offsets_db.mean())
    assert fit.between_db == pytest.approx(abs(fit.offsets_db[0] - fit.offsets_db[1]) / 2**0.5)
    assert fit.exponent == fit.estimate.coefficients[2]
    np.testing.assert_allclose(
        fit.expected_db, np.repeat(fit.offsets_db, 1600) + fit.exponent * slope
    )
    assert fit.deviation_db == pytest.approx(np.hypot(3.0, ROUNDED_DB), rel=0.07)
    # A model with a fixed path loss: the same loss with the exponent given gives the same offsets.
    given = fitted(level, "given", -fit.exponent * slope)
    np.testing.assert_allclose(given.offsets_db, fit.offsets_db, atol=1e-3)
    assert given.exponent is None
    assert given.term("heading") == 0
    np.testing.assert_allclose(given.expected_db, fit.expected_db, atol=1e-3)


def test_unseen_segments_are_judged_by_parameters_from_the_others() -> None:
    level = level_of(FREE_SPACE, [0, 1])
    loss_db = np.concatenate([ROUTE.free_space_db()] * 2)
    fit = fitted(level, "free-space", loss_db)
    lossless = Series(level.series.value_db + loss_db, level.series.step_m, level.series.flight)
    terms = (level.series.flight[:, None] == np.arange(2)).astype(float)
    held_out = 0.0
    for part in np.array_split(np.arange(1600), 10):
        inside = np.isin(np.arange(3200) % 1600, part)
        others = most_likely(lossless.chosen(~inside), terms[~inside])
        held_out += others.log_likelihood_of(lossless.chosen(inside), terms[inside])
    assert fit.cv_log_likelihood == pytest.approx(held_out, abs=1e-2)
    # Segments that a fit has not seen are less likely than those that it has.
    assert fit.cv_log_likelihood < fit.estimate.log_likelihood
