# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a run has predicted and measured so far, and what it was checked against."""

from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from orchestrator.analysis.byte_accounts import to_json
from orchestrator.analysis.error_budget import Budget
from orchestrator.engine.faults import Fault
from orchestrator.engine.rounds import Decision
from orchestrator.scenario.channel import Channel
from orchestrator.scenario.schema import ResolvedScenario
from testbed.control.messages import Captured
from testbed.core.timeline import Round, Timeline
from testbed.network.injector import Report
from testbed.system.machine import Machine


@dataclass(frozen=True)
class Check:
    """One thing that was observed, and the most it may be."""

    check: str
    limit: float
    value: float
    ok: bool
    detail: str = ""
    """Where it was worst, if that says more."""

    def __str__(self) -> str:
        where = f" ({self.detail})" if self.detail else ""
        return f"{self.check}: {self.value:.3g}, at most {self.limit:.3g}{where}"


@dataclass(frozen=True)
class SetUp:
    """What happened before the first round of a session: links made, tried and connected."""

    accounts: pd.DataFrame
    """What the links carried; see `orchestrator.analysis.byte_accounts`."""
    calibration: pd.DataFrame | None
    """See `orchestrator.emulated.calibration`; None where it was switched off."""
    evaluation: pd.DataFrame | None
    """Of the state that the session begins with, a row of `learning_table`; None: none was due."""


@dataclass(frozen=True)
class RoundRecord:
    """All that is known of one round: decided, predicted, measured, accounted for."""

    decision: Decision
    predicted: Round
    """Payload bits only, as the paper counts; the allocation is the emulation's."""
    predicted_wire: Round
    """The engine again, with the bytes that the frames on the link really take."""
    measured: Round
    budget: Budget
    waterfall: dict[str, float]
    """See `orchestrator.analysis.waterfall`: what the round's latency is made of."""
    transfers: pd.DataFrame
    """See `orchestrator.analysis.error_budget.transfer_errors`."""
    rates: pd.DataFrame
    """See `orchestrator.emulated.rate_feed.RoundRates.frame`."""
    injector: pd.DataFrame
    """Of each slot: slot, boundary_s, lateness_s (real)."""
    links: Report
    """What the injector did, and the links' counters at the round's end."""
    machine: Machine
    """The machine's clocks and CPU accounts over the round."""
    accounts: pd.DataFrame
    """What the links carried in the round; see `orchestrator.analysis.byte_accounts`."""
    rejoined: pd.DataFrame | None
    """What they carried before it, where UAVs were connected anew."""
    overruns_s: list[float]
    """Emulated seconds by which each modelled computing step overran."""
    learning: pd.DataFrame | None
    """See `orchestrator.emulated.learning.learning_table`; None where nothing is learned."""
    evaluation: pd.DataFrame | None = None
    """Of the state after the round; None: none was due."""
    air: pd.DataFrame | None = None
    """See `orchestrator.analysis.frame_loss.by_slot`; None where frames are not impaired."""
    elsewhere: dict[str, Machine] = field(default_factory=dict)
    """The same as `machine` of others that have nodes, by the name of a host there."""
    passes: dict[str, Any] | None = None
    """What the server noted of its passes; see `workloads.learning.real.RealServer.notes`."""


@dataclass
class Emulation:
    """What was predicted and measured; grows by the round, so that a failed run keeps its part."""

    scenario: ResolvedScenario
    channel: Channel
    set_ups: list[SetUp] = field(default_factory=list)
    """One, and one more each time the run was resumed."""
    rounds: list[RoundRecord] = field(default_factory=list)
    unplanned_faults: list[Fault] = field(default_factory=list)
    """What went wrong that no scenario planned, on the timeline of measured rounds."""
    captured: Captured | None = None
    """What the capture held, if there was one."""
    others: list[str] = field(default_factory=list)
    """Programs of this machine that took most CPU time beside the rounds, in words."""
    checks: list[Check] = field(default_factory=list)
    """What the run is held against, see `orchestrator.emulated.validity`; empty as long as it
    goes on."""
    state: bytes = b""
    """Global adapters and head after the last round, as a safetensors file; nothing where nothing
    is learned."""

    @property
    def predicted(self) -> list[Round]:
        """Payload bits only."""
        return [record.predicted for record in self.rounds]

    @property
    def predicted_wire(self) -> list[Round]:
        """With the frames on the link."""
        return [record.predicted_wire for record in self.rounds]

    @property
    def measured(self) -> list[Round]:
        """As the emulated network played them."""
        return [record.measured for record in self.rounds]

    @property
    def calibration(self) -> pd.DataFrame | None:
        """Of the last session that had one."""
        found = [s.calibration for s in self.set_ups if s.calibration is not None]
        return found[-1] if found else None

    @property
    def learning(self) -> list[pd.DataFrame]:
        """Training and evaluation, in the order in which they happened."""
        tables = [set_up.evaluation for set_up in self.set_ups]
        for record in self.rounds:
            tables += [record.learning, record.evaluation]
        return [table for table in tables if table is not None]

    @property
    def accounts(self) -> list[pd.DataFrame]:
        """What the links carried: before the rounds, in each, and between them."""
        tables = [set_up.accounts for set_up in self.set_ups]
        for record in self.rounds:
            tables += [table for table in (record.rejoined, record.accounts) if table is not None]
        return tables

    @property
    def overruns_s(self) -> list[float]:
        """Of all rounds."""
        return [overrun_s for record in self.rounds for overrun_s in record.overruns_s]

    @property
    def valid(self) -> bool | None:
        """Whether the run may be believed; None as long as it goes on."""
        return all(check.ok for check in self.checks) if self.checks else None

    def to_json(self) -> dict[str, Any]:
        """The documented JSON object."""
        return {
            "scenario": self.scenario.model_dump(mode="json"),
            "valid": self.valid,
            "predicted": Timeline(self.predicted).to_json(),
            "predicted_wire": Timeline(self.predicted_wire).to_json(),
            "measured": Timeline(self.measured).to_json(),
            "error_budget": [
                {
                    "round": record.budget.round,
                    "predicted_s": record.budget.predicted_s,
                    "measured_s": record.budget.measured_s,
                    "parts": record.budget.seconds,
                }
                for record in self.rounds
            ],
            "accounts": to_json([record.accounts for record in self.rounds]),
        }
