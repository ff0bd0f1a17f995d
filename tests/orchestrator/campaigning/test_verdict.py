# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The sentences with which a campaign's report begins, for each form of study."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from small_campaign import write_campaign

from orchestrator.campaigning.spec import Study, load_campaign
from orchestrator.campaigning.verdict import conclusions, problems, study_conclusions

PARADIGMS = ["cpsfl", "pipesfl", "sfl-pp"]
U = {"key": "workload.split", "values": [1, 2, 3, 4]}
K = {"key": "uavs.count", "values": [3, 5, 8]}


def study(axes: Mapping[str, Any], **more: Any) -> Study:
    return Study.model_validate({"axes": dict(axes), **more})


def points(
    axes: Mapping[str, Sequence[Any]],
    value: Callable[..., float | None],
    *,
    metric: str = "latency_s",
    seeds: Sequence[int] = (1,),
    mode: str = "predict",
    valid: bool = True,
) -> pd.DataFrame:
    """All combinations of axes and seeds; `value` takes the axes and the seed by name."""
    rows = [
        {"study": "s", "point": f"{mode}{number}", "mode": mode, "status": "finished"}
        | {"valid": valid, "seed": seed, "paradigm": "cpsfl"}
        | dict(zip(axes, labels, strict=True))
        | {metric: value(**dict(zip(axes, labels, strict=True)), seed=seed)}
        for number, (*labels, seed) in enumerate(itertools.product(*axes.values(), seeds))
    ]
    return pd.DataFrame(rows)


def latency(paradigm: str, u: int, seed: int) -> float:
    """PipeSFL is the best up to u = 3, CPSFL is the best at u = 4, SFL-PP is never."""
    best = {"pipesfl": 10.0 if u < 4 else 12.0, "cpsfl": 10.0 + u if u < 4 else 11.0}
    return best.get(paradigm, 20.0) + seed


BOTH = {"u": U, "paradigm": PARADIGMS}
AXES = {"u": [1, 2, 3, 4], "paradigm": PARADIGMS}


def test_the_best_series_are_named_with_their_places_and_margins() -> None:
    (sentence,) = study_conclusions(study(BOTH), points(AXES, latency, seeds=(0,)))
    assert sentence == (
        "PipeSFL is fastest at u = 1 to 3, by 9.1 to 23 % compared with the second best; "
        "CPSFL is fastest at u = 4, by 8.3 %."
    )


def test_two_series_are_compared_with_each_other() -> None:
    found = points({"u": [1, 2], "paradigm": ["cpsfl", "sfl-pp"]}, latency, seeds=(0,))
    assert study_conclusions(study(BOTH), found) == [
        "CPSFL is fastest at every value of u, by 40 to 45 % compared with SFL-PP."
    ]


def test_without_other_axes_there_is_no_place() -> None:
    found = points({"paradigm": PARADIGMS}, lambda paradigm, seed: len(paradigm))
    assert study_conclusions(study({"paradigm": PARADIGMS}), found) == [
        "CPSFL is fastest, by 17 % compared with the second best."
    ]


def test_places_that_do_not_follow_each_other_are_listed() -> None:
    def value(paradigm: str, u: int, seed: int) -> float:
        return 1.0 if (paradigm == "cpsfl") == (u in {1, 2, 4}) else 2.0

    found = points({"u": [4, 2, 1, 3], "paradigm": ["cpsfl", "sfl-pp"]}, value)
    (sentence,) = study_conclusions(study(BOTH), found)
    assert sentence.startswith("CPSFL is fastest at u = 1, 2 and 4, by 50 %")
    assert sentence.endswith("SFL-PP is fastest at u = 3, by 50 % compared with CPSFL.")


@pytest.mark.parametrize(
    ("is_cpsfl", "where"),
    [
        (lambda u, k: True, "at every one of 12 combinations of u and k,"),
        (lambda u, k: u >= 3, "at u = 3 and 4 with every k,"),
        (lambda u, k: k == 8, "at k = 8 with every u,"),
        (lambda u, k: u + k > 7, "at 6 of 12 combinations of u and k,"),
    ],
)
def test_several_axes(is_cpsfl: Callable[[int, int], bool], where: str) -> None:
    def value(u: int, k: int, paradigm: str, seed: int) -> float:
        return 1.0 if (paradigm == "cpsfl") == is_cpsfl(u, k) else 2.0

    axes = {"u": [1, 2, 3, 4], "k": [3, 5, 8], "paradigm": ["cpsfl", "sfl-pp"]}
    many = study({"u": U, "k": K, "paradigm": PARADIGMS})
    (sentence,) = study_conclusions(many, points(axes, value))
    assert f"CPSFL is fastest {where} by 50 %" in sentence


def test_a_difference_within_its_interval_has_no_winner() -> None:
    def value(paradigm: str, u: int, seed: int) -> float:
        if u < 3:
            return 10.0 if paradigm == "cpsfl" else 11.0
        return 10.0 + (0.1 * (seed - 2) if paradigm == "cpsfl" else 0.001)

    found = points({"u": [1, 2, 3], "paradigm": ["cpsfl", "sfl-pp"]}, value, seeds=(1, 2, 3))
    assert study_conclusions(study(BOTH), found) == [
        "CPSFL is fastest at u = 1 and 2, by 9.1 % compared with SFL-PP; the best two do not "
        "differ clearly at u = 3 (by at most 0.01 %)."
    ]


def test_equal_series_do_not_differ() -> None:
    found = points({"u": [1, 2], "paradigm": PARADIGMS}, lambda u, paradigm, seed: 1.0)
    assert study_conclusions(study(BOTH), found) == [
        "Average per-round latency: the best two are equal at every value of u."
    ]


def test_each_compared_metric_has_a_sentence_and_accuracies_are_points() -> None:
    found = points(AXES, latency, seeds=(0,))
    found["accuracy"] = found["paradigm"].map({"cpsfl": 0.8, "pipesfl": 0.5, "sfl-pp": 0.76})
    found["goodput"] = found["paradigm"].map({"cpsfl": 1.0, "pipesfl": 5.0, "sfl-pp": 4.0})
    over = {"over": "paradigm", "baseline": "cpsfl", "of": ["latency_s", "accuracy", "goodput"]}
    first, second, third = study_conclusions(study(BOTH, compare=over), found)
    assert first.startswith("PipeSFL is fastest at u = 1 to 3")
    assert second == (
        "CPSFL has the highest held-out accuracy at every value of u, by 4.0 percentage points "
        "compared with the second best."
    )
    assert third == (
        "PipeSFL has the highest goodput at every value of u, by 25 % compared with the second "
        "best."
    )


def test_lines_of_a_plot_are_the_series() -> None:
    axes = {"u": U, "k": K}
    found = points({"u": [1, 2], "k": [3, 5]}, lambda u, k, seed: float(k * u))
    plot = [{"x": "u", "lines": "k"}]
    assert study_conclusions(study(axes, plot=plot), found) == [
        "k = 3 is fastest at every value of u, by 40 % compared with k = 5."
    ]


def test_one_series_has_extremes() -> None:
    found = points({"u": [1, 2, 3]}, lambda u, seed: float((u - 2) ** 2 + 1), seeds=(1, 2))
    assert study_conclusions(study({"u": U}), found) == [
        "Average per-round latency is lowest at u = 2 (1 s) and highest at u = 1 (2 s)."
    ]
    assert study_conclusions(study({"u": U}), found[found["u"] == 2]) == [
        "Average per-round latency: 1 s (equal in all 2 seeds)."
    ]
    same = points({"u": [1, 2, 3]}, lambda u, seed: 7.0)
    assert study_conclusions(study({"u": U}), same) == [
        "Average per-round latency is 7 s everywhere: the axes have no influence."
    ]


def test_missing_values_do_not_win() -> None:
    def value(paradigm: str, u: int, seed: int) -> float | None:
        return None if paradigm == "pipesfl" and u == 1 else latency(paradigm, u, seed)

    (sentence,) = study_conclusions(study(BOTH), points(AXES, value, seeds=(0,)))
    assert sentence.startswith("CPSFL is fastest at u = 1 and 4, by 8.3 to 45 % compared with")
    assert sentence.endswith("PipeSFL is fastest at u = 2 and 3, by 17 to 23 %.")


def test_measured_points_confirm_predictions_unless_they_are_not_valid() -> None:
    predicted = points(AXES, latency, seeds=(0,))
    measured = points(
        {"u": [1, 4], "paradigm": ["cpsfl", "pipesfl"]},
        lambda u, paradigm, seed: 1.0 if paradigm == "cpsfl" else 2.0,
        mode="run",
    )
    (sentence,) = study_conclusions(study(BOTH), pd.concat([predicted, measured]))
    assert sentence.endswith(" The emulation confirms the best series in 1 of 2 comparisons.")
    both = pd.concat([predicted, measured.assign(valid=measured["u"] == 4)])
    (sentence,) = study_conclusions(study(BOTH), both)
    assert sentence.endswith(" The emulation confirms the best series in 1 of 1 comparisons.")
    invalid = measured.assign(valid=False)
    (sentence,) = study_conclusions(study(BOTH), pd.concat([predicted, invalid]))
    assert "emulation" not in sentence
    assert study_conclusions(study(BOTH), invalid) == []


def test_problems_name_failed_checks_and_what_is_missing() -> None:
    found = points({"u": [1, 2, 3, 4]}, lambda u, seed: 1.0, mode="run")
    found["valid"] = [False, False, True, None]
    found["status"] = ["finished", "finished", "finished", "failed"]
    missing = found.tail(1).assign(point="other", status="missing")
    rows = [("run0", "cpu_others", 0.735, False), ("run1", "cpu_others", 0.3, False),
            ("run1", "cpu_steal", 0.1, False), ("run2", "cpu_steal", 0.01, True)]  # fmt: skip
    validity = pd.DataFrame(rows, columns=["point", "check", "value", "ok"]).assign(limit=0.02)
    invalid, failed, absent = problems(pd.concat([found, missing]), validity)
    assert invalid.startswith("2 of 5 points are not valid: ")
    assert "(worst 74 %, limit 2.0 %) in 2 points; " in invalid
    assert invalid.endswith("(worst 10 %, limit 2.0 %) in 1 point.")
    assert (failed, absent) == ("1 of 5 points failed.", "1 of 5 points is missing.")
    fine = found.assign(valid=True, status="finished")
    assert problems(fine, validity[validity["ok"]]) == []


def test_conclusions_name_the_study_if_there_are_several(tmp_path: Path) -> None:
    axes = {"u": {"key": "workload.split", "values": [2, 3]}, "paradigm": ["cpsfl", "sfl-pp"]}
    studies = {"one": {"title": "First", "axes": axes}, "two": {"axes": axes}}
    campaign = load_campaign(write_campaign(tmp_path, studies=studies))
    made = points({"u": [2, 3], "paradigm": ["cpsfl", "sfl-pp"]}, latency, seeds=(0,))
    both = pd.concat([made.assign(study="one"), made.assign(study="two").head(0)])
    (sentence,) = conclusions(campaign, both, pd.DataFrame(columns=["study"]))
    assert sentence.startswith("First: CPSFL is fastest at every value of u, by ")
