# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a validation is asked for, and what came of it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import binomtest

from orchestrator.engine.plan import Array
from orchestrator.scenario.schema import Scenario
from orchestrator.studies.validation.region import Region
from orchestrator.studies.validation.shrink import plain
from orchestrator.studies.validation.space import Space
from orchestrator.studies.validation.worker import ROUNDING
from orchestrator.theory.models import Said

TOLERANCE = 0.05
"""Relative error up to which a model that states a value counts as right."""
RESAMPLES = 1000
"""Of the bootstrap that intervals of means and quantiles come from."""


@dataclass(frozen=True)
class Asked:
    """What is to be validated, and how."""

    scenario: Scenario
    model: str
    space: Space
    samples: int = 4000
    packets: int | None = None
    """Points that ns-3's packets play; None: a hundredth of the samples."""
    kernel: int = 0
    """Points that the kernel's links play."""
    tolerance: float | None = None
    """Relative error up to which the model is right; None: none for bounds, else `TOLERANCE`."""
    metric: str | None = None
    """What is held against the model; None: what the model is of."""
    seed: int = 1

    def to_json(self) -> dict[str, Any]:
        """As plain values; equal ones have equal results."""
        return {
            "scenario": self.scenario.model_dump(mode="json"),
            "model": self.model,
            "space": self.space.model_dump(mode="json", exclude_none=True),
            "samples": self.samples,
            "packets": self.packets,
            "kernel": self.kernel,
            "tolerance": self.tolerance,
            "metric": self.metric,
            "seed": self.seed,
        }


@dataclass(frozen=True)
class Validation:
    """What came of it."""

    asked: Asked
    metric: str
    keys: list[dict[str, Any]]
    """Of the design's points."""
    values: dict[str, Array]
    """What each execution says, by name, shape [N]; not a number where it was not asked."""
    said: list[Said | None]
    """What the model says."""
    region: Region
    sensitivity: list[dict[str, Any]]
    """Keys, the one that moves the error most first."""
    counterexample: Scenario | None
    worst: dict[str, Any]
    """The worst case as it was found, the simple one, and where their errors come from."""
    kernel_runs: list[dict[str, Any]]

    def errors(self, execution: str) -> Array:
        """Model over an execution, less 1, shape [N]; see `Said.error`."""
        found = [
            math.nan if said is None or not math.isfinite(value) else said.error(value)
            for said, value in zip(self.said, self.values[execution], strict=True)
        ]
        errors = np.array(found)
        return np.where(np.abs(errors) < ROUNDING, 0.0, errors)

    @property
    def is_interval(self) -> bool:
        """Whether the model bounds."""
        return any(said is not None and said.is_interval for said in self.said)

    def distribution(self, execution: str) -> dict[str, Any]:
        """What the errors are like, each figure with its 95 % interval."""
        errors = self.errors(execution)
        errors = errors[np.isfinite(errors)]
        if not len(errors):
            return {"points": 0}
        right = np.abs(errors) <= self.region.tolerance
        found: dict[str, Any] = {
            "points": len(errors),
            "within_tolerance": _share(int(right.sum()), len(errors)),
        }
        if self.is_interval:
            found["coverage"] = _share(int((errors == 0).sum()), len(errors))
        size = np.abs(errors)
        for name, values, of in (
            ("mean", errors, np.mean),
            ("mean_size", size, np.mean),
            ("median_size", size, np.median),
            ("p95_size", size, lambda part, axis: np.quantile(part, 0.95, axis=axis)),
        ):
            found[name] = _bootstrapped(values, of, self.asked.seed)
        return found | {"largest": float(errors[size.argmax()])}

    def to_json(self) -> dict[str, Any]:
        """Everything; what others read in it keeps its names."""
        return {
            "model": self.asked.model,
            "metric": self.metric,
            "samples": self.asked.samples,
            "seed": self.asked.seed,
            "errors": {name: _listed(self.errors(name)) for name in self.values},
            "distribution": {name: self.distribution(name) for name in self.values},
            "region": {
                "tolerance": self.region.tolerance,
                "rules": self.region.texts(),
                "share": self.region.share,
                "held_out_share": self.region.held_out_share,
                "held_out": self.region.held_out,
            },
            "sensitivity": self.sensitivity,
            "counterexample": {} if self.counterexample is None else plain(self.counterexample),
            "worst": self.worst,
            "kernel": self.kernel_runs,
            "space": self.asked.space.model_dump(mode="json", exclude_none=True),
            "points": self.keys,
            "scenario": self.asked.scenario.model_dump(mode="json"),
        }


def _listed(values: Array) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values.tolist()]


def _share(count: int, total: int) -> dict[str, float]:
    interval = binomtest(count, total).proportion_ci(method="wilson")
    return {"value": count / total, "low": float(interval.low), "high": float(interval.high)}


def _bootstrapped(values: Array, of: Callable[..., Any], seed: int) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    found = np.concatenate(
        [
            of(values[rng.integers(len(values), size=(50, len(values)))], axis=1)
            for _ in range(RESAMPLES // 50)
        ]
    )
    low, high = np.quantile(found, [0.025, 0.975])
    return {"value": float(of(values, axis=0)), "low": float(low), "high": float(high)}
