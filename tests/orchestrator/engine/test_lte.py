# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""LTE as a rate model: by hand, against a second implementation, and what it refuses."""

import itertools
import math

import numpy as np
import pytest
import warm
import yaml
from engine_cases import random_lte_case
from engine_shim import shared_bps
from reference_engine import Lte as Reference
from reference_engine import in_range

import orchestrator as tb
from ns3_scenarios.trace import TwoWay, both_ways
from orchestrator.engine.lte import (
    TTI_S,
    Lte,
    assigned,
    downlink_steps,
    packet_bps,
    uplink_steps,
)
from orchestrator.engine.lte_tables import transport_block_bits
from orchestrator.engine.plan import Allocation
from orchestrator.engine.slot_impairments import DOWN, UP
from orchestrator.rounds import simulation
from orchestrator.scenario.loading import validate, varied
from testbed.core.errors import InputError
from testbed.core.paradigm import paradigm

NEAR = 1e-9
"""A gain at which every UAV has the highest modulation and coding scheme."""


def scenario(clients=10, **keys):
    """A cell of 20 MHz in both directions."""
    lte = {name: value for name, value in keys.items() if name != "radio"}
    radio = {"access": "lte", "lte": lte, **keys.get("radio", {})}
    return validate({"uavs": {"tx_power_w": [1.0] * clients}, "radio": radio}, "test")


def equal(clients):
    return Allocation(1, *[np.full(clients, 1 / clients)] * 3)


def rates(clients=10, active=None, gain=NEAR, **keys):
    """Rates of the first UAV's links in Mb/s."""
    values = np.full((clients, 1), gain)
    radio = Lte.of(scenario(clients, **keys))
    found = radio.link_rates(equal(clients), values, in_turns=False, active=active)
    return [float(each[0, 0]) / 1e6 for each in found]


# --- by hand -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clients", "blocks", "bits"), [(10, 10, 7480), (3, 33, 24496), (1, 100, 75376), (50, 4, 2984)]
)
def test_goodput_of_near_uavs_is_the_highest_schemes(clients, blocks, bits):
    """MCS 28 has TBS index 26. ns-3's LTE gave 7.44 Mb/s at K = 10, with packets of 1400 B."""
    assert transport_block_bits(np.array(26), np.array(blocks)) == bits
    (uplink, broadcast, gradient) = rates(clients, radio={}, scheduler="equal")
    packets = 1500 / 1503.5
    turns = min(1, 100 // blocks / clients)
    assert uplink == pytest.approx(turns * (bits - 16) / 1e3 * packets)
    assert broadcast == pytest.approx((75376 - 16) / 1e3 * packets)
    assert gradient == pytest.approx(broadcast / clients)


def test_goodput_is_what_ns3_measured():
    """A feasibility probe with ns-3's LTE, UDP packets of 1400 B: one of ten UAVs had 7.44 Mb/s in
    the uplink and all together 75.2 Mb/s in the downlink."""
    for bits, ns3_mbps in ((7480, 7.44), (75376, 75.2)):
        mbps = float(packet_bps(np.array(bits), 1400)) / 1e6
        assert mbps == pytest.approx(ns3_mbps, abs=0.03)


def test_a_header_larger_than_the_block_leaves_nothing():
    assert packet_bps(np.array([0, 8, 16, 24]), 1500).tolist() == [
        0,
        0,
        0,
        8 / TTI_S * 1500 / 1503.5,
    ]


def test_a_uav_that_sends_alone_has_all_blocks_and_others_their_part():
    uplinks = {n: rates(active=n)[0] for n in (1, 2, 3, 10)}
    packets = 1500 / 1503.5 / 1e3
    sizes = {1: 75376, 2: 36696, 3: 24496, 10: 7480}
    for n, bits in sizes.items():
        assert uplinks[n] == pytest.approx((bits - 16) * packets)
    gradients = {n: rates(active=n)[2] for n in (1, 2, 3, 10)}
    assert gradients[1] == rates()[1]
    assert [gradients[1] / each for each in gradients.values()] == pytest.approx([1, 2, 3, 10])


def test_fewer_blocks_have_a_higher_scheme_each():
    """Half of the blocks at twice the power: more than half of the rate, until MCS 28."""
    for gain, more in ((1e-12, True), (NEAR, False)):
        alone, two = (rates(gain=gain, active=n)[0] for n in (1, 2))
        assert (two > 0.55 * alone) == more


def test_a_weak_uav_sends_in_as_many_blocks_as_its_power_reaches():
    """By the least of the schemes: QPSK at 78/1024, whose transport blocks have TBS index 0."""
    radio = Lte.of(scenario())
    # A ratio above -2.25 dB is rounded to -2.125 dB, and the scheme needs -2.18 dB.
    least_db = -2.25
    assert -2.25 < 7.427 + 10 * math.log10(2**0.15 - 1) < -2.125
    noise_w = 10 ** (-11.4 - 3) * 0.18
    least = 10 ** (least_db / 10) * noise_w
    for reached in (0, 2, 3, 4, 7, 50, 99):
        for active in (1, 2):
            gain = np.full((10, 1), (reached + 0.5) * least)
            found = radio.link_rates(equal(10), gain, in_turns=True, active=active)
            # With less than four blocks it is out of range.
            blocks = np.array(min(reached, 100 // active) if reached >= 4 else 0)
            if reached < 100 // active:
                bits = transport_block_bits(np.array(0), blocks)
                assert found.uplink[0, 0] == pytest.approx(float(packet_bps(bits, 1500)))
    just = np.full((10, 1), least * (1 + 1e-9))
    just[0] = least * (1 - 1e-9)
    used, step = radio.use(0, np.arange(10), np.ones(10, int), just)
    assert (used[:2, 0].tolist(), radio.steps[0].mcs[step[:2, 0]].tolist()) == ([0, 1], [-1, 0])


@pytest.mark.parametrize(("modulation", "highest"), [("64QAM", 28), ("256QAM", 27)])
def test_schemes_follow_the_signal(modulation, highest):
    radio = Lte.of(scenario(2, highest_modulation=modulation))
    gain = np.array([[NEAR], [0.0]])
    for direction, blocks, mcs in ((0, 10, 28), (1, 100, highest)):
        used, step = radio.use(direction, np.arange(2), np.full(2, blocks), gain)
        assert used.tolist() == [[blocks], [0]]
        assert radio.steps[direction].mcs[step].tolist() == [[mcs], [-1]]


def test_256qam_and_a_second_layer_are_of_the_downlink():
    plain, wide, two = rates(), rates(highest_modulation="256QAM"), rates(layers=2)
    assert plain[0] == wide[0] == two[0]
    assert wide[1] == pytest.approx((97896 - 16) / 1e3 * 1500 / 1503.5)
    assert two[1] == pytest.approx(2 * plain[1])


def test_two_antennas_have_one_layer_where_two_would_carry_less():
    """One layer has 4.2 dB more than one antenna, each of two layers 2.8 dB less."""
    one, two = (downlink_steps(100, 0.0, 1500, layers, "64QAM") for layers in (1, 2))
    assert set(one.layers.tolist()) == {1}
    assert set(two.layers.tolist()) == {1, 2}
    for steps in (one, two):
        assert (np.diff(steps.least_snr) > 0).all()
        assert (np.diff(steps.bps[-1]) > 0).all()
    assert two.least_snr[0] == pytest.approx(one.least_snr[0] * 10**-0.42)
    assert two.least_snr[-1] == pytest.approx(one.least_snr[-1] * 10**0.28)
    for mcs, layers, bps in zip(two.mcs[1:], two.layers[1:], two.bps.T[1:], strict=True):
        assert bps == pytest.approx(layers * one.bps[:, 1 + mcs // 2])


def test_more_signal_and_more_blocks_never_carry_less():
    for steps in (
        uplink_steps(100, 0.0, 1500),
        *(
            downlink_steps(100, 0.0, 1500, layers, modulation)
            for layers, modulation in itertools.product((1, 2), ("64QAM", "256QAM"))
        ),
    ):
        assert (np.diff(steps.bps, axis=0) >= 0).all()
        assert (np.diff(steps.bps[-1 if steps.layers[-1] == 2 else slice(None)]) >= 0).all()


def test_one_block_never_carries_what_does_not_fit_it():
    """TBS index 6 with one resource block has 328 bits in the standard, its neighbours 104: with
    QPSK, one block of 120 symbols carries 240 bits, checksums included."""
    for steps in (uplink_steps(6, 0.0, 1500), downlink_steps(6, 0.0, 1500, 1, "64QAM")):
        (place,) = np.flatnonzero(steps.mcs == 6)
        assert steps.bps[1, place] == pytest.approx((104 - 16) * 1e3 * 1500 / 1503.5)
    wide = downlink_steps(6, 0.0, 1500, 1, "256QAM")
    (place,) = np.flatnonzero(wide.mcs == 3)
    assert wide.bps[1, place] == pytest.approx((120 - 16) * 1e3 * 1500 / 1503.5)


def test_noise_figure_interference_and_antennas_shift_the_signal():
    for keys, db in (
        ({"noise_figure_db": 5.0}, 5),
        ({"interference_margin_db": 6.0}, 6),
        ({"antenna_gain_db": -7.0}, 7),
        ({"radio": {"noise_dbm_per_mhz": -106.0}}, 8),
    ):
        for gain in 10.0 ** np.arange(-16, -10, 0.17):
            shifted = rates(gain=gain * 10 ** (db / 10), **keys)
            assert shifted == pytest.approx(rates(gain=gain))


def test_the_margin_shifts_all_thresholds_alike():
    steps, shifted = (downlink_steps(50, margin_db, 1500, 1, "64QAM") for margin_db in (0, 3))
    assert shifted.least_snr == pytest.approx(steps.least_snr * 10**0.3)


@pytest.mark.parametrize("layers", [1, 2])
def test_the_highest_snr_limits_the_signal_like_noise(layers):
    """At 18 dB, rates are those of a gain whose SNR is 1 / (1 / SNR + 1 / 63.1)."""
    highest = 10**1.8
    noise_w = 10 ** ((-114 + 10 * math.log10(0.18) - 30) / 10)
    seen = set()
    for way, watts, blocks in ((0, 1.0, 10), (1, 40.0, 100)):
        for gain in 10.0 ** np.arange(-13.9 if way == 0 else -14.5, -9, 0.033):
            snr = watts * gain / (blocks * noise_w)
            limited = gain / (1 + snr / highest)
            found = rates(gain=gain, highest_snr_db=18.0, layers=layers)[way]
            assert found == pytest.approx(rates(gain=limited, layers=layers)[way])
            seen.add((way, found))
    assert len(seen) > 10
    best = rates(gain=1.0, highest_snr_db=18.0, layers=layers)
    assert best[0] < rates(gain=1.0, layers=layers)[0]
    assert rates(highest_snr_db=60.0, gain=1e-11) == rates(gain=1e-11)


def test_a_step_that_needs_the_highest_snr_is_never_reached():
    steps = Lte.of(scenario()).steps
    place = list(steps[1].mcs[1:]).index(8)
    needed_db = 10 * math.log10(steps[1].least_snr[place])
    kept = Lte.of(scenario(highest_snr_db=needed_db + 1e-9)).steps[1]
    assert len(kept.least_snr) == place + 1
    assert len(kept.mcs) == len(kept.layers) == kept.bps.shape[1] == place + 2
    assert len(Lte.of(scenario(highest_snr_db=needed_db - 1e-9)).steps[1].least_snr) == place
    assert (np.diff(kept.least_snr) > 0).all()
    with pytest.raises(
        InputError, match=r"^radio.lte.highest_snr_db: must be above 20\.50.*not 20$"
    ):
        Lte.of(scenario(highest_snr_db=20, implementation_margin_db=30))


def test_a_uav_has_whole_blocks_of_its_share():
    assert assigned(np.array([0.29, 0.3, 0.01, 0.1 + 0.2]), 100).tolist() == [29, 30, 1, 30]
    radio = Lte.of(scenario(2, scheduler="shares"))
    shares = Allocation(1, np.full(2, 0.5), np.array([0.299, 0.701]), np.full(2, 0.5))
    found = radio.link_rates(shares, np.full((2, 1), NEAR), in_turns=False)
    sizes = transport_block_bits(np.array(26), np.array([29, 70]))
    for each in (found.uplink, found.gradient):
        assert each[:, 0] == pytest.approx(packet_bps(sizes, 1500))
    in_turns = radio.link_rates(shares, np.full((2, 1), NEAR), in_turns=True)
    assert in_turns.gradient.tolist() == in_turns.broadcast.tolist() == found.broadcast.tolist()


def test_fewer_blocks_than_the_band_leave_the_base_stations_power_per_block():
    few = rates(resource_blocks=50, gain=10**-14.0)
    narrow = rates(radio={"downlink_bandwidth_hz": 10e6}, gain=10**-14.0)
    wide = rates(gain=10**-14.0)
    assert narrow[1] > few[1]
    assert few[1] == pytest.approx(0.5 * wide[1], rel=0.02)


def test_some_of_the_uavs_keep_their_powers():
    tree = {"uavs": {"tx_power_w": [1.0, 0.4, 0.1]}, "radio": {"access": "lte"}}
    radio = Lte.of(validate(tree, "test")).of_clients(np.array([0, 2]))
    assert radio.uplink_power_w.tolist() == [1.0, 0.1]
    gain = np.full((2, 1), 1e-14)
    assert np.ptp(radio.link_rates(equal(2), gain, in_turns=True).uplink) > 0


# --- a second implementation ---------------------------------------------------------------------


def cases():
    """Plans, scenarios and gains: from an outage to a neighbour, and at every step of the rate."""
    rng = np.random.default_rng(1)
    for name in ("sfl-pp", "cpsfl") * 12:
        plan, chosen, *_ = random_lte_case(rng, paradigm(name))
        values = 10 ** rng.uniform(-18, -8, (2, plan.clients, 60))
        values[..., ::9] = 0.0
        yield plan, chosen, TwoWay(values) if rng.random() < 0.5 else values[0]


def by_reference(rate, way, values, *more):
    """Rates of all links of a direction, [K, S], by a method of the second implementation."""
    return np.array(
        [[rate(way, k, float(value), *more) for value in row] for k, row in enumerate(values)]
    )


def test_links_have_the_rates_of_the_second_implementation():
    for plan, chosen, values in cases():
        reference = Reference(chosen, plan.allocation)
        found = Lte.of(chosen).link_rates(plan.allocation, values, in_turns=plan.in_turns)
        up, down = both_ways(values)
        gradient = "broadcast" if plan.in_turns else "down"
        for bps, value, way in (
            (found.uplink, up, "up"),
            (found.broadcast, down, "broadcast"),
            (found.gradient, down, gradient),
        ):
            due = [
                [
                    reference.rate(
                        way, k, value[k, s], in_range(reference, way, value, range(len(value)), s)
                    )
                    for s in range(60)
                ]
                for k in range(plan.clients)
            ]
            assert bps == pytest.approx(np.array(due), rel=1e-12)


def test_links_share_the_cell_that_serves_them():
    rng = np.random.default_rng(2)
    for plan, chosen, values in cases():
        cells = rng.integers(0, 3, (plan.clients, 60))
        given = TwoWay(np.stack(both_ways(values)), cells=cells)
        reference = Reference(chosen, plan.allocation)
        found = Lte.of(chosen).link_rates(plan.allocation, given, in_turns=False)
        for bps, value, way in zip(found[::2], both_ways(values), ("up", "down"), strict=True):
            due = np.zeros(bps.shape)
            for k, s in itertools.product(range(plan.clients), range(60)):
                there = np.flatnonzero(cells[:, s] == cells[k, s])
                together = in_range(reference, way, value, there, s)
                due[k, s] = reference.rate(way, k, value[k, s], together)
            assert bps == pytest.approx(np.array(due), rel=1e-12)


def test_a_slot_with_fading_has_the_mean_rate_of_its_blocks():
    rng = np.random.default_rng(3)
    for plan, chosen, values in itertools.islice(cases(), 6):
        up, down = both_ways(values)
        powers = rng.exponential(1, (2, *up.shape, 5)).astype(np.float32)
        given = TwoWay(np.stack([up, down]), fading=powers)
        reference = Reference(chosen, plan.allocation)
        for active in (None, 1, 2):
            if active and not reference.is_shared:
                continue
            found = Lte.of(chosen).link_rates(plan.allocation, given, in_turns=False, active=active)
            for bps, value, way, power in zip(
                found[::2], (up, down), ("up", "down"), powers, strict=True
            ):
                faded = [value * power[..., block].astype(float) for block in range(5)]
                if active is None:  # A UAV takes part if any block of the slot carries something.
                    alone = [by_reference(reference.shared_rate, way, each, 1) for each in faded]
                    together = np.maximum(1, (np.mean(alone, axis=0) > 0).sum(axis=0))
                else:
                    together = np.full(60, active)
                rate = reference.rate if active is None else reference.shared_rate
                due = np.mean(
                    [
                        [
                            [rate(way, k, row[s], int(together[s])) for s in range(60)]
                            for k, row in enumerate(each)
                        ]
                        for each in faded
                    ],
                    axis=0,
                )
                assert bps == pytest.approx(due, rel=1e-9)


def test_rates_of_any_number_of_active_uavs_are_those_of_the_second_implementation():
    seen = set()
    for plan, chosen, values in cases():
        radio, reference = Lte.of(chosen), Reference(chosen, plan.allocation)
        if not radio.is_shared:
            continue
        for active in (1, 2, 3, 7, 40):
            found = radio.link_rates(plan.allocation, values, in_turns=False, active=active)
            ways = zip((UP, DOWN), ("up", "down"), found[::2], both_ways(values), strict=True)
            for way, name, bps, value in ways:
                due = by_reference(reference.shared_rate, name, value, active)
                assert bps == pytest.approx(due, rel=1e-12)
                seen |= {(way, rate > 0) for rate in bps.flat}
    assert seen == set(itertools.product((UP, DOWN), (False, True)))


def limited(chosen):
    """The scenario with sender and receiver that limit the signal-to-noise ratio."""
    return varied(chosen, {"radio.lte.highest_snr_db": 16.0})


def test_a_rate_holds_from_its_least_gain_up_to_the_next_step():
    rng, seen = np.random.default_rng(4), set()
    for plan, chosen, values in cases():
        radio = Lte.of(limited(chosen) if rng.random() < 0.3 else chosen)
        if not radio.is_shared:
            continue
        links = simulation._links(plan, radio)
        for active, way in itertools.product((1, 2, 3, 7, 40), (UP, DOWN)):
            if way == DOWN and plan.in_turns:
                continue
            value = both_ways(values)[way == DOWN]
            for k, slot in itertools.product(range(plan.clients), range(0, value.shape[1], 4)):
                at = value[k, slot]
                bps, *edges = shared_bps(links, plan.clients, way, k, at, active)
                least, below = edges
                assert least <= at < below
                for other in (least * (1 + 1e-12), below * (1 - 1e-12), (least + below) / 2):
                    if 0 < other < math.inf:
                        there = shared_bps(links, plan.clients, way, k, other, active)
                        assert there.bps == bps
                        assert [there.least, there.below] == pytest.approx(edges, rel=1e-9)
                # Beyond it, the rate is another, or the number of blocks that are reached.
                seen.add((way, bps > 0, math.isinf(below)))
    assert seen == {
        (way, *rest) for way in (UP, DOWN) for rest in ((True, True), (True, False), (False, False))
    }


def test_limited_links_have_the_rates_of_their_steps():
    """Against `use`, which states the steps for what is analysed."""
    for plan, chosen, values in cases():
        radio = Lte.of(limited(chosen))
        found = radio.link_rates(plan.allocation, values, in_turns=False)
        for side, bps, value in zip((0, 1), found[::2], both_ways(values), strict=True):
            blocks = np.repeat(assigned(plan.allocation.beta, radio.blocks[side])[:, None], 60, 1)
            part = np.ones(60)
            if radio.is_shared:
                active = np.maximum(1, (bps > 0).sum(axis=0))
                at_once = np.minimum(active, radio.blocks[0] // 4) if side == 0 else 1
                blocks = np.tile(radio.blocks[side] // at_once, (plan.clients, 1))
                part = at_once / active
            due = np.zeros(bps.shape)
            for s in range(60):
                of = blocks[:, min(s, blocks.shape[1] - 1)]
                used, step = radio.use(side, np.arange(plan.clients), of, value[:, s : s + 1])
                due[:, s] = part[s] * radio.steps[side].bps[used, step][:, 0]
            assert bps == pytest.approx(due, rel=1e-12)


# --- refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        (
            {"allocation": {"rho": [0.3, 0.7]}},
            "allocation.rho: must be 'equal' where radio.access is 'lte', 'nr' or 'wifi'",
        ),
        (
            {"allocation": {"beta": [0.3, 0.7]}},
            "allocation.beta: must be 'equal' where the UAVs that send divide the band",
        ),
        (
            {"radio": {"lte": {"scheduler": "shares"}}, "allocation": {"rho": [0.3, 0.7]}},
            "allocation.rho: must be 'equal' where radio.access is 'lte'",
        ),
        (
            {"radio": {"lte": {"scheduler": "shares"}}, "allocation": {"beta": [0.009, 0.991]}},
            "allocation.beta: must be at least 0.01, one resource block; UAV 1 has 0.009",
        ),
        (
            {
                "radio": {"lte": {"scheduler": "shares", "resource_blocks": 50}},
                "allocation": {"beta": [0.985, 0.015]},
            },
            "allocation.beta: must be at least 0.02, one resource block; UAV 2 has 0.015",
        ),
        (
            {"radio": {"uplink_bandwidth_hz": 17e6}},
            "radio.uplink_bandwidth_hz: must be an LTE bandwidth, 1.4, 3, 5, 10, 15, 20 MHz",
        ),
        (
            {"radio": {"downlink_bandwidth_hz": 40e6}},
            "radio.downlink_bandwidth_hz: must be an LTE bandwidth, 1.4, 3, 5, 10, 15, 20 MHz",
        ),
        (
            {"radio": {"downlink_bandwidth_hz": 5e6, "lte": {"resource_blocks": 50}}},
            "radio.lte.resource_blocks: downlink_bandwidth_hz has 25, not 50",
        ),
        (
            {"links": {"loss": {"model": "snr", "threshold_db": 3}}},
            "links: must have no loss, no jitter, and one delay where the UAVs that send",
        ),
    ],
)
def test_what_a_cell_cannot_be_asked_is_one_line(tmp_path, keys, says):
    radio = {"access": "lte", **keys.get("radio", {})}
    tree = {"uavs": {"tx_power_w": [1, 1]}, **keys, "radio": radio}
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(tree))
    np.savez(tmp_path / "t.npz", gain=np.full((2, 5000), NEAR), slot_s=0.1)
    words = "predict s.yaml --trace t.npz --rounds 1 --json out.json"
    done = warm.run(*words.split(), cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr.splitlines()[-1]
    assert not (tmp_path / "out.json").exists()


def test_loss_of_a_shared_band_is_refused_in_one_line(tmp_path):
    says = "testbed: s.yaml: links: must have no loss, no jitter, and one delay where the UAVs"
    np.savez(tmp_path / "t.npz", gain=np.full((2, 5000), NEAR), slot_s=0.1)
    words = "predict s.yaml --trace t.npz --rounds 1 --wire --json out.json"
    for scheduler in ("equal", "shares"):
        radio = {"access": "lte", "lte": {"scheduler": scheduler}}
        tree = {"uavs": {"tx_power_w": [1, 1]}, "radio": radio, "links": {"loss": 0.01}}
        (tmp_path / "s.yaml").write_text(yaml.safe_dump(tree))
        done = warm.run(*words.split(), cwd=tmp_path)
        assert done.returncode == (2 if scheduler == "equal" else 0)
        assert (says in done.stderr.splitlines()[-1]) == (scheduler == "equal")
        assert (tmp_path / "out.json").exists() == (scheduler == "shares")


def test_a_share_of_exactly_one_block_is_enough():
    given = {"gain": np.full((2, 5000), NEAR), "slot_s": 0.1}
    chosen = validate(
        {
            "uavs": {"tx_power_w": [1, 1]},
            "radio": {"access": "lte", "lte": {"scheduler": "shares"}},
            "allocation": {"beta": [0.01, 0.99]},
        },
        "test",
    )
    (round_,) = tb.predict(chosen, given, rounds=1)
    assert round_.latency_s > 0


def test_rates_of_a_trace_need_no_cell():
    rate = np.full((10, 5000), 1e7)
    with pytest.raises(InputError, match=r"^radio\.access: must be 'shannon' where the trace has"):
        tb.predict(scenario(), {"uplink_bps": rate, "downlink_bps": rate, "slot_s": 0.1})
