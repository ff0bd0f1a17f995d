# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A bundle taken apart without trust: what it claims is checked before anything is written.

No entry leads out of the folder, is a link, lies over another or unfolds to more than a bundle's
do; nothing is taken over before its digest is what `SHA256SUMS` says.
"""

import hashlib
import json
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

MOST_ENTRIES = 500_000
EASY_BYTES, MOST_GROWTH = 1 << 30, 200
"""A bundle that unfolds to more than this, and to more than so many times its length, is a bomb."""
MOST_JSON_BYTES = 16 << 20
LISTED = re.compile(r"([0-9a-f]{64})  ([^\n]+)")


@dataclass(frozen=True)
class Unpacked:
    """A bundle on disk; every file is what the bundle says."""

    folder: Path
    kind: str
    """`run` or `campaign`."""
    inputs: dict[str, str]
    """By the path that scenarios name: where the file lies now."""

    @property
    def content(self) -> Path:
        """The run's or campaign's directory."""
        return self.folder / CONTENT[self.kind]


def unpack(bundle: Path, folder: Path) -> Unpacked:
    """Check a bundle and write it into an empty folder.

    Raises:
        InputError: It is none, is broken, or means harm; one line says what.
    """
    try:
        if not stat.S_ISREG(bundle.stat().st_mode):
            raise InputError(f"{bundle}: is not a regular file")
        with zipfile.ZipFile(bundle) as archive:
            entries = _checked(bundle, archive, shutil.disk_usage(folder).free)
            sums = _sums(bundle, archive, entries)
            for name, entry in entries.items():
                if name != SUMS:
                    _extract(bundle, archive, entry, folder / name, sums[name])
    except OSError as error:
        raise InputError(f"{bundle}: cannot be read ({error.strerror or error})") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise InputError(f"{bundle}: is no zip file, or a broken one ({error})") from None
    kinds = [kind for kind, content in CONTENT.items() if (folder / content).is_dir()]
    if len(kinds) != 1 or not (folder / METADATA).is_file():
        raise InputError(f"{bundle}: holds neither a run nor a campaign as `testbed bundle` does")
    return Unpacked(folder, kinds[0], _inputs(bundle, folder))


def _checked(bundle: Path, archive: zipfile.ZipFile, free: int) -> dict[str, zipfile.ZipInfo]:
    """The files of a zip by name, of which none does harm."""
    entries: dict[str, zipfile.ZipInfo] = {}
    if len(archive.infolist()) > MOST_ENTRIES:
        raise InputError(f"{bundle}: has more than {MOST_ENTRIES:,} entries")
    for entry in archive.infolist():
        name, shown = entry.filename, ascii(entry.filename)[:80]
        path = PurePosixPath(name)
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if path.is_absolute() or str(path) != name or {"..", "."} & set(path.parts):
            raise InputError(f"{bundle}: the entry {shown} leads out of its folder")
        if "\\" in name or not name.isprintable() or any(len(p.encode()) > 255 for p in path.parts):
            raise InputError(f"{bundle}: the entry {shown} is no name for a file")
        if entry.is_dir() or kind not in (0, stat.S_IFREG):
            raise InputError(f"{bundle}: the entry {shown} is no regular file")
        if entry.flag_bits & 1:
            raise InputError(f"{bundle}: the entry {shown} is encrypted")
        if name in entries:
            raise InputError(f"{bundle}: has two entries {shown}")
        entries[name] = entry
    for path in map(PurePosixPath, entries):
        if inner := next((p for p in path.parents if str(p) in entries), None):
            raise InputError(f"{bundle}: the entry {ascii(str(inner))[:80]} is file and folder")
    for first, second in pairwise(sorted(entries.values(), key=lambda e: e.header_offset)):
        if first.header_offset + 30 + first.compress_size > second.header_offset:
            raise InputError(f"{bundle}: entries lie over each other")
    needed, held = sum(e.file_size for e in entries.values()), bundle.stat().st_size
    if needed > max(EASY_BYTES, MOST_GROWTH * held):
        raise InputError(f"{bundle}: unfolds from {held:,} to {needed:,} bytes")
    if needed > free:
        raise InputError(f"{bundle}: unfolds to {needed:,} bytes, and {free:,} are free")
    return entries


def _sums(
    bundle: Path, archive: zipfile.ZipFile, entries: dict[str, zipfile.ZipInfo]
) -> dict[str, str]:
    """The digest of every file but the list of digests."""
    if SUMS not in entries:
        raise InputError(f"{bundle}: is no bundle: {SUMS} is missing")
    with archive.open(SUMS) as file:
        text = file.read(MOST_JSON_BYTES).decode("utf-8", "replace")
    sums: dict[str, str] = {}
    for line in text.splitlines():
        if (found := LISTED.fullmatch(line)) is None:
            raise InputError(f"{bundle}: {SUMS}: {ascii(line)[:80]} is no digest and name")
        sums[found[2]] = found[1]
    if apart := sorted(sums.keys() ^ (entries.keys() - {SUMS})):
        where = "is missing" if apart[0] in sums else f"is not in {SUMS}"
        raise InputError(f"{bundle}: {ascii(apart[0])[:80]} {where}")
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
        raise InputError(f"{bundle}: {entry.filename}: is not what {SUMS} says: it was changed")


def _inputs(bundle: Path, folder: Path) -> dict[str, str]:
    given = read_json(folder / INPUTS, f"{bundle}: {INPUTS}")
    base = os.path.realpath(folder)
    found = {}
    for path, place in given.items():
        real = os.path.realpath(folder / str(place))
        if not real.startswith(f"{base}{os.sep}inputs{os.sep}") or not Path(real).exists():
            raise InputError(f"{bundle}: {INPUTS}: {ascii(place)[:80]} is not in the bundle")
        found[path] = real
    return found


def read_json(path: Path, name: str) -> dict[str, Any]:
    """A JSON object out of a bundle.

    Raises:
        InputError: It is none; the line begins with `name`.
    """
    try:
        if path.stat().st_size > MOST_JSON_BYTES:
            raise ValueError(f"is longer than {MOST_JSON_BYTES:,} bytes")
        tree = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{name}: cannot be read ({str(error)[:200]})") from None
    if not isinstance(tree, dict):
        raise InputError(f"{name}: must be a JSON object")
    return tree
