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
UploadOrder = Literal["first-come", "scheduled"]
Asks = Literal["", "adapters", "all"]
"""Uploads for which a client requests permission before it sends them: none, its adapters, or all.
"""


@dataclass(frozen=True)
class Paradigm:
    """How the server's computing and the gradient transmission are shared, ordered and gated.

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
    """Whether the server starts computing an iteration only when the smashed data of all clients
    for this iteration have arrived."""
    transmission_waits_for_all: bool = False
    """Whether the gradients of an iteration are sent only when all of them have been computed."""
    order_parameters: tuple[tuple[str, float], ...] = ()
    """Parameters of a service order that another package provides."""
    asynchronous: bool = False
    """Whether clients do not wait for each other: their adapters are merged into the global ones
    when they arrive, and the result is sent back at once. There are no gates, and no turn waits for
    a client that has not asked for it."""
    adapters_wait_for_all: bool = False
    """Whether the upload of adapters starts only when all clients have finished their last backward
    pass."""
    uplink: Sharing = "parallel"
    """Sharing of the uplink: `sequential` sends smashed data and adapters one after the other, each
    with the whole bandwidth."""
    uplink_order: UploadOrder = "first-come"
    """Order of sequential uploads: by the time of the request, or (`scheduled`) strictly in the
    order in which the clients of the round were chosen. With `asynchronous`, clients that have not
    asked are passed over."""
    gradient_aggregation: float = 0.0
    """Share φ of a batch whose gradients are averaged over the clients and broadcast once, from 0
    to 1; a value above 0 requires `transmission_waits_for_all`."""

    @property
    def asks(self) -> Asks:
        """Uploads for which a client requests permission before it sends them."""
        if self.uplink == "sequential":
            return "all"
        return "adapters" if self.adapters_wait_for_all else ""

    @property
    def is_plain(self) -> bool:
        """Whether, as in the paper, each client uploads at once in its share of the uplink and
        receives all gradients of its own batch."""
        return not self.asks and self.gradient_aggregation == 0

    @property
    def asks_for_first_gradient(self) -> bool:
        """Whether the order uses τ'_SG(0). Only the order `larger-lag` with sequential computing
        uses it."""
        return self.server_compute == "sequential" and self.order == orders.LARGER_LAG

    @property
    def rank(self) -> orders.Rank | None:
        """The ranking function of the service order; None for the orders of the paper.

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
    "uplink": get_args(Sharing),
    "uplink_order": get_args(UploadOrder),
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
    gated = gated or found.adapters_wait_for_all
    if found.asynchronous and (gated or found.gradient_aggregation):
        why = "is asynchronous: it has no gates and no gradient aggregation"
        raise PARADIGMS.unfit(name, why)
    if not 0 <= found.gradient_aggregation <= 1:
        why = f"has gradient_aggregation {found.gradient_aggregation!r}, which is not in [0, 1]"
        raise PARADIGMS.unfit(name, why)
    if found.gradient_aggregation and not found.transmission_waits_for_all:
        why = "aggregates gradients, which needs transmission_waits_for_all"
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
