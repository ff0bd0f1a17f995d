# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The files by which programs of a session fly their UAVs, and what became of their records.

Shortly before each slot the record of every UAV is read (`SteeredFlight`), and each node gets a
report of the last slot. Where the channel is a given trace, the same is done, but the UAVs fly as
the trace says; what the programs would have flown is compared with it.
"""

import errno
import math
import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ns3_scenarios.steered import REASONS, SteeredFlight
from ns3_scenarios.trace import TwoWay, both_ways
from orchestrator.emulated.rate_feed import LEAD_S, SessionRates
from orchestrator.scenario.channel import steered_flight
from orchestrator.scenario.schema import STEERED, ResolvedScenario
from testbed.core.node import NodeId, uav
from testbed.pilot import LINK, NO_RECORD, RECORD, STATE

MOST_LINES = 6
"""Largest number of lines about records."""
READINGS = 4
"""Number of times that a file is read until two readings agree."""
WRONG = b"?"
"""The content that is returned for a file that is no record."""
NEAR_M = 1e-3
"""Distance from a given trace that is not reported."""


class Steering:
    """The UAVs of a session that its programs fly.

    Args:
        scenario: The scenario.
        feed: Rates of the session; its channel is that of the programs, or a given trace.
        homes: Home folder of each UAV's node.
    """

    def __init__(self, scenario: ResolvedScenario, feed: SessionRates, homes: Sequence[Path]):
        self._feed, self._homes = feed, homes
        own = feed.channel.flight
        self.is_given = not isinstance(own, SteeredFlight)
        """Whether the UAVs fly as a given trace says."""
        self.flight = own if isinstance(own, SteeredFlight) else steered_flight(scenario)
        if self.is_given:  # the first slot is made before there are programs
            self.flight.positions(0, 1, feed.slot_s)
        self._off_m = np.zeros(len(homes))
        """Largest distance of each UAV from a given trace, shape [K]."""
        self._next = 1
        """The next slot for which records are read."""
        self._lead_s = LEAD_S[scenario.emulation.clock]
        self._links: list[int] = []
        unknown = RECORD.pack(*[math.nan] * 6, NO_RECORD)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        for home in homes:
            state = os.open(home / STATE, flags, 0o600)
            self._links.append(os.open(home / LINK, flags, 0o600))
            os.pwrite(self._links[-1], unknown, 0)
            if scenario.emulation.runtime == "docker":  # as the user of the node's image
                for file in (state, self._links[-1]):
                    os.fchown(file, home.stat().st_uid, -1)
            os.close(state)
        self.flight.read = self._read

    @staticmethod
    def of(
        scenario: ResolvedScenario, feed: SessionRates, homes: Sequence[Path]
    ) -> "Steering | None":
        """The steering of a session; None: its programs fly no UAVs."""
        return Steering(scenario, feed, homes) if scenario.mobility.model == STEERED else None

    def environment(self, node: NodeId) -> Mapping[str, str]:
        """Environment variables of a node's programs."""
        if node.is_bs:
            return {}
        home = self._homes[node.client - 1]
        return {STATE: str(home / STATE), LINK: str(home / LINK)}

    @property
    def due_s(self) -> float:
        """Emulated time of the next call of `follow` that does something."""
        return self._next * self._feed.slot_s - self._lead_s

    def follow(self, time_s: float) -> None:
        """Read the records of slots that are due, unless the feed has, and report on the slots
        before them."""
        while self.due_s <= time_s and self._next != self._feed.slots:
            if self.is_given:
                self._compare(self._next)
            self._report(self._next - 1)
            self._next += 1

    def close(self) -> None:
        """Remove the files."""
        for file in self._links:
            os.close(file)
        self._links = []
        for home in self._homes:
            for name in (STATE, LINK):
                with suppress(OSError):  # A program may have removed or replaced it.
                    (home / name).unlink()

    def _read(self, k: int) -> bytes | None:
        """The record that a program has published; None: nothing."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            file = os.open(self._homes[k] / STATE, flags)
        except OSError as error:
            return None if error.errno == errno.ENOENT else WRONG
        try:
            about = os.fstat(file)
            if not stat.S_ISREG(about.st_mode):
                return WRONG
            # A write may be under way on another processor.
            data = os.pread(file, RECORD.size + 1, 0)
            for _ in range(READINGS):
                before, data = data, os.pread(file, RECORD.size + 1, 0)
                if data == before:
                    return data or None
        except OSError:
            pass
        finally:
            os.close(file)
        return WRONG

    def _compare(self, slot: int) -> None:
        """Fly a slot as the programs say, and compare it with the trace."""
        flown_m = self.flight.positions(slot, 1, self._feed.slot_s)[:, 0]
        trace = self._feed.channel.now
        if trace.position_m is not None:
            given_m = trace.position_m[:, slot % trace.slots]
            self._off_m = np.maximum(self._off_m, np.linalg.norm(flown_m - given_m, axis=1))

    def _report(self, slot: int) -> None:
        """Report a slot to each node."""
        whole = self._feed.channel.now
        values = whole.at(np.array([slot % whole.slots])).values
        up_bps, down_bps = self._feed.rates(slot, slot + 1)
        unit = getattr(self._feed.radio, "unit_snr", None)
        snr_db = np.full((2, len(self._links)), np.nan)
        if unit is not None:
            with np.errstate(divide="ignore"):
                snr_db = 10 * np.log10(unit * np.hstack(both_ways(values)).T)
        cells = values.cells if isinstance(values, TwoWay) else None
        for k, file in enumerate(self._links):
            cell = 0 if cells is None else int(cells[k, 0])
            rates = up_bps[k, 0], down_bps[k, 0]
            status = self.flight.status[k]
            record = (slot * self._feed.slot_s, *rates, *snr_db[:, k], cell, status)
            os.pwrite(file, RECORD.pack(*record), 0)

    @property
    def notes(self) -> list[str]:
        """Lines about records that were refused, and UAVs that no program flew."""
        lines, slot_s = [], self._feed.slot_s
        for k, account in enumerate(self.flight.accounts):
            for status, slots in sorted(account.slots.items()):
                slot, record = account.first[status]
                found = f", at {slot * slot_s:.4g} s first" + (f": {record}" if record else "")
                lines.append(f"{uav(k + 1)}: {REASONS[status]} ({_of(slots)}{found})")
            if account.behind:
                lines.append(
                    f"{uav(k + 1)}: it was to fly faster than mobility.limits allows, and came "
                    f"later ({_of(account.behind)})"
                )
            if self.is_given and self._off_m[k] > NEAR_M:
                lines.append(
                    f"{uav(k + 1)}: its program says up to {self._off_m[k]:.4g} m away from the "
                    "given trace, which it flew"
                )
        still = [str(uav(k + 1)) for k, a in enumerate(self.flight.accounts) if not a.has_flown]
        if still and not self.is_given:
            named = ", ".join(still[:MOST_LINES]) + (
                f" and {len(still) - MOST_LINES} more" if len(still) > MOST_LINES else ""
            )
            lines.append(f"no program flew {named}: hovering at the start")
        more = len(lines) - MOST_LINES
        return lines if more <= 1 else [*lines[:MOST_LINES], f"{more} more lines about flights"]

    def to_json(self) -> list[dict[str, Any]]:
        """What became of the records of each UAV, for the manifest."""
        return [
            {
                "client": k + 1,
                "flown": account.has_flown,
                "slots_behind": account.behind,
                "refused": [
                    {"status": status, "slots": slots, "first_slot": account.first[status][0]}
                    for status, slots in sorted(account.slots.items())
                ],
            }
            for k, account in enumerate(self.flight.accounts)
        ]


def _of(slots: int) -> str:
    return f"{slots} slot{'s' * (slots != 1)}"
