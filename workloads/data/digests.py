# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Digests of a data set's files, by which a run recognises its data. Without torch."""

import hashlib
from pathlib import Path

from testbed.core.errors import InputError
from testbed.system.files import sha256_of, walk
from workloads.data.folders import SUFFIXES, picture_bytes
from workloads.data.parts import FIELD

TABLES = (".parquet", ".arrow", ".npy", ".bin", ".json", ".h5", ".hdf5", ".csv")
TEXTS = (".txt", ".jsonl")


def data_digests(root: Path, has_texts: bool = False) -> dict[str, str]:
    """SHA-256 of the names, sizes and contents of all pictures and tables below a folder.

    All bytes are read: 1 to 2 s per GB if they are in the page cache.

    Args:
        root: The folder.
        has_texts: Whether the data may be texts; `root` may be a file then.

    Returns:
        One digest per table file, and one for the pictures of each folder; by relative path.

    Raises:
        InputError: The path is not a folder, or a file cannot be read.
    """
    if not root.is_dir() and not (has_texts and root.is_file()):
        kind = "a file or folder" if has_texts else "a folder"
        raise InputError(f"{FIELD}: {root} is neither 'synthetic' nor {kind}")
    endings = (*TABLES, *TEXTS) if has_texts else TABLES
    digests = {}
    try:
        if root.is_file():
            return {root.name: sha256_of(root)}
        for place, folders, names in walk(root):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            own = Path(place).relative_to(root)
            pictures = hashlib.sha256()
            listed = sorted(name for name in names if name.lower().endswith(SUFFIXES))
            for name in listed:
                data = picture_bytes(Path(place, name))
                pictures.update(f"{name}\0{len(data)}\0".encode("utf-8", "surrogateescape"))
                pictures.update(data)
            if listed:
                digests[f"{own}/"] = pictures.hexdigest()
            for name in sorted(name for name in names if name.lower().endswith(endings)):
                digests[str(own / name)] = sha256_of(Path(place, name))
    except OSError as error:
        raise InputError(f"{FIELD}: {error.filename}: {error.strerror}") from None
    return digests
