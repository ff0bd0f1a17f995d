# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Appraisal of a trained state: which classes it confuses, and how well it serves each client."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import safetensors.torch
import torch
from torch import Tensor
from torch.nn import functional

from workloads.data.pictures import Pictures
from workloads.data.samples import ClientData, Dataset, open_data
from workloads.learning.learner import has_own, initial_own, own_tensors, under, with_own
from workloads.learning.model import BS_STATE, UAV_STATE, SplitModel
from workloads.learning.real import Opened, Settings, evaluated_samples
from workloads.models.seeds import generator

MOST_CLASSES = 1000
"""Most classes of a confusion matrix."""


@dataclass(frozen=True)
class ClientAppraisal:
    """How well the last state serves a client."""

    client: int
    samples: int
    """|D_k|, the number of its samples."""
    appraised: int
    """Number of its samples that were used."""
    loss: float
    """Mean cross entropy."""
    accuracy: float


@dataclass(frozen=True)
class Appraisal:
    """How well the last state serves classes and clients."""

    clients: list[ClientAppraisal]
    names: list[str]
    """Names of the classes; empty for tokens."""
    confusion: npt.NDArray[np.int64]
    """Held-out samples by class and predicted class, shape [classes, classes]; if a part of the
    model stays with each client, summed over the clients' models. Shape [0, 0] for tokens."""
    trained: int
    """Number of trained values."""


def appraise(settings: Settings, state: bytes) -> Appraisal:
    """Appraise a state of the server.

    The held-out samples are those of an evaluation. At most `evaluate_samples` of each client's
    training samples are used; they are drawn by the seed.

    Args:
        settings: Settings of learning at the base station.
        state: A result of `RealServer.state`.

    Raises:
        InputError: The data cannot be read.
    """
    opened = Opened.of(settings)
    model, tensors = opened.model, safetensors.torch.load(state)
    views = model.layout.views(model.layout.vector(tensors).to(model.device))
    differ = model.own.size or has_own(settings.training.local_steps)
    clients = [
        _of_client(model, settings, share, views, own_tensors(tensors, share.client))
        for share in opened.shares
    ]
    held_out = open_data(settings.data, settings.model.classes, model.input, train=False)
    names: list[str] = []
    confusion = np.zeros((0, 0), np.int64)
    if isinstance(held_out, Pictures) and held_out.classes <= MOST_CLASSES:
        names = [str(name) for name in held_out.names]
        confusion = np.zeros((held_out.classes, held_out.classes), np.int64)
        for share in opened.shares if differ else opened.shares[:1]:
            _attach(model, settings, views, own_tensors(tensors, share.client))
            chosen = evaluated_samples(len(held_out.labels), settings)
            for _, predicted, labels in _passes(model, settings, held_out, chosen):
                np.add.at(confusion, (labels, predicted), 1)
    return Appraisal(clients, names, confusion, model.layout.size)


def _of_client(
    model: SplitModel,
    settings: Settings,
    share: ClientData,
    views: Mapping[str, Tensor],
    own: dict[str, Tensor],
) -> ClientAppraisal:
    _attach(model, settings, views, own)
    random = np.random.default_rng([settings.data.seed, share.client])
    chosen = random.permutation(share.indices)[: settings.evaluate_samples]
    losses, hits, count = 0.0, 0, 0
    for loss, predicted, labels in _passes(model, settings, share.dataset, chosen, share):
        losses += loss
        hits += int((predicted == labels).sum())
        count += len(labels)
    mean = losses / count if count else math.nan
    accuracy = hits / count if count else math.nan
    return ClientAppraisal(share.client, len(share.indices), len(chosen), mean, accuracy)


def _attach(
    model: SplitModel, settings: Settings, views: Mapping[str, Tensor], own: dict[str, Tensor]
) -> None:
    """Attach the model of a client: the global one with the tensors that stay with the client."""
    states = [under(kind, own) for kind in (UAV_STATE, BS_STATE)]
    model.attach(with_own(views, settings.training.local_steps, states))
    if model.own.size:
        initial = model.own.views(initial_own(model))
        for name, view in initial.items():
            if name in own:  # A state may have more, such as what a local step keeps.
                view.copy_(own[name])
        model.attach(initial)


@torch.no_grad()
def _passes(
    model: SplitModel,
    settings: Settings,
    dataset: Dataset,
    chosen: npt.NDArray[np.int64],
    share: ClientData | None = None,
) -> Iterator[tuple[float, npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Sum of losses, predicted and true classes of each batch; with the noise of a client."""
    for start in range(0, len(chosen), settings.batch_size):
        samples, targets = dataset.batch(chosen[start : start + settings.batch_size])
        if share is not None and share.noise:
            random = generator(share.seed, f"noise {share.client} appraisal {start}")
            samples = samples + share.noise * torch.randn(samples.shape, generator=random)
        labels = targets.to(model.device).flatten()
        logits = model.server(model.client(samples.to(model.device), 1), 1).flatten(0, -2)
        loss = functional.cross_entropy(logits, labels, reduction="sum")
        yield float(loss), logits.argmax(1).cpu().numpy(), labels.cpu().numpy()
