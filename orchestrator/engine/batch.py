# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""All rounds of a scenario at once where nothing is decided on the way: compiled code alone."""

import numpy as np

from ns3_scenarios.trace import ChannelSource, TraceExhausted
from orchestrator.engine.engine import BatchTimes, simulate_chain, split_costs
from orchestrator.engine.faults import planned
from orchestrator.engine.plan import fixed_allocation, radio_of
from orchestrator.engine.selection import selection
from orchestrator.scenario.channel import Channel, check_equal_shares
from orchestrator.scenario.schema import Scenario
from workloads.costs.profile import SplitProfile


def is_known_beforehand(scenario: Scenario) -> bool:
    """Whether every round has the scenario's own split and shares, everybody takes part, and
    nothing goes wrong."""
    decided = scenario.allocation.policy not in {"fixed", "equal"} or selection(scenario)
    dropped = planned(scenario) or scenario.participation.deadline_s is not None
    return not decided and not scenario.scheme.asynchronous and not dropped


def predict_at_once(scenario: Scenario, source: ChannelSource, profile: SplitProfile) -> BatchTimes:
    """The rounds of `predict`, to the last bit, without their steps.

    Args:
        scenario: One for which `is_known_beforehand`.
        source: Channels; asked for more slots as the rounds need them.
        profile: Costs of each split.

    Raises:
        TraceExhausted: The source has too few slots.
    """
    allocation = fixed_allocation(scenario)
    costs, radio = split_costs(scenario, profile), radio_of(scenario)
    every_round = (scenario.rounds, scenario.uavs.count)
    alpha, beta, rho = (
        np.broadcast_to(share, every_round)
        for share in (allocation.alpha, allocation.beta, allocation.rho)
    )
    split = np.broadcast_to(allocation.splits, every_round)
    channel = Channel.of(source)
    while True:
        trace = channel.now
        if trace.are_rates:
            check_equal_shares(beta=allocation.beta, rho=allocation.rho)
        try:
            return simulate_chain(
                costs, radio, trace.gains, trace.slot_s, 0.0, split, alpha, beta, rho
            )
        except TraceExhausted:
            channel.grow()
