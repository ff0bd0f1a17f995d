# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Simulates a scenario's rounds with ns-3's packets, in addition to the engine and the kernel.

Nodes are simulated by their messages: the same messages and sizes as in the emulation, over one TCP
connection per link, with the same modelled computing and the same `testbed.core.schedule`, driven
by the arrivals of ns-3's packets (`ns3_scenarios.packets`). Times are integer nanoseconds of
emulated time, as in ns-3.

One difference from the emulated base station is intended: a gradient starts when the receipt of the
previous one has arrived, whereas the kernel's links make up for that time with their burst credit.
"""

from dataclasses import dataclass, replace

from ns3_scenarios.packets import CONGESTION_CONTROLS, Counts, PacketNetwork, PacketSettings
from ns3_scenarios.trace import ChannelSource
from orchestrator.engine.links import impairments_of, shape_of, vary_by_slot
from orchestrator.engine.plan import link_bytes, plan_round
from orchestrator.engine.radio import radio_access
from orchestrator.engine.rounds import Decide, Decision, play_rounds
from orchestrator.engine.tcp_model import tcp_model_of
from orchestrator.packet_simulation.round import PacketRound
from orchestrator.scenario.channel import Channel, ns3_launch
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from testbed.core.progress import Progress, silent, which_round
from testbed.core.timeline import Round, Timeline
from testbed.transport.framing import ETHERNET_BYTES
from workloads.costs.profile import SplitProfile

LINUX_WINDOW = 10
"""TCP's initial window in segments, if the scenario does not set it."""


@dataclass(frozen=True)
class Played:
    """Result of a simulation."""

    timeline: Timeline
    counts: Counts
    """Counters of the links over all rounds."""


def play(
    scenario: Scenario,
    source: ChannelSource,
    profile: SplitProfile,
    *,
    delay_s: float | None = None,
    decide: Decide | None = None,
    progress: Progress = silent,
) -> Played:
    """Simulate the scenario's rounds from t = 0, without gaps.

    Computing takes the time of the device profile, also if the scenario would measure it.

    Args:
        scenario: The scenario.
        source: The channel.
        profile: Costs of each split.
        delay_s: One-way delay of every link, s (default: the scenario's delays).
        decide: Policy (default: the scenario's split and shares).
        progress: Called with the round, and twice the emulated seconds since its start.

    Raises:
        InputError: ns-3 does not support this transport or congestion control, or the trace is too
            short.
        ChannelError: ns-3 ended, or its models cannot be built.
    """
    shape, emulation = shape_of(scenario), scenario.emulation
    for field, supported in (("transport", "tcp"), ("connection", "kept")):
        if (given := getattr(emulation, field)) != supported:
            raise InputError(f"emulation.{field}: ns-3 supports only {supported!r}, not {given!r}")
    if scenario.scheme.asynchronous:
        raise InputError(f"paradigm: ns-3 needs synchronous rounds, not {scenario.paradigm!r}")
    if scenario.participation.deadline_s is not None:
        raise InputError("participation.deadline_s: ns-3 needs rounds that wait for all clients")
    if scenario.faults.events or scenario.faults.random is not None:
        where = "events" if scenario.faults.events else "random"
        raise InputError(f"faults.{where}: ns-3 needs rounds without faults")
    if scenario.links.queue != "fifo" or scenario.links.ecn:
        raise InputError("links.queue: ns-3 supports only 'fifo', without links.ecn")
    if emulation.congestion_control not in CONGESTION_CONTROLS:
        raise InputError(
            f"emulation.congestion_control: ns-3 supports {', '.join(CONGESTION_CONTROLS)}, "
            f"not {emulation.congestion_control!r}"
        )
    channel = Channel.of(source)
    if radio_access(scenario, channel.now).is_shared:
        raise InputError(
            f"{scenario.radio.dividing_key}: ns-3 needs links whose rates do not depend on which "
            "UAVs are active: radio.access 'shannon', or 'lte' with radio.lte.scheduler "
            "'shares'"
        )
    impairments = list(zip(*impairments_of(scenario), strict=True))
    if delay_s is not None and vary_by_slot(scenario):
        raise InputError("delay_s: not supported if links differ from slot to slot")
    if delay_s is not None:
        impairments = [
            (replace(up, delay_s=delay_s), replace(down, delay_s=delay_s))
            for up, down in impairments
        ]
    settings = PacketSettings(
        links=scenario.uavs.count,
        mtu=emulation.mtu,
        frame_header_bytes=ETHERNET_BYTES,
        impairments=impairments,
        congestion_control=emulation.congestion_control,
        queue_frames=shape.queue_frames,
        initial_window=emulation.initial_window or LINUX_WINDOW,
        nagle=emulation.nagle,
        # Packets that the kernel splits into frames are acknowledged as packets.
        packet_s=0.0 if shape.single_frames else shape.packet_s,
    )
    with PacketNetwork(settings, ns3_launch()) as network:
        backend = PacketBackend(scenario, channel, profile, network, progress)
        done = list(play_rounds(scenario, channel, backend, decide=decide))
        return Played(Timeline(done), network.counts())


class PacketBackend:
    """A backend that simulates rounds packet by packet."""

    def __init__(
        self,
        scenario: Scenario,
        channel: Channel,
        profile: SplitProfile,
        network: PacketNetwork,
        progress: Progress,
    ):
        self._scenario = scenario
        self._channel = channel
        self._profile = profile
        self._network = network
        self._progress = progress
        self._now_ns = 0
        self._tcp = tcp_model_of(scenario)

    def play(self, decision: Decision) -> Round:
        """Simulate one round, from the end of the previous one."""
        scenario = self._scenario
        plan = plan_round(scenario, self._profile, decision.allocation, link_bytes)
        round_ = PacketRound(
            decision.index,
            plan,
            scenario,
            self._profile,
            self._network,
            self._channel,
            self._now_ns,
            self._tcp,
        )
        text = f"ns-3, {which_round(decision.index, scenario.rounds)}"
        played = round_.play(lambda seconds: self._progress(text, seconds, seconds))
        self._now_ns = round_.now_ns
        return played
