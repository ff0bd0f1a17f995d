# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`radio.cells` and `radio.handover`: gains to further base stations, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ns3_scenarios.aerial import free_space_db, two_ray_db
from ns3_scenarios.errors import ChannelError
from ns3_scenarios.rma_av import los_path_loss_db
from ns3_scenarios.trace import ChannelTrace, RateTrace
from orchestrator.emulated.network import check_machine
from orchestrator.engine.plan import fixed_allocation
from orchestrator.engine.radio import describe_radio, radio_access
from orchestrator.rounds.loop import predict
from orchestrator.rounds.ns3_radio import rate_trace, settings_of
from orchestrator.scenario.channel import channel_key, ns3_source, replay
from orchestrator.scenario.loading import validate
from orchestrator.scenario.unused import unused
from testbed.core.errors import InputError
from workloads.costs.profile import PAPER

AT_M = (1200.0, 300.0, 25.0)
ONE = ({"position_m": AT_M},)


def tree_with(cells: Any = ONE, **radio: Any) -> dict[str, Any]:
    return {
        "uavs": {"count": 3, "height_m": 30, "tx_power_w": 0.5},
        "radio": {"access": "lte", "cells": list(cells), **radio},
    }


def scenario_with(cells: Any = ONE, **radio: Any) -> Any:
    return validate(tree_with(cells, **radio), "cells")


def trace_of(scenario: Any, slots: int = 30) -> ChannelTrace:
    with ns3_source(scenario) as source:
        made = source.trace(slots)
    assert isinstance(made, ChannelTrace)
    return made


LOSSES = {
    "rma-av": lambda height_m, far_m: los_path_loss_db(height_m, far_m, 2e9),
    "free-space": lambda height_m, far_m: free_space_db(far_m, 2e9),
    "two-ray": lambda height_m, far_m: two_ray_db(height_m, AT_M[2], far_m, 2e9),
    "uma-av": lambda height_m, far_m: 28 + 22 * np.log10(far_m) + 20 * np.log10(2),
}


@pytest.mark.parametrize("channel", LOSSES)
def test_gains_are_those_of_the_channel_at_the_place_of_each_base_station(channel: str) -> None:
    made = trace_of(scenario_with(channel=channel))
    assert made.position_m is not None
    assert made.gain_cells is not None
    assert made.gain_cells.shape == (1, 3, 30)
    far_m = np.linalg.norm(made.position_m - np.array(AT_M), axis=2)
    expected_db = -LOSSES[channel](made.position_m[..., 2], far_m)
    assert 10 * np.log10(made.gain_cells[0]) == pytest.approx(expected_db, abs=1e-6)
    alone = trace_of(scenario_with((), channel=channel))
    assert np.array_equal(made.gain, alone.gain)
    assert np.array_equal(made.position_m, alone.position_m)
    assert alone.gain_cells is None
    assert alone.served is None


@pytest.mark.parametrize("channel", ["rma-av", "uma-av"])
def test_shadow_fading_of_cells_is_drawn_independently_by_seed(channel: str) -> None:
    there = ({"position_m": (400, 0, 30)}, {"position_m": (400, 0.001, 30)})
    scenario = scenario_with(there, channel=channel, shadow_fading=True)
    made, again = (trace_of(scenario).gain_cells for _ in range(2))
    assert made is not None
    assert again is not None
    assert np.abs(10 * np.log10(made[0] / made[1])).max() > 0.1
    assert np.array_equal(again, made)


@pytest.mark.parametrize("channel", ["rma-av", "uma-av"])
def test_earlier_slots_never_change(channel: str) -> None:
    scenario = scenario_with(channel=channel)
    with ns3_source(scenario) as source:
        source.trace(5)
        source.trace(8)
        grown = source.trace(50).first(50)
    whole = trace_of(scenario, 50)
    assert isinstance(grown, ChannelTrace)
    assert whole.served is not None
    assert grown.served is not None
    assert np.array_equal(grown.gain_cells, whole.gain_cells)
    assert np.array_equal(grown.served.gain, whole.served.gain)
    assert np.array_equal(grown.served.cells, whole.served.cells)


def test_what_determines_cells_determines_the_channel() -> None:
    keys = [
        channel_key(scenario_with(cells, **radio))
        for cells, radio in (
            ((), {}),
            (ONE, {}),
            (({"position_m": AT_M, "tx_power_w": 20},), {}),
            (({"position_m": (1200, 300, 26)},), {}),
            (ONE, {"handover": "none"}),
            (ONE, {"a3_hysteresis_db": 2}),
            (ONE, {"lte": {"noise_figure_db": 5}}),
        )
    ]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("tree", "says"),
    [
        (
            tree_with(access="shannon"),
            r"radio.cells: must be absent where radio.access is not 'lte'",
        ),
        (tree_with(fading="rayleigh"), r"radio.cells: must be absent where radio.fading is not 'n"),
        (
            tree_with([{"position_m": [0, 0, 30]}]),
            r"radio.cells\[0\].position_m: is that of base_station",
        ),
        (tree_with([*ONE, *ONE]), r"radio.cells\[1\].position_m: is that of radio.cells\[0\]"),
        (tree_with([{"position_m": [9500, 0, 30]}]), r"radio.cells\[0\].position_m: is 9500 m"),
        (
            tree_with([{"position_m": [3500, 0, 30]}], channel="umi-av"),
            r"radio.cells\[0\].position_m: is 3500 m .* valid up to 4000 m",
        ),
        (tree_with([{"position_m": [k, 9, 9]} for k in range(16)]), r"radio.cells: .* at most 15"),
        (tree_with([{"tx_power_w": 1}]), r"radio.cells.0.position_m: is missing"),
        (tree_with([{"position_m": [1, 1]}]), r"radio.cells.0.position_m"),
        (tree_with([{"position_m": AT_M, "tx_power_w": -1}]), r"radio.cells.0.tx_power_w"),
        (tree_with([{"position_m": AT_M, "name": "x"}]), r"radio.cells.0.name"),
        (tree_with(handover="a4"), r"radio.handover: .* 'a3' or 'none'"),
        (tree_with(a3_hysteresis_db=1.2), r"radio.a3_hysteresis_db: .* 0.5"),
        (tree_with(a3_hysteresis_db=15.5), r"radio.a3_hysteresis_db: "),
        (tree_with(a3_time_to_trigger_s=0.0005), r"radio.a3_time_to_trigger_s: .* milliseconds"),
        (tree_with(a3_time_to_trigger_s=6), r"radio.a3_time_to_trigger_s: "),
        (
            {
                **tree_with([{"position_m": [500, 0, 200]}]),
                "uavs": {"height_m": 5, "tx_power_w": [1]},
            },
            r"radio.cells\[0\].position_m: must be 10 to 150 m high",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(tree: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says) as refused:
        validate(tree, "cells")
    assert "\n" not in str(refused.value)


def test_keys_without_an_effect_are_said() -> None:
    keys = {"handover": "none", "a3_hysteresis_db": 2.0}
    assert unused(scenario_with((), **keys)) == {
        "radio.cells is empty": ["radio.handover", "radio.a3_hysteresis_db"]
    }
    assert unused(scenario_with(**keys)) == {"radio.handover is 'none'": ["radio.a3_hysteresis_db"]}
    assert unused(scenario_with()) == {}


def test_emulated_links_have_one_cell() -> None:
    with pytest.raises(
        InputError, match=r"^emulation\.air: must be 'ns3' where radio\.cells is given"
    ):
        check_machine(scenario_with(), None)


def test_a_replay_has_the_gains_to_all_base_stations(tmp_path: Path) -> None:
    scenario = scenario_with()
    made = trace_of(scenario)
    assert made.served is not None
    again = replay(scenario, made.replaced(served=None)).whole
    assert isinstance(again, ChannelTrace)
    assert again.served is not None
    assert np.array_equal(again.served.gain, made.served.gain)
    by_position = replay(scenario, made.replaced(served=None, gain_cells=None)).whole
    assert isinstance(by_position, ChannelTrace)
    assert by_position.gain_cells == pytest.approx(made.gain_cells, rel=1e-12)
    with pytest.raises(InputError, match="trace has neither gain_cells nor position"):
        replay(scenario, made.replaced(gain_cells=None, position_m=None))
    two = scenario_with([*ONE, {"position_m": [0, 900, 30]}])
    with pytest.raises(InputError, match="has 2 further base stations, but gain_cells of trace 1"):
        replay(two, made)
    rates = RateTrace(made.gain * 1e12, made.gain * 1e12, slot_s=0.1)
    with pytest.raises(
        InputError, match=r"^radio\.access: must be 'shannon' where the trace has rates"
    ):
        replay(scenario, rates)


def test_a_trace_with_cells_serves_a_scenario_without_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = trace_of(scenario_with()).replaced(served=None)
    whole = replay(scenario_with(()), made, "trace of cells").whole
    assert "gain_cells has no effect; radio.cells is empty" in caplog.text
    assert isinstance(whole, ChannelTrace)
    assert np.array_equal(whole.values, made.gain)


def test_a_flight_beyond_the_range_of_a_further_base_station_is_refused() -> None:
    scenario = scenario_with([{"position_m": [8000, 0, 30]}])
    position_m = np.full((3, 2, 3), 30.0)
    position_m[1, 1, 0] = -2500
    given = ChannelTrace(np.full((3, 2), 1e-9), 10.0, position_m)
    with pytest.raises(ChannelError, match=r"UAV 2 .* 10500 m from radio.cells\[0\] at"):
        replay(scenario, given)


def rounds(scenario: Any, gain: Any, further: Any) -> float:
    given = ChannelTrace(np.tile(gain, 4000), 0.1, gain_cells=np.tile(further, 4000))
    return predict(scenario, replay(scenario, given), PAPER).rounds[0].latency_s


def test_uavs_share_the_band_of_their_own_cell() -> None:
    """Two UAVs in each of two cells that hardly hear each other take as long as two in one."""

    def tree(count: int, cells: Any) -> Any:
        tree = tree_with(cells)
        return validate(
            tree | {"paradigm": "sfl-pp", "uavs": {"count": count, "tx_power_w": 1}}, "cells"
        )

    near, far = np.full((2, 1), 1e-9), np.full((2, 1), 1e-30)
    pair = ChannelTrace(np.tile(near, 4000), 0.1)
    two = tree(2, ())
    alone_s = predict(two, replay(two, pair), PAPER).rounds[0].latency_s
    four = tree(4, ONE)
    apart = np.concatenate([near, far]), np.concatenate([far, near])[None]
    assert rounds(four, *apart) < 1.2 * alone_s
    together = np.concatenate([near, near]), np.concatenate([far, far])[None]
    assert rounds(four, *together) > 1.5 * alone_s


def test_rates_are_shared_by_the_uavs_of_a_cell() -> None:
    scenario = scenario_with()
    near, far = 1e-9, 1e-30
    gain = np.array([[near], [near], [far]])
    given = replay(scenario, ChannelTrace(gain, 0.1, gain_cells=(near + far - gain)[None])).whole
    made = radio_access(scenario, given).link_rates(
        fixed_allocation(scenario), given.values, in_turns=False
    )
    up, down = made.uplink[:, 0], made.gradient[:, 0]
    assert down == pytest.approx([down[2] / 2, down[2] / 2, down[2]])
    assert up == pytest.approx([up[2] / 2, up[2] / 2, up[2]], rel=0.05)


def test_ns3_has_the_cells_of_the_scenario() -> None:
    scenario = scenario_with([{"position_m": [900, 0, 30]}])
    channel = trace_of(scenario, 10).first(10)
    radio = settings_of(scenario, "ns3-lte")
    assert radio is not None
    rates, made = rate_trace(scenario, channel, radio)
    assert isinstance(channel, ChannelTrace)
    assert channel.served is not None
    assert np.array_equal(made.serving_cell, channel.served.cells)
    assert rates.uplink_bps.min() > 1e6
    wifi = settings_of(scenario, "ns3-wifi")
    assert wifi is not None
    with pytest.raises(InputError, match=r"radio.cells: ns3-wifi has one access point"):
        rate_trace(scenario, channel, wifi)


def test_the_radio_is_described_with_its_cells() -> None:
    assert describe_radio(scenario_with()).endswith(", 2 cells, handover by event A3")
    assert describe_radio(scenario_with(handover="none")).endswith(", 2 cells, no handover")
