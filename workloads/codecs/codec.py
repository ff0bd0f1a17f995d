# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a format of smashed data and gradients is. No torch here."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from testbed.transport.wire import Buffer

Kind = Literal["smashed", "gradient"]


@dataclass(frozen=True)
class Stream:
    """One client's smashed data or gradients in a round, as one end of the link knows them."""

    kind: Kind
    """Which of the two."""
    memory: "dict[str, Tensor]" = field(default_factory=dict)
    """What this end keeps from batch to batch, as the codec likes; empty when a round begins."""


class Codec(Protocol):
    """How smashed data and gradients travel."""

    def size(self, values: int) -> int:
        """Bytes that so many values take, whatever they are."""

    def encode(self, values: "Tensor", stream: Stream) -> "Buffer":
        """The bytes of values [N], float32 on the CPU."""

    def decode(self, data: memoryview, values: int, stream: Stream) -> "Tensor":
        """So many values [N], float32 on the CPU, from writable memory aligned to 4 bytes."""
