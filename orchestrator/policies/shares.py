# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Shares of a resource, which sum to 1 and are at least a fifth of an equal share."""

import numpy as np

from orchestrator.engine.plan import Array


def least_share(clients: int) -> float:
    """The paper's α_min and β_min, 1 / (5 K)."""
    return 0.2 / clients


def scaled(shares: Array) -> Array:
    """Apply the paper's linear scaling, eq. (Action_trans), so that the least share is respected.

    Args:
        shares: Shape [..., K], positive, with sum 1.
    """
    clients = shares.shape[-1]
    least, smallest = least_share(clients), shares.min(axis=-1, keepdims=True)
    # Equal shares cannot be stretched and need not be.
    stretch = (1 - clients * least) / np.maximum(1 - clients * smallest, 1e-12)
    return np.where(smallest >= least, shares, stretch * (shares - smallest) + least)


def lifted(weights: Array) -> Array:
    """Shares that sum to 1 and whose excess over the least share is proportional to the weights'.

    Args:
        weights: Shape [..., K], positive; shares that sum to 1 and respect the least share are not
            changed.
    """
    clients = weights.shape[-1]
    least = least_share(clients)
    above = np.maximum(weights - least, 1e-9)
    scale = (1 - clients * least) / above.sum(axis=-1, keepdims=True)
    return np.asarray(least + above * scale)
