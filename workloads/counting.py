"""FLOPs and bytes of each split, counted on the model itself (meta device: no weights, no work)."""

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from workloads.model import STAGES, SplitSwin
from workloads.settings import ModelConfig

FLOAT32_BYTES = 4

LAYER_NORM_FLOPS = 10
"""An element. What fvcore x 2 charges, and the paper's table II comes out only so."""


@dataclass(frozen=True)
class Counts:
    """Costs of one sample (FLOPs, smashed bytes) and one client (adapter bytes), for u = 1..4."""

    client_forward_flops: tuple[float, ...]
    client_backward_flops: tuple[float, ...]
    server_forward_flops: tuple[float, ...]
    server_backward_flops: tuple[float, ...]
    adapter_bytes: tuple[int, ...]
    smashed_bytes: tuple[int, ...]


def count(config: ModelConfig) -> Counts:
    """Count products (2 FLOP a multiply-add, LoRA unmerged, attention unfused) and LayerNorms.

    Backward passes are counted with frozen weights: gradients of activations and adapters only.

    Raises:
        InputError: No such model.
    """
    model = SplitSwin(replace(config, dtype="float32"))
    layout = model.layout
    tensors = layout.views(torch.empty(layout.size, device="meta"))
    model.attach({name: tensor.requires_grad_() for name, tensor in tensors.items()})
    images = torch.empty(1, 3, model.image_size, model.image_size, device="meta")
    rows: list[tuple[float, float, float, float, int, int]] = []
    for split in range(1, STAGES + 1):
        with _counter() as forward:
            smashed = model.client(images, split)
        with _counter() as backward:
            smashed.backward(torch.empty_like(smashed))
        leaf = smashed.detach().requires_grad_()
        with _counter() as server_forward:
            logits = model.server(leaf, split)
        with _counter() as server_backward:
            logits.backward(torch.empty_like(logits))
        flops = [c.get_total_flops() for c in (forward, backward, server_forward, server_backward)]
        rows.append(
            (
                *map(float, flops),
                layout.cuts[split] * FLOAT32_BYTES,
                smashed.numel() * FLOAT32_BYTES,
            )  # type: ignore[arg-type]
        )
    client, client_back, server, server_back, adapters, smashed_bytes = zip(*rows, strict=True)
    return Counts(client, client_back, server, server_back, adapters, smashed_bytes)


def _counter() -> FlopCounterMode:
    def layer_norm(shape: Any, *_: Any, **__: Any) -> int:
        return LAYER_NORM_FLOPS * prod(shape)

    def layer_norm_backward(_: Any, shape: Any, *__: Any, **___: Any) -> int:
        return LAYER_NORM_FLOPS * prod(shape)

    def product(_: Any, left: Any, right: Any, **__: Any) -> int:
        return 2 * prod(left) * int(right[-1])

    aten = torch.ops.aten
    return FlopCounterMode(
        display=False,
        custom_mapping={
            aten.addmm_: product,
            aten.native_layer_norm: layer_norm,
            aten.native_layer_norm_backward: layer_norm_backward,
        },
    )
