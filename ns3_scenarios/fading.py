# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Small-scale fading of links: frequency-flat Rayleigh or Rician, with the Doppler of the flight.

The channel of a link is a sum of `PATHS` plane waves of equal power and random directions and
phases (Clarke's model, whose spectrum is that of Jakes), and for Rician fading one more, the direct
path. The phase of each wave changes as the UAV moves: after a path of d metres by 2 pi d cos(angle)
/ wavelength. So the fading is a function of the path that a UAV has flown, and a UAV at rest keeps
its fading. Uplink and downlink, on different carriers, fade independently; on one carrier, both
have the same fading. The mean power is 1.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Literal

import numpy as np
import numpy.typing as npt

from ns3_scenarios.npz import blocks
from ns3_scenarios.trace import Array, ChannelTrace, Derived, Located, SlotTrace, TraceError

PATHS = 24
LIGHT_M_S = 299_792_458.0
STREAM = 0xFAD
"""The number of the random stream for fading, among those drawn by the scenario's seed."""


@dataclass(frozen=True)
class Fading:
    """Small-scale fading of all links of a scenario."""

    kind: Literal["rayleigh", "rician"]
    direct: float
    """Power of the direct path relative to that of all others, linear; 0 for Rayleigh."""
    block_s: float
    """Time in which fading is constant, in s."""
    carrier_hz: float
    doppler_hz: float | None
    """Largest Doppler shift; None: that of each UAV's speed."""
    seed: int
    reciprocal: bool = False
    """Whether both directions use one carrier."""

    def blocks(self, slot_s: float) -> int:
        """Number of blocks per slot."""
        return max(1, round(slot_s / self.block_s))

    def turns(self, trace: SlotTrace) -> Array:
        """Way of each UAV at the middle of each block in wavelengths, shape [K, S, B].

        During slot s a UAV moves on by the distance between its positions in slots s - 1 and s; in
        slot 0 it is at rest.

        Raises:
            TraceError: Neither a Doppler shift nor positions are known.
        """
        return self.turns_after(None, trace)[0]

    def turns_after(self, before: "Turned | None", trace: SlotTrace) -> "tuple[Array, Turned]":
        """The same for the slots that follow others, and what those after them have to know.

        Args:
            before: What is known from the slots before; None: there are none.
            trace: The next slots.

        Raises:
            TraceError: See `turns`.
        """
        blocks = self.blocks(trace.slot_s)
        within = (np.arange(blocks) + 0.5) / blocks
        if self.doppler_hz is not None:
            per_slot = np.full((trace.uavs, trace.slots), self.doppler_hz * trace.slot_s)
        elif trace.position_m is None:
            raise TraceError(
                "radio.fading: the trace has no position, which gives the Doppler shift; give "
                "radio.doppler_hz"
            )
        else:
            last_m = trace.position_m[:, :1] if before is None else before.last_m
            path_m = np.concatenate([last_m, trace.position_m], axis=1)
            moved_m = np.linalg.norm(np.diff(path_m, axis=1), axis=2)
            per_slot = moved_m * (self.carrier_hz / LIGHT_M_S)
        flown = np.zeros((trace.uavs, 1)) if before is None else before.flown
        # From one sum to the next, so that rounding errors do not depend on the calls.
        sums = np.cumsum(np.concatenate([flown, per_slot], axis=1), axis=1)
        last_m = None if trace.position_m is None else trace.position_m[:, -1:]
        turns = (sums[:, 1:] - per_slot)[..., None] + per_slot[..., None] * within
        return turns, Turned(last_m, sums[:, -1:])

    def powers(self, turns: Array) -> npt.NDArray[np.float32]:
        """Powers of both directions relative to their mean, shape [2, K, S, B].

        Args:
            turns: The lengths of the paths as `turns` returns them, shape [K, S, B].
        """
        powers = np.empty((2, *turns.shape), np.float32)
        amplitudes = np.full(PATHS + 1, math.sqrt(1 / PATHS / (1 + self.direct)))
        amplitudes[PATHS] = math.sqrt(self.direct / (1 + self.direct))
        for way, index in product(range(1 if self.reciprocal else 2), blocks(turns)):
            flown, first = turns[index], index[0].start
            waves = np.stack([_waves(self.seed, way, first + k) for k in range(len(flown))])
            real, imaginary = np.zeros((2, *flown.shape))
            for amplitude, wave in zip(amplitudes, waves.transpose(1, 2, 0), strict=True):
                phase, factor = wave[..., None, None]
                turned = phase + factor * flown
                real += amplitude * np.cos(turned)
                imaginary += amplitude * np.sin(turned)
            powers[way, *index] = real**2 + imaginary**2
        if self.reciprocal:
            powers[1] = powers[0]
        return powers


@dataclass(frozen=True)
class Turned:
    """The part of the earlier slots on which the fading of the next one depends."""

    last_m: Array | None
    """Positions in the last of them, shape [K, 1, 3]; None: not known."""
    flown: Array
    """Way of each UAV in wavelengths, shape [K, 1]."""


@lru_cache(4096)
def _waves(seed: int, way: int, uav: int) -> Array:
    """Phase of each plane wave, and its turn in rad per wavelength flown, shape [PATHS + 1, 2]."""
    rng = np.random.default_rng((seed, STREAM, way, uav))
    phases, angles = rng.uniform(0, 2 * math.pi, (2, PATHS + 1))
    # By `math.cos`, whose last bit does not depend on the vector units of the processor.
    return np.array([(p, 2 * math.pi * math.cos(a)) for p, a in zip(phases, angles, strict=True)])


class FadingChannel(Derived):
    """A `ChannelSource` with small-scale fading on the gains of another.

    Args:
        source: The source of gains.
        fading: The small-scale fading model.
    """

    def __init__(self, source: Located, fading: Fading):
        super().__init__(source)
        self.fading = fading
        self._turned: Turned | None = None

    @property
    def blocks(self) -> int:
        """Number of blocks per slot."""
        return self.fading.blocks(self.slot_s)

    @property
    def steady(self) -> Located:
        """The source without the fading, which no file contains; it is used instead of this one."""
        return self._source

    def following(self, slots: int) -> ChannelTrace:
        """The next slots, which the caller keeps; see `Located.following`."""
        piece = self._source.following(slots)
        turns, self._turned = self.fading.turns_after(self._turned, piece)
        return replace(piece, fading=self.fading.powers(turns))
