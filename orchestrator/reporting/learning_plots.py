# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Plots of learning curves for publication: held-out measures over time, rounds, energy or bytes.

Each marker is an evaluation: the mean over the seeds that were evaluated after the same round. A
value holds until the next evaluation. Bands reach from the least to the largest value of any seed.
Where there are several seeds, a cross is the mean cost of reaching the target. A text above a plot
names curves that lie on each other.
"""

import textwrap
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from orchestrator.analysis.learned import (
    ALIKE,
    COSTS,
    X_TITLES,
    Y_TITLES,
    Group,
    Race,
    Target,
    band,
    coinciding,
)
from orchestrator.reporting.formatting import equal_curves
from orchestrator.reporting.legend import Style, numbered
from orchestrator.reporting.plots import WIDTH_IN, from_zero, write_plot

COST_OF = {column: cost for cost, (column, _) in COSTS.items()} | {"round": "rounds"}
"""By quantity of a horizontal axis: the cost of reaching a target."""
LETTERS = 60
"""Most letters of a line of text above a plot."""
MOST_MARKERS = 50
"""Most markers of a line; of more evaluations, only some are marked."""


def draw_groups(
    groups: Sequence[Group],
    folder: Path,
    target: Target | None = None,
    styles: Sequence[Style] = (),
) -> list[Path]:
    """Draw accuracy and loss of groups over each quantity, as PNG and PDF; returns the paths.

    Args:
        groups: Groups of results with curves.
        folder: Output folder, created if missing.
        target: A target, drawn as a line in the plots of its measure, which are drawn in any case.
        styles: Styles of the groups (default: by number).
    """
    folder.mkdir(parents=True, exist_ok=True)
    measures = dict.fromkeys(["accuracy", "loss", *([target.measure] if target else [])])
    written = []
    for y in measures:
        for x in X_TITLES:
            draw = partial(curves, groups, x, y, target, styles)
            written += write_plot(folder / f"{y}-{x.rpartition('_')[0] or x}", draw)
    return written


def curves(
    groups: Sequence[Group],
    x: str,
    y: str,
    target: Target | None = None,
    styles: Sequence[Style] = (),
) -> Figure | None:
    """Held-out curves, one line per group with its band; None if nothing was evaluated.

    Args:
        groups: Groups of results with curves.
        x: Quantity of the horizontal axis, one of `X_TITLES`.
        y: Measure of the vertical axis, one of `Y_TITLES`.
        target: A target; it is drawn if it is one of the measure.
        styles: Styles of the groups (default: by number).
    """
    scale = 100 if y == "accuracy" else 1
    figure = Figure(figsize=(WIDTH_IN, 2.6), layout="constrained")
    axes = figure.add_subplot()
    most = 1
    for number, group in enumerate(groups):
        found = band(list(group.curves.values()), x, y)
        if not len(found["x"]):
            continue
        colour, line, marker = styles[number] if styles else numbered(number)
        most = max(most, len(group.curves))
        axes.plot(
            found["x"],
            scale * found["mean"],
            label=group.name,
            color=colour,
            linestyle=line,
            drawstyle="steps-post",
            marker=marker,
            markevery=-(-len(found["x"]) // MOST_MARKERS),
            markersize=3.2,
            markerfacecolor="white",
            clip_on=False,
        )
        if len(group.curves) < 2:
            continue  # The line itself crosses the target where the sentence says.
        low, high = scale * found["low"], scale * found["high"]
        axes.fill_between(found["x"], low, high, step="post", color=colour, alpha=0.18, linewidth=0)
        if target is not None and target.measure == y:
            reached = Race([group], target).groups[0].mean(COST_OF[x])
            axes.plot(reached, scale * target.value, "x", color=colour, markersize=5, zorder=4)
    if not axes.lines:
        return None
    if target is not None and target.measure == y:
        axes.axhline(
            scale * target.value, color="black", linewidth=0.6, linestyle=":", label="target"
        )
    axes.set(xlabel=X_TITLES[x], ylabel=Y_TITLES[y])
    axes.set_xlim(left=0)
    from_zero(axes)
    axes.grid(alpha=0.3)
    alike = equal_curves(coinciding([g for g in groups if g.name], x, y), ALIKE)
    notes = [f"Band: range of {most} seeds"] * (most > 1) + textwrap.wrap(alike, LETTERS)
    figure.legend(
        *axes.get_legend_handles_labels(),
        title="\n".join(notes) or None,
        loc="outside upper center",
        ncols=2,
        frameon=False,
    )
    return figure
