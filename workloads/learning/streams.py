# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Encoding and decoding of tensors at the ends of a link: one stream per client, direction and
round."""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from testbed.core.errors import RunError
from workloads.codecs.codec import Codec, Kind, Stream


class Sender:
    """The sending end of a stream."""

    def __init__(self, codec: Codec, kind: Kind, *, notes_errors: bool = False):
        self._codec = codec
        self._stream, self._echo = Stream(kind), Stream(kind)
        self._notes_errors = notes_errors
        self.errors: list[float] = []
        """Relative error of the codec per batch: 2-norm of the difference divided by that of the
        tensor."""

    def encode(self, tensor: Tensor) -> memoryview:
        """Encode a tensor.

        Contiguous float32 on the CPU is not copied if the codec is float32.

        Raises:
            RunError: The codec of a package returned another size than it states.
        """
        values = tensor.detach().to("cpu", torch.float32).contiguous().flatten()
        data = memoryview(self._codec.encode(values, self._stream)).cast("B")
        if len(data) != (size := self._codec.size(len(values))):
            raise RunError(
                f"workload.wire_dtype: the codec made {len(data)} bytes of {len(values)} values, "
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


class Receiver:
    """The receiving end of a stream."""

    def __init__(self, codec: Codec, kind: Kind):
        self._codec = codec
        self._stream = Stream(kind)

    def decode(self, data: memoryview, shape: Sequence[int]) -> Tensor:
        """Decode a float32 tensor, which may be a view of the data.

        Args:
            data: Writable memory of the codec's size, aligned to 4 bytes.
            shape: Shape of the tensor.
        """
        return self._codec.decode(data, prod(shape), self._stream).view(*shape)
