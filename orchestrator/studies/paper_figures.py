# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Reproduces the paper's table and figures, and compares the paper's values with ours.

`campaigns/paper.yaml` defines the points, one study per figure: the paper's scenario, equal shares,
500 rounds; means are over seeds, with Student's 95 % intervals. Values that the paper only shows in
a figure (the ticks of figures 6 and 7) are chosen by us. This module draws the figures and checks
the paper's claims.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from orchestrator.analysis.statistics import half_width
from orchestrator.campaigning.cluster import POOL, Progress, compute_points
from orchestrator.campaigning.folder import distinct
from orchestrator.campaigning.results import MEANS
from orchestrator.campaigning.spec import Campaign, Cell, Study, cells, narrowed
from orchestrator.campaigning.worker import Files
from orchestrator.engine.plan import Array, fixed_allocation, plan_round
from orchestrator.reporting import plots, xy
from orchestrator.reporting.charts import gantt_of
from orchestrator.reporting.formatting import equal_curves, plus_minus
from orchestrator.reporting.legend import DASHES, style_of
from orchestrator.rounds.loop import TOO_WEAK
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario
from orchestrator.studies.reproduction import Finding, Reproduction, Section
from testbed.core.errors import InputError, RunError
from testbed.core.paradigm import paradigm
from testbed.core.timeline import SPAN, STEPS, Round, Timeline
from testbed.host.dask_cluster import Cluster
from testbed.system.files import check_no_link, write_csv
from workloads.costs.lookup import counted
from workloads.costs.profile import PAPER, PAPER_CLASSES, PAPER_MODEL, PAPER_RANK
from workloads.models.config import ModelConfig

REFERENCE = "sfl-pp"
"""The paradigm that the lower panels compare latencies with."""
SAME = 0.01
"""Curves count as equal if they differ by less than this, relative to the reference."""


class Outcomes:
    """Results of a study's cells, by paradigm, tick and seed."""

    def __init__(self, name: str, study: Study, rows: pd.DataFrame):
        self.name = name
        self.rows = rows[rows["study"] == name]
        self.x_label = study.axes[study.plot[0].x].label
        self.paradigms: list[str] = self.rows["paradigm"].drop_duplicates().to_list()
        self.ticks: list[float] = self.rows["x"].drop_duplicates().to_list()

    def seeds(self, name: str, x: float, column: str = "latency_s") -> Array:
        """One value per seed."""
        rows = self.rows
        chosen = rows[(rows["paradigm"] == name) & (rows["x"] == x)].sort_values("seed")
        return np.stack(chosen[column].to_list())

    def mean(self, name: str, x: float, column: str = "latency_s") -> float:
        """The mean over seeds."""
        return float(self.seeds(name, x, column).mean())

    def over_ticks(self, name: str, column: str = "latency_s") -> Array:
        """The means over seeds, shape [ticks]."""
        return np.array([self.mean(name, x, column) for x in self.ticks])

    def savings(self, than: str) -> Array:
        """Reduction of latency by CPSFL relative to another paradigm, shape [ticks, seeds]."""
        return np.array([1 - self.seeds("cpsfl", x) / self.seeds(than, x) for x in self.ticks])

    def saving(self, than: str, x: float) -> Array:
        """Reduction of latency by CPSFL at one tick, one value per seed."""
        return np.asarray(self.savings(than)[self.ticks.index(x)])

    def table(self) -> pd.DataFrame:
        """One row per tick and paradigm: means over seeds, half widths of their intervals.

        `over_reference` is the relative difference of latency from SFL-PP's, paired by seed.
        """
        table = []
        for name in self.paradigms:
            for x in self.ticks:
                row: dict[str, Any] = {"x": x, "paradigm": name}
                for column in ("latency_s", "max_energy_j", "objective"):
                    values = self.seeds(name, x, column)
                    stem, _, unit = column.rpartition("_")
                    ci95 = f"{stem}_ci95_{unit}" if stem else f"{column}_ci95"
                    row |= {column: values.mean(), ci95: half_width(values)}
                over = self.seeds(name, x) / self.seeds(REFERENCE, x) - 1
                row |= {"over_reference": over.mean(), "over_reference_ci95": half_width(over)}
                table.append(
                    row | {"seeds": len(values), "rounds": int(self.rows["rounds"].iloc[0])}
                )
        return pd.DataFrame(table)


def run(
    names: Sequence[str],
    out: Path,
    paper: Campaign,
    *,
    seeds: Sequence[int] | None = None,
    rounds: int | None = None,
    cluster: Cluster = POOL,
    progress: Progress = lambda done, total: None,
) -> Reproduction:
    """Make tables and figures, and compare the paper's values with ours.

    For each name a CSV is written, for figures also a PNG and a PDF; also `report.html`,
    `summary.json` and `summary.md`.

    Args:
        names: Names from `NAMES`, or `all`.
        out: Output folder, created if missing.
        paper: The campaign `campaigns/paper.yaml`.
        seeds: At least two seeds of the channel, for intervals (default: the campaign's).
        rounds: Number of rounds per mean (default: the campaign's).
        cluster: Workers.
        progress: Called with the number of finished points and of all points.

    Raises:
        InputError: A name is unknown, or the folder cannot be created.
        RunError: A point failed.
    """
    wanted = named(names, NAMES)
    make_folder(out)
    sections: list[Section] = []
    if "table2" in wanted:
        sections.append(_table2(out))
    campaign = narrowed(paper, studies=wanted, seeds=seeds, rounds=rounds)
    timelines = cells(narrowed(campaign, studies=["fig3"]))
    no_steps = campaign.model_copy(update={"steps_rounds": 0})
    placed = cells(narrowed(no_steps, studies=list(VERDICTS)))
    answers = answers_of([*timelines, *placed], campaign.seed, cluster, progress)
    if "fig3" in wanted:
        rounds_ = [answers[cell.point.id].first_round() for cell in timelines]
        sections.append(_timelines(out, rounds_))
    rows = pd.DataFrame(
        answers[cell.point.id].row | place_of(campaign.studies[cell.study], cell) for cell in placed
    )
    for name, verdicts in VERDICTS.items():
        if name in wanted:
            study = campaign.studies[name]
            sections.append(_comparison(out, study, Outcomes(name, study, rows), verdicts))
    made = Reproduction(sections, _settings(rows))
    made.write(out)
    return made


def _settings(rows: pd.DataFrame) -> str:
    """The number of rounds and channels that means are over, in words."""
    if rows.empty:
        return "one round of one channel"
    return f"{rows['rounds'].iloc[0]:,} rounds for each of {rows['seed'].nunique()} channels"


# --- results of points ---------------------------------------------------------------------------


class Answer:
    """The results of a point that a figure needs."""

    def __init__(self, scenario: Scenario, files: Files):
        self._files = files
        rounds, energy_j = self._table("rounds"), self._table("energy")["energy_j"].to_numpy()
        plan = plan_round(scenario, profile_of(scenario), fixed_allocation(scenario))
        computing_j = plan.compute_power_w * (plan.cf_s + plan.cb_s).sum(axis=1)
        self.row: dict[str, Any] = {
            **{name: rounds[name].to_numpy().mean() for name in MEANS},
            "rounds": len(rounds),
            "sending_j": energy_j - computing_j,
            "tx_power_w": scenario.fleet.tx_power_w,
        }
        """Means over rounds, each client's energy of uploads [K] and transmit power [K]."""

    def first_round(self) -> Round:
        """The only round of the point, with its steps."""
        (round_,) = self._table("rounds").to_dict("records")
        steps = self._table("predicted")
        spans = np.zeros(len(steps), SPAN)
        for name in SPAN.names or ():
            spans[name] = steps[name].map(STEPS.index) if name == "step" else steps[name]
        return Round(
            index=round_["round"],
            paradigm=round_["paradigm"],
            split=round_["split"],
            start_s=round_["start_s"],
            latency_s=round_["latency_s"],
            energy_j=self._table("energy")["energy_j"].to_numpy(),
            objective=round_["objective"],
            spans=spans,
        )

    def _table(self, name: str) -> pd.DataFrame:
        return pd.read_parquet(io.BytesIO(self._files[f"{name}.parquet"]))


def answers_of(
    placed: Sequence[Cell],
    seed: int,
    cluster: Cluster,
    progress: Progress,
    too_weak: dict[str, str] | None = None,
) -> dict[str, Answer]:
    """The results of the points, by point ID.

    Args:
        placed: The cells.
        seed: Seed of the order of execution.
        cluster: Workers.
        progress: Called with the number of finished points and of all points.
        too_weak: Takes the reason of each point whose rounds do not end because the signal of a UAV
            is too weak, by point ID; None: such a point is an error.

    Raises:
        RunError: A point failed.
    """
    points = distinct(placed)
    answers: dict[str, Answer] = {}
    if points:
        with closing(compute_points(list(points.values()), seed, cluster)) as computing:
            for result in computing:
                reason = result["failure"]["failure"] if "failure" in result else None
                if reason is None:
                    answers[result["id"]] = Answer(points[result["id"]].scenario, result["files"])
                elif too_weak is not None and reason.endswith(TOO_WEAK):
                    too_weak[result["id"]] = reason
                else:
                    raise RunError(f"reproduce: {reason}")
                progress(len(answers) + len(too_weak or ()), len(points))
    return answers


def place_of(study: Study, cell: Cell) -> dict[str, Any]:
    """The cell's columns in the rows of `Outcomes`."""
    return {
        "study": cell.study,
        "x": cell.axes[study.plot[0].x],
        "paradigm": cell.point.scenario.paradigm,
        "seed": cell.seed,
    }


def named(names: Sequence[str], known: Sequence[str]) -> Sequence[str]:
    """The known names that were asked for; `all` means all of them.

    Raises:
        InputError: A name is unknown.
    """
    for name in names:
        if name != "all" and name not in known:
            raise InputError(f"reproduce: {name!r} is not one of {', '.join(known)}, all")
    return known if "all" in names else names


def make_folder(out: Path) -> None:
    """Create an output folder, or use it if it exists.

    Raises:
        InputError: It cannot be created.
    """
    check_no_link(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"`out`: {out} cannot be created ({error.strerror})") from None


# --- table II and figure 3 -----------------------------------------------------------------------


def _table2(out: Path) -> Section:
    """Costs counted on the model itself, compared with those in the paper."""
    profile = counted(ModelConfig(PAPER_MODEL, PAPER_CLASSES, rank=PAPER_RANK))
    columns = {
        "client_forward_gflops": (profile.client_forward_flops, PAPER.client_forward_flops, 1e9),
        "server_forward_gflops": (profile.server_forward_flops, PAPER.server_forward_flops, 1e9),
        "adapter_kib": (profile.adapter_bytes, PAPER.adapter_bytes, 1024),
        "smashed_kib": (profile.smashed_bytes, PAPER.smashed_bytes, 1024),
    }
    table = pd.DataFrame({"split": range(1, profile.splits + 1)})
    worst = ("", 0.0)
    for name, (ours, papers, unit) in columns.items():
        table[name] = np.array(ours) / unit
        table[f"{name}_paper"] = np.array(papers) / unit
        printed = np.where(table[f"{name}_paper"] < 0.01, 3, 2)  # digits in the paper
        rounded = [round(x, int(n)) for x, n in zip(table[name], printed, strict=True)]
        table[f"{name}_deviation"] = table[name] / table[f"{name}_paper"] - 1
        off = np.abs(np.array(rounded) - table[f"{name}_paper"]).max()
        worst = max(worst, (name, float(off)), key=lambda pair: pair[1])
    write_csv(out / "table2.csv", table)
    finding = Finding(
        "table2",
        "FLOPs, adapters and smashed data of all four splits",
        "16 numbers",
        "equal to the printed digits" if worst[1] < 1e-9 else f"{worst[0]} differs by {worst[1]:g}",
        "each is equal, rounded to the printed digits",
        worst[1] < 1e-9,
        note="counted with fvcore on timm's Swin-L; 1 KB is 1024 B",
    )
    return Section("table2", "Table II: costs of each split", [finding], table)


def _timelines(out: Path, rounds: Sequence[Round]) -> Section:
    """A round of two iterations under SFL-PP, PipeSFL and CPSFL, from the same start."""
    timeline = Timeline(rounds)
    table = timeline.frame().drop(columns="round")
    write_csv(out / "fig3.csv", table)
    latencies = [round_.latency_s for round_ in rounds]
    finding = Finding(
        "fig3",
        "order of one round's latencies",
        "SFL-PP, PipeSFL, CPSFL, decreasing; the first two close",
        ", ".join(
            f"{paradigm(round_.paradigm).title} {round_.latency_s:.2f} s" for round_ in rounds
        ),
        "no latency is longer than the previous one, and CPSFL is shorter than PipeSFL",
        bool(latencies[0] >= latencies[1] > latencies[2]),
    )
    return Section(
        "fig3",
        "Figure 3: one round of two iterations, step by step",
        [finding],
        table,
        {"fig3": partial(plots.timelines, timeline)},
        "One chart per paradigm, on a common time axis. A thin line is waiting time. The vertical "
        "line is the end of the round.",
        timelines=gantts_of(rounds),
    )


def gantts_of(rounds: Sequence[Round], under: str = "") -> list[dict[str, Any]]:
    """The Gantt charts of rounds for a page, one per paradigm; `under` follows their names."""
    return [
        gantt_of(f"{paradigm(one.paradigm).title}{under}", style_of(one.paradigm), Timeline([one]))
        for one in rounds
    ]


def _comparison(
    out: Path, study: Study, o: Outcomes, verdicts: Callable[[Outcomes], Iterator[Finding]]
) -> Section:
    """A figure that compares paradigms over a quantity."""
    table = o.table()
    write_csv(out / f"{o.name}.csv", table)
    stated = STATED[o.name](o) if o.name in STATED else None

    return Section(
        o.name,
        f"Figure {o.name[-1]}: {study.title}",
        list(verdicts(o)),
        table,
        {o.name: partial(plots.comparison, table, o.x_label, REFERENCE, stated)},
        "The first chart shows the mean latency of a round, and the second one its difference from "
        f"that of {paradigm(REFERENCE).title}, computed seed by seed. {_equal_curves(table)}",
        comparison_charts(o.name, table, o.x_label, stated),
    )


def comparison_charts(
    name: str, table: pd.DataFrame, x_label: str, stated: plots.ReferenceValue | None = None
) -> dict[str, dict[str, Any]]:
    """The panels of `plots.comparison` as charts of a page, by names that begin with `name`."""
    panels = {
        "latency": ("Average per-round latency (s)", 1, "latency_s", "latency_ci95_s"),
        "relative": (
            f"Relative to {paradigm(REFERENCE).title} (%)",
            100,
            "over_reference",
            "over_reference_ci95",
        ),
    }
    charts = {}
    for panel, (y_label, scale, value, half) in panels.items():
        series = []
        for each in plots.ordered(table["paradigm"].unique()):
            rows, style = table[table["paradigm"] == each], style_of(each)
            series.append(
                xy.line(
                    paradigm(each).title,
                    rows["x"].to_numpy(float),
                    scale * rows[value].to_numpy(float),
                    style.colour,
                    dash=DASHES[style.line],
                    marker=style.marker,
                    half=scale * rows[half].to_numpy(float),
                )
            )
        if stated is not None and panel == "latency":
            at = np.array([stated.x]), np.array([stated.latency_s])
            series.append(xy.points(stated.text, *at, "ink"))
        whole = bool((table["x"] % 1 == 0).all())
        charts[f"{name}-{panel}"] = xy.chart(
            f"{y_label} over {x_label}",
            x_label,
            y_label,
            series,
            whole_x=whole,
            from_zero=panel == "latency",
            digits=(0 if whole else 3, 3 if panel == "latency" else 2),
        )
    return charts


def _equal_curves(table: pd.DataFrame) -> str:
    """Lists the curves that cannot be distinguished in the upper panel."""
    curves = table.pivot(index="x", columns="paradigm", values="over_reference")
    groups: list[list[str]] = []
    for name in plots.ordered(curves.columns):
        for group in groups:
            if (curves[name] - curves[group[0]]).abs().max() < SAME:
                group.append(name)
                break
        else:
            groups.append([name])
    named = [[paradigm(name).title for name in group] for group in groups if len(group) > 1]
    return equal_curves(named, SAME)


# --- figures 4 to 7 ------------------------------------------------------------------------------


def _percent(values: Array) -> str:
    """Mean and interval of fractions, one per seed."""
    return f"{100 * values.mean():.1f}{plus_minus(100 * half_width(values), 1)} %"


def _lowest(o: Outcomes) -> Finding:
    others = [name for name in o.paradigms if name != "cpsfl"]
    exceptions = [
        f"{paradigm(name).title} at {x:g}"
        for name in others
        for x in o.ticks
        if o.mean(name, x) <= o.mean("cpsfl", x)
    ]
    least = min(1 - o.mean("cpsfl", x) / o.mean(name, x) for name in others for x in o.ticks)
    return Finding(
        o.name,
        "CPSFL has the lowest latency",
        "everywhere",
        f"not below {'; '.join(exceptions)}"
        if exceptions
        else f"everywhere, by {100 * least:.1f} % at least",
        "CPSFL's mean is below every other at every tick",
        not exceptions,
    )


def _monotone(o: Outcomes, statement: str, sign: int) -> Finding:
    """Check whether every paradigm's latency falls (-1) or rises (1) from tick to tick."""
    exceptions = [
        f"{paradigm(name).title} from {a:g} to {b:g}"
        for name in o.paradigms
        for a, b in zip(o.ticks, o.ticks[1:], strict=False)
        if sign * (o.mean(name, b) - o.mean(name, a)) <= 0
    ]
    ours = f"not {'; '.join(exceptions)}" if exceptions else "for every paradigm, at every step"
    rule = f"each mean {'rises' if sign > 0 else 'falls'} from tick to tick"
    return Finding(o.name, statement, "for every paradigm", ours, rule, not exceptions)


def _savings(o: Outcomes, than: str, statement: str, sign: int, paper: str) -> Finding:
    """Check whether CPSFL's saving over a paradigm grows (1) or shrinks (-1) over all ticks."""
    savings = o.savings(than)
    trend, ci95 = trend_of(o.ticks, savings)
    rule = f"at least +{LEAST_TREND:g}" if sign > 0 else f"at most -{LEAST_TREND:g}"
    change = savings[-1] - savings[0]
    return Finding(
        o.name,
        statement,
        paper,
        ", ".join(f"{100 * saving.mean():.1f}" for saving in savings) + " %",
        f"its rank correlation with the ticks is {rule}, and exceeds its interval",
        sign * trend >= LEAST_TREND and not sign * trend <= ci95,
        note=f"rank correlation {trend:+.2f}{plus_minus(ci95)}; last less first: "
        f"{100 * change.mean():+.1f}{plus_minus(100 * half_width(change), 1)} points",
    )


LEAST_TREND = 0.5
"""Least rank correlation that counts as a trend."""


def trend_of(ticks: Sequence[float], values: Array) -> tuple[float, float]:
    """Spearman's rank correlation of values, shape [ticks, seeds], with the ticks.

    Returns:
        Mean over the seeds (each is a separate channel), and half width of its 95 % interval; NaN
        if the correlation is the same in all seeds. The correlation of constant values is 0.
    """
    each = [
        0.0 if np.ptp(of_seed) == 0 else float(stats.spearmanr(ticks, of_seed).statistic)
        for of_seed in values.T
    ]
    return float(np.mean(each)), half_width(np.array(each))


def _fig4(o: Outcomes) -> Iterator[Finding]:
    saving = o.saving("pipesfl", 2)
    yield Finding(
        "fig4",
        "CPSFL's latency below PipeSFL's at u = 2",
        "more than 30 %",
        _percent(saving),
        "the mean is above 30 %",
        float(saving.mean()) > 0.30,
    )
    yield _monotone(o, "latency falls as u grows", -1)
    yield _lowest(o)
    yield _savings(o, "pipesfl", "saving over PipeSFL, u = 1 to 4", -1, "larger for smaller u")
    objectives = o.over_ticks("cpsfl", "objective")
    best = o.ticks[int(objectives.argmin())]
    yield Finding(
        "fig4",
        "CPSFL's best fixed split by the objective",
        "u = 2",
        f"u = {best:g}",
        "the mean objective is lowest at u = 2",
        best == 2,
        note=f"here with equal shares and I = 3: {', '.join(f'{v:.1f}' for v in objectives)}",
    )


def _fig5(o: Outcomes) -> Iterator[Finding]:
    uploads = {x: upload_times(o, x) for x in (1, 5)}
    even = float(uploads[1].max() / uploads[1].min())
    yield Finding(
        "fig5",
        "uploads of cluster 1, longest over shortest",
        "nearly identical",
        f"{even:.2f}",
        "below 1.15",
        even < 1.15,
    )
    last_two = float(uploads[5][-2:].mean() / uploads[5][:-2].mean())
    yield Finding(
        "fig5",
        "uploads of cluster 5, last two UAVs over the others",
        "nearly 1.5",
        f"{last_two:.2f}",
        "between 1.35 and 1.65 (1.5 within 10 %)",
        1.35 < last_two < 1.65,
        last_two / 1.5 - 1,
    )
    yield _lowest(o)
    for than in ("cpsfl-no-ps", "pipesfl"):
        title = paradigm(than).title
        yield _savings(o, than, f"saving over {title}, clusters 1 to 5", 1, "basically grows")


def upload_times(o: Outcomes, x: float, name: str = "cpsfl") -> Array:
    """Mean upload time of each client in a round, from its energy, shape [K], s."""
    powers_w = o.seeds(name, x, "tx_power_w")[0]
    times_s: Array = o.seeds(name, x, "sending_j").mean(axis=0) / powers_w
    return times_s


def _fig6(o: Outcomes) -> Iterator[Finding]:
    worst = min(
        float(stats.linregress(o.ticks, o.over_ticks(name)).rvalue) ** 2 for name in o.paradigms
    )
    yield Finding(
        "fig6",
        "latency grows with I",
        "about linearly",
        f"linear fits explain at least {100 * worst:.3f} % of the variance",
        "more than 99 % (R² of each paradigm's means)",
        worst > 0.99,
    )
    yield _lowest(o)
    yield _savings(o, "pipesfl", "saving over PipeSFL, I = 1 to 6", 1, "slightly increases")
    values = o.seeds("cpsfl", 5, "objective")
    yield Finding(
        "fig6",
        "objective of CPSFL with equal shares, I = 5, u = 2",
        "122.3",
        f"{values.mean():.2f}{plus_minus(half_width(values))}",
        "within ± 0.5",
        abs(float(values.mean()) - 122.3) < 0.5,
        float(values.mean() / 122.3 - 1),
        note="from figure 8, for fixed RA, where the agent chooses u",
    )


def _fig7(o: Outcomes) -> Iterator[Finding]:
    yield _monotone(o, "latency rises with K", 1)
    yield _lowest(o)
    yield _savings(o, "pipesfl", "saving over PipeSFL, K = 6 to 18", 1, "slightly increases")


VERDICTS: dict[str, Callable[[Outcomes], Iterator[Finding]]] = {
    "fig4": _fig4,
    "fig5": _fig5,
    "fig6": _fig6,
    "fig7": _fig7,
}
"""By study of the campaign: checks of the paper's claims."""
STATED: dict[str, Callable[[Outcomes], plots.ReferenceValue]] = {
    "fig4": lambda o: plots.ReferenceValue(
        2, 0.7 * o.mean("pipesfl", 2), "Paper: upper bound of CPSFL"
    ),
}
"""By study: a latency in the paper to draw."""
NAMES = ("table2", "fig3", *VERDICTS)
