# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How long work tells how far it is."""

from collections.abc import Callable

Progress = Callable[[str, float, float], None]
"""Takes what is being done, how much of it is done, and how much there is."""


def silent(what: str, done: float, total: float) -> None:
    """Tells nobody."""
