# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Trials in processes of their own: how long they may take, on machines of any speed."""

import itertools
from pathlib import Path

import pytest

from testbed.core.errors import RunError
from testbed.host import trial
from testbed.system import machine


@pytest.fixture
def slow_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "slow_trial.py").write_text("import time; time.sleep(0.5); print('done')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "slow_trial"


def test_a_trial_that_takes_too_long_is_given_up(
    slow_module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "slowness", lambda: 1.0)
    with pytest.raises(RunError, match=r"doctor: waited 0\.2 s for the process that tries it"):
        trial.output_of(slow_module, 0.2, "doctor", "it")


def test_a_slow_machine_gives_a_trial_longer(
    slow_module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "slowness", lambda: 100.0)
    assert trial.output_of(slow_module, 0.2, "doctor", "it") == "done\n"


@pytest.mark.parametrize(("took_s", "times"), [(0.004, 1.0), (0.005, 1.0), (0.5, 100.0)])
def test_how_slow_a_machine_is_goes_by_how_long_it_computes(
    monkeypatch: pytest.MonkeyPatch, took_s: float, times: float
) -> None:
    clock = itertools.count(0.0, took_s)
    monkeypatch.setattr(machine.time, "perf_counter", lambda: next(clock))
    assert machine.slowness() == pytest.approx(times)
