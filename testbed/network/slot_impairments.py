# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Impairments that change from slot to slot, applied by netem or by the process that replaces it.

A link whose impairment changes draws from a seed of the slot, so that equal seeds of a scenario
lose the same frames of each slot, regardless of earlier slots.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from testbed.core.impairment import Impairment
from testbed.network.fabric import Fabric
from testbed.network.impairments import change
from testbed.network.line import Line, Tap
from testbed.network.slot_table import SlotTable
from testbed.system.netlink import Netlink

NEAR_S = 1e-6
"""Smallest change of delay or jitter in s that is applied."""
_VALUES = 3
_SEED_STEP, _SEED_BITS = 0x9E3779B97F4A7C15, (1 << 63) - 1


@dataclass
class _Way:
    """One direction of a link that ends at a device of this machine."""

    impairment: Impairment
    netlink: Netlink
    device: int
    tap: Tap | None
    in_force: tuple[float, float, float] = (-1.0, -1.0, -1.0)
    """Delay, jitter and loss in force."""

    @property
    def asked(self) -> float:
        """Current stationary loss probability of a frame."""
        losses, (_, _, loss) = self.impairment.losses, self.in_force
        if losses is None:
            return 0.0
        return losses.mean if loss < 0 else replace(losses, loss_good=loss).mean


@dataclass(frozen=True)
class ImpairmentChange:
    """A change of the impairment of one direction of a link at the beginning of a slot."""

    way: _Way
    values: tuple[float, float, float]
    slot: int
    line: Line | None

    def make(self) -> None:
        """Apply the change."""
        delay_s, jitter_s, loss = self.way.in_force = self.values
        if self.line is not None:
            assert self.way.tap is not None
            self.line.change(self.way.tap, delay_s, jitter_s, loss)
            return
        before = self.way.impairment
        rest = before.losses and replace(before.losses, loss_good=loss)
        seed = (before.seed + (self.slot + 1) * _SEED_STEP) & _SEED_BITS
        now = Impairment(delay_s, jitter_s, rest, seed, by_slot=True, reorders=before.reorders)
        self.way.netlink.transact([change(self.way.device, now)])


class SlotImpairments:
    """The impairments of coming slots, and those in force on each link."""

    def __init__(
        self,
        fabric: Fabric,
        line: Line | None,
        uplinks: Sequence[Impairment],
        downlinks: Sequence[Impairment],
    ) -> None:
        self._links = fabric.links
        self._table = SlotTable(_VALUES * fabric.links)
        self._line = line
        self._ways: tuple[dict[int, _Way], dict[int, _Way]] = {}, {}
        """Uplinks and downlinks that end on this machine, by index of the link."""
        for at in fabric.arrivals:
            impairment = (uplinks, downlinks)[at.down][at.link - 1]
            self._ways[at.down][at.link - 1] = _Way(impairment, at.netlink, at.device, at.tap)

    @property
    def loses(self) -> bool:
        """Whether frames of any link may be lost."""
        return any(way.impairment.losses for ways in self._ways for way in ways.values())

    def asked(self) -> list[list[float]]:
        """Current loss probability of each uplink and each downlink; 0 for those that end on
        another machine."""
        return [
            [ways[place].asked if place in ways else 0.0 for place in range(self._links)]
            for ways in self._ways
        ]

    def take(self, first: int, variants: int, table: bytes) -> None:
        """Set the impairments of slots from `first` on."""
        self._table.add(first, variants, table)

    def forget_before(self, slot: int) -> None:
        """Delete the values of earlier slots."""
        self._table.forget_before(slot)

    def changes(self, slot: int, phase: int) -> list[ImpairmentChange]:
        """The changes at the beginning of a slot; empty if the slot has no impairments."""
        row = self._table.row(slot, phase)
        found = []
        for ways, values in zip(self._ways, row or (), strict=False):
            for place, way in ways.items():
                delay_s, jitter_s, loss = values[_VALUES * place : _VALUES * (place + 1)]
                near = (
                    abs(delay_s - way.in_force[0]) < NEAR_S
                    and abs(jitter_s - way.in_force[1]) < NEAR_S
                )
                if way.impairment.by_slot and not (near and loss == way.in_force[2]):
                    found.append(ImpairmentChange(way, (delay_s, jitter_s, loss), slot, self._line))
        return found
