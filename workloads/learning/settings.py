# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a learner is told: plain values that travel to node programs as JSON. No torch here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from workloads.aggregation.rules import PROXIMAL
from workloads.data.config import DataConfig as DataConfig
from workloads.models.config import ModelConfig as ModelConfig

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Environment of who learns: how many threads a node takes, it says itself."""


@dataclass(frozen=True)
class TrainingConfig:
    """How the trainable parameters move. Optimisers restart each round."""

    learning_rate: float = 1e-3
    optimiser: Literal["adamw", "sgd"] = "adamw"
    weight_decay: float = 0.0
    """Zero by default: adapters begin at B A = 0 and few steps follow."""
    momentum: float = 0.9
    """Of `sgd`."""
    server_adapters: Literal["per-client", "shared"] = "per-client"
    """`per-client`: one server-side set a client, averaged at the round's end, so that no order of
    service changes the result. `shared`: one set that every client's batch trains in turn."""
    aggregation: str = "fedavg"
    """One of `testbed.core.registry.AGGREGATORS`."""
    aggregation_parameters: Mapping[str, Any] = field(default_factory=dict)
    asynchronous: Mapping[str, Any] = field(default_factory=dict)
    """Of `workloads.aggregation.staleness.weight`, for asynchronous rounds."""
    recompute: bool = False
    """Keep only the inputs of blocks in the forward pass and compute the rest again in the backward
    pass: less memory, about half as much computing again, the same numbers."""

    @property
    def proximal(self) -> float:
        """µ of FedProx: how strongly clients are held near the global model."""
        if self.aggregation != "fedprox":
            return 0.0
        return float(self.aggregation_parameters.get("mu", PROXIMAL))
