# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Frames on byte streams over TCP: one connection per link, or one per transfer."""

import contextlib
import queue
import socket
import struct
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from testbed.core.node import BS, NodeId, uav
from testbed.transport import wire
from testbed.transport.accounts import Books, Counts, TcpCount
from testbed.transport.callers import Callers, Meeting, check_token
from testbed.transport.interface import Link, TransportKind, TransportSettings
from testbed.transport.wire import (
    GREETING_BYTES,
    PORT,
    Buffer,
    ConnectionLost,
    Header,
    Kind,
    WireError,
)

BACKLOG = 1024
_AT_ONCE = struct.pack("=ii", 1, 0)
"""SO_LINGER value: closing a socket drops unsent data."""
_WITH_RECEIPT = (Kind.BROADCAST, Kind.SHARED, Kind.GRADIENT)


class Stream(Protocol):
    """A byte stream to and from a peer."""

    sock: socket.socket
    handshake_bytes: int
    """Bytes of the handshake messages that this side has sent."""
    record_bytes: int
    """Bytes of record overhead that this side has sent since the handshake."""

    @property
    def peer_name(self) -> str | None:
        """The name that the peer has proved to have; None: it has proved nothing."""

    def send(self, *parts: Buffer) -> None:
        """Send parts one after the other."""

    def receive_into(self, place: memoryview) -> int:
        """See `testbed.transport.wire.receive_into`."""


def _hang_up(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):  # The connection may have ended already.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    _shut(sock)


def _mark(sock: socket.socket, dscp: int) -> None:
    with contextlib.suppress(OSError):  # The connection may have ended already.
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, dscp << 2)


def _greeting(settings: TransportSettings, client: int, port: int = 0) -> bytes:
    token = bytes.fromhex(settings.token)
    header = Header(Kind.HELLO, client, 0, 0, PORT.size, len(token), 0.0, 0.0)
    return header.pack() + PORT.pack(port) + token


def _greeted(stream: Stream, settings: TransportSettings) -> tuple[int, int]:
    """Receive the greeting; returns the client's number and its listening port.

    Raises:
        WireError: The token is wrong, or the certificate belongs to another node.
    """
    header = _receive_header(stream)
    token = bytearray.fromhex(settings.token)
    header.expect(Kind.HELLO, 0, PORT.size, len(token))
    port, given = bytearray(PORT.size), bytearray(len(token))
    stream.receive_into(memoryview(port))
    stream.receive_into(memoryview(given))
    check_token(given, token)
    if stream.peer_name not in (None, NodeId(header.client).host_name):
        raise WireError(f"client: {stream.peer_name} says to be {header.client}")
    return header.client, PORT.unpack(port)[0]


def _receive_header(stream: Stream) -> Header:
    data = bytearray(wire.HEADER_BYTES)
    stream.receive_into(memoryview(data))
    return Header.unpack(data)


class KeptLink:
    """All frames on one connection."""

    def __init__(self, stream: Stream, greeting: Counts):
        self._stream = stream
        self._books = Books(greeting, lambda: TcpCount.of(stream.sock))
        greeting.handshake_bytes = stream.handshake_bytes

    def send(self, header: Header, extra: Buffer = b"", payload: Buffer = b"") -> None:
        """See `Link`."""
        counts = Counts.of(header)
        self._books.begin(counts)
        before = self._stream.record_bytes
        self._stream.send(header.pack() + bytes(extra), payload)
        counts.record_bytes = self._stream.record_bytes - before

    def receive_header(self, due: Kind) -> Header:
        """See `Link`."""
        return _receive_header(self._stream)

    def receive_into(self, place: memoryview) -> int:
        """See `Link`."""
        return self._stream.receive_into(place)

    def set_dscp(self, dscp: int) -> None:
        """See `MarkedLink`."""
        _mark(self._stream.sock, dscp)

    def count(self) -> list[Counts]:
        """See `Link`."""
        return self._books.take()

    def hang_up(self) -> None:
        """See `Link`."""
        _hang_up(self._stream.sock)

    def close(self) -> None:
        """See `Link`."""
        self._stream.sock.close()


@dataclass
class _Call:
    """A connection that carries one transfer."""

    stream: Stream
    counts: Counts

    def hang_up(self) -> None:
        """Close the sending direction."""
        self.stream.sock.shutdown(socket.SHUT_WR)

    def close(self) -> Counts:
        """Close the connection; returns its counters."""
        self.counts.tcp = TcpCount.of(self.stream.sock)
        self.counts.handshake_bytes = self.stream.handshake_bytes
        self.counts.record_bytes = self.stream.record_bytes
        self.stream.sock.close()
        return self.counts


class PerTransferLink:
    """One connection per transfer, opened by its sender."""

    def __init__(
        self,
        dial: Callable[[Callable[[socket.socket], object]], Stream],
        greeting: bytes,
        timeout_s: float,
        first: _Call,
    ):
        """Create the link.

        Args:
            dial: Opens a connection to the peer; calls its argument with the socket before.
            greeting: First bytes of each connection.
            timeout_s: Time limit of waiting for the peer, in real seconds.
            first: The connection on which the peer was authenticated.
        """
        self.arrivals: queue.SimpleQueue[Stream | Exception] = queue.SimpleQueue()
        """Authenticated connections that the peer has opened."""
        self._dial = dial
        self._greeting = greeting
        self._timeout_s = timeout_s
        self._unanswered: queue.SimpleQueue[_Call | Exception] = queue.SimpleQueue()
        self._call: _Call | None = None
        """The connection that is being received from."""
        self._header: Header | None = None
        self._rest_bytes = 0
        self._over = [first]
        self._dialled: socket.socket | None = None
        self._dscp = 0
        self._has_hung_up = False
        first.hang_up()

    def send(self, header: Header, extra: Buffer = b"", payload: Buffer = b"") -> None:
        """See `Link`."""
        if header.kind is Kind.RECEIPT:
            call, greeting = self._call, b""
            assert call is not None
            accepted = call.counts.accepted
            call.counts = Counts.of(header)
            call.counts.accepted = accepted
        else:
            greeting = self._greeting
            call = _Call(self._dial(self._dials), Counts.of(header, len(greeting)))
            call.counts.opened = 1
            if header.kind in _WITH_RECEIPT:
                self._unanswered.put(call)
        call.stream.send(greeting + header.pack() + bytes(extra), payload)
        call.hang_up()
        self._over.append(call)

    def _dials(self, sock: socket.socket) -> None:
        self._dialled = sock
        _mark(sock, self._dscp)
        if self._has_hung_up:
            raise ConnectionLost("connection closed locally")

    def receive_header(self, due: Kind) -> Header:
        """See `Link`."""
        calls = self._unanswered if due is Kind.RECEIPT else self.arrivals
        try:
            call = calls.get(timeout=self._timeout_s)
        except queue.Empty:
            raise ConnectionLost(f"nothing arrived for {self._timeout_s:g} s") from None
        if isinstance(call, Exception):
            raise call
        stream = call.stream if isinstance(call, _Call) else call
        header = _receive_header(stream)
        if not isinstance(call, _Call):
            call = _Call(stream, Counts.of(header))
            call.counts.payload_bytes = call.counts.framing_bytes = 0
            call.counts.accepted = 1
        self._call, self._header = call, header
        self._rest_bytes = header.extra_bytes + header.payload_bytes
        self._received(0)
        return header

    def receive_into(self, place: memoryview) -> int:
        """See `Link`."""
        assert self._call is not None
        arrived_ns = self._call.stream.receive_into(place)
        if place.nbytes:
            self._received(place.nbytes)
        return arrived_ns

    def _received(self, count: int) -> None:
        """Close the connection after a frame that needs no answer."""
        assert self._call is not None
        assert self._header is not None
        self._rest_bytes -= count
        if self._rest_bytes == 0 and self._header.kind not in (*_WITH_RECEIPT, Kind.RECEIPT):
            self._call.hang_up()
            self._over.append(self._call)

    def set_dscp(self, dscp: int) -> None:
        """See `MarkedLink`."""
        self._dscp = dscp
        if self._dialled is not None:
            _mark(self._dialled, dscp)

    def count(self) -> list[Counts]:
        """See `Link`."""
        over, self._over = self._over, []
        return [call.close() for call in over]

    def hang_up(self) -> None:
        """See `Link`."""
        self._has_hung_up = True
        for calls in (self.arrivals, self._unanswered):
            calls.put(ConnectionLost("connection closed locally"))
        if self._dialled is not None:
            _hang_up(self._dialled)
        if self._call is not None:
            _hang_up(self._call.stream.sock)

    def close(self) -> None:
        """See `Link`."""
        self.count()


class _Caller(NamedTuple):
    """Someone who has greeted."""

    stream: Stream
    listens_at: tuple[str, int]


class StreamTransport(TransportKind):
    """Base class of transports that send frames on a byte stream over TCP. A subclass turns a
    connected socket into a stream."""

    marks_packets = True

    def stream(
        self, sock: socket.socket, settings: TransportSettings, peer: NodeId | None
    ) -> Stream:
        """The stream over a connected socket.

        Args:
            sock: TCP's.
            settings: Transport settings of the run.
            peer: The node that this one has called; None: this node was called.

        Raises:
            ConnectionLost: The peer has disconnected.
            WireError: The peer does not prove that it belongs to the run.
        """
        raise NotImplementedError

    def accept(
        self,
        settings: TransportSettings,
        address: tuple[str, int],
        clients: Collection[int],
        listening: Callable[[], object],
    ) -> dict[int, Link]:
        """See `TransportKind`."""
        listener = _listen(address)
        callers = Callers(len(clients))
        meeting: Meeting[_Caller] = Meeting(clients)
        kept: dict[int, Link] = {}
        single: dict[int, PerTransferLink] = {}

        def enter(client: int, caller: _Caller) -> None:
            if link := single.get(client):
                link.arrivals.put(caller.stream)
            else:
                meeting.claim(client)
                meeting.come(client, caller)

        self._answer(listener, settings, callers, enter)
        listening()
        for client, (stream, at) in meeting.all(settings.meeting_s):
            if settings.connection == "kept":
                kept[client] = KeptLink(stream, _greeting_counts(client, accepted=1))
            else:
                single[client] = PerTransferLink(
                    lambda using, k=client, at=at: self._dial(settings, uav(k), at, using),  # type: ignore[misc]
                    _greeting(settings, BS.client),
                    settings.timeout_s,
                    _Call(stream, _greeting_counts(client, accepted=1)),
                )
        if not single:
            callers.shut()
            _shut(listener)
            listener.close()
        return kept or dict(single)

    def connect(self, settings: TransportSettings, client: int, server: tuple[str, int]) -> Link:
        """See `TransportKind`."""
        if settings.connection == "kept":
            stream = self._dial(settings, BS, server)
            stream.send(_greeting(settings, client))
            counts = _greeting_counts(client, opened=1)
            counts.record_bytes = stream.record_bytes
            return KeptLink(stream, counts)
        listener = _listen(("0.0.0.0", 0))
        stream = self._dial(settings, BS, server)
        stream.send(_greeting(settings, client, listener.getsockname()[1]))
        link = PerTransferLink(
            lambda using: self._dial(settings, BS, server, using),
            _greeting(settings, client),
            settings.timeout_s,
            _Call(stream, _greeting_counts(client, opened=1)),
        )

        def enter(client: int, caller: _Caller) -> None:
            if client != BS.client:
                raise WireError(f"client: {client} is not {BS.title}")
            link.arrivals.put(caller.stream)

        self._answer(listener, settings, Callers(1), enter)
        return link

    def _stream(
        self, sock: socket.socket, settings: TransportSettings, peer: NodeId | None
    ) -> Stream:
        wire.configure(sock, settings.timeout_s, nagle=settings.nagle)
        return self.stream(sock, settings, peer)

    def _dial(
        self,
        settings: TransportSettings,
        peer: NodeId,
        address: tuple[str, int],
        using: Callable[[socket.socket], object] = lambda sock: None,
    ) -> Stream:
        """Call a peer; `using` receives the socket before it is connected."""
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        using(sock)
        sock.settimeout(settings.timeout_s)
        try:
            sock.connect(address)
        except OSError as error:
            sock.close()
            raise ConnectionLost(f"connecting: {error}") from None
        return self._stream(sock, settings, peer)

    def _answer(
        self,
        listener: socket.socket,
        settings: TransportSettings,
        callers: Callers,
        enter: Callable[[int, _Caller], object],
    ) -> None:
        """Accept connections that send a valid greeting, each in its own thread.

        Args:
            listener: Listening socket.
            settings: Settings of the transport.
            callers: Closes the other connections.
            enter: Receives a client and its connection, or rejects it with `WireError`.
        """

        def greet(sock: socket.socket, host: str, port: int) -> None:
            def heard() -> tuple[int, _Caller]:
                stream = self._stream(sock, settings, None)
                client, listens_at = _greeted(stream, settings)
                return client, _Caller(stream, (host, listens_at))

            def entered(greeting: tuple[int, _Caller]) -> bool:
                enter(*greeting)
                return True

            if not callers.let_in(f"{host}:{port}", lambda: _shut(sock), heard, entered):
                sock.close()

        def answer() -> None:
            while True:
                try:
                    sock, address = listener.accept()
                except OSError:  # The caller has disconnected, or the listener is shut.
                    if callers.is_shut:
                        return
                    continue
                threading.Thread(target=greet, args=(sock, *address), daemon=True).start()

        threading.Thread(target=answer, daemon=True).start()


def _greeting_counts(client: int, opened: int = 0, accepted: int = 0) -> Counts:
    """Counters of a new connection: the greeting of the side that opened it."""
    counts = Counts.of(Header(Kind.HELLO, client, 0, 0, 0, 0, 0.0, 0.0))
    counts.framing_bytes = GREETING_BYTES * opened
    counts.opened, counts.accepted = opened, accepted
    return counts


def _listen(address: tuple[str, int]) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(address)
    listener.listen(BACKLOG)
    return listener


def _shut(sock: socket.socket) -> None:
    """Unblock all threads that wait for this socket."""
    with contextlib.suppress(OSError):  # The connection may have ended already.
        sock.shutdown(socket.SHUT_RDWR)
