# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Draws the charts of pages, see `orchestrator.reporting.xy`, as figures for a publication."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from orchestrator.reporting.plots import WIDTH_IN

COLOURS = {
    "accent": "#0a5c9e",
    "ink": "#1b1f24",
    "muted": "#59616b",
    "bad": "#a8201a",
    "good": "#0b6b3a",
    "more": "#c2410c",
    "less": "#0369a1",
    "ring-1": "#0072b2",
    "ring-2": "#b65c00",
    "ring-3": "#00785a",
    "ring-4": "#a04e80",
}
"""The colours of the style sheet of pages, in its light form."""


def figure(chart: Mapping[str, Any], over: str | None = None) -> Figure:
    """A figure of a chart.

    Args:
        chart: A result of `orchestrator.reporting.xy.chart`.
        over: The quantity on the horizontal axis, if the chart has several. Default: the first.
    """
    drawn = Figure(figsize=(WIDTH_IN, 2.6), layout="constrained")
    axes = drawn.add_subplot()
    several: Mapping[str, str] = chart.get("over", {})
    if several:
        over = over or next(iter(several))
    seen: set[str] = set()
    for one in chart["series"]:
        x = one["x"] if over is None or not isinstance(one["x"], Mapping) else one["x"].get(over)
        if x is None:
            continue
        label = None if one["label"] in seen or one.get("faint") else one["label"]
        colour = COLOURS.get(one["colour"], one["colour"])
        _draw(axes, one, np.array(x, float), colour, label)
        if label is not None and one["kind"] != "band":
            seen.add(label)
    if chart["x"]["log"]:
        axes.set_xscale("log")
    if chart["y"]["range"][0] is not None:
        axes.set_ylim(bottom=chart["y"]["range"][0])
    axes.set_xlabel(several[over] if over is not None else chart["x"]["label"])
    axes.set_ylabel(chart["y"]["label"])
    axes.grid(alpha=0.3)
    if len(axes.get_legend_handles_labels()[1]) > 1:
        drawn.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=7)
    return drawn


def _draw(axes: Any, one: Mapping[str, Any], x: Any, colour: str, label: str | None) -> None:
    """Draw a series."""
    if one["kind"] == "band":
        low, high = (np.array(one[name], float) for name in ("low", "high"))
        step = "post" if one["holds"] else None
        axes.fill_between(x, low, high, step=step, color=colour, alpha=0.18, linewidth=0)
        return
    y = np.array(one["y"], float)
    if one["kind"] == "points":
        axes.plot(x, y, ".", markersize=3, color=colour, label=label)
    elif one["kind"] == "bars":
        width = np.array(one["to"], float) - x
        axes.bar(x, y, width, align="edge", color=colour, label=label)
    else:
        dashes = [float(part) / 2 for part in one["dash"].split()]
        axes.plot(
            *(x, y),
            color=colour,
            label=label,
            linewidth=one["width"] / 1.5,
            linestyle=(0, tuple(dashes)) if dashes else "-",
            drawstyle="steps-post" if one["holds"] else "default",
            marker=one["marker"] or None,
            markersize=3.2,
            markerfacecolor="white",
            alpha=0.4 if one["faint"] else None,
        )
