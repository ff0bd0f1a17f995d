# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A value per UAV: one number for all, a list, or a distribution from which it is drawn by seed."""

import zlib
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated, Generic, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

Array = npt.NDArray[np.float64]
Deviation = Annotated[float, Field(gt=0, le=1e21)]
Number = TypeVar("Number", bound=float)


class Spread(BaseModel, Generic[Number]):
    """A distribution from which each UAV's value is drawn; exactly one key is given."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    uniform: tuple[Number, Number] | None = Field(default=None, exclude_if=lambda v: v is None)
    """Lowest and highest value."""
    log_uniform: tuple[Number, Number] | None = Field(default=None, exclude_if=lambda v: v is None)
    """Lowest and highest value, both above 0; the logarithm is uniform."""
    normal: tuple[Number, Deviation, Number, Number] | None = Field(
        default=None, exclude_if=lambda v: v is None
    )
    """Mean and standard deviation, then lowest and highest value: the distribution is truncated to
    them."""
    choice: list[Number] | None = Field(
        default=None, min_length=1, max_length=10_000, exclude_if=lambda v: v is None
    )
    """A list of values with equal probability."""

    @model_validator(mode="after")
    def _one_range(self) -> "Spread[Number]":
        names = type(self).model_fields
        given = [name for name in names if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"needs exactly one of {', '.join(names)}; has {given or 'none'}")
        if self.choice is None:
            *normal, low, high = getattr(self, given[0])
            if low > high or (self.log_uniform and low <= 0):
                raise ValueError(f"{given[0]}: {low:g} to {high:g} is not a range")
            if normal and not low <= normal[0] <= high:
                raise ValueError(
                    f"normal: the mean {normal[0]:g} must lie from {low:g} to {high:g}"
                )
        return self

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest value that can be drawn."""
        values = self.choice or (self.uniform or self.log_uniform or (self.normal or ())[2:])
        return min(values), max(values)

    def values(self, share: Array) -> Array:
        """The quantiles of the distribution for these probabilities, 0 to 1."""
        if self.choice is not None:
            chosen: Array = np.array(self.choice, float)[(share * len(self.choice)).astype(int)]
            return chosen
        low, high = self.ends
        if self.uniform is not None:
            values = low + share * (high - low)
        elif self.log_uniform is not None:
            values = low * (high / low) ** share
        else:
            assert self.normal is not None
            law = NormalDist(*self.normal[:2])
            below, above = law.cdf(low), law.cdf(high)
            shares = np.clip(below + share * (above - below), 1e-300, 1 - 1e-16)
            values = np.array([law.inv_cdf(float(p)) for p in shares])
        inside: Array = np.clip(values, low, high)
        return inside


def each(value: float | list[float] | Spread[float], count: int, seed: int, key: str) -> Array:
    """The value of each UAV, shape [K].

    The first UAVs' values do not change as more are added, nor with what is drawn for other keys.

    Args:
        value: One number for all, a list with one per UAV, or a distribution.
        count: K.
        seed: Seed of the random draws.
        key: The key of the scenario, which has a random stream of its own.
    """
    if isinstance(value, Spread):
        rng = np.random.default_rng([seed, zlib.crc32(key.encode())])
        return value.values(rng.random(count))
    return np.full(count, value, float)


def ends(value: float | list[float] | Spread[float]) -> tuple[float, float]:
    """The smallest and the largest value that any UAV may have."""
    if isinstance(value, Spread):
        return value.ends
    values = value if isinstance(value, list) else [value]
    return min(values), max(values)


@dataclass(frozen=True, eq=False)  # scenarios are compared by their fields, not by their fleets
class Fleet:
    """The properties of each UAV; arrays have shape [K]."""

    tx_power_w: Array
    """Transmit power p_k."""
    compute_flops: Array
    """Computing speed κ_k f_k."""
    compute_power_w: Array
    """Power while computing, ω f³."""
    height_m: Array
    speed_m_s: Array
    """Lowest and highest speed, shape [K, 2]."""
    mean_speed_m_s: Array
    speed_deviation_m_s: Array
