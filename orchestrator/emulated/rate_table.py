# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The link rates of a round that is being emulated, slot by slot, as the injector is given them."""

import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pandas as pd

from ns3_scenarios.trace import TraceExhausted
from orchestrator.engine.faults import RoundFaults
from orchestrator.engine.plan import Radio, RoundPlan
from orchestrator.engine.rates import link_rates, on_channel
from orchestrator.engine.tcp_model import Transport
from orchestrator.scenario.channel import Channel
from testbed.core.timeline import Round
from testbed.network.injector import Injector

Played = TypeVar("Played")


class RateTable:
    """Link rates of a round's slots, in emulated bit/s; grows while the round lasts."""

    def __init__(
        self,
        plan: RoundPlan,
        radio: Radio,
        channel: Channel,
        first: int,
        faults: RoundFaults | None,
        transport: Transport | None = None,
    ):
        self.plan = plan
        self.radio = radio
        self.channel = channel
        self.slot_s = channel.slot_s
        self.first = first
        self.end = first
        self.faults = faults
        self.transport = transport
        """As far as the rates go."""

    def grow(self, end: int) -> None:
        """Have rates up to slot `end`, or as far as the channel goes."""
        trace = self.channel.trace(end)
        self.end = min(end, trace.slots)
        self.gain = trace.gains
        if self.faults is not None:
            self.gain = self.faults.silenced(self.gain)
        self.rates = link_rates(self.plan, self.radio, self.gain[:, self.first : self.end])
        self.transport = on_channel(self.transport, self.plan, self.radio, trace)

    def strike(self, faults: RoundFaults) -> None:
        """From now on, these faults silence links."""
        self.faults = faults
        self.grow(self.end)

    def reaching(self, played: Callable[[], Played]) -> Played:
        """What `played` answers, over as many slots as it takes: the engine may take longer than
        the round has.

        Raises:
            TraceExhausted: It outlasts the channel.
        """
        while True:
            try:
                return played()
            except TraceExhausted:
                self.grow(self.channel.grow().slots)

    def give(self, injector: Injector, dilation: float) -> None:
        """Hand the table to the injector, in real bit/s and seconds: broadcast, then gradients."""
        rates, slots = self.rates, None if self.transport is None else self.transport.slots
        if slots is not None:
            rates = rates.slowed(slots, self.first)
            injector.air(self.first, *slots.given(self.first, self.end, dilation))
        injector.rates(self.first, *(rate_bps / dilation for rate_bps in rates))

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
