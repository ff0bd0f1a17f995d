# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How much a client's update weighs that comes late (FedAsync, Xie et al. 2019, section 5.2)."""

from typing import Literal


def weight(
    stale: int,
    *,
    mixing: float = 0.6,
    staleness: Literal["polynomial", "hinge", "constant"] = "polynomial",
    exponent: float = 0.5,
    hinge: int = 4,
) -> float:
    """a of (1 - a) global + a client's: mixing · s(stale).

    Args:
        stale: How many updates were mixed in since the client was sent the model.
        mixing: Of an update that is not stale.
        staleness: Which s.
        exponent: Of s.
        hinge: Up to which `hinge` weighs an update in full.
    """
    if staleness == "polynomial":
        return float(mixing * (1 + stale) ** -exponent)
    if staleness == "hinge" and stale > hinge:
        return mixing / (exponent * (stale - hinge) + 1)
    return mixing
