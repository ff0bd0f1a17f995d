# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The rates of a session's links: from the channel to the injector, for as long as it lasts."""

import numpy as np

from ns3_scenarios.trace import ChannelTrace, both_ways
from orchestrator.engine.links import needs_snr, vary_by_slot
from orchestrator.engine.plan import Array, fixed_allocation, radio_of
from orchestrator.engine.rates import broadcast_bps, dedicated_bps, snr_of, uplink_bps
from orchestrator.engine.slot_impairments import BROADCAST, DOWN, UP, SlotAir, slot_air
from orchestrator.scenario.channel import Channel
from orchestrator.scenario.schema import ResolvedScenario
from testbed.network.injector import Injector
from testbed.network.shaping import Shape

AHEAD_S = 30.0
"""Emulated seconds of rates that the injector has at least; it is given twice as many."""


class Feed:
    """Gives the injector rates ahead of time, and knows what they were."""

    def __init__(self, scenario: ResolvedScenario, channel: Channel, shape: Shape):
        self.slot_s = channel.slot_s
        self._channel = channel
        self._radio, self._shares = radio_of(scenario), fixed_allocation(scenario)
        self._dilation = scenario.dilation
        self._floor_bps = shape.lowest_rate(self.slot_s * self._dilation) * self._dilation
        self.shared = shape.shared_downlink
        self._varying = scenario if vary_by_slot(scenario) else None
        self._repeats = scenario.links.at_trace_end == "repeat"
        self._given = 0
        self.slots: int | None = None
        """How many there are, once the end of a trace has come in sight that is not repeated."""

    def open_up(self, injector: Injector) -> None:
        """Give one slot of rates, for links that nobody uses yet.

        A new link's shaper knows no rate. Were it only closed, the first frame to wait would be
        charged at next to none, and the link be in debt for a second after it opens.
        """
        up, down = (
            np.maximum(bps[:, :1], self._floor_bps) / self._dilation for bps in self.rates(0, 1)
        )
        injector.rates(0, up, down, warn_slots=0)

    def ahead(self) -> tuple[Array, Array]:
        """Rates of the first `2 * AHEAD_S`, or of all that there are; as `rates`."""
        slots = max(1, round(2 * AHEAD_S / self.slot_s))
        return self.rates(0, min(slots, self._channel.trace(slots).slots))

    def lead_in(self, injector: Injector, slots: int) -> None:
        """Give the first rates, after so many slots before slot 0 in which all links are closed."""
        self._extend(injector, 0, slots)

    def follow(self, injector: Injector, time_s: float) -> None:
        """See that there are rates for a while from that moment on."""
        if self.slots is None and self._given < (time_s + AHEAD_S) / self.slot_s:
            self._extend(injector, self._given, 0)

    def _extend(self, injector: Injector, first: int, closed: int) -> None:
        end = first + max(1, round(2 * AHEAD_S / self.slot_s))
        there = self._channel.trace(end).slots
        if there < end and not self._repeats:
            self.slots = end = there
        up, down = self.rates(first, end)
        # Where the trace ends, the links close.
        padding = ((0, 0), (closed, self.slots is not None))
        tables = (np.pad(bps / self._dilation, padding) for bps in (up, down))
        if self._varying is not None:
            # Before slot 0 as in it; beyond the end of a trace nothing is sent.
            trace = self._channel.now
            around = trace.at(np.arange(first - closed, end + 1).clip(0) % trace.slots)
            air = self._slot_air(self._varying, around)
            up, broadcast, down = air.given(0, around.slots, self._dilation)
            injector.air(first - closed, up, broadcast if self.shared else down)
        injector.rates(first - closed, *tables, warn_slots=0)
        self._given = end

    def rates(self, first: int, end: int) -> tuple[Array, Array]:
        """What uplinks and downlinks carry in those slots, in emulated bit/s, each [K, n].

        Of downlinks that share the cell, what each would carry alone. 0 where the link is out: see
        `Shape.lowest_rate`.
        """
        trace = self._channel.trace(end)
        # These alone: what is asked for every second must not take longer every hour.
        trace = trace.at(np.arange(first, end) % trace.slots)
        up, down = both_ways(trace.gains)
        if not trace.are_rates:
            up = uplink_bps(self._radio, self._shares.beta, up)
            if self.shared:
                down = broadcast_bps(self._radio, down)
            else:
                down = dedicated_bps(self._radio, self._shares.beta, self._shares.rho, down)
        if self._varying is not None:
            sent = self._slot_air(self._varying, trace).airtime
            up, down = up / sent[UP], down / sent[BROADCAST if self.shared else DOWN]
        return np.where(up < self._floor_bps, 0, up), np.where(down < self._floor_bps, 0, down)

    def _slot_air(self, scenario: ResolvedScenario, trace: ChannelTrace) -> SlotAir:
        """What frames meet in each slot of a trace."""
        snr = None
        if needs_snr(scenario):
            rho = None if self.shared else self._shares.rho
            snr = snr_of(self._radio, self._shares.beta, rho, trace.gains)
        return slot_air(scenario, trace, snr)
