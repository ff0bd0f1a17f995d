# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Mobility models in Python: where the UAVs are, in place of ns-3's own Gauss–Markov model.

A model is a function that takes an `Airspace` (and parameters of its own by keyword) and yields
positions, shape [K, 3] in m: first those at t = 0, then one array each `update_s` seconds. Between
two of them UAVs fly straight. ns-3 computes path loss, line of sight and fading there, as always.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ns3_scenarios.errors import ChannelError
from ns3_scenarios.trace import Array

LOWEST_M, HIGHEST_M, HIGHEST_NLOS_M, FARTHEST_M = 10.0, 300.0, 40.0, 10_000.0
"""Where RMa-AV holds: above the lowest height, up to the others, as far as that horizontally."""


@dataclass(frozen=True)
class Airspace:
    """What a model is told of the scenario."""

    ring_m: Sequence[tuple[float, float]]
    """Inner and outer radius around the base station, one pair a UAV; a model may leave them."""
    bs_position_m: tuple[float, float, float]
    height_m: float | Array
    """Of all UAVs, or of each, shape [K]."""
    update_s: float
    """Time between two positions."""
    seed: int
    """Of the scenario: equal seeds must give equal positions."""

    @property
    def uavs(self) -> int:
        """K."""
        return len(self.ring_m)


Model = Callable[..., Iterable[npt.ArrayLike]]


@dataclass(frozen=True)
class Known:
    """Where a channel is known: heights above the lowest, up to the highest, and how far."""

    lowest_m: float = LOWEST_M
    highest_m: float = HIGHEST_M
    farthest_m: float = FARTHEST_M


class Track:
    """Positions of every slot, out of a model's updates.

    Args:
        name: The model's, for messages.
        model: What it yields.
        space: What it was told.
        known: Where the channel is known.

    Raises:
        ValueError: The model refuses its parameters.
        ChannelError: What it yields first is no place for UAVs.
    """

    def __init__(self, name: str, model: Iterable[npt.ArrayLike], space: Airspace, known: Known):
        self.name = name
        self.space = space
        self.known = known
        self._updates = iter(model)
        self._index = 0
        self._here = self._checked(0, next(self._updates, None))
        self._there = self._update(1)

    def positions(self, first: int, slots: int, slot_s: float) -> Array:
        """Shape [K, slots, 3], at the start of each slot; ask for slots in their order.

        Raises:
            ChannelError: The model failed, ended, or put a UAV where there is no channel.
        """
        place = np.empty((self.space.uavs, slots, 3))
        for column in range(slots):
            # Counted, not added up: neither the sizes of calls nor time shift a position.
            at = (first + column) * slot_s / self.space.update_s
            while self._index < int(at + 1e-9):
                self._index += 1
                self._here, self._there = self._there, self._update(self._index + 1)
            share = min(max(at - self._index, 0.0), 1.0)
            place[:, column] = (1 - share) * self._here + share * self._there
        return place

    def _update(self, index: int) -> Array:
        try:
            given = next(self._updates, None)
        except Exception as error:
            why = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise self._wrong(index, why) from error
        return self._checked(index, given)

    def _checked(self, index: int, given: npt.ArrayLike | None) -> Array:
        if given is None:
            raise self._wrong(index, "it ended; it must go on for ever")
        try:
            place = np.array(given, dtype=np.float64)
        except (TypeError, ValueError):
            raise self._wrong(index, "what it yielded is no array of numbers") from None
        if place.shape != (self.space.uavs, 3) or not np.isfinite(place).all():
            shape = (self.space.uavs, 3)
            raise self._wrong(
                index, f"must yield finite positions, shape {shape}; shape {place.shape} came"
            )
        far_m = np.hypot(*(place[:, :2] - self.space.bs_position_m[:2]).T)
        known = self.known
        outside = (place[:, 2] <= known.lowest_m) | (place[:, 2] > known.highest_m)
        outside |= far_m > known.farthest_m
        if outside.any():
            k = int(outside.argmax())
            raise self._wrong(
                index,
                f"UAV {k + 1} is {place[k, 2]:g} m high, {far_m[k]:.0f} m from the base station; "
                f"the channel is known above {known.lowest_m:g} m, up to {known.highest_m:g} m, "
                f"and as far as {known.farthest_m:g} m",
            )
        return place

    def _wrong(self, index: int, why: str) -> ChannelError:
        return ChannelError(
            f"mobility.model {self.name!r} at {index * self.space.update_s:g} s: {why}"
        )
