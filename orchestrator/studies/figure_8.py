# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Figure 8 and its table: comparison of policies in the paper's scenario with I = 5.

`campaigns/figure8.yaml` defines the policies. In addition to the paper's, these are the best static
allocation and the planner; there are also a lower bound over all allocations and the trade-off of
latency and energy for several λ. All policies use the same traces, seed by seed, so differences are
paired. All rounds are stored, and an interrupted campaign resumes. This module draws and tabulates
the results.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import stats

from orchestrator.analysis.statistics import half_width, varies
from orchestrator.campaigning.cluster import HERE, Progress, run_campaign
from orchestrator.campaigning.folder import CampaignFolder, distinct
from orchestrator.campaigning.spec import Campaign, Cell, cells, narrowed
from orchestrator.records.tables import read_own
from orchestrator.reporting import xy
from orchestrator.reporting.formatting import plus_minus
from orchestrator.reporting.legend import COLOURS, DASHES, STYLES
from orchestrator.reporting.plots import WIDTH_IN
from orchestrator.studies.reproduction import Finding, Reproduction, Section
from testbed.core.errors import InputError, RunError
from testbed.host.dask_cluster import Cluster
from testbed.system.files import write_csv

LAST = 1000
"""Number of last rounds that means are over, as in the paper."""
SPAN = 21
"""Number of rounds of the figure's moving average, as in the paper."""
PANELS = {
    "latency_s": "Latency of a round (s)",
    "max_energy_j": "Largest energy of a UAV (J)",
    "objective": "Objective",
}
"""By column of the figure's panels: the label of the vertical axis."""
TOLERANCE = 0.02
"""Relative tolerance for the paper's objectives: agents are trained again, with choices of ours."""


@dataclass(frozen=True)
class Entry:
    """A row of the table."""

    title: str
    paper: float | None = None
    """Objective in the paper."""
    note: str = ""
    """Remark on the number."""
    style: tuple[str, str] = ("#777777", "-")
    """Colour and line of the curve."""


OURS = "concentration {concentration:g} and logit_scale {logit_scale:g} are our choices"
FIXED_RA = "the paper's fixed CCRA (fixed RA): equal shares, the agent chooses u"

ENTRIES = {
    "equal": Entry(
        "Equal shares, u = 2",
        note="not in the paper; its 122.3 is for fixed RA, which equals this after the "
        "agent has converged to u = 2",
        style=("#777777", "-"),
    ),
    "fixed-ra": Entry("DRL, fixed shares", 122.3, FIXED_RA, ("#777777", ":")),
    "pipesfl": Entry("PipeSFL, DRL", None, OURS, (STYLES["pipesfl"][0], "-")),
    "drl-": Entry("DRL without trajectories", 108.6, OURS, (STYLES["cpsfl"][0], ":")),
    "fixed-u": Entry("DRL, u = 2", None, OURS, (STYLES["cpsfl"][0], "--")),
    "drl": Entry("DRL", 105.8, OURS, (STYLES["cpsfl"][0], "-")),
    "static": Entry("Best static", style=(COLOURS[0], "-")),
    "planner": Entry("Planner", style=(COLOURS[2], "-")),
}
"""By value of the campaign's axis `policy`."""


def run(
    out: Path,
    campaign: Campaign,
    *,
    entries: Sequence[str] = tuple(ENTRIES),
    seeds: Sequence[int] | None = None,
    rounds: int | None = None,
    weights: Sequence[float] | None = None,
    cluster: Cluster = HERE,
    progress: Progress = lambda done, total: None,
) -> pd.DataFrame:
    """Run or train everything, and write the table and plots.

    Writes `fig8.csv` (the table), `fig8_paired.csv`, `fig8_front.csv`, `fig8.png`, `fig8.pdf`,
    `fig8_front.png`, `fig8_front.pdf`, and, as other reproductions do, `report.html`,
    `summary.json` and `summary.md` into the campaign's directory.

    Args:
        out: The campaign's directory; finished points in it are kept.
        campaign: The campaign `campaigns/figure8.yaml`.
        entries: Names from `ENTRIES`.
        seeds: Seeds of channel and agents (default: the campaign's).
        rounds: Rounds per point (default: the campaign's). Means are over the last `LAST`.
        weights: Values of λ for the trade-off, with the first seed (default: the campaign's);
            empty: no trade-off.
        cluster: Workers.
        progress: Called with the number of finished points and of all points.

    Returns:
        The table; see `table`.

    Raises:
        InputError: There is no such entry, or `out` contains something else.
        RunError: A point failed, or all workers were lost.
    """
    for name in entries:
        if name not in ENTRIES:
            raise InputError(f"reproduce: {name!r} is not one of {', '.join(ENTRIES)}")
    chosen = narrowed(_chosen(campaign, entries, weights), seeds=seeds, rounds=rounds)
    folder = CampaignFolder(out)
    done = run_campaign(chosen, folder, cluster=cluster, progress=progress)
    for id_, why in done.failed.items():
        raise RunError(f"reproduce: point {id_}: {why}")
    played = Results(folder, cells(chosen))
    made = table(played)
    write_csv(out / "fig8.csv", made)
    write_csv(out / "fig8_paired.csv", paired(played))
    sections = [
        Section(
            "fig8",
            f"Figure 8: comparison of policies, mean of the last {LAST} rounds",
            list(_findings(played)),
            made,
            {"fig8": partial(over_rounds, played)},
            f"Moving averages over {SPAN} rounds with the first seed. Thin black lines are values "
            "in the paper.",
            _charts_over_rounds(played),
        )
    ]
    if played.front:
        front = _front(played)
        write_csv(out / "fig8_front.csv", front)
        title = "Trade-off: latency and energy for several λ (not in the paper)"
        figures = {"fig8_front": partial(front_figure, front)}
        charts = {"fig8_front": _front_chart(front)}
        sections.append(Section("fig8_front", title, [], front, figures, charts=charts))
    rounds_ = len(played.first(played.entries[0]))
    settings = f"{rounds_:,} rounds for each of {len(played.seeds)} channels"
    Reproduction(sections, settings).write(out)
    return made


def _findings(played: "Results") -> Iterator[Finding]:
    """Compare the paper's objectives with ours."""
    for name in played.entries:
        entry, means = ENTRIES[name], played.last_means(name)
        if entry.paper is None or means is None:
            continue
        values = means["objective"].to_numpy()
        deviation = float(values.mean()) / entry.paper - 1
        yield Finding(
            "fig8",
            f"objective of {entry.title}",
            f"{entry.paper:g}",
            f"{values.mean():.2f}{plus_minus(half_width(values))}",
            f"within {100 * TOLERANCE:g} % of it",
            abs(deviation) <= TOLERANCE,
            deviation,
            _with_settings(entry.note),
        )


def _chosen(
    campaign: Campaign, entries: Sequence[str], weights: Sequence[float] | None
) -> Campaign:
    """The campaign with only these values of its axes `policy` and `weight`."""
    studies = {}
    for name, study in campaign.studies.items():
        points = study.axes["policy"].points or {}
        kept: dict[Any, dict[str, Any]] = {e: points[e] for e in entries if e in points}
        axes = study.axes | {"policy": study.axes["policy"].model_copy(update={"points": kept})}
        if "weight" in axes and weights is not None:
            axes["weight"] = axes["weight"].model_copy(update={"values": list(weights)})
        if kept and all(axis.values != [] for axis in axes.values()):
            # The compared values may be missing in this part of the campaign.
            studies[name] = study.model_copy(update={"axes": axes, "compare": None})
    return campaign.model_copy(update={"studies": studies})


class Results:
    """The rounds of a campaign's points, by entry and seed."""

    def __init__(self, folder: CampaignFolder, placed: Sequence[Cell]):
        self._paths = folder.finished(distinct(placed).values())
        self._cells = {
            (str(cell.axes["policy"]), cell.seed): cell for cell in placed if cell.study == "fig8"
        }
        self.entries = list(dict.fromkeys(entry for entry, _ in self._cells))
        self.seeds = list(dict.fromkeys(seed for _, seed in self._cells))
        self.front = [cell for cell in placed if cell.study == "front"]

    def of(self, cell: Cell, name: str = "rounds") -> pd.DataFrame | None:
        """A table of a cell's point; None if the point does not have it."""
        file = self._paths[cell.point.id] / f"{name}.parquet"
        return read_own(file) if file.is_file() else None

    def rounds(self, cell: Cell) -> pd.DataFrame:
        """All rounds of a cell's point."""
        rounds = self.of(cell)
        assert rounds is not None
        return rounds

    def first(self, entry: str) -> pd.DataFrame:
        """The rounds of an entry with the first seed."""
        return self.rounds(self._cells[entry, self.seeds[0]])

    def last_means(self, entry: str, name: str = "rounds") -> pd.DataFrame | None:
        """Means over the last rounds, one row per seed; None if the entry has no such table."""
        tables = [self.of(self._cells[entry, seed], name) for seed in self.seeds]
        means = [t.iloc[-LAST:].mean(numeric_only=True) for t in tables if t is not None]
        return pd.DataFrame(means) if means else None


# --- tables --------------------------------------------------------------------------------------


def table(played: Results) -> pd.DataFrame:
    """One row per entry: means over seeds, half widths of 95 % intervals, the paper's values.

    An agent has two rows: its rounds during training, with sampled actions, as in the paper; and
    the rounds of the trained agent, with deterministic actions.
    """
    rows = []
    for name in played.entries:
        entry, means = ENTRIES[name], played.last_means(name)
        assert means is not None
        decided = played.last_means(name, "deterministic")
        note = _with_settings(entry.note)
        rows.append(_row(entry.title, means, paper=entry.paper, note=note))
        if decided is not None:
            rows.append(_row(f"{entry.title}, deterministic", decided, note="no exploration"))
        if "bound" in means:
            bound = pd.DataFrame({"objective": means["bound"]})
            rows.append(_row("Lower bound of the planner's rounds", bound))
    made = pd.DataFrame(rows)
    return made[[*made.columns.drop("note"), "note"]]


def _with_settings(note: str) -> str:
    if "{" not in note:
        return note
    from dataclasses import asdict

    from orchestrator.policies.agent import Settings  # torch takes seconds to import

    return note.format(**asdict(Settings()))


def _row(
    title: str, means: pd.DataFrame, paper: float | None = None, note: str = ""
) -> dict[str, Any]:
    row: dict[str, Any] = {"policy": title, "paper": paper}
    for column in ("objective", "latency_s", "max_energy_j"):
        if column in means:
            row[column] = means[column].mean()
            stem, _, unit = column.rpartition("_")
            name = f"{stem}_ci95_{unit}" if stem else f"{column}_ci95"
            row[name] = half_width(means[column].to_numpy())
    if "decision_s" in means:
        row["decision_s"] = means["decision_s"].mean()
    return row | {"seeds": len(means), "note": note}


def paired(played: Results) -> pd.DataFrame:
    """Gain of DRL over the others on the same traces: difference, 95 % interval, paired t-test."""
    rows = []
    drl = played.last_means("drl") if "drl" in played.entries else None
    if drl is not None:
        for name in played.entries:
            if name == "drl":
                continue
            other = played.last_means(name)
            assert other is not None
            for column in ("objective", "latency_s", "max_energy_j"):
                gain = (other[column] - drl[column]).to_numpy()
                p_value = stats.ttest_1samp(gain, 0.0).pvalue if varies(gain) else np.nan
                rows.append(
                    {
                        "than": ENTRIES[name].title,
                        "quantity": column,
                        "drl_lower_by": gain.mean(),
                        "ci95": half_width(gain),
                        "p_value": p_value,
                        "seeds": len(gain),
                    }
                )
    return pd.DataFrame(rows)


def _front(played: Results) -> pd.DataFrame:
    rows = []
    for cell in played.front:
        last = played.rounds(cell).iloc[-LAST:]
        rows.append(
            {
                "policy": cell.axes["policy"],
                "energy_weight": cell.point.scenario.objective.energy_weight,
                "latency_s": last["latency_s"].mean(),
                "max_energy_j": last["max_energy_j"].mean(),
                "objective": last["objective"].mean(),
            }
        )
    return pd.DataFrame(rows)


# --- plots ---------------------------------------------------------------------------------------


def _smooth(rows: pd.DataFrame, column: str) -> "pd.Series[float]":
    return rows[column].rolling(SPAN, center=True).mean()


def _charts_over_rounds(played: Results) -> dict[str, dict[str, Any]]:
    """The panels of `over_rounds` as charts of a page."""
    charts = {}
    for column, label in PANELS.items():
        series = []
        for name in played.entries:
            entry, rows = ENTRIES[name], played.first(name)
            rounds = rows["round"].to_numpy(float)
            values: xy.Values = np.asarray(_smooth(rows, column), np.float64)
            colour, line = entry.style
            dash = DASHES[line]
            series.append(xy.line(entry.title, rounds, values, colour, dash=dash, width=1.3))
            if entry.paper and column == "objective":
                stated: xy.Values = np.full(2, entry.paper, np.float64)
                series.append(
                    xy.line(f"paper: {entry.paper:g}", rounds[[0, -1]], stated, "ink", width=1)
                )
        charts[f"fig8-{column}"] = xy.chart(
            f"{label} over rounds", "Round", label, series, whole_x=True, digits=(0, 3)
        )
    return charts


def _front_chart(front: pd.DataFrame) -> dict[str, Any]:
    """The chart of `front_figure` for a page; the table has the λ of each point."""
    series = []
    for name, rows in front.groupby("policy", sort=False):
        colour, line = ENTRIES[str(name)].style
        if name == "equal":
            rows = rows.iloc[:1]  # does not depend on λ
        series.append(
            xy.line(
                ENTRIES[str(name)].title,
                rows["max_energy_j"].to_numpy(float),
                rows["latency_s"].to_numpy(float),
                colour,
                dash=DASHES[line],
                marker="o",
            )
        )
    return xy.chart(
        "Latency of a round over the largest energy of a UAV, one point per λ",
        PANELS["max_energy_j"],
        PANELS["latency_s"],
        series,
        digits=(3, 3),
    )


def over_rounds(played: Results) -> Figure:
    """Moving averages of each round's latency, largest energy and objective, first seed."""
    figure = Figure(figsize=(WIDTH_IN, 6.2), layout="constrained")
    panels = figure.subplots(3, 1, sharex=True)
    for name in played.entries:
        rows = played.first(name)
        colour, line = ENTRIES[name].style
        for axes, column in zip(panels, PANELS, strict=True):
            axes.plot(
                *(rows["round"], _smooth(rows, column), line),
                color=colour,
                linewidth=0.8,
                label=ENTRIES[name].title,
            )
        if stated := ENTRIES[name].paper:
            panels[-1].axhline(stated, color="black", linewidth=0.5)
            panels[-1].annotate(
                f"paper: {stated:g}", (1, stated), (-2, 2), ("axes fraction", "data"),
                "offset points", ha="right", fontsize="small",
            )  # fmt: skip
    for axes, label in zip(panels, PANELS.values(), strict=True):
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False
    )
    panels[-1].set_xlabel("Round")
    return figure


def front_figure(front: pd.DataFrame) -> Figure:
    """Latency over largest energy, one point per λ."""
    figure = Figure(figsize=(WIDTH_IN, 2.6), layout="constrained")
    axes = figure.add_subplot()
    for name, rows in front.groupby("policy", sort=False):
        entry = ENTRIES[str(name)]
        colour, line = entry.style
        if name == "equal":
            rows = rows.iloc[:1]  # does not depend on λ
        axes.plot(
            rows["max_energy_j"], rows["latency_s"], line, color=colour, marker="o", markersize=4,
            markerfacecolor="white", label=entry.title,
        )  # fmt: skip
        if len(rows) > 1:
            for _, row in rows.iterrows():
                axes.annotate(
                    f"λ = {row['energy_weight']:g}",
                    (row["max_energy_j"], row["latency_s"]),
                    (4, 3),
                    textcoords="offset points",
                    fontsize="small",
                    color=colour,
                )
    axes.set_xlabel("Largest energy of a UAV (J)")
    axes.set_ylabel("Latency of a round (s)")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return figure
