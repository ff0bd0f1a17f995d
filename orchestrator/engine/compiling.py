# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Compiling functions to machine code with numba, and keeping it on disk."""

import atexit
import contextlib
import functools
import hashlib
import inspect
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core.cgutils import unpack_tuple
from numba.core.errors import NumbaError
from numba.extending import intrinsic, overload

from testbed.system.folders import cache_folder

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Function = TypeVar("Function", bound=Callable[..., Any])

ROOT = Path(__file__).parents[2]
SOURCES = ("orchestrator/engine", "orchestrator/theory", "orchestrator/flights", "testbed/core")
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


def borrowed(value: Any) -> Any:
    """The same array, or named tuple of arrays, whose uses are not counted in compiled code.

    Counting the references to an array at each use takes longer than most uses. The caller
    must keep the original.
    """
    return value


@overload(borrowed, jit_options={"forceinline": True}, strict=False)  # type: ignore[untyped-decorator]
def _borrowed(value: Any) -> Callable[..., Any]:
    return lambda value: _without_owner(value)


@intrinsic  # type: ignore[untyped-decorator]
def _without_owner(typing_context: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _disowned(context, builder, value, arguments[0])

    return value(value), generate


def _disowned(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value=value)
        array.meminfo = array.meminfo.type(None)
        return array._getvalue()
    if isinstance(kind, types.BaseTuple):
        for place, each in enumerate(kind):
            part = _disowned(context, builder, each, builder.extract_value(value, place))
            value = builder.insert_value(value, part, place)
    return value


def caller_of(signature: Any) -> Any:
    """A function for compiled code that calls a C function of this signature, given its address and
    a tuple of its arguments.

    With numba's first-class functions, each call would take 20 µs to determine the types of its
    arguments.
    """

    @intrinsic  # type: ignore[untyped-decorator]
    def call(_: Any, address: Any, numbers: Any) -> Any:
        def code(context: Any, builder: Any, _: Any, given: Any) -> Any:
            kinds = [context.get_value_type(kind) for kind in signature.args]
            of = ir.FunctionType(context.get_value_type(signature.return_type), kinds)
            function = builder.inttoptr(given[0], ir.PointerType(of))
            return builder.call(function, unpack_tuple(builder, given[1], len(kinds)))

        return signature.return_type(address, types.Tuple(signature.args)), code

    return call


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


def read_only(array: npt.NDArray[Any], kind: type = float) -> npt.NDArray[Any]:
    """A read-only view: numba would compile a second version of everything for writable arrays."""
    view: npt.NDArray[Any] = np.ascontiguousarray(array, kind).view()
    view.flags.writeable = False
    return view


@functools.cache
def _machine_code_folder() -> str:
    """A folder for code compiled from exactly these sources, next to them if it can be written."""
    key = hashlib.sha256()
    for source in sorted(file for folder in SOURCES for file in (ROOT / folder).rglob("*.py")):
        key.update(source.read_bytes())
    name = f"machine-code-{key.hexdigest()[:24]}"
    beside = ROOT / "orchestrator" / "__pycache__" / name
    if os.access(ROOT / "orchestrator", os.W_OK):
        return str(beside)
    own = cache_folder() / name
    if not beside.is_dir() or own.is_dir():
        return str(own)
    # numba uses no folder that it cannot write. Therefore this user needs a copy.
    with contextlib.suppress(OSError):
        return _copied(beside, own)
    with contextlib.suppress(OSError):
        folder = Path(tempfile.mkdtemp(prefix="testbed-machine-code-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return _copied(beside, folder / name)
    return str(own)


def _copied(folder: Path, target: Path) -> str:
    """The path of a copy of a folder, which appears as a whole.

    Raises:
        OSError: The copy cannot be written.
    """
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        shutil.copytree(folder, part)
        if not target.is_dir():  # Another process may have been first.
            part.replace(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return str(target)
