# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Ranks of clients at the base station's sequential resources, by the paradigm's service order.

The protocols of rounds (`server_round`, `asynchronous_round`) keep the `Standing` of each client
and ask for its rank when it is enqueued. Times and durations have the unit of their driver.
"""

from collections.abc import Callable
from dataclasses import dataclass

from testbed.core import orders
from testbed.core.errors import RunError
from testbed.core.orders import Ahead
from testbed.core.paradigm import Paradigm
from testbed.core.registry import failures
from testbed.core.schedule import Resource


@dataclass
class Standing:
    """The information about a client from which its rank is computed."""

    iteration: int = 1
    """The current iteration; before an update of an asynchronous run, the last completed one."""
    first: int = 1
    """First iteration of the round, or of the client's update in an asynchronous run."""
    compute: float = 0
    """τ_CB(i-1) + τ_CF(i); before an update, τ_CB of the last one."""
    upload: float = 0
    """τ_CA(i); before an update, τ_CM of the last one."""
    gradient: float | None = None
    """τ_SG(i-1), the last term of eq. (22); None: there was no gradient yet."""
    compute_start: float = 0
    """Start of server computing; before an update, the time at which the model is ready."""


@dataclass(frozen=True)
class Outlook:
    """Inputs of a service order that is not one of the paper's."""

    ahead: Callable[[int, int, float], Ahead]
    """Remaining work by client, iteration of the round or update, and current time. Iteration 0:
    the client waits for the adapters of its update."""
    start: float
    """Start time of the round."""
    second: float = 1
    """Number of the driver's time units per second."""


class Ranks:
    """Ranks by a service order: the lowest is served first.

    Args:
        paradigm: Has the order and the sequential resources.
        first_gradient: τ'_SG(0) by client and arrival time of its smashed data.
        outlook: Used if the order is not one of the paper's.
        tick: Unit in which lags are compared, so that rounding errors do not break ties; None: they
            are compared as they are.
        places: See `ServerRound`.
    """

    def __init__(
        self,
        paradigm: Paradigm,
        first_gradient: Callable[[int, float], float],
        outlook: Outlook | None = None,
        tick: float | None = None,
        places: Callable[[Resource, int, int], int] | None = None,
    ):
        self._paradigm, self._rank_of = paradigm, paradigm.rank
        self._first_gradient, self._outlook = first_gradient, outlook
        self._tick, self._places = tick, places

    def rank(self, resource: Resource, number: int, client: Standing, at: float) -> float:
        """The rank of a client (from 1) that is enqueued at a resource at time `at`.

        Raises:
            RunError: The order of a package failed, or returned no number.
        """
        order = self._paradigm.order
        if self._places is not None:
            return self._places(resource, number, client.iteration)
        if order == orders.FIRST_COME:
            return 0
        if order == orders.LARGER_LAG:
            lag = self._lag(resource, number, client, at)
            return -lag if self._tick is None else -round(lag / self._tick)
        sharing = self._paradigm.server_compute
        if resource == "transmit":
            sharing = self._paradigm.gradient_transmission
        if sharing == "parallel":
            return 0  # There is no queue.
        assert self._rank_of is not None
        assert self._outlook is not None
        second = self._outlook.second
        ahead = self._outlook.ahead(number, client.iteration - client.first + 1, at)
        at_downlink = resource == "transmit"
        asked = orders.request(
            at_downlink,
            number,
            max(client.iteration, client.first),
            (at - self._outlook.start) / second,
            client.compute / second,
            client.upload / second,
            (at - client.compute_start) / second if at_downlink else ahead.server_s,
            -1.0 if client.gradient is None else client.gradient / second,
            ahead,
        )
        with failures(f"order {order!r}"):
            rank = self._rank_of(asked)
        if (place := orders.place(rank)) == orders.NO_RANK:
            raise RunError(f"order: {order!r} returned {rank} for {asked}")
        return place

    def _lag(self, resource: Resource, number: int, client: Standing, at: float) -> float:
        """The lag: eq. (22) for computing, eq. (12) for the downlink."""
        lag = client.compute + client.upload
        if resource == "transmit":
            return lag + at - client.compute_start
        if client.gradient is not None:
            return lag + client.gradient
        return lag + self._first_gradient(number, at)
