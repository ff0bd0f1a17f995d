# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Service orders as machine code that the engine calls.

An order's function is compiled to a C function of plain numbers, whose address the engine's kernel
gets. The kernel is compiled once for all such orders, and separately for the two orders of the
paper, which need no function. With numba's first-class functions, each call would take 20 µs to
find out the types of its arguments.
"""

import inspect
import re
from functools import cache, partial
from typing import Any

import numba
from llvmlite import ir
from numba.core.cgutils import unpack_tuple
from numba.core.errors import NumbaError
from numba.extending import intrinsic, register_jitable
from numba.types import Tuple, float64, int64

from testbed.core import orders
from testbed.core.errors import InputError
from testbed.core.orders import Ahead
from testbed.core.paradigm import Paradigm
from testbed.core.registry import ORDERS

for function in (orders.transfer_s, orders.request, orders.place):
    register_jitable(function)

_COLOUR = re.compile(r"\x1b\[\d*m")
SIGNATURE = int64(*[int64] * 5, *[float64] * 11)


@intrinsic  # type: ignore[untyped-decorator]
def place_of(_: Any, address: Any, numbers: Any) -> Any:
    """Call a function of `machine_code` from compiled code, with a tuple of its arguments."""

    def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        kinds = [context.get_value_type(kind) for kind in SIGNATURE.args]
        of = ir.FunctionType(context.get_value_type(SIGNATURE.return_type), kinds)
        function = builder.inttoptr(given[0], ir.PointerType(of))
        return builder.call(function, unpack_tuple(builder, given[1], len(kinds)))

    return SIGNATURE.return_type(address, Tuple(SIGNATURE.args)), code


def machine_code(paradigm: Paradigm) -> int | None:
    """The address of a C function that returns the place of a client's request (`orders.place`);
    None for the orders of the paper.

    Raises:
        InputError: The order is unknown, or numba cannot compile it.
    """
    return None if paradigm.order in orders.PAPERS else _c_function(paradigm).address


@cache
def _c_function(paradigm: Paradigm) -> Any:
    """The C function of `machine_code`.

    Its arguments are at_downlink, client, clients, iteration, iterations; enqueued_s, client_s,
    upload_s, server_s, gradient_s, as `orders.request` takes them; and those of `Ahead` from
    compute_s on.
    """
    rank = paradigm.rank
    assert rank is not None
    ranked = _with_parameters(rank) if isinstance(rank, partial) else numba.njit(rank)

    def ranked_place(
        at_downlink: int,
        client: int,
        clients: int,
        iteration: int,
        iterations: int,
        enqueued_s: float,
        client_s: float,
        upload_s: float,
        server_s: float,
        gradient_s: float,
        compute_s: float,
        gradient_bytes: float,
        uplink_bytes: float,
        downlink_bytes: float,
        uplink_bps: float,
        downlink_bps: float,
    ) -> int:
        ahead = Ahead(
            clients,
            iterations,
            server_s,
            compute_s,
            gradient_bytes,
            uplink_bytes,
            downlink_bytes,
            uplink_bps,
            downlink_bps,
        )
        try:
            asked = orders.request(
                at_downlink != 0,
                client,
                iteration,
                enqueued_s,
                client_s,
                upload_s,
                server_s,
                gradient_s,
                ahead,
            )
            return orders.place(float(ranked(asked)))
        except Exception:
            return orders.NO_RANK

    try:
        return numba.cfunc(SIGNATURE)(ranked_place)
    except NumbaError as error:
        why = f"cannot be compiled by numba: {_first_line(error)}"
        raise ORDERS.unfit(paradigm.order, why) from error


def _with_parameters(rank: "partial[float]") -> Any:
    """The function with its parameters as constants."""
    given = inspect.signature(rank.func).bind(None, **rank.keywords)
    given.apply_defaults()
    function, values = rank.func, given.args[1:]
    compiled = numba.njit(function) if inspect.isfunction(function) else function
    return numba.njit(lambda asked: compiled(asked, *values)) if values else compiled


class OrderFailed(InputError):
    """The function of an order failed, or did not return a number."""


def refused(paradigm: Paradigm) -> OrderFailed:
    """The exception for an order whose function failed, or did not return a number.

    Compiled code does not know the line that failed; the message names that of the function.
    """
    why = "fails, or does not return a number, for some request"
    function = paradigm.rank.func if isinstance(paradigm.rank, partial) else paradigm.rank
    if code := getattr(function, "__code__", None):
        why += f" (function in {code.co_filename}, line {code.co_firstlineno})"
    return OrderFailed(str(ORDERS.unfit(paradigm.order, why)))


def _first_line(error: Exception) -> str:
    """The line of numba's message with the cause."""
    lines = [line.strip() for line in _COLOUR.sub("", str(error)).splitlines()]
    says = [line for line in lines if line and not line.startswith(("Failed in", "During", "File"))]
    return says[0] if says else type(error).__name__
