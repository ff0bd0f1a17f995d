# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Formats of tensors on the wire; all values are little-endian.

float32 and bfloat16 are plain numbers. float16 is preceded by one power of two as a scale:
gradients of a mean loss are below float16's range and would underflow. int8 and int4 contain blocks
of values with a common float32 scale; the scales of all blocks come first. `top-k` contains the
positions of the largest values, then the values.

Importing this module does not import torch, which is not needed to compute sizes.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from testbed.core.parameters import number, one_of
from workloads.codecs.codec import Codec, Stream

if TYPE_CHECKING:
    from torch import Tensor

FLOAT16_TOP = 2.0**14
"""The largest magnitude is scaled to at most twice this value; float16's maximum is 65504."""

Feedback = Literal["gradient", "smashed", "both", "none"]


@dataclass(frozen=True)
class Floats:
    """Plain numbers with full or reduced precision."""

    name: Literal["float32", "bfloat16"]

    def size(self, values: int) -> int:
        """See `Codec`."""
        return values * (4 if self.name == "float32" else 2)

    def encode(self, values: "Tensor", stream: Stream) -> memoryview:
        """See `Codec`; float32 is not copied."""
        import torch

        return _bytes(values if self.name == "float32" else values.to(torch.bfloat16))

    def decode(self, data: memoryview, values: int, stream: Stream) -> "Tensor":
        """See `Codec`; float32 is not copied."""
        import torch

        return torch.frombuffer(data, dtype=getattr(torch, self.name)).float()


@dataclass(frozen=True)
class ScaledHalf:
    """float16 values with one power of two as a scale."""

    def size(self, values: int) -> int:
        """See `Codec`."""
        return 4 + 2 * values

    def encode(self, values: "Tensor", stream: Stream) -> memoryview:
        """See `Codec`."""
        import torch

        out = torch.empty(self.size(values.numel()), dtype=torch.uint8)
        top = float(values.abs().max()) if values.numel() else 0.0
        exponent = math.floor(math.log2(FLOAT16_TOP / top)) if 0 < top < math.inf else 0
        scale = 2.0 ** max(-126, min(127, exponent))
        out[:4] = torch.tensor([scale]).view(torch.uint8)
        out[4:] = (values * scale).to(torch.float16).view(torch.uint8)
        return _bytes(out)

    def decode(self, data: memoryview, values: int, stream: Stream) -> "Tensor":
        """See `Codec`."""
        import torch

        scale = float(np.frombuffer(data[:4], "<f4")[0])
        return torch.frombuffer(data[4:], dtype=torch.float16).float() / scale


@dataclass(frozen=True)
class Integers:
    """Integers with one scale per block of values; the largest magnitude becomes the largest
    integer."""

    bits: Literal[8, 4]
    block: int
    """Number of values per scale."""

    def size(self, values: int) -> int:
        """See `Codec`."""
        return 4 * -(-values // self.block) + -(-values * self.bits // 8)

    def encode(self, values: "Tensor", stream: Stream) -> memoryview:
        """See `Codec`."""
        import torch
        from torch.nn import functional

        count = values.numel()
        blocks = functional.pad(values, (0, -count % self.block)).view(-1, self.block)
        scales = blocks.abs().amax(1, keepdim=True) / (2 ** (self.bits - 1) - 1)
        # A block of zeros has scale 0 and must stay zero.
        steps = (blocks / scales.where(scales > 0, 1)).round_().to(torch.int8).flatten()[:count]
        cut = 4 * len(scales)
        out = torch.empty(self.size(count), dtype=torch.uint8)
        out[:cut] = scales.flatten().view(torch.uint8)
        if self.bits == 8:
            out[cut:] = steps.view(torch.uint8)
        else:
            low, high = functional.pad(steps, (0, count % 2)).view(-1, 2).unbind(1)
            out[cut:] = (low & 15 | high << 4).view(torch.uint8)
        return _bytes(out)

    def decode(self, data: memoryview, values: int, stream: Stream) -> "Tensor":
        """See `Codec`."""
        import torch
        from torch.nn import functional

        cut = 4 * -(-values // self.block)
        steps = torch.frombuffer(data[cut:], dtype=torch.int8)
        if self.bits == 4:
            # Arithmetic shifts extend the sign.
            steps = torch.stack([steps << 4 >> 4, steps >> 4], 1).flatten()[:values]
        scales = torch.frombuffer(data[:cut], dtype=torch.float32)
        blocks = functional.pad(steps.float(), (0, -values % self.block)).view(-1, self.block)
        return (blocks * scales.view(-1, 1)).flatten()[:values]


@dataclass(frozen=True)
class TopK:
    """Only the largest values (Stich et al. 2018); the others become 0.

    With error feedback, the omitted values are added to the next tensor of the stream.
    """

    share: float
    """Share of the values that are sent."""
    feedback: Feedback
    """Streams with error feedback."""

    def size(self, values: int) -> int:
        """See `Codec`."""
        kept = self._kept(values)
        return 4 * kept + min(4 * kept, -(-values // 8))

    def _kept(self, values: int) -> int:
        return min(values, max(1, round(self.share * values)))

    def encode(self, values: "Tensor", stream: Stream) -> memoryview:
        """See `Codec`. Positions are encoded as a bitmap, or as indices if these are shorter."""
        import torch

        count, feeds_back = values.numel(), self.feedback in ("both", stream.kind)
        if feeds_back and "left_out" in stream.memory:
            values = values + stream.memory["left_out"]
        kept = self._kept(count)
        places = values.abs().topk(kept, sorted=False).indices.sort().values
        sent = values[places]
        if feeds_back:
            stream.memory["left_out"] = values.index_fill(0, places, 0)
        if 4 * kept <= -(-count // 8):
            where = places.to(torch.int32).numpy().tobytes()
        else:
            mask = np.zeros(count, np.bool_)
            mask[places.numpy()] = True
            where = np.packbits(mask).tobytes()
        return memoryview(where + sent.numpy().tobytes())

    def decode(self, data: memoryview, values: int, stream: Stream) -> "Tensor":
        """See `Codec`."""
        import torch

        cut = len(data) - 4 * self._kept(values)
        if cut < -(-values // 8):
            places = np.frombuffer(data[:cut], "<i4")
        else:
            bits = np.unpackbits(np.frombuffer(data[:cut], np.uint8), count=values)
            places = np.flatnonzero(bits)
        out = np.zeros(values, np.float32)
        out[places] = np.frombuffer(data[cut:], "<f4")
        return torch.from_numpy(out)


def int8(block: int = 128) -> Codec:
    """Integers from -127 to 127 with one scale per block."""
    return Integers(8, _block(block))


def int4(block: int = 64) -> Codec:
    """Integers from -7 to 7 with one scale per block."""
    return Integers(4, _block(block))


def top_k(share: float = 0.1, feedback: Feedback = "gradient") -> Codec:
    """Only the largest values, with error feedback."""
    number("share", share, 1e-6, 1)
    one_of("feedback", feedback, ("gradient", "smashed", "both", "none"))
    return TopK(share, feedback)


def _block(block: int) -> int:
    number("block", block, 2, 2**20, whole=True)
    return block


def _bytes(tensor: "Tensor") -> memoryview:
    import torch

    return tensor.view(torch.uint8).numpy().data
