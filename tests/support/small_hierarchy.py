# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Small scenarios with two edge servers: three UAVs, two edge rounds per cloud round."""

from typing import Any

from small_scenario import TREE

BACKHAUL: dict[str, Any] = {"uplink_bps": 1e7, "downlink_bps": 2e7, "one_way_delay_s": 0.01}
TOPOLOGY: dict[str, Any] = {
    "edges": [{"uavs": [1, 3]}, {"uavs": [2], "compute_flops": 5e12, "tx_power_w": 10.0}],
    "edge_rounds": 2,
    "backhaul": BACKHAUL,
}
HIERARCHY: dict[str, Any] = TREE | {"topology": TOPOLOGY}
LEARNING: dict[str, Any] = HIERARCHY | {
    "rounds": 2,
    "base_station": {"compute_flops": 1e12},
    "workload": {
        "model": "swin_nano_patch4_window4_64",
        "classes": 5,
        "lora_rank": 4,
        "local_iterations": 2,
        "batch_size": 4,
        "split": 2,
        "learning_rate": 0.05,
        "optimiser": "sgd",
        "evaluate_every": 1,
        "evaluate_samples": 50,
        "data": {"samples": 61, "partition": "quantity"},
    },
}
