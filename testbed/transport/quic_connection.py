# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A QUIC connection on a UDP socket: a thread that drives aioquic's state machine, with counters.

Datagrams are as long as the link's frames allow. The thread keeps at most `QUEUED_DATAGRAMS` in its
socket and continues when the link has sent some, as TCP small queues do: no datagram is dropped
locally, and round-trip times measure the link, not this process.
"""

import fcntl
import os
import select
import socket
import ssl
import struct
import termios
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from aioquic import tls
from aioquic.buffer import Buffer as Reader  # type: ignore[attr-defined]
from aioquic.quic import events
from aioquic.quic.configuration import SMALLEST_MAX_DATAGRAM_SIZE, QuicConfiguration
from aioquic.quic.congestion.base import (
    QuicCongestionControl,
    create_congestion_control,
    register_congestion_control,
)
from aioquic.quic.connection import QuicConnection
from aioquic.quic.packet import QuicPacketType, QuicProtocolVersion, pull_quic_header
from aioquic.quic.packet_builder import QuicSentPacket
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from testbed.core.node import BS
from testbed.system.arrivals import NOTE_BYTES, note_arrivals
from testbed.transport import wire
from testbed.transport.accounts import QuicCount
from testbed.transport.interface import TransportSettings
from testbed.transport.qlog import LOGGER
from testbed.transport.wire import ConnectionLost, WireError

PROTOCOL = "uav-sfl-testbed"
FLOW_BYTES = 1 << 28
"""Flow-control windows of a stream and of a connection: more than any transfer takes."""
IDLE_S = 30 * 86_400.0
"""An idle connection is kept; a thread that waits for a peer has its own time limit."""
_ID_BYTES = 8
QUEUED_DATAGRAMS = 16
"""Largest number of datagrams of a connection in the local queue: 6 ms at 30 Mb/s."""
CONTROLS = ("cubic", "reno")
"""Congestion controls that aioquic has."""
_TRUESIZE_BYTES = 2304
"""Socket buffer memory that the kernel charges for a datagram of a frame of 1,500 bytes."""
_RECEIVE_BYTES = 4 << 20
_DATAGRAM_BYTES = 1 << 16
_AT_ONCE = 32
"""Largest number of datagrams that are received before any are sent."""
_LEAST_WAIT_S = 20e-6
"""Shortest wait for a timer of aioquic in s: because of a rounding error it may be due without
effect, and in virtual time no time passes in such a loop."""
_PEER = ("peer", 0)
"""Constant peer address for aioquic: sockets are connected, so the address is not used."""


class Connection(QuicConnection):
    """A connection whose server asks the client for a certificate, as aioquic's TLS can."""

    def _initialize(self, peer_cid: bytes) -> None:
        super()._initialize(peer_cid)
        self.tls._request_client_certificate = not self._is_client

    def verify_client(self, name: str, authority: str) -> None:
        """As the client's side does with the server's certificate.

        Raises:
            WireError: The client has presented no certificate of this run, or the certificate of
                another node.
        """
        certificate = self.tls._peer_certificate
        if certificate is None:
            raise WireError("tls: a peer shows no certificate")
        try:
            tls.verify_certificate(certificate, [], name, authority.encode())
        except tls.Alert as error:
            raise WireError(f"tls: {error}") from None


def made(settings: TransportSettings, original: bytes | None = None) -> Connection:
    """A new connection of this node.

    Args:
        settings: Transport settings of the run.
        original: For the server's side: the identifier that the client has chosen for it; None:
            this is the client's side.
    """
    identity, server_side = settings.identity, original is not None
    assert identity is not None
    configuration = QuicConfiguration(
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
    return Connection(configuration=configuration, original_destination_connection_id=original)


def connection_begun(datagram: bytes) -> bytes | None:
    """The identifier that a client has chosen for the server; None: it begins no connection."""
    try:
        header = pull_quic_header(Reader(data=datagram), host_cid_length=_ID_BYTES)
    except ValueError:
        return None
    begins = header.packet_type is QuicPacketType.INITIAL
    ours = header.version == QuicProtocolVersion.VERSION_1
    whole = len(datagram) >= SMALLEST_MAX_DATAGRAM_SIZE
    return header.destination_cid if begins and ours and whole else None


class Control(QuicCongestionControl):
    """One of aioquic's congestion controls, with counters of sent packets.

    While packets are built (`makes_packets`), the window is limited to the bytes in flight plus the
    free part of the socket's queue, so that no packets are queued in this process.
    """

    def __init__(self, name: str, max_datagram_size: int) -> None:
        self.inner = create_congestion_control(name, max_datagram_size=max_datagram_size)
        self._datagram_window = QUEUED_DATAGRAMS * max_datagram_size
        self.makes_packets = False
        self._sent_up_to: dict[int, int] = {}
        self.stream_bytes = self.data_datagrams = self.data_bytes = 0
        self.resent_datagrams = self.resent_bytes = 0
        self.handshake_datagrams = self.handshake_bytes = 0
        _made.control = self

    @property
    def bytes_in_flight(self) -> int:  # type: ignore[override]
        """See aioquic."""
        return self.inner.bytes_in_flight

    @property
    def congestion_window(self) -> int:  # type: ignore[override]
        """See aioquic."""
        window = self.inner.congestion_window
        return (
            min(window, self.bytes_in_flight + self._datagram_window)
            if self.makes_packets
            else window
        )

    @property
    def ssthresh(self) -> int | None:  # type: ignore[override]
        """See aioquic."""
        return self.inner.ssthresh

    def on_packet_acked(self, *, now: float, packet: QuicSentPacket) -> None:
        """See aioquic."""
        self.inner.on_packet_acked(now=now, packet=packet)

    def on_packets_expired(self, *, packets: Iterable[QuicSentPacket]) -> None:
        """See aioquic."""
        self.inner.on_packets_expired(packets=packets)

    def on_packets_lost(self, *, now: float, packets: Iterable[QuicSentPacket]) -> None:
        """See aioquic."""
        self.inner.on_packets_lost(now=now, packets=packets)

    def on_persistent_congestion(self) -> None:
        """See aioquic."""
        self.inner.on_persistent_congestion()

    def on_rtt_measurement(self, *, now: float, rtt: float) -> None:
        """See aioquic."""
        self.inner.on_rtt_measurement(now=now, rtt=rtt)

    def on_packet_sent(self, *, packet: QuicSentPacket) -> None:
        """See aioquic; count the packet by its content, except pure acknowledgements, which are not
        reported here."""
        self.inner.on_packet_sent(packet=packet)
        if packet.is_crypto_packet or packet.packet_type is not QuicPacketType.ONE_RTT:
            self.handshake_datagrams += 1
            self.handshake_bytes += packet.sent_bytes
            return
        new = again = 0
        for handler, (start, stop, *_) in (
            (handler, args) for handler, args in packet.delivery_handlers if len(args) == 3
        ):
            stream = handler.__self__._stream_id  # type: ignore[attr-defined]
            before = self._sent_up_to.get(stream, 0)
            fresh = max(0, stop - max(start, before))
            new += fresh
            again += stop - start - fresh
            self._sent_up_to[stream] = max(before, stop)
        if new:
            self.stream_bytes += new
            self.data_datagrams += 1
            self.data_bytes += packet.sent_bytes - again
            self.resent_bytes += again
        elif again:
            self.resent_datagrams += 1
            self.resent_bytes += packet.sent_bytes


_made = threading.local()
"""The congestion control of the connection that each thread created last."""
for _name in CONTROLS:
    register_congestion_control(
        f"booked-{_name}",
        lambda *, max_datagram_size, name=_name: Control(name, max_datagram_size),
    )


class Arrivals:
    """Received data of a stream."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.arrived_ns = 0
        """Monotonic time in ns of the last arrival."""
        self.taken = 0
        """Bytes of `data` that have been read."""
        self.wanted = 0
        """Number of bytes at which the waiting thread is woken: once per transfer, not per
        datagram."""
        self.ended = False


class Endpoint:
    """One side of a connection, driven by a thread."""

    def __init__(self, sock: socket.socket, connection: QuicConnection) -> None:
        """Take over a connection that this thread has just created.

        Args:
            sock: A UDP socket, connected to the peer; it is closed with the connection.
            connection: The connection, with a congestion control that was registered by this
                module.
        """
        self._sock = sock
        self.connection = connection
        self.control: Control = _made.control
        self.lock = threading.Condition()
        """Protects the connection; notified when its state changes."""
        self.streams: dict[int, Arrivals] = {}
        """Received data of the peer's streams, by stream ID."""
        self.shaken_hands = False
        self.over: str | None = None
        """The reason if the connection is closed."""
        self._queued_bytes = QUEUED_DATAGRAMS * _TRUESIZE_BYTES
        self._pending: deque[bytes] = deque()
        self._handed_over = deque[bytes]()
        self._datagrams = self._datagram_bytes = 0
        self._wake: int | None = os.eventfd(0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._queued_bytes)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
        note_arrivals(sock)

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, daemon=True).start()

    def connect(self) -> None:
        """Begin the handshake as the client."""
        with self.lock:
            self.connection.connect(_PEER, time.monotonic())

    def feed(self, datagram: bytes) -> None:
        """Process a datagram that another socket has received."""
        with self.lock:
            self._handed_over.append(datagram)
            self._nudge()

    def send(self, data: bytes) -> None:
        """Send data as a separate stream; returns before they have been sent.

        Raises:
            ConnectionLost: The connection is closed.
        """
        with self.lock:
            if self.over is not None:
                raise ConnectionLost(self.over)
            stream = self.connection.get_next_available_stream_id(is_unidirectional=True)
            self.connection.send_stream_data(stream, data, end_stream=True)
            self._nudge()

    def receive_into(self, stream: int, place: memoryview, timeout_s: float) -> int:
        """Fill `place` with the next bytes of one of the peer's streams.

        Returns:
            Monotonic time in ns of the last arrival, by the kernel timestamp.

        Raises:
            ConnectionLost: The connection is closed, or nothing arrived in time.
        """
        with self.lock:
            arrivals = self.streams.setdefault(stream, Arrivals())
            before, end = len(arrivals.data), arrivals.taken + len(place)
            arrivals.wanted = end
            while len(arrivals.data) < end:
                if self.over is not None:
                    raise ConnectionLost(self.over)
                if arrivals.ended:
                    raise wire.WireError("payload_bytes: the stream is shorter than expected")
                if not self.lock.wait(timeout_s) and len(arrivals.data) == before:
                    raise ConnectionLost(f"nothing arrived for {timeout_s:g} s")
                before = len(arrivals.data)
            place[:] = memoryview(arrivals.data)[arrivals.taken : end]
            arrivals.taken = end
            return arrivals.arrived_ns

    def await_handshake(self, timeout_s: float) -> None:
        """Wait until the TLS handshake with the peer is complete.

        Raises:
            ConnectionLost: The handshake failed or took too long.
        """
        with self.lock:
            self.lock.wait_for(lambda: self.shaken_hands or self.over is not None, timeout_s)
            if self.over is not None:
                raise ConnectionLost(self.over)
            if not self.shaken_hands:
                raise ConnectionLost(f"no answer for {timeout_s:g} s")

    def count(self) -> QuicCount:
        """Traffic that this side has sent in total."""
        with self.lock:
            control = self.control
            return QuicCount(
                stream_bytes=control.stream_bytes,
                data_datagrams=control.data_datagrams,
                data_bytes=control.data_bytes,
                resent_datagrams=control.resent_datagrams,
                resent_bytes=control.resent_bytes,
                control_datagrams=self._datagrams
                - control.data_datagrams
                - control.resent_datagrams
                - control.handshake_datagrams,
                control_bytes=self._datagram_bytes
                - control.data_bytes
                - control.resent_bytes
                - control.handshake_bytes,
                handshake_datagrams=control.handshake_datagrams,
                handshake_bytes=control.handshake_bytes,
            )

    def end(self, why: str) -> None:
        """Close the connection and unblock all waiting threads."""
        with self.lock:
            self.over = self.over or why
            self.connection.close()
            self.lock.notify_all()
            self._nudge()

    def _nudge(self) -> None:
        """Wake up the thread; the caller must hold the lock."""
        if self._wake is not None:
            os.eventfd_write(self._wake, 1)

    def _run(self) -> None:
        try:
            while self.over is None:
                with self.lock:
                    self._take_in()
                    more = self._flush()
                    due_s = self.connection.get_timer()
                self._wait(due_s, look=more)
                with self.lock:
                    if due_s is not None and time.monotonic() >= due_s:
                        self.connection.handle_timer(time.monotonic())
                        self._heed(0)
            with self.lock:
                while self._flush():  # Sends the close frame to the peer.
                    pass
        except OSError as error:
            self.over = self.over or str(error)
        finally:
            with self.lock:
                self.lock.notify_all()
                self._sock.close()
                wake, self._wake = self._wake, None
                assert wake is not None
                os.close(wake)

    def _wait(self, due_s: float | None, *, look: bool) -> None:
        """Wait until there is something to do or a timer is due; if `look`, only check for received
        datagrams without waiting."""
        assert self._wake is not None
        timeout_s = None if due_s is None else max(_LEAST_WAIT_S, due_s - time.monotonic())
        timeout_s = 0.0 if look else timeout_s
        writers = [self._sock] if self._pending else []
        readers: list[Any] = [self._sock, self._wake]
        ready, _, _ = select.select(readers, writers, [], timeout_s)
        if self._wake in ready:
            os.eventfd_read(self._wake)
        if self._sock in ready and not _waiting(self._sock, termios.FIONREAD):
            if number := self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(number, os.strerror(number))
            self._sock.recv(1)  # An empty datagram.

    def _take_in(self) -> None:
        """Process all received datagrams with their arrival times."""
        while self._handed_over:
            datagram = self._handed_over.popleft()
            self.connection.receive_datagram(datagram, _PEER, time.monotonic())
            self._heed(time.monotonic_ns())
        for _ in range(_AT_ONCE):
            # No system call may fail here, because a failing call takes virtual time.
            if not _waiting(self._sock, termios.FIONREAD):
                return
            datagram, notes, _, _ = self._sock.recvmsg(_DATAGRAM_BYTES, NOTE_BYTES)
            arrived_ns = wire.arrived(notes)
            self.connection.receive_datagram(datagram, _PEER, time.monotonic())
            self._heed(arrived_ns)

    def _heed(self, arrived_ns: int) -> None:
        """Process the events of the connection that follow from a datagram."""
        while (event := self.connection.next_event()) is not None:
            match event:
                case events.StreamDataReceived():
                    arrivals = self.streams.setdefault(event.stream_id, Arrivals())
                    arrivals.data += event.data
                    arrivals.arrived_ns = max(arrivals.arrived_ns, arrived_ns)
                    arrivals.ended = event.end_stream
                    if len(arrivals.data) < arrivals.wanted and not arrivals.ended:
                        continue
                case events.HandshakeCompleted():
                    self.shaken_hands = True
                case events.ConnectionTerminated():
                    reason = event.reason_phrase or "the peer closed the connection"
                    self.over = self.over or reason
            self.lock.notify_all()

    def _flush(self) -> bool:
        """Send pending datagrams while the local queue accepts them; returns whether there may be
        more."""
        if not self._pending:
            self.control.makes_packets = True
            datagrams = self.connection.datagrams_to_send(time.monotonic())
            self.control.makes_packets = False
            self._datagrams += len(datagrams)
            self._datagram_bytes += sum(len(data) for data, _ in datagrams)
            self._pending.extend(data for data, _ in datagrams)
            if not datagrams:
                return False
        while self._pending:
            if _waiting(self._sock, termios.TIOCOUTQ) > self._queued_bytes:
                return False
            self._sock.send(self._pending.popleft())
        return True


def _waiting(sock: socket.socket, queue: int) -> int:
    """Bytes of the next received datagram (FIONREAD), or of all queued ones (TIOCOUTQ)."""
    (size,) = struct.unpack("=i", fcntl.ioctl(sock, queue, bytes(4)))
    return int(size)
