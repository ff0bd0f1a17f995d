# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The injector's counterpart where ns-3's radio carries the frames: it directs the radio process.

Each end of a link is a tap device. The radio process (the program of `ns3_scenarios/cpp/radio`)
reads the frames of all devices, passes their packets through ns-3's radio access, and writes the
results to the device at the other end. It synchronises ns-3 with the kernel's clock and changes the
channel at slot boundaries itself. The `RadioDriver` here passes the channel and the clocks on to
it, and answers the orchestrator with its counts, so that `testbed.network.injector.Injector` is the
handle of both.
"""

import json
import math
import os
import select
import struct
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

from testbed.control.codec import encode
from testbed.control.messages import (
    TO_INJECTOR,
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
    InjectorOrder,
    InjectorReport,
    Low,
    MachineNow,
    Pause,
    Phase,
    PhaseSet,
    Samples,
    SetChannel,
    StartCapture,
    Stop,
    Watch,
)
from testbed.control.stream import ControlSocket, readable
from testbed.core.clock import EmulatedClock
from testbed.core.errors import RunError
from testbed.core.signals import signal_name
from testbed.network.fabric import BS_DEVICE_BASE, DeviceCount, Fabric, device_counts
from testbed.network.injection import SAMPLE, SAMPLE_OF_WAY
from testbed.network.pcap import Capture
from testbed.network.taps import RadioProgram
from testbed.system import linux
from testbed.system.machine import Machine, boot_id

START_S = 120.0
"""Real seconds in which ns-3 must have connected all UAVs; it takes seconds for tens of them."""
ANSWER_S = 60.0
ENDING_S = 10.0
_NUMBER = 8
_FIELDS = 8
"""Numbers of each direction of a link in the answer to `counts`."""


@dataclass(frozen=True)
class _Count:
    """Counters of the radio process for one direction of a link."""

    entered_bytes: int
    entered_packets: int
    left_bytes: int
    left_packets: int
    lost_packets: int
    refused_packets: int
    inside_packets: int
    held_bytes: int


class RadioProcess:
    """ns-3's process, from its start until all UAVs are connected and beyond."""

    def __init__(self, program: RadioProgram, fabric: Fabric) -> None:
        """Start it, and wait until all UAVs are connected, which takes simulated time only.

        Raises:
            RunError: The radio process ended, or a UAV was not connected.
        """
        settings = json.loads(program.settings)
        settings |= {"uav_taps": list(fabric.uav_taps), "station_taps": list(fabric.station_taps)}
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            list(program.argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            pass_fds=(*fabric.uav_taps, *fabric.station_taps),
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        try:
            self._connect(settings, program.first)
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        """The descriptor that can be read when the process has ended."""
        return self._stdout.fileno()

    def send(self, line: str, data: bytes = b"") -> None:
        """Write an order and the bytes that follow it.

        Raises:
            RunError: The process has ended; the message gives the reason.
        """
        left = memoryview(line.encode() + b"\n" + data)
        try:
            while left:
                left = left[os.write(self._stdin.fileno(), left) :]
        except BrokenPipeError:
            raise self.died() from None

    def counts(self, links: int) -> tuple[list[_Count], bytes, int]:
        """Counts of each link's uplink and downlink, the slots since the last call as
        `Counters.slots` has them, and the number of slots without a channel."""
        self.send("counts")
        _, rows, exhausted = self._line(ANSWER_S).split()
        values = memoryview(self._read(_NUMBER * 2 * _FIELDS * links)).cast("q").tolist()
        counts = [
            _Count(*values[start : start + _FIELDS]) for start in range(0, len(values), _FIELDS)
        ]
        slots = self._read(_NUMBER * 4 * int(rows))
        return counts, slots, int(exhausted)

    def samples(self, links: int) -> tuple[bytes, int]:
        """Rows as `Samples.table` has them since the last call, and the number of slots without a
        channel."""
        self.send("samples")
        _, rows, exhausted = self._line(ANSWER_S).split()
        width = SAMPLE + 2 * SAMPLE_OF_WAY * links
        return self._read(_NUMBER * width * int(rows)), int(exhausted)

    def died(self) -> RunError:
        """The error with the last output of the process, which has closed its output."""
        try:
            status = self._process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._stderr.seek(0)
        said = " ".join(self._stderr.read().decode(errors="replace").split())[-1000:]
        how = f"status {status}" if status >= 0 else signal_name(-status)
        return RunError(f"the radio process died ({how}): {said or 'it left no message'}")

    def close(self) -> None:
        """End the process; its devices are removed."""
        self._process.kill()
        self._process.wait()

    def _connect(self, settings: dict[str, Any], first: Sequence[float]) -> None:
        start = {"parent": os.getpid(), "settings": settings}
        self.send(json.dumps(start), struct.pack(f"={len(first)}d", *first))
        missing = json.loads(self._line(START_S))["missing"]
        if missing and settings["radio"] != "wifi":
            names = ", ".join(f"UAV {k + 1}" for k in missing)
            raise RunError(
                f"ns-3's {settings['radio'].upper()}: did not attach to the base station within "
                f"{settings['attach_s']:g} s of simulated time: {names}"
            )

    def _line(self, timeout_s: float) -> bytes:
        line = bytearray()
        while not line.endswith(b"\n"):
            line += self._some(1, timeout_s)
        return bytes(line)

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            data += self._some(size - len(data), ANSWER_S)
        return bytes(data)

    def _some(self, size: int, timeout_s: float) -> bytes:
        if not readable(self._stdout, timeout_s):
            raise RunError(f"the radio process: waited {timeout_s:g} s for its answer")
        data = os.read(self._stdout.fileno(), size)
        if not data:
            raise self.died()
        return data


class RadioDriver:
    """Serves the control socket of the fabric process with a radio process in place of shapers."""

    def __init__(self, control: ControlSocket, fabric: Fabric, process: RadioProcess) -> None:
        self._control = control
        self._fabric = fabric
        self._process = process
        self._capture: Capture | None = None
        self._clock: EmulatedClock | None = None
        self._slot_s = 1.0
        self._first = self._end = self._warn_slots = 0
        self._said_low = self._said_exhausted = False
        self._sampled_drops = [0] * 2 * fabric.links
        """Drops of the devices at the last call for samples, uplink and downlink of each link."""

    def run(self) -> None:
        """Serve until an order to stop.

        Raises:
            RunError: The orchestrator or the radio process has ended.
        """
        while True:
            message = self._control.next()
            while message is None:
                self._await_message()
                message = self._control.next()
            order = TO_INJECTOR.decode(*message)
            if isinstance(order, Stop):
                return
            self._obey(order)

    def _await_message(self) -> None:
        """Wait for bytes of the orchestrator; report meanwhile if few slots of the channel are
        left."""
        due_ns = self._due_ns()
        timeout = None if due_ns is None else max(0.0, (due_ns - time.monotonic_ns()) * 1e-9)
        poll = select.poll()  # Open files of many devices have numbers above those of `select`.
        poll.register(self._control.fileno(), select.POLLIN)
        poll.register(self._process.fileno(), select.POLLIN)
        ready = dict(poll.poll(None if timeout is None else 1e3 * timeout))
        if self._process.fileno() in ready:
            raise self._process.died()
        if ready:
            if not self._control.read_available():
                raise RunError("the orchestrator is gone")
        elif not self._said_low:
            self._said_low = True
            self._control.send(*encode(Low(self._end)))
        else:
            self._said_exhausted = True
            self._control.send(*encode(Exhausted(self._end)))

    def _due_ns(self) -> int | None:
        """When the next report about the end of the channel is due; None: at no time."""
        if self._clock is None or (self._said_low and self._said_exhausted):
            return None
        slot = self._end if self._said_low else self._end - self._warn_slots
        return self._clock.monotonic_ns(slot * self._slot_s)

    def _obey(self, order: InjectorOrder) -> None:
        process = self._process
        match order:
            case SetChannel(first, count, warn_slots, table):
                if not self._first <= first <= self._end:
                    self._first = first
                self._end, self._warn_slots = first + count, warn_slots
                self._said_low, self._said_exhausted = not warn_slots, False
                process.send(f"channel {first} {count}", table)
            case Epoch(clock, slot_s, _):
                slot = math.floor(clock.start_s / slot_s + 1e-9)
                missing = not self._first <= slot < self._end
                self._clock, self._slot_s = None if missing else clock, slot_s
                if not missing:
                    process.send(f"epoch {clock.start_ns} {clock.start_s!r} {slot_s!r}")
                self._answer(EpochBegun(time.monotonic_ns(), missing))
            case Phase():
                self._answer(PhaseSet(time.monotonic_ns()))
            case Pause():
                self._clock = None
                process.send("pause")
            case AskCounters():
                self._answer(self._counters())
            case Watch():
                process.send("watch")
            case AskSamples():
                table, exhausted = process.samples(self._fabric.links)
                self._answer(Samples(exhausted, self._with_drops(table)))
            case StartCapture(files, headers_only):
                devices = {BS_DEVICE_BASE + k: file for k, file in enumerate(files, 1)}
                self._capture = Capture(devices, headers_only)
                self._answer(Capturing())
            case EndCapture(until_ns):
                assert self._capture is not None
                self._answer(self._capture.end(until_ns))
                self._capture = None
            case AskMachine():
                self._answer(MachineNow(Machine.now(), boot_id()))
            case _:
                raise RunError(f"the radio process: has no {type(order).__name__}")

    def _answer(self, report: InjectorReport) -> None:
        self._control.send(*encode(report))

    def _counters(self) -> Counters:
        asked_ns = time.time_ns()
        before = self._devices()
        counts, slots, exhausted = self._process.counts(self._fabric.links)
        directions = [
            Direction(
                sent_bytes=count.entered_bytes,
                sent_frames=count.entered_packets,
                dropped_frames=sender.dropped_frames,
                backlog_bytes=count.held_bytes,
                device_sent_bytes=count.entered_bytes,
                device_sent_frames=count.entered_packets,
                lost_frames=count.lost_packets + count.refused_packets,
                arrived_frames=count.left_packets,
                inside_frames=count.inside_packets,
                unaccounted_frames=_unaccounted(count, then, (sender, receiver)),
            )
            for count, then, (sender, receiver) in zip(counts, before, self._devices(), strict=True)
        ]
        links = tuple(zip(directions[::2], directions[1::2], strict=True))
        return Counters(asked_ns, links, linux.scheduling(), 0, exhausted, slots)

    def _devices(self) -> list[tuple[DeviceCount, DeviceCount]]:
        """Counts of the sending and the receiving device of each uplink and downlink."""
        at_station = device_counts(self._fabric.base_station.netlink)
        found = []
        for end, site in zip(self._fabric.base_station.ends, self._fabric.uavs, strict=True):
            uav = device_counts(site.netlink)[site.ends[0].index]
            station = at_station[end.index]
            found += [(uav, station), (station, uav)]
        return found

    def _with_drops(self, table: bytes) -> bytes:
        """The samples with the devices' drops: those until now in the last row, and in the others
        those until the last call."""
        width = SAMPLE + SAMPLE_OF_WAY * len(self._sampled_drops)
        rows = [list(row) for row in struct.iter_unpack(f"={width}q", table)]
        if not rows:
            return table
        before = self._sampled_drops
        self._sampled_drops = [sender.dropped_frames for sender, _ in self._devices()]
        for row in rows:
            row[SAMPLE + 3 :: SAMPLE_OF_WAY] = before
        rows[-1][SAMPLE + 3 :: SAMPLE_OF_WAY] = self._sampled_drops
        return b"".join(struct.pack(f"={width}q", *row) for row in rows)


def _unaccounted(
    count: _Count,
    before: tuple[DeviceCount, DeviceCount],
    after: tuple[DeviceCount, DeviceCount],
) -> int:
    """Packets that the counts of a direction and of its two devices do not account for.

    Args:
        count: Counters of the radio process.
        before: Counts of the sending and of the receiving device before.
        after: The same counters, read at a later time.
    """
    inside = count.entered_packets - count.left_packets
    inside -= count.lost_packets + count.refused_packets
    missing = abs(inside - count.inside_packets)
    sent = count.entered_packets, before[0].sent_frames, after[0].sent_frames
    received = count.left_packets, before[1].received_frames, after[1].received_frames
    for own, least, most in (sent, received):
        missing += max(0, least - own, own - most)
    return missing
