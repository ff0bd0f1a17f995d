# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Adapters of clients with different ranks (HetLoRA, Cho et al. 2024).

The global adapters have the largest rank. A client of rank r has the first r rows of each A and the
first r columns of each B, and the same scale, so that equal factors mean equal products.
"""

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from workloads.learning.model import Entry, Layout

RANK_AXES = {"lora_A": 0, "lora_B": 1}
"""Axis of the rank in each factor."""


@dataclass(frozen=True)
class RankedLayout:
    """The layout of a client's adapters and head, and where they are in the whole layout."""

    layout: Layout
    places: Tensor | None
    """Positions of this layout's elements in the vector of the whole one, shape [layout.size];
    None: both are the same."""

    def part(self, whole: Tensor, start: int = 0, stop: int | None = None) -> Tensor:
        """Elements `start` to `stop` of the client's vector, from the vector of the whole layout; a
        view if both are the same."""
        if self.places is None:
            return whole[start:stop]
        return whole[self.places[start:stop]]

    def within(self, own: Tensor, whole: Tensor) -> Tensor:
        """The vector of the whole layout with the client's vector in its place.

        Args:
            own: The client's vector, shape [layout.size].
            whole: The other elements, shape [P]; not changed.
        """
        if self.places is None:
            return own
        return whole.index_copy(0, self.places, own.to(whole.dtype))


def ranked(layout: Layout, rank: int | None) -> RankedLayout:
    """The layout of adapters of a rank; None, or a rank that is not smaller: the whole layout."""
    entries: list[Entry] = []
    places: list[Tensor] = []
    moved, end = {0: 0}, 0
    for entry in layout.entries:
        at = torch.arange(entry.start, entry.stop).view(entry.shape)
        axis = RANK_AXES.get(entry.name.rpartition(".")[2])
        if axis is not None and rank is not None:
            at = at.narrow(axis, 0, min(rank, entry.shape[axis]))
        shape = tuple(at.shape)
        entries.append(Entry(entry.name, shape, end, end := end + prod(shape)))
        places.append(at.flatten())
        moved[entry.stop] = end
    if end == layout.size:
        return RankedLayout(layout, None)
    cuts = tuple(moved[cut] for cut in layout.cuts)
    return RankedLayout(Layout(tuple(entries), cuts), torch.cat(places))
