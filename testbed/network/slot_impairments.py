# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Delay, jitter and loss of links that differ from slot to slot.

When a link is changed, netem restarts its random numbers from a seed of the slot. Therefore the
same seed of a scenario loses the same frames of each slot, regardless of earlier slots.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from testbed.core.impairment import Impairment
from testbed.network.slot_table import SlotTable

NEAR_S = 1e-6
"""Smallest change of delay or jitter in s that is applied."""
_VALUES = 3
_SEED_STEP, _SEED_BITS = 0x9E3779B97F4A7C15, (1 << 63) - 1


class Way(NamedTuple):
    """One direction of a link."""

    link: int
    """Number of the link, from 1."""
    down: bool


@dataclass
class _State:
    """An impairment as requested, and the values of the slot that apply now."""

    impairment: Impairment
    values: tuple[float, float, float] = (-1.0, -1.0, -1.0)
    """Delay, jitter, loss."""

    @property
    def asked(self) -> float:
        """The long-run probability that a frame is lost now."""
        losses, (_, _, loss) = self.impairment.losses, self.values
        if losses is None:
            return 0.0
        return losses.mean if loss < 0 else replace(losses, loss_good=loss).mean


@dataclass(frozen=True)
class ImpairmentChange:
    """Another delay, jitter and loss for one direction of a link."""

    way: Way
    values: tuple[float, float, float]
    """Delay and jitter in real seconds, probability of a loss in the good state."""
    impairment: Impairment
    """The same as netem needs it, with the seed of the slot."""


class SlotImpairments:
    """The impairments of all links, and the present values of those that end on this machine."""

    def __init__(
        self,
        links: int,
        here: Iterable[Way],
        uplinks: Sequence[Impairment],
        downlinks: Sequence[Impairment],
    ) -> None:
        self._links = links
        self._table = SlotTable(_VALUES * links)
        self._states = {way: _State((uplinks, downlinks)[way.down][way.link - 1]) for way in here}

    @property
    def loses(self) -> bool:
        """Whether frames of any link may be lost."""
        return any(state.impairment.losses for state in self._states.values())

    def asked(self, way: Way) -> float:
        """The probability that a frame is lost now; 0 where the link ends on another machine."""
        return self._states[way].asked if way in self._states else 0.0

    def take(self, first: int, variants: int, table: bytes) -> None:
        """Replace the values from a slot on."""
        self._table.add(first, variants, table)

    def forget_before(self, slot: int) -> None:
        """Drop the values of earlier slots."""
        self._table.forget_before(slot)

    def changes(self, slot: int, phase: int) -> tuple[ImpairmentChange, ...]:
        """Impairments that a slot changes; none if it has no values."""
        row = self._table.row(slot, phase)
        if row is None:
            return ()
        found = []
        for way, state in self._states.items():
            before, start = state.impairment, _VALUES * (way.link - 1)
            delay_s, jitter_s, loss = row[way.down][start : start + _VALUES]
            old_delay_s, old_jitter_s, old_loss = state.values
            near = abs(delay_s - old_delay_s) < NEAR_S and abs(jitter_s - old_jitter_s) < NEAR_S
            if before.by_slot and not (near and loss == old_loss):
                rest = before.losses and replace(before.losses, loss_good=loss)
                seed = (before.seed + (slot + 1) * _SEED_STEP) & _SEED_BITS
                now = Impairment(
                    delay_s, jitter_s, rest, seed, by_slot=True, reorders=before.reorders
                )
                found.append(ImpairmentChange(way, (delay_s, jitter_s, loss), now))
        return tuple(found)

    def made(self, changes: Iterable[ImpairmentChange]) -> None:
        """Record that changes have been made."""
        for change in changes:
            self._states[change.way].values = change.values
