# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Consecutive rounds: one loop decides, plays and records them with any backend.

A `Backend` plays rounds: the engine in predicted time (`EngineBackend`), ns-3 packet by packet, or
the kernel's links in real time. `play_rounds` is the loop; `predict` is the loop with the engine.
"""

import math
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from time import perf_counter_ns
from typing import Protocol

import numpy as np

from ns3_scenarios.errors import ChannelError
from ns3_scenarios.trace import ChannelSource, RateTrace, SlotTrace, TraceExhausted, both_ways
from orchestrator.engine.access import RadioAccess
from orchestrator.engine.core_library import Slots
from orchestrator.engine.faults import Fault, FaultSchedule, RoundFaults
from orchestrator.engine.flight import with_flight
from orchestrator.engine.orders import OrderFailed
from orchestrator.engine.plan import (
    LOADED,
    Allocation,
    RoundPlan,
    Sizing,
    fixed_allocation,
    link_bytes,
    payload_bytes,
    plan_round,
)
from orchestrator.engine.radio import check_shares, powered, radio_access
from orchestrator.engine.rates import on_channel
from orchestrator.engine.tcp_model import TcpModel, tcp_model_of
from orchestrator.rounds.hierarchy import BackhaulLinks, PredictedBackhaul, cloud_round
from orchestrator.rounds.length import check_length, check_played, check_rounds, check_steps
from orchestrator.rounds.selection import RoundStart, selection
from orchestrator.rounds.simulation import (
    RoundTimes,
    SplitCosts,
    repeated,
    round_of,
    simulate,
    split_costs,
)
from orchestrator.rounds.windows import rounds_of
from orchestrator.scenario.channel import Channel, is_open, observed
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError, RunEnds, RunError
from testbed.core.timeline import Round, Timeline
from workloads.costs.profile import SplitProfile

LONGEST_OUTAGE_S = 600.0
"""Time after which a link that has carried nothing is taken for one that never will."""
MOST_STEPS_AHEAD = 1 << 18
"""Number of steps that are predicted together; each needs about 50 bytes until they are played."""
TOO_WEAK = "the signal is too weak"
"""End of the message about a link that carries nothing for too long."""


@dataclass(frozen=True)
class Situation:
    """The information that is available at the start of a round to decide on its allocation."""

    index: int
    """Index of the round, starting from 0."""
    start_s: float
    rounds: Sequence[Round]
    """Previous rounds."""
    allocations: Sequence[Allocation]
    """Allocations of the previous rounds."""
    channel: SlotTrace
    """The slots up to the one in which the round starts, but no future slots."""
    clients: Collection[int] | None = None
    """Indices of the participating clients, starting from 1. None: all clients."""
    edge: int = 0
    """Number of the edge server that decides, starting from 1; 0 without `topology`."""


Decide = Callable[[Situation], Allocation]
"""Decides split and shares of a round at its start."""


@dataclass(frozen=True)
class Decision:
    """A round that is to be played."""

    index: int
    """Index of the round, starting from 0."""
    start_s: float
    allocation: Allocation
    decision_s: float = 0.0
    """Real seconds that the decision took."""


class Backend(Protocol):
    """Plays rounds; the loop around it is the same for all backends."""

    def play(self, decision: Decision) -> Round:
        """Play one round from its start; rounds are played in order.

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

    The rounds of an asynchronous run have no common start: there, the first decision is used for
    all.

    Args:
        scenario: Scenario of the rounds.
        channel: Channel, whose past slots are the basis of decisions.
        backend: Backend that plays the rounds.
        rounds: Total number of rounds. Default: `rounds` of the scenario.
        decide: Function that decides allocations. Default: the scenario's own split and shares.
        done: Rounds that have been played before.

    Raises:
        InputError: The scenario has another number of UAVs than the channel, or the trace is too
            short.
        RunEnds: A planned fault ends the run.
    """
    if channel.uavs != scenario.uavs.count:
        raise InputError(
            f"trace: gain has {channel.uavs} UAVs, but uavs.count is {scenario.uavs.count}"
        )
    count = scenario.rounds if rounds is None else rounds
    # Edge servers decide on their own rounds.
    decisions = Decisions(scenario, channel, decide if scenario.topology is None else None, done)
    ahead: deque[Round] = deque()
    for index in range(len(done), count):
        if ahead:
            yield ahead.popleft()
            continue
        start_s = decisions.end_s
        try:
            decision = decisions.next(index, start_s)
            round_ = _played(backend, decision)
        except TraceExhausted as end:
            raise InputError(_too_short(end, channel.now, index, count, start_s)) from None
        except OrderFailed as error:
            raise InputError(f"round {index}: {error}") from error
        except ChannelError as error:
            raise ChannelError(f"round {index}: {error}") from error
        check_played(scenario, round_)
        if not done and not index:
            check_rounds(channel, round_.latency_s, count)
        decisions.add(round_, decision.allocation)
        channel.played(round_.end_s)
        yield round_
        if isinstance(backend, EngineBackend) and decisions.are_equal:
            ahead.extend(backend.play_ahead(decision, round_.end_s, count - index - 1))
            for later in ahead:
                decisions.add(later, decision.allocation)


class Decisions:
    """Decides on the rounds of one base station or edge server, each at its start.

    Args:
        scenario: Scenario as the base station sees it.
        channel: Channel, whose past slots are the basis of decisions.
        decide: Function that decides allocations. None: the scenario's own split and shares.
        done: Rounds that have been played before.
        edge: Number of the edge server, from 1; 0 without `topology`.
        members: The UAVs of the base station, from 1. None: all.
    """

    def __init__(
        self,
        scenario: Scenario,
        channel: Channel,
        decide: Decide | None = None,
        done: Sequence[tuple[Round, Allocation]] = (),
        edge: int = 0,
        members: Sequence[int] | None = None,
    ):
        self._scenario, self._channel, self._decide = scenario, channel, decide
        self.edge, self._members = edge, members
        self._rounds = [round_ for round_, _ in done]
        self._allocations = [allocation for _, allocation in done]
        self._fixed = fixed_allocation(scenario)
        self._choose = None if scenario.topology is not None else selection(scenario)
        self._radio = radio_access(scenario, channel.now)

    @property
    def are_equal(self) -> bool:
        """Whether all rounds have the same decision, which no channel changes."""
        return self._decide is None and self._choose is None

    @property
    def end_s(self) -> float:
        """End of the last round."""
        return self._rounds[-1].end_s if self._rounds else 0.0

    def next(self, index: int, start_s: float) -> Decision:
        """Decide on the round that starts now."""
        began_ns = perf_counter_ns()
        scenario, decide, choose = self._scenario, self._decide, self._choose
        if scenario.updates and index:
            return Decision(
                index, start_s, self._allocations[-1], (perf_counter_ns() - began_ns) / 1e9
            )
        allocation, rounds = self._fixed, self._rounds
        clients: Collection[int] | None = self._members
        if decide is not None or choose is not None:
            known = observed(scenario, self._channel.until(start_s))
        if choose is not None:
            start = RoundStart(index, start_s, rounds, known, self._members, self.edge)
            clients = choose(start)
        if decide is not None:
            before = self._allocations
            now = Situation(index, start_s, rounds, before, known, clients, self.edge)
            allocation = decide(now)
        check_shares(self._radio, allocation)
        clients = clients if allocation.clients is None else allocation.clients
        return Decision(
            index, start_s, allocation.among(clients), (perf_counter_ns() - began_ns) / 1e9
        )

    def add(self, round_: Round, allocation: Allocation) -> None:
        """Add the round that was played."""
        self._rounds.append(round_)
        self._allocations.append(allocation)


def _played(backend: Backend, decision: Decision) -> Round:
    """Play a round; the message of a failure names the round."""
    try:
        return backend.play(decision)
    except RunEnds:
        raise
    except RunError as error:
        raise RunError(f"round {decision.index}: {error}") from error


def predict(
    scenario: Scenario,
    source: ChannelSource,
    profile: SplitProfile,
    *,
    sizing: Sizing = payload_bytes,
    rounds: int | None = None,
    decide: Decide | None = None,
    progress: Callable[[int], None] | None = None,
    forget: bool = False,
) -> Timeline:
    """Predict rounds from t = 0, one after the other without a gap.

    If a fault of the scenario ends the run, the timeline contains the rounds before it, and the
    reason.

    Args:
        scenario: Scenario of the rounds.
        source: Source of the channel, which is extended as the rounds need it.
        profile: Costs of each split.
        sizing: Function that computes bytes; with `link_bytes`, links have the delay and loss of
            the scenario.
        rounds: Number of rounds. Default: `rounds` of the scenario.
        decide: Function that decides allocations. Default: the scenario's own split and shares.
        progress: Called after each round with the number of rounds done.
        forget: Whether the source may forget the slots of rounds that were played. It cannot be
            used again then.

    Raises:
        InputError: The scenario has another number of UAVs than the source, or its trace is too
            short.
    """
    channel = Channel.of(source)
    if forget and decide is None and not needs_past(scenario, sizing):
        channel.may_forget()
    if rounds is not None and scenario.updates:
        scenario = scenario.model_copy(update={"rounds": rounds})
    check_steps(scenario if rounds is None else scenario.model_copy(update={"rounds": rounds}))
    engine = engine_of(scenario, channel, profile, sizing, decide)
    done: list[Round] = []
    has_rates = isinstance(channel.now, RateTrace)
    if channel.now.begin:
        raise ValueError("the channel has forgotten its first slots")
    made = Timeline(done, None, is_open(scenario, channel.now), has_rates)
    try:
        for round_ in play_rounds(scenario, channel, engine, rounds=rounds, decide=decide):
            done.append(round_)
            if progress is not None:
                progress(len(done))
    except RunEnds as ended:
        return replace(made, ended=ended)
    return made


def needs_past(scenario: Scenario, sizing: Sizing) -> bool:
    """Whether predictions use slots from before a round: to choose clients, for the energy of
    flight, or for links whose delay or loss differs from slot to slot."""
    tcp = tcp_model_of(scenario) if sizing is link_bytes else None
    differs = tcp is not None and tcp.scenario is not None
    chooses = scenario.topology is not None or selection(scenario) is not None
    return chooses or differs or scenario.propulsion.model != "none"


def engine_of(
    scenario: Scenario,
    source: ChannelSource,
    profile: SplitProfile,
    sizing: Sizing,
    decide: Decide | None = None,
) -> Backend:
    """The engine as a backend, with or without a hierarchy.

    Args:
        scenario: See `EngineBackend`, and so for the next three.
        source: Source of the channel.
        profile: Costs of each split.
        sizing: Function that computes bytes.
        decide: Function that decides the allocations of edge servers. Default: the scenario's own
            split and shares.
    """
    if scenario.topology is None:
        return EngineBackend(scenario, source, profile, sizing)
    channel = Channel.of(source)
    edges = [
        EdgeServer(EngineBackend(there, channel, profile, sizing), decisions)
        for there, decisions in zip(
            scenario.at_edges, decisions_at_edges(scenario, channel, decide), strict=True
        )
    ]
    backhaul = PredictedBackhaul(scenario, profile, framed=sizing is link_bytes)
    return HierarchicalBackend(scenario, edges, backhaul)


class EngineBackend:
    """Predicted rounds of one timeline, with the faults that the scenario plans.

    Args:
        scenario: Scenario of the rounds.
        source: Source of the channel.
        profile: Costs of each split.
        sizing: Function that computes bytes; with `link_bytes`, links have the delay and loss of
            the scenario.

    Raises:
        InputError: The scenario does not go together with frames, or with this kind of channel.
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
        self._costs: SplitCosts | None = None
        self._rounds: list[Round] = []
        """Complete rounds of the asynchronous run that is being played."""
        self._ended: RunEnds | None = None
        """The reason for which the asynchronous run has no further rounds; None: it has some."""
        self._in_force: RoundFaults | None = None
        """Faults of the round that is being played."""

    def play(self, decision: Decision) -> Round:
        """Predict a round.

        Raises:
            RunEnds: A fault ends the run before the round is over, or an asynchronous run has no
                more rounds.
            TraceExhausted: The channel ends before the round does.
        """
        if self._scenario.updates:
            return self._next_of_session(decision)
        self._channel.fly(decision.start_s, decision.allocation.position_m)
        return self.play_whole(decision)

    def play_ahead(self, decision: Decision, start_s: float, rounds: int) -> list[Round]:
        """Predict rounds that have the decision of the last one in a single call of compiled code.

        Args:
            decision: Decision of the last round.
            start_s: Start of the next round in s.
            rounds: Number of rounds.

        Returns:
            As many rounds as the slots that are known are enough for, but at most about
            `MOST_STEPS_AHEAD` steps; none if the rounds may differ in more than their channel.
        """
        plan, scenario = self.plan(decision.allocation), self._scenario
        plain = plan.paradigm.is_plain and not plan.updates and self._tcp is None
        flies = self._channel.is_guided or scenario.propulsion.model != "none"
        rounds = min(rounds, MOST_STEPS_AHEAD // (plan.clients * (5 * plan.iterations + 2)))
        if rounds < 1 or not plain or flies or not self._faults.is_empty:
            return []
        trace, first, found = self._channel.now, decision.index + 1, []
        slots = Slots(trace.values, trace.slot_s, begin=trace.begin)
        radio = self.radio(decision.allocation)
        with suppress(TraceExhausted, OrderFailed):  # The next round refuses it, or adds slots.
            found = repeated(plan, radio, slots, start_s, rounds)
        made = [round_of(first + n, plan, times) for n, times in enumerate(found)]
        return list(takewhile(lambda one: one.latency_s <= scenario.longest_round_s, made))

    def _next_of_session(self, decision: Decision) -> Round:
        """A round of an asynchronous run, all of which are predicted with the first one."""
        if not decision.index:
            session = self.simulate(decision, self._faults_of(decision))
            plan = self.plan(decision.allocation)
            self._rounds = rounds_of(session, plan, self._radio)
            self._ended = None
            try:
                self._check(decision, session)
            except RunEnds as ended:
                self._rounds = [r for r in self._rounds if r.end_s < ended.at_s]
                self._ended = ended
        if decision.index < len(self._rounds):
            return self._rounds[decision.index]
        has = f"the scenario has {self._scenario.rounds} rounds"
        raise self._ended or RunEnds(has, decision.start_s)

    def play_whole(self, decision: Decision) -> Round:
        """Predict a round, or all rounds of an asynchronous run as one; see `play`."""
        round_ = self.simulate(decision, self._faults_of(decision))
        self._check(decision, round_)
        self._faults.played(round_)
        return round_

    def _faults_of(self, decision: Decision) -> RoundFaults | None:
        clients = decision.allocation.clients
        self._in_force = self._faults.round(decision.index, decision.start_s, clients)
        return self._in_force

    def _check(self, decision: Decision, played: Round) -> None:
        """See `RoundFaults.check`; losses after the end of an asynchronous run are ignored."""
        if self._in_force is not None:
            lost = [loss for loss in played.lost if loss.lost_s <= played.end_s]
            self._in_force.check(decision.index, played.end_s, lost)

    def play_with(self, decision: Decision, faults: RoundFaults | None) -> Round:
        """Predict a round with these faults instead of those of this timeline."""
        round_ = self.simulate(decision, faults)
        self._faults.played(round_)
        return round_

    def plan(self, allocation: Allocation) -> RoundPlan:
        """The plan of a round with this allocation: computing times and transfer sizes."""
        if self._planned is None or self._planned[0] is not allocation:
            self._planned = allocation, self._new_plan(allocation)
        return self._planned[1]

    def _new_plan(self, allocation: Allocation) -> RoundPlan:
        """The plan of a round: from the costs of all splits, as soon as decisions differ."""
        given = (getattr(allocation, name) for name in ("clients", *LOADED))
        if self._planned is None or self._scenario.updates or any(v is not None for v in given):
            return plan_round(self._scenario, self._profile, allocation, self._sizing)
        if self._costs is None:
            self._costs = split_costs(self._scenario, self._profile, self._sizing)
        return self._costs.plan(allocation)

    def radio(self, allocation: Allocation) -> RadioAccess:
        """The radio of a round with this allocation."""
        return powered(self._radio, allocation)

    def tcp(self, index: int) -> TcpModel | None:
        """Model of delay and loss for a round's transfers; None: there are neither."""
        return self._tcp and self._tcp.of_round(index)

    @contextmanager
    def on(self, end_s: float) -> Iterator[None]:
        """Predict on the channel as it is held from a moment on; see `Channel.held`."""
        whole, self._channel = self._channel, self._channel.held(end_s)
        try:
            yield
        finally:
            self._channel = whole

    def add_fault(self, fault: Fault) -> None:
        """Add an unplanned fault; see `FaultSchedule.add_fault`."""
        self._faults.add_fault(fault)

    def resume(self, rounds: Sequence[Round]) -> None:
        """Continue after rounds of this timeline that were played before."""
        self._faults.resume(rounds)

    def simulate(self, decision: Decision, faults: RoundFaults | None) -> Round:
        """Simulate a round, or all rounds of an asynchronous run as one, with these faults."""
        plan = self.plan(decision.allocation)
        tcp = self.tcp(decision.index)
        radio = self.radio(decision.allocation)
        times = simulate_on(
            self._scenario, plan, radio, self._channel, decision.start_s, faults, tcp=tcp
        )
        return with_flight(self._scenario, round_of(decision.index, plan, times), self._channel.now)


def decisions_at_edges(
    scenario: Scenario,
    channel: Channel,
    decide: Decide | None,
    done: Sequence[Sequence[tuple[Round, Allocation]]] | None = None,
) -> list[Decisions]:
    """The decisions of each edge server on its own UAVs; `done` has the rounds of each one."""
    servers = zip(scenario.at_edges, scenario.members, strict=True)
    return [
        Decisions(there, channel, decide, done[edge - 1] if done else (), edge, members)
        for edge, (there, members) in enumerate(servers, 1)
    ]


@dataclass(frozen=True)
class EdgeServer:
    """An edge server, which decides on its rounds and plays them as any base station does."""

    backend: Backend
    decisions: Decisions

    def play(self, numbers: range, start_s: float) -> list[Round]:
        """Play its rounds of a cloud round, one after the other.

        Args:
            numbers: Indices of these rounds, which count from the start of the run.
            start_s: Start of the first one in s.

        Raises:
            RunEnds: See `Backend.play`; the same is true of `TraceExhausted`.
        """
        rounds: list[Round] = []
        for number in numbers:
            decision = self.decisions.next(number, rounds[-1].end_s if rounds else start_s)
            try:
                rounds.append(self.backend.play(decision))
            except RunEnds as ends:
                where = f"edge server {self.decisions.edge}, edge"
                raise RunEnds(f"{where} {ends}", ends.at_s) from None
            self.decisions.add(rounds[-1], decision.allocation)
        return rounds


@dataclass(frozen=True)
class HierarchicalBackend:
    """Cloud rounds as a backend of backends: the edge servers play their rounds one after the
    other, although they happen at the same time, and exchange their models with the cloud."""

    scenario: Scenario
    edges: Sequence[EdgeServer]
    backhaul: BackhaulLinks

    def play(self, decision: Decision) -> Round:
        """Play a cloud round.

        Raises:
            RunEnds: A planned fault ends the run at one of the edge servers; the earliest counts.
            TraceExhausted: The channel ends before the round does.
        """
        index, start_s = decision.index, decision.start_s
        rounds: list[list[Round]] = []
        ended: list[RunEnds] = []
        for edge in self.edges:
            try:
                rounds.append(edge.play(edge_rounds_of(self.scenario, index), start_s))
            except RunEnds as ends:
                ended.append(ends)
        if ended:
            raise min(ended, key=lambda ends: ends.at_s)
        return cloud_round(self.scenario, index, start_s, rounds, self.backhaul)


def edge_rounds_of(scenario: Scenario, index: int) -> range:
    """Indices of the edge rounds of a cloud round, which count from the start of the run."""
    count = scenario.edge_rounds
    return range(index * count, (index + 1) * count)


class ShadowPrediction:
    """A timeline of predicted rounds, in step with measured rounds."""

    def __init__(self, engine: EngineBackend, rounds: Sequence[Round] = ()):
        """Continue after rounds that were predicted before."""
        self.engine = engine
        self._start_s = self._end_s = rounds[-1].end_s if rounds else 0.0
        engine.resume(rounds)

    def begin(self, start_s: float) -> None:
        """Let the next round start at this time: an edge server has waited for the cloud."""
        self._end_s = start_s

    def next_round(self, decision: Decision, faults: RoundFaults | None) -> Round:
        """The next round, which starts at the end of the last prediction.

        Args:
            decision: Decision of the measured round.
            faults: Faults of the measured round.
        """
        self._start_s = self._end_s
        try:
            round_ = self.engine.play_whole(replace(decision, start_s=self._end_s))
        except RunEnds:  # The run lasts longer than predicted: continue from there.
            round_ = self.engine.play_with(decision, faults)
        self._end_s = round_.end_s
        return round_

    def flown_round(self, decision: Decision, faults: RoundFaults | None, end_s: float) -> Round:
        """The round as in `next_round`, from its measured start, on the channel as it was flown
        until its measured end; if the prediction lasts longer, the channel stays as it was then.

        Args:
            decision: Decision of the measured round.
            faults: Faults of the measured round.
            end_s: End of the measured round.
        """
        self.begin(decision.start_s)
        with self.engine.on(end_s):
            return self.next_round(decision, faults)

    def repeat_round(self, decision: Decision, faults: RoundFaults | None) -> Round:
        """The last round again, after a fault has been added; see `next_round`."""
        self._end_s = self._start_s
        return self.next_round(decision, faults)

    def add_fault(self, fault: Fault) -> None:
        """Add the loss of a host between two rounds: its nodes are absent from now on."""
        self.engine.add_fault(replace(fault, start_s=self._end_s, lost_s=self._end_s))


def simulate_on(
    scenario: Scenario,
    plan: RoundPlan,
    radio: RadioAccess,
    channel: Channel,
    start_s: float,
    faults: RoundFaults | None = None,
    tcp: TcpModel | None = None,
) -> RoundTimes:
    """Simulate a round of a scenario on a channel that is extended as the round needs it.

    Raises:
        InputError: The round needs more than `longest_round_s`.
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
                begin=trace.begin,
                faults=faults,
                tcp=on_channel(tcp, plan, radio, trace),
            )
        except TraceExhausted:
            check_range(radio, plan.allocation, trace, start_s)
            check_length(scenario, plan, radio, trace, start_s, faults)
            channel.grow()


def check_range(radio: RadioAccess, shares: Allocation, trace: SlotTrace, start_s: float) -> None:
    """Refuse a channel on which a link carries nothing for `LONGEST_OUTAGE_S` from a moment on.

    Raises:
        InputError: The line names the UAVs.
    """
    first = int(start_s / trace.slot_s) - trace.begin
    slots = math.ceil(LONGEST_OUTAGE_S / trace.slot_s)
    if trace.slots < first + slots:
        return
    values = trace.values[:, first : first + slots]
    rates = radio.link_rates(shares, values, in_turns=True, active=1)
    for name, bps in (("uplink", rates.uplink), ("downlink", rates.gradient)):
        if (silent := np.flatnonzero(~bps.any(axis=1)) + 1).size:
            raise InputError(
                f"radio: the {name} of UAV {', '.join(map(str, silent))} carries nothing for "
                f"{LONGEST_OUTAGE_S:g} s from {start_s:.1f} s on: {TOO_WEAK}"
            )


def _too_short(
    end: TraceExhausted, trace: SlotTrace, index: int, count: int, start_s: float
) -> str:
    dead = _dead_links(trace, start_s)
    advice = [dead or "give a longer trace"]
    if index:
        advice.append(f"use `rounds` {index} or fewer")
    return (
        f"trace: its {end.available} slots of {trace.slot_s:g} s end in round {index} of "
        f"0–{count - 1}, which starts at {start_s:.1f} s; "
        + (": " if dead else ", or ").join(advice)
    )


def _dead_links(trace: SlotTrace, start_s: float) -> str:
    """A description of the clients that cannot end a round that begins at `start_s`, according to a
    trace."""
    first = int(start_s / trace.slot_s)
    dead = np.any([~way[:, first:].any(axis=1) for way in both_ways(trace.values)], axis=0)
    if first >= trace.slots or not dead.any():
        return ""
    uavs = ", ".join(map(str, np.flatnonzero(dead) + 1))
    return f"links of {'all UAVs' if dead.all() else f'UAV {uavs}'} carry nothing from then on"
