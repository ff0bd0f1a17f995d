# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Benchmarks for their tests: as modules, and as commands."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS, DOCS = ROOT / "benchmarks", ROOT / "docs"


@pytest.fixture(scope="session")
def load() -> Callable[[str], ModuleType]:
    """Imports a benchmark by its name."""

    def one(name: str) -> ModuleType:
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(BENCHMARKS)  # They import each other.
            return importlib.import_module(name)

    return one


@pytest.fixture
def command(
    load: Callable[[str], ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., str]:
    """Runs a benchmark with these arguments, which must succeed; what it prints."""

    def run(name: str, *words: object) -> str:
        module = load(name)
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, words)])
        capsys.readouterr()
        assert not module.main()
        return capsys.readouterr().out

    return run


@pytest.fixture(scope="session")
def published() -> Callable[..., list[str]]:
    """Cells of a row of a page: of the first table behind some text that has such first cells."""

    def row(page: str, behind: str, *cells: str) -> list[str]:
        text = (DOCS / page).read_text(encoding="utf-8").partition(behind)[2]
        lines = [line for line in text.splitlines() if line.startswith("| ")]
        rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)
        return next(row[len(cells) :] for row in rows if row[: len(cells)] == list(cells))

    return row
