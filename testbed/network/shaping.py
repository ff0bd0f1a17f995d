# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Shaping of one end of a link: the qdiscs, and the messages that change its rate in place.

Each end carries, from the device inwards, a *valve* (TBF), a *shaper* (HTB with one class) and a
*queue* (bfifo). The reasons:

- HTB keeps its token account when its rate changes. TBF refills its bucket, so that every change
  would let a burst through.
- A frame is released when the account is not negative and is charged afterwards. At a very low rate
  the debt of a single frame lasts for seconds, and no later change cancels it. Therefore an outage
  is not a rate but a closed valve: the queue holds its frames, none leaves, nothing is charged, and
  they continue at once when the valve opens.
- The valve uses the charges to close. Each frame is charged as `_CLOSED_FRAME_BYTES` (the rate's
  minimum packet unit), which is more than the bucket ever holds, so no frame passes. The limit on a
  frame's size ignores that unit, so all frames can still be queued. The valve tries again every
  `POLL_S`, which bounds the delay at opening; more often if it is about to open.
- A closed valve has taken one packet from the shaper, which was charged for it long ago. When it
  opens for a transfer that has waited behind it, the link's credit is therefore set explicitly
  (`End.release`).
"""

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

from testbed.network.impairments import DEVICE_OFFSET, HANDLE
from testbed.system import netlink
from testbed.system.netlink import attribute, message, nested, text, u32
from testbed.transport.framing import ETHERNET_BYTES, Framing

POLL_S = 0.5e-3
"""Interval at which a closed valve with frames behind it tries again, in s."""
SOON_POLL_S = 50e-6
"""Interval at which a valve tries again that is about to open, in s."""

_TICK_S = 64e-9
"""The unit of the kernel's packet scheduler (/proc/net/psched)."""
_ETHERNET = 1
"""Link layer; any value except 0 makes the kernel use rates instead of outdated rate tables."""
_CLOSED_FRAME_BYTES = 65_535
_OPEN_BYTES_S = 4_000_000_000
_LEAST_BURST_S = 0.2e-3
_WAY_S = 0.15e-3
"""Time from a sender's timer to the kernel's timestamp of arrival on an idle link: waking up, the
first packet's path, the last packet's timer. Measured by calibrations: 0.05 to 0.22 ms."""
WITHOUT_CREDIT_S = _WAY_S
"""The `Shape.burst_s` of links on which an idle sender saves up no credit."""
INITIAL_FRAMES = 10
"""TCP's initial window (RFC 6928) in frames; each of the first packets has half of it."""
ACKNOWLEDGEMENT_BYTES = 66
"""The frame that acknowledges: Ethernet, IP, and TCP with time stamps."""
_MOST_PACKET_BYTES = 64_000
"""The valve lets no packet of 64 KiB pass."""
_QUEUED_PACKETS = 4
"""Packets of a transfer in the queue: TCP has three there, or one more while the first is being
sent."""
ROOT = 0xFFFF_FFFF
VALVE, SHAPER, QUEUE = 0x1_0000, 0x2_0000, 0x3_0000
"""Handles of the three qdiscs of an end."""

_RED_WEIGHT, _RED_DROPS, _RED_NOMINAL_BPS = 9, 0.02, 10e6
KIND, OPTIONS = 1, 2
_STATS2, _STAB = 7, 8
_BASIC, _QUEUE_STATS, _OWN_STATS = 1, 3, 4
_TCMSG = struct.Struct("=BxxxiIII")
_RATE = struct.Struct("=BBHhHI")


@dataclass(frozen=True)
class Shape:
    """Properties of all links of a run, and which nodes can reach each other."""

    mtu: int = 1500
    queue_frames: int = 100
    """Full frames that an end's queue holds; more are dropped, and TCP is notified at once."""
    charges_headers: bool = True
    """Whether the rate carries Ethernet frames, or only the payload of TCP segments."""
    burst_s: float = 4e-3
    """HTB burst in seconds: late transmission of a busy link that is caught up. An idle link
    accumulates it as credit: a sender that begins after its transfer's start, by at most this time,
    uses the credit at once, and then follows the integral of the rates."""
    congestion_control: str = "cubic"
    """Congestion control of all TCP connections over the links."""
    initial_window: int | None = None
    """Initial window of TCP connections in segments; None: the kernel's default."""
    queue: str = "fifo"
    """Queueing discipline of each end: `fifo`, `fq_codel`, `pie` or `red`."""
    ecn: bool = False
    """Whether TCP negotiates ECN, and queues other than fifo mark packets instead of dropping
    them."""
    impaired: bool = False
    """Whether the radio channel delays or loses frames."""
    single_frames: bool = False
    """Whether the radio channel loses or reorders frames: the kernel then segments packets into
    frames before they arrive, so that each frame is handled separately."""
    packet_s: float = 0.25e-3
    """Longest packet, as emulated seconds at the link's rate. The kernel handles packets of one or
    more frames, and TCP acknowledges packets: longer ones need less computing and fewer bytes in
    the reverse direction, shorter ones follow the rate more closely."""

    network: bool = False
    """Whether nodes see one network, as third-party programs expect: one address of the base
    station for all UAVs, and IPv6. Otherwise each link is a network of its own."""
    relay: bool = False
    """Whether UAVs reach each other through the base station; requires `network`."""
    shared_downlink: bool = False
    """Whether downlinks share the airtime of the cell, and each downlink's rate is the one it would
    have alone: see `testbed.network.airtime`."""
    serial: bool = False
    """Whether links are serial lines, which the kernel of virtual time has: see
    `testbed.network.serial_line`. There is no credit then, and any rate above 0 is carried."""
    paced: tuple[int, ...] = ()
    """Links, from 1, on which a frame arrives when its last bit has been sent: see
    `testbed.network.pacing`."""

    @property
    def credit_s(self) -> float:
        """Delay of a sender after its transfer's start, in real seconds: `burst_s` less the time
        that a frame takes through programs and kernel."""
        return 0.0 if self.serial else self.burst_s - _WAY_S

    def of(self, link: int) -> "Shape":
        """The shape of one link, from 1: a paced one may always save up `burst_s` as by default,
        because its frames are held until they have been sent."""
        return replace(self, burst_s=Shape.burst_s) if link in self.paced else self

    @property
    def frame_bytes(self) -> int:
        """Bytes that the shaper charges for a full frame."""
        framing = Framing(self.mtu)
        return framing.frame_bytes if self.charges_headers else framing.segment_bytes

    def burst_at(self, rate_bps: float, packet_frames: int = 1) -> float:
        """Seconds of credit that an idle end accumulates, at a rate in bit/s.

        The last packet of a transfer leaves before its own transmission time is over; this adds
        half a packet of credit, on average over transfer sizes.
        """
        packet_s = packet_frames * self.frame_bytes * 8 / rate_bps
        return max(_LEAST_BURST_S, self.burst_s - packet_s / 2)

    def early_at(self, rate_bps: float, packet_frames: int = 1) -> float:
        """Largest time in s by which a transfer on an idle link ends before the integral of its
        rate.

        It is the time of the last packet plus the credit, minus the delay of the sender.
        """
        if self.serial:
            return 0.0
        packet_s = packet_frames * self.frame_bytes * 8 / rate_bps
        return packet_s + self.burst_at(rate_bps, packet_frames) - self.credit_s

    def packet_frames(self, rate_bps: float, back_bps: float = math.inf) -> int:
        """Largest number of frames that the kernel handles as one packet, at a rate in emulated
        bit/s.

        On serial lines, packets are so large that each is acknowledged within half its time by the
        other direction, at `back_bps`, as far as the queue permits: otherwise acknowledgements
        would limit a link that is many times as fast as its other direction.
        """
        frames = int(self.packet_s * rate_bps / (8 * self.frame_bytes))
        if self.serial and self.packet_s and 0 < back_bps < math.inf:
            needed = 2 * ACKNOWLEDGEMENT_BYTES * rate_bps / back_bps / self.frame_bytes
            frames = max(frames, min(math.ceil(needed), self.queue_frames // _QUEUED_PACKETS))
        return max(1, min(frames, _MOST_PACKET_BYTES // self.mtu))

    @property
    def most_asymmetry(self) -> float:
        """Largest ratio of a serial line's rate to that of its other direction at which TCP's
        acknowledgements do not limit it; infinity for other links, which accumulate credit for
        them."""
        largest = self.queue_frames // _QUEUED_PACKETS * self.frame_bytes
        return largest / ACKNOWLEDGEMENT_BYTES if self.serial else math.inf

    @property
    def prompt_asymmetry(self) -> float:
        """Largest ratio of a serial line's rate to that of its other direction at which the first
        windows of a transfer are acknowledged in time; infinity for other links."""
        first = INITIAL_FRAMES // 2 * self.frame_bytes
        return first / (2 * ACKNOWLEDGEMENT_BYTES) if self.serial else math.inf

    def credit_packets(self, rate_bps: float, packet_frames: int = 1) -> int:
        """Number of packets that an end can certainly send without waiting for the shaper after a
        long idle time, at a rate in bit/s.

        They use up the credit. At low rates the credit is less than a packet, and the number is 0.
        """
        packet_s = packet_frames * self.frame_bytes * 8 / rate_bps
        return int(self.burst_at(rate_bps, packet_frames) / packet_s - 0.01)

    def lowest_rate(self, slot_s: float) -> float:
        """The rate in bit/s below which a link counts as an outage: one full frame per slot.

        Below it, the debt of a frame would outlast the slot. A serial line has no such rate.
        """
        if self.serial:
            return 0.0
        return self.frame_bytes * 8 / slot_s


def serial_queue_frames(mtu: int) -> int:
    """The queue of a serial line, which holds the largest packets of a transfer: with fewer frames
    per packet, acknowledgements would limit it where the other direction is very slow."""
    return max(Shape.queue_frames, _QUEUED_PACKETS * (_MOST_PACKET_BYTES // mtu))


def removal(device: int) -> bytes:
    """The message that removes all qdiscs from a device, together with the frames queued there."""
    return qdisc_message(netlink.DELQDISC, 0, device, 0, ROOT)


def qdisc_message(
    kind: int, flags: int, index: int, handle: int, parent: int, *options: bytes
) -> bytes:
    """The message about a qdisc or class of a device, with its attributes."""
    return message(kind, flags, _TCMSG.pack(0, index, handle, parent, 0) + b"".join(options))


def _ticks(seconds: float) -> int:
    return max(1, round(seconds / _TICK_S))


def _rate(bytes_s: int, least_bytes: int = 0) -> bytes:
    return _RATE.pack(0, _ETHERNET, 0, 0, least_bytes, bytes_s)


def size_table(shape: Shape) -> list[bytes]:
    """The attribute of an end's first qdisc that sets a constant charge per frame."""
    if shape.charges_headers:
        return []
    # Without entries it only subtracts, from each frame, the headers of a TCP segment.
    framing = Framing(shape.mtu)
    headers = framing.frame_bytes - framing.segment_bytes
    table = struct.pack("=BBhiIIII", 0, 0, 0, -headers, _ETHERNET, 0, 0, 0)
    return [nested(_STAB, attribute(1, table))]


def _valve(index: int, flags: int, shape: Shape, poll_s: float | None) -> bytes:
    """Create or change a valve: closed, trying again every `poll_s` seconds; None: open."""
    if poll_s is None:
        rate, buffer_s = _rate(_OPEN_BYTES_S), 1e-3
    else:
        bytes_s = round(_CLOSED_FRAME_BYTES / poll_s)
        rate = _rate(bytes_s, least_bytes=_CLOSED_FRAME_BYTES)
        buffer_s = _CLOSED_FRAME_BYTES / 4 / bytes_s
    options = rate + bytes(12) + struct.pack("=III", 1 << 20, _ticks(buffer_s), 0)
    return qdisc_message(
        netlink.NEWQDISC,
        flags,
        index,
        VALVE,
        ROOT,
        attribute(KIND, text("tbf")),
        nested(OPTIONS, attribute(1, options)),
        # A change without the size table would remove it.
        *size_table(shape),
    )


def _shaper(index: int, flags: int, shape: Shape, rate_bps: float, burst_s: float) -> bytes:
    rate = _rate(max(1, round(rate_bps / 8)))
    buffer = _ticks(burst_s)
    options = rate + rate + struct.pack("=IIIII", buffer, buffer, shape.frame_bytes, 0, 0)
    return qdisc_message(
        netlink.NEWTCLASS,
        flags,
        index,
        SHAPER | 1,
        SHAPER,
        attribute(KIND, text("htb")),
        nested(OPTIONS, attribute(1, options)),
    )


def queue_message(index: int, flags: int, shape: Shape) -> bytes:
    """The message that puts the queue below the only class of an end's shaper."""
    frame = shape.mtu + ETHERNET_BYTES
    kind, limit, ecn = shape.queue, u32(shape.queue_frames), u32(int(shape.ecn))
    match kind:
        case "fq_codel":
            options = nested(OPTIONS, attribute(2, limit), attribute(4, ecn))
        case "pie":
            options = nested(OPTIONS, attribute(2, limit), attribute(6, ecn))
        case "red":
            options = _red(shape.queue_frames * frame, frame, shape.ecn)
        case _:
            kind = "bfifo"
            options = attribute(OPTIONS, u32(shape.queue_frames * frame))
    return qdisc_message(
        netlink.NEWQDISC, flags, index, QUEUE, SHAPER | 1, attribute(KIND, text(kind)), options
    )


def _red(limit_bytes: int, frame_bytes: int, ecn: bool) -> bytes:
    """RED by the rules of thumb of tc-red(8): drops begin at a twelfth of the queue, 2 % at most
    up to a quarter of it, and the weight of the moving average is 1/512 per frame."""
    most, least = limit_bytes // 4, limit_bytes // 12
    slope = math.ceil(math.log2((most - least) / _RED_DROPS))
    frame_us = 8 * frame_bytes / _RED_NOMINAL_BPS * 1e6
    forgotten = -math.log2(1 - 2**-_RED_WEIGHT) / frame_us
    cell = max(0, math.ceil(math.log2(31 / forgotten / 512)))
    damping = bytes(min(31, int((place << cell) * forgotten)) for place in range(255)) + b"\x1f"
    parameters = struct.pack(
        "=IIIBBBB", limit_bytes, least, most, _RED_WEIGHT, slope, cell, int(ecn)
    )
    return nested(
        OPTIONS,
        attribute(1, parameters),
        attribute(2, damping),
        attribute(3, u32(round(_RED_DROPS * 2**32))),
    )


class End:
    """One end of a link: the device of that index, and the messages that set its rate.

    It starts closed.
    """

    def __init__(self, index: int, shape: Shape) -> None:
        self.index = index
        self.rate_bps = 0.0
        """The rate that `changed` set last, in bit/s; 0 is an outage."""
        self.packet_frames = 1
        """Frames that the kernel may handle as one packet."""
        self._shape = shape
        self._shaped_bps = shape.lowest_rate(1.0)
        self._open = _valve(index, 0, shape, None)
        self._close = _valve(index, 0, shape, POLL_S)

    def install(self) -> list[bytes]:
        """The messages that put valve, shaper and queue in place."""
        create = netlink.CREATE | netlink.REPLACE
        return [
            _valve(self.index, create, self._shape, POLL_S),
            qdisc_message(
                netlink.NEWQDISC,
                create,
                self.index,
                SHAPER,
                VALVE | 1,
                attribute(KIND, text("htb")),
                nested(OPTIONS, attribute(2, struct.pack("=IIIII", 3, 10, 1, 0, 0))),
            ),
            self._shaper(self._shaped_bps, flags=create),
            queue_message(self.index, create, self._shape),
        ]

    def change(self, rate_bps: float) -> list[bytes]:
        """The messages that change the rate; none if it stays the same."""
        if rate_bps == self.rate_bps:
            return []
        if rate_bps == 0:
            return [self._close]
        messages = []
        if rate_bps != self._shaped_bps:
            messages.append(self._shaper(rate_bps))
        if self.rate_bps == 0:
            messages.append(self._open)
        return messages

    def soon(self) -> list[bytes]:
        """The messages that prepare a closed valve for opening: it tries again more often."""
        return [_valve(self.index, 0, self._shape, SOON_POLL_S)]

    def release(self, rate_bps: float, credit_s: float) -> list[bytes]:
        """The messages that open a closed valve with that rate and that credit."""
        burst_s = max(0.0, credit_s)
        return [_shaper(self.index, 0, self._shape, rate_bps, burst_s), self._open]

    def restore(self) -> list[bytes]:
        """The messages that set the usual burst again, some time after `release`."""
        return [self._shaper(self._shaped_bps)]

    def _shaper(self, rate_bps: float, flags: int = 0) -> bytes:
        burst_s = self._shape.burst_at(rate_bps, self.packet_frames)
        return _shaper(self.index, flags, self._shape, rate_bps, burst_s)

    def changed(self, rate_bps: float) -> None:
        """Record that the messages of `change` were sent."""
        self.rate_bps = rate_bps
        if rate_bps:
            self._shaped_bps = rate_bps


@dataclass(frozen=True)
class QueueCount:
    """Counters of an end's queue since it was made."""

    sent_bytes: int
    """Bytes as the shaper charges them: with or without headers."""
    sent_frames: int
    dropped_frames: int
    backlog_bytes: int


def qdisc_counts(socket: netlink.Netlink, handle: int) -> Iterator[tuple[int, QueueCount]]:
    """Device index and counters of every qdisc with a handle in a socket's namespace."""
    for index, found, count, *_ in _all_counts(socket):
        if found == handle:
            yield index, count


def _all_counts(
    socket: netlink.Netlink,
) -> Iterator[tuple[int, int, QueueCount, int, int | None]]:
    """Device index, handle, counters, the number of waits for tokens, and the time in ns for which
    a serial line had something to send, of every qdisc in a socket's namespace."""
    for body in socket.dump(netlink.GETQDISC, _TCMSG.pack(0, 0, 0, 0, 0)):
        _, index, handle, _, _ = _TCMSG.unpack_from(body)
        about = netlink.attributes(body[_TCMSG.size :])
        stats = netlink.attributes(about[_STATS2])
        sent_bytes, sent_frames = struct.unpack_from("=QI", stats[_BASIC])
        _, backlog, dropped, _, waits = struct.unpack_from("=IIIII", stats[_QUEUE_STATS])
        busy_ns = None
        if about[KIND] == text("serial"):
            (busy_ns,) = struct.unpack("=Q", stats[_OWN_STATS])
        yield index, handle, QueueCount(sent_bytes, sent_frames, dropped, backlog), waits, busy_ns


def queue_counts(socket: netlink.Netlink) -> dict[int, QueueCount]:
    """The counters of all ends in a socket's namespace, by device index."""
    return dict(qdisc_counts(socket, QUEUE))


def netem_counts(socket: netlink.Netlink) -> dict[int, QueueCount]:
    """Frames that netem forwarded and dropped before each device of a socket's namespace, by
    index."""
    return {index - DEVICE_OFFSET: count for index, count in qdisc_counts(socket, HANDLE)}


def queues_and_waits(socket: netlink.Netlink) -> dict[int, tuple[QueueCount, int, int | None]]:
    """The counters of all ends in a socket's namespace, by device index; the number of times that
    each shaper had to wait before it could send a packet; and the time in ns in which serial lines
    had something to send.

    HTB waits once for each packet of a backlog. Packets for which it does not wait use up the
    credit of an end that was idle.
    """
    queues, waits = {}, {}
    for index, handle, count, waited, busy_ns in _all_counts(socket):
        if handle == QUEUE:
            queues[index] = count
        elif handle == SHAPER:
            waits[index] = waited, busy_ns
    return {index: (count, *waits[index]) for index, count in queues.items()}
