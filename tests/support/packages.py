# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Packages of plug-ins, as an installer leaves them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed.core.registry import installed


def write_package(folder: Path, name: str, module: str, entries: str) -> None:
    """A package of one module and its entry points, in a folder that may be new."""
    about = folder / f"{name}-1.2.dist-info"
    about.mkdir(parents=True)
    (folder / f"{name}.py").write_text(module, encoding="utf-8")
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (about / "entry_points.txt").write_text(entries)


@contextmanager
def importable(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The folder's package installed in this process, for as long as the context lasts."""
    monkeypatch.syspath_prepend(str(folder))
    installed.cache_clear()
    yield
    installed.cache_clear()
    sys.modules.pop(name, None)
