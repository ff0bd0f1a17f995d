# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The report of a run: a self-contained HTML page."""

import contextlib
from collections.abc import Iterable
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from orchestrator.analysis.error_budget import calibration_summary
from orchestrator.analysis.learned import Outcome
from orchestrator.emulated.validity import remedies
from orchestrator.engine.plan import LOADED
from orchestrator.engine.radio import describe_radio
from orchestrator.records.learned import measure_of
from orchestrator.records.reader import Run, read_run
from orchestrator.records.summary import (
    Headline,
    budget_by_step,
    budget_means,
    bytes_by_step,
    composition,
    differences,
    headline,
    lateness,
    losses,
    overheads,
    shares_band,
    step_comparison,
)
from orchestrator.reporting.cell import cell_sentences, grants_sentence
from orchestrator.reporting.cells import cells_sentence
from orchestrator.reporting.charts import budget_rows, chart_data, records, visible_parts
from orchestrator.reporting.formatting import NOTHING, milliseconds, seconds
from orchestrator.reporting.index import save_page
from orchestrator.reporting.legend import (
    CAUSE_TITLES,
    PURPOSE_TITLES,
    PURPOSES,
    STEP_COLOURS,
    STEP_TITLES,
    part_title,
    ramp,
)
from orchestrator.reporting.outcome import (
    ROUNDING,
    check_title,
    clock_sentence,
    compared,
    failed_first,
    latency_sentence,
    validity_sentence,
)
from orchestrator.reporting.pages import render_page
from orchestrator.scenario.yaml_text import dump
from testbed.core.paradigm import title_of
from testbed.core.timeline import DIFFERING

SCRIPTS = ("charts", "frame", "model", "timeline", "cell", "cells", "map", "panels", "page")
"""Scripts in the order of execution; each may use the earlier ones."""

MANIFEST = (
    *("testbed_version", "revision", "dirty", "command", "started", "finished", "seed", "python"),
    *("packages", "kernel", "cpu", "cores", "memory_bytes", "runtime", "congestion_control"),
    *("mtu", "dilation", "valid", "validity", "status", "failure", "data", "plugins", "partition"),
    *("faults", "remarks", "diverged"),
)
"""Entries of the manifest that the page shows; missing ones are shown as a dash."""

MOST_CLIENTS = 24
"""Most clients in the chart of the class distribution."""
MAX_ROUND_ROWS = 500
"""Most rows of the page's tables; the Parquet files have all rows."""


def write_report(run_dir: Path) -> Path:
    """Write `report.html` into a run directory atomically; returns its path.

    Raises:
        InputError: It is not a run directory.
    """
    page = render(read_run(run_dir))
    path = run_dir / "report.html"
    save_page(path, page)
    return path


def render(run: Run) -> str:
    """The report of a run, as HTML."""
    manifest, rounds = dict.fromkeys(MANIFEST) | run.manifest, run.rounds
    by_step, short, budget = budget_by_step(run), headline(run), _budget_rows(run)
    drawn, cell = chart_data(run), run.tables.get("resource_blocks")
    granted = run.tables.get("grants")
    return render_page(
        "report.html",
        SCRIPTS,
        drawn,
        over_time=drawn["over_time"],
        radio=describe_radio(run.scenario, run.trace),
        has_cell=run.scenario.radio.kind.cell is not None,
        is_shared=shares_band(run),
        cell="" if cell is None else cell_sentences(cell, run.scenario.slot_s),
        granted="" if granted is None else grants_sentence(granted),
        cells=""
        if (cells := run.tables.get("cells")) is None
        else cells_sentence(cells, run.tables.get("handovers")),
        run=run,
        manifest=manifest,
        short=short,
        reading=reading(run, short),
        paradigm=title_of(run.scenario.paradigm, run.scenario.order),
        split=_split_points(run),
        rounds=records(differences(rounds.head(MAX_ROUND_ROWS))),
        steps=step_comparison(run).to_dict("records"),
        step_titles=STEP_TITLES,
        step_colours=STEP_COLOURS,
        prediction={"predicted_wire": "with frames", "predicted": "for the payload only"}.get(
            run.prediction or "", NOTHING
        ),
        part_titles={part["key"]: part["name"] for part in budget[0]["parts"]} if budget else {},
        cause_titles=CAUSE_TITLES,
        step_part_titles={}
        if by_step is None
        else {part: part_title(part) for part in visible_parts(by_step)},
        calibration=_calibration(run),
        overheads=overheads(run),
        composition=composition(run),
        purposes=PURPOSES,
        purpose_titles=PURPOSE_TITLES,
        check_title=check_title,
        checks=failed_first(manifest["validity"]),
        clock=clock_sentence(
            manifest.get("clock", run.scenario.emulation.clock), manifest["dilation"]
        ),
        budget=budget,
        budget_by_step=None if by_step is None else by_step.to_dict("index"),
        lost=records(losses(run)),
        frame_losses=frame_losses(run),
        lateness=lateness(run),
        remedies=remedies(manifest["validity"], manifest["dilation"], manifest.get("clock")),
        environment=manifest,
        replay="testbed run scenario.json"
        + " --trace trace.npz" * (run.trace is not None)
        + " --out again",
        scenario_text=dump(run.scenario_tree, flow=True),
        bytes_by_step=bytes_by_step(run),
        holdings=(bars := holdings(manifest.get("partition"))),
        class_colours={
            part["class"]: part["colour"]
            for part in sorted(
                (part for bar in bars for part in bar["parts"]), key=itemgetter("class")
            )
        },
        outcome=_outcome(run),
        trained=trained(run),
    )


def holdings(partition: Any) -> list[dict[str, Any]]:
    """Class distribution, one row per client: client, samples, and the parts of a bar.

    Each part has a class, its number of samples, and its width as a share of the largest client's
    samples. Only the first `MOST_CLIENTS` clients are included.

    Args:
        partition: The manifest's entry; the result is empty if it is not valid.
    """
    rows = counts_of(partition)[:MOST_CLIENTS]
    most = max((sum(n for _, n in row) for row in rows), default=0)
    classes = 1 + max((k for row in rows for k, _ in row), default=0)
    return [
        {
            "client": client,
            "samples": sum(n for _, n in row),
            "parts": [
                {"class": k, "samples": n, "width": n / max(1, most), "colour": ramp(k, classes)}
                for k, n in row
            ],
        }
        for client, row in enumerate(rows, 1)
    ]


def counts_of(partition: Any) -> list[list[tuple[int, int]]]:
    """By client: pairs of a class and its number of samples; empty if the entry is not valid."""
    with contextlib.suppress(TypeError, ValueError, LookupError):
        return [[(int(k), int(n)) for k, n in row] for row in partition or []]
    return []


def frame_losses(run: Run) -> dict[int, dict[str, dict[str, float]]]:
    """Lost frames by client (0: all clients) and direction: lost, frames, share, and asked, the
    configured share; empty without configured loss."""
    if "air_slots" not in run.tables:
        return {}
    table = run.tables["air_slots"]
    frames = table["lost_frames"] + table["arrived_frames"]
    counts = pd.DataFrame(
        {"lost": table["lost_frames"], "frames": frames, "asked": frames * table["asked_loss"]}
    )
    found: dict[int, dict[str, dict[str, float]]] = {}
    for clients in (table["client"], 0 * table["client"]):
        sums = counts.groupby([clients, table["direction"]]).sum()
        sums["share"] = sums["lost"] / sums["frames"]
        sums["asked"] /= sums["frames"]
        for (client, direction), row in zip(sums.index, sums.to_dict("records"), strict=True):
            found.setdefault(int(client), {})[direction] = {str(k): v for k, v in row.items()}
    return dict(sorted(found.items()))


def reading(run: Run, short: Headline) -> str:
    """A few sentences that say what came out: validity, latency, prediction, difference."""
    manifest = run.manifest
    if manifest.get("status") == "failed":
        after = f"after {short.measured_rounds} of {run.scenario.rounds} rounds"
        why = manifest.get("failure") or "no reason was recorded"
        sentences = [f"The run failed {after}: {_ended(str(why))}"]
    else:
        sentences = [validity_sentence("run", run.valid, manifest.get("validity"))]
    if short.measured_s is None:
        return " ".join([*sentences, "Nothing was measured."])
    title = title_of(run.scenario.paradigm, run.scenario.order)
    sentences.append(
        latency_sentence(
            title, short.measured_s, short.measured_rounds, short.wire_error, short.wire_s
        )
    )
    if short.predicted_error is not None:
        sentence = f"This is {compared(short.predicted_error)} the engine predicts for the payload"
        sentence += f" only ({seconds(short.predicted_s)})"
        parts = budget_means(run)
        if parts and abs(short.predicted_error) >= ROUNDING:
            largest = max(parts, key=lambda part: abs(parts[part]))
            share = f"{part_title(largest)} ({milliseconds(parts[largest])})"
            sentence += f"; the largest part of the difference is {share}"
        sentences.append(sentence + ".")
    if run.is_guided:
        sentences.append(GUIDED_FLIGHT)
    sentences += _decided_in_words(run)
    if (outcome := _outcome(run)) is not None:
        sentences.append(outcome.sentence())
    return " ".join(sentences)


GUIDED_FLIGHT = (
    "The policy flew the UAVs, so the flight depends on the measured times: each round was "
    "predicted afterwards on the flight, from its measured start."
)
"""Sentence about a run in which decisions fly the UAVs."""


def _decided_in_words(run: Run) -> list[str]:
    """Sentences with the ranges of what the policy decided in addition to split points and shares,
    and with the energy of flight."""
    table, sentences = run.tables.get("decisions", pd.DataFrame()), []
    ranges = [
        f"{name} {table[name].min():g} to {table[name].max():g}" for name in LOADED if name in table
    ]
    if ranges:
        sentences.append(f"The policy decided {', '.join(ranges)}.")
    flown_j = [r.flight_energy_j.max() for r in run.measured if r.flight_energy_j is not None]
    if flown_j:
        sentences.append(
            f"Flight took at most {max(flown_j):.0f} J per UAV and round, in addition to the "
            "energy of computing and sending."
        )
    return sentences


def _outcome(run: Run) -> Outcome | None:
    if "learning" not in run.tables:
        return None
    return Outcome.of(run.tables["learning"], measure_of(run.scenario))


def trained(run: Run) -> list[dict[str, Any]]:
    """What each UAV trained on and reached: client, samples (None if unknown), its number of
    rounds, and the mean loss and accuracy of the batches of the last one; empty without training.
    """
    table = run.tables.get("learning", pd.DataFrame())
    if "data" in table:
        table = table[table["data"] == "train"]
    if not len(table):
        return []
    counts = counts_of(run.manifest.get("partition"))
    held = {client: sum(n for _, n in row) for client, row in enumerate(counts, 1)}
    rows = []
    for client, own in table.groupby("client"):
        last = own[own["round"] == own["round"].max()] if "round" in own else own.tail(1)
        rows.append(
            {
                "client": int(str(client)),
                "samples": held.get(int(str(client))),
                "rounds": own["round"].nunique() if "round" in own else None,
                "loss": float(last["loss"].astype(float).mean()),
                "accuracy": float(last["accuracy"].astype(float).mean()),
            }
        )
    return rows[:MAX_ROUND_ROWS]


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "!", "?")) else sentence + "."


def _split_points(run: Run) -> str:
    """The split points of all rounds, or the scenario's if there are no rounds."""
    rounds = run.rounds["split"].tolist() or np.ravel(run.scenario.workload.split).tolist()
    if DIFFERING not in rounds:
        return _range(rounds)
    energy = run.tables.get("energy", pd.DataFrame({"split": rounds}))
    return f"{_range(energy['split'].tolist())}, by client"


def _range(values: Iterable[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}–{high}"


def _budget_rows(run: Run) -> list[dict[str, Any]]:
    """The error budget by round, with the remainder that the parts do not explain."""
    rows = []
    for row in (budget_rows(run) or [])[:MAX_ROUND_ROWS]:
        gap_s = row["measured_s"] - row["predicted_s"]
        explained_s = sum(part["seconds"] for part in row["parts"])
        rows.append(row | {"gap_s": gap_s, "unexplained_s": gap_s - explained_s})
    return rows


def _calibration(run: Run) -> list[dict[str, Any]]:
    """One row per direction and level of rates: rate_bps, and the links' errors."""
    if "calibration" not in run.tables:
        return []
    return records(calibration_summary(run.tables["calibration"]))
