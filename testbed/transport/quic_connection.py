# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A QUIC connection on a UDP socket, driven by a thread: aioquic's state machine, and its books.

Datagrams are as long as the link's frames allow. The thread gives its socket no more than
`QUEUED_DATAGRAMS` at a time and goes on when the link has taken some, as TCP does with its own
queue: none is dropped before it is on its way, and round trips measure the link, not ourselves.
"""

import fcntl
import os
import select
import socket
import struct
import termios
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from aioquic.quic import events
from aioquic.quic.congestion.base import (
    QuicCongestionControl,
    create_congestion_control,
    register_congestion_control,
)
from aioquic.quic.connection import QuicConnection
from aioquic.quic.packet import QuicPacketType
from aioquic.quic.packet_builder import QuicSentPacket

from testbed.system.arrivals import NOTE_BYTES, note_arrivals
from testbed.transport import wire
from testbed.transport.accounts import QuicCount
from testbed.transport.wire import ConnectionLost

QUEUED_DATAGRAMS = 16
"""So many of a connection wait for its link at most: 6 ms at 30 Mb/s."""
CONTROLS = ("cubic", "reno")
"""Congestion controls that aioquic has."""
_TRUESIZE_BYTES = 2304
"""What the kernel charges a socket for a datagram of a frame of 1,500 bytes."""
_RECEIVE_BYTES = 4 << 20
_DATAGRAM_BYTES = 1 << 16
_AT_ONCE = 32
"""Datagrams that are received before anything is answered."""
_LEAST_WAIT_S = 20e-6
"""A timer of aioquic's may be due and, by a rounding error, find nothing to do; in virtual time, no
time passes while a program goes round in circles."""
_PEER = ("peer", 0)
"""Sockets are connected: aioquic needs no address, but the same one each time."""


class Control(QuicCongestionControl):
    """One of aioquic's congestion controls, with books of the packets that are sent.

    While packets are made (`makes_packets`), what may be in flight is held to what is, and the
    socket's queue beyond it: none is made ahead that would wait in this process.
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
        """See aioquic; enter what is in it, but for acknowledgements alone, of which it says
        nothing."""
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
"""The control of the connection that a thread has made last."""
for _name in CONTROLS:
    register_congestion_control(
        f"booked-{_name}",
        lambda *, max_datagram_size, name=_name: Control(name, max_datagram_size),
    )


class Arrivals:
    """What has come in on a stream."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.arrived_ns = 0
        """When the last of it did."""
        self.taken = 0
        """Bytes of `data` that were asked for and handed over."""
        self.wanted = 0
        """How many there must be for whoever waits to go on: one wake-up a transfer, not one a
        datagram."""
        self.ended = False


class Endpoint:
    """One side of a connection, and the thread that drives it."""

    def __init__(self, sock: socket.socket, connection: QuicConnection) -> None:
        """Begin; of a connection that has just been made by this thread.

        Args:
            sock: A UDP socket, connected to the peer; it is closed when the connection is over.
            connection: Ours, with a congestion control of `CONTROLS` by its booked name.
        """
        self._sock = sock
        self.connection = connection
        self.control: Control = _made.control
        self.lock = threading.Condition()
        """Held while the connection is used; told when something has happened to it."""
        self.streams: dict[int, Arrivals] = {}
        """By number; the peer's."""
        self.shaken_hands = False
        self.over: str | None = None
        """Why the connection is over."""
        self._queued_bytes = QUEUED_DATAGRAMS * _TRUESIZE_BYTES
        self._pending: deque[bytes] = deque()
        self._handed_over = deque[bytes]()
        self._datagrams = self._datagram_bytes = 0
        self._wake: int | None = os.eventfd(0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._queued_bytes)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
        note_arrivals(sock)

    def start(self) -> None:
        """Drive the connection from now on."""
        threading.Thread(target=self._run, daemon=True).start()

    def connect(self) -> None:
        """Be the client: begin to shake hands."""
        with self.lock:
            self.connection.connect(_PEER, time.monotonic())

    def feed(self, datagram: bytes) -> None:
        """Take in a datagram that another socket has received."""
        with self.lock:
            self._handed_over.append(datagram)
            self._nudge()

    def send(self, data: bytes) -> None:
        """Send a stream of its own with that, whole; returns before it has left.

        Raises:
            ConnectionLost: The connection is over.
        """
        with self.lock:
            if self.over is not None:
                raise ConnectionLost(self.over)
            stream = self.connection.get_next_available_stream_id(is_unidirectional=True)
            self.connection.send_stream_data(stream, data, end_stream=True)
            self._nudge()

    def receive_into(self, stream: int, place: memoryview, timeout_s: float) -> int:
        """Fill `place` with what comes next on one of the peer's streams.

        Returns:
            Monotonic time in ns at which the last of it came in, by the kernel's note.

        Raises:
            ConnectionLost: The connection is over, or nothing came in time.
        """
        with self.lock:
            arrivals = self.streams.setdefault(stream, Arrivals())
            before, end = len(arrivals.data), arrivals.taken + len(place)
            arrivals.wanted = end
            while len(arrivals.data) < end:
                if self.over is not None:
                    raise ConnectionLost(self.over)
                if arrivals.ended:
                    raise wire.WireError("payload_bytes: the stream is shorter than is due")
                if not self.lock.wait(timeout_s) and len(arrivals.data) == before:
                    raise ConnectionLost(f"nothing came for {timeout_s:g} s")
                before = len(arrivals.data)
            place[:] = memoryview(arrivals.data)[arrivals.taken : end]
            arrivals.taken = end
            return arrivals.arrived_ns

    def await_handshake(self, timeout_s: float) -> None:
        """Wait until the peer has proved to be of this run, as far as TLS goes.

        Raises:
            ConnectionLost: It has not in time.
        """
        with self.lock:
            self.lock.wait_for(lambda: self.shaken_hands or self.over is not None, timeout_s)
            if self.over is not None:
                raise ConnectionLost(self.over)
            if not self.shaken_hands:
                raise ConnectionLost(f"no answer for {timeout_s:g} s")

    def count(self) -> QuicCount:
        """What this side has sent since it began."""
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
        """Have no more to do with the peer: whoever waits for it waits no longer."""
        with self.lock:
            self.over = self.over or why
            self.connection.close()
            self.lock.notify_all()
            self._nudge()

    def _nudge(self) -> None:
        """Have the thread look again; whoever calls holds the lock."""
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
                while self._flush():  # What tells the peer.
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
        """Until there is something to do, or a timer is due; where there is already, have a look
        at what has come."""
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
            self._sock.recv(1)  # A datagram without anything in it.

    def _take_in(self) -> None:
        """Datagrams that are there, each with the moment at which it came."""
        while self._handed_over:
            datagram = self._handed_over.popleft()
            self.connection.receive_datagram(datagram, _PEER, time.monotonic())
            self._heed(time.monotonic_ns())
        for _ in range(_AT_ONCE):
            # No call fails: one that does takes virtual time.
            if not _waiting(self._sock, termios.FIONREAD):
                return
            datagram, notes, _, _ = self._sock.recvmsg(_DATAGRAM_BYTES, NOTE_BYTES)
            arrived_ns = wire.arrived(notes)
            self.connection.receive_datagram(datagram, _PEER, time.monotonic())
            self._heed(arrived_ns)

    def _heed(self, arrived_ns: int) -> None:
        """What the connection has to tell since it was told of a datagram."""
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
        """Send what there is to send, as far as the link takes it; whether there may be more."""
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
    """Bytes of the next datagram that has come (FIONREAD), or of those that have not left."""
    (size,) = struct.unpack("=i", fcntl.ioctl(sock, queue, bytes(4)))
    return int(size)
