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
import ssl
import threading
from collections.abc import Callable, Collection

from aioquic import tls
from aioquic.buffer import Buffer as Reader  # type: ignore[attr-defined]
from aioquic.quic.configuration import SMALLEST_MAX_DATAGRAM_SIZE, QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.packet import QuicPacketType, QuicProtocolVersion, pull_quic_header
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from testbed.core.node import BS, NodeId
from testbed.transport import Link, TransportSettings, wire
from testbed.transport.accounts import Books, Counts
from testbed.transport.callers import Callers, Meeting, check_token
from testbed.transport.qlog import LOGGER
from testbed.transport.quic_connection import Endpoint
from testbed.transport.wire import Buffer, Header, Kind, WireError

PROTOCOL = "uav-sfl-testbed"
FLOW_BYTES = 1 << 28
"""Flow-control windows of a stream and of a connection: larger than any transfer."""
IDLE_S = 30 * 86_400.0
"""Idle timeout in s; waiting for a peer has a separate time limit."""
_ID_BYTES = 8
_FIRST_OF_CLIENT, _FIRST_OF_SERVER, _STEP = 2, 3, 4
"""First unidirectional stream IDs of client and server, and the step between stream IDs (RFC 9000,
section 2.1)."""


class _Connection(QuicConnection):
    """A connection whose server requests a certificate from the client."""

    def _initialize(self, peer_cid: bytes) -> None:
        super()._initialize(peer_cid)
        self.tls._request_client_certificate = not self._is_client

    def verify_client(self, name: str, authority: str) -> None:
        """Verify the client's certificate, as the client does with the server's.

        Raises:
            WireError: The client has no certificate of this run, or one of another node.
        """
        certificate = self.tls._peer_certificate
        if certificate is None:
            raise WireError("tls: a peer has no certificate")
        try:
            tls.verify_certificate(certificate, [], name, authority.encode())
        except tls.Alert as error:
            raise WireError(f"tls: {error}") from None


def _configuration(settings: TransportSettings, *, server_side: bool) -> QuicConfiguration:
    identity = settings.identity
    assert identity is not None
    return QuicConfiguration(
        alpn_protocols=[PROTOCOL],
        congestion_control_algorithm=f"booked-{settings.congestion_control}",
        idle_timeout=IDLE_S,
        is_client=not server_side,
        max_data=FLOW_BYTES,
        max_stream_data=FLOW_BYTES,
        max_datagram_size=settings.datagram_bytes,
        quic_logger=LOGGER if settings.qlog else None,
        server_name=None if server_side else BS.host_name,
        supported_versions=[QuicProtocolVersion.VERSION_1],
        cadata=identity.authority.encode(),
        certificate=x509.load_pem_x509_certificate(identity.certificate.encode()),
        private_key=load_pem_private_key(identity.key.encode(), None),
        verify_mode=None if not server_side else ssl.CERT_NONE,
        cipher_suites=[tls.CipherSuite.AES_128_GCM_SHA256],
    )


class QuicLink:
    """Frames as streams, in the order in which the peer opened them."""

    def __init__(self, endpoint: Endpoint, first: int, timeout_s: float, greeting: Counts):
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


def accept(
    settings: TransportSettings,
    address: tuple[str, int],
    clients: Collection[int],
    listening: Callable[[], object],
) -> dict[int, Link]:
    """See `testbed.transport.accept`."""
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


def _answer(
    listener: socket.socket,
    settings: TransportSettings,
    callers: Callers,
    meeting: Meeting[QuicLink],
) -> None:
    """Handle new connections, each in a separate thread with its own socket."""
    endpoints: dict[tuple[str, int], Endpoint] = {}
    while True:
        datagram, peer = listener.recvfrom(1 << 16)
        if callers.is_shut:
            listener.close()
            return
        if endpoint := endpoints.get(peer):
            endpoint.feed(datagram)  # It arrived before the sender's socket was created.
            continue
        original = _connection_begun(datagram)
        if original is None:
            continue
        sock = _socket()
        sock.bind(listener.getsockname())
        sock.connect(peer)
        connection = _Connection(
            configuration=_configuration(settings, server_side=True),
            original_destination_connection_id=original,
        )
        endpoint = endpoints[peer] = Endpoint(sock, connection)
        endpoint.feed(datagram)
        endpoint.start()
        arguments = (settings, callers, meeting, endpoint, connection, peer)
        threading.Thread(target=_let_in, args=arguments, daemon=True).start()


def _let_in(
    settings: TransportSettings,
    callers: Callers,
    meeting: Meeting[QuicLink],
    endpoint: Endpoint,
    connection: _Connection,
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


def _connection_begun(datagram: bytes) -> bytes | None:
    """The destination connection ID of an Initial packet; None for other datagrams."""
    try:
        header = pull_quic_header(Reader(data=datagram), host_cid_length=_ID_BYTES)
    except ValueError:
        return None
    begins = header.packet_type is QuicPacketType.INITIAL
    ours = header.version == QuicProtocolVersion.VERSION_1
    whole = len(datagram) >= SMALLEST_MAX_DATAGRAM_SIZE
    return header.destination_cid if begins and ours and whole else None


def connect(settings: TransportSettings, client: int, server: tuple[str, int]) -> Link:
    """See `testbed.transport.connect`."""
    sock = _socket()
    sock.connect(server)
    connection = _Connection(configuration=_configuration(settings, server_side=False))
    endpoint = Endpoint(sock, connection)
    endpoint.connect()
    endpoint.start()
    endpoint.await_handshake(settings.meeting_s)
    token = bytes.fromhex(settings.token)
    hello = Header(Kind.HELLO, client, 0, 0, 0, len(token), 0.0, 0.0)
    endpoint.send(hello.pack() + token)
    greeting = _greeting(hello.frame_bytes, opened=1)
    return QuicLink(endpoint, _FIRST_OF_SERVER, settings.timeout_s, greeting)


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
