# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Runs that say themselves whether they may be believed."""

import json
import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from console import run_testbed
from small_scenario import TEXT

from orchestrator.scenario.schema import Limits


def compute_for_ever() -> None:
    while True:
        pass


@contextmanager
def busy_machine() -> Iterator[None]:
    """Two programs a core that never rest."""
    processes = [
        multiprocessing.Process(target=compute_for_ever, daemon=True)
        for _ in range(2 * len(os.sched_getaffinity(0)))
    ]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(TEXT)
    return path


def run(small: Path, tmp_path: Path, *words: str) -> tuple[bool, dict[str, bool]]:
    """Whether a run calls itself valid, and each of its checks, by the JSON and the manifest."""
    out, result = tmp_path / "run", tmp_path / "run.json"
    run_testbed("run", small, "--out", out, "--json", result, *words)
    manifest = json.loads((out / "manifest.json").read_text())
    valid = json.loads(result.read_text())["valid"]
    assert valid == manifest["valid"]
    for check in manifest["validity"]:
        assert check["ok"] == (check["value"] <= check["limit"])
    return valid, {check["check"]: check["ok"] for check in manifest["validity"]}


def test_a_run_on_an_overloaded_machine_is_not_valid(small: Path, tmp_path: Path) -> None:
    with busy_machine():
        valid, checks = run(small, tmp_path)
    assert not valid
    assert not checks["cpu_others"]
    # There is no air, neither impaired nor of ns-3, and one machine.
    elsewhere = {"loss_deviation", "late_frames", "clock_error_s"}
    elsewhere |= {"radio_lateness_s", "unaccounted_packets"}
    assert checks.keys() == Limits.model_fields.keys() - elsewhere


def test_limits_are_the_scenarios(small: Path, tmp_path: Path) -> None:
    wide = dict.fromkeys(Limits.model_fields, 1e9)
    words = [w for k, v in wide.items() for w in ("--set", f"emulation.limits.{k}={v:.0f}")]
    valid, checks = run(small, tmp_path, *words)
    assert valid
    assert all(checks.values())


def test_a_limit_that_nothing_meets_makes_a_run_not_valid(small: Path, tmp_path: Path) -> None:
    words = ["--set", "emulation.limits.transfer_error=0", "--set", "emulation.calibrate=false"]
    valid, checks = run(small, tmp_path, *words)
    assert not valid
    assert not checks["transfer_error"]
    assert "calibration_error" not in checks
