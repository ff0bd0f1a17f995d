# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Settings of learning: plain values that are sent to node programs as JSON, without torch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from workloads.aggregation.local import LocalStep
from workloads.aggregation.rules import Travelling, local_steps
from workloads.data.config import DataConfig as DataConfig
from workloads.models.config import ModelConfig as ModelConfig

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Environment variables of learning processes, whose number of threads is set by the settings."""
MEMORY = "aggregation."
"""Prefix of the names of tensors in a state that belong to the aggregation rule, not to the
model."""
OWN = "clients."
"""Prefix of the names of tensors in a state that belong to one client: `clients.K.NAME`."""
RULE_STATE = MEMORY + "@"
"""Prefix of those that belong to one client: `aggregation.@K.NAME`."""
UAV_STATE, BS_STATE = "@uav.", "@bs."
"""Prefixes of the state of a client's local steps on both sides: `clients.K.@uav.NAME`."""
STATISTICS = "running_mean", "running_var"
"""Names of the statistics of a layer with batch normalisation."""


@dataclass(frozen=True)
class TrainingConfig:
    """Configuration of training. Optimisers are reset in each round."""

    learning_rate: float = 1e-3
    optimiser: Literal["adamw", "sgd"] = "adamw"
    weight_decay: float = 0.0
    """Zero by default, because adapters begin at B A = 0 and train for few steps."""
    momentum: float = 0.9
    """Momentum of `sgd`."""
    schedule: Literal["constant", "cosine", "step", "linear"] = "constant"
    """Schedule of the learning rate over the rounds, see `factor`."""
    warmup: int = 0
    """Rounds in which the learning rate rises."""
    step_rounds: int = 1
    """Rounds after which `step` multiplies the learning rate by `decay`."""
    decay: float = 0.1
    last: float = 0.0
    """Share of the learning rate that `cosine` and `linear` approach at the end of the run."""
    rounds: int = 1
    """Rounds of the run."""
    clip_norm: float | None = None
    """Largest 2-norm of the gradient of one side, to which longer ones are scaled."""
    accumulate: int = 1
    """Batches per step of the optimiser, whose gradients are averaged."""
    server_adapters: Literal["per-client", "shared", "averaged"] = "per-client"
    """`per-client`: one server-side set per client, averaged at the end of the round, so that the
    result does not depend on the service order. `averaged`: the same, also averaged after each
    iteration. `shared`: one set, trained by all clients' batches."""
    aggregation: str = "fedavg"
    """One of `testbed.core.registry.AGGREGATORS`."""
    aggregation_parameters: Mapping[str, Any] = field(default_factory=dict)
    local_step: str | None = None
    """One of `testbed.core.registry.LOCAL_STEPS`, in addition to that of the rule."""
    local_step_parameters: Mapping[str, Any] = field(default_factory=dict)
    asynchronous: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of `workloads.aggregation.staleness.weight`, for asynchronous runs."""
    buffer: int = 1
    """Number of updates after which the global model of an asynchronous run changes."""
    server_learning_rate: float = 1.0
    """Factor of the mean difference of buffered updates."""
    recompute: bool = False
    """Whether to store only the inputs of blocks in the forward pass and recompute the rest in the
    backward pass: less memory, about 50 % more computing, identical results."""

    learning_rates: Sequence[float] = ()
    """Learning rate of each client, for both sides; empty: `learning_rate` for all."""
    ranks: Sequence[int] = ()
    """Rank of each client's adapters, at most that of the model; empty: that of the model."""
    seed: int = 0
    """Seed of what local steps draw."""

    def of(self, client: int) -> "TrainingConfig":
        """The configuration of a client, from 1, with its learning rate."""
        if not self.learning_rates:
            return self
        return replace(self, learning_rate=self.learning_rates[client - 1], learning_rates=())

    def rank_of(self, client: int) -> int | None:
        """Rank of a client's adapters, from 1; None: that of the model."""
        return self.ranks[client - 1] if self.ranks else None

    def factor(self, round_: int) -> float:
        """The learning rate of a round as a share of `learning_rate`.

        In round r < W of the warm-up it is (r + 1) / (W + 1). With e the number of rounds since
        the warm-up and E those from its end to the end of the run, the others have torch's values:
        `cosine` of CosineAnnealingLR, last + (1 - last) (1 + cos(π e / E)) / 2; `linear` of
        LinearLR, 1 + (last - 1) e / E; `step` of StepLR, decay^⌊e / step_rounds⌋.
        """
        if round_ < self.warmup:
            return (round_ + 1) / (self.warmup + 1)
        since = round_ - self.warmup
        if self.schedule == "step":
            return float(self.decay ** (since // self.step_rounds))
        share = min(1.0, since / max(1, self.rounds - self.warmup))
        if self.schedule == "cosine":
            return self.last + (1 - self.last) * (1 + math.cos(math.pi * share)) / 2
        if self.schedule == "linear":
            return 1 + (self.last - 1) * share
        return 1.0

    @property
    def local_steps(self) -> list[tuple[str, LocalStep]]:
        """The local steps, with the keys that name them."""
        return local_steps(
            *(self.aggregation, self.aggregation_parameters),
            *(self.local_step, self.local_step_parameters),
        )

    @property
    def travelling(self) -> Travelling:
        """The vectors that accompany adapters."""
        return Travelling.of(self.local_steps)
