# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A channel that was fitted to measured flights, on the model on which it is based.

In each direction, this many dB are added to the gain of the model: an offset; a part that depends
on the flight, i.e. on the elevation of the UAV and on its velocity away from the base station;
shadowing, which is correlated along the path of the UAV; and a scatter that is drawn independently
for each whole second.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ns3_scenarios.modelled import Correlated
from ns3_scenarios.trace import LEAST_GAIN, MOST_GAIN, Array, ChannelTrace, Derived, Located

log = logging.getLogger(__name__)

STREAM = 0xF17
"""The number of the random stream for fitted channels, among those drawn by the scenario's seed."""


@dataclass(frozen=True)
class Direction:
    """One direction of a fitted channel."""

    offset_db: float
    """Gain that is added to that of the model."""
    shadowing_db: float
    """Standard deviation of shadowing."""
    decorrelation_m: float
    """Distance at which the correlation of shadowing is 1/e."""
    scatter_db: float = 0.0
    """Standard deviation of the part that is independent from second to second."""
    heading_db_per_m_s: float = 0.0
    """Gain per m/s of the horizontal velocity away from the base station."""
    elevation_db_per_deg: float = 0.0
    """Gain per degree of the elevation of the UAV seen from the base station."""

    def of_flight_db(self, position_m: Array, slot_s: float) -> Array:
        """The gain that depends on the flight, shape [K, S].

        The velocity of a slot is that since the slot before, in slot 0 that of slot 1 if it is
        known, else 0.

        Args:
            position_m: Positions of the UAVs relative to the base station, shape [K, S, 3].
            slot_s: Length of a slot, in seconds.
        """
        across_m, height_m = position_m[..., :2], position_m[..., 2]
        far_m = np.linalg.norm(across_m, axis=2)
        moved_m = np.diff(across_m, axis=1)
        first_m = moved_m[:, :1] if moved_m.shape[1] else np.zeros(across_m.shape)
        moved_m = np.concatenate([first_m, moved_m], axis=1)
        # Above the base station no direction leads away from it.
        away_m_s = (moved_m * across_m).sum(axis=2) / np.where(far_m > 0, far_m, np.inf) / slot_s
        elevation_deg = np.degrees(np.arctan2(height_m, far_m))
        return np.asarray(
            self.heading_db_per_m_s * away_m_s + self.elevation_db_per_deg * elevation_deg
        )


class _PerSecond:
    """Standard normal numbers that are drawn for each whole second, one sequence per UAV.

    Args:
        seeds: Seed of each UAV.
    """

    def __init__(self, seeds: Sequence[tuple[int, ...]]):
        self._drawn = [np.random.default_rng(seed) for seed in seeds]
        self._first = 0
        self._numbers = np.empty((len(seeds), 0))

    def of(self, second: npt.NDArray[np.int64]) -> Array:
        """The numbers of these seconds, shape [K, n], which do not decrease from call to call."""
        missing = int(second[-1]) + 1 - self._first - self._numbers.shape[1]
        more = np.stack([drawn.standard_normal(max(missing, 0)) for drawn in self._drawn])
        self._numbers = np.hstack([self._numbers, more])[:, second[0] - self._first :]
        self._first = int(second[0])
        return self._numbers[:, second - self._first]


class FittedChannel(Derived):
    """A `ChannelSource` with a fitted channel.

    The shadowing of the uplink is a process X. That of the downlink is r X' + sqrt(1 - r²) Y, where
    X' has the random numbers of X and the decorrelation distance of the downlink, and Y is
    independent. Both directions therefore have the correlation r if their decorrelation distances
    are equal; for distances D and D' and short slots it tends to 2 r sqrt(D D') / (D + D').

    Gains above 1 (0 dB) are limited to 1, which is logged once; outages of the model remain.

    Args:
        source: The gains of the model, with positions.
        up: The fit of the uplink.
        down: The fit of the downlink.
        correlation: Correlation r of the shadowing of both directions.
        bs_position_m: Position of the base station.
        seed: Equal seeds give equal gains.
    """

    def __init__(
        self,
        source: Located,
        up: Direction,
        down: Direction,
        *,
        correlation: float,
        bs_position_m: Sequence[float],
        seed: int,
    ):
        super().__init__(source)
        self._ways, self._correlation = (up, down), correlation
        self._bs_position_m = np.array(bs_position_m)
        own, other, *scatter = ([(seed, STREAM, k, n) for k in range(self.uavs)] for n in range(4))
        self._scatter = [_PerSecond(seeds) for seeds in scatter]
        self._up = Correlated(up.decorrelation_m, own)
        self._down = [Correlated(down.decorrelation_m, seeds) for seeds in (own, other)]
        self._slots = 0
        """Number of slots that were made."""
        self._last_m: Array | None = None
        """Positions in the last of them, shape [K, 1, 3]."""
        self._is_limited = False

    def following(self, slots: int) -> ChannelTrace:
        """The next slots, which the caller keeps; see `Located.following`."""
        if not self._slots and self.horizon is None:
            slots = max(slots, 2)  # slot 0 has the velocity of slot 1
        flown = self._source.following(slots)
        assert flown.position_m is not None
        down = flown.gain if flown.gain_down is None else flown.gain_down
        modelled = np.stack([flown.gain, down])
        added_db = self._added_db(flown.position_m)
        gains = self._limited(modelled, modelled * 10 ** (added_db / 10))
        return replace(flown, gain=gains[0], gain_down=gains[1])

    def _added_db(self, position_m: Array) -> Array:
        """Difference in dB from the gains of the model at the next positions, shape [2, K, n]."""
        part, have = self._correlation, self._slots
        shared, own = (process.along(position_m) for process in self._down)
        shadowing = self._up.along(position_m), part * shared + np.sqrt(1 - part**2) * own
        # A product that should be a whole number of seconds may be a little less.
        slots = np.arange(have, have + position_m.shape[1])
        second = np.floor(slots * self.slot_s + 1e-9).astype(np.int64)
        # The velocity of the first of these slots is that since the slot before.
        path_m = position_m if self._last_m is None else np.append(self._last_m, position_m, 1)
        added_db = []
        for way, normal, scatter in zip(self._ways, shadowing, self._scatter, strict=True):
            flight_db = way.of_flight_db(path_m - self._bs_position_m, self.slot_s)
            added_db.append(
                way.offset_db
                + flight_db[:, path_m.shape[1] - len(slots) :]
                + way.shadowing_db * normal
                + way.scatter_db * scatter.of(second)
            )
        self._slots, self._last_m = have + len(slots), position_m[:, -1:]
        return np.stack(added_db)

    def _limited(self, modelled: Array, gains: Array) -> Array:
        """The gains, limited to the allowed range, and 0 where the model has an outage."""
        if gains.max() > MOST_GAIN and not self._is_limited:
            self._is_limited = True
            highest_db = 10 * np.log10(gains.max())
            log.warning("the fitted channel has gains of up to %.1f dB; 0 dB is taken", highest_db)
        return np.where(modelled == 0, 0.0, gains.clip(LEAST_GAIN, MOST_GAIN))
