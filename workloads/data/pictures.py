# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Common parts of all sources of pictures: labels, the model's size, and held-out samples."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from testbed.core.errors import InputError
from workloads.data.clients import Metadata
from workloads.data.decoding import UnreadableError, decoded
from workloads.data.partitions import NO_METADATA
from workloads.data.parts import FIELD
from workloads.models.chain import Images

Indices = npt.NDArray[np.int64]

KEPT_BYTES = 64 << 20
"""Most memory for samples that are kept as the model takes them, per data set and process."""
READ_AHEAD = 256
"""Encoded pictures in memory while all are decoded."""
HELD_OUT_SHARE = 0.1
"""Fraction of each class that is held out if a source has no separate part for evaluation."""


class Pictures:
    """Data whose samples are pictures with one label each."""

    labels: Indices
    classes: int
    names: Sequence[object]
    """Names of the classes; a range if they only have numbers."""
    part: str
    """The part of the source with these samples; empty if the source has no parts."""
    metadata: Metadata = NO_METADATA
    unused: Sequence[str] = ()
    """Parts of the source that are neither for training nor held out."""

    _kept: dict[int, Tensor] | None = None

    def images(self, indices: Sequence[int] | Indices) -> Tensor:
        """Images [n, 3, S, S] in the model's size, float32, normalised.

        The first samples that are asked for are kept, up to `KEPT_BYTES`: in many rounds of a small
        network, decoding them again would take most of the time.
        """
        if self._kept is None:
            self._kept = {}
        images = []
        for index in map(int, indices):
            image = self._kept.get(index)
            if image is None:
                image = self._image(index)
                if (len(self._kept) + 1) * image.nbytes <= KEPT_BYTES:
                    self._kept[index] = image
            images.append(image)
        return torch.stack(images)

    def _image(self, index: int) -> Tensor:
        """One sample, [3, S, S]."""
        raise NotImplementedError

    def batch(self, indices: Indices) -> tuple[Tensor, Tensor]:
        """Images [n, 3, S, S] and their labels [n]."""
        return self.images(indices), torch.from_numpy(self.labels[indices])


class EncodedPictures(Pictures):
    """Pictures in files or cells, which are decoded on demand."""

    _to: Images

    def _encoded(self, index: int) -> tuple[str, bytes]:
        """The name of a sample for messages, and its encoded picture."""
        raise NotImplementedError

    def _image(self, index: int) -> Tensor:
        """A picture whose shorter side is resized to S, and whose centre is cropped."""
        try:
            return self._normalised(*self._encoded(index))
        except OSError as error:
            raise InputError(f"{FIELD}: {error}") from None

    def _normalised(self, name: str, data: bytes) -> Tensor:
        try:
            pixels = decoded(data)
        except UnreadableError as error:
            raise InputError(f"{FIELD}: {name}: {error}") from None
        return normalised(pixels[None], self._to)[0]

    def unreadable(self) -> list[str]:
        """Names of all pictures that cannot be decoded, with the reasons; decodes all."""

        def fault(item: tuple[str, bytes | None]) -> str | None:
            name, data = item
            try:
                if data is not None:
                    decoded(data)
            except UnreadableError as error:
                return f"{name}: {error}"
            return name if data is None else None

        def read(index: int) -> tuple[str, bytes | None]:
            """The name of a sample and its data; or the reason for which there are none."""
            try:
                return self._encoded(index)
            except OSError as error:
                return str(error), None

        found: list[str | None] = []
        with ThreadPoolExecutor() as pool:
            for start in range(0, len(self.labels), READ_AHEAD):
                # Readers of tables must not be used by several threads.
                part = range(start, min(start + READ_AHEAD, len(self.labels)))
                found += pool.map(fault, [read(index) for index in part])
        return [each for each in found if each is not None]


def is_held_out(labels: Indices, seed: int) -> npt.NDArray[np.bool_]:
    """Mask of a set's held-out samples, shape [N]: the same fraction of each class, by seed."""
    random = np.random.default_rng([seed, 0x4E1D])
    chosen = np.zeros(len(labels), dtype=np.bool_)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        chosen[random.permutation(members)[: round(HELD_OUT_SHARE * len(members))]] = True
    return chosen


def _resized(images: Tensor, size: int) -> Tensor:
    """[n, 3, H, W] to [n, 3, S, S]: the shorter side to S, then the middle."""
    height, width = images.shape[2:]
    scale = size / min(height, width)
    shape = (max(size, round(height * scale)), max(size, round(width * scale)))
    images = functional.interpolate(images, shape, mode="bicubic", antialias=True).clamp_(0, 1)
    top, left = (shape[0] - size) // 2, (shape[1] - size) // 2
    return images[:, :, top : top + size, left : left + size]


def normalised(images: Tensor, to: Images) -> Tensor:
    """[n, 3, H, W] from 0 to 1, as the model takes them."""
    mean, deviation = torch.tensor(to.mean), torch.tensor(to.deviation)
    return (_resized(images, to.size) - mean.view(3, 1, 1)) / deviation.view(3, 1, 1)
