# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The emulated network: nodes, links that the injector sets, calibration, impairments, capture.

It has two tenants: the rounds of a run (`orchestrator.emulated.rounds`), whose nodes are programs
of ours, and sessions (`orchestrator.emulated.session`), in whose nodes users start theirs.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import pandas as pd

from orchestrator.emulated.calibration import GAP_S, Trial, trial_of
from orchestrator.engine.links import are_impaired, impairments_of
from orchestrator.engine.plan import Array
from orchestrator.engine.radio import LinkRates
from orchestrator.scenario.schema import Emulation, ResolvedScenario, Scenario
from testbed import runtimes
from testbed.control.messages import Captured, Received
from testbed.core.clock import EmulatedClock, next_tick
from testbed.core.errors import InputError
from testbed.core.node import BS, NodeId, uavs
from testbed.host.doctor import lacking
from testbed.network.injector import Injector, Report
from testbed.network.shaping import Shape
from testbed.runtimes import NodeSpec, World

Transfer = Callable[[EmulatedClock], Iterable[Received]]
"""Sends a trial's transfers by a clock, and answers with what was received."""


class Hosts(Protocol):
    """Other machines on which nodes may live; see `orchestrator.emulated.hosts`."""

    def start(
        self,
        scenario: ResolvedScenario,
        nodes: Sequence[NodeSpec],
        shape: Shape,
        rates: LinkRates,
        *,
        in_turns: bool,
    ) -> World:
        """Start a world on these machines, if their network carries the rates.

        Args:
            scenario: What the network is like.
            nodes: The nodes; see `testbed.runtimes.start`.
            shape: How links treat frames.
            rates: What links are expected to carry.
            in_turns: Whether gradients are sent one after the other.
        """

    def to_json(self, calibration: pd.DataFrame | None) -> list[dict[str, Any]]:
        """The machines as the manifest has them, after a calibration of the links."""


def check_machine(scenario: Scenario, hosts: Hosts | None) -> None:
    """Refuse a network that this machine, or where its nodes live, cannot have.

    Raises:
        InputError: Names the field, and what there is.
    """
    if hosts is not None:
        return
    if scenario.emulation.placement is not None:
        raise InputError("emulation.placement: needs `scheduler`, whose hosts nodes are placed on")
    lacks = lacking(scenario.links.queue, scenario.emulation.congestion_control)
    if lacks is not None:
        field, there = lacks
        raise InputError(f"{field}: this kernel {there}")


class EmulatedNetwork:
    """Nodes and links that were started; leaving the context ends them and removes all of it."""

    def __init__(self, world: World, scenario: ResolvedScenario, shape: Shape, folder: Path):
        self.world = world
        self.scenario = scenario
        self.shape = shape
        """How links treat frames."""
        self.folder = folder
        """The run's or session's folder."""
        self.calibration: pd.DataFrame | None = None
        """What links carried before the clock began, see `Trial.table`; None: not tried."""
        self.capturing = False
        self.captured: Captured | None = None
        """What the capture held, once it has ended."""

    @classmethod
    def start(
        cls,
        scenario: ResolvedScenario,
        specs: Sequence[NodeSpec],
        shape: Shape,
        folder: Path,
        expected: LinkRates,
        *,
        in_turns: bool,
        hosts: Hosts | None = None,
        **options: Any,
    ) -> "EmulatedNetwork":
        """Start the nodes, wired, here or on other machines.

        Args:
            scenario: What the network is like.
            specs: What each node is, the base station first.
            shape: How links treat frames.
            folder: Existing folder for captures.
            expected: What links are expected to carry, in emulated bit/s.
            in_turns: Whether gradients are sent one after the other.
            hosts: Where nodes live; None: here.
            options: Further ones of the runtime; see `testbed.runtimes.start`.

        Raises:
            InputError: The network between hosts does not carry what links ask for.
            RunError: This machine does not allow it, or a step failed.
        """
        if hosts is None:
            world = runtimes.start(scenario.emulation.runtime, specs, shape, **options)
        else:
            world = hosts.start(scenario, specs, shape, expected, in_turns=in_turns)
        return cls(world, scenario, shape, folder)

    def __enter__(self) -> "EmulatedNetwork":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End all nodes and remove what was made; may be called twice."""
        self.world.close()

    @property
    def injector(self) -> Injector:
        """Sets the rates of links, and counts what they carry."""
        return self.world.injector

    @property
    def nodes(self) -> list[NodeId]:
        """All nodes, the base station first."""
        return [BS, *uavs(self.scenario.uavs.count)]

    def open_links(self, rate_bps: Array) -> None:
        """Give all links a constant rate, in real bit/s, shape [K, 1], until the next epoch."""
        self.injector.rates(0, rate_bps, rate_bps, warn_slots=0)
        self.injector.epoch(EmulatedClock(next_tick(), 0.0, 1.0), 1e6)

    def calibrate(
        self,
        expected: LinkRates,
        slot_s: float,
        ends: Callable[[Trial], AbstractContextManager[Transfer]],
        *,
        in_turns: bool,
        gap_s: float = GAP_S,
        choices: Emulation | None = None,
    ) -> None:
        """Try every link at rates that it will have.

        Args:
            expected: Those rates, in emulated bit/s; outages are left out.
            slot_s: Length of their slots.
            ends: The programs at both ends of the links, ready to transfer while the context lasts.
            in_turns: Whether downlinks wait for each other.
            gap_s: Real seconds before each transfer.
            choices: How the transfers travel; None: as the scenario's rounds do.

        Raises:
            RunError: A program failed.
        """
        dilation = self.scenario.dilation
        rates = expected.uplink, expected.gradient
        trial = trial_of(*rates, slot_s, self.shape, dilation, in_turns=in_turns, gap_s=gap_s)
        with ends(trial) as transfer:
            received = transfer(trial.begin(self.injector))
        trial.end(self.injector)
        self.calibration = trial.table(received, choices or self.scenario.emulation)

    def impair(self) -> bool:
        """Delay and lose frames from now on as the scenario says; whether it says so."""
        if impaired := are_impaired(self.scenario):
            self.injector.impair(*impairments_of(self.scenario, self.scenario.dilation))
        return impaired

    def capture(self, *, headers_only: bool) -> None:
        """Capture every link into `folder`/pcap from now on."""
        folder = self.folder / "pcap"
        folder.mkdir()
        files = [folder / f"{node}.pcap" for node in self.nodes[1:]]
        self.injector.capture(files, headers_only=headers_only)
        self.capturing = True

    def end_capture(self, until_ns: int) -> None:
        """End the capture, if there is one, with the frames up to a moment of real time."""
        if self.capturing:
            self.captured = self.injector.end_capture(until_ns)
            self.capturing = False

    def report(self) -> Report:
        """What the injector did since the last report, and the links' counters."""
        return self.injector.report()
