# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""FLOPs and bytes of each split, counted on the model itself (meta device: no weights, no work)."""

from dataclasses import fields, replace
from math import prod
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from workloads.costs.profile import SplitProfile
from workloads.learning.model import SplitModel
from workloads.models.config import ModelConfig

Shape = tuple[int, ...]

FLOAT32_BYTES = 4

LAYER_NORM_FLOPS = 10
"""An element. What fvcore x 2 charges, and the paper's table II comes out only so."""


def count(config: ModelConfig) -> SplitProfile:
    """Count products (2 FLOP a multiply-add, LoRA unmerged, attention unfused) and LayerNorms.

    Backward passes are counted with frozen weights: gradients of activations and adapters only.

    Raises:
        InputError: No such model.
    """
    model = SplitModel(replace(config, dtype="float32"))
    layout = model.layout
    tensors = layout.views(torch.empty(layout.size, device="meta"))
    model.attach({name: tensor.requires_grad_() for name, tensor in tensors.items()})
    sample = model.input.empty(1, "meta")
    profiles: dict[str, list[int]] = {
        field.name: [] for field in fields(SplitProfile) if field.name != "labels"
    }
    for split in range(1, model.splits + 1):
        with _counter() as client_forward:
            smashed = model.client(sample, split)
        with _counter() as client_backward:
            torch.autograd.backward(smashed, torch.empty_like(smashed))
        leaf = smashed.detach().requires_grad_()
        with _counter() as server_forward:
            logits = model.server(leaf, split)
        with _counter() as server_backward:
            torch.autograd.backward(logits, torch.empty_like(logits))
        for name, value in {
            "client_forward_flops": client_forward.get_total_flops(),
            "server_forward_flops": server_forward.get_total_flops(),
            "client_backward_flops": client_backward.get_total_flops(),
            "server_backward_flops": server_backward.get_total_flops(),
            "adapter_bytes": layout.cuts[split] * FLOAT32_BYTES,
            "smashed_bytes": smashed.numel() * FLOAT32_BYTES,
            "adapter_header_bytes": len(layout.header(split)),
        }.items():
            profiles[name].append(value)
    columns = {name: tuple(values) for name, values in profiles.items()}
    return SplitProfile(**columns, labels=model.input.labels)


def _counter() -> FlopCounterMode:
    # Shapes come in the order of the operator's arguments.
    def layer_norm(x: Shape, *_: Any, **__: Any) -> int:
        return LAYER_NORM_FLOPS * prod(x)

    def layer_norm_backward(_: Shape, x: Shape, *__: Any, **___: Any) -> int:
        return LAYER_NORM_FLOPS * prod(x)

    def product(_: Shape, left: Shape, right: Shape, **__: Any) -> int:
        return 2 * prod(left) * right[-1]

    aten = torch.ops.aten
    return FlopCounterMode(
        display=False,
        custom_mapping={
            aten.addmm_: product,
            aten.native_layer_norm: layer_norm,
            aten.native_layer_norm_backward: layer_norm_backward,
        },
    )
