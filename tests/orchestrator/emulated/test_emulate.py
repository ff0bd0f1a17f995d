# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The whole way: scenario, channel, links, nodes, timelines, error budget, run directory."""

import json
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pytest
import warm
from console import family, run_testbed, wait_until_gone
from processes import arguments, gone, until
from small_scenario import TEXT

from ns3_scenarios.trace import load_trace
from orchestrator.records.directory import part_of

SLOWLY = ("--set", "emulation.dilation=5")
"""What others hold up is then a small part of a round."""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(TEXT)
    return path


@dataclass(frozen=True)
class Played:
    """A run of two rounds by the real clock, what it said, and what its JSON file holds."""

    small: Path
    out: Path
    stdout: str
    found: dict[str, Any]


@pytest.fixture(scope="module")
def two_rounds(tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("two")
    small, out, result = folder / "small.yaml", folder / "runs" / "one", folder / "run.json"
    small.write_text(TEXT)
    words = ("--set", "paradigm=pipesfl", "--rounds", "2", "--out", out, "--json", result)
    done = run_testbed("run", small, *SLOWLY, *words)
    wait_until_gone()
    return Played(small, out, done.stdout, json.loads(result.read_text()))


def assert_as_predicted(run: dict[str, Any], paradigm: str) -> None:
    for predicted, measured in zip(run["predicted_wire"], run["measured"], strict=True):
        assert measured["paradigm"] == paradigm
        # Generous: these machines are shared.
        assert measured["latency_s"] == pytest.approx(predicted["latency_s"], rel=0.1)
        wanted = sorted((s["client"], s["iteration"], s["step"]) for s in predicted["steps"])
        seen = sorted((s["client"], s["iteration"], s["step"]) for s in measured["steps"])
        assert seen == wanted


def test_rounds_emulate_as_predicted(two_rounds: Played) -> None:
    """By the real clock, without gates and queues; `test_exact` has all paradigms."""
    assert_as_predicted(two_rounds.found, "pipesfl")


def test_with_gates_and_queues_they_do_so_too(small: Path, tmp_path: Path) -> None:
    result = tmp_path / "run.json"
    run_testbed("run", small, *SLOWLY, "--set", "paradigm=sfl-ps", "--json", result)
    assert_as_predicted(json.loads(result.read_text()), "sfl-ps")
    wait_until_gone()


def test_a_run_over_lte_keeps_resource_blocks(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "lte"
    cell = [f"radio.{way}link_bandwidth_hz=5e6" for way in ("up", "down")]
    words = [word for key in ("radio.access=lte", *cell) for word in ("--set", key)]
    done = run_testbed("run", small, *SLOWLY, *words, "--rounds", "2", "--out", out)
    assert "radio: LTE, 25 resource blocks, shared equally, 64QAM, 1 layer\n" in done.stdout
    table = pd.read_parquet(out / "resource_blocks.parquet")
    spans = pd.read_parquet(out / "measured.parquet")
    spans["seconds"] = spans["end_s"] - spans["start_s"]
    for direction, steps in (("up", ["CA", "CM"]), ("down", ["SM", "SG"])):
        own = spans[spans["step"].isin(steps)].groupby(["round", "client"])["seconds"].sum()
        active = table[table["direction"] == direction].groupby(["round", "client"])["active_s"]
        assert active.sum().to_numpy() == pytest.approx(own.to_numpy(), abs=1e-6)
    uplinks = table[table["direction"] == "up"].groupby("slot")["resource_blocks"].sum()
    assert 8 < uplinks.max() <= 25
    assert 'id="cell"' in (out / "report.html").read_text()
    wait_until_gone()


def test_run_directory_json_and_budget(two_rounds: Played) -> None:
    out, run = two_rounds.out, two_rounds.found
    assert "\r" not in two_rounds.stdout
    assert {"scenario", "predicted", "predicted_wire", "measured", "error_budget"} <= run.keys()
    first, second = run["measured"]
    assert second["start_s"] == pytest.approx(first["start_s"] + first["latency_s"], abs=1e-9)
    for budget in run["error_budget"]:
        total = budget["predicted_s"] + sum(budget["parts"].values())
        assert total == pytest.approx(budget["measured_s"], abs=1e-12)
    for measured in run["measured"]:
        spans = pd.DataFrame(measured["steps"])
        seconds = (
            (spans["end_s"] - spans["start_s"]).groupby([spans["client"], spans["step"]]).sum()
        )
        for client, power_w in ((1, 1.0), (2, 0.4), (3, 0.1)):
            of = seconds[client]
            energy_j = 16 * (of["CF"] + of["CB"]) + power_w * (of["CA"] + of["CM"])
            assert measured["energy_j"][client - 1] == pytest.approx(energy_j)
        worst = max(measured["energy_j"])
        assert measured["objective"] == pytest.approx(measured["latency_s"] + 4 * worst)
    payload = {s["step"]: s["bytes"] for s in first["steps"]}
    assert payload["CA"] == payload["SG"] == 200_000
    assert payload["SM"] == payload["CM"] == 80_000
    on_link = {s["step"]: s["bytes"] for s in run["predicted_wire"][0]["steps"]}
    assert on_link["CA"] > 200_000 * 1514 / 1448

    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["status"] == "complete"
    assert manifest["seed"] == 1
    assert load_trace(out / "trace.npz").uavs == 3
    frame = pd.read_parquet(out / "measured.parquet")
    assert len(frame) == 2 * len(first["steps"])
    calibration = pd.read_parquet(out / "calibration.parquet")
    assert calibration.groupby(["client", "direction", "level"]).size().tolist() == [1] * 3 * 2 * 3
    assert calibration["error"].abs().median() < 0.1
    assert {entry["level"] for entry in manifest["calibration"]} == {"lowest", "middle", "highest"}
    injector = pd.read_parquet(out / "injector.parquet")
    assert injector["slot"].tolist()[0] == 0
    assert (np.diff(injector["slot"]) <= 1).all()
    assert len(injector) >= 0.9 * sum(m["latency_s"] for m in run["measured"]) / 0.1
    assert "<html" in (out / "report.html").read_text()[:500].lower()
    again = run_testbed("run", two_rounds.small, "--out", out, check=False)
    assert again.returncode == 2
    assert "--out" in again.stderr


def test_data_that_only_nodes_look_at_are_refused_as_input(tmp_path: Path) -> None:
    scenario = Path(__file__).resolve().parents[3] / "scenarios" / "quickstart.yaml"
    words = ("--set", "workload.data.source=/dev/zero", "--out", tmp_path / "run")
    done = run_testbed("run", scenario, *words, check=False)
    assert done.returncode == 2, done.stderr
    line = done.stderr.splitlines()[-1]
    assert line == "testbed: workload.data.source: /dev/zero is neither 'synthetic' nor a folder"
    assert not list(tmp_path.iterdir())
    wait_until_gone()


def test_real_computing_leaves_adapters_that_learned(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    scenario = Path(__file__).resolve().parents[3] / "scenarios" / "quickstart.yaml"
    out = tmp_path / "run"
    run_testbed(
        "run", scenario, "--rounds", "1", "--set", "workload.local_iterations=1", "--out", out
    )
    state = load_file(out / "adapters.safetensors")
    assert "layers.0.blocks.0.attn.qkv.lora_A" in state
    assert "head.fc.weight" in state
    moved = [name for name, value in state.items() if name.endswith("lora_B") and value.any()]
    assert any(name.startswith("layers.0.") for name in moved), "the clients' side did not learn"
    assert any(name.startswith("layers.3.") for name in moved), "the server's side did not learn"
    learning = pd.read_parquet(out / "learning.parquet")
    assert len(learning) == 3
    assert learning["loss"].between(0.1, 10).all()
    wait_until_gone()


@pytest.mark.parametrize("which", ["interrupt", "terminate", "kill", "node"])
def test_nothing_is_left_whatever_ends_a_run(small: Path, tmp_path: Path, which: str) -> None:
    out = tmp_path / "run"
    words = ("run", small, "--out", out, "--set", "emulation.dilation=20")
    with (tmp_path / "stderr").open("w") as errors:
        process = warm.start(*words, stderr=errors)
    deadline = time.monotonic() + 60
    while len(nodes := [p for p in family() if "workloads.nodes.program" in arguments(p)]) < 4:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(1)
    if which == "node":
        nodes[0].kill()
    else:
        numbers = {"interrupt": signal.SIGINT, "terminate": signal.SIGTERM, "kill": signal.SIGKILL}
        process.send_signal(numbers[which])
    status = process.wait(60)
    said = (tmp_path / "stderr").read_text()
    assert status == {"interrupt": 130, "terminate": 143, "kill": -9, "node": 1}[which]
    if which == "node":
        assert "SIGKILL" in said
    assert "Traceback" not in said
    wait_until_gone()
    assert not out.exists()


def test_a_run_whose_radio_process_is_killed_says_so(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    keys = ["air=ns3", "dilation=20", "calibrate=false"]
    words = [word for key in keys for word in ("--set", f"emulation.{key}")]
    for key in ("access=lte", "uplink_bandwidth_hz=5e6", "downlink_bandwidth_hz=5e6"):
        words += ["--set", f"radio.{key}"]
    with (tmp_path / "stderr").open("w") as errors:
        process = warm.start("run", small, "--out", out, *words, stderr=errors)

    def radios() -> list[psutil.Process]:
        own = psutil.Process(process.pid).children(recursive=True)
        return [each for each in own if "ns3-radio" in " ".join(arguments(each))]

    part = part_of(out)
    until(lambda: (part / "radio.bin").exists() or process.poll() is not None, 120)
    time.sleep(2)
    (radio,) = radios()
    radio.kill()
    assert process.wait(60) == 1
    said = (tmp_path / "stderr").read_text()
    assert "Traceback" not in said
    assert said.splitlines()[-1].endswith("the radio process died (SIGKILL): it left no message")
    wait_until_gone()
    assert gone([radio])
    assert not out.exists()
