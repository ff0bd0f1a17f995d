# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Emulates cloud rounds of edge servers, whose edge rounds are played one after the other.

Edge servers have bands and nodes that do not affect each other, so that their rounds have the same
results one after the other as in parallel. One network of nodes plays all of them: its base station
acts as one edge server after the other, with the model and the computing speed of that one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from orchestrator.emulated.backhaul import EmulatedBackhaul
from orchestrator.emulated.learning import cloud_rule, evaluates_after, evaluation_table
from orchestrator.emulated.stage import Stage
from orchestrator.records.emulation import CloudRecord, Emulation, RoundRecord
from orchestrator.rounds.hierarchy import PredictedBackhaul, cloud_round
from orchestrator.rounds.loop import (
    Backend,
    Decide,
    Decision,
    EdgeServer,
    decisions_at_edges,
    edge_rounds_of,
)
from testbed.core.timeline import Round
from workloads.aggregation.rules import Rule, Update, applied
from workloads.costs.profile import SplitProfile
from workloads.learning.settings import MEMORY, OWN, STATISTICS

KINDS = ("predicted", "predicted_wire")


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
    # A host that is lost during a round of one edge server is lost for all.
    return Emulation(there, record.channel, rounds=rounds, unplanned_faults=record.unplanned_faults)


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
        self._rule = cloud_rule(scenario)
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
        record.captured = stage.network.captured

        def aggregate() -> None:
            if learns:
                weights = self._weights(played)
                if any(weights):
                    mean = average(models, weights, scenario.members)
                    record.state = by_rule(self._rule, record.state, mean, models, weights)
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


def by_rule(
    rule: Rule | None,
    before: bytes,
    mean: bytes,
    models: Sequence[bytes],
    weights: Sequence[int],
) -> bytes:
    """The cloud's next model, computed in float64.

    Args:
        rule: The rule, whose state is a part of the models; None: the weighted mean.
        before: The cloud's model before the round, a safetensors file.
        mean: The result of `average`.
        models: The models of the edge servers.
        weights: Their numbers of samples.
    """
    if rule is None:
        return mean
    import torch
    from safetensors.torch import load, save

    state, start = load(mean), load(before)
    names = [  # A file has no order, and the rule's memory needs one.
        name
        for name, tensor in sorted(state.items())
        if tensor.is_floating_point()
        and not name.startswith((MEMORY, OWN))
        and name.rpartition(".")[2] not in STATISTICS  # a momentum could make them negative
    ]
    sizes = [state[name].numel() for name in names]

    def vector(of: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return torch.cat([of[name].double().flatten() for name in names])

    def views(of: torch.Tensor) -> dict[str, torch.Tensor]:
        parts = zip(names, torch.split(of, sizes), strict=True)
        return {name: part.view(state[name].shape) for name, part in parts}

    def edges() -> Iterator[tuple[float, torch.Tensor]]:
        for weight, model in zip(weights, models, strict=True):
            yield weight / sum(weights), vector(load(model))

    if not torch.isfinite(vector(state)).all():
        return mean  # Rules may fail on values that are not finite.
    memory = {
        name.removeprefix(MEMORY): tensor.double()
        for name, tensor in start.items()
        if name.startswith(MEMORY)
    }
    after = applied(rule, Update(vector(start), edges, views, memory))
    new = {name: part.float().contiguous() for name, part in views(after).items()}
    kept = {f"{MEMORY}{name}": tensor.contiguous() for name, tensor in memory.items()}
    return bytes(save(state | new | kept))


def average(
    models: Sequence[bytes], weights: Sequence[int], members: Sequence[Sequence[int]]
) -> bytes:
    """The mean of models that are safetensors files, weighted, computed in float64.

    Integer tensors are copied from the first model, and tensors that stay with a UAV from that of
    its edge server.

    Args:
        models: The model of each edge server.
        weights: Their numbers of samples.
        members: Their UAVs, from 1.
    """
    import safetensors.numpy

    loaded = [safetensors.numpy.load(model) for model in models]
    total = sum(weights)

    def mean(name: str) -> npt.NDArray[Any]:
        first: npt.NDArray[Any] = loaded[0][name]
        if not np.issubdtype(first.dtype, np.floating):
            return first
        if name.startswith(OWN):
            client = int(name.removeprefix(OWN).partition(".")[0])
            of_edge = next(edge for edge, own in enumerate(members) if client in own)
            tensor: npt.NDArray[Any] = loaded[of_edge][name]
            return tensor
        parts = (
            weight / total * model[name].astype(np.float64)
            for weight, model in zip(weights, loaded, strict=True)
        )
        return np.asarray(sum(parts, np.zeros_like(first, np.float64)).astype(first.dtype))

    return bytes(safetensors.numpy.save({name: mean(name) for name in loaded[0]}))
