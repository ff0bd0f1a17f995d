# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Weights of stale updates (FedAsync, Xie et al. 2019, section 5.2)."""

from typing import Literal


def weight(
    stale: int,
    *,
    mixing: float = 0.6,
    staleness: Literal["polynomial", "hinge", "constant"] = "polynomial",
    exponent: float = 0.5,
    hinge: int = 4,
) -> float:
    """The weight a = mixing · s(stale) in (1 - a) · global model + a · client's model.

    Args:
        stale: Number of updates mixed in since the client received the model.
        mixing: Weight of an update that is not stale.
        staleness: Name of the function s.
        exponent: Exponent of s.
        hinge: Largest staleness without reduction of the weight, for `hinge`.
    """
    if staleness == "polynomial":
        return float(mixing * (1 + stale) ** -exponent)
    if staleness == "hinge" and stale > hinge:
        return mixing / (exponent * (stale - hinge) + 1)
    return mixing
