# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The Flower example: its parts without Flower, and, where that may be installed, all of it."""

import io
import json
import re
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from PIL import Image

from orchestrator import api
from orchestrator.emulated.options import SessionOptions
from testbed.network.pcap import RECORD

ROOT = Path(__file__).resolve().parents[2]
FLOWER = ROOT / "examples" / "flower"
RELEASES = ("1.22", "1.41")
FILE_HEADER = 24


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(FLOWER)
    yield
    for name in ("compare", "prepare"):
        sys.modules.pop(name, None)


def test_scenario_and_script_are_sound() -> None:
    scenario = api.load(FLOWER / "scenario.yaml", {})
    assert scenario.nodes["bs"].env["SUPERNODES"] == str(scenario.uavs.count)
    subprocess.run(["sh", "-n", FLOWER / "node.sh"], check=True)
    script = (FLOWER / "node.sh").read_text()
    for setting in ("FLWR_TELEMETRY_ENABLED=0", "FLWR_DISABLE_UPDATE_CHECK=1", "HF_HUB_OFFLINE=1"):
        assert setting in script


@pytest.mark.parametrize("release", RELEASES)
def test_what_is_installed_is_pinned_with_hashes(release: str, example) -> None:
    from prepare import _pin

    lock = (FLOWER / f"flower-{release}.txt").read_text()
    assert _pin(lock, "flwr").startswith(f"flwr=={release}.")
    pins = re.split(r"\n(?=\S)", lock.strip())
    assert len(pins) > 50
    assert all("==" in pin and "--hash=sha256:" in pin for pin in pins)


def test_images_are_in_the_form_of_the_data_set_that_the_app_asks_for(
    tmp_path: Path, monkeypatch, example
) -> None:
    import prepare

    monkeypatch.setattr(prepare, "SAMPLES", {"train": 20})
    prepare.write_data(tmp_path / "cifar10")
    table = pq.read_table(tmp_path / "cifar10/train.parquet")
    about = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    assert (about["img"]["_type"], len(about["label"]["names"])) == ("Image", 10)
    assert sorted(set(table["label"].to_pylist())) == list(range(10))
    images = [Image.open(io.BytesIO(image["bytes"])) for image in table["img"].to_pylist()]
    assert {(image.size, image.mode) for image in images} == {((32, 32), "RGB")}
    assert len({image.tobytes() for image in images}) == 20


def frame(ports: tuple[int, int], source: str, sequence: int, ack: int, size: int) -> bytes:
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 52 + size, 0, 0, 64, 6, 0)
    ip += bytes(map(int, source.split("."))) + bytes(4)
    tcp = struct.pack("!HHIIBBHHH", *ports, sequence, ack, 8 << 4, 16, 500, 0, 0) + bytes(12)
    return bytes(12) + b"\x08\x00" + ip + tcp + bytes(size)


def test_a_transfer_is_what_the_rates_allow_and_named_pauses(tmp_path: Path, example) -> None:
    from compare import transfers

    rate_bps, data = 8e6, 1448
    link_s = 8 * (data + 66) / rate_bps
    begun_ns, now_s = 1_700_000_000 * 10**9, 1.0
    file = bytes(FILE_HEADER)

    def add(time_s: float, frame_: bytes) -> None:
        nonlocal file
        sec, nsec = divmod(begun_ns + round(time_s * 1e9), 10**9)
        file += RECORD.pack(sec, nsec, len(frame_), len(frame_)) + frame_

    sequence = 100
    for number in range(100):
        now_s += link_s
        if number == 40:  # All had been acknowledged.
            add(now_s, frame((80, 5000), "10.255.0.1", 1, sequence, 0))
            now_s += 0.05
        if number == 60:  # Not all had been.
            add(now_s, frame((80, 5000), "10.255.0.1", 1, sequence - data, 0))
            now_s += 0.03
        if number == 80:  # Sent a second time.
            add(now_s, frame((5000, 80), "10.0.1.2", sequence - data, 1, data))
            now_s += link_s
        add(now_s, frame((5000, 80), "10.0.1.2", sequence, 1, data))
        sequence += data
    (tmp_path / "pcap").mkdir()
    (tmp_path / "pcap/uav1.pcap").write_bytes(file)
    (tmp_path / "manifest.json").write_text(json.dumps({"slot_0_unix_ns": begun_ns}))
    (tmp_path / "scenario.json").write_text(json.dumps({"slot_s": 0.1}))
    rows = [(slot, 1, way, rate_bps) for slot in range(40) for way in ("up", "down")]
    table = pd.DataFrame(rows, columns=["slot", "client", "direction", "rate_bps"])
    table.to_parquet(tmp_path / "session.parquet")
    (row,) = transfers(tmp_path).to_dict("records")
    assert (row["client"], row["direction"], row["bytes"]) == (1, "up", 101 * (data + 66))
    assert row["took_s"] == pytest.approx(100 * link_s + 0.08, abs=1e-6)
    assert row["allowed_s"] == pytest.approx(99 * link_s, abs=1e-6)
    assert row["program_s"] == pytest.approx(0.05, abs=1e-6)
    assert row["window_s"] == pytest.approx(0.03, abs=1e-6)
    assert row["resent_s"] == pytest.approx(link_s, abs=1e-6)
    assert row["shared_s"] == pytest.approx(0, abs=1e-6)


APP = """
class ClientApp:
    def __call__(self, message, context):
        import torch
        return torch.rand(1).item()
"""
ASK = """
from types import SimpleNamespace as N
from flwr.clientapp.client_app import ClientApp
for part, round_ in ((0, "1"), (1, "1"), (0, "2"), (0, "1")):
    about = N(metadata=N(group_id=round_, message_type="train"))
    print(ClientApp()(about, N(node_config={"partition-id": part})))
"""


def test_every_task_has_a_seed_of_its_own_whichever_process_it_runs_in(tmp_path: Path) -> None:
    package = tmp_path / "flwr" / "clientapp"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    (package / "client_app.py").write_text(APP)

    def drawn(seed: int) -> list[str]:
        env = {"PYTHONPATH": f"{FLOWER / 'seeded'}:{tmp_path}", "FLOWER_SEED": str(seed)}
        env["PYTHONDONTWRITEBYTECODE"] = "1"
        done = subprocess.run([sys.executable, "-c", ASK], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    first = drawn(1)
    assert first[0] == first[3]
    assert len(set(first)) == 3
    assert drawn(1) == first
    assert not set(drawn(2)) & set(first)


def played(release: str, role: str, out: Path, rounds: int) -> None:
    tree = {"FLOWER": f"build/flower-{release}", "FLOWER_SEED": 1, "SUPERNODES": 3}
    nodes = {"nodes.bs.env": tree | {"ROUNDS": rounds}, "nodes.uav*.env": tree}
    commands = {"bs": f"exec sh {FLOWER}/node.sh {role}"}
    if role == "simulation":
        commands["uav*"] = "true"
    trace = {"gain": np.full((3, 6000), 1e-10), "slot_s": 0.1}
    done = api.play_session(
        api.load(FLOWER / "scenario.yaml", nodes),
        trace,
        out,
        commands,
        SessionOptions(seconds=580.0, capture=True),
        ["bs"],
    )
    assert done.succeeded, (out / "logs/bs.log").read_text()[-4000:]


@pytest.mark.full
@pytest.mark.alone
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("release", RELEASES)
def test_a_deployment_comes_to_what_flowers_simulation_does(
    release: str, tmp_path: Path, monkeypatch, example
) -> None:
    from compare import accuracy, transfers
    from prepare import prepare

    monkeypatch.chdir(ROOT)
    prepare(release, ROOT / f"build/flower-{release}")
    for role in ("superlink", "simulation"):
        played(release, role, tmp_path / role, rounds=3)
    rounds = accuracy(tmp_path / "superlink")
    assert len(rounds) == 3
    assert rounds == accuracy(tmp_path / "simulation")
    assert rounds[-1] > rounds[0]
    sent = transfers(tmp_path / "superlink")
    # A round: the model to each of three for training, back, and out again for evaluation.
    assert len(sent[sent.direction == "up"]) >= 9
    assert (sent.took_s > 0.98 * sent.allowed_s).all()
    assert (sent.shared_s.abs() < 0.1).all()
