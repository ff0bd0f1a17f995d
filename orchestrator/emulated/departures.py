# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""When the transfers of a round begin to be sent in real time.

An idle link carries `Shape.credit_s` of traffic at once. Therefore a transfer is sent later than it
is due, by this time, and then follows the integral of the rates. A transfer that takes less time
than that would end too late: it is sent its own duration later.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.engine.access import LinkRates
from orchestrator.engine.plan import Array, RoundPlan
from testbed.control.messages import Credits
from testbed.network.shaping import WITHOUT_CREDIT_S, Shape


def credits_of(plan: RoundPlan, rates: LinkRates, shape: Shape, dilation: float) -> list[Credits]:
    """The credits of each client's transfers, whose durations are those at its mean rate.

    Args:
        plan: Plan of the round, with the bytes on the links.
        rates: Rates of the round's slots, in emulated bit/s.
        shape: Shape of the links.
        dilation: Real seconds per emulated second.
    """
    shared = np.zeros(plan.clients) if plan.shared_bytes is None else plan.shared_bytes
    transfers = (
        (plan.sm_bytes.reshape(plan.clients, -1)[:, 0], rates.broadcast),
        (plan.ca_bytes[:, 0], rates.uplink),
        (plan.sg_bytes[:, 0] - shared, rates.gradient),
        (shared, rates.gradient),
        (plan.cm_bytes.reshape(plan.clients, -1)[:, 0], rates.uplink),
    )
    by_kind = (
        np.clip(_lasts_s(bytes_, bps) * dilation - WITHOUT_CREDIT_S, 0.0, max(0.0, shape.credit_s))
        for bytes_, bps in transfers
    )
    return [Credits(*map(float, of_link)) for of_link in zip(*by_kind, strict=True)]


def _lasts_s(bytes_: npt.NDArray[Any], bps: Array) -> Array:
    """Durations in emulated seconds, shape [K], at the mean rate of the slots in which a link is
    not out."""
    slots = (bps > 0).sum(axis=1)
    mean_bps = bps.sum(axis=1) / np.maximum(slots, 1)
    out = np.full(len(bps), np.inf)
    np.divide(8.0 * bytes_, mean_bps, out=out, where=mean_bps > 0)
    return out
