# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Nodes as processes in separate namespaces; needs neither root nor Docker.

Theory of operation. `start` runs this module as a program, the *supervisor*. It leaves the shared
user, PID, mount, UTS and network namespaces and forks the *world*, which is PID 1 of the new PID
namespace: when it dies for any reason, the kernel kills every process of that namespace. The world
ends with the supervisor, and the supervisor with the orchestrator. Nothing has a name on the host,
and the links of a network namespace disappear with its last process, unless frames are queued in
them (`testbed.network.fabric.unshape`): the world drops these at its end, or the supervisor if the
world was killed.

The world creates a network namespace for each node and forks the fabric process, which links them.
Nodes that import the same modules are forked by one *fork server*: a process that imports them,
forks the nodes, and ends, so that the world inherits its children. A node enters its namespace,
drops all capabilities and the right to write files, and runs its module or executes its command.
The imported modules are therefore loaded once and shared in memory. A node is PID 1 of a PID
namespace of its own, as in a container: it sees and signals only its own children.

A node may also be a *sandbox*: it has no program, but in addition to the network namespace a mount,
a UTS and a PID namespace, in which the world starts programs on request. The requests are datagrams
on a separate socket, each with the program's standard files. PID 1 of a sandbox only waits: the
kernel reaps for it what programs leave behind, and its end is the end of the node.

If links lead to other machines through tunnels, root keeps the host's user namespace, and the
fabric process creates their ends through the host's network namespace
(`testbed.network.fabric.Tunnel`). Relays use sockets that were opened in the host's network
namespace.
"""

import contextlib
import errno
import fcntl
import gc
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import NoReturn, TypeVar

from testbed.control.codec import Kinds, encode
from testbed.control.stream import ControlSocket
from testbed.core.errors import InputError, RunError
from testbed.core.node import NodeId
from testbed.network.fabric import Part, sockets_in, unshape
from testbed.network.injector import Injector, serve
from testbed.network.radio_driver import START_S
from testbed.network.shaping import Shape
from testbed.network.taps import RadioProgram
from testbed.runtimes import (
    EPOCH,
    OWN_FOLDERS,
    PROCESSES,
    Command,
    Ended,
    Exit,
    Module,
    NodeSpec,
    Sandbox,
    World,
    WorldLost,
    listen_control,
)
from testbed.system import inside, leftovers, linux
from testbed.system.child import Child

Order = TypeVar("Order")
OWN_ENDS = 3
"""Sockets of a world without relays: for the control, the fabric and programs."""
START_TIMEOUT_S = 60
WIRED_S = 60.0
"""Seconds in which the kernel's links must be made."""
END_TIMEOUT_S = 10
"""Seconds to wait for the end of the world; the kernel takes some milliseconds per network
namespace."""
NO_NAME_SERVER = "# This network has no name server; nodes are known by /etc/hosts.\n"
MOST_SPAWN_BYTES = 1 << 20
"""Longest request to start a program in bytes: more than a socket accepts."""
WAITING = ("sleep", "infinity")
"""First process of a sandbox."""
NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit statuses as shells use them."""


@dataclass(frozen=True)
class _MakeWorld:
    """Request to the supervisor: create these nodes with links of this shape."""

    nodes: tuple[NodeSpec, ...]
    shape: Shape
    writable: tuple[Path, ...]
    part: Part | None
    radio: RadioProgram | None


@dataclass(frozen=True)
class _Made:
    """From the world: all network namespaces exist, with a listening socket in each."""


@dataclass(frozen=True)
class _PassListeners:
    """Request to the world: send the listening sockets, in the order of the nodes."""


@dataclass(frozen=True)
class _Kill:
    """Request to the world: end a node by SIGKILL."""

    node: NodeId


@dataclass(frozen=True)
class _Spawn:
    """Request to the world, with three open files: start a program."""

    number: int
    command: Command


@dataclass(frozen=True)
class _Signal:
    """Request to the world: send a signal to a program and its session."""

    number: int
    signal: int


@dataclass(frozen=True)
class _Release:
    """Request to the world: let the held programs start."""

    epoch_ns: int


_SPAWNS: Kinds[_Spawn | _Signal | _Release] = Kinds(_Spawn | _Signal | _Release)
_EPOCH = struct.Struct("q")
"""What a held program reads from the gate."""
_MADE: Kinds[_Made | WorldLost] = Kinds(_Made | WorldLost)
_ORDERS: Kinds[_MakeWorld | _PassListeners | _Kill] = Kinds(_MakeWorld | _PassListeners | _Kill)


class _Spare:
    """A supervisor that has been forked beforehand and waits for its arguments."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._orders, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            os.setsid()
            self._orders.close()
            _run_and_exit(lambda: _keep_when_asked(theirs, modules))
        theirs.close()
        self._child = Child(pid)

    def begin(self, ends: Sequence[int], tunnels: bool) -> Child:
        """Hand over the arguments of `_keep`."""
        order = json.dumps({"tunnels": tunnels, "environment": leftovers.marked()}).encode()
        socket.send_fds(self._orders, [order], list(ends))
        self._orders.close()
        return self._child


_spare: _Spare | None = None


def fork_ahead(modules: Sequence[str]) -> None:
    """Fork the processes of the next world beforehand, while this process is small.

    Args:
        modules: Modules that its nodes will import. Their import must not start threads.
    """
    global _spare
    _spare = _Spare(modules)


def _keep_when_asked(orders: socket.socket, modules: Sequence[str]) -> None:
    _keep_open({orders.fileno()})
    for module in modules:
        import_module(module)
    # Garbage collection writes into objects and would so copy shared memory.
    gc.collect()
    gc.freeze()
    data, ends, _, _ = socket.recv_fds(orders, MOST_SPAWN_BYTES, OWN_ENDS)
    if not data:  # The process that has forked this one has ended.
        return
    order = json.loads(data)
    orders.close()
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.exit(_keep(*ends, int(order["tunnels"])))


def start(
    nodes: Sequence[NodeSpec],
    shape: Shape,
    *,
    writable: Sequence[Path] = (),
    part: Part | None = None,
    relays: Sequence[socket.socket] = (),
    radio: RadioProgram | None = None,
) -> World:
    """Start a world; see `testbed.runtimes.start`.

    Args:
        nodes: All nodes; the first is the base station, unless it is in another part.
        shape: Shape of the links.
        writable: Files and folders that nodes may write if the kernel has Landlock; otherwise they
            may write everything that their user may write.
        part: Part of the network on this machine; None: all of it.
        relays: Sockets of relayed links; they are closed here.
        radio: The program that carries the frames; None: the kernel does.

    Raises:
        RunError: This machine does not allow user namespaces, or a step failed.
    """
    tunnels = part is not None and bool(part.tunnels) and not relays
    if tunnels and os.geteuid() != 0:
        raise RunError("namespace runtime: links to other machines need root")
    linux.raise_open_files()
    news_ours, news_theirs = socket.socketpair()
    injector_ours, injector_theirs = socket.socketpair()
    spawn_ours, spawn_theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with ExitStack() as passed_on:
        theirs = (news_theirs, injector_theirs, spawn_theirs, *relays)
        ends = [passed_on.enter_context(end).fileno() for end in theirs]
        supervisor = _start_supervisor(ends, tunnels)
    news, injector = ControlSocket(news_ours), Injector(injector_ours)
    with ExitStack() as cleanup:
        cleanup.callback(_end, supervisor)
        cleanup.callback(injector_ours.close)
        cleanup.callback(spawn_ours.close)
        cleanup.callback(news.close)  # Called first: the signal for the world to end.
        news.send(*encode(_MakeWorld(tuple(nodes), shape, tuple(writable), part, radio)))
        answer = news.receive(START_TIMEOUT_S)
        if answer is None:
            raise RunError(
                f"namespace runtime: waited {START_TIMEOUT_S} s for its first process to be ready"
            )
        if isinstance(made := _MADE.decode(*answer), WorldLost):
            raise RunError(f"namespace runtime: {made.reason}")
        news.send(*encode(_PassListeners()))
        passed = [
            socket.socket(fileno=descriptor) for descriptor in news.receive_descriptors(len(nodes))
        ]
        listeners = dict(zip([spec.node for spec in nodes], passed, strict=True))
        injector.await_wired(WIRED_S if radio is None else START_S)

        def kill(node: NodeId) -> None:
            news.send(*encode(_Kill(node)))

        return World(injector, listeners, news, kill, cleanup.pop_all(), _Sandboxes(spawn_ours))


def _start_supervisor(ends: Sequence[int], tunnels: bool) -> "subprocess.Popen[bytes] | Child":
    global _spare
    if _spare is not None and len(ends) == OWN_ENDS:
        spare, _spare = _spare, None
        return spare.begin(ends, tunnels)
    return subprocess.Popen(
        [
            sys.executable,
            "-P",  # A folder here may be called as a package that is installed.
            "-m",
            "testbed.runtimes.namespace",
            *map(str, ends[:OWN_ENDS]),
            str(int(tunnels)),
            *map(str, ends[OWN_ENDS:]),
        ],
        pass_fds=ends,
        stdin=subprocess.DEVNULL,
        stdout=2,
        # Ctrl-C in a terminal must only reach the orchestrator, which ends the world.
        start_new_session=True,
        env=leftovers.marked(),
    )


class _Sandboxes:
    """The orchestrator's end of the socket that starts programs."""

    def __init__(self, orders: socket.socket) -> None:
        self._orders = orders
        self._orders.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST_SPAWN_BYTES)
        self._lock = threading.Lock()
        self._last = 0

    def spawn(self, command: Command, files: tuple[int, int, int]) -> int:
        with self._lock:
            self._last += 1
            self._send(_Spawn(self._last, command), files)
            return self._last

    def signal(self, number: int, signal_: int) -> None:
        with self._lock:
            self._send(_Signal(number, signal_), ())

    def release(self, epoch_ns: int) -> None:
        with self._lock:
            self._send(_Release(epoch_ns), ())

    def _send(self, order: _Spawn | _Signal | _Release, files: Sequence[int]) -> None:
        data = json.dumps(encode(order)[0]).encode()
        try:
            socket.send_fds(self._orders, [data], list(files))
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                raise InputError("command: command and environment are too long") from None
            raise RunError("the runtime's own processes have ended") from None


def _end(supervisor: "subprocess.Popen[bytes] | Child") -> None:
    """Wait for the supervisor, which ends with the world; the world ends when its socket closes.

    If the world is stopped, the supervisor kills it on request; if the supervisor is stopped, it is
    killed, and the world ends with it.
    """
    for end in (supervisor.terminate, supervisor.kill):
        with contextlib.suppress(subprocess.TimeoutExpired):
            supervisor.wait(END_TIMEOUT_S)
            return
        end()
    supervisor.wait()


# The following code runs in the supervisor and in the world.


def _keep(control_fd: int, injector_fd: int, spawn_fd: int, tunnels: int, *relays: int) -> int:
    """Run the supervisor: create the world, and end when it or the orchestrator ends."""
    orchestrator = os.pidfd_open(os.getppid())
    inside.draw_as("world")
    for descriptor in (control_fd, injector_fd, spawn_fd, *relays):
        os.set_inheritable(descriptor, False)
    control = ControlSocket(socket.socket(fileno=control_fd))
    # For the fabric process; the others undo it. Inside the namespace it is not permitted.
    linux.prefer_scheduling()
    underlay = linux.open_network_namespace() if tunnels else None
    ours, its = socket.socketpair()
    try:
        _leave_host(as_root=bool(tunnels))
        world = os.fork()
    except OSError as error:
        with contextlib.suppress(RunError):
            control.send(*encode(WorldLost(error.strerror or str(error))))
        return 1
    if world == 0:
        ours.close()
        injector, spawns = (socket.socket(fileno=number) for number in (injector_fd, spawn_fd))
        carried = [socket.socket(fileno=number) for number in relays]
        _run_and_exit(lambda: _World(control, injector, spawns, its, underlay, carried).run())
    its.close()
    signal.signal(signal.SIGTERM, lambda *_: os.kill(world, signal.SIGKILL))
    linux.ordinary_scheduling()
    control.close()
    for descriptor in (injector_fd, spawn_fd, *relays):
        os.close(descriptor)
    ended = os.pidfd_open(world)
    poll = select.poll()
    poll.register(orchestrator, select.POLLIN)
    poll.register(ended, select.POLLIN)
    if ended not in dict(poll.poll()):
        os.kill(world, signal.SIGKILL)
    # The PID is not reused before it is waited for.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    status = os.waitstatus_to_exitcode(os.waitpid(world, 0)[1])
    unshape(sockets_in(ControlSocket(ours).remaining_descriptors()))
    return status


def _leave_host(*, as_root: bool) -> None:
    """Leave the user namespace and, with the capabilities gained, the other namespaces.

    Args:
        as_root: Keep the user namespace, and with it root's capabilities in the host's namespaces.
    """
    user, group = os.geteuid(), os.getegid()
    others = linux.CLONE_NEWPID | linux.CLONE_NEWNS | linux.CLONE_NEWNET | linux.CLONE_NEWUTS
    if as_root:
        linux.unshare(others)
        return
    try:
        if user == 0:
            linux.unshare_with_spare_ids(others)
        else:
            linux.unshare(linux.CLONE_NEWUSER | others)
    except OSError as error:
        if user != 0 and error.errno == errno.ENOSPC:
            raise
        if user != 0:
            raise OSError(
                "an ordinary user may not make user namespaces here; "
                "see `testbed doctor`, or run as root"
            ) from None
        linux.unshare(others)
        return
    # User IDs are kept, so that file owners look the same inside.
    linux.map_own_ids(user, group)


def _run_and_exit(body: Callable[[], object]) -> NoReturn:
    """Run a forked process until its end; it must never return into its parent's code."""
    status = 1
    try:
        body()
        status = 0
    except SystemExit as error:
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        else:
            status = error.code or 0
    except BaseException:
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # A daemon may have closed it.
            stream.flush()
    os._exit(status)


class _World:
    """PID 1: creates namespaces, fabric and fork servers, then reports processes that end."""

    def __init__(
        self,
        control: ControlSocket,
        injector_control: socket.socket,
        spawns: socket.socket,
        supervisor: socket.socket,
        underlay: int | None,
        relays: Sequence[socket.socket],
    ) -> None:
        self._control = control
        self._injector_control = injector_control
        self._spawns = spawns
        self._supervisor = supervisor
        """Socket to the supervisor: the world ends with it, and gives it the namespaces."""
        self._namespaces: list[int] = []
        self._underlay = underlay
        self._relays = relays
        self._pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._sandboxes: dict[NodeId, _OpenSandbox] = {}
        self._programs: dict[int, int] = {}
        """Numbers of the programs in sandboxes, by PID."""
        self._gate, self._opens = os.pipe2(os.O_CLOEXEC)
        """Pipe from which each held program reads the start of slot 0."""
        self._held = 0
        self._processes: dict[int, NodeId | None] = {}
        """Node of each process, by PID; None: the fabric process."""
        self._fork_servers: dict[int, NodeId] = {}
        """First node of each fork server, which is reported if the fork server fails."""
        self._births, self._birth = os.pipe2(os.O_CLOEXEC)
        """Pipe to which fork servers write one line per node: PID and name."""
        os.set_blocking(self._births, False)

    def run(self) -> None:
        # Only handled signals are written to the wake-up descriptor.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        wake, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(waker)
        # A RunError means that the control socket was closed.
        with contextlib.suppress(RunError):
            try:
                self._create()
            except (OSError, RunError) as error:
                self._control.send(*encode(WorldLost(str(error))))
            else:
                self._watch(wake)
        # The supervisor does the same if the world is killed before, and all processes with it.
        self._end_fabric()
        unshape(sockets_in(self._namespaces))

    def _watch(self, wake: int) -> None:
        """Serve until the orchestrator or the supervisor ends."""
        while True:
            sources = [self._control.fileno(), self._spawns.fileno(), self._births, wake]
            supervisor = self._supervisor.fileno()
            ready, _, _ = select.select([supervisor, *sources], [], [])
            if supervisor in ready:
                return
            self._note_births()
            if self._control.fileno() in ready:
                self._kill(self._next_order(_Kill).node)
            if self._spawns.fileno() in ready:
                self._serve_sandboxes()
            if wake in ready:
                os.read(wake, 4096)
                self._reap()

    def _create(self) -> None:
        _show_own_processes()
        with contextlib.suppress(OSError):
            # Hides the sockets of daemons such as Docker's: owners, and root, could connect.
            linux.hide("/run")
        linux.raise_open_files()
        order = self._next_order(_MakeWorld)
        namespaces, listeners = self._namespaces, []
        for spec in order.nodes:
            namespaces.append(linux.new_network_namespace())
            listeners.append(listen_control())
            if isinstance(spec.program, Sandbox):
                made, first = _OpenSandbox.make(spec.node, spec.program, namespaces[-1], self._fork)
                self._sandboxes[spec.node], self._processes[first] = made, spec.node
        ControlSocket(self._supervisor).send_descriptors(namespaces)
        self._control.send(*encode(_Made()))
        self._next_order(_PassListeners)
        self._control.send_descriptors([listener.fileno() for listener in listeners])
        for listener in listeners:
            listener.close()
        fabric = self._fork(lambda: self._be_fabric(namespaces, order))
        self._processes[fabric] = None
        self._injector_control.close()
        linux.ordinary_scheduling()
        groups: dict[str, list[_Node]] = {}
        for spec, namespace in zip(order.nodes, namespaces, strict=True):
            if spec.node in self._sandboxes:
                continue
            born = _Node(spec, namespace, order.writable)
            kind = json.dumps([born.preload, spec.env, spec.together])
            groups.setdefault(kind, []).append(born)
        for group in groups.values():
            fork_server = self._fork(lambda g=group: self._be_fork_server(g))  # type: ignore[misc]
            self._fork_servers[fork_server] = group[0].spec.node
        if self._underlay is not None:
            os.close(self._underlay)
        for relay in self._relays:
            relay.close()

    def _next_order(self, kind: type[Order]) -> Order:
        message = self._control.receive()
        assert message is not None
        order = _ORDERS.decode(*message)
        assert isinstance(order, kind), order
        return order

    def _fork(self, body: Callable[[], object]) -> int:
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _run_and_exit(body)
        return pid

    def _be_fabric(self, namespaces: Sequence[int], order: _MakeWorld) -> None:
        self._control.close()
        self._spawns.close()
        linux.name_process("testbed", "fabric")
        part = order.part
        here = part is None or part.has_base_station
        bs = namespaces[0] if here else None
        serve(
            self._injector_control,
            bs,
            namespaces[here:],
            order.shape,
            part,
            self._underlay,
            self._relays,
            order.radio,
        )

    def _be_fork_server(self, nodes: "Sequence[_Node]") -> None:
        """Import the nodes' modules and fork the nodes, which the world then inherits."""
        _keep_open({self._birth, self._pids, *(node.namespace for node in nodes)})
        nodes[0].open_log()
        os.environ.update(nodes[0].spec.env)
        for module in nodes[0].preload:
            import_module(module)
        # Garbage collection writes into objects and would so copy shared memory.
        gc.collect()
        gc.freeze()
        namespaces = {node.namespace for node in nodes}
        processes = [nodes] if nodes[0].spec.together else [[node] for node in nodes]
        for living in processes:
            linux.unshare(linux.CLONE_NEWPID)
            pid = os.fork()
            if pid == 0:
                os.close(self._birth)
                os.close(self._pids)
                first, *others = living
                _run_and_exit(
                    lambda: _live_together(living) if others else first.live(namespaces)  # noqa: B023
                )
            linux.enter(self._pids)
            os.write(self._birth, f"{pid} {living[0].spec.node}\n".encode())

    def _serve_sandboxes(self) -> None:
        """Handle a request about a program."""
        data, files, _, _ = socket.recv_fds(self._spawns, MOST_SPAWN_BYTES, 3)
        if not data:
            raise RunError("the orchestrator has ended")
        match order := _SPAWNS.decode(json.loads(data), b""):
            case _Spawn():
                sandbox = self._sandboxes[order.command.node]
                linux.enter(sandbox.pids)
                pid = self._fork(lambda: sandbox.live(order.command, files, self._gate))
                linux.enter(self._pids)
                self._programs[pid] = order.number
                self._held += order.command.held
            case _Release():
                os.write(self._opens, self._held * _EPOCH.pack(order.epoch_ns))
                self._held = 0
            case _Signal():
                for pid, number in self._programs.items():
                    if number == order.number:
                        _signal(pid, order.signal)
        for descriptor in files:
            os.close(descriptor)

    def _kill(self, node: NodeId) -> None:
        for pid, known in self._processes.items():
            if known == node:
                os.kill(pid, signal.SIGKILL)

    def _end_fabric(self) -> None:
        """End the fabric process: it must not read the ends of links while they are removed."""
        for pid in [pid for pid, node in self._processes.items() if node is None]:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                code = os.waitstatus_to_exitcode(status)
                self._note_births()
                # Orphans of nodes are also reaped, but not reported.
                fork_server = self._fork_servers.pop(pid, None)
                if pid in self._programs:
                    self._control.send(*encode(Ended(self._programs.pop(pid), code)))
                elif pid in self._processes:
                    self._control.send(*encode(Exit(self._processes.pop(pid), code)))
                elif fork_server and code:
                    self._control.send(*encode(Exit(fork_server, code)))

    def _note_births(self) -> None:
        with contextlib.suppress(BlockingIOError):
            for line in os.read(self._births, 1 << 20).decode().splitlines():
                pid, node = line.split()
                self._processes[int(pid)] = NodeId.parse(node)


@dataclass(frozen=True)
class _Node:
    spec: NodeSpec
    namespace: int
    writable: Sequence[Path]

    @property
    def preload(self) -> Sequence[str]:
        return self.spec.program.preload if isinstance(self.spec.program, Module) else ()

    @property
    def module(self) -> str:
        """The name of its program, which is a module."""
        assert isinstance(self.spec.program, Module)
        return self.spec.program.name

    def open_log(self) -> None:
        log = os.open(self.spec.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)

    def live(self, namespaces: Iterable[int]) -> None:
        """Run the node in this process."""
        self.open_log()
        linux.enter(self.namespace)
        for namespace in namespaces:
            os.close(namespace)
        linux.unshare(linux.CLONE_NEWNS)
        _show_own_processes(PROCESSES)
        linux.end_first_without_memory()
        linux.confine(*self.writable)
        program = self.spec.program
        assert not isinstance(program, Sandbox)
        if not isinstance(program, Module):
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            os.execvp(program[0], list(program))
        linux.name_process(program.name, str(self.spec.node))
        del sys.argv[1:]
        runpy.run_module(program.name, run_name="__main__", alter_sys=True)


def _live_together(nodes: "Sequence[_Node]") -> None:
    """Run nodes in one process, each as a thread in its own network namespace."""
    nodes[0].open_log()
    linux.unshare(linux.CLONE_NEWNS)
    _show_own_processes(len(nodes) + PROCESSES)
    linux.end_first_without_memory()
    linux.name_process(nodes[0].module, "uavs")
    program = import_module(nodes[0].module)

    def live(node: _Node) -> None:
        # Namespaces and rights belong to a thread.
        try:
            linux.enter(node.namespace)
            os.close(node.namespace)
            linux.confine(*node.writable)
            status = program.live()
        except BaseException:
            traceback.print_exc()
            status = 1
        if status:
            sys.stderr.flush()
            os._exit(status)

    threads = [threading.Thread(target=live, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    linux.confine(*nodes[0].writable)
    for thread in threads:
        thread.join()


def _wait_for_programs(processes: int, ready: int) -> NoReturn:
    """Be the first process of a sandbox: the kernel ends all others with it.

    Args:
        processes: Most processes and threads of the sandbox.
        ready: Written to once /proc is the sandbox's.
    """
    _show_own_processes(processes)
    linux.confine()
    # Children are programs that others have left, which the kernel then reaps.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with Path(os.devnull).open("r+b") as nothing:
        for standard in range(3):
            os.dup2(nothing.fileno(), standard)
    os.write(ready, b"1")
    _keep_open(set())
    # A program of its own takes a tenth of the memory of a copy of this process.
    os.execvp(WAITING[0], WAITING)


def _show_own_processes(most: int | None = None) -> None:
    """Let /proc show the processes of this PID namespace, in a private mount namespace, and limit
    their number. Most containers do not permit it."""
    with contextlib.suppress(OSError):
        linux.mount_own_proc()
        if most is not None:
            linux.limit_processes(most)


def _open_own(kind: str, place: int) -> int:
    """A file descriptor of a namespace of this process; `place` is its folder in /proc."""
    return os.open(kind, os.O_RDONLY | os.O_CLOEXEC, dir_fd=place)


def _signal(pid: int, number: int) -> None:
    """Send a signal to a session, or to its future leader if the session does not exist yet."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        os.kill(pid, number)


@dataclass(frozen=True)
class _OpenSandbox:
    """An existing sandbox, with its namespaces as open files."""

    sandbox: Sandbox
    behind: Mapping[Path, int]
    """Open files of the folders that its private folders hide."""
    network: int
    mounts: int
    host: int
    pids: int

    @classmethod
    def make(
        cls,
        node: NodeId,
        sandbox: Sandbox,
        network: int,
        fork: Callable[[Callable[[], object]], int],
    ) -> "tuple[_OpenSandbox, int]":
        """Create a sandbox, and return to the previous namespaces.

        Args:
            node: Node of the sandbox.
            sandbox: What it consists of.
            network: Open file of its network namespace, which this process is in.
            fork: Forks this process.

        Returns:
            The sandbox, and the PID of its first process.
        """
        # Below, /proc becomes the sandbox's, which does not show this process.
        place = os.open("/proc/self/ns", os.O_PATH | os.O_CLOEXEC)
        own = [_open_own(kind, place) for kind in ("mnt", "uts", "pid")]
        linux.unshare(linux.CLONE_NEWNS | linux.CLONE_NEWUTS | linux.CLONE_NEWPID)
        linux.name_host(str(node))
        files = {"/etc/hosts": sandbox.hosts, "/etc/resolv.conf": NO_NAME_SERVER}
        folders = [Path(folder) for folder in OWN_FOLDERS if Path(folder).is_dir()]
        behind = {folder: os.open(folder, os.O_PATH | os.O_CLOEXEC) for folder in folders}
        linux.own_places(folders, files)
        waits, ready = os.pipe()
        first = fork(lambda: _wait_for_programs(sandbox.processes, ready))
        os.close(ready)
        os.read(waits, 1)
        os.close(waits)
        made = [_open_own(kind, place) for kind in ("mnt", "uts", "pid_for_children")]
        os.close(place)
        for namespace in own:
            linux.enter(namespace)
            os.close(namespace)
        return cls(sandbox, behind, network, *made), first

    def _show(self, paths: Sequence[Path], *, writable: bool) -> None:
        """Make these paths visible if the sandbox's private folders hide them; parents come
        first."""
        for folder, behind in self.behind.items():
            for path in paths:
                if path.is_relative_to(folder):
                    linux.reveal(path, folder, behind, writable=writable)

    def live(self, command: Command, files: Sequence[int], gate: int) -> None:
        """Run a program of the sandbox in this process, once the gate is open if it is held."""
        os.setsid()
        for standard, descriptor in enumerate(files):
            os.dup2(descriptor, standard)
        if command.terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        for namespace in (self.network, self.host, self.mounts):
            linux.enter(namespace)
        self._show(sorted(command.shown), writable=False)
        self._show(self.sandbox.writable, writable=True)
        try:
            os.chdir(command.folder)
        except OSError:
            os.chdir(command.env["HOME"])
        linux.end_first_without_memory()
        if self.sandbox.memory_bytes is not None and not command.system:
            linux.limit_memory(self.sandbox.memory_bytes)
        # Daemons that are started as root become another user, who is none of this machine's.
        as_users = (linux.CAP_SETGID, linux.CAP_SETUID, linux.CAP_KILL)
        linux.confine(
            "/tmp",
            *self.sandbox.writable,
            kept=as_users if linux.has_spare_ids() else (),
            bounding=(linux.CAP_NET_RAW,),
        )
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        env = dict(command.env)
        _keep_open({gate})
        if command.held:
            (epoch_ns,) = _EPOCH.unpack(os.read(gate, _EPOCH.size))
            env[EPOCH] = str(epoch_ns)
        linux.charge_waiting()
        try:
            os.execvpe(command.argv[0], list(command.argv), env)
        except OSError as error:
            print(f"testbed: {command.argv[0]}: {error.strerror}", file=sys.stderr, flush=True)
            os._exit(NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTABLE)


def _keep_open(wanted: set[int]) -> None:
    """Close all open files except the standard files and these."""
    start = 3
    for descriptor in sorted(wanted):
        os.closerange(start, descriptor)
        start = descriptor + 1
    os.closerange(start, os.sysconf("SC_OPEN_MAX"))


if __name__ == "__main__":
    sys.exit(_keep(*map(int, sys.argv[1:])))
