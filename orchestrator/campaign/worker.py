"""What a worker does: compute points, and answer with the files that they come to.

Arguments and answers are plain values, JSON text and bytes, so that a worker needs nothing of the
machine that asks: the files that a scenario names must lie at the same path on both, and their
content is checked.
"""

import io
import json
import os
import platform
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ns3_scenarios.trace import ChannelSource
from orchestrator.campaign.spec import Mode, digest_of
from orchestrator.policies.registry import decider
from orchestrator.prediction.rounds import predict
from orchestrator.runs.directory import MANIFEST
from orchestrator.runs.manifest import environment, now, source_sha256
from orchestrator.runs.run import run
from orchestrator.scenario.channel import open_source
from orchestrator.scenario.loading import validate
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError, RunError
from testbed.core.timeline import Timeline

Files = dict[str, bytes]
"""By path within the point's folder."""

LEFT_ON_WORKER = {"report.html"}
"""The orchestrator writes reports itself, in the look of its own time."""


def play(task: dict[str, Any], points: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Compute points that meet the same channel, one after the other.

    Args:
        task: What is the same for all: `source_sha256` of the program that asks, its `command`.
        points: Each with `id`, `mode`, `scenario` (JSON), `trace`, `files`, `steps_rounds`.

    Returns:
        For each point its `id` and either its `files` or its `failure`, in a line and whole.
    """
    answers: list[dict[str, Any]] = []
    first = points[0]
    try:
        _check(task, points)
        scenario = validate(json.loads(first["scenario"]), "campaign")
        trace = None if first["trace"] is None else Path(first["trace"])
        with open_source(scenario, trace) as source:
            for point in points:
                answers.append(_played(task, point, source))
    except Exception as error:
        answers += [_failed(point, error) for point in points[len(answers) :]]
    return answers


def _check(task: dict[str, Any], points: Sequence[dict[str, Any]]) -> None:
    if source_sha256() != task["source_sha256"]:
        raise RunError(f"worker on {platform.node()}: runs other sources than the orchestrator")
    for path, digest in {p: d for point in points for p, d in point["files"].items()}.items():
        if digest_of(Path(path)) != digest:
            raise RunError(f"worker on {platform.node()}: {path} holds something else there")


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


def _played(task: dict[str, Any], point: dict[str, Any], source: ChannelSource) -> dict[str, Any]:
    scenario = validate(json.loads(point["scenario"]), "campaign")
    began, began_s = now(), time.monotonic()
    try:
        files = MODES[point["mode"]](scenario, source, point["steps_rounds"])
    except Exception as error:
        return _failed(point, error)
    about = json.loads(files.pop(MANIFEST, b"null")) or {
        **environment(),
        "seed": scenario.seed,
        "started": began,
        "finished": now(),
        "status": "complete",
        "valid": True,
        "validity": [],
    }
    about |= {
        "command": task["command"],
        "host": platform.node(),
        "process": os.getpid(),
        "wall_s": round(time.monotonic() - began_s, 3),
    }
    files[MANIFEST] = _json(about)
    files["point.json"] = _json(point)
    return {"id": point["id"], "files": files}


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()


def _predicted(scenario: Scenario, source: ChannelSource, steps_rounds: int) -> Files:
    timeline = predict(scenario, source, profile_of(scenario), decide=decider(scenario))
    tables = {"rounds": timeline.summary().assign(kind="predicted")}
    if steps_rounds:
        tables["predicted"] = Timeline(timeline.rounds[:steps_rounds]).frame()
    return {f"{name}.parquet": _parquet(table) for name, table in tables.items()}


def _parquet(table: pd.DataFrame) -> bytes:
    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False)
    return buffer.getvalue()


def _emulated(scenario: Scenario, source: ChannelSource, _: int) -> Files:
    with tempfile.TemporaryDirectory(prefix="testbed-point-") as temporary:
        folder = Path(temporary)
        run(scenario, source, folder, decide=decider(scenario))
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name not in LEFT_ON_WORKER
        }


MODES: dict[Mode, Callable[[Scenario, ChannelSource, int], Files]] = {
    "predict": _predicted,
    "run": _emulated,
}
