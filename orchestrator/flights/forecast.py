# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Forecast a flight from its positions alone, and compare the forecast with measured values.

A forecast uses the fit of other flights and the path of this flight. It draws the quantities that
the fit does not determine: the offset of the flight (from the difference between the fitted
flights), the errors of the parameters, shadowing and scatter along the path, and the uplink's
capacity (from the measured seconds with the same signal-to-noise ratio). The digest covers inputs,
time, version and values. If the digest is published before the flight, the file proves that the
forecast was made before the flight.
"""

import datetime
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field

from orchestrator.analysis.statistics import independent
from orchestrator.engine.arrays import Array
from orchestrator.flights.document import Curve, Document, Model, Part, Sealed
from orchestrator.flights.fitting import ELEVATION, HEADING, TERMS, Flown
from orchestrator.flights.geometry import LOG_DISTANCE, Path
from testbed.core.errors import InputError

DRAWS = 1000
"""Number of random flights that are drawn."""
LOW, HIGH = 0.05, 0.95
"""Quantiles at the limits of the 90 % band."""
NORMAL_90 = 1.6448536269514722
"""Quantile of the standard normal distribution at `HIGH`."""
LEVELS = np.linspace(0.0, 1.0, 201)
"""Probabilities of the quantiles that describe the distribution of all seconds."""
MINUTE_S = 60.0


class Band(Part):
    """Quantiles for each slot or minute."""

    p5: list[float]
    p50: list[float]
    p95: list[float]


class Total(Part):
    """Quantiles of a sum over the flight."""

    p5: float
    p50: float
    p95: float


class Inputs(Part):
    """All inputs that determine a forecast; long ones by their digest."""

    fit: str
    """Digest of FIT.json."""
    fitted_flights: int
    """Number of flights in the fit."""
    flight: str
    """Name of the flight."""
    positions: str
    """SHA-256 of the positions and of the base station's position, as float64."""
    resource_blocks: int
    offered_bps: float | None
    """Rate of the application; null: data always wait."""
    like: str | None
    """The fitted flight whose offset is used; null: the offset is drawn."""
    seed: int
    draws: int


class Reveal(Part):
    """Scores of a forecast against the measured values; null: not measured or not forecast."""

    slots: int
    """Number of slots in flight with a measured level."""
    rsrp_coverage_90: float
    """Share of the measured levels in the 90 % band."""
    rsrp_bias_db: float
    """Mean of the measured level minus the forecast median."""
    crps_db: float
    """Mean continuous ranked probability score of the level."""
    snr_up_coverage_90: float | None = None
    uplink_coverage_90: float | None = None
    """Share of the seconds whose goodput is in the band."""
    uplink_minutes_coverage_90: float | None = None
    uplink_median_bps: float | None = None
    """Measured median of the goodput."""
    uplink_median_forecast_bps: float | None = None
    uplink_median_error: float | None = None
    """Forecast median / measured median - 1."""
    uplink_ks: float | None = None
    """Kolmogorov-Smirnov distance between the distributions of the goodput by second."""
    uplink_bytes: float | None = None
    """Data carried in the measured seconds in flight."""
    uplink_bytes_error: float | None = None
    """Forecast data / measured data - 1, in the same seconds (medians of the forecast)."""
    independent: dict[str, float] = Field(default={})
    """By name of a coverage above: the number of independent values among the measured ones, which
    are correlated in time."""


class Forecast(Sealed):
    """The forecast of a flight."""

    made: str
    """Date and time in UTC."""
    version: str
    """Version of the testbed."""
    inputs: Inputs
    level: str
    """Name of the level to which models were fitted, e.g. `rsrp_dbm`."""
    slot_s: float
    rsrp_dbm: Band
    """Forecast of the level `level` for each slot: RSRP or another level."""
    snr_up_db: Band | None
    """The uplink's signal-to-noise ratio; this and the following fields are null if not fitted."""
    mcs_up: Band | None
    uplink_bps: Band | None
    """Goodput of the uplink for each slot."""
    uplink_minutes_bps: Band | None
    """Mean goodput of the uplink for each minute."""
    uplink_distribution_bps: list[float] | None
    """Goodput of all slots and draws at 201 quantiles from 0 to 1."""
    uplink_bytes: Total | None
    """Data carried in the whole flight."""
    reveal: Reveal | None = None
    """Comparison with the measured values; the digest does not cover it."""


@dataclass(frozen=True)
class Request:
    """The flight to forecast, and the options of the forecast."""

    name: str
    """Name of the flight."""
    path: Path
    resource_blocks: int | None
    """Resource blocks of the carrier; None: the number of the fitted flights."""
    offered_bps: float | None
    seed: int
    made: datetime.datetime
    version: str
    like: str | None = None
    """The fitted flight with the same radio, whose offset is used; None: the offset is drawn."""

    @property
    def positions(self) -> str:
        """SHA-256 of the positions and of the base station's position."""
        parts = (self.path.start_m, self.path.base_station_m)
        return hashlib.sha256(
            b"".join(np.asarray(part, "<f8").tobytes() for part in parts)
        ).hexdigest()


def forecast(fit: Document, request: Request) -> Forecast:
    """Forecast a flight.

    Args:
        fit: The fit of other flights.
        request: The flight's path and options, without any measured values.
    """
    path, curve = request.path, fit.link.curve
    like = _index(fit, request.like)
    level = FittedLevel(fit.chosen, path, _loss_db(fit, fit.chosen, path), like)
    mean_db, deviation_db = level.normal()
    blocks = request.resource_blocks or fit.link.resource_blocks
    snr_up = mcs = rate = minutes = total = distribution = None
    if fit.uplink is not None:
        rng = np.random.default_rng(request.seed)
        drawn_db = FittedLevel(fit.uplink, path, _loss_db(fit, fit.uplink, path), like).drawn(rng)
        if fit.uplink.level == "snr_up_db":
            snr_up = _band(drawn_db)
        drawn_db -= fit.uplink.noise_db
        if curve is not None:
            quantile = _quantiles(rng, curve, drawn_db.shape[1], path.slot_s)
            if curve.mcs_up is not None:
                mcs = _band(_between(curve, curve.mcs_up, drawn_db, quantile))
            bps = _between(curve, curve.capacity_bps, drawn_db, quantile)
            bps *= blocks / fit.link.resource_blocks
            if request.offered_bps is not None:
                bps = np.minimum(bps, request.offered_bps)
            rate, minutes = _band(bps), _band(by_minute(bps, path.slot_s))
            distribution = np.round(np.quantile(bps, LEVELS), 1).tolist()
            low, middle, high = np.quantile(bps.sum(axis=1) * path.slot_s / 8, (LOW, 0.5, HIGH))
            total = Total(p5=round(low), p50=round(middle), p95=round(high))
    edge_db = NORMAL_90 * deviation_db
    return Forecast(
        made=request.made.isoformat(timespec="seconds"),
        version=request.version,
        inputs=Inputs(
            fit=fit.digest,
            fitted_flights=len(fit.flights),
            flight=request.name,
            positions=request.positions,
            resource_blocks=blocks,
            offered_bps=request.offered_bps,
            like=request.like,
            seed=request.seed,
            draws=DRAWS,
        ),
        level=fit.level,
        slot_s=path.slot_s,
        rsrp_dbm=Band(
            **{
                name: np.round(values, 3).tolist()
                for name, values in (
                    ("p5", mean_db - edge_db),
                    ("p50", mean_db),
                    ("p95", mean_db + edge_db),
                )
            }
        ),
        snr_up_db=snr_up,
        mcs_up=mcs,
        uplink_bps=rate,
        uplink_minutes_bps=minutes,
        uplink_distribution_bps=distribution,
        uplink_bytes=total,
    ).sealed()


def _loss_db(fit: Document, model: Model, path: Path) -> Array:
    """Path loss along the path, shape [S], except the part that is a parameter of the model."""
    if model.name != LOG_DISTANCE:
        return path.loss_db(model.name, fit.carrier_hz)
    # The exponent is fitted to the level only; the model of the uplink uses the same one.
    return (fit.chosen.exponent or 0.0) * path.decades_db * (model.exponent is None)


def _index(fit: Document, like: str | None) -> int | None:
    """Index of the fitted flight with this name; None: no name was given."""
    names = [flight.name for flight in fit.flights]
    if like is None:
        return None
    if like not in names:
        raise InputError(f"`like`: must be one of {', '.join(names)}, not {like!r}")
    return names.index(like)


@dataclass(frozen=True)
class FittedLevel:
    """A fitted level, evaluated on a new path."""

    model: Model
    path: Path
    loss_db: Array
    like: int | None
    """Index of the fitted flight whose offset is used; None: the mean offset, with its spread."""

    @property
    def between_db(self) -> float:
        """Standard deviation of the offset of a new flight around the mean of the fitted ones."""
        between_db, flights = self.model.between_flights_db, len(self.model.offsets_db)
        if between_db is None or self.like is not None:
            return 0.0
        return between_db * math.sqrt(1 + 1 / flights)

    def design(self) -> tuple[Array, Array]:
        """The columns of offsets, exponent and terms of the antenna, shape [S, p], and the most
        likely parameters, shape [p]."""
        model, path = self.model, self.path
        flights = len(model.offsets_db)
        weights = np.full(flights, 1 / flights)
        if self.like is not None:
            weights = np.eye(flights)[self.like]
        columns = [np.tile(weights, (len(path.far_m), 1))]
        values = list(model.offsets_db)
        if model.exponent is not None:
            columns.append(-path.decades_db[:, None])
            values.append(model.exponent)
        of_term = {HEADING: model.heading_db_per_m_s, ELEVATION: model.elevation_db_per_deg}
        for name in model.antenna:
            columns.append(TERMS[name](path)[:, None])
            values.append(of_term[name])
        return np.hstack(columns), np.array(values)

    def normal(self) -> tuple[Array, Array]:
        """Mean and standard deviation of the level in each slot, shape [S] each."""
        model = self.model
        design, values = self.design()
        of_parameters = np.einsum("sp,pq,sq->s", design, np.array(model.covariance), design)
        independent = model.sigma_db**2 + model.scatter_db**2 + self.between_db**2
        return design @ values - self.loss_db, np.sqrt(independent + of_parameters)

    def drawn(self, rng: np.random.Generator) -> Array:
        """Random realisations of the level, shape [DRAWS, S]."""
        model = self.model
        design, values = self.design()
        spread = np.linalg.cholesky(np.array(model.covariance) + 1e-12 * np.eye(len(values)))
        parameters = values + rng.standard_normal((DRAWS, len(values))) @ spread.T
        level = parameters @ design.T - self.loss_db
        level += self.between_db * rng.standard_normal((DRAWS, 1))
        level += model.scatter_db * rng.standard_normal(level.shape)
        level += model.sigma_db * _correlated(rng, self.path.way_m / model.decorrelation_m)
        return np.asarray(level)


def _correlated(rng: np.random.Generator, at: Array) -> Array:
    """Standard normal values; two values at a distance d have the correlation exp(-d).

    Args:
        rng: Source of random numbers.
        at: Positions of the values on a line, ascending, shape [S].

    Returns:
        Shape [DRAWS, S].
    """
    values = rng.standard_normal((DRAWS, len(at)))
    for slot, kept in enumerate(np.exp(-np.diff(at)), 1):
        values[:, slot] = kept * values[:, slot - 1] + math.sqrt(1 - kept**2) * values[:, slot]
    return np.asarray(values)


def _quantiles(rng: np.random.Generator, curve: Curve, slots: int, slot_s: float) -> Array:
    """Quantiles, 0 to 1, among seconds of the same signal-to-noise ratio, shape [DRAWS, S]."""
    from scipy.stats import norm  # imported here, because it takes half a second

    lasting = _correlated(rng, np.arange(slots, dtype=np.float64) * (slot_s / curve.memory_s))
    share = curve.memory_share
    fresh = rng.standard_normal(lasting.shape)
    return np.asarray(norm.cdf(math.sqrt(share) * lasting + math.sqrt(1 - share) * fresh))


def _between(curve: Curve, table: Sequence[Sequence[float]], snr_db: Array, at: Array) -> Array:
    """Values of the measured curve at given SNRs and quantiles, by bilinear interpolation.

    Outside the curve, its values at the edges are used.
    """
    grid = np.array(table)
    rows, columns = grid.shape
    row = np.interp(snr_db, curve.snr_db, np.arange(rows, dtype=np.float64))
    column = np.interp(at, curve.quantiles, np.arange(columns, dtype=np.float64))
    low, left = np.floor(row).astype(np.int64), np.floor(column).astype(np.int64)
    high, right = np.minimum(low + 1, rows - 1), np.minimum(left + 1, columns - 1)
    up, over = row - low, column - left
    below = (1 - over) * grid[low, left] + over * grid[low, right]
    above = (1 - over) * grid[high, left] + over * grid[high, right]
    return np.asarray((1 - up) * below + up * above)


def _band(draws: Array) -> Band:
    low, middle, high = np.round(np.quantile(draws, (LOW, 0.5, HIGH), axis=0), 3).tolist()
    return Band(p5=low, p50=middle, p95=high)


def by_minute(values: Array, slot_s: float) -> Array:
    """Means over whole minutes; an incomplete minute at the end is dropped.

    Args:
        values: Shape [..., S]; slots with NaN are ignored.
        slot_s: Length of a slot.

    Returns:
        Shape [..., M]; NaN if all slots of a minute are NaN.
    """
    length = max(1, round(MINUTE_S / slot_s))
    minutes = values.shape[-1] // length
    parts = values[..., : minutes * length].reshape(*values.shape[:-1], minutes, length)
    known = np.isfinite(parts)
    count = known.sum(axis=-1)
    sums = np.where(known, parts, 0.0).sum(axis=-1)
    return np.asarray(np.where(count > 0, sums / np.maximum(count, 1), np.nan))


# --- reveal --------------------------------------------------------------------------------------


def revealed(made: Forecast, flight: Flown) -> Reveal:
    """Compare a forecast with the measured values of the flight.

    Raises:
        InputError: The level was not measured in flight.
    """
    level_db = flight.level_db(made.level)
    low, middle, high = (np.array(getattr(made.rsrp_dbm, name)) for name in ("p5", "p50", "p95"))
    seen = flight.is_aloft & np.isfinite(level_db)
    if not seen.any():
        raise InputError(f"`flight` {flight.name}: has no value of {made.level} in flight")
    score_db = crps_normal(level_db, middle, (high - low) / (2 * NORMAL_90))
    counts: dict[str, float] = {}
    of_level = _coverage("rsrp_coverage_90", made.rsrp_dbm, level_db, seen, counts)
    assert of_level is not None
    of_snr = None
    if made.snr_up_db is not None:
        of_snr = _coverage(
            "snr_up_coverage_90", made.snr_up_db, flight.snr_up_db, flight.is_aloft, counts
        )
    rates = {}
    if made.uplink_bps is not None:
        rates = _revealed_rates(made, made.uplink_bps, flight, counts)
    return Reveal(
        slots=int(seen.sum()),
        rsrp_coverage_90=of_level,
        rsrp_bias_db=float((level_db - middle)[seen].mean()),
        crps_db=float(score_db[seen].mean()),
        snr_up_coverage_90=of_snr,
        **rates,
        independent={name: round(count, 2) for name, count in counts.items()},
    )


def _revealed_rates(
    made: Forecast, band: Band, flight: Flown, counts: dict[str, float]
) -> dict[str, Any]:
    """The fields of `Reveal` that are about the goodput; adds to `Reveal.independent`."""
    bps = np.where(flight.is_aloft, flight.values("uplink_bps"), np.nan)
    seen = np.isfinite(bps)
    if not seen.any() or made.uplink_distribution_bps is None or made.uplink_minutes_bps is None:
        return {}
    measured = np.sort(bps[seen])
    quantiles = np.array(made.uplink_distribution_bps)
    median, expected = float(np.median(measured)), float(np.interp(0.5, LEVELS, quantiles))
    sent, expected_sent = float(measured.sum()), float(np.array(band.p50)[seen].sum())
    minutes = by_minute(bps, made.slot_s)
    return {
        "uplink_coverage_90": _coverage("uplink_coverage_90", band, bps, seen, counts),
        "uplink_minutes_coverage_90": _coverage(
            "uplink_minutes_coverage_90",
            made.uplink_minutes_bps,
            minutes,
            np.isfinite(minutes),
            counts,
        ),
        "uplink_median_bps": median,
        "uplink_median_forecast_bps": expected,
        "uplink_median_error": expected / median - 1 if median else None,
        "uplink_ks": ks_distance(measured, quantiles),
        "uplink_bytes": sent * made.slot_s / 8,
        "uplink_bytes_error": expected_sent / sent - 1 if sent else None,
    }


def _coverage(
    name: str,
    band: Band,
    values: Array,
    chosen: "np.typing.NDArray[np.bool_]",
    counts: dict[str, float],
) -> float | None:
    """Share of the values in the band, of those that are measured and chosen.

    The number of independent ones among them is added to `counts` by the name. It follows from the
    autocorrelation of the distance from the band's middle, relative to its width.
    """
    seen = chosen & np.isfinite(values)
    if not seen.any():
        return None
    low, middle, high = (np.array(part)[seen] for part in (band.p5, band.p50, band.p95))
    measured = values[seen]
    counts[name] = independent((measured - middle) / np.maximum(high - low, 1e-9))
    return float(((measured >= low) & (measured <= high)).mean())


def crps_normal(values: Array, mean: Array, deviation: Array) -> Array:
    """Continuous ranked probability score of normal forecasts; Gneiting and Raftery, "Strictly
    proper scoring rules", J. Am. Stat. Assoc. 102, 2007, equation 21."""
    from scipy.stats import norm  # imported here, because it takes half a second

    deviation = np.maximum(deviation, 1e-9)  # without a band, the score is the absolute error
    z = (values - mean) / deviation
    spread = z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / math.sqrt(math.pi)
    return np.asarray(deviation * spread)


def ks_distance(values: Array, quantiles: Array) -> float:
    """Largest difference between the distribution of values and one given by its quantiles.

    Args:
        values: Ascending, shape [n].
        quantiles: Quantiles at `LEVELS`, ascending; equal quantiles are a jump.
    """
    points = np.unique(np.concatenate([values, quantiles]))
    between = np.interp(points, quantiles, LEVELS, left=0.0, right=1.0)
    first = np.searchsorted(quantiles, points, side="left")
    after = np.searchsorted(quantiles, points, side="right")
    seen = (np.searchsorted(values, points, side="left") / len(values)) - np.where(
        after > first, LEVELS[np.minimum(first, len(LEVELS) - 1)], between
    )
    seen_with = (np.searchsorted(values, points, side="right") / len(values)) - np.where(
        after > first, LEVELS[after - 1], between
    )
    return float(np.abs(np.concatenate([seen, seen_with])).max())
