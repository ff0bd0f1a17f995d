# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The radio program in the loop: frames of devices pass ns-3's radio and come out unchanged.

Datagram sockets take the place of tap devices.
"""

import ctypes
import json
import os
import select
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ns3_scenarios import nr_module
from ns3_scenarios.radio import (
    Air,
    LteSettings,
    NrSettings,
    WifiSettings,
    cell_settings,
    program_of,
)
from orchestrator.analysis.radio_log import (
    AGAIN,
    EMPTIED,
    FILLED,
    INTERRUPTED,
    JOINS_CELL,
    LEAVES_CELL,
    NEW,
    SENT,
    SERVED,
    RadioLog,
    handovers,
    read_log,
)
from orchestrator.engine.nr import grant_times
from orchestrator.scenario.loading import validate


def has_io_uring() -> bool:
    """Whether this kernel lets the program make all calls of a step in one entry."""
    ring = ctypes.CDLL(None).syscall(425, 1, ctypes.create_string_buffer(120))
    if ring >= 0:
        os.close(ring)
    return ring >= 0 and tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 5)


ENTRIES = pytest.mark.parametrize(
    "one_entry",
    [
        False,
        pytest.param(True, marks=pytest.mark.skipif(not has_io_uring(), reason="no io_uring")),
    ],
    ids=["an entry a call", "one entry"],
)
UAVS = 2
MACS = bytes.fromhex("020000010001 020000000001".replace(" ", ""))


AIR = Air(
    uplink_gain=np.full((UAVS, 1), 1e-9),
    downlink_gain=np.full((UAVS, 1), 1e-9),
    slots=1,
    slot_s=0.1,
    uplink_power_w=np.array([1.0, 0.4]),
    downlink_power_w=1.0,
    position_m=np.array([[[100.0, 0.0, -10.0]], [[0.0, 200.0, -10.0]]]),
)


def slot(gain: float, *further: float) -> bytes:
    """A slot of the channel, as the program reads it: the gain to each cell."""
    assert AIR.position_m is not None
    way = np.repeat([gain, *further], UAVS).tobytes()
    return way + way + AIR.position_m.tobytes()


def ipv4(payload: bytes, destination: str = "10.9.8.7", dscp: int = 0) -> bytes:
    """A frame with a packet whose addresses the radio does not know."""
    source = socket.inet_aton("192.0.2.1")
    size = 20 + len(payload)
    header = struct.pack("!BBHHHBBH", 0x45, dscp << 2, size, 0, 0, 64, 253, 0)
    return MACS + b"\x08\x00" + header + source + socket.inet_aton(destination) + payload


def ipv6(payload: bytes) -> bytes:
    """A frame with a packet of IPv6."""
    header = struct.pack("!IHBB", 6 << 28, len(payload), 253, 64)
    address = socket.inet_pton(socket.AF_INET6, "fd55::1")
    return MACS + b"\x86\xdd" + header + address * 2 + payload


@dataclass
class Live:
    """A running radio program, and the outer ends of its devices."""

    process: "subprocess.Popen[bytes]"
    uavs: list[socket.socket]
    station: list[socket.socket]
    log: Path
    counts: list[list[int]] = field(default_factory=list)

    def order(self, line: str, data: bytes = b"") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n" + data)
        self.process.stdin.flush()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode()

    def numbers(self, count: int) -> Any:
        assert self.process.stdout is not None
        return np.frombuffer(self.process.stdout.read(8 * count), np.int64)

    def count(self) -> tuple[Any, Any]:
        """Counts [K, 2, fields] and slots [n, 4]."""
        self.order("counts")
        _, rows, _ = self.line().split()
        return self.numbers(UAVS * 2 * 8).reshape(UAVS, 2, 8), self.numbers(4 * int(rows)).reshape(
            -1, 4
        )


@contextmanager
def live(
    tmp_path: Path,
    cell: Any,
    *,
    step_s: float = 1e-3,
    dilation: float = 1.0,
    air: Air = AIR,
    first: bytes = slot(1e-9),
    one_entry: bool = False,
) -> Iterator[Live]:
    """The program with two UAVs that are attached on the channel of a slot."""
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2 * UAVS)]
    inner, outer = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    taps = [end.fileno() for end in inner]
    log = tmp_path / "radio.bin"
    settings = cell_settings(air, cell) | {
        "mode": "live",
        "log": str(log),
        "step_s": step_s,
        "dilation": dilation,
        "mtu": 1500,
        "one_entry": one_entry,
        "uav_taps": taps[:UAVS],
        "station_taps": taps[UAVS:],
    }
    process = subprocess.Popen(
        [str(program_of(settings))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=taps,
    )
    radio = Live(process, outer[:UAVS], outer[UAVS:], log)
    try:
        radio.order(json.dumps({"parent": os.getpid(), "settings": settings}), first)
        assert json.loads(radio.line())["missing"] == []
        yield radio
    finally:
        process.kill()
        process.wait()
        for end in (*inner, *outer):
            end.close()


def received(end: socket.socket, wait_s: float = 5.0) -> bytes:
    """The next frame; empty if none comes."""
    if not select.select([end], [], [], wait_s)[0]:
        return b""
    return end.recv(65536)


@ENTRIES
@pytest.mark.parametrize(
    ("cell", "step_s"), [(LteSettings(), 1e-3), (WifiSettings(), 1e-4)], ids=["lte", "wifi"]
)
def test_frames_come_out_as_they_went_in_whatever_their_addresses(
    tmp_path: Path, cell: Any, step_s: float, one_entry: bool
) -> None:
    with live(tmp_path, cell, step_s=step_s, one_entry=one_entry) as radio:
        ways = [
            (radio.uavs[0], radio.station[0]),
            (radio.station[1], radio.uavs[1]),
            (radio.uavs[1], radio.station[1]),
            (radio.station[0], radio.uavs[0]),
        ]
        for number, (sender, receiver) in enumerate(ways):
            for frame in (
                ipv4(bytes([number]) * 900),
                ipv6(bytes([number]) * 1400),
                ipv4(b"", "224.0.0.5"),
            ):
                sender.send(frame)
                assert received(receiver) == frame
        assert not any(received(end, 0) for end in (*radio.uavs, *radio.station))
        counts, _ = radio.count()
    entered, left, lost, refused, inside = counts[:, :, [1, 3, 4, 5, 6]].transpose(2, 0, 1)
    assert (entered == 3).all()
    assert (left == 3).all()
    assert not (lost + refused + inside).any()
    assert (counts[:, :, 2] == counts[:, :, 0] - 3 * 14).all()  # bytes of IP


def test_what_is_no_packet_of_ip_is_refused_and_counted(tmp_path: Path) -> None:
    with live(tmp_path, LteSettings()) as radio:
        radio.uavs[0].send(MACS + b"\x08\x06" + bytes(28))  # ARP
        radio.uavs[0].send(b"short")
        radio.uavs[0].send(ipv4(b"after them"))
        assert received(radio.station[0]) == ipv4(b"after them")
        counts, _ = radio.count()
    entered, left, refused = counts[0, 0, [1, 3, 5]]
    assert (entered, left, refused) == (3, 1, 2)


@ENTRIES
def test_bursts_keep_their_order(tmp_path: Path, one_entry: bool) -> None:
    """They are longer than what a device is asked for in a step, and then shorter again."""
    with live(tmp_path, LteSettings(), one_entry=one_entry) as radio:
        sent = [
            [ipv4(struct.pack("=II", k, n) + bytes(n)) for n in range(100)] for k in range(UAVS)
        ]
        found: list[list[bytes]] = [[] for _ in range(UAVS)]
        for burst in (40, 1, 30, 3, 26):
            for k, (sender, receiver) in enumerate(zip(radio.station, radio.uavs, strict=True)):
                at = len(found[k])
                for frame in sent[k][at : at + burst]:
                    sender.send(frame)
                found[k] += [received(receiver) for _ in range(burst)]
        counts, _ = radio.count()
    assert found == sent
    assert counts[:, 1, [1, 3, 4, 5, 6]].tolist() == UAVS * [[100, 100, 0, 0, 0]]


@ENTRIES
def test_queues_form_outside_of_ns3(tmp_path: Path, one_entry: bool) -> None:
    """A sender is not read while 100 kB of it wait."""
    with live(tmp_path, LteSettings(), one_entry=one_entry) as radio:
        radio.order("channel 0 1", slot(0.0))
        radio.order(f"epoch {time.monotonic_ns()} 0.0 1e6")
        time.sleep(0.3)  # The link is out.
        sender = radio.uavs[0]
        sender.setblocking(False)
        sent = 0
        with suppress(BlockingIOError):
            while sent < 2000:
                sender.send(ipv4(bytes(1400)))
                sent += 1
        time.sleep(0.3)
        counts, _ = radio.count()
    print(counts[0, 0], sent)
    entered, held, inside = counts[0, 0, [1, 7, 6]]
    assert entered == inside < sent
    assert 90_000 < held < 110_000


def test_the_channel_changes_with_the_slots_of_the_clock(tmp_path: Path) -> None:
    with live(tmp_path, LteSettings()) as radio:
        radio.order("channel 0 5", slot(0.0) + 4 * slot(1e-9))
        start_ns = time.monotonic_ns() + 100_000_000
        radio.order(f"epoch {start_ns} 0.0 0.3")
        time.sleep(0.15)
        for _ in range(100):  # What is sent in the outage is lost.
            radio.uavs[0].send(ipv4(bytes(500)))
            if received(radio.station[0], 0.02):
                break
        late_ns = time.monotonic_ns() - start_ns
        _, slots = radio.count()
        radio.order("pause")
    assert late_ns > 300_000_000  # In slot 1.
    assert slots[:2, 0].tolist() == [0, 1]
    assert slots[:2, 1].tolist() == [start_ns, start_ns + 300_000_000]
    assert (slots[:, 2] >= slots[:, 1]).all()


def test_the_log_has_grants_and_queues(tmp_path: Path) -> None:
    with live(tmp_path, LteSettings()) as radio:
        before_ns = time.monotonic_ns()
        for _ in range(20):
            radio.station[1].send(ipv4(bytes(1000)))
        for _ in range(20):
            assert received(radio.uavs[1])
        radio.count()
        after_ns = time.monotonic_ns()
        log = read_log(radio.log, len(radio.uavs))
    down = log[(log["direction"] == 1) & (log["uav"] == 1)]
    assert (down["time_ns"] > before_ns - 20_000_000).all()
    assert (down["time_ns"] < after_ns + 20_000_000).all()
    new = down[down["kind"] == NEW]
    assert new["bytes"].astype(int).sum() >= 20 * 1020
    assert (new["mcs"] == 28).all()
    assert not (down["kind"] == AGAIN).any()
    queue = down[np.isin(down["kind"], (FILLED, EMPTIED))]
    assert (queue["kind"][0], queue["kind"][-1]) == (FILLED, EMPTIED)


@ENTRIES
def test_what_a_device_does_not_take_is_refused(tmp_path: Path, one_entry: bool) -> None:
    """It did not leave."""
    with live(tmp_path, LteSettings(), one_entry=one_entry) as radio:
        for number in range(600):
            radio.uavs[0].send(ipv4(struct.pack("=I", number) + bytes(1000)))
        time.sleep(0.5)
        before, _ = radio.count()
        taken = 0
        while received(radio.station[0], 0.1):
            taken += 1
        radio.uavs[0].send(ipv4(b"after them"))
        assert received(radio.station[0]) == ipv4(b"after them")
        after, _ = radio.count()
    entered, left_bytes, left, lost, refused, inside = before[0, 0, 1:7]
    assert (entered, lost, inside) == (600, 0, 0)
    assert refused > 0
    assert (left, left + refused) == (taken, 600)
    assert left_bytes == taken * (20 + 1004)
    assert after[0, 0, [1, 3, 5]].tolist() == [601, taken + 1, refused]


@pytest.mark.parametrize("dilation", [1.0, 10.0])
def test_a_packet_is_lost_half_a_simulated_second_later(tmp_path: Path, dilation: float) -> None:
    """Until then it may still come, however slowly the clock runs."""
    with live(tmp_path, LteSettings(), dilation=dilation) as radio:
        radio.order("channel 0 1", slot(1e-15))  # The scheduler does not know yet.
        radio.order(f"epoch {time.monotonic_ns()} 0.0 1e6")
        for _ in range(3):
            radio.station[0].send(ipv4(bytes(20)))
        time.sleep(0.2 * dilation)
        before, _ = radio.count()
        time.sleep(0.45 * dilation)
        after, _ = radio.count()
    lost_and_inside = [4, 6]
    assert before[0, 1, lost_and_inside].tolist() == [0, 3]
    assert after[0, 1, lost_and_inside].tolist() == [3, 0]


CELLS = replace(
    AIR,
    gain_cells=np.full((1, UAVS, 1), 4e-10),
    power_cells_w=np.array([1.0]),
)


def test_frames_keep_coming_while_uavs_change_their_cell(tmp_path: Path) -> None:
    """The first cell is the stronger one for 0.5 s, then the second one."""
    near, far = slot(1e-9, 4e-10), slot(4e-10, 1e-9)
    cell = LteSettings(resource_blocks=25, handover="a3")
    found: list[list[int]] = [[], []]
    with live(tmp_path, cell, air=CELLS, first=near) as radio:
        radio.order("channel 0 5", 1 * near + 4 * far)
        start_ns = time.monotonic_ns()
        radio.order(f"epoch {start_ns} 0.0 0.5")
        ways = (radio.uavs[0], radio.station[0]), (radio.station[0], radio.uavs[0])
        for number in range(400):
            for way, (sender, receiver) in enumerate(ways):
                sender.send(ipv4(struct.pack("=I", number) + bytes(500)))
                while frame := received(receiver, 0):
                    found[way].append(struct.unpack_from("=I", frame, 34)[0])
            time.sleep(0.005)
        for way, (_, receiver) in enumerate(ways):
            while frame := received(receiver, 0.3):
                found[way].append(struct.unpack_from("=I", frame, 34)[0])
        counts, _ = radio.count()
        log = read_log(radio.log, len(radio.uavs))
    for way, numbers in enumerate(found):
        assert len(set(numbers)) == len(numbers) > 380
        assert max(numbers) == 399
        entered, left, lost, refused, inside = counts[0, way, [1, 3, 4, 5, 6]]
        assert (entered, left, refused) == (400, len(numbers), 0)
        assert left + lost + inside == 400
    kinds = log[log["uav"] == 0]["kind"]
    assert [(kinds == kind).sum() for kind in (LEAVES_CELL, JOINS_CELL, INTERRUPTED)] == [1, 1, 2]
    at = RadioLog(log, lambda ns: (ns - start_ns) * 1e-9, 1500)
    table = handovers(at)
    assert sorted(table["client"]) == [1, 2], "both hear the same"
    assert table["from_cell"].tolist() == [0, 0]
    assert table["to_cell"].tolist() == [1, 1]
    # After the time to trigger of 0.256 s, and some filtered measurements of 0.2 s each
    assert table["start_s"].between(0.75, 2.0).all()
    assert (table["end_s"] - table["start_s"]).between(0.002, 0.05).all()
    of_first = table[table["client"] == 1]["interruption_ms"]
    assert of_first.between(5, 100).all()
    served = log[(log["kind"] == SERVED) & (log["uav"] == 0)]["blocks"].tolist()
    assert served[0] == 0
    assert served[-1] == 1


@pytest.mark.skipif(nr_module.find() is None, reason="5G-LENA is not built")
@pytest.mark.parametrize("pattern", ["", "DDDU", "DDDSU"])
def test_the_log_of_nr_has_the_blocks_in_which_data_were_sent(tmp_path: Path, pattern: str) -> None:
    nr = {"duplex": "tdd", "tdd_pattern": pattern} if pattern else {}
    fleet = {"count": UAVS, "tx_power_w": [1.0] * UAVS}
    tree = {"paradigm": "sfl-sp", "uavs": fleet, "base_station": {"tx_power_w": 1.0}}
    times = grant_times(validate(tree | {"radio": {"access": "nr", "nr": nr}}, "test"))
    packets = 20
    with live(tmp_path, NrSettings(tdd_pattern=pattern)) as radio:
        ends = (radio.uavs[0], radio.station[0]), (radio.station[0], radio.uavs[0])
        for sender, receiver in ends:
            for _ in range(packets):
                sender.send(ipv4(bytes(1400)))
            assert all(received(receiver) for _ in range(packets))
        radio.count()
        log = read_log(radio.log, UAVS)
    for direction in (0, 1):
        own = log[(log["uav"] == 0) & (log["direction"] == direction)]
        new, sent = (own[own["kind"] == kind] for kind in (NEW, SENT))
        later_ns = 1e9 * times.tti_s * (times.noted[direction] - times.taken[direction])
        apart_ns = np.abs(new["time_ns"] - (sent["time_ns"][:, None] + later_ns))
        assert apart_ns.min(axis=1).max() < 40e3, "an NR slot has 500 us"
        blocks = new[apart_ns.argmin(axis=1)]
        assert (blocks["bytes"] > sent["bytes"]).all()
        assert sent["bytes"].astype(int).sum() > packets * 1420
        assert blocks["blocks"].max() == 51


@ENTRIES
def test_it_ends_with_its_orders(tmp_path: Path, one_entry: bool) -> None:
    with live(tmp_path, LteSettings(), one_entry=one_entry) as radio:
        assert radio.process.stdin is not None
        radio.process.stdin.close()
        assert radio.process.wait(10) == 0
