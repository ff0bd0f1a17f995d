# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Paradigms of split federated learning, as data.

A paradigm defines how the server's two resources, computing and downlink, serve the clients. The
engine and the emulated base station read the same fields, so a paradigm is described once.
Other packages add paradigms through the entry-point group ``testbed.paradigms``.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from testbed.core import orders
from testbed.core.errors import InputError
from testbed.core.registry import ORDERS, PARADIGMS
from testbed.core.words import not_one_of

Sharing = Literal["parallel", "sequential"]


@dataclass(frozen=True)
class Paradigm:
    """Sharing, order and gates of server computing and gradient transmission.

    A *parallel* resource is divided into fixed shares, one per client; a *sequential* one serves
    one client at a time with its full capacity, non-preemptively, in the given order. A gate blocks
    a resource until all clients of the same local iteration have reached it.
    """

    name: str
    title: str
    """Name of the paradigm in the paper's figures."""
    server_compute: Sharing
    gradient_transmission: Sharing
    order: str = orders.FIRST_COME
    """Service order of sequential resources: a name of `testbed.core.orders`."""
    compute_waits_for_all: bool = False
    """Whether server computing of an iteration starts only when all its smashed data have
    arrived."""
    transmission_waits_for_all: bool = False
    """Whether gradient transmission of an iteration starts only when all its gradients are
    computed."""
    order_parameters: tuple[tuple[str, float], ...] = ()
    """Parameters of a service order from another package."""
    asynchronous: bool = False
    """Whether clients do not wait for each other: their adapters are mixed into the global ones
    when they arrive, and the result is sent back at once. Queues are first-come, without gates."""

    @property
    def asks_for_first_gradient(self) -> bool:
        """Whether the order uses τ'_SG(0): larger lag first, for sequential computing."""
        return self.server_compute == "sequential" and self.order == orders.LARGER_LAG

    @property
    def rank(self) -> orders.Rank | None:
        """The ranking function of the service order; None: it is one of the paper's orders.

        Raises:
            InputError: The order is unknown, or an invalid one of another package.
        """
        return orders.rank_of(self.order, dict(self.order_parameters))


BUILT_IN = (
    Paradigm("sfl-pp", "SFL-PP", "parallel", "parallel"),
    Paradigm(
        "sfl-sp",
        "SFL-SP",
        "sequential",
        "parallel",
        compute_waits_for_all=True,
        transmission_waits_for_all=True,
    ),
    Paradigm("pipesfl", "PipeSFL", "sequential", "parallel", "larger-lag"),
    Paradigm(
        "pipesfl-no-at",
        "PipeSFL w/o AT",
        "sequential",
        "parallel",
        "larger-lag",
        compute_waits_for_all=True,
    ),
    Paradigm("pipesfl-no-ps", "PipeSFL w/o PS", "sequential", "parallel"),
    Paradigm("sfl-ps", "SFL-PS", "parallel", "sequential", transmission_waits_for_all=True),
    Paradigm("cpsfl", "CPSFL", "parallel", "sequential", "larger-lag"),
    Paradigm(
        "cpsfl-no-at",
        "CPSFL w/o AT",
        "parallel",
        "sequential",
        "larger-lag",
        transmission_waits_for_all=True,
    ),
    Paradigm("cpsfl-no-ps", "CPSFL w/o PS", "parallel", "sequential"),
)

ASYNCHRONOUS = (
    Paradigm("asfl-pp", "ASFL-PP", "parallel", "parallel", asynchronous=True),
    Paradigm("asfl-sp", "ASFL-SP", "sequential", "parallel", asynchronous=True),
    Paradigm("asfl-ps", "ASFL-PS", "parallel", "sequential", asynchronous=True),
)
"""Asynchronous counterparts, which the paper does not have."""

PARADIGMS.add({paradigm.name: paradigm for paradigm in (*BUILT_IN, *ASYNCHRONOUS)})
_CHOICES = {
    "server_compute": get_args(Sharing),
    "gradient_transmission": get_args(Sharing),
}


def paradigm(name: str) -> Paradigm:
    """The paradigm of that name.

    Raises:
        InputError: No paradigm has that name, or the plugin of that name is not a paradigm.
    """
    found = PARADIGMS.instance(name, Paradigm)
    if name in PARADIGMS.built_in:
        return found
    for field, choices in _CHOICES.items():
        if getattr(found, field) not in choices:
            why = f"has {field} {getattr(found, field)!r}, which is not one of {', '.join(choices)}"
            raise PARADIGMS.unfit(name, why)
    if found.order not in ORDERS.names():
        raise PARADIGMS.unfit(name, f"has order {not_one_of(found.order, ORDERS.names())}")
    gated = found.compute_waits_for_all or found.transmission_waits_for_all
    if found.asynchronous and (gated or found.order != orders.FIRST_COME):
        why = "is asynchronous: its order is 'first-come', without gates"
        raise PARADIGMS.unfit(name, why)
    return found


def keeps_step(name: str) -> bool:
    """Whether clients do the iterations of a round together; unregistered names count as
    synchronous."""
    try:
        return not paradigm(name).asynchronous
    except InputError:
        return True


def title_of(name: str, order: str | None = None) -> str:
    """Name of the paradigm in the paper's figures, with `order` if it replaces its own; an
    unregistered paradigm is returned as given."""
    try:
        title = paradigm(name).title
    except InputError:
        title = name
    return title if order is None else f"{title}, {order}"
