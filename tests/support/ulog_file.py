# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Writes small ULog files, as PX4 does: a header, formats of topics, and their rows in turn."""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

MAGIC = b"ULog\x01\x12\x35"
CODES = {
    "uint64_t": "Q",
    "uint32_t": "I",
    "int32_t": "i",
    "uint8_t": "B",
    "float": "f",
    "double": "d",
    "bool": "?",
}


def message(kind: str, content: bytes) -> bytes:
    return struct.pack("<HB", len(content), ord(kind)) + content


def written(
    path: Path,
    topics: Sequence[tuple[str, Mapping[str, str], Sequence[Sequence[Any]]]],
    dropouts_ms: Sequence[int] = (),
) -> Path:
    """Write the topics, each with a name, the type of each field, and rows.

    A name that comes again is a further instance of the topic.
    """
    parts = [MAGIC + struct.pack("<BQ", 1, 0), message("B", bytes(40))]
    names = [name for name, _, _ in topics]
    for name, types in {name: types for name, types, _ in topics}.items():
        fields = "".join(f"{kind} {field};" for field, kind in types.items())
        parts.append(message("F", f"{name}:{fields}".encode()))
    for number, name in enumerate(names):
        instance = names[:number].count(name)
        parts.append(message("A", struct.pack("<BH", instance, number) + name.encode()))
    for number, (_, types, rows) in enumerate(topics):
        layout = "<H" + "".join(CODES[kind] for kind in types.values())
        parts += [message("D", struct.pack(layout, number, *row)) for row in rows]
    parts += [message("O", struct.pack("<H", dropout_ms)) for dropout_ms in dropouts_ms]
    path.write_bytes(b"".join(parts))
    return path
