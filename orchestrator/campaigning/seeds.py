# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Learns scenarios that differ in their seeds, side by side: in processes, or with Dask workers."""

import contextlib
import json
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.campaigning.cluster import Job, run_jobs
from orchestrator.campaigning.spec import digest_of, named_files
from orchestrator.campaigning.worker import Files, check_same, files_in
from orchestrator.emulated.appraisal import appraise, time_by_prediction
from orchestrator.emulated.trajectory import learn_into
from orchestrator.records.checkpoint import Checkpoint
from orchestrator.records.directory import part_of, run_folder
from orchestrator.records.learned import (
    CURVES,
    OF_SEED,
    Trajectory,
    is_trajectory,
    read_trajectory,
)
from orchestrator.records.manifest import invocation, source_sha256
from orchestrator.scenario.loading import validate
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError, RunError
from testbed.core.progress import Progress, silent
from testbed.host.dask_cluster import Cluster, processes
from testbed.system.leftovers import temporary_folder

log = logging.getLogger(__name__)

PACKAGES = ("orchestrator", "workloads", "ns3_scenarios", "testbed")
"""Packages whose messages workers return."""
PROGRESS_INTERVAL_S = 1.0
"""Time between two looks at the checkpoints of seeds."""
HERE = Cluster(workers=0)
"""This process."""


def learn_seeds(
    out: Path,
    scenarios: Sequence[Scenario],
    *,
    cluster: Cluster = HERE,
    overwrite: bool = False,
    resume: bool = False,
    progress: Progress = silent,
) -> list[Path]:
    """Learn scenarios that differ in their seeds, appraise each, and give it times.

    A single scenario is learned into `out`, and several into folders in it. Results do not depend
    on the workers.

    Args:
        out: Output folder.
        scenarios: The scenarios.
        cluster: Workers. Those of a scheduler keep no checkpoints.
        overwrite: Whether earlier trajectories are replaced.
        resume: Whether to continue what was interrupted; seeds that are complete are kept.
        progress: Called after rounds.

    Returns:
        The folder of each scenario.

    Raises:
        InputError: See `learn_into`; or a seed that is complete has another scenario; or the
            cluster cannot be used.
        RunError: A seed failed; or the connection to the scheduler or all workers were lost.
    """
    if resume and overwrite:
        raise InputError("`resume`: does not go together with `overwrite`")
    several = len(scenarios) > 1
    folders = [out / f"{OF_SEED}{one.seed}" if several else out for one in scenarios]
    begun = any(is_trajectory(folder) or part_of(folder).exists() for folder in folders)
    seeds = {}
    for folder, scenario in zip(folders, scenarios, strict=True):
        if several and resume and is_trajectory(folder):
            if read_trajectory(folder).scenario != scenario:
                raise InputError(f"`resume`: {folder} has learned another scenario")
            if not (folder / CURVES).exists():
                _appraise(read_trajectory(folder))
            continue
        seeds[str(scenario.seed)] = {
            "id": str(scenario.seed),
            "scenario": scenario.model_dump_json(),
            "folder": str(folder),
            "overwrite": overwrite and is_trajectory(folder),
            "resume": resume and (not several or not begun or part_of(folder).exists()),
            "rounds": Checkpoint(part_of(folder)).rounds,
            "files": {},
        }
    if cluster.scheduler is None and min(processes(cluster), len(seeds)) <= 1:
        for seed in seeds.values():
            _learn(seed, invocation(), progress)
    else:
        _learn_side_by_side(list(seeds.values()), cluster, progress)
    return folders


def _learn(seed: Mapping[str, Any], invoked: Mapping[str, Any], progress: Progress) -> None:
    """Learn one seed into its folder."""
    folder = Path(seed["folder"])
    # A worker that was lost may have begun it.
    begun = Checkpoint(part_of(folder)).rounds > seed["rounds"]
    made = learn_into(
        folder,
        validate(json.loads(seed["scenario"]), "learn"),
        overwrite=seed["overwrite"] and not begun,
        resume=seed["resume"] or begun,
        invoked=invoked,
        progress=progress,
    )
    _appraise(made)


def _appraise(made: Trajectory) -> None:
    appraise(made)
    time_by_prediction(made)


def _learn_side_by_side(
    seeds: Sequence[dict[str, Any]], cluster: Cluster, progress: Progress
) -> None:
    apart = cluster.scheduler is not None
    task = {
        "source_sha256": source_sha256(),
        "invoked": invocation(),
        "level": log.getEffectiveLevel(),
        "apart": apart,
    }
    for seed in seeds if apart else ():
        scenario = validate(json.loads(seed["scenario"]), "learn")
        seed["files"] = {path: digest_of(Path(path)) for path in named_files(scenario, None)}
        if seed["rounds"]:
            log.warning("seed %s: begins again: a scheduler's workers keep no rounds", seed["id"])
    waiting = {seed["id"]: seed for seed in seeds}
    told: set[str] = set()
    answers = run_jobs(learn_seed, task, [[seed] for seed in seeds], cluster)
    with contextlib.closing(answers), _shown(seeds, waiting, progress):
        for answer in answers:
            seed = waiting[answer["id"]]
            if "failure" in answer:
                raise RunError(f"seed {answer['id']}: {answer['failure']['failure']}")
            for level, message in answer["messages"]:
                line = f"seed {answer['id']}: {message}" if level > logging.INFO else message
                if line not in told:
                    log.log(level, "%s", line)
                told.add(line)
            if apart:
                _store(seed, answer["files"])
            del waiting[answer["id"]]


def _store(seed: Mapping[str, Any], files: Files) -> None:
    """Put the files of a seed into its folder."""
    scenario = validate(json.loads(seed["scenario"]), "learn")
    overwrite = seed["overwrite"] or seed["resume"]
    with run_folder(Path(seed["folder"]), scenario, overwrite=overwrite) as folder:
        for name, data in files.items():
            (folder / name).write_bytes(data)


@contextlib.contextmanager
def _shown(
    seeds: Sequence[Mapping[str, Any]], waiting: Mapping[str, Any], progress: Progress
) -> Iterator[None]:
    """Report the rounds of all seeds: of those that are complete, and of checkpoints."""
    rounds = {seed["id"]: json.loads(seed["scenario"])["rounds"] for seed in seeds}
    over = threading.Event()

    def watch() -> None:
        while not over.wait(PROGRESS_INTERVAL_S):
            now = {
                seed["id"]: Checkpoint(part_of(Path(seed["folder"]))).rounds
                for seed in list(waiting.values())
            }
            done = sum(now.get(id_, of) for id_, of in rounds.items())
            progress(f"{len(seeds)} seeds", done, sum(rounds.values()))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def learn_seed(task: dict[str, Any], job: Job) -> list[dict[str, Any]]:
    """Learn one seed on a worker.

    Args:
        task: What all seeds share: `source_sha256` of the submitting program, the command that
            `invoked` it, the `level` of messages, and whether the worker is `apart`, so that it
            returns files and does not fill the folder itself.
        job: The seed with `id`, `scenario` (JSON), `folder`, `files` and how to begin.

    Returns:
        Its `id`, `messages` as pairs of level and text, and its `files` if the worker is apart.
    """
    [seed] = job
    check_same(task, job)
    with _collected(task["level"]) as messages, contextlib.ExitStack() as stack:
        if not task["apart"]:
            _learn(seed, task["invoked"], silent)
            return [{"id": seed["id"], "messages": messages}]
        folder = stack.enter_context(temporary_folder("learn")) / "seed"
        fresh = {"folder": str(folder), "overwrite": False, "resume": False, "rounds": 0}
        _learn(seed | fresh, task["invoked"], silent)
        return [{"id": seed["id"], "messages": messages, "files": files_in(folder)}]


@contextlib.contextmanager
def _collected(level: int) -> Iterator[list[tuple[int, str]]]:
    """The messages of our packages from a level on."""
    found: list[tuple[int, str]] = []
    handler = logging.Handler(level)
    handler.emit = lambda record: found.append((record.levelno, record.getMessage()))  # type: ignore[method-assign]
    loggers = [logging.getLogger(name) for name in PACKAGES]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(level)
    try:
        yield found
    finally:
        for logger, was in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(was)
