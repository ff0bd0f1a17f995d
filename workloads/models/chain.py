# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Requirements of split learning on a network: a chain of parts, and its input. Without torch.

A function that is registered under `testbed.models` returns a `Chain`; `workloads.models.families`
makes chains of timm's models.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)
"""Mean and standard deviation of ImageNet's colour channels, with which most of timm's models were
trained."""


@dataclass(frozen=True)
class Images:
    """Input of square images with three channels and one label each: [B, 3, size, size],
    float32."""

    size: int
    """Height and width in pixels."""
    mean: tuple[float, float, float] = MEAN
    """Mean of each channel, which is subtracted from the values."""
    deviation: tuple[float, float, float] = DEVIATION
    """Standard deviation of each channel, by which the values are divided."""

    labels = 1
    """Number of labels per sample."""

    def empty(self, samples: int, device: "torch.device | str") -> "Tensor":
        """An uninitialised batch."""
        import torch

        return torch.zeros(samples, 3, self.size, self.size, device=device)


@dataclass(frozen=True)
class Tokens:
    """Input of token sequences, labelled with the next tokens: [B, length], int64."""

    length: int
    """Number of tokens per sequence."""
    vocabulary: int
    """Tokens are 0 to vocabulary - 1."""

    @property
    def labels(self) -> int:
        """Number of labels per sample."""
        return self.length

    def empty(self, samples: int, device: "torch.device | str") -> "Tensor":
        """An uninitialised batch."""
        import torch

        return torch.zeros(samples, self.length, dtype=torch.int64, device=device)


Step = Callable[["Tensor"], "Tensor"]


@dataclass(frozen=True)
class Chain:
    """A network as a sequence of parts; split learning can split it between any two of them.

    The network is the composition of `embed`, `parts`, `finish` and the head. All their tensors are
    registered in `net`, as parameters or buffers. These functions must look up the layers in `net`
    at each call, because adapters replace linear layers there.
    """

    net: "nn.Module"
    """The whole network. The names in this network are used for weights, adapters and exports."""
    input: Images | Tokens
    """Format of the input."""
    embed: Step
    """Computation before the first part."""
    parts: "Sequence[Step | Sequence[Step]]"
    """Stages or blocks in order: the network can be split after each of them. A part that is a
    sequence is recomputed step by step if `workload.recompute` is set."""
    finish: Step
    """Computation between the last part and the head, with result [B, C], or [B, length, C] for
    `Tokens`. If it calls the network's head, the head must be the identity there."""
    head: str
    """Name in `net` of the linear layer that computes the logits; it is fully trained."""
    whole: "Callable[[Tensor], Any] | None" = None
    """The whole network as one function, which maps a batch of samples to the logits, or to an
    object with the attribute `logits`. Its output is compared once with that of the parts, and a
    difference is an error. None: `net` itself, if it has a `forward` method."""
    logits: Step | None = None
    """Computation after the head, such as soft-capping; None if there is no such computation."""


def is_transposed(module: "nn.Module") -> bool:
    """Whether a module is a linear layer of transformers with a weight of shape [in, out]
    (`Conv1D` of GPT-2)."""
    kind = type(module)
    return f"{kind.__module__}.{kind.__name__}" == "transformers.pytorch_utils.Conv1D"
