# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Progress of functions that a notebook calls."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

from testbed.core.progress import Progress, silent

QUICK_S = 1.0
"""Work that takes less long shows no progress, s."""


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

    began_s, handles = time.monotonic(), list[Any]()

    def show(what: str, done: float, total: float) -> None:
        if time.monotonic() - began_s < QUICK_S:
            return
        value = max(0.0, done)
        of = f" of {total:.0f}" if done <= total else ""
        bar = f'<progress value="{value:g}" max="{max(total, value):g}"></progress>'
        shown = HTML(f"{bar} {escape(what)}: {value:.0f}{of}")
        if handles:
            handles[0].update(shown)
        else:
            handles.append(display(shown, display_id=True))

    try:
        yield show
    finally:
        for handle in handles:
            handle.update({"text/plain": ""}, raw=True)


def _is_notebook() -> bool:
    """Whether this process is the kernel of a notebook; a terminal's IPython is not."""
    module: Any = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    return hasattr(shell, "kernel")
