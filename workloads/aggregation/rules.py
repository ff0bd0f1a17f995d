# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Rules of aggregation: the clients' models of a round become the next global one.

A rule is made once a run from its parameters, and then called with an `Update` after each round.
What it remembers between rounds it keeps in `Update.memory`, which is saved with the global model.
No torch at import: whoever checks a scenario has none.
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
    """What came of a round: vectors of all trainable parameters, shape [P], float64 on the CPU."""

    before: "Tensor"
    """The global model with which the round began."""
    clients: Callable[[], Iterator[tuple[float, "Tensor"]]]
    """Gives each client's weight and its whole model, client by client: |D_k| over the sum of all
    who took part, and its own part beside its server-side set."""
    views: Callable[["Tensor"], Mapping[str, "Tensor"]]
    """The tensors by name over the memory of a vector: `NAME.lora_A` [rank, in], `NAME.lora_B`
    [out, rank], and the head's."""
    memory: dict[str, "Tensor"]
    """What the rule kept of earlier rounds, shape [P], and may change."""

    def mean(self) -> "Tensor":
        """The weighted mean of the clients' models, each element for itself."""
        import torch

        mean = torch.zeros_like(self.before)
        for weight, vector in self.clients():
            mean += weight * vector
        return mean


PROXIMAL = 0.01
"""µ of FedProx where nobody says another."""

Rule = Callable[[Update], "Tensor"]
"""The next global model, shape [P]."""


def fedavg() -> Rule:
    """The weighted mean of A, B and head, each for itself (McMahan et al. 2017)."""
    return Update.mean


def fedprox(mu: float = PROXIMAL) -> Rule:
    """FedAvg of clients whose loss has mu/2 ||w - w_global||² beside it (Li et al. 2020, eq. 2)."""
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
        return update.before - learning_rate * velocity

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
        return update.before + learning_rate * first / (second.sqrt() + tau)

    return rule


def svd() -> Rule:
    """The mean of the products B A, cut to the rank (FlexLoRA, Bai et al. 2024); the head's mean.

    FedAvg of A and of B is not the mean of what they do: the mean of products is no product of
    means. Singular values are shared evenly by both factors.
    """
    return _mean_of_products


def _mean_of_products(update: Update) -> "Tensor":
    import torch

    mean = update.mean()
    models = [(weight, update.views(vector)) for weight, vector in update.clients()]
    into = update.views(mean)
    for name in (n.removesuffix(".lora_A") for n in into if n.endswith(".lora_A")):
        # Stacked side by side, the factors' product is the sum; it never has to be written out.
        b = torch.cat([weight * views[f"{name}.lora_B"] for weight, views in models], dim=1)
        a = torch.cat([views[f"{name}.lora_A"] for _, views in models], dim=0)
        b_basis, b_rest = torch.linalg.qr(b)
        a_basis, a_rest = torch.linalg.qr(a.mT)
        left, values, right = torch.linalg.svd(b_rest @ a_rest.mT)
        kept = min(into[f"{name}.lora_A"].shape[0], int((values > 0).sum()))
        root = values[:kept].sqrt()
        left, right = b_basis @ left[:, :kept] * root, root[:, None] * right[:kept] @ a_basis.mT
        # Singular vectors have no sign of their own: the largest entry of each is positive.
        top = left.abs().argmax(0, keepdim=True)
        sign = torch.where(left.gather(0, top) < 0, -1.0, 1.0).to(left)
        # What is beyond the product's rank learns on from the mean A, whose B is 0.
        into[f"{name}.lora_A"][:kept] = sign.mT * right
        into[f"{name}.lora_B"].zero_()[:, :kept] = sign * left
    return mean


BUILT_IN: dict[str, Callable[..., Rule]] = {
    "fedavg": fedavg,
    "fedprox": fedprox,
    "fedavgm": fedavgm,
    "fedadam": fedadam,
    "svd": svd,
}
AGGREGATORS.add(BUILT_IN)


def rule_of(name: str, parameters: Mapping[str, Any]) -> Rule:
    """The rule of that name: built in, or a package's (`testbed.aggregators`).

    Raises:
        InputError: It has no such parameters, or not these values; or it is unknown, or cannot be
            loaded.
    """
    rule: Rule = AGGREGATORS.make(name, parameters)
    return rule
