# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Service orders: decide which client a sequential resource serves next.

An order is a function that ranks a client's request when it is enqueued: the lowest rank is served
first, then the earlier arrival, then the lower client number. The engine has the built-in orders in
C++ (`core/orders.h`), and compiles those of packages with numba; the base station and the ns-3
simulation call the function directly with the same numbers. So it may use only numbers, no strings
and no state. Other packages add orders through the entry-point group ``testbed.orders``.

The paper's two orders have no ranking function here: engine and schedule implement them by name.
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
"""Duration in s that represents a transfer over a link in outage: longer than any other."""
NO_RANK = -(1 << 63)
"""The sorting key of a rank that is not a number."""


class ServiceRequest(NamedTuple):
    """Information about a client when it is enqueued at a sequential resource.

    Durations of past steps are measured. Durations of future steps are computed from the device
    profile and the rates in the slot in which the request arrives.
    """

    at_downlink: bool
    """Whether the client waits for the downlink; otherwise it waits for server computing."""
    client: int
    """Index of the client, starting from 1."""
    clients: int
    """Number of clients in the run, K."""
    iteration: int
    """Iteration i, from 1."""
    iterations: int
    """Number of iterations of the client, I_k."""
    enqueued_s: float
    """Time of arrival, measured from the start of the round."""
    lag_s: float
    """Lag: eq. (12) for the downlink, eq. (22) for computing."""
    client_s: float
    """τ_CB(i-1) + τ_CF(i)."""
    upload_s: float
    """τ_CA(i)."""
    server_s: float
    """τ_S(i); modelled duration if the client waits for computing."""
    gradient_s: float
    """τ_SG(i-1); in the first iteration, the duration of a gradient transfer at the current
    rate."""
    service_s: float
    """Expected service time at the resource."""
    remaining_s: float
    """Expected duration of the rest of the client's round if there were no other clients: this
    service and all steps up to τ_CM."""
    gradient_bytes: float
    """Size of the gradient of this iteration; of the adapters, if the client waits for those of its
    update in an asynchronous run."""
    uplink_bytes: float
    """Bytes of smashed data and adapters that the client still has to send."""
    downlink_bytes: float
    """Bytes of gradients that the client still has to receive, from this iteration on."""
    uplink_bps: float
    """Current rate of the uplink; 0 in an outage."""
    downlink_bps: float
    """Current downlink rate for the client's gradients."""


class Ahead(NamedTuple):
    """Remaining work of a client whose smashed data of an iteration have arrived."""

    clients: int
    """Number of clients in the run, K."""
    iterations: int
    """Number of iterations of the client, I_k."""
    server_s: float
    """Server computing of this iteration."""
    compute_s: float
    """Computing of client and server after the gradient of this iteration has arrived."""
    gradient_bytes: float
    uplink_bytes: float
    downlink_bytes: float
    uplink_bps: float
    downlink_bps: float


@dataclass(frozen=True)
class Prospects:
    """Durations and sizes of each client's iterations by the device profile, one entry per
    client."""

    iterations: int
    """Number of iterations, I."""
    forward_s: tuple[float, ...]
    """τ_CF of each client."""
    backward_s: tuple[float, ...]
    """τ_CB of each client."""
    server_s: tuple[float, ...]
    """τ_S of each client."""
    smashed_bytes: tuple[int, ...]
    """Bytes on the link, including overheads; the other sizes as well."""
    gradient_bytes: tuple[int, ...]
    adapter_bytes: tuple[int, ...]
    own_iterations: tuple[int, ...] = ()
    """Number of iterations of each client, if they differ; otherwise empty."""
    model_bytes: tuple[int, ...] = ()
    """Bytes of the global adapters that an update of an asynchronous run begins with; empty in
    other runs."""

    def ahead(self, client: int, iteration: int, uplink_bps: float, downlink_bps: float) -> Ahead:
        """Remaining work of a client (from 1) in an iteration, at these rates; iteration 0: the
        client waits for the adapters of its update."""
        k = client - 1
        iterations = self.own_iterations[k] if self.own_iterations else self.iterations
        later = iterations - iteration
        a_turn_s = self.forward_s[k] + self.server_s[k] + self.backward_s[k]
        now_bytes = self.gradient_bytes[k] if iteration else self.model_bytes[k]
        return Ahead(
            len(self.server_s),
            iterations,
            self.server_s[k] if iteration else 0.0,
            (self.backward_s[k] if iteration else 0.0) + later * a_turn_s,
            float(now_bytes),
            float(self.adapter_bytes[k] + later * self.smashed_bytes[k]),
            float(now_bytes + later * self.gradient_bytes[k]),
            uplink_bps,
            downlink_bps,
        )


Rank = Callable[[ServiceRequest], float]


def transfer_s(size_bytes: float, rate_bps: float) -> float:
    """Duration of a transfer at a constant rate; `OUTAGE_S` in an outage."""
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
    """Make a request from measured durations and the remaining work; numba also compiles it.

    Args:
        at_downlink: Whether the client waits for the downlink.
        client: Index of the client, starting from 1.
        iteration: Iteration i, from 1.
        enqueued_s: Time of arrival, measured from the start of the round.
        client_s: τ_CB(i-1) + τ_CF(i).
        upload_s: τ_CA(i).
        server_s: τ_S(i).
        gradient_s: τ_SG(i-1); negative if there was no gradient yet.
        ahead: Remaining work, at the rates of the current slot.
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
    """A rank rounded to 1e-9 and clipped at ±9e9, so that rounding errors do not break ties."""
    if math.isnan(rank):
        return NO_RANK
    return math.floor(min(max(rank, -9e9), 9e9) * 1e9 + 0.5)


def shortest_job_first(asked: ServiceRequest) -> float:
    """Serve the client with the shortest service time first."""
    return asked.service_s


def longest_remaining_work_first(asked: ServiceRequest) -> float:
    """Serve the client with the longest remaining time of its round first."""
    return -asked.remaining_s


def round_robin(asked: ServiceRequest) -> float:
    """Serve all clients once in the order of their numbers, then all a second time, etc."""
    return float((asked.iteration - 1) * asked.clients + asked.client)


BUILT_IN: dict[str, Rank] = {
    "shortest-job-first": shortest_job_first,
    "longest-remaining-work-first": longest_remaining_work_first,
    "round-robin": round_robin,
}

ORDERS.add({**dict.fromkeys(PAPERS), **BUILT_IN})

_SAMPLE = request(True, 1, 1, 0.5, 0.3, 0.2, 0.1, -1.0, Ahead(2, 3, 0.1, 0.5, 8, 8, 8, 1e3, 1e3))


def check(name: str, parameters: Mapping[str, float]) -> None:
    """Refuse an unknown order, or parameters that it does not take.

    Raises:
        InputError: A parameter is not valid; the message names its key.
    """
    if name in ORDERS.built_in:
        return ORDERS.check(name, parameters)
    answer = ORDERS.make(name, parameters, _SAMPLE)
    if not isinstance(answer, Real):
        raise ORDERS.unfit(name, f"must return a number, not {answer!r}")


def rank_of(name: str, parameters: Mapping[str, float]) -> Rank | None:
    """The ranking function of an order; None: the order is one of the paper's.

    Raises:
        InputError: See `check`.
    """
    check(name, parameters)
    if name in ORDERS.built_in:
        return BUILT_IN.get(name)
    return partial(ORDERS.function(name), **parameters)
