# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The examples of programs that fly UAVs: they fly, and say what the documentation promises."""

import json
import os
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from console import TESTBED
from processes import until

from testbed import pilot

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "steered"


def play(scenario: Path, out: Path, seconds: int) -> str:
    words = ["up", str(scenario), "--seconds", str(seconds), "--out", str(out)]
    done = subprocess.run([*TESTBED, *words], cwd=ROOT, capture_output=True, text=True)
    assert "valid: every check is within its limit" in done.stdout, done.stdout + done.stderr
    return done.stdout


@pytest.mark.guest
@pytest.mark.timeout(1200)
def test_a_uav_flies_over_lte_until_its_goodput_suffices(tmp_path: Path) -> None:
    """From 5000 m at 200 m/s: with 3 Mb/s it hovers after two seconds."""
    play(EXAMPLE / "lte.yaml", tmp_path / "out", 5)
    far_m, mbps = np.loadtxt(tmp_path / "out/logs/uav1.log")[:, 1:3].T
    assert far_m[0] == 5000
    assert (np.diff(far_m) <= 0).all()
    assert 4500 < far_m[-1] < 4900
    hovers = int(np.flatnonzero(np.diff(far_m) < 0)[-1]) + 1
    assert mbps[:hovers].max() < 3.0 < mbps[hovers:].min()
    flown_m = np.load(tmp_path / "out/trace.npz")["position"][0, :50, 0]
    assert flown_m[-1] == pytest.approx(far_m[-1], abs=0.01)
    table = pd.read_parquet(tmp_path / "out/session.parquet")
    rate_bps = table[table.direction == "up"].rate_bps.to_numpy()
    assert rate_bps[-1] > 1.2 * rate_bps[0]


@pytest.mark.full
@pytest.mark.guest
@pytest.mark.timeout(1200)
def test_jsbsim_flies_an_aircraft(tmp_path: Path) -> None:
    """At 90 knots to the west, 198 m high: 46 m/s, and 46 m per second on the trace."""
    pytest.importorskip("jsbsim")
    command = [sys.executable, str(EXAMPLE / "jsbsim_flight.py"), "1000", "0"]
    tree = {
        "name": "aircraft",
        "uavs": {"count": 1, "tx_power_w": 0.1},
        "mobility": {
            "model": "steered",
            "start_m": [[1000, 0, 198]],
            "limits": {"speed_m_s": 80},
        },
        "radio": {"uplink_bandwidth_hz": 1e6},
        "emulation": {"clock": "virtual"},
        "nodes": {"uav1": {"command": command}},
    }
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(tree))
    said = play(tmp_path / "s.yaml", tmp_path / "out", 4)
    assert "note: uav1" not in said
    position_m = np.load(tmp_path / "out/trace.npz")["position"][0, :40]
    speed_m_s = np.linalg.norm(np.diff(position_m[5:], axis=0), axis=1) / 0.1
    assert speed_m_s == pytest.approx(np.full(34, 46.3), rel=0.1)
    assert position_m[-1, 0] < 850
    made = json.loads((tmp_path / "out/manifest.json").read_text())
    assert made["steered"][0]["flown"]


def test_a_bridge_publishes_what_an_autopilot_reports(tmp_path: Path) -> None:
    mavutil = pytest.importorskip("pymavlink.mavutil")
    state, link = tmp_path / "state", tmp_path / "link"
    link.write_bytes(bytes(pilot.RECORD.size))
    now_ns = time.monotonic_ns()
    env = os.environ | {"TESTBED_STATE": str(state), "TESTBED_LINK": str(link)}
    env |= {"TESTBED_EPOCH_NS": str(now_ns), "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    bridge = [
        sys.executable,
        str(EXAMPLE / "mavlink.py"),
        "udpin:127.0.0.1:14559",
        "100",
        "50",
        "2",
    ]
    child = subprocess.Popen(bridge, env=env)
    autopilot = mavutil.mavlink_connection("udpout:127.0.0.1:14559", source_system=1)

    def reported() -> bool:
        autopilot.mav.heartbeat_send(2, 12, 0, 0, 0)
        autopilot.mav.local_position_ned_send(1000, 10, 20, -30, 1, 2, -3)
        time.sleep(0.02)
        found = struct.unpack("<7d", state.read_bytes()) if state.exists() else ()
        return found[1:] == (120, 60, 32, 2, 1, 3)

    try:
        until(reported)
        asked = autopilot.recv_match(type="COMMAND_LONG", blocking=True, timeout=20)
        assert (asked.command, asked.param1, asked.param2) == (511, 32, 50_000)
    finally:
        child.kill()
        child.wait()
