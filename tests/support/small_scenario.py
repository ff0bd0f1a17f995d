# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The scenario of most tests: three UAVs, a round of 0.9 s, no learning."""

from typing import Any

import numpy as np
import yaml

TEXT = """
name: small
uavs: {tx_power_w: [1, 0.4, 0.1]}
radio: {uplink_bandwidth_hz: 4.0e+6, downlink_bandwidth_hz: 4.0e+6}
workload:
  compute: none
  local_iterations: 2
  batch_size: 2
  split: 3
  profile:
    client_forward_flops: [1.0e+10, 2.0e+10, 4.0e+10, 8.0e+10]
    server_forward_flops: [8.0e+10, 4.0e+10, 2.0e+12, 1.0e+10]
    adapter_bytes: [20000, 40000, 80000, 160000]
    smashed_bytes: [400000, 200000, 100000, 50000]
"""
TREE: dict[str, Any] = yaml.safe_load(TEXT)
AT_ONCE: dict[str, Any] = {"calibrate": False}
"""What `emulation` says of sessions whose tests ask nothing of their calibration."""


def trace_of_rates() -> dict[str, Any]:
    """Three links whose rates change by slot and by direction; the downlinks are the slower."""
    rng = np.random.default_rng(11)
    up = rng.uniform(1e7, 2e7, (3, 2000))
    down = rng.uniform(2e6, 4e6, (3, 2000)) * np.array([[1], [2], [4]])
    return {"uplink_bps": up, "downlink_bps": down, "slot_s": 0.1}
