# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What commands print: results on stdout; how far long work is on stderr.

Progress is a bar on a terminal, a line now and then elsewhere. Rich is imported when something is
printed through it: `--help` and completion do without.
"""

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from testbed.core.errors import InputError
from testbed.core.progress import Progress
from testbed.system import inside

LEVELS = ("debug", "info", "warning", "error")
PACKAGES = ("orchestrator", "workloads", "ns3_scenarios", "testbed")
"""Whose loggers the command line shows; those of libraries stay as they are."""
LONG = 400
"""Characters of the longest line in a file."""
EVERY_S = 10.0
"""Between two lines where there is no terminal."""


class Out:
    """Rich's console for results.

    In a file or a pipe no line is broken and no table loses a column, however long, unless
    `COLUMNS` says how long lines may be.
    """

    def print(self, *objects: object, **options: Any) -> None:
        """As `rich.console.Console.print`."""
        from rich import get_console

        console = get_console()
        if not console.is_terminal and "COLUMNS" not in os.environ:
            console.width = LONG
            if all(isinstance(it, str) for it in objects):
                options = {"soft_wrap": True} | options
        console.print(*objects, **options)


out = Out()


class _OneLine(logging.Formatter):
    """`testbed: MESSAGE` in one line; of what is told to developers, who says so, too."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        who = f"{record.name}: " if record.levelno < logging.INFO else ""
        return f"testbed: {who}{' '.join(record.getMessage().split())}"


def log_to_stderr(level: str) -> None:
    """Show what our own packages log, from a level on: debug, info, warning or error.

    Raises:
        InputError: No such level.
    """
    if level.lower() not in LEVELS:
        raise InputError(f"TESTBED_LOG: must be one of {', '.join(LEVELS)}, not {level!r}")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine())
    for package in PACKAGES:
        logger = logging.getLogger(package)
        logger.handlers = [handler]
        logger.setLevel(level.upper())


@contextmanager
def shown(unit: str = "") -> Iterator[Progress]:
    """Show progress while the context lasts; `unit` follows the numbers.

    In virtual time, the host shows it: what a run does must not depend on who looks on.
    """
    if inside.guest_settings() is not None:
        yield inside.report_progress
        return
    if sys.stderr.isatty():
        from rich import progress as rich
        from rich.console import Console

        with rich.Progress(
            "{task.description}",
            rich.BarColumn(),
            rich.TextColumn(f"{{task.completed:.0f}} of {{task.total:.0f}} {unit}"),
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
