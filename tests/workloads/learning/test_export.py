# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""timm, transformers and peft load what is exported, and compute the same logits."""

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import timm
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

import orchestrator as tb
from orchestrator.cli.main import app
from orchestrator.emulated.trajectory import learn_into
from orchestrator.records.learned import BEST, STATE
from orchestrator.scenario.profiles import model_of
from testbed.core.errors import InputError
from testbed.system.folders import cache_folder
from workloads.learning.backbone import load_model
from workloads.learning.cached import backbone_file
from workloads.learning.export import BASE, export_peft, export_weights
from workloads.learning.learner import own_tensors
from workloads.learning.model import SplitModel, initial_trainables
from workloads.learning.settings import ModelConfig
from workloads.models.families import OWN_MODELS
from workloads.models.language import language_model

SMALL = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "vocab_size": 64}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def trained(config: ModelConfig, folder: Path) -> tuple[SplitModel, Path, dict[str, Tensor]]:
    """A model, the file of its frozen weights, and a state far from the initial one."""
    backbone = backbone_file(config, folder)
    model = load_model(config, backbone)
    vector = initial_trainables(model.layout, config.seed, model.loras, model.given)
    random = torch.Generator().manual_seed(1)
    vector += 0.05 * torch.rand(vector.shape, generator=random)
    return model, backbone, dict(model.layout.views(vector))


def logits(model: SplitModel, state: dict[str, Tensor], samples: Tensor) -> Tensor:
    model.attach(state)
    with torch.no_grad():
        return model.server(model.client(samples, 1), 1)


def language(kind: str, **options: Any) -> ModelConfig:
    given = SMALL | ({"intermediate_size": 32} if kind == "llama" else {})
    found = language_model(f"hf:{kind}", given, None)
    parameters = {"config": dict(found.configuration), "length": 8}
    options = {"train_head": False} | options
    return ModelConfig(f"hf:{kind}", found.vocabulary, rank=2, parameters=parameters, **options)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *[(name, {}) for name in OWN_MODELS if name != "convnext_nano_64"],
        ("convnext_nano_64", {"targets": r"mlp\.fc"}),
        ("vit_nano_patch8_64", {"adapters": "dora", "image_size": 32}),
        ("swin_nano_patch4_window4_64", {"adapters": "none"}),
        ("resnet_nano_32", {"adapters": "full", "image_size": 24}),
        ("deit_tiny_patch16_224", {"image_size": 32, "rank": 2}),
    ],
)
def test_timm_loads_all_weights(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    config = ModelConfig(name, 7, **{"rank": 4, "alpha": 6.0} | options)
    model, backbone, state = trained(config, tmp_path)
    export_weights(state | {"aggregation.v": torch.ones(3)}, tmp_path / "all", config, backbone)
    theirs = timm.create_model(f"local-dir:{tmp_path / 'all'}", pretrained=True).eval()
    samples = torch.randn(2, 3, *[model.input.size] * 2)
    with torch.no_grad():
        found = theirs(samples)
    expected = logits(model, state, samples)
    assert (found - expected).abs().max() < 1e-5
    before = timm.create_model(f"local-dir:{tmp_path / 'all'}", pretrained=False).eval()
    with torch.no_grad():
        assert (before(samples) - expected).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["swin_nano_patch4_window4_64", "eva_nano_patch8_64"])
def test_peft_loads_adapters_on_the_exported_base(name: str, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    config = ModelConfig(name, 7, rank=4)
    model, backbone, state = trained(config, tmp_path)
    export_peft(state, tmp_path / "out", config, backbone)
    base = json.loads((tmp_path / "out" / "adapter_config.json").read_text())[
        "base_model_name_or_path"
    ]
    assert base == str(tmp_path / "out" / BASE)
    net = timm.create_model(f"local-dir:{base}", pretrained=True)
    adapted = peft.PeftModel.from_pretrained(net, tmp_path / "out").eval()
    samples = torch.randn(2, 3, *[model.input.size] * 2)
    with torch.no_grad():
        found = adapted(samples)
    assert (found - logits(model, state, samples)).abs().max() < 1e-5


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("gpt2", {}),
        ("gpt2", {"train_head": True, "adapters": "dora"}),
        ("llama", {}),
        ("llama", {"train_head": True, "adapters": "full"}),
    ],
)
def test_transformers_loads_all_weights(kind: str, options: dict[str, Any], tmp_path: Path) -> None:
    config = language(kind, **options)
    model, backbone, state = trained(config, tmp_path)
    export_weights(state, tmp_path / "all", config, backbone)
    theirs, about = AutoModelForCausalLM.from_pretrained(
        tmp_path / "all", output_loading_info=True, attn_implementation="eager"
    )
    assert not about["missing_keys"]
    assert not about["unexpected_keys"]
    tokens = torch.randint(64, (2, 8))
    with torch.no_grad():
        found = theirs.eval()(tokens).logits
    assert (found - logits(model, state, tokens)).abs().max() < 1e-5


def test_peft_makes_a_language_model_of_the_exported_folder(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    config = language("llama")
    model, backbone, state = trained(config, tmp_path)
    export_peft(state, tmp_path / "out", config, backbone)
    theirs = peft.AutoPeftModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    tokens = torch.randint(64, (2, 8))
    with torch.no_grad():
        found = theirs(tokens).logits
    assert (found - logits(model, state, tokens)).abs().max() < 1e-5


def test_adapters_of_convolutions_with_groups_cannot_be_merged(tmp_path: Path) -> None:
    config = ModelConfig("convnext_nano_64", 7, rank=64, targets=r"mlp\.fc|stages\.1.*conv_dw")
    _, backbone, state = trained(config, tmp_path)
    with pytest.raises(InputError, match=r"^--to: 'weights' cannot merge the adapter of .*conv_dw"):
        export_weights(state, tmp_path / "all", config, backbone)
    assert not (tmp_path / "all").exists()


@pytest.mark.parametrize("adapters", ["full", "lora"])
def test_what_stays_with_a_client_is_exported_for_it(adapters: str, tmp_path: Path) -> None:
    keys = {
        "rounds": 2,
        "workload.aggregation": "scaffold",
        "workload.optimiser": "sgd",
        "workload.momentum": 0,
        "workload.model": "resnet_nano_32",
        "workload.adapters": adapters,
        "workload.batch_norm": "local",
        "workload.data.samples": 40,
        "workload.evaluate_every": 1,
        "workload.evaluate_samples": 8,
        "workload.classes": 4,
        "workload.batch_size": 4,
        "workload.local_iterations": 1,
    }
    scenario = tb.load("quickstart", keys)
    learned = tmp_path / "learned"
    learn_into(learned, scenario)

    def export(*more: object) -> Any:
        words = ["export", learned, "--out", tmp_path / "out", "--to", "weights", *more]
        return CliRunner().invoke(app, [str(word) for word in words])

    assert "`client`: is needed, because with workload.batch_norm 'local'" in str(
        export().exception
    )
    assert str(export("--client", 4).exception) == "`client`: must be from 1 to 3, not 4"
    model = load_model(model_of(scenario), backbone_file(model_of(scenario), cache_folder()))
    samples = torch.randn(2, 3, 32, 32)
    for client, (option, file) in {1: ("last", STATE), 3: ("best", BEST)}.items():
        done = export("--client", client, "--state", option, "--overwrite")
        assert done.exit_code == 0, done.output
        state = safetensors.torch.load_file(learned / file)
        theirs = timm.create_model(f"local-dir:{tmp_path / 'out'}", pretrained=True).eval()
        own = {n: t for n, t in state.items() if not n.startswith("clients.")}
        expected = logits(model, own | own_tensors(state, client), samples)
        with torch.no_grad():
            assert (theirs(samples) - expected).abs().max() < 1e-5
