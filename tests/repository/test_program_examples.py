# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The examples of other people's programs on the network: they work as they are."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from console import TESTBED
from required import lacks

from orchestrator import api
from orchestrator.emulated.options import SessionOptions
from orchestrator.emulated.up import Outcome

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TRACE = {"gain": np.full((3, 400), 1e-10), "slot_s": 0.1}


def needs(*programs: str) -> None:
    """Skip where one is missing; in CI, fail."""
    search = os.environ["PATH"] + ":/usr/sbin"
    if missing := [p for p in programs if shutil.which(p, path=search) is None]:
        lacks(f"{', '.join(missing)}: not installed")


def command(name: str, node: str) -> str:
    """What an example's scenario has a node do."""
    scenario = yaml.safe_load((EXAMPLES / name / "scenario.yaml").read_text())
    return str(scenario["nodes"][node]["command"])


def play(name: str, out: Path, commands=None, **changes) -> Outcome:
    scenario = api.load(EXAMPLES / name / "scenario.yaml", changes)
    return api.play_session(scenario, TRACE, out, commands or {}, SessionOptions(seconds=38.0))


def logs(out: Path) -> dict[str, str]:
    return {log.stem: log.read_text() for log in (out / "logs").iterdir()}


def test_iperf3_carries_what_the_rates_allow(tmp_path, monkeypatch) -> None:
    needs("iperf3")
    # Servers may be late.
    late = {"bs": f"sleep 1.5\n{command('iperf3', 'bs')}"}
    done = play("iperf3", tmp_path / "out", late, **{"nodes.uav*.env.SECONDS_EACH": 2})
    assert done.succeeded, logs(tmp_path / "out")
    monkeypatch.syspath_prepend(EXAMPLES / "iperf3")
    from compare import compare

    table = compare(tmp_path / "out")
    assert (table.slots >= 10).all()
    # Exact on an idle machine; here, others may compute.
    assert (table.overall_percent.abs() < 10).all()
    assert table.of_carried_percent.between(95, 101).all()
    sys.modules.pop("compare")


@pytest.mark.parametrize("missing", ["bs", "uav*"])
def test_iperf3_ends_without_a_server_or_a_client(tmp_path, missing) -> None:
    needs("iperf3")
    changes = {"nodes.bs.env.PATIENCE_S": 2, "nodes.uav*.env.TRIES": 5}
    done = play("iperf3", tmp_path / "out", {missing: "true"}, **changes)
    assert (done.ended, done.succeeded) == ("commands", missing != "bs")


def test_every_uavs_message_reaches_the_broker(tmp_path, monkeypatch) -> None:
    needs("mosquitto", "mosquitto_pub", "mosquitto_sub")
    # As ordinary users of Debian have it.
    places = os.environ["PATH"].split(":")
    monkeypatch.setenv("PATH", ":".join(p for p in places if not p.endswith("/sbin")))
    done = play("mqtt", tmp_path / "out")
    assert done.succeeded, logs(tmp_path / "out")
    lines = sorted((tmp_path / "out/nodes/bs/received").read_text().splitlines())
    assert lines == [f"models/uav{k} 200000" for k in (1, 2, 3)]


def test_mqtt_ends_without_a_broker(tmp_path) -> None:
    needs("mosquitto_pub")
    changes = {"nodes.uav*.env.TRIES": 5}
    done = play("mqtt", tmp_path / "out", {"bs": "true"}, **changes)
    assert (done.ended, done.succeeded) == ("commands", False)
    assert logs(tmp_path / "out")["uav2"].endswith("no broker takes the message\n")


@pytest.mark.parametrize(
    ("mosquitto", "said"),
    [(None, "there is no program mosquitto here"), ("exit 1", "the broker has ended")],
)
def test_mqtts_base_station_says_that_it_has_no_broker(tmp_path, mosquitto, said) -> None:
    (programs := tmp_path / "bin").mkdir()
    for name in ("mosquitto_sub", "mosquitto_pub", "mosquitto"):
        text = mosquitto if name == "mosquitto" else "exit 1"
        if text is not None:
            (programs / name).write_text(f"#!/bin/sh\n{text}\n")
            (programs / name).chmod(0o755)
    (programs / "sleep").symlink_to("/bin/sleep")
    done = subprocess.run(
        ["/bin/sh", "-c", command("mqtt", "bs").replace("/usr/sbin", str(programs))],
        env={"PATH": str(programs), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert (done.returncode, done.stderr) == (1, f"{said}\n")


@pytest.mark.guest
@pytest.mark.timeout(600)
def test_a_uav_that_flies_away_from_its_lte_cell_uploads_ever_less(tmp_path) -> None:
    needs("iperf3")
    folder = EXAMPLES / "lte_flight"
    flight = [sys.executable, folder / "flight.py", tmp_path / "f.npz", "--speed", "160"]
    subprocess.run([*flight, "--seconds", "9"], check=True)
    words = ["up", folder / "scenario.yaml", "--trace", tmp_path / "f.npz"]
    words += ["--set", "nodes.uav1.env.UPLOAD_S=6", "--set", "emulation.calibrate=false"]
    done = subprocess.run(
        [*TESTBED, *words, "--out", tmp_path / "out"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "valid: every check is within its limit" in done.stdout
    log = (tmp_path / "out/logs/uav1.log").read_text()
    mbps = [float(found) for found in re.findall(r"sec .*? ([\d.]+) Mbits/sec +\d+ +\d", log)]
    assert len(mbps) == 3, log
    assert mbps[0] > 2 * mbps[1] > 3 * mbps[2] > 0
