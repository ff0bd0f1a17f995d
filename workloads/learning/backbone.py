# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The backbone: frozen weights in a memory-mapped file that all processes share.

The file is in safetensors format with timm's names, created by seed or from given weights;
`workloads.learning.cached` defines its location.
"""

import json
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor

from testbed.core.errors import InputError
from testbed.system.files import write_whole
from workloads.learning.given import given_weights
from workloads.learning.model import STATISTICS, LoraLinear, SplitModel
from workloads.learning.remarks import HEAD
from workloads.learning.wholeness import check_whole
from workloads.models.chain import is_transposed
from workloads.models.config import ModelConfig
from workloads.models.families import initial_values
from workloads.models.seeds import generator

ALIGNMENT = 64
"""Alignment of tensors in bytes, as far as their sizes allow, so that vector loads do not cross
cache lines."""

LOGIT_SCALE = 2.302585
"""ln 10, the initial logit scale (temperature) of Swin V2's attention."""


def write_backbone(config: ModelConfig, path: Path) -> None:
    """Create a backbone's file in an existing folder.

    Raises:
        InputError: The weights are unavailable or do not fit the model.
    """
    model = SplitModel(config)
    shapes = {name: tuple(tensor.shape) for name, tensor in _tensors(model)}
    given = None if config.weights is None else given_weights(model)
    if not config.train_head or (given is not None and given.has_head):
        shapes |= model.head_shapes
    dtypes = dict.fromkeys(shapes, torch.float32)
    if config.dtype == "bfloat16":
        # Stored in the type of the products; autocast would cast frozen weights in every pass.
        for name, module in model.net.named_modules():
            if isinstance(module, LoraLinear):
                dtypes |= {f"{name}.{part}": torch.bfloat16 for part in ("weight", "bias")}
    source = _by_seed(model) if given is None else given.tensor
    metadata = {HEAD: "" if given is None else given.misfit}

    def fill(part: Path) -> None:
        _write(part, shapes, dtypes, source, metadata)
        check_whole(load_model(config, part))

    write_whole(path, fill)


def _tensors(model: SplitModel) -> Iterator[tuple[str, Tensor]]:
    """The network's own parameters, tied ones under each of their names, and its statistics."""
    yield from model.net.named_parameters(remove_duplicate=False)
    for name, norm in model.norms.items():
        for statistic in STATISTICS:
            yield f"{name}.{statistic}", getattr(norm, statistic)


def load_model(config: ModelConfig, file: Path, device: str = "cpu") -> SplitModel:
    """The model with its frozen weights, mapped from the file, or copied once to a CUDA device.

    Raises:
        InputError: The device does not exist.
    """
    where = torch_device(device)
    model = SplitModel(config)
    with safetensors.safe_open(file, "pt", device=str(where)) as tensors:
        frozen = {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
    trained = [entry.name for entry in (*model.layout.entries, *model.own.entries)]
    model.given = {name: frozen[name] for name in trained if name in frozen}
    head = {name: frozen.pop(name) for name in model.head_shapes if name in frozen}
    if not config.train_head:
        model.attach(head)
    # Statistics are the only buffers in the file.
    model.net.load_state_dict(frozen, assign=True, strict=False)
    for name, buffer in model.buffers_made.items():
        if name in frozen:
            continue
        owner, _, own = name.rpartition(".")
        real = torch.empty_like(buffer, device=where) if buffer.is_meta else buffer.to(where)
        model.net.get_submodule(owner)._buffers[own] = real
    if any(buffer.is_meta for buffer in model.buffers_made.values()):
        for module in model.net.modules():
            make_again: Any = getattr(module, "init_non_persistent_buffers", None)
            if module is not model.net and make_again is not None:
                make_again()
    return model.requires_grad_(False)


def torch_device(name: str) -> torch.device:
    """The device of that name; of `auto`, a GPU if this machine has one, otherwise the CPU.

    Raises:
        InputError: This machine has no such device.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(f"device: {name} does not exist; use cpu, or see `testbed doctor`")
    return device


Source = Callable[[str, tuple[int, ...]], Tensor]
"""Returns the frozen tensor of a given name and shape."""


def _by_seed(model: SplitModel) -> Source:
    own, seed = initial_values(model.config), model.config.seed
    modules = dict(model.net.named_modules())

    def draw(name: str, shape: tuple[int, ...]) -> Tensor:
        if name in own:
            return own[name]
        owner = modules[name.rpartition(".")[0]]
        transposed = owner.is_transposed if isinstance(owner, LoraLinear) else is_transposed(owner)
        if transposed and len(shape) == 2:
            return _random(name, (shape[1], shape[0]), seed).mT
        return _random(min(model.names.get(name, [name])), shape, seed)

    return draw


def _random(name: str, shape: tuple[int, ...], seed: int) -> Tensor:
    """Random weights of a frozen network: normal with variance 1 / fan-in.

    timm's standard deviation of 0.02 is meant for training from scratch. In a frozen network,
    blocks would then have almost no effect, and LoRA could not adapt them.
    """
    own = name.rpartition(".")[2]
    if len(shape) == 1:
        # Normalisation layers, and layer scales: gamma, gamma_1, …
        is_one = own in ("weight", "running_var") or "gamma" in own
        return torch.ones(shape) if is_one else torch.zeros(shape)
    if own == "logit_scale":
        return torch.full(shape, LOGIT_SCALE)
    deviation = 0.02
    if name.endswith("weight"):
        deviation = torch.Size(shape[1:]).numel() ** -0.5
    return torch.empty(shape).normal_(0, deviation, generator=generator(seed, name))


def _write(
    part: Path,
    shapes: dict[str, tuple[int, ...]],
    dtypes: dict[str, torch.dtype],
    source: Source,
    metadata: Mapping[str, str],
) -> None:
    """Write a file tensor by tensor.

    safetensors' writer needs all tensors in memory and aligns them to 8 bytes only.
    """
    header: dict[str, object] = {"__metadata__": metadata}
    size = {
        name: torch.Size(shape).numel() * dtypes[name].itemsize for name, shape in shapes.items()
    }
    # Tensors whose size breaks the alignment go last, so that the others stay aligned.
    order = sorted(shapes, key=lambda name: size[name] % ALIGNMENT != 0)
    end = 0
    for name in order:
        kind = {torch.float32: "F32", torch.bfloat16: "BF16"}[dtypes[name]]
        offsets = [end, end := end + size[name]]
        header[name] = {"dtype": kind, "shape": shapes[name], "data_offsets": offsets}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)

    with part.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            tensor = source(name, shapes[name]).to(dtypes[name]).contiguous()
            file.write(tensor.flatten().view(torch.uint8).numpy().data)
        file.flush()
        os.fsync(file.fileno())
    part.chmod(0o444)
