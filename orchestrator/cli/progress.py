"""How far long work is: a bar on a terminal, a line now and then elsewhere; always on stderr."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EVERY_S = 10.0
"""Between two lines where there is no terminal."""

Show = Callable[[str, float, float], None]
"""Takes what is being done, how much of it is done, and how much there is."""


@contextmanager
def shown(unit: str = "") -> Iterator[Show]:
    """Show progress while the context lasts; `unit` follows the numbers."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        with Progress(
            "{task.description}",
            BarColumn(),
            TextColumn(f"{{task.completed:.0f}} of {{task.total:.0f}} {unit}"),
            console=Console(stderr=True),
            transient=True,
        ) as bar:
            task = bar.add_task("", total=1)

            def move(what: str, done: float, total: float) -> None:
                bar.update(task, description=what, completed=max(0.0, done), total=total)

            yield move
        return
    last_s = time.monotonic()

    def line(what: str, done: float, total: float) -> None:
        nonlocal last_s
        if time.monotonic() - last_s >= EVERY_S:
            last_s = time.monotonic()
            # What computing really takes is not predicted where `compute_time` is measured.
            of = f" of {total:.0f}" if done <= total else ""
            print(f"testbed: {what}: {max(0.0, done):.0f}{of} {unit}".rstrip(), file=sys.stderr)

    yield line
