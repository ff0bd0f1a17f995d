# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What the injectors of hosts answer, as one injector's answer."""

import socket
import time
from dataclasses import fields, replace

import numpy as np
import pytest

from testbed.cluster.clock import Clocks, Echo, Reading
from testbed.cluster.injectors import HostInjectors, joined
from testbed.control.codec import encode
from testbed.control.messages import (
    TO_INJECTOR,
    AskMachine,
    Counters,
    Direction,
    Epoch,
    EpochBegun,
    Failed,
    Low,
    MachineNow,
    PhaseSet,
    Samples,
)
from testbed.control.stream import ControlSocket
from testbed.core.clock import EmulatedClock
from testbed.core.errors import RunError
from testbed.network.injector import Injector
from testbed.system.machine import Machine

OFFSETS = {"a": 0, "b": 10**12}
ZERO = Direction(**dict.fromkeys((field.name for field in fields(Direction)), 0))


def counters(links, *rows: tuple[int, int, int, int], **others) -> Counters:
    """What a host counts."""
    told = {"asked_ns": 1, "scheduling": "fifo", "below_floor": 0, "exhausted": 0} | others
    return Counters(links=links, slots=np.array(rows, np.int64).tobytes(), **told)


def test_the_last_host_is_when_all_are_done_by_our_clock() -> None:
    answers = {"a": EpochBegun(500, False), "b": EpochBegun(10**12 + 300, True)}
    assert joined(answers, OFFSETS) == EpochBegun(500, True)
    assert joined({"a": PhaseSet(500), "b": PhaseSet(10**12 + 900)}, OFFSETS) == PhaseSet(900)


def test_a_link_is_counted_at_both_of_its_ends() -> None:
    sent = replace(ZERO, sent_bytes=100, sent_frames=2)
    arrived = replace(ZERO, arrived_frames=7)
    here = counters(((arrived, sent),), (4, 1000, 1500, 3), (5, 2000, 2100, 3))
    there = counters(
        ((sent, ZERO),),
        (4, 10**12 + 1000, 10**12 + 1100, 1),
        (5, 10**12 + 2000, 10**12 + 2900, 1),
        scheduling="nice 0",
        below_floor=2,
        exhausted=1,
        asked_ns=2,
    )
    whole = joined({"a": here, "b": there}, OFFSETS)
    assert whole.asked_ns == 1, "what had passed by then, both have counted"
    assert whole.links == ((replace(sent, arrived_frames=7), sent),)
    table = np.frombuffer(whole.slots, np.int64).reshape(-1, 4).tolist()
    assert table == [[4, 1000, 1500, 3], [5, 2000, 2900, 1]]
    assert (whole.scheduling, whole.below_floor, whole.exhausted) == ("fifo, nice 0", 2, 1)


def test_frames_that_the_air_lost_are_joined_by_slot() -> None:
    """Of each link and way: lost, arrived, asked; uplinks are counted here, downlinks there."""
    here = np.array([[4, 1, 9, 50, 0, 0, 0], [5, 2, 19, 60, 0, 0, 0], [6, 3, 29, 70, 0, 0, 0]])
    there = np.array([[4, 0, 0, 0, 7, 70, 80], [6, 0, 0, 0, 8, 80, 90]])
    answers = {
        name: replace(
            told, slots=told.slots + rows.astype(np.int64).tobytes(), impaired_slots=len(rows)
        )
        for name, told, rows in (
            ("a", counters(((ZERO, ZERO),), (4, 1000, 1500, 3)), here),
            ("b", counters(((ZERO, ZERO),), (4, 10**12 + 1000, 10**12 + 1600, 3)), there),
            ("c", counters(((ZERO, ZERO),)), np.empty((0, 7))),
        )
    }
    whole = joined(answers, OFFSETS | {"c": 0})
    values = np.frombuffer(whole.slots, np.int64)
    assert values[:4].tolist() == [4, 1000, 1600, 3]
    # In slot 5, one of them had no time.
    assert whole.impaired_slots == 2
    assert values[4:].reshape(2, 7).tolist() == [
        [4, 1, 9, 50, 7, 70, 80],
        [6, 3, 29, 70, 8, 80, 90],
    ]


class Process:
    """The far side of a handle."""

    def __init__(self) -> None:
        near, far = socket.socketpair()
        self.handle, self.control = Injector(near), ControlSocket(far)

    def tell(self, report) -> None:
        self.control.send(*encode(report))

    def order(self):
        message = self.control.receive(10)
        assert message is not None
        return TO_INJECTOR.decode(*message)


@pytest.fixture
def processes():
    return {"a": Process(), "b": Process()}


@pytest.fixture
def injectors(processes):
    echo = Echo("127.0.0.1", "token")
    clocks = Clocks(dict.fromkeys(processes, (("127.0.0.1", echo.port), "token")), pytest.fail)
    assert clocks.await_first(30) is None
    # As if b's clock were ahead.
    clocks.close()
    ahead = clocks.of["b"]
    ahead._best = replace(ahead.now(), offset_ns=ahead.now().offset_ns + 10**12)
    failures = []
    handles = {name: each.handle for name, each in processes.items()}
    made = HostInjectors(handles, clocks, "a", lambda *told: failures.append(told))
    made.failures = failures
    yield made
    echo.close()


def test_each_host_hears_of_the_epoch_by_its_own_clock(processes, injectors) -> None:
    for each in processes.values():
        each.tell(EpochBegun(0, False))
    injectors.epoch(EmulatedClock(5 * 10**12, 1.0, 2.0), 0.1)
    heard = [each.order() for each in processes.values()]
    assert all(isinstance(order, Epoch) for order in heard)
    assert abs(heard[0].clock.start_ns - 5 * 10**12) < 10**7
    assert abs(heard[1].clock.start_ns - 6 * 10**12) < 10**7
    assert heard[1].clock.dilation == 2.0


def test_clocks_may_have_differed_by_what_they_moved_and_by_what_is_not_known(
    processes, injectors, monkeypatch
) -> None:
    assumed = {"a": Reading(0, 2_000, 0), "b": Reading(10**12, 1_000, 0)}
    now = {"a": Reading(500, 3_000, 0), "b": Reading(10**12 - 4_000, 1_500, 0)}
    for name, clock in injectors._clocks.of.items():
        clock._best = assumed[name]
    monkeypatch.setattr(time, "monotonic_ns", lambda: 10**7)  # A drift of 1 µs since the readings.
    injectors.rates(0, np.ones((1, 2)), np.ones((1, 2)))
    for each in processes.values():
        each.order()
        each.tell(EpochBegun(0, False))
    injectors.epoch(EmulatedClock(0, 0.0, 1.0), 0.1)
    for name, clock in injectors._clocks.of.items():
        clock._best = now[name]
    assert injectors._clock_error_s() == pytest.approx((500 + 3_000 + 4_000 + 1_500 + 2_000) * 1e-9)
    assert injectors.ahead_s("a") == pytest.approx(0.5e-6)
    assert injectors.ahead_s("b") == pytest.approx(-4e-6)
    injectors._clocks.of["b"].jumped_s = 0.5
    assert injectors._clock_error_s() == pytest.approx(0.5 + 11e-6)
    assert injectors.errors_s == pytest.approx({"a": 4.5e-6, "b": 0.5 + 6.5e-6})


def test_low_rates_are_told_once(processes, injectors) -> None:
    injectors.rates(0, np.ones((1, 50)), np.ones((1, 50)))
    for each in processes.values():
        each.tell(Low(50))
    assert injectors.events() == [Low(50)]
    injectors.rates(50, np.ones((1, 50)), np.ones((1, 50)))
    processes["a"].tell(Low(50))  # said before it had them
    assert injectors.events() == []


def test_the_failure_of_the_base_stations_host_names_it(processes, injectors) -> None:
    processes["a"].tell(Failed("no luck"))
    processes["b"].tell(PhaseSet(1))
    injectors.rates(0, np.ones((1, 5)), np.ones((1, 5)))
    with pytest.raises(RunError, match="host a: injector: no luck"):
        injectors.phase(0)


def test_another_host_that_fails_is_left_out_and_its_counters_stay(processes, injectors) -> None:
    def told(sent: int) -> Counters:
        way = replace(ZERO, sent_bytes=sent)
        return counters(((way, way),), (sent, 1, 2, 3), asked_ns=sent)

    for name, sent in (("a", 100), ("b", 20)):
        processes[name].tell(told(sent))
    assert injectors.report().uplink[0].sent_bytes == 120
    processes["a"].tell(PhaseSet(1))
    processes["b"].tell(Failed("no luck"))
    injectors.rates(0, np.ones((1, 5)), np.ones((1, 5)))
    injectors.phase(0)
    assert injectors.failures == [("b", "injector: no luck")]
    processes["a"].tell(told(150))
    report = injectors.report()
    assert report.uplink[0].sent_bytes == 170
    assert report.asked_ns == 150
    assert report.slot.tolist() == [150]
    assert "b" not in injectors._assumed


def test_every_host_says_what_its_machine_does(processes, injectors) -> None:
    told = {name: MachineNow(Machine(1, 2, 3, 4, n, 0.5), name) for n, name in enumerate("ab")}
    for name, each in processes.items():
        each.tell(told[name])
    assert injectors.machines() == told
    assert [each.order() for each in processes.values()] == [AskMachine(), AskMachine()]


def test_slots_are_counted_where_their_links_end_and_wait_for_the_last_host(
    processes, injectors
) -> None:
    """Host a has the downlink, b the uplink, and b's clock is 1000 s ahead."""
    injectors.rates(0, np.ones((1, 5)), np.ones((1, 5)))

    def tell(name: str, *rows: tuple[int, ...]) -> None:
        processes[name].tell(Samples(0, np.array(rows, np.int64).tobytes()))

    none, ahead = (0, 0, 0, 0, 0), 10**12
    tell("a", (0, 100, 110, 1, *none, 120, 50, 5, 1, 3), (1, 200, 210, 1, *none, 220, 80, 8, 1, 3))
    tell("b", (0, 100 + ahead, 130 + ahead, 1, 140 + ahead, 70, 7, 2, 4, *none))
    first = injectors.samples()
    assert first.slot.tolist() == [0]
    assert first.boundary_ns[0] == pytest.approx(100, abs=10**6)
    assert abs(first.done_ns[0] - 130) < 10**6  # as far as b's clock is known
    assert first.sent_bytes.tolist() == [[[70, 50]]]
    assert first.queued_bytes.tolist() == [[[7, 5]]]
    assert first.dropped_frames.tolist() == [[[2, 1]]]
    assert first.slack.tolist() == [[[4, 3]]]
    assert abs(first.counted_ns[0, 0, 0] - 140) < 10**6
    assert first.counted_ns[0, 0, 1] == pytest.approx(120, abs=10**6)
    tell("a")
    tell("b", (1, 200 + ahead, 210 + ahead, 1, 240 + ahead, 90, 9, 2, 4, *none))
    second = injectors.samples()
    assert second.slot.tolist() == [1]
    assert second.sent_bytes.tolist() == [[[90, 80]]]
