# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A resumed run has the data, weights and plug-ins with which it began, or is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from packages import importable, write_package
from torchvision.io import write_png

import orchestrator as tb
from orchestrator.emulated.inputs import inputs_of
from orchestrator.emulated.options import RunOptions
from orchestrator.emulated.run import run
from orchestrator.records.checkpoint import Checkpoint
from orchestrator.scenario.channel import open_source
from testbed.core.errors import InputError
from workloads.costs.lookup import profile_for
from workloads.learning.cached import backbone_file
from workloads.models.config import ModelConfig, plugin_model

CODE = """
import json
from pathlib import Path
from torch import nn
from orchestrator import Chain, Images

def read(classes, config):
    width = json.loads(Path(config).read_text())["width"]
    net = nn.Module()
    net.stem, net.block = nn.Linear(64, width), nn.Linear(width, width)
    net.head = nn.Linear(width, classes)
    embed = lambda x: net.stem(x[:, 0, :8, :8].flatten(1))
    finish = lambda x: net.head(x)
    return Chain(net, Images(16), embed, [lambda x: net.block(x)], finish, head="head")
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    torch.set_num_threads(1)


def scenario(**more: Any) -> tb.Scenario:
    keys = {"workload.model": "vit_nano_patch8_64", "workload.classes": 3, "rounds": 1}
    return tb.load("quickstart", keys | {k.replace("__", "."): v for k, v in more.items()})


def resumes(folder: Path, began: dict[str, dict[str, str]], now: dict[str, dict[str, str]]) -> None:
    """Check the inputs of a run after its first round."""
    folder.mkdir()
    Checkpoint(folder).check_inputs(began)
    (folder / "checkpoint" / "round-000000.npz").write_bytes(b"")
    Checkpoint(folder).check_inputs(now)


def test_other_data_are_refused_by_the_name_of_what_changed(tmp_path: Path) -> None:
    for name in "bcd":
        (tmp_path / "data" / name).mkdir(parents=True)
        for index in range(10):
            shade = torch.full((3, 16, 16), 9 * index, dtype=torch.uint8)
            write_png(shade, str(tmp_path / "data" / name / f"{index}.png"))
    made = scenario(workload__data__source=str(tmp_path / "data"))
    before = inputs_of(made)
    assert before.data.startswith("3 classes (b, c, d), 27 training samples, 3 held out")
    assert before.remarks == []
    resumes(tmp_path / "same", before.digests, inputs_of(made).digests)
    (tmp_path / "data" / "c").rename(tmp_path / "data" / "a")
    (tmp_path / "data" / "d" / "0.png").write_bytes(
        (tmp_path / "data" / "d" / "1.png").read_bytes()
    )
    says = r"^`resume`: workload\.data\.source: since the run began, a/ is new, c/ is gone, d/ has"
    with pytest.raises(InputError, match=says):
        resumes(tmp_path / "other", before.digests, inputs_of(made).digests)


def test_other_weights_are_refused(tmp_path: Path) -> None:
    model = ModelConfig("vit_nano_patch8_64", 3)
    file = tmp_path / "weights.safetensors"
    tensors = safetensors.torch.load_file(backbone_file(model, tmp_path / "cache"))
    safetensors.torch.save_file(tensors, file)
    made = scenario(workload__weights=str(file))
    before = inputs_of(made)
    assert before.remarks == [
        f"workload.weights: {file} has no head head; a new head is drawn by seed"
    ]
    tensors["norm.bias"] += 1
    safetensors.torch.save_file(tensors, file)
    with pytest.raises(InputError, match=rf"workload\.weights: since .*{file} has changed"):
        resumes(tmp_path / "run", before.digests, inputs_of(made).digests)


def test_a_run_compares_its_inputs_before_anything_starts(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    Checkpoint(folder).check_inputs({"workload.weights": {"w": "1"}})
    (folder / "checkpoint" / "round-000000.npz").write_bytes(b"")
    made = scenario(emulation__dilation=1)
    with (
        open_source(made, None) as source,
        pytest.raises(InputError, match=r"^`resume`: workload\.weights: since .*, w is gone$"),
    ):
        run(made, source, folder, RunOptions(keep=True))
    assert [path.name for path in folder.iterdir()] == ["checkpoint"]


def test_a_plugin_and_the_files_of_its_parameters_are_part_of_every_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages, config = tmp_path / "packages", tmp_path / "width.json"
    write_package(packages, "reader", CODE, "[testbed.models]\nreader = reader:read\n")
    with importable(packages, "reader", monkeypatch):
        config.write_text(json.dumps({"width": 8}))
        model = ModelConfig("reader", 3, rank=2, parameters={"config": str(config)})
        made = scenario(workload__model="reader", workload__parameters={"config": str(config)})
        costs, file = profile_for(model), backbone_file(model, tmp_path / "cache")
        before, key = inputs_of(made).digests, plugin_model("reader", model.parameters)
        assert key == plugin_model("reader", model.parameters)
        config.write_text(json.dumps({"width": 32}))
        assert profile_for(model).smashed_bytes == tuple(4 * n for n in costs.smashed_bytes)
        assert backbone_file(model, tmp_path / "cache") != file
        with pytest.raises(
            InputError, match=rf"workload\.parameters: since .*{config} has changed"
        ):
            resumes(tmp_path / "one", before, inputs_of(made).digests)
        config.write_text(json.dumps({"width": 8}))
        assert profile_for(model) == costs
        (packages / "reader.py").write_text(CODE + "# new\n")
        assert plugin_model("reader", model.parameters) != key
        with pytest.raises(InputError, match=r"workload\.model: since .*reader has changed"):
            resumes(tmp_path / "two", before, inputs_of(made).digests)


def test_folders_in_parameters_are_found_at_any_depth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "packages"
    write_package(packages, "reader", CODE, "[testbed.models]\nreader = reader:read\n")
    folder = tmp_path / "model"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "config.json").write_text("{}")
    with importable(packages, "reader", monkeypatch):
        given = {"a": [{"folder": str(folder)}, 3, None], "b": "no file"}
        before = plugin_model("reader", given)
        assert list(before["files"]) == [str(folder)]
        (folder / "deep" / "config.json").write_text("{ }")
        changed = plugin_model("reader", given)
        assert changed != before
        (folder / "deep" / "config.json").rename(folder / "config.json")
        assert plugin_model("reader", given) not in (before, changed)


def test_a_run_without_rounds_begins_anew_with_other_inputs(tmp_path: Path) -> None:
    for digests in ({"workload.weights": {"a": "1"}}, {"workload.weights": {"a": "2"}}):
        Checkpoint(tmp_path).check_inputs(digests)
    assert np.array_equal(
        list(json.loads((tmp_path / "checkpoint" / "inputs.json").read_text()).values()),
        [{"a": "2"}],
    )


@pytest.mark.parametrize("sizes", [1, [2, 1, 2]])
def test_a_batch_of_one_with_batch_normalisation_is_refused_before_nodes_start(sizes: Any) -> None:
    keys = {"workload__model": "resnet18", "workload__image_size": 32}
    small = scenario(**keys, workload__batch_size=sizes)
    with pytest.raises(InputError, match=r"^workload.batch_size: must be 2 or more, because "):
        inputs_of(small)
