# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Common functions of the readers of flights: bytes, XML, numbers, times and heights."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd

from orchestrator.exchange import files
from orchestrator.exchange.clocks import first_of_other_kind
from orchestrator.exchange.files import Array
from orchestrator.exchange.tracks import Track, Tracks
from testbed.core.errors import InputError

_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
SAME_M = 0.05
"""Largest distance of two points that are taken as the same one."""
Place = tuple[float, float, float]
"""Latitude and longitude in degrees and height in m; NaN is a height that is not given."""


def root_of(text: str, path: Path, kind: str, namespaces: Sequence[str]) -> ElementTree.Element:
    """The root element of an XML file.

    Args:
        text: The file's text.
        path: The file, for messages.
        kind: Name of the format; its lower case is the name of the root.
        namespaces: The namespaces that may be read; "" means no namespace.

    Raises:
        InputError: The text is not XML, has a document type, or has another root or namespace.
    """
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise InputError(f"{path}: has a document type, which {kind} does not need; refused")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise InputError(f"{path}: is not XML ({error})") from None
    namespace, name = split(root)
    if name != kind.lower():
        raise InputError(f"{path}: is not {kind}: its root is {name[:40]!r}")
    if namespace not in namespaces:
        raise InputError(f"{path}: {kind} of the namespace {namespace[:60]!r} is not read")
    return root


def split(element: ElementTree.Element) -> tuple[str, str]:
    """Namespace and name of an element."""
    namespace, _, name = element.tag.rpartition("}")
    return namespace.removeprefix("{"), name


def number(text: str) -> float | None:
    """The number in a text in decimal notation; None if the text is not a number, or infinite."""
    found = float(text) if _NUMBER.fullmatch(text) else math.inf
    return None if math.isinf(found) else found


def seconds_of(texts: Sequence[str], where: str) -> Array:
    """Seconds since 1970 of dates and times of ISO 8601, without a zone in UTC, shape [n].

    Raises:
        InputError: A text is not a date and time, a time does not rise, or some have a time zone
            and some have none.
    """
    moments = pd.to_datetime(
        pd.Series(texts, dtype=object).str.strip(), format="ISO8601", utc=True, errors="coerce"
    )
    if moments.isna().any():
        wrong = texts[int(moments.isna().argmax())]
        raise InputError(f"{where}'s time must be a date and time, not {wrong[:40]!r}")
    if (at := first_of_other_kind(texts)) is not None:
        raise InputError(
            f"{where}: some times have a time zone and some have none, such as "
            f"{texts[0].strip()[:40]} and {texts[at].strip()[:40]}"
        )
    times_s: Array = moments.dt.as_unit("us").to_numpy("datetime64[us]").astype(np.int64) / 1e6
    refuse_unless_rising(times_s, texts, where)
    return times_s


def refuse_unless_rising(times_s: Array, texts: Sequence[str], where: str) -> None:
    """Refuse the first time that is not after the one before.

    Raises:
        InputError: Such a time was found; the message names it by its text.
    """
    steps = np.diff(times_s)
    if not (steps > 0).all():
        at = int((steps <= 0).argmax())
        before, time = texts[at].strip(), texts[at + 1].strip()
        how = "comes again" if steps[at] == 0 else f"comes after {before[:40]}"
        raise InputError(f"{where}: the time {time[:40]} {how}")


def heights_given(places: Sequence[Place], where: str) -> bool:
    """Whether all places have heights; False: none has one.

    Raises:
        InputError: Some places have a height and some have none.
    """
    missing = [math.isnan(height) for _, _, height in places]
    if any(missing) and not all(missing):
        at = f"{where}, place {missing.index(True) + 1}"
        raise InputError(f"{at}: has no height, but other places have one")
    return not missing[0]


def apart_m(one: Place, other: Place) -> float:
    """Distance in m of two places that are close to each other."""
    east = (other[1] - one[1] + 180) % 360 - 180
    metres = math.radians(1) * files.EARTH_M
    upwards = 0.0 if math.isnan(one[2]) and math.isnan(other[2]) else other[2] - one[2]
    return math.hypot(
        (other[0] - one[0]) * metres, east * metres * math.cos(math.radians(one[0])), upwards
    )


@dataclass(frozen=True)
class Part:
    """A part of a flight with times, such as a track segment."""

    texts: Sequence[str]
    """The times as they are written in the file."""
    times_s: Array
    places: Sequence[Place]


def one_after_the_other(parts: Sequence[Part], where: str) -> tuple[Array, list[Place], float]:
    """Times in s and places of a flight in parts, and the longest time in s between two parts.

    If a part begins with the time and place at which the part before ended, this place counts once.

    Raises:
        InputError: A part begins before the one before has ended.
    """
    times, places, gap_s = [parts[0].times_s], list(parts[0].places), 0.0
    for before, part in pairwise(parts):
        ended_s, begins_s = before.times_s[-1], part.times_s[0]
        again = bool(begins_s == ended_s) and apart_m(before.places[-1], part.places[0]) <= SAME_M
        if not again:
            ends = np.array([ended_s, begins_s])
            refuse_unless_rising(ends, [before.texts[-1], part.texts[0]], where)
        gap_s = max(gap_s, float(begins_s - ended_s))
        times.append(part.times_s[again:])
        places += part.places[again:]
    return np.concatenate(times), places, gap_s


def all_of(tracks: Sequence[Track], notes: Sequence[str]) -> Tracks:
    """The flights of a file; a name that several of them have is no name of a UAV."""
    names = [" ".join(track.name.split()) for track in tracks]
    once = [
        replace(track, name=name if names.count(name) == 1 else "")
        for track, name in zip(tracks, names, strict=True)
    ]
    several = [f"{len(tracks)} separate paths are one UAV each."] if len(tracks) > 1 else []
    return Tracks(once, notes=[*notes, *several])


def counted(count: int, noun: str) -> str:
    """A number and a noun, such as `2 Points`."""
    return f"{count:,} {noun}" + "s" * (count != 1)


def passed_over(count: int, noun: str, which: str) -> list[str]:
    """The note, if there is one, that some things in a file are not read."""
    are = "is" if count == 1 else "are"
    return [f"{counted(count, noun)} {which} {are} passed over."] if count else []
