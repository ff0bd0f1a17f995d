# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A scenario's rounds on ns-3's packets: a third opinion beside the engine and the kernel.

The nodes of the emulation are replayed here as what they send and wait for: the same messages of
the same bytes over one TCP connection a link, the same modelled computing, and the same
`testbed.core.schedule`, stepped by what ns-3's packets did (`ns3_scenarios.packets`). Time is whole
nanoseconds of emulated time, as ns-3 counts it.

One thing differs from the emulated base station by design: a gradient starts when the receipt of
the one before has come back, where the kernel's links make up for that time out of their credit.
"""

from dataclasses import dataclass, replace

from ns3_scenarios.packets import CONGESTION_CONTROLS, Counts, PacketNetwork, PacketSettings
from ns3_scenarios.trace import ChannelSource
from orchestrator.engine.links import impairments_of, shape_of, vary_by_slot
from orchestrator.engine.plan import link_bytes, plan_round
from orchestrator.engine.rounds import Decide, Decision, play_rounds
from orchestrator.engine.tcp_model import transport_of
from orchestrator.packet_simulation.round import PacketRound
from orchestrator.scenario.channel import Channel, ns3_launch
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from testbed.core.progress import Progress, silent, which_round
from testbed.core.timeline import Round, Timeline
from testbed.transport.framing import ETHERNET_BYTES
from workloads.costs.profile import SplitProfile

LINUX_WINDOW = 10
"""Segments that TCP sends at first, where the scenario does not say."""


@dataclass(frozen=True)
class Played:
    """What came of it."""

    timeline: Timeline
    counts: Counts
    """What the links carried, all rounds together."""


def play(
    scenario: Scenario,
    source: ChannelSource,
    profile: SplitProfile,
    *,
    delay_s: float | None = None,
    decide: Decide | None = None,
    progress: Progress = silent,
) -> Played:
    """Play the scenario's rounds from t = 0, one after the other without a gap.

    Computing takes what the device profile says, also where the scenario would measure it.

    Args:
        scenario: What happens in a round, and what the links are like.
        source: Channels.
        profile: Costs of each split.
        delay_s: One-way delay of every link; left out: the scenario's own delays.
        decide: Who allocates; left out: the scenario's own split and shares.
        progress: Told which round it is, how many emulated seconds it has taken, and as many.

    Raises:
        InputError: ns-3 does not play this transport or congestion control, or the trace is too
            short.
        ChannelError: ns-3 ended, or its models cannot be built.
    """
    shape, emulation = shape_of(scenario), scenario.emulation
    for field, played in (("transport", "tcp"), ("connection", "kept")):
        if (given := getattr(emulation, field)) != played:
            raise InputError(f"emulation.{field}: ns-3 plays {played!r} alone, not {given!r}")
    if scenario.scheme.asynchronous:
        raise InputError(f"paradigm: ns-3 plays synchronous rounds, not {scenario.paradigm!r}")
    if scenario.participation.deadline_s is not None:
        raise InputError("participation.deadline_s: ns-3 plays rounds that wait for all")
    if scenario.faults.events or scenario.faults.random is not None:
        where = "events" if scenario.faults.events else "random"
        raise InputError(f"faults.{where}: ns-3 plays rounds that nothing goes wrong in")
    if scenario.links.queue != "fifo" or scenario.links.ecn:
        raise InputError("links.queue: ns-3 plays 'fifo' alone, without links.ecn")
    if emulation.congestion_control not in CONGESTION_CONTROLS:
        raise InputError(
            f"emulation.congestion_control: ns-3 plays {', '.join(CONGESTION_CONTROLS)}, "
            f"not {emulation.congestion_control!r}"
        )
    air = list(zip(*impairments_of(scenario), strict=True))
    if delay_s is not None and vary_by_slot(scenario):
        raise InputError("delay_s: must be left out where links differ from slot to slot")
    if delay_s is not None:
        air = [(replace(up, delay_s=delay_s), replace(down, delay_s=delay_s)) for up, down in air]
    settings = PacketSettings(
        links=scenario.uavs.count,
        mtu=emulation.mtu,
        frame_header_bytes=ETHERNET_BYTES,
        impairments=air,
        congestion_control=emulation.congestion_control,
        queue_frames=shape.queue_frames,
        initial_window=emulation.initial_window or LINUX_WINDOW,
        nagle=emulation.nagle,
        # Packets that the kernel has cut into frames are acknowledged as such.
        packet_s=0.0 if shape.single_frames else shape.packet_s,
    )
    channel = Channel.of(source)
    with PacketNetwork(settings, ns3_launch()) as network:
        backend = PacketBackend(scenario, channel, profile, network, progress)
        done = list(play_rounds(scenario, channel, backend, decide=decide))
        return Played(Timeline(done), network.counts())


class PacketBackend:
    """Rounds played packet by packet."""

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
        self._transport = transport_of(scenario)

    def play(self, decision: Decision) -> Round:
        """Play one round, from when the last one ended."""
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
            self._transport,
        )
        text = f"ns-3, {which_round(decision.index, scenario.rounds)}"
        played = round_.play(lambda seconds: self._progress(text, seconds, seconds))
        self._now_ns = round_.now_ns
        return played
