# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A worker's part of a campaign: it computes points and returns their files.

Arguments and results are JSON values and bytes. The files that a scenario names must have the same
paths on the worker and on the machine that submits the points, and their contents are checked.
"""

import io
import json
import logging
import os
import platform
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ns3_scenarios import child
from ns3_scenarios.trace import ChannelSource
from orchestrator.analysis import metrics
from orchestrator.analysis.learned import curve_of
from orchestrator.analytical.lower_bound import lower_bound
from orchestrator.campaigning.spec import PointOptions, digest_of
from orchestrator.engine.fdma import ShannonFdma
from orchestrator.engine.plan import Array
from orchestrator.engine.radio import radio_access
from orchestrator.policies.registry import Timed, decider, evaluate
from orchestrator.records.directory import MANIFEST
from orchestrator.records.manifest import environment, now, source_sha256
from orchestrator.rounds.loop import predict
from orchestrator.rounds.simulation import split_costs
from orchestrator.scenario.channel import Channel, open_source
from orchestrator.scenario.loading import validate
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError, RunError
from testbed.core.timeline import Timeline
from testbed.system.leftovers import temporary_folder

log = logging.getLogger(__name__)

Files = dict[str, bytes]
"""By path in the point's folder: contents of a file."""

Tables = dict[str, pd.DataFrame]
"""By name of a Parquet file (without suffix): its table."""

NOT_RETURNED = {"report.html"}
"""Files that the orchestrator writes itself with its own version of the templates."""


def play(task: dict[str, Any], points: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Compute points with the same channel, one after the other.

    Args:
        task: What all points share: `source_sha256` of the submitting program, its `argv` and
            `command`, and `unfinished`, a folder on this machine for the checkpoints of long
            points, or None.
        points: Each with `id`, `mode`, `scenario` (JSON), `trace`, `files`, `steps_rounds` and
            `beside` (see `spec.PointOptions`).

    Returns:
        For each point its `id` and either its `files` or its `failure`, as one line and in full.
    """
    answers: list[dict[str, Any]] = []
    first, *more = points
    try:
        child.keep()  # ns-3's process, for the channels of further jobs
        check_same(task, points)
        scenario = validate(json.loads(first["scenario"]), "campaign")
        trace = None if first["trace"] is None else Path(first["trace"])
        made_with = environment()
        with open_source(scenario, trace, by_slot=first["mode"] == "up") as source:
            if more and Channel.of(source).horizon is not None:  # each session flies its own way
                return [answer for point in points for answer in play(task, [point])]
            for point in points:
                answers.append(_played(task, point, source, made_with))
    except Exception as error:
        answers += [_failed(point, error) for point in points[len(answers) :]]
    return answers


def release() -> None:
    """End the guest that this thread keeps for further points, and the process of ns-3."""
    from orchestrator.emulated.guests import end_warm

    end_warm()
    child.end_kept()


def check_same(task: dict[str, Any], points: Sequence[dict[str, Any]]) -> None:
    """Check that this worker has the sources and files of the submitting machine.

    Raises:
        RunError: It has others; the message names the worker.
    """
    if source_sha256() != task["source_sha256"]:
        raise RunError(f"worker on {platform.node()}: runs other sources than the orchestrator")
    for path, digest in {p: d for point in points for p, d in point["files"].items()}.items():
        if digest_of(Path(path)) != digest:
            raise RunError(f"worker on {platform.node()}: {path} has other contents there")


def _failed(point: dict[str, Any], error: Exception) -> dict[str, Any]:
    line = " ".join(str(error).split()) or type(error).__name__
    return {
        "id": point["id"],
        "failure": {
            "failure": line if isinstance(error, (InputError, RunError)) else repr(error),
            "traceback": traceback.format_exc(),
            "host": platform.node(),
            "when": now(),
        },
    }


def _played(
    task: dict[str, Any], point: dict[str, Any], source: ChannelSource, made_with: dict[str, Any]
) -> dict[str, Any]:
    scenario = validate(json.loads(point["scenario"]), "campaign")
    trace = None if point["trace"] is None else Path(point["trace"])
    began, began_s = now(), time.monotonic()
    try:
        if point["mode"] == "run":
            files = _emulated(scenario, source, trace, PointOptions.model_validate(point["beside"]))
        elif point["mode"] == "up":
            options = PointOptions.model_validate(point["beside"])
            files = _session(scenario, source, trace, options)
        else:
            files = _predicted(scenario, source, point, task.get("unfinished"))
    except Exception as error:
        return _failed(point, error)
    about = json.loads(files.pop(MANIFEST, b"null")) or {
        **made_with,
        "seed": scenario.seed,
        "started": began,
        "finished": now(),
        "status": "complete",
        "valid": True,
        "validity": [],
    }
    about |= {
        **{name: task[name] for name in ("argv", "command")},
        "host": platform.node(),
        "process": os.getpid(),
        "wall_s": round(time.monotonic() - began_s, 3),
    }
    files[MANIFEST] = _json(about)
    files["point.json"] = _json(point)
    return {"id": point["id"], "files": files}


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()


def _predicted(
    scenario: Scenario, source: ChannelSource, point: dict[str, Any], unfinished: str | None
) -> Files:
    options = PointOptions.model_validate(point["beside"])
    if options.train is not None:
        folder = None if unfinished is None else Path(unfinished) / point["id"]
        return _trained(scenario, source, options.train, folder)
    tables = _tables(scenario, source, point["steps_rounds"], options)
    if options.bound_rounds:
        rounds = tables["rounds"]
        rounds["bound"] = _bound(scenario, source, rounds.iloc[-options.bound_rounds :])
    return _files(tables)


def _tables(
    scenario: Scenario, source: ChannelSource, steps_rounds: int, options: PointOptions
) -> Tables:
    decide = decider(scenario, source)
    timed = None if decide is None else Timed(decide)
    timeline = predict(scenario, source, profile_of(scenario), decide=timed)
    rounds = timeline.summary().assign(
        split=[round_.common_split for round_ in timeline], kind="predicted"
    )
    if timed is not None:
        rounds["decision_s"] = timed.by_round(scenario, len(rounds))
    tables = {"rounds": rounds}
    if timeline.rounds:
        tables["energy"] = _energy(np.array([round_.energy_j for round_ in timeline.rounds]))
    if steps_rounds:
        tables["predicted"] = Timeline(timeline.rounds[:steps_rounds]).frame()
    if options.metrics:
        tables["metrics"] = _metrics(options.metrics, timeline)
    if options.learn:
        tables |= _learned(scenario, timeline)
    return tables


def _learned(scenario: Scenario, timeline: Timeline) -> Tables:
    """What was learned once, at the times of these rounds, and its curve."""
    from orchestrator.emulated.trajectory import learned_once

    learning = learned_once(scenario).timed(scenario, timeline)
    return {"learning": learning, "curves": curve_of(learning, timeline)}


def _metrics(requested: Sequence[str], timeline: Timeline) -> pd.DataFrame:
    """Metrics of a timeline, one row per number."""
    found: dict[str, float] = {}
    for name in requested:
        found |= metrics.values_of(name, metrics.metric(name), timeline)
    return pd.DataFrame({"metric": list(found), "value": list(found.values())})


def _energy(energy_j: Array) -> pd.DataFrame:
    """Mean energy over the rounds of energy_j [N, K], one row per UAV."""
    mean_j = energy_j.mean(axis=0)
    return pd.DataFrame({"client": np.arange(1, len(mean_j) + 1), "energy_j": mean_j})


def _bound(scenario: Scenario, source: ChannelSource, rounds: pd.DataFrame) -> "pd.Series[float]":
    """Below what no allocation could have come in these rounds, by the rows' index."""
    costs = split_costs(scenario, profile_of(scenario))
    start_s, objective = rounds["start_s"].to_numpy(), rounds["objective"].to_numpy()
    slots = ceil(float((start_s + objective).max()) / scenario.slot_s) + 1
    trace = Channel.of(source).trace(slots)
    radio = radio_access(scenario, trace)
    assert isinstance(radio, ShannonFdma)
    bound = lower_bound(costs, radio, trace.values, scenario.slot_s, start_s, objective)
    return pd.Series(bound, rounds.index)


def _trained(scenario: Scenario, source: ChannelSource, variant: str, folder: Path | None) -> Files:
    """Train an agent, then evaluate it for the same number of rounds.

    `rounds.parquet` has the training rounds with sampled actions; `deterministic.parquet` has
    rounds on the same channel, from its start, with the agent's likeliest split and mean shares.
    """
    from orchestrator.policies.agent import CHECKPOINT, agent_policy, train

    with ExitStack() as stack:
        if folder is None:
            folder = stack.enter_context(temporary_folder("point"))
        folder.mkdir(parents=True, exist_ok=True)
        again = partial(train, scenario, folder, variant=variant, rounds=scenario.rounds)
        try:
            rounds = again()
        except InputError as error:
            if not (folder / CHECKPOINT).is_file():
                raise
            log.warning("%s; the training begins again", error)
            (folder / CHECKPOINT).unlink()
            rounds = again()
        decided = evaluate(scenario, source, agent_policy(scenario, folder))
        tables = {"rounds": rounds.assign(kind="predicted"), "deterministic": decided}
        return _files(tables) | {CHECKPOINT: (folder / CHECKPOINT).read_bytes()}


def _files(tables: Tables) -> Files:
    files = {}
    for name, table in tables.items():
        buffer = io.BytesIO()
        table.to_parquet(buffer, index=False)
        files[f"{name}.parquet"] = buffer.getvalue()
    return files


def _emulated(
    scenario: Scenario, source: ChannelSource, trace: Path | None, options: PointOptions
) -> Files:
    # Imported here because predictions do not need them.
    from orchestrator.emulated.guests import from_outside, keep_warm
    from orchestrator.emulated.options import RunOptions
    from orchestrator.emulated.run import run
    from orchestrator.emulated.virtual import run_in_guest
    from orchestrator.records.reader import read_run

    with temporary_folder("point") as folder:
        if from_outside(scenario):
            keep_warm()
            run_in_guest(scenario, trace, folder)
            measured = read_run(folder).measured
        else:
            done = run(scenario, source, folder, RunOptions(decide=decider(scenario, source)))
            measured = Timeline(done.measured)
        computed = {"metrics": _metrics(options.metrics, measured)} if options.metrics else {}
        if options.learn:
            computed |= _learned(scenario, measured)
        return files_in(folder) | _files(computed)


def _session(
    scenario: Scenario, source: ChannelSource, trace: Path | None, options: PointOptions
) -> Files:
    from orchestrator.emulated.guests import keep_warm
    from orchestrator.emulated.repeated_session import play_request

    keep_warm()
    with temporary_folder("point") as temporary:
        folder = temporary / "session"
        found = play_request(scenario, source, trace, folder, options)
        # Home folders may be large: only files that were read are kept.
        nodes = {str(node) for read in options.reads.values() for node in read.paths(scenario)}
        files = files_in(folder, lambda name: not name.startswith("nodes/") or name in nodes)
        table = pd.DataFrame({"metric": list(found), "value": list(found.values())})
        return files | _files({"metrics": table})


def files_in(folder: Path, wanted: Callable[[str], bool] = lambda _: True) -> Files:
    """The contents of the files in a folder, by their paths in it."""
    return {
        name: path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in NOT_RETURNED
        if wanted(name := str(path.relative_to(folder)))
    }
