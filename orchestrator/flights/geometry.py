# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Distances, velocities and elevations of a UAV relative to the base station in each slot."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ns3_scenarios.aerial import free_space_db
from ns3_scenarios.errors import ChannelError
from ns3_scenarios.trace import ChannelTrace, SlotTrace
from orchestrator.engine.arrays import Array
from orchestrator.scenario.channel import flown
from orchestrator.scenario.loading import OWN, load
from testbed.core.errors import InputError

LOG_DISTANCE = "log-distance"
"""Name of the model with a fitted exponent."""
LOWEST_M = 1.5
"""Smallest height in m at which the channels of TR 36.777 are valid."""


@dataclass(frozen=True)
class Path:
    """The path of one UAV and the base station that it is connected to."""

    start_m: Array
    """Position at the start of each slot, shape [S, 3]: east, north, height above ground."""
    slot_s: float
    base_station_m: Array
    """Position of the base station in m, shape [3]."""

    @cached_property
    def position_m(self) -> Array:
        """Position at the middle of each slot, to which means over the slot refer, shape [S, 3]."""
        ends = np.concatenate([self.start_m[1:], self.start_m[-1:]])
        return np.asarray((self.start_m + ends) / 2)

    @cached_property
    def way_m(self) -> Array:
        """Path flown until the middle of each slot, shape [S]."""
        steps = np.linalg.norm(np.diff(self.position_m, axis=0), axis=1)
        return np.concatenate([[0.0], np.cumsum(steps)])

    @property
    def height_m(self) -> Array:
        """Height above ground, shape [S]."""
        return np.asarray(self.position_m[:, 2])

    @cached_property
    def _offset_m(self) -> Array:
        return np.asarray(self.position_m - self.base_station_m)

    @cached_property
    def far_m(self) -> Array:
        """Distance from the base station in three dimensions, at least 1 m, shape [S]."""
        return np.asarray(np.maximum(np.linalg.norm(self._offset_m, axis=1), 1.0))

    @property
    def decades_db(self) -> Array:
        """10 log10(d / 1 m), shape [S]."""
        return np.asarray(10 * np.log10(self.far_m))

    @cached_property
    def across_m(self) -> Array:
        """Horizontal distance from the base station, shape [S]."""
        return np.hypot(self._offset_m[:, 0], self._offset_m[:, 1])

    @cached_property
    def elevation_deg(self) -> Array:
        """Elevation of the UAV seen from the base station in degrees, shape [S]."""
        return np.degrees(np.arctan2(self._offset_m[:, 2], np.maximum(self.across_m, 1e-9)))

    @cached_property
    def away_m_s(self) -> Array:
        """Horizontal velocity away from the base station in m/s, shape [S].

        A multirotor and its antenna tilt in the direction of flight, about in proportion to the
        velocity.
        """
        moved = np.diff(self.start_m[:, :2], axis=0, append=self.start_m[-1:, :2])
        outwards = self._offset_m[:, :2] / np.maximum(self.across_m, 1e-9)[:, None]
        return np.asarray((moved * outwards).sum(axis=1) / self.slot_s)

    def loss_db(self, model: str, carrier_hz: float) -> Array:
        """Path loss of a channel model in dB with line of sight and without shadowing, shape [S].

        Heights below `LOWEST_M` are replaced by it, because most models are not valid below it.

        Raises:
            InputError: There is no such model, it fails, or it is not valid at some position of the
                flight.
        """
        if model == "free-space":
            return np.asarray(free_space_db(self.far_m, carrier_hz))
        position_m = self.position_m.copy()
        position_m[:, 2] = np.maximum(position_m[:, 2], LOWEST_M)
        x, y, z = self.base_station_m.tolist()
        scenario = load(
            OWN / "scenarios" / "paper.yaml",
            [
                f"radio.channel={model}",
                f"radio.carrier_hz={carrier_hz!r}",
                f"base_station.position_m=[{x!r}, {y!r}, {z!r}]",
            ],
        )
        try:
            made: SlotTrace = flown(scenario, position_m[None], self.slot_s)
        except ChannelError as error:
            raise InputError(str(error)) from None
        assert isinstance(made, ChannelTrace)
        gain = made.gain[0]
        if not gain.all():
            slot = int(np.argmin(gain))
            raise InputError(f"radio.channel {model!r}: outage at {slot * self.slot_s:g} s")
        return np.asarray(-10 * np.log10(gain))
