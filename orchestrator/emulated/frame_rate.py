# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Frames that a scenario has delayed or lost, against as many as this machine can carry.

Where the kernel has no netem, a process handles them one by one; beyond what it can do they are
late, and TCP meets another air than the scenario's.
"""

from dataclasses import dataclass

import numpy as np

from ns3_scenarios.trace import ChannelSource
from orchestrator.engine.links import are_impaired, impairments_of, shape_of
from orchestrator.engine.plan import link_bytes
from orchestrator.engine.rounds import predict
from orchestrator.scenario.schema import Scenario
from testbed.core.timeline import SG, SM, Round
from testbed.host import line_speed
from testbed.network.shaping import Shape
from workloads.costs.profile import SplitProfile

BUSY = 0.8
"""Share of its time that the process may be busy: above it, frames wait for each other."""
_DELAYED_ACKNOWLEDGEMENTS = 0.5
"""A packet of one frame has half of one, a packet of several its own."""


@dataclass(frozen=True)
class Frames:
    """What a scenario asks of the process, and what that can do here."""

    asked_s: float
    """Packets in an emulated second, when they are most."""
    carried_s: float
    """In a real second."""

    @property
    def least_dilation(self) -> float:
        """With which they come in time."""
        return self.asked_s / (BUSY * self.carried_s)

    def __str__(self) -> str:
        return (
            f"without netem, a process delays and loses frames, here {self.carried_s:,.0f} a "
            f"second at most, and rounds have up to {self.asked_s:,.0f}"
        )


def of_rounds(scenario: Scenario, source: ChannelSource, profile: SplitProfile) -> Frames | None:
    """What the scenario's rounds ask; None where no process delays or loses their frames.

    Raises:
        InputError: The trace is too short, or does not fit.
        RunError: This machine could not be tried.
    """
    if not are_impaired(scenario):
        return None
    carried_s = line_speed.measure()
    if carried_s is None:
        return None
    rounds = predict(scenario, source, profile, sizing=link_bytes)
    shape = shape_of(scenario)
    acts = tuple(tuple(each.acts for each in way) for way in impairments_of(scenario))
    asked_s = max((frames_s(round_, shape, *acts) for round_ in rounds), default=0.0)
    return Frames(asked_s, carried_s)


def frames_s(round_: Round, shape: Shape, up: tuple[bool, ...], down: tuple[bool, ...]) -> float:
    """Packets in an emulated second that are delayed or lost, when they are most.

    Each transfer is taken to be as fast from its beginning to its end.

    Args:
        round_: As predicted, with the bytes of frames.
        shape: How links treat frames.
        up: Whether each UAV's uplink delays or loses frames.
        down: The same of downlinks.
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
    # What ends at a moment is over when others begin.
    at_once = np.cumsum([change for _, change in sorted(changes)])
    return float(at_once.max(initial=0.0))
