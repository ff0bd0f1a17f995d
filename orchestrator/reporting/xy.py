# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Data for charts of points, lines, bands and bars, which `templates/xy.js` draws."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.reporting.charts import column_of

MOST_POINTS = 2000
"""Largest number of points of a series; of longer ones, points at equal distances are drawn."""

Values = npt.NDArray[np.float64]
Series = dict[str, Any]


def chart(
    label: str,
    x_label: str,
    y_label: str,
    series: Sequence[Series],
    *,
    log_x: bool = False,
    from_zero: bool = False,
    digits: tuple[int, int] = (1, 1),
) -> dict[str, Any]:
    """A chart as JSON values.

    Args:
        label: Text for readers who do not see the chart.
        x_label: The quantity on the horizontal axis, with its unit.
        y_label: The quantity on the vertical axis, with its unit.
        series: What is drawn, the lowest layer first.
        log_x: Whether the horizontal axis is logarithmic.
        from_zero: Whether the vertical axis begins at 0.
        digits: Decimals of both quantities where a tooltip shows them.
    """
    return {
        "label": label,
        "x": {"label": x_label, "log": log_x, "digits": digits[0]},
        "y": {"label": y_label, "range": [0 if from_zero else None, None], "digits": digits[1]},
        "series": list(series),
    }


def points(label: str, x: Values, y: Values, colour: str) -> Series:
    """Points, shape [n] each; those with NaN are not drawn.

    Args:
        label: Name in the legend.
        x: Horizontal positions.
        y: Vertical positions.
        colour: Name of a variable of the style sheet.
    """
    known = np.isfinite(x) & np.isfinite(y)
    return _series("points", label, x[known], {"y": y[known]}, colour)


def line(
    label: str, x: Values, y: Values, colour: str, *, dash: str = "", width: float = 2
) -> Series:
    """A line through points, shape [n] each; it has a gap where y is NaN.

    Args:
        label: Name in the legend.
        x: Horizontal positions, finite.
        y: Vertical positions.
        colour: Name of a variable of the style sheet.
        dash: Lengths of dashes and gaps in pixels; empty: a solid line.
        width: Width in pixels.
    """
    return _series("line", label, x, {"y": y}, colour) | {"dash": dash, "width": width}


def band(label: str, x: Values, low: Values, high: Values, colour: str) -> Series:
    """The area between two lines, shape [n] each; it has a gap where they are NaN."""
    return _series("band", label, x, {"low": low, "high": high}, colour)


def bars(label: str, edges: Values, heights: Values, colour: str) -> Series:
    """Bars of a histogram: edges of shape [n + 1] and heights of shape [n]."""
    return _series("bars", label, edges[:-1], {"to": edges[1:], "y": heights}, colour)


def _series(kind: str, label: str, x: Values, columns: dict[str, Values], colour: str) -> Series:
    kept = np.unique(np.linspace(0, len(x) - 1, min(len(x), MOST_POINTS)).round().astype(int))
    return {
        "kind": kind,
        "label": label,
        "colour": colour,
        **{name: column_of(column[kept], 4) for name, column in {"x": x, **columns}.items()},
    }
