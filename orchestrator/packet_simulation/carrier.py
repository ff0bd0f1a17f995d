# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A round with ns-3's packets: actions of the nodes when messages arrive or steps end.

Times are integer nanoseconds of emulated time, as in ns-3.
"""

import heapq
import itertools
import math
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from ns3_scenarios.packets import Network
from ns3_scenarios.trace import SlotTrace
from orchestrator.engine.access import LinkRates, RadioAccess
from orchestrator.engine.engine import round_of_spans
from orchestrator.engine.links import shape_of
from orchestrator.engine.plan import Array, RoundPlan, prospects_of, round_sizes
from orchestrator.engine.radio import radio_access
from orchestrator.engine.rates import first_gradient_s, link_rates, on_channel
from orchestrator.engine.tcp_model import TcpModel
from orchestrator.scenario.channel import Channel
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from testbed.core.orders import Ahead
from testbed.core.server_round import (
    AdaptersArrived,
    BroadcastReceived,
    Compute,
    Computed,
    GradientDelivered,
    Instruction,
    Outlook,
    SendGradient,
    ServerRound,
    SmashedArrived,
    StartClients,
)
from testbed.core.timeline import CA, CB, CF, CM, SG, SM, SPAN, Round, S
from testbed.transport import wire
from testbed.transport.framing import ETHERNET_BYTES
from testbed.transport.wire import RoundSizes
from workloads.costs.profile import SplitProfile

GROWTH_SLOTS = 1024
UP, DOWN = False, True

ChangeLinks = Callable[["PacketRates", int, bool], None]
"""Called at the start of a slot, and when the broadcast is over, to give ns-3's links the channel
of the slot; the last argument is whether the broadcast continues."""


@dataclass(frozen=True)
class Messages:
    """Sizes of a round's messages in TCP, and of their payloads, in bytes."""

    adapters: int
    """The global adapters, from the base station."""
    adapters_up: int
    smashed: int
    gradient: int
    note: int
    """Size of RECEIPT and START, which are only a header."""
    payload: RoundSizes


def messages_of(scenario: Scenario, profile: SplitProfile, split: int, client: int = 1) -> Messages:
    """The message sizes of a client's round for a split point."""
    sizes = round_sizes(scenario, profile, split, client)
    return Messages(
        adapters=wire.message_bytes(sizes.adapters_header + sizes.adapters),
        adapters_up=wire.message_bytes(sizes.adapters_header + sizes.adapters_up),
        smashed=wire.message_bytes(sizes.smashed, sizes.labels),
        gradient=wire.message_bytes(sizes.gradient),
        note=wire.message_bytes(0),
        payload=sizes,
    )


@dataclass(frozen=True, order=True)
class _Due:
    """An action at a known time."""

    at_ns: int
    serial: int
    action: Callable[[], None]


@dataclass
class _Uav:
    """State of a UAV in its current iteration."""

    iteration: int = 0
    backward_ns: int = 0
    """τ_CB(i-1), ns."""
    compute_ns: int = 0
    """τ_CB(i-1) + τ_CF(i), ns."""


class PacketRound:
    """A round: UAVs act when a message arrives or a computing step ends; the base station follows
    `testbed.core.server_round`."""

    def __init__(
        self,
        index: int,
        plan: RoundPlan,
        scenario: Scenario,
        profile: SplitProfile,
        network: Network,
        change: ChangeLinks,
        source: Channel,
        start_ns: int,
        tcp: TcpModel | None = None,
    ):
        self.index = index
        self.plan = plan
        self.radio = radio_access(scenario, source.now)
        self.network = network
        self.change = change
        self.rates = PacketRates(plan, self.radio, scenario, source, tcp)
        self.start_ns = self.now_ns = start_ns
        self.messages = {
            client: messages_of(scenario, profile, split, client)
            for client, split in enumerate(plan.allocation.splits.tolist(), 1)
        }
        clients = plan.allocation.clients or range(1, plan.clients + 1)
        self.uavs = {client: _Uav() for client in clients}
        self.protocol = ServerRound(
            plan.paradigm,
            clients,
            self.rates.first_gradient_ns,
            outlook=Outlook(self.rates.ahead, start_ns, 1e9),
            iterations=dict(enumerate(plan.iterations_of.tolist(), 1)),
        )
        self.broadcasting = True
        self.arrivals: dict[tuple[int, bool], deque[Callable[[], None]]] = defaultdict(deque)
        self.dues: list[_Due] = []
        self.serial = itertools.count()
        self.spans: list[tuple[int, int, int, float, float, int]] = []

    def play(self, progress: Callable[[float], None]) -> Round:
        """Simulate the round from the broadcast to the last adapters."""
        slot_ns = self.rates.slot_ns
        slot = self.now_ns // slot_ns
        self._set_rates(slot)
        for client in self.uavs:
            self._send(
                client, DOWN, self.messages[client].adapters, partial(self._broadcast, client)
            )
        while not self.protocol.is_over:
            boundary_ns = (slot + 1) * slot_ns
            until_ns = min([boundary_ns, *(due.at_ns for due in self.dues[:1])])
            self.now_ns, arrived = self.network.advance(until_ns)
            if self.now_ns == boundary_ns:
                slot += 1
                self._set_rates(slot)
                progress((self.now_ns - self.start_ns) / 1e9)
            for arrival in arrived:
                self.arrivals[arrival.link, arrival.down].popleft()()
            while self.dues and self.dues[0].at_ns <= self.now_ns:
                heapq.heappop(self.dues).action()
            for instruction in self.protocol.instructions():
                self._begin(instruction)
        return round_of_spans(
            self.index,
            self.plan,
            self.radio,
            self.start_ns / 1e9,
            np.array(self.spans, dtype=SPAN),
        )

    # --- the UAV

    def _broadcast(self, client: int) -> None:
        received = BroadcastReceived(client, self.now_ns)
        self._note(client, 1, SM, self.start_ns, self.messages[client].payload.adapters)
        self._send(client, UP, self.messages[client].note, partial(self.protocol.tell, received))

    def _forward(self, client: int, start_ns: int) -> None:
        mine = self.uavs[client]
        mine.iteration += 1
        forward_ns = _ns(self.plan.cf_s[client - 1, mine.iteration - 1])
        if mine.iteration == 1:
            mine.backward_ns = round(self.plan.backward_ratio * forward_ns)
        mine.compute_ns = mine.backward_ns + forward_ns

        def done() -> None:
            self._note(client, mine.iteration, CF, start_ns)
            sent_ns = self.now_ns
            self._send(
                client, UP, self.messages[client].smashed, partial(self._smashed, client, sent_ns)
            )

        self._at(start_ns + forward_ns, done)

    def _gradient(self, client: int, sent_ns: int) -> None:
        mine, start_ns = self.uavs[client], self.now_ns
        self._note(client, mine.iteration, SG, sent_ns, self.messages[client].payload.gradient)
        self._send(
            client,
            UP,
            self.messages[client].note,
            partial(self._delivered, client, sent_ns, start_ns),
        )
        mine.backward_ns = _ns(self.plan.cb_s[client - 1, mine.iteration - 1])

        def done() -> None:
            self._note(client, mine.iteration, CB, start_ns)
            if mine.iteration < self.plan.iterations_of[client - 1]:
                self._forward(client, self.now_ns)
                return
            sent_ns = self.now_ns
            size = self.messages[client].adapters_up
            self._send(client, UP, size, partial(self._adapters, client, sent_ns))

        self._at(start_ns + mine.backward_ns, done)

    # --- the base station

    def _smashed(self, client: int, sent_ns: int) -> None:
        mine = self.uavs[client]
        self._note(client, mine.iteration, CA, sent_ns, self.messages[client].payload.smashed)
        self.protocol.tell(
            SmashedArrived(client, mine.iteration, sent_ns, self.now_ns, mine.compute_ns)
        )

    def _begin(self, instruction: Instruction) -> None:
        match instruction:
            case StartClients(clients):
                self.broadcasting = False
                self._set_rates(self.now_ns // self.rates.slot_ns)
                for client in clients:
                    start = partial(self._forward, client, int(instruction.at))
                    self._send(client, DOWN, self.messages[client].note, start)
            case Compute(client, iteration):
                server_ns = _ns(self.plan.s_s[client - 1, iteration - 1])
                computed = partial(self._computed, client, iteration, self.now_ns)
                self._at(self.now_ns + server_ns, computed)
            case SendGradient(client):
                arrived = partial(self._gradient, client, self.now_ns)
                self._send(client, DOWN, self.messages[client].gradient, arrived)
            case _:
                raise AssertionError(f"clients cannot be lost here: {instruction}")

    def _computed(self, client: int, iteration: int, start_ns: int) -> None:
        self._note(client, iteration, S, start_ns)
        self.protocol.tell(Computed(client, self.now_ns))

    def _delivered(self, client: int, sent_ns: int, arrived_ns: int) -> None:
        self.protocol.tell(GradientDelivered(client, sent_ns, arrived_ns, self.now_ns))

    def _adapters(self, client: int, sent_ns: int) -> None:
        self._note(
            *(client, int(self.plan.iterations_of[client - 1]), CM, sent_ns),
            self.messages[client].payload.adapters_up,
        )
        self.protocol.tell(AdaptersArrived(client))

    # --- time and links

    def _at(self, at_ns: int, action: Callable[[], None]) -> None:
        """Schedule an action; it is not executed before the current time."""
        heapq.heappush(self.dues, _Due(max(at_ns, self.now_ns), next(self.serial), action))

    def _send(self, client: int, down: bool, size: int, arrived: Callable[[], None]) -> None:
        self.network.send(client, down, size)
        self.arrivals[client, down].append(arrived)

    def _note(self, client: int, iteration: int, step: int, start_ns: int, size: int = 0) -> None:
        self.spans.append((client, iteration, step, start_ns / 1e9, self.now_ns / 1e9, size))

    def _set_rates(self, slot: int) -> None:
        self.change(self.rates, slot, self.broadcasting)
        impairments = self.rates.impairments_at(slot, broadcast=self.broadcasting)
        if impairments is not None:
            self.network.impair(*impairments)


class PacketRates:
    """Rates of the links in each slot, as in the emulation."""

    def __init__(
        self,
        plan: RoundPlan,
        radio: RadioAccess,
        scenario: Scenario,
        source: Channel,
        tcp: TcpModel | None = None,
    ):
        self.plan = plan
        self.radio = radio
        self.source = source
        self.links = LinkRates(*(np.empty((plan.clients, 0)) for _ in LinkRates._fields))
        self.tcp = tcp
        self.carries = self.links
        """Rates that remain if frames are retransmitted."""
        self.slot_ns = _ns(scenario.slot_s)
        shape = shape_of(scenario)
        self.least_bps = shape.lowest_rate(scenario.slot_s)
        # If the scenario's rates are for payload, full frames need rates that are larger by this.
        self.factor = (scenario.emulation.mtu + ETHERNET_BYTES) / shape.frame_bytes
        self.first_gradients_s = np.empty((plan.clients, 0))
        self.prospects = prospects_of(plan)

    def at(self, slot: int, broadcast: bool) -> tuple[list[float], list[float]]:
        """Rates of uplinks and downlinks in a slot, for ns-3's frames."""
        self._grow(slot)
        downlink = self.carries.broadcast if broadcast else self.carries.gradient
        return self._carried(self.carries.uplink[:, slot]), self._carried(downlink[:, slot])

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

    def first_gradient_ns(self, client: int, arrived_ns: float) -> int:
        """τ'_SG(0) for smashed data that arrive at a time; 0 if the order does not need it."""
        if not self.plan.paradigm.asks_for_first_gradient:
            return 0
        slot = int(arrived_ns) // self.slot_ns
        self._grow(slot)
        return _ns(self.first_gradients_s[client - 1, slot])

    def ahead(self, client: int, iteration: int, enqueued_ns: float) -> Ahead:
        """A client's remaining work, at the rates of the slot in which it is enqueued."""
        slot = int(enqueued_ns) // self.slot_ns
        self._grow(slot)
        up, down = self.links.uplink[client - 1, slot], self.links.gradient[client - 1, slot]
        return self.prospects.ahead(client, iteration, float(up), float(down))

    def _carried(self, rate_bps: Array) -> list[float]:
        carried = np.where(rate_bps < self.least_bps, 0.0, self.factor * rate_bps)
        return list(map(float, carried))

    def _grow(self, slot: int) -> None:
        if slot < self.links.uplink.shape[1]:
            return
        channel = self.channel(slot)
        self.links = link_rates(self.plan, self.radio, channel.values)
        self.first_gradients_s = first_gradient_s(self.plan, self.links.gradient)
        self.tcp = on_channel(self.tcp, self.plan, self.radio, channel)
        slots = None if self.tcp is None else self.tcp.slots
        self.carries = self.links if slots is None else self.links.slowed(slots)


def _ns(seconds: float) -> int:
    return round(float(seconds) * 1e9)
