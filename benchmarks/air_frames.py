# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Whether the air loses and delays the frames that it is asked to: numbered datagrams of a session.

python benchmarks/air_frames.py [--clock virtual|real] [--frames N] [--json FILE]
    [--part loss|delay|jitter|cpu]...

loss: the share of N frames lost, in standard deviations from what was asked; the same frames with
the same seed, at another pace, too; those of another seed, by a chi-square test of independence.
delay: what frames of ten links that carry 30 Mb/s each are later than without delay (by the real
clock with iperf3). jitter: a Kolmogorov-Smirnov test of sparse frames' delays against the asked
normal. cpu: what ten uplinks of 100 Mb/s that TCP fills cost, with losses and without: CPU seconds
of the whole machine for each emulated one, and in virtual time those of the kernel's processes. On
a real clock the machine must do nothing else.
"""

import argparse
import contextlib
import json
import math
import os
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from common import ROOT, TESTBED, cpu_s

from testbed.system.arrivals import NOTE_BYTES, note_arrivals, noted_ns
from testbed.system.files import write_json

PORT, LEAD_S, QUIET_S, POLL_S = 9000, 2.5, 1.5, 0.005
HEAD = struct.Struct("=QQ")
RATE_BPS = 40e6
EVERY_S = 4e-4
FIRST = 100
"""Frames that are left out: addresses are looked up, buffers grow."""
REAL_DILATION = 5.0
"""Of the part `cpu`: netem's stand-in does not carry ten links of 100 Mb/s as they are."""


def send(client: int, count: int, size: int, every_s: float) -> None:
    """In a UAV: so many datagrams of so many bytes, numbered, at even intervals."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("bs", PORT + client))
        time.sleep(LEAD_S)
        start_ns, rest = time.monotonic_ns(), bytes(size - HEAD.size)
        for number in range(count):
            due_s = number * every_s - (time.monotonic_ns() - start_ns) * 1e-9
            if due_s > 0:
                time.sleep(due_s)
            sock.send(HEAD.pack(number, time.time_ns()) + rest)


def receive(client: int) -> None:
    """In the base station: numbers and delays in ns of what comes from a UAV, as a NumPy file.

    Until the kernel has it: these programs look rarely, for to be woken by each frame would fill
    the machine.
    """
    found: list[tuple[int, int]] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
        note_arrivals(sock)
        sock.bind(("0.0.0.0", PORT + client))
        sock.setblocking(False)
        heard_s = math.inf
        while time.monotonic() < heard_s + QUIET_S:
            time.sleep(POLL_S)
            with contextlib.suppress(BlockingIOError):
                while True:
                    data, notes, _, _ = sock.recvmsg(2048, NOTE_BYTES)
                    came_ns = noted_ns(notes)
                    assert came_ns is not None
                    number, sent_ns = HEAD.unpack_from(data)
                    found.append((number, came_ns - sent_ns))
                    heard_s = time.monotonic()
    np.save(Path.home() / f"uav{client}.npy", np.array(found))


def pour(client: int, seconds: float) -> None:
    """In a UAV: as much as TCP takes in so many seconds of its clock."""
    with socket.create_connection(("bs", PORT + client)) as sock:
        end_s, chunk = time.monotonic() + seconds, bytes(1 << 17)
        while time.monotonic() < end_s:
            sock.sendall(chunk)


def drain(client: int) -> None:
    """In the base station: the number of bytes that come from a UAV, in a file."""
    with socket.create_server(("0.0.0.0", PORT + client)) as server:
        sock, _ = server.accept()
        room, size = bytearray(1 << 20), 0
        while taken := sock.recv_into(room):
            size += taken
    (Path.home() / f"uav{client}").write_text(str(size))


@contextlib.contextmanager
def session(
    tree: dict[str, Any], rate_bps: float, nodes: dict[str, str]
) -> Generator[Path, None, None]:
    """The folders of an emulated network's nodes, once their programs have ended.

    Args:
        tree: Of the scenario; its `links` and `emulation`, its `seed`.
        rate_bps: Of each link.
        nodes: A shell's command for each node.
    """
    with tempfile.TemporaryDirectory(prefix="testbed-frames-") as folder:
        here, clients = Path(folder), len(nodes) - 1
        scenario = {"name": "air", "uavs": {"tx_power_w": [1.0] * clients}, **tree}
        (here / "scenario.yaml").write_text(json.dumps(scenario))
        rates = np.full((clients, 36_000), rate_bps)
        np.savez(here / "trace.npz", uplink_bps=rates, downlink_bps=rates, slot_s=0.1)
        words: list[str | Path] = [TESTBED, "up", here / "scenario.yaml"]
        words += ["--trace", here / "trace.npz", "--out", here / "out"]
        words += [word for node in nodes.items() for word in ("--node", "=".join(node))]
        done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
        if done.returncode:
            sys.exit(done.stderr)
        yield here / "out" / "nodes"


def datagrams(
    clock: str,
    links: dict[str, Any],
    seed: int,
    clients: int,
    count: int,
    size: int,
    every_s: float,
    beside_bps: float = 0.0,
) -> list[npt.NDArray[np.int64]]:
    """What arrived of each UAV's datagrams: rows of number and delay in ns.

    Args:
        beside_bps: What iperf3 sends from each UAV besides, over links that have much more.
    """
    me, uavs = f"{sys.executable} {Path(__file__)}", range(1, clients + 1)
    nodes = {"bs": " & ".join(f"{me} receive {k}" for k in uavs) + " & wait"}
    nodes |= {f"uav{k}": f"exec {me} send {k} {count} {size} {every_s}" for k in uavs}
    rate_bps = RATE_BPS
    if beside_bps:
        rate_bps = 1e9
        sender = f"iperf3 -c bs -u -b {beside_bps:.0f} -l 1400 -t {LEAD_S + count * every_s + 1}"
        servers = "".join(f"iperf3 -s -1 -p {PORT - k} >/dev/null & " for k in uavs)
        nodes["bs"] = servers + nodes["bs"]
        for k in uavs:
            nodes[f"uav{k}"] = f"(sleep 1; {sender} -p {PORT - k}) & " + nodes[f"uav{k}"]
    tree = {"seed": seed, "links": links, "emulation": {"clock": clock}}
    with session(tree, rate_bps, nodes) as folder:
        return [np.load(folder / "bs" / f"uav{k}.npy") for k in uavs]


def loss(clock: str, frames: int) -> Iterator[dict[str, Any]]:
    """Of frames that are sent one by one over one link."""
    for probability in (0.001, 0.01, 0.05):
        lost = []
        for seed, count, every_s in (
            (1, frames, EVERY_S),
            (1, frames, EVERY_S),
            (2, frames, EVERY_S),
            (1, frames // 100, 100 * EVERY_S),
        ):
            links = {"loss": {"up": probability}}
            (arrived,) = datagrams(clock, links, seed, 1, count, 100, every_s)
            gone = np.ones(count, bool)
            gone[arrived[:, 0]] = False
            lost.append(gone)
        share = float(lost[0].mean())
        sigma = math.sqrt(probability * (1 - probability) / frames)
        one, other = lost[0], lost[2]
        # With Yates's correction, which makes 0 of what is off by less than half a frame.
        table = np.array([[(a & b).sum() for b in (other, ~other)] for a in (one, ~one)], float)
        due = table.sum(1, keepdims=True) * table.sum(0) / table.sum()
        chi_square = float((np.maximum(np.abs(table - due) - 0.5, 0) ** 2 / due).sum())
        yield {
            "asked": probability,
            "share": share,
            "sigmas": (share - probability) / sigma,
            "same_seed_same_frames": bool((lost[0] == lost[1]).all()),
            "at_another_pace": bool((lost[0][: len(lost[3])] == lost[3]).all()),
            "lost_with_both_seeds": int(table[0, 0]),
            "lost_with_both_if_independent": float(due[0, 0]),
            "other_seed_chi_square": chi_square,
            "other_seed_p": math.erfc(math.sqrt(chi_square / 2)),
        }


def delay(clock: str, seconds: float = 6.0) -> Iterator[dict[str, Any]]:
    """Of ten links that carry 30 Mb/s each.

    By the real clock iperf3 sends them, and what is timed is sent now and then: so many programs in
    Python would fill the machine. Virtual time does not pass for them, and stands still where
    iperf3 waits awake.
    """
    if clock == "real":
        size, every_s, beside_bps = 100, 0.01, 30e6
    else:
        size, seconds, beside_bps = 1400, 2.0, 0.0
        every_s = 8 * (size + 42) / 30e6
    count = FIRST + round(seconds / every_s)

    def late_ms(asked_s: float) -> npt.NDArray[np.float64]:
        links = {"one_way_delay_s": {"up": asked_s}} if asked_s else {}
        ways = datagrams(clock, links, 1, 10, count, size, every_s, beside_bps)
        return np.concatenate([way[way[:, 0] >= FIRST, 1] for way in ways]) * 1e-6

    plain = float(np.median(late_ms(0.0)))
    for asked_s in (0.005, 0.02, 0.05):
        off = late_ms(asked_s) - plain - 1e3 * asked_s
        p50, p99 = np.percentile(np.abs(off), [50, 99])
        yield {"asked_ms": 1e3 * asked_s, "off_p50_ms": float(p50), "off_p99_ms": float(p99)}


def jitter(clock: str, frames: int = 4000) -> Iterator[dict[str, Any]]:
    """Of frames so far apart that none waits for another, which would be in its way."""
    mean_s, deviation_s, every_s = 0.03, 0.003, 0.03
    ways = datagrams(clock, {}, 1, 1, 200, 100, every_s)
    plain_s = float(np.median(ways[0][:, 1])) * 1e-9
    links = {"one_way_delay_s": {"up": mean_s}, "jitter_s": {"up": deviation_s}}
    (arrived,) = datagrams(clock, links, 1, 1, frames, 100, every_s)
    late_s = np.sort(arrived[:, 1] * 1e-9 - plain_s)
    scaled = (late_s - mean_s) / deviation_s
    asked = np.array([0.5 * (1 + math.erf(z / math.sqrt(2))) for z in scaled])
    places = np.arange(len(late_s) + 1) / len(late_s)
    distance = float(max((places[1:] - asked).max(), (asked - places[:-1]).max()))
    # Kolmogorov's distribution: 1.36 is exceeded once in twenty.
    yield {
        "frames": len(late_s),
        "mean_s": float(late_s.mean()),
        "deviation_s": float(late_s.std()),
        "kolmogorov_smirnov": distance,
        "scaled": distance * math.sqrt(len(late_s)),
    }


def cpu(clock: str, seconds: tuple[int, int] = (2, 8)) -> Iterator[dict[str, Any]]:
    """Of ten uplinks of 100 Mb/s: what a long session takes beyond a short one."""
    dilation = REAL_DILATION if clock == "real" else 1.0
    emulation = {"clock": clock, "dilation": dilation}
    me, uavs = f"{sys.executable} {Path(__file__)}", range(1, 11)
    span_s = seconds[1] - seconds[0]
    for probability in (0.0, 0.01):
        spent_s, carried = [], []
        for each_s in seconds:
            nodes = {"bs": " & ".join(f"{me} drain {k}" for k in uavs) + " & wait"}
            nodes |= {
                f"uav{k}": f"sleep {LEAD_S}; exec {me} pour {k} {each_s * dilation}" for k in uavs
            }
            tree = {"seed": 1, "links": {"loss": {"up": probability}}, "emulation": emulation}
            before_s = _spent_s(clock)
            with session(tree, 100e6, nodes) as folder:
                spent_s.append(_spent_s(clock) - before_s)
                carried.append(sum(int((folder / "bs" / f"uav{k}").read_text()) for k in uavs))
        yield {
            "loss": probability,
            "dilation": dilation,
            "carried_bps": 8 * (carried[1] - carried[0]) / span_s,
            "cpu_s_a_second": (spent_s[1] - spent_s[0]) / span_s,
        }


def _spent_s(clock: str) -> float:
    """CPU seconds so far: of this program's children, or on a real clock of the whole machine."""
    if clock == "virtual":
        return cpu_s(resource.RUSAGE_CHILDREN)
    first, _, _ = Path("/proc/stat").read_text().partition("\n")
    user, nice, system, _, _, irq, softirq = map(int, first.split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


PARTS: dict[str, Callable[[str], Iterator[dict[str, Any]]]] = {
    "delay": delay,
    "jitter": jitter,
    "cpu": cpu,
}
"""Beside `loss`, which takes a number of frames."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clock", choices=("virtual", "real"), default="virtual")
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--part", action="append", choices=("loss", *PARTS))
    parser.add_argument("--json", type=Path)
    wanted = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {}
    for part in wanted.part or ("loss", *PARTS):
        many = part == "loss"
        rows = loss(wanted.clock, wanted.frames) if many else PARTS[part](wanted.clock)
        found[part] = []
        for row in rows:
            found[part].append(row)
            print(part, json.dumps(row), flush=True)
    if wanted.json:
        write_json(wanted.json, found)


if __name__ == "__main__":
    if sys.argv[1:2] == ["send"]:
        send(int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
    elif sys.argv[1:2] == ["receive"]:
        receive(int(sys.argv[2]))
    elif sys.argv[1:2] == ["pour"]:
        pour(int(sys.argv[2]), float(sys.argv[3]))
    elif sys.argv[1:2] == ["drain"]:
        drain(int(sys.argv[2]))
    else:
        main()
