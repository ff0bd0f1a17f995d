# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""No count of `benchmarks/budgets.py` exceeds its budget, and each is counted."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import budgets


@pytest.mark.parametrize("name", budgets.BUDGETS)
def test_work_stays_within_its_budget(name: str) -> None:
    budget = budgets.BUDGETS[name]
    now, most = budgets.used(budget), budget.most
    assert now.calls <= most.calls, now
    assert now.kb <= most.kb, now
    assert now.processes <= most.processes, now


def test_calls_memory_and_processes_of_a_unit_are_counted() -> None:
    def work(units: int) -> None:
        kept = []
        for _ in range(units):
            kept.append(bytes(100_000))
            subprocess.run(["true"], check=True)

    def prepared() -> budgets.Work:
        return work

    now = budgets.used(budgets.Budget("", prepared, budgets.Counts(0, 0), few=1, many=3))
    assert now.processes == 1
    assert 90 < now.kb < 130
    assert now.calls > 10
