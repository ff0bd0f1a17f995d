# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Configuration of the data: plain values that are sent to node programs as JSON, without torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class DataConfig:
    """The data that the clients train on."""

    source: str = "synthetic"
    """`synthetic`, or a folder with CIFAR-100's binary files, tables, or images; for tokens, a file
    or folder with texts or arrays of tokens."""
    samples: int = 2000
    """Size of the synthetic training set."""
    partition: str = "iid"
    """One of `testbed.core.registry.PARTITIONS`."""
    partition_parameters: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of a plug-in's partition."""
    partition_column: str | None = None
    """Column with the natural clients for the partition `column`; None: `client`."""
    concentration: float = 0.5
    """Concentration of the Dirichlet distribution; small values give uneven shares."""
    shards: int = 2
    """With the partition `shards`: number of shards of each client."""
    noise: float = 0.5
    """With feature skew: standard deviation of the noise in the last client's images, relative to
    that of a colour channel."""
    image_column: str | None = None
    label_column: str | None = None
    """Columns of tables; None: the only suitable one."""
    tokenizer: str | None = None
    """Tokenizer of texts. None or `bytes`: the bytes of UTF-8; otherwise a folder that transformers
    can read."""
    text_column: str | None = None
    """Column of tables, or key in JSON lines, with the texts; None: the only suitable one."""
    seed: int = 1
