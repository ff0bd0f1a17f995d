"""What a run has predicted and measured so far, and what it was checked against."""

from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from ns3_scenarios.trace import ChannelTrace
from orchestrator.analysis.error_budget import Budget
from orchestrator.emulation.machine import Machine
from orchestrator.prediction.plan import Allocation
from orchestrator.scenario.schema import Scenario
from testbed.core.timeline import Round, Timeline
from testbed.network.capture import Captured
from testbed.network.injector import Report


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


@dataclass
class Emulation:
    """What was predicted and measured; grows by the round, so that a failed run keeps its part."""

    scenario: Scenario
    channel: ChannelTrace
    predicted: list[Round] = field(default_factory=list)
    """Payload bits only, as the paper counts; the allocations are those of the emulation."""
    predicted_wire: list[Round] = field(default_factory=list)
    """The engine again, with the bytes that the frames on the link really take."""
    measured: list[Round] = field(default_factory=list)
    allocations: list[Allocation] = field(default_factory=list)
    """What was decided for each round, the one that is going on too."""
    decision_s: list[float] = field(default_factory=list)
    """Real seconds that each round's allocation took to decide."""
    budgets: list[Budget] = field(default_factory=list)
    transfers: list[pd.DataFrame] = field(default_factory=list)
    """See `orchestrator.analysis.error_budget.transfer_errors`."""
    rates: list[pd.DataFrame] = field(default_factory=list)
    injector: list[pd.DataFrame] = field(default_factory=list)
    learning: list[pd.DataFrame] = field(default_factory=list)
    passes: list[dict[str, Any]] = field(default_factory=list)
    """What the server noted of each round's passes; see
    `workloads.learning.real.RealServer.notes`."""
    overruns_s: list[float] = field(default_factory=list)
    """Emulated seconds by which each modelled computing step overran."""
    links: list[Report] = field(default_factory=list)
    """What the injector did in each round, and the links' counters at its end."""
    machine: list[Machine] = field(default_factory=list)
    """The machine's clocks and CPU accounts over each round."""
    accounts: list[pd.DataFrame] = field(default_factory=list)
    """See `orchestrator.analysis.byte_accounts`: what the links carried; first the set-up, then
    each round."""
    waterfalls: list[dict[str, float]] = field(default_factory=list)
    """See `orchestrator.analysis.waterfall.waterfall`: what each round's latency is made of."""
    captured: Captured | None = None
    """What the capture held, if there was one."""
    calibration: pd.DataFrame | None = None
    """See `orchestrator.emulation.calibration`; None where it was switched off."""
    checks: list[Check] = field(default_factory=list)
    """What the run is held against, see `orchestrator.emulation.validity`; empty as long as it
    goes on."""
    state: bytes = b""
    """Global adapters and head after the last round, as a safetensors file; nothing where nothing
    is learned."""

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
                    "round": budget.round,
                    "predicted_s": budget.predicted_s,
                    "measured_s": budget.measured_s,
                    "parts": budget.seconds,
                }
                for budget in self.budgets
            ],
        }
