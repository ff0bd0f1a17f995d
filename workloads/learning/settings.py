# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a learner is told: plain values that travel to node programs as JSON. No torch here."""

from dataclasses import dataclass
from typing import Literal

Dtype = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class ModelConfig:
    """A Swin with LoRA on every linear layer but the head."""

    model: str
    """A `swin_*` of timm, or one of `workloads.learning.model.OWN_MODELS`."""
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

    def __post_init__(self) -> None:
        """Values that come from JSON may be integers where a float is meant."""
        object.__setattr__(self, "alpha", float(self.alpha))


@dataclass(frozen=True)
class TrainingConfig:
    """How the trainable parameters move. Optimisers restart each round."""

    learning_rate: float = 1e-3
    optimiser: Literal["adamw", "sgd"] = "adamw"
    weight_decay: float = 0.0
    """Zero by default: adapters begin at B A = 0 and few steps follow."""
    momentum: float = 0.9
    """Of `sgd`."""
    server_adapters: Literal["per-client", "shared"] = "per-client"
    """`per-client`: one server-side set a client, averaged at the round's end, so that no order of
    service changes the result. `shared`: one set that every client's batch trains in turn."""
    recompute: bool = False
    """Keep only the inputs of blocks in the forward pass and compute the rest again in the backward
    pass: less memory, about half as much computing again, the same numbers."""


@dataclass(frozen=True)
class DataConfig:
    """What the clients train on."""

    source: str = "synthetic"
    """`synthetic`; a folder with CIFAR-100's binary files; or an image folder."""
    samples: int = 2000
    """Of the synthetic training set."""
    partition: Literal["iid", "dirichlet"] = "iid"
    concentration: float = 0.5
    """Of the Dirichlet distribution: small is uneven."""
    seed: int = 1
