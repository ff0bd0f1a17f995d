# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Rounds that follow each other: decided, played, kept, by one loop whoever plays them.

A `Backend` plays: the engine in predicted time (`EngineBackend`), ns-3 packet by packet, the
kernel's links in real time. `play_rounds` is the loop; `predict` is the loop with the engine.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Protocol

import numpy as np

from ns3_scenarios.trace import ChannelSource, SlotTrace, TraceExhausted, both_ways
from orchestrator.engine.engine import RoundTimes, round_of, simulate
from orchestrator.engine.faults import Fault, FaultSchedule, RoundFaults
from orchestrator.engine.plan import (
    Allocation,
    RoundPlan,
    Sizing,
    fixed_allocation,
    link_bytes,
    payload_bytes,
    plan_round,
)
from orchestrator.engine.radio import RadioAccess, radio_access
from orchestrator.engine.rates import on_channel
from orchestrator.engine.selection import RoundStart, selection
from orchestrator.engine.tcp_model import TcpModel, tcp_model_of
from orchestrator.scenario.channel import Channel, observed
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError, RunEnds
from testbed.core.node import NodeId
from testbed.core.timeline import Round, Timeline
from workloads.costs.profile import SplitProfile


@dataclass(frozen=True)
class Situation:
    """What is known when a round starts, for whoever decides its allocation."""

    index: int
    """The round's, from 0."""
    start_s: float
    rounds: Sequence[Round]
    """Rounds done so far."""
    allocations: Sequence[Allocation]
    """Their allocations."""
    channel: SlotTrace
    """Slots up to the one in which the round starts; nothing of the future."""
    clients: Collection[int] | None = None
    """Who takes part in the round, from 1; None: everybody."""


Decide = Callable[[Situation], Allocation]
"""Decides split and shares of a round at its start."""


@dataclass(frozen=True)
class Decision:
    """A round that is to be played."""

    index: int
    """From 0."""
    start_s: float
    allocation: Allocation
    decision_s: float = 0.0
    """Real seconds that the allocation took to decide."""


class Backend(Protocol):
    """Who plays rounds; everything else about them is the same for all."""

    def play(self, decision: Decision) -> Round:
        """Play one round from its start on; rounds are played in their order.

        Raises:
            RunEnds: A planned fault ends the run before the round is over.
            TraceExhausted: The channel ends before the round does.
        """


def play_rounds(
    scenario: Scenario,
    channel: Channel,
    backend: Backend,
    *,
    rounds: int | None = None,
    decide: Decide | None = None,
    done: Sequence[tuple[Round, Allocation]] = (),
) -> Iterator[Round]:
    """Decide on each round and play it, one after the other without a gap, from t = 0.

    Args:
        scenario: What happens in a round.
        channel: What is known of it goes to whoever decides.
        backend: Who plays.
        rounds: How many there are in the end; left out: the scenario's.
        decide: Who allocates; left out: the scenario's own split and shares.
        done: Rounds that have been played before, which this goes on from.

    Raises:
        InputError: The channel's UAVs are not the scenario's, or its trace is too short.
        RunEnds: A planned fault ends the run.
    """
    if channel.uavs != scenario.uavs.count:
        raise InputError(
            f"trace: gain has {channel.uavs} UAVs, but uavs.count is {scenario.uavs.count}"
        )
    count = scenario.rounds if rounds is None else rounds
    played, allocations = [r for r, _ in done], [allocation for _, allocation in done]
    fixed, choose = fixed_allocation(scenario), selection(scenario)
    radio = radio_access(scenario, channel.now)
    for index in range(len(played), count):
        start_s = played[-1].end_s if played else 0.0
        try:
            began = perf_counter()
            allocation, clients = fixed, None
            if decide is not None or choose is not None:
                known = observed(scenario, channel.until(start_s))
            if choose is not None:
                clients = choose(RoundStart(index, start_s, played, known))
            if decide is not None:
                allocation = decide(Situation(index, start_s, played, allocations, known, clients))
            radio.check(allocation)
            allocation = allocation.among(clients)
            decision = Decision(index, start_s, allocation, perf_counter() - began)
            round_ = backend.play(decision)
        except TraceExhausted as end:
            raise InputError(_too_short(end, channel.now, index, count, start_s)) from None
        played.append(round_)
        allocations.append(allocation)
        yield round_


def predict(
    scenario: Scenario,
    source: ChannelSource,
    profile: SplitProfile,
    *,
    sizing: Sizing = payload_bytes,
    rounds: int | None = None,
    decide: Decide | None = None,
    progress: Callable[[int], None] | None = None,
) -> Timeline:
    """Predict rounds from t = 0, one after the other without a gap.

    Where a fault of the scenario ends the run, the timeline has the rounds before, and says so.

    Args:
        scenario: What happens in a round.
        source: Channels; asked for more slots as the rounds go on.
        profile: Costs of each split.
        sizing: How bytes are counted; with `link_bytes`, links delay and lose as the scenario says.
        rounds: How many; left out: the scenario's.
        decide: Who allocates; left out: the scenario's own split and shares.
        progress: Called after each round with the number of rounds done.

    Raises:
        InputError: The source's UAVs are not the scenario's, or its trace is too short.
    """
    channel = Channel.of(source)
    engine = EngineBackend(scenario, channel, profile, sizing)
    done: list[Round] = []
    try:
        for round_ in play_rounds(scenario, channel, engine, rounds=rounds, decide=decide):
            done.append(round_)
            if progress is not None:
                progress(len(done))
    except RunEnds as ended:
        return Timeline(done, ended)
    return Timeline(done)


class EngineBackend:
    """Rounds of one timeline in predicted time, with the faults that the scenario plans.

    Args:
        scenario: What happens in a round.
        source: Channels.
        profile: Costs of each split.
        sizing: How bytes are counted; with `link_bytes`, links delay and lose as the scenario says.
    """

    def __init__(
        self,
        scenario: Scenario,
        source: ChannelSource,
        profile: SplitProfile,
        sizing: Sizing = payload_bytes,
    ):
        self._scenario = scenario
        self._channel = Channel.of(source)
        self._profile = profile
        self._sizing = sizing
        self._tcp = tcp_model_of(scenario) if sizing is link_bytes else None
        self._radio = radio_access(scenario, self._channel.now)
        self._faults = FaultSchedule(scenario)
        self._planned: tuple[Allocation, RoundPlan] | None = None

    def play(self, decision: Decision) -> Round:
        """Predict a round.

        Raises:
            RunEnds: A fault ends the run before the round is over.
            TraceExhausted: The channel ends before the round does.
        """
        clients = decision.allocation.clients
        faults = self._faults.round(decision.index, decision.start_s, clients)
        round_ = self._simulate(decision, faults)
        if faults is not None:
            faults.check(decision.index, round_.end_s, round_.lost)
        self._faults.played(round_)
        return round_

    def play_with(self, decision: Decision, faults: RoundFaults | None) -> Round:
        """Predict a round with these faults, in place of what this timeline makes of them."""
        round_ = self._simulate(decision, faults)
        self._faults.played(round_)
        return round_

    def plan(self, allocation: Allocation) -> RoundPlan:
        """What a round is under that allocation, before the air has its say."""
        if self._planned is None or self._planned[0] is not allocation:
            plan = plan_round(self._scenario, self._profile, allocation, self._sizing)
            self._planned = allocation, plan
        return self._planned[1]

    def tcp(self, index: int) -> TcpModel | None:
        """What delays and losses mean for a round's transfers; None: there are neither."""
        return self._tcp and self._tcp.of_round(index)

    def add_fault(self, fault: Fault) -> None:
        """See `FaultSchedule.add_fault`."""
        self._faults.add_fault(fault)

    def resume(self, rounds: Sequence[Round]) -> None:
        """Go on after rounds of this timeline that were played before."""
        self._faults.resume(rounds)

    def _simulate(self, decision: Decision, faults: RoundFaults | None) -> Round:
        plan = self.plan(decision.allocation)
        tcp = self.tcp(decision.index)
        times = simulate_on(plan, self._radio, self._channel, decision.start_s, faults, tcp=tcp)
        return round_of(decision.index, plan, times)


class ShadowPrediction:
    """A timeline of predicted rounds that goes along with a measured one."""

    def __init__(self, engine: EngineBackend, rounds: Sequence[Round] = ()):
        """Go on after rounds that were predicted before."""
        self.engine = engine
        self._start_s = self._end_s = rounds[-1].end_s if rounds else 0.0
        engine.resume(rounds)

    def of(self, decision: Decision, faults: RoundFaults | None) -> Round:
        """The next round, from the end of the last prediction on.

        Args:
            decision: As it was taken for the measured round.
            faults: What went wrong in that.
        """
        self._start_s = self._end_s
        try:
            round_ = self.engine.play(replace(decision, start_s=self._end_s))
        except RunEnds:  # The run has come further than was predicted: predict it from there.
            round_ = self.engine.play_with(decision, faults)
        self._end_s = round_.end_s
        return round_

    def again(self, decision: Decision, faults: RoundFaults | None) -> Round:
        """The last round once more, with what has struck since; see `of`."""
        self._end_s = self._start_s
        return self.of(decision, faults)

    def add_fault(self, host: str, nodes: Sequence[NodeId]) -> None:
        """A host was lost between two rounds: its nodes have no part in what follows."""
        self.engine.add_fault(Fault.of_host(host, nodes, self._end_s, self._end_s))


def simulate_on(
    plan: RoundPlan,
    radio: RadioAccess,
    channel: Channel,
    start_s: float,
    faults: RoundFaults | None = None,
    tcp: TcpModel | None = None,
) -> RoundTimes:
    """The times of a round on a channel that grows as far as the round needs it.

    Raises:
        TraceExhausted: The channel ends before the round does.
    """
    while True:
        trace = channel.now
        try:
            return simulate(
                plan,
                radio,
                trace.values,
                trace.slot_s,
                start_s,
                faults=faults,
                tcp=on_channel(tcp, plan, radio, trace),
            )
        except TraceExhausted:
            channel.grow()


def _too_short(
    end: TraceExhausted, trace: SlotTrace, index: int, count: int, start_s: float
) -> str:
    dead = _dead_links(trace, start_s)
    advice = [dead or "give a longer trace"]
    if index:
        advice.append(f"`rounds` {index} at most")
    return (
        f"trace: its {end.available} slots of {trace.slot_s:g} s end in round {index} of "
        f"0–{count - 1}, which starts at {start_s:.1f} s; "
        + (": " if dead else ", or ").join(advice)
    )


def _dead_links(trace: SlotTrace, start_s: float) -> str:
    """Who can never end a round that begins then, where a trace says so."""
    first = int(start_s / trace.slot_s)
    dead = np.any([~way[:, first:].any(axis=1) for way in both_ways(trace.values)], axis=0)
    if first >= trace.slots or not dead.any():
        return ""
    uavs = ", ".join(map(str, np.flatnonzero(dead) + 1))
    return f"links of {'all UAVs' if dead.all() else f'UAV {uavs}'} carry nothing from there on"
