# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A run that was killed goes on and ends as if it had not been."""

import json
import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import warm
from killed_run import killed

from orchestrator.records.checkpoint import Checkpoint
from orchestrator.records.directory import abandoned, is_locked, part_of

QUICKSTART = Path(__file__).resolve().parents[3] / "scenarios" / "quickstart.yaml"
SMALL = """
rounds: {rounds}
uavs: {{tx_power_w: [1, 0.1], compute_flops: 1.0e+10}}
base_station: {{compute_flops: 1.0e+10}}
workload:
  model: swin_nano_patch4_window4_64
  compute: {compute}
  classes: 5
  batch_size: 2
  local_iterations: 2
  data: {{samples: 40}}
emulation: {{dilation: {dilation}}}
"""


def scenario(folder: Path, compute: str, rounds: int = 3, dilation: float = 1.0) -> Path:
    path = folder / "small.yaml"
    path.write_text(SMALL.format(rounds=rounds, compute=compute, dilation=dilation))
    return path


def assert_whole(out: Path, rounds: int) -> None:
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["status"] == "complete"
    assert manifest["failure"] is None
    assert {p.name for p in out.iterdir()} & {"checkpoint", "lock"} == set()
    for name in ("measured", "predicted_wire", "rounds", "transfers", "budget", "budget_steps"):
        assert sorted(pd.read_parquet(out / f"{name}.parquet")["round"].unique()) == [
            *range(rounds)
        ], name
    times = pd.read_parquet(out / "rounds.parquet")
    times = times[times["kind"] == "measured"].sort_values("round")
    ends_s = (times["start_s"] + times["latency_s"]).tolist()
    assert times["start_s"].tolist()[1:] == pytest.approx(ends_s[:-1], abs=1e-9)
    assert "<html" in (out / "report.html").read_text()[:500].lower()


def test_a_killed_run_ends_with_the_same_adapters(tmp_path: Path) -> None:
    small = scenario(tmp_path, "real")
    whole, out = tmp_path / "whole", tmp_path / "killed"
    done = warm.run("run", small, "--out", whole)
    assert done.returncode == 0, done.stderr
    killed("run", small, out=out, rounds=1, after_s=0.05)
    assert abandoned(tmp_path) == [part_of(out)]

    other = warm.run("run", small, "--out", out, "--resume", "--set", "workload.split=3")
    assert other.returncode == 2
    assert "workload.split was 2 when the run began, and is 3 now" in other.stderr

    done = warm.run("run", small, "--out", out, "--resume")
    assert done.returncode == 0, done.stderr
    assert_whole(out, 3)
    name = "adapters.safetensors"
    assert (out / name).read_bytes() == (whole / name).read_bytes()
    learning = [
        pd.read_parquet(folder / "learning.parquet").sort_values(["round", "client", "iteration"])
        for folder in (out, whole)
    ]
    assert learning[0]["loss"].tolist() == learning[1]["loss"].tolist()
    sessions = json.loads((out / "manifest.json").read_text())["sessions"]
    after = [session["after_rounds"] for session in sessions]
    assert after[0] == 0
    assert after[1] in (1, 2)
    assert len(after) == 2
    assert abandoned(tmp_path) == []


def test_what_stays_with_uavs_is_restored(tmp_path: Path) -> None:
    """Batch normalisation of each client, at the UAVs and at the base station."""
    small = scenario(tmp_path, "real")
    own = {"model": "resnet_nano_32", "adapters": "full", "batch_norm": "local"}
    words = ["run", small, "--set", "workload.evaluate_every=1"]
    words += [word for key, value in own.items() for word in ("--set", f"workload.{key}={value}")]
    whole, out = tmp_path / "whole", tmp_path / "killed"
    done = warm.run(*words, "--out", whole)
    assert done.returncode == 0, done.stderr
    killed(*words, out=out, rounds=1, after_s=0.05)
    done = warm.run(*words, "--out", out, "--resume")
    assert done.returncode == 0, done.stderr
    assert_whole(out, 3)
    name = "adapters.safetensors"
    assert (out / name).read_bytes() == (whole / name).read_bytes()
    by = ["data", "round", "client", "iteration"]
    losses = [
        pd.read_parquet(folder / "learning.parquet").sort_values(by) for folder in (out, whole)
    ]
    assert len({*(losses[0]["data"])}) == 2
    assert losses[0]["loss"].tolist() == losses[1]["loss"].tolist()


@pytest.mark.full
@pytest.mark.parametrize("seed", range(5))
def test_kills_at_random_moments(tmp_path: Path, seed: int) -> None:
    random_ = random.Random(seed)
    small = scenario(tmp_path, "real", rounds=5)
    whole, out = tmp_path / "whole", tmp_path / "killed"
    assert warm.run("run", small, "--out", whole).returncode == 0
    option = []
    for rounds in sorted(random_.sample(range(1, 5), 2)):
        killed("run", small, *option, out=out, rounds=rounds, after_s=random_.uniform(0, 0.3))
        option = ["--resume"]
    done = warm.run("run", small, "--out", out, "--resume")
    assert done.returncode == 0, done.stderr
    assert_whole(out, 5)
    assert (out / "adapters.safetensors").read_bytes() == (
        whole / "adapters.safetensors"
    ).read_bytes()


def test_what_a_killed_run_left_is_neither_lost_nor_taken_for_a_live_one(tmp_path: Path) -> None:
    small = scenario(tmp_path, "none", rounds=4, dilation=100)
    out = tmp_path / "run"
    process = warm.start("run", small, "--out", out)
    deadline = time.monotonic() + 100
    while Checkpoint(part_of(out)).rounds < 1:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert is_locked(part_of(out))
    for word in ("--resume", "--overwrite"):
        second = warm.run("run", small, "--out", out, word)
        assert second.returncode == 2
        assert "is being written by another run" in second.stderr
    process.kill()
    process.wait()
    assert not is_locked(part_of(out))
    refused = warm.run("run", small, "--out", out)
    assert refused.returncode == 2
    rounds = Checkpoint(part_of(out)).rounds
    assert f"was killed after {rounds} rounds; --resume resumes it" in refused.stderr
    words = ("run", small, "--out", out, "--overwrite", "--set", "rounds=1")
    assert warm.run(*words, "--set", "emulation.dilation=1").returncode == 0
    assert_whole(out, 1)
    again = warm.run("run", small, "--out", out, "--resume")
    assert again.returncode == 2
    assert "holds no run that failed or was killed" in again.stderr


def test_a_failed_run_keeps_its_rounds_and_goes_on(tmp_path: Path) -> None:
    small = scenario(tmp_path, "none", rounds=8, dilation=10)
    out = tmp_path / "run"
    process = warm.start("run", small, "--out", out)
    while Checkpoint(part_of(out)).rounds < 1:
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(60) == 143
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["status"] == "failed"
    assert "SIGTERM" in manifest["failure"]
    assert "The run failed" in (out / "report.html").read_text()
    assert pd.read_parquet(out / "measured.parquet")["round"].nunique() < 8

    gain = np.full((2, 4000), 1e-10)
    np.savez(tmp_path / "t.npz", gain=gain, slot_s=0.1)
    other = warm.run("run", small, "--out", out, "--resume", "--trace", tmp_path / "t.npz")
    assert other.returncode == 2
    assert "--trace: not the channel with which the run began" in other.stderr
    assert out.is_dir(), "a refusal leaves everything where it was"
    done = warm.run("run", small, "--out", out, "--resume")
    assert done.returncode == 0, done.stderr
    assert_whole(out, 8)
