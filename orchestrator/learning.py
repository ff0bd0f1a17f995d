"""What the nodes are told about the learning, out of a scenario."""

from dataclasses import asdict
from typing import Any

from orchestrator.profiles import profile_of
from orchestrator.scenario import BaseStation, Scenario, Uavs

SLOW_FLOPS = 5e9
"""What a core computes in a second if it is slow or has much else to do."""


def learning_settings(scenario: Scenario) -> dict[str, Any] | None:
    """Settings of `workloads.real` but for `place`, as plain values; None if nothing is learned.

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
    }


def computing_limit_s(scenario: Scenario) -> float:
    """Real seconds after which a round's real computing is given up, all of it on one slow core."""
    workload = scenario.workload
    if workload.compute == "none":
        return 0.0
    profile = profile_of(scenario)
    forward_flops = profile.client_forward_flops[0] + profile.server_forward_flops[0]
    batches = scenario.uavs.count * workload.local_iterations
    # A backward pass takes about as long as the forward pass, and recomputing as long again.
    return batches * workload.batch_size * 3 * forward_flops / SLOW_FLOPS


def place(node: BaseStation | Uavs) -> dict[str, Any]:
    """Where on this machine a node computes: what the settings of each kind of node add."""
    return {"device": node.device, "threads": node.threads}
