# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Parameters of what a scenario names, built in or a package's: given by keyword, refused in one
line."""

import inspect
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from testbed.core import plugins
from testbed.core.errors import InputError


def made(
    group: str, built_in: Mapping[str, Callable[..., Any]], name: str, parameters: Mapping[str, Any]
) -> Any:
    """What the function of that name, built in or a package's, makes of its parameters.

    Raises:
        ValueError: It has no such parameters, or not these values.
        InputError: A package's cannot be loaded, or is no function.
    """
    make = built_in.get(name) or plugins.load_function(group, name)
    try:
        inspect.signature(make).bind(**parameters)
    except TypeError as error:
        has = ", ".join(inspect.signature(make).parameters) or "none"
        raise ValueError(f"{name!r}: {error}; its parameters: {has}") from None
    try:
        return make(**parameters)
    except (ValueError, InputError):
        raise
    except Exception as error:
        raise plugins.unfit(group, name, f"fails: {plugins.reason(error)}") from error


def number(name: str, value: Any, low: float, high: float, *, whole: bool = False) -> None:
    """Refuse a parameter that is no number, or not in [low, high), a whole one in [low, high].

    Raises:
        ValueError: It is not.
    """
    kind = int if whole else int | float
    fits = isinstance(value, kind) and not isinstance(value, bool)
    if not fits or not (low <= value <= high if whole else low <= value < high):
        limit = "" if high == math.inf else f" {'to' if whole else 'and below'} {high:g}"
        what = "a whole number" if whole else "a number"
        raise ValueError(f"{name}: must be {what} from {low:g}{limit}, not {value!r}")


def one_of(name: str, value: Any, known: Collection[str]) -> None:
    """Refuse a parameter that is none of these words.

    Raises:
        ValueError: It is not.
    """
    if value not in known:
        raise ValueError(f"{name}: must be one of {', '.join(known)}, not {value!r}")
