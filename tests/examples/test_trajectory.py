# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The example of joint decisions on flight, bandwidth and split point, in its smallest case."""

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "examples" / "trajectory"


def test_joint_decisions_are_better_than_the_best_static_placement():
    command = [sys.executable, str(FOLDER / "compare.py"), "--seeds", "2", "--rounds", "4"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    head, *lines = done.stdout.splitlines()
    assert head.split() == ["static", "placement", "joint", "gain", "%"]
    rows = {
        name: [float(word) for word in rest if word != "±"]
        for name, *rest in (line.split() for line in lines)
    }
    for name in ("objective", "max_flight_energy_j"):
        static, _, joint, _, gain, _ = rows[name]
        assert joint < static
        assert gain > 0
    # Eq. (12) at 10.2 m/s and in hover, 126 W and 168 W; latencies differ by little.
    assert 20 < rows["max_flight_energy_j"][4] < 30
