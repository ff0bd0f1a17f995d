# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What the orchestrator and a host's agent say to each other."""

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
"""Sockets of a host, beside those of its nodes, which are called as they are; and how those of
programs begin, which are there as soon as their programs are."""


@dataclass(frozen=True)
class BeHost:
    """To the agent, on its standard input, by who starts it."""

    address: str
    """Where it is to listen, and to have its ends of tunnels."""
    token: str
    """What who connects must show."""
    identity: Identity
    relayed: int = 0
    """Links with one end here that are relayed; 0 also where tunnels carry them."""


@dataclass(frozen=True)
class Listening:
    """From the agent, on its standard output."""

    port: int
    """TCP: see `testbed.cluster.streams`."""
    clock_port: int
    """UDP: see `testbed.cluster.clock`."""
    flow_port: int
    """TCP: see `testbed.cluster.capacity`."""
    relay_ports: tuple[int, ...] = ()
    """UDP, of each link that is relayed: see `testbed.network.relay`."""


@dataclass(frozen=True)
class MeasureFlows:
    """To the base station's host: what does the network carry to and from these hosts?"""

    peers: Mapping[str, Peer]


@dataclass(frozen=True)
class FlowsMeasured:
    """What it carries."""

    alone: Mapping[str, Flow]
    """By host, while the others are silent."""
    together: Flow
    """All at once."""


@dataclass(frozen=True)
class MeasureRelay:
    """How many packets can a relay of yours handle? Answered by `RelayMeasured`."""

    mtu: int
    """Of the links."""


@dataclass(frozen=True)
class RelayMeasured:
    """So many."""

    packets_s: float
    """Of one frame, either way."""


@dataclass(frozen=True)
class MakePart:
    """Start these nodes, wired."""

    nodes: tuple[NodeSpec, ...]
    """Their logs are named after the orchestrator's files."""
    shape: Shape
    part: Part
    timeout_s: float
    """How long nodes may take."""


@dataclass(frozen=True)
class PartMade:
    """All nodes run; their sockets may be asked for."""

    folder: str
    """On the host, for files that come back by `GiveFile`."""


@dataclass(frozen=True)
class GiveFile:
    """Send a file of that folder; answered by `FilePart`s."""

    name: str


@dataclass(frozen=True)
class FilePart:
    """The next bytes of a file."""

    left: int
    """Bytes that come after these."""
    data: bytes


@dataclass(frozen=True)
class Kill:
    """End a node by SIGKILL."""

    node: NodeId


@dataclass(frozen=True)
class StartProgram:
    """In a room; `Ended` tells when it is over. Its standard files are the sockets `stream_of`."""

    number: int
    command: Command
    """Its environment comes on top of what the host's programs find."""
    merged: bool
    """Whether its errors go where its output does."""


@dataclass(frozen=True)
class SignalProgram:
    """Send a signal to a program of a room, and to all that it has started in its session."""

    number: int
    signal: int


@dataclass(frozen=True)
class EndPart:
    """End all nodes; answered by `PartEnded`."""


@dataclass(frozen=True)
class PartEnded:
    """Nothing is left on the host."""

    logs: Mapping[str, str]
    """What nodes wrote, at most the last part of it, by node."""
    homes: bytes = b""
    """What rooms have in their homes: see `testbed.cluster.rooms`."""
    left_out: tuple[str, ...] = ()
    """Nodes whose homes hold too much for that."""


def stream_of(number: int, file: int) -> str:
    """The socket of one of a program's standard files, 0 to 2."""
    return f"{PROGRAM}{number}/{file}"


ToAgent = (
    MeasureFlows
    | MeasureRelay
    | MakePart
    | GiveFile
    | Kill
    | StartProgram
    | SignalProgram
    | EndPart
)
FromAgent = (
    FilePart | FlowsMeasured | RelayMeasured | PartMade | PartEnded | Exit | Ended | WorldLost
)
TO_AGENT: Kinds[ToAgent] = Kinds(ToAgent)
FROM_AGENT: Kinds[FromAgent] = Kinds(FromAgent)
STARTING: Kinds[BeHost | Listening | WorldLost] = Kinds(BeHost | Listening | WorldLost)
