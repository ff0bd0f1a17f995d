# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Chooses `emulation.dilation: auto`, the factor by which time must be slowed for this machine to
keep up.

The machine's speeds are measured with short samples of the real work, alone and with one sample per
core in parallel. They determine when each computing step of a round would really end: steps that
compute at the same time share the cores. A step that ends after its modelled end is an overrun; the
engine, with these durations, gives the effect of overruns on the round. The smallest factor that
keeps the effect below `emulation.overrun_bound` is chosen. The load of the network itself is not
predicted; the validity checks of the run show it. Only if a process delays and loses frames,
factors with which that process would be late are refused; see `frame_rate`.
"""

import heapq
import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ns3_scenarios.trace import ChannelSource, SlotValues, TraceExhausted
from orchestrator.emulated.frame_rate import of_rounds
from orchestrator.emulated.learning import learning_settings, place
from orchestrator.engine.access import RadioAccess
from orchestrator.engine.faults import FaultSchedule, RoundFaults
from orchestrator.engine.plan import (
    Allocation,
    Array,
    RoundPlan,
    fixed_allocation,
    link_bytes,
    plan_round,
    round_sizes,
    split_of,
)
from orchestrator.engine.radio import radio_access
from orchestrator.rounds.loop import predict, simulate_on
from orchestrator.rounds.simulation import RoundTimes, simulate
from orchestrator.scenario.channel import Channel
from orchestrator.scenario.schema import ALL_CLIENTS, Faults, ResolvedScenario, Scenario
from testbed.control.stream import readable
from testbed.core.errors import InputError, RunError
from testbed.core.timeline import CB, CF, S
from testbed.system import leftovers
from workloads.costs.profile import SplitProfile

LADDER = tuple(
    factor * 10**power
    for power in range(6)
    for factor in (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
)
"""Factors to choose from."""
MOST_CHANGE = 10.0
"""Factors at which a round would last this many times longer are not examined."""
MOST_TURNS = 50
"""Largest number of repetitions of a prediction with the overruns of the previous one."""


@dataclass(frozen=True)
class Speeds:
    """Durations of real computing on this machine, in real seconds per step that runs alone."""

    forward_s: float
    server_s: float
    backward_s: float
    contention: float
    """Factor by which a step takes longer while every core has one."""
    cores: int

    def rate(self, threads: int) -> float:
        """Relative speed of each step while this number of threads compute, at most 1."""
        busy = min(threads, self.cores)
        slower = 1.0
        if self.cores > 1:
            slower += (self.contention - 1) * max(0, busy - 1) / (self.cores - 1)
        return min(1.0, self.cores / threads) / slower


@dataclass(frozen=True)
class DilationForecast:
    """The predicted effects of a dilation."""

    dilation: float
    change: float
    """Effect of overruns on a round's latency, as a share of it."""
    overruns: int
    """Number of computing steps of a round that overrun."""
    run_s: float
    """Duration of all rounds in real seconds."""

    def __str__(self) -> str:
        minutes = f"{self.run_s / 60:.1f} min" if self.run_s >= 90 else f"{self.run_s:.0f} s"
        return (
            f"dilation {self.dilation:g}: {self.overruns} steps of a round overrun and change its "
            f"latency by {100 * self.change:.2f} %; the rounds take {minutes}"
        )


def settle(
    scenario: Scenario, source: ChannelSource, profile: SplitProfile
) -> tuple[ResolvedScenario, Speeds | None, list[DilationForecast]]:
    """The scenario with a number as its dilation.

    Returns:
        The scenario; the speeds of this machine, or None where no computing is modelled; and the
        forecasts for each factor that was tried, the chosen one last. None is tried where the
        scenario gives a number.

    Raises:
        InputError: The trace is too short or does not fit, or frames need a larger dilation than
            the scenario's.
        RunError: The real work could not be measured, or no factor is large enough.
    """
    if scenario.emulation.clock == "virtual":
        return scenario.resolved(1.0), None, []
    channel = Channel.of(source)
    frames = of_rounds(scenario, channel, profile)
    least = frames.least_dilation if frames is not None else 0.0
    if scenario.emulation.dilation != "auto":
        if scenario.emulation.dilation < least:
            raise InputError(
                f"emulation.dilation: must be at least {math.ceil(10 * least) / 10:g}, not "
                f"{scenario.emulation.dilation:g}: {frames}; emulation.clock 'virtual' needs none"
            )
        return scenario.resolved(scenario.emulation.dilation), None, []
    rounds_s = predict(scenario, channel, profile, sizing=link_bytes).end_s
    workload = scenario.workload
    if workload.compute == "none" or workload.compute_time == "measured":
        factor = next(factor for factor in (*LADDER, math.ceil(least)) if factor >= least)
        speeds, tried = None, [DilationForecast(factor, 0.0, 0, factor * rounds_s)]
    else:
        speeds = measure(scenario, profile)
        # Edge servers play their rounds one after the other.
        rounds_s *= len(scenario.members)
        shares, every = fixed_allocation(scenario), []
        for there, members in zip(scenario.at_edges, scenario.members, strict=True):
            plan = plan_round(there, profile, shares.among(members), link_bytes)
            every.append(choose(there, plan, channel, speeds, rounds_s, least))
        tried = max(every, key=lambda forecasts: forecasts[-1].dilation)
    return scenario.resolved(tried[-1].dilation), speeds, tried


def choose(
    scenario: Scenario,
    plan: RoundPlan,
    channel: Channel,
    speeds: Speeds,
    rounds_s: float,
    least: float = 0.0,
) -> list[DilationForecast]:
    """Forecasts for the factors of `LADDER` from `least` up to the first one within the bound.

    Raises:
        RunError: Even the largest factor is not within the bound.
    """
    radio, tried = radio_access(scenario, channel.now), []
    threads = (scenario.uavs.threads, scenario.base_station.threads)
    faults = resting(scenario, plan.allocation)
    free = simulate_on(scenario, plan, radio, channel, 0.0, faults)
    enough = int(MOST_CHANGE * free.latency_s / channel.slot_s) + 1
    gain = channel.trace(enough).values[:, :enough]
    for dilation in (factor for factor in LADDER if factor >= least):
        try:
            times, overruns = with_overruns(
                plan, radio, gain, channel.slot_s, speeds, threads, dilation, faults
            )
        except TraceExhausted:
            continue
        ratio = times.latency_s / free.latency_s
        tried.append(
            DilationForecast(dilation, abs(ratio - 1), overruns, rounds_s * ratio * dilation)
        )
        if tried[-1].change < scenario.emulation.overrun_bound:
            return tried
    raise RunError(
        f"emulation.dilation: even {LADDER[-1]:g} would leave overruns that change a round by more "
        f"than emulation.overrun_bound, {100 * scenario.emulation.overrun_bound:g} %"
    )


def resting(scenario: Scenario, shares: Allocation) -> RoundFaults | None:
    """A round without faults in which only the clients of an allocation take part."""
    healthy = {"faults": Faults(), "participation": ALL_CLIENTS}
    return FaultSchedule(scenario.model_copy(update=healthy)).round(0, 0.0, shares.clients)


def with_overruns(
    plan: RoundPlan,
    radio: RadioAccess,
    gain: SlotValues,
    slot_s: float,
    speeds: Speeds,
    threads: tuple[int, int],
    dilation: float,
    faults: RoundFaults | None = None,
) -> tuple[RoundTimes, int]:
    """A round whose computing steps take as long as on this machine, and the number of overruns.

    Overruns delay later steps, which then share the cores with other steps: the prediction is
    repeated until nothing changes.

    Args:
        plan: Modelled durations.
        radio: The radio access that converts gains to rates.
        gain: Shape [K, S].
        slot_s: Length of a slot.
        speeds: Speeds of this machine.
        threads: Threads with which a UAV and the server compute.
        dilation: Real seconds per emulated second.
        faults: See `resting`.

    Raises:
        TraceExhausted: The round lasts longer than the trace.
    """
    actual = plan
    for _ in range(MOST_TURNS):
        times = simulate(actual, radio, gain, slot_s, faults=faults)
        before, actual = actual, _with_real_durations(plan, times.spans, speeds, threads, dilation)
        if np.abs(_durations(actual) - _durations(before)).max() < 1e-6:
            break
    overruns = int((_durations(actual) > _durations(plan) + 1e-9).sum())
    return times, overruns


def _durations(plan: RoundPlan) -> Array:
    return np.stack([plan.cf_s, plan.s_s, plan.cb_s])


def _with_real_durations(
    plan: RoundPlan,
    spans: npt.NDArray[np.void],
    speeds: Speeds,
    threads: tuple[int, int],
    dilation: float,
) -> RoundPlan:
    """The plan with the real durations of steps that start as in `spans`."""
    jobs = []
    for step, work_s, modelled in (
        (CF, speeds.forward_s, plan.cf_s),
        (S, speeds.server_s, plan.s_s),
        (CB, speeds.backward_s, plan.cb_s),
    ):
        for span in spans[spans["step"] == step]:
            at = (int(span["client"]) - 1, int(span["iteration"]) - 1)
            start_s = float(span["start_s"]) * dilation
            due_s = start_s + float(modelled[at]) * dilation
            jobs.append(Job(start_s, due_s, work_s, step == S, (step, *at)))
    durations = {CF: plan.cf_s.copy(), S: plan.s_s.copy(), CB: plan.cb_s.copy()}
    for job, done_s in zip(jobs, finish(jobs, speeds, threads), strict=True):
        step, client, iteration = job.what
        took_s = (done_s - job.start_s) / dilation
        durations[step][client, iteration] = max(durations[step][client, iteration], took_s)
    return replace(plan, cf_s=durations[CF], s_s=durations[S], cb_s=durations[CB])


@dataclass(frozen=True)
class Job:
    """Real work of a computing step, in real seconds."""

    start_s: float
    due_s: float
    work_s: float
    """Duration of the computing step if it runs alone."""
    by_server: bool
    """Whether the base station does it; it does one job at a time, the earliest first, while UAVs
    never wait."""
    what: tuple[int, int, int]
    """Step, client and iteration, from 0."""


def finish(jobs: Sequence[Job], speeds: Speeds, threads: tuple[int, int]) -> list[float]:
    """The end of each job when all running jobs share the cores evenly.

    All running jobs have the same speed, so a job ends when the integral of the speed since its
    start equals its work: one heap of integrals is enough.
    """
    arrivals = sorted(range(len(jobs)), key=lambda index: jobs[index].start_s)
    ends_s = [0.0] * len(jobs)
    under_way: list[tuple[float, int]] = []
    waiting: list[tuple[float, int]] = []
    serving, busy_threads = False, 0
    now_s, integral_s, arrived = 0.0, 0.0, 0

    def begin(index: int) -> None:
        nonlocal busy_threads
        busy_threads += threads[jobs[index].by_server]
        heapq.heappush(under_way, (integral_s + jobs[index].work_s, index))

    while arrived < len(jobs) or under_way:
        rate = speeds.rate(busy_threads) if under_way else 1.0
        done_s = now_s + (under_way[0][0] - integral_s) / rate if under_way else np.inf
        next_s = jobs[arrivals[arrived]].start_s if arrived < len(jobs) else np.inf
        integral_s += (min(done_s, next_s) - now_s) * rate
        now_s = min(done_s, next_s)
        if done_s <= next_s:
            integral_s, index = heapq.heappop(under_way)
            ends_s[index] = now_s
            busy_threads -= threads[jobs[index].by_server]
            if jobs[index].by_server:
                serving = bool(waiting)
                if waiting:
                    begin(heapq.heappop(waiting)[1])
            continue
        index = arrivals[arrived]
        arrived += 1
        if jobs[index].by_server and serving:
            heapq.heappush(waiting, (jobs[index].due_s, index))
        else:
            serving = serving or jobs[index].by_server
            begin(index)
    return ends_s


# --- measuring -----------------------------------------------------------------------------------


def measure(scenario: Scenario, profile: SplitProfile) -> Speeds:
    """Measure this machine's speeds with the real work of a scenario's steps.

    Raises:
        InputError: The model or its weights are unavailable.
        RunError: The measurement failed.
    """
    learning = learning_settings(scenario)
    assert learning is not None
    split = split_of(scenario)
    if not isinstance(split, int):
        raise InputError(
            "emulation.dilation: 'auto' measures one split point; give a number where "
            "workload.split is a list"
        )
    for key in scenario.workload.differing_loads:
        raise InputError(
            "emulation.dilation: 'auto' measures one step for all UAVs; give a number where "
            f"workload.{key} differs between them"
        )
    cores = len(os.sched_getaffinity(0))
    order = {
        "client": learning | place(scenario.uavs),
        "server": learning | place(scenario.base_station),
        "split": split,
        "sizes": asdict(round_sizes(scenario, profile, split)),
    }
    together = max(1, cores // scenario.uavs.threads)
    with ExitStack() as stack:
        programs = [stack.enter_context(_program()) for _ in range(together)]
        for program in programs:
            stack.callback(program.kill)
        for program in programs:
            _send(program, order)
        for program in programs:
            _receive(program)
        _send(programs[0], "all")
        alone = _receive(programs[0])
        for program in programs:
            _send(program, "forward")
        shared_s = max(_receive(program)["forward_s"] for program in programs)
    return Speeds(
        contention=max(1.0, shared_s / alone["forward_s"]),
        cores=cores,
        **alone,
    )


MEASURE_S = 600.0
"""Timeout of an answer of the program, which loads a model, or repeats a step for a while."""


def _program() -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "workloads.costs.speed"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**leftovers.marked(), "OMP_NUM_THREADS": "1"},
    )


def _send(program: "subprocess.Popen[str]", what: object) -> None:
    assert program.stdin is not None
    program.stdin.write(json.dumps(what) + "\n")
    program.stdin.flush()


def _receive(program: "subprocess.Popen[str]") -> dict[str, Any]:
    assert program.stdout is not None
    if not readable(program.stdout, MEASURE_S):
        raise RunError(
            f"emulation.dilation: waited {MEASURE_S:g} s for the measurement of the real work"
        )
    line = program.stdout.readline()
    if not line:
        raise RunError("emulation.dilation: the measurement of the real work failed")
    answer: dict[str, Any] = json.loads(line)
    return answer
