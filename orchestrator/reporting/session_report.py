# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The report of a session: a verdict, the capacity and load of each link, and all checks."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from orchestrator.emulated.validity import remedies
from orchestrator.records.session_reader import read_session
from orchestrator.reporting.cells import CELL_COLOURS, cells_sentence
from orchestrator.reporting.index import save_page
from orchestrator.reporting.outcome import (
    check_title,
    clock_sentence,
    end_of,
    ends_sentence,
    failed_first,
    validity_sentence,
)
from orchestrator.reporting.pages import render_page
from orchestrator.scenario.schema import Scenario
from orchestrator.scenario.yaml_text import dump

WIDTH, HEIGHT = 560, 110
"""Size of a chart in SVG units."""
MOST_POINTS = 400
"""Most points of a curve; more slots are merged into means."""
SHOWN = (
    *("status", "valid", "downlink", "failure", "programs", "validity", "calibration", "notes"),
    *("testbed_version", "revision", "dirty", "source_sha256", "started", "finished", "seed"),
    *(
        "dilation",
        "runtime",
        "congestion_control",
        "mtu",
        "kernel",
        "cpu",
        "cores",
        "python",
        "command",
    ),
)
"""Entries of the manifest that the page shows."""
DIRECTIONS = {"up": "Uplink", "down": "Downlink"}
Array = npt.NDArray[np.float64]


def write_session_report(folder: Path) -> Path:
    """Write `report.html` into a session's folder atomically; returns its path.

    Raises:
        InputError: It is not the folder of a session that has ended.
    """
    session = read_session(folder)
    page = render(
        session.manifest, session.scenario, session.table, session.cells, session.handovers
    )
    path = folder / "report.html"
    save_page(path, page)
    return path


def render(
    manifest: dict[str, Any],
    scenario: Scenario,
    table: pd.DataFrame,
    cells: pd.DataFrame | None = None,
    handovers: pd.DataFrame | None = None,
) -> str:
    """The report of a session as HTML.

    Args:
        manifest: Its manifest.
        scenario: Its scenario.
        table: Its `session.parquet`.
        cells: Its `cells.parquet`; None: there is one cell.
        handovers: Its `handovers.parquet`.
    """
    seconds = len(table["slot"].unique()) * scenario.slot_s
    known = dict.fromkeys(SHOWN) | manifest
    programs = known["programs"] or []
    clock, dilation = scenario.emulation.clock, known["dilation"] or 1.0
    real_s = f" ({seconds * dilation:.1f} s of real time)" if dilation != 1 else ""
    lead = [
        f"The session failed: {str(known['failure']).rstrip('.')}."
        if known["failure"]
        else validity_sentence("session", known["valid"], known["validity"]),
        f"It lasted {seconds:.1f} s of emulated time{real_s}.",
        ends_sentence(programs),
    ]
    return render_page(
        "session.html",
        ("charts", "frame", "tables", "plain"),
        {},
        name=scenario.name,
        manifest=known,
        environment=known,
        lead=" ".join(filter(None, lead)),
        clock=clock_sentence(clock, dilation),
        dilation=dilation,
        programs=programs,
        end_of=end_of,
        slot_s=scenario.slot_s,
        seconds=seconds,
        cells="" if cells is None else cells_sentence(cells, handovers),
        cell_charts=[] if cells is None else list(_cell_charts(cells, handovers, seconds)),
        charts=list(_charts(table, scenario.slot_s)),
        size=(WIDTH, HEIGHT),
        cell_colours=CELL_COLOURS,
        is_ns3=scenario.emulation.air == "ns3",
        uncalibrated=scenario.emulation.uncalibrated,
        check_title=check_title,
        checks=failed_first(known["validity"]),
        remedies=remedies(known["validity"], dilation, clock, "session"),
        scenario_text=dump(scenario.model_dump(mode="json"), flow=True),
    )


def _charts(table: pd.DataFrame, slot_s: float) -> list[dict[str, Any]]:
    found = []
    for (client, direction), rows in table.groupby(["client", "direction"], sort=True):
        rows = rows.sort_values("slot")
        could, did = (
            _merged(rows[f"{name}_bytes"].to_numpy(float) * 8 / slot_s / 1e6)
            for name in ("offered", "carried")
        )
        top = max(could.max(), did.max(), 1e-9)
        offered, carried = (int(rows[f"{name}_bytes"].sum()) for name in ("offered", "carried"))
        found.append(
            {
                "title": f"{DIRECTIONS[str(direction)]} of UAV {client}",
                "band": f"0,{HEIGHT} {_points(could, top)} {WIDTH},{HEIGHT}",
                "line": _points(did, top),
                "top_mbps": top,
                "offered": offered,
                "carried": carried,
                "most_queued": int(rows["queued_bytes"].max()),
            }
        )
    return sorted(found, key=lambda chart: chart["title"].startswith("Downlink"))


def _cell_charts(
    cells: pd.DataFrame, handovers: pd.DataFrame | None, seconds: float
) -> Iterator[dict[str, Any]]:
    """A chart per UAV: its SINR, its serving cells as bands, and its handovers."""
    known_db = cells["sinr_db"].dropna()
    low_db, high_db = (known_db.min(), known_db.max()) if len(known_db) else (0.0, 0.0)
    span_db = max(high_db - low_db, 1.0)
    moves = pd.DataFrame(columns=["client", "start_s"]) if handovers is None else handovers
    for client, rows in cells.sort_values("slot").groupby("client"):
        cell, time_s = rows["cell"].to_numpy(), rows["time_s"].to_numpy(float)
        begins = np.flatnonzero(np.diff(cell, prepend=-1))
        edges_s = np.append(time_s[begins], seconds) * WIDTH / max(seconds, 1e-9)
        yield {
            "title": f"UAV {client}",
            "low_db": low_db,
            "high_db": high_db,
            "bands": [
                (float(since), float(until - since), int(cell[at]))
                for since, until, at in zip(edges_s, edges_s[1:], begins, strict=False)
            ],
            "line": _points(_merged(rows["sinr_db"].to_numpy(float)) - low_db, span_db),
            "handovers": [
                f"{at_s:.2f} s" for at_s in moves.loc[moves["client"] == client, "start_s"]
            ],
        }


def _merged(values: Array) -> Array:
    each = -(-len(values) // MOST_POINTS)
    padded = np.pad(values, (0, -len(values) % each), constant_values=np.nan)
    merged: Array = np.nanmean(padded.reshape(-1, each), axis=1)
    return merged


def _points(values: Array, top: float) -> str:
    x = np.linspace(0, WIDTH, max(2, len(values)))
    y = HEIGHT * (1 - np.resize(values, len(x)) / top)
    known = np.isfinite(y)
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x[known], y[known], strict=True))
