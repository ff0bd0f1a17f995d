# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Frames as unidirectional streams of a QUIC connection (RFC 9000), by aioquic.

The UAV is QUIC's client, and its link one connection for the whole run. TLS 1.3 is part of QUIC:
both sides show certificates of the run's own authority, as under `tls`. Datagrams are as long as
the link's frames allow; losses, acknowledgements and their delays are aioquic's, and so are its
congestion controls (`cubic`, `reno`) with their initial window of ten datagrams.

A transfer ends at the kernel timestamp of its last datagram, even if this process runs later.
"""

import socket
import threading
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from testbed.core.node import NodeId
from testbed.transport import wire
from testbed.transport.accounts import Books, Counts
from testbed.transport.callers import Callers, Meeting, check_token
from testbed.transport.framing import (
    ETHERNET_BYTES,
    IPV4_BYTES,
    UDP_BYTES,
    Framing,
    datagram_bytes,
)
from testbed.transport.interface import Link, TransportKind, TransportSettings
from testbed.transport.wire import Buffer, Header, Kind

if TYPE_CHECKING:
    from testbed.transport.quic_connection import Connection, Endpoint

PACKET_BYTES = 27
"""Overhead of a QUIC packet: flags, connection identifier (8 bytes, as aioquic has it), packet
number (2), and the tag of its encryption (16)."""
_FIRST_OF_CLIENT, _FIRST_OF_SERVER, _STEP = 2, 3, 4
"""First unidirectional stream IDs of client and server, and the step between stream IDs (RFC 9000,
section 2.1)."""


def quic_on_link(message_bytes: int, mtu: int, ethernet_bytes: int = ETHERNET_BYTES) -> int:
    """Bytes of all frames that carry a message as one QUIC stream, as aioquic divides it.

    Its number takes two bytes, as from the seventeenth on.
    """
    frames, sent = 0, 0
    while sent < message_bytes:
        offset_bytes = 0 if not sent else 2 if sent < 1 << 14 else 4 if sent < 1 << 30 else 8
        around = PACKET_BYTES + 1 + 2 + offset_bytes + 2
        size = min(datagram_bytes(mtu) - around, message_bytes - sent)
        frames += ethernet_bytes + IPV4_BYTES + UDP_BYTES + around
        sent += size
    return message_bytes + frames


class QuicLink:
    """Frames as streams, in the order in which the peer opened them."""

    def __init__(self, endpoint: "Endpoint", first: int, timeout_s: float, greeting: Counts):
        self._endpoint = endpoint
        self._stream = first
        self._rest_bytes = 0
        self._arrived_ns = 0
        self._timeout_s = timeout_s
        self._books = Books(greeting, endpoint.count)

    def send(self, header: Header, extra: Buffer = b"", payload: Buffer = b"") -> None:
        """See `Link`; returns before QUIC has sent it."""
        self._books.begin(Counts.of(header))
        self._endpoint.send(b"".join((header.pack(), extra, payload)))

    def receive_header(self, due: Kind) -> Header:
        """See `Link`."""
        data = bytearray(wire.HEADER_BYTES)
        self._receive(memoryview(data))
        header = Header.unpack(data)
        self._rest_bytes = header.extra_bytes + header.payload_bytes
        self._turn_where_all_is_in()
        return header

    def receive_into(self, place: memoryview) -> int:
        """See `Link`."""
        place = place.cast("B")
        if len(place):
            self._receive(place)
            self._rest_bytes -= len(place)
            self._turn_where_all_is_in()
        return self._arrived_ns

    def _receive(self, place: memoryview) -> None:
        self._arrived_ns = self._endpoint.receive_into(self._stream, place, self._timeout_s)

    def _turn_where_all_is_in(self) -> None:
        """Continue with the peer's next stream if the current one is complete."""
        if self._rest_bytes == 0:
            self._endpoint.streams.pop(self._stream)
            self._stream += _STEP

    def count(self) -> list[Counts]:
        """See `Link`."""
        return self._books.take()

    def hang_up(self) -> None:
        """See `Link`."""
        self._endpoint.end("connection closed locally")

    def close(self) -> None:
        """See `Link`."""
        self.hang_up()


def _answer(
    listener: socket.socket,
    settings: TransportSettings,
    callers: Callers,
    meeting: Meeting[QuicLink],
) -> None:
    """Accept each caller, in a thread and on a socket of its own."""
    from testbed.transport.quic_connection import Endpoint, connection_begun, made

    endpoints: dict[tuple[str, int], Endpoint] = {}
    while True:
        datagram, peer = listener.recvfrom(1 << 16)
        if callers.is_shut:
            listener.close()
            return
        if endpoint := endpoints.get(peer):
            endpoint.feed(datagram)  # It arrived before the sender's socket was created.
            continue
        original = connection_begun(datagram)
        if original is None:
            continue
        sock = _socket()
        sock.bind(listener.getsockname())
        sock.connect(peer)
        connection = made(settings, original)
        endpoint = endpoints[peer] = Endpoint(sock, connection)
        endpoint.feed(datagram)
        endpoint.start()
        arguments = (settings, callers, meeting, endpoint, connection, peer)
        threading.Thread(target=_let_in, args=arguments, daemon=True).start()


def _let_in(
    settings: TransportSettings,
    callers: Callers,
    meeting: Meeting[QuicLink],
    endpoint: "Endpoint",
    connection: "Connection",
    peer: tuple[str, int],
) -> None:
    def greet() -> tuple[int, QuicLink]:
        assert settings.identity is not None
        endpoint.await_handshake(settings.timeout_s)
        greeting = _greeting(0, accepted=1)
        link = QuicLink(endpoint, _FIRST_OF_CLIENT, settings.timeout_s, greeting)
        header = link.receive_header(Kind.HELLO)
        token = bytearray.fromhex(settings.token)
        header.expect(Kind.HELLO, 0, 0, len(token))
        given = bytearray(len(token))
        link.receive_into(memoryview(given))
        check_token(given, token)
        connection.verify_client(NodeId(header.client).host_name, settings.identity.authority)
        return header.client, link

    def enter(greeting: tuple[int, QuicLink]) -> bool:
        client, link = greeting
        meeting.claim(client)
        meeting.come(client, link)
        return True

    who = f"{peer[0]}:{peer[1]}"
    callers.let_in(who, lambda: endpoint.end("rejected by this node"), greet, enter)


def _greeting(size: int, opened: int = 0, accepted: int = 0) -> Counts:
    counts = Counts.of(Header(Kind.HELLO, 0, 0, 0, 0, 0, 0.0, 0.0))
    counts.framing_bytes, counts.opened, counts.accepted = size, opened, accepted
    return counts


def _socket() -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    # A connected socket receives its peer's datagrams, and the listener all others.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return sock


def _wake(listener: socket.socket) -> None:
    """Unblock the thread that receives from this socket."""
    host, port = listener.getsockname()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"", ("127.0.0.1" if host == "0.0.0.0" else host, port))


class Quic(TransportKind):
    """Frames as streams of QUIC connections."""

    name = "quic"
    is_tcp = False
    has_certificates = True
    writes_qlog = True
    allowed: Mapping[str, tuple[object, ...]] = {
        "emulation.connection": ("kept",),
        "emulation.nagle": (False,),
        "emulation.initial_window": (None,),
        "emulation.rate_counts": ("frame",),
        "emulation.congestion_control": ("cubic", "reno"),
        "links.ecn": (False,),
    }
    least_mtu = 1228
    """QUIC's datagrams must be able to have 1,200 bytes (RFC 9000, section 14)."""

    def accept(
        self,
        settings: TransportSettings,
        address: tuple[str, int],
        clients: Collection[int],
        listening: Callable[[], object],
    ) -> dict[int, Link]:
        """See `TransportKind`."""
        listener = _socket()
        listener.bind(address)
        callers = Callers(len(clients))
        meeting: Meeting[QuicLink] = Meeting(clients)
        threading.Thread(
            target=_answer, args=(listener, settings, callers, meeting), daemon=True
        ).start()
        listening()
        links: dict[int, Link] = dict(meeting.all(settings.meeting_s))
        callers.shut()
        _wake(listener)
        return links

    def connect(self, settings: TransportSettings, client: int, server: tuple[str, int]) -> Link:
        """See `TransportKind`."""
        from testbed.transport.quic_connection import Endpoint, made

        sock = _socket()
        sock.connect(server)
        endpoint = Endpoint(sock, made(settings))
        endpoint.connect()
        endpoint.start()
        endpoint.await_handshake(settings.meeting_s)
        token = bytes.fromhex(settings.token)
        hello = Header(Kind.HELLO, client, 0, 0, 0, len(token), 0.0, 0.0)
        endpoint.send(hello.pack() + token)
        greeting = _greeting(hello.frame_bytes, opened=1)
        return QuicLink(endpoint, _FIRST_OF_SERVER, settings.timeout_s, greeting)

    def link_bytes(self, framing: Framing, head_bytes: int, payload_bytes: int) -> int:
        """See `TransportKind`."""
        return quic_on_link(head_bytes + payload_bytes, framing.mtu, framing.ethernet_bytes)


QUIC = Quic()
