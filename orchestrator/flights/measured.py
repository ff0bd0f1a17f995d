# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Measured flights, and the checks when their file is read."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ns3_scenarios.trace import (
    FARTHEST_M,
    HIGHEST_M,
    KINDS,
    ChannelTrace,
    TraceError,
    check_each,
    check_positions,
    checked_slot_s,
    load_trace,
    read_arrays,
)
from ns3_scenarios.trace import FIELDS as TRACE_FIELDS
from orchestrator.scenario.schema import MOST_BLOCKS
from testbed.core.errors import InputError
from testbed.system.files import write_whole

Array = npt.NDArray[np.float64]

BOUNDS: Mapping[str, tuple[float, float]] = {
    "rsrp_dbm": (-160.0, 0.0),
    "snr_db": (-40.0, 60.0),
    "snr_up_db": (-40.0, 60.0),
    "cqi": (0.0, 15.0),
    "mcs_up": (0.0, 31.0),
    "uplink_bps": (0.0, 1e12),
    "bler_up": (0.0, 1.0),
    "mcs_down": (0.0, 31.0),
    "downlink_bps": (0.0, 1e12),
    "bler_down": (0.0, 1.0),
    "blocks_up": (0.0, 1e6),
    "buffer_up_bytes": (0.0, 1e12),
    "connected": (0.0, 1.0),
}
"""Names of the values per UAV and slot, with the smallest and the largest accepted value."""
LEVELS = ("rsrp_dbm", "snr_db", "snr_up_db")
"""A measured flight has at least one of these levels."""
CARRIER_HZ = (1e7, 3e11)
"""Lowest and highest carrier frequency."""
UNNAMED_STATION_M, UNNAMED_CARRIER_HZ = (0.0, 0.0, 30.0), 2e9
"""Base station and carrier frequency of files that do not contain them: those of the paper."""
_OF_ALL = ("base_station", "origin", "carrier_up_hz", "carrier_down_hz", "resource_blocks")
_TEXTS = ("start", "source")
FIELDS = ("position", "slot_s", *BOUNDS, *_OF_ALL, *_TEXTS)
"""Names of all arrays that a file of a measured flight may have."""


def _absent() -> Array:
    return np.full((1, 1), np.nan)


@dataclass(frozen=True)
class MeasuredFlight:
    """Positions of K UAVs in S slots, and the values from their radios; slot 0 starts at t = 0.

    All measured values have the shape [K, S], and NaN means that a value was not measured. An
    imported flight has one UAV, K = 1. A value that was never measured is NaN in all slots.
    """

    position: Array
    """Position at the start of each slot in m, shape [K, S, 3]: x to the east, y to the north, z
    above the ground."""
    slot_s: float
    """Length of a slot in s."""
    rsrp_dbm: Array = field(default_factory=_absent)
    """Reference signal received power at the UAV, in dBm; its offset is unknown where the receiver
    is not calibrated."""
    snr_db: Array = field(default_factory=_absent)
    """Signal-to-noise ratio of the downlink at the UAV, in dB."""
    snr_up_db: Array = field(default_factory=_absent)
    """Signal-to-noise ratio of the uplink's data channel at the base station, in dB."""
    cqi: Array = field(default_factory=_absent)
    """Channel quality indicator, 0 to 15."""
    mcs_up: Array = field(default_factory=_absent)
    """Mean index of the uplink's modulation and coding scheme; NaN without a transport block."""
    uplink_bps: Array = field(default_factory=_absent)
    """Rate of the uplink in bit/s."""
    bler_up: Array = field(default_factory=_absent)
    """Block error rate of the uplink, 0 to 1; NaN without a transport block."""
    mcs_down: Array = field(default_factory=_absent)
    """Mean index of the downlink's modulation and coding scheme; NaN without a transport block."""
    downlink_bps: Array = field(default_factory=_absent)
    """Rate of the downlink in bit/s."""
    bler_down: Array = field(default_factory=_absent)
    """Block error rate of the downlink, 0 to 1; NaN without a transport block."""
    blocks_up: Array = field(default_factory=_absent)
    """Transport blocks per second in the uplink, decoded or not."""
    buffer_up_bytes: Array = field(default_factory=_absent)
    """Data in the UAV's transmit buffer for the uplink, in bytes."""
    connected: Array = field(default_factory=_absent)
    """1 where the UAV was connected to the base station, 0 where it was not, NaN: unknown."""
    gain_db: Array = field(default_factory=_absent)
    """Channel gain in dB, from a trace; of the uplink if the directions differ; NaN: outage."""
    gain_down_db: Array = field(default_factory=_absent)
    """Channel gain of the downlink in dB, from a trace; NaN: outage."""
    base_station: Array | None = None
    """Position of the base station's antenna in m, shape [3]; None: unknown."""
    origin: Array | None = None
    """Latitude and longitude of x = y = 0 in degrees, shape [2]; None: unknown."""
    carrier_up_hz: float | None = None
    """Carrier frequency of the uplink in Hz; None: unknown."""
    carrier_down_hz: float | None = None
    """Carrier frequency of the downlink in Hz; None: unknown."""
    resource_blocks: int | None = None
    """Resource blocks of the carrier; None: unknown."""
    start: str | None = None
    """Local date and time of t = 0 (ISO 8601), as in the logs; None: unknown."""
    source: str | None = None
    """JSON text with the names and SHA-256 digests of the imported files; None: unknown."""

    def __post_init__(self) -> None:
        for name in (*BOUNDS, "gain_db", "gain_down_db"):
            if not np.isfinite(values := getattr(self, name)).any():
                # Values that were never measured take no memory.
                absent = np.broadcast_to(np.float64(np.nan), self.position.shape[:2])
                object.__setattr__(self, name, absent)
            elif values.shape != self.position.shape[:2]:
                raise ValueError(f"{name} has the shape {values.shape}")

    @property
    def uavs(self) -> int:
        """Number of UAVs, K."""
        return len(self.position)

    @property
    def slots(self) -> int:
        """Number of slots, S."""
        return int(self.position.shape[1])

    @property
    def times_s(self) -> Array:
        """Start of each slot in s, shape [S]."""
        return self.slot_s * np.arange(self.slots, dtype=np.float64)

    @property
    def distances_m(self) -> Array | None:
        """Distance of each UAV from the base station in m, shape [K, S]; None: it is unknown."""
        if self.base_station is None:
            return None
        return np.asarray(np.linalg.norm(self.position - self.base_station, axis=2))

    def save(self, path: Path) -> None:
        """Write the flight as an NPZ file, atomically, with the arrays that have a value.

        Gains are not written, because a file with gains is a trace.
        """
        arrays: dict[str, Any] = {"position": self.position, "slot_s": np.float64(self.slot_s)}
        for name in BOUNDS:
            if np.isfinite(values := getattr(self, name)).any():
                arrays[name] = values
        arrays |= {
            name: np.asarray(value)
            for name in (*_OF_ALL, *_TEXTS)
            if (value := getattr(self, name)) is not None
        }

        def fill(part: Path) -> None:
            with part.open("wb") as file:  # NumPy would append .npz to a file name
                np.savez(file, **arrays)

        write_whole(path, fill)


def load_flight(path: Path) -> MeasuredFlight:
    """Read the NPZ file of a measured flight, or a channel trace that has positions and gains.

    A measured flight needs `position`, `slot_s` and one of `LEVELS`. The gains of a trace become
    `gain_db` and `gain_down_db`.

    Raises:
        InputError: The file is neither of them; the message names the file and the field.
    """
    gains = [name for kind in KINDS[:2] for name in kind]
    try:
        given = read_arrays(path, (*FIELDS, *gains), TRACE_FIELDS)
        levels, linear = ([name for name in names if name in given] for names in (LEVELS, gains))
        if levels and linear:
            raise TraceError(f"{path}: has {levels[0]} and {linear[0]}; give one or the other")
        if linear:
            return _of_trace(path)
        return _of_fields(given, path)
    except TraceError as error:
        raise InputError(str(error)) from None


def _fits(least: float, most: float, values: Array) -> npt.NDArray[np.bool_]:
    return np.isnan(values) | ((values >= least) & (values <= most))


def _is_whole(values: Array) -> npt.NDArray[np.bool_]:
    return np.asarray(np.isnan(values) | (values % 1 == 0))


def _of_trace(path: Path) -> MeasuredFlight:
    trace = load_trace(path)
    assert isinstance(trace, ChannelTrace)
    if trace.position_m is None:
        raise TraceError(f"{path}: position is missing")
    gain_db = _decibels(trace.gain)
    down_db = gain_db if trace.gain_down is None else _decibels(trace.gain_down)
    return MeasuredFlight(trace.position_m, trace.slot_s, gain_db=gain_db, gain_down_db=down_db)


def _decibels(gain: Array) -> Array:
    """Gains in dB; NaN for an outage."""
    return 10 * np.log10(np.where(gain > 0, gain, np.nan))


def _of_fields(given: Mapping[str, npt.NDArray[Any]], path: Path) -> MeasuredFlight:
    def refuse(what: str) -> TraceError:
        return TraceError(f"{path}: {what}")

    for name in ("position", "slot_s"):
        if name not in given:
            raise refuse(f"{name} is missing")
    position = given["position"]
    if position.ndim != 3 or not position.size:
        raise refuse(f"position must be numbers of shape [K, S, 3], not {position.shape}")
    shape, slot_s = position.shape[:2], checked_slot_s(given["slot_s"], refuse)
    check_positions(position, shape, slot_s, refuse)
    found: dict[str, Any] = {}
    for name, (least, most) in BOUNDS.items():
        if name not in given:
            continue
        values = given[name]
        if values.dtype.kind not in "fiu" or values.shape != shape:
            raise refuse(
                f"{name} must be real numbers of shape {shape}, not {values.dtype} of shape "
                f"{values.shape}"
            )
        fits = partial(_fits, least, most)
        check_each(name, values, fits, f"must be from {least:g} to {most:g}, or NaN", refuse)
        if name == "connected":
            check_each(name, values, _is_whole, "must be 0 or 1", refuse)
        found[name] = values.astype(np.float64)
    if not any(np.isfinite(found[name]).any() for name in LEVELS if name in found):
        raise refuse(f"has no value of {', '.join(LEVELS)}, nor gains")
    for name, size in (("base_station", 3), ("origin", 2)):
        if name in given:
            found[name] = _finite(given[name], name, size, refuse)
    station, origin = found.get("base_station"), found.get("origin")
    if station is not None:
        far_m = np.abs(station).tolist()
        if max(far_m[:2]) > FARTHEST_M or not 0 <= station[2] <= HIGHEST_M:
            raise refuse(f"base_station {station.tolist()} is not a position above the ground")
    if origin is not None and not (abs(origin[0]) <= 90 and abs(origin[1]) <= 180):
        raise refuse(f"origin must be latitude and longitude in degrees, not {origin.tolist()}")
    for name, least, most in (
        *((name, *CARRIER_HZ) for name in ("carrier_up_hz", "carrier_down_hz")),
        ("resource_blocks", 1, MOST_BLOCKS),
    ):
        if name in given:
            (value,) = _finite(given[name], name, 1, refuse)
            if not least <= value <= most:
                raise refuse(f"{name} must be from {least:g} to {most:g}, not {value:g}")
            found[name] = float(value)
    if (blocks := found.get("resource_blocks")) is not None:
        if blocks % 1:
            raise refuse(f"resource_blocks must be an integer, not {blocks:g}")
        found["resource_blocks"] = int(blocks)
    for name, parse, what in (
        ("start", datetime.fromisoformat, "a date and time of ISO 8601"),
        ("source", json.loads, "JSON"),
    ):
        if name in given:
            try:
                parse(text := str(given[name]))
            except (ValueError, RecursionError):
                raise refuse(f"{name} must be {what}, not {text[:40]!r}") from None
            found[name] = text
    return MeasuredFlight(position.astype(np.float64), slot_s, **found)


def _finite(
    given: npt.NDArray[Any], name: str, size: int, refuse: Callable[[str], TraceError]
) -> Array:
    """A field of a fixed number of finite numbers, shape [size]."""
    if given.dtype.kind not in "fiu" or given.size != size or not np.isfinite(given).all():
        raise refuse(
            f"{name} must have {size} finite number{'s' * (size > 1)}, not "
            f"{str(given.tolist())[:60]}"
        )
    return given.astype(np.float64).ravel()
