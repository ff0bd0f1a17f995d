# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Checks of the parameter values of built-in functions."""

import math
from collections.abc import Collection
from typing import Any


def number(name: str, value: Any, low: float, high: float, *, whole: bool = False) -> None:
    """Refuse a parameter that is not a number in [low, high), or with `whole` not a whole number in
    [low, high].

    Raises:
        ValueError: The value is not a number in this range.
    """
    kind = int if whole else int | float
    fits = isinstance(value, kind) and not isinstance(value, bool)
    if not fits or not (low <= value <= high if whole else low <= value < high):
        limit = "" if high == math.inf else f" {'to' if whole else 'and below'} {high:g}"
        what = "a whole number" if whole else "a number"
        raise ValueError(f"{name}: must be {what} from {low:g}{limit}, not {value!r}")


def one_of(name: str, value: Any, known: Collection[str]) -> None:
    """Refuse a parameter whose value is not one of the known words.

    Raises:
        ValueError: The value is not one of these words.
    """
    if value not in known:
        raise ValueError(f"{name}: must be one of {', '.join(known)}, not {value!r}")
