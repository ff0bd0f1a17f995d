# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The benchmark of the paper's figures over ns-3's LTE: its points, its table, and a round."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from small_scenario import TEXT

MARKS = "<!-- begin: radio_figures -->", "<!-- end: radio_figures -->"
FIGURES = ("fig4", "fig5", "fig6", "fig7")


@pytest.fixture(scope="module")
def benchmark(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("radio_figures")


def result(model: float, frames: float, packets: float) -> dict[str, Any]:
    latencies = {"model": model, "frames": frames, "packets": packets}
    return {name: {"latency_s": latency, "steps_s": {}} for name, latency in latencies.items()}


FOUND = {
    ("fig4", "u = 1"): {
        "cpsfl": result(10, 11, 11.5),
        "pipesfl": result(12, 13, 11),
        "sfl-pp": result(20, 21, 22),
    },
    ("fig7", "K = 3"): {
        "cpsfl": result(1, 2, 2.5),
        "pipesfl": result(3, 4, 5),
        "sfl-pp": result(5, 6, 7),
    },
}


def test_the_points_are_those_of_the_paper_s_figures(benchmark: ModuleType) -> None:
    found = list(benchmark.points(FIGURES, benchmark.PAPER, None))
    assert len(found) == 4 * 3 * 3
    scenarios = {(place, paradigm): point.scenario for place, paradigm, point in found}
    assert all(each.paradigm == paradigm for (_, paradigm), each in scenarios.items())
    assert {each.emulation.air for each in scenarios.values()} == {"ns3"}
    assert {each.rounds for each in scenarios.values()} == {1}
    by_place = {place: scenario for (place, _), scenario in scenarios.items()}
    assert [by_place["fig4", f"u = {u}"].workload.split for u in (1, 2, 4)] == [1, 2, 4]
    iterations = [by_place["fig6", f"I = {i}"].workload.local_iterations for i in (1, 3, 5)]
    assert iterations == [1, 3, 5]
    assert [by_place["fig7", f"K = {k}"].uavs.count for k in (3, 6, 12)] == [3, 6, 12]
    assert by_place["fig7", "K = 6"].uavs.tx_power_w == [0.9, 0.9, 0.3, 0.3, 0.1, 0.1]
    assert [by_place["fig5", f"cluster {n}"].uavs.tx_power_w[-1] for n in (1, 3, 5)] == [
        0.8,
        0.2,
        0.1,
    ]
    # u = 2 of figure 4 is I = 3 of figure 6, and is played once.
    assert len({point.id for *_, point in found}) == len(found) - 3


def test_a_fleet_can_be_made_smaller(benchmark: ModuleType) -> None:
    found = {
        place: point.scenario.uavs.tx_power_w
        for place, _, point in benchmark.points(("fig4", "fig7"), benchmark.PAPER, 4)
    }
    assert found["fig4", "u = 1"] == [1, 1, 1, 0.1]
    assert found["fig7", "K = 3"] == [0.9, 0.3, 0.1]
    assert found["fig7", "K = 12"] == [0.9, 0.3, 0.3, 0.1]


def test_its_table_has_differences_and_orders(benchmark: ModuleType) -> None:
    head, first, second = benchmark.rows(FOUND)
    assert head[2:5] == ["cpsfl", "pipesfl", "sfl-pp"]
    assert first[:3] == ["fig4", "u = 1", "10.00 / 11.00 / 11.50 (+15.0%, +4.5%)"]
    assert first[5] == "pipesfl < cpsfl < sfl-pp; model: cpsfl < pipesfl < sfl-pp"
    assert second[5] == "the same"
    assert benchmark.summary(FOUND) == [
        "largest difference from model: +150.0% (fig7, K = 3, cpsfl)",
        "largest difference from frames: +25.0% (fig7, K = 3, cpsfl)",
        "the order of the paradigms is the same at 1 of 2 points",
    ]


def test_points_that_the_file_has_are_not_computed_again(
    benchmark: ModuleType, tmp_path: Path
) -> None:
    asked: list[str] = []

    def one(scenario: str) -> dict[str, str]:
        asked.append(scenario)
        return {"from": scenario}

    file = tmp_path / "results.json"
    benchmark.played({"a": "A"}, 1, file, one)
    found = benchmark.played({"a": "A", "b": "B"}, 2, file, one)
    assert asked == ["A", "B"]
    assert found == json.loads(file.read_text()) == {"a": {"from": "A"}, "b": {"from": "B"}}


def test_a_round_by_each_method_is_written_into_a_page(
    benchmark: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page, file, small = (tmp_path / name for name in ("page.md", "found.json", "small.yaml"))
    page.write_text("\n".join(["before", *MARKS, "after"]))
    small.write_text(TEXT.replace("4.0e+6", "5.0e+6"))
    monkeypatch.setattr(benchmark, "PARADIGMS", ("cpsfl", "sfl-pp"))
    words = f"--figures fig7 --scenario {small} --uavs 2 --json {file} --docs {page}"
    monkeypatch.setattr(sys, "argv", ["radio_figures.py", *words.split()])
    benchmark.main()
    (first, second) = json.loads(file.read_text()).values()  # K = 3, 6 and 12 are equal here
    for each in (first, second):
        assert set(each["packets"]["steps_s"]) == {"SM", "CF", "CA", "S", "SG", "CB", "CM"}
        assert each["frames"]["latency_s"] == pytest.approx(each["packets"]["latency_s"], rel=0.1)
        assert each["model"]["latency_s"] < 0.95 * each["packets"]["latency_s"]
    lines = page.read_text().splitlines()
    assert lines[0] == "before"
    assert lines[-1] == "after"
    assert sum(line.startswith("| fig7 | K = ") for line in lines) == 3
    assert f"/ {first['packets']['latency_s']:.2f} (" in lines[5]
    assert "the order of the paradigms" in capsys.readouterr().out
