# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Partitions: how the samples of a data set are distributed to the clients.

A partition is a function of the labels [N], the number of clients K, a random generator and its
parameters. It returns K arrays with indices of samples, one for each client. A plug-in with a
parameter `metadata` also gets the columns that describe the samples. Importing this module does not
import torch, which is not needed to check a scenario.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.core.errors import InputError
from testbed.core.registry import PARTITIONS, failures
from workloads.data.clients import Metadata, owners_of
from workloads.data.config import DataConfig

NO_METADATA: Metadata = MappingProxyType({})
METADATA = "metadata"
"""Parameter with which a plug-in asks for the columns that describe the samples."""
COLUMN = "column"
Indices = npt.NDArray[np.int64]
Partition = Callable[..., Sequence[Indices]]

DRAWS = 1000
"""Largest number of draws until every client has a sample."""


def iid(labels: Indices, clients: int, random: np.random.Generator) -> list[Indices]:
    """Shuffled samples, distributed evenly."""
    return [np.sort(part) for part in np.array_split(random.permutation(len(labels)), clients)]


def dirichlet(
    labels: Indices, clients: int, random: np.random.Generator, concentration: float = 0.5
) -> list[Indices]:
    """Label skew: each class is divided by proportions from Dir(concentration) (Hsu et al. 2019).

    The draw is repeated until every client has a sample.
    """
    for _ in range(DRAWS):
        parts: list[list[Indices]] = [[] for _ in range(clients)]
        for label in np.unique(labels):
            members = random.permutation(np.flatnonzero(labels == label))
            shares = random.dirichlet(np.full(clients, concentration))
            cuts = np.round(np.cumsum(shares)[:-1] * len(members)).astype(int)
            for part, piece in zip(parts, np.split(members, cuts), strict=True):
                part.append(piece)
        joined = [np.sort(np.concatenate(part)) for part in parts]
        if all(map(len, joined)):
            return joined
    # A class with fewer samples than clients leaves the same clients out, if proportions are even.
    raise InputError(
        f"workload.data: {len(labels)} samples cannot give each of {clients} clients 1; use "
        "another data.concentration, fewer UAVs or 'iid'"
    )


def quantity(
    labels: Indices, clients: int, random: np.random.Generator, concentration: float = 0.5
) -> list[Indices]:
    """Quantity skew: all samples are divided by proportions from Dir(concentration) (Li et al.
    2022); the draw is repeated until every client has a sample."""
    return dirichlet(np.zeros_like(labels), clients, random, concentration)


def shards(
    labels: Indices, clients: int, random: np.random.Generator, shards: int = 2
) -> list[Indices]:
    """Label skew with clients of equal size: samples are sorted by label and cut into equal shards,
    and each client gets some of them at random (McMahan et al. 2017)."""
    if len(labels) < clients * shards:
        raise InputError(
            f"workload.data.shards: {len(labels)} samples cannot make {clients * shards} shards, "
            f"{shards} for each of {clients} clients"
        )
    by_label = random.permutation(len(labels))
    by_label = by_label[np.argsort(labels[by_label], kind="stable")]
    pieces = np.array_split(by_label, clients * shards)
    dealt = random.permutation(clients * shards).reshape(clients, shards)
    return [np.sort(np.concatenate([pieces[piece] for piece in own])) for own in dealt]


BUILT_IN: dict[str, Partition] = {
    "iid": iid,
    "dirichlet": dirichlet,
    "quantity": quantity,
    "shards": shards,
    COLUMN: iid,  # Needs the metadata, see `partition`.
    "feature": iid,  # Clients' images differ by noise, see `workloads.data.samples.client_data`.
}
PARTITIONS.add(BUILT_IN)


def check_partition(name: str, parameters: Mapping[str, Any]) -> None:
    """Refuse an unknown partition, or parameters that it does not take.

    Raises:
        InputError: The message names the key.
    """
    if parameters and name in BUILT_IN:
        raise InputError(
            f"workload.data.partition_parameters: are those of a plug-in; {name!r} has the keys "
            "workload.data.concentration, workload.data.shards and workload.data.noise"
        )
    if METADATA in parameters:
        raise InputError(f"workload.data.partition_parameters.{METADATA}: is given by the testbed")
    PARTITIONS.check(name, dict(parameters, **_asked_for(name, NO_METADATA)))


def _asked_for(name: str, metadata: Metadata) -> dict[str, Metadata]:
    """The metadata by the name of the parameter, if the partition has this parameter."""
    if name in BUILT_IN or METADATA not in inspect.signature(PARTITIONS.function(name)).parameters:
        return {}
    return {METADATA: metadata}


def partition(
    labels: Indices, clients: int, config: DataConfig, metadata: Metadata = NO_METADATA
) -> list[Indices]:
    """Indices of each client's samples, one array per client.

    Args:
        labels: Labels of the samples, shape [N].
        clients: Number of clients, K.
        config: Partition, its parameters and the seed.
        metadata: Columns that describe the samples.

    Raises:
        InputError: There are too few samples for the number of clients, or a plug-in's partition
            fails or does not return indices for each client.
    """
    if len(labels) < clients:
        raise InputError(
            f"workload.data: {len(labels)} samples cannot give each of {clients} clients 1"
        )
    random, name = np.random.default_rng([config.seed, 0x9A47]), config.partition
    if name == COLUMN:
        owners = owners_of(metadata, clients, config)
        return [np.flatnonzero(owners.of_sample == one) for one in owners.chosen]
    if name in ("dirichlet", "quantity"):
        return list(BUILT_IN[name](labels, clients, random, config.concentration))
    if name == "shards":
        return shards(labels, clients, random, config.shards)
    if name in BUILT_IN:
        return list(BUILT_IN[name](labels, clients, random))
    parameters = dict(config.partition_parameters, **_asked_for(name, metadata))
    parts = PARTITIONS.make(name, parameters, labels.copy(), clients, random)
    with failures(f"workload.data.partition: {name!r}", InputError):
        return _checked(parts, len(labels), clients)


def _checked(parts: Sequence[Any], samples: int, clients: int) -> list[Indices]:
    """A plug-in's answer, sorted.

    Raises:
        ValueError: The result is not one array of different indices for each client.
    """
    arrays = [np.asarray(part) for part in parts]
    if len(arrays) != clients:
        raise ValueError(f"must return {clients} arrays, one for each client, not {len(arrays)}")
    for client, part in enumerate(arrays, start=1):
        if part.ndim != 1 or part.dtype.kind not in "iu" or not len(part):
            raise ValueError(f"must give client {client} one or more indices, not {part!r}")
        if part.min() < 0 or part.max() >= samples:
            raise ValueError(f"client {client}: indices must be 0 to {samples - 1}")
        if len(np.unique(part)) < len(part):
            raise ValueError(f"client {client}: an index is given twice")
    return [np.sort(part).astype(np.int64) for part in arrays]
