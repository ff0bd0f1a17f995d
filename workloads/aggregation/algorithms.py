# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Federated algorithms that correct the drift of clients: SCAFFOLD, FedDyn, FedNova, q-FedAvg.

The papers weight clients equally; here, client k has the weight n_k / n of its samples, as with
FedAvg, which is the same for equal numbers of samples. The model of a client is its whole model:
its own part and its server-side set.
"""

import math
from typing import TYPE_CHECKING

from testbed.core.parameters import number
from workloads.aggregation.local import LocalStep, Part
from workloads.aggregation.rules import Algorithm, Update

if TYPE_CHECKING:
    from torch import Tensor


class ControlVariates(LocalStep):
    """Steps along g - c_k + c (Karimireddy et al. 2020, eq. 3), and option II of their eq. 4:
    c_k <- c_k - c + (x - y_k) / (steps · learning rate)."""

    receives = ("control",)
    sends = ("control_change",)
    remembers = True

    def gradient(self, part: Part) -> None:
        """Correct the gradient."""
        part.gradient.add_(part.received["control"])
        if "control" in part.state:
            part.gradient.sub_(part.state["control"])

    def finish(self, part: Part) -> None:
        """Compute the new c_k, and send its change."""
        slope = part.start - part.values
        if part.steps:
            slope /= part.steps * part.learning_rate
        change = slope - part.received["control"]
        part.state["control"] = part.state.get("control", 0) + change
        part.sent["control_change"] = change


def scaffold(learning_rate: float = 1.0) -> Algorithm:
    """SCAFFOLD (Karimireddy et al. 2020, algorithm 1, option II): x moves by `learning_rate` times
    the clients' mean change, and c by the sum of (n_k / n) times the change of c_k, where n counts
    the samples of all clients."""
    number("learning_rate", learning_rate, 0, math.inf)

    def rule(update: Update) -> "Tensor":
        control = update.memory.get("control", 0 * update.before)
        for sender, sent in zip(update.senders, update.sent(), strict=True):
            control = control + sender.samples / update.all_samples * sent["control_change"]
        update.memory["control"] = control
        after: Tensor = update.before + learning_rate * (update.mean() - update.before)
        return after

    return Algorithm(
        rule, ControlVariates(), needs_clients=True, needs_sgd=True, needs_no_momentum=True
    )


class DynamicRegularisation(LocalStep):
    """The loss L_k(w) - <g_k, w> + alpha/2 ||w - w_global||² (Acar et al. 2021, eq. 1), and
    afterwards g_k <- g_k - alpha (w - w_global)."""

    remembers = True

    def __init__(self, alpha: float) -> None:
        """Keep α, which the caller has checked."""
        self._alpha = alpha

    def gradient(self, part: Part) -> None:
        """Add the gradient of the two terms."""
        part.gradient.add_(part.values - part.start, alpha=self._alpha)
        if "slope" in part.state:
            part.gradient.sub_(part.state["slope"])

    def finish(self, part: Part) -> None:
        """Change g_k."""
        part.state["slope"] = part.state.get("slope", 0) - self._alpha * (part.values - part.start)


def feddyn(alpha: float = 0.01) -> Algorithm:
    """FedDyn (Acar et al. 2021, algorithm 1): h <- h - alpha · sum of (n_k / n) (w_k - w) over the
    senders, where n counts the samples of all clients; w <- mean of w_k - h / alpha."""
    number("alpha", alpha, 1e-12, math.inf)

    def rule(update: Update) -> "Tensor":
        mean = update.mean()
        share = sum(sender.samples for sender in update.senders) / update.all_samples
        h = update.memory.get("h", 0 * mean) - alpha * share * (mean - update.before)
        update.memory["h"] = h
        after: Tensor = mean - h / alpha
        return after

    return Algorithm(rule, DynamicRegularisation(alpha), needs_clients=True)


def fednova() -> Algorithm:
    """FedNova (Wang et al. 2020, eqs. 3 and 4) for SGD with momentum: with a_k the sum of the
    weights of a client's gradients, w moves by the weighted mean of a_k times that of the changes
    (w_k - w) / a_k."""

    def weights(steps: int, momentum: float) -> float:
        """||a||_1 of `steps` steps: `steps` without momentum."""
        geometric = momentum * (1 - momentum**steps) / (1 - momentum)
        return (steps - geometric) / (1 - momentum)

    def rule(update: Update) -> "Tensor":
        lengths = [weights(sender.steps, sender.momentum) for sender in update.senders]
        mean_length = sum(
            sender.weight * length for sender, length in zip(update.senders, lengths, strict=True)
        )
        after = update.before.clone()
        for length, (weight, model) in zip(lengths, update.clients(), strict=True):
            after += weight * mean_length / length * (model - update.before)
        return after

    return Algorithm(rule, needs_clients=True, needs_sgd=True)


def q_fedavg(q: float = 1.0) -> Algorithm:
    """q-FedAvg (Li et al. 2020, algorithm 2) with L = 1 / learning rate: fair between clients, of
    which those with a larger loss F_k of the global model count more. F_k is the loss of the
    client's first batch."""
    number("q", q, 0, math.inf)

    def rule(update: Update) -> "Tensor":
        change, step = 0 * update.before, 0.0
        for sender, (weight, model) in zip(update.senders, update.clients(), strict=True):
            loss, lipschitz = max(sender.losses[0], 1e-10), 1 / sender.learning_rate
            gradient = lipschitz * (update.before - model)
            change += weight * loss**q * gradient
            norm = float(gradient.square().sum())
            step += weight * (q * loss ** (q - 1) * norm + lipschitz * loss**q)
        after: Tensor = update.before - change / step
        return after

    return Algorithm(rule, needs_clients=True)
