# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Makes a run again from what only a measurement can know: the times of its steps, and counters.

Everything else in a run directory follows: energies, rates, errors of transfers, error budgets,
parts of latencies, and the values of validity checks. The same code computes it as during the run.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from ns3_scenarios.trace import Replay
from orchestrator.analysis.byte_accounts import SET_UP, STEP_OF
from orchestrator.analysis.error_budget import KEYS, Budget, error_budget, transfer_errors
from orchestrator.analysis.resource_blocks import resource_blocks
from orchestrator.analysis.waterfall import PART_OF, waterfalls
from orchestrator.emulated.rate_feed import RoundRates
from orchestrator.emulated.stage import SPARE_SLOTS
from orchestrator.engine.faults import FaultSchedule, RoundFaults
from orchestrator.engine.flight import with_flight
from orchestrator.engine.lte import Cellular
from orchestrator.engine.plan import (
    DIRECTION_OF,
    decided,
    link_bytes,
    payload_bytes,
    round_sizes,
    with_measured_bytes,
)
from orchestrator.engine.radio import powered, radio_access
from orchestrator.records.emulation import Emulation, RoundRecord, SetUp
from orchestrator.records.reader import Run
from orchestrator.records.timelines import allocation_of
from orchestrator.rounds.loop import Decision, Decisions, EngineBackend, ShadowPrediction
from orchestrator.rounds.simulation import round_of_spans
from orchestrator.scenario.channel import Channel
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import ResolvedScenario, Scenario
from testbed.core.errors import InputError
from testbed.core.timeline import SPAN, STEPS, Round, S
from testbed.transport.wire import RoundSizes

Tables = Mapping[str, pd.DataFrame]


def has_log(scenario: Scenario) -> bool:
    """Whether errors and budgets need the log of ns-3's radio, whose clock is not stored."""
    return scenario.emulation.air == "ns3" and scenario.radio.kind.cell is not None


def keeps_calibration(scenario: Scenario) -> bool:
    """Whether the due times of a calibration follow from its rates: not with ns-3's radio, nor with
    the serial lines of virtual time, where acknowledgements count."""
    return scenario.emulation.air == "links" and scenario.emulation.clock == "real"


NEEDED: dict[str, tuple[str, ...]] = {
    "measured": (),
    "rounds": (),
    "decisions": (),
    "accounts": ("client", "kind", "iteration", *PART_OF),
}
"""By table: columns with which a run is made again, apart from those that every reader needs."""
NEEDED_WITH_LOG: dict[str, tuple[str, ...]] = {
    "transfers": ("iteration", "due_s"),
    "budget": (),
    "waterfall": (),
}
"""The same, if errors and budgets need the log of a radio."""


def why_not(run: Run, tables: Tables) -> str:
    """Why the tables of a run cannot be made again from its times; empty if they can."""
    if run.scenario.topology is not None:
        return "of a run with edge servers"
    if run.scenario.updates:
        return "of an asynchronous run"
    for name, columns in (NEEDED | (NEEDED_WITH_LOG if has_log(run.scenario) else {})).items():
        if name not in tables:
            return f"{name}.parquet is missing"
        if lacking := [column for column in columns if column not in tables[name]]:
            return f"{name}.parquet lacks {lacking[0]}"
    if "learning" in tables and "data" not in tables["learning"]:
        return "learning.parquet lacks data"
    return ""


def emulation_of(run: Run, tables: Tables) -> Emulation:
    """The run, made again.

    Args:
        run: The run; see `why_not`.
        tables: All tables of its directory, by file stem.

    Raises:
        InputError: Its tables do not fit together; the message names the file.
    """
    assert run.trace is not None
    dilation = run.scenario.emulation.dilation
    if not isinstance(dilation, float | int):
        raise InputError(f"scenario.json: emulation.dilation: must be a number, not {dilation!r}")
    scenario = run.scenario.resolved(float(dilation))
    made = _Remade(run, tables, scenario)
    done = Emulation(scenario, made.channel)
    of_setup = tables["learning"]["round"] < 0 if "learning" in tables else None
    accounts = tables["accounts"]
    done.set_ups.append(
        SetUp(
            accounts[accounts["round"] == SET_UP],
            _calibration(tables.get("calibration"), scenario),
            None if of_setup is None else tables["learning"][of_setup].assign(time_s=0.0),
        )
    )
    for record in made.records():
        done.rounds.append(record)
    return done


class _Remade:
    """The rounds of a run, one after the other."""

    def __init__(self, run: Run, tables: Tables, scenario: ResolvedScenario) -> None:
        assert run.trace is not None
        self.tables, self.scenario = tables, scenario
        self.channel = Channel.of(Replay(run.trace))
        self.rounds = [round_.index for round_ in run.measured]
        self.stored, self.is_guided = list(run.measured), run.is_guided
        self.profile = profile = profile_of(scenario)
        self.payload, self.wire = (
            ShadowPrediction(EngineBackend(scenario, self.channel, profile, sizing))
            for sizing in (payload_bytes, link_bytes)
        )
        self.radio = radio_access(scenario, self.channel.now)
        self.faults = FaultSchedule(scenario)
        self.decisions = Decisions(scenario, self.channel)

    def records(self) -> Iterator[RoundRecord]:
        """The record of each round."""
        decided = dict(iter(self.tables["decisions"].groupby("round")))
        if self.rounds != list(range(len(self.rounds))):
            raise InputError(f"measured.parquet: has the rounds {self.rounds}, not all from 0")
        start_s, times = 0.0, self._changes()
        for index, stored in enumerate(self.stored):
            if index not in decided:
                raise InputError(f"decisions.parquet: round {index} is missing")
            allocation = allocation_of(decided[index], self.scenario.uavs.count)
            if not self.scenario.allocation.kind.decides:
                allocation = self.decisions.next(index, start_s).allocation
            decision = Decision(index, start_s, allocation, self._decision_s(index))
            wrong = self.faults.round(index, start_s, allocation.clients)
            record = self._record(decision, stored, wrong, times.get(index))
            self.decisions.add(record.measured, allocation)
            self.faults.played(record.measured)
            start_s = record.measured.end_s
            yield record

    def _decision_s(self, index: int) -> float:
        rounds = self.tables["rounds"]
        if "decision_s" not in rounds:
            return 0.0
        own = rounds.loc[(rounds["round"] == index) & (rounds["kind"] == "measured"), "decision_s"]
        return float(own.iloc[0])

    def _record(
        self,
        decision: Decision,
        stored: Round,
        wrong: RoundFaults | None,
        changes: pd.DataFrame | None,
    ) -> RoundRecord:
        index, scenario, slot_s = decision.index, self.scenario, self.channel.slot_s
        radio = powered(self.radio, decision.allocation)
        predicted, wire = (
            shadow.flown_round(decision, wrong, stored.end_s)
            if self.is_guided
            else shadow.next_round(decision, wrong)
            for shadow in (self.payload, self.wire)
        )
        payload_plan, plan = (
            shadow.engine.plan(decision.allocation) for shadow in (self.payload, self.wire)
        )
        of_round = decided(scenario, decision.allocation)
        sizes = [
            round_sizes(of_round, self.profile, split, client)
            for client, split in enumerate(decision.allocation.splits.tolist(), start=1)
        ]
        spans = _with_bytes(stored.spans, predicted, sizes)
        measured = round_of_spans(index, plan, radio, decision.start_s, spans, stored.lost, wrong)
        measured = with_flight(scenario, measured, self.channel.now)
        first = math.floor(decision.start_s / slot_s + 1e-9)
        rates = RoundRates(
            *(plan, radio, self.channel, first, wrong, self.wire.engine.tcp(index)),
            scenario.dilation,
        )
        rates.grow(math.ceil(max(measured.end_s, wire.end_s) / slot_s) + SPARE_SLOTS)
        accounts = _of(self.tables["accounts"], index).pipe(_with_payload, measured)
        ended = measured.spans[~measured.cut]
        varies = any(each.varying for each in sizes)
        real_payload, real = payload_plan, plan
        if varies:
            real_payload = with_measured_bytes(payload_plan, ended, sizes)
            real = with_measured_bytes(plan, ended, sizes, scenario.emulation)
        plans = payload_plan, plan, real_payload, real if varies else None
        budget, parts = self._explained(predicted, measured, plans, rates, wrong, accounts, changes)
        return RoundRecord(
            decision=decision,
            predicted=predicted,
            predicted_wire=wire,
            measured=measured,
            budget=budget,
            waterfall=parts,
            transfers=_errors(_of(self.tables["transfers"], index), measured)
            if has_log(scenario)
            else transfer_errors(measured, real, radio, rates.gain, slot_s, rates.tcp),
            rates=rates.frame(measured),
            injector=pd.DataFrame(columns=["slot", "boundary_s", "lateness_s"])
            if changes is None
            else changes.assign(boundary_s=changes["slot"] * slot_s),
            # The checks that use these are not among those that are made again.
            links=cast(Any, None),
            machine=cast(Any, None),
            accounts=accounts,
            rejoined=None,
            overruns_s=[],
            learning=_learned(self.tables.get("learning"), measured),
            air=_air(self.tables, index),
            resource_blocks=resource_blocks(
                *(measured, radio, rates.gain, slot_s, decision.allocation),
                in_turns=plan.in_turns,
            )
            if isinstance(radio, Cellular)
            else None,
        )

    def _explained(
        self,
        predicted: Round,
        measured: Round,
        plans: Any,
        rates: RoundRates,
        wrong: RoundFaults | None,
        accounts: pd.DataFrame,
        changes: pd.DataFrame | None,
    ) -> tuple[Budget, dict[str, float]]:
        """The error budget, and the parts of the latency; see `Stage._explained`."""
        payload_plan, plan, real_payload, real = plans
        if has_log(self.scenario):
            return self._copied_budget(predicted, measured)
        edges_s = np.arange(rates.gain.shape[1] + 1, dtype=np.float64) * rates.slot_s
        if changes is not None:
            later = changes[(changes["slot"] > rates.first) & (changes["slot"] < len(edges_s))]
            edges_s[later["slot"]] += later["lateness_s"] / self.scenario.dilation
        is_ns3 = self.scenario.emulation.air == "ns3"
        at = rates.gain, rates.slot_s
        budget = error_budget(
            *(predicted, measured, payload_plan, plan, rates.radio, *at),
            None if is_ns3 else edges_s,
            wrong,
            rates.tcp,
            real_plan=real,
        )
        (parts,) = waterfalls(
            *(measured, real_payload, accounts, rates.radio, *at, edges_s),
            charges_headers=self.scenario.emulation.rate_counts == "frame",
            faults=wrong,
            tcp=rates.tcp,
        )
        return budget, parts

    def _copied_budget(self, predicted: Round, measured: Round) -> tuple[Budget, dict[str, float]]:
        """The stored budget and parts."""
        index = measured.index
        budget, parts = (
            dict(zip(own["part"], own["seconds"], strict=True))
            for own in (_of(self.tables[name], index) for name in ("budget", "waterfall"))
        )
        steps = pd.DataFrame(columns=KEYS)
        return Budget(index, predicted.latency_s, measured.latency_s, budget, steps), parts

    def _changes(self) -> dict[int, pd.DataFrame]:
        """The rows of `injector.parquet` by round: the slots of a round follow one another."""
        if "injector" not in self.tables or self.scenario.emulation.air == "ns3":
            return {}
        table, slot_s = self.tables["injector"], self.channel.slot_s
        slots = table["slot"].to_numpy()
        starts_s = [round_.start_s for round_ in self.stored]
        firsts = [math.floor(start_s / slot_s + 1e-9) for start_s in starts_s]
        found, at = {}, 0
        for index, first in enumerate(firsts):
            if at == len(slots) or slots[at] != first:
                raise InputError(
                    f"injector.parquet: lacks slot {first}, where round {index} begins"
                )
            end = at + 1
            while end < len(slots) and slots[end] == slots[end - 1] + 1:
                end += 1
            if index + 1 < len(firsts) and (end == len(slots) or slots[end] != firsts[index + 1]):
                # The next round begins with the slot after the last one of this round.
                end = at + int(np.searchsorted(slots[at:end], firsts[index + 1]))
            found[index], at = table.iloc[at:end], end
        if at < len(slots):
            raise InputError(f"injector.parquet: has slot {slots[at]} after the last round")
        return found


def _of(table: pd.DataFrame, index: int) -> pd.DataFrame:
    return table[table["round"] == index]


def _with_bytes(
    spans: npt.NDArray[np.void], predicted: Round, sizes: Sequence[RoundSizes]
) -> npt.NDArray[np.void]:
    """The steps of a measured round with the sizes that were planned. Stored sizes that depend on
    the data are kept within their bounds."""
    bounds = {_place(span): int(span["bytes"]) for span in predicted.spans}
    planned = spans.copy()
    for span in planned:
        most = bounds.get(_place(span), -1)
        varying = sizes[int(span["client"]) - 1].varying
        depends = DIRECTION_OF.get(int(span["step"]), "") in varying
        if not (depends and 0 < span["bytes"] <= most):
            span["bytes"] = most
    return planned.astype(SPAN)


def _place(span: Any) -> tuple[int, int, int]:
    return int(span["client"]), int(span["iteration"]), int(span["step"])


def _with_payload(accounts: pd.DataFrame, measured: Round) -> pd.DataFrame:
    """The accounts of a round with the payload of the transfers that it finished."""
    sizes = {_place(span): int(span["bytes"]) for span in measured.spans[~measured.cut]}
    steps = {kind: STEPS.index(step) for kind, step in STEP_OF.items()}
    keys = [
        (client, iteration, steps.get(kind, -1))
        for client, iteration, kind in zip(
            accounts["client"], accounts["iteration"], accounts["kind"], strict=True
        )
    ]
    once = pd.Series(keys, accounts.index, dtype=object)
    alone = ~once.duplicated(keep=False)
    payload = [
        sizes.get(key, before) if single else before
        for key, before, single in zip(keys, accounts["payload_bytes"], alone, strict=True)
    ]
    return accounts.assign(payload_bytes=payload)


def _errors(transfers: pd.DataFrame, measured: Round) -> pd.DataFrame:
    """Transfers that were compared with grants: their measured times and errors."""
    spans = {_place(span): (span["start_s"], span["end_s"]) for span in measured.spans}
    keys = zip(*(transfers[name] for name in ("client", "iteration", "step")), strict=True)
    times = [spans.get((k, i, STEPS.index(step)), (np.nan, np.nan)) for k, i, step in keys]
    start_s, end_s = np.array(times).reshape(-1, 2).T
    took_s = end_s - start_s
    error = took_s / transfers["due_s"] - 1
    return transfers.assign(start_s=start_s, duration_s=took_s, error=error)


def _calibration(table: pd.DataFrame | None, scenario: ResolvedScenario) -> pd.DataFrame | None:
    """The calibration with the times that its rates allow, and the errors that follow."""
    if table is None or "duration_s" not in table:
        return table
    if keeps_calibration(scenario):
        # A late transfer may have ended at the rate of the next level.
        bits, rates = 8 * table["bytes"], table.groupby(["client", "direction"])["rate_bps"]
        shortest_s, longest_s = (bits / rates.transform(of) for of in ("max", "min"))
        known = (shortest_s * (1 - 1e-9) <= table["due_s"]) & (
            table["due_s"] <= longest_s * (1 + 1e-9)
        )
        table = table.assign(due_s=table["due_s"].where(known, bits / table["rate_bps"]))
    return table.assign(error=table["duration_s"] / table["due_s"] - 1)


def _learned(table: pd.DataFrame | None, measured: Round) -> pd.DataFrame | None:
    """What was learned in a round, at the times of its steps."""
    if table is None:
        return None
    own = _of(table, measured.index)
    ends_s = {
        (int(span["client"]), int(span["iteration"])): float(span["end_s"])
        for span in measured.spans[measured.spans["step"] == S]
    }
    places = zip(own["data"], own["client"], own["iteration"], strict=True)
    return own.assign(
        time_s=[
            ends_s.get((client, iteration), np.nan) if data == "train" else measured.end_s
            for data, client, iteration in places
        ]
    )


def _air(tables: Tables, index: int) -> pd.DataFrame | None:
    """Lost and delivered frames of a round, by slot where that was kept."""
    if "air_slots" in tables:
        return _of(tables["air_slots"], index)
    return _of(tables["air"], index).assign(asked_loss=0.0) if "air" in tables else None
