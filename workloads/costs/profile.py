# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What each split of a model costs: FLOPs to compute, bytes to exchange. No torch at import."""

from dataclasses import dataclass

KIB = 1024

PAPER_MODEL = "swin_large_patch4_window7_224"
"""The model of the paper's table II: Swin-L, 224 x 224."""
PAPER_CLASSES = 100
PAPER_RANK = 8
"""Its LoRA rank."""


@dataclass(frozen=True)
class SplitProfile:
    """Costs of one sample (FLOPs, smashed bytes) and one client (adapter bytes), for u = 1, 2, …

    Bytes are those of float32. Entry u - 1 belongs to split point u.
    """

    client_forward_flops: tuple[float, ...]
    """Ψ_CF."""
    server_forward_flops: tuple[float, ...]
    """Ψ_SF."""
    adapter_bytes: tuple[int, ...]
    """Γ_M: trainable parameters on the client."""
    smashed_bytes: tuple[int, ...]
    """Γ_A: smashed data; its gradient Γ_G has the same size."""
    client_backward_flops: tuple[float, ...] = ()
    """Counted with frozen weights, empty where nobody counted; the paper takes ς = 2 × forward."""
    server_backward_flops: tuple[float, ...] = ()
    adapter_header_bytes: tuple[int, ...] = ()
    """The safetensors header that travels before the adapters: overhead, not Γ_M. Left out: 0."""
    labels: int = 1
    """Labels of one sample."""

    def __post_init__(self) -> None:
        """Headers that nobody counted take nothing."""
        if not self.adapter_header_bytes:
            object.__setattr__(self, "adapter_header_bytes", (0,) * self.splits)

    @property
    def splits(self) -> int:
        """How many split points there are: u = 1 to this."""
        return len(self.client_forward_flops)


PAPER = SplitProfile(
    client_forward_flops=(6.18e9, 12.50e9, 64.19e9, 70.28e9),
    server_forward_flops=(64.10e9, 57.78e9, 6.09e9, 0.001e9),
    adapter_bytes=(192 * KIB, 612 * KIB, 7596 * KIB, 9276 * KIB),
    smashed_bytes=(2352 * KIB, 1176 * KIB, 588 * KIB, 294 * KIB),
    adapter_header_bytes=(1568, 3360, 18176, 20016),
)
"""Table II of the paper, to its printed digits (1 KB = 1024 B); headers: counted here."""

SMALL_MODEL = "swin_nano_patch4_window4_64"
"""Of the quick start, with 10 classes and rank 8."""
SMALL_CLASSES = 10
SMALL = SplitProfile(
    client_forward_flops=(19021824, 35717120, 50880512, 65179648),
    server_forward_flops=(46173184, 29477888, 14314496, 15360),
    adapter_bytes=(32768, 104448, 247808, 534528),
    smashed_bytes=(32768, 16384, 8192, 4096),
    client_backward_flops=(21610496, 41123840, 57696256, 72601600),
    server_backward_flops=(51011584, 31498240, 14925824, 20480),
    adapter_header_bytes=(1536, 3272, 5056, 6848),
)
"""What it counts to: known, so that the quick start can be predicted where there is no torch."""
