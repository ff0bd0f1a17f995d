# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Link rates of the emulated network: from channel and radio to the injector, slot by slot.

`RateFeed` computes what links carry in a range of slots and hands it to the injector. Its two
schedules are `RoundRates`, which grows while a round lasts, and `SessionRates`, which keeps some
seconds ahead of a session for as long as that lasts.
"""

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import pandas as pd

from ns3_scenarios.trace import SlotTrace, TraceExhausted
from orchestrator.engine.faults import RoundFaults
from orchestrator.engine.links import vary_by_slot
from orchestrator.engine.plan import Allocation, Array, RoundPlan, fixed_allocation
from orchestrator.engine.radio import LinkRates, RadioAccess, radio_access
from orchestrator.engine.rates import impaired_slots, link_rates, on_channel
from orchestrator.engine.slot_impairments import BROADCAST, DOWN, UP, SlotImpairments
from orchestrator.engine.tcp_model import TcpModel
from orchestrator.scenario.channel import Channel
from orchestrator.scenario.schema import ResolvedScenario
from testbed.core.timeline import Round
from testbed.network.injector import Injector
from testbed.network.shaping import Shape

Played = TypeVar("Played")
WARN_SLOTS = 20
"""Slots before the end of its rates at which the injector of a round asks for more."""
AHEAD_S = 30.0
"""Emulated seconds of rates that the injector of a session has at least; it gets twice as many."""


class RateFeed:
    """Gives an injector the rates of links, and what they do to frames."""

    def __init__(self, channel: Channel, radio: RadioAccess, dilation: float):
        self.channel = channel
        self.radio = radio
        self.dilation = dilation
        """Real seconds per emulated second."""
        self.slot_s = channel.slot_s

    def hand_over(
        self,
        injector: Injector,
        first: int,
        tables_bps: Sequence[Array],
        impairments: Sequence[Array] | None = None,
        *,
        warn_slots: int = WARN_SLOTS,
    ) -> None:
        """Give the injector a table of rates.

        Args:
            injector: Who sets the rates.
            first: The slot of the first column.
            tables_bps: Emulated bit/s, [K, n] each: uplinks, then downlinks by phase of a round.
            impairments: What slots do to frames, as `SlotImpairments.given` has it; None: nothing.
            warn_slots: See `Injector.rates`.
        """
        if impairments is not None:
            injector.air(first, *impairments)
        tables = (bps / self.dilation for bps in tables_bps)
        injector.rates(first, *tables, warn_slots=warn_slots)


class RoundRates(RateFeed):
    """Link rates of a round's slots, in emulated bit/s; grows while the round lasts."""

    def __init__(
        self,
        plan: RoundPlan,
        radio: RadioAccess,
        channel: Channel,
        first: int,
        faults: RoundFaults | None,
        tcp: TcpModel | None = None,
        dilation: float = 1.0,
    ):
        super().__init__(channel, radio, dilation)
        self.plan = plan
        self.first = first
        self.end = first
        self.faults = faults
        self.tcp = tcp
        """As far as the rates go."""

    def grow(self, end: int) -> None:
        """Have rates up to slot `end`, or as far as the channel goes."""
        trace = self.channel.trace(end)
        self.end = min(end, trace.slots)
        self.gain = trace.values
        if self.faults is not None:
            self.gain = self.faults.silenced(self.gain)
        self.rates = link_rates(self.plan, self.radio, self.gain[:, self.first : self.end])
        self.tcp = on_channel(self.tcp, self.plan, self.radio, trace)

    def add_fault(self, faults: RoundFaults) -> None:
        """From now on, these faults silence links."""
        self.faults = faults
        self.grow(self.end)

    def retry_until_channel_suffices(self, played: Callable[[], Played]) -> Played:
        """What `played` answers, over as many slots as it takes.

        The engine may take longer than the emulated round has.

        Raises:
            TraceExhausted: It outlasts the channel.
        """
        while True:
            try:
                return played()
            except TraceExhausted:
                self.grow(self.channel.grow().slots)

    def give(self, injector: Injector) -> None:
        """Hand the table to the injector: uplinks, broadcast, then gradients."""
        rates, slots = self.rates, None if self.tcp is None else self.tcp.slots
        given = None
        if slots is not None:
            rates = rates.slowed(slots, self.first)
            given = slots.given(self.first, self.end, self.dilation)
        self.hand_over(injector, self.first, rates, given)

    def frame(self, measured: Round) -> pd.DataFrame:
        """The rates of the slots that the round took: slot, time_s, client, uplink, downlink."""
        end = math.ceil((measured.start_s + measured.latency_s) / self.slot_s)
        count = max(0, min(end, self.end) - self.first)
        clients = self.plan.clients
        slots = np.arange(self.first, self.first + count)
        return pd.DataFrame(
            {
                "slot": np.tile(slots, clients),
                "time_s": np.tile(slots * self.slot_s, clients),
                "client": np.repeat(np.arange(1, clients + 1), count),
                "uplink_bps": self.rates.uplink[:, :count].ravel(),
                "downlink_bps": self.rates.gradient[:, :count].ravel(),
            }
        )


class SessionRates(RateFeed):
    """Keeps the injector of a session supplied ahead of time, and knows what the rates were."""

    def __init__(self, scenario: ResolvedScenario, channel: Channel, shape: Shape):
        super().__init__(channel, radio_access(scenario, channel.trace(1)), scenario.dilation)
        self._shares: Allocation = fixed_allocation(scenario)
        self._floor_bps = shape.lowest_rate(self.slot_s * self.dilation) * self.dilation
        self.shared = shape.shared_downlink
        self._varying = scenario if vary_by_slot(scenario) else None
        self._repeats = scenario.links.at_trace_end == "repeat"
        self._given = 0
        self.slots: int | None = None
        """How many there are, once the end of a trace that is not repeated has come in sight."""

    def open_up(self, injector: Injector) -> None:
        """Give one slot of rates, for links that nobody uses yet.

        A new link's shaper knows no rate. Were it only closed, the first frame to wait would be
        charged at next to none, and the link be in debt for a second after it opens.
        """
        tables = [np.maximum(bps[:, :1], self._floor_bps) for bps in self.rates(0, 1)]
        self.hand_over(injector, 0, tables, warn_slots=0)

    def ahead(self) -> LinkRates:
        """Rates of the first `2 * AHEAD_S`, or of all that there are; nothing is broadcast."""
        slots = max(1, round(2 * AHEAD_S / self.slot_s))
        up, down = self.rates(0, min(slots, self.channel.trace(slots).slots))
        return LinkRates(up, np.zeros_like(down), down)

    def lead_in(self, injector: Injector, slots: int) -> None:
        """Give the first rates, after a number of slots in which all links are closed."""
        self._extend(injector, 0, slots)

    def follow(self, injector: Injector, time_s: float) -> None:
        """See that there are rates for a while from that moment on."""
        if self.slots is None and self._given < (time_s + AHEAD_S) / self.slot_s:
            self._extend(injector, self._given, 0)

    def _extend(self, injector: Injector, first: int, closed: int) -> None:
        end = first + max(1, round(2 * AHEAD_S / self.slot_s))
        there = self.channel.trace(end).slots
        if there < end and not self._repeats:
            self.slots = end = there
        # Where the trace ends, the links close.
        padding = ((0, 0), (closed, self.slots is not None))
        tables = [np.pad(bps, padding) for bps in self.rates(first, end)]
        given = None
        if self._varying is not None:
            # Before slot 0 as in it; beyond the end of a trace nothing is sent.
            trace = self.channel.now
            around = trace.at(np.arange(first - closed, end + 1).clip(0) % trace.slots)
            slots = self._impairments(self._varying, around)
            up, broadcast, down = slots.given(0, around.slots, self.dilation)
            given = up, broadcast if self.shared else down
        self.hand_over(injector, first - closed, tables, given, warn_slots=0)
        self._given = end

    def rates(self, first: int, end: int) -> tuple[Array, Array]:
        """What uplinks and downlinks carry in those slots, in emulated bit/s, each [K, n].

        Downlinks that share the cell have what each would carry alone. 0 where the link is out: see
        `Shape.lowest_rate`.
        """
        trace = self.channel.trace(end)
        # These alone: what is asked for every second must not take longer every hour.
        trace = trace.at(np.arange(first, end) % trace.slots)
        rates = self.radio.link_rates(self._shares, trace.values, in_turns=self.shared)
        up, down = rates.uplink, rates.gradient
        if self._varying is not None:
            sent = self._impairments(self._varying, trace).airtime
            up, down = up / sent[UP], down / sent[BROADCAST if self.shared else DOWN]
        return np.where(up < self._floor_bps, 0, up), np.where(down < self._floor_bps, 0, down)

    def _impairments(self, scenario: ResolvedScenario, trace: SlotTrace) -> SlotImpairments:
        """What frames meet in each slot of a trace."""
        return impaired_slots(scenario, self._shares, self.radio, trace, in_turns=self.shared)
