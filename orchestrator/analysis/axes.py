# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Axes of a campaign's study, and distributions of random values."""

import json
import zlib
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import numpy as np
from pydantic import Field, model_validator

from orchestrator.scenario.schema import Finite, Section

Label = bool | int | float | str
"""An axis value in tables: the value itself or its name."""
Step = tuple[dict[str, Label], dict[str, Any]]
"""A point of an axis: table columns, and the keys to set."""
Count = Annotated[int, Field(ge=1, le=100_000)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.-]*$", max_length=80)]


class Distribution(Section):
    """Random values of a key: exactly one distribution."""

    uniform: tuple[Finite, Finite] | None = None
    """Lowest and highest value."""
    log_uniform: tuple[Finite, Finite] | None = None
    """Lowest and highest value, both above 0; the logarithm is uniform."""
    normal: tuple[Finite, Finite] | None = None
    """Mean and standard deviation."""
    integers: tuple[int, int] | None = None
    """Lowest and highest integer, both included."""
    choice: list[Label] | None = Field(default=None, min_length=1)
    """Values with equal probabilities."""

    @model_validator(mode="after")
    def _one_distribution(self) -> "Distribution":
        fields = Distribution.model_fields
        named = [name for name in fields if getattr(self, name) is not None]
        if len(named) != 1:
            raise ValueError(
                "needs exactly one of uniform, log_uniform, normal, integers, choice; has "
                + (", ".join(named) or "none")
            )
        low, high = (self.uniform or self.log_uniform or self.integers or (0.0, 1.0))[:2]
        if low > high or (self.log_uniform and low <= 0):
            raise ValueError(f"{named[0]}: {low:g} to {high:g} is not a valid range")
        return self


class Draw(Distribution):
    """A key drawn at random: exactly one distribution."""

    key: str
    """The scenario key to set."""

    def draw(self, rng: np.random.Generator) -> Label:
        """Draw one value."""
        if self.uniform:
            return float(rng.uniform(*self.uniform))
        if self.log_uniform:
            return float(np.exp(rng.uniform(*np.log(self.log_uniform))))
        if self.normal:
            return float(rng.normal(*self.normal))
        if self.integers:
            return int(rng.integers(*self.integers, endpoint=True))
        assert self.choice is not None
        return self.choice[int(rng.integers(len(self.choice)))]


class Axis(Section):
    """An axis: a list of values of a key, named points that set several keys, or random draws."""

    key: str | None = None
    """The scenario key of `values` (default: the axis's name)."""
    values: list[Label | list[Label]] | None = Field(default=None, min_length=1)
    """Values of the key; an axis may also be given as just this list."""
    points: dict[Label, dict[str, Any]] | None = Field(default=None, min_length=1)
    """Several keys that are set together, by the name of the combination."""
    draws: Count | None = None
    """Number of random points; each draws all of `of`, with the campaign's seed."""
    of: dict[Name, Draw] | None = Field(default=None, min_length=1)
    """By column name: the key and distribution to draw from."""
    label: str = ""
    """Label in charts (default: the axis's name)."""

    @model_validator(mode="before")
    @classmethod
    def _plain_list(cls, given: Any) -> Any:
        return {"values": given} if isinstance(given, list) else given

    @model_validator(mode="after")
    def _one_kind(self) -> "Axis":
        if [self.values, self.points, self.draws].count(None) != 2:
            raise ValueError("needs exactly one of values, points, draws")
        if (self.draws is None) != (self.of is None):
            raise ValueError("draws and of must be given together")
        if self.key is not None and self.values is None:
            raise ValueError("key may only be given with values")
        return self

    @property
    def size(self) -> int:
        """Number of points on the axis; an upper limit if values are drawn."""
        if self.values is not None:
            return len(set(map(_identity, self.values)))
        return self.draws or len(self.points or ())

    def steps(self, name: str, seed: int) -> Iterator[Step]:
        """The different points of the axis; of equal ones, like 1 and 1.0, only the first."""
        return (first for first, *_ in self._alike(name, seed))

    def equal(self, name: str, seed: int) -> str:
        """A line about values that are equal and therefore count once; empty without any."""
        several = [steps for steps in self._alike(name, seed) if len(steps) > 1]
        if not several:
            return ""
        if self.draws is not None:
            left_out = sum(len(steps) - 1 for steps in several)
            return f"{left_out} of {self.draws} draws are equal to an earlier one and not counted"
        values = [" and ".join(str(shown[name]) for shown, _ in steps) for steps in several]
        return f"{'; '.join(values)} are equal and count as one value"

    def _alike(self, name: str, seed: int) -> Iterable[list[Step]]:
        """All points of the axis, equal ones together."""
        found: dict[Any, list[Step]] = {}
        for shown, keys in self._given(name, seed):
            what = keys if self.points is None else shown
            found.setdefault(_identity(what), []).append((shown, keys))
        return found.values()

    def _given(self, name: str, seed: int) -> Iterator[Step]:
        """The points of the axis as in the file."""
        values = self.values or []
        for label, value in zip(labels(values), values, strict=True):
            yield {name: label}, {self.key or name: value}
        points = self.points or {}
        for label, keys in zip(labels(points), points.values(), strict=True):
            yield {name: label}, keys
        # Each axis has its own generator, so adding another axis does not change its values.
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        for index in range(self.draws or 0):
            assert self.of is not None
            drawn = {column: draw.draw(rng) for column, draw in self.of.items()}
            keys = {draw.key: drawn[column] for column, draw in self.of.items()}
            shown = {
                column: labels([value, *(self.of[column].choice or [])])[0]
                for column, value in drawn.items()
            }
            yield {name: index, **shown}, keys


def labels(values: Iterable[Label | list[Label]]) -> list[Label]:
    """Axis values as a column of a table, which has one type: lists, and values of different kinds
    (numbers, texts, truth values), are texts."""
    given = list(values)
    kinds = {float if type(value) is int else type(value) for value in given}
    as_texts = len(kinds) > 1 or list in kinds
    return [
        json.dumps(value)
        if isinstance(value, list) or (as_texts and not isinstance(value, str))
        else value
        for value in given
    ]


def _identity(value: Any) -> Any:
    """A hashable value that is equal for equal values; 1 and 1.0 are equal, 1 and true are not."""
    if isinstance(value, dict):
        return tuple((key, _identity(each)) for key, each in value.items())
    if isinstance(value, list):
        return tuple(map(_identity, value))
    return (bool, value) if isinstance(value, bool) else value
