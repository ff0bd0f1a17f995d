# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Runs beside each other: learning curves over emulated time, one a run, and what choices cost.

One HTML page from run directories, as `orchestrator.reporting.report` makes one of a single run.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from orchestrator.reporting.charts import column_of
from orchestrator.reporting.pages import render_page
from orchestrator.runs.comparison import (
    compare,
    differing,
    held_out_of,
    label,
    precision_costs,
    train_of,
)
from orchestrator.runs.reader import Run, read_run
from testbed.system.files import write_whole

SCRIPTS = ("charts", "frame", "compare")
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#8c564b")
DASHES = ("", "7 4", "2 3")
"""Runs beyond the colours are told apart by dashes."""


def write_comparison(run_dirs: Sequence[Path], path: Path) -> pd.DataFrame:
    """Write the page; answer its table, see `compare`.

    Raises:
        InputError: One of them is not the directory of a run, or none has learned anything.
    """
    runs = [read_run(folder) for folder in run_dirs]
    table = compare(runs)
    labels = label(runs)
    page = render_page(
        "compare.html",
        SCRIPTS,
        {"curves": [_curve(run, labels[k], k) for k, run in enumerate(runs)]},
        title=f"{len(runs)} runs",
        rows=table.to_dict("records"),
        folders=[str(folder) for folder in run_dirs],
        differing=differing(runs),
        costs=precision_costs(runs),
        wire_errors=bool(table[["smashed_error", "gradient_error"]].notna().any(axis=None)),
        styles=[_style(k) for k in range(len(runs))],
    )
    write_whole(path, lambda part: part.write_text(page, encoding="utf-8"))
    return table


def _curve(run: Run, name: str, number: int) -> dict[str, Any]:
    train = train_of(run)
    keys = [key for key in ("round", "iteration") if key in train]
    mean = train.groupby(keys)[["time_s", "loss", "accuracy"]].mean().sort_values("time_s")
    return {
        "label": name,
        **_style(number),
        "train": _columns(mean),
        "held_out": _columns(held_out_of(run)),
    }


def _style(number: int) -> dict[str, str]:
    return {
        "colour": COLOURS[number % len(COLOURS)],
        "dash": DASHES[number // len(COLOURS) % len(DASHES)],
    }


def _columns(table: pd.DataFrame) -> dict[str, list[float | None]]:
    return {name: column_of(table[name], 6) for name in ("time_s", "loss", "accuracy")}
