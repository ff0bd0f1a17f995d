# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Compiling functions of packages to machine code with numba."""

import inspect
import re
from collections.abc import Callable
from typing import Any

import numba
from numba.core.errors import NumbaError


def compiled_plugin(function: Callable[..., Any], parameters: dict[str, Any], given: int) -> Any:
    """The function of a package for compiled code, with its parameters as constants.

    Args:
        function: The function.
        parameters: Parameters of the function by name.
        given: The number of arguments before the function's parameters.
    """
    bound = inspect.signature(function).bind(*[None] * given, **parameters)
    bound.apply_defaults()
    values = bound.args[given:]
    machine_code = numba.njit(function) if inspect.isfunction(function) else function
    if not values:
        return machine_code
    if given == 1:
        return numba.njit(lambda asked: machine_code(asked, *values))
    return numba.njit(lambda first, second: machine_code(first, second, *values))


_COLOUR = re.compile(r"\x1b\[\d*m")


def cause_of(error: NumbaError) -> str:
    """The line of numba's message with the cause."""
    lines = [line.strip() for line in _COLOUR.sub("", str(error)).splitlines()]
    says = [line for line in lines if line and not line.startswith(("Failed in", "During", "File"))]
    return says[0] if says else type(error).__name__
