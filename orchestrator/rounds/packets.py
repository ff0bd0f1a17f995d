# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Transfers of a round as ns-3's packets: a carrier for `orchestrator.rounds.conductor`.

Times within ns-3 are integer nanoseconds of emulated time.
"""

import math
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ns3_scenarios.packets import Network
from ns3_scenarios.trace import SlotTrace
from orchestrator.engine.access import LinkRates, RadioAccess
from orchestrator.engine.faults import RoundFaults
from orchestrator.engine.links import shape_of
from orchestrator.engine.plan import Array, RoundPlan, round_sizes
from orchestrator.engine.radio import power_share
from orchestrator.engine.rates import link_rates, on_channel
from orchestrator.engine.slot_impairments import UP
from orchestrator.engine.tcp_model import TcpModel
from orchestrator.rounds.conductor import SHARED
from orchestrator.scenario.channel import Channel
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from testbed.core.timeline import CA, CM, SG, SM
from testbed.transport import wire
from testbed.transport.framing import ETHERNET_BYTES
from workloads.costs.profile import SplitProfile

if TYPE_CHECKING:
    from orchestrator.rounds.conductor import Conductor, Then

GROWTH_SLOTS = 1024
WORD = -2
"""A message without content: RECEIPT, START and the like."""

ChangeLinks = Callable[["PacketRates", int, bool], None]
"""Called at the start of a slot, and when a broadcast begins or is over, to give ns-3's links the
channel of the slot; the last argument is whether there is a broadcast."""


def message_sizes(
    scenario: Scenario, profile: SplitProfile, split: int, client: int
) -> dict[int, int]:
    """Sizes of a client's messages in TCP in bytes, by step, `SHARED` and `WORD`."""
    sizes = round_sizes(scenario, profile, split, client)
    return {
        SM: wire.message_bytes(sizes.adapters_header + sizes.adapters),
        CA: wire.message_bytes(sizes.smashed, sizes.labels),
        SG: wire.message_bytes(sizes.gradient),
        CM: wire.message_bytes(sizes.adapters_header + sizes.adapters_up),
        SHARED: wire.message_bytes(sizes.shared_gradient),
        WORD: wire.message_bytes(0),
    }


@dataclass
class PacketLinks:
    """The links of a run in ns-3."""

    network: Network
    change: ChangeLinks
    now_ns: int = 0

    def __post_init__(self) -> None:
        """Nothing is on its way."""
        self.on_its_way: dict[tuple[int, bool], deque[Then | None]] = defaultdict(deque)
        """The action after each message, by client and whether it goes down; None: its client is
        lost."""


class Packets:
    """A carrier over ns-3's packets.

    Args:
        conductor: The conductor of the round.
        links: The links of the run.
        rates: Rates of the links.
        sizes: Sizes of each client's messages, from client 1 on.
        progress: Called with the seconds since the start of the round, once per slot.
    """

    credit_s, end_s, slots, unicasts = 0.0, math.inf, 0, False

    def __init__(
        self,
        conductor: "Conductor",
        links: PacketLinks,
        rates: "PacketRates",
        sizes: list[dict[int, int]],
        progress: Callable[[float], None],
    ):
        self.conductor, self.links, self.rates, self.sizes = conductor, links, rates, sizes
        self.progress = progress
        self.broadcasting = False
        self._set()

    def begin(self, step: int, client: int, way: int, size: int, at_s: float, then: "Then") -> None:
        """See `Carrier.begin`."""
        down = way != UP

        def send(_: float) -> None:
            if client in self.conductor.protocol.here:
                self.links.network.send(client, down, self.sizes[client - 1][step])
                self.links.on_its_way[client, down].append(then)

        if _ns(at_s) <= self.links.now_ns:
            send(at_s)
        else:
            self.conductor.at(client, at_s, send)

    def word(
        self, way: int, client: int, at_s: float, then: "Then", *, answers: bool = False
    ) -> None:
        """See `Carrier.word`."""
        self.begin(WORD, client, way, 0, at_s, then)

    def advance(self, until_s: float) -> bool:
        """See `Carrier.advance`."""
        links, slot_ns = self.links, self.rates.slot_ns
        until_ns = math.inf if math.isinf(until_s) else _ns(until_s)
        while links.now_ns < until_ns:
            boundary_ns = (links.now_ns // slot_ns + 1) * slot_ns
            links.now_ns, arrived = links.network.advance(int(min(boundary_ns, until_ns)))
            if links.now_ns == boundary_ns:
                self._set()
                self.progress(links.now_ns / 1e9 - self.conductor.start_s)
            found = False
            for each in arrived:
                then = links.on_its_way[each.link, each.down].popleft()
                if then is not None:
                    self.conductor.at(each.link, links.now_ns / 1e9, then)
                    found = True
            if found:
                return True
        return False

    def rate(self, way: int, client: int, at_s: float) -> float:
        """See `Carrier.rate`."""
        rates = self.rates.of_slot(_ns(at_s) // self.rates.slot_ns)
        return float((rates.uplink if way == UP else rates.gradient)[client - 1])

    def lose(self, client: int) -> None:
        """See `Carrier.lose`; what TCP has already been given is still carried."""
        for down in (False, True):
            waiting = self.links.on_its_way[client, down]
            self.links.on_its_way[client, down] = deque([None] * len(waiting))

    def broadcasts(self, *, now: bool) -> None:
        """See `Carrier.broadcasts`."""
        if now != self.broadcasting:
            self.broadcasting = now
            self._set()

    def _set(self) -> None:
        """Give ns-3 the channel of the present slot."""
        slot = self.links.now_ns // self.rates.slot_ns
        self.links.change(self.rates, slot, self.broadcasting)
        impairments = self.rates.impairments_at(slot, broadcast=self.broadcasting)
        if impairments is not None:
            self.links.network.impair(*impairments)


class PacketRates:
    """Rates of the links in each slot, as in the emulation."""

    def __init__(
        self,
        plan: RoundPlan,
        radio: RadioAccess,
        scenario: Scenario,
        source: Channel,
        tcp: TcpModel | None = None,
        faults: RoundFaults | None = None,
    ):
        self.plan = plan
        self.radio = radio
        self.source = source
        self.faults = faults
        self.tcp = tcp
        self._links = LinkRates(*(np.empty((plan.clients, 0)) for _ in LinkRates._fields))
        self._carries = self._links
        """Rates that remain if frames are retransmitted."""
        self.power = power_share(scenario, plan.allocation)
        """Transmit power of each UAV relative to that of the scenario, [K]; None: equal."""
        self.slot_ns = _ns(scenario.slot_s)
        shape = shape_of(scenario)
        self.least_bps = shape.lowest_rate(scenario.slot_s)
        # If the scenario's rates are for payload, full frames need rates that are larger by this.
        self.factor = (scenario.emulation.mtu + ETHERNET_BYTES) / shape.frame_bytes

    def of_slot(self, slot: int) -> LinkRates:
        """Rates of the model in a slot, shape [K] each."""
        self._grow(slot)
        return LinkRates(*(each[:, slot] for each in self._links))

    def at(self, slot: int, broadcast: bool) -> tuple[list[float], list[float]]:
        """Rates of uplinks and downlinks in a slot, for ns-3's frames."""
        self._grow(slot)
        downlink = self._carries.broadcast if broadcast else self._carries.gradient
        return self._framed(self._carries.uplink[:, slot]), self._framed(downlink[:, slot])

    def impairments_at(self, slot: int, broadcast: bool) -> tuple[Array, Array] | None:
        """Impairments of frames on uplinks and downlinks in a slot; None if all slots are equal.

        Delay and jitter in s, and probability of loss; shape [K, 3] each.
        """
        if self.tcp is None or self.tcp.slots is None:
            return None
        up, before, after = self.tcp.slots.given(slot, slot + 1, 1.0)
        return up[:, 0], (before if broadcast else after)[:, 0]

    def channel(self, slot: int) -> SlotTrace:
        """The channel, which has at least this slot.

        Raises:
            InputError: The trace is too short.
        """
        channel = self.source.now
        if slot >= channel.slots:
            channel = self.source.trace(math.ceil(1.5 * slot) + GROWTH_SLOTS)
        if slot >= channel.slots:
            raise InputError(f"trace: its {channel.slots} slots end before ns-3's round does")
        return channel

    def silent(self, slot: int) -> list[int]:
        """Indices of the clients that are silent in a slot, from 0."""
        found = () if self.faults is None else self.faults.silent
        return [
            client - 1
            for client, first, end in found
            if first <= slot and (end is None or slot < end)
        ]

    def _framed(self, rate_bps: Array) -> list[float]:
        framed = np.where(rate_bps < self.least_bps, 0.0, self.factor * rate_bps)
        return list(map(float, framed))

    def _grow(self, slot: int) -> None:
        if slot < self._links.uplink.shape[1]:
            return
        channel = self.channel(slot)
        values = channel.values if self.faults is None else self.faults.silenced(channel.values)
        self._links = link_rates(self.plan, self.radio, values)
        self.tcp = on_channel(self.tcp, self.plan, self.radio, channel)
        slots = None if self.tcp is None else self.tcp.slots
        self._carries = self._links if slots is None else self._links.slowed(slots)


def _ns(seconds: float) -> int:
    return round(float(seconds) * 1e9)
