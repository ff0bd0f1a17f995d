# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Which model and which terms of the antenna are found, on flights with a known channel."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from synthetic_flights import CARRIER_HZ, Route, Truth, flight_on, lawnmower, measured_level

from orchestrator.flights import fitting
from orchestrator.flights.fitting import (
    ANTENNAS,
    Fit,
    Level,
    fitted,
    known_models,
    rank,
    supported,
    with_antennas,
)
from orchestrator.flights.result import flown_in
from testbed.core.errors import InputError
from testbed.core.registry import CHANNELS

LONG = lawnmower(1600)
SHORT = lawnmower(800)
CLIMBING = lawnmower(800, seed=1, climbs=True)
FEW_AND_ALL = [1, pytest.param(10, marks=pytest.mark.full)]
"""Numbers of flights that are fitted."""


def level_of(truths: Sequence[Truth], seed: int, route: Route = SHORT) -> Level:
    flights = flown_in(
        {
            f"f{number}": measured_level(truth, route, 100 * number + seed)
            for number, truth in enumerate(truths)
        }
    )
    return Level.of(flights, "rsrp_dbm", [flight.values("rsrp_dbm") for flight in flights])


def good(fits: Sequence[Fit]) -> set[str]:
    """The best model and those as good: within 2 of its AIC."""
    return {fit.model for fit in fits if fit.estimate.aic <= fits[0].estimate.aic + 2}


RMA_AT_25_M = replace(Truth(), exponent=(23.9 - 1.8 * np.log10(25)) / 10, offset_db=-65.3)


@pytest.mark.parametrize(
    ("truth", "right"),
    [
        (Truth(), "free-space"),
        (RMA_AT_25_M, "rma-av"),
        (replace(Truth(), exponent=3.0, offset_db=-20), "log-distance"),
    ],
)
@pytest.mark.parametrize("seeds", [1, pytest.param(4, marks=pytest.mark.full)])
def test_the_right_model_is_the_best_or_as_good(truth: Truth, right: str, seeds: int) -> None:
    models = ["rma-av", "free-space", "log-distance"]
    for seed in range(seeds):
        ranking = rank(level_of([truth], seed, LONG), CARRIER_HZ, models)
        assert right in good(ranking.fits)
        aics = [fit.estimate.aic for fit in ranking.fits]
        assert aics == sorted(aics)
        assert ranking.best is ranking.fits[0]
        assert {fit.model for fit in ranking.antennas} == {ranking.best.model}
        assert [fit.terms for fit in ranking.antennas] == list(ANTENNAS)
        if right == "log-distance":
            assert good(ranking.fits) == {right}
            assert ranking.best.exponent == pytest.approx(3.0, abs=0.3)
        if right == "rma-av":
            # Its own path loss, with the constant of TR 36.777: what is left is the offset.
            at_1m_db = 20 * np.log10(40 * np.pi * (CARRIER_HZ / 1e9) / 3)
            (fit,) = (fit for fit in ranking.fits if fit.model == right)
            assert fit.offset_db == pytest.approx(truth.offset_db + at_1m_db, abs=1.2)


NOISELESS = Route(SHORT.start_m[:240] + np.array([0.0, 0.0, 15.0]))


@pytest.mark.parametrize("step_db", [0.0, 0.1, 0.25, 0.5, 1.0])
@pytest.mark.parametrize("right", ["free-space", "rma-av", "uma-av", "umi-av"])
def test_values_without_noise_name_the_model_that_made_them(
    right: str, step_db: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting, "ANTENNAS", [()])
    # Without log-distance: at one height it contains all of these.
    models = ["free-space", "rma-av", "uma-av", "umi-av"]
    (flight,) = flown_in({"f": flight_on(NOISELESS, rsrp_dbm=np.zeros(240))})
    rsrp_dbm = -30.0 - flight.path.loss_db(right, CARRIER_HZ)
    if step_db:
        rsrp_dbm = step_db * np.round(rsrp_dbm / step_db)
    level = Level.of([flight], "rsrp_dbm", [rsrp_dbm])
    step = step_db or 0.1
    assert level.series.rounding_db == pytest.approx(step / np.sqrt(12))
    ranking = rank(level, CARRIER_HZ, models)
    names = [ranking.best.model, *(fit.model for fit in ranking.alike)]
    assert right in names
    if step_db <= 0.25:
        assert ranking.best.model == right
        assert ranking.best.offset_db == pytest.approx(-30.0, abs=step)
    aics = [fit.estimate.aic for fit in ranking.fits]
    assert ranking.best.estimate.aic == pytest.approx(min(aics), abs=0.01)
    # The likelihood of unseen segments does not break down where the spread goes to 0.
    assert all(np.isfinite(fit.cv_log_likelihood) for fit in ranking.fits)
    assert ranking.foreseen.model in names or step_db > 0.25
    for fit in ranking.fits:
        assert fit.estimate.scatter_db >= level.series.rounding_db * (1 - 1e-6)
        assert fit.cv_log_likelihood > -20 * len(rsrp_dbm)


def test_models_that_are_equal_along_a_flight_keep_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fitting, "ANTENNAS", [()])
    # Two rays equal free space up to 4 pi h h' / wavelength, far outside of these flights.
    level = level_of([Truth()], 1, Route(SHORT.start_m[:200]))
    for models in (["free-space", "two-ray"], ["two-ray", "free-space"]):
        assert [fit.model for fit in rank(level, CARRIER_HZ, models).fits] == models


@pytest.mark.parametrize("seeds", FEW_AND_ALL)
def test_the_heading_is_found_where_antennas_tilt(seeds: int) -> None:
    found = []
    for seed in range(seeds):
        level = level_of([replace(Truth(), heading=0.4)], seed)
        fit = with_antennas(level, "free-space", SHORT.free_space_db())
        assert "heading" in fit.terms
        at = 1 + fit.terms.index("heading")
        error = np.sqrt(fit.estimate.covariance[at, at])
        assert fit.term("heading") == pytest.approx(0.4, abs=3 * error)
        found.append(fit.term("heading"))
    assert np.mean(found) == pytest.approx(0.4, abs=0.06)


@pytest.mark.parametrize("seeds", FEW_AND_ALL)
def test_a_term_is_hardly_ever_claimed_where_there_is_none(seeds: int) -> None:
    claimed = 0
    for seed in range(seeds):
        fit = with_antennas(level_of([Truth()], seed), "free-space", SHORT.free_space_db())
        claimed += fit.terms != ()
    assert claimed <= max(1, 2 * seeds / 10)


@pytest.mark.parametrize("seeds", FEW_AND_ALL)
def test_the_elevation_is_found(seeds: int) -> None:
    for seed in range(seeds):
        level = level_of([replace(Truth(), elevation=0.25)], seed, CLIMBING)
        fit = with_antennas(level, "free-space", CLIMBING.free_space_db())
        assert "elevation" in fit.terms
        assert fit.term("elevation") == pytest.approx(0.25, abs=0.09)


def test_both_terms_are_distinguished() -> None:
    level = level_of([replace(Truth(), heading=-0.5, elevation=0.25)], 5, CLIMBING)
    fit = with_antennas(level, "free-space", CLIMBING.free_space_db())
    assert fit.terms == ("heading", "elevation")
    assert fit.term("heading") == pytest.approx(-0.5, abs=0.12)
    assert fit.term("elevation") == pytest.approx(0.25, abs=0.09)


def test_flights_have_offsets_of_their_own() -> None:
    offsets_db = [-17.0, -20.0, -26.0]
    truths = [replace(Truth(), offset_db=db) for db in offsets_db]
    level = level_of(truths, 1)
    fit = fitted(level, "free-space", np.tile(SHORT.free_space_db(), 3))
    np.testing.assert_allclose(fit.offsets_db, offsets_db, atol=1.2)
    assert fit.offset_db == pytest.approx(-21.0, abs=0.7)
    # The deviation of -17, -20 and -26 is 4.58.
    assert fit.between_db == pytest.approx(np.sqrt(21), abs=0.9)
    assert fit.estimate.shadowing_db == pytest.approx(3.0, rel=0.1)
    one = fitted(level_of(truths[:1], 1), "free-space", SHORT.free_space_db())
    assert one.between_db is None


class Like:
    """A fit as far as the choice of terms looks at it."""

    def __init__(self, cv: float, aic: float):
        self.cv_log_likelihood, self.estimate = cv, type("", (), {"aic": aic})


@pytest.mark.parametrize(
    ("others", "right"),
    [
        ([(-90, 190), (-95, 195)], 1),  # better in both
        ([(-90, 199)], 0),  # AIC is better by less than 2
        ([(-101, 150)], 0),  # unseen segments are less likely
        ([(-95, 190), (-90, 195), (-80, 198.5)], 2),
    ],
)
def test_terms_need_both_unseen_segments_and_aic(
    others: list[tuple[float, float]], right: int
) -> None:
    fits: list[Any] = [Like(-100, 200), *(Like(*other) for other in others)]
    assert supported(fits) is fits[right]


def test_models_that_do_not_hold_are_named_with_the_reason() -> None:
    high = Route(SHORT.start_m + np.array([0, 0, 290]))
    level = level_of([Truth()], 0, high)
    ranking = rank(level, CARRIER_HZ, ["uma-av", "free-space"])
    assert [fit.model for fit in ranking.fits] == ["free-space"]
    assert list(ranking.refused) == ["uma-av"]
    assert "m high" in ranking.refused["uma-av"]
    with pytest.raises(InputError, match="`model`: none is valid along the flights: UAV 1 is 315"):
        rank(level, CARRIER_HZ, ["uma-av"])


def broken(space: Any) -> Callable[..., Any]:
    raise RuntimeError("no map")


def silent(space: Any) -> Callable[..., Any]:
    """Without a signal in the third slot."""
    return lambda position_m, times_s: np.where(times_s == 2, 0.0, np.full((1, len(times_s)), 1e-9))


def weak_and_loud(space: Any) -> Callable[..., Any]:
    return lambda position_m, times_s: np.full((1, len(times_s)), 7.0)


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (broken, "fails: RuntimeError: no map"),
        (silent, "radio.channel 'own': outage at 2 s"),
        (weak_and_loud, "gain 7 is not 0 or"),
    ],
)
def test_a_model_of_a_package_that_fails_is_refused_and_the_others_are_fitted(
    model: Any, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CHANNELS.built_in, "own", model)
    level = level_of([Truth()], 0, Route(SHORT.start_m[:150]))
    ranking = rank(level, CARRIER_HZ, ["own", "free-space"])
    assert [fit.model for fit in ranking.fits] == ["free-space"]
    assert why in ranking.refused["own"]
    assert "\n" not in ranking.refused["own"]


def test_a_model_of_a_package_is_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    def own(space: Any) -> Callable[..., Any]:
        def gain(position_m: Any, times_s: Any) -> Any:
            far_m = np.linalg.norm(position_m - np.array(space.bs_position_m), axis=2)
            return 1e-4 * far_m**-3.0

        return gain

    monkeypatch.setitem(CHANNELS.built_in, "own", own)
    level = level_of([replace(Truth(), exponent=3.0, offset_db=-20)], 2)
    ranking = rank(level, CARRIER_HZ, ["free-space", "own"])
    assert ranking.best.model == "own"
    assert ranking.best.offset_db == pytest.approx(20, abs=1.2)  # -20 dB at 1 m, gain -40 dB
    assert "own" in known_models([])


def test_known_models() -> None:
    every = known_models([])
    assert set(every) >= {"rma-av", "uma-av", "umi-av", "free-space", "two-ray", "log-distance"}
    assert "fitted" not in every
    assert known_models(["two-ray", "rma-av", "two-ray"]) == ["two-ray", "rma-av"]
    with pytest.raises(InputError, match=r"^`model`: must be one of rma-av, .*, not 'friis'$"):
        known_models(["friis"])


def test_progress_counts_models_and_terms() -> None:
    seen: list[tuple[str, int, int]] = []
    level = level_of([Truth()], 0, Route(SHORT.start_m[:150]))
    rank(level, CARRIER_HZ, ["free-space", "log-distance"], lambda *one: seen.append(one))
    assert [one[1:] for one in seen] == [(0, 5), (1, 5), (2, 5), (3, 5), (4, 5)]
    assert [one[0] for one in seen[:3]] == ["free-space", "log-distance", "heading"]


def test_a_term_that_hardly_varies_is_not_tried() -> None:
    # On a circle around the base station, elevation and velocity away are constant.
    angle = np.arange(400) * 0.03
    start_m = np.column_stack([200 * np.cos(angle), 200 * np.sin(angle), np.full(400, 25.0)])
    level = level_of([Truth()], 0, Route(start_m))
    ranking = rank(level, CARRIER_HZ, ["free-space"])
    assert [fit.terms for fit in ranking.antennas] == [()]
    # With a radius that varies, the velocity does, but not the elevation.
    start_m[:, :2] *= (1 + 0.1 * np.sin(angle * 7))[:, None]
    ranking = rank(level_of([Truth()], 0, Route(start_m)), CARRIER_HZ, ["free-space"])
    assert [fit.terms for fit in ranking.antennas] == [(), ("heading",)]


def test_segments_are_contiguous_and_of_equal_length() -> None:
    level = level_of([Truth(), Truth()], 0, Route(SHORT.start_m[:204]))
    right = [np.full(len(part), i) for i, part in enumerate(np.array_split(np.arange(204), 10))]
    folds = level.folds
    assert len(folds) == 408
    assert (np.diff(folds[:204]) >= 0).all()
    np.testing.assert_array_equal(folds[:204], folds[204:])
    assert sorted(np.bincount(folds)) == sorted(2 * len(part) for part in right)
    np.testing.assert_array_equal(np.flatnonzero(np.diff(level.series.flight)), [203])
    assert folds[203] == 9
    assert folds[204] == 0


def test_only_values_in_flight_count() -> None:
    start_m = SHORT.start_m[:200].copy()
    start_m[:30, 2] = 2.0  # on the ground before the start, less than half of the median of 25 m
    start_m[30:32, 2] = 12.5
    rsrp_dbm = np.full(200, -80.0)
    rsrp_dbm[[50, 60]] = np.nan
    flights = flown_in({"a": flight_on(Route(start_m), rsrp_dbm=rsrp_dbm)})
    level = Level.of(flights, "rsrp_dbm", [rsrp_dbm])
    used = level.used[0]
    assert not used[:29].any()  # at the middle of second 29 it is 7.25 m high
    assert list(np.flatnonzero(~used[30:])) == [20, 30]
    assert len(level.series.value_db) == used.sum() == 168
    way_m = Route(start_m).way_m[used]
    assert level.series.step_m[0] == np.inf
    np.testing.assert_allclose(level.series.step_m[1:], np.diff(way_m), atol=1e-9)


def test_too_few_values_are_refused() -> None:
    flights = flown_in({"short": flight_on(Route(SHORT.start_m[:99]), rsrp_dbm=np.full(99, -80.0))})
    with pytest.raises(
        InputError,
        match=r"^flight short: has 99 values of rsrp_dbm in flight; a fit needs 100$",
    ):
        Level.of(flights, "rsrp_dbm", [np.full(99, -80.0)])
