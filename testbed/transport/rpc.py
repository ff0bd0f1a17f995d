# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Frames as messages of a bidirectional gRPC stream, as in most federated frameworks.

The UAV is gRPC's client and opens the stream; the base station serves all streams from one port.
Each frame is one message of raw bytes, which is assembled before it is sent and delivered when it
is complete, as in frameworks. gRPC uses its default settings, except that the size of messages is
not limited and proxies are disabled.

gRPC owns its sockets, so there are no kernel timestamps: the arrival time of a message is the time
at which the program receives it. TCP_NODELAY is always set.
"""

import contextlib
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent import futures
from typing import TYPE_CHECKING, Any

from testbed.transport import wire
from testbed.transport.accounts import Books, Counts, TcpCount
from testbed.transport.callers import Callers, Meeting, check_token
from testbed.transport.interface import Link, TransportKind, TransportSettings
from testbed.transport.wire import Buffer, ConnectionLost, Header, Kind, WireError

if TYPE_CHECKING:
    import grpc

METHOD = "/testbed.Wire/Exchange"
OPTIONS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_http_proxy", 0),
]
PREFIX_BYTES = 5
"""Bytes that gRPC puts before a message."""
HTTP2_FRAME_BYTES = 9
HTTP2_DATA_BYTES = 1 << 14
"""Most of a message in a DATA frame, as gRPC cuts it (RFC 9113 lets peers agree on more)."""
IDLE_MS = 60_000
"""Milliseconds after which the base station closes a connection without a stream, which UAVs always
have."""


def grpc_bytes(message_bytes: int) -> int:
    """Bytes of the HTTP/2 frames that carry a gRPC message."""
    size = message_bytes + PREFIX_BYTES
    return size + HTTP2_FRAME_BYTES * -(-size // HTTP2_DATA_BYTES)


class RpcLink:
    """Frames as messages of one gRPC stream."""

    def __init__(self, timeout_s: float, greeting: Counts):
        self._timeout_s = timeout_s
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._incoming: queue.SimpleQueue[tuple[int, bytes] | str] = queue.SimpleQueue()
        self._rest = memoryview(b"")
        self._arrived_ns = 0
        self._books = Books(greeting, self._sent)
        self._sock: socket.socket | None = None

    def outgoing(self) -> Iterator[bytes]:
        """Messages for gRPC to send, until the link is closed."""
        return iter(self._outgoing.get, None)

    def start(self, messages: Iterator[bytes], peer: tuple[str, int]) -> None:
        """Start to receive the peer's messages."""
        self._sock = _socket_to(peer)
        threading.Thread(target=self._read, args=(messages,), daemon=True).start()

    def _read(self, messages: Iterator[bytes]) -> None:
        import grpc

        try:
            for message in messages:
                self._incoming.put((time.monotonic_ns(), message))
            self._incoming.put("the peer closed the connection")
        except grpc.RpcError as error:
            self._incoming.put(f"gRPC: {getattr(error, 'details', str)() or error}")

    def send(self, header: Header, extra: Buffer = b"", payload: Buffer = b"") -> None:
        """See `Link`; returns before gRPC has sent it."""
        self._books.begin(Counts.of(header))
        self._outgoing.put(b"".join((header.pack(), extra, payload)))

    def receive_header(self, due: Kind) -> Header:
        """See `Link`."""
        try:
            received = self._incoming.get(timeout=self._timeout_s)
        except queue.Empty:
            raise ConnectionLost(f"nothing arrived for {self._timeout_s:g} s") from None
        if isinstance(received, str):
            raise ConnectionLost(received)
        self._arrived_ns, message = received
        header = Header.unpack(message[: wire.HEADER_BYTES])
        self._rest = memoryview(message)[wire.HEADER_BYTES :]
        if len(self._rest) != header.extra_bytes + header.payload_bytes:
            raise WireError(f"payload_bytes: the message of {header.kind.name} has a wrong length")
        return header

    def receive_into(self, place: memoryview) -> int:
        """See `Link`."""
        place = place.cast("B")
        if len(self._rest) < len(place):
            raise WireError("payload_bytes: the message is shorter than expected")
        if len(place):
            place[:] = self._rest[: len(place)]
            self._rest = self._rest[len(place) :]
        return self._arrived_ns

    def count(self) -> list[Counts]:
        """See `Link`."""
        return self._books.take()

    def hang_up(self) -> None:
        """See `Link`."""
        self._outgoing.put(None)
        self._incoming.put("connection closed locally")

    def close(self) -> None:
        """See `Link`."""
        self._outgoing.put(None)

    def _sent(self) -> TcpCount:
        return TcpCount() if self._sock is None else TcpCount.of(self._sock)


class _Threads(futures.Executor):
    """One thread per call; unlike threads of a pool, they do not keep a failed program alive."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "futures.Future[Any]":
        future: futures.Future[Any] = futures.Future()

        def run() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return future


def _greeted(messages: Iterator[bytes], token: bytes) -> int:
    """Receive the greeting; returns the client's number.

    Raises:
        ConnectionLost: The call was ended.
        WireError: The greeting is invalid or the token is wrong.
    """
    import grpc

    try:
        greeting = next(messages)
    except (grpc.RpcError, StopIteration):
        raise ConnectionLost("the call has ended") from None
    header = Header.unpack(greeting[: wire.HEADER_BYTES])
    header.expect(Kind.HELLO, 0, 0, len(token))
    check_token(greeting[wire.HEADER_BYTES :], token)
    return header.client


class _Served:
    """A link of the server's side, which keeps the server alive."""

    def __init__(self, link: RpcLink, server: "grpc.Server"):
        self.send, self.count = link.send, link.count
        self.hang_up, self.close = link.hang_up, link.close
        self.receive_header, self.receive_into = link.receive_header, link.receive_into
        self._server = server


def _greeting(client: int, size: int, opened: int = 0, accepted: int = 0) -> Counts:
    counts = Counts.of(Header(Kind.HELLO, client, 0, 0, 0, 0, 0.0, 0.0))
    counts.framing_bytes, counts.opened, counts.accepted = size, opened, accepted
    return counts


def _socket_to(peer: tuple[str, int]) -> socket.socket | None:
    """This process's TCP socket to that peer, found among its open files."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):  # noqa: PTH115
                continue
            sock = socket.socket(fileno=os.dup(int(name)))
            if sock.family in (socket.AF_INET, socket.AF_INET6):
                host, port, *_ = sock.getpeername()
                if (host.removeprefix("::ffff:"), port) == peer:
                    return sock
            sock.close()
    return None


class Grpc(TransportKind):
    """Frames as messages of gRPC streams."""

    name = "grpc"
    own_bytes = "grpc_bytes"
    allowed: Mapping[str, tuple[object, ...]] = {
        "emulation.connection": ("kept",),
        "emulation.nagle": (False,),
    }

    def accept(
        self,
        settings: TransportSettings,
        address: tuple[str, int],
        clients: Collection[int],
        listening: Callable[[], object],
    ) -> dict[int, Link]:
        """See `TransportKind`."""
        import grpc

        token = bytes.fromhex(settings.token)
        callers = Callers(len(clients))
        meeting: Meeting[RpcLink] = Meeting(clients)

        def exchange(messages: Iterator[bytes], about: "grpc.ServicerContext") -> Iterator[bytes]:
            address = about.peer().removeprefix("ipv4:")

            def entered(client: int) -> Iterator[bytes]:
                meeting.claim(client)
                link = RpcLink(settings.timeout_s, _greeting(client, 0, accepted=1))
                host, _, port = address.rpartition(":")
                link.start(messages, (host, int(port)))
                meeting.come(client, link)
                return link.outgoing()

            answers = callers.let_in(
                address, about.cancel, lambda: _greeted(messages, token), entered
            )
            return answers or iter(())

        handler = grpc.stream_stream_rpc_method_handler(exchange)
        _, service, method = METHOD.split("/")
        server = grpc.server(
            _Threads(),
            handlers=[grpc.method_handlers_generic_handler(service, {method: handler})],
            options=[*OPTIONS, ("grpc.so_reuseport", 0), ("grpc.max_connection_idle_ms", IDLE_MS)],
        )
        host, port = address
        server.add_insecure_port(f"{host}:{port}")
        server.start()
        listening()
        links: dict[int, Link] = {
            client: _Served(link, server) for client, link in meeting.all(settings.meeting_s)
        }
        callers.shut()
        return links

    def connect(self, settings: TransportSettings, client: int, server: tuple[str, int]) -> Link:
        """See `TransportKind`."""
        import grpc

        host, port = server
        channel = grpc.insecure_channel(f"ipv4:{host}:{port}", options=OPTIONS)
        token = bytes.fromhex(settings.token)
        size = wire.HEADER_BYTES + len(token)
        try:
            grpc.channel_ready_future(channel).result(timeout=settings.meeting_s)
        except grpc.FutureTimeoutError:
            raise ConnectionLost(f"no answer for {settings.meeting_s:g} s") from None
        link = RpcLink(settings.timeout_s, _greeting(client, size, opened=1))
        hello = Header(Kind.HELLO, client, 0, 0, 0, len(token), 0.0, 0.0)
        link._outgoing.put(hello.pack() + token)
        link.start(channel.stream_stream(METHOD)(link.outgoing()), server)
        return link

    def message_bytes(self, head_bytes: int, payload_bytes: int) -> int:
        """See `TransportKind`."""
        return grpc_bytes(head_bytes + payload_bytes)


GRPC = Grpc()
