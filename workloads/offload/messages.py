# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Requests of a node in virtual time and their answers, as files in a shared folder.

A file contains the length of a JSON text in eight bytes, the text, and optional binary data.
Requests are numbered from 0; each has one answer with the same number.
"""

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ENDED = "ended"
"""File with the reason why a node's worker has ended."""
PRINTED = "printed"
"""File with the output of a node's worker."""
GUEST = "guest"
"""File with the PID of the guest, next to the folders of its nodes."""
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class Message:
    """The content of a file."""

    plain: Any = None
    """JSON value."""
    data: Sequence[bytes | memoryview] = ()


def asked(number: int) -> str:
    """File name of a request."""
    return f"{number}.asked"


def answer(number: int) -> str:
    """File name of an answer."""
    return f"{number}.answer"


def waits(number: int) -> str:
    """Name of a file that exists while a node is blocked until that answer."""
    return f"{number}.waits"


def nodes(place: Path) -> list[Path]:
    """The folders of the nodes, in order."""
    return sorted(path for path in place.iterdir() if path.is_dir())


def lacks_answer(node: Path, to: Callable[[int], str]) -> bool:
    """Whether a file of this type (`asked`, `waits`) exists without its answer."""
    names = {path.name for path in node.iterdir()}
    numbers = {int(name.partition(".")[0]) for name in names if name[0].isdigit()}
    return any(to(number) in names and answer(number) not in names for number in numbers)


def put(path: Path, message: Message) -> None:
    """Write a file atomically."""
    sizes = [len(data) for data in message.data]
    text = json.dumps([message.plain, sizes]).encode()
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        for piece in (_LENGTH.pack(len(text)), text, *message.data):
            file.write(piece)
    part.rename(path)


def give_up(node: Path, why: str) -> None:
    """Record that a node's worker has ended, unless this has been done."""
    if not (node / ENDED).exists():
        part = node / f"{ENDED}.part"
        part.write_text(why, encoding="utf-8")
        part.rename(node / ENDED)


def take(path: Path) -> Message:
    """Read a file of `put`; its data are writable and contiguous in memory."""
    whole = memoryview(bytearray(path.read_bytes()))
    end = _LENGTH.size + _LENGTH.unpack_from(whole)[0]
    plain, sizes = json.loads(bytes(whole[_LENGTH.size : end]))
    data = [whole[end : (end := end + size)] for size in sizes]
    return Message(plain, data)
