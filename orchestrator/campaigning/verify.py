# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Computes a campaign's points again and compares them with the stored results.

Predictions must be equal bit for bit; on another kind of processor the last bits of logarithms may
differ, which is reported. Measurements must agree within a tolerance. Differences of results and of
the environments are listed.
"""

import contextlib
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from orchestrator.campaigning.cluster import HERE, compute_points
from orchestrator.campaigning.folder import CampaignFolder, manifest_of, stored_point
from orchestrator.campaigning.spec import Cell, Point, cells
from orchestrator.campaigning.worker import Files
from orchestrator.records.directory import MANIFEST
from orchestrator.records.manifest import environment
from orchestrator.records.tables import read_own
from testbed.core.errors import InputError
from testbed.core.trees import differing
from testbed.host.dask_cluster import Cluster

EXACT = 1e-12
"""Relative difference up to which predictions count as equal."""
TOLERANCE = 0.05
"""Default relative tolerance of measured latencies."""
LEAST_PART_S = 5e-5
"""Smaller parts of a deviation are not listed, s."""

Verdict = Literal["equal", "rounding", "within", "differs", "failed"]
VERDICT_TEXTS: dict[Verdict, str] = {
    "equal": "equal bit for bit",
    "rounding": f"equal to {EXACT:g}",
    "within": "within the tolerance",
    "differs": "DIFFERS",
    "failed": "FAILED",
}
PREDICTED = tuple(
    f"{name}.parquet"
    for name in ("rounds", "predicted", "predicted_wire", "energy", "metrics", "deterministic")
)
"""Files of a predicted point that are equal to those of its replay."""
REAL_TIME_COLUMNS = ["decision_s"]
"""Columns of real time, which differ in every run."""


@dataclass(frozen=True)
class Replay:
    """The comparison of a point that was computed again."""

    cell: Cell
    """One of the point's cells."""
    verdict: Verdict
    detail: str

    @property
    def ok(self) -> bool:
        """Whether the results agree."""
        return self.verdict not in {"differs", "failed"}


@dataclass(frozen=True)
class Verification:
    """Result of computing points again."""

    replays: list[Replay]
    environment: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By property of the environment that differs: the value then and the value now."""

    @property
    def ok(self) -> bool:
        """Whether the results of all points agree."""
        return all(replay.ok for replay in self.replays)

    def lines(self) -> Iterator[str]:
        """The result in words: number of points per verdict, and every difference."""
        for verdict, text in VERDICT_TEXTS.items():
            found = [replay for replay in self.replays if replay.verdict == verdict]
            if found:
                yield f"{len(found)} points {text}"
            for replay in found:
                if replay.detail:
                    axes = ", ".join(
                        f"{name} = {label}" for name, label in replay.cell.axes.items()
                    )
                    place = f"{replay.cell.study} ({axes}), seed {replay.cell.seed}"
                    yield f"  {replay.cell.point.id} {place}: {replay.detail}"
        yield from environment_lines(self.environment)

    def to_json(self) -> dict[str, Any]:
        """The result as JSON values."""
        return {
            "ok": self.ok,
            "points": [
                {
                    "point": replay.cell.point.id,
                    "study": replay.cell.study,
                    "axes": replay.cell.axes,
                    "seed": replay.cell.seed,
                    "mode": replay.cell.point.mode,
                    "verdict": VERDICT_TEXTS[replay.verdict],
                    "detail": replay.detail,
                }
                for replay in self.replays
            ],
            "environment": environment_json(self.environment),
        }


def verify(
    folder: CampaignFolder,
    *,
    sample: int | None = None,
    tolerance: float = TOLERANCE,
    cluster: Cluster = HERE,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Verification:
    """Compute finished points again and compare the results.

    Args:
        folder: The campaign's directory, which is not changed.
        sample: Number of points, drawn with the campaign's seed; None: all.
        tolerance: Relative tolerance of each measured round's latency.
        cluster: Workers.
        progress: Called with the number of points.

    Raises:
        InputError: The directory has no finished points, or the cluster cannot be used.
        RunError: All workers were lost.
    """
    campaign = folder.campaign()
    by_id = {cell.point.id: cell for cell in cells(campaign)}
    finished = folder.finished([cell.point for cell in by_id.values()])
    if not finished:
        raise InputError(f"{folder.path}: no point is finished yet")
    chosen = sorted(finished)
    if sample is not None and sample < len(chosen):
        rng = np.random.default_rng(campaign.seed)
        chosen = sorted(rng.choice(chosen, sample, replace=False).tolist())
    stored = [(by_id[id_], finished[id_]) for id_ in by_id if id_ in set(chosen)]
    points = [stored_point(path) for _, path in stored]
    return replay(stored, points, campaign.seed, tolerance, cluster, progress)


def replay(
    stored: Sequence[tuple[Cell, Path]],
    points: Sequence[Point],
    seed: int,
    tolerance: float = TOLERANCE,
    cluster: Cluster = HERE,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Verification:
    """Compute points again and compare each with its folder.

    Args:
        stored: For each point one of its cells, and its folder.
        points: The points in the same order, with today's scenario keys.
        seed: Seed of the order of execution.
        tolerance: Relative tolerance of each measured round's latency.
        cluster: Workers.
        progress: Called with the number of points.
    """
    places = {point.id: place for point, place in zip(points, stored, strict=True)}
    replays: dict[str, Replay] = {}
    environments: dict[str, tuple[str, str]] = {}
    with contextlib.closing(compute_points(points, seed, cluster)) as answers:
        for answer in answers:
            id_ = answer["id"]
            cell, path = places[id_]
            if "failure" in answer:
                replays[id_] = Replay(cell, "failed", answer["failure"]["failure"])
            else:
                verdict, detail = compare(path, answer["files"], tolerance)
                replays[id_] = Replay(cell, verdict, detail)
                now = json.loads(answer["files"][MANIFEST])
                environments |= environment_differences(manifest_of(path), now)
            progress(len(replays), len(places))
    return Verification([replays[id_] for id_ in places], dict(sorted(environments.items())))


def compare(stored: Path, files: Files, tolerance: float = TOLERANCE) -> tuple[Verdict, str]:
    """Compare a stored point with its replay: the verdict, and the first or largest difference."""
    if "session.parquet" in files:
        return _session(stored, files, tolerance)
    worst = 0.0
    measured = ""
    for file in PREDICTED:
        name = file.removesuffix(".parquet")
        # With measured rounds, only the predictions are equal.
        if file not in files or (measured and name not in ("predicted", "predicted_wire")):
            continue
        if not (stored / file).is_file():
            return "differs", f"{name}: is missing there"
        then = read_own(stored / file)
        now = pd.read_parquet(io.BytesIO(files[f"{name}.parquet"]))
        then, now = (t.drop(columns=REAL_TIME_COLUMNS, errors="ignore") for t in (then, now))
        if then.shape != now.shape or list(then) != list(now):
            return "differs", f"{name}: {then.shape} there, {now.shape} here (rows, columns)"
        if name == "rounds" and "measured" in set(then["kind"]):
            verdict, measured = _measured(then, now, tolerance, _budgets(stored, files))
            if verdict == "differs":
                return verdict, measured
            then, now = (t[t["kind"] != "measured"] for t in (then, now))
        for column, distance in distances(then, now):
            worst = max(worst, float(distance.max(initial=0.0)))
            if worst > EXACT:
                row = int(distance.argmax())
                key = next(iter(then)) if "round" not in then else "round"
                values = f"{then[column].iloc[row]} there, {now[column].iloc[row]} here"
                return "differs", f"{name}, {key} {then[key].iloc[row]}: {column} {values}"
    if measured:
        return "within", measured
    return ("equal", "") if worst == 0 else ("rounding", f"largest difference {worst:.1e}")


def distances(then: pd.DataFrame, now: pd.DataFrame) -> Iterator[tuple[str, Any]]:
    """Each column with the distances of its rows: relative for numbers, else 0 or infinite."""
    for column in then.columns:
        a, b = then[column].to_numpy(), now[column].to_numpy()
        if a.dtype.kind == "f":
            with np.errstate(invalid="ignore", divide="ignore"):
                relative = np.abs(a - b) / np.maximum(np.abs(a), np.abs(b))
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            yield column, np.where(same, 0.0, np.nan_to_num(relative, nan=np.inf))
        else:
            yield column, np.where(a == b, 0.0, np.inf)


def _session(stored: Path, files: Files, tolerance: float) -> tuple[Verdict, str]:
    """Compare sessions by the number with the largest relative difference."""
    there = read_own(stored / "metrics.parquet").set_index("metric")
    here = pd.read_parquet(io.BytesIO(files["metrics.parquet"])).set_index("metric")
    if set(there.index) != set(here.index):
        return "differs", f"numbers: {sorted(there.index)} there, {sorted(here.index)} here"
    ((_, off),) = distances(there, here.loc[there.index])
    worst = int(off.argmax())
    name, largest = there.index[worst], float(off[worst])
    if largest == 0:
        return "equal", ""
    values = f"{there.loc[name, 'value']:.6g} there, {here.loc[name, 'value']:.6g} here"
    return ("differs" if largest > tolerance else "within"), f"session: {name} {values}"


def _measured(
    then: pd.DataFrame, now: pd.DataFrame, tolerance: float, budgets: Sequence[pd.DataFrame]
) -> tuple[Verdict, str]:
    columns = ["round", "latency_s"]
    there, here = (t.loc[t["kind"] == "measured", columns].to_numpy(float) for t in (then, now))
    off = here[:, 1] / there[:, 1] - 1
    worst = int(np.abs(off).argmax())
    parts_s: dict[str, float] = {}
    if budgets:
        parts_s = budget_differences(budgets[0], budgets[1], int(there[worst, 0]))
    text = (
        f"measured, round {there[worst, 0]:.0f}: {there[worst, 1]:.4f} s there, "
        f"{here[worst, 1]:.4f} s here ({off[worst]:+.2%}){explanation(parts_s)}"
    )
    return ("differs" if abs(off[worst]) > tolerance else "within"), text


def _budgets(stored: Path, files: Files) -> list[pd.DataFrame]:
    """Both error budgets by round, there and here; empty if one is missing."""
    name = "budget.parquet"
    if name not in files or not (stored / name).is_file():
        return []
    return [read_own(stored / name), pd.read_parquet(io.BytesIO(files[name]))]


def budget_differences(then: pd.DataFrame, now: pd.DataFrame, index: int) -> dict[str, float]:
    """By part of the error budget: its contribution to the difference of a round's latencies, s.

    If both rounds have the same prediction, the parts add up to the difference exactly.
    """
    there, here = (t[t["round"] == index].set_index("part")["seconds"] for t in (then, now))
    added = here.sub(there, fill_value=0.0)
    return {str(part): float(seconds) for part, seconds in added.items()}


def explanation(parts_s: Mapping[str, float]) -> str:
    """The largest parts of a deviation, as the end of a line."""
    by_size = sorted(parts_s.items(), key=lambda item: -abs(item[1]))
    named = [f"{part} {s * 1e3:+.1f} ms" for part, s in by_size[:3] if abs(s) >= LEAST_PART_S]
    return f": {', '.join(named)}" if named else ""


def environment_differences(
    then: dict[str, Any], now: dict[str, Any]
) -> dict[str, tuple[str, str]]:
    """The properties in which the environments of two manifests differ, then and now."""
    names = environment()
    parts = [{name: manifest.get(name) for name in names} for manifest in (then, now)]
    changes = sorted(differing(parts, "absent").items())
    return {key: (str(before), str(after)) for key, (before, after) in changes}


def environment_lines(differences: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    """The result of `environment_differences` in words."""
    if not differences:
        yield "The environment is the same."
    for name, (then, now) in differences.items():
        yield f"environment: {name}: {then} there, {now} here"


def environment_json(differences: Mapping[str, tuple[str, str]]) -> dict[str, dict[str, str]]:
    """The result of `environment_differences` as JSON values."""
    return {name: {"then": then, "now": now} for name, (then, now) in differences.items()}
