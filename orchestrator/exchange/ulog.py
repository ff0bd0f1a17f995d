# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Reads flights from ULog, the logs of PX4 (docs.px4.io, "ULog File Format")."""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.exchange.files import Array, bytes_of
from orchestrator.exchange.reading import (
    all_of,
    counted,
    passed_over,
    refuse_unless_rising,
)
from orchestrator.exchange.tracks import Above, Track, Tracks
from testbed.core.errors import InputError

MAGIC, SYNC = b"ULog\x01\x12\x35", b"\x2f\x73\x13\x20\x25\x0c\xbb\x12"
CODES = {
    **{
        f"{sign}int{8 * size}_t": f"<{sign or 'i'}{size}"
        for sign in ("", "u")
        for size in (1, 2, 4, 8)
    },
    **{"float": "<f4", "double": "<f8", "bool": "u1", "char": "u1"},
}
"""numpy's names of the types of ULog."""
MOST_BYTES = 512 << 20
"""Size limit of a log."""
MOST_FIELDS, DEEPEST = 1 << 16, 16
"""Limits of a topic's format: a message has no more bytes, and types contain others."""
TOPICS = ("vehicle_global_position", "vehicle_gnss", "vehicle_gps_position", "sensor_gps")
"""Topics with positions: the estimate first, then the topics of receivers, the newest name first.
"""
HOME = "home_position"
FIELDS = (
    ("lat", "lon", "alt"),
    ("latitude_deg", "longitude_deg", "altitude_msl_m"),
    ("receiver.latitude", "receiver.longitude", "receiver.altitude_msl"),
)
"""Names of latitude, longitude and height above the sea; as integers in 1e-7 degrees and in mm."""
FIXES = ("fix_type", "receiver.fix_type")
LEAST_FIX = 3
"""The smallest fix type of a receiver with a known height."""
VALID = ("lat_lon_valid", "alt_valid")
WANTED = {"timestamp", "valid_alt", *FIXES, *VALID, *(name for names in FIELDS for name in names)}


@dataclass
class _Log:
    """The rows of some topics."""

    rows: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    """The columns of each instance of each topic."""
    topics: dict[str, None] = field(default_factory=dict)
    """The names of all topics of the log in their order."""
    dropouts_ms: list[int] = field(default_factory=list)
    cut: bool = False
    """The log ends within a message."""


@dataclass
class _Topic:
    """An instance of a topic while its rows are collected."""

    name: str
    dtype: np.dtype[np.void] | None
    """The columns that are read; None: the topic is not read."""
    most_bytes: int = 0
    rows: list[bytes] = field(default_factory=list)


def read_ulog(path: Path) -> Tracks:
    """Read the flight of a log, with times since the start of the autopilot.

    The estimated position is used; without one, that of a satellite receiver while it has a fix.
    Heights are above the home if the log has one, otherwise above the sea.

    Args:
        path: The log.

    Raises:
        InputError: The file is not ULog, is damaged, or has no positions.
    """
    data = bytes_of(path, MOST_BYTES)
    if data[:7] != MAGIC or len(data) < 16 or data[7] > 1:
        raise InputError(f"{path}: is not a ULog file of version 0 or 1")
    try:
        log = _parsed(data)
    except (ValueError, LookupError, struct.error) as error:
        raise InputError(f"{path}: is a damaged ULog file ({str(error)[:60]})") from None
    notes: list[str] = []
    for topic in TOPICS:
        found = _rows(log, topic, path, notes)
        if found is not None:
            break
    else:
        names = list(log.topics)
        more = f" and {len(names) - 10} more" if len(names) > 10 else ""
        raise InputError(
            f"{path}: has no valid position: none in {', '.join(TOPICS)}; "
            f"its topics are {', '.join(names[:10]) or 'none'}{more}"
        )
    times_s, places = found
    if topic != TOPICS[0]:
        notes.append(f"The positions are those of a satellite receiver ({topic}).")
    above: Above = "sea"
    if (home_m := _home_m(log, notes)) is not None:
        places[:, 2] -= home_m
        above = "ground"
        notes.append(f"Heights count from the home, {home_m:.1f} m above the sea ({HOME}).")
    if log.dropouts_ms:
        gaps = counted(len(log.dropouts_ms), "gap")
        notes.append(f"The log has {gaps} of up to {max(log.dropouts_ms) / 1000:g} s.")
    if log.cut:
        notes.append("The log ends within a message.")
    return all_of([Track("", places, times_s, above)], notes)


def _parsed(data: bytes) -> _Log:
    """The log's rows of TOPICS and HOME.

    Raises:
        ValueError, LookupError, struct.error: The log is damaged.
    """
    log, formats = _Log(), {}
    topics: dict[int, _Topic] = {}
    read: list[_Topic] = []
    for kind, content in _messages(data, log):
        if kind == "D":
            topic = topics[struct.unpack_from("<H", content)[0]]
            if topic.dtype is not None:
                if not topic.dtype.itemsize <= len(content) - 2 <= topic.most_bytes:
                    raise ValueError(f"a row of {topic.name} has {len(content) - 2} bytes")
                topic.rows.append(content[2 : 2 + topic.dtype.itemsize])
        elif kind == "F":
            name, _, fields = content.decode().partition(":")
            formats[name] = [text.split(" ") for text in fields.split(";") if text]
        elif kind == "A":
            name = content[3:].decode()
            if not name.isprintable():
                raise ValueError(f"{name[:20]!r} is no name of a topic")
            topic = _Topic(name, None)
            if name in (*TOPICS, HOME):
                topic = _Topic(name, *_columns(formats, name))
                read.append(topic)
            topics[struct.unpack_from("<H", content, 1)[0]] = topic
            log.topics[name] = None
        elif kind == "O":
            log.dropouts_ms += struct.unpack("<H", content)
        elif kind == "S" and content != SYNC:
            raise ValueError("a mark is wrong")
    for topic in read:
        if topic.rows:
            table = np.frombuffer(b"".join(topic.rows), topic.dtype)
            columns = {name: table[name] for name in table.dtype.names or ()}
            log.rows.setdefault(topic.name, []).append(columns)
    return log


def _messages(data: bytes, log: _Log) -> Iterator[tuple[str, bytes]]:
    """Kind and content of each message; those in front of appended data may be incomplete."""
    ends, at = [len(data)], 16
    if data[18:19] == b"B":
        flags = struct.unpack_from("<3x8x8B3Q", data, at)
        if flags[0] > 1 or any(flags[1:8]):
            raise ValueError("it has parts that are not known")
        ends = [*(end for end in flags[8:] if end), len(data)]
    for end in ends:
        if not at <= end <= len(data):
            raise ValueError("appended data is not where it should be")
        while at + 3 <= end:
            size, kind = struct.unpack_from("<HB", data, at)
            if not 65 <= kind <= 90:
                raise ValueError(f"byte {at + 2} is no kind of message")
            if at + 3 + size > end:
                break
            yield chr(kind), data[at + 3 : at + 3 + size]
            at += 3 + size
        log.cut = at != end
        at = end


def _columns(
    formats: Mapping[str, Sequence[Sequence[str]]], name: str
) -> tuple[np.dtype[np.void], int]:
    """The columns of a topic that are read, and the most bytes of a row.

    The bytes of the last fields may be missing if they only pad.
    """
    found: dict[str, tuple[str, int]] = {}
    size = used = visited = 0

    def visit(name: str, before: str, depth: int) -> None:
        nonlocal size, used, visited
        if depth > DEEPEST:
            raise ValueError(f"{name[:20]!r} contains itself")
        for kind, label in formats[name]:
            base, _, count = kind.removesuffix("]").partition("[")
            for number in range(int(count)) if count else [None]:
                if (visited := visited + 1) > MOST_FIELDS:
                    raise ValueError(f"{name[:20]!r} has too many fields")
                full = before + label + ("" if number is None else f"[{number}]")
                if (code := CODES.get(base)) is None:
                    visit(base, f"{full}.", depth + 1)
                    continue
                if full in WANTED:
                    found[full] = code, size
                size += np.dtype(code).itemsize
                used = used if full.startswith("_padding") else size

    visit(name, "", 0)
    dtype = np.dtype(
        {
            "names": list(found),
            "formats": [code for code, _ in found.values()],
            "offsets": [offset for _, offset in found.values()],
            "itemsize": used,
        }
    )
    return dtype, size


def _rows(log: _Log, topic: str, path: Path, notes: list[str]) -> tuple[Array, Array] | None:
    """Times in s and places of a topic's valid rows; None: there are none."""
    instances = log.rows.get(topic)
    if instances is None:
        return None
    rows = instances[0]
    fields = next((names for names in FIELDS if rows.keys() >= {*names, "timestamp"}), None)
    if fields is None:
        return None
    columns = [rows[name] for name in fields]
    units = (1e-7, 1e-7, 1e-3) if columns[0].dtype.kind == "i" else (1.0, 1.0, 1.0)
    places = np.stack(
        [column * unit for column, unit in zip(columns, units, strict=True)], axis=1, dtype=float
    )
    valid = np.isfinite(places).all(axis=1)
    for name in VALID:
        valid &= rows.get(name, 1) != 0
    for name in FIXES:
        valid &= rows.get(name, LEAST_FIX) >= LEAST_FIX
    if not valid.any():
        return None
    notes += passed_over(int((~valid).sum()), "row", f"of {topic} without a valid position")
    if len(instances) > 1:
        notes.append(f"The log has {len(instances)} instances of {topic}; the first is read.")
    stamps, places = rows["timestamp"][valid].astype(np.int64), places[valid]
    first = np.concatenate([[True], np.diff(stamps) != 0])
    notes += passed_over(int((~first).sum()), "row", f"of {topic} with the time of another")
    stamps, places = stamps[first], places[first]
    refuse_unless_rising(stamps, [f"{stamp} µs" for stamp in stamps], f"{path}: {topic}")
    return stamps / 1e6, places


def _home_m(log: _Log, notes: list[str]) -> float | None:
    """Height of the home above the sea in m, when the log first has one."""
    for rows in log.rows.get(HOME, [])[:1]:
        if "alt" in rows:
            heights_m = rows["alt"].astype(float)
            known = np.isfinite(heights_m) & (rows.get("valid_alt", 1) != 0)
            if known.any():
                first_m = float(heights_m[known][0])
                if (most_m := float(abs(heights_m[known] - first_m).max())) > 1:
                    notes.append(f"The home's height changes by {most_m:.1f} m in the log.")
                return first_m
    return None
