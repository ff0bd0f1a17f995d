# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Sentences agree with the tables of the same object, also at its edges: results that are equal, in
another order, single, zero or missing are planted."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from all_pages import overhead_outcome
from packet_cases import small
from small_scenario import TREE

from orchestrator.analytical.models import ModelResult
from orchestrator.campaigning.spec import Study
from orchestrator.campaigning.summary import differences, means
from orchestrator.campaigning.verdict import study_conclusions
from orchestrator.flights.fitting import AS_GOOD, Fit, Ranking
from orchestrator.flights.likelihood import Estimate
from orchestrator.flights.result import NOISELESS_DB, FlightFit
from orchestrator.records.comparison import compare
from orchestrator.records.results import Result
from orchestrator.reporting import report
from orchestrator.reporting.comparison import render
from orchestrator.reporting.comparison_verdict import verdict as compared
from orchestrator.reporting.formatting import number, percent
from orchestrator.scenario.loading import validate
from orchestrator.studies.cross_check import KERNEL, PACKETS, PAYLOAD, WIRE, CrossCheck, transfers
from orchestrator.studies.cross_check_page import verdict as cross_checked
from orchestrator.studies.overhead_page import sweep_verdict
from orchestrator.studies.overhead_page import verdict as overhead
from orchestrator.studies.validation.outcome import Request, Validation
from orchestrator.studies.validation.page import page as validation_page
from orchestrator.studies.validation.region import Condition, Region
from orchestrator.studies.validation.space import Space
from orchestrator.studies.validation.verdict import verdict as validated
from orchestrator.studies.validation.verdict import worst_error
from testbed.core.timeline import SPAN, STEPS, Round, Timeline

NAN = math.nan

# --- campaign ------------------------------------------------------------------------------------

TITLES = {"cpsfl": "CPSFL", "pipesfl": "PipeSFL", "sfl-pp": "SFL-PP"}
PLANTED: dict[str, dict[str, list[float]]] = {
    "ordered": {"cpsfl": [1, 1.1], "pipesfl": [2, 2.1], "sfl-pp": [3, 3.1]},
    "reversed": {"cpsfl": [3, 3.1], "pipesfl": [2, 2.1], "sfl-pp": [1, 1.1]},
    "equal": {"cpsfl": [2, 2], "pipesfl": [2, 2], "sfl-pp": [2, 2]},
    "best two equal": {"cpsfl": [1, 2], "pipesfl": [1, 2], "sfl-pp": [3, 4]},
    "one sample": {"cpsfl": [2], "pipesfl": [1], "sfl-pp": [3]},
    "equal seeds": {"cpsfl": [2, 2, 2], "pipesfl": [1, 1, 1], "sfl-pp": [3, 3, 3]},
    "overlapping": {"cpsfl": [1, 3, 2], "pipesfl": [2, 1.1, 2.8], "sfl-pp": [9, 9, 9]},
    "one lacks": {"cpsfl": [NAN, 2], "pipesfl": [1, 3], "sfl-pp": [4, 5]},
    "zero": {"cpsfl": [0, 0], "pipesfl": [1, 1], "sfl-pp": [2, 2]},
    "all zero": {"cpsfl": [0, 0], "pipesfl": [0, 0], "sfl-pp": [0, 0]},
    "a hair": {"cpsfl": [1 + 1e-12], "pipesfl": [1], "sfl-pp": [1]},
    "nothing": {"cpsfl": [NAN], "pipesfl": [NAN], "sfl-pp": [NAN]},
    "paired": {"cpsfl": [1, 10, 100], "pipesfl": [1.1, 11, 110], "sfl-pp": [2, 20, 200]},
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_campaign_names_the_best_of_its_table(name: str) -> None:
    rows = [
        {"study": "s", "point": f"{paradigm}{seed}", "mode": "predict", "status": "finished"}
        | {"valid": True, "seed": seed, "paradigm": paradigm, "latency_s": value}
        | {"max_energy_j": 1.0, "objective": 1.0}
        for paradigm, values in PLANTED[name].items()
        for seed, value in enumerate(values, 1)
    ]
    points = pd.DataFrame(rows)
    over = {"over": "paradigm", "baseline": "sfl-pp"}
    study = Study.model_validate({"axes": {"paradigm": list(TITLES)}, "compare": over})
    found = study_conclusions(study, points)
    table = means(points, ["mode", "paradigm"]).set_index("paradigm")
    apart = differences(points, study, ["paradigm"])
    for each in (table["latency_s_ci95"], apart["latency_s_ci95"]):
        assert not (each == 0).any(), "an interval without any variation"
    by_seed = points.pivot_table(index="seed", columns="paradigm", values="latency_s").dropna()
    known = by_seed.mean()
    if known.empty:
        assert found == []
        return
    (text,) = found
    assert ("Only seeds that all series have" in text) == (name == "one lacks")
    best, second = known.sort_values(kind="stable").index[:2]
    if "is fastest" in text:
        assert text.startswith(f"{TITLES[best]} is fastest")
        assert known[best] < known[second]
    else:
        assert ("the best two are equal" in text) == (known[best] == known[second])
        assert "best two" in text
    if table["n"].max() == 1:
        assert table["latency_s_ci95"].isna().all()


# --- compare -------------------------------------------------------------------------------------

CF = STEPS.index("CF")


def run_of(paradigm: str, seed: int, latencies_s: Sequence[float]) -> Result:
    made, start = [], 0.0
    for index, latency_s in enumerate(latencies_s):
        spans = np.array([(1, 1, CF, start, start + latency_s, 0)], dtype=SPAN)
        made.append(Round(index, paradigm, 2, start, latency_s, np.ones(1), latency_s, spans))
        start += latency_s
    scenario = validate(TREE | {"paradigm": paradigm, "seed": seed}, paradigm)
    return Result(f"{paradigm}{seed}", scenario, "measured", Timeline(made), Timeline([]))


RUNS: dict[str, dict[tuple[str, int], Sequence[float]]] = {
    "other seeds win": {("cpsfl", 1): [5], ("cpsfl", 2): [1], ("pipesfl", 1): [4]},
    "common seeds": {
        ("cpsfl", 1): [5],
        ("cpsfl", 2): [7],
        ("pipesfl", 1): [4],
        ("pipesfl", 2): [5],
    },
    "reversed": {("cpsfl", 1): [4], ("cpsfl", 2): [5], ("pipesfl", 1): [5], ("pipesfl", 2): [7]},
    "no common seed": {("cpsfl", 1): [5], ("cpsfl", 2): [1], ("pipesfl", 3): [4]},
    "equal": {("cpsfl", 1): [5], ("cpsfl", 2): [5], ("pipesfl", 1): [5], ("pipesfl", 2): [5]},
    "unclear": {("cpsfl", 1): [5], ("cpsfl", 2): [1], ("pipesfl", 1): [1], ("pipesfl", 2): [4]},
    "one scheme": {("cpsfl", 1): [5], ("cpsfl", 2): [1], ("cpsfl", 3): [2]},
    "three": {("cpsfl", 1): [5], ("cpsfl", 2): [6], ("pipesfl", 1): [4], ("sfl-pp", 1): [9]},
    "rounds differ": {("cpsfl", 1): [5, 9], ("cpsfl", 2): [6], ("pipesfl", 1): [4, 90]},
    "nothing": {("cpsfl", 1): [], ("cpsfl", 2): [], ("pipesfl", 1): []},
    "zero": {("cpsfl", 1): [0], ("cpsfl", 2): [0], ("pipesfl", 1): [0]},
    "best two equal": {
        **{("cpsfl", 1): [5], ("cpsfl", 2): [5], ("pipesfl", 1): [5], ("pipesfl", 2): [5]},
        **{("sfl-pp", 1): [8], ("sfl-pp", 2): [9]},
    },
}


@pytest.mark.parametrize("name", RUNS)
def test_a_comparison_ranks_schemes_and_not_seeds(name: str) -> None:
    made = compare([run_of(*key, rounds) for key, rounds in RUNS[name].items()])
    assert made.has_repeats
    text, table = " ".join(compared(made)), made.by_scheme
    assert ", seed" not in text.replace("seed ", "").split("The scenarios")[0]
    if table.empty:
        assert text.startswith("No result has a finished round.")
        return
    assert table["latency_s"].is_monotonic_increasing
    assert not (table["ci95_s"] == 0).any()
    assert not (table["saved_ci95"] == 0).any()
    paradigms = {paradigm for paradigm, _ in RUNS[name]}
    seeds = [{seed for p, seed in RUNS[name] if p == paradigm} for paradigm in paradigms]
    common = set.intersection(*seeds)
    for row in table.to_dict("records"):
        assert set(row["seeds"]) == (common or set(row["seeds"]))
        if row["left_out"]:
            assert f"seed {row['left_out'][0]} of {row['name']}" in text
    assert ("no seed in common" in text) == (not common)
    first = table.iloc[0]
    assert f"{first['latency_s']:.3f}" in text
    if " is fast" in text or " is the fastest" in text:
        assert text.startswith(f"{first['name']} is ")
        second = table.iloc[1]
        assert second["saved"] > 0
        (said,) = re.findall(r"on average, (\S+ %)", text)
        assert said == percent(second["saved"], sign=False)
        ratio = 1 - first["latency_s"] / second["latency_s"]
        assert second["saved"] == pytest.approx(ratio), "the numbers of the sentence fit"
    elif len(table) > 1:
        second = table.iloc[1]
        assert second["saved"] <= max(np.nan_to_num(second["saved_ci95"]), 1e-4) or math.isnan(
            second["saved"]
        )
    assert f"{first['latency_s']:.3f}" in render(made, Path())


# --- validate ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plant:
    """A validation as far as its sentences depend on it."""

    engine: tuple[float, ...] = (1.0, 1.1, 1.5)
    worst: float = -0.5
    simplest: float | None = None
    rules: int = 1
    held_out: tuple[int, int] = (7, 7)
    rows: tuple[tuple[float, float, float], ...] = ((0.8, 0.7, 0.9), (0.1, 0.0, 0.2))


PLANTS = {
    "confirmed": Plant(),
    "contradicted": Plant(held_out=(5, 7)),
    "no held-out scenario": Plant(held_out=(0, 0)),
    "one held-out scenario": Plant(held_out=(1, 1)),
    "never right": Plant(held_out=(0, 9)),
    "no rule": Plant(rules=0),
    "the simplest is worse": Plant(worst=-0.34, simplest=-0.9),
    "the simplest is better": Plant(worst=-0.6, simplest=-0.35),
    "the search found nothing worse": Plant(worst=-1 / 3),
    "positive": Plant(worst=0.7, simplest=0.71),
    "no error": Plant(engine=(1.0, 1.0), worst=0.0),
    "one scenario": Plant(engine=(1.5,), worst=-0.4),
    "overlapping keys": Plant(rows=((0.4, 0.13, 1.0), (0.37, 0.09, 0.81), (0.3, 0.1, 0.7))),
    "two keys apart": Plant(rows=((0.5, 0.4, 0.6), (0.45, 0.35, 0.55), (0.1, 0.0, 0.2))),
    "one key": Plant(rows=((1.0, 1.0, 1.0),)),
    "no influence": Plant(rows=((0.0, 0.0, 0.0), (0.0, 0.0, 0.0))),
    "equal keys": Plant(rows=((0.5, 0.3, 0.7), (0.5, 0.3, 0.7))),
}


def planted(plant: Plant) -> Validation:
    def about(error: float) -> dict[str, Any]:
        return {"engine": 2.0, "frames": 2.1, "is_interval": False, "error": error,
                "margin": -abs(error), "model": [2.0 * (1 + error), 2.0 * (1 + error)]}  # fmt: skip

    case = {"keys": {}, **about(plant.worst)}
    if plant.simplest is not None:
        case |= {"simplest": about(plant.simplest)}
        if abs(plant.simplest) > abs(plant.worst):
            case |= about(plant.simplest) | {"in_space": about(plant.worst)}
    right, count = plant.held_out
    rules = [(Condition(0, at_most=True, value=3.0),)] * plant.rules
    engine = np.array(plant.engine)
    return Validation(
        Request(small(), "tau2", Space.model_validate({"keys": {"rounds": [1]}}), samples=64),
        "latency_s",
        [{} for _ in engine],
        {"engine": engine, "packets": np.where(np.arange(len(engine)) == 0, engine, np.nan)},
        [ModelResult(1.0, 1.0, {}) for _ in engine],
        Region(0.05, ["a.b"], rules, 0.38, right / count if count else None, count),
        [
            {"key": f"k{at}", "index": index, "first_order": 0.0, "low": low, "high": high}
            for at, (index, low, high) in enumerate(plant.rows)
        ],
        None if plant.simplest is None else small(),
        case,
        [],
    )


@pytest.mark.parametrize("name", PLANTS)
def test_a_validation_claims_what_its_page_shows(name: str) -> None:
    found, plant = planted(PLANTS[name]), PLANTS[name]
    sentences = validated(found)
    text, html = " ".join(sentences), validation_page(found)
    errors = np.abs(found.errors("engine"))
    # The largest error of the page is in the first sentence, and nothing called worst is smaller.
    cases = [plant.worst, *([] if plant.simplest is None else [plant.simplest])]
    largest = max([*errors, *map(abs, cases)])
    assert abs(worst_error(found)) == pytest.approx(largest)
    assert abs(found.worst["error"]) == pytest.approx(max(map(abs, cases)))
    if largest > 0.05:
        assert percent(largest, sign=False) in sentences[0]
    if "<h2>Worst case</h2>" in html:
        assert abs(found.worst["error"]) == pytest.approx(largest)
    # A region is only said to hold if its own check does not contradict it.
    right, count = plant.held_out
    if "It holds in the region" in text:
        assert plant.rules
        assert count >= 2
        assert found.region.checked.high >= 0.99
        assert f"in {right} of {count} scenarios" in text
        assert f"{100 * found.region.checked.low:.0f} to" in text
    elif (errors > 0.05).any():
        assert "No region was" in text
    assert ("The region is not confirmed." in html) == bool(
        plant.rules and not found.region.is_confirmed
    )
    # Keys are in an order only if their intervals are apart.
    rows = found.sensitivity
    if named := re.search(r"depends most on (.*?)\.", text):
        keys = named[1].split(" and ")
        others = [row for row in rows if row["key"] not in keys]
        assert others
        assert min(r["low"] for r in rows if r["key"] in keys) > max(r["high"] for r in others)
    elif len(rows) > 1 and rows[0]["index"] >= 0.1:
        assert "is not clear with 64 base samples" in text
    # One scenario has no interval.
    single = found.distribution("packets")
    assert (single["points"], single["mean"]["low"]) == (1, None)
    assert "[–]" in html


# --- cross-check ---------------------------------------------------------------------------------

FACTORS = {
    "equal": {"SM": 1.0, "CA": 1.0},
    "one kind": {"SM": 1.0, "CA": 5.76},
    "shorter": {"SM": 0.2, "CA": 1.0},
    "both": {"SM": 2.24, "CA": 5.76},
    "a hair": {"SM": 1 + 1e-12, "CA": 1.0},
    "little": {"SM": 1.001, "CA": 0.999},
    "hidden in the mean": {"SM": 1.5, "CA": 0.5},
    "kernel too": {"SM": 1.1, "CA": 1.2, "kernel": 1.5},
    "kernel equal": {"SM": 1.1, "CA": 1.2, "kernel": 1.0},
    "zero": {"SM": 0.0, "CA": 1.0},
}


def transfers_of(factors: dict[str, float]) -> Timeline:
    spans, start = [], 0.0
    for step in ("SM", "CA", "S", "SG", "CM"):
        took = 1.0 * factors.get(step, 1.0)
        spans.append((1, 1, STEPS.index(step), start, start + took, 0 if step == "S" else 9))
        start += took
    made = np.array(spans, dtype=SPAN)
    return Timeline([Round(0, "cpsfl", 2, 0.0, start, np.ones(1), start, made)])


@pytest.mark.parametrize("name", FACTORS)
def test_a_cross_check_states_the_largest_difference_of_each_kind(name: str) -> None:
    plain, off = transfers_of({}), transfers_of(FACTORS[name])
    timelines = {PAYLOAD: plain, WIRE: plain, PACKETS: off}
    if "kernel" in FACTORS[name]:
        factor = FACTORS[name]["kernel"]
        timelines[KERNEL] = transfers_of(dict.fromkeys(STEPS, factor))
    check = CrossCheck([], timelines, 0.0, [], [(0.0, off)])
    first, *others = cross_checked(check)
    table = transfers(check)
    most = table["max_percent"].max() / 100
    assert f"single transfers differ by up to {percent(most, sign=False)} (" in first
    spread = [timelines[k].rounds[0].latency_s for k in (WIRE, PACKETS, KERNEL) if k in timelines]
    assert f"agree within {percent(max(spread) / min(spread) - 1, sign=False)} in the mean" in first
    text = " ".join(others)
    for row in table.to_dict("records"):
        size = percent(row["max_percent"] / 100, sign=False)
        assert f"{row['step']} {size}" in text or row["max_percent"] < 1e-5


# --- fit -----------------------------------------------------------------------------------------

RANKED: dict[str, list[tuple[str, float, float, float]]] = {
    "ordered": [("a", 100, -50, 2), ("b", 101, -51, 2), ("c", 200, -90, 3)],
    "reversed": [("c", 200, -90, 3), ("b", 101, -51, 2), ("a", 100, -50, 2)],
    "much better is last": [
        ("a", 0, 10598, 0.3),
        ("b", 3720, 8983, 1),
        ("rma", -2011, -16442, 0.01),
    ],
    "equal": [("a", 100, -50, 2), ("b", 100, -50, 2)],
    "two apart": [("a", 100, -50, 2), ("b", 102, -50, 2), ("c", 102.01, -50, 2)],
    "twenty worse": [("a", 100, -50, 2), ("b", 119.6, -49, 2)],
    "one model": [("a", 100, -50, 2)],
    "no noise": [("a", -900, 400, 0.0), ("b", 900, -400, 3)],
    "negative": [("a", -5, 2, 1), ("b", -4, 3, 1), ("c", -7, 1, 1)],
    "cross-validation disagrees": [("a", 100, -60, 2), ("b", 130, -50, 2)],
}


def fit_of(model: str, aic: float, cv: float, deviation_db: float) -> Fit:
    estimate = Estimate(np.zeros(1), np.eye(1), deviation_db, 0.0, 40.0, 4 - aic / 2)
    empty = np.zeros(0)
    return Fit(model, (), estimate, cv, 1, 0, empty, np.zeros((0, 1)), fits_exponent=False)


@pytest.mark.parametrize("name", RANKED)
def test_a_fit_names_the_models_of_its_table(name: str) -> None:
    fits = sorted((fit_of(*row) for row in RANKED[name]), key=lambda fit: fit.estimate.aic)
    ranking = Ranking(fits, fits[:1], {})
    text = FlightFit.sentence.fget(SimpleNamespace(ranking=ranking, flights=[None]))  # type: ignore[attr-defined]
    aics = {model: aic for model, aic, *_ in RANKED[name]}
    best = min(aics, key=lambda model: aics[model])
    assert text.startswith(f"{best} describes this flight best")
    alike = {m for m, aic in aics.items() if abs(aic - aics[best]) <= AS_GOOD} - {best}
    said = re.search(r"equally good \(AIC within 2\): ([\w, -]+)", text)
    assert (set() if said is None else set(said[1].split(", "))) == alike
    likelihoods = {model: cv for model, _, cv, _ in RANKED[name]}
    foreseen = max(likelihoods, key=lambda model: likelihoods[model])
    assert ("in cross-validation" in text) == (foreseen not in {best, *alike})
    spread = {row[0]: row[3] for row in RANKED[name]}[best]
    assert ("have no noise" in text) == (spread < NOISELESS_DB)


# --- overhead ------------------------------------------------------------------------------------

SWEPT: dict[str, list[tuple[float, float]]] = {
    "ordered": [(1e5, 4.0), (2e5, 5.0), (3e5, 6.0)],
    "reversed": [(3e5, 6.0), (2e5, 5.0), (1e5, 4.0)],
    "equal": [(1e5, 5.0), (1e5, 5.0), (1e5, 5.0)],
    "equal bytes": [(1e5, 5.0), (1e5, 4.0)],
    "equal times": [(1e5, 5.0), (2e5, 5.0)],
    "one value": [(1e5, 5.0)],
    "no overhead": [(0.0, 5.0), (0.0, 5.0)],
    "some overhead": [(0.0, 5.0), (1e5, 5.0)],
    "a hair": [(1e5, 5.0), (1e5, 5.0 + 1e-12)],
    "first and last alike": [(1e5, 5.0), (2e5, 6.0), (1e5, 5.0)],
}


@pytest.mark.parametrize("name", SWEPT)
def test_a_sweep_names_the_extremes_of_its_table(name: str) -> None:
    outcomes = []
    for at, (size, measured_s) in enumerate(SWEPT[name]):
        bytes_ = dict.fromkeys(overhead_outcome("").up_bytes, 0.0)
        bytes_ |= {"payload_bytes": 1e6, "header_bytes": size}
        outcomes.append(overhead_outcome(f"v{at}", up_bytes=bytes_, down_bytes=bytes_,
                                         measured_s=measured_s))  # fmt: skip
    of_bytes, of_latency = sweep_verdict("key", outcomes)
    for sentence, low, high, of in (
        (of_bytes, "smallest", "largest", lambda o: o.overhead),
        (of_latency, "shortest", "longest", lambda o: o.measured_s),
    ):
        values = {o.value: of(o) for o in outcomes}
        least, most = min(values.values()), max(values.values())
        named = re.findall(r"(smallest|shortest|largest|longest) with key = (\w+)", sentence)
        if not named:
            assert most == pytest.approx(least, rel=1e-8)
            assert "every value of key" in sentence
        else:
            assert dict(named).keys() == {low, high}
            assert values[dict(named)[low]] == least < most == values[dict(named)[high]]
    for outcome in outcomes:
        first, second = overhead(outcome)
        assert f"{percent(outcome.overhead / (1 + outcome.overhead), False)} overhead" in first
        assert ("mostly" in first) == bool(outcome.overhead)
        assert f"{number(outcome.measured_s, 3)} s" in second


# --- run -----------------------------------------------------------------------------------------

READ: dict[str, tuple[float | None, float | None, dict[str, float]]] = {
    "longer": (0.1, 0.2, {"delay": 0.2, "rest": 0.1}),
    "shorter": (-0.1, -0.2, {"delay": -0.2, "rest": 0.1}),
    "exact": (0.0, 0.0, {"delay": 0.0, "rest": 0.0}),
    "parts that cancel": (0.0, 0.0, {"delay": 0.2, "rest": -0.2}),
    "rounding": (1e-12, -1e-12, {"delay": 1e-12, "rest": 0.0}),
    "exact with frames": (0.0, 0.2, {"headers": 0.4, "rest": -0.1}),
    "exact without": (0.1, 0.0, {"headers": 0.4, "rest": -0.4}),
    "nothing predicted": (None, None, {}),
    "no budget": (0.1, 0.2, {}),
    "opposite": (-0.1, 0.1, {"headers": 0.1, "rest": 0.05}),
}


@pytest.mark.parametrize("name", READ)
def test_a_run_says_what_its_budget_shows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wire, payload, parts = READ[name]
    headline = SimpleNamespace(
        measured_s=2.0,
        measured_rounds=3,
        wire_error=wire,
        wire_s=None if wire is None else 2.0 / (1 + wire),
        predicted_error=payload,
        predicted_s=None if payload is None else 2.0 / (1 + payload),
    )
    run: Any = SimpleNamespace(
        manifest={}, scenario=small(), valid=True, tables={}, is_guided=False, measured=[]
    )
    monkeypatch.setattr(report, "budget_means", lambda run: parts or None)
    text = report.reading(run, headline)  # type: ignore[arg-type]
    for error, what in ((wire, "with frames"), (payload, "for the payload only")):
        (clause,) = re.findall(rf"(\S+ %? ?(?:more|less) than|exactly what) the engine predicts "
                               rf"{what}", text) or [None]  # fmt: skip
        if error is None:
            assert clause is None
        elif abs(error) < 1e-8:
            assert clause == "exactly what"
        else:
            direction = "more" if error > 0 else "less"
            assert clause == f"{percent(abs(error), sign=False)} {direction} than"
    if "the largest part of the difference" in text:
        assert abs(payload or 0.0) > 1e-8
        largest = max(parts, key=lambda part: abs(parts[part]))
        assert report.part_title(largest) in text
