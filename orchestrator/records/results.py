# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Results that can be compared: rounds with their scenario, read from directories or files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.engine.radio import OF_RATES, describe_radio
from orchestrator.records.reader import Run, read_object, read_run
from orchestrator.records.session_reader import SESSION, PlayedSession, read_session
from orchestrator.scenario.channel import is_open
from orchestrator.scenario.loading import explain, validate
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from testbed.core.timeline import SPAN, STEPS, Round, Timeline

EXECUTIONS = {
    "measured": "measured",
    "predicted_wire": "predicted, frames",
    "predicted": "predicted, payload",
}
"""Name of the execution by kind of timeline, best first."""
CROSS_CHECK = "cross-check.json"
MOST_JSON_BYTES = 256 << 20
"""Size limit of a JSON file."""

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


class _Learned(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False)

    round: Annotated[int, Field(ge=-1, lt=2**31)]
    data: Literal["train", "held-out"]
    client: Annotated[int, Field(ge=0, le=100_000)]
    iteration: Annotated[int, Field(ge=0, le=100_000)]
    time_s: Moment
    loss: float | None
    accuracy: float | None
    smashed_error: float | None = None
    gradient_error: float | None = None


class _Rounds(BaseModel):
    """The JSON that `predict --json`, `run --json` and `cross-check --json` write."""

    rounds: list[_Round] = []
    predicted: list[_Round] = []
    predicted_wire: list[_Round] = []
    measured: list[_Round] = []
    executions: dict[str, list[_Round]] = {}
    error_budget: list[_Budget] = []
    learning: list[_Learned] = []
    valid: bool | None = None
    kernel_complaints: list[str] | None = None
    downlink_is_open: bool = False
    trace_has_rates: bool = False
    packets_over: str = ""


@dataclass(frozen=True)
class Result:
    """The rounds of one execution (a measurement or a prediction), and facts about them."""

    name: str
    """Name of the result's folder or file."""
    scenario: Scenario | None
    """The scenario; None if only rounds were given."""
    execution: str
    """Name of the execution of the rounds, e.g. a value of `EXECUTIONS`."""
    timeline: Timeline
    prediction: Timeline
    """The engine's prediction of the same rounds; empty if the rounds are a prediction."""
    budget: pd.DataFrame = field(default_factory=pd.DataFrame)
    """Differences from the payload prediction, s: index round, one column per cause."""
    learning: pd.DataFrame = field(default_factory=pd.DataFrame)
    """The table `learning.parquet`; empty if the run has no training."""
    valid: bool | None = None
    downlink_is_open: bool = False
    """See `Timeline.downlink_is_open`."""
    lacks: Sequence[str] = ()
    """Missing parts of the result, one line each."""
    radio: str = ""
    """The radio in a few words, see `describe_radio`; empty if only rounds were given."""
    page: Path | None = None
    """The page of the run or of the cross-check; None if there is none."""


def read_results(path: str | Path) -> list[Result | PlayedSession]:
    """Read one result, or one result per execution of a cross-check.

    Args:
        path: The directory of a run, a session or a cross-check; or a file that `predict --json`,
            `run --json` or `cross-check --json` has written.

    Raises:
        InputError: The file is none of these, or is broken; the message names the file.
    """
    path = Path(path)
    if path.is_file():
        return [*_of_file(path, path.name)]
    if (path / SESSION).is_file():
        return [read_session(path)]
    if (path / CROSS_CHECK).is_file():
        page = _page(path / "cross-check.html")
        return [replace(one, page=page) for one in _of_file(path / CROSS_CHECK, path.name)]
    if (path / "campaign.yaml").is_file():
        raise InputError(f"{path}: is a campaign: its report.html compares its points")
    return [replace(result_of(read_run(path)), page=_page(path / "report.html"))]


def _page(path: Path) -> Path | None:
    return path if path.is_file() else None


def result_of(run: Run) -> Result:
    """The result of a run: its measured rounds, or otherwise its predicted ones.

    Raises:
        InputError: The run has no round.
    """
    timelines = {kind: getattr(run, kind) for kind in EXECUTIONS}
    kind = next((kind for kind, timeline in timelines.items() if len(timeline)), None)
    if kind is None:
        raise InputError(f"{run.folder}: has no measured or predicted round")
    missing = [run.absent[name] for name in ("measured", "budget") if name in run.absent]
    lacks = [f"{run.folder}: {why}" for why in missing]
    if kind != "measured":
        lacks.append(f"{run.folder}: is compared as {EXECUTIONS[kind]}")
    return Result(
        name=run.folder,
        # The name in a run's manifest may not be a valid file name.
        scenario=run.scenario.model_copy(update={"name": run.scenario_name}),
        execution=EXECUTIONS[kind],
        timeline=timelines[kind],
        prediction=_prediction(kind, timelines["predicted_wire"], timelines["predicted"]),
        # Only a measurement differs from its prediction.
        budget=run.budget if kind == "measured" else pd.DataFrame(),
        learning=run.tables.get("learning", pd.DataFrame()),
        valid=run.valid,
        downlink_is_open=run.trace is not None and is_open(run.scenario, run.trace),
        lacks=lacks,
        radio=describe_radio(run.scenario, run.trace),
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
    lacks = f"{name}: has only timelines, no error budget"
    radio = OF_RATES if read.trace_has_rates else describe_radio(scenario)
    if kind is not None:
        budget = pd.DataFrame([{"round": b.round, **b.parts} for b in read.error_budget])
        yield Result(
            name=name,
            scenario=scenario,
            execution=EXECUTIONS[kind],
            timeline=found[kind],
            prediction=_prediction(kind, found["predicted_wire"], found["predicted"]),
            budget=budget if budget.empty else budget.set_index("round"),
            learning=_learning(read.learning),
            valid=read.valid,
            downlink_is_open=read.downlink_is_open,
            lacks=() if len(budget) else (lacks,),
            radio=radio,
        )
    elif not read.executions:
        raise InputError(f"{path}: has no round: must be JSON of predict, run or cross-check")
    for execution, rounds in read.executions.items():
        complaints = read.kernel_complaints if execution == "kernel" else None
        over = read.packets_over if execution == "ns-3 packets" else ""
        yield Result(
            name=name,
            scenario=scenario,
            execution=execution,
            timeline=_timeline(rounds, scenario, path),
            prediction=Timeline([]),
            valid=None if complaints is None else not complaints,
            downlink_is_open=read.downlink_is_open,
            lacks=(f"{lacks} ({execution})",),
            radio=f"{radio}; packets pass {over}" if over else radio,
        )


def _learning(rows: Sequence[_Learned]) -> pd.DataFrame:
    """The table `learning.parquet`; empty if there are no rows."""
    table = pd.DataFrame([row.model_dump() for row in rows])
    numbers = table.columns.intersection(["loss", "accuracy", "smashed_error", "gradient_error"])
    return table.astype(dict.fromkeys(numbers, float))


def _timeline(rounds: Sequence[_Round], scenario: Scenario, path: Path) -> Timeline:
    """Inverse of `Timeline.to_json`, without the losses of clients."""
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
