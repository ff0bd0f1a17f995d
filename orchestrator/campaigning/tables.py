# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Tables of a campaign as Markdown: means over the seeds, and verdicts on claims."""

from typing import Any

import numpy as np
import pandas as pd

from orchestrator.analysis import learned
from orchestrator.campaigning.claims import judge
from orchestrator.campaigning.spec import COLUMNS, Campaign, Study
from orchestrator.campaigning.summary import axis_columns, axis_label, means, of_study, titles
from orchestrator.reporting.formatting import NOTHING, markdown_table, plain, plus_minus
from testbed.core.paradigm import title_of


def means_of(campaign: Campaign, points: pd.DataFrame) -> dict[str, list[dict[str, Any]]]:
    """By study: its means as JSON values, see `summary.means`.

    Args:
        campaign: The campaign.
        points: Rows of `points.parquet`.
    """
    return {
        name: [
            {
                str(column): None if isinstance(value, float) and np.isnan(value) else value
                for column, value in row.items()
            }
            for row in _means(name, study, points).to_dict("records")
        ]
        for name, study in campaign.studies.items()
    }


def markdown(campaign: Campaign, points: pd.DataFrame) -> str:
    """The tables of all studies.

    Args:
        campaign: The campaign.
        points: Rows of `points.parquet`.
    """
    judged = judge(campaign, points)
    parts = []
    for name, study in campaign.studies.items():
        if len(campaign.studies) > 1:
            parts.append(f"{study.title or name}:")
        parts.append(_of_means(study, _means(name, study, points)))
        if claims := [one for one in judged if one.study == name]:
            rows = [
                [
                    f"{one.claim.says} ({one.title}: {one.wanted})",
                    *(one.claim.source, f"**{one.verdict}**", one.shown),
                ]
                for one in claims
            ]
            parts.append(markdown_table(("statement", "source", "verdict", "difference"), rows))
    return "\n\n".join(parts)


def _means(name: str, study: Study, points: pd.DataFrame) -> pd.DataFrame:
    return means(of_study(name, points), ["mode", *axis_columns(study)], study.requested_metrics)


def _of_means(study: Study, table: pd.DataFrame) -> str:
    columns, shown = axis_columns(study), list(dict.fromkeys(study.shown.values()))
    shown = [name for name in shown if table[name].notna().any()] or [COLUMNS[0]]
    mode = ["mode"] * (table["mode"].nunique() > 1)
    heads = [*mode, *(axis_label(study, c) for c in columns), *(titles(study)[m] for m in shown)]
    rows = [
        [
            *(row[name] for name in mode),
            *(title_of(row[c]) if c == "paradigm" else plain(row[c]) for c in columns),
            *(_cell(row, name) for name in shown),
        ]
        for row in table.to_dict("records")
    ]
    return markdown_table(
        [*heads, "seeds"], [[*r, str(n)] for r, n in zip(rows, table["n"], strict=True)]
    )


def _cell(row: dict[Any, Any], name: str) -> str:
    """A mean with half the width of its interval; `k of n` seeds if not all have the value."""
    mean, half, count = row[name], row[f"{name}_ci95"], row[f"{name}_n"]
    if np.isnan(mean):
        return NOTHING
    if name in learned.ACCURACIES:
        text = f"{100 * mean:.1f}{plus_minus(100 * half, 1)} %"
    else:
        text = _digits(mean, 4) + ("" if np.isnan(half) else f" ± {_digits(half, 2)}")
    return text + (f" ({count} of {row['n']})" if count < row["n"] else "")


def _digits(value: float, count: int) -> str:
    """A number with some significant digits and without an exponent."""
    return f"{float(f'{value:.{count}g}'):,.12g}"
