# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""ns-3's TCP over ns-3's LTE and Wi-Fi."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from processes import assert_ends_with_its_parent

from ns3_scenarios import radio
from ns3_scenarios.errors import ChannelError
from ns3_scenarios.packets import CONGESTION_CONTROLS, Counts, PacketSettings
from ns3_scenarios.radio import Air, LteSettings, WifiSettings
from ns3_scenarios.radio_packets import RadioPacketNetwork
from orchestrator.engine.lte import ASKED_TTIS, request_s
from testbed.core.impairment import Impairment, Losses

SLOT_NS = 100_000_000
FAR_NS = 10**12
Messages = Sequence[tuple[int, bool, int]]
"""Link, whether down, and bytes."""


def air(uavs: int, gain_db: float = -90.0, **fields: Any) -> Air:
    gain = np.full((uavs, 1), 10 ** (gain_db / 10))
    place = np.zeros((uavs, 1, 3))
    place[:, 0, 0] = 100.0 + np.arange(uavs)
    plain = Air(gain, gain, 1, 0.1, np.ones(uavs), 1.0, position_m=place, carrier_hz=5e9)
    return replace(plain, **fields)


def lte(uavs: int, **fields: Any) -> RadioPacketNetwork:
    unplaced = air(uavs, position_m=None)
    return RadioPacketNetwork(unplaced, LteSettings(), PacketSettings(links=uavs, **fields))


def carried(
    network: RadioPacketNetwork, messages: Messages, start_ns: int = 0
) -> list[tuple[int, bool, int]]:
    """Hand in messages at a time; the link, direction and arrival time in ns of each."""
    while network.advance(start_ns)[0] < start_ns:
        pass
    for link, down, size in messages:
        network.send(link, down, size)
    seen: list[tuple[int, bool, int]] = []
    while len(seen) < len(messages):
        now_ns, arrived = network.advance(FAR_NS)
        seen += [(each.link, each.down, now_ns) for each in arrived]
    return seen


def test_all_messages_arrive_on_their_links() -> None:
    sent = [(1, False, 3000), (2, True, 5000), (2, False, 100), (1, True, 10), (2, False, 4000)]
    with lte(2) as network:
        seen = carried(network, sent)
        counts = network.counts()
    ways = sorted((link, down) for link, down, _ in seen)
    assert ways == sorted((link, down) for link, down, _ in sent)
    # An uplink is granted some TTIs after its request; the downlink needs no request.
    assert all(2e6 < at < 40e6 for *_, at in seen)
    for ends, least in ((counts.uplink, (3000, 4100)), (counts.downlink, (10, 5000))):
        for end, size in zip(ends, least, strict=True):
            assert size < end.sent_bytes < size + 60 * 12
            assert end.dropped_frames == 0


@pytest.mark.parametrize(
    ("cell", "level"), [(LteSettings(), 1e-13), (WifiSettings(), 1e-10)], ids=["lte", "wifi"]
)
def test_equal_networks_carry_the_same_packets_at_the_same_times(
    cell: LteSettings | WifiSettings, level: float
) -> None:
    """With fading, blocks or frames that are lost, and delay and loss behind the radio."""
    rng = np.random.default_rng(2)
    fading = rng.exponential(size=(2, 2, 100))
    fading[..., [0, -1]] = 1.0  # before and after slot 0
    link = [
        tuple(Impairment(0.003, 0.001, Losses(0.0, 1.0, 0.01, 0.0), k + way) for way in (0, 1))
        for k in (0, 2)
    ]

    def played(seed: int) -> tuple[list[tuple[int, bool, int]], Counts]:
        gain = level * fading
        first = air(2, uplink_gain=gain[0], downlink_gain=gain[1], seed=seed)
        assert first.position_m is not None
        with RadioPacketNetwork(first, cell, PacketSettings(links=2, impairments=link)) as network:
            network.gains(0, *gain[:, None], first.position_m[:, 0])
            seen = carried(network, [(1, False, 90_000), (2, True, 90_000), (1, True, 50_000)])
            return seen, network.counts()

    first = played(1)
    assert played(1) == first
    assert played(2) != first


def test_an_uplink_that_wakes_up_waits_for_a_request_and_its_grant() -> None:
    """Messages of one packet at all phases of the period, while nothing else is sent."""

    def delays_ms(period_s: float, down: bool) -> Any:
        cell = LteSettings(scheduling_request_s=period_s)
        starts_ns = 10**8 + (200 + 2) * 10**6 * np.arange(10)
        with RadioPacketNetwork(air(1, position_m=None), cell, PacketSettings(links=1)) as network:
            ends_ns = [carried(network, [(1, down, 100)], at)[0][2] for at in starts_ns.tolist()]
        return (np.array(ends_ns) - starts_ns) / 1e6

    for period_s in (0.005, 0.02):
        more_ms = delays_ms(period_s, down=False) - delays_ms(0.0, down=False)
        period_ms = 1e3 * period_s
        assert (more_ms > ASKED_TTIS - 1.01).all()
        assert (more_ms < ASKED_TTIS + period_ms + 0.01).all()
        assert more_ms.mean() == pytest.approx(1e3 * request_s(period_s), abs=1.1)
        assert delays_ms(period_s, down=True) == pytest.approx(delays_ms(0.0, down=True), abs=1.1)


@pytest.mark.parametrize("down", [False, True], ids=["up", "down"])
@pytest.mark.parametrize("control", CONGESTION_CONTROLS)
def test_a_long_transfer_fills_the_cell(control: str, down: bool) -> None:
    """TBS(MCS 28, 100 resource blocks) per TTI, without headers: docs/lte.md."""
    size = 30_000_000
    with lte(1, congestion_control=control) as network:
        ((*_, at_ns),) = carried(network, [(1, down, size)])
    block_bytes = 75_376 / 8 - 2
    ip_share = 1500 / (1500 + 3.5)
    due_s = size / (1448 / 1500) / (1e3 * block_bytes * ip_share)
    # BBR now and then sends little, to measure the round trip.
    assert 1 < at_ns / 1e9 / due_s < (1.12 if control == "bbr" else 1.02)


def test_links_share_the_cell_equally() -> None:
    size = 4_000_000
    for down in (False, True):
        with lte(3) as network:
            seen = carried(network, [(link, down, size) for link in (1, 2, 3)])
        ends_s = [at / 1e9 for *_, at in seen]
        assert ends_s[0] > 0.93 * ends_s[-1]
        assert 3 * 8 * size / ends_s[-1] == pytest.approx(71e6, rel=0.03)


def test_the_channel_is_that_of_the_slot() -> None:
    """An uplink in slots of a strong signal, of none, and of a weak one."""
    gains = {0: 1e-9, 1: 0.0, 2: 0.0, 3: 1e-13}
    size = 1_200_000  # more than one strong slot carries
    with lte(1) as network:
        network.send(1, False, size)
        now_ns, slot, arrived = 0, -1, []
        while not arrived:
            slot += 1
            gain = np.full((1, 1, 1), gains.get(slot, 1e-9))
            network.gains(slot, gain, gain)
            now_ns, arrived = network.advance((slot + 1) * SLOT_NS)
    # 0.9 MB in slot 0, and hardly anything in the three after it. TCP's timeout doubles there.
    assert 0.4 < now_ns / 1e9 < 0.9


def test_acknowledgements_take_no_more_of_the_uplink_than_they_need() -> None:
    """A UAV that sends nothing else has a few resource blocks, not half of them."""
    upload, download = (1, False, 4_000_000), (2, True, 12_000_000)
    with lte(2) as network:
        [(_, _, alone_ns)] = carried(network, [upload])
    with lte(2) as network:
        (client, down, beside_ns), _ = carried(network, [upload, download])
    assert (client, down) == (1, False)
    assert alone_ns < beside_ns < 1.3 * alone_ns


def test_tcp_outlives_a_long_outage() -> None:
    """Linux sends a segment again 15 times; ns-3's TCP would end the connection after 26 s."""
    nothing, strong = np.zeros((1, 1, 1)), np.full((1, 1, 1), 1e-9)
    with lte(1) as network:
        network.gains(0, nothing, nothing)
        network.send(1, False, 20_000)
        assert network.advance(30 * 10**9) == (30 * 10**9, [])
        network.gains(300, strong, strong)
        now_ns, arrived = network.advance(FAR_NS)
    assert arrived
    assert 30e9 < now_ns < 90e9


def test_packets_wait_in_the_host_s_queue_until_it_is_full() -> None:
    """A window that is larger than what the radio access and the queue hold: 100 kB and packets."""
    dropped = {}
    for frames in (20, 1000):
        with lte(1, initial_window=300, queue_frames=frames) as network:
            carried(network, [(1, True, 400_000)])
            dropped[frames] = network.counts().downlink[0].dropped_frames
    assert dropped[1000] == 0
    assert dropped[20] == pytest.approx(276 - 68 - 20, abs=8)


def test_delay_is_added_behind_the_radio_and_losses_are_counted() -> None:
    late = Impairment(0.05)
    with lte(1) as plain, lte(1, impairments=[(Impairment(), late)]) as delayed:
        ((*_, at_ns),) = carried(plain, [(1, True, 1000)])
        ((*_, later_ns),) = carried(delayed, [(1, True, 1000)])
        assert later_ns - at_ns == 50_000_000
        delayed.impair(np.zeros((1, 3)), np.array([[0.02, 0.0, 0.0]]))
        ((*_, at_ns),) = carried(plain, [(1, True, 1000)], 10**9)
        ((*_, later_ns),) = carried(delayed, [(1, True, 1000)], 10**9)
        assert later_ns - at_ns == 20_000_000
    lossy = Impairment(0.0, 0.0, Losses(0.0, 1.0, 0.1, 0.0), 1)
    with lte(1, impairments=[(lossy, Impairment())]) as network:
        carried(network, [(1, False, 300_000)])
        lost = network.counts().uplink[0].lost_frames
    assert lost == pytest.approx(23, abs=12)


@pytest.mark.parametrize("mtu", [576, 1500, 9000])
def test_packets_of_any_size_pass_lte(mtu: int) -> None:
    size = 500_000
    with lte(1, mtu=mtu) as network:
        carried(network, [(1, False, size), (1, True, size)])
        count = network.counts().uplink[0]
    segments = -(-size // (mtu - 52))
    assert count.sent_bytes > size + 52 * segments
    assert segments <= count.sent_frames


def test_wifi_carries_messages_in_both_directions() -> None:
    size = 500_000
    with RadioPacketNetwork(air(2), WifiSettings(), PacketSettings(links=2)) as network:
        seen = carried(network, [(1, False, size), (2, True, size)])
    # 802.11n at 20 MHz: 72.2 Mbit/s without any overhead.
    assert 8 * size / 72.2e6 < seen[-1][-1] / 1e9 < 8 * size / 10e6


def test_wifi_hears_by_the_positions_of_the_slot() -> None:
    """UAVs that do not hear each other collide."""
    size = 3_000_000

    far = np.array([[[-2000.0, 0, 0]], [[2000.0, 0, 0]]])
    first = air(2, -85.0, position_m=far)

    def took_s(place: np.ndarray) -> float:
        with RadioPacketNetwork(first, WifiSettings(), PacketSettings(links=2)) as network:
            network.gains(0, first.uplink_gain[None], first.downlink_gain[None], place)
            return carried(network, [(1, False, size), (2, False, size)])[-1][-1] / 1e9

    assert took_s(far[:, 0]) > 1.05 * took_s(np.abs(far[:, 0]))


def test_a_uav_without_a_connection_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    weak = air(2).uplink_gain.copy()
    weak[1] = 1e-13
    with pytest.raises(ChannelError, match=r"^ns-3's TCP: no connection .* within 3 s .*: UAV 2$"):
        RadioPacketNetwork(air(2, uplink_gain=weak), WifiSettings(), PacketSettings(links=2))
    monkeypatch.setattr(radio, "ATTACH_S", 0.01)
    with pytest.raises(ChannelError, match=r"^ns-3's LTE: did not attach .*: UAV 1, UAV 2$"):
        lte(2)


@pytest.mark.parametrize(
    ("cell", "fields", "says"),
    [
        (LteSettings(30), {}, "resource_blocks must be one of 6, 15, 25, 50, 75, 100"),
        (LteSettings(), {"links": 3}, "links must be 2, one per UAV, not 3"),
        (WifiSettings(), {"mtu": 2297}, "mtu must be at most 2296 with Wi-Fi, not 2297"),
    ],
)
def test_what_the_radio_access_does_not_have_is_refused(
    cell: LteSettings | WifiSettings, fields: dict[str, int], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        RadioPacketNetwork(air(2), cell, replace(PacketSettings(links=2), **fields))


def test_a_slot_of_another_shape_is_refused() -> None:
    gain, place = np.full((1, 2, 1), 1e-9), np.zeros((2, 3))
    with RadioPacketNetwork(air(2), LteSettings(), PacketSettings(links=2)) as network:
        for given in ((gain[:, :1], gain), (gain, np.full((1, 2, 2), 1e-9))):
            with pytest.raises(ValueError, match=r"_gain must have shape \[1, 2, 1\]"):
                network.gains(0, *given, place)
        for wrong in (None, place[:1]):
            with pytest.raises(ValueError, match=r"position_m must have shape \[2, 3\]"):
                network.gains(0, gain, gain, wrong)
        network.gains(0, gain, gain, place)
        assert network.advance(1) == (1, [])


def test_wifi_carries_its_largest_packets() -> None:
    settings = PacketSettings(links=1, mtu=2296)
    with RadioPacketNetwork(air(1), WifiSettings(), settings) as network:
        assert carried(network, [(1, True, 20_000)])


ORPHANAGE = """
import os, sys, time
import numpy as np
from ns3_scenarios.packets import PacketSettings
from ns3_scenarios.radio import Air, LteSettings
from ns3_scenarios.radio_packets import RadioPacketNetwork
gain = np.full((1, 1), 1e-9)
air = Air(gain, gain, 1, 0.1, np.ones(1), 40.0)
network = RadioPacketNetwork(air, LteSettings(), PacketSettings(links=1))
sibling = os.fork() if "forked" in sys.argv else 0
if "forked" in sys.argv and not sibling:
    time.sleep(60)  # holds the pipes open
print(network._child.process.pid, sibling, flush=True)
if "busy" in sys.argv:
    network.send(1, False, 10**9)
    network.advance(10**12)
time.sleep(60)
"""


@pytest.mark.parametrize("how", ["busy", "forked"])
def test_the_program_never_outlives_its_parent(how: str) -> None:
    assert_ends_with_its_parent(ORPHANAGE, how)
