# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Sentences about a forecast, and its scores with their goals."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from orchestrator.analysis.statistics import Interval, share_of
from orchestrator.flights.fitting import Flown
from orchestrator.flights.forecast import LEVELS, MINUTE_S, Forecast, Reveal
from orchestrator.reporting.formatting import listed, number

UNITS = {
    "rsrp_dbm": ("RSRP", "dBm"),
    "gain_db": ("channel gain", "dB"),
    "snr_db": ("SNR of the downlink", "dB"),
    "snr_up_db": ("SNR of the uplink", "dB"),
}
"""Title and unit of each level by its name."""
COVERAGE = (0.85, 0.95)
"""Goal: share of the measured values in the 90 % band."""
MEDIAN = 0.2
"""Goal: largest relative error of the median goodput."""
TOO_FEW = "too few independent values to judge"
"""Words for a coverage whose interval contains values that meet the goal, and others."""
KS = 0.2
"""Goal: largest Kolmogorov-Smirnov distance of the goodput."""


def sentences_of(made: Forecast, flight: Flown) -> list[str]:
    """The result of a forecast in sentences, the most important one first."""
    found = [forecast_sentence(made)]
    if made.reveal is not None:
        missed = _miss(scores_of(made, made.reveal), made, flight)
        found = [reveal_sentence(made, made.reveal), missed, *found]
    caveat = _caveat(made)
    return found if caveat is None else [*found, caveat]


def _caveat(made: Forecast) -> str | None:
    """A sentence on effects that the bands do not contain; None: there is no such limitation."""
    if made.inputs.like is not None:
        return f"The bands are valid for a flight with the radio of {made.inputs.like}."
    if made.inputs.fitted_flights == 1:
        return (
            "The fit has one flight, so the difference between flights is unknown: the bands are "
            "valid for a flight with the same radio."
        )
    return None


def forecast_sentence(made: Forecast) -> str:
    """The forecast in one sentence, with its digest."""
    title, unit = UNITS[made.level]
    parts = []
    minutes = len(made.rsrp_dbm.p50) * made.slot_s / MINUTE_S
    if made.uplink_distribution_bps is not None and made.uplink_bytes is not None:
        low, middle, high = np.interp((0.05, 0.5, 0.95), LEVELS, made.uplink_distribution_bps) / 1e6
        parts.append(
            f"median goodput {middle:.1f} Mb/s (90 % of the seconds between {low:.1f} and "
            f"{high:.1f}), {_data(made.uplink_bytes.p50)} in {minutes:.0f} minutes"
        )
    level = number(float(np.median(made.rsrp_dbm.p50)), 0)
    parts.append(f"median {title} {level} {unit}")
    return (
        f"Forecast for {made.inputs.flight} from its positions: {'; '.join(parts)}; sealed at "
        f"{made.made.replace('T', ' ').replace('+00:00', ' UTC')}, digest {made.digest[:16]}…"
    )


def _data(size: float) -> str:
    """An amount of data in GB, or in MB below 0.1 GB."""
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def reveal_sentence(made: Forecast, reveal: Reveal) -> str:
    """The comparison of a forecast with the measured values, in one sentence."""
    text = (
        f"The 90 % band contains {100 * reveal.rsrp_coverage_90:.1f} % of the measured "
        f"{UNITS[made.level][0]}"
    )
    forecast_bps, measured_bps = reveal.uplink_median_forecast_bps, reveal.uplink_median_bps
    if forecast_bps is not None and measured_bps is not None:
        text += (
            f"; median goodput forecast {forecast_bps / 1e6:.1f} Mb/s, measured "
            f"{measured_bps / 1e6:.1f} Mb/s"
        )
        if reveal.uplink_median_error is not None:
            text += f" ({signed(100 * reveal.uplink_median_error, 0)} %)"
        if reveal.uplink_ks is not None:
            text += f", KS distance {reveal.uplink_ks:.2f}"
    return text + "."


def signed(value: float, digits: int) -> str:
    """A number with its sign; + only if it is positive after rounding."""
    return "+" * (round(value, digits) > 0) + number(value, digits)


def scores_of(made: Forecast, reveal: Reveal) -> list[dict[str, Any]]:
    """The scores of a forecast: name, value as text, goal, whether it is met, and meaning.

    A coverage has a 95 % interval, `interval`, from the number of independent values. It meets its
    goal if the interval is within the goal, and misses it if both have no value in common; else the
    values are too few to judge, and `met` is None like that of a score without a goal. `miss` is
    the distance from the middle of the goal, relative to half of the goal's width.
    """
    title = UNITS[made.level][0]
    found: list[dict[str, Any]] = []

    def add(
        name: str,
        value: float | None,
        text: str,
        meaning: str,
        goal: tuple[str, float, float] | None = None,
    ) -> None:
        if value is None:
            return
        score: dict[str, Any] = {"name": name, "text": text, "meaning": meaning}
        score |= {"goal": "none", "met": None}
        if goal is not None:
            words, low, high = goal
            miss = abs(2 * value - low - high) / (high - low)
            score |= {"goal": words, "met": low <= value <= high, "miss": miss}
        found.append(score)

    def coverage(name: str, field: str, what: str) -> None:
        share, (low, high) = getattr(reveal, field), COVERAGE
        if share is None:
            return
        count = reveal.independent.get(field, 0.0)
        found_share = share_of(share * count, count)
        add(
            f"{name} in the 90 % band",
            share,
            f"{100 * share:.1f} %{_ends(found_share)}",
            f"Share of {what} inside the band, of {count:.0f} independent ones. Below 90 %: the "
            "band is too narrow, or its middle is wrong. Above 90 %: the band is too wide.",
            (f"{100 * low:.0f} to {100 * high:.0f} %", low, high),
        )
        apart = found_share.low > high or found_share.high < low
        inside = low <= found_share.low and found_share.high <= high
        found[-1] |= {"met": inside if inside or apart else None, "interval": found_share}

    coverage(title, "rsrp_coverage_90", "the measured values")
    bias_db, crps_db = reveal.rsrp_bias_db, reveal.crps_db
    add(
        f"{title}, mean error",
        bias_db,
        f"{signed(bias_db, 2)} dB",
        "Mean of the measured value minus the forecast median.",
    )
    add(
        f"{title}, CRPS",
        crps_db,
        f"{crps_db:.2f} dB",
        "Mean distance of the forecast distribution from the measured value. For a forecast "
        "without a band, it is the mean absolute error. Smaller values are better.",
    )
    coverage("SNR of the uplink", "snr_up_coverage_90", "the measured values")
    coverage("Goodput by second", "uplink_coverage_90", "the seconds")
    coverage("Goodput by minute", "uplink_minutes_coverage_90", "the minutes")
    error = reveal.uplink_median_error or 0.0
    add(
        "Median goodput, error",
        reveal.uplink_median_error,
        f"{signed(100 * error, 1)} %",
        "Forecast median / measured median − 1.",
        (f"−{100 * MEDIAN:.0f} to +{100 * MEDIAN:.0f} %", -MEDIAN, MEDIAN),
    )
    distance = reveal.uplink_ks or 0.0
    add(
        "Goodput, KS distance",
        reveal.uplink_ks,
        f"{distance:.3f}",
        "Largest difference between the cumulative distributions of the forecast and the measured "
        "seconds: 0 if they are equal, 1 if they do not overlap.",
        # A distance is at least 0, so the goal is made symmetric for `miss`.
        (f"at most {KS:g}", -KS, KS),
    )
    data_error = reveal.uplink_bytes_error or 0.0
    add(
        "Data in the flight, error",
        reveal.uplink_bytes_error,
        f"{signed(100 * data_error, 1)} %",
        "Forecast data / measured data − 1, in the same seconds.",
    )
    return found


def _ends(share: Interval) -> str:
    """The interval of a share in brackets; empty if there is none."""
    if not share.exists:
        return ""
    return f" [{100 * share.low:.0f} to {100 * share.high:.0f} %]"


def is_open(score: Mapping[str, Any]) -> bool:
    """Whether a score has a goal, but its values are too few to judge it."""
    return score["met"] is None and score["goal"] != "none"


def met_of(score: Mapping[str, Any]) -> str:
    """Whether a score meets its goal, in words; empty without a goal."""
    if is_open(score):
        return TOO_FEW
    return {None: "", True: "yes", False: "no"}[score["met"]]


def _miss(scores: Sequence[dict[str, Any]], made: Forecast, flight: Flown) -> str:
    """A sentence on how many goals are met, and on the one that is missed most."""
    judged = [score for score in scores if score["met"] is not None]
    missed = [score for score in judged if not score["met"]]
    unjudged = [f"“{score['name']}”" for score in scores if is_open(score)]
    few = f" {TOO_FEW[:1].upper()}{TOO_FEW[1:]}: {listed(unjudged)}." if unjudged else ""
    if not judged:
        return few.strip()
    if not missed:
        return f"All {len(judged)} goals {'that can be judged ' * bool(few)}are met.{few}"
    worst = max(missed, key=lambda score: float(score["miss"]))
    text = (
        f"{len(judged) - len(missed)} of {len(judged)} goals are met; “{worst['name']}” misses "
        f"its goal most, with {worst['text']} (goal: {worst['goal']})"
    )
    if made.snr_up_db is not None:
        bias_db = np.where(flight.is_aloft, flight.snr_up_db - np.array(made.snr_up_db.p50), np.nan)
        if np.isfinite(bias_db).any():
            mean_db = float(np.nanmean(bias_db))
            text += (
                f"; the measured SNR of the uplink is on average {abs(mean_db):.1f} dB "
                f"{'above' if mean_db > 0 else 'below'} the forecast"
            )
    return f"{text}.{few}"
