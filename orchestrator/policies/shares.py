# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Shares of a resource: no client gets less than a fifth of an equal share, and all sum to 1."""

import numpy as np

from orchestrator.engine.plan import Array


def least_share(clients: int) -> float:
    """α_min and β_min of the paper, 1 / (5 K)."""
    return 0.2 / clients


def scaled(shares: Array) -> Array:
    """The paper's linear scaling, eq. (Action_trans): shares that respect the least one.

    Args:
        shares: Shape [..., K], positive, sums of 1.
    """
    clients = shares.shape[-1]
    least, smallest = least_share(clients), shares.min(axis=-1, keepdims=True)
    # Where all shares are equal there is nothing to stretch: the least share is respected already.
    stretch = (1 - clients * least) / np.maximum(1 - clients * smallest, 1e-12)
    return np.where(smallest >= least, shares, stretch * (shares - smallest) + least)


def lifted(weights: Array) -> Array:
    """Shares that follow weights: what they are above the least share, scaled to sum to 1.

    Args:
        weights: Shape [..., K], positive; shares that already sum to 1 and respect the least one
            stay as they are.
    """
    clients = weights.shape[-1]
    least = least_share(clients)
    above = np.maximum(weights - least, 1e-9)
    scale = (1 - clients * least) / above.sum(axis=-1, keepdims=True)
    return np.asarray(least + above * scale)
