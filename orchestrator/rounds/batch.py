# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Predicts all rounds of a scenario together, in compiled code, if no decision depends on earlier
rounds."""

from contextlib import suppress

import numpy as np

from ns3_scenarios.trace import ChannelSource, TraceExhausted
from orchestrator.engine.faults import planned
from orchestrator.engine.plan import fixed_allocation
from orchestrator.engine.radio import check_shares, radio_access
from orchestrator.rounds.length import check_length, check_rounds
from orchestrator.rounds.loop import check_range
from orchestrator.rounds.selection import selection
from orchestrator.rounds.simulation import BatchTimes, simulate_batch, split_costs
from orchestrator.scenario.channel import Channel
from orchestrator.scenario.schema import Scenario
from workloads.costs.profile import SplitProfile


def is_known_beforehand(scenario: Scenario) -> bool:
    """Whether every round has the scenario's own split and shares, all clients, and no faults."""
    decided = scenario.allocation.kind.decides or selection(scenario)
    dropped = planned(scenario) or scenario.participation.deadline_s is not None
    scheme, flies = scenario.scheme, scenario.propulsion.model != "none"
    return not (flies or decided or scheme.asynchronous or dropped) and scheme.is_plain


def predict_at_once(scenario: Scenario, source: ChannelSource, profile: SplitProfile) -> BatchTimes:
    """The rounds of `predict`, equal to the last bit, without their steps.

    Args:
        scenario: Scenario for which `is_known_beforehand` is true.
        source: Source of the channel, which is extended as the rounds need it.
        profile: Costs of each split.

    Raises:
        TraceExhausted: The source has too few slots.
    """
    allocation = fixed_allocation(scenario)
    costs = split_costs(scenario, profile)
    every_round = (scenario.rounds, scenario.uavs.count)
    alpha, beta, rho = (
        np.broadcast_to(share, every_round)
        for share in (allocation.alpha, allocation.beta, allocation.rho)
    )
    split = np.broadcast_to(allocation.splits, every_round)
    channel = Channel.of(source)
    radio = radio_access(scenario, channel.now)
    check_shares(radio, allocation)

    def played(rounds: int) -> BatchTimes:
        trace, own = channel.now, split[:rounds]
        given = (values[:rounds] for values in (alpha, beta, rho))
        gain, slot_s = trace.values, trace.slot_s
        return simulate_batch(costs, radio, gain, slot_s, 0.0, own, *given, follow=True)

    while True:
        try:
            return played(scenario.rounds)
        except TraceExhausted:
            trace, plan = channel.now, costs.plan(allocation)
            check_range(radio, allocation, trace, 0.0)
            check_length(scenario, plan, radio, trace, 0.0, rounds=scenario.rounds)
            with suppress(TraceExhausted):
                check_rounds(channel, float(played(1).latency_s[0]), scenario.rounds)
            channel.grow()
