# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Results of learning and their costs: held-out curves, targets, and the result that reaches a
target first.

All functions use evaluations of the global model on held-out data; training batches do not count.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from orchestrator.analysis.statistics import NEGLIGIBLE
from testbed.core.errors import InputError
from testbed.core.timeline import Timeline
from testbed.core.words import not_one_of

MEASURES = {"accuracy": "an accuracy", "loss": "a loss", "perplexity": "a perplexity"}
"""Quantities that are evaluated on held-out data, with words for sentences; perplexity is
exp(loss)."""
COSTS = {
    "time": ("time_s", "s"),
    "energy": ("energy_j", "J"),
    "bytes": ("bytes", "B"),
    "rounds": ("rounds", "rounds"),
}
"""Costs of reaching a target: column of a curve, and unit."""
X_TITLES = {
    "time_s": "Emulated time (s)",
    "round": "Rounds",
    "energy_j": "Energy of all UAVs (J)",
    "bytes": "Payload of all transfers (bytes)",
}
"""Quantities over which a curve may be drawn, with their titles."""
Y_TITLES = {
    "accuracy": "Held-out accuracy (%)",
    "loss": "Held-out loss",
    "perplexity": "Held-out perplexity",
}
"""Titles of `MEASURES` on a vertical axis."""
ALIKE = 0.01
"""Share of the axes within which curves of a chart count as the same."""
CURVE = ("round", "time_s", "energy_j", "bytes", *MEASURES)
"""Columns of a curve."""
BEST = {f"best_{measure}": measure for measure in MEASURES}
"""Metrics of the best evaluation, and their measures."""
NAMES = (*MEASURES, *BEST, *(f"{cost}_to_{measure}" for cost in COSTS for measure in MEASURES))
"""Names of all metrics of learning."""
ACCURACIES = ("accuracy", "best_accuracy")
"""Metrics that are fractions, and of which larger values are better."""


@dataclass(frozen=True)
class Target:
    """A value that a measure is to reach: from below for accuracy, from above for the others."""

    measure: str
    """One of `MEASURES`."""
    value: float

    @classmethod
    def of(cls, measure: str, value: float, field: str) -> "Target":
        """A target whose measure and value are checked.

        Raises:
            InputError: No evaluation can have such a value; the message begins with `field`.
        """
        if measure not in MEASURES:
            raise InputError(f"{field}: {not_one_of(measure, MEASURES)}")
        if measure == "accuracy" and not 0 < value <= 1:
            raise InputError(
                f"{field}: accuracy must be above 0 and at most 1 (0.8 is 80 %), not {value:g}"
            )
        if not math.isfinite(value) or value <= 0 or (measure == "perplexity" and value < 1):
            least = "at least 1" if measure == "perplexity" else "above 0"
            raise InputError(f"{field}: {measure} must be a number {least}, not {value:g}")
        return cls(measure, value)

    @classmethod
    def parse(cls, text: str, field: str = "target") -> "Target":
        """The target in a text such as `accuracy=0.8`.

        Raises:
            InputError: The text contains no target; the message begins with `field`.
        """
        name, _, value = text.partition("=")
        try:
            number = float(value)
        except ValueError:
            raise InputError(f"{field}: must be like accuracy=0.8, not {text!r}") from None
        return cls.of(name.strip(), number, field)

    def __str__(self) -> str:
        shown = f"{100 * self.value:g} %" if self.measure == "accuracy" else f"{self.value:g}"
        return f"{MEASURES[self.measure]} of {shown}"

    def reached(self, values: "pd.Series[float]") -> "pd.Series[bool]":
        """Mask of the values that reach the target; NaN does not."""
        return values >= self.value if self.measure == "accuracy" else values <= self.value


def curve_of(learning: pd.DataFrame, timeline: Timeline) -> pd.DataFrame:
    """The evaluations on held-out data, and the cumulative costs at each of them.

    Args:
        learning: The table `learning.parquet`.
        timeline: The rounds of the same run.

    Returns:
        One row per evaluation, with the columns `CURVE`. `round` is the number of rounds before the
        evaluation; `energy_j` the energy of all UAVs, and `bytes` the payload of all transfers in
        both directions, from the start until the end of the round of the evaluation, also where
        the evaluation is within this round.
    """
    if "data" not in learning:
        return pd.DataFrame(columns=CURVE, dtype=float)
    own = learning[learning["data"] == "held-out"].sort_values("time_s", kind="stable")
    indices = [round_.index for round_ in timeline]
    energy_j = np.cumsum([0.0, *(float(round_.energy_j.sum()) for round_ in timeline)])
    sent = np.cumsum([0.0, *(float(round_.spans["bytes"].sum()) for round_ in timeline)])
    done = np.searchsorted(indices, own["round"].to_numpy(), side="right")
    with np.errstate(over="ignore"):
        perplexity = np.exp(own["loss"].to_numpy(float))
    return pd.DataFrame(
        {
            "round": own["round"].to_numpy() + 1,
            "time_s": own["time_s"].to_numpy(float),
            "energy_j": energy_j[done],
            "bytes": sent[done],
            "loss": own["loss"].to_numpy(float),
            "accuracy": own["accuracy"].to_numpy(float),
            "perplexity": perplexity,
        }
    )[list(CURVE)]


def costs_of(curve: pd.DataFrame, target: Target) -> dict[str, float]:
    """Costs until the first evaluation that reaches a target, by `COSTS`; NaN if none does."""
    there = curve[target.reached(curve[target.measure])]
    if there.empty:
        return dict.fromkeys(COSTS, math.nan)
    first = there.iloc[0]
    return {
        cost: float(first["round" if cost == "rounds" else column])
        for cost, (column, _) in COSTS.items()
    }


def values_of(curve: pd.DataFrame, target: Target | None = None) -> dict[str, float]:
    """The metrics of a curve by name: the last and the best evaluation, and the costs of reaching a
    target.

    Values are NaN where nothing was evaluated, or where the target is not reached.
    """
    found = {name: float(curve[name].iloc[-1]) if len(curve) else math.nan for name in MEASURES}
    for name, measure in BEST.items():
        finite = curve[measure][np.isfinite(curve[measure].astype(float))]
        found[name] = float(finite.max() if measure == "accuracy" else finite.min())
    if target is None:
        return found
    costs = costs_of(curve, target)
    return found | {f"{cost}_to_{target.measure}": value for cost, value in costs.items()}


@dataclass(frozen=True)
class Evaluation:
    """An evaluation on held-out data."""

    rounds: int
    """Number of rounds before it."""
    loss: float
    accuracy: float
    """A fraction."""

    @property
    def when(self) -> str:
        """The number of rounds in words."""
        if not self.rounds:
            return "before the first round"
        return f"after {self.rounds} round{'s' * (self.rounds > 1)}"

    def value(self, measure: str) -> float:
        """The value of one of `MEASURES`."""
        if measure == "accuracy":
            return self.accuracy
        with np.errstate(over="ignore"):
            return float(np.exp(self.loss)) if measure == "perplexity" else self.loss

    def shown(self, measure: str) -> str:
        """The value in words."""
        value = self.value(measure)
        if not math.isfinite(value):
            return "not finite"
        return f"{100 * value:.1f} %" if measure == "accuracy" else f"{value:.4g}"


@dataclass(frozen=True)
class Outcome:
    """The evaluations of a training, with the last and the best one."""

    measure: str
    """One of `MEASURES`."""
    evaluations: Sequence[Evaluation]
    """In chronological order."""

    @classmethod
    def of(cls, learning: pd.DataFrame, measure: str) -> "Outcome | None":
        """The outcome of a table `learning.parquet`; None if nothing was evaluated."""
        if "data" not in learning:
            return None
        held_out = learning[learning["data"] == "held-out"]
        if "time_s" in held_out:
            held_out = held_out.sort_values("time_s", kind="stable")
        rows = held_out[["round", "loss", "accuracy"]].astype(float).itertuples(index=False)
        found = [Evaluation(int(index) + 1, loss, accuracy) for index, loss, accuracy in rows]
        return cls(measure, found) if found else None

    @property
    def last(self) -> Evaluation:
        """The last evaluation."""
        return self.evaluations[-1]

    @property
    def best(self) -> Evaluation:
        """The first evaluation with the best value."""
        sign = -1 if self.measure == "accuracy" else 1

        def order(evaluation: Evaluation) -> float:
            value = evaluation.value(self.measure)
            return sign * value if math.isfinite(value) else math.inf

        return min(self.evaluations, key=order)

    @property
    def notes(self) -> str:
        """The best value and the value before the first round, in parentheses; empty if there is
        only one evaluation."""
        if len(self.evaluations) == 1:
            return ""
        notes = [f"best {self.best.shown(self.measure)} {self.best.when}"]
        first = self.evaluations[0]
        if first.rounds == 0 and self.best is not first:
            notes.append(f"{first.shown(self.measure)} before the first round")
        return f" ({'; '.join(notes)})"

    def line(self) -> str:
        """The outcome as a line of the console."""
        last = self.last
        values = f"loss {last.loss:.4f}, accuracy {100 * last.accuracy:.2f} %"
        if self.measure == "perplexity":
            values += f", perplexity {last.shown(self.measure)}"
        return f"held-out {last.when}: {values}{self.notes}"

    def sentence(self) -> str:
        """The outcome as a sentence."""
        shown = self.last.shown(self.measure)
        return f"The held-out {self.measure} is {shown} {self.last.when}{self.notes}."


@dataclass(frozen=True)
class Group:
    """Results that differ only in their seed."""

    name: str
    curves: Mapping[int, pd.DataFrame] = field(default_factory=dict)
    """Curves of the results, by random seed."""


@dataclass(frozen=True)
class Reached:
    """Costs at which a group reaches a target; means are over the seeds that reach it."""

    name: str
    seeds: int
    """Number of results."""
    costs: Mapping[str, Mapping[int, float]]
    """Cost of reaching the target, by kind of cost and seed, for the seeds that reach it."""
    best: float
    """The best value of the measure in any evaluation of any seed; NaN if there is none."""

    @property
    def count(self) -> int:
        """Number of seeds that reach the target."""
        return len(self.costs["time"])

    def mean(self, cost: str) -> float:
        """Mean of a cost; NaN if no seed reaches the target."""
        values = list(self.costs[cost].values())
        return float(np.mean(values)) if values else math.nan

    def extremes(self, cost: str) -> tuple[float, float]:
        """Least and largest cost; NaN if no seed reaches the target."""
        values = list(self.costs[cost].values()) or [math.nan]
        return min(values), max(values)


class Race:
    """Comparison of several groups: the first one to reach a target, and its lead.

    Only seeds that all groups have are compared, since the seed decides how a result begins. If
    there is no such seed, each group has all of its seeds, and the answer reports it. A seed in
    which a group reaches the target before its first round does not count: nothing was trained. The
    first is the group of which the largest part of the seeds reaches the target; among equal parts,
    the one with the smallest mean time.
    """

    def __init__(self, groups: Iterable[Group], target: Target) -> None:
        self.target = target
        given = list(groups)
        common = set.intersection(*(set(group.curves) for group in given)) if given else set()
        self.is_paired = bool(common)
        """Whether the groups have a seed in common."""
        self.left_out = {
            group.name: sorted(set(group.curves) - common)
            for group in given
            if common and set(group.curves) - common
        }
        """By group: seeds that are not compared because another group does not have them."""
        self.at_start: dict[str, list[int]] = {}
        """By group: seeds in which it reaches the target before the first round."""
        for group in given:
            rounds = _reached(group, target).costs["rounds"]
            seeds = [s for s, n in rounds.items() if n == 0 and (s in common or not common)]
            if seeds:
                self.at_start[group.name] = sorted(seeds)
        trivial = {seed for seeds in self.at_start.values() for seed in seeds}
        reached = [
            _reached(
                Group(
                    group.name,
                    {
                        seed: curve
                        for seed, curve in group.curves.items()
                        if seed not in trivial and (seed in common or not common)
                    },
                ),
                target,
            )
            for group in given
        ]
        self.groups = sorted(reached, key=_order)
        """The groups with the compared seeds, in the order of their arrival; those that never
        arrive are last."""

    def saving(self, cost: str = "time") -> tuple[float, float, float]:
        """Savings of the first group over the second, as fractions of the second group's costs.

        Returns:
            The saving in the means over the seeds in which both reach the target, and the extremes
            over these seeds; NaN if there are no such seeds.
        """
        return _saving(self.groups[0], self.groups[1], cost)

    def sentences(self) -> str:
        """The answer in words: the first sentence names the first group, its time and its lead."""
        if self.at_start and not any(group.seeds for group in self.groups):
            answer = f"Nothing is compared: {self._before_the_first_round()}."
            return f"{answer}{self._apart()}"
        there = [group for group in self.groups if group.count]
        if not there:
            return f"{self._none()}{self._rest()}"
        first = there[0]
        tied = [group for group in there[1:] if _is_tie(first, group)]
        others = [group for group in there[1:] if group not in tied]
        is_first = " first" * (len(tied) + 1 < len(self.groups))
        if tied:
            names = _listed([first.name, *(group.name for group in tied)])
            answer = (
                f"{names} reach {self.target}{is_first}, at the same time, {_in_seeds(first)}after "
                f"{_span(first, 'time')}"
            )
            more = [f"{group.name} {_arrival(group)}" for group in others]
        elif any(_is_faster(other, first) for other in others) and all(
            other.count / other.seeds < first.count / first.seeds for other in others
        ):
            # Others are faster where they reach the target, but in fewer seeds.
            answer = (
                f"{first.name} reaches {self.target} in more seeds than the others "
                f"({first.count} of {first.seeds}), after {_span(first, 'time')}"
            )
            more = [f"{group.name} {_arrival(group)}" for group in others]
        else:
            margin = f", {_margin(first, others[0])}" if others else ""
            answer = (
                f"{first.name} reaches {self.target}{is_first}, {_in_seeds(first)}after "
                f"{_span(first, 'time')}{margin}"
            )
            partly = others[:1] if others and others[0].count < others[0].seeds else []
            more = [f"{group.name} {_arrival(group)}" for group in [*partly, *others[1:]]]
        if never := [group.name for group in self.groups if not group.count]:
            more.append(f"{_listed(never)} never {'reach' if len(never) > 1 else 'reaches'} it")
        return f"{answer}." + (f" {'; '.join(more)}." if more else "") + self._rest()

    def _rest(self) -> str:
        """Sentences about seeds that were not compared, with a space before; empty without any."""
        found = f" Not counted: {self._before_the_first_round()}." if self.at_start else ""
        return found + self._apart()

    def _before_the_first_round(self) -> str:
        seeds = [f"{name} (seed {_numbers(own)})" for name, own in self.at_start.items()]
        return f"before the first round, {self.target} is already reached by {_listed(seeds)}"

    def _apart(self) -> str:
        """Sentences about seeds that only some groups have."""
        if not self.is_paired and len(self.groups) > 1:
            return " The results have no seed in common, so that the times are of different draws."
        if not self.left_out:
            return ""
        own = [f"seed {_numbers(seeds)} of {name}" for name, seeds in self.left_out.items()]
        return f" Not compared, because the others lack it: {_listed(own)}."

    def _none(self) -> str:
        best = [group for group in self.groups if math.isfinite(group.best)]
        several = len(self.groups) > 1
        names = "No result reaches" if several else f"{self.groups[0].name} never reaches"
        if not best:
            return f"{names} {self.target}: nothing was evaluated on held-out data."
        accuracy = self.target.measure == "accuracy"
        top = (max if accuracy else min)(best, key=lambda group: group.best)
        shown = f"{100 * top.best:.1f} %" if accuracy else f"{top.best:.4g}"
        whose = f" ({top.name})" * several
        return f"{names} {self.target}; the best is {shown}{whose}."

    def table(self) -> pd.DataFrame:
        """One row per group, in the order of arrival.

        name, seeds, reached (number of seeds), then time_s, energy_j, bytes and rounds, the means
        over the seeds that reach the target, each with its extremes NAME_low and NAME_high; and
        best, the best value in any evaluation.
        """
        rows = []
        for group in self.groups:
            row: dict[str, Any] = {
                "name": group.name,
                "seeds": group.seeds,
                "reached": group.count,
            }
            for cost, (name, _) in COSTS.items():
                low, high = group.extremes(cost)
                row |= {name: group.mean(cost), f"{name}_low": low, f"{name}_high": high}
            rows.append(row | {"best": group.best})
        return pd.DataFrame(rows)


def _reached(group: Group, target: Target) -> Reached:
    by_seed = {seed: costs_of(curve, target) for seed, curve in group.curves.items()}
    there = {seed: costs for seed, costs in by_seed.items() if math.isfinite(costs["time"])}
    curves = [curve[target.measure].astype(float) for curve in group.curves.values()]
    values = pd.concat([pd.Series(dtype=float), *curves])
    values = values[np.isfinite(values)]
    best = values.max() if target.measure == "accuracy" else values.min()
    costs = {cost: {seed: each[cost] for seed, each in there.items()} for cost in COSTS}
    return Reached(group.name, len(by_seed), costs, float(best) if len(values) else math.nan)


def _order(group: Reached) -> tuple[float, float]:
    share = group.count / group.seeds if group.seeds else 0.0
    return -share, group.mean("time") if group.count else math.inf


def _saving(first: Reached, second: Reached, cost: str = "time") -> tuple[float, float, float]:
    mine, theirs = (group.costs[cost] for group in (first, second))
    both = sorted(mine.keys() & theirs.keys())
    a, b = (np.array([each[seed] for seed in both]) for each in (mine, theirs))
    if not both or not (b > 0).all():
        return math.nan, math.nan, math.nan
    each = 1 - a / b
    return float(1 - a.mean() / b.mean()), float(each.min()), float(each.max())


def _is_tie(first: Reached, other: Reached) -> bool:
    """Whether two groups reach the target in the same seeds, and on average at the same time."""
    means = [group.mean("time") for group in (first, other)]
    same = first.costs["time"].keys() == other.costs["time"].keys()
    return same and abs(means[0] - means[1]) <= NEGLIGIBLE * abs(means[0])


def _is_faster(other: Reached, first: Reached) -> bool:
    """Whether a group is faster than the first, on average or where both reach the target."""
    return other.mean("time") < first.mean("time") or _saving(first, other)[0] < 0


def _margin(first: Reached, second: Reached) -> str:
    """The lead of the first group; all numbers are of the same seeds, or the seeds are named."""
    saved, low, high = _saving(first, second)
    after = f"{second.name} (after {second.mean('time'):.4g} s)"
    mine, theirs = (group.costs["time"] for group in (first, second))
    both = sorted(mine.keys() & theirs.keys())
    if not math.isfinite(saved):
        return f"before {after}"
    least, most = _percent(low), _percent(high)
    spread = f" ({least} to {most} % by seed)" * (len(both) > 1 and least != most)
    if mine.keys() == theirs.keys():
        return f"{_percent(saved)} %{spread} earlier than {after}"
    means = [np.mean([each[seed] for seed in both]) for each in (mine, theirs)]
    where = "the seed" if len(both) == 1 else f"the {len(both)} seeds"
    lead = f"{_percent(abs(saved))} % {'earlier' if saved >= 0 else 'later'}"
    return (
        f"before {after}; in {where} in which both reach it, {first.name} is {lead} "
        f"({means[0]:.4g} s against {means[1]:.4g} s)"
    )


def _numbers(seeds: Sequence[int]) -> str:
    return _listed([str(seed) for seed in seeds])


def _in_seeds(group: Reached) -> str:
    return f"in {group.count} of {group.seeds} seeds, " if group.count < group.seeds else ""


def _span(group: Reached, cost: str) -> str:
    unit, (low, high) = COSTS[cost][1], group.extremes(cost)
    if group.count < 2:
        return f"{low:.4g} {unit}"
    least, most = f"{low:.4g}", f"{high:.4g}"
    extremes = f"{least} to {most} {unit} " * (least != most)
    return f"{group.mean(cost):.4g} {unit} ({extremes}over {group.count} seeds)"


def _arrival(group: Reached) -> str:
    return f"reaches it {_in_seeds(group)}after {_span(group, 'time')}"


def _percent(fraction: float) -> str:
    value = 100 * fraction
    return (f"{value:.0f}" if abs(value) >= 9.95 else f"{value:.2g}").replace("-", "−")


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def band(curves: Sequence[pd.DataFrame], x: str, y: str) -> dict[str, npt.NDArray[np.float64]]:
    """The mean of several curves and their extremes, at each evaluation that all of them have.

    Nothing is interpolated. Between two evaluations, the value of the earlier one holds.

    Args:
        curves: Curves of several seeds; values that are not finite count as not evaluated.
        x: Column of the horizontal axis, one of `X_TITLES`; its mean over the seeds is returned.
        y: One of `MEASURES`.

    Returns:
        Arrays x, mean, low and high, shape [evaluations]; empty if the curves have no evaluation in
        common.
    """
    columns = ("x", "mean", "low", "high")
    found = pd.concat(
        [
            pd.DataFrame(
                {
                    "evaluation": curve["round"],
                    # A round may be evaluated more than once in asynchronous rounds.
                    "again": curve.groupby("round").cumcount(),
                    "x": curve[x].astype(float),
                    "y": curve[y].astype(float),
                }
            )
            for curve in curves
        ]
    )
    found = found[np.isfinite(found["y"])].groupby(["evaluation", "again"])
    table = found.agg(
        x=("x", "mean"), mean=("y", "mean"), low=("y", "min"), high=("y", "max"), of=("y", "size")
    )
    table = table[table["of"] == len(curves)]
    return {name: table[name].to_numpy(float) for name in columns}


def coinciding(groups: Sequence[Group], x: str, y: str) -> list[list[str]]:
    """Names of groups whose curves lie on each other in a chart.

    The means of such curves differ in no evaluation that both have by more than `ALIKE` of the
    largest place and of the largest value of the chart.

    Args:
        groups: Groups of results with curves.
        x: Column of the horizontal axis, one of `X_TITLES`.
        y: One of `MEASURES`.
    """
    bands = {group.name: band(list(group.curves.values()), x, y) for group in groups}
    drawn = {
        name: np.array([own["x"], own["mean"]]) for name, own in bands.items() if len(own["x"])
    }
    if not drawn:
        return []
    most = np.max([np.abs(own).max(axis=1) for own in drawn.values()], axis=0)[:, np.newaxis]
    found: list[list[str]] = []
    for name, own in drawn.items():
        for names in found:
            other = drawn[names[0]]
            both = min(own.shape[1], other.shape[1])
            if (np.abs(own[:, :both] - other[:, :both]) <= ALIKE * most).all():
                names.append(name)
                break
        else:
            found.append([name])
    return [names for names in found if len(names) > 1]


def improvements(curve: pd.DataFrame) -> list[tuple[float, float]]:
    """Times in s and accuracies of the evaluations that are more accurate than all before them.

    The first of them with at least a certain accuracy is the first evaluation that reaches it.
    """
    known = curve[np.isfinite(curve[["time_s", "accuracy"]].astype(float)).all(axis=1)]
    accuracy = known["accuracy"].to_numpy(float)
    before = np.maximum.accumulate(np.concatenate([[-np.inf], accuracy]))[:-1]
    better = known[accuracy > before]
    return list(zip(better["time_s"].tolist(), better["accuracy"].tolist(), strict=True))
