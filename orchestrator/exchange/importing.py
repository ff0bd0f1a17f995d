# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Imports files of all supported formats as channel traces."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from ns3_scenarios.aerial import free_space_db
from ns3_scenarios.errors import ChannelError
from ns3_scenarios.trace import ChannelTrace, SlotTrace, TraceError, trace_of
from orchestrator.exchange import kml, mahimahi, ns2, qgc, tables
from orchestrator.exchange.files import Array, Flight, along, local_m, sampled
from orchestrator.scenario.channel import flown
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from testbed.core.words import not_one_of

FORMATS = ("mahimahi", "ns2", "csv", "kml", "qgc")
BASE_STATION_M, CARRIER_HZ, NEAREST_M = (0.0, 0.0, 30.0), 2e9, 1.0
"""Values without a scenario, as in the paper; NEAREST_M limits the gain of free space."""


@dataclass(frozen=True)
class Options:
    """Parameters that a file does not contain."""

    slot_s: float = 0.1
    scenario: Scenario | None = None
    """Gives base station, carrier and channel for the gains of a flight; None: free space."""
    height_m: float | None = None
    """Height of all waypoints, m; None: as in the file."""
    speed_m_s: float | None = None
    origin: tuple[float, float] | None = None
    """Latitude and longitude of x = y = 0; None: the start of the first file."""
    tx_dbm: float | None = None
    """Transmit power of the reference signal for `rsrp_dbm`, dBm."""
    columns: Mapping[str, str] = field(default_factory=dict)
    down: Sequence[Path] = ()
    """Mahimahi's downlink files."""


def imported(kind: str, files: Sequence[Path], options: Options) -> SlotTrace:
    """The trace that files of a foreign format describe, one or several UAVs.

    Raises:
        InputError: A file is not valid; the message names it and the problem.
    """
    if kind not in FORMATS:
        raise InputError(f"`format`: {not_one_of(kind, FORMATS)}")
    if not 1e-3 <= options.slot_s <= 10:
        raise InputError(f"`slot_s`: must be from 0.001 to 10, not {options.slot_s:g}")
    if kind == "mahimahi":
        return mahimahi.read(files, options.down, options.slot_s)
    if kind == "csv":
        return _of_table(files, options)
    if options.speed_m_s is not None and not 0 < options.speed_m_s < 1e4:
        raise InputError(f"`speed`: must be from 0 to 10000 m/s, not {options.speed_m_s:g}")
    flown_by: list[Flight] = []
    origin = options.origin
    for path in files:
        if kind == "ns2":
            flown_by += ns2.read(path)
        else:
            found = kml.read_kml(path) if kind == "kml" else qgc.read_qgc(path, options.speed_m_s)
            for track in found.tracks:
                origin = origin or found.origin or (track.places[0, 0], track.places[0, 1])
                latitude, longitude, height_m = track.places.T
                placed = local_m(latitude, longitude, height_m, origin)
                if track.times_s is None:
                    flown_by.append(along(placed, options.speed_m_s or 1.0))
                else:
                    flown_by.append(Flight(track.times_s - track.times_s[0], placed))
    return _over(sampled(flown_by, options.slot_s, files[0]), options)


def _over(position_m: Array, options: Options) -> SlotTrace:
    """A trace of these positions [K, S, 3], with the gains of a channel there."""
    if options.height_m is not None:
        position_m = position_m.copy()
        position_m[..., 2] = options.height_m
    if options.scenario is not None:
        try:
            return flown(options.scenario, position_m, options.slot_s)
        except ChannelError as error:
            raise InputError(str(error)) from None
    far_m = np.linalg.norm(position_m - np.array(BASE_STATION_M), axis=2)
    gain = 10 ** (-free_space_db(np.maximum(far_m, NEAREST_M), CARRIER_HZ) / 10)
    return ChannelTrace(gain, options.slot_s, position_m)


def _of_table(files: Sequence[Path], options: Options) -> SlotTrace:
    if len(files) > 1:
        raise InputError("`files`: one CSV file at a time; its column uav distinguishes UAVs")
    (path,) = files
    found = tables.read(path, options.columns, options.slot_s, options.origin)
    values = dict(found.values)
    if "rsrp_dbm" in values:
        if options.tx_dbm is None:
            raise InputError("`tx_dbm`: is missing; rsrp_dbm needs the transmit power")
        values["gain_db"] = values.pop("rsrp_dbm") - options.tx_dbm
    fields = {
        name.removesuffix("_db"): 10 ** (value / 10) if name.endswith("_db") else value
        for name, value in values.items()
    }
    position = found.position_m
    if position is not None and options.height_m is not None:
        position[..., 2] = options.height_m
    if not fields:
        assert position is not None
        return _over(position, options)
    try:
        trace = trace_of(fields | {"slot_s": options.slot_s}, str(path))
    except TraceError as error:
        raise InputError(str(error)) from None
    return replace(trace, position_m=position)
