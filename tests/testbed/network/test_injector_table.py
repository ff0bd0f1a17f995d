# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What the injector knows of rates, and what it does when phase or table change; no links."""

import array
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import fields
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
    Exhausted,
    Failed,
    Impair,
    Impaired,
    Low,
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
from testbed.control.messages import Samples as SamplesReport
from testbed.control.stream import ControlSocket
from testbed.core.clock import EmulatedClock
from testbed.core.errors import RunError
from testbed.core.impairment import Impairment, Losses
from testbed.network import injector
from testbed.network.fabric import DeviceCount, Fabric
from testbed.network.shaping import End, QueueCount, Shape
from testbed.network.slot_impairments import SlotImpairments
from testbed.network.slot_table import SlotTable
from testbed.system import linux


def blob(first: int, slots: int, variants: int = 1) -> bytes:
    """Rates of two clients that say their slot: uplinks slot + .1 and .2, then each variant."""
    rows = [
        [slot + way + k / 10 for way in range(0, 1000 * (1 + variants), 1000) for k in (1, 2)]
        for slot in range(first, first + slots)
    ]
    return np.array(rows, float).tobytes()


def table(*blocks: tuple[int, int], variants: int = 1) -> SlotTable:
    made = SlotTable(2)
    for first, slots in blocks:
        made.add(first, variants, blob(first, slots, variants))
    return made


def uplink(made: SlotTable, slot: int) -> list[float] | None:
    row = made.row(slot, 0)
    return None if row is None else list(row[0])


def test_every_slot_has_its_own_rates_up_to_the_last() -> None:
    made = table((0, 10), (10, 10))
    for slot in range(20):
        assert uplink(made, slot) == [slot + 0.1, slot + 0.2]
    assert made.end == 20
    assert type(made.end) is int
    assert uplink(made, 20) is None


def test_variants_are_downlinks() -> None:
    made = table((0, 4), variants=3)
    for phase in range(3):
        row = made.row(2, phase)
        assert row is not None
        assert list(row[1]) == [1002 + 1000 * phase + 0.1, 1002 + 1000 * phase + 0.2]
        assert list(row[0]) == [2.1, 2.2]


def test_a_block_is_kept_up_to_its_last_slot() -> None:
    made = table((0, 10), (10, 10))
    made.forget_before(9)
    assert uplink(made, 9) == [9.1, 9.2]
    made.forget_before(10)
    assert uplink(made, 9) is None
    assert uplink(made, 10) == [10.1, 10.2]


def test_later_rates_replace_earlier_ones_from_their_first_slot_on() -> None:
    made = SlotTable(2)
    made.add(0, 1, blob(0, 10))
    made.add(6, 1, blob(106, 10))
    assert uplink(made, 5) == [5.1, 5.2]
    assert uplink(made, 6) == [106.1, 106.2]
    assert made.end == 16


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An injector without links, which notes what it does."""
    made: Any = injector._Service.__new__(injector._Service)
    made._air = None
    made._table = table((0, 10), variants=2)
    made._slot, made._phase, made._running, made.told = 3, 0, True, []
    monkeypatch.setattr(
        injector._Service, "_limit_packets", lambda self: self.told.append(("limits", self._phase))
    )
    monkeypatch.setattr(
        injector._Service,
        "_prepare",
        lambda self, slot: SimpleNamespace(
            send=lambda: self.told.append(("rates", slot, self._phase)) or 77
        ),
    )
    monkeypatch.setattr(injector._Service, "_tell", lambda self, report: self.told.append(report))
    return made


def test_a_phase_sets_packet_limits_and_then_rates(service: Any) -> None:
    service._switch_to(1)
    assert service.told == [("limits", 1), ("rates", 3, 1), PhaseSet(77)]


def test_between_epochs_a_phase_is_the_next_ones(running: Any) -> None:
    """The slot is still that of the last epoch, of whose table there may be no such variant."""
    running._table = table((0, 1))
    running._slot, running._running = 0, False
    give(running, 10, first=5)
    running._switch_to(1)
    assert rates(running) == [0] * 4
    running._begin_epoch(Epoch(EmulatedClock(time.monotonic_ns(), 0.6, 3.0), 0.1))
    assert rates(running)[:2] == pytest.approx([2006.1e6, 2006.2e6])


@pytest.mark.parametrize(("variants", "phase"), [(1, 0), (2, 1), (3, 1)])
def test_a_phase_that_a_new_table_lacks_is_left(service: Any, variants: int, phase: int) -> None:
    service._phase, service._told_low = 1, True
    service._take_rates(SetRates(10, variants, 5, blob(10, 5, variants)))
    assert service._phase == phase
    assert service._told_low is False
    assert service._warn_slots == 5


def test_the_mean_is_over_a_while_and_no_longer_than_there_are_rates() -> None:
    made = table((0, 80))
    up, down = made.mean(10, 0)
    assert up == pytest.approx([10 + 24.5 + 0.1, 10 + 24.5 + 0.2])
    assert down == pytest.approx([1034.6, 1034.7])
    assert made.mean(76, 0)[0] == pytest.approx([77.6, 77.7])
    assert made.mean(80, 0) == ([], [])
    up, down = table((0, 80), variants=2).mean(10, 1)
    assert (up[0], down[0]) == pytest.approx((34.6, 2034.6))


class Links:
    """A namespace's socket that notes what it is sent."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.checked = 0

    def send(self, batch: Any) -> None:
        self.sent.append(batch.count)

    def check(self) -> None:
        self.checked += 1

    def transact(self, messages: Any) -> None:
        self.sent.append(len(messages))


def site(*indices: int) -> Any:
    return SimpleNamespace(netlink=Links(), ends=[End(index, Shape()) for index in indices])


def test_a_slots_rates_are_what_changed_and_what_is_below_the_floor_is_an_outage() -> None:
    bs, uav = site(4, 5, 6), site(7)
    bs.ends[2].held = True
    prepared = injector._Prepared()
    prepared.add(bs, (1e6, 900.0, 5e6), 1000.0)
    prepared.add(uav, (1000.0,), 1000.0)
    # The first end's rate and gate; the second stays closed; the third is held.
    assert (prepared.changes, prepared.below_floor) == (4, 1)
    assert [end.rate_bps for end in (*bs.ends, *uav.ends)] == [0] * 4
    done = prepared.send()
    assert done <= time.monotonic_ns()
    assert (bs.netlink.sent, uav.netlink.sent) == ([2], [2])
    assert (bs.netlink.checked, uav.netlink.checked) == (1, 1)
    assert [end.rate_bps for end in (*bs.ends, *uav.ends)] == [1e6, 0, 0, 1000.0]
    again = injector._Prepared()
    again.add(bs, (1e6, 0.0, 5e6), 1000.0)
    assert (again.changes, again.below_floor, again.missing) == (0, 0, False)
    again.send()
    assert bs.netlink.sent == [2], "nothing changed, nothing is sent"


def fabric(base_station: Any, uavs: dict[int, Any]) -> Any:
    """That much of two links as is here."""
    made: Any = SimpleNamespace(
        base_station=base_station, clients=tuple(uavs), uavs=list(uavs.values()), links=2
    )
    made.relay, made.up_taps, made.down_taps = None, (), ()
    made.arrivals = Fabric.arrivals.fget(made)  # type: ignore[attr-defined]
    return made


@pytest.fixture
def running() -> Any:
    """An injector of two links without a kernel, in slot 3 of ten, of 0.1 s at dilation 2."""
    made: Any = injector._Service.__new__(injector._Service)
    made._air = None
    made._table = table((0, 10), variants=2)
    made._fabric = fabric(site(4, 5), {1: site(6), 2: site(7)})
    made._shape, made._airtime = Shape(), None
    made._clock, made._slot_s = EmulatedClock(0, 0.0, 2.0), 0.1
    made._slot, made._phase, made._running = 3, 0, True
    made._below_floor = made._exhausted = made._warn_slots = 0
    made._told_low = made._watched = False
    made._gates = []
    made._record, made._air_record = array.array("q"), array.array("q")
    made.told = []
    made._tell = made.told.append
    return made


def rates(service: Any) -> list[float]:
    ends = [*service._fabric.base_station.ends, *(s.ends[0] for s in service._fabric.uavs)]
    return [end.rate_bps for end in ends]


class Orchestrator:
    """The other end of an injector's control socket, and what came of the injector's loop."""

    def __init__(self, service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        ours, theirs = socket.socketpair()
        self.control, service._control = ControlSocket(theirs), ControlSocket(ours)
        self._sockets = ours, theirs
        nothing = SimpleNamespace(collect=int, freeze=int, disable=int)
        monkeypatch.setattr(injector, "gc", nothing)  # Its loop would stop it for all tests.

    def tell(self, *orders: Any) -> None:
        for order in orders:
            self.control.send(*encode(order))

    def hang_up(self) -> None:
        self._sockets[1].close()

    def close(self) -> None:
        for end in self._sockets:
            end.close()


@pytest.fixture
def orchestrator(running: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Orchestrator]:
    made = Orchestrator(running, monkeypatch)
    yield made
    made.close()


def test_orders_are_obeyed_in_their_turn(
    running: Any, orchestrator: Orchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    captures = []

    class Capture:
        def __init__(self, devices: dict[int, str], headers_only: bool) -> None:
            captures.append((devices, headers_only))

        def end(self, until_ns: int) -> Captured:
            return Captured(until_ns, 1)

    monkeypatch.setattr(injector, "Capture", Capture)
    monkeypatch.setattr(injector, "impair", lambda *given: captures.append(given))
    running._limit_packets = lambda: None
    running._hold = lambda opening: captures.append(opening)
    running._samples = array.array("q", [1, 2])
    running._running, running._exhausted = False, 4
    running._tell_counters = lambda: running.told.append("counters")
    rows = np.full((6, 6), 5e6).tobytes()
    clock = EmulatedClock(time.monotonic_ns(), 0.0, 1.0)
    ways = (Impairment(), Impairment()), (Impairment(), Impairment())
    air = np.zeros((3, 3, 2, 3)).tobytes()
    orchestrator.tell(
        *(SetRates(10, 2, 1, rows), Phase(1), StartCapture(("a", "b"), True), EndCapture(55)),
        *(Epoch(clock, 100.0), Pause(), Impair(*ways), SetImpairments(4, 2, air), AskCounters()),
        *(Watch(), AskSamples(), AskSamples(), AskMachine(), Stop(), Phase(0)),
    )
    running.run()
    phase, capturing, captured, begun, impaired, counters, samples, none, machine = running.told
    assert running._table.end == 16
    assert isinstance(phase, PhaseSet)
    assert captures[0] == (
        {injector.BS_DEVICE_BASE + 1: "a", injector.BS_DEVICE_BASE + 2: "b"},
        True,
    )
    assert (capturing, captured) == (Capturing(), Captured(55, 1))
    assert running._capture is None
    assert isinstance(begun, EpochBegun)
    assert running._clock == clock
    assert (running._running, captures[1:3]) == (False, [[], []]), "a pause lets go of all gates"
    assert captures[3] == (running._fabric, *ways)
    assert impaired == Impaired()
    assert running._air.changes(5, 0) == []
    assert counters == "counters"
    assert running._watched
    assert samples == SamplesReport(4, array.array("q", [1, 2]).tobytes())
    assert none == SamplesReport(4, b"")
    assert machine.machine.cpu_ticks > 0
    assert running._phase == 1, "nothing is obeyed after the end"


def test_a_relay_that_is_gone_ends_the_run(running: Any, orchestrator: Orchestrator) -> None:
    running._fabric.relay = SimpleNamespace(gone=lambda: True)
    with pytest.raises(RunError, match="carries links to other machines is gone"):
        running._obey(AskCounters())


def test_an_orchestrator_that_is_gone_ends_the_loop(
    running: Any, orchestrator: Orchestrator
) -> None:
    running._running = False
    orchestrator.hang_up()
    with pytest.raises(RunError, match="the orchestrator is gone"):
        running.run()


def test_slots_gates_and_airtime_have_their_turns(running: Any, orchestrator: Orchestrator) -> None:
    """Nothing before its time, and the first first; a second epoch's orders come in between."""
    give(running, 10)
    done: list[tuple[str, int]] = []
    begin_ns = time.monotonic_ns()
    slot_ns = 40_000_000
    running._clock, running._slot_s, running._slot = EmulatedClock(begin_ns, 0.0, 1.0), 0.04, 0
    running._looked_ns = begin_ns + slot_ns + 5_000_000 - injector.EVERY_NS

    def at_boundary(deadline: int, prepared: Any) -> None:
        running._slot += 1
        done.append((f"slot {running._slot}", deadline))
        assert time.monotonic_ns() >= deadline
        prepared.send()
        assert rates(running)[2] == pytest.approx((running._slot + 0.1) * 1e6)
        if running._slot == 3:
            orchestrator.tell(Stop())

    def step_of_gates() -> None:
        done.append(("gate", running._gates.pop(0).at_ns))
        assert time.monotonic_ns() >= done[-1][1]

    def share_airtime() -> None:
        done.append(("airtime", running._looked_ns + injector.EVERY_NS))
        assert time.monotonic_ns() >= done[-1][1]
        running._looked_ns = begin_ns + 10**12

    running._at_boundary, running._step_of_gates = at_boundary, step_of_gates
    running._share_airtime = share_airtime
    running._look_is_due = lambda boundary: (
        boundary > begin_ns + slot_ns and running._looked_ns < begin_ns + 10**11
    )
    gates = [begin_ns + ms * 1_000_000 for ms in (10, 20, 100)]
    running._gates = [SimpleNamespace(at_ns=at_ns) for at_ns in gates]
    running.run()
    assert done == [
        *(("gate", gates[0]), ("gate", gates[1]), ("slot 1", begin_ns + slot_ns)),
        *(("airtime", begin_ns + slot_ns + 5_000_000), ("slot 2", begin_ns + 2 * slot_ns)),
        *(("gate", gates[2]), ("slot 3", begin_ns + 3 * slot_ns)),
    ]


def test_what_is_told_meanwhile_counts_from_the_next_slot_on(
    running: Any, orchestrator: Orchestrator
) -> None:
    give(running, 10)
    running._limit_packets = lambda: None
    running._clock = EmulatedClock(time.monotonic_ns(), 0.3, 1.0)
    changed = np.frombuffer(blob(100, 6, 2), float) * LARGE

    def at_boundary(deadline: int, prepared: Any) -> None:
        running._slot += 1
        prepared.send()
        orchestrator.tell(Stop())

    running._at_boundary = at_boundary
    orchestrator.tell(SetRates(4, 2, 1, changed.tobytes()))
    running.run()
    assert rates(running)[2] == pytest.approx(100.1e6)


def test_gates_open_by_the_clock_rates_and_phase_of_their_epoch(
    running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(running, 10)
    running._phase = 1
    asked = []
    monkeypatch.setattr(injector, "openings", lambda *given: asked.append(given) or ["one"])
    assert running._openings([7, 8]) == ["one"]
    ((place, shape, clock, slot_s, downlinks, last_bytes),) = asked
    assert place is running._fabric.base_station
    assert (shape, clock, slot_s) == (running._shape, running._clock, 0.1)
    assert last_bytes == [7, 8]
    assert list(downlinks(2)) == pytest.approx([2002.1e6, 2002.2e6])
    assert downlinks(10) is None
    assert running._openings([]) == []


LARGE = 1e6


def give(service: Any, slots: int, *, first: int = 0, warn_slots: int = 2) -> None:
    """Rates that are large enough to be no outage."""
    values = np.frombuffer(blob(first, slots, 2), float) * LARGE
    service._take_rates(SetRates(first, 2, warn_slots, values.tobytes()))


def test_a_held_downlink_is_closed_until_its_gate_opens(running: Any) -> None:
    """Made ready, opened, then let save up as always; the others are not touched."""
    give(running, 10)
    running._prepare(3).send()
    station = running._fabric.base_station
    sent: list[Any] = []
    station.netlink = SimpleNamespace(transact=sent.append, send=sent.append, check=int)
    first, other = station.ends
    opening: Any = SimpleNamespace(
        ends=(first,),
        rates_bps=(7e6,),
        **{"soon_ns": 20, "at_ns": 30, "restored_ns": 40},
        **{"soon": lambda: "ready", "open": lambda: "open", "restore": lambda: "all"},
    )
    running._hold([opening])
    assert (first.held, first.rate_bps) == (True, 0)
    assert (other.held, other.rate_bps) == (False, pytest.approx(1003.2e6))
    assert len(sent) == 1
    assert [step.at_ns for step in running._gates] == [20, 30, 40]
    running._step_of_gates()
    assert (first.held, first.rate_bps, list(running._record)) == (True, 0, [])
    running._step_of_gates()
    assert (first.held, first.rate_bps) == (False, 7e6)
    assert list(running._record)[:2] + list(running._record)[3:] == [0, 30, 1]
    running._step_of_gates()
    assert sent[1:] == ["ready", "open", "all"]
    assert (running._gates, len(running._record)) == ([], 4)


def test_a_sample_has_both_ways_of_each_link(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    queues = {n: QueueCount(100 * n, n, n + 1, n + 2) for n in range(4, 8)}
    monkeypatch.setattr(injector, "queue_counts", lambda _: queues)
    monkeypatch.setattr(injector, "limit_packets", lambda *_: None)
    give(running, 10)
    running._samples = array.array("q")
    begun_ns = time.monotonic_ns()
    running._sample(70, 80, 2)
    slot, deadline, done, changes, *values = running._samples
    assert (slot, deadline, done, changes) == (3, 70, 80, 2)
    ways = np.array(values).reshape(4, 4)
    assert (begun_ns <= ways[:, 0]).all()
    # By link, the uplink first: bytes, queue and drops of the UAV's end, then of the station's.
    assert ways[:, 1].tolist() == [600, 400, 700, 500]
    assert ways[:, 2].tolist() == [8, 6, 9, 7]
    assert ways[:, 3].tolist() == [7, 5, 8, 6]


@pytest.mark.parametrize("several", [False, True])
def test_a_process_wires_serves_and_keeps_nothing_of_the_other_hosts(
    several: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The namespace of the tunnels is closed where there is one; what waits is dropped last."""
    underlay = os.open("/", os.O_PATH) if several else None
    kept: list[tuple[int, ...]] = []
    wired: list[Any] = []
    served: list[Any] = []
    fabric = SimpleNamespace(unshape=lambda: served.append("no more"))
    monkeypatch.setattr(injector, "wire", lambda *given: wired.append(given) or fabric)
    monkeypatch.setattr(injector.linux, "keep_capabilities", lambda *each: kept.append(each))
    monkeypatch.setattr(
        injector, "_Service", lambda _, *given: SimpleNamespace(run=lambda: served.append(given))
    )
    ours, theirs = socket.socketpair()
    with ours, theirs:
        injector.serve(theirs, 10, [11], Shape(), None, underlay)
        message = ControlSocket(ours).receive(10)
        assert message is not None
        assert FROM_INJECTOR.decode(*message) == Wired()
    assert wired == [(10, [11], Shape(), None, underlay, ())]
    assert served == [(fabric, Shape()), "no more"]
    assert kept == [(linux.CAP_NET_ADMIN, linux.CAP_NET_RAW)]
    if underlay is not None:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(underlay)


def test_downlinks_are_the_base_stations_and_uplinks_the_uavs(running: Any) -> None:
    give(running, 10)
    running._phase = 1
    prepared = running._prepare(5)
    assert not prepared.missing
    prepared.send()
    assert rates(running) == pytest.approx([2005.1e6, 2005.2e6, 5.1e6, 5.2e6])
    assert running._prepare(10).missing
    running._slot_s = 1e-4  # a frame in 0.2 ms of real time: 60 Mb/s
    below = running._prepare(5)
    assert below.below_floor == 2
    below.send()
    assert rates(running) == pytest.approx([2005.1e6, 2005.2e6, 0, 0])


def test_each_boundary_is_recorded_and_what_runs_out_is_told_once(running: Any) -> None:
    give(running, 7)
    for due in range(4, 10):
        running._at_boundary(due * 100, running._prepare(due))
    assert running._slot == 9
    table = np.frombuffer(running._record.tobytes(), np.int64).reshape(-1, 4)
    assert table[:, 0].tolist() == [4, 5, 6, 7, 8, 9]
    assert table[:, 1].tolist() == [400, 500, 600, 700, 800, 900]
    # At first each of four ends opens, too.
    assert table[:, 3].tolist() == [8, 4, 4, 0, 0, 0]
    assert (table[:, 2] > 0).all()
    assert running.told == [Low(7), Exhausted(7)]
    assert running._exhausted == 3
    assert uplink(running._table, 6) is None, "what is over is forgotten"


def test_an_epoch_begins_in_the_slot_of_its_clock(running: Any) -> None:
    give(running, 10)
    running._running = False
    running._limit_packets = lambda: running.told.append("limits")
    begin_ns = time.monotonic_ns()
    running._begin_epoch(Epoch(EmulatedClock(begin_ns, 0.6, 3.0), 0.2))
    assert (running._slot, running._slot_s, running._running) == (3, 0.2, True)
    assert running._clock.dilation == 3
    limits, begun = running.told
    assert limits == "limits"
    assert begun.done_ns >= begin_ns
    assert not begun.missing
    assert rates(running) == pytest.approx([1003.1e6, 1003.2e6, 3.1e6, 3.2e6])
    assert list(running._record) == [3, begin_ns, begun.done_ns, 8]
    running._begin_epoch(Epoch(EmulatedClock(begin_ns, 2.0, 3.0), 0.2))
    assert running.told[-1].missing
    assert running._exhausted == 1


def test_packets_are_as_large_as_the_emulated_rate_allows(
    running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = []
    monkeypatch.setattr(injector, "limit_packets", lambda at, frames: limited.append((at, frames)))
    running._table = SlotTable(2)
    # A frame of 1514 bytes in 0.25 ms is 48.4 Mb/s, of emulated time: half of it in real time.
    rows = np.tile([30e6, 60e6, 80e6, 10e6], (60, 1))
    running._take_rates(SetRates(0, 1, 5, rows.tobytes()))
    running._limit_packets()
    world = running._fabric
    assert limited == [(world.base_station, [3, 1]), (world.uavs[1], [2])], "one is no change"
    for place, frames in limited:
        for end, each in zip(place.ends, frames, strict=True):
            end.packet_frames = each
    limited.clear()
    running._limit_packets()
    assert limited == []


def test_counters_begin_anew_with_each_report(
    running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = {n: QueueCount(100 * n, n, n + 1, n + 2) for n in range(4, 8)}
    devices = {n: DeviceCount(1000 * n, 10 * n) for n in range(4, 8)}
    air = {4: QueueCount(1, 41, 42, 0), 7: QueueCount(1, 71, 72, 0)}
    for name, found in (
        ("queue_counts", queues),
        ("device_counts", devices),
        ("netem_counts", air),
    ):
        monkeypatch.setattr(injector, name, lambda _, found=found: found)
    running._line = None
    running._record.extend((4, 400, 401, 2))
    running._below_floor, running._exhausted = 5, 6
    before_ns = time.time_ns()
    running._air_record.extend(range(13))
    running._tell_counters()
    (told,) = running.told
    assert before_ns <= told.asked_ns <= time.time_ns()
    assert (told.below_floor, told.exhausted) == (5, 6)
    assert np.frombuffer(told.slots, np.int64).tolist() == [4, 400, 401, 2, *range(13)]
    assert told.impaired_slots == 1
    (up, down), (other_up, other_down) = told.links
    ways = [up, down, other_up, other_down]
    assert [way.sent_bytes for way in ways] == [600, 400, 700, 500]
    assert [way.sent_frames for way in ways] == [6, 4, 7, 5]
    assert [way.dropped_frames for way in ways] == [7, 5, 8, 6]
    assert [way.backlog_bytes for way in ways] == [8, 6, 9, 7]
    assert [way.device_sent_bytes for way in ways] == [6000, 4000, 7000, 5000]
    assert [way.device_sent_frames for way in ways] == [60, 40, 70, 50]
    # What the air did stands where frames arrive: with the base station's ends for uplinks.
    assert [way.lost_frames for way in ways] == [42, 0, 0, 72]
    assert [way.arrived_frames for way in ways] == [41, 0, 0, 71]
    running._tell_counters()
    assert (running.told[1].slots, running.told[1].impaired_slots) == (b"", 0)
    assert (running.told[1].below_floor, running.told[1].exhausted) == (0, 0)


def test_of_links_to_other_machines_each_sets_and_counts_its_own_ends(
    running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(running, 10)
    uav = site(7)
    running._fabric = fabric(site(), {2: uav})
    running._prepare(5).send()
    assert uav.ends[0].rate_bps == pytest.approx(5.2e6)
    assert running._openings([100, 100]) == [], "gates are the base station's"
    limited = []
    monkeypatch.setattr(injector, "limit_packets", lambda at, frames: limited.append((at, frames)))
    running._limit_packets()
    assert [at for at, _ in limited] in ([], [uav])
    counts = {
        "queue_counts": {7: QueueCount(700, 7, 8, 9)},
        "device_counts": {7: DeviceCount(1, 2)},
    }
    counts["netem_counts"] = {7: QueueCount(1, 71, 72, 0)}
    for name, found in counts.items():
        monkeypatch.setattr(injector, name, lambda _, found=found: found)
    running._line = None
    running._tell_counters()
    (elsewhere, also), (up, down) = running.told[-1].links
    assert elsewhere == also == Direction(**dict.fromkeys(vars(up), 0))
    assert (up.sent_bytes, up.lost_frames) == (700, 0)
    assert (down.sent_bytes, down.lost_frames) == (0, 72)


def impaired(service: Any, *probabilities: float | None, by_slot: bool = False) -> None:
    """Let uplinks and then downlinks lose frames with these probabilities."""
    ways = [
        Impairment(losses=None if p is None else Losses(0.0, 1.0, p, 0.0), by_slot=by_slot)
        for p in probabilities
    ]
    service._line, service._counting_ns = None, 0
    service._air = SlotImpairments(service._fabric, None, ways[:2], ways[2:])


def counted(service: Any) -> list[list[int]]:
    return np.frombuffer(service._air_record.tobytes(), np.int64).reshape(-1, 13).tolist()


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> dict[int, QueueCount]:
    """By device, what the air has done to what arrived there; no device has none at first."""
    counts: dict[int, QueueCount] = {}
    monkeypatch.setattr(injector, "netem_counts", lambda _: dict(counts))
    return counts


def test_frames_lost_are_counted_as_each_slot_begins(
    running: Any, lost: dict[int, QueueCount]
) -> None:
    give(running, 10)
    running._limit_packets = lambda: None
    impaired(running, 0.5, 0.25, None, 1 / 8)
    # Downlinks arrive at the UAVs' ends, 6 and 7, and uplinks at the base station's, 4 and 5.
    lost |= {4: QueueCount(0, 10, 1, 0), 5: QueueCount(0, 20, 2, 0), 7: QueueCount(0, 40, 4, 0)}
    begin_ns = time.monotonic_ns() + 10**9
    running._begin_epoch(Epoch(EmulatedClock(begin_ns, 0.3, 100.0), 0.1))
    lost[4] = QueueCount(0, 10, 9, 0)
    running._at_boundary(0, running._prepare(4))
    half, quarter, eighth = 1 << 31, 1 << 30, 1 << 29
    assert counted(running) == [
        [3, 1, 10, half, 0, 0, 0, 2, 20, quarter, 4, 40, eighth],
        [4, 9, 10, half, 0, 0, 0, 2, 20, quarter, 4, 40, eighth],
    ]


def test_what_is_asked_is_what_the_slot_that_begins_asks_for(
    running: Any, lost: dict[int, QueueCount]
) -> None:
    give(running, 10)
    impaired(running, 0.5, None, None, None, by_slot=True)
    running._clock = EmulatedClock(time.monotonic_ns(), 0.0, 100.0)
    values = np.zeros((3, 3, 2, 3))  # Slots 4 to 6: uplinks, then two variants of downlinks.
    values[1, 0, 0, 2] = 0.25
    running._air.take(4, 2, values.tobytes())
    for slot in (3, 4, 5, 6):
        running._slot = slot - 1
        running._at_boundary(0, running._prepare(slot))
    assert [row[3] for row in counted(running)] == [1 << 31, 0, 1 << 30, 0]


def test_no_gate_waits_for_counters(running: Any, lost: dict[int, QueueCount]) -> None:
    give(running, 10)
    impaired(running, 0.5, 0.5, None, None)
    running._clock = EmulatedClock(time.monotonic_ns(), 0.0, 100.0)
    running._counting_ns = 10**6
    running._gates = [SimpleNamespace(at_ns=time.monotonic_ns() + 10**6)]
    running._at_boundary(0, running._prepare(4))
    assert (counted(running), running._counting_ns) == ([], 500_000)
    running._gates.clear()
    running._at_boundary(0, running._prepare(5))
    assert [row[0] for row in counted(running)] == [5]


@pytest.mark.parametrize("probability", [None, 0.5])
def test_nothing_is_counted_where_nothing_is_to_be_lost(
    running: Any, lost: dict[int, QueueCount], probability: float | None
) -> None:
    give(running, 10)
    running._clock = EmulatedClock(time.monotonic_ns(), 0.0, 100.0)
    impaired(running, None, None, None, probability)
    running._at_boundary(0, running._prepare(4))
    assert len(counted(running)) == (probability is not None)


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
    rows = np.arange(40, dtype=np.int64).reshape(2, 20)
    control.send(*encode(SamplesReport(3, rows.tobytes())))
    found = links.samples()
    assert found.exhausted == 3
    assert found.slot.tolist() == [0, 20]
    assert found.boundary_ns.tolist() == [1, 21]
    assert found.done_ns.tolist() == [2, 22]
    assert found.counted_ns[1].tolist() == [[24, 28], [32, 36]]
    assert found.sent_bytes[0].tolist() == [[5, 9], [13, 17]]
    assert found.queued_bytes[0].tolist() == [[6, 10], [14, 18]]
    assert found.dropped_frames[1].tolist() == [[27, 31], [35, 39]]


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
