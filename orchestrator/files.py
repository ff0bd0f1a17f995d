"""Files that appear whole or not at all."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.errors import InputError


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file beside `path`, then rename it into place.

    A failure leaves neither a half-written file nor a changed one.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        write(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, whole or not at all."""
    text = json.dumps(value, allow_nan=False)
    write_whole(path, lambda partial: partial.write_text(text + "\n", encoding="utf-8"))


def check_writable(option: str, path: Path | None) -> None:
    """Refuse an output file whose folder is not there, before any work is done.

    Raises:
        InputError: Names the option.
    """
    if path is None:
        return
    if path.is_dir():
        raise InputError(f"{option}: {path} is a directory")
    if not path.parent.is_dir():
        raise InputError(f"{option}: the folder {path.parent} does not exist")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{option}: the folder {path.parent} cannot be written")
