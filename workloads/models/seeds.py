# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Random numbers by seed and name, which do not depend on the order of calls."""

import hashlib

import torch


def generator(seed: int, name: str) -> torch.Generator:
    """A separate random generator for each name."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
