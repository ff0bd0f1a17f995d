# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Throughput of the network between hosts, measured before a run in both directions at once.

The base station's host opens a TCP connection to each of the other hosts, over which both sides
send as much as they can. The kernel's counters of acknowledged and received bytes on one side give
the throughput. First each host is measured separately, then all together: the bottleneck may be the
interface of a host, or that of the base station's host, where all links end.
"""

import contextlib
import hmac
import select
import socket
import struct
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from testbed.core.errors import RunError
from testbed.transport.framing import IPV4_BYTES, TCP_BYTES

SETTLE_S = 0.2
"""Seconds of slow start that are not counted."""
COUNT_S = 0.5
CONNECT_S = 5.0
LOOK_S = 0.1
_CHUNK = bytes(1 << 18)
_INFO_BYTES, _SEGMENT_AT, _ACKED_AT = 136, 16, 120
"""The kernel's `tcp_info`: its length, the offset of the segment size, and the offset of the
acknowledged bytes, which are followed by the received bytes."""


@dataclass(frozen=True)
class Flow:
    """Throughput in bit/s of IP packets between the base station's host and others."""

    down_bps: float
    """Throughput from the base station's host."""
    up_bps: float


@dataclass(frozen=True)
class Peer:
    """The endpoint of a host for throughput measurements."""

    address: str
    port: int
    password: str


def password_of(token: str) -> str:
    """The password of a host's `Source`: a hash, so that its token is never sent in plain text."""
    return hmac.digest(token.encode(), b"capacity", "sha256").hex()


class Source:
    """A host's end: sends and receives as fast as it can, for one authenticated peer at a time."""

    def __init__(self, address: str, password: str) -> None:
        self._password = password.encode()
        self._over = threading.Event()
        self._sock = socket.create_server((address, 0))
        self.port: int = self._sock.getsockname()[1]
        """Port of the listening socket."""
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while not self._over.is_set():
            try:
                stream, _ = self._sock.accept()
            except OSError:  # The socket was closed.
                return
            with stream, contextlib.suppress(OSError):
                stream.settimeout(CONNECT_S)
                shown = stream.recv(len(self._password), socket.MSG_WAITALL)
                if hmac.compare_digest(shown, self._password):
                    _pump(stream, self._over)

    def close(self) -> None:
        """Stop listening; may be called twice."""
        self._over.set()
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._sock.close()


def measure(peers: Mapping[str, Peer]) -> tuple[dict[str, Flow], Flow]:
    """Throughput to and from each of these hosts separately, and to and from all at once.

    Raises:
        RunError: A host cannot be reached; the message names it.
    """
    alone = {name: _flow({name: peer}) for name, peer in peers.items()}
    together = _flow(peers) if len(peers) > 1 else next(iter(alone.values()))
    return alone, together


def _flow(peers: Mapping[str, Peer]) -> Flow:
    over = threading.Event()
    with ExitStack() as stack:
        streams = [stack.enter_context(_connected(name, peer)) for name, peer in peers.items()]
        pumps = [threading.Thread(target=_pump, args=(each, over)) for each in streams]
        for pump in pumps:
            pump.start()
        try:
            time.sleep(SETTLE_S)
            first_ns, before = time.monotonic_ns(), [_counted(each) for each in streams]
            time.sleep(COUNT_S)
            last_ns, after = time.monotonic_ns(), [_counted(each) for each in streams]
        finally:
            over.set()
            for pump in pumps:
                pump.join()
    per_byte = 8e9 / (last_ns - first_ns)
    down, up = (
        sum(now[way] - then[way] for now, then in zip(after, before, strict=True)) * per_byte
        for way in range(2)
    )
    return Flow(down, up)


def _connected(name: str, peer: Peer) -> socket.socket:
    try:
        stream = socket.create_connection((peer.address, peer.port), CONNECT_S)
        stream.sendall(peer.password.encode())
    except OSError as error:
        raise RunError(
            f"host {name}: the base station's host cannot reach it at {peer.address} "
            f"({error.strerror or error})"
        ) from None
    return stream


def _pump(stream: socket.socket, over: threading.Event) -> None:
    """Send and receive until `over` is set or the peer stops."""
    stream.setblocking(False)
    taken = bytearray(len(_CHUNK))
    poll = select.poll()
    poll.register(stream, select.POLLIN | select.POLLOUT)
    with contextlib.suppress(ConnectionError):
        while not over.is_set():
            for _, ready in poll.poll(1000 * LOOK_S):
                with contextlib.suppress(BlockingIOError):
                    if ready & (select.POLLIN | select.POLLHUP) and not stream.recv_into(taken):
                        return
                    if ready & select.POLLOUT:
                        stream.send(_CHUNK)


def _counted(stream: socket.socket) -> tuple[float, float]:
    """Bytes of IP packets that have been acknowledged and received."""
    info = stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    (segment,) = struct.unpack_from("=I", info, _SEGMENT_AT)
    acked, received = struct.unpack_from("=QQ", info, _ACKED_AT)
    with_headers = 1 + (IPV4_BYTES + TCP_BYTES) / segment
    return acked * with_headers, received * with_headers
