# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The injector: a process that sets all link rates at every slot boundary.

It works on a table of rates by slot, prepared as netlink messages before the boundary, so that
at the boundary only one `sendmsg` a namespace remains. The orchestrator steers it through a
control socket with an `Injector`.
"""

import array
import contextlib
import gc
import json
import math
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from testbed.control.codec import encode
from testbed.control.messages import (
    FROM_INJECTOR,
    TO_INJECTOR,
    AskCounters,
    AskMachine,
    AskSamples,
    Captured,
    Capturing,
    Counters,
    Direction,
    EndCapture,
    Epoch,
    EpochBegun,
    Exhausted,
    Failed,
    Impair,
    Impaired,
    InjectorOrder,
    InjectorReport,
    Low,
    MachineNow,
    Pause,
    Phase,
    PhaseSet,
    SetImpairments,
    SetRates,
    StartCapture,
    Stop,
    Watch,
    Wired,
)
from testbed.control.messages import (
    Samples as SamplesReport,
)
from testbed.control.stream import ControlSocket, NoAnswer
from testbed.core.clock import EmulatedClock
from testbed.core.errors import RunError
from testbed.core.impairment import Impairment
from testbed.network.airtime import EVERY_NS, Airtime
from testbed.network.fabric import (
    BS_DEVICE_BASE,
    Fabric,
    Part,
    Site,
    device_counts,
    impair,
    limit_packets,
    wire,
)
from testbed.network.gates import Opening, openings
from testbed.network.line import Line, LineCount
from testbed.network.pcap import END_S, Capture
from testbed.network.shaping import End, QueueCount, Shape, netem_counts, queue_counts
from testbed.network.slot_impairments import ImpairmentChange, SlotImpairments
from testbed.network.slot_table import SlotTable
from testbed.system import linux
from testbed.system.machine import Machine, boot_id
from testbed.system.netlink import Batch, Netlink
from testbed.system.waiting import wait_until

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

ANSWER_S = 30.0
"""How long the injector's process may take for an answer; it needs milliseconds."""
SPIN_NS = 150_000
"""The last stretch before a boundary hears nobody: who sleeps for a message may wake that late."""
Kind = TypeVar("Kind")
_LIMIT_EVERY_SLOTS = 10
"""How often that is decided anew while links are watched."""
_AIR_OF_WAY, _CERTAIN = 3, 1 << 32
"""Values of a link and way in a row of what the air has done, and what a share of 1 is there."""
_SAMPLE, _SAMPLE_OF_WAY = 4, 4
"""Values of a sample before those of the links: slot, when it was due, when its rates were set, how
many changes that took; and of each link and way: when it was read, and `Samples`' three."""


class _Service:
    """The injector process's state and loop."""

    def __init__(self, control: ControlSocket, fabric: Fabric, shape: Shape) -> None:
        self._control = control
        self._capture: Capture | None = None
        self._line: Line | None = None
        self._fabric = fabric
        self._shape = shape
        self._table = SlotTable(fabric.links)
        self._air: SlotImpairments | None = None
        self._clock = EmulatedClock(0, 0.0, 1.0)
        self._slot_s = 1.0
        self._running = False
        self._slot = 0
        self._phase = 0
        self._told_low = False
        self._warn_slots = 0
        self._below_floor = 0
        self._exhausted = 0
        self._record = array.array("q")
        self._gates: list[_GateStep] = []
        """What is to be done with the gates of downlinks that are held, by time."""
        self._airtime = Airtime(fabric.links) if shape.shared_downlink else None
        self._looked_ns = time.monotonic_ns()
        self._watched = False
        self._samples = array.array("q")
        self._air_record = array.array("q")
        self._counting_ns = 0
        """How long that took the last time."""
        linux.precise_timers()

    def run(self) -> None:
        """Serve until told to stop, or until the orchestrator is gone."""
        gc.collect()
        gc.freeze()
        gc.disable()
        prepared: _Prepared | None = None
        while True:
            if self._running:
                deadline = self._clock.monotonic_ns((self._slot + 1) * self._slot_s)
                prepared = prepared or self._prepare(self._slot + 1)
                if self._gates and self._gates[0].at_ns < deadline:
                    if not self._message_before(self._gates[0].at_ns):
                        self._step_of_gates()
                        prepared = None
                        continue
                elif self._look_is_due(deadline):
                    if not self._message_before(self._looked_ns + EVERY_NS):
                        self._share_airtime()
                        prepared = None
                        continue
                elif not self._message_before(deadline):
                    self._at_boundary(deadline, prepared)
                    prepared = None
                    continue
            else:
                self._message_before(None)
            while message := self._control.next():
                order = TO_INJECTOR.decode(*message)
                if isinstance(order, Stop):
                    return
                self._obey(order)
                prepared = None

    def _obey(self, order: InjectorOrder) -> None:
        match order:
            case SetRates():
                self._take_rates(order)
            case Epoch():
                self._begin_epoch(order)
            case Phase():
                self._switch_to(order.index)
            case Pause():
                self._running = False
                self._hold([])
            case Impair(uplinks, downlinks):
                self._line = impair(self._fabric, uplinks, downlinks)
                self._air = SlotImpairments(self._fabric, self._line, uplinks, downlinks)
                self._tell(Impaired())
            case SetImpairments(first, variants, table):
                assert self._air is not None
                self._air.take(first, variants, table)
            case StartCapture():
                devices = {BS_DEVICE_BASE + k: file for k, file in enumerate(order.files, 1)}
                self._capture = Capture(devices, order.headers_only)
                self._tell(Capturing())
            case EndCapture(until_ns):
                assert self._capture is not None
                self._tell(self._capture.end(until_ns))
                self._capture = None
            case AskCounters():
                if self._fabric.relay is not None and self._fabric.relay.gone():
                    raise RunError("the process that carries links to other machines is gone")
                self._tell_counters()
            case AskMachine():
                self._tell(MachineNow(Machine.now(), boot_id()))
            case Watch():
                self._watched = True
            case AskSamples():
                self._tell(SamplesReport(self._exhausted, self._samples.tobytes()))
                self._samples = array.array("q")

    def _tell(self, report: InjectorReport) -> None:
        self._control.send(*encode(report))

    def _message_before(self, deadline: int | None) -> bool:
        """Wait for something from the control socket (True) or for the deadline (False)."""
        while True:
            timeout = None
            if deadline is not None:
                timeout = max(0.0, (deadline - SPIN_NS - time.monotonic_ns()) * 1e-9)
            if select.select([self._control], [], [], timeout)[0]:
                if not self._control.read_available():
                    raise RunError("the orchestrator is gone")
                return True
            if deadline is not None:
                wait_until(deadline, SPIN_NS)
                return False

    def _prepare(self, slot: int) -> "_Prepared":
        rates = self._table.row(slot, self._phase)
        prepared = _Prepared()
        if rates is None:
            prepared.missing = True
            return prepared
        floor_bps = self._shape.lowest_rate(self._slot_s * self._clock.dilation)
        uplink, downlink = rates
        if self._airtime is not None:
            downlink = self._airtime_rates(downlink)
        down_floor_bps = floor_bps if self._airtime is None else 0.0
        fabric = self._fabric
        if fabric.base_station.ends:
            prepared.add(fabric.base_station, downlink, down_floor_bps)
        for client, site in zip(fabric.clients, fabric.uavs, strict=True):
            prepared.add(site, (uplink[client - 1],), floor_bps)
        if self._air is not None:
            prepared.air += self._air.changes(slot, self._phase)
        return prepared

    def _look_is_due(self, boundary: int) -> bool:
        """Whether airtime is to be divided before the next slot, and there is time for it."""
        return self._airtime is not None and self._looked_ns + 2 * EVERY_NS < boundary

    def _share_airtime(self) -> None:
        """Divide the cell's airtime by what the downlinks have sent and have waiting."""
        row = self._table.row(self._slot, self._phase)
        if self._airtime is None or row is None:
            return
        bs, now_ns = self._fabric.base_station, time.monotonic_ns()
        counts = queue_counts(bs.netlink)
        of_ends = [counts[end.index] for end in bs.ends]
        self._airtime.look(
            [count.sent_bytes for count in of_ends],
            [count.backlog_bytes for count in of_ends],
            row[1],
            (now_ns - self._looked_ns) * 1e-9,
        )
        self._looked_ns = now_ns
        prepared = _Prepared()
        prepared.add(bs, self._airtime_rates(row[1]), 0.0)
        prepared.send()

    def _airtime_rates(self, alone_bps: Sequence[float]) -> list[float]:
        """What downlinks have of the rates that they would have alone."""
        assert self._airtime is not None
        floor_bps = self._shape.lowest_rate(self._slot_s * self._clock.dilation)
        return [
            rate * share if rate >= floor_bps else 0.0
            for rate, share in zip(alone_bps, self._airtime.shares, strict=True)
        ]

    def _at_boundary(self, deadline: int, prepared: "_Prepared") -> None:
        self._slot += 1
        done = prepared.send()
        if self._watched:
            self._sample(deadline, done, prepared.changes)
        else:
            self._record.extend((self._slot, deadline, done, prepared.changes))
            self._count_air()
        self._below_floor += prepared.below_floor
        self._table.forget_before(self._slot)
        if self._air is not None:
            self._air.forget_before(self._slot)
        if prepared.missing:
            if not self._exhausted:
                self._tell(Exhausted(self._slot))
            self._exhausted += 1
        elif not self._told_low and self._table.end - self._slot <= self._warn_slots:
            self._told_low = True
            self._tell(Low(self._table.end))

    def _sample(self, deadline: int, done: int, changes: int) -> None:
        """Note what the links have carried up to this slot; zeros where another machine counts."""
        fabric = self._fabric
        values = [0] * (2 * _SAMPLE_OF_WAY * fabric.links)

        def note(way: int, read_ns: int, count: QueueCount) -> None:
            at = way * _SAMPLE_OF_WAY
            told = read_ns, count.sent_bytes, count.backlog_bytes, count.dropped_frames
            values[at : at + _SAMPLE_OF_WAY] = told

        if fabric.base_station.ends:
            downlinks, read_ns = queue_counts(fabric.base_station.netlink), time.monotonic_ns()
            for place, end in enumerate(fabric.base_station.ends):
                note(2 * place + 1, read_ns, downlinks[end.index])
        for client, uav in zip(fabric.clients, fabric.uavs, strict=True):
            uplink = queue_counts(uav.netlink)[uav.ends[0].index]
            note(2 * client - 2, time.monotonic_ns(), uplink)
        self._samples.extend((self._slot, deadline, done, changes, *values))
        if self._slot % _LIMIT_EVERY_SLOTS == 0:
            self._limit_packets()

    def _count_air(self) -> None:
        """Note what the air has lost up to this slot, if there is time for it: else the next one
        has it, too."""
        if self._air is None or not self._air.loses:
            return
        begun_ns = time.monotonic_ns()
        due_ns = self._clock.monotonic_ns((self._slot + 1) * self._slot_s)
        if self._gates:
            due_ns = min(due_ns, self._gates[0].at_ns)
        if due_ns - begun_ns < 2 * self._counting_ns:
            self._counting_ns //= 2  # It may have been disturbed.
            return
        links = zip(*self._of_air(), *self._air.asked(), strict=True)
        values = [self._slot]
        for up, down, up_asked, down_asked in links:
            for count, asked in ((up, up_asked), (down, down_asked)):
                lost, arrived = (count.dropped_frames, count.sent_frames) if count else (0, 0)
                values += (lost, arrived, round(asked * _CERTAIN))
        self._air_record.extend(values)
        self._counting_ns = time.monotonic_ns() - begun_ns

    def _of_air(self) -> tuple[Sequence["_OfAir"], Sequence["_OfAir"]]:
        """What the air has done to frames of each uplink, and of each downlink; None where it does
        nothing, or another machine knows."""
        nothing: list[_OfAir] = [None] * self._fabric.links
        ways, told = (nothing, nothing.copy()), dict[Netlink, dict[int, QueueCount]]()
        for at in self._fabric.arrivals:
            count: _OfAir = None
            if self._line is not None and at.tap is not None:
                count = self._line.count(at.tap)
            elif at.tap is None:
                if at.netlink not in told:
                    told[at.netlink] = netem_counts(at.netlink)
                count = told[at.netlink].get(at.device)
            ways[at.down][at.link - 1] = count
        return ways

    def _take_rates(self, rates: SetRates) -> None:
        self._table.add(rates.first, rates.variants, rates.table)
        if self._phase >= rates.variants:
            self._phase = 0
        self._warn_slots = rates.warn_slots
        self._told_low = False

    def _begin_epoch(self, epoch: Epoch) -> None:
        self._clock = epoch.clock
        self._slot_s = epoch.slot_s
        self._slot = math.floor(epoch.clock.start_s / epoch.slot_s + 1e-9)
        self._running = True
        self._limit_packets()
        self._hold(self._openings(epoch.held))
        prepared = self._prepare(self._slot)
        done = prepared.send()
        self._below_floor += prepared.below_floor
        if prepared.missing:
            self._exhausted += 1
        if not self._gates:
            self._record.extend((self._slot, epoch.clock.start_ns, done, prepared.changes))
        if not self._watched:
            self._count_air()
        self._tell(EpochBegun(done, prepared.missing))

    def _openings(self, last_bytes: Sequence[int]) -> list[Opening]:
        """When the downlinks' gates open for transfers that start with the epoch, if any do."""
        site = self._fabric.base_station
        if not last_bytes or not site.ends:
            return []
        phase = self._phase

        def downlinks(slot: int) -> Sequence[float] | None:
            row = self._table.row(slot, phase)
            return row and row[1]

        return openings(site, self._shape, self._clock, self._slot_s, downlinks, last_bytes)

    def _hold(self, opening: Sequence[Opening]) -> None:
        """Close the gates of these downlinks until they are to open; whoever was held is not."""
        site = self._fabric.base_station
        held = [end for each in opening for end in each.ends]
        for end in site.ends:
            end.held = end in held
        self._gates = [
            step
            for each in opening
            for step in (
                _GateStep(each.soon_ns, "soon", each),
                _GateStep(each.at_ns, "open", each),
                _GateStep(each.restored_ns, "restore", each),
            )
        ]
        self._gates.sort(key=lambda step: step.at_ns)
        if held:
            site.netlink.transact([message for end in held for message in end.change(0.0)])
            for end in held:
                end.changed(0.0)

    def _step_of_gates(self) -> None:
        """Make gates ready, open them, or let their links save up as always."""
        step = self._gates.pop(0)
        netlink, opening = self._fabric.base_station.netlink, step.opening
        netlink.send(step.batch or opening.restore())
        done = time.monotonic_ns()
        netlink.check()
        if step.what == "open":
            for end, rate_bps in zip(opening.ends, opening.rates_bps, strict=True):
                end.held = False
                end.changed(rate_bps)
            slot = math.floor(self._clock.start_s / self._slot_s + 1e-9)
            self._record.extend((slot, step.at_ns, done, len(opening.ends)))

    def _switch_to(self, index: int) -> None:
        self._phase = index
        done = time.monotonic_ns()
        if self._running:  # Else the slot is one of an epoch that is over.
            self._limit_packets()
            done = self._prepare(self._slot).send()
        self._tell(PhaseSet(done))

    def _limit_packets(self) -> None:
        """Let packets be as large as the links' rates allow."""
        uplink, downlink = self._table.mean(self._slot, self._phase)
        fabric = self._fabric
        sites = [(fabric.base_station, downlink)] if fabric.base_station.ends else []
        here = zip(fabric.clients, fabric.uavs, strict=True)
        sites += [(site, uplink[client - 1 : client]) for client, site in here]
        for site, rates in sites:
            frames = [self._shape.packet_frames(r * self._clock.dilation) for r in rates]
            if frames and frames != [end.packet_frames for end in site.ends]:
                limit_packets(site, frames)

    def _tell_counters(self) -> None:
        width = width_of_air(self._fabric.links)
        asked_ns = time.time_ns()
        fabric, bs_sent = self._fabric, _sent(self._fabric.base_station)
        up, down = ([dict(_NOTHING) for _ in range(fabric.links)] for _ in range(2))
        for place, end in enumerate(fabric.base_station.ends):
            down[place] |= bs_sent[end.index]
        for client, uav in zip(fabric.clients, fabric.uavs, strict=True):
            (end,) = uav.ends
            up[client - 1] |= _sent(uav)[end.index]
        for ways, counts in zip((up, down), self._of_air(), strict=True):
            for way, count in zip(ways, counts, strict=True):
                way |= _air(count)
        self._tell(
            Counters(
                asked_ns,
                tuple((Direction(**u), Direction(**d)) for u, d in zip(up, down, strict=True)),
                linux.scheduling(),
                self._below_floor,
                self._exhausted,
                (self._record + self._air_record).tobytes(),
                len(self._air_record) // width,
            )
        )
        self._record, self._air_record = array.array("q"), array.array("q")
        self._below_floor = self._exhausted = 0


_NOTHING = dict.fromkeys((field.name for field in fields(Direction)), 0)
"""Of a direction: what is counted on another machine is added by whoever asks both."""
_OfAir = QueueCount | LineCount | None


def width_of_air(links: int) -> int:
    """Of a row of what the air has done: see `Counters.slots`."""
    return 1 + 2 * _AIR_OF_WAY * links


def _sent(site: Site) -> dict[int, dict[str, int]]:
    """What each end of a site has sent."""
    queues, devices = queue_counts(site.netlink), device_counts(site.netlink)
    return {
        end.index: vars(queues[end.index])
        | {f"device_{name}": n for name, n in vars(devices[end.index]).items()}
        for end in site.ends
    }


def _air(count: "_OfAir") -> dict[str, int]:
    """As fields of a `Direction`."""
    if count is None:
        return {}
    late = count.late_frames if isinstance(count, LineCount) else 0
    return {
        "lost_frames": count.dropped_frames,
        "arrived_frames": count.sent_frames,
        "late_frames": late,
    }


class _GateStep:
    """Something to be done with gates at a moment."""

    def __init__(
        self, at_ns: int, what: Literal["soon", "open", "restore"], opening: Opening
    ) -> None:
        self.at_ns, self.what, self.opening = at_ns, what, opening
        self.batch: Batch | None = None
        """Made beforehand, but for what depends on the rates by then."""
        if what != "restore":
            self.batch = opening.soon() if what == "soon" else opening.open()


class _Prepared:
    """The messages that lead to a slot's rates."""

    def __init__(self) -> None:
        self.missing = False
        self.changes = 0
        self.below_floor = 0
        self._batches: list[tuple[Site, Batch]] = []
        self._ends: list[tuple[End, float]] = []
        self.air: list[ImpairmentChange] = []
        """What becomes of frames, once the rates have been set."""

    def add(self, site: Site, rates: Sequence[float], floor_bps: float) -> None:
        messages = []
        for end, rate in zip(site.ends, rates, strict=True):
            if end.held:
                continue
            if 0 < rate < floor_bps:
                rate = 0.0
                self.below_floor += 1
            if change := end.change(rate):
                messages += change
                self._ends.append((end, rate))
        if messages:
            self._batches.append((site, Batch(messages)))
            self.changes += len(messages)

    def send(self) -> int:
        """Set the rates; the monotonic time in ns when the kernel had done so.

        It acts, and answers, before `sendmsg` returns; so its answers can be read afterwards.
        """
        for site, batch in self._batches:
            site.netlink.send(batch)
        done = time.monotonic_ns()
        for site, _ in self._batches:
            site.netlink.check()
        for end, rate in self._ends:
            end.changed(rate)
        for change in self.air:
            change.make()
        return done


def serve(
    control: socket.socket,
    base_station: int | None,
    uavs: Sequence[int],
    shape: Shape,
    part: Part | None = None,
    underlay: int | None = None,
    relays: Sequence[socket.socket] = (),
) -> None:
    """Wire the links, then be the injector: the body of the fabric process; see `wire`.

    Returns when told to stop or when the other side of `control` is gone. What goes wrong is
    reported through `control`.
    """
    channel = ControlSocket(control)
    try:
        fabric = wire(base_station, uavs, shape, part, underlay, relays)
        if underlay is not None:
            os.close(underlay)
        # To change rates, and to capture.
        linux.keep_capabilities(linux.CAP_NET_ADMIN, linux.CAP_NET_RAW)
        channel.send(*encode(Wired()))
        try:
            _Service(channel, fabric, shape).run()
        finally:
            fabric.unshape()
    except (OSError, RunError) as error:
        with contextlib.suppress(RunError):
            channel.send(*encode(Failed(str(error))))


@dataclass(frozen=True)
class AirCounts:
    """What the air had done to frames when slots began; uplinks and downlinks."""

    slot: "npt.NDArray[np.int64]"
    """Shape [m]; a slot that left no time for it is not among them."""
    lost_frames: "npt.NDArray[np.int64]"
    """Shape [m, K, 2]: until then."""
    arrived_frames: "npt.NDArray[np.int64]"
    """Shape [m, K, 2]: until then."""
    asked_loss: "npt.NDArray[np.float64]"
    """Shape [m, K, 2]: probability of a frame to be lost from then on."""


@dataclass(frozen=True)
class Report:
    """What the injector did since its last report."""

    slot: "npt.NDArray[np.int64]"
    """Shape [n]: the slots that were set."""
    boundary_ns: "npt.NDArray[np.int64]"
    """Shape [n]: when each was due, in monotonic time."""
    done_ns: "npt.NDArray[np.int64]"
    """Shape [n]: when the kernel had acknowledged all its changes."""
    changes: "npt.NDArray[np.int64]"
    """Shape [n]: netlink messages it took."""
    asked_ns: int
    """Unix time: all frames that had passed by then are counted below."""
    uplink: Sequence[Direction]
    """K entries."""
    downlink: Sequence[Direction]
    scheduling: str
    """How the kernel schedules the injector: `fifo` or a nice value."""
    below_floor: int
    """Link rates that were positive but below a frame a slot, and so counted as an outage."""
    exhausted: int
    """Slots for which no rates were given, so that the last ones stayed."""
    air: AirCounts | None = None
    """Where frames are to be lost."""
    clock_error_s: float = 0.0
    """Where links lead to other machines: by how much their clocks may have differed from what was
    assumed since the last epoch, in real seconds."""

    @property
    def lateness_s(self) -> "npt.NDArray[np.float64]":
        """Shape [n]: how long after its boundary each slot was set."""
        return (self.done_ns - self.boundary_ns).clip(min=0) * 1e-9


@dataclass(frozen=True)
class Samples:
    """What was counted at slot boundaries, just after a slot's rates had been set."""

    slot: "npt.NDArray[np.int64]"
    """Shape [n]."""
    boundary_ns: "npt.NDArray[np.int64]"
    """Shape [n]: when each slot began."""
    done_ns: "npt.NDArray[np.int64]"
    """Shape [n]: when its rates had been set."""
    counted_ns: "npt.NDArray[np.int64]"
    """Shape [n, K, 2]: when the counters of uplink and downlink had been read."""
    sent_bytes: "npt.NDArray[np.int64]"
    """Shape [n, K, 2]: what they had carried until then, as it was charged."""
    queued_bytes: "npt.NDArray[np.int64]"
    """Shape [n, K, 2]: what they had waiting."""
    dropped_frames: "npt.NDArray[np.int64]"
    """Shape [n, K, 2]: what they had dropped until then."""
    exhausted: int
    """Slots without rates until now."""


class Injector:
    """The orchestrator's handle of the fabric process; may be used from several threads."""

    def __init__(self, control: socket.socket) -> None:
        self._control = ControlSocket(control)
        self._reports: list[InjectorReport] = []
        self._lock = threading.Lock()
        self._variants = self._clients = 0

    def await_wired(self, timeout_s: float = 60) -> None:
        """Wait until all links are made.

        Raises:
            RunError: They could not be made.
        """
        with self._lock:
            self._await(Wired, timeout_s)

    def rates(
        self,
        first_slot: int,
        uplink_bps: "npt.NDArray[np.float64]",
        *downlink_bps: "npt.NDArray[np.float64]",
        warn_slots: int = 20,
    ) -> None:
        """Give the links' rates from a slot on; what was given from there on before is dropped.

        Rates are those of the real link in bit/s: the scenario's divided by the dilation. 0 is an
        outage: the links hold their frames. They are set at slot boundaries alone: a table that
        comes in the middle of its first slot shows from the next one on.

        Args:
            first_slot: Counts from 0 at emulated time 0.
            uplink_bps: Shape [K, n].
            downlink_bps: One or more of shape [K, n]; `phase` chooses among them, at first 0.
            warn_slots: A `low` event comes when no more slots than that are left.
        """
        import numpy as np

        table = np.stack([uplink_bps, *downlink_bps]).astype(np.float64)
        self._variants, self._clients = len(downlink_bps), len(uplink_bps)
        blob = np.ascontiguousarray(table.transpose(2, 0, 1)).tobytes()
        with self._lock:
            self._send(SetRates(first_slot, len(downlink_bps), warn_slots, blob))

    def epoch(self, clock: EmulatedClock, slot_s: float, held: Sequence[int] = ()) -> None:
        """Start: the rates of the slot in which the clock starts at once, the others on time.

        Slot n begins at n · `slot_s` emulated seconds.

        Args:
            clock: When that is.
            slot_s: Length of a slot in emulated seconds.
            held: What the last frame of a transfer that starts with the clock is charged, of each
                downlink: see `testbed.network.gates`. Empty: none does.

        Raises:
            RunError: No rates were given for the first slot.
        """
        with self._lock:
            self._send(Epoch(clock, slot_s, tuple(held)))
            if self._await(EpochBegun).missing:
                raise RunError(f"injector: no rates were given for the slot at {clock.start_s} s")

    def phase(self, index: int) -> int:
        """Switch all downlinks to another variant of the table: at once, or from the next epoch on
        where none runs.

        Returns:
            Monotonic time in ns when the kernel had done so.

        Raises:
            ValueError: The table has no such variant.
        """
        if not 0 <= index < self._variants:
            raise ValueError(f"phase {index}: the table has {self._variants} downlink variants")
        with self._lock:
            self._send(Phase(index))
            return self._await(PhaseSet).done_ns

    def pause(self) -> None:
        """Leave the rates as they are until the next `epoch`."""
        with self._lock:
            self._send(Pause())

    def impair(self, uplinks: Sequence[Impairment], downlinks: Sequence[Impairment]) -> None:
        """Let the air delay and lose frames from now on, K entries each.

        Raises:
            RunError: The kernel lacks what that takes.
        """
        with self._lock:
            self._send(Impair(tuple(uplinks), tuple(downlinks)))
            self._await(Impaired)

    def air(
        self,
        first_slot: int,
        uplinks: "npt.NDArray[np.float64]",
        *downlinks: "npt.NDArray[np.float64]",
    ) -> None:
        """Give what slots do to frames, from one on; what was given from there on is dropped.

        A delay that changes by less than `slot_impairments.NEAR_S` is left as it is.

        Args:
            first_slot: Counts from 0 at emulated time 0.
            uplinks: Shape [K, n, 3]: delay and jitter in real seconds, probability of a loss.
            downlinks: One or more of them; `phase` chooses among them, as among rates.
        """
        import numpy as np

        table = np.stack([uplinks, *downlinks]).astype(np.float64)
        blob = np.ascontiguousarray(table.transpose(2, 0, 1, 3)).tobytes()
        with self._lock:
            self._send(SetImpairments(first_slot, len(downlinks), blob))

    def capture(self, files: Sequence[Path], *, headers_only: bool) -> None:
        """Write what goes over the links from now on to pcap files, one a link.

        Raises:
            RunError: This machine does not let us, or the files cannot be written.
        """
        with self._lock:
            names = tuple(str(file.resolve()) for file in files)
            self._send(StartCapture(names, headers_only))
            self._await(Capturing)

    def end_capture(self, until_ns: int) -> Captured:
        """End what `capture` began; the files are whole when this returns.

        Args:
            until_ns: Unix time; later frames are left out.

        Raises:
            RunError: It has failed.
        """
        with self._lock:
            self._send(EndCapture(until_ns))
            return self._await(Captured, END_S + ANSWER_S)

    def stop(self) -> None:
        """End the process."""
        with self._lock:
            self._send(Stop())
            self._control.close()

    def events(self) -> list[InjectorReport]:
        """What the injector said on its own: `Low` and `Exhausted`.

        Raises:
            RunError: The injector failed.
        """
        with self._lock:
            self._collect(0)
            events, self._reports = self._reports, []
            return events

    def report(self) -> Report:
        """What it did since the last report, and the links' counters.

        Reading many links takes milliseconds: ask between rounds rather than during one.
        """
        import numpy as np

        with self._lock:
            self._send(AskCounters())
            counters = self._await(Counters)
        up, down = zip(*counters.links, strict=True)
        values, width = np.frombuffer(counters.slots, np.int64), width_of_air(len(up))
        set_, counted = np.split(values, [len(values) - counters.impaired_slots * width])
        slots, air = set_.reshape(-1, 4).T.copy(), None
        if counters.impaired_slots:
            rows = counted.reshape(-1, width)
            ways = rows[:, 1:].reshape(-1, len(up), 2, _AIR_OF_WAY)
            air = AirCounts(rows[:, 0], ways[..., 0], ways[..., 1], ways[..., 2] / _CERTAIN)
        return Report(
            slot=slots[0],
            boundary_ns=slots[1],
            done_ns=slots[2],
            changes=slots[3],
            asked_ns=counters.asked_ns,
            uplink=list(up),
            downlink=list(down),
            scheduling=counters.scheduling,
            below_floor=counters.below_floor,
            exhausted=counters.exhausted,
            air=air,
        )

    def machine(self) -> MachineNow:
        """What its process's machine has done until now."""
        with self._lock:
            self._send(AskMachine())
            return self._await(MachineNow)

    def watch(self) -> None:
        """Count what links carry at every slot boundary from now on, for `samples`.

        Packet sizes follow the rates from then on, too; else they do so at an epoch or phase.
        """
        with self._lock:
            self._send(Watch())

    def samples(self) -> Samples:
        """What was counted since the last time; costs the injector next to nothing."""
        import numpy as np

        with self._lock:
            self._send(AskSamples())
            given = self._await(SamplesReport)
        width = _SAMPLE + 2 * _SAMPLE_OF_WAY * self._clients
        values = np.frombuffer(given.table, np.int64)
        rows = values.reshape(len(values) // width, width)
        links = rows[:, _SAMPLE:].reshape(-1, self._clients, 2, _SAMPLE_OF_WAY)
        slot, boundary_ns, done_ns, _ = rows[:, :_SAMPLE].T
        counted_ns, sent_bytes, queued_bytes, dropped_frames = np.moveaxis(links, 3, 0)
        return Samples(
            slot,
            boundary_ns,
            done_ns,
            counted_ns,
            sent_bytes,
            queued_bytes,
            dropped_frames,
            given.exhausted,
        )

    def passed_on(self) -> socket.socket:
        """The stream to its process once more, for who passes on what others say to it."""
        return socket.socket(fileno=os.dup(self._control.fileno()))

    def _send(self, order: InjectorOrder) -> None:
        try:
            self._control.send(*encode(order))
        except NoAnswer as error:
            raise RunError(f"injector: its process takes no order ({error})") from None
        except RunError:
            self._collect(0)
            raise RunError("injector: its process is gone") from None

    def _await(self, kind: type[Kind], timeout_s: float | None = None) -> Kind:
        timeout_s = ANSWER_S if timeout_s is None else timeout_s
        deadline = time.monotonic() + timeout_s
        while True:
            for index, found in enumerate(self._reports):
                if isinstance(found, kind):
                    del self._reports[index]
                    return found
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise RunError(
                    f"injector: waited {timeout_s:g} s for {kind.__name__} from its process"
                )
            self._collect(left_s)

    def _collect(self, timeout_s: float) -> None:
        """Take in the reports that come within a time: the first, and all that are there then."""
        try:
            message = self._control.receive(timeout_s)
        except RunError:
            raise RunError("injector: its process is gone") from None
        while message:
            report = FROM_INJECTOR.decode(*message)
            if isinstance(report, Failed):
                raise RunError(f"injector: {report.reason}")
            self._reports.append(report)
            message = self._control.receive(0)


def main(shape: str, control: str, base_station: str, *uavs: str) -> None:
    """The fabric process as a program: a `Shape` in JSON, then open files by their number."""
    linux.prefer_scheduling()
    stream = socket.socket(fileno=int(control))
    serve(stream, int(base_station), [int(uav) for uav in uavs], Shape(**json.loads(shape)))


if __name__ == "__main__":
    main(*sys.argv[1:])
