# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The page shows the record of the benchmark, and whether other programs disturbed it."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def fidelity(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("fidelity")


def a_record(fidelity: ModuleType, others: float) -> Any:
    figures = fidelity.Figures(others=others)
    figures.spread("paper", "broadcasts", [0.001, -0.002, 0.003], (None, None, None))
    figures.spread("baselines", "tc HTB, fading uploads", [0.5, 0.5, 0.7], (None, None, None))
    figures.add("paper", "round latency, error", 0.123, 0.3, "%")
    return json.loads(json.dumps(fidelity.record(figures)))


def test_its_table_has_median_and_95th_percentile(fidelity: ModuleType) -> None:
    record = a_record(fidelity, others=0.01)
    lines = fidelity.published(record).splitlines()
    assert "| the paper's | this testbed | 0.2 / 0.29 | – | – | 0.12 |" in lines
    assert "| jump in each slot | tc HTB | | 50 / 68 | | |" in lines
    (measurement,) = record["measurements"]
    assert f"{measurement['date']} (paper, baselines): {measurement['machine']}" in lines[-1]
    assert "not idle" not in lines[-1]
    loaded = fidelity.published(a_record(fidelity, others=0.64))
    assert "Other programs used up to 64 % of the CPU time: the machine was not idle" in loaded


def test_it_is_written_between_the_marks_of_the_page(
    fidelity: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "README.md"
    page.write_text(f"before\n{fidelity.MARKS[0]}\nold\n{fidelity.MARKS[1]}\nafter\n")
    monkeypatch.setattr(fidelity, "PAGE", page)
    record = a_record(fidelity, others=0)
    fidelity.publish(record)
    table = fidelity.published(record)
    text = f"before\n{fidelity.MARKS[0]}\n{table}\n{fidelity.MARKS[1]}\nafter\n"
    assert page.read_text() == text


def test_parts_that_are_not_measured_again_keep_their_values(fidelity: ModuleType) -> None:
    figures = fidelity.Figures()
    figures.spread("paper", "broadcasts", [0.5], (None, None, None))
    both = fidelity.merged(a_record(fidelity, 0), json.loads(json.dumps(fidelity.record(figures))))
    assert [each["parts"] for each in both["measurements"]] == [["baselines"], ["paper"]]
    text = fidelity.published(both)
    assert "| the paper's | this testbed | 50 / 50 | – | – | – |" in text
    assert "| jump in each slot | tc HTB | | 50 / 68 | | |" in text


def test_the_page_shows_the_record(fidelity: ModuleType) -> None:
    record = json.loads(fidelity.RECORD.read_text(encoding="utf-8"))
    assert fidelity.published(record) in fidelity.PAGE.read_text(encoding="utf-8")
    assert any(name.endswith("broadcasts") for name in record["errors"])


def test_its_picture_has_a_line_per_series_and_repeats_to_the_byte(
    fidelity: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = json.loads(fidelity.RECORD.read_text(encoding="utf-8"))
    assert set(fidelity.SERIES) <= set(record["errors"])
    monkeypatch.setattr(fidelity, "PICTURE", tmp_path / "fidelity.svg")
    monkeypatch.setattr(sys, "argv", ["fidelity.py", "--redraw"])
    fidelity.main()
    drawn = (tmp_path / "fidelity.svg").read_bytes()
    assert drawn == (ROOT / "docs" / "fidelity.svg").read_bytes(), (
        "docs/fidelity.svg is not in step"
    )
    fidelity.draw({"fading: uploads": [0.01]}, tmp_path / "one.svg")
    assert len((tmp_path / "one.svg").read_text()) < len(drawn)
