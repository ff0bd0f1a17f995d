# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The page of `testbed learn`: curves, seeds, UAVs and classes are those of the folder."""

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from page_parts import Page, embedded
from small_trajectories import ACCURACIES, write_learned, write_seeds
from typer.testing import CliRunner

from orchestrator.analysis.fairness import Fairness, by_classes, recalls
from orchestrator.analysis.learned import Group, coinciding, improvements
from orchestrator.cli.main import app
from orchestrator.records.appraised import FILE
from orchestrator.records.learned import CURVES, read_trajectories
from orchestrator.reporting.learned_report import (
    learned_lines,
    read_learned,
    render,
    write_learned_report,
)
from testbed.core.errors import InputError


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_seeds(tmp_path_factory.mktemp("learned") / "seeds")


def page_of(folder: Path) -> str:
    return render(folder.name, read_learned(folder))


def test_one_seed_is_one_curve_with_a_marker_at_each_evaluation(tmp_path: Path) -> None:
    html = page_of(write_learned(tmp_path / "one"))
    charts = embedded(html)["charts"]
    assert set(charts) == {"accuracy", "loss", "clients"}
    assert set(charts["accuracy"]["over"]) == {"round", "time_s", "energy_j", "bytes"}
    training, held_out = charts["accuracy"]["series"]
    assert held_out["y"] == [10.0, 50.0, 90.0, 80.0]
    assert held_out["holds"]
    assert held_out["marker"]
    assert held_out["x"]["round"] == [0, 1, 2, 3]
    assert held_out["x"]["time_s"] == [0, 2, 4, 6]
    assert held_out["x"]["bytes"] == [0, 1, 2, 3]  # MB
    assert training["y"] == [50.0, 50.0, 50.0]
    assert training["x"]["energy_j"] == [3, 6, 9]
    assert charts["loss"]["series"][0]["y"] == pytest.approx([1, 0.5, 0.3333])
    page = Page(html)
    lead = page.words("overview")
    assert (
        "The held-out accuracy is 80.0 % after 3 rounds (best 90.0 % after 2 rounds; 10.0 %" in lead
    )
    assert "The rounds take 6.000 s, as predicted for the payload only" in lead
    assert "the accuracy is 70 % to 90 %." in lead
    assert "80.0%" in page.cells("seeds")


def test_seeds_have_a_mean_and_a_band_and_sentences_are_of_their_table(seeds: Path) -> None:
    html = page_of(seeds)
    _, spread, *own, mean = embedded(html)["charts"]["accuracy"]["series"]
    by_round = np.array([100 * np.array(values) for values in ACCURACIES.values()])
    assert spread["low"] == pytest.approx(by_round.min(axis=0))
    assert spread["high"] == pytest.approx(by_round.max(axis=0))
    assert mean["y"] == pytest.approx(by_round.mean(axis=0))
    assert [each["y"] for each in own] == [pytest.approx(values) for values in by_round]
    page = Page(html)
    lead = page.words("overview")
    assert (
        "Over 2 seeds, the held-out accuracy is 75.0 % (70.0 % to 80.0 %) after 3 rounds." in lead
    )
    assert "The best value of a seed is 80.0 % (70.0 % to 90.0 %)." in lead
    cells = page.cells("seeds")
    assert "180.0%90.0%after2rounds0.2000" in cells
    assert "270.0%70.0%after3rounds0.3000" in cells
    assert "All evaluations (8)" in page.words("seeds")
    # The field proposes 90 % of what all seeds reach; the script fills the times.
    assert re.search(r'type="number"[^>]*value="63"', html)
    assert embedded(html)["reached"] == [
        [[0, 0.1], [2, 0.5], [4, 0.9]],
        [[0, 0.1], [2, 0.3], [4, 0.5], [6, 0.7]],
    ]


def test_uavs_and_classes_are_shown_and_names_are_escaped(seeds: Path) -> None:
    html = page_of(seeds)
    assert "<b>cat" not in html
    page = Page(html)
    # Seeds 1 and 2 give UAV 2 70 and 80 %; its samples are all of the class that is always right.
    assert "24075%70%80%100%–" not in page.cells("clients")
    assert "22075%70%80%100%–" in page.cells("clients")
    # UAV 1: 30 samples of a class with recall 0.8, 10 of one with 1.
    assert "14090%90%90%85%0.5000" in page.cells("clients")
    assert "Jain's index" in page.words("clients").replace("’", "'")
    classes = page.cells("confusion")
    assert "zebra164·2080%100%" in classes
    assert "<b>cat</b>·10·10100%62%" in classes
    facts = page.words("setup")
    assert "all parameters" not in facts
    assert "(1,234 values)" in facts
    assert "torch 2.0" in facts
    assert "Class distribution per UAV, seed 1" in facts
    points = embedded(html)["charts"]["clients"]["series"]
    assert [each["label"] for each in points] == ["seed 1", "seed 2", "mean of the seeds"]
    assert points[2]["y"] == pytest.approx([90.0, 75.0])


def test_without_times_only_rounds_are_offered(tmp_path: Path) -> None:
    folder = write_learned(tmp_path / "one", times=False, appraised=False)
    html = page_of(folder)
    assert set(embedded(html)["charts"]["accuracy"]["over"]) == {"round"}
    page = Page(html)
    assert "clients" not in page.text
    assert "confusion" not in page.text
    assert "There are no times" in page.words("curves")
    assert "The rounds take" not in page.words("overview")


def test_without_evaluations_the_page_says_so(tmp_path: Path) -> None:
    folder = write_learned(tmp_path / "one", times=False, appraised=False)
    table = pd.read_parquet(folder / "learned.parquet")
    table[table["data"] == "train"].to_parquet(folder / "learned.parquet", index=False)
    page = Page(page_of(folder))
    assert "Nothing was evaluated on held-out data." in page.words("overview")
    assert learned_lines(read_learned(folder)) == []


def test_a_language_model_has_perplexities(tmp_path: Path) -> None:
    folder = write_learned(tmp_path / "one", appraised=False)
    tree = json.loads((folder / "scenario.json").read_text())
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64}
    tree["workload"] |= {"model": "hf:llama", "parameters": sizes, "classes": 64}
    (folder / "scenario.json").write_text(json.dumps(tree))
    html = page_of(folder)
    charts = embedded(html)["charts"]
    assert set(charts) == {"perplexity", "loss"}
    assert charts["perplexity"]["series"][-1]["y"] == pytest.approx(
        [math.exp(1 - a) for a in ACCURACIES[1]], abs=1e-4
    )
    assert "The held-out perplexity is 1.221 after 3 rounds" in Page(html).words("overview")


def test_a_loss_that_diverged_is_no_number(tmp_path: Path) -> None:
    folder = write_learned(tmp_path / "one")
    for file in ("learned.parquet", CURVES):
        table = pd.read_parquet(folder / file)
        table.loc[table.index[-1], ["loss", "accuracy", "perplexity"][: 2 + (file == CURVES)]] = (
            np.nan
        )
        table.to_parquet(folder / file, index=False)
    html = page_of(folder)
    assert "NaN" not in html.split('id="data">')[1].split("</script>")[0]
    assert "The held-out accuracy is not finite after 3 rounds" in Page(html).words("overview")
    seeds = tmp_path / "seeds"
    shutil.copytree(folder, seeds / "seed-1")
    write_learned(seeds / "seed-2", ACCURACIES[2], 2)
    lead = Page(page_of(seeds)).words("overview")
    assert (
        "Over 2 seeds, the held-out accuracy is 70.0 % after 3 rounds. In 1 of them, it is" in lead
    )


def test_the_command_writes_the_page_again(seeds: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["report", str(seeds)])
    assert done.exit_code == 0, done.output
    assert (seeds / "report.html").read_text() == page_of(seeds)
    assert [each.scenario.seed for each in read_trajectories(seeds)] == [1, 2]
    refused = CliRunner().invoke(app, ["report", str(seeds), "--figures"])
    assert str(refused.exception).startswith("`figures`: only for runs")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"names": ["a"]}, "confusion: has a class that is not in `names`"),
        ({"clients": []}, "clients"),
        ({"trained": -1}, "trained"),
        ({"names": ["x"] * 1001}, "names"),
        ({"more": 1}, "more"),
        (
            {"clients": [{"client": 1, "samples": 1, "appraised": 1, "loss": 1, "accuracy": 2}]},
            "acc",
        ),
    ],
)
def test_a_broken_appraisal_is_named(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    folder = write_learned(tmp_path / "one")
    tree = json.loads((folder / FILE).read_text()) | change
    (folder / FILE).write_text(json.dumps(tree))
    with pytest.raises(InputError, match=FILE) as refused:
        read_learned(folder)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("file", [FILE, CURVES])
@pytest.mark.parametrize("content", ["", "{", "\0\0\0", "[]", "PAR1PAR1"])
def test_a_damaged_file_is_named(tmp_path: Path, file: str, content: str) -> None:
    folder = write_learned(tmp_path / "one")
    (folder / file).write_text(content)
    with pytest.raises(InputError, match=re.escape(file)):
        read_learned(folder)


def test_tensorboard_and_mlflow_get_each_seed(seeds: Path, tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    given = ["export", str(seeds), "--to", "tensorboard", "--out", str(tmp_path / "events")]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.output
    for seed, accuracies in ACCURACIES.items():
        events = accumulator.EventAccumulator(str(tmp_path / "events" / f"seed-{seed}"))
        events.Reload()
        found = events.Scalars("held-out/accuracy")
        assert [(e.step, e.wall_time) for e in found] == [(0, 0), (1, 2), (2, 4), (3, 6)]
        assert [e.value for e in found] == pytest.approx(accuracies)
        train = events.Scalars("train/loss")
        assert [(e.step, e.wall_time) for e in train] == [(1, 2), (2, 4), (3, 6)]
    store = tmp_path / "mlruns"
    done = CliRunner().invoke(app, ["export", str(seeds), "--to", "mlflow", "--out", str(store)])
    assert done.exit_code == 0, done.output
    runs = [path.parent for path in store.glob("*/*/meta.yaml")]
    assert {(path / "params" / "seed").read_text() for path in runs} == {"1", "2"}
    assert {(path / "tags" / "mlflow.runName").read_text() for path in runs} == {"seed-1", "seed-2"}
    lines = {(path / "metrics" / "held-out" / "accuracy").read_text() for path in runs}
    assert "0 0.1 0\n2000 0.5 1\n4000 0.9 2\n6000 0.8 3\n" in lines


def test_fairness_is_that_of_its_equations() -> None:
    found = Fairness.of([0.2, 0.4, math.nan, 0.6])
    assert found is not None
    assert found.mean == pytest.approx(0.4)
    assert found.deviation == pytest.approx(np.std([0.2, 0.4, 0.6]))
    assert (found.worst, found.worst_tenth, found.best) == pytest.approx((0.2, 0.2, 0.6))
    assert found.jain == pytest.approx(1.2**2 / (3 * 0.56))
    assert Fairness.of([math.nan]) is None
    one = Fairness.of([0.0, 1.0, 0.0, 0.0])
    assert one is not None
    assert one.jain == 0.25
    none = Fairness.of([0.0, 0.0])
    assert none is not None
    assert none.jain == 1
    many = Fairness.of(np.arange(20) / 20)
    assert many is not None
    assert many.worst_tenth == pytest.approx(0.025)


def test_recall_by_the_classes_of_a_client() -> None:
    recall = recalls(np.array([[3, 1, 0], [0, 0, 0], [2, 0, 2]]))
    assert recall.tolist() == pytest.approx([0.75, math.nan, 0.5], nan_ok=True)
    assert by_classes(recall, [(0, 1), (2, 3)]) == pytest.approx((0.75 + 1.5) / 4)
    assert by_classes(recall, [(0, 1), (1, 100)]) == 0.75
    assert math.isnan(by_classes(recall, [(1, 5), (7, 1)]))


def curve(*values: float, each_s: float = 1.0) -> pd.DataFrame:
    done = np.arange(float(len(values)))
    return pd.DataFrame({"round": done, "time_s": each_s * done, "accuracy": values})


def test_curves_on_each_other_are_named() -> None:
    groups = [
        Group("a", {1: curve(0.1, 0.5, 0.9)}),
        Group("b", {1: curve(0.1, 0.5, 0.902)}),
        Group("c", {1: curve(0.1, 0.5)}),  # as far as it goes
        Group("d", {1: curve(0.1, 0.6, 0.9)}),
        Group("e", {1: curve(0.1, 0.5, 0.9, each_s=1.1)}),
    ]
    assert coinciding(groups, "round", "accuracy") == [["a", "b", "c", "e"]]
    assert coinciding(groups, "time_s", "accuracy") == [["a", "b", "c"]]
    assert coinciding([], "round", "accuracy") == []
    assert coinciding(groups[:1], "round", "accuracy") == []


def test_improvements_have_the_first_time_of_each_accuracy() -> None:
    values = [0.2, 0.1, math.nan, 0.5, 0.5, 0.4, 0.9]
    found = improvements(curve(*values))
    assert found == [(0, 0.2), (3, 0.5), (6, 0.9)]
    for target in (0.05, 0.2, 0.3, 0.5, 0.7, 0.9):
        first = next(i for i, value in enumerate(values) if value >= target)
        assert next(at for at, value in found if value >= target) == first


def test_natural_clients_are_named_with_their_uavs(tmp_path: Path) -> None:
    named = write_learned(tmp_path / "named", natural=["writer <7>", "f0012"])
    words = Page(write_learned_report(named).read_text()).cells("setup")
    assert "NaturalclientsUAVClientSamples1writer<7>402f001220" in words
    without = write_learned(tmp_path / "without")
    assert "Natural clients" not in write_learned_report(without).read_text()
