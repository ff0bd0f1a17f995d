# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Content of a flight file as readers return it, before it is checked and projected onto the
ground's plane."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from orchestrator.exchange.clocks import Zones
from orchestrator.exchange.files import Array

Origin = tuple[float, float]
"""Latitude and longitude in degrees of x = y = 0."""
Above = Literal["ground", "sea", "unknown"]
"""Reference of a file's heights."""


@dataclass(frozen=True)
class Track:
    """The places of one UAV in the order of its flight."""

    name: str
    """The UAV's name in the file; empty where the file has none."""
    places: Array
    """Latitude and longitude in degrees of WGS 84 and height in m, shape [n, 3]."""
    times_s: Array | None
    """Time at each place in s, shape [n], on one clock for all tracks of a file; None: the file
    has no times, and the path is flown at a constant speed."""
    above: Above
    zones: Zones = frozenset()
    """The time zones of dates; empty: the times are no dates."""


@dataclass(frozen=True)
class Tracks:
    """The flights of a file."""

    tracks: Sequence[Track]
    origin: Origin | None = None
    """Origin that the file itself gives, such as a plan's home; None: the first place."""
    notes: Sequence[str] = ()
    """Remarks for the user about how the file was read, one short sentence each: parts that were
    skipped, joined or assumed."""
