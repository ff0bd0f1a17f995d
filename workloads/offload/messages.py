# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Questions of a node in virtual time and their answers, as files of a folder that both sides see.

A file holds the length of a JSON text in eight bytes, the text, and what bytes go with it.
Questions are counted from 0; each has one answer, of the same number.
"""

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ENDED = "ended"
"""File that says why nobody computes for a node any more."""
PRINTED = "printed"
"""File of what its computing has printed."""
GUEST = "guest"
"""File of the number of the guest's process, beside the folders of its nodes."""
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class Message:
    """What a file says."""

    plain: Any = None
    """As JSON has it."""
    data: Sequence[bytes | memoryview] = ()


def asked(number: int) -> str:
    """The name of a question's file."""
    return f"{number}.asked"


def answer(number: int) -> str:
    """The name of its answer's."""
    return f"{number}.answer"


def waits(number: int) -> str:
    """The name of a file that is there while a node can do nothing but wait for that answer."""
    return f"{number}.waits"


def nodes(place: Path) -> list[Path]:
    """The folders of the nodes that ask, in order."""
    return sorted(path for path in place.iterdir() if path.is_dir())


def lacks_answer(node: Path, to: Callable[[int], str]) -> bool:
    """Whether there is such a file (`asked`, `waits`) without its answer."""
    names = {path.name for path in node.iterdir()}
    numbers = {int(name.partition(".")[0]) for name in names if name[0].isdigit()}
    return any(to(number) in names and answer(number) not in names for number in numbers)


def put(path: Path, message: Message) -> None:
    """Write a file that others see whole or not at all."""
    sizes = [len(data) for data in message.data]
    text = json.dumps([message.plain, sizes]).encode()
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        for piece in (_LENGTH.pack(len(text)), text, *message.data):
            file.write(piece)
    part.rename(path)


def give_up(node: Path, why: str) -> None:
    """Say that nobody computes for a node any more, unless that has been said."""
    if not (node / ENDED).exists():
        part = node / f"{ENDED}.part"
        part.write_text(why, encoding="utf-8")
        part.rename(node / ENDED)


def take(path: Path) -> Message:
    """What `put` wrote; its data are writable and lie in one piece of memory."""
    whole = memoryview(bytearray(path.read_bytes()))
    end = _LENGTH.size + _LENGTH.unpack_from(whole)[0]
    plain, sizes = json.loads(bytes(whole[_LENGTH.size : end]))
    data = [whole[end : (end := end + size)] for size in sizes]
    return Message(plain, data)
