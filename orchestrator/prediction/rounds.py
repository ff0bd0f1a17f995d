"""Rounds that follow each other, predicted: from a scenario and its channel to a `Timeline`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ns3_scenarios.trace import ChannelSource, ChannelTrace, TraceExhausted
from orchestrator.prediction.engine import RoundTimes, round_of, simulate
from orchestrator.prediction.faults import FaultSchedule, RoundFaults
from orchestrator.prediction.plan import (
    Allocation,
    Radio,
    RoundPlan,
    Sizing,
    fixed_allocation,
    payload_bytes,
    plan_round,
    radio_of,
)
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError, RunEnds
from testbed.core.timeline import Round, Timeline
from workloads.costs.profile import SplitProfile

FIRST_SLOTS = 1024
"""Slots asked for at first; each further request doubles them."""


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
    channel: ChannelTrace
    """Slots up to the one in which the round starts; nothing of the future."""


Decide = Callable[[Situation], Allocation]
"""Decides split and shares of a round at its start."""


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
        sizing: How bytes are counted.
        rounds: How many; left out: the scenario's.
        decide: Who allocates; left out: the scenario's own split and shares.
        progress: Called after each round with the number of rounds done.

    Raises:
        InputError: The source's UAVs are not the scenario's, or its trace is too short.
    """
    if source.uavs != scenario.uavs.count:
        raise InputError(
            f"trace: gain has {source.uavs} UAVs, but uavs.tx_power_w has {scenario.uavs.count}"
        )
    count = scenario.rounds if rounds is None else rounds
    radio = radio_of(scenario)
    channel = longer(source, FIRST_SLOTS)
    allocation = fixed_allocation(scenario)
    plan = plan_round(scenario, profile, allocation, sizing)
    done: list[Round] = []
    allocations: list[Allocation] = []
    start_s = 0.0
    fault_schedule = FaultSchedule(scenario)
    for index in range(count):
        try:
            if decide is not None:
                known, channel = known_at(start_s, source, channel)
                allocation = decide(Situation(index, start_s, done, allocations, known))
                plan = plan_round(scenario, profile, allocation, sizing)
            times, channel = predict_round(
                index, plan, radio, source, channel, start_s, fault_schedule
            )
        except TraceExhausted as end:
            raise InputError(_too_short(end, source.slot_s, index, count, start_s)) from None
        except RunEnds as ended:
            return Timeline(done, ended)
        done.append(round_of(index, plan, times))
        fault_schedule.played(done[-1])
        allocations.append(allocation)
        start_s = times.end_s
        if progress is not None:
            progress(len(done))
    return Timeline(done)


def predict_round(
    index: int,
    plan: RoundPlan,
    radio: Radio,
    source: ChannelSource,
    channel: ChannelTrace,
    start_s: float,
    fault_schedule: FaultSchedule,
) -> tuple[RoundTimes, ChannelTrace]:
    """The next round of a timeline with its faults; see `simulate_on`.

    Raises:
        RunEnds: A fault ends the run before the round is over.
    """
    faults = fault_schedule.round(index, start_s)
    times, channel = simulate_on(plan, radio, source, channel, start_s, faults)
    if faults is not None:
        faults.check(index, times.end_s, times.lost)
    return times, channel


def simulate_on(
    plan: RoundPlan,
    radio: Radio,
    source: ChannelSource,
    channel: ChannelTrace,
    start_s: float,
    faults: RoundFaults | None = None,
) -> tuple[RoundTimes, ChannelTrace]:
    """The round's times, and the trace, grown as far as the round needs it."""
    while True:
        try:
            times = simulate(plan, radio, channel.gain, channel.slot_s, start_s, faults=faults)
            return times, channel
        except TraceExhausted:
            channel = longer(source, 2 * channel.slots, than=channel.slots)


def known_at(
    start_s: float, source: ChannelSource, channel: ChannelTrace
) -> tuple[ChannelTrace, ChannelTrace]:
    """The trace up to the slot in which a round starts, and the trace, grown as far as that."""
    slots = int(start_s / channel.slot_s + 1e-6) + 1
    while channel.slots < slots:
        channel = longer(source, 2 * channel.slots, than=channel.slots)
    position = channel.position_m
    known = replace(
        channel,
        gain=channel.gain[:, :slots],
        position_m=None if position is None else position[:, :slots],
    )
    return known, channel


def longer(source: ChannelSource, slots: int, than: int = 0) -> ChannelTrace:
    """A trace of so many slots, or of all that the source has."""
    try:
        trace = source.trace(slots)
    except TraceExhausted as end:
        trace = source.trace(end.available)
    if trace.slots <= than:
        raise TraceExhausted(trace.slots)
    return trace


def _too_short(end: TraceExhausted, slot_s: float, index: int, count: int, start_s: float) -> str:
    return (
        f"trace: its {end.available} slots of {slot_s:g} s end in round {index + 1} of {count}, "
        f"which starts at {start_s:.1f} s; give a longer trace"
        + (f", or --rounds {index} at most" if index else "")
    )
