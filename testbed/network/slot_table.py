# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Values for the coming slots of an injector."""

from collections.abc import Sequence
from dataclasses import dataclass

WHILE_SLOTS = 50
"""Number of slots of the mean rate that determines the size of packets."""


@dataclass
class _Block:
    """Values of the slots from `first` up to, but not including, `end`."""

    first: int
    end: int
    width: int
    values: "memoryview[float]"


class SlotTable:
    """Values by slot, (1 + variants)·n per slot: uplinks, then each variant of the downlinks."""

    def __init__(self, values: int) -> None:
        self._values = values
        self._blocks: list[_Block] = []

    @property
    def end(self) -> int:
        """The first slot without values."""
        return self._blocks[-1].end if self._blocks else 0

    def add(self, first: int, variants: int, blob: bytes) -> None:
        """Set values from slot `first` on, and replace existing ones."""
        values: memoryview[float] = memoryview(blob).cast("d")
        width = self._values * (1 + variants)
        for block in self._blocks:
            block.end = min(block.end, first)
        self._blocks = [block for block in self._blocks if block.first < block.end]
        self._blocks.append(_Block(first, first + len(values) // width, width, values))

    def row(self, slot: int, phase: int) -> tuple[Sequence[float], Sequence[float]] | None:
        """Values of uplinks and of downlinks in a slot; None if there are none."""
        for block in self._blocks:
            if block.first <= slot < block.end:
                start = (slot - block.first) * block.width
                uplink = block.values[start : start + self._values]
                start += (1 + phase) * self._values
                return uplink, block.values[start : start + self._values]
        return None

    def mean(self, slot: int, phase: int) -> tuple[list[float], list[float]]:
        """Means of the values over some slots from `slot` on."""
        rows = [row for ahead in range(WHILE_SLOTS) if (row := self.row(slot + ahead, phase))]
        uplink, downlink = zip(*rows, strict=True) if rows else ((), ())
        count = max(1, len(rows))
        return (
            [sum(rates) / count for rates in zip(*uplink, strict=True)],
            [sum(rates) / count for rates in zip(*downlink, strict=True)],
        )

    def forget_before(self, slot: int) -> None:
        """Delete the values of earlier slots."""
        self._blocks = [block for block in self._blocks if block.end > slot]
