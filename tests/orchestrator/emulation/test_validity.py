# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Runs that say themselves whether they may be believed."""

import json
import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest
from console import run_testbed
from small_scenario import TEXT

from orchestrator.emulation.calibration import LEVELS
from orchestrator.emulation.validity import _calibration_error
from orchestrator.scenario.schema import Limits
from testbed.system.machine import Machine


def compute_for_ever() -> None:
    while True:
        pass


@contextmanager
def busy_machine() -> Iterator[None]:
    """Several programs a core that never rest."""
    processes = [
        multiprocessing.Process(target=compute_for_ever, daemon=True)
        for _ in range(4 * len(os.sched_getaffinity(0)))
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
    # There is no air, and one machine.
    elsewhere = {"loss_deviation", "late_frames", "clock_error_s"}
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


def test_other_programs_are_told_from_our_own() -> None:
    before = Machine(0, 0, 1000, 0, 100, 1.0)
    ticks = os.sysconf("SC_CLK_TCK")
    after = Machine(1, 1, 1000 + 10 * ticks, 0, 100 + 4 * ticks, 1.5)
    passed = after.since(before, nodes_s=1.5)
    assert passed.own_s == pytest.approx(2)
    assert passed.others == pytest.approx(0.2)


def calibration(*errors: float) -> pd.DataFrame:
    """One link's transfers of 0.2 s at its three rates."""
    return pd.DataFrame(
        {"direction": "uplink", "client": 1, "level": LEVELS, "error": errors, "due_s": 0.2}
    )


def test_a_link_that_is_wrong_at_one_rate_alone_is_found() -> None:
    worst, where = _calibration_error(calibration(0.66, 0.001, 0.002), 1.0)
    assert worst == pytest.approx(0.65)
    assert where.startswith("uplink 1 at its lowest rate")


def test_a_pause_of_this_machine_is_no_fault_of_a_link() -> None:
    worst, _ = _calibration_error(calibration(0.01, 0.001, 0.002), 1.0)
    assert worst == pytest.approx(0.002)  # the median: 2 ms of 0.2 s explain the 0.01
    slower, _ = _calibration_error(calibration(0.01, 0.001, 0.002), 10.0)
    assert slower == pytest.approx(0.009)  # in emulated time the pause was 0.2 ms
