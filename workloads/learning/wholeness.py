# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Comparison of a chain with its whole network: both must compute the same logits."""

import logging
from typing import Any

import torch
from torch import Tensor, nn

from testbed.core.errors import InputError
from workloads.learning.model import SplitModel, initial_trainables
from workloads.models.chain import Tokens
from workloads.models.seeds import generator

log = logging.getLogger(__name__)

SAMPLES = 2
LARGEST_ERROR = {"float32": 1e-3, "bfloat16": 0.1}
"""Largest norm of the difference of logits, relative to their norm: far more than rounding."""


@torch.no_grad()
def check_whole(model: SplitModel) -> None:
    """Compare the parts of a loaded model with its whole network, on random samples.

    Adapters and head are random and not zero, so that a part that does not use them is found as
    well. A network whose own `forward` cannot be called with samples alone is not compared, and a
    line reports this.

    Raises:
        InputError: The logits differ, or the chain's own `whole` cannot be computed.
    """
    if model.whole is None:
        return
    seed, name = model.config.seed, model.config.model
    vector = initial_trainables(model.layout, seed, model.loras, model.given)
    tensors = model.layout.views(vector)
    for key, tensor in tensors.items():
        if key.endswith(".lora_B") or key in model.head_shapes:
            deviation = tensor.shape[min(1, tensor.ndim - 1)] ** -0.5
            tensor.normal_(0, deviation, generator=generator(seed, f"comparison {key}"))
    model.attach(tensors)
    samples = model.input.empty(SAMPLES, "cpu")
    if isinstance(model.input, Tokens):
        samples.random_(model.input.vocabulary, generator=generator(seed, "comparison"))
    else:
        samples.normal_(generator=generator(seed, "comparison"))
    parts = model.server(model.client(samples, 1), 1)
    why = ""
    try:
        whole = _logits(_whole(model, samples))
        if whole.shape != parts.shape:
            why = f"it answers with shape {tuple(whole.shape)}, not {tuple(parts.shape)}"
        elif not torch.isfinite(whole).all():
            why = "its logits are not finite"
    except Exception as error:  # A network's forward may need more than samples.
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    if why and model.must_be_whole:
        raise InputError(f"workload.model: {name}: `whole` of its chain fails: {why}")
    if why:
        log.info("workload.model: %s: its chain is not compared with its forward (%s)", name, why)
        return
    difference = float((parts - whole).norm() / whole.norm().clamp_min(1e-30))
    if not difference <= LARGEST_ERROR[model.config.dtype]:
        raise InputError(
            f"workload.model: {name}: the parts of its chain compute something else than the whole "
            f"network: their logits differ by {difference:.2g} of their norm"
        )


def _whole(model: SplitModel, samples: Tensor) -> Any:
    """The answer of the whole network, with its head in place."""
    assert model.whole is not None
    assert model.head is not None
    with torch.device("meta"):
        head = nn.Linear(1, 1, bias=model.head[1] is not None)
    for own, tensor in zip(("weight", "bias"), model.head, strict=True):
        if tensor is not None:
            setattr(head, own, nn.Parameter(tensor, False))
    kept = model.net.get_submodule(model.head_name)
    model.net.set_submodule(model.head_name, head)
    try:
        with model.autocast(samples):
            return model.whole(samples)
    finally:
        model.net.set_submodule(model.head_name, kept)


def _logits(answer: Any) -> Tensor:
    """The logits in the output of a network: a tensor, the first of several, or `logits`."""
    answer = getattr(answer, "logits", answer)
    answer = answer[0] if isinstance(answer, tuple | list) else answer
    if not isinstance(answer, Tensor):
        raise TypeError(f"it answers with {type(answer).__name__}, which has no logits")
    return answer.float()
