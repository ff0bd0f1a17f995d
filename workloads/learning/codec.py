# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Smashed data and their gradients as bytes, and back.

float32 and bfloat16 are the numbers themselves. float16 is preceded by one power of two: gradients
of a mean loss lie below float16's range, and would vanish in it unscaled. int8 holds blocks of
`BLOCK` values; the float32 scales of all blocks come first. All is little-endian.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from workloads.learning.encoding import BLOCK, WireDtype, payload_bytes

FLOAT16_TOP = 2.0**14
"""Largest magnitudes are scaled to at most twice this: float16 ends at 65504."""


def encode(tensor: Tensor, wire: WireDtype) -> memoryview:
    """The bytes of a tensor, as `payload_bytes` counts them.

    Contiguous float32 on the CPU travels from where it lies, without a copy.
    """
    values = tensor.detach().to("cpu", torch.float32).contiguous().flatten()
    if wire == "float32":
        return _bytes(values)
    if wire == "bfloat16":
        return _bytes(values.to(torch.bfloat16))
    out = torch.empty(payload_bytes(values.numel(), wire), dtype=torch.uint8)
    if wire == "float16":
        top = float(values.abs().max()) if values.numel() else 0.0
        exponent = math.floor(math.log2(FLOAT16_TOP / top)) if 0 < top < math.inf else 0
        scale = 2.0 ** max(-126, min(127, exponent))
        out[:4] = torch.tensor([scale]).view(torch.uint8)
        out[4:] = (values * scale).to(torch.float16).view(torch.uint8)
    else:
        blocks = functional.pad(values, (0, -values.numel() % BLOCK)).view(-1, BLOCK)
        scales = blocks.abs().amax(1, keepdim=True) / 127
        # A block of zeros has scale 0 and stays zeros.
        steps = (blocks / scales.where(scales > 0, 1)).round_().to(torch.int8)
        cut = 4 * len(scales)
        out[:cut] = scales.flatten().view(torch.uint8)
        out[cut:] = steps.flatten()[: values.numel()].view(torch.uint8)
    return _bytes(out)


def decode(buffer: memoryview | bytearray, shape: Sequence[int], wire: WireDtype) -> Tensor:
    """A float32 tensor of that shape from its bytes; float32 stays where it lies.

    Args:
        buffer: Writable memory of `payload_bytes` bytes, aligned to 4.
        shape: Of the tensor.
        wire: How it was encoded.
    """
    raw = torch.frombuffer(buffer, dtype=torch.uint8)
    if wire == "float32":
        return raw.view(torch.float32).view(*shape)
    if wire == "bfloat16":
        return raw.view(torch.bfloat16).float().view(*shape)
    if wire == "float16":
        scale = float(raw[:4].view(torch.float32))
        return (raw[4:].view(torch.float16).float() / scale).view(*shape)
    values = math.prod(shape)
    cut = 4 * -(-values // BLOCK)
    steps = functional.pad(raw[cut:].view(torch.int8).float(), (0, -values % BLOCK))
    scaled = steps.view(-1, BLOCK) * raw[:cut].view(torch.float32).view(-1, 1)
    return scaled.flatten()[:values].view(*shape)


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.view(torch.uint8).numpy().data
