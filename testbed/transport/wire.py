# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The wire: what base station and UAVs say to each other over the shaped links.

A frame is a fixed header, a few extra bytes (labels), and a payload of raw tensor bytes or
safetensors. Sizes are agreed beforehand through the control plane; a frame that does not fit is
refused by name before any memory is taken for it, and payloads are received into place. Nothing is
ever unpickled.

State of a connection, seen from the UAV::

    HELLO ▶ (per probe) PROBE ▶ or ◀ PROBE
            (per round) ◀ BROADCAST  RECEIPT ▶  ◀ START
            (per iteration) SMASHED ▶  ◀ GRADIENT  RECEIPT ▶
            ADAPTERS ▶
"""

import enum
import select
import socket
import struct
import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from testbed.system.arrivals import NOTE_BYTES, note_arrivals, noted_ns

Buffer = bytes | bytearray | memoryview

MAGIC = 0x5AF1
VERSION = 1
TOKEN_BYTES = 16

_BODY = struct.Struct("<HBBHHIIQdd")
_CRC = struct.Struct("<I")
HEADER_BYTES = _BODY.size + _CRC.size
PIECE_BYTES = 1 << 14
"""Bytes that a receiver sleeps through; more would leave the sender waiting for its window."""
LABEL_BYTES = 4
"""A label travels as a little-endian uint32 beside the smashed data."""
PORT = struct.Struct("<H")
"""Beside a greeting (HELLO): where its sender listens, 0 where it does not."""
GREETING_BYTES = HEADER_BYTES + PORT.size + TOKEN_BYTES
"""What whoever opens a connection says on it first."""


class Kind(enum.IntEnum):
    """What a frame is."""

    HELLO = 1
    """UAV to BS, once a connection; the payload is the run's token."""
    BROADCAST = 2
    """SM: the global client adapters."""
    RECEIPT = 3
    """UAV to BS: a broadcast or gradient has arrived; carries when."""
    START = 4
    """BS to UAV: all clients have the broadcast; carries the emulated time of the common start."""
    SMASHED = 5
    """CA: smashed data, with labels."""
    GRADIENT = 6
    """SG: gradient of the smashed data."""
    ADAPTERS = 7
    """CM: the client's adapters."""
    PROBE = 8
    """Before the first round, either way: bytes that calibrate the links."""
    END = 9
    """BS to UAV: an asynchronous round has no more updates for it."""


class WireError(Exception):
    """A frame is not what the protocol allows here; the message names the field."""


class ConnectionLost(Exception):
    """The peer closed the connection, or nothing came in time."""


@dataclass(frozen=True)
class Header:
    """Fixed part of a frame."""

    kind: Kind
    client: int
    """From 1."""
    iteration: int
    """From 1; 0 where no iteration applies."""
    round: int
    extra_bytes: int
    payload_bytes: int
    time_s: float
    """Emulated time: when sending began; of RECEIPT and START, the moment that it reports."""
    compute_s: float
    """SMASHED: τ_CB(i-1) + τ_CF(i), the client's part of its lag, in emulated seconds."""

    @property
    def frame_bytes(self) -> int:
        """Bytes of the whole frame."""
        return HEADER_BYTES + self.extra_bytes + self.payload_bytes

    def pack(self) -> bytes:
        """The header's bytes, checksum last."""
        body = _BODY.pack(
            MAGIC,
            VERSION,
            self.kind,
            self.client,
            self.iteration,
            self.round,
            self.extra_bytes,
            self.payload_bytes,
            self.time_s,
            self.compute_s,
        )
        return body + _CRC.pack(zlib.crc32(body))

    @classmethod
    def unpack(cls, data: Buffer) -> "Header":
        """Read a header of `HEADER_BYTES` bytes.

        Raises:
            WireError: It is none of ours.
        """
        view = memoryview(data)
        if len(view) != HEADER_BYTES:
            raise WireError(f"header: must have {HEADER_BYTES} bytes, not {len(view)}")
        body = view[: _BODY.size]
        (checksum,) = _CRC.unpack(view[_BODY.size :])
        if zlib.crc32(body) != checksum:
            raise WireError("checksum: the header is corrupted")
        magic, version, kind, *rest = _BODY.unpack(body)
        if magic != MAGIC:
            raise WireError(f"magic: 0x{magic:04x} is not 0x{MAGIC:04x}")
        if version != VERSION:
            raise WireError(f"version: {version} is not {VERSION}")
        try:
            return cls(Kind(kind), *rest)
        except ValueError:
            raise WireError(f"kind: {kind} is unknown") from None

    def expect(self, kind: Kind, round_: int, extra_bytes: int, payload_bytes: int) -> None:
        """Refuse a frame other than the one that is due.

        Raises:
            WireError: Names the first field that does not fit.
        """
        for field, given, due in (
            ("kind", self.kind.name, kind.name),
            ("round", self.round, round_),
            ("extra_bytes", self.extra_bytes, extra_bytes),
            ("payload_bytes", self.payload_bytes, payload_bytes),
        ):
            if given != due:
                raise WireError(f"{field}: {given} where {due} is due (client {self.client})")


@dataclass(frozen=True)
class RoundSizes:
    """Payload bytes of a round's frames."""

    adapters: int
    adapters_header: int
    """Bytes of the safetensors header that goes before the adapters."""
    smashed: int
    labels: int
    """Number of labels beside each smashed batch."""
    batches: int
    """How many batches each client trains on: I."""


def message_bytes(payload_bytes: int, labels: int = 0) -> int:
    """Bytes of a frame as TCP sees it."""
    return HEADER_BYTES + labels * LABEL_BYTES + payload_bytes


def configure(sock: socket.socket, timeout_s: float, *, nagle: bool = False) -> None:
    """Set what every connection of the wire has: moments of arrival, and a deadline.

    Args:
        sock: A TCP socket.
        timeout_s: Real seconds after which waiting for the peer gives up.
        nagle: Whether small segments wait for the acknowledgement of earlier ones.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, not nagle)
    note_arrivals(sock)
    sock.settimeout(timeout_s)


def send_parts(sock: socket.socket, *parts: Buffer) -> None:
    """Send parts one after the other; returns when the kernel has taken all of them.

    Raises:
        ConnectionLost: The peer is gone, or took nothing in time.
    """
    views = [memoryview(part).cast("B") for part in parts]
    try:
        sent = sock.sendmsg(views)
        for view in views:
            if sent < len(view):
                sock.sendall(view[sent:])
                sent = 0
            else:
                sent -= len(view)
    except OSError as error:
        raise ConnectionLost(f"sending: {error}") from None


def receive_into(sock: socket.socket, place: memoryview) -> int:
    """Fill `place` from the socket.

    The kernel wakes us once a piece, not once a packet: at hundreds of Mb/s on few cores the
    wake-ups of many receivers would disturb what is being measured. The last piece ends where the
    frame ends, so that its arrival is seen at once.

    Returns:
        Monotonic time in ns at which the last packet came in, by the kernel's own note: it does not
        depend on when this process gets to run. Now, where the kernel made no note.

    Raises:
        ConnectionLost: The peer is gone, or nothing came in time.
    """
    place = place.cast("B")
    ready = select.poll()
    ready.register(sock, select.POLLIN)
    timeout_s = sock.gettimeout()
    arrived_ns = time.monotonic_ns()
    while len(place):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, min(len(place), PIECE_BYTES))
        if not ready.poll(None if timeout_s is None else 1000 * timeout_s):
            raise ConnectionLost(f"nothing came for {timeout_s:g} s")
        try:
            count, notes, _, _ = sock.recvmsg_into([place], NOTE_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            continue
        except OSError as error:
            raise ConnectionLost(str(error)) from None
        if count == 0:
            raise ConnectionLost("the peer closed the connection")
        place = place[count:]
        arrived_ns = arrived(notes)
    return arrived_ns


def arrived(notes: Iterable[tuple[int, int, bytes]]) -> int:
    """Monotonic time in ns at which what was received came in, by the kernel's note beside it."""
    now_ns = time.monotonic_ns()
    if (then_ns := noted_ns(notes)) is None:
        return now_ns
    # The kernel notes the time of day; what has passed since then is the same by both.
    return now_ns - max(0, time.time_ns() - then_ns)
