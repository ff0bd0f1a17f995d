# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The space of scenarios for a validation: the varied keys and their distributions.

A point of the space is a point of the unit cube with one coordinate per key; `Space.keys_at`
converts it to values. A space file has one mapping, `keys`, from dotted keys to distributions.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, JsonValue, ValidationError, field_validator, model_validator

from orchestrator.analysis.axes import Distribution
from orchestrator.engine.plan import Array
from orchestrator.scenario.combinations import check
from orchestrator.scenario.loading import explain, put, read_tree, validate
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario, Section
from orchestrator.scenario.yaml_text import dump
from testbed.core.errors import InputError

SEED = "seed"
"""Last part of the name of a key that is a seed."""
PLACEMENTS = 16
"""Number of seeds in a default space; ns-3 generates a channel for each."""


class Range(Distribution):
    """Distribution of a key; a plain list is a `choice`."""

    choice: list[JsonValue] | None = Field(default=None, min_length=1)  # type: ignore[assignment]
    """Values with equal probabilities."""

    @model_validator(mode="before")
    @classmethod
    def _plain_list(cls, given: Any) -> Any:
        return {"choice": given} if isinstance(given, list) else given

    def at(self, share: float) -> JsonValue:
        """The quantile for a probability, 0 <= share < 1."""
        if self.uniform:
            low, high = self.uniform
            return low + share * (high - low)
        if self.log_uniform:
            low, high = self.log_uniform
            return float(low * (high / low) ** share)
        if self.normal:
            from scipy.special import ndtri  # takes long to import

            mean, deviation = self.normal
            return float(ndtri(min(max(share, 1e-9), 1 - 1e-9)) * deviation + mean)
        if self.integers:
            low, high = self.integers
            return low + int(share * (high - low + 1))
        assert self.choice is not None
        return self.choice[int(share * len(self.choice))]

    @property
    def ordered(self) -> bool:
        """Whether all values are numbers."""
        return self.choice is None or all(
            isinstance(value, (int, float)) and not isinstance(value, bool) for value in self.choice
        )


class Space(Section):
    """A space file."""

    keys: dict[str, Range] = Field(min_length=1, max_length=64)
    """Distributions by dotted scenario key."""

    @field_validator("keys")
    @classmethod
    def _keys_do_not_overlap(cls, keys: dict[str, Range]) -> dict[str, Range]:
        for key in keys:
            for other in keys:
                if other.startswith(f"{key}."):
                    raise ValueError(f"{other!r} is within {key!r}")
        return keys

    def keys_at(self, point: Array) -> dict[str, JsonValue]:
        """The values for a point of the unit cube, shape [keys]."""
        return {
            key: range_.at(float(share))
            for (key, range_), share in zip(self.keys.items(), point, strict=True)
        }

    def to_yaml(self) -> str:
        """The contents of a space file; `load_space` reads an equal space from it."""
        tree = self.model_dump(mode="json", exclude_none=True)
        return dump(tree)


def load_space(path: Path, scenario: Scenario) -> Space:
    """Read a space file.

    Args:
        path: The YAML file.
        scenario: The base scenario; the ends of all ranges are checked with it.

    Raises:
        InputError: The file is not valid; the message names the file, the key and allowed values.
    """
    return read_space(read_tree(path, "space"), str(path), scenario)


def read_space(tree: Mapping[str, Any], where: str, scenario: Scenario) -> Space:
    """A space from the content of its file; `where` begins messages. See `load_space`."""
    try:
        space = Space.model_validate(tree)
    except ValidationError as error:
        raise InputError(f"{where}: {explain(error.errors(include_url=False), Space)}") from None
    for key, range_ in space.keys.items():
        for value in _ends(range_):
            at(scenario, {key: value}, f"{where}: keys")
    return space


def _ends(range_: Range) -> Iterator[JsonValue]:
    if range_.choice is not None:
        yield from range_.choice
    elif range_.normal is None:
        yield from (range_.uniform or range_.log_uniform or range_.integers or ())


def at(scenario: Scenario, keys: Mapping[str, Any], source: str) -> Scenario:
    """A scenario with one round and these values.

    Raises:
        InputError: A value is not allowed.
    """
    return tree_at(scenario.model_dump(mode="json"), keys, source)


def tree_at(tree: dict[str, Any], keys: Mapping[str, Any], source: str) -> Scenario:
    """Like `at`, for a scenario as JSON values, which are not changed."""
    changed = _copy(tree)
    for key, value in keys.items():
        put(changed, key, value, f"{source}: {key}")
    changed["rounds"] = 1
    made = validate(changed, source)
    check(made, "validate")
    return made


def _copy(tree: Any) -> Any:
    return {key: _copy(value) for key, value in tree.items()} if isinstance(tree, dict) else tree


def default_space(scenario: Scenario) -> Space:
    """The space around a scenario: split, iterations, batch size, bands, powers, speeds, seeds.

    Bands and powers vary by a factor of 4 in both directions, the base station's speed from an
    eighth to twice; UAVs have one speed, or speeds that differ by up to 4, 16 and 64; there are 16
    seeds for their placement. Values in lists with one entry per UAV are not varied.

    Raises:
        InputError: A rule of `orchestrator.scenario.combinations` is broken.
    """
    check(scenario, "validate")
    work, radio, station = scenario.workload, scenario.radio, scenario.base_station
    by = partial(_by, least=1e-6, most=1e21)
    batch, iterations = work.largest("batch_size"), work.largest("local_iterations")
    keys: dict[str, dict[str, Any]] = {
        "workload.split": {"choice": list(range(1, profile_of(scenario).splits + 1))},
        "workload.local_iterations": {"integers": (1, min(2 * iterations, 1000))},
        "workload.batch_size": {"integers": (max(1, batch // 2), min(2 * batch, 4096))},
        "radio.uplink_bandwidth_hz": by(radio.uplink_bandwidth_hz, 4, least=1e3, most=1e11),
        "radio.downlink_bandwidth_hz": by(radio.downlink_bandwidth_hz, 4, least=1e3, most=1e11),
        "base_station.tx_power_w": by(station.tx_power_w, 4, most=1e6),
        "base_station.compute_flops": by(station.compute_flops / 2, 4, least=1e3),
        "uavs.compute_flops": _fleets(scenario.uavs.compute_flops),
        "seed": {"integers": (1, PLACEMENTS)},
    }
    given = {key: range_ for key, range_ in keys.items() if range_}
    return Space.model_validate({"keys": given})


def _fleets(speed: Any) -> dict[str, Any]:
    if not isinstance(speed, (int, float)):
        return {}
    return {"choice": [speed, *({"log_uniform": [speed / f, speed * f]} for f in (2, 4, 8))]}


def _by(value: Any, factor: float, *, least: float, most: float) -> dict[str, Any]:
    """A range by a factor in both directions, within bounds; empty if the value is not a number."""
    if not isinstance(value, (int, float)):
        return {}
    return {"log_uniform": (max(least, value / factor), min(most, value * factor))}


def features(space: Space, keys: list[dict[str, JsonValue]]) -> tuple[list[str], Array]:
    """Columns for the decision tree, and their values, shape [points, columns].

    A numeric key is a column; other keys have a column of 0 and 1 per value, `KEY = VALUE`. Seeds
    have none: they are numbers of random draws and no quantities.
    """
    names: list[str] = []
    columns = []
    for key, range_ in space.keys.items():
        if key.rpartition(".")[2] == SEED:
            continue
        if range_.ordered:
            names.append(key)
            columns.append([float(point[key]) for point in keys])  # type: ignore[arg-type]
            continue
        for value in range_.choice or ():
            names.append(f"{key} = {value}")
            columns.append([float(point[key] == value) for point in keys])
    return names, np.array(columns).T.reshape(len(keys), len(names))
