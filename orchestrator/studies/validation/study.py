# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Compares an analytical model with engine, packets and kernel over a space of scenarios.

The engine evaluates every point of a scrambled Sobol design. Packets and kernel evaluate the most
informative ones: the worst, those near the limit of the tolerance, and the design's first, which
fill the space. Finished jobs are stored, so that an interrupted validation resumes.
"""

import contextlib
import hashlib
import json
import logging
import math
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import qmc, sobol_indices

from orchestrator.analysis import metrics
from orchestrator.analytical.models import ModelResult, model
from orchestrator.campaigning.cluster import POOL, run_jobs
from orchestrator.engine.plan import Array
from orchestrator.records.manifest import source_sha256
from orchestrator.scenario.combinations import check
from orchestrator.scenario.schema import Scenario
from orchestrator.studies.validation import emulated_points
from orchestrator.studies.validation.outcome import TOLERANCE, Request, Validation
from orchestrator.studies.validation.region import Region, region
from orchestrator.studies.validation.shrink import (
    LEAST_ERROR,
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
from testbed.core.errors import InputError, RunError
from testbed.core.progress import Progress, silent
from testbed.core.registry import ANALYTICAL_MODELS
from testbed.host.dask_cluster import Cluster
from testbed.system.files import check_no_link, read_json, write_json

log = logging.getLogger(__name__)

MOST_JOB_POINTS = 250
"""Points of a job, at most."""
FEWEST = 16
"""Least number of samples."""
RESAMPLES = 200
"""Number of bootstrap samples of an interval of total indices."""
SETTINGS = "settings.json"


def validate(
    request: Request,
    folder: Path,
    *,
    cluster: Cluster = POOL,
    progress: Progress = silent,
) -> Validation:
    """Compare a model with engine, packets and kernel.

    Args:
        request: What to validate.
        folder: Folder in which finished jobs are stored.
        cluster: Workers.
        progress: Called with the number of points.

    Raises:
        InputError: There is no such model or metric, a point is not a valid scenario, or the folder
            is that of another validation.
        RunError: The model failed or does not apply to any point, or all workers were lost.
    """
    metric = request.metric or model(request.model, request.scenario).metric
    metrics.metric(metric)
    of_model = ["constant"] if request.model in ANALYTICAL_MODELS.built_in else []
    check(request.scenario, "validate", *of_model)
    tree = request.scenario.model_dump(mode="json")
    design, keys = _design(request, tree)
    first, second, exchanged = _saltelli(request)
    more = [request.space.keys_at(point) for point in (*first, *second, *exchanged)]
    for point in (*keys, *more):
        tree_at(tree, point, "space")
    jobs = _Jobs(request, folder, cluster, progress)
    answers = jobs.results("engine", [*keys, *more])
    results = [_result(answer) for answer in answers]
    if all(result is None for result in results[: len(keys)]):
        raise RunError(
            f"model {request.model!r} does not apply to any point, e.g. to paradigm "
            f"{request.scenario.paradigm!r}"
        )
    values = {
        name: np.array([a[name] for a in answers[: len(keys)]], float)
        for name in ("engine", "frames")
    }
    engine = np.array([answer["engine"] for answer in answers], float)
    margins = np.array([margin(r, v) for r, v in zip(results, engine, strict=True)])
    own = margins[: len(keys)]
    sensitivity = _sensitivity(request, _responses(results, engine)[len(keys) :], len(first))
    sizes = np.array(
        [0.0 if r is None else abs(r.error(v)) for r, v in zip(results, engine, strict=True)]
    )
    where = _region(request, keys, results, sizes[: len(keys)])
    count = max(1, request.samples // 100) if request.packets is None else request.packets
    from_edge = np.abs(sizes[: len(keys)] - where.tolerance)
    informative = _informative(own, from_edge, max(count, request.kernel))
    chosen, on_kernel = informative[:count], informative[: request.kernel]
    values["packets"] = np.full(len(keys), np.nan)
    found = jobs.results("packets", [keys[at] for at in chosen])
    for at, answer in zip(chosen, found, strict=True):
        values["packets"][at] = answer["packets"]
    values["kernel"] = np.full(len(keys), np.nan)
    runs = emulated_points.play(
        request.scenario, [keys[at] for at in on_kernel], metric, folder, progress
    )
    for at, run in zip(on_kernel, runs, strict=True):
        run["point"] = int(at)
        values["kernel"][at] = math.nan if run["value"] is None else run["value"]
    counterexample, worst = _worst(request, tree, design, own, progress)
    return Validation(
        request,
        metric,
        keys,
        {name: value for name, value in values.items() if np.isfinite(value).any()},
        results[: len(keys)],
        where,
        sensitivity,
        counterexample,
        worst,
        runs,
    )


def _region(
    request: Request,
    keys: list[dict[str, Any]],
    results: Sequence[ModelResult | None],
    sizes: Array,
) -> Region:
    """The region in which the model is valid, fitted to the points to which it applies."""
    applies = np.array([result is not None for result in results[: len(keys)]])
    bounds = any(result is not None and result.is_interval for result in results)
    tolerance = request.tolerance if request.tolerance is not None else 0.0 if bounds else TOLERANCE
    names, columns = features(request.space, keys)
    holds = sizes <= max(tolerance, ROUNDING)
    rng = np.random.default_rng([request.seed, 2])
    return region(names, columns[applies], holds[applies], tolerance, rng)


def _result(answer: dict[str, Any]) -> ModelResult | None:
    if answer["low"] is None:
        return None
    return ModelResult(answer["low"], math.inf if answer["high"] is None else answer["high"], {})


def _responses(results: Sequence[ModelResult | None], values: Array) -> Array:
    """The quantities for sensitivities: errors of values, margins of intervals."""
    found = [
        math.nan if r is None else margin(r, v) if r.is_interval else r.error(v)
        for r, v in zip(results, values, strict=True)
    ]
    return np.array(found)


def _sobol(dimensions: int, count: int, seed: Any) -> Array:
    """The first points of a scrambled Sobol sequence, shape [count, dimensions]."""
    sampler = qmc.Sobol(dimensions, scramble=True, rng=np.random.default_rng(seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # counts that are not powers of 2
        points: Array = sampler.random(count)
    return points


def _design(request: Request, tree: dict[str, Any]) -> tuple[Array, list[dict[str, Any]]]:
    design = _sobol(len(request.space.keys), request.samples, [request.seed, 0])
    return design, [request.space.keys_at(point) for point in design]


def _saltelli(request: Request) -> tuple[Array, Array, Array]:
    """Two designs, each [n, keys], and the first with each key of the second, [keys n, keys]."""
    count = len(request.space.keys)
    n = request.base_samples
    both = _sobol(2 * count, n, [request.seed, 1])
    first, second = both[:, :count], both[:, count:]
    exchanged = np.repeat(first[None], count, axis=0)
    for key in range(count):
        exchanged[key, :, key] = second[:, key]
    return first, second, exchanged.reshape(-1, count)


def _sensitivity(request: Request, responses: Array, n: int) -> list[dict[str, Any]]:
    """Total Sobol indices of the error, the largest first; 0 for a constant error, and 1 for the
    only key.

    Estimates from few samples can leave the range 0 <= first order <= total <= 1 of the indices;
    they are set to its limits.
    """
    names = list(request.space.keys)
    # Points to which the model does not apply get the mean.
    filled = np.where(
        np.isfinite(responses),
        responses,
        np.nanmean(responses) if np.isfinite(responses).any() else 0,
    )
    filled = filled - filled.mean()
    first, second, exchanged = np.split(filled, [n, 2 * n])
    if filled.std() < ROUNDING or len(names) == 1:
        known = float(filled.std() >= ROUNDING)
        return [
            {"key": key, **dict.fromkeys(("index", "first_order", "low", "high"), known)}
            for key in names
        ]
    given = {"f_A": first[None], "f_B": second[None], "f_AB": exchanged.reshape(len(names), 1, n)}
    found = sobol_indices(func=given, n=n)
    low, high = _total_interval(first, second, exchanged.reshape(len(names), n), request.seed)
    total = np.clip(found.total_order, 0, 1)
    first_order = np.clip(found.first_order, 0, total)
    rows = [
        {
            "key": key,
            "index": float(total[at]),
            "first_order": float(first_order[at]),
            "low": float(low[at]),
            "high": float(high[at]),
        }
        for at, key in enumerate(names)
    ]
    return sorted(rows, key=lambda row: -row["index"])


def _total_interval(
    first: Array, second: Array, exchanged: Array, seed: int
) -> tuple[Array, Array]:
    """95 % intervals of the total indices, shape [keys] each, by bootstrap over the designs.

    This is Jansen's estimator, as in scipy, whose own bootstrap is not reproducible by a seed.
    """
    rng = np.random.default_rng([seed, 3])
    found = []
    for _ in range(RESAMPLES):
        drawn = rng.integers(len(first), size=len(first))
        variance = np.concatenate([first[drawn], second[drawn]]).var() or np.inf
        found.append(((first[drawn] - exchanged[:, drawn]) ** 2).mean(axis=1) / (2 * variance))
    low, high = np.clip(np.quantile(found, [0.025, 0.975], axis=0), 0, 1)
    return low, high


def _informative(margins: Array, from_edge: Array, wanted: int) -> list[int]:
    """The most informative points, in turn from: the worst, those nearest to the limit of the
    tolerance, and the design's first."""
    usable = np.flatnonzero(np.isfinite(margins))
    orders = [
        usable[np.argsort(margins[usable], kind="stable")],
        usable[np.argsort(from_edge[usable], kind="stable")],
        usable,
    ]
    chosen = dict.fromkeys(int(at) for at in np.array(orders).T.ravel())
    return list(chosen)[:wanted]


def _worst(
    request: Request, tree: dict[str, Any], design: Array, margins: Array, progress: Progress
) -> tuple[Scenario | None, dict[str, Any]]:
    """The counterexample, if any, and facts about the worst case."""
    with channels() as kept:
        player = Player(request.model, request.metric, kept)
        of = margin_of(player)
        rng = np.random.default_rng([request.seed, 4])
        progress("worst case", 0, 3)
        point, found = worst_point(
            request.space, tree, design, margins, of, max(100, request.samples // 4), rng
        )
        keys = request.space.keys_at(point)
        worst = {"keys": keys, **_about(player, tree_at(tree, keys, "space"))}
        if found >= -LEAST_ERROR:
            progress("worst case", 3, 3)
            return None, worst
        progress("worst case", 1, 3)
        limit = limit_of(found, bool(worst["is_interval"]))
        start = simplest_start(request.space, tree, point, design, margins, of, limit, rng)
        progress("worst case", 2, 3)
        simple = shrunk(start, of, limit)
        progress("worst case", 3, 3)
        return simple, _with_simplest(worst, _about(player, simple))


def _with_simplest(worst: dict[str, Any], simplest: dict[str, Any]) -> dict[str, Any]:
    """The worst of two cases: the worst case of the space, and the simplified one."""
    if abs(simplest["error"]) <= abs(worst["error"]):
        return worst | {"simplest": simplest}
    return {"keys": worst.pop("keys"), **simplest, "simplest": simplest, "in_space": worst}


def _about(player: Player, scenario: Scenario) -> dict[str, Any]:
    evaluated = player.play(scenario)
    analytical = player.model(scenario)
    result = evaluated.result
    about: dict[str, Any] = {
        "engine": evaluated.engine,
        "frames": evaluated.frames,
        "is_interval": result is not None and result.is_interval,
        "error": None if result is None else evaluated.error,
        "margin": None if result is None else evaluated.margin,
        "model": None
        if result is None
        else [result.low_s, result.high_s if math.isfinite(result.high_s) else None],
    }
    latency = (
        player.metric(scenario) == "latency_s"
        and not scenario.faults.events
        and scenario.faults.random is None
    )
    if result is not None and latency:
        with contextlib.suppress(RunError):
            about["budget"] = parts(analytical, evaluated.case)
    return about


def check_folder(request: Request, folder: Path) -> None:
    """Check that a folder is empty, does not exist, or contains this validation.

    Raises:
        InputError: It does not; the message names it.
    """
    check_no_link(folder)
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError(f"`out`: {folder} is not a folder")
    settings = folder / SETTINGS
    if not settings.is_file():
        if any(folder.iterdir()):
            raise InputError(f"`out`: {folder} exists already and contains no validation")
        return
    try:
        known = read_json(settings)
    except InputError as error:  # The parts go by digests of all that they depend on.
        log.warning("%s; it is written again", error)
        return
    if known != request.to_json():
        raise InputError(f"`out`: {folder} contains another validation; use another folder")


class _Jobs:
    """Jobs, and the stored results of finished ones."""

    def __init__(self, request: Request, folder: Path, cluster: Cluster, progress: Progress):
        self._asked = request
        self._folder = folder
        self._cluster = cluster
        self._progress = progress
        self._task = {
            "source_sha256": source_sha256(),
            "scenario": request.scenario.model_dump(mode="json"),
            "model": request.model,
            "metric": request.metric,
        }
        check_folder(request, folder)
        (folder / "parts").mkdir(parents=True, exist_ok=True)
        write_json(folder / SETTINGS, request.to_json())

    def results(self, by: str, keys: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The results of points, in order; stored results are reused."""
        points = [{"id": str(at), "keys": point} for at, point in enumerate(keys)]
        jobs = list(self._jobs(by, points))
        task = self._task | {"by": by}
        digests: dict[str, list[dict[str, Any]]] = {self._digest(task, job): job for job in jobs}
        found: dict[str, dict[str, Any]] = {}
        missing: dict[str, Sequence[dict[str, Any]]] = {}
        for digest, job in digests.items():
            path = self._folder / "parts" / f"{digest}.json"
            try:
                found |= {a["id"]: a for a in read_json(path)} if path.is_file() else {}
            except InputError as error:
                log.warning("%s; its points are computed again", error)
            if not all(point["id"] in found for point in job):
                missing[digest] = job
        what = "points" if by == "engine" else "points on packets"
        self._progress(what, len(found), len(points))
        of_job = {point["id"]: digest for digest, job in missing.items() for point in job}
        waiting = {digest: len(job) for digest, job in missing.items()}
        with contextlib.closing(
            run_jobs(play, task, list(missing.values()), self._cluster)
        ) as answers:
            for answer in answers:
                if "failure" in answer:
                    why = answer["failure"]  # a dict if the worker was lost
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
        """Jobs of points, sorted by seed so that few channels are generated twice."""
        if by == "packets":
            yield from ([point] for point in points)
            return
        ordered = sorted(
            points, key=lambda point: (str(point["keys"].get("seed")), int(point["id"]))
        )
        for at in range(0, len(ordered), MOST_JOB_POINTS):
            yield ordered[at : at + MOST_JOB_POINTS]

    @staticmethod
    def _digest(task: dict[str, Any], job: Any) -> str:
        text = json.dumps([task, job], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _finite(answer: dict[str, Any]) -> dict[str, Any]:
    """Replace infinities and NaN by None, for JSON."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in answer.items()
    }
