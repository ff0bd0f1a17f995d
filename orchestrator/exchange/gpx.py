# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Reads flights in GPX 1.0 and 1.1: tracks (`trk`), or routes (`rte`) where there are no tracks."""

import math
from collections.abc import Sequence
from pathlib import Path
from xml.etree.ElementTree import Element

import numpy as np

from orchestrator.exchange import files
from orchestrator.exchange.clocks import zones_of
from orchestrator.exchange.reading import (
    Part,
    Place,
    all_of,
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

NAMESPACES = (*(f"http://www.topografix.com/GPX/1/{minor}" for minor in range(2)), "")


def read_gpx(path: Path) -> Tracks:
    """Read the flights of a GPX file, one UAV per track; its segments follow each other.

    Heights are above the sea. Where a track has none, they are NaN.

    Args:
        path: The file.

    Raises:
        InputError: The file is not GPX, has no track and no route, or one of them is broken.
    """
    text = files.text_of(path)
    root = root_of(text, path, "GPX", NAMESPACES)
    notes: list[str] = []
    tracks = _tracks(root, "trk", path, notes)
    routes = tracks or _tracks(root, "rte", path, notes)
    points = _children(root, "wpt")
    if not routes:
        raise InputError(
            f"{path}: has no trk and no rte with points; it has {counted(len(points), 'wpt')}"
        )
    if tracks:
        notes += passed_over(len(_children(root, "rte")), "rte", "next to tracks")
    notes += passed_over(len(points), "wpt", "next to paths")
    return all_of(routes, notes)


def _tracks(root: Element, kind: str, path: Path, notes: list[str]) -> list[Track]:
    tracks, empty = [], 0
    for at, element in enumerate(_children(root, kind), 1):
        segments = _children(element, "trkseg") if kind == "trk" else [element]
        given = [_children(segment, "trkpt" if kind == "trk" else "rtept") for segment in segments]
        fixed = [[point for point in found if _text(point, "fix") != "none"] for found in given]
        lost = sum(map(len, given)) - sum(map(len, fixed))
        notes += passed_over(lost, "point", "without a position (fix none)")
        if parts := [found for found in fixed if found]:
            tracks.append(_track(element, parts, f"{path}: {kind} {at}", notes))
        else:
            empty += 1
    notes += passed_over(empty, kind, "without points")
    return tracks


def _track(
    element: Element, segments: Sequence[Sequence[Element]], where: str, notes: list[str]
) -> Track:
    points = [point for segment in segments for point in segment]
    texts = [_text(point, "time") for point in points]
    if any(texts) and not all(texts):
        raise InputError(
            f"{where}, place {texts.index('') + 1}: has no time, but other places have one"
        )
    places = [_place(point, f"{where}, place {n}") for n, point in enumerate(points, 1)]
    above: Above = "sea" if heights_given(places, where) else "unknown"
    if not any(texts):
        if len(places) < 2:
            raise InputError(f"{where} has 1 point and no time; a path has two points or more")
        if len(segments) > 1:
            notes.append(f"{len(segments)} segments of a track are one flight.")
        return Track(_text(element, "name"), np.array(places), None, above)
    parts, begin = [], 0
    for segment in segments:
        these = slice(begin, begin := begin + len(segment))
        parts.append(Part(texts[these], seconds_of(texts[these], where), places[these]))
    times_s, places, gap_s = one_after_the_other(parts, where)
    if len(parts) > 1:
        notes.append(
            f"{len(parts)} segments of a track are one flight, with up to {gap_s:g} s between "
            "them, for which the file has no places."
        )
    name = _text(element, "name")
    return Track(name, np.array(places), times_s, above, zones_of(texts))


def _place(point: Element, where: str) -> Place:
    latitude, longitude = (_number(point.get(key, ""), key, where) for key in ("lat", "lon"))
    height = _text(point, "ele")
    return latitude, longitude, _number(height, "ele", where) if height else math.nan


def _number(text: str, key: str, where: str) -> float:
    if (found := number(text.strip())) is None:
        raise InputError(f"{where}: {key} must be a number, not {text[:40]!r}")
    return found


def _children(element: Element, name: str) -> list[Element]:
    names = {(namespace, name) for namespace in NAMESPACES}
    return [child for child in element if split(child) in names]


def _text(element: Element, name: str) -> str:
    """Text of the first child of this name; empty: there is none."""
    return next(((child.text or "").strip() for child in _children(element, name)), "")
