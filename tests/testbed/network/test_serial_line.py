# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The messages that shape an end that is a serial line; the kernel's part is tried in guests."""

import struct
from typing import Any

from testbed.core.clock import EmulatedClock
from testbed.network.holding import releases
from testbed.network.serial_line import SerialEnd
from testbed.network.shaping import SHAPER, Shape, queues_and_waits
from testbed.system import netlink
from testbed.system.netlink import attribute, nested

SERIAL = Shape(serial=True)
TCMSG = struct.Struct("=BxxxiIII")


def parts(message: bytes) -> tuple[int, int, dict[int, bytes]]:
    """Device, handle and attributes of a message."""
    body = message[16:]
    _, index, handle, _, _ = TCMSG.unpack_from(body)
    return index, handle, netlink.attributes(body[TCMSG.size :])


def rates(messages: list[bytes], at_ns: int = 0) -> list[int]:
    found = []
    for message in messages:
        index, handle, given = parts(message)
        assert (index, handle, given[1]) == (7, SHAPER, b"serial\0")
        rate, at = struct.unpack("=QQ", given[2])
        assert at == at_ns
        found.append(rate)
    return found


def test_a_line_is_out_until_it_has_a_rate_and_each_change_is_one_message() -> None:
    end = SerialEnd(7, SERIAL)
    line, queue = end.install()
    assert rates([line]) == [0]
    assert parts(queue)[2][1] == b"bfifo\0"
    assert end.change(0.0) == []
    assert rates(end.change(130_000.4)) == [130_000]
    end.changed(130_000.4)
    assert end.change(130_000.4) == []
    assert rates(end.change(0.0)) == [0], "an outage is a rate like any other"
    assert rates(end.change(1e6, 5_000_000_000), 5_000_000_000) == [1_000_000]
    assert rates(end.release(2e9, 0.0)) == [2_000_000_000]


def test_every_message_says_what_frames_are_charged() -> None:
    end = SerialEnd(7, Shape(serial=True, charges_headers=False))
    for message in (end.install()[0], *end.change(1e6)):
        table = netlink.attributes(parts(message)[2][8])[1]
        assert struct.unpack("=BBhiIIII", table)[3] == -66
    assert 8 not in parts(SerialEnd(7, SERIAL).change(1e6)[0])[2]


def test_a_serial_line_has_no_credit_no_floor_and_is_never_early() -> None:
    assert SERIAL.credit_s == 0.0
    assert SERIAL.lowest_rate(0.1) == 0.0
    assert SERIAL.early_at(1e6) == 0.0
    assert Shape().credit_s > 0.0
    assert Shape().lowest_rate(0.1) > 0.0


def test_held_frames_go_when_the_clock_starts_at_the_rate_of_the_slot() -> None:
    clock = EmulatedClock(5_000_000_000, 0.25, 1.0)
    asked = []

    def row(slot: int) -> tuple[float, ...]:
        asked.append(slot)
        return (3e6, 0.0, 130e3)

    (only,) = releases([1, 1, 1], SERIAL, clock, 0.1, row, [100, 100, 100])
    assert asked == [2]
    assert (only.at_ns, only.places, only.rates_bps) == (5_000_000_000, (0, 2), (3e6, 130e3))
    assert [(step.at_ns, step.what) for step in only.steps()] == [(5_000_000_000, "open")]
    assert releases([1], SERIAL, clock, 0.1, lambda _: (0.0,), [100]) == []
    assert releases([1], SERIAL, clock, 0.1, lambda _: None, [100]) == []


def test_lines_say_for_how_long_they_had_something_to_send() -> None:
    class Kernel:
        def dump(self, kind: int, body: bytes) -> list[bytes]:
            def qdisc(handle: int, name: bytes, *own: bytes) -> bytes:
                stats = attribute(1, struct.pack("=QI4x", 500, 5))
                stats += attribute(3, struct.pack("=IIIII", 0, 40, 2, 0, 9))
                return TCMSG.pack(0, 7, handle, 0, 0) + attribute(1, name) + nested(7, stats, *own)

            busy = attribute(4, struct.pack("=Q", 123_456))
            return [qdisc(SHAPER, b"serial\0", busy), qdisc(0x3_0000, b"bfifo\0")]

    kernel: Any = Kernel()
    ((queue, waits, busy_ns),) = queues_and_waits(kernel).values()
    assert (queue.sent_bytes, queue.backlog_bytes, waits, busy_ns) == (500, 40, 9, 123_456)
