# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Frames on TCP's own byte stream."""

import socket

from testbed.core.node import NodeId
from testbed.transport import wire
from testbed.transport.interface import TransportSettings
from testbed.transport.streams import Stream, StreamTransport
from testbed.transport.wire import Buffer


class TcpStream:
    """A byte stream over plain TCP."""

    handshake_bytes = 0
    record_bytes = 0
    peer_name = None

    def __init__(self, sock: socket.socket):
        self.sock = sock

    def send(self, *parts: Buffer) -> None:
        """Send parts one after the other.

        Raises:
            ConnectionLost: The peer has disconnected, or accepted no data in time.
        """
        wire.send_parts(self.sock, *parts)

    def receive_into(self, place: memoryview) -> int:
        """Receive bytes as `testbed.transport.wire.receive_into` does."""
        return wire.receive_into(self.sock, place)


class Tcp(StreamTransport):
    """TCP without anything around frames."""

    name = "tcp"

    def stream(
        self, sock: socket.socket, settings: TransportSettings, peer: NodeId | None
    ) -> Stream:
        """See `StreamTransport`."""
        return TcpStream(sock)


TCP = Tcp()
