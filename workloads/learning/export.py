# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Export of trained adapters to a folder that `peft` can load with the same backbone."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from workloads.learning.model import MEMORY, SplitModel
from workloads.learning.settings import ModelConfig
from workloads.models.language import PREFIX, is_language


def export_peft(state: Mapping[str, Tensor], folder: Path, config: ModelConfig) -> None:
    """Write `adapter_config.json` and `adapter_model.safetensors`.

    `PeftModel.from_pretrained(net, folder)` then computes the same logits, where `net` is timm's
    (or the package's, or transformers') model of that name, classes and image size with the
    backbone's weights.

    Args:
        state: The state of `ServerLearner.state`, or `adapters.safetensors` of a run.
        folder: Output folder; it is created if it does not exist.
        config: The trained model.

    Raises:
        InputError: The state belongs to another model.
    """
    model = SplitModel(config)
    layout, head = model.layout, model.head_name
    layout.vector(state)  # Checks that the state fits.
    layers = [e.name.removesuffix(".lora_A") for e in layout.entries if e.name.endswith(".lora_A")]
    settings: dict[str, Any] = {
        "peft_type": "LORA",
        "r": config.rank,
        "lora_alpha": config.alpha,
        "lora_dropout": config.dropout,
        "use_dora": config.adapters == "dora",
        "bias": "none",
        "target_modules": layers,
        "modules_to_save": [head] if config.train_head else None,
        "inference_mode": True,
        "base_model_name_or_path": f"timm/{config.model}",
    }
    if is_language(config.model):
        settings |= {
            "base_model_name_or_path": config.model.removeprefix(PREFIX),
            "task_type": "CAUSAL_LM",
            "fan_in_fan_out": any(lora.is_transposed for lora in model.loras.values()),
        }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(
        json.dumps(settings, indent=2) + "\n", encoding="utf-8"
    )
    renamed = {
        f"base_model.model.{name}{'.weight' if '.lora_' in name and tensor.ndim > 1 else ''}": (
            tensor.contiguous()
        )
        for name, tensor in state.items()
        if not name.startswith(MEMORY)
    }
    safetensors.torch.save_file(renamed, folder / "adapter_model.safetensors")
