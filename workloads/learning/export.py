# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Export of the trained parameters: adapters that `peft` can load with the same backbone, or the
network's own parameters."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from workloads.learning.model import MEMORY, OWN, SplitModel
from workloads.learning.settings import ModelConfig
from workloads.models.language import PREFIX, is_language


def export_peft(
    state: Mapping[str, Tensor], folder: Path, config: ModelConfig, backbone: Path | None = None
) -> None:
    """Write `adapter_config.json` and `adapter_model.safetensors`, or `model.safetensors`.

    `PeftModel.from_pretrained(net, folder)` then computes the same logits, where `net` is timm's
    (or the package's, or transformers') model of that name, classes and image size with the
    backbone's weights. Without adapters, `model.safetensors` has all that was trained by the names
    of `net`, for `net.load_state_dict(tensors, strict=False)`. Tensors that stay with each client
    (`workload.batch_norm`) have the values of the backbone.

    Args:
        state: The state of `ServerLearner.state`, or `adapters.safetensors` of a run.
        folder: Output folder; it is created if it does not exist.
        config: The trained model.
        backbone: File of the frozen weights; needed if adapters were trained and statistics of
            batch normalisation are part of the state, because peft saves whole layers.

    Raises:
        InputError: The state belongs to another model.
        ValueError: `backbone` is needed and None.
    """
    model = SplitModel(config)
    layout, head = model.layout, model.head_name
    layout.vector(state)  # Checks that the state fits.
    folder.mkdir(parents=True, exist_ok=True)
    trained = {
        name: tensor.contiguous()
        for name, tensor in state.items()
        if not name.startswith((MEMORY, OWN))
    }
    if config.adapters in ("full", "none"):
        safetensors.torch.save_file(trained, folder / "model.safetensors")
        return
    layers = [e.name.removesuffix(".lora_A") for e in layout.entries if e.name.endswith(".lora_A")]
    norms = list(model.norms) if layout.spans(0, layout.size, statistics=True) else []
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
