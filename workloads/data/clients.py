# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Natural clients: the values of a column, such as the writer of each sample, and their UAVs.

Importing this module does not import torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.core.errors import InputError
from workloads.data.config import DataConfig

KEY = "workload.data.partition_column"
CLIENT = "client"
"""Column of sources that name their clients: LEAF, TFF, and folders by client."""
SHOWN = 8
"""Largest number of clients that a message names."""
SEED = 0x9A48
"""Distinguishes the choice of clients from other random draws."""

Metadata = Mapping[str, npt.NDArray[Any]]
"""Columns that describe the samples, by name; each of shape [N]."""


@dataclass(frozen=True)
class Owners:
    """The natural clients of a data set, and those whose samples the UAVs have."""

    names: Sequence[str]
    """Names of all clients, in ascending order."""
    of_sample: npt.NDArray[np.int64]
    """Index of the client of each sample in `names`, shape [N]."""
    chosen: npt.NDArray[np.int64]
    """Index of each UAV's client, shape [K]."""

    @property
    def line(self) -> str:
        """The clients whose samples are not used, in words; empty if all are used."""
        rest = sorted(set(range(len(self.names))) - set(self.chosen.tolist()))
        if not rest:
            return ""
        shown = ", ".join(_short(self.names[one]) for one in rest[:SHOWN])
        more = ", …" * (len(rest) > SHOWN)
        return (
            f"{KEY}: {len(self.chosen)} of {len(self.names)} clients are UAVs, chosen by seed; not "
            f"used: {shown}{more}"
        )


def owners_of(metadata: Metadata, clients: int, config: DataConfig) -> Owners:
    """The natural clients of samples, of which each of K UAVs has one.

    If there are more of them than UAVs, K are chosen by seed. UAVs have them in ascending order.

    Args:
        metadata: Columns that describe the samples.
        clients: Number of UAVs, K.
        config: Name of the column, and the seed.

    Raises:
        InputError: There is no such column, or it has fewer clients than there are UAVs.
    """
    column = config.partition_column or CLIENT
    if column not in metadata:
        known = ", ".join(map(_short, metadata)) or "none"
        verb = "must be given" if config.partition_column is None else f"has no {column[:80]!r}"
        raise InputError(f"{KEY}: {verb}; columns that describe the samples: {known}")
    names, of_sample = np.unique(metadata[column], return_inverse=True)
    if len(names) < clients:
        raise InputError(
            f"{KEY}: {column!r} names {len(names)} clients, fewer than the {clients} UAVs"
        )
    random = np.random.default_rng([config.seed, SEED])
    chosen = np.sort(random.permutation(len(names))[:clients])
    return Owners([str(name) for name in names.tolist()], of_sample.astype(np.int64), chosen)


def _short(name: str) -> str:
    """A name from a file, in one line and not too long."""
    return " ".join(name.split())[:40]
