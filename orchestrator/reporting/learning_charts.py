# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Charts of learning curves on pages: held-out measures over time, rounds, energy or bytes.

Each marker is an evaluation: the mean over the seeds that were evaluated after the same round. A
value holds until the next evaluation. Bands reach from the least to the largest value of any seed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from orchestrator.analysis.learned import ALIKE, X_TITLES, Y_TITLES, Group, band, coinciding
from orchestrator.reporting import xy
from orchestrator.reporting.formatting import equal_curves
from orchestrator.reporting.legend import DASHES, Style

UNITS = {"bytes": ("Payload of all transfers (MB)", 1e-6)}
"""By quantity of a horizontal axis: title and factor, where they are not those of `X_TITLES`."""


def learning_chart(
    groups: Sequence[Group],
    styles: Sequence[Style],
    y: str,
    over: Sequence[str] = tuple(X_TITLES),
    training: Mapping[str, tuple[pd.DataFrame, Style]] | None = None,
) -> dict[str, Any] | None:
    """A chart of a measure; None if there is nothing to draw.

    Args:
        groups: Groups of results with curves.
        styles: Styles of the groups.
        y: One of `MEASURES`.
        over: Quantities of the horizontal axis among which the reader chooses.
        training: By name: means of training batches, with columns `y` and those of `over` that are
            known; and their style.
    """
    scale, series = (100 if y == "accuracy" else 1), []
    for name, (table, style) in (training or {}).items():
        if y in table:
            series.append(
                xy.line(
                    name,
                    {x: _factor(x) * table[x].to_numpy(float) for x in over if x in table},
                    scale * table[y].to_numpy(float),
                    style.colour,
                    dash="2 3",
                    width=1.3,
                )
            )
    held_out = []
    for group, style in zip(groups, styles, strict=True):
        curves = list(group.curves.values())
        bands = {x: band(curves, x, y) for x in over}
        places = {x: _factor(x) * own["x"] for x, own in bands.items()}
        of = bands[over[0]]
        if not len(of["x"]):
            continue
        name, dash = group.name or "mean", DASHES[style.line]
        if len(curves) > 1:
            low, high = scale * of["low"], scale * of["high"]
            series.append(xy.band(name, places, low, high, style.colour, holds=True))
            for seed, curve in group.curves.items():
                own = {x: _factor(x) * curve[x].to_numpy(float) for x in over}
                values = scale * curve[y].to_numpy(float)
                series.append(
                    xy.line(
                        name,
                        own,
                        values,
                        style.colour,
                        width=1,
                        holds=True,
                        faint=True,
                        name=f"{name}, seed {seed}",
                    )
                )
        held_out.append(
            xy.line(
                name,
                places,
                scale * of["mean"],
                style.colour,
                dash=dash,
                width=2.4,
                marker=style.marker,
                holds=True,
            )
        )
    if not series and not held_out:
        return None
    return xy.chart(
        f"{Y_TITLES[y] if held_out else y.capitalize()} of {len(groups) or len(series)} curves",
        {x: UNITS[x][0] if x in UNITS else X_TITLES[x] for x in over},
        Y_TITLES[y] if held_out else f"Training {y}{' (%)' * (y == 'accuracy')}",
        [*series, *held_out],
        notes={x: equal_curves(coinciding(groups, x, y), ALIKE) for x in over},
        from_zero=True,
        digits=(3, 2 if y == "accuracy" else 4),
    )


def _factor(x: str) -> float:
    return UNITS[x][1] if x in UNITS else 1.0
