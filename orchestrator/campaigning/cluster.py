# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Computes points: in this process, in a pool of processes, or with Dask workers.

Predicted points come first and use all cores, then points emulated in virtual time. Points that are
emulated in real time come last; each needs a machine for itself, i.e. a worker that offers the
resource ``machine``, of which there is one per machine. A campaign stores each point's result when
it arrives; other studies use the results directly.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from concurrent.futures import CancelledError, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from math import ceil
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.campaigning.folder import CampaignFolder, distinct, manifest_of
from orchestrator.campaigning.spec import Campaign, Emulate, Mode, Point, cells
from orchestrator.campaigning.worker import play, release
from orchestrator.records.manifest import invocation, now, source_sha256
from orchestrator.scenario.channel import (
    channel_key,
    check_comparable,
    is_open,
    log_description,
    read_trace,
)
from orchestrator.scenario.unused import Use, say_unused
from testbed.core.errors import InputError, RunError
from testbed.host.dask_cluster import (
    Cluster,
    client_of,
    has_worker,
    processes,
    without_main,
    workers_of,
)
from testbed.host.pool import end_with_parent
from testbed.virtual import guest

log = logging.getLogger(__name__)

Answers = Generator[dict[str, Any], None, None]
"""Results of points; see `worker.play`."""

USES: dict[Mode, Use] = {"predict": "a prediction", "run": "a run", "up": "a session"}

Job = Sequence[dict[str, Any]]
Work = Callable[[dict[str, Any], Job], list[dict[str, Any]]]
"""A worker's function: takes a task and a job, returns JSON values; see `worker.play`."""

Progress = Callable[[int, int], None]
"""Called with the number of finished points and of all points."""

MOST_JOB_POINTS = 128
MOST_JOB_ROUNDS = 64_000
"""Limits of a job, which has predicted points of one channel: ns-3 generates the channel once for
all, but a lost worker loses only seconds of work. Jobs are smaller if workers would otherwise be
idle."""

NO_WORKER_TIMEOUT_S = 120.0
"""Time to wait for a suitable worker before the run ends: a dead worker may be restarted."""
CHECK_INTERVAL_S = 5.0
"""Time between two checks for workers."""

HERE = Cluster()
"""All cores of this machine, with Dask: the jobs of a killed worker are computed by others."""
POOL = Cluster(pool=True)
"""All cores of this machine, with a pool of processes."""


@dataclass(frozen=True)
class Outcome:
    """Result of running a campaign."""

    points: int
    made: int
    """Number of points computed in this run."""
    failed: dict[str, str]
    """By point ID: the reason of the failure."""
    invalid: int
    """Emulated points that exceeded a validity limit of their scenario."""


def run_campaign(
    campaign: Campaign,
    folder: CampaignFolder,
    *,
    cluster: Cluster = HERE,
    retry_invalid: bool = False,
    progress: Progress = lambda done, total: None,
) -> Outcome:
    """Compute all points that are not finished.

    Args:
        campaign: The campaign.
        folder: Folder of the finished points.
        cluster: Workers.
        retry_invalid: Whether to compute emulated points again that were not valid.
        progress: Called with the number of finished points.

    Raises:
        InputError: The campaign or the cluster cannot be used.
        RunError: The connection to the scheduler or all workers were lost.
    """
    placed = cells(campaign)
    points = distinct(placed)
    traces = {
        point.trace: read_trace(Path(point.trace)) for point in points.values() if point.trace
    }
    for name in campaign.studies:
        check_comparable(
            cell.point.scenario.scheme
            for cell in placed
            if cell.study == name and cell.point.mode != "up" and cell.point.trace
            if is_open(cell.point.scenario, traces[cell.point.trace])
        )
    with folder.held(campaign):
        for name, study in campaign.studies.items():
            if study.emulate != Emulate() and (study.mode or campaign.mode) == "predict":
                log.warning("studies.%s.emulate: no effect; the mode is 'predict'", name)
            for axis, values in study.axes.items():
                if equal := values.equal(axis, campaign.seed):
                    log.warning("studies.%s.axes.%s: %s", name, axis, equal)
        for path, trace in traces.items():
            log_description(Path(path), trace)
        for point in points.values():
            say_unused(point.scenario)
            say_unused(point.scenario, USES[point.mode])
        here = folder.finished(points.values())
        done = {
            id_ for id_, path in here.items() if not retry_invalid or manifest_of(path)["valid"]
        }
        missing = [point for id_, point in points.items() if id_ not in done]
        made, failed = 0, {}
        progress(len(done), len(points))
        if missing:
            work = compute_points(missing, campaign.seed, cluster, folder.unfinished)
            with contextlib.closing(work) as answers:
                for answer in answers:
                    id_ = answer["id"]
                    if "files" in answer:
                        folder.store(id_, answer["files"], here.get(id_))
                        made += 1
                    else:
                        folder.store_failure(id_, answer["failure"])
                        failed[id_] = answer["failure"]["failure"]
                    progress(len(done) + made, len(points))
        finished = folder.finished(points.values())
    invalid = sum(not manifest_of(path)["valid"] for path in finished.values())
    return Outcome(len(points), made, failed, invalid)


def compute_points(
    points: Sequence[Point], seed: int, cluster: Cluster, unfinished: Path | None = None
) -> Answers:
    """Compute points; yields each result when it arrives (see `worker.play`).

    Emulated points run in an order that is shuffled by the seed, so that drifts in time, e.g. of
    the machine's temperature, are not mistaken for effects of an axis. Predicted points that take
    longest come first, so that no core is left with a long one at the end.

    Args:
        points: Points to compute.
        seed: Seed of the order.
        cluster: Workers.
        unfinished: Folder on this machine for the checkpoints of points that take long.

    Raises:
        InputError: The cluster cannot be used.
        RunError: The connection to the scheduler or all workers were lost.
    """
    task = {
        "source_sha256": source_sha256(),
        **invocation(),
        "unfinished": None if unfinished is None or cluster.scheduler else str(unfinished),
    }
    rng = np.random.default_rng(seed)
    kinds: dict[str, list[Point]] = {"predict": [], "virtual": [], "real": []}
    for point in points:
        kinds["predict" if point.mode == "predict" else point.scenario.emulation.clock].append(
            point
        )
    if cluster.scheduler is None and (cluster.workers == 0 or cluster.pool):
        for kind, chosen in kinds.items():
            workers = min(processes(cluster), 1 if kind == "real" else len(chosen))
            if kind == "virtual" and workers > 1:
                workers = _guests(chosen, workers)
            yield from _pool(play, task, _plain(_jobs(chosen, rng, workers)), workers)
        return
    with client_of(len(points), cluster) as client:
        for kind, chosen in kinds.items():
            if chosen:
                jobs = _jobs(chosen, rng, len(workers_of(client)))
                resources = {"machine": 1} if kind == "real" else None
                yield from _with_dask(client, play, task, _plain(jobs), resources)


def _guests(points: Sequence[Point], most: int) -> int:
    """The number of points in virtual time whose guests fit into the memory together."""
    memory: int = max(point.scenario.emulation.memory_bytes for point in points)
    fit = max(1, min(most, guest.free_bytes() // memory))
    if fit < most:
        log.info(
            "points in virtual time: %d at once, not %d, with %d bytes of memory each "
            "(emulation.memory_bytes)",
            fit,
            most,
            memory,
        )
    return fit


def run_jobs(
    function: Work, task: dict[str, Any], jobs: Sequence[Job], cluster: Cluster
) -> Answers:
    """Run a function on jobs that are not points of a campaign; yields results as they arrive.

    Args:
        function: Takes the task and a job; returns a list of JSON values, each with an `id`.
        task: Values that all jobs share.
        jobs: JSON values, each with an `id`.
        cluster: Workers.

    Raises:
        InputError: The cluster cannot be used.
        RunError: The connection to the scheduler or all workers were lost.
    """
    if cluster.scheduler is None and (cluster.workers == 0 or cluster.pool):
        yield from _pool(function, task, jobs, processes(cluster))
        return
    with client_of(len(jobs), cluster) as client:
        yield from _with_dask(client, function, task, jobs, None)


def _pool(function: Work, task: dict[str, Any], jobs: Sequence[Job], workers: int) -> Answers:
    """Results from a number of processes, or from this one if it is 0."""
    if not workers:
        try:
            for job in jobs:
                yield from function(task, job)
        finally:
            release()
    elif jobs:
        spawn, others = get_context("spawn"), active_children()
        with (
            without_main(),
            ProcessPoolExecutor(min(workers, len(jobs)), spawn, end_with_parent) as pool,
        ):
            try:
                for future in as_completed([pool.submit(function, task, job) for job in jobs]):
                    yield from future.result()
            except BrokenProcessPool:
                raise RunError("a process that computed points was killed") from None
            except BaseException:  # After a signal or an error, the other jobs are not needed.
                for process in set(active_children()).difference(others):
                    process.kill()
                    process.join()
                raise
            finally:
                pool.shutdown(wait=False, cancel_futures=True)


def _jobs(points: Sequence[Point], rng: np.random.Generator, workers: int) -> list[list[Point]]:
    """Jobs of emulated points in shuffled order; of predicted points by channel, longest first."""
    groups: dict[tuple[Hashable, str | None, str], list[Point]] = {}
    for at in rng.permutation(len(points)):
        point = points[at]
        key = (
            channel_key(point.scenario),
            point.trace,
            point.id if point.mode != "predict" or _needs_policy_search(point) else "",
        )
        groups.setdefault(key, []).append(point)
    share = ceil(len(points) / max(1, workers))
    jobs = []
    for group in groups.values():
        longest = max(point.scenario.rounds for point in group)
        size = max(1, min(MOST_JOB_POINTS, MOST_JOB_ROUNDS // longest, share))
        jobs += [group[at : at + size] for at in range(0, len(group), size)]
    return sorted(jobs, key=lambda job: (job[0].mode == "predict") * -_effort(job))


def _plain(jobs: Sequence[Sequence[Point]]) -> list[Job]:
    return [[plain_point(point) for point in job] for job in jobs]


def _needs_policy_search(point: Point) -> bool:
    """Whether a policy is trained or searches in the point, which takes minutes."""
    return point.options.train is not None or point.scenario.allocation.kind.decides


def _effort(job: Sequence[Point]) -> float:
    """Relative duration of a job: for ns-3's channel, and for the points."""
    rounds = [point.scenario.rounds * point.scenario.uavs.count for point in job]
    return max(rounds) * (100 if _needs_policy_search(job[0]) else 10) + sum(rounds)


def _with_dask(
    client: Any,
    function: Work,
    task: dict[str, Any],
    jobs: Sequence[Job],
    resources: dict[str, int] | None,
) -> Answers:
    from distributed import as_completed as delivered
    from distributed.scheduler import KilledWorker

    if resources is not None and not has_worker(client, resources):
        raise InputError(
            "`scheduler`: no worker offers the resource 'machine' for emulated points; start one "
            "worker per machine with --machine"
        )
    ids = {}
    for job in jobs:
        future = client.submit(function, task, job, resources=resources, pure=False)
        ids[future] = [point["id"] for point in job]
    with _cancelled_without_workers(client, list(ids), resources) as why:
        for future in delivered(list(ids), loop=client.loop):
            try:
                yield from future.result()
            except CancelledError:
                reason = ", ".join(why) or "lost the connection to the scheduler"
                raise RunError(f"campaign: {reason}") from None
            except KilledWorker as error:
                failure = {
                    "failure": f"ended every worker that computed it: {error.last_worker.address}",
                    "traceback": "",
                    "host": "",
                    "when": now(),
                }
                yield from ({"id": id_, "failure": failure} for id_ in ids[future])
            future.release()
            del ids[future]


@contextlib.contextmanager
def _cancelled_without_workers(
    client: Any, futures: list[Any], resources: dict[str, int] | None
) -> Iterator[list[str]]:
    """Cancel futures when no suitable worker is left; yields a list that then has the reason."""
    why: list[str] = []
    over = threading.Event()

    def watch() -> None:
        seen_s = time.monotonic()
        while not over.wait(CHECK_INTERVAL_S):
            if client.status != "running" or has_worker(client, resources):
                seen_s = time.monotonic()
            elif time.monotonic() - seen_s > NO_WORKER_TIMEOUT_S:
                why.append(f"no worker is left after waiting for {NO_WORKER_TIMEOUT_S:g} s")
                client.cancel(futures, force=True)
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield why
    finally:
        over.set()
        thread.join(CHECK_INTERVAL_S)


def plain_point(point: Point) -> dict[str, Any]:
    """The point as JSON values for a worker."""
    return {
        "id": point.id,
        "mode": point.mode,
        "scenario": point.scenario.model_dump_json(),
        "trace": point.trace,
        "files": point.files,
        "steps_rounds": point.steps_rounds,
        "beside": point.options.model_dump(exclude_defaults=True),
    }
