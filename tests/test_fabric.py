"""The links: rates slot by slot, outages, phases, counters, and nothing else on the wire."""

import math
import time

import numpy as np
import pytest
from small_world import SETUP_BPS, SmallWorld

from testbed import linux, netlink
from testbed.clock import EmulatedClock
from testbed.errors import RunError
from testbed.fabric import MOST_LINKS, link_addresses
from testbed.framing import Framing
from testbed.netlink import Netlink, NetlinkError
from testbed.shaping import End, Shape

FRAME_BITS = 1514 * 8
NOISE = 0.15
"""What a transfer may be late on a machine that others use, too, as a share of its duration.
Being early is no matter of noise: there the bound is a frame or two."""


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


def check(small, transfer, rates_bps, slot_s, size):
    """A transfer ended when the shaper's accounting says."""
    late_s = small.late_s(transfer, rates_bps, slot_s, size)
    # A frame that is due just at a boundary may fall to either side of it.
    frame_s = FRAME_BITS / rates_bps[rates_bps > 0].min()
    assert -1.5 * frame_s < late_s < NOISE * (transfer.end_s - transfer.start_s) + 0.01


def test_addresses_of_all_links_differ():
    addresses = [address for k in range(1, MOST_LINKS + 1) for address in link_addresses(k)]
    assert len(set(addresses)) == 2 * MOST_LINKS
    assert link_addresses(300) == ("10.1.44.1", "10.1.44.2")
    with pytest.raises(ValueError, match="link 0"):
        link_addresses(0)


@pytest.mark.parametrize("down", [False, True])
def test_transfer_ends_when_the_slots_have_carried_it(small, fresh, down):
    slot_s, size = 0.05, 400_000
    # Every slot differs, so that a rate that came late or not at all would show.
    factors = np.array([1.0, 2.0, 0.7, 1.5, 0.5, 3.0, 1.0, 0.6] * 20)
    slow = np.stack([8e6 * factors, 16e6 * factors[::-1]])
    other = np.full_like(slow, 80e6)
    small.run(*((other, slow) if down else (slow, other)), slot_s=slot_s)
    found = small.transfer([1, 2], size, 0.02, down)
    for transfer, rates in zip(found, slow, strict=True):
        check(small, transfer, rates, slot_s, size)
        integral_s = transfer.integral_error_s(rates, slot_s, small.on_link_bytes(size))
        assert abs(integral_s) < 0.02 + NOISE * (transfer.end_s - transfer.start_s)
    assert found[0].end_s > 1.4 * found[1].end_s
    report = small.injector.report()
    way, before = (report.downlink, fresh.downlink) if down else (report.uplink, fresh.uplink)
    for now, then in zip(way, before, strict=True):
        assert now.sent_bytes - then.sent_bytes >= small.on_link_bytes(size)
        assert now.sent_bytes - then.sent_bytes < 1.01 * small.on_link_bytes(size)
        assert now.dropped_frames == 0
        assert now.backlog_bytes == 0
        # One segment a packet: a GSO packet would count as one frame here.
        assert now.sent_frames - then.sent_frames >= math.ceil(size / 1448)


def test_outage_holds_all_frames_and_leaves_no_debt(small, fresh):
    slot_s, size, rate = 0.1, 200_000, 8e6
    up = np.full((2, 100), rate)
    up[:, 1:7] = 0
    small.run(up, up, slot_s=slot_s)
    answer = small.start_transfer([1], size, 0.05, down=False)
    time.sleep(max(0, (small.clock.monotonic_ns(0.2) - time.monotonic_ns()) * 1e-9))
    early = small.injector.report().uplink[0]
    time.sleep(max(0, (small.clock.monotonic_ns(0.6) - time.monotonic_ns()) * 1e-9))
    late = small.injector.report().uplink[0]
    assert late.sent_frames == early.sent_frames
    assert late.backlog_bytes > 0
    assert late.dropped_frames == 0
    (transfer,) = answer()
    # A retransmission timer would add 200 ms, the debt of a frame at 1 kbit/s twelve seconds.
    check(small, transfer, up[0], slot_s, size)


def test_transfer_that_starts_in_an_outage_waits_for_its_end(small, fresh):
    slot_s, size, rate = 0.1, 100_000, 8e6
    up = np.full((2, 100), rate)
    up[:, 0:3] = 0
    small.run(up, up, slot_s=slot_s)
    (transfer,) = small.transfer([1], size, 0.15, down=False)
    assert transfer.end_s > 0.3
    check(small, transfer, up[0], slot_s, size)


def test_phase_switches_the_downlinks_at_once(small, fresh):
    size = 500_000
    flat = np.ones((2, 100))
    small.run(50e6 * flat, 2e6 * flat, 40e6 * flat, slot_s=1.0)
    small.injector.phase(1)
    (fast,) = small.transfer([1], size, 0.1, down=True)
    check(small, fast, 40e6 * flat[0], 1.0, size)
    small.injector.phase(0)
    report = small.injector.report()
    (slow,) = small.transfer([1], size // 10, fast.end_s + 0.1, down=True)
    check(small, slow, 2e6 * flat[0], 1.0, size // 10)
    assert report.slot[0] == 0


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
    assert [event["event"] for event in events] == ["low", "exhausted"]
    assert events[0]["end"] == 8
    assert events[1]["slot"] == 8
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
    assert facts["scheduling"] == [0, 0]
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
        before = small.injector.report().uplink[0]
        slow = np.full((1, 100), 10e6)
        small.run(slow, rate, slot_s=0.1)
        (found,) = small.transfer([1], 400_000, 0.0, down=False)
        check(small, found, slow[0], 0.1, 400_000)
        after = small.injector.report().uplink[0]
        assert 400_000 <= after.sent_bytes - before.sent_bytes < 400_010
        wire_bytes = after.device_sent_bytes - before.device_sent_bytes
        assert Framing(1500).on_link(400_000) <= wire_bytes < 1.01 * Framing(1500).on_link(400_000)


def test_unknown_congestion_control_is_named(tmp_path):
    with pytest.raises(RunError, match="nonesuch"):
        SmallWorld(tmp_path, shape=Shape(congestion_control="nonesuch"))


def test_an_end_sends_only_what_differs():
    end = End(7, Shape())
    first = end.change(1e6)
    assert len(first) == 2  # the rate, and the gate
    end.changed(1e6)
    assert end.change(1e6) == []
    assert len(end.change(2e6)) == 1
    (close,) = end.change(0.0)
    end.changed(0.0)
    assert end.change(0.0) == []
    (again,) = end.change(1e6)
    assert again == first[1] != close


def test_a_refused_message_is_named_by_its_place():
    with Netlink() as socket:
        good = netlink.message(netlink.GETLINK, 0, bytes(4) + (1).to_bytes(4, "little") + bytes(8))
        bad = netlink.message(netlink.GETLINK, 0, bytes(4) + b"\xff\xff\xff\x7f" + bytes(8))
        with pytest.raises(NetlinkError, match="No such device") as refused:
            socket.transact([good, good, bad, good])
    assert refused.value.index == 2
    assert linux.scheduling().startswith(("fifo", "nice"))
