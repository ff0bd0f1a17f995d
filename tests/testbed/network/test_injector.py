# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The injector's process without a kernel: what it sends, reads and answers; and its handle."""

import os
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

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
    Low,
    MachineNow,
    Phase,
    PhaseSet,
    SetImpairments,
    SetRates,
    StartCapture,
    Stop,
    Watch,
    Wired,
)
from testbed.control.messages import Samples as SamplesReport
from testbed.control.stream import ControlSocket
from testbed.core.clock import EmulatedClock
from testbed.core.errors import RunError
from testbed.core.impairment import Impairment, Losses
from testbed.network import injector
from testbed.network.fabric import DeviceCount, Fabric, Site
from testbed.network.line import LineCount
from testbed.network.shaping import End, QueueCount, Shape
from testbed.network.slot_table import SlotTable
from testbed.system import linux
from testbed.system.netlink import ACK

SHAPE = Shape()


class Kernel:
    """What the sockets of all namespaces are sent, in its order, and what is due after that."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, int]] = []
        """Namespace and number of messages."""
        self.last = 10**9
        self.orchestrator: Any = None

    def note(self, name: str, messages: int) -> None:
        self.sent.append((name, messages))
        if len(self.sent) == self.last:
            self.orchestrator.order(Stop())


def messages_of(batch: Any) -> list[bytes]:
    """The messages of a batch, without their numbers and without asking for acknowledgements."""
    data, found = bytearray(b"".join(batch.parts)), []
    while data:
        (length,) = struct.unpack_from("=I", data)
        data[6] &= ~ACK
        data[8:12] = bytes(4)
        found.append(bytes(data[:length]))
        del data[:length]
    return found


class Inside:
    """The netlink socket of a namespace."""

    def __init__(self, kernel: Kernel, name: str) -> None:
        self.kernel, self.name, self.unread = kernel, name, 0
        self.batches: list[list[bytes]] = []

    def send(self, batch: Any) -> None:
        self.batches.append(messages_of(batch))
        assert self.unread == 0
        self.unread = batch.count
        self.kernel.note(self.name, batch.count)

    def check(self) -> None:
        assert self.unread > 0, "nothing was sent"
        self.unread = 0

    def transact(self, messages: Any) -> None:
        self.kernel.note(self.name, len(messages))


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


@pytest.fixture
def fabric(kernel: Kernel) -> Fabric:
    """Two links, whose ends are devices 4 and 5, 6, and 7."""

    def site(name: str, *devices: int) -> Site:
        inside: Any = Inside(kernel, name)
        return Site(inside, [End(device, SHAPE) for device in devices])

    return Fabric(site("bs", 4, 5), (1, 2), (site("uav1", 6), site("uav2", 7)), 2)


class Orchestrator:
    """The other end of the injector's control socket."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.control = ControlSocket(self.ours)

    def order(self, *orders: InjectorOrder) -> None:
        for order in orders:
            self.control.send(*encode(order))

    def serve(self, fabric: Fabric, *orders: InjectorOrder, shape: Shape = SHAPE) -> list[Any]:
        """What an injector answers to these orders."""
        self.order(*orders)
        injector.Driver(ControlSocket(self.theirs), fabric, shape).run()
        self.theirs.close()
        found = []
        while self.control.read_available():
            while message := self.control.next():
                found.append(FROM_INJECTOR.decode(*message))
        return found


@pytest.fixture
def orchestrator(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> Iterator[Orchestrator]:
    nothing = SimpleNamespace(collect=int, freeze=int, disable=int)
    monkeypatch.setattr(injector, "gc", nothing)  # It would be stopped for all tests.
    monkeypatch.setattr(injector, "limit_packets", lambda site, frames: None)
    kernel.orchestrator = made = Orchestrator()
    with made.ours, made.theirs:
        yield made


def table(*rows: list[float]) -> bytes:
    """By slot, rates of both uplinks and of both downlinks, in Mb/s."""
    return (1e6 * np.array(rows)).tobytes()


def ends(fabric: Fabric) -> list[End]:
    return [*fabric.base_station.ends, *(uav.ends[0] for uav in fabric.uavs)]


def rates(fabric: Fabric) -> list[float]:
    return [end.rate_bps / 1e6 for end in ends(fabric)]


def long_ago() -> EmulatedClock:
    """All slots of some minutes are overdue."""
    return EmulatedClock(time.monotonic_ns() - 10**12, 0.0, 1.0)


@pytest.mark.usefixtures("counted")
def test_each_slot_sends_what_changes_at_its_absolute_time(
    fabric: Fabric,
    kernel: Kernel,
    orchestrator: Orchestrator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[tuple[int, int]] = []
    monkeypatch.setattr(injector, "wait_until", lambda *given: waits.append(given))
    clock = long_ago()
    slots = table([1, 2, 3, 4], [1, 2, 3, 0], [1, 2, 3, 0], [9, 0, 8, 7])
    kernel.last = 7
    answers = orchestrator.serve(fabric, SetRates(0, 1, 0, slots), Epoch(clock, 1.0), AskCounters())
    spin_ns = injector.SPIN_NS
    assert waits == [(clock.start_ns + slot * 10**9, spin_ns) for slot in (1, 2, 3)]
    assert kernel.sent == [
        # All ends get a rate and open; then one closes; then all change, and one opens again.
        *(("bs", 4), ("uav1", 2), ("uav2", 2)),
        *(("bs", 1),),
        *(("bs", 3), ("uav1", 1), ("uav2", 1)),
    ]
    assert rates(fabric) == [8, 7, 9, 0]
    begun, counters, *_ = answers
    assert isinstance(begun, EpochBegun)
    record = np.frombuffer(counters.slots, np.int64).reshape(-1, 4)
    assert record[:, 0].tolist() == [0]
    assert record[0, 2] == begun.done_ns <= time.monotonic_ns()
    assert record[0, 3] == 8


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters that say their device."""
    queues = {n: QueueCount(100 * n, n, n + 1, n + 2) for n in range(4, 8)}
    devices = {n: DeviceCount(1000 * n, 10 * n, 0, 0) for n in range(4, 8)}
    air = {4: QueueCount(1, 41, 42, 0), 7: QueueCount(1, 71, 72, 0)}
    waits = {n: (queue, 2 * n, None) for n, queue in queues.items()}
    for name, found in (
        ("queue_counts", queues),
        ("queues_and_waits", waits),
        ("device_counts", devices),
        ("netem_counts", air),
    ):
        monkeypatch.setattr(injector, name, lambda _, found=found: found)


def test_held_links_are_closed_made_ready_opened_and_restored(
    fabric: Fabric, kernel: Kernel, orchestrator: Orchestrator
) -> None:
    clock = long_ago()
    flat = table(*[[5, 5, 20, 20]] * 2)
    first, other = fabric.base_station.ends
    first.changed(1e6)
    inside: Any = fabric.base_station.netlink
    kernel.last = 6
    orchestrator.serve(fabric, SetRates(0, 1, 0, flat), Epoch(clock, 1000.0, (1500, 1500)))
    assert kernel.sent[0] == ("bs", 1), "one of them was open"
    assert kernel.sent[1:3] == [("uav1", 2), ("uav2", 2)]
    assert kernel.sent[3:] == [("bs", 2), ("bs", 4), ("bs", 2)]
    assert [end.rate_bps for end in (first, other)] == [20e6, 20e6]
    ready, opened, restored = inside.batches[-3:]
    assert ready == [message for end in (first, other) for message in end.soon()]
    # Each message is numbered; the credit at the release differs from the usual burst.
    assert [len(message) for message in opened[::2]] == [len(message) for message in restored]
    assert opened[::2] != restored == [*first.restore(), *other.restore()]


def test_shared_airtime_is_read_and_set(
    fabric: Fabric,
    kernel: Kernel,
    orchestrator: Orchestrator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[Any] = []

    def queue_counts(inside: Any) -> dict[int, QueueCount]:
        read.append(inside)
        return {4: QueueCount(0, 0, 0, 100), 5: QueueCount(0, 0, 0, 100)}

    monkeypatch.setattr(injector, "queue_counts", queue_counts)
    clock = EmulatedClock(time.monotonic_ns(), 0.0, 1.0)
    kernel.last = 4
    given = SetRates(0, 1, 0, table([5, 5, 20, 10]))
    shape = Shape(shared_downlink=True)
    orchestrator.serve(fabric, given, Epoch(clock, 1000.0), shape=shape)
    assert read == [fabric.base_station.netlink]
    assert kernel.sent[3:] == [("bs", 2)]
    assert rates(fabric) == [10, 5, 5, 5]


def test_rates_may_come_in_parts(fabric: Fabric, orchestrator: Orchestrator) -> None:
    many = table(*[[1, 2, 3, 4]] * 3000)
    assert len(many) > 1 << 16
    answers = orchestrator.serve(
        fabric, SetRates(0, 1, 0, many), Epoch(EmulatedClock(0, 2999.0, 1.0), 1.0), Stop()
    )
    assert [answer.missing for answer in answers] == [False]
    assert rates(fabric) == [3, 4, 1, 2]


def test_orders_are_carried_out_in_their_turn(
    fabric: Fabric, orchestrator: Orchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Any] = []

    class Capture:
        def __init__(self, devices: dict[int, str], headers_only: bool) -> None:
            done.append((devices, headers_only))

        def end(self, until_ns: int) -> Captured:
            return Captured(until_ns, 1)

    monkeypatch.setattr(injector, "Capture", Capture)
    monkeypatch.setattr(injector, "impair", lambda *given: done.append(given))
    ways = (Impairment(), Impairment()), (Impairment(), Impairment())
    answers = orchestrator.serve(
        fabric,
        *(StartCapture(("a", "b"), True), EndCapture(55), Phase(0), Impair(*ways)),
        *(AskMachine(), AskSamples(), Stop(), Phase(0)),
    )
    capturing, captured, phase, impaired, machine, samples = answers
    devices = {injector.BS_DEVICE_BASE + 1: "a", injector.BS_DEVICE_BASE + 2: "b"}
    assert done == [(devices, True), (fabric, *ways)]
    assert (capturing, captured, impaired) == (Capturing(), Captured(55, 1), Impaired())
    assert isinstance(phase, PhaseSet)
    assert isinstance(machine, MachineNow)
    assert machine.machine.cpu_ticks > 0
    assert samples == SamplesReport(0, b"")


def test_a_process_that_is_gone_ends_the_injector(
    fabric: Fabric, orchestrator: Orchestrator
) -> None:
    relayed = replace(fabric, relay=SimpleNamespace(gone=lambda: True))
    with pytest.raises(RunError, match="carries links to other machines is gone"):
        orchestrator.serve(relayed, AskCounters())


def test_an_orchestrator_that_is_gone_ends_the_injector(
    fabric: Fabric, orchestrator: Orchestrator
) -> None:
    orchestrator.ours.shutdown(socket.SHUT_WR)
    with pytest.raises(RunError, match="the orchestrator is gone"):
        orchestrator.serve(fabric)


@pytest.mark.usefixtures("counted")
def test_counters_are_of_both_directions_of_each_link(
    fabric: Fabric, orchestrator: Orchestrator
) -> None:
    before_ns = time.time_ns()
    (found,) = orchestrator.serve(fabric, AskCounters(), Stop())
    assert before_ns <= found.asked_ns <= time.time_ns()
    assert found.scheduling == linux.scheduling()
    (up, down), (other_up, other_down) = found.links
    ways = [up, down, other_up, other_down]
    assert [way.sent_bytes for way in ways] == [600, 400, 700, 500]
    assert [way.sent_frames for way in ways] == [6, 4, 7, 5]
    assert [way.dropped_frames for way in ways] == [7, 5, 8, 6]
    assert [way.backlog_bytes for way in ways] == [8, 6, 9, 7]
    assert [way.device_sent_bytes for way in ways] == [6000, 4000, 7000, 5000]
    assert [way.device_sent_frames for way in ways] == [60, 40, 70, 50]
    # The air is counted where frames arrive: uplinks at the base station's ends.
    assert [way.lost_frames for way in ways] == [42, 0, 0, 72]
    assert [way.arrived_frames for way in ways] == [41, 0, 0, 71]


@pytest.mark.usefixtures("counted")
def test_a_machine_counts_its_own_ends(fabric: Fabric, orchestrator: Orchestrator) -> None:
    nothing: Any = SimpleNamespace()
    here = Fabric(Site(nothing, []), (2,), fabric.uavs[1:], 2)
    (found,) = orchestrator.serve(here, AskCounters(), Stop())
    (elsewhere, also), (up, down) = found.links
    assert elsewhere == also == Direction(**dict.fromkeys(vars(up), 0))
    assert (up.sent_bytes, up.lost_frames) == (700, 0)
    assert (down.sent_bytes, down.lost_frames) == (0, 72)


@pytest.mark.usefixtures("counted")
def test_samples_are_taken_after_the_rates_have_been_set(
    fabric: Fabric, kernel: Kernel, orchestrator: Orchestrator
) -> None:
    kernel.last = 4
    kernel.orchestrator = SimpleNamespace(order=lambda _: orchestrator.order(AskSamples(), Stop()))
    slots = table([1, 2, 3, 4], [1, 2, 3, 5])
    *_, found = orchestrator.serve(
        fabric, SetRates(0, 1, 0, slots), Epoch(long_ago(), 1.0), Watch()
    )
    (slot, _, done_ns, changes), values = np.split(np.frombuffer(found.table, np.int64), [4])
    assert (slot, changes) == (1, 1)
    ways = values.reshape(4, 5)
    assert (done_ns <= ways[:, 0]).all()
    # By link, the uplink first: bytes, queue and drops.
    assert ways[:, 1].tolist() == [600, 400, 700, 500]
    assert ways[:, 2].tolist() == [8, 6, 9, 7]
    assert ways[:, 3].tolist() == [7, 5, 8, 6]
    # Packets less waits; frames, where each is a packet.
    assert ways[:, 4].tolist() == [6 - 12, 4 - 8, 7 - 14, 5 - 10]


@pytest.mark.usefixtures("counted")
def test_devices_count_the_packets_of_several_frames(
    fabric: Fabric, kernel: Kernel, orchestrator: Orchestrator
) -> None:
    kernel.last = 4
    kernel.orchestrator = SimpleNamespace(order=lambda _: orchestrator.order(AskSamples(), Stop()))
    fabric.uavs[0].ends[0].packet_frames = 2
    *_, found = orchestrator.serve(
        fabric,
        SetRates(0, 1, 0, table([1, 2, 3, 4], [1, 2, 3, 5])),
        Epoch(long_ago(), 1.0),
        Watch(),
    )
    ways = np.frombuffer(found.table, np.int64)[4:].reshape(4, 5)
    assert ways[:, 4].tolist() == [60 - 12, 4 - 8, 7 - 14, 5 - 10]


class Line:
    """A process in place of netem."""

    def __init__(self) -> None:
        self.changes: list[Any] = []

    def change(self, tap: Any, *values: float) -> None:
        self.changes.append((tap.device, *values))

    def count(self, tap: Any) -> LineCount:
        return LineCount(tap.device, tap.device + 1, tap.device + 2)


@pytest.mark.parametrize("lined", [False, True])
@pytest.mark.usefixtures("counted")
def test_the_air_changes_after_the_rates(
    fabric: Fabric,
    kernel: Kernel,
    orchestrator: Orchestrator,
    monkeypatch: pytest.MonkeyPatch,
    lined: bool,
) -> None:
    line = Line() if lined else None
    monkeypatch.setattr(injector, "impair", lambda *_: line)
    if lined:
        taps: list[Any] = [SimpleNamespace(device=device) for device in (4, 5, 6, 7)]
        fabric = replace(fabric, up_taps=taps[:2], down_taps=taps[2:])
    changes = np.zeros((1, 2, 2, 3))
    changes[0, 1, 0] = 0.25, 0.125, 0.5
    losing = Impairment(losses=Losses(0.0, 1.0, 0.1, 0.0), by_slot=True)
    ways = (Impairment(),) * 2, (losing, Impairment())
    answers = orchestrator.serve(
        fabric,
        *(
            SetRates(0, 1, 0, table([1, 2, 3, 4])),
            Impair(*ways),
            SetImpairments(0, 1, changes.tobytes()),
        ),
        *(Epoch(EmulatedClock(time.monotonic_ns(), 0.0, 1.0), 1000.0), AskCounters(), Stop()),
    )
    setting = [("bs", 4), ("uav1", 2), ("uav2", 2)]
    assert kernel.sent == [*setting, *([] if lined else [("uav1", 1)])]
    assert answers[-1].impaired_slots == 1
    (row,) = np.frombuffer(answers[-1].slots, np.int64)[4:].reshape(-1, 13).tolist()
    assert row[4:7] == [*((6, 7) if lined else (0, 0)), 1 << 31], "lost, arrived and asked"
    counted = [(way.lost_frames, way.late_frames) for link in answers[-1].links for way in link]
    if line is not None:
        assert line.changes == [(6, 0.25, 0.125, 0.5)]
        assert counted == [(4, 6), (6, 8), (5, 7), (7, 9)]


@pytest.mark.parametrize("several", [False, True])
def test_a_process_wires_serves_and_keeps_nothing_of_the_other_hosts(
    several: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tunnels' namespace is closed where there is one; waiting frames are dropped last."""
    underlay = os.open("/", os.O_PATH) if several else None
    kept: list[tuple[int, ...]] = []
    wired: list[Any] = []
    served: list[Any] = []
    fabric = SimpleNamespace(unshape=lambda: served.append("no more"))
    monkeypatch.setattr(
        injector, "wire", lambda *given, taps: wired.append((*given, taps)) or fabric
    )
    monkeypatch.setattr(injector.linux, "keep_capabilities", lambda *each: kept.append(each))
    monkeypatch.setattr(
        injector, "Driver", lambda _, *given: SimpleNamespace(run=lambda: served.append(given))
    )
    ours, theirs = socket.socketpair()
    with ours, theirs:
        injector.serve(theirs, 10, [11], Shape(), None, underlay)
        message = ControlSocket(ours).receive(10)
        assert message is not None
        assert FROM_INJECTOR.decode(*message) == Wired()
    assert wired == [(10, [11], Shape(), None, underlay, (), False)]
    assert served == [(fabric, Shape()), "no more"]
    assert kept == [(linux.CAP_NET_ADMIN, linux.CAP_NET_RAW)]
    if underlay is not None:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(underlay)


def uplink(made: SlotTable, slot: int) -> list[float] | None:
    row = made.row(slot, 0)
    return None if row is None else list(row[0])


@pytest.fixture
def handle() -> Iterator[tuple[injector.Injector, ControlSocket]]:
    """An orchestrator's handle, and the process's end of its socket."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield injector.Injector(ours), ControlSocket(theirs)


def obeyed(control: ControlSocket) -> Any:
    message = control.receive(10)
    assert message is not None
    return TO_INJECTOR.decode(*message)


def test_rates_travel_slot_by_slot(handle: tuple[injector.Injector, ControlSocket]) -> None:
    links, control = handle
    up, down, shared = (np.arange(6.0).reshape(2, 3) + n for n in (0, 100, 200))
    links.rates(7, up, down, shared, warn_slots=4)
    told = obeyed(control)
    assert (told.first, told.variants, told.warn_slots) == (7, 2, 4)
    made = SlotTable(2)
    made.add(told.first, told.variants, told.table)
    assert (made.end, uplink(made, 6)) == (10, None)
    for n in range(3):
        for phase, way in enumerate((down, shared)):
            row = made.row(7 + n, phase)
            assert row is not None
            assert (list(row[0]), list(row[1])) == (up[:, n].tolist(), way[:, n].tolist())
    for phase in (-1, 2):
        with pytest.raises(ValueError, match="the table has 2 downlink variants"):
            links.phase(phase)
    control.send(*encode(Low(3)))
    control.send(*encode(PhaseSet(77)))
    assert links.phase(1) == 77
    assert obeyed(control) == Phase(1)
    assert links.events() == [Low(3)], "what came meanwhile is kept"
    assert links.events() == []


def test_a_report_says_how_late_each_slot_was(
    handle: tuple[injector.Injector, ControlSocket],
) -> None:
    links, control = handle
    slots = np.array([[4, 400, 1400, 2], [5, 500, 450, 3]], np.int64)
    up, down = (Direction(*range(n, n + len(fields(Direction)))) for n in (1, 50))
    control.send(*encode(Counters(9, ((up, down), (down, up)), "nice -5", 1, 2, slots.tobytes())))
    report = links.report()
    assert obeyed(control) == AskCounters()
    assert (report.slot.tolist(), report.boundary_ns.tolist()) == ([4, 5], [400, 500])
    assert (report.done_ns.tolist(), report.changes.tolist()) == ([1400, 450], [2, 3])
    assert report.lateness_s.tolist() == pytest.approx([1e-6, 0])
    assert (list(report.uplink), list(report.downlink)) == ([up, down], [down, up])
    told = (report.asked_ns, report.scheduling, report.below_floor, report.exhausted)
    assert told == (9, "nice -5", 1, 2)
    assert report.air is None
    rows = np.arange(26, dtype=np.int64).reshape(2, 13)
    rows[:, 3::3] = 1 << 31
    links_ = ((up, down), (down, up))
    both = slots.tobytes() + rows.tobytes()
    control.send(*encode(Counters(9, links_, "fifo", 1, 2, both, 2)))
    report = links.report()
    assert report.slot.tolist() == [4, 5]
    air = report.air
    assert air is not None
    assert air.slot.tolist() == [0, 13]
    assert air.lost_frames[1].tolist() == [[14, 17], [20, 23]]
    assert air.arrived_frames[0].tolist() == [[2, 5], [8, 11]]
    assert (air.asked_loss == 0.5).all()


def test_who_ends_a_capture_waits_for_the_files_but_not_for_ever(
    handle: tuple[injector.Injector, ControlSocket], monkeypatch: pytest.MonkeyPatch
) -> None:
    links, _ = handle
    monkeypatch.setattr(injector, "END_S", 0.02)
    monkeypatch.setattr(injector, "ANSWER_S", 0.01)
    with pytest.raises(RunError, match=r"^injector: waited 0\.03 s for Captured"):
        links.end_capture(1)


def test_samples_have_bytes_queues_and_drops_of_each_way(
    handle: tuple[injector.Injector, ControlSocket],
) -> None:
    links, control = handle
    links.rates(0, *np.ones((2, 2, 1)))
    rows = np.arange(48, dtype=np.int64).reshape(2, 24)
    control.send(*encode(SamplesReport(3, rows.tobytes())))
    found = links.samples()
    assert found.exhausted == 3
    assert found.slot.tolist() == [0, 24]
    assert found.boundary_ns.tolist() == [1, 25]
    assert found.done_ns.tolist() == [2, 26]
    assert found.counted_ns[1].tolist() == [[28, 33], [38, 43]]
    assert found.sent_bytes[0].tolist() == [[5, 10], [15, 20]]
    assert found.queued_bytes[0].tolist() == [[6, 11], [16, 21]]
    assert found.dropped_frames[1].tolist() == [[31, 36], [41, 46]]
    assert found.slack[0].tolist() == [[8, 13], [18, 23]]


def test_an_epoch_without_rates_or_a_failed_injector_ends_the_run(
    handle: tuple[injector.Injector, ControlSocket],
) -> None:
    links, control = handle
    clock = EmulatedClock(5, 1.5, 2.0)
    control.send(*encode(EpochBegun(1, True)))
    with pytest.raises(RunError, match=r"no rates were given for the slot at 1\.5 s"):
        links.epoch(clock, 0.1, [10, 20])
    assert obeyed(control) == Epoch(clock, 0.1, (10, 20))
    control.send(*encode(EpochBegun(1, False)))
    links.epoch(clock, 0.1)
    with pytest.raises(RunError, match=r"waited 0\.05 s for Wired"):
        links.await_wired(0.05)
    control.send(*encode(Failed("no links")))
    with pytest.raises(RunError, match=r"^injector: no links$"):
        links.await_wired()
    control.close()
    with pytest.raises(RunError, match="its process is gone"):
        links.report()
