# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Runs side by side, and what they leave for others."""

import json
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import safetensors.torch
import torch
import warm
from synthetic_run import make_run
from timm.models.swin_transformer import SwinTransformer

from orchestrator.emulation.learning import evaluates_after, passes_in_short
from orchestrator.reporting.comparison import write_comparison
from orchestrator.runs.comparison import compare, differing, label, precision_costs
from orchestrator.runs.reader import read_run
from orchestrator.scenario.loading import validate
from testbed.core.errors import InputError
from testbed.system.folders import cache_folder
from workloads.learning.backbone import backbone_file, load_model
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


def test_each_run_is_a_row_and_a_curve(tmp_path: Path) -> None:
    folders = [
        a_run(tmp_path / "one", [3.0, 2.0, 4.0, 3.5, 2.5]),
        a_run(tmp_path / "two", [3.0, 1.0, 4.0, 3.0, 1.5], paradigm="pipesfl"),
    ]
    runs = [read_run(folder) for folder in folders]
    assert label(runs) == ["CPSFL", "PipeSFL"]
    assert set(differing(runs)) == {"paradigm"}
    table = compare(runs).set_index("run")
    assert table["train_loss"].tolist() == pytest.approx([2.0, 1.0])
    assert table["held_out_loss"].tolist() == pytest.approx([2.5, 1.5])
    assert table["held_out_accuracy"].tolist() == pytest.approx([0.75, 0.85])
    assert table["gradient_error"].tolist() == pytest.approx([0.3, 0.3])
    smashed = [s["bytes"] for s in runs[0].measured.to_json()[0]["steps"] if s["step"] == "CA"]
    assert table["batch_bytes"].tolist() == pytest.approx(2 * [sum(smashed) / len(smashed)])
    page = tmp_path / "page.html"
    write_comparison(folders, page)
    text = page.read_text()
    (data,) = (part.split("</script>")[0] for part in text.split('id="data">')[1:])
    curves = json.loads(data)["curves"]
    assert [curve["label"] for curve in curves] == ["CPSFL", "PipeSFL"]
    assert curves[1]["train"] == {"time_s": [1.5, 11.5], "loss": [3.0, 1.0], "accuracy": [0.5] * 2}
    assert curves[1]["held_out"]["loss"] == [4.0, 3.0, 1.5]
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    assert label([runs[0], runs[0]])[0] == "CPSFL (one)"


def test_a_loss_that_diverged_leaves_a_gap(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "one", [3.0, float("inf"), 4.0, float("nan"), 2.5])
    write_comparison([folder], page := tmp_path / "page.html")
    (data,) = (part.split("</script>")[0] for part in page.read_text().split('id="data">')[1:])
    (curve,) = json.loads(data)["curves"]
    assert curve["train"]["loss"] == [3.0, None]
    assert curve["held_out"]["loss"] == [4.0, None, 2.5]


def test_precision_costs_what_else_equal_runs_are_apart(tmp_path: Path) -> None:
    runs = [
        read_run(a_run(tmp_path / "exact", [3.0, 2.0, 4.0, 3.5, 2.5])),
        read_run(a_run(tmp_path / "low", [3.0, 2.1, 4.0, 3.6, 2.8], wire_dtype="int8")),
        read_run(a_run(tmp_path / "other", [9.0, 9.0, 9.0], wire_dtype="int8", split=3)),
        read_run(a_run(tmp_path / "half", [3.0, 1.9], dtype="bfloat16", wire_error=True)),
    ]
    sparse = a_run(
        tmp_path / "sparse", [3.0, 2.0], wire_dtype="top-k", wire_parameters={"share": 0.3}
    )
    (cost,) = precision_costs([runs[0], read_run(sparse)])
    assert cost["against"] == "CPSFL, wire_dtype float32"
    assert cost["run"] == "CPSFL, wire_dtype top-k, share 0.3"
    costs = precision_costs(runs)
    assert [cost["against"] for cost in costs] == [label(runs)[0]] * 2
    assert costs[0]["train_loss"] == pytest.approx(0.1)
    assert costs[0]["held_out_loss"] == pytest.approx(0.3)
    assert costs[0]["held_out_accuracy"] == pytest.approx(-0.03)
    assert costs[1]["train_loss"] == pytest.approx(-0.1)
    assert pd.isna(costs[1]["held_out_loss"])


def test_runs_that_learned_nothing_are_refused(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    (folder / "learning.parquet").unlink()
    with pytest.raises(InputError, match="learned anything"):
        write_comparison([folder], tmp_path / "page.html")
    with pytest.raises(InputError, match="not the directory of a run"):
        write_comparison([tmp_path / "none"], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


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
    assert "nothing was trained" in nothing.stderr

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
