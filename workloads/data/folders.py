# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Folders of pictures, one per class, and the folders of their parts."""

import errno
from collections.abc import Iterator
from pathlib import Path

from testbed.core.errors import InputError
from testbed.core.words import by_number
from testbed.system.files import read_regular, walk
from workloads.data.parts import FIELD, Division, divided, names_only_a_part, part_of

SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""Endings of pictures' names; other files are not read."""
MOST_BYTES = 256 << 20
"""Size limit of an encoded picture."""


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
