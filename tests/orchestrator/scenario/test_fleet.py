# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Fleets whose UAVs differ: how many there are, what each has, and who computes with it."""

import json
from typing import Any

import numpy as np
import pytest

from ns3_scenarios.trace import ChannelTrace, Replay
from orchestrator.analysis.outline import outline
from orchestrator.analytical import claims
from orchestrator.engine.radio import WHILE_ALL_SEND
from orchestrator.policies.environment import UavSflEnv
from orchestrator.policies.planner import forecast
from orchestrator.rounds.loop import predict
from orchestrator.scenario.channel import channel_settings, ns3_source
from orchestrator.scenario.loading import validate, varied
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from workloads.costs.profile import PAPER


def fleet(**uavs: Any) -> Scenario:
    tree = {"uavs": {"tx_power_w": 0.4} | uavs, "workload": {"compute": "none"}}
    return validate(tree, "test")


def steady(gains: list[float], slots: int = 3000) -> Replay:
    return Replay(ChannelTrace(np.repeat(np.array(gains)[:, None], slots, axis=1), 0.1))


@pytest.mark.parametrize(
    ("uavs", "count"),
    [
        ({"tx_power_w": [1, 0.4]}, 2),
        ({"tx_power_w": 1, "count": 7}, 7),
        ({"tx_power_w": 1, "height_m": [20, 30, 40]}, 3),
        ({"tx_power_w": 1, "ring": [1, 2, 3, 3]}, 4),
        ({"tx_power_w": [1, 0.4], "count": None}, 2),
        ({"tx_power_w": {"uniform": [0.1, 1]}, "compute_flops": [1e12, 2e12], "count": 2}, 2),
    ],
)
def test_the_number_of_uavs_is_given_or_that_of_the_lists(uavs: Any, count: int) -> None:
    scenario = fleet(**uavs)
    assert scenario.uavs.count == count
    assert scenario.fleet.tx_power_w.shape == (count,)
    assert len(scenario.uavs.ring_m) == count


@pytest.mark.parametrize(
    ("uavs", "says"),
    [
        ({}, "uavs.count: is missing; how many"),
        (
            {"count": 3, "height_m": [20, 30]},
            "uavs.height_m: must have one entry per UAV: 3, not 2",
        ),
        ({"count": 2, "compute_flops": [1e12, -1]}, "uavs.compute_flops.1: must be"),
        ({"tx_power_w": [1, 1], "compute_power_w": [16]}, "uavs.compute_power_w: must have one"),
        ({"count": 2, "tx_power_w": {"uniform": [1, 1e9]}}, "uavs.tx_power_w.uniform.1: must be"),
        ({"count": 2, "tx_power_w": {"uniform": [2, 1]}}, "uavs.tx_power_w.uniform: 2 to 1 is no"),
        (
            {"count": 2, "height_m": {"normal": [50, 1, 20, 40]}},
            "uavs.height_m.normal: the mean 50 must lie from 20 to 40",
        ),
        (
            {"count": 2, "height_m": {"uniform": [20, 30], "choice": [20]}},
            "uavs.height_m: needs exactly one of uniform",
        ),
    ],
)
def test_a_wrong_fleet_is_one_line_that_names_the_field(uavs: Any, says: str) -> None:
    with pytest.raises(InputError) as raised:
        fleet(**uavs)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("mobility", "says"),
    [
        ({"mean_speed_m_s": [1, 2, 9]}, "mobility.mean_speed_m_s: must lie in speed_m_s, 0.1 to 4"),
        ({"speed_m_s": [[0, 9]]}, "mobility.speed_m_s: must have one entry per UAV: 3, not 1"),
        ({"speed_m_s": [[0, 9], [1, 2], [3, 4]]}, "speed_m_s, 3 to 4; UAV 3 has 2.5"),
    ],
)
def test_speeds_fit_the_fleet(mobility: Any, says: str) -> None:
    tree = {"uavs": {"tx_power_w": [1] * 3}, "mobility": {"mean_speed_m_s": [1, 2, 2.5]} | mobility}
    with pytest.raises(InputError) as raised:
        validate(tree, "test")
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("spread", "quartiles"),
    [
        ({"uniform": [12.0, 40.0]}, (19.0, 26.0, 33.0)),
        ({"log_uniform": [16.0, 256.0]}, (32.0, 64.0, 128.0)),
        # A normal distribution cut off at ± one deviation: ± 0.4418 of it at the quartiles.
        ({"normal": [30.0, 10.0, 20.0, 40.0]}, (25.582, 30.0, 34.418)),
    ],
)
def test_distributions_are_what_they_are_called(spread: Any, quartiles: Any) -> None:
    height_m = fleet(count=10_000, height_m=spread).fleet.height_m
    (low, high) = next(iter(spread.values()))[-2:]
    assert height_m.min() >= low
    assert height_m.max() <= high
    np.testing.assert_allclose(np.quantile(height_m, [0.25, 0.5, 0.75]), quartiles, rtol=0.04)


def test_a_choice_takes_each_as_often() -> None:
    drawn = fleet(count=9000, height_m={"choice": [20, 30, 40]}).fleet.height_m
    values, times = np.unique(drawn, return_counts=True)
    assert values.tolist() == [20, 30, 40]
    assert (abs(times - 3000) < 200).all()


def test_draws_follow_from_seed_key_and_uav_alone() -> None:
    drawn: Any = {"tx_power_w": {"uniform": [0.1, 1]}, "height_m": {"uniform": [20, 40]}}
    few, many = fleet(count=5, **drawn), fleet(count=9, **drawn)
    np.testing.assert_array_equal(few.fleet.tx_power_w, many.fleet.tx_power_w[:5])
    other = varied(few, {"uavs.height_m": 20})
    np.testing.assert_array_equal(few.fleet.tx_power_w, other.fleet.tx_power_w)
    share = (few.fleet.tx_power_w - 0.1) / 0.9
    assert (abs(share - (few.fleet.height_m - 20) / 20) > 1e-6).all()  # keys are independent
    assert (varied(few, {"seed": 2}).fleet.tx_power_w != few.fleet.tx_power_w).all()
    kept = varied(few, {"seed": 2, "uavs.seed": 1})
    np.testing.assert_array_equal(kept.fleet.tx_power_w, few.fleet.tx_power_w)
    np.testing.assert_array_equal(few.reseeded(7).fleet.height_m, few.fleet.height_m)
    assert few.reseeded(7).seed == 7


def test_a_fleet_written_down_is_the_same_fleet() -> None:
    scenario = fleet(count=4, height_m={"normal": [30, 5, 20, 40]}, compute_power_w=[1, 2, 3, 4])
    again = Scenario.model_validate(json.loads(scenario.model_dump_json()))
    np.testing.assert_array_equal(again.fleet.height_m, scenario.fleet.height_m)
    assert "count" not in scenario.model_dump()["uavs"]  # the list says it
    assert fleet(count=4).model_dump()["uavs"]["count"] == 4
    assert varied(fleet(tx_power_w=[1, 2]), {"uavs.tx_power_w": [1, 2, 3]}).uavs.count == 3


def test_steps_and_energy_are_each_uavs_own() -> None:
    """By hand: u = 1, batch 8, 6.18 GFLOP forward, twice that backward, 3 iterations."""
    scenario = fleet(count=2, compute_flops=[1e12, 4e12], compute_power_w=[10, 20])
    scenario = varied(scenario, {"workload.split": 1})
    source = steady([1e-9, 1e-9])
    (round_,) = predict(scenario, source, PAPER)
    spans = round_.spans
    for client, flops, power in ((1, 1e12, 10.0), (2, 4e12, 20.0)):
        own = spans[spans["client"] == client]
        took = own["end_s"] - own["start_s"]
        forward_s = 8 * PAPER.client_forward_flops[0] / flops
        np.testing.assert_allclose(took[own["step"] == 1], forward_s, rtol=1e-9)
        sending_s = took[np.isin(own["step"], (2, 6))].sum()
        energy_j = power * 3 * 3 * forward_s + 0.4 * sending_s
        assert round_.energy_j[client - 1] == pytest.approx(energy_j, rel=1e-9)


def test_ns3_flies_each_uav_at_its_height_and_speed() -> None:
    scenario = validate(
        {
            "uavs": {"tx_power_w": 1, "height_m": [15, 25, 120]},
            "mobility": {
                "speed_m_s": [[1, 1], [2, 2], [30, 30]],
                "mean_speed_m_s": [1, 2, 30],
                "speed_deviation_m_s": 0,
            },
        },
        "test",
    )
    with ns3_source(scenario) as source:
        position = source.trace(100).position_m
    assert position is not None
    assert (position[..., 2] == np.array([[15], [25], [120]])).all()
    speed = np.median(np.linalg.norm(np.diff(position, axis=1), axis=2) / 0.1, axis=1)
    np.testing.assert_allclose(speed, [1, 2, 30], rtol=1e-6)
    assert channel_settings(scenario) != channel_settings(fleet(count=3))


def test_the_planner_knows_each_height() -> None:
    """Straight outward at 10 m/s: the forecast follows each UAV's own path loss."""
    scenario = fleet(count=2, height_m=[20, 250], rings_m=[[100, 5000]])
    x = 1000 + np.arange(11) * 1.0
    path = np.stack([np.stack([x, 0 * x, 0 * x + h], axis=1) for h in (20, 250)])
    made = forecast(scenario, ChannelTrace(np.full((2, 11), 1e-9), 0.1, path), 1.0, 60)
    loss_db = -10 * np.log10(made / made[:, :1])
    exponent, above_m = np.array([23.9 - 1.8 * np.log10(20), 20.0]), np.array([-10.0, 220.0])
    near_m, far_m = np.hypot(1010 + 10 * 0.5, above_m), np.hypot(1010 + 10 * 59.5, above_m)
    expected = exponent * np.log10(far_m / near_m)
    np.testing.assert_allclose(loss_db[:, -1], expected, rtol=1e-3)


def test_the_theory_takes_fleets_that_differ() -> None:
    scenario = fleet(
        count=3,
        compute_flops=[1e12, 2e12, 4e12],
        compute_power_w=[8, 16, 32],
        height_m=[20, 30, 40],
    )
    table = claims.run(scenario, steady([1e-9, 2e-9, 3e-9]), PAPER)
    bounds = [row for row in table.rows if row.equation == "(15)"]
    assert bounds
    assert all(row.holds for row in bounds)


def test_an_outline_shows_the_fleet() -> None:
    scenario = fleet(count=2, compute_flops=[1e12, 4e12])
    shown = outline(scenario, steady([1e-9, 1e-9])).fleet
    assert shown["compute_gflops"].tolist() == [1000, 4000]
    assert shown["ring"].tolist() == [3, 3]


@pytest.mark.parametrize(
    ("lte", "shared", "note"),
    [({}, "shared equally", WHILE_ALL_SEND), ({"scheduler": "shares"}, "in shares beta", "")],
)
def test_an_outline_names_the_radio_and_when_its_rates_hold(
    lte: dict[str, Any], shared: str, note: str
) -> None:
    tree = {"uavs": {"tx_power_w": [0.4, 0.4]}, "workload": {"compute": "none"}}
    scenario = validate(tree | {"radio": {"access": "lte", "lte": lte}}, "test")
    shown = outline(scenario, steady([1e-9, 1e-9]))
    assert shown.radio == f"LTE, 100 resource blocks, {shared}, 64QAM, 1 layer"
    assert shown.links_note == note
    shown = outline(fleet(count=2), steady([1e-9, 1e-9]))
    assert (shown.radio, shown.links_note) == ("Shannon's rates, FDMA", "")


def test_an_agents_episodes_fly_one_fleet() -> None:
    scenario = fleet(count=2, compute_flops={"uniform": [1e12, 4e12]})
    given: list[Scenario] = []

    def source(flown: Scenario) -> Replay:
        given.append(flown)
        whole = steady([1e-9, 1e-9]).whole
        return Replay(ChannelTrace(whole.gain, 0.1, np.full((2, whole.slots, 3), 200.0)))

    environment = UavSflEnv(scenario, source=source)
    given.clear()  # It has asked what kind of channel it is.
    environment.reset(seed=5)
    environment.reset(seed=6)
    environment.close()
    assert [flown.seed for flown in given] == [5, 6]
    for flown in given:
        np.testing.assert_array_equal(flown.fleet.compute_flops, scenario.fleet.compute_flops)


def test_one_number_for_all_gives_what_equal_lists_give() -> None:
    one = fleet(count=3)
    many = fleet(tx_power_w=[0.4] * 3, compute_flops=[2.5e12] * 3, height_m=[20.0] * 3)
    source = steady([1e-9, 2e-9, 3e-9])
    assert predict(one, source, PAPER)[0].objective == predict(many, source, PAPER)[0].objective
