# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Writes the channel of a UAV that flies straight away from the base station, in line of sight."""

import argparse
from pathlib import Path

import numpy as np

from ns3_scenarios.rma_av import los_path_loss_db

HEIGHT_M, BS_HEIGHT_M, CARRIER_HZ, SLOT_S = 60.0, 30.0, 2e9, 0.1


def main() -> None:
    """Write the trace."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="the trace to write, a file .npz")
    parser.add_argument("--seconds", type=float, default=40.0, help="duration of the flight")
    parser.add_argument("--speed", type=float, default=40.0, help="in m/s")
    given = parser.parse_args()
    time_s = np.arange(0.0, given.seconds, SLOT_S)
    away_m = 100.0 + given.speed * time_s
    height_m = np.full_like(away_m, HEIGHT_M)
    position_m = np.stack([away_m, np.zeros_like(away_m), height_m], axis=-1)[None]
    distance_m = np.hypot(away_m, HEIGHT_M - BS_HEIGHT_M)
    loss_db = los_path_loss_db(height_m, distance_m, CARRIER_HZ)
    np.savez(given.out, gain=10 ** (-loss_db[None] / 10), position=position_m, slot_s=SLOT_S)
    print(f"{given.out}: 1 UAV, {given.seconds:g} s, {away_m[0]:.0f} to {away_m[-1]:.0f} m away")


if __name__ == "__main__":
    main()
