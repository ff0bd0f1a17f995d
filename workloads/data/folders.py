# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Folders of pictures, one per class, and the folders of their parts."""

import csv
import errno
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from testbed.core.errors import InputError
from testbed.core.words import by_number
from testbed.system.files import read_regular, walk
from workloads.data.clients import Metadata
from workloads.data.partitions import NO_METADATA
from workloads.data.parts import FIELD, Division, divided, names_only_a_part, part_of

SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""Endings of pictures' names; other files are not read."""
MOST_BYTES = 256 << 20
"""Size limit of an encoded picture."""
TABLE, FILE_NAME = "metadata.csv", "file_name"
"""Table next to the pictures, as in Hugging Face's `datasets`, and its column of their paths."""


def pictures_below(folder: Path) -> Iterator[str]:
    """Paths of all pictures below a folder, sorted by the numbers in their names."""
    for place, _, names in sorted(walk(folder), key=lambda it: by_number(it[0])):
        for name in sorted(names, key=by_number):
            if name.lower().endswith(SUFFIXES):
                yield f"{place}/{name}"


def picture_bytes(path: Path) -> bytes:
    """An encoded picture.

    Raises:
        OSError: The file cannot be read, or is no picture's file.
    """
    try:
        return read_regular(path, MOST_BYTES)
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error), str(path)) from None


def other_files(folder: Path) -> int:
    """Number of files below a folder that are not read as pictures, except for hidden ones."""
    return sum(
        not name.lower().endswith(SUFFIXES) and not name.startswith(".")
        for _, _, names in walk(folder)
        for name in names
    )


def has_pictures(folder: Path) -> bool:
    """Whether there are pictures below a folder."""
    return any(name.lower().endswith(SUFFIXES) for _, _, names in walk(folder) for name in names)


def _folders(root: Path) -> list[Path]:
    """Folders in a folder that have pictures below them, except for hidden ones."""
    return [root / name for name in classes_in(root) if has_pictures(root / name)]


def own_pictures(folder: Path) -> int:
    """Number of pictures in a folder itself."""
    return sum(f.name.lower().endswith(SUFFIXES) and f.is_file() for f in folder.iterdir())


def _listed(folders: list[Path]) -> str:
    return ", ".join(f"{folder.name}/" for folder in folders[:4]) + ", …" * (len(folders) > 4)


def classes_in(folder: Path) -> list[str]:
    """Names of the classes whose folders are in a folder, sorted by the numbers in them; hidden
    folders are no classes."""
    found = (f.name for f in folder.iterdir() if f.is_dir() and not f.name.startswith("."))
    return sorted(found, key=by_number)


def picture_folders(root: Path) -> tuple[Path, Division[Path]]:
    """The folder with the parts or classes, and the folders of classes by their use.

    Args:
        root: A folder with the folders of parts, or of classes; or with one folder that has parts.

    Raises:
        InputError: There are no classes, or it is ambiguous where they are.
    """
    try:
        return _picture_folders(root)
    except OSError as error:
        raise InputError(f"{FIELD}: {root}: {error}".replace("\n", " ")) from None


def _picture_folders(root: Path) -> tuple[Path, Division[Path]]:
    children = _folders(root)
    if not children:
        raise InputError(f"{FIELD}: {root} has neither tables nor folders with pictures")
    parts = [child for child in children if part_of(child.name)]
    nested = [child for child in parts if not own_pictures(child)]
    if not nested:
        if all(names_only_a_part(child.name) for child in children):
            raise InputError(f"{FIELD}: {_listed(children)} in {root} need one folder per class")
        if len(children) == 1 and not own_pictures(children[0]):
            below = _folders(children[0])
            if any(names_only_a_part(folder.name) for folder in below):
                return _picture_folders(children[0])
        _check_classes(root, children)
        return root, Division([root], None)
    if len(nested) < len(parts) or any(own_pictures(c) for c in children if c not in parts):
        flat = [child for child in children if child not in nested]
        raise InputError(
            f"{FIELD}: {root} is ambiguous: {_listed(nested)} would be parts with folders of "
            f"classes, and {_listed(flat)} classes"
        )
    found = divided([(child, part_of(child.name)) for child in children], root)
    if found.held_out is None and part_of(found.train[0].name) != "train":
        raise InputError(f"{FIELD}: {root} has {_listed(children)}, but no training part")
    for same in (found.train, found.held_out or ()):
        if len(same) > 1:
            raise InputError(f"{FIELD}: {root} has one part several times: {_listed(list(same))}")
        for part in same:
            _check_classes(part, _folders(part))
    return root, found


def _check_classes(root: Path, classes: list[Path]) -> None:
    """Refuse folders that hold the folders of parts or of classes, in the place of classes."""
    below = {
        each: [folder.name for folder in _folders(each)]
        for each in classes
        if not own_pictures(each)
    }
    for each, names in below.items():
        if part := next((name for name in names if names_only_a_part(name)), ""):
            raise InputError(
                f"{FIELD}: {each} has the folder {part}/; parts must hold the classes, not the "
                "reverse"
            )
    names = next(iter(below.values()), [])
    if len(classes) > 1 < len(names) and [*below.values()].count(names) == len(classes):
        raise InputError(
            f"{FIELD}: {root} is ambiguous: {_listed(classes)} each have folders "
            f"{', '.join(names[:4])}, and either may be the classes"
        )


def client_folders(root: Path) -> tuple[Path, Division[Path]]:
    """As `picture_folders`, for folders of clients with the folders of classes in them."""
    try:
        children = _folders(root)
        if not children:
            raise InputError(f"{FIELD}: {root} has neither tables nor folders with pictures")
        parts = [child for child in children if names_only_a_part(child.name)]
        found = Division([root], None)
        if len(parts) == len(children):
            found = divided([(child, part_of(child.name)) for child in parts], root)
        clients = [
            client
            for part in (found.train[0], *(found.held_out or ())[:1])
            for client in _folders(part)
        ]
        for client in clients:
            if own_pictures(client) or not _folders(client):
                raise InputError(
                    f"{FIELD}: {client} must be a client's folder with one folder per class; or "
                    f"{root} needs a table {TABLE}"
                )
    except OSError as error:
        raise InputError(f"{FIELD}: {root}: {error}".replace("\n", " ")) from None
    return root, found


def has_table(root: Path) -> bool:
    """Whether a folder has a table that describes its pictures."""
    return next(root.glob(f"**/{TABLE}"), None) is not None


def pictures_metadata(root: Path, paths: Sequence[str]) -> Metadata:
    """The columns of the tables `metadata.csv` in and below a folder for these pictures.

    Raises:
        InputError: A table is not valid, or has no row for a picture.
    """
    rows: dict[Path, dict[str, str]] = {}
    for table in sorted(root.glob(f"**/{TABLE}")):
        try:
            text = read_regular(table, MOST_BYTES).decode("utf-8-sig")
            read = csv.DictReader(io.StringIO(text, newline=""), strict=True)
            columns = set(read.fieldnames or ())
            if FILE_NAME not in columns:
                raise ValueError(f"has no column {FILE_NAME}")
            for row in read:
                if None in row or None in row.values():
                    raise ValueError(f"line {read.line_num} lacks a column or has one too many")
                rows[table.parent / row.pop(FILE_NAME)] = row
        except (OSError, ValueError, csv.Error) as error:
            why = " ".join(str(error).split())[:200]
            raise InputError(f"{FIELD}: {table} cannot be read as a table ({why})") from None
    if not rows:
        return NO_METADATA
    if missing := [path for path in paths if Path(path) not in rows]:
        raise InputError(f"{FIELD}: {root} has no row in a {TABLE} for {missing[0]}")
    found = [rows[Path(path)] for path in paths]
    common = [name for name in found[0] if all(name in row for row in found)]
    return {name: np.array([row[name] for row in found]) for name in common}
