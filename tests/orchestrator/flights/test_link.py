# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The link curve against rates that follow from tables of TS 36.213 at a known margin."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from synthetic_flights import CARRIER_HZ, Route, flight_on, lawnmower

from orchestrator.flights.fitting import Flown
from orchestrator.flights.link import (
    NEAR_S,
    QUANTILES,
    Scheme,
    Seconds,
    curve_of,
    scheme_of,
    seconds_of,
    stages,
)
from orchestrator.flights.result import flown_in

Array = npt.NDArray[np.float64]
EFFICIENCY = (
    np.array([78, 120, 193, 308, 449, 602, 378, 490, 616, 466, 567, 666, 772, 873, 948])
    * np.repeat([2, 4, 6], [6, 3, 6])
    / 1024
)
"""Bits per symbol of each CQI from 1, TS 36.213, table 7.2.3-1."""
BITS_100 = dict(
    zip(
        (0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28),
        (2792, 4584, 7224, 10296, 14112, 17568, 19848, 25456, 30576, 36696, 43816, 46888, 55056,
         61664, 75376),
        strict=True,
    )
)  # fmt: skip
"""Bits of a transport block of 100 resource blocks by MCS, tables 8.6.1-1 and 7.1.7.2.1-1."""


def carried_bps(snr_db: float, margin_db: float, highest_db: float) -> float:
    """What 1000 TTIs carry: the best CQI whose needed ratio is reached, and its MCS."""
    effective = 1 / (10 ** (-snr_db / 10) + 10 ** (-highest_db / 10))
    needed_db = margin_db + 10 * np.log10(2 ** EFFICIENCY.round(2) - 1)
    reported_db = np.trunc(8 * 10 * np.log10(effective)) / 8
    cqi = int((reported_db >= needed_db).sum())
    return 0.0 if cqi == 0 else 1e3 * list(BITS_100.values())[cqi - 1]


def seconds(snr_db: Array, bps: Array, **changed: Any) -> Seconds:
    n = len(snr_db)
    given = {
        "step_s": np.concatenate([[np.inf], np.ones(n - 1)]),
        "snr_db": snr_db,
        "far_m": np.full(n, 100.0),
        "mcs": np.full(n, 10.0),
        "bler": np.zeros(n),
        "rate_bps": bps,
        "capacity_bps": bps,
        "blocks": 100,
        "carrier_hz": CARRIER_HZ,
    }
    return Seconds(**(given | changed))


@pytest.mark.parametrize(("margin_db", "highest_db"), [(4.0, np.inf), (7.4, 24.0), (2.0, 18.0)])
def test_a_scheme_gives_the_rates_of_the_tables(margin_db: float, highest_db: float) -> None:
    snr_db = np.arange(-12.0, 35.0, 0.07)
    found, mcs = Scheme(margin_db, highest_db).of(snr_db, 100)
    right = [carried_bps(float(db), margin_db, highest_db) for db in snr_db]
    np.testing.assert_array_equal(found, right)
    by_mcs = {-1: 0, **{mcs: 1000 * bits for mcs, bits in BITS_100.items()}}
    np.testing.assert_array_equal([by_mcs[int(one)] for one in mcs], right)


@pytest.mark.parametrize(("margin_db", "highest_db"), [(3.0, 20.0), (5.5, 25.0), (7.4, 28.0)])
def test_margin_and_highest_ratio_are_found(margin_db: float, highest_db: float) -> None:
    rng = np.random.default_rng(7)
    snr_db = rng.uniform(0, 32, 400)
    bps = np.array([carried_bps(float(db), margin_db, highest_db) for db in snr_db])
    noisy = bps * 10 ** rng.normal(0, 0.03, 400)
    use = bps > 0
    scheme, error_db = scheme_of(seconds(snr_db[use], noisy[use]))
    assert scheme.margin_db == pytest.approx(margin_db, abs=0.3)
    assert scheme.highest_db == pytest.approx(highest_db, abs=2.0)
    # The mean of |N(0, 0.3 dB)| is 0.3 sqrt(2 / pi).
    assert error_db == pytest.approx(0.3 * np.sqrt(2 / np.pi), abs=0.05)


def test_without_distortion_the_highest_ratio_does_not_matter() -> None:
    snr_db = np.random.default_rng(7).uniform(0, 25, 250)
    bps = np.array([carried_bps(float(db), 4.0, np.inf) for db in snr_db])
    scheme, error_db = scheme_of(seconds(snr_db, bps))
    assert scheme.margin_db == pytest.approx(4.0, abs=0.3)
    assert scheme.highest_db > 32
    assert error_db < 0.02


def test_ratios_below_the_first_step_count_as_the_first_step() -> None:
    snr_db = np.concatenate([np.full(60, -9.0), np.linspace(2, 20, 100)])
    bps = np.array([carried_bps(float(db), 4.0, np.inf) for db in snr_db])
    bps[:60] = 2792e3
    scheme, error_db = scheme_of(seconds(snr_db, bps))
    assert scheme.margin_db == pytest.approx(4.0, abs=0.3)
    assert error_db < 0.02
    bps[:30] = 0.0  # a second in which nothing was decoded has no logarithm and is not used
    again, _ = scheme_of(seconds(snr_db, bps))
    assert again == scheme


ROUTE = lawnmower(400)


def flown(route: Route = ROUTE, **values: Any) -> Flown:
    n = len(route.start_m)
    given = {
        "snr_up_db": np.full(n, 12.0),
        "uplink_bps": np.full(n, 6e6),
        "blocks_up": np.full(n, 300.0),
        "mcs_up": np.full(n, 14.0),
        "bler_up": np.full(n, 0.01),
        "buffer_up_bytes": np.zeros(n),
    }
    given = {name: value for name, value in (given | values).items() if value is not None}
    (one,) = flown_in({"f": flight_on(route, **given)})
    return one


def known(found: Seconds | None) -> Seconds:
    assert found is not None
    return found


def test_the_printed_ratio_contains_the_noise() -> None:
    # A ratio S/N of 0, 10 and -20 dB is printed as (S + N) / N.
    printed = np.zeros(400)
    printed[:3] = 10 * np.log10(1 + np.array([1.0, 10.0, 0.01]))
    printed[3] = -0.5  # less than the noise alone
    found = flown(snr_up_db=printed).snr_up_db
    np.testing.assert_allclose(found[:4], [0, 10, -10, -10], atol=1e-12)


def test_the_capacity_is_the_rate_over_the_share_of_the_ttis() -> None:
    blocks, waits = np.full(400, 300.0), np.zeros(400)
    rates = np.full(400, 6e6)
    blocks[:6] = [1000, 250, 100, 99, 20, 1200]
    waits[3:5] = [1500, 1499]
    rates[3:5] = 1e4
    found = known(
        seconds_of([flown(blocks_up=blocks, buffer_up_bytes=waits, uplink_bps=rates)], CARRIER_HZ)
    )
    # All TTIs; a quarter; a tenth; data waited, but hardly a block was sent; none waited; at most
    # all TTIs, since retransmissions count as well.
    np.testing.assert_allclose(found.capacity_bps[:6], [6e6, 24e6, 60e6, 1e4, np.nan, 6e6])
    np.testing.assert_allclose(found.capacity_bps[6:], 20e6)
    np.testing.assert_array_equal(found.rate_bps, rates)
    np.testing.assert_array_equal(found.known, np.isfinite(found.capacity_bps))
    np.testing.assert_allclose(found.far_m, ROUTE.far_m)
    assert found.blocks == 100
    np.testing.assert_allclose(found.snr_db, 10 * np.log10(10**1.2 - 1))


def test_a_second_without_a_ratio_has_that_of_the_nearest_one() -> None:
    snr_db = 10 + np.arange(400) / 100
    snr_db[:2] = np.nan
    snr_db[10:12] = np.nan
    snr_db[20:29] = np.nan
    snr_db[395:] = np.nan
    rates = 1e6 + np.arange(400.0)
    found = known(seconds_of([flown(snr_up_db=snr_db, uplink_bps=rates)], CARRIER_HZ))
    which = (found.rate_bps - 1e6).astype(int)
    # Seconds 23 to 25 are 4 or more away from 19 and 29, the last two from 394.
    assert NEAR_S == 3
    assert sorted(set(range(400)) - set(which)) == [23, 24, 25, 398, 399]
    source = dict(zip(which, np.log10(10 ** (found.snr_db / 10) + 1) * 10, strict=True))
    for second, right in {0: 2, 1: 2, 10: 9, 11: 12, 22: 19, 26: 29, 397: 394}.items():
        assert source[second] == pytest.approx(snr_db[right])


def test_a_measured_link_gives_back_its_margin() -> None:
    rng = np.random.default_rng(11)
    route = lawnmower(500)
    snr_db = rng.uniform(1, 30, 500)
    share = rng.uniform(0.12, 1.0, 500)
    capacity = np.array([carried_bps(float(db), 6.0, 22.0) for db in snr_db])
    found = known(
        seconds_of(
            [
                flown(
                    route,
                    snr_up_db=10 * np.log10(10 ** (snr_db / 10) + 1),
                    uplink_bps=capacity * share,
                    blocks_up=1000 * share,
                    mcs_up=None,
                    bler_up=None,
                )
            ],
            CARRIER_HZ,
        )
    )
    np.testing.assert_allclose(found.snr_db, snr_db, atol=1e-9)
    np.testing.assert_allclose(found.capacity_bps, capacity, rtol=1e-12)
    scheme, error_db = scheme_of(found)
    assert scheme.margin_db == pytest.approx(6.0, abs=0.3)
    assert scheme.highest_db == pytest.approx(22.0, abs=2.0)
    assert error_db < 0.1


def test_seconds_on_the_ground_do_not_count() -> None:
    start_m = ROUTE.start_m.copy()
    start_m[:100, 2] = 1.0
    found = known(seconds_of([flown(Route(start_m))], CARRIER_HZ))
    assert len(found.snr_db) == 301  # in second 99 the UAV rises above half of its height
    start_m = ROUTE.start_m[:150].copy()
    start_m[:51, 2] = 1.0
    assert seconds_of([flown(Route(start_m))], CARRIER_HZ) is not None  # 100 seconds in flight
    start_m[51, 2] = 1.0
    assert seconds_of([flown(Route(start_m))], CARRIER_HZ) is None


def test_the_resource_blocks_are_those_of_the_flights() -> None:
    narrow = {"resource_blocks": 50}
    found = known(seconds_of([flown(**narrow), flown(**narrow)], CARRIER_HZ))
    assert found.blocks == 50
    assert len(found.snr_db) == 800


def test_no_rates_give_no_curve() -> None:
    assert seconds_of([flown(uplink_bps=None)], CARRIER_HZ) is None
    rates = np.zeros(400)
    rates[:99] = 1e6
    assert seconds_of([flown(uplink_bps=rates)], CARRIER_HZ) is None
    rates[99] = 1e6
    assert seconds_of([flown(uplink_bps=rates)], CARRIER_HZ) is not None


def test_a_step_without_transport_blocks_has_the_mcs_of_the_nearest_step() -> None:
    snr_db = np.repeat([1.5, 3.5, 5.5, 7.5], 20)
    mcs = np.repeat([np.nan, 4.0, 9.0, np.nan], 20)
    mcs[20] = np.nan
    found = curve_of(seconds(snr_db, np.full(80, 1e6), mcs=mcs, bler=mcs / 10))
    np.testing.assert_array_equal(found.mcs[:, 9], [4, 4, 9, 9])
    np.testing.assert_array_equal(found.bler, [0.4, 0.4, 0.9, 0.9])
    nothing = np.full(80, np.nan)
    never = curve_of(seconds(snr_db, np.full(80, 1e6), mcs=nothing, bler=nothing))
    assert np.isnan(never.mcs).all()
    assert np.isnan(never.bler).all()


def test_the_curve_has_medians_and_quantiles_of_each_decibel() -> None:
    rng = np.random.default_rng(5)
    snr_db = np.concatenate([rng.uniform(5, 6, 40), rng.uniform(6, 7, 4), rng.uniform(7, 8, 30)])
    snr_db = np.concatenate([snr_db, rng.uniform(20, 21, 12), [25.0]])
    bps, mcs = rng.uniform(1e6, 9e6, 87), rng.uniform(0, 28, 87)
    bler = rng.uniform(0, 0.2, 87)
    found = curve_of(seconds(snr_db, bps, mcs=mcs, bler=bler))
    # Four seconds are too few for a step of their own: the next step joins them. One at the end
    # joins the step before it.
    steps = [np.arange(40), np.arange(40, 74), np.arange(74, 87)]
    np.testing.assert_array_equal(found.seconds, [40, 34, 13])
    for i, step in enumerate(steps):
        assert found.snr_db[i] == pytest.approx(np.median(snr_db[step]))
        assert found.bler[i] == pytest.approx(np.median(bler[step]))
        for q in (0, 9, 18):
            level = (q + 1) * 0.05
            assert QUANTILES[q] == pytest.approx(level)
            assert found.capacity_bps[i, q] == pytest.approx(np.quantile(bps[step], level))
            assert found.mcs[i, q] == pytest.approx(np.quantile(mcs[step], level))


def test_the_place_of_a_second_among_its_like_lasts() -> None:
    rng = np.random.default_rng(3)
    n, memory_s, share = 6000, 8.0, 0.7
    lasting = rng.standard_normal(n)
    for i in range(1, n):
        kept = np.exp(-1 / memory_s)
        lasting[i] = kept * lasting[i - 1] + np.sqrt(1 - kept**2) * lasting[i]
    place = np.sqrt(share) * lasting + np.sqrt(1 - share) * rng.standard_normal(n)
    bps = 1e6 * np.exp(place)
    found = curve_of(seconds(rng.uniform(0, 5, n), bps))
    assert found.memory_s == pytest.approx(memory_s, rel=0.25)
    assert found.memory_share == pytest.approx(share, abs=0.07)
    # Without memory, hardly anything lasts from one second to the next.
    found = curve_of(seconds(rng.uniform(0, 5, n), rng.permutation(bps)))
    assert found.memory_share * np.exp(-1 / found.memory_s) < 0.1


def test_the_stages_from_shannon_to_the_goodput() -> None:
    snr_db, rate = np.array([3.0, 12.0, 25.0]), np.array([1e6, 2e6, 3e6])
    given = seconds(
        snr_db, rate, far_m=np.array([100.0, 200.0, 1000.0]), capacity_bps=np.array([4e6, 5e6, 6e6])
    )
    found = stages(given, Scheme(3.0, np.inf))
    band_hz = 100 * 180e3
    # -114 dBm/MHz in 18 MHz; 23 dBm; Friis.
    noise_w = 10**-14.4 * 18
    gain = (299792458 / (4 * np.pi * given.far_m * CARRIER_HZ)) ** 2
    sent_w = 10 ** (-0.7)
    nominal = sent_w * gain / noise_w
    np.testing.assert_allclose(found[0].rate_bps, band_hz * np.log2(1 + nominal), rtol=1e-2)
    np.testing.assert_allclose(found[1].rate_bps, band_hz * np.log2(1 + 10 ** (snr_db / 10)))
    right = [[carried_bps(float(db), margin, np.inf) for db in snr_db] for margin in (7.427, 3.0)]
    np.testing.assert_array_equal(found[2].rate_bps, right[0])
    np.testing.assert_array_equal(found[3].rate_bps, right[1])
    np.testing.assert_array_equal(found[4].rate_bps, [4e6, 5e6, 6e6])
    np.testing.assert_array_equal(found[5].rate_bps, rate)
    assert len({stage.name for stage in found}) == 6
