# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What the console shows of results."""

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import rich

from orchestrator.analysis.error_budget import PARTS_OF_LATENCY
from orchestrator.cli.console import out
from orchestrator.cli.printed_tables import budget_table, plain_table


def headings(*rounds: dict[str, float]) -> list[str]:
    budgets = [dict.fromkeys(PARTS_OF_LATENCY, 0.0) | seconds for seconds in rounds]
    done: Any = SimpleNamespace(played=[SimpleNamespace(budget=budget) for budget in budgets])
    return [str(column.header) for column in budget_table(done).columns]


def test_what_only_the_air_adds_has_a_column_where_it_does() -> None:
    usual = ["start", "protocol", "compute", "injection", "order", "rest"]
    assert headings({"framing": 0.1}, {}) == ["round", *(f"{part} ms" for part in usual)]
    assert "delay ms" in headings({}, {"delay": 0.01})
    assert "loss ms" not in headings({}, {"delay": 0.01})


def test_a_log_file_has_whole_lines_and_all_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(rich, "_console", None)
    wide = pd.DataFrame({f"a long heading {k}": [1.5] for k in range(12)})
    out.print("a line " * 40)
    out.print(plain_table(wide))
    line, head, row = capsys.readouterr().out.splitlines()
    assert len(line) == 280
    assert all(name in head for name in wide)
    assert row.split() == ["1.500"] * 12
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(rich, "_console", None)
    out.print("a line " * 40)
    assert len(capsys.readouterr().out.splitlines()) > 4


def test_nothing_has_no_sign() -> None:
    done: Any = SimpleNamespace(played=[SimpleNamespace(budget=Tiny())])
    cells = [next(iter(column.cells)) for column in budget_table(done).columns]
    assert cells[1] == "+0.00"


class Tiny(dict[str, float]):
    """An error budget whose parts are all just below nothing."""

    def __missing__(self, part: str) -> float:
        return -1e-9
