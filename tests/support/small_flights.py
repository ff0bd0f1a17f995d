# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Two short measured flights that are made up, their fit, and the forecast of one of them."""

import datetime
from functools import cache
from typing import Any
from unittest import mock

import numpy as np

from orchestrator.flights import fitting, likelihood, link
from orchestrator.flights.fitting import Flown
from orchestrator.flights.forecast import Forecast, Request, forecast
from orchestrator.flights.measured import MeasuredFlight
from orchestrator.flights.result import FlightFit, fit_flights, flown_in

CARRIER_HZ = 3.5e9
NAMES = ("a", "a flight with quite a long name")
GAP = slice(100, 110)
"""Slots without any measured value."""


def made_up(seed: int, offset_db: float, *, without: tuple[str, ...] = ()) -> MeasuredFlight:
    """A flight to and fro, 25 and then 30 m high, at 8 m/s and 20 to 180 m from the base station.

    Args:
        seed: Of shadowing and scatter.
        offset_db: Added to the uplink's signal-to-noise ratio.
        without: Names of what is not measured.
    """
    rng = np.random.default_rng(seed)
    slot = np.arange(280)
    outbound = slot // 20 % 2 == 0
    x_m = 20 + 8 * np.where(outbound, slot % 20, 20 - slot % 20)
    position = np.stack([x_m, 0.2 * slot, np.where(slot < 200, 25.0, 30.0)], axis=1)
    far_m = np.linalg.norm(position - [0.0, 0.0, 10.0], axis=1)
    shadowing_db = rng.standard_normal(280)
    for i in range(1, 280):  # with a decorrelation distance of about 80 m
        shadowing_db[i] = 0.9 * shadowing_db[i - 1] + np.sqrt(1 - 0.9**2) * shadowing_db[i]
    level_db = -20 * np.log10(far_m) - 30 + shadowing_db + 2 * rng.standard_normal(280)
    level_db[GAP] = np.nan
    snr_up_db = level_db + 85 + offset_db + 4.0 * np.where(outbound, 1, -1)
    ratio = 10 ** (snr_up_db / 10)
    rate_bps = np.round(4e6 * np.log2(1 + ratio / 5), -3)
    share = 0.9 + 0.05 * (slot % 3)
    values = {
        "rsrp_dbm": np.round(level_db),
        "snr_db": level_db + 95,
        "snr_up_db": 10 * np.log10(1 + ratio),
        "mcs_up": np.clip(np.round(3 + 0.8 * snr_up_db), 0, 28),
        "uplink_bps": rate_bps * share,
        "bler_up": np.full(280, 0.05),
        "blocks_up": 1000 * share,
        "buffer_up_bytes": np.full(280, 1e5),
    }
    return MeasuredFlight(
        position=position[None],
        slot_s=1.0,
        base_station=np.array([0.0, 0.0, 10.0]),
        carrier_up_hz=CARRIER_HZ,
        carrier_down_hz=CARRIER_HZ,
        resource_blocks=50,
        start="2022-06-10T19:53:22",
        **{name: value[None] for name, value in values.items() if name not in without},
    )


def fitted(*flights: MeasuredFlight, models: tuple[str, ...] = ("free-space",)) -> FlightFit:
    """The fit of some flights, which have the names of `NAMES`; its search is coarse and quick."""
    with (
        mock.patch.object(fitting, "SEGMENTS", 2),
        mock.patch.object(likelihood, "STARTS", likelihood.STARTS[:1]),
        mock.patch.object(link, "MARGINS_DB", link.MARGINS_DB[::10]),
    ):
        return fit_flights(dict(zip(NAMES, flights, strict=False)), models)


@cache
def small_fit() -> FlightFit:
    """The fit of two flights that measured everything."""
    return fitted(made_up(1, 0.0), made_up(2, 5.0), models=("free-space", "log-distance"))


@cache
def small_forecast() -> tuple[Forecast, Flown]:
    """The forecast of a third flight, and the flight."""
    (flight,) = flown_in({"third": made_up(3, 2.0)})
    return forecast_of(small_fit(), flight), flight


def forecast_of(fit: FlightFit, flight: Flown, **changed: Any) -> Forecast:
    """The forecast of a flight from a fit."""
    made = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    request = {
        "name": flight.name,
        "path": flight.path,
        "resource_blocks": None,
        "offered_bps": None,
        "seed": 1,
        "made": made,
        "version": "0.1",
    }
    return forecast(fit.document(), Request(**request | changed))
