# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Export of the trained parameters: adapters that `peft` can load with the same backbone, or all
weights, which timm and transformers load."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from testbed.core.errors import InputError
from testbed.core.registry import MODELS
from workloads.learning.backbone import load_model
from workloads.learning.learner import own_tensors
from workloads.learning.model import (
    MAGNITUDE,
    MEMORY,
    OWN,
    LoraConv,
    SplitModel,
    initial_trainables,
)
from workloads.learning.settings import ModelConfig
from workloads.models.chain import Images
from workloads.models.families import OWN_MODELS, timm_description
from workloads.models.language import PREFIX, is_language

BASE = "base"
"""Folder of the frozen weights in an exported folder."""


def export_weights(
    state: Mapping[str, Tensor] | None,
    folder: Path,
    config: ModelConfig,
    backbone: Path,
    client: int | None = None,
) -> None:
    """Write all weights of the whole network as `model.safetensors`, with a `config.json`.

    Adapters are merged into the weights of their layers. `timm.create_model("local-dir:FOLDER",
    pretrained=True)`, or `AutoModelForCausalLM.from_pretrained(FOLDER)` for a language model, then
    computes the same logits. A model of another package has no `config.json`: load the file into
    its network.

    Args:
        state: The state of `ServerLearner.state`, or a file of it; None: before the training.
        folder: Output folder; it is created if it does not exist.
        config: The trained model.
        backbone: File of the frozen weights.
        client: The client whose own tensors are written, if there are such.

    Raises:
        InputError: The state belongs to another model, or a layer's adapter cannot be merged.
    """
    model = load_model(config, backbone)
    tensors = {name: tensor.float() for name, tensor in model.net.state_dict().items()}
    tensors |= {f"{name}.num_batches_tracked": torch.tensor(0) for name in model.norms}
    if state is None:
        vector = initial_trainables(model.layout, config.seed, model.loras, model.given)
        trained = dict(model.layout.views(vector))
    else:
        model.layout.vector(state)  # Checks that the state fits.
        trained = _trained(model, state, client)
        for name in model.loras:
            tensors[f"{name}.weight"] = _merged(model, name, trained)
    if not config.train_head:
        assert model.head is not None
        pair = zip(("weight", "bias"), model.head, strict=True)
        tensors |= {f"{model.head_name}.{own}": t.float() for own, t in pair if t is not None}
    adapters = (".lora_A", ".lora_B", f".{MAGNITUDE}")
    tensors |= {name: t for name, t in trained.items() if not name.endswith(adapters)}
    folder.mkdir(parents=True, exist_ok=True)
    safetensors.torch.save_file(
        {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    if is_language(config.model):
        _save_configuration(model, config, folder)
    elif config.model not in MODELS.plugins:
        assert isinstance(model.input, Images)
        text = json.dumps(timm_description(config, model.input), indent=2) + "\n"
        (folder / "config.json").write_text(text, encoding="utf-8")


def _save_configuration(model: SplitModel, config: ModelConfig, folder: Path) -> None:
    made: Any = model.net.config
    made.architectures = [type(model.net).__name__]
    made.use_cache = True
    if config.train_head:
        made.tie_word_embeddings = False
    made.save_pretrained(folder)


def _trained(
    model: SplitModel, state: Mapping[str, Tensor], client: int | None
) -> dict[str, Tensor]:
    """The tensors of a model in a state, with those that stay with a client."""
    common = {
        name: tensor.contiguous()
        for name, tensor in state.items()
        if not name.startswith((MEMORY, OWN))
    }
    own = {} if client is None else own_tensors(state, client)
    # Local steps keep tensors at a client that are no part of its model.
    return common | {entry.name: own[entry.name] for entry in model.own.entries if own}


def _merged(model: SplitModel, name: str, trained: Mapping[str, Tensor]) -> Tensor:
    """The weight of a layer with its adapter, float32."""
    lora = model.loras[name]
    weight: Tensor = lora.weight.float()
    a, b = trained[f"{name}.lora_A"].float(), trained[f"{name}.lora_B"].float()
    if isinstance(lora, LoraConv):
        if lora.groups > 1:
            raise InputError(
                f"--to: 'weights' cannot merge the adapter of {name}, a convolution with groups; "
                "use 'peft'"
            )
        return weight + lora.scale * (b.flatten(1) @ a.flatten(1)).view_as(weight)
    merged = lora.matrix.float() + lora.scale * b @ a
    if (magnitude := trained.get(f"{name}.{MAGNITUDE}")) is not None:
        merged = merged * (magnitude / torch.linalg.vector_norm(merged, dim=-1))[:, None]
    return merged.mT if lora.is_transposed else merged


def export_peft(
    state: Mapping[str, Tensor],
    folder: Path,
    config: ModelConfig,
    backbone: Path | None = None,
    client: int | None = None,
) -> None:
    """Write `adapter_config.json` and `adapter_model.safetensors`, or `model.safetensors`.

    `PeftModel.from_pretrained(net, folder)` then computes the same logits, where `net` is timm's
    (or the package's, or transformers') model of that name, classes and image size with the
    backbone's weights. Without adapters, `model.safetensors` has all that was trained by the names
    of `net`, for `net.load_state_dict(tensors, strict=False)`. If no package has the frozen weights
    under a name, because they are random or the network is this project's, the folder `base` has
    them, as of `export_weights`.

    Args:
        state: The state of `ServerLearner.state`, or `adapters.safetensors` of a run.
        folder: Output folder; it is created if it does not exist.
        config: The trained model.
        backbone: File of the frozen weights; needed if adapters were trained and statistics of
            batch normalisation are part of the state, because peft saves whole layers. None: there
            is no folder `base`.
        client: The client whose own tensors are written, if there are such.

    Raises:
        InputError: The state belongs to another model.
        ValueError: `backbone` is needed and None.
    """
    model = SplitModel(config)
    layout, head = model.layout, model.head_name
    layout.vector(state)  # Checks that the state fits.
    folder.mkdir(parents=True, exist_ok=True)
    trained = _trained(model, state, client)
    if config.adapters in ("full", "none"):
        safetensors.torch.save_file(trained, folder / "model.safetensors")
        return
    layers = [e.name.removesuffix(".lora_A") for e in layout.entries if e.name.endswith(".lora_A")]
    has_statistics = model.own.entries or layout.spans(0, layout.size, statistics=True)
    norms = list(model.norms) if has_statistics else []
    for name in norms:
        if backbone is None:
            raise ValueError("backbone: is needed, because layers with statistics are saved whole")
        with safetensors.safe_open(backbone, "pt") as frozen:
            named = {f"{name}.{own}" for own in ("weight", "bias")} & set(frozen.keys())
            trained |= {each: frozen.get_tensor(each) for each in named}
        trained[f"{name}.num_batches_tracked"] = torch.tensor(0)
    whole = [*([head] if config.train_head else []), *norms]
    settings: dict[str, Any] = {
        "peft_type": "LORA",
        "r": config.rank,
        "lora_alpha": config.alpha,
        "lora_dropout": config.dropout,
        "use_dora": config.adapters == "dora",
        "bias": "none",
        "target_modules": layers,
        "modules_to_save": whole or None,
        "inference_mode": True,
        "base_model_name_or_path": f"timm/{config.model}",
    }
    if is_language(config.model):
        transposed = any(getattr(lora, "is_transposed", False) for lora in model.loras.values())
        settings |= {
            "base_model_name_or_path": config.model.removeprefix(PREFIX),
            "task_type": "CAUSAL_LM",
            "fan_in_fan_out": transposed,
        }
    own = config.model in OWN_MODELS or config.weights is None
    if backbone is not None and own:
        export_weights(None, folder / BASE, config, backbone)
        settings["base_model_name_or_path"] = str((folder / BASE).absolute())
    (folder / "adapter_config.json").write_text(
        json.dumps(settings, indent=2) + "\n", encoding="utf-8"
    )
    renamed = {
        f"base_model.model.{name}{'.weight' if '.lora_' in name and tensor.ndim > 1 else ''}": (
            tensor
        )
        for name, tensor in trained.items()
    }
    safetensors.torch.save_file(renamed, folder / "adapter_model.safetensors")
