# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The interface of a format of tensors on the wire. Without torch."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, get_args

if TYPE_CHECKING:
    from torch import Tensor

    from testbed.transport.wire import Buffer

Kind = Literal["smashed", "gradient", "adapters"]
Direction = Literal["smashed", "gradient", "adapters_up", "adapters_down"]
"""A kind of transfer whose codec can be set separately."""
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)


@dataclass(frozen=True)
class Stream:
    """State of one end of a stream. A stream consists of one client's smashed data or gradients in
    a round, or of its adapters in one transfer."""

    kind: Kind
    """Type of the tensors."""
    memory: "dict[str, Tensor]" = field(default_factory=dict)
    """State of the codec between batches; empty at the beginning of a round."""


class Codec(Protocol):
    """Encoding of smashed data, gradients and adapters.

    A codec whose sizes depend on the content of the values, such as lossless compression, has the
    attribute `size_is_bound` with the value True.
    """

    def size(self, values: int) -> int:
        """Size in bytes of this number of values after encoding. It must not depend on their
        content; with `size_is_bound`, it is the largest possible size."""

    def encode(self, values: "Tensor", stream: Stream) -> "Buffer":
        """Encode values [N], float32 on the CPU, to `size` bytes; with `size_is_bound`, to at least
        1 and at most this number of bytes."""

    def decode(self, data: memoryview, values: int, stream: Stream) -> "Tensor":
        """Decode values [N], float32 on the CPU, from writable memory aligned to 4 bytes."""


def varies(codec: Codec | None) -> bool:
    """Whether the sizes of a codec depend on the content of the values; None: there is no codec."""
    return bool(getattr(codec, "size_is_bound", False))
