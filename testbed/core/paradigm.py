# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Paradigms of split federated learning, as data.

A paradigm says how the server's two resources, computing and downlink, serve the clients. The
engine and the emulated base station read the same fields, so a paradigm is described once.
Other packages add their own through the entry-point group ``testbed.paradigms``.
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
    """How server computing and gradient transmission are shared, ordered and gated.

    A *parallel* resource is cut into fixed shares, one a client; a *sequential* one serves a single
    client at a time with all it has, non-preemptively, in the given order. A gate holds a resource
    back until every client of the same local iteration has come that far.
    """

    name: str
    title: str
    """As the paper's figures print it."""
    server_compute: Sharing
    gradient_transmission: Sharing
    order: str = orders.FIRST_COME
    """One of `testbed.core.orders`."""
    compute_waits_for_all: bool = False
    """Server computing of an iteration starts when all smashed data of it are in."""
    transmission_waits_for_all: bool = False
    """Gradient transmission of an iteration starts when all of it is computed."""
    order_parameters: tuple[tuple[str, float], ...] = ()
    """Of an order from a package."""
    asynchronous: bool = False
    """Clients go on without waiting for others: their adapters are mixed into the global ones as
    they come, which then go back at once. Queues are first-come, and there is no gate."""

    @property
    def asks_for_first_gradient(self) -> bool:
        """Whether an order depends on τ'_SG(0): larger lag first, before sequential computing."""
        return self.server_compute == "sequential" and self.order == orders.LARGER_LAG

    @property
    def rank(self) -> orders.Rank | None:
        """What ranks who is enqueued; None: one of the paper's orders.

        Raises:
            InputError: The order is unknown, or a package's that does not fit.
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
        InputError: No paradigm has that name, or a plugin of that name is none.
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
    """Whether its clients go through the iterations of a round together; nobody's registered do."""
    try:
        return not paradigm(name).asynchronous
    except InputError:
        return True


def title_of(name: str, order: str | None = None) -> str:
    """The paradigm as the paper's figures print it, and the order in place of its own; its name
    where nobody registered it."""
    try:
        title = paradigm(name).title
    except InputError:
        title = name
    return title if order is None else f"{title}, {order}"
