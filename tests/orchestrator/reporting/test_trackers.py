# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Exports for TensorBoard and MLflow hold the rounds and the learning of a result."""

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from synthetic_run import make_run, make_session
from typer.testing import CliRunner

from orchestrator.cli.main import app
from orchestrator.records.results import Result, read_results
from orchestrator.reporting.trackers import Value, values_of, write_mlflow

LEARNING = [
    (-1, "held-out", 0, 0, 0.0, 2.0, 0.1),
    (0, "train", 1, 1, 1.0, 1.5, 0.2),
    (0, "train", 2, 1, 2.0, 0.5, 0.4),
    (0, "held-out", 0, 0, 10.0, 1.0, 0.5),
    (1, "train", 1, 1, 11.0, math.nan, 0.6),
    (1, "held-out", 0, 0, 20.0, 0.5, 0.75),
]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = make_run(tmp_path / "run", uavs=2, rounds=2)
    columns = ["round", "data", "client", "iteration", "time_s", "loss", "accuracy"]
    table = pd.DataFrame(LEARNING, columns=columns)
    table.assign(smashed_error=math.nan, gradient_error=math.nan).to_parquet(
        folder / "learning.parquet"
    )
    return folder


def call(*words: object) -> Any:
    return CliRunner().invoke(app, ["export", *map(str, words)])


def result_of(path: Path) -> Result:
    (found,) = read_results(path)
    assert isinstance(found, Result)
    return found


def test_each_series_counts_finished_rounds_in_emulated_time(run: Path) -> None:
    result = result_of(run)
    by_series: dict[str, list[Value]] = {}
    for each in values_of(result):
        by_series.setdefault(each.series, []).append(each)
    assert set(by_series) == {
        *(f"round/{name}" for name in ("latency_s", "energy_j", "max_energy_j", "objective")),
        *("train/loss", "train/accuracy"),
        *("held-out/loss", "held-out/accuracy", "held-out/perplexity"),
    }
    one, two = result.timeline
    assert by_series["round/latency_s"] == [
        Value("round/latency_s", 1, one.end_s, one.latency_s),
        Value("round/latency_s", 2, two.end_s, two.latency_s),
    ]
    assert by_series["round/energy_j"][0].value == pytest.approx(one.energy_j.sum())
    assert by_series["round/max_energy_j"][0].value == one.energy_j.max()
    assert by_series["train/accuracy"] == [
        Value("train/accuracy", 1, one.end_s, pytest.approx(0.3)),
        Value("train/accuracy", 2, two.end_s, 0.6),
    ]
    assert by_series["held-out/accuracy"] == [
        Value("held-out/accuracy", 0, 0.0, 0.1),
        Value("held-out/accuracy", 1, 10.0, 0.5),
        Value("held-out/accuracy", 2, 20.0, 0.75),
    ]
    assert by_series["held-out/perplexity"][0].value == pytest.approx(math.exp(2.0))


def test_tensorboard_reads_the_event_file(run: Path, tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    out = tmp_path / "events"
    done = call(run, "--to", "tensorboard", "--out", out)
    assert done.exit_code == 0, done.output
    events = accumulator.EventAccumulator(str(out))
    events.Reload()
    values = values_of(result_of(run))
    assert set(events.Tags()["scalars"]) == {each.series for each in values}
    seen = [(e.step, e.wall_time, round(e.value, 5)) for e in events.Scalars("held-out/accuracy")]
    assert seen == [(0, 0.0, 0.1), (1, 10.0, 0.5), (2, 20.0, 0.75)]
    again = call(run, "--to", "tensorboard", "--out", out)
    assert str(again.exception).startswith("`out`: ")
    assert "not an empty folder" in str(again.exception)
    other = tmp_path / "other"
    call(run, "--to", "tensorboard", "--out", other)
    (one,), (two,) = out.iterdir(), other.iterdir()
    assert one.read_bytes() == two.read_bytes()


def test_mlflows_store_has_metrics_parameters_and_tags(run: Path, tmp_path: Path) -> None:
    store = tmp_path / "mlruns"
    done = call(run, "--to", "mlflow", "--out", store)
    assert done.exit_code == 0, done.output
    (place,) = (path.parent for path in store.glob("*/*/meta.yaml"))
    about = yaml.safe_load((place / "meta.yaml").read_text())
    assert about["run_id"] == about["run_uuid"] == place.name
    assert len(place.name) == 32
    assert about["experiment_id"] == place.parent.name
    assert about["status"] == 3
    assert about["run_name"] == "run"
    assert about["artifact_uri"] == (place / "artifacts").as_uri()
    assert about["end_time"] - about["start_time"] == round(1e3 * result_of(run).timeline.end_s)
    experiment = yaml.safe_load((place.parent / "meta.yaml").read_text())
    assert experiment["name"] == "testbed"
    assert experiment["experiment_id"] == place.parent.name
    lines = (place / "metrics" / "held-out" / "accuracy").read_text().splitlines()
    assert lines == ["0 0.1 0", "10000 0.5 1", "20000 0.75 2"]
    assert (place / "metrics" / "train" / "loss").read_text().splitlines()[1].split()[1] == "nan"
    scenario = json.loads((run / "scenario.json").read_text())
    assert (place / "params" / "paradigm").read_text() == scenario["paradigm"]
    assert (place / "params" / "workload.split").read_text() == str(scenario["workload"]["split"])
    assert (place / "tags" / "mlflow.runName").read_text() == "run"

    again = call(run, "--to", "mlflow", "--out", store)
    assert "has this result already" in str(again.exception)
    other = make_run(tmp_path / "other", seed=5)
    assert call(other, "--to", "mlflow", "--out", store).exit_code == 0
    assert len(list(store.glob("*/*/meta.yaml"))) == 2
    assert len(list(store.glob("*/meta.yaml"))) == 1


def test_long_values_are_cut(run: Path, tmp_path: Path) -> None:
    result = result_of(run)
    assert result.scenario is not None
    long = result.scenario.workload.model_copy(update={"lora_targets": "x" * 7000})
    scenario = result.scenario.model_copy(update={"workload": long})
    given = Result(**{**vars(result), "scenario": scenario})
    place = write_mlflow(given, tmp_path / "mlruns", {})
    assert len((place / "params" / "workload.lora_targets").read_text()) == 6000
    assert yaml.safe_load((place / "meta.yaml").read_text())["start_time"] == 0


def test_what_is_no_store_and_no_single_result_is_refused(run: Path, tmp_path: Path) -> None:
    busy = tmp_path / "busy"
    busy.mkdir()
    (busy / "thesis.txt").write_text("mine")
    refused = call(run, "--to", "mlflow", "--out", busy)
    assert "is not a file store of MLflow" in str(refused.exception)
    assert [path.name for path in busy.iterdir()] == ["thesis.txt"]
    session = make_session(tmp_path / "session")
    refused = call(session, "--to", "tensorboard", "--out", tmp_path / "new")
    assert "must be one run or prediction" in str(refused.exception)
    assert not (tmp_path / "new").exists()
