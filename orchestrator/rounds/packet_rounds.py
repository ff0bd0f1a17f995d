# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Simulates a scenario's rounds with ns-3's packets, in addition to the engine and the emulation.

Nodes are simulated by their messages: the same messages and sizes as in the emulation, over one TCP
connection per link, with the same modelled computing and the same protocol of the base station
(`orchestrator.rounds.conductor`), driven by the arrivals of ns-3's packets. Links have the rates of
the radio model (`ns3_scenarios.packets`); or, with LTE that UAVs share, packets pass the radio
access that ns-3 simulates (`ns3_scenarios.radio_packets`), and the model's rates are only those
that decisions are based on. Times are integer nanoseconds of emulated time, as in ns-3.

One difference from the emulated base station is intended: a gradient starts when the receipt of the
previous one has arrived, whereas the kernel's links make up for that time with their burst credit.
"""

from dataclasses import dataclass, replace
from functools import partial

from ns3_scenarios.packets import (
    Counts,
    Network,
    PacketNetwork,
    PacketSettings,
)
from ns3_scenarios.radio import CellSettings, LteSettings, NrSettings, WifiSettings
from ns3_scenarios.radio_packets import RadioPacketNetwork
from ns3_scenarios.trace import ChannelSource
from orchestrator.engine.faults import RoundFaults
from orchestrator.engine.flight import with_flight
from orchestrator.engine.links import impairments_of, shape_of
from orchestrator.engine.plan import decided, link_bytes, payload_bytes, plan_round
from orchestrator.rounds.conductor import Conductor
from orchestrator.rounds.loop import Decide, Decision, EngineBackend, play_rounds
from orchestrator.rounds.ns3_radio import air_of, settings_of, slot_of
from orchestrator.rounds.packets import (
    ChangeLinks,
    PacketLinks,
    PacketRates,
    Packets,
    message_sizes,
)
from orchestrator.rounds.simulation import conducted, round_of
from orchestrator.scenario.channel import Channel, ns3_launch
from orchestrator.scenario.combinations import check
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
        InputError: ns-3 does not support this transport, congestion control or radio access, or the
            trace is too short.
        ChannelError: ns-3 ended, or its models cannot be built.
    """
    shape, emulation = shape_of(scenario), scenario.emulation
    check_packets(scenario, delays=delay_s is not None)
    channel, cell = Channel.of(source), radio_of(scenario)
    impairments = list(zip(*impairments_of(scenario), strict=True))
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
    network, change = _links(scenario, channel, cell, settings)
    with network:
        backend = PacketBackend(scenario, channel, profile, PacketLinks(network, change), progress)
        done = list(play_rounds(scenario, channel, backend, decide=decide))
        return Played(Timeline(done), network.counts())


def check_packets(scenario: Scenario, *, delays: bool) -> None:
    """Refuse a scenario that ns-3's packets do not support.

    Args:
        scenario: The scenario.
        delays: Whether another delay replaces that of the links.

    Raises:
        InputError: A key does not fit; the message names it.
    """
    check(scenario, "cross-check", *["--delay-ms"] * delays)
    radio_of(scenario)


def radio_of(scenario: Scenario) -> CellSettings | None:
    """The radio access of ns-3 that the scenario's packets pass; None: links at the model's rates.

    Raises:
        InputError: ns-3 lacks a feature of the scenario's cell.
    """
    access = scenario.packet_radio
    return None if access is None else settings_of(scenario, f"ns3-{access}")


def simulated_radio(scenario: Scenario) -> str:
    """Name of the radio access of ns-3 that the scenario's packets pass; empty if there is none."""
    match radio_of(scenario):
        case None:
            return ""
        case LteSettings():
            return "ns-3's LTE"
        case NrSettings():
            return "5G-LENA's NR"
        case WifiSettings():
            return "ns-3's Wi-Fi"


def _links(
    scenario: Scenario,
    channel: Channel,
    cell: CellSettings | None,
    settings: PacketSettings,
) -> tuple[Network, ChangeLinks]:
    if cell is None:
        plain = PacketNetwork(settings, ns3_launch())
        return plain, partial(_set_rates, plain)
    air = air_of(scenario, channel.now, cell)
    try:
        network = RadioPacketNetwork(air, cell, settings, ns3_launch())
    except ValueError as error:
        raise InputError(str(error)) from None
    return network, partial(_set_gains, network, scenario)


def _set_rates(network: PacketNetwork, rates: PacketRates, slot: int, is_broadcast: bool) -> None:
    network.rates(*rates.at(slot, broadcast=is_broadcast))


def _set_gains(
    network: RadioPacketNetwork, scenario: Scenario, rates: PacketRates, slot: int, _: bool
) -> None:
    up, down, position_m = slot_of(scenario, rates.channel(slot), slot)
    silent = rates.silent(slot)
    up[:, silent], down[:, silent] = 0.0, 0.0
    if rates.power is not None:
        up = up * rates.power[:, None]
    network.gains(slot, up, down, position_m)


class PacketBackend(EngineBackend):
    """A backend that simulates rounds packet by packet.

    Args:
        scenario: Scenario of the rounds.
        channel: Channel.
        profile: Costs of each split.
        links: The links of the run in ns-3.
        progress: Called with the round, and twice the emulated seconds since its start.
    """

    def __init__(
        self,
        scenario: Scenario,
        channel: Channel,
        profile: SplitProfile,
        links: PacketLinks,
        progress: Progress,
    ):
        super().__init__(scenario, channel, profile, link_bytes)
        self._links = links
        self._progress = progress

    def play_ahead(self, decision: Decision, start_s: float, rounds: int) -> list[Round]:
        """No round: the engine must not play rounds whose packets ns-3 plays."""
        return []

    def simulate(self, decision: Decision, faults: RoundFaults | None) -> Round:
        """See `EngineBackend.simulate`."""
        scenario, allocation = self._scenario, decision.allocation
        plan = self.plan(allocation)
        if faults is not None and faults.absent.all():
            return super().simulate(decision, faults)
        radio, of_round = self.radio(allocation), decided(scenario, allocation)
        rates = PacketRates(plan, radio, scenario, self._channel, self.tcp(decision.index), faults)
        text = f"ns-3, {which_round(decision.index, scenario.rounds)}"
        carrier = partial(
            Packets,
            links=self._links,
            rates=rates,
            sizes=[
                message_sizes(of_round, self._profile, split, client)
                for client, split in enumerate(allocation.splits.tolist(), 1)
            ],
            progress=lambda seconds: self._progress(text, seconds, seconds),
        )
        shown = plan_round(scenario, self._profile, allocation, payload_bytes)
        conductor = Conductor(plan, decision.start_s, carrier, faults, shown=shown)
        made = round_of(decision.index, plan, conducted(conductor, radio))
        return with_flight(scenario, made, self._channel.now)
