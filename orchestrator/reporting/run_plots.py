# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Plots of a run for publication: one column wide, as PNG and as PDF with embedded fonts."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from orchestrator.analysis.learned import X_TITLES, curve_of
from orchestrator.records.reader import Run, read_run
from orchestrator.records.summary import link_rates
from orchestrator.reporting.formatting import milliseconds
from orchestrator.reporting.learning_plots import Y_TITLES
from orchestrator.reporting.legend import STEP_COLOURS
from orchestrator.reporting.plots import WIDTH_IN, write_plot
from testbed.core.errors import InputError

MOST_UAVS = 12
"""Most UAVs in the Gantt chart; the first ones are shown."""

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
    """Predicted (pale, above) and measured steps of each UAV, from the start of the round."""
    kinds = [kind for kind in (run.prediction, "measured") if kind in run.tables]
    tables = {kind: _first_uavs(run.tables[kind], round_) for kind in kinds}
    tables = {kind: table for kind, table in tables.items() if len(table)}
    if not tables:
        return None
    clients = sorted({client for table in tables.values() for client in table["client"]})
    figure, ax = _canvas(0.95 + 0.2 * len(clients))
    for kind, table in tables.items():
        _bars(ax, table, measured=kind == "measured", alone=len(tables) == 1)
    ax.set_yticks(clients, [str(client) for client in clients])
    ax.set(
        ylim=(clients[-1] + 0.6, clients[0] - 0.6),
        xlabel="Time since the round began (s)",
        ylabel="UAV",
    )
    ax.set_xlim(left=0)
    used = {step for table in tables.values() for step in table["step"]}
    chips = [Patch(color=c, label=step) for step, c in STEP_COLOURS.items() if step in used]
    figure.legend(
        handles=chips, loc="outside upper center", ncols=7, frameon=False, handlelength=0.8,
        columnspacing=0.9, handletextpad=0.4,
    )  # fmt: skip
    return figure


def _first_uavs(table: pd.DataFrame, round_: int) -> pd.DataFrame:
    return table[(table["round"] == round_) & (table["client"] <= MOST_UAVS)]


def _bars(ax: Axes, table: pd.DataFrame, measured: bool, alone: bool) -> None:
    start_s = table["start_s"].min()
    height, offset = (0.6, 0.0) if alone else (0.4, 0.14) if measured else (0.26, -0.24)
    ax.barh(
        table["client"] + offset,
        table["end_s"] - table["start_s"],
        left=table["start_s"] - start_s,
        height=height,
        color=[STEP_COLOURS[step] for step in table["step"]],
        alpha=1.0 if measured or alone else 0.55,
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
    figure.align_ylabels(panels)
    cut = any(ax.get_ylim()[0] > 0 for ax in panels)
    panels[-1].set(
        xlabel="Time since the round began (s)" + "; rates do not start at 0" * cut,
        xlim=(0, end_s - start_s),
    )
    present = sorted({rings.index(ring) for ring in run.scenario.uavs.ring_m})
    chips = [
        Patch(color=RING_COLOURS[i % len(RING_COLOURS)], label=f"{rings[i][0]:g}–{rings[i][1]:g} m")
        for i in present
    ]
    figure.legend(handles=chips, loc="outside upper center", ncols=3, frameon=False)
    return figure


def _budget(run: Run, round_: int) -> Figure | None:
    """From the latency predicted for the payload to the measured one, by part of the budget."""
    if "budget" not in run.tables:
        return None
    table, rounds = run.tables["budget"], run.rounds.set_index("round")
    parts = table[table["round"] == round_].groupby("part")["seconds"].sum()
    if parts.empty or round_ not in rounds.index:
        return None
    latencies = ["predicted_latency_s", "measured_latency_s"]
    totals = rounds.loc[[round_], latencies].to_numpy(float)[0]
    seconds = np.array([float(parts.get(part, 0.0)) for part in run.parts])
    if not np.isfinite(totals).all():
        return None
    before = totals[0] + np.concatenate(([0.0], np.cumsum(seconds)[:-1]))
    heights = np.concatenate((totals, before + seconds))
    spread = max(float(np.ptp(heights)), 1e-3)
    floor = heights.min() - 0.3 * spread
    figure, ax = _canvas(2.0)
    x = np.arange(1, len(run.parts) + 1)
    ends = [0, len(run.parts) + 1]
    ax.bar(ends, totals - floor, bottom=floor, width=0.62, color="#6b7280")
    colours = ["#d55e00" if value >= 0 else "#0072b2" for value in seconds]
    ax.bar(x, seconds, bottom=before, width=0.62, color=colours)
    labels = [f"{total:.3f}" for total in totals]
    tops = [*zip(ends, totals, labels, strict=True)]
    for place, low, value in zip(x, before, seconds, strict=True):
        tops.append((int(place), max(low, low + value), milliseconds(value).removesuffix(" ms")))
    for end, top, label in tops:
        ax.annotate(label, (end, top), (0, 2), textcoords="offset points", ha="center", fontsize=6)
    ax.set_xticks([ends[0], *x, ends[1]], ["predicted", *run.parts, "measured"], fontsize=6)
    ax.set(
        xlabel="Latencies in s, parts in ms; the axis does not start at 0",
        ylabel="Latency (s)",
        ylim=(floor, heights.max() + 0.18 * spread),
    )
    ax.ticklabel_format(axis="y", useOffset=False)
    return figure


def _learning(run: Run, round_: int) -> Figure | None:
    """Accuracy and loss of the global model on held-out data over emulated time."""
    learned = run.tables.get("learning")
    curve = None if learned is None else curve_of(learned, run.measured)
    if curve is None or curve.empty:
        return None
    figure, panels = _canvas(3.2, nrows=2, sharex=True)
    for ax, (y, scale) in zip(panels, (("accuracy", 100), ("loss", 1)), strict=True):
        ax.plot(curve["time_s"], scale * curve[y], marker="o", markersize=3.2)
        ax.set(ylabel=Y_TITLES[y])
        ax.set_ylim(bottom=0)
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
