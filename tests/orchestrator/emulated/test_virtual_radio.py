# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Runs and sessions in virtual time whose frames ns-3's radio carries."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from console import TESTBED
from small_scenario import TREE

pytestmark = [pytest.mark.guest, pytest.mark.timeout(1200)]
LTE = {"access": "lte", "uplink_bandwidth_hz": 5e6, "downlink_bandwidth_hz": 5e6}


def call(folder: Path, *words: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*TESTBED, *map(str, words)], cwd=folder, capture_output=True, text=True, timeout=1000
    )


def prepared(folder: Path, gain: Any, radio: dict[str, Any], **keys: Any) -> None:
    """A scenario of two UAVs with this radio, and a trace of these gains, [2, S]."""
    tree: dict[str, Any] = TREE | {
        "uavs": {"tx_power_w": [1, 0.4]},
        "radio": radio,
        "emulation": {"air": "ns3", "clock": "virtual"} | keys.pop("emulation", {}),
    }
    tree["workload"] = tree["workload"] | keys
    (folder / "s.yaml").write_text(yaml.safe_dump(tree))
    around_m = np.repeat([[[200.0, 0, 20]], [[0, 300.0, 20]]], gain.shape[1], axis=1)
    np.savez(folder / "t.npz", gain=gain, slot_s=0.1, position=around_m)


def constant(*gains: float, slots: int = 400) -> Any:
    return np.repeat(np.array(gains)[:, None], slots, axis=1)


@pytest.mark.parametrize(
    "names", [["one"], pytest.param(["one", "two"], marks=pytest.mark.full)], ids=len
)
def test_a_run_over_lte_is_valid_explained_and_repeats_to_the_byte(
    tmp_path: Path, names: list[str]
) -> None:
    # Six iterations, since waits for single grants are not predicted.
    asked = {"calibrate": True}
    prepared(tmp_path, constant(1e-10, 3e-11), LTE, emulation=asked, local_iterations=6)
    for name in names:
        words = ("--trace", "t.npz", "--rounds", 1, "--out", name, "--json", f"{name}.json")
        done = call(tmp_path, "run", "s.yaml", *words)
        assert done.returncode == 0, done.stderr
        assert "valid: every check is within its limit" in done.stdout
    one, two = tmp_path / names[0], tmp_path / names[-1]
    for file in ("radio.bin", *(table.name for table in one.glob("*.parquet"))):
        assert (one / file).read_bytes() == (two / file).read_bytes(), file
    assert Path(f"{one}.json").read_bytes() == Path(f"{two}.json").read_bytes()

    found = json.loads((tmp_path / "one.json").read_text())
    (predicted,), (measured,) = found["predicted_wire"], found["measured"]
    assert measured["latency_s"] == pytest.approx(predicted["latency_s"], rel=0.02)
    budget = pd.read_parquet(one / "budget.parquet")
    assert {"grant", "harq", "radio"} <= set(budget["part"])
    difference_s = measured["latency_s"] - found["predicted"][0]["latency_s"]
    assert budget["seconds"].sum() == pytest.approx(difference_s, abs=1e-9)
    checks = {
        check["check"]: check
        for check in json.loads((one / "manifest.json").read_text())["validity"]
    }
    assert checks["unaccounted_packets"]["value"] == 0
    assert checks["radio_lateness_s"]["value"] < 1e-4
    assert checks["calibration_error"]["value"] < 0.005
    grants = pd.read_parquet(one / "grants.parquet")
    assert set(grants["client"]) == {1, 2}
    accounts = pd.read_parquet(one / "accounts.parquet")
    in_round = accounts[(accounts["round"] == 0) & (accounts["kind"] != "HELLO")]
    carried = in_round.groupby("direction")["payload_bytes"].sum()
    granted = grants.groupby("direction")["granted_bytes"].sum()
    assert (granted > carried).all()
    assert (granted < 1.3 * carried).all()


ECHO = """
import socket, threading
def echo(kind):
    with socket.socket(socket.AF_INET6, kind) as here:
        here.bind(("", 7))
        if kind == socket.SOCK_DGRAM:
            for _ in range(3):
                here.sendto(*here.recvfrom(2000))
            return
        here.listen()
        there, _ = here.accept()
        size = 0
        while data := there.recv(1 << 16):
            size += len(data)
        there.sendall(b"%d" % size)
kinds = socket.SOCK_DGRAM, socket.SOCK_STREAM
threads = [threading.Thread(target=echo, args=[kind]) for kind in kinds]
for each in threads: each.start()
for each in threads: each.join()
"""
ASK = """
import socket, sys, time
time.sleep(0.3)
with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as here:
    here.settimeout(2)
    for number in range(3):
        here.sendto(b"%d" % number + bytes(1200), ("ip6-bs", 7))
        print("echo", here.recvfrom(2000)[0][:1].decode(), flush=True)
with socket.create_connection(("bs", 7)) as here:
    here.sendall(bytes(400_000))
    here.shutdown(socket.SHUT_WR)
    print("taken", here.recv(99).decode(), flush=True)
"""
FLOOD = """
import socket, time
here = socket.socket(type=socket.SOCK_DGRAM)
end = time.monotonic() + 5
while time.monotonic() < end:
    here.sendto(bytes(1400), ("bs", 9))
    time.sleep(0.5e-3)  # A tap device never lets a sender wait.
"""


def session(folder: Path, **programs: str) -> tuple[str, Any, dict[str, str]]:
    """What a session says, its table, and the logs of its nodes."""
    given = [f"--node={node}={program}" for node, program in programs.items()]
    done = call(
        folder, "up", "s.yaml", "--trace", "t.npz", "--out", "out", "--seconds", "7", *given
    )
    assert done.returncode == 0, done.stdout + done.stderr
    logs = {node: (folder / f"out/logs/{node}.log").read_text() for node in programs}
    return done.stdout, pd.read_parquet(folder / "out/session.parquet"), logs


def test_a_session_over_lte_carries_any_packets_and_a_uav_flies_away(tmp_path: Path) -> None:
    away = np.concatenate([np.full(10, -100.0), np.linspace(-100, -150, 30), np.full(40, -150.0)])
    gain = np.stack([np.full(80, 1e-10), 10 ** (away / 10)])
    prepared(tmp_path, gain, LTE, emulation={"calibrate": False})
    for name, text in (("echo", ECHO), ("ask", ASK), ("flood", FLOOD)):
        (tmp_path / f"{name}.py").write_text(text)
    python = f"{sys.executable} {tmp_path}"
    pings = "ping -n -c 3 -i 0.2 bs; ping -n -6 -c 3 -i 0.2 ip6-bs"
    said, table, logs = session(
        tmp_path,
        bs=f"{python}/echo.py",
        uav1=f"sh -c '{pings}'; {python}/ask.py",
        uav2=f"{python}/flood.py",
    )
    assert "valid: every check is within its limit" in said
    assert logs["uav1"].count("3 received") == 2
    assert re.findall("echo (.)", logs["uav1"]) == ["0", "1", "2"]
    assert "taken 400000" in logs["uav1"]
    up = table[table.direction == "up"].pivot(
        index="slot", columns="client", values="carried_bytes"
    )
    mbps = up[2] * 80 / 1e6
    assert mbps[2:9].mean() > 8
    assert mbps[2:9].mean() > 2 * mbps[25:28].mean() > 0.1
    assert mbps[42:49].sum() == 0
    assert not list(tmp_path.glob("out/session.sock"))


def test_a_session_over_wifi_carries_pings(tmp_path: Path) -> None:
    prepared(tmp_path, constant(1e-9, 3e-10), {"access": "wifi"}, emulation={"calibrate": False})
    # Programs begin some tenths of a second before the first slot of the table.
    ping = "sleep 1 && ping -n -c 3 -i 0.2 bs && ping -n -6 -c 3 -i 0.2 ip6-bs"
    said, table, logs = session(tmp_path, uav1=f"sh -c '{ping}'", uav2=f"sh -c '{ping}'")
    assert "valid: every check is within its limit" in said
    for text in logs.values():
        assert text.count("3 received") == 2
    sent = table.groupby(["direction", "client"])["carried_bytes"].sum()
    assert (sent == 3 * (84 + 104)).all(), sent
