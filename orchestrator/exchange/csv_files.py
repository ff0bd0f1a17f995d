# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Reads measurements from CSV files, with a mapping of column names and units."""

import csv
import io
import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from orchestrator.exchange.bounds import first
from orchestrator.exchange.clocks import Clock, first_of_other_kind, zones_of
from orchestrator.exchange.files import Array, is_number, names_of, text_of
from orchestrator.exchange.reading import passed_over
from testbed.core.errors import InputError
from testbed.core.words import by_number, not_one_of

MOST_LINES, MOST_LETTERS, MOST_COLUMNS = 3_000_000, 1_000_000, 10_000
"""Limits of a file: lines, characters of a line that is read, and columns."""
_LENGTHS = {"m": 1.0, "cm": 0.01, "mm": 0.001, "km": 1000.0, "ft": 0.3048, "inch": 0.0254}
_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_DEGREES = {"deg": 1.0, "deg1e7": 1e-7, "rad": math.degrees(1)}
_RATES = {"bit/s": 1.0, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9}
_RATES |= {
    f"{prefix}B/s": 8.0 * factor
    for prefix, factor in (
        *(("", 1), ("k", 1e3), ("M", 1e6), ("G", 1e9)),
        *(("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30)),
    )
}
_GAINS = {"dB": 1.0, "linear": float("nan")}
PLACES = (
    ("x", "y", "z"),
    ("east", "north", "up"),
    ("east", "north", "down"),
    ("latitude", "longitude", "height"),
)
"""Alternative columns of places. `height` may take the place of z, up or down."""
VALUES = (
    ("gain_db",),
    ("loss_db",),
    ("rsrp_dbm",),
    ("snr_db",),
    ("snr_up_db", "snr_down_db"),
    ("gain_up_db", "gain_down_db"),
    ("uplink_bps", "downlink_bps"),
    ("rate_bps",),
)
"""Alternative columns for the capacity of links; `rate_bps` is the rate of both directions."""
UNITS: Mapping[str, Mapping[str, float]] = {
    "time": _TIMES,
    **dict.fromkeys(("x", "y", "z", "east", "north", "up", "down", "height"), _LENGTHS),
    **dict.fromkeys(("latitude", "longitude"), _DEGREES),
    **dict.fromkeys(("gain_db", "gain_up_db", "gain_down_db"), _GAINS),
    "loss_db": {"dB": 1.0},
    "rsrp_dbm": {"dBm": 1.0},
    **{name: {"dB": 1.0} for name in ("snr_db", "snr_up_db", "snr_down_db")},
    **dict.fromkeys(("uplink_bps", "downlink_bps", "rate_bps"), _RATES),
}
"""Units of each column, with the factor to the first one, which is the default."""
COLUMNS = ("time", "uav", *(name for name in UNITS if name != "time"))
"""Columns that are read; a column of the file with such a name needs no mapping."""
LEAST_GAIN_DB, MOST_BPS, SLOW_BPS = -250.0, 1e11, 1e4
RSRP_DBM = (-156.0, -31.0)
"""Range that devices report, 3GPP TS 36.133 (table 9.1.4-1) and TS 38.133 (table 10.1.6.1-1)."""
SNR_DB = (-40.0, 60.0)
"""Range of signal-to-noise ratios that receivers measure."""
LOSSLESS_DB = 1e-2
"""A loss below this is none."""
SAME_TIME = ("first", "last", "mean")
EMPTY = "empty"
_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.,]\d+)?)?( ?(Z|[+-]\d\d:?\d\d))?)?")
_CLOCK = re.compile(r"\d\d:\d\d:\d\d(\.\d+)?")
_WORDS = {
    "s": "s|secs?|seconds?",
    "ms": "ms|msecs?|millis|milliseconds?",
    "us": "us|µs|μs|usecs?|micros|microseconds?",
    "ns": "ns|nsecs?|nanos|nanoseconds?",
    "min": "mins?|minutes?",
    "h": "h|hrs?|hours?",
    "d": "d|days?",
    "m": "m|met(?:er|re)s?",
    "cm": "cm|centimet(?:er|re)s?",
    "mm": "mm|millimet(?:er|re)s?",
    "km": "km|kilomet(?:er|re)s?",
    "ft": "ft|feet|foot",
    "inch": "inch|inches|in",
    "deg": "deg|degs|degrees?|°",
    "deg1e7": "e7|dege7",
    "rad": "rads?|radians?",
}
"""Words that state a unit in the name of a column, in any case."""
_RATE = re.compile(
    r"(?:^|[^A-Za-z])((?i:kilo|mega|giga)|[kKmMgG]i?|) ?((?i:bits?|bytes?|octets?)|b|B)"
    r"(?:ps|(?i: ?/ ?s(?:ec(?:ond)?)?))(?:[^A-Za-z]|$)"
)
"""A rate in the name of a column. `MBps` is in bytes and `Mbps` in bits; `MBPS` may be either."""
_NOT_DB = re.compile(r"(?i)dbm|(?<![a-z])lin(?:ear)?(?![a-z])")
"""Words in the name of a column that is not in dB."""
_CONTRARY = (
    ("latitude", r"(?i)lon|lng"),
    ("longitude", r"(?i)lat"),
    ("uplink_bps", r"(?i)down|(^|[^a-z])dl"),
    ("downlink_bps", r"(?i)up|(^|[^a-z])ul"),
    ("gain_up_db", r"(?i)down|(^|[^a-z])dl"),
    ("gain_down_db", r"(?i)up|(^|[^a-z])ul"),
    ("snr_up_db", r"(?i)down|(^|[^a-z])dl"),
    ("snr_down_db", r"(?i)up|(^|[^a-z])ul"),
    ("east", r"(?i)^n(orth)?($|[^a-z])"),
    ("north", r"(?i)^e(ast)?($|[^a-z])"),
)


@dataclass(frozen=True)
class Reading:
    """The user's options for reading a table."""

    columns: Mapping[str, str]
    """By name from `COLUMNS`: `COLUMN[:UNIT]` of the file. A `*` stands for the names of UAVs that
    have a column each."""
    tx_dbm: float | None = None
    """Transmit power of the reference signal for `rsrp_dbm`, dBm."""
    time_format: str | None = None
    """Format of times as in `strptime`; None: numbers, ISO 8601, or a time of day."""
    same_time: str | None = None
    """Rule for several rows of the same time, from `SAME_TIME`; None: refused."""
    no_signal: str | None = None
    """Values that mean that the link carries nothing, separated by commas: numbers, words of the
    file, or `EMPTY`."""
    header: bool = True
    """Whether the first line names the columns; without it their names are 1, 2, …"""


@dataclass(frozen=True)
class Rows:
    """The rows of one UAV."""

    name: str
    times_s: Array
    """Shape [n], strictly increasing."""
    values: Mapping[str, Array]
    """By field of a trace: linear gains or rates in bit/s, shape [n] each; or `snr`, `snr_up` and
    `snr_down`: linear signal-to-noise ratios."""
    places: Array | None
    """Latitude, longitude, height, or east, north, height, shape [n, 3]; heights may be NaN."""
    where: Callable[[int], str]
    """Function that names the i-th row in messages."""
    line: int
    """Index of the first row in all files."""


@dataclass(frozen=True)
class Table:
    """The rows of all UAVs on one clock."""

    uavs: Sequence[Rows]
    degrees: bool
    """Whether `places` are latitudes and longitudes."""
    clock: Clock
    notes: Sequence[str] = ()
    """Remarks for the user about how the files were read."""


def read(paths: Sequence[Path], reading: Reading) -> Table:
    """Read CSV files; without a column `uav`, each is one UAV.

    Raises:
        InputError: A column is missing or ambiguous, or a row is wrong.
    """
    specs = _specs(reading.columns)
    stems, notes = names_of(paths), list[str]()
    frames = [_frame(path, name, specs, reading, notes) for path, name in stems.items()]
    units = {ours: unit for ours, (_, unit) in specs.items()}
    kinds = {tuple(name for name in COLUMNS if name in frame) for frame in frames}
    if len(kinds) > 1:
        raise InputError(f"`files`: {paths[0]} and the others have different columns")
    table = pd.concat(frames, ignore_index=True)
    where = _Where(table)
    clock = _parse_times(table, units.get("time"), reading.time_format, where)
    fields = _values(table, units, reading, where)
    places, degrees = _places(table, units, where)
    if not fields and places is None:
        known = ", ".join(name for names in VALUES for name in names)
        raise InputError(f"{paths[0]}: has neither positions nor any of {known}")
    times_s = table["time"].to_numpy(float)
    uavs = []
    of_uavs = {str(name): np.asarray(rows) for name, rows in table.groupby("uav").indices.items()}
    order = list(stems.values())  # Files that are one UAV each keep their order.
    names = order if {*order} == {*of_uavs} else sorted(of_uavs, key=by_number)
    for name in names:
        rows = of_uavs[name]
        own = {field: values[rows] for field, values in fields.items()}
        placed = None if places is None else places[rows]
        uavs.append(_one_per_time(name, times_s[rows], own, placed, rows, where, reading.same_time))
    return Table(uavs, degrees, clock, notes)


class _Where:
    """Functions that name rows of a table, for messages."""

    def __init__(self, table: pd.DataFrame):
        self.paths, self.lines = table["_path"].to_numpy(), table["_line"].to_numpy()

    def __call__(self, row: int) -> str:
        return f"{self.paths[row]}, line {self.lines[row]}"


def _specs(columns: Mapping[str, str]) -> dict[str, tuple[str, str | None]]:
    """Column and unit by our names."""
    specs: dict[str, tuple[str, str | None]] = {}
    for ours, given in columns.items():
        if ours not in COLUMNS:
            raise InputError(f"`columns` {ours}: is not one of {', '.join(COLUMNS)}")
        theirs, colon, unit = given.rpartition(":")
        known = UNITS.get(ours, {})
        if not colon or unit not in known:
            theirs, unit = given, ""
        if not theirs:
            raise InputError(f"`columns` {ours}: must be COLUMN[:UNIT], not {given!r}")
        for name, contrary in _CONTRARY:
            if name == ours and re.search(contrary, theirs) and not re.search(name[:3], theirs):
                raise InputError(f"`columns` {ours}: is mapped to the column {theirs!r}")
        specs[ours] = theirs, unit or None
    return specs


def _frame(
    path: Path,
    stem: str,
    specs: Mapping[str, tuple[str, str | None]],
    reading: Reading,
    notes: list[str],
) -> pd.DataFrame:
    """The columns that are read, under our names, as text, with `_path` and `_line` of each row."""
    theirs = _texts(path, reading.header, notes)
    chosen: dict[str, str] = {}
    for ours, (column, _) in specs.items():
        if "*" not in column and column not in theirs:
            name, _, unit = column.rpartition(":")
            if name in theirs and ours in UNITS:
                stated = stated_units(unit, UNITS[ours])  # Mbps is Mbit/s, and mb/s not bit/s.
                known = ", ".join(UNITS[ours])
                hint = f"{unit!r} is not one of {known}; did you mean {stated[0]!r}?"
                raise InputError(
                    f"`columns` {ours}: unit {hint if stated else not_one_of(unit, UNITS[ours])}"
                )
            raise InputError(f"{path}: has no column {column!r}; it has {_named(theirs)}")
        chosen[ours] = column
    for name in COLUMNS:
        if name in theirs and name not in chosen:
            chosen[name] = name
    _drop_alternatives(chosen, specs, path)
    if "time" not in chosen:
        raise InputError(f"{path}: has no column for time; it has {_named(theirs)}")
    wide = [ours for ours, column in chosen.items() if "*" in column]
    plain = {ours: theirs[column] for ours, column in chosen.items() if ours not in wide}
    frames = []
    others = theirs.columns.difference([chosen[ours] for ours in plain])
    for uav, matched in _matched(path, {ours: chosen[ours] for ours in wide}, others):
        for ours, column in (chosen | matched).items():
            if ours in specs and specs[ours][1] is None:
                cells = theirs[column]
                _check_unit(path, ours, specs[ours][0], column, cells, reading.time_format)
        own = plain | {ours: theirs[column] for ours, column in matched.items()}
        if wide and "uav" in plain:
            raise InputError(f"{path}: has a column uav and a column for each UAV")
        if "uav" not in own:
            own["uav"] = pd.Series(uav or stem, index=theirs.index)
        frames.append(pd.DataFrame(own))
    table = pd.concat(frames)
    table["uav"] = table["uav"].str.strip()
    table = table.assign(_path=str(path), _line=table.index).reset_index(drop=True)
    if (i := first((table["uav"] == "").to_numpy())) is not None:
        raise InputError(f"{_Where(table)(i)}: uav is empty")
    return table


def _check_unit(
    path: Path,
    ours: str,
    pattern: str,
    column: str,
    cells: "pd.Series[str]",
    time_format: str | None,
) -> None:
    """Refuse a time, length, angle or rate of a column whose name does not state our unit, and
    decibels of a column whose name states another one.

    Args:
        path: The file.
        ours: Our name of the column.
        pattern: The column's name as the user gives it, which may have a `*`.
        column: The column's name in the file.
        cells: The column.
        time_format: The user's format of times.

    Raises:
        InputError: The unit is not stated, or it is another one; the message proposes units.
    """
    units = UNITS.get(ours)
    if ours.endswith("_db") and (found := _NOT_DB.search(column)):
        other = "dBm" if found[0].lower() == "dbm" else "linear"
        proposed = [unit for unit in UNITS[ours] if unit in (other, "dB")][::-1]
        options = " or ".join(f"{ours}={pattern}:{unit}" for unit in proposed)
        raise InputError(
            f"{path}: is column {column!r} {other}, not in dB? give its unit: {options}"
        )
    known = [kind for kind in (_TIMES, _LENGTHS, _DEGREES, _RATES) if kind is units]
    bare = re.sub(r"\W+", "_", pattern.replace("*", "").lower()).strip("_")
    if not units or not known or units is UNITS.get(bare):
        return
    if ours == "time" and (time_format is not None or not is_number(cells.iloc[0])):
        return
    stated, default = stated_units(column, units), next(iter(units))
    if stated == [default]:
        return
    if stated:
        proposed = [*(unit for unit in stated if unit != default), default]
        options = " or ".join(f"{ours}={pattern}:{unit}" for unit in proposed)
        question = f"is column {column!r} in {proposed[0]}? give its unit: {options}"
    else:
        question = (
            f"column {column!r} does not state its unit; give it as {ours}={pattern}:UNIT with one "
            f"of {', '.join(units)}"
        )
    raise InputError(f"{path}: {question}")


def stated_units(column: str, units: Mapping[str, float]) -> list[str]:
    """The units, of some, that the name of a column states.

    Args:
        column: The name, such as `time_ms`, `timeMS` or `Altitude in feet MSL`. One letter, or
            the word "in", is a unit at the end only.
        units: The units of the column's quantity.
    """
    spaced = re.sub(r"(?<=[a-z]{2})(?=[A-Z])", " ", column).replace("_", " ").strip("()[]{} .:")
    spaced = re.sub(r"(?i) per ", "/", spaced)
    if units is _RATES:
        named = dict.fromkeys(map(_rate, _RATE.finditer(spaced)))
        return [unit for unit in named if unit in units]
    stated = []
    for unit in units:
        word = rf"(?i)(?:^|[^a-zµμ/])({_WORDS[unit]})(?![a-zµμ/²³^])"
        for found in re.finditer(word, spaced):
            is_last = found.end() == len(spaced)
            if is_last or (len(found[1]) > 1 and found[1].lower() != "in"):
                stated.append(unit)
                break
    return stated


def _rate(found: re.Match[str]) -> str:
    prefix, kind = found.groups()
    prefix = prefix[:1].lower() if len(prefix) > 2 else prefix  # kilo, mega, giga
    prefix = prefix[0].upper() + prefix[1:] if prefix else ""
    prefix = "k" if prefix == "K" else prefix
    return f"{prefix}{'bit' if kind == 'b' or kind[:3].lower() == 'bit' else 'B'}/s"


def _matched(
    path: Path, wide: Mapping[str, str], theirs: "pd.Index[str]"
) -> Iterator[tuple[str, dict[str, str]]]:
    """Names of UAVs with their columns by our names; a single unnamed one if none is wide."""
    if not wide:
        yield "", {}
        return
    found: dict[str, dict[str, str]] = {}
    for ours, pattern in wide.items():
        form = re.compile(re.escape(pattern).replace(r"\*", "(.+)", 1))
        for column in theirs:
            if matched := form.fullmatch(column):
                found.setdefault(matched[1], {})[ours] = column
    if not found:
        raise InputError(f"{path}: has no column like {next(iter(wide.values()))!r}")
    for uav, columns in found.items():
        if missing := set(wide) - set(columns):
            ours = min(missing)
            raise InputError(f"{path}: has no column {wide[ours].replace('*', uav)!r} for {ours}")
        yield uav, columns


def _texts(path: Path, header: bool, notes: list[str]) -> pd.DataFrame:
    """All cells as text; the index has the lines of the file. Blank lines and comments (#) go."""
    text = text_of(path)
    all_lines = text.splitlines() if text.count("\n") <= MOST_LINES else []
    if not 0 < len(all_lines) <= MOST_LINES:
        why = "no lines" if not text else f"more than {MOST_LINES:,} lines"
        raise InputError(f"{path}: is not a CSV file that can be read (it has {why})")
    filled = [number for number, line in enumerate(all_lines) if line and not line.isspace()]
    numbers = [number for number in filled if not all_lines[number].lstrip().startswith("#")]
    begins = filled.index(numbers[0]) if numbers else 0
    skipped = passed_over(len(filled) - len(numbers) - begins, "line", "beginning with #")
    notes += [f"{path}: {note}" for note in skipped]
    if not numbers:
        raise InputError(f"{path}: is not a CSV file (it has no lines)")
    first_line = all_lines[numbers[0]]
    head = re.sub(r'"[^"]*"', "", first_line)
    separator = max(",;\t", key=head.count)
    words = separator if separator in head else r"\s+" if re.search(r"\S\s+\S", head) else ","
    if (i := first(np.array([len(all_lines[n]) > MOST_LETTERS for n in numbers]))) is not None:
        raise InputError(
            f"{path}, line {numbers[i] + 1}: is longer than {MOST_LETTERS:,} characters"
        )
    columns = len(head.split()) if words == r"\s+" else head.count(separator) + 1
    if columns > MOST_COLUMNS:
        raise InputError(f"{path}: has {columns:,} columns, more than {MOST_COLUMNS:,}")
    given = _names(first_line, separator if words != r"\s+" else "", path) if header else []
    if doubled := [name for name, count in Counter(given).items() if count > 1]:
        raise InputError(f"{path}: has two columns {doubled[0][:60]!r}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows longer than the header
            table = pd.read_csv(
                io.StringIO("\n".join([all_lines[number] for number in numbers])),
                sep=words,
                header=0 if header else None,
                skipinitialspace=True,
                index_col=False,
                dtype=str,
                keep_default_na=False,
                na_values=[],
            )
    except (ValueError, pd.errors.ParserWarning) as error:
        problem = " ".join(str(error).split())[:120]
        if found := re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", problem):
            before, line, own = int(found[1]), numbers[int(found[2]) - 1] + 1, int(found[3])
            raise InputError(
                f"{path}: line {line} has {own} fields, and the lines before it have {before}"
            ) from None
        if problem.startswith("Length of header"):
            problem = "a row has more fields than the header"
        raise InputError(f"{path}: is not a CSV file ({problem})") from None
    lines = [number + 1 for number in numbers[int(header) :]]
    if table.empty:
        raise InputError(f"{path}: has no rows")
    if len(lines) != len(table):
        raise InputError(f"{path}: is not a CSV file (a quoted value contains a line break)")
    if header:
        names = [name.strip() for name in map(str, table.columns)]
        if all(map(is_number, names)):
            hint = "; a line that begins with # is no header" if begins else ""
            raise InputError(
                f"{path}: its first line has numbers; give `header` if it has no names{hint}"
            )
        table.columns = pd.Index(names)
    else:
        table.columns = pd.Index([str(n) for n in range(1, table.shape[1] + 1)])
    table.index = pd.Index(lines)
    return table.fillna("")


def _names(line: str, separator: str, path: Path) -> list[str]:
    """The names of columns in the header, where pandas would change equal ones."""
    if not separator:
        return line.split()
    try:
        return next(csv.reader([line], delimiter=separator, skipinitialspace=True))
    except csv.Error as error:
        raise InputError(f"{path}: is not a CSV file ({error})") from None


def _drop_alternatives(chosen: dict[str, str], specs: Mapping[str, Any], path: Path) -> None:
    """Keep only one kind of places and of values; the columns that the user named decide."""
    for kinds in (PLACES, VALUES):
        present = [kind for kind in kinds if _own(kind, kinds) & set(chosen)]
        named = [kind for kind in present if _own(kind, kinds) & set(specs)]
        if named:
            for kind in present:
                if kind not in named:
                    for name in _own(kind, kinds) - {n for k in named for n in k}:
                        chosen.pop(name, None)
            present = named
        if len(present) > 1 and not set(present) <= {PLACES[1], PLACES[2]}:
            one, other = (min(_own(kind, kinds) & set(chosen)) for kind in present[:2])
            raise InputError(
                f"{path}: has {one} and {other}; choose one with `columns` ({one}=COLUMN)"
            )
    if {"up", "down"} <= set(chosen):
        raise InputError(f"{path}: has up and down; choose one with `columns`")
    if "height" in chosen and {"z", "up", "down"} & set(chosen) and "height" not in specs:
        del chosen["height"]


def _own(kind: tuple[str, ...], kinds: Sequence[tuple[str, ...]]) -> set[str]:
    """Names that identify this kind; heights alone do not."""
    return set(kind) - ({"height"} if kinds is PLACES else set())


def _parse_times(
    table: pd.DataFrame, unit: str | None, time_format: str | None, where: _Where
) -> Clock:
    """Replace times by seconds; the clock says from when they count."""
    cells = table["time"].str.strip()
    if time_format is not None:
        if unit is not None:
            raise InputError("`time_format`: is not used: the column time has a unit")
        return _formatted_times(table, cells, time_format, where)
    numbers = pd.to_numeric(cells, errors="coerce").to_numpy(float)
    finite = np.isfinite(numbers)
    if finite.all():
        times = _numeric_times(numbers, unit, where) * _TIMES[unit or "s"]
        table["time"] = times
        least, most = float(times.min()), float(times.max())
        since_1970 = 1e8 < least <= most < 1e11 and _TIMES[unit or "s"] <= 1
        return _dated(least, {timedelta()}) if since_1970 else Clock()
    i: int | None
    if unit is not None or finite[0]:
        i = int(np.argmin(finite))
        others = "" if unit else ", as in the rows before"
        raise InputError(f"{where(i)}: time must be a number{others}, not {cells[i][:40]!r}")
    of_day = np.array([bool(_CLOCK.fullmatch(cell)) for cell in cells])
    if of_day[0]:
        if (i := first(~of_day)) is not None:
            raise InputError(
                f"{where(i)}: time must be a time of day, as in the rows before, not "
                f"{cells[i][:40]!r}"
            )
        table["time"] = pd.to_timedelta(cells).dt.total_seconds()
        return Clock("day", float(table["time"].min()))
    is_iso = np.array([bool(_ISO.fullmatch(cell)) for cell in cells])
    if (i := first(~is_iso)) is not None:
        raise InputError(
            f"{where(i)}: time {cells[i][:40]!r} is neither a number nor of ISO 8601 "
            "(2024-05-31T12:00:00); give `time_format`"
        )
    if (i := first_of_other_kind(cells.to_list())) is not None:
        raise InputError(f"{where(i)}: some times have a time zone and some have none")
    moments = pd.to_datetime(
        cells.str.replace(",", "."), format="ISO8601", errors="coerce", utc=True
    )
    if (i := first(moments.isna().to_numpy())) is not None:
        raise InputError(f"{where(i)}: time {cells[i][:40]!r} does not exist")
    table["time"] = _seconds(moments)
    return _dated(float(table["time"].min()), zones_of(cells))


def _formatted_times(
    table: pd.DataFrame, cells: "pd.Series[str]", time_format: str, where: _Where
) -> Clock:
    """Replace times of a format of `strptime` by seconds."""
    if "%Z" in time_format:
        raise InputError(
            "`time_format`: must not have %Z, for the name of a zone says nothing about summer "
            "time; write the name itself, or %z for +02:00"
        )
    try:
        moments = pd.to_datetime(cells, format=time_format, errors="coerce", utc=True)
    except ValueError as error:
        raise InputError(f"`time_format`: {str(error)[:80]}") from None
    if (i := first(moments.isna().to_numpy())) is not None:
        raise InputError(f"{where(i)}: time {cells[i][:40]!r} is not of `time_format`")
    table["time"] = _seconds(moments)
    if (moments.dt.date == date(1900, 1, 1)).all():  # The format has no date.
        table["time"] -= datetime(1900, 1, 1, tzinfo=UTC).timestamp()
        return Clock("day", float(table["time"].min()))
    zones: set[timedelta | None] = {None}
    if "%z" in time_format:
        try:
            zones = {datetime.strptime(cell, time_format).utcoffset() for cell in cells}
        except ValueError:
            raise InputError("`time_format`: %f with %z has six digits or fewer") from None
    return _dated(float(table["time"].min()), zones)


def _dated(first_s: float, zones: Iterable[timedelta | None]) -> Clock:
    return Clock("dates", first_s, frozenset(zones))


def _seconds(moments: "pd.Series[Any]") -> "pd.Series[float]":
    seconds: pd.Series[float] = moments.dt.as_unit("us").astype("int64") / 1e6
    return seconds


def _numeric_times(times: Array, unit: str | None, where: _Where) -> Array:
    """Numeric times whose unit is known or plausible."""
    if unit is not None:
        return times
    steps = np.diff(np.unique(times))
    step = float(np.median(steps)) if len(steps) else 1.0
    problem = None
    if np.abs(times).max() >= 1e11:
        problem = f"time {times[0]:.15g} is too large for seconds"
    elif step > 10 or step < 1e-4:
        problem = f"times rise by {step:.3g} per row, which may be seconds or not"
    elif step < 1e-2 and (times >= 1e4).all() and (times < 1e7).all():
        problem = f"time {times[0]:.15g} may be a day, as a spreadsheet counts them, or a second"
    elif (jumps := steps[steps > 40]).size and step < 20:
        digits = np.stack([times % 100, times // 100 % 100, times // 10_000])
        ends_of_minutes = np.abs(jumps - 40 - step) <= step + 1e-6
        if (digits < [[60], [60], [24]]).all() and (times >= 0).all() and ends_of_minutes.all():
            problem = f"time {times[0]:.15g} may be hours, minutes and seconds (`time_format`)"
    if problem:
        units = ", ".join(f"time=COLUMN:{unit}" for unit in _TIMES)
        raise InputError(f"{where(0)}: {problem}; give the unit ({units})")
    return times


def _values(
    table: pd.DataFrame, units: Mapping[str, str | None], reading: Reading, where: _Where
) -> dict[str, Array]:
    """Linear gains or rates in bit/s of each row, by field of a trace."""
    names = [name for kind in VALUES for name in kind if name in table]
    if reading.tx_dbm is not None and "rsrp_dbm" not in names:
        raise InputError("`tx_dbm`: is not used: the table has no rsrp_dbm")
    if reading.no_signal is not None and not names:
        raise InputError("`no_signal`: is not used: the table has neither gains nor rates")
    fields: dict[str, Array] = {}
    for name in names:
        unit = units.get(name)
        numbers, silent = _numbers(table, name, where, reading.no_signal)
        if name.endswith("_bps"):
            values = numbers * _RATES[unit or "bit/s"]
            _check_range(values, 0.0, MOST_BPS, name, "bit/s", silent, where)
            if unit is None and 0 < values.max() < SLOW_BPS:
                raise InputError(
                    f"{where(int(values.argmax()))}: {name} is at most {values.max():g} bit/s; "
                    f"give its unit ({', '.join(_RATES)})"
                )
        else:
            values = _gain(numbers, name, unit, silent, reading.tx_dbm, where)
        values[silent] = 0.0
        field = {"loss_db": "gain", "rsrp_dbm": "gain"}.get(name, name.removesuffix("_db"))
        fields[field] = values
    if "rate_bps" in fields:
        both = fields.pop("rate_bps")
        fields |= {"uplink_bps": both, "downlink_bps": both}
    for kind in VALUES:
        if (given := set(kind) & set(names)) and (missing := set(kind) - given):
            hint = "; rate_bps is the rate of both directions" if "bps" in min(given) else ""
            raise InputError(f"{table['_path'].iloc[0]}: {min(missing)} is missing{hint}")
    return fields


def _gain(
    numbers: Array,
    name: str,
    unit: str | None,
    silent: "np.typing.NDArray[np.bool_]",
    tx_dbm: float | None,
    where: _Where,
) -> Array:
    """Linear power gains, or signal-to-noise ratios."""
    if unit == "linear":
        _check_range(numbers, 0.0, 1.0, name, "linear", silent, where)
        _refuse_lossless(numbers, numbers == 1, name, "(linear)", silent, where)
        return numbers.copy()
    if name == "rsrp_dbm":
        _check_range(numbers, *RSRP_DBM, name, "dBm", silent, where)
        if tx_dbm is None:
            raise InputError("`tx_dbm`: is missing; rsrp_dbm needs the transmit power")
        decibels, what = numbers - tx_dbm, "gain_db (rsrp_dbm - tx_dbm)"
    elif name.startswith("snr"):
        _check_range(numbers, *SNR_DB, name, "dB", silent, where)
        return np.asarray(10 ** (numbers / 10))
    else:
        decibels, what = (-numbers, "-loss_db") if name == "loss_db" else (numbers, name)
    _check_range(decibels, LEAST_GAIN_DB, 0.0, what, "dB", silent, where)
    loud = decibels[~silent]
    if loud.size > 1 and name != "rsrp_dbm" and (loud > -LOSSLESS_DB).all():
        raise InputError(f"{where(0)}: {name} is almost 0 dB in all rows; is its unit linear?")
    _refuse_lossless(numbers, decibels > -LOSSLESS_DB, name, "dB", silent, where)
    values: Array = 10 ** (np.where(silent, 0.0, decibels) / 10)
    return values


def _refuse_lossless(
    numbers: Array,
    is_lossless: "np.typing.NDArray[np.bool_]",
    name: str,
    unit: str,
    silent: "np.typing.NDArray[np.bool_]",
    where: _Where,
) -> None:
    """Refuse a link whose whole power arrives; programs write 0 dB where they have no value."""
    if (i := first(is_lossless & ~silent)) is not None:
        raise InputError(
            f"{where(i)}: {name} {numbers[i]:.6g} {unit} means that all power arrives; if it marks "
            f"an outage, give `no_signal` {numbers[i]:.6g}"
        )


def _check_range(
    values: Array,
    least: float,
    most: float,
    name: str,
    unit: str,
    silent: "np.typing.NDArray[np.bool_]",
    where: _Where,
) -> None:
    if (i := first(~((values >= least) & (values <= most)) & ~silent)) is not None:
        raise InputError(
            f"{where(i)}: {name} {values[i]:.6g} is not from {least:g} to {most:g} {unit}; "
            "`no_signal` is the value of a link without signal"
        )


def marks_of(no_signal: str) -> list[str]:
    """The values that mean an outage."""
    return [mark.strip() for mark in no_signal.split(",")] if no_signal else []


def _numbers(
    table: pd.DataFrame, name: str, where: _Where, no_signal: str | None = None
) -> tuple[Array, "np.typing.NDArray[np.bool_]"]:
    """Numbers of a column, and the rows in which it contains a mark for "no signal"."""
    cells = table[name].str.strip()
    numbers = pd.to_numeric(cells, errors="coerce").to_numpy(float)
    silent = np.zeros(len(cells), bool)
    for mark in marks_of(no_signal or ""):
        if mark == EMPTY:
            silent |= (cells == "").to_numpy()
        elif is_number(mark):
            silent |= numbers == float(mark)
        else:
            silent |= (cells.str.lower() == mark.lower()).to_numpy()
    if (i := first(~np.isfinite(numbers) & ~silent)) is not None:
        if cells[i] == "":
            raise InputError(f"{where(i)}: {name} is empty")
        comma = "; decimals have a point" if re.fullmatch(r"-?\d+,\d+", cells[i]) else ""
        raise InputError(f"{where(i)}: {name} must be a number, not {cells[i][:40]!r}{comma}")
    return np.where(silent, 0.0, numbers), silent


def _places(
    table: pd.DataFrame, units: Mapping[str, str | None], where: _Where
) -> tuple[Array | None, bool]:
    """Places of all rows, shape [n, 3], and whether they are in degrees."""

    def column(name: str) -> Array:
        unit = units.get(name) or next(iter(UNITS[name]))
        return _numbers(table, name, where)[0] * UNITS[name][unit]

    names = set(map(str, table))
    for kind in PLACES:
        across = kind[:2]
        given = [name for name in across if name in names]
        if not given:
            continue
        if len(given) == 1:
            missing = next(name for name in across if name not in names)
            raise InputError(f"{table['_path'].iloc[0]}: {missing} is missing")
        height = next((name for name in ("height", "z", "up", "down") if name in names), None)
        heights = np.full(len(table), np.nan) if height is None else column(height)
        if height == "down":
            heights = -heights
        return np.stack([*map(column, across), heights], axis=1), kind == PLACES[-1]
    if alone := names & {"z", "up", "down", "height"}:
        raise InputError(f"{table['_path'].iloc[0]}: has {min(alone)} and no other coordinates")
    return None, False


def _one_per_time(
    name: str,
    times_s: Array,
    values: Mapping[str, Array],
    places: Array | None,
    rows: "np.typing.NDArray[np.intp]",
    where: _Where,
    same_time: str | None,
) -> Rows:
    """The rows of a UAV, with one row per time."""
    steps = np.diff(times_s)
    if (i := first(steps < 0)) is not None:
        raise InputError(f"{where(rows[i + 1])}: its time is before that of the previous row")
    starts = np.concatenate([[0], np.flatnonzero(steps > 0) + 1])
    if len(starts) < len(times_s):
        if same_time is None:
            i = int(np.argmin(steps > 0))
            raise InputError(
                f"{where(rows[i + 1])}: its time is not after that of the previous row; "
                "`same_time` chooses the row that counts"
            )
        counts = np.diff([*starts, len(times_s)])
        at = starts if same_time == "first" else starts + counts - 1

        def merged(column: Array) -> Array:
            one = column[at]
            return one if same_time != "mean" else (np.add.reduceat(column, starts).T / counts).T

        values = {field: merged(column) for field, column in values.items()}
        places = None if places is None else merged(places)
        times_s, rows = times_s[starts], rows[starts]
    return Rows(name, times_s, values, places, lambda i: where(int(rows[i])), int(rows[0]))


def _bare(column: str) -> str:
    return re.sub(r"[\])\s]+$", "", column)


def _named(table: pd.DataFrame) -> str:
    return ", ".join(repr(str(name)[:40])[1:-1] for name in table.columns[:20])
