# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The wire protocol between base station and UAVs over the shaped links.

A frame consists of a fixed header, a few extra bytes (labels), and a payload of raw tensor bytes or
safetensors. Sizes are agreed in advance through the control plane; a wrong frame is refused with an
error that names the field before any memory is allocated for it, and payloads are received in
place. Nothing is ever unpickled.

Sequence of frames, seen from the UAV::

    HELLO ▶ (per probe) PROBE ▶ or ◀ PROBE
            (per round) ◀ BROADCAST  RECEIPT ▶  ◀ START (per iteration) SMASHED ▶  ◀ GRADIENT
            RECEIPT ▶ ADAPTERS ▶

In paradigms that aggregate gradients, ◀ SHARED RECEIPT ▶ come before GRADIENT, or ◀ START replaces
it; where uploads wait for permission, REQUEST ▶ ◀ GRANT come before SMASHED and ADAPTERS, or before
ADAPTERS alone.
"""

import enum
import select
import socket
import struct
import sys
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
MOST_ITERATIONS = 2**16 - 1
"""Largest iteration number that fits into a header."""
HEADER_BYTES = _BODY.size + _CRC.size
_OVERTAKEN = 224
"""Offset of `tcpi_rcv_ooopack` in `struct tcp_info` of linux/tcp.h."""
PIECE_BYTES = 1 << 14
"""Bytes per wake-up of a receiver; with more, the sender would wait for its receive window."""
LABEL_BYTES = 4
"""Bytes of a label, a little-endian uint32 that is sent with the smashed data."""
PORT = struct.Struct("<H")
"""Extra bytes of a greeting (HELLO): listening port of the sender, 0 if it does not listen."""
GREETING_BYTES = HEADER_BYTES + PORT.size + TOKEN_BYTES
"""Size of the greeting with which a connection begins."""


class Kind(enum.IntEnum):
    """Type of a frame."""

    HELLO = 1
    """From the side that opens a connection, once; the payload is the run's token."""
    BROADCAST = 2
    """SM: the global client adapters."""
    RECEIPT = 3
    """UAV to BS: a broadcast or gradient has arrived; contains the arrival time."""
    START = 4
    """BS to UAV: all clients have the broadcast, of adapters or of gradients; contains the emulated
    time at which all continue."""
    SMASHED = 5
    """CA: smashed data, with labels."""
    GRADIENT = 6
    """SG: gradient of the smashed data."""
    ADAPTERS = 7
    """CM: the client's adapters."""
    PROBE = 8
    """In both directions, before the first round: a transfer that calibrates the links."""
    END = 9
    """BS to UAV: an asynchronous round has no further updates for it."""
    SHARED = 10
    """SG: gradients of the smashed data that are averaged over the clients, the same for all."""
    REQUEST = 11
    """UAV to BS: smashed data of the iteration are ready to be uploaded, or adapters, which have
    the number after the last one; contains the time."""
    GRANT = 12
    """BS to UAV: the upload may start; contains its time."""


class WireError(Exception):
    """A frame violates the protocol; the message names the field."""


class ConnectionLost(Exception):
    """The peer closed the connection, or nothing arrived in time."""


@dataclass(frozen=True)
class Header:
    """The fixed header of a frame."""

    kind: Kind
    client: int
    """Index of the client, starting from 1."""
    iteration: int
    """Iteration, from 1; 0 if not applicable."""
    round: int
    extra_bytes: int
    payload_bytes: int
    time_s: float
    """Emulated start time of the transfer; in RECEIPT and START, the reported time."""
    compute_s: float
    """In SMASHED: τ_CB(i-1) + τ_CF(i), the client's part of its lag, in emulated seconds."""

    @property
    def frame_bytes(self) -> int:
        """Bytes of the whole frame."""
        return HEADER_BYTES + self.extra_bytes + self.payload_bytes

    def pack(self) -> bytes:
        """Encode the header; the checksum is last."""
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
        """Decode a header of `HEADER_BYTES` bytes.

        Raises:
            WireError: The header is invalid.
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
        """Refuse a frame other than the expected one.

        Raises:
            WireError: A field is wrong; the message names the first one.
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
    """The global adapters, from the base station."""
    adapters_header: int
    """Bytes of the safetensors header that precedes the adapters."""
    smashed: int
    labels: int
    """Number of labels that are sent with each smashed batch."""
    batches: int
    """Number of batches of the client, I_k."""
    encoded_up: int = -1
    """Bytes of the client's adapters; negative: the same number as for the global ones."""
    encoded_gradient: int = -1
    """Bytes of the gradient that only the client itself is sent; negative: the same number as for
    the smashed data."""
    shared_gradient: int = 0
    """Aggregated gradients of a batch, which all clients are sent; 0: none are aggregated."""
    varying: tuple[str, ...] = ()
    """Directions of codecs whose sizes depend on the data; the sizes are bounds for them."""

    @property
    def adapters_up(self) -> int:
        """The client's adapters."""
        return self.adapters if self.encoded_up < 0 else self.encoded_up

    @property
    def gradient(self) -> int:
        """Gradients of a batch that only the client itself is sent."""
        return self.smashed if self.encoded_gradient < 0 else self.encoded_gradient


def message_bytes(payload_bytes: int, labels: int = 0) -> int:
    """Bytes of a whole frame in the TCP stream."""
    return HEADER_BYTES + labels * LABEL_BYTES + payload_bytes


def configure(sock: socket.socket, timeout_s: float, *, nagle: bool = False) -> None:
    """Set the options of a connection: kernel timestamps, time limit, Nagle's algorithm.

    Args:
        sock: A TCP socket.
        timeout_s: Time limit of waiting for the peer, in real seconds.
        nagle: Whether Nagle's algorithm is enabled.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, not nagle)
    note_arrivals(sock)
    sock.settimeout(timeout_s)


def send_parts(sock: socket.socket, *parts: Buffer) -> None:
    """Send parts one after the other; returns when the kernel has accepted all of them.

    Raises:
        ConnectionLost: The peer has disconnected, or accepted no data in time.
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

    The kernel wakes this thread once per piece, not once per packet: at hundreds of Mb/s on few
    cores, the wake-ups of many receivers would disturb the measurement. The last piece ends with
    the frame, so that its arrival is noticed at once.

    Returns:
        Monotonic arrival time of the last packet in ns by its kernel timestamp, which does not
        depend on when this process runs; the current time if there is no timestamp, or if packets
        overtook each other: the kernel has no timestamp of the one for which the others waited.

    Raises:
        ConnectionLost: The peer has disconnected, or nothing arrived in time.
    """
    place = place.cast("B")
    ready = select.poll()
    ready.register(sock, select.POLLIN)
    timeout_s = sock.gettimeout()
    arrived_ns, overtaken = time.monotonic_ns(), _overtaken(sock)
    while len(place):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, min(len(place), PIECE_BYTES))
        if not ready.poll(None if timeout_s is None else 1000 * timeout_s):
            raise ConnectionLost(f"nothing arrived for {timeout_s:g} s")
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
    return arrived_ns if _overtaken(sock) == overtaken else max(arrived_ns, time.monotonic_ns())


def _overtaken(sock: socket.socket) -> int:
    """Number of packets that came out of order on a TCP connection."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return 0
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _OVERTAKEN + 4)
    return int.from_bytes(info[_OVERTAKEN:], sys.byteorder)


def arrived(notes: Iterable[tuple[int, int, bytes]]) -> int:
    """Monotonic arrival time in ns, from the kernel timestamp in the ancillary data."""
    now_ns = time.monotonic_ns()
    if (then_ns := noted_ns(notes)) is None:
        return now_ns
    # The timestamp is Unix time; the time since then is equal for both clocks.
    return now_ns - max(0, time.time_ns() - then_ns)
