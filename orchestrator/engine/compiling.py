# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Compiling functions to machine code with numba, and keeping it on disk."""

import atexit
import contextlib
import functools
import hashlib
import inspect
import io
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core.caching import IndexDataCacheFile
from numba.core.errors import NumbaError

from testbed.system.building import PREBUILT
from testbed.system.files import is_intact, sealed
from testbed.system.folders import cache_folder

Function = TypeVar("Function", bound=Callable[..., Any])

ROOT = Path(__file__).parents[2]
SOURCES = ("orchestrator/engine", "orchestrator/analytical", "orchestrator/flights", "testbed/core")
"""Folders of everything that is compiled, or is a constant in compiled code."""


class _Files(IndexDataCacheFile):  # type: ignore[misc]
    """The files of a function in numba's cache. A damaged one, which would crash, counts as
    missing, and is then written again."""

    @contextlib.contextmanager
    def _open_for_write(self, path: str) -> Iterator[io.BytesIO]:
        with super()._open_for_write(path) as file:
            yield (data := io.BytesIO())
            file.write(sealed(data.getvalue()))

    def _load_index(self) -> dict[Any, str]:
        return super()._load_index() if is_intact(Path(self._index_path)) else {}

    def _load_data(self, name: str) -> Any:
        if not is_intact(Path(self._data_path(name))):
            raise FileNotFoundError(name)
        return super()._load_data(name)


def compiled(function: Function) -> Function:
    """Compile to machine code, cached on disk where any cache folder can be written."""
    # numba looks at the file of a function alone; what it calls may be in another.
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, _machine_code_folder()
    try:
        machine_code = numba.njit(cache=True)(function)
        machine_code._cache._cache_file.__class__ = _Files
    except RuntimeError:
        machine_code = numba.njit(function)
    finally:
        numba.config.CACHE_DIR = before
    return machine_code  # type: ignore[no-any-return]


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


@functools.cache
def _machine_code_folder() -> str:
    """A folder for code compiled from exactly these sources.

    It is next to the sources in a checkout that can be written, otherwise in the cache folder: what
    is next to the files of an installed package would remain when the package is removed.
    """
    key = hashlib.sha256()
    for source in sorted(file for folder in SOURCES for file in (ROOT / folder).rglob("*.py")):
        key.update(source.read_bytes())
    name = f"machine-code-{key.hexdigest()[:24]}"
    is_checkout = (ROOT / "pyproject.toml").is_file()
    shared = (ROOT / "orchestrator" / "__pycache__" if is_checkout else PREBUILT) / name
    if is_checkout and os.access(ROOT / "orchestrator", os.W_OK):
        return str(shared)
    own = cache_folder() / name
    if not shared.is_dir() or own.is_dir():
        return str(own)
    # numba uses no folder that it cannot write. Therefore this user needs a copy.
    with contextlib.suppress(OSError):
        return _copied(shared, own)
    with contextlib.suppress(OSError):
        folder = Path(tempfile.mkdtemp(prefix="testbed-machine-code-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return _copied(shared, folder / name)
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
