# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Decisions of a policy in addition to split points and shares: what is allowed, and the check."""

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from orchestrator.engine.plan import LOADED, OF_WORKLOAD, Allocation, Array, decided
from orchestrator.rounds.length import check_steps
from orchestrator.rounds.selection import selection
from orchestrator.scenario.channel import flight_limits
from orchestrator.scenario.loading import validate
from orchestrator.scenario.profiles import data_of, model_of
from orchestrator.scenario.schema import GUIDED, BatchSize, Flops, Iterations, Scenario, Watts
from testbed.core.errors import InputError, RunError

MOST_POINTS = 1000
"""Largest number of way points of a UAV in a round."""


class Range(NamedTuple):
    """Allowed values of a decision."""

    low: float
    high: Array
    """The highest value of each UAV, shape [K]."""
    unit: str
    limit: str
    """What the highest value is, in words."""
    is_whole: bool = False


Allowed = Callable[[str], Range]
"""The allowed values of a field of `Allocation`, by its name."""


def ranges(scenario: Scenario) -> Allowed:
    """The allowed values of each decision."""
    fleet = scenario.fleet

    @cache
    def allowed(name: str) -> Range:
        low, high = _bounds(
            {
                "tx_power_w": Watts,
                "compute_flops": Flops,
                "batch_size": BatchSize,
                "local_iterations": Iterations,
            }[name]
        )
        if name == "tx_power_w":
            return Range(low, fleet.tx_power_w, "W", "uavs.tx_power_w")
        if name == "compute_flops":
            return Range(low, fleet.compute_flops, "FLOP/s", "uavs.compute_flops")
        most = Range(low, np.full(scenario.uavs.count, high), "", "the most", is_whole=True)
        if name == "batch_size" and scenario.workload.compute == "real":
            samples = samples_of(scenario)
            if (samples <= high).any():
                most = most._replace(
                    high=np.minimum(samples, high), limit="the number of its samples"
                )
        return most

    return allowed


def _bounds(kind: Any) -> tuple[float, float]:
    """The bounds of an annotated number of the schema."""
    low, high = kind.__metadata__[0].metadata
    return low.ge, high.le


def samples_of(scenario: Scenario) -> Array:
    """Number of training samples of each UAV, shape [K].

    Raises:
        InputError: The data are unavailable or unfit.
    """
    # They import torch, which takes seconds, and which only training needs.
    from workloads.data.partitions import partition
    from workloads.data.samples import open_data
    from workloads.models.families import chain_of

    model, data = model_of(scenario), data_of(scenario)
    labels = open_data(data, model.classes, chain_of(model).input).labels
    return np.array([len(part) for part in partition(labels, scenario.uavs.count, data)], float)


class DecisionCheck:
    """Checks what a policy decides in addition to split points and shares."""

    def __init__(self, scenario: Scenario):
        self._scenario = scenario
        self._allowed = ranges(scenario)
        self._chosen = selection(scenario) is not None
        self._known: set[tuple[Any, ...]] = set()
        """Batch sizes and iterations that were found to go together with the scenario."""

    def __call__(
        self, allocation: Allocation, where: str, members: Collection[int] | None = None
    ) -> Allocation:
        """The allocation with arrays of the right type.

        Args:
            allocation: The decision, whose split points and shares are valid.
            where: The policy and the round, for error messages.
            members: UAVs of the base station, from 1. None: all.

        Raises:
            RunError: It is not possible; one line names the field, the UAV, the value and what is
                allowed.
        """
        given: dict[str, Any] = {
            name: self._numbers(name, value, where)
            for name in LOADED
            if (value := getattr(allocation, name)) is not None
        }
        if allocation.clients is not None:
            given["clients"] = self._clients(allocation.clients, where, members)
        if allocation.position_m is not None:
            given["position_m"] = self._way_points(allocation.position_m, where)
        if not given:
            return allocation
        allocation = replace(allocation, **given)
        if given.keys() & set(OF_WORKLOAD):
            self._check_together(allocation, where)
        if "tx_power_w" in given:
            self._check_power(where)
        return allocation

    def _numbers(self, name: str, value: Any, where: str) -> Array:
        """A number per UAV, within its range."""
        count = self._scenario.uavs.count
        try:
            found = np.array(value, dtype=float)
            is_bool = np.asarray(value).dtype == bool
        except (TypeError, ValueError, OverflowError):
            found, is_bool = np.empty(0), False
        if found.shape != (count,) or is_bool:
            raise RunError(
                f"{where}: {name} must be {count} numbers, one per UAV, not {shown(value)}"
            )
        low, high, unit, limit, is_whole = self._allowed(name)
        # NaN is not within the range.
        wrong = ~((found >= low) & (found <= high))
        if is_whole:
            wrong |= found != np.round(found)
        if wrong.any():
            k = int(wrong.argmax())
            most = f"{low:g} to {high[k]:.12g}{unit and ' '}{unit} ({limit})"
            whole = "a whole number from " if is_whole else ""
            raise RunError(
                f"{where}: {name} of UAV {k + 1} must be {whole}{most}, not {found[k]:.12g}"
            )
        return found.astype(np.int64) if is_whole else found

    def _way_points(self, value: Any, where: str) -> Array:
        """Way points [K, n, 3] where the UAVs may be."""
        scenario, count = self._scenario, self._scenario.uavs.count
        model, limits = scenario.mobility.model, scenario.mobility.limits
        if model != GUIDED:
            raise RunError(f"{where}: position_m must be None where mobility.model is {model!r}")
        try:
            found = np.array(value, dtype=float)
        except (TypeError, ValueError, OverflowError):
            found = np.empty(0)
        fits = found.ndim in (2, 3) and found.shape[0] == count and found.shape[-1] == 3
        if not fits or not 1 <= found.size <= count * 3 * MOST_POINTS:
            raise RunError(
                f"{where}: position_m must have shape [{count}, 3] or [{count}, n, 3] with 1 to "
                f"{MOST_POINTS} way points, not {shown(value)}"
            )
        points = found.reshape(count, -1, 3)
        if (outside := flight_limits(scenario).excludes(points)).any():
            k, n = np.argwhere(outside)[0]
            (near, far), (low, high) = limits.distance_m, limits.height_m
            raise RunError(
                f"{where}: position_m of UAV {k + 1} must be {near:g} to {far:g} m from "
                f"the base station and {low:g} to {high:g} m high, where the channel holds, not at "
                f"{[float(f'{c:.6g}') for c in points[k, n]]}"
            )
        return points

    def _clients(self, given: Any, where: str, members: Collection[int] | None) -> tuple[int, ...]:
        """Indices of the UAVs that take part: in the given order if it is that of uploads."""
        if self._chosen:
            raise RunError(f"{where}: clients must be None, because `participation` chooses them")
        among = sorted(members or range(1, self._scenario.uavs.count + 1))
        try:
            numbers = np.array(list(given), dtype=float)
            whole = numbers.ndim == 1 and (numbers == np.round(numbers)).all()
            chosen = list(dict.fromkeys(numbers.astype(int).tolist())) if whole else []
        except (TypeError, ValueError, OverflowError):
            chosen = []
        if not chosen or len(chosen) != len(numbers) or not set(chosen) <= set(among):
            fits = f"1 to {among[-1]}" if len(among) == among[-1] else ", ".join(map(str, among))
            raise RunError(
                f"{where}: clients must be one or more UAVs of {fits}, each once, not "
                f"{shown(given)}"
            )
        if self._scenario.scheme.uplink_order != "scheduled":
            chosen.sort()
        return tuple(chosen)

    def _check_together(self, allocation: Allocation, where: str) -> None:
        """Refuse batch sizes and iterations that do not go together with the scenario."""
        scenario = self._scenario
        if scenario.workload.sampling == "epochs":
            name = next(name for name in OF_WORKLOAD if getattr(allocation, name) is not None)
            raise RunError(
                f"{where}: {name} must be None with workload.sampling 'epochs', because batches "
                "continue the pass over the data"
            )
        if allocation.batch_size is not None and scenario.workload.aggregated_samples:
            raise RunError(
                f"{where}: batch_size must be None where gradients are aggregated, which are as "
                "many as the scenario says"
            )
        of_round = decided(scenario, replace(allocation, tx_power_w=None, compute_flops=None))
        key = tuple(str(getattr(of_round.workload, name)) for name in OF_WORKLOAD)
        if key in self._known:
            return
        tree = scenario.model_dump(mode="json")
        tree["workload"] |= of_round.workload.model_dump(mode="json", include=set(OF_WORKLOAD))
        try:
            validate(tree, "")
            check_steps(of_round.model_copy(update={"rounds": 1}))
        except InputError as error:
            raise RunError(f"{where}: {str(error).removeprefix(': ')}") from None
        self._known.add(key)

    def _check_power(self, where: str) -> None:
        scenario = self._scenario
        contends = scenario.radio.kind.divides and scenario.emulation.air == "ns3"
        for holds, place in (
            (bool(scenario.radio.cells), "radio.cells has base stations"),
            (contends, "ns-3's Wi-Fi carries the frames"),
        ):
            if holds:
                raise RunError(f"{where}: tx_power_w must be None where {place}: not modelled")


def shown(value: object) -> str:
    """A policy's answer as part of an error message."""
    return " ".join(repr(value).split())[:80]
