# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Campaigns compare what was learned: targets, costs, curves, and the answer of the report."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure
from page_parts import embedded
from small_campaign import campaign_tree, write_campaign
from typer.testing import CliRunner

import orchestrator as tb
from orchestrator.analysis.learned import Target, costs_of
from orchestrator.campaigning import results
from orchestrator.campaigning.cluster import run_campaign
from orchestrator.campaigning.folder import CampaignFolder
from orchestrator.campaigning.report import write_campaign_report
from orchestrator.campaigning.results import write_results
from orchestrator.campaigning.spec import cells, load_campaign
from orchestrator.campaigning.summary import differences, means
from orchestrator.cli.main import app
from orchestrator.emulated import trajectory
from orchestrator.records.learned import Trajectory
from orchestrator.reporting import learning_plots
from orchestrator.reporting.legend import style_of
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from testbed.host.dask_cluster import Cluster

ROOT = Path(__file__).resolve().parents[3]
ACCURACIES = {1: [0.1, 0.5, 0.9, 0.9], 2: [0.1, 0.3, 0.5, 0.7]}
"""By seed: of the evaluations of three rounds."""


def study_of(folder: Path, **changes: Any) -> dict[str, Any]:
    study = campaign_tree(folder)["studies"]["split"]
    study["axes"] = {"paradigm": ["cpsfl", "sfl-pp"]}
    study["set"] = {"learn": True, "workload.evaluate_every": 1}
    study["compare"] |= {
        "of": ["time_to_accuracy", "energy_to_accuracy", "accuracy"],
        "target": {"accuracy": 0.8},
    }
    study["plot"] = [
        {"x": "time_s", "y": "accuracy", "lines": "paradigm"},
        {"x": "energy_j", "y": "loss", "lines": "paradigm"},
    ]
    return study | changes


def pretended(scenario: Scenario) -> Trajectory:
    """What a scenario of two UAVs might learn."""
    rows: list[tuple[Any, ...]] = []
    for index, accuracy in enumerate(ACCURACIES[scenario.seed]):
        rows += [
            (index - 1, "train", client, iteration, 1.0, 0.5, None, None)
            for client in (1, 2)
            for iteration in range(1, 1 + scenario.workload.local_iterations)
            if index
        ]
        rows.append((index - 1, "held-out", 0, 0, 1 - accuracy, accuracy, None, None))
    columns = ["round", "data", "client", "iteration", "loss", "accuracy"]
    table = pd.DataFrame(rows, columns=[*columns, "smashed_error", "gradient_error"])
    return Trajectory("pretended", scenario, table)


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CampaignFolder:
    monkeypatch.setattr(trajectory, "learned_once", pretended)
    path = write_campaign(tmp_path, studies={"split": study_of(tmp_path)})
    folder = CampaignFolder(tmp_path / "out")
    done = run_campaign(load_campaign(path), folder, cluster=Cluster(workers=0))
    assert not done.failed, done.failed
    write_results(folder, folder.campaign())
    return folder


def table(folder: CampaignFolder, name: str) -> pd.DataFrame:
    return pd.read_parquet(folder.path / "results" / f"{name}.parquet")


def test_points_have_the_metrics_of_what_was_learned(played: CampaignFolder) -> None:
    points, curves = table(played, "points"), table(played, "curves")
    for row in points.to_dict("records"):
        own = curves[curves["point"] == row["point"]]
        assert own["accuracy"].tolist() == ACCURACIES[row["seed"]]
        assert own["round"].tolist() == [0, 1, 2, 3]
        assert row["accuracy"] == ACCURACIES[row["seed"]][-1]
        costs = costs_of(own, Target("accuracy", 0.8))
        if row["seed"] == 1:
            assert row["time_to_accuracy"] == costs["time"] == own["time_s"].iloc[2]
            assert row["time_to_accuracy"] == pytest.approx(2 * row["latency_s"], rel=0.2)
            assert row["energy_to_accuracy"] == costs["energy"] == own["energy_j"].iloc[2] > 0
        else:
            assert pd.isna(row["time_to_accuracy"])
    learning = table(played, "learning")
    assert set(learning["data"]) == {"train", "held-out"}
    assert len(learning[learning["data"] == "held-out"]) == 4 * 4


def test_seeds_that_do_not_reach_the_target_are_counted(played: CampaignFolder) -> None:
    study = played.campaign().studies["split"]
    points = table(played, "points")
    means_ = means(points, ["mode", "paradigm"], study.requested_metrics)
    assert means_["n"].tolist() == [2, 2]
    assert means_["time_to_accuracy_n"].tolist() == [1, 1]
    assert means_["accuracy_n"].tolist() == [2, 2]
    first = points[points["seed"] == 1].set_index("paradigm")["time_to_accuracy"]
    assert means_.set_index("paradigm")["time_to_accuracy"].to_dict() == first.to_dict()
    (row,) = differences(points, study, ["paradigm"]).to_dict("records")
    assert row["time_to_accuracy"] == pytest.approx(first["cpsfl"] / first["sfl-pp"] - 1)
    assert row["time_to_accuracy_n"] == 1
    assert row["accuracy"] == 0


def test_the_report_begins_with_the_answer(played: CampaignFolder) -> None:
    page = write_campaign_report(played, played.campaign()).read_text(encoding="utf-8")
    lead = re.search(r'<ul class="lead" data-verdict><li>(.*?)</li>', page)
    assert lead is not None
    assert re.match(
        r"\S+ reaches an accuracy of 80 % first, in 1 of 2 seeds, after [\d.]+ s, "
        r"[\d.]+ % earlier than \S+ \(after [\d.]+ s\)\.",
        lead[1],
    )
    assert "(1 of 2 seeds)" in " ".join(page.split())
    assert "Time to an accuracy of 80 % (s)" in page
    assert "data:image/png" not in page
    charts = embedded(page)["charts"]
    assert list(charts) == ["split-accuracy-time", "split-loss-energy"]
    assert next(iter(charts["split-loss-energy"]["over"])) == "energy_j"
    (mean,) = [s for s in charts["split-accuracy-time"]["series"] if s["label"] == "CPSFL"][-1:]
    assert mean["y"] == [10.0, 40.0, 70.0, 80.0]
    alike = "Curves within 1 % of each other: CPSFL, SFL-PP."
    assert charts["split-accuracy-time"]["notes"]["round"] == alike
    assert charts["split-accuracy-time"]["notes"]["time_s"] == ""
    drawn = {path.name for path in (played.path / "figures").glob("split-*")}
    assert drawn == {
        f"split-{stem}.{kind}"
        for stem in ("accuracy-time", "loss-energy")
        for kind in ("png", "pdf", "svg")
    }


def test_the_command_prints_the_answer(played: CampaignFolder) -> None:
    done = CliRunner().invoke(app, ["campaign", "report", str(played.path)])
    assert done.exit_code == 0, done.output
    assert " reaches an accuracy of 80 % first, in 1 of 2 seeds" in done.output.splitlines()[0]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"compare": {"over": "paradigm", "baseline": "cpsfl", "of": "time_to_accuracy"}},
            "studies.split.compare.of.0: 'time_to_accuracy' needs compare.target with accuracy",
        ),
        (
            {
                "compare": {
                    "over": "paradigm",
                    "baseline": "cpsfl",
                    "of": "energy_to_loss",
                    "target": {"accuracy": 0.8},
                }
            },
            "studies.split.compare.of.0: 'energy_to_loss' needs compare.target with loss",
        ),
        (
            {"compare": {"over": "paradigm", "baseline": "cpsfl", "target": {"accuracy": 80}}},
            "studies.split.compare.target: accuracy must be above 0 and at most 1",
        ),
        (
            {"compare": {"over": "paradigm", "baseline": "cpsfl", "target": {"f1": 0.8}}},
            "studies.split.compare.target: 'f1' is not one of accuracy, loss, perplexity",
        ),
        (
            {"plot": [{"x": "time_s", "y": "latency_s"}]},
            "studies.split.plot.0.y: over 'time_s' must be one of accuracy, loss, perplexity",
        ),
        (
            {"set": {"workload.evaluate_every": 1}},
            "compare.of.0: needs `set: {learn: true}`, or runs that learn",
        ),
        ({"set": {"learn": True}}, "compare.of.0: needs workload.evaluate_every, which is 0"),
        (
            {"set": {"learn": True, "workload.evaluate_every": 1, "workload.clients_per_pass": 2}},
            "learn: workload.clients_per_pass: must be 1",
        ),
        (
            {
                "mode": "run",
                "set": {"learn": True, "workload.evaluate_every": 1, "workload.compute": "real"},
            },
            "learn: the run learns itself, unless workload.compute is 'none'",
        ),
        (
            {"set": {"learn": True, "workload.evaluate_every": 1, "train": "drl"}, "trace": None},
            "learn: not supported together with `train`",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    path = write_campaign(tmp_path, studies={"split": study_of(tmp_path, **changes)})
    with pytest.raises(InputError) as refused:
        cells(load_campaign(path))
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_target_does_not_change_points(tmp_path: Path) -> None:
    """Another target needs no other points: costs are computed from the stored curves."""
    study = study_of(tmp_path)
    ids = []
    for value in (0.8, 0.9):
        study["compare"]["target"] = {"accuracy": value}
        path = write_campaign(tmp_path, studies={"split": study})
        ids.append([cell.point.id for cell in cells(load_campaign(path))])
    assert ids[0] == ids[1]
    study["set"]["learn"] = False
    study["compare"] = study["compare"] | {"of": ["latency_s"], "target": {}}
    study["plot"] = []
    path = write_campaign(tmp_path, studies={"split": study})
    assert [cell.point.id for cell in cells(load_campaign(path))] != ids[0]


def test_emulated_points_have_curves_of_their_own_learning(
    played: CampaignFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cell, *_) = cells(played.campaign())
    point = played.finished([cell.point])[cell.point.id]
    stored = pd.read_parquet(point / "curves.parquet")
    (point / "curves.parquet").unlink()
    learning = pd.read_parquet(point / "learning.parquet")
    timeline = tb.predict(cell.point.scenario, cell.point.trace)
    run = SimpleNamespace(tables={"learning": learning}, measured=timeline)
    monkeypatch.setattr(results, "read_run", lambda folder: run)
    found = results._curve(point)
    assert found is not None
    pd.testing.assert_frame_equal(found.astype(float), stored.astype(float))


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_the_example_answers_who_is_first(tmp_path: Path) -> None:
    """The sentence of docs/campaigns.md."""
    folder = tmp_path / "learning"
    done = CliRunner().invoke(
        app, ["campaign", "run", str(ROOT / "campaigns" / "learning.yaml"), "--out", str(folder)]
    )
    assert done.exit_code == 0, done.output
    (answer,) = [line for line in done.output.splitlines() if " first, after " in line]
    page = " ".join((ROOT / "docs" / "campaigns.md").read_text(encoding="utf-8").split())
    assert answer in page
    manifests = [json.loads(path.read_text()) for path in folder.glob("points/*/manifest.json")]
    assert len(manifests) == 9


def test_the_page_has_the_command_and_the_colours_of_the_paradigms(
    played: CampaignFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Figure] = []
    usual = learning_plots.curves

    def kept(*arguments: Any) -> Figure | None:
        figure = usual(*arguments)
        drawn.extend([figure] if figure is not None else [])
        return figure

    monkeypatch.setattr(learning_plots, "curves", kept)
    for path in played.path.glob("points/*/manifest.json"):
        manifest = json.loads(path.read_text())
        command = {"argv": ["testbed", "campaign", "run", "a b.yaml"], "command": ""}
        path.write_text(json.dumps(manifest | command))
    page = write_campaign_report(played, played.campaign()).read_text()
    assert "testbed campaign run &#39;a b.yaml&#39;</pre>" in page
    assert "Finished (UTC)" in page
    for path in played.path.glob("points/*/manifest.json"):
        manifest = json.loads(path.read_text())
        path.write_text(json.dumps(manifest | {"argv": None, "command": "testbed a; b"}))
    drawn.clear()
    page = write_campaign_report(played, played.campaign()).read_text()
    assert "recorded this command without quotes" in page
    assert 'data-copy="command' not in page
    colours = {style_of(name).colour for name in ("cpsfl", "sfl-pp")}
    for figure in drawn:
        lines = [line for line in figure.axes[0].lines if line.get_label() in ("CPSFL", "SFL-PP")]
        assert {str(line.get_color()) for line in lines} == colours
    assert len(drawn) == 2
