# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The links: rates slot by slot, outages, phases, counters, and nothing else on the wire."""

import math
import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest
from in_guest import printed
from processes import nodes_of
from shaper_accounting import transfer_end_s
from small_world import SETUP_BPS, SmallWorld, Transfer

from testbed.control.messages import Exhausted, Low
from testbed.core.clock import EmulatedClock
from testbed.core.errors import RunError
from testbed.network.fabric import MOST_LINKS, link_addresses, sockets_in, unshape
from testbed.network.pcap import BLOCK_MS, frames
from testbed.network.shaping import End, Shape, queue_counts
from testbed.system import linux, netlink
from testbed.system.netlink import Netlink, NetlinkError
from testbed.transport.framing import Framing

FRAME_BITS = 1514 * 8
SLOWNESS = float(os.environ.get("TEST_SLOWNESS", "1"))
"""How many times slower than a real processor this one is: of a virtual machine's, some."""
NOISE = 0.1 * SLOWNESS
"""What a transfer may be late on a machine that others use, too, as a share of its duration."""
SENT_AGAIN = 0.01 * SLOWNESS
"""What TCP may send twice, for which it takes what is late, as a share of all."""
ATTEMPTS = 5
"""Others' work may hold up a transfer; a wrong rate does so each time."""


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    with SmallWorld(tmp_path_factory.mktemp("world"), uavs=2) as small:
        small.connect()
        yield small


@pytest.fixture
def fresh(small):
    """The world without a round under way, and the counters as they are now."""
    small.injector.pause()
    return small.injector.report()


def on_time(small, transfers, rates_bps, slot_s, size):
    """Whether transfers over the links, in their order, ended when the shaper's accounting says.

    Being early is never a matter of noise.
    """
    late_s = [
        small.late_s(transfer, rates, slot_s, size)
        for transfer, rates in zip(transfers, rates_bps, strict=False)
    ]
    # A frame that is due just at a boundary may fall to either side of it.
    frame_s = FRAME_BITS / rates_bps[rates_bps > 0].min()
    assert min(late_s) > -1.5 * frame_s
    return all(
        late < NOISE * (transfer.end_s - transfer.start_s) + 0.005 * SLOWNESS
        for late, transfer in zip(late_s, transfers, strict=True)
    )


def attempted(attempt):
    assert any(attempt() for _ in range(ATTEMPTS))


def test_addresses_of_all_links_differ():
    addresses = [address for k in range(1, MOST_LINKS + 1) for address in link_addresses(k)]
    assert len(set(addresses)) == 2 * MOST_LINKS
    assert link_addresses(300) == ("10.1.44.1", "10.1.44.2")
    with pytest.raises(ValueError, match="link 0"):
        link_addresses(0)


MANY_LINKS = """
import socket
from testbed.network.fabric import device_counts, link_addresses, wire
from testbed.network.shaping import Shape
from testbed.system import linux

station, *uavs = [linux.new_network_namespace() for _ in range(61)]
fabric = wire(station, uavs, Shape(congestion_control="reno"))
linux.enter(station)
# A closed link queues frames; one that is not connected yet drops them.
with socket.socket(type=socket.SOCK_DGRAM) as here:
    for link in range(1, 61):
        here.sendto(b"at once", (link_addresses(link)[1], 9))
with fabric.base_station.netlink as netlink:
    print(sum(count.dropped_frames for count in device_counts(netlink).values()))
"""


@pytest.mark.guest
def test_links_beyond_the_fiftieth_carry_frames_from_the_first_moment_on():
    """The kernel looks at 50 new links at once, and at the others a second later."""
    assert printed(MANY_LINKS) == "0\n"


@pytest.mark.parametrize("down", [False, True])
def test_transfer_ends_when_the_slots_have_carried_it(small, fresh, down):
    slot_s, size = 0.05, 400_000
    # Every slot differs, so that a rate that came late or not at all would show.
    factors = np.array([1.0, 2.0, 0.7, 1.5, 0.5, 3.0, 1.0, 0.6] * 20)
    slow = np.stack([8e6 * factors, 16e6 * factors[::-1]])
    other = np.full_like(slow, 80e6)

    def attempt():
        before = small.injector.report()
        small.run(*((other, slow) if down else (slow, other)), slot_s=slot_s)
        found = small.transfer([1, 2], size, 0.02, down)
        assert found[0].end_s > 1.2 * found[1].end_s
        after = small.injector.report()
        if down:
            counts = zip(before.downlink, after.downlink, strict=True)
        else:
            counts = zip(before.uplink, after.uplink, strict=True)
        for then, now in counts:
            sent_bytes = now.sent_bytes - then.sent_bytes
            assert 1 <= sent_bytes / small.on_link_bytes(size) < 1 + SENT_AGAIN
            assert now.dropped_frames == now.backlog_bytes == 0
            # One segment a packet: a GSO packet would count as one frame here.
            assert now.sent_frames - then.sent_frames >= math.ceil(size / 1448)
        return on_time(small, found, slow, slot_s, size)

    attempted(attempt)


def test_the_shapers_accounting_is_the_integral_of_the_rates_but_for_some_frames(small):
    """Constant rates: nothing but the idle link's credit and the last frame, which is not waited
    for, part the two."""
    size, rate = 2_000_000, np.full(1000, 20e6)
    end_s = transfer_end_s(small.shape, rate.tolist(), 0.1, 0.03, small.frames(size))
    early_s = -Transfer(0.03, end_s).integral_error_s(rate, 0.1, small.on_link_bytes(size))
    # The account covers what an idle link has saved up; the last frame has left once it is due.
    last_s = small.frames(size)[-1] * 8 / 20e6
    assert early_s == pytest.approx(small.shape.burst_at(20e6) + last_s)


def test_outage_holds_all_frames_and_leaves_no_debt(small, fresh):
    slot_s, size = 0.1, 200_000
    up = np.full((2, 100), 8e6)
    up[:, 1:7] = 0

    def attempt():
        small.run(up, up, slot_s=slot_s)
        finish = small.start_transfer([1], size, 0.05, down=False)
        small.sleep_until(0.2)
        early = small.injector.report().uplink[0]
        small.sleep_until(0.6)
        late = small.injector.report().uplink[0]
        assert late.sent_frames == early.sent_frames
        assert late.backlog_bytes > 0
        assert late.dropped_frames == 0
        # A retransmission timer would add 200 ms, the debt of a frame at 1 kbit/s twelve seconds.
        return on_time(small, finish(), up, slot_s, size)

    attempted(attempt)


def test_transfer_that_starts_in_an_outage_waits_for_its_end(small, fresh):
    slot_s, size = 0.1, 100_000
    up = np.full((2, 100), 8e6)
    up[:, 0:3] = 0

    def attempt():
        small.run(up, up, slot_s=slot_s)
        transfers = small.transfer([1], size, 0.15, down=False)
        assert transfers[0].end_s > 0.3
        return on_time(small, transfers, up, slot_s, size)

    attempted(attempt)


def test_phase_switches_the_downlinks_at_once(small, fresh):
    size = 500_000
    flat = np.ones((2, 100))

    def attempt():
        small.run(50e6 * flat, 2e6 * flat, 40e6 * flat, slot_s=1.0)
        small.injector.phase(1)
        fast = small.transfer([1], size, 0.1, down=True)
        small.injector.phase(0)
        slow = small.transfer([1], size // 10, fast[0].end_s + 0.1, down=True)
        return on_time(small, fast, 40e6 * flat, 1.0, size) and on_time(
            small, slow, 2e6 * flat, 1.0, size // 10
        )

    attempted(attempt)
    with pytest.raises(ValueError, match="phase 2: the table has 2"):
        small.injector.phase(2)


def test_slots_are_reported_and_unchanged_rates_cost_nothing(small, fresh):
    rates = np.full((2, 20), 10e6)
    rates[0, 5] = 20e6
    small.run(rates, rates, slot_s=0.02)
    time.sleep(0.05 + 20 * 0.02)
    report = small.injector.report()
    assert report.slot.tolist()[:15] == list(range(15))
    expected = [small.clock.monotonic_ns(slot * 0.02) for slot in report.slot]
    assert report.boundary_ns.tolist() == expected
    changed = {slot: int(n) for slot, n in zip(report.slot, report.changes, strict=True) if slot}
    assert {slot for slot, n in changed.items() if n} == {5, 6}
    assert changed[5] == 2
    assert (report.done_ns[1:] >= report.boundary_ns[1:]).all()


def test_the_injector_warns_and_keeps_the_last_rate_when_it_runs_out(small, fresh):
    rates = np.full((2, 8), 10e6)
    small.injector.events()
    small.injector.rates(0, rates, rates, warn_slots=4)
    clock = EmulatedClock(time.monotonic_ns(), 0.0, 1.0)
    small.injector.epoch(clock, 0.02)
    time.sleep(0.4)
    events = small.injector.events()
    assert events == [Low(8), Exhausted(8)]
    assert small.injector.report().exhausted > 5
    # More rates end the want.
    slot = round(clock.at(time.monotonic_ns()) / 0.02)
    small.injector.rates(slot, np.full((2, 1000), 9e6), np.full((2, 1000), 9e6))
    time.sleep(0.1)
    small.injector.report()
    time.sleep(0.1)
    assert small.injector.report().exhausted == 0


def test_an_epoch_without_rates_is_refused(small, fresh):
    small.injector.rates(0, np.full((2, 5), 1e6), np.full((2, 5), 1e6))
    with pytest.raises(RunError, match="no rates were given"):
        small.injector.epoch(EmulatedClock(time.monotonic_ns(), 50.0, 1.0), 0.1)


def test_a_capture_holds_what_the_counters_count_and_nothing_that_came_later(
    small, fresh, tmp_path
):
    rate = np.full((2, 100), 50e6)
    files = [tmp_path / "1.pcap", tmp_path / "2.pcap"]
    small.injector.capture(files, headers_only=False)
    small.run(rate, rate, slot_s=0.1)
    small.transfer([1], 100_000, 0.0, down=False)
    time.sleep(0.3)  # The last acknowledgement.
    counted = small.injector.report()
    small.transfer([1], 50_000, small.clock.now() + 0.05, down=False)
    time.sleep(3 * BLOCK_MS * 1e-3)  # They are in the file by now.
    small.injector.end_capture(counted.asked_ns)
    up = [frame for frame in frames(files[0]) if frame.source == link_addresses(1)[1]]
    assert sum(frame.data_bytes for frame in up) == 100_000
    carried = counted.uplink[0].sent_bytes - fresh.uplink[0].sent_bytes
    assert sum(frame.header_bytes + frame.data_bytes for frame in up) == carried


def test_a_rate_below_a_frame_a_slot_counts_as_outage(small, fresh):
    rates = np.full((2, 50), 10e6)
    rates[1, :] = 0.9 * FRAME_BITS / 0.02
    small.run(rates, np.full((2, 50), 10e6), slot_s=0.02)
    time.sleep(0.2)
    assert small.injector.report().below_floor > 5


def test_what_a_node_may(small, fresh):
    """No capabilities, no other device, the chosen congestion control, ordinary scheduling."""
    facts = small.ask("uav2", "facts")
    assert facts["capabilities"] == 0
    assert facts["no_new_privileges"] == "1"
    assert facts["interfaces"] == ["bs", "lo"]
    assert facts["congestion_control"] == ["cubic"]
    assert facts["scheduling"] == [os.SCHED_OTHER, os.getpriority(os.PRIO_PROCESS, 0)]
    assert small.ask("bs", "facts")["interfaces"] == ["lo", "uav1", "uav2"]


def test_an_idle_link_carries_nothing_and_payload_alone_can_be_charged(tmp_path):
    shape = Shape(charges_headers=False, congestion_control="reno")
    with SmallWorld(tmp_path, shape=shape) as small:
        rate = np.full((1, 100), SETUP_BPS)
        small.run(rate, rate, slot_s=0.1)
        time.sleep(1.0)
        idle = small.injector.report()
        assert [way.device_sent_frames for way in (*idle.uplink, *idle.downlink)] == [0, 0]
        small.connect()
        assert small.ask("uav1", "facts")["congestion_control"] == ["reno"]
        slow = np.full((1, 100), 10e6)

        def attempt():
            before = small.injector.report().uplink[0]
            small.run(slow, rate, slot_s=0.1)
            found = small.transfer([1], 400_000, 0.0, down=False)
            after = small.injector.report().uplink[0]
            assert 400_000 <= after.sent_bytes - before.sent_bytes < 400_010
            wire_bytes = after.device_sent_bytes - before.device_sent_bytes
            assert 1 <= wire_bytes / Framing(1500).on_link(400_000) < 1 + SENT_AGAIN
            return on_time(small, found, slow, 0.1, 400_000)

        attempted(attempt)


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can enter namespaces")
def test_no_end_is_left_at_which_frames_may_wait(tmp_path):
    def shaped(namespaces):
        """How many ends each namespace has that are shaped, before and after."""
        for inside in sockets_in(namespaces):
            before = len(queue_counts(inside))
            unshape([inside])
            yield before, len(queue_counts(inside))

    others = nodes_of(psutil.Process())
    with SmallWorld(tmp_path, uavs=2), ThreadPoolExecutor(1) as pool:
        ours = set(nodes_of(psutil.Process())).difference(others)
        namespaces = [linux.open_network_namespace(node.pid) for node in ours]
        found = pool.submit(list, shaped(namespaces)).result()  # by a thread, which stays there
        for namespace in namespaces:
            os.close(namespace)
    assert sorted(found) == [(1, 0), (1, 0), (2, 0)]


def test_unknown_congestion_control_is_named(tmp_path):
    with pytest.raises(RunError, match="nonesuch"):
        SmallWorld(tmp_path, shape=Shape(congestion_control="nonesuch"))


def test_an_end_sends_only_what_differs():
    end = End(7, Shape())
    first = end.change(1e6)
    assert len(first) == 2  # the rate, and the valve
    end.changed(1e6)
    assert end.change(1e6) == []
    assert len(end.change(2e6)) == 1
    (close,) = end.change(0.0)
    end.changed(0.0)
    assert end.change(0.0) == []
    (again,) = end.change(1e6)
    assert again == first[1] != close


def test_a_refused_message_is_named_by_its_place(monkeypatch):
    monkeypatch.setattr(netlink, "_BATCH_BYTES", 100)  # Several calls for one batch.
    with Netlink() as socket:
        good = netlink.message(netlink.GETLINK, 0, bytes(4) + (1).to_bytes(4, "little") + bytes(8))
        bad = netlink.message(netlink.GETLINK, 0, bytes(4) + b"\xff\xff\xff\x7f" + bytes(8))
        with pytest.raises(NetlinkError, match="No such device") as refused:
            socket.transact([good] * 20 + [bad, good])
        assert refused.value.index == 20
        socket.transact([good] * 20)
        assert next(iter(socket.dump(netlink.GETLINK, bytes(16))))[4] == 1
    assert linux.scheduling().startswith(("fifo", "nice"))


def test_a_sender_that_uses_up_the_credit_first_follows_the_integral(small):
    """Whatever the packets' size and the credit: start later by it, and end when it is due."""
    size = 1_000_000
    framing = Framing(1500)
    for rate_bps in (20e6, 200e6):
        rates = np.full((1, 200), rate_bps)
        end_s = transfer_end_s(
            small.shape,
            rates[0],
            0.1,
            small.shape.burst_s,
            [framing.frame_bytes] * (size // framing.segment_bytes),
        )
        due_s = size // framing.segment_bytes * FRAME_BITS / rate_bps
        assert abs(end_s - due_s) <= FRAME_BITS / rate_bps


def test_packets_hold_a_span_of_emulated_time():
    shape = Shape()
    assert shape.packet_frames(10e6) == 1
    frames = shape.packet_frames(300e6)
    assert frames * FRAME_BITS / 300e6 <= shape.packet_s < (frames + 1) * FRAME_BITS / 300e6
    assert shape.packet_frames(1e12) * 1500 < 65_536
