# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The energy of flight: the power of a UAV by its speed, over the time of a round.

It is a figure of its own next to the energy of the paper, which counts computing and sending.
"""

from dataclasses import replace

import numpy as np

from ns3_scenarios.trace import SlotTrace
from orchestrator.engine.arrays import Array
from orchestrator.scenario.schema import Propulsion, Scenario
from testbed.core.errors import InputError
from testbed.core.timeline import Round


def power_w(propulsion: Propulsion, speed_m_s: Array, climb_m_s: Array) -> Array:
    """Power of flight in W, of the shape of the speeds.

    For a rotary wing: eq. (12) of Y. Zeng, J. Xu, R. Zhang, "Energy Minimization for Wireless
    Communication With Rotary-Wing UAV", IEEE Trans. Wireless Commun., 2019. The equation is that of
    level flight; climbing costs the weight times the rate of climb in addition.

    Args:
        propulsion: Model and parameters.
        speed_m_s: Horizontal speeds.
        climb_m_s: Rates of climb; there is no gain from sinking.
    """
    p, v = propulsion, speed_m_s
    if p.model == "table":
        speeds, powers = np.array(p.table, float).T
        level = np.interp(v, speeds, powers)
    else:
        ratio = v**2 / (2 * p.rotor_velocity_m_s**2)
        blades = p.blade_w * (1 + 3 * v**2 / p.tip_speed_m_s**2)
        # sqrt(1 + r²) - r, without the cancellation at high speeds.
        induced = p.induced_w / np.sqrt(np.sqrt(1 + ratio**2) + ratio)
        density = p.air_kg_m3 * p.rotor_solidity * p.rotor_m2
        level = blades + induced + 0.5 * p.drag_ratio * density * v**3
    return np.asarray(level + p.weight_n * np.maximum(climb_m_s, 0.0))


def flight_power_w(
    scenario: Scenario, trace: SlotTrace, start_s: float, end_s: float
) -> tuple[Array, Array]:
    """Power of each UAV's flight in the slots from one moment to another, [K, n], and the time of
    each of these slots that lies between the moments in s, [n].

    The speed in a slot is that of the way to the next slot. In the last one it is that of the slot
    before, so that no later slot has to be known.

    Raises:
        InputError: The trace has no positions.
    """
    if trace.position_m is None:
        raise InputError("propulsion.model: needs a trace with positions")
    slot_s = trace.slot_s
    first = int(start_s / slot_s + 1e-9)
    last = max(first, int(np.ceil(end_s / slot_s - 1e-9)) - 1)
    before = max(0, min(first, last - 1))
    step = np.diff(trace.position_m[:, before : last + 1], axis=1) / slot_s
    if not step.shape[1]:
        step = np.zeros((trace.uavs, 1, 3))
    # The step of the last slot is the one before.
    of_slot = np.minimum(np.arange(first, last + 1) - before, step.shape[1] - 1)
    step = step[:, of_slot]
    slots = np.arange(first, last + 1)
    begin, end = np.maximum(slots * slot_s, start_s), np.minimum((slots + 1) * slot_s, end_s)
    watts = power_w(scenario.propulsion, np.hypot(step[..., 0], step[..., 1]), step[..., 2])
    return watts, np.maximum(end - begin, 0.0)


def with_flight(scenario: Scenario, round_: Round, trace: SlotTrace) -> Round:
    """A round with the energy of each UAV's flight, which the objective counts with its own weight;
    the round itself, if the scenario has no model of it.

    Args:
        scenario: The scenario.
        round_: The round.
        trace: Its channel.

    Raises:
        InputError: The trace has no positions.
    """
    if scenario.propulsion.model == "none":
        return round_
    watts, seconds = flight_power_w(scenario, trace, round_.start_s, round_.end_s)
    energy_j = watts @ seconds
    cost_s = scenario.objective.flight_energy_weight * float(energy_j.max())
    return replace(round_, flight_energy_j=energy_j, objective=round_.objective + cost_s)


def flight_cost(scenario: Scenario, trace: SlotTrace, since_s: float) -> float:
    """Part of the objective that a second of a round costs by flight, if UAVs fly on as they did
    since a moment: without unit."""
    weight = scenario.objective.flight_energy_weight
    if scenario.propulsion.model == "none" or not weight:
        return 0.0
    end_s = trace.slots * trace.slot_s
    watts, seconds = flight_power_w(scenario, trace, max(0.0, since_s), end_s)
    return weight * float((watts @ seconds).max() / seconds.sum())
