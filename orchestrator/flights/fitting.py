# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Fit channel models to measured flights and rank them.

A measured level in dB is the offset of its flight, minus the path loss of a model, plus antenna
terms, shadowing and scatter (`orchestrator.flights.likelihood`). Models are compared by
AIC. Cross-validation, the likelihood of segments of the flights that were not used to fit the
parameters, is a check of the comparison and decides on antenna terms. Neighbouring seconds are
correlated, so a random choice of seconds would reward overfitting.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ns3_scenarios.aerial import EXPONENTS
from orchestrator.engine.arrays import Array
from orchestrator.flights.geometry import LOG_DISTANCE, Path
from orchestrator.flights.likelihood import Estimate, Series, most_likely
from orchestrator.flights.measured import MeasuredFlight
from orchestrator.scenario.schema import FITTED
from testbed.core.errors import InputError
from testbed.core.registry import CHANNELS

SEGMENTS = 10
"""Number of segments per flight in the cross-validation; one segment of each flight is held out at
a time."""
LEAST_VALUES = 100
"""Smallest number of values that a flight needs for a fit."""
WEAKEST_SNR = 0.1
"""Linear signal-to-noise ratio that is used if the signal is not above the noise."""
HEADING, ELEVATION = "heading", "elevation"
TERMS: Mapping[str, Callable[[Path], Array]] = {
    HEADING: lambda path: path.away_m_s,
    ELEVATION: lambda path: path.elevation_deg,
}
"""The antenna terms, with the quantity to which each one is proportional."""
ANTENNAS: Sequence[tuple[str, ...]] = ((), (HEADING,), (ELEVATION,), (HEADING, ELEVATION))
"""The sets of antenna terms that are compared."""
LEAST_SPREAD = {HEADING: 0.5, ELEVATION: 1.0}
"""Standard deviation in m/s and degrees that the quantity of a term must have along the flights.
With less, its coefficient would only be right where the flights were."""
AS_GOOD = 2.0
"""Difference of AIC within which models describe the data equally well; Burnham and Anderson,
"Multimodel inference", Sociol. Methods Res. 33(2), 2004."""
STEPS_DB = (1.0, 0.5, 0.25, 0.1)
"""Steps in dB to which receivers round; no finer one is assumed."""
MULTIPLE = 1e-6
"""Deviation from a multiple of a step, relative to the step, that is due to floating point."""
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Flown:
    """One UAV of a measured flight."""

    name: str
    measured: MeasuredFlight
    uav: int
    """Index of the UAV in the flight, from 0."""
    path: Path

    def values(self, field: str) -> Array:
        """The measured values of a field, shape [S]; NaN: not measured."""
        return np.asarray(getattr(self.measured, field)[self.uav])

    @cached_property
    def lowest_m(self) -> float:
        """Height above which the UAV counts as in flight: half of its median height."""
        return float(np.median(self.path.height_m)) / 2

    @property
    def is_aloft(self) -> Bools:
        """Whether the UAV is in flight, shape [S]."""
        return np.asarray(self.path.height_m >= self.lowest_m)

    @property
    def snr_up_db(self) -> Array:
        """Signal-to-noise ratio of the uplink in dB, shape [S].

        srsENB reports the total received power divided by the noise power (`chest_ul.c`), which is
        (S + N) / N; here the noise is subtracted. Ratios below -10 dB are set to -10 dB.
        """
        ratio = 10 ** (self.values("snr_up_db") / 10) - 1
        return np.asarray(10 * np.log10(np.maximum(ratio, WEAKEST_SNR)))

    def level_db(self, field: str) -> Array:
        """A level in dB by its name, shape [S]: as measured, or `snr_up_db`; NaN: not measured."""
        return self.snr_up_db if field == "snr_up_db" else self.values(field)


@dataclass(frozen=True)
class Level:
    """A level in dB that was measured in all flights, while the UAVs were in flight."""

    field: str
    """Name of the level in `MeasuredFlight`."""
    flights: Sequence[Flown]
    used: Sequence[Bools]
    """Whether each slot of each flight is used, shape [S] each."""
    series: Series

    @classmethod
    def of(cls, flights: Sequence[Flown], field: str, values: Sequence[Array]) -> "Level":
        """The level with these values of each flight, shape [S] each; NaN: not measured."""
        used = [
            flight.is_aloft & np.isfinite(measured)
            for flight, measured in zip(flights, values, strict=True)
        ]
        for flight, which in zip(flights, used, strict=True):
            if flight.lowest_m < 0:
                raise InputError(
                    f"flight {flight.name}: its median height is {2 * flight.lowest_m:g} m; "
                    "heights must count from the ground"
                )
            if which.sum() < LEAST_VALUES:
                raise InputError(
                    f"flight {flight.name}: has {which.sum()} values of {field} in flight; a fit "
                    f"needs {LEAST_VALUES}"
                )
        steps = [
            np.concatenate([[np.inf], np.diff(flight.path.way_m[which])])
            for flight, which in zip(flights, used, strict=True)
        ]
        series = Series(
            np.concatenate([v[which] for v, which in zip(values, used, strict=True)]),
            np.concatenate(steps),
            np.repeat(np.arange(len(flights)), [which.sum() for which in used]),
        )
        series = replace(series, rounding_db=resolution_db(series.value_db) / math.sqrt(12))
        return cls(field, flights, used, series)

    def on_path(self, quantity: Callable[[Path], Array]) -> Array:
        """A quantity of the paths at all values, shape [n]."""
        return np.concatenate(
            [
                quantity(flight.path)[which]
                for flight, which in zip(self.flights, self.used, strict=True)
            ]
        )

    def by_slot(self, values: Array) -> list[Array]:
        """Values of shape [n], sorted into the slots of each flight, shape [S] each; NaN: the slot
        is not used."""
        found = []
        for number, which in enumerate(self.used):
            slots = np.full(len(which), np.nan)
            slots[which] = values[self.series.flight == number]
            found.append(slots)
        return found

    @cached_property
    def folds(self) -> "npt.NDArray[np.int64]":
        """Number of the segment of each value, shape [n]."""
        counts = [int(which.sum()) for which in self.used]
        return np.concatenate([np.arange(n) * SEGMENTS // n for n in counts])


@dataclass(frozen=True)
class Fit:
    """A channel model fitted to a level."""

    model: str
    terms: tuple[str, ...]
    """The antenna terms of the fit."""
    estimate: Estimate
    cv_log_likelihood: float
    """Sum of the log-likelihoods of all segments, each with parameters from all other segments."""
    flights: int
    values: int
    loss_db: Array
    """Path loss of the model at all values, shape [n], without the term of a fitted exponent."""
    design: Array
    """Design matrix with the columns of offsets, exponent and terms, shape [n, p]."""
    fits_exponent: bool

    @property
    def offsets_db(self) -> Array:
        """Level plus path loss for each flight, shape [F].

        With a fitted exponent, it is the level at a distance of 1 m.
        """
        return self.estimate.coefficients[: self.flights]

    @property
    def offset_db(self) -> float:
        """Mean of the flights' offsets."""
        return float(self.offsets_db.mean())

    @property
    def between_db(self) -> float | None:
        """Standard deviation of the flights' offsets; None with one flight."""
        return float(self.offsets_db.std(ddof=1)) if self.flights > 1 else None

    @property
    def exponent(self) -> float | None:
        """Fitted path loss exponent; None: the model has a fixed path loss."""
        return float(self.estimate.coefficients[self.flights]) if self.fits_exponent else None

    def term(self, name: str) -> float:
        """Coefficient of an antenna term; 0 if the fit does not contain it."""
        if name not in self.terms:
            return 0.0
        at = self.flights + self.fits_exponent + self.terms.index(name)
        return float(self.estimate.coefficients[at])

    @property
    def expected_db(self) -> Array:
        """The level without shadowing and scatter at all values, shape [n]."""
        return np.asarray(self.design @ self.estimate.coefficients - self.loss_db)

    @property
    def deviation_db(self) -> float:
        """Standard deviation of shadowing and scatter together."""
        return math.hypot(self.estimate.shadowing_db, self.estimate.scatter_db)


def resolution_db(values_db: Array) -> float:
    """The step of measured values in dB: the largest of `STEPS_DB` of which all are multiples.

    Args:
        values_db: Shape [n].
    """
    for step_db in STEPS_DB[:-1]:
        steps = values_db / step_db
        if np.abs(steps - np.round(steps)).max() < MULTIPLE:
            return step_db
    return STEPS_DB[-1]


def log_distance_likelihood(level: Level) -> float:
    """Log-likelihood of a level under the most likely `log-distance` model."""
    design = np.hstack([_offsets(level), _decades(level)])
    return most_likely(level.series, design).log_likelihood


def _offsets(level: Level) -> Array:
    """Columns of the offsets of flights, shape [n, F]."""
    flights = np.arange(len(level.flights))
    return np.asarray(level.series.flight[:, None] == flights, np.float64)


def _decades(level: Level) -> Array:
    """The column of a path loss exponent, shape [n, 1]."""
    return np.asarray(-level.on_path(lambda path: path.decades_db)[:, None])


def fitted(
    level: Level,
    model: str,
    loss_db: Array,
    terms: tuple[str, ...] = (),
    *,
    fits_exponent: bool = False,
) -> Fit:
    """The most likely parameters of a model.

    Args:
        level: The level.
        model: Name of the model.
        loss_db: Its path loss at all values, shape [n].
        terms: Antenna terms.
        fits_exponent: Whether 10 n log10(d / 1 m) is subtracted, with a fitted exponent n.
    """
    columns = [_offsets(level)]
    if fits_exponent:
        columns.append(_decades(level))
    columns += [level.on_path(TERMS[name])[:, None] for name in terms]
    design = np.hstack(columns)
    lossless = replace(level.series, value_db=level.series.value_db + loss_db)
    estimate = most_likely(lossless, design)
    held_out = 0.0
    for fold in np.unique(level.folds):
        inside = level.folds == fold
        others = most_likely(lossless.chosen(~inside), design[~inside], [estimate])
        held_out += others.log_likelihood_of(lossless.chosen(inside), design[inside])
    return Fit(
        model,
        terms,
        estimate,
        held_out,
        len(level.flights),
        len(loss_db),
        loss_db,
        design,
        fits_exponent,
    )


@dataclass(frozen=True)
class Ranking:
    """The models fitted to a level, in the order of their AIC, the best one first."""

    fits: Sequence[Fit]
    antennas: Sequence[Fit]
    """The best model with each set of antenna terms that was tried."""
    refused: Mapping[str, str]
    """Models that are not valid along the flights, and the reasons."""

    @property
    def best(self) -> Fit:
        """The best model, without antenna terms: the one with the lowest AIC."""
        return self.fits[0]

    @property
    def alike(self) -> list[Fit]:
        """Other models that describe the data as well: their AIC is within `AS_GOOD`."""
        least = self.best.estimate.aic
        return [fit for fit in self.fits[1:] if abs(fit.estimate.aic - least) <= AS_GOOD]

    @property
    def foreseen(self) -> Fit:
        """The model with the highest likelihood in cross-validation."""
        return max(self.fits, key=lambda fit: round(fit.cv_log_likelihood, 2))

    @property
    def chosen(self) -> Fit:
        """The best model with the antenna terms that the data support."""
        return supported(self.antennas)


def supported(fits: Sequence[Fit]) -> Fit:
    """The fit with the highest cross-validated likelihood; terms must also lower AIC by `AS_GOOD`.

    Args:
        fits: Fits of one model with different terms; the first one has none.
    """
    most = fits[0].estimate.aic - AS_GOOD
    better = [fit for fit in fits[1:] if fit.estimate.aic < most]
    return max([fits[0], *better], key=lambda fit: fit.cv_log_likelihood)


def rank(
    level: Level,
    carrier_hz: float,
    models: Sequence[str],
    progress: Callable[[str, int, int], None] = lambda text, done, total: None,
) -> Ranking:
    """Fit models to a level and rank them by their AIC.

    Args:
        level: The level to which models are fitted.
        carrier_hz: Carrier frequency.
        models: Names of channel models.
        progress: Called with the current step as text, the number of finished steps, and their
            total number.

    Raises:
        InputError: No model is valid along the flights.
    """
    fits, refused = [], {}
    total = len(models) + len(ANTENNAS) - 1
    for done, model in enumerate(models):
        progress(model, done, total)
        try:
            fits.append(_of_model(level, model, carrier_hz))
        except InputError as error:
            refused[model] = str(error)
    if not fits:
        raise InputError(
            f"`model`: none is valid along the flights: {next(iter(refused.values()))}"
        )
    # Rounding keeps the order of models that are equal along the flights.
    fits.sort(key=lambda fit: round(fit.estimate.aic, 2))
    best, antennas = fits[0], [fits[0]]
    for done, terms in enumerate(_tried(level)[1:], len(models)):
        progress(" and ".join(terms), done, total)
        antennas.append(
            fitted(level, best.model, best.loss_db, terms, fits_exponent=best.fits_exponent)
        )
    return Ranking(fits, antennas, refused)


def _of_model(level: Level, model: str, carrier_hz: float) -> Fit:
    if model == LOG_DISTANCE:
        none = np.zeros(len(level.series.value_db))
        fit = fitted(level, model, none, fits_exponent=True)
        assert fit.exponent is not None
        low, high = EXPONENTS
        if not low <= fit.exponent <= high:
            raise InputError(
                f"log-distance fits best with the exponent {fit.exponent:.3g}, which must be from "
                f"{low:g} to {high:g}"
            )
        return fit
    loss_db = level.on_path(lambda path: path.loss_db(model, carrier_hz))
    return fitted(level, model, loss_db)


def with_antennas(level: Level, model: str, loss_db: Array) -> Fit:
    """A model with a given path loss, and with the antenna terms that the data support.

    Args:
        level: The level.
        model: Name of the model.
        loss_db: Path loss at all values, shape [n].
    """
    return supported([fitted(level, model, loss_db, terms) for terms in _tried(level)])


def _tried(level: Level) -> list[tuple[str, ...]]:
    """The sets of antenna terms whose quantities vary enough along the flights."""
    varies = {
        name
        for name, quantity in TERMS.items()
        if level.on_path(quantity).std() >= LEAST_SPREAD[name]
    }
    return [terms for terms in ANTENNAS if varies.issuperset(terms)]


def known_models(asked: Sequence[str]) -> list[str]:
    """The models to fit: the requested ones, or all of the testbed and of plug-ins.

    Raises:
        InputError: A requested model is unknown.
    """
    every = [name for name in CHANNELS.names() if name != FITTED]
    for name in asked:
        if name not in every:
            raise InputError(f"`model`: must be one of {', '.join(every)}, not {name!r}")
    return list(dict.fromkeys(asked)) or every
