# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The data of a scenario's UAVs before a run: natural clients, and the local iterations that follow
from epochs and from numbers of samples."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import TYPE_CHECKING

from orchestrator.scenario.profiles import data_of, model_of
from orchestrator.scenario.schema import MOST_ITERATIONS, Scenario
from testbed.core.errors import InputError
from workloads.data.clients import Owners, owners_of
from workloads.data.config import DataConfig
from workloads.data.partitions import COLUMN
from workloads.models.config import ModelConfig

if TYPE_CHECKING:
    from workloads.data.samples import ClientData

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


def batches_per_epoch(scenario: Scenario) -> list[int]:
    """Number of batches in one pass over the samples of each UAV.

    Raises:
        InputError: See `shares_of`.
    """
    return [share.batches for share in shares_of(scenario)]


def shares_of(scenario: Scenario) -> "Sequence[ClientData]":
    """The data of each UAV.

    Raises:
        InputError: The data are unavailable or unfit, or a UAV has no full batch of an epoch.
    """
    workload, clients = scenario.workload, range(1, scenario.uavs.count + 1)
    described = json.dumps([asdict(model_of(scenario)), asdict(data_of(scenario))])
    sizes = tuple(int(workload.of_client("batch_size", k)) for k in clients)
    keeps_last = workload.last_batch == "keep" if workload.sampling == "epochs" else None
    return _opened(described, sizes, keeps_last)


def natural_clients(scenario: Scenario) -> Owners | None:
    """The natural clients of the scenario's data; None: it is not divided by them."""
    if (config := data_of(scenario)).partition != COLUMN:
        return None
    metadata = shares_of(scenario)[0].dataset.metadata
    return owners_of(metadata, scenario.uavs.count, config)


@lru_cache(2)
def _opened(
    described: str, sizes: tuple[int, ...], keeps_last: bool | None
) -> "Sequence[ClientData]":
    # Imported here, because these import torch.
    from workloads.data.samples import Passes, client_data, open_data
    from workloads.models.families import chain_of

    model, data = (
        kind(**fields)
        for kind, fields in zip((ModelConfig, DataConfig), json.loads(described), strict=True)
    )
    dataset = open_data(data, model.classes, chain_of(model).input)
    shares = client_data(dataset, data, len(sizes), sizes)
    if keeps_last is None:
        return shares
    return [share.passing(Passes(1, keeps_last)) for share in shares]
