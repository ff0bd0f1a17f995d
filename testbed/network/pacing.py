# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Narrow links on which a frame arrives when its last bit has been sent.

A shaper lets a frame go at the start of its transmission time and then waits. Over a narrow link,
where a frame takes milliseconds, a message therefore arrives much too early, and a frame that was
charged at a low rate delays the next ones after the rate has risen. So a process carries the frames
of such a link between the devices of its ends. It holds each one until the rates of the slots have
carried all of its bits.

The shaper in front only keeps the process supplied, a few milliseconds ahead, so timers of the
kernel that are late cost nothing. It is never slower than `SUPPLY_BPS`: a frame's debt then lasts
3 ms at most. The process closes the valve of a link when it holds enough, and opens it in time.

The process handles packets sequentially and takes some 50 µs of a core for each. `paced_links`
decides which links it can carry.
"""

import contextlib
import gc
import heapq
import math
import mmap
import os
import signal
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace

from testbed.core.errors import RunError
from testbed.network.line import LATE_NS
from testbed.network.shaping import End, QueueCount, Shape
from testbed.system import linux
from testbed.system.arrivals import NOTE_BYTES, note_arrivals, noted_ns
from testbed.system.netlink import Batch, Netlink
from testbed.system.waiting import Inputs

GONE = "the process that paces narrow links is gone"
SUPPLY_BPS = 4e6
"""The lowest rate of the shaper in front of the process."""
MOST_PACED_BPS = 40e6
"""Links with a higher rate are not paced: a frame takes 0.3 ms at most."""
MOST_FRAMES_S = 10_000
"""Full frames per second that the process carries, in the faster direction of all links; it carries
the same number of acknowledgements in the other one."""
MOST_PACED_LINKS = 200
_ENOUGH_S, _LOW_S = 8e-3, 4e-3
"""A valve closes when the frames that are held take longer than `_ENOUGH_S`, and opens when they
take less than `_LOW_S`; there is always one more frame than the one that is being sent."""
_LEAD_NS = 80_000
"""Time by which a frame is sent before it is due, in ns: the time that it takes to the receiving
program."""
_AT_ONCE = 16
"""Number of packets of one direction that are read before others."""
_MOST_PACKET_BYTES = 1 << 17
_SHORTLY_NS = 5_000_000
_GSO = struct.Struct("=xBHH4x")
"""Metadata of a packet: kind of segmentation, bytes of its headers, payload per frame."""
_RATE, _COUNTS = struct.Struct("=dq"), struct.Struct("=dddddq")
"""Shared memory. The injector writes the rate in bit/s and its start; the process writes a
`Carried` and the number of late frames."""


def paced_links(highest_bps: Sequence[tuple[float, float]], shape: Shape) -> tuple[int, ...]:
    """The links that are paced, from 1: the narrowest ones, up to the number that the process can
    carry.

    Args:
        highest_bps: Highest rates of the uplink and the downlink of each link, in real bit/s.
        shape: Shape of the links.
    """
    left, found = float(MOST_FRAMES_S), list[int]()
    for link, rates in sorted(enumerate(highest_bps, 1), key=lambda each: max(each[1])):
        left -= max(rates) / (8 * shape.frame_bytes)
        if max(rates) > MOST_PACED_BPS or left < 0 or len(found) == MOST_PACED_LINKS:
            break
        found.append(link)
    return tuple(sorted(found))


class PacedEnd(End):
    """An end whose shaper supplies the process, which alone moves the valve."""

    def change(self, rate_bps: float) -> list[bytes]:
        """The message that changes the shaper's rate; none if it stays the same."""
        supplied = max(rate_bps, SUPPLY_BPS)
        if rate_bps == 0 or supplied == self._shaped_bps:
            return []
        return [self._shaper(supplied)]

    def changed(self, rate_bps: float) -> None:
        """Record that the messages of `change` were sent."""
        self.rate_bps = rate_bps
        if rate_bps:
            self._shaped_bps = max(rate_bps, SUPPLY_BPS)

    @property
    def valve(self) -> tuple[bytes, bytes]:
        """The messages that close and open the valve."""
        return self._close, self._open


@dataclass(frozen=True)
class Carried:
    """Bits that one direction has carried, at the last event and at any time since."""

    bits: float = 0.0
    """Bits of all frames that have been sent, and of the sent part of the first held frame at
    `since_ns`."""
    left_bits: float = 0.0
    """Remaining bits of the first frame at that time; 0: there is no frame."""
    since_ns: float = 0.0
    """Monotonic time in ns."""
    changed_ns: float = 0.0
    """Time of the last change of the rate."""
    until_change: float = 0.0
    """Bits that had been carried until the last change of the rate."""

    def by(self, at_ns: float, rate_bps: float) -> float:
        """Bits carried until a time, at a rate since the last event."""
        since_s = max(0.0, at_ns - self.since_ns) * 1e-9
        return self.bits + min(self.left_bits, rate_bps * since_s)


class Service:
    """The frames of one direction, which are sent one after the other at the rates of the slots.

    Times are monotonic, in ns.
    """

    def __init__(self, frame_bits: float) -> None:
        self.due_ns: float | None = None
        """When the first frame will have been sent; None: there is none, or the link is out."""
        self.held_bits = 0.0
        """Bits of all frames that have not been sent."""
        self._sent_bits = self._until_change = 0.0
        self.wants_more = False
        """Whether the valve should be open."""
        self._frame_bits = frame_bits
        self._frames: deque[tuple[float, float, bytes | bytearray]] = deque()
        self._since_ns, self._left_bits = 0.0, 0.0
        """Start of the first frame's transmission, and its remaining bits at that time."""
        self._rate_bps, self._changed_ns, self._before_bps = 0.0, 0.0, 0.0

    def take(self, arrived_ns: float, bits: float, frame: bytes | bytearray) -> None:
        """Hold a frame that arrived at a time, not before earlier ones."""
        self._frames.append((arrived_ns, bits, frame))
        self.held_bits += bits
        if len(self._frames) == 1:
            self._begin()
        self._judge()

    def change(self, rate_bps: float, at_ns: float) -> None:
        """Change the rate at a time, which may have passed."""
        if self._frames:
            at_ns = max(at_ns, self._since_ns)
            self._left_bits -= self._carried(self._since_ns, at_ns)
            self._left_bits = max(0.0, self._left_bits)
            self._since_ns = at_ns
        self._rate_bps, self._changed_ns, self._before_bps = rate_bps, at_ns, self._rate_bps
        self._until_change = self.carried().bits
        self._time()
        self._judge()

    def carried(self) -> Carried:
        """Bytes carried so far."""
        first_bits, left_bits = 0.0, 0.0
        if self._frames:
            first_bits, left_bits = self._frames[0][1], self._left_bits
        bits = self._sent_bits + first_bits - left_bits
        return Carried(bits, left_bits, self._since_ns, self._changed_ns, self._until_change)

    def send(self) -> bytes | bytearray:
        """The first frame, which is due; the next one is being sent from then on."""
        assert self.due_ns is not None
        self._since_ns = self.due_ns
        _, bits, frame = self._frames.popleft()
        self.held_bits -= bits
        self._sent_bits += bits
        self._begin()
        self._judge()
        return frame

    def _begin(self) -> None:
        if self._frames:
            arrived_ns, self._left_bits, _ = self._frames[0]
            self._since_ns = max(self._since_ns, arrived_ns)
        self._time()

    def _time(self) -> None:
        self.due_ns = None
        if not self._frames:
            return
        since_ns, left = self._since_ns, self._left_bits
        if since_ns < self._changed_ns:
            before = self._carried(since_ns, self._changed_ns)
            if before >= left:
                self.due_ns = since_ns + left / self._before_bps * 1e9
                return
            since_ns, left = self._changed_ns, left - before
        if self._rate_bps:
            self.due_ns = since_ns + left / self._rate_bps * 1e9

    def _carried(self, begin_ns: float, end_ns: float) -> float:
        """The bits that the link carries between two times."""
        old = max(0.0, min(end_ns, self._changed_ns) - begin_ns)
        new = max(0.0, end_ns - max(begin_ns, self._changed_ns))
        return (old * self._before_bps + new * self._rate_bps) * 1e-9

    def _judge(self) -> None:
        held_s = _LOW_S if self.wants_more is False else _ENOUGH_S
        most_bits = max(self._frame_bits, held_s * self._rate_bps)
        self.wants_more = self._rate_bps > 0 and self.held_bits <= most_bits


@dataclass(frozen=True)
class Course:
    """One direction of a paced link."""

    end: PacedEnd
    """The end where frames are sent."""
    supply: Netlink
    """A socket for its valve in its namespace, which nothing else uses."""
    come: socket.socket
    """Packet socket behind the sending device."""
    go: socket.socket
    """Packet socket behind the receiving device."""


class Pacer:
    """The process; it ends with the process that started it."""

    def __init__(self, courses: Sequence[Course], shape: Shape) -> None:
        """Start to carry the frames of these links; all are out until `change`."""
        self._shared = mmap.mmap(-1, (_RATE.size + _COUNTS.size) * len(courses))
        self._places = {id(course.end): place for place, course in enumerate(courses)}
        heard, self._bell = socket.socketpair()
        self._bell.setblocking(False)
        for course in courses:
            note_arrivals(course.come)
        self._process = os.fork()
        if self._process == 0:
            with contextlib.suppress(BaseException):
                linux.signal_at_parents_death(signal.SIGKILL)
                linux.precise_timers()
                linux.name_process("testbed", "pacing")
                linux.keep_capabilities(linux.CAP_NET_ADMIN, linux.CAP_NET_RAW)
                gc.disable()
                _carry([_Way(course, shape) for course in courses], self._shared, heard)
            os._exit(1)
        heard.close()
        for course in courses:
            course.come.close()

    def gone(self) -> bool:
        """Whether the process has ended unexpectedly."""
        return os.waitpid(self._process, os.WNOHANG)[0] != 0

    def change(self, rates_bps: Sequence[tuple[End, float]], at_ns: int) -> None:
        """Change the rates of paced ends, among others, at a monotonic time.

        Raises:
            RunError: The process has ended.
        """
        for end, rate_bps in rates_bps:
            if (place := self._places.get(id(end))) is not None:
                _RATE.pack_into(self._shared, place * _RATE.size, rate_bps, at_ns)
        try:
            self._bell.send(b"\0")
        except BlockingIOError:
            pass  # It has not looked at earlier changes yet.
        except BrokenPipeError:
            raise RunError(GONE) from None

    def counted(self, end: End, count: QueueCount, at_ns: int) -> tuple[QueueCount, int]:
        """The counters of an end's queue, with the frames that the process holds, and their time.

        Args:
            end: Any end.
            count: Counters of the link's queue.
            at_ns: Monotonic time at which they were read. If the rate has changed shortly before,
                the result is that of the change, so that rates of two slots are not mixed.
        """
        if (place := self._places.get(id(end))) is None:
            return count, at_ns
        carried, _ = self._read(place)
        bits = carried.by(at_ns, end.rate_bps)
        if at_ns - carried.changed_ns < _SHORTLY_NS:
            at_ns, bits = round(carried.changed_ns), carried.until_change
        sent = round(bits / 8)
        queued = max(0, count.sent_bytes + count.backlog_bytes - sent)
        return replace(count, sent_bytes=sent, backlog_bytes=queued), at_ns

    def late_frames(self, end: End) -> int:
        """Frames of an end that were sent too late."""
        place = self._places.get(id(end))
        return 0 if place is None else self._read(place)[1]

    def _read(self, place: int) -> tuple[Carried, int]:
        at, size = _counts_at(self._shared, place), _COUNTS.size
        found = self._shared[at : at + size]
        while (again := self._shared[at : at + size]) != found:  # The process was writing.
            found = again
        *carried, late = _COUNTS.unpack(found)
        return Carried(*carried), late


def _counts_at(shared: mmap.mmap, place: int) -> int:
    """Offset of a direction's counters in the shared memory, after the rates of all directions."""
    ways = len(shared) // (_RATE.size + _COUNTS.size)
    return ways * _RATE.size + place * _COUNTS.size


class _Way:
    """One direction of a link, within the process."""

    def __init__(self, course: Course, shape: Shape) -> None:
        self.service = Service(8.0 * shape.frame_bytes)
        self.late = 0
        self.come, self._go = course.come, course.go
        self.come.setblocking(False)
        self.go = course.go.send
        self._supply = course.supply
        self._valve = tuple(Batch([each]) for each in course.end.valve)
        self._open = False
        self._uncharged = 0 if shape.charges_headers else shape.mtu + 14 - shape.frame_bytes

    def bits(self, packet: bytes | bytearray) -> float:
        """Bits of a packet on the link: the headers of each of its frames count."""
        size = len(packet) - _GSO.size
        kind, headers, payload = _GSO.unpack_from(packet)
        if kind and payload:
            size += headers * (math.ceil((size - headers) / payload) - 1)
        return 8.0 * max(1, size - self._uncharged)

    def move_valve(self) -> None:
        """Open or close the valve, if necessary."""
        if self._open != self.service.wants_more:
            self._open = self.service.wants_more
            self._supply.send(self._valve[self._open])
            self._supply.check()


def _carry(ways: Sequence[_Way], shared: mmap.mmap, bell: socket.socket) -> None:
    by_file = {way.come.fileno(): place for place, way in enumerate(ways)}
    inputs = Inputs((bell.fileno(), *by_file))
    known = [(0.0, 0)] * len(ways)
    due: list[tuple[float, int]] = []

    def note(place: int) -> None:
        way = ways[place]
        way.move_valve()
        carried = astuple(way.service.carried())
        _COUNTS.pack_into(shared, _counts_at(shared, place), *carried, way.late)

    while True:
        now_ns = time.monotonic_ns()
        while due and due[0][0] <= now_ns + _LEAD_NS:
            due_ns, place = heapq.heappop(due)
            way = ways[place]
            if way.service.due_ns != due_ns:
                continue  # The rate has changed since.
            with contextlib.suppress(OSError):
                way.go(way.service.send())
            way.late += now_ns - due_ns > LATE_NS
            if way.service.due_ns is not None:
                heapq.heappush(due, (way.service.due_ns, place))
            note(place)
            now_ns = time.monotonic_ns()
        wait_s = max(0.0, due[0][0] - now_ns - _LEAD_NS) * 1e-9 if due else None
        ready = inputs.wait(wait_s)
        if bell.fileno() in ready:
            ready.remove(bell.fileno())
            if not bell.recv(64):
                return
            for place in range(len(ways)):
                rate_bps, at_ns = rate = _RATE.unpack_from(shared, place * _RATE.size)
                if rate != known[place]:
                    known[place] = rate
                    service = ways[place].service
                    service.change(rate_bps, at_ns)
                    if service.due_ns is not None:
                        heapq.heappush(due, (service.due_ns, place))
                    note(place)
        ahead_ns = time.time_ns() - time.monotonic_ns()
        for file in ready:
            place = by_file[file]
            way = ways[place]
            was_ns = way.service.due_ns
            with contextlib.suppress(BlockingIOError):
                for _ in range(_AT_ONCE):
                    packet, extra, _, _ = way.come.recvmsg(_MOST_PACKET_BYTES, NOTE_BYTES)
                    came_ns = noted_ns(extra)
                    assert came_ns is not None
                    way.service.take(came_ns - ahead_ns, way.bits(packet), packet)
            if way.service.due_ns not in (was_ns, None):
                heapq.heappush(due, (way.service.due_ns, place))
            note(place)
