# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Draws a campaign's plots for publication; only what draws imports matplotlib."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from orchestrator.analysis.axes import Label
from orchestrator.analysis.learned import Y_TITLES, Group, Target
from orchestrator.campaigning.spec import Campaign, Plot, Study
from orchestrator.campaigning.summary import (
    against_predictions,
    axis_columns,
    axis_label,
    groups_of,
    means,
    of_study,
    titles,
)
from orchestrator.reporting.legend import Style, line_style
from testbed.core.paradigm import title_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_FIGURES = 24
"""Most charts of one plot, which has one per combination of the axes that it does not show."""


def draw(
    out: Path, campaign: Campaign, points: pd.DataFrame, curves: pd.DataFrame
) -> dict[str, list[str]]:
    """Draw all plots of all studies as PNG, PDF and SVG; returns the file stems by study."""
    out.mkdir(exist_ok=True)
    compared, found = measured(campaign, points), figures(campaign, points, curves)
    if not compared and not found:
        return {}
    from orchestrator.reporting import plots

    for stem, draw_part in compared.items():
        plots.write_plot(out / stem, draw_part)
    drawn = {}
    for name, own in found.items():
        for stem, draw_part in own.items():
            plots.write_plot(out / stem, draw_part, plots.OMITTED)
        drawn[name] = list(own)
    return drawn


def figures(
    campaign: Campaign, points: pd.DataFrame, curves: pd.DataFrame
) -> "dict[str, dict[str, Callable[[], Figure | None]]]":
    """The functions that draw the plots of each study that has any, by the stems of their files."""
    found = {}
    for name, study in campaign.studies.items():
        learned = curves[curves["study"] == name]
        drawn: dict[str, Callable[[], Figure | None]] = {
            shown.stem: partial(shown.figure, study.target)
            for shown in curve_plots(name, study, learned)
        }
        for plot in study.plot:
            if not plot.is_curve:
                drawn |= _charts(name, study, plot, of_study(name, points))
        if drawn:
            found[name] = drawn
    return found


def measured(campaign: Campaign, points: pd.DataFrame) -> "dict[str, Callable[[], Figure | None]]":
    """The function that draws measurements against predictions; empty if nothing was measured."""
    if not (rows := against_predictions(points)):
        return {}
    from orchestrator.reporting import plots

    table = pd.DataFrame(rows)
    table["name"] = _point_names(campaign, table)
    return {"measured": partial(plots.errors, table)}


@dataclass(frozen=True)
class CurvePlot:
    """A chart of held-out curves of a study."""

    stem: str
    """Stem of its files."""
    title: str
    """Its measure, and the values of the axes that it does not show."""
    plot: Plot
    groups: Sequence[Group]
    styles: Sequence[Style]

    def figure(self, target: Target | None) -> "Figure | None":
        """The chart for a publication."""
        from orchestrator.reporting import learning_plots

        return learning_plots.curves(self.groups, self.plot.x, self.plot.y, target, self.styles)


def curve_plots(name: str, study: Study, curves: pd.DataFrame) -> Iterator[CurvePlot]:
    """The charts of a study's held-out curves, one per combination of the axes that a plot does not
    show.

    Args:
        name: Name of the study.
        study: The study.
        curves: Its rows of `curves.parquet`.
    """
    for plot in study.plot:
        if not plot.is_curve:
            continue
        others = [column for column in axis_columns(study) if column != plot.lines]
        for mode, of_mode in curves.groupby("mode", sort=False):
            parts = of_mode.groupby(others, sort=False) if others else [((), of_mode)]
            for combination, part in itertools.islice(parts, MOST_FIGURES):
                values = [""] if plot.lines is None else part[plot.lines].drop_duplicates()
                several = [str(mode)] * (curves["mode"].nunique() > 1)
                words = [name, plot.y, plot.x.rpartition("_")[0] or plot.x, *several]
                values_of = zip(others, combination, strict=True)
                where = [f"{axis_label(study, c)} = {_shown(c, v)}" for c, v in values_of]
                yield CurvePlot(
                    "-".join([*words, *map(_file_name, combination)]),
                    ", ".join([Y_TITLES[plot.y].partition(" (")[0], *several, *where]),
                    plot,
                    groups_of(part, plot.lines),
                    [line_style(plot.lines, str(value), k) for k, value in enumerate(values)],
                )


def _charts(
    name: str, study: Study, plot: Plot, own: pd.DataFrame
) -> "Iterator[tuple[str, Callable[[], Figure]]]":
    """Draw functions: one chart per combination of the axes that the plot does not show."""
    shown = [column for column in (plot.x, plot.lines) if column is not None]
    others = [column for column in axis_columns(study) if column not in shown]
    from orchestrator.reporting import plots

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
        values = {c: _shown(c, row[c]) for c in columns}
        words.append({"study": row["study"], **values, "seed": f"seed {row['seed']}"})
    named = pd.DataFrame(words)
    varying = [column for column in named if named[column].nunique(dropna=False) > 1]
    rows = named[varying or ["study"]].to_dict("records")
    return [", ".join(str(v) for v in row.values() if not pd.isna(v)) for row in rows]


def _shown(column: str, value: object) -> str:
    return title_of(str(value)) if column == "paradigm" else str(value)


def _file_name(label: object) -> str:
    return "".join(c if c.isalnum() or c in ".-" else "_" for c in str(label))
