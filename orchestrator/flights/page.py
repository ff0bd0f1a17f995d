# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The pages of a fit and of a forecast; each page is one self-contained file."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from orchestrator.engine.arrays import Array
from orchestrator.flights import document
from orchestrator.flights.fitting import AS_GOOD, HEADING, TERMS, Fit, Flown, Level
from orchestrator.flights.forecast import (
    LEVELS,
    MINUTE_S,
    NORMAL_90,
    Band,
    Forecast,
    by_minute,
)
from orchestrator.flights.geometry import LOG_DISTANCE, Path
from orchestrator.flights.likelihood import LEAST_M
from orchestrator.flights.link import PLAIN, QUANTILES
from orchestrator.flights.result import Carried, FlightFit, Uplink
from orchestrator.flights.words import UNITS, scores_of, sentences_of
from orchestrator.records.manifest import provenance
from orchestrator.reporting.pages import render_page
from orchestrator.reporting.xy import band, bars, chart, line, points
from orchestrator.scenario.yaml_text import dump

SCRIPTS = ("charts", "frame", "xy", "tables", "plain")
FLIGHT_COLOURS = ("ring-1", "ring-2", "ring-3", "ring-4")
DASHES = ("7 4", "2 3", "9 3 2 3", "12 4", "4 4 1 4", "1 5")
BINS = 30
"""Number of bars of the histogram, and of distances of the autocorrelation."""
MOST_SLOTS = 600
"""Largest number of slots between two residuals of the autocorrelation."""
FEWEST = 10
"""Smallest number of values for a median or a correlation that is drawn."""

Charts = dict[str, dict[str, Any]]

# --- fit -----------------------------------------------------------------------------------------


def fit_page(fit: FlightFit, charts: Charts | None = None) -> str:
    """The page of a fit, as HTML; `charts` are those of `fit_charts`, if they are made already."""
    made, uplink = fit.document(), fit.uplink
    measured = made.uplink if uplink is not None and uplink.is_measured else None
    title, unit = UNITS[made.level]
    charts = fit_charts(fit) if charts is None else charts
    return render_page(
        "fit.html",
        SCRIPTS,
        {"charts": charts},
        sentences=[fit.sentence, *_uplink_sentences(uplink)],
        made=made,
        uplink=measured,
        title=title,
        unit=unit,
        as_good=AS_GOOD,
        models=[_model_row(one, made.models[0]) for one in made.models],
        antennas=[_model_row(one, made.antennas[0]) for one in made.antennas],
        uplink_antenna=None if measured is None else _model_row(measured, measured),
        stages=_stage_rows(made.link.stages),
        flights=_flight_rows(fit, made, measured),
        keys=_keys(made),
        environment=provenance(),
        charts=charts,
    )


def fit_charts(fit: FlightFit) -> Charts:
    """The charts of the page of a fit by name, see `orchestrator.reporting.xy`."""
    uplink = fit.uplink
    title, unit = UNITS[fit.document().level]
    charts = _level_charts(fit, title, unit) | _residual_charts(fit.level, fit.ranking.chosen)
    if uplink is not None and uplink.is_measured:
        charts |= _heading_chart(uplink.level, uplink.fit, UNITS["snr_up_db"][0])
    else:
        charts |= _heading_chart(fit.level, fit.ranking.chosen, title)
    if uplink is not None and uplink.carried is not None:
        charts |= _link_charts(uplink.carried)
    return charts


def _uplink_sentences(uplink: Uplink | None) -> list[str]:
    """Sentences on the uplink: its antenna, and its link curve."""
    found = []
    if uplink is not None and uplink.is_measured and HEADING in uplink.fit.terms:
        slope, away = uplink.fit.term(HEADING), uplink.level.on_path(TERMS[HEADING])
        fast = round(float(np.quantile(np.abs(away), 0.95)))
        found.append(
            f"The uplink's SNR {'rises' if slope > 0 else 'falls'} by {abs(slope):.2f} dB per m/s "
            f"of velocity away from the base station. At {fast} m/s, the SNR at the same place "
            f"differs by {2 * fast * abs(slope):.0f} dB between outbound and inbound flight."
        )
    if uplink is not None and uplink.carried is not None and uplink.carried.stages:
        found.append(_link_sentence(uplink.carried))
    return found


LOSSES = (
    "the low SNR",
    "the default margin and the discrete rates of the LTE model",
    "the difference between the fitted and the default LTE parameters",
    "block errors and other effects that the LTE model does not contain",
    "TTIs without a transport block",
)
"""The cause of the loss between each stage and the next one."""


def _link_sentence(carried: Carried) -> str:
    """A sentence on the LTE model and the capacity, and on the largest loss from Shannon's rate."""
    mbps = [max(float(np.nanmedian(stage.rate_bps)), 1.0) / 1e6 for stage in carried.stages]
    shannon, model, measured = mbps[0], mbps[2], mbps[4]
    factors = np.array(mbps[:-1]) / np.array(mbps[1:])
    most = int(factors.argmax())
    return (
        f"At the measured SNR, the LTE model with a margin of {PLAIN.margin_db:.1f} dB predicts "
        f"{model:.1f} Mb/s; the measured capacity is {measured:.1f} Mb/s. The largest loss from "
        f"Shannon's {shannon:.0f} Mb/s is due to {LOSSES[most]} ({mbps[most]:.1f} to "
        f"{mbps[most + 1]:.1f} Mb/s)."
    )


def _colour(flight: int) -> str:
    return FLIGHT_COLOURS[flight % len(FLIGHT_COLOURS)]


def _minutes(flight: Flown) -> Array:
    """The middle of each slot in minutes, shape [S]."""
    slot_s = flight.measured.slot_s
    return np.asarray((np.arange(len(flight.path.far_m)) + 0.5) * slot_s / MINUTE_S)


def _level_charts(fit: FlightFit, title: str, unit: str) -> Charts:
    """Charts of the level against distance, and against time for each flight."""
    level, best, chosen = fit.level, fit.ranking.best, fit.ranking.chosen
    axis = f"{title} in {unit}"
    far_m = level.on_path(lambda path: path.far_m)
    path = _straight(level)
    at_m = path.far_m
    lines = []
    for one, dash in zip(fit.ranking.fits[1:], DASHES * len(fit.ranking.fits), strict=False):
        expected = _over_distance(fit, one, path)
        lines.append(line(one.model, at_m, expected, "muted", dash=dash, width=1.2))
    middle, edge = _over_distance(fit, best, path), NORMAL_90 * best.deviation_db
    seen = [
        points(flight.name, far_m[which], level.series.value_db[which], _colour(index))
        for index, flight in enumerate(fit.flights)
        for which in [level.series.flight == index]
    ]
    height_m = float(path.height_m[0])
    charts = {
        "distance": chart(
            f"{title} against distance: values of all flights, {best.model} with its 90 % band, "
            "and the other models",
            "distance in m",
            axis,
            [
                *seen,
                band("90 % band", at_m, middle - edge, middle + edge, "accent"),
                *lines,
                line(f"{best.model}, height {height_m:.0f} m", at_m, middle, "ink", width=2.4),
            ],
            log_x=True,
        )
    }
    expected_db = level.by_slot(chosen.expected_db)
    edge = NORMAL_90 * chosen.deviation_db
    for index, (flight, middle) in enumerate(zip(fit.flights, expected_db, strict=True)):
        at = _minutes(flight)
        measured = level.by_slot(level.series.value_db)[index]
        charts[f"time-{index}"] = chart(
            f"{title} of {flight.name} against time: measured, and expected with its 90 % band",
            "time in min",
            axis,
            [
                band("90 % band", at, middle - edge, middle + edge, "accent"),
                points("measured", at, measured, _colour(index)),
                line("expected from the position", at, middle, "ink", width=1.6),
            ],
        )
    return charts


def _straight(level: Level) -> Path:
    """A straight path away from the base station at the median height, over the flown distances."""
    across = level.on_path(lambda path: path.across_m)
    height_m = float(np.median(level.on_path(lambda path: path.height_m)))
    at = np.geomspace(max(float(across.min()), 1.0), max(float(across.max()), 2.0), 150)
    station = level.flights[0].path.base_station_m
    start = np.stack([station[0] + at, np.full_like(at, station[1]), np.full_like(at, height_m)])
    return Path(start.T, level.flights[0].path.slot_s, station)


def _over_distance(fit: FlightFit, one: Fit, path: Path) -> Array:
    """The level that a fit without terms of the antenna expects along a path, shape [S]."""
    if one.model == LOG_DISTANCE:
        return np.asarray(one.offset_db - (one.exponent or 0.0) * path.decades_db)
    return np.asarray(one.offset_db - path.loss_db(one.model, fit.carrier_hz))


def _residual_charts(level: Level, chosen: Fit) -> Charts:
    """Charts of the residuals: against time, as a histogram, and their autocorrelation."""
    rest = level.series.value_db - chosen.expected_db
    estimate, deviation_db = chosen.estimate, chosen.deviation_db
    heights, edges = np.histogram(rest, BINS)
    middles = (edges[1:] + edges[:-1]) / 2
    normal = np.exp(-((middles / deviation_db) ** 2) / 2) / (deviation_db * np.sqrt(2 * np.pi))
    apart_m, correlation = _autocorrelation(level, rest, estimate.decorrelation_m)
    share = (estimate.shadowing_db / deviation_db) ** 2
    smooth_m = np.linspace(0, apart_m.max(), 200)
    return {
        "residuals": chart(
            "Residuals against time",
            "time in min",
            "measured − expected in dB",
            [
                points(flight.name, _minutes(flight), values, _colour(index))
                for index, (flight, values) in enumerate(
                    zip(level.flights, level.by_slot(rest), strict=True)
                )
            ],
        ),
        "histogram": chart(
            f"Histogram of the residuals, and the normal distribution with {deviation_db:.1f} dB",
            "measured − expected in dB",
            "number of values",
            [
                bars("residuals", edges, heights.astype(np.float64), "accent"),
                line(
                    f"normal distribution, {deviation_db:.1f} dB",
                    middles,
                    len(rest) * np.diff(edges) * normal,
                    "ink",
                ),
            ],
            from_zero=True,
        ),
        "autocorrelation": chart(
            "Autocorrelation of the residuals against the path between them: measured and fitted",
            "path between two values in m",
            "autocorrelation",
            [
                points("residuals", apart_m, correlation, "ring-1"),
                line(
                    f"fitted: {share:.2f} exp(−d / {estimate.decorrelation_m:.0f} m)",
                    smooth_m,
                    share * np.exp(-smooth_m / estimate.decorrelation_m),
                    "ink",
                ),
            ],
            digits=(1, 2),
        ),
    }


def _autocorrelation(level: Level, rest: Array, decorrelation_m: float) -> tuple[Array, Array]:
    """Correlation of residuals against the path between them, in up to `BINS` steps.

    Args:
        level: The level.
        rest: Residuals, shape [n].
        decorrelation_m: The decorrelation distance. The longest path between two residuals is
            four times this, but at most the path of the flights, and at least ten median steps.

    Returns:
        Mean path of the pairs in each step, and their correlation, shape [B] each.
    """
    way_m = level.on_path(lambda path: path.way_m)
    some_m = max(10 * float(np.median(level.series.step_m)), LEAST_M)
    farthest_m = max(min(4 * decorrelation_m, float(np.ptp(way_m))), some_m)
    width_m = farthest_m / BINS
    sums = np.zeros((3, BINS))
    for gap in range(1, min(MOST_SLOTS, len(rest))):
        apart_m = way_m[gap:] - way_m[:-gap]
        pairs = (level.series.flight[gap:] == level.series.flight[:-gap]) & (apart_m < farthest_m)
        step = np.minimum(apart_m[pairs] / width_m, BINS - 1).astype(np.int64)
        products = (rest[gap:] * rest[:-gap])[pairs]
        for row, weights in zip(sums, (np.ones(len(step)), apart_m[pairs], products), strict=True):
            row += np.bincount(step, weights, BINS)
    count, paths_m, products = sums[:, sums[0] >= FEWEST]
    return paths_m / count, products / count / max((rest**2).mean(), 1e-12)


def _heading_chart(level: Level, fit: Fit, title: str) -> Charts:
    """Chart of the residuals without the heading term, against the velocity away."""
    away = level.on_path(TERMS[HEADING])
    slope = fit.term(HEADING)
    rest = level.series.value_db - fit.expected_db + slope * away
    drawn = [
        points(flight.name, away[which], rest[which], _colour(index))
        for index, flight in enumerate(level.flights)
        for which in [level.series.flight == index]
    ]
    steps = np.round(away)
    many = [step for step in np.unique(steps) if (steps == step).sum() >= FEWEST]
    medians = np.array([np.median(rest[steps == step]) for step in many])
    drawn.append(line("median per 1 m/s", np.array(many), medians, "more", width=1.6))
    if slope:
        ends = np.array([away.min(), away.max()])
        drawn.append(line(f"fitted: {slope:.2f} dB per m/s", ends, slope * ends, "ink"))
    return {
        "heading": chart(
            f"{title}: residuals without the heading term against the velocity away",
            "velocity away from the base station in m/s",
            "measured − expected in dB",
            drawn,
        )
    }


def _link_charts(carried: Carried) -> Charts:
    """Charts of the measured link curve and of the LTE model."""
    curve, seconds = carried.curve, carried.seconds
    snr_db = np.linspace(float(curve.snr_db.min()), float(curve.snr_db.max()), 400)
    schemes = [
        (f"LTE model, margin {PLAIN.margin_db:.1f} dB", PLAIN, "ring-2", "7 4"),
        (f"LTE model, {_scheme_text(carried)}", carried.scheme, "ink", ""),
    ][: 2 if carried.stages else 1]
    modelled = {}
    for name, scheme, _, _ in schemes:
        bps, mcs = scheme.of(snr_db, seconds.blocks)
        modelled[name] = bps, np.where(mcs < 0, np.nan, mcs)
    low, middle, high = (int(np.abs(QUANTILES - q).argmin()) for q in (0.05, 0.5, 0.95))

    def measured(table: Array, name: str, y_label: str, of_model: int, scale: float) -> Any:
        return chart(
            f"{name} of the uplink against its SNR: measured, and of the LTE model",
            "SNR of the uplink in dB",
            y_label,
            [
                band("measured, 90 %", curve.snr_db, table[:, low], table[:, high], "ring-1"),
                line("measured, median", curve.snr_db, table[:, middle], "ring-1", width=2.6),
                *(
                    line(text, snr_db, modelled[text][of_model] / scale, colour,
                         dash=dash, width=1.6)
                    for text, _, colour, dash in schemes
                ),
            ],
            from_zero=True,
        )  # fmt: skip

    return {
        "capacity": measured(curve.capacity_bps / 1e6, "Capacity", "capacity in Mb/s", 0, 1e6),
        "mcs": measured(curve.mcs, "MCS", "MCS", 1, 1.0),
        "bler": chart(
            "Block error rate of the uplink against its SNR: measured medians",
            "SNR of the uplink in dB",
            "block error rate",
            [line("measured, median", curve.snr_db, curve.bler, "ring-1", width=2.6)],
            from_zero=True,
            digits=(1, 3),
        ),
    }


def _scheme_text(carried: Carried) -> str:
    highest_db = carried.scheme.highest_db
    text = f"fitted margin {carried.scheme.margin_db:.1f} dB"
    return text if np.isinf(highest_db) else f"{text}, highest SNR {highest_db:.1f} dB"


def _model_row(model: document.Model, best: document.Model) -> dict[str, Any]:
    """A row of the tables of models: the fitted values, with standard errors of the terms."""
    errors = np.sqrt(np.diag(np.array(model.covariance))).tolist()
    of_terms = errors[len(errors) - len(model.antenna) :]
    return {
        "model": model,
        "difference": model.aic - best.aic,
        "is_best": model is best,
        "errors": dict(zip(model.antenna, of_terms, strict=True)),
    }


def _stage_rows(stages: Sequence[document.Stage]) -> list[dict[str, Any]]:
    """A row for each stage: its median, and its change from the previous stage."""
    before: Sequence[document.Stage | None] = [None, *stages]
    most = max((stage.median_bps for stage in stages), default=0.0) or 1.0
    return [
        {
            "name": stage.name,
            "mbps": stage.median_bps / 1e6,
            "change": stage.median_bps / last.median_bps - 1 if last and last.median_bps else None,
            "percent": 100 * stage.median_bps / most,
        }
        for stage, last in zip(stages, before, strict=False)
    ]


def _flight_rows(
    fit: FlightFit, made: document.Document, uplink: document.Uplink | None
) -> list[dict[str, Any]]:
    """A row for each flight: the slots that were used, and its offsets."""
    rows = []
    for index, (flight, used) in enumerate(zip(fit.flights, fit.level.used, strict=True)):
        height_m = flight.path.height_m[used]
        rows.append(
            {
                "flight": made.flights[index],
                "seconds": float(used.sum()) * flight.measured.slot_s,
                "heights": (float(height_m.min()), float(height_m.max())),
                "level": _offset(made.chosen, index),
                "uplink": None if uplink is None else _offset(uplink, index),
            }
        )
    return rows


def _offset(model: document.Model, index: int) -> tuple[float, float]:
    """The offset of a flight, and its difference from the mean of all flights."""
    offset_db = model.offsets_db[index]
    return offset_db, offset_db - model.offset_db


def _keys(made: document.Document) -> str | None:
    """The scenario keys for the fitted channel and link, as YAML; None: there is no channel."""
    if made.channel is None:
        return None
    radio: dict[str, Any] = {"channel": "fitted", "fitted": "FIT.json"}
    link = {
        "implementation_margin_db": made.link.implementation_margin_db,
        "highest_snr_db": made.link.highest_snr_db,
    }
    known = {name: value for name, value in link.items() if value is not None}
    if known:
        radio |= {"access": "lte", "lte": known}
    return dump({"radio": radio})


# --- forecast ------------------------------------------------------------------------------------


def forecast_page(made: Forecast, flight: Flown, charts: Charts | None = None) -> str:
    """The page of a forecast, as HTML.

    Args:
        made: The forecast.
        flight: The flight. Its measured values are shown only if the forecast is revealed.
        charts: Those of `forecast_charts`, if they are made already.
    """
    reveal, charts = made.reveal, forecast_charts(made, flight) if charts is None else charts
    return render_page(
        "forecast.html",
        SCRIPTS,
        {"charts": charts},
        made=made,
        title=UNITS[made.level][0],
        sentences=sentences_of(made, flight),
        environment=provenance(),
        scores=[] if reveal is None else scores_of(made, reveal),
        inputs={
            INPUTS.get(name, name): MISSING.get(name) if value is None else value
            for name, value in made.inputs
        },
        charts=charts,
    )


INPUTS = {
    "fit": "FIT.json (SHA-256)",
    "fitted_flights": "Number of fitted flights",
    "flight": "Flight",
    "positions": "Positions (SHA-256)",
    "resource_blocks": "Resource blocks",
    "offered_bps": "Rate of the application in bit/s",
    "like": "Fitted flight with the same radio",
    "seed": "Seed",
    "draws": "Number of draws",
}
"""Titles of the inputs of a forecast."""
MISSING = {"offered_bps": "no limit: data always wait", "like": "any"}
"""The text for an input that is absent."""


def forecast_charts(made: Forecast, flight: Flown) -> Charts:
    """Charts of the bands against time, and of the distribution of the goodput."""
    title, unit = UNITS[made.level]
    aloft = flight.is_aloft & (made.reveal is not None)

    def seen(values: Array) -> Array:
        return np.asarray(np.where(aloft, values, np.nan))

    level = flight.snr_up_db if made.level == "snr_up_db" else flight.values(made.level)
    at, goodput_bps = _minutes(flight), seen(flight.values("uplink_bps"))
    charts = {"level": _band_chart(title, f"{title} in {unit}", at, made.rsrp_dbm, seen(level))}
    if made.snr_up_db is not None:
        charts["snr"] = _band_chart(
            "SNR of the uplink", "SNR in dB", at, made.snr_up_db, seen(flight.snr_up_db)
        )
    if made.uplink_bps is not None and made.uplink_minutes_bps is not None:
        label = "goodput in Mb/s"
        charts["goodput"] = _band_chart(
            "Goodput by second", label, at, made.uplink_bps, goodput_bps, 1e6
        )
        minutes = by_minute(goodput_bps, made.slot_s)
        if len(minutes):
            length = max(1, round(MINUTE_S / made.slot_s)) * made.slot_s / MINUTE_S
            charts["minutes"] = _band_chart(
                "Goodput by minute",
                label,
                np.linspace(0.5, len(minutes) - 0.5, len(minutes)) * length,
                made.uplink_minutes_bps,
                minutes,
                1e6,
            )
    if made.uplink_distribution_bps is not None:
        quantiles = np.array(made.uplink_distribution_bps)
        charts["distribution"] = _distribution_chart(quantiles, goodput_bps)
    return charts


def _band_chart(
    title: str, y_label: str, at: Array, forecast: Band, measured: Array, unit: float = 1.0
) -> dict[str, Any]:
    """Chart of a forecast against time in minutes, with the measured values that are not NaN."""
    low, middle, high = (
        np.array(values) / unit for values in (forecast.p5, forecast.p50, forecast.p95)
    )
    drawn = [band("forecast, 90 % band", at, low, high, "accent")]
    if np.isfinite(measured).any():
        drawn.append(points("measured", at, measured / unit, "ring-2"))
    drawn.append(line("forecast, median", at, middle, "ink", width=1.6))
    words = " and measured" * (len(drawn) > 2)
    return chart(
        f"{title} against time: forecast with its 90 % band{words}",
        "time in min",
        y_label,
        drawn,
        from_zero=unit > 1,
    )


def _distribution_chart(quantiles: Array, goodput_bps: Array) -> dict[str, Any]:
    """Chart of the cumulative distributions of the goodput by second, and of the KS distance."""
    drawn = [line("forecast", quantiles / 1e6, LEVELS, "ink")]
    measured = np.sort(goodput_bps[np.isfinite(goodput_bps)])
    words = "forecast"
    if len(measured):
        share = np.arange(1, len(measured) + 1) / len(measured)
        at_bps, low, high = _farthest_apart(measured, quantiles)
        drawn += [
            line("measured", measured / 1e6, share, "ring-2", dash="7 4"),
            line(
                f"KS distance {abs(high - low):.2f} at {at_bps / 1e6:.1f} Mb/s",
                np.full(2, at_bps / 1e6),
                np.array([low, high]),
                "bad",
                width=3,
            ),
        ]
        words = "forecast and measured"
    return chart(
        f"Cumulative distribution of the goodput by second, {words}",
        "goodput in Mb/s",
        "share of the seconds",
        drawn,
        from_zero=True,
        digits=(1, 2),
    )


def _farthest_apart(measured: Array, quantiles: Array) -> tuple[float, float, float]:
    """The place where two distributions differ most, and both cumulative distributions there.

    Args:
        measured: Values of the first distribution, ascending.
        quantiles: Quantiles of the second distribution at `LEVELS`.
    """
    places = np.unique(np.concatenate([measured, quantiles]))
    # Both sides of a jump are compared.
    sides = np.concatenate([np.nextafter(places, -np.inf), np.nextafter(places, np.inf)])
    seen = np.searchsorted(measured, sides, side="right") / len(measured)
    expected = np.interp(sides, quantiles, LEVELS, left=0.0, right=1.0)
    most = int(np.abs(seen - expected).argmax())
    return float(sides[most]), float(seen[most]), float(expected[most])
