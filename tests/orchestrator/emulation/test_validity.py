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
from orchestrator.emulation.validity import calibration_error
from orchestrator.scenario.schema import Limits
from testbed.network.shaping import Shape
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


SHAPE = Shape()


def calibration(*errors: float, rate_bps: float = 1e8) -> pd.DataFrame:
    """One link's transfers of 0.2 s at its three rates."""
    table = {"direction": "uplink", "client": 1, "level": LEVELS, "rate_bps": rate_bps}
    return pd.DataFrame(table | {"error": errors, "due_s": 0.2})


@pytest.mark.parametrize(
    ("rate_bps", "early_s"),
    [(2.886687e7, 0.000359), (3.891938e6, 0.001705), (2.543755e6, 0.002518)],
)
def test_that_a_transfer_ends_a_packet_early_is_no_error(rate_bps: float, early_s: float) -> None:
    """As seen in virtual time, where nobody is late."""
    frames = SHAPE.packet_frames(rate_bps)
    assert SHAPE.early_at(rate_bps, frames) == pytest.approx(early_s, rel=0.01)
    table = calibration(*[-early_s / 0.2] * 3, rate_bps=rate_bps)
    assert calibration_error(table, SHAPE, 1.0)[0] < 1e-4
    late, _ = calibration_error(table.assign(error=-table["error"] - 0.03), SHAPE, 1.0)
    assert late == pytest.approx(0.03 - 2 * early_s / 0.2, abs=1e-4)


def test_a_link_that_is_wrong_at_one_rate_alone_is_found() -> None:
    worst, where = calibration_error(calibration(0.66, 0.001, 0.002), SHAPE, 1.0)
    assert worst == pytest.approx(0.65, abs=2e-3)
    assert where.startswith("uplink 1 at its lowest rate")


def test_a_pause_of_this_machine_is_no_fault_of_a_link() -> None:
    table = calibration(0.01, 0.005, 0.006)
    worst, _ = calibration_error(table, SHAPE, 1.0)
    assert worst == pytest.approx(0.006, abs=2e-3)  # the median: 2 ms of 0.2 s explain the 0.01
    slower, _ = calibration_error(table, SHAPE, 10.0)
    assert slower == pytest.approx(0.009, abs=1e-3)  # in emulated time the pause was 0.2 ms
