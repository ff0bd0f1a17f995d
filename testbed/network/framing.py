# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Bytes that a message takes on an Ethernet link with TCP/IPv4, gRPC or QUIC."""

from dataclasses import dataclass

ETHERNET_BYTES = 14
IPV4_BYTES = 20
TCP_BYTES = 32
"""Bytes of a TCP header with the timestamp option, as Linux sends it."""
SYN_OPTION_BYTES = 8
"""Additional TCP option bytes of the frames that open a connection."""
GRPC_PREFIX_BYTES = 5
UDP_BYTES = 8
QUIC_PACKET_BYTES = 27
"""Overhead of a QUIC packet: flags (1), connection identifier (8 in aioquic), packet number (2),
and authentication tag (16)."""
HTTP2_FRAME_BYTES = 9
HTTP2_DATA_BYTES = 1 << 14
"""Largest part of a message in a DATA frame of gRPC (RFC 9113 lets peers agree on more)."""


@dataclass(frozen=True)
class Framing:
    """Bytes that the kernel's shaper charges for a message on a link with MTU `mtu`."""

    mtu: int

    @property
    def segment_bytes(self) -> int:
        """Message bytes in a full TCP segment: 1448 at MTU 1500."""
        return self.mtu - IPV4_BYTES - TCP_BYTES

    @property
    def frame_bytes(self) -> int:
        """Bytes of a full frame: 1514 at MTU 1500."""
        return self.mtu + ETHERNET_BYTES

    def on_link(self, message_bytes: int) -> int:
        """Bytes of all frames that carry a message of that many bytes."""
        segments = -(-message_bytes // self.segment_bytes)
        return message_bytes + segments * (ETHERNET_BYTES + IPV4_BYTES + TCP_BYTES)

    def opening(self) -> int:
        """Bytes of the frames that a client sends to open a connection: SYN and ACK."""
        return 2 * (ETHERNET_BYTES + IPV4_BYTES + TCP_BYTES) + SYN_OPTION_BYTES


def grpc_bytes(message_bytes: int) -> int:
    """Bytes of the HTTP/2 frames that carry a gRPC message."""
    size = message_bytes + GRPC_PREFIX_BYTES
    return size + HTTP2_FRAME_BYTES * -(-size // HTTP2_DATA_BYTES)


def datagram_bytes(mtu: int) -> int:
    """Largest UDP payload in bytes."""
    return mtu - IPV4_BYTES - UDP_BYTES


def quic_on_link(message_bytes: int, mtu: int) -> int:
    """Bytes of all frames that carry a message as a separate QUIC stream, as aioquic packs it.

    The stream ID takes two bytes, as from the seventeenth stream on.
    """
    frames, sent = 0, 0
    while sent < message_bytes:
        offset_bytes = 0 if not sent else 2 if sent < 1 << 14 else 4 if sent < 1 << 30 else 8
        around = QUIC_PACKET_BYTES + 1 + 2 + offset_bytes + 2
        size = min(datagram_bytes(mtu) - around, message_bytes - sent)
        frames += ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES + around
        sent += size
    return message_bytes + frames
