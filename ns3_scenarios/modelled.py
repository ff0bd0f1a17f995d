# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Channel models in Python, at the UAV positions of ns-3's mobility.

A model is a function that takes `Surroundings` (and its own parameters by keyword) and returns a
function from positions, shape [K, n, 3] in m, and times, shape [n] in s, to linear power gains:
[K, n] for both directions, or a pair of such arrays for uplink and downlink. The returned function
is called for consecutive slots, so it may keep state; its result must not depend on the number of
slots per call.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ns3_scenarios import ground
from ns3_scenarios.aerial import Aerial, log_distance_db
from ns3_scenarios.channel import Ns3Channel
from ns3_scenarios.errors import ChannelError
from ns3_scenarios.trace import LEAST_GAIN, MOST_GAIN, Array, ChannelTrace, Derived, Located
from testbed.core.registry import failures


@dataclass(frozen=True)
class Surroundings:
    """The part of the scenario that a channel model receives."""

    uavs: int
    """Number of UAVs, K."""
    bs_position_m: tuple[float, float, float]
    carrier_hz: float
    line_of_sight: Literal["always", "probability", "never"]
    shadow_fading: bool
    slot_s: float
    seed: int
    """Seed of the scenario: equal seeds must give equal gains."""


Gain = Callable[[Array, Array], Any]
Model = Callable[..., Gain]


class ModelledChannel(Derived):
    """A `ChannelSource`: ns-3 moves the UAVs, and a model in Python computes their gains.

    Args:
        name: Name of the model, for error messages.
        gain: The function that the model returned.
        flight: Source of the UAVs' positions.
    """

    def __init__(self, name: str, gain: Gain, flight: Located):
        super().__init__(flight)
        self._name, self._gain = name, gain
        self._slots = 0
        """Number of slots for which the model was asked."""
        self._ways = 0
        """Number of arrays that the model returns; 0 before its first call."""

    def _rewound(self, slots: int) -> None:
        assert isinstance(self._source, Ns3Channel)
        self._slots = slots
        self._source._rewound(slots)

    def following(self, slots: int) -> ChannelTrace:
        """The next slots, which the caller keeps; see `Located.following`.

        Raises:
            ChannelError: ns-3 ended or the model failed; the message has the cause.
        """
        flown = self._source.following(slots)
        up, *down = self._asked(flown.position_m)
        return ChannelTrace(
            up, flown.slot_s, flown.position_m, flown.seed, gain_down=down[0] if down else None
        )

    def _asked(self, position_m: Array | None) -> list[Array]:
        """The checked gains, in one or both directions, of the next slots."""
        assert position_m is not None
        slots = self._slots + np.arange(position_m.shape[1], dtype=np.float64)
        times_s: Array = slots * self.slot_s
        with failures(self._at(times_s[0]), ChannelError):
            given = self._gain(position_m, times_s)
        parts = [
            self._checked(way, position_m.shape[:2], times_s)
            for way in (given if isinstance(given, tuple) else (given,))
        ]
        if self._ways not in (0, len(parts)):
            raise self._wrong(times_s[0], "it returned one array in some calls and two in others")
        self._slots, self._ways = self._slots + len(slots), len(parts)
        return parts

    def _checked(self, given: Any, shape: tuple[int, ...], times_s: Array) -> Array:
        try:
            gain = np.array(given, dtype=np.float64)
        except (TypeError, ValueError):
            raise self._wrong(times_s[0], "it did not return an array of numbers") from None
        if gain.shape != shape:
            raise self._wrong(times_s[0], f"must return gains of shape {shape}, not {gain.shape}")
        fit = ((gain == 0) | (gain >= LEAST_GAIN)) & (gain <= MOST_GAIN)
        if not fit.all():
            k, s = np.argwhere(~fit)[0]
            why = f"UAV {k + 1}: gain {gain[k, s]:g} is not 0 or {LEAST_GAIN:g} to {MOST_GAIN:g}"
            raise self._wrong(times_s[s], why)
        return gain

    def _wrong(self, time_s: float, why: str) -> ChannelError:
        return ChannelError(f"{self._at(time_s)}: {why}")

    def _at(self, time_s: float) -> str:
        return f"radio.channel {self._name!r} at {time_s:g} s"


class Correlated:
    """Standard normal processes along paths, one per UAV: the correlation of two values d metres
    apart is exp(-d / distance_m) (TR 38.901, 7.6.3.1; Gudmundson).

    Args:
        distance_m: The correlation distance.
        seeds: Seeds of each UAV's process.
    """

    def __init__(self, distance_m: float, seeds: Sequence[Sequence[int]]):
        self._distance_m = distance_m
        self._noise = [np.random.default_rng(list(seed)) for seed in seeds]
        self._value = np.zeros(len(seeds))
        self._position: Array | None = None

    def along(self, position_m: Array) -> Array:
        """Values [K, n] at the next positions [K, n, 3]."""
        first = position_m[:, :1] if self._position is None else self._position[:, None]
        stepped = np.diff(np.concatenate([first, position_m], axis=1), axis=1)
        lag = np.linalg.norm(stepped, axis=2) / self._distance_m
        kept, fresh = np.exp(-lag), np.sqrt(-np.expm1(-2 * lag))
        if self._position is None:
            kept[:, 0], fresh[:, 0] = 0.0, 1.0
        values: Array = fresh * np.stack([rng.standard_normal(lag.shape[1]) for rng in self._noise])
        now = self._value
        for s in range(lag.shape[1]):
            now = kept[:, s] * now + values[:, s]
            values[:, s] = now
        self._value, self._position = now, position_m[:, -1]
        return values


def aerial(model: Aerial, space: Surroundings) -> Gain:
    """A channel of TR 36.777: path loss, and optionally random LOS state and shadow fading.

    UAVs up to 22.5 m use TR 38.901's ground model with the same random processes.
    """

    def process(stream: int, distance_m: float) -> Correlated:
        return Correlated(distance_m, [(space.seed, k, stream) for k in range(space.uavs)])

    from scipy.special import ndtr  # imported here, because it takes half a second

    state, los = process(0, model.state_m), process(1, model.los_shadow_m)
    nlos, on_ground = process(2, model.nlos_shadow_m), model.ground
    drawn = np.stack(
        [np.random.default_rng([space.seed, k, 3]).random(2) for k in range(space.uavs)]
    )

    def gain(position_m: Array, times_s: Array) -> Array:
        offset = position_m - np.array(space.bs_position_m)
        across_m = np.hypot(offset[..., 0], offset[..., 1])
        distance_m, height_m = np.linalg.norm(offset, axis=2), position_m[..., 2]
        low, aloft_m = height_m <= ground.HIGHEST_M, np.maximum(height_m, ground.HIGHEST_M)
        surroundings_m = np.ones(height_m.shape)
        if on_ground.draws_environment:
            reflects, which = drawn.T[:, :, None]
            surroundings_m = ground.environment_m(height_m, across_m, reflects, which)
        links = ground.Geometry(
            np.minimum(height_m, ground.HIGHEST_M),
            space.bs_position_m[2],
            across_m,
            distance_m,
            surroundings_m,
        )
        in_sight = np.full(height_m.shape, space.line_of_sight != "never")
        if space.line_of_sight == "probability":
            chance = np.where(
                low,
                on_ground.los_probability(links.height_m, across_m),
                model.los_probability(aloft_m, across_m),
            )
            in_sight = ndtr(state.along(position_m)) <= chance
        carrier_hz = space.carrier_hz
        los_db, nlos_db = (
            np.where(low, below(links, carrier_hz), above(aloft_m, distance_m, carrier_hz))
            for below, above in (
                (on_ground.los_db, model.los_db),
                (on_ground.nlos_db, model.nlos_db),
            )
        )
        loss_db = np.where(in_sight, los_db, nlos_db)
        if space.shadow_fading:
            los_deviation_db = np.where(
                low, on_ground.los_deviation_db, model.los_deviation_db(height_m)
            )
            nlos_deviation_db = np.where(low, on_ground.nlos_deviation_db, model.nlos_deviation_db)
            loss_db += np.where(
                in_sight,
                los_deviation_db * los.along(position_m),
                nlos_deviation_db * nlos.along(position_m),
            )
        return np.asarray(10 ** (-loss_db / 10))

    return gain


def log_distance(space: Surroundings, exponent: float = 2.0) -> Gain:
    """The log-distance channel, with this path loss exponent and distances in three dimensions."""

    def gain(position_m: Array, times_s: Array) -> Array:
        distance_m = np.linalg.norm(position_m - np.array(space.bs_position_m), axis=2)
        return np.asarray(10 ** (-log_distance_db(distance_m, space.carrier_hz, exponent) / 10))

    return gain
