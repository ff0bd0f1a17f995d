# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Costs of the splits of a scenario's workload."""

from typing import Any

from orchestrator.scenario.schema import Profile, Scenario
from testbed.core.errors import InputError, RunError
from testbed.core.registry import MODELS, reason
from workloads.costs.lookup import counted, profile_for
from workloads.costs.profile import SplitProfile
from workloads.models.config import ModelConfig


def profile_of(scenario: Scenario) -> SplitProfile:
    """The split profile: given in the scenario, the paper's table II for its model, or counted.

    Raises:
        InputError: There is no such model, or it has no such split.
        RunError: A plug-in model failed.
    """
    workload = scenario.workload
    if isinstance(workload.profile, Profile):
        columns = workload.profile.model_dump().items()
        given: dict[str, Any] = {name: tuple(column) for name, column in columns}
        return SplitProfile(**given)
    count = counted if workload.profile == "counted" else profile_for
    try:
        profile = count(model_of(scenario))
    except InputError:
        raise
    except Exception as error:
        if workload.model not in MODELS.plugins:
            raise
        raise RunError(f"workload.model {workload.model!r}: {reason(error)}") from error
    if (deepest := workload.deepest_split) > profile.splits:
        raise InputError(
            f"workload.split: must be 1 to {profile.splits} for {workload.model}, not {deepest}"
        )
    return profile


def model_of(scenario: Scenario) -> ModelConfig:
    """The model that the scenario trains."""
    workload = scenario.workload
    return ModelConfig(
        workload.model,
        workload.classes,
        rank=workload.lora_rank,
        alpha=workload.lora_alpha,
        image_size=workload.image_size,
        seed=scenario.seed,
        weights=workload.weights,
        head=workload.head,
        dtype=workload.dtype,
        targets=workload.lora_targets,
        adapters=workload.adapters,
        batch_norm=workload.batch_norm,
        dropout=workload.lora_dropout,
        parameters=workload.parameters,
    )
