# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A Swin whose linear layers carry LoRA, cut after any stage.

The network is timm's, frozen; what trains is one vector (`Layout`): adapters stage by stage, then
the head. A split point u is a place in that vector, so the client's part is always its beginning
and the server's part its end, and when u changes nothing moves but the cut.
"""

import hashlib
import json
import struct
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import timm
import torch
from timm.models.swin_transformer import SwinTransformer
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from testbed.core.errors import InputError
from testbed.core.words import not_one_of
from workloads.learning.settings import ModelConfig

STAGES = 4

OWN_MODELS: dict[str, dict[str, Any]] = {
    "swin_nano_patch4_window4_64": {
        "img_size": 64,
        "patch_size": 4,
        "window_size": 4,
        "embed_dim": 32,
        "depths": (2, 2, 2, 2),
        "num_heads": (1, 2, 4, 8),
    }
}
"""Models too small for timm's list: two blocks a stage, for tests and the quickstart."""


def architecture(config: ModelConfig) -> SwinTransformer:
    """The bare network on the meta device: shapes without memory.

    Raises:
        InputError: No such Swin, or it cannot take that image size.
    """
    options: dict[str, Any] = {"num_classes": config.classes, "drop_path_rate": 0.0}
    if config.image_size is not None:
        options["img_size"] = config.image_size
    with torch.device("meta"):
        if config.model in OWN_MODELS:
            return SwinTransformer(**OWN_MODELS[config.model] | options)
        if not config.model.startswith("swin_") or not timm.is_model(config.model):
            known = [*OWN_MODELS, *timm.list_models("swin_*")]
            raise InputError(f"workload.model: {not_one_of(config.model, known)}")
        net = timm.create_model(config.model, pretrained=False, **options)
    if not isinstance(net, SwinTransformer) or len(net.layers) != STAGES:
        raise InputError(f"workload.model: {config.model!r} is not a Swin of four stages")
    return net


def image_size(config: ModelConfig) -> int:
    """Height and width of the model's input in pixels."""
    return int(architecture(config).patch_embed.img_size[0])


@dataclass(frozen=True)
class Entry:
    """One trainable tensor and its place in the vector."""

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class Layout:
    """Where each trainable tensor stands in the vector of all of them (float32)."""

    entries: tuple[Entry, ...]
    """In the order of the forward pass: adapters stage by stage, A before B, then the head."""
    cuts: tuple[int, ...]
    """cuts[u] is where the server's part begins; cuts[0] = 0."""

    @property
    def size(self) -> int:
        """Number of trainable parameters."""
        return self.entries[-1].stop

    def views(self, part: Tensor, start: int = 0) -> dict[str, Tensor]:
        """Tensors by name, over the memory of a contiguous part of the vector.

        Args:
            part: The elements from `start` on, as many as whole tensors need; shape [n].
            start: Where the part begins in the vector.
        """
        stop = start + part.numel()
        return {
            entry.name: part[entry.start - start : entry.stop - start].view(entry.shape)
            for entry in self.entries
            if start <= entry.start and entry.stop <= stop
        }

    def header(self, split: int) -> bytes:
        """The safetensors header of the client's part; with the part behind it, a whole file."""
        described = {
            entry.name: {
                "dtype": "F32",
                "shape": entry.shape,
                "data_offsets": [4 * entry.start, 4 * entry.stop],
            }
            for entry in self.entries
            if entry.stop <= self.cuts[split]
        }
        text = json.dumps(described, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        return struct.pack("<Q", len(text)) + text

    def vector(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The vector made from tensors by name; shape [size].

        Raises:
            InputError: A tensor is missing, unknown or of another shape.
        """
        expected = {entry.name: entry.shape for entry in self.entries}
        given = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        if given != expected:
            name = next(n for n in expected | given if given.get(n) != expected.get(n))
            raise InputError(
                f"adapters: {name[:80]} must have the shape {expected.get(name, 'none')}, "
                f"not {given.get(name, 'none')}"
            )
        return torch.cat([tensors[name].detach().float().cpu().flatten() for name in expected])


class LoraLinear(nn.Module):
    """A frozen linear layer plus a low-rank product: W x + b + scale · B A x.

    `adapter` is put in by reference (`SplitSwin.attach`): A [rank, in] and B [out, rank], or with a
    leading dimension G for a batch whose rows belong to G clients in equal, consecutive parts.
    """

    adapter: tuple[Tensor, Tensor]

    def __init__(self, linear: nn.Linear, scale: float) -> None:
        super().__init__()
        self.weight = linear.weight
        self.bias = linear.bias
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        """Apply to x [..., in]; answers [..., out]."""
        # The weights' type is the one to multiply in; casts of what trains take gradients back.
        x, a, b = (tensor.to(self.weight.dtype) for tensor in (x, *self.adapter))
        out: Tensor = _LoraProduct.apply(  # type: ignore[no-untyped-call]
            x, self.weight, self.bias, a, b, self.scale
        )
        return out


class _LoraProduct(torch.autograd.Function):
    """The product with its gradients, the low-rank part added in place.

    Written out because autograd would keep and walk three more tensors as large as the output.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, b: Tensor, scale: float
    ) -> Tensor:
        hidden = (_rows(x, a) @ a.mT).mul_(scale)
        y = functional.linear(x, weight, bias)
        _add_product(_rows(y, a), hidden, b.mT)
        ctx.save_for_backward(x, weight, a, b, hidden)
        ctx.scale = scale
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, a, b, hidden = ctx.saved_tensors
        rows = _rows(gradient, a)
        # The orders of factors below are the ones that CPU libraries run fast on so thin matrices:
        # 5 to 8 times so for the gradient of B.
        hidden_gradient = (rows @ b.mT.contiguous().mT).mul_(ctx.scale)
        a_gradient = hidden_gradient.mT @ _rows(x, a)
        b_gradient = (hidden.mT @ rows).mT
        x_gradient = None
        if ctx.needs_input_grad[0]:
            x_gradient = gradient.reshape(-1, gradient.shape[-1]) @ weight
            _add_product(_rows(x_gradient, a), hidden_gradient, a)
            x_gradient = x_gradient.view(x.shape)
        return x_gradient, None, None, a_gradient, b_gradient, None


def _rows(x: Tensor, like: Tensor) -> Tensor:
    """[..., n] as [rows, n], or as [G, rows, n] beside an adapter [G, ...]."""
    return x.reshape(*like.shape[:-2], -1, x.shape[-1])


def _add_product(into: Tensor, left: Tensor, right: Tensor) -> None:
    if into.ndim == 2:
        into.addmm_(left, right)
    else:
        into.baddbmm_(left, right)


class SplitSwin(nn.Module):
    """One frozen Swin that computes either side of any split, with whatever adapters are attached.

    Made on the meta device; `workloads.learning.backbone.load_model` gives it its weights.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.recompute = False
        net = architecture(config)
        self.net = net
        self.image_size = int(net.patch_embed.img_size[0])
        self.loras: dict[str, LoraLinear] = {}
        shapes: dict[str, tuple[int, ...]] = {}
        head = cast(nn.Linear, net.head.fc)
        for name, module in list(net.named_modules()):
            if isinstance(module, nn.Linear) and module is not head:
                self.loras[name] = lora = LoraLinear(module, config.alpha / config.rank)
                net.set_submodule(name, lora)
                shapes[f"{name}.lora_A"] = (config.rank, module.in_features)
                shapes[f"{name}.lora_B"] = (module.out_features, config.rank)
        shapes["head.fc.weight"] = tuple(head.weight.shape)
        shapes["head.fc.bias"] = tuple(head.bias.shape)
        # The head trains, so it is no part of the backbone: its tensors are attached.
        net.head.fc = nn.Identity()
        self.head: tuple[Tensor, Tensor] | None = None
        self.layout = _layout(shapes)
        self.requires_grad_(False)
        self.eval()

    @property
    def device(self) -> torch.device:
        """Where the frozen weights are."""
        return next(self.parameters()).device

    def attach(self, tensors: Mapping[str, Tensor]) -> None:
        """Compute with these adapters (and this head) from now on; by reference.

        Args:
            tensors: By the layout's names; both of a pair. What is not named stays attached.
        """
        for name, a in tensors.items():
            if name.endswith(".lora_A"):
                layer = name.removesuffix(".lora_A")
                self.loras[layer].adapter = (a, tensors[f"{layer}.lora_B"])
        if "head.fc.weight" in tensors:
            self.head = (tensors["head.fc.weight"], tensors["head.fc.bias"])

    def client(self, images: Tensor, split: int) -> Tensor:
        """Patch embedding and the first `split` stages: [B, 3, H, W] to [B, h, w, C]."""
        with self._autocast(images):
            return self._stages(self.net.patch_embed(images).float(), 0, split)

    def server(self, smashed: Tensor, split: int) -> Tensor:
        """The other stages, norm and head: [B, h, w, C] to logits [B, classes], float32."""
        assert self.head is not None, "attach a head first"
        weight, bias = self.head
        with self._autocast(smashed):
            x = self.net.norm(self._stages(smashed.float(), split, STAGES))
            pooled = self.net.head(x)
            if weight.ndim == 2:
                logits = functional.linear(pooled, weight, bias)
            else:
                logits = (_rows(pooled, weight) @ weight.mT + bias.unsqueeze(-2)).flatten(0, 1)
        return logits.float()

    def _stages(self, x: Tensor, start: int, stop: int) -> Tensor:
        for stage in self.net.layers[start:stop]:
            if self.recompute and torch.is_grad_enabled():
                for part in (stage.downsample, *stage.blocks):
                    # Not reentrant: behind a frozen stem the reentrant kind drops gradients.
                    x = checkpoint(part, x, use_reentrant=False, preserve_rng_state=False)
            else:
                x = stage(x)
            # Where a cut may be, values are float32 on both sides of it, cut or not.
            x = x.float()
        return x

    def _autocast(self, x: Tensor) -> AbstractContextManager[Any]:
        if self.config.dtype == "float32":
            return nullcontext()
        return torch.autocast(x.device.type, torch.bfloat16)


def _layout(shapes: Mapping[str, tuple[int, ...]]) -> Layout:
    sizes = [torch.Size(shape).numel() for shape in shapes.values()]
    ends = [0]
    for size in sizes:
        ends.append(ends[-1] + size)
    entries = tuple(
        Entry(name, shape, start, stop)
        for (name, shape), (start, stop) in zip(shapes.items(), pairwise(ends), strict=True)
    )
    cuts = [0]
    for stage in range(STAGES):
        cuts.append(max(e.stop for e in entries if e.name.startswith(f"layers.{stage}.")))
    return Layout(entries, tuple(cuts))


def initial_trainables(layout: Layout, seed: int) -> Tensor:
    """Adapters and head before any training; shape [layout.size], float32, on the CPU.

    A is uniform in ±1/sqrt(in) as in the LoRA reference code, B is 0, the head's weight normal with
    deviation 0.02 and its bias 0. Each tensor is drawn by seed and name, so no order matters.
    """
    vector = torch.zeros(layout.size)
    for name, tensor in layout.views(vector).items():
        if name.endswith(".lora_A"):
            bound = tensor.shape[1] ** -0.5
            tensor.uniform_(-bound, bound, generator=generator(seed, name))
        elif name == "head.fc.weight":
            tensor.normal_(0, 0.02, generator=generator(seed, name))
    return vector


def generator(seed: int, name: str) -> torch.Generator:
    """A random generator of its own for each name."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
