# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Costs of each split of a model: FLOPs and bytes. Importing this module does not import torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field

KIB = 1024

PAPER_MODEL = "swin_large_patch4_window7_224"
"""The model of the paper's table II: Swin-L, 224 x 224."""
PAPER_CLASSES = 100
PAPER_RANK = 8
"""LoRA rank of the paper's model."""


@dataclass(frozen=True)
class SplitProfile:
    """Costs per sample (FLOPs, smashed bytes) and per client (adapter bytes), for u = 1, 2, …

    Sizes are those of float32. Entry u - 1 belongs to split point u.
    """

    client_forward_flops: tuple[float, ...]
    """Ψ_CF, FLOPs of the client's forward pass."""
    server_forward_flops: tuple[float, ...]
    """Ψ_SF, FLOPs of the server's forward pass."""
    adapter_bytes: tuple[int, ...]
    """Γ_M, size of the trainable parameters on the client."""
    smashed_bytes: tuple[int, ...]
    """Γ_A, size of the smashed data; the gradient Γ_G has the same size."""
    client_backward_flops: tuple[float, ...] = ()
    """FLOPs of the client's backward pass with frozen weights; empty if not counted. The paper uses
    ς = 2 times the forward pass."""
    server_backward_flops: tuple[float, ...] = ()
    adapter_header_bytes: tuple[int, ...] = ()
    """Size of the safetensors header before the adapters: overhead, not part of Γ_M. Default: 0."""
    labels: int = 1
    """Number of labels per sample."""
    trainable_bytes: int = 0
    """Size of all trainable parameters, of both sides and the head. Default: the largest of
    `adapter_bytes`."""

    def __post_init__(self) -> None:
        """Set missing sizes: headers to 0, all parameters to those of the client."""
        if not self.trainable_bytes:
            object.__setattr__(self, "trainable_bytes", max(self.adapter_bytes, default=0))
        if not self.adapter_header_bytes:
            object.__setattr__(self, "adapter_header_bytes", (0,) * self.splits)

    @property
    def splits(self) -> int:
        """Number of split points: u = 1 to this number."""
        return len(self.client_forward_flops)

    def of_rank(self, rank: int) -> "SplitProfile":
        """The costs for adapters of a rank: these, unless they are a `RankedProfile`."""
        return self


@dataclass(frozen=True)
class RankedProfile(SplitProfile):
    """The costs of clients whose adapters differ in rank; its own values are those of the largest
    rank."""

    by_rank: Mapping[int, SplitProfile] = field(default_factory=dict)

    def of_rank(self, rank: int) -> SplitProfile:
        """The costs for adapters of a rank."""
        return self.by_rank[rank]


PAPER = SplitProfile(
    client_forward_flops=(6.18e9, 12.50e9, 64.19e9, 70.28e9),
    server_forward_flops=(64.10e9, 57.78e9, 6.09e9, 0.001e9),
    adapter_bytes=(192 * KIB, 612 * KIB, 7596 * KIB, 9276 * KIB),
    smashed_bytes=(2352 * KIB, 1176 * KIB, 588 * KIB, 294 * KIB),
    adapter_header_bytes=(1568, 3360, 18176, 20016),
    trainable_bytes=9276 * KIB + 614800,
)
"""Table II of the paper with its printed digits (1 KB = 1024 B); headers are counted by this
project."""

SMALL_MODEL = "swin_nano_patch4_window4_64"
"""The model of the quick start, with 10 classes and rank 8."""
SMALL_CLASSES = 10
SMALL = SplitProfile(
    client_forward_flops=(19021824, 35717120, 50880512, 65179648),
    server_forward_flops=(46173184, 29477888, 14314496, 15360),
    adapter_bytes=(32768, 104448, 247808, 534528),
    smashed_bytes=(32768, 16384, 8192, 4096),
    client_backward_flops=(21610496, 41123840, 57696256, 72601600),
    server_backward_flops=(51011584, 31498240, 14925824, 20480),
    adapter_header_bytes=(1536, 3272, 5056, 6848),
    trainable_bytes=544808,
)
"""Counted costs of this model, so that the quick start can be predicted without torch."""
