# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Given weights: safetensors files or timm's pretrained weights, checked against the model.

Every tensor of the weights must belong to the model and have its shape, so that a file of another
model is refused and not used in part.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from testbed.core.errors import InputError
from testbed.core.registry import MODELS
from workloads.learning.model import STATISTICS, SplitModel
from workloads.learning.tensors import read_tensors
from workloads.models.config import ModelConfig
from workloads.models.families import OWN_MODELS, timm_model
from workloads.models.language import weight_files

FIELD = "workload.weights"
COUNTER = "num_batches_tracked"
"""Counter of batches of a layer with batch normalisation, which has no effect here."""
SHOWN = 3
"""Largest number of tensors that a message names."""


@dataclass(frozen=True)
class Given:
    """The tensors of given weights, which fit a model."""

    tensors: Mapping[str, Tensor]
    """Tensors by the model's names; of tied parameters, under at least one of them."""
    names: Mapping[str, tuple[str, ...]]
    """By the name of each parameter: this name, and the others to which it is tied."""
    where: str
    has_head: bool
    """Whether training begins with the head of the weights."""
    misfit: str
    """Difference of the head of the weights from the model's, in words; empty if training begins
    with it, or begins with a new one on request."""

    def tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The tensor of that name in float32.

        Raises:
            InputError: The tensor has another shape, is not floating-point, or has values that are
                not finite.
        """
        found, *others = [own for own in self.names[name] if own in self.tensors]
        tensor = self.tensors[found]
        for other in others:
            if not torch.equal(tensor, self.tensors[other]):
                raise InputError(
                    f"{FIELD}: {found} and {other} are one tensor of the model, and {self.where} "
                    "has different values of them"
                )
        if not tensor.is_floating_point():
            raise InputError(
                f"{FIELD}: {found} of {self.where} has the type {tensor.dtype}, and weights must "
                "be floating-point numbers"
            )
        if tuple(tensor.shape) != shape:
            raise InputError(
                f"{FIELD}: the model needs {name} of shape {shape}; {self.where} has shape "
                f"{tuple(tensor.shape)}"
            )
        tensor = tensor.float()
        if not torch.isfinite(tensor).all():
            raise InputError(
                f"{FIELD}: {found} of {self.where} has values that are not finite float32 numbers"
            )
        if name.endswith(".running_var") and (tensor < 0).any():
            raise InputError(f"{FIELD}: {found} of {self.where} has negative variances")
        return tensor


def given_weights(model: SplitModel) -> Given:
    """The weights that the configuration of a model names.

    Raises:
        InputError: The weights are unavailable, belong to another model, or have no head that fits
            although `head` is `file`; the message is one line.
    """
    config, names, head = model.config, model.names, model.head_name
    assert config.weights is not None
    where, classes = config.weights, None
    if where == "pretrained":
        tensors, classes = _pretrained(config)
    else:
        tensors = {}
        for file in weight_files(Path(where), FIELD):
            tensors |= read_tensors(file, FIELD)
    frozen = {name: p.shape for name, p in model.net.named_parameters(remove_duplicate=False)}
    if not config.train_head:
        frozen |= {name: torch.Size(shape) for name, shape in model.head_shapes.items()}
    for name, norm in model.norms.items():
        frozen |= {f"{name}.{own}": getattr(norm, own).shape for own in STATISTICS}
    names = names | {name: (name,) for name in frozen.keys() - names.keys()}
    tensors = _unwrapped(tensors, [names[name] for name in frozen], where)
    for name, shape in frozen.items():
        if not any(own in tensors for own in names[name]):
            raise InputError(
                f"{FIELD}: {config.model} needs {name} of shape {tuple(shape)}; {where} has nothing"
            )
    known = names.keys() | model.buffers_made.keys()
    # Files of transformers may have buffers of older versions, such as masks.
    skipped = [
        re.compile(p) for p in getattr(model.net, "_keys_to_ignore_on_load_unexpected", None) or ()
    ]
    foreign = [
        name
        for name in tensors
        if name not in known
        and not name.startswith(f"{head}.")
        and not any(pattern.search(name) for pattern in skipped)
    ]
    if foreign:
        shown = ", ".join(foreign[:SHOWN]) + f", … ({len(foreign)})" * (len(foreign) > SHOWN)
        raise InputError(
            f"{FIELD}: {where} belongs to another model; it has tensors that {config.model} does "
            f"not have: {shown}"
        )
    _check_buffers(model, tensors, where)
    if classes in (None, config.classes):
        misfit = _misfit(model, tensors)
    else:  # timm has drawn a head itself.
        misfit = f"has a head of {classes} classes, and workload.classes is {config.classes}"
    if not config.train_head and misfit:
        raise InputError(
            f"{FIELD}: {where} {misfit}; the head is frozen, so that of the weights must fit"
        )
    if config.head == "file" and misfit:
        raise InputError(f"workload.head: is 'file', but {where} {misfit}")
    new = config.head == "new"
    return Given(tensors, names, where, not (misfit or new), "" if new else misfit)


def _unwrapped(
    tensors: dict[str, Tensor], needed: Sequence[Sequence[str]], where: str
) -> dict[str, Tensor]:
    """The tensors without a common prefix such as `model.`, if they have the needed names after
    it; or with one that all needed names have, and they have not."""

    def are_under(prefix: str) -> bool:
        return all(any(prefix + own in tensors for own in names) for names in needed)

    if are_under(""):
        return tensors
    own = needed[0][0].partition(".")[0] + "."
    if all(any(name.removeprefix(own) in tensors for name in names) for names in needed):
        return {f"{own}{name}": tensor for name, tensor in tensors.items()}
    prefixes = {
        name.removesuffix(own) for name in tensors for own in needed[0] if name.endswith(f".{own}")
    }
    fitting = sorted(prefix for prefix in prefixes if are_under(prefix))
    if len(fitting) > 1:
        raise InputError(
            f"{FIELD}: {where} has the model {len(fitting)} times, under {' and '.join(fitting)}"
        )
    return {name.removeprefix(prefix): t for prefix in fitting for name, t in tensors.items()} or (
        tensors
    )


def _misfit(model: SplitModel, tensors: Mapping[str, Tensor]) -> str:
    """Difference of the head of the weights from the model's, in words; empty if it fits."""
    wanted, found = model.head_shapes, {}
    for name in [*wanted, *(n for n in tensors if n.startswith(f"{model.head_name}."))]:
        if own := next((n for n in model.names.get(name, [name]) if n in tensors), ""):
            found[name] = tuple(tensors[own].shape)
    if not found:
        return f"has no head {model.head_name}"
    for name in wanted | found:
        if found.get(name) != wanted.get(name):
            shapes = [each.get(name, "none") for each in (found, wanted)]
            return f"has {name} of shape {shapes[0]}, and that of the model is {shapes[1]}"
    return ""


def _check_buffers(model: SplitModel, tensors: Mapping[str, Tensor], where: str) -> None:
    """Refuse weights with a saved buffer that differs from the one that the model computes."""
    learned = {f"{name}.{own}" for name in model.norms for own in (*STATISTICS, COUNTER)}
    made_anew = model.buffers_made.keys() - learned
    for name in made_anew & model.net.state_dict().keys() & tensors.keys():
        made, found = model.buffers_made[name], tensors[name]
        same = found.shape == made.shape and (
            made.is_meta or torch.allclose(found.float(), made.cpu().float(), 1e-2, equal_nan=True)
        )
        if not same:
            raise InputError(
                f"{FIELD}: {where} has other values of {name}, a buffer, than "
                f"{model.config.model} computes"
            )


def _pretrained(config: ModelConfig) -> tuple[dict[str, Tensor], int | None]:
    """timm's pretrained tensors, and the number of classes for which the head was trained."""
    if config.model in OWN_MODELS or config.model in MODELS.plugins:
        raise InputError(f"{FIELD}: timm has no pretrained weights of {config.model}")
    try:
        net = timm_model(config, pretrained=True)
    except Exception as error:
        # timm and its hub client pass on all exceptions of their network layer.
        raise InputError(
            f"{FIELD}: pretrained weights of {config.model} are unavailable "
            f"({type(error).__name__}); without access to the hub give a safetensors file instead"
        ) from None
    known: Any = getattr(net, "pretrained_cfg", None) or {}
    return net.state_dict(), known.get("num_classes")
