# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Imports files of all supported formats as traces, and describes how they were read."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from ns3_scenarios.aerial import free_space_db
from ns3_scenarios.errors import ChannelError
from ns3_scenarios.trace import (
    ChannelTrace,
    RateTrace,
    SlotTrace,
    TraceError,
    check_positions,
    describe,
    trace_of,
)
from orchestrator.engine.radio import of_gains
from orchestrator.exchange import csv_files, mahimahi, ns2, srsran
from orchestrator.exchange.bounds import (
    Bounds,
    Where,
    above_ground,
    check_distance,
    check_gaps,
    check_speed,
    first,
    placed,
)
from orchestrator.exchange.clocks import Clock, Zones
from orchestrator.exchange.files import (
    Array,
    Flight,
    along,
    is_number,
    names_of,
    sampled,
    slots_of,
    text_of,
)
from orchestrator.exchange.formats import FORMATS, TRACES
from orchestrator.exchange.gpx import read_gpx
from orchestrator.exchange.kml import read_kml
from orchestrator.exchange.qgc import read_qgc, read_wpl
from orchestrator.exchange.tracks import Above, Origin, Track, Tracks
from orchestrator.exchange.ulog import read_ulog
from orchestrator.flights.measured import UNNAMED_CARRIER_HZ, UNNAMED_STATION_M
from orchestrator.scenario.channel import flown
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from testbed.core.words import not_one_of

NEAREST_M = 1.0
"""Smallest distance, which limits the gain of free space."""
SNR_FIELDS = {"snr": ("gain", 0), "snr_up": ("gain_up", 0), "snr_down": ("gain_down", 1)}
"""The gain that a signal-to-noise ratio becomes, and the direction whose power and noise count."""
CLOCKS = ("common", "each")
SHOWN_NAMES = 8
_TIMED = {"csv", "kml", "gpx", "ulog"}
_IN_DEGREES = {"csv", "kml", "gpx", "ulog", "qgc"}
_PLACED = _IN_DEGREES | {"ns2"}
_OF_LOGS = ("ue", "enb", "vehicle", "base_station")
_OF_TABLES = ("columns", "tx_dbm", "time_format", "same_time", "no_signal", "header")
_USED_BY: Sequence[tuple[Sequence[str], set[str]]] = (
    (("slot_s", "first", "last", "repeat"), {*TRACES}),
    (("scenario", "height_m"), _PLACED),
    (("within_km", "fastest_m_s"), _PLACED | {"srsran"}),
    (("origin",), _IN_DEGREES),
    (("ground_m",), _IN_DEGREES | {"srsran"}),
    (("longest_gap_s",), _TIMED | {"srsran"}),
    (("clock", "hold"), _TIMED),
    (_OF_LOGS, {"srsran"}),
    (_OF_TABLES, {"csv"}),
    (("speed_m_s",), {"kml", "gpx", "qgc"}),
    (("down",), {"mahimahi"}),
)
"""Options with the formats that use them; all formats use the others."""
_OPTIONS = {"speed_m_s": "speed", "first": "from", "last": "to"}
"""Names of options that differ from those of `Options`."""


@dataclass(frozen=True)
class Options:
    """Parameters that a file does not contain; None: the default, or not needed.

    An option that the format or the file does not use is refused.
    """

    slot_s: float = 0.1
    scenario: Scenario | None = None
    """Gives base station, carrier and channel for the gains of a flight; None: free space."""
    height_m: float | None = None
    """Height of all places above the ground, m; None: as in the file."""
    ground_m: float | str | None = None
    """Height of the ground on the file's scale, m, or `lowest`: the height of the lowest place."""
    speed_m_s: float | None = None
    """Speed along paths without times."""
    origin: Origin | None = None
    """Latitude and longitude of x = y = 0; None: the start of the first file."""
    within_km: float | None = None
    """Largest distance of a place from the origin."""
    fastest_m_s: float | None = None
    """Highest speed between two places."""
    longest_gap_s: float | None = None
    """Longest time without a row or place."""
    clock: str | None = None
    """`common`: times of all UAVs are on one clock (default); `each`: each UAV starts at t = 0."""
    hold: bool = False
    """Whether the first value of a UAV holds before its time, and the last one after its time.
    Otherwise the UAV has an outage there, and positions are refused."""
    first: str | None = None
    """Start of the window that is imported: seconds from the first time, or a date and time, or a
    time of day, as the files have it."""
    last: str | None = None
    """End of the window."""
    repeat: str | None = None
    """Number of times that the trace is repeated, or, with an s, how many seconds it lasts."""
    down: Sequence[Path] = ()
    """Mahimahi's downlink files."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Option for tables, like the following ones; see `csv_files.Reading`."""
    tx_dbm: float | None = None
    time_format: str | None = None
    same_time: str | None = None
    no_signal: str | None = None
    header: bool = True
    ue: Path | None = None
    """Logs and positions of srsRAN, like the following ones; see `srsran.Files`."""
    enb: Path | None = None
    vehicle: Path | None = None
    base_station: tuple[float, float, float] | None = None

    @property
    def bounds(self) -> Bounds:
        """The physical bounds."""
        given = {
            name: value
            for name in ("within_km", "fastest_m_s", "longest_gap_s")
            if (value := getattr(self, name)) is not None
        }
        return Bounds(**given)


@dataclass(frozen=True)
class Imported:
    """A trace, and a description of the files from which it was made."""

    trace: SlotTrace
    names: Sequence[str]
    """Name of each UAV in the files."""
    notes: Sequence[str] = ()
    """Remarks for the user about how the files were read."""
    origin: Origin | None = None
    """Latitude and longitude of x = y = 0, where places are in degrees."""
    clock: Clock = field(default_factory=Clock)
    begin_s: float = 0.0
    """Time of the file, on its clock, at which the trace begins."""
    from_file: int | None = None
    """Number of slots before the first repetition; None: all slots."""

    @property
    def span(self) -> str:
        """The moments of the files between which the trace goes, in words."""
        slots = self.trace.slots if self.from_file is None else self.from_file
        ends = _ends(self.clock, self.begin_s, self.begin_s + slots * self.trace.slot_s)
        return ends + ", repeated" * (self.trace.slots > slots)

    def line(self) -> str:
        """One line that describes the imported trace."""
        shown = [f"uav{k} = {name}" for k, name in enumerate(self.names[:SHOWN_NAMES], 1)]
        if len(self.names) > SHOWN_NAMES:
            shown.append(f"… uav{len(self.names)} = {self.names[-1]}")
        parts = [describe(self.trace), f"from {self.span}", ", ".join(shown)]
        if self.origin is not None:
            parts.append(f"origin at latitude {self.origin[0]:.6f}, longitude {self.origin[1]:.6f}")
        return "; ".join([*parts, *(note.rstrip(".") for note in self.notes)])


def imported(kind: str, files: Sequence[Path], options: Options) -> Imported:
    """The trace that files of a foreign format describe, one or several UAVs.

    Raises:
        InputError: A file or an option is not valid; the message names it and the problem.
    """
    if kind not in TRACES:
        raise InputError(f"`format`: {not_one_of(kind, FORMATS)}")
    _check_used(options, kind)
    if not files:
        raise InputError("`files`: is missing; give the files to import")
    if kind == "mahimahi":
        found = _of_rates(files, options)
    elif kind == "csv":
        found = _of_tables(files, options)
    elif kind == "ns2":
        found = _of_movements(files, options)
    else:
        found = _of_tracks(files, options, kind)
    repeated = _repeated(found.trace, options, files[0])
    if repeated.position_m is not None:  # Jumps of a movement must not be too fast to be read.
        shape = repeated.uavs, repeated.slots
        check_positions(repeated.position_m, shape, repeated.slot_s, partial(_wrong, files[0]))
    from_file = min(found.trace.slots, repeated.slots)
    return replace(found, trace=repeated, from_file=from_file)


def _checked_fields(fields: Mapping[str, object], source: Path) -> ChannelTrace | RateTrace:
    """The trace of these fields, which another command can read."""
    try:
        return trace_of(fields, str(source))
    except TraceError as error:
        raise InputError(str(error)) from None


def _wrong(source: Path, what: str) -> InputError:
    return InputError(f"{source}: {what}")


def measured(files: Sequence[Path], options: Options) -> srsran.Found:
    """The flight that the logs of srsRAN describe.

    Raises:
        InputError: A file or an option is not valid; the message names it and the problem.
    """
    _check_used(options, "srsran")
    if files:
        raise InputError("`files`: are not used by the format srsran; see `ue`, `enb`, `vehicle`")
    paths = [options.ue, options.enb, options.vehicle]
    given = [path for path in paths if path is not None]
    if len(given) < len(paths):
        name = ("ue", "enb", "vehicle")[paths.index(None)]
        raise InputError(f"`{name}`: is missing; the format srsran needs it")
    ue, enb, vehicle = given
    logs = srsran.Files(ue, enb, vehicle, options.base_station, options.ground_m)
    return srsran.read(logs, options.bounds)


def _check_used(options: Options, kind: str) -> None:
    """Refuse options that are out of range, or that the format does not use."""
    _check(options)
    for names, kinds in _USED_BY:
        if kind not in kinds:
            _refuse_given(options, names, kind)


def _check(options: Options) -> None:
    bounds = options.bounds
    for name, value, least, most in (
        ("slot_s", options.slot_s, 1e-3, 10.0),
        ("within_km", bounds.within_km, 1e-3, 1000.0),
        ("fastest_m_s", bounds.fastest_m_s, 1e-2, 1000.0),
        ("longest_gap_s", bounds.longest_gap_s, 1e-3, 1e9),
        ("speed", options.speed_m_s, 1e-2, bounds.fastest_m_s),
        ("height_m", options.height_m, 0.0, 20_000.0),
        ("tx_dbm", options.tx_dbm, -100.0, 100.0),
    ):
        if value is not None and not least <= value <= most:
            raise InputError(f"`{name}`: must be from {least:g} to {most:g}, not {value:g}")
    for name, word, known in (
        ("clock", options.clock, CLOCKS),
        ("same_time", options.same_time, csv_files.SAME_TIME),
    ):
        if word is not None and word not in known:
            raise InputError(f"`{name}`: {not_one_of(word, known)}")
    if options.ground_m not in (None, "lowest") and not is_number(str(options.ground_m)):
        raise InputError(f"`ground_m`: must be a number or `lowest`, not {options.ground_m!r}")
    marks = options.no_signal
    if marks is not None and not all(csv_files.marks_of(marks) or [""]):
        raise InputError(
            f"`no_signal`: must be one or more values, such as 0, - or `{csv_files.EMPTY}`, "
            f"separated by commas, not {marks!r}"
        )
    if options.height_m is not None and options.ground_m is not None:
        raise InputError("`ground_m`: is not used: `height_m` replaces all heights")


def _refuse_given(options: Options, names: Sequence[str], kind: str, why: str = "") -> None:
    """Refuse options that were given although nothing uses them."""
    for name in names:
        if getattr(options, name) != getattr(Options(), name):
            option = _OPTIONS.get(name, name)
            raise InputError(f"`{option}`: is not used by the format {kind}{why}")


# --- formats -------------------------------------------------------------------------------------


def _of_rates(files: Sequence[Path], options: Options) -> Imported:
    trace = mahimahi.read(files, options.down, options.slot_s)
    begin_s, end_s = _window(options, Clock(), trace.slots * trace.slot_s)
    # The slots that have a part in the window.
    first = min(int(begin_s / trace.slot_s + 1e-6), trace.slots - 1)
    trace = trace.at(slice(first, max(math.ceil(end_s / trace.slot_s - 1e-6), first + 1)))
    _checked_fields(trace.arrays(), files[0])
    notes = [] if options.down else ["the files' rates are those of uplink and downlink"]
    names = [path.name for path in files]
    return Imported(trace, names, notes, begin_s=first * trace.slot_s)


def _of_movements(files: Sequence[Path], options: Options) -> Imported:
    flights, names = [], []
    for path, stem in names_of(files).items():
        for flight in ns2.read(path):

            def where(i: int, flight: Flight = flight, path: Path = path) -> str:
                return f"{path}: node {flight.name} at {flight.times_s[i]:g} s"

            check_distance(flight.position_m, options.bounds, where)
            flights.append(_checked(flight.position_m, flight.times_s, "ground", options, where)[0])
            names.append(flight.name if len(files) == 1 else f"{stem} {flight.name}")
    return _over(flights, names, options, files[0], Clock(), [True] * len(names))


def _of_tracks(files: Sequence[Path], options: Options, kind: str) -> Imported:
    if kind == "ulog" and len(files) > 1 and options.clock != "each":
        raise InputError("`clock`: must be `each` for several logs, whose times count from boot")
    found = [(path, _read(kind, path, options)) for path in files]
    tracks = [(path, n, track) for path, one in found for n, track in enumerate(one.tracks)]
    notes = [note for _, one in found for note in one.notes]
    start = tracks[0][2].places[0]
    origin = options.origin or found[0][1].origin or (float(start[0]), float(start[1]))
    timed = [track.times_s is not None for _, _, track in tracks]
    if not any(timed):
        _refuse_given(options, ("clock", "longest_gap_s"), kind, ": its paths have no times")
    elif all(timed) and kind != "qgc" and options.speed_m_s is not None:
        notes.append("the speed is not used, for all paths have times")
    stems, given = names_of(files), Counter(track.name for _, _, track in tracks)
    numbers = {path: len(one.tracks) for path, one in found}
    flights, names = [], []
    for path, n, track in tracks:
        alone = numbers[path] == 1
        name = stems[path] if alone else f"{stems[path]} {n + 1}"
        if track.name:
            name = track.name if given[track.name] == 1 else f"{stems[path]} {track.name}"
        of = str(path) if alone else f"{path}: {name}"
        where = partial(_place, of)
        position_m = placed(track.places, origin, options.bounds, where)
        flight, more = _checked(position_m, track.times_s, track.above, options, where)
        flights.append(flight)
        names.append(name)
        notes += more
    clock = Clock()
    if kind in _TIMED and any(timed):
        clock = _clock_of([track for _, _, track in tracks], options)
        flights = [
            _from_start(flight, clock.first_s, options, name) if has else flight
            for flight, has, name in zip(flights, timed, names, strict=True)
        ]
    stays = [kind == "qgc" or not has for has in timed]
    done = _over(flights, names, options, files[0], clock, stays)
    return replace(done, notes=list(dict.fromkeys([*notes, *done.notes])), origin=origin)


def _clock_of(tracks: Sequence[Track], options: Options) -> Clock:
    """The clock of tracks, some of which have times."""
    zones: Zones = frozenset().union(*(track.zones for track in tracks))
    if None in zones and len(zones) > 1:
        raise InputError("`files`: some times have a time zone and some have none")
    first_s = min(float(track.times_s[0]) for track in tracks if track.times_s is not None)
    if options.clock == "each" and len(tracks) > 1:
        return Clock("seconds", first_s, each=True)
    return Clock("dates" if zones else "seconds", first_s, zones)


def _read(kind: str, path: Path, options: Options) -> Tracks:
    if kind == "kml":
        return read_kml(path)
    if kind == "gpx":
        return read_gpx(path)
    if kind == "ulog":
        return read_ulog(path)
    plain = text_of(path).startswith("QGC WPL")
    return (read_wpl if plain else read_qgc)(path, options.speed_m_s)


def _place(of: str, index: int) -> str:
    return f"{of}, place {index + 1}"


def _checked(
    position_m: Array, times_s: Array | None, above: Above, options: Options, where: Where
) -> tuple[Flight, list[str]]:
    """The flight over some places with heights above the ground, and notes on its heights.

    Args:
        position_m: Places, shape [n, 3].
        times_s: Times of the places, shape [n]; None: they are flown at the given speed.
        above: Reference of the heights.
        options: The user's options.
        where: Function that names a place in messages.

    Raises:
        InputError: A height or a speed is not possible, or no speed is given.
    """
    if times_s is None and options.speed_m_s is None:
        raise InputError("`speed`: is missing; a path without times does not contain a speed")
    position_m, note = position_m.copy(), None
    if options.height_m is not None:
        position_m[:, 2] = options.height_m
    else:
        position_m[:, 2], note = above_ground(position_m[:, 2], above, options.ground_m, where)
    if times_s is None:
        flight = along(position_m, float(options.speed_m_s or 0))
    else:
        flight = Flight(times_s, position_m)
        check_speed(flight, options.bounds, where)
    return flight, [note] if note else []


def _from_start(flight: Flight, first_s: float, options: Options, name: str) -> Flight:
    """The flight on a clock that starts at 0 with the first one, or with itself."""
    starts_s = float(flight.times_s[0])
    late_s = starts_s - first_s
    longest_s = options.bounds.longest_gap_s
    if options.clock != "each" and late_s > longest_s:
        raise InputError(
            f"`clock`: {name} starts {late_s:,.6g} s after the first UAV; say `each` if each UAV "
            f"starts at 0, or allow such a gap with `longest_gap_s` ({longest_s:g} s)"
        )
    check_gaps(flight.times_s, starts_s, starts_s, options.bounds, partial(_place, name))
    return replace(
        flight, times_s=flight.times_s - (starts_s if options.clock == "each" else first_s)
    )


def _over(
    flights: Sequence[Flight],
    names: Sequence[str],
    options: Options,
    source: Path,
    clock: Clock,
    stays: Sequence[bool],
) -> Imported:
    """The trace of flights that start at t = 0, with the gains of a channel along them.

    Args:
        flights: The flights.
        names: Their names.
        options: The user's options.
        source: Name of the file in messages.
        clock: The clock of the files.
        stays: For each flight, whether the UAV stays where it ends, by the meaning of the file.
    """
    last_s = max(float(flight.times_s[-1]) for flight in flights)
    begin_s, end_s = _window(options, clock, last_s)
    notes = []
    for k, (flight, is_planned) in enumerate(zip(flights, stays, strict=True)):
        span_s = float(flight.times_s[0]), float(flight.times_s[-1])
        if not is_planned:
            notes += _held_places(_uav(k, names), span_s, (begin_s, end_s), options)
        elif len(flights) > 1 and span_s[1] < end_s - options.slot_s:
            notes.append("UAVs whose path ends before that of another one stay at its end")
    position_m = sampled(flights, options.slot_s, source, begin_s, end_s)
    trace = _with_gains(position_m, options)
    notes = list(dict.fromkeys(notes))
    return Imported(trace, names, notes, None, clock, begin_s)


def _uav(k: int, names: Sequence[str]) -> str:
    """The k-th UAV of the trace, with its name in the files."""
    return f"uav{k + 1} ({names[k]})"


def _held_places(
    uav: str, known_s: tuple[float, float], window_s: tuple[float, float], options: Options
) -> list[str]:
    """The note, if there is one, that a UAV stays where its places begin and end.

    Raises:
        InputError: It would stay there for more than a slot, and the user has not allowed it.
    """
    if not (missing := _ends_of(_unknown(known_s, window_s, options.slot_s))):
        return []
    if not options.hold:
        raise InputError(
            f"`hold`: {uav} has no position in the {missing}; choose a window with `from` and "
            f"`to` in which all UAVs have one, or give `hold` if it stays in place"
        )
    return [f"{uav} has no position in the {missing}; it stays in place"]


def _unknown(
    known_s: tuple[float, float], window_s: tuple[float, float], slot_s: float
) -> tuple[float, float]:
    """How long nothing is known at the beginning and at the end of a window, in s.

    Less than a slot counts as nothing.
    """
    early_s = min(known_s[0], window_s[1]) - window_s[0]
    late_s = window_s[1] - max(known_s[1], window_s[0])
    early_s, late_s = (s if s >= slot_s * (1 - 1e-6) else 0.0 for s in (early_s, late_s))
    return early_s, late_s


def _ends_of(unknown_s: tuple[float, float]) -> str:
    """The spans of `_unknown` in words; empty: there is none."""
    spans = zip(("first", "last"), unknown_s, strict=True)
    return " and the ".join(f"{which} {round(span, 6):.9g} s" for which, span in spans if span)


def _with_gains(position_m: Array, options: Options) -> SlotTrace:
    """A trace of these positions [K, S, 3], with the gains of a channel there."""
    if options.scenario is not None:
        try:
            return flown(options.scenario, position_m, options.slot_s)
        except ChannelError as error:
            raise InputError(str(error)) from None
    far_m = np.linalg.norm(position_m - np.array(UNNAMED_STATION_M), axis=2)
    gain = 10 ** (-free_space_db(np.maximum(far_m, NEAREST_M), UNNAMED_CARRIER_HZ) / 10)
    return ChannelTrace(gain, options.slot_s, position_m)


# --- tables --------------------------------------------------------------------------------------


def _of_tables(files: Sequence[Path], options: Options) -> Imported:
    reading = csv_files.Reading(**{name: getattr(options, name) for name in _OF_TABLES})
    table = csv_files.read(files, reading)
    has_values, has_places = bool(table.uavs[0].values), table.uavs[0].places is not None
    if any(name in SNR_FIELDS for name in table.uavs[0].values):
        table = _with_gains_of_snr(table, options)
    elif has_values:
        _refuse_given(options, ("scenario",), "csv", ": the table itself has gains or rates")
    if not has_places:
        unused = ("height_m", "ground_m", "origin", "within_km", "fastest_m_s")
        _refuse_given(options, unused, "csv", ": the table has no positions")
    if not table.degrees:
        _refuse_given(options, ("origin",), "csv", ": the table has no latitudes")
    flights, origin, notes = _flights_of(table, options)
    notes = [*table.notes, *notes]
    starts = [float(rows.times_s[0]) for rows in table.uavs]
    shifts = starts if options.clock == "each" else [min(starts)] * len(starts)
    clocks = [rows.times_s - shift_s for rows, shift_s in zip(table.uavs, shifts, strict=True)]
    steps_s = [float(np.median(np.diff(own))) if len(own) > 1 else np.inf for own in clocks]
    step_s = min(steps_s)
    last_s = max(float(own[-1]) for own in clocks)
    for rows, own in zip(table.uavs, clocks, strict=True):
        check_gaps(own, 0.0, last_s, options.bounds, rows.where)
    most = max(map(len, clocks))
    if most > 2 and last_s < options.slot_s * (1 - 1e-9):
        raise InputError(
            f"{files[0]}: all {most:,} rows of a UAV lie within {last_s:.3g} s, less than a slot "
            f"of {options.slot_s:g} s; give the unit of the times (time=COLUMN:UNIT) or another "
            "`slot_s`"
        )
    is_each = options.clock == "each" and len(clocks) > 1
    clock = Clock(each=True) if is_each else table.clock
    begin_s, end_s = _window(options, clock, last_s + min(step_s, options.slot_s))
    slots = slots_of(end_s - begin_s, options.slot_s, len(clocks), files[0])
    names = [rows.name for rows in table.uavs]
    position: Array | None = None
    if flights:
        for k, own in enumerate(clocks):
            ends_s = float(own[0]), float(own[-1])
            notes += _held_places(_uav(k, names), ends_s, (begin_s, min(end_s, last_s)), options)
        at_s = begin_s + options.slot_s * np.arange(slots, dtype=np.float64)
        moved = [replace(f, times_s=own) for f, own in zip(flights, clocks, strict=True)]
        position = np.stack([flight.at(at_s) for flight in moved])
    if not has_values:
        assert position is not None
        trace: SlotTrace = _with_gains(position, options)
        return Imported(trace, names, notes, origin, clock, begin_s)
    slot_of = [np.floor((own - begin_s) / options.slot_s + 1e-6) for own in clocks]
    if (most := max(int(np.unique(own, return_counts=True)[1].max()) for own in slot_of)) > 1:
        notes.append(f"a slot has the mean of up to {most:,} rows of a UAV")
    fields: dict[str, list[Array]] = {name: [] for name in table.uavs[0].values}
    usual_s = step_s if np.isfinite(step_s) else options.slot_s
    for k, (rows, own, its_s) in enumerate(zip(table.uavs, clocks, steps_s, strict=True)):
        # A value holds until the next row, so the last one of a UAV holds for one step.
        its_known_s = float(own[0]), float(own[-1]) + (its_s if np.isfinite(its_s) else usual_s)
        unknown_s = _unknown(its_known_s, (begin_s, end_s), options.slot_s)
        if missing := _ends_of(unknown_s):
            then = "its nearest value holds there" if options.hold else "an outage"
            notes.append(f"{_uav(k, names)} has no rows in the {missing}: {then}")
        if options.hold:
            unknown_s = 0.0, 0.0
        known_s = unknown_s[0], end_s - begin_s - unknown_s[1] if unknown_s[1] else np.inf
        for name, values in rows.values.items():
            fields[name].append(means(own - begin_s, values, options.slot_s, slots, known_s))
    trace = _checked_fields(fields | {"slot_s": options.slot_s}, files[0])
    trace = replace(trace, position_m=position)
    return Imported(trace, names, notes, origin, clock, begin_s)


def _with_gains_of_snr(table: csv_files.Table, options: Options) -> csv_files.Table:
    """The table with gains instead of signal-to-noise ratios, by a scenario's powers and noise."""
    scenario = options.scenario
    if scenario is None:
        raise InputError(
            "`scenario`: is missing; a signal-to-noise ratio becomes a gain by its power and noise"
        )
    if scenario.uavs.count != len(table.uavs):
        raise InputError(
            f"`scenario`: uavs.count is {scenario.uavs.count}; the table's number of UAVs is "
            f"{len(table.uavs)}"
        )
    unit_snr = of_gains(scenario).unit_snr
    uavs = []
    for k, rows in enumerate(table.uavs):
        gains = {}
        for name, snr in rows.values.items():
            gain, way = SNR_FIELDS[name]
            gains[gain] = snr / unit_snr[way, k]
            if (i := first(gains[gain] > 1)) is not None:
                raise InputError(
                    f"{rows.where(i)}: {name}_db {10 * np.log10(snr[i]):.6g} would need a gain of "
                    f"{10 * np.log10(gains[gain][i]):.4g} dB with the scenario's power and noise"
                )
        uavs.append(replace(rows, values=gains))
    return replace(table, uavs=uavs)


def _flights_of(
    table: csv_files.Table, options: Options
) -> tuple[list[Flight], Origin | None, list[str]]:
    """The flights of a table with positions, their origin in degrees, and notes on them."""
    origin: Origin | None = None
    if table.degrees:
        start = min(table.uavs, key=lambda rows: rows.line).places
        assert start is not None
        origin = options.origin or (float(start[0, 0]), float(start[0, 1]))
    flights, notes = [], []
    for rows in table.uavs:
        if rows.places is None:
            continue
        if origin is not None:
            position_m = placed(rows.places, origin, options.bounds, rows.where)
        else:
            position_m = rows.places
            check_distance(position_m, options.bounds, rows.where)
        flight, more = _checked(position_m, rows.times_s, "unknown", options, rows.where)
        flights.append(flight)
        notes += more
    return flights, origin, list(dict.fromkeys(notes))


def means(
    times_s: Array,
    values: Array,
    slot_s: float,
    slots: int,
    known_s: tuple[float, float] = (-np.inf, np.inf),
) -> Array:
    """Mean in each slot of values that hold until the next one, shape [slots].

    Args:
        times_s: Times of the values, shape [n]; slot 0 starts at t = 0. The first value also holds
            before its time.
        values: Shape [n].
        slot_s: Length of a slot, s.
        slots: Number of slots.
        known_s: Time from and until which the values are known. A mean is that of the part of its
            slot that is known, and 0 where there is none.
    """
    at = times_s / slot_s  # in slots
    at = np.where(np.abs(at - np.round(at)) < 1e-6, np.round(at), at)
    low, high = np.clip(np.array(known_s) / slot_s, 0, slots)
    low, high = (round(end) if abs(end - round(end)) < 1e-6 else end for end in (low, high))
    inside = at[(at > 0) & (at < slots)]
    edges = np.unique(np.concatenate([np.arange(slots + 1, dtype=np.float64), inside, [low, high]]))
    slot = np.floor(edges[:-1]).astype(np.int64)
    held = values[np.maximum(np.searchsorted(at, edges[:-1], side="right") - 1, 0)]
    is_known = (edges[:-1] >= low) & (edges[:-1] < high)
    widths = np.where(is_known, np.diff(edges), 0.0)
    sums = np.bincount(slot, weights=held * widths, minlength=slots)
    parts = np.bincount(slot, weights=widths, minlength=slots)
    # A value that holds for a whole slot is taken as it is, not multiplied and summed.
    whole = (np.bincount(slot, minlength=slots) == 1) & (parts > 0)
    starts = np.searchsorted(slot, np.arange(slots))
    some = (parts > 0) & (parts < 1 - 1e-9)
    return np.where(whole, held[starts], np.where(some, sums / np.where(some, parts, 1), sums))


# --- windows and repetition ----------------------------------------------------------------------


def _window(options: Options, clock: Clock, last_s: float) -> tuple[float, float]:
    """Start and end of the imported window, s from the first time."""
    begin_s = clock.seconds("from", options.first, 0.0)
    end_s = clock.seconds("to", options.last, last_s)
    if not 0 <= begin_s < max(last_s, 1e-9):
        raise InputError(
            f"`from`: must be within the {last_s:g} s of the file ({_ends(clock, 0.0, last_s)}), "
            f"not {begin_s:.9g} s"
        )
    if not begin_s < max(end_s, 1e-9) or end_s > last_s + options.slot_s:
        raise InputError(
            f"`to`: must be after `from` and at most {last_s:g} s ({clock.text(last_s)}), not "
            f"{end_s:.9g} s"
        )
    return begin_s, end_s


def _ends(clock: Clock, begin_s: float, end_s: float) -> str:
    return f"{clock.text(begin_s)} to {clock.text(end_s)}"


def _repeated(trace: SlotTrace, options: Options, source: Path) -> SlotTrace:
    """The trace repeated: a number of times, or until it lasts some seconds."""
    repeat = options.repeat
    if repeat is None:
        return trace
    matched = re.fullmatch(r"(\d{1,9})|(\d{1,9}(?:\.\d*)?) ?s", repeat)
    if not matched or float(matched[1] or matched[2]) == 0:
        raise InputError(f"`repeat`: must be a number of times, or seconds as 60s, not {repeat!r}")
    whole_s = trace.slots * trace.slot_s
    seconds = int(matched[1]) * whole_s if matched[1] else float(matched[2])
    slots = slots_of(seconds, trace.slot_s, trace.uavs, source)
    if slots > trace.slots and trace.position_m is not None:
        ends_m = trace.position_m[:, [-1, 0]]
        far_m = np.linalg.norm(np.diff(ends_m, axis=1)[:, 0], axis=1)
        fastest_m_s = options.bounds.fastest_m_s
        if (k := first(far_m > fastest_m_s * trace.slot_s * (1 + 1e-9))) is not None:
            raise InputError(
                f"`repeat`: uav{k + 1} ends {far_m[k]:,.1f} m from its start, which it would reach "
                f"in one slot at {far_m[k] / trace.slot_s:,.0f} m/s; at most {fastest_m_s:g} m/s "
                "(`fastest_m_s`)"
            )
    return trace.at(np.arange(slots) % trace.slots)
