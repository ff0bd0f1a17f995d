# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Links to other machines without the right to create tunnels: a process forwards their frames.

The namespaces of an ordinary user have no device to the machine's network, but a socket that was
opened outside of them remains in that network. So a link's device is one end of a veth pair whose
other end is in a separate namespace: frames that arrive there are read from a packet socket and
sent, as one datagram, to the other machine's process, which writes them to its own pair. A datagram
carries the kernel's metadata of the packet (checksum, frames) and the packet with its Ethernet
header.

The process handles packets sequentially and takes some ten microseconds of a core for each: its
packet rate is measured before a run, see `testbed.cluster.relaying`.
"""

import contextlib
import os
import select
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from testbed.system import linux, netlink
from testbed.system.netlink import Netlink, attribute, message, nested, text, u32

RELAY_BYTES = 52
"""Bytes that a datagram adds to an inner IP packet of one frame: outer IPv4, UDP, the kernel's
metadata, and inner Ethernet."""
AT_ONCE = 32
"""Number of packets of one direction that are handled before others."""
_MOST_PACKET_BYTES = 1 << 17
_EVERY_PROTOCOL = 3
_SOL_PACKET, _VNET_HDR, _QDISC_BYPASS, _IGNORE_OUTGOING = 263, 15, 20, 23
_SO_RCVBUFFORCE = 33
_BUFFER_BYTES = 4 << 20
_IP_MTU_DISCOVER, _IP_PMTUDISC_DONT = 10, 0
_ADDRESS, _IFNAME, _MTU, _LINKINFO, _NET_NS_FD, _TX_QUEUES, _RX_QUEUES = 1, 3, 4, 18, 28, 31, 32


@dataclass(frozen=True)
class Inner:
    """The device of a link in a node's namespace."""

    index: int
    name: str
    namespace: int
    """Open file of the node's network namespace."""
    address: bytes


def datagrams(address: str) -> socket.socket:
    """An unconnected socket for a link's datagrams, on a free port."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    # Packets of several frames exceed the network's MTU: allow IP fragmentation.
    sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DONT)
    for name in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        sock.setsockopt(socket.SOL_SOCKET, name, _BUFFER_BYTES)
    sock.bind((address, 0))
    return sock


def frames(outside: Netlink, index: int, inner: Inner, mtu: int) -> socket.socket:
    """Create a link's device, and a packet socket at the other end of its pair.

    Args:
        outside: Netlink socket of this thread's namespace, where the pair's other end will be.
        index: Device index of the other end.
        inner: The link's device.
        mtu: MTU of both.
    """
    queues = attribute(_TX_QUEUES, u32(1)) + attribute(_RX_QUEUES, u32(1))
    size = attribute(_MTU, u32(mtu)) + queues
    peer = netlink.IFINFO.pack(0, 0, inner.index, 0, 0) + attribute(_IFNAME, text(inner.name))
    peer += attribute(_ADDRESS, inner.address) + attribute(_NET_NS_FD, u32(inner.namespace)) + size
    name = f"link{index}"
    body = netlink.IFINFO.pack(0, 0, index, 0, 0) + attribute(_IFNAME, text(name)) + size
    body += nested(_LINKINFO, attribute(1, text("veth")), nested(2, attribute(1, peer)))
    outside.transact(
        [
            message(netlink.NEWLINK, netlink.CREATE | netlink.EXCLUSIVE, body),
            *netlink.without_ipv6_addresses(index, mtu),
            netlink.up(index),
        ]
    )
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    for option in (_VNET_HDR, _QDISC_BYPASS, _IGNORE_OUTGOING):
        sock.setsockopt(_SOL_PACKET, option, 1)
    for option in (socket.SO_RCVBUF, _SO_RCVBUFFORCE):
        with contextlib.suppress(PermissionError):
            sock.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
    sock.bind((name, _EVERY_PROTOCOL))
    return sock


class Relay:
    """The relay process; it ends with the process that started it."""

    def __init__(self, links: Sequence[tuple[socket.socket, socket.socket]]) -> None:
        """Forward between the sockets of each link (`frames`, `datagrams`), of which it takes
        ownership."""
        self._process = os.fork()
        if self._process == 0:
            with contextlib.suppress(BaseException):
                linux.signal_at_parents_death(signal.SIGKILL)
                linux.precise_timers()
                linux.drop_privileges()
                _carry(links)
            os._exit(1)
        for link in links:
            for sock in link:
                sock.close()

    def gone(self) -> bool:
        """Whether the process has ended unexpectedly."""
        return os.waitpid(self._process, os.WNOHANG)[0] != 0

    def end(self) -> None:
        """End the process."""
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)


def _carry(links: Sequence[tuple[socket.socket, socket.socket]]) -> None:
    packet = bytearray(_MOST_PACKET_BYTES)
    view = memoryview(packet)
    poll = select.epoll()
    ways: dict[int, tuple[Callable[..., int], Callable[..., int]]] = {}
    for link in links:
        for come, go in (link, link[::-1]):
            ways[come.fileno()] = come.recv_into, go.send
            poll.register(come, select.EPOLLIN)
    while True:
        for file, _ in poll.poll():
            receive, send = ways[file]
            # Sending fails if the kernel refuses a packet, or the other machine is not listening
            # yet; the sender will retransmit it.
            with contextlib.suppress(OSError):
                for _ in range(AT_ONCE):
                    send(view[: receive(packet, 0, socket.MSG_DONTWAIT)])
