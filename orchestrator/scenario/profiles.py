# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Costs of the splits of a scenario's workload."""

from dataclasses import replace
from typing import Any

from orchestrator.scenario.schema import Profile, Scenario
from testbed.core.errors import InputError, RunError
from testbed.core.registry import MODELS, reason
from workloads.costs.lookup import counted, profile_for
from workloads.costs.profile import RankedProfile, SplitProfile
from workloads.data.config import DataConfig
from workloads.models.config import ModelConfig


def profile_of(scenario: Scenario) -> SplitProfile:
    """The split profile: given in the scenario, the paper's table II for its model, or counted.

    Raises:
        InputError: There is no such model, or it has no such split.
        RunError: A plug-in model failed.
    """
    workload = scenario.workload
    if isinstance(workload.profile, Profile):
        columns = workload.profile.model_dump()
        trainable_bytes = columns.pop("trainable_bytes", None) or 0
        given: dict[str, Any] = {name: tuple(column) for name, column in columns.items()}
        return SplitProfile(**given, trainable_bytes=trainable_bytes)
    # The paper's table is for one rank.
    differ = workload.differs("lora_rank")
    count = counted if workload.profile == "counted" or differ else profile_for
    model = model_of(scenario)
    try:
        profile = count(model)
        if differ:
            ranks = {workload.of_client("lora_rank", k + 1) for k in range(scenario.uavs.count)}
            by_rank = {rank: count(replace(model, rank=rank)) for rank in sorted(ranks)}
            profile = RankedProfile(**vars(profile), by_rank=by_rank)
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
    """The model that the scenario trains.

    Raises:
        InputError: There is no such language model.
    """
    workload = scenario.workload
    language, parameters, weights = workload.language, workload.parameters, workload.weights
    if language is not None:
        length = workload.sequence_length
        parameters = {"config": dict(language.configuration), "length": length}
        if language.folder is not None:
            parameters["folder"] = str(language.folder)
        if weights in (None, "pretrained"):
            weights = language.weights
        if workload.head == "file" and weights is None:
            raise InputError(f"workload.head: 'file' needs weights, and {workload.model} has none")
    return ModelConfig(
        workload.model,
        workload.classes,
        rank=workload.largest("lora_rank"),
        alpha=workload.lora_alpha,
        image_size=workload.image_size,
        seed=scenario.seed,
        weights=weights,
        head=workload.head,
        dtype=workload.dtype,
        targets=workload.lora_targets,
        adapters=workload.adapters,
        batch_norm=workload.batch_norm,
        dropout=workload.lora_dropout,
        parameters=parameters,
        train_head=workload.trains_head,
    )


def data_of(scenario: Scenario) -> DataConfig:
    """The data that the scenario trains on; texts of a language model have its own tokenizer if
    none is given and it has one."""
    workload = scenario.workload
    given = workload.data.model_dump()
    if workload.language is not None and workload.data.tokenizer is None:
        given["tokenizer"] = workload.language.tokenizer
    return DataConfig(**given, seed=scenario.seed)
