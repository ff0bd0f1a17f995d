# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Link rates of the emulated network: computed from channel and radio for the injector, by slot.

`RateFeed` passes rates to the injector. `RoundRates` provides the rates of a round, and extends
them during the round; `SessionRates` provides rates some seconds before a session needs them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pandas as pd

from ns3_scenarios.trace import SlotTrace, SlotValues, TraceExhausted
from orchestrator.analysis.shared_air import mean_rates
from orchestrator.emulated.radio_air import RadioAir
from orchestrator.engine.access import LinkRates, RadioAccess
from orchestrator.engine.faults import RoundFaults
from orchestrator.engine.plan import Allocation, Array, RoundPlan, fixed_allocation
from orchestrator.engine.radio import radio_access
from orchestrator.engine.rates import impaired_slots, link_rates, on_channel
from orchestrator.engine.slot_impairments import BROADCAST, DOWN, UP, SlotImpairments
from orchestrator.engine.tcp_model import TcpModel
from orchestrator.scenario.channel import Channel, region
from orchestrator.scenario.schema import STEERED, ResolvedScenario
from testbed.core.timeline import Round
from testbed.network.airtime import SlotRates
from testbed.network.injector import DividedRates, Injector
from testbed.network.shaping import Shape

Played = TypeVar("Played")
WARN_SLOTS = 20
"""Slots before the end of its rates at which the injector requests more during a round."""
AHEAD_S = 30.0
"""Minimum length of the rates that the injector of a session has, in emulated seconds; twice this
length is added."""
LEAD_S = {"virtual": 2e-3, "real": 20e-3}
"""By clock: the time before a slot at which its channel is asked for where UAVs react to the
session, in emulated seconds. In real time the rates of the slot are computed in it."""
_BLOCK_SLOTS = 10_000
"""Number of slots whose rates are computed together."""


Table = Array | DividedRates
"""Rates of a direction in emulated bit/s: of shape [K, n], or how active links divide it."""


def divided_rates(
    radio: RadioAccess, shares: Allocation, values: SlotValues, *, in_turns: bool
) -> tuple[DividedRates, DividedRates]:
    """Rates of uplinks and gradients that active links divide among themselves.

    A number of active links whose rates are in proportion to those of fewer links has no separate
    rows: an LTE cell of 100 resource blocks needs 16 for any number of uplinks.

    Args:
        radio: A radio whose band is shared.
        shares: The allocation.
        values: Slot values, [K, S] or for each direction.
        in_turns: Whether gradients have the whole downlink one after the other.
    """
    found: tuple[list[Array], list[Array]] = ([], [])
    divisions: tuple[list[tuple[int, float]], list[tuple[int, float]]] = ([], [])
    for active in range(1, len(shares.beta) + 1):
        rates = radio.link_rates(shares, values, in_turns=in_turns, active=active)
        for bps, rows, division in zip(
            (rates.uplink, rates.gradient), found, divisions, strict=True
        ):
            part = 1.0
            if rows and (most := rows[-1].max()) > 0:
                part = float(bps.flat[rows[-1].argmax()] / most)
            if not rows or not np.allclose(bps, part * rows[-1], rtol=1e-12, atol=0):
                part = 1.0
                rows.append(bps)
            division.append((len(rows) - 1, part))
    up, down = (
        DividedRates(np.stack(rows), tuple(division))
        for rows, division in zip(found, divisions, strict=True)
    )
    return up, DividedRates(down.rows, down.division[:1]) if in_turns else down


def extreme_rates(
    radio: RadioAccess, shares: Allocation, values: SlotValues, *, in_turns: bool
) -> LinkRates:
    """Rates of links with which a calibration finds the lowest and the highest: of all slots, and,
    where active links share the band, of links that are alone as well as of all together."""
    together = radio.link_rates(shares, values, in_turns=in_turns)
    if not radio.is_shared:
        return together
    alone = radio.link_rates(shares, values, in_turns=in_turns, active=1)
    return LinkRates(*(np.hstack(both) for both in zip(together, alone, strict=True)))


class RateFeed:
    """Gives an injector the rates and impairments of links."""

    def __init__(
        self, channel: Channel, radio: RadioAccess, dilation: float, air: RadioAir | None = None
    ):
        self.channel = channel
        self.air = air
        """ns-3's radio, which gets the channel itself instead of rates; None: there are links."""
        self.radio = radio
        self.dilation = dilation
        """Real seconds per emulated second."""
        self.slot_s = channel.slot_s

    def hand_over(
        self,
        injector: Injector,
        first: int,
        tables_bps: Sequence[Table],
        impairments: Sequence[Array] | None = None,
        *,
        warn_slots: int = WARN_SLOTS,
    ) -> None:
        """Give the injector a table of rates.

        Args:
            injector: Injector that sets the rates.
            first: Slot of the first column.
            tables_bps: Uplinks, then downlinks by phase of a round.
            impairments: Impairments by slot as returned by `SlotImpairments.given`; None: there are
                none.
            warn_slots: See `Injector.rates`.
        """
        if impairments is not None:
            injector.impair_slots(first, *impairments)
        tables = (
            replace(bps, rows=bps.rows / self.dilation)
            if isinstance(bps, DividedRates)
            else bps / self.dilation
            for bps in tables_bps
        )
        injector.rates(first, *tables, warn_slots=warn_slots)


class RoundRates(RateFeed):
    """Link rates of a round's slots, in emulated bit/s, extended while the round lasts."""

    def __init__(
        self,
        plan: RoundPlan,
        radio: RadioAccess,
        channel: Channel,
        first: int,
        faults: RoundFaults | None,
        tcp: TcpModel | None = None,
        dilation: float = 1.0,
        air: RadioAir | None = None,
        power: Array | None = None,
    ):
        super().__init__(channel, radio, dilation, air)
        self.plan = plan
        self.first = first
        self.end = first
        self.faults = faults
        self.power = power
        """Transmit power of each UAV relative to that of the scenario, [K]; None: equal."""
        self.tcp = tcp
        """The TCP model, for the same slots as the rates."""

    def grow(self, end: int) -> None:
        """Extend the rates to slot `end`, or as far as the channel reaches."""
        trace = self.channel.trace(end)
        self.end = min(end, trace.slots)
        self.gain = trace.values
        if self.faults is not None:
            self.gain = self.faults.silenced(self.gain)
        self.rates = link_rates(self.plan, self.radio, self.gain[:, self.first : self.end])
        self.tcp = on_channel(self.tcp, self.plan, self.radio, trace)

    def add_fault(self, faults: RoundFaults) -> None:
        """Apply these faults, which silence links, from now on."""
        self.faults = faults
        self.grow(self.end)

    def retry_until_channel_suffices(self, played: Callable[[], Played]) -> Played:
        """The result of `played`, which is repeated with more slots until they suffice.

        The engine may predict a longer round than the emulated one.

        Raises:
            TraceExhausted: The channel is too short.
        """
        while True:
            try:
                return played()
            except TraceExhausted:
                self.grow(self.channel.grow().slots)

    def give(self, injector: Injector) -> None:
        """Pass the table to the injector: uplinks, broadcast, then gradients; or the channel."""
        if self.air is not None:
            made = self.air.channel(self.channel.now, self.gain, self.first, self.end)
            if self.power is not None:
                made = made[0] * self.power[:, None], *made[1:]
            injector.channel(self.first, *made, warn_slots=WARN_SLOTS)
            return
        rates, slots = self.rates, None if self.tcp is None else self.tcp.slots
        given = None
        if slots is not None:
            rates = rates.slowed(slots, self.first)
            given = slots.given(self.first, self.end, self.dilation)
        tables: Sequence[Table] = rates
        if self.radio.is_shared:
            values, shares = self.gain[:, self.first : self.end], self.plan.allocation
            up, down = divided_rates(self.radio, shares, values, in_turns=self.plan.in_turns)
            tables = up, rates.broadcast, down
        self.hand_over(injector, self.first, tables, given)

    def frame(self, measured: Round) -> pd.DataFrame:
        """Rates of the slots of the round: slot, time_s, client, uplink, downlink.

        Where active links divide a direction, they are means over a slot of the rates that follow
        from the measured transfers; a link that sends nothing has the rate that it would have if it
        sent.
        """
        end = math.ceil((measured.start_s + measured.latency_s) / self.slot_s)
        count = max(0, min(end, self.end) - self.first)
        clients = self.plan.clients
        slots = np.arange(self.first, self.first + count)
        up, down = mean_rates(
            measured,
            self.plan,
            self.radio,
            self.gain,
            self.slot_s,
            range(self.first, self.first + count),
        )
        up = self.rates.uplink[:, :count] if up is None else up
        down = self.rates.gradient[:, :count] if down is None else down
        return pd.DataFrame(
            {
                "slot": np.tile(slots, clients),
                "time_s": np.tile(slots * self.slot_s, clients),
                "client": np.repeat(np.arange(1, clients + 1), count),
                "uplink_bps": up.ravel(),
                "downlink_bps": down.ravel(),
            }
        )


class SessionRates(RateFeed):
    """Provides the injector of a session with rates ahead of time."""

    def __init__(self, scenario: ResolvedScenario, channel: Channel, shape: Shape):
        radio = radio_access(scenario, channel.trace(1))
        super().__init__(channel, radio, scenario.dilation)
        self._shares: Allocation = fixed_allocation(scenario)
        self.floor_bps = shape.lowest_rate(self.slot_s * self.dilation) * self.dilation
        """The rate in emulated bit/s below which a link is out: see `Shape.lowest_rate`."""
        self.shared = shape.shared_downlink
        self._varying = scenario if scenario.links.vary_by_slot else None
        self._repeats = scenario.links.at_trace_end == "repeat"
        self._region = None
        """Channel of the places where UAVs may fly that programs steer, on links."""
        on_links = scenario.emulation.air == "links"
        if channel.horizon is not None and scenario.mobility.model == STEERED and on_links:
            self._region = region(scenario, self.slot_s)
        self._at_once = channel.horizon or max(1, round(2 * AHEAD_S / self.slot_s))
        self._ahead_s = LEAD_S[scenario.emulation.clock] if channel.horizon else AHEAD_S
        self._given = 0
        self.highest_given_bps: Array = np.zeros((scenario.uavs.count, 2))
        """The highest rate of each link that the injector has been given, shape [K, 2]."""
        self.slots: int | None = None
        """Number of slots, once the end of a trace that is not repeated has been reached."""

    def open_up(self, injector: Injector) -> None:
        """Set the rates of one slot on links that are not used yet.

        The shaper of a new link has no rate yet. If the link were only closed, the first waiting
        frame would be charged at almost no rate, and the link would be blocked for a second after
        it opens.
        """
        if self.air is not None:
            injector.channel(0, *self.air.clear, warn_slots=0)
            return
        tables = [np.maximum(bps[:, :1], self.floor_bps) for bps in self.rates(0, 1)]
        self.hand_over(injector, 0, tables, warn_slots=0)

    def ahead(self) -> LinkRates:
        """Rates of the first `2 * AHEAD_S`, or of the whole trace if it is shorter; broadcast rates
        are 0. Where programs steer UAVs: rates in their region. Where active links divide the band:
        rates of links alone, then of all together."""
        made = self._region
        if made is None:
            made = self.channel.trace(self._at_once)
            made = made.first(self._at_once)
        up, down = (self._open(way) for way in self._of_trace(made))
        if self.radio.is_shared:
            together = self._of_trace(made, len(up))
            up, down = (np.hstack(both) for both in zip((up, down), together, strict=True))
        return LinkRates(up, np.zeros_like(down), down)

    def lead_in(self, injector: Injector, slots: int) -> None:
        """Set the first rates, after a number of slots in which all links are closed."""
        self._extend(injector, 0, slots)

    def follow(self, injector: Injector, time_s: float) -> None:
        """Ensure that rates are available for some time after this moment."""
        while self.due_s <= time_s:
            self._extend(injector, self._given, 0)

    @property
    def due_s(self) -> float:
        """Emulated time of the next call of `follow` that does something."""
        return math.inf if self.slots is not None else self._given * self.slot_s - self._ahead_s

    def _extend(self, injector: Injector, first: int, closed: int) -> None:
        end = first + self._at_once
        if self.channel.horizon is not None:
            self.channel.trace(end)
        # One slot more, since a trace may end here, and its links have to close.
        elif (there := self.channel.trace(end + 1).slots) <= end and not self._repeats:
            self.slots = end = there
        if self.air is not None:
            self._give_channel(injector, first, end, closed)
            return
        # Where the trace ends, the links close.
        padding = ((0, 0), (closed, self.slots is not None))
        rates = self.rates(first, end)
        tables: list[Table] = [np.pad(bps, padding) for bps in rates]
        if self.radio.is_shared:
            tables = [
                replace(way, rows=np.pad(way.rows, ((0, 0), *padding)))
                for way in self._divided(first, end)
            ]
        highest = np.stack([bps.max(axis=1) for bps in rates], axis=1)
        self.highest_given_bps = np.maximum(self.highest_given_bps, highest)
        given = None
        if self._varying is not None:
            # Slots before 0 are like slot 0; nothing is sent after the end of a trace.
            trace = self.channel.now
            last = end + (self.channel.horizon is None)
            around = trace.at(np.arange(first - closed, last).clip(0) % trace.slots)
            slots = self._impairments(self._varying, around)
            up, broadcast, down = slots.given(0, around.slots, self.dilation)
            given = up, broadcast if self.shared else down
        self.hand_over(injector, first - closed, tables, given, warn_slots=0)
        self._given = end

    def _give_channel(self, injector: Injector, first: int, end: int, before: int) -> None:
        """Give ns-3's radio the channel of these slots, and that of the first one for some slots
        before it."""
        assert self.air is not None
        slots = np.arange(first - before, end).clip(first)
        trace = self.channel.now.at(slots % self.channel.now.slots)
        values = self.air.channel(trace, trace.values, 0, len(slots))
        injector.channel(first - before, *values, warn_slots=0)
        self._given = end

    def rates(self, first: int, end: int) -> tuple[Array, Array]:
        """Rates of uplinks and downlinks in these slots, in emulated bit/s, each of shape [K, n].

        If links share the cell, each rate is that of a link alone. A rate is 0 where the link is
        out.
        """
        up, down = self._of_channel(first, end)
        return self._open(up), self._open(down)

    def _open(self, bps: Array) -> Array:
        """Rates, which are 0 where the link is out."""
        return np.where(bps < self.floor_bps, 0, bps)

    def used(self, first: int, carried_bytes: Array) -> Array:
        """Fraction of each slot's capacity that links have used; of the cell's capacity if they
        share it.

        Args:
            first: The first slot.
            carried_bytes: By slot, client and direction, shape [n, K, 2]; so is the result. It is 0
                where a link is out.
        """
        end = first + len(carried_bytes)
        carried_bps = carried_bytes * 8 / self.slot_s
        rates = np.stack(self.rates(first, end), axis=-1).transpose(1, 0, 2)
        used: Array = np.divide(carried_bps, rates, out=np.zeros(rates.shape), where=rates > 0)
        if self.radio.is_shared:
            for way, divided in enumerate(self._divided(first, end)):
                for slot, link in zip(*used[:, :, way].nonzero(), strict=True):
                    of_slot = SlotRates(divided.rows[:, :, slot].tolist(), divided.division)
                    used[slot, link, way] = of_slot.share_of(link, carried_bps[slot, link, way])
        return used

    def _divided(self, first: int, end: int) -> tuple[DividedRates, DividedRates]:
        """The rates of uplinks and downlinks that divide the band; see `rates`."""
        trace = self.channel.trace(end)
        values = trace.at(np.arange(first, end) % trace.slots).values
        ways = divided_rates(self.radio, self._shares, values, in_turns=False)
        up, down = (
            replace(way, rows=np.where(alone > 0, way.rows, 0.0))
            for way, alone in zip(ways, self.rates(first, end), strict=True)
        )
        return up, down

    def highest_bps(self, slots: int) -> Array:
        """The highest rate of each link before slot `slots` as the channel has it, shape [K, 2]:
        also where the link is out."""
        blocks = range(0, slots, _BLOCK_SLOTS)
        found = [self._of_channel(first, min(first + _BLOCK_SLOTS, slots)) for first in blocks]
        return np.stack([np.hstack(way).max(axis=1) for way in zip(*found, strict=True)], axis=1)

    def _of_channel(self, first: int, end: int, active: int = 1) -> tuple[Array, Array]:
        """Rates of the channel in these slots, even if they are too low to be played; for `active`
        links if active links divide the band."""
        trace = self.channel.trace(end)
        # Only these slots, so that the effort per call does not grow with the session.
        return self._of_trace(trace.at(np.arange(first, end) % trace.slots), active)

    def _of_trace(self, trace: SlotTrace, active: int = 1) -> tuple[Array, Array]:
        """The same for all slots of a trace."""
        in_turns = self.shared and active == 1
        rates = self.radio.link_rates(self._shares, trace.values, in_turns=in_turns, active=active)
        up, down = rates.uplink, rates.gradient
        if self._varying is not None:
            sent = self._impairments(self._varying, trace).airtime
            up, down = up / sent[UP], down / sent[BROADCAST if self.shared else DOWN]
        return up, down

    def _impairments(self, scenario: ResolvedScenario, trace: SlotTrace) -> SlotImpairments:
        """The impairments in each slot of a trace."""
        return impaired_slots(scenario, self._shares, self.radio, trace, in_turns=self.shared)
