# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Which data: plain values that travel to node programs as JSON. No torch here."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class DataConfig:
    """What the clients train on."""

    source: str = "synthetic"
    """`synthetic`; or a folder with CIFAR-100's binary files, tables, or images."""
    samples: int = 2000
    """Of the synthetic training set."""
    partition: Literal["iid", "dirichlet", "quantity", "feature"] = "iid"
    concentration: float = 0.5
    """Of the Dirichlet distribution: small is uneven."""
    noise: float = 0.5
    """With feature skew: of the last client's pictures, in deviations of a channel."""
    image_column: str | None = None
    label_column: str | None = None
    """Of tables; None: the only one that fits."""
    seed: int = 1
