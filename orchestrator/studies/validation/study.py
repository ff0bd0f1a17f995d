# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A validation: an analytical model held against engine, packets and kernel over a space.

The engine plays every point of a scrambled Sobol design; the packets and the kernel play those that
say most: the worst, those at the edge of the tolerance, and the design's first, which fill the
space. Each finished job is kept in the folder, so that a validation that was interrupted goes on.
"""

import contextlib
import hashlib
import json
import math
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import qmc, sobol_indices

from orchestrator.analysis import metrics
from orchestrator.campaign.cluster import POOL, worked
from orchestrator.engine.plan import Array
from orchestrator.records.manifest import source_sha256
from orchestrator.scenario.schema import Scenario
from orchestrator.studies.validation import kernel
from orchestrator.studies.validation.outcome import RESAMPLES, TOLERANCE, Asked, Validation
from orchestrator.studies.validation.region import Region, region
from orchestrator.studies.validation.shrink import (
    WRONG,
    limit_of,
    margin_of,
    shrunk,
    simplest_start,
    worst_point,
)
from orchestrator.studies.validation.space import features, tree_at
from orchestrator.studies.validation.worker import (
    ROUNDING,
    Player,
    channels,
    margin,
    parts,
    play,
)
from orchestrator.theory.models import Said, model
from testbed.core.errors import InputError, RunError
from testbed.core.progress import Progress, silent
from testbed.host.dask_cluster import Cluster
from testbed.system.files import check_no_link, write_json

TOGETHER = 250
"""Points of a job, at most."""
FEWEST = 16
"""Samples, at least."""
FEWEST_SOBOL = 64
"""Rows of each of Saltelli's two designs, at least: below, the indices' intervals mean nothing."""
SETTINGS = "settings.json"


def validate(
    asked: Asked,
    folder: Path,
    *,
    cluster: Cluster = POOL,
    progress: Progress = silent,
) -> Validation:
    """Hold a model against engine, packets and kernel.

    Args:
        asked: What to validate.
        folder: Where finished jobs are kept and found again.
        cluster: Who computes.
        progress: Told how far it is.

    Raises:
        InputError: No such model or metric, a point is no scenario, or the folder is of another
            validation.
        RunError: The model failed, says nothing anywhere, or all workers were lost.
    """
    metric = asked.metric or model(asked.model, asked.scenario).metric
    metrics.metric(metric)
    tree = asked.scenario.model_dump(mode="json")
    design, keys = _design(asked, tree)
    first, second, exchanged = _saltelli(asked)
    more = [asked.space.keys_at(point) for point in (*first, *second, *exchanged)]
    for point in (*keys, *more):
        tree_at(tree, point, "space")
    work = _Work(asked, folder, cluster, progress)
    answers = work.done("engine", [*keys, *more])
    said = [_said(answer) for answer in answers]
    if all(one is None for one in said[: len(keys)]):
        raise RunError(
            f"model {asked.model!r} says nothing of any point, such as paradigm "
            f"{asked.scenario.paradigm!r}"
        )
    values = {
        name: np.array([a[name] for a in answers[: len(keys)]], float)
        for name in ("engine", "frames")
    }
    engine = np.array([answer["engine"] for answer in answers], float)
    margins = np.array([margin(s, v) for s, v in zip(said, engine, strict=True)])
    own = margins[: len(keys)]
    sensitivity = _sensitivity(asked, _moves(said, engine)[len(keys) :], len(first))
    sizes = np.array(
        [0.0 if s is None else abs(s.error(v)) for s, v in zip(said, engine, strict=True)]
    )
    where = _region(asked, keys, said, sizes[: len(keys)])
    count = max(1, asked.samples // 100) if asked.packets is None else asked.packets
    from_edge = np.abs(sizes[: len(keys)] - where.tolerance)
    telling = _telling(own, from_edge, max(count, asked.kernel))
    chosen, on_kernel = telling[:count], telling[: asked.kernel]
    values["packets"] = np.full(len(keys), np.nan)
    for at, answer in zip(chosen, work.done("packets", [keys[at] for at in chosen]), strict=True):
        values["packets"][at] = answer["packets"]
    values["kernel"] = np.full(len(keys), np.nan)
    runs = kernel.play(asked.scenario, [keys[at] for at in on_kernel], metric, folder, progress)
    for at, run in zip(on_kernel, runs, strict=True):
        run["point"] = int(at)
        values["kernel"][at] = math.nan if run["value"] is None else run["value"]
    counterexample, worst = _worst(asked, tree, design, own, progress)
    return Validation(
        asked,
        metric,
        keys,
        {name: found for name, found in values.items() if np.isfinite(found).any()},
        said[: len(keys)],
        where,
        sensitivity,
        counterexample,
        worst,
        runs,
    )


def _region(
    asked: Asked, keys: list[dict[str, Any]], said: Sequence[Said | None], sizes: Array
) -> Region:
    """Where the model is right, of the design's points that it speaks of."""
    speaks = np.array([one is not None for one in said[: len(keys)]])
    bounds = any(one is not None and one.is_interval for one in said)
    tolerance = asked.tolerance if asked.tolerance is not None else 0.0 if bounds else TOLERANCE
    names, columns = features(asked.space, keys)
    holds = sizes <= max(tolerance, ROUNDING)
    rng = np.random.default_rng([asked.seed, 2])
    return region(names, columns[speaks], holds[speaks], tolerance, rng)


def _said(answer: dict[str, Any]) -> Said | None:
    if answer["low"] is None:
        return None
    return Said(answer["low"], math.inf if answer["high"] is None else answer["high"], {})


def _moves(said: Sequence[Said | None], values: Array) -> Array:
    """What a sensitivity is of: a value's error, an interval's margin."""
    found = [
        math.nan if s is None else margin(s, v) if s.is_interval else s.error(v)
        for s, v in zip(said, values, strict=True)
    ]
    return np.array(found)


def _sobol(dimensions: int, count: int, seed: Any) -> Array:
    """The first points of a scrambled Sobol sequence, shape [count, dimensions]."""
    sampler = qmc.Sobol(dimensions, scramble=True, rng=np.random.default_rng(seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # counts that are no power of 2
        points: Array = sampler.random(count)
    return points


def _design(asked: Asked, tree: dict[str, Any]) -> tuple[Array, list[dict[str, Any]]]:
    design = _sobol(len(asked.space.keys), asked.samples, [asked.seed, 0])
    return design, [asked.space.keys_at(point) for point in design]


def _saltelli(asked: Asked) -> tuple[Array, Array, Array]:
    """Two designs [n, keys], and the first with each key of the second, shape [keys n, keys]."""
    count = len(asked.space.keys)
    n = max(FEWEST_SOBOL, 2 ** int(math.log2(asked.samples / 8)))
    both = _sobol(2 * count, n, [asked.seed, 1])
    first, second = both[:, :count], both[:, count:]
    exchanged = np.repeat(first[None], count, axis=0)
    for key in range(count):
        exchanged[key, :, key] = second[:, key]
    return first, second, exchanged.reshape(-1, count)


def _sensitivity(asked: Asked, moves: Array, n: int) -> list[dict[str, Any]]:
    """Total Sobol indices of the error, the largest first; 0 where it never changes."""
    names = list(asked.space.keys)
    # Where the model says nothing, it is as wrong as on average.
    filled = np.where(
        np.isfinite(moves), moves, np.nanmean(moves) if np.isfinite(moves).any() else 0
    )
    filled = filled - filled.mean()
    first, second, exchanged = np.split(filled, [n, 2 * n])
    if filled.std() < ROUNDING:
        return [
            {"key": key, "index": 0.0, "first_order": 0.0, "low": 0.0, "high": 0.0} for key in names
        ]
    given = {"f_A": first[None], "f_B": second[None], "f_AB": exchanged.reshape(len(names), 1, n)}
    found = sobol_indices(func=given, n=n)
    low, high = _total_interval(first, second, exchanged.reshape(len(names), n), asked.seed)
    rows = [
        {
            "key": key,
            "index": float(found.total_order[at]),
            "first_order": float(found.first_order[at]),
            "low": float(low[at]),
            "high": float(high[at]),
        }
        for at, key in enumerate(names)
    ]
    return sorted(rows, key=lambda row: -row["index"])


def _total_interval(
    first: Array, second: Array, exchanged: Array, seed: int
) -> tuple[Array, Array]:
    """95 % intervals of the total indices, shape [keys] each, by a bootstrap over the designs.

    Jansen's estimator, as scipy has it; its own bootstrap cannot be repeated by a seed.
    """
    rng = np.random.default_rng([seed, 3])
    found = []
    for _ in range(RESAMPLES // 5):
        drawn = rng.integers(len(first), size=len(first))
        variance = np.concatenate([first[drawn], second[drawn]]).var() or np.inf
        found.append(((first[drawn] - exchanged[:, drawn]) ** 2).mean(axis=1) / (2 * variance))
    low, high = np.quantile(found, [0.025, 0.975], axis=0)
    return low, high


def _telling(margins: Array, from_edge: Array, wanted: int) -> list[int]:
    """Points that say most, by turns: the worst, those nearest to the edge of the tolerance, and
    the design's first."""
    usable = np.flatnonzero(np.isfinite(margins))
    orders = [
        usable[np.argsort(margins[usable], kind="stable")],
        usable[np.argsort(from_edge[usable], kind="stable")],
        usable,
    ]
    chosen = dict.fromkeys(int(at) for at in np.array(orders).T.ravel())
    return list(chosen)[:wanted]


def _worst(
    asked: Asked, tree: dict[str, Any], design: Array, margins: Array, progress: Progress
) -> tuple[Scenario | None, dict[str, Any]]:
    """The counterexample, if any, and what is known of the worst case."""
    with channels() as kept:
        player = Player(asked.model, asked.metric, kept)
        of = margin_of(player)
        rng = np.random.default_rng([asked.seed, 4])
        progress("worst case", 0, 3)
        point, found = worst_point(
            asked.space, tree, design, margins, of, max(100, asked.samples // 4), rng
        )
        keys = asked.space.keys_at(point)
        worst = {"keys": keys, **_about(player, tree_at(tree, keys, "space"))}
        if found >= -WRONG:
            progress("worst case", 3, 3)
            return None, worst
        progress("worst case", 1, 3)
        limit = limit_of(found, bool(worst["is_interval"]))
        start = simplest_start(asked.space, tree, point, design, margins, of, limit, rng)
        progress("worst case", 2, 3)
        simple = shrunk(start, of, limit)
        progress("worst case", 3, 3)
        return simple, worst | {"simplest": _about(player, simple)}


def _about(player: Player, scenario: Scenario) -> dict[str, Any]:
    played = player.play(scenario)
    asked = player.model(scenario)
    said = played.said
    about: dict[str, Any] = {
        "engine": played.engine,
        "frames": played.frames,
        "is_interval": said is not None and said.is_interval,
        "error": None if said is None else played.error,
        "margin": None if said is None else played.margin,
        "model": None
        if said is None
        else [said.low_s, said.high_s if math.isfinite(said.high_s) else None],
    }
    latency = (
        player.metric(scenario) == "latency_s"
        and not scenario.faults.events
        and scenario.faults.random is None
    )
    if said is not None and latency:
        with contextlib.suppress(RunError):
            about["budget"] = parts(asked, played.case)
    return about


def check_folder(asked: Asked, folder: Path) -> None:
    """Refuse a folder in which something else lies than this validation, or nothing.

    Raises:
        InputError: Names it.
    """
    check_no_link(folder)
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError(f"`out`: {folder} is no folder")
    settings = folder / SETTINGS
    if not settings.is_file():
        if any(folder.iterdir()):
            raise InputError(f"`out`: {folder} exists already and holds no validation")
    elif json.loads(settings.read_text("utf-8")) != asked.to_json():
        raise InputError(f"`out`: {folder} holds another validation; ask as then, or elsewhere")


class _Work:
    """Jobs, and the answers of those that are finished."""

    def __init__(self, asked: Asked, folder: Path, cluster: Cluster, progress: Progress):
        self._asked = asked
        self._folder = folder
        self._cluster = cluster
        self._progress = progress
        self._task = {
            "source_sha256": source_sha256(),
            "scenario": asked.scenario.model_dump(mode="json"),
            "model": asked.model,
            "metric": asked.metric,
        }
        check_folder(asked, folder)
        (folder / "parts").mkdir(parents=True, exist_ok=True)
        write_json(folder / SETTINGS, asked.to_json())

    def done(self, by: str, keys: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The answers about points, in their order; those that are kept are not asked for again."""
        points = [{"id": str(at), "keys": point} for at, point in enumerate(keys)]
        jobs = list(self._jobs(by, points))
        task = self._task | {"by": by}
        digests: dict[str, list[dict[str, Any]]] = {self._digest(task, job): job for job in jobs}
        found: dict[str, dict[str, Any]] = {}
        missing: dict[str, Sequence[dict[str, Any]]] = {}
        for digest, job in digests.items():
            path = self._folder / "parts" / f"{digest}.json"
            if path.is_file():
                found |= {a["id"]: a for a in json.loads(path.read_text("utf-8"))}
            else:
                missing[digest] = job
        what = "points" if by == "engine" else "points on packets"
        self._progress(what, len(found), len(points))
        of_job = {point["id"]: digest for digest, job in missing.items() for point in job}
        waiting = {digest: len(job) for digest, job in missing.items()}
        with contextlib.closing(
            worked(play, task, list(missing.values()), self._cluster)
        ) as answers:
            for answer in answers:
                if "failure" in answer:
                    why = answer["failure"]  # of a lost worker, with what else is known of it
                    raise RunError(why["failure"] if isinstance(why, dict) else why)
                found[answer["id"]] = _finite(answer)
                digest = of_job[answer["id"]]
                waiting[digest] -= 1
                if not waiting[digest]:
                    kept = [found[point["id"]] for point in missing[digest]]
                    write_json(self._folder / "parts" / f"{digest}.json", kept)
                self._progress(what, len(found), len(points))
        return [found[str(at)] for at in range(len(points))]

    def _jobs(self, by: str, points: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
        """Points in the order of their placements, so that few channels are made twice."""
        if by == "packets":
            yield from ([point] for point in points)
            return
        ordered = sorted(
            points, key=lambda point: (str(point["keys"].get("seed")), int(point["id"]))
        )
        for at in range(0, len(ordered), TOGETHER):
            yield ordered[at : at + TOGETHER]

    @staticmethod
    def _digest(task: dict[str, Any], job: Any) -> str:
        text = json.dumps([task, job], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _finite(answer: dict[str, Any]) -> dict[str, Any]:
    """Without infinity and what is no number, which JSON has not."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in answer.items()
    }
