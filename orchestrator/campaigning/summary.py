# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Summaries of a campaign's points: means over seeds, differences from a baseline.

They are calculated from the tables in `results/`. Means are over the seeds of a cell; intervals are
Student's, 95 %.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from orchestrator.analysis import learned
from orchestrator.analysis.statistics import half_width
from orchestrator.campaigning.results import MEANS
from orchestrator.campaigning.spec import Campaign, Study
from orchestrator.engine.plan import Array
from testbed.core.paradigm import title_of

MOST_ALIKE = 4
"""Most sentences about cells that have the same scenario, per study."""
METRIC_TITLES = {
    "latency_s": "Average per-round latency (s)",
    "max_energy_j": "Largest energy of a UAV (J)",
    "objective": "Objective",
}


def titles(study: Study) -> dict[str, str]:
    """Titles of a study's columns on pages and charts."""
    return METRIC_TITLES | {name: _title(name, study) for name in study.requested_metrics}


def _title(name: str, study: Study) -> str:
    if name in learned.MEASURES:
        return f"Held-out {name}"
    if name in learned.BEST:
        return f"Best held-out {learned.BEST[name]}"
    if name == "bytes":
        return "Payload of a round (B)"
    if name not in learned.NAMES or study.target is None:
        return name
    cost = name.partition("_to_")[0]
    return f"{cost.capitalize()} to {study.target} ({learned.COSTS[cost][1]})"


def races(study: Study, curves: pd.DataFrame) -> list[tuple[str, learned.Race]]:
    """Which value of the compared axis reaches the study's target first, at each other place.

    Args:
        study: The study.
        curves: Its rows of `curves.parquet`.

    Returns:
        Pairs of a place, like `u = 2`, which is empty if there is only one, and the race there;
        none without a target or without curves.
    """
    if study.compare is None or study.target is None or curves.empty:
        return []
    over = study.compare.over
    others = ["mode", *(name for name in axis_columns(study) if name != over)]
    shown = [name for name in others if curves[name].nunique() > 1]
    return [
        (
            ", ".join(f"{name} = {part[name].iloc[0]}" for name in shown),
            learned.Race(groups_of(part, over), study.target),
        )
        for _, part in curves.groupby(others, sort=False, dropna=False)
    ]


def groups_of(curves: pd.DataFrame, lines: str | None) -> list[learned.Group]:
    """Groups of curves, one per value of an axis, with its seeds; one of all without an axis."""
    parts = [("", curves)] if lines is None else curves.groupby(lines, sort=False)
    return [
        learned.Group(
            _group_name(lines, value),
            {int(str(seed)): own for seed, own in part.groupby("seed")},
        )
        for value, part in parts
    ]


def _group_name(lines: str | None, value: object) -> str:
    if lines is None:
        return "mean"
    if lines == "paradigm":
        return title_of(str(value))
    # A column of whole numbers that another study lacks has floating-point numbers.
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    return shown if isinstance(value, str) else f"{lines} = {shown}"


def answers(campaign: Campaign, curves: pd.DataFrame) -> list[str]:
    """Sentences that say which value of a compared axis reaches a study's target first."""
    return [
        (f"{study.title or name}: " if len(campaign.studies) > 1 else "")
        + (f"With {place}, {race.sentences()}" if place else race.sentences())
        for name, study in campaign.studies.items()
        for place, race in races(study, curves[curves["study"] == name])
    ]


def means(points: pd.DataFrame, by: Sequence[str], more: Sequence[str] = ()) -> pd.DataFrame:
    """Means over seeds with half the width of their 95 % intervals.

    Returns:
        One row per group: `by`, n, the number of samples (see `samples`), and for each of `MEANS`
        and `more` its mean, `<name>_ci95`, which is NaN if all seeds have the same value, and
        `<name>_n`, the number of samples that have it.
    """
    names = [*MEANS, *more]
    rows = []
    for labels, part in points.groupby(list(by), sort=False, dropna=False):
        count = samples(part[names])
        row: dict[str, Any] = dict(zip(by, labels, strict=True)) | {"n": count}
        for name in names:
            values = _known(name, part[name])
            row |= {
                name: part[name].mean(),
                f"{name}_ci95": half_width(values),
                f"{name}_n": min(count, len(values)),
            }
        rows.append(row)
    kinds = ("", "_ci95", "_n")
    return pd.DataFrame(rows, columns=[*by, "n", *(m + kind for m in names for kind in kinds)])


def samples(results: pd.DataFrame) -> int:
    """Number of samples: rows, one per seed; 1 if the seed has no effect on any of the results."""
    return 1 if len(results) > 1 and not results.nunique(dropna=False).gt(1).any() else len(results)


def notes(campaign: Campaign, points: pd.DataFrame) -> list[str]:
    """Sentences about repeats and cells with equal results; none if there are none.

    Args:
        campaign: The campaign.
        points: Rows of `points.parquet`.
    """
    found = []
    for name, study in campaign.studies.items():
        where = f"{study.title or name}: " if len(campaign.studies) > 1 else ""
        for axis, values in study.axes.items():
            if equal := values.equal(axis, campaign.seed):
                found.append(f"{where}{axis}: {equal}.")
        own = of_study(name, points)
        found += [where + line for line in (*_same_cells(study, own), *_without_seed(study, own))]
    return found


def _same_cells(study: Study, points: pd.DataFrame) -> list[str]:
    """Sentences about cells that have the same scenario."""
    columns = axis_columns(study)
    alike = []
    for _, part in points.groupby(["mode", "seed", "point"], sort=False):
        different = part.drop_duplicates(columns)
        if len(different) > 1:
            shown = [name for name in columns if different[name].nunique() > 1]
            places = (
                ", ".join(f"{name} = {row[name]}" for name in shown)
                for row in different.to_dict("records")
            )
            alike.append(" and ".join(places))
    return [
        f"{places} are the same scenario, which was computed once."
        for places in dict.fromkeys(alike)
    ][:MOST_ALIKE]


def _without_seed(study: Study, points: pd.DataFrame) -> list[str]:
    """A sentence about cells in which the seed has no effect."""
    parts = [part for _, part in points.groupby(["mode", *axis_columns(study)], sort=False)]
    repeated = [part for part in parts if len(part) > 1]
    equal = [part for part in repeated if part["same_as"].notna().sum() == len(part) - 1]
    if not equal:
        return []
    why = "the trace replaces the channel; " if study.trace is not None else ""
    some = "" if len(equal) == len(repeated) else f" in {len(equal)} of {len(repeated)} cells"
    count = len(equal[0])
    return [
        f"The seed has no effect{some}: {why}{count} repeats have equal results and are one "
        "sample, which has no confidence interval."
    ]


def _known(name: str, values: "pd.Series[float]") -> Array:
    """The values of the seeds that have one: a target may be out of reach for some."""
    return np.asarray(values.dropna() if name in learned.NAMES else values, float)


def differences(points: pd.DataFrame, study: Study, columns: Sequence[str]) -> pd.DataFrame:
    """Relative difference of each value of the compared axis from the baseline, seed by seed.

    Returns:
        One row per cell and value: mode, the other axes, the compared axis, n, the number of
        samples (see `samples`), and for each compared column its mean relative difference `<name>`,
        its half interval `<name>_ci95`, which is NaN if it is the same in all seeds, and
        `<name>_n`, the number of samples in which both have it.
    """
    assert study.compare is not None
    over, metrics = study.compare.over, study.compare.of
    others = ["mode", *(name for name in columns if name != over)]
    baseline = study.compare.baseline
    if pd.api.types.is_string_dtype(points[over]):
        baseline = str(baseline)
    base = points[points[over] == baseline]
    pairs = points.merge(
        base[[*others, "seed", *metrics]], on=[*others, "seed"], suffixes=("", "_0")
    )
    rows = []
    for labels, part in pairs.groupby([*others, over], sort=False):
        if labels[-1] == baseline:
            continue
        count = samples(part[[each for name in metrics for each in (name, f"{name}_0")]])
        row: dict[str, Any] = dict(zip([*others, over], labels, strict=True)) | {"n": count}
        for name in metrics:
            relative = _known(name, part[name] / part[f"{name}_0"] - 1)
            mean = relative.mean() if len(relative) else float("nan")
            row |= {
                name: mean,
                f"{name}_ci95": half_width(relative),
                f"{name}_n": min(count, len(relative)),
            }
        rows.append(row)
    return pd.DataFrame(rows)


def of_study(name: str, points: pd.DataFrame) -> pd.DataFrame:
    """The finished points of a study."""
    return points[(points["study"] == name) & (points["status"] == "finished")]


def axis_columns(study: Study) -> list[str]:
    """Columns of the study's axes; those of a random axis are the values that it draws."""
    return [
        c for name, axis in study.axes.items() for c in ([name] if axis.of is None else axis.of)
    ]


def axis_label(study: Study, column: str) -> str:
    """Label of an axis on pages and charts."""
    axis = study.axes.get(column)
    if axis is not None and axis.label:
        return axis.label
    return "Paradigm" if column == "paradigm" else column


def against_predictions(points: pd.DataFrame) -> list[dict[str, Any]]:
    """Emulated points compared with their own predictions, the largest error first."""
    rows = points[(points["mode"] == "run") & (points["status"] == "finished")].copy()
    rows = rows.drop_duplicates("point")
    for kind in ("predicted", "predicted_wire"):
        rows[f"{kind}_error"] = rows["latency_s"] / rows[f"{kind}_latency_s"] - 1
    order = rows["predicted_wire_error"].abs().sort_values(ascending=False).index
    return [{str(k): v for k, v in row.items()} for row in rows.loc[order].to_dict("records")]
