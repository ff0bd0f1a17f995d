# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Draws plots as in the paper: comparisons of paradigms over a quantity, and timelines."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from orchestrator.reporting.legend import STEP_COLOURS, STYLES, line_style
from testbed.core.paradigm import paradigm, title_of
from testbed.core.timeline import STEPS, Round, Timeline
from testbed.system.files import write_whole

WIDTH_IN = 3.5
"""Width of a column in a two-column paper, inches."""
WIDE_IN = 7.16
"""Width of both columns, inches."""

STYLE: dict[Any, Any] = {
    "font.family": "STIXGeneral",
    "mathtext.fontset": "stix",
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.linewidth": 0.6,
    "lines.linewidth": 0.9,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "pdf.fonttype": 42,  # embedded TrueType, which publishers require
    "savefig.dpi": 300,
}
"""Matplotlib parameters with a paper's fonts and lines."""


def write_plot(stem: Path, draw: Callable[[], Figure | None]) -> list[Path]:
    """Draw in the common style and write PNG and PDF; returns the files' paths.

    The files contain no time and program version, so that equal plots are equal files.

    Args:
        stem: The files' path without the suffix.
        draw: Makes the plot; if it returns None, nothing is written.
    """
    with mpl.rc_context(STYLE):
        figure = draw()
        if figure is None:
            return []
        written = []
        for kind, omitted in (("png", "Software"), ("pdf", "CreationDate")):
            path = stem.with_name(f"{stem.name}.{kind}")
            save = partial(figure.savefig, format=kind, metadata={omitted: None})
            write_whole(path, save)
            written.append(path)
        return written


@dataclass(frozen=True)
class ReferenceValue:
    """A latency from another source, e.g. the paper."""

    x: float
    latency_s: float
    text: str


def comparison(
    table: pd.DataFrame, x_label: str, reference: str, stated: ReferenceValue | None = None
) -> Figure:
    """Average per-round latency over x, one line per paradigm; below it relative to a reference.

    Args:
        table: Columns x, paradigm, latency_s, latency_ci95_s (half the interval's width),
            over_reference (a fraction), over_reference_ci95.
        x_label: The quantity on the x axis.
        reference: The paradigm that the others are compared with.
        stated: A value to draw in addition.
    """
    figure = Figure(figsize=(WIDTH_IN, 4.6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    known = table[table["paradigm"].isin(list(STYLES))]
    latency = known.rename(columns={"latency_s": "y", "latency_ci95_s": "y_ci95"})
    _draw_lines(above, latency, x="x", lines="paradigm")
    above.set(ylabel="Average per-round latency (s)")
    above.set_ylim(bottom=0)
    if stated is not None:
        above.plot(stated.x, stated.latency_s, "_", color="black", markersize=14, label=stated.text)
    figure.legend(
        *above.get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False
    )
    ratio = known.assign(y=100 * known["over_reference"], y_ci95=100 * known["over_reference_ci95"])
    _draw_lines(below, ratio, x="x", lines="paradigm", apart=0.06)
    below.set(xlabel=x_label, ylabel=f"Relative to {title_of(reference)} (%)")
    return figure


def ordered(values: Iterable[str]) -> list[str]:
    """Paradigms in the legends' order, then other values."""
    there = list(values)
    first = [name for name in STYLES if name in there]
    return first + [name for name in there if name not in first]


def lines(table: pd.DataFrame, *, x: str, lines: str | None, x_label: str, y_label: str) -> Figure:
    """A quantity over an axis with its intervals, one line per value of another axis.

    Args:
        table: The columns `x` and `lines`, y, y_ci95 (half the interval's width).
        x: Column of the horizontal axis: numbers, or names at equal distances.
        lines: Column with one line per value; None: a single line.
        x_label: The quantity on the x axis.
        y_label: The quantity on the y axis.
    """
    figure = Figure(figsize=(WIDTH_IN, 2.6), layout="constrained")
    axes = figure.add_subplot()
    _draw_lines(axes, table, x=x, lines=lines)
    axes.set(xlabel=x_label, ylabel=y_label)
    axes.set_ylim(bottom=0)
    if lines:
        axes.legend(ncols=2, frameon=False)
    return figure


def _draw_lines(
    axes: Axes, table: pd.DataFrame, *, x: str, lines: str | None, apart: float = 0.0
) -> None:
    """Draw lines; points with the same x are moved `apart` by that part of the distance in x."""
    places = table[x].drop_duplicates().tolist()
    numeric = all(isinstance(place, (int, float)) for place in places)
    values = table[lines].drop_duplicates().tolist() if lines else [""]
    drawn = ordered(values) if lines == "paradigm" else values
    width = min(np.diff(sorted(places)), default=1.0) if numeric else 1.0
    for number, value in enumerate(drawn):
        rows = table[table[lines] == value] if lines else table
        colour, line, marker = line_style(lines, str(value), number)
        at = rows[x] if numeric else pd.Series([places.index(place) for place in rows[x]])
        axes.errorbar(
            at + apart * width * (number - (len(drawn) - 1) / 2),
            rows["y"],
            yerr=rows["y_ci95"],
            label=title_of(str(value)) if lines == "paradigm" else str(value),
            color=colour,
            linestyle=line,
            marker=marker,
            markersize=3.2,
            markerfacecolor="white",
            capsize=1.6,
        )
    if not numeric:
        axes.set_xticks(range(len(places)), [str(place) for place in places])
    elif len(places) <= 10:
        axes.set_xticks(sorted(places))
    axes.grid(alpha=0.3)


def errors(table: pd.DataFrame) -> Figure:
    """Errors of predictions of measured rounds, one row per point.

    Args:
        table: Columns predicted_error and predicted_wire_error, fractions.
    """
    figure = Figure(figsize=(WIDTH_IN, 0.9 + 0.12 * min(len(table), 40)), layout="constrained")
    axes = figure.add_subplot()
    rows = table.head(40).iloc[::-1]
    for column, label, colour in (
        ("predicted_error", "payload only", "#0072b2"),
        ("predicted_wire_error", "with frames", "#d55e00"),
    ):
        axes.plot(
            100 * rows[column], range(len(rows)), "o", markersize=3, color=colour, label=label
        )
    axes.axvline(0, color="black", linewidth=0.6)
    axes.set(xlabel="Measured above predicted (%)", ylabel="Emulated point", yticks=[])
    axes.grid(alpha=0.3, axis="x")
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    return figure


def timelines(timeline: Timeline) -> Figure:
    """Gantt charts of rounds with their paradigms and latencies as titles, see `gantts`."""
    return gantts(
        [
            (f"{paradigm(round_.paradigm).title}: {round_.latency_s:.2f} s", round_)
            for round_ in timeline
        ]
    )


def gantts(rounds: Sequence[tuple[str, Round]]) -> Figure:
    """Gantt charts of rounds, one above the other: one row per client, one colour per step."""
    figure = Figure(figsize=(WIDE_IN, 2.2 * len(rounds)), layout="constrained")
    longest_s = max(round_.latency_s for _, round_ in rounds)
    panels = figure.subplots(len(rounds), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (title, round_) in zip(panels, rounds, strict=True):
        for step, name in enumerate(STEPS):
            rows = round_.spans[round_.spans["step"] == step]
            axes.barh(
                rows["client"],
                rows["end_s"] - rows["start_s"],
                left=rows["start_s"] - round_.start_s,
                color=STEP_COLOURS[name],
                height=0.8,
            )
        axes.axvline(round_.latency_s, color="black", linewidth=0.8)
        axes.set_ylabel("Client")
        axes.set_yticks(range(1, int(round_.spans["client"].max()) + 1))
        axes.tick_params(axis="y", labelsize=6)
        axes.invert_yaxis()
        axes.set_title(title)
    panels[-1].set_xlabel("Time (s); lines mark the ends of rounds")
    panels[-1].set_xlim(0, 1.02 * longest_s)
    figure.legend(
        handles=[Patch(color=STEP_COLOURS[name], label=name) for name in STEPS],
        loc="outside lower center",
        ncols=len(STEPS),
        frameon=False,
    )
    return figure


def over_delay(lines: Mapping[str, pd.DataFrame]) -> Figure:
    """Latency over the links' one-way delay, one line per table with columns delay_ms, mean_s."""
    figure = Figure(figsize=(WIDTH_IN, 2.6), layout="constrained")
    axes = figure.add_subplot()
    for name, table in lines.items():
        colour, line, marker = STYLES.get(name, ("#6b7280", "-", "o"))
        axes.plot(
            table["delay_ms"],
            table["mean_s"],
            label=paradigm(name).title,
            color=colour,
            linestyle=line,
            marker=marker,
            markersize=4,
            markerfacecolor="white",
        )
    axes.set_xlabel("One-way delay of a link (ms)")
    cut = axes.get_ylim()[0] > 0
    axes.set_ylabel("Round latency (s)" + "; axis not from 0" * int(cut))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return figure
