# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Remarks that a run must print about its backbone, from the metadata of the backbone's file.
Without torch."""

import json
import struct
from pathlib import Path

from workloads.models.config import ModelConfig

HEAD = "head"
"""Entry of the metadata: how the head of the given weights differs from the model's."""


def remarks_on(config: ModelConfig, file: Path) -> list[str]:
    """Remarks that a run must print about a backbone, in lines."""
    with file.open("rb") as raw:
        [size] = struct.unpack("<Q", raw.read(8))
        known = json.loads(raw.read(size))["__metadata__"]
    if not known[HEAD]:
        return []
    return [f"workload.weights: {config.weights} {known[HEAD]}; a new head is drawn by seed"]
