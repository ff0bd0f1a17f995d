"""One round on ns-3's packets: what the nodes do when a message is in or a step is over.

Time is whole nanoseconds of emulated time, as ns-3 counts it.
"""

import heapq
import itertools
import math
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from ns3_scenarios.packets import PacketNetwork
from orchestrator.prediction.engine import round_of_spans
from orchestrator.prediction.plan import (
    Array,
    Radio,
    RoundPlan,
    payload_bytes,
    radio_of,
)
from orchestrator.prediction.rates import broadcast_bps, dedicated_bps, uplink_bps
from orchestrator.scenario.channel import Channel
from orchestrator.scenario.links import shape_of
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from testbed.core.schedule import Schedule, Start
from testbed.core.timeline import CA, CB, CF, CM, SG, SM, SPAN, Round, S
from testbed.network.framing import ETHERNET_BYTES
from testbed.transport import wire
from workloads.costs.profile import SplitProfile

GROWTH_SLOTS = 1024
UP, DOWN = False, True


@dataclass(frozen=True)
class Messages:
    """Bytes of a round's messages as TCP sees them, and of their payloads."""

    adapters: int
    smashed: int
    gradient: int
    note: int
    """RECEIPT and START: a header alone."""
    adapters_payload: int
    smashed_payload: int
    gradient_payload: int


def messages_of(scenario: Scenario, profile: SplitProfile, split: int) -> Messages:
    """The messages of a round at that split point."""
    payload = payload_bytes(scenario, profile, split)
    header = profile.adapter_header_bytes[split - 1]
    return Messages(
        adapters=wire.message_bytes(header + payload.adapters),
        smashed=wire.message_bytes(payload.smashed, scenario.workload.batch_size),
        gradient=wire.message_bytes(payload.gradient),
        note=wire.message_bytes(0),
        adapters_payload=payload.adapters,
        smashed_payload=payload.smashed,
        gradient_payload=payload.gradient,
    )


@dataclass(frozen=True, order=True)
class _Due:
    """Something that happens at a known time."""

    at_ns: int
    serial: int
    happen: Callable[[], None]


@dataclass
class _Client:
    """What a UAV and the base station know of its current iteration."""

    iteration: int = 0
    backward_ns: int = 0
    """τ_CB(i-1)."""
    compute_ns: int = 0
    """τ_CB(i-1) + τ_CF(i)."""
    lag_ns: int = 0
    gradient_ns: int | None = None
    """τ_SG(i-1)."""
    start_ns: int = 0
    """Of the server's computing, then of its gradient."""


class PacketRound:
    """One round: what nodes do when a message has arrived or a computing step is over."""

    def __init__(
        self,
        index: int,
        plan: RoundPlan,
        scenario: Scenario,
        profile: SplitProfile,
        network: PacketNetwork,
        source: Channel,
        start_ns: int,
    ):
        self.index = index
        self.plan = plan
        self.radio = radio_of(scenario)
        self.network = network
        self.rates = PacketRates(plan, self.radio, scenario, source)
        self.start_ns = self.now_ns = start_ns
        self.messages = messages_of(scenario, profile, plan.allocation.split)
        self.schedule = Schedule(plan.paradigm, plan.clients)
        self.clients = {client: _Client() for client in range(1, plan.clients + 1)}
        self.arrivals: dict[tuple[int, bool], deque[Callable[[], None]]] = defaultdict(deque)
        self.dues: list[_Due] = []
        self.serial = itertools.count()
        self.spans: list[tuple[int, int, int, float, float, int]] = []
        self.waiting = self.unfinished = plan.clients
        self.started_ns = 0

    def play(self, progress: Callable[[float], None]) -> Round:
        """From the broadcast to the last adapters."""
        slot_ns = self.rates.slot_ns
        slot = self.now_ns // slot_ns
        self._set_rates(slot)
        for client in self.clients:
            self._send(client, DOWN, self.messages.adapters, partial(self._broadcast, client))
        while self.unfinished:
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
                heapq.heappop(self.dues).happen()
            for start in self.schedule.start():
                self._begin(start)
        return round_of_spans(
            self.index,
            self.plan,
            self.radio,
            self.start_ns / 1e9,
            np.array(self.spans, dtype=SPAN),
        )

    # The UAV.

    def _broadcast(self, client: int) -> None:
        arrived_ns = self.now_ns
        self._note(client, 1, SM, self.start_ns, self.messages.adapters_payload)
        self._send(client, UP, self.messages.note, partial(self._has_broadcast, arrived_ns))

    def _forward(self, client: int, start_ns: int) -> None:
        mine = self.clients[client]
        mine.iteration += 1
        forward_ns = _ns(self.plan.cf_s[client - 1, mine.iteration - 1])
        if mine.iteration == 1:
            mine.backward_ns = round(self.plan.backward_ratio * forward_ns)
        mine.compute_ns = mine.backward_ns + forward_ns

        def done() -> None:
            self._note(client, mine.iteration, CF, start_ns)
            sent_ns = self.now_ns
            self._send(client, UP, self.messages.smashed, partial(self._smashed, client, sent_ns))

        self._at(start_ns + forward_ns, done)

    def _gradient(self, client: int, sent_ns: int) -> None:
        mine, start_ns = self.clients[client], self.now_ns
        self._note(client, mine.iteration, SG, sent_ns, self.messages.gradient_payload)
        self._send(
            client, UP, self.messages.note, partial(self._delivered, client, sent_ns, start_ns)
        )
        mine.backward_ns = _ns(self.plan.cb_s[client - 1, mine.iteration - 1])

        def done() -> None:
            self._note(client, mine.iteration, CB, start_ns)
            if mine.iteration < self.plan.iterations:
                self._forward(client, self.now_ns)
                return
            sent_ns = self.now_ns
            self._send(client, UP, self.messages.adapters, partial(self._adapters, client, sent_ns))

        self._at(start_ns + mine.backward_ns, done)

    # The base station.

    def _has_broadcast(self, arrived_ns: int) -> None:
        self.started_ns = max(self.started_ns, arrived_ns)
        self.waiting -= 1
        if self.waiting:
            return
        self._set_rates(self.now_ns // self.rates.slot_ns)
        for client in self.clients:
            start = partial(self._forward, client, self.started_ns)
            self._send(client, DOWN, self.messages.note, start)

    def _smashed(self, client: int, sent_ns: int) -> None:
        mine = self.clients[client]
        self._note(client, mine.iteration, CA, sent_ns, self.messages.smashed_payload)
        mine.lag_ns = mine.compute_ns + self.now_ns - sent_ns
        if mine.gradient_ns is None:
            mine.gradient_ns = _ns(self.rates.first_gradient_s(client, self.now_ns))
        self.schedule.smashed_arrived(
            client, mine.iteration, self.now_ns / 1e9, (mine.lag_ns + mine.gradient_ns) / 1e9
        )

    def _begin(self, start: Start) -> None:
        mine = self.clients[start.client]
        mine.start_ns = self.now_ns
        if start.resource == "compute":
            server_ns = _ns(self.plan.s_s[start.client - 1, mine.iteration - 1])
            self._at(self.now_ns + server_ns, partial(self._computed, start.client))
        else:
            arrived = partial(self._gradient, start.client, self.now_ns)
            self._send(start.client, DOWN, self.messages.gradient, arrived)

    def _computed(self, client: int) -> None:
        mine = self.clients[client]
        self._note(client, mine.iteration, S, mine.start_ns)
        lag_ns = mine.lag_ns + self.now_ns - mine.start_ns
        self.schedule.computed(client, mine.iteration, self.now_ns / 1e9, lag_ns / 1e9)

    def _delivered(self, client: int, sent_ns: int, arrived_ns: int) -> None:
        self.clients[client].gradient_ns = arrived_ns - sent_ns
        self.schedule.delivered(self.now_ns / 1e9)

    def _adapters(self, client: int, sent_ns: int) -> None:
        self._note(client, self.plan.iterations, CM, sent_ns, self.messages.adapters_payload)
        self.unfinished -= 1

    # Time and links.

    def _at(self, at_ns: int, happen: Callable[[], None]) -> None:
        """A step that began earlier than it was known of may end no sooner than now."""
        heapq.heappush(self.dues, _Due(max(at_ns, self.now_ns), next(self.serial), happen))

    def _send(self, client: int, down: bool, size: int, arrived: Callable[[], None]) -> None:
        self.network.send(client, down, size)
        self.arrivals[client, down].append(arrived)

    def _note(self, client: int, iteration: int, step: int, start_ns: int, size: int = 0) -> None:
        self.spans.append((client, iteration, step, start_ns / 1e9, self.now_ns / 1e9, size))

    def _set_rates(self, slot: int) -> None:
        self.network.rates(*self.rates.at(slot, broadcast=self.waiting > 0))


class PacketRates:
    """Rates of the links in each slot, as the emulation sets them."""

    def __init__(self, plan: RoundPlan, radio: Radio, scenario: Scenario, source: Channel):
        self.plan = plan
        self.radio = radio
        self.source = source
        self.slot_ns = _ns(scenario.slot_s)
        shape = shape_of(scenario)
        self.least_bps = shape.lowest_rate(scenario.slot_s)
        # Where the rate carries payload alone, full frames need this much more of it.
        self.factor = (scenario.emulation.mtu + ETHERNET_BYTES) / shape.frame_bytes
        self.uplink = self.broadcast = self.gradient = np.empty((plan.clients, 0))

    def at(self, slot: int, broadcast: bool) -> tuple[list[float], list[float]]:
        """Rates of the uplinks and of the downlinks in that slot, as ns-3's frames need them."""
        self._grow(slot)
        downlink = self.broadcast if broadcast else self.gradient
        return self._carried(self.uplink[:, slot]), self._carried(downlink[:, slot])

    def first_gradient_s(self, client: int, arrived_ns: int) -> float:
        """τ'_SG(0), for the first lag under sequential computing: at the rate of that slot."""
        paradigm, slot = self.plan.paradigm, arrived_ns // self.slot_ns
        if paradigm.server_compute == "parallel" or paradigm.order == "first-come":
            return 0.0
        self._grow(slot)
        rate_bps = float(self.gradient[client - 1, slot])
        return 8 * float(self.plan.sg_bytes[client - 1, 0]) / rate_bps if rate_bps else 1e9

    def _carried(self, rate_bps: Array) -> list[float]:
        carried = np.where(rate_bps < self.least_bps, 0.0, self.factor * rate_bps)
        return list(map(float, carried))

    def _grow(self, slot: int) -> None:
        if slot < self.uplink.shape[1]:
            return
        channel = self.source.trace(math.ceil(1.5 * slot) + GROWTH_SLOTS)
        if slot >= channel.slots:
            raise InputError(f"trace: its {channel.slots} slots end before ns-3's round does")
        share, sequential = self.plan.allocation, self.plan.paradigm.gradient_transmission
        self.uplink = uplink_bps(self.radio, share.beta, channel.gain)
        self.broadcast = broadcast_bps(self.radio, channel.gain)
        self.gradient = (
            self.broadcast
            if sequential == "sequential"
            else dedicated_bps(self.radio, share.beta, share.rho, channel.gain)
        )


def _ns(seconds: float) -> int:
    return round(float(seconds) * 1e9)
