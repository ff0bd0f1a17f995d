# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""One end of a calibration as a separate program, for sessions, whose nodes have no program.

    python -m workloads.nodes.probing <ORDERS >ANSWERS

Orders and answers are lines of JSON: first a `Task`, answered by `"listening"` at the base station,
and by `"connected"`; then, for each calibration, the three numbers of an `EmulatedClock`, answered
by the received probes. The program ends when standard input ends.
"""

import json
import socket
import struct
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from testbed.control.messages import Probe, Received
from testbed.core.clock import EmulatedClock, next_tick
from testbed.network.fabric import link_addresses
from testbed.system import linux
from testbed.transport import wire
from testbed.transport.accounts import Counts
from testbed.transport.streams import KeptLink
from testbed.transport.tcp import TcpStream
from testbed.transport.wire import Header, Kind
from workloads.nodes.probe import exchange

PORT = 65_001
_AT_ONCE = struct.pack("=ii", 1, 0)
"""SO_LINGER value: a closed connection leaves neither a port in TIME_WAIT nor cached TCP metrics
that would affect later connections."""


@dataclass(frozen=True)
class Task:
    """The settings of one end."""

    client: int
    """The UAV's number; 0: the base station."""
    clients: int
    """Number of UAVs of the session."""
    server: str
    """Address of the base station."""
    timeout_s: float
    """Time limit of waiting for a peer, in real seconds."""
    credit_s: float
    """Burst credit in real seconds, see `EmulatedClock.depart`."""
    probes: tuple[Probe, ...]
    """Probes of the end's links."""

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> "Task":
        """The inverse of `dataclasses.asdict`."""
        probes = tuple(Probe(**probe) for probe in tree["probes"])
        return cls(**{**tree, "probes": probes})


def main() -> int:
    """Execute the orders on standard input; returns the exit status."""
    linux.precise_timers()
    task = Task.from_json(json.loads(sys.stdin.readline()))
    links = _accept(task) if task.client == 0 else {task.client: _connect(task)}
    _answer("connected")
    clock = EmulatedClock(*json.loads(sys.stdin.readline()))

    def of_link(client: int) -> list[Received]:
        own = [probe for probe in task.probes if probe.client == client]
        at_uav = task.client != 0
        return exchange(links[client], own, clock, task.credit_s, at_uav=at_uav)

    with ThreadPoolExecutor(len(links)) as pool:
        _answer([row for rows in pool.map(of_link, links) for row in rows])
    sys.stdin.read()
    return 0


def _accept(task: Task) -> dict[int, KeptLink]:
    """The base station's links, by client."""
    known = {link_addresses(client)[1]: client for client in range(1, task.clients + 1)}
    links: dict[int, KeptLink] = {}
    with socket.create_server(("", PORT), backlog=len(known)) as server:
        server.settimeout(task.timeout_s)
        _answer("listening")
        while len(links) < len(known):
            sock, (address, _) = server.accept()
            links[known[address]] = _link(sock, known[address], task.timeout_s)
    return links


def _connect(task: Task) -> KeptLink:
    # Sequence numbers follow the clock, and how long the program starts depends on its paths.
    next_tick()
    sock = socket.create_connection((task.server, PORT), task.timeout_s)
    return _link(sock, task.client, task.timeout_s)


def _link(sock: socket.socket, client: int, timeout_s: float) -> KeptLink:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    wire.configure(sock, timeout_s)
    greeting = Header(Kind.HELLO, client, 0, 0, 0, 0, 0.0, 0.0)
    return KeptLink(TcpStream(sock), Counts.of(greeting))


def _answer(what: Any) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    sys.exit(main())
