# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Progress of functions that a notebook calls."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from testbed.core.progress import Progress, silent


@contextmanager
def followed(given: Progress | None) -> Iterator[Progress]:
    """The function to call with the progress of long work.

    Args:
        given: The caller's own; None: a bar in a notebook, and nothing elsewhere.
    """
    if given is not None or not _is_notebook():
        yield given or silent
        return
    from IPython.display import HTML, display

    handle: Any = display(HTML(""), display_id=True)

    def show(what: str, done: float, total: float) -> None:
        from html import escape

        value = max(0.0, done)
        of = f" of {total:.0f}" if done <= total else ""
        bar = f'<progress value="{value:g}" max="{max(total, value):g}"></progress>'
        handle.update(HTML(f"{bar} {escape(what)}: {value:.0f}{of}"))

    try:
        yield show
    finally:
        handle.update(HTML(""))


def _is_notebook() -> bool:
    """Whether this process is the kernel of a notebook; a terminal's IPython is not."""
    module: Any = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    return hasattr(shell, "kernel")
