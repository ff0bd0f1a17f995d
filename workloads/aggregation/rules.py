# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Aggregation rules: combine the clients' models of a round into the next global model.

A rule is created once per run from its parameters, and then called with an `Update` after each
round. It keeps its state between rounds in `Update.memory`, which is saved with the global model.
Importing this module does not import torch, which is not needed to check a scenario.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from testbed.core.parameters import number
from testbed.core.registry import AGGREGATORS

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Update:
    """The result of a round: vectors of all trainable parameters, shape [P], float64 on the CPU."""

    before: "Tensor"
    """The global model at the beginning of the round."""
    clients: Callable[[], Iterator[tuple[float, "Tensor"]]]
    """Yields two values for each client: its weight, i.e. |D_k| divided by the sum over all
    participants, and its whole model, i.e. its own part and its server-side set."""
    views: Callable[["Tensor"], Mapping[str, "Tensor"]]
    """Returns views of a vector's tensors by name: `NAME.lora_A` [rank, in], `NAME.lora_B` [out,
    rank], and those of the head."""
    memory: dict[str, Any]
    """State of the rule from earlier rounds; the rule may change it. The values that it stores are
    numbers, or tensors of any shape; in the next round, each is a float64 tensor."""

    def mean(self) -> "Tensor":
        """The element-wise weighted mean of the clients' models."""
        import torch

        mean = torch.zeros_like(self.before)
        for weight, vector in self.clients():
            mean += weight * vector
        return mean


PROXIMAL = 0.01
"""Default µ of FedProx."""

Rule = Callable[[Update], "Tensor"]
"""Computes the next global model, shape [P]."""


def fedavg() -> Rule:
    """The element-wise weighted mean of A, B and head (McMahan et al. 2017)."""
    return Update.mean


def fedprox(mu: float = PROXIMAL) -> Rule:
    """FedAvg of clients with the additional loss mu/2 ||w - w_global||² (Li et al. 2020, eq. 2)."""
    number("mu", mu, 0, math.inf)
    return Update.mean


def fedavgm(momentum: float = 0.9, learning_rate: float = 1.0) -> Rule:
    """Server momentum (Hsu et al. 2019): v <- momentum v + (w - mean), w <- w - learning_rate v."""
    number("momentum", momentum, 0, 1)
    number("learning_rate", learning_rate, 0, math.inf)

    def rule(update: Update) -> "Tensor":
        change = update.before - update.mean()
        velocity = momentum * update.memory.get("velocity", 0 * change) + change
        update.memory["velocity"] = velocity
        after: Tensor = update.before - learning_rate * velocity
        return after

    return rule


def fedadam(
    learning_rate: float = 0.01, beta_1: float = 0.9, beta_2: float = 0.99, tau: float = 1e-3
) -> Rule:
    """Adam at the server on the mean change (Reddi et al. 2021, algorithm 2); v begins at tau²."""
    number("learning_rate", learning_rate, 0, math.inf)
    number("beta_1", beta_1, 0, 1)
    number("beta_2", beta_2, 0, 1)
    number("tau", tau, 1e-12, math.inf)

    def rule(update: Update) -> "Tensor":
        change = update.mean() - update.before
        first = update.memory.get("first", 0 * change)
        second = update.memory.get("second", 0 * change + tau**2)
        update.memory["first"] = first = beta_1 * first + (1 - beta_1) * change
        update.memory["second"] = second = beta_2 * second + (1 - beta_2) * change**2
        after: Tensor = update.before + learning_rate * first / (second.sqrt() + tau)
        return after

    return rule


def svd() -> Rule:
    """The mean of the products B A, truncated to the rank (FlexLoRA, Bai et al. 2024); the head's
    mean.

    FedAvg of A and of B differs from the mean of the products, because the mean of products is not
    the product of means. Singular values are split evenly between both factors.
    """
    return _mean_of_products


def _mean_of_products(update: Update) -> "Tensor":
    import torch

    mean = update.mean()
    models = [(weight, update.views(vector)) for weight, vector in update.clients()]
    into = update.views(mean)
    for name in (n.removesuffix(".lora_A") for n in into if n.endswith(".lora_A")):
        factors = [(weight, _factors(views, name)) for weight, views in models]
        for group, (into_a, into_b) in enumerate(_factors(into, name)):
            # The product of the concatenated factors is the sum, which is never computed.
            b = torch.cat([weight * of_layer[group][1] for weight, of_layer in factors], dim=1)
            a = torch.cat([of_layer[group][0] for _, of_layer in factors], dim=0)
            b_basis, b_rest = torch.linalg.qr(b)
            a_basis, a_rest = torch.linalg.qr(a.mT)
            left, values, right = torch.linalg.svd(b_rest @ a_rest.mT)
            kept = min(into_a.shape[0], int((values > 0).sum()))
            root = values[:kept].sqrt()
            left, right = b_basis @ left[:, :kept] * root, root[:, None] * right[:kept] @ a_basis.mT
            # The sign of singular vectors is arbitrary: make the largest entry of each positive.
            top = left.abs().argmax(0, keepdim=True)
            sign = torch.where(left.gather(0, top) < 0, -1.0, 1.0).to(left)
            # Dimensions beyond the product's rank continue from the mean A with B = 0.
            into_a[:kept] = sign.mT * right
            into_b.zero_()[:, :kept] = sign * left
    return mean


def _factors(views: Mapping[str, "Tensor"], name: str) -> "list[tuple[Tensor, Tensor]]":
    """Views of A [rank, in] and B [out, rank] of a layer, or of each group of a convolution."""
    a, b = views[f"{name}.lora_A"].flatten(1), views[f"{name}.lora_B"].flatten(1)
    groups = a.shape[0] // b.shape[1]
    return list(zip(a.chunk(groups), b.chunk(groups), strict=True))


BUILT_IN: dict[str, Callable[..., Rule]] = {
    "fedavg": fedavg,
    "fedprox": fedprox,
    "fedavgm": fedavgm,
    "fedadam": fedadam,
    "svd": svd,
}
AGGREGATORS.add(BUILT_IN)


def applied(rule: Rule, update: Update) -> "Tensor":
    """The next global model; afterwards, `memory` has tensors that can be saved.

    Raises:
        ValueError: The rule has stored something else in `memory`.
    """
    import torch

    after = rule(update)
    for name, value in update.memory.items():
        if not isinstance(name, str):
            raise ValueError(f"memory[{name!r}]: must have a text as its name")
        try:
            kept = torch.as_tensor(value, dtype=torch.float64, device="cpu")
        except (TypeError, ValueError, RuntimeError):
            kind = type(value).__name__
            raise ValueError(
                f"memory[{name!r}]: must be a number or a tensor, not {kind}"
            ) from None
        update.memory[name] = kept.detach().clone(memory_format=torch.contiguous_format)
    return after


def rule_of(name: str, parameters: Mapping[str, Any]) -> Rule:
    """The rule of that name: built-in or of another package (`testbed.aggregators`).

    Raises:
        InputError: The rule does not take these parameters or values, is unknown, or cannot be
            loaded.
    """
    rule: Rule = AGGREGATORS.make(name, parameters)
    return rule
