# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Summaries of a campaign's points: means over seeds, differences from a baseline.

They are calculated from the tables in `results/`. Means are over the seeds of a cell; intervals are
Student's, 95 %.
"""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from orchestrator.analysis.statistics import half_width
from orchestrator.campaign.results import MEANS
from orchestrator.campaign.spec import Study

METRIC_TITLES = {
    "latency_s": "Average per-round latency (s)",
    "max_energy_j": "Largest energy of a UAV (J)",
    "objective": "Objective",
}


def titles(study: Study) -> dict[str, str]:
    """Titles of a study's columns on pages and charts."""
    return METRIC_TITLES | {name: name for name in study.requested_metrics}


def means(points: pd.DataFrame, by: Sequence[str], more: Sequence[str] = ()) -> pd.DataFrame:
    """Means over seeds with half the width of their 95 % intervals.

    Returns:
        One row per group: `by`, n, and for each of `MEANS` and `more` its mean and `<name>_ci95`.
    """
    names = [*MEANS, *more]
    rows = []
    for labels, part in points.groupby(list(by), sort=False, dropna=False):
        row: dict[str, Any] = dict(zip(by, labels, strict=True)) | {"n": len(part)}
        for name in names:
            row |= {name: part[name].mean(), f"{name}_ci95": half_width(part[name].to_numpy())}
        rows.append(row)
    return pd.DataFrame(rows, columns=[*by, "n", *(c for m in names for c in (m, f"{m}_ci95"))])


def differences(points: pd.DataFrame, study: Study, columns: Sequence[str]) -> pd.DataFrame:
    """Relative difference of each value of the compared axis from the baseline, seed by seed.

    Returns:
        One row per cell and value: mode, the other axes, the compared axis, n, and for each
        compared column its mean relative difference `<name>` and its half interval `<name>_ci95`.
    """
    assert study.compare is not None
    over, metrics = study.compare.over, study.compare.of
    others = ["mode", *(name for name in columns if name != over)]
    base = points[points[over] == study.compare.baseline]
    pairs = points.merge(
        base[[*others, "seed", *metrics]], on=[*others, "seed"], suffixes=("", "_0")
    )
    rows = []
    for labels, part in pairs.groupby([*others, over], sort=False):
        if labels[-1] == study.compare.baseline:
            continue
        row: dict[str, Any] = dict(zip([*others, over], labels, strict=True)) | {"n": len(part)}
        for name in metrics:
            relative = (part[name] / part[f"{name}_0"] - 1).to_numpy()
            row |= {name: relative.mean(), f"{name}_ci95": half_width(relative)}
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
