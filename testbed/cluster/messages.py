# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Messages between the orchestrator and a host's agent."""

from collections.abc import Mapping
from dataclasses import dataclass

from testbed.cluster.capacity import Flow, Peer
from testbed.control.codec import Kinds
from testbed.core.node import NodeId
from testbed.network.fabric import Part
from testbed.network.shaping import Shape
from testbed.runtimes import Command, Ended, Exit, NodeSpec, WorldLost
from testbed.transport.interface import Identity

CONTROL, INJECTOR, PROGRAM = "control", "injector", "program/"
"""Names of a host's sockets; the sockets of nodes have the names of the nodes, and those of
programs begin with the last of these names."""


@dataclass(frozen=True)
class BeHost:
    """Settings of an agent, on its standard input."""

    address: str
    """IP address of the agent's socket and of its ends of tunnels."""
    token: str
    """Secret that every peer must present."""
    identity: Identity
    relayed: int = 0
    """Number of relayed links with one end on this host; 0 if tunnels carry them."""


@dataclass(frozen=True)
class Listening:
    """Ports of an agent, on its standard output."""

    port: int
    """TCP port of `testbed.cluster.streams`."""
    clock_port: int
    """UDP port of `testbed.cluster.clock`."""
    flow_port: int
    """TCP port of `testbed.cluster.capacity`."""
    relay_ports: tuple[int, ...] = ()
    """UDP port of each relayed link: see `testbed.network.relay`."""


@dataclass(frozen=True)
class MeasureFlows:
    """Asks the base station's host to measure the throughput to and from these hosts."""

    peers: Mapping[str, Peer]


@dataclass(frozen=True)
class FlowsMeasured:
    """Result of `MeasureFlows`."""

    alone: Mapping[str, Flow]
    """Throughput of each host while the others are idle, by host name."""
    together: Flow
    """Throughput of all hosts at once."""


@dataclass(frozen=True)
class MeasureRelay:
    """Asks for the packet rate of a relay on the host; answered by `RelayMeasured`."""

    mtu: int
    """MTU of the links."""


@dataclass(frozen=True)
class RelayMeasured:
    """Result of `MeasureRelay`."""

    packets_s: float
    """Packets of one frame per second, in both directions together."""


@dataclass(frozen=True)
class MakePart:
    """Starts these nodes and connects them by links."""

    nodes: tuple[NodeSpec, ...]
    """The nodes of the host; their logs are named after the orchestrator's files."""
    shape: Shape
    part: Part
    timeout_s: float
    """Seconds that nodes may take to start."""


@dataclass(frozen=True)
class PartMade:
    """All nodes are running; their sockets can be opened."""

    folder: str
    """Folder on the host for files that `GiveFile` fetches."""


@dataclass(frozen=True)
class GiveFile:
    """Asks for a file of the part's folder; answered by `FilePart`s."""

    name: str


@dataclass(frozen=True)
class FilePart:
    """The next bytes of a file."""

    left: int
    """Number of bytes that follow this part."""
    data: bytes


@dataclass(frozen=True)
class Kill:
    """Ends a node by SIGKILL."""

    node: NodeId


@dataclass(frozen=True)
class StartProgram:
    """Starts a program in a sandbox; `Ended` reports its end. Its standard files are the sockets
    `stream_of`."""

    number: int
    command: Command
    """The program; its environment extends that of the host's programs."""
    merged: bool
    """Whether standard error is redirected to standard output."""


@dataclass(frozen=True)
class SignalProgram:
    """Sends a signal to a program of a sandbox and to all processes of its session."""

    number: int
    signal: int


@dataclass(frozen=True)
class ReleasePrograms:
    """Lets all held programs start."""

    epoch_ns: int
    """Start of slot 0 by the host's monotonic clock."""


@dataclass(frozen=True)
class EndPart:
    """Ends all nodes; answered by `PartEnded`."""


@dataclass(frozen=True)
class PartEnded:
    """All nodes have ended and the host is clean."""

    logs: Mapping[str, str]
    """The last part of each node's log, by node."""
    homes: bytes = b""
    """Content of the sandboxes' home folders: see `testbed.cluster.sandboxes`."""
    left_out: tuple[str, ...] = ()
    """Nodes whose home folders are too large to be sent."""


def stream_of(number: int, file: int) -> str:
    """Name of the socket of a program's standard file, 0 to 2."""
    return f"{PROGRAM}{number}/{file}"


ToAgent = (
    MeasureFlows
    | MeasureRelay
    | MakePart
    | GiveFile
    | Kill
    | StartProgram
    | SignalProgram
    | ReleasePrograms
    | EndPart
)
FromAgent = (
    FilePart | FlowsMeasured | RelayMeasured | PartMade | PartEnded | Exit | Ended | WorldLost
)
TO_AGENT: Kinds[ToAgent] = Kinds(ToAgent)
FROM_AGENT: Kinds[FromAgent] = Kinds(FromAgent)
STARTING: Kinds[BeHost | Listening | WorldLost] = Kinds(BeHost | Listening | WorldLost)
