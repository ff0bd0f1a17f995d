"""What a node's side of a link has sent, frame by frame, by its own books and by the kernel's."""

import socket
import struct
from dataclasses import dataclass, fields

from testbed.wire import Header

_TOTAL_RETRANS = 100
_SEGS_OUT = 136
_DATA_SEGS_OUT = 156
_BYTES_SENT = 200
_INFO_BYTES = 216
"""Offsets in `struct tcp_info` of linux/tcp.h, which only ever grows at its end."""


@dataclass(frozen=True)
class TcpCount:
    """What the kernel's TCP has sent on a connection (`tcp_info`), or between two moments."""

    segments: int = 0
    """Frames of all kinds, also those that carry no data."""
    data_segments: int = 0
    """Frames with data, retransmitted ones too."""
    data_bytes: int = 0
    """Bytes of the stream, retransmitted ones too."""
    resent_segments: int = 0
    resent_bytes: int = 0

    @classmethod
    def of(cls, sock: socket.socket) -> "TcpCount":
        """What a TCP socket has sent since it was connected."""
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        if len(info) < _INFO_BYTES:
            return cls()
        (resent,) = struct.unpack_from("=I", info, _TOTAL_RETRANS)
        (segments,) = struct.unpack_from("=I", info, _SEGS_OUT)
        (data_segments,) = struct.unpack_from("=I", info, _DATA_SEGS_OUT)
        sent_bytes, resent_bytes = struct.unpack_from("=QQ", info, _BYTES_SENT)
        return cls(segments, data_segments, sent_bytes, resent, resent_bytes)

    def __add__(self, other: "TcpCount") -> "TcpCount":
        """Both together."""
        return TcpCount(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def since(self, before: "TcpCount") -> "TcpCount":
        """What was sent since then."""
        return TcpCount(*(getattr(self, f.name) - getattr(before, f.name) for f in fields(self)))


@dataclass
class Counts:
    """A frame that a node sent, and what the kernel sent from then until the node's next frame."""

    kind: str
    """Of `testbed.wire.Kind`."""
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
