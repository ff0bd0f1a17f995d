# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Several base stations with a band each: every UAV has the channel to its own one."""

from collections.abc import Sequence

import numpy as np

from ns3_scenarios.trace import ChannelTrace, Derived, Located

CLIENT_AXIS = {"gain": 0, "gain_down": 0, "position_m": 0, "fading": 1}
"""By field of a trace: the axis of its UAVs."""


class EdgesChannel(Derived):
    """A `ChannelSource` that takes each UAV from the channel of its own base station.

    Args:
        sources: The channels of the base stations, for all UAVs each.
        station: The index of the base station of each UAV, shape [K].
    """

    def __init__(self, sources: Sequence[Located], station: Sequence[int]):
        super().__init__(sources[0])
        self._sources = sources
        self._station = np.array(station)

    def following(self, slots: int) -> ChannelTrace:
        """The next slots, which the caller keeps; see `Located.following`.

        Raises:
            ChannelError: ns-3 ended, a model failed, or a channel does not hold.
        """
        return self._own([source.following(slots) for source in self._sources])

    def _own(self, made: Sequence[ChannelTrace]) -> ChannelTrace:
        """The UAVs' own channels of those to all base stations."""
        count = min(trace.slots for trace in made)
        made = [trace.first(count) for trace in made]
        uavs = np.arange(len(self._station))
        own = {}
        for name, axis in CLIENT_AXIS.items():
            if getattr(made[0], name) is not None:
                each = np.stack([np.moveaxis(getattr(trace, name), axis, 0) for trace in made])
                own[name] = np.ascontiguousarray(np.moveaxis(each[self._station, uavs], 0, axis))
        return made[0].replaced(**own)

    def close(self) -> None:
        """End the processes of ns-3. Returned traces stay valid."""
        for each in self._sources:
            each.close()
