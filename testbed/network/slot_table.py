# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What an injector has been given for the slots to come."""

from collections.abc import Sequence
from dataclasses import dataclass

WHILE_SLOTS = 50
"""Over so many slots is the rate averaged that decides on the size of packets."""


@dataclass
class _Block:
    """Values of slots from `first` up to `end`, as one run of values."""

    first: int
    end: int
    width: int
    values: "memoryview[float]"


class SlotTable:
    """Values by slot; (1 + variants)·n of them each: of uplinks, then of each downlink variant."""

    def __init__(self, values: int) -> None:
        self._values = values
        self._blocks: list[_Block] = []

    @property
    def end(self) -> int:
        """The first slot without values."""
        return self._blocks[-1].end if self._blocks else 0

    def add(self, first: int, variants: int, blob: bytes) -> None:
        """Take over values from a slot on, instead of those that were there from it on."""
        values: memoryview[float] = memoryview(blob).cast("d")
        width = self._values * (1 + variants)
        for block in self._blocks:
            block.end = min(block.end, first)
        self._blocks = [block for block in self._blocks if block.first < block.end]
        self._blocks.append(_Block(first, first + len(values) // width, width, values))

    def row(self, slot: int, phase: int) -> tuple[Sequence[float], Sequence[float]] | None:
        """Of a slot, of uplinks and of downlinks; None where there are none."""
        for block in self._blocks:
            if block.first <= slot < block.end:
                start = (slot - block.first) * block.width
                uplink = block.values[start : start + self._values]
                start += (1 + phase) * self._values
                return uplink, block.values[start : start + self._values]
        return None

    def mean(self, slot: int, phase: int) -> tuple[list[float], list[float]]:
        """Their means over a while from a slot on."""
        rows = [row for ahead in range(WHILE_SLOTS) if (row := self.row(slot + ahead, phase))]
        uplink, downlink = zip(*rows, strict=True) if rows else ((), ())
        count = max(1, len(rows))
        return (
            [sum(rates) / count for rates in zip(*uplink, strict=True)],
            [sum(rates) / count for rates in zip(*downlink, strict=True)],
        )

    def forget_before(self, slot: int) -> None:
        """Drop what nobody will ask for again."""
        self._blocks = [block for block in self._blocks if block.end > slot]
