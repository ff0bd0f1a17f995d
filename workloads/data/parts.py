# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Training and held-out parts of a data set, recognised by the names of files and folders.

A name belongs to a part if one of its words, which anything but letters delimits, is a keyword of
this part, in upper or lower case. The keywords are those of Hugging Face's `datasets`.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from testbed.core.errors import InputError

FIELD = "workload.data.source"
KEYWORDS = {
    "train": ("train", "training"),
    "test": ("test", "testing", "eval", "evaluation"),
    "validation": ("validation", "valid", "val", "dev"),
}
HELD_OUT = ("test", "validation")
"""Parts with held-out samples; the first existing one is used."""
_PART_OF = {word: part for part, words in KEYWORDS.items() for word in words}
T = TypeVar("T")


def _words(name: str) -> list[str]:
    return re.findall(r"[^\W\d_]+", name.casefold())


def part_of(name: str) -> str:
    """The part that a name belongs to: train, test or validation; empty if it names none.

    Raises:
        InputError: The name contains keywords of several parts.
    """
    found = {_PART_OF[word] for word in _words(name) if word in _PART_OF}
    if len(found) > 1:
        raise InputError(f"{FIELD}: {name} names several parts: {' and '.join(sorted(found))}")
    return next(iter(found), "")


def names_only_a_part(name: str) -> bool:
    """Whether a name consists of keywords only: `Train`, `test_0`, but not `test tube`."""
    words = _words(name)
    return bool(words) and all(word in _PART_OF for word in words)


def part_of_file(file: Path, root: Path) -> str:
    """The part of a file below a folder, by its own name or otherwise by the nearest folder that
    names one."""
    for name in reversed(file.relative_to(root).parts):
        if part := part_of(name):
            return part
    return ""


def shown_names(paths: Sequence[Path], root: Path) -> str:
    """The first of these paths below a folder, and the number of all."""
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{paths[0].relative_to(root)}{more}"


@dataclass(frozen=True)
class Division(Generic[T]):
    """The items of a data set by their use."""

    train: Sequence[T]
    held_out: Sequence[T] | None
    """None: there is no part for it, and a share of `train` is held out."""
    unused: Sequence[T] = ()


def divided(items: Iterable[tuple[T, str]], root: Path) -> Division[T]:
    """Divide items by the parts that they belong to.

    Items that belong to no part are used only if none does. A single part that is not for training
    is divided like a set without parts.

    Args:
        items: Items with their part; empty if they belong to none.
        root: Folder of the items, for messages.

    Raises:
        InputError: Parts are held out, but none is for training.
    """
    by_part: dict[str, list[T]] = {}
    for item, part in items:
        by_part.setdefault(part, []).append(item)
    if len(by_part) == 1:
        return Division(next(iter(by_part.values())), None)
    if "train" not in by_part:
        named = " and ".join(sorted(by_part.keys() - {""}))
        more = ", and others that name no part" if "" in by_part else ""
        raise InputError(f"{FIELD}: {root} has no training part, only {named}{more}")
    held_out = next((by_part[part] for part in HELD_OUT if part in by_part), None)
    unused = [
        item
        for part, own in by_part.items()
        if part != "train" and own is not held_out
        for item in own
    ]
    return Division(by_part["train"], held_out, unused)
