# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""TLS 1.3 over a TCP socket with direct access to the record layer.

OpenSSL encrypts from memory to memory, so that record sizes are known and kernel timestamps, which
`ssl.SSLSocket` hides, can be read.
"""

import contextlib
import os
import socket
import ssl
import threading
from functools import cache
from typing import Any

from testbed.core.node import BS, NodeId
from testbed.transport import wire
from testbed.transport.framing import Framing
from testbed.transport.interface import Identity, TransportSettings
from testbed.transport.streams import Stream, StreamTransport
from testbed.transport.wire import Buffer, ConnectionLost, WireError

RECORD_BYTES = 1 << 14
"""Largest plaintext of a record (RFC 8446, section 5.1)."""
RECORD_OVERHEAD_BYTES = 22
"""Overhead of a record: header, content type and authentication tag of AES-GCM or
ChaCha20-Poly1305."""
_RECORD_HEADER_BYTES = 5
_WRITE_BYTES = 16 * RECORD_BYTES


def record_overhead_bytes(*part_bytes: int) -> int:
    """Record overhead of a frame whose parts (header with extras, payload) have these lengths."""
    return RECORD_OVERHEAD_BYTES * sum(-(-size // RECORD_BYTES) for size in part_bytes)


@cache
def client_flights_bytes() -> tuple[int, ...]:
    """Bytes of each of the two flights that a client sends in a handshake with a server of its
    run."""
    from testbed.transport.certificates import identities

    server, client = identities(1)
    ours, theirs = (ssl.MemoryBIO(), ssl.MemoryBIO()), (ssl.MemoryBIO(), ssl.MemoryBIO())
    ends = [
        (context(client, server_side=False).wrap_bio(*ours, False, BS.host_name), ours, theirs),
        (context(server, server_side=True).wrap_bio(*theirs, True), theirs, ours),
    ]
    flights: list[int] = []
    for turn in range(4):
        end, (_, outgoing), (incoming, _) = ends[turn % 2]
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
        data = outgoing.read()
        incoming.write(data)
        if turn % 2 == 0:
            flights.append(len(data))
    return tuple(flights)


def context(identity: Identity, *, server_side: bool) -> ssl.SSLContext:
    """A context that allows only TLS 1.3 and verifies the peer's certificate with the run's
    authority."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server_side else ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_verify_locations(cadata=identity.authority)
    if server_side:
        made.num_tickets = 0  # Sessions are never resumed.
    # The ssl module reads keys only from files; this file is in memory.
    memory = os.memfd_create("identity", os.MFD_CLOEXEC)
    try:
        os.write(memory, (identity.key + identity.certificate).encode())
        made.load_cert_chain(f"/proc/self/fd/{memory}")
    finally:
        os.close(memory)
    return made


class TlsStream:
    """A TLS stream to a peer; one thread may send while another receives."""

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        *,
        server_name: str | None = None,
    ):
        """Do the handshake.

        Args:
            sock: A connected TCP socket.
            context: The TLS context of this side.
            server_name: Expected name of the server; None: this is the server.

        Raises:
            ConnectionLost: The peer has disconnected.
            WireError: The peer could not be authenticated.
        """
        self.sock = sock
        self._lock = threading.Lock()
        """Lock for OpenSSL's connection object, which is not thread-safe."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_name is None, server_name
        )
        self._arrived_ns = 0
        self._next_header = b""
        self._space = memoryview(bytearray(RECORD_BYTES + 512))
        self.handshake_bytes = 0
        """Bytes of the handshake messages that this side has sent."""
        self.record_bytes = 0
        """Bytes of record overhead that this side has sent since the handshake."""
        self._shake_hands()

    def _shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                done = False
            except ssl.SSLError as error:
                self._flush()  # Sends the alert to the peer.
                raise WireError(f"tls: {error.reason or error}") from None
            self.handshake_bytes += self._flush()
            if done:
                return
            self._take_record(more=False)

    @property
    def peer_name(self) -> str:
        """The name in the peer's certificate."""
        certificate: Any = self._tls.getpeercert()
        (name,) = (value for kind, value in certificate["subjectAltName"] if kind == "DNS")
        return str(name)

    def send(self, *parts: Buffer) -> None:
        """Send parts one after the other, each in separate records.

        Raises:
            ConnectionLost: The peer has disconnected, or accepted no data in time.
        """
        views = [memoryview(part).cast("B") for part in parts]
        pieces = [
            view[start : start + _WRITE_BYTES]
            for view in views
            for start in range(0, len(view), _WRITE_BYTES)
        ]
        ready = b""
        for place, piece in enumerate(pieces):
            with self._lock:
                self._tls.write(piece)
                data = self._outgoing.read()
            self.record_bytes += len(data) - len(piece)
            ready += data
            # A header is sent together with the next part, because alone it would be a small frame.
            if len(ready) > RECORD_BYTES or place + 1 == len(pieces):
                self._send(ready)
                ready = b""

    def receive_into(self, place: memoryview) -> int:
        """See `testbed.transport.wire.receive_into`.

        Raises:
            ConnectionLost: The peer has disconnected, or nothing arrived in time.
            WireError: The data were not encrypted by the peer.
        """
        place = place.cast("B")
        while len(place):
            try:
                with self._lock:
                    count = self._tls.read(len(place), place)
            except ssl.SSLWantReadError:
                self._take_record(more=len(place) > RECORD_BYTES)
                continue
            except ssl.SSLError as error:
                raise WireError(f"tls: {error.reason or error}") from None
            place = place[int(count) :]
        return self._arrived_ns

    def _flush(self) -> int:
        data = self._outgoing.read()
        if data:
            self._send(data)
        return len(data)

    def _send(self, data: bytes) -> None:
        try:
            self.sock.sendall(data)
        except OSError as error:
            raise ConnectionLost(str(error)) from None

    def _take_record(self, *, more: bool) -> None:
        """Receive one record, and the header of the next one if it is certain to follow.

        Reading further would consume the kernel timestamp of later data.
        """
        header = self._next_header
        if not header:
            first = memoryview(bytearray(_RECORD_HEADER_BYTES))
            self._arrived_ns = wire.receive_into(self.sock, first)
            header = bytes(first)
        size = int.from_bytes(header[3:], "big")
        if size > RECORD_BYTES + 256:
            raise WireError("tls: received bytes are not a record")
        ahead = _RECORD_HEADER_BYTES if more else 0
        self._arrived_ns = wire.receive_into(self.sock, self._space[: size + ahead])
        self._next_header = bytes(self._space[size : size + ahead])
        with self._lock:
            self._incoming.write(header)
            self._incoming.write(self._space[:size])


@cache
def _context(identity: Identity, server_side: bool) -> ssl.SSLContext:
    return context(identity, server_side=server_side)


class Tls(StreamTransport):
    """TLS 1.3 over TCP, with both sides' certificates."""

    name = "tls"
    has_certificates = True
    round_trips = 2

    def stream(
        self, sock: socket.socket, settings: TransportSettings, peer: NodeId | None
    ) -> Stream:
        """See `StreamTransport`."""
        assert settings.identity is not None
        server_name = None if peer is None else peer.host_name
        return TlsStream(sock, _context(settings.identity, peer is None), server_name=server_name)

    def message_bytes(self, head_bytes: int, payload_bytes: int) -> int:
        """See `TransportKind`."""
        parts = head_bytes, payload_bytes
        return sum(parts) + record_overhead_bytes(*parts)

    def opening_bytes(self, framing: Framing) -> int:
        """See `TransportKind`."""
        return framing.opening() + sum(map(framing.on_link, client_flights_bytes()))


TLS = Tls()
