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

        The velocity of a slot is that since the slot before, in slot 0 that of slot 1.

        Args:
            position_m: Positions of the UAVs relative to the base station, shape [K, S, 3], S > 1.
            slot_s: Length of a slot, in seconds.
        """
        across_m, height_m = position_m[..., :2], position_m[..., 2]
        far_m = np.linalg.norm(across_m, axis=2)
        moved_m = np.diff(across_m, axis=1)
        moved_m = np.concatenate([moved_m[:, :1], moved_m], axis=1)
        # Above the base station no direction leads away from it.
        away_m_s = (moved_m * across_m).sum(axis=2) / np.where(far_m > 0, far_m, np.inf) / slot_s
        elevation_deg = np.degrees(np.arctan2(height_m, far_m))
        return np.asarray(
            self.heading_db_per_m_s * away_m_s + self.elevation_db_per_deg * elevation_deg
        )


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
        self._seeds = [[(seed, STREAM, k, n) for k in range(self.uavs)] for n in range(4)]
        own, other = self._seeds[:2]
        self._up = Correlated(up.decorrelation_m, own)
        self._down = [Correlated(down.decorrelation_m, seeds) for seeds in (own, other)]
        self._slots = 0
        """Number of slots that were made."""
        self._last_m: Array | None = None
        """Positions in the last of them, shape [K, 1, 3]."""
        self._made: ChannelTrace | None = None
        self._is_limited = False

    def trace(self, slots: int) -> ChannelTrace:
        """The trace from slot 0 with at least `slots` slots; earlier slots never change."""
        made = self._made
        if made is None or made.slots < slots:
            whole = self._source.trace(max(slots, 2))  # slot 0 has the velocity of slot 1
            gains = self._gains(whole, self._slots)
            if made is not None:
                assert made.gain_down is not None
                gains = np.concatenate([np.stack([made.gain, made.gain_down]), gains], axis=2)
            gains.flags.writeable = False
            self._made = made = replace(whole, gain=gains[0], gain_down=gains[1])
        return made

    def following(self, slots: int) -> ChannelTrace:
        """The next slots, which the channel does not keep; see `Located.following`."""
        piece = self._source.following(slots if self._slots else max(slots, 2))
        up, down = self._gains(piece, 0)
        return replace(piece, gain=up, gain_down=down)

    def _gains(self, flown: ChannelTrace, first: int) -> Array:
        """The gains, shape [2, K, n], of the next slots, which are those of a flight from an index
        on."""
        assert flown.position_m is not None
        down = flown.gain if flown.gain_down is None else flown.gain_down
        modelled = np.stack([flown.gain, down])[..., first:]
        added_db = self._added_db(flown.position_m[:, first:])
        return self._limited(modelled, modelled * 10 ** (added_db / 10))

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
        for way, normal, seeds in zip(self._ways, shadowing, self._seeds[2:], strict=True):
            scatter = [
                np.random.default_rng(seed).standard_normal(second[-1] + 1)[second]
                for seed in seeds
            ]
            flight_db = way.of_flight_db(path_m - self._bs_position_m, self.slot_s)
            added_db.append(
                way.offset_db
                + flight_db[:, path_m.shape[1] - len(slots) :]
                + way.shadowing_db * normal
                + way.scatter_db * np.stack(scatter)
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
