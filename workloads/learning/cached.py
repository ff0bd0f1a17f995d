# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Cache of backbone files: each is created once, and named by everything that determines its
content.

Finding an existing file does not import torch, which takes seconds.
"""

import hashlib
import json
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from testbed.core.errors import InputError
from testbed.system.files import sha256_of
from workloads.models.config import ModelConfig, file_label, plugin_model
from workloads.models.language import weight_files


def backbone_file(config: ModelConfig, cache: Path) -> Path:
    """The backbone's file in a cache folder; it is created if it does not exist.

    Raises:
        InputError: The weights are unavailable or do not fit the model.
        ModuleNotFoundError: torch, which learning requires, is not installed.
    """
    if find_spec("torch") is None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")
    path = cache / f"backbone-{file_label(config.model)}-{_key(config)}.safetensors"
    if not path.exists():
        from workloads.learning.backbone import write_backbone

        cache.mkdir(parents=True, exist_ok=True)
        write_backbone(config, path)
    return path


def _key(config: ModelConfig) -> str:
    if config.weights is None:
        source = f"seed {config.seed}"
    elif config.weights == "pretrained":
        source = f"pretrained, timm {version('timm')}"
    else:
        files = weight_files(Path(config.weights), "workload.weights")
        source = f"sha256 {' '.join(map(_digest, files))}"
    parts = {
        "format": 2,
        "source": source,
        "model": config.model,
        "image_size": config.image_size,
        "dtype": config.dtype,
        **plugin_model(config.model, config.parameters),
        "torch": version("torch"),
    }
    if config.dtype == "bfloat16" and config.adapters in ("full", "none"):
        parts["adapters"] = "none"  # No layer has an adapter, and all weights are float32.
    if config.weights is not None:  # Weights may have a head, which is in the file if it fits.
        parts |= {"classes": config.classes, "head": config.head}
    if not config.train_head:
        parts["train_head"] = False
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _digest(path: Path) -> str:
    try:
        return sha256_of(path)
    except OSError as error:
        raise InputError(f"workload.weights: {path} cannot be read ({error.strerror})") from None
