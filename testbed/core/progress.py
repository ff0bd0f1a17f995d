# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Progress reports of long tasks."""

from collections.abc import Callable

Progress = Callable[[str, float, float], None]
"""Called with a description of the task, the amount done, and the total amount."""


def which_round(index: int, rounds: int) -> str:
    """Text for the current round; rounds count from 0."""
    return f"round {index} of 0–{rounds - 1}" if rounds > 1 else f"round {index}"


def silent(what: str, done: float, total: float) -> None:
    """Ignore the progress."""
