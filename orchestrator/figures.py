"""The paper's figures, drawn: a comparison of paradigms over one quantity, and timelines."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from orchestrator.report import STEP_COLOURS
from testbed.paradigm import paradigm
from testbed.timeline import STEPS, Timeline

STYLES = {
    "cpsfl": ("#d55e00", "-", "o"),
    "cpsfl-no-at": ("#d55e00", "--", "v"),
    "cpsfl-no-ps": ("#d55e00", ":", "s"),
    "pipesfl": ("#0072b2", "-", "o"),
    "pipesfl-no-at": ("#0072b2", "--", "v"),
    "pipesfl-no-ps": ("#0072b2", ":", "s"),
    "sfl-pp": ("#009e73", "-", "D"),
}
"""Colour, line and marker of each paradigm; colours tell apart under colour blindness."""


def comparison(table: pd.DataFrame, x_label: str) -> Figure:
    """Average per-round latency over x, a line a paradigm.

    Args:
        table: Columns x, paradigm, latency_s, latency_ci95_s (half the interval's width).
        x_label: The quantity on the x axis.
    """
    figure = Figure(figsize=(5.2, 3.8), layout="constrained")
    axes = figure.add_subplot()
    for name, (colour, line, marker) in STYLES.items():
        rows = table[table["paradigm"] == name]
        if len(rows):
            axes.errorbar(
                rows["x"],
                rows["latency_s"],
                yerr=rows["latency_ci95_s"],
                label=paradigm(name).title,
                color=colour,
                linestyle=line,
                marker=marker,
                markersize=4,
                markerfacecolor="white",
                capsize=2,
            )
    axes.set_xlabel(x_label)
    axes.set_ylabel("Average per-round latency (s)")
    axes.set_xticks(sorted(table["x"].unique()))
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
    return figure


def timelines(timeline: Timeline) -> Figure:
    """Rounds above each other, a row a client, a colour a step."""
    rounds = list(timeline)
    figure = Figure(figsize=(7, 2.2 * len(rounds)), layout="constrained")
    longest_s = max(round_.latency_s for round_ in rounds)
    panels = figure.subplots(len(rounds), 1, sharex=True, squeeze=False)[:, 0]
    for axes, round_ in zip(panels, rounds, strict=True):
        for step, name in enumerate(STEPS):
            rows = round_.spans[round_.spans["step"] == step]
            axes.barh(
                rows["client"],
                rows["end_s"] - rows["start_s"],
                left=rows["start_s"] - round_.start_s,
                color=STEP_COLOURS[name],
                height=0.8,
            )
        axes.axvline(round_.latency_s, color="black", linewidth=0.8)
        axes.set_ylabel("Client")
        axes.set_yticks(range(1, int(round_.spans["client"].max()) + 1))
        axes.tick_params(axis="y", labelsize=6)
        axes.invert_yaxis()
        axes.set_title(f"{paradigm(round_.paradigm).title}: {round_.latency_s:.2f} s", fontsize=9)
    panels[-1].set_xlabel("Time (s)")
    panels[-1].set_xlim(0, 1.02 * longest_s)
    figure.legend(
        handles=[Patch(color=STEP_COLOURS[name], label=name) for name in STEPS],
        loc="outside lower center",
        ncols=len(STEPS),
        fontsize=7,
    )
    return figure
