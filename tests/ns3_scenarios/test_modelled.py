# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Channel models in Python: TR 36.777's cities, restated here; shadowing along paths; packages."""

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ns3_scenarios import ground
from ns3_scenarios.aerial import AERIAL, UMA, UMI, Aerial, free_space_db, two_ray_db
from ns3_scenarios.channel import ChannelSettings, Ns3Channel
from ns3_scenarios.errors import ChannelError
from ns3_scenarios.modelled import Correlated, ModelledChannel, Surroundings, aerial
from orchestrator.scenario.channel import _known, mean_loss, ns3_source
from orchestrator.scenario.loading import validate
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError

BS_M = (0.0, 0.0, 25.0)


def stated(name: str, h: float, d2: float, d3: float, f_ghz: float) -> tuple[float, ...]:
    """Tables B-1 to B-3 of TR 36.777, one geometry at a time: LOS and NLOS path loss in dB, LOS
    probability, standard deviations of shadowing in LOS and NLOS."""
    log = math.log10
    if name == "uma-av":
        los = 28.0 + 22.0 * log(d3) + 20.0 * log(f_ghz)
        nlos = -17.5 + (46.0 - 7.0 * log(h)) * log(d3) + 20.0 * log(40.0 * math.pi * f_ghz / 3.0)
        p1, d1 = 4300.0 * log(h) - 3800.0, max(460.0 * log(h) - 700.0, 18.0)
        deviations = (4.64 * math.exp(-0.0066 * h), 6.0)
        certain = h > 100.0
    else:
        free = 20.0 * log(4.0 * math.pi * d3 * f_ghz * 1e9 / 299792458.0)
        los = max(free, 30.9 + (22.25 - 0.5 * log(h)) * log(d3) + 20.0 * log(f_ghz))
        nlos = max(los, 32.4 + (43.2 - 7.6 * log(h)) * log(d3) + 20.0 * log(f_ghz))
        p1, d1 = 233.98 * log(h) - 0.95, max(294.05 * log(h) - 432.94, 18.0)
        deviations = (max(5.0 * math.exp(-0.01 * h), 2.0), 8.0)
        certain = False
    chance = 1.0
    if not certain and d2 > d1:
        chance = d1 / d2 + math.exp(-d2 / p1) * (1.0 - d1 / d2)
    return los, nlos, chance, *deviations


@pytest.mark.parametrize("model", [UMA, UMI], ids=["uma-av", "umi-av"])
def test_the_cities_are_tr_36_777_s(model: Aerial) -> None:
    rng = np.random.default_rng(36777)
    height, across = rng.uniform(22.6, 300, 1000), rng.uniform(0, 4000, 1000)
    across[:100] = rng.uniform(0, 40, 100)  # nearly overhead
    distance, carrier_hz = np.hypot(across, height - 25.0), rng.uniform(0.5e9, 30e9, 1000)
    for h, d2, d3, f in zip(height, across, distance, carrier_hz, strict=True):
        los, nlos, chance, los_deviation, nlos_deviation = stated(model.name, h, d2, d3, f / 1e9)
        at = np.array(h), np.array(d3)
        assert abs(model.los_db(*at, f) - los) < 1e-9
        assert abs(model.nlos_db(*at, f) - nlos) < 1e-9
        assert abs(model.los_probability(np.array(h), np.array(d2)) - chance) < 1e-12
        assert abs(model.los_deviation_db(np.array(h)) - los_deviation) < 1e-12
        assert model.nlos_deviation_db == nlos_deviation


def grounded(
    name: str, h: float, d2: float, d3: float, f_ghz: float, he: float
) -> tuple[float, ...]:
    """TR 38.901, tables 7.4.1-1 and 7.4.2-1, one geometry at a time, as `stated`."""
    log = math.log10
    bend = 4.0 * (BS_M[2] - he) * (h - he) * f_ghz * 1e9 / 3.0e8
    squares = log(bend**2 + (BS_M[2] - h) ** 2)
    c = 0.0 if h <= 13.0 else ((h - 13.0) / 10.0) ** 1.5
    if name == "uma-av":
        los = 28.0 + 22.0 * log(d3) + 20.0 * log(f_ghz)
        if d2 > bend:
            los = 28.0 + 40.0 * log(d3) + 20.0 * log(f_ghz) - 9.0 * squares
        nlos = max(los, 13.54 + 39.08 * log(d3) + 20.0 * log(f_ghz) - 0.6 * (h - 1.5))
        chance = 18.0 / d2 + math.exp(-d2 / 63.0) * (1.0 - 18.0 / d2)
        chance *= 1.0 + c * 5.0 / 4.0 * (d2 / 100.0) ** 3 * math.exp(-d2 / 150.0)
        deviations = (4.0, 6.0)
    else:
        los = 32.4 + 21.0 * log(d3) + 20.0 * log(f_ghz)
        if d2 > bend:
            los = 32.4 + 40.0 * log(d3) + 20.0 * log(f_ghz) - 9.5 * squares
        nlos = max(los, 35.3 * log(d3) + 22.4 + 21.3 * log(f_ghz) - 0.3 * (h - 1.5))
        chance = 18.0 / d2 + math.exp(-d2 / 36.0) * (1.0 - 18.0 / d2)
        deviations = (4.0, 7.82)
    return los, nlos, 1.0 if d2 <= 18.0 else chance, *deviations


@pytest.mark.parametrize("model", [UMA, UMI], ids=["uma-av", "umi-av"])
def test_up_to_22_5_m_the_cities_are_tr_38_901_s(model: Aerial) -> None:
    rng = np.random.default_rng(38901)
    height, across = rng.uniform(1.5, 22.5, 1000), rng.uniform(0, 4000, 1000)
    across[:100] = rng.uniform(0, 40, 100)
    high = np.where(height >= 13.5, 12.0, 1.0)
    env = np.where(model.ground.draws_environment & (rng.random(1000) < 0.5), high, 1.0)
    distance, carrier_hz = np.hypot(across, height - 25.0), rng.uniform(0.5e9, 4e9, 1000)
    beyond = 0
    for h, d2, d3, f, he in zip(height, across, distance, carrier_hz, env, strict=True):
        los, nlos, chance, *deviations = grounded(model.name, h, d2, d3, f / 1e9, he)
        links = ground.Geometry(*map(np.array, (h, BS_M[2], d2, d3, he)))
        assert abs(model.ground.los_db(links, f) - los) < 1e-9
        assert abs(model.ground.nlos_db(links, f) - nlos) < 1e-9
        assert abs(model.ground.los_probability(np.array(h), np.array(d2)) - chance) < 1e-12
        assert [model.ground.los_deviation_db, model.ground.nlos_deviation_db] == deviations
        beyond += d2 > 4 * (25 - he) * (h - he) * f / 3e8
    assert 100 < beyond < 900


def test_the_surroundings_of_uma_are_as_high_as_note_1_says() -> None:
    rng = np.random.default_rng(1)
    draws = rng.random((2, 100_000))
    drawn = ground.environment_m(np.array(20.0), np.array(200.0), *draws)
    c = (7 / 10) ** 1.5 * 1.25 * 2**3 * math.exp(-200 / 150)
    assert (drawn == 1).mean() == pytest.approx(1 / (1 + c), abs=5e-3)
    heights, counts = np.unique(drawn[drawn > 1], return_counts=True)
    assert heights.tolist() == [12, 15, 18]
    assert (abs(counts / counts.sum() - 1 / 3) < 0.01).all()
    assert (ground.environment_m(np.array(12.9), np.array(200.0), *draws) == 1).all()


@pytest.mark.parametrize("name", ["uma-av", "umi-av"])
def test_a_fleet_may_fly_below_and_above(name: str) -> None:
    tree = {"uavs": {"tx_power_w": 1, "count": 2, "height_m": [12, 60]}, "radio": {"channel": name}}
    chosen = validate(tree | {"base_station": {"position_m": [0, 0, 25]}}, "test")
    with ns3_source(chosen) as source:
        trace = source.trace(30)
    assert trace.position_m is not None
    across = np.hypot(*np.moveaxis(trace.position_m[..., :2], -1, 0))
    distance = np.linalg.norm(trace.position_m - np.array(BS_M), axis=2)
    low = [grounded(name, 12, *at, 2.0, 1.0)[0] for at in zip(across[0], distance[0], strict=True)]
    high = [stated(name, 60, *at, 2.0)[0] for at in zip(across[1], distance[1], strict=True)]
    np.testing.assert_allclose(-10 * np.log10(trace.gain), [low, high], atol=1e-9)


def test_the_correlation_distances_are_tr_38_901_s() -> None:
    """Tables 7.6.3.1-2 (LOS state) and 7.5-6 (shadow fading)."""
    assert (UMA.state_m, UMA.los_shadow_m, UMA.nlos_shadow_m) == (50, 37, 50)
    assert (UMI.state_m, UMI.los_shadow_m, UMI.nlos_shadow_m) == (50, 10, 13)


def scenario(**radio: Any) -> Scenario:
    tree = {"uavs": {"tx_power_w": 1, "count": 3, "height_m": [30, 60, 90]}, "radio": radio}
    return validate(tree, "test")


@pytest.mark.parametrize("channel", ["uma-av", "umi-av", "free-space", "two-ray"])
def test_a_scenarios_gains_are_those_of_its_channel(channel: str) -> None:
    chosen = scenario(channel=channel, carrier_hz=3e9)
    with ns3_source(chosen) as source:
        trace = source.trace(50)
    assert trace.position_m is not None
    offset = trace.position_m - np.array(chosen.base_station.position_m)
    across, distance = (
        np.hypot(*np.moveaxis(offset[..., :2], -1, 0)),
        np.linalg.norm(offset, axis=2),
    )
    height = trace.position_m[..., 2]
    if channel in AERIAL:
        rows = zip(height.flat, across.flat, distance.flat, strict=True)
        expected = np.array([stated(channel, h, d2, d3, 3.0)[0] for h, d2, d3 in rows])
    elif channel == "free-space":
        expected = free_space_db(distance, 3e9).ravel()
    else:
        expected = two_ray_db(height, 30.0, distance, 3e9).ravel()
    np.testing.assert_allclose(-10 * np.log10(trace.gain).ravel(), expected, atol=1e-9)


def test_two_rays_part_from_free_space_beyond_the_crossover() -> None:
    """4 π · 20 m · 30 m / 0.15 m = 50 km: below it free space, four times as far 12 dB more."""
    crossover_m = 4 * np.pi * 20 * 30 * 2e9 / 299792458
    near, far, farther = two_ray_db(20.0, 30.0, crossover_m * np.array([0.5, 2, 4]), 2e9)
    assert near == free_space_db(0.5 * crossover_m, 2e9)
    assert farther - far == pytest.approx(40 * np.log10(2))
    assert far - free_space_db(2 * crossover_m, 2e9) == pytest.approx(20 * np.log10(2))


def test_shadowing_decorrelates_as_its_distance_says() -> None:
    """10^5 samples, 5 m apart, of a process that decorrelates over 50 m."""
    position = np.zeros((1, 100_000, 3))
    position[0, :, 0] = 5.0 * np.arange(100_000)
    (values,) = Correlated(50.0, [(1, 0, 0)]).along(position)
    assert abs(values.mean()) < 0.05
    assert values.std() == pytest.approx(1.0, abs=0.03)
    for steps in (1, 5, 10, 20):
        found = np.corrcoef(values[:-steps], values[steps:])[0, 1]
        assert found == pytest.approx(math.exp(-steps * 5.0 / 50.0), abs=0.03)


def test_shadowing_stands_still_with_its_uav() -> None:
    position = np.zeros((2, 60, 3))
    position[1, :, 1] = np.arange(60)
    still, moving = Correlated(50.0, [(1, 0, 0), (1, 1, 0)]).along(position)
    assert np.ptp(still) < 1e-12
    assert np.ptp(moving) > 0.1


@pytest.mark.parametrize("line_of_sight", ["probability", "never"])
def test_what_is_random_has_the_statistics_of_the_tables(line_of_sight: Any) -> None:
    """UAVs that jump kilometres between samples: independent draws at one geometry."""
    space = Surroundings(50, BS_M, 2e9, line_of_sight, True, 0.1, seed=3)
    gain = aerial(UMA, space)
    angle = np.random.default_rng(2).uniform(0, 2 * np.pi, (50, 400))
    position = np.stack([1500 * np.cos(angle), 1500 * np.sin(angle), 0 * angle + 60], axis=2)
    loss = -10 * np.log10(gain(position, np.arange(400) * 0.1))
    los, nlos, chance, los_deviation, _ = stated("uma-av", 60.0, 1500.0, math.hypot(1500, 35), 2.0)
    expected = nlos if line_of_sight == "never" else chance * los + (1 - chance) * nlos
    assert loss.mean() == pytest.approx(expected, abs=0.4)
    if line_of_sight == "never":
        assert loss.std() == pytest.approx(6.0, rel=0.05)
    else:
        inner = loss[loss < los + 2.5 * los_deviation]
        assert len(inner) / loss.size == pytest.approx(chance, abs=0.06)


def test_neither_calls_nor_more_uavs_change_a_trace() -> None:
    tree = {"channel": "umi-av", "line_of_sight": "probability", "shadow_fading": True}
    with ns3_source(scenario(**tree)) as source:
        pieces = [source.trace(n) for n in (1, 7, 300)][-1]
    with ns3_source(scenario(**tree)) as source:
        whole = source.trace(300)
    assert pieces.gain[:, :300].tobytes() == whole.gain[:, :300].tobytes()
    few = validate({"uavs": {"tx_power_w": 1, "count": 2, "height_m": 30}, "radio": tree}, "test")
    more = validate(
        {"uavs": {"tx_power_w": 1, "count": 4, "height_m": 30, "ring": [3] * 4}, "radio": tree},
        "test",
    )
    with ns3_source(few) as one, ns3_source(more) as other:
        assert one.trace(50).gain[:2, :50].tobytes() == other.trace(50).gain[:2, :50].tobytes()


@pytest.mark.parametrize(
    ("radio", "uavs", "says"),
    [
        ({"channel": "uma"}, {}, "radio.channel: 'uma' is not one of rma-av, uma-av, umi-av"),
        ({"channel": "uma-av"}, {"rings_m": [[10, 5000]]}, "uavs.rings_m: must lie within 4000 m"),
        ({"channel": "uma-av", "line_of_sight": "never"}, {"height_m": 120}, "up to 100, not 120"),
        ({"channel": "uma-av"}, {"height_m": 1.4}, "uavs.height_m: must be a"),
        (
            {"line_of_sight": "probability"},
            {"height_m": 10, "rings_m": [[100, 6000]]},
            "uavs.rings_m: must lie within 5000 m where radio.channel is 'rma-av' and UAVs fly up "
            "to 10 m high without line of sight, not 6000",
        ),
        (
            {"channel": "two-ray", "shadow_fading": True},
            {},
            "radio.shadow_fading: 'two-ray' models neither",
        ),
        (
            {"channel": "umi-av", "parameters": {"a": 1}},
            {},
            "radio.parameters: 'umi-av' has no parameters",
        ),
    ],
)
def test_a_channel_that_does_not_fit_is_one_line(radio: Any, uavs: Any, says: str) -> None:
    with pytest.raises(InputError) as raised:
        validate({"uavs": {"tx_power_w": [1], "height_m": 30} | uavs, "radio": radio}, "test")
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_low_uavs_fit_what_their_channel_needs() -> None:
    def made(bs_m: float, height_m: list[float], **radio: Any) -> Any:
        base_station = {"position_m": [0, 0, bs_m]}
        uavs = {"tx_power_w": 1, "height_m": height_m, "ring": [1, 2]}
        rings = {"rings_m": [[100, 500], [5000, 9000]]}
        return validate(
            {"uavs": uavs | rings, "radio": radio, "base_station": base_station}, "test"
        )

    made(9, [11, 11])
    made(9, [1.5, 1.5], channel="free-space")
    with pytest.raises(InputError, match=r"base_station.position_m: must be 10 to 150 m high"):
        made(9, [10, 11])
    made(10, [10, 11], line_of_sight="never")
    with pytest.raises(InputError, match=r"uavs.rings_m: must lie within 5000 m"):
        made(10, [11, 10], line_of_sight="never")
    known = _known(made(10, [10, 11], line_of_sight="probability"))
    far_m, height_m = np.array([5001.0, 5001.0, 5000.0, 10001.0]), np.array([10.0, 11, 10, 11])
    assert known.excludes(height_m, far_m).tolist() == [True, False, False, True]
    assert str(known).endswith("up to a distance of 10000 m (5000 m up to a height of 10 m)")
    assert _known(made(10, [10, 11])).excludes(height_m, far_m).tolist() == [*3 * [False], True]


def test_the_planner_reckons_with_the_path_loss_of_low_uavs() -> None:
    low = validate({"uavs": {"tx_power_w": [1], "height_m": 5}}, "test")
    loss_db = mean_loss(low)
    assert loss_db is not None
    with ns3_source(low) as source:
        trace = source.trace(1)
    assert trace.position_m is not None
    far_m = np.linalg.norm(trace.position_m[:, 0] - np.array([0, 0, 30.0]), axis=1)
    found = 10 ** (-loss_db(np.array([5.0]), far_m) / 10)
    np.testing.assert_allclose(found, trace.gain[:, 0], rtol=1e-9)


def test_a_scenario_of_rma_av_is_written_down_as_before() -> None:
    radio = validate({"uavs": {"tx_power_w": [1]}}, "test").model_dump()["radio"]
    assert "channel" not in radio
    assert "parameters" not in radio
    assert scenario(channel="umi-av").model_dump()["radio"]["channel"] == "umi-av"


def broken(position_m: Any, times_s: Any) -> Any:
    raise KeyError("where was I")


@pytest.mark.parametrize(
    ("gain", "says"),
    [
        (broken, "at 0 s: KeyError: 'where was I'"),
        (lambda p, t: np.ones(3), r"must return gains of shape \(1, 4\), not \(3,\)"),
        (lambda p, t: "strong", "it did not return an array of numbers"),
        (lambda p, t: np.where(t > 0.25, np.nan, 1e-9)[None], "at 0.3 s: UAV 1: gain nan"),
        (lambda p, t: (np.full((1, 4), 1e-9), np.full((1, 4), -1.0)), "UAV 1: gain -1"),
    ],
)
def test_a_model_that_fails_is_named_in_one_line(gain: Callable[..., Any], says: str) -> None:
    flight = Ns3Channel(ChannelSettings([(100.0, 550.0)], 1))
    with ModelledChannel("mine", gain, flight) as source, pytest.raises(ChannelError) as raised:
        source.trace(4)
    assert "radio.channel 'mine'" in str(raised.value)
    assert re.search(says, str(raised.value))


def test_a_model_may_give_each_direction_its_own() -> None:
    flight = Ns3Channel(ChannelSettings([(100.0, 550.0)], 1))

    def gain(position_m: Any, times_s: Any) -> Any:
        return 1e-9 * (1 + times_s)[None], 2e-9 * (1 + times_s)[None]

    with ModelledChannel("mine", gain, flight) as source:
        source.trace(3)
        trace = source.trace(40)
    assert trace.gain_down is not None
    np.testing.assert_allclose(trace.gain[0], 1e-9 * (1 + 0.1 * np.arange(trace.slots)))
    np.testing.assert_array_equal(trace.gain_down, 2 * trace.gain)
