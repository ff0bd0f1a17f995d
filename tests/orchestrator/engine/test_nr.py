# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""5G NR as a rate model: by hand, against a second implementation, and what it refuses."""

import itertools
import math

import numpy as np
import pytest
from engine_cases import (
    EVERY,
    EVERY_COMBINATION,
    assert_equal_to_reference,
    quick,
    random_faults,
    random_nr_case,
)
from engine_shim import shared_bps
from reference_engine import Nr as Reference
from reference_engine import in_range

from ns3_scenarios.trace import TwoWay, both_ways
from orchestrator.engine.links import impairments_of
from orchestrator.engine.nr import Nr
from orchestrator.engine.plan import Allocation, fixed_allocation
from orchestrator.engine.radio import check_shares, of_gains
from orchestrator.engine.slot_impairments import DOWN, UP
from orchestrator.engine.tcp_model import tcp_model_of
from orchestrator.rounds import simulation
from orchestrator.scenario.channel import fading_of
from orchestrator.scenario.duplex import idle_delays_s
from orchestrator.scenario.loading import validate
from testbed.core.errors import InputError
from testbed.core.paradigm import paradigm


def scenario(clients=3, mhz=20, more=None, **nr):
    bands = {"uplink_bandwidth_hz": 1e6 * mhz, "downlink_bandwidth_hz": 1e6 * mhz}
    radio = {"access": "nr", "nr": nr} | bands
    return validate(
        {"uavs": {"tx_power_w": [1.0] * clients}} | (more or {}) | {"radio": radio}, "test"
    )


def equal(clients):
    return Allocation(1, *[np.full(clients, 1 / clients)] * 3)


# --- by hand -------------------------------------------------------------------------------------


@pytest.mark.parametrize("block_size", ["lena", "3gpp"])
@pytest.mark.parametrize("modulation", ["64QAM", "256QAM"])
@pytest.mark.parametrize("spacing_khz", [15, 30, 60])
def test_more_signal_and_more_blocks_never_carry_less(block_size, modulation, spacing_khz):
    radio = Nr.of(
        scenario(
            block_size=block_size, highest_modulation=modulation, subcarrier_spacing_khz=spacing_khz
        )
    )
    for steps in radio.steps:
        assert (np.diff(steps.least_snr) >= 0).all()  # 5G-LENA's MCS 16 and 17 have one
        assert (np.diff(steps.bps[-1]) > 0).all()
        assert (np.diff(steps.bps, axis=0) >= 0).all()
        assert steps.mcs[0] == -1
        assert steps.mcs[-1] == {"64QAM": 28, "256QAM": 27}[modulation]


@pytest.mark.parametrize(
    ("direction", "block_size", "least_db"),
    [
        # CQI 1 has an efficiency of 0.1523 bit/s per hertz: 8.2 dB above Shannon's limit, -1.3 dB.
        *((way, "3gpp", 8.197 + 10 * math.log10(2 ** (156 / 1024) - 1)) for way in (UP, DOWN)),
        # Below, 5G-LENA loses blocks.
        *((way, "lena", -0.36) for way in (UP, DOWN)),
    ],
)
def test_a_link_is_out_of_range_where_the_lowest_scheme_does_not_arrive(
    direction, block_size, least_db
):
    radio = Nr.of(scenario(block_size=block_size))
    for off_db, mcs in ((-0.01, -1), (0.01, 0)):
        snr = 10 ** ((least_db + off_db) / 10)
        power_w = (radio.uplink_power_w[0], radio.downlink_power_w / 51)[direction]
        gain = snr * radio.block_hz * radio.noise_w_per_hz / power_w
        used, step = radio.use(direction, np.array([0]), np.array([1]), np.array([[gain]]))
        assert used.item() == mcs + 1
        assert radio.steps[direction].mcs[step.item()] == mcs


def test_a_uav_that_is_alone_has_the_carrier_and_blocks_that_remain_go_round():
    radio = Nr.of(scenario(10))
    assert radio.divided(UP, 1) == [(51, 1.0)]
    assert radio.divided(DOWN, 3) == [(17, 1.0)]
    assert radio.divided(DOWN, 10) == [(5, pytest.approx(0.9)), (6, pytest.approx(0.1))]
    # 12 at a time have four each, three of them one more.
    assert radio.divided(UP, 40) == [(4, pytest.approx(0.3 * 9 / 12)), (5, pytest.approx(0.3 / 4))]


def test_background_users_leave_whole_blocks_and_the_base_station_its_power():
    plain, loaded = (Nr.of(scenario(**more)) for more in ({}, {"background": {"load": 0.31}}))
    assert (loaded.blocks, loaded.band_blocks) == ((35, 35), 51)
    assert loaded.unit_snr[DOWN] == pytest.approx(plain.unit_snr[DOWN])
    assert loaded.unit_snr[UP] == pytest.approx(plain.unit_snr[UP] * 51 / 35)


def test_a_limit_of_grants_holds_in_both_directions():
    radio = Nr.of(scenario(10, grants_per_tti=4))
    for way in (UP, DOWN):
        assert radio.divided(way, 3) == [(17, 1.0)]
        # Four at a time have 12 blocks each, three of them one more.
        assert radio.divided(way, 10) == [(12, pytest.approx(0.1)), (13, pytest.approx(0.3))]
    gain = np.full((10, 1), 1e-9)
    found = radio.link_rates(equal(10), gain, in_turns=False)
    of_one = Nr.of(scenario(1)).link_rates(equal(1), gain[:1], in_turns=False)
    for many, one in ((found.uplink, of_one.uplink), (found.gradient, of_one.gradient)):
        assert many.sum() == pytest.approx(one.sum(), rel=0.01)


def test_tdd_divides_the_rates_of_fdd():
    gain = np.full((3, 1), 1e-9)
    whole = Nr.of(scenario()).link_rates(equal(3), gain, in_turns=False)
    part = Nr.of(scenario(duplex="tdd", tdd_pattern="DDDSU")).link_rates(
        equal(3), gain, in_turns=False
    )
    assert part.uplink == pytest.approx(whole.uplink / 5)
    for ours, all_slots in ((part.gradient, whole.gradient), (part.broadcast, whole.broadcast)):
        assert ours == pytest.approx(all_slots * (3 + 12 / 13) / 5)


def test_noise_interference_and_antennas_shift_the_signal():
    gain = 10.0 ** np.linspace(-15, -11, 60)[None]

    def rates(by_db=0.0, **keys):
        values = gain * 10 ** (by_db / 10)
        return Nr.of(scenario(1, **keys)).link_rates(equal(1), values, in_turns=True).uplink

    assert len(np.unique(rates())) > 10
    for keys, db in (
        ({"noise_figure_db": 5.0}, 5),
        ({"interference_margin_db": 6.0}, 6),
        ({"antenna_gain_db": -7.0}, 7),
    ):
        assert rates(by_db=db, **keys) == pytest.approx(rates())


def test_fewer_blocks_than_the_band_leave_the_base_stations_power_per_block():
    gain = np.full((1, 1), 1e-14)
    few, all_ = (
        Nr.of(scenario(1, **keys)).link_rates(equal(1), gain, in_turns=True)
        for keys in ({"resource_blocks": 25}, {})
    )
    assert few.broadcast == pytest.approx(25 / 51 * all_.broadcast, rel=0.02)
    assert few.uplink[0, 0] > 0.5 * all_.uplink[0, 0]  # twice the power in each block


# --- a second implementation ---------------------------------------------------------------------


def cases():
    """Plans, scenarios and gains: from an outage to a neighbour, and at every step of the rate."""
    rng = np.random.default_rng(1)
    for name in ("sfl-pp", "cpsfl") * 12:
        plan, chosen, *_ = random_nr_case(rng, paradigm(name))
        values = 10 ** rng.uniform(-18, -8, (2, plan.clients, 40))
        values[..., ::9] = 0.0
        yield plan, chosen, TwoWay(values) if rng.random() < 0.5 else values[0]


def by_reference(rate, way, values, *more):
    return np.array(
        [[rate(way, k, float(value), *more) for value in row] for k, row in enumerate(values)]
    )


def test_links_have_the_rates_of_the_second_implementation():
    seen = set()
    for plan, chosen, values in cases():
        reference = Reference(chosen, plan.allocation)

        def in_cell(way, k, gain, all_gains, slot, reference=reference, uavs=range(plan.clients)):
            return reference.rate(way, k, gain, in_range(reference, way, all_gains, uavs, slot))

        found = Nr.of(chosen).link_rates(plan.allocation, values, in_turns=plan.in_turns)
        up, down = both_ways(values)
        gradient = "broadcast" if plan.in_turns else "down"
        for bps, value, way in (
            (found.uplink, up, "up"),
            (found.broadcast, down, "broadcast"),
            (found.gradient, down, gradient),
        ):
            due = [
                [in_cell(way, k, gain, value, slot) for slot, gain in enumerate(row)]
                for k, row in enumerate(value)
            ]
            assert bps == pytest.approx(np.array(due), rel=1e-12)
        seen |= {(chosen.radio.nr.duplex, chosen.radio.nr.scheduler, bool((up > 0).any()))}
    assert {each[:2] for each in seen} == set(
        itertools.product(("fdd", "tdd"), ("equal", "shares"))
    )


def test_rates_of_any_number_of_active_uavs_are_those_of_the_second_implementation():
    for plan, chosen, values in cases():
        radio, reference = Nr.of(chosen), Reference(chosen, plan.allocation)
        if not radio.is_shared:
            continue
        for active in (1, 2, 3, 7, 40):
            found = radio.link_rates(plan.allocation, values, in_turns=False, active=active)
            for name, bps, value in zip(("up", "down"), found[::2], both_ways(values), strict=True):
                due = by_reference(reference.shared_rate, name, value, active)
                assert bps == pytest.approx(due, rel=1e-12)


def test_links_share_the_cell_that_serves_them():
    rng = np.random.default_rng(2)
    for plan, chosen, values in itertools.islice(cases(), 8):
        cells = rng.integers(0, 3, (plan.clients, 40))
        given = TwoWay(np.stack(both_ways(values)), cells=cells)
        reference = Reference(chosen, plan.allocation)
        found = Nr.of(chosen).link_rates(plan.allocation, given, in_turns=False)
        for bps, value, way in zip(found[::2], both_ways(values), ("up", "down"), strict=True):
            due = np.empty_like(value)
            for k, s in np.ndindex(*value.shape):
                there = np.flatnonzero(cells[:, s] == cells[k, s])
                together = in_range(reference, way, value, there, s)
                due[k, s] = reference.rate(way, k, value[k, s], together)
            assert bps == pytest.approx(due, rel=1e-12)


def test_a_rate_holds_from_its_least_gain_up_to_the_next_step():
    seen = set()
    for plan, chosen, values in itertools.islice(cases(), 12):
        radio = Nr.of(chosen)
        if not radio.is_shared:
            continue
        links = simulation._links(plan, radio)
        for active, way in itertools.product((1, 3, 7, 40), (UP, DOWN)):
            if way == DOWN and plan.in_turns:
                continue
            value = both_ways(values)[way == DOWN]
            for k, slot in itertools.product(range(plan.clients), range(0, value.shape[1], 7)):
                at = value[k, slot]
                bps, least, below = shared_bps(links, plan.clients, way, k, at, active)
                assert least <= at < below
                for other in (least * (1 + 1e-12), below * (1 - 1e-12), (least + below) / 2):
                    if 0 < other < math.inf:
                        there = shared_bps(links, plan.clients, way, k, other, active)
                        assert there.bps == bps
                seen.add((way, bps > 0))
    assert seen == set(itertools.product((UP, DOWN), (False, True)))


@pytest.mark.parametrize("scheme", quick(3, EVERY_COMBINATION))
def test_rounds_agree_with_the_reference(scheme):
    rng = np.random.default_rng(3000 + EVERY.index(scheme))
    for _ in range(2):
        assert_equal_to_reference(random_nr_case(rng, scheme))
    case = random_nr_case(rng, scheme)
    assert_equal_to_reference(case, random_faults(rng, case[0].clients, *case[3:]))


# --- delays and fading ---------------------------------------------------------------------------


@pytest.mark.parametrize("scheduler", ["equal", "shares"])
def test_links_have_the_delay_of_the_radio_and_that_of_the_scenario(scheduler):
    more = {"links": {"one_way_delay_s": {"up": 0.02, "down": 0.03}}}
    plain, delayed = scenario(scheduler=scheduler), scenario(scheduler=scheduler, more=more)
    of_radio = idle_delays_s(plain.radio.nr)
    for chosen, own in ((plain, (0.0, 0.0)), (delayed, (0.02, 0.03))):
        assert chosen.is_impaired
        ways = impairments_of(chosen)
        tcp = tcp_model_of(chosen)
        for way in (UP, DOWN):
            due = pytest.approx([of_radio[way] + own[way]] * 3)
            assert [link.delay_s for link in ways[way]] == due
            assert tcp.delay_s[way].tolist() == due
        assert (tcp.grants is not None) == (scheduler == "equal")


def test_both_directions_fade_alike_on_one_carrier_in_each_nr_slot():
    turns = np.linspace(0, 3, 24).reshape(2, 4, 3)
    for duplex, is_same in (("fdd", False), ("tdd", True)):
        nr = {"duplex": duplex, "subcarrier_spacing_khz": 60}
        tree = {"radio": {"access": "nr", "nr": nr, "fading": "rayleigh"}}
        fading = fading_of(validate({"uavs": {"tx_power_w": [1.0]}} | tree, "test"))
        assert fading.block_s == 0.25e-3
        up, down = fading.powers(turns)
        assert (up == down).all() == is_same
        assert np.ptp(up) > 0


# --- refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mhz", "keys", "says"),
    [
        (60, {"subcarrier_spacing_khz": 15}, r"radio\.uplink_bandwidth_hz: .* 15 kHz, .* 50 MHz"),
        (5, {"subcarrier_spacing_khz": 60}, r"radio\.uplink_bandwidth_hz: .* 60 kHz, 10, .*5e\+06"),
        (1.4, {}, r"radio\.uplink_bandwidth_hz: must be an NR bandwidth with 30 kHz, 5, 10, "),
        (110, {}, r"radio\.uplink_bandwidth_hz: .* 100 MHz, not 1\.1e\+08 Hz"),
        (20, {"resource_blocks": 52}, r"radio\.nr\.resource_blocks: uplink_.* has 51, not 52"),
        (20, {"resource_blocks": 10}, r"radio\.nr\.resource_blocks: .*10"),
        (20, {"subcarrier_spacing_khz": 120}, r"radio\.nr\.subcarrier_spacing_khz: .*15, 30 or 60"),
        (20, {"tdd_pattern": "DDFU"}, r"radio\.nr\.tdd_pattern: must consist of 'D', 'S' and 'U'"),
        (20, {"tdd_pattern": "ddu"}, r"radio\.nr\.tdd_pattern: must consist of"),
        (20, {"tdd_pattern": ""}, r"radio\.nr\.tdd_pattern: must consist of"),
        (20, {"tdd_pattern": "DDDD"}, r"radio\.nr\.tdd_pattern: must consist of.*'DDDD'"),
        (20, {"tdd_pattern": "UU"}, r"radio\.nr\.tdd_pattern: must consist of"),
        (20, {"tdd_pattern": "DSDU"}, r"radio\.nr\.tdd_pattern: each 'S' must be between"),
        (20, {"tdd_pattern": "DUS"}, r"radio\.nr\.tdd_pattern: each 'S' must be between"),
        (20, {"tdd_pattern": "DSSU"}, r"radio\.nr\.tdd_pattern: each 'S' must be between"),
        (20, {"duplex": "tdd", "tdd_pattern": "DDU"}, r"radio\.nr\.tdd_pattern: a whole .* 40 NR"),
        (20, {"duplex": "half"}, r"radio\.nr\.duplex: .*'fdd' or 'tdd'"),
        (20, {"highest_modulation": "1024QAM"}, r"radio\.nr\.highest_modulation: "),
        (20, {"background": {"load": 0.96}}, r"radio\.nr\.background\.load: "),
        (20, {"background": {"users": 3}}, r"radio\.nr\.background\.users: no such key"),
        (
            20,
            {"background": {"load": 0.95}, "resource_blocks": 11},
            r"nr\.background\.load: must leave one of 11 resource blocks, at most 0.909, not 0.95",
        ),
        (20, {"grants_per_tti": 0}, r"radio\.nr\.grants_per_tti: "),
        (20, {"block_size": "ns3"}, r"radio\.nr\.block_size: .*'lena' or '3gpp'"),
        (20, {"layers": 2}, r"radio\.nr\.layers: no such key"),
        (20, {"noise_figure_db": -1}, r"radio\.nr\.noise_figure_db: "),
    ],
)
def test_what_a_cell_cannot_be(mhz, keys, says):
    with pytest.raises(InputError, match=says):
        scenario(mhz=mhz, **keys)


@pytest.mark.parametrize("mhz", [5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 60, 70, 80, 90, 100])
@pytest.mark.parametrize("spacing_khz", [15, 30, 60])
def test_a_carrier_uses_most_of_its_bandwidth(mhz, spacing_khz):
    """From 79 % (5 MHz) to 98.3 %, never all of it; where there is no entry, it is refused."""
    if (spacing_khz, mhz) == (60, 5) or (spacing_khz == 15 and mhz > 50):
        with pytest.raises(InputError):
            scenario(mhz=mhz, subcarrier_spacing_khz=spacing_khz)
        return
    radio = of_gains(scenario(mhz=mhz, subcarrier_spacing_khz=spacing_khz))
    assert isinstance(radio, Nr)
    used = radio.band_blocks * radio.block_hz / (1e6 * mhz)
    assert 0.79 <= used < 0.985


def test_a_share_has_one_block_at_least():
    chosen = scenario(scheduler="shares", more={"allocation": {"beta": [0.01, 0.49, 0.5]}})
    with pytest.raises(InputError, match=r"allocation\.beta: must be at least 0\.0196"):
        check_shares(Nr.of(chosen), fixed_allocation(chosen))
