# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Pages of fits and forecasts: their sentences, tables and charts have the right values."""

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from chromium import PROGRAM, chromium
from chromium import Page as Browser
from page_parts import Page, embedded
from small_flights import (
    CARRIER_HZ,
    GAP,
    NAMES,
    fitted,
    forecast_of,
    made_up,
    small_fit,
    small_forecast,
)

from orchestrator.analysis.statistics import share_of
from orchestrator.flights.forecast import Forecast, Reveal, ks_distance, revealed
from orchestrator.flights.page import fit_page, forecast_page
from orchestrator.flights.result import FlightFit, flown_in
from orchestrator.flights.words import scores_of
from orchestrator.reporting import xy

BAND = 1.6448536269514722


def minus(text: str) -> str:
    """A number as pages write it."""
    return text.replace("-", "−")


def series(html: str, name: str, label: str) -> dict[str, Any]:
    """The series of a chart whose label begins with a text."""
    drawn = embedded(html)["charts"][name]["series"]
    found = [one for one in drawn if one["label"] == label]
    (only,) = found or [one for one in drawn if str(one["label"]).startswith(label)]
    return dict(only)


@pytest.fixture(scope="module")
def fit() -> FlightFit:
    return small_fit()


@pytest.fixture(scope="module")
def fit_html(fit: FlightFit) -> str:
    return fit_page(fit)


@pytest.fixture(scope="module")
def reveal() -> Reveal:
    return revealed(*small_forecast())


@pytest.fixture(scope="module")
def reveal_html(reveal: Reveal) -> str:
    made, flight = small_forecast()
    return forecast_page(made.model_copy(update={"reveal": reveal}), flight)


@pytest.fixture(scope="module")
def sealed_html() -> str:
    return forecast_page(*small_forecast())


def assert_whole(html: str) -> None:
    """No value is missing, and each chart has its place, a description and equally long columns."""
    page = Page(html)
    for text in Page(html.partition("<script")[0]).text.values():
        assert not re.search(r"\b(?:nan|None|inf|undefined|Undefined)\b", text), text
    charts = embedded(html)["charts"]
    places = [one["id"] for tag, one in page.elements if one.get("class") == "chart"]
    assert sorted(map(str, places)) == sorted(f"chart-{name}" for name in charts)
    for name, chart in charts.items():
        assert chart["label"], name
        assert chart["series"], name
        for one in chart["series"]:
            columns = [one[key] for key in ("x", "y", "low", "high", "to") if key in one]
            assert len({len(column) for column in columns}) == 1, (name, one["label"])
            assert columns[0], (name, one["label"])
            assert None not in one["x"], (name, one["label"])
    ids = [one["id"] for _, one in page.elements if "id" in one]
    assert len(ids) == len(set(ids))
    links = [str(one["href"]) for tag, one in page.elements if tag == "a"]
    assert {link[1:] for link in links} <= set(ids)


def test_pages_are_whole(fit_html: str, reveal_html: str, sealed_html: str) -> None:
    for html in (fit_html, reveal_html, sealed_html):
        assert_whole(html)
        assert Page(html).words("glossary")


# --- fit -----------------------------------------------------------------------------------------


def test_a_fit_begins_with_what_came_out(fit: FlightFit, fit_html: str) -> None:
    words = Page(fit_html).words("result")
    made = fit.document()
    assert made.uplink is not None
    assert words.index(fit.sentence) < words.index("The uplink's SNR rises by")
    slope = made.uplink.heading_db_per_m_s
    assert slope == pytest.approx(0.5, abs=0.15)  # 4 dB at 8 m/s, less what turns average out
    assert (
        f"rises by {slope:.2f} dB per m/s of velocity away from the base station. At 8 m/s, the "
        f"SNR at the same place differs by {16 * slope:.0f} dB between outbound and inbound flight."
        in words
    )
    mbps = [stage.median_bps / 1e6 for stage in made.link.stages]
    assert f"predicts {mbps[2]:.1f} Mb/s; the measured capacity is {mbps[4]:.1f} Mb/s" in words


@pytest.mark.parametrize(
    ("most", "words"),
    list(enumerate(
        ["the low SNR", "discrete rates", "the difference between", "block errors",
         "without a transport block"]
    )),
)  # fmt: skip
def test_the_largest_loss_from_shannons_rate_is_named(
    fit: FlightFit, most: int, words: str
) -> None:
    assert fit.uplink is not None
    assert fit.uplink.carried is not None
    rates = 1e8 * 0.9 ** np.arange(6.0)
    rates[most + 1 :] /= 2
    stages = [
        replace(stage, rate_bps=np.array([np.nan, rate, rate]))
        for stage, rate in zip(fit.uplink.carried.stages, rates, strict=True)
    ]
    carried = replace(fit.uplink.carried, stages=stages)
    text = Page(fit_page(replace(fit, uplink=replace(fit.uplink, carried=carried)))).words("result")
    assert words in text
    assert f"({rates[most] / 1e6:.1f} to {rates[most + 1] / 1e6:.1f} Mb/s)." in text


def test_no_goodput_at_all_is_a_loss_too(fit: FlightFit) -> None:
    assert fit.uplink is not None
    assert fit.uplink.carried is not None
    stages = [*fit.uplink.carried.stages[:-1]]
    stages.append(replace(stages[0], name="measured goodput", rate_bps=np.zeros(3)))
    carried = replace(fit.uplink.carried, stages=stages)
    html = fit_page(replace(fit, uplink=replace(fit.uplink, carried=carried)))
    assert "TTIs without a transport block" in Page(html).words("result")
    assert_whole(html)


def test_tables_have_the_documents_values(fit: FlightFit, fit_html: str) -> None:
    made, page = fit.document(), Page(fit_html)
    assert [one.name for one in made.models] == ["free-space", "log-distance"]
    for model, badge in zip(made.models, ("✓best", "≈equallygood"), strict=True):
        exponent = "–" if model.exponent is None else f"{model.exponent:.2f}"
        row = (
            f"{badge}{model.offset_db:.2f}{exponent}{model.sigma_db:.2f}"
            f"{model.scatter_db:.2f}{model.decorrelation_m:.1f}"
            f"{model.aic - made.models[0].aic:.1f}{model.cv_log_likelihood:,.1f}"
        )
        assert model.name + minus(row) in page.cells("models")
    both = made.antennas[3]
    assert both.antenna == ["heading", "elevation"]
    errors = [math.sqrt(both.covariance[k][k]) for k in (2, 3)]
    row = (
        f"RSRP:headingandelevation{both.heading_db_per_m_s:.3f}±{errors[0]:.3f}"
        f"{both.elevation_db_per_deg:.3f}±{errors[1]:.3f}{both.sigma_db:.2f}{both.scatter_db:.2f}"
    )
    assert minus(row) in page.cells("antenna")
    assert made.uplink is not None
    assert page.cells("antenna").count("✓chosen") == 2
    assert f"{made.uplink.sigma_db:.2f}{made.uplink.scatter_db:.2f}" in page.cells("antenna")
    assert f"is {minus(f'{made.uplink.correlation:.2f}')}." in page.words("antenna")
    before = None
    for stage in made.link.stages:
        change = "–" if before is None else f"{100 * (stage.median_bps / before - 1):.0f}%"
        change = "0%" if change == "-0%" else change
        words = "".join(stage.name.split())
        assert minus(f"{words}{stage.median_bps / 1e6:.2f}{change}") in page.cells("link")
        before = stage.median_bps
    for index, flight in enumerate(made.flights):
        row = f"270270of28025to30{flight.nearest_m:.0f}to{flight.farthest_m:.0f}"
        for model in (made.chosen, made.uplink):
            offset_db = model.offsets_db[index]
            apart = f"{offset_db - model.offset_db:+.2f}".replace("+0.00", "0.00")
            row += minus(f"{offset_db:.2f}{apart}")
        assert row in page.cells("flights")
    assert "2022-06-10T19:53:22" in page.cells("flights")
    assert f"{made.uplink.between_flights_db:.2f} dB for the SNR of the uplink" in page.words(
        "flights"
    )


def test_a_model_whose_aic_is_larger_is_not_as_good(fit: FlightFit) -> None:
    first, second = fit.ranking.fits
    worse = replace(second.estimate, log_likelihood=second.estimate.log_likelihood - 20)
    ranking = replace(fit.ranking, fits=[first, replace(second, estimate=worse)])
    assert (
        "as good"
        not in Page(fit_page(replace(fit, ranking=ranking))).words("models").split("The order")[0]
    )


def test_refused_models_have_their_reasons(fit: FlightFit) -> None:
    html = fit_page(
        replace(fit, ranking=replace(fit.ranking, refused={"uma-av": "<b>too</b> low"}))
    )
    assert "uma-av: <b>too</b> low" in Page(html).words("models")
    assert "<b>too" not in html


def test_the_level_is_drawn_against_distance_with_the_model_and_its_band(
    fit: FlightFit, fit_html: str
) -> None:
    best = fit.document().models[0]
    seen = series(fit_html, "distance", NAMES[0])
    far_m = fit.flights[0].path.far_m
    kept = np.isfinite(fit.flights[0].values("rsrp_dbm"))
    np.testing.assert_allclose(seen["x"], far_m[kept], atol=1e-4)
    np.testing.assert_allclose(seen["y"], fit.flights[0].values("rsrp_dbm")[kept])
    drawn = series(fit_html, "distance", "free-space, height 25 m")
    x = np.array(drawn["x"])
    loss_db = 20 * np.log10(4 * np.pi * x * CARRIER_HZ / 299792458)
    np.testing.assert_allclose(drawn["y"], best.offset_db - loss_db, atol=1e-3)
    band = series(fit_html, "distance", "90 % band")
    half = BAND * math.hypot(best.sigma_db, best.scatter_db)
    np.testing.assert_allclose(np.array(band["high"]) - drawn["y"], half, atol=1e-3)
    np.testing.assert_allclose(drawn["y"] - np.array(band["low"]), half, atol=1e-3)
    other = fit.document().models[1]
    thin = series(fit_html, "distance", "log-distance")
    assert other.exponent is not None
    expected = other.offset_db - 10 * other.exponent * np.log10(thin["x"])
    np.testing.assert_allclose(thin["y"], expected, atol=2e-3)


def test_gaps_of_a_flight_stay_gaps(fit: FlightFit, fit_html: str) -> None:
    expected = series(fit_html, "time-1", "expected")
    assert [y is None for y in expected["y"]] == [k in range(280)[GAP] for k in range(280)]
    assert len(series(fit_html, "time-1", "measured")["y"]) == 270
    assert expected["x"][:2] == [pytest.approx(0.5 / 60, abs=1e-4), pytest.approx(0.025)]
    band = series(fit_html, "time-1", "90 % band")
    chosen = fit.document().chosen
    half = BAND * math.hypot(chosen.sigma_db, chosen.scatter_db)
    assert band["high"][0] - expected["y"][0] == pytest.approx(half, abs=1e-3)
    assert band["low"][100] is None


def test_the_autocorrelation_is_that_of_all_pairs(fit: FlightFit, fit_html: str) -> None:
    chosen = fit.ranking.chosen
    rest = fit.level.series.value_db - chosen.expected_db
    way_m = fit.level.on_path(lambda path: path.way_m)
    width_m = 4 * chosen.estimate.decorrelation_m / 30
    pairs: list[list[tuple[float, float]]] = [[] for _ in range(30)]
    for i in range(len(rest)):
        for j in range(i):
            step = int((way_m[i] - way_m[j]) / width_m)
            if fit.level.series.flight[i] == fit.level.series.flight[j] and step < 30:
                pairs[step].append((way_m[i] - way_m[j], rest[i] * rest[j]))
    means = np.array([np.mean(step, axis=0) for step in pairs if len(step) >= 10])
    drawn = series(fit_html, "autocorrelation", "residuals")
    np.testing.assert_allclose(drawn["x"], means[:, 0], atol=1e-3)
    np.testing.assert_allclose(drawn["y"], means[:, 1] / np.mean(rest**2), atol=1e-3)
    line = series(fit_html, "autocorrelation", "fitted")
    estimate = chosen.estimate
    share = estimate.shadowing_db**2 / (estimate.shadowing_db**2 + estimate.scatter_db**2)
    assert line["y"][0] == pytest.approx(share, abs=1e-3)
    assert line["y"][-1] == pytest.approx(
        share * math.exp(-line["x"][-1] / estimate.decorrelation_m), abs=1e-3
    )


@pytest.mark.parametrize("still", [False, True])
def test_values_farther_apart_than_shadowing_lasts_are_compared(still: bool) -> None:
    fit = fitted(made_up(1, 0.0))
    antennas = [
        replace(one, estimate=replace(one.estimate, decorrelation_m=0.1))
        for one in fit.ranking.antennas
    ]
    level = fit.level
    if still:
        (flight,) = level.flights
        start_m = np.tile(flight.path.start_m[:1], (280, 1))
        flown = replace(flight, path=replace(flight.path, start_m=start_m))
        step_m = np.where(np.isinf(level.series.step_m), np.inf, 0.0)
        level = replace(level, flights=[flown], series=replace(level.series, step_m=step_m))
    ranking = replace(fit.ranking, antennas=antennas)
    html = fit_page(replace(fit, level=level, ranking=ranking))
    assert_whole(html)
    distances = series(html, "autocorrelation", "residuals")["x"]
    assert distances == sorted(distances)
    assert distances == [0] if still else (len(distances) > 5 and 65 < distances[-1] < 85)


def test_the_histogram_and_the_normal_distribution_have_the_same_area(
    fit: FlightFit, fit_html: str
) -> None:
    residuals = series(fit_html, "histogram", "residuals")
    assert sum(residuals["y"]) == fit.level.series.value_db.size
    normal = series(fit_html, "histogram", "normal")
    assert sum(normal["y"]) == pytest.approx(sum(residuals["y"]), rel=0.05)
    assert residuals["to"][:-1] == residuals["x"][1:]


def test_the_heading_is_drawn_without_its_term(fit: FlightFit, fit_html: str) -> None:
    assert fit.uplink is not None
    made = fit.document().uplink
    assert made is not None
    seen = series(fit_html, "heading", NAMES[1])
    flight, slope = fit.flights[1], made.heading_db_per_m_s
    kept = np.isfinite(flight.snr_up_db)
    loss_db = 20 * np.log10(4 * np.pi * flight.path.far_m[kept] * CARRIER_HZ / 299792458)
    assert made.name == "free-space"
    lifted_db = made.elevation_db_per_deg * flight.path.elevation_deg[kept]
    rest = flight.snr_up_db[kept] - made.offsets_db[1] + loss_db - lifted_db
    np.testing.assert_allclose(seen["x"], flight.path.away_m_s[kept], atol=1e-3)
    np.testing.assert_allclose(seen["y"], rest, atol=2e-3)
    line = series(fit_html, "heading", "fitted")
    assert line["y"][1] == pytest.approx(slope * line["x"][1], abs=1e-3)
    median = series(fit_html, "heading", "median")
    assert median["x"] == sorted(median["x"])
    assert median["y"][-1] - median["y"][0] == pytest.approx(8, abs=2)


def test_the_link_curve_is_the_documents(fit: FlightFit, fit_html: str) -> None:
    link = fit.document().link
    curve = link.curve
    assert curve is not None
    assert [curve.quantiles[k] for k in (0, 9, 18)] == [0.05, 0.5, 0.95]
    for name, table, unit in (("capacity", curve.capacity_bps, 1e6), ("mcs", curve.mcs_up, 1.0)):
        band = series(fit_html, name, "measured, 90 %")
        median = series(fit_html, name, "measured, median")
        columns = np.array(table) / unit
        for values, column in ((band["low"], 0), (median["y"], 9), (band["high"], 18)):
            np.testing.assert_allclose(values, columns[:, column], atol=2e-4)
        plain = series(fit_html, name, "LTE model, margin 7.4 dB")
        own = series(fit_html, name, "LTE model, fitted margin")
        assert f"{link.implementation_margin_db:.1f} dB" in own["label"]
        known = [y for y in plain["y"] if y is not None]
        assert known == sorted(known)
    bler = series(fit_html, "bler", "measured")
    assert set(bler["y"]) == {0.05}


def test_the_keys_are_those_of_a_scenario(fit: FlightFit, fit_html: str) -> None:
    text = re.search(r'<pre id="keys">(.*?)</pre>', fit_html, re.S)
    assert text is not None
    link = fit.document().link
    lte = {"implementation_margin_db": link.implementation_margin_db}
    if link.highest_snr_db is not None:
        lte["highest_snr_db"] = link.highest_snr_db
    assert yaml.safe_load(text[1]) == {
        "radio": {"channel": "fitted", "fitted": "FIT.json", "access": "lte", "lte": lte}
    }


def test_one_flight_with_a_level_alone() -> None:
    without = ("snr_db", "snr_up_db", "mcs_up", "uplink_bps", "bler_up", "blocks_up")
    html = fit_page(fitted(made_up(1, 0.0, without=without)))
    assert_whole(html)
    page = Page(html)
    assert "link" not in page.text
    assert "gives no gain" in page.words("use")
    assert "is not known from one flight" in page.words("flights")
    assert "Mb/s" not in page.words("result")
    assert "heading" in embedded(html)["charts"]


def test_a_weak_flight_in_short_slots() -> None:
    html = fit_page(fitted(replace(made_up(1, -12.0), slot_s=0.5)))
    assert_whole(html)
    assert "135270of280" in Page(html).cells("flights")
    mcs, rate = (
        series(html, name, "LTE model, margin 7.4 dB")["y"] for name in ("mcs", "capacity")
    )
    # Below the first MCS there is none, and its rate is 0.
    assert [value is None for value in mcs] == [value == 0 for value in rate]
    assert mcs[0] is None
    assert next(value for value in mcs if value is not None) == 0


def test_a_fit_of_the_uplink_alone() -> None:
    without = ("rsrp_dbm", "snr_db", "mcs_up", "uplink_bps", "bler_up", "blocks_up")
    html = fit_page(fitted(made_up(1, 0.0, without=without), made_up(2, 0.0, without=without)))
    assert_whole(html)
    page = Page(html)
    assert "SNR of the uplink against distance" in page.words("result")
    assert "correlation of the shadowing" not in page.words("antenna")
    assert yaml.safe_load(html.partition('<pre id="keys">')[2].partition("</pre>")[0]) == {
        "radio": {"channel": "fitted", "fitted": "FIT.json"}
    }


# --- forecast ------------------------------------------------------------------------------------


def test_a_forecast_begins_with_its_values(sealed_html: str) -> None:
    made, _ = small_forecast()
    quantiles, size = made.uplink_distribution_bps, made.uplink_bytes
    assert quantiles is not None
    assert size is not None
    level = np.median(made.rsrp_dbm.p50)
    assert Page(sealed_html).words("result").find(
        "Forecast for third from its positions: median goodput "
        f"{quantiles[100] / 1e6:.1f} Mb/s (90 % of the seconds between {quantiles[10] / 1e6:.1f} "
        f"and {quantiles[190] / 1e6:.1f}), {size.p50 / 1e9:.1f} GB in 5 minutes; median RSRP "
        f"−{-level:.0f} dBm; sealed at 2026-01-01 00:00:00 UTC, digest {made.digest[:16]}…"
    ) > 0  # fmt: skip
    inputs = Page(sealed_html).cells("inputs")
    for text in (made.digest, made.inputs.fit, made.inputs.positions, "nolimit:dataalwayswait"):
        assert text in inputs


def test_a_sealed_forecast_shows_nothing_that_was_measured(sealed_html: str) -> None:
    made, flight = small_forecast()
    (other,) = flown_in({"third": made_up(9, -4.0)})
    np.testing.assert_array_equal(other.path.start_m, flight.path.start_m)
    pages = [
        re.sub(r'<dt>Made \(UTC\)</dt><dd>.*?</dd>|<meta name="date" content=".*?">', "", page)
        for page in (forecast_page(made, other), sealed_html)
    ]
    assert pages[0] == pages[1]
    assert "scores" not in Page(sealed_html).text


def test_a_reveal_begins_with_how_good_it_was(reveal: Reveal, reveal_html: str) -> None:
    words = Page(reveal_html).words("result")
    forecast_bps, measured_bps = reveal.uplink_median_forecast_bps, reveal.uplink_median_bps
    assert forecast_bps is not None
    assert measured_bps is not None
    error = 100 * (forecast_bps / measured_bps - 1)
    first = words.index(
        f"The 90 % band contains {100 * reveal.rsrp_coverage_90:.1f} % of the measured RSRP; "
        f"median goodput forecast {forecast_bps / 1e6:.1f} Mb/s, measured {measured_bps / 1e6:.1f} "
        f"Mb/s ({minus(f'{error:+.0f}')} %), KS distance {reveal.uplink_ks:.2f}."
    )
    assert first < words.index("Forecast for third")


def changed(reveal: Reveal, **fields: Any) -> Page:
    made, flight = small_forecast()
    changed = made.model_copy(update={"reveal": reveal.model_copy(update=fields)})
    return Page(forecast_page(changed, flight))


GOOD: dict[str, Any] = {
    "rsrp_coverage_90": 0.9,
    "snr_up_coverage_90": 0.851,
    "uplink_coverage_90": 0.949,
    "uplink_minutes_coverage_90": 0.9,
    "uplink_median_error": -0.2,
    "uplink_ks": 0.2,
}
MANY = 1e7
"""Independent values with which the interval of a coverage is a point."""
GOOD["independent"] = {name: MANY for name in GOOD if "coverage" in name}


@pytest.mark.parametrize(
    ("field", "value", "shown", "goal"),
    [
        ("rsrp_coverage_90", 0.849, "84.9 % [85 to 85 %]", "85 to 95 %"),
        ("snr_up_coverage_90", 0.951, "95.1 % [95 to 95 %]", "85 to 95 %"),
        ("uplink_coverage_90", 0.0, "0.0 % [0 to 0 %]", "85 to 95 %"),
        ("uplink_minutes_coverage_90", 1.0, "100.0 % [100 to 100 %]", "85 to 95 %"),
        ("uplink_median_error", 0.201, "+20.1 %", "−20 to +20 %"),
        ("uplink_ks", 0.201, "0.201", "at most 0.2"),
    ],
)
def test_each_goal_is_met_or_missed_in_words(
    reveal: Reveal, field: str, value: float, shown: str, goal: str
) -> None:
    fine = changed(reveal, **GOOD)
    assert fine.words("scores").count("✓ met") == 6
    assert "All 6 goals are met." in fine.words("result")
    off = changed(reveal, **{**GOOD, field: value})
    assert off.words("scores").count("✓ met") == 5
    assert f"✕missed{shown}{goal}".replace(" ", "") in off.cells("scores")
    assert re.search(
        rf"5 of 6 goals are met; “[^”]*” misses its goal most, with {re.escape(shown)} "
        rf"\(goal: {re.escape(goal)}\); the measured SNR of the uplink is on average ",
        off.words("result"),
    )


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 0.75, 1.0])
@pytest.mark.parametrize("count", [0, 1, 4, 30])
def test_few_values_judge_a_coverage_only_if_it_is_far_from_the_goal(
    reveal: Reveal, share: float, count: float
) -> None:
    field = "uplink_minutes_coverage_90"
    independent = GOOD["independent"] | {field: count}
    page = changed(reveal, **GOOD | {field: share, "independent": independent})
    made = reveal.model_copy(update=GOOD | {field: share, "independent": independent})
    (score,) = (s for s in scores_of(small_forecast()[0], made) if "minute" in s["name"])
    interval = score["interval"]
    assert interval.exists == (count > 1)
    is_open = not interval.exists or (interval.low <= 0.95 and interval.high >= 0.85)
    assert score["met"] is (None if is_open else False)
    few = "Too few independent values to judge: “Goodput by minute in the 90 % band”."
    assert (few in page.words("result")) == is_open
    assert page.words("scores").count("✓ met") == 5
    assert ("misses its goal" in page.words("result")) != is_open
    if count == 4:
        # Wilson's interval of 2 of 4 is 15.0 to 84.99 %.
        assert is_open == (share > 0.5)


def test_the_largest_miss_is_relative_to_its_goal(reveal: Reveal) -> None:
    # 3.2 half-widths of the goal against 1.5 of them.
    page = changed(reveal, **GOOD | {"uplink_coverage_90": 0.74, "uplink_ks": 0.3})
    missed = "“Goodput by second in the 90 % band” misses its goal most, with 74.0 % [74 to 74 %]"
    assert missed in page.words("result")
    page = changed(reveal, **GOOD | {"uplink_coverage_90": 0.84, "uplink_ks": 0.9})
    assert "“Goodput, KS distance” misses its goal most, with 0.900" in page.words("result")


def test_the_mean_error_of_the_uplink_explains_a_miss(reveal: Reveal) -> None:
    made, flight = small_forecast()
    assert made.snr_up_db is not None
    mean_db = float(np.nanmean(flight.snr_up_db - np.array(made.snr_up_db.p50)))
    words = changed(reveal, **GOOD | {"uplink_ks": 0.5}).words("result")
    where = "above" if mean_db > 0 else "below"
    assert f"on average {abs(mean_db):.1f} dB {where} the forecast." in words


def test_scores_are_the_reveals(reveal: Reveal, reveal_html: str) -> None:
    cells = Page(reveal_html).cells("scores")
    count = reveal.independent["rsrp_coverage_90"]
    share = share_of(reveal.rsrp_coverage_90 * count, count)
    ends = f"[{100 * share.low:.0f}to{100 * share.high:.0f}%]"
    assert f"{100 * reveal.rsrp_coverage_90:.1f}%{ends}85to95%" in cells
    assert f"RSRP,meanerror–{minus(f'{reveal.rsrp_bias_db:+.2f}')}dB" in cells
    assert f"RSRP,CRPS–{reveal.crps_db:.2f}dB" in cells
    assert reveal.uplink_bytes_error is not None
    assert minus(f"{100 * reveal.uplink_bytes_error:+.1f}%") in cells


def test_bands_and_measured_values_are_drawn(reveal_html: str) -> None:
    made, flight = small_forecast()
    assert made.uplink_bps is not None
    assert made.uplink_minutes_bps is not None
    band = series(reveal_html, "goodput", "forecast, 90 %")
    np.testing.assert_allclose(band["low"], np.array(made.uplink_bps.p5) / 1e6, atol=1e-4)
    np.testing.assert_allclose(band["high"], np.array(made.uplink_bps.p95) / 1e6, atol=1e-4)
    bps = flight.values("uplink_bps")
    kept = np.isfinite(bps)
    measured = series(reveal_html, "goodput", "measured")
    np.testing.assert_allclose(measured["y"], bps[kept] / 1e6, atol=1e-4)
    minutes = series(reveal_html, "minutes", "measured")
    assert minutes["x"] == [0.5, 1.5, 2.5, 3.5]
    assert minutes["y"][0] == pytest.approx(bps[:60].mean() / 1e6, abs=1e-4)
    level = series(reveal_html, "level", "forecast, median")
    np.testing.assert_allclose(level["y"], made.rsrp_dbm.p50, atol=1e-4)
    snr = series(reveal_html, "snr", "measured")
    np.testing.assert_allclose(snr["y"], flight.snr_up_db[kept], atol=1e-4)


@pytest.mark.parametrize("offered_bps", [None, 1.2e7])
def test_the_ks_distance_is_marked_where_it_is(offered_bps: float | None) -> None:
    _, flight = small_forecast()
    made = forecast_of(small_fit(), flight, offered_bps=offered_bps)
    html = forecast_page(made.model_copy(update={"reveal": revealed(made, flight)}), flight)
    mark = series(html, "distribution", "KS distance")
    quantiles = np.array(made.uplink_distribution_bps)
    bps = flight.values("uplink_bps")
    measured = np.sort(bps[np.isfinite(bps)])
    low, high = mark["y"]
    distance = ks_distance(measured, quantiles)
    assert abs(high - low) == pytest.approx(distance, abs=2e-4)
    assert f"{distance:.2f}" in mark["label"]
    at = mark["x"][0] * 1e6
    assert low == pytest.approx((measured <= at + 100).mean(), abs=0.01)
    line = series(html, "distribution", "measured")
    assert line["y"][-1] == 1
    assert line["x"] == sorted(line["x"])


def without_rates() -> tuple[Forecast, Any]:
    without = ("snr_db", "snr_up_db", "mcs_up", "uplink_bps", "bler_up", "blocks_up")
    _, flight = small_forecast()
    return forecast_of(fitted(made_up(1, 0.0, without=without)), flight), flight


def test_a_forecast_of_a_level_alone() -> None:
    made, flight = without_rates()
    for reveal in (None, revealed(made, flight)):
        html = forecast_page(made.model_copy(update={"reveal": reveal}), flight)
        assert_whole(html)
        page = Page(html)
        assert not {"goodput", "snr"} & set(page.text)
        assert "Mb/s" not in page.words("result")
        assert "Forecast for third from its positions: median RSRP −" in page.words("result")


def test_a_flight_below_a_minute_has_no_minutes() -> None:
    _, flight = small_forecast()
    path = replace(flight.path, start_m=flight.path.start_m[:40])
    made = forecast_of(small_fit(), flight, path=path)
    measured = made_up(3, 2.0)
    values = {
        name: value[:, :40]
        for name, value in vars(measured).items()
        if np.shape(value)[:2] == (1, 280)
    }
    short = replace(flight, path=path, measured=replace(measured, **values))
    html = forecast_page(made, short)
    assert "minutes" not in embedded(html)["charts"]
    assert_whole(html)


# --- charts --------------------------------------------------------------------------------------


def test_long_series_are_thinned_from_end_to_end() -> None:
    values = np.arange(100_000.0)
    kept = xy.line("x", values, values, "ink")["x"]
    assert len(kept) == xy.MOST_POINTS
    assert (kept[0], kept[-1]) == (0, 99_999)
    assert set(np.diff(kept)) == {50.0, 51.0}
    assert xy.points("x", values[:3], np.array([1.0, np.nan, 2.0]), "ink")["x"] == [0, 2]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if PROGRAM is None:
        pytest.skip("no Chromium is installed")
    with chromium(tmp_path_factory.mktemp("chromium")) as page:
        yield page


def test_charts_are_drawn_described_and_answer_the_pointer(
    browser: Browser, fit_html: str, reveal_html: str, tmp_path: Path
) -> None:
    for name, html in (("fit", fit_html), ("forecast", reveal_html)):
        path = tmp_path / f"{name}.html"
        path.write_text(html, encoding="utf-8")
        browser.open(path)
        assert browser.errors == []
        assert browser.requests[-1].startswith("file:")
        labels = browser.js(
            "[...document.querySelectorAll('.chart svg')].map(e => e.getAttribute('aria-label'))"
        )
        charts = embedded(html)["charts"]
        assert sorted(labels) == sorted(chart["label"] for chart in charts.values())
        empty = "[...document.querySelectorAll('.chart path')].filter(p => !p.getTotalLength())"
        dots = "e => !e.getAttribute('d').includes('h0')"
        assert browser.js(f"{empty}.filter({dots}).length") == 0
    browser.open(tmp_path / "fit.html")
    ticks = browser.js(
        "[...document.querySelectorAll('#chart-distance text[text-anchor=middle]')]"
        ".map(e => e.textContent)"
    )
    assert ticks == ["30", "50", "70", "100", "150"]
    browser.js("byId('chart-capacity').scrollIntoView()")
    browser.settle()
    left, top, wide = browser.js(
        "(b => [b.left, b.top, b.width])(byId('chart-capacity').getBoundingClientRect())"
    )
    browser.mouse("mouseMoved", left + wide / 2, top + 150)
    tip = browser.js("byId('tip').innerText")
    assert "SNR of the uplink in dB" in tip
    assert "measured, median" in tip
    assert re.search(r"measured, 90 %\s+[\d.]+ to [\d.]+", tip)
    browser.mouse("mouseMoved", 2, 2)
    assert browser.js("byId('tip').hidden")
