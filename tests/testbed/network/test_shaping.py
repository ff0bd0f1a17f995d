# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What the kernel is told of a link's end, read back from the messages; no links."""

import math
import struct
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from testbed.network.impairments import DEVICE_OFFSET, HANDLE
from testbed.network.shaping import (
    POLL_S,
    QUEUE,
    SHAPER,
    SOON_POLL_S,
    VALVE,
    End,
    Shape,
    netem_counts,
    qdisc_counts,
    queue_counts,
    queues_and_waits,
    serial_queue_frames,
)
from testbed.system import netlink

NEWQDISC, NEWTCLASS, GETQDISC = 36, 40, 38
CREATE, REPLACE, REQUEST = 0x400, 0x100, 0x1
ROOT = 0xFFFFFFFF
TICK_S = 64e-9
FULL = 1514
"""Bytes of a full frame."""


@dataclass(frozen=True)
class Told:
    """A message as the kernel reads it."""

    kind: int
    flags: int
    index: int
    handle: int
    parent: int
    what: str
    options: bytes
    size_table: bytes

    @property
    def of_options(self) -> dict[int, bytes]:
        return netlink.attributes(self.options)


def read(message: bytes) -> Told:
    length, kind, flags, _, _ = struct.unpack_from("=IHHII", message)
    assert length == len(message)
    family, index, handle, parent, info = struct.unpack_from("=BxxxiIII", message, 16)
    assert (family, info) == (0, 0)
    found = netlink.attributes(message[16 + 20 :])
    what = found[1].rstrip(b"\0").decode()
    return Told(kind, flags, index, handle, parent, what, found.get(2, b""), found.get(8, b""))


def rate(data: bytes) -> tuple[int, int, int]:
    """Link layer, the least that a frame is charged, and bytes a second, of a `tc_ratespec`."""
    cell, layer, overhead, align, least, bytes_s = struct.unpack_from("=BBHhHI", data)
    assert (cell, overhead, align) == (0, 0, 0)
    return layer, least, bytes_s


def valve(told: Told) -> tuple[int, int, float]:
    """Least charge, bytes a second, and seconds of a full bucket."""
    parameters = told.of_options[1]
    layer, least, bytes_s = rate(parameters)
    assert layer == 1
    assert parameters[12:24] == bytes(12), "no peak rate"
    limit, ticks, mtu = struct.unpack_from("=III", parameters, 24)
    assert (limit, mtu) == (1 << 20, 0)
    return least, bytes_s, ticks * TICK_S


def shaper(told: Told) -> tuple[int, float]:
    """Bytes a second, and seconds of credit."""
    assert (told.kind, told.handle, told.parent) == (NEWTCLASS, SHAPER | 1, SHAPER)
    assert told.what == "htb"
    parameters = told.of_options[1]
    assert parameters[:12] == parameters[12:24], "rate and ceiling are one"
    layer, least, bytes_s = rate(parameters)
    assert (layer, least) == (1, 0)
    buffer, ceiling, quantum, level, priority = struct.unpack_from("=IIIII", parameters, 24)
    assert (buffer, level, priority) == (ceiling, 0, 0)
    assert quantum in (FULL, 1448)
    return bytes_s, buffer * TICK_S


def test_an_end_is_a_valve_a_shaper_and_a_queue() -> None:
    closed, root, class_, queue = map(read, End(7, Shape()).install())
    for told in (closed, root, class_, queue):
        assert told.flags == REQUEST | CREATE | REPLACE
        assert told.index == 7
    places = [(told.kind, told.what, told.handle, told.parent) for told in (closed, root, queue)]
    assert places == [
        (NEWQDISC, "tbf", VALVE, ROOT),
        (NEWQDISC, "htb", SHAPER, VALVE | 1),
        (NEWQDISC, "bfifo", QUEUE, SHAPER | 1),
    ]
    # HTB of version 3; all frames go to class 1.
    assert struct.unpack("=IIIII", root.of_options[2]) == (3, 10, 1, 0, 0)
    assert struct.unpack("=I", queue.options) == (100 * FULL,)
    assert shaper(class_) == (FULL, pytest.approx(2e-4, rel=1e-3)), "a frame a second"


def test_a_closed_valve_charges_more_than_it_ever_saves_up() -> None:
    end = End(7, Shape())
    (opened,) = [read(message) for message in end.release(8e6, 1e-3)[1:]]
    least, bytes_s, bucket_s = valve(opened)
    assert (least, bytes_s, bucket_s) == (0, 4_000_000_000, pytest.approx(1e-3, rel=1e-3))
    end.changed(8e6)
    (closed,) = map(read, end.change(0.0))
    (soon,) = map(read, end.soon())
    for told, poll_s in ((closed, POLL_S), (soon, SOON_POLL_S)):
        assert (told.flags, told.handle) == (REQUEST, VALVE)
        least, bytes_s, bucket_s = valve(told)
        assert least == 65_535
        assert least / bytes_s == pytest.approx(poll_s, rel=1e-3), "when it tries again"
        assert bucket_s * bytes_s == pytest.approx(least / 4, rel=1e-2)


def test_a_rate_is_in_bytes_and_so_is_what_an_idle_link_saves_up() -> None:
    end = End(7, Shape(burst_s=4e-3))
    set_, opened = map(read, end.change(16e6))
    assert opened.what == "tbf"
    # Half a packet of 1514 bytes at 2 MB/s is 0.3785 ms of the 4 ms.
    assert shaper(set_) == (2_000_000, pytest.approx(4e-3 - 0.3785e-3, rel=1e-3))
    end.packet_frames = 3
    (faster,) = map(read, end.change(32e6)[:1])
    assert shaper(faster) == (4_000_000, pytest.approx(4e-3 - 1.5 * 0.3785e-3, rel=1e-3))
    assert shaper(read(end.release(32e6, 7e-3)[0])) == (4_000_000, pytest.approx(7e-3, rel=1e-3))
    assert shaper(read(end.release(32e6, -1.0)[0]))[1] == pytest.approx(TICK_S)
    end.changed(32e6)
    assert shaper(read(end.restore()[0]))[0] == 4_000_000


def test_a_link_that_was_out_goes_on_with_the_rate_that_its_shaper_has() -> None:
    end = End(7, Shape())
    end.changed(8e6)
    end.changed(0.0)
    assert end.rate_bps == 0
    assert [read(message).what for message in end.change(8e6)] == ["tbf"]
    assert [read(message).what for message in end.change(9e6)] == ["htb", "tbf"]
    assert shaper(read(end.restore()[0]))[0] == 1_000_000
    assert shaper(read(End(7, Shape()).change(1.0)[0]))[0] == 1, "never no bytes at all"


def test_payload_alone_is_charged_by_a_table_of_sizes() -> None:
    paid = Shape(charges_headers=False)
    assert (Shape().frame_bytes, paid.frame_bytes) == (FULL, 1448)
    assert read(End(7, Shape()).install()[0]).size_table == b""
    end = End(7, paid)
    for message in (end.install()[0], end.soon()[0], end.release(1e6, 0)[1]):
        base = netlink.attributes(read(message).size_table)[1]
        # Overhead of -66 bytes a frame, on Ethernet, and no table.
        assert struct.unpack("=BBhiIIII", base) == (0, 0, 0, -66, 1, 0, 0, 0)


@pytest.mark.parametrize(("name", "ecn_at"), [("fq_codel", 4), ("pie", 6)])
@pytest.mark.parametrize("ecn", [False, True])
def test_other_queues_hold_as_many_frames(name: str, ecn_at: int, ecn: bool) -> None:
    queue = read(End(7, Shape(queue=name, ecn=ecn, queue_frames=30)).install()[3])
    assert queue.what == name
    numbers = {kind: struct.unpack("=I", value)[0] for kind, value in queue.of_options.items()}
    assert numbers == {2: 30, ecn_at: int(ecn)}


@pytest.mark.parametrize("ecn", [False, True])
def test_red_is_as_tc_would_set_it(ecn: bool) -> None:
    """`tc … red limit 151400 avpkt 1514 burst …`, with its tables: 100 frames at 10 Mb/s."""
    queue = read(End(7, Shape(queue="red", ecn=ecn)).install()[3])
    assert queue.what == "red"
    limit, least, most, weight, slope, cell, flags = struct.unpack_from(
        "=IIIBBBB", queue.of_options[1]
    )
    assert (limit, least, most) == (151_400, 151_400 // 12, 151_400 // 4)
    assert (weight, flags) == (9, int(ecn))
    # 2^slope is the first power of two that drops at most 2 % where the mean is `most`.
    assert (most - least) / 2**slope <= 0.02 < 2 * (most - least) / 2**slope
    assert struct.unpack("=I", queue.of_options[3])[0] == round(0.02 * 2**32)
    damping = queue.of_options[2]
    assert len(damping) == 256
    # An idle queue forgets (1 - 1/512) a frame's time of 1211.2 µs: by 2^-n after so long.
    for place in (0, 1, 10, 100, 254):
        forgotten = -(place << cell) / 1211.2 * math.log2(1 - 1 / 512)
        assert damping[place] == min(31, int(forgotten))
    assert damping[255] == 31


def test_how_much_a_link_saves_up_and_how_large_a_packet_is() -> None:
    shape = Shape(burst_s=4e-3, packet_s=0.25e-3)
    assert shape.credit_s == pytest.approx(3.85e-3)
    assert shape.burst_at(1e9) == pytest.approx(4e-3, rel=2e-3)
    assert shape.burst_at(8 * FULL / 2e-3, 2) == pytest.approx(2e-3)
    assert shape.burst_at(1e3) == 0.2e-3, "never less than that"
    for frames in (1, 2, 7):
        enough_bps = frames * 8 * FULL / 0.25e-3
        assert shape.packet_frames(enough_bps * 1.0001) == frames
        assert shape.packet_frames(enough_bps * 0.9999) == max(1, frames - 1)
    assert shape.packet_frames(1e12) == 64_000 // 1500
    assert shape.lowest_rate(0.1) == pytest.approx(FULL * 80)
    # A packet of two frames takes 4 ms; of its credit a sender that is as late uses all but 2 ms.
    assert shape.early_at(8 * FULL / 2e-3, 2) == pytest.approx(4e-3 + 2e-3 - 3.85e-3)


def test_the_queue_of_a_serial_line_has_room_for_packets_that_are_acknowledged_in_time() -> None:
    assert [serial_queue_frames(mtu) for mtu in (1500, 3000, 9000)] == [168, 100, 100]
    line = Shape(serial=True, queue_frames=serial_queue_frames(1500))
    # At 0.8 Mb/s, two acknowledgements of 66 B take as long as 36 frames; 42 are below 64 KB.
    frames = [line.packet_frames(330e6, back_bps) for back_bps in (330e6, 0.8e6, 0.4e6)]
    assert frames == [6, 36, 42]
    assert line.most_asymmetry == 42 * 1514 / 66


def test_a_link_is_plain_and_closed_at_first_and_handles_are_of_qdiscs() -> None:
    shape = Shape()
    assert (shape.mtu, shape.queue_frames, shape.queue, shape.initial_window) == (
        *(1500, 100, "fifo"),
        None,
    )
    assert (shape.burst_s, shape.packet_s, shape.charges_headers) == (4e-3, 0.25e-3, True)
    more = (shape.ecn, shape.impaired, shape.single_frames, shape.network, shape.relay)
    assert (*more, shape.shared_downlink) == (False,) * 6
    end = End(7, shape)
    assert (end.rate_bps, end.packet_frames) == (0, 1)
    assert end.change(0.0) == []
    handles = {VALVE, SHAPER, QUEUE}
    assert len(handles) == 3
    assert all(0 < handle < 0xFFFF_0000 and handle % 0x1_0000 == 0 for handle in handles)
    # A valve that opens late delays a transfer by as much.
    assert SOON_POLL_S < POLL_S / 5 <= 1e-3 / 5


class Kernel:
    """A socket whose qdiscs are made up."""

    qdiscs: ClassVar = [(4, VALVE), (4, QUEUE), (5, SHAPER), (6, QUEUE), (1009, HANDLE)]

    def dump(self, kind: int, body: bytes) -> list[bytes]:
        assert (kind, body) == (GETQDISC, bytes(20))
        return [
            struct.pack("=BxxxiIII", 0, index, handle, 0, 0)
            + netlink.attribute(1, b"htb\0")
            + netlink.nested(
                7,
                netlink.attribute(1, struct.pack("=QI4x", 10 * index, index)),
                netlink.attribute(
                    3, struct.pack("=IIIII", 99, 20 * index, 3 * index, 98, 97 + index)
                ),
            )
            for index, handle in self.qdiscs
        ]


def test_waits_are_those_of_the_shaper(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = [(4, VALVE), (4, QUEUE), (4, SHAPER), (5, SHAPER), (5, QUEUE)]
    monkeypatch.setattr(Kernel, "qdiscs", ends)
    kernel: Any = Kernel()
    found = queues_and_waits(kernel)
    queues = queue_counts(kernel)
    assert found == {4: (queues[4], 97 + 4, None), 5: (queues[5], 97 + 5, None)}


def test_credit_is_used_up_by_so_many_packets() -> None:
    shape = Shape()
    assert shape.credit_packets(20e6) == 6, "3.7 ms of credit for packets of 0.61 ms"
    assert shape.credit_packets(6.1e6) == 1
    assert shape.credit_packets(4.4e6) == 0
    assert shape.credit_packets(200e6, 4) == 16, "3.879 ms for packets of 0.242 ms"


def test_counters_are_those_of_queues() -> None:
    kernel: Any = Kernel()
    assert [index for index, _ in qdisc_counts(kernel, SHAPER)] == [5]
    counts = queue_counts(kernel)
    assert list(counts) == [4, 6]
    of_six = counts[6]
    assert (of_six.sent_bytes, of_six.sent_frames) == (60, 6)
    assert (of_six.backlog_bytes, of_six.dropped_frames) == (120, 18)
    ((device, count),) = netem_counts(kernel).items()
    assert (device, count.sent_frames) == (1009 - DEVICE_OFFSET, 1009)
