# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Compares results: latencies, error budgets, learning, costs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from orchestrator.analysis.error_budget import PARTS
from orchestrator.analysis.learned import Group, Race, Target, curve_of, values_of
from orchestrator.analysis.statistics import half_width
from orchestrator.records.results import Result
from orchestrator.records.session_reader import PlayedSession
from orchestrator.scenario.channel import check_comparable
from testbed.core import trees
from testbed.core.errors import InputError
from testbed.core.paradigm import paradigm, title_of
from testbed.core.timeline import STEPS, Timeline

PRECISION = ("workload.wire_dtype", "workload.dtype")
CODECS = "workload.codecs"
CODEC = ("workload.wire_parameters", CODECS)
"""Prefixes of further keys of the wire's precision."""
UNLABELLED = {"name", "emulation.dilation", "emulation.runtime", "workload.wire_error"}
"""Keys that do not make experiments different."""
GROUPED = {"seed", *UNLABELLED}
"""Keys in which the results of a group may differ."""
MOST_NAMED = 3
"""Most keys whose values may name a result; if more differ, its folder does."""
MOST_LETTERS = 24
"""Longest value in a name, characters."""
SESSION_COLUMNS = [
    *("run", "direction", "seconds", "offered_mbps", "carried_mbps", "share"),
    *("most_queued_bytes", "valid"),
]
"""Columns of `Comparison.sessions`, which has no rows if no session had a slot."""


@dataclass(frozen=True)
class Comparison:
    """Results to compare; every table has them in the given order."""

    results: Sequence[Result]
    played: Sequence[PlayedSession] = ()
    names: Sequence[str] = ()
    """Names of the results (default: made from their differences)."""
    target: Target | None = None
    """A target of learning; None: there is no target."""

    @cached_property
    def labels(self) -> list[str]:
        """A name for each result."""
        return list(self.names) or label(self.results)

    def __repr__(self) -> str:
        return f"<Comparison of {', '.join([*self.labels, *(s.name for s in self.played)])}>"

    def _repr_html_(self) -> str:
        """The tables, for a notebook."""
        tables = [self.table.dropna(axis=1, how="all"), self.budgets, self.sessions]
        return "".join(table.to_html() for table in tables if len(table))

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per result.

        run, execution, rounds; latency_s, its mean, and latency_low_s and latency_high_s, its
        extremes; against_first, how much longer than the first result's in the rounds that both
        have (a fraction); predicted_s, the mean of the engine's latencies of the same rounds, and
        error, measured over predicted less 1; emulated_s, to the end of the last round;
        max_energy_j and objective, their means; train_loss and train_accuracy (mean over the last
        round's batches), held_out_loss and held_out_accuracy (of the last evaluation),
        smashed_error and gradient_error (root mean square of the codec's relative errors);
        batch_bytes (mean of the smashed data of a batch); valid. NaN where a result has none.
        With a target, also accuracy, loss and perplexity of the last evaluation, and what reaching
        the target costs: time_to_accuracy (s), energy_to_accuracy (J, all UAVs),
        bytes_to_accuracy and rounds_to_accuracy, or the same for loss or perplexity; NaN where the
        target is not reached.
        """
        first = self.results[0].timeline if self.results else Timeline([])
        rows = [
            {
                "run": name,
                **_row(result, first),
                **({} if self.target is None else values_of(curve, self.target)),
            }
            for name, result, curve in zip(self.labels, self.results, self.curves, strict=True)
        ]
        return pd.DataFrame(rows)

    @cached_property
    def curves(self) -> list[pd.DataFrame]:
        """The evaluations of each result, see `orchestrator.analysis.learned.curve_of`."""
        return [curve_of(result.learning, result.timeline) for result in self.results]

    @cached_property
    def groups(self) -> list[Group]:
        """Results with learning, those that differ only in their seed together."""
        learned = [k for k, curve in enumerate(self.curves) if len(curve)]
        return [
            Group(scheme.name, {seed: self.curves[k] for seed, k in scheme.members.items()})
            for scheme in _schemes(self.results, learned, self.labels)
        ]

    @cached_property
    def schemes(self) -> "list[Scheme]":
        """All results, those that differ only in their seed together."""
        return _schemes(self.results, range(len(self.results)), self.labels)

    @property
    def has_repeats(self) -> bool:
        """Whether a scheme has results of several seeds."""
        return any(len(scheme.members) > 1 for scheme in self.schemes)

    @cached_property
    def common_rounds(self) -> set[int]:
        """Indices of the rounds that all results have."""
        rounds = [{r.index for r in result.timeline} for result in self.results]
        return set.intersection(*filter(None, rounds)) if any(rounds) else set()

    @cached_property
    def by_scheme(self) -> pd.DataFrame:
        """One row per scheme that has rounds in the compared seeds, the fastest first.

        name; seeds, the compared ones, which are those that all schemes have, or all of its own if
        there is no such seed; left_out, its other seeds; latency_s, the mean over the seeds of the
        mean over the rounds that all results have, and ci95_s, half its 95 % interval; saved, by
        what fraction of its latency the fastest scheme is faster, and saved_ci95, half the interval
        of this, from the differences in each seed. NaN where there is no interval.
        """
        common = set.intersection(*(set(scheme.members) for scheme in self.schemes))
        rows: list[dict[str, Any]] = []
        for scheme in self.schemes:
            seeds = sorted(common or scheme.members)
            means = np.array([self._mean_latency_s(scheme.members[seed]) for seed in seeds])
            if not np.isfinite(means).all():
                continue
            rows.append(
                {
                    "name": scheme.name,
                    "seeds": seeds,
                    "left_out": sorted(set(scheme.members) - set(seeds)),
                    "latency_s": float(means.mean()),
                    "ci95_s": half_width(means),
                    "by_seed": means,
                }
            )
        rows.sort(key=lambda row: row["latency_s"])
        for row in rows:
            of_best, own = rows[0]["by_seed"], row["by_seed"]
            saved = np.array([1 - of_best.mean() / own.mean() if own.mean() else 0.0])
            if common and own.mean():
                saved = (own - of_best) / own.mean()
            row |= {"saved": float(saved.mean()), "saved_ci95": half_width(saved)}
        return pd.DataFrame(rows)

    def _mean_latency_s(self, number: int) -> float:
        common = self.common_rounds
        took = [
            r.latency_s for r in self.results[number].timeline if not common or r.index in common
        ]
        return float(np.mean(took)) if took else math.nan

    @cached_property
    def race(self) -> Race | None:
        """The group that reaches the target first; None without a target or without learning."""
        if self.target is None or not self.groups:
            return None
        return Race(self.groups, self.target)

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """One row per round of a result: run, and the columns of `Timeline.summary`."""
        return self._stacked([result.timeline.summary() for result in self.results])

    @cached_property
    def steps(self) -> pd.DataFrame:
        """Mean duration of each kind of step over all rounds, s: index run, columns steps."""
        means = []
        for result in self.results:
            spans = result.timeline.frame()
            took = (spans["end_s"] - spans["start_s"]).groupby(spans["step"].astype(str)).mean()
            means.append(took.reindex(list(STEPS)))
        return pd.DataFrame(means, index=pd.Index(self.labels, name="run")).dropna(
            axis=1, how="all"
        )

    @cached_property
    def budgets(self) -> pd.DataFrame:
        """Contribution of each cause to the difference from the payload prediction, mean, s.

        Index: run, for results that have an error budget; columns: causes.
        """
        means = {
            name: result.budget.mean()
            for name, result in zip(self.labels, self.results, strict=True)
            if len(result.budget)
        }
        table = pd.DataFrame(means).T.rename_axis("run")
        causes = [*(p for p in PARTS if p in table), *(p for p in table if p not in PARTS)]
        return table[causes]

    @cached_property
    def session_labels(self) -> list[str]:
        """The names of the sessions, with a number where several have the same."""
        return _with_numbers([session.name for session in self.played])

    @cached_property
    def sessions(self) -> pd.DataFrame:
        """One row per session and direction.

        run, direction, seconds, offered_mbps and carried_mbps (of all links together), share
        (carried of offered), most_queued_bytes (of any link), valid.
        """
        rows = []
        for name, session in zip(self.session_labels, self.played, strict=True):
            for direction, own in session.table.groupby("direction", sort=False):
                offered, carried = (
                    float(own[f"{what}_bytes"].sum()) * 8e-6 / session.seconds
                    for what in ("offered", "carried")
                )
                rows.append(
                    {
                        "run": name,
                        "direction": str(direction),
                        "seconds": session.seconds,
                        "offered_mbps": offered,
                        "carried_mbps": carried,
                        "share": carried / offered if offered else float("nan"),
                        "most_queued_bytes": int(own["queued_bytes"].max()),
                        "valid": session.valid,
                    }
                )
        return pd.DataFrame(rows, columns=SESSION_COLUMNS)

    @cached_property
    def differing(self) -> dict[str, list[Any]]:
        """By dotted key in which scenarios differ: values of the results, then of the sessions."""
        return differing([*self.results, *self.played])

    @property
    def lacks(self) -> list[str]:
        """Missing parts of results, one line each."""
        return list(dict.fromkeys(line for result in self.results for line in result.lacks))

    def to_json(self) -> list[dict[str, Any]]:
        """A JSON object per result: its row, rounds, mean steps and budget; then the sessions'.

        With a target, the last object has execution = target, the target, the answer in words, and
        the rows of `Race.table` as groups.
        """
        objects = []
        for row in plain_rows(self.table):
            mine = row["run"]
            own = self.rounds[self.rounds["run"] == mine]
            columns = ["round", "start_s", "latency_s", "max_energy_j", "objective"]
            row["latencies"] = plain_rows(own[columns])
            row["steps_s"] = plain_rows(self.steps.loc[[mine]])[0]
            row["budget_s"] = (
                plain_rows(self.budgets.loc[[mine]])[0] if mine in self.budgets.index else None
            )
            objects.append(row)
        objects += [{"execution": "session", **row} for row in plain_rows(self.sessions)]
        if self.target is not None and self.race is not None:
            objects.append(
                {
                    "execution": "target",
                    "target": {self.target.measure: self.target.value},
                    "answer": self.race.sentences(),
                    "groups": plain_rows(self.race.table()),
                }
            )
        return objects

    def _stacked(self, tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
        named = [
            table.assign(run=name)[["run", *table.columns]]
            for name, table in zip(self.labels, tables, strict=True)
        ]
        return pd.concat(named, ignore_index=True) if named else pd.DataFrame()


def compare(
    given: Sequence[Result | PlayedSession],
    names: Sequence[str] = (),
    target: Target | None = None,
) -> Comparison:
    """Compare results and sessions.

    Args:
        given: Results and sessions.
        names: Names of the results (default: made from their differences).
        target: A target that results must reach.

    Raises:
        InputError: `given` is empty, or paradigms cannot be compared: see `check_comparable`; or
            there is a target and no result was evaluated on held-out data.
    """
    if not given:
        raise InputError("`results`: nothing was given to compare")
    results = [each for each in given if isinstance(each, Result)]
    check_comparable(
        paradigm(round_.paradigm)
        for result in results
        if result.downlink_is_open
        for round_ in result.timeline.rounds[:1]
    )
    sessions = [each for each in given if isinstance(each, PlayedSession)]
    made = Comparison(results, sessions, names, target)
    if target is not None and not any(map(len, made.curves)):
        raise InputError(
            "`target`: no result was evaluated on held-out data; workload.evaluate_every is the "
            "key, and `learned` adds what was learned without a network"
        )
    return made


@dataclass(frozen=True)
class Scheme:
    """Results that differ only in their seed."""

    name: str
    members: dict[int, int]
    """By seed: the number of the result."""


def _schemes(
    results: Sequence[Result], chosen: Sequence[int], labels: Sequence[str]
) -> list[Scheme]:
    """Some of the results by scheme; one scheme per result if two of them have the same seed."""
    seeds = [_values(results[k]).get("seed", k) for k in chosen]
    keys = [key for key in differing([results[k] for k in chosen]) if key not in GROUPED]
    found: dict[str, list[int]] = {}
    for k in chosen:
        own = _values(results[k])
        kind = [paradigm_of(results[k]), results[k].execution, *(own.get(key) for key in keys)]
        found.setdefault(str(kind), []).append(k)
    by_seed = dict(zip(chosen, seeds, strict=True))
    if any(len({by_seed[k] for k in members}) < len(members) for members in found.values()):
        return [Scheme(labels[k], {by_seed[k]: k}) for k in chosen]
    if all(len(members) == 1 for members in found.values()):
        names = [labels[k] for k in chosen]
    else:
        names = label([_without_seed(results[members[0]]) for members in found.values()])
    return [
        Scheme(name, {by_seed[k]: k for k in members})
        for name, members in zip(names, found.values(), strict=True)
    ]


def _without_seed(result: Result) -> Result:
    if result.scenario is None:
        return result
    return replace(result, scenario=result.scenario.model_copy(update={"seed": 0}))


def _row(result: Result, first: Timeline) -> dict[str, Any]:
    took = _latencies(result.timeline)
    train, held_out = train_of(result), held_out_of(result)
    last = train[train["round"] == train["round"].max()]
    end = held_out.tail(1)
    steps = result.timeline.frame()
    both = pd.concat([took, _latencies(result.prediction)], axis=1, join="inner")
    mine, theirs = both.sum()
    return {
        "execution": result.execution,
        "rounds": len(took),
        "latency_s": took.mean(),
        "latency_low_s": took.min(),
        "latency_high_s": took.max(),
        "against_first": _relative(took, _latencies(first)),
        "predicted_s": theirs / len(both) if len(both) else np.nan,
        "error": mine / theirs - 1 if theirs else np.nan,
        "emulated_s": result.timeline.end_s,
        "max_energy_j": float(np.mean([r.energy_j.max() for r in result.timeline])),
        "objective": float(np.mean([r.objective for r in result.timeline])),
        "train_loss": last["loss"].mean(),
        "train_accuracy": last["accuracy"].mean(),
        "held_out_loss": end["loss"].mean(),
        "held_out_accuracy": end["accuracy"].mean(),
        "smashed_error": _rms(train, "smashed_error"),
        "gradient_error": _rms(train, "gradient_error"),
        "batch_bytes": steps[steps["step"] == "CA"]["bytes"].mean(),
        "valid": result.valid,
    }


def _latencies(timeline: Timeline) -> pd.Series:
    """Latencies in s, by round."""
    return pd.Series({r.index: r.latency_s for r in timeline}, dtype=float)


def _relative(latency_s: pd.Series, to_s: pd.Series) -> float:
    """Relative difference over the common rounds; NaN if these take no time."""
    common = latency_s.index.intersection(to_s.index)
    theirs = to_s[common].sum()
    return float(latency_s[common].sum() / theirs - 1) if theirs else np.nan


def plain_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The table's rows as JSON values, with null for NaN and infinity."""
    known = table.replace([np.inf, -np.inf], np.nan).notna()
    cells = table.astype(object).where(known, None)
    return [{str(name): value for name, value in row.items()} for row in cells.to_dict("records")]


def train_of(result: Result) -> pd.DataFrame:
    """Training values of each batch, by time; empty if the result has no learning."""
    return _part(result, "train")


def held_out_of(result: Result) -> pd.DataFrame:
    """Evaluation results, by time; empty if there are none."""
    return _part(result, "held-out")


def _part(result: Result, data: str) -> pd.DataFrame:
    table = result.learning
    if table.empty:
        return pd.DataFrame({"round": [], "time_s": [], "loss": [], "accuracy": []})
    if "data" not in table:  # written before evaluations existed
        table = table.assign(data="train")
    return table[table["data"] == data].sort_values("time_s", kind="stable")


def _rms(table: pd.DataFrame, column: str) -> float:
    if column not in table:
        return float("nan")
    return float(np.sqrt((table[column] ** 2).mean()))


def label(results: Sequence[Result]) -> list[str]:
    """Name each result by its paradigm and the values of other keys in which results differ.

    If these are many or long, folders are used instead; the execution is added where it differs.
    """
    keys = [key for key in differing(results) if key not in {"paradigm", *UNLABELLED}]
    values = [_values(result) for result in results]
    distinctions = [
        [f"{key.rpartition('.')[2]} {own[key]}" for key in keys if key in own] for own in values
    ]
    long = max((len(part) for parts in distinctions for part in parts), default=0) > MOST_LETTERS
    if len(keys) > MOST_NAMED or long:
        distinctions = [[result.name] for result in results]
    if len({result.execution for result in results}) > 1:
        for parts, result in zip(distinctions, results, strict=True):
            parts.append(result.execution)
    names = [
        ", ".join([title_of(paradigm_of(result)), *parts])
        for result, parts in zip(results, distinctions, strict=True)
    ]
    return _with_numbers(
        [
            f"{name} ({result.name})" if names.count(name) > 1 else name
            for name, result in zip(names, results, strict=True)
        ]
    )


def paradigm_of(result: Result) -> str:
    """The paradigm of a result's scenario, or of its first round if it has no scenario."""
    return result.scenario.paradigm if result.scenario else result.timeline[0].paradigm


def _values(result: Result | PlayedSession) -> dict[str, Any]:
    """The values of its scenario by dotted key; empty if it has no scenario."""
    return trees.flat(result.scenario.model_dump(mode="json")) if result.scenario else {}


def _with_numbers(names: Sequence[str]) -> list[str]:
    """The names, made unique by numbers: the second of two equal ones is numbered 2."""
    return [
        f"{name} {names[: k + 1].count(name)}" if name in names[:k] else name
        for k, name in enumerate(names)
    ]


def differing(results: Sequence[Result | PlayedSession]) -> dict[str, list[Any]]:
    """Values of each result, by dotted key in which scenarios differ.

    The value is None if a result has no scenario.
    """
    values = [_values(result) for result in results]
    keys = trees.differing([own for own in values if own])
    return {key: [own.get(key) for own in values] for key in keys}


def _is_exact(result: Result) -> bool:
    """Whether a run computed and sent everything as float32."""
    values = _values(result)
    plain = all(values.get(key) == "float32" for key in PRECISION)
    return plain and not any(key.startswith(CODECS) for key in values)


def precision_costs(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Cost of lower precision: each run compared with the float32 run of the same scenario.

    Returns:
        run, against, and the differences in the last common round: train_loss, and held_out_loss
        and held_out_accuracy where both were evaluated (otherwise NaN).
    """
    labels, costs = label(results), []
    for k, run in enumerate(results):
        if run.learning.empty or _is_exact(run):
            continue
        for base, other in enumerate(results):
            different = set(differing([run, other])) - UNLABELLED - {"rounds"}
            keys = {key for key in different if not key.startswith(CODEC)}
            if _is_exact(other) and keys <= set(PRECISION):
                costs.append(
                    {
                        "run": labels[k],
                        "against": labels[base],
                        "train_loss": _difference(train_of(run), train_of(other), "loss"),
                        "held_out_loss": _difference(held_out_of(run), held_out_of(other), "loss"),
                        "held_out_accuracy": _difference(
                            held_out_of(run), held_out_of(other), "accuracy"
                        ),
                    }
                )
                break
    return costs


def _difference(left: pd.DataFrame, right: pd.DataFrame, column: str) -> float:
    """Difference of the means in the last common round."""
    means = [table.groupby("round")[column].mean() for table in (left, right)]
    common = means[0].index.intersection(means[1].index)
    if not len(common):
        return float("nan")
    return float(means[0][common.max()] - means[1][common.max()])
