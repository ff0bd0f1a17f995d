# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Delay and loss of frames by a process, for kernels without netem.

Frames that arrive at a device are dropped after packet sockets have received them. The process
reads them from such a socket and, when they are due, writes them to one end of a veth pair whose
other end is in the device's namespace and replaces it. Frames of one direction stay in order unless
the impairment reorders them.

The process handles packets sequentially and takes some 30 µs of a core for each: if links need
more, frames are late. Frames that are later than `LATE_NS` are counted, as are those that were
dropped because a socket buffer was full.
"""

import contextlib
import heapq
import mmap
import os
import random
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
from testbed.system.waiting import Inputs

LATE_NS = 1_000_000
SPIN_NS = 60_000
"""Nanoseconds before a frame is due that are spent in a busy loop."""
MOST_OPEN_FILES = 1024
"""Largest number of sockets that `select` supports."""
OUT_OFFSET, IN_OFFSET = 30_000, 50_000
"""Offsets of the indices of the pair's devices to that of the device whose frames they carry."""

_TCMSG = struct.Struct("=BxxxiIII")
_IFNAME, _ADDRESS, _MTU, _LINKINFO = 3, 1, 4, 18
_CLSACT_HANDLE, _CLSACT, _INGRESS = 0xFFFF_0000, 0xFFFF_FFF1, 0xFFFF_FFF2
_NEWTFILTER, _ALL_PROTOCOLS = 44, 0x0300
_OPERATIONS, _OPERATION_COUNT, _BPF_FLAGS, _ACTION = 5, 4, 8, 1
_DROP = struct.pack("=HBBI", 6, 0, 0, 2)
"""A classic BPF program: return TC_ACT_SHOT."""
_EVERY_PROTOCOL = 3
"""Only sockets of this protocol receive frames before they are dropped."""
_SOL_PACKET, _VNET_HDR, _QDISC_BYPASS, _IGNORE_OUTGOING = 263, 15, 20, 23
_STATISTICS = 6
_BUFFER_BYTES = 16 << 20
_MOST_PACKET_BYTES = 1 << 17
_COUNTS = struct.Struct("=QQQ")
_VALUES = struct.Struct("=ddd")
"""Values of one direction: delay and jitter in ns, loss probability in the good state."""


@dataclass(frozen=True)
class Tap:
    """Sockets to take frames that arrive at a device, and to give them back."""

    device: int
    name: str
    taken: socket.socket
    given: socket.socket


@dataclass(frozen=True)
class LineCount:
    """Counters of the frames of one direction."""

    dropped_frames: int
    sent_frames: int
    late_frames: int
    """Late frames, including those that were dropped because a socket buffer was full."""


def tap(socket_: netlink.Netlink, device: int, name: str, address: bytes, mtu: int) -> Tap:
    """Create a tap for the frames that arrive at a device of this thread's namespace."""
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
    for filtered in ("all", into):  # Replies leave by another device than frames arrive on.
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
    """The messages that drop arriving frames at a device after packet sockets have received
    them."""
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
    """The process; it ends with the process that started it."""

    def __init__(self, ways: Sequence[tuple[Tap, Impairment]]) -> None:
        """Start to delay and lose the frames of these taps.

        Raises:
            RunError: There are too many taps.
        """
        self._shared = mmap.mmap(-1, (_COUNTS.size + _VALUES.size) * len(ways))
        for place, (_, impairment) in enumerate(ways):
            loss = 0.0 if impairment.losses is None else impairment.losses.loss_good
            self._put(place, impairment.delay_s, impairment.jitter_s, loss)
        self._places = {tap.taken.fileno(): place for place, (tap, _) in enumerate(ways)}
        if any(tap.taken.fileno() >= MOST_OPEN_FILES for tap, _ in ways):
            raise RunError("links: delay or loss on this number of links requires netem")
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
        """Change the impairment of a tap's frames; `loss` is the probability in the good state."""
        self._put(self._places[tap.taken.fileno()], delay_s, jitter_s, loss)

    def _put(self, place: int, delay_s: float, jitter_s: float, loss: float) -> None:
        _VALUES.pack_into(
            self._shared, _values_at(self._shared, place), delay_s * 1e9, jitter_s * 1e9, loss
        )

    def count(self, tap: Tap) -> LineCount:
        """Counters of a tap's frames; all are 0 if no frames are delayed or lost."""
        place = self._places.get(tap.taken.fileno())
        if place is None:
            return LineCount(0, 0, 0)
        return LineCount(*_COUNTS.unpack_from(self._shared, place * _COUNTS.size))


def _values_at(shared: mmap.mmap, place: int) -> int:
    """Offset of a direction's values in the shared memory, after the counters of all directions."""
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
        """Monotonic time in ns at which a frame is due."""
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
    """Frames that a socket dropped since the last call because its buffer was full."""
    _, dropped = struct.unpack("=II", taken.getsockopt(_SOL_PACKET, _STATISTICS, 8))
    return int(dropped)


def _carry(ways: Sequence[_Way], shared: mmap.mmap) -> None:
    by_file = {way.taken.fileno(): place for place, way in enumerate(ways)}
    inputs = Inputs(by_file)
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
        for file in inputs.wait(wait_s):
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
