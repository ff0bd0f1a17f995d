# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Fits of whole flights: the channel that follows, replays, and input that is refused."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from synthetic_flights import (
    CARRIER_HZ,
    STATION_M,
    Route,
    Truth,
    flight_on,
    lawnmower,
    measured_level,
    shadowing,
)

from orchestrator.flights.measured import MeasuredFlight
from orchestrator.flights.result import FlightFit, fit_flights, flown_in
from testbed.core.errors import InputError

Array = npt.NDArray[np.float64]
ROUTE = lawnmower(800)
SHORT = lawnmower(150)
GAIN_UP_DB, GAIN_DOWN_DB = -9.0, -4.0
"""Gains of the antennas, less what the receivers lose."""
NOISE_DBM = -114 + 10 * np.log10(18)
"""In 100 resource blocks of 180 kHz."""
DULL_DB = 55.0
UAV_DBM, STATION_DBM = 10 * np.log10(200), 10 * np.log10(40e3)


def two_ways(
    route: Route = ROUTE,
    seed: int = 1,
    correlation: float = 0.7,
    exponent: float | None = None,
    dull_db: float = DULL_DB,
    scatter_db: tuple[float, float] = (1.5, 1.0),
) -> tuple[MeasuredFlight, Array, Array]:
    """A flight with gains of both directions in dB, [S] each, and what a modem reports of them.

    RSRP has an offset of its own, 17 dB, and the noise of the downlink is `dull_db` higher.
    """
    rng = np.random.default_rng((0xD0, seed))
    loss_db = route.free_space_db()
    if exponent is not None:
        loss_db = 10 * exponent * np.log10(route.far_m) + 20 * np.log10(
            4 * np.pi * CARRIER_HZ / 299792458
        )
    ours = shadowing(route.way_m, 1.0, 30.0, rng)
    other = shadowing(route.way_m, 1.0, 30.0, rng)
    down_db = GAIN_DOWN_DB - loss_db + 3.0 * ours + rng.normal(0, scatter_db[1], len(ours))
    mixed = correlation * ours + np.sqrt(1 - correlation**2) * other
    up_db = GAIN_UP_DB - loss_db + 4.0 * mixed + rng.normal(0, scatter_db[0], len(ours))
    snr_up = 10 ** ((UAV_DBM + up_db - NOISE_DBM) / 10)
    # A calibrated receiver would print RSRP of a resource element.
    rsrp_dbm = STATION_DBM - 10 * np.log10(1200) + down_db + 17
    snr_db = STATION_DBM + down_db - NOISE_DBM
    flight = flight_on(
        route,
        rsrp_dbm=np.round(np.minimum(rsrp_dbm, 0)),
        # Distortion limits the ratio of the downlink to 22 dB.
        snr_db=np.minimum(snr_db - dull_db, 22),
        snr_up_db=10 * np.log10(1 + snr_up),
    )
    return flight, up_db, down_db


@pytest.fixture(scope="module")
def both() -> FlightFit:
    return fit_flights({"f": two_ways()[0]}, ["free-space"])


def test_the_channel_has_the_gains_of_both_directions(both: FlightFit) -> None:
    channel = both.channel
    assert channel is not None
    assert channel["model"] == "free-space"
    assert channel["carrier_hz"] == CARRIER_HZ
    assert channel["parameters"] == {}
    assert channel["up"]["offset_db"] == pytest.approx(GAIN_UP_DB, abs=1.2)
    # With nominal noise, a gain that is so much lower has the same ratio.
    assert channel["down"]["offset_db"] == pytest.approx(GAIN_DOWN_DB - DULL_DB, abs=1.0)
    assert channel["up"]["shadowing_db"] == pytest.approx(4.0, rel=0.15)
    assert channel["down"]["shadowing_db"] == pytest.approx(3.0, rel=0.15)
    assert channel["up"]["scatter_db"] == pytest.approx(1.5, rel=0.15)
    assert channel["up"]["decorrelation_m"] == pytest.approx(30, rel=0.4)
    assert channel["correlation"] == pytest.approx(0.7, abs=0.1)


def test_the_noise_of_the_downlink_is_where_its_ratio_is_0_db(both: FlightFit) -> None:
    right_dbm = STATION_DBM - 10 * np.log10(1200) + 17 - (STATION_DBM - NOISE_DBM - DULL_DB)
    assert both.noise_dbm == pytest.approx(right_dbm, abs=0.15)


@pytest.mark.parametrize("beyond", [4.0, 20.0])
def test_only_clear_ratios_give_the_noise(beyond: float) -> None:
    # Most ratios are 4 dB, since they contain noise, or 20 dB, since distortion limits them.
    snr_db = np.where(np.arange(150) % 3 == 0, np.linspace(5.5, 17.5, 150), beyond)
    true_db = np.where(snr_db == beyond, beyond + 9 * np.sign(beyond - 10), snr_db)
    flight = flight_on(SHORT, snr_db=snr_db, rsrp_dbm=-97.0 + true_db)
    found = fit_flights({"f": flight}, ["free-space"])
    assert found.noise_dbm == pytest.approx(-97)


@pytest.mark.parametrize("correlation", [0.0, -0.6, 1.0])
def test_the_correlation_of_both_directions_is_found(correlation: float) -> None:
    # Scatter as large as the shadowing halves the correlation of what is measured.
    flight, _, _ = two_ways(seed=2, correlation=correlation, scatter_db=(4.0, 3.0))
    found = fit_flights({"f": flight}, ["free-space"])
    assert found.uplink is not None
    assert found.uplink.correlation == pytest.approx(correlation, abs=0.16)
    assert -1 <= found.uplink.correlation <= 1


def test_the_offset_of_log_distance_starts_with_free_space_at_1_m() -> None:
    found = fit_flights({"f": two_ways(exponent=3.0, dull_db=35)[0]}, ["log-distance"])
    channel = found.channel
    assert channel is not None
    exponent = channel["parameters"]["exponent"]
    assert exponent == pytest.approx(3.0, abs=0.5)
    # At the distances of the flight, the channel has the gain that was simulated.
    decades_db = float(10 * np.log10(ROUTE.far_m).mean())
    lever_db = (exponent - 3.0) * decades_db
    assert channel["up"]["offset_db"] - lever_db == pytest.approx(GAIN_UP_DB, abs=1.2)
    assert channel["down"]["offset_db"] - lever_db == pytest.approx(GAIN_DOWN_DB - 35, abs=1.0)


def test_a_replay_has_the_gains_that_were_measured(both: FlightFit) -> None:
    flight, up_db, down_db = two_ways()
    trace = both.replay(both.flights[0])
    assert trace is not None
    assert trace.gain_down is not None
    np.testing.assert_allclose(10 * np.log10(trace.gain[0]), up_db, atol=0.01)
    clear = flight.rsrp_dbm[0] < 0
    assert clear.mean() > 0.5
    seen_db = 10 * np.log10(trace.gain_down[0])[clear]
    np.testing.assert_allclose(seen_db, (down_db - DULL_DB)[clear], atol=0.5 + 0.2)
    assert trace.position_m is not None
    np.testing.assert_array_equal(trace.position_m, flight.position)


def test_a_replay_has_outages_where_nothing_was_measured() -> None:
    flight, _, _ = two_ways(SHORT)
    ratio = flight.snr_up_db.copy()
    ratio[0, 7] = np.nan
    found = fit_flights({"f": replace(flight, snr_up_db=ratio)}, ["free-space"])
    trace = found.replay(found.flights[0])
    assert trace is not None
    np.testing.assert_array_equal(np.flatnonzero(trace.gain[0] == 0), [7])


def test_rsrp_alone_gives_no_gain() -> None:
    found = fit_flights({"f": measured_level(Truth(), SHORT, 1)}, ["free-space"])
    assert found.channel is None
    assert found.uplink is None
    assert found.replay(found.flights[0]) is None
    document = found.document()
    assert document.channel is None
    assert document.link.curve is None
    assert document.level == "rsrp_dbm"
    assert document.flights[0].used == 150


def test_only_the_ratio_of_the_uplink() -> None:
    flight, up_db, _ = two_ways(SHORT)
    nothing = np.full((1, 150), np.nan)
    alone = replace(flight, rsrp_dbm=nothing, snr_db=nothing, carrier_down_hz=None)
    found = fit_flights({"f": alone}, ["free-space"])
    assert found.level.field == "snr_up_db"
    assert found.carrier_hz == CARRIER_HZ
    np.testing.assert_allclose(
        found.level.series.value_db, UAV_DBM + up_db - NOISE_DBM, atol=1e-6
    )  # without noise
    channel = found.channel
    assert channel is not None
    assert channel["up"] == channel["down"]
    assert channel["up"]["offset_db"] == pytest.approx(GAIN_UP_DB, abs=4)
    trace = found.replay(found.flights[0])
    assert trace is not None
    assert trace.gain_down is not None
    np.testing.assert_allclose(10 * np.log10(trace.gain[0]), up_db, atol=0.01)
    np.testing.assert_allclose(trace.gain_down, trace.gain, rtol=1e-3)


def gains_of(route: Route, seed: int = 1) -> Array:
    return Truth(offset_db=-5.0).drawn_db(route, np.random.default_rng(seed))


def test_a_trace_of_gains_is_fitted_with_an_outage() -> None:
    gain_db = gains_of(ROUTE)
    gain_db[[20, 21]] = np.nan
    found = fit_flights(
        {"f": flight_on(ROUTE, gain_db=gain_db, gain_down_db=gain_db - 6)}, ["free-space"]
    )
    assert found.level.field == "gain_db"
    assert found.level.used[0].sum() == 798
    channel = found.channel
    assert channel is not None
    assert channel["up"]["offset_db"] == pytest.approx(-5.0, abs=1.0)
    assert channel["correlation"] == 1
    trace = found.replay(found.flights[0])
    assert trace is not None
    assert trace.gain_down is not None
    np.testing.assert_allclose(
        trace.gain[0], np.where(np.isnan(gain_db), 0, 10 ** (gain_db / 10)), rtol=1e-4
    )
    np.testing.assert_allclose(trace.gain_down, trace.gain / 10**0.6, rtol=1e-4)


def test_a_trace_of_gains_has_the_default_base_station() -> None:
    made = flight_on(SHORT, gain_db=gains_of(SHORT), base_station=None)
    found = fit_flights({"f": made}, ["free-space"])
    np.testing.assert_array_equal(found.flights[0].path.base_station_m, [0, 0, 30])


def test_exact_gains_are_fitted_with_hardly_any_shadowing() -> None:
    exact = flight_on(SHORT, gain_db=-5 - SHORT.free_space_db(), carrier_down_hz=CARRIER_HZ)
    found = fit_flights({"f": exact}, ["log-distance", "free-space"])
    document = found.document()
    for model in document.models:
        assert model.sigma_db < 0.01
        np.linalg.cholesky(np.array(model.covariance) + 1e-12 * np.eye(len(model.covariance)))
    assert found.ranking.chosen.terms == ()


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (("rsrp_dbm", "snr_db", "snr_up_db"), "rsrp_dbm"),
        (("gain_db", "rsrp_dbm"), "gain_db"),
    ],
)
def test_the_level_is_the_first_that_all_flights_have(given: Sequence[str], field: str) -> None:
    values = {name: gains_of(SHORT) for name in given}
    found = fit_flights({"a": flight_on(SHORT, **values)}, ["free-space"])
    assert found.level.field == field
    without = {"b": flight_on(SHORT, snr_db=gains_of(SHORT))}
    if "snr_db" in given:
        both = fit_flights({"a": flight_on(SHORT, **values)} | without, ["free-space"])
        assert both.level.field == "snr_db"
        assert both.uplink is None


def test_flights_without_a_common_level_are_refused() -> None:
    with pytest.raises(
        InputError, match=r"^flights: all flights must have one of gain_db, rsrp_dbm, snr_db, snr_"
    ):
        fit_flights(
            {
                "a": flight_on(SHORT, rsrp_dbm=gains_of(SHORT)),
                "b": flight_on(SHORT, gain_db=gains_of(SHORT)),
            },
            ["free-space"],
        )


def test_a_trace_has_the_base_station_of_the_paper(caplog: pytest.LogCaptureFixture) -> None:
    gain_db = gains_of(SHORT)
    flight = flight_on(SHORT, gain_db=gain_db, base_station=None)
    with caplog.at_level("INFO"):
        fit = fit_flights({"f": flight}, ["free-space"])
    assert fit.document().flights[0].base_station_m == [0, 0, 30]
    assert caplog.messages == ["f: no base_station; (0, 0, 30) m is used"]
    (flown,) = flown_in({"f": flight}, (1, 2, 3))
    assert flown.path.base_station_m.tolist() == [1, 2, 3]


@pytest.mark.parametrize("height_m", [0.0, 10.0, 45.0])
def test_the_height_of_an_unnamed_base_station_is_fitted(
    height_m: float, caplog: pytest.LogCaptureFixture
) -> None:
    route = lawnmower(700, 3)
    far_m = np.sqrt(((route.middle_m - np.array([0, 0, height_m])) ** 2).sum(axis=1))
    rng = np.random.default_rng(4)
    rsrp_dbm = -30 - 23 * np.log10(far_m) + shadowing(route.way_m, 1.0, 20.0, rng)
    fit = fit_flights({"f": flight_on(route, rsrp_dbm=rsrp_dbm, base_station=None)}, ["free-space"])
    x, y, taken_m = fit.document().flights[0].base_station_m
    assert (x, y) == (0, 0)
    # Above and below the UAV, 25 m high, heights at the same distance look the same.
    assert min(abs(taken_m - height_m), abs(50 - taken_m - height_m)) <= 5
    assert f"f: no base_station; (0, 0, {taken_m:g}) m is used, the height" in caplog.text


VARIES = np.linspace(-80, -70, 150)


def some(**changed: Any) -> MeasuredFlight:
    return flight_on(SHORT, **({"rsrp_dbm": gains_of(SHORT)} | changed))


@pytest.mark.parametrize(
    ("flights", "says"),
    [
        (
            {"f": some(base_station=None, source=json.dumps({}))},
            "flight f: does not contain the base station's position; import it with --base-station",
        ),
        (
            {"a": some(carrier_down_hz=1.8e9), "b": some()},
            "flights: the flights have different carriers: 1800 MHz, 3500 MHz",
        ),
        (
            {
                "a": some(snr_up_db=np.full(150, 9.0), carrier_up_hz=1.8e9),
                "b": some(snr_up_db=np.full(150, 9.0)),
            },
            "flights: the flights have different carriers: 1800 MHz, 3500 MHz",
        ),
        (
            {"a": some(resource_blocks=25), "b": some(resource_blocks=50)},
            "flights: the carriers have different resource blocks: 25, 50",
        ),
        (
            {"a": some(), "b": some(rsrp_dbm=np.where(np.arange(150) < 60, -80.0, np.nan))},
            "flight b: has 60 values of rsrp_dbm in flight; a fit needs 100",
        ),
        (
            {"a": some(snr_up_db=np.where(np.arange(150) < 60, VARIES + 90, np.nan))},
            "flight a: has 60 values of snr_up_db in flight; a fit needs 100",
        ),
        (
            {"a": some(rsrp_dbm=np.full(150, -80.0))},
            "flight a: rsrp_dbm is -80 in all slots in flight; a level that was measured varies",
        ),
        (
            {"a": some(), "b": flight_on(Route(SHORT.start_m - [0, 0, 60]), rsrp_dbm=VARIES)},
            "flight b: its median height is -35 m; heights must count from the ground",
        ),
        (
            {"a": flight_on(Route(np.tile([50.0, 0, 25], (150, 1))), rsrp_dbm=VARIES)},
            "flights: all places in flight are within 0.0 m; a path loss is fitted to places that "
            "are at least 10 m apart",
        ),
        (
            {"a": some(), "b": flight_on(SHORT)},
            "flights: all flights must have one of gain_db, rsrp_dbm, snr_db, snr_up_db; b has "
            "none",
        ),
    ],
)
def test_flights_that_cannot_be_fitted_are_refused_in_a_line(
    flights: dict[str, MeasuredFlight], says: str
) -> None:
    with pytest.raises(InputError) as refused:
        fit_flights(flights, ["free-space"])
    assert str(refused.value) == says


def test_an_exponent_that_no_scenario_may_have_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    far = flight_on(
        SHORT, rsrp_dbm=-gains_of(SHORT) - 200, base_station=np.array(STATION_M, np.float64)
    )
    found = fit_flights({"f": far}, ["free-space", "log-distance"])
    assert [fit.model for fit in found.ranking.fits] == ["free-space"]
    assert found.ranking.refused["log-distance"].endswith("which must be from 0.5 to 8")
    (line,) = [text for text in caplog.messages if text.startswith("log-distance is not among")]
    assert line.endswith(found.ranking.refused["log-distance"])
    with pytest.raises(InputError, match=r"^`model`: none is valid .* with the exponent -"):
        fit_flights({"f": far}, ["log-distance"])


def test_single_values_far_from_the_fit_are_said(caplog: pytest.LogCaptureFixture) -> None:
    rsrp_dbm = gains_of(SHORT)
    fit_flights({"f": some()}, ["free-space"])
    assert not caplog.messages
    rsrp_dbm[70] = -1.0
    fit_flights({"f": some(rsrp_dbm=rsrp_dbm)}, ["free-space"])
    (line,) = caplog.messages
    assert line.startswith("f: rsrp_dbm of 1 slots is far from the fit, at 70 s by +")


def test_rates_in_another_unit_are_said(caplog: pytest.LogCaptureFixture) -> None:
    flight, _, _ = two_ways()
    snr = 10 ** (flight.snr_up_db / 10) - 1
    uplink_bps = 18e6 * np.log2(1 + snr / 5)
    fit_flights({"f": replace(flight, uplink_bps=uplink_bps)}, ["free-space"])
    assert not caplog.messages
    fit_flights({"f": replace(flight, uplink_bps=uplink_bps / 1e6)}, ["free-space"])
    (line,) = caplog.messages
    assert line.startswith("uplink_bps: differs from the rate of the LTE model by ")


def test_carriers_of_an_uplink_that_was_not_measured_do_not_matter() -> None:
    flights = {"a": some(carrier_up_hz=1.8e9), "b": some()}
    assert fit_flights(flights, ["free-space"]).carrier_hz == CARRIER_HZ


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(InputError, match=r"^`model`: must be one of .*log-distance.*, not 'ray'$"):
        fit_flights({"f": some()}, ["free-space", "ray"])


def test_a_model_that_does_not_hold_is_refused_if_it_is_the_only_one() -> None:
    low = Route(SHORT.start_m + np.array([0, 0, 400]))
    flights = {"f": flight_on(low, rsrp_dbm=gains_of(low))}
    with pytest.raises(InputError, match=r"^`model`: none is valid along the flights: UAV 1 is"):
        fit_flights(flights, ["uma-av", "umi-av"])
    found = fit_flights(flights, ["uma-av", "free-space"])
    assert list(found.document().refused) == ["uma-av"]


def test_each_uav_of_a_file_is_a_flight() -> None:
    two = MeasuredFlight(
        np.stack([SHORT.start_m, SHORT.start_m + np.array([5.0, 0, 3])]),
        1.0,
        rsrp_dbm=np.stack([gains_of(SHORT), gains_of(SHORT, 2) - 10]),
        base_station=STATION_M,
    )
    found = fit_flights({"f": two}, ["free-space"])
    assert [flight.name for flight in found.flights] == ["f uav1", "f uav2"]
    assert found.ranking.best.offsets_db[0] - found.ranking.best.offsets_db[1] == pytest.approx(
        10, abs=5
    )
    assert found.ranking.best.between_db is not None


def test_a_flight_without_rates_or_mcs_has_a_document_all_the_same() -> None:
    n = len(ROUTE.start_m)
    flight, _, _ = two_ways()
    carried = {"uplink_bps": np.full((1, n), 4e6), "blocks_up": np.full((1, n), 400.0)}
    document = fit_flights({"f": replace(flight, **carried)}, ["free-space"]).document()
    assert document.link.curve is not None
    assert document.link.curve.mcs_up is None
    assert document.link.curve.bler_up is None
    assert {tuple(row) for row in document.link.curve.capacity_bps} == {(1e7,) * 19}
    nothing = {"uplink_bps": np.zeros((1, n)), "blocks_up": np.full((1, n), 400.0)}
    document = fit_flights({"f": replace(flight, **nothing)}, ["free-space"]).document()
    assert document.link.curve is None
    assert document.uplink is not None


def test_the_document_repeats_the_fit(both: FlightFit) -> None:
    document = both.document()
    best, estimate = both.ranking.best, both.ranking.best.estimate
    entry = document.models[0]
    assert document.best == entry.name == "free-space"
    assert entry.offset_db == pytest.approx(best.offset_db, abs=1e-4)
    assert entry.sigma_db == pytest.approx(estimate.shadowing_db, abs=1e-4)
    assert entry.scatter_db == pytest.approx(estimate.scatter_db, abs=1e-4)
    assert entry.decorrelation_m == pytest.approx(estimate.decorrelation_m, abs=1e-3)
    assert entry.aic == pytest.approx(estimate.aic, abs=1e-3)
    assert entry.values == 800
    assert entry.between_flights_db is None
    np.testing.assert_array_equal(entry.covariance, estimate.covariance)
    assert document.flights[0].nearest_m == pytest.approx(ROUTE.far_m.min(), abs=0.1)
    assert document.flights[0].farthest_m == pytest.approx(ROUTE.far_m.max(), abs=0.1)
    assert document.flights[0].lowest_m == pytest.approx(12.5)
    assert document.rician.k_db is None
    assert document.downlink_noise_dbm == pytest.approx(both.noise_dbm, abs=0.01)


def test_the_sentence_names_the_model_and_those_as_good() -> None:
    models = ["free-space", "two-ray"]
    sentence = fit_flights({"f": measured_level(Truth(), ROUTE, 3)}, models).sentence
    assert sentence.startswith("free-space describes this flight best, with ")
    assert sentence.endswith("; equally good (AIC within 2): two-ray.")
    slope = Truth(exponent=3.0, offset_db=-20)
    flights = {f"f{seed}": measured_level(slope, SHORT, seed) for seed in range(2)}
    sentence = fit_flights(flights, ["log-distance"]).sentence
    assert sentence.startswith("log-distance with an exponent of ")
    assert " describes these 2 flights best, with " in sentence
