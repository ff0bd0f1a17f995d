# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Wi-Fi as a rate model: by hand, against a second implementation, and what it refuses."""

import itertools
import math

import numpy as np
import pytest
import warm
import yaml
from engine_cases import random_wifi_case
from engine_shim import shared_bps
from reference_engine import Wifi as Reference

import orchestrator as tb
from ns3_scenarios.trace import TwoWay, both_ways
from orchestrator.engine.core_library import Links
from orchestrator.engine.plan import Allocation
from orchestrator.engine.slot_impairments import DOWN, UP
from orchestrator.engine.wifi import SCHEMES, Wifi, contention, exchanges
from orchestrator.rounds import simulation
from orchestrator.scenario.loading import validate
from orchestrator.scenario.unused import _log_once
from testbed.core.errors import InputError
from testbed.core.paradigm import paradigm

NEAR = 1e-6
"""A gain at which every UAV has the highest modulation and coding scheme."""


def scenario(clients=3, **keys):
    wifi = {name: value for name, value in keys.items() if name != "radio"}
    radio = {"access": "wifi", "wifi": wifi, **keys.get("radio", {})}
    mtu = {"emulation": {"mtu": 1400}}
    return validate({"uavs": {"tx_power_w": [1.0] * clients}, "radio": radio, **mtu}, "test")


def equal(clients):
    return Allocation(1, *[np.full(clients, 1 / clients)] * 3)


def rates(clients=3, active=None, gain=NEAR, **keys):
    """Rates of the first UAV's links in Mb/s."""
    radio = Wifi.of(scenario(clients, **keys))
    values = np.full((clients, 1), gain)
    found = radio.link_rates(equal(clients), values, in_turns=False, active=active)
    return [float(each[0, 0]) / 1e6 for each in found]


# --- by hand -------------------------------------------------------------------------------------


def test_an_aggregate_by_hand():
    """802.11n with 20 MHz, MCS 7: 260 bits per symbol of 4 µs, so that 30 packets of 1,444 B with
    headers take 36 µs + 1,334 symbols; 31 would take more than 5,484 µs."""
    found = exchanges("n", 20, 1400, rts=False)
    assert found.bits[8] == 30 * 1400 * 8
    data_us = 36 + 4 * math.ceil((22 + 8 * 30 * 1444) / 260)
    assert data_us == 5372
    # SIFS, block acknowledgement of 32 B at 24 Mb/s, AIFS.
    assert found.seconds[8] == pytest.approx(1e-6 * (data_us + 16 + 32 + 43))
    assert found.collision_s[8] == found.seconds[8]
    rts = exchanges("n", 20, 1400, rts=True)
    assert rts.seconds[8] == pytest.approx(found.seconds[8] + 1e-6 * (28 + 16 + 28 + 16))
    assert rts.collision_s[8] == pytest.approx(1e-6 * (28 + 16 + 28 + 43))
    # MCS 0 answers at 6 Mb/s, and carries three packets in 5,484 µs.
    assert found.bits[1] == 3 * 1400 * 8
    data_us = 36 + 4 * math.ceil((22 + 8 * 3 * 1444) / 26)
    assert found.seconds[1] == pytest.approx(1e-6 * (data_us + 16 + 68 + 43))
    assert found.bits[0] == 0


@pytest.mark.parametrize(
    ("standard", "width_mhz", "scheme", "packets", "data_us"),
    [
        # Limited by 65,535 B: 45 packets of 1,444 B. MCS 7: 64QAM 5/6; MCS 9: 256QAM 5/6.
        ("n", 40, 7, 45, 36 + 4 * 963),
        ("ac", 80, 9, 45, 40 + 4 * 334),
        ("ax", 80, 11, 45, 44 + 16 * 64),
        ("ac", 20, 7, 30, 40 + 4 * 1334),
    ],
)
def test_aggregates_of_other_standards_by_hand(standard, width_mhz, scheme, packets, data_us):
    found = exchanges(standard, width_mhz, 1400, rts=False)
    assert found.bits[scheme + 1] == packets * 1400 * 8
    assert found.seconds[scheme + 1] == pytest.approx(1e-6 * (data_us + 16 + 32 + 43))


@pytest.mark.parametrize(
    ("standard", "width_mhz", "schemes", "symbol_bits", "mbps"),
    [
        *(("n", 20, 8, 260, 65), ("n", 40, 8, 540, 135)),
        *(("ac", 20, 9, 312, 78), ("ac", 40, 10, 720, 180)),
        *(("ac", 80, 10, 1560, 390), ("ac", 160, 10, 3120, 780)),
        *(("ax", 20, 12, 1950, 121.9), ("ax", 40, 12, 3900, 243.8)),
        *(("ax", 80, 12, 8166, 510.4), ("ax", 160, 12, 16333, 1020.8)),
    ],
)
def test_the_highest_scheme_has_the_rate_of_the_standard(
    standard, width_mhz, schemes, symbol_bits, mbps
):
    """With one stream and the longest guard interval."""
    preamble_us, symbol_us = {"n": (36, 4), "ac": (40, 4), "ax": (44, 16)}[standard]
    assert symbol_bits / symbol_us == pytest.approx(mbps, abs=0.06)
    found = exchanges(standard, width_mhz, 458, rts=False)
    assert len(found.bits) == 1 + schemes
    assert found.bits[-1] == 64 * 458 * 8
    data_us = preamble_us + symbol_us * math.ceil((22 + 64 * 500 * 8) / symbol_bits)
    assert 1e6 * found.seconds[-1] == pytest.approx(data_us + 16 + 32 + 43)


def test_control_frames_have_the_highest_basic_rate_below_the_schemes():
    """The block acknowledgement takes 68 µs at 6 Mb/s, 44 at 12 and 32 at 24."""
    found, bits = exchanges("n", 20, 1400, rts=False), (26, 52, 78, 104, 156, 208, 234, 260)
    packets = found.bits[1:] / 8 / 1400
    data_us = [
        36 + 4 * math.ceil((22 + 8 * n * 1444) / b) for n, b in zip(packets, bits, strict=True)
    ]
    answers_us = 1e6 * found.seconds[1:] - np.array(data_us) - 16 - 43
    assert answers_us == pytest.approx([68, 44, 44, 32, 32, 32, 32, 32])


def test_an_aggregate_has_service_and_tail_bits():
    """22 packets of 2,012 B with headers would fill 1,362 symbols of 260 bits but for 8 bits."""
    assert 1362 * 260 - 22 * 2012 * 8 == 8
    assert exchanges("n", 20, 1970, rts=False).bits[8] == 21 * 1970 * 8


def test_small_packets_fill_a_block_acknowledgement():
    assert exchanges("ac", 160, 600, rts=False).bits[-1] == 64 * 600 * 8


def test_a_packet_is_sent_however_long_it_takes():
    assert exchanges("n", 20, 9000, rts=False).bits[1] == 9000 * 8


def test_a_sender_alone_waits_half_a_window_and_never_collides():
    assert contention(1).idle_slots == pytest.approx(7.5)
    assert contention(1).collisions == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("senders", "collides"), [(2, 0.1046), (5, 0.2715), (10, 0.3844), (20, 0.4809), (50, 0.5953)]
)
def test_contention_solves_bianchis_equations(senders, collides):
    """Both equations hold for the probabilities that follow from what is spent."""
    idle_slots, collisions = contention(senders)
    # P(idle) : P(one) : P(several) = idle : 1 : collisions.
    begins = 1 - (idle_slots / (idle_slots + 1 + collisions)) ** (1 / senders)
    p = 1 - (1 - begins) ** (senders - 1)
    assert p == pytest.approx(collides, abs=2e-4)
    window, stages = 16, 6
    tau = 2 * (1 - 2 * p) / ((1 - 2 * p) * (window + 1) + p * window * (1 - (2 * p) ** stages))
    assert begins == pytest.approx(tau, rel=1e-6)


def test_goodput_is_what_ns3_measured():
    """`benchmarks/wifi_radio.py`, 802.11n: a downlink alone had 60.6 Mb/s; three uplinks with
    RTS/CTS 59.8 in total, without 52.1."""
    assert rates(1)[1] == pytest.approx(60.6, rel=0.005)
    assert 3 * rates(3, rts=True)[0] == pytest.approx(59.8, rel=0.01)
    assert 3 * rates(3)[0] == pytest.approx(52.1, rel=0.07)


def test_one_that_sends_alone_has_the_channel_and_others_their_part():
    found = exchanges("n", 20, 1400, rts=False)
    for active in (1, 2, 3):
        idle, collisions = contention(active)
        turn_s = found.seconds[8] + 9e-6 * idle + collisions * found.collision_s[8]
        uplink, broadcast, gradient = rates(active=active)
        assert uplink == pytest.approx(found.bits[8] / turn_s / active / 1e6)
        # The access point is one sender for all.
        assert broadcast == pytest.approx(rates(1, active=1)[0])
        assert gradient == pytest.approx(broadcast / active)
    assert rates(3) == rates(3, active=3)


def test_both_directions_contend_for_one_channel():
    """Three uplinks and the access point are four senders, of which the latter serves all UAVs."""
    radio = Wifi.of(scenario())
    links = Links(radio.bands(), False, np.ones(3), np.ones(3))

    def bps(way, active, others):
        return shared_bps(links, 3, way, 0, NEAR, active, others).bps

    alone, with_others = bps(UP, 3, 0), bps(UP, 3, 2)
    assert with_others == bps(UP, 3, 1) == bps(UP, 4, 0)
    assert 0.6 * alone < with_others < 0.75 * alone
    assert bps(DOWN, 2, 3) == pytest.approx(with_others / 2)
    assert bps(DOWN, 1, 3) == pytest.approx(with_others)


def test_schemes_are_those_of_the_second_engine():
    assert [each[2] for each in SCHEMES] == list(Reference.least_db)
    assert [each[0] for each in SCHEMES] == list(Reference.modulations)


def test_schemes_follow_the_signal():
    """At the least signal-to-noise ratio of each scheme, and just below it."""
    radio = Wifi.of(scenario(1, standard="ax", noise_figure_db=20.0, antenna_gain_db=0.0))
    noise_w = 10 ** ((-174 + 20) / 10 - 3) * 20e6
    for number, (*_, least_db) in enumerate(SCHEMES, 1):
        if least_db < 4.4:  # no preamble is detected
            continue
        gain = np.array([[noise_w * 10 ** (least_db / 10)]]) * np.array([[1 - 1e-9, 1 + 1e-9]])
        found = radio.link_rates(equal(1), gain, in_turns=False).uplink[0]
        assert found.tolist() == radio.bps[1, number - 1 : number + 1].tolist()


@pytest.mark.parametrize(
    ("keys", "weakest_dbm"),
    [
        ({}, -82),
        ({"antenna_gain_db": 6.0}, -88),
        # 4 dB above the noise in 20 MHz, whatever the channel's width: -174 + 25 + 73 + 4.
        ({"noise_figure_db": 25.0}, -72),
        ({"noise_figure_db": 25.0, "width_mhz": 40}, -72),
        ({"radio": {"noise_dbm_per_mhz": -89.0}}, -72),
    ],
)
def test_a_weaker_signal_than_a_receiver_detects_carries_nothing(keys, weakest_dbm):
    gain = 10 ** ((weakest_dbm - 30) / 10)
    if keys.get("width_mhz") == 40:  # there the lowest scheme needs 1.465 dB in 40 MHz
        gain *= 10 ** (max(0.0, 1.465 - 4 + 3.01) / 10)
    assert rates(1, gain=gain * 0.99, **keys) == [0, 0, 0]
    assert min(rates(1, gain=gain * 1.01, **keys)) > 0


def test_a_link_needs_both_ends_to_be_heard():
    """A UAV of 0.1 W is heard 10 dB less far than the access point of 1 W, and the reverse."""
    tree = {"uavs": {"tx_power_w": [0.1, 1.0]}, "radio": {"access": "wifi"}}
    gain = 10 ** (-np.array([[110.0, 130.0], [110.0, 130.0]]) / 10)  # -80 dBm of 1 W
    found = Wifi.of(validate(tree, "test")).link_rates(equal(2), gain, in_turns=False)
    assert (found.uplink[:, 0] > 0).tolist() == [False, True]
    assert (found.broadcast[:, 0] > 0).tolist() == [False, True]
    tree["radio"]["wifi"] = {"access_point_power_w": 0.1}
    found = Wifi.of(validate(tree, "test")).link_rates(equal(2), gain, in_turns=False)
    assert not found.uplink.any()


def test_the_access_point_has_the_base_stations_power_but_at_most_1_w():
    for station_w, given_w, expected_w in ((40, None, 1.0), (0.5, None, 0.5), (40, 4.0, 4.0)):
        tree = {
            "uavs": {"tx_power_w": [1.0]},
            "base_station": {"tx_power_w": station_w},
            "radio": {"access": "wifi", "wifi": {"access_point_power_w": given_w}},
        }
        assert Wifi.of(validate(tree, "test")).access_point_power_w == expected_w


def test_some_of_the_uavs_keep_their_powers():
    tree = {"uavs": {"tx_power_w": [1.0, 0.4, 0.1]}, "radio": {"access": "wifi"}}
    radio = Wifi.of(validate(tree, "test")).of_clients(np.array([0, 2]))
    assert radio.uplink_power_w.tolist() == [1.0, 0.1]
    assert radio.least_gain.shape == (2, 2, 8)
    assert radio.bps.shape == (4, 9)


# --- a second implementation ---------------------------------------------------------------------


def cases():
    """Plans, scenarios and gains: from an outage to a neighbour."""
    rng = np.random.default_rng(1)
    for name in ("sfl-pp", "cpsfl") * 6:
        plan, chosen, *_ = random_wifi_case(rng, paradigm(name))
        values = 10 ** rng.uniform(-14, -5, (2, plan.clients, 60))
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
        found = Wifi.of(chosen).link_rates(plan.allocation, values, in_turns=plan.in_turns)
        up, down = both_ways(values)
        gradient = "broadcast" if plan.in_turns else "down"
        for bps, value, way in (
            (found.uplink, up, "up"),
            (found.broadcast, down, "broadcast"),
            (found.gradient, down, gradient),
        ):
            due = by_reference(reference.rate, way, value)
            assert bps == pytest.approx(due, rel=1e-9)


def test_rates_of_any_number_of_active_uavs_are_those_of_the_second_implementation():
    seen = set()
    for plan, chosen, values in cases():
        radio, reference = Wifi.of(chosen), Reference(chosen, plan.allocation)
        links = simulation._links(plan, radio)
        for active in range(1, plan.clients + 1):
            found = radio.link_rates(plan.allocation, values, in_turns=False, active=active)
            ways = zip((UP, DOWN), ("up", "down"), found[::2], both_ways(values), strict=True)
            for way, name, bps, value in ways:
                due = by_reference(reference.shared_rate, name, value, active)
                assert bps == pytest.approx(due, rel=1e-9)
                if way == DOWN and plan.in_turns:
                    continue
                others = 1 + active % 2
                for k, slot in itertools.product(range(plan.clients), range(value.shape[1])):
                    at = value[k, slot]
                    both = shared_bps(links, plan.clients, way, k, at, active, others)
                    due_bps = reference.shared_rate(name, k, at, active, others)
                    assert both.bps == pytest.approx(due_bps, rel=1e-9)
                    seen.add((way, both.bps > 0, math.isinf(both.below)))
    assert seen == {
        (way, *rest) for way in (UP, DOWN) for rest in ((True, True), (True, False), (False, False))
    }


def test_a_rate_holds_from_its_least_gain_up_to_the_next_step():
    for plan, chosen, values in cases():
        links, active = simulation._links(plan, Wifi.of(chosen)), plan.clients
        for way in (UP, DOWN):
            value = both_ways(values)[way]
            for k, slot in itertools.product(range(plan.clients), range(value.shape[1])):

                def there(at, way=way, k=k, links=links, active=active):
                    return shared_bps(links, active, way, k, at, active)

                own = there(value[k, slot])
                assert own.least <= value[k, slot] < own.below
                for other in (own.least, own.below * (1 - 1e-12), (own.least + own.below) / 2):
                    if other < math.inf:
                        assert there(other) == own
                if own.least > 0:
                    assert there(own.least * (1 - 1e-12)).bps < own.bps


# --- refused -------------------------------------------------------------------------------------

DIVIDED = "where the UAVs that send divide the band"
CONTENDS = "emulation.air: must be 'ns3' where radio.access is 'wifi' in an emulation"


@pytest.mark.parametrize(
    ("command", "keys", "says"),
    [
        ("predict", {"allocation.rho": [0.3, 0.7]}, "allocation.rho: must be 'equal' where radio"),
        ("predict", {"allocation.beta": [0.3, 0.7]}, f"allocation.beta: must be 'equal' {DIVIDED}"),
        ("predict", {"radio.wifi.standard": "b"}, "radio.wifi.standard: must be 'n', 'ac'"),
        (
            "predict",
            {"radio.wifi.width_mhz": 80},
            "radio.wifi.width_mhz: must be one of 20, 40 for 802.11n, not 80",
        ),
        (
            "predict",
            {"radio.wifi.standard": "ac", "radio.wifi.width_mhz": 30},
            "radio.wifi.width_mhz: must be one of 20, 40, 80, 160 for 802.11ac, not 30",
        ),
        (
            "predict",
            {"radio.wifi.access_point_power_w": 101},
            "radio.wifi.access_point_power_w: must be at most 100",
        ),
        (
            "predict",
            {"radio.wifi.access_point_power_w": 0},
            "radio.wifi.access_point_power_w: must be above 0",
        ),
        (
            "predict",
            {"links.loss": {"model": "snr", "threshold_db": 3}},
            "links: must have no loss, no jitter, and one delay where the UAVs that send",
        ),
        ("cross-check", {}, "emulation.air: must be 'ns3' where radio.access is 'wifi'"),
        ("run", {}, CONTENDS),
        (
            "run",
            {"emulation.clock": "virtual"},
            CONTENDS,
        ),
        ("up", {}, CONTENDS),
        (
            "up",
            {"emulation.clock": "virtual"},
            CONTENDS,
        ),
    ],
)
def test_what_wifi_cannot_be_asked_is_one_line(tmp_path, command, keys, says):
    tree = {"uavs": {"tx_power_w": [1, 1]}, "workload": {"compute": "none"}}
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(tree | {"radio": {"access": "wifi"}}))
    np.savez(tmp_path / "t.npz", gain=np.full((2, 5000), NEAR), slot_s=0.1)
    words = [command, "s.yaml", *(f"--set={key}={value}" for key, value in keys.items())]
    words += {
        "predict": ["--trace", "t.npz", "--json", "out"],
        "theory": [],
        "cross-check": ["--trace", "t.npz", "--json", "out"],
        "run": ["--trace", "t.npz", "--out", "out"],
        "up": ["--trace", "t.npz", "--out", "out", "--seconds", "1"],
    }[command]
    done = warm.run(*words, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_delay_is_predicted_and_loss_is_not():
    given = {"gain": np.full((2, 5000), NEAR), "slot_s": 0.1}
    tree = {"uavs": {"tx_power_w": [1, 1]}, "radio": {"access": "wifi"}, "links": {"loss": 0.01}}
    with pytest.raises(InputError, match=r"links: must have no loss, no jitter, and one delay"):
        validate(tree, "test")
    late = validate(tree | {"links": {"one_way_delay_s": 0.02}}, "test")
    at_once = validate(tree | {"links": {}}, "test")
    ends_s = [tb.predict(each, given, rounds=1, wire=True).end_s for each in (late, at_once)]
    assert ends_s[0] > ends_s[1] + 4 * 0.02


def test_rates_of_a_trace_need_no_access_point():
    rate = np.full((3, 5000), 1e7)
    with pytest.raises(InputError, match=r"^radio\.access: must be 'shannon' where the trace has"):
        tb.predict(scenario(), {"uplink_bps": rate, "downlink_bps": rate, "slot_s": 0.1})


def test_rounds_are_predicted_and_the_power_is_said_once(caplog):
    _log_once.cache_clear()
    given = {"gain": np.full((3, 5000), NEAR), "slot_s": 0.1}
    timeline = tb.predict(scenario(), given, rounds=2)
    assert all(0 < round_.latency_s < 500 for round_ in timeline)
    said = [line for line in caplog.messages if line.startswith("the access point sends")]
    assert said == [
        "the access point sends with 1 W; base_station.tx_power_w, 40 W, is more than Wi-Fi may "
        "send with"
    ]
