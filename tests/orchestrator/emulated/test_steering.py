# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Programs in nodes that fly UAVs: their files, their sessions, and the replay of a flight."""

import json
import math
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from console import TESTBED

import orchestrator as tb
from ns3_scenarios.trace import ChannelTrace
from orchestrator.emulated.steering import Steering
from orchestrator.scenario.channel import Channel, ns3_source, region, steered_flight
from orchestrator.scenario.combinations import check
from orchestrator.scenario.loading import validate
from testbed import pilot
from testbed.core.errors import InputError
from testbed.core.node import BS, uav

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "steered"
START_M = [[1000.0, 0.0, 20.0], [0.0, 500.0, 20.0]]
TREE: dict[str, Any] = {
    "name": "steered",
    "uavs": {"count": 2, "tx_power_w": 0.1},
    "mobility": {"model": "steered", "start_m": START_M},
    "radio": {"uplink_bandwidth_hz": 2e6, "downlink_bandwidth_hz": 2e6},
    "emulation": {"clock": "virtual"},
}


class Files:
    """The files of two UAVs next to a session that is played by hand."""

    def __init__(self, folder: Path):
        homes = [folder / "uav1", folder / "uav2"]
        for home in homes:
            home.mkdir()
        self.scenario = validate(TREE, "steered").resolved(1.0)
        flight = steered_flight(self.scenario)
        trace = ChannelTrace(np.full((2, 100), 1e-10), 0.1, np.zeros((2, 100, 3)))
        feed: Any = SimpleNamespace(
            channel=SimpleNamespace(flight=flight, now=trace),
            slot_s=0.1,
            slots=None,
            radio=SimpleNamespace(unit_snr=np.array([[1e11, 1e11], [1e12, 1e12]])),
            rates=lambda first, end: (np.array([[4e6], [5e6]]), np.array([[6e6], [7e6]])),
        )
        self.steering = Steering(self.scenario, feed, homes)
        self.flight, self.slot, self.homes = flight, 0, homes
        self.flight.positions(0, 1, 0.1)
        self.state = Path(self.steering.environment(uav(1))[pilot.STATE])
        self.link = Path(self.steering.environment(uav(1))[pilot.LINK])

    def next(self) -> int:
        """The status of the first UAV in the next slot."""
        self.slot += 1
        self.flight.positions(self.slot, 1, 0.1)
        self.steering.follow(self.slot * 0.1)
        return self.flight.status[0]


RIGHT = struct.pack("<7d", 0.0, *START_M[0], 0.0, 0.0, 0.0)


def replaced(path: Path) -> None:
    path.with_name("new").write_bytes(RIGHT)
    path.with_name("new").replace(path)


def as_link(path: Path) -> None:
    path.with_name("other").write_bytes(RIGHT)
    path.unlink()
    path.symlink_to(path.with_name("other"))


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def unreadable(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    ("change", "status", "noted"),
    [
        (lambda path: path.write_bytes(RIGHT), pilot.FLOWN, False),
        (replaced, pilot.FLOWN, False),
        (lambda path: path.write_bytes(b""), pilot.NO_RECORD, False),
        (Path.unlink, pilot.NO_RECORD, False),
        (lambda path: path.write_bytes(RIGHT[:28]), pilot.NO_RECORD, True),
        (lambda path: path.write_bytes(RIGHT + b"\0"), pilot.NO_RECORD, True),
        (lambda path: path.write_bytes(2 * RIGHT), pilot.NO_RECORD, True),
        (huge, pilot.NO_RECORD, True),
        (as_link, pilot.NO_RECORD, True),
        (unreadable, pilot.NO_RECORD, True),
        (as_folder, pilot.NO_RECORD, True),
        (as_pipe, pilot.NO_RECORD, True),
    ],
)
def test_a_file_is_a_record_or_the_uav_keeps_its_state(
    tmp_path: Path, change: Callable[[Path], Any], status: int, noted: bool
) -> None:
    files = Files(tmp_path)
    change(files.state)
    assert files.next() == status
    lines = files.steering.notes
    assert (
        any("uav1: the file has no record of 56 bytes (1 slot" in line for line in lines) == noted
    )
    assert any(line.startswith("no program flew") and "uav2" in line for line in lines)
    about = files.steering.to_json()[0]
    assert about["flown"] == (status == pilot.FLOWN)
    # A file that was right before is missed.
    if not noted and status != pilot.FLOWN:
        files.state.write_bytes(RIGHT)
        assert files.next() == pilot.FLOWN
        change(files.state)
        assert files.next() == pilot.NO_RECORD
        assert files.steering.to_json()[0]["refused"] == [
            {"status": pilot.NO_RECORD, "slots": 1, "first_slot": 3}
        ]
    files.steering.close()
    assert not files.link.exists()


def test_a_program_reads_what_a_modem_says_of_the_last_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Files(tmp_path)
    assert dict(files.steering.environment(BS)) == {}
    monkeypatch.setenv("TESTBED_EPOCH_NS", "0")
    for name, value in files.steering.environment(uav(1)).items():
        monkeypatch.setenv(name, value)
    own = pilot.Pilot()
    assert own.now() > 0
    first = own.link()
    assert all(map(math.isnan, first[:6]))
    assert first.status == pilot.NO_RECORD
    own.publish(START_M[0], (1.0, 2.0, 3.0), 0.05)
    assert files.state.read_bytes() == struct.pack("<7d", 0.05, *START_M[0], 1.0, 2.0, 3.0)
    assert files.next() == pilot.FLOWN
    assert own.link() == pytest.approx((0.0, 4e6, 6e6, 10.0, 20.0, 0, pilot.FLOWN))
    files.next()
    assert own.link().time_s == pytest.approx(0.1)
    files.link.unlink()  # the session writes on, and does not mind
    files.next()


def test_a_c_program_has_the_same_records(tmp_path: Path) -> None:
    files = Files(tmp_path)
    source = f"""
    #include <stdio.h>
    #include "{Path(pilot.__file__).with_name("pilot.h")}"
    int main(void) {{
        struct testbed_state state = {{0.05, 1000, 0, 20, 1, 2, 3}};
        struct testbed_link link;
        if (testbed_now() <= 0 || testbed_read_link(&link) || testbed_publish(&state)) return 1;
        printf("%g", link.status);
        return 0;
    }}"""
    (tmp_path / "p.c").write_text(source)
    subprocess.run(
        ["cc", "-Wall", "-Wextra", "-Werror", "-o", "p", "p.c"], cwd=tmp_path, check=True
    )
    env = dict(files.steering.environment(uav(1))) | {"TESTBED_EPOCH_NS": "0"}
    done = subprocess.run([tmp_path / "p"], env=env, check=True, capture_output=True)
    assert done.stdout == b"1"
    assert files.next() == pilot.FLOWN


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"start_m": [[0, 0, 20]]}, "start_m: must have one entry per UAV: 2"),
        ({"start_m": [[0, 0, 20], [0, 0, math.nan]]}, "start_m"),
        ({"speed_m_s": 0}, "mobility.limits.speed_m_s"),
        ({"climb_m_s": -1}, "mobility.limits.climb_m_s"),
        ({"distance_m": [200, 100]}, "distance_m: the first must be below the second"),
        ({"distance_m": [0, 1e9]}, "mobility.limits.distance_m"),
        ({"height_m": [5, 5]}, "height_m: the first must be below the second"),
    ],
)
def test_limits_that_cannot_be_are_refused(keys: Any, says: str) -> None:
    own = keys if "start_m" in keys else {"limits": keys}
    tree = TREE | {"mobility": {"model": "steered"} | own}
    with pytest.raises(InputError, match=says):
        validate(tree, "steered")


def test_keys_of_another_model_and_impossible_starts_are_refused() -> None:
    for mobility in ({"limits": {"speed_m_s": 9}}, {"model": "steered", "memory": 0.5}):
        with pytest.raises(InputError, match="belongs to"):
            validate(TREE | {"mobility": mobility}, "steered")
    real = TREE | {"emulation": {"dilation": 2}}
    with pytest.raises(InputError, match=r"emulation.dilation: must be 1 .*live in real time"):
        check(validate(real, "steered"), "up")
    low = {"model": "steered", "limits": {"height_m": [50, 60]}}
    with pytest.raises(InputError, match=r"uavs.rings_m: UAV 1 would start at .* outside"):
        steered_flight(validate(TREE | {"mobility": low}, "steered"))
    with pytest.raises(InputError, match="reacts to the programs of a session"):
        tb.predict(validate(TREE, "steered"))


def test_starts_without_a_key_lie_in_the_rings_and_depend_on_the_seed() -> None:
    tree = TREE | {"mobility": {"model": "steered"}, "uavs": {"count": 9, "tx_power_w": 0.1}}
    first, again, other = (
        steered_flight(validate(tree | {"seed": seed}, "steered")).start_m for seed in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert not np.allclose(first, other)
    rings = np.array(validate(tree, "steered").uavs.ring_m)
    far_m = np.hypot(*first[:, :2].T)
    assert ((rings[:, 0] <= far_m) & (far_m <= rings[:, 1])).all()


def test_links_are_calibrated_for_the_rates_of_the_region() -> None:
    made = region(validate(TREE, "steered"), 0.1)
    assert made.position_m is not None
    far_m = np.hypot(*np.moveaxis(made.position_m[..., :2], -1, 0))
    assert far_m[0, [0, -1]] == pytest.approx([1, 5000])


def test_a_steered_channel_is_asked_for_one_slot_after_the_other() -> None:
    with ns3_source(validate(TREE, "steered"), by_slot=True) as source:
        channel = Channel(source)
        assert channel.now.slots == 1
        flight = channel.flight
        for slot in range(1, 20):
            record = struct.pack("<7d", slot * 0.1, 1000 - slot, 0, 20, -10, 0, 0)
            flight.read = lambda k, record=record: record if k == 0 else None
            channel.trace(slot + 1)
        trace = channel.now
    assert trace.position_m is not None
    assert trace.position_m[0, :, 0] == pytest.approx(1000 - np.arange(20))
    assert trace.position_m[1].tolist() == [START_M[1]] * 20
    assert (np.diff(trace.values[0]) > 0).all()
    assert not np.ptp(trace.values[1])


FLY = """
import math, os, sys, time
from testbed.pilot import Pilot
pilot, (x, y, z) = Pilot(), (1000.0, 0.0, 20.0)
pilot.publish((x, y, z))
time.sleep(max(0, -pilot.now()))
for step in range(1, 1000):
    time.sleep(max(0, 0.05 * step - pilot.now()))
    t = 0.05 * step
    pilot.publish((x - 20 * t, y, z), (-20, 0, 0), t)
    print(*pilot.link(), flush=True)
"""
WRONG = """
import os, struct, time
state, epoch = os.environ["TESTBED_STATE"], int(os.environ["TESTBED_EPOCH_NS"]) / 1e9
now = lambda: time.monotonic() - epoch
def put(t, x, y, z, *v):
    file = os.open(state, os.O_WRONLY | os.O_CREAT)
    os.pwrite(file, struct.pack("<7d", t, x, y, z, *v), 0)
    os.close(file)
time.sleep(max(0, 0.15 - now()))
at = (0.0, 500.0, 20.0)
put(now(), *at, 0, 0, 0)
wrong = [
    lambda: put(now(), float("nan"), *at[1:], 0, 0, 0),
    lambda: put(now(), 5000.0, *at[1:], 0, 0, 0),
    lambda: put(now() + 9, *at, 0, 0, 0),
    lambda: put(now(), *at, 99, 0, 0),
    lambda: os.truncate(state, 28),
    lambda: (os.unlink(state), os.symlink("/etc/passwd", state)),
    lambda: os.unlink(state),
]
for k, do in enumerate(wrong):
    time.sleep(max(0, 0.25 + 0.1 * k - now()))
    do()
for k in range(10_000):
    time.sleep(max(0, 1.0 + k * 1e-4 - now()))
    put(1.0 + k * 1e-4, 0.0, 500.0 + k * 1e-3, 20.0, 0, 10.0, 0)
"""


def session(folder: Path, out: str, *words: str) -> dict[str, Any]:
    """Play a session of a scenario in the folder, and read its manifest."""
    done = subprocess.run(
        [*TESTBED, "up", "s.yaml", "--out", out, *words],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert "valid: every check is within its limit" in done.stdout, done.stdout + done.stderr
    made: dict[str, Any] = json.loads((folder / out / "manifest.json").read_text())
    return made | {"printed": done.stdout}


@pytest.mark.guest
@pytest.mark.timeout(1200)
def test_a_flight_by_programs_is_replayed_to_the_byte(tmp_path: Path) -> None:
    """One program flies well; the other is wrong in seven ways, and then publishes at 10 kHz."""
    (tmp_path / "fly.py").write_text(FLY)
    (tmp_path / "wrong.py").write_text(WRONG)
    nodes = {
        "bs": {"command": [sys.executable, "-c", "import time; time.sleep(9)"]},
        "uav1": {"command": [sys.executable, "fly.py"]},
        "uav2": {"command": [sys.executable, "wrong.py"]},
    }
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(TREE | {"nodes": nodes}))
    made = session(tmp_path, "a", "--seconds", "2")
    trace = np.load(tmp_path / "a/trace.npz")
    x_m, y_m = trace["position"][0, :20, 0], trace["position"][1, :20, 1]
    assert x_m == pytest.approx(1000 - 2 * np.arange(20), abs=1e-6)
    assert y_m[:11].tolist() == [500.0] * 11
    assert y_m[12:] == pytest.approx(500 + np.arange(2, 10), abs=0.02)
    assert not np.ptp(trace["position"][1, :, 0])
    assert made["steered"][0] == {"client": 1, "flown": True, "slots_behind": 0, "refused": []}
    wrong = {each["status"]: each["slots"] for each in made["steered"][1]["refused"]}
    assert wrong == {
        pilot.NO_RECORD: 4,
        pilot.NOT_NUMBERS: 1,
        pilot.WRONG_TIME: 1,
        pilot.TOO_FAR: 1,
        pilot.TOO_FAST: 1,
    }
    assert "note: uav2: a number is not finite (1 slot, at 0.3 s first: t 0.25" in made["printed"]
    table = pd.read_parquet(tmp_path / "a/session.parquet")
    assert (np.diff(table[(table.client == 1) & (table.direction == "up")].rate_bps) > 0).all()
    # The program is told the rates of the slot before.
    link = np.loadtxt(tmp_path / "a/logs/uav1.log")
    up = table[(table.client == 1) & (table.direction == "up")].rate_bps.to_numpy()
    told = link[(link[:, 0] >= 0) & (link[:, 0] < 1.85)]
    assert told[:, 1] == pytest.approx(up[np.round(told[:, 0] / 0.1).astype(int)])
    again = session(tmp_path, "b", "--seconds", "2", "--trace", "a/trace.npz")
    for name in ("session.parquet", "logs/uav1.log"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert again["steered"] == made["steered"]


@pytest.mark.guest
@pytest.mark.timeout(1200)
def test_a_steered_uav_hands_over_over_ns3(tmp_path: Path) -> None:
    """It flies from one cell to the other, 1.6 km apart, at 200 m/s."""
    flown = FLY.replace("1000.0, 0.0", "600.0, 0.0").replace("20 * t", "-200 * t")
    (tmp_path / "fly.py").write_text(flown.replace("(-20, 0, 0)", "(200, 0, 0)"))
    tree = TREE | {
        "uavs": {"count": 1, "tx_power_w": 0.1},
        "mobility": {"model": "steered", "start_m": [[600, 0, 20]], "limits": {"speed_m_s": 210}},
        "radio": {
            "access": "lte",
            "uplink_bandwidth_hz": 5e6,
            "downlink_bandwidth_hz": 5e6,
            "cells": [{"position_m": [1600, 0, 30]}],
        },
        "emulation": {"clock": "virtual", "air": "ns3"},
        "nodes": {"uav1": {"command": [sys.executable, "fly.py"]}},
    }
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(tree))
    session(tmp_path, "a", "--seconds", "3")
    changes = pd.read_parquet(tmp_path / "a/handovers.parquet")
    assert len(changes) == 1
    cell = np.loadtxt(tmp_path / "a/logs/uav1.log")[:, 5]
    assert (cell[1], cell[-1]) == (0, 1)
    trace = np.load(tmp_path / "a/trace.npz")
    assert trace["gain_cells"].shape[:2] == (1, 1)
    assert trace["position"][0, 20, 0] == pytest.approx(1000, abs=1)
