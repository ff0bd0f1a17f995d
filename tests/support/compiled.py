# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Compile the engine as most tests need it, once: in a fresh checkout, all workers would."""

from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from small_scenario import TREE

import orchestrator as tb

LOSSY = {"one_way_delay_s": 0.005, "loss": 0.001}
CRASH = {"kind": "uav-crash", "nodes": ["uav1"], "at_s": 0.1}
NEEDED: tuple[dict[str, Any], ...] = (
    {},
    {"links": LOSSY},
    {"order": "shortest-job-first"},
    {"paradigm": "asfl-pp"},
    {"participation": {"clients": 2}},
    {"faults": {"on_loss": "drop", "events": [CRASH]}},
    {"faults": {"on_loss": "drop", "events": [CRASH]}, "order": "shortest-job-first"},
    {"allocation": {"policy": "planner"}},
    {"allocation": {"policy": "planner"}, "order": "shortest-job-first"},
)
"""Keys of scenarios whose rounds take other machine code."""
FLAT = {"gain": np.full((3, 400), 1e-9), "slot_s": 0.1}


def one(keys: dict[str, Any]) -> None:
    """Predict a round of a scenario."""
    tb.predict(tb.Scenario.model_validate(TREE | keys), FLAT, wire=True)


def main() -> None:
    """All of them; while one process compiles the engine with losses, the other does the rest."""
    with ProcessPoolExecutor(2) as pool:
        list(pool.map(one, NEEDED))


if __name__ == "__main__":
    main()
