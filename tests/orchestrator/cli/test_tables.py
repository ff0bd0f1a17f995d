# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What the console shows of results."""

from types import SimpleNamespace
from typing import Any

from orchestrator.analysis.error_budget import PARTS_OF_LATENCY
from orchestrator.cli.tables import budget_table


def headings(*rounds: dict[str, float]) -> list[str]:
    budgets = [
        SimpleNamespace(round=index, seconds=dict.fromkeys(PARTS_OF_LATENCY, 0.0) | seconds)
        for index, seconds in enumerate(rounds)
    ]
    done: Any = SimpleNamespace(rounds=[SimpleNamespace(budget=budget) for budget in budgets])
    return [str(column.header) for column in budget_table(done).columns]


def test_what_only_the_air_adds_has_a_column_where_it_does() -> None:
    usual = ["start", "framing", "compute", "injection", "order", "rest"]
    assert headings({"framing": 0.1}, {}) == ["round", *(f"{part} ms" for part in usual)]
    assert "delay ms" in headings({}, {"delay": 0.01})
    assert "loss ms" not in headings({}, {"delay": 0.01})
