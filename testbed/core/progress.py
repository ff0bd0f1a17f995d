# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How long work tells how far it is."""

from collections.abc import Callable

Progress = Callable[[str, float, float], None]
"""Takes what is being done, how much of it is done, and how much there is."""


def which_round(index: int, rounds: int) -> str:
    """Which round it is, in words; they count from 0."""
    return f"round {index} of 0–{rounds - 1}" if rounds > 1 else f"round {index}"


def silent(what: str, done: float, total: float) -> None:
    """Tells nobody."""
