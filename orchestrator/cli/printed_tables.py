# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Results as tables for the console."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from testbed.core.node import uav
from testbed.core.timeline import Round, Timeline

if TYPE_CHECKING:
    # A prediction's table needs neither the emulation nor pandas.
    import pandas as pd

    from orchestrator.analysis.learned import Race
    from orchestrator.emulated.validity import Tenant
    from orchestrator.flights.document import Document
    from orchestrator.flights.document import Model as FittedModel
    from orchestrator.records.comparison import Comparison
    from orchestrator.records.emulation import Check, Emulation
    from orchestrator.studies.cross_check import CrossCheck
    from orchestrator.studies.validation.outcome import Validation
    from testbed.host.doctor import Finding

MOST_ROWS = 20
LATENCY_COLUMNS: dict[str, tuple[str, float]] = {
    "run": ("result", 1),
    "rounds": ("rounds", 1),
    "latency_s": ("latency s", 1),
    "against_first": ("vs first %", 100),
    "predicted_s": ("predicted s", 1),
    "error": ("error %", 100),
    "valid": ("valid", 1),
}
"""By column of `Comparison.table`: its title on the console and the factor of its values."""
LEARNING_COLUMNS: dict[str, tuple[str, float]] = {
    "run": ("result", 1),
    "train_loss": ("train loss", 1),
    "held_out_loss": ("held-out loss", 1),
    "held_out_accuracy": ("held-out accuracy %", 100),
}
SESSION_COLUMNS: dict[str, tuple[str, float]] = {
    "run": ("session", 1),
    "direction": ("direction", 1),
    "seconds": ("seconds", 1),
    "offered_mbps": ("could carry Mb/s", 1),
    "carried_mbps": ("carried Mb/s", 1),
    "share": ("share %", 100),
    "most_queued_bytes": ("most queued B", 1),
    "valid": ("valid", 1),
}


def rounds_table(timeline: Timeline) -> Table:
    """One row per round (at most `MOST_ROWS`), and the mean over all rounds."""
    table = Table(box=None, pad_edge=False)
    columns = ["round", "paradigm", "u", "start s", "latency s", "max energy J", "objective"]
    flies = any(round_.flight_energy_j is not None for round_ in timeline)
    for column in [*columns, *["max flight J"] * flies]:
        table.add_column(column, justify="left" if column == "paradigm" else "right")

    def costs(round_: Round) -> tuple[float, ...]:
        found = round_.latency_s, float(round_.energy_j.max()), round_.objective
        return found if round_.flight_energy_j is None else (*found, round_.flight_energy_j.max())

    for round_ in timeline.rounds[:MOST_ROWS]:
        table.add_row(
            str(round_.index),
            round_.paradigm,
            str(round_.split),
            f"{round_.start_s:.3f}",
            *(f"{value:.3f}" for value in costs(round_)),
        )
    if len(timeline) > MOST_ROWS:
        table.add_row("...")
    if len(timeline) > 1:
        means = np.mean([costs(round_) for round_ in timeline], axis=0)
        table.add_section()
        table.add_row("mean", "", "", "", *(f"{mean:.3f}" for mean in means))
    return table


def comparison_table(done: "Emulation") -> Table:
    """One row per round: predicted and measured latencies, and the error of the wire prediction."""
    table = Table(box=None, pad_edge=False)
    for column in ("round", "u", "predicted s", "predicted wire s", "measured s", "error %"):
        table.add_column(column, justify="right")
    for payload, on_wire, measured in zip(
        done.predicted, done.predicted_wire, done.measured, strict=False
    ):
        table.add_row(
            str(measured.index),
            str(measured.split),
            f"{payload.latency_s:.4f}",
            f"{on_wire.latency_s:.4f}",
            f"{measured.latency_s:.4f}",
            f"{100 * (measured.latency_s / on_wire.latency_s - 1):+z.3f}",
        )
    return table


def step_comparison_table(done: "Emulation") -> Table:
    """One row per kind of step: mean durations, predicted (wire) and measured."""
    from orchestrator.analysis.error_budget import step_table

    measured = Timeline(done.measured)
    predicted = Timeline(done.predicted_wire[: len(measured)])
    means = step_table(predicted, measured).groupby("step", observed=True).mean()
    table = Table(box=None, pad_edge=False)
    for column in ("step", "predicted wire s", "measured s", "difference ms"):
        table.add_column(column, justify="left" if column == "step" else "right")
    for step, row in means.to_dict("index").items():
        table.add_row(
            str(step),
            f"{row['predicted_s']:.4f}",
            f"{row['measured_s']:.4f}",
            f"{1e3 * (row['measured_s'] - row['predicted_s']):+z.3f}",
        )
    return table


def budget_table(done: "Emulation") -> Table:
    """One row per round: what each cause adds to the predicted latency.

    Causes that only channel impairments have are omitted where all are 0; so are, over a radio of
    ns-3, which sets no rates, a later start and late rate changes.
    """
    from orchestrator.analysis.error_budget import PARTS, RADIO_PARTS
    from orchestrator.reporting.legend import IMPAIRMENT_PARTS

    budgets = [played.budget for played in done.played]
    is_radio = any(part in budgets[0] for part in RADIO_PARTS)
    optional = {*IMPAIRMENT_PARTS, *(("start", "injection") if is_radio else ())}
    parts = [
        part
        for part in (*PARTS, "backhaul")
        if part != "clock" and (part not in optional or any(budget.get(part) for budget in budgets))
    ]
    table = Table(box=None, pad_edge=False)
    table.add_column("round", justify="right")
    for part in parts:
        table.add_column(f"{'protocol' if part == 'framing' else part} ms", justify="right")
    for index, budget in enumerate(budgets):
        table.add_row(str(index), *(f"{1e3 * budget[p]:+z.2f}" for p in parts))
    return table


def calibration_table(calibration: "pd.DataFrame") -> Table:
    """One row per direction and level of rates: errors of transfers before the run."""
    from orchestrator.analysis.error_budget import calibration_summary

    table = Table(box=None, pad_edge=False)
    for column in ("calibration", "rate", "median Mb/s", "error p50 %", "error max %"):
        left = column in ("calibration", "rate")
        table.add_column(column, justify="left" if left else "right")
    for row in calibration_summary(calibration).to_dict("records"):
        table.add_row(
            row["direction"],
            row["level"],
            f"{row['rate_bps'] / 1e6:.3f}",
            f"{100 * row['error_p50']:.3f}",
            f"{100 * row['error_max']:.3f}",
        )
    return table


def comparison_tables(comparison: "Comparison") -> "Iterator[Table]":
    """Tables that compare results: latencies, error budgets, learning results, sessions."""
    if comparison.results:
        yield _scaled(comparison.table, LATENCY_COLUMNS)
    if len(comparison.budgets):
        in_ms = (1e3 * comparison.budgets).round(3) + 0.0  # no negative zero
        yield plain_table(in_ms.T.rename_axis("error budget ms").reset_index())
    if any(len(result.learning) for result in comparison.results):
        yield _scaled(comparison.table, LEARNING_COLUMNS)
    if comparison.race is not None:
        yield race_table(comparison.race)
    if comparison.played:
        yield _scaled(comparison.sessions, SESSION_COLUMNS)


def race_table(race: "Race") -> Table:
    """Which group reaches a target when and at which cost, in the order of arrival."""
    from orchestrator.analysis.learned import COSTS

    table = Table(box=None, pad_edge=False)
    table.add_column(f"reaches {race.target}")
    for title in ("seeds", *(f"{cost}, {unit}" for cost, (_, unit) in COSTS.items())):
        table.add_column(title.removesuffix(", rounds"), justify="right")
    for row in race.table().to_dict("records"):
        ranges = (
            f"{row[name]:.6g} ({row[f'{name}_low']:.6g} to {row[f'{name}_high']:.6g})"
            if row["reached"] > 1
            else f"{row[name]:.6g}"
            for name, _ in COSTS.values()
        )
        values = ranges if row["reached"] else ["never"] * len(COSTS)
        table.add_row(escape(row["name"]), f"{row['reached']} of {row['seeds']}", *values)
    return table


def _scaled(table: "pd.DataFrame", shown: dict[str, tuple[str, float]]) -> Table:
    """The columns that have values, with their titles and units."""
    import pandas as pd

    known = {key: table[key] for key in shown if table[key].notna().any()}
    return plain_table(
        pd.DataFrame(
            {
                shown[key][0]: column.map({True: "yes", False: "no"}).fillna("not judged")
                if key == "valid"
                else column * shown[key][1]
                for key, column in known.items()
            }
        )
    )


def findings_table(findings: Sequence["Finding"]) -> Table:
    """What the doctor found: what is available, what is missing, the effect and the remedy."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for finding in findings:
        table.add_row(
            "[green]ok[/]" if finding.ok else "[red]--[/]", finding.name, escape(finding.detail)
        )
        if not finding.ok:
            table.add_row("", "", f"for: {escape(finding.needed_for)}")
            if finding.remedy:
                table.add_row("", "", f"get: {escape(finding.remedy)}")
    return table


def plain_table(frame: "pd.DataFrame") -> Table:
    """A data frame as a table, with three decimal places."""
    table = Table(box=None, pad_edge=False)
    for column in frame.columns:
        table.add_column(str(column), justify="left" if frame[column].dtype == object else "right")
    for row in frame.to_dict("records"):
        table.add_row(
            *(f"{v:.3f}" if isinstance(v, float) else escape(str(v)) for v in row.values())
        )
    return table


def fit_tables(found: "Document") -> list[Table]:
    """Tables of a fit: models, antenna terms, uplink, and stages from Shannon's rate to goodput."""
    tables = [_fitted("level", found.models, found.models[0].aic)]
    tables.append(_fitted("level with antenna", found.antennas, found.models[0].aic))
    if found.uplink is not None:
        tables.append(_fitted("uplink SNR", [found.uplink], found.uplink.aic))
    if found.link.stages:
        table = Table(box=None, pad_edge=False)
        table.add_column("uplink, median over seconds")
        table.add_column("Mb/s", justify="right")
        for stage in found.link.stages:
            table.add_row(escape(stage.name), f"{stage.median_bps / 1e6:.2f}")
        tables.append(table)
    return tables


def _fitted(title: str, models: "Sequence[FittedModel]", least_aic: float) -> Table:
    """Fitted models, one row each."""
    table = Table(box=None, pad_edge=False)
    table.add_column(title)
    for column in (
        *("offset dB", "exponent", "shadowing dB", "decorrelation m", "scatter dB"),
        *("dB per m/s", "dB per degree", "AIC difference", "log-likelihood (CV)"),
    ):
        table.add_column(column, justify="right")
    for model in models:
        table.add_row(
            escape(" + ".join([model.name, *model.antenna])),
            f"{model.offset_db:.2f}",
            "" if model.exponent is None else f"{model.exponent:.3f}",
            f"{model.sigma_db:.2f}",
            f"{model.decorrelation_m:.1f}",
            f"{model.scatter_db:.2f}",
            f"{model.heading_db_per_m_s:.3f}" if "heading" in model.antenna else "",
            f"{model.elevation_db_per_deg:.3f}" if "elevation" in model.antenna else "",
            f"{model.aic - least_aic:+.1f}",
            f"{model.cv_log_likelihood:.1f}",
        )
    return table


def scores_table(scores: "Sequence[Mapping[str, Any]]") -> Table:
    """Scores of a forecast against the measured values, one row per score."""
    from orchestrator.flights.words import met_of

    table = Table(box=None, pad_edge=False)
    for column in ("score", "value", "goal", "met"):
        table.add_column(column, justify="right" if column == "value" else "left")
    for score in scores:
        table.add_row(*(escape(score[name]) for name in ("name", "text", "goal")), met_of(score))
    return table


def learning_lines(done: "Emulation") -> list[str]:
    """The last and the best evaluation on held-out data; empty if there was none."""
    from orchestrator.analysis.learned import Outcome
    from orchestrator.emulated.learning import whole_table
    from orchestrator.records.learned import measure_of

    outcome = Outcome.of(whole_table(done.learning), measure_of(done.scenario))
    return [] if outcome is None else [outcome.line()]


def loss_lines(done: "Emulation") -> list[str]:
    """One line per client that was lost in a measured round."""
    return [
        f"round {round_.index} continued without {uav(loss.client)}, lost at {loss.lost_s:.3f} s "
        f"({escape(loss.cause)})"
        for round_ in done.measured
        for loss in round_.lost
    ]


def validity_lines(
    checks: Sequence["Check"], dilation: float, tenant: "Tenant" = "run"
) -> list[str]:
    """Whether a run or a session is valid; if not, each failed check, and what to do about it."""
    from orchestrator.emulated.validity import IDLE, WAIT_QUIET, remedy
    from testbed.system import inside

    clock = "real" if inside.guest_settings() is None else "virtual"
    failed = [check for check in checks if not check.ok]
    if not failed:
        return ["valid: every check is within its limit"]
    lines = ["[bold]not valid[/bold]"]
    for check in failed:
        lines.append(f"  {escape(str(check))}")
        known = check.check, check.value, check.limit, dilation, clock, tenant, check.detail
        if text := remedy(*known):
            lines.append(f"    {escape(text)}")
    if any(IDLE in line for line in lines):
        lines.append(f"  {WAIT_QUIET}")
    return lines


def cross_check_tables(check: "CrossCheck") -> list[Table]:
    """Latencies, mean steps, transfer errors, and with several delays the means for each."""
    import pandas as pd

    from orchestrator.studies import cross_check as study

    reference = check.reference
    latency = Table(box=None, pad_edge=False)
    for column in ("execution", "round 0 s", "mean s", f"vs {reference} ms", "%"):
        latency.add_column(column, justify="left" if column == "execution" else "right")
    for row in study.latencies(check).to_dict("records"):
        mean_s = row["mean_s"]
        latency.add_row(
            row["execution"],
            f"{row['first_s']:.4f}",
            "" if pd.isna(mean_s) else f"{mean_s:.4f}",
            f"{row['difference_ms']:+.2f}",
            f"{row['difference_percent']:+.3f}",
        )
    steps = Table(box=None, pad_edge=False)
    for column in study.steps(check).columns:
        steps.add_column(str(column), justify="left" if column == "step" else "right")
    for row in study.steps(check).to_dict("records"):
        steps.add_row(*(f"{v:.5f}" if isinstance(v, float) else str(v) for v in row.values()))
    transfers = Table(box=None, pad_edge=False, title=f"transfers vs {reference}, per cent")
    columns = (
        "execution",
        "step",
        "n",
        "mean",
        "median |.|",
        "p95 |.|",
        "max |.|",
        "at round/UAV/i",
    )
    for column in columns:
        transfers.add_column(column, justify="left" if column in columns[:2] else "right")
    for row in study.transfers(check).to_dict("records"):
        transfers.add_row(*(f"{v:.4f}" if isinstance(v, float) else str(v) for v in row.values()))
    tables = [latency, steps, transfers]
    if len(check.by_delay) > 1:
        tables.append(plain_table(study.over_delay(check)))
    return tables


def validation_lines(found: "Validation") -> Iterator[str]:
    """A validation's results in a few lines."""
    from orchestrator.studies.validation.verdict import checked

    region = found.region
    for name in found.values:
        row = found.distribution(name)
        if not row["points"]:
            continue
        size, within = row["median_size"], row["within_tolerance"]
        ends = "[-]" if size["low"] is None else f"[{size['low']:.3%}, {size['high']:.3%}]"
        coverage = (
            f", within its bounds {row['coverage']['value']:.2%}" if "coverage" in row else ""
        )
        yield (
            f"{name}: {row['points']} points, median error {size['value']:.3%} {ends}, largest "
            f"{row['largest']:+.3%}, "
            f"within {region.tolerance:g}: {within['value']:.2%}{coverage}"
        )
    confirmed = "confirmed" if region.is_confirmed else "not confirmed"
    if region.rules:
        yield f"region, {region.share:.1%} of the space ({confirmed}: {checked(region)}):"
        yield from (f"  {rule}" for rule in region.texts())
    else:
        yield "no region was found that a few conditions describe"
    influence = ", ".join(
        f"{row['key']} {row['index']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"
        for row in found.sensitivity[:4]
    )
    yield f"error depends on (total Sobol index): {influence}"
    if found.counterexample is None:
        yield "no counterexample found"
        return
    simplest = found.worst["simplest"]
    yield (
        f"counterexample: error {simplest['error']:+.3%}, {found.counterexample.uavs.count} UAVs, "
        f"{found.counterexample.workload.largest('local_iterations')} iterations"
    )
