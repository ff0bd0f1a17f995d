# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The page of performance: what it says follows from its record, and every part can be measured."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import performance


def a_record(**rows: dict[str, dict[int, float]]) -> dict[str, Any]:
    about = {"revision": "0123abc", "date": "2026-11-29", "machine": "2 cores", "versions": {}}
    return {
        part: {
            "rows": {
                row: [{"size": n, "cpu_s": s, "mb": 10.0 * n} for n, s in cells.items()]
                for row, cells in of.items()
            },
            "missing": {},
            **about,
        }
        for part, of in rows.items()
    }


def test_the_page_names_the_best_other_program_exponents_and_what_is_missing() -> None:
    record = a_record(
        rounds={
            "`tb.predict`": {10: 0.001, 100: 0.1, 1000: 10.0, 10_000: 1000.0},
            "NumPy": {10: 0.1, 100: 1.0, 1000: 40.0},
            "SimPy, a wait per slot": {10: 0.1, 100: 1.0, 1000: 90.0},
        },
        ppo={"`drl-`": {288: 0.010}, "stable-baselines3": {288: 0.005}, "`drl`": {288: 0.001}},
        growth={"rounds of `tb.predict`": {100: 1.0, 400: 4.0, 1600: 16.0}},
    )
    record["rounds"]["missing"]["SimPy, a wait per transfer"] = "`pip install simpy`"
    text = performance.page(record)
    assert (
        "In 1 of 2 comparisons, the best other program takes more CPU time than the testbed: "
        "Rounds (4 times, NumPy). In the others, the testbed takes more: PPO (2 times, "
        "stable-baselines3)."
    ) in text
    assert "| `tb.predict` | 1 | 100 | 10,000 | 1,000,000 | 2.00 | 100,000 |" in text
    assert "| rounds of `tb.predict` | 100: 1; 400: 4; 1,600: 16 | 1.00 | 16,000 |" in text
    assert "| `drl-` | 10 | 2,880 |" in text
    assert "Not measured: SimPy, a wait per transfer; `pip install simpy`." in text
    assert "`python benchmarks/performance.py ppo --publish` (revision 0123abc, 2026-11-29;" in text


def test_the_published_page_and_picture_show_the_record(tmp_path: Path) -> None:
    record = performance.json.loads(performance.RECORD.read_text(encoding="utf-8"))
    assert set(record) == {*performance.PARTS, "budgets"}
    assert performance.page(record) == performance.PAGE.read_text(encoding="utf-8")
    performance.draw(record, tmp_path / "drawn.svg")
    assert (tmp_path / "drawn.svg").read_bytes() == performance.PICTURE.read_bytes()


def test_what_is_not_installed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(performance.shutil, "which", lambda _: None)
    monkeypatch.setattr(performance.os, "geteuid", lambda: 0)
    assert performance.inside("nodes", "Mininet", 2) == {"missing": "`apt-get install mininet`"}
    monkeypatch.setattr(performance.os, "geteuid", lambda: 1)
    assert performance.inside("rates", "`tc`", 2) == {"missing": "run the benchmark as root"}


@pytest.mark.parametrize("row", performance.PARTS["rounds"].rows)
def test_programs_play_the_same_rounds(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    play = performance.PARTS["rounds"].rows[row].work
    assert isinstance(play, performance.partial)
    assert 0 < performance.round_s(play.args[0], 2, 5) < 1


SMALLEST = (
    ("growth", "rounds of `tb.predict`", 3),
    ("growth", "predicted points of a campaign", 1),
    ("growth", "slots of `testbed trace`", 10),
    *(("nodes", row, 2) for row in performance.PARTS["nodes"].rows),
    *(("rates", row, 2) for row in performance.PARTS["rates"].rows),
    *(("ppo", row, 24) for row in performance.PARTS["ppo"].rows),
    ("training", "`testbed learn`", 2),
    ("training", "plain PyTorch", 2),
    ("lte", "the testbed's ns-3 program", 1),
    ("lte", "plain ns-3", 1),
)


@pytest.mark.parametrize(("part", "row", "size"), SMALLEST)
def test_the_smallest_case_is_measured_in_a_process(part: str, row: str, size: int) -> None:
    found = performance.measured(part, row, size)
    if "missing" not in found:
        assert 0 < found["cpu_s"] < 60
        assert found["mb"] > 5
    else:
        assert "install" in found["missing"] or os.geteuid()
