# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Interface of a radio access: from a channel and an allocation to the rate of each link in each
slot.

`orchestrator.engine.radio` makes the radio of a scenario. Rates are computed in one place, from the
radio's `bands()`: by ``core/links.h``, for the engine and for the links of the emulation.
"""

from typing import NamedTuple, Protocol, Self

from ns3_scenarios.trace import SlotValues
from orchestrator.engine.arrays import Array, Ints
from orchestrator.engine.core_library import Bands, Links, Slots, rates
from orchestrator.engine.plan import Allocation
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
        band."""

    @property
    def least_beta(self) -> float:
        """The smallest share of the bandwidth at which a link has a rate above 0."""

    def link_rates(
        self, shares: Allocation, values: SlotValues, *, in_turns: bool, active: int | None = None
    ) -> LinkRates:
        """The rates `uplink`, `broadcast` and `gradient` of each link in each slot, bit/s, [K, S].

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

    def bands(self) -> Bands:
        """The radio in the form that the compiled part of the engine reads."""


class Radio:
    """A radio whose rates follow from its `bands`."""

    def bands(self) -> Bands:
        """See `RadioAccess.bands`."""
        raise NotImplementedError

    def link_rates(
        self, shares: Allocation, values: SlotValues, *, in_turns: bool, active: int | None = None
    ) -> LinkRates:
        """See `RadioAccess.link_rates`; by default, all UAVs of a cell share its band."""
        links = Links(self.bands(), in_turns, shares.beta, shares.rho)
        uplink, gradient, broadcast = rates(Slots(values, 1.0), links, active or 0)
        return LinkRates(uplink, broadcast, gradient)
