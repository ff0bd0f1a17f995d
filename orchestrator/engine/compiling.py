# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Compiling functions to machine code with numba, and keeping it on disk."""

import functools
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
import numpy.typing as npt
from numba import types
from numba.extending import intrinsic

from testbed.system.folders import cache_folder

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Function = TypeVar("Function", bound=Callable[..., Any])

ROOT = Path(__file__).parents[2]
SOURCES = ("orchestrator/engine", "orchestrator/theory", "testbed/core")
"""Folders of everything that is compiled, or is a constant in compiled code."""


def compiled(function: Function) -> Function:
    """Compile to machine code, cached on disk where any cache folder can be written."""
    # numba looks at the file of a function alone; what it calls may be in another.
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, _machine_code_folder()
    try:
        machine_code = numba.njit(cache=True)(function)
    except RuntimeError:
        machine_code = numba.njit(function)
    finally:
        numba.config.CACHE_DIR = before
    return machine_code  # type: ignore[no-any-return]


def inlined(function: Function) -> Function:
    """Compile into its callers; a call would count references to every array it passes."""
    return numba.njit(forceinline=True)(function)  # type: ignore[no-any-return]


@intrinsic  # type: ignore[untyped-decorator]
def number_at(typing_context: Any, address: Any, index: Any) -> Any:
    """The float64 with that index of an array at that address, in compiled code.

    An address in a named tuple is a number, where an array would have its references counted at
    each use. The array must outlive its use.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = context.get_value_type(types.float64)
        start = builder.inttoptr(arguments[0], number.as_pointer())
        return builder.load(builder.gep(start, [arguments[1]]))

    return types.float64(types.int64, types.int64), generate


def read_only(array: npt.NDArray[Any], kind: type = float) -> npt.NDArray[Any]:
    """A read-only view: numba would compile everything anew for arrays that are not."""
    view: npt.NDArray[Any] = np.ascontiguousarray(array, kind).view()
    view.flags.writeable = False
    return view


@functools.cache
def _machine_code_folder() -> str:
    """A folder for what was compiled from these very sources, next to them if it can be written."""
    key = hashlib.sha256()
    for source in sorted(file for folder in SOURCES for file in (ROOT / folder).rglob("*.py")):
        key.update(source.read_bytes())
    beside = ROOT / "orchestrator" / "__pycache__"
    place = beside if os.access(beside.parent, os.W_OK) else cache_folder()
    return str(place / f"machine-code-{key.hexdigest()[:24]}")
