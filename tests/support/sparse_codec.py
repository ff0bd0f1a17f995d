# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A codec of a package: top-k, stochastic quantisation to 8 bits, and zlib. Its sizes depend on the
data."""

import struct
import zlib

import numpy as np
import torch


class Sparse:
    size_is_bound = True

    def __init__(self, share: float) -> None:
        self.share = share

    def _kept(self, values: int) -> int:
        return max(1, round(self.share * values))

    def size(self, values: int) -> int:
        # zlib adds at most 5 bytes per 16 kB, 6 at its ends, and a few of its own.
        plain = 4 + 5 * self._kept(values)
        return plain + 5 * (plain // 16000 + 1) + 6 + 7

    def encode(self, values: torch.Tensor, stream: object) -> bytes:
        data = values.numpy()
        kept = self._kept(len(data))
        places = np.sort(np.argpartition(np.abs(data), -kept)[-kept:]).astype("<u4")
        top = float(np.abs(data[places]).max()) or 1.0
        scaled = data[places] / top * 127
        random = np.random.default_rng(zlib.crc32(values.numpy().tobytes()))
        steps = np.floor(scaled + random.random(kept)).astype(np.int8)
        gaps = np.diff(places, prepend=np.uint32(0)).astype("<u4")
        return zlib.compress(struct.pack("<f", top) + gaps.tobytes() + steps.tobytes(), 9)

    def decode(self, data: memoryview, values: int, stream: object) -> torch.Tensor:
        kept, plain = self._kept(values), zlib.decompress(data)
        (top,) = struct.unpack_from("<f", plain)
        places = np.cumsum(np.frombuffer(plain, "<u4", kept, 4))
        steps = np.frombuffer(plain, np.int8, kept, 4 + 4 * kept)
        out = np.zeros(values, np.float32)
        out[places] = steps * np.float32(top / 127)
        return torch.from_numpy(out)


def sparse(share: float = 0.1) -> Sparse:
    return Sparse(share)
