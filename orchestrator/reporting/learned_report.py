# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The page of `testbed learn`: what one or several seeds have learned, as HTML."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from orchestrator.analysis.fairness import Fairness, by_classes, recalls
from orchestrator.analysis.learned import CURVE, X_TITLES, Group, Outcome, improvements
from orchestrator.records.appraised import Appraised, read_appraised
from orchestrator.records.directory import MANIFEST
from orchestrator.records.learned import CURVES, Trajectory, measure_of, read_trajectories
from orchestrator.records.reader import Manifest, read_manifest
from orchestrator.records.tables import ANY, Absent, Column, read_table
from orchestrator.reporting import xy
from orchestrator.reporting.formatting import number, percent
from orchestrator.reporting.index import save_page
from orchestrator.reporting.learning_charts import learning_chart
from orchestrator.reporting.legend import RAMP, Style, numbered, style_of
from orchestrator.reporting.pages import render_page
from orchestrator.reporting.report import MANIFEST as SHOWN
from orchestrator.reporting.report import counts_of, holdings
from orchestrator.scenario.schema import Workload
from orchestrator.scenario.yaml_text import dump
from testbed.core import trees
from testbed.core.paradigm import title_of

SCRIPTS = ("charts", "frame", "xy", "tables", "learned")
MOST_CLASSES = 20
"""Most classes whose confusion matrix is shown whole; of more, the most frequent confusions are."""
MOST_ROWS = 2000
"""Most evaluations in the page's table; the Parquet files have all of them."""
COLUMNS = {"round": Column("integer", 0)} | {name: ANY for name in CURVE if name != "round"}


@dataclass(frozen=True)
class Learned:
    """The result of one seed."""

    trajectory: Trajectory
    manifest: dict[str, Any]
    curve: pd.DataFrame
    """A result of `curve_of`; costs are NaN if its rounds were not predicted."""
    appraised: Appraised | None

    @property
    def seed(self) -> int:
        """The random seed."""
        return self.trajectory.scenario.seed

    @cached_property
    def outcome(self) -> Outcome | None:
        """Its evaluations; None: there are none."""
        return Outcome.of(self.trajectory.table, measure_of(self.trajectory.scenario))


def read_learned(folder: Path) -> list[Learned]:
    """The results of the seeds in a folder of `testbed learn`.

    Raises:
        InputError: The folder is none of `testbed learn`, or a file is broken.
    """
    found = []
    for trajectory in read_trajectories(folder):
        own = Path(trajectory.folder)
        try:
            curve = read_table(own / CURVES, trajectory.scenario, COLUMNS)
        except Absent:
            curve = trajectory.curve
        manifest = read_manifest(own / MANIFEST, Manifest)
        found.append(Learned(trajectory, manifest, curve, read_appraised(own)))
    return found


def write_learned_report(folder: Path, learned: Sequence[Learned] | None = None) -> Path:
    """Write `report.html` into a folder of `testbed learn` atomically; returns its path.

    Args:
        folder: The folder.
        learned: Its results, if they were read already.

    Raises:
        InputError: See `read_learned`.
    """
    page = render(folder.name, read_learned(folder) if learned is None else learned)
    path = folder / "report.html"
    save_page(path, page)
    return path


def learned_lines(learned: Sequence[Learned]) -> list[str]:
    """What `testbed learn` reached, as lines of the console: each seed, then all."""
    outcomes = [(each.seed, each.outcome) for each in learned if each.outcome is not None]
    if len(learned) == 1:
        return [outcome.line() for _, outcome in outcomes]
    lines = [f"seed {seed}: {outcome.line()}" for seed, outcome in outcomes]
    said = sentences(learned, _seed_rows(learned), None)
    return [*lines, " ".join(said)] if lines else []


def render(name: str, learned: Sequence[Learned]) -> str:
    """The page, as HTML.

    Args:
        name: Name of the folder.
        learned: The result of each seed.
    """
    first = learned[0]
    scenario, manifest = first.trajectory.scenario, dict.fromkeys(SHOWN) | first.manifest
    seeds, clients, confusion = _seed_rows(learned), _client_rows(learned), _Confusion.of(learned)
    measure = measure_of(scenario)
    charts = charts_of(learned)
    bars = holdings(first.manifest.get("partition"))
    timed = any(row["time_s"] is not None for row in seeds)
    evaluations = [row for each in learned for row in _evaluation_rows(each)]
    fairness = Fairness.of([row["accuracy"] for row in clients])
    return render_page(
        "learned.html",
        SCRIPTS,
        {"charts": charts, "reached": [improvements(each.curve) for each in learned]},
        name=name,
        scenario=scenario,
        manifest=manifest,
        measure=measure,
        paradigm=title_of(scenario.paradigm, scenario.order),
        lead=" ".join(sentences(learned, seeds, fairness)),
        seeds=seeds,
        overall=_overall(seeds),
        timed=timed,
        target=_target(seeds),
        charts=charts,
        clients=clients,
        fairness=fairness,
        has_classes=any(row["by_classes"] is not None for row in clients),
        confusion=confusion,
        facts=_facts(learned),
        changed=_changed(scenario.workload),
        remarks=_remarks(learned),
        diverged=[
            f"seed {each.seed}: {line}" if len(learned) > 1 else line
            for each in learned
            if (line := each.manifest.get("diverged"))
        ],
        evaluations=evaluations[:MOST_ROWS],
        total=len(evaluations),
        holdings=bars,
        natural=_natural_clients(first),
        class_names=first.appraised.names if first.appraised else [],
        class_colours={
            part["class"]: part["colour"]
            for part in sorted((p for bar in bars for p in bar["parts"]), key=lambda p: p["class"])
        },
        environment=manifest,
        scenario_text=dump(scenario.model_dump(mode="json"), flow=True),
    )  # fmt: skip


def sentences(
    learned: Sequence[Learned], seeds: Sequence[Mapping[str, Any]], fairness: Fairness | None
) -> list[str]:
    """What came out: the measure at the end, its costs, and its spread over clients."""
    first, overall = learned[0].outcome, _overall(seeds)
    if first is None:
        return ["Nothing was evaluated on held-out data."]
    measure, several = first.measure, len(seeds) > 1
    found = [first.sentence()]
    if several:
        last, best = overall["last"], overall["best"]
        found = [
            f"Over {len(seeds)} seeds, the held-out {measure} is "
            f"{_span(last, measure)} {first.last.when}."
        ]
        if (lost := sum(row["last"] is None for row in seeds)) and last is not None:
            found.append(f"In {lost} of them, it is not finite.")
        if best is not None:
            found.append(f"The best value of a seed is {_span(best, measure)}.")
    if overall["time_s"] is not None:
        found.append(
            f"The rounds take {number(overall['time_s']['mean'], 3)} s{' (mean)' * several}, as "
            "predicted for the payload only, without headers, delay and loss."
        )
    if fairness is not None and learned[0].trajectory.scenario.uavs.count > 1:
        found.append(
            f"On the training samples of single UAVs, the accuracy is "
            f"{percent(fairness.worst, sign=False)} to {percent(fairness.best, sign=False)}."
        )
    return found


def shown(value: float | None, measure: str) -> str:
    """A value of a measure in words."""
    if value is None or not math.isfinite(value):
        return "not finite"
    return f"{100 * value:.1f} %" if measure == "accuracy" else f"{value:.4g}"


def _span(found: Mapping[str, float] | None, measure: str) -> str:
    """A mean over seeds with its extremes; None: no seed has a value."""
    if found is None:
        return shown(None, measure)
    low, high = shown(found["low"], measure), shown(found["high"], measure)
    return shown(found["mean"], measure) + f" ({low} to {high})" * (low != high)


def _seed_rows(learned: Sequence[Learned]) -> list[dict[str, Any]]:
    """One row per seed: its last and best evaluations, and the costs until the last."""
    rows = []
    for each in learned:
        outcome = each.outcome
        row: dict[str, Any] = {"seed": each.seed, "outcome": outcome, "last": None, "best": None}
        if outcome is not None:
            row["last"] = _finite(outcome.last.value(outcome.measure))
            row["best"] = _finite(outcome.best.value(outcome.measure))
        for name in ("time_s", "energy_j", "bytes"):
            row[name] = _finite(each.curve[name].iloc[-1]) if len(each.curve) else None
        rows.append(row)
    return rows


def _overall(seeds: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float] | None]:
    """By column of `_seed_rows`: mean, low and high over the seeds that have a value; None if there
    are none."""
    found: dict[str, dict[str, float] | None] = {}
    for name in ("last", "best", "time_s", "energy_j", "bytes"):
        values = [row[name] for row in seeds if row[name] is not None]
        mean = float(np.mean(values)) if values else math.nan
        found[name] = {"mean": mean, "low": min(values), "high": max(values)} if values else None
    return found


def _target(seeds: Sequence[Mapping[str, Any]]) -> float:
    """An accuracy in per cent that all seeds reach: 90 % of the least best one, rounded down."""
    best = [row["outcome"].best.accuracy for row in seeds if row["outcome"]]
    return float(math.floor(90 * min(best) + 1e-9)) if best else 50.0


def _evaluation_rows(each: Learned) -> list[dict[str, Any]]:
    return [
        {"seed": each.seed} | {name: _finite(row[name]) for name in CURVE}
        for row in each.curve.to_dict("records")
    ]


def _finite(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def frames(learned: Sequence[Learned]) -> dict[str, pd.DataFrame]:
    """Tidy tables: `curves`, one row per evaluation, and `clients`, one row per client."""
    curves = pd.concat([each.curve.assign(seed=each.seed) for each in learned], ignore_index=True)
    return {
        "curves": curves[["seed", *(name for name in curves if name != "seed")]],
        "clients": pd.DataFrame(_client_rows(learned)),
    }


def charts_of(learned: Sequence[Learned]) -> dict[str, Any]:
    """Curves of the measure and the loss, and the accuracy of each client."""
    scenario, clients = learned[0].trajectory.scenario, _client_rows(learned)
    measure = measure_of(scenario)
    style = style_of(scenario.paradigm)
    timed = all(len(e.curve) and np.isfinite(e.curve["time_s"]).all() for e in learned)
    over = ["round", *(x for x in X_TITLES if x != "round")] if timed else ["round"]
    group = Group("held-out", {each.seed: each.curve for each in learned})
    training = {"training, mean of a round": (_training(learned, over), Style("#808080", ":", "o"))}
    charts = {
        y: learning_chart([group], [style], y, over, training)
        for y in dict.fromkeys([measure, "loss"])
    }
    if len(clients) > 1 and (drawn := _client_series(learned, clients)):
        charts["clients"] = xy.chart(
            "Accuracy of each UAV on its own training samples",
            "UAV",
            "Accuracy on own samples (%)",
            drawn,
            whole_x=True,
            from_zero=True,
            digits=(0, 2),
        )
    return {name: chart for name, chart in charts.items() if chart is not None}


def _client_series(
    learned: Sequence[Learned], clients: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Points of each seed, and the mean over the seeds."""
    series, several = [], len(learned) > 1
    for place, each in enumerate(learned):
        if each.appraised is None:
            continue
        own = each.appraised.clients
        values = np.array([math.nan if c.accuracy is None else 100 * c.accuracy for c in own])
        at = np.array([c.client for c in own], float)
        colour = RAMP[place % len(RAMP)] if several else numbered(0).colour
        series.append(xy.points(f"seed {each.seed}", at, values, colour))
    if several:
        at = np.array([row["client"] for row in clients], float)
        mean = np.array([100 * row["accuracy"] for row in clients], float)
        series.append(xy.points("mean of the seeds", at, mean, "ink"))
    return series


def _training(learned: Sequence[Learned], over: Sequence[str]) -> pd.DataFrame:
    """Mean loss and accuracy of the batches of each round that was evaluated, and its costs, mean
    over the seeds."""
    parts = []
    for each in learned:
        table = each.trajectory.table
        train = table[table["data"] == "train"]
        means = train.groupby(train["round"] + 1)[["loss", "accuracy"]].mean()
        costs = each.curve.drop_duplicates("round").set_index("round")
        places = [x for x in over if x != "round"]
        joined = means.join(costs[places], how="inner") if len(costs) else means
        parts.append(joined.rename_axis("round").reset_index())
    found = pd.concat(parts).groupby("round", as_index=False).mean()
    known = np.isfinite(found[list(over)].to_numpy(float)).all(axis=1)
    return pd.DataFrame(found[known])


def _client_rows(learned: Sequence[Learned]) -> list[dict[str, Any]]:
    """One row per client: means over the seeds of its accuracy and loss, and its samples."""
    appraised = [each for each in learned if each.appraised is not None]
    rows: dict[int, list[dict[str, Any]]] = {}
    for each in appraised:
        assert each.appraised is not None
        counts = counts_of(each.manifest.get("partition"))
        recall = recalls(each.appraised.matrix)
        for own in each.appraised.clients:
            held = counts[own.client - 1] if own.client <= len(counts) else []
            rows.setdefault(own.client, []).append(
                {
                    "samples": own.samples,
                    "accuracy": own.accuracy,
                    "loss": own.loss,
                    "by_classes": by_classes(recall, held) if len(recall) else math.nan,
                }
            )
    made: list[dict[str, Any]] = []
    for client, seeds in sorted(rows.items()):
        table = pd.DataFrame(seeds).astype(float)
        made.append(
            {"client": client}
            | {str(name): _finite(table[name].mean()) for name in table}
            | {"low": _finite(table["accuracy"].min()), "high": _finite(table["accuracy"].max())}
        )
    return made


@dataclass(frozen=True)
class _Confusion:
    """Held-out samples of all seeds by class and predicted class."""

    names: Sequence[str]
    matrix: npt.NDArray[np.int64]

    @classmethod
    def of(cls, learned: Sequence[Learned]) -> "_Confusion | None":
        """The sum over the seeds; None without classes."""
        found = [each.appraised for each in learned if each.appraised and each.appraised.names]
        if not found or any(each.names != found[0].names for each in found):
            return None
        return cls(found[0].names, np.sum([each.matrix for each in found], axis=0))

    @property
    def is_small(self) -> bool:
        """Whether the whole matrix is shown."""
        return len(self.names) <= MOST_CLASSES

    @property
    def rows(self) -> list[dict[str, Any]]:
        """By class: its name, number of samples, recall, precision, and the cells of its row."""
        totals, columns = self.matrix.sum(axis=1), self.matrix.sum(axis=0)
        recall = recalls(self.matrix)
        return [
            {
                "name": name,
                "samples": int(totals[k]),
                "recall": _finite(recall[k]),
                "precision": float(self.matrix[k, k] / columns[k]) if columns[k] else None,
                "cells": [
                    {
                        "count": int(count),
                        "share": float(count / totals[k]) if totals[k] else 0.0,
                        "predicted": self.names[place],
                    }
                    for place, count in enumerate(self.matrix[k])
                ]
                if self.is_small
                else [],
            }
            for k, name in enumerate(self.names)
        ]

    @property
    def frequent(self) -> list[dict[str, Any]]:
        """The most frequent confusions: class, predicted class, count, share of the class."""
        off = self.matrix - np.diag(np.diag(self.matrix))
        order = np.argsort(-off, axis=None, kind="stable")[:MOST_CLASSES]
        places = [np.unravel_index(place, off.shape) for place in order]
        totals = self.matrix.sum(axis=1)
        return [
            {
                "name": self.names[k],
                "predicted": self.names[p],
                "count": int(off[k, p]),
                "share": float(off[k, p] / totals[k]),
            }
            for k, p in places
            if off[k, p]
        ]


def _facts(learned: Sequence[Learned]) -> dict[str, str]:
    """What was trained on what, by title."""
    first = learned[0]
    scenario, workload = first.trajectory.scenario, first.trajectory.scenario.workload
    part = scenario.participation
    data = workload.data
    adapters = {"full": "all parameters", "none": "the head"}.get(
        workload.adapters, f"LoRA adapters of rank {workload.lora_rank} and the head"
    )
    if first.appraised is not None:
        adapters += f" ({first.appraised.trained:,} values)"
    chosen = f", {part.clients} per round ({part.rule})" if part.clients else ""
    parameters = workload.aggregation_parameters
    iterations = f"{workload.local_iterations} iterations"
    if workload.local_epochs is not None:
        iterations = f"{workload.local_epochs} epochs"
    step = ", ".join(filter(None, [workload.local_step, _keys(workload.local_step_parameters)]))
    skew = {
        "dirichlet": f"concentration {data.concentration:g}",
        "shards": f"{data.shards} per UAV",
    }.get(data.partition, "")
    column = data.partition_column or ""
    versions = first.manifest.get("packages") or {}
    return {
        "Model": workload.model,
        "Trained": adapters,
        "Data": str(first.manifest.get("data") or f"{data.source}, {data.samples} samples"),
        "Partition": ", ".join(
            filter(None, [data.partition, skew, column, _keys(data.partition_parameters)])
        ),
        "UAVs": f"{scenario.uavs.count}{chosen}",
        "Rounds": str(scenario.rounds),
        "Local training": f"{iterations} per round, batches of {workload.batch_size} samples"
        + (f"; local step: {step}" if step else ""),
        "Optimiser": f"{workload.optimiser}, learning rate {workload.learning_rate} "
        f"({workload.learning_rate_schedule})",
        "Aggregation": ", ".join(filter(None, [workload.aggregation, _keys(parameters)])),
        "Seeds": ", ".join(str(each.seed) for each in learned),
        "Versions": ", ".join(f"{n} {versions[n]}" for n in ("torch", "timm") if n in versions),
    }


def _natural_clients(learned: Learned) -> list[dict[str, Any]]:
    """The natural client of each UAV with its samples; empty if there are none."""
    names, counts = learned.manifest.get("clients"), counts_of(learned.manifest.get("partition"))
    if not isinstance(names, list) or len(names) != len(counts):
        return []
    return [
        {"uav": uav, "name": str(name), "samples": sum(n for _, n in row)}
        for uav, (name, row) in enumerate(zip(names, counts, strict=True), start=1)
    ]


def _keys(parameters: Mapping[str, Any]) -> str:
    """Parameters in words."""
    return ", ".join(f"{name} {value}" for name, value in parameters.items())


def _remarks(learned: Sequence[Learned]) -> list[str]:
    """Remarks of all seeds, each once; what is no text is left out."""
    found = [each.manifest.get("remarks") for each in learned]
    lines = [line for own in found if isinstance(own, list) for line in own]
    return list(dict.fromkeys(line for line in lines if isinstance(line, str)))


def _changed(workload: Workload) -> dict[str, Any]:
    """Keys of the workload that have other values than their defaults."""
    given, usual = (trees.flat({"workload": w.model_dump(mode="json")}) for w in
                    (workload, Workload()))  # fmt: skip
    return {key: value for key, value in given.items() if value != usual.get(key)}
