# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The air where the kernel has no netem: a process that holds frames back and loses some.

What arrives at a device is dropped there, after packet sockets have seen it. The process reads it
from such a socket, and when its time has come, writes it to one end of a veth pair whose other end
stands beside the device and looks like it. Frames of one direction stay in their order, where the
impairment does not say otherwise.

It handles one packet after the other, at some 30 µs of a core each: a link that asks for more than
it can do gets its frames late, and each that is later than `LATE_NS` is counted, as are those for
which no room was left meanwhile.
"""

import contextlib
import heapq
import mmap
import os
import random
import select
import signal
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.core.errors import RunError
from testbed.core.impairment import Impairment, Losses
from testbed.system import linux, netlink
from testbed.system.arrivals import NOTE_BYTES, note_arrivals, noted_ns
from testbed.system.netlink import attribute, message, nested, text, u32

LATE_NS = 1_000_000
SPIN_NS = 60_000
"""The last stretch before a frame is due is spent awake."""
MOST_OPEN_FILES = 1024
"""That `select` can wait for."""
OUT_OFFSET, IN_OFFSET = 30_000, 50_000
"""Indices of the pair's devices, from the index of the one whose frames they carry."""

_TCMSG = struct.Struct("=BxxxiIII")
_IFNAME, _ADDRESS, _MTU, _LINKINFO = 3, 1, 4, 18
_CLSACT_HANDLE, _CLSACT, _INGRESS = 0xFFFF_0000, 0xFFFF_FFF1, 0xFFFF_FFF2
_NEWTFILTER, _ALL_PROTOCOLS = 44, 0x0300
_OPERATIONS, _OPERATION_COUNT, _BPF_FLAGS, _ACTION = 5, 4, 8, 1
_DROP = struct.pack("=HBBI", 6, 0, 0, 2)
"""A classic BPF program: return TC_ACT_SHOT."""
_EVERY_PROTOCOL = 3
"""Only such sockets see frames before they are dropped."""
_SOL_PACKET, _VNET_HDR, _QDISC_BYPASS, _IGNORE_OUTGOING = 263, 15, 20, 23
_STATISTICS = 6
_BUFFER_BYTES = 16 << 20
_MOST_PACKET_BYTES = 1 << 17
_COUNTS = struct.Struct("=QQQ")
_VALUES = struct.Struct("=ddd")
"""Of a way: delay and jitter in ns, probability of a loss in the good state."""


@dataclass(frozen=True)
class Tap:
    """Where frames that arrive at a device can be taken, and given back."""

    device: int
    name: str
    taken: socket.socket
    given: socket.socket


@dataclass(frozen=True)
class LineCount:
    """What became of the frames of one direction."""

    dropped_frames: int
    sent_frames: int
    late_frames: int
    """And those that were dropped because it was late."""


def tap(socket_: netlink.Netlink, device: int, name: str, address: bytes, mtu: int) -> Tap:
    """Make ready to take the frames that arrive at a device of this thread's namespace."""
    out, into = f"out{device}", f"in{device}"
    peer = netlink.IFINFO.pack(0, 0, device + IN_OFFSET, 0, 0) + attribute(_IFNAME, text(into))
    peer += attribute(_ADDRESS, address) + attribute(_MTU, u32(mtu))
    info = nested(_LINKINFO, attribute(1, text("veth")), nested(2, attribute(1, peer)))
    body = netlink.IFINFO.pack(0, 0, device + OUT_OFFSET, 0, 0) + attribute(_IFNAME, text(out))
    body += attribute(_MTU, u32(mtu)) + info
    orders = [message(netlink.NEWLINK, netlink.CREATE | netlink.EXCLUSIVE, body)]
    for end in (device + OUT_OFFSET, device + IN_OFFSET):
        orders += [*netlink.without_ipv6_addresses(end, mtu), netlink.up(end)]
    socket_.transact(orders)
    for filtered in ("all", into):  # A source is reached over another device than it comes from.
        with contextlib.suppress(OSError):
            Path(f"/proc/sys/net/ipv4/conf/{filtered}/rp_filter").write_text("0")
    taken = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    given = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    for sock in (taken, given):
        sock.setsockopt(_SOL_PACKET, _VNET_HDR, 1)
    taken.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
    note_arrivals(taken)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    given.bind((out, 0))
    return Tap(device, name, taken, given)


def drop_arrivals(device: int) -> list[bytes]:
    """The messages that drop what arrives at a device, after packet sockets have seen it."""
    options = nested(
        2,
        attribute(_OPERATIONS, _DROP),
        attribute(_OPERATION_COUNT, struct.pack("=H", 1)),
        attribute(_BPF_FLAGS, u32(_ACTION)),
    )
    create = netlink.CREATE | netlink.EXCLUSIVE
    return [
        message(
            netlink.NEWQDISC,
            create,
            _TCMSG.pack(0, device, _CLSACT_HANDLE, _CLSACT, 0) + attribute(1, text("clsact")),
        ),
        message(
            _NEWTFILTER,
            create,
            _TCMSG.pack(0, device, 1, _INGRESS, 1 << 16 | _ALL_PROTOCOLS)
            + attribute(1, text("bpf"))
            + options,
        ),
    ]


class Line:
    """The process, for as long as the one that started it lives."""

    def __init__(self, ways: Sequence[tuple[Tap, Impairment]]) -> None:
        """Begin to delay and lose the frames of these taps.

        Raises:
            RunError: They are too many.
        """
        self._shared = mmap.mmap(-1, (_COUNTS.size + _VALUES.size) * len(ways))
        for place, (_, impairment) in enumerate(ways):
            loss = 0.0 if impairment.losses is None else impairment.losses.loss_good
            self._put(place, impairment.delay_s, impairment.jitter_s, loss)
        self._places = {tap.taken.fileno(): place for place, (tap, _) in enumerate(ways)}
        if any(tap.taken.fileno() >= MOST_OPEN_FILES for tap, _ in ways):
            raise RunError("links: so many of them cannot delay or lose frames without netem")
        for tap, _ in ways:
            tap.taken.bind((tap.name, _EVERY_PROTOCOL))
        self._process = os.fork()
        if self._process == 0:
            with contextlib.suppress(BaseException):
                linux.signal_at_parents_death(signal.SIGKILL)
                linux.precise_timers()
                shared = self._shared
                _carry([_Way(*way, shared, place) for place, way in enumerate(ways)], shared)
            os._exit(1)

    def change(self, tap: Tap, delay_s: float, jitter_s: float, loss: float) -> None:
        """Treat a tap's frames otherwise from now on; the loss is that of the good state."""
        self._put(self._places[tap.taken.fileno()], delay_s, jitter_s, loss)

    def _put(self, place: int, delay_s: float, jitter_s: float, loss: float) -> None:
        _VALUES.pack_into(
            self._shared, _values_at(self._shared, place), delay_s * 1e9, jitter_s * 1e9, loss
        )

    def count(self, tap: Tap) -> LineCount:
        """What became of a tap's frames so far; nothing, where none are delayed or lost."""
        place = self._places.get(tap.taken.fileno())
        if place is None:
            return LineCount(0, 0, 0)
        return LineCount(*_COUNTS.unpack_from(self._shared, place * _COUNTS.size))


def _values_at(shared: mmap.mmap, place: int) -> int:
    """Where in it a way's values stand, after the counts of all."""
    ways = len(shared) // (_COUNTS.size + _VALUES.size)
    return ways * _COUNTS.size + place * _VALUES.size


class _Way:
    """One direction of a link, within the process."""

    def __init__(self, tap: Tap, impairment: Impairment, shared: mmap.mmap, place: int) -> None:
        self.taken, self.given = tap.taken, tap.given
        self.taken.setblocking(False)
        self.lost = self.arrived = self.late = 0
        self._shared, self._at = shared, _values_at(shared, place)
        self._losses = impairment.losses or Losses(0.0, 1.0, 0.0, 0.0)
        self._random = random.Random(impairment.seed)
        self._bad = False
        self._last_ns = 0
        self._reorders = impairment.reorders

    def loses(self) -> bool:
        """Whether the next frame is lost."""
        losses, bad = self._losses, self._bad
        if losses.good_to_bad:
            change = losses.bad_to_good if bad else losses.good_to_bad
            self._bad = bad != (self._random.random() < change)
        chance = losses.loss_bad if bad else self._values()[2]
        return chance > 0 and self._random.random() < chance

    def due_ns(self, arrived_ns: int) -> int:
        """When a frame is to go on."""
        delay_ns, jitter_ns, _ = self._values()
        if jitter_ns:
            delay_ns = max(0.0, self._random.gauss(delay_ns, jitter_ns))
        due_ns = arrived_ns + round(delay_ns)
        if self._reorders:
            return due_ns
        self._last_ns = max(self._last_ns, due_ns)
        return self._last_ns

    def _values(self) -> tuple[float, float, float]:
        delay_ns, jitter_ns, loss = _VALUES.unpack_from(self._shared, self._at)
        return delay_ns, jitter_ns, loss


def _missed(taken: socket.socket) -> int:
    """Frames that a socket had no room for since the last time it was asked."""
    _, dropped = struct.unpack("=II", taken.getsockopt(_SOL_PACKET, _STATISTICS, 8))
    return int(dropped)


def _carry(ways: Sequence[_Way], shared: mmap.mmap) -> None:
    by_file = {way.taken.fileno(): place for place, way in enumerate(ways)}
    held: list[tuple[int, int, int, bytes]] = []
    serial = 0
    while True:
        now_ns = time.time_ns()
        while held and held[0][0] <= now_ns:
            due_ns, _, place, packet = heapq.heappop(held)
            way = ways[place]
            way.given.send(packet)
            way.arrived += 1
            if time.time_ns() - due_ns > LATE_NS:
                way.late += 1 + _missed(way.taken)
            _COUNTS.pack_into(shared, place * _COUNTS.size, way.lost, way.arrived, way.late)
            now_ns = time.time_ns()
        wait_s = max(0, held[0][0] - now_ns - SPIN_NS) * 1e-9 if held else None
        for file in select.select(by_file, (), (), wait_s)[0]:
            place = by_file[file]
            way = ways[place]
            with contextlib.suppress(BlockingIOError):
                while True:
                    packet, extra, _, _ = way.taken.recvmsg(_MOST_PACKET_BYTES, NOTE_BYTES)
                    if way.loses():
                        way.lost += 1
                        _COUNTS.pack_into(
                            shared, place * _COUNTS.size, way.lost, way.arrived, way.late
                        )
                        continue
                    came_ns = noted_ns(extra)
                    assert came_ns is not None
                    due_ns = way.due_ns(came_ns)
                    serial += 1
                    heapq.heappush(held, (due_ns, serial, place, packet))
                    if held[0][0] <= time.time_ns():
                        break
