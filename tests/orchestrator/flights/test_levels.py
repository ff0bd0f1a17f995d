# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Flights without a signal-to-noise ratio of the uplink: its rates follow from the level."""

import datetime

import numpy as np
import pytest
from synthetic_flights import Truth, flight_on, lawnmower

from orchestrator.flights.forecast import Request, forecast, revealed
from orchestrator.flights.link import PLAIN
from orchestrator.flights.measured import MeasuredFlight
from orchestrator.flights.page import fit_page
from orchestrator.flights.result import FlightFit, fit_flights, flown_in

NOISE_DBM = -95.0
MADE = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def flight(seed: int) -> MeasuredFlight:
    """A flight with RSRP, and the rates of the LTE model with noise of -95 dBm, less up to 10 %."""
    rng = np.random.default_rng((7, seed))
    route = lawnmower(400, seed)
    rsrp_dbm = Truth(offset_db=-12.0).drawn_db(route, rng)
    bps, _ = PLAIN.of(rsrp_dbm - NOISE_DBM, 100)
    return flight_on(route, rsrp_dbm=rsrp_dbm, uplink_bps=bps * rng.uniform(0.9, 1.0, len(bps)))


@pytest.fixture(scope="module")
def fit() -> FlightFit:
    return fit_flights({"a": flight(1), "b": flight(2)}, ["free-space"])


def test_the_noise_is_that_with_which_the_rates_fit(fit: FlightFit) -> None:
    made = fit.document()
    assert made.uplink is not None
    assert made.uplink.level == "rsrp_dbm"
    assert made.uplink.noise_db == pytest.approx(NOISE_DBM, abs=1.0)
    assert made.uplink.correlation == 1
    assert made.uplink.offset_db == made.chosen.offset_db
    # Noise and margin cannot be separated, so no margin is claimed.
    assert made.link.implementation_margin_db is None
    assert made.link.stages == []
    assert made.link.error_db is not None
    assert made.link.error_db < 0.8
    # The gain with which 23 dBm over 100 resource blocks have the ratio of level and noise.
    channel = made.channel
    assert channel is not None
    right = made.chosen.offset_db - made.uplink.noise_db + 10 * np.log10(18) - 114 - 23.0103
    assert channel["up"]["offset_db"] == pytest.approx(right, abs=1e-2)
    assert channel["up"] == channel["down"]
    assert f"It is assumed to be 0 dB at −{abs(made.uplink.noise_db):.1f} dBm" in fit_page(fit)


def test_rates_are_forecast_from_the_level(fit: FlightFit) -> None:
    (other,) = flown_in({"c": flight(3)})
    request = Request("c", other.path, None, None, 1, MADE, "1")
    made = forecast(fit.document(), request)
    assert made.snr_up_db is None
    found = revealed(made, other)
    assert found.snr_up_coverage_90 is None
    assert found.uplink_median_error == pytest.approx(0, abs=0.2)
    assert found.uplink_ks is not None
    assert found.uplink_ks < 0.15
    assert found.uplink_coverage_90 == pytest.approx(0.9, abs=0.07)


def test_the_measured_level_is_replayed_in_both_directions(fit: FlightFit) -> None:
    (one, _) = fit.flights
    replayed = fit.replay(one)
    assert replayed is not None
    assert replayed.gain_down is not None
    np.testing.assert_allclose(replayed.gain, replayed.gain_down)
    snr_db = 10 * np.log10(replayed.gain[0]) + 23.0103 + 114 - 10 * np.log10(18)
    noise_db = one.values("rsrp_dbm") - snr_db
    assert noise_db == pytest.approx(np.full(400, noise_db[0]))
    assert noise_db[0] == pytest.approx(NOISE_DBM, abs=1.0)
