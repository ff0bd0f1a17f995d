# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Start, isolation and clean-up of node programs.

The package contains the runtimes, which use namespaces or containers. The node programs are in
`workloads.nodes`.

A runtime's `start` creates a `World`: one network namespace per node, connected by the fabric, with
the node programs running in them. Node programs reach the orchestrator through `connect_control`.
"""

import os
import selectors
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
from testbed.core.signals import signal_name
from testbed.network.injector import Injector, InjectorFailed
from testbed.network.shaping import Shape
from testbed.system import leftovers

CONTROL_ADDRESS = "\0testbed/control"
"""Abstract unix address of the control socket. Such an address belongs to a network namespace: each
node finds its own socket under this name, no other process can reach it, and it leaves no file."""
EPOCH = "TESTBED_EPOCH_NS"
"""Environment variable of programs: the start of slot 0 on `CLOCK_MONOTONIC` in nanoseconds."""
LEFT_OUT = ("XDG_", "DBUS_", "SSH_", "GPG_", "DISPLAY", "WAYLAND_", "PWD", "OLDPWD")
"""Prefixes of environment variables that programs in sandboxes do not inherit, because they point
to services outside of the node."""
PROCESSES = 4096
"""Processes and threads that a node may have by default; in containers, each of its programs."""
OWN_FOLDERS = ("/tmp", "/dev/shm")
"""Folders of this machine that each sandbox replaces by its own ones."""


@dataclass(frozen=True)
class Module:
    """A Python module that is run as a program, as by ``python -m``."""

    name: str
    preload: Sequence[str] = ()
    """Modules to import before the program starts, once for all nodes with the same modules. Their
    import must not start threads."""

    def argv(self, python: str = sys.executable) -> list[str]:
        """The command that runs the module in a separate process."""
        return [python, "-P", "-m", self.name]


@dataclass(frozen=True)
class Sandbox:
    """A node without a program of its own, in which programs are started later: see `World.spawn`.

    It has the node's network, an empty private /tmp and /dev/shm in memory, its own host name, the
    names of the other nodes, and no name server.
    """

    hosts: str
    """Content of /etc/hosts."""
    writable: Sequence[Path] = ()
    """Files and folders that its programs may write, in addition to /tmp and /dev; the first is its
    home."""
    image: str | None = None
    """Container image of its programs, which see only `writable` of this machine; None: the image
    of the world."""
    cpus: float | None = None
    """Cores that each of its programs may use; only for containers."""
    memory_bytes: int | None = None
    """Memory that each of its programs may use; without containers, each of their processes."""
    processes: int = PROCESSES
    """Processes and threads of each of its programs; without containers, of all together."""


@dataclass(frozen=True)
class NodeSpec:
    """A node: a program to run, or a sandbox for programs."""

    node: NodeId
    program: Module | Sequence[str] | Sandbox
    """A module, a command with its arguments, or a sandbox."""
    log: Path
    """File for its standard output and standard error; unused for a sandbox."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables in addition to those of the runtime; unused for a sandbox."""
    gpu: bool = False
    """Whether a container sees the machine's GPUs; processes always do."""
    together: bool = False
    """Whether nodes with the same modules and environment may be threads of one process, each in
    its own network namespace: they then share memory, and only end together. Their program is a
    `Module` with a function `live`."""


MOST_LOG_BYTES = 4000
"""Length of the part of a log in which its last line is looked for."""


@dataclass(frozen=True)
class Command:
    """A program to start in a sandbox."""

    node: NodeId
    argv: Sequence[str]
    env: Mapping[str, str]
    """The complete environment."""
    folder: Path
    """Working directory; the home is used if it does not exist."""
    shown: Sequence[Path] = ()
    """Files and folders of this machine that it must see, including those that the node's private
    folders hide."""
    terminal: bool = False
    """Whether its standard input is a terminal, which becomes its controlling terminal."""
    system: bool = False
    """Whether it runs in this machine's system instead of the sandbox's image, without limits."""
    held: bool = False
    """Whether it waits, ready to be executed, until `World.release`, which adds `EPOCH` to its
    environment."""


@dataclass(frozen=True)
class Exit:
    """A node program that has ended."""

    node: NodeId | None
    """The node; None: the fabric process, which creates the links and sets their rates."""
    status: int
    """Exit status, or the negative number of the signal that ended the program."""
    out_of_memory: bool = False
    """Whether the kernel ended it, or one of its processes, by its memory limit."""

    def __str__(self) -> str:
        name = self.node or "fabric"
        why = ": it exceeded its memory limit" if self.out_of_memory else ""
        if self.status >= 0:
            return f"{name} exited with status {self.status}{why}"
        return f"{name} was ended by {signal_name(-self.status)}{why}"


@dataclass(frozen=True)
class Ended:
    """A program of a sandbox has ended."""

    number: int
    """Number of the program, as returned by `World.spawn`."""
    status: int
    """Exit status, as in `Exit`."""
    out_of_memory: bool = False
    """See `Exit`."""


@dataclass(frozen=True)
class WorldLost:
    """A runtime's own processes have failed, for the given reason."""

    reason: str


@dataclass(frozen=True)
class HostLost:
    """A host of a world is lost, with all its nodes; the other hosts continue."""

    host: str
    nodes: tuple[NodeId, ...]
    at_ns: int
    """Time of its last message by the local monotonic clock."""
    reason: str

    def __str__(self) -> str:
        return f"host {self.host}: {self.reason}"


WorldNews = Exit | Ended | WorldLost
WORLD_NEWS: Kinds[WorldNews] = Kinds(WorldNews)
"""Messages of a running world."""


class Sandboxes(Protocol):
    """Starts programs in the sandboxes of a runtime."""

    def spawn(self, command: Command, files: tuple[int, int, int]) -> int:
        """See `World.spawn`."""

    def signal(self, number: int, signal_: int) -> None:
        """See `World.signal`."""

    def release(self, epoch_ns: int) -> None:
        """See `World.release`."""


class World:
    """Running, connected nodes. Leaving the context ends them and removes everything created."""

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
        """The injector, which sets the links' rates."""
        self.kill = kill
        """Ends a node with SIGKILL; its links stay. `exits` reports the end."""
        self.logs: Mapping[NodeId, Path] = {}
        """The log file of each node on this machine."""
        self.hint = ""
        """What may be wrong if a node ends before it connects; follows the last line of its log."""
        self.places: Mapping[NodeId, str] = {}
        """The host of each node; empty: all are on this machine."""
        self._listeners = dict(listeners)
        self._news = news
        self._cleanup = cleanup
        self._sandboxes = sandboxes

    def spawn(self, command: Command, files: tuple[int, int, int]) -> int:
        """Start a program in a sandbox; may be called by several threads.

        Args:
            command: The program.
            files: Open files for its standard input, output and error; the caller keeps them.

        Returns:
            The number of the program; `news` reports its end.

        Raises:
            InputError: Command and environment are too long.
            RunError: The runtime's own processes have ended.
        """
        assert self._sandboxes is not None, "this runtime has no sandboxes"
        return self._sandboxes.spawn(command, files)

    def signal(self, number: int, signal_: int) -> None:
        """Send a signal to a program of a sandbox and to all processes of its session."""
        assert self._sandboxes is not None, "this runtime has no sandboxes"
        self._sandboxes.signal(number, signal_)

    def release(self, epoch_ns: int) -> None:
        """Let all programs start that are held, at once; none may be held later.

        Args:
            epoch_ns: Start of slot 0 by the local monotonic clock.
        """
        assert self._sandboxes is not None, "this runtime has no sandboxes"
        self._sandboxes.release(epoch_ns)

    def connect(self, timeout_s: float = 120) -> dict[NodeId, socket.socket]:
        """Wait until every node has called `connect_control`; returns a stream to each node.

        Raises:
            RunError: A node ended before, or did not connect in time.
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
                        log = self.logs.get(ended[0].node) if ended[0].node else None
                        raise RunError(before_it_connected(ended[0], log, self.hint))
        for listener in self._listeners.values():
            listener.close()
        return streams

    def ordered(self, node: NodeId, order: NodeOrder) -> NodeOrder:
        """The order with its times converted to the clock of that node."""
        return order

    def moment_at(self, node: NodeId, monotonic_ns: int) -> int:
        """Convert a time of the local monotonic clock to that of a node."""
        return monotonic_ns

    def machines(self) -> Mapping[str, MachineNow]:
        """Clocks and CPU accounts of each host's machine; empty: all nodes are on this machine."""
        return {}

    def clocks_ahead_s(self) -> Mapping[NodeId, float]:
        """Real seconds by which each node's clock is ahead of the injector's last assumption;
        empty: all nodes use one clock."""
        return {}

    def exits(self) -> list[Exit]:
        """Nodes that ended since the last call.

        Raises:
            RunError: The world itself has failed.
        """
        return [news for news in self.news() if isinstance(news, Exit)]

    def news(self) -> list[Exit | Ended | HostLost]:
        """Nodes, programs of sandboxes and hosts that ended since the last call.

        Raises:
            RunError: The world itself has failed.
        """
        found: list[Exit | Ended | HostLost] = []
        while news := self._receive():
            if isinstance(news, WorldLost):
                raise RunError(news.reason)
            if isinstance(news, Exit) and news.node is None:
                self._raise_reported_failure()
            found.append(news)
        return found

    def _raise_reported_failure(self) -> None:
        """Raise the error of the fabric process, if it has reported one before it ended."""
        try:
            self.injector.events()
        except InjectorFailed:
            raise
        except RunError:  # It was killed.
            return

    def _receive(self) -> WorldNews | HostLost | None:
        try:
            message = self._news.receive(0)
        except RunError:
            raise RunError("the runtime's own processes have ended") from None
        return WORLD_NEWS.decode(*message) if message else None

    def fileno(self) -> int:
        """File descriptor for `select`: readable when `exits` or `news` have a result."""
        return self._news.fileno()

    def at_end(self, callback: Callable[[], object]) -> None:
        """Register a function to be called first when the world is closed."""
        self._cleanup.callback(callback)

    def close(self) -> None:
        """End all nodes and remove everything created; may be called twice."""
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
    """Start a world: the first node is the base station, the others are the UAVs in order.

    Leftovers of dead runs of this runtime are removed first.

    Raises:
        RunError: This machine does not allow it, or a step failed; the message names the step.
    """
    leftovers.remove(leftovers.find())
    module = import_module(f"testbed.runtimes.{runtime}")
    with ExitStack() as cleanup:
        cleanup.enter_context(leftovers.announced())
        world: World = module.start(nodes, shape, **options)
        world.logs = {spec.node: spec.log for spec in nodes}
        world.at_end(cleanup.pop_all().close)
    return world


def before_it_connected(ended: Exit, log: Path | None, hint: str = "") -> str:
    """The message that a node ended before it connected, with the last line of its log.

    Args:
        ended: The end of the node.
        log: The log file of the node; None: it is not on this machine.
        hint: What may be wrong.
    """
    lines: list[str] = []
    if log is not None and log.is_file():
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - MOST_LOG_BYTES))
            lines = file.read().decode(errors="replace").split("\n")
    said = next((line for line in reversed(lines) if line.strip()), "")
    parts = [f"{ended} before it connected", " ".join(said.split()), hint]
    return ": ".join(part for part in parts if part)


def passed_on() -> dict[str, str]:
    """The part of this process's environment that programs in sandboxes inherit: all variables
    except those that point to services outside of a node."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(LEFT_OUT)
        and not name.lower().endswith("_proxy")
        and name != leftovers.VARIABLE
    }


def listen_control() -> socket.socket:
    """Open the orchestrator's listening control socket in the current network namespace."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(CONTROL_ADDRESS)
    listener.listen(1)
    return listener


def connect_control(timeout_s: float = 30) -> socket.socket:
    """Connect a node program to the orchestrator.

    Raises:
        RunError: There is no listening socket: the program does not run as a node.
    """
    deadline = time.monotonic() + timeout_s
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    while True:
        try:
            stream.connect(CONTROL_ADDRESS)
        except OSError as error:
            # A container may be running before the control socket exists.
            if time.monotonic() > deadline:
                raise RunError(f"no orchestrator: {error.strerror}") from None
            time.sleep(0.02)
        else:
            return stream
