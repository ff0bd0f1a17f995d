# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A policy that decides together where UAVs fly, their shares of bandwidth, and the split point.

A rotary-wing UAV needs less power at some speed than in hover. Therefore UAVs fly on a circle. In
the first round, the policy tries circles of all given radii and heights; for each one, it searches
the shares and the split point, and takes the circle with the lowest objective. In every round, the
planner then decides shares and split point. With `hover`, UAVs stay at one place of the same
circle: this is the best static placement.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from orchestrator import Allocation, Scenario, Situation
from orchestrator.engine.flight import power_w
from orchestrator.engine.radio import of_gains
from orchestrator.policies.planner import Outlook, planner, search
from orchestrator.rounds.loop import Decide
from orchestrator.rounds.simulation import split_costs
from orchestrator.scenario.channel import mean_loss
from orchestrator.scenario.profiles import profile_of

STEP_RAD = np.pi / 18
"""Angle between two way points."""
POINTS = 400
"""Way points of a round: 11 times around the circle."""
SLOTS, SLOT_S = 2000, 1.0
"""The forecast with which a circle is tried: a constant channel."""


def joint_flight(
    scenario: Scenario,
    radii_m: Sequence[float] = (60, 120, 240, 480),
    heights_m: Sequence[float] = (40, 80),
    hover: bool = False,
) -> Decide:
    """The policy; see the module.

    Args:
        scenario: A scenario with `mobility.model: guided` and a model of propulsion.
        radii_m: Radii of the circles around the base station that are tried.
        heights_m: Heights of the circles that are tried.
        hover: Whether UAVs hover on the circle.
    """
    planned = planner(scenario)
    circle = min(
        ((radius, height) for radius in radii_m for height in heights_m),
        key=lambda each: _objective(scenario, *each, hover=hover),
    )

    def decide(now: Situation) -> Allocation:
        assert now.channel.position_m is not None
        here = now.channel.position_m[:, -1]
        return replace(planned(now), position_m=_ways(scenario, here, *circle, hover=hover))

    return decide


def _objective(scenario: Scenario, radius_m: float, height_m: float, *, hover: bool) -> float:
    """The objective of a round on a circle, with the best shares and split point that are found."""
    loss_db = mean_loss(scenario)
    assert loss_db is not None
    far_m = np.hypot(radius_m, height_m - scenario.base_station.position_m[2])
    gain = 10 ** (-loss_db(np.array([height_m]), np.array([far_m]))[0] / 10)
    speed = 0.0 if hover else scenario.mobility.limits.speed_m_s
    watts = power_w(scenario.propulsion, np.array([speed]), np.zeros(1))[0]
    outlook = Outlook(
        split_costs(scenario, profile_of(scenario)),
        of_gains(scenario),
        np.full((scenario.uavs.count, SLOTS), gain),
        SLOT_S,
        scenario.objective.flight_energy_weight * float(watts),
    )
    _, objective = search(outlook, [], np.random.default_rng(scenario.seed), generations=4)
    return objective


def _ways(scenario: Scenario, here, radius_m: float, height_m: float, *, hover: bool):
    """Way points [K, n, 3] on the circle, each UAV from its own angle on."""
    x, y, _ = scenario.base_station.position_m
    angle = np.arctan2(here[:, 1] - y, here[:, 0] - x)
    steps = np.zeros(1) if hover else STEP_RAD * np.arange(1, POINTS + 1)
    turned = angle[:, None] + steps
    across = x + radius_m * np.cos(turned), y + radius_m * np.sin(turned)
    return np.stack([*across, np.full(turned.shape, height_m)], axis=-1)
