# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The injector as a state machine without I/O: it decides on rates, readings and answers.

The driver (`testbed.network.injector`) reports events with `tell`, and then executes the result of
`instructions`, in this order, until the only instruction left is `Wait`. A wait ends with a control
message, or with its action at an absolute time. The driver prepares the action as soon as it gets
the wait, so that only the system calls remain when the time comes. This file uses no socket, clock
or netlink. Times are monotonic, in nanoseconds.

A slot, with events (▸) and instructions (◂)::

    ◂ Wait(until_ns, ChangeRates)  ▸ RatesSet  ◂ ReadFrameLosses  ▸ FrameLossesRead
    ◂ Wait for the next slot

Within a slot, the wait may be for a step of held transfers (`testbed.network.holding`, ▸ StepTaken)
or for the division of a direction among its active links (▸ QueuesRead, ◂ ChangeRates) instead.
"""

import array
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from testbed.control.messages import (
    AskCounters,
    AskMachine,
    AskSamples,
    Capturing,
    Counters,
    Direction,
    EndCapture,
    Epoch,
    EpochBegun,
    Exhausted,
    Impair,
    Impaired,
    InjectorOrder,
    InjectorReport,
    Low,
    Pause,
    Phase,
    PhaseSet,
    Samples,
    SetImpairments,
    SetRates,
    StartCapture,
    Stop,
    Watch,
)
from testbed.core.clock import EmulatedClock
from testbed.network.airtime import Airtime, Divider, SlotRates, Transfers
from testbed.network.holding import Release, Step, releases
from testbed.network.shaping import QueueCount, Shape
from testbed.network.slot_impairments import ImpairmentChange, SlotImpairments, Way
from testbed.network.slot_table import SlotTable

BASE_STATION = 0
"""The site of all downlinks; the site of an uplink is the number of its UAV, from 1."""
AIR_OF_WAY, CERTAIN = 3, 1 << 32
"""Values per direction of a link in a row of channel counters (`Counters.slots`), and the integer
that represents a probability of 1 there."""
SAMPLE, SAMPLE_OF_WAY = 4, 5
"""Values of a sample before those of the links (slot, when it was due, when its rates were set,
number of changes), and values per direction of a link (when it was read, bytes, queue, drops,
slack)."""
_REST_OF_LOOKS = 4
"""Minimum ratio of the time between two looks at the queues to the duration of a look."""
_LIMIT_EVERY_SLOTS = 10
"""Number of slots between two adaptations of the packet sizes while links are watched."""


def impairment_width(links: int) -> int:
    """Number of values in a row of channel counters: see `Counters.slots`."""
    return 1 + 2 * AIR_OF_WAY * links


# Instructions.


@dataclass(frozen=True)
class ChangeRates:
    """Set rates in bit/s; 0 is an outage."""

    slot: int
    why: Literal["slot", "epoch", "phase", "airtime"]
    due_ns: int
    """Time at which they should be in force; the recorded lateness counts from then on."""
    downlinks: tuple[float | None, ...] = ()
    """Rates of all ends of the base station's site (None: the end is held and not changed), or
    empty: no change."""
    uplinks: tuple[tuple[int, float], ...] = ()
    """UAVs of this machine and the rates of their uplinks."""
    air: tuple[ImpairmentChange, ...] = ()
    """Changes of impairments, to be made after the rates have been set."""
    below_floor: int = 0
    """Number of positive rates that are set to 0 because they are below one frame per slot."""
    missing: bool = False
    """Whether no rates were given for this slot; nothing is set then."""


@dataclass(frozen=True)
class ReadQueues:
    """Read the queues of these sites, to divide directions of the cell; answer: QueuesRead."""

    sites: tuple[int, ...]


@dataclass(frozen=True)
class Wait:
    """Wait for a control message until a time; if there is none, carry out the action."""

    until_ns: int | None
    """End of the wait; None: it ends with a control message only."""
    action: ChangeRates | Step | ReadQueues | None


@dataclass(frozen=True)
class Hold:
    """Close the valves of all downlinks in these releases; their steps follow, each by a wait."""

    releases: tuple[Release, ...]


@dataclass(frozen=True)
class LimitPackets:
    """Set the largest number of frames per packet, for each end of a site."""

    site: int
    frames: tuple[int, ...]


@dataclass(frozen=True)
class Sample:
    """Read the queues of all links; answer: Sampled."""

    slot: int
    due_ns: int
    done_ns: int
    changes: int


@dataclass(frozen=True)
class ReadFrameLosses:
    """Read how many frames the channel has lost and delivered; answer: FrameLossesRead."""


@dataclass(frozen=True)
class ReadCounters:
    """Read all counters of the links; answer: CountersRead."""


@dataclass(frozen=True)
class Answer:
    """Send a message to the orchestrator."""

    report: InjectorReport


Instruction = (
    ChangeRates
    | Wait
    | Hold
    | LimitPackets
    | Sample
    | ReadFrameLosses
    | ReadCounters
    | Answer
    # Orders that need no decision are passed on to the driver.
    | Impair
    | StartCapture
    | EndCapture
    | AskMachine
    | Stop
)

# Events.


@dataclass(frozen=True)
class Ordered:
    """A control message has arrived."""

    order: InjectorOrder
    at_ns: int


@dataclass(frozen=True)
class RatesSet:
    """Rates have been set."""

    what: ChangeRates
    done_ns: int
    """Time at which the kernel had made the changes."""
    changes: int
    """Number of netlink messages."""
    at_ns: int
    """When everything was done, including changes of the impairments."""


@dataclass(frozen=True)
class StepTaken:
    """A step of held transfers has been carried out."""

    step: Step
    done_ns: int


@dataclass(frozen=True)
class QueuesRead:
    """The queues of some sites have been read."""

    counts: Mapping[int, tuple[int, Sequence[QueueCount]]]
    """When reading each site began, and the counters of its ends."""


@dataclass(frozen=True)
class Sampled:
    """The queues of all links have been read."""

    what: Sample
    counts: Mapping[Way, tuple[int, QueueCount, int]]
    """When it was read, the counters, and `testbed.network.injector.Samples.slack`; without the
    ends on other machines."""


@dataclass(frozen=True)
class FrameLossesRead:
    """The channel counters have been read."""

    counts: Mapping[Way, tuple[int, int]]
    """Frames lost and arrived; without directions that the channel does not impair."""
    at_ns: int
    """Time at which reading had ended."""


@dataclass(frozen=True)
class CountersRead:
    """All counters have been read."""

    asked_ns: int
    """Unix time at which reading began."""
    links: tuple[tuple[Direction, Direction], ...]
    scheduling: str


Event = Ordered | RatesSet | StepTaken | QueuesRead | Sampled | FrameLossesRead | CountersRead


class Injection:
    """The decisions of an injector: rates per slot, held transfers, divided directions, records."""

    def __init__(
        self, shape: Shape, links: int, clients: Sequence[int], has_base_station: bool, now_ns: int
    ) -> None:
        """Begin without rates.

        Args:
            shape: Shape of the links.
            links: K, wherever the ends of the links are.
            clients: UAVs of this machine, from 1.
            has_base_station: Whether the base station is on this machine.
            now_ns: The monotonic time.
        """
        self._shape, self._links, self._clients = shape, links, clients
        self._here = [Way(k, False) for k in range(1, links + 1) if has_base_station]
        self._here += [Way(client, True) for client in clients]
        """The directions whose frames arrive on this machine."""
        self._packet_frames: dict[int, tuple[int, ...]] = {}
        """Largest packet, in frames, of each end of a site, as currently limited."""
        if has_base_station:
            self._packet_frames[BASE_STATION] = (1,) * links
        self._packet_frames |= dict.fromkeys(clients, (1,))
        self._by_use: tuple[Divider, Divider] | None = None
        """Dividers of uplinks and downlinks, if programs of users send over the links."""
        if shape.shared_downlink:
            self._by_use = Airtime(links, now_ns), Airtime(links, now_ns)
        self._looked_ns, self._took_ns = now_ns, 0
        """When dividers last read the links of a direction, and how long that took."""
        self._table = SlotTable(links)
        self._air: SlotImpairments | None = None
        self._clock, self._slot_s = EmulatedClock(0, 0.0, 1.0), 1.0
        self._running = False
        self._slot = self._phase = 0
        self._division = self._by_use or (self._transfers(False), self._transfers(True))
        self._warn_slots, self._told_low = 0, False
        self._watched = False
        self._held: frozenset[int] = frozenset()
        self._steps: list[Step] = []
        self._below_floor = self._exhausted = 0
        self._record, self._air_record = array.array("q"), array.array("q")
        self._samples = array.array("q")
        self._reading_since_ns = self._reading_ns = 0
        """When the channel counters were last read, and how long that took."""
        self._instructions: list[Instruction] = []

    def tell(self, event: Event) -> None:
        """Process an event."""
        match event:
            case Ordered():
                self._obey(event.order, event.at_ns)
            case RatesSet():
                self._rates_set(event)
            case StepTaken(step, done_ns):
                self._steps.remove(step)
                if step.what == "open":
                    self._held -= set(step.release.places)
                    slot, opened = self._slot_at_start(), len(step.release.places)
                    self._record.extend((slot, step.at_ns, done_ns, opened))
            case QueuesRead():
                self._divide(event)
            case Sampled():
                self._add_sample(event)
            case FrameLossesRead():
                self._add_air(event)
            case CountersRead():
                self._answer_counters(event)

    def instructions(self) -> list[Instruction]:
        """The instructions to execute now; `Wait` if there is no other."""
        given, self._instructions = self._instructions, []
        return given or [self._wait()]

    def _obey(self, order: InjectorOrder, at_ns: int) -> None:
        match order:
            case SetRates():
                self._table.add(order.first, order.variants, order.table, order.divided)
                if self._phase >= order.variants:
                    self._phase = 0
                self._warn_slots, self._told_low = order.warn_slots, False
            case Epoch():
                self._begat_boundary(order)
            case Phase(index):
                is_other, self._phase = index != self._phase, index
                if self._running:
                    if is_other and self._by_use is None:
                        self._division = self._division[0], self._transfers(True)
                    self._limit_packets()
                    self._instructions.append(self._rates(self._slot, "phase", at_ns))
                else:  # The slot is one of the last epoch.
                    self._answer(PhaseSet(at_ns))
            case Pause():
                self._running = False
                self._held, self._steps = frozenset(), []
            case Impair(uplinks, downlinks):
                self._air = SlotImpairments(self._links, self._here, uplinks, downlinks)
                self._instructions.append(order)
                self._answer(Impaired())
            case SetImpairments(first, variants, table):
                assert self._air is not None
                self._air.take(first, variants, table)
            case StartCapture():
                self._instructions.append(order)
                self._answer(Capturing())
            case EndCapture() | AskMachine() | Stop():
                self._instructions.append(order)
            case AskCounters():
                self._instructions.append(ReadCounters())
            case Watch():
                self._watched = True
            case AskSamples():
                self._answer(Samples(self._exhausted, self._samples.tobytes()))
                self._samples = array.array("q")

    def _answer(self, report: InjectorReport) -> None:
        self._instructions.append(Answer(report))

    def _begat_boundary(self, epoch: Epoch) -> None:
        self._clock, self._slot_s = epoch.clock, epoch.slot_s
        self._slot = self._slot_at_start()
        self._running = True
        self._limit_packets()
        self._division = self._by_use or (self._transfers(False), self._transfers(True))
        released = self._releases(epoch.held, epoch.held_bytes)
        self._held = frozenset(place for each in released for place in each.places)
        steps = [step for each in released for step in each.steps()]
        self._steps = sorted(steps, key=lambda step: step.at_ns)
        if released:
            self._instructions.append(Hold(tuple(released)))
        self._instructions.append(self._rates(self._slot, "epoch", epoch.clock.start_ns))

    def _slot_at_start(self) -> int:
        """The slot in which the epoch's clock starts."""
        return math.floor(self._clock.start_s / self._slot_s + 1e-9)

    def _transfers(self, down: bool) -> Divider:
        """The divider of a direction among transfers, from this slot and phase on."""
        rates = self._table.mean(self._slot, self._phase)[down] or [0.0] * self._links
        frames = [self._shape.packet_frames(bps * self._clock.dilation) for bps in rates]
        return Transfers([8.0 * self._shape.frame_bytes * each for each in frames])

    def _releases(self, last_bytes: Sequence[int], all_bytes: Sequence[int]) -> list[Release]:
        """When held downlinks are released for transfers that start with the epoch, if any do."""
        frames = self._packet_frames.get(BASE_STATION)
        if not last_bytes or frames is None:
            return []

        def downlinks(slot: int) -> Sequence[float] | None:
            row = self._table.row(slot, self._phase)
            return row and row[1]

        return releases(
            frames, self._shape, self._clock, self._slot_s, downlinks, last_bytes, all_bytes
        )

    def _wait(self) -> Wait:
        """The wait for the action that is due first."""
        if not self._running:
            return Wait(None, None)
        due_ns = self._boundary_ns(self._slot + 1)
        if self._steps and self._steps[0].at_ns < due_ns:
            return Wait(self._steps[0].at_ns, self._steps[0])
        if sites := self._divided_sites():
            look_ns, least_ns = self._looked_ns + self._every_ns, self._division[0].every_ns
            # Else there is too little time before the next slot, unless it is time in each slot.
            is_overdue = look_ns < self._boundary_ns(self._slot)
            if is_overdue or look_ns + max(least_ns, 2 * self._took_ns) < due_ns:
                return Wait(look_ns, ReadQueues(sites))
        return Wait(due_ns, self._rates(self._slot + 1, "slot", due_ns))

    def _boundary_ns(self, slot: int) -> int:
        return self._clock.monotonic_ns(slot * self._slot_s)

    @property
    def _every_ns(self) -> int:
        """Time between two looks at the queues; looks take at most a quarter of it."""
        return max(self._division[0].every_ns, _REST_OF_LOOKS * self._took_ns)

    def _floor_bps(self) -> float:
        return self._shape.lowest_rate(self._slot_s * self._clock.dilation)

    def _slot_rates(self, slot: int) -> tuple[SlotRates, SlotRates] | None:
        """The rates of uplinks and downlinks in a slot."""
        rates = self._table.rates(slot, self._phase)
        if rates is None or rates[1].is_divided or self._by_use is None:
            return rates
        row = rates[1].division[0][0]
        by_airtime = [(row, 1 / active) for active in range(1, self._links + 1)]
        return rates[0], SlotRates(rates[1].rows, by_airtime)

    def _divided_sites(self) -> tuple[int, ...]:
        """The sites of this machine whose links divide their direction in this slot."""
        rates = self._slot_rates(self._slot)
        if rates is None:
            return ()
        station = BASE_STATION in self._packet_frames and rates[1].is_divided
        return (BASE_STATION,) * station + tuple(self._clients) * rates[0].is_divided

    def _rates(self, slot: int, why: Literal["slot", "epoch", "phase"], due_ns: int) -> ChangeRates:
        """The rates and impairments of a slot."""
        rates = self._slot_rates(slot)
        if rates is None:
            return ChangeRates(slot, why, due_ns, missing=True)
        below_floor, floor_bps = 0, self._floor_bps()

        def at_least(rate_bps: float) -> float:
            nonlocal below_floor
            if 0 < rate_bps < floor_bps:
                below_floor += 1
                return 0.0
            return rate_bps

        up, down = self._divided_rates(rates)
        downlinks: tuple[float | None, ...] = ()
        if BASE_STATION in self._packet_frames:
            given = down or [at_least(rate) for rate in rates[1].together()]
            downlinks = self._unless_held(given)
        given = up or [at_least(rates[0].together()[client - 1]) for client in self._clients]
        uplinks = tuple(zip(self._clients, given, strict=True))
        air = () if self._air is None else self._air.changes(slot, self._phase)
        return ChangeRates(slot, why, due_ns, downlinks, uplinks, air, below_floor)

    def _divided_rates(self, rates: tuple[SlotRates, SlotRates]) -> list[list[float]]:
        """The rates of links that divide their direction, uplinks and downlinks; empty for a
        direction that is not divided."""
        floor_bps = self._floor_bps()
        return [
            [
                bps if way.bps(place, 1) >= floor_bps else 0.0
                for place, bps in enumerate(division.rates(way) if way.is_divided else ())
            ]
            for way, division in zip(rates, self._division, strict=True)
        ]

    def _unless_held(self, downlinks: Sequence[float]) -> tuple[float | None, ...]:
        return tuple(None if place in self._held else bps for place, bps in enumerate(downlinks))

    def _divide(self, read: QueuesRead) -> None:
        """Divide directions by the bytes that links have sent, and by their queues."""
        rates = self._slot_rates(self._slot)
        assert rates is not None
        looked_ns = min(at_ns for at_ns, _ in read.counts.values())
        self._looked_ns = looked_ns
        for way, division, sites in zip(
            rates, self._division, (self._clients, (BASE_STATION,)), strict=True
        ):
            if way.is_divided:
                found = [read.counts[site] for site in sites]
                counts = [count for _, of_ends in found for count in of_ends]
                read_ns = [at_ns for at_ns, of_ends in found for _ in of_ends]
                division.look(counts, read_ns, way, self._every_ns)
        up, down = self._divided_rates(rates)
        uplinks = tuple(zip(self._clients, up, strict=True)) if up else ()
        downlinks = self._unless_held(down)
        self._instructions.append(ChangeRates(self._slot, "airtime", looked_ns, downlinks, uplinks))

    def _limit_packets(self) -> None:
        """Set packets to the largest size that the links' mean rates allow."""
        uplink, downlink = self._table.mean(self._slot, self._phase)
        for site, now in self._packet_frames.items():
            rates, back = downlink, uplink
            if site != BASE_STATION:
                rates, back = uplink[site - 1 : site], downlink[site - 1 : site]
            frames = tuple(
                self._shape.packet_frames(*(bps * self._clock.dilation for bps in both))
                for both in zip(rates, back, strict=True)
            )
            if frames and frames != now:
                self._packet_frames[site] = frames
                self._instructions.append(LimitPackets(site, frames))

    def _rates_set(self, event: RatesSet) -> None:
        what = event.what
        if self._air is not None:
            self._air.made(what.air)
        if not what.missing:
            self._note_rates(what, event.done_ns)
        if what.why == "airtime":
            self._took_ns = event.at_ns - what.due_ns
        if what.why == "phase":
            self._answer(PhaseSet(event.done_ns))
        if what.why in ("slot", "epoch"):
            self._slot_begun(what, event)

    def _note_rates(self, what: ChangeRates, done_ns: int) -> None:
        """Inform the dividers of the rates that are in force."""
        rates = self._slot_rates(what.slot)
        given = [bps for _, bps in what.uplinks], [bps or 0.0 for bps in what.downlinks]
        for way, division, bps in zip(rates or (), self._division, given, strict=False):
            if way.is_divided and bps:
                division.given(done_ns, way, bps)

    def _slot_begun(self, what: ChangeRates, event: RatesSet) -> None:
        self._slot = what.slot
        self._below_floor += what.below_floor
        at_boundary = what.why == "slot"
        if self._watched and at_boundary:
            self._instructions.append(Sample(what.slot, what.due_ns, event.done_ns, event.changes))
            if what.slot % _LIMIT_EVERY_SLOTS == 0:
                self._limit_packets()
        elif at_boundary or not self._steps:
            self._record.extend((what.slot, what.due_ns, event.done_ns, event.changes))
        if not self._watched:
            self._read_air(event.at_ns)
        if not at_boundary:
            self._exhausted += what.missing
            self._answer(EpochBegun(event.done_ns, what.missing))
            return
        self._table.forget_before(what.slot)
        if self._air is not None:
            self._air.forget_before(what.slot)
        if what.missing:
            if not self._exhausted:
                self._answer(Exhausted(what.slot))
            self._exhausted += 1
        elif not self._told_low and self._table.end - what.slot <= self._warn_slots:
            self._told_low = True
            self._answer(Low(self._table.end))

    def _read_air(self, now_ns: int) -> None:
        """Read the channel counters up to this slot, if there is time; otherwise the next slot
        does."""
        if self._air is None or not self._air.loses:
            return
        due_ns = self._boundary_ns(self._slot + 1)
        if self._steps:
            due_ns = min(due_ns, self._steps[0].at_ns)
        if due_ns - now_ns < 2 * self._reading_ns:
            self._reading_ns //= 2  # The last reading may have been disturbed.
            return
        self._reading_since_ns = now_ns
        self._instructions.append(ReadFrameLosses())

    def _add_air(self, read: FrameLossesRead) -> None:
        assert self._air is not None
        self._air_record.append(self._slot)
        for way in self._ways():
            asked = round(self._air.asked(way) * CERTAIN)
            self._air_record.extend((*read.counts.get(way, (0, 0)), asked))
        self._reading_ns = read.at_ns - self._reading_since_ns

    def _add_sample(self, event: Sampled) -> None:
        what = event.what
        self._samples.extend((what.slot, what.due_ns, what.done_ns, what.changes))
        for way in self._ways():
            values = (0,) * SAMPLE_OF_WAY
            if way in event.counts:
                read_ns, count, slack = event.counts[way]
                values = (
                    read_ns,
                    count.sent_bytes,
                    count.backlog_bytes,
                    count.dropped_frames,
                    slack,
                )
            self._samples.extend(values)

    def _ways(self) -> list[Way]:
        """Uplink and downlink of each link, wherever they end."""
        return [Way(k, down) for k in range(1, self._links + 1) for down in (False, True)]

    def _answer_counters(self, read: CountersRead) -> None:
        self._answer(
            Counters(
                read.asked_ns,
                read.links,
                read.scheduling,
                self._below_floor,
                self._exhausted,
                (self._record + self._air_record).tobytes(),
                len(self._air_record) // impairment_width(self._links),
            )
        )
        self._record, self._air_record = array.array("q"), array.array("q")
        self._below_floor = self._exhausted = 0
