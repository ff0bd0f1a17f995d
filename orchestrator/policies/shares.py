# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Shares of a resource, which sum to 1 and are at least a fifth of an equal share."""

import numpy as np

from orchestrator.engine.access import RadioAccess
from orchestrator.engine.plan import Array
from testbed.core.paradigm import Paradigm


def decided_shares(paradigm: Paradigm, radio: RadioAccess) -> tuple[str, ...]:
    """Names of the shares that affect a round with this paradigm and radio."""
    parallel_down = paradigm.gradient_transmission == "parallel"
    affects = {
        "alpha": paradigm.server_compute == "parallel",
        "beta": "beta" in radio.decides and (paradigm.uplink == "parallel" or parallel_down),
        "rho": "rho" in radio.decides and parallel_down,
    }
    return tuple(name for name, does in affects.items() if does)


def least_share(clients: int) -> float:
    """The paper's α_min and β_min, 1 / (5 K)."""
    return 0.2 / clients


def scaled(shares: Array, at_least: float = 0.0) -> Array:
    """Apply the paper's linear scaling, eq. (Action_trans), so that the least share is respected.

    Args:
        shares: Shape [..., K], positive, with sum 1.
        at_least: A least share that may be above that of the paper; at most 1 / K.
    """
    clients = shares.shape[-1]
    least = max(least_share(clients), at_least)
    smallest = shares.min(axis=-1, keepdims=True)
    # Equal shares cannot be stretched and need not be.
    stretch = (1 - clients * least) / np.maximum(1 - clients * smallest, 1e-12)
    return np.where(smallest >= least, shares, stretch * (shares - smallest) + least)


def lifted(weights: Array, at_least: float = 0.0) -> Array:
    """Shares that sum to 1 and whose excess over the least share is proportional to the weights'.

    Args:
        weights: Shape [..., K], positive; shares that sum to 1 and respect the least share are not
            changed.
        at_least: See `scaled`.
    """
    clients = weights.shape[-1]
    least = max(least_share(clients), at_least)
    above = np.maximum(weights - least, 1e-9)
    scale = (1 - clients * least) / above.sum(axis=-1, keepdims=True)
    return np.asarray(least + above * scale)


def whole_steps(shares: Array, step: float) -> Array:
    """The shares as multiples of a step that divides 1, such as a resource block.

    Args:
        shares: Shape [..., K], with sum 1, each at least a step.
        step: The step; what remains of it goes to the largest remainders.
    """
    steps = shares / step + 1e-9
    whole = np.floor(steps)
    left = np.rint(1 / step) - whole.sum(axis=-1, keepdims=True)
    order = np.argsort(whole - steps, axis=-1, kind="stable")
    return np.asarray(step * (whole + (np.argsort(order, axis=-1) < left)))
