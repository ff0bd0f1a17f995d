# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Local iterations that follow from epochs and from the clients' numbers of samples."""

import json
from dataclasses import asdict
from functools import lru_cache

from orchestrator.scenario.profiles import data_of, model_of
from orchestrator.scenario.schema import MOST_ITERATIONS, Scenario
from testbed.core.errors import InputError
from workloads.data.config import DataConfig
from workloads.models.config import ModelConfig

KEY = "workload.local_epochs"


def iterations_of_epochs(scenario: Scenario) -> int | list[int]:
    """Local iterations per round of each UAV, for `workload.local_epochs`; one number if all UAVs
    have the same.

    Raises:
        InputError: The data are unavailable or unfit, a UAV has no full batch, or there are too
            many iterations.
    """
    clients = range(1, scenario.uavs.count + 1)
    epochs = [int(scenario.workload.of_client("local_epochs", k)) for k in clients]
    counts = [e * n for e, n in zip(epochs, batches_per_epoch(scenario), strict=True)]
    if (most := max(counts)) > MOST_ITERATIONS:
        one = counts.index(most)
        raise InputError(
            f"{KEY}: {epochs[one]} makes {most} iterations of uav{one + 1}; at most "
            f"{MOST_ITERATIONS} are possible"
        )
    return most if len(set(counts)) == 1 else counts


def batches_per_epoch(scenario: Scenario) -> tuple[int, ...]:
    """Number of batches in one pass over the samples of each UAV.

    Raises:
        InputError: The data are unavailable or unfit, or a UAV has no full batch.
    """
    workload, clients = scenario.workload, range(1, scenario.uavs.count + 1)
    described = json.dumps([asdict(model_of(scenario)), asdict(data_of(scenario))])
    sizes = tuple(int(workload.of_client("batch_size", k)) for k in clients)
    return _counted(described, sizes, workload.last_batch == "keep")


@lru_cache(64)
def _counted(described: str, sizes: tuple[int, ...], keeps_last: bool) -> tuple[int, ...]:
    # Imported here, because these import torch.
    from workloads.data.samples import Passes, client_data, open_data
    from workloads.models.families import chain_of

    model, data = (
        kind(**fields)
        for kind, fields in zip((ModelConfig, DataConfig), json.loads(described), strict=True)
    )
    dataset = open_data(data, model.classes, chain_of(model).input)
    shares = client_data(dataset, data, len(sizes), sizes)
    return tuple(share.passing(Passes(1, keeps_last)).batches for share in shares)
