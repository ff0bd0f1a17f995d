"""Figure 8 and its table: who decides best, under the paper's scenario with I = 5.

Beside the paper's agent and its variants stand what the paper lacks: the best static allocation,
the planner, a bound that no allocation beats, and the front of latency and energy as λ varies.
Every policy flies the same traces, seed by seed, so differences are paired. All rounds are kept,
and a campaign that was killed goes on where it stood.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from scipy import stats

from orchestrator.analysis.statistics import half_width
from orchestrator.policies.registry import evaluate, policy
from orchestrator.prediction.engine import split_costs
from orchestrator.prediction.plan import Array, radio_of
from orchestrator.scenario.channel import ns3_source
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario
from orchestrator.studies.sweep import varied
from orchestrator.theory.lower_bound import lower_bound
from testbed.core.errors import InputError
from testbed.system.files import write_csv, write_figure, write_whole

SEEDS = (1, 2, 3, 4, 5)
ROUNDS = 5000
LAST = 1000
"""Means are over the last rounds, as the paper's."""
ITERATIONS = 5
SPAN = 21
"""Rounds of the figure's moving average, as the paper's."""
WEIGHTS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0)
"""λ of the front."""


@dataclass(frozen=True)
class Entry:
    """A line of the table."""

    title: str
    policy: str
    """One of `policies.POLICIES`, or a variant of the agent, which is trained."""
    paradigm: str = "cpsfl"
    paper: float | None = None
    """The objective that the paper states."""
    style: tuple[str, str] = ("#777777", "-")
    """Colour and line."""

    @property
    def trained(self) -> bool:
        """Whether it learns while it decides."""
        return self.policy in {"drl", "drl-", "fixed-ra", "fixed-u"}


ENTRIES = {
    "equal": Entry("Equal shares, u = 2", "equal", paper=122.3, style=("#777777", "-")),
    "fixed-ra": Entry("DRL, fixed shares", "fixed-ra", style=("#777777", ":")),
    "pipesfl": Entry("PipeSFL, DRL", "drl", "pipesfl", style=("#0072b2", "-")),
    "drl-": Entry("DRL without trajectories", "drl-", paper=108.6, style=("#d55e00", ":")),
    "fixed-u": Entry("DRL, u = 2", "fixed-u", style=("#d55e00", "--")),
    "drl": Entry("DRL", "drl", paper=105.8, style=("#d55e00", "-")),
    "static": Entry("Best static", "static", style=("#cc79a7", "-")),
    "planner": Entry("Planner", "planner", style=("#009e73", "-")),
}
FRONT = ("equal", "drl", "planner")


@dataclass(frozen=True)
class Cell:
    """One policy on one trace, for one λ."""

    entry: str
    scenario: Scenario

    def file(self, out: Path) -> Path:
        """Where its rounds are kept."""
        weight = self.scenario.objective.energy_weight
        return out / "rounds" / f"{self.entry}-lambda{weight:g}-seed{self.scenario.seed}.parquet"


def run(
    out: Path,
    paper: Scenario,
    *,
    entries: Sequence[str] = tuple(ENTRIES),
    seeds: Sequence[int] = SEEDS,
    rounds: int = ROUNDS,
    weights: Sequence[float] = WEIGHTS,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> pd.DataFrame:
    """Play or train everything, and write table and figures.

    Writes `fig8.csv` (the table), `fig8_paired.csv`, `fig8_front.csv`, `fig8.png`, `fig8.pdf`,
    `fig8_front.png`, `fig8_front.pdf`, `rounds/*.parquet` and `agents/`.

    Args:
        out: The folder to write to; what it holds of this campaign is not done again.
        paper: The paper's scenario.
        entries: Which of `ENTRIES`.
        seeds: Seeds of the channel and of the agents.
        rounds: Rounds of each; the mean is over the last `LAST`.
        weights: λ of the front, flown with the first seed; empty: no front.
        workers: Processes; left out: one a core.
        progress: Called with the number of cells done and their total.

    Returns:
        The table; see `table`.

    Raises:
        InputError: No such entry, or `out` holds another campaign.
    """
    for name in entries:
        if name not in ENTRIES:
            raise InputError(f"reproduce: {name!r} is not one of {', '.join(ENTRIES)}")
    base = varied(paper, workload__local_iterations=ITERATIONS, workload__split=2, rounds=rounds)
    _claim(out, base)
    cells = [Cell(name, _flown(base, name, seed)) for name in entries for seed in seeds]
    fronts = [
        Cell(name, _flown(base, name, seeds[0], weight))
        for name in FRONT
        for weight in weights
        if name in entries
    ]
    # The longest first, so that no core is left with a long one at the end.
    every = {cell.file(out): cell for cell in [*cells, *fronts]}
    open_cells = sorted(
        (cell for file, cell in every.items() if not file.exists()),
        key=lambda cell: cell.entry not in {"planner", "drl"},
    )
    if open_cells:
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            futures = [pool.submit(play, cell, out) for cell in open_cells]
            for done, future in enumerate(as_completed(futures), 1):
                future.result()
                if progress is not None:
                    progress(done, len(futures))
    made = table(out, base, entries, seeds)
    write_csv(out / "fig8.csv", made)
    write_csv(out / "fig8_paired.csv", paired(out, base, entries, seeds))
    write_figure(out / "fig8", over_rounds(out, base, entries, seeds[0]))
    if fronts:
        front = _front(out, fronts)
        write_csv(out / "fig8_front.csv", front)
        write_figure(out / "fig8_front", front_figure(front))
    return made


def _claim(out: Path, base: Scenario) -> None:
    """Make the folder ours, or see that it is."""
    file, text = out / "campaign.json", base.model_dump_json(indent=1) + "\n"
    try:
        (out / "rounds").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"`out`: {out} cannot be made ({error.strerror})") from None
    if not file.exists():
        write_whole(file, lambda part: part.write_text(text, encoding="utf-8"))
    elif Scenario.model_validate_json(file.read_bytes()) != base:
        raise InputError(f"`out`: {out} holds a campaign of another scenario or length")


def _flown(base: Scenario, entry: str, seed: int, weight: float | None = None) -> Scenario:
    values: dict[str, Any] = {"seed": seed, "paradigm": ENTRIES[entry].paradigm}
    if weight is not None:
        values["objective__energy_weight"] = weight
    return varied(base, **values)


# --- playing -------------------------------------------------------------------------------------


def play(cell: Cell, out: Path) -> None:
    """Play or train one cell and keep its rounds."""
    entry, scenario = ENTRIES[cell.entry], cell.scenario
    if entry.trained:
        from orchestrator.policies.agent import train

        folder = out / "agents" / cell.file(out).stem
        rows = train(scenario, folder, variant=entry.policy, rounds=scenario.rounds)
    else:
        decide = policy(scenario, entry.policy)
        with ns3_source(scenario) as source:
            rows = evaluate(scenario, source, decide)
            if cell.entry == "planner":
                rows["bound"] = _bound(scenario, source.trace(1).gain, rows.iloc[-LAST:])
    write_whole(cell.file(out), partial(rows.to_parquet, index=False))


def _bound(scenario: Scenario, gain: Array, rows: pd.DataFrame) -> "pd.Series[float]":
    """Below what no allocation could have come in these rounds, by the rows' index."""
    costs, radio = split_costs(scenario, profile_of(scenario)), radio_of(scenario)
    start_s, objective = rows["start_s"].to_numpy(), rows["objective"].to_numpy()
    bound = lower_bound(costs, radio, gain, scenario.slot_s, start_s, objective)
    return pd.Series(bound, rows.index)


# --- tables --------------------------------------------------------------------------------------


def last_means(out: Path, base: Scenario, entry: str, seeds: Sequence[int]) -> pd.DataFrame:
    """Means over the last rounds, one row a seed."""
    means = []
    for seed in seeds:
        rows = pd.read_parquet(Cell(entry, _flown(base, entry, seed)).file(out))
        means.append(rows.iloc[-LAST:].mean(numeric_only=True))
    return pd.DataFrame(means)


def table(out: Path, base: Scenario, entries: Sequence[str], seeds: Sequence[int]) -> pd.DataFrame:
    """One row an entry: means over seeds, halves of their 95 % intervals, and the paper's."""
    rows = []
    for name in entries:
        means = last_means(out, base, name, seeds)
        rows.append(_row(ENTRIES[name].title, means, len(seeds), paper=ENTRIES[name].paper))
        if "bound" in means:
            bound = pd.DataFrame({"objective": means["bound"]})
            rows.append(_row("Lower bound of the planner's rounds", bound, len(seeds)))
    return pd.DataFrame(rows)


def _row(title: str, means: pd.DataFrame, seeds: int, paper: float | None = None) -> dict[str, Any]:
    row: dict[str, Any] = {"policy": title, "paper": paper}
    for column in ("objective", "latency_s", "max_energy_j"):
        if column in means:
            row[column] = means[column].mean()
            stem, _, unit = column.rpartition("_")
            name = f"{stem}_ci95_{unit}" if stem else f"{column}_ci95"
            row[name] = half_width(means[column].to_numpy())
    if "decision_s" in means:
        row["decision_s"] = means["decision_s"].mean()
    return row | {"seeds": seeds}


def paired(out: Path, base: Scenario, entries: Sequence[str], seeds: Sequence[int]) -> pd.DataFrame:
    """What DRL gains over others on the same traces: difference, 95 % interval, paired t-test."""
    rows = []
    if "drl" in entries:
        drl = last_means(out, base, "drl", seeds)
        for name in entries:
            if name == "drl":
                continue
            other = last_means(out, base, name, seeds)
            for column in ("objective", "latency_s", "max_energy_j"):
                gain = (other[column] - drl[column]).to_numpy()
                p_value = stats.ttest_1samp(gain, 0.0).pvalue if len(gain) > 1 else float("nan")
                rows.append(
                    {
                        "than": ENTRIES[name].title,
                        "quantity": column,
                        "drl_lower_by": gain.mean(),
                        "ci95": half_width(gain),
                        "p_value": p_value,
                        "seeds": len(seeds),
                    }
                )
    return pd.DataFrame(rows)


def _front(out: Path, cells: Sequence[Cell]) -> pd.DataFrame:
    rows = []
    for cell in cells:
        last = pd.read_parquet(cell.file(out)).iloc[-LAST:]
        rows.append(
            {
                "policy": cell.entry,
                "energy_weight": cell.scenario.objective.energy_weight,
                "latency_s": last["latency_s"].mean(),
                "max_energy_j": last["max_energy_j"].mean(),
                "objective": last["objective"].mean(),
            }
        )
    return pd.DataFrame(rows)


# --- figures -------------------------------------------------------------------------------------


def over_rounds(out: Path, base: Scenario, entries: Sequence[str], seed: int) -> Figure:
    """Latency and largest energy of each round, moving averages, for one seed."""
    figure = Figure(figsize=(5.2, 5.6), layout="constrained")
    panels = figure.subplots(2, 1, sharex=True)
    labels = ("Latency of a round (s)", "Largest energy of a UAV (J)")
    for name in entries:
        rows = pd.read_parquet(Cell(name, _flown(base, name, seed)).file(out))
        colour, line = ENTRIES[name].style
        for axes, column in zip(panels, ("latency_s", "max_energy_j"), strict=True):
            smooth = rows[column].rolling(SPAN, center=True).mean()
            axes.plot(
                rows["round"], smooth, line, color=colour, linewidth=0.8, label=ENTRIES[name].title
            )
    for axes, label in zip(panels, labels, strict=True):
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
    panels[0].legend(fontsize=6, ncols=2)
    panels[1].set_xlabel("Round")
    return figure


def front_figure(front: pd.DataFrame) -> Figure:
    """Latency against largest energy, a point for each λ."""
    figure = Figure(figsize=(5.2, 3.8), layout="constrained")
    axes = figure.add_subplot()
    for name, rows in front.groupby("policy", sort=False):
        entry = ENTRIES[str(name)]
        colour, line = entry.style
        if not entry.trained and entry.policy == "equal":
            rows = rows.iloc[:1]  # λ changes nothing there
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
                    fontsize=6,
                    color=colour,
                )
    axes.set_xlabel("Largest energy of a UAV (J)")
    axes.set_ylabel("Latency of a round (s)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
    return figure
