# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Whole runs under bad conditions: a full disk, another run beside it, curious eyes."""

import json
import os
import secrets
import subprocess
from pathlib import Path

import pytest
from console import TESTBED
from small_scenario import TEXT

from orchestrator.emulated.options import RunOptions
from orchestrator.emulated.run import run
from orchestrator.scenario.channel import open_source
from orchestrator.scenario.loading import load
from testbed.system.leftovers import announced


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(TEXT)
    return path


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone mounts a small disk")
def test_a_full_disk_is_one_line_and_leaves_nothing_on_it(small: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    words = [*TESTBED, "run", str(small), "--out", str(disk / "run")]
    mount = f"mount -t tmpfs -o size=24k none {disk}"
    script = f'{mount} && {{ "$@"; status=$?; ls -A {disk}; exit $status; }}'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", *words],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "No space left on device" in done.stderr.splitlines()[-1]
    assert done.stdout.strip() == "", "left on the disk"


@pytest.mark.parametrize("runtime", ["namespace", pytest.param("docker", marks=pytest.mark.docker)])
def test_two_runs_at_once_are_both_right(small: Path, tmp_path: Path, runtime: str) -> None:
    choices = ["--rounds", "2", "--set", f"emulation.runtime={runtime}"]
    both = []
    with announced():
        for name, split in (("one", 3), ("two", 4)):
            words = ["run", small, *choices, "--set", f"workload.split={split}"]
            words += ["--json", tmp_path / f"{name}.json", "--set", "emulation.dilation=5"]
            both.append(
                subprocess.Popen([*TESTBED, *map(str, words)], stderr=subprocess.PIPE, text=True)
            )
        said = [process.communicate(timeout=200)[1] for process in both]
    assert all("note: another emulation runs on this machine" in text for text in said)
    ends = [text.splitlines()[-1] for text in said]
    assert [process.returncode for process in both] == [0, 0], ends
    for name, split, smashed in (("one", 3, 200_000), ("two", 4, 100_000)):
        result = json.loads((tmp_path / f"{name}.json").read_text())
        assert len(result["measured"]) == 2
        for measured, predicted in zip(result["measured"], result["predicted_wire"], strict=True):
            assert measured["split"] == split
            assert {s["bytes"] for s in measured["steps"] if s["step"] == "CA"} == {smashed}
            # Slower by what the other takes of the processors, never faster, never the other's.
            assert measured["latency_s"] > 0.95 * predicted["latency_s"]


def test_the_token_is_in_no_file_argument_or_environment(small, tmp_path, monkeypatch) -> None:
    token = "5ec7e75ec7e75ec7e75ec7e75ec7e75e"
    monkeypatch.setattr(secrets, "token_hex", lambda size=16: token[: 2 * size])
    seen = []

    def look(text: str, done: float, total: float) -> None:
        for process in Path("/proc").iterdir():
            if process.name.isdigit():
                for what in ("cmdline", "environ"):
                    try:
                        seen.append(token.encode() in (process / what).read_bytes())
                    except OSError:
                        continue

    scenario, folder = load(small, []), tmp_path / "run"
    folder.mkdir()
    with open_source(scenario, None) as source:
        done = run(scenario, source, folder, RunOptions(progress=look))
    assert seen
    assert not any(seen)
    assert token not in json.dumps(done.to_json())
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any(path.suffix == ".log" for path in files)
    for path in files:
        data = path.read_bytes()
        assert token.encode() not in data, path
        assert bytes.fromhex(token) not in data, path
