# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Folders of `testbed learn` whose contents are given, without learning."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import orchestrator as tb
from orchestrator.records.appraised import Appraised, Client
from orchestrator.records.learned import CURVES, read_trajectory, write_trajectory

ACCURACIES = {1: [0.1, 0.5, 0.9, 0.8], 2: [0.1, 0.3, 0.5, 0.7]}
"""By seed: of the evaluations of three rounds."""
NAMES = ["zebra", "<b>cat</b>", "dog"]
CONFUSION = [(0, 0, 8), (0, 1, 2), (1, 1, 5), (2, 1, 1), (2, 2, 3)]
PARTITION = [[[0, 30], [1, 10]], [[1, 20]]]


def small_scenario(seed: int, **keys: Any) -> tb.Scenario:
    """A scenario of two UAVs and three rounds."""
    given = {"seed": seed, "rounds": 3, "uavs.count": 2, "uavs.tx_power_w": 1}
    given |= {"workload.evaluate_every": 1, "workload.local_iterations": 2}
    return tb.load("quickstart", given | keys)


def write_learned(
    folder: Path,
    accuracies: Sequence[float] = ACCURACIES[1],
    seed: int = 1,
    *,
    times: bool = True,
    appraised: bool = True,
    remarks: Sequence[str] = (),
    natural: Sequence[str] = (),
    **keys: Any,
) -> Path:
    """A folder of two UAVs with these evaluations, one before the first round and one after each.

    A round takes 2 s, 3 J and 1 MB. Losses are 1 - accuracy, and training losses 1 / (round + 1).
    """
    rounds = len(accuracies) - 1
    scenario = small_scenario(seed, rounds=rounds, **keys)
    nan, rows = float("nan"), []
    for done, accuracy in enumerate(accuracies):
        rows += [
            (done - 1, "train", client, iteration, 1 / done, 0.5, nan, nan)
            for client in (1, 2)
            for iteration in (1, 2)
            if done
        ]
        rows.append((done - 1, "held-out", 0, 0, 1 - accuracy, accuracy, nan, nan))
    columns = ["round", "data", "client", "iteration", "loss", "accuracy"]
    table = pd.DataFrame(rows, columns=[*columns, "smashed_error", "gradient_error"])
    about = {"seed": seed, "command": "", "argv": ["testbed", "learn"], "partition": PARTITION}
    about |= {"data": "3 classes", "remarks": list(remarks), "packages": {"torch": "2.0"}}
    about |= {"clients": list(natural)} if natural else {}
    folder.mkdir(parents=True)
    write_trajectory(folder, scenario, table, about, b"")
    if times:
        done = np.arange(rounds + 1.0)
        curve = read_trajectory(folder).curve
        costs = {"time_s": 2 * done, "energy_j": 3 * done, "bytes": 1e6 * done}
        curve.assign(**costs).to_parquet(folder / CURVES, index=False)
    if appraised:
        clients = [
            Client(client=1, samples=40, appraised=40, loss=0.5, accuracy=0.9),
            Client(client=2, samples=20, appraised=20, loss=None, accuracy=0.6 + 0.1 * seed),
        ]
        made = Appraised(trained=1234, names=NAMES, confusion=CONFUSION, clients=clients)
        made.write(folder)
    return folder


def write_seeds(folder: Path) -> Path:
    """A folder with the seeds of `ACCURACIES`."""
    for seed, accuracies in ACCURACIES.items():
        write_learned(folder / f"seed-{seed}", accuracies, seed)
    return folder
