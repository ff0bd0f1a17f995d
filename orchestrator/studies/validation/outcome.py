# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The request for a validation, and its result."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from orchestrator.analysis.statistics import resampled, share_of
from orchestrator.analytical.models import ModelResult
from orchestrator.engine.plan import Array
from orchestrator.scenario.schema import Scenario
from orchestrator.studies.validation.region import Region
from orchestrator.studies.validation.shrink import plain
from orchestrator.studies.validation.space import Space
from orchestrator.studies.validation.worker import ROUNDING

if TYPE_CHECKING:
    import pandas as pd

TOLERANCE = 0.05
"""Default relative tolerance of models that give a value."""
FEWEST_SOBOL = 64
"""Least number of rows of Saltelli's two designs: with fewer, the intervals are meaningless."""


@dataclass(frozen=True)
class Request:
    """The model to validate, and how to do it."""

    scenario: Scenario
    model: str
    space: Space
    samples: int = 4000
    packets: int | None = None
    """Number of points for ns-3's packets; None: 1 % of the samples."""
    kernel: int = 0
    """Number of points for the kernel's links."""
    tolerance: float | None = None
    """Tolerated relative error; None: 0 for bounds, else `TOLERANCE`."""
    metric: str | None = None
    """Metric to compare; None: the model's."""
    seed: int = 1

    @property
    def base_samples(self) -> int:
        """Number of rows of each of Saltelli's two designs, a power of 2."""
        return max(FEWEST_SOBOL, 1 << int(math.log2(max(self.samples, 8) / 8)))

    def to_json(self) -> dict[str, Any]:
        """The request as JSON values; equal requests have equal results."""
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
    """Result of a validation."""

    request: Request
    metric: str
    keys: list[dict[str, Any]]
    """Values of the keys at the design's points."""
    values: dict[str, Array]
    """By method: values of the metric, shape [N]; NaN if a point was not evaluated."""
    results: list[ModelResult | None]
    """The model's results at the points; None if it does not apply."""
    region: Region
    sensitivity: list[dict[str, Any]]
    """Sensitivity by key, the largest first."""
    counterexample: Scenario | None
    worst: dict[str, Any]
    """The case with the largest error that a search found, and the causes of its error. `keys` are
    the values of the space's keys in the worst case of the space, and `simplest` is that case
    simplified. If its error is larger, it is the worst case, and `in_space` is the space's."""
    kernel_runs: list[dict[str, Any]]

    def errors(self, execution: str) -> Array:
        """Relative errors of the model against a method, shape [N]; see `ModelResult.error`."""
        found = [
            math.nan if result is None or not math.isfinite(value) else result.error(value)
            for result, value in zip(self.results, self.values[execution], strict=True)
        ]
        errors = np.array(found)
        return np.where(np.abs(errors) < ROUNDING, 0.0, errors)

    @property
    def is_interval(self) -> bool:
        """Whether the model gives bounds."""
        return any(result is not None and result.is_interval for result in self.results)

    def distribution(self, execution: str) -> dict[str, Any]:
        """Statistics of the errors, each with its 95 % interval; null where nothing varied."""
        errors = self.errors(execution)
        errors = errors[np.isfinite(errors)]
        if not len(errors):
            return {"points": 0}
        right = np.abs(errors) <= self.region.tolerance
        found: dict[str, Any] = {
            "points": len(errors),
            "within_tolerance": share_of(int(right.sum()), len(errors)).to_json(),
        }
        if self.is_interval:
            found["coverage"] = share_of(int((errors == 0).sum()), len(errors)).to_json()
        size = np.abs(errors)
        for name, values, of in (
            ("mean", errors, np.mean),
            ("mean_size", size, np.mean),
            ("median_size", size, np.median),
            ("p95_size", size, lambda part, axis: np.quantile(part, 0.95, axis=axis)),
        ):
            found[name] = resampled(values, of, self.request.seed).to_json()
        return found | {"largest": float(errors[size.argmax()])}

    def frames(self) -> "dict[str, pd.DataFrame]":
        """The results as tidy tables.

        methods: statistics of the errors by method, with the ends of their 95 % intervals.
        points: values of the keys, and by method the metric and the relative error. sensitivity:
        see `sensitivity`.
        """
        import pandas as pd

        methods = pd.json_normalize(
            [{"method": name, **self.distribution(name)} for name in self.values], sep="_"
        )
        points = pd.DataFrame(self.keys)
        for name, values in self.values.items():
            points[f"{name}_{self.metric}"] = values
            points[f"{name}_error"] = self.errors(name)
        return {
            "methods": methods,
            "points": points,
            "sensitivity": pd.DataFrame(self.sensitivity),
        }

    def to_json(self) -> dict[str, Any]:
        """The results as JSON values; keys are kept for other programs that read them."""
        return {
            "model": self.request.model,
            "metric": self.metric,
            "samples": self.request.samples,
            "seed": self.request.seed,
            "errors": {name: _listed(self.errors(name)) for name in self.values},
            "distribution": {name: self.distribution(name) for name in self.values},
            "region": {
                "tolerance": self.region.tolerance,
                "rules": self.region.texts(),
                "share": self.region.share,
                "held_out_share": self.region.held_out_share,
                "held_out": self.region.held_out,
                "held_out_interval": self.region.checked.to_json(),
                "confirmed": self.region.is_confirmed,
            },
            "sensitivity": self.sensitivity,
            "counterexample": {} if self.counterexample is None else plain(self.counterexample),
            "worst": self.worst,
            "kernel": self.kernel_runs,
            "space": self.request.space.model_dump(mode="json", exclude_none=True),
            "points": self.keys,
            "scenario": self.request.scenario.model_dump(mode="json"),
        }


def _listed(values: Array) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values.tolist()]
