# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Which model: plain values that travel to node programs as JSON. No torch here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from testbed.core.registry import MODELS

Dtype = Literal["float32", "bfloat16"]
Adapters = Literal["lora", "dora"]


@dataclass(frozen=True)
class ModelConfig:
    """A network with LoRA on its linear layers but the head."""

    model: str
    """One of timm's or of `workloads.models.families.OWN_MODELS`, or a package's."""
    classes: int
    rank: int = 8
    alpha: float = 8.0
    """LoRA adds alpha / rank · B A x."""
    image_size: int | None = None
    """Height and width of the input in pixels; None: the model's own."""
    seed: int = 1
    """Of the backbone (where no weights are given), the adapters and the head."""
    weights: str | None = None
    """Frozen weights: None draws them by seed, `pretrained` asks timm's hub, else a safetensors
    file with timm's names."""
    dtype: Dtype = "float32"
    """Of computing. bfloat16 is autocast: adapters, head, optimiser, LayerNorm and softmax stay
    float32."""
    targets: str | None = None
    """A regular expression: linear layers in whose names it is found carry adapters; None: all."""
    adapters: Adapters = "lora"
    """`dora`: beside A and B a magnitude for each output (Liu et al. 2024)."""
    dropout: float = 0.0
    """Of what enters an adapter, while it trains; none with `dora`."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Of a package's model, as JSON has them."""

    def __post_init__(self) -> None:
        """Values that come from JSON may be integers where a float is meant."""
        object.__setattr__(self, "alpha", float(self.alpha))


def plugin_model(model: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """What else than its name tells a package's model from another; of others nothing."""
    if model not in MODELS.plugins:
        return {}
    return {"plugin": MODELS.fingerprint(model), "parameters": dict(parameters)}
