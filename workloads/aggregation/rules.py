# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Aggregation rules: combine the clients' models of a round into the next global model.

A rule is created once per run from its parameters, and then called with an `Update` after each
round. It keeps its state between rounds in `Update.memory`, which is saved with the global model.
Importing this module does not import torch, which is not needed to check a scenario.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from testbed.core.parameters import number
from testbed.core.registry import AGGREGATORS, LOCAL_STEPS
from workloads.aggregation.local import LocalStep, Proximal, kept

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Link:
    """The channel between a client and the base station in the slot in which a round begins."""

    gain_up: float
    """Linear power gain of the uplink; NaN where a trace of rates has none."""
    gain_down: float
    uplink_bps: float
    """Rate of the uplink in bit/s with the client's share of this round."""
    downlink_bps: float
    snr_up_db: float
    """Signal-to-noise ratio of the uplink in dB; NaN where a trace of rates has no gains."""
    snr_down_db: float


@dataclass(frozen=True)
class Sender:
    """A client whose model is aggregated, and its training in this round."""

    client: int
    """Number of the client, from 1; at the cloud, number of the edge server."""
    samples: int
    """|D_k|."""
    weight: float
    """|D_k| divided by the sum over all senders."""
    losses: Sequence[float] = ()
    """Mean loss of each batch before its step, in order; the first one is that of the global
    model."""
    steps: int = 0
    """Steps of the optimiser in this round."""
    learning_rate: float = math.nan
    """Learning rate of this round."""
    momentum: float = 0.0
    """Momentum of SGD; 0 for another optimiser."""
    staleness: int = 0
    """Number of changes of the global model since the client received it; 0 in rounds."""
    duration_s: float = math.nan
    """Emulated seconds from the round's start until the adapters arrived; see
    `Algorithm.needs_times`."""
    link: Link | None = None
    """The client's channel; see `Algorithm.needs_times`."""

    @property
    def iterations(self) -> int:
        """Number of batches."""
        return len(self.losses)

    @property
    def loss(self) -> float:
        """Mean loss over the batches of the round; NaN without batches."""
        return sum(self.losses) / len(self.losses) if self.losses else math.nan


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
    round: int = 0
    """Index of the round, from 0."""
    senders: Sequence[Sender] = ()
    """The clients whose models are aggregated, in the order of `clients`."""
    states: Mapping[int, dict[str, Any]] = field(default_factory=dict)
    """State of the rule for every client of the run, by its number, with values as in `memory`."""
    sent: Callable[[], Iterator[Mapping[str, "Tensor"]]] = lambda: iter(())
    """Yields, in the order of `clients`, the vectors [P] by name that a local step has sent with
    each client's model; see `LocalStep.sends`."""
    all_samples: int = 0
    """Sum of |D_k| over all clients of the run, including those that did not take part."""

    def mean(self) -> "Tensor":
        """The element-wise weighted mean of the clients' models."""
        import torch

        mean = torch.zeros_like(self.before)
        for weight, vector in self.clients():
            mean += weight * vector
        return mean


Rule = Callable[[Update], "Tensor"]
"""Computes the next global model, shape [P]."""


@dataclass(frozen=True)
class Algorithm:
    """A rule together with what it asks of clients and of the scenario. It is a rule itself."""

    rule: Rule
    local_step: LocalStep | None = None
    """Actions of clients in addition to their optimiser's steps."""
    needs_clients: bool = False
    """Whether it needs `Update.senders` of UAVs, so that no cloud of edge servers can apply it."""
    needs_times: bool = False
    """Whether it needs `Sender.duration_s` or `Sender.link`, which exist in emulated rounds
    only."""
    needs_sgd: bool = False
    """Whether it divides the change of a client's model by steps of SGD."""
    needs_no_momentum: bool = False
    """Whether these steps must be without momentum."""
    least_clients: int = 1
    """Smallest number of models that it can aggregate."""

    def __call__(self, update: Update) -> "Tensor":
        """The next global model, shape [P]."""
        return self.rule(update)


def fedavg() -> Rule:
    """The element-wise weighted mean of A, B and head (McMahan et al. 2017)."""
    return Update.mean


def fedprox(mu: float = 0.01) -> Rule:
    """FedAvg of clients with the additional loss mu/2 ||w - w_global||² (Li et al. 2020, eq. 2)."""
    return Algorithm(Update.mean, Proximal(mu))


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
    number("beta_2", beta_2, 0, 1)
    return _adaptive(
        *(learning_rate, beta_1, tau), lambda v, square: beta_2 * v + (1 - beta_2) * square
    )


def fedyogi(
    learning_rate: float = 0.01, beta_1: float = 0.9, beta_2: float = 0.99, tau: float = 1e-3
) -> Rule:
    """Yogi at the server on the mean change (Reddi et al. 2021, algorithm 2); v begins at tau²."""
    number("beta_2", beta_2, 0, 1)
    return _adaptive(
        *(learning_rate, beta_1, tau),
        lambda v, square: v - (1 - beta_2) * square * (v - square).sign(),
    )


def fedadagrad(learning_rate: float = 0.01, beta_1: float = 0.0, tau: float = 1e-3) -> Rule:
    """Adagrad at the server on the mean change (Reddi et al. 2021, algorithm 2); v begins at
    tau²."""
    return _adaptive(*(learning_rate, beta_1, tau), lambda v, square: v + square)


def _adaptive(
    learning_rate: float,
    beta_1: float,
    tau: float,
    second_moment: "Callable[[Tensor, Tensor], Tensor]",
) -> Rule:
    """An adaptive optimiser at the server; `second_moment` computes v from its last value and the
    square of the mean change."""
    number("learning_rate", learning_rate, 0, math.inf)
    number("beta_1", beta_1, 0, 1)
    number("tau", tau, 1e-12, math.inf)

    def rule(update: Update) -> "Tensor":
        change = update.mean() - update.before
        first = update.memory.get("first", 0 * change)
        second = update.memory.get("second", 0 * change + tau**2)
        update.memory["first"] = first = beta_1 * first + (1 - beta_1) * change
        update.memory["second"] = second = second_moment(second, change**2)
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


_HERE = "workloads.aggregation"
BUILT_IN: dict[str, Callable[..., Rule] | str] = {
    "fedavg": fedavg,
    "fedprox": fedprox,
    "fedavgm": fedavgm,
    "fedadam": fedadam,
    "fedyogi": fedyogi,
    "fedadagrad": fedadagrad,
    "svd": svd,
    "scaffold": f"{_HERE}.algorithms:scaffold",
    "feddyn": f"{_HERE}.algorithms:feddyn",
    "fednova": f"{_HERE}.algorithms:fednova",
    "q-fedavg": f"{_HERE}.algorithms:q_fedavg",
    "trimmed-mean": f"{_HERE}.robust:trimmed_mean",
    "median": f"{_HERE}.robust:coordinate_median",
    "krum": f"{_HERE}.robust:krum",
    "multi-krum": f"{_HERE}.robust:multi_krum",
}
AGGREGATORS.add(BUILT_IN)


def applied(rule: Rule, update: Update) -> "Tensor":
    """The next global model; afterwards, `memory` and `states` have tensors that can be saved.

    Raises:
        ValueError: The rule has stored something else, or its result is not a vector [P].
    """
    import torch

    after = rule(update)
    if not isinstance(after, torch.Tensor) or after.shape != update.before.shape:
        shape = list(getattr(after, "shape", ())) or type(after).__name__
        raise ValueError(
            f"the rule must return a vector of {len(update.before)} numbers, not {shape}"
        )
    update.memory.update(kept(update.memory, "memory", torch.float64))
    for client, state in update.states.items():
        state.update(kept(state, f"states[{client}]", torch.float64))
    return after


def rule_of(name: str, parameters: Mapping[str, Any]) -> Algorithm:
    """The rule of that name: built-in or of another package (`testbed.aggregators`).

    Raises:
        InputError: The rule does not take these parameters or values, is unknown, or cannot be
            loaded.
    """
    rule: Rule = AGGREGATORS.make(name, parameters)
    return rule if isinstance(rule, Algorithm) else Algorithm(rule)


@lru_cache(maxsize=64)
def _known(name: str, parameters: str) -> Algorithm:
    return rule_of(name, json.loads(parameters))


def algorithm_of(name: str, parameters: Mapping[str, Any]) -> Algorithm:
    """The same as `rule_of`, made once for these parameters: to ask for what it needs."""
    return _known(name, json.dumps(parameters, sort_keys=True))


def local_steps(
    aggregation: str, parameters: Mapping[str, Any], name: str | None, given: Mapping[str, Any]
) -> list[tuple[str, LocalStep]]:
    """The local steps of a scenario with the keys that name them: that of the rule, and its own.

    Raises:
        InputError: The rule or the local step is unknown, cannot be loaded, or does not take these
            parameters.
    """
    found = []
    if (own := rule_of(aggregation, parameters).local_step) is not None:
        found.append((f"workload.aggregation {aggregation!r}", own))
    if name is not None:
        step = LOCAL_STEPS.make(name, given)
        if not isinstance(step, LocalStep):
            raise LOCAL_STEPS.unfit(name, f"is not a LocalStep: {step!r}")
        found.append((f"workload.local_step {name!r}", step))
    return found


@dataclass(frozen=True)
class Travelling:
    """The vectors that accompany adapters, by name, each with the size of the adapters."""

    down: tuple[str, ...] = ()
    """In the broadcast, from `Update.memory`."""
    up: tuple[str, ...] = ()
    """With a client's adapters."""
    stays: bool = False
    """Whether clients keep state from round to round."""
    hides: bool = False
    """Whether clients may send nothing that local steps do not see."""

    @property
    def is_sent(self) -> bool:
        """Whether vectors accompany adapters in a direction."""
        return bool(self.down or self.up)

    @classmethod
    def of(cls, steps: Sequence[tuple[str, LocalStep]]) -> "Travelling":
        """The vectors of these local steps."""
        down = dict.fromkeys(name for _, step in steps for name in step.receives)
        up = dict.fromkeys(name for _, step in steps for name in step.sends)
        return cls(
            tuple(down),
            tuple(up),
            any(step.remembers for _, step in steps),
            any(step.hides for _, step in steps),
        )


@lru_cache(maxsize=64)
def _travelling(text: str) -> Travelling:
    return Travelling.of(local_steps(*json.loads(text)))


def travelling(
    aggregation: str, parameters: Mapping[str, Any], name: str | None, given: Mapping[str, Any]
) -> Travelling:
    """The vectors that accompany adapters with this rule and local step; see `local_steps`."""
    return _travelling(json.dumps([aggregation, parameters, name, given], sort_keys=True))
