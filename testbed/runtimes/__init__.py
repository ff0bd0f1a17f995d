# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Who starts the node programs, isolates them, and makes sure that none is left?

Namespaces and containers; what nodes do once they run stands in `workloads.nodes`.

A runtime's `start` makes a `World`: one network namespace a node, wired by the fabric, and the
node programs running in them. Node programs reach the orchestrator through `connect_control`.
"""

import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol

from testbed.control.codec import Kinds
from testbed.control.messages import MachineNow, NodeOrder
from testbed.control.stream import ControlSocket
from testbed.core.errors import RunError
from testbed.core.node import NodeId
from testbed.network.injector import Injector
from testbed.network.shaping import Shape
from testbed.system import leftovers

CONTROL_ADDRESS = "\0testbed/control"
"""An abstract unix address belongs to a network namespace: each node finds its own orchestrator
socket under this one name, no other process can reach it, and no file is left behind."""
LEFT_OUT = ("XDG_", "DBUS_", "SSH_", "GPG_", "DISPLAY", "WAYLAND_", "PWD", "OLDPWD")
"""Variables of this user's session that lead out of a node begin so; so do those of proxies end."""
OWN_FOLDERS = ("/tmp", "/dev/shm")
"""Of each sandbox, which hide this machine's."""


@dataclass(frozen=True)
class Module:
    """A Python module as a program: what ``python -m`` runs."""

    name: str
    preload: Sequence[str] = ()
    """Modules that may be imported before the program starts, once for all nodes that name the
    same ones. Importing them must start no thread."""

    def argv(self, python: str = sys.executable) -> list[str]:
        """The command that runs it in a process of its own."""
        return [python, "-m", self.name]


@dataclass(frozen=True)
class Sandbox:
    """What programs find in a node that they are started in one by one: see `World.spawn`.

    Beside the node's network: an empty /tmp and /dev/shm of its own in memory, its own name, names
    of the other nodes, and no name server.
    """

    hosts: str
    """The text of /etc/hosts."""
    writable: Sequence[Path] = ()
    """Files and folders that its programs may write, beside /tmp and /dev; first comes its home."""
    image: str | None = None
    """Container image in which its programs run, with nothing of this machine but `writable`; left
    out: the world's."""
    cpus: float | None = None
    """Cores that each of its programs may use, where the runtime has containers."""
    memory_bytes: int | None = None
    """Memory that each of its programs may use, likewise."""


@dataclass(frozen=True)
class NodeSpec:
    """A program to run as a node, or a node to run programs in."""

    node: NodeId
    program: Module | Sequence[str] | Sandbox
    """A module, or a command and its arguments; or what is there before any program."""
    log: Path
    """Takes its standard output and standard error; unused in a sandbox."""
    env: Mapping[str, str] = field(default_factory=dict)
    """On top of what the runtime passes on; unused in a sandbox."""
    gpu: bool = False
    """Whether a container sees the machine's GPUs; processes do anyway."""


@dataclass(frozen=True)
class Command:
    """A program to start in a sandbox."""

    node: NodeId
    argv: Sequence[str]
    env: Mapping[str, str]
    """All of it."""
    folder: Path
    """Where it starts; its home, where that is not there."""
    shown: Sequence[Path] = ()
    """What it needs of this machine, should it not be there, and what it is to see of the folders
    that the node's own hide."""
    terminal: bool = False
    """Whether its standard input is a terminal that is to be its own."""
    system: bool = False
    """Whether it runs in this machine's system, without the limits of the sandbox, whatever others
    there do."""


@dataclass(frozen=True)
class Exit:
    """A node program that has ended."""

    node: NodeId | None
    """None: the fabric process, which makes the links and sets their rates."""
    status: int
    """Its exit status; the negative signal number where a signal ended it."""

    def __str__(self) -> str:
        name = self.node or "fabric"
        if self.status >= 0:
            return f"{name} exited with status {self.status}"
        return f"{name} was ended by {signal.Signals(-self.status).name}"


@dataclass(frozen=True)
class Ended:
    """A program of a sandbox has ended."""

    number: int
    """As `World.spawn` gave it."""
    status: int
    """As in `Exit`."""


@dataclass(frozen=True)
class WorldLost:
    """A runtime's own processes have failed; says why."""

    reason: str


@dataclass(frozen=True)
class HostLost:
    """One of the hosts of a world is gone, with all nodes that it had; the others go on."""

    host: str
    nodes: tuple[NodeId, ...]
    at_ns: int
    """When it was last heard of, by our monotonic clock."""
    reason: str

    def __str__(self) -> str:
        return f"host {self.host}: {self.reason}"


WorldNews = Exit | Ended | WorldLost
WORLD_NEWS: Kinds[WorldNews] = Kinds(WorldNews)
"""What a world tells while it lives."""


class Sandboxes(Protocol):
    """How a runtime starts programs in its nodes later on."""

    def spawn(self, command: Command, files: tuple[int, int, int]) -> int:
        """See `World.spawn`."""

    def signal(self, number: int, signal_: int) -> None:
        """See `World.signal`."""


class World:
    """Running nodes, wired. Leaving the context ends them all and removes what was made."""

    def __init__(
        self,
        injector: Injector,
        listeners: Mapping[NodeId, socket.socket],
        news: ControlSocket,
        kill: Callable[[NodeId], object],
        cleanup: ExitStack,
        sandboxes: Sandboxes | None = None,
    ) -> None:
        self.injector = injector
        """Sets the links' rates."""
        self.kill = kill
        """Ends a node with SIGKILL; its links stay. `exits` tells when it is done."""
        self.places: Mapping[NodeId, str] = {}
        """The host of each node; empty: all are here."""
        self._listeners = dict(listeners)
        self._news = news
        self._cleanup = cleanup
        self._sandboxes = sandboxes

    def spawn(self, command: Command, files: tuple[int, int, int]) -> int:
        """Start a program in a sandbox; may be called by several threads.

        Args:
            command: The program.
            files: Open files that become its standard input, output and error; they stay ours.

        Returns:
            Its number; `news` tells when it has ended.

        Raises:
            InputError: Command and environment are too long to be passed on.
            RunError: The runtime's own processes are gone.
        """
        assert self._sandboxes is not None, "this runtime has no sandboxes"
        return self._sandboxes.spawn(command, files)

    def signal(self, number: int, signal_: int) -> None:
        """Send a signal to a program of a sandbox, and to all that it has started in its session."""
        assert self._sandboxes is not None, "this runtime has no sandboxes"
        self._sandboxes.signal(number, signal_)

    def connect(self, timeout_s: float = 120) -> dict[NodeId, socket.socket]:
        """Wait until every node has called `connect_control`; a stream to each.

        Raises:
            RunError: A node ended first, or the time is up.
        """
        streams: dict[NodeId, socket.socket] = {}
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self, selectors.EVENT_READ)
            for node, listener in self._listeners.items():
                selector.register(listener, selectors.EVENT_READ, node)
            while len(streams) < len(self._listeners):
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    missing = ", ".join(str(k) for k in self._listeners if k not in streams)
                    raise RunError(f"waited {timeout_s:g} s for {missing} to connect")
                for key, _ in ready:
                    if key.data is not None:
                        streams[key.data], _ = self._listeners[key.data].accept()
                        selector.unregister(key.fileobj)
                    elif ended := self.exits():
                        raise RunError(f"{ended[0]} before it connected")
        for listener in self._listeners.values():
            listener.close()
        return streams

    def ordered(self, node: NodeId, order: NodeOrder) -> NodeOrder:
        """An order as that node must be given it: moments are those of its clock."""
        return order

    def moment_at(self, node: NodeId, monotonic_ns: int) -> int:
        """A moment of our monotonic clock, by that of a node."""
        return monotonic_ns

    def machines(self) -> Mapping[str, MachineNow]:
        """What the machine of each host has done until now; empty: all nodes are here."""
        return {}

    def clocks_ahead_s(self) -> Mapping[NodeId, float]:
        """By how much each node's clock has turned out to be ahead of what it was taken for in the
        injector's last epoch, in real seconds; empty: all go by one clock."""
        return {}

    def exits(self) -> list[Exit]:
        """The nodes that ended since the last call.

        Raises:
            RunError: The world itself is gone.
        """
        return [news for news in self.news() if isinstance(news, Exit)]

    def news(self) -> list[Exit | Ended | HostLost]:
        """The nodes, programs of sandboxes, and hosts, that ended since the last call.

        Raises:
            RunError: The world itself is gone.
        """
        found: list[Exit | Ended | HostLost] = []
        while news := self._receive():
            if isinstance(news, WorldLost):
                raise RunError(news.reason)
            found.append(news)
        return found

    def _receive(self) -> WorldNews | HostLost | None:
        try:
            message = self._news.receive(0)
        except RunError:
            raise RunError("the runtime's own processes are gone") from None
        return WORLD_NEWS.decode(*message) if message else None

    def fileno(self) -> int:
        """For `select`: readable when `exits` has something to tell."""
        return self._news.fileno()

    def at_end(self, callback: Callable[[], object]) -> None:
        """Have something called when the world is closed, before everything else."""
        self._cleanup.callback(callback)

    def close(self) -> None:
        """End all nodes and remove all that was made; may be called twice."""
        for listener in self._listeners.values():
            listener.close()
        self._cleanup.close()

    def __enter__(self) -> "World":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def start(
    runtime: Literal["namespace", "docker"],
    nodes: Sequence[NodeSpec],
    shape: Shape,
    **options: Any,
) -> World:
    """Start a world: the first node is the base station, the others are the UAVs in their order.

    What dead runs of this runtime have left is removed before.

    Raises:
        RunError: This machine does not allow it, or a step failed; the message says which.
    """
    leftovers.remove(leftovers.find())
    module = import_module(f"testbed.runtimes.{runtime}")
    with ExitStack() as cleanup:
        cleanup.enter_context(leftovers.announced())
        world: World = module.start(nodes, shape, **options)
        world.at_end(cleanup.pop_all().close)
    return world


def passed_on() -> dict[str, str]:
    """What programs in sandboxes find in their environment of this process's: all but what leads out
    of a node."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(LEFT_OUT)
        and not name.lower().endswith("_proxy")
        and name != leftovers.VARIABLE
    }


def listen_control() -> socket.socket:
    """The orchestrator's end in the network namespace of the moment, before anyone connects."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(CONTROL_ADDRESS)
    listener.listen(1)
    return listener


def connect_control(timeout_s: float = 30) -> socket.socket:
    """A node program's stream to the orchestrator.

    Raises:
        RunError: Nobody listens: the program does not run as a node.
    """
    deadline = time.monotonic() + timeout_s
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    while True:
        try:
            stream.connect(CONTROL_ADDRESS)
        except OSError as error:
            # A container may be up before the fabric has been inside.
            if time.monotonic() > deadline:
                raise RunError(f"no orchestrator: {error.strerror}") from None
            time.sleep(0.02)
        else:
            return stream
