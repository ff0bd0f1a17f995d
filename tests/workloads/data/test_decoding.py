# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Pictures of every format and mode have the values that were drawn; broken ones are refused."""

import io
import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageOps

from workloads.data.decoding import UnreadableError, decoded

SIZE = 24
Y, X = np.mgrid[0:SIZE, 0 : SIZE + 8]
COLOURS = np.stack([X * 8, Y * 10, 128 + 50 * np.sin(X / 3)], -1).astype(np.uint8)
GREY = COLOURS[..., 0]
GREY16 = (X * 65535 / X.max()).round().astype(np.uint16)
PICTURE = Image.fromarray(COLOURS)


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def read(data: bytes) -> npt.NDArray[np.float32]:
    return decoded(data).permute(1, 2, 0).numpy()


def same(data: bytes, true: npt.NDArray[Any], most: float = 255, atol: float = 1e-6) -> None:
    true = true if true.ndim == 3 else np.stack([true] * 3, -1)
    np.testing.assert_allclose(read(data), true / most, atol=atol)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM"])
@pytest.mark.parametrize("true", [COLOURS, GREY], ids=["colours", "grey"])
def test_8_bits_in_every_format(kind: str, true: npt.NDArray[np.uint8]) -> None:
    same(saved(Image.fromarray(true), kind), true)


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
def test_16_bit_grey_is_scaled_by_its_range(kind: str) -> None:
    same(saved(Image.fromarray(GREY16), kind), GREY16, 65535)


def test_16_bit_colours_of_png() -> None:
    deep = COLOURS.astype(">u2") * 257
    raw = b"".join(b"\0" + row.astype(">u2").tobytes() for row in deep)

    def chunk(name: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        )

    head = struct.pack(">IIBBBBB", SIZE + 8, SIZE, 16, 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(raw)), (b"IEND", b""))
    same(b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts), COLOURS)


def test_modes_are_those_of_pillow() -> None:
    alpha = np.where((X - 12) ** 2 + (Y - 12) ** 2 < 60, 255, 0).astype(np.uint8)
    palette, bits = PICTURE.quantize(32), Image.fromarray(GREY).convert("1")
    for image, true in (
        (palette, np.asarray(palette.convert("RGB"))),
        (bits, np.asarray(bits.convert("L"))),
        (Image.fromarray(np.dstack([COLOURS, alpha])), COLOURS),
        (Image.merge("LA", [Image.fromarray(GREY), Image.fromarray(alpha)]), GREY),
    ):
        same(saved(image, "PNG"), true)
    same(saved(PICTURE, "WEBP", lossless=True), COLOURS)
    cmyk = saved(PICTURE.convert("CMYK"), "JPEG", quality=95)
    same(cmyk, np.asarray(Image.open(io.BytesIO(cmyk)).convert("RGB")))


@pytest.mark.parametrize("turned", range(1, 9))
def test_orientation_is_applied(turned: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = turned
    for kind in ("PNG", "TIFF"):
        data = saved(PICTURE, kind, exif=exif)
        same(data, np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data)))))
    expected = {1: COLOURS, 3: COLOURS[::-1, ::-1], 6: np.rot90(COLOURS, -1), 8: np.rot90(COLOURS)}
    if turned in expected:
        same(saved(PICTURE, "PNG", exif=exif), expected[turned])


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF"])
def test_the_first_frame_is_read(kind: str) -> None:
    grey = Image.fromarray(GREY)
    more = {"lossless": True} if kind == "WEBP" else {}
    moving = saved(grey, kind, save_all=True, append_images=[ImageOps.invert(grey)], **more)
    same(moving, GREY)


def test_floats_have_a_stated_range() -> None:
    values = (X / X.max()).astype(np.float32)
    same(saved(Image.fromarray(values), "TIFF"), values, 1)
    for wrong in (values * 2, values - 0.5, np.full_like(values, np.nan)):
        with pytest.raises(UnreadableError, match="must be from 0 to 1"):
            decoded(saved(Image.fromarray(wrong), "TIFF"))
    with pytest.raises(UnreadableError, match="32-bit integers"):
        decoded(saved(Image.fromarray(GREY16.astype(np.int32)), "TIFF"))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "TIFF", "PPM", "WEBP", "GIF"])
def test_truncated_pictures_are_refused(kind: str) -> None:
    whole = saved(PICTURE, kind)
    for data in (whole[: len(whole) // 2], whole[:20], b"", b"text"):
        with pytest.raises(UnreadableError) as refusal:
            decoded(data)
        assert "\n" not in str(refusal.value)
        assert "BytesIO" not in str(refusal.value)


def test_formats_that_start_programs_are_not_read() -> None:
    with pytest.raises(UnreadableError, match="is none of JPEG"):
        decoded(saved(PICTURE, "EPS"))
