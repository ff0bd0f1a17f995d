# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How do frames travel between the base station and the UAVs?

The seam between programs and transports; who is served when is not decided here.

A program has one `Link` a peer and speaks whole frames of `testbed.transport.wire` over it; which
transport carries them, and over how many connections, is the scenario's choice:

- `tcp`: frames on a TCP stream; `tls`: the same within TLS 1.3, both sides authenticated by
  certificates of the run's own authority; `grpc`: each frame one message of a bidirectional gRPC
  stream, the way most federated frameworks exchange them; `quic`: each frame a stream of a QUIC
  connection, with the same certificates.
- `kept`: one connection a link for the whole run; `per-transfer`: whoever sends opens a connection
  for every transfer, its receipt goes back on it, and then it is closed.
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
    """Who a node is to the others under TLS, as PEM text; it travels over the control plane alone,
    and is never written to a file."""

    authority: str
    """The run's own certificate authority."""
    certificate: str
    key: str


@dataclass(frozen=True)
class TransportSettings:
    """How the nodes of a run talk to each other."""

    token: str
    """The run's, in hex digits: who does not know it is refused."""
    timeout_s: float
    """Real seconds after which waiting for a peer gives up."""
    meeting_s: float = 60.0
    """Real seconds within which all UAVs have presented themselves."""
    transport: Transport = "tcp"
    connection: Connection = "kept"
    nagle: bool = False
    """Whether small segments wait for the acknowledgement of earlier ones (RFC 896)."""
    identity: Identity | None = None
    """Of the node that is told; only under TLS and QUIC."""
    congestion_control: str = "cubic"
    """QUIC's; TCP's is the links' (`testbed.network.shaping.Shape`)."""
    datagram_bytes: int = 1472
    """Of QUIC at most, without headers of IP and UDP."""
    qlog: bool = False
    """Whether QUIC keeps a log of its events."""


class Link(Protocol):
    """Frames to and from one peer, in order; one thread may send while another receives."""

    def send(self, header: Header, extra: Buffer = b"", payload: Buffer = b"") -> None:
        """Send a frame; returns when the transport has taken all of it.

        Raises:
            ConnectionLost: The peer is gone, or took nothing in time.
        """

    def receive_header(self, due: Kind) -> Header:
        """Wait for the next frame, which should be of that kind; the caller checks it.

        Raises:
            ConnectionLost: The peer is gone, or nothing came in time.
            WireError: What came is no header.
        """

    def receive_into(self, place: memoryview) -> int:
        """Fill `place` with the next bytes of the frame.

        Returns:
            Monotonic time in ns at which the last of what was received so far came in: by the
            kernel's note of its last packet; under gRPC, which hides its packets, when the
            program was handed the whole message.

        Raises:
            ConnectionLost: The peer is gone, or nothing came in time.
        """

    def count(self) -> list[Counts]:
        """What this side has sent since the last call, frame by frame. Between rounds only."""

    def hang_up(self) -> None:
        """Have no more to do with the peer: whoever waits for it, in whatever thread, waits no
        longer, and nothing is sent any more. Accounts can still be asked for, until `close`."""

    def close(self) -> None:
        """Let go of the peer."""


def accept(
    settings: TransportSettings,
    address: tuple[str, int],
    clients: Collection[int],
    listening: Callable[[], object],
) -> dict[int, Link]:
    """Be the base station: wait until these UAVs have presented themselves with the run's token.

    Args:
        settings: How to talk.
        address: Where to listen.
        clients: The UAVs to wait for; they count from 1.
        listening: Called when UAVs may connect.

    Whoever is none of them, or says nothing, is turned away, and takes nobody's place.

    Raises:
        ConnectionLost: Someone did not come in time.
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
    """Be the UAV of that number: present oneself to the base station.

    Raises:
        ConnectionLost: The base station does not answer.
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
    """A link that says whose it is where the peer is lost."""

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
