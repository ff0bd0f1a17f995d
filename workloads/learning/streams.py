# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Tensors as what travels, at either end of a link: one stream a client, direction and round."""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from testbed.core.errors import RunError
from workloads.codecs.codec import Codec, Kind, Stream


class Sender:
    """The sending end."""

    def __init__(self, codec: Codec, kind: Kind, *, notes_errors: bool = False):
        self._codec = codec
        self._stream, self._echo = Stream(kind), Stream(kind)
        self._notes_errors = notes_errors
        self.errors: list[float] = []
        """By batch, what the codec changed: 2-norm of the difference over that of the tensor."""

    def encode(self, tensor: Tensor) -> memoryview:
        """The bytes of a tensor.

        Contiguous float32 on the CPU travels from where it lies, where it stays float32.

        Raises:
            RunError: A package's codec does not keep to the size that it says.
        """
        values = tensor.detach().to("cpu", torch.float32).contiguous().flatten()
        data = memoryview(self._codec.encode(values, self._stream)).cast("B")
        if len(data) != (size := self._codec.size(len(values))):
            raise RunError(
                f"workload.wire_dtype: the codec made {len(data)} bytes of {len(values)} values, "
                f"for which it says {size}"
            )
        return data

    def note_error(self, tensor: Tensor, sent: memoryview) -> None:
        """Keep what was lost of a tensor, where that is asked for; once a batch, in their order."""
        if not self._notes_errors:
            return
        received = self._codec.decode(memoryview(bytearray(sent)), tensor.numel(), self._echo)
        norm, lost = float(tensor.norm()), float((received - tensor.cpu().flatten()).norm())
        self.errors.append(lost / norm if norm else 0.0)


class Receiver:
    """The receiving end."""

    def __init__(self, codec: Codec, kind: Kind):
        self._codec = codec
        self._stream = Stream(kind)

    def decode(self, data: memoryview, shape: Sequence[int]) -> Tensor:
        """A float32 tensor of that shape from its bytes; may lie over them.

        Args:
            data: Writable memory of as many bytes as the codec says, aligned to 4.
            shape: Of the tensor.
        """
        return self._codec.decode(data, prod(shape), self._stream).view(*shape)
