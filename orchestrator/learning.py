"""What the nodes are told about the learning, out of a scenario."""

from dataclasses import asdict
from typing import Any

from orchestrator.scenario import Scenario


def learning_settings(scenario: Scenario) -> dict[str, Any] | None:
    """Settings of `workloads.real` as plain values; None where nothing is learned.

    Builds the backbone's file if it is not there yet.

    Raises:
        InputError: The model or its weights cannot be had.
    """
    workload = scenario.workload
    if workload.compute == "none":
        return None
    from workloads.backbone import backbone_file
    from workloads.profile import cache_folder
    from workloads.settings import DataConfig, ModelConfig, TrainingConfig

    model = ModelConfig(
        workload.model,
        workload.classes,
        rank=workload.lora_rank,
        alpha=workload.lora_alpha,
        seed=scenario.seed,
    )
    return {
        "model": asdict(model),
        "training": asdict(
            TrainingConfig(
                learning_rate=workload.learning_rate, server_adapters=workload.server_adapters
            )
        ),
        "data": asdict(DataConfig(seed=scenario.seed)),
        "batch_size": workload.batch_size,
        "clients": scenario.uavs.count,
        "backbone": str(backbone_file(model, cache_folder())),
        "threads": 1,
    }
