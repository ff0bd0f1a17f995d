# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A host's agent: a program that creates the host's part of a world, for one run.

`orchestrator.emulated` starts the agent, passes its secrets on standard input and reads its
listening ports from standard output. The agent ends, together with its part of the world, when its
standard input closes (its parent has ended), when the orchestrator's control stream closes or
orders it, or when no clock request has arrived for `testbed.cluster.clock.SILENCE_S`.
"""

import contextlib
import json
import select
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from testbed import runtimes
from testbed.cluster import capacity, relaying, sandboxes
from testbed.cluster.clock import Echo
from testbed.cluster.messages import (
    CONTROL,
    INJECTOR,
    PROGRAM,
    STARTING,
    TO_AGENT,
    BeHost,
    EndPart,
    FilePart,
    FlowsMeasured,
    GiveFile,
    Kill,
    Listening,
    MakePart,
    MeasureFlows,
    MeasureRelay,
    PartEnded,
    PartMade,
    RelayMeasured,
    ReleasePrograms,
    SignalProgram,
    StartProgram,
    ToAgent,
)
from testbed.cluster.streams import Listener
from testbed.control.codec import encode
from testbed.control.stream import ControlSocket
from testbed.core.errors import InputError, RunError
from testbed.network.relay import datagrams
from testbed.runtimes import Ended, Sandbox, World, WorldLost
from testbed.system.leftovers import marked, temporary_folder

LOOK_S = 1.0
"""Seconds between two checks whether parent and orchestrator are alive."""
FILE_PART_BYTES = 1 << 20
MOST_LOG_BYTES = 1 << 16
"""Largest part of a node's log that is sent back, in bytes."""


_started: list[subprocess.Popen[str]] = []
"""Agents that this process has started; the references keep their standard input open."""


class _Over(Exception):
    """The orchestrator or the parent process has ended."""


class Agent:
    """The state of an agent during its run."""

    def __init__(self, told: BeHost, stack: ExitStack) -> None:
        """Open the sockets of the agent."""
        theirs, ours = socket.socketpair()
        self._control = ControlSocket(ours)
        self._listener = Listener(told.identity, told.address, told.token, PROGRAM)
        stack.callback(self._listener.close)
        self._listener.offer(CONTROL, theirs)
        self._echo = Echo(told.address, told.token)
        stack.callback(self._echo.close)
        self._source = capacity.Source(told.address, capacity.password_of(told.token))
        stack.callback(self._source.close)
        # Opened here, in the machine's network namespace; the processes that use them leave it.
        self._relays = [datagrams(told.address) for _ in range(told.relayed)]
        for relay in self._relays:
            stack.callback(relay.close)
        self._address = told.address
        ports = tuple(relay.getsockname()[1] for relay in self._relays)
        self.listens = Listening(self._listener.port, self._echo.port, self._source.port, ports)

    def serve(self) -> None:
        """Create a part, supervise it and end it."""
        with contextlib.suppress(_Over, RunError):
            try:
                order = self._next_order()
                while isinstance(order, MeasureFlows | MeasureRelay):
                    self._control.send(*encode(self._measured(order)))
                    order = self._next_order()
                if not isinstance(order, MakePart):
                    return
                self._source.close()
                with temporary_folder("host") as folder:
                    ended = self._live(order, folder)
                self._control.send(*encode(ended))
            except RunError as error:
                self._control.send(*encode(WorldLost(str(error))))
            self._await_end()

    def _measured(self, order: MeasureFlows | MeasureRelay) -> FlowsMeasured | RelayMeasured:
        if isinstance(order, MeasureFlows):
            return FlowsMeasured(*capacity.measure(order.peers))
        return RelayMeasured(relaying.packets_s(self._address, order.mtu))

    def _live(self, order: MakePart, folder: Path) -> PartEnded:
        """Run the part until it ends; returns the logs of its nodes."""
        nodes = [replace(spec, log=folder / f"{spec.node}.log") for spec in order.nodes]
        homes = {}
        if any(isinstance(spec.program, Sandbox) for spec in nodes):
            homes = {str(spec.node): folder / str(spec.node) for spec in nodes}
            nodes = [sandboxes.with_home(spec, homes[str(spec.node)]) for spec in nodes]
        for relay, tunnel in zip(self._relays, order.part.tunnels.values(), strict=False):
            relay.connect((tunnel.remote, tunnel.port))
        options = {"part": order.part, "relays": self._relays}
        with runtimes.start("namespace", nodes, order.shape, **options) as world:
            if homes:
                self._sandboxes = sandboxes.HostSandboxes(order.nodes, world, self._listener.offer)
            else:
                for node, stream in world.connect(order.timeout_s).items():
                    self._listener.offer(str(node), stream)
            self._listener.offer(INJECTOR, world.injector.passed_on())
            self._control.send(*encode(PartMade(str(folder))))
            while not isinstance(next_ := self._next_order(world), EndPart):
                self._obey(next_, world, folder)
        logs = {str(spec.node): _end_of(spec.log) for spec in nodes if spec.log.exists()}
        return PartEnded(logs, *sandboxes.packed(homes))

    def _obey(self, order: ToAgent, world: World, folder: Path) -> None:
        match order:
            case Kill(node):
                world.kill(node)
            case GiveFile(name):
                self._give(folder / Path(name).name)
            case StartProgram():
                try:
                    self._sandboxes.start(order, folder / str(order.command.node))
                except InputError:
                    self._control.send(*encode(Ended(order.number, sandboxes.NOT_STARTED)))
            case SignalProgram():
                self._sandboxes.signal(order)
            case ReleasePrograms(epoch_ns):
                world.release(epoch_ns)
            case _:
                raise RunError(f"{type(order).__name__} is not valid while a part is running")

    def _give(self, path: Path) -> None:
        """Send a file to the peer and remove it."""
        with path.open("rb") as file:
            left = path.stat().st_size
            while True:
                data = file.read(FILE_PART_BYTES)
                left -= len(data)
                self._control.send(*encode(FilePart(left, data)))
                if not data or not left:
                    break
        path.unlink()

    def _next_order(self, world: World | None = None) -> ToAgent:
        """Wait for an order; meanwhile forward the news of the world."""
        while True:
            if (message := self._control.next()) is not None:
                return TO_AGENT.decode(*message)
            for news in () if world is None else world.news():
                if isinstance(news, Ended):
                    news = Ended(self._sandboxes.ended(news.number), news.status)
                self._control.send(*encode(news))
            watched = [sys.stdin, self._control] + ([world] if world is not None else [])
            ready, _, _ = select.select(watched, [], [], LOOK_S)
            gone = self._control in ready and not self._control.read_available()
            if gone or sys.stdin in ready or self._echo.silent():
                raise _Over

    def _await_end(self) -> None:
        """Wait until the orchestrator has received the last message."""
        while not isinstance(self._next_order(), EndPart):
            pass


def _end_of(log: Path) -> str:
    return log.read_bytes()[-MOST_LOG_BYTES:].decode("utf-8", "replace")


def _tell(message: Listening | WorldLost) -> None:
    print(json.dumps(encode(message)[0]), flush=True)


def main() -> None:
    """Run the agent as a program."""
    told = STARTING.decode(json.loads(sys.stdin.readline()), b"")
    assert isinstance(told, BeHost)
    with ExitStack() as stack:
        try:
            agent = Agent(told, stack)
        except OSError as error:
            _tell(WorldLost(f"cannot listen on {told.address} ({error.strerror or error})"))
            return
        _tell(agent.listens)
        agent.serve()


def start(told: BeHost) -> Listening:
    """Start an agent as a separate process, which ends with this one at the latest.

    Raises:
        RunError: The agent could not start.
    """
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=marked(),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    # Reaps the agent, and keeps its standard input open while this process lives.
    threading.Thread(target=process.wait, daemon=True).start()
    _started.append(process)
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps(encode(told)[0]) + "\n")
        process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise RunError("the agent ended before it was listening")
    message = STARTING.decode(json.loads(line), b"")
    if isinstance(message, WorldLost):
        raise RunError(message.reason)
    assert isinstance(message, Listening)
    return message


if __name__ == "__main__":
    main()
