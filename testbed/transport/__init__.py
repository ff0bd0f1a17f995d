# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Transport of frames between the base station and the UAVs.

The interface between node programs and transports; scheduling is not part of it.

A program has one `Link` per peer and exchanges whole frames of `testbed.transport.wire` over it;
the scenario chooses the transport and the number of connections:

- `tcp`: frames on a TCP stream; `tls`: the same over TLS 1.3, with both sides authenticated by
  certificates of the run's own authority; `grpc`: each frame is one message of a bidirectional gRPC
  stream, as in most federated frameworks; `quic`: each frame is a stream of a QUIC connection, with
  the same certificates.
- `kept`: one connection per link for the whole run; `per-transfer`: the sender opens a connection
  for every transfer, which is closed after the receipt has been sent back on it.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

from testbed.core.node import BS, uav
from testbed.transport.accounts import Counts
from testbed.transport.wire import Buffer, ConnectionLost, Header, Kind

Transport = Literal["tcp", "tls", "grpc", "quic"]
Connection = Literal["kept", "per-transfer"]


@dataclass(frozen=True)
class Identity:
    """TLS identity of a node as PEM text; it is sent over the control plane only, and never written
    to a file."""

    authority: str
    """Certificate of the run's own certificate authority."""
    certificate: str
    key: str


@dataclass(frozen=True)
class TransportSettings:
    """Transport settings of a run's nodes."""

    token: str
    """Secret token of the run in hex digits: peers without it are rejected."""
    timeout_s: float
    """Time limit of waiting for a peer, in real seconds."""
    meeting_s: float = 60.0
    """Time limit for the connection set-up of all UAVs, in real seconds."""
    transport: Transport = "tcp"
    connection: Connection = "kept"
    nagle: bool = False
    """Whether Nagle's algorithm is enabled (RFC 896)."""
    identity: Identity | None = None
    """TLS identity of the node; only for TLS and QUIC."""
    congestion_control: str = "cubic"
    """Congestion control of QUIC; for TCP see `testbed.network.shaping.Shape`."""
    datagram_bytes: int = 1472
    """Largest UDP payload of QUIC."""
    qlog: bool = False
    """Whether QUIC logs its events."""


class Link(Protocol):
    """A connection to one peer with frames in order; one thread may send while another receives."""

    def send(self, header: Header, extra: Buffer = b"", payload: Buffer = b"") -> None:
        """Send a frame; returns when the transport has accepted all of it.

        Raises:
            ConnectionLost: The peer has disconnected, or accepted no data in time.
        """

    def receive_header(self, due: Kind) -> Header:
        """Wait for the header of the next frame, expected to be of kind `due`; the caller checks
        it.

        Raises:
            ConnectionLost: The peer has disconnected, or nothing arrived in time.
            WireError: The received bytes are not a valid header.
        """

    def receive_into(self, place: memoryview) -> int:
        """Fill `place` with the next bytes of the frame.

        Returns:
            Monotonic time in ns at which the last received byte arrived: the kernel timestamp of
            its packet or, for gRPC, which hides its packets, the time at which the program
            received the whole message.

        Raises:
            ConnectionLost: The peer has disconnected, or nothing arrived in time.
        """

    def count(self) -> list[Counts]:
        """Counters of the frames sent since the last call; call it between rounds only."""

    def hang_up(self) -> None:
        """Shut down the connection and unblock all waiting threads; nothing is sent any more.
        Counters remain available until `close`."""

    def close(self) -> None:
        """Close the connection."""


def accept(
    settings: TransportSettings,
    address: tuple[str, int],
    clients: Collection[int],
    listening: Callable[[], object],
) -> dict[int, Link]:
    """Accept connections at the base station until these UAVs have authenticated themselves.

    Args:
        settings: Transport settings.
        address: IP address and port to listen on.
        clients: The UAVs to wait for; they count from 1.
        listening: Called when UAVs can connect.

    Other peers, and peers that send nothing, are rejected without effect on the UAVs.

    Raises:
        ConnectionLost: A UAV did not connect in time.
    """
    if settings.transport == "grpc":
        from testbed.transport.rpc import accept
    elif settings.transport == "quic":
        from testbed.transport.quic import accept
    else:
        from testbed.transport.streams import accept
    links = accept(settings, address, clients, listening)
    return {client: _Named(link, uav(client).title) for client, link in links.items()}


def connect(settings: TransportSettings, client: int, server: tuple[str, int]) -> Link:
    """Connect a UAV to the base station and authenticate it.

    Raises:
        ConnectionLost: The base station does not answer in time.
    """
    if settings.transport == "grpc":
        from testbed.transport.rpc import connect
    elif settings.transport == "quic":
        from testbed.transport.quic import connect
    else:
        from testbed.transport.streams import connect
    with _naming(BS.title, "HELLO"):
        return _Named(connect(settings, client, server), BS.title)


class _Named:
    """A link that adds the peer's name to its errors."""

    def __init__(self, link: Link, peer: str):
        self._link = link
        self._peer = peer
        self._kind = ""
        self.count = link.count
        self.hang_up, self.close = link.hang_up, link.close

    def send(self, header: Header, extra: Buffer = b"", payload: Buffer = b"") -> None:
        """See `Link`."""
        with _naming(self._peer, header.kind.name):
            self._link.send(header, extra, payload)

    def receive_header(self, due: Kind) -> Header:
        """See `Link`."""
        self._kind = due.name
        with _naming(self._peer, self._kind):
            return self._link.receive_header(due)

    def receive_into(self, place: memoryview) -> int:
        """See `Link`."""
        with _naming(self._peer, self._kind):
            return self._link.receive_into(place)


@contextmanager
def _naming(peer: str, kind: str) -> Iterator[None]:
    try:
        yield
    except ConnectionLost as lost:
        raise ConnectionLost(f"{kind} and {peer}: {lost}") from None
