# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The emulated network: nodes, links with an injector, calibration, impairments, capture.

It is used by the rounds of a run (`orchestrator.emulated.rounds`), whose nodes are programs of the
testbed, and by sessions (`orchestrator.emulated.session`), in whose nodes users start their own.
"""

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import pandas as pd

from ns3_scenarios import nr_module
from orchestrator.emulated.calibration import GAP_S, Trial, trial_of
from orchestrator.emulated.radio_air import RadioAir
from orchestrator.emulated.radio_calibration import RadioTrial
from orchestrator.engine.access import LinkRates
from orchestrator.engine.links import impairments_of
from orchestrator.engine.plan import Array
from orchestrator.engine.tcp_model import tcp_model_of
from orchestrator.scenario.channel import Channel
from orchestrator.scenario.combinations import check
from orchestrator.scenario.schema import Emulation, ResolvedScenario, Scenario
from testbed import runtimes
from testbed.control.messages import Captured, Probe, Received
from testbed.core.clock import EmulatedClock, next_tick
from testbed.core.errors import InputError
from testbed.core.node import BS, NodeId, uavs
from testbed.host.doctor import TUN, lacking
from testbed.network.injector import Injector
from testbed.network.shaping import Shape
from testbed.runtimes import NodeSpec, World
from testbed.system.waiting import wait_for_start

log = logging.getLogger(__name__)

Transfer = Callable[[EmulatedClock], Iterable[Received]]
"""Sends a trial's transfers by a clock, and returns the measured arrivals."""


class Probes(Protocol):
    """Transfers that calibrate links: a `Trial` or a `RadioTrial`."""

    @property
    def probes(self) -> tuple[Probe, ...]:
        """All transfers."""

    @property
    def lasts_s(self) -> float:
        """Duration in real seconds."""

    @property
    def left_out(self) -> Sequence[str]:
        """A message for each link, or each UAV, without transfers."""


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
            scenario: Scenario of the network.
            nodes: The nodes; see `testbed.runtimes.start`.
            shape: Shape of the links.
            rates: Expected rates of the links.
            in_turns: Whether gradients are sent one after the other.
        """

    def to_json(self, calibration: pd.DataFrame | None) -> list[dict[str, Any]]:
        """The machines as entries of the manifest, after a calibration of the links."""


def check_machine(scenario: Scenario, hosts: Hosts | None) -> None:
    """Check that this machine, or the machines of the nodes, support the scenario's network.

    Raises:
        InputError: A key is not supported; the message names it.
    """
    check(scenario, "run")
    if hosts is not None:
        return
    if scenario.emulation.placement is not None:
        raise InputError("emulation.placement: needs `scheduler`, whose hosts nodes are placed on")
    emulation = scenario.emulation
    is_here = emulation.air == "ns3" and emulation.clock == "real"
    if is_here and not os.access(TUN, os.R_OK | os.W_OK):
        raise InputError(
            f"emulation.air: 'ns3' needs {TUN}, which cannot be opened here; see `testbed doctor`, "
            "or use emulation.clock 'virtual'"
        )
    if emulation.air == "ns3" and scenario.radio.kind.ns3 == "nr":
        nr_module.required()
    lacks = lacking(scenario.links.queue, scenario.emulation.congestion_control)
    if lacks is not None:
        field, there = lacks
        raise InputError(f"{field}: this kernel {there}")


class EmulatedNetwork:
    """Started nodes and links; leaving the context ends and removes them."""

    def __init__(
        self,
        world: World,
        scenario: ResolvedScenario,
        shape: Shape,
        folder: Path,
        radio: RadioAir | None = None,
    ):
        self.world = world
        self.scenario = scenario
        self.shape = shape
        """Shape of the links."""
        self.folder = folder
        """Folder of the run or session."""
        self.radio = radio
        """ns-3's radio, which carries the frames; None: the kernel's links do."""
        self.calibration: pd.DataFrame | None = None
        """Result of the calibration, see `Trial.table`; None: there was none."""
        self.capturing = False
        self.captured: Captured | None = None
        """The capture, once it has ended."""

    @classmethod
    def start(
        cls,
        scenario: ResolvedScenario,
        specs: Sequence[NodeSpec],
        shape: Shape,
        folder: Path,
        expected: LinkRates,
        channel: Channel,
        *,
        in_turns: bool,
        hosts: Hosts | None = None,
        **options: Any,
    ) -> "EmulatedNetwork":
        """Start and connect the nodes, here or on other machines.

        Args:
            scenario: Scenario of the network.
            specs: Specification of each node, the base station first.
            shape: Shape of the links.
            folder: Existing folder for captures.
            expected: Expected rates of the links, in emulated bit/s.
            channel: Channel of the scenario.
            in_turns: Whether gradients are sent one after the other.
            hosts: Hosts of the nodes; None: this machine.
            options: Further options of the runtime; see `testbed.runtimes.start`.

        Raises:
            InputError: The network between hosts does not carry the demand of the links, or ns-3
                lacks a feature of the scenario's radio.
            RunError: This machine does not allow it, or a step failed.
        """
        wait_for_start()
        radio = None
        if scenario.emulation.air == "ns3":
            radio = RadioAir.of(scenario, channel.now, folder)
            options["radio"] = radio.program
        if hosts is None:
            world = runtimes.start(scenario.emulation.runtime, specs, shape, **options)
        else:
            world = hosts.start(scenario, specs, shape, expected, in_turns=in_turns)
        return cls(world, scenario, shape, folder, radio)

    def __enter__(self) -> "EmulatedNetwork":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End all nodes and remove the network; may be called twice."""
        self.world.close()

    @property
    def injector(self) -> Injector:
        """The injector, which sets the rates of links and counts the bytes that they carry."""
        return self.world.injector

    @property
    def nodes(self) -> list[NodeId]:
        """All nodes, the base station first."""
        return [BS, *uavs(self.scenario.uavs.count)]

    def open_links(self, rate_bps: Array) -> None:
        """Give all links a constant rate, in real bit/s, shape [K, 1], until the next epoch; where
        ns-3 carries the frames, a channel that is good for all."""
        if self.radio is not None:
            self.injector.channel(0, *self.radio.clear, warn_slots=0)
        else:
            self.injector.rates(0, rate_bps, rate_bps, warn_slots=0)
        self.injector.epoch(EmulatedClock(next_tick(), 0.0, 1.0), 1e6)

    def calibrate(
        self,
        expected: LinkRates,
        slot_s: float,
        ends: Callable[[Probes], AbstractContextManager[Transfer]],
        *,
        in_turns: bool,
        uplinks_in_turns: bool = False,
        gap_s: float = GAP_S,
        choices: Emulation | None = None,
    ) -> None:
        """Measure every link at rates that it will have.

        Args:
            expected: Expected rates of the links, in emulated bit/s; outages are ignored.
            slot_s: Length of a slot in seconds.
            ends: Provides programs at both ends of the links while the context lasts.
            in_turns: Whether downlinks are used one after the other.
            uplinks_in_turns: Whether uplinks are.
            gap_s: Real seconds before each transfer.
            choices: Transport options of the transfers; None: the options of the scenario's rounds.

        Raises:
            RunError: A program failed.
        """
        trial: Trial | RadioTrial | None
        if self.radio is not None:
            trial = RadioTrial.of(self.scenario, self.radio)
        else:
            trial = trial_of(
                *(expected.uplink, expected.gradient),
                slot_s,
                self.shape,
                self.scenario.dilation,
                in_turns=in_turns,
                uplinks_in_turns=uplinks_in_turns,
                gap_s=gap_s,
                # On a shared band, the model has no serial lines; nothing is delayed here.
                tcp=tcp_model_of(self.scenario)
                if self.shape.serial and not self.scenario.radio.dividing_key
                else None,
            )
        if trial is None:
            return
        for line in trial.left_out:
            log.warning(line)
        if not trial.probes:
            return
        with ends(trial) as transfer:
            received = transfer(trial.begin(self.injector))
        trial.end(self.injector)
        self.calibration = trial.table(received, choices or self.scenario.emulation)

    def impair(self) -> bool:
        """Apply the delay and loss of the scenario from now on; returns whether it has any."""
        if impaired := self.scenario.is_impaired:
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
