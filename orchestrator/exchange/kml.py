# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Reads flights in KML 2.0 to 2.3, also when it is compressed (KMZ).

Tracks (`Track` of KML 2.3, `gx:Track`), their sequences (`MultiTrack`), points with times and
`LineString`s are flights; the file's other contents are not part of a flight.
"""

import io
import math
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element

import numpy as np

from orchestrator.exchange import files
from orchestrator.exchange.clocks import Zones, zones_of
from orchestrator.exchange.files import Array
from orchestrator.exchange.reading import (
    SAME_M,
    Part,
    Place,
    all_of,
    apart_m,
    counted,
    heights_given,
    number,
    one_after_the_other,
    passed_over,
    root_of,
    seconds_of,
    split,
)
from orchestrator.exchange.tracks import Above, Track, Tracks
from testbed.core.errors import InputError
from testbed.system.zips import check_entries

MOST_ENTRIES = 10_000
"""Largest number of files in a KMZ file."""
NAMESPACES = (
    *(f"http://www.opengis.net/kml/2.{minor}" for minor in (2, 3)),
    *(f"http://earth.google.com/kml/2.{minor}" for minor in range(3)),
    "",
)
GX = "http://www.google.com/kml/ext/2.2"
LEVELS: dict[str, Above] = {
    "absolute": "sea",
    "relativeToGround": "ground",
    "": "unknown",
    "clampToGround": "unknown",
    "relativeToSeaFloor": "unknown",
    "clampToSeaFloor": "unknown",
}
"""Reference of the heights for each `altitudeMode`; it is not known if heights are ignored."""
NO_PATHS = (
    *("Point", "Polygon", "LinearRing", "Model", "NetworkLink", "Tour"),
    *("GroundOverlay", "PhotoOverlay", "ScreenOverlay"),
)
"""Geometries of a map that are not paths."""


_NAMED = {*NO_PATHS, "Track", "MultiTrack", "LineString"}


@dataclass(frozen=True)
class _Path:
    """The flight of one UAV, or a part of it."""

    name: str
    places: Sequence[Place]
    above: Above
    times_s: Array | None = None
    zones: Zones = frozenset()


class _Map:
    """The elements of a KML file that the readers use, by name and in their order."""

    def __init__(self, root: Element, path: Path) -> None:
        self.path = path
        self._around: dict[Element, Element] = {}
        self._found: dict[str, list[Element]] = {}
        for element in root.iter():
            if (name := _name(element)) in _NAMED:
                self._found.setdefault(name, []).append(element)
            self._around |= {child: element for child in element if len(child)}

    def all(self, name: str) -> list[Element]:
        return self._found.get(name, [])

    def around(self, element: Element, *names: str) -> Element | None:
        """The closest element of such a name that this one is in."""
        around = self._around.get(element)
        while around is not None and _name(around) not in names:
            around = self._around.get(around)
        return around

    def title(self, element: Element, *of: str) -> str:
        """Name of the placemark or folder that contains an element; empty: it has none."""
        named = self.around(element, *of or ("Placemark",))
        return "" if named is None else _text(named, "name")

    def time(self, element: Element) -> str:
        """Time of the placemark that an element is in, or its beginning; empty: none."""
        placemark = self.around(element, "Placemark")
        for child in placemark if placemark is not None else ():
            if _name(child) in ("TimeStamp", "TimeSpan"):
                return _text(child, "when") or _text(child, "begin")
        return ""


def read_kml(path: Path) -> Tracks:
    """Read the flights of a KML or KMZ file.

    Each track, sequence of tracks, folder of points with times, and series of `LineString`s that
    follow each other is the flight of one UAV. A `LineString` has no times.

    Args:
        path: The file.

    Raises:
        InputError: The file is not KML of a known namespace, has no path, or a path is broken.
    """
    data = files.bytes_of(path, files.MOST_BYTES)
    notes: list[str] = []
    if data[:2] == b"PK":
        data = _unpacked(data, path, notes)
    the_map = _Map(root_of(files.decoded(data, path), path, "KML", NAMESPACES), path)
    lines = the_map.all("LineString")
    points = [point for point in the_map.all("Point") if the_map.time(point)]
    if paths := _tracks(the_map, notes):
        notes += passed_over(len(lines), "LineString", "next to tracks")
    elif lines:
        drawn = [_line(the_map, line, f"{path}: LineString {n}") for n, line in enumerate(lines, 1)]
        timed = [_coordinates(point, f"{path}: a Point") for point in points]
        if _same(timed, [place for line in drawn for place in line.places]):
            paths = _of_points(the_map, points, notes)
        if paths:
            points = []
            notes += passed_over(len(lines), "LineString", "through points with times")
        else:
            paths = _joined(drawn, notes)
            if any(map(the_map.time, lines)):
                notes.append("The times of LineStrings (TimeStamp, TimeSpan) are not used.")
    else:
        paths, points = _of_points(the_map, points, notes), []
    if not paths:
        has = [counted(len(found), name) for name in NO_PATHS if (found := the_map.all(name))]
        raise InputError(
            f"{path}: has no path: neither a LineString nor a Track nor points with times"
            + ("; it has " + ", ".join(has) if has else "")
        )
    notes += passed_over(len(points), "Point", "with a time next to paths")
    notes += passed_over(len(the_map.all("NetworkLink")), "NetworkLink", "to other files")
    return all_of(
        [
            Track(found.name, np.array(found.places), found.times_s, found.above, found.zones)
            for found in paths
        ],
        notes,
    )


def _unpacked(data: bytes, path: Path, notes: list[str]) -> bytes:
    """The KML file in a KMZ file."""
    try:
        check_entries(held := io.BytesIO(data), MOST_ENTRIES)
        with zipfile.ZipFile(held) as archive:
            names = [name for name in archive.namelist() if name.lower().endswith(".kml")]
            if not names:
                raise InputError(f"{path}: is a zip file without a .kml file; KMZ has one")
            first = "doc.kml" if "doc.kml" in names else names[0]
            if len(names) > 1:
                if first != "doc.kml":
                    raise InputError(f"{path}: has {len(names)} .kml files, but no doc.kml")
                others = counted(len(names) - 1, "other .kml file")
                notes.append(f"doc.kml is read; the file has {others}.")
            with archive.open(first) as file:
                text = file.read(files.MOST_BYTES + 1)
    except (zipfile.BadZipFile, RuntimeError, zlib.error, OSError, EOFError, ValueError) as error:
        raise InputError(f"{path}: is not a KMZ file ({str(error)[:80]})") from None
    if len(text) > files.MOST_BYTES:
        raise InputError(f"{path}: {first[:40]!r} is longer than {files.MOST_BYTES:,} bytes")
    return text


def _tracks(the_map: _Map, notes: list[str]) -> list[_Path]:
    """The flights of tracks: the tracks of a `MultiTrack` are one flight."""
    flights: dict[Element, list[Element]] = {}
    for track in the_map.all("Track"):
        of = the_map.around(track, "MultiTrack")
        flights.setdefault(track if of is None else of, []).append(track)
    paths, unknown, number_of = [], 0, 0
    for of, tracks in flights.items():
        parts, levels = [], set()
        for track in tracks:
            number_of += 1
            where = f"{the_map.path}: Track {number_of}"
            part, empty = _part(track, where)
            unknown += empty
            parts.append(part)
            levels.add(_above(track, part.places, where, of))
        where = f"{the_map.path}: a MultiTrack"
        if len(levels) > 1:
            raise InputError(f"{where}: its tracks count heights from different levels")
        times_s, places, gap_s = one_after_the_other(parts, where)
        if len(parts) > 1 and _text(of, "interpolate") not in ("1", "true"):
            notes.append(
                f"{len(parts)} tracks of a MultiTrack are one flight, with up to {gap_s:g} s "
                "between them, for which the file has no places."
            )
        zones = zones_of(text for part in parts for text in part.texts)
        paths.append(_Path(the_map.title(of), places, levels.pop(), times_s, zones))
    notes += passed_over(unknown, "time", "of tracks without a place")
    return paths


def _part(track: Element, where: str) -> tuple[Part, int]:
    """A track, and how many of its times have no place."""
    whens = [child.text or "" for child in track if _name(child) == "when"]
    given = [(child.text or "").split() for child in track if _name(child) == "coord"]
    if not whens or len(whens) != len(given):
        raise InputError(f"{where} has {len(whens)} times and {len(given)} places")
    known = [index for index, words in enumerate(given) if words]
    if not known:
        raise InputError(f"{where} has no places")
    texts = [whens[index] for index in known]
    places = [_place(given[index], f"{where}, place {index + 1}") for index in known]
    places = _lifted(track, places, where)
    return Part(texts, seconds_of(texts, where), places), len(given) - len(known)


def _line(the_map: _Map, line: Element, where: str) -> _Path:
    tuples = _text(line, "coordinates").split()
    if len(tuples) < 2:
        raise InputError(f"{where} has {counted(len(tuples), 'point')}; a path has two or more")
    places = [_place(text.split(","), f"{where}, point {n}") for n, text in enumerate(tuples, 1)]
    places = _lifted(line, places, where)
    return _Path(the_map.title(line), places, _above(line, places, where))


def _joined(lines: Sequence[_Path], notes: list[str]) -> list[_Path]:
    """The lines as flights; a line that begins where the one before ends continues its flight."""
    flights: list[list[_Path]] = []
    for line in lines:
        before = flights[-1][-1] if flights else None
        # Loops from the same place are the flights of several UAVs.
        if (
            before is not None
            and before.above == line.above
            and apart_m(before.places[-1], line.places[0]) <= SAME_M
            and not (_closed(before) or _closed(line))
        ):
            flights[-1].append(line)
        else:
            flights.append([line])
    paths = []
    for flight in flights:
        first, *rest = flight
        if rest:
            notes.append(f"{len(flight)} LineStrings that follow each other are one flight.")
        places = [*first.places, *(place for line in rest for place in line.places[1:])]
        name = first.name if all(line.name == first.name for line in rest) else ""
        paths.append(_Path(name, places, first.above))
    return paths


def _closed(line: _Path) -> bool:
    return apart_m(line.places[0], line.places[-1]) <= SAME_M


def _of_points(the_map: _Map, points: Sequence[Element], notes: list[str]) -> list[_Path]:
    """The flights of points with times: one flight per folder with two points or more."""
    folders: dict[Element | None, list[Element]] = {}
    for point in points:
        folders.setdefault(the_map.around(point, "Folder", "Document"), []).append(point)
    paths: list[_Path] = []
    for found in folders.values():
        if len(found) < 2:
            continue
        where = f"{the_map.path}: points with times {len(paths) + 1}"
        texts = [the_map.time(point) for point in found]
        places, levels = [], set()
        for n, point in enumerate(found, 1):
            at = f"{where}, place {n}"
            places += _lifted(point, [_coordinates(point, at)], at)
            levels.add(_above(point, [places[-1]], at))
        heights_given(places, where)
        if len(levels) > 1:
            raise InputError(f"{where}: they count heights from different levels")
        title = the_map.title(found[0], "Folder", "Document")
        times_s = seconds_of(texts, where)
        paths.append(_Path(title, places, levels.pop(), times_s, zones_of(texts)))
    if paths:
        others = len(the_map.all("Point")) - sum(len(path.places) for path in paths)
        notes += passed_over(others, "Point", "outside the flights")
    return paths


def _coordinates(point: Element, where: str) -> Place:
    words = _text(point, "coordinates")
    return _place(words.split(","), where)


def _place(words: Sequence[str], where: str) -> Place:
    """A place; in KML the longitude comes first, and the height may be missing."""
    numbers = [number(word) for word in words]
    if len(words) == 3 and not words[2]:
        numbers.pop()
    match numbers:
        case [float(longitude), float(latitude)]:
            return latitude, longitude, math.nan
        case [float(longitude), float(latitude), float(height)]:
            return latitude, longitude, height
    raise InputError(f"{where}: {','.join(words)[:40]!r} is not a place")


def _lifted(element: Element, places: list[Place], where: str) -> list[Place]:
    """The places, higher by the `altitudeOffset` of their path."""
    if not (text := _text(element, "altitudeOffset")):
        return places
    if (offset := number(text)) is None:
        raise InputError(f"{where}: altitudeOffset must be a number, not {text[:40]!r}")
    return [(latitude, longitude, height + offset) for latitude, longitude, height in places]


def _above(
    element: Element, places: Sequence[Place], where: str, otherwise: Element | None = None
) -> Above:
    """Reference of a path's heights; without a mode, `otherwise` is used."""
    modes = {(child.text or "").strip() for child in element if _name(child) == "altitudeMode"}
    if wrong := modes - LEVELS.keys():
        raise InputError(f"{where}: altitudeMode must not be {min(wrong)[:40]!r}")
    if not modes and otherwise is not None and otherwise is not element:
        return _above(otherwise, places, where)
    levels = {LEVELS[mode] for mode in modes}
    return levels.pop() if heights_given(places, where) and len(levels) == 1 else "unknown"


def _same(some: Sequence[Place], others: Sequence[Place]) -> bool:
    return len(some) == len(others) and all(
        apart_m(one, other) <= SAME_M for one, other in zip(some, others, strict=True)
    )


def _name(element: Element) -> str:
    """Name of an element of KML; empty: it is of another kind."""
    namespace, name = split(element)
    return name if namespace in NAMESPACES or namespace == GX else ""


def _text(element: Element, name: str) -> str:
    """Text of the first child of this name; empty: there is none."""
    found = next((child for child in element if _name(child) == name), None)
    return "" if found is None else (found.text or "").strip()
