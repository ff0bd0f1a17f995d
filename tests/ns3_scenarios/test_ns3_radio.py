# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What ns-3's LTE and Wi-Fi deliver to UAVs that all have a backlog."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import assert_ends_with_its_parent

from ns3_scenarios import radio
from ns3_scenarios.errors import ChannelError
from ns3_scenarios.link_curves import link_curves
from ns3_scenarios.radio import Air, LteSettings, WifiSettings, simulate_lte, simulate_wifi
from ns3_scenarios.rma_av import los_path_loss_db
from orchestrator.engine import lte_tables
from orchestrator.engine.lte import UPLINK_MARGIN_DB, Steps, downlink_steps, turn, uplink_steps
from orchestrator.scenario.cells import left_blocks

POWER_W = {3: [1, 0.4, 0.1], 10: [1, 0.4, 0.1, 1, 0.4, 0.1, 1, 0.4, 0.2, 0.1]}
FAR_M = {3: [250, 600, 900], 10: [250, 350, 450, 600, 700, 780, 850, 900, 950, 990]}


def placed(uavs: int, slots: int, *, carrier_hz: float = 2e9, **fields: Any) -> Air:
    """UAVs at these distances all around the base station, 10 m below it, in line of sight."""
    kind = min(FAR_M, key=lambda known: abs(known - uavs))
    far_m = np.resize(np.array(FAR_M[kind], float), uavs)
    angle = 2 * np.pi * np.arange(uavs) / uavs
    place = np.stack([far_m * np.cos(angle), far_m * np.sin(angle), np.full(uavs, -10.0)], axis=1)
    loss_db = los_path_loss_db(np.full(uavs, 20.0), np.hypot(far_m, 10.0), carrier_hz)
    gain = np.tile(10 ** (-loss_db[:, None] / 10), slots)
    air = Air(
        uplink_gain=gain,
        downlink_gain=gain,
        slots=slots,
        slot_s=0.1,
        uplink_power_w=np.resize(np.array(POWER_W[kind], float), uavs),
        downlink_power_w=40.0,
        position_m=np.repeat(place[:, None], slots, axis=1),
        carrier_hz=carrier_hz,
    )
    return replace(air, **fields)


def weaker(air: Air, db: float) -> Air:
    factor = 10 ** (-db / 10)
    return replace(
        air, uplink_gain=air.uplink_gain * factor, downlink_gain=air.downlink_gain * factor
    )


def mbps(made: radio.Delivery) -> Any:
    """Mean goodput in Mbit/s, shape [2, K]."""
    return made.bps.mean(axis=2) / 1e6


def test_three_uavs_get_what_lte_carries_and_no_more() -> None:
    made = simulate_lte(placed(3, 10))
    up, down = mbps(made)
    # 33 of 100 resource blocks each: transport blocks of MCS 28, 28 and 26.
    assert up == pytest.approx([24.416, 24.416, 19.785], rel=2e-3)
    assert down.sum() == pytest.approx(75.16, rel=2e-3)
    assert down == pytest.approx(np.full(3, 25.05), rel=5e-3)
    assert made.mcs[:, :, -1].tolist() == [[28, 28, 26], [28, 28, 28]]
    assert made.resource_blocks[0] == pytest.approx(np.full((3, 10), 33.0))
    assert made.resource_blocks[1].sum(axis=0) == pytest.approx(np.full(10, 100.0))
    assert made.blocks[0] == pytest.approx(np.full((3, 10), 100.0))
    assert made.blocks.sum() == 3 * 1000 + 1000
    assert made.lost_blocks.sum() == 0
    # What IP got is what was sent, but for headers of RLC and PDCP.
    headers = 1 - 8 * made.bytes.sum() / made.block_bits.sum()
    assert 0.002 < headers < 0.005
    assert [*made.silent()] == []


def test_the_committed_link_curves_are_those_of_ns3() -> None:
    found = link_curves()
    assert found == lte_tables._CURVES
    # The least SNR of each CQI, of which published sweeps in steps of 0.05 dB know the next step.
    assert found["least_db"][3][-5:] == pytest.approx([13.6, 15.5, 16.95, 18.9, 19.85], abs=0.05)


def constant(up_db: Any, down_db: Any, blocks: int, slots: int, **fields: Any) -> Air:
    """UAVs with these SNRs over the whole band, [K]; minus infinity: an outage."""
    noise_w = 180e3 * 10 ** ((-174 - 30) / 10) * blocks
    up, down = (10 ** (np.array(each, float) / 10) * noise_w for each in (up_db, down_db))
    return Air(
        *(np.tile(gain[:, None], slots) for gain in (up, down)),
        *(slots, 0.1, np.ones(len(up)), 1.0),
        **fields,
    )


@pytest.mark.parametrize(
    ("blocks", "db", "mcs"),
    [(100, 15.3, 20), (100, -2.5, 2), (25, -2.5, 2), (50, -3.3, 2), (25, -3.3, 0), (6, 9.0, 14)],
)
def test_the_downlink_has_the_rate_of_the_link_curves(blocks: int, db: float, mcs: int) -> None:
    made = simulate_lte(constant([30], [db], blocks, 12, way="down"), LteSettings(blocks))
    assert set(made.mcs[1, 0].tolist()) == {mcs}
    steps = downlink_steps(blocks, None, 1400, 1, "64QAM")
    at = np.searchsorted(steps.least_snr, 10 ** (db / 10), side="right")
    assert steps.mcs[at] == mcs
    # A packet is 2 % of a second of the lowest scheme in 25 blocks.
    assert made.bps[1, 0, 2:].mean() == pytest.approx(steps.bps[blocks, at], rel=0.01, abs=14e3)


def test_all_blocks_of_the_downlink_carry_data() -> None:
    """Groups of two or three resource blocks do not fill 25, 50 or 75."""
    for blocks in (15, 25, 50, 75):
        made = simulate_lte(constant([30], [30], blocks, 4, way="down"), LteSettings(blocks))
        assert made.resource_blocks[1, 0] == pytest.approx(np.full(4, float(blocks)))


def test_a_uav_with_too_little_power_leaves_its_part_unused() -> None:
    """The third one reaches 12 of its 33 blocks with MCS 0; the others have 33, not more."""
    lowest_db = -2.25 + 10 * np.log10(12.5 / 100)
    air = constant([30, 30, lowest_db], [30] * 3, 100, 12, way="up")
    made = simulate_lte(air)
    assert made.resource_blocks[0, :, 4:] == pytest.approx(np.tile([[33.0], [33.0], [12.0]], 8))
    assert set(made.mcs[0, 2].tolist()) == {0}
    steps = uplink_steps(100, UPLINK_MARGIN_DB, 1400)
    assert made.bps[0, 2, 2:].mean() == pytest.approx(steps.bps[12, 1], rel=0.04)


@pytest.mark.parametrize("reached", [3.5, 4.5])
def test_a_uav_that_does_not_reach_four_blocks_has_no_part(reached: float) -> None:
    weak_db = -2.25 + 10 * np.log10(reached / 100)
    made = simulate_lte(constant([30, 30, weak_db], [30] * 3, 100, 8, way="up"))
    part, weak = (50.0, 0.0) if reached < 4 else (33.0, 4.0)
    assert made.resource_blocks[0, :, 3:] == pytest.approx(np.tile([[part], [part], [weak]], 5))


@pytest.mark.parametrize("way", ["up", "both"])
@pytest.mark.parametrize(("uavs", "blocks"), [(3, 100), (4, 6)])
def test_the_others_have_the_part_of_a_uav_in_an_outage(uavs: int, blocks: int, way: str) -> None:
    """They have it after ten grants without an answer, even if no other UAV sends in a TTI. The UAV
    gets it back at once."""
    air = constant([30] * uavs, [30] * uavs, blocks, 14, way="up")
    gain = air.uplink_gain.copy()
    gain[0, 3:11] = 0
    down = gain if way == "both" else air.downlink_gain
    made = simulate_lte(replace(air, uplink_gain=gain, downlink_gain=down), LteSettings(blocks))
    alone = simulate_lte(constant([30] * (uavs - 1), [30] * (uavs - 1), blocks, 6, way="up"))
    if blocks == 6:
        alone = simulate_lte(
            constant([30] * (uavs - 1), [30] * (uavs - 1), 6, 6, way="up"), LteSettings(6)
        )
    there, before = made.bps[0, 1:, 5:11].mean(axis=1), made.bps[0, 1:, 1:3].mean(axis=1)
    assert there == pytest.approx(alone.bps[0, :, 2:].mean(axis=1), rel=0.02)
    assert (there > 1.2 * before).all()
    first = made.bps[0, 1:, 3].sum() / made.bps[0, 1:, 6].sum()
    assert blocks == 6 or first > 0.9
    assert made.bps[0, 0, 12:].mean() > 0.9 * made.bps[0, 0, 1:3].mean()


def test_the_same_settings_give_the_same_bytes() -> None:
    """With blocks that are lost at random."""
    rng = np.random.default_rng(1)
    air = weaker(placed(3, 3), 30)
    fading = rng.exponential(size=(3, 300))
    air = replace(air, uplink_gain=air.uplink_gain[:, :1] * fading, downlink_gain=fading * 1e-13)
    first, second, other = (simulate_lte(replace(air, seed=seed)) for seed in (1, 1, 2))
    assert first.lost_blocks.sum() > 10
    assert first.bps.tobytes() == second.bps.tobytes()
    assert first.bps.tobytes() != other.bps.tobytes()


@pytest.mark.parametrize(
    ("uavs", "blocks", "per_tti"), [(30, 100, 25), (3, 6, 1)], ids=["many", "narrow"]
)
def test_more_uavs_than_a_tti_can_serve_take_turns(uavs: int, blocks: int, per_tti: int) -> None:
    """ns-3's scheduler grants them blocks that are too small for any packet."""
    made = simulate_lte(placed(uavs, 4), LteSettings(resource_blocks=blocks))
    up, _ = mbps(made)
    most, least = up.max(), up.min()
    assert least > 0.95 * most
    assert made.blocks[0].sum(axis=0) == pytest.approx(np.full(4, 100.0 * per_tti), abs=per_tti)
    used = made.resource_blocks[0].sum(axis=0)
    assert (used > 0.95 * (blocks // per_tti) * per_tti).all()
    assert (made.mcs[0] == 28).all()


def model_mbps(steps: Steps, blocks: Sequence[int], mcs: Any) -> Any:
    """What the engine's model says of these numbers of resource blocks, in Mbit/s."""
    at = [int(np.flatnonzero(steps.mcs == each)[-1]) for each in mcs]
    return steps.bps[list(blocks), at] / 1e6


@pytest.mark.parametrize(
    ("blocks", "up", "down", "weaker_db"),
    [
        (100, (50, 33, 17), (17, 50, 33), 0),
        (100, (50, 33, 17), (17, 50, 33), 20),
        (100, (3, 11, 9), (2, 1, 97), 0),
        (50, (30, 15, 5), (5, 15, 30), 0),
        (6, (3, 2, 1), (1, 2, 3), 0),
    ],
)
def test_each_uav_has_its_own_resource_blocks(
    blocks: int, up: Sequence[int], down: Sequence[int], weaker_db: float
) -> None:
    """In both directions, in each TTI, in any number: also in parts of a group."""
    settings = LteSettings(blocks, uplink_blocks=up, downlink_blocks=down)
    made = simulate_lte(weaker(placed(3, 10), weaker_db), settings)
    for way, own, steps in (
        (0, up, uplink_steps(blocks, UPLINK_MARGIN_DB, 1400)),
        (1, down, downlink_steps(blocks, None, 1400, 1, "64QAM")),
    ):
        expected = model_mbps(steps, own, made.mcs[way, :, -1])
        # A packet is 1.6 % of a second of one resource block.
        assert mbps(made)[way] == pytest.approx(expected, rel=4e-3, abs=0.012)
        assert made.resource_blocks[way] == pytest.approx(np.tile(np.array(own)[:, None], 10))
    assert made.lost_blocks.sum() == 0


def test_the_blocks_of_a_silent_uav_stay_unused() -> None:
    air = placed(3, 10)
    gain = air.uplink_gain.copy()
    gain[0, 2:] = 0
    made = simulate_lte(replace(air, uplink_gain=gain), LteSettings(uplink_blocks=(50, 33, 17)))
    assert made.resource_blocks[0, 1:] == pytest.approx(np.tile([[33.0], [17.0]], 10))


def test_lost_blocks_of_own_resource_blocks_are_sent_again() -> None:
    rng = np.random.default_rng(1)
    fading = rng.exponential(size=(3, 1000)).repeat(10, axis=1)
    air = weaker(placed(3, 10), 20)
    up, down = air.uplink_gain[:, :1] * fading, air.downlink_gain[:, :1] * fading
    own = LteSettings(uplink_blocks=(50, 33, 17), downlink_blocks=(17, 50, 33))
    made = simulate_lte(replace(air, uplink_gain=up, downlink_gain=down), own)
    lost = made.lost_blocks.sum(axis=(1, 2)) / made.blocks.sum(axis=(1, 2))
    assert ((lost > 0.02) & (lost < 0.3)).all()
    # Nearly all that was sent arrives in the end, once: 7 of 8 lost blocks need no third time.
    carried = 8 * made.bytes.sum(axis=(1, 2)) / made.block_bits.sum(axis=(1, 2))
    assert carried == pytest.approx(1 - lost, abs=0.05)


def test_the_downlink_of_a_higher_priority_is_served_first(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = LteSettings(priority_by_dscp=True)
    for dscp, share in (
        ((3, 2, 1), (1, 0, 0)),
        ((1, 63, 63), (0, 0.5, 0.5)),
        ((0, 0, 5), (0, 0, 1)),
    ):
        up, down = mbps(simulate_lte(placed(3, 5), cell, dscp=dscp))
        assert down == pytest.approx(75.17 * np.array(share), rel=0.01)
        assert up == pytest.approx([24.416, 24.416, 19.785], rel=3e-3)
    # Without priorities, DSCPs mean nothing.
    assert mbps(simulate_lte(placed(3, 5), dscp=(3, 2, 1)))[1] == pytest.approx(25.05, rel=0.01)
    # The first has less to send than a TTI carries: the next ones share what it leaves.
    monkeypatch.setattr(radio, "LTE_WINDOW_BYTES", 4_000)
    down = mbps(simulate_lte(placed(3, 5), cell, dscp=(9, 8, 7)))[1]
    assert down[:2] == pytest.approx(33.6, rel=0.01)  # three packets per TTI fill their windows
    assert 1 < down[2] < 75.17 - 2 * 33.6


@pytest.mark.full
@pytest.mark.parametrize("uavs", [26, 33, 50])
def test_many_uavs_share_the_uplink_equally(uavs: int) -> None:
    up, down = mbps(simulate_lte(placed(uavs, 10)))
    assert up.sum() == pytest.approx(73.92, rel=0.01)
    assert up == pytest.approx(np.full(uavs, 73.92 / uavs), rel=0.02)
    assert down.sum() == pytest.approx(75.3, rel=0.01)


@pytest.mark.parametrize("blocks", [25, 100])
def test_background_users_have_their_share_of_both_directions(blocks: int) -> None:
    """The rates are those of the model: whole blocks of the uplink, and TTIs of the downlink."""
    load = 0.3
    made = simulate_lte(placed(3, 10), LteSettings(blocks, background_load=load))
    steps = (
        uplink_steps(blocks, UPLINK_MARGIN_DB, 1400),
        downlink_steps(blocks, None, 1400, 1, "64QAM"),
    )
    # The best scheme of two UAVs near enough; the third is weaker in the uplink.
    each = left_blocks(blocks, load) // 3
    assert mbps(made)[0, :1] == pytest.approx(steps[0].bps[each, -1:] / 1e6, rel=0.01)
    assert made.resource_blocks[0, :, 3:].mean(axis=1) == pytest.approx(np.full(3, each), rel=0.01)
    down = (1 - load) * steps[1].bps[blocks, -1] / 1e6
    assert mbps(made)[1].sum() == pytest.approx(down, rel=0.01)


def test_background_users_with_a_burst_share_equally_with_uavs() -> None:
    """A single user who always has one, beside two UAVs: a third of the cell."""
    made = simulate_lte(placed(2, 8), LteSettings(15, background_load=0.95, background_users=1))
    blocks = made.resource_blocks[:, :, 3:].sum(axis=1).mean(axis=1)
    assert blocks == pytest.approx([10, 10], rel=0.03)


def test_bursts_of_background_users_leave_the_rest_on_average() -> None:
    """4 s with 100 bursts in each direction."""
    cell = LteSettings(15, background_load=0.5, background_users=8)
    made = simulate_lte(placed(2, 40), cell)
    blocks = made.resource_blocks.sum(axis=1)
    assert blocks.mean() == pytest.approx(7.5, abs=1.5)
    assert (blocks.std(axis=1) > 1).all()
    other = simulate_lte(placed(2, 3, seed=7), cell)
    assert other.resource_blocks.tobytes() != made.resource_blocks[..., :3].tobytes()


@pytest.mark.parametrize("grants", [1, 3])
def test_no_more_uavs_than_the_control_channel_allows_get_a_tti(grants: int) -> None:
    made = simulate_lte(placed(8, 6), LteSettings(grants_per_tti=grants))
    assert (made.blocks.sum(axis=1)[:, 2:] <= 100 * grants).all()
    at_a_time, part = turn(100, 8, grants)
    assert (at_a_time, part) == (100 // grants, grants / 8)
    assert made.resource_blocks[0, :, 2:].mean() == pytest.approx(at_a_time * part, rel=0.01)
    # The downlink loses nothing.
    assert mbps(made)[1].sum() == pytest.approx(75.2, rel=0.01)


def test_the_uplink_is_measured_on_what_a_uav_sends() -> None:
    """The sounding signal, spread over the whole band, would say 10 dB less for ten UAVs."""
    made = simulate_lte(weaker(placed(10, 5), 20))
    assert made.mcs[0, :, -1].tolist() == [28, 28, 18, 26, 20, 12, 22, 18, 12, 8]
    assert mbps(made)[0].sum() == pytest.approx(42.2, rel=0.01)
    assert made.lost_blocks.sum() == 0


def test_gains_are_those_of_direction_uav_and_time() -> None:
    """Each is weak in another slot, in one direction."""
    air = placed(3, 8)
    up, down = air.uplink_gain.copy(), air.downlink_gain.copy()
    up[0, 4:] *= 1e-3
    down[1, 2:] *= 1e-5
    made = simulate_lte(replace(air, uplink_gain=up, downlink_gain=down))
    assert (made.mcs[0, 0] < 28).tolist() == [False] * 4 + [True] * 4
    after = [*range(2), *range(3, 8)]  # in slot 2, the scheduler gives it few blocks at first
    assert (made.mcs[1, 1, after] < 28).tolist() == [False] * 2 + [True] * 5
    assert (made.mcs[0, 1] == 28).all()
    assert (made.mcs[1, 0] == 28).all()
    assert (made.mcs[:, 2] == np.array([[26], [28]])).all()


def test_gains_may_change_within_a_slot() -> None:
    air = placed(3, 6)
    gain = np.repeat(air.uplink_gain[:, :1], 600, axis=1)
    half = gain.copy()
    half[1].reshape(6, 100)[:, 50:] = 0
    made = simulate_lte(replace(air, uplink_gain=half, downlink_gain=gain))
    slots = made.bps[0, 1, 1:] / 1e6
    assert (slots > 5).all()
    assert (slots < 0.55 * 24.4).all()
    # The others have half of its part each, from some TTIs after it has fallen silent.
    more = made.bps[0, 0, 1:] / 24.4e6 - 1
    assert (more > 0.15).all()
    assert (more < 0.25).all()


def test_after_an_outage_a_uav_sends_at_once() -> None:
    """ns-3 would leave it out for a second, until its measurement of 0 expires."""
    air = placed(3, 8)
    gain = air.uplink_gain.copy()
    gain[0, 2:4] = 0
    made = simulate_lte(replace(air, uplink_gain=gain, downlink_gain=gain))
    up = made.bps[0, 0] / 1e6
    assert up[2:4] == pytest.approx([0, 0])
    assert up[4] > 18
    assert up[5:] == pytest.approx(np.full(3, 24.4), rel=0.01)
    assert made.lost_blocks[0, 0, 2] > 0
    assert made.mcs[0, 0, 6] == 28


def test_a_uav_comes_back_from_a_long_outage() -> None:
    """Neither end has given up the connection after 2.5 s."""
    gain = np.full((2, 32), 1e-9)
    gain[0, 2:27] = 0
    made = simulate_lte(Air(gain, gain, 32, 0.1, np.ones(2), 40.0))
    assert (made.bps[:, 0, 5:27] == 0).all()
    assert (made.bps[:, 0, 29:] > 20e6).all()


def test_noise_interference_and_antennas_are_decibels_of_the_signal() -> None:
    air = placed(3, 2)
    noisy = LteSettings(noise_figure_db=7, interference_margin_db=9, antenna_gain_db=3)
    made = simulate_lte(replace(air, noise_dbm_per_hz=-169), noisy)
    expected = simulate_lte(weaker(air, 18))
    assert made.bps.tobytes() == expected.bps.tobytes()
    assert mbps(made)[0].sum() < 60


def test_powers_are_those_of_uavs_and_base_station() -> None:
    air = weaker(placed(3, 2), 30)
    stronger = replace(air, uplink_power_w=10 * air.uplink_power_w, downlink_power_w=4000.0)
    made = simulate_lte(stronger)
    assert (made.mcs[0] >= simulate_lte(air).mcs[0] + 4).all()
    down = simulate_lte(replace(air, downlink_power_w=0.4)).mcs[1]
    assert (down + 4 <= made.mcs[1]).all()


def test_a_uav_without_a_channel_gets_nothing_and_is_named() -> None:
    air = placed(3, 2)
    gain = air.uplink_gain.copy()
    gain[1] = 0
    made = simulate_lte(replace(air, uplink_gain=gain))
    (line,) = made.silent()
    assert line == (
        "UAV 2: nothing arrived in the uplink: its channel is too weak, -400.0 dB at the end"
    )
    assert mbps(made)[0, 0] > 24


def test_uavs_that_do_not_attach_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(radio, "ATTACH_S", 0.01)
    with pytest.raises(ChannelError, match=r"^ns-3's LTE: did not attach .* 0.01 s .*: UAV 1, UAV"):
        simulate_lte(placed(3, 2))


def test_an_abort_of_ns3_is_one_line_and_leaves_no_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(radio, "RESOURCE_BLOCKS", (7,))
    started = []

    class Noted(radio.Child):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            started.append(self.process)

    monkeypatch.setattr(radio, "Child", Noted)
    with pytest.raises(ChannelError) as error:
        simulate_lte(placed(3, 2), LteSettings(resource_blocks=7))
    assert str(error.value).startswith("ns-3's process died (SIG")
    assert "invalid bandwidth" in str(error.value).lower()
    assert "\n" not in str(error.value)
    assert started[0].poll() is not None


def test_an_interrupt_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    class Noted(radio.Child):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            started.append(self.process)

    def interrupted(done: int) -> None:
        assert done == 1
        raise KeyboardInterrupt

    monkeypatch.setattr(radio, "Child", Noted)
    with pytest.raises(KeyboardInterrupt):
        simulate_lte(placed(3, 50), progress=interrupted)
    assert started[0].poll() is not None


ORPHANAGE = """
import os, signal, sys, time
import numpy as np
from ns3_scenarios import radio
class Noted(radio.Child):
    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        self.pid = self.process.pid
        noted.append(self)
noted = []
radio.Child = Noted
gain = np.full((3, 10000), 1e-9)
def progress(done):
    if done == 2:
        sibling = os.fork() if "forked" in sys.argv else 0
        if "forked" in sys.argv and not sibling:
            time.sleep(60)  # holds the pipes open
        print(noted[0].pid, sibling, flush=True)
radio.simulate_lte(radio.Air(gain, gain, 10000, 0.1, np.ones(3), 40.0), progress=progress)
"""


@pytest.mark.parametrize("how", ["busy", "forked"])
def test_the_program_never_outlives_its_parent(how: str) -> None:
    assert_ends_with_its_parent(ORPHANAGE, how)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (LteSettings(resource_blocks=30), "resource_blocks must be one of 6, 15, 25, 50, 75, 100"),
        (LteSettings(uplink_blocks=(50, 50)), r"uplink_blocks must have shape \[3\], at least 1"),
        (LteSettings(uplink_blocks=(50, 50, 0)), "uplink_blocks must have .*, at least 1 each"),
        (LteSettings(25, downlink_blocks=(9, 9, 8)), "downlink_blocks .* at most 25 together"),
        (WifiSettings("b"), "standard must be one of n, ac, ax, not b"),
        (WifiSettings("n", 80), "width_mhz must be one of 20, 40 for 802.11n, not 80"),
    ],
)
def test_settings_that_ns3_does_not_have_are_refused(settings: Any, says: str) -> None:
    simulate: Any = simulate_lte if isinstance(settings, LteSettings) else simulate_wifi
    with pytest.raises(ValueError, match=says):
        simulate(placed(3, 2), settings)


@pytest.mark.parametrize("dscp", [(1, 2), (0, 0, 64), (0, 0, -1)])
def test_codepoints_that_no_packet_has_are_refused(dscp: Sequence[int]) -> None:
    with pytest.raises(ValueError, match=r"^dscp must have shape \[3\], from 0 to 63"):
        simulate_lte(placed(3, 2), dscp=dscp)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"uplink_gain": np.full((3, 3), 1e-9)}, "downlink_gain must have shape"),
        ({"downlink_gain": np.full((3, 2), -90.0)}, "downlink_gain must be linear, from 0 to 1"),
        ({"downlink_gain": np.full((3, 2), np.nan)}, "downlink_gain must be linear, from 0 to 1"),
        ({"slots": 3, "position_m": None}, "uplink_gain has 2 values for 3 slots"),
        ({"slots": 0, "position_m": None}, "uplink_gain has 2 values for 0 slots"),
        ({"slot_s": 0.0}, "slot_s must give each gain at least 1e-06 s"),
        ({"uplink_power_w": np.ones(2)}, r"uplink_power_w must have shape \[3\]"),
        ({"uplink_power_w": np.array([1.0, 0, 1])}, "must be positive"),
        ({"downlink_power_w": np.inf}, "must be positive"),
        ({"position_m": np.zeros((3, 1, 3))}, r"position_m must be finite, of shape \[3, 2, 3\]"),
    ],
)
def test_a_channel_that_cannot_be_is_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        replace(placed(3, 2), **fields)


def test_a_program_that_may_not_run_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / 'p"é'
    program.touch(0o600)
    monkeypatch.setattr(radio.build, "library", lambda _: program)
    with pytest.raises(ChannelError, match=r"died \(status 1\): .*é: Permission denied$"):
        simulate_lte(placed(3, 1))


def test_the_program_may_be_in_a_folder_of_any_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / 'a "folder" of André' / "radio"
    program.parent.mkdir()
    program.symlink_to(radio.build.library("radio"))
    monkeypatch.setattr(radio.build, "library", lambda _: program)
    assert mbps(simulate_lte(placed(3, 1)))[0].sum() > 60


def test_more_uavs_than_ns3_can_sound_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 320 UAVs"):
        simulate_lte(placed(321, 1))


def test_wifi_without_positions_is_refused() -> None:
    with pytest.raises(ValueError, match="needs the positions"):
        simulate_wifi(replace(placed(3, 1), position_m=None))


def wifi_air(uavs: int, slots: int, power_w: float | None = None) -> Air:
    air = placed(uavs, slots, carrier_hz=2.4e9, downlink_power_w=1.0)
    return air if power_w is None else replace(air, uplink_power_w=np.full(uavs, power_w))


def test_wifi_has_the_same_bytes_for_the_same_seed() -> None:
    air = wifi_air(3, 5, 1.0)
    first, second, other = (simulate_wifi(replace(air, seed=seed)) for seed in (1, 1, 2))
    assert first.bps.tobytes() == second.bps.tobytes()
    assert first.bps.tobytes() != other.bps.tobytes()
    assert 35 < mbps(first).sum() < 72.2  # the rate of its fastest frames
    assert (mbps(first)[0] > 0.5).all()


def test_a_uav_that_the_access_point_does_not_hear_is_explained() -> None:
    """0.1 W at 900 m arrive at -83.7 dBm: a receiver detects no preamble below -82 dBm."""
    made = simulate_wifi(wifi_air(3, 3))
    (line,) = made.silent()
    assert line.startswith(
        "UAV 3: nothing arrived in the uplink and the downlink: it is not associated: it receives "
        "beacons, but the access point does not receive its requests; 0 of "
    )
    assert "PREAMBLE_DETECT_FAILURE" in line
    assert "-83.7 dBm" in line
    heard = simulate_wifi(wifi_air(3, 10), WifiSettings(antenna_gain_db=6))
    assert (mbps(heard)[:, 2] > 1).all()


def test_a_uav_that_does_not_hear_the_access_point_is_explained() -> None:
    air = wifi_air(3, 2, 1.0)
    gain = air.downlink_gain.copy()
    gain[1] = 1e-13
    (line,) = simulate_wifi(replace(air, downlink_gain=gain)).silent()
    assert line.startswith(
        "UAV 2: nothing arrived in the uplink and the downlink: it is not associated: it receives "
        "no beacon of the access point (they arrive at -100.0 dBm"
    )


def test_a_uav_that_no_longer_hears_the_access_point_is_explained() -> None:
    """It associates on the channel of slot 0, and is gone from slot 1 on."""
    gain = np.full((1, 20), 1e-14)
    gain[0, 0] = 1e-8
    air = Air(gain, gain, 20, 0.1, np.ones(1), 1.0, position_m=np.full((1, 20, 3), 50.0))
    made = simulate_wifi(air)
    assert made.bytes[..., 0].all()
    assert made.bytes[..., 2:].sum() == 0
    why = replace(made, bytes=made.bytes[..., 2:]).silent()
    assert "it is not associated: it receives no beacon of the access point (" in next(why)


def test_an_associated_uav_of_a_busy_channel_is_explained() -> None:
    made = simulate_wifi(wifi_air(10, 2, 1.0))
    lines = [*made.silent()]
    assert lines
    assert all("it is associated" in line for line in lines)
    assert any("the access point did not get to send" in line for line in lines)


def test_uavs_that_do_not_hear_each_other_collide_and_rts_helps() -> None:
    """Two UAVs of the same channel to the base station, next to each other or 4 km apart."""
    near = np.zeros((2, 10, 3))
    near[0, :, 0], near[1, :, 0] = 900, 905
    far = near.copy()
    far[0, :, 0], far[1, :, 0] = -2000, 2000
    gain = np.full((2, 10), 10**-8.5)
    common = {"slots": 10, "slot_s": 0.1, "uplink_power_w": np.ones(2), "downlink_power_w": 1e-3}
    up = {
        (name, rts): mbps(
            simulate_wifi(
                Air(gain, 1e3 * gain, position_m=place, carrier_hz=5e9, **common),
                WifiSettings(rts=rts),
            )
        )[0].sum()
        for name, place in (("near", near), ("far", far))
        for rts in (False, True)
    }
    assert up["far", False] < 0.7 * up["near", False]
    assert up["far", True] > 1.15 * up["far", False]


@pytest.mark.parametrize(
    ("settings", "at_least", "at_most"),
    [
        (WifiSettings("n", 40), 70, 150),
        (WifiSettings("ac", 80), 200, 433.3),
        (WifiSettings("ax", 80), 250, 600.5),
    ],
)
def test_standards_and_widths_have_their_rates(
    settings: WifiSettings, at_least: float, at_most: float
) -> None:
    gain = np.full((1, 2), 1e-6)
    place = np.full((1, 2, 3), 50.0)
    air = Air(gain, gain, 2, 0.1, np.ones(1), 1.0, position_m=place)
    assert at_least < mbps(simulate_wifi(air, settings)).sum() < at_most


def test_wifi_reaches_as_far_as_its_signal() -> None:
    """The way there and back takes longer than a slot time of 802.11."""
    gain = np.full((1, 3), 10**-8.5)
    place = np.tile([5000.0, 0.0, 0.0], (1, 3, 1))
    made = simulate_wifi(Air(gain, gain, 3, 0.1, np.ones(1), 1.0, position_m=place))
    assert (mbps(made) > 10).all()


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_backlog_may_be_in_one_direction(way: Any) -> None:
    """Nothing is sent in the other, which no line explains then."""
    made = simulate_wifi(replace(wifi_air(3, 5, 1.0), way=way))
    sent = mbps(made).sum(axis=1)
    sends = 0 if way == "up" else 1
    assert sent[sends] > 40
    assert sent[1 - sends] == 0
    assert [*made.silent()] == []


def test_a_uav_that_loses_its_connection_has_it_again_when_it_is_back() -> None:
    """It is gone from 1 s to 4 s; the access point serves the other one as soon as that one
    has missed 10 beacons."""
    gain = np.full((2, 60), 1e-8)
    gain[0, 10:40] = 1e-16
    place = np.full((2, 60, 3), 50.0)
    place[1, :, 0] += 10
    made = simulate_wifi(Air(gain, gain, 60, 0.1, np.ones(2), 1.0, position_m=place, seed=1))
    bps = made.bps / 1e6
    there, gone, back = slice(0, 9), slice(24, 40), slice(46, 60)
    assert (bps[:, :, there].mean(axis=2) > 3).all()
    assert (bps[:, 0, gone] == 0).all()
    assert (bps[:, 0, back].mean(axis=1) > 3).all()
    assert bps[1, 1, gone].mean() > 1.2 * bps[1, 1, there].mean()
    assert (bps[:, 1, back].mean(axis=1) > 3).all()


def test_uavs_collide_while_they_do_not_hear_each_other() -> None:
    """Both are always as far from the access point, and in the second half 4 km apart."""
    gain, place = np.full((2, 40), 10**-8.5), np.zeros((2, 40, 3))
    place[:, :, 0] = 2000
    place[1, 20:, 0] = -2000
    air = Air(gain, 1e3 * gain, 40, 0.1, np.ones(2), 1e-3, position_m=place, carrier_hz=5e9)
    up = simulate_wifi(air).bps[0].sum(axis=0)
    assert up[20:].mean() < 0.8 * up[:20].mean()
