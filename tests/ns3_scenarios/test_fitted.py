# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Fitted channels: each part of the gain by hand, statistics of what is random, repeatability."""

import logging
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ns3_scenarios.fitted import Direction, FittedChannel
from ns3_scenarios.trace import LEAST_GAIN, Array, ChannelTrace, GivenTrace
from tests.support.given_slots import Given

BS_M = (10.0, -20.0, 30.0)
SLOT_S = 0.25
PLAIN = Direction(offset_db=0.0, shadowing_db=0.0, decorrelation_m=20.0)
BOTH = Direction(-10.0, 4.0, 20.0, 2.0, -0.5, 0.25)


def flown(uavs: int, slots: int, slot_s: float = SLOT_S, speed_m_s: float = 8.0) -> ChannelTrace:
    """UAVs on straight lines through random points, each at a constant speed, at gain -100 dB."""
    position_m = np.empty((uavs, slots, 3))
    for k in range(uavs):
        rng = np.random.default_rng(k)
        heading = rng.uniform(0, 2 * math.pi)
        velocity = speed_m_s * np.array([math.cos(heading), math.sin(heading), 0.01])
        start = rng.uniform((-300, -300, 20), (300, 300, 90))
        position_m[k] = start + np.arange(slots)[:, None] * slot_s * velocity
    return ChannelTrace(np.full((uavs, slots), 1e-10), slot_s, position_m)


def fitted(
    whole: ChannelTrace,
    up: Direction = PLAIN,
    down: Direction = PLAIN,
    correlation: float = 0.0,
    seed: int = 5,
) -> FittedChannel:
    return FittedChannel(
        Given(whole), up, down, correlation=correlation, bs_position_m=BS_M, seed=seed
    )


def decibels(source: FittedChannel, slots: int) -> tuple[Array, Array]:
    """What was added in uplink and downlink, in dB."""
    made = source.trace(slots)
    assert made.gain_down is not None
    return 10 * np.log10(made.gain) + 100, 10 * np.log10(made.gain_down) + 100


def test_each_direction_has_its_own_offset() -> None:
    up, down = decibels(fitted(flown(3, 9), replace(PLAIN, offset_db=-7), PLAIN), 9)
    assert up == pytest.approx(np.full((3, 9), -7.0))
    assert down == pytest.approx(np.zeros((3, 9)), abs=1e-9)


def test_the_elevation_is_that_of_the_uav_seen_from_the_base_station() -> None:
    whole = flown(2, 2)
    at_m = [[BS_M[0] + 30, BS_M[1] + 40, BS_M[2] + 50], [BS_M[0], BS_M[1], BS_M[2] - 20]]
    position_m = np.repeat(np.array(at_m)[:, None], 2, axis=1)
    way = replace(PLAIN, elevation_db_per_deg=0.1, heading_db_per_m_s=3.0)
    _, down = decibels(fitted(replace(whole, position_m=position_m), PLAIN, way), 2)
    assert down == pytest.approx(np.array([[4.5, 4.5], [-9.0, -9.0]]))


def test_the_heading_is_the_horizontal_velocity_away_from_the_base_station() -> None:
    """From slot to slot 3 m away, 2 m across, 1 m closer while it climbs."""
    x_m = BS_M[0] + np.array([100.0, 103.0, 103.0, 102.0])
    y_m = BS_M[1] + np.array([0.0, 0.0, 2.0, 2.0])
    z_m = BS_M[2] + np.array([0.0, 0.0, 0.0, 9.0])
    position_m = np.stack([x_m, y_m, z_m], axis=1)[None]
    whole = ChannelTrace(np.full((1, 4), 1e-10), SLOT_S, position_m)
    up, _ = decibels(fitted(whole, replace(PLAIN, heading_db_per_m_s=0.5)), 4)
    far = np.hypot([103.0, 102.0], 2.0)
    away_m_s = np.array([12.0, 12.0, 8 * 2 / far[0], -4 * 102 / far[1]])
    assert up[0] == pytest.approx(0.5 * away_m_s)
    above = replace(whole, position_m=np.repeat(np.array([[BS_M]]), 4, axis=1))
    up, _ = decibels(fitted(above, replace(PLAIN, heading_db_per_m_s=0.5)), 4)
    assert up == pytest.approx(np.zeros((1, 4)), abs=1e-9)


@pytest.mark.parametrize(("metres", "metres_down"), [(20.0, 20.0), (10.0, 40.0)])
def test_shadowing_has_its_deviation_and_is_correlated_along_the_path_and_between_directions(
    metres: float, metres_down: float
) -> None:
    up, down = decibels(
        fitted(
            flown(40, 8000),
            replace(PLAIN, shadowing_db=3.0, decorrelation_m=metres),
            replace(PLAIN, shadowing_db=5.0, decorrelation_m=metres_down),
            correlation=-0.7,
        ),
        8000,
    )
    assert up.std() == pytest.approx(3.0, rel=0.05)
    assert down.std() == pytest.approx(5.0, rel=0.05)
    for values, distance_m in ((up, metres), (down, metres_down)):
        lag = round(distance_m / (8.0 * SLOT_S))
        assert np.corrcoef(values[:, lag:].ravel(), values[:, :-lag].ravel())[0, 1] == (
            pytest.approx(math.exp(-1), abs=0.04)
        )
    between = np.corrcoef(up.ravel(), down.ravel())[0, 1]
    tends_to = 2 * math.sqrt(metres * metres_down) / (metres + metres_down)
    assert between == pytest.approx(-0.7 * tends_to, abs=0.03)


def test_directions_with_correlation_one_have_the_same_shadowing() -> None:
    way = replace(PLAIN, shadowing_db=3.0)
    up, down = decibels(fitted(flown(3, 50), way, way, correlation=1.0), 50)
    assert up == pytest.approx(down)
    assert up.std() > 1


@pytest.mark.parametrize(("slot_s", "per_second"), [(0.25, 4), (0.1, 10), (2.0, 1)])
def test_scatter_is_constant_within_a_second_and_else_independent(
    slot_s: float, per_second: int
) -> None:
    slots = 400 * per_second
    way = replace(PLAIN, scatter_db=2.0)
    up, down = decibels(fitted(flown(20, slots, slot_s), way, way), slots)
    for values in (up, down):
        seconds = values.reshape(20, 400, per_second)
        assert np.ptp(seconds, axis=2).max() == pytest.approx(0, abs=1e-9)
        assert (np.diff(seconds[..., 0], axis=1) != 0).all()
        assert values.std() == pytest.approx(2.0, rel=0.03)
    assert abs(np.corrcoef(up[:, ::per_second].ravel(), down[:, ::per_second].ravel())[0, 1]) < 0.04
    assert abs(np.corrcoef(up[0, ::per_second], up[1, ::per_second])[0, 1]) < 0.2


def test_a_trace_depends_neither_on_the_sizes_of_calls_nor_on_other_uavs() -> None:
    whole = flown(3, 90)
    at_once = fitted(whole, BOTH, BOTH, 0.5).trace(90)
    grown = fitted(whole, BOTH, BOTH, 0.5)
    first = grown.trace(1)
    grown.trace(7)
    grown.trace(40)
    later = grown.trace(90)
    for name in ("gain", "gain_down"):
        assert np.array_equal(getattr(later, name), getattr(at_once, name))
        assert np.array_equal(getattr(first, name)[:, 0], getattr(at_once, name)[:, 0])
    fewer = fitted(flown(2, 90), BOTH, BOTH, 0.5).trace(90)
    assert np.array_equal(fewer.gain, at_once.gain[:2])
    other = fitted(whole, BOTH, BOTH, 0.5, seed=6).trace(90)
    assert (other.gain != at_once.gain).all()


def test_gains_above_1_are_limited_and_outages_remain(caplog: Any) -> None:
    whole = flown(2, 4)
    gain = np.array([[1e-10, 0.0, 1e-40, 1e-4], [1e-10] * 4])
    source = fitted(replace(whole, gain=gain), replace(PLAIN, offset_db=50), PLAIN)
    with caplog.at_level(logging.WARNING):
        made = source.trace(4)
    assert made.gain[0] == pytest.approx([1e-5, 0.0, 1e-35, 1.0])
    (line,) = caplog.messages
    assert line == "the fitted channel has gains of up to 10.0 dB; 0 dB is taken"
    weak = fitted(replace(whole, gain=gain), replace(PLAIN, offset_db=-50), PLAIN).trace(4)
    assert weak.gain[0, 2] == LEAST_GAIN
    assert weak.gain[0, 1] == 0.0


def test_a_model_with_gains_of_its_own_in_each_direction_keeps_them() -> None:
    whole = flown(1, 3)
    whole = replace(whole, gain_down=np.full((1, 3), 1e-8))
    made = fitted(whole, PLAIN, replace(PLAIN, offset_db=-3)).trace(3)
    assert made.gain == pytest.approx(np.full((1, 3), 1e-10))
    assert made.gain_down == pytest.approx(np.full((1, 3), 10**-8.3))
    assert GivenTrace(made).uavs == 1
