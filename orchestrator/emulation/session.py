"""A scenario emulated: real links, real processes, measured times, beside their predictions."""

import contextlib
import math
import time
from collections.abc import Generator
from pathlib import Path
from typing import Literal

from ns3_scenarios.trace import ChannelSource
from orchestrator.analysis.byte_accounts import SET_UP
from orchestrator.emulation.calibration import calibrate
from orchestrator.emulation.checkpoint import Checkpoint
from orchestrator.emulation.learning import (
    evaluates_after,
    evaluation_table,
    learning_settings,
    startup_limit_s,
)
from orchestrator.emulation.nodes import Nodes
from orchestrator.emulation.observer import Observer
from orchestrator.emulation.record import Emulation
from orchestrator.emulation.stage import Stage, StagedRound, start_world
from orchestrator.prediction.engine import round_of
from orchestrator.prediction.faults import FaultSchedule
from orchestrator.prediction.plan import (
    fixed_allocation,
    link_bytes,
    payload_bytes,
    plan_round,
    radio_of,
    round_sizes,
)
from orchestrator.prediction.rates import link_rates
from orchestrator.prediction.rounds import (
    Decide,
    Situation,
    known_at,
    longer,
    predict,
    predict_round,
    simulate_on,
)
from orchestrator.scenario.links import shape_of
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import RunEnds
from testbed.core.progress import Progress, silent
from workloads.costs.profile import SplitProfile


def emulate(
    scenario: Scenario,
    source: ChannelSource,
    profile: SplitProfile,
    folder: Path,
    *,
    decide: Decide | None = None,
    capture: Literal["frames", "headers"] | None = None,
    checkpoint: Checkpoint | None = None,
    progress: Progress = silent,
    observer: Observer | None = None,
) -> Generator[Emulation, None, None]:
    """Emulate the scenario's rounds; yields what there is after each round.

    A run that goes on from a checkpoint yields first what that brought.

    Close the generator (`contextlib.closing`) to end the nodes before the last round.

    Args:
        scenario: What to emulate.
        source: Channels.
        profile: Costs of each split.
        folder: Existing folder that takes the nodes' logs.
        decide: Who allocates; left out: the scenario's own split and shares.
        capture: Write what goes over each link to `folder`/pcap, whole or the headers alone.
        checkpoint: Where the run goes on from.
        progress: Told how far the run is.
        observer: Told what happens within rounds.

    Raises:
        RunError: A node or link failed, or something took too long; nothing is left running.
    """
    # Refuses a trace that is too short before anything starts, and says how long rounds may take.
    predicted = predict(scenario, source, profile, sizing=link_bytes)
    done = Emulation(scenario, source.trace(1))
    if checkpoint is not None:
        checkpoint.restore(done, source)
        if done.measured:
            yield done
    fault_schedule, *predictors = (FaultSchedule(scenario) for _ in range(3))
    fault_schedule.resume(done.measured)
    for own, rounds in zip(predictors, (done.predicted, done.predicted_wire), strict=True):
        own.resume(rounds)
    learning = learning_settings(scenario)
    progress("starting nodes", 0, 1)
    with start_world(scenario, folder, learning) as world, contextlib.ExitStack() as stack:
        stage = Stage(Nodes(world, stack, startup_limit_s(scenario)), scenario, predicted, observer)
        if capture is not None:
            stage.capture(folder / "pcap", headers_only=capture == "headers")
        stage.set_up(learning)
        radio = radio_of(scenario)
        if scenario.emulation.calibrate:
            progress("calibrating links", 0, 1)
            plan = plan_round(scenario, profile, fixed_allocation(scenario))
            slots = math.ceil(predicted.end_s / source.slot_s)
            rates = link_rates(plan, radio, longer(source, slots).gain[:, :slots])
            done.calibration = calibrate(
                stage.nodes, scenario, rates, source.slot_s, shape_of(scenario)
            )
        done.accounts.append(stage.account(SET_UP, None)[0])
        if done.state:
            stage.restore(done.state)
        elif evaluates_after(scenario, 0):
            done.learning.append(evaluation_table(-1, 0.0, stage.evaluate()))
        for index in range(len(done.measured), scenario.rounds):
            start_s = done.measured[-1].end_s if done.measured else 0.0
            began = time.perf_counter()
            if decide is None:
                allocation = fixed_allocation(scenario)
            else:
                known, done.channel = known_at(start_s, source, done.channel)
                now = Situation(index, start_s, done.measured, done.allocations, known)
                allocation = decide(now)
            done.decision_s.append(time.perf_counter() - began)
            faults = fault_schedule.round(index, start_s)
            done.allocations.append(allocation)
            plans = [
                plan_round(scenario, profile, allocation, sizing)
                for sizing in (payload_bytes, link_bytes)
            ]
            for rounds, plan, own in zip(
                (done.predicted, done.predicted_wire), plans, predictors, strict=True
            ):
                after_s = rounds[-1].end_s if rounds else 0.0
                try:
                    times, done.channel = predict_round(
                        index, plan, radio, source, done.channel, after_s, own
                    )
                except RunEnds:  # It has come further than was predicted: predict it from there.
                    times, done.channel = simulate_on(
                        plan, radio, source, done.channel, start_s, faults
                    )
                rounds.append(round_of(index, plan, times))
                own.played(rounds[-1])
            stage.play(
                StagedRound(index, start_s, plans[0], plans[1], radio, faults),
                round_sizes(scenario, profile, allocation.split),
                source,
                done,
                progress,
            )
            fault_schedule.played(done.measured[-1])
            if learning is not None:
                done.state = stage.state()
            if evaluates_after(scenario, index + 1):
                end_s = done.measured[-1].end_s
                done.learning.append(evaluation_table(index, end_s, stage.evaluate()))
            yield done
        stage.stop()
