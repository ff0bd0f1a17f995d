# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A network whose linear layers carry LoRA, cut after any of its parts.

The network is frozen; what trains is one vector (`Layout`): adapters part by part, then the head. A
split point u is a place in that vector, so the client's part is always its beginning and the
server's part its end, and when u changes nothing moves but the cut.
"""

import json
import re
import struct
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from testbed.core.errors import InputError
from workloads.learning.settings import ModelConfig
from workloads.models.chain import Chain, Step
from workloads.models.families import chain_of
from workloads.models.seeds import generator

MEMORY = "aggregation."
"""Begins the names of tensors in a state that no model has: what the rule of aggregation keeps."""
MAGNITUDE = "lora_magnitude_vector"
"""Of DoRA, as peft calls it."""
TRACED_SAMPLES = 101
"""A prime, so that a layer whose rows it divides is one that samples pass through."""


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
    """In the order of the forward pass: adapters stage by stage, A, B and the magnitude of each
    layer, then the head."""
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
        given = {
            name: tuple(tensor.shape)
            for name, tensor in tensors.items()
            if not name.startswith(MEMORY)
        }
        if given != expected:
            name = next(n for n in expected | given if given.get(n) != expected.get(n))
            raise InputError(
                f"adapters: {name[:80]} must have the shape {expected.get(name, 'none')}, "
                f"not {given.get(name, 'none')}"
            )
        return torch.cat([tensors[name].detach().float().cpu().flatten() for name in expected])


class Dropout:
    """Which elements of an adapter's input are left out while it trains, for all layers of a model.

    Drawn by seed, layer and batch: the same on either side of any cut, when activations are
    recomputed, and whatever was drawn before.
    """

    def __init__(self, rate: float, seed: int) -> None:
        self._kept = 1 - rate
        self._seed = seed
        self.batches: Sequence[str] = ()
        """Names of the batches whose rows come in equal, consecutive parts; none: all is kept."""

    def noise(self, layer: str, x: Tensor) -> Tensor | None:
        """0, or what makes up for it, for each element of x, as x; None: all is kept."""
        if self._kept == 1 or not self.batches:
            return None
        noise = torch.empty(len(self.batches), x.numel() // len(self.batches))
        for part, batch in zip(noise, self.batches, strict=True):
            part.bernoulli_(self._kept, generator=generator(self._seed, f"{layer} {batch}"))
        return noise.div_(self._kept).view(x.shape).to(x)


class LoraLinear(nn.Module):
    """A frozen linear layer plus a low-rank product: W x + b + scale · B A x.

    `adapter` is put in by reference (`SplitModel.attach`): A [rank, in] and B [out, rank], or with
    a leading dimension G for a batch whose rows belong to G clients in equal, consecutive parts.
    So is the `magnitude` m [out] of DoRA (Liu et al. 2024, eq. 5), where there is one: then it
    computes c (W x + scale · B A x) + b, with c = m over the norms of the rows of W + scale · B A,
    through which no gradient goes (their section 4.3).
    """

    adapter: tuple[Tensor, Tensor]

    def __init__(
        self, linear: nn.Linear, scale: float, name: str = "", dropout: Dropout | None = None
    ) -> None:
        super().__init__()
        self.weight = linear.weight
        self.bias = linear.bias
        self.scale = scale
        self.name = name
        self.dropout = dropout
        self.magnitude: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Apply to x [..., in]; answers [..., out]."""
        # The weights' type is the one to multiply in; casts of what trains take gradients back.
        x, a, b = (tensor.to(self.weight.dtype) for tensor in (x, *self.adapter))
        noise = None if self.dropout is None else self.dropout.noise(self.name, x)
        bias = self.bias if self.magnitude is None else None
        out: Tensor = _LoraProduct.apply(  # type: ignore[no-untyped-call]
            x, self.weight, bias, a, b, self.scale, noise
        )
        if self.magnitude is None:
            return out
        factor = (self.magnitude / self._norms()).to(out.dtype).unsqueeze(-2)
        out = (_rows(out, a) * factor).view(out.shape)
        return out if self.bias is None else out + self.bias

    @torch.no_grad()
    def _norms(self) -> Tensor:
        """Of the rows of W + scale · B A, [out] or [G, out]; never written out for G clients."""
        if self.weight.is_meta:
            # It is computed once a batch, and costs are counted by the sample.
            return torch.empty_like(self.adapter[1][..., 0])
        with torch.autocast(self.weight.device.type, enabled=False):
            weight, (a, b) = self.weight.float(), self.adapter
            cross = (weight @ a.mT * b).sum(-1)
            square = (b @ (a @ a.mT) * b).sum(-1)
            norms: Tensor = torch.linalg.vector_norm(weight, dim=-1)
            return (norms**2 + 2 * self.scale * cross + self.scale**2 * square).sqrt()


class _LoraProduct(torch.autograd.Function):
    """The product with its gradients, the low-rank part added in place.

    Written out because autograd would keep and walk three more tensors as large as the output.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        a: Tensor,
        b: Tensor,
        scale: float,
        noise: Tensor | None,
    ) -> Tensor:
        hidden = (_rows(x if noise is None else x * noise, a) @ a.mT).mul_(scale)
        y = functional.linear(x, weight, bias)
        _add_product(_rows(y, a), hidden, b.mT)
        ctx.save_for_backward(x, weight, a, b, hidden, noise)
        ctx.scale = scale
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, a, b, hidden, noise = ctx.saved_tensors
        rows = _rows(gradient, a)
        # The orders of factors below are the ones that CPU libraries run fast on so thin matrices:
        # 5 to 8 times so for the gradient of B.
        hidden_gradient = (rows @ b.mT.contiguous().mT).mul_(ctx.scale)
        a_gradient = hidden_gradient.mT @ _rows(x if noise is None else x * noise, a)
        b_gradient = (hidden.mT @ rows).mT
        x_gradient = None
        if ctx.needs_input_grad[0]:
            x_gradient = gradient.reshape(-1, gradient.shape[-1]) @ weight
            if noise is None:
                _add_product(_rows(x_gradient, a), hidden_gradient, a)
            else:
                below = (hidden_gradient @ a).view_as(x_gradient)
                x_gradient.addcmul_(below, noise.view_as(x_gradient))
            x_gradient = x_gradient.view(x.shape)
        return x_gradient, None, None, a_gradient, b_gradient, None, None


def _rows(x: Tensor, like: Tensor) -> Tensor:
    """[..., n] as [rows, n], or as [G, rows, n] beside an adapter [G, ...]."""
    return x.reshape(*like.shape[:-2], -1, x.shape[-1])


def _add_product(into: Tensor, left: Tensor, right: Tensor) -> None:
    if into.ndim == 2:
        into.addmm_(left, right)
    else:
        into.baddbmm_(left, right)


class SplitModel(nn.Module):
    """One frozen network that computes either side of any split, with whatever adapters are given.

    Made on the meta device; `workloads.learning.backbone.load_model` gives it its weights.

    Raises:
        InputError: No such model, or it does not keep to what a `Chain` says.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.recompute = False
        chain = chain_of(config)
        self.net = net = chain.net
        self.input = chain.input
        self._embed, self._finish = chain.embed, chain.finish
        self._parts: list[Sequence[Step]] = [
            part if isinstance(part, Sequence | nn.Sequential) else (part,)  # type: ignore[misc]
            for part in chain.parts
        ]
        self.buffers_made = dict(net.named_buffers())
        """What the network computed of itself when it was made; real, whatever the device."""
        net.to("meta")
        net.requires_grad_(False)
        net.eval()
        self.head_name = chain.head
        head = _head_of(chain, config)
        # The head trains, so it is no part of the backbone: its tensors are attached.
        net.set_submodule(chain.head, nn.Identity())
        self.head: tuple[Tensor, Tensor | None] | None = None
        traced = _Traced(self)
        self.feature_shapes = traced.shapes
        """Of one sample's smashed data, for u = 1, 2, …"""
        targets = re.compile(config.targets or "")
        adapted = [
            [name for name in names if targets.search(name)] for names in traced.linear_layers
        ]
        if not adapted[0]:
            raise InputError(
                f"workload.lora_targets: {config.targets!r} leaves the first part of "
                f"{config.model} without an adapter, so a client would have nothing to train"
                if traced.linear_layers[0]
                else f"workload.model: {config.model}: no linear layer in its first part to adapt"
            )
        self.dropout = Dropout(config.dropout, config.seed)
        self.loras: dict[str, LoraLinear] = {}
        shapes: list[dict[str, tuple[int, ...]]] = []
        for names in adapted:
            shapes.append({})
            for name in names:
                module = net.get_submodule(name)
                assert isinstance(module, nn.Linear)
                scale = config.alpha / config.rank
                self.loras[name] = lora = LoraLinear(module, scale, name, self.dropout)
                net.set_submodule(name, lora)
                shapes[-1][f"{name}.lora_A"] = (config.rank, module.in_features)
                shapes[-1][f"{name}.lora_B"] = (module.out_features, config.rank)
                if config.adapters == "dora":
                    shapes[-1][f"{name}.{MAGNITUDE}"] = (module.out_features,)
        shapes[-1] |= {
            f"{chain.head}.{name}": tuple(parameter.shape)
            for name, parameter in head.named_parameters()
        }
        self.layout = _layout(shapes)

    @property
    def splits(self) -> int:
        """How many split points there are: after each part."""
        return len(self._parts)

    @property
    def device(self) -> torch.device:
        """Where the frozen weights are."""
        return next(self.parameters()).device

    def attach(self, tensors: Mapping[str, Tensor], batches: Sequence[str] = ()) -> None:
        """Compute with these adapters (and this head) from now on; by reference.

        Args:
            tensors: By the layout's names; all of a layer. What is not named stays attached.
            batches: What is trained with from now on, by name: see `Dropout`; none: nothing is.
        """
        self.dropout.batches = batches
        for name, a in tensors.items():
            if name.endswith(".lora_A"):
                layer = name.removesuffix(".lora_A")
                self.loras[layer].adapter = (a, tensors[f"{layer}.lora_B"])
                self.loras[layer].magnitude = tensors.get(f"{layer}.{MAGNITUDE}")
        if (weight := tensors.get(f"{self.head_name}.weight")) is not None:
            self.head = (weight, tensors.get(f"{self.head_name}.bias"))

    def client(self, samples: Tensor, split: int) -> Tensor:
        """The embedding and the first `split` parts: [B, ...] to smashed data [B, ...]."""
        with self._autocast(samples):
            return self.between(self._embed(samples).float(), 0, split)

    def server(self, smashed: Tensor, split: int) -> Tensor:
        """The other parts, what comes after them, and the head: logits [B, classes], float32; of
        tokens [B, length, classes]."""
        assert self.head is not None, "attach a head first"
        weight, bias = self.head
        with self._autocast(smashed):
            pooled = self._finish(self.between(smashed.float(), split, self.splits))
            if weight.ndim == 2:
                logits = functional.linear(pooled, weight, bias)
            else:
                logits = _rows(pooled, weight) @ weight.mT
                if bias is not None:
                    logits = logits + bias.unsqueeze(-2)
                logits = logits.reshape(*pooled.shape[:-1], weight.shape[-2])
        return logits.float()

    def between(self, x: Tensor, start: int, stop: int) -> Tensor:
        """The parts after `start` ones and up to the `stop`-th."""
        for part in self._parts[start:stop]:
            for step in part:
                if self.recompute and torch.is_grad_enabled():
                    # Not reentrant: behind a frozen stem the reentrant kind drops gradients.
                    x = checkpoint(step, x, use_reentrant=False, preserve_rng_state=False)
                else:
                    x = step(x)
            # Where a cut may be, values are float32 on both sides of it, cut or not.
            x = x.float()
        return x

    def _autocast(self, x: Tensor) -> AbstractContextManager[Any]:
        if self.config.dtype == "float32":
            return nullcontext()
        return torch.autocast(x.device.type, torch.bfloat16)


def _head_of(chain: Chain, config: ModelConfig) -> nn.Linear:
    """The chain's head, which has to be one for the classes."""
    try:
        head = chain.net.get_submodule(chain.head)
    except AttributeError:
        raise InputError(f"workload.model: {config.model}: has no layer {chain.head!r}") from None
    if any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in chain.net.modules()):
        raise InputError(
            f"workload.model: {config.model} has batch normalisation, whose statistics are no "
            "client's; take a model that normalises each sample"
        )
    if not isinstance(head, nn.Linear) or head.out_features != config.classes:
        raise InputError(
            f"workload.model: {config.model}: its head {chain.head!r} must be a linear layer with "
            f"{config.classes} outputs, not {head}"
        )
    return head


class _Traced:
    """What a pass on the meta device shows: where linear layers are called, and shapes at cuts."""

    def __init__(self, model: SplitModel) -> None:
        self.shapes: list[tuple[int, ...]] = []
        self.linear_layers: list[list[str]] = []
        """Of each part, the embedding with the first, and then of what ends the network; in the
        order of their calls. Those alone that samples pass through when they are called: who takes
        a layer's weights for products of its own leaves no place for an adapter."""
        hooks = [
            module.register_forward_pre_hook(self._noting(name))
            for name, module in model.net.named_modules()
            if isinstance(module, nn.Linear)
        ]
        self._begin_part()
        try:
            with torch.no_grad():
                x = model._embed(model.input.empty(TRACED_SAMPLES, "meta")).float()
                for split in range(model.splits):
                    if split:
                        self._begin_part()
                    x = model.between(x, split, split + 1)
                    self.shapes.append(tuple(x.shape[1:]))
                self._begin_part()
                model._finish(x)
        except Exception as error:
            config, why = model.config, " ".join(str(error).split())[:200]
            if config.image_size is not None:
                raise InputError(
                    f"workload.image_size: {config.model} cannot take {config.image_size} ({why})"
                ) from error
            raise InputError(
                f"workload.model: {config.model} cannot be traced on the meta device "
                f"({type(error).__name__}: {why}); tensors that a network makes for itself have to "
                "be buffers of it"
            ) from error
        finally:
            for hook in hooks:
                hook.remove()
        names = [name for part in self.linear_layers for name in part]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InputError(
                f"workload.model: {model.config.model}: {twice[0]} is called in two parts, so "
                "its adapter would have two owners"
            )

    def _begin_part(self) -> None:
        self.linear_layers.append([])

    def _noting(self, name: str) -> Any:
        def note(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            of_samples = prod(inputs[0].shape[:-1]) % TRACED_SAMPLES == 0
            if of_samples and name not in self.linear_layers[-1]:
                self.linear_layers[-1].append(name)

        return note


def _layout(parts: Sequence[Mapping[str, tuple[int, ...]]]) -> Layout:
    """The layout of tensors given part by part, those of what ends the network last."""
    entries: list[Entry] = []
    cuts, end = [0], 0
    for part in parts:
        for name, shape in part.items():
            entries.append(Entry(name, shape, end, end := end + prod(shape)))
        cuts.append(end)
    # What ends the network is never a client's.
    return Layout(tuple(entries), tuple(cuts[:-1]))


def initial_trainables(
    layout: Layout, seed: int, loras: Mapping[str, LoraLinear] | None = None
) -> Tensor:
    """Adapters and head before any training; shape [layout.size], float32, on the CPU.

    A is uniform in ±1/sqrt(in) as in the LoRA reference code, B is 0, the head's weight normal with
    deviation 0.02 and its bias 0. Each tensor is drawn by seed and name, so no order matters.
    DoRA's magnitudes are the norms of the rows of W, whose layers `loras` has by name.
    """
    vector = torch.zeros(layout.size)
    for name, tensor in layout.views(vector).items():
        if name.endswith(MAGNITUDE):
            weight = (loras or {})[name.removesuffix(f".{MAGNITUDE}")].weight
            tensor.copy_(torch.linalg.vector_norm(weight.float(), dim=-1))
        elif name.endswith(".lora_A"):
            bound = tensor.shape[1] ** -0.5
            tensor.uniform_(-bound, bound, generator=generator(seed, name))
        elif tensor.ndim == 2 and not name.endswith(".lora_B"):
            tensor.normal_(0, 0.02, generator=generator(seed, name))
    return vector
