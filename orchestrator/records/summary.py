# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Summaries of a run's tables: means, differences and shares, as numbers."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from orchestrator.analysis.error_budget import KEYS
from orchestrator.records.reader import Run
from testbed.core.timeline import STEPS

LEAST_S = 5e-7
"""Smallest part of a latency that tables show, s."""


@dataclass(frozen=True)
class Headline:
    """Key values of a run; None if unknown."""

    measured_s: float | None
    """Latencies in s are means over the rounds."""
    wire_s: float | None
    predicted_s: float | None
    wire_error: float | None
    """(measured - predicted with frames) / predicted with frames."""
    predicted_error: float | None
    worst_error: float | None
    """Signed error of the round with the largest error against the prediction with frames."""
    measured_rounds: int


def headline(run: Run) -> Headline:
    """The key values, over the rounds that were measured and predicted."""
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


def shares_band(run: Run) -> bool:
    """Whether the rate of a link depends on which others are active."""
    return run.scenario.radio.dividing_key is not None


def link_rates(run: Run) -> pd.DataFrame:
    """The run's table of rates; NaN where UAVs share the band and the link is not active."""
    rates = run.tables["rates"]
    if not shares_band(run) or "resource_blocks" not in run.tables:
        return rates
    links = run.tables["resource_blocks"].groupby("direction")
    rates = rates.copy()
    for direction, column in (("up", "uplink_bps"), ("down", "downlink_bps")):
        active = pd.MultiIndex.from_arrays([[], []])
        if direction in links.groups:
            active = pd.MultiIndex.from_frame(links.get_group(direction)[["slot", "client"]])
        here = pd.MultiIndex.from_frame(rates[["slot", "client"]]).isin(active)
        rates[column] = rates[column].where(here)
    return rates


def budget_means(run: Run) -> dict[str, float] | None:
    """Mean over the rounds of each part of the error budget, s; None without a budget."""
    if "budget" not in run.tables:
        return None
    means = run.tables["budget"].groupby("part")["seconds"].mean()
    return {part: float(means[part]) for part in run.parts}


def step_comparison(run: Run) -> pd.DataFrame:
    """Predicted and measured durations by kind of step, over all rounds, clients, iterations.

    Columns: step, count, predicted_s and measured_s (means), difference_s (mean), p95_s (95th
    percentile of the absolute difference). Empty if nothing can be compared.
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
    both["distance_s"] = both["difference_s"].abs()
    by_step = both.groupby("step").agg(
        count=("step", "size"),
        predicted_s=("duration_s_x", "mean"),
        measured_s=("duration_s_y", "mean"),
        difference_s=("difference_s", "mean"),
        p95_s=("distance_s", lambda distance: distance.quantile(0.95)),
    )
    present = [step for step in STEPS if step in by_step.index]
    return by_step.loc[present].reset_index()[columns]


def budget_by_step(run: Run) -> pd.DataFrame | None:
    """Mean contribution of each part to a step's duration, s: index step, columns part."""
    if "budget_steps" not in run.tables:
        return None
    means = run.tables["budget_steps"].pivot_table(
        index="step", columns="part", values="seconds", aggfunc="mean"
    )
    present = [step for step in STEPS if step in means.index]
    return means.reindex(index=present, columns=run.parts)


def lateness(run: Run) -> dict[str, float] | None:
    """Percentiles of the injector's lateness, s of real time; None if not recorded."""
    if "injector" not in run.tables:
        return None
    late = run.tables["injector"]["lateness_s"].to_numpy(float)
    p50, p95, p99 = np.percentile(late, [50, 95, 99])
    return {"p50": p50, "p95": p95, "p99": p99, "max": late.max()}


def differences(rounds: pd.DataFrame) -> pd.DataFrame:
    """The rounds (see `Run.rounds`) with their differences from the predictions.

    Adds `<kind>_difference_s`, measured less predicted, and `<kind>_error`, the relative one.
    """
    table = rounds.copy()
    for kind in ("predicted", "predicted_wire"):
        table[f"{kind}_difference_s"] = table["measured_latency_s"] - table[f"{kind}_latency_s"]
        table[f"{kind}_error"] = table["measured_latency_s"] / table[f"{kind}_latency_s"] - 1
    return table


def losses(run: Run) -> pd.DataFrame:
    """Lost clients: round, client, cause, and for each kind of timeline when they were lost, s.

    NaN if a timeline has no such loss; no rows if no client was lost.
    """
    columns = ["measured", *([run.prediction] if run.prediction else [])]
    if "lost" not in run.tables:
        return pd.DataFrame(columns=["round", "client", "cause", *columns])
    wide = run.tables["lost"].pivot_table(
        "lost_s", ["round", "client", "cause"], "kind", observed=True
    )
    return wide.reindex(columns=columns).reset_index()


def overheads(run: Run) -> list[dict[str, Any]]:
    """Bytes on the links in all rounds: purpose, up, down, share of all bytes."""
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
    """Mean composition of a round's latency: part, seconds, share of the latency.

    Parts of less than `LEAST_S` are omitted.
    """
    if "waterfall" not in run.tables:
        return []
    means = run.tables["waterfall"].groupby("part", sort=False)["seconds"].mean()
    total = float(means.sum())
    return [
        {"part": str(part), "seconds": float(mean), "share": float(mean) / total if total else None}
        for part, mean in means.items()
        if abs(mean) >= LEAST_S
    ]


def bytes_by_step(run: Run) -> dict[str, tuple[float, float]]:
    """Mean bytes of each kind of transfer: payload, and including headers."""
    kinds = ("predicted", "predicted_wire")
    if any(kind not in run.tables for kind in kinds):
        return {}
    means = [run.tables[kind].query("bytes > 0").groupby("step")["bytes"].mean() for kind in kinds]
    return {
        step: (float(means[0][step]), float(means[1][step]))
        for step in STEPS
        if step in means[0] and step in means[1]
    }
