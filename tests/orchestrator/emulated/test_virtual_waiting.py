# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Sessions in virtual time whose programs wait without sleeping: it takes time, and no other
program is late for it."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml
from console import TESTBED
from small_scenario import TREE

from orchestrator.emulated.session_notes import endless_notes
from testbed.system import inside

SCENARIO = TREE | {"emulation": {"clock": "virtual", "calibrate": False}, "nodes": {}}
SPINS = """
import mmap, os, select, socket, sys, threading, time
kind, done = sys.argv[1], mmap.mmap(-1, 4096)
ours, theirs = socket.socketpair(type=socket.SOCK_DGRAM)
ours.setblocking(False)

def later():
    time.sleep(0.1)
    done[0] = 1
    theirs.send(b"now")

def received():
    try:
        return ours.recv(9)
    except BlockingIOError:
        return b""

poll, epoll = select.poll(), select.epoll()
poll.register(ours, select.POLLIN)
epoll.register(ours, select.EPOLLIN)
found = {
    "memory": lambda: done[0],
    "thread": lambda: done[0],
    "yield": lambda: os.sched_yield() or done[0],
    "sleep": lambda: time.sleep(0) or done[0],
    "write": lambda: os.write(2, b".") * done[0],
    "select": lambda: select.select([ours], [], [], 0)[0],
    "poll": lambda: poll.poll(0),
    "epoll": lambda: epoll.poll(0),
    "recv": received,
}[kind]
began, calls = time.monotonic(), 0
if kind == "thread":
    threading.Thread(target=later).start()
elif not os.fork():
    later()
    os._exit(0)
while not found():
    calls += 1
print(kind, time.monotonic() - began, calls, flush=True)
"""
PING = """
import socket, sys, time
s = socket.socket(type=socket.SOCK_DGRAM)
s.connect(("bs", 9))
for beside in (0, 1):
    time.sleep(0.35)
    taken = []
    for _ in range(8):
        time.sleep(0.01)
        began = time.monotonic_ns()
        s.send(b"x")
        s.recv(9)
        taken.append(time.monotonic_ns() - began)
    print(min(taken), max(taken), flush=True)
"""
ECHO = """
import socket
s = socket.socket(type=socket.SOCK_DGRAM)
s.bind(("", 9))
while True: s.sendto(*s.recvfrom(9))
"""
CLOCK = """
import sys, time
time.sleep(0.78 - float(sys.argv[1]))
end = time.monotonic() + 0.15
while time.monotonic() < end: pass
print("spun", flush=True)
"""


def session(folder: Path, uavs: int, seconds: int, **nodes: str) -> "tuple[str, dict[str, str]]":
    """What a session of these programs prints, and each node's log."""
    tree = SCENARIO | {"uavs": {"count": uavs, "tx_power_w": 1.0}}
    (folder / "s.yaml").write_text(yaml.safe_dump(tree))
    rates = np.full((uavs, 100), 20e6)
    np.savez(folder / "t.npz", uplink_bps=rates, downlink_bps=rates, slot_s=0.1)
    words = ["up", "s.yaml", "--trace", "t.npz", "--seconds", str(seconds), "--out", "out"]
    for node, command in nodes.items():
        words += ["--node", f"{node}={command}"]
    done = subprocess.run([*TESTBED, *words], cwd=folder, capture_output=True, text=True)
    assert (folder / "out/manifest.json").exists(), done.stderr
    logs = {node: (folder / f"out/logs/{node}.log").read_text() for node in nodes}
    return done.stdout + done.stderr, logs


@pytest.mark.guest
@pytest.mark.timeout(1200)
def test_a_program_that_waits_without_sleeping_finds_what_it_waits_for(tmp_path: Path) -> None:
    (tmp_path / "spins.py").write_text(SPINS)
    kinds = ("memory", "thread", "yield", "sleep", "write", "select", "poll", "epoll", "recv")
    nodes = {
        f"uav{n}": f"exec {sys.executable} {tmp_path}/spins.py {kind}"
        for n, kind in enumerate(kinds, 1)
    }
    said, logs = session(tmp_path, len(kinds), 3, **nodes, bs="while :; do :; done")
    assert "bs: still running after 3." in said
    # How many of its frames come at 0.1 s is not judged here.
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert manifest["status"] == "complete"
    for node, kind in zip(nodes, kinds, strict=True):
        name, after, calls = logs[node].lstrip(".").split()
        assert name == kind
        late = {"memory": 0.011, "thread": 0.02}.get(kind, 0.0003)
        assert 0.1 <= float(after) < 0.1 + late, kind
        if kind not in ("memory", "thread", "write"):
            assert int(calls) < 3000, kind
    endless = [note for note in manifest["notes"] if "computed on" in note]
    assert [note.partition(":")[0] for note in sorted(endless)] == ["bs", "uav1", "uav2"]
    assert all(f"note: {note}" in said for note in endless)


@pytest.mark.guest
@pytest.mark.timeout(1200)
def test_who_reads_the_clock_until_it_is_time_delays_nobody(tmp_path: Path) -> None:
    for name, program in {"ping": PING, "echo": ECHO, "clock": CLOCK}.items():
        (tmp_path / f"{name}.py").write_text(program)
    python = f"exec {sys.executable} {tmp_path}"
    said, logs = session(
        tmp_path,
        3,
        2,
        bs=f"{python}/echo.py",
        uav1=f"{python}/ping.py",
        uav2=f"{python}/clock.py 0",
        uav3=f"{python}/clock.py 0.02",
    )
    assert "valid: every check is within its limit" in said
    assert logs["uav2"] == logs["uav3"] == "spun\n"
    alone, beside = ([int(ns) for ns in line.split()] for line in logs["uav1"].splitlines())
    assert beside[0] >= alone[0]
    assert beside[1] < alone[1] + 5000


@pytest.mark.guest
@pytest.mark.timeout(600)
def test_a_session_ends_at_once_though_its_programs_compute_without_end(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(SCENARIO))
    words = ["up", "s.yaml", "--seconds", "10000", "--out", "out"]
    words += ["--node", "uav*=while :; do :; done"]
    with subprocess.Popen([*TESTBED, *words], cwd=tmp_path, stderr=subprocess.PIPE) as run:
        assert run.stderr is not None
        for line in run.stderr:
            if b"the network is up" in line:
                break
        time.sleep(2)
        run.send_signal(signal.SIGINT)
        told = time.monotonic()
        assert run.wait(100) == 130, run.stderr.read()
    assert time.monotonic() - told < 40  # A guest that does not end is given up after 60 s.
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert (manifest["status"], manifest["ended"]) == ("complete", "interrupted")


def test_a_program_that_computes_without_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert endless_notes() == []
    monkeypatch.setattr(inside, "endless", lambda: ["uav2 my program", "bs sh"])
    first, second = endless_notes()
    assert first.startswith("uav2: my program computed on without a system call, or without sleep")
    assert second.startswith("bs: sh computed on")
