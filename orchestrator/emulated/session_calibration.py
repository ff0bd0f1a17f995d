# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Programs at the ends of the transfers that calibrate a session's links.

A run uses its own programs. The nodes of a session have none, so programs of this machine are
started in them, which treat the links like the user's programs.
"""

import json
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.emulated.calibration import GAP_S, TIMEOUT_S
from orchestrator.emulated.network import EmulatedNetwork, Probes, Transfer
from orchestrator.emulated.programs import SOURCES, environment_of, shown_to
from orchestrator.scenario.schema import Emulation, ResolvedScenario
from testbed.control.messages import Probe, Received
from testbed.control.stream import readable
from testbed.core.clock import EmulatedClock
from testbed.core.errors import RunError
from testbed.core.node import BS, NodeId
from testbed.network.airtime import EVERY_NS
from testbed.network.fabric import BS_ADDRESS
from testbed.network.shaping import Shape
from testbed.runtimes import Command, Ended, Module, World
from workloads.nodes.probing import Task

PROGRAM = Module("workloads.nodes.probing")
CONNECT_BPS = 1e8
"""Rate of all links while the programs connect, in real bit/s."""
IDLE_LOOKS = 4
"""Pause between sequential downlinks, in polling intervals of the cell's airtime, so that the whole
airtime is free for each of them."""
CHUNK = 1 << 16


@contextmanager
def ends(network: EmulatedNetwork, trial: Probes) -> Iterator[Transfer]:
    """Programs at both ends of each link of empty nodes, ready to transfer until the context ends.

    They are removed when the context ends.

    Raises:
        RunError: A program failed; the message contains its name and its output.
    """
    world, clients = network.world, network.scenario.uavs.count
    network.open_links(np.full((clients, 1), CONNECT_BPS))
    limit_s = TIMEOUT_S + trial.lasts_s
    with ExitStack() as stack, ThreadPoolExecutor(8) as pool:
        programs = {node: _End(node) for node in network.nodes}
        for program in programs.values():
            stack.callback(program.close)

        def start(program: _End) -> None:
            program.start(world, network.folder / "nodes" / str(program.node))

        list(pool.map(start, programs.values()))

        def send_task(node: NodeId) -> None:
            own = _of(node, trial.probes)
            task = Task(node.client, clients, BS_ADDRESS, limit_s, network.shape.credit_s, own)
            programs[node].send(asdict(task))

        send_task(BS)
        programs[BS].receive(limit_s)
        for node in network.nodes[1:]:
            send_task(node)
        for program in programs.values():
            program.receive(limit_s)
        network.injector.pause()

        def transfer(clock: EmulatedClock) -> list[Received]:
            for program in programs.values():
                start_ns = world.moment_at(program.node, clock.start_ns)
                program.send((start_ns, clock.start_s, clock.dilation))
            return [row for program in programs.values() for row in program.receive(limit_s)]

        yield transfer
    _await_ends(world, {program.number for program in programs.values()})


def gap_s(shape: Shape) -> float:
    """Real seconds before each transfer; where downlinks share airtime, all of it must be free."""
    return IDLE_LOOKS * EVERY_NS * 1e-9 if shape.shared_downlink else GAP_S


def choices(scenario: ResolvedScenario) -> Emulation:
    """Transport options of the transfers: TCP connections that are kept."""
    return scenario.emulation.model_copy(update={"transport": "tcp", "connection": "kept"})


def _of(node: NodeId, probes: Sequence[Probe]) -> tuple[Probe, ...]:
    return tuple(probe for probe in probes if node == BS or probe.client == node.client)


class _End:
    """The program at one end of a link, or at the base station's end of all links."""

    def __init__(self, node: NodeId):
        self.node = node
        self.number = 0
        self._said = b""
        self._orders_from, self._orders = os.pipe()
        self._answers, self._answers_to = os.pipe()
        self._theirs = [self._orders_from, self._answers_to]

    def start(self, world: World, home: Path) -> None:
        """Start the program in its node."""
        far = bool(world.places)
        env, argv = environment_of(self.node, home, 0, far=far), PROGRAM.argv()
        env["PYTHONPATH"] = str(SOURCES)
        command = Command(self.node, argv, env, home, tuple(shown_to(argv, env, home)), system=True)
        self.number = world.spawn(command, (self._orders_from, self._answers_to, self._answers_to))
        while self._theirs:
            os.close(self._theirs.pop())

    def send(self, order: Any) -> None:
        """Send an order to the program."""
        data = (json.dumps(order) + "\n").encode()
        try:
            while data:
                data = data[os.write(self._orders, data) :]
        except OSError:
            raise self._failed() from None

    def receive(self, timeout_s: float) -> Any:
        """The next answer of the program.

        Raises:
            RunError: The program ended before, or the timeout expired.
        """
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._said:
            left_s = max(0.0, deadline - time.monotonic())
            if not readable(self._answers, left_s):
                raise RunError(f"calibration: waited {timeout_s:g} s for {self.node}")
            if not (more := os.read(self._answers, CHUNK)):
                raise self._failed()
            self._said += more
        line, _, self._said = self._said.partition(b"\n")
        try:
            return json.loads(line)
        except ValueError:
            self._said = line + b"\n" + self._said
            raise self._failed() from None

    def _failed(self) -> RunError:
        """The error with the last line of its output."""
        while more := os.read(self._answers, CHUNK):
            self._said += more
        words = self._said.decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(words) if line.strip()), "no output")
        return RunError(f"calibration: {self.node}: {last}")

    def close(self) -> None:
        """Close the program's input, which ends the program."""
        for descriptor in (self._orders, self._answers, *self._theirs):
            os.close(descriptor)


def _await_ends(world: World, numbers: set[int]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while numbers:
        if not readable(world, max(0.0, deadline - time.monotonic())):
            raise RunError(f"calibration: waited {TIMEOUT_S:g} s for its programs to end")
        for news in world.news():
            if not isinstance(news, Ended):
                raise RunError(str(news))
            numbers.discard(news.number)
        if numbers and time.monotonic() > deadline:
            raise RunError(f"calibration: {len(numbers)} of its programs do not end")
