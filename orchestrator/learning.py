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
        image_size=workload.image_size,
        seed=scenario.seed,
        weights=workload.weights,
        dtype=workload.dtype,
    )
    training = TrainingConfig(
        learning_rate=workload.learning_rate,
        optimiser=workload.optimiser,
        weight_decay=workload.weight_decay,
        server_adapters=workload.server_adapters,
        recompute=workload.recompute,
    )
    return {
        "model": asdict(model),
        "training": asdict(training),
        "data": asdict(DataConfig(**workload.data.model_dump(), seed=scenario.seed)),
        "batch_size": workload.batch_size,
        "clients": scenario.uavs.count,
        "backbone": str(backbone_file(model, cache_folder())),
        "wire_dtype": workload.wire_dtype,
        "threads": 1,
    }
