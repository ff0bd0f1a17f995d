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
from orchestrator.engine.rounds import Decision
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
    """See `orchestrator.analysis.resource_blocks`; None unless `radio.access` is 'lte'."""
    grants: pd.DataFrame | None = None
    """See `orchestrator.analysis.radio_log.grants`; None unless ns-3's LTE carries the packets."""
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
    rounds: list[RoundRecord] = field(default_factory=list)
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
    def played(self) -> list[PlayedRound]:
        """The rounds so far."""
        return [
            played
            for record in self.rounds
            for played in record.played
            or [
                PlayedRound(
                    *(record.predicted, record.predicted_wire, record.measured),
                    *(record.budget.seconds, record.waterfall),
                )
            ]
        ]

    @property
    def decisions(self) -> list[Decision]:
        """The decision of each round; that of an asynchronous run is the same for all."""
        return [
            replace(record.decision, index=measured.index, start_s=measured.start_s)
            for record in self.rounds
            for measured in [played.measured for played in record.played] or [record.measured]
        ]

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
            tables += [record.learning, record.evaluation]
        return [table for table in tables if table is not None]

    @property
    def accounts(self) -> list[pd.DataFrame]:
        """Bytes on the links before, in and between the rounds."""
        tables = [set_up.accounts for set_up in self.set_ups]
        for record in self.rounds:
            tables += [table for table in (record.rejoined, record.accounts) if table is not None]
        return tables

    @property
    def overruns_s(self) -> list[float]:
        """Overruns of all rounds."""
        return [overrun_s for record in self.rounds for overrun_s in record.overruns_s]

    @property
    def valid(self) -> bool | None:
        """Whether the run is valid; None until it has ended."""
        return all(check.ok for check in self.checks) if self.checks else None

    def to_json(self) -> dict[str, Any]:
        """The run as the documented JSON object."""
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
            "accounts": to_json(
                [rows for r in self.rounds for _, rows in r.accounts.groupby("round")]
            ),
            **({"downlink_is_open": True} if is_open(self.scenario, self.channel.now) else {}),
            **({"trace_has_rates": True} if isinstance(self.channel.now, RateTrace) else {}),
        }
