# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""NPZ files with large arrays: written in blocks, and mapped into memory instead of being read.

Arrays are stored without compression at aligned offsets, so that a program can map them. Other
programs read the files as any NPZ file.
"""

import io
import math
import mmap
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import psutil

from testbed.system.files import opened_regular, read_whole
from testbed.system.zips import check_entries

EASY_BYTES, MOST_GROWTH = 256 << 20, 50
"""A file is refused if it has more bytes than this and its compression ratio exceeds the next
value; the arrays of a file with more bytes are mapped instead of being read."""
MOST_ENTRIES = 10_000
"""Largest number of arrays in a file."""
BLOCK_BYTES = 1 << 20
"""Bytes that are written or checked together."""
_ALIGNMENT = 64
_PADDING = 0xD935
"""ID of an extra field of ZIP that aligns data."""
_LOCAL_BYTES, _ZIP64_BYTES = 30, 20

AnyArray = npt.NDArray[Any]


class Spooled:
    """An array of known shape that is filled along one axis, kept in an unnamed temporary file.

    Args:
        folder: Folder of the temporary file.
        shape: Shape of the complete array.
        dtype: Type of the array's values.
        axis: The axis along which values are added.
    """

    def __init__(self, folder: Path, shape: tuple[int, ...], dtype: np.dtype[Any], axis: int):
        self.shape, self.dtype, self.axis = shape, dtype, axis
        self._file: IO[bytes] = TemporaryFile(dir=folder)  # noqa: SIM115 - see close
        self._filled = 0

    def add(self, values: AnyArray) -> None:
        """Add the next values; their shape is that of the array except for the axis."""
        rows = math.prod(self.shape[: self.axis])
        entry_bytes = math.prod(self.shape[self.axis + 1 :]) * self.dtype.itemsize
        row_bytes = self.shape[self.axis] * entry_bytes
        data = np.ascontiguousarray(values, self.dtype).reshape(-1).view(np.uint8).data
        length, at = len(data) // rows, self._filled * entry_bytes
        for row in range(rows):
            left = data[row * length : (row + 1) * length]
            place = row * row_bytes + at
            while left:  # on a full disk, the next attempt fails
                count = os.pwrite(self._file.fileno(), left, place)
                left, place = left[count:], place + count
        self._filled += values.shape[self.axis]

    def blocks(self) -> Iterator[bytes]:
        """The bytes of the array, which must be complete, in C order."""
        assert self._filled == self.shape[self.axis]
        self._file.seek(0)
        while block := self._file.read(BLOCK_BYTES):
            yield block

    def close(self) -> None:
        """Remove the temporary file."""
        self._file.close()


def write(path: Path, arrays: Mapping[str, "AnyArray | Spooled"]) -> None:
    """Write arrays as an NPZ file, in blocks."""
    with path.open("wb") as file, zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy")
            fixed = file.tell() + _LOCAL_BYTES + len(member.filename) + _ZIP64_BYTES + 4
            padding = -fixed % _ALIGNMENT
            member.extra = (
                _PADDING.to_bytes(2, "little") + padding.to_bytes(2, "little") + bytes(padding)
            )
            with archive.open(member, "w", force_zip64=True) as out:
                head: dict[str, Any] = {
                    "descr": np.lib.format.dtype_to_descr(array.dtype),
                    "fortran_order": False,
                    "shape": array.shape,
                }
                np.lib.format.write_array_header_1_0(out, head)
                for block in array.blocks() if isinstance(array, Spooled) else _blocks(array):
                    out.write(block)


def _blocks(array: AnyArray) -> Iterator[bytes]:
    """The bytes of an array in C order."""
    if not array.ndim:
        yield array.tobytes()
    for index in blocks(array):
        yield array[index].tobytes()


def blocks(array: AnyArray) -> Iterator[tuple[slice, ...]]:
    """Indices of the parts of an array in C order, each with at most about `BLOCK_BYTES`.

    An index selects several rows, or a part of one row whose further axes are divided likewise.
    After each part, a mapped array releases the memory of the values that were read.
    """
    if not array.ndim or not array.size:
        return
    pages: mmap.mmap | None = getattr(array.base, "_mmap", None)
    for index in _parts(array.shape, array.itemsize):
        yield index
        if pages is not None:
            pages.madvise(mmap.MADV_DONTNEED)


def _parts(shape: tuple[int, ...], item_bytes: int) -> Iterator[tuple[slice, ...]]:
    rows = BLOCK_BYTES // (item_bytes * math.prod(shape[1:]))
    if rows or len(shape) == 1:
        rows = max(1, rows)
        yield from ((slice(first, first + rows),) for first in range(0, shape[0], rows))
        return
    for row in range(shape[0]):
        for rest in _parts(shape[1:], item_bytes):
            yield slice(row, row + 1), *rest


def read(path: Path, names: Sequence[str], most_bytes: int) -> dict[str, AnyArray]:
    """Read the named arrays as far as an NPZ file has them, without any pickled object.

    Arrays that are stored without compression and aligned are not copied, but read-only. Those of
    a file with more than `EASY_BYTES` are mapped: the system reads the parts that are used.

    Raises:
        OSError: The file cannot be opened or read.
        ValueError: The file is refused; the message names the field. NumPy and zipfile have further
            exceptions for broken bytes.
    """
    with opened_regular(path, most_bytes) as (opened, size):
        file: IO[bytes] = opened
        whole: bytes | None = None
        if size <= EASY_BYTES:  # then nothing that happens to the file later matters
            whole = read_whole(opened, size)
            file = io.BytesIO(whole)
        check_entries(file, MOST_ENTRIES)
        with zipfile.ZipFile(file) as archive:
            members = {
                name: member
                for member in archive.infolist()
                if (name := member.filename.removesuffix(".npy")) in names
            }
            mapped = {
                name: found
                for name, member in members.items()
                if (found := _mapped(file, whole, archive, member)) is not None
            }
            _check_sizes(archive, members, mapped, size)
        file.seek(0)
        with closing(np.load(file, allow_pickle=False)) as loaded:
            return {
                name: mapped[name] if name in mapped else loaded[name]
                for name in names
                if name in loaded.files
            }


def names(path: Path, most_bytes: int) -> list[str]:
    """The names of the arrays in an NPZ file.

    Raises:
        OSError: The file cannot be opened or read.
        ValueError: The file is too long, or has too many entries. Zipfile has further exceptions
            for broken bytes.
    """
    with opened_regular(path, most_bytes) as (file, _):
        check_entries(file, MOST_ENTRIES)
        archive = zipfile.ZipFile(file)
        return [name.removesuffix(".npy") for name in archive.namelist()]


def _mapped(
    file: IO[bytes], whole: bytes | None, archive: zipfile.ZipFile, member: zipfile.ZipInfo
) -> AnyArray | None:
    """The array of a member, without a copy; None if it is small or cannot be used in its place.

    Args:
        file: The file.
        whole: Its content, if it has been read; otherwise, the array is mapped.
        archive: The file as an archive.
        member: The member.

    Raises:
        zipfile.BadZipFile: The checksum of the member is wrong.
    """
    plain = member.compress_type == zipfile.ZIP_STORED and not member.flag_bits & 1
    if not plain or member.file_size < BLOCK_BYTES:
        return None
    with archive.open(member) as stream:
        shape, fortran, dtype = _head(stream)
        begin_bytes = stream.tell()
        while whole is None and stream.read(BLOCK_BYTES):
            pass  # the end compares the checksum
    file.seek(member.header_offset)
    local = file.read(_LOCAL_BYTES)
    lengths = int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little")
    begin = member.header_offset + _LOCAL_BYTES + lengths
    if whole is not None:
        data = memoryview(whole)[begin : begin + member.file_size]
        if zlib.crc32(data) != member.CRC:
            raise zipfile.BadZipFile(f"Bad CRC-32 for file {member.filename!r}")
    offset = begin + begin_bytes
    count = math.prod(shape)
    if fortran or dtype.hasobject or dtype.kind not in "fiu" or offset % dtype.alignment:
        return None
    if count * dtype.itemsize != member.file_size - begin_bytes:
        return None
    if whole is not None:
        return np.frombuffer(whole, dtype, count, offset).reshape(shape)
    return np.asarray(np.memmap(file, dtype, "r", offset, shape))


def _head(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether the order is that of Fortran, and type of an array in the NPY format."""
    version = np.lib.format.read_magic(stream)
    read_head = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }[version]
    shape, fortran, dtype = read_head(stream)
    return shape, fortran, dtype


def _check_sizes(
    archive: zipfile.ZipFile,
    members: Mapping[str, zipfile.ZipInfo],
    mapped: Mapping[str, AnyArray],
    size: int,
) -> None:
    """Refuse a file that claims more data than it has or would need too much memory.

    Raises:
        ValueError: The file is refused; the message names the field.
    """
    total, free = 0, psutil.virtual_memory().available
    for name, member in members.items():
        if name in mapped:
            continue
        total += member.file_size
        if total > max(EASY_BYTES, MOST_GROWTH * size):
            raise ValueError(f"{name} claims {member.file_size:,} bytes of {size:,}")
        # Memory for the file, the array of one field, and its conversion to float64.
        if 3 * total > free:
            raise ValueError(f"{name} needs {3 * total:,} bytes of memory, {free:,} are free")
        with archive.open(member) as file:
            shape, _, dtype = _head(file)
        if math.prod(shape) * dtype.itemsize > member.file_size:
            raise ValueError(f"{name} claims to be larger than it is")
