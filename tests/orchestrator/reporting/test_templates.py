# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Templates of pages are compiled once, and not again by later processes."""

from pathlib import Path
from typing import Any

import pytest
from jinja2 import Environment

from orchestrator.reporting import pages


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Names of the templates that are compiled."""
    names, whole = [], Environment.compile

    def noted(self: Environment, source: Any, name: Any = None, *given: Any) -> Any:
        names.append(name)
        return whole(self, source, name, *given)

    monkeypatch.setattr(Environment, "compile", noted)
    return names


def opened() -> None:
    """Open a template as another process does."""
    pages._environment.__wrapped__().get_template("index.html")


def test_later_processes_do_not_compile_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: list[Any]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    opened()
    opened()
    assert compiled == ["index.html"]
    [file] = [path for path in tmp_path.rglob("*") if path.is_file()]
    for length in (0, 20):
        file.write_bytes(file.read_bytes()[:length])
        opened()
    assert compiled == ["index.html"] * 3
    opened()
    assert compiled == ["index.html"] * 3


def test_a_cache_that_cannot_be_written_only_costs_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: list[Any]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    opened()
    opened()
    assert compiled == ["index.html"] * 2
