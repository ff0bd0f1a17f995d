# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The calibration before a session: every link of its network, at rates that it will have.

As before a run (`orchestrator.emulated.calibration`), but nodes are sandboxes: the two ends of each
link are programs of this machine's system that are started there, and gone when it is over. They
know no more of the links than those which come after them.
"""

import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from orchestrator.emulated.calibration import GAP_S, TIMEOUT_S, trial_of
from orchestrator.emulated.feed import Feed
from orchestrator.emulated.programs import SOURCES, environment_of, shown_to
from orchestrator.scenario.schema import ResolvedScenario
from testbed.control.messages import Probe
from testbed.control.stream import readable
from testbed.core.clock import EmulatedClock, next_tick
from testbed.core.errors import RunError
from testbed.core.node import BS, NodeId, uavs
from testbed.network.airtime import EVERY_NS
from testbed.network.fabric import BS_ADDRESS
from testbed.network.shaping import Shape
from testbed.runtimes import Command, Ended, Module, World
from workloads.nodes.probing import Task

PROGRAM = Module("workloads.nodes.probing")
CONNECT_BPS = 1e8
"""Of all links while the ends connect, in real bit/s."""
IDLE_LOOKS = 4
"""At a cell's airtime, between downlinks that take turns: each finds all of it free."""
CHUNK = 1 << 16


def calibrate(
    world: World, scenario: ResolvedScenario, feed: Feed, shape: Shape, folder: Path
) -> pd.DataFrame:
    """Measure every link at the lowest, middle and highest rate of the session's first minute.

    Args:
        world: Of sandboxes, in which nothing runs.
        scenario: What the network is like.
        feed: What rates there will be.
        shape: How links treat frames.
        folder: The session's.

    Returns:
        As `orchestrator.emulated.calibration.calibrate`.

    Raises:
        RunError: A program failed; the message says which, and what it said.
    """
    dilation, credit_s = scenario.dilation, shape.credit_s
    gap_s = IDLE_LOOKS * EVERY_NS * 1e-9 if shape.shared_downlink else GAP_S
    trial = trial_of(
        *feed.ahead(),
        feed.slot_s,
        shape,
        dilation,
        in_turns=shape.shared_downlink,
        gap_s=gap_s,
    )
    clients, injector = scenario.uavs.count, world.injector
    nodes = [BS, *uavs(clients)]
    good = np.full((clients, 1), CONNECT_BPS)
    injector.rates(0, good, good, warn_slots=0)
    injector.epoch(EmulatedClock(next_tick(), 0.0, 1.0), 1e6)
    limit_s = TIMEOUT_S + trial.lasts_s
    with ExitStack() as stack, ThreadPoolExecutor(8) as pool:
        ends = {node: _End(node) for node in nodes}
        for end in ends.values():
            stack.callback(end.close)
        list(
            pool.map(lambda end: end.start(world, folder / "nodes" / str(end.node)), ends.values())
        )

        def told(node: NodeId) -> None:
            own = _of(node, trial.probes)
            task = Task(node.client, clients, BS_ADDRESS, limit_s, credit_s, own)
            ends[node].tell(asdict(task))

        told(BS)
        ends[BS].hear(limit_s)
        for node in nodes[1:]:
            told(node)
        for end in ends.values():
            end.hear(limit_s)
        injector.pause()
        clock = trial.begin(injector)
        for end in ends.values():
            start_ns = world.moment_at(end.node, clock.start_ns)
            end.tell((start_ns, clock.start_s, clock.dilation))
        received = [row for end in ends.values() for row in end.hear(limit_s)]
    _await_ends(world, {end.number for end in ends.values()})
    trial.end(injector)
    choices = scenario.emulation.model_copy(update={"transport": "tcp", "connection": "kept"})
    return trial.table(received, choices)


def _of(node: NodeId, probes: Sequence[Probe]) -> tuple[Probe, ...]:
    return tuple(probe for probe in probes if node == BS or probe.client == node.client)


class _End:
    """The program at one end, or at the base station's of all links."""

    def __init__(self, node: NodeId):
        self.node = node
        self.number = 0
        self._said = b""
        self._orders_from, self._orders = os.pipe()
        self._answers, self._answers_to = os.pipe()
        self._theirs = [self._orders_from, self._answers_to]

    def start(self, world: World, home: Path) -> None:
        """Start it in its node."""
        far = bool(world.places)
        env, argv = environment_of(self.node, home, 0, far=far), PROGRAM.argv()
        env["PYTHONPATH"] = str(SOURCES)
        command = Command(self.node, argv, env, home, tuple(shown_to(argv, env, home)), system=True)
        self.number = world.spawn(command, (self._orders_from, self._answers_to, self._answers_to))
        while self._theirs:
            os.close(self._theirs.pop())

    def tell(self, order: Any) -> None:
        """Give it a line."""
        data = (json.dumps(order) + "\n").encode()
        try:
            while data:
                data = data[os.write(self._orders, data) :]
        except OSError:
            raise self._failed() from None

    def hear(self, timeout_s: float) -> Any:
        """Its next answer.

        Raises:
            RunError: It ended before, or took too long.
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
        """Why: the last line that it says."""
        while more := os.read(self._answers, CHUNK):
            self._said += more
        words = self._said.decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(words) if line.strip()), "it says nothing")
        return RunError(f"calibration: {self.node}: {last}")

    def close(self) -> None:
        """It then ends by itself."""
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
