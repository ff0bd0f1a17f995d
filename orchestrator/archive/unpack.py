# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Unpacks a bundle from an untrusted source: its contents are checked before they are used.

No entry may leave the folder, be a link, overlap another entry or expand to an excessive size, and
every file must have the digest in `SHA256SUMS`.
"""

import hashlib
import os
import re
import shutil
import stat
import zipfile
import zlib
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

from orchestrator.archive.bundle import CHUNK, CONTENT, INPUTS, SUMS
from orchestrator.archive.crate import METADATA
from testbed.core.errors import InputError
from testbed.system.files import MOST_DATA_BYTES, json_value, opened_regular
from testbed.system.zips import check_entries

MOST_ENTRIES = 500_000
SAFE_BYTES, MOST_EXPANSION = 1 << 30, 200
"""A zip that expands to more bytes, and to more than this multiple of its size, is refused."""
MOST_LINE_BYTES = 1 << 20
LISTED = re.compile(r"([0-9a-f]{64})  ([^\n]+)")


@dataclass(frozen=True)
class Unpacked:
    """An unpacked and checked bundle."""

    folder: Path
    kind: str
    """`run` or `campaign`."""
    inputs: dict[str, str]
    """By path in the scenarios: path of the unpacked file."""
    sums: dict[str, str]
    """By path in the bundle: the SHA-256 that the file has, in hexadecimal digits."""

    @property
    def content(self) -> Path:
        """The run's or campaign's directory."""
        return self.folder / CONTENT[self.kind]


def unpack(bundle: Path, folder: Path) -> Unpacked:
    """Check a bundle and write it into an empty folder.

    Raises:
        InputError: The file is not a bundle, is broken, or is unsafe; the message is one line.
    """
    try:
        with opened_regular(bundle, MOST_DATA_BYTES) as (file, _):
            check_entries(file, MOST_ENTRIES)
            archive = zipfile.ZipFile(file)
            entries = _checked(bundle, archive, shutil.disk_usage(folder).free)
            sums = _sums(bundle, archive, entries)
            for name, entry in entries.items():
                if name != SUMS:
                    _extract(bundle, archive, entry, folder / name, sums[name])
    except OSError as error:
        raise InputError(f"{bundle}: cannot be read ({error.strerror or error})") from None
    except ValueError as error:
        raise InputError(f"{bundle}: {error}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError):
        raise InputError(f"{bundle}: is not a zip file, or is broken") from None
    kinds = [kind for kind, content in CONTENT.items() if (folder / content).is_dir()]
    if len(kinds) != 1 or not (folder / METADATA).is_file():
        raise InputError(f"{bundle}: contains no run or campaign written by `testbed bundle`")
    return Unpacked(folder, kinds[0], _inputs(bundle, folder), sums)


def _checked(bundle: Path, archive: zipfile.ZipFile, free: int) -> dict[str, zipfile.ZipInfo]:
    """The zip's files by name, after checks of names, kinds and sizes."""
    entries: dict[str, zipfile.ZipInfo] = {}
    for entry in archive.infolist():
        name, shown = entry.filename, ascii(entry.filename)[:80]
        path = PurePosixPath(name)
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if path.is_absolute() or str(path) != name or {"..", "."} & set(path.parts):
            raise InputError(f"{bundle}: the entry {shown} leads outside the folder")
        if "\\" in name or not name.isprintable() or any(len(p.encode()) > 255 for p in path.parts):
            raise InputError(f"{bundle}: the entry {shown} is not a valid file name")
        if entry.is_dir() or kind not in (0, stat.S_IFREG):
            raise InputError(f"{bundle}: the entry {shown} is not a regular file")
        if entry.flag_bits & 1:
            raise InputError(f"{bundle}: the entry {shown} is encrypted")
        if name in entries:
            raise InputError(f"{bundle}: has two entries {shown}")
        entries[name] = entry
    for path in map(PurePosixPath, entries):
        if inner := next((p for p in path.parents if str(p) in entries), None):
            raise InputError(
                f"{bundle}: the entry {ascii(str(inner))[:80]} is both file and folder"
            )
    for first, second in pairwise(sorted(entries.values(), key=lambda e: e.header_offset)):
        if first.header_offset + 30 + first.compress_size > second.header_offset:
            raise InputError(f"{bundle}: has overlapping zip entries")
    needed, held = sum(e.file_size for e in entries.values()), bundle.stat().st_size
    if needed > max(SAFE_BYTES, MOST_EXPANSION * held):
        raise InputError(f"{bundle}: expands from {held:,} to {needed:,} bytes")
    if needed > free:
        raise InputError(f"{bundle}: expands to {needed:,} bytes, but only {free:,} are free")
    return entries


def _sums(
    bundle: Path, archive: zipfile.ZipFile, entries: dict[str, zipfile.ZipInfo]
) -> dict[str, str]:
    """The digests of all files except `SHA256SUMS` itself."""
    if SUMS not in entries:
        raise InputError(f"{bundle}: is not a bundle: {SUMS} is missing")
    sums: dict[str, str] = {}
    with archive.open(SUMS) as file:
        while data := file.readline(MOST_LINE_BYTES):
            line = data.decode("utf-8", "replace").removesuffix("\n")
            if (found := LISTED.fullmatch(line)) is None:
                raise InputError(f"{bundle}: {SUMS}: {ascii(line)[:80]} is not a digest and a name")
            if found[2] in sums:
                raise InputError(f"{bundle}: {SUMS}: has two lines for {ascii(found[2])[:80]}")
            if found[2] not in entries:
                raise InputError(f"{bundle}: {ascii(found[2])[:80]} is missing")
            sums[found[2]] = found[1]
    if unlisted := sorted(entries.keys() - {SUMS} - sums.keys()):
        raise InputError(f"{bundle}: {ascii(unlisted[0])[:80]} is not in {SUMS}")
    return sums


def _extract(
    bundle: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: Path, sha256: str
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    digest, left = hashlib.sha256(), entry.file_size
    with archive.open(entry) as source, path.open("xb") as target:
        while left and (chunk := source.read(min(CHUNK, left))):
            digest.update(chunk)
            target.write(chunk)
            left -= len(chunk)
    if digest.hexdigest() != sha256:
        raise InputError(f"{bundle}: {entry.filename}: does not have its digest in {SUMS}")


def _inputs(bundle: Path, folder: Path) -> dict[str, str]:
    given = object_in(folder / INPUTS, f"{bundle}: {INPUTS}")
    base = os.path.realpath(folder)
    found = {}
    for path, place in given.items():
        real = os.path.realpath(folder / str(place))
        if not real.startswith(f"{base}{os.sep}inputs{os.sep}") or not Path(real).exists():
            raise InputError(f"{bundle}: {INPUTS}: {ascii(place)[:80]} is not in the bundle")
        found[path] = real
    return found


def object_in(path: Path, name: str) -> dict[str, Any]:
    """Read a JSON object from a bundle.

    Raises:
        InputError: The file is not a JSON object; the message begins with `name`.
    """
    try:
        tree = json_value(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{name}: cannot be read ({str(error)[:200]})") from None
    if not isinstance(tree, dict):
        raise InputError(f"{name}: must be a JSON object")
    return tree
