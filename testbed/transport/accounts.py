# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a node's side of a link has sent, frame by frame, by its own books and by the kernel's."""

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
"""Offsets in `struct tcp_info` of linux/tcp.h, which only ever grows at its end."""
_FIN_UNSENT = (1, 8)
"""`tcpi_state` of connections that this side has not ended: ESTABLISHED, CLOSE_WAIT."""


@dataclass(frozen=True)
class TcpCount:
    """What the kernel's TCP has sent on a connection (`tcp_info`), or between two moments.

    TCP counts a frame as sent also where the link's own queue refuses it, and then again when it
    tries anew, which is no retransmission to it. What a connection carries is therefore read from
    what was acknowledged and what is still to be.
    """

    empty_segments: int = 0
    """Frames without data."""
    tried_segments: int = 0
    """Frames with data for the first time, with those that the link's queue refused."""
    taken_segments: int = 0
    """The same without the refused, but with the frame that opened the connection, and one that
    did nothing but end it."""
    data_bytes: int = 0
    """Bytes of the stream; of who opened the connection, one more."""
    resent_segments: int = 0
    """Retransmissions."""
    resent_bytes: int = 0
    spurious_segments: int = 0
    """Of them, those of which the peer said that it had them already (RFC 2883)."""

    @classmethod
    def of(cls, sock: socket.socket) -> "TcpCount":
        """What a TCP socket has sent since it was connected."""
        info, queued_bytes = b"", -1
        # Until nothing was acknowledged meanwhile, so that the two belong together.
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
            # What the peer says it got twice, the kernel counts as delivered twice.
            taken_segments=delivered - twice + unacked - sacked,
            # The end of a stream counts as a byte.
            data_bytes=acked_bytes + queued_bytes - (info[0] not in _FIN_UNSENT),
            resent_segments=resent,
            resent_bytes=resent_bytes,
            spurious_segments=twice,
        )

    def __add__(self, other: "TcpCount") -> "TcpCount":
        """Both together."""
        return TcpCount(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def since(self, before: "TcpCount") -> "TcpCount":
        """What was sent since then."""
        return TcpCount(*(getattr(self, f.name) - getattr(before, f.name) for f in fields(self)))


@dataclass(frozen=True)
class QuicCount:
    """What a QUIC connection has sent, or between two moments: datagrams by what is in them.

    Bytes of datagrams are those of their UDP payload.
    """

    stream_bytes: int = 0
    """Data of streams, for the first time."""
    data_datagrams: int = 0
    data_bytes: int = 0
    """Of datagrams with such data, but for what they repeat."""
    resent_datagrams: int = 0
    """Datagrams that carry no data but such as was sent before."""
    resent_bytes: int = 0
    """Their bytes, and what others repeat."""
    control_datagrams: int = 0
    """Datagrams without data: acknowledgements, windows, probes."""
    control_bytes: int = 0
    handshake_datagrams: int = 0
    handshake_bytes: int = 0

    def __add__(self, other: "QuicCount") -> "QuicCount":
        """Both together."""
        return QuicCount(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def since(self, before: "QuicCount") -> "QuicCount":
        """What was sent since then."""
        return QuicCount(*(getattr(self, f.name) - getattr(before, f.name) for f in fields(self)))


def _queued_bytes(sock: socket.socket) -> int:
    """What was given to a socket and is not acknowledged yet."""
    (size,) = struct.unpack("=i", fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)))
    return int(size)


@dataclass
class Counts:
    """A frame that a node sent, and what was sent from then until the node's next frame."""

    kind: str
    """Of `testbed.transport.wire.Kind`; empty of what was sent after the books had been taken."""
    iteration: int
    payload_bytes: int
    framing_bytes: int
    """Header, labels, names of adapters; of a connection of its own also its greeting."""
    record_bytes: int
    """What TLS adds to the frame."""
    opened: int
    """Connections that this side opened for the frame."""
    accepted: int
    """Connections that the peer opened, on which this side sent since."""
    handshake_bytes: int
    """TLS handshake messages of this side."""
    tcp: TcpCount
    quic: QuicCount = QuicCount()

    @classmethod
    def of(cls, header: Header, greeting_bytes: int = 0) -> "Counts":
        """The books of a frame that is about to be sent."""
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
    """What a side of a link has sent, frame by frame; nothing of it is in no frame's counts."""

    def __init__(self, greeting: Counts, sent: Callable[[], TcpCount | QuicCount]) -> None:
        """Begin with those of a greeting; `sent`: all that the connection has sent so far."""
        self._counts = [greeting]
        self._sent = sent
        self._tcp, self._quic = TcpCount(), QuicCount()

    def begin(self, frame: Counts) -> None:
        """A frame is about to be sent; what has been sent until now was for others."""
        self._close()
        self._counts.append(frame)

    def take(self) -> list[Counts]:
        """The books until now. They begin anew: libraries speak on their own, too."""
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
