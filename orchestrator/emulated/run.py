# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The command `testbed run`: emulate, compare, and write the run directory."""

import contextlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from ns3_scenarios.trace import ChannelSource
from orchestrator.analysis import frame_loss
from orchestrator.analysis.error_budget import KEYS, calibration_summary
from orchestrator.emulated.dilation import settle
from orchestrator.emulated.inputs import inputs_of
from orchestrator.emulated.learning import divergence, few_samples, privacy, whole_table
from orchestrator.emulated.network import check_machine
from orchestrator.emulated.options import DEFAULTS, RunOptions
from orchestrator.emulated.programs import containers_of
from orchestrator.emulated.rounds import emulate
from orchestrator.emulated.validity import to_json, validity
from orchestrator.records.checkpoint import Checkpoint
from orchestrator.records.directory import MANIFEST
from orchestrator.records.emulation import TAGS, Emulation, edge_rounds_table, records_of
from orchestrator.records.manifest import manifest, now
from orchestrator.records.timelines import (
    at_edges,
    backhaul_table,
    decision_table,
    energy_table,
    with_own_values,
)
from orchestrator.scenario.channel import Channel
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import GUIDED, Scenario
from testbed.core.timeline import Loss, Timeline
from testbed.system.files import write_json, write_whole
from workloads.data.parts import FIELD

log = logging.getLogger(__name__)


def run(
    scenario: Scenario,
    source: ChannelSource,
    folder: Path,
    options: RunOptions = DEFAULTS,
) -> Emulation:
    """Emulate the scenario and write its run directory into `folder`.

    A run that fails keeps the rounds that it measured; its manifest records the failure.

    Args:
        scenario: Scenario to emulate.
        source: Channel of the scenario.
        folder: Run directory; see `orchestrator.records.directory`.
        options: Options of the run; `keep` also resumes from a checkpoint in `folder`.

    Raises:
        InputError: This machine cannot run the scenario.
        RunError: The run failed; all nodes have been ended.
    """
    check_machine(scenario, options.hosts)
    profile = profile_of(scenario)
    if scenario.emulation.dilation == "auto":
        options.progress("choosing the dilation", 0, 1)
    channel = Channel.of(source)
    resolved, speeds, tried = settle(scenario, channel, profile)
    for forecast in tried:
        log.info("%s", forecast)
    inputs = inputs_of(resolved)
    for line in [f"{FIELD}: {inputs.data}"] * bool(inputs.data) + inputs.remarks:
        log.info("%s", line)
    about = manifest(resolved, _data(scenario, inputs.data))
    about |= {"remarks": inputs.remarks, "diverged": None}
    about |= {"clients": inputs.clients} if inputs.clients else {}
    if channel.is_guided:
        about["flight"] = GUIDED
    if tried:
        about["dilation_foreseen"] = {
            "speeds": speeds and asdict(speeds),
            "tried": [asdict(forecast) for forecast in tried],
        }
    checkpoint = Checkpoint(folder) if options.keep else None
    if checkpoint is not None:
        checkpoint.check_inputs(inputs.digests)
        about["sessions"] = checkpoint.sessions(about)
        about["started"] = about["sessions"][0]["started"]
    done: Emulation | None = None
    try:
        about["containers"] = containers_of(scenario)
        rounds = emulate(
            resolved,
            channel,
            profile,
            folder,
            options,
            checkpoint,
        )
        with contextlib.closing(rounds):
            for state in rounds:
                done = state
                line = _few_samples(done) if len(done.rounds) == 1 else ""
                if line and line not in about["remarks"]:
                    about["remarks"].append(line)
                    log.info("%s", line)
                if about["diverged"] is None and (line := _divergence(done)):
                    about["diverged"] = line
                    log.warning("%s", line)
                if checkpoint is not None:
                    checkpoint.save(done)
        assert done is not None
        if done.learning and (line := privacy(done.scenario, whole_table(done.learning))):
            about["remarks"].append(line)
            log.info("%s", line)
        about["status"] = "complete"
    except BaseException as error:
        about["failure"] = str(error) or type(error).__name__
        raise
    finally:
        about["finished"] = now()
        if options.hosts is not None:
            about["hosts"] = options.hosts.to_json(None if done is None else done.calibration)
        if done is not None and done.measured:
            about["faults"] += [fault.to_json() for fault in done.unplanned_faults]
            done.checks = validity(done)
            about["valid"] = done.valid
            about["validity"] = to_json(done.checks)
            if done.calibration is not None:
                short = calibration_summary(done.calibration)
                about["calibration"] = short.to_dict("records")
            about["server_passes"] = passes_in_short(
                [r.passes for r in done.records if r.passes is not None]
            )
            about["partition"] = next(
                (
                    partition
                    for r in done.records
                    if (partition := (r.passes or {}).get("partition"))
                ),
                None,
            )
            write_run(done, folder)
            write_json(folder / MANIFEST, about)
    assert done is not None
    return done


def _few_samples(done: Emulation) -> str:
    """See `few_samples`."""
    found = (done.records[0].passes or {}).get("partition") or []
    workload = done.scenario.workload
    clients = range(1, done.scenario.uavs.count + 1)
    batches = [workload.of_client("batch_size", k) for k in clients]
    return few_samples(found, batches, workload.sampling)


def _divergence(done: Emulation) -> str:
    """See `divergence`."""
    if not done.learning:
        return ""
    diverged = {
        record.measured.index: sorted(
            {k for r in records_of(record) for k in (r.passes or {}).get("diverged", [])}
        )
        for record in done.rounds
    }
    return divergence(whole_table(done.learning), diverged)


def _data(scenario: Scenario, found: str) -> str:
    """A description of the training data; `found` describes recognised real data."""
    if scenario.workload.compute == "none":
        return "none: zeros of the same size"
    if scenario.workload.data.source == "synthetic":
        return f"synthetic images, seed {scenario.seed}"
    return f"{scenario.workload.data.source}: {found}"


def tables_of(done: Emulation) -> dict[str, pd.DataFrame]:
    """The tables of a run directory, by file stem."""
    timelines = {
        "predicted": Timeline(done.predicted),
        "predicted_wire": Timeline(done.predicted_wire),
        "measured": Timeline(done.measured),
    }
    played = done.played
    scenario, has_edges = done.scenario, done.scenario.topology is not None
    tables = {name: at_edges(scenario, t.frame()) for name, t in timelines.items()}
    decision_s = [decision.decision_s for decision in done.decisions]
    tables["rounds"] = pd.concat(
        [
            timeline.summary().assign(
                split=[round_.common_split for round_ in timeline],
                kind=name,
                decision_s=decision_s,
            )
            for name, timeline in timelines.items()
        ]
    )
    tables["lost"] = pd.DataFrame(
        [
            {"kind": name, "round": round_.index, **asdict(loss)}
            for name, timeline in timelines.items()
            for round_ in timeline
            for loss in round_.lost
        ],
        columns=["kind", "round", *(field.name for field in fields(Loss))],
    )
    tables["energy"] = energy_table(timelines)
    if has_edges:
        tables["backhaul"] = backhaul_table(timelines)
        tables["edge_rounds"] = edge_rounds_table(done)
        decided = [done.tagged(each, decision_table(each.decision)) for each in done.records]
    else:
        decided = [decision_table(decision) for decision in done.decisions]
    tables["decisions"] = with_own_values(scenario, pd.concat(decided))
    for name in ("rates", "transfers", "injector"):
        tables[name] = pd.concat(done.tables(name))
    if done.calibration is not None:
        tables["calibration"] = done.calibration
    if done.scenario.is_impaired:
        air = pd.concat(done.tables("air"))
        tables["air"] = frame_loss.by_round(air)
        if air["asked_loss"].any():
            tables["air_slots"] = air
    if done.scenario.radio.kind.cell is not None:
        tables["resource_blocks"] = pd.concat(done.tables("resource_blocks"))
    for name in ("grants", *(("cells", "handovers") if done.scenario.radio.cells else ())):
        of_radio = done.tables(name)
        if len(of_radio) == len(done.records):
            tables[name] = pd.concat(of_radio)
    if "cells" in tables:  # A slot may be in two rounds.
        tables["cells"] = tables["cells"].drop_duplicates(["slot", "client"], keep="last")
    tables["learning"] = whole_table(done.learning)
    tables["accounts"] = pd.concat(done.accounts)
    tables["waterfall"] = pd.DataFrame(
        [
            (round_.index, part, seconds)
            for round_ in played
            for part, seconds in round_.waterfall.items()
        ],
        columns=["round", "part", "seconds"],
    )
    tables["budget"] = pd.DataFrame(
        [
            (round_.index, part, seconds)
            for round_ in played
            for part, seconds in round_.budget.items()
        ],
        columns=["round", "part", "seconds"],
    )
    tables["budget_steps"] = pd.concat(
        done.tagged(record, record.budget.steps.melt(KEYS, var_name="part", value_name="seconds"))
        for record in done.records
    )
    for name in ("learning", "accounts"):  # 0: no edge round, e.g. the set-up and evaluations
        table = tables[name]
        tags = {tag: table[tag].fillna(0).astype(int) for tag in TAGS if tag in table}
        tables[name] = table.assign(**tags)
    return tables


def write_run(done: Emulation, folder: Path) -> None:
    """Write a run directory except for its manifest."""
    for name, table in tables_of(done).items():
        write_whole(folder / f"{name}.parquet", partial(table.to_parquet, index=False))
    if done.state:
        write_whole(folder / "adapters.safetensors", lambda path: path.write_bytes(done.state))
    done.channel.now.save(folder / "trace.npz")
    text = json.dumps(done.scenario.model_dump(mode="json"), indent=1)
    write_whole(folder / "scenario.json", lambda p: p.write_text(text + "\n", encoding="utf-8"))


def passes_in_short(passes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Batches, passes and measured times of the server, by split."""
    short: dict[int, dict[str, Any]] = {}
    for noted in passes:
        entry = short.setdefault(
            noted["split"], {"split": noted["split"], "batches": 0, "passes": 0}
        )
        entry["batches"] += sum(noted["passes"])
        entry["passes"] += len(noted["passes"])
        entry["measured"] = noted["pass_times"]
    return list(short.values())
