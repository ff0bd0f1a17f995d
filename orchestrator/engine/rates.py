# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Values that follow from link rates: the first lag, the information for orders, and slot
impairments."""

from dataclasses import replace

import numpy as np

from ns3_scenarios.trace import SlotTrace, SlotValues
from orchestrator.engine.access import LinkRates, RadioAccess
from orchestrator.engine.fdma import Fdma
from orchestrator.engine.lte import Cellular
from orchestrator.engine.plan import Allocation, Array, RoundPlan, prospects_of
from orchestrator.engine.slot_impairments import SlotImpairments, impairments_by_slot
from orchestrator.engine.tcp_model import TcpModel
from orchestrator.scenario.schema import Scenario
from testbed.control.messages import RoundAhead
from testbed.core import orders

OUTAGE_S = 1e9
"""Duration of a gradient during an outage, longer than any other."""


def link_rates(plan: RoundPlan, radio: RadioAccess, values: SlotValues) -> LinkRates:
    """Link rates of a round under its allocation; values of shape [K, S], or per direction."""
    rates = radio.link_rates(plan.allocation, values, in_turns=plan.in_turns)
    if plan.uplink_shares is plan.allocation:
        return rates
    whole = radio.link_rates(plan.uplink_shares, values, in_turns=plan.in_turns)
    return rates._replace(uplink=whole.uplink)


def first_gradient_s(plan: RoundPlan, gradient_bps: Array) -> Array:
    """τ'_SG(0), for the first lag of eq. (22): the first gradient at the rate of a slot.

    Args:
        plan: Plan of the round.
        gradient_bps: Rates of the slots in which smashed data may arrive, shape [K, S].

    Returns:
        Seconds, shape [K, S]; `OUTAGE_S` in an outage.
    """
    with np.errstate(divide="ignore"):
        seconds: Array = 8 * plan.sg_bytes[:, :1] / gradient_bps
    return seconds.clip(max=OUTAGE_S)


def impaired_slots(
    scenario: Scenario,
    shares: Allocation,
    radio: RadioAccess,
    trace: SlotTrace,
    *,
    in_turns: bool,
    uplink: Allocation | None = None,
) -> SlotImpairments:
    """The impairments of links that differ between slots, for each slot of a trace.

    Args:
        scenario: Scenario with the links.
        shares: Allocation of the links.
        radio: The radio, which has signal-to-noise ratios if a loss depends on them.
        trace: The channel.
        in_turns: Whether gradients have the whole downlink one after the other.
        uplink: Allocation of the uplinks, if it is another one.
    """
    snr = None
    if scenario.links.needs_snr("up", "down"):
        assert isinstance(radio, Fdma | Cellular)  # others are refused
        snr = radio.snr(shares, trace.values, in_turns=in_turns)
        if uplink is not None:
            snr[0] = radio.snr(uplink, trace.values, in_turns=in_turns)[0]
    return impairments_by_slot(scenario, trace, snr)


def on_channel(
    tcp: TcpModel | None, plan: RoundPlan, radio: RadioAccess, trace: SlotTrace
) -> TcpModel | None:
    """The TCP model of a round with the slot impairments of a trace."""
    if tcp is None or tcp.scenario is None:
        return tcp
    slots = impaired_slots(
        tcp.scenario,
        plan.allocation,
        radio,
        trace,
        in_turns=plan.in_turns,
        uplink=plan.uplink_shares,
    )
    return replace(tcp, slots=slots, slot_s=trace.slot_s)


def ahead_of(
    plan: RoundPlan, rates: LinkRates, first_slot: int, slot_s: float
) -> RoundAhead | None:
    """The information for a round's order, at rates from a slot on; None for the paper's orders."""
    if plan.paradigm.order in orders.PAPERS:
        return None
    up, down = (tuple(map(tuple, each.tolist())) for each in (rates.uplink, rates.gradient))
    return RoundAhead(prospects_of(plan), first_slot, slot_s, up, down)
