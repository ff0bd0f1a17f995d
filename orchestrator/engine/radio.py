# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The radio access of a scenario: rates of Shannon, LTE, NR, Wi-Fi, a package, or a trace.

`radio_access` makes the radio of a scenario for a trace: the radio of `of_gains` if the trace has
gains, `Rates` if it has rates.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self, cast

import numpy as np

from ns3_scenarios.trace import RateTrace, SlotTrace
from orchestrator.engine.access import Radio, RadioAccess
from orchestrator.engine.arrays import Ints
from orchestrator.engine.core_library import GIVEN, Bands
from orchestrator.engine.fdma import Fdma, ShannonFdma
from orchestrator.engine.lte import Lte
from orchestrator.engine.nr import Nr
from orchestrator.engine.plan import Allocation, Array
from orchestrator.engine.wifi import Wifi
from orchestrator.scenario.channel import check_channel, downlink_of, fading_of
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError


@dataclass(frozen=True)
class Rates(Radio):
    """A trace of rates.

    Each uplink carries its rate, regardless of the other links in use. The same is true of each
    downlink, unless its rate is that of the whole cell: then parallel gradients share it.
    """

    uplink_power_w: Array
    """p_k, shape [K]."""
    is_cell: bool = field(default=False, kw_only=True)
    """Whether a rate of the downlink is that of the whole cell."""

    without_shares = "where the trace has rates, which no share of band or power changes"
    is_shared = False
    least_beta = 0.0

    @property
    def decides(self) -> frozenset[str]:
        """See `RadioAccess.decides`."""
        return frozenset({"rho"} if self.is_cell else ())

    @classmethod
    def of(cls, scenario: Scenario, is_cell: bool) -> "Rates":
        """The radio of a scenario whose trace has rates.

        Args:
            scenario: The scenario.
            is_cell: Whether a rate of the downlink is that of the whole cell.
        """
        return cls(scenario.fleet.tx_power_w, is_cell=is_cell)

    def of_clients(self, chosen: Ints) -> Self:
        """See `RadioAccess.of_clients`."""
        return replace(self, uplink_power_w=self.uplink_power_w[chosen])

    def bands(self) -> Bands:
        """See `RadioAccess.bands`."""
        return Bands(GIVEN, self.uplink_power_w, shared=self.is_cell)


ACCESS: Mapping[str, type[ShannonFdma] | type[Lte] | type[Nr] | type[Wifi]] = {
    "shannon": ShannonFdma,
    "lte": Lte,
    "nr": Nr,
    "wifi": Wifi,
}
"""The built-in radios that compute rates from gains, by `radio.access`."""


def of_gains(scenario: Scenario) -> Fdma | Lte | Nr | Wifi:
    """The radio of a scenario whose trace has gains.

    Raises:
        InputError: The rate model of a package cannot be used.
    """
    built_in = ACCESS.get(scenario.radio.access)
    if built_in is not None:
        return built_in.of(scenario)
    # numba, which compiles functions of packages, takes half a second to import.
    from orchestrator.engine.curve import Curve

    return Curve.of(scenario)


def radio_access(scenario: Scenario, trace: SlotTrace) -> RadioAccess:
    """The radio access of a scenario on a channel of this kind.

    Raises:
        InputError: The scenario does not go together with a trace of this kind, or the rate model
            of a package cannot be used.
    """
    check_channel(scenario, trace)
    if isinstance(trace, RateTrace):
        return Rates.of(scenario, downlink_of(scenario, trace) == "cell")
    return of_gains(scenario)


def powered(radio: RadioAccess, allocation: Allocation) -> RadioAccess:
    """The radio of a round in which the allocation may decide the UAVs' transmit powers."""
    if allocation.tx_power_w is None:
        return radio
    made: RadioAccess = replace(cast(Any, radio), uplink_power_w=allocation.tx_power_w)
    return made


def power_share(scenario: Scenario, allocation: Allocation) -> Array | None:
    """Transmit power of each UAV relative to that of the scenario, shape [K], by which ns-3's
    uplinks have other gains; None: equal."""
    if allocation.tx_power_w is None:
        return None
    return np.asarray(allocation.tx_power_w / scenario.fleet.tx_power_w)


OF_RATES = "rates of a trace"
WHILE_ALL_SEND = "Rates hold while all UAVs send; where fewer send, each has more."
"""Explanation for rates of a shared band that differ from those of a round's steps."""


def describe_radio(scenario: Scenario, trace: SlotTrace | None = None) -> str:
    """The radio of a scenario in a few words, e.g. "Shannon's rates, FDMA".

    Args:
        scenario: The scenario.
        trace: Its channel, or some slots of it; None: a channel of gains.
    """
    radio, lte, wifi = scenario.radio, scenario.radio.lte, scenario.radio.wifi
    if isinstance(trace, RateTrace):
        return OF_RATES
    words = radio.access
    if radio.access == "shannon":
        words = "Shannon's rates, FDMA"
    elif radio.kind.cell is not None:
        cell = Nr.of(scenario) if radio.kind.cell == "nr" else Lte.of(scenario)
        up, down = cell.blocks
        blocks = f"{up}" if up == down else f"{up} uplink and {down} downlink"
        shared = "shared equally" if cell.is_shared else "in shares beta"
        words = f"{blocks} resource blocks, {shared}, {radio.cell.highest_modulation}"
        if radio.kind.cell == "nr":
            nr = radio.nr
            pattern = f" {nr.tdd_pattern}" if nr.duplex == "tdd" else ""
            kind = f"5G NR, {nr.duplex.upper()}{pattern}, {nr.subcarrier_spacing_khz} kHz"
            words = f"{kind}, {words}"
        else:
            words = f"LTE, {words}, {lte.layers} layer{'s' * (lte.layers > 1)}"
        if radio.cells:
            handover = {"a3": "handover by event A3", "none": "no handover"}[radio.handover]
            words += f", {len(radio.cells) + 1} cells, {handover}"
    elif radio.access == "wifi":
        words = f"802.11{wifi.standard}, {wifi.width_mhz} MHz, {'RTS/CTS, ' * wifi.rts}"
        words += f"access point with {scenario.access_point_power_w:g} W"
    if (fading := fading_of(scenario)) is not None:
        kind = f"{radio.fading.capitalize()} fading"
        if fading.kind == "rician":
            kind += f" with K = {radio.rician_k_db:g} dB"
        words += f", {kind}, {1e3 * fading.block_s:g} ms"
    return words


_WITHOUT_POWER = "where the trace has rates, which no power changes"


def check_shares(radio: RadioAccess, allocation: Allocation) -> None:
    """Refuse shares that have no effect with this radio, unless they are equal; refuse too small
    ones, too.

    Raises:
        InputError: The line names the share.
    """
    for name in sorted({"beta", "rho"} - radio.decides):
        if np.ptp(getattr(allocation, name)) > 1e-9:
            raise InputError(f"allocation.{name}: must be 'equal' {radio.without_shares}")
    if allocation.tx_power_w is not None and isinstance(radio, Rates):
        raise InputError(f"allocation.tx_power_w: must be None {_WITHOUT_POWER}")
    for client in np.flatnonzero(allocation.beta < radio.least_beta - 1e-9) + 1:
        raise InputError(
            f"allocation.beta: must be at least {radio.least_beta:g}, one resource block; UAV "
            f"{client} has {allocation.beta[client - 1]:g}"
        )
