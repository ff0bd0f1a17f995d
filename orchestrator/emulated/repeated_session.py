# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Sessions that a campaign repeats, and the metrics of their output."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from ns3_scenarios.trace import ChannelSource
from orchestrator.emulated.guests import from_outside, in_guest
from orchestrator.emulated.options import SessionOptions
from orchestrator.emulated.programs import commands_of
from orchestrator.emulated.session_request import Read, SessionRequest, nodes_named
from orchestrator.emulated.up import Outcome, check_playable, play
from orchestrator.engine.core_library import library
from orchestrator.records.tables import read_own
from orchestrator.scenario.channel import open_source
from orchestrator.scenario.loading import validate
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import RunError


def play_request(
    scenario: Scenario,
    source: ChannelSource,
    trace: Path | None,
    out: Path,
    request: SessionRequest,
) -> dict[str, float]:
    """Play a session, in virtual time if the scenario has that clock.

    Args:
        scenario: Scenario with the commands of the nodes.
        source: Channel of the scenario.
        trace: The channel as a file; None: ns-3 makes it.
        out: Folder to create.
        request: Settings of the session.

    Returns:
        The numbers that were requested, and `SESSION_METRICS`, by name.

    Raises:
        InputError: Something does not fit; the message names it.
        RunError: The session or one of its commands failed, or a number is missing.
    """
    if from_outside(scenario):
        job = {
            "scenario": scenario.model_dump(mode="json"),
            "trace": None if trace is None else str(trace.absolute()),
            "out": str(out.absolute()),
            "request": request.model_dump(
                mode="json", include=set(SessionRequest.model_fields), exclude_unset=True
            ),
        }
        library()  # A guest would need minutes to build it.
        emulation = scenario.emulation
        in_guest("session", job, memory=emulation.memory_bytes, starts_ns=emulation.starts_ns)
    else:
        _play(scenario, source, out, request)
    return metrics_of(out, scenario, request.reads)


def metrics_of(folder: Path, scenario: Scenario, reads: Mapping[str, Read]) -> dict[str, float]:
    """`SESSION_METRICS` and the requested numbers of a session.

    Raises:
        RunError: A number is missing; the message names it.
    """
    table = read_own(folder / "session.parquet")
    return _metrics_of_table(table, scenario.slot_s) | {
        name: read.value(folder, scenario, f"reads.{name}") for name, read in reads.items()
    }


def _metrics_of_table(table: pd.DataFrame, slot_s: float) -> dict[str, float]:
    """`SESSION_METRICS` of a session's table."""
    slots = table["slot"].nunique()
    found = {"session_s": float(slots * slot_s)}
    for name, way in (("uplink", "up"), ("downlink", "down")):
        own = table[table["direction"] == way]
        carried, offered = (float(own[f"{what}_bytes"].sum()) for what in ("carried", "offered"))
        found[f"{name}_bps"] = 8 * carried / found["session_s"] if slots else math.nan
        found[f"{name}_use"] = carried / offered if offered else math.nan
    return found


def _play(scenario: Scenario, source: ChannelSource, out: Path, request: SessionRequest) -> None:
    check_playable(scenario)
    commands = commands_of(scenario, {})
    until = [node for name in request.until for node in nodes_named(name, scenario, "until")]
    options = SessionOptions(downlink=request.downlink, seconds=request.seconds, until=until)
    done = play(scenario, source, out, commands, options)
    if not done.succeeded:
        raise RunError(_why_not(done, out))


def _why_not(done: Outcome, out: Path) -> str:
    said = []
    for program in done.counting:
        if program.returncode != 0 or program.stopped:
            log = (out / "logs" / f"{program.node}.log").read_text(errors="replace").split("\n")
            words = next((line.strip() for line in reversed(log) if line.strip()), "")
            said.append(f"{program}" + (f", saying {words[:200]!r}" if words else ""))
    return "; ".join(said)


def play_job(job: dict[str, Any]) -> None:
    """Play the session of a job of `play_request`, inside the guest."""
    scenario = validate(job["scenario"], "session")
    with open_source(scenario, job["trace"] and Path(job["trace"]), by_slot=True) as source:
        _play(scenario, source, Path(job["out"]), SessionRequest.model_validate(job["request"]))
