# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What can be held against each other: rounds, whoever played them, and where they are kept."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.records.reader import Run, read_object, read_run
from orchestrator.records.session_reader import SESSION, PlayedSession, read_session
from orchestrator.scenario.loading import explain, validate
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from testbed.core.timeline import SPAN, STEPS, Round, Timeline

EXECUTIONS = {
    "measured": "measured",
    "predicted_wire": "predicted, frames",
    "predicted": "predicted, payload",
}
"""Who played the rounds of a run, best first: its timelines, and what they are called."""
CROSS_CHECK = "opinions.json"
MOST_JSON_BYTES = 256 << 20
"""Of a file of rounds."""

Moment = Annotated[float, Field(ge=-1e9, le=1e9)]
Count = Annotated[int, Field(ge=1, le=100_000)]


class _Step(BaseModel):
    client: Count
    iteration: Count
    step: Literal["SM", "CF", "CA", "S", "SG", "CB", "CM"]
    start_s: Moment
    end_s: Moment
    bytes: Annotated[int, Field(ge=0, le=2**53)]


class _Round(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False)

    round: Annotated[int, Field(ge=0, lt=2**31)]
    paradigm: Annotated[str, Field(max_length=100)]
    split: int | list[int]
    start_s: Moment
    latency_s: Moment
    energy_j: Annotated[list[float], Field(min_length=1)]
    objective: float
    steps: list[_Step]


class _Budget(BaseModel):
    round: int
    parts: dict[str, Moment]


class _Rounds(BaseModel):
    """What `predict --json` and `run --json` write, or a cross-check's file."""

    rounds: list[_Round] = []
    predicted: list[_Round] = []
    predicted_wire: list[_Round] = []
    measured: list[_Round] = []
    opinions: dict[str, list[_Round]] = {}
    error_budget: list[_Budget] = []
    valid: bool | None = None
    kernel_complaints: list[str] | None = None


@dataclass(frozen=True)
class Result:
    """Rounds that somebody played, and what is known about them."""

    name: str
    """Of its folder or file."""
    scenario: Scenario | None
    """None where only its rounds were given."""
    execution: str
    """Who played them."""
    timeline: Timeline
    prediction: Timeline
    """The engine's, of the same rounds; none where they are a prediction themselves."""
    budget: pd.DataFrame = field(default_factory=pd.DataFrame)
    """What parts them from the payload's prediction, in s: index round, a column for each cause."""
    learning: pd.DataFrame = field(default_factory=pd.DataFrame)
    """`learning.parquet`; no rows where nothing was learnt."""
    valid: bool | None = None
    lacks: Sequence[str] = ()
    """What it cannot tell, a line each."""


def read_results(path: str | Path) -> list[Result | PlayedSession]:
    """Read what may be compared: one result, or each execution of a cross-check.

    Args:
        path: The directory of a run, a session or a cross-check; or a file that `predict --json`,
            `run --json` or `cross-check --json` has written.

    Raises:
        InputError: It is nothing of that, or broken: one line names the file and what it lacks.
    """
    path = Path(path)
    if path.is_file():
        return [*_of_file(path, path.name)]
    if (path / SESSION).is_file():
        return [read_session(path)]
    if (path / CROSS_CHECK).is_file():
        return [*_of_file(path / CROSS_CHECK, path.name)]
    if (path / "campaign.yaml").is_file():
        raise InputError(f"{path}: is a campaign: its report.html compares its points")
    return [result_of(read_run(path))]


def result_of(run: Run) -> Result:
    """A run, by what it measured, or else predicted.

    Raises:
        InputError: It holds no round.
    """
    timelines = {kind: getattr(run, kind) for kind in EXECUTIONS}
    kind = next((kind for kind, timeline in timelines.items() if len(timeline)), None)
    if kind is None:
        raise InputError(f"{run.folder}: holds no round, measured or predicted")
    missing = [run.absent[name] for name in ("measured", "budget") if name in run.absent]
    lacks = [f"{run.folder}: {why}" for why in missing]
    if kind != "measured":
        lacks.append(f"{run.folder}: stands with what was {EXECUTIONS[kind]}")
    return Result(
        name=run.folder,
        # A run's name may be what no file is called.
        scenario=run.scenario.model_copy(update={"name": run.scenario_name}),
        execution=EXECUTIONS[kind],
        timeline=timelines[kind],
        prediction=_prediction(kind, timelines["predicted_wire"], timelines["predicted"]),
        # Without a measurement, nothing is parted from its prediction.
        budget=run.budget if kind == "measured" else pd.DataFrame(),
        learning=run.tables.get("learning", pd.DataFrame()),
        valid=run.valid,
        lacks=lacks,
    )


def _prediction(kind: str, *timelines: Timeline) -> Timeline:
    if kind != "measured":
        return Timeline([])
    return next((timeline for timeline in timelines if len(timeline)), Timeline([]))


def _of_file(path: Path, name: str) -> Iterator[Result]:
    tree = read_object(path, MOST_JSON_BYTES)
    if not isinstance(described := tree.get("scenario"), dict):
        raise InputError(f"{path}: lacks `scenario`: must be JSON of predict, run or cross-check")
    scenario = validate(described, f"{path}: scenario")
    try:
        read = _Rounds.model_validate(tree)
    except ValidationError as error:
        raise InputError(f"{path}: {explain(error.errors(include_url=False))}") from None
    found = {kind: _timeline(getattr(read, kind), scenario, path) for kind in EXECUTIONS}
    if read.rounds:
        found["predicted"] = _timeline(read.rounds, scenario, path)
    kind = next((kind for kind, timeline in found.items() if len(timeline)), None)
    lacks = f"{name}: holds timelines alone: no error budget"
    if kind is not None:
        budget = pd.DataFrame([{"round": b.round, **b.parts} for b in read.error_budget])
        yield Result(
            name=name,
            scenario=scenario,
            execution=EXECUTIONS[kind],
            timeline=found[kind],
            prediction=_prediction(kind, found["predicted_wire"], found["predicted"]),
            budget=budget if budget.empty else budget.set_index("round"),
            valid=read.valid,
            lacks=() if len(budget) else (lacks,),
        )
    elif not read.opinions:
        raise InputError(f"{path}: holds no round: must be JSON of predict, run or cross-check")
    for execution, rounds in read.opinions.items():
        complaints = read.kernel_complaints if execution == "kernel" else None
        yield Result(
            name=name,
            scenario=scenario,
            execution=execution,
            timeline=_timeline(rounds, scenario, path),
            prediction=Timeline([]),
            valid=None if complaints is None else not complaints,
            lacks=(f"{lacks} ({execution})",),
        )


def _timeline(rounds: Sequence[_Round], scenario: Scenario, path: Path) -> Timeline:
    """The inverse of `Timeline.to_json`; clients that were lost are not told apart."""
    made = []
    for entry in rounds:
        spans = np.array(
            [
                (s.client, s.iteration, STEPS.index(s.step), s.start_s, s.end_s, s.bytes)
                for s in entry.steps
            ],
            SPAN,
        )
        if len(spans) and spans["client"].max() > scenario.uavs.count:
            raise InputError(f"{path}: round {entry.round}: has more clients than the scenario")
        made.append(
            Round(
                index=entry.round,
                paradigm=entry.paradigm,
                split=tuple(entry.split) if isinstance(entry.split, list) else entry.split,
                start_s=entry.start_s,
                latency_s=entry.latency_s,
                energy_j=np.array(entry.energy_j),
                objective=entry.objective,
                spans=spans,
            )
        )
    return Timeline(made)
