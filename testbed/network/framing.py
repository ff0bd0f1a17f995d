# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How many bytes a message takes on an Ethernet link that carries it over TCP/IPv4, and gRPC."""

from dataclasses import dataclass

ETHERNET_BYTES = 14
IPV4_BYTES = 20
TCP_BYTES = 32
"""TCP header with the timestamp option, as Linux sends it."""
SYN_OPTION_BYTES = 8
"""What the options of the frames that begin a connection take more."""
GRPC_PREFIX_BYTES = 5
HTTP2_FRAME_BYTES = 9
HTTP2_DATA_BYTES = 1 << 14
"""Most of a message in a DATA frame, as gRPC cuts it (RFC 9113 lets peers agree on more)."""


@dataclass(frozen=True)
class Framing:
    """Bytes that the kernel's shaper charges for a message on a link of that MTU."""

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
        """Bytes of the frames with which one who opens a connection does so: SYN and ACK."""
        return 2 * (ETHERNET_BYTES + IPV4_BYTES + TCP_BYTES) + SYN_OPTION_BYTES


def grpc_bytes(message_bytes: int) -> int:
    """Bytes of the HTTP/2 frames that carry a gRPC message."""
    size = message_bytes + GRPC_PREFIX_BYTES
    return size + HTTP2_FRAME_BYTES * -(-size // HTTP2_DATA_BYTES)
