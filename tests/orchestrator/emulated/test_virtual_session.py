# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Sessions in virtual time: links carry what they should, however busy the machine is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from console import TESTBED
from small_scenario import TREE

import orchestrator as tb
from testbed.network.pcap import frames
from testbed.system.files import sha256_of

FLOOD = """
import socket, sys, time
s = socket.socket(type=socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 30_000)  # Sending waits for the link.
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end: s.sendto(bytes(1400), (sys.argv[1], 9))
"""


@pytest.mark.guest
@pytest.mark.timeout(1200)
def test_links_that_are_kept_busy_carry_their_rates(tmp_path: Path) -> None:
    # Downlinks that alone carry 12, 48 and 24 Mb/s in 4 MHz share the cell: the first two, and then
    # the second alone.
    noise_w = 4 * 1e-3 * 10 ** (-114 / 10)
    gains = [(2**efficiency - 1) * noise_w / 40 for efficiency in (3, 12, 6)]
    np.savez(tmp_path / "t.npz", gain=np.repeat(np.array(gains)[:, None], 400, axis=1), slot_s=0.1)
    tree = TREE | {"emulation": {"clock": "virtual", "calibrate": True}, "nodes": {}}
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(tree))
    (tmp_path / "flood.py").write_text(FLOOD)
    flood = f"{sys.executable} {tmp_path}/flood.py"
    words = ["up", "s.yaml", "--trace", "t.npz", "--seconds", "4", "--capture", "--out", "out"]
    words += ["--downlink", "shared", "--node", f"uav2={flood} bs 60"]
    words += ["--node", f"bs={flood} uav1 1.5 & {flood} uav2 60 & wait"]
    done = subprocess.run([*TESTBED, *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr  # The floods need not end by themselves.
    assert "uav2: still running" in done.stdout
    assert "valid: every check is within its limit" in done.stdout
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert (manifest["clock"], manifest["captured"]["missed_packets"]) == ("virtual", 0)
    checks = {check["check"]: check["value"] for check in manifest["validity"]}
    assert checks["calibration_error"] < 0.002
    assert not (tmp_path / "out/session.sock").exists()
    table = pd.read_parquet(tmp_path / "out/session.parquet")
    busy = table[(table.client == 2) & (table.direction == "up") & table.slot.between(5, 39)]
    assert (tmp_path / "out/pcap/uav2.pcap").stat().st_size > busy.carried_bytes.sum()
    share = busy.carried_bytes.sum() / busy.offered_bytes.sum()
    # A frame more or less at either end.
    assert share == pytest.approx(1, abs=2 * 1442 / busy.offered_bytes.sum())

    down = table[table.direction == "down"]
    assert down.groupby("client").rate_bps.max().round(-3).tolist() == [12e6, 48e6, 24e6]
    airtime = (down.carried_bytes / down.offered_bytes).to_numpy().reshape(-1, 3)
    first = int(np.argmax((airtime[:, :2] > 0.1).all(axis=1))) + 2
    both = airtime[first : first + 8].mean(axis=0)
    assert both[0] == pytest.approx(both[1], rel=0.02)
    assert both.sum() == pytest.approx(1, abs=0.02)
    late = airtime[first + 16 : first + 22].mean(axis=0)
    assert late == pytest.approx([0, 1, 0], abs=0.02)


@pytest.mark.guest
@pytest.mark.timeout(1200)
def test_active_links_divide_an_lte_cell_in_both_directions(tmp_path: Path) -> None:
    """Two of three uplinks, and a downlink; one uplink ends after 1.5 s."""
    np.savez(tmp_path / "t.npz", gain=np.full((3, 400), 1e-10), slot_s=0.1)
    radio = {"access": "lte", "uplink_bandwidth_hz": 5e6, "downlink_bandwidth_hz": 5e6}
    emulation = {"clock": "virtual", "calibrate": True}
    tree = TREE | {"emulation": emulation, "radio": radio, "nodes": {}}
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(tree))
    (tmp_path / "flood.py").write_text(FLOOD)
    flood = f"{sys.executable} {tmp_path}/flood.py bs"
    words = ["up", "s.yaml", "--trace", "t.npz", "--seconds", "4", "--out", "out"]
    words += ["--node", f"uav1={flood} 1.5", "--node", f"uav2={flood} 60"]
    words += ["--node", f"bs={sys.executable} {tmp_path}/flood.py uav1 60"]
    refused = subprocess.run(
        [*TESTBED, *words, "--downlink", "dedicated"], cwd=tmp_path, capture_output=True, text=True
    )
    assert refused.returncode == 2
    line = "--downlink: must be 'shared' where the UAVs that send divide the band in a session"
    assert line in refused.stderr
    assert not (tmp_path / "out").exists()
    done = subprocess.run([*TESTBED, *words], cwd=tmp_path, capture_output=True, text=True)
    assert "valid: every check is within its limit" in done.stdout, done.stdout + done.stderr
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert manifest["downlink"] == "shared"
    checks = {check["check"]: check["value"] for check in manifest["validity"]}
    assert checks["calibration_error"] < 0.002
    assert checks["transfer_error"] < 0.01
    table = pd.read_parquet(tmp_path / "out/session.parquet")
    # 25 resource blocks carry 18.28 Mb/s; each of two uplinks has 12 of them.
    assert (table.rate_bps / 1e6).round(2).unique().tolist() == [18.28]
    carried = table.pivot_table("carried_bytes", "slot", ["direction", "client"]) * 80 / 1e6
    both = carried["up"].loc[1:10].mean()
    assert both.tolist() == pytest.approx([8.73, 8.73, 0.0], abs=0.05)
    assert carried["up"].loc[20:38].mean().tolist() == pytest.approx([0.0, 18.28, 0.0], abs=0.05)
    assert carried["down"].loc[5:38].mean().tolist() == pytest.approx([18.28, 0, 0], abs=0.05)


@pytest.mark.guest
@pytest.mark.timeout(1200)
def test_a_flow_that_its_window_limits_is_no_fault_of_the_link(tmp_path: Path) -> None:
    """128 kB in each 80 ms leave a link of 20 Mb/s idle for a third of the time; the second UAV
    has large windows, and its link is judged."""
    emulation = {"clock": "virtual", "calibrate": False}
    tree = TREE | {"emulation": emulation, "links": {"one_way_delay_s": 0.04}}
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(tree))
    rates = np.full((3, 100), 20e6)
    np.savez(tmp_path / "t.npz", uplink_bps=rates, downlink_bps=rates, slot_s=0.1)
    (tmp_path / "window.py").write_text("""
import socket, sys
def limited(s):
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        s.setsockopt(socket.SOL_SOCKET, option, 1 << 17)
port = int(sys.argv[1])
s = socket.socket()
if port == 5001: limited(s)
if len(sys.argv) == 2:
    s.bind(("", port)); s.listen(); c, _ = s.accept()
    while c.recv(1 << 20): pass
else:
    s.connect(("bs", port))
    while True: s.sendall(bytes(1 << 20))
""")
    program = f"{sys.executable} {tmp_path}/window.py"
    words = ["up", "s.yaml", "--trace", "t.npz", "--seconds", "6", "--out", "out"]
    words += ["--node", f"bs={program} 5001 & {program} 5002 & wait"]
    words += [f"--node=uav{k}=sleep 0.5; exec {program} 500{k} send" for k in (1, 2)]
    done = subprocess.run([*TESTBED, *words], cwd=tmp_path, capture_output=True, text=True)
    assert "valid: every check is within its limit" in done.stdout, done.stdout + done.stderr
    table = pd.read_parquet(tmp_path / "out/session.parquet")
    table = table[(table.direction == "up") & table.slot.between(20, 59)]
    used = (table.carried_bytes / table.offered_bytes).groupby(table.client).mean()
    assert 0.4 < used[1] < 0.8
    assert used[2] == pytest.approx(1, abs=0.02)
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    (check,) = (c for c in manifest["validity"] if c["check"] == "transfer_error")
    slots, *_ = check["detail"].split()
    assert 35 <= int(slots) <= 60, "those of the second UAV"


@pytest.mark.guest
@pytest.mark.timeout(1200)
def test_a_session_may_begin_on_another_date(tmp_path: Path) -> None:
    emulation = {"clock": "virtual", "virtual_date": "2026-11-25", "calibrate": False}
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(TREE | {"emulation": emulation}))
    np.savez(tmp_path / "t.npz", gain=np.full((3, 40), 1e-10), slot_s=0.1)
    words = ["up", "s.yaml", "--trace", "t.npz", "--out", "out", "--node", "uav1=date -u +%F"]
    subprocess.run([*TESTBED, *words], cwd=tmp_path, check=True)
    assert (tmp_path / "out/logs/uav1.log").read_text() == "2026-11-25\n"


@pytest.mark.guest
@pytest.mark.timeout(1200)
def test_captured_sessions_repeat_to_the_byte_from_elsewhere(tmp_path: Path) -> None:
    ask = "import socket; socket.create_connection(('bs', 5000)).recv(10)"
    answer = (
        "import os, socket; s, _ = socket.create_server(('', 5000)).accept(); s.send(os.urandom(9))"
    )
    found = []
    for place in (tmp_path / "one", tmp_path / "a" / "longer" / "way"):
        place.mkdir(parents=True)
        (place / "s.yaml").write_text(
            yaml.safe_dump(TREE | {"emulation": {"clock": "virtual"}, "nodes": {}})
        )
        words = ["up", "s.yaml", "--seconds", "3", "--capture", "--out", "out"]
        words += ["--node", f'bs={sys.executable} -c "{answer}"']
        words += ["--node", f'uav1=sleep 0.3; {sys.executable} -c "{ask}"']
        done = subprocess.run([*TESTBED, *words], cwd=place, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        kept = ("session.parquet", "pcap/uav1.pcap", "pcap/uav2.pcap")
        found.append([sha256_of(place / "out" / name) for name in kept])
    assert found[0] == found[1]
    assert len(list(frames(place / "out/pcap/uav1.pcap"))) > 5


@pytest.mark.guest
@pytest.mark.timeout(1200)
def test_programs_see_neither_the_terminal_of_the_caller_nor_a_dilation(tmp_path: Path) -> None:
    look = "env | cut -d= -f1 | sort | tr '\\n' ' '; date +%Z; cat /proc/uptime"
    program = (
        "import socket, struct, time; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('', 0));"
        "s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack('ll', 0, 12_000));"
        "a = time.monotonic()\ntry: s.recv(1)\nexcept OSError: print(time.monotonic() - a)"
    )
    emulation = {"clock": "virtual", "dilation": 3, "calibrate": False}
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(TREE | {"emulation": emulation}))
    (tmp_path / "p.py").write_text(program)
    # As long as the rates that the injector gets at once.
    np.savez(tmp_path / "t.npz", gain=np.full((3, 600), 1e-10), slot_s=0.1)
    found = []
    for out, more in (("one", {"COLUMNS": "60"}), ("two", {"TZ": "Asia/Tokyo", "LINES": "9"})):
        words = ["up", "s.yaml", "--trace", "t.npz", "--out", out, "--overwrite", "--until", "uav1"]
        words += ["--node", f"uav1={look}; {sys.executable} p.py", "--node", "uav2=sleep 62"]
        words += ["--node", "uav3=kill -9 -1; kill -STOP -1; true"]
        done = subprocess.run(
            [*TESTBED, *words, "--until", "uav2"],
            cwd=tmp_path,
            env={**os.environ, **more},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 1, "the trace ends before the second program"
        assert "emulation.dilation: no effect" in done.stderr
        manifest = json.loads((tmp_path / out / "manifest.json").read_text())
        assert (manifest["dilation"], manifest["ended"], manifest["slots"]) == (1, "trace", 600)
        assert manifest["memory_bytes"] < 1 << 32
        early = "the commands of uav1, uav3 ended before slot 0: until then the links carry nothing"
        assert early in manifest["notes"]
        found.append((tmp_path / out / "logs/uav1.log").read_text().splitlines())
    assert found[0] == found[1]
    names, uptime, waited_s = found[0]
    assert not {"COLUMNS", "LINES", "TERM", "LC_ALL"} & set(names.split())
    assert names.endswith("UTC")
    assert uptime.startswith("1010.")
    assert 0.012 <= float(waited_s) < 0.0141, "ticks are 1 ms"


def test_python_does_not_pretend_to_enter_it(tmp_path: Path) -> None:
    scenario = tb.load("quickstart", {"emulation.clock": "virtual"})
    network = tb.Network(scenario, {"gain": np.full((3, 40), 1e-10), "slot_s": 0.1})
    with pytest.raises(tb.InputError, match=r"^emulation\.clock: 'virtual' is for"), network:
        pass
