# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Mobility models in Python, which replace ns-3's Gauss–Markov model.

A model is a function that takes an `Airspace` (and its own parameters by keyword) and yields
positions, shape [K, 3] in m: first those at t = 0, then one array every `update_s` seconds. Between
two arrays UAVs fly straight. ns-3 computes path loss, line of sight and fading at these positions.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ns3_scenarios.errors import ChannelError
from ns3_scenarios.rma_av import GROUND_HEIGHT_M
from ns3_scenarios.trace import Array
from testbed.core.registry import failures

LOWEST_M, HIGHEST_M, HIGHEST_NLOS_M, FARTHEST_M = 1.0, 300.0, 40.0, 10_000.0
"""Range of validity of RMa-AV: from the lowest height up to the highest one, and up to the largest
horizontal distance."""


@dataclass(frozen=True)
class Airspace:
    """The part of the scenario that a mobility model receives."""

    ring_m: Sequence[tuple[float, float]]
    """Inner and outer radius around the base station, one pair per UAV; a model may ignore them."""
    bs_position_m: tuple[float, float, float]
    height_m: float | Array
    """Height of all UAVs, or of each one, shape [K]."""
    update_s: float
    """Seconds between two positions."""
    seed: int
    """Seed of the scenario: equal seeds must give equal positions."""

    @property
    def uavs(self) -> int:
        """Number of UAVs, K."""
        return len(self.ring_m)


Model = Callable[..., Iterable[npt.ArrayLike]]


@dataclass(frozen=True)
class Known:
    """Range of validity of a channel: heights from the lowest to the highest one, and the largest
    horizontal distance."""

    lowest_m: float = LOWEST_M
    highest_m: float = HIGHEST_M
    farthest_m: float = FARTHEST_M
    farthest_low_m: float = FARTHEST_M
    """Largest horizontal distance up to a height of `GROUND_HEIGHT_M`."""

    def excludes(self, height_m: Array, far_m: Array) -> npt.NDArray[np.bool_]:
        """Whether the channel does not hold at these heights and horizontal distances."""
        low = height_m <= GROUND_HEIGHT_M
        outside = (height_m < self.lowest_m) | (height_m > self.highest_m)
        return outside | np.asarray(far_m > np.where(low, self.farthest_low_m, self.farthest_m))

    def __str__(self) -> str:
        """The range in words that follow "the channel is valid"."""
        low = f" ({self.farthest_low_m:g} m up to a height of {GROUND_HEIGHT_M:g} m)"
        return (
            f"at heights from {self.lowest_m:g} m to {self.highest_m:g} m, and up to a distance of "
            f"{self.farthest_m:g} m{low if self.farthest_low_m < self.farthest_m else ''}"
        )


class Track:
    """Positions in every slot, interpolated from a model's updates.

    Args:
        name: Name of the model, for error messages.
        model: The positions that the model returns, one update after the other.
        space: The airspace that was passed to the model.
        known: Range of validity of the channel.
        horizon: 1 if the model reacts to the run: it is then asked for no update earlier than one
            update before; None: at any time.

    Raises:
        ValueError: The model refuses its parameters.
        ChannelError: The first positions are invalid.
    """

    def __init__(
        self,
        name: str,
        model: Iterable[npt.ArrayLike],
        space: Airspace,
        known: Known,
        horizon: int | None = None,
    ):
        self.name = name
        self.horizon = horizon
        self.space = space
        self.known = known
        self._updates = iter(model)
        self._index = 0
        self._here = self._checked(0, next(self._updates, None))
        self._there = self._update(1)

    def positions(self, first: int, slots: int, slot_s: float) -> Array:
        """Positions at the start of each slot, shape [K, slots, 3]; call it for slots in order.

        Raises:
            ChannelError: The model failed or ended, or a UAV left the channel's range of validity.
        """
        place = np.empty((self.space.uavs, slots, 3))
        for column in range(slots):
            # Multiplied, not accumulated, so that rounding errors do not depend on calls or time.
            at = (first + column) * slot_s / self.space.update_s
            while self._index < int(at + 1e-9):
                self._index += 1
                self._here, self._there = self._there, self._update(self._index + 1)
            share = min(max(at - self._index, 0.0), 1.0)
            place[:, column] = (1 - share) * self._here + share * self._there
        return place

    def _update(self, index: int) -> Array:
        with failures(self._at(index), ChannelError):
            given = next(self._updates, None)
        return self._checked(index, given)

    def _checked(self, index: int, given: npt.ArrayLike | None) -> Array:
        if given is None:
            raise self._wrong(index, "it ended; it must never end")
        try:
            place = np.array(given, dtype=np.float64)
        except (TypeError, ValueError):
            raise self._wrong(index, "it did not yield an array of numbers") from None
        if place.shape != (self.space.uavs, 3) or not np.isfinite(place).all():
            shape = (self.space.uavs, 3)
            raise self._wrong(
                index, f"must yield finite positions of shape {shape}, not {place.shape}"
            )
        far_m = np.hypot(*(place[:, :2] - self.space.bs_position_m[:2]).T)
        known = self.known
        outside = known.excludes(place[:, 2], far_m)
        if outside.any():
            k = int(outside.argmax())
            raise self._wrong(
                index,
                f"UAV {k + 1} is {place[k, 2]:g} m high, {far_m[k]:.0f} m from the base station; "
                f"the channel is valid {known}",
            )
        return place

    def _wrong(self, index: int, why: str) -> ChannelError:
        return ChannelError(f"{self._at(index)}: {why}")

    def _at(self, index: int) -> str:
        return f"mobility.model {self.name!r} at {index * self.space.update_s:g} s"
