# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""FLOPs and bytes of each split, counted on the model on the meta device (no weights, no
computing)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, NamedTuple

import torch
from torch.utils.flop_counter import FlopCounterMode

from workloads.costs.profile import SplitProfile
from workloads.learning.model import SplitModel
from workloads.models.config import ModelConfig

Shape = tuple[int, ...]

FLOAT32_BYTES = 4

LAYER_NORM_FLOPS = 10
"""FLOPs of a LayerNorm per element: twice fvcore's count, which reproduces the paper's table II."""
BATCH_NORM_FLOPS, FROZEN_NORM_FLOPS = 10, 4
"""FLOPs of batch normalisation per element: with the statistics of the batch, or with given ones.
"""


def count(config: ModelConfig) -> SplitProfile:
    """Count products and convolutions (2 FLOP per product and sum, LoRA not merged, attention not
    fused), LayerNorms and batch normalisation.

    Backward passes are counted with the gradients of activations and of trained parameters only.

    Raises:
        InputError: The model is unknown.
    """
    model = SplitModel(replace(config, dtype="float32"))
    layout = model.layout
    for trained in (layout, model.own):
        tensors = trained.views(torch.empty(trained.size, device="meta"))
        for name in tensors.keys() - model.statistics:
            tensors[name].requires_grad_()
        model.attach(tensors)
    norm = FROZEN_NORM_FLOPS if config.batch_norm == "frozen" else BATCH_NORM_FLOPS
    splits = range(1, model.splits + 1)
    # Each part is counted once: the first ones belong to the client, the others to the server.
    parts: list[Flops] = []
    smashed = [model.input.empty(1, "meta")]
    for split in splits:
        flops, out = _passes(partial(_part, model, split), smashed[-1], norm)
        parts.append(flops)
        smashed.append(out.detach().requires_grad_())
    after, _ = _passes(partial(model.server, split=model.splits), smashed[-1], norm)
    client = [_total(parts[:split]) for split in splits]
    if config.adapters == "none":  # A client trains nothing, and needs no gradients.
        client = [Flops(flops.forward, 0) for flops in client]
    server = [_total([*parts[split:], after]) for split in splits]
    return SplitProfile(
        client_forward_flops=tuple(flops.forward for flops in client),
        server_forward_flops=tuple(flops.forward for flops in server),
        client_backward_flops=tuple(flops.backward for flops in client),
        server_backward_flops=tuple(flops.backward for flops in server),
        adapter_bytes=tuple(layout.cuts[split] * FLOAT32_BYTES for split in splits),
        smashed_bytes=tuple(out.numel() * FLOAT32_BYTES for out in smashed[1:]),
        adapter_header_bytes=tuple(len(layout.header(split)) for split in splits),
        labels=model.input.labels,
        trainable_bytes=layout.size * FLOAT32_BYTES,
    )


class Flops(NamedTuple):
    """FLOPs of a forward pass and of its backward pass."""

    forward: int
    backward: int


def _total(parts: Sequence[Flops]) -> Flops:
    return Flops(sum(part.forward for part in parts), sum(part.backward for part in parts))


def _part(model: SplitModel, split: int, x: torch.Tensor) -> torch.Tensor:
    """Compute the part before a split; the first one includes the embedding, which needs no
    gradient."""
    return model.client(x, 1) if split == 1 else model.between(x, split - 1, split)


def _passes(
    pieces: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, norm: int
) -> tuple[Flops, torch.Tensor]:
    with _counter(norm) as forward:
        out = pieces(x)
    with _counter(norm) as backward:
        if out.requires_grad:
            torch.autograd.backward(out, torch.empty_like(out))
    return Flops(forward.get_total_flops(), backward.get_total_flops()), out


def _counter(norm: int) -> FlopCounterMode:
    """A counter of FLOPs, of which batch normalisation has `norm` per element."""

    # Shapes are passed in the order of the operator's arguments.
    def layer_norm(x: Shape, *_: Any, **__: Any) -> int:
        return LAYER_NORM_FLOPS * prod(x)

    def layer_norm_backward(_: Shape, x: Shape, *__: Any, **___: Any) -> int:
        return LAYER_NORM_FLOPS * prod(x)

    def batch_norm(x: Shape, *_: Any, **__: Any) -> int:
        return norm * prod(x)

    def batch_norm_backward(_: Shape, x: Shape, *__: Any, **___: Any) -> int:
        return norm * prod(x)

    def convolution_backward(gradient: Shape, x: Shape, weight: Shape, *rest: Any, **_: Any) -> int:
        # torch's own count for gradients of weights ignores groups.
        transposed, (of_input, of_weight, _bias) = rest[4], rest[7]
        one_pass = 2 * prod(x if transposed else gradient) * prod(weight[1:])
        return int(one_pass * (of_input + of_weight))

    def product(_: Shape, left: Shape, right: Shape, **__: Any) -> int:
        return 2 * prod(left) * right[-1]

    aten = torch.ops.aten
    return FlopCounterMode(
        display=False,
        custom_mapping={
            aten.addmm_: product,
            aten.convolution_backward: convolution_backward,
            aten.native_layer_norm: layer_norm,
            aten.native_layer_norm_backward: layer_norm_backward,
            # The counter decomposes operators of which it does not know the overload.
            aten.native_batch_norm: batch_norm,
            aten.native_batch_norm.default: batch_norm,
            aten.native_batch_norm_backward: batch_norm_backward,
            aten.native_batch_norm_backward.default: batch_norm_backward,
        },
    )
