# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Runs held against each other: what each has learned, and what choices cost."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from orchestrator.runs.reader import Run
from testbed.core import trees
from testbed.core.errors import InputError
from testbed.core.paradigm import title_of

PRECISION = ("workload.wire_dtype", "workload.dtype")
CODEC = "workload.wire_parameters"
"""Begins the keys that say more of the wire's precision."""
UNTOLD = {"name", "emulation.dilation", "emulation.runtime", "workload.wire_error"}
"""Keys that make no other experiment."""


def compare(runs: Sequence[Run]) -> pd.DataFrame:
    """One row a run.

    Returns:
        run, rounds, latency_s (mean of measured rounds), emulated_s (to the end of the last one),
        train_loss and train_accuracy (mean over the last round's batches), held_out_loss and
        held_out_accuracy (of the last evaluation), smashed_error and gradient_error (root mean
        square of the codec's relative errors), batch_bytes (mean of the smashed data of a batch),
        valid. NaN where a run has none.

    Raises:
        InputError: None of the runs has learned anything.
    """
    if not any("learning" in run.tables for run in runs):
        raise InputError("DIR: none of the runs has learned anything (learning.parquet)")
    rows = []
    for name, run in zip(label(runs), runs, strict=True):
        train, held_out = train_of(run), held_out_of(run)
        last = train[train["round"] == train["round"].max()]
        end = held_out.tail(1)
        measured = run.rounds.dropna(subset=["measured_latency_s"])
        steps = run.measured.frame()
        ends_s = measured["measured_start_s"] + measured["measured_latency_s"]
        rows.append(
            {
                "run": name,
                "rounds": len(measured),
                "latency_s": measured["measured_latency_s"].mean(),
                "emulated_s": ends_s.max(),
                "train_loss": last["loss"].mean(),
                "train_accuracy": last["accuracy"].mean(),
                "held_out_loss": end["loss"].mean(),
                "held_out_accuracy": end["accuracy"].mean(),
                "smashed_error": _rms(train, "smashed_error"),
                "gradient_error": _rms(train, "gradient_error"),
                "batch_bytes": steps[steps["step"] == "CA"]["bytes"].mean(),
                "valid": run.manifest.get("valid"),
            }
        )
    return pd.DataFrame(rows)


def train_of(run: Run) -> pd.DataFrame:
    """The run's batches, by time; empty where it learned nothing."""
    return _part(run, "train")


def held_out_of(run: Run) -> pd.DataFrame:
    """The run's evaluations, by time; empty where there was none."""
    return _part(run, "held-out")


def _part(run: Run, data: str) -> pd.DataFrame:
    table = run.tables.get("learning")
    if table is None:
        return pd.DataFrame({"round": [], "time_s": [], "loss": [], "accuracy": []})
    if "data" not in table:  # of a run before there were evaluations
        table = table.assign(data="train")
    return table[table["data"] == data].sort_values("time_s", kind="stable")


def _rms(table: pd.DataFrame, column: str) -> float:
    if column not in table:
        return float("nan")
    return float(np.sqrt((table[column] ** 2).mean()))


def label(runs: Sequence[Run]) -> list[str]:
    """A name for each run: its paradigm, then the values of other keys in which runs differ.

    Runs that differ in nothing are told apart by their folders.
    """
    keys = [key for key in differing(runs) if key not in {"paradigm", *UNTOLD}]
    names = []
    for run in runs:
        values = trees.flat(run.scenario.model_dump(mode="json"))
        parts = [f"{key.rpartition('.')[2]} {values[key]}" for key in keys if key in values]
        names.append(", ".join([title_of(run.scenario.paradigm), *parts]))
    return [
        f"{name} ({run.folder})" if names.count(name) > 1 else name
        for name, run in zip(names, runs, strict=True)
    ]


def differing(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """The dotted keys in which the runs' scenarios differ, and each run's value."""
    return trees.differing([run.scenario.model_dump(mode="json") for run in runs])


def precision_costs(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """What lower precision costs: each run beside the one that is float32 and else the same.

    Returns:
        run, against, and the differences of the last round that both have: train_loss, and
        held_out_loss and held_out_accuracy where both were evaluated (else NaN).
    """
    labels, costs = label(runs), []
    for k, run in enumerate(runs):
        values = {key: trees.flat(run.scenario.model_dump(mode="json"))[key] for key in PRECISION}
        if set(values.values()) == {"float32"}:
            continue
        for base, other in enumerate(runs):
            apart = set(differing([run, other])) - UNTOLD - {"rounds"}
            keys = {key for key in apart if not key.startswith(CODEC)}
            others = trees.flat(other.scenario.model_dump(mode="json"))
            exact = all(others[key] == "float32" for key in PRECISION)
            if exact and keys <= set(PRECISION):
                costs.append(
                    {
                        "run": labels[k],
                        "against": labels[base],
                        "train_loss": _apart(train_of(run), train_of(other), "loss"),
                        "held_out_loss": _apart(held_out_of(run), held_out_of(other), "loss"),
                        "held_out_accuracy": _apart(
                            held_out_of(run), held_out_of(other), "accuracy"
                        ),
                    }
                )
                break
    return costs


def _apart(left: pd.DataFrame, right: pd.DataFrame, column: str) -> float:
    """How far the means of the last common round are apart."""
    means = [table.groupby("round")[column].mean() for table in (left, right)]
    common = means[0].index.intersection(means[1].index)
    if not len(common):
        return float("nan")
    return float(means[0][common.max()] - means[1][common.max()])
