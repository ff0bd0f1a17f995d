# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Shannon rates of every slot, for the links of the emulated network.

What Python has of the air's physics; `orchestrator.engine.slots` and `kernel` state the same
for compiled code, and `tests/orchestrator/engine/test_rates.py` holds the two together.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ns3_scenarios.trace import ChannelTrace, Gains, TwoWay, both_ways
from orchestrator.engine.links import needs_snr
from orchestrator.engine.plan import Array, Radio, RoundPlan, prospects_of
from orchestrator.engine.slot_impairments import SlotAir, slot_air
from orchestrator.engine.tcp_model import Transport
from testbed.control.messages import RoundAhead
from testbed.core import orders

OUTAGE_S = 1e9
"""What counts as the time of a gradient that cannot be sent: longer than any."""


def shannon_bps(bandwidth_hz: Array | float, snr: Array) -> Array:
    """Shannon's rate in bit/s, eqs. (1), (2), (19); arrays of shapes that go together."""
    # Below, 1 + snr would lose the digits of snr.
    bits = np.where(snr > 1e-3, np.log2(1 + snr), np.log1p(snr) / np.log(2))
    return np.asarray(bandwidth_hz * bits)


def _snr(hz: Array | float, power_w: Array | float, gain: Array, noise: float) -> Array:
    band, power = np.atleast_1d(hz)[:, None], np.atleast_1d(power_w)[:, None]
    return np.asarray(power * gain / (band * noise))


def _rate(hz: Array | float, power_w: Array | float, gain: Array, noise: float) -> Array:
    return shannon_bps(np.atleast_1d(hz)[:, None], _snr(hz, power_w, gain, noise))


def uplink_bps(radio: Radio, beta: Array, gain: Array) -> Array:
    """R_U, eq. (rate_uplink): each client in its share of the band. Gain and result [K, S]."""
    return _rate(beta * radio.uplink_hz, radio.uplink_power_w, gain, radio.noise_w_per_hz)


def broadcast_bps(radio: Radio, gain: Array) -> Array:
    """R_D, eq. (rate_downlink_broadcast): all of the band and power. Gain and result [K, S]."""
    return _rate(radio.downlink_hz, radio.downlink_power_w, gain, radio.noise_w_per_hz)


def dedicated_bps(radio: Radio, beta: Array, rho: Array, gain: Array) -> Array:
    """R'_D, eq. (rate_downlink): shares β of band and ρ of power. Gain and result [K, S]."""
    power_w = rho * radio.downlink_power_w
    return _rate(beta * radio.downlink_hz, power_w, gain, radio.noise_w_per_hz)


class LinkRates(NamedTuple):
    """Rates of a round's links in bit/s, each [K, S]."""

    uplink: Array
    broadcast: Array
    gradient: Array
    """The downlink once the broadcast is over: shared out, or all of it in turns."""

    def slowed(self, slots: SlotAir, first: int = 0) -> "LinkRates":
        """What is left of them where frames are sent more than once, from a slot on."""
        end = first + self.uplink.shape[1]
        up, down, broadcast = slots.airtime[:, :, first:end]
        return LinkRates(self.uplink / up, self.broadcast / broadcast, self.gradient / down)


def first_gradient_s(plan: RoundPlan, gradient_bps: Array) -> Array:
    """τ'_SG(0), for the first lag of eq. (22): the first gradient at the rate of a slot.

    Args:
        plan: The round's.
        gradient_bps: Rates of the slots in which smashed data may arrive, shape [K, S].

    Returns:
        Seconds, shape [K, S]; `OUTAGE_S` in an outage.
    """
    with np.errstate(divide="ignore"):
        seconds: Array = 8 * plan.sg_bytes[:, :1] / gradient_bps
    return seconds.clip(max=OUTAGE_S)


def link_rates(plan: RoundPlan, radio: Radio, gain: Gains) -> LinkRates:
    """What the links of a round carry under its allocation; gain [K, S], or rates themselves."""
    shares, (up, down) = plan.allocation, both_ways(gain)
    if isinstance(gain, TwoWay) and gain.are_rates:
        return LinkRates(up, down, down)
    broadcast = broadcast_bps(radio, down)
    return LinkRates(
        uplink_bps(radio, shares.beta, up),
        broadcast,
        broadcast
        if plan.paradigm.gradient_transmission == "sequential"
        else dedicated_bps(radio, shares.beta, shares.rho, down),
    )


def snr_of(radio: Radio, beta: Array, rho: Array | None, gain: Gains) -> Array:
    """Signal-to-noise ratios of links, linear, shape [3, K, S]: uplink, downlink, broadcast.

    Args:
        radio: Bandwidths and powers.
        beta: Shares of the bands, shape [K].
        rho: Shares of the downlink's power, shape [K]; None: each has all of band and power.
        gain: Shape [K, S], or for each direction.
    """
    (up, down), noise = both_ways(gain), radio.noise_w_per_hz
    uplink = _snr(beta * radio.uplink_hz, radio.uplink_power_w, up, noise)
    broadcast = downlink = _snr(radio.downlink_hz, radio.downlink_power_w, down, noise)
    if rho is not None:
        downlink = _snr(beta * radio.downlink_hz, rho * radio.downlink_power_w, down, noise)
    return np.stack([uplink, downlink, broadcast])


def on_channel(
    transport: Transport | None, plan: RoundPlan, radio: Radio, trace: ChannelTrace
) -> Transport | None:
    """The transport of a round whose links differ from slot to slot, as far as a trace goes."""
    if transport is None or transport.scenario is None:
        return transport
    shares, snr = plan.allocation, None
    if needs_snr(transport.scenario):
        in_turns = plan.paradigm.gradient_transmission == "sequential"
        snr = snr_of(radio, shares.beta, None if in_turns else shares.rho, trace.gains)
    slots = slot_air(transport.scenario, trace, snr)
    return replace(transport, slots=slots, slot_s=trace.slot_s)


def ahead_of(
    plan: RoundPlan, rates: LinkRates, first_slot: int, slot_s: float
) -> RoundAhead | None:
    """What a round's order may know, at rates from a slot on; None: it is one of the paper's."""
    if plan.paradigm.order in orders.PAPERS:
        return None
    up, down = (tuple(map(tuple, each.tolist())) for each in (rates.uplink, rates.gradient))
    return RoundAhead(prospects_of(plan), first_slot, slot_s, up, down)
