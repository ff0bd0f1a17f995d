# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Writes the files of a cross-check: JSON, plots, and a page with its verdict in words."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from orchestrator.records.manifest import provenance
from orchestrator.records.results import CROSS_CHECK
from orchestrator.reporting import plots, xy, xy_plots
from orchestrator.reporting.charts import gantt_of, steps_of
from orchestrator.reporting.formatting import listed, milliseconds, percent
from orchestrator.reporting.index import save_page
from orchestrator.reporting.legend import DASHES, STEP_TITLES, numbered, style_of
from orchestrator.reporting.outcome import ROUNDING
from orchestrator.reporting.pages import render_page
from orchestrator.reporting.perfetto import trace
from orchestrator.scenario.schema import Scenario
from orchestrator.studies.cross_check import (
    KERNEL,
    PACKETS,
    PAYLOAD,
    TITLES,
    TRANSFERS,
    WIRE,
    CrossCheck,
    latencies,
    over_delay,
    steps,
    transfers,
)
from testbed.core.paradigm import title_of
from testbed.core.timeline import Round
from testbed.system.files import write_json

LEAST_GAP_S = 1e-6
"""Smaller differences are not explained, s."""


def write(check: CrossCheck, scenario: Scenario, folder: Path) -> None:
    """Write the page, JSON, plots, and a trace for Perfetto into a folder, created if missing."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / CROSS_CHECK, check.to_json(scenario))
    plots.write_plot(folder / "cross-check", lambda: plots.gantts(first_rounds(check)))
    if len(check.by_delay) > 1:
        drawn = delay_chart(check, scenario)
        plots.write_plot(folder / "delay", lambda: xy_plots.figure(drawn))
    frames = {name: timeline.frame() for name, timeline in check.timelines.items()}
    write_json(folder / "trace.json", trace(frames))
    html = page(check, scenario)
    save_page(folder / "cross-check.html", html)


def first_rounds(check: CrossCheck) -> list[tuple[str, Round]]:
    """The first round of each timeline with its name and latency, for `plots.gantts`."""
    return [
        (f"{_title(name)}: {timeline.rounds[0].latency_s:.3f} s", timeline.rounds[0])
        for name, timeline in check.timelines.items()
    ]


def delay_chart(check: CrossCheck, scenario: Scenario) -> dict[str, Any]:
    """The chart of the mean latency over the links' one-way delay."""
    table, style = over_delay(check), style_of(scenario.paradigm)
    line = xy.line(
        title_of(scenario.paradigm),
        table["delay_ms"].to_numpy(float),
        table["mean_s"].to_numpy(float),
        style.colour,
        dash=DASHES[style.line],
        marker=style.marker,
    )
    return xy.chart(
        "Mean latency of a round by one-way delay",
        "One-way delay of a link (ms)",
        "Mean latency of a round (s)",
        [line],
        from_zero=True,
        digits=(3, 4),
    )


def _title(name: str) -> str:
    """Title of a method in tables and above charts."""
    return TITLES.get(name, name).removeprefix("the ")


def verdict(check: CrossCheck) -> list[str]:
    """The outcome in sentences: mean latencies, single transfers, and the effect of headers.

    Only executions that send the same bytes are expected to agree: the engine with frames, ns-3 and
    the kernel.
    """
    table = latencies(check)
    mean_s: dict[str, float] = dict(zip(table["execution"], table["mean_s"], strict=True))
    compared = [name for name in (WIRE, PACKETS, KERNEL) if name in check.timelines]
    *names, last = [TITLES[name] for name in compared]
    spread = max(mean_s[name] for name in compared) / min(mean_s[name] for name in compared) - 1
    together = f"{', '.join(names)} and {last} agree within {percent(spread, sign=False)}"
    in_the_mean = f"{together[0].upper()}{together[1:]} in the mean latency of a round"
    table = transfers(check)
    farthest = table.iloc[int(np.nanargmax(table["max_percent"]))]
    sentences = [
        f"{in_the_mean}; single transfers differ by up to "
        f"{percent(farthest['max_percent'] / 100, sign=False)} ({farthest['step']}, "
        f"{TITLES[farthest['execution']]})."
    ]
    reference_s = mean_s[check.reference]
    gaps_s = {name: mean_s[name] - reference_s for name in compared if name != check.reference}
    widest = max(gaps_s, key=lambda name: abs(gaps_s[name]))
    if abs(gaps_s[widest]) >= LEAST_GAP_S:
        sentences.append(
            f"The largest difference is that of {TITLES[widest]} from {TITLES[check.reference]}: "
            f"{percent(gaps_s[widest] / reference_s)} ({milliseconds(gaps_s[widest])})."
            f"{_cause(check, widest)}"
        )
    sentences += _transfers(check, table)
    missing = mean_s[PAYLOAD] / mean_s[WIRE] - 1
    sentences.append(
        f"Without headers, labels and receipts, the engine predicts {percent(abs(missing), False)} "
        f"{'more' if missing > 0 else 'less'} than with them."
    )
    return sentences


def _transfers(check: CrossCheck, table: pd.DataFrame) -> list[str]:
    """A sentence per method: the largest difference of a transfer of each kind."""
    found = []
    for name, own in table.groupby("execution", sort=False):
        largest = own.set_index("step")["max_percent"] / 100
        if largest.max() < ROUNDING:
            found.append(f"All transfers of {TITLES[str(name)]} take as long.")
            continue
        kinds = listed(f"{step} {percent(size, sign=False)}" for step, size in largest.items())
        found.append(
            f"Single transfers of {TITLES[str(name)]} differ from those of "
            f"{TITLES[check.reference]} by up to: {kinds}."
        )
    return found


def _cause(check: CrossCheck, name: str) -> str:
    """The kind of step that differs most from the reference, in a sentence."""
    means = steps(check).set_index("step")
    differences = (means[name] - means[check.reference]).dropna()
    step = str(differences.abs().idxmax())
    if abs(differences[step]) < LEAST_GAP_S:
        return " All steps take equally long; only their order differs."
    return (
        f" The kind of step that differs most is “{STEP_TITLES[step]}” ({step}): "
        f"{milliseconds(float(differences[step]))} on average."
    )


def page(check: CrossCheck, scenario: Scenario) -> str:
    """The page as HTML."""
    sweeps = len(check.by_delay) > 1
    return render_page(
        "cross_check.html",
        ("charts", "frame", "xy", "gantts", "tables", "plain"),
        {
            "steps": steps_of(),
            "timelines": [
                gantt_of(_title(name), numbered(number), timeline)
                for number, (name, timeline) in enumerate(check.timelines.items())
            ],
            "charts": {"delay": delay_chart(check, scenario)} if sweeps else {},
        },
        name=scenario.name,
        paradigm=title_of(scenario.paradigm),
        uavs=scenario.uavs.count,
        rounds=len(check.timelines[check.reference]),
        radio=check.radio,
        packets_over=check.packets_over,
        sentences=verdict(check),
        complaints=check.complaints,
        was_emulated=KERNEL in check.timelines,
        reference=TITLES[check.reference],
        title_of=_title,
        step_titles=STEP_TITLES,
        latencies=latencies(check).to_dict("records"),
        steps=steps(check).to_dict("records"),
        executions=list(check.timelines),
        transfers=transfers(check).to_dict("records"),
        transfer_steps=TRANSFERS,
        delays=over_delay(check).to_dict("records") if sweeps else [],
        environment=provenance(),
    )
