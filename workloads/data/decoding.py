# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Decoding of pictures with Pillow: any supported format and mode to RGB from 0 to 1.

If a file has several frames or pages, the first is read. EXIF orientation is applied. Transparency
and colour profiles are ignored. 16-bit grey is divided by 65535; 16-bit colours are read with 8
bits, as Pillow does. Floating-point values must be from 0 to 1, and 32-bit integers, whose range is
not known, are refused.
"""

import math
import threading
from contextlib import nullcontext
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

FORMATS = ("JPEG", "PNG", "PPM", "BMP", "TIFF", "WEBP", "GIF")
"""Formats by Pillow's names; others, such as EPS, would start programs."""
Image.init()
MOST_PIXELS, MANY_PIXELS = 50_000_000, 4_000_000
"""Pictures with more pixels are refused; of those with more than the second, one is decoded at a
time, because a pixel takes up to 20 bytes."""
_ONE_LARGE = threading.Lock()


class UnreadableError(ValueError):
    """A picture cannot be read; the message gives the reason, in one line."""


def decoded(data: bytes) -> Tensor:
    """The pixels of a picture, [3, H, W], float32 from 0 to 1.

    Raises:
        UnreadableError: The picture is broken, truncated or too large, or its values have no known
            range.
    """
    try:
        with Image.open(BytesIO(data), formats=FORMATS) as file:
            if (count := math.prod(file.size)) > MOST_PIXELS:
                raise UnreadableError(f"has {count:,} pixels, more than {MOST_PIXELS:,}")
            with _ONE_LARGE if count > MANY_PIXELS else nullcontext():
                file.load()
                pixels = _rgb(ImageOps.exif_transpose(file), file.format)
    except UnreadableError:
        raise
    except UnidentifiedImageError:
        raise UnreadableError(
            "is empty" if not data else f"is none of {', '.join(FORMATS)}"
        ) from None
    except Exception as error:  # Pillow raises many types for broken files.
        raise UnreadableError(" ".join(str(error).split()) or type(error).__name__) from None
    return torch.from_numpy(pixels)


def _rgb(image: Image.Image, format_: str | None) -> npt.NDArray[Any]:
    """[3, H, W], float32 from 0 to 1."""
    mode = image.mode
    if mode.startswith("I;16") or (mode == "I" and format_ in ("PPM", "PNG")):
        grey = np.asarray(image).astype(np.float32) / 65535
    elif mode == "F":
        grey = np.asarray(image).astype(np.float32)
        if not (grey.min() >= 0 and grey.max() <= 1):
            raise UnreadableError(
                f"has floating-point values from {grey.min():g} to {grey.max():g}, and they must "
                "be from 0 to 1"
            )
    elif mode == "I":
        raise UnreadableError("has 32-bit integers, whose range is not known")
    else:
        colours = {"RGBa": "RGBA", "La": "LA"}.get(mode)
        image = image if colours is None else image.convert(colours)
        pixels = np.asarray(image.convert("RGB")).transpose(2, 0, 1).astype(np.float32, "C")
        pixels /= 255
        return pixels
    return np.repeat(grey[None], 3, axis=0)
