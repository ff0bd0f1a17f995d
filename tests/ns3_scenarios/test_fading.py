# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Small-scale fading against what Clarke's model says of it."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import j0

from ns3_scenarios.fading import Fading, FadingChannel
from ns3_scenarios.trace import ChannelTrace, TraceError
from tests.support.given_slots import Given

RAYLEIGH = Fading("rayleigh", 0.0, 1e-3, 2e9, 20.0, 7)
SLOT_S = 0.1


def flight(uavs=3, slots=40, speed_m_s=4.0):
    """UAVs that fly straight on at one speed, with gain 1e-9."""
    along = speed_m_s * SLOT_S * np.arange(slots)
    position = np.stack([np.stack([along, 0 * along, 20 + 0 * along], axis=1)] * uavs)
    return ChannelTrace(np.full((uavs, slots), 1e-9), SLOT_S, position)


def faded(fading, trace):
    return fading.powers(fading.turns(trace))


def test_the_mean_power_is_one_and_rayleigh_is_exponential() -> None:
    powers = faded(RAYLEIGH, flight(uavs=100, slots=400)).ravel()
    assert powers.mean() == pytest.approx(1, abs=0.01)
    for level in (0.1, 0.5, 1.0, 2.0):
        assert (powers > level).mean() == pytest.approx(np.exp(-level), abs=0.02)


@pytest.mark.parametrize("k_db", [0.0, 10.0])
def test_the_power_of_rician_fading_varies_as_its_factor_says(k_db) -> None:
    k = 10 ** (k_db / 10)
    rician = replace(RAYLEIGH, kind="rician", direct=k)
    powers = faded(rician, flight(uavs=200, slots=400))
    assert powers.mean() == pytest.approx(1, abs=0.01)
    assert powers.var() == pytest.approx((1 + 2 * k) / (1 + k) ** 2, rel=0.08)


def test_the_correlation_over_time_is_that_of_jakes() -> None:
    """The power's correlation is the square of the Bessel function of 2 pi f t."""
    powers = faded(RAYLEIGH, flight(uavs=200, slots=50)).reshape(400, -1)
    away = powers - 1
    for lag in (1, 5, 10, 19, 40):
        correlation = (away[:, lag:] * away[:, : away.shape[1] - lag]).mean() / away.var()
        assert correlation == pytest.approx(j0(2 * np.pi * 20.0 * lag * 1e-3) ** 2, abs=0.04)


def test_the_doppler_shift_follows_the_speed_of_the_flight() -> None:
    """At 2 GHz, 3 m/s have a Doppler shift of 20 Hz; a UAV at rest keeps its fading."""
    moving, speed = flight(slots=10), 20.0 * 299_792_458.0 / 2e9
    ours = replace(RAYLEIGH, doppler_hz=None).turns(flight(slots=10, speed_m_s=speed))
    given = RAYLEIGH.turns(moving)
    assert np.diff(ours[:, 1:].reshape(3, -1)) == pytest.approx(
        np.diff(given[:, 1:].reshape(3, -1))
    )
    assert not np.ptp(ours[:, 0])  # where a UAV came from is not known in slot 0
    rest = faded(replace(RAYLEIGH, doppler_hz=None), flight(speed_m_s=0.0))
    assert not np.ptp(rest, axis=(2, 3)).any()


def test_earlier_slots_never_change_and_links_fade_apart() -> None:
    channel = FadingChannel(Given(flight(slots=40)), RAYLEIGH)
    grown = FadingChannel(Given(flight(slots=40)), RAYLEIGH)
    parts = [grown.trace(slots).fading for slots in (7, 8, 25, 40)]
    whole = channel.trace(40).fading
    assert whole.shape == (2, 3, 40, 100)
    for part in parts:
        np.testing.assert_array_equal(part, whole[:, :, : part.shape[2]])
    flat = whole.reshape(6, -1)
    assert np.abs(np.corrcoef(flat) - np.eye(6)).max() < 0.4
    other = faded(replace(RAYLEIGH, seed=8), flight())
    assert not np.allclose(other, whole)
    assert channel.trace(40).at(np.array([3, 1])).fading.shape == (2, 3, 2, 100)


def test_one_block_a_slot() -> None:
    assert faded(replace(RAYLEIGH, block_s=SLOT_S), flight(slots=5)).shape == (2, 3, 5, 1)


def test_the_speed_must_be_known() -> None:
    still = replace(flight(), position_m=None)
    with pytest.raises(TraceError, match="position, which gives the Doppler shift"):
        replace(RAYLEIGH, doppler_hz=None).turns(still)
    assert RAYLEIGH.turns(still).shape == (3, 40, 100)
