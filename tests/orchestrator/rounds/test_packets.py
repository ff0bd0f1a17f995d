# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""ns-3's packets: links that carry what their rates say, and rounds that go as the engine's do."""

import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packet_cases import fading, small
from small_scenario import TREE

from ns3_scenarios.errors import ChannelError
from ns3_scenarios.packets import CONGESTION_CONTROLS, Arrival, PacketNetwork, PacketSettings
from ns3_scenarios.trace import ChannelTrace, Replay
from orchestrator.analysis.error_budget import join
from orchestrator.engine.plan import link_bytes
from orchestrator.rounds import packet_rounds
from orchestrator.rounds.loop import predict
from orchestrator.rounds.packet_rounds import play
from orchestrator.scenario.channel import open_source
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Links
from testbed.core.errors import InputError
from testbed.core.impairment import Impairment, Losses
from testbed.core.paradigm import BUILT_IN
from testbed.core.timeline import STEPS, Timeline
from testbed.transport.framing import Framing

SLOT_NS = 100_000_000
FAR_NS = 10**12


def transfer(network: PacketNetwork, down: bool, size: int, rates_bps: np.ndarray) -> float:
    """Seconds that a message over link 1 takes when it is handed in at 0."""
    network.send(1, down, size)
    for slot, rate in enumerate(rates_bps):
        network.rates([rate], [rate])
        now_ns, arrived = network.advance((slot + 1) * SLOT_NS)
        if arrived:
            assert [(a.link, a.down) for a in arrived] == [(1, down)]
            return now_ns / 1e9
    raise AssertionError("it did not arrive")


def integral_s(rates_bps: np.ndarray, size: int) -> float:
    edges = np.concatenate([[0], np.cumsum(rates_bps * 0.1)])
    return float(np.interp(8 * size, edges, np.arange(len(edges)) * 0.1))


@pytest.mark.parametrize("down", [False, True], ids=["up", "down"])
@pytest.mark.parametrize("mtu", [576, 1500, 9000])
@pytest.mark.parametrize("control", CONGESTION_CONTROLS)
def test_a_transfer_takes_the_integral_of_its_rates(control: str, mtu: int, down: bool) -> None:
    rates = np.random.default_rng(1).uniform(4e6, 40e6, 40)
    size = 1_234_567
    settings = PacketSettings(links=1, mtu=mtu, congestion_control=control)
    with PacketNetwork(settings) as network:
        took_s = transfer(network, down, size, rates)
        counts = network.counts()
    # A frame in flight is finished at its old rate; BBR paces, and now and then probes for the
    # shortest round trip by sending little.
    due_s = integral_s(rates, Framing(mtu).on_link(size))
    frame_s = 8 * (mtu + 14) / rates.min()
    assert -frame_s < took_s - due_s < frame_s + (0.01 * due_s if control == "bbr" else 0)
    end = (counts.downlink if down else counts.uplink)[0]
    back = (counts.uplink if down else counts.downlink)[0]
    whole, handshake = Framing(mtu).on_link(size), 2 * (14 + 60)
    assert end.dropped_frames == back.dropped_frames == 0
    assert whole < end.sent_bytes <= whole + handshake
    segments = -(-size // Framing(mtu).segment_bytes)
    assert segments / 2 <= back.sent_frames <= segments / 2 + 4
    assert counts.events > 3 * segments


def test_frames_count_with_the_header_they_are_given() -> None:
    """The same IP packets, with and without Ethernet's header in the rate."""
    rates, size = np.full(20, 8e6), 1_000_000
    segments = -(-size // 1448)
    for header in (2, 14, 38):
        with PacketNetwork(PacketSettings(links=1, frame_header_bytes=header)) as network:
            took_s = transfer(network, False, size, rates)
        due_s = 8 * (size + segments * (52 + header)) / 8e6
        assert took_s == pytest.approx(due_s, abs=8 * header / 8e6 + 1e-6)


def test_one_acknowledgement_for_what_a_kernel_handles_as_one_packet() -> None:
    rates, size = np.full(10, 100e6), 1_448_000
    acks = {}
    for packet_s in (0.0, 1e-3):
        with PacketNetwork(PacketSettings(links=1, packet_s=packet_s)) as network:
            transfer(network, True, size, rates)
            acks[packet_s] = network.counts().uplink[0].sent_frames
    assert acks[0.0] == pytest.approx(500, abs=10)
    assert acks[1e-3] == pytest.approx(1000 / 8, abs=10)


def test_delay_is_added_once_where_the_window_allows() -> None:
    rates, size = np.full(40, 2e6), 200_000
    took = []
    for delay_s in (0.0, 0.005):
        with PacketNetwork(PacketSettings(links=1, delay_s=delay_s)) as network:
            took.append(transfer(network, False, size, rates))
    assert took[1] - took[0] == pytest.approx(0.005, abs=1e-4)


@pytest.mark.parametrize("control", ["cubic", "reno"])
def test_a_connection_starts_slowly_again_after_a_pause(control: str) -> None:
    settings = PacketSettings(links=1, delay_s=0.02, congestion_control=control)
    with PacketNetwork(settings) as network:
        network.rates([100e6], [100e6])
        took = []
        for start_ns in (0, 4 * 10**9, 8 * 10**9, 8_600_000_000):
            while network.advance(start_ns)[0] < start_ns:
                pass
            network.send(1, False, 1_000_000)
            took.append((network.advance(FAR_NS)[0] - start_ns) / 1e9)
    # Some round trips of slow start to fill the path, unless the pause was short.
    assert took[1] == pytest.approx(took[0], abs=0.05)
    assert took[2] == pytest.approx(took[1], abs=0.01)
    assert took[3] < took[2] - 0.1


@pytest.mark.parametrize("control", ["cubic", "reno"])
def test_a_slow_start_doubles_the_window_each_round_trip(control: str) -> None:
    settings = PacketSettings(links=1, delay_s=0.05, congestion_control=control, packet_s=0.25e-3)
    with PacketNetwork(settings) as network:
        took = transfer(network, True, 1448 * (10 + 20 + 40 + 80), np.full(20, 1e9))
    assert took == pytest.approx(3 * 0.1 + 0.05, abs=0.005)


@pytest.mark.parametrize("control", ["cubic", "reno"])
def test_a_window_grows_where_the_sender_knows_of_the_queue_below(control: str) -> None:
    """9.6 MB through a pipe of 1,080 frames take Linux 0.507 s."""
    settings = PacketSettings(links=1, delay_s=0.02, congestion_control=control, packet_s=0.25e-3)
    with PacketNetwork(settings) as network:
        took = transfer(network, True, 9_633_792, np.full(20, 318e6))
    assert took == pytest.approx(0.507, rel=0.02)


def lossy(probability: float) -> Impairment:
    return Impairment(0.0, 0.0, Losses(0.0, 1.0, probability, 0.0), 1)


def test_losses_cost_little_where_packets_are_longer_than_the_window() -> None:
    """Who acknowledges more than the sender's window holds waits for a timer, 40 ms each time."""
    air = [(Impairment(), lossy(0.01))]
    with PacketNetwork(PacketSettings(links=1, impairments=air, packet_s=0.25e-3)) as network:
        assert transfer(network, True, 24_000_000, np.full(100, 700e6)) < 3


def test_no_connection_s_window_hardly_grows() -> None:
    """ns-3 copies what a listener has set for each connection, but for a member of its cubic's."""
    air = [(Impairment(0.005), replace(lossy(0.01), delay_s=0.005, seed=k)) for k in range(10)]
    with PacketNetwork(PacketSettings(links=10, impairments=air)) as network:
        network.rates([300e6] * 10, [300e6] * 10)
        for link in range(1, 11):
            network.send(link, True, 3_000_000)
        arrived: list[Arrival] = []
        while len(arrived) < 10:
            now_ns, more = network.advance(FAR_NS)
            arrived += more
    assert now_ns / 1e9 < 2.5  # 1.6 s; 4.6 s where some do


def test_a_pause_is_no_round_trip() -> None:
    """What data acknowledge counts as acknowledged: else the next loss costs some pauses."""
    with PacketNetwork(
        PacketSettings(links=1, impairments=[(Impairment(), lossy(0.05))])
    ) as network:
        network.rates([50e6], [50e6])
        for start_ns in range(0, FAR_NS // 2, 20 * 10**9):
            while network.advance(start_ns)[0] < start_ns:
                pass
            for down in (True, False):
                network.send(1, down, 20_000)
                now_ns, arrived = network.advance(FAR_NS)
                assert arrived
            assert (now_ns - start_ns) / 1e9 < 3


def test_an_outage_holds_frames_and_lets_them_go_on() -> None:
    size = 100_000
    with PacketNetwork(PacketSettings(links=2)) as network:
        rates = np.array([8e6, 0, 0, 8e6, 8e6])
        took_s = transfer_on(network, rates, size)
    whole_s = 8 * Framing(1500).on_link(size) / 8e6
    # What was being sent when the link went out has left; TCP has sent some frames again.
    assert took_s == pytest.approx(whole_s + 0.2, abs=4 * 1514 * 8 / 8e6)


def transfer_on(network: PacketNetwork, rates: np.ndarray, size: int) -> float:
    """The same with a second link that is always there, and is not disturbed."""
    for link in (1, 2):
        network.send(link, False, size)
    ends: dict[int, float] = {}
    for slot, rate in enumerate(rates):
        network.rates([rate, 8e6], [rate, 8e6])
        now_ns = 0
        while now_ns < (slot + 1) * SLOT_NS:
            now_ns, arrived = network.advance((slot + 1) * SLOT_NS)
            ends |= {a.link: now_ns / 1e9 for a in arrived}
    assert ends[2] == pytest.approx(8 * Framing(1500).on_link(size) / 8e6, abs=1e-3)
    return ends[1]


def test_a_message_that_meets_an_outage_waits_for_its_end() -> None:
    with PacketNetwork(PacketSettings(links=1)) as network:
        network.rates([0.0], [0.0])
        network.advance(SLOT_NS)
        network.send(1, True, 1000)
        assert network.advance(5 * SLOT_NS) == (5 * SLOT_NS, [])
        network.rates([8e6], [8e6])
        now_ns, arrived = network.advance(FAR_NS)
        assert arrived
        # TCP may have tried again in between, and backed off.
        assert now_ns / 1e9 == pytest.approx(0.5 + 8 * 1066 / 8e6, abs=2e-5)


def test_messages_arrive_in_order_and_both_ways_at_once() -> None:
    with PacketNetwork(PacketSettings(links=2)) as network:
        network.rates([8e6, 8e6], [8e6, 8e6])
        for size in (10_000, 10, 5_000):
            network.send(2, False, size)
        network.send(2, True, 20_000)
        seen = []
        now_ns = 0
        while now_ns < SLOT_NS:
            now_ns, arrived = network.advance(SLOT_NS)
            seen += [(a.link, a.down) for a in arrived]
    assert sorted(seen) == [(2, False)] * 3 + [(2, True)]


def test_what_ns3_refuses_is_told() -> None:
    with PacketNetwork(PacketSettings(links=1, mtu=20)) as network, pytest.raises(ChannelError):
        network.advance(1)


def test_the_process_imports_nothing_heavy() -> None:
    code = "import sys, ns3_scenarios.packets_process; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path("/")
    ).stdout.split()
    assert not {"numpy", "torch", "pandas", "cppyy", "ns3"} & set(loaded)


# --- rounds --------------------------------------------------------------------------------------


def latency_error(measured: Timeline, expected: Timeline) -> float:
    return max(abs(a.latency_s / b.latency_s - 1) for a, b in zip(measured, expected, strict=True))


@pytest.mark.parametrize("paradigm", BUILT_IN, ids=lambda p: p.name)
def test_every_paradigm_goes_as_the_engine_says(paradigm) -> None:
    scenario = small(paradigm=paradigm.name, rounds=2)
    source, profile = fading(), profile_of(scenario)
    wire = predict(scenario, source, profile, sizing=link_bytes)
    played = play(scenario, source, profile).timeline
    assert latency_error(played, wire) < 2e-3
    both = join(wire, played)
    # Nobody is served out of turn: each step starts within a few frames of the prediction.
    assert np.abs(both["start_s_measured"] - both["start_s_predicted"]).max() < 0.02
    assert np.abs(both["duration_s_measured"] - both["duration_s_predicted"]).max() < 0.01
    for got, due in zip(played, wire, strict=True):
        assert got.energy_j == pytest.approx(due.energy_j, rel=2e-3)
        assert got.objective == pytest.approx(due.objective, rel=2e-3)


def test_uavs_that_differ_go_as_the_engine_says() -> None:
    fleet = {"compute_flops": [1e12, 4e12, 2.5e11], "compute_power_w": [10, 20, 40]}
    scenario = small(uavs=TREE["uavs"] | fleet)
    source, profile = fading(), profile_of(scenario)
    wire = predict(scenario, source, profile, sizing=link_bytes)
    played = play(scenario, source, profile).timeline
    both = join(wire, played)
    assert np.abs(both["start_s_measured"] - both["start_s_predicted"]).max() < 0.02
    forward_s = both[both["step"] == "CF"].groupby("client")["duration_s_measured"].mean()
    # 2 samples of 40 GFLOP each.
    assert forward_s.tolist() == pytest.approx([8e10 / f for f in fleet["compute_flops"]])
    assert played.rounds[0].energy_j == pytest.approx(wire.rounds[0].energy_j, rel=2e-3)


def test_rounds_follow_without_a_gap_and_name_their_payload() -> None:
    scenario = small(rounds=2)
    played = play(scenario, fading(), profile_of(scenario)).timeline
    first, second = played.rounds
    assert second.start_s == pytest.approx(first.start_s + first.latency_s, abs=2e-9)
    sizes = {STEPS[row["step"]]: int(row["bytes"]) for row in first.spans}
    assert sizes["SM"] == sizes["CM"] == 80_000
    assert sizes["CA"] == sizes["SG"] == 200_000
    assert sizes["CF"] == sizes["S"] == sizes["CB"] == 0


def test_links_carry_the_bytes_of_messages_frames_and_acknowledgements() -> None:
    scenario = small()
    counts = play(scenario, fading(), profile_of(scenario)).counts
    on_link = Framing(1500).on_link
    header = 48
    up = 2 * on_link(200_000 + 8 + header) + on_link(80_000 + header) + 3 * on_link(header)
    down = 2 * on_link(200_000 + header) + on_link(80_000 + header) + on_link(header)
    for end, message, other in (
        *((end, up, down) for end in counts.uplink),
        *((end, down, up) for end in counts.downlink),
    ):
        acks = other / 1514 / 2
        assert message < end.sent_bytes < message + 66 * (acks + 12)
        assert end.dropped_frames == 0


def test_where_the_rate_counts_payload_headers_cost_nothing() -> None:
    scenario = small({"rate_counts": "payload"})
    source, profile = fading(), profile_of(scenario)
    wire = predict(scenario, source, profile, sizing=link_bytes)
    assert latency_error(play(scenario, source, profile).timeline, wire) < 3e-3


def test_each_transfer_of_the_critical_path_takes_the_delay_once() -> None:
    scenario = small(
        uavs={"tx_power_w": [1]},
        workload=TREE["workload"] | {"local_iterations": 1},
        radio={"uplink_bandwidth_hz": 1e6, "downlink_bandwidth_hz": 1e6},
    )
    source, profile = fading(1), profile_of(scenario)
    at_once = play(scenario, source, profile).timeline.rounds[0].latency_s
    later = play(scenario, source, profile, delay_s=0.002).timeline.rounds[0].latency_s
    # SM, CA, SG and CM; the receipts are on nobody's way.
    assert later - at_once == pytest.approx(4 * 0.002, rel=0.15)


def test_the_links_are_the_scenario_s() -> None:
    """Its delay, its window: each makes a difference that another way of saying it makes, too."""
    source, profile = fading(), profile_of(small())

    def latency_s(links_s: float, delay_s: float | None = None, **emulation: object) -> float:
        scenario = small(emulation, links={"one_way_delay_s": links_s})
        return play(scenario, source, profile, delay_s=delay_s).timeline.rounds[0].latency_s

    delayed_s = latency_s(0.01)
    assert latency_s(0.0, delay_s=0.01) == delayed_s
    assert latency_s(0.01, delay_s=0.0) == latency_s(0.0)
    assert latency_s(0.01, initial_window=100) < delayed_s - 0.02


@pytest.mark.parametrize(("loss", "is_cut"), [(0.0, False), (0.01, True)])
def test_packets_that_the_kernel_cuts_into_frames_are_acknowledged_as_such(
    loss: float, is_cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []

    class Noted(PacketNetwork):
        def __init__(self, settings: PacketSettings, *rest: Any):
            given.append(settings.packet_s)
            super().__init__(settings, *rest)

    monkeypatch.setattr(packet_rounds, "PacketNetwork", Noted)
    scenario = small(links={"loss": loss})
    play(scenario, fading(), profile_of(scenario))
    assert [packet_s == 0 for packet_s in given] == [is_cut]


def test_outages_are_played() -> None:
    scenario = small()
    gain = fading().trace(4000).gain.copy()
    gain[1, 3:9] = 0.0
    source, profile = Replay(ChannelTrace(gain, 0.1)), profile_of(scenario)
    wire = predict(scenario, source, profile, sizing=link_bytes)
    assert latency_error(play(scenario, source, profile).timeline, wire) < 5e-3


@pytest.mark.parametrize(
    ("change", "source", "message"),
    [
        ({"congestion_control": "vegas"}, fading, "congestion_control: must be 'cubic' or"),
        ({"transport": "tls"}, fading, "emulation.transport: must be 'tcp' for ns-3"),
        ({"connection": "per-transfer"}, fading, "emulation.connection: must be 'kept' for ns"),
        ({}, lambda: fading(slots=3), "trace: its 3 slots end"),
    ],
    ids=["congestion control", "transport", "connection", "short trace"],
)
def test_what_cannot_be_played_is_refused(
    change: dict[str, object], source: Callable[[], Replay], message: str
) -> None:
    scenario = small(change)
    with pytest.raises(InputError, match=message):
        play(scenario, source(), profile_of(scenario))


CRASH = {"kind": "uav-crash", "nodes": ["uav2"], "at_s": 0.3}
CORRUPT = {"kind": "corrupt-frame", "nodes": ["uav3"], "at_s": 0.1}
DROP = {"on_loss": "drop", "loss_timeout_s": 0.4}
PROTOCOLS: dict[str, dict[str, Any]] = {
    **{name: {"paradigm": name} for name in ("asfl-pp", "asfl-sp", "asfl-ps")},
    "gate": {"paradigm": "sfl-pp", "uploads": {"adapters_wait_for_all": True}},
    "in turn": {"paradigm": "cpsfl", "uploads": {"sharing": "sequential"}},
    "asynchronous in turn": {"paradigm": "asfl-ps", "uploads": {"sharing": "sequential"}},
    "asynchronous by lag": {"paradigm": "asfl-ps", "order": "larger-lag"},
    "aggregated": {
        "paradigm": "sfl-sp",
        "workload": TREE["workload"] | {"gradient_aggregation": 0.5},
    },
    "crash": {"faults": DROP | {"events": [CRASH]}},
    "corrupt frame": {"paradigm": "sfl-pp", "faults": DROP | {"events": [CORRUPT]}},
    "asynchronous crash": {"paradigm": "asfl-ps", "faults": DROP | {"events": [CRASH]}},
    "deadline": {
        "paradigm": "sfl-pp",
        "participation": {"deadline_s": 0.7},
        "faults": {"on_loss": "drop"},
    },
}


@pytest.mark.parametrize("keys", PROTOCOLS.values(), ids=PROTOCOLS)
def test_other_protocols_and_faults_go_as_in_the_engine(keys: dict[str, Any]) -> None:
    """The same conductor plays both; what differs are the transfers."""
    scenario = small(**keys)
    source, profile = fading(), profile_of(scenario)
    wire = predict(scenario, source, profile, sizing=link_bytes)
    played = play(scenario, source, profile).timeline
    assert latency_error(played, wire) < 1e-3
    (ours,), (theirs,) = wire, played
    lost, due = ([(loss.client, loss.cause) for loss in each.lost] for each in (theirs, ours))
    assert lost == due
    assert bool(lost) == ("faults" in keys)
    moments, due_s = ([loss.lost_s for loss in each.lost] for each in (theirs, ours))
    assert moments == pytest.approx(due_s, abs=1e-3)
    columns = ["client", "iteration", "step"]
    done, due_steps = (
        set(each.spans[each.spans["end_s"] < ours.end_s - 0.01][columns].tolist())
        for each in (theirs, ours)
    )
    assert done == due_steps


CELL = {"access": "lte", "uplink_bandwidth_hz": 5e6, "downlink_bandwidth_hz": 5e6}


def test_packets_pass_an_lte_cell_that_uavs_share() -> None:
    """One UAV: the engine, with the delay of grants and TCP's slow start added by ns-3."""
    scenario = small(radio=CELL, uavs={"tx_power_w": [1]}, rounds=2)
    source, profile = fading(1), profile_of(scenario)
    wire = predict(scenario, source, profile, sizing=link_bytes)
    played = play(scenario, source, profile)
    assert packet_rounds.simulated_radio(scenario) == "ns-3's LTE"
    both = join(wire, played.timeline)
    added_s = both["duration_s_measured"] - both["duration_s_predicted"]
    transfers = both["step"].isin(["SM", "CA", "SG", "CM"])
    assert added_s[transfers].between(0.0, 0.15).all()
    assert (added_s[transfers] > 0.0015).all()  # the radio's way, in the downlink
    assert np.abs(added_s[~transfers]).max() < 1e-6
    # 18 Mbit/s at most, in packets without Ethernet's header.
    up = Framing(1500).on_link(2 * 200_000 + 80_000)
    assert played.counts.uplink[0].sent_bytes > 0.98 * 2 * up
    assert_same(play(scenario, source, profile), played)


def assert_same(first: packet_rounds.Played, second: packet_rounds.Played) -> None:
    assert first.timeline.frame().equals(second.timeline.frame())
    assert first.counts == second.counts


def test_decisions_are_based_on_the_model_s_rates() -> None:
    """Every paradigm is played, among them those whose order depends on rates."""
    for paradigm in ("cpsfl", "sfl-pp", "pipesfl"):
        scenario = small(radio=CELL, paradigm=paradigm)
        source, profile = fading(), profile_of(scenario)
        wire = predict(scenario, source, profile, sizing=link_bytes)
        played = play(scenario, source, profile).timeline
        assert 1 < played.rounds[0].latency_s / wire.rounds[0].latency_s < 3


def test_the_cell_s_channel_is_the_scenario_s() -> None:
    """20 dB less signal, or fading, from a slot on."""
    scenario = small(radio=CELL, uavs={"tx_power_w": [0.1]})
    profile = profile_of(scenario)
    gain = fading(1).trace(4000).gain
    weak = gain.copy()
    weak[:, 2:] *= 1e-4
    latency_s = [
        play(scenario, Replay(ChannelTrace(each, 0.1)), profile).timeline.rounds[0].latency_s
        for each in (gain, weak)
    ]
    assert latency_s[1] > 1.5 * latency_s[0]
    faded = small(radio=CELL | {"fading": "rayleigh", "doppler_hz": 50}, uavs={"tx_power_w": [0.1]})
    with open_source(faded, None) as source:
        played = play(faded, source, profile)
        assert_same(play(faded, source, profile), played)
    even = faded.model_copy(update={"radio": faded.radio.model_copy(update={"fading": "none"})})
    with open_source(even, None) as source:
        assert play(even, source, profile).counts.events != played.counts.events


def test_uavs_have_their_own_blocks_in_the_cell_of_the_scheduler_shares() -> None:
    """A third of the blocks each takes longer than sharing, by as much as in the model."""
    latency_s = []
    for lte in ({}, {"scheduler": "shares"}):
        scenario = small(radio=CELL | {"lte": lte}, emulation={"air": "ns3"})
        assert packet_rounds.simulated_radio(scenario) == "ns-3's LTE"
        source, profile = fading(), profile_of(scenario)
        wire = predict(scenario, source, profile, sizing=link_bytes)
        played = play(scenario, source, profile).timeline
        assert latency_error(played, wire) < 0.03
        latency_s.append(played.rounds[0].latency_s)
    assert latency_s[1] > 1.1 * latency_s[0]


def test_shares_that_a_policy_decides_are_those_of_links_at_the_model_s_rates() -> None:
    scenario = small(radio=CELL, allocation={"policy": "planner"})
    assert packet_rounds.simulated_radio(scenario) == ""


@pytest.mark.parametrize(
    ("radio", "emulation", "message"),
    [
        ({}, {"rate_counts": "payload"}, r"^emulation.rate_counts: must be 'frame' where ns-3"),
        ({"lte": {"layers": 2}}, {}, r"^radio.lte.layers: must be 1 for ns-3's LTE"),
        ({"lte": {"resource_blocks": 20}}, {}, r"^resource_blocks must be one of 6, 15, 25"),
    ],
)
def test_a_cell_that_ns3_does_not_have_is_refused(
    radio: dict[str, object], emulation: dict[str, object], message: str
) -> None:
    scenario = small(emulation, radio=CELL | radio)
    with pytest.raises(InputError, match=message):
        play(scenario, fading(), profile_of(scenario))


def test_the_air_loses_its_share_of_frames_the_same_for_a_seed() -> None:
    def lost(seed: int, losses: Losses) -> tuple[int, int]:
        air = Impairment(0.001, 0.0, losses, seed)
        settings = PacketSettings(links=1, impairments=[(air, Impairment(0.001))])
        with PacketNetwork(settings) as network:
            transfer(network, False, 2_000_000, np.full(3000, 20e6))
            count = network.counts().uplink[0]
        return count.lost_frames, count.sent_frames

    single = Losses(0.0, 1.0, 0.02, 0.0)
    frames, of = lost(1, single)
    assert abs(frames - 0.02 * of) < 4 * single.deviation(of)
    assert lost(1, single) == (frames, of)
    assert lost(2, single) != (frames, of)
    bursts = Losses(0.005, 0.25, 0.0, 1.0)
    frames, of = lost(1, bursts)
    assert abs(frames - bursts.mean * of) < 4 * bursts.deviation(of)


def test_slots_have_losses_and_delays_of_their_own() -> None:
    """All frames of a second are lost, and those from then on are 50 ms late."""
    settings = PacketSettings(
        links=1, impairments=[(Impairment(by_slot=True), Impairment(by_slot=True))]
    )
    with PacketNetwork(settings) as network:
        network.rates([20e6], [20e6])
        network.impair(np.array([[0.0, 0.0, 1.0]]), np.zeros((1, 3)))
        network.send(1, False, 1000)
        assert network.advance(10 * SLOT_NS) == (10 * SLOT_NS, [])
        assert network.counts().uplink[0].lost_frames > 1
        network.impair(np.array([[0.05, 0.0, 0.0]]), np.zeros((1, 3)))
        now_ns, arrived = network.advance(FAR_NS)
        assert arrived
        network.send(1, False, 1000)
        later_ns, arrived = network.advance(FAR_NS)
        assert 0.05 < (later_ns - now_ns) / 1e9 < 0.052


def test_a_round_over_frames_that_are_sent_again_goes_as_the_engine_says() -> None:
    """HARQ of one slot's signal-to-noise ratio in both: no frame is lost, each takes its time."""
    again = {"model": "snr", "table": [[-100, 0.2], [100, 0.2]], "retransmissions": 8}
    tree = {"loss": again | {"retransmission_s": 0.0}}
    scenario = small().model_copy(update={"links": Links.model_validate(tree)})
    source, profile = fading(), profile_of(scenario)
    plain = predict(small(), source, profile, sizing=link_bytes).rounds[0].latency_s
    wire = predict(scenario, source, profile, sizing=link_bytes)
    played = play(scenario, source, profile).timeline
    assert wire.rounds[0].latency_s > plain * 1.1
    assert latency_error(played, wire) < 5e-3


def test_each_direction_has_its_own_delay_and_jitter_keeps_the_order() -> None:
    for up, down in ((0.03, 0.01), (0.01, 0.03)):
        air = (Impairment(up), Impairment(down))
        with PacketNetwork(PacketSettings(links=1, impairments=[air])) as network:
            assert transfer(network, False, 100, np.full(40, 100e6)) == pytest.approx(up, abs=1e-3)
    shaky = Impairment(0.02, 0.005, None, 3)
    with PacketNetwork(PacketSettings(links=1, impairments=[(shaky, shaky)])) as network:
        took = transfer(network, False, 1_000_000, np.full(40, 20e6))
        assert network.counts().uplink[0].sent_frames == math.ceil(1_000_000 / 1448) + 2
    assert 0.42 < took < 0.8


def test_frames_that_overtake_make_tcp_send_again() -> None:
    """Of two transfers over the same jitter, only that with frames in order sends none again."""
    least = math.ceil(300_000 / 1448)
    for reorders in (False, True):
        shaky = Impairment(0.02, 0.005, None, 3, reorders=reorders)
        with PacketNetwork(PacketSettings(links=1, impairments=[(shaky, shaky)])) as network:
            transfer(network, False, 300_000, np.full(40, 20e6))
            again = network.counts().uplink[0].sent_frames - least - 2
        assert (again > 0) == reorders
