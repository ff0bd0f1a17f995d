# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Draws a campaign's plots for publication."""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from orchestrator.analysis.axes import Label
from orchestrator.campaign.spec import Campaign, Plot, Study
from orchestrator.campaign.summary import (
    against_predictions,
    axis_columns,
    axis_label,
    groups_of,
    means,
    of_study,
    titles,
)
from orchestrator.reporting import learning_plots, plots
from orchestrator.reporting.legend import line_style
from testbed.core.paradigm import title_of

MOST_FIGURES = 24
"""Most charts of one plot, which has one per combination of the axes that it does not show."""


def draw(
    out: Path, campaign: Campaign, points: pd.DataFrame, curves: pd.DataFrame
) -> dict[str, list[str]]:
    """Draw all plots of all studies as PNG and PDF; returns the file stems by study."""
    out.mkdir(exist_ok=True)
    drawn: dict[str, list[str]] = {}
    for name, study in campaign.studies.items():
        own = of_study(name, points)
        learned = curves[curves["study"] == name]
        for plot in study.plot:
            charts = (
                _curves(name, study, plot, learned)
                if plot.is_curve
                else _charts(name, study, plot, own)
            )
            for stem, draw_part in charts:
                plots.write_plot(out / stem, draw_part)
                drawn.setdefault(name, []).append(stem)
    if measured := against_predictions(points):
        table = pd.DataFrame(measured)
        table["name"] = _point_names(campaign, table)
        plots.write_plot(out / "measured", lambda: plots.errors(table))
    return drawn


def _curves(
    name: str, study: Study, plot: Plot, curves: pd.DataFrame
) -> Iterator[tuple[str, Callable[[], Figure | None]]]:
    """Draw functions of held-out curves: one chart per combination of the other axes."""
    others = [column for column in axis_columns(study) if column != plot.lines]
    for mode, of_mode in curves.groupby("mode", sort=False):
        parts = of_mode.groupby(others, sort=False) if others else [((), of_mode)]
        for combination, part in itertools.islice(parts, MOST_FIGURES):
            labels = [_file_name(label) for label in combination]
            groups = groups_of(part, plot.lines)
            values = [""] if plot.lines is None else part[plot.lines].drop_duplicates()
            styles = [line_style(plot.lines, str(value), k) for k, value in enumerate(values)]
            several = [str(mode)] * (curves["mode"].nunique() > 1)
            yield (
                "-".join([name, plot.y, plot.x.rpartition("_")[0] or plot.x, *several, *labels]),
                partial(
                    learning_plots.curves,
                    groups,
                    plot.x,
                    plot.y,
                    study.target,
                    styles,
                ),
            )


def _charts(
    name: str, study: Study, plot: Plot, own: pd.DataFrame
) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """Draw functions: one chart per combination of the axes that the plot does not show."""
    shown = [column for column in (plot.x, plot.lines) if column is not None]
    others = [column for column in axis_columns(study) if column not in shown]
    # Emulated cells are fewer and have fewer rounds: they are drawn only without predictions.
    mode = next((m for m in ("predict", "run", "up") if (own["mode"] == m).any()), "predict")
    table = means(own[own["mode"] == mode], axis_columns(study), study.requested_metrics)
    values: list[list[Label]] = [table[column].drop_duplicates().tolist() for column in others]
    for combination in itertools.islice(itertools.product(*values), MOST_FIGURES):
        part = table
        for column, value in zip(others, combination, strict=True):
            part = part[part[column] == value]
        if part.empty:
            continue
        stem = "-".join([name, plot.y.rpartition("_")[0] or plot.y, *map(_file_name, combination)])
        yield (
            stem,
            partial(
                plots.lines,
                part.rename(columns={plot.y: "y", f"{plot.y}_ci95": "y_ci95"}),
                x=plot.x,
                lines=plot.lines,
                x_label=axis_label(study, plot.x),
                y_label=titles(study)[plot.y],
            ),
        )


def _point_names(campaign: Campaign, table: pd.DataFrame) -> list[str]:
    """Short names of points: study, values on its axes, seed, without what all points share."""
    words = []
    for row in table.to_dict("records"):
        columns = axis_columns(campaign.studies[row["study"]])
        values = {c: title_of(str(row[c])) if c == "paradigm" else str(row[c]) for c in columns}
        words.append({"study": row["study"], **values, "seed": f"seed {row['seed']}"})
    named = pd.DataFrame(words)
    varying = [column for column in named if named[column].nunique(dropna=False) > 1]
    rows = named[varying or ["study"]].to_dict("records")
    return [", ".join(str(v) for v in row.values() if not pd.isna(v)) for row in rows]


def _file_name(label: object) -> str:
    return "".join(c if c.isalnum() or c in ".-" else "_" for c in str(label))
