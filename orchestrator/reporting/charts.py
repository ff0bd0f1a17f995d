# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Data for the charts in a run's report, as JSON values.

Times of steps are rounded to 10 ns, rates to a kbit/s, positions to a decimetre.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from orchestrator.records.reader import KINDS, Run
from orchestrator.records.summary import lateness, link_rates
from orchestrator.reporting.cell import cell_chart, grants_chart
from orchestrator.reporting.cells import cells_chart
from orchestrator.reporting.legend import (
    DASHES,
    IMPAIRMENT_PARTS,
    STEP_COLOURS,
    STEP_TITLES,
    Style,
    part_title,
)
from testbed.core.paradigm import keeps_step, title_of
from testbed.core.timeline import STEPS, Timeline
from workloads.models.language import is_language

# Limits of the data in a page, so that the report of a long run opens as fast as a short one's.
MAX_SPANS = 60_000
"""Most steps per kind of timeline: enough for 100 UAVs and 20 rounds of 3 iterations."""
MAX_RATE_POINTS = 240_000
"""Most points of rates, over all UAVs and both directions."""
MAX_PATH_POINTS_EACH = 600
MAX_GANTT_SPANS = 30_000
"""Most steps of a timeline among several on a page; the first rounds are kept."""


Curves = list[dict[str, Any]]
"""Each has `label`, `time_s`, one list for each column of its chart, and `clients`: the curves of
single UAVs, with `client`, `time_s` and the columns."""


@dataclass(frozen=True)
class TimeChart:
    """A section of the report that draws curves over emulated time, one chart for each column."""

    title: str
    note: str
    """A paragraph above the charts that explains the curves."""
    columns: dict[str, str]
    """The title of the chart of each column, by the name of the column."""
    curves: Callable[[Run], Curves | None]
    """The curves of a run; None where it has none, and the section is left out."""
    remark: Callable[[Run], str] = lambda run: ""
    """What follows the note for a run."""


def chart_data(run: Run) -> dict[str, Any]:
    """All data for the scripts' charts."""
    scenario = run.scenario
    return {
        "uavs": scenario.uavs.count,
        "rings_m": scenario.uavs.rings_m,
        "ring": [scenario.uavs.rings_m.index(ring) for ring in scenario.uavs.ring_m],
        "base_station_m": scenario.base_station.position_m,
        "slot_s": scenario.slot_s,
        "steps": steps_of(),
        "rounds": [
            {
                "round": int(row["round"]),
                "start_s": {kind: _number(row[f"{kind}_start_s"], 9) for kind in KINDS},
                "latency_s": {kind: _number(row[f"{kind}_latency_s"], 9) for kind in KINDS},
            }
            for row in run.rounds.to_dict("records")
        ],
        "spans": {kind: spans_of(run.tables[kind]) for kind in KINDS if kind in run.tables},
        "lost": records(run.tables["lost"]) if "lost" in run.tables else [],
        "rates": _rates(run),
        "cell": cell_chart(run),
        "grants": grants_chart(run),
        "cells": cells_chart(
            run.tables.get("cells"), run.tables.get("handovers"), run.scenario.slot_s
        ),
        "lost_frames": _lost_frames(run),
        "paths": _paths(run),
        "budget": budget_rows(run),
        "injector": _histogram(run),
        "over_time": {
            name: {
                "title": chart.title,
                "note": chart.note + chart.remark(run),
                "columns": chart.columns,
                "curves": curves,
            }
            for name, chart in TIME_CHARTS.items()
            if (curves := chart.curves(run)) is not None
        },
    }


def steps_of() -> list[dict[str, str]]:
    """The steps of a round in order: name, title, colour."""
    return [
        {"name": step, "title": STEP_TITLES[step], "colour": STEP_COLOURS[step]} for step in STEPS
    ]


def _number(value: Any, digits: int) -> float | None:
    return round(float(value), digits) if np.isfinite(value) else None


def column_of(values: Any, digits: int) -> list[float | None]:
    """A column as JSON values: rounded, null for values that are not finite."""
    array = np.round(np.asarray(values, float), digits)
    if digits == 0:
        return [int(value) if np.isfinite(value) else None for value in array]
    return [value if np.isfinite(value) else None for value in array.tolist()]


def spans_of(table: pd.DataFrame, most: int | None = None) -> dict[str, Any]:
    """The first steps by round and client, as columns, and the total number of steps.

    Only whole clients are included, at most `most` steps (default: `MAX_SPANS`). Clients are in
    ascending order, and the steps of each by start.
    """
    ordered = table.sort_values(["round", "client", "start_s"], kind="stable")
    kept = len(ordered)
    most = MAX_SPANS if most is None else most
    if kept > most:
        group = ordered[["round", "client"]].to_numpy()
        kept = most
        while kept and (group[kept] == group[kept - 1]).all():
            kept -= 1
    part = ordered.head(kept)
    code = {step: index for index, step in enumerate(STEPS)}
    return {
        "round": part["round"].tolist(),
        "client": part["client"].tolist(),
        "iteration": part["iteration"].tolist(),
        "step": [code[step] for step in part["step"]],
        "start_s": column_of(part["start_s"], 8),
        "end_s": column_of(part["end_s"], 8),
        "bytes": part["bytes"].tolist(),
        "total": len(ordered),
    }


def gantt_of(
    label: str, style: Style, timeline: Timeline, predicted_s: Mapping[int, float] | None = None
) -> dict[str, Any]:
    """The rounds of a timeline for `templates/gantts.js`; its steps begin with their round.

    Args:
        label: Name of the timeline.
        style: Its style.
        timeline: The rounds.
        predicted_s: Predicted latency by index of a round.
    """
    rounds = list(timeline)
    frame = timeline.frame()
    frame["step"] = frame["step"].astype(str)
    begins = {round_.index: round_.start_s for round_ in rounds}
    for column in ("start_s", "end_s"):
        frame[column] -= frame["round"].map(begins)
    known = predicted_s or {}
    return {
        "label": label,
        "colour": style.colour,
        "dash": DASHES[style.line],
        "rounds": [round_.index for round_ in rounds],
        "latency_s": column_of([round_.latency_s for round_ in rounds], 9),
        "predicted_s": column_of([known.get(r.index, np.nan) for r in rounds], 9),
        "spans": spans_of(frame, MAX_GANTT_SPANS),
    }


def _rates(run: Run) -> dict[str, Any] | None:
    """Rates by client in kbit/s; too many slots are merged into means."""
    if "rates" not in run.tables:
        return None
    table = link_rates(run).sort_values(["client", "slot"], kind="stable")
    clients = sorted(table["client"].unique())
    wide = {
        name: table.pivot(index="slot", columns="client", values=f"{name}_bps")[clients]
        for name in ("uplink", "downlink")
    }
    time_s = table.drop_duplicates("slot").set_index("slot").sort_index()["time_s"].to_numpy(float)
    limit = max(2, MAX_RATE_POINTS // (2 * len(clients)))
    merged = -(-len(time_s) // limit)
    edges = np.arange(0, len(time_s), merged)

    def means(array: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        known = np.isfinite(array)
        sums, sizes = (
            np.add.reduceat(each, edges, axis=0) for each in (np.where(known, array, 0), 1 * known)
        )
        with np.errstate(invalid="ignore"):
            result: npt.NDArray[np.float64] = sums / sizes
        return result

    kbps = {name: means(frame.to_numpy(float) / 1e3) for name, frame in wide.items()}
    return {
        "clients": [int(client) for client in clients],
        "time_s": column_of(time_s[edges], 6),
        "end_s": round(float(time_s[-1]) + run.scenario.slot_s, 6),
        "slots_a_point": merged,
        "uplink_kbps": [column_of(column, 0) for column in kbps["uplink"].T],
        "downlink_kbps": [column_of(column, 0) for column in kbps["downlink"].T],
    }


def _lost_frames(run: Run) -> dict[str, Any] | None:
    """Frames that channel impairments lost, one bar per client, direction and slot with a loss; too
    many slots are merged into sums."""
    if "air_slots" not in run.tables:
        return None
    table = run.tables["air_slots"]
    first = int(table["slot"].min())
    slots = int(table["slot"].max()) + 1 - first
    merged = -(-slots * 2 * run.scenario.uavs.count // MAX_RATE_POINTS)
    bar = ((table["slot"] - first) // merged).rename("bar")
    keys = [bar, table["client"], table["direction"]]
    sums = table["lost_frames"].groupby(keys, sort=False).sum()
    bars = sums[sums > 0].reset_index()
    return {
        "slots_a_bar": merged,
        "client": bars["client"].tolist(),
        "direction": bars["direction"].tolist(),
        "time_s": column_of((first + bars["bar"] * merged) * run.scenario.slot_s, 6),
        "frames": bars["lost_frames"].tolist(),
    }


def _end_s(run: Run) -> float:
    """End of the run in s: the latest end in any kind of timeline."""
    return max(
        (float(run.tables[kind]["end_s"].max()) for kind in KINDS if kind in run.tables),
        default=0.0,
    )


def _paths(run: Run) -> dict[str, Any] | None:
    """Horizontal positions over the run in m, at most `MAX_PATH_POINTS_EACH` per UAV."""
    if run.trace is None or run.trace.position_m is None:
        return None
    slots = min(run.trace.slots, int(np.ceil(_end_s(run) / run.trace.slot_s)) + 1)
    points = min(slots, MAX_PATH_POINTS_EACH)
    chosen = np.unique(np.linspace(0, slots - 1, points).round().astype(int))
    position = run.trace.position_m[:, chosen]
    return {
        "time_s": column_of(chosen * run.trace.slot_s, 6),
        "x_m": [column_of(row, 1) for row in position[..., 0]],
        "y_m": [column_of(row, 1) for row in position[..., 1]],
    }


def visible_parts(parts: pd.DataFrame) -> list[str]:
    """The columns of an error budget, without unused ones for channel impairments."""
    return [str(part) for part in parts if part not in IMPAIRMENT_PARTS or parts[part].any()]


def budget_rows(run: Run) -> list[dict[str, Any]] | None:
    """By round: the payload prediction, the parts, and the measured latency.

    Rounds without either latency are omitted; None if no round remains.
    """
    if "budget" not in run.tables:
        return None
    wide = run.tables["budget"].pivot_table(
        index="round", columns="part", values="seconds", aggfunc="sum"
    )
    wide = wide.reindex(columns=run.parts).fillna(0.0)
    shown = visible_parts(wide)
    columns = ["round", "predicted_latency_s", "measured_latency_s"]
    return [
        {
            "round": index,
            "predicted_s": _number(predicted_s, 9),
            "measured_s": _number(measured_s, 9),
            "parts": [
                {"key": part, "name": part_title(part), "seconds": _number(wide.at[index, part], 9)}
                for part in shown
            ],
        }
        for index, predicted_s, measured_s in run.rounds[columns].dropna().itertuples(index=False)
        if index in wide.index
    ] or None


def _histogram(run: Run) -> dict[str, Any] | None:
    """Histogram of lateness with ten bins per decade, over the decades that occur."""
    if "injector" not in run.tables:
        return None
    late = np.maximum(run.tables["injector"]["lateness_s"].to_numpy(float), 1e-7)
    low, high = np.floor(np.log10(late.min()) * 10), np.ceil(np.log10(late.max()) * 10)
    edges = 10 ** (np.arange(low, max(high, low + 1) + 1) / 10)
    edges[-1] = max(edges[-1], late.max())
    counts, _ = np.histogram(late, edges)
    return {"edges_s": edges.tolist(), "counts": counts.tolist(), "marks": lateness(run)}


def _learning(run: Run) -> Curves | None:
    """Curves of training (the mean over clients at each iteration, and each client's own) and of
    the global model on held-out data, where it was evaluated."""
    if "learning" not in run.tables:
        return None
    table = run.tables["learning"]
    if "paradigm" not in table:
        table = table.assign(paradigm=run.scenario.paradigm)
    curves: Curves = []
    held_out = table.iloc[:0]
    if "data" in table:
        held_out = table[table["data"] == "held-out"].sort_values("time_s")
        table = table[table["data"] == "train"]
    several = table["paradigm"].nunique() > 1
    for name, part in table.groupby("paradigm", sort=False):
        mean = training_curve(part, str(name))
        curves.append(
            {
                "label": f"training, {title_of(str(name))}" if several else "training",
                **{str(column): column_of(mean[column], 6) for column in mean},
                "clients": [
                    {
                        "client": int(str(client)),
                        **{
                            column: column_of(own[column], 6)
                            for column in ("time_s", "loss", "accuracy")
                        },
                    }
                    for client, own in part.sort_values("time_s").groupby(
                        part["client"].astype(int)
                    )
                ],
            }
        )
    if len(held_out):
        columns = {name: column_of(held_out[name], 6) for name in ("time_s", "loss", "accuracy")}
        curves.append({"label": "held-out", **columns, "clients": [], "holds": True})
    return curves


def _perplexity(run: Run) -> str:
    """The perplexity of a language model on held-out data at the end, in words."""
    table = run.tables["learning"]
    if not is_language(run.scenario.workload.model) or "data" not in table:
        return ""
    losses = table[table["data"] == "held-out"].sort_values("time_s")["loss"].astype(float)
    if not len(losses) or not np.isfinite(losses.iloc[-1]):
        return ""
    first, last = np.exp(losses.iloc[[0, -1]])
    change = f"from {first:.4g} to {last:.4g}"
    return f" On held-out data, the perplexity (the exponential of the loss) went {change}."


def training_curve(batches: pd.DataFrame, paradigm: str) -> pd.DataFrame:
    """Mean time_s, loss and accuracy over clients at each iteration, sorted by time.

    In asynchronous rounds clients are at different iterations; there, means are over as many
    consecutive batches as there are clients.

    Args:
        batches: Training values: client, round, iteration, time_s, loss, accuracy.
        paradigm: Paradigm of the rounds.
    """
    if keeps_step(paradigm):
        keys: Any = [name for name in ("round", "iteration") if name in batches]
    else:
        batches = batches.sort_values("time_s", kind="stable")
        keys = np.arange(len(batches)) // max(1, batches["client"].nunique())
    return batches.groupby(keys)[["time_s", "loss", "accuracy"]].mean().sort_values("time_s")


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """A table's rows as dicts."""
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


TIME_CHARTS = {
    "learning": TimeChart(
        "Learning",
        "Against emulated time; the thick line is the mean over UAVs (in asynchronous rounds, over "
        "as many batches in a row as there are UAVs), thin ones are each UAV's own.",
        {"loss": "Loss", "accuracy": "Accuracy"},
        _learning,
        _perplexity,
    ),
}
"""The sections of curves over emulated time, by their anchors, in the order of the page."""
