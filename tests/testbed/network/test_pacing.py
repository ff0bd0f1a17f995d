# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Narrow links: each frame arrives when its last bit has been sent at the rates of the slots."""

import fcntl
import os
import signal
import socket
import struct
import time
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from small_world import SmallWorld

from testbed.core.errors import RunError
from testbed.network.pacing import (
    _COUNTS,
    _RATE,
    MOST_FRAMES_S,
    MOST_PACED_BPS,
    MOST_PACED_LINKS,
    SUPPLY_BPS,
    Course,
    PacedEnd,
    Pacer,
    Service,
    _Way,
    paced_links,
)
from testbed.network.shaping import WITHOUT_CREDIT_S, QueueCount, Shape
from testbed.system import linux

FRAME_BITS = 1514 * 8.0
MS = 1_000_000


def service(rate_bps: float = 1e6) -> Service:
    made = Service(FRAME_BITS)
    made.change(rate_bps, 0)
    return made


def dues_ms(made: Service) -> list[float]:
    """When the frames that are held will have been sent, if the rate stays."""
    found = []
    while made.due_ns is not None:
        found.append(made.due_ns / MS)
        made.send()
    return found


def test_frames_are_sent_one_after_the_other_each_for_its_own_time() -> None:
    made = service()
    made.take(5 * MS, 1000, b"1")
    made.take(5.5 * MS, 2000, b"2")
    made.take(20 * MS, 500, b"3")
    assert made.held_bits == 3500
    assert dues_ms(made) == [6.0, 8.0, 20.5]
    assert made.held_bits == 0


def test_a_frame_goes_on_at_the_new_rate() -> None:
    made = service()
    made.take(0, 10_000, b"")
    made.change(5e6, 4 * MS)
    assert made.due_ns == pytest.approx(5.2 * MS)
    made.change(0.0, 4.2 * MS)
    assert made.due_ns is None, "the link is out"
    made.change(1e6, 9.2 * MS)
    assert dues_ms(made) == [pytest.approx(14.2)]


def test_a_change_that_is_noticed_late_counts_from_its_time() -> None:
    made = service()
    made.take(0, 1000, b"")
    made.take(0, 1000, b"")
    made.change(2e6, 0.5 * MS)
    made.change(1e6, 0.25 * MS)
    # From 0.5 ms on: an earlier time cannot be had any more.
    assert dues_ms(made)[0] == pytest.approx(1.0)


def test_a_frame_that_arrived_before_a_change_begins_at_the_old_rate() -> None:
    made = service()
    made.change(4e6, 10 * MS)
    made.take(9.5 * MS, 1000, b"")
    assert dues_ms(made) == [pytest.approx(10.125)]
    made.take(11 * MS, 1000, b"")
    assert dues_ms(made) == [pytest.approx(11.25)]


def test_a_short_frame_may_end_before_a_change() -> None:
    made = service()
    made.change(4e6, 10 * MS)
    made.take(9 * MS, 500, b"")
    assert dues_ms(made) == [pytest.approx(9.5)]


def test_what_has_been_carried_is_known_at_any_time_and_at_the_last_change() -> None:
    made = service()
    made.take(0, 10_000, b"")
    assert made.carried().by(4 * MS, 1e6) == pytest.approx(4000)
    assert made.carried().by(99 * MS, 1e6) == pytest.approx(10_000), "no more than there is"
    made.change(5e6, 4 * MS)
    now = made.carried()
    assert (now.changed_ns, now.until_change) == (4 * MS, pytest.approx(4000))
    assert now.by(4.5 * MS, 5e6) == pytest.approx(6500)
    made.send()
    assert made.carried().by(99 * MS, 5e6) == pytest.approx(10_000)


def test_one_frame_is_fetched_ahead_and_some_milliseconds_of_fast_ones() -> None:
    slow = service(130e3)
    assert slow.wants_more
    slow.take(0, FRAME_BITS, b"")
    assert slow.wants_more, "the next one must be there when this one has been sent"
    slow.take(0, 400, b"")
    assert not slow.wants_more
    slow.send()
    assert slow.wants_more
    fast = service(10e6)
    held = 0
    while fast.wants_more:
        fast.take(0, FRAME_BITS, b"")
        held += 1
    assert held * FRAME_BITS / 10e6 == pytest.approx(8e-3, abs=2e-3)
    while not fast.wants_more:
        fast.send()
        held -= 1
    assert held * FRAME_BITS / 10e6 == pytest.approx(4e-3, abs=2e-3)


def test_nothing_is_fetched_while_a_link_is_out() -> None:
    assert not Service(FRAME_BITS).wants_more
    made = service()
    made.change(0.0, 0)
    assert not made.wants_more


def test_the_narrowest_links_are_paced_as_far_as_one_process_can() -> None:
    shape = Shape()
    assert paced_links([(1e6, 2e6), (30e6, MOST_PACED_BPS * 1.01), (30e6, 20e6)], shape) == (1, 3)
    many = [(5e6, rate) for rate in (30e6, 10e6, 20e6)] * 10
    found = paced_links(many, shape)
    assert found == (2, 3, *range(5, 30, 3)), "all of 10 Mb/s, and one of 20 Mb/s"
    sent = sum(max(many[link - 1]) for link in found) / FRAME_BITS
    assert MOST_FRAMES_S - 20e6 / FRAME_BITS < sent <= MOST_FRAMES_S
    assert len(paced_links([(1.0, 1.0)] * 500, shape)) == MOST_PACED_LINKS


def test_a_paced_end_leaves_its_valve_alone_and_its_shaper_has_no_long_debt() -> None:
    end = PacedEnd(7, Shape())
    (first,) = end.change(130e3)
    end.changed(130e3)
    assert end.rate_bps == 130e3
    assert end.change(SUPPLY_BPS / 2) == [], "the shaper has that rate"
    assert end.change(0.0) == []
    end.changed(0.0)
    assert end.rate_bps == 0.0
    (faster,) = end.change(SUPPLY_BPS * 2)
    assert first != faster
    closes, opens = end.valve
    assert closes != opens


def test_only_paced_links_save_up_credit_in_a_session() -> None:
    shape = Shape(burst_s=WITHOUT_CREDIT_S, paced=(2,))
    assert shape.of(1).burst_s == WITHOUT_CREDIT_S
    assert shape.of(2).burst_s == Shape().burst_s


@pytest.mark.parametrize(("charges_headers", "bytes_"), [(True, 1514 + 66 + 100), (False, 1548)])
def test_each_frame_of_a_large_packet_has_headers(charges_headers: bool, bytes_: int) -> None:
    way: Any = _Way.__new__(_Way)
    shape = Shape(charges_headers=charges_headers)
    way._uncharged = 0 if charges_headers else shape.mtu + 14 - shape.frame_bytes
    large = struct.pack("=BBHHHH", 0, 1, 66, 1448, 0, 0) + bytes(66 + 1448 + 100)
    per_packet = bytes_ if charges_headers else 1514 + 66 + 100 - 66
    assert way.bits(large) == 8 * per_packet
    single = struct.pack("=BBHHHH", 0, 0, 0, 0, 0, 0) + bytes(60)
    assert way.bits(single) == (480 if charges_headers else 8)


def test_transfers_over_paced_links_follow_the_integral_of_rates_that_jump(tmp_path) -> None:
    slot_s, size = 0.1, 400_000
    up = np.tile([[130e3, 10e6, 0.0, 20e6]], (1, 40))
    with SmallWorld(tmp_path, shape=Shape(paced=(1,))) as small:
        small.connect()
        before = small.injector.report()
        small.run(up, np.full_like(up, 5e6), slot_s=slot_s)
        (found,) = small.transfer([1], size, 0.32, down=False)
        after = small.injector.report()
        (back,) = small.transfer([1], 100_000, 2.0, down=True)
    error_s = found.integral_error_s(up[0], slot_s, small.on_link_bytes(size))
    frame_s = FRAME_BITS / 10e6
    # A link that kept its debt would lose a tenth of a second at each rise.
    assert -frame_s < error_s < 0.05
    sent = after.uplink[0].sent_bytes - before.uplink[0].sent_bytes
    assert sent >= small.on_link_bytes(size)
    # Under load, it may begin long after the last slot, whose rates remain.
    ever = np.full(6000, 5e6)
    error_s = back.integral_error_s(ever, slot_s, small.on_link_bytes(100_000))
    assert -8 * 1514 / 5e6 < error_s < 0.05


def test_links_are_paced_whatever_the_numbers_of_their_files() -> None:
    """The links of a hundred UAVs have more files than `select` can wait for."""
    linux.raise_open_files()
    come, go = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with come, go:
        high = socket.socket(fileno=fcntl.fcntl(come.fileno(), fcntl.F_DUPFD_CLOEXEC, 1500))
        end, supply = PacedEnd(7, Shape()), SimpleNamespace(send=repr, check=list)
        pacer = Pacer([Course(end, cast(Any, supply), high, go)], Shape())
    for change in (1, 2):
        pacer.change([(end, change * 1e6)], change)
        until = time.monotonic() + 30
        while pacer._read(0)[0].changed_ns != change and time.monotonic() < until:
            time.sleep(0.001)
        assert pacer._read(0)[0].changed_ns == change
    os.kill(pacer._process, signal.SIGKILL)
    os.waitid(os.P_PID, pacer._process, os.WEXITED | os.WNOWAIT)
    with pytest.raises(RunError, match="the process that paces narrow links is gone"):
        pacer.change([(end, 3e6)], 3)
    assert pacer.gone()


def test_counters_are_those_of_the_bits_that_have_been_sent() -> None:
    """Of a packed reading, as the process would have written it."""
    end, other = PacedEnd(7, Shape()), PacedEnd(8, Shape())
    end.changed(8e6)
    pacer: Any = Pacer.__new__(Pacer)
    pacer._places = {id(end): 0}
    pacer._shared = bytearray(_RATE.size) + _COUNTS.pack(8000.0, 4000.0, 10 * MS, 5 * MS, 600.0, 3)
    read = QueueCount(sent_bytes=2000, sent_frames=2, dropped_frames=0, backlog_bytes=500)
    # 8 Mb/s carry 8 bits in a µs: 1000 bytes and 200 more by then.
    count, at_ns = pacer.counted(end, read, 10 * MS + 200_000)
    assert (count.sent_bytes, count.backlog_bytes, at_ns) == (1200, 1300, 10 * MS + 200_000)
    assert count.sent_frames == 2
    # Within 5 ms of a change: what had been sent by then.
    count, at_ns = pacer.counted(end, read, 9 * MS)
    assert (count.sent_bytes, count.backlog_bytes, at_ns) == (75, 2425, 5 * MS)
    assert pacer.counted(other, read, 11 * MS) == (read, 11 * MS)
    assert (pacer.late_frames(end), pacer.late_frames(other)) == (3, 0)
