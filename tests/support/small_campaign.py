# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A campaign of a few small points on a trace of its own: nothing of it needs ns-3 or torch."""

from pathlib import Path
from typing import Any

import numpy as np
import yaml

from ns3_scenarios.trace import ChannelTrace

ROOT = Path(__file__).resolve().parents[2]


def campaign_tree(folder: Path, **changes: Any) -> dict[str, Any]:
    """The campaign as a tree; its trace is written into the folder."""
    rng = np.random.default_rng(1)
    gain = 10 ** rng.uniform(-10.5, -9, (2, 4000))
    ChannelTrace(gain, 0.1).save(folder / "trace.npz")
    scenario = {
        "name": "small",
        "uavs": {"tx_power_w": [1, 0.4]},
        "workload": {"compute": "none"},
    }
    study = {
        "trace": "trace.npz",
        "axes": {"u": {"key": "workload.split", "values": [2, 3]}, "paradigm": ["cpsfl", "sfl-pp"]},
        "compare": {"over": "paradigm", "baseline": "sfl-pp"},
        "plot": [{"x": "u", "lines": "paradigm"}],
    }
    return {
        "name": "small",
        "scenario": scenario,
        "set": {"rounds": 3},
        "repeats": [1, 2],
        "studies": {"split": study},
    } | changes


def write_campaign(folder: Path, **changes: Any) -> Path:
    """The campaign as a file in the folder."""
    path = folder / "small.yaml"
    tree = campaign_tree(folder, **changes)
    path.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
    return path
