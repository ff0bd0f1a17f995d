# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A forecast and its scores in words."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from orchestrator.flights.fitting import Flown
from orchestrator.flights.forecast import LEVELS, MINUTE_S, Forecast, Reveal
from orchestrator.reporting.formatting import number

UNITS = {
    "rsrp_dbm": ("RSRP", "dBm"),
    "gain_db": ("channel gain", "dB"),
    "snr_db": ("SNR of the downlink", "dB"),
    "snr_up_db": ("SNR of the uplink", "dB"),
}
"""Title and unit of each level."""
COVERAGE = (0.85, 0.95)
"""Goal of the part of the measured values in the band of 90 %."""
MEDIAN = 0.2
"""Goal of the size of the median's error."""
KS = 0.2
"""Goal of the Kolmogorov-Smirnov distance."""


def sentences_of(made: Forecast, flight: Flown) -> list[str]:
    """What came out, the most important sentence first."""
    found = [forecast_sentence(made)]
    if made.reveal is not None:
        missed = _miss(scores_of(made, made.reveal), made, flight)
        found = [reveal_sentence(made, made.reveal), missed, *found]
    caveat = _caveat(made)
    return found if caveat is None else [*found, caveat]


def _caveat(made: Forecast) -> str | None:
    """What the bands of a forecast do not contain, in a sentence; None: nothing more is known."""
    if made.inputs.like is not None:
        return f"The bands hold for a flight with the radio of {made.inputs.like}."
    if made.inputs.fitted_flights == 1:
        return (
            "The fit has one flight, so it is not known how much flights differ: the bands hold "
            "for a flight with the same radio."
        )
    return None


def forecast_sentence(made: Forecast) -> str:
    """A forecast in a sentence."""
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
    """How a forecast compares with what was measured, in a sentence."""
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
    """A number with its sign, and + only where it is positive after rounding."""
    return "+" * (round(value, digits) > 0) + number(value, digits)


def scores_of(made: Forecast, reveal: Reveal) -> list[dict[str, Any]]:
    """The scores of a forecast: value, goal, whether it is met, and meaning.

    `miss` is the distance from the middle of the goal relative to half of its width.
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

    def coverage(name: str, share: float | None, what: str) -> None:
        low, high = COVERAGE
        add(
            f"{name} in the 90 % band",
            share,
            f"{100 * (share or 0.0):.1f} %",
            f"The part of {what} that the band contains. Less than 90 %: the forecast is too sure "
            "of itself, or off; more: it is too vague.",
            (f"{100 * low:.0f} to {100 * high:.0f} %", low, high),
        )

    coverage(title, reveal.rsrp_coverage_90, "the measured values")
    bias_db, crps_db = reveal.rsrp_bias_db, reveal.crps_db
    add(
        f"{title}, mean error",
        bias_db,
        f"{signed(bias_db, 2)} dB",
        "Mean of measured less forecast median.",
    )
    add(
        f"{title}, CRPS",
        crps_db,
        f"{crps_db:.2f} dB",
        "Distance of the forecast distributions from the measured values; for a forecast without "
        "a band it is the mean absolute error. The smaller, the better.",
    )
    coverage("SNR of the uplink", reveal.snr_up_coverage_90, "the measured values")
    coverage("Goodput by second", reveal.uplink_coverage_90, "the seconds")
    coverage("Goodput by minute", reveal.uplink_minutes_coverage_90, "the minutes")
    error = reveal.uplink_median_error or 0.0
    add(
        "Median goodput, error",
        reveal.uplink_median_error,
        f"{signed(100 * error, 1)} %",
        "Forecast over measured median, less 1.",
        (f"−{100 * MEDIAN:.0f} to +{100 * MEDIAN:.0f} %", -MEDIAN, MEDIAN),
    )
    distance = reveal.uplink_ks or 0.0
    add(
        "Goodput, KS distance",
        reveal.uplink_ks,
        f"{distance:.3f}",
        "Largest difference of the forecast and the measured distribution of the seconds: 0 if "
        "they are the same, 1 if they do not overlap.",
        # A distance has no middle to be near to: half of the goal's width is all of it.
        (f"at most {KS:g}", -KS, KS),
    )
    data_error = reveal.uplink_bytes_error or 0.0
    add(
        "Data in the flight, error",
        reveal.uplink_bytes_error,
        f"{signed(100 * data_error, 1)} %",
        "Forecast over measured data in the same seconds, less 1.",
    )
    return found


def _miss(scores: Sequence[dict[str, Any]], made: Forecast, flight: Flown) -> str:
    """How many goals are met, and the largest miss."""
    judged = [score for score in scores if score["met"] is not None]
    missed = [score for score in judged if not score["met"]]
    if not missed:
        return f"All {len(judged)} goals are met."
    worst = max(missed, key=lambda score: float(score["miss"]))
    text = (
        f"{len(judged) - len(missed)} of {len(judged)} goals are met; the largest miss is that of "
        f"“{worst['name']}” with {worst['text']} (goal: {worst['goal']})"
    )
    if made.snr_up_db is not None:
        bias_db = np.where(flight.is_aloft, flight.snr_up_db - np.array(made.snr_up_db.p50), np.nan)
        if np.isfinite(bias_db).any():
            mean_db = float(np.nanmean(bias_db))
            text += (
                f"; the measured SNR of the uplink is on average {abs(mean_db):.1f} dB "
                f"{'above' if mean_db > 0 else 'below'} the forecast"
            )
    return text + "."
