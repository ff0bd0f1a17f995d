# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a run's tables say in short: means, differences, shares. Numbers alone, no words."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from orchestrator.analysis.error_budget import KEYS
from orchestrator.records.reader import Run
from testbed.core.timeline import STEPS


@dataclass(frozen=True)
class Headline:
    """The run in a few numbers; None where there is none."""

    measured_s: float | None
    """Mean over the rounds, as all of these."""
    wire_s: float | None
    predicted_s: float | None
    wire_error: float | None
    """Measured over predicted with frames, less 1."""
    predicted_error: float | None
    worst_error: float | None
    """The largest of the rounds' errors against predicted with frames, with its sign."""
    measured_rounds: int


def headline(run: Run) -> Headline:
    """The run in short, over the rounds that were measured and predicted."""
    table = run.rounds

    def mean(rows: pd.DataFrame, kind: str) -> float | None:
        column = rows[f"{kind}_latency_s"].dropna()
        return float(column.mean()) if len(column) else None

    def against(kind: str) -> tuple[float | None, float | None]:
        both = table.dropna(subset=["measured_latency_s", f"{kind}_latency_s"])
        if both.empty:
            return None, None
        measured, predicted = both["measured_latency_s"], both[f"{kind}_latency_s"]
        errors = (measured / predicted - 1).to_numpy(float)
        return float(measured.sum() / predicted.sum() - 1), float(errors[np.abs(errors).argmax()])

    done = table.dropna(subset=["measured_latency_s"])
    shown = done if len(done) else table
    wire_error, worst = against("predicted_wire")
    return Headline(
        measured_s=mean(shown, "measured"),
        wire_s=mean(shown, "predicted_wire"),
        predicted_s=mean(shown, "predicted"),
        wire_error=wire_error,
        predicted_error=against("predicted")[0],
        worst_error=worst,
        measured_rounds=len(done),
    )


def budget_means(run: Run) -> dict[str, float] | None:
    """Each part of the error budget in seconds, on average over the rounds; None without one."""
    if "budget" not in run.tables:
        return None
    means = run.tables["budget"].groupby("part")["seconds"].mean()
    return {part: float(means[part]) for part in run.parts}


def step_comparison(run: Run) -> pd.DataFrame:
    """Predicted against measured durations by kind of step, over all rounds, clients, iterations.

    Columns: step, count, predicted_s and measured_s (means), difference_s (mean), p95_s (95th
    percentile of the absolute difference). Empty where nothing can be compared.
    """
    columns = ["step", "count", "predicted_s", "measured_s", "difference_s", "p95_s"]
    if run.prediction is None or "measured" not in run.tables:
        return pd.DataFrame(columns=columns)
    predicted, measured = (
        table[KEYS].assign(duration_s=table["end_s"] - table["start_s"])
        for table in (run.tables[run.prediction], run.tables["measured"])
    )
    both = predicted.merge(measured, on=KEYS)
    both["difference_s"] = both["duration_s_y"] - both["duration_s_x"]
    both["apart_s"] = both["difference_s"].abs()
    by_step = both.groupby("step").agg(
        count=("step", "size"),
        predicted_s=("duration_s_x", "mean"),
        measured_s=("duration_s_y", "mean"),
        difference_s=("difference_s", "mean"),
        p95_s=("apart_s", lambda apart: apart.quantile(0.95)),
    )
    present = [step for step in STEPS if step in by_step.index]
    return by_step.loc[present].reset_index()[columns]


def budget_by_step(run: Run) -> pd.DataFrame | None:
    """Mean change of a step's duration, in s, that each part brings: index step, columns part."""
    if "budget_steps" not in run.tables:
        return None
    means = run.tables["budget_steps"].pivot_table(
        index="step", columns="part", values="seconds", aggfunc="mean"
    )
    present = [step for step in STEPS if step in means.index]
    return means.reindex(index=present, columns=run.parts)


def lateness(run: Run) -> dict[str, float] | None:
    """Percentiles of the injector's lateness in real seconds; None without a record."""
    if "injector" not in run.tables:
        return None
    late = run.tables["injector"]["lateness_s"].to_numpy(float)
    p50, p95, p99 = np.percentile(late, [50, 95, 99])
    return {"p50": p50, "p95": p95, "p99": p99, "max": late.max()}


def differences(rounds: pd.DataFrame) -> pd.DataFrame:
    """The rounds (see `Run.rounds`) with what sets each apart from its predictions.

    Adds `<kind>_difference_s`, measured less predicted, and `<kind>_error`, the relative one.
    """
    table = rounds.copy()
    for kind in ("predicted", "predicted_wire"):
        table[f"{kind}_difference_s"] = table["measured_latency_s"] - table[f"{kind}_latency_s"]
        table[f"{kind}_error"] = table["measured_latency_s"] / table[f"{kind}_latency_s"] - 1
    return table


def losses(run: Run) -> pd.DataFrame:
    """Who was lost in which round: round, client, cause, and when by each kind of timeline.

    NaN where it was not; no rows where nobody was lost.
    """
    columns = ["measured", *([run.prediction] if run.prediction else [])]
    if "lost" not in run.tables:
        return pd.DataFrame(columns=["round", "client", "cause", *columns])
    wide = run.tables["lost"].pivot_table(
        "lost_s", ["round", "client", "cause"], "kind", observed=True
    )
    return wide.reindex(columns=columns).reset_index()


def overheads(run: Run) -> list[dict[str, Any]]:
    """What the links carried in the rounds: purpose, up and down (bytes), share of all bytes."""
    if "accounts" not in run.tables:
        return []
    table = run.tables["accounts"]
    purposes = [str(name) for name in table if str(name).endswith("_bytes")]
    sums = table[table["round"] >= 0].groupby("direction")[purposes].sum()
    up, down = sums.reindex(["up", "down"], fill_value=0).to_numpy(float)
    total = float((up + down).sum())
    return [
        {
            "purpose": name.removesuffix("_bytes"),
            "up": float(upward),
            "down": float(downward),
            "share": float(upward + downward) / total if total else None,
        }
        for name, upward, downward in zip(purposes, up, down, strict=True)
        if upward or downward
    ]


def composition(run: Run) -> list[dict[str, Any]]:
    """What a round's latency is made of, on average: part, seconds, share of the latency."""
    if "waterfall" not in run.tables:
        return []
    means = run.tables["waterfall"].groupby("part", sort=False)["seconds"].mean()
    total = float(means.sum())
    return [
        {"part": str(part), "seconds": float(mean), "share": float(mean) / total if total else None}
        for part, mean in means.items()
        if mean
    ]


def bytes_by_step(run: Run) -> dict[str, tuple[float, float]]:
    """Mean bytes of each kind of transfer: payload, and with the frames around it."""
    kinds = ("predicted", "predicted_wire")
    if any(kind not in run.tables for kind in kinds):
        return {}
    means = [run.tables[kind].query("bytes > 0").groupby("step")["bytes"].mean() for kind in kinds]
    return {
        step: (float(means[0][step]), float(means[1][step]))
        for step in STEPS
        if step in means[0] and step in means[1]
    }
