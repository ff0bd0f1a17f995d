# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The interface of transports: their use by programs, and the bytes that they add."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from testbed.transport.accounts import Counts
from testbed.transport.framing import Framing
from testbed.transport.wire import Buffer, Header, Kind

Connection = Literal["kept", "per-transfer"]


@dataclass(frozen=True)
class Identity:
    """Certificate and key with which a node authenticates itself under TLS, as PEM text; they are
    sent over the control plane only, and never written to a file."""

    authority: str
    """The run's own certificate authority."""
    certificate: str
    key: str


@dataclass(frozen=True)
class TransportSettings:
    """Settings of the communication between the nodes of a run."""

    token: str
    """The run's token, in hex digits; peers without it are refused."""
    timeout_s: float
    """Time limit for waiting for a peer, in real seconds."""
    meeting_s: float = 60.0
    """Real seconds within which all UAVs have presented themselves."""
    transport: str = "tcp"
    """A name of `testbed.core.registry.TRANSPORTS`."""
    connection: Connection = "kept"
    nagle: bool = False
    """Whether small segments wait for the acknowledgement of earlier ones (RFC 896)."""
    identity: Identity | None = None
    """Certificate and key of the node; None if the transport has no certificates."""
    congestion_control: str = "cubic"
    """QUIC's; TCP's is the links' (`testbed.network.shaping.Shape`)."""
    datagram_bytes: int = 1472
    """Largest QUIC datagram, without headers of IP and UDP."""
    qlog: bool = False
    """Whether QUIC keeps a log of its events."""


class Link(Protocol):
    """Frames to and from one peer, in order; one thread may send while another receives."""

    def send(self, header: Header, extra: Buffer = b"", payload: Buffer = b"") -> None:
        """Send a frame; returns when the transport has accepted all of it.

        Raises:
            ConnectionLost: The peer has disconnected, or accepted no data in time.
        """

    def receive_header(self, due: Kind) -> Header:
        """Wait for the next frame, which should be of that kind; the caller checks it.

        Raises:
            ConnectionLost: The peer has disconnected, or nothing arrived in time.
            WireError: The received bytes are no header.
        """

    def receive_into(self, place: memoryview) -> int:
        """Fill `place` with the next bytes of the frame.

        Returns:
            Monotonic time in ns at which the last byte received so far arrived. It is the kernel's
            timestamp of the last packet; under gRPC, which hides its packets, the time at which the
            program received the whole message.

        Raises:
            ConnectionLost: The peer has disconnected, or nothing arrived in time.
        """

    def count(self) -> list[Counts]:
        """Counts of the data that this side has sent since the last call, frame by frame. Between
        rounds only."""

    def hang_up(self) -> None:
        """Shut the connection down and unblock all threads that wait for the peer.

        Accounts can still be read until `close`.
        """

    def close(self) -> None:
        """Release the connection."""


class MarkedLink(Link, Protocol):
    """A link over a transport with `TransportKind.marks_packets`."""

    def set_dscp(self, dscp: int) -> None:
        """Mark the packets that this side sends from now on with a differentiated services
        codepoint (RFC 2474), 0 to 63; may be called while another thread sends."""


class TransportKind:
    """A transport that connects nodes, and the properties of it that the testbed needs to know.

    The defaults are for frames that are sent over one TCP connection without encapsulation.
    """

    name: str
    """The name of the transport in scenarios (`emulation.transport`)."""
    is_tcp: bool = True
    """Whether TCP carries the frames; if not, UDP does, one datagram per IP packet."""
    has_certificates: bool = False
    """Whether nodes present certificates to each other (`TransportSettings.identity`)."""
    round_trips: int = 1
    """Number of round trips needed to open a connection."""
    own_bytes: str = "other_bytes"
    """Column of the table of byte counts; the bytes on the TCP stream that belong to no frame are
    added to it."""
    writes_qlog: bool = False
    """Whether connections log their events (`TransportSettings.qlog`)."""
    marks_packets: bool = False
    """Whether its links are of type `MarkedLink`."""
    allowed: Mapping[str, tuple[object, ...]] = {}
    """The values that the transport supports for each key of a scenario; None: the key must not be
    set."""
    least_mtu: int = 0
    """The smallest MTU of a link, in bytes."""

    def accept(
        self,
        settings: TransportSettings,
        address: tuple[str, int],
        clients: Collection[int],
        listening: Callable[[], object],
    ) -> dict[int, Link]:
        """Listen as the base station until these UAVs have connected with the run's token.

        Connections without the token, and silent ones, are closed and do not count as a UAV.

        Args:
            settings: Settings of the transport.
            address: Address to listen on.
            clients: The UAVs to wait for; they count from 1.
            listening: Called when UAVs may connect.

        Returns:
            A link to each of the UAVs.

        Raises:
            ConnectionLost: A node did not connect in time.
        """
        raise NotImplementedError

    def connect(self, settings: TransportSettings, client: int, server: tuple[str, int]) -> Link:
        """Connect to the base station as the UAV with this index.

        Raises:
            ConnectionLost: The base station does not answer.
        """
        raise NotImplementedError

    def message_bytes(self, head_bytes: int, payload_bytes: int) -> int:
        """Number of bytes that a frame occupies on the TCP stream.

        Args:
            head_bytes: The frame's header and the bytes that follow it up to the payload.
            payload_bytes: The frame's payload.
        """
        return head_bytes + payload_bytes

    def link_bytes(self, framing: Framing, head_bytes: int, payload_bytes: int) -> int:
        """Number of bytes that a frame occupies on a link. The arguments are those of
        `message_bytes`."""
        return framing.on_link(self.message_bytes(head_bytes, payload_bytes))

    def opening_bytes(self, framing: Framing) -> int:
        """Number of bytes sent in one direction of a link when a connection is opened by the sender
        in this direction."""
        return framing.opening()
