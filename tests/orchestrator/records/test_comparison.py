# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Results beside each other, made of a few numbers: every column, and what they are named by."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from small_scenario import TREE

from orchestrator.analysis.error_budget import PARTS
from orchestrator.records.comparison import MOST_LETTERS, compare, differing, label
from orchestrator.records.results import Result
from orchestrator.scenario.loading import validate
from testbed.core.timeline import CA, CF, SPAN, Round, Timeline


def a_round(index: int, latency_s: float, energy_j: tuple[float, float] = (1.0, 2.0)) -> Round:
    """Two uploads, of which the second takes thrice as long, and one forward pass."""
    spans = np.zeros(3, SPAN)
    spans["client"], spans["iteration"] = [1, 2, 1], 1
    spans["step"] = [CA, CA, CF]
    spans["start_s"] = [1.0, 1.0, 0.0]
    spans["end_s"] = [1.0 + latency_s / 10, 1.0 + 3 * latency_s / 10, 0.5]
    spans["bytes"] = [100, 300, 0]
    objective = latency_s + max(energy_j)
    return Round(
        index, "cpsfl", 2, 10.0 * index, latency_s, np.array(energy_j), objective, spans, ()
    )


def scenario(**keys: Any) -> Any:
    return validate(TREE | {"uavs": {"tx_power_w": [1, 0.1]}} | keys, "two")


def result(name: str, *latencies_s: float, first: int = 0, **about: Any) -> Result:
    rounds = [a_round(n, latency_s) for n, latency_s in enumerate(latencies_s, first)]
    usual = {"scenario": scenario(), "execution": "measured", "prediction": Timeline([])}
    return Result(name=name, timeline=Timeline(rounds), **usual | about)


def learned() -> pd.DataFrame:
    """Two rounds of two batches and three evaluations, not by time."""
    rows = [
        (1, "train", 14.0, 2.0, 0.5, 0.3, 0.4),
        (0, "held-out", 0.0, 9.0, 0.1, math.nan, math.nan),
        (0, "train", 1.0, 8.0, 0.25, 0.1, 0.2),
        (1, "held-out", 20.0, 5.0, 0.3, math.nan, math.nan),
        (1, "train", 13.0, 4.0, 0.75, 0.3, 0.4),
        (0, "held-out", 10.0, 7.0, 0.2, math.nan, math.nan),
        (0, "train", 2.0, 6.0, 0.25, 0.1, 0.2),
    ]
    columns = ["round", "data", "time_s", "loss", "accuracy", "smashed_error", "gradient_error"]
    return pd.DataFrame(rows, columns=columns)


def test_a_row_says_all_of_a_result() -> None:
    first = result("a", 4.0, 6.0)
    second = result(
        *("b", 3.0, 6.0, 9.0),
        prediction=Timeline([a_round(1, 5.0), a_round(2, 7.0), a_round(3, 100.0)]),
        learning=learned(),
        valid=False,
    )
    comparison = compare([first, second])
    plain, row = comparison.table.to_dict("records")
    assert row["run"] == "CPSFL (b)"
    assert (row["execution"], row["rounds"], row["valid"]) == ("measured", 3, False)
    assert (row["latency_s"], row["latency_low_s"], row["latency_high_s"]) == (6, 3, 9)
    # Rounds 0 and 1 are the first's, too; 1 and 2 were predicted.
    assert row["against_first"] == pytest.approx(9 / 10 - 1)
    assert row["predicted_s"] == 6
    assert row["error"] == pytest.approx(15 / 12 - 1)
    assert row["emulated_s"] == pytest.approx(29.0)
    assert (row["max_energy_j"], row["objective"]) == (2, 8)
    assert (row["train_loss"], row["train_accuracy"]) == (3.0, 0.625)
    assert (row["held_out_loss"], row["held_out_accuracy"]) == (5.0, 0.3)
    assert row["smashed_error"] == pytest.approx(math.sqrt((0.01 + 0.09) / 2))
    assert row["gradient_error"] == pytest.approx(math.sqrt((0.04 + 0.16) / 2))
    assert row["batch_bytes"] == 200
    nothing = ("predicted_s", "error", "train_loss", "held_out_accuracy", "smashed_error")
    assert all(math.isnan(plain[name]) for name in nothing)
    assert plain["against_first"] == 0
    apart = compare([first, result("c", 4.0, first=7)]).table
    assert math.isnan(apart["against_first"].iloc[1]), "no round is of both"


def test_of_a_run_before_there_were_evaluations_all_is_training() -> None:
    old = learned().drop(columns=["data", "smashed_error"])
    row = compare([result("a", 1.0, learning=old)]).table.iloc[0]
    assert row["train_loss"] == pytest.approx(11 / 3)
    assert math.isnan(row["held_out_loss"])
    assert math.isnan(row["smashed_error"])


def test_batches_of_one_moment_keep_their_order() -> None:
    from orchestrator.records.comparison import train_of

    many = pd.DataFrame({"round": range(100), "data": "train", "time_s": 1.0, "loss": 0.0})
    assert train_of(result("a", 1.0, learning=many))["round"].tolist() == list(range(100))


def test_json_has_rounds_steps_and_budget_and_no_nan() -> None:
    parts = [*PARTS[:2], "another"]
    budget = pd.DataFrame({name: [1.0, 3.0] for name in reversed(parts)}, index=[0, 1])
    told = compare([result("a", 2.0), result("b", 4.0, 6.0, budget=budget)])
    assert list(told.budgets.columns) == parts, "known causes come first"
    plain, object_ = told.to_json()
    assert (plain["budget_s"], plain["error"]) == (None, None)
    assert object_["budget_s"] == dict.fromkeys(parts, 2.0)
    assert object_["steps_s"] == pytest.approx({"CF": 0.5, "CA": 1.0})
    assert plain["steps_s"]["CA"] == pytest.approx(0.4)
    assert object_["latencies"] == [
        {
            "round": n,
            "start_s": 10.0 * n,
            "latency_s": latency_s,
            "max_energy_j": 2.0,
            "objective": latency_s + 2,
        }
        for n, latency_s in enumerate((4.0, 6.0))
    ]
    assert [len(each["latencies"]) for each in (plain, object_)] == [1, 2]
    assert told.rounds["run"].tolist() == ["CPSFL (a)", "CPSFL (b)", "CPSFL (b)"]
    assert compare([result("a", 1.0)], ["ours"]).labels == ["ours"]
    assert len(compare([result("a", 1.0)]).sessions) == 0


@pytest.mark.filterwarnings("error")
def test_rounds_that_took_no_time_are_compared_with_nothing() -> None:
    table = compare([result("none", 0.0), result("some", 2.0)]).table
    assert table["against_first"].isna().all()


def test_what_is_beyond_all_numbers_is_null_in_json() -> None:
    """Squares of an error of 1e308, and a loss that diverged."""
    far = learned().assign(smashed_error=1e308, loss=[math.inf, 1, 1, -math.inf, 1, 1, 1])
    (object_,) = compare([result("a", 1.0, learning=far)]).to_json()
    json.dumps(object_, allow_nan=False)
    nothing = ("smashed_error", "train_loss", "held_out_loss")
    assert [object_[name] for name in nothing] == [None] * 3
    assert object_["train_accuracy"] == 0.625


def test_results_are_named_by_what_tells_them_apart() -> None:
    def named(*values: dict[str, Any], executions: tuple[str, ...] = ("measured",) * 9) -> list:
        results = [
            result(f"folder {n}", 1.0, scenario=scenario(**keys), execution=executions[n])
            for n, keys in enumerate(values)
        ]
        return label(results)

    work = TREE["workload"]
    keys = {"seed": 7, "rounds": 5, "workload": work | {"split": 2}}
    assert named({}, keys) == [
        "CPSFL, rounds 1, seed 1, split 3",
        "CPSFL, rounds 5, seed 7, split 2",
    ]
    keys["workload"] |= {"local_iterations": 5}
    assert named({}, keys) == ["CPSFL, folder 0", "CPSFL, folder 1"], "four are too many"
    for noise, words in ((-110.5, "noise_dbm_per_mhz -110.5"), (-110.25, "")):
        assert len(words) in (0, MOST_LETTERS)
        (_, own) = named({}, {"radio": TREE["radio"] | {"noise_dbm_per_mhz": noise}})
        assert own == f"CPSFL, {words or 'folder 1'}"
    (_, own) = named({}, {"mobility": {"speed_m_s": [1, 4]}})
    assert own == "CPSFL, speed_m_s [1.0, 4.0]", "as in the scenario's file"
    assert named({}, {}, executions=("measured", "kernel")) == ["CPSFL, measured", "CPSFL, kernel"]
    assert named({}, {}) == ["CPSFL (folder 0)", "CPSFL (folder 1)"]
    assert named({}, {"paradigm": "pipesfl"}) == ["CPSFL", "PipeSFL"]
    assert named({}, {"emulation": {"dilation": 3}}) == ["CPSFL (folder 0)", "CPSFL (folder 1)"]
    assert label([]) == []
    same = result("a", 1.0)
    assert label([same, same, same]) == ["CPSFL (a)", "CPSFL (a) 2", "CPSFL (a) 3"]
    bare = replace(same, scenario=None)
    assert label([bare]) == ["CPSFL"]
    assert differing([bare, same]) == {}
    other = replace(same, scenario=scenario(seed=7))
    assert differing([bare, same, other]) == {"seed": [None, 1, 7]}
