# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A network with adapters or trained as a whole, which can be split after any of its parts.

All trained values are one vector (`Layout`), part by part: adapters, or the network's own
parameters, and the statistics of batch normalisation that are averaged; then the head. The rest is
frozen. A split point u is a position in that vector: the client's part is its beginning, the
server's part its end, and a change of u only moves this position.
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
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from testbed.core.errors import InputError
from workloads.learning.settings import BS_STATE as BS_STATE
from workloads.learning.settings import MEMORY as MEMORY
from workloads.learning.settings import OWN as OWN
from workloads.learning.settings import RULE_STATE as RULE_STATE
from workloads.learning.settings import STATISTICS as STATISTICS
from workloads.learning.settings import UAV_STATE as UAV_STATE
from workloads.learning.settings import ModelConfig
from workloads.models.chain import Chain, Step, is_transposed
from workloads.models.families import chain_of, uncompiled
from workloads.models.seeds import generator

# isort: split
from timm.layers import Conv2dSame
from timm.layers.padding import pad_same

MAGNITUDE = "lora_magnitude_vector"
"""Name of DoRA's magnitude in peft."""
TRACED_SAMPLES = 101
"""Batch size for tracing: a prime, so that layers that process samples are recognised by a number
of rows that it divides."""


@dataclass(frozen=True)
class Entry:
    """A trainable tensor and its position in the vector."""

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int

    @property
    def is_statistic(self) -> bool:
        """Whether the layer itself changes the tensor during training, and no optimiser does."""
        return self.name.rpartition(".")[2] in STATISTICS


@dataclass(frozen=True)
class Layout:
    """Positions of all trainable tensors in one float32 vector."""

    entries: tuple[Entry, ...]
    """Tensors in the order of the forward pass: A, B and the magnitude of each layer, or the
    parameters of each part, followed by its statistics; the final layers with the head come
    last."""
    cuts: tuple[int, ...]
    """cuts[u] is the beginning of the server's part; cuts[0] = 0."""

    @property
    def size(self) -> int:
        """Number of elements of the vector."""
        return self.entries[-1].stop if self.entries else 0

    def spans(self, start: int, stop: int, *, statistics: bool = False) -> list[slice]:
        """The longest runs of parameters, or of statistics, between two positions."""
        runs: list[slice] = []
        for entry in self.entries:
            if start <= entry.start < stop and entry.is_statistic == statistics:
                if runs and runs[-1].stop == entry.start:
                    runs[-1] = slice(runs[-1].start, entry.stop)
                else:
                    runs.append(slice(entry.start, entry.stop))
        return runs

    def parameters(self) -> "Layout":
        """The same tensors without statistics, close together."""
        named = [{e.name: e.shape for e in self.entries if not e.is_statistic}]
        return _layout([*named, {}])

    def views(self, part: Tensor, start: int = 0) -> dict[str, Tensor]:
        """Views of a contiguous part of the vector, by the names of tensors.

        Args:
            part: Elements from `start` on, with whole tensors only; shape [n].
            start: Position of the part in the vector.
        """
        stop = start + part.numel()
        return {
            entry.name: part[entry.start - start : entry.stop - start].view(entry.shape)
            for entry in self.entries
            if start <= entry.start and entry.stop <= stop
        }

    def decoded(self, part: Tensor) -> Tensor:
        """A beginning of the vector that a codec has decoded, with variances that are not negative;
        changed in place."""
        for name, tensor in self.views(part).items():
            if name.endswith(".running_var"):
                tensor.clamp_(min=0)
        return part

    def header(self, split: int) -> bytes:
        """The safetensors header of the client's part; header and part together are a complete
        file."""
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
        """The vector of the given tensors; shape [size].

        Raises:
            InputError: A tensor is missing, unknown or has a wrong shape.
        """
        expected = {entry.name: entry.shape for entry in self.entries}
        given = {
            name: tuple(tensor.shape)
            for name, tensor in tensors.items()
            if not name.startswith((MEMORY, OWN))
        }
        if given != expected:
            name = next(n for n in expected | given if given.get(n) != expected.get(n))
            raise InputError(
                f"adapters: {name[:80]} must have the shape {expected.get(name, 'none')}, "
                f"not {given.get(name, 'none')}"
            )
        found = [tensors[name].detach().float().cpu().flatten() for name in expected]
        return torch.cat(found) if found else torch.zeros(0)


class Dropout:
    """Dropout of adapter inputs during training, for all layers of a model.

    It depends only on seed, layer and batch: it is equal on both sides of a split, in
    recomputation, and independent of earlier random numbers.
    """

    def __init__(self, rate: float, seed: int) -> None:
        self._kept = 1 - rate
        self._seed = seed
        self.batches: Sequence[str] = ()
        """Names of the batches whose rows are equal, consecutive parts; empty: no dropout."""

    def noise(self, layer: str, x: Tensor) -> Tensor | None:
        """Factors with the shape of x: 0 for dropped elements, otherwise the scale; None: no
        dropout."""
        if self._kept == 1 or not self.batches:
            return None
        noise = torch.empty(len(self.batches), x.numel() // len(self.batches))
        for part, batch in zip(noise, self.batches, strict=True):
            part.bernoulli_(self._kept, generator=generator(self._seed, f"{layer} {batch}"))
        return noise.div_(self._kept).view(x.shape).to(x)


class LoraLinear(nn.Module):
    """A frozen linear layer plus a low-rank product: W x + b + scale · B A x.

    `adapter` is set by reference (`SplitModel.attach`): A [rank, in] and B [out, rank], or with a
    leading dimension G for a batch whose rows belong to G clients in equal, consecutive parts.
    So is the optional `magnitude` m [out] of DoRA (Liu et al. 2024, eq. 5): the layer then computes
    c (W x + scale · B A x) + b, where c is m divided by the row norms of W + scale · B A, which are
    detached from the gradient (their section 4.3).
    """

    adapter: tuple[Tensor, Tensor]

    def __init__(
        self, linear: Any, scale: float, name: str = "", dropout: Dropout | None = None
    ) -> None:
        super().__init__()
        self.weight = linear.weight
        self.bias = linear.bias
        self.is_transposed = is_transposed(linear)
        self.scale = scale
        self.name = name
        self.dropout = dropout
        self.magnitude: Tensor | None = None

    @property
    def matrix(self) -> Tensor:
        """W [out, in]."""
        weight: Tensor = self.weight
        return weight.mT if self.is_transposed else weight

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to x [..., in]; returns [..., out]."""
        # Products use the weights' type; gradients flow back through the casts of trainables.
        x, a, b = (tensor.to(self.weight.dtype) for tensor in (x, *self.adapter))
        noise = None if self.dropout is None else self.dropout.noise(self.name, x)
        bias = self.bias if self.magnitude is None else None
        out: Tensor = _LoraProduct.apply(  # type: ignore[no-untyped-call]
            x, self.matrix, bias, a, b, self.scale, noise
        )
        if self.magnitude is None:
            return out
        factor = (self.magnitude / self._norms()).to(out.dtype).unsqueeze(-2)
        out = (_rows(out, a) * factor).view(out.shape)
        return out if self.bias is None else out + self.bias

    @torch.no_grad()
    def _norms(self) -> Tensor:
        """Row norms of W + scale · B A, [out] or [G, out]; for G clients without the full
        matrices."""
        if self.weight.is_meta:
            # Not counted: norms are computed once per batch, and costs are per sample.
            return torch.empty_like(self.adapter[1][..., 0])
        with torch.autocast(self.weight.device.type, enabled=False):
            weight, (a, b) = self.matrix.float(), self.adapter
            cross = (weight @ a.mT * b).sum(-1)
            square = (b @ (a @ a.mT) * b).sum(-1)
            norms: Tensor = torch.linalg.vector_norm(weight, dim=-1)
            return (norms**2 + 2 * self.scale * cross + self.scale**2 * square).sqrt()


class LoraConv(nn.Module):
    """A frozen convolution plus a low-rank one, as peft's: W * x + b + scale · B * A * x.

    A [rank, in, height, width] is a convolution with the kernel, stride, padding and dilation of W,
    but without groups; B [out, rank / groups, 1, 1] has its groups. `adapter` is set by reference
    (`SplitModel.attach`).
    """

    adapter: tuple[Tensor, Tensor]

    def __init__(
        self, conv: nn.Conv2d, scale: float, name: str = "", dropout: Dropout | None = None
    ) -> None:
        super().__init__()
        self.weight = conv.weight
        self.bias = conv.bias
        self.scale = scale
        self.name = name
        self.dropout = dropout
        self.pads_itself = isinstance(conv, Conv2dSame)
        self.stride, self.padding = conv.stride, conv.padding
        self.dilation, self.groups = conv.dilation, conv.groups

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to x [B, in, height, width]."""
        a, b = self.adapter
        noise = None if self.dropout is None else self.dropout.noise(self.name, x)
        low = self._convolved(x if noise is None else x * noise, a, None, 1)
        out = self._convolved(x, self.weight, self.bias, self.groups)
        return out + functional.conv2d(low, b, groups=self.groups) * self.scale

    def _convolved(self, x: Tensor, weight: Tensor, bias: Tensor | None, groups: int) -> Tensor:
        if self.pads_itself:
            x = pad_same(x, list(weight.shape[-2:]), self.stride, self.dilation)
        return functional.conv2d(x, weight, bias, self.stride, self.padding, self.dilation, groups)


Adapter = LoraLinear | LoraConv


class _LoraProduct(torch.autograd.Function):
    """The product of weights and adapters with its gradients; the low-rank part is added in place.

    Autograd would keep and traverse three more tensors of the output's size.
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
        # The orders of factors are those that CPU libraries compute fast for such thin matrices:
        # 5 to 8 times faster for the gradient of B.
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
    """Reshape [..., n] to [rows, n], or to [G, rows, n] for an adapter [G, ...]."""
    return x.reshape(*like.shape[:-2], -1, x.shape[-1])


def _add_product(into: Tensor, left: Tensor, right: Tensor) -> None:
    if into.ndim == 2:
        into.addmm_(left, right)
    else:
        into.baddbmm_(left, right)


class SplitModel(nn.Module):
    """A frozen network that computes either side of any split with the given adapters.

    It is created on the meta device; `workloads.learning.backbone.load_model` loads its weights.

    Raises:
        InputError: The model is unknown, or violates the requirements of `Chain`.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.recompute = False
        self._device: torch.device | None = None
        chain = chain_of(config)
        self.net = net = chain.net
        self.input = chain.input
        self._embed, self._finish, self._logits = chain.embed, chain.finish, chain.logits
        self._parts: list[Sequence[Step]] = [
            part if isinstance(part, Sequence | nn.Sequential) else (part,)  # type: ignore[misc]
            for part in chain.parts
        ]
        self.buffers_made = dict(net.named_buffers())
        """Buffers that the network computed at its creation; those of modules that can compute them
        again may be on the meta device."""
        net.to("meta")
        net.requires_grad_(False)
        net.eval()
        self.head_name = chain.head
        head = _head_of(chain, config)
        _check_buffers(net, self.buffers_made, config)
        has_forward = type(net).forward is not nn.Module.forward
        self.whole = chain.whole or (net.__call__ if has_forward else None)
        """The whole network, with which the chain is compared; None: the chain has none."""
        self.must_be_whole = chain.whole is not None
        """Whether the chain itself has given `whole`."""
        self.names = _tied_names(net)
        """By the name of each parameter, the head's included: this name, and the others to which it
        is tied."""
        # The head may be trained, so it is not part of the network: its tensors are attached.
        net.set_submodule(chain.head, nn.Identity())
        self._refuse_calls(head, chain.head)
        self.head: tuple[Tensor, Tensor | None] | None = None
        """Weight and bias of the head."""
        if not config.train_head:
            self.head = (head.weight, head.bias)
        self.given: dict[str, Tensor] = {}
        """Initial values by the names of both layouts, as far as the backbone's file has them: the
        head of weights that fits, the network's own parameters, and statistics."""
        self.norms = _norms_of(net, config)
        """Layers with batch normalisation that keep statistics, by name."""
        with uncompiled(config):
            traced = _Traced(self)
        self._single = traced.single
        self.feature_shapes = traced.shapes
        """Shape of one sample's smashed data, for u = 1, 2, …"""
        self.dropout = Dropout(config.dropout, config.seed)
        self.loras: dict[str, Adapter] = {}
        self._slots: dict[str, list[tuple[dict[str, Any], str]]] = {}
        """By the name of a tensor of the network that is trained: the dictionaries of its modules
        that hold it, and its name there."""
        self.frozen_layers: list[str] = []
        """Convolutions without an adapter, because their groups do not divide the rank."""
        if config.adapters == "full":
            shapes = self._parameters_of_parts(traced)
        elif config.adapters == "none":
            shapes = [{} for _ in traced.layers]
        else:
            shapes = [self._adapt(names) for names in self._adapted(traced.layers)]
        self.head_shapes = {
            f"{chain.head}.{name}": tuple(parameter.shape)
            for name, parameter in head.named_parameters()
        }
        if config.train_head:
            shapes[-1] |= self.head_shapes
        own: list[dict[str, tuple[int, ...]]] = [{} for _ in shapes]
        if config.batch_norm != "frozen":
            for part, names in enumerate(traced.norms):
                into = shapes if config.batch_norm == "averaged" else own
                for name in names:
                    module = self.norms[name]
                    for statistic in STATISTICS:
                        into[part][f"{name}.{statistic}"] = (module.num_features,)
                        self._slots[f"{name}.{statistic}"] = [(module._buffers, statistic)]
        if config.batch_norm == "local":
            affine = {f"{name}.{each}" for name in self.norms for each in ("weight", "bias")}
            for part, trained in enumerate(shapes):
                staying = {name: trained.pop(name) for name in list(trained) if name in affine}
                own[part] = staying | own[part]
        self.layout = _layout(shapes)
        """Trained tensors that belong to the global model."""
        self.own = _layout(own)
        """Trained tensors that stay with each client, with the same split points; mostly none."""
        self.statistics = frozenset(
            entry.name for entry in (*self.layout.entries, *self.own.entries) if entry.is_statistic
        )

    def _adapted(self, layers: Sequence[Sequence[str]]) -> list[list[str]]:
        """The layers of each part that have adapters."""
        config, pattern = self.config, re.compile(self.config.targets or "")
        kinds = {name: self.net.get_submodule(name) for part in layers for name in part}
        linear = {name for name, module in kinds.items() if not isinstance(module, nn.Conv2d)}
        convolutional = not linear & set(layers[0])
        # A patch embedding is a convolution, too, and has an adapter only if it is named in full.
        written = (config.targets or "").replace("\\", "")
        parts = []
        for index, part in enumerate(layers):
            parts.append(
                [
                    name
                    for name in part
                    if pattern.search(name)
                    and (
                        name in linear
                        or convolutional
                        or (config.targets and (index > 0 or name in written))
                    )
                ]
            )
        for part in parts:
            for name in list(part):
                module = kinds[name]
                if isinstance(module, nn.Conv2d) and config.rank % module.groups:
                    self.frozen_layers.append(name)
                    part.remove(name)
        if not parts[0]:
            raise InputError(self._nothing_adapted(layers[0]))
        return parts

    def _nothing_adapted(self, first: Sequence[str]) -> str:
        config = self.config
        if frozen := [name for name in self.frozen_layers if name in first]:
            return (
                f"workload.lora_rank: {config.rank} is no multiple of the groups of {frozen[0]}, "
                f"so a client of {config.model} would have nothing to train"
            )
        if first:
            return (
                f"workload.lora_targets: {config.targets!r} leaves the first part of "
                f"{config.model} without an adapter, so a client would have nothing to train"
            )
        return (
            f"workload.model: {config.model}: no linear layer or convolution in its first part to "
            "adapt"
        )

    def _adapt(self, names: Sequence[str]) -> dict[str, tuple[int, ...]]:
        """Replace layers by ones with adapters; returns the shapes of the adapters."""
        config, shapes = self.config, dict[str, tuple[int, ...]]()
        scale = config.alpha / config.rank
        for name in names:
            module = self.net.get_submodule(name)
            lora: Adapter
            if isinstance(module, nn.Conv2d):
                if config.adapters == "dora":
                    raise InputError(
                        f"workload.adapters: 'dora' is for linear layers, and {name} of "
                        f"{config.model} is a convolution"
                    )
                lora = LoraConv(module, scale, name, self.dropout)
                into, out = (module.in_channels, *module.kernel_size), module.out_channels
                shapes[f"{name}.lora_A"] = (config.rank, *into)
                shapes[f"{name}.lora_B"] = (out, config.rank // module.groups, 1, 1)
            else:
                lora = LoraLinear(module, scale, name, self.dropout)
                outputs, inputs = lora.matrix.shape
                shapes[f"{name}.lora_A"] = (config.rank, inputs)
                shapes[f"{name}.lora_B"] = (outputs, config.rank)
                if config.adapters == "dora":
                    shapes[f"{name}.{MAGNITUDE}"] = (outputs,)
            self.loras[name] = lora
            self.net.set_submodule(name, lora)
            self._refuse_calls(module, name)
        return shapes

    def _parameters_of_parts(self, traced: "_Traced") -> list[dict[str, tuple[int, ...]]]:
        """The shapes of the network's own parameters, by the part that computes with them.

        Raises:
            InputError: Two parts compute with the same parameter, or the head with a parameter of a
                part.
        """
        shapes: list[dict[str, tuple[int, ...]]] = [{} for _ in traced.layers]
        for name, parameter in self.net.named_parameters():
            parts = [i for i, ids in enumerate(traced.parameters) if id(parameter) in ids]
            tied = [n for n in self.names[name] if n.startswith(f"{self.head_name}.")]
            if len(parts) > 1 or (parts and tied):
                other = "another part" if len(parts) > 1 else f"the head {self.head_name}"
                raise InputError(
                    f"workload.adapters: 'full' needs parameters of one part each, and {name} of "
                    f"{self.config.model} belongs to {other}, too"
                )
            if parts:  # Others have no effect, and no gradient.
                shapes[parts[0]][name] = tuple(parameter.shape)
                holders = []
                for each in self.names[name]:
                    owner, _, own = each.rpartition(".")
                    holders.append((self.net.get_submodule(owner)._parameters, own))
                self._slots[name] = holders
        return shapes

    def _refuse_calls(self, module: nn.Module, name: str) -> None:
        """Refuse that a chain calls a module that has been replaced in its network."""

        def refuse(*_: object) -> None:
            raise InputError(
                f"workload.model: {self.config.model}: the chain has kept the layer {name!r}, "
                "which the testbed replaces; it must find the layer in the network when it calls it"
            )

        module.register_forward_pre_hook(refuse)

    def check_batch_size(self, samples: int) -> None:
        """Check that batches of this size can be trained with.

        Raises:
            InputError: Batch normalisation would normalise a single value.
        """
        if samples == 1 and self._single and self.config.batch_norm != "frozen":
            raise InputError(
                f"workload.batch_size: must be 2 or more, because {self._single[0]} of "
                f"{self.config.model} normalises one value per sample"
            )

    @property
    def splits(self) -> int:
        """Number of split points: one after each part."""
        return len(self._parts)

    @property
    def device(self) -> torch.device:
        """Device of the frozen weights, which are loaded as a whole."""
        if self._device is None or self._device.type == "meta":
            self._device = next(self.parameters()).device
        return self._device

    def attach(self, tensors: Mapping[str, Tensor], batches: Sequence[str] = ()) -> None:
        """Use these tensors, by reference: adapters or parameters, statistics, the head.

        Args:
            tensors: Tensors by the names of the layouts, with all tensors of a layer; others are
                unchanged.
            batches: Names of the batches to train with, see `Dropout`; empty: no training. In
                training, batches are normalised with their own statistics, unless these are
                frozen, and the forward pass updates the running ones.
        """
        self.dropout.batches = batches
        for norm in self.norms.values():
            norm.training = bool(batches) and self.config.batch_norm != "frozen"
        for name, a in tensors.items():
            if name.endswith(".lora_A"):
                layer = name.removesuffix(".lora_A")
                lora = self.loras[layer]
                lora.adapter = (a, tensors[f"{layer}.lora_B"])
                if isinstance(lora, LoraLinear):
                    lora.magnitude = tensors.get(f"{layer}.{MAGNITUDE}")
            for holder, own in self._slots.get(name, ()):
                # Statistics change during a pass, and autograd must not take that for a change of
                # the parameters in the same vector.
                holder[own] = a.data if name in self.statistics else a
        if (weight := tensors.get(f"{self.head_name}.weight")) is not None:
            self.head = (weight, tensors.get(f"{self.head_name}.bias"))

    def client(self, samples: Tensor, split: int) -> Tensor:
        """Compute the embedding and the first `split` parts: samples [B, ...] to smashed data."""
        with self.autocast(samples):
            return self.between(self._embed(samples).float(), 0, split)

    def server(self, smashed: Tensor, split: int) -> Tensor:
        """Compute the other parts, the final layers and the head: float32 logits [B, classes], or
        [B, length, classes] for tokens."""
        assert self.head is not None, "call attach with a head first"
        weight, bias = self.head
        with self.autocast(smashed):
            pooled = self._finish(self.between(smashed.float(), split, self.splits))
            if weight.ndim == 2:
                logits = functional.linear(pooled, weight, bias)
            else:
                logits = _rows(pooled, weight) @ weight.mT
                if bias is not None:
                    logits = logits + bias.unsqueeze(-2)
                logits = logits.reshape(*pooled.shape[:-1], weight.shape[-2])
            logits = logits if self._logits is None else self._logits(logits)
        return logits.float()

    def between(self, x: Tensor, start: int, stop: int) -> Tensor:
        """Compute parts `start` + 1 to `stop`."""
        for part in self._parts[start:stop]:
            for step in part:
                if self.recompute and torch.is_grad_enabled():
                    # Reentrant checkpoints would drop gradients behind a frozen stem.
                    x = checkpoint(step, x, use_reentrant=False, preserve_rng_state=False)
                else:
                    x = step(x)
            # Values at possible split points are always float32, split or not.
            x = x.float()
        return x

    def autocast(self, x: Tensor) -> AbstractContextManager[Any]:
        """The context of computing in the type of the configuration."""
        if self.config.dtype == "float32":
            return nullcontext()
        return torch.autocast(x.device.type, torch.bfloat16)


def _head_of(chain: Chain, config: ModelConfig) -> nn.Linear:
    """The chain's head, after a check that it fits the number of classes."""
    try:
        head = chain.net.get_submodule(chain.head)
    except AttributeError:
        raise InputError(f"workload.model: {config.model}: has no layer {chain.head!r}") from None
    if not isinstance(head, nn.Linear) or head.out_features != config.classes:
        raise InputError(
            f"workload.model: {config.model}: its head {chain.head!r} must be a linear layer with "
            f"{config.classes} outputs, not {head}"
        )
    return head


def _norms_of(net: nn.Module, config: ModelConfig) -> dict[str, _BatchNorm]:
    """Layers with batch normalisation that keep statistics, by name."""
    norms = {
        name: module
        for name, module in net.named_modules()
        if isinstance(module, _BatchNorm) and module.running_mean is not None
    }
    for name, module in norms.items():
        if module.momentum is None:
            raise InputError(
                f"workload.model: {config.model}: its batch normalisation {name} averages over all "
                "batches; it must have a momentum"
            )
    return norms


def _check_buffers(net: nn.Module, made: Mapping[str, Tensor], config: ModelConfig) -> None:
    """Refuse buffers without values, which nothing can compute again."""
    for name, buffer in made.items():
        owner = net.get_submodule(name.rpartition(".")[0])
        if isinstance(owner, _BatchNorm):
            continue  # Statistics are in the backbone's file.
        if buffer.is_meta and not hasattr(owner, "init_non_persistent_buffers"):
            raise InputError(
                f"workload.model: {config.model}: its buffer {name} is on the meta device and has "
                "no values"
            )


def _tied_names(net: nn.Module) -> dict[str, tuple[str, ...]]:
    """For each parameter, by name: its name, and the other names of the same tensor."""
    groups: dict[int, list[str]] = {}
    for name, parameter in net.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(name)
    return {
        name: (name, *(other for other in group if other != name))
        for group in groups.values()
        for name in group
    }


class _Traced:
    """Result of a traced pass on the meta device: layers of each part, and shapes at splits."""

    def __init__(self, model: SplitModel) -> None:
        self.shapes: list[tuple[int, ...]] = []
        self.layers: list[list[str]] = []
        """Names of the called linear layers and convolutions of each part and of the final layers,
        in order; the embedding belongs to the first part. Only layers whose input are samples: a
        module that uses the weights of a layer directly cannot have an adapter there."""
        self.norms: list[list[str]] = []
        """Names of the called layers in `SplitModel.norms`, of each part and of the final layers.
        """
        self.single: list[str] = []
        """Names of those layers whose input has one value per sample and channel."""
        self.parameters: list[set[int]] = []
        """Identities of the parameters on which the result of each part depends, if all are
        trained."""
        own = model.net
        hooks = [
            module.register_forward_pre_hook(self._noting(name, name in model.norms))
            for name, module in own.named_modules()
            if name in model.norms or _is_adaptable(module)
        ]
        trains_all = model.config.adapters == "full"
        own.requires_grad_(trains_all)
        self._begin_part()
        try:
            with torch.set_grad_enabled(trains_all):
                x = model._embed(model.input.empty(TRACED_SAMPLES, "meta")).float()
                for split in range(model.splits):
                    if split:
                        self._begin_part()
                    x = self._end_part(own, model.between(x, split, split + 1))
                    self.shapes.append(tuple(x.shape[1:]))
                self._begin_part()
                self._end_part(own, model._finish(x))
        except InputError:
            raise
        except Exception as error:
            config, why = model.config, " ".join(str(error).split())[:200]
            if config.image_size is not None:
                raise InputError(
                    f"workload.image_size: {config.model} cannot take {config.image_size} ({why})"
                ) from error
            raise InputError(
                f"workload.model: {config.model} cannot be traced on the meta device "
                f"({type(error).__name__}: {why}); tensors that a network creates itself must "
                "be registered as buffers"
            ) from error
        finally:
            for hook in hooks:
                hook.remove()
            own.requires_grad_(False)
        names = [name for part in (*self.layers, *self.norms) for name in part]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InputError(
                f"workload.model: {model.config.model}: {twice[0]} is called in two parts, so "
                "what it trains would have two owners"
            )

    def _begin_part(self) -> None:
        self.layers.append([])
        self.norms.append([])

    def _end_part(self, net: nn.Module, out: Tensor) -> Tensor:
        """Note the parameters of a part; returns its result for the next part."""
        used: set[int] = set()
        if out.requires_grad:
            known = list(net.parameters())
            found = torch.autograd.grad(out, known, torch.empty_like(out), allow_unused=True)
            used = {id(p) for p, g in zip(known, found, strict=True) if g is not None}
        self.parameters.append(used)
        return out.detach()

    def _noting(self, name: str, is_norm: bool) -> Any:
        into = self.norms if is_norm else self.layers

        def note(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            of_samples = is_norm or prod(inputs[0].shape[:-1]) % TRACED_SAMPLES == 0
            if of_samples and name not in into[-1]:
                into[-1].append(name)
            if is_norm and prod(inputs[0].shape[2:]) == 1:
                self.single.append(name)

        return note


def _is_adaptable(module: nn.Module) -> bool:
    """Whether a layer can have an adapter."""
    if isinstance(module, nn.Conv2d):
        return type(module) in (nn.Conv2d, Conv2dSame) and module.padding_mode == "zeros"
    return isinstance(module, nn.Linear) or is_transposed(module)


def _layout(parts: Sequence[Mapping[str, tuple[int, ...]]]) -> Layout:
    """The layout of tensors given part by part, with those of the final layers last."""
    entries: list[Entry] = []
    cuts, end = [0], 0
    for part in parts:
        for name, shape in part.items():
            entries.append(Entry(name, shape, end, end := end + prod(shape)))
        cuts.append(end)
    # The final layers never belong to a client.
    return Layout(tuple(entries), tuple(cuts[:-1]))


def initial_trainables(
    layout: Layout,
    seed: int,
    loras: Mapping[str, Adapter] | None = None,
    given: Mapping[str, Tensor] | None = None,
) -> Tensor:
    """Initial trained values; shape [layout.size], float32, on the CPU.

    A is uniform in ±1/sqrt(in) as in the LoRA reference code, where a convolution has as many
    inputs as values of a kernel; B is 0, the head's weight is normal with standard deviation 0.02
    and its bias 0. Each tensor depends only on seed and name, not on an order. DoRA's magnitudes
    are the row norms of W; `loras` has these layers by name. Tensors in `given` are copied: a head,
    the network's own parameters, statistics.
    """
    vector = torch.zeros(layout.size)
    for name, tensor in layout.views(vector).items():
        if given and name in given:
            tensor.copy_(given[name])
        elif name.endswith(MAGNITUDE):
            weight = (loras or {})[name.removesuffix(f".{MAGNITUDE}")].matrix
            tensor.copy_(torch.linalg.vector_norm(weight.float(), dim=-1))
        elif name.endswith(".lora_A"):
            bound = prod(tensor.shape[1:]) ** -0.5
            tensor.uniform_(-bound, bound, generator=generator(seed, name))
        elif tensor.ndim == 2 and not name.endswith(".lora_B"):
            tensor.normal_(0, 0.02, generator=generator(seed, name))
    return vector
