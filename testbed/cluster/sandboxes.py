# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Sandboxes of a world on several hosts: remote start of programs, and transfer of their files.

On its host, a sandbox's home is a folder of the agent; it is sent back when the world ends.
"""

import io
import itertools
import os
import socket
import tarfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from testbed.cluster.messages import (
    PartEnded,
    ReleasePrograms,
    SignalProgram,
    StartProgram,
    stream_of,
)
from testbed.cluster.standard_files import Carried
from testbed.control.codec import encode
from testbed.control.stream import ControlSocket
from testbed.core.errors import InputError, RunError
from testbed.core.node import NodeId
from testbed.runtimes import Command, NodeSpec, Sandbox, World, passed_on

MOST_START_BYTES = 1 << 20
MOST_HOME_BYTES = 1 << 26
"""Largest home of a node that is sent back, in bytes."""
DRAIN_S = 1.0
"""Seconds that the last output of a program may take to arrive after the program has ended."""
NOT_STARTED = 126
"""Exit status that shells use for a command that cannot be executed."""


class RemoteSandboxes:
    """The orchestrator's end: starts programs in the sandboxes of hosts."""

    def __init__(
        self,
        controls: Mapping[str, ControlSocket],
        places: Mapping[NodeId, str],
        opened: Callable[[str, str], socket.socket],
        moment_at: Callable[[NodeId, int], int],
    ) -> None:
        """Connect to the hosts.

        Args:
            controls: Control sockets of the hosts' agents, by host name.
            places: The host of each node.
            opened: Opens a socket of a host, by the names of host and socket.
            moment_at: See `World.moment_at`.
        """
        self._controls = controls
        self._places = places
        self._opened = opened
        self._moment_at = moment_at
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._running: dict[int, tuple[str, list[Carried]]] = {}

    def spawn(self, command: Command, files: tuple[int, int, int]) -> int:
        """See `World.spawn`."""
        host = self._places[command.node]
        if command.terminal:
            raise InputError(
                f"`command`: {command.node} is on host {host}, which cannot use this "
                "machine's terminal: "
                "give a command, or redirect standard input"
            )
        number = next(self._numbers)
        merged = files[1] == files[2]
        order, _ = encode(StartProgram(number, command, merged))
        if len(str(order)) > MOST_START_BYTES:
            raise InputError("command: command and environment are too long")
        try:
            with self._lock:
                self._controls[host].send(order)
        except (RunError, KeyError):
            raise RunError(f"host {host}: the connection is lost") from None
        self._running[number] = (
            host,
            [
                Carried(self._opened(host, stream_of(number, k)), os.dup(files[k]), outward=k == 0)
                for k in range(2 if merged else 3)
            ],
        )
        return number

    def signal(self, number: int, signal_: int) -> None:
        """See `World.signal`."""
        host, _ = self._running.get(number, ("", []))
        if host in self._controls:
            with self._lock:
                self._controls[host].send(*encode(SignalProgram(number, signal_)))

    def release(self, epoch_ns: int) -> None:
        """See `World.release`."""
        one_of = {host: node for node, host in self._places.items() if host in self._controls}
        with self._lock:
            for host, node in one_of.items():
                order = ReleasePrograms(self._moment_at(node, epoch_ns))
                self._controls[host].send(*encode(order))

    def ended(self, number: int) -> None:
        """Wait until all output of an ended program has arrived."""
        _, carried = self._running.pop(number, ("", []))
        for each in carried[1:]:
            each.await_end(DRAIN_S)


class HostSandboxes:
    """A host's end: runs programs in the sandboxes of its part."""

    def __init__(
        self, nodes: Sequence[NodeSpec], world: World, offer: Callable[[str, socket.socket], None]
    ) -> None:
        """Serve existing sandboxes.

        Args:
            nodes: The nodes with their homes on the orchestrator's machine.
            world: The world whose sandboxes have their homes on this host.
            offer: Offers a socket under a name.
        """
        self._theirs = {spec.node: _home(spec) for spec in nodes}
        self._world = world
        self._offer = offer
        self._numbers: dict[int, int] = {}
        """The orchestrator's number of each program, by the number on this host."""

    def start(self, order: StartProgram, home: Path) -> None:
        """Start a program.

        Raises:
            InputError: Command and environment are too long.
        """
        command = order.command
        own = {"HOME": str(home)}
        there = home if command.folder == self._theirs[command.node] else command.folder
        command = replace(
            command,
            env=passed_on() | dict(command.env) | own,
            folder=there,
            shown=tuple(path for path in command.shown if path.exists()),
        )
        given: list[int] = []
        for file in range(2 if order.merged else 3):
            near, far = socket.socketpair()
            read, write = os.pipe2(os.O_CLOEXEC)
            theirs, ours = (read, write) if file == 0 else (write, read)
            Carried(near, ours, outward=file > 0)
            self._offer(stream_of(order.number, file), far)
            given.append(theirs)
        try:
            number = self._world.spawn(command, (given[0], given[1], given[-1]))
        finally:
            for descriptor in given:
                os.close(descriptor)
        self._numbers[number] = order.number

    def signal(self, order: SignalProgram) -> None:
        """Send a signal to a program if it still runs."""
        for ours, theirs in self._numbers.items():
            if theirs == order.number:
                self._world.signal(ours, order.signal)

    def ended(self, number: int) -> int:
        """Remove an ended program from the books; returns the orchestrator's number of it."""
        return self._numbers.pop(number)


def _home(spec: NodeSpec) -> Path:
    assert isinstance(spec.program, Sandbox)
    return spec.program.writable[0]


def with_home(spec: NodeSpec, home: Path) -> NodeSpec:
    """The same sandbox with a new home, which is created on this host."""
    assert isinstance(spec.program, Sandbox)
    home.mkdir()
    return replace(spec, program=replace(spec.program, writable=(home,)))


def packed(homes: Mapping[str, Path]) -> tuple[bytes, tuple[str, ...]]:
    """A tar file of the homes, and the nodes whose homes are too large for it."""
    data, left_out = io.BytesIO(), []
    with tarfile.open(fileobj=data, mode="w:gz", compresslevel=1) as tar:
        for node, home in homes.items():
            sizes = [p.lstat().st_size for p in home.rglob("*") if p.is_file()]
            if sum(sizes) > MOST_HOME_BYTES:
                left_out.append(node)
            else:
                tar.add(home, node, filter=_of_kind)
    return data.getvalue(), tuple(left_out)


def _of_kind(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return member if member.isfile() or member.isdir() or member.issym() else None


def unpack(ended: PartEnded, homes: Mapping[str, Path]) -> None:
    """Unpack the homes of remote sandboxes into the local homes.

    Raises:
        OSError: A file cannot be written.
        tarfile.TarError: A path leads outside of the home.
    """
    with tarfile.open(fileobj=io.BytesIO(ended.homes), mode="r:gz") as tar:
        for member in tar:
            node, _, rest = member.name.partition("/")
            if rest:
                member.name = rest
                tar.extract(member, homes[node], filter="data")
