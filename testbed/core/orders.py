# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Service orders: which client a sequential resource serves next.

An order is a function that ranks a client's request when it is enqueued: the lowest rank goes
first, then the earlier arrival, then the lower client number. The engine compiles the function with
numba; the base station and ns-3's packets call it as it is, on the same numbers. So it may compute
with numbers alone: no text, no state. Other packages add theirs through the entry-point group
``testbed.orders``.

The paper's two are not ranked here: engine and schedule know them by name.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import NamedTuple

from testbed.core.registry import ORDERS

LARGER_LAG, FIRST_COME = "larger-lag", "first-come"
PAPERS = (LARGER_LAG, FIRST_COME)
"""The paper's service orders."""
OUTAGE_S = 1e9
"""What counts as the time of a transfer over a link that is out: longer than any."""
NO_RANK = -(1 << 63)
"""The place of a rank that is no number."""


class ServiceRequest(NamedTuple):
    """What is known of a client when it is enqueued at a sequential resource.

    Times of what is over are as they came to be; times of what is to come follow from the device
    profile, and from the rates of the slot in which the request came.
    """

    at_downlink: bool
    """Whether it waits for the downlink; else it waits for the server's computing."""
    client: int
    """From 1."""
    clients: int
    """K, of the run."""
    iteration: int
    """i, from 1."""
    iterations: int
    """I."""
    enqueued_s: float
    """When it came, since the round began."""
    lag_s: float
    """Eq. (12) before the downlink, eq. (22) before computing."""
    client_s: float
    """τ_CB(i-1) + τ_CF(i)."""
    upload_s: float
    """τ_CA(i)."""
    server_s: float
    """τ_S(i); before computing, what it will take."""
    gradient_s: float
    """τ_SG(i-1); in the first iteration, what a gradient would take now."""
    service_s: float
    """What the resource will take to serve it."""
    remaining_s: float
    """What the rest of its round would take, were it alone: this service, and all up to τ_CM."""
    gradient_bytes: float
    """Of the gradient of this iteration."""
    uplink_bytes: float
    """It has still to send, smashed data and adapters."""
    downlink_bytes: float
    """It has still to receive, gradients from this iteration on."""
    uplink_bps: float
    """Rate of its uplink; 0 in an outage."""
    downlink_bps: float
    """Rate of its gradients."""


class Ahead(NamedTuple):
    """What is still to come for a client whose smashed data of an iteration are in."""

    clients: int
    """K."""
    iterations: int
    """I."""
    server_s: float
    """Of this iteration."""
    compute_s: float
    """Client's and server's computing after the gradient of this iteration is there."""
    gradient_bytes: float
    uplink_bytes: float
    downlink_bytes: float
    uplink_bps: float
    downlink_bps: float


@dataclass(frozen=True)
class Prospects:
    """What each client's iterations take by the device profile: an entry a client of the run."""

    iterations: int
    forward_s: tuple[float, ...]
    """τ_CF."""
    backward_s: tuple[float, ...]
    """τ_CB."""
    server_s: tuple[float, ...]
    """τ_S."""
    smashed_bytes: tuple[int, ...]
    """As they are on the link, as all bytes here."""
    gradient_bytes: tuple[int, ...]
    adapter_bytes: tuple[int, ...]

    def ahead(self, client: int, iteration: int, uplink_bps: float, downlink_bps: float) -> Ahead:
        """What is to come for a client, from 1, in an iteration, at these rates."""
        k, later = client - 1, self.iterations - iteration
        a_turn_s = self.forward_s[k] + self.server_s[k] + self.backward_s[k]
        return Ahead(
            len(self.server_s),
            self.iterations,
            self.server_s[k],
            self.backward_s[k] + later * a_turn_s,
            float(self.gradient_bytes[k]),
            float(self.adapter_bytes[k] + later * self.smashed_bytes[k]),
            float((1 + later) * self.gradient_bytes[k]),
            uplink_bps,
            downlink_bps,
        )


Rank = Callable[[ServiceRequest], float]


def transfer_s(size_bytes: float, rate_bps: float) -> float:
    """Seconds of a transfer at a rate that stays; `OUTAGE_S` where there is none."""
    if size_bytes == 0.0:
        return 0.0
    if rate_bps > 0.0:
        return min(8.0 * size_bytes / rate_bps, OUTAGE_S)
    return OUTAGE_S


def request(
    at_downlink: bool,
    client: int,
    iteration: int,
    enqueued_s: float,
    client_s: float,
    upload_s: float,
    server_s: float,
    gradient_s: float,
    ahead: Ahead,
) -> ServiceRequest:
    """A request from what was measured, and what is ahead; compiled into the engine, too.

    Args:
        at_downlink: See `ServiceRequest`, as all up to `server_s`.
        client: From 1.
        iteration: From 1.
        enqueued_s: Since the round began.
        client_s: τ_CB(i-1) + τ_CF(i).
        upload_s: τ_CA(i).
        server_s: τ_S(i).
        gradient_s: τ_SG(i-1); negative: there was none yet.
        ahead: Of the slot in which it is enqueued.
    """
    next_s = transfer_s(ahead.gradient_bytes, ahead.downlink_bps)
    if gradient_s < 0.0:
        gradient_s = next_s
    lag_s = client_s + upload_s + (server_s if at_downlink else gradient_s)
    remaining_s = (
        ahead.compute_s
        + transfer_s(ahead.uplink_bytes, ahead.uplink_bps)
        + transfer_s(ahead.downlink_bytes, ahead.downlink_bps)
    )
    if not at_downlink:
        remaining_s += server_s
    return ServiceRequest(
        at_downlink,
        client,
        ahead.clients,
        iteration,
        ahead.iterations,
        enqueued_s,
        lag_s,
        client_s,
        upload_s,
        server_s,
        gradient_s,
        next_s if at_downlink else server_s,
        remaining_s,
        ahead.gradient_bytes,
        ahead.uplink_bytes,
        ahead.downlink_bytes,
        ahead.uplink_bps,
        ahead.downlink_bps,
    )


def place(rank: float) -> int:
    """A rank in steps of 1e-9, cut at ±9e9: what floats tear apart by their last bit is equal."""
    if math.isnan(rank):
        return NO_RANK
    return math.floor(min(max(rank, -9e9), 9e9) * 1e9 + 0.5)


def shortest_job_first(asked: ServiceRequest) -> float:
    """Who keeps the resource for the shortest time."""
    return asked.service_s


def longest_remaining_work_first(asked: ServiceRequest) -> float:
    """Whose round would still take longest, were it alone."""
    return -asked.remaining_s


def round_robin(asked: ServiceRequest) -> float:
    """Everybody's first turn by number, then everybody's second: nobody is served twice while
    another waits who was served less often."""
    return float((asked.iteration - 1) * asked.clients + asked.client)


BUILT_IN: dict[str, Rank] = {
    "shortest-job-first": shortest_job_first,
    "longest-remaining-work-first": longest_remaining_work_first,
    "round-robin": round_robin,
}

ORDERS.add({**dict.fromkeys(PAPERS), **BUILT_IN})

_SAMPLE = request(True, 1, 1, 0.5, 0.3, 0.2, 0.1, -1.0, Ahead(2, 3, 0.1, 0.5, 8, 8, 8, 1e3, 1e3))


def check(name: str, parameters: Mapping[str, float]) -> None:
    """Refuse an order that is none, or parameters that it does not take.

    Raises:
        InputError: Names the key.
    """
    if name in ORDERS.built_in:
        return ORDERS.check(name, parameters)
    answer = ORDERS.make(name, parameters, _SAMPLE)
    if not isinstance(answer, Real):
        raise ORDERS.unfit(name, f"must answer with a number, not {answer!r}")


def rank_of(name: str, parameters: Mapping[str, float]) -> Rank | None:
    """The function that ranks; None: the order is one of the paper's.

    Raises:
        InputError: See `check`.
    """
    check(name, parameters)
    if name in ORDERS.built_in:
        return BUILT_IN.get(name)
    return partial(ORDERS.function(name), **parameters)
