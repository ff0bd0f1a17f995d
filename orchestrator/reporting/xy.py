# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Data for charts of points, lines, bands and bars, which `templates/xy.js` draws."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.reporting.charts import column_of

MOST_POINTS = 2000
"""Largest number of points of a series; of longer ones, points at equal distances are drawn."""

Values = npt.NDArray[np.float64]
Places = Values | Mapping[str, Values]
"""Horizontal positions, shape [n], or those by quantity where the reader chooses the quantity."""
Series = dict[str, Any]


def chart(
    label: str,
    x_label: str | Mapping[str, str],
    y_label: str,
    series: Sequence[Series],
    *,
    notes: Mapping[str, str] | None = None,
    log_x: bool = False,
    whole_x: bool = False,
    names: Sequence[str] = (),
    from_zero: bool = False,
    digits: tuple[int, int] = (1, 1),
) -> dict[str, Any]:
    """A chart as JSON values.

    Args:
        label: Text for readers who do not see the chart.
        x_label: The quantity on the horizontal axis, with its unit; or the labels of several, by
            name, of which the reader chooses one.
        y_label: The quantity on the vertical axis, with its unit.
        series: What is drawn, the lowest layer first. Those with the same label are hidden
            together.
        notes: A sentence below the chart by name of the horizontal quantity.
        log_x: Whether the horizontal axis is logarithmic.
        whole_x: Whether horizontal places are whole numbers, such as those of UAVs.
        names: Texts in place of the horizontal numbers 0, 1, 2, ...; empty: the numbers.
        from_zero: Whether the vertical axis begins at 0.
        digits: Decimals of both quantities where a tooltip shows them.
    """
    chosen: dict[str, Any] = {}
    if not isinstance(x_label, str):
        chosen = {"over": dict(x_label), "notes": dict(notes or {})}
    return {
        "label": label,
        **chosen,
        "x": {"label": "" if chosen else x_label, "log": log_x, "whole": whole_x or bool(names)}
        | {"digits": digits[0], **({"names": list(names)} if names else {})},
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
    label: str,
    x: Places,
    y: Values,
    colour: str,
    *,
    dash: str = "",
    width: float = 2,
    marker: str = "",
    holds: bool = False,
    faint: bool = False,
    name: str = "",
    half: Values | None = None,
) -> Series:
    """A line through points, shape [n] each; it has a gap where y is NaN.

    Args:
        label: Name in the legend.
        x: Horizontal positions, finite.
        y: Vertical positions.
        colour: Name of a variable of the style sheet, or a colour such as `#aa0044`.
        dash: Lengths of dashes and gaps in pixels; empty: a solid line.
        width: Width in pixels.
        marker: Marker of matplotlib at each point; empty: none.
        holds: Whether a value holds until the next one.
        faint: Whether the line is in the background, without a row in tooltips.
        name: Name in a CSV file, if it is not `label`.
        half: Half the width of the interval of each value; NaN: it has none.
    """
    ends = {} if half is None else {"low": y - half, "high": y + half}
    return _series("line", label, x, {"y": y, **ends}, colour) | {
        "dash": dash,
        "width": width,
        "marker": marker,
        "holds": holds,
        "faint": faint,
        **({"name": name} if name else {}),
    }


def band(
    label: str, x: Places, low: Values, high: Values, colour: str, *, holds: bool = False
) -> Series:
    """The area between two lines, shape [n] each; it has a gap where they are NaN."""
    return _series("band", label, x, {"low": low, "high": high}, colour) | {"holds": holds}


def bars(label: str, edges: Values, heights: Values, colour: str) -> Series:
    """Bars of a histogram: edges of shape [n + 1] and heights of shape [n]."""
    return _series("bars", label, edges[:-1], {"to": edges[1:], "y": heights}, colour)


def stacked(label: str, heights: Values, base: Values, colour: str) -> Series:
    """Bars on others, around the places 0, 1, 2, ...: heights and lower ends, shape [n] each."""
    left: Values = np.arange(len(heights), dtype=np.float64) - 0.3
    return _series("bars", label, left, {"to": left + 0.6, "y": heights, "base": base}, colour)


def _series(kind: str, label: str, x: Places, columns: dict[str, Values], colour: str) -> Series:
    count = len(next(iter(columns.values())))
    kept = np.unique(np.linspace(0, count - 1, min(count, MOST_POINTS)).round().astype(int))
    places = (
        {name: column_of(own[kept], 6) for name, own in x.items()}
        if isinstance(x, Mapping)
        else column_of(x[kept], 4)
    )
    return {
        "kind": kind,
        "label": label,
        "colour": colour,
        "x": places,
        **{name: column_of(column[kept], 4) for name, column in columns.items()},
    }
