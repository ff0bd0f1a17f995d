# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Exports a result to experiment trackers: TensorBoard's event files and MLflow's file store.

Both get the same series. A series has a value after each round; its step is the number of rounds
that are done, and its time the emulated time at the end of the round.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from orchestrator.records.comparison import held_out_of, train_of
from orchestrator.records.results import Result
from testbed.core import trees
from testbed.core.errors import InputError
from testbed.core.timeline import Round

EXPERIMENT = "746573746265640001"
"""ID of the experiment in MLflow's store, which has the name `testbed`."""
MOST_LETTERS = 6000
"""Longest value of a parameter in MLflow, characters."""
FINISHED, LOCAL = 3, 4
"""MLflow's numbers of the status of a run, and of the type of its source."""

OF_ROUNDS: dict[str, Callable[[Round], float]] = {
    "latency_s": lambda round_: round_.latency_s,
    "energy_j": lambda round_: float(round_.energy_j.sum()),
    "max_energy_j": lambda round_: float(round_.energy_j.max()),
    "objective": lambda round_: round_.objective,
}
"""By series: its value for a round."""


@dataclass(frozen=True)
class Value:
    """A value of a series."""

    series: str
    step: int
    """Number of rounds that are done."""
    time_s: float
    """Emulated time."""
    value: float


def values_of(result: Result) -> list[Value]:
    """All values of a result, by series and step; those that are not finite are included.

    Series: `round/latency_s`, `round/energy_j` (of all UAVs), `round/max_energy_j` and
    `round/objective`; `train/loss` and `train/accuracy`, means over the batches of a round; and
    `held-out/loss`, `held-out/accuracy` and `held-out/perplexity` of evaluations.
    """
    return list(_values(result))


def _values(result: Result) -> Iterator[Value]:
    train = train_of(result)
    last_s = train.groupby("round")["time_s"].max()
    # What was learned without a network has no rounds of its own.
    ends_s = {round_.index: round_.end_s for round_ in result.timeline} or last_s.to_dict()
    for name, of in OF_ROUNDS.items():
        for round_ in result.timeline:
            yield Value(f"round/{name}", round_.index + 1, round_.end_s, of(round_))
    means = train.groupby("round")[["loss", "accuracy"]].mean()
    for name in ("loss", "accuracy"):
        for index, value in means[name].items():
            step = int(str(index))
            if step in ends_s:
                yield Value(f"train/{name}", step + 1, ends_s[step], float(value))
    held_out = held_out_of(result)
    with np.errstate(over="ignore"):
        held_out = held_out.assign(perplexity=np.exp(held_out["loss"].astype(float)))
    for name in ("loss", "accuracy", "perplexity"):
        for row in held_out.to_dict("records"):
            step, time_s = int(row["round"]) + 1, float(row["time_s"])
            yield Value(f"held-out/{name}", step, time_s, float(row[name]))


def write_tensorboard(result: Result, folder: Path) -> Path:
    """Write an event file into a folder, which is created if missing; returns the file.

    The wall time of an event is the emulated time in seconds. Equal results make equal files.

    Raises:
        InputError: The folder is not empty.
        ModuleNotFoundError: tensorboard is not installed.
    """
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"`out`: {folder} exists already and is not an empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "events.out.tfevents.0.testbed"
    with file.open("wb") as stream:
        writer = RecordWriter(stream)
        writer.write(Event(wall_time=0.0, file_version="brain.Event:2").SerializeToString())
        for each in values_of(result):
            summary = Summary(value=[Summary.Value(tag=each.series, simple_value=each.value)])
            event = Event(wall_time=each.time_s, step=each.step, summary=summary)
            writer.write(event.SerializeToString())
        writer.flush()
    return file


def write_mlflow(result: Result, folder: Path, about: dict[str, Any]) -> Path:
    """Add a run to MLflow's file store, which is created if missing; returns the run's folder.

    Times of metrics are emulated milliseconds. The run's ID is a digest of what is exported, so a
    result cannot be added twice.

    Args:
        result: The result.
        folder: Folder of the store, `mlruns`.
        about: The manifest of the result; it may be empty.

    Raises:
        InputError: The folder is not a store, or it has the run already.
    """
    if folder.exists() and not (folder.is_dir() and (_is_store(folder) or _is_empty(folder))):
        raise InputError(f"`out`: {folder} exists already and is not a file store of MLflow")
    values, parameters = values_of(result), _parameters(result)
    content = [result.name, parameters, [vars(value) for value in values]]
    run_id = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]
    experiment = folder / EXPERIMENT
    run = experiment / run_id
    if run.exists():
        raise InputError(f"`out`: {folder} has this result already: {run}")
    start_ms = _started_ms(about)
    times_s = [value.time_s for value in values]
    end_s = result.timeline.end_s if result.timeline.rounds else max(times_s, default=0.0)
    run.mkdir(parents=True)
    if not (experiment / "meta.yaml").exists():
        _write_yaml(
            experiment / "meta.yaml",
            artifact_location=experiment.resolve().as_uri(),
            creation_time=start_ms,
            experiment_id=EXPERIMENT,
            last_update_time=start_ms,
            lifecycle_stage="active",
            name="testbed",
        )
    for name in ("artifacts", "metrics", "params", "tags"):
        (run / name).mkdir()
    name = Path(result.name).name
    for part, entries in (
        ("params", parameters),
        ("tags", {"mlflow.runName": name, "execution": result.execution}),
        ("metrics", _metrics(values)),
    ):
        for key, text in entries.items():
            file = run / part / key
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    _write_yaml(  # Last: a run without it is none.
        run / "meta.yaml",
        artifact_uri=(run / "artifacts").resolve().as_uri(),
        end_time=start_ms + round(1e3 * end_s),
        entry_point_name="",
        experiment_id=EXPERIMENT,
        lifecycle_stage="active",
        run_id=run_id,
        run_name=name,
        run_uuid=run_id,
        source_name="testbed",
        source_type=LOCAL,
        source_version=str(about.get("revision") or ""),
        start_time=start_ms,
        status=FINISHED,
        tags=[],
        user_id="",
    )
    return run


def _metrics(values: list[Value]) -> dict[str, str]:
    """By series: a line `milliseconds value step` for each value."""
    lines: dict[str, list[str]] = {}
    for each in values:
        line = f"{round(1e3 * each.time_s)} {each.value!r} {each.step}\n"
        lines.setdefault(each.series, []).append(line)
    return {series: "".join(own) for series, own in lines.items()}


def _parameters(result: Result) -> dict[str, str]:
    """The scenario's values by dotted key."""
    if result.scenario is None:
        return {}
    values = trees.flat(result.scenario.model_dump(mode="json"))
    texts = {key: v if isinstance(v, str) else json.dumps(v) for key, v in values.items()}
    return {key: text[:MOST_LETTERS] for key, text in texts.items()}


def _started_ms(about: dict[str, Any]) -> int:
    try:
        return round(1e3 * datetime.fromisoformat(str(about.get("started"))).timestamp())
    except ValueError:
        return 0


def _is_store(folder: Path) -> bool:
    return any(folder.glob("*/meta.yaml"))


def _is_empty(folder: Path) -> bool:
    return not any(folder.iterdir())


def _write_yaml(path: Path, **entries: Any) -> None:
    path.write_text(yaml.safe_dump(entries), encoding="utf-8")
