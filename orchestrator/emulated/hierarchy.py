# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Emulates cloud rounds of edge servers, whose edge rounds are played one after the other.

Edge servers have bands and nodes that do not affect each other, so that their rounds have the same
results one after the other as in parallel. One network of nodes plays all of them: its base station
acts as one edge server after the other, with the model and the computing speed of that one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from orchestrator.analysis.error_budget import Budget
from orchestrator.emulated.backhaul import EmulatedBackhaul
from orchestrator.emulated.learning import evaluates_after, evaluation_table
from orchestrator.emulated.options import RunOptions
from orchestrator.emulated.stage import Stage, StagedRound
from orchestrator.engine.faults import Fault, FaultSchedule
from orchestrator.engine.hierarchy import CloudRound, play_cloud_round
from orchestrator.engine.plan import Allocation, link_bytes, payload_bytes, round_sizes
from orchestrator.engine.radio import radio_access
from orchestrator.engine.rounds import Decision, HierarchicalBackend
from orchestrator.records.emulation import Emulation, RoundRecord
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError, RunError
from testbed.core.progress import Progress
from testbed.core.timeline import Round
from testbed.system.machine import Machine
from workloads.costs.profile import SplitProfile

PART = "backhaul"
"""Part of a cloud round's latency in addition to those of its slowest edge server's rounds: the
transfers to and from the cloud."""


def check_options(scenario: Scenario, options: RunOptions) -> None:
    """Refuse options that runs with edge servers do not support.

    Raises:
        InputError: An option is not supported; the message names it.
    """
    if scenario.topology is None:
        return
    for name, given in (
        ("capture", options.capture),
        ("live", options.observer),
    ):
        if given is not None:
            raise InputError(f"`{name}`: is not supported where topology is given")


class EmulatedHierarchy:
    """The emulated network as a `Backend` for cloud rounds.

    Args:
        record: The run so far.
        profile: Costs of each split.
        stage: The nodes.
        backhaul: Links between edge servers and cloud.
        progress: Called with the progress of each edge round.
    """

    def __init__(
        self,
        record: Emulation,
        profile: SplitProfile,
        stage: Stage,
        backhaul: EmulatedBackhaul,
        progress: Progress,
    ):
        self._record = record
        self._profile = profile
        self._stage = stage
        self._backhaul = backhaul
        self._progress = progress
        scenario, channel = record.scenario, record.channel
        self._edges = scenario.at_edges
        self._radios = [radio_access(there, channel.now) for there in self._edges]
        self._faults = FaultSchedule(scenario)
        self._payload, self._wire = (
            HierarchicalBackend(scenario, channel, profile, sizing)
            for sizing in (payload_bytes, link_bytes)
        )
        self._samples: dict[int, int] = {}
        """Number of training samples of each client, once the base station has reported it."""

    def play(self, decision: Decision) -> Round:
        """Emulate a cloud round.

        Raises:
            RunError: A node or link failed, or a timeout expired.
        """
        record, stage = self._record, self._stage
        scenario = record.scenario
        learns = scenario.workload.compute == "real"
        count = scenario.edge_rounds
        payload, wire = (
            engine.parts(replace(decision, start_s=rounds[-1].end_s if rounds else 0.0))
            for engine, rounds in (
                (self._payload, record.predicted),
                (self._wire, record.predicted_wire),
            )
        )
        records: list[list[RoundRecord]] = [[] for _ in self._edges]
        models: list[bytes] = []
        if learns and not record.state:
            record.state = stage.state()

        def play(edge: int, number: int, start_s: float, allocation: Allocation) -> Round:
            place = number % count
            if learns and place == 0:
                stage.restore(record.state)
            own = Decision(number, start_s, allocation)
            parts = payload.edges[edge][place], wire.edges[edge][place]
            played = stage.play(self._staged(edge, own, *parts), record.channel, self._progress)
            records[edge].append(played)
            if learns and place == count - 1:
                models.append(stage.state())
            return played.measured

        def aggregate() -> None:
            if learns:
                record.state = average(models, self._weights(records))
                stage.restore(record.state)

        measured = play_cloud_round(
            scenario,
            decision.index,
            decision.start_s,
            decision.allocation,
            play,
            self._backhaul,
            aggregate,
        )
        done = cloud_record(scenario, decision, records, measured, payload, wire)
        if evaluates_after(scenario, decision.index + 1):
            table = evaluation_table(decision.index, measured.whole.end_s, stage.evaluate())
            done = replace(done, evaluation=table)
        record.rounds.append(done)
        return measured.whole

    def _staged(
        self, edge: int, decision: Decision, predicted: Round, predicted_wire: Round
    ) -> StagedRound:
        there, shares = self._edges[edge], decision.allocation
        wire = self._wire.edges[edge]
        return StagedRound(
            decision=decision,
            predicted=predicted,
            predicted_wire=predicted_wire,
            payload_plan=self._payload.edges[edge].plan(shares),
            link_plan=wire.plan(shares),
            tcp=wire.tcp(decision.index),
            sizes=[
                round_sizes(there, self._profile, split, client)
                for client, split in enumerate(shares.splits.tolist(), start=1)
            ],
            radio=self._radios[edge],
            faults=self._faults.round(decision.index, decision.start_s, shares.clients),
            with_fault=_no_fault,
        )

    def _weights(self, records: Iterable[Iterable[RoundRecord]]) -> list[int]:
        """The number of samples of each edge server's UAVs."""
        if not self._samples:
            first = next(iter(next(iter(records)))).passes or {}
            for client, holdings in enumerate(first["partition"], 1):
                self._samples[client] = sum(count for _, count in holdings)
        return [sum(map(self._samples.__getitem__, own)) for own in self._record.scenario.members]


def _no_fault(staged: StagedRound, fault: Fault) -> StagedRound:
    raise RunError(f"{fault}: rounds with a topology cannot continue")


def average(models: Sequence[bytes], weights: Sequence[int]) -> bytes:
    """The mean of models that are safetensors files, weighted, computed in float64.

    Integer tensors are copied from the first model.
    """
    import safetensors.numpy

    loaded = [safetensors.numpy.load(model) for model in models]
    total = sum(weights)

    def mean(name: str) -> npt.NDArray[Any]:
        first: npt.NDArray[Any] = loaded[0][name]
        if not np.issubdtype(first.dtype, np.floating):
            return first
        parts = (
            weight / total * model[name].astype(np.float64)
            for weight, model in zip(weights, loaded, strict=True)
        )
        return np.asarray(sum(parts, np.zeros_like(first, np.float64)).astype(first.dtype))

    return bytes(safetensors.numpy.save({name: mean(name) for name in loaded[0]}))


def cloud_record(
    scenario: Scenario,
    decision: Decision,
    records: Sequence[Sequence[RoundRecord]],
    measured: CloudRound,
    predicted: CloudRound,
    predicted_wire: CloudRound,
) -> RoundRecord:
    """The record of a cloud round, computed from the records of its edge rounds.

    The causes of its latency are those of the edge rounds of the slowest edge server, and `PART`.
    """
    index, iterations = decision.index, int(scenario.workload.largest("local_iterations"))
    every = [record for rounds in records for record in rounds]
    slowest = records[measured.slowest]

    def tables(name: str, *, own: bool = False) -> pd.DataFrame:
        """A table of all edge rounds, and with `own` only of the UAVs that take part in each."""
        made = []
        for rounds, members in zip(records, scenario.members, strict=True):
            for place, record in enumerate(rounds):
                table: pd.DataFrame = getattr(record, name)
                table = table[table["client"].isin(members)] if own else table
                made.append(renumbered(table, index, place * iterations))
        return pd.concat(made, ignore_index=True)

    def seconds(parts: Sequence[Mapping[str, float]], total_s: float) -> dict[str, float]:
        """Sums of the parts, and the rest of a total in `PART`."""
        sums = {name: sum(each[name] for each in parts) for name in parts[0]}
        return sums | {PART: total_s - sum(sums.values())}

    latency_s, predicted_s = measured.whole.latency_s, predicted.whole.latency_s
    budget_steps = pd.concat(
        renumbered(record.budget.steps, index, place * iterations)
        for rounds in records
        for place, record in enumerate(rounds)
    )
    last = every[-1]
    passes = [record.passes for record in every if record.passes is not None]
    return RoundRecord(
        decision=decision,
        predicted=predicted.whole,
        predicted_wire=predicted_wire.whole,
        measured=measured.whole,
        budget=Budget(
            round=index,
            predicted_s=predicted_s,
            measured_s=latency_s,
            seconds=seconds([r.budget.seconds for r in slowest], latency_s - predicted_s),
            steps=budget_steps.reset_index(drop=True),
        ),
        waterfall=seconds([record.waterfall for record in slowest], latency_s),
        transfers=tables("transfers"),
        rates=tables("rates", own=True),
        injector=pd.concat([record.injector for record in every], ignore_index=True),
        links=replace(
            last.links,
            exhausted=sum(record.links.exhausted for record in every),
            below_floor=sum(record.links.below_floor for record in every),
        ),
        machine=Machine(
            **{f.name: sum(getattr(r.machine, f.name) for r in every) for f in fields(Machine)}
        ),
        accounts=tables("accounts"),
        rejoined=None,
        overruns_s=[late_s for record in every for late_s in record.overruns_s],
        learning=None if last.learning is None else tables("learning"),
        air=None if last.air is None else tables("air", own=True),
        resource_blocks=None
        if last.resource_blocks is None
        else tables("resource_blocks", own=True),
        passes={
            **passes[-1],
            "partition": passes[0]["partition"],
            "diverged": sorted({client for each in passes for client in each["diverged"]}),
            "passes": [size for each in passes for size in each["passes"]],
        }
        if passes
        else None,
    )


def renumbered(table: pd.DataFrame, index: int, iterations: int) -> pd.DataFrame:
    """A table of an edge round as part of a cloud round, with the number of iterations before."""
    table = table.copy()
    if "round" in table:
        table["round"] = index
    if "iteration" in table:
        table["iteration"] += iterations * (table["iteration"] > 0)
    return table
