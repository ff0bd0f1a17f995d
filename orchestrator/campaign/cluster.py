# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Points computed: in this process, in a pool of them, or by Dask workers, here or elsewhere.

Predicted points go first and fill all cores, then those emulated in virtual time do. Last come the
ones emulated in real time, each of which holds a machine for itself: a worker that offers the
resource ``machine``, one a machine. A campaign stores each when it comes back; a study takes what
it needs of it.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from math import ceil
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

import numpy as np

from ns3_scenarios.channel import ChannelSettings
from orchestrator.campaign.folder import CampaignFolder, distinct, manifest_of
from orchestrator.campaign.spec import Campaign, Point, cells
from orchestrator.campaign.worker import play
from orchestrator.records.manifest import command, now, source_sha256
from orchestrator.scenario.channel import channel_settings
from testbed.core.errors import InputError, RunError
from testbed.host.dask_cluster import Cluster, client_of, has_worker, processes, workers_of

Answers = Generator[dict[str, Any], None, None]
"""What workers answered; see `worker.play`."""

Job = Sequence[dict[str, Any]]
Work = Callable[[dict[str, Any], Job], list[dict[str, Any]]]
"""What a worker is asked: a task and a job, answered with plain values; see `worker.play`."""

Progress = Callable[[int, int], None]
"""Called with points done and their number."""

TOGETHER = 128
TOGETHER_ROUNDS = 64_000
"""Predicted points of one channel that a worker takes at once, and their rounds, at most: ns-3 then
moves the UAVs once, and still what is lost with a worker is seconds of work. They are fewer where
workers would have nothing to do."""

WORKERS_S = 120.0
"""How long there may be no worker who could take what is left: one that died may come back."""
LOOK_S = 5.0
"""Between two looks at who is there."""

HERE = Cluster()
"""This machine, all cores, by Dask: what a killed worker had taken, another computes."""
POOL = Cluster(pool=True)
"""This machine, all cores."""


@dataclass(frozen=True)
class Outcome:
    """What a run of a campaign came to."""

    points: int
    made: int
    """Of them, in this run."""
    failed: dict[str, str]
    """By identity: why."""
    invalid: int
    """Emulated points that observed more than their scenario's limits allow."""


def run_campaign(
    campaign: Campaign,
    folder: CampaignFolder,
    *,
    cluster: Cluster = HERE,
    retry_invalid: bool = False,
    progress: Progress = lambda done, total: None,
) -> Outcome:
    """Compute every point that is not finished.

    Args:
        campaign: What to compute.
        folder: Where finished points are kept.
        cluster: Who computes.
        retry_invalid: Compute emulated points again that were not valid.
        progress: Told how far it is.

    Raises:
        InputError: The campaign or the cluster is not as it must be.
        RunError: All workers were lost, or the scheduler.
    """
    points = distinct(cells(campaign))
    with folder.held(campaign):
        here = folder.finished(points.values())
        done = {
            id_ for id_, path in here.items() if not retry_invalid or manifest_of(path)["valid"]
        }
        missing = [point for id_, point in points.items() if id_ not in done]
        made, failed = 0, {}
        progress(len(done), len(points))
        if missing:
            work = computed(missing, campaign.seed, cluster, folder.unfinished)
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


def computed(
    points: Sequence[Point], seed: int, cluster: Cluster, unfinished: Path | None = None
) -> Answers:
    """Compute points; yields each one's answer once, as it comes (see `worker.play`).

    Emulated points run in an order shuffled by the seed, so that nothing that drifts with time, a
    machine's temperature or its other users, is mistaken for what an axis does; of predicted ones
    those that take longest come first, so that no core is left with a long one at the end.

    Args:
        points: What to compute.
        seed: Of the order.
        cluster: Who computes.
        unfinished: Where on this machine points that take long keep how far they are.

    Raises:
        InputError: The cluster cannot be used.
        RunError: All workers were lost, or the scheduler.
    """
    task = {
        "source_sha256": source_sha256(),
        "command": command(),
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
            yield from _pooled(play, task, _plain(_jobs(chosen, rng, workers)), workers)
        return
    with client_of(len(points), cluster) as client:
        for kind, chosen in kinds.items():
            if chosen:
                jobs = _jobs(chosen, rng, len(workers_of(client)))
                resources = {"machine": 1} if kind == "real" else None
                yield from _phase(client, play, task, _plain(jobs), resources)


def worked(function: Work, task: dict[str, Any], jobs: Sequence[Job], cluster: Cluster) -> Answers:
    """What a function answers to jobs that are no campaign's points, as it comes.

    Args:
        function: Takes the task and a job; answers with a list of plain values, each with an `id`.
        task: What is the same for all.
        jobs: Plain values, each with an `id`.
        cluster: Who computes.

    Raises:
        InputError: The cluster cannot be used.
        RunError: All workers were lost, or the scheduler.
    """
    if cluster.scheduler is None and (cluster.workers == 0 or cluster.pool):
        yield from _pooled(function, task, jobs, processes(cluster))
        return
    with client_of(len(jobs), cluster) as client:
        yield from _phase(client, function, task, jobs, None)


def _pooled(function: Work, task: dict[str, Any], jobs: Sequence[Job], workers: int) -> Answers:
    """Answers of so many processes; of this one if there are none."""
    if not workers:
        for job in jobs:
            yield from function(task, job)
    elif jobs:
        spawn = get_context("spawn")
        with ProcessPoolExecutor(min(workers, len(jobs)), spawn, _end_with_parent) as pool:
            try:
                for future in as_completed([pool.submit(function, task, job) for job in jobs]):
                    yield from future.result()
            except BrokenProcessPool:
                raise RunError("a process that computed points was killed") from None
            finally:
                pool.shutdown(wait=False, cancel_futures=True)


def _end_with_parent() -> None:
    """A process of a pool that was killed would wait for its next job for ever.

    A signal at the parent's death would be missed by who is still importing.
    """
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _jobs(points: Sequence[Point], rng: np.random.Generator, workers: int) -> list[list[Point]]:
    """Emulated points in shuffled order; predicted ones, the longest first, by their channel."""
    groups: dict[tuple[ChannelSettings, str | None, str], list[Point]] = {}
    for at in rng.permutation(len(points)):
        point = points[at]
        key = (
            channel_settings(point.scenario),
            point.trace,
            point.id if point.mode != "predict" or _is_decided(point) else "",
        )
        groups.setdefault(key, []).append(point)
    share = ceil(len(points) / max(1, workers))
    jobs = []
    for group in groups.values():
        longest = max(point.scenario.rounds for point in group)
        size = max(1, min(TOGETHER, TOGETHER_ROUNDS // longest, share))
        jobs += [group[at : at + size] for at in range(0, len(group), size)]
    return sorted(jobs, key=lambda job: (job[0].mode == "predict") * -_effort(job))


def _plain(jobs: Sequence[Sequence[Point]]) -> list[Job]:
    return [[plain_point(point) for point in job] for job in jobs]


def _is_decided(point: Point) -> bool:
    """Whether somebody searches or learns in it, which takes minutes."""
    policy = point.scenario.allocation.policy
    return point.beside.train is not None or policy not in {"fixed", "equal"}


def _effort(job: Sequence[Point]) -> float:
    """How long a job may take, in no unit: what ns-3 makes of the channel, and then the points."""
    rounds = [point.scenario.rounds * point.scenario.uavs.count for point in job]
    return max(rounds) * (100 if _is_decided(job[0]) else 10) + sum(rounds)


def _phase(
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
            "`scheduler`: no worker offers the resource 'machine', which emulated points need; "
            "start one a machine with --resources machine=1"
        )
    ids = {}
    for job in jobs:
        future = client.submit(function, task, job, resources=resources, pure=False)
        ids[future] = [point["id"] for point in job]
    with _watched(client, list(ids), resources) as why:
        for future in delivered(list(ids), loop=client.loop):
            try:
                yield from future.result()
            except CancelledError:
                raise RunError(f"campaign: {', '.join(why) or 'the scheduler is gone'}") from None
            except KilledWorker as error:
                failure = {
                    "failure": f"ended every worker that took it: {error.last_worker.address}",
                    "traceback": "",
                    "host": "",
                    "when": now(),
                }
                yield from ({"id": id_, "failure": failure} for id_ in ids[future])
            future.release()
            del ids[future]


@contextlib.contextmanager
def _watched(
    client: Any, futures: list[Any], resources: dict[str, int] | None
) -> Iterator[list[str]]:
    """Cancel futures that no worker is there for; what is yielded then says so."""
    why: list[str] = []
    over = threading.Event()

    def watch() -> None:
        seen_s = time.monotonic()
        while not over.wait(LOOK_S):
            if client.status != "running" or has_worker(client, resources):
                seen_s = time.monotonic()
            elif time.monotonic() - seen_s > WORKERS_S:
                why.append(f"waited {WORKERS_S:g} s for a worker: the scheduler has none left")
                client.cancel(futures, force=True)
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield why
    finally:
        over.set()
        thread.join(LOOK_S)


def plain_point(point: Point) -> dict[str, Any]:
    """The point as a worker takes it."""
    return {
        "id": point.id,
        "mode": point.mode,
        "scenario": point.scenario.model_dump_json(),
        "trace": point.trace,
        "files": point.files,
        "steps_rounds": point.steps_rounds,
        "beside": point.beside.model_dump(exclude_defaults=True),
    }
