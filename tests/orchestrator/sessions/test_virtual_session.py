# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Sessions in virtual time: links carry what they should, however busy the machine is."""

import json
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

FLOOD = """
import socket
s = socket.socket(type=socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 30_000)
while True: s.sendto(bytes(1400), ("bs", 9))
"""


@pytest.mark.guest
@pytest.mark.timeout(1200)
def test_a_link_that_is_kept_busy_carries_its_rate(tmp_path: Path) -> None:
    tree = TREE | {"emulation": {"clock": "virtual"}, "nodes": {}}
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(tree))
    np.savez(tmp_path / "t.npz", gain=np.full((3, 400), 1e-10), slot_s=0.1)
    (tmp_path / "flood.py").write_text(FLOOD)
    words = ["up", "s.yaml", "--trace", "t.npz", "--seconds", "2", "--capture", "--out", "out"]
    node = f"uav2={sys.executable} {tmp_path}/flood.py"
    done = subprocess.run(
        [*TESTBED, *words, "--node", node], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stderr  # The flood does not end by itself.
    assert "uav2: still running" in done.stdout
    assert "valid: every check is within its limit" in done.stdout
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert (manifest["clock"], manifest["captured"]["missed_packets"]) == ("virtual", 0)
    checks = {check["check"]: check["value"] for check in manifest["validity"]}
    assert checks["calibration_error"] < 0.002
    assert not (tmp_path / "out/session.sock").exists()
    table = pd.read_parquet(tmp_path / "out/session.parquet")
    busy = table[(table.client == 2) & (table.direction == "up") & table.slot.between(5, 19)]
    assert (tmp_path / "out/pcap/uav2.pcap").stat().st_size > busy.carried_bytes.sum()
    share = busy.carried_bytes.sum() / busy.offered_bytes.sum()
    # A frame more or less at either end.
    assert share == pytest.approx(1, abs=2 * 1442 / busy.offered_bytes.sum())


def test_python_does_not_pretend_to_enter_it(tmp_path: Path) -> None:
    scenario = tb.load("quickstart", {"emulation.clock": "virtual"})
    network = tb.Network(scenario, {"gain": np.full((3, 40), 1e-10), "slot_s": 0.1})
    with pytest.raises(tb.InputError, match=r"^emulation\.clock: 'virtual' is for"), network:
        pass
