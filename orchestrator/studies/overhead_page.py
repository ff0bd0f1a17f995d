# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Writes the files of an overhead study: tables, plots, and a page with its verdict in words."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from orchestrator.analysis.byte_accounts import BYTES
from orchestrator.analysis.waterfall import PART_OF
from orchestrator.records.manifest import provenance
from orchestrator.reporting.formatting import milliseconds, number, percent
from orchestrator.reporting.index import save_page
from orchestrator.reporting.legend import PURPOSES
from orchestrator.reporting.outcome import ROUNDING
from orchestrator.reporting.pages import render_page
from orchestrator.reporting.plots import write_plot
from orchestrator.scenario.schema import Scenario
from orchestrator.studies.overhead import (
    Outcome,
    frames,
    sweep_charts,
    sweep_figure,
    title,
    waterfall,
    waterfall_figure,
)
from testbed.core.paradigm import title_of
from testbed.system.files import write_csv


def verdict(outcome: Outcome) -> list[str]:
    """Two sentences: the purposes of the bytes of a round, and the causes of its latency."""
    total = outcome.link_bytes
    payload = outcome.bytes_of("payload_bytes")
    largest = max(BYTES[1:], key=outcome.bytes_of)
    mostly = (
        f", mostly {title(largest)} ({percent(outcome.bytes_of(largest) / total, False)})"
        if outcome.bytes_of(largest)
        else ""
    )
    of_bytes = (
        f"The links carry {number(total / 1e6)} MB per round: {percent(payload / total, False)} "
        f"payload and {percent(1 - payload / total, False)} overhead{mostly}."
    )
    parts_s = outcome.parts_s
    protocol_s, emulation_s = outcome.sum_s(of_emulation=False), outcome.sum_s(of_emulation=True)
    of_latency = (
        f"A round takes {number(outcome.measured_s, 3)} s: {number(parts_s['payload'], 3)} s for "
        f"the payload and {number(parts_s['computing'], 3)} s for computing; protocols add "
        f"{milliseconds(protocol_s)} ({percent(protocol_s / outcome.measured_s)}), and the "
        f"emulation {milliseconds(emulation_s)} ({percent(emulation_s / outcome.measured_s)})."
    )
    return [of_bytes, of_latency]


def sweep_verdict(key: str, outcomes: Sequence[Outcome]) -> list[str]:
    """Two sentences: the values of the key with the least and most overhead, and latency."""
    least, most = (of(outcomes, key=lambda o: o.overhead) for of in (min, max))
    shortest, longest = (of(outcomes, key=lambda o: o.measured_s) for of in (min, max))
    of_bytes = (
        f"Overhead is the same with every value of {key}: {percent(least.overhead, False)} of the "
        "payload."
        if most.overhead - least.overhead <= ROUNDING * abs(most.overhead)
        else f"Overhead is smallest with {key} = {least.value} ({percent(least.overhead, False)} "
        f"of the payload) and largest with {key} = {most.value} ({percent(most.overhead, False)})."
    )
    of_latency = (
        f"A round takes equally long with every value of {key}: {number(longest.measured_s, 3)} s."
        if longest.measured_s - shortest.measured_s <= ROUNDING * longest.measured_s
        else f"A round is shortest with {key} = {shortest.value} "
        f"({number(shortest.measured_s, 3)} s) and longest with {key} = {longest.value} "
        f"({number(longest.measured_s, 3)} s)."
    )
    return [of_bytes, of_latency]


def page(key: str, outcomes: Sequence[Outcome], scenario: Scenario) -> str:
    """The page as HTML.

    Args:
        key: The swept key; empty without a sweep.
        outcomes: One per value of the key.
        scenario: The scenario of the first value.
    """
    return render_page(
        "overhead.html",
        ("charts", "frame", "xy", "waterfall", "tables", "plain"),
        {
            "charts": sweep_charts(key, outcomes) if key else {},
            "waterfalls": [waterfall(outcome) for outcome in outcomes],
        },
        name=scenario.name,
        paradigm=title_of(scenario.paradigm),
        uavs=scenario.uavs.count,
        rounds=scenario.rounds,
        transport=scenario.emulation.transport,
        key=key,
        sentences=sweep_verdict(key, outcomes) if key else verdict(outcomes[0]),
        failed=[outcome for outcome in outcomes if not outcome.valid],
        swept=outcomes if key else [],
        sections=[_section(outcome, key, index) for index, outcome in enumerate(outcomes)],
        environment=provenance(),
    )


def _section(outcome: Outcome, key: str, index: int) -> dict[str, Any]:
    """A value's figure, and the rows of its tables."""
    total_s, parts = 0.0, []
    for part in outcome.seen_parts:
        total_s += outcome.parts_s[part]
        seconds = outcome.parts_s[part]
        parts.append({"title": title(part), "seconds": seconds, "until_s": total_s})
    return {
        "heading": f"{key} = {outcome.value}" if key else "",
        "id": f"value-{index}",
        "file": waterfall_name(outcome),
        "sentences": verdict(outcome) if key else [],
        "bytes": [
            {
                "title": title(name),
                "explanation": PURPOSES[name.removesuffix("_bytes")],
                "up": outcome.up_bytes[name],
                "down": outcome.down_bytes[name],
                "share": outcome.bytes_of(name) / outcome.link_bytes,
                "seconds": outcome.parts_s[PART_OF[name]] if name in PART_OF else None,
            }
            for name in outcome.seen_bytes
        ],
        "parts": parts,
        "measured_s": outcome.measured_s,
    }


def waterfall_name(outcome: Outcome) -> str:
    """Stem of the files of a value's waterfall chart."""
    # A point in the value would begin the file's suffix.
    return "-".join(["waterfall", outcome.value.replace(".", "_")]).rstrip("-")


def write(folder: Path, key: str, outcomes: Sequence[Outcome], scenario: Scenario) -> Path:
    """Write tables as CSV, plots as PNG and PDF, and the page; returns the path of the page.

    Args:
        folder: The folder, created if missing.
        key: The swept key; empty without a sweep.
        outcomes: One per value of the key.
        scenario: The scenario of the first value.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tables = frames(outcomes)
    for name in ("bytes", "waterfall"):
        write_csv(folder / f"{name}.csv", tables[name])
    for outcome in outcomes:
        write_plot(folder / waterfall_name(outcome), partial(waterfall_figure, outcome))
    if key:
        write_plot(folder / "sweep", partial(sweep_figure, key, outcomes))
    html = page(key, outcomes, scenario)
    path = folder / "overhead.html"
    save_page(path, html)
    return path
