# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Writes a channel of five UAVs that do not move: gains of free space at 28 GHz.

python examples/papers/static_channel.py static.npz
"""

import sys

import numpy as np

DISTANCE_M = np.array([35.0, 62.5, 97.0, 140.0, 188.0])
SLOTS, SLOT_S = 2000, 0.1


def main(path: str) -> None:
    """Write gains, shape [5, 2000], constant over slots of 0.1 s."""
    gain = 10 ** (-(61.4 + 20 * np.log10(DISTANCE_M)) / 10)
    np.savez(path, gain=np.repeat(gain[:, None], SLOTS, 1), slot_s=SLOT_S)


if __name__ == "__main__":
    main(sys.argv[1])
