# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The clock of a file: seconds, times of day, or dates with or without a time zone."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Literal

import pandas as pd

from orchestrator.exchange.files import is_number
from testbed.core.errors import InputError

_ZONE = re.compile(r"(?i)(?:z|[+-]\d\d(?::?\d\d)?)$")
_OF_DAY = re.compile(r"([01]?\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?")
Zones = frozenset[timedelta | None]
"""Distances of the zones from UTC that the times of a file name; None: times without a zone."""


def zones_of(texts: Iterable[str]) -> Zones:
    """The zones of dates and times of ISO 8601."""
    return frozenset(map(_offset, {_zone(text) for text in texts}))


def first_of_other_kind(texts: Sequence[str]) -> int | None:
    """Index of the first date that has a zone where the first one has none, or vice versa."""
    has = [bool(_zone(text)) for text in texts]
    return has.index(not has[0]) if has and not all(has) and any(has) else None


def _zone(text: str) -> str:
    """The end of a text that names a zone; empty: it names none."""
    found = _ZONE.search(text.strip()[10:])  # behind the date, which has a "-", too
    return found[0] if found else ""


def _offset(zone: str) -> timedelta | None:
    if not zone:
        return None
    digits = zone[1:].replace(":", "").ljust(4, "0")
    minutes = 0 if zone in "zZ" else 60 * int(digits[:2]) + int(digits[2:])
    return timedelta(minutes=-minutes if zone[0] == "-" else minutes)


@dataclass(frozen=True)
class Clock:
    """How the times of files are written, and the time that is 0 s of a trace."""

    counts: Literal["seconds", "day", "dates"] = "seconds"
    first_s: float = 0.0
    """The first time, s since midnight or since 1970; times without a zone count as UTC."""
    zones: Zones = frozenset()
    """The zones of dates."""
    each: bool = False
    """Whether each UAV has its own first time."""

    def seconds(self, name: str, given: str | None, default_s: float) -> float:
        """Seconds from the first time of a moment that a user gives.

        Args:
            name: Name of the user's option.
            given: Seconds from the first time, or a time as the files write it; None: the default.
            default_s: The default.

        Raises:
            InputError: The text is no such time.
        """
        if given is None:
            return default_s
        if is_number(given):
            return float(given)
        if self.counts == "seconds":
            why = "with `clock` each" if self.each else "as the file has no dates"
            raise InputError(f"`{name}`: must be in seconds, {why}, not {given!r}")
        if self.counts == "day":
            if not _OF_DAY.fullmatch(given):
                raise InputError(
                    f"`{name}`: must be seconds, or a time of day as in the file (12:00:00), not "
                    f"{given!r}"
                )
            whole = given if given.count(":") == 2 else f"{given}:00"
            return float(pd.to_timedelta(whole).total_seconds()) - self.first_s
        moment = pd.to_datetime(given.strip(), errors="coerce", utc=True, format="ISO8601")
        if pd.isna(moment):
            raise InputError(
                f"`{name}`: must be seconds or a date and time of ISO 8601, not {given!r}"
            )
        (zone,) = zones_of([given])
        since_s = float(moment.timestamp()) - self.first_s
        if zone is not None:
            if None in self.zones:
                raise InputError(
                    f"`{name}`: must have no time zone, as the times of the file, not {given!r}"
                )
            return since_s
        if len(self.zones) > 1:
            zones = ", ".join(map(_named, self._sorted()))
            raise InputError(
                f"`{name}`: must have a time zone, as the file has several ({zones}), not {given!r}"
            )
        (own,) = self.zones
        return since_s - (own.total_seconds() if own else 0.0)

    def text(self, at_s: float) -> str:
        """A moment of the trace as the files would write it.

        Args:
            at_s: Seconds from the first time.
        """
        if self.counts == "seconds":
            return f"{round(at_s, 6):.15g} s"
        zones = self._sorted()
        zone = zones[0] if len(zones) == 1 else timedelta()
        since = timedelta(milliseconds=round((self.first_s + at_s) * 1000))
        try:
            moment = datetime(1970, 1, 1) + since + zone
        except OverflowError:  # before the year 1 or after 9999
            return f"{round(at_s, 6):.15g} s"
        digits = "milliseconds" if moment.microsecond else "seconds"
        if self.counts == "day":
            days = f" (+{since.days} d)" if since.days else ""
            return moment.time().isoformat(digits) + days
        return moment.isoformat(timespec=digits) + (_named(zone) if zones else "")

    def _sorted(self) -> list[timedelta]:
        return sorted(zone for zone in self.zones if zone is not None)


def _named(zone: timedelta) -> str:
    return datetime(2000, 1, 1, tzinfo=timezone(zone)).isoformat()[-6:]
