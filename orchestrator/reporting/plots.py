# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Draws plots as in the paper: comparisons of paradigms over a quantity, and timelines."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from orchestrator.reporting.legend import COLOURS, STEP_COLOURS, STYLES, line_style
from testbed.core.paradigm import paradigm, title_of
from testbed.core.timeline import STEPS, Round, Timeline
from testbed.system.files import write_whole

WIDTH_IN = 3.5
"""Width of a column in a two-column paper, inches."""
WIDE_IN = 7.16
"""Width of both columns, inches."""
MOST_UAVS = 12
"""Most UAVs in a Gantt chart; of more, it shows the slowest."""

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


OMITTED = {"png": "Software", "pdf": "CreationDate", "svg": "Date"}
"""By format of a plot: its entry that differs between equal plots."""


def write_plot(
    stem: Path, draw: Callable[[], Figure | None], kinds: Iterable[str] = ("png", "pdf")
) -> list[Path]:
    """Draw in the common style and write files; returns their paths.

    The files contain no time and program version, so that equal plots are equal files.

    Args:
        stem: The files' path without the suffix.
        draw: Makes the plot; if it returns None, nothing is written.
        kinds: Formats, of `OMITTED`.
    """
    with mpl.rc_context(STYLE | {"svg.hashsalt": stem.name, "svg.fonttype": "none"}):
        figure = draw()
        if figure is None:
            return []
        written = []
        for kind in kinds:
            path = stem.with_name(f"{stem.name}.{kind}")
            save = partial(figure.savefig, format=kind, metadata={OMITTED[kind]: None})
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
    table: pd.DataFrame,
    x_label: str,
    reference: str,
    stated: ReferenceValue | None = None,
) -> Figure:
    """Average per-round latency over x, one line per paradigm, and relative to a reference.

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
    if stated is not None:
        above.plot(
            stated.x,
            stated.latency_s,
            "*",
            color="black",
            markerfacecolor="none",
            markersize=11,
            markeredgewidth=0.7,
            label=stated.text,
            zorder=5,
        )
    from_zero(above)
    figure.legend(
        *above.get_legend_handles_labels(),
        loc="outside upper center",
        ncols=2,
        frameon=False,
    )
    ratio = known.assign(y=100 * known["over_reference"], y_ci95=100 * known["over_reference_ci95"])
    _draw_lines(below, ratio, x="x", lines="paradigm")
    below.set(xlabel=x_label, ylabel=f"Relative to {title_of(reference)} (%)")
    return figure


def from_zero(axes: Axes) -> None:
    """Begin the vertical axis at 0, and end it above the highest marker."""
    axes.set_ylim(0, 1.06 * axes.dataLim.y1 or 1)


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
    from_zero(axes)
    if lines:
        axes.legend(ncols=2, frameon=False)
    return figure


def _draw_lines(axes: Axes, table: pd.DataFrame, *, x: str, lines: str | None) -> None:
    places = table[x].drop_duplicates().tolist()
    numeric = all(isinstance(place, (int, float)) for place in places)
    values = table[lines].drop_duplicates().tolist() if lines else [""]
    drawn = ordered(values) if lines == "paradigm" else values
    for number, value in enumerate(drawn):
        rows = table[table[lines] == value] if lines else table
        colour, line, marker = line_style(lines, str(value), number)
        at = rows[x] if numeric else pd.Series([places.index(place) for place in rows[x]])
        axes.errorbar(
            at,
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
        table: Columns name, predicted_error and predicted_wire_error (fractions). At most the
            first 40 rows are drawn.
    """
    rows = table.head(40)
    figure = Figure(figsize=(WIDTH_IN, 0.9 + 0.14 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    for column, label, marker, colour in (
        ("predicted_error", "payload only", "o", COLOURS[1]),
        ("predicted_wire_error", "with frames", "s", COLOURS[0]),
    ):
        axes.plot(
            100 * rows[column],
            range(len(rows)),
            marker,
            markersize=3.5,
            color=colour,
            label=label,
            clip_on=False,
        )
    axes.axvline(0, color="black", linewidth=0.6)
    axes.set_yticks(range(len(rows)), rows["name"])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel("Measured minus predicted latency (%)")
    axes.grid(alpha=0.3, axis="x")
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    return figure


def timelines(timeline: Timeline) -> Figure:
    """Gantt charts of rounds with their paradigms and latencies as titles, see `gantts`."""
    titled = [
        (f"{paradigm(round_.paradigm).title}: {round_.latency_s:.2f} s", round_)
        for round_ in timeline
    ]
    return gantts(titled)


def drawn_uavs(table: pd.DataFrame) -> list[int]:
    """The UAVs of a Gantt chart: all by number, or of more than `MOST_UAVS` the slowest, first.

    Args:
        table: Steps of a round: columns client and end_s.
    """
    last_s = table.groupby("client")["end_s"].max()
    if len(last_s) > MOST_UAVS:
        last_s = last_s.sort_values(ascending=False, kind="stable").head(MOST_UAVS)
    return [int(client) for client in last_s.index]


def uav_label(drawn: int, count: int) -> str:
    """Axis label of a Gantt chart that shows this number of UAVs out of all."""
    return "UAV" if drawn == count else f"UAV (the {drawn} slowest of {count})"


def gantts(rounds: Sequence[tuple[str, Round]], width_in: float = WIDE_IN) -> Figure:
    """Gantt charts of rounds, one above the other: one row per UAV, one colour per step.

    All charts show the same UAVs: those of `drawn_uavs` for the last round.
    """
    tables = [pd.DataFrame(round_.spans) for _, round_ in rounds]
    shown = drawn_uavs(tables[-1])
    row_of = {client: row for row, client in enumerate(shown)}
    height_in = 0.55 + 0.16 * len(shown)
    figure = Figure(figsize=(width_in, 0.7 + height_in * len(rounds)), layout="constrained")
    panels = figure.subplots(len(rounds), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (title, round_), table in zip(panels, rounds, tables, strict=True):
        for step, name in enumerate(STEPS):
            rows = table[(table["step"] == step) & table["client"].isin(shown)]
            axes.barh(
                rows["client"].map(row_of),
                rows["end_s"] - rows["start_s"],
                left=rows["start_s"] - round_.start_s,
                color=STEP_COLOURS[name],
                height=0.8,
            )
        axes.axvline(round_.latency_s, color="black", linewidth=0.8)
        axes.set_ylabel(uav_label(len(shown), table["client"].nunique()))
        axes.set_yticks(range(len(shown)), [str(client) for client in shown])
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.tick_params(axis="y", labelsize=6)
        axes.set_title(title)
    longest_s = max(round_.latency_s for _, round_ in rounds)
    panels[-1].set_xlabel("Time since the start of the round (s)")
    panels[-1].set_xlim(0, 1.02 * longest_s)
    end = Line2D([], [], color="black", linewidth=0.8, label="end of the round")
    steps = [Patch(color=STEP_COLOURS[name], label=name) for name in STEPS]
    figure.legend(
        handles=[*steps, end],
        loc="outside lower center",
        ncols=len(steps) + 1 if width_in > WIDTH_IN else 4,
        frameon=False,
        handlelength=0.9,
        columnspacing=1.2,
    )
    return figure
