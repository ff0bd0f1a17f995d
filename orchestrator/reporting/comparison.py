# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A page that compares results: latencies, timelines, error budgets, learning curves.

It is a single HTML page, like the report of one run (`orchestrator.reporting.report`).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from orchestrator.analysis.learned import Target
from orchestrator.records.comparison import (
    Comparison,
    compare,
    paradigm_of,
    precision_costs,
    train_of,
)
from orchestrator.records.learned import Trajectory, with_learning
from orchestrator.records.manifest import provenance
from orchestrator.records.results import read_results
from orchestrator.records.session_reader import PlayedSession
from orchestrator.reporting.charts import (
    column_of,
    gantt_of,
    steps_of,
    training_curve,
    visible_parts,
)
from orchestrator.reporting.comparison_verdict import invalid, last_client, verdict
from orchestrator.reporting.index import address, save_page
from orchestrator.reporting.learning_charts import learning_chart
from orchestrator.reporting.legend import (
    DASHES,
    STEP_COLOURS,
    STEP_TITLES,
    Style,
    numbered,
    part_title,
    style_of,
)
from orchestrator.reporting.pages import render_page
from testbed.core.timeline import STEPS

SCRIPTS = ("charts", "frame", "xy", "gantts", "compare")
MOST_DOTS = 300
"""Most rounds of a result that are drawn as dots."""
MOST_POINTS = 400
"""Most points of a session's curve; more slots are merged into means."""


def write_comparison(
    given: Sequence[str | Path],
    path: Path,
    target: Target | None = None,
    learned: Sequence[Trajectory] = (),
) -> Comparison:
    """Read results and write a page that compares them.

    Args:
        given: Paths that `orchestrator.records.results.read_results` accepts.
        path: Path of the page.
        target: A target that results are to reach.
        learned: Trajectories for results without learning.

    Raises:
        InputError: One of them cannot be read as a result, or no trajectory fits it.
    """
    found = [result for each in given for result in read_results(each)]
    comparison = compare(with_learning(found, learned), target=target)
    write_page(comparison, path)
    return comparison


def write_page(comparison: Comparison, path: Path) -> None:
    """Write the page of a comparison atomically."""
    page = render(comparison, path.parent)
    save_page(path, page)


def render(comparison: Comparison, folder: Path) -> str:
    """The page of a comparison, as HTML; `folder` is that of the page, for its links."""
    labels, results = comparison.labels, comparison.results
    table = comparison.table
    learned = any(len(result.learning) for result in results)
    all_styles = styles_of(comparison)
    styles = [{"colour": style.colour, "dash": DASHES[style.line]} for style in all_styles]
    timelines = [
        gantt_of(
            name,
            style,
            result.timeline,
            {round_.index: round_.latency_s for round_ in result.prediction},
        )
        for name, style, result in zip(labels, all_styles, results, strict=False)
    ]
    charts = _learning_charts(comparison)
    last = last_client(comparison) if results else pd.DataFrame()
    radios: dict[str, list[str]] = {}
    for name, result in zip(labels, results, strict=True):
        if result.radio:
            radios.setdefault(result.radio, []).append(name)
    return render_page(
        "compare.html",
        SCRIPTS,
        {
            "steps": steps_of() if results else [],
            "timelines": timelines,
            "latencies": _latencies(comparison, timelines, styles),
            "budgets": _budgets(comparison, styles),
            "charts": charts,
            "sessions": [
                _carried(session, styles[k]) for k, session in enumerate(comparison.played)
            ],
        },
        title=_title(comparison),
        radios=radios,
        executions=list(dict.fromkeys(result.execution for result in results)),
        rows=table.to_dict("records"),
        pages=[_link(result.page, folder) for result in results],
        session_pages={
            label: _link(session.page, folder)
            for label, session in zip(comparison.session_labels, comparison.played, strict=True)
        },
        schemes=comparison.by_scheme.to_dict("records") if comparison.has_repeats else [],
        steps=comparison.steps.to_dict("index"),
        step_titles={step: STEP_TITLES[step] for step in STEPS if step in comparison.steps},
        step_colours=STEP_COLOURS,
        budgets=comparison.budgets.to_dict("index"),
        part_titles={part: part_title(part) for part in visible_parts(comparison.budgets)},
        sessions=comparison.sessions.to_dict("records"),
        session_names=list(dict.fromkeys(r["run"] for r in comparison.sessions.to_dict("records"))),
        places=[result.name for result in results] + [s.name for s in comparison.played],
        names=[*labels, *(session.name for session in comparison.played)],
        differing=comparison.differing,
        lacks=comparison.lacks,
        costs=precision_costs(results),
        learned=learned,
        charts=charts,
        bands=any(len(group.curves) > 1 for group in comparison.groups),
        target=str(comparison.target),
        race=[] if comparison.race is None else comparison.race.table().to_dict("records"),
        answer="" if comparison.race is None else comparison.race.sentences(),
        predicted=bool(results) and bool(table["predicted_s"].notna().any()),
        wire_errors=learned
        and bool(table[["smashed_error", "gradient_error"]].notna().any(axis=None)),
        cut=[
            entry["label"]
            for entry in timelines
            if len(entry["spans"]["round"]) < entry["spans"]["total"]
        ],
        styles=styles,
        verdict=verdict(comparison),
        invalid=invalid(comparison),
        last=last.to_dict("index"),
        last_titles={str(name): STEP_TITLES.get(str(name), "") for name in last},
        held_out=bool(results) and bool(table["held_out_loss"].notna().any()),
        environment=provenance(),
    )


def _link(page: Path | None, folder: Path) -> str | None:
    """The address of a page, relative to a folder; None: there is no page."""
    return None if page is None else address(page, folder)


def _title(comparison: Comparison) -> str:
    counts = {"result": len(comparison.results), "session": len(comparison.played)}
    return " and ".join(f"{n} {what}{'s' * (n > 1)}" for what, n in counts.items() if n)


def _budgets(comparison: Comparison, styles: Sequence[dict[str, str]]) -> list[dict[str, Any]]:
    """By cause: the contribution to each result that has a budget."""
    numbers = [comparison.labels.index(str(name)) for name in comparison.budgets.index]
    return [
        {
            "name": part_title(str(part)),
            "bars": [
                {"label": str(name), **styles[k], "seconds": round(float(value), 9)}
                for k, (name, value) in zip(numbers, column.items(), strict=True)
                if np.isfinite(value)
            ],
        }
        for part, column in comparison.budgets.items()
    ]


def _learning_charts(comparison: Comparison) -> dict[str, Any]:
    """By measure: held-out curves of each scheme, and training curves of each result."""
    results, labels, styles = comparison.results, comparison.labels, styles_of(comparison)
    training = {
        f"{labels[k]}, training": (
            training_curve(train_of(result), result.timeline[0].paradigm),
            styles[k],
        )
        for k, result in enumerate(results)
        if len(train_of(result))
    }
    found = {
        y: learning_chart(comparison.groups, group_styles(comparison), y, training=training)
        for y in ("loss", "accuracy")
    }
    return {y: made for y, made in found.items() if made is not None}


def _carried(session: PlayedSession, style: dict[str, str]) -> dict[str, Any]:
    """Sum of the rates that a session's links carried over time, by direction, Mb/s."""
    slot_s = session.scenario.slot_s
    curves: dict[str, Any] = {"label": session.name, **style}
    for direction in ("up", "down"):
        own = session.table[session.table["direction"] == direction]
        by_slot = own.groupby("slot")["carried_bytes"].sum().sort_index() * 8e-6 / slot_s
        each = max(1, -(-len(by_slot) // MOST_POINTS))
        merged = by_slot.groupby(np.arange(len(by_slot)) // each).mean()
        first = by_slot.index.to_numpy()[::each]
        curves[direction] = {
            "time_s": column_of(first * slot_s, 6),
            "mbps": column_of(merged, 6),
        }
    return curves


def styles_of(comparison: Comparison) -> list[Style]:
    """Style of each result, then of each session; all seeds of a scheme have the same.

    They are those of the paradigms if no two schemes have the same paradigm; otherwise styles
    follow the numbers of the schemes.
    """
    schemes = comparison.schemes
    of = {k: number for number, own in enumerate(schemes) for k in own.members.values()}
    names = [paradigm_of(result) for result in comparison.results]
    first = [names[min(own.members.values())] for own in schemes]
    total = len(names) + len(comparison.played)
    styles = [numbered(of.get(k, k)) for k in range(total)]
    if len(set(first)) == len(first):
        styles[: len(names)] = map(style_of, names)
    return styles


def group_styles(comparison: Comparison) -> list[Style]:
    """Style of each group with learning: that of its first result."""
    styles = {
        id(curve): style
        for curve, style in zip(comparison.curves, styles_of(comparison), strict=False)
    }
    return [styles[id(next(iter(group.curves.values())))] for group in comparison.groups]


def _latencies(
    comparison: Comparison, timelines: Sequence[dict[str, Any]], styles: Sequence[dict[str, str]]
) -> list[dict[str, Any]]:
    """Bars of mean latencies: of results with a dot per round, or of schemes with one per seed."""
    if not comparison.has_repeats:
        return [
            {key: entry[key] for key in ("label", "colour", "latency_s", "predicted_s")}
            | {"dots": MOST_DOTS, "names": [f"round {index}" for index in entry["rounds"]]}
            for entry in timelines
        ]
    members = {scheme.name: scheme.members for scheme in comparison.schemes}
    bars = []
    for row in comparison.by_scheme.to_dict("records"):
        own = [members[row["name"]][seed] for seed in row["seeds"]]
        bars.append(
            {
                "label": row["name"],
                "colour": styles[own[0]]["colour"],
                "latency_s": column_of(row["by_seed"], 9),
                "predicted_s": column_of(comparison.table["predicted_s"].iloc[own], 9),
                "dots": MOST_DOTS,
                "names": [f"seed {seed}" for seed in row["seeds"]],
            }
        )
    return bars
