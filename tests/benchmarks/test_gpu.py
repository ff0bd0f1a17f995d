# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The benchmark of GPUs where there is none: one line, and status 2."""

import runpy
import sys
from pathlib import Path

import pytest
import torch

PROGRAM = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu.py"


def test_without_a_gpu_it_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(sys, "argv", [str(PROGRAM)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(PROGRAM), run_name="__main__")
    assert ended.value.code == 2
    said = capfd.readouterr()
    (line,) = said.err.splitlines()
    assert "cuda:0 does not exist" in line
    assert not said.out
