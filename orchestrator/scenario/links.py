# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The links of a scenario, as the kernel or a simulation of it is told of them."""

from orchestrator.scenario.schema import Scenario
from testbed.network.shaping import Shape


def shape_of(scenario: Scenario, dilation: float = 1.0, *, network: bool = False) -> Shape:
    """How the scenario's links treat frames, with their delay in real seconds.

    Args:
        scenario: What its links are like.
        dilation: Real seconds for an emulated one.
        network: See `Shape.network`.
    """
    return Shape(
        mtu=scenario.emulation.mtu,
        charges_headers=scenario.emulation.rate_counts == "frame",
        congestion_control=scenario.emulation.congestion_control,
        initial_window=scenario.emulation.initial_window,
        delay_s=scenario.emulation.one_way_delay_s * dilation,
        network=network,
    )
