# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Compares the frames that a scenario delays or loses with the number that this machine can
process.

If the kernel has no netem, a process handles frames one by one; beyond its capacity they are late,
and TCP experiences other delays than the scenario's.
"""

from dataclasses import dataclass

import numpy as np

from ns3_scenarios.trace import ChannelSource
from orchestrator.engine.links import impairments_of, shape_of
from orchestrator.engine.plan import link_bytes
from orchestrator.rounds.loop import predict
from orchestrator.scenario.schema import Scenario
from testbed.core.timeline import SG, SM, Round
from testbed.host import line_speed
from testbed.network.shaping import Shape
from workloads.costs.profile import SplitProfile

BUSY = 0.8
"""Largest load of the process; above it, frames wait for each other."""
_DELAYED_ACKNOWLEDGEMENTS = 0.5
"""Acknowledgements per packet: half of one for a packet of one frame, one for larger packets."""


@dataclass(frozen=True)
class Frames:
    """The packet rate that a scenario needs, and the one that the process can handle here."""

    needed_s: float
    """Largest number of packets per emulated second."""
    capacity_s: float
    """Capacity of the process in packets per real second."""

    @property
    def least_dilation(self) -> float:
        """The smallest dilation with which no packet is late."""
        return self.needed_s / (BUSY * self.capacity_s)

    def __str__(self) -> str:
        return (
            f"without netem, a process delays and loses frames, at most {self.capacity_s:,.0f} per "
            f"second, and rounds have up to {self.needed_s:,.0f}"
        )


def of_rounds(scenario: Scenario, source: ChannelSource, profile: SplitProfile) -> Frames | None:
    """The packet rate of the scenario's rounds; None where no process delays or loses their frames.

    Raises:
        InputError: The trace is too short, or does not fit.
        RunError: The capacity of this machine could not be measured.
    """
    if not scenario.is_impaired:
        return None
    capacity_s = line_speed.measure()
    if capacity_s is None:
        return None
    rounds = predict(scenario, source, profile, sizing=link_bytes)
    shape = shape_of(scenario)
    acts = tuple(tuple(each.acts for each in way) for way in impairments_of(scenario))
    needed_s = max((frames_s(round_, shape, *acts) for round_ in rounds), default=0.0)
    return Frames(needed_s, capacity_s)


def frames_s(round_: Round, shape: Shape, up: tuple[bool, ...], down: tuple[bool, ...]) -> float:
    """Largest number of packets per emulated second that are delayed or lost.

    Each transfer is assumed to have a constant rate.

    Args:
        round_: Predicted round, with the bytes of frames.
        shape: Shape of the links.
        up: Whether each UAV's uplink delays or loses frames.
        down: Whether each UAV's downlink delays or loses frames.
    """
    changes: list[tuple[float, float]] = []
    for client, _, step, start_s, end_s, size in round_.spans[round_.spans["bytes"] > 0].tolist():
        data, back = (down, up) if step in (SM, SG) else (up, down)
        rate_bps = 8 * size / (end_s - start_s)
        frames = 1 if shape.single_frames else shape.packet_frames(rate_bps)
        acknowledged = _DELAYED_ACKNOWLEDGEMENTS if frames == 1 else 1.0
        packets_s = rate_bps / (8 * shape.frame_bytes * frames)
        handled = packets_s * (data[client - 1] + acknowledged * back[client - 1])
        changes += [(start_s, handled), (end_s, -handled)]
    # Transfers that end at some moment do not overlap those that begin then.
    at_once = np.cumsum([change for _, change in sorted(changes)])
    return float(at_once.max(initial=0.0))
