# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The predictions, measurements and validity checks of a run so far."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from ns3_scenarios.trace import RateTrace
from orchestrator.analysis.byte_accounts import to_json
from orchestrator.analysis.error_budget import Budget
from orchestrator.engine.faults import Fault
from orchestrator.rounds.hierarchy import iterations_before
from orchestrator.rounds.loop import Decision
from orchestrator.scenario.channel import Channel, is_open
from orchestrator.scenario.schema import ResolvedScenario
from testbed.control.messages import Captured
from testbed.core.timeline import Round, Timeline
from testbed.network.injector import Report
from testbed.system.machine import Machine


@dataclass(frozen=True)
class Check:
    """One observed value and its limit."""

    check: str
    limit: float
    value: float
    ok: bool
    detail: str = ""
    """Place of the worst value, if this helps."""

    def __str__(self) -> str:
        where = f" ({self.detail})" if self.detail else ""
        return f"{self.check}: {self.value:.3g}, at most {self.limit:.3g}{where}"


@dataclass(frozen=True)
class SetUp:
    """The phase before the first round of a session, in which links are created and calibrated."""

    accounts: pd.DataFrame
    """Bytes on the links; see `orchestrator.analysis.byte_accounts`."""
    calibration: pd.DataFrame | None
    """See `orchestrator.emulated.calibration`; None if it was switched off."""
    evaluation: pd.DataFrame | None
    """Evaluation of the initial state, a row of `learning_table`; None: none was due."""


@dataclass(frozen=True)
class RoundRecord:
    """All data of one round: decision, predictions, measurement, accounts."""

    decision: Decision
    predicted: Round
    """Prediction with payload only, as in the paper; the allocation is that of the emulation."""
    predicted_wire: Round
    """Prediction with the bytes of the frames on the link."""
    measured: Round
    budget: Budget
    waterfall: dict[str, float]
    """Components of the round's latency; see `orchestrator.analysis.waterfall`."""
    transfers: pd.DataFrame
    """See `orchestrator.analysis.error_budget.transfer_errors`."""
    rates: pd.DataFrame
    """See `orchestrator.emulated.rate_feed.RoundRates.frame`."""
    injector: pd.DataFrame
    """Rate change of each slot: slot, boundary_s, lateness_s (real time)."""
    links: Report
    """The injector's report, with the links' counters at the end of the round."""
    machine: Machine
    """Clocks and CPU times of this machine during the round."""
    accounts: pd.DataFrame
    """Bytes on the links in the round; see `orchestrator.analysis.byte_accounts`."""
    rejoined: pd.DataFrame | None
    """Bytes on the links before the round, if UAVs were connected again."""
    overruns_s: list[float]
    """Emulated seconds by which each modelled computing step overran."""
    learning: pd.DataFrame | None
    """See `orchestrator.emulated.learning.learning_table`; None without training."""
    evaluation: pd.DataFrame | None = None
    """Evaluation of the state after the round; None: none was due."""
    air: pd.DataFrame | None = None
    """See `orchestrator.analysis.frame_loss.by_slot`; None where frames are not impaired."""
    resource_blocks: pd.DataFrame | None = None
    """See `orchestrator.analysis.resource_blocks`; None unless `radio.access` is 'lte' or 'nr'."""
    grants: pd.DataFrame | None = None
    """See `orchestrator.analysis.radio_log.grants`; None unless packets pass ns-3's LTE or NR."""
    cells: pd.DataFrame | None = None
    """See `orchestrator.analysis.radio_log.cells`; None in the same cases."""
    handovers: pd.DataFrame | None = None
    """See `orchestrator.analysis.radio_log.handovers`; None in the same cases."""
    elsewhere: dict[str, Machine] = field(default_factory=dict)
    """As `machine`, for other machines with nodes, by host name."""
    passes: dict[str, Any] | None = None
    """The server's record of its passes; see `workloads.learning.real.RealServer.notes`."""
    played: Sequence["PlayedRound"] = ()
    """The rounds of an asynchronous run, of which this is the record."""
    edge: int = 0
    """Number of the edge server whose round this is, from 1; 0 without `topology`. The index of an
    edge round counts from the start of the run."""


PART = "backhaul"
"""Part of a cloud round's latency in addition to those of its slowest edge server's rounds: the
transfers to and from the cloud."""


TAGS = ("edge", "edge_round")
"""Columns that name the edge round to which a row of a table belongs, both from 1."""


@dataclass(frozen=True)
class CloudRecord:
    """All data of a cloud round: the records of its edge rounds, and what it has in addition."""

    decision: Decision
    predicted: Round
    """Prediction with payload only, as in `RoundRecord`; the same is true of the next two."""
    predicted_wire: Round
    measured: Round
    edges: Sequence[RoundRecord]
    """The edge rounds in the order in which they were played: by edge server."""
    evaluation: pd.DataFrame | None = None
    """Evaluation of the cloud's model after the round; None: none was due."""

    @property
    def played(self) -> "PlayedRound":
        """The round with the causes of its latency: those of the edge rounds of the edge server
        whose model reached the cloud last, and `PART`."""
        up = [each for each in self.measured.backhaul if each.direction == "up"]
        last = max(up, key=lambda each: each.end_s).edge
        own = [record for record in self.edges if record.edge == last]

        def whole(parts: Sequence[dict[str, float]], total_s: float) -> dict[str, float]:
            sums = {name: sum(each[name] for each in parts) for name in parts[0]}
            return sums | {PART: total_s - sum(sums.values())}

        latency_s = self.measured.latency_s
        return PlayedRound(
            *(self.predicted, self.predicted_wire, self.measured),
            whole([each.budget.seconds for each in own], latency_s - self.predicted.latency_s),
            whole([each.waterfall for each in own], latency_s),
        )


def records_of(record: RoundRecord | CloudRecord) -> Sequence[RoundRecord]:
    """The record itself, or those of the edge rounds of a cloud round."""
    return record.edges if isinstance(record, CloudRecord) else [record]


@dataclass(frozen=True)
class PlayedRound:
    """One round as it is reported: the round of a record, or one of an asynchronous run, whose
    record has all rounds."""

    predicted: Round
    """Prediction with payload only, as in `RoundRecord`; the same is true of the other fields."""
    predicted_wire: Round
    measured: Round
    budget: dict[str, float]
    """See `Budget.seconds`."""
    waterfall: dict[str, float]

    @property
    def index(self) -> int:
        """Index of the round, starting from 0."""
        return self.measured.index


@dataclass
class Emulation:
    """Predictions and measurements of a run, extended by each round, so that a failed run keeps its
    rounds. All rounds of an asynchronous run have one record, because they are played as one."""

    scenario: ResolvedScenario
    channel: Channel
    set_ups: list[SetUp] = field(default_factory=list)
    """One set-up for the start, and one for each resumption of the run."""
    rounds: list[RoundRecord | CloudRecord] = field(default_factory=list)
    unplanned_faults: list[Fault] = field(default_factory=list)
    """Faults that the scenario did not plan, on the timeline of measured rounds."""
    captured: Captured | None = None
    """The capture, if there was one."""
    others: list[str] = field(default_factory=list)
    """Other programs of this machine with the most CPU time during the rounds, in words."""
    checks: list[Check] = field(default_factory=list)
    """Validity checks, see `orchestrator.emulated.validity`; empty until the run has ended."""
    state: bytes = b""
    """Global adapters and head after the last round, as a safetensors file; empty without training.
    """

    @property
    def records(self) -> list[RoundRecord]:
        """The records of all rounds that base stations or edge servers played, in this order."""
        return [each for record in self.rounds for each in records_of(record)]

    @property
    def played(self) -> list[PlayedRound]:
        """The rounds so far."""
        every: list[PlayedRound] = []
        for record in self.rounds:
            if isinstance(record, CloudRecord):
                every.append(record.played)
                continue
            every += record.played or [
                PlayedRound(
                    *(record.predicted, record.predicted_wire, record.measured),
                    *(record.budget.seconds, record.waterfall),
                )
            ]
        return every

    @property
    def decisions(self) -> list[Decision]:
        """The decision of each round; that of an asynchronous run is the same for all."""
        made: list[Decision] = []
        for record in self.rounds:
            played = () if isinstance(record, CloudRecord) else record.played
            made += [
                replace(record.decision, index=measured.index, start_s=measured.start_s)
                for measured in [each.measured for each in played] or [record.measured]
            ]
        return made

    def place(self, index: int) -> str:
        """The round of one of `records`, in words."""
        record = self.records[index]
        if not record.edge:
            return f"round {index}"
        round_, number = divmod(record.measured.index, self.scenario.edge_rounds)
        return f"round {round_}, edge server {record.edge}, edge round {1 + number}"

    def tables(self, name: str) -> list[pd.DataFrame]:
        """A table of each record that has it, with the tags of `tagged`."""
        return [table for record in self.rounds for table in self._of_records(record, name)]

    def _of_records(self, record: RoundRecord | CloudRecord, name: str) -> list[pd.DataFrame]:
        found = ((each, getattr(each, name)) for each in records_of(record))
        # Whatever a link carried counts, also a link of another edge server's UAV.
        own = name != "accounts"
        return [self.tagged(each, table, own=own) for each, table in found if table is not None]

    def tagged(self, record: RoundRecord, table: pd.DataFrame, *, own: bool = True) -> pd.DataFrame:
        """A table of a record with the cloud round as its round.

        The table of an edge round also has the columns `TAGS`, and its iterations are counted over
        the edge rounds of the cloud round. With `own`, it has only the UAVs of this edge server.
        """
        if not record.edge:
            return table
        scenario, index = self.scenario, record.measured.index
        tags = record.edge, 1 + index % scenario.edge_rounds
        table = table.assign(**dict(zip(TAGS, tags, strict=True)))
        if "round" in table:
            table["round"] = index // scenario.edge_rounds
        if own and "client" in table:
            table = table[table["client"].isin(scenario.members[record.edge - 1])].copy()
        if "iteration" in table:
            before = iterations_before(scenario, index)
            table["iteration"] += before * (table["iteration"] > 0)  # 0: none
        return table

    @property
    def predicted(self) -> list[Round]:
        """Predicted rounds with payload only."""
        return [played.predicted for played in self.played]

    @property
    def predicted_wire(self) -> list[Round]:
        """Predicted rounds with the bytes of the frames on the link."""
        return [played.predicted_wire for played in self.played]

    @property
    def measured(self) -> list[Round]:
        """Rounds as the emulated network played them."""
        return [played.measured for played in self.played]

    @property
    def calibration(self) -> pd.DataFrame | None:
        """Calibration of the last session that had one."""
        found = [s.calibration for s in self.set_ups if s.calibration is not None]
        return found[-1] if found else None

    @property
    def learning(self) -> list[pd.DataFrame]:
        """Training and evaluation tables, in chronological order."""
        tables = [set_up.evaluation for set_up in self.set_ups]
        for record in self.rounds:
            tables += self._of_records(record, "learning")
            tables.append(record.evaluation)
        return [table for table in tables if table is not None]

    @property
    def accounts(self) -> list[pd.DataFrame]:
        """Bytes on the links before, in and between the rounds."""
        tables = [set_up.accounts for set_up in self.set_ups]
        for record in self.records:
            if record.rejoined is not None:
                tables.append(record.rejoined)
            tables.append(self.tagged(record, record.accounts, own=False))
        return tables

    @property
    def overruns_s(self) -> list[float]:
        """Overruns of all rounds."""
        return [overrun_s for record in self.records for overrun_s in record.overruns_s]

    @property
    def valid(self) -> bool | None:
        """Whether the run is valid; None until it has ended."""
        return all(check.ok for check in self.checks) if self.checks else None

    def to_json(self) -> dict[str, Any]:
        """The run as the documented JSON object."""
        nothing = pd.DataFrame(columns=["round"])
        accounts = pd.concat(self.tables("accounts")) if self.rounds else nothing
        return {
            "scenario": self.scenario.model_dump(mode="json"),
            "valid": self.valid,
            "predicted": Timeline(self.predicted).to_json(),
            "predicted_wire": Timeline(self.predicted_wire).to_json(),
            "measured": Timeline(self.measured).to_json(),
            "error_budget": [
                {
                    "round": played.index,
                    "predicted_s": played.predicted.latency_s,
                    "measured_s": played.measured.latency_s,
                    "parts": played.budget,
                }
                for played in self.played
            ],
            "accounts": to_json([rows for _, rows in accounts.groupby("round")]),
            **({"downlink_is_open": True} if is_open(self.scenario, self.channel.now) else {}),
            **({"trace_has_rates": True} if isinstance(self.channel.now, RateTrace) else {}),
        }


def edge_rounds_table(done: Emulation) -> pd.DataFrame:
    """One row per kind of timeline and edge round: kind, round, edge, edge_round, split, start_s,
    latency_s, objective, decision_s."""
    parts = []
    for kind in ("predicted", "predicted_wire", "measured"):
        for record in done.records:
            round_: Round = getattr(record, kind)
            row = {
                "kind": kind,
                "round": round_.index,
                "split": round_.common_split,
                "start_s": round_.start_s,
                "latency_s": round_.latency_s,
                "objective": round_.objective,
                "decision_s": record.decision.decision_s,
            }
            parts.append(done.tagged(record, pd.DataFrame([row])))
    return pd.concat(parts, ignore_index=True)
