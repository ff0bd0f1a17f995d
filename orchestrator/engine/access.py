# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Interface of a radio access: from a channel and an allocation to the rate of each link in each
slot.

`orchestrator.engine.radio` makes the radio of a scenario. The engine computes with the radio's
`bands()`, which `orchestrator.engine.radio_kernel` defines for compiled code.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, Self

from ns3_scenarios.trace import SlotValues, TwoWay, both_ways
from orchestrator.engine.compiling import Ints
from orchestrator.engine.plan import Allocation, Array
from orchestrator.engine.slot_impairments import SlotImpairments


class LinkRates(NamedTuple):
    """Rates of a round's links in bit/s, each [K, S]."""

    uplink: Array
    broadcast: Array
    gradient: Array
    """Rate of the downlink after the broadcast: divided, or the whole downlink for one client after
    the other."""

    def slowed(self, slots: SlotImpairments, first: int = 0) -> "LinkRates":
        """The rates that remain where frames are sent more than once, from a slot on."""
        end = first + self.uplink.shape[1]
        up, down, broadcast = slots.airtime[:, :, first:end]
        return LinkRates(self.uplink / up, self.broadcast / broadcast, self.gradient / down)


class RadioAccess(Protocol):
    """Converts slot values and an allocation into link rates."""

    @property
    def uplink_power_w(self) -> Array:
        """Transmit power p_k of each UAV, shape [K], for the energy of eq. (11)."""

    @property
    def decides(self) -> frozenset[str]:
        """Names of the shares in an allocation that affect the rate of a link: `beta`, `rho`."""

    @property
    def without_shares(self) -> str:
        """The last part of the error message for unequal shares, which states where and why shares
        must be equal."""

    @property
    def is_shared(self) -> bool:
        """Whether only the active uplinks, or the active downlinks of parallel gradients, share the
        band.

        Then compiled code asks `radio_kernel.shared_bps`, and the engine predicts synchronous
        rounds over links that neither delay nor lose.
        """

    @property
    def least_beta(self) -> float:
        """The smallest share of the bandwidth at which a link has a rate above 0."""

    def link_rates(
        self, shares: Allocation, values: SlotValues, *, in_turns: bool, active: int | None = None
    ) -> LinkRates:
        """The rate of each link in each slot.

        Args:
            shares: The allocation.
            values: Values of the trace for each slot, [K, S] or for each direction.
            in_turns: Whether gradients have the whole downlink one after the other, instead of
                a share each.
            active: Number of UAVs that send at a time if they share the band; None: all.
        """

    def of_clients(self, chosen: Ints) -> Self:
        """The radio for only some of the UAVs, which are given by their indices, starting from
        0."""

    def bands(self) -> Any:
        """The radio in the form that compiled code needs; see `radio_kernel`."""


def mean_rates(values: SlotValues, rates: Callable[[Array, Array], LinkRates]) -> LinkRates:
    """The mean rates of slots over their blocks of small-scale fading.

    Args:
        values: Values of the trace for each slot.
        rates: Makes rates out of gains of uplink and downlink, [K, S] each.
    """
    up, down = both_ways(values)
    fading = values.fading if isinstance(values, TwoWay) else None
    if fading is None:
        return rates(up, down)
    blocks = fading.shape[-1]
    faded = (rates(up * fading[0, ..., b], down * fading[1, ..., b]) for b in range(blocks))
    return LinkRates(*(sum(each) / blocks for each in zip(*faded, strict=True)))
