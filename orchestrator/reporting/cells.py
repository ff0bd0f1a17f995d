# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a report says and draws of several cells: serving cell, SINR and handovers over time.

The sources are two tables. `cells` has a row per slot and client: slot, time_s, client, cell (0 is
the base station) and sinr_db, the signal-to-interference-plus-noise ratio of the downlink.
`handovers` has a row per handover: client, start_s, end_s, from_cell, to_cell, interruption_ms.
"""

from typing import Any

import pandas as pd

CELL_COLOURS = (
    *("#5fb0d8", "#f2c14e", "#7fb77e", "#c98bb9", "#f07b3f", "#9a9a9a", "#3a63c8", "#c2213a"),
)
"""Colours of cells by their number, again and again."""
MOST_ROWS = 60_000
"""Most points that are drawn one by one; more slots are merged."""


def cells_chart(
    cells: pd.DataFrame | None, handovers: pd.DataFrame | None, slot_s: float
) -> dict[str, Any] | None:
    """Points by client, and the handovers; None without the table of cells.

    A point has its time, the cell at its first slot, and the mean SINR of its slots in dB, None if
    nothing was received. Too many slots are merged, `slots_a_point` at a time.

    Args:
        cells: The table `cells`.
        handovers: The table `handovers`; None: there are none.
        slot_s: Length of a slot, in seconds.
    """
    if cells is None:
        return None
    merged = -(-len(cells) // MOST_ROWS)
    table = cells.sort_values(["client", "slot"])
    rows = table.assign(slot=table["slot"] // merged).groupby(["client", "slot"])
    points = rows.agg({"cell": "first", "sinr_db": "mean"}).reset_index()
    points["time_s"] = (points["slot"] * merged * slot_s).round(6)
    by_client = {
        client: {
            "time_s": own["time_s"].tolist(),
            "cell": own["cell"].tolist(),
            "sinr_db": [None if pd.isna(db) else round(db, 2) for db in own["sinr_db"]],
        }
        for client, own in points.groupby("client")
    }
    known_db = points["sinr_db"].dropna()
    return {
        "slots_a_point": merged,
        "slot_s": slot_s,
        "cells": sorted(table["cell"].unique().tolist()),
        "colours": CELL_COLOURS,
        "low_db": float(known_db.min()) if len(known_db) else 0.0,
        "high_db": float(known_db.max()) if len(known_db) else 0.0,
        "clients": by_client,
        "handovers": [] if handovers is None else _records(handovers),
    }


def cells_sentence(cells: pd.DataFrame, handovers: pd.DataFrame | None) -> str:
    """How many cells serve UAVs, how often UAVs change them, and for how long packets wait then.

    Args:
        cells: The table `cells`.
        handovers: The table `handovers`; None: there are none.
    """
    serving = cells["cell"].nunique()
    said = [f"{serving} cell{'s' * (serving > 1)} serve{'s' * (serving == 1)} the UAVs."]
    count = 0 if handovers is None else len(handovers)
    if handovers is None or not count:
        said.append("No UAV changes its cell.")
    else:
        known = handovers["interruption_ms"].dropna()
        waits = ""
        if len(known):
            waits = (
                f"; packets are then interrupted for {known.median():.3g} ms (median), at most "
                f"{known.max():.3g} ms"
            )
        what = "is 1 handover" if count == 1 else f"are {count} handovers"
        said.append(f"There {what}{waits}.")
    mean_db = cells.groupby("client")["sinr_db"].mean().dropna().sort_values()
    if len(mean_db):
        low, high = mean_db.index[0], mean_db.index[-1]
        said.append(
            f"The mean SINR of the downlink is {mean_db[low]:.1f} dB (UAV {low}) to "
            f"{mean_db[high]:.1f} dB (UAV {high})."
        )
    return " ".join(said)


def _records(table: pd.DataFrame) -> list[Any]:
    """Rows as objects; NaN becomes None."""
    return table.astype(object).where(table.notna(), None).to_dict("records")
