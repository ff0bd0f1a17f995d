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
from typing import Literal

import numpy as np
import numpy.typing as npt

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
            moved_m = np.linalg.norm(np.diff(trace.position_m, axis=1), axis=2)
            per_slot = np.pad(moved_m, ((0, 0), (1, 0))) * (self.carrier_hz / LIGHT_M_S)
        before = np.cumsum(per_slot, axis=1) - per_slot
        return np.asarray(before[..., None] + per_slot[..., None] * within)

    def powers(self, turns: Array) -> npt.NDArray[np.float32]:
        """Powers of both directions relative to their mean, shape [2, K, S, B].

        Args:
            turns: The lengths of the paths as `turns` returns them, shape [K, S, B].
        """
        powers = np.empty((2, *turns.shape), np.float32)
        for way in range(1 if self.reciprocal else 2):
            for k, way_flown in enumerate(turns):
                rng = np.random.default_rng((self.seed, STREAM, way, k))
                phases, angles = rng.uniform(0, 2 * math.pi, (2, PATHS + 1))
                amplitudes = np.full(PATHS + 1, math.sqrt(1 / PATHS / (1 + self.direct)))
                amplitudes[PATHS] = math.sqrt(self.direct / (1 + self.direct))
                real, imaginary = np.zeros((2, *way_flown.shape))
                for amplitude, phase, angle in zip(amplitudes, phases, angles, strict=True):
                    turned = phase + 2 * math.pi * math.cos(angle) * way_flown
                    real += amplitude * np.cos(turned)
                    imaginary += amplitude * np.sin(turned)
                powers[way, k] = real**2 + imaginary**2
        if self.reciprocal:
            powers[1] = powers[0]
        return powers


class FadingChannel(Derived):
    """A `ChannelSource` with small-scale fading on the gains of another.

    Args:
        source: The source of gains.
        fading: The small-scale fading model.
    """

    def __init__(self, source: Located, fading: Fading):
        super().__init__(source)
        self.fading = fading
        self._made: ChannelTrace | None = None

    @property
    def blocks(self) -> int:
        """Number of blocks per slot."""
        return self.fading.blocks(self.slot_s)

    def trace(self, slots: int) -> ChannelTrace:
        """The trace from slot 0 with at least `slots` slots; earlier slots never change."""
        made = self._made
        if made is None or made.slots < slots:
            whole = self._source.trace(slots)
            turns, have = self.fading.turns(whole), 0 if made is None else made.slots
            powers = self.fading.powers(turns[:, have:])
            if made is not None and made.fading is not None:
                powers = np.concatenate([made.fading, powers], axis=2)
            self._made = made = replace(whole, fading=powers)
        return made

    def following(self, slots: int) -> ChannelTrace:
        """The next slots without the fading, which no file contains; see `Located.following`."""
        return self._source.following(slots)
