# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Counters of sent traffic per frame, from a node's own accounts and from the kernel's."""

import fcntl
import socket
import struct
import termios
from collections.abc import Callable
from dataclasses import dataclass, fields

from testbed.transport.wire import Header

_UNACKED, _SACKED = 24, 28
_TOTAL_RETRANS = 100
_BYTES_ACKED = 120
_SEGS_OUT = 136
_DATA_SEGS_OUT = 156
_DELIVERED = 192
_BYTES_RETRANS = 208
_DSACK_DUPS = 216
_INFO_BYTES = 220
"""Offsets in, and size of, `struct tcp_info` of linux/tcp.h, which is only extended at its end."""
_FIN_UNSENT = (1, 8)
"""`tcpi_state` of connections that this side has not closed: ESTABLISHED, CLOSE_WAIT."""


@dataclass(frozen=True)
class TcpCount:
    """Traffic that TCP has sent on a connection (`tcp_info`), in total or between two times.

    TCP counts a frame as sent even if the local queue refuses it, and again when it retries, which
    is no retransmission. The carried traffic is therefore computed from acknowledged and
    unacknowledged data.
    """

    empty_segments: int = 0
    """Frames without data."""
    tried_segments: int = 0
    """Frames with new data, including those that the local queue refused."""
    taken_segments: int = 0
    """Frames with new data, without refused ones, but including the frame that opened the
    connection, and one that only closed it."""
    data_bytes: int = 0
    """Bytes of the stream; one more on the side that opened the connection."""
    resent_segments: int = 0
    """Retransmitted frames."""
    resent_bytes: int = 0
    spurious_segments: int = 0
    """Retransmitted frames that the peer reported as duplicates (RFC 2883)."""

    @classmethod
    def of(cls, sock: socket.socket) -> "TcpCount":
        """Traffic that a TCP socket has sent since it was connected."""
        info, queued_bytes = b"", -1
        # Repeated until both values are from the same time.
        while (now_bytes := _queued_bytes(sock)) != queued_bytes:
            queued_bytes = now_bytes
            info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        if len(info) < _INFO_BYTES:
            return cls()
        unacked, sacked = struct.unpack_from("=II", info, _UNACKED)
        (resent,) = struct.unpack_from("=I", info, _TOTAL_RETRANS)
        (acked_bytes,) = struct.unpack_from("=Q", info, _BYTES_ACKED)
        (segments,) = struct.unpack_from("=I", info, _SEGS_OUT)
        (data_segments,) = struct.unpack_from("=I", info, _DATA_SEGS_OUT)
        (delivered,) = struct.unpack_from("=I", info, _DELIVERED)
        (resent_bytes,) = struct.unpack_from("=Q", info, _BYTES_RETRANS)
        (twice,) = struct.unpack_from("=I", info, _DSACK_DUPS)
        return cls(
            empty_segments=segments - data_segments,
            tried_segments=data_segments - resent,
            # The kernel counts frames that the peer reports as duplicates twice.
            taken_segments=delivered - twice + unacked - sacked,
            # The FIN counts as one byte.
            data_bytes=acked_bytes + queued_bytes - (info[0] not in _FIN_UNSENT),
            resent_segments=resent,
            resent_bytes=resent_bytes,
            spurious_segments=twice,
        )

    def __add__(self, other: "TcpCount") -> "TcpCount":
        """The sum of two counters."""
        return TcpCount(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def since(self, before: "TcpCount") -> "TcpCount":
        """The traffic sent since the earlier count."""
        return TcpCount(*(getattr(self, f.name) - getattr(before, f.name) for f in fields(self)))


@dataclass(frozen=True)
class QuicCount:
    """Traffic that a QUIC connection has sent, in total or between two times, by type of datagram.

    Sizes of datagrams are those of the UDP payload.
    """

    stream_bytes: int = 0
    """New stream data."""
    data_datagrams: int = 0
    data_bytes: int = 0
    """Bytes of datagrams with new data, without their repeated data."""
    resent_datagrams: int = 0
    """Datagrams whose data had all been sent before."""
    resent_bytes: int = 0
    """Bytes of such datagrams, and repeated data in others."""
    control_datagrams: int = 0
    """Datagrams without data: acknowledgements, flow control, probes."""
    control_bytes: int = 0
    handshake_datagrams: int = 0
    handshake_bytes: int = 0

    def __add__(self, other: "QuicCount") -> "QuicCount":
        """The sum of two counters."""
        return QuicCount(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def since(self, before: "QuicCount") -> "QuicCount":
        """The traffic sent since the earlier count."""
        return QuicCount(*(getattr(self, f.name) - getattr(before, f.name) for f in fields(self)))


def _queued_bytes(sock: socket.socket) -> int:
    """Bytes that were written to a socket and have not been acknowledged."""
    (size,) = struct.unpack("=i", fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)))
    return int(size)


@dataclass
class Counts:
    """Counters of a sent frame, with all traffic from it until the node's next frame."""

    kind: str
    """Name in `testbed.transport.wire.Kind`; empty for traffic after the counters were read."""
    iteration: int
    payload_bytes: int
    framing_bytes: int
    """Header, labels, names of adapters; with a connection per transfer also its greeting."""
    record_bytes: int
    """Overhead of TLS records."""
    opened: int
    """Connections that this side opened for the frame."""
    accepted: int
    """Connections opened by the peer on which this side has sent since."""
    handshake_bytes: int
    """Bytes of this side's TLS handshake messages."""
    tcp: TcpCount
    quic: QuicCount = QuicCount()

    @classmethod
    def of(cls, header: Header, greeting_bytes: int = 0) -> "Counts":
        """Counters of a frame that will be sent."""
        return cls(
            kind=header.kind.name,
            iteration=header.iteration,
            payload_bytes=header.payload_bytes,
            framing_bytes=header.frame_bytes - header.payload_bytes + greeting_bytes,
            record_bytes=0,
            opened=0,
            accepted=0,
            handshake_bytes=0,
            tcp=TcpCount(),
        )


class Books:
    """Counters of one side of a link by frame; each sent byte belongs to exactly one frame."""

    def __init__(self, greeting: Counts, sent: Callable[[], TcpCount | QuicCount]) -> None:
        """Begin with the counters of a greeting; `sent` returns the connection's total traffic."""
        self._counts = [greeting]
        self._sent = sent
        self._tcp, self._quic = TcpCount(), QuicCount()

    def begin(self, frame: Counts) -> None:
        """Begin the counters of a frame; traffic until now belongs to earlier frames."""
        self._close()
        self._counts.append(frame)

    def take(self) -> list[Counts]:
        """Return the counters, and begin new ones: libraries may also send between frames."""
        self._close()
        taken, self._counts = self._counts, [Counts("", 0, 0, 0, 0, 0, 0, 0, TcpCount())]
        return [c for c in taken if c.kind or c.tcp != TcpCount() or c.quic != QuicCount()]

    def _close(self) -> None:
        last, now = self._counts[-1], self._sent()
        if isinstance(now, TcpCount):
            last.tcp += now.since(self._tcp)
            self._tcp = now
        else:
            last.quic += now.since(self._quic)
            self._quic = now
