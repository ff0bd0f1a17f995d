# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A world whose nodes are on several hosts, with the interface of a local one."""

import logging
import secrets
import select
import socket
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from testbed.cluster import sandboxes
from testbed.cluster.capacity import Peer, password_of
from testbed.cluster.clock import SILENCE_S, Clocks
from testbed.cluster.injectors import Captures, HostInjectors, there
from testbed.cluster.messages import (
    CONTROL,
    FROM_AGENT,
    INJECTOR,
    EndPart,
    FilePart,
    FlowsMeasured,
    FromAgent,
    GiveFile,
    Kill,
    MakePart,
    MeasureFlows,
    MeasureRelay,
    PartEnded,
    PartMade,
    RelayMeasured,
)
from testbed.cluster.streams import Caller
from testbed.control.codec import encode
from testbed.control.messages import Begin, MachineNow, NodeOrder, ProbeLinks
from testbed.control.stream import ControlSocket
from testbed.core.errors import RunError
from testbed.core.node import BS, NodeId
from testbed.network.fabric import MOST_TUNNELS, Part, Tunnel
from testbed.network.injector import Injector
from testbed.network.shaping import Shape
from testbed.runtimes import Ended, Exit, HostLost, NodeSpec, Sandbox, World, WorldLost, WorldNews
from testbed.transport.interface import Identity

log = logging.getLogger(__name__)

Answer = TypeVar("Answer", bound=FromAgent)
CLOCKS_S = 10.0
"""Seconds that the first clock exchanges may take."""
END_S = 20.0
"""Seconds that a host may take to end its part."""
FILE_S = 60.0
"""Seconds that the next part of a file may take."""
MOST_FILE_BYTES = 1 << 36
FLOWS_S, FLOWS_A_HOST_S = 30.0, 2.0
"""Time limit of the throughput measurement in s, fixed and per host; it takes one second per
host."""
Judge = Callable[[FlowsMeasured, Mapping[str, float]], object]
"""Called with the throughput of the network between hosts and, for relayed links, the packet rate
of each host's relay; raises an exception if they are insufficient."""


@dataclass(frozen=True)
class Agent:
    """Address, ports and secrets of a host's agent."""

    address: str
    port: int
    clock_port: int
    flow_port: int
    token: str
    server_name: str
    """Name in the agent's certificate."""
    relay_ports: tuple[int, ...] = ()
    """UDP ports of its relayed links to other hosts, in the order of links."""


def start(
    nodes: Sequence[NodeSpec],
    shape: Shape,
    agents: Mapping[str, Agent],
    places: Mapping[NodeId, str],
    identity: Identity,
    timeout_s: float,
    judge: Judge,
) -> "HostsWorld":
    """Start a world on several hosts; see `testbed.runtimes.start`.

    Args:
        nodes: All nodes; the first is the base station.
        shape: Shape of the links.
        agents: Agents by host name; each waits for its only run.
        places: The host of each node.
        identity: Certificates of the orchestrator.
        timeout_s: Time limit for the start of nodes.
        judge: Called before any node is started if links go over the network between hosts.

    Raises:
        RunError: A host failed; the message names it.
    """
    used = [name for name in agents if name in places.values()]
    addresses = {name: agents[name].address for name in used}
    parts = parts_of(addresses, places, {name: agents[name].relay_ports for name in used})
    with ExitStack() as cleanup:
        caller = Caller(identity)
        cleanup.callback(caller.close)

        def opened(host: str, name: str) -> socket.socket:
            agent = agents[host]
            at = agent.address, agent.port
            try:
                return caller.open(at, agent.server_name, agent.token, name)
            except RunError as error:
                raise RunError(f"host {host}: {error}") from None

        controls = {name: ControlSocket(opened(name, CONTROL)) for name in used}
        logs = {str(spec.node): spec.log for spec in nodes}
        homes = {
            str(spec.node): spec.program.writable[0]
            for spec in nodes
            if isinstance(spec.program, Sandbox)
        }
        for control in controls.values():
            cleanup.callback(control.close)

        def hang_up(host: str) -> None:
            caller.hang_up((agents[host].address, agents[host].port))

        # From here on, agents receive clock requests all the time and end when these stop.
        clocks = Clocks(
            {n: ((agents[n].address, agents[n].clock_port), agents[n].token) for n in used}, hang_up
        )
        cleanup.callback(clocks.close)
        if len(used) > 1:
            far = {name: agents[name] for name in used if name != places[BS]}
            flows = _measured(places[BS], controls[places[BS]], far)
            relayed = {name: c for name, c in controls.items() if agents[name].relay_ports}
            judge(flows, _relays_measured(relayed, shape))
        for name, control in controls.items():
            own = tuple(spec for spec in nodes if places[spec.node] == name)
            control.send(*encode(MakePart(own, shape, parts[name], timeout_s)))
        # Called first at the end.
        cleanup.callback(_end, controls, logs, homes)
        made = {
            name: _said(name, control, PartMade, timeout_s, "its nodes")
            for name, control in controls.items()
        }
        if (unknown := clocks.await_first(CLOCKS_S)) is not None:
            raise RunError(f"host {unknown}: it does not answer the clock's UDP datagrams")
        injectors = {name: Injector(opened(name, INJECTOR)) for name in used}
        found = HostsWorld(
            injectors,
            controls,
            clocks,
            places,
            opened,
            hang_up,
            cleanup.pop_all(),
        )
        centre = places[BS]
        found.injectors.captures = Captures(
            centre, made[centre].folder, lambda name, to: found.fetch(centre, name, to)
        )
        return found


def far_links(places: Mapping[NodeId, str], host: str) -> list[int]:
    """Links between that host and other hosts, in their order."""
    centre = places[BS]
    return sorted(
        node.client for node, at in places.items() if at != centre and host in (centre, at)
    )


def parts_of(
    addresses: Mapping[str, str],
    places: Mapping[NodeId, str],
    relay_ports: Mapping[str, Sequence[int]],
) -> dict[str, Part]:
    """The part of the network on each host.

    Args:
        addresses: IP addresses of the hosts that have nodes.
        places: The host of each node.
        relay_ports: Ports of each host for its `far_links`; empty: tunnels carry them.
    """
    links = sum(not node.is_bs for node in places)
    # Random, so that another run between the same hosts most likely has other numbers.
    first = secrets.randbelow(MOST_TUNNELS - links)
    centre = places[BS]
    far = {node.client: host for node, host in places.items() if host != centre}
    ports = {
        host: dict(zip(far_links(places, host), relay_ports[host], strict=False))
        for host in addresses
    }

    def tunnel(link: int, here: str) -> Tunnel:
        there = far[link] if here == centre else centre
        at = addresses[here], addresses[there]
        return Tunnel(first + link, *at, ports[there].get(link, 0))

    return {
        host: Part(
            links,
            host == centre,
            tuple(node.client for node, at in places.items() if at == host and not node.is_bs),
            {link: tunnel(link, host) for link in far_links(places, host)},
        )
        for host in addresses
    }


def _measured(centre: str, control: ControlSocket, far: Mapping[str, Agent]) -> FlowsMeasured:
    """Throughput of the network between the base station's host and the others."""
    peers = {
        name: Peer(agent.address, agent.flow_port, password_of(agent.token))
        for name, agent in far.items()
    }
    control.send(*encode(MeasureFlows(peers)))
    timeout_s = FLOWS_S + FLOWS_A_HOST_S * len(far)
    return _said(centre, control, FlowsMeasured, timeout_s, "the throughput of its network")


def _relays_measured(controls: Mapping[str, ControlSocket], shape: Shape) -> dict[str, float]:
    """Packets per second that the relay of each host handles while all are busy."""
    for control in controls.values():
        control.send(*encode(MeasureRelay(shape.mtu)))
    return {
        name: _said(name, control, RelayMeasured, FLOWS_S, "the packet rate of its relay").packets_s
        for name, control in controls.items()
    }


def _said(
    host: str, control: ControlSocket, kind: type[Answer], timeout_s: float, what: str
) -> Answer:
    """Wait for an agent's answer before its part is created."""
    try:
        message = control.receive(timeout_s)
    except RunError:
        raise RunError(f"host {host}: the connection is lost") from None
    if message is None:
        raise RunError(f"host {host}: waited {timeout_s:g} s for {what}")
    news = FROM_AGENT.decode(*message)
    if isinstance(news, WorldLost):
        raise RunError(f"host {host}: {news.reason}")
    assert isinstance(news, kind), news
    return news


def _end(
    controls: Mapping[str, ControlSocket], logs: Mapping[str, Path], homes: Mapping[str, Path]
) -> None:
    """Let hosts end their parts, and store the logs and homes of their nodes."""
    for control in controls.values():
        with suppress(RunError):
            control.send(*encode(EndPart()))
    deadline = time.monotonic() + END_S
    for control in controls.values():
        with suppress(RunError):
            while message := control.receive(max(0.0, deadline - time.monotonic())):
                ended = FROM_AGENT.decode(*message)
                if isinstance(ended, PartEnded):
                    for node, text in ended.logs.items():
                        logs[node].write_text(text, encoding="utf-8")
                    _keep_homes(ended, homes)
                if isinstance(ended, PartEnded | WorldLost):
                    break


def _keep_homes(ended: PartEnded, homes: Mapping[str, Path]) -> None:
    for node in ended.left_out:
        log.warning("%s: its home is too large to be sent, and is lost", node)
    if ended.homes:
        try:
            sandboxes.unpack(ended, homes)
        except (OSError, tarfile.TarError) as error:
            log.warning("homes of nodes: not all could be stored: %s", error)


class HostsWorld(World):
    """Connected nodes on several hosts."""

    def __init__(
        self,
        injectors: Mapping[str, Injector],
        controls: Mapping[str, ControlSocket],
        clocks: Clocks,
        places: Mapping[NodeId, str],
        opened: Callable[[str, str], socket.socket],
        hang_up: Callable[[str], object],
        cleanup: ExitStack,
    ) -> None:
        self._controls = dict(controls)
        self.injectors = HostInjectors(injectors, clocks, places[BS], self._failed)
        self._clocks = clocks
        self._opened = opened
        self._early: list[WorldNews | HostLost] = []
        """News that arrived while waiting for a file."""
        self._hang_up = hang_up
        self._failures: dict[str, str] = {}
        self.lost: dict[str, str] = {}
        """Lost hosts, and the reason for each."""
        self._poll = select.epoll()
        cleanup.callback(self._poll.close)
        for control in controls.values():
            self._poll.register(control, select.EPOLLIN)
        first = next(iter(controls.values()))
        self._remote_sandboxes = sandboxes.RemoteSandboxes(
            self._controls, places, opened, self.moment_at
        )
        super().__init__(self.injectors, {}, first, self._kill, cleanup, self._remote_sandboxes)
        self.places = dict(places)

    def fetch(self, host: str, name: str, to: Path) -> None:
        """Fetch a file from a host's folder.

        Raises:
            RunError: The host is lost, or the file is too large.
        """
        control, size, left = self._controls[host], 0, 1
        control.send(*encode(GiveFile(name)))
        with to.open("wb") as file:
            while left:
                if (message := control.receive(FILE_S)) is None:
                    raise RunError(f"host {host}: waited {FILE_S:g} s for {name}")
                part = FROM_AGENT.decode(*message)
                if not isinstance(part, FilePart):
                    self._early.append(news := self._told(host, part))
                    if isinstance(news, HostLost):
                        raise RunError(str(news))
                    continue
                size, left = size + len(part.data), part.left
                if size + left > MOST_FILE_BYTES:
                    most = MOST_FILE_BYTES >> 30
                    raise RunError(f"host {host}: {name} has more than {most} GiB")
                file.write(part.data)

    def connect(self, timeout_s: float = 120) -> dict[NodeId, socket.socket]:
        """A stream to every node; see `World.connect`."""
        return {node: self._opened(host, str(node)) for node, host in self.places.items()}

    def ordered(self, node: NodeId, order: NodeOrder) -> NodeOrder:
        """See `World.ordered`."""
        if isinstance(order, Begin | ProbeLinks):
            reading = self._clocks.of[self.places[node]].now()
            return replace(order, clock=there(order.clock, reading))
        return order

    def moment_at(self, node: NodeId, monotonic_ns: int) -> int:
        """See `World.moment_at`."""
        return monotonic_ns + self._clocks.of[self.places[node]].now().offset_ns

    def clocks_ahead_s(self) -> Mapping[NodeId, float]:
        """See `World.clocks_ahead_s`."""
        return {node: self.injectors.ahead_s(host) for node, host in self.places.items()}

    def machines(self) -> Mapping[str, MachineNow]:
        """See `World.machines`."""
        return self.injectors.machines()

    def clock_errors(self) -> dict[str, dict[str, float]]:
        """Errors of each host's clock, by host name: `error_s`, the largest possible difference
        from the assumed clock so far, and `jumped_s`, its largest jump."""
        return {
            host: {"error_s": error_s, "jumped_s": self._clocks.of[host].jumped_s}
            for host, error_s in self.injectors.errors_s.items()
        }

    def _kill(self, node: NodeId) -> None:
        self._controls[self.places[node]].send(*encode(Kill(node)))

    def fileno(self) -> int:
        """See `World.fileno`."""
        return self._poll.fileno()

    def _receive(self) -> WorldNews | HostLost | None:
        if self._early:
            return self._early.pop(0)
        for name, control in self._controls.items():
            try:
                message = control.receive(0)
            except RunError:
                return self._lose(name, "the connection is lost")
            if message:
                return self._told(name, FROM_AGENT.decode(*message))
        return None

    def _told(self, host: str, told: FromAgent) -> WorldNews | HostLost:
        if isinstance(told, WorldLost):
            return self._lose(host, told.reason)
        if isinstance(told, Exit) and told.node is None:
            return self._lose(host, str(told))
        assert isinstance(told, Exit | Ended), told
        if isinstance(told, Ended):
            self._remote_sandboxes.ended(told.number)
        return told

    def _failed(self, host: str, why: str) -> None:
        """Handle the failure of a host's injector: the whole host is lost."""
        self._failures.setdefault(host, why)
        self._hang_up(host)

    def _lose(self, host: str, reason: str) -> HostLost:
        """Continue without a host.

        Raises:
            RunError: The host is the base station's.
        """
        if self._clocks.is_silent(host):
            reason = f"it has not answered for {SILENCE_S:g} s"
        reason = self._failures.get(host, reason)
        nodes = tuple(node for node, place in self.places.items() if place == host)
        lost = HostLost(host, nodes, self._clocks.of[host].heard_ns, reason)
        self.lost[host] = reason
        if BS in nodes:
            raise RunError(str(lost))
        self._poll.unregister(self._controls.pop(host))
        self._clocks.lose(host)
        self.injectors.lose(host)
        self._hang_up(host)
        return lost
