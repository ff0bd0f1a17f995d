# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The radio process and what directs it, without a kernel's devices and without ns-3."""

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from testbed.control.codec import encode
from testbed.control.messages import (
    FROM_INJECTOR,
    AskCounters,
    AskMachine,
    AskSamples,
    Captured,
    Capturing,
    Counters,
    EndCapture,
    Epoch,
    EpochBegun,
    Exhausted,
    InjectorOrder,
    Low,
    MachineNow,
    Pause,
    Phase,
    PhaseSet,
    Samples,
    SetChannel,
    SetRates,
    StartCapture,
    Stop,
    Watch,
)
from testbed.control.stream import ControlSocket
from testbed.core.clock import EmulatedClock
from testbed.core.errors import RunError
from testbed.network import radio_driver as radio
from testbed.network.fabric import BS_DEVICE_BASE, UAV_DEVICE, DeviceCount, Fabric, Site
from testbed.network.injection import SAMPLE, SAMPLE_OF_WAY
from testbed.network.radio_driver import RadioDriver, RadioProcess, _Count, _unaccounted
from testbed.network.shaping import Shape
from testbed.network.taps import RadioProgram, TapEnd

WIDTH = SAMPLE + 2 * 2 * SAMPLE_OF_WAY
NOTHING = DeviceCount(0, 0, 0, 0)


@dataclass
class Process:
    """What a driver sends to a radio process, and what that answers."""

    sent: list[tuple[str, bytes]] = field(default_factory=list)
    count: tuple[list[_Count], bytes, int] = ([], b"", 0)
    sampled: tuple[bytes, int] = (b"", 0)
    pipe: tuple[int, int] = field(default_factory=os.pipe)

    def fileno(self) -> int:
        return self.pipe[0]

    def send(self, line: str, data: bytes = b"") -> None:
        self.sent.append((line, data))

    def counts(self, links: int) -> tuple[list[_Count], bytes, int]:
        assert links == 2
        return self.count

    def samples(self, links: int) -> tuple[bytes, int]:
        assert links == 2
        return self.sampled

    def died(self) -> RunError:
        return RunError("the radio process died")


@pytest.fixture
def fabric() -> Fabric:
    """Two links; the sockets of their three namespaces are names."""

    def site(name: Any, *devices: int) -> Site:
        return Site(name, [TapEnd(device, Shape()) for device in devices])

    station = site("bs", BS_DEVICE_BASE + 1, BS_DEVICE_BASE + 2)
    return Fabric(station, (1, 2), (site("uav1", UAV_DEVICE), site("uav2", UAV_DEVICE)), 2)


@dataclass
class Directed:
    """A driver with the orchestrator's end of its control socket."""

    fabric: Fabric
    process: Process
    control: ControlSocket
    theirs: socket.socket

    def driver(self) -> RadioDriver:
        """A driver of the process that replaces that of ns-3."""
        process = cast("RadioProcess", self.process)
        return RadioDriver(ControlSocket(self.theirs), self.fabric, process)

    def serve(self, *orders: InjectorOrder) -> list[Any]:
        """What it answers to these orders, and then to one to stop."""
        for order in (*orders, Stop()):
            self.control.send(*encode(order))
        self.driver().run()
        return self.said()

    def said(self) -> list[Any]:
        found = []
        self.control.send(*encode(Stop()))  # So that reading does not wait.
        self.theirs.close()
        while self.control.read_available():
            while message := self.control.next():
                found.append(FROM_INJECTOR.decode(*message))
        return found


@pytest.fixture
def directed(fabric: Fabric) -> Iterator[Directed]:
    ours, theirs = socket.socketpair()
    process = Process()
    with ours, theirs:
        yield Directed(fabric, process, ControlSocket(ours), theirs)
    for end in process.pipe:
        os.close(end)


def clock(start_s: float = 0.0, ahead_s: float = 0.0) -> EmulatedClock:
    return EmulatedClock(time.monotonic_ns() + round(ahead_s * 1e9), start_s, 1.0)


# --- orders --------------------------------------------------------------------------------------


def test_orders_become_lines(directed: Directed) -> None:
    table = np.arange(3.0).tobytes()
    at = clock(0.3)
    answers = directed.serve(
        SetChannel(2, 3, 0, table), Epoch(at, 0.1), Watch(), Phase(1), AskMachine(), Pause()
    )
    assert directed.process.sent == [
        ("channel 2 3", table),
        (f"epoch {at.start_ns} 0.3 0.1", b""),
        ("watch", b""),
        ("pause", b""),
    ]
    assert [type(each) for each in answers] == [EpochBegun, PhaseSet, MachineNow]
    assert not answers[0].missing
    assert abs(answers[1].done_ns - time.monotonic_ns()) < 60e9


@pytest.mark.parametrize(
    ("start_s", "missing"), [(0.19, True), (0.2, False), (0.49, False), (0.5, True)]
)
def test_a_clock_needs_a_channel_for_its_first_slot(
    directed: Directed, start_s: float, missing: bool
) -> None:
    (answer,) = directed.serve(SetChannel(2, 3, 0, b""), Epoch(clock(start_s), 0.1))
    assert answer.missing is missing
    assert [line.split()[0] for line, _ in directed.process.sent] == (
        ["channel"] if missing else ["channel", "epoch"]
    )


@pytest.mark.parametrize(
    ("channels", "there"),
    [
        ([(2, 3), (5, 2)], range(2, 7)),  # It goes on.
        ([(2, 3), (4, 1)], range(2, 5)),  # What was given for later slots no longer holds.
        ([(2, 3), (6, 2)], range(6, 8)),  # Slot 5 is missing.
        ([(2, 3), (1, 2)], range(1, 3)),
    ],
)
def test_channels_replace_those_of_the_same_slots(
    directed: Directed, channels: list[tuple[int, int]], there: range
) -> None:
    given = [SetChannel(first, count, 0, b"") for first, count in channels]
    answers = directed.serve(*given, *(Epoch(clock(slot), 1.0) for slot in range(9)))
    assert [slot for slot, answer in enumerate(answers) if not answer.missing] == list(there)


def test_what_it_cannot_do_is_named(directed: Directed) -> None:
    with pytest.raises(RunError, match="the radio process: has no SetRates"):
        directed.serve(SetRates(0, 1, 0, b"", ()))


def test_a_capture_has_the_devices_of_the_base_station(
    directed: Directed, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    class Capture:
        def __init__(self, *given: Any) -> None:
            made.append(given)

        def end(self, until_ns: int) -> Captured:
            made.append(until_ns)
            return Captured(7, 0)

    monkeypatch.setattr(radio, "Capture", Capture)
    files = ("1.pcap", "2.pcap")
    answers = directed.serve(StartCapture(files, headers_only=True), EndCapture(99))
    assert answers == [Capturing(), Captured(7, 0)]
    devices = {BS_DEVICE_BASE + 1: files[0], BS_DEVICE_BASE + 2: files[1]}
    assert made == [(devices, True), 99]


def test_an_end_that_is_gone_is_named(directed: Directed) -> None:
    made = directed.driver()
    os.write(directed.process.pipe[1], b"!")
    with pytest.raises(RunError, match=r"^the radio process died$"):
        made.run()
    os.read(directed.process.pipe[0], 1)
    directed.control.close()
    with pytest.raises(RunError, match=r"^the orchestrator is gone$"):
        made.run()


# --- the end of the channel ----------------------------------------------------------------------


def announced(
    directed: Directed, monkeypatch: pytest.MonkeyPatch, *orders: InjectorOrder, seconds: float
) -> list[tuple[Any, float]]:
    """What is said of the end of the channel in a time, each with its own time, in s, of a clock
    that polling alone advances."""
    start_ns, passed, found = time.monotonic_ns(), [0.0], []

    class Poll:
        def __init__(self) -> None:
            self.files: list[int] = []

        def register(self, file: int, _: int) -> None:
            self.files.append(file)

        def poll(self, timeout_ms: float | None) -> list[tuple[int, int]]:
            if timeout_ms is None or passed[0] + timeout_ms / 1e3 > seconds:
                directed.control.send(*encode(Stop()))
                return [(self.files[0], 1)]
            passed[0] += timeout_ms / 1e3
            return []

    monkeypatch.setattr(radio, "select", SimpleNamespace(poll=Poll, POLLIN=1))
    now = SimpleNamespace(
        monotonic_ns=lambda: start_ns + round(passed[0] * 1e9), time_ns=time.time_ns
    )
    monkeypatch.setattr(radio, "time", now)
    driver = directed.driver()
    send = driver._control.send

    def noted(header: Any, blob: Any = b"") -> None:
        found.append((FROM_INJECTOR.decode(dict(header), bytes(blob)), passed[0]))
        send(header, blob)

    monkeypatch.setattr(driver._control, "send", noted)
    for order in orders:
        driver._obey(order)
    driver.run()
    return [each for each in found if isinstance(each[0], Low | Exhausted)]


def at_now(start_s: float = 0.0) -> EmulatedClock:
    return EmulatedClock(time.monotonic_ns(), start_s, 1.0)


def test_it_warns_before_the_channel_ends_and_when_it_has(
    directed: Directed, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = SetChannel(0, 10, 1, b""), Epoch(at_now(), 0.5)
    low, exhausted = announced(directed, monkeypatch, *orders, seconds=100)
    assert low == (Low(10), pytest.approx(4.5, abs=0.1))  # At the start of slot 9.
    assert exhausted == (Exhausted(10), pytest.approx(5.0, abs=0.1))


@pytest.mark.parametrize(
    ("orders", "said"),
    [
        (lambda: (SetChannel(0, 10, 0, b""), Epoch(at_now(), 0.5)), [Exhausted(10)]),
        (
            lambda: (SetChannel(0, 10, 4, b""), Epoch(at_now(), 0.5), SetChannel(10, 9, 4, b"")),
            [Low(19)],
        ),
        (lambda: (SetChannel(0, 10, 4, b""), Epoch(at_now(), 0.5), Pause()), []),
        (lambda: (SetChannel(0, 10, 4, b""),), []),
        (lambda: (SetChannel(0, 10, 4, b""), Epoch(at_now(20.0), 0.5)), []),
    ],
    ids=["no warning", "more", "paused", "no clock", "missing"],
)
def test_it_says_nothing_else(
    directed: Directed,
    monkeypatch: pytest.MonkeyPatch,
    orders: Callable[[], tuple[InjectorOrder, ...]],
    said: list[Any],
) -> None:
    found = announced(directed, monkeypatch, *orders(), seconds=8.6)
    assert [what for what, _ in found] == said


# --- counters ------------------------------------------------------------------------------------


def count(**fields: int) -> _Count:
    return _Count(**(dict.fromkeys(_Count.__dataclass_fields__, 0) | fields))


def devices(monkeypatch: pytest.MonkeyPatch, *states: Callable[[str, int], DeviceCount]) -> None:
    """What the kernel counts of (namespace, device) when asked for the first time, and again."""
    asked: dict[str, int] = {}

    def counts(name: Any) -> dict[int, DeviceCount]:
        state = states[min(asked.setdefault(name, 0), len(states) - 1)]
        asked[name] += 1
        indices = (BS_DEVICE_BASE + 1, BS_DEVICE_BASE + 2) if name == "bs" else (UAV_DEVICE,)
        return {1: NOTHING, **{index: state(name, index) for index in indices}}

    monkeypatch.setattr(radio, "device_counts", counts)


def test_counters_join_those_of_the_process_and_of_the_devices(
    directed: Directed, monkeypatch: pytest.MonkeyPatch
) -> None:
    up1 = count(
        entered_bytes=5000, entered_packets=10, left_bytes=3000, left_packets=6, lost_packets=2,
        refused_packets=1, inside_packets=1, held_bytes=400,
    )  # fmt: skip
    down2 = count(entered_packets=5, left_packets=5, entered_bytes=70)
    slots = np.arange(8).tobytes()
    directed.process.count = [up1, count(), count(), down2], slots, 3
    known = {
        ("uav1", UAV_DEVICE): DeviceCount(5000, 10, 0, 4),
        ("bs", BS_DEVICE_BASE + 1): DeviceCount(0, 0, 6, 5),
        ("uav2", UAV_DEVICE): DeviceCount(0, 0, 5, 6),
        ("bs", BS_DEVICE_BASE + 2): DeviceCount(70, 5, 0, 7),
    }
    devices(monkeypatch, lambda name, index: known[name, index])
    (counters,) = directed.serve(AskCounters())
    assert isinstance(counters, Counters)
    assert (counters.exhausted, counters.slots, counters.below_floor) == (3, slots, 0)
    assert abs(counters.asked_ns - time.time_ns()) < 60e9
    (first_up, first_down), (second_up, second_down) = counters.links
    assert first_up.sent_bytes == first_up.device_sent_bytes == 5000
    assert first_up.sent_frames == first_up.device_sent_frames == 10
    assert (first_up.dropped_frames, first_up.backlog_bytes) == (4, 400)
    assert (first_up.lost_frames, first_up.arrived_frames, first_up.inside_frames) == (3, 6, 1)
    assert (second_down.sent_frames, second_down.arrived_frames) == (5, 5)
    drops = [way.dropped_frames for way in (first_up, first_down, second_up, second_down)]
    assert drops == [4, 5, 6, 7]
    links = (first_up, first_down, second_up, second_down)
    assert not any(way.unaccounted_frames for way in links)


def test_packets_are_accounted_for_while_counters_run(
    directed: Directed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is asked between the two looks at the devices."""
    directed.process.count = [count(entered_packets=7, left_packets=7)] * 4, b"", 0
    devices(
        monkeypatch,
        lambda name, index: DeviceCount(0, 6, 5, 0),
        lambda name, index: DeviceCount(0, 9, 8, 0),
    )
    (counters,) = directed.serve(AskCounters())
    assert not any(way.unaccounted_frames for link in counters.links for way in link)


@pytest.mark.parametrize(
    ("own", "before", "after", "missing"),
    [
        ({"entered_packets": 5, "left_packets": 5}, (5, 5), (5, 5), 0),
        ({"entered_packets": 5, "left_packets": 3, "lost_packets": 1, "inside_packets": 1},
         (5, 3), (5, 3), 0),
        ({"entered_packets": 5, "left_packets": 3, "refused_packets": 2}, (5, 3), (5, 3), 0),
        # Packets that are neither lost nor inside, or that come from nowhere
        ({"entered_packets": 5, "left_packets": 3}, (5, 3), (5, 3), 2),
        ({"entered_packets": 3, "left_packets": 5}, (3, 5), (3, 5), 2),
        # A device has sent what the process has not read, or the other way round.
        ({"entered_packets": 5, "left_packets": 5}, (7, 5), (8, 5), 2),
        ({"entered_packets": 5, "left_packets": 5}, (2, 5), (4, 5), 1),
        # What was written has not arrived, or more than that.
        ({"entered_packets": 5, "left_packets": 5}, (5, 1), (5, 2), 3),
        ({"entered_packets": 5, "left_packets": 5}, (5, 6), (5, 7), 1),
        ({"entered_packets": 5, "left_packets": 4}, (7, 1), (8, 2), 1 + 2 + 2),
    ],
)  # fmt: skip
def test_what_is_unaccounted_for(
    own: dict[str, int], before: tuple[int, int], after: tuple[int, int], missing: int
) -> None:
    """The devices' counts are those of the sender's frames and of the receiver's."""
    then, now = (
        (DeviceCount(0, sent, 99, 0), DeviceCount(0, 99, received, 0))
        for sent, received in (before, after)
    )
    assert _unaccounted(count(**own), then, now) == missing


# --- samples -------------------------------------------------------------------------------------


def rows_of(samples: Samples) -> Any:
    return np.frombuffer(samples.table, np.int64).reshape(-1, WIDTH)


def test_samples_get_the_drops_of_the_sending_devices(
    directed: Directed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those until now count in the last slot, since the process does not know them by slot."""
    table = np.arange(3 * WIDTH, dtype=np.int64).reshape(3, WIDTH)
    directed.process.sampled = table.tobytes(), 5
    drops = {"uav1": 1, "bs": 2, "uav2": 3}
    devices(
        monkeypatch,
        lambda name, index: DeviceCount(0, 0, 0, drops[name] + index % 10),
        lambda name, index: DeviceCount(0, 0, 0, 10 * drops[name] + index % 10),
    )
    first, second = directed.serve(AskSamples(), AskSamples())
    assert (first.exhausted, second.exhausted) == (5, 5)
    at = [SAMPLE + 3 + SAMPLE_OF_WAY * way for way in range(4)]
    assert rows_of(first)[:, at].tolist() == [[0] * 4, [0] * 4, [1, 3, 3, 4]]
    assert rows_of(second)[:, at].tolist() == [[1, 3, 3, 4], [1, 3, 3, 4], [10, 21, 30, 22]]
    others = np.delete(table, at, axis=1)
    for samples in (first, second):
        assert np.array_equal(np.delete(rows_of(samples), at, axis=1), others)


def test_no_samples_need_no_drops(directed: Directed, monkeypatch: pytest.MonkeyPatch) -> None:
    directed.process.sampled = b"", 0
    monkeypatch.setattr(radio, "device_counts", None)
    assert directed.serve(AskSamples()) == [Samples(0, b"")]


# --- the process ---------------------------------------------------------------------------------

PROGRAM = """
import json, os, struct, sys, time
start = json.loads(sys.stdin.buffer.readline())
first = struct.unpack("=2d", sys.stdin.buffer.read(16))
def answer(line, *numbers):
    sys.stdout.buffer.write(line.encode() + b"\\n" + struct.pack(f"={len(numbers)}q", *numbers))
    sys.stdout.buffer.flush()
"""
ATTACHED = PROGRAM + 'answer(json.dumps({"missing": []}))\n'


@contextmanager
def started(fabric: Fabric, body: str, **settings: Any) -> Iterator[RadioProcess]:
    settings = {"radio": "lte", "attach_s": 5.0} | settings
    argv = (sys.executable, "-c", body)
    process = RadioProcess(RadioProgram(argv, json.dumps(settings), (1e-9, 2e-9)), fabric)
    try:
        yield process
    finally:
        process.close()


def test_it_starts_with_the_settings_the_devices_and_the_channel(fabric: Fabric) -> None:
    say = """
answer(json.dumps({"missing": []}))
files = start["settings"]["uav_taps"] + start["settings"]["station_taps"]
answer("heard %s" % json.dumps([start, first, [os.fstat(f).st_ino for f in files]]))
"""
    tap, other = os.pipe()
    with os.fdopen(tap), os.fdopen(other):
        taps = Fabric(fabric.base_station, (1,), (), 1, uav_taps=(tap,), station_taps=(other,))
        with started(taps, PROGRAM + say, number=7) as process:
            start, first, inodes = json.loads(process._line(10).removeprefix(b"heard "))
        assert inodes == [os.fstat(tap).st_ino, os.fstat(other).st_ino]
    assert start["parent"] == os.getpid()
    assert start["settings"] == {
        "radio": "lte", "attach_s": 5.0, "number": 7, "uav_taps": [tap], "station_taps": [other]
    }  # fmt: skip
    assert first == [1e-9, 2e-9]


def test_uavs_that_are_not_connected_are_named(fabric: Fabric) -> None:
    body = PROGRAM + 'answer(json.dumps({"missing": [0, 2]}))\ntime.sleep(60)'
    message = "^ns-3's LTE: did not attach to the base station within 5 s of simulated time: "
    with pytest.raises(RunError, match=message + "UAV 1, UAV 3$"), started(fabric, body):
        pass
    # Wi-Fi goes on looking for its access point.
    with started(fabric, body, radio="wifi"):
        pass


def test_it_reads_counts_and_samples(fabric: Fabric) -> None:
    answers = f"""
assert sys.stdin.buffer.readline() == b"counts\\n"
answer("counts 2 9", *range(32), *range(100, 108))
assert sys.stdin.buffer.readline() == b"samples\\n"
answer("samples 3 8", *range(3 * {WIDTH}))
time.sleep(60)
"""
    with started(fabric, ATTACHED + answers) as process:
        counts, slots, exhausted = process.counts(2)
        assert counts == [_Count(*range(at, at + 8)) for at in (0, 8, 16, 24)]
        assert np.frombuffer(slots, np.int64).tolist() == list(range(100, 108))
        assert exhausted == 9
        table, exhausted = process.samples(2)
        assert np.frombuffer(table, np.int64).tolist() == list(range(3 * WIDTH))
        assert exhausted == 8


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ("sys.exit('no\\n  memory')", r"\(status 1\): no memory"),
        ("os._exit(3)", r"\(status 3\): it left no message"),
        ("os.kill(os.getpid(), 9)", r"\(SIGKILL\): it left no message"),
        ("os.write(2, b'\\xff' * 2000); os._exit(1)", r"\(status 1\): \ufffd{1000}"),
    ],
)
def test_its_last_words_are_the_message(fabric: Fabric, end: str, message: str) -> None:
    said = f"^the radio process died {message}$"
    with pytest.raises(RunError, match=said), started(fabric, PROGRAM + end):
        pass
    with started(fabric, ATTACHED + end) as process:
        with pytest.raises(RunError, match=said):
            process.counts(2)
        with pytest.raises(RunError, match=said):
            process.send("pause")


def test_a_process_that_closes_its_output_but_stays_is_ended(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(radio, "ENDING_S", 0.1)
    with started(fabric, ATTACHED + "os.close(1); time.sleep(60)") as process:
        with pytest.raises(RunError, match=r"died \(SIGKILL\)"):
            process.samples(2)
        assert process._process.poll() is not None


def test_an_answer_that_does_not_come_is_not_waited_for(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(radio, "ANSWER_S", 0.1)
    with (
        started(fabric, ATTACHED + "answer('counts 0 0', 1); time.sleep(60)") as process,
        pytest.raises(RunError, match=r"^the radio process: waited 0\.1 s for its answer$"),
    ):
        process.counts(2)
    with (
        started(fabric, ATTACHED + "time.sleep(9)") as process,
        pytest.raises(RunError, match=r"^the radio process: waited 0\.1 s for its answer$"),
    ):
        process.samples(2)
    monkeypatch.setattr(radio, "START_S", 0.1)
    with (
        pytest.raises(RunError, match=r"waited 0\.1 s"),
        started(fabric, PROGRAM + "time.sleep(60)"),
    ):
        pass


def test_it_is_ended(fabric: Fabric) -> None:
    with started(fabric, ATTACHED + "time.sleep(60)") as process:
        pass
    assert process._process.returncode == -9
