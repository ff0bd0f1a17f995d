# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Output of commands: results on stdout, progress of long work on stderr.

Progress is a bar on a terminal, otherwise a line every `PROGRESS_INTERVAL_S`. Rich is imported
when something is printed through it: `--help` and completion do without.
"""

import logging
import os
import sys
import time
import unicodedata
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from testbed.core.errors import InputError
from testbed.core.progress import Progress
from testbed.system import inside
from testbed.system.leftovers import temporary_folder

LEVELS = ("debug", "info", "warning", "error")
PACKAGES = ("orchestrator", "workloads", "ns3_scenarios", "testbed")
"""Packages whose loggers the command line shows; libraries' loggers are not changed."""
FILE_COLUMNS = 400
"""Width of a line, in characters, where stdout is not a terminal."""
PROGRESS_INTERVAL_S = 10.0
"""Least time between two progress lines where stderr is not a terminal, s."""
UNSEEN = {"Cc", "Cf", "Zl", "Zp"}
"""Categories of characters that are not seen but change what a terminal shows: control characters,
marks of the writing direction, and separators of lines."""


def plain(text: str) -> str:
    """A text that may come from a file, with characters that control a terminal as escapes.

    Line feeds and tabs stay: `\\x1b[31m` is shown for a sequence that would make the text red.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        ascii(letter)[1:-1]
        if unicodedata.category(letter) in UNSEEN and letter not in "\n\t"
        else letter
        for letter in text
    )


def say(line: str) -> None:
    """Print a line about the command on stderr: not a result."""
    print(f"testbed: {plain(line)}", file=sys.stderr, flush=True)


def has_width() -> bool:
    """Whether lines are limited: on a terminal, and by the environment variable `COLUMNS`."""
    return sys.stdout.isatty() or "COLUMNS" in os.environ


class Out:
    """Rich's console for results.

    Where lines are not limited (see `has_width`), they are not wrapped, and tables lose no columns.
    Texts are printed as by `plain`, also in cells of tables: only rich controls the terminal.
    """

    limits_lines: bool | None = None
    """Whether lines are limited; None: see `has_width`. The host knows it for its guest."""

    def print(self, *objects: object, **options: Any) -> None:
        """Print as `rich.console.Console.print` does."""
        from rich import get_console

        console = get_console()
        if not (has_width() if self.limits_lines is None else self.limits_lines):
            console.width = FILE_COLUMNS
            if all(isinstance(it, str) for it in objects):
                options = {"soft_wrap": True} | options
        console.print(
            *(plain(it) if isinstance(it, str) else _Plain(it) for it in objects), **options
        )


class _Plain:
    """A renderable, e.g. a table, whose texts are printed as by `plain`."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        """Render it, for rich."""
        for part in console.render(self._inner, options):
            yield part if part.control else part._replace(text=plain(part.text))


out = Out()


_kept = ExitStack()
"""Gives stdout back, see `json_only`."""


def release_stdout() -> None:
    """End the effect of `json_only` on stdout: another process prints the JSON."""
    _kept.close()


@contextmanager
def json_only() -> Iterator[Path]:
    """While this context lasts, stdout is kept for JSON: what is printed goes to stderr.

    Yields the path of a file to write. At the end its content goes to stdout, also if the command
    failed after writing it.
    """
    sys.stdout.flush()
    with _kept, temporary_folder("json") as folder:
        _kept.callback(os.close, stdout := os.dup(1))
        _kept.callback(os.dup2, stdout, 1)
        os.dup2(2, 1)  # Libraries and child processes print there, too.
        _kept.enter_context(redirect_stdout(sys.stderr))
        path = folder / "results.json"
        try:
            yield path
        finally:
            _kept.close()
            if path.exists():
                sys.stdout.write(path.read_text(encoding="utf-8"))
                sys.stdout.flush()


class _OneLine(logging.Formatter):
    """Formats records as one line, `testbed: MESSAGE`; debug messages also name their logger."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record."""
        name = f"{record.name}: " if record.levelno < logging.INFO else ""
        return f"testbed: {name}{plain(' '.join(record.getMessage().split()))}"


def log_to_stderr(level: str) -> None:
    """Show log messages of our own packages from a level on: debug, info, warning or error.

    Raises:
        InputError: `level` is not one of these.
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

    In virtual time the host shows it: a run must not depend on how its progress is shown.
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
                bar.update(task, description=plain(what), completed=max(0.0, done), total=total)

            yield move
        return
    last_s = time.monotonic()

    def line(what: str, done: float, total: float) -> None:
        nonlocal last_s
        if time.monotonic() - last_s >= PROGRESS_INTERVAL_S:
            last_s = time.monotonic()
            # Where `compute_time` is measured, the total is not known in advance.
            of = f" of {total:.0f}" if done <= total else ""
            say(f"{what}: {max(0.0, done):.0f}{of} {unit}".rstrip())

    yield line
