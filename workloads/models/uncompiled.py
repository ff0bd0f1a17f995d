# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""timm and optimisers without PyTorch's compiler, whose import takes longer than that of torch.

The testbed compiles nothing, but the compiler, `torch._dynamo`, is also imported by code that only
excludes a function from being compiled: when timm is imported, when an operation on the meta device
is executed for the first time, and by optimisers.
"""

import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch.compiler

_COMPILER = "torch._dynamo"


def _as_it_is(function: Callable[..., Any], *_: object, **__: object) -> Callable[..., Any]:
    """Stands for the compiler's `disable`, which has an effect only while something is compiled."""
    return function


def _do_nothing() -> None:
    """Stands for the compiler's `graph_break`, likewise."""


class _StandIn(ModuleType):
    """Stands for a module of the compiler, and imports the module itself if more is needed."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        with _LOCK:
            _remove()
            return getattr(importlib.import_module(self.__name__), name)


def _is_compile_supported(device_type: str) -> bool:
    """Stands for the compiler's function of this name, and calls it."""
    module = importlib.import_module(f"{_COMPILER}.utils")
    return bool(module.is_compile_supported(device_type))


_MODULE, _UTILS = _StandIn(_COMPILER), _StandIn(f"{_COMPILER}.utils")
vars(_MODULE).update(disable=_as_it_is, graph_break=_do_nothing)
vars(_UTILS).update(is_compile_supported=_is_compile_supported)
_LOCK = threading.RLock()
_users = 0
"""Number of contexts that have been entered and not left."""


def _remove() -> None:
    for module in (_MODULE, _UTILS):
        if sys.modules.get(module.__name__) is module:
            del sys.modules[module.__name__]


@contextmanager
def without_compiler() -> Iterator[None]:
    """Within the context, code that asks for the compiler gets the functions above instead of an
    import. Without effect if the compiler is imported already."""
    global _users
    with _LOCK:
        _users += 1
        if _COMPILER not in sys.modules:
            sys.modules.update({module.__name__: module for module in (_MODULE, _UTILS)})
    try:
        yield
    finally:
        with _LOCK:
            _users -= 1
            if not _users:
                _remove()


with without_compiler():
    # A function of timm calls it as a decorator; it would import more of the compiler.
    _disable, torch.compiler.disable = torch.compiler.disable, _as_it_is  # type: ignore[assignment]
    try:
        import timm as timm
    finally:
        torch.compiler.disable = _disable
