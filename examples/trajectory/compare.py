# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Compares joint decisions on flight, bandwidth and split point with the best static placement.

    python examples/trajectory/compare.py --seeds 5

Rounds in which UAVs are still on their way from where they start are left out.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from joint_flight import joint_flight
from scipy import stats

import orchestrator as tb

SCENARIO = Path(__file__).with_name("scenario.yaml")
SETTLED_AFTER = 3
"""Number of rounds in which UAVs may be on their way."""
COLUMNS = ("objective", "latency_s", "max_energy_j", "max_flight_energy_j")


def interval(values: Sequence[float]) -> str:
    """The mean with its 95 % interval by Student's t."""
    mean, count = np.mean(values), len(values)
    half = stats.t.ppf(0.975, count - 1) * np.std(values, ddof=1) / np.sqrt(count)
    return f"{mean:.3f} ± {half:.3f}"


def main() -> None:
    """Print both for all seeds, and the gain."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds, 2 or more")
    parser.add_argument("--rounds", type=int, default=6, help="number of rounds, 4 or more")
    options = parser.parse_args()
    static, joint = [], []
    for seed in range(1, options.seeds + 1):
        scenario = tb.load(SCENARIO, {"seed": seed, "rounds": options.rounds})
        for found, hover in ((static, True), (joint, False)):
            policy = joint_flight(scenario, hover=hover)
            rounds = tb.predict(scenario, policy=policy).summary()
            settled = rounds[rounds["round"] >= SETTLED_AFTER]
            found.append([float(settled[name].mean()) for name in COLUMNS])
    print(f"{'':20}{'static placement':>22}{'joint':>22}{'gain %':>18}")
    for name, before, after in zip(COLUMNS, np.transpose(static), np.transpose(joint), strict=True):
        gain = 100 * (1 - after / before)
        print(f"{name:20}{interval(before):>22}{interval(after):>22}{interval(gain):>18}")


if __name__ == "__main__":
    main()
