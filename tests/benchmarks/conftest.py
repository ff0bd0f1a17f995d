# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Benchmarks for their tests: as modules, and as commands."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


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
