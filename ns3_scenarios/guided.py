# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A flight along way points that a policy decides at the start of a round.

A UAV flies straight from one way point to the next, at its highest horizontal speed or at its
highest rate of climb, which is slower; then it hovers at the last one until the next decision.
"""

import numpy as np

from ns3_scenarios.trace import Array


class GuidedFlight:
    """A `Flight` whose way points change while it is flown.

    Args:
        start_m: Positions before the first decision, shape [K, 3].
        speed_m_s: Highest horizontal speed.
        climb_m_s: Highest vertical speed.
        horizon: 1 if the channel remembers earlier positions, so that no slot can be made again;
            None: later slots can be forgotten, see `Kept.rewind`.
    """

    def __init__(
        self, start_m: Array, speed_m_s: float, climb_m_s: float, horizon: int | None = None
    ):
        self.horizon = horizon
        self._speed_m_s, self._climb_m_s = speed_m_s, climb_m_s
        self._points = np.array(start_m, float)[:, None]
        self._times_s = np.zeros(self._points.shape[:2])

    def fly(self, since_s: float, position_m: Array) -> None:
        """Fly to way points from a moment on, from where the UAVs are then.

        Args:
            since_s: The moment.
            position_m: A way point of each UAV, shape [K, 3], or several, [K, n, 3].
        """
        uavs = len(self._points)
        here = self.at(np.array([since_s]))
        points = np.concatenate([here, np.reshape(position_m, (uavs, -1, 3))], axis=1)
        way = np.diff(points, axis=1)
        across, up = np.hypot(way[..., 0], way[..., 1]), np.abs(way[..., 2])
        legs_s = np.maximum(across / self._speed_m_s, up / self._climb_m_s)
        times_s = since_s + np.cumsum(legs_s, axis=1)
        self._points = points
        self._times_s = np.concatenate([np.full((uavs, 1), since_s), times_s], axis=1)

    def at(self, times_s: Array) -> Array:
        """Positions at some moments since the last decision, shape [K, n, 3]."""
        place = np.empty((len(self._points), len(times_s), 3))
        for k, (times, points) in enumerate(zip(self._times_s, self._points, strict=True)):
            for axis in range(3):
                place[k, :, axis] = np.interp(times_s, times, points[:, axis])
        return place

    def positions(self, first: int, slots: int, slot_s: float) -> Array:
        """Positions at the start of each slot, shape [K, slots, 3]."""
        # Multiplied, not accumulated, so that rounding errors do not depend on calls.
        return self.at(np.arange(first, first + slots, dtype=np.float64) * slot_s)
