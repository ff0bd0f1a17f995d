# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The region in which a model is valid: leaves of a small decision tree over the varied keys."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.statistics import Interval, share_of
from orchestrator.engine.plan import Array

Flags = npt.NDArray[np.bool_]

DEPTH = 4
"""Most conditions of a rule."""
PURE = 0.99
"""Share of a leaf's points at which the model must be valid for the leaf to be included."""
LEAST = 0.01
"""Least share of all points in a leaf."""
HELD_OUT = 0.3
"""Share of the points that are held out from fitting the tree."""


@dataclass(frozen=True)
class Condition:
    """A bound of one key."""

    column: int
    at_most: bool
    """`<=`, else `>`."""
    value: float

    def of(self, values: Array) -> Flags:
        """Whether it is met at points, shape [N, columns]."""
        column = values[:, self.column]
        met: Flags = column <= self.value if self.at_most else column > self.value
        return met

    def text(self, names: Sequence[str]) -> str:
        """The condition as text."""
        name = names[self.column]
        if " = " in name:  # indicator of one of several non-numeric values
            return name.replace(" = ", " is not ", 1) if self.at_most else name
        return f"{name} {'<=' if self.at_most else '>'} {self.value:g}"


@dataclass(frozen=True)
class Region:
    """Region in which a model is valid within a tolerance: points that meet at least one rule."""

    tolerance: float
    names: list[str]
    """Names of the columns."""
    rules: list[tuple[Condition, ...]]
    """Rules; without any the region is empty, with one without conditions it is the whole space."""
    share: float
    """Share of the space."""
    held_out_share: float | None
    """Share of held-out points in the region at which the model is valid; None without any."""
    held_out: int
    """Number of held-out points in the region."""

    @property
    def checked(self) -> Interval:
        """`held_out_share` with its 95 % interval; NaN without held-out points in the region."""
        return share_of(round((self.held_out_share or 0.0) * self.held_out), self.held_out)

    @property
    def is_confirmed(self) -> bool:
        """Whether the held-out points allow that the model is valid at `PURE` of the region."""
        return self.checked.exists and self.checked.high >= PURE

    def has(self, values: Array) -> Flags:
        """Whether points, shape [N, columns], are in the region."""
        inside = np.zeros(len(values), np.bool_)
        for rule in self.rules:
            inside |= np.all(
                [np.ones(len(values), np.bool_), *(c.of(values) for c in rule)], axis=0
            )
        return inside

    def texts(self) -> list[str]:
        """One line per rule."""
        return [
            " and ".join(condition.text(self.names) for condition in rule) or "everywhere"
            for rule in self.rules
        ]


def region(
    names: list[str], values: Array, holds: Flags, tolerance: float, rng: np.random.Generator
) -> Region:
    """Fit the region in which a model is valid.

    Args:
        names: Names of the columns.
        values: Values of the keys at the points, shape [N, columns].
        holds: Whether the model is valid at the points, shape [N].
        tolerance: Tolerance of `holds`.
        rng: Draws the held-out points.
    """
    order = rng.permutation(len(values))
    kept, out = np.split(order, [len(order) - int(HELD_OUT * len(order))])
    least = max(10, int(LEAST * len(kept)))
    rules = _merged(_grown(values[kept], holds[kept], (), least))
    found = Region(tolerance, names, rules, 0.0, None, 0)
    inside = found.has(values)
    unseen = inside[out]
    return Region(
        tolerance,
        names,
        rules,
        float(inside.mean()),
        float(holds[out][unseen].mean()) if unseen.any() else None,
        int(unseen.sum()),
    )


def _grown(
    values: Array, holds: Flags, rule: tuple[Condition, ...], least: int
) -> list[tuple[Condition, ...]]:
    """The rules of the leaves in which the model is valid."""
    pure = bool(holds.mean() >= PURE)
    if pure and holds.all():
        return [rule]
    split = _best(values, holds, least) if len(rule) < DEPTH and holds.any() else None
    if split is None:
        return [rule] if pure else []
    column, value = split
    left = values[:, column] <= value
    below = _grown(values[left], holds[left], (*rule, Condition(column, True, value)), least)
    above = _grown(values[~left], holds[~left], (*rule, Condition(column, False, value)), least)
    length = len(rule) + 1
    if below and above and all(len(r) == length for r in (below[0], above[0])) and pure:
        return [rule]
    return below + above


def _best(values: Array, holds: Flags, least: int) -> tuple[int, float] | None:
    """Column and threshold with the least Gini impurity; None if no split reduces it."""
    count, total = len(holds), holds.sum()
    best, found = 2 * total * (count - total) / count - 1e-9, None
    for column in range(values.shape[1]):
        order = np.argsort(values[:, column], kind="stable")
        ordered, held = values[order, column], np.cumsum(holds[order])
        left = np.arange(1, count)
        allowed = (ordered[1:] > ordered[:-1]) & (left >= least) & (count - left >= least)
        if not allowed.any():
            continue
        a, b = held[:-1], total - held[:-1]
        impurity = 2 * (a * (left - a) / left + b * (count - left - b) / (count - left))
        impurity = np.where(allowed, impurity, np.inf)
        at = int(impurity.argmin())
        if impurity[at] < best:
            best, found = impurity[at], (column, _between(ordered[at], ordered[at + 1]))
    return found


def _between(low: float, high: float) -> float:
    """The number with the fewest digits in [low, high), so that rules are exact as printed."""
    for digits in range(1, 17):
        value = float(f"{(low + high) / 2:.{digits}g}")
        if low <= value < high:
            return value
    return float(low)


def _merged(rules: list[tuple[Condition, ...]]) -> list[tuple[Condition, ...]]:
    """Remove conditions that a later one for the same key makes redundant."""
    merged = []
    for rule in rules:
        last = {(c.column, c.at_most): c for c in rule}
        merged.append(tuple(last.values()))
    return merged
