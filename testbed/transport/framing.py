# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Bytes of a message on an Ethernet link that carries it: TCP/IPv4 and UDP/IPv4."""

from dataclasses import dataclass

ETHERNET_BYTES = 14
IPV4_BYTES = 20
TCP_BYTES = 32
"""TCP header with the timestamp option, as Linux sends it."""
SYN_OPTION_BYTES = 8
"""Extra bytes of options in the frames that begin a connection."""
UDP_BYTES = 8


@dataclass(frozen=True)
class Framing:
    """Bytes that the kernel's shaper, or a radio, charges for a message on a link of that MTU."""

    mtu: int
    charges_headers: bool = True
    """Whether the headers of frames are charged, or only the bytes of the TCP stream."""
    ethernet_bytes: int = ETHERNET_BYTES
    """Header of a frame; 0 where a frame is an IP packet."""

    @property
    def segment_bytes(self) -> int:
        """Message bytes in a full TCP segment: 1448 at MTU 1500."""
        return self.mtu - IPV4_BYTES - TCP_BYTES

    @property
    def frame_bytes(self) -> int:
        """Bytes of a full frame: 1514 at MTU 1500."""
        return self.mtu + self.ethernet_bytes

    def on_link(self, message_bytes: int) -> int:
        """Bytes that are charged for all frames that carry a message of a given size."""
        if not self.charges_headers:
            return message_bytes
        segments = -(-message_bytes // self.segment_bytes)
        return message_bytes + segments * (self.ethernet_bytes + IPV4_BYTES + TCP_BYTES)

    def opening(self) -> int:
        """Bytes that are charged for the frames that open a connection: SYN and ACK."""
        if not self.charges_headers:
            return 0
        return 2 * (self.ethernet_bytes + IPV4_BYTES + TCP_BYTES) + SYN_OPTION_BYTES


def datagram_bytes(mtu: int) -> int:
    """Largest payload of a UDP datagram, in bytes, without headers."""
    return mtu - IPV4_BYTES - UDP_BYTES
