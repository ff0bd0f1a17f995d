# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Configuration of the model: plain values that are sent to node programs as JSON, without
torch."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Any, Literal

from testbed.core.errors import InputError
from testbed.core.registry import MODELS
from testbed.system.files import content_digest
from workloads.models.language import is_language

Dtype = Literal["float32", "bfloat16"]
Adapters = Literal["lora", "dora", "full", "none"]
BatchNorm = Literal["averaged", "frozen", "local", "per-client"]
Head = Literal["file", "new"]


@dataclass(frozen=True)
class ModelConfig:
    """A network, and which of its parameters are trained; the head always is."""

    model: str
    """A model of timm, of `workloads.models.families.OWN_MODELS`, of another package, or a language
    model of transformers (`hf:…`)."""
    classes: int
    rank: int = 8
    alpha: float = 8.0
    """LoRA adds alpha / rank · B A x."""
    image_size: int | None = None
    """Height and width of the input in pixels; None: the model's own."""
    seed: int = 1
    """Seed of the backbone (if no weights are given), the adapters and the head."""
    weights: str | None = None
    """Frozen weights. None: random by seed; `pretrained`: from timm's hub; otherwise the path of a
    safetensors file with the model's names, or of a folder with such files of a language model."""
    head: Head | None = None
    """Initial head. `file`: that of the weights; `new`: random by seed; None: that of the weights
    if it fits, otherwise random by seed."""
    dtype: Dtype = "float32"
    """Type of computing. bfloat16 is autocast: adapters, head, optimiser, LayerNorm and softmax use
    float32."""
    targets: str | None = None
    """Regular expression: linear layers and convolutions whose names contain a match have adapters.
    None: all linear layers; all convolutions if the first part has no linear layer."""
    adapters: Adapters = "lora"
    """`lora`, or `dora` with an additional magnitude per output (Liu et al. 2024); `full`: all
    parameters are trained; `none`: only the head is."""
    batch_norm: BatchNorm = "averaged"
    """Statistics of batch normalisation. `averaged`: they belong to the global model; `frozen`:
    they never change; `local`: they and the affine parameters stay with each client (FedBN, Li et
    al. 2021); `per-client`: only they do (SiloBN, Andreux et al. 2020)."""
    dropout: float = 0.0
    """Dropout rate of an adapter's input during training; 0 with `dora`."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of another package's model, as JSON values; for a language model `config`, the
    content of its configuration; `length`, that of a sequence in tokens; and `folder`, unless it is
    a family."""
    train_head: bool = True
    """Whether the head is trained; otherwise it is frozen, and that of the weights is used."""

    def __post_init__(self) -> None:
        """Convert integers from JSON to floats."""
        object.__setattr__(self, "alpha", float(self.alpha))


def plugin_model(model: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Data that determine a model in addition to its name, for keys of caches; empty for timm's
    models.

    For a package's model, these are the package, its parameters, the contents of files and folders
    that these name, and the versions of all installed packages, which it may import. For a language
    model, they are its configuration and the version of transformers.
    """
    if is_language(model):
        known = {name: value for name, value in parameters.items() if name != "folder"}
        return {"parameters": known, "transformers": version("transformers")}
    if model not in MODELS.plugins:
        return {}
    return {
        "plugin": MODELS.fingerprint(model),
        "parameters": dict(parameters),
        "files": named_files(parameters),
        "packages": _installed(),
    }


def named_files(value: Any) -> dict[str, str]:
    """Digests of the contents of all files and folders that texts in a JSON value name.

    Raises:
        InputError: One of the files cannot be read.
    """
    if isinstance(value, str):
        path = Path(value).expanduser()
        try:
            if value and (path.is_file() or path.is_dir()):
                return {value: content_digest(path)}
        except (OSError, ValueError) as error:
            raise InputError(f"workload.parameters: {value!r} cannot be read ({error})") from None
        return {}
    items = value.values() if isinstance(value, Mapping) else value
    found: dict[str, str] = {}
    for item in items if isinstance(items, Iterable) else ():
        found |= named_files(item)
    return found


def file_label(model: str) -> str:
    """The name of a model as a part of a file's name."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", model)[-60:] if is_language(model) else model


@cache
def _installed() -> str:
    """A digest of the names and versions of all installed packages."""
    names = sorted(f"{each.name} {each.version}" for each in distributions())
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
