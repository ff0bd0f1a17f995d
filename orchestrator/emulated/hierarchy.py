# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Emulates cloud rounds of edge servers, whose edge rounds are played one after the other.

Edge servers have bands and nodes that do not affect each other, so that their rounds have the same
results one after the other as in parallel. One network of nodes plays all of them: its base station
acts as one edge server after the other, with the model and the computing speed of that one.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from orchestrator.emulated.backhaul import EmulatedBackhaul
from orchestrator.emulated.learning import evaluates_after, evaluation_table
from orchestrator.emulated.options import RunOptions
from orchestrator.emulated.stage import Stage
from orchestrator.engine.hierarchy import PredictedBackhaul, cloud_round
from orchestrator.engine.rounds import (
    Backend,
    Decide,
    Decision,
    EdgeServer,
    decisions_at_edges,
    edge_rounds_of,
)
from orchestrator.records.emulation import CloudRecord, Emulation, RoundRecord
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from testbed.core.timeline import Round
from workloads.costs.profile import SplitProfile

KINDS = ("predicted", "predicted_wire")


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


class EmulatedEdge(Backend, Protocol):
    """An edge server's emulated rounds, with a record of their own."""

    record: Emulation

    def begin(self, predicted_s: float, predicted_wire_s: float) -> None:
        """Let the next round start at these times in the two predictions."""


def at_edge(record: Emulation, edge: int) -> Emulation:
    """The run so far as an edge server, numbered from 1, has it: its own rounds."""
    scenario = record.scenario
    there = scenario.at_edges[edge - 1].model_copy(
        update={
            "rounds": scenario.rounds * scenario.edge_rounds,
            # The cloud evaluates.
            "workload": scenario.workload.model_copy(update={"evaluate_every": 0}),
        }
    )
    rounds: list[RoundRecord | CloudRecord] = [r for r in record.records if r.edge == edge]
    return Emulation(there, record.channel, rounds=rounds)


class EmulatedHierarchy:
    """The emulated network as a `Backend` for cloud rounds.

    Args:
        record: The run so far.
        profile: Costs of each split.
        stage: The nodes.
        edges: The edge servers, which play their rounds on these nodes.
        backhaul: Links between edge servers and cloud.
        decide: Function that decides the allocations of edge servers. None: the scenario's own
            split and shares.
    """

    def __init__(
        self,
        record: Emulation,
        profile: SplitProfile,
        stage: Stage,
        edges: Sequence[EmulatedEdge],
        backhaul: EmulatedBackhaul,
        decide: Decide | None,
    ):
        self._record = record
        self._stage = stage
        self._backhaul = backhaul
        scenario = record.scenario
        done = [
            [(each.measured, each.decision.allocation) for each in edge.record.records]
            for edge in edges
        ]
        decisions = decisions_at_edges(scenario, record.channel, decide, done)
        self._records = [edge.record for edge in edges]
        self._edges = [EdgeServer(*each) for each in zip(edges, decisions, strict=True)]
        self._begin = [edge.begin for edge in edges]
        self._hops = [
            PredictedBackhaul(scenario, profile, framed=framed) for framed in (False, True)
        ]

    def play(self, decision: Decision) -> Round:
        """Emulate a cloud round.

        Raises:
            RunEnds: A planned fault ends the run before the round is over.
            RunError: A node or link failed, or a timeout expired.
        """
        record, stage, index = self._record, self._stage, decision.index
        scenario = record.scenario
        learns = scenario.workload.compute == "real"
        if learns and not record.state:
            record.state = stage.state()
        starts_s = [rounds[-1].end_s if rounds else 0.0 for rounds in self._predicted()]
        models: list[bytes] = []
        played: list[list[RoundRecord]] = []
        for edge, begin, own in zip(self._edges, self._begin, self._records, strict=True):
            if learns:
                stage.restore(record.state)
            begin(*starts_s)
            edge.play(edge_rounds_of(scenario, index), decision.start_s)
            played.append(own.records[-scenario.edge_rounds :])
            models.append(own.state)

        def aggregate() -> None:
            if learns:
                weights = self._weights(played)
                record.state = average(models, weights) if any(weights) else record.state
                stage.restore(record.state)

        predicted, predicted_wire = (
            cloud_round(
                scenario,
                index,
                start_s,
                [[getattr(each, kind) for each in rounds] for rounds in played],
                hops,
            )
            for kind, start_s, hops in zip(KINDS, starts_s, self._hops, strict=True)
        )
        measured = cloud_round(
            scenario,
            index,
            decision.start_s,
            [[each.measured for each in rounds] for rounds in played],
            self._backhaul,
            aggregate,
        )
        evaluation = None
        if evaluates_after(scenario, index + 1):
            evaluation = evaluation_table(index, measured.end_s, stage.evaluate())
        edges = [
            replace(each, edge=edge) for edge, rounds in enumerate(played, 1) for each in rounds
        ]
        seconds = sum(each.decision.decision_s for each in edges)
        shares = decision.allocation
        decided = Decision(index, decision.start_s, shares, decision.decision_s + seconds)
        record.rounds.append(
            CloudRecord(decided, predicted, predicted_wire, measured, edges, evaluation)
        )
        return measured

    def _predicted(self) -> tuple[list[Round], list[Round]]:
        return self._record.predicted, self._record.predicted_wire

    def _weights(self, played: Sequence[Sequence[RoundRecord]]) -> list[int]:
        """For each edge server, the number of samples of its UAVs that finished one of its rounds
        or more."""
        known = [*self._record.records, *(each for rounds in played for each in rounds)]
        holdings = next(found for each in known if (found := (each.passes or {})["partition"]))
        samples = [sum(count for _, count in own) for own in holdings]

        def finished(rounds: Sequence[RoundRecord]) -> set[int]:
            every = [each.measured for each in rounds]
            return {k for r in every for k in set(r.clients) - {loss.client for loss in r.lost}}

        return [sum(samples[client - 1] for client in finished(rounds)) for rounds in played]


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
