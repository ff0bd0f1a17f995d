# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A source of the slots of a given trace, one piece after another."""

from ns3_scenarios.trace import ChannelTrace


class Given:
    """A `Located` source that has exactly as many slots as it is asked for.

    Args:
        whole: The trace.
        horizon: The horizon that it says it has.
    """

    def __init__(self, whole: ChannelTrace, horizon: int | None = None):
        self.whole, self.slot_s, self.uavs = whole, whole.slot_s, whole.uavs
        self.horizon = horizon
        self.made = self.closed = 0

    def following(self, slots: int) -> ChannelTrace:
        """The next slots."""
        first, self.made = self.made, self.made + slots
        piece = self.whole.at(slice(first, self.made))
        assert piece.slots == slots
        return piece

    def close(self) -> None:
        """Count the calls."""
        self.closed += 1
