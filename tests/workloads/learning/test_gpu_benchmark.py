# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The benchmark of GPUs where there is none: one line, and status 2."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[3] / "benchmarks" / "gpu.py"


def test_without_a_gpu_it_says_so_in_one_line() -> None:
    hidden = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    words = [sys.executable, str(PROGRAM)]
    done = subprocess.run(words, env=hidden, capture_output=True, text=True)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "cuda:0 is not there" in line
    assert not done.stdout
