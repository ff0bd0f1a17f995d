# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The injectors of several hosts, used as one.

Every host receives every order and applies it to its own ends. The counters of a link come from two
hosts, each of which counts for its own devices; their sum is what one host would report. Times of a
host's clock are converted to the local clock.
"""

import contextlib
import functools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from testbed.cluster.clock import Clocks, Reading
from testbed.control.messages import (
    Captured,
    Counters,
    Direction,
    Epoch,
    EpochBegun,
    InjectorOrder,
    InjectorReport,
    Low,
    MachineNow,
    PhaseSet,
    Samples,
    SetRates,
)
from testbed.core.clock import EmulatedClock
from testbed.core.errors import RunError
from testbed.network.injection import SAMPLE, SAMPLE_OF_WAY, impairment_width
from testbed.network.injector import Injector, Kind, Report
from testbed.network.slot_table import rows_of

Rows = np.ndarray[Any, np.dtype[np.int64]]
_ROW = 4
"""Number of values per row of the first table in `Counters.slots`."""


def there(clock: EmulatedClock, of_host: Reading) -> EmulatedClock:
    """The same emulated clock, expressed in a host's clock."""
    return replace(clock, start_ns=clock.start_ns + of_host.offset_ns)


@dataclass(frozen=True)
class Captures:
    """Functions that capture links on a host and fetch the files."""

    host: str
    """The base station's host, where all links end."""
    folder: str
    """Folder of the capture files on that host."""
    fetch: Callable[[str, Path], object]
    """Fetches a file of that folder to a local path."""


class HostInjectors(Injector):
    """Handles of the fabric processes of several hosts, used as one."""

    def __init__(
        self,
        parts: Mapping[str, Injector],
        clocks: Clocks,
        centre: str,
        fails: Callable[[str, str], object],
    ) -> None:
        """Combine the injectors of hosts.

        Args:
            parts: The injector of each host, by host name.
            clocks: The clocks of the hosts.
            centre: The base station's host, without which the run cannot continue.
            fails: Called with the name of a host whose injector failed, and the reason; the others
                continue.
        """
        self.captures: Captures | None = None
        """Functions for captures; None: captures are not possible."""
        self._files: Sequence[Path] = ()
        self._asked_ns: dict[str, int] = {}
        """Unix time at which each host last reported its counters, by its own clock."""
        self._lock = threading.Lock()
        self._variants = self._clients = 0
        self._parts = dict(parts)
        self._clocks = clocks
        self._centre = centre
        self._fails = fails
        self._samples: dict[str, Rows] = {}
        """Rows of slots that other hosts have not reported yet."""
        self._counted: dict[str, Counters] = {}
        """The last counters of each host."""
        self._assumed: dict[str, Reading] = {}
        """The clock offsets that the last epoch assumed."""
        self._end = 0
        """The first slot without rates."""
        self.errors_s: dict[str, float] = {}
        """Largest possible error of each assumed clock offset so far, in s."""

    def stop(self) -> None:
        """End the processes."""
        for part in self._parts.values():
            part.stop()

    def capture(self, files: Sequence[Path], *, headers_only: bool) -> None:
        """See `Injector.capture`; the files are fetched when the capture ends."""
        assert self.captures is not None
        own = [Path(self.captures.folder) / file.name for file in files]
        with self._watched(self.captures.host):
            self._parts[self.captures.host].capture(own, headers_only=headers_only)
        self._files = files

    def end_capture(self, until_ns: int) -> Captured:
        """See `Injector.end_capture`; the end is the time of the last counters, by the clock of the
        capturing host."""
        assert self.captures is not None
        host = self.captures.host
        with self._watched(host):
            done = self._parts[host].end_capture(self._asked_ns.get(host, until_ns))
        for file in self._files:
            self.captures.fetch(file.name, file)
        return done

    def lose(self, host: str) -> None:
        """Continue without a host, whose counters stay unchanged; may be called twice."""
        self._parts.pop(host, None)
        self._assumed.pop(host, None)

    def events(self) -> list[InjectorReport]:
        """See `Injector.events`; the first `Low` of any host is reported, later ones are not."""
        found: list[InjectorReport] = []
        for name, part in self._living():
            with self._watched(name):
                found += part.events()
        lows = [event for event in found if isinstance(event, Low) and event.end >= self._end]
        return [*lows[:1], *(event for event in found if not isinstance(event, Low))]

    def report(self) -> Report:
        """See `Injector.report`."""
        return replace(super().report(), clock_error_s=self._clock_error_s())

    def machines(self) -> dict[str, MachineNow]:
        """Clocks and CPU accounts of each host's machine."""
        found = {}
        for name, part in self._living():
            with self._watched(name):
                found[name] = part.machine()
        return found

    def ahead_s(self, host: str) -> float:
        """Seconds by which a host's clock is ahead of the last epoch's assumption."""
        assumed = self._assumed.get(host)
        if assumed is None:
            return 0.0
        return (self._clocks.of[host].now().offset_ns - assumed.offset_ns) * 1e-9

    def _clock_error_s(self) -> float:
        """Largest possible error in s between two hosts' clocks, as the last epoch assumed them."""
        errors_s = []
        for name, assumed in self._assumed.items():
            clock = self._clocks.of[name]
            off_s = abs(self.ahead_s(name))
            off_s += clock.now().bound_at(time.monotonic_ns()) * 1e-9
            errors_s.append(max(assumed.bound_ns * 1e-9, off_s) + clock.jumped_s)
            self.errors_s[name] = max(self.errors_s.get(name, 0.0), errors_s[-1])
        return sum(sorted(errors_s)[-2:])

    def _send(self, order: InjectorOrder) -> None:
        if isinstance(order, SetRates):
            rows = rows_of(order.divided) if order.divided else 1 + order.variants
            self._end = order.first + len(order.table) // (8 * rows * self._clients)
        if isinstance(order, Epoch):
            self._assumed = {name: self._clocks.of[name].now() for name in self._parts}
        for name, part in self._living():
            own = order
            if isinstance(order, Epoch):
                own = replace(order, clock=there(order.clock, self._assumed[name]))
            with self._watched(name):
                part._send(own)

    def _await(self, kind: type[Kind], timeout_s: float | None = None) -> Kind:
        answers = {}
        for name, part in self._living():
            with self._watched(name):
                answers[name] = part._await(kind, timeout_s)
        for name, answer in answers.items():
            if isinstance(answer, Counters):
                self._asked_ns[name] = answer.asked_ns
        offsets = {name: self._offset_ns(name) for name in answers}
        if kind is Samples:
            return cast(Kind, self._joined_samples(answers, offsets))  # type: ignore[arg-type]
        if kind is Counters:
            now = next(iter(answers.values()))
            gone = self._counted.keys() - answers.keys()
            self._counted |= answers  # type: ignore[arg-type]
            answers |= {name: _last_of(self._counted[name], now) for name in gone}  # type: ignore[arg-type, misc]
            offsets |= dict.fromkeys(gone, 0)
        return joined(answers, offsets)

    def _joined_samples(
        self, answers: Mapping[str, Samples], offsets_ns: Mapping[str, int]
    ) -> Samples:
        """The sum of all hosts' samples for the slots that all of them have reported.

        Later slots are kept for the next call.
        """
        width = SAMPLE + 2 * SAMPLE_OF_WAY * self._clients
        for name, told in answers.items():
            rows = np.frombuffer(told.table, np.int64).reshape(-1, width).copy()
            counted = rows[:, SAMPLE::SAMPLE_OF_WAY]
            counted[counted != 0] -= offsets_ns[name]
            rows[:, 1:3] -= offsets_ns[name]
            waiting = self._samples.get(name, rows[:0])
            self._samples[name] = np.concatenate([waiting, rows])
        tables = [self._samples[name] for name in answers]
        end = min(len(rows) for rows in tables)
        for name in answers:
            self._samples[name] = self._samples[name][end:]
        whole: Rows = np.sum([rows[:end] for rows in tables], axis=0)
        centre = tables[list(answers).index(self._centre)]
        whole[:, :2] = centre[:end, :2]
        whole[:, 2] = np.max([rows[:end, 2] for rows in tables], axis=0)
        exhausted = max(told.exhausted for told in answers.values())
        return Samples(exhausted, whole.tobytes())

    def _living(self) -> list[tuple[str, Injector]]:
        return list(self._parts.items())

    @contextlib.contextmanager
    def _watched(self, host: str) -> Iterator[None]:
        """Lose a host that fails; if it is the base station's host, raise an error that names
        it."""
        try:
            yield
        except RunError as error:
            if host == self._centre:
                raise RunError(f"host {host}: {error}") from None
            self.lose(host)
            self._fails(host, str(error))

    def _offset_ns(self, name: str) -> int:
        reading = self._assumed.get(name) or self._clocks.of[name].now()
        return reading.offset_ns


def _last_of(counted: Counters, now: Counters) -> Counters:
    """The last counters of a lost host, as a report of now without any new slots."""
    return replace(
        counted, asked_ns=now.asked_ns, slots=b"", impaired_slots=0, below_floor=0, exhausted=0
    )


def joined(answers: Mapping[str, Kind], offsets_ns: Mapping[str, int]) -> Kind:
    """Combine the answers of hosts to one order.

    Args:
        answers: The answers by host, all of one type.
        offsets_ns: Clock offset of each host (its clock minus the local clock).
    """
    found: list[Any] = list(answers.values())
    whole: Any = found[0]
    if isinstance(whole, EpochBegun | PhaseSet):
        done_ns = max(
            each.done_ns - offsets_ns[name] for name, each in zip(answers, found, strict=True)
        )
        whole = replace(whole, done_ns=done_ns)
    if isinstance(whole, EpochBegun):
        whole = replace(whole, missing=any(each.missing for each in found))
    if isinstance(whole, Counters):
        ways = zip(*(each.links for each in found), strict=True)
        parts = [_parts(each) for each in found]
        tables = [(set_, offsets_ns[name]) for name, (set_, _) in zip(answers, parts, strict=True)]
        air = _air([of_air for _, of_air in parts if len(of_air)])
        whole = Counters(
            asked_ns=min(each.asked_ns for each in found),
            links=tuple((_sum(u for u, _ in way), _sum(d for _, d in way)) for way in ways),
            scheduling=", ".join(sorted({each.scheduling for each in found})),
            below_floor=sum(each.below_floor for each in found),
            exhausted=max(each.exhausted for each in found),
            slots=_slots(tables).tobytes() + air.tobytes(),
            impaired_slots=len(air),
        )
    return cast(Kind, whole)


def _sum(parts: Iterable[Direction]) -> Direction:
    """The sum of the counters of one direction."""
    all_ = list(parts)
    names = [field.name for field in fields(Direction)]
    return Direction(**{name: sum(getattr(part, name) for part in all_) for name in names})


def _parts(counters: Counters) -> tuple[Rows, Rows]:
    """Slots that were set, and frames lost at the beginning of slots: see `Counters.slots`."""
    values, width = np.frombuffer(counters.slots, np.int64), impairment_width(len(counters.links))
    set_, air = np.split(values, [len(values) - counters.impaired_slots * width])
    return set_.reshape(-1, _ROW), air.reshape(-1, width)


def _air(tables: Sequence[Rows]) -> Rows:
    """Lost and arrived frames of each slot that all hosts have counted: each host counts the frames
    that arrive there."""
    if not tables:
        return np.empty((0, 1), np.int64)
    slots = functools.reduce(np.intersect1d, [table[:, 0] for table in tables])
    of_slots = [table[np.isin(table[:, 0], slots), 1:] for table in tables]
    return np.column_stack([slots, sum(of_slots)])


def _slots(tables: Sequence[tuple[Rows, int]]) -> Rows:
    """For each slot, the row of the host that set it last, in times of the local clock."""
    last: dict[tuple[int, int], tuple[int, ...]] = {}
    for table, offset_ns in tables:
        seen: Counter[int] = Counter()
        for slot, due_ns, done_ns, changes in table:
            key = int(slot), seen[int(slot)]
            seen[int(slot)] += 1
            row = (int(slot), int(due_ns) - offset_ns, int(done_ns) - offset_ns, int(changes))
            if key not in last or last[key][2] < row[2]:
                last[key] = row
    rows = sorted(last.values(), key=lambda row: row[1])
    return np.array(rows, np.int64).reshape(-1, _ROW)
