# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Encoding and decoding of tensors at the ends of a link: one stream per client, direction and
round; for adapters, one per transfer."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from testbed.core.errors import RunError
from workloads.codecs.codec import Codec, Kind, Stream, varies


class Sender:
    """The sending end of a stream."""

    def __init__(
        self,
        codec: Codec,
        kind: Kind,
        *,
        notes_errors: bool = False,
        key: str = "workload.wire_dtype",
    ):
        """Begin the stream; `key` is the scenario's key of the codec, for messages."""
        self._codec = codec
        self._key = key
        self._stream, self._echo = Stream(kind), Stream(kind)
        self._notes_errors = notes_errors
        self.errors: list[float] = []
        """Relative error of the codec per batch: 2-norm of the difference divided by that of the
        tensor."""

    def encode(self, tensor: Tensor) -> memoryview:
        """Encode a tensor.

        Contiguous float32 on the CPU is not copied if the codec is float32.

        Raises:
            RunError: The codec of a package returned another size than it states, or more if its
                sizes depend on the content.
        """
        values = tensor.detach().to("cpu", torch.float32).contiguous().flatten()
        data = memoryview(self._codec.encode(values, self._stream)).cast("B")
        size = self._codec.size(len(values))
        least = min(1, size) if varies(self._codec) else size
        if not least <= len(data) <= size:
            raise RunError(
                f"{self._key}: the codec made {len(data)} bytes of {len(values)} values, "
                f"but its size() is {size}"
            )
        return data

    def note_error(self, tensor: Tensor, sent: memoryview) -> None:
        """Record the error of a sent tensor if requested; call it once per batch, in order."""
        if not self._notes_errors:
            return
        received = self._codec.decode(memoryview(bytearray(sent)), tensor.numel(), self._echo)
        norm, lost = float(tensor.norm()), float((received - tensor.cpu().flatten()).norm())
        self.errors.append(lost / norm if norm else 0.0)


@dataclass
class AdapterUploads:
    """The sending end of a client's adapters: the encoded difference to the received ones.

    With error feedback, values that the encoding of a difference omitted are added to the next one;
    they are kept from round to round.
    """

    codec: Codec
    feeds_back: bool
    left_out: Tensor | None = None
    """Values that have been omitted so far, shape [n]; a client's part of another split point has
    other elements at its end."""

    def encode(self, trained: Tensor, received: Tensor) -> memoryview:
        """Encode adapters [n] that began as the received ones; both float32 on the CPU."""
        change = trained - received
        kept = self.left_out
        if kept is not None:
            both = min(len(kept), len(change))
            change[:both] += kept[:both]
        data = Sender(self.codec, "adapters", key="workload.codecs.adapters_up").encode(change)
        if self.feeds_back:
            sent = Receiver(self.codec, "adapters").decode(
                memoryview(bytearray(data)), [len(change)]
            )
            rest = change - sent
            beyond = [] if kept is None else [kept[len(change) :]]
            self.left_out = torch.cat([rest, *beyond])
        return data


class Receiver:
    """The receiving end of a stream."""

    def __init__(self, codec: Codec, kind: Kind):
        self._codec = codec
        self._stream = Stream(kind)

    def decode(self, data: memoryview, shape: Sequence[int]) -> Tensor:
        """Decode a float32 tensor, which may be a view of the data.

        Args:
            data: Writable memory of the encoded size, aligned to 4 bytes.
            shape: Shape of the tensor.
        """
        if not prod(shape):  # Without payload, as with `adapters: none`.
            return torch.zeros(*shape)
        return self._codec.decode(data, prod(shape), self._stream).view(*shape)
