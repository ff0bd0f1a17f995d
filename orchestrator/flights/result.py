# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The complete fit of measured flights: path loss, uplink, link curve, and the file FIT.json."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ns3_scenarios.aerial import free_space_db
from ns3_scenarios.trace import LEAST_GAIN, MOST_GAIN, ChannelTrace
from orchestrator.engine.arrays import Array
from orchestrator.flights import document
from orchestrator.flights.fitting import (
    AS_GOOD,
    ELEVATION,
    HEADING,
    Fit,
    Flown,
    Level,
    Ranking,
    known_models,
    log_distance_likelihood,
    rank,
    with_antennas,
)
from orchestrator.flights.geometry import LOG_DISTANCE, Path
from orchestrator.flights.link import (
    BASE_STATION_W,
    BLOCKS,
    NOISE_DBM_PER_MHZ,
    PLAIN,
    QUANTILES,
    UAV_W,
    Curve,
    Scheme,
    Seconds,
    Stage,
    curve_of,
    noise_db_of,
    scheme_of,
    seconds_of,
    stages,
)
from orchestrator.flights.measured import (
    UNNAMED_CARRIER_HZ,
    UNNAMED_STATION_M,
    MeasuredFlight,
)
from orchestrator.flights.rician import Rician, rician_of
from orchestrator.scenario.cells import BLOCK_HZ
from testbed.core.errors import InputError
from testbed.system.files import json_digest

log = logging.getLogger(__name__)

HEIGHTS_M = np.arange(0.0, 61.0, 5.0)
"""Heights in m that are tried for the base station of a flight that does not contain it."""
CLEAR_DB = (5.0, 18.0)
"""Range of the downlink's signal-to-noise ratio in dB from which the noise is computed. Below it,
the measured ratio contains noise; above it, distortion limits the ratio."""
LEAST_DECORRELATION_M, LEAST_DB = 0.5, 0.05
"""Decorrelation distance in m and standard deviation in dB below which there is no shadowing."""
SMALLEST_M = 10.0
"""Smallest extent in m of the places of flights to which a path loss is fitted."""
NOISELESS_DB = 0.05
"""Standard deviation in dB of shadowing and scatter below which values are not measured ones."""
OUTLYING = 8.0
"""Number of standard deviations from the fit beyond which a value is reported."""
LARGEST_ERROR_DB = 6.0
"""Mean absolute error of the link curve in dB beyond which it is reported."""
LEVELS = ("gain_db", "rsrp_dbm", "snr_db", "snr_up_db")
"""Levels to which models can be fitted. The first one that all flights have is used."""


@dataclass(frozen=True)
class Uplink:
    """The uplink's signal-to-noise ratio along the flights, and its rates."""

    level: Level
    """The signal-to-noise ratio. If only rates were measured: the level to which models were
    fitted."""
    fit: Fit
    correlation: float
    """Correlation of its shadowing with the shadowing of the level to which models were fitted."""
    carried: "Carried | None"
    """Link curve of the flights; None: no rates were measured."""
    noise_db: float = 0.0
    """Level at which the signal-to-noise ratio is 0 dB."""

    @property
    def is_measured(self) -> bool:
        """Whether the signal-to-noise ratio itself was measured."""
        return self.level.field == "snr_up_db"


@dataclass(frozen=True)
class Carried:
    """The rates of the uplink, their link curve, and the LTE parameters that describe them."""

    seconds: Seconds
    scheme: Scheme
    error_db: float
    """Mean absolute error of the scheme's rate."""
    curve: Curve
    stages: Sequence[Stage]
    """Empty if the signal-to-noise ratio was not measured."""

    @classmethod
    def of(cls, seconds: Seconds) -> "Carried":
        """The link curve of these seconds."""
        scheme, error_db = scheme_of(seconds)
        return cls(seconds, scheme, error_db, curve_of(seconds), stages(seconds, scheme))


@dataclass(frozen=True)
class FlightFit:
    """All results of fitting a set of flights."""

    flights: Sequence[Flown]
    carrier_hz: float
    """Carrier frequency of the level to which models were fitted."""
    level: Level
    ranking: Ranking
    uplink: Uplink | None
    noise_dbm: float | None
    """RSRP at which the downlink's signal-to-noise ratio is 0 dB, on the scale of the receiver."""
    rician: Rician

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        best = self.ranking.best
        estimate = best.estimate
        how = "" if best.exponent is None else f" with an exponent of {best.exponent:.2f}"
        alike = [fit.model for fit in self.ranking.alike]
        few = "this flight" if len(self.flights) == 1 else f"these {len(self.flights)} flights"
        around = (
            f"{estimate.shadowing_db:.1f} dB of shadowing (decorrelation distance "
            f"{estimate.decorrelation_m:.0f} m) and {estimate.scatter_db:.1f} dB of scatter"
        )
        if estimate.decorrelation_m < LEAST_DECORRELATION_M or estimate.shadowing_db < LEAST_DB:
            around = f"{best.deviation_db:.1f} dB of scatter (without shadowing along the path)"
        text = f"{best.model}{how} describes {few} best, with {around} between seconds"
        if alike:
            text += f"; equally good (AIC within {AS_GOOD:g}): {', '.join(alike)}"
        foreseen = self.ranking.foreseen.model
        if foreseen not in (best.model, *alike):
            text += f"; in cross-validation, {foreseen} is better"
        if best.deviation_db < NOISELESS_DB:
            text += (
                f". The data have no noise: they follow {best.model} to {NOISELESS_DB:g} dB, like "
                "computed values, so the spread is that of rounding and the fit says nothing about "
                "a measured flight"
            )
        return text + "."

    @property
    def channel(self) -> dict[str, Any] | None:
        """The fitted channel of a scenario (`radio.fitted`); None: the gain is not known.

        RSRP of an uncalibrated receiver gives no gain. If the signal-to-noise ratio was measured,
        the gain is scaled so that the nominal powers with thermal noise give this ratio over the
        whole carrier.
        """
        fit = self.ranking.chosen
        band_dbm = NOISE_DBM_PER_MHZ + 10 * np.log10(self._blocks * BLOCK_HZ / 1e6)
        up = down = None
        if self.level.field == "gain_db":
            down = _direction(fit, 0.0, self.carrier_hz)
        elif self.level.field == "snr_db" or self.noise_dbm is not None:
            nominal_db = band_dbm - 10 * np.log10(BASE_STATION_W * 1e3)
            down = _direction(fit, nominal_db - (self.noise_dbm or 0.0), self.carrier_hz)
        if self.uplink is not None:
            nominal_db = band_dbm - 10 * np.log10(UAV_W * 1e3)
            up = _direction(self.uplink.fit, nominal_db - self.uplink.noise_db, self.carrier_hz)
        if up is None and down is None:
            return None
        both = up is not None and down is not None
        parameters = {} if fit.exponent is None else {"exponent": round(fit.exponent, 4)}
        made = {
            "model": fit.model,
            "parameters": parameters,
            "carrier_hz": self.carrier_hz,
            "up": up or down,
            "down": down or up,
            "correlation": round(self.uplink.correlation, 4) if both and self.uplink else 1.0,
        }
        return made | {"digest": json_digest(made)}

    @property
    def _blocks(self) -> int:
        return self.flights[0].measured.resource_blocks or BLOCKS

    def document(self) -> document.Document:
        """The contents of FIT.json, with their digest."""
        ranking, uplink = self.ranking, self.uplink
        of_uplink = None
        if uplink is not None:
            correlation = round(uplink.correlation, 4)
            of_uplink = document.Uplink(
                **_entry(uplink.fit),
                correlation=correlation,
                level=uplink.level.field,
                noise_db=round(uplink.noise_db, 2),
            )
        return document.Document(
            sentence=self.sentence,
            best=ranking.best.model,
            models=[document.Model(**_entry(fit)) for fit in ranking.fits],
            refused=dict(ranking.refused),
            antennas=[document.Model(**_entry(fit)) for fit in ranking.antennas],
            chosen=document.Model(**_entry(ranking.chosen)),
            level=self.level.field,
            carrier_hz=self.carrier_hz,
            rician=document.Rician(k_db=_rounded(self.rician.k_db, 2), reason=self.rician.reason),
            flights=[
                document.Flight(
                    name=flight.name,
                    start=flight.measured.start,
                    slots=len(used),
                    used=int(used.sum()),
                    lowest_m=round(flight.lowest_m, 3),
                    nearest_m=round(float(flight.path.far_m[used].min()), 1),
                    farthest_m=round(float(flight.path.far_m[used].max()), 1),
                    base_station_m=flight.path.base_station_m.tolist(),
                )
                for flight, used in zip(self.flights, self.level.used, strict=True)
            ],
            uplink=of_uplink,
            link=_link(uplink, self._blocks),
            downlink_noise_dbm=_rounded(self.noise_dbm, 2),
            channel=self.channel,
        ).sealed()

    def replay(self, flight: Flown) -> ChannelTrace | None:
        """The measured gains of a flight as a trace; None: the gain is not known.

        The uplink's gain is computed from its signal-to-noise ratio, the downlink's from RSRP. A
        slot is an outage if one of the two was not measured.
        """
        channel, uplink = self.channel, self.uplink
        if channel is None:
            return None
        fit = self.ranking.chosen
        field = self.level.field
        to_gain_db = channel["down"]["offset_db"] - _reported(fit, self.carrier_hz)
        down_db = flight.level_db(field) + to_gain_db
        up_db = down_db
        if field == "gain_db":
            down_db = flight.values("gain_down_db")
        if uplink is not None:
            up_db = (
                flight.level_db(uplink.level.field)
                + channel["up"]["offset_db"]
                - _reported(uplink.fit, self.carrier_hz)
            )
        gains = [
            np.where(np.isfinite(db), np.clip(10 ** (db / 10), LEAST_GAIN, MOST_GAIN), 0.0)
            for db in (up_db, down_db)
        ]
        return ChannelTrace(
            gains[0][None],
            flight.path.slot_s,
            flight.path.start_m[None],
            gain_down=gains[1][None],
        )


def _reported(fit: Fit, carrier_hz: float) -> float:
    """The offset of a fit relative to the path loss of its model as a channel.

    The channel `log-distance` contains the free-space loss at 1 m, the fit does not.
    """
    first_db = float(free_space_db(1.0, carrier_hz)) if fit.model == LOG_DISTANCE else 0.0
    return fit.offset_db + first_db


def _direction(fit: Fit, to_gain_db: float, carrier_hz: float) -> dict[str, float]:
    """One direction of the fitted channel, with the keys of `FittedDirection` of the schema."""
    estimate = fit.estimate
    return {
        "offset_db": round(_reported(fit, carrier_hz) + to_gain_db, 4),
        "shadowing_db": round(estimate.shadowing_db, 4),
        "decorrelation_m": round(estimate.decorrelation_m, 4),
        "scatter_db": round(estimate.scatter_db, 4),
        "heading_db_per_m_s": round(fit.term(HEADING), 5),
        "elevation_db_per_deg": round(fit.term(ELEVATION), 5),
    }


def _entry(fit: Fit) -> dict[str, Any]:
    estimate = fit.estimate
    return {
        "name": fit.model,
        "offset_db": round(fit.offset_db, 4),
        "offsets_db": [round(float(one), 4) for one in fit.offsets_db],
        "between_flights_db": _rounded(fit.between_db, 4),
        "exponent": _rounded(fit.exponent, 4),
        "sigma_db": round(estimate.shadowing_db, 4),
        "scatter_db": round(estimate.scatter_db, 4),
        "decorrelation_m": round(estimate.decorrelation_m, 3),
        "antenna": list(fit.terms),
        "heading_db_per_m_s": round(fit.term(HEADING), 5),
        "elevation_db_per_deg": round(fit.term(ELEVATION), 5),
        "covariance": estimate.covariance.tolist(),  # rounded, it may not be positive definite
        "values": fit.values,
        "aic": round(estimate.aic, 3),
        "cv_log_likelihood": round(fit.cv_log_likelihood, 3),
    }


def _link(uplink: Uplink | None, blocks: int) -> document.Link:
    reference = document.Reference(
        uav_tx_power_w=UAV_W,
        base_station_tx_power_w=BASE_STATION_W,
        noise_dbm_per_mhz=NOISE_DBM_PER_MHZ,
    )
    carried = None if uplink is None else uplink.carried
    if carried is None:
        return document.Link(resource_blocks=blocks, reference=reference)
    curve, scheme = carried.curve, carried.scheme
    is_measured = uplink is not None and uplink.is_measured
    return document.Link(
        resource_blocks=blocks,
        implementation_margin_db=round(scheme.margin_db, 2) if is_measured else None,
        highest_snr_db=None if np.isinf(scheme.highest_db) else round(scheme.highest_db, 2),
        error_db=round(carried.error_db, 3),
        reference=reference,
        curve=document.Curve(
            quantiles=QUANTILES.tolist(),
            snr_db=np.round(curve.snr_db, 3).tolist(),
            seconds=curve.seconds.astype(int).tolist(),
            capacity_bps=np.round(curve.capacity_bps, 1).tolist(),
            mcs_up=_known(np.round(curve.mcs, 3)),
            bler_up=_known(np.round(curve.bler, 4)),
            memory_s=round(curve.memory_s, 3),
            memory_share=round(curve.memory_share, 4),
        ),
        stages=[
            document.Stage(
                name=stage.name, median_bps=round(float(np.nanmedian(stage.rate_bps)), 1)
            )
            for stage in carried.stages
        ],
    )


def _known(values: Array) -> Any:
    """The values as lists; None: they were never measured."""
    return values.tolist() if np.isfinite(values).all() else None


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


# --- making it -----------------------------------------------------------------------------------


def flown_in(
    flights: Mapping[str, MeasuredFlight], base_station_m: Sequence[float] = UNNAMED_STATION_M
) -> list[Flown]:
    """The UAVs of a set of flights, with their paths.

    Args:
        flights: The flights by name.
        base_station_m: Position of the base station for flights without this field, e.g. traces.

    Raises:
        InputError: A flight was imported without the position of its base station.
    """
    found = []
    for name, measured in flights.items():
        station = measured.base_station
        if station is None:
            if measured.source is not None:
                raise InputError(
                    f"flight {name}: does not contain the base station's position; import it "
                    "with --base-station"
                )
            station = np.array(base_station_m, np.float64)
        for uav in range(measured.uavs):
            alone = name if measured.uavs == 1 else f"{name} uav{uav + 1}"
            path = Path(measured.position[uav], measured.slot_s, station)
            found.append(Flown(alone, measured, uav, path))
    return found


def _located(flights: Mapping[str, MeasuredFlight]) -> list[Flown]:
    """The UAVs of the flights to fit; a missing position of the base station is filled in.

    Traces of gains get the default position of scenarios. Other flights get x = y = 0 and the
    height at which the likelihood of `log-distance` is highest.
    """
    flown = flown_in(flights)
    unknown = [flight for flight in flown if flight.measured.base_station is None]
    if not unknown:
        return flown
    names = ", ".join(flight.name for flight in unknown)
    field = _field(flown)
    if field == "gain_db":
        log.info("%s: no base_station; %s m is used", names, _place(UNNAMED_STATION_M))
        return flown
    heights = []
    for height_m in HEIGHTS_M:
        there = flown_in(flights, (0.0, 0.0, height_m))
        level = Level.of(there, field, [flight.level_db(field) for flight in there])
        heights.append((log_distance_likelihood(level), height_m, there))
    _, height_m, flown = max(heights, key=lambda one: one[0])
    log.warning(
        "%s: no base_station; %s m is used, the height with which log-distance fits best",
        names,
        _place((0, 0, height_m)),
    )
    return flown


def _place(position_m: Sequence[float]) -> str:
    return f"({', '.join(f'{one:g}' for one in position_m)})"


def _field(flown: Sequence[Flown]) -> str:
    """The level to which models are fitted.

    Raises:
        InputError: The flights have no level in common.
    """
    for field in LEVELS:
        if _measure(flown, field):
            return field
    without = [one.name for one in flown if not any(_measure([one], field) for field in LEVELS)]
    raise InputError(
        f"flights: all flights must have one of {', '.join(LEVELS)}"
        + (f"; {', '.join(without)} has none" if without else "")
    )


def fit_flights(
    flights: Mapping[str, MeasuredFlight],
    models: Sequence[str] = (),
    progress: Callable[[str, int, int], None] = lambda text, done, total: None,
) -> FlightFit:
    """Fit channel models and the link curve to flights.

    Args:
        flights: The flights by name.
        models: Names of channel models; empty: all.
        progress: Called with the current step as text, the number of finished steps, and their
            total number.

    Raises:
        InputError: The flights lack values, or no model is valid along them.
    """
    names = known_models(models)
    flown = _located(flights)
    field = _field(flown)
    carrier_hz = _carrier_hz(flown, "carrier_up_hz" if field == "snr_up_db" else "carrier_down_hz")
    if _measure(flown, "snr_up_db"):
        _carrier_hz(flown, "carrier_up_hz")
    blocks = {flight.measured.resource_blocks or BLOCKS for flight in flown}
    if len(blocks) > 1:
        numbers = ", ".join(map(str, sorted(blocks)))
        raise InputError(f"flights: the carriers have different resource blocks: {numbers}")

    level = Level.of(flown, field, [flight.level_db(field) for flight in flown])
    for flight in flown:
        for name in (field, "snr_up_db"):
            known = flight.values(name)[flight.is_aloft & np.isfinite(flight.values(name))]
            if len(known) and np.ptp(known) == 0:
                raise InputError(
                    f"flight {flight.name}: {name} is {known[0]:g} in all slots in flight; a level "
                    "that was measured varies"
                )
    extent_m = max(np.ptp(f.path.start_m[f.is_aloft], axis=0).max() for f in flown)
    if extent_m < SMALLEST_M:
        raise InputError(
            f"flights: all places in flight are within {extent_m:.1f} m; a path loss is fitted to "
            f"places that are at least {SMALLEST_M:g} m apart"
        )
    ranking = rank(level, carrier_hz, names, progress)
    for model, reason in ranking.refused.items():
        log.warning("%s is not among the models: %s", model, reason)
    uplink = _uplink(flown, level, ranking.chosen, carrier_hz)
    _say_doubts(level, ranking.chosen, uplink)
    return FlightFit(
        flown,
        carrier_hz,
        level,
        ranking,
        uplink,
        _noise_dbm(flown) if field == "rsrp_dbm" else None,
        rician_of(flown, field, carrier_hz),
    )


def _say_doubts(level: Level, fit: Fit, uplink: Uplink | None) -> None:
    """Warn of single values far from the fit, and of rates that the LTE model does not explain."""
    fits = [(level, fit)]
    if uplink is not None and uplink.level is not level:
        fits.append((uplink.level, uplink.fit))
    for measured, its in fits:
        rest_db = measured.series.value_db - its.expected_db
        rest_db -= np.median(rest_db)
        # The median of deviations is that of a normal distribution, despite outliers.
        usual_db = max(1.4826 * float(np.median(np.abs(rest_db))), 1.0)
        slots = measured.by_slot(np.where(np.abs(rest_db) > OUTLYING * usual_db, rest_db, np.nan))
        for flight, far_db in zip(measured.flights, slots, strict=True):
            found = np.flatnonzero(np.isfinite(far_db))
            if len(found):
                log.warning(
                    "%s: %s of %d slots is far from the fit, at %g s by %+.0f dB, which increases "
                    "the scatter; check the values",
                    flight.name,
                    measured.field,
                    len(found),
                    found[0] * flight.path.slot_s,
                    far_db[found[0]],
                )
    carried = None if uplink is None else uplink.carried
    if carried is not None and carried.error_db > LARGEST_ERROR_DB:
        log.warning(
            "uplink_bps: differs from the rate of the LTE model by %.1f dB on average; check its "
            "unit and resource_blocks",
            carried.error_db,
        )


def _measure(flown: Sequence[Flown], field: str) -> bool:
    """Whether all flights have at least one value of this field."""
    return all(np.isfinite(flight.values(field)).any() for flight in flown)


def _carrier_hz(flown: Sequence[Flown], way: str) -> float:
    """The carrier frequency of a direction, which must be the same in all flights."""
    carriers = {getattr(flight.measured, way) or UNNAMED_CARRIER_HZ for flight in flown}
    if len(carriers) > 1:
        raise InputError(
            "flights: the flights have different carriers: "
            + ", ".join(f"{hertz / 1e6:g} MHz" for hertz in sorted(carriers))
        )
    return carriers.pop()


def _uplink(flown: Sequence[Flown], level: Level, chosen: Fit, carrier_hz: float) -> Uplink | None:
    """The uplink; None if neither its signal-to-noise ratio nor its rates were measured."""
    if not _measure(flown, "snr_up_db"):
        seconds = seconds_of(flown, carrier_hz, level.field)
        if seconds is None:
            return None
        noise_db, error_db = noise_db_of(seconds)
        seconds = replace(seconds, snr_db=seconds.snr_db - noise_db)
        carried = Carried(seconds, PLAIN, error_db, curve_of(seconds), ())
        return Uplink(level, chosen, 1.0, carried, noise_db)
    up = Level.of(flown, "snr_up_db", [flight.snr_up_db for flight in flown])

    def loss_db(path: Path) -> Array:
        if chosen.exponent is None:
            return path.loss_db(chosen.model, carrier_hz)
        return chosen.exponent * path.decades_db

    fit = with_antennas(up, chosen.model, up.on_path(loss_db))
    seconds = seconds_of(flown, carrier_hz)
    correlation = _correlation(level, chosen, up, fit)
    return Uplink(up, fit, correlation, None if seconds is None else Carried.of(seconds))


def _correlation(one: Level, its: Fit, other: Level, others: Fit) -> float:
    """Correlation of the shadowing of two levels.

    Independent scatter lowers the correlation of the residuals; the result is corrected for it.
    """
    residuals = [
        np.concatenate(level.by_slot(level.series.value_db - fit.expected_db))
        for level, fit in ((one, its), (other, others))
    ]
    both = np.isfinite(residuals[0]) & np.isfinite(residuals[1])
    if both.sum() < 2:
        return 0.0
    seen = float(np.corrcoef(residuals[0][both], residuals[1][both])[0, 1])
    of_shadowing = np.prod([fit.estimate.shadowing_db / fit.deviation_db for fit in (its, others)])
    return float(np.clip(seen / of_shadowing, -1.0, 1.0)) if np.isfinite(seen) else 0.0


def _noise_dbm(flown: Sequence[Flown]) -> float | None:
    """Median of RSRP minus the downlink's signal-to-noise ratio; None: one was not measured."""
    low_db, high_db = CLEAR_DB
    parts = []
    for flight in flown:
        snr_db, rsrp_dbm = flight.values("snr_db"), flight.values("rsrp_dbm")
        clear = flight.is_aloft & (snr_db >= low_db) & (snr_db <= high_db) & np.isfinite(rsrp_dbm)
        parts.append((rsrp_dbm - snr_db)[clear])
    differences = np.concatenate(parts)
    return float(np.median(differences)) if len(differences) else None
