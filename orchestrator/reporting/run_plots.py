# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Plots of a run for publication: one column wide, as PNG and as PDF with embedded fonts."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from orchestrator.analysis.learned import X_TITLES, Y_TITLES, curve_of
from orchestrator.records.reader import Run, read_run
from orchestrator.records.summary import link_rates
from orchestrator.reporting.formatting import milliseconds
from orchestrator.reporting.legend import STEP_COLOURS, part_title, style_of
from orchestrator.reporting.plots import WIDTH_IN, drawn_uavs, from_zero, uav_label, write_plot
from testbed.core.errors import InputError

RING_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")


def draw_run(run_dir: Path, out_dir: Path, round_: int | None = None) -> list[Path]:
    """Draw the plots gantt, rates, budget and learning of a run; returns the files' paths.

    Args:
        run_dir: Run directory.
        out_dir: Output directory, created if missing.
        round_: The round to show (default: the first).

    Raises:
        InputError: It is not a run directory, or the run has no such round.
    """
    run = read_run(run_dir)
    known = run.rounds["round"].tolist()
    if round_ is None:
        round_ = known[0] if known else 0
    elif round_ not in known:
        raise InputError(f"round: {run_dir} has no round {round_}")
    out_dir.mkdir(parents=True, exist_ok=True)
    written = []
    for name, draw in PLOTS.items():
        written += write_plot(out_dir / name, partial(draw, run, round_))
    return written


def _canvas(height_in: float, **grid: Any) -> tuple[Figure, Any]:
    figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
    return figure, figure.subplots(**grid)


def _extent(run: Run, round_: int) -> tuple[float, float]:
    """Start and end of a round, measured or else predicted."""
    rounds = run.rounds.set_index("round")
    for kind in ("measured", "predicted_wire", "predicted"):
        columns = [f"{kind}_start_s", f"{kind}_latency_s"]
        start_s, latency_s = rounds.loc[[round_], columns].to_numpy(float)[0]
        if np.isfinite(start_s):
            break
    return start_s, start_s + latency_s


def _gantt(run: Run, round_: int) -> Figure | None:
    """Predicted (pale, above) and measured steps of each UAV, from the start of the round.

    The UAVs are those of `drawn_uavs` for the measured round, or else for the predicted one.
    """
    kinds = [kind for kind in (run.prediction, "measured") if kind in run.tables]
    tables = {kind: run.tables[kind][run.tables[kind]["round"] == round_] for kind in kinds}
    tables = {kind: table for kind, table in tables.items() if len(table)}
    if not tables:
        return None
    best = [*tables.values()][-1]
    shown = drawn_uavs(best)
    figure, ax = _canvas(1.3 + 0.2 * len(shown))
    steps = set()
    for kind, table in tables.items():
        drawn = table[table["client"].isin(shown)]
        steps |= set(drawn["step"])
        rows = drawn["client"].map({client: row for row, client in enumerate(shown)})
        _bars(ax, drawn, rows, table["start_s"].min(), kind == "measured", len(tables) == 1)
        ax.axvline(
            table["end_s"].max() - table["start_s"].min(),
            color="black",
            linewidth=0.8,
            linestyle="-" if table is best else ":",
        )
    ax.set_yticks(range(len(shown)), [str(client) for client in shown])
    ax.set(
        ylim=(len(shown) - 0.4, -0.6),
        xlabel="Time since the start of the round (s)",
        ylabel=uav_label(len(shown), best["client"].nunique()),
    )
    ax.set_xlim(left=0)
    chips = [Patch(color=c, label=step) for step, c in STEP_COLOURS.items() if step in steps]
    compact = {"frameon": False, "handlelength": 0.9, "columnspacing": 0.9, "handletextpad": 0.4}
    figure.legend(handles=chips, loc="outside upper center", ncols=7, **compact)
    ends: list[Artist] = [Line2D([], [], color="black", linewidth=0.8, label="end of the round")]
    if len(tables) > 1:
        ends = [
            Patch(color="#555555", label="measured"),
            Patch(color="#555555", alpha=_PALE, linewidth=0, label="predicted"),
            *ends,
            Line2D([], [], color="black", linewidth=0.8, linestyle=":", label="predicted end"),
        ]
    figure.legend(handles=ends, loc="outside lower center", ncols=4, **compact)
    return figure


_PALE = 0.55
"""Opacity of predicted steps next to measured ones."""


def _bars(
    ax: Axes, table: pd.DataFrame, rows: pd.Series, start_s: float, measured: bool, alone: bool
) -> None:
    height, offset = (0.6, 0.0) if alone else (0.4, 0.14) if measured else (0.26, -0.24)
    ax.barh(
        rows + offset,
        table["end_s"] - table["start_s"],
        left=table["start_s"] - start_s,
        height=height,
        color=[STEP_COLOURS[step] for step in table["step"]],
        alpha=1.0 if measured or alone else _PALE,
        linewidth=0,
    )


def _rates(run: Run, round_: int) -> Figure | None:
    """Rates of the links during the round, one line per UAV in its ring's colour."""
    if "rates" not in run.tables or round_ not in set(run.rounds["round"]):
        return None
    start_s, end_s = _extent(run, round_)
    slot_s = run.scenario.slot_s
    time_s = run.tables["rates"]["time_s"]
    table = link_rates(run)[(time_s > start_s - slot_s) & (time_s < end_s)]
    if table.empty:
        return None
    rings = run.scenario.uavs.rings_m
    figure, panels = _canvas(2.4, nrows=2, sharex=True)
    for ax, name in zip(panels, ("uplink", "downlink"), strict=True):
        for client, own in table.sort_values("slot").groupby("client"):
            ring = rings.index(run.scenario.uavs.ring_m[int(str(client)) - 1])
            edges_s = [*(own["time_s"] - start_s), own["time_s"].iloc[-1] + slot_s - start_s]
            ax.stairs(
                own[f"{name}_bps"] / 1e6,
                edges_s,
                baseline=None,
                color=RING_COLOURS[ring % len(RING_COLOURS)],
            )
        ax.set_ylabel(f"{name.capitalize()} (Mb/s)")
        from_zero(ax)
    figure.align_ylabels(panels)
    panels[-1].set(xlabel="Time since the start of the round (s)", xlim=(0, end_s - start_s))
    present = sorted({rings.index(ring) for ring in run.scenario.uavs.ring_m})
    chips = [
        Patch(color=RING_COLOURS[i % len(RING_COLOURS)], label=f"{rings[i][0]:g}–{rings[i][1]:g} m")
        for i in present
    ]
    figure.legend(handles=chips, loc="outside upper center", ncols=3, frameon=False)
    return figure


def _budget(run: Run, round_: int) -> Figure | None:
    """From the latency predicted for the payload to the measured one, by part of the budget.

    Parts without any effect are omitted.
    """
    if "budget" not in run.tables:
        return None
    table, rounds = run.tables["budget"], run.rounds.set_index("round")
    sums = table[table["round"] == round_].groupby("part")["seconds"].sum()
    if sums.empty or round_ not in rounds.index:
        return None
    latencies = ["predicted_latency_s", "measured_latency_s"]
    predicted_s, measured_s = rounds.loc[[round_], latencies].to_numpy(float)[0]
    if not np.isfinite([predicted_s, measured_s]).all():
        return None
    parts = [part for part in run.parts if abs(sums.get(part, 0.0)) >= LEAST_PART_S]
    ms = 1e3 * np.array([float(sums[part]) for part in parts])
    before = np.concatenate(([0.0], np.cumsum(ms)))[:-1]
    total_ms = 1e3 * (measured_s - predicted_s)
    figure, ax = _canvas(0.8 + 0.19 * (len(parts) + 1))
    rows = range(len(parts))
    ax.barh(rows, ms, left=before, color=["#d55e00" if x >= 0 else "#0072b2" for x in ms])
    ax.barh(len(parts), total_ms, color="#6b7280")
    labels = [milliseconds(x / 1e3) for x in (*ms, total_ms)]
    ends = [*np.maximum(before, before + ms), max(total_ms, 0.0)]
    for row, (end, label) in enumerate(zip(ends, labels, strict=True)):
        ax.annotate(label, (end, row), (3, 0), textcoords="offset points", va="center", fontsize=7)
    ax.set_yticks([*rows, len(parts)], [*map(part_title, parts), "measured"])
    ax.set(
        ylim=(len(parts) + 0.5, -0.5),
        xlabel=f"Difference from the predicted {predicted_s:.3f} s (ms)",
    )
    ax.axvline(0, color="black", linewidth=0.6)
    low, high = ax.get_xlim()
    ax.set_xlim(low, high + 0.22 * (high - low))
    return figure


LEAST_PART_S = 5e-7
"""Parts of the error budget that are smaller are not drawn, s."""


def _learning(run: Run, round_: int) -> Figure | None:
    """Accuracy and loss of the global model on held-out data over emulated time."""
    learned = run.tables.get("learning")
    curve = None if learned is None else curve_of(learned, run.measured)
    if curve is None or curve.empty:
        return None
    colour = style_of(run.scenario.paradigm).colour
    figure, panels = _canvas(3.2, nrows=2, sharex=True)
    for ax, (y, scale) in zip(panels, (("accuracy", 100), ("loss", 1)), strict=True):
        ax.plot(
            curve["time_s"],
            scale * curve[y],
            color=colour,
            drawstyle="steps-post",
            marker="o",
            markersize=3.2,
            clip_on=False,
        )
        ax.set(ylabel=Y_TITLES[y])
        from_zero(ax)
        ax.grid(alpha=0.3)
    panels[-1].set(xlabel=X_TITLES["time_s"])
    panels[-1].set_xlim(left=0)
    return figure


PLOTS: dict[str, Callable[[Run, int], Figure | None]] = {
    "gantt": _gantt,
    "rates": _rates,
    "budget": _budget,
    "learning": _learning,
}
