# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Forecasts of flights: calibrated, repeatable, independent of what was measured, and scored."""

import datetime
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.integrate import quad
from scipy.stats import ks_2samp, norm
from synthetic_flights import CARRIER_HZ, STATION_M, Route, Truth, flight_on, lawnmower

from orchestrator.flights import document
from orchestrator.flights.document import Document, Model
from orchestrator.flights.forecast import (
    Band,
    Forecast,
    Inputs,
    Request,
    Total,
    by_minute,
    crps_normal,
    forecast,
    ks_distance,
    revealed,
)
from orchestrator.flights.geometry import Path as Flight
from orchestrator.flights.result import flown_in
from testbed.core.errors import InputError

Array = npt.NDArray[np.float64]
ROUTE = lawnmower(300, seed=4)
Z = float(norm.ppf(0.95))


def model(kind: type[Model] = Model, **changed: Any) -> Any:
    """A fitted model: free space without terms, of one flight."""
    given = {
        "name": "free-space",
        "offset_db": -20.0,
        "offsets_db": [-20.0],
        "between_flights_db": None,
        "exponent": None,
        "sigma_db": 3.0,
        "scatter_db": 1.0,
        "decorrelation_m": 30.0,
        "antenna": [],
        "heading_db_per_m_s": 0.0,
        "elevation_db_per_deg": 0.0,
        "covariance": [[0.04]],
        "values": 1000,
        "aic": 0.0,
        "cv_log_likelihood": 0.0,
    }
    if kind is document.Uplink:
        given |= {"offset_db": 90.0, "offsets_db": [90.0], "correlation": 0.5}
    return kind(**(given | changed))


def uplink(**changed: Any) -> Any:
    return model(document.Uplink, **changed)


def curve(**changed: Any) -> document.Curve:
    """A curve that is linear in dB: 20 Mb/s and 0.2 Mb/s per dB, in each of its quantiles."""
    given = {
        "quantiles": [0.05, 0.5, 0.95],
        "snr_db": [-100.0, 100.0],
        "seconds": [50, 50],
        "capacity_bps": [[0.0] * 3, [40e6] * 3],
        "mcs_up": [[0.0] * 3, [20.0] * 3],
        "bler_up": [0.0, 0.0],
        "memory_s": 1.0,
        "memory_share": 0.0,
    }
    return document.Curve(**(given | changed))


def fit(
    chosen: Model | None = None, up: Any = None, link: document.Curve | None = None, **changed: Any
) -> Document:
    chosen = chosen or model()
    given = {
        "sentence": "",
        "best": chosen.name,
        "models": [chosen],
        "refused": {},
        "antennas": [chosen],
        "chosen": chosen,
        "level": "rsrp_dbm",
        "carrier_hz": CARRIER_HZ,
        "rician": document.Rician(k_db=None, reason=""),
        "flights": [
            document.Flight(
                name=f"f{i}",
                start=None,
                slots=1,
                used=1,
                lowest_m=1,
                nearest_m=1,
                farthest_m=1,
                base_station_m=[0, 0, 10],
            )
            for i in range(len(chosen.offsets_db))
        ],
        "uplink": up,
        "link": document.Link(
            resource_blocks=100,
            reference=document.Reference(
                uav_tx_power_w=0.2, base_station_tx_power_w=40, noise_dbm_per_mhz=-114
            ),
            curve=link,
        ),
        "downlink_noise_dbm": None,
        "channel": None,
    }
    return Document(**(given | changed)).sealed()


def request(route: Route = ROUTE, **changed: Any) -> Request:
    given = {
        "name": "next",
        "path": Flight(route.start_m, 1.0, STATION_M),
        "resource_blocks": None,
        "offered_bps": None,
        "seed": 5,
        "made": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
        "version": "1",
    }
    return Request(**(given | changed))


def some(band: Band | None) -> tuple[Array, Array, Array]:
    assert band is not None
    return np.array(band.p5), np.array(band.p50), np.array(band.p95)


# --- bands ---------------------------------------------------------------------------------------


def test_the_bands_of_level_and_ratio_have_nine_of_ten_seconds() -> None:
    """Over 30 flights that are drawn with the full covariance matrix of their path."""
    made = forecast(fit(up=uplink(sigma_db=4.0, scatter_db=1.5)), request())
    level, ratio = some(made.rsrp_dbm), some(made.snr_up_db)
    inside: list[tuple[float, float]] = []
    for seed in range(30):
        rng = np.random.default_rng((0xCA1, seed))
        truth = Truth(offset_db=-20.0, shadowing_db=3.0, decorrelation_m=30.0, scatter_db=1.0)
        seen_db = truth.drawn_db(ROUTE, rng)
        up_db = replace(truth, offset_db=90.0, shadowing_db=4.0, scatter_db=1.5).drawn_db(
            ROUTE, rng
        )
        inside.append(
            (
                float(((seen_db >= level[0]) & (seen_db <= level[2])).mean()),
                float(((up_db >= ratio[0]) & (up_db <= ratio[2])).mean()),
            )
        )
    coverage = np.mean(inside, axis=0)
    assert ((coverage > 0.87) & (coverage < 0.93)).all(), coverage


def test_the_level_has_all_that_a_fit_leaves_open() -> None:
    covariance = np.array(
        [
            [0.30, 0.02, 0.01, -0.05, 0.002],
            [0.02, 0.25, 0.03, -0.04, 0.001],
            [0.01, 0.03, 0.20, -0.03, 0.001],
            [-0.05, -0.04, -0.03, 0.02, -0.0004],
            [0.002, 0.001, 0.001, -0.0004, 0.0009],
        ]
    )
    chosen = model(
        name="log-distance",
        offsets_db=[-30.0, -33.0, -36.0],
        between_flights_db=3.0,
        exponent=2.5,
        antenna=["heading"],
        heading_db_per_m_s=0.4,
        covariance=covariance.tolist(),
    )
    low, middle, high = some(forecast(fit(chosen), request()).rsrp_dbm)
    slope = 10 * np.log10(ROUTE.far_m)
    np.testing.assert_allclose(middle, -33 - 2.5 * slope + 0.4 * ROUTE.away_m_s, atol=1e-3)
    for slot in (0, 50, 299):
        x = np.array([1 / 3, 1 / 3, 1 / 3, -slope[slot], ROUTE.away_m_s[slot]])
        # 3 dB between flights: a further flight is as far from the truth, and their mean is, too.
        variance = 3.0**2 + 1.0**2 + 3.0**2 * (1 + 1 / 3) + x @ covariance @ x
        assert (high - middle)[slot] == pytest.approx(Z * variance**0.5, abs=2e-3)
        assert (middle - low)[slot] == pytest.approx(Z * variance**0.5, abs=2e-3)


def test_the_elevation_is_a_term_of_its_own() -> None:
    route = lawnmower(100, climbs=True)
    chosen = model(
        antenna=["heading", "elevation"],
        heading_db_per_m_s=-0.3,
        elevation_db_per_deg=0.2,
        covariance=np.zeros((3, 3)).tolist(),
    )
    _, middle, _ = some(forecast(fit(chosen), request(route)).rsrp_dbm)
    right = -20 - route.free_space_db() - 0.3 * route.away_m_s + 0.2 * route.elevation_deg
    np.testing.assert_allclose(middle, right, atol=2e-3)


@pytest.mark.parametrize("flights", [2, 4])
def test_the_ratio_is_drawn_with_all_that_a_fit_leaves_open(flights: int) -> None:
    up = uplink(
        name="log-distance",
        offsets_db=[60.0] * flights,
        offset_db=60.0,
        between_flights_db=2.0,
        antenna=["heading"],
        heading_db_per_m_s=0.5,
        covariance=np.diag([0.5] * flights + [0.01]).tolist(),
    )
    # The exponent is that of the level: the uplink has none of its own.
    chosen = model(name="log-distance", exponent=2.2, covariance=np.zeros((2, 2)).tolist())
    low, middle, high = some(forecast(fit(chosen, up), request()).snr_up_db)
    right = 60 - 22 * np.log10(ROUTE.far_m) + 0.5 * ROUTE.away_m_s
    variance = 9 + 1 + 4 * (1 + 1 / flights) + 0.5 / flights + 0.01 * ROUTE.away_m_s**2
    assert (middle - right).mean() == pytest.approx(0, abs=0.3)
    assert np.abs(middle - right).max() < 0.7
    assert ((high - low) / (2 * Z * np.sqrt(variance))).mean() == pytest.approx(1, abs=0.03)


def test_shadowing_is_correlated_along_the_path() -> None:
    # Goodput is linear in dB here, so that means over minutes have a known deviation.
    up = uplink(covariance=[[0.09]])
    made = forecast(fit(up=up, link=curve()), request())
    route, weights = ROUTE, np.zeros((6, 300))
    for minute in range(5):
        weights[minute, 60 * minute : 60 * minute + 60] = 1 / 60
    weights[5] = 1 / 8
    apart_m = np.abs(np.subtract.outer(route.way_m, route.way_m))
    covariance = 9 * np.exp(-apart_m / 30) + np.eye(300) + 0.09
    deviation = 0.2e6 * np.sqrt(np.einsum("ws,st,wt->w", weights, covariance, weights))
    mean = weights @ (20e6 + 0.2e6 * (90 - route.free_space_db()))
    low, middle, high = some(made.uplink_minutes_bps)
    np.testing.assert_allclose((high - low) / (2 * Z), deviation[:5], rtol=0.12)
    np.testing.assert_allclose(middle, mean[:5], atol=0.12 * deviation[0])
    total = made.uplink_bytes
    assert total is not None
    assert (total.p95 - total.p5) / (2 * Z) == pytest.approx(deviation[5], rel=0.1)
    assert total.p50 == pytest.approx(mean[5], abs=0.12 * deviation[5])
    by_second, ratio = some(made.uplink_bps), some(made.snr_up_db)
    for bps, db in zip(by_second, ratio, strict=True):
        np.testing.assert_allclose(bps, 20e6 + 0.2e6 * db, atol=200)
    mcs = some(made.mcs_up)
    np.testing.assert_allclose(mcs[1], 10 + 0.1 * ratio[1], atol=1e-3)


def test_goodput_is_drawn_among_the_seconds_of_the_same_ratio() -> None:
    table = [[1e6, 3e6, 9e6]] * 2
    made = forecast(fit(up=uplink(), link=curve(capacity_bps=table)), request())
    assert made.uplink_distribution_bps is not None
    levels = np.linspace(0, 1, 201)
    right = np.interp(levels, [0.05, 0.5, 0.95], [1e6, 3e6, 9e6])
    np.testing.assert_allclose(made.uplink_distribution_bps, right, atol=0.05e6)
    for values, level in zip(some(made.uplink_bps), (0.05, 0.5, 0.95), strict=True):
        assert values.mean() == pytest.approx(np.interp(level, levels, right), rel=0.04)
    assert made.uplink_bytes is not None
    # Seconds are independent: 300 of them have a narrow sum.
    assert made.uplink_bytes.p95 / made.uplink_bytes.p5 < 1.15


def test_beyond_the_curve_its_edges_hold() -> None:
    narrow = curve(snr_db=[60.0, 61.0], capacity_bps=[[2e6] * 3, [5e6] * 3])
    made = forecast(fit(up=uplink(), link=narrow), request())
    assert set(some(made.uplink_bps)[2]) == {2e6}
    wide = curve(snr_db=[-61.0, -60.0], capacity_bps=[[2e6] * 3, [5e6] * 3])
    assert set(some(forecast(fit(up=uplink(), link=wide), request()).uplink_bps)[0]) == {5e6}


def test_minutes_differ_more_where_capacities_last() -> None:
    steep = {"capacity_bps": [[1e6, 10e6, 19e6]] * 2}
    widths = []
    for memory in ({}, {"memory_s": 30.0, "memory_share": 1.0}):
        made = forecast(fit(up=uplink(), link=curve(**steep, **memory)), request())
        low, _, high = some(made.uplink_minutes_bps)
        widths.append((high - low).mean())
        low, middle, high = some(made.uplink_bps)
        np.testing.assert_allclose(middle, 10e6, rtol=0.2)  # a second is what it was
    assert widths[1] > 3 * widths[0]


def test_an_application_gets_at_most_what_it_offers() -> None:
    whole = fit(up=uplink(), link=curve(capacity_bps=[[1e6, 3e6, 9e6]] * 2))
    free = forecast(whole, request())
    capped = forecast(whole, request(offered_bps=2e6))
    assert free.uplink_distribution_bps is not None
    assert capped.uplink_distribution_bps is not None
    np.testing.assert_allclose(
        capped.uplink_distribution_bps, np.minimum(free.uplink_distribution_bps, 2e6), atol=2e4
    )
    assert max(capped.uplink_distribution_bps) == 2e6
    assert capped.uplink_bytes is not None
    assert capped.uplink_bytes.p95 < 2e6 * 300 / 8
    assert capped.inputs.offered_bps == 2e6
    assert free.inputs.offered_bps is None
    assert capped.snr_up_db == free.snr_up_db


def test_goodput_is_in_proportion_to_the_resource_blocks() -> None:
    whole = fit(up=uplink(), link=curve())
    half, same = (forecast(whole, request(resource_blocks=blocks)) for blocks in (50, 100))
    full = forecast(whole, request())
    assert full.inputs.resource_blocks == 100
    assert same.uplink_bps == full.uplink_bps
    np.testing.assert_allclose(some(half.uplink_bps), np.array(some(full.uplink_bps)) / 2)
    assert half.inputs.resource_blocks == 50
    assert half.snr_up_db == full.snr_up_db


def test_seeds_repeat_a_forecast() -> None:
    whole = fit(up=uplink(), link=curve())
    first, again, other = (forecast(whole, request(seed=seed)) for seed in (5, 5, 6))
    assert first == again
    assert first.digest != other.digest
    assert first.snr_up_db != other.snr_up_db
    assert first.rsrp_dbm == other.rsrp_dbm


def test_what_was_not_fitted_is_not_forecast() -> None:
    made = forecast(fit(), request())
    assert made.snr_up_db is made.mcs_up is made.uplink_bps is made.uplink_minutes_bps is None
    assert made.uplink_distribution_bps is made.uplink_bytes is None
    made = forecast(fit(up=uplink()), request())
    assert made.snr_up_db is not None
    assert made.uplink_bps is None
    made = forecast(fit(up=uplink(), link=curve(mcs_up=None)), request())
    assert made.mcs_up is None
    assert made.uplink_bps is not None


def test_a_forecast_does_not_depend_on_what_was_measured() -> None:
    rng = np.random.default_rng(1)
    made = []
    for scale in (0.0, 1.0):
        noise = scale * rng.normal(0, 10, 300)
        flight = flight_on(
            ROUTE,
            rsrp_dbm=-80 + noise,
            snr_up_db=9 + noise / 2,
            uplink_bps=1e6 * (1 + scale * rng.random(300)),
            blocks_up=np.full(300, 100 + 800 * scale),
            resource_blocks=50 + int(50 * scale),
        )
        (flown,) = flown_in({"next": flight})
        whole = fit(up=uplink(), link=curve())
        made.append(forecast(whole, replace(request(), path=flown.path)))
    assert made[0].model_dump_json() == made[1].model_dump_json()


def test_a_sealed_forecast_notices_any_change(tmp_path: Path) -> None:
    made = forecast(fit(up=uplink(), link=curve()), request())
    path = tmp_path / "forecast.json"
    made.write(path)
    assert Forecast.read(path, "sealed") == made
    assert made.made == "2026-01-02T03:04:05+00:00"
    digests = {made.digest}
    changes: dict[str, Any] = {
        "made": "2026-01-02T03:04:06+00:00",
        "version": "2",
        "level": "snr_db",
        "slot_s": 2.0,
        "uplink_distribution_bps": None,
        "uplink_bytes": Total(p5=1, p50=2, p95=3),
        **{
            name: Band(p5=[1.0], p50=[1.0], p95=[1.0])
            for name in ("rsrp_dbm", "snr_up_db", "mcs_up", "uplink_bps", "uplink_minutes_bps")
        },
    }
    inputs: dict[str, Any] = {
        "fit": "f",
        "flight": "other",
        "positions": "p",
        "resource_blocks": 1,
        "offered_bps": 1.0,
        "seed": 6,
        "draws": 7,
    }
    assert set(inputs) <= set(Inputs.model_fields)
    others = [made.model_copy(update={name: value}) for name, value in changes.items()]
    others += [
        made.model_copy(update={"inputs": made.inputs.model_copy(update={name: value})})
        for name, value in inputs.items()
    ]
    for other in others:
        assert other.sealed().digest not in digests
        digests.add(other.sealed().digest)
        other.write(path)  # with the digest of before
        with pytest.raises(InputError, match=r"^`sealed`: .*: digest: the file was changed"):
            Forecast.read(path, "sealed")
    assert made.inputs.fit == fit(up=uplink(), link=curve()).digest
    assert made.inputs.flight == "next"
    assert made.inputs.seed == 5


# --- scores --------------------------------------------------------------------------------------


def test_minutes_are_whole_and_skip_what_was_not_measured() -> None:
    values = np.arange(130.0)
    values[:30] = np.nan
    values[[70, 80]] = np.nan
    right = [np.arange(30.0, 60).mean(), np.delete(np.arange(60.0, 120), [10, 20]).mean()]
    np.testing.assert_allclose(by_minute(values, 1.0), right)
    values[:60] = np.nan
    np.testing.assert_array_equal(np.isnan(by_minute(values, 1.0)), [True, False])
    np.testing.assert_allclose(by_minute(np.arange(240.0).reshape(2, 120), 0.5), [[59.5], [179.5]])
    np.testing.assert_array_equal(by_minute(np.array([1.0, 2, 3]), 90.0), [1, 2, 3])
    assert by_minute(np.arange(59.0), 1.0).shape == (0,)
    np.testing.assert_array_equal(by_minute(np.arange(6.0), 20.0), [1, 4])


@pytest.mark.parametrize(("value", "mean", "deviation"), [(0, 0, 1), (3, 1, 2), (-70, -80, 4)])
def test_the_score_is_the_integral_of_the_squared_difference(
    value: float, mean: float, deviation: float
) -> None:
    def squared(x: float) -> float:
        return float((norm.cdf(x, mean, deviation) - (x >= value)) ** 2)

    ends = mean - 12 * deviation, mean + 12 * deviation
    right = quad(squared, ends[0], value)[0] + quad(squared, value, ends[1])[0]
    found = crps_normal(np.array([float(value)]), np.array([mean]), np.array([deviation]))
    assert found[0] == pytest.approx(right, abs=1e-7)


def test_the_score_of_a_certain_forecast_is_its_error() -> None:
    found = crps_normal(np.array([3.0, -1.0, 0.0]), np.zeros(3), np.zeros(3))
    np.testing.assert_allclose(found, [3, 1, 0], atol=1e-6)


LEVELS = np.linspace(0, 1, 201)
JUMPS = {
    "none": np.interp(LEVELS, [0, 0.3, 1], [0.0, 2, 10]),
    "below": np.maximum(np.interp(LEVELS, [0, 0.3, 1], [0.0, 2, 10]), 1.0),
    "above": np.minimum(np.interp(LEVELS, [0, 0.3, 1], [0.0, 2, 10]), 7.0),
    "inside": np.where((LEVELS > 0.4) & (LEVELS < 0.7), 5.0, 10 * LEVELS * (LEVELS <= 0.4))
    + np.where(LEVELS >= 0.7, 10 * LEVELS, 0),
    "one value": np.full(201, 4.0),
}


@pytest.mark.parametrize("kind", JUMPS)
@pytest.mark.parametrize("seed", range(4))
def test_the_distance_of_distributions_is_that_of_kolmogorov_and_smirnov(
    kind: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    quantiles = JUMPS[kind]
    drawn = np.interp((np.arange(200_000) + 0.5) / 200_000, LEVELS, quantiles)
    candidates = [
        rng.choice(drawn, 40),
        np.concatenate([np.full(20, 7.0), rng.uniform(0, 7, 20)]),
        np.full(5, 4.0),
        rng.uniform(-5, 1, 30),
    ]
    values = np.sort(candidates[seed])
    right = ks_2samp(values, drawn, method="asymp").statistic
    assert ks_distance(values, quantiles) == pytest.approx(right, abs=2e-4)


def sealed(**changed: Any) -> Forecast:
    """A forecast of ten slots of 20 s, whose bands are -90 to -70 and 1 to 5 Mb/s."""
    many = 10
    given = {
        "made": "",
        "version": "",
        "inputs": Inputs(
            fit="",
            fitted_flights=2,
            flight="",
            positions="",
            resource_blocks=100,
            offered_bps=None,
            seed=1,
            draws=1,
            like=None,
        ),
        "level": "rsrp_dbm",
        "slot_s": 20.0,
        "rsrp_dbm": Band(p5=[-90.0] * many, p50=[-80.0] * many, p95=[-70.0] * many),
        "snr_up_db": Band(p5=[0.0] * many, p50=[5.0] * many, p95=[10.0] * many),
        "mcs_up": None,
        "uplink_bps": Band(p5=[1e6] * many, p50=[3e6] * many, p95=[5e6] * many),
        "uplink_minutes_bps": Band(p5=[2e6] * 3, p50=[3e6] * 3, p95=[4e6] * 3),
        "uplink_distribution_bps": np.linspace(1e6, 5e6, 201).tolist(),
        "uplink_bytes": Total(p5=1, p50=2, p95=3),
    }
    return Forecast(**(given | changed)).sealed()


TEN = Route(np.column_stack([100.0 + np.arange(10), np.zeros(10), [2.0] * 2 + [30.0] * 8]))
"""On the ground in the first slot; in the second one the UAV rises to 16 m at its middle."""


def ten(**changed: Any) -> Any:
    given = {
        "rsrp_dbm": np.array([-80.0, -95, -90, -70, -80, np.nan, -69, -75, -85, -80]),
        "snr_up_db": 10 * np.log10(1 + 10 ** (np.array([5.0, 11, 0.5, 9, 12, 5, 5, 5, 5, 5]) / 10)),
        "uplink_bps": np.array([9.0, 1, 2, 3, 0.5, 4, np.nan, 6, 3, 3]) * 1e6,
    }
    (flown,) = flown_in({"ten": flight_on(TEN, **(given | changed))})
    return flown


def test_a_forecast_is_scored_by_hand() -> None:
    found = revealed(sealed(), ten())
    # In flight from the second slot on: -95 -90 -70 -80 (none) -69 -75 -85 -80.
    assert found.slots == 8
    assert found.rsrp_coverage_90 == pytest.approx(6 / 8)
    assert found.rsrp_bias_db == pytest.approx((-15 - 10 + 10 + 0 + 11 + 5 - 5 + 0) / 8)
    deviation = 10 / Z
    errors = np.array([-15.0, -10, 10, 0, 11, 5, -5, 0])
    scores = [
        quad(lambda x, e=e: (norm.cdf(x, 0, deviation) - (x >= e)) ** 2, -90, e)[0]
        + quad(lambda x, e=e: (norm.cdf(x, 0, deviation) - (x >= e)) ** 2, e, 90)[0]
        for e in errors
    ]
    assert found.crps_db == pytest.approx(np.mean(scores), abs=1e-5)
    assert found.snr_up_coverage_90 == pytest.approx(7 / 9)
    # Goodput in flight: 1 2 3 0.5 4 (none) 6 3 3, of which 6 in the band.
    assert found.uplink_coverage_90 == pytest.approx(6 / 8)
    # Minutes of three slots: (none, 1, 2), (3, 0.5, 4), (none, 6, 3).
    assert found.uplink_minutes_coverage_90 == pytest.approx(1 / 3)
    assert found.uplink_median_bps == pytest.approx(3e6)
    assert found.uplink_median_forecast_bps == pytest.approx(3e6)
    assert found.uplink_median_error == pytest.approx(0, abs=1e-9)
    assert found.uplink_bytes == pytest.approx(22.5e6 * 20 / 8)
    assert found.uplink_bytes_error == pytest.approx(24 / 22.5 - 1)
    # Just at 3 Mb/s, three of eight values are below and six not above, where the forecast has 1/2.
    assert found.uplink_ks == pytest.approx(0.25)


def test_what_was_not_measured_or_not_forecast_is_not_scored() -> None:
    found = revealed(sealed(), ten(uplink_bps=np.full(10, np.nan), snr_up_db=np.full(10, np.nan)))
    assert found.snr_up_coverage_90 is None
    assert found.uplink_coverage_90 is found.uplink_ks is found.uplink_bytes is None
    nothing = dict.fromkeys(
        (
            "snr_up_db",
            "uplink_bps",
            "uplink_minutes_bps",
            "uplink_distribution_bps",
            "uplink_bytes",
        )
    )
    found = revealed(sealed(**nothing), ten())
    assert found.slots == 8
    assert found.snr_up_coverage_90 is found.uplink_coverage_90 is None


def test_a_flight_without_data_has_no_relative_error() -> None:
    found = revealed(sealed(), ten(uplink_bps=np.zeros(10)))
    assert found.uplink_median_bps == found.uplink_bytes == 0
    assert found.uplink_median_error is found.uplink_bytes_error is None
    assert found.uplink_ks == 1


def test_a_flight_without_a_level_cannot_be_compared() -> None:
    with pytest.raises(InputError, match=r"^`flight` ten: has no value of rsrp_dbm in flight$"):
        revealed(sealed(), ten(rsrp_dbm=np.full(10, np.nan)))


def test_a_ratio_is_compared_without_its_noise() -> None:
    found = revealed(
        sealed(level="snr_up_db", rsrp_dbm=Band(p5=[0.0] * 10, p50=[5.0] * 10, p95=[10.0] * 10)),
        ten(),
    )
    assert found.rsrp_coverage_90 == found.snr_up_coverage_90 == pytest.approx(7 / 9)
    assert found.rsrp_bias_db == pytest.approx(np.mean([6, -4.5, 4, 7, 0, 0, 0, 0, 0]))
