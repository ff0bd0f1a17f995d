# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Limits the number of entries of a zip file before Python's `zipfile` makes an object of each."""

import struct
import zipfile
from typing import IO

_HEAD, _LENGTHS = 46, struct.Struct("<28x3H12x")
"""Size of an entry in the directory without its texts, and the place of their three lengths."""
_END64 = 56 + 20
"""Bytes of the end of a large zip's directory."""


def check_entries(file: IO[bytes], most: int) -> None:
    """Refuse a zip file with too many entries, from its end and its directory alone.

    What is no zip file passes: `zipfile` refuses it.

    Args:
        file: The file; its position is 0 afterwards.
        most: Largest number of entries.

    Raises:
        ValueError: There are more.
        OSError: The file cannot be read.
    """
    end = zipfile._EndRecData(file)  # type: ignore[attr-defined]
    if end is None:
        file.seek(0)
        return
    signature, claimed, size, at = end[0], end[4], end[5], end[9]
    begin = at - size - (_END64 if signature == b"PK\x06\x06" else 0)
    count = claimed
    if claimed <= most and begin >= 0:  # `zipfile` does not believe the number, but the size.
        file.seek(begin)
        directory, count, place = file.read(size), 0, 0
        while count <= most and place + _HEAD <= len(directory):
            place += _HEAD + sum(_LENGTHS.unpack_from(directory, place))
            count += 1
    file.seek(0)
    if count > most:
        raise ValueError(f"has more than {most:,} entries")
