# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The index of a folder: one page with links to all pages of results below it.

Each page says in its head what it is and when its results were made, and its first section has the
verdict, the lead sentence and the key figures. The index shows these, so it agrees with the pages.
"""

import fcntl
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Self
from urllib.parse import quote

from orchestrator.reporting.formatting import PLACE_OF_LINKS
from orchestrator.reporting.pages import render_page
from testbed.core.errors import InputError
from testbed.system.files import write_whole

NAME = "index.html"
KINDS = {
    "report": "run",
    "session": "session",
    "campaign": "campaign",
    "learned": "training",
    "compare": "comparison",
    "validation": "validation",
    "cross_check": "cross-check",
    "overhead": "overhead study",
    "reproduction": "reproduction",
    "radio": "reproduction",
    "fit": "channel fit",
    "forecast": "forecast",
}
"""What a page shows, by its template."""
DEPTH = 4
"""Folders below the index in which pages are searched."""
HEAD_BYTES = 1 << 20
"""The first section of a page ends before these bytes."""
INSIDE = frozenset({"points", "figures", "logs", "results"})
"""Folders of a campaign or a run that are not searched: its own page has links to them."""
MOST_CHARACTERS = 600
COLOURS = frozenset({"good", "bad", "unsure"})
_CHUNK = 1 << 16


@dataclass
class Entry:
    """What the index shows of a page."""

    path: str
    """Relative to the index, with `/`."""
    kind: str = ""
    title: str = ""
    badges: list[tuple[str, str]] = field(default_factory=list)
    """Text and colour (`good`, `bad` or `unsure`) of each badge next to the title."""
    lead: str = ""
    figures: list[tuple[str, str]] = field(default_factory=list)
    """Name and value of each key figure."""
    date: str = ""
    """When the results were finished, or the page was written: `2026-01-31 12:00`, in UTC."""

    @property
    def href(self) -> str:
        """The path as part of a URL."""
        return quote(self.path)

    @classmethod
    def read(cls, path: Path, folder: Path) -> Self | None:
        """Read a page, up to the end of its first section.

        Returns:
            None if the testbed did not write the page, or it is an index itself.
        """
        entry = cls(path.relative_to(folder).as_posix())
        head = _Head(entry)
        with path.open("rb") as file:
            written_s = os.fstat(file.fileno()).st_mtime
            for _ in range(HEAD_BYTES // _CHUNK):
                chunk = file.read(_CHUNK)
                head.feed(chunk.decode("utf-8", "replace"))
                if not chunk or head.ended or head.foreign:
                    break
        if entry.kind not in KINDS:
            return None
        entry.kind, entry.title = KINDS[entry.kind], entry.title.strip()
        when = datetime.fromtimestamp(written_s, UTC).isoformat()
        entry.date = (entry.date or when)[:16].replace("T", " ")
        return entry


class _Head(HTMLParser):
    """Fills an entry from the head and the first section of a page."""

    def __init__(self, entry: Entry) -> None:
        super().__init__()
        self.ended = self.foreign = False
        self._entry = entry
        self._within: list[tuple[str, str]] = []
        """What is being read, and the tag that ends it; text belongs to the last one."""

    @property
    def _part(self) -> str:
        return self._within[-1][0] if self._within else ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        kinds = given.get("class", "").split()
        begun = ""
        if tag == "meta" and given.get("name") == "testbed-page":
            self._entry.kind = given.get("content", "")
        elif tag == "meta" and given.get("name") == "date":
            self._entry.date = given.get("content", "")
        elif tag == "body":
            self.foreign = not self._entry.kind
        elif tag == "h1":
            begun = "title"
        elif "badge" in kinds and self._part == "title":
            colour = next((kind for kind in kinds if kind in COLOURS), "unsure")
            self._entry.badges.append(("", colour))
            begun = "badge"
        elif "lead" in kinds and not self._entry.lead:
            begun = "lead"
        elif "tile" in kinds and "facts" not in kinds:
            begun = "tile"
        elif tag == "h2" and self._part == "tile":
            self._entry.figures.append(("", ""))
            begun = "name"
        elif "big" in kinds and self._part == "tile":
            begun = "value"
        if begun:
            self._within.append((begun, tag))

    def handle_endtag(self, tag: str) -> None:
        if tag == "section":
            self.ended = True
        elif self._within and self._within[-1][1] == tag:
            self._within.pop()

    def handle_data(self, data: str) -> None:
        entry = self._entry
        if self.ended:
            return
        match self._part:
            case "title":
                entry.title = _joined(entry.title, data)
            case "lead":
                entry.lead = _joined(entry.lead, data)
            case "badge":
                text, colour = entry.badges[-1]
                entry.badges[-1] = (_joined(text, data), colour)
            case "name":
                entry.figures[-1] = (_joined(entry.figures[-1][0], data), "")
            case "value" if entry.figures:
                name, value = entry.figures[-1]
                entry.figures[-1] = (name, _joined(value, data))


def _joined(text: str, more: str) -> str:
    return re.sub(r"\s+", " ", f"{text}{more}").lstrip()[:MOST_CHARACTERS]


def entries(folder: Path) -> list[Entry]:
    """The pages in a folder and below it, the latest ones first.

    Raises:
        InputError: It is not a folder.
    """
    if not folder.is_dir():
        raise InputError(f"FOLDER: {folder} is not a folder")
    found = (Entry.read(path, folder) for path in _pages(folder, DEPTH))
    # Two pages of one moment, as copies may be, stay in the order of their paths.
    by_path = sorted((entry for entry in found if entry), key=lambda entry: entry.path)
    return sorted(by_path, key=lambda entry: entry.date, reverse=True)


def _pages(folder: Path, depth: int) -> Iterator[Path]:
    """HTML files, without following links."""
    try:
        inside = sorted(os.scandir(folder), key=lambda at: at.name)
    except PermissionError:
        return
    is_result = any(at.name in ("manifest.json", "campaign.yaml") for at in inside)
    left_out = INSIDE if is_result else frozenset()
    for at in inside:
        if at.is_file(follow_symlinks=False) and at.name.endswith(".html"):
            yield Path(at.path)
        elif at.name.startswith(".") or at.name in left_out or not depth:
            continue
        elif at.is_dir(follow_symlinks=False):
            yield from _pages(Path(at.path), depth - 1)


def write_index(folder: Path) -> tuple[Path, list[Entry]]:
    """Write `index.html` of a folder, atomically; returns its path and what it shows.

    Raises:
        InputError: It is not a folder, or a file of that name there is not an index.
    """
    path = folder / NAME
    if path.exists() and not is_index(path):
        raise InputError(f"FOLDER: {path} exists and is not an index of the testbed; move it away")
    found = entries(folder)
    kinds = sorted({entry.kind for entry in found})
    page = render_page(
        "index.html",
        ("charts", "frame", "tables", "index"),
        None,
        folder=folder.resolve().name,
        entries=found,
        counts={kind: sum(entry.kind == kind for entry in found) for kind in kinds},
        plurals={kind: re.sub("ys$", "ies", f"{kind}s") for kind in kinds},
        invalid=sum(any(c == "bad" for _, c in entry.badges) for entry in found),
    )
    write_whole(path, lambda part: part.write_text(page, "utf-8"))
    return path, found


def address(page: Path, folder: Path) -> str:
    """The address of a page relative to a folder, so that both can be moved together."""
    return quote(Path(os.path.relpath(page.resolve(), folder.resolve())).as_posix())


def pages_above(path: Path) -> list[tuple[str, Path]]:
    """Title and path of the pages that have a link to the page at a path: indexes in its folder and
    above it, the campaign of a point, and comparisons in its folder and above it."""
    folder = path.absolute().parent
    around = (folder.parent, folder)
    found = [
        (f"Index of {above.name}", above / NAME)
        for above in around
        if path.name != NAME and is_index(above / NAME)
    ]
    campaign = folder.parent.parent / "report.html"
    if folder.parent.name == "points" and _kind_and_items(campaign)[0] == "campaign":
        found.append((f"Campaign {campaign.parent.name}", campaign))
    for other in (other for above in around for other in sorted(above.glob("*.html"))):
        kind, items = _kind_and_items(other)
        if kind == "compare" and address(path, other.parent) in items:
            found.append((f"Comparison {other.stem}", other))
    return found


def _kind_and_items(path: Path) -> tuple[str, set[str]]:
    """The kind of a page, and the addresses of the pages of its results, from its head."""
    if not path.is_file():
        return "", set()
    with path.open("rb") as file:
        head = file.read(_CHUNK).decode("utf-8", "replace").partition("<style>")[0]
    kind = re.search('<meta name="testbed-page" content="([^"]*)">', head)
    items = re.findall('<link rel="item" href="([^"]*)">', head)
    return kind[1] if kind else "", set(map(unescape, items))


def linked(path: Path, page: str) -> str:
    """A page at a path, with links to the pages above it."""
    links = "".join(
        f'<a href="{escape(address(other, path.parent))}">‹ {escape(title)}</a>'
        for title, other in pages_above(path)
    )
    return page.replace(PLACE_OF_LINKS, f'<p class="up">{links}</p>', 1) if links else page


def is_index(path: Path) -> bool:
    """Whether a file is an index that the testbed wrote."""
    try:
        with path.open("rb") as file:
            return b'name="testbed-page" content="index"' in file.read(4096)
    except OSError:
        return False


def save_page(path: Path, page: str) -> None:
    """Write a page of results atomically, with links to the pages above it, and an index again that
    is in or above its folder."""
    page = linked(path, page)
    write_whole(path, lambda part: part.write_text(page, "utf-8"))
    for folder in (path.absolute().parent, path.absolute().parent.parent):
        if not is_index(folder / NAME):
            continue
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # Of several commands, the last one to look writes the index: it misses no page.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            write_index(folder)
        finally:
            os.close(descriptor)
