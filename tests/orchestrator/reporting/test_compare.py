# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Runs side by side, and what they leave for others."""

import html
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import safetensors.torch
import torch
import warm
from synthetic_run import make_run, make_session
from timm.models.swin_transformer import SwinTransformer
from typer.testing import CliRunner

import orchestrator as tb
from orchestrator.cli.main import app
from orchestrator.emulated.learning import evaluates_after
from orchestrator.emulated.run import passes_in_short
from orchestrator.records.comparison import compare, label, precision_costs
from orchestrator.records.reader import read_run
from orchestrator.records.results import Result, read_results, result_of
from orchestrator.reporting.charts import training_curve
from orchestrator.reporting.comparison import write_comparison
from orchestrator.scenario.loading import validate
from testbed.core.errors import InputError
from testbed.system.folders import cache_folder
from workloads.learning.backbone import load_model
from workloads.learning.cached import backbone_file
from workloads.learning.model import initial_trainables
from workloads.learning.settings import ModelConfig
from workloads.models.families import OWN_MODELS


def a_run(folder: Path, losses: list[float], **workload: object) -> Path:
    """A run of two rounds; `losses`: of training in each, of evaluation before and after each."""
    make_run(folder, uavs=2, rounds=2)
    tree = json.loads((folder / "scenario.json").read_text())
    tree["paradigm"] = workload.pop("paradigm", "cpsfl")
    tree["workload"] |= workload
    (folder / "scenario.json").write_text(json.dumps(tree))
    train, held_out = losses[:2], losses[2:]
    rows = [
        (round_, "train", k, 1, 10.0 * round_ + k, loss + (k - 1.5) / 5, 0.5, 0.1, 0.3)
        for round_, loss in enumerate(train)
        for k in (1, 2)
    ]
    nothing = float("nan")
    rows += [
        (after - 1, "held-out", 0, 0, 10.0 * after, loss, 1 - loss / 10, nothing, nothing)
        for after, loss in enumerate(held_out)
    ]
    columns = ["round", "data", "client", "iteration", "time_s", "loss", "accuracy"]
    table = pd.DataFrame(rows, columns=[*columns, "smashed_error", "gradient_error"])
    table.to_parquet(folder / "learning.parquet")
    return folder


def data_of(page: Path) -> Any:
    (data,) = (part.split("</script>")[0] for part in page.read_text().split('id="data">')[1:])
    return json.loads(data)


def series_of(page: Path, measure: str) -> Any:
    """The series of a learning chart, from the lowest layer."""
    return data_of(page)["charts"][measure]["series"]


def results(*folders: Path) -> list[Result]:
    return [result_of(read_run(folder)) for folder in folders]


def test_each_run_is_a_row_and_a_curve(tmp_path: Path) -> None:
    folders = [
        a_run(tmp_path / "one", [3.0, 2.0, 4.0, 3.5, 2.5]),
        a_run(tmp_path / "two", [3.0, 1.0, 4.0, 3.0, 1.5], paradigm="pipesfl"),
    ]
    page = tmp_path / "page.html"
    comparison = write_comparison(folders, page)
    assert comparison.labels == ["CPSFL", "PipeSFL"]
    assert set(comparison.differing) == {"paradigm"}
    table = comparison.table.set_index("run")
    assert table["train_loss"].tolist() == pytest.approx([2.0, 1.0])
    assert table["held_out_loss"].tolist() == pytest.approx([2.5, 1.5])
    assert table["held_out_accuracy"].tolist() == pytest.approx([0.75, 0.85])
    assert table["gradient_error"].tolist() == pytest.approx([0.3, 0.3])
    measured = read_run(folders[0]).measured.to_json()
    smashed = [s["bytes"] for s in measured[0]["steps"] if s["step"] == "CA"]
    assert table["batch_bytes"].tolist() == pytest.approx(2 * [sum(smashed) / len(smashed)])
    series = series_of(page, "loss")
    labels = ["CPSFL, training", "PipeSFL, training", "CPSFL", "PipeSFL"]
    assert [each["label"] for each in series] == labels
    assert series[1]["x"] == {"time_s": [1.5, 11.5]}
    assert series[1]["y"] == [3.0, 1.0]
    assert series[3]["y"] == [4.0, 3.0, 1.5]
    assert [each["marker"] for each in series] == ["", "", "o", "o"]
    assert series_of(page, "accuracy")[0]["y"] == [50.0, 50.0]
    text = page.read_text()
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    assert label(results(folders[0], folders[0])) == ["CPSFL (one)", "CPSFL (one) 2"]


def test_latencies_stand_against_the_first_and_against_their_predictions(tmp_path: Path) -> None:
    folders = [make_run(tmp_path / "a"), make_run(tmp_path / "b", rounds=3, seed=2)]
    comparison = compare(results(*folders))
    one, two = (read_run(folder) for folder in folders)
    first, second = comparison.table.to_dict("records")
    took = [round_.latency_s for round_ in two.measured]
    assert (second["rounds"], second["execution"]) == (3, "measured")
    assert second["latency_s"] == pytest.approx(sum(took) / 3)
    assert (second["latency_low_s"], second["latency_high_s"]) == (min(took), max(took))
    # Of three rounds, the first has two.
    common = sum(took[:2]) / sum(round_.latency_s for round_ in one.measured)
    assert second["against_first"] == pytest.approx(common - 1)
    assert first["against_first"] == 0
    predicted = [round_.latency_s for round_ in two.predicted_wire]
    assert second["error"] == pytest.approx(sum(took) / sum(predicted) - 1)
    assert comparison.rounds.query("run == @comparison.labels[1]")["latency_s"].tolist() == took
    budget = pd.read_parquet(folders[1] / "budget.parquet")
    framing = budget[budget["part"] == "framing"]["seconds"].mean()
    assert comparison.budgets["framing"].iloc[1] == pytest.approx(framing)
    spans = two.measured.frame().query("step == 'CA'")
    assert comparison.steps["CA"].iloc[1] == pytest.approx((spans.end_s - spans.start_s).mean())


def test_the_page_draws_all_on_one_time_axis(tmp_path: Path) -> None:
    folders = [make_run(tmp_path / "a"), make_run(tmp_path / "b", seed=2)]
    write_comparison(folders, page := tmp_path / "page.html")
    for entry, folder in zip(data_of(page)["timelines"], folders, strict=True):
        measured = read_run(folder).measured
        assert entry["rounds"] == [0, 1]
        assert entry["latency_s"] == pytest.approx([r.latency_s for r in measured])
        spans = pd.DataFrame({k: v for k, v in entry["spans"].items() if k != "total"})
        ends = spans.groupby("round")["end_s"].max()
        assert ends.tolist() == pytest.approx(entry["latency_s"], abs=1e-7)
        assert spans.groupby("round")["start_s"].min().tolist() == [0, 0]


def test_a_run_that_measured_nothing_stands_with_its_prediction(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    for name in ("measured", "learning"):
        (folder / f"{name}.parquet").unlink()
    comparison = write_comparison([folder], page := tmp_path / "page.html")
    (row,) = comparison.to_json()
    assert row["execution"] == "predicted, frames"
    assert row["latency_s"] == pytest.approx(
        sum(r.latency_s for r in read_run(folder).predicted_wire) / 2
    )
    assert (row["error"], row["budget_s"], row["train_loss"]) == (None, None, None)
    assert comparison.lacks == [
        "run: measured.parquet is not in the run directory",
        "run: is compared as predicted, frames",
    ]
    text = page.read_text()
    assert all(line in text for line in comparison.lacks)
    assert 'id="budget"' not in text
    assert 'id="curves"' not in text
    (folder / "rounds.parquet").unlink()
    with pytest.raises(InputError, match="run: has no measured or predicted round"):
        write_comparison([folder], page)


def test_json_of_predict_and_run_is_as_good(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path / "run"))
    scenario = run.scenario.model_dump(mode="json")
    predicted = tmp_path / "predicted.json"
    predicted.write_text(json.dumps({"scenario": scenario, "rounds": run.predicted.to_json()}))
    emulated = tmp_path / "emulated.json"
    kinds = ("predicted", "predicted_wire", "measured")
    budget = [{"round": k, "parts": dict(row)} for k, row in run.budget.iterrows()]
    tree = {kind: getattr(run, kind).to_json() for kind in kinds}
    tree |= {"error_budget": budget, "valid": True}
    emulated.write_text(json.dumps({"scenario": scenario, **tree}))
    files = [read_results(path)[0] for path in (predicted, emulated)]
    (folder,) = read_results(tmp_path / "run")
    assert isinstance(folder, Result)
    timelines = [run.predicted, run.measured, run.measured]
    for result, timeline in zip([*files, folder], timelines, strict=True):
        assert isinstance(result, Result)
        assert result.timeline.to_json() == timeline.to_json()
    comparison = compare([*files, folder])
    assert comparison.budgets.iloc[0].tolist() == pytest.approx(comparison.budgets.iloc[1].tolist())
    assert comparison.table["execution"].tolist() == ["predicted, payload", "measured", "measured"]
    assert comparison.table["valid"].tolist() == [None, True, True]
    for text, says in (
        ("[]", "must be a JSON object"),
        ("{}", "lacks `scenario`"),
        (json.dumps({"scenario": scenario}), "has no round"),
        (json.dumps({"scenario": scenario, "rounds": [{"round": -1}]}), r"rounds\.0\.round"),
    ):
        predicted.write_text(text)
        with pytest.raises(InputError, match=says):
            read_results(predicted)
    many = json.loads(emulated.read_text())
    many["measured"][0]["steps"][0]["client"] = 4
    emulated.write_text(json.dumps(many))
    with pytest.raises(InputError, match="round 0: has more clients than the scenario"):
        read_results(emulated)


def test_a_cross_check_is_a_result_an_execution(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path / "run"))
    lines = {"engine, payload": run.predicted, "kernel": run.measured}
    check = {
        "scenario": run.scenario.model_dump(mode="json"),
        "executions": {name: line.to_json() for name, line in lines.items()},
        "kernel_complaints": ["late"],
    }
    (tmp_path / "check").mkdir()
    (tmp_path / "check" / "cross-check.json").write_text(json.dumps(check))
    comparison = write_comparison([tmp_path / "check"], tmp_path / "page.html")
    assert comparison.labels == ["CPSFL, engine, payload", "CPSFL, kernel"]
    assert comparison.table["valid"].tolist() == [None, False]
    assert comparison.table["latency_s"].tolist() == pytest.approx(
        [line.summary()["latency_s"].mean() for line in lines.values()]
    )


def test_results_lead_to_their_pages(tmp_path: Path) -> None:
    with_page, without = make_run(tmp_path / "runs" / "a run"), make_run(tmp_path / "runs" / "b")
    (with_page / "report.html").touch()
    (tmp_path / "out").mkdir()
    write_comparison([with_page, without], page := tmp_path / "out" / "page.html")
    links = re.findall(r'<a href="(\.\./[^"]*)">([^<]*)</a>', page.read_text())
    assert [link for link, _ in links] == ["../runs/a%20run/report.html"]


def test_sessions_stand_beside_runs(tmp_path: Path) -> None:
    given = [make_session(tmp_path / "s", 50_000), make_run(tmp_path / "run")]
    given.append(make_session(tmp_path / "t", 25_000))
    comparison = write_comparison(given, page := tmp_path / "page.html")
    up = comparison.sessions.query("direction == 'up'").set_index("run")
    # 3 links · 50 kB in 0.1 s.
    assert up["carried_mbps"].tolist() == pytest.approx([12, 6])
    assert up["share"].tolist() == pytest.approx([0.5, 0.25])
    assert up["most_queued_bytes"].tolist() == [210, 210]
    curves = data_of(page)["sessions"]
    assert curves[1]["up"] == {"time_s": [0.0, 0.1, 0.2, 0.3, 0.4], "mbps": pytest.approx([6] * 5)}
    objects = comparison.to_json()
    assert [each["execution"] for each in objects] == ["measured", *["session"] * 4]
    json.dumps(objects, allow_nan=False)
    (given[0] / "manifest.json").unlink()
    with pytest.raises(InputError, match=r"has ended: manifest\.json is missing"):
        write_comparison(given, page)


def test_the_command_prints_tables_and_writes_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path / "one")
    (make_run(tmp_path / "two", seed=2) / "budget.parquet").unlink()
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["compare", "one", "two", "--json", "c.json"])
    assert done.exit_code == 0, done.stderr
    rows = json.loads((tmp_path / "c.json").read_text())
    for row in rows:
        line = next(text for text in done.stdout.splitlines() if text.startswith(row["run"]))
        assert f"{row['latency_s']:.3f}" in line
        assert f"{row['error'] * 100:.3f}" in line
    assert f"{rows[0]['budget_s']['framing'] * 1e3:.3f}" in done.stdout
    assert done.stderr == "testbed: two: budget.parquet is not in the run directory\n"
    assert (tmp_path / "comparison.html").is_file()
    refused = CliRunner().invoke(app, ["compare", "one", "three", "--out", "d.html"])
    assert str(refused.exception).startswith("three: not the directory of a run")
    assert not (tmp_path / "d.html").exists()


def test_python_has_the_same(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    run = tb.read_run(folder)
    here = tb.comparison([run, run.predicted, folder], out=tmp_path / "page.html")
    assert here.table["execution"].tolist() == ["measured", "given", "measured"]
    assert here.table["latency_s"].tolist() == pytest.approx(
        [line.summary()["latency_s"].mean() for line in (run.measured, run.predicted, run.measured)]
    )
    assert here.differing == {}
    assert (tmp_path / "page.html").is_file()
    named = tb.comparison({"<ours>": run, "theirs": run.predicted}, out=tmp_path / "page.html")
    assert named.labels == named.steps.index.tolist() == ["<ours>", "theirs"]
    assert "<ours>" not in (tmp_path / "page.html").read_text()
    assert "theirs" in named._repr_html_()
    with pytest.raises(InputError, match="`results`: a timeline has no round"):
        tb.comparison([tb.Timeline([])])


def test_a_loss_that_diverged_leaves_a_gap(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "one", [3.0, float("inf"), 4.0, float("nan"), 2.5])
    write_comparison([folder], page := tmp_path / "page.html")
    train, held_out = series_of(page, "loss")
    assert train["y"] == [3.0, None]
    # What is not finite is no evaluation: the value before it holds.
    assert (held_out["x"]["round"], held_out["y"]) == ([0, 2], [4.0, 2.5])


def test_precision_costs_what_else_equal_runs_are_apart(tmp_path: Path) -> None:
    runs = results(
        a_run(tmp_path / "exact", [3.0, 2.0, 4.0, 3.5, 2.5]),
        a_run(tmp_path / "low", [3.0, 2.1, 4.0, 3.6, 2.8], wire_dtype="int8"),
        a_run(tmp_path / "other", [9.0, 9.0, 9.0], wire_dtype="int8", split=3),
        a_run(tmp_path / "half", [3.0, 1.9], dtype="bfloat16", wire_error=True),
    )
    sparse = a_run(
        tmp_path / "sparse", [3.0, 2.0], wire_dtype="top-k", wire_parameters={"share": 0.3}
    )
    (cost,) = precision_costs([runs[0], *results(sparse)])
    assert cost["against"] == "CPSFL, wire_dtype float32"
    assert cost["run"] == "CPSFL, wire_dtype top-k, share 0.3"
    costs = precision_costs(runs)
    assert [cost["against"] for cost in costs] == [label(runs)[0]] * 2
    assert costs[0]["train_loss"] == pytest.approx(0.1)
    assert costs[0]["held_out_loss"] == pytest.approx(0.3)
    assert costs[0]["held_out_accuracy"] == pytest.approx(-0.03)
    assert costs[1]["train_loss"] == pytest.approx(-0.1)
    assert pd.isna(costs[1]["held_out_loss"])


def test_names_of_many_differences_are_those_of_folders(tmp_path: Path) -> None:
    folders = [a_run(tmp_path / "a", [3.0, 2.0]), a_run(tmp_path / "b", [3.0, 2.0], split=3)]
    assert label(results(*folders)) == ["CPSFL, split 2", "CPSFL, split 3"]
    changes = {"batch_size": 4, "classes": 10, "lora_rank": 4}
    folders.append(a_run(tmp_path / "c", [3.0, 2.0], split=3, **changes))
    assert label(results(*folders)) == ["CPSFL, a", "CPSFL, b", "CPSFL, c"]


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    (tmp_path / "campaign").mkdir()
    (tmp_path / "campaign" / "campaign.yaml").touch()
    for name, says in (("none", "not the directory of a run"), ("campaign", "is a campaign")):
        with pytest.raises(InputError, match=says):
            write_comparison([tmp_path / name], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
    with pytest.raises(InputError, match="nothing was given"):
        compare([])


def test_when_the_model_is_evaluated() -> None:
    def after(rounds: int, **workload: object) -> list[int]:
        tree = {"uavs": {"tx_power_w": [1]}, "rounds": rounds, "workload": workload}
        scenario = validate(tree, "test")
        return [n for n in range(rounds + 1) if evaluates_after(scenario, n)]

    assert after(5, evaluate_every=2) == [0, 2, 4, 5]
    assert after(3, evaluate_every=1) == [0, 1, 2, 3]
    assert after(3) == []
    assert after(3, evaluate_every=1, compute="none") == []
    with pytest.raises(InputError, match="clients_per_pass: must be 1"):
        after(1, clients_per_pass=2, server_adapters="shared")


def test_the_manifest_says_how_the_server_computed() -> None:
    noted = [
        {"split": 2, "passes": [1, 2], "pass_times": {"clients": 2}},
        {"split": 3, "passes": [3], "pass_times": None},
        {"split": 2, "passes": [3], "pass_times": {"clients": 2}},
    ]
    assert passes_in_short(noted) == [
        {"split": 2, "batches": 6, "passes": 3, "measured": {"clients": 2}},
        {"split": 3, "batches": 3, "passes": 1, "measured": None},
    ]


def test_a_run_exports_to_what_peft_loads(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    run = make_run(tmp_path / "run")
    model = ModelConfig("swin_nano_patch4_window4_64", classes=6, rank=4, alpha=8.0, seed=3)
    tree = json.loads((run / "scenario.json").read_text())
    tree["seed"] = model.seed
    tree["workload"] |= {"model": model.model, "classes": 6, "lora_rank": 4, "lora_alpha": 8.0}
    (run / "scenario.json").write_text(json.dumps(tree))
    export = partial(warm.run, "export", run, "--out", tmp_path / "p", learns=True)
    nothing = export()
    assert nothing.returncode == 2
    assert "has no trained model" in nothing.stderr

    ours = load_model(model, backbone_file(model, cache_folder()))
    vector = initial_trainables(ours.layout, 5)
    vector += 0.05 * torch.randn(vector.shape, generator=torch.Generator().manual_seed(1))
    state = ours.layout.views(vector)
    safetensors.torch.save_file(
        {name: tensor.contiguous() for name, tensor in state.items()}, run / "adapters.safetensors"
    )
    done = export()
    assert done.returncode == 0, done.stderr
    net = SwinTransformer(**OWN_MODELS[model.model], num_classes=model.classes).eval()
    frozen = done.stdout.split("names:")[1].replace("\n", "").strip()
    net.load_state_dict(safetensors.torch.load_file(frozen), strict=False)
    adapted = peft.PeftModel.from_pretrained(net, tmp_path / "p").eval()
    images = torch.randn(3, 3, 64, 64, generator=torch.Generator().manual_seed(2))
    ours.attach(state)
    with torch.no_grad():
        logits = ours.server(ours.client(images, 2), 2)
        assert (adapted(images) - logits).abs().max() < 1e-5
        with adapted.disable_adapter():
            assert (adapted(images) - logits).abs().max() > 1e-3
    again = export()
    assert again.returncode == 2
    assert "not an empty folder" in again.stderr


def test_a_training_curve_is_a_mean_of_what_went_on_at_a_time() -> None:
    """Client 1 is four times as fast: in asynchronous rounds its iterations are other moments."""
    batches = pd.DataFrame(
        {
            "client": [1, 1, 1, 1, 2, 1, 1, 2],
            "round": 0,
            "iteration": [1, 2, 3, 4, 1, 5, 6, 2],
            "time_s": [1.0, 2.0, 3.0, 4.0, 4.5, 5.0, 6.0, 9.0],
            "loss": [8.0, 6.0, 4.0, 2.0, 6.0, 2.0, 2.0, 4.0],
            "accuracy": 0.5,
        }
    )
    in_turn = training_curve(batches.sample(frac=1, random_state=1), "asfl-pp")
    assert in_turn["time_s"].tolist() == [1.5, 3.5, 4.75, 7.5]
    assert in_turn["loss"].tolist() == [7.0, 3.0, 4.0, 3.0]
    in_step = training_curve(batches, "sfl-pp")
    assert in_step["loss"].tolist() == [7.0, 4.0, 2.0, 2.0, 5.0, 2.0]
    assert in_step["time_s"].is_monotonic_increasing
    assert len(training_curve(batches, "nobody's")) == len(in_step)


def test_the_page_names_the_radio_of_each_result(tmp_path: Path) -> None:
    folders = {
        name: make_run(tmp_path / name, rounds=1, lte={} if name == "lte" else None)
        for name in ("lte", "one", "two")
    }
    page = tmp_path / "page.html"

    def named(*names: str) -> list[str]:
        tb.comparison({name: folders[name] for name in names}, out=page)
        found = re.findall('<p class="radio">(.*?)</p>', page.read_text())
        return [html.unescape(line) for line in found]

    assert named("one", "two") == ["Radio: Shannon's rates, FDMA."]
    assert named("lte", "one", "two") == [
        "Radio of lte: LTE, 100 resource blocks, shared equally, 64QAM, 1 layer.",
        "Radio of one; two: Shannon's rates, FDMA.",
    ]


def test_a_file_says_that_its_rounds_are_on_a_trace_of_rates(tmp_path: Path) -> None:
    words = ["uavs.tx_power_w=[1,0.4,0.1]", "workload.compute=none"]
    rates = {"uplink_bps": np.full((3, 900), 2e7), "downlink_bps": np.full((3, 900), 2e7)}
    np.savez(tmp_path / "t.npz", **rates, slot_s=0.1, downlink_is="cell")
    gains = {"gain": np.full((3, 900), 1e-9)}
    np.savez(tmp_path / "g.npz", **gains, slot_s=0.1)
    (tmp_path / "s.yaml").write_text("{}")
    sets = [each for word in words for each in ("--set", word)]
    for trace, radio in (("t", "rates of a trace"), ("g", "Shannon's rates, FDMA")):
        file = tmp_path / f"{trace}.json"
        given = ["--rounds", "1", "--trace", tmp_path / f"{trace}.npz", "--json", file]
        done = warm.run("predict", tmp_path / "s.yaml", *sets, *given)
        assert done.returncode == 0, done.stderr
        assert ("trace_has_rates" in json.loads(file.read_text())) == (trace == "t")
        (result,) = read_results(file)
        assert isinstance(result, Result)
        assert result.radio == radio


def with_curve(folder: Path, seed: int, *accuracies: float, **workload: object) -> Path:
    """A run of that seed with these evaluations."""
    a_run(folder, [1.0, 1.0, *(10 - 10 * value for value in accuracies)], **workload)
    tree = json.loads((folder / "scenario.json").read_text())
    (folder / "scenario.json").write_text(json.dumps(tree | {"seed": seed}))
    return folder


def test_a_target_names_who_reaches_it_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in (1, 2):
        with_curve(Path(f"a{seed}"), seed, 0.1, 0.85, 0.9)
        with_curve(Path(f"b{seed}"), seed, 0.1, 0.5, 0.8 if seed == 1 else 0.7, paradigm="pipesfl")
    words = ["a1", "b1", "a2", "b2", "--target", "accuracy=0.8", "--json", "c.json"]
    done = CliRunner().invoke(app, ["compare", *words, "--figures", "drawn"])
    assert done.exit_code == 0, done.output
    answer = (
        "CPSFL reaches an accuracy of 80 % first, after 10 s (over 2 seeds), before PipeSFL (after "
        "20 s); in the seed in which both reach it, CPSFL is 50 % earlier (10 s against 20 s). "
        "PipeSFL reaches it in 1 of 2 seeds, after 20 s."
    )
    assert " ".join(done.stdout.split()).startswith(answer)  # A narrow terminal wraps it.
    *rows, last = json.loads(Path("c.json").read_text())
    assert [row["time_to_accuracy"] for row in rows] == [10, 20, 10, None]
    assert [row["accuracy"] for row in rows] == pytest.approx([0.9, 0.8, 0.9, 0.7])
    assert rows[0]["energy_to_accuracy"] > 0
    assert last["execution"] == "target"
    assert last["target"] == {"accuracy": 0.8}
    assert last["answer"] == answer
    assert [(own["name"], own["reached"], own["seeds"]) for own in last["groups"]] == [
        *(("CPSFL", 2, 2), ("PipeSFL", 1, 2))
    ]
    page = Path("comparison.html")
    assert answer in html.unescape(page.read_text())
    assert "Reaches an accuracy of 80 %" in page.read_text()
    own = [each for each in series_of(page, "accuracy") if each["label"] == "PipeSFL"]
    assert [each["kind"] for each in own] == ["band", "line", "line", "line"]
    spread, *seeds, mean = own
    assert (spread["low"], spread["high"]) == ([10.0, 50.0, 70.0], [10.0, 50.0, 80.0])
    assert mean["y"] == [10.0, 50.0, 75.0]
    assert mean["x"]["round"] == [0, 1, 2]
    assert mean["x"]["energy_j"][0] == mean["x"]["bytes"][0] == 0
    assert mean["marker"]
    assert [each["faint"] for each in seeds] == [True, True]
    drawn = {path.name for path in Path("drawn").iterdir()}
    assert drawn == {
        f"{y}-{x}.{kind}"
        for y in ("accuracy", "loss")
        for x in ("time", "round", "energy", "bytes")
        for kind in ("png", "pdf")
    }


def test_without_evaluations_no_target_is_reached(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    (tmp_path / "run" / "learning.parquet").unlink(missing_ok=True)
    page = tmp_path / "page.html"
    words = ["compare", str(tmp_path / "run"), "--target", "loss=1", "--out", str(page)]
    refused = CliRunner().invoke(app, words)
    assert str(refused.exception).startswith("`target`: no result was evaluated on held-out data")
    assert not page.exists()


def test_runs_of_one_seed_and_kind_stay_apart(tmp_path: Path) -> None:
    one, two = (with_curve(tmp_path / name, 1, 0.1, 0.9, 0.9) for name in "ab")
    groups = compare(results(one, two)).groups
    assert [len(group.curves) for group in groups] == [1, 1]
    assert groups[0].name != groups[1].name
