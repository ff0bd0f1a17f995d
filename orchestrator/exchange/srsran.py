# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Read a flight that was measured with srsRAN.

The files are the console logs of srsUE and srsENB, and the positions of the UAV.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ns3_scenarios.trace import extent, span
from orchestrator.exchange.bounds import (
    HIGHEST_M,
    Bounds,
    above_ground,
    check_gaps,
    check_speed,
    first,
    placed,
)
from orchestrator.exchange.files import Array, Flight, is_number, slots_of, text_of
from orchestrator.exchange.gpx import read_gpx
from orchestrator.exchange.reading import counted, refuse_unless_rising
from orchestrator.exchange.tracks import Origin
from orchestrator.flights.measured import BOUNDS, MeasuredFlight
from testbed.core.errors import InputError
from testbed.system.files import sha256_of

SLOT_S = 1.0
"""Length of a slot: srsRAN prints its metrics once per second."""
PERIOD_S = (0.9, 1.1)
"""Bounds of the median time between two rows of a log."""
LONGEST_JUMP_S = 600.0
"""Longest time between two rows of a log during the flight."""
LAGS_S = range(-10, 11)
"""Clock shifts that are compared in the check of the clocks."""
LEAST_CORRELATION = 0.1
"""Below this correlation, RSRP does not follow the distance."""
LOWEST_M = -5.0
"""Lowest accepted height above take-off; the drift of a barometer makes heights negative."""
FLYING_M = 2.0
"""Lowest height of a UAV that has taken off."""
LEAST_FIX = 3
"""Smallest GPS fix with a height (3D fix)."""
HIGHEST_MCS = 28
"""Higher indices mark retransmissions and no coding scheme (TS 36.213)."""
BUSY_S = 30
"""Longest time in s during which two identifiers of one UE may have transport blocks. After a
connection failure, a UE has the old and the new identifier for some time."""
DISCONNECTED_S = 1.0
"""`--- disconnected ---` describes the second before, so it may be printed after a reconnection."""
VEHICLE = (
    *("number", "longitude", "latitude", "height", "voltage", "battery", "time", "fix"),
    "satellites",
)
"""Columns of a vehicle file, which has no header."""
ZONE_S = 900
"""Time zones differ by multiples of a quarter of an hour."""
BANDS = (
    *((0, 600, 2110.0, 1920.0), (600, 1200, 1930.0, 1850.0), (1200, 1950, 1805.0, 1710.0)),
    *((1950, 2400, 2110.0, 1710.0), (2400, 2650, 869.0, 824.0), (2650, 2750, 875.0, 830.0)),
    *((2750, 3450, 2620.0, 2500.0), (3450, 3800, 925.0, 880.0), (3800, 4150, 1844.9, 1749.9)),
    *((4150, 4750, 2110.0, 1710.0), (4750, 4950, 1475.9, 1427.9), (5010, 5180, 729.0, 699.0)),
    *((5180, 5280, 746.0, 777.0), (5280, 5380, 758.0, 788.0), (5730, 5850, 734.0, 704.0)),
    *((5850, 6000, 860.0, 815.0), (6000, 6150, 875.0, 830.0), (6150, 6450, 791.0, 832.0)),
    *((6450, 6600, 1495.9, 1447.9), (6600, 7400, 3510.0, 3410.0), (7500, 7700, 2180.0, 2000.0)),
    *((7700, 8040, 1525.0, 1626.5), (8040, 8690, 1930.0, 1850.0), (8690, 9040, 859.0, 814.0)),
    *((9040, 9210, 852.0, 807.0), (9210, 9660, 758.0, 703.0)),
)
"""FDD bands 1 to 28: first EARFCN, last EARFCN + 1, and the downlink and uplink frequencies of the
first EARFCN in MHz (TS 36.101, table 5.7.3-1)."""
_STAMP = re.compile(r"\[(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?)\] ?(.*)")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?")
_NUMBER = re.compile(r"([-+]?\d+(?:\.\d+)?)([kMG]?)")
_OTHER = re.compile(r"[-+]?\d+(?:\.\d+)?[a-zA-Z]?|n/a|-?nan|-?inf")
_NONE = re.compile(r"n/a|-?nan|-?inf")
_POWERS = {"": "", "k": "e3", "M": "e6", "G": "e9"}
_UTC = re.compile(r"\(srsRAN\) (\d+/\d+/\d{4} \d+:\d+:\d+) TZ:0")
_LOST = ("Radio-Link Failure", "RRC IDLE", "RRC Connection Release")
_CONNECTED = ("RRC Connected", "Reestablishment OK", "Network attach successful")


@dataclass(frozen=True)
class _Kind:
    """One of the two programs whose logs are read, srsUE or srsENB."""

    name: str
    mark: str
    """Name of a column that only this program prints, in the first group of a header."""
    columns: Mapping[str, tuple[int, str]]
    """Maps our name to the group of columns between `|` and the name in this group."""


UE = _Kind(
    "srsUE",
    "rsrp",
    {"rsrp_dbm": (0, "rsrp"), "snr_db": (1, "snr"), "buffer_up_bytes": (2, "buff")},
)
ENB = _Kind(
    "srsENB",
    "rnti",
    {
        **{"cqi": (0, "cqi"), "mcs_down": (0, "mcs"), "downlink_bps": (0, "brate")},
        **{"ok_down": (0, "ok"), "nok_down": (0, "nok")},
        **{"snr_up_db": (1, "pusch"), "mcs_up": (1, "mcs"), "uplink_bps": (1, "brate")},
        **{"ok_up": (1, "ok"), "nok_up": (1, "nok")},
    },
)
_LIMITS = {**BOUNDS, **dict.fromkeys(("ok_up", "nok_up", "ok_down", "nok_down"), (0.0, 1e6))}


@dataclass(frozen=True)
class Row:
    """A row of metrics; a value that is not a number is NaN."""

    time_s: float
    line: int
    values: Mapping[str, float]
    rnti: str = ""


@dataclass
class Log:
    """The contents of a radio log."""

    path: Path
    rows: list[Row] = field(default_factory=list)
    events: list[tuple[float, str]] = field(default_factory=list)
    """Time and text of all lines that are not part of the table of metrics."""
    broken: int = 0
    """Number of incomplete rows."""


@dataclass(frozen=True)
class Files:
    """The files of a flight, and the position of the base station, if it is known."""

    ue: Path
    enb: Path
    vehicle: Path
    base_station: tuple[float, float, float] | None = None
    """Latitude and longitude in degrees, and height of the antenna above the ground in m."""
    ground_m: float | str | None = None
    """Height of the ground, for a GPX file; see `bounds.above_ground`."""


@dataclass(frozen=True)
class Found:
    """A flight, and notes on how its files were read."""

    flight: MeasuredFlight
    disconnections: int
    notes: Sequence[str]

    def lines(self) -> list[str]:
        """Two lines: a summary of the flight, and the check of clock and base station."""
        flight = self.flight
        flying = int((flight.position[..., 2] > FLYING_M).sum())
        start = datetime.fromisoformat(str(flight.start))
        end = datetime.fromtimestamp(_seconds(start) + flight.slots * SLOT_S, UTC)
        words = [
            f"{counted(flight.slots, 'slot')} of 1 s, {flying:,} of them in flight",
            f"{start:%Y-%m-%d %H:%M:%S} to {end:%H:%M:%S} local time",
            extent(flight.position),
        ]
        if flight.distances_m is not None:
            words.append(f"{span(flight.distances_m.round(1))} m from the base station")
        for values, what, unit in (
            (flight.rsrp_dbm, "RSRP", " dBm"),
            (flight.snr_db, "SNR of the downlink", " dB"),
            (flight.snr_up_db, "SNR of the uplink", " dB"),
            (flight.mcs_up, "MCS of the uplink", ""),
            ((flight.uplink_bps / 1e6).round(3), "rate of the uplink", " Mbit/s"),
        ):
            known = values[np.isfinite(values)]
            words.append(f"{what} {span(known)}{unit}" if known.size else f"no {what}")
        words += [
            f"{counted(_unknown(flight.rsrp_dbm), 'second')} without a row of {UE.name} and "
            f"{_unknown(flight.uplink_bps):,} of {ENB.name}",
            counted(self.disconnections, "disconnection"),
        ]
        return ["; ".join([", ".join(words), *self.notes]), _hint(flight)]


def _unknown(values: Array) -> int:
    return int(np.isnan(values).sum())


def read(files: Files, bounds: Bounds) -> Found:
    """Read a flight.

    Slot s lasts from s to s + 1 seconds after the first position. A row of a radio log describes
    the second before it was printed; it is assigned to the slot that contains most of this second.

    Raises:
        InputError: A file is not valid; the message names the file and the line.
    """
    ue, enb = read_log(files.ue, UE), read_log(files.enb, ENB)
    notes = [_note_on_rows(ue), _note_on_rows(enb)]
    times_s, position_m, origin, more = _flown(files, ue, bounds)
    notes += more
    start_s, last_s = float(times_s[0]), float(times_s[-1])
    for log in (ue, enb):
        _check_clock(log, start_s, last_s, files.vehicle)
    flight = Flight(times_s - start_s, position_m)
    slots = slots_of(np.floor(last_s - start_s + 1e-6) + 1, SLOT_S, 1, files.vehicle)
    position = flight.at(SLOT_S * np.arange(slots, dtype=np.float64))[None]
    columns: dict[str, Array] = {}
    for log, rows in ((ue, ue.rows), (enb, _of_one_ue(enb))):
        shifted_s = np.array([row.time_s for row in rows]) - SLOT_S - start_s
        chosen = slots_of_rows(shifted_s, slots)
        within = (shifted_s >= -0.5) & (shifted_s < slots - 0.5)
        if lost := int((within & (chosen < 0)).sum()):
            notes.append(f"{counted(lost, 'row')} of {log.path} not used: other rows are nearer")
        if not (chosen >= 0).any():
            raise InputError(f"{log.path}: has no row of metrics during the flight")
        for name in rows[0].values:
            values = np.full(slots, np.nan)
            values[chosen[chosen >= 0]] = [
                row.values[name] for row, at in zip(rows, chosen, strict=True) if at >= 0
            ]
            columns[name] = values
        if log is ue:
            has_row = np.isin(np.arange(slots), chosen)
    for name, label in (("rsrp_dbm", "rsrp"), ("snr_db", "snr")):
        if not np.isfinite(columns[name]).any():
            raise InputError(f"{ue.path}: has no {label} during the flight")
    connected, disconnections = _connected(ue, start_s, has_row)
    measured: dict[str, Any] = {name: values[None] for name, values in _derived(columns).items()}
    carriers, more = _carriers(ue, enb)
    station = files.base_station
    found = MeasuredFlight(
        position,
        SLOT_S,
        **measured,
        connected=connected[None],
        base_station=None if station is None else np.array([0.0, 0.0, station[2]]),
        origin=np.array(origin),
        **carriers,
        start=datetime.fromtimestamp(start_s, UTC).replace(tzinfo=None).isoformat(),
        source=json.dumps(
            {
                name: {"name": path.name, "sha256": sha256_of(path)}
                for name, path in (("ue", files.ue), ("enb", files.enb), ("vehicle", files.vehicle))
            }
        ),
    )
    return Found(found, disconnections, [*notes, *more])


# --- radio logs ----------------------------------------------------------------------------------


def read_log(path: Path, kind: _Kind) -> Log:
    """Read the console log of srsUE or srsENB, whose lines begin with `[DATE TIME]`.

    Raises:
        InputError: The file is not such a log, or its times decrease.
    """
    log = Log(path)
    lines = list(_lines(path))
    header = _header(path, kind, [text for _, at, text in lines if at is not None])
    before_s = -np.inf
    for line, time_s, text in lines:
        where = f"{path}, line {line}"
        if time_s is not None:
            if time_s < before_s:
                raise InputError(
                    f"{where}: its time is {before_s - time_s:g} s before the previous one"
                )
            before_s = time_s
        if "|" not in text:
            if time_s is not None:
                log.events.append((time_s, text))
        elif (words := _words(text, header)) is not None:
            if time_s is None:
                raise InputError(f"{where}: the row of metrics has no [DATE TIME]")
            log.rows.append(
                Row(time_s, line, _values(words, kind, where), words.get((0, "rnti"), ""))
            )
        elif not ("mcs" in text or "----" in text):
            log.broken += 1
    if not log.rows:
        raise InputError(f"{path}: has no row of metrics of {kind.name}")
    return log


def _lines(path: Path) -> Iterator[tuple[int, float | None, str]]:
    """Number, time and text of each line; the time is None if the line has none."""
    for line, whole in enumerate(text_of(path).splitlines(), 1):
        matched = _STAMP.fullmatch(whole)
        if matched is None:
            yield line, None, whole
            continue
        yield line, _moment(matched[1], f"{path}, line {line}"), matched[2]


def _moment(text: str, where: str) -> float:
    """Seconds since 1970 of a local date and time, read as UTC."""
    try:
        return _seconds(datetime.fromisoformat(text))
    except ValueError:
        raise InputError(f"{where}: the time {text[:40]!r} does not exist") from None


def _seconds(moment: datetime) -> float:
    return moment.replace(tzinfo=UTC).timestamp()


def _header(path: Path, kind: _Kind, texts: Sequence[str]) -> Sequence[Sequence[str]]:
    """The names of the columns in each group."""
    other = ENB if kind is UE else UE
    headers = [
        tuple(tuple(group.split()) for group in text.split("|"))
        for text in texts
        if "|" in text and "mcs" in text.split("|")[-1].split()
    ]
    if any(other.mark in header[0] for header in headers):
        raise InputError(f"{path}: is a log of {other.name}, not of {kind.name}")
    if nr := next((header for header in headers if _is_nr(header)), None):
        names = " ".join(nr[0][:2])
        raise InputError(
            f"{path}: is a log of a 5G base station (its columns begin with {names!r}); only LTE "
            "logs of srsENB (srsRAN 4G) are read"
        )
    own = Counter(header for header in headers if kind.mark in header[0])
    # Other output may have interrupted a header; a later one is complete.
    whole = [header for header in own if not _missing(header, kind)]
    if len({tuple(_places(header, kind)) for header in whole}) > 1:
        raise InputError(f"{path}: has tables of metrics with different columns")
    if whole:
        return max(whole, key=own.__getitem__)
    if own:
        name = _missing(next(iter(own)), kind)[0]
        raise InputError(f"{path}: the metrics of {kind.name} have no column {name!r}")
    raise InputError(
        f"{path}: has no table of metrics of {kind.name} in lines that begin with [DATE TIME]"
    )


def _is_nr(header: Sequence[Sequence[str]]) -> bool:
    """Whether a header is that of a gNB of the srsRAN Project.

    srsENB either prints no `pci` or prints the technology (`rat`), too; a gNB has the RSRP of the
    uplink and nothing about the PUCCH.
    """
    names, up = header[0], header[-1]
    own = ENB.mark in names and "pci" in names and "rat" not in names
    return own or (ENB.mark in names and "rsrp" in up and "pucch" not in up)


def _missing(header: Sequence[Sequence[str]], kind: _Kind) -> list[str]:
    """The columns that a header lacks."""
    columns = kind.columns.values()
    return [name for group, name in columns if name not in [*header, (), ()][group]]


def _places(header: Sequence[Sequence[str]], kind: _Kind) -> list[int]:
    """Index of each column that is read within its group."""
    return [header[group].index(name) for group, name in kind.columns.values()]


def _words(text: str, header: Sequence[Sequence[str]]) -> dict[tuple[int, str], str] | None:
    """The words of a row of metrics by group and column; None: the row is incomplete."""
    groups = [group.split() for group in text.split("|")]
    if [*map(len, groups)] != [*map(len, header)]:
        return None
    words = {
        (number, name): word
        for number, (names, row) in enumerate(zip(header, groups, strict=True))
        for name, word in zip(names, row, strict=True)
    }
    return words if all(_fits(name, word) for (_, name), word in words.items()) else None


def _fits(name: str, word: str) -> bool:
    """Whether a word may be in this column."""
    if name == "rat":
        return word.isalpha()
    if name == "rnti":
        return re.fullmatch("[0-9a-f]+", word) is not None
    if name in ("bler", "(%)"):
        return re.fullmatch(r"\d+(\.\d+)?%|n/a", word) is not None
    return _OTHER.fullmatch(word) is not None


def _values(words: Mapping[tuple[int, str], str], kind: _Kind, where: str) -> dict[str, float]:
    """The values of a row by our names."""
    if words.get((0, "rat"), "lte") != "lte" or words.get((0, "cc"), "0") != "0":
        raise InputError(
            f"{where}: is a row of NR or of a second carrier; only LTE with one is supported"
        )
    values = {}
    for name, place in kind.columns.items():
        word = words[place]
        matched = _NUMBER.fullmatch(word)
        if matched is None:
            if _NONE.fullmatch(word) is None:
                raise InputError(f"{where}: {place[1]} must be a number, not {word[:40]!r}")
            values[name] = np.nan
            continue
        value = float(matched[1] + _POWERS[matched[2]])
        least, most = _LIMITS[name]
        if not least <= value <= most:
            raise InputError(f"{where}: {place[1]} {word} is not from {least:g} to {most:g}")
        values[name] = value
    return values


def _note_on_rows(log: Log) -> str:
    broken = f", {counted(log.broken, 'incomplete row')} skipped" if log.broken else ""
    others = counted(len(log.events), "other line")
    return f"{log.path}: {counted(len(log.rows), 'row')} of metrics, {others}{broken}"


def _check_clock(log: Log, start_s: float, last_s: float, vehicle: Path) -> None:
    """Check that a log has one row per second and overlaps with the flight."""
    times_s = np.unique([row.time_s for row in log.rows])
    if times_s[-1] < start_s or times_s[0] > last_s:
        ours, theirs = (
            " to ".join(f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}" for at in ends)
            for ends in ((times_s[0], times_s[-1]), (start_s, last_s))
        )
        raise InputError(
            f"{log.path}: its rows are from {ours}, but the flight in {vehicle} is from {theirs}"
        )
    steps_s = np.diff(times_s)
    period_s = float(np.median(steps_s[steps_s > 0.05])) if (steps_s > 0.05).any() else 1.0
    if not PERIOD_S[0] <= period_s <= PERIOD_S[1]:
        raise InputError(
            f"{log.path}: has one row per {period_s:.3g} s; it must have one per second "
            "(metrics_period_secs = 1)"
        )
    for before, row in pairwise(log.rows):
        inside = before.time_s < last_s and row.time_s > start_s
        if inside and row.time_s - before.time_s > LONGEST_JUMP_S:
            raise InputError(
                f"{log.path}, line {row.line}: is {row.time_s - before.time_s:,.0f} s after the "
                f"previous row; at most {LONGEST_JUMP_S:g} s are allowed during a flight"
            )


def _of_one_ue(log: Log) -> list[Row]:
    """Join the rows of each second: after a reconnection, a UE has two identifiers for some time.

    Rates and numbers of blocks are sums; other values are those of the row with the most blocks.
    """
    groups: list[list[Row]] = []
    for row in log.rows:
        last = groups[-1] if groups else []
        is_new = row.rnti not in {other.rnti for other in last}
        if last and is_new and row.time_s - last[0].time_s < SLOT_S / 2:
            last.append(row)
        else:
            groups.append([row])
    joined, busy_s = [], 0
    for rows in groups:
        busy_s = busy_s + 1 if sum(_blocks(row, "up") > 0 for row in rows) > 1 else 0
        if busy_s > BUSY_S:
            raise InputError(
                f"{log.path}, line {rows[0].line}: two UEs send for more than {BUSY_S} s; only "
                "flights of one UE are supported"
            )
        main = {way: max(rows, key=partial(_blocks, way=way)).values for way in ("up", "down")}
        values = {
            name: sum(row.values[name] for row in rows)
            if name in ("downlink_bps", "uplink_bps") or "ok_" in name
            else main["down" if name in ("cqi", "mcs_down") else "up"][name]
            for name in ENB.columns
        }
        joined.append(Row(rows[0].time_s, rows[0].line, values))
    return joined


def _blocks(row: Row, way: str) -> float:
    """Number of transport blocks in a row."""
    return row.values[f"ok_{way}"] + row.values[f"nok_{way}"]


def _derived(columns: Mapping[str, Array]) -> dict[str, Array]:
    """The columns of a flight."""
    found = {name: values for name, values in columns.items() if "ok_" not in name}
    for way in ("up", "down"):
        blocks = columns[f"ok_{way}"] + columns[f"nok_{way}"]
        has_blocks = blocks > 0
        found[f"bler_{way}"] = np.where(
            has_blocks, columns[f"nok_{way}"] / np.where(has_blocks, blocks, 1.0), np.nan
        )
        mcs = found[f"mcs_{way}"]
        found[f"mcs_{way}"] = np.where(has_blocks & (mcs <= HIGHEST_MCS), mcs, np.nan)
        if way == "up":
            found["blocks_up"] = blocks
    return found


def slots_of_rows(shifted_s: Array, slots: int) -> "np.typing.NDArray[np.int64]":
    """The slot of each row; -1: the row is not used.

    Args:
        shifted_s: Start of each row's second in s from the start of slot 0, shape [n].
        slots: Number of slots.
    """
    nearest = np.floor(shifted_s + 0.5).astype(np.int64)
    off_s = shifted_s - nearest
    chosen = np.full(len(shifted_s), -1, np.int64)
    taken: set[int] = set()
    order = np.argsort(np.abs(off_s), kind="stable")
    inside = [int(row) for row in order if 0 <= nearest[row] < slots]
    # First each slot gets the nearest row; the remaining rows then fill empty slots.
    neighbours = nearest + np.where(off_s < 0, -1, 1)
    for wanted in (nearest, neighbours):
        for row in inside:
            slot = int(wanted[row])
            if chosen[row] < 0 and 0 <= slot < slots and slot not in taken:
                chosen[row] = slot
                taken.add(slot)
    return chosen


def _connected(
    ue: Log, start_s: float, has_row: "np.typing.NDArray[np.bool_]"
) -> tuple[Array, int]:
    """Connection of the UE in each slot (1, 0, or NaN), and the number of disconnections."""
    edges_s = start_s + SLOT_S * np.arange(len(has_row) + 1)
    lost_s, lost, was = np.zeros(len(has_row)), 0, False
    steps = [*_steps(ue), (float(edges_s[-1]), True)]
    for (at, is_connected), (end, _) in pairwise(steps):
        if not is_connected:
            lost += was and edges_s[0] <= at < edges_s[-1]
            lost_s += np.clip(np.minimum(edges_s[1:], end) - np.maximum(edges_s[:-1], at), 0, None)
        was = is_connected
    without = (lost_s >= SLOT_S / 2) | (~has_row & (lost_s > 0))
    return np.where(without, 0.0, np.where(has_row, 1.0, np.nan)), int(lost)


def _steps(ue: Log) -> Iterator[tuple[float, bool]]:
    """Times at which a UE becomes connected (True) or disconnected (False)."""
    rows = [(row.time_s, "") for row in ue.rows]
    last_s, is_connected, connected_s = -np.inf, False, -np.inf
    for at, text in sorted(rows + ue.events, key=lambda line: line[0]):
        if not text or any(word in text for word in _CONNECTED):
            # Without an event before it, a row shows a connection over the whole second.
            since_s = at if text or is_connected else max(at - SLOT_S, last_s)
            last_s, is_connected, connected_s = since_s, True, at if text else connected_s
        elif any(word in text for word in _LOST) or (
            "--- disconnected ---" in text and at - connected_s >= DISCONNECTED_S
        ):
            last_s, is_connected = at, False
        else:
            continue
        yield last_s, is_connected


def _carriers(ue: Log, enb: Log) -> tuple[dict[str, Any], list[str]]:
    """Carrier frequencies in Hz and resource blocks, if the logs have them, and notes."""
    notes: list[str] = []
    numbers = {int(n) for n in _all(r"EARFCN=(\d{1,6})", ue)}
    printed = _all(r"Setting frequency: DL=([\d.]+) Mhz, UL=([\d.]+) MHz", enb)
    down_up: tuple[float, float] | None = None
    if printed:
        down, up = printed[-1]
        if not (is_number(down) and is_number(up)):
            raise InputError(f"{enb.path}: DL={down}, UL={up} are not frequencies")
        down_up = float(down), float(up)
    of_bands = {
        number: (down + 0.1 * (number - begin), up + 0.1 * (number - begin))
        for number in numbers
        for begin, end, down, up in BANDS
        if begin <= number < end
    }
    if len(numbers) > 1:
        notes.append(f"several carriers (EARFCN {', '.join(map(str, sorted(numbers)))})")
        down_up = None
    elif numbers and not of_bands:
        notes.append(f"EARFCN {min(numbers)} is outside bands 1 to 28")
    elif of_bands:
        (number, carrier), *_ = of_bands.items()
        if down_up is not None and max(abs(np.subtract(down_up, carrier))) > 0.05:
            notes.append(
                f"the carrier is that of EARFCN {number}, {carrier[0]:g} MHz down and "
                f"{carrier[1]:g} MHz up; srsENB prints {down_up[0]:g} and {down_up[1]:g} MHz"
            )
        down_up = carrier
    blocks = {*_all(r"Found Cell: .*PRB=(\d{1,4})", ue), *_all(r"nof_prb=(\d{1,4})", enb)}
    if len(blocks) > 1:
        raise InputError(
            f"{ue.path}: its resource blocks (PRB) differ from those in {enb.path} (nof_prb): "
            f"{', '.join(sorted(blocks))}"
        )
    return {
        "carrier_down_hz": None if down_up is None else round(down_up[0] * 1e6),
        "carrier_up_hz": None if down_up is None else round(down_up[1] * 1e6),
        "resource_blocks": int(blocks.pop()) if blocks else None,
    }, notes


def _all(pattern: str, log: Log) -> list[Any]:
    """All matches of a pattern in a log, as `re.findall` returns them."""
    return [found for _, text in log.events for found in re.findall(pattern, text)]


# --- positions -----------------------------------------------------------------------------------


def _flown(files: Files, ue: Log, bounds: Bounds) -> tuple[Array, Array, Origin, list[str]]:
    """Local times in s and positions in m of a flight, its origin in degrees, and notes."""
    path, suffix = files.vehicle, files.vehicle.suffix.lower()
    if suffix in (".ulg", ".ulog"):
        raise InputError(f"{path}: has times since boot; the logs have local times")
    if suffix == ".gpx":
        times_s, places, where, notes = _of_gpx(path, ue)
        heights_m, note = above_ground(places[:, 2], "sea", files.ground_m, where)
        notes += [note] if note else []
    else:
        times_s, places, where, notes = _of_csv(path)
        if files.ground_m is not None:
            raise InputError(
                f"`ground_m`: must be absent: the heights in {path} are above take-off"
            )
        heights_m = places[:, 2]
        if (i := first(~((heights_m >= LOWEST_M) & (heights_m <= HIGHEST_M)))) is not None:
            raise InputError(
                f"{where(i)}: height {heights_m[i]:g} m above take-off is not from {LOWEST_M:g} to "
                f"{HIGHEST_M:g} m"
            )
    places = np.column_stack([places[:, :2], heights_m])
    station = files.base_station
    origin = station[:2] if station else (float(places[0, 0]), float(places[0, 1]))
    position_m = placed(places, origin, bounds, where)
    check_speed(Flight(times_s, position_m), bounds, where)
    check_gaps(times_s, float(times_s[0]), float(times_s[-1]), bounds, where)
    if station is None:
        notes.append("the base station is unknown; `testbed fit` needs --base-station")
    return times_s, position_m, origin, notes


_Places = tuple[Array, Array, Callable[[int], str], list[str]]
"""Times in s, positions (latitude, longitude, height), the name of the i-th position, notes."""


def _of_csv(path: Path) -> _Places:
    rows, texts, lines, without = [], [], [], 0
    for line, text in enumerate(text_of(path).splitlines(), 1):
        if not text.strip():
            continue
        where = f"{path}, line {line}"
        words = [word.strip() for word in text.split(",")]
        if len(words) != len(VEHICLE):
            raise InputError(
                f"{where}: must have {len(VEHICLE)} columns ({', '.join(VEHICLE)}), not "
                f"{len(words)}"
            )
        row = dict(zip(VEHICLE, words, strict=True))
        for name, word in row.items():
            if name != "time" and not is_number(word):
                raise InputError(f"{where}: {name} must be a number, not {word[:40]!r}")
        if _TIME.fullmatch(row["time"]) is None:
            raise InputError(
                f"{where}: time must be a local date and time, not {row['time'][:40]!r}"
            )
        if not 0 <= float(row["battery"]) <= 100 or float(row["fix"]) not in range(9):
            raise InputError(
                f"{where}: battery {row['battery']} % and fix {row['fix']} are not valid; the "
                f"columns are {', '.join(VEHICLE)}"
            )
        if float(row["fix"]) < LEAST_FIX and (float(row["latitude"]) or float(row["longitude"])):
            without += 1
            continue
        lines.append(line)
        texts.append(row["time"])
        rows.append(
            [
                _moment(row["time"], where),
                *(float(row[name]) for name in ("latitude", "longitude", "height")),
            ]
        )
    if len(rows) < 2:
        raise InputError(f"{path}: has {counted(len(rows), 'position')}; a flight needs 2")
    table = np.array(rows)
    refuse_unless_rising(table[:, 0], texts, str(path))
    notes = [f"{counted(without, 'row')} of {path} without a GPS fix skipped"] * (without > 0)
    return table[:, 0], table[:, 1:], lambda i: f"{path}, line {lines[i]}", notes


def _of_gpx(path: Path, ue: Log) -> _Places:
    tracks = read_gpx(path)
    track, times_s = tracks.tracks[0], tracks.tracks[0].times_s
    if len(tracks.tracks) != 1 or times_s is None:
        raise InputError(f"{path}: must have one track with times")
    found = [(at, matched) for at, text in ue.events if (matched := _UTC.search(text))]
    if not found:
        raise InputError(
            f"{ue.path}: does not contain its time zone; it is needed for the times in {path}"
        )
    at, matched = found[0]
    try:
        utc_s = _seconds(datetime.strptime(matched[1], "%d/%m/%Y %H:%M:%S"))
    except ValueError:
        raise InputError(f"{ue.path}: the time {matched[1]!r} does not exist") from None
    shift_s = round((at - utc_s) / ZONE_S) * ZONE_S
    notes = [note.rstrip(".") for note in tracks.notes]
    return times_s + shift_s, track.places, lambda i: f"{path}, position {i + 1}", notes


# --- check of clock and base station -------------------------------------------------------------


def _hint(flight: MeasuredFlight) -> str:
    """A line from which a user can check the clocks and the position of the base station."""
    distances = flight.distances_m
    if distances is None:
        return "clock and base station: not checked, because the base station is unknown"
    rsrp, closer = flight.rsrp_dbm[0], -np.log10(np.maximum(distances[0], 1.0))
    by_lag = {lag: _correlation(closer, rsrp, lag) for lag in LAGS_S}
    best = max(LAGS_S, key=lambda lag: (by_lag[lag], -abs(lag)))
    follows = (
        f"RSRP follows the distance best with a shift of {best:+d} s (correlation "
        f"{by_lag[best]:.2f}; "
        f"{by_lag[0]:.2f} without a shift)"
    )
    if by_lag[best] < LEAST_CORRELATION:
        follows = "RSRP does not follow the distance"
    nearest, loudest = int(distances[0].argmin()), int(np.nanargmax(rsrp))
    return (
        f"clock and base station: {follows}; the smallest distance, "
        f"{distances[0, nearest]:.1f} m, is at {nearest} s, the largest RSRP, {rsrp[loudest]:g} "
        f"dBm, at {loudest} s, {distances[0, loudest]:.1f} m away"
    )


def _correlation(one: Array, other: Array, lag: int) -> float:
    """Correlation of one column with another that is `lag` slots later; -1: undefined."""
    both = max(0, len(one) - abs(lag))
    early, late = one[max(0, -lag) :][:both], other[max(0, lag) :][:both]
    known = np.isfinite(early) & np.isfinite(late)
    early, late = early[known], late[known]
    if len(early) < 3 or np.ptp(early) == 0 or np.ptp(late) == 0:
        return -1.0
    return float(np.corrcoef(early, late)[0, 1])
