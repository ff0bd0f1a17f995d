# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Rules that withstand some clients with arbitrary models. They do not weight by samples, because
a client could claim any number of them."""

import math
from typing import TYPE_CHECKING

from testbed.core.parameters import number
from workloads.aggregation.rules import Algorithm, Update

if TYPE_CHECKING:
    from torch import Tensor


def _models(update: Update, least: int) -> "Tensor":
    """The clients' models, shape [n, P].

    Raises:
        ValueError: There are fewer than `least`.
    """
    import torch

    models = torch.stack([model for _, model in update.clients()])
    if len(models) < least:
        raise ValueError(f"the rule needs at least {least} models, and {len(models)} arrived")
    return models


def trimmed_mean(share: float = 0.1) -> Algorithm:
    """The mean of each coordinate without its largest and smallest values, ⌊share · n⌋ of each of
    n (Yin et al. 2018, definition 2)."""
    number("share", share, 1e-6, 0.5)
    least = math.ceil(1 / share - 1e-9)

    def rule(update: Update) -> "Tensor":
        models = _models(update, least)
        trimmed = math.floor(share * len(models) + 1e-9)
        return models.sort(0).values[trimmed : len(models) - trimmed].mean(0)

    return Algorithm(rule, least_clients=least)


def median(update: Update) -> "Tensor":
    """The median of each coordinate; of an even number, the mean of the middle two."""
    models = _models(update, 1).sort(0).values
    count = len(models)
    return (models[(count - 1) // 2] + models[count // 2]) / 2


def coordinate_median() -> Algorithm:
    """The coordinate-wise median (Yin et al. 2018, definition 1)."""
    return Algorithm(median)


def krum(attackers: int = 1) -> Algorithm:
    """The model with the smallest sum of squared distances to its n - attackers - 2 nearest models
    (Blanchard et al. 2017)."""
    return multi_krum(attackers, 1)


def multi_krum(attackers: int = 1, chosen: int | None = None) -> Algorithm:
    """The mean of the `chosen` best models of `krum`; default: n - attackers of them."""
    number("attackers", attackers, 0, 10**6, whole=True)
    if chosen is not None:
        number("chosen", chosen, 1, 10**6, whole=True)
    least = max(2 * attackers + 3, attackers + (chosen or 1))

    def rule(update: Update) -> "Tensor":
        import torch

        models = _models(update, least)
        near = len(models) - attackers - 2
        # Without the matrix of products, whose differences would lose digits.
        distances = torch.stack([(models - each).square().sum(1) for each in models])
        # The smallest distance of each model is that to itself.
        scores = distances.sort(1).values[:, 1 : near + 1].sum(1)
        best = scores.argsort(stable=True)[: chosen or len(models) - attackers]
        return models[best.sort().values].mean(0)

    return Algorithm(rule, least_clients=least)
