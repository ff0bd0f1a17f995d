# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What split learning asks of a network: that it is a chain, and what goes into it. No torch here.

Whoever registers a model as `testbed.models` answers with a `Chain`; timm's are made into one by
`workloads.models.families`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)
"""Of ImageNet's channels; what most of timm's models were trained with."""


@dataclass(frozen=True)
class Images:
    """Square pictures of three channels, with one label each: [B, 3, size, size], float32."""

    size: int
    """Height and width in pixels."""
    mean: tuple[float, float, float] = MEAN
    """Of the channels; subtracted."""
    deviation: tuple[float, float, float] = DEVIATION
    """Of the channels; divided by."""

    labels = 1
    """Of one sample."""

    def empty(self, samples: int, device: "torch.device | str") -> "Tensor":
        """A batch of nothing."""
        import torch

        return torch.zeros(samples, 3, self.size, self.size, device=device)


@dataclass(frozen=True)
class Tokens:
    """Sequences of tokens, each with the token that follows for its label: [B, length], int64."""

    length: int
    """Tokens of a sequence."""
    vocabulary: int
    """Tokens are 0 to vocabulary - 1."""

    @property
    def labels(self) -> int:
        """Of one sample."""
        return self.length

    def empty(self, samples: int, device: "torch.device | str") -> "Tensor":
        """A batch of nothing."""
        import torch

        return torch.zeros(samples, self.length, dtype=torch.int64, device=device)


Step = Callable[["Tensor"], "Tensor"]


@dataclass(frozen=True)
class Chain:
    """A network in the pieces that split learning cuts it into.

    What the pieces compute one after the other, and then the head, is what the network computes.
    All that they hold is registered in `net`: parameters, and as buffers what else is a tensor.
    """

    net: "nn.Module"
    """The whole network; its names are those of weights, adapters and exports."""
    input: Images | Tokens
    """What one sample is."""
    embed: Step
    """What comes before the first part."""
    parts: "Sequence[Step | Sequence[Step]]"
    """Stages or blocks, in their order: a cut may be behind any of them. A part that is a sequence
    is recomputed step by step where `workload.recompute` is on."""
    finish: Step
    """What comes between the last part and the head: [B, C], or [B, length, C] for `Tokens`. The
    network's head must be the identity in it where it is called."""
    head: str
    """Name in `net` of the linear layer that gives the logits; it trains whole."""
