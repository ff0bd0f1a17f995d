# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Resource blocks and schemes of LTE links in each slot, from the steps of a round."""

import numpy as np
import pytest
from small_scenario import TREE

from ns3_scenarios.trace import ChannelTrace, Replay, TwoWay
from orchestrator.analysis import resource_blocks as module
from orchestrator.analysis.resource_blocks import resource_blocks
from orchestrator.engine.lte import Lte
from orchestrator.engine.plan import Allocation, fixed_allocation
from orchestrator.rounds.loop import predict
from orchestrator.scenario.loading import validate
from orchestrator.scenario.profiles import profile_of
from testbed.core.timeline import CA, CM, SG, SM, SPAN, Round

STRONG = 1e-8


def cell(uavs: int = 3, **lte: object) -> Lte:
    tree = {"uavs": {"tx_power_w": [1.0] * uavs}, "radio": {"access": "lte", "lte": lte}}
    return Lte.of(validate(tree, "test"))


def a_round(*steps: tuple[int, int, float, float], index: int = 0) -> Round:
    """A round with these steps: client, step, start and end."""
    spans = np.array([(k, 1, step, *times, 1) for k, step, *times in steps], SPAN)
    start_s = float(spans["start_s"].min())
    latency_s = float(spans["end_s"].max()) - start_s
    return Round(index, "cpsfl", 2, start_s, latency_s, np.zeros(3), 0.0, spans)


def shares_of(*beta: float) -> Allocation:
    each = np.array(beta)
    return Allocation(2, each, each, each)


def used(round_, radio, gain, shares=None, *, in_turns=True, slots=10):
    """By client, direction and slot: activity, resource blocks, scheme."""
    if not isinstance(gain, TwoWay):
        gain = np.repeat(np.array(gain, float)[:, None], slots, axis=1)
    shares = shares or shares_of(*np.full(len(radio.uplink_power_w), 1 / 3))
    table = resource_blocks(round_, radio, gain, 0.1, shares, in_turns=in_turns)
    assert list(table.columns) == list(module.COLUMNS)
    assert (table["round"] == round_.index).all()
    assert table["time_s"].to_numpy() == pytest.approx(0.1 * table["slot"].to_numpy())
    keys = zip(table["client"], table["direction"], table["slot"], strict=True)
    values = table[["active_s", "resource_blocks", "mcs"]].round(6).itertuples(index=False)
    found = dict(zip(keys, map(tuple, values), strict=True))
    assert len(found) == len(table)
    return found


def uplink_gain(radio: Lte, snr_db: float, blocks: int) -> float:
    """The gain with which a UAV that sends in so many blocks has this signal-to-noise ratio."""
    return float(10 ** (snr_db / 10) * 180e3 * blocks * radio.noise_w_per_hz)


def test_active_uplinks_divide_the_blocks_and_one_in_an_outage_is_not_counted() -> None:
    round_ = a_round((1, CA, 0.0, 0.25), (2, CA, 0.1, 0.2), (3, CM, 0.0, 0.3), index=4)
    assert used(round_, cell(), [STRONG, STRONG, 0.0]) == {
        (1, "up", 0): (0.1, 100, 28),
        (1, "up", 1): (0.1, 50, 28),
        (1, "up", 2): (0.05, 50, 28),
        (2, "up", 1): (0.1, 50, 28),
        **{(3, "up", slot): (0.1, 0, -1) for slot in range(3)},
    }


def test_the_scheme_is_that_of_most_of_the_slot() -> None:
    """With 15.5 dB in each of 100 blocks a UAV has 18.5 dB in 50 of them: CQI 10 and CQI 11."""
    radio = cell()
    gain = [uplink_gain(radio, 15.5, 100), STRONG, STRONG]
    # UAV 1 is alone for 60 % of slot 0, and for 40 % of slot 1.
    round_ = a_round((1, CA, 0.0, 0.2), (2, CA, 0.06, 0.16))
    found = used(round_, radio, gain)
    assert found[1, "up", 0] == (0.1, 80, 18)
    assert found[1, "up", 1] == (0.1, 70, 20)
    assert found[2, "up", 0] == (0.04, 20, 28)


def test_a_weak_uav_sends_in_as_many_blocks_as_its_power_reaches() -> None:
    """MCS 0 begins above -2.25 dB, which is reported as -2.125 dB: CQI 1 needs -2.18 dB."""
    radio = cell()
    gain = [uplink_gain(radio, -2.25, 40) * 1.001, STRONG, STRONG]
    assert used(a_round((1, CA, 0.0, 0.1)), radio, gain) == {(1, "up", 0): (0.1, 40, 0)}


def test_more_uavs_than_resource_blocks_allow_take_turns() -> None:
    """In a TTI, as many UAVs as 100 blocks allow have the least number of blocks each."""
    mean = 4 * (100 // 4) / 40
    round_ = a_round(*((k, CA, 0.0, 0.1) for k in range(1, 41)))
    found = used(round_, cell(40), [STRONG] * 40, shares_of(*[1 / 40] * 40))
    assert set(found.values()) == {(0.1, mean, 28)}


@pytest.mark.parametrize("in_turns", [True, False])
def test_gradients_divide_the_time_and_a_broadcast_has_the_cell(in_turns: bool) -> None:
    round_ = a_round(*((k, SM, 0.0, 0.1) for k in (1, 2, 3)), *((k, SG, 0.1, 0.2) for k in (1, 2)))
    found = used(round_, cell(), [STRONG, STRONG, STRONG], in_turns=in_turns)
    assert found == {
        **{(k, "down", 0): (0.1, 100, 28) for k in (1, 2, 3)},
        **{(k, "down", 1): (0.1, 100 if in_turns else 50, 28) for k in (1, 2)},
    }


def test_a_broadcast_and_a_gradient_in_one_slot_are_one_row() -> None:
    round_ = a_round((1, SM, 0.0, 0.02), (1, SG, 0.05, 0.08), (2, SG, 0.05, 0.1))
    found = used(round_, cell(), [STRONG] * 3, in_turns=False)
    assert found[1, "down", 0] == (0.05, 20 + 15, 28)


def test_shares_are_fixed_whoever_is_active() -> None:
    round_ = a_round((1, CA, 0.0, 0.1), (2, CA, 0.05, 0.1), (1, SG, 0.1, 0.2), (3, SG, 0.1, 0.2))
    shares = shares_of(0.5, 0.3, 0.2)
    found = used(round_, cell(scheduler="shares"), [STRONG] * 3, shares, in_turns=False)
    assert found == {
        (1, "up", 0): (0.1, 50, 28),
        (2, "up", 0): (0.05, 15, 28),
        (1, "down", 1): (0.1, 50, 28),
        (3, "down", 1): (0.1, 20, 28),
    }


def test_fading_gives_each_block_of_a_slot_its_own_scheme() -> None:
    powers = np.ones((2, 3, 2, 4), np.float32)
    powers[0, 0, 0, :1] = powers[0, 0, 1, :3] = powers[1, 0, 0, :] = 0.0
    gain = TwoWay(np.full((2, 3, 2), STRONG), powers)
    round_ = a_round((1, CA, 0.0, 0.2), (1, SG, 0.0, 0.1), (2, SG, 0.0, 0.1))
    assert used(round_, cell(), gain, in_turns=False) == {
        (1, "up", 0): (0.1, 75, 28),
        (1, "up", 1): (0.1, 25, -1),
        (1, "down", 0): (0.1, 0, -1),
        (2, "down", 0): (0.1, 100, 28),
    }


def test_two_layers_are_named() -> None:
    radio = cell(layers=2)
    gain = np.full((3, 1), STRONG)
    round_ = a_round((1, SG, 0.0, 0.1), (1, CA, 0.0, 0.1))
    table = resource_blocks(round_, radio, gain, 0.1, shares_of(1, 1, 1), in_turns=True)
    assert dict(zip(table["direction"], table["layers"], strict=True)) == {"up": 1, "down": 2}


@pytest.mark.parametrize("scheduler", ["equal", "shares"])
@pytest.mark.parametrize("name", ["cpsfl", "pipesfl"])
def test_rates_of_the_active_links_carry_what_was_sent(name: str, scheduler: str) -> None:
    """The integral over the parts of slots gives the bytes of each step of a predicted round."""
    lte = {"scheduler": scheduler, "interference_margin_db": 20}
    radio = {"access": "lte", "lte": lte, "uplink_bandwidth_hz": 5e6, "downlink_bandwidth_hz": 5e6}
    scenario = validate(TREE | {"radio": radio, "paradigm": name}, "test")
    gain = 10 ** np.random.default_rng(3).uniform(-10.5, -9, (3, 400))
    gain[1, ::5] = 0.0
    (round_,) = predict(scenario, Replay(ChannelTrace(gain, 0.1)), profile_of(scenario), rounds=1)
    lte_cell, shares = Lte.of(scenario), fixed_allocation(scenario)
    in_turns = name == "cpsfl"
    for steps, rate in (((CA, CM), "uplink"), ((SG,), "gradient")):
        lone = getattr(lte_cell.link_rates(shares, gain, in_turns=in_turns), rate)
        parts = module._activity(round_, steps, lone > 0, 0, 0.1)
        bits = np.zeros(3)
        for client, slot, seconds, sharing in zip(*parts, strict=True):
            at = gain[:, slot : slot + 1]
            given = lte_cell.link_rates(shares, at, in_turns=in_turns, active=int(sharing))
            bits[client] += seconds * getattr(given, rate)[client, 0]
        spans = round_.spans[np.isin(round_.spans["step"], steps)]
        sent = 8 * np.bincount(spans["client"] - 1, spans["bytes"], 3)
        assert bits == pytest.approx(sent, rel=1e-6)
