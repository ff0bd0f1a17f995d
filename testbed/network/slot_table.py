# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A table of values per slot, of which an injector is given the next part from time to time."""

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.network.airtime import Division, SlotRates

WHILE_SLOTS = 50
"""Number of slots over which the rates are averaged that determine the size of packets."""


@dataclass
class _Block:
    """The values of the slots from `first` to `end` - 1, one slot after the other."""

    first: int
    end: int
    width: int
    values: "memoryview[float]"
    divided: Sequence[Division]


def rows_of(divided: Sequence[Division]) -> int:
    """The number of rows of each slot, of which some serve several directions."""
    return 1 + max(row for division in divided for row, _ in division)


class SlotTable:
    """Values per slot, n of the uplinks, and n of each downlink variant."""

    def __init__(self, values: int) -> None:
        self._values = values
        self._blocks: list[_Block] = []

    @property
    def end(self) -> int:
        """The first slot without values."""
        return self._blocks[-1].end if self._blocks else 0

    def add(self, first: int, variants: int, blob: bytes, divided: Sequence[Division] = ()) -> None:
        """Replace all values from a slot on.

        Args:
            first: The slot.
            variants: Number of downlink variants.
            blob: Float64 [slots, rows, n].
            divided: Division of each direction among active links: the uplinks, then each downlink
                variant. Empty: no division; each has one row, in this order.
        """
        divided = divided or [((row, 1.0),) for row in range(1 + variants)]
        values: memoryview[float] = memoryview(blob).cast("d")
        width = self._values * rows_of(divided)
        for block in self._blocks:
            block.end = min(block.end, first)
        self._blocks = [block for block in self._blocks if block.first < block.end]
        self._blocks.append(_Block(first, first + len(values) // width, width, values, divided))

    def rates(self, slot: int, phase: int) -> tuple[SlotRates, SlotRates] | None:
        """The uplinks' and downlinks' values in a slot; None where none were given."""
        for block in self._blocks:
            if block.first <= slot < block.end:
                start = (slot - block.first) * block.width
                places = range(start, start + block.width, self._values)
                rows = [block.values[at : at + self._values] for at in places]
                return SlotRates(rows, block.divided[0]), SlotRates(rows, block.divided[1 + phase])
        return None

    def row(self, slot: int, phase: int) -> tuple[Sequence[float], Sequence[float]] | None:
        """The values of `rates` while all links are active."""
        rates = self.rates(slot, phase)
        return rates and (rates[0].together(), rates[1].together())

    def mean(self, slot: int, phase: int) -> tuple[list[float], list[float]]:
        """The mean values of uplinks and downlinks over the next `WHILE_SLOTS` slots."""
        rows = [row for ahead in range(WHILE_SLOTS) if (row := self.row(slot + ahead, phase))]
        uplink, downlink = zip(*rows, strict=True) if rows else ((), ())
        count = max(1, len(rows))
        return (
            [sum(rates) / count for rates in zip(*uplink, strict=True)],
            [sum(rates) / count for rates in zip(*downlink, strict=True)],
        )

    def forget_before(self, slot: int) -> None:
        """Drop the values of earlier slots."""
        self._blocks = [block for block in self._blocks if block.end > slot]
