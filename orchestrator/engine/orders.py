# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Service orders as machine code that the engine calls.

The two orders of the paper need none, and those that come with the testbed are part of the engine's
library. The function of a package is compiled by numba to a C function of plain numbers, whose
address the engine gets.
"""

import ctypes
from functools import cache, partial
from typing import Any

from orchestrator.engine.core_library import library
from testbed.core import orders
from testbed.core.errors import InputError
from testbed.core.orders import Ahead
from testbed.core.paradigm import Paradigm
from testbed.core.registry import ORDERS


def machine_code(paradigm: Paradigm) -> int | None:
    """The address of a C function that returns the place of a client's request (`orders.place`);
    None for the orders of the paper.

    Raises:
        InputError: The order is unknown, or numba cannot compile it.
    """
    if paradigm.order in orders.PAPERS:
        return None
    return _built_in(paradigm.order) or int(_c_function(paradigm).address)


@cache
def _built_in(order: str) -> int | None:
    """The address of an order's function in the library of the engine; None: it has none."""
    function = getattr(library(), f"engine_{order.replace('-', '_')}", None)
    return None if function is None else ctypes.cast(function, ctypes.c_void_p).value


@cache
def _c_function(paradigm: Paradigm) -> Any:
    """The C function of `machine_code`.

    Its arguments are at_downlink, client, clients, iteration, iterations; enqueued_s, client_s,
    upload_s, server_s, gradient_s, as `orders.request` takes them; and those of `Ahead` from
    compute_s on.
    """
    # numba takes half a second to import.
    import numba
    from numba.core.errors import NumbaError
    from numba.extending import register_jitable
    from numba.types import float64, int64

    from orchestrator.engine.compiling import cause_of, compiled_plugin

    for function in (orders.transfer_s, orders.request, orders.place):
        register_jitable(function)
    rank = paradigm.rank
    assert rank is not None
    if isinstance(rank, partial):
        ranked = compiled_plugin(rank.func, rank.keywords, given=1)
    else:
        ranked = numba.njit(rank)

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
        return numba.cfunc(int64(*[int64] * 5, *[float64] * 11))(ranked_place)
    except NumbaError as error:
        why = f"cannot be compiled by numba: {cause_of(error)}"
        raise ORDERS.unfit(paradigm.order, why) from error


class OrderFailed(InputError):
    """The function of an order failed, or did not return a number."""


def refused(paradigm: Paradigm) -> OrderFailed:
    """The exception for an order whose function failed, or did not return a number.

    Compiled code does not report the line that failed; the message names the line of the function.
    """
    why = "fails, or does not return a number, for some request"
    function = paradigm.rank.func if isinstance(paradigm.rank, partial) else paradigm.rank
    if code := getattr(function, "__code__", None):
        why += f" (function in {code.co_filename}, line {code.co_firstlineno})"
    return OrderFailed(str(ORDERS.unfit(paradigm.order, why)))
