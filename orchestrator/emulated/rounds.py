# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Emulates a scenario: real links, real processes and measured times, next to their predictions.

`open_rounds` makes a `Backend` of the emulated network; `emulate` lets the loop of
`orchestrator.rounds.loop` play a run's rounds on it.
"""

import contextlib
import math
import os
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from ns3_scenarios.trace import ChannelSource
from orchestrator.analysis.byte_accounts import SET_UP
from orchestrator.emulated.backhaul import open_backhaul
from orchestrator.emulated.hierarchy import EmulatedHierarchy, at_edge
from orchestrator.emulated.learning import (
    evaluates_after,
    evaluation_table,
    learning_settings,
    startup_limit_s,
    whole_table,
)
from orchestrator.emulated.network import check_machine
from orchestrator.emulated.nodes import Nodes
from orchestrator.emulated.options import DEFAULTS, RunOptions
from orchestrator.emulated.rate_feed import extreme_rates
from orchestrator.emulated.stage import Stage, StagedRound, in_turns, start_network
from orchestrator.engine.access import LinkRates, RadioAccess
from orchestrator.engine.faults import Fault, FaultSchedule
from orchestrator.engine.plan import (
    Allocation,
    decided,
    fixed_allocation,
    link_bytes,
    payload_bytes,
    plan_round,
    round_sizes,
)
from orchestrator.engine.radio import radio_access
from orchestrator.engine.rates import link_rates
from orchestrator.records.checkpoint import Checkpoint
from orchestrator.records.emulation import Emulation, SetUp
from orchestrator.rounds.hierarchy import rates_at_edges
from orchestrator.rounds.loop import (
    Backend,
    Decision,
    EngineBackend,
    ShadowPrediction,
    play_rounds,
    predict,
)
from orchestrator.scenario.channel import Channel
from orchestrator.scenario.schema import ResolvedScenario
from testbed.core.errors import InputError, RunEnds
from testbed.core.progress import Progress
from testbed.core.timeline import Round, Timeline
from testbed.system import inside
from testbed.system.programs import Programs
from testbed.transport.wire import MOST_ITERATIONS
from workloads.costs.profile import SplitProfile


def emulate(
    scenario: ResolvedScenario,
    source: ChannelSource,
    profile: SplitProfile,
    folder: Path,
    options: RunOptions = DEFAULTS,
    checkpoint: Checkpoint | None = None,
) -> Generator[Emulation, None, None]:
    """Emulate the rounds of a scenario; yields the state of the run after each round.

    A run that is resumed from a checkpoint first yields the state of the checkpoint.

    Close the generator (`contextlib.closing`) to end the nodes before the last round.

    Args:
        scenario: Scenario to emulate.
        source: Channel of the scenario.
        profile: Costs of each split.
        folder: Existing folder for the logs of the nodes.
        options: Options of the run.
        checkpoint: Checkpoint from which the run is resumed.

    Raises:
        InputError: The trace is too short, or does not fit; or the scenario needs virtual time, and
            this process does not run in it.
        RunError: A node or link failed, or a timeout expired; all nodes have been ended.
    """
    channel = Channel.of(source)
    record = Emulation(scenario, channel)
    if checkpoint is not None:
        checkpoint.restore(record)
        if record.rounds:
            yield record
    with open_rounds(record, profile, folder, options) as rounds:
        done = [
            (measured, decision.allocation)
            for measured, decision in zip(record.measured, record.decisions, strict=True)
        ]
        for _ in play_rounds(scenario, channel, rounds, decide=options.decide, done=done):
            yield record


def check_clock(scenario: ResolvedScenario) -> None:
    """Check that this process runs with the clock of the scenario.

    Raises:
        InputError: The scenario needs virtual time and this process does not run in it, or the
            reverse.
    """
    clock = "real" if inside.guest_settings() is None else "virtual"
    if scenario.emulation.clock != clock:
        raise InputError(
            f"emulation.clock: is {scenario.emulation.clock!r}, but this process has a {clock} "
            "clock; the command line starts virtual time by itself"
        )


@contextlib.contextmanager
def open_rounds(
    record: Emulation, profile: SplitProfile, folder: Path, options: RunOptions = DEFAULTS
) -> Iterator[Backend]:
    """Nodes that are started, connected and calibrated, for the rounds that `record` still lacks.

    Args:
        record: The run so far; new rounds are appended.
        profile: Costs of each split.
        folder: Existing folder for the logs of the nodes.
        options: Options of the run.

    Raises:
        InputError: The trace is too short, or does not fit.
        RunError: A node or link failed, or a timeout expired; all nodes have been ended.
    """
    scenario, channel = record.scenario, record.channel
    check_clock(scenario)
    check_machine(scenario, options.hosts)
    # Refuses a trace that is too short before anything starts, and gives the timeout of rounds.
    expected = predict(scenario, channel, profile, sizing=link_bytes)
    _check_iterations(scenario, expected)
    learning = learning_settings(scenario)
    options.progress("starting nodes", 0, 1)
    plan = plan_round(scenario, profile, fixed_allocation(scenario))
    slots = math.ceil(expected.end_s / channel.slot_s)
    radio = radio_access(scenario, channel.now)
    values = channel.trace(slots).values[:, :slots]
    uplinks_in_turns = radio.is_shared or plan.paradigm.uplink == "sequential"

    def expected_rates(at: RadioAccess, shares: Allocation) -> LinkRates:
        if radio.is_shared:
            return extreme_rates(at, shares, values, in_turns=plan.in_turns)
        return link_rates(replace(plan, allocation=shares), at, values)

    rates = rates_at_edges(scenario, channel.now, expected_rates)
    # The nodes play edge rounds.
    scenario = scenario.model_copy(update={"rounds": scenario.rounds * scenario.edge_rounds})
    started = start_network(scenario, folder, learning, options.hosts, rates, channel)
    with started as network, contextlib.ExitStack() as stack:
        nodes = Nodes(network.world, stack, startup_limit_s(scenario))
        stage = Stage(network, nodes, expected, options.observer)
        if options.capture is not None:
            stage.capture(headers_only=options.capture == "headers")
        stage.set_up(learning)
        if scenario.emulation.calibrates:
            options.progress("calibrating links", 0, 1)
            network.calibrate(
                rates,
                channel.slot_s,
                stage.ends,
                in_turns=in_turns(scenario),
                uplinks_in_turns=uplinks_in_turns,
            )
        accounts = stage.account(SET_UP)
        if (reconnected := stage.impair()) is not None:
            accounts = pd.concat([accounts, reconnected])
        evaluation = None
        if record.state:
            stage.restore(record.state)
        elif evaluates_after(record.scenario, 0):
            evaluation = evaluation_table(-1, 0.0, stage.evaluate())
        record.set_ups.append(SetUp(accounts, network.calibration, evaluation))
        # Containers are children of a daemon; in virtual time there are no other programs.
        where = scenario.emulation
        distinguishable = where.clock == "real" and where.runtime == "namespace"
        before = Programs.outside(os.getpid()) if distinguishable else None
        if scenario.topology is None:
            yield EmulatedRounds(record, profile, stage, options.progress)
        else:
            opened = open_backhaul(record.scenario, profile, folder, expected)
            backhaul = stack.enter_context(opened)
            count = len(record.scenario.members)
            edges = [
                EmulatedRounds(
                    at_edge(record, edge), profile, stage, options.progress, ends_run=edge == count
                )
                for edge in range(1, count + 1)
            ]
            yield EmulatedHierarchy(record, profile, stage, edges, backhaul, options.decide)
        if before is not None:
            record.others = Programs.outside(os.getpid()).since(before)
        stage.stop()


def _check_iterations(scenario: ResolvedScenario, expected: Timeline) -> None:
    """Refuse an asynchronous run, which counts iterations on, if frames cannot name them."""
    if not scenario.updates:
        return
    most = max((int(round_.spans["iteration"].max()) for round_ in expected), default=0)
    if most + int(scenario.workload.largest("local_iterations")) > MOST_ITERATIONS:
        raise InputError(
            f"rounds: a UAV would do {most} iterations in this asynchronous run, and frames can "
            f"name {MOST_ITERATIONS}; must be fewer rounds"
        )


class EmulatedRounds:
    """The emulated network as a `Backend`: plays rounds on real links, and records them."""

    def __init__(
        self,
        record: Emulation,
        profile: SplitProfile,
        stage: Stage,
        progress: Progress,
        *,
        ends_run: bool = True,
    ) -> None:
        """Continue after the rounds that `record` has.

        Args:
            record: The run so far; new rounds are appended.
            profile: Costs of each split.
            stage: The nodes.
            progress: Called with the progress of each round.
            ends_run: Whether the last of these rounds is also the last one on these nodes.
        """
        self._ends_run = ends_run
        self.record = record
        self._profile = profile
        self._stage = stage
        self._progress = progress
        stage.nodes.on_lost = stage.lost_hosts.append
        self._faults = FaultSchedule(record.scenario)
        self._faults.resume(record.measured)
        self._known_faults = len(record.unplanned_faults)
        self._payload, self._wire = (
            ShadowPrediction(
                EngineBackend(record.scenario, record.channel, profile, sizing), rounds
            )
            for sizing, rounds in (
                (payload_bytes, record.predicted),
                (link_bytes, record.predicted_wire),
            )
        )

    def play(self, decision: Decision) -> Round:
        """Emulate a round; all rounds of an asynchronous run are emulated with the first one.

        Raises:
            InputError: The round is not the next one.
            RunEnds: A planned fault ends the run before the round is over, or the scenario has no
                more rounds.
            RunError: A node or link failed, or a timeout expired.
        """
        scenario, stage, index = self.record.scenario, self._stage, decision.index
        if scenario.updates and 0 < index < len(self.record.measured):
            return self.record.measured[index]
        if index != len(self.record.rounds):
            raise InputError(
                f"backend: emulated rounds begin with the first, and cannot start at round {index}"
            )
        if index >= scenario.rounds:
            raise RunEnds(f"the scenario has {scenario.rounds} rounds", decision.start_s)
        self._take_losses(decision.start_s)
        faults = self._faults.round(index, decision.start_s, decision.allocation.clients)
        of_round = decided(scenario, decision.allocation)
        channel = self.record.channel
        channel.fly(decision.start_s, decision.allocation.position_m)
        if channel.is_guided:
            # A prediction of its own time would need slots of which the flight is not known yet.
            self.begin(decision.start_s, decision.start_s)
        staged = StagedRound(
            decision=decision,
            predicted=self._payload.next_round(decision, faults),
            predicted_wire=self._wire.next_round(decision, faults),
            payload_plan=self._payload.engine.plan(decision.allocation),
            link_plan=self._wire.engine.plan(decision.allocation),
            tcp=self._wire.engine.tcp(index),
            sizes=[
                round_sizes(of_round, self._profile, split, client)
                for client, split in enumerate(decision.allocation.splits.tolist(), 1)
            ],
            radio=self._wire.engine.radio(decision.allocation),
            faults=faults,
            with_fault=self._with_fault,
            flown=self._flown if channel.is_guided else None,
            is_last=self._ends_run and (scenario.updates > 0 or index + 1 == scenario.rounds),
        )
        if scenario.updates and not np.isfinite(staged.predicted_wire.spans["end_s"]).all():
            raise InputError(
                "trace: ends before the updates that are in progress at the end of the run have "
                "arrived; give a longer trace"
            )
        played = stage.play(staged, self.record.channel, self._progress)
        self._faults.played(played.measured)
        self.record.captured = stage.network.captured
        if played.learning is not None:
            self.record.state = stage.state()
        index = scenario.rounds - 1 if scenario.updates else index
        if evaluates_after(scenario, index + 1):
            table = evaluation_table(index, played.measured.end_s, stage.evaluate())
            earlier = [] if played.evaluation is None else [played.evaluation]
            played = replace(played, evaluation=whole_table([*earlier, table]))
        self.record.rounds.append(played)
        return self.record.measured[decision.index]

    def begin(self, predicted_s: float, predicted_wire_s: float) -> None:
        """Let the next round start at these times in the two predictions."""
        self._payload.begin(predicted_s)
        self._wire.begin(predicted_wire_s)

    def _with_fault(self, staged: StagedRound, fault: Fault) -> StagedRound:
        """The current round and its predictions with one more fault."""
        for schedule in (self._faults, self._payload.engine, self._wire.engine):
            schedule.add_fault(fault)
        self.record.unplanned_faults.append(fault)
        self._known_faults = len(self.record.unplanned_faults)
        decision = staged.decision
        clients = decision.allocation.clients
        faults = self._faults.round(decision.index, decision.start_s, clients)
        predicted, predicted_wire = (
            shadow.repeat_round(decision, faults) for shadow in (self._payload, self._wire)
        )
        return replace(staged, predicted=predicted, predicted_wire=predicted_wire, faults=faults)

    def _flown(self, staged: StagedRound, end_s: float) -> StagedRound:
        """A guided round with its predictions on the flight until its measured end."""
        predicted, predicted_wire = (
            shadow.flown_round(staged.decision, staged.faults, end_s)
            for shadow in (self._payload, self._wire)
        )
        return replace(staged, predicted=predicted, predicted_wire=predicted_wire)

    def _take_losses(self, start_s: float) -> None:
        """Make the nodes of hosts that were lost since the last round absent from now on."""
        faults = self.record.unplanned_faults
        faults += [
            Fault.of_host(lost.host, lost.nodes, start_s, start_s)
            for lost in self._stage.lost_hosts
        ]
        self._stage.lost_hosts.clear()
        for fault in faults[self._known_faults :]:
            self._faults.add_fault(replace(fault, start_s=start_s, lost_s=start_s))
            for shadow in (self._payload, self._wire):
                shadow.add_fault(fault)
        self._known_faults = len(faults)
