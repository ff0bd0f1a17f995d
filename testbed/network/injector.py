# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The injector: a process that sets all link rates at every slot boundary.

`testbed.network.injection` decides on the actions and their times; the `Driver` here executes them.
It prepares the rates of the next slot as netlink messages before the boundary, so that only one
`sendmsg` per namespace remains at the boundary. The orchestrator controls the process through a
socket with an `Injector`.
"""

import contextlib
import gc
import json
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

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
    Failed,
    Impair,
    Impaired,
    InjectorOrder,
    InjectorReport,
    MachineNow,
    Pause,
    Phase,
    PhaseSet,
    SetChannel,
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
from testbed.network.airtime import Division
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
from testbed.network.holding import Release, Step
from testbed.network.impairments import change
from testbed.network.injection import (
    AIR_OF_WAY,
    BASE_STATION,
    CERTAIN,
    SAMPLE,
    SAMPLE_OF_WAY,
    Answer,
    ChangeRates,
    CountersRead,
    Event,
    FrameLossesRead,
    Hold,
    Injection,
    Instruction,
    LimitPackets,
    Ordered,
    QueuesRead,
    RatesSet,
    ReadCounters,
    ReadFrameLosses,
    ReadQueues,
    Sample,
    Sampled,
    StepTaken,
    Wait,
    impairment_width,
)
from testbed.network.line import Line, LineCount
from testbed.network.pacing import GONE
from testbed.network.pcap import END_S, Capture
from testbed.network.radio_driver import RadioDriver, RadioProcess
from testbed.network.serial_line import SerialEnd
from testbed.network.shaping import (
    End,
    QueueCount,
    Shape,
    netem_counts,
    queue_counts,
    queues_and_waits,
)
from testbed.network.slot_impairments import Way
from testbed.network.taps import RadioProgram
from testbed.system import linux
from testbed.system.machine import Machine, boot_id
from testbed.system.netlink import Batch, Netlink
from testbed.system.waiting import wait_until

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

ANSWER_S = 30.0
"""Timeout for an answer of the injector's process, which takes milliseconds."""
SPIN_NS = 150_000
"""Busy-wait window before a deadline, in ns; control messages are not polled in it. It covers the
late wake-up of a process that sleeps until a message arrives."""
Kind = TypeVar("Kind")


def _nothing() -> None:
    """Announce nothing."""


class Driver:
    """Executes the instructions of an `Injection` on the links and the control socket of its
    process."""

    def __init__(self, control: ControlSocket, fabric: Fabric, shape: Shape) -> None:
        self._control = control
        self._fabric = fabric
        self._sites = dict(zip(fabric.clients, fabric.uavs, strict=True))
        if fabric.base_station.ends:
            self._sites = {BASE_STATION: fabric.base_station} | self._sites
        has_base_station, now_ns = BASE_STATION in self._sites, time.monotonic_ns()
        self._announces = shape.serial
        """Whether links get the rates of a slot before it begins."""
        self._injection = Injection(shape, fabric.links, fabric.clients, has_base_station, now_ns)
        self._arrivals = {Way(at.link, at.down): at for at in fabric.arrivals}
        self._capture: Capture | None = None
        self._line: Line | None = None
        self._prepared_steps: dict[Step, Batch] = {}
        self._large_packets: set[int] = set()
        """Sites that have sent packets of several frames, in a watched session."""
        linux.precise_timers()

    def run(self) -> None:
        """Serve until an order to stop.

        Raises:
            RunError: The orchestrator, or the process that carries the links, has ended.
        """
        gc.collect()
        gc.freeze()
        gc.disable()
        while True:
            for instruction in self._injection.instructions():
                if isinstance(instruction, Stop):
                    return
                self._carry_out(instruction)

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case Wait():
                self._wait(instruction)
            case ChangeRates():
                announce, act = self._prepared(instruction)
                announce()
                self._injection.tell(act())
            case Hold(releases):
                self._hold(releases)
            case LimitPackets(site, frames):
                limit_packets(self._sites[site], frames)
            case Sample():
                self._injection.tell(Sampled(instruction, self._queues()))
            case ReadFrameLosses():
                counts = {
                    way: (count.dropped_frames, count.sent_frames)
                    for way, count in self._air().items()
                }
                self._injection.tell(FrameLossesRead(counts, time.monotonic_ns()))
            case ReadCounters():
                if self._fabric.relay is not None and self._fabric.relay.gone():
                    raise RunError("the process that carries links to other machines is gone")
                if self._fabric.pacer is not None and self._fabric.pacer.gone():
                    raise RunError(GONE)
                self._injection.tell(self._counters())
            case Answer(report):
                self._answer(report)
            case Impair(uplinks, downlinks):
                self._line = impair(self._fabric, uplinks, downlinks)
            case StartCapture():
                devices = {BS_DEVICE_BASE + k: file for k, file in enumerate(instruction.files, 1)}
                self._capture = Capture(devices, instruction.headers_only)
            case EndCapture(until_ns):
                assert self._capture is not None
                self._answer(self._capture.end(until_ns))
                self._capture = None
            case AskMachine():
                self._answer(MachineNow(Machine.now(), boot_id()))

    def _answer(self, report: InjectorReport) -> None:
        self._control.send(*encode(report))

    def _wait(self, wait: Wait) -> None:
        """Wait; a prepared action is kept while a message arrives in parts."""
        message = self._control.next()
        if message is None:
            announce, act = self._prepared(wait.action)
            while message is None and self._message_before(wait.until_ns, announce):
                message = self._control.next()
            if message is None:
                self._injection.tell(act())
                return
        order = TO_INJECTOR.decode(*message)
        self._injection.tell(Ordered(order, time.monotonic_ns()))

    def _message_before(self, deadline: int | None, announce: Callable[[], object]) -> bool:
        """Wait for bytes from the control socket (True) or for the deadline (False).

        `announce` is called before the deadline, when no further message is awaited.
        """
        timeout = None
        if deadline is not None:
            timeout = max(0.0, (deadline - SPIN_NS - time.monotonic_ns()) * 1e-9)
        if select.select([self._control], [], [], timeout)[0]:
            if not self._control.read_available():
                raise RunError("the orchestrator is gone")
            return True
        assert deadline is not None
        announce()
        wait_until(deadline, SPIN_NS)
        return False

    def _prepared(
        self, action: ChangeRates | Step | ReadQueues | None
    ) -> tuple[Callable[[], object], Callable[[], Event]]:
        """Prepare an action as far as possible: a function announces it, and another executes
        it."""
        match action:
            case ChangeRates():
                return self._prepared_rates(action)
            case Step():
                return _nothing, partial(self._take_step, action, self._step_batch(action))
            case _:
                return _nothing, partial(self._read_queues, action)

    def _prepared_rates(
        self, what: ChangeRates
    ) -> tuple[Callable[[], object], Callable[[], RatesSet]]:
        at_ns = what.due_ns if self._announces and what.why == "slot" else 0
        batches: list[tuple[Netlink, Batch]] = []
        changed: list[tuple[End, float]] = []
        rates_of_sites: list[tuple[int, Sequence[float | None]]] = []
        if what.downlinks:
            rates_of_sites.append((BASE_STATION, what.downlinks))
        rates_of_sites += [(client, (rate,)) for client, rate in what.uplinks]
        for site, rates in rates_of_sites:
            messages = []
            for end, rate in zip(self._sites[site].ends, rates, strict=True):
                if rate is not None and rate != end.rate_bps:
                    told = (rate, at_ns) if isinstance(end, SerialEnd) else (rate,)
                    messages += end.change(*told)
                    changed.append((end, rate))
            if messages:
                batches.append((self._sites[site].netlink, Batch(messages)))
        sent_ns: list[int] = []

        def send() -> None:
            # The kernel acts, and answers, before `sendmsg` returns; its answers are read later.
            for netlink, batch in batches:
                netlink.send(batch)
            sent_ns.append(max(at_ns, time.monotonic_ns()))

        if at_ns:
            return send, lambda: self._rates_sent(what, batches, changed, sent_ns[0])

        def act() -> RatesSet:
            send()
            return self._rates_sent(what, batches, changed, sent_ns[0])

        return _nothing, act

    def _rates_sent(
        self,
        what: ChangeRates,
        batches: Sequence[tuple[Netlink, Batch]],
        changed: Sequence[tuple[End, float]],
        done_ns: int,
    ) -> RatesSet:
        """Finish a change of rates that has been in force since `done_ns`."""
        if self._fabric.pacer is not None and changed:
            # Rates of an epoch are in force before its clock starts.
            self._fabric.pacer.change(changed, min(what.due_ns, time.monotonic_ns()))
            done_ns = time.monotonic_ns()
        for netlink, _ in batches:
            netlink.check()
        for end, rate in changed:
            end.changed(rate)
        for each in what.air:
            at = self._arrivals[each.way]
            if self._line is None:
                at.netlink.transact([change(at.device, each.impairment)])
            else:
                assert at.tap is not None
                self._line.change(at.tap, *each.values)
        changes = sum(batch.count for _, batch in batches)
        return RatesSet(what, done_ns, changes, time.monotonic_ns())

    def _hold(self, releases: Sequence[Release]) -> None:
        """Close the valves of downlinks; prepare all steps that no later rate changes."""
        station = self._sites[BASE_STATION]
        held = [station.ends[place] for each in releases for place in each.places]
        self._prepared_steps = {
            step: self._step_batch(step)
            for each in releases
            for step in each.steps()
            if step.what != "restore"
        }
        station.netlink.transact([message for end in held for message in end.change(0.0)])
        for end in held:
            end.changed(0.0)

    def _step_batch(self, step: Step) -> Batch:
        if step in self._prepared_steps:
            return self._prepared_steps[step]
        ends = self._sites[BASE_STATION].ends
        release = step.release
        messages = []
        of_links = zip(release.places, release.rates_bps, release.credits_s, strict=True)
        for place, rate_bps, credit_s in of_links:
            match step.what:
                case "ready":
                    messages += ends[place].soon()
                case "open":
                    messages += ends[place].release(rate_bps, credit_s)
                case "restore":
                    messages += ends[place].restore()
        return Batch(messages)

    def _take_step(self, step: Step, batch: Batch) -> StepTaken:
        station = self._sites[BASE_STATION]
        station.netlink.send(batch)
        done_ns = time.monotonic_ns()
        station.netlink.check()
        if step.what == "open":
            for place, rate_bps in zip(step.release.places, step.release.rates_bps, strict=True):
                station.ends[place].changed(rate_bps)
        return StepTaken(step, done_ns)

    def _read_queues(self, what: ReadQueues | None) -> QueuesRead:
        assert what is not None  # A wait without an end has no action.
        found = {}
        for number in what.sites:
            site, at_ns = self._sites[number], time.monotonic_ns()
            counts = queue_counts(site.netlink)
            counted = (self._counted(end, counts[end.index], at_ns)[0] for end in site.ends)
            found[number] = at_ns, list(counted)
        return QueuesRead(found)

    def _queues(self) -> dict[Way, tuple[int, QueueCount, int]]:
        """See `Sampled.counts`."""
        found = {}
        for site, at in self._sites.items():
            counts, read_ns = queues_and_waits(at.netlink), time.monotonic_ns()
            if any(end.packet_frames > 1 for end in at.ends):
                self._large_packets.add(site)
            # Queues count frames; only devices count packets.
            devices = device_counts(at.netlink) if site in self._large_packets else {}
            for way, end in self._ways(site, at):
                queue, waits, busy_ns = counts[end.index]
                queue, counted_ns = self._counted(end, queue, read_ns)
                packets = queue.sent_frames
                if end.index in devices:
                    packets = devices[end.index].sent_frames
                slack = packets - waits if busy_ns is None else read_ns - busy_ns
                found[way] = counted_ns, queue, slack
        return found

    def _counted(self, end: End, count: QueueCount, at_ns: int) -> tuple[QueueCount, int]:
        """The counters of an end, of which a pacer may hold frames, and their time."""
        pacer = self._fabric.pacer
        return (count, at_ns) if pacer is None else pacer.counted(end, count, at_ns)

    def _ways(self, number: int, site: Site) -> Iterator[tuple[Way, End]]:
        """The directions of the links whose frames a site sends, and its ends."""
        for place, end in enumerate(site.ends, 1):
            yield (Way(place, True) if number == BASE_STATION else Way(number, False)), end

    def _air(self) -> dict[Way, QueueCount | LineCount]:
        """Counters of the impaired directions whose frames arrive on this machine."""
        found: dict[Way, QueueCount | LineCount] = {}
        read = dict[Netlink, dict[int, QueueCount]]()
        for way, at in self._arrivals.items():
            if at.tap is None:
                if at.netlink not in read:
                    read[at.netlink] = netem_counts(at.netlink)
                if at.device in read[at.netlink]:
                    found[way] = read[at.netlink][at.device]
            elif self._line is not None:
                found[way] = self._line.count(at.tap)
        return found

    def _counters(self) -> CountersRead:
        asked_ns = time.time_ns()
        links = range(1, self._fabric.links + 1)
        ways = {Way(k, down): dict(_NOTHING) for k in links for down in (False, True)}
        for number, site in self._sites.items():
            queues, devices = queue_counts(site.netlink), device_counts(site.netlink)
            for way, end in self._ways(number, site):
                ways[way] |= vars(self._counted(end, queues[end.index], time.monotonic_ns())[0])
                if self._fabric.pacer is not None:
                    ways[way]["late_frames"] = self._fabric.pacer.late_frames(end)
                device = devices[end.index]
                ways[way] |= {
                    "device_sent_bytes": device.sent_bytes,
                    "device_sent_frames": device.sent_frames,
                }
        for way, count in self._air().items():
            ways[way] |= {
                "lost_frames": count.dropped_frames,
                "arrived_frames": count.sent_frames,
                "late_frames": count.late_frames if isinstance(count, LineCount) else 0,
            }
        of_ways = {way: Direction(**values) for way, values in ways.items()}
        of_links = tuple((of_ways[Way(k, False)], of_ways[Way(k, True)]) for k in links)
        return CountersRead(asked_ns, of_links, linux.scheduling())


_NOTHING = dict.fromkeys((field.name for field in fields(Direction)), 0)
"""The counters of a direction on this machine; other machines have their own counters."""


def serve(
    control: socket.socket,
    base_station: int | None,
    uavs: Sequence[int],
    shape: Shape,
    part: Part | None = None,
    underlay: int | None = None,
    relays: Sequence[socket.socket] = (),
    radio: RadioProgram | None = None,
) -> None:
    """Wire the links, then run the injector: the body of the fabric process; see `wire`.

    If there is a radio program, its process carries the frames, and `RadioDriver` takes the
    injector's place.

    Returns after an order to stop, or when the other side of `control` has closed it. Errors are
    reported through `control`.
    """
    channel = ControlSocket(control)
    try:
        taps = radio is not None
        fabric = wire(base_station, uavs, shape, part, underlay, relays, taps=taps)
        if underlay is not None:
            os.close(underlay)
        # To change rates, and to capture.
        linux.keep_capabilities(linux.CAP_NET_ADMIN, linux.CAP_NET_RAW)
        process = None if radio is None else RadioProcess(radio, fabric)
        channel.send(*encode(Wired()))
        try:
            driver = (
                RadioDriver(channel, fabric, process) if process else Driver(channel, fabric, shape)
            )
            driver.run()
        finally:
            fabric.unshape()
            if process is not None:
                process.close()
    except (OSError, RunError) as error:
        with contextlib.suppress(RunError):
            channel.send(*encode(Failed(str(error))))


@dataclass(frozen=True)
class ImpairmentCounts:
    """Frames that the channel had lost and delivered when slots began, for both directions."""

    slot: "npt.NDArray[np.int64]"
    """Shape [m]; slots that left no time for counting are missing."""
    lost_frames: "npt.NDArray[np.int64]"
    """Shape [m, K, 2]: frames lost before the slot."""
    arrived_frames: "npt.NDArray[np.int64]"
    """Shape [m, K, 2]: frames delivered before the slot."""
    asked_loss: "npt.NDArray[np.float64]"
    """Shape [m, K, 2]: the probability that a frame is lost from then on."""


@dataclass(frozen=True)
class Report:
    """The slots that the injector has set since its last report, and the links' counters."""

    slot: "npt.NDArray[np.int64]"
    """Shape [n]: numbers of the slots whose rates were set."""
    boundary_ns: "npt.NDArray[np.int64]"
    """Shape [n]: when each was due, in monotonic time."""
    done_ns: "npt.NDArray[np.int64]"
    """Shape [n]: when the kernel had acknowledged all its changes."""
    changes: "npt.NDArray[np.int64]"
    """Shape [n]: number of netlink messages."""
    asked_ns: int
    """Unix time in ns: all frames sent before are counted below."""
    uplink: Sequence[Direction]
    """K entries."""
    downlink: Sequence[Direction]
    scheduling: str
    """Scheduling of the injector by the kernel: `fifo` or a nice value."""
    below_floor: int
    """Link rates that were positive but below one frame per slot, and so counted as an outage."""
    exhausted: int
    """Number of slots without given rates, in which the last rates remained."""
    air: ImpairmentCounts | None = None
    """Counters of delayed and lost frames; None if no frames are to be lost."""
    clock_error_s: float = 0.0
    """Upper bound of the error of the clock offsets between hosts since the last epoch, in real
    seconds; 0 on one machine."""

    @property
    def lateness_s(self) -> "npt.NDArray[np.float64]":
        """Shape [n]: lateness of each slot's rates after its boundary."""
        return (self.done_ns - self.boundary_ns).clip(min=0) * 1e-9


@dataclass(frozen=True)
class Samples:
    """Counters at slot boundaries, read just after a slot's rates had been set."""

    slot: "npt.NDArray[np.int64]"
    """Shape [n]."""
    boundary_ns: "npt.NDArray[np.int64]"
    """Shape [n]: when each slot began."""
    done_ns: "npt.NDArray[np.int64]"
    """Shape [n]: time at which the slot's rates had been set."""
    counted_ns: "npt.NDArray[np.int64]"
    """Shape [n, K, 2]: when the counters of uplink and downlink had been read."""
    sent_bytes: "npt.NDArray[np.int64]"
    """Shape [n, K, 2]: bytes sent until then, as they were charged."""
    queued_bytes: "npt.NDArray[np.int64]"
    """Shape [n, K, 2]: bytes in the queue."""
    dropped_frames: "npt.NDArray[np.int64]"
    """Shape [n, K, 2]: frames dropped until then."""
    slack: "npt.NDArray[np.int64]"
    """Shape [n, K, 2]: packets sent until then for which the shaper did not have to wait; for a
    serial line, a number of ns that grows while it has nothing to send."""
    exhausted: int
    """Number of slots without rates until now."""


@dataclass(frozen=True)
class DividedRates:
    """Rates of a direction that its active links divide: see `testbed.network.airtime`."""

    rows: "npt.NDArray[np.float64]"
    """Rates of links while some number of them is active, in bit/s; shape [rows, K, n]."""
    division: Division
    """For each number of active links from 1 on: the row, and the fraction of it that a link has.
    """


class InjectorFailed(RunError):
    """The fabric process has reported an error, after which it ends."""


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
            RunError: The links could not be made.
        """
        with self._lock:
            self._await(Wired, timeout_s)

    def rates(
        self,
        first_slot: int,
        uplink_bps: "npt.NDArray[np.float64] | DividedRates",
        *downlink_bps: "npt.NDArray[np.float64] | DividedRates",
        warn_slots: int = 20,
    ) -> None:
        """Give the links' rates from a slot on, in place of those given before for these slots.

        Rates are those of the real link in bit/s: the scenario's divided by the dilation. 0 is an
        outage: the links hold their frames. Rates are set at slot boundaries only: a table that
        arrives in the middle of its first slot takes effect from the next slot on.

        Args:
            first_slot: Counts from 0 at emulated time 0.
            uplink_bps: Shape [K, n], or how active links divide the direction.
            downlink_bps: Rates of the downlinks in bit/s, one or more variants; `phase` selects
                one, initially 0.
            warn_slots: The injector reports `Low` when at most this number of slots is left.
        """
        import numpy as np

        ways = [
            way if isinstance(way, DividedRates) else DividedRates(way[None], ((0, 1.0),))
            for way in (uplink_bps, *downlink_bps)
        ]
        firsts = np.cumsum([0, *(len(way.rows) for way in ways)])
        divided = tuple(
            tuple((int(row + first), part) for row, part in way.division)
            for way, first in zip(ways, firsts, strict=False)
        )
        table = np.concatenate([way.rows for way in ways]).astype(np.float64)
        self._variants, self._clients = len(downlink_bps), table.shape[1]
        blob = np.ascontiguousarray(table.transpose(2, 0, 1)).tobytes()
        with self._lock:
            self._send(SetRates(first_slot, len(downlink_bps), warn_slots, blob, divided))

    def channel(
        self,
        first_slot: int,
        *values: "npt.NDArray[np.float64]",
        warn_slots: int = 20,
    ) -> None:
        """Set the channel from a slot on, and replace earlier values for these slots: the
        counterpart of `rates` if a radio process carries the frames.

        Args:
            first_slot: Counts from 0 at emulated time 0.
            values: Input of the radio process per slot, concatenated: gains of uplinks and
                downlinks, [n, cells, K, steps] each, and positions [n, K, 3] if it needs them.
            warn_slots: The injector reports `Low` when at most this number of slots is left.
        """
        import numpy as np

        count = len(values[0])
        rows = np.concatenate([each.reshape(count, -1) for each in values], axis=1)
        self._variants = 1 << 16  # A phase changes no channel.
        self._clients = values[0].shape[2]
        with self._lock:
            self._send(SetChannel(first_slot, count, warn_slots, rows.astype(np.float64).tobytes()))

    def epoch(
        self,
        clock: EmulatedClock,
        slot_s: float,
        held: Sequence[int] = (),
        held_bytes: Sequence[int] = (),
    ) -> None:
        """Set the rates of the slot in which the clock starts at once, and the later ones on time.

        Slot n begins at n · `slot_s` emulated seconds.

        Args:
            clock: The emulated clock.
            slot_s: Length of a slot in emulated seconds.
            held: Bytes charged for the last frame of each downlink's transfer, if transfers start
                with the clock and are held until then: see `testbed.network.holding`.
            held_bytes: Bytes charged for all frames of each of these transfers; empty: unknown.

        Raises:
            RunError: No rates were given for the first slot.
        """
        with self._lock:
            self._send(Epoch(clock, slot_s, tuple(held), tuple(held_bytes)))
            if self._await(EpochBegun).missing:
                raise RunError(f"injector: no rates were given for the slot at {clock.start_s} s")

    def phase(self, index: int) -> int:
        """Switch all downlinks to another variant of the table: at once during an epoch, otherwise
        with the next epoch.

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
        """Let the channel delay and lose frames from now on; K impairments each.

        Raises:
            RunError: The kernel cannot delay or lose frames.
        """
        with self._lock:
            self._send(Impair(tuple(uplinks), tuple(downlinks)))
            self._await(Impaired)

    def impair_slots(
        self,
        first_slot: int,
        uplinks: "npt.NDArray[np.float64]",
        *downlinks: "npt.NDArray[np.float64]",
    ) -> None:
        """Give delays and losses from a slot on, in place of those given before for these slots.

        A delay that changes by less than `slot_impairments.NEAR_S` is not set again.

        Args:
            first_slot: Counts from 0 at emulated time 0.
            uplinks: Shape [K, n, 3]: delay and jitter in real seconds, probability of a loss.
            downlinks: One or more variants; `phase` selects one, as with the rates.
        """
        import numpy as np

        table = np.stack([uplinks, *downlinks]).astype(np.float64)
        blob = np.ascontiguousarray(table.transpose(2, 0, 1, 3)).tobytes()
        with self._lock:
            self._send(SetImpairments(first_slot, len(downlinks), blob))

    def capture(self, files: Sequence[Path], *, headers_only: bool) -> None:
        """Write all frames on the links from now on to pcap files, one per link.

        Raises:
            RunError: Capturing is not permitted, or the files cannot be written.
        """
        with self._lock:
            names = tuple(str(file.resolve()) for file in files)
            self._send(StartCapture(names, headers_only))
            self._await(Capturing)

    def end_capture(self, until_ns: int) -> Captured:
        """End the capture; the files are complete when this returns.

        Args:
            until_ns: Unix time in ns; later frames are not written.

        Raises:
            RunError: The capture has failed.
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
        """The unsolicited reports of the injector since the last call: `Low` and `Exhausted`.

        Raises:
            RunError: The injector failed.
        """
        with self._lock:
            self._collect(0)
            events, self._reports = self._reports, []
            return events

    def report(self) -> Report:
        """The slots set since the last report, and the links' counters.

        Reading many links takes milliseconds: call it between rounds rather than during one.
        """
        import numpy as np

        with self._lock:
            self._send(AskCounters())
            counters = self._await(Counters)
        up, down = zip(*counters.links, strict=True)
        values, width = np.frombuffer(counters.slots, np.int64), impairment_width(len(up))
        set_, counted = np.split(values, [len(values) - counters.impaired_slots * width])
        slots, air = set_.reshape(-1, 4).T.copy(), None
        if counters.impaired_slots:
            rows = counted.reshape(-1, width)
            ways = rows[:, 1:].reshape(-1, len(up), 2, AIR_OF_WAY)
            air = ImpairmentCounts(rows[:, 0], ways[..., 0], ways[..., 1], ways[..., 2] / CERTAIN)
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
        """The load counters of the machine on which the injector's process runs."""
        with self._lock:
            self._send(AskMachine())
            return self._await(MachineNow)

    def watch(self) -> None:
        """Read the links' counters at every slot boundary from now on, for `samples`.

        Packet sizes then follow the rates within an epoch, too, not only at an epoch or phase.
        """
        with self._lock:
            self._send(Watch())

    def samples(self) -> Samples:
        """The samples since the last call; takes the injector hardly any time."""
        import numpy as np

        with self._lock:
            self._send(AskSamples())
            given = self._await(SamplesReport)
        width = SAMPLE + 2 * SAMPLE_OF_WAY * self._clients
        values = np.frombuffer(given.table, np.int64)
        rows = values.reshape(len(values) // width, width)
        links = rows[:, SAMPLE:].reshape(-1, self._clients, 2, SAMPLE_OF_WAY)
        slot, boundary_ns, done_ns, _ = rows[:, :SAMPLE].T
        counted_ns, sent_bytes, queued_bytes, dropped_frames, slack = np.moveaxis(links, 3, 0)
        return Samples(
            slot,
            boundary_ns,
            done_ns,
            counted_ns,
            sent_bytes,
            queued_bytes,
            dropped_frames,
            slack,
            given.exhausted,
        )

    def passed_on(self) -> socket.socket:
        """A duplicate of the stream to its process, for a proxy that forwards messages."""
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
        """Wait for a report until a timeout, and then read all that have arrived."""
        try:
            message = self._control.receive(timeout_s)
        except RunError:
            raise RunError("injector: its process is gone") from None
        while message:
            report = FROM_INJECTOR.decode(*message)
            if isinstance(report, Failed):
                raise InjectorFailed(f"injector: {report.reason}")
            self._reports.append(report)
            message = self._control.receive(0)


def main(shape: str, control: str, base_station: str, *uavs: str) -> None:
    """The fabric process as a program: a `Shape` in JSON, then open files by their number."""
    linux.prefer_scheduling()
    stream = socket.socket(fileno=int(control))
    serve(stream, int(base_station), [int(uav) for uav in uavs], Shape(**json.loads(shape)))


if __name__ == "__main__":
    main(*sys.argv[1:])
