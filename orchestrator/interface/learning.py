# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`learn`, `train`, `evaluate`, `export`: learn without a network, and train and judge policies."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from orchestrator.interface.folders import check_resumable, empty, remove_results
from orchestrator.interface.given import (
    Policy,
    ScenarioLike,
    Trace,
    changed,
    channel_of,
    decider_of,
    path_of,
    resolved,
    shortened,
    typed,
    whole,
)
from orchestrator.interface.names import VARIANTS
from orchestrator.interface.progress import followed
from orchestrator.interface.results import StudyResult, figures_of
from testbed.core.errors import InputError
from testbed.core.progress import Progress
from testbed.core.words import not_one_of
from testbed.system.files import check_folder, check_no_link

if TYPE_CHECKING:
    import pandas as pd

    from orchestrator.scenario.schema import Scenario
    from testbed.host.dask_cluster import Cluster

FORMATS = ("peft", "weights", "tensorboard", "mlflow")
STATES = ("last", "best")
PEFT_FILES = ("adapter_config.json", "adapter_model.safetensors")
WEIGHT_FILES = ("model.safetensors", "config.json", "generation_config.json")
MOST_SEEDS = 1000


@typed
def learn(
    scenario: ScenarioLike,
    out: str | Path,
    rounds: int | None = None,
    *,
    seeds: int = 1,
    overwrite: bool = False,
    resume: bool = False,
    scheduler: str | None = None,
    key: str | Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> StudyResult:
    """Train the model of a scenario without emulating a network.

    Args:
        scenario: A scenario, or the path or name of one, as for `load`.
        out: Folder to create. The page `report.html` in it shows the learning curves.
        rounds: Number of rounds. Default: `rounds` of the scenario.
        seeds: Number of random seeds, from `seed` of the scenario on. With several seeds, each has
            a folder of its own in `out`.
        overwrite: Whether earlier results in `out` are replaced.
        resume: Whether to continue a training that was interrupted, round by round.
        scheduler: Address of a Dask scheduler whose workers train. Default: this machine.
        key: Key file of the scheduler.
        workers: Number of processes that train seeds side by side. Default: one per core.
        progress: Called with a description of the current step, its progress, and its total.
            Default: a bar in a notebook.

    Returns:
        The tables `curves` (one row per evaluation: seed, round, time_s, energy_j, bytes, accuracy,
        loss, perplexity) and `clients`; the figures `accuracy` or `perplexity`, `loss` and
        `clients`.

    Raises:
        InputError: The scenario does not train a model, or an argument is not valid.
    """
    whole("seeds", seeds, 1, MOST_SEEDS)
    from testbed.host.dask_cluster import Cluster

    first = resolved(scenario, None, rounds)
    numbers = range(first.seed, first.seed + seeds)
    scenarios = [first, *(changed(first, {"seed": seed}, "`seeds`") for seed in numbers[1:])]
    folder = path_of(out, "`out`: must be a path")
    cluster = Cluster(scheduler, workers, pool=True, key=None if key is None else Path(key))
    return learn_each(
        folder, scenarios, cluster=cluster, overwrite=overwrite, resume=resume, progress=progress
    )


def learn_each(
    folder: Path,
    scenarios: "Sequence[Scenario]",
    *,
    cluster: "Cluster",
    overwrite: bool,
    resume: bool,
    progress: Progress | None,
) -> StudyResult:
    """The work of `learn`, for scenarios that differ in their seeds."""
    from orchestrator.campaigning.seeds import learn_seeds
    from orchestrator.emulated.trajectory import check
    from orchestrator.records.learned import has_trajectories, is_trajectory
    from orchestrator.reporting import learned_report

    several = len(scenarios) > 1
    if not resume:
        replaced = has_trajectories if several else is_trajectory
        check_empty(folder, replaces=overwrite and replaced(folder))
    check(scenarios[0])
    with followed(progress) as show:
        folders = learn_seeds(
            folder,
            scenarios,
            cluster=cluster,
            overwrite=overwrite,
            resume=resume,
            progress=show,
        )
    if overwrite and several:
        empty(folder, [own.name for own in folders])  # of other seeds, or of a single one
    learned = learned_report.read_learned(folder)
    learned_report.write_learned_report(folder, learned)
    figures = figures_of(learned_report.charts_of(learned))
    title = f"training of {scenarios[0].name}"
    sentences = learned_report.learned_lines(learned)
    return StudyResult(title, sentences, learned_report.frames(learned), figures, learned, folder)


def check_empty(folder: Path, *, replaces: bool) -> None:
    """Refuse an output folder that is not empty, unless its content is to be replaced.

    Raises:
        InputError: It is a file, or has content.
    """
    check_folder(folder)
    if not replaces and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"`out`: {folder} exists already and is not an empty folder")


@typed
def train(
    scenario: ScenarioLike,
    out: str | Path,
    variant: str = "drl",
    rounds: int = 5000,
    *,
    overwrite: bool = False,
    resume: bool = False,
    tensorboard: bool = False,
    emulated: bool = False,
    progress: Progress | None = None,
) -> "pd.DataFrame":
    """Train the agent of the paper, which chooses split points and shares.

    Args:
        scenario: A scenario, or the path or name of one, as for `load`.
        out: Output folder. An earlier training of the same agent in it is resumed.
        variant: Decisions of the agent. `drl`: split point and shares. `drl-`: the same without
            trajectories as input. `fixed-ra`: split point only. `fixed-u`: shares only.
        rounds: Total number of training rounds.
        overwrite: Whether an earlier training in `out` is replaced.
        resume: Whether there must be an earlier training in `out`.
        tensorboard: Whether to write logs for TensorBoard to `out`.
        emulated: Whether to train on the emulated network instead of with the engine. Such a
            training cannot be resumed.
        progress: Called with a description of the current step, its progress, and its total.
            Default: a bar in a notebook.

    Returns:
        One row per round: round, objective, latency_s and further columns.

    Raises:
        InputError: An argument is not valid.
        RunError: A round failed.
    """
    from orchestrator.api import say_left_out
    from orchestrator.emulated.backend import emulated_backend
    from orchestrator.emulated.guests import from_outside
    from orchestrator.policies.agent import CHECKPOINT, HISTORY, Settings
    from orchestrator.policies.agent import train as train_agent
    from orchestrator.policies.environment import engine_backend
    from testbed.system.leftovers import temporary_folder

    folder = path_of(out, "`out`: must be a path")
    if variant not in VARIANTS:
        raise InputError(f"`variant`: {not_one_of(str(variant), VARIANTS)}")
    if not isinstance(rounds, int) or rounds < 1:
        raise InputError(f"`rounds`: must be at least 1, not {shortened(rounds)}")
    check_resumable(folder, CHECKPOINT, "trained agent", overwrite=overwrite, resume=resume)
    if resume and emulated:
        raise InputError("`resume`: must be absent with `emulated`, which cannot be resumed")
    # One round precedes the first decision, and training goes by whole batches.
    parsed = resolved(scenario, None, rounds + Settings().batch + 1 if emulated else None)
    if emulated and from_outside(parsed):
        raise InputError(
            "`emulated`: emulation.clock must be 'real' in Python; the command `testbed train` "
            "also trains in virtual time"
        )
    if not emulated:
        say_left_out(parsed)
    if overwrite:
        remove_results(folder, (CHECKPOINT, HISTORY, "events.out.*"))
    with followed(progress) as show, temporary_folder("train") as logs:
        return train_agent(
            parsed,
            folder,
            variant=variant,
            rounds=rounds,
            tensorboard=tensorboard,
            backend=emulated_backend(logs) if emulated else engine_backend,
            progress=lambda done: show("training", done, rounds),
        )


def evaluate(
    scenario: ScenarioLike,
    trace: Trace | None = None,
    policy: "Policy | None" = None,
    rounds: int = 1000,
    *,
    progress: Progress | None = None,
) -> "pd.DataFrame":
    """Predict rounds with an allocation policy, and measure how long it takes to decide.

    Args:
        scenario: A scenario, or the path or name of one, as for `load`.
        trace: Channel trace to replay. Default: ns-3 generates the channel of the scenario.
        policy: A name that `allocation.policy` accepts, or a function. Default: the scenario's.
        rounds: Number of rounds to predict.
        progress: Called with a description of the current step, its progress, and its total.
            Default: a bar in a notebook.

    Returns:
        One row per round: round, paradigm, split, start_s, latency_s, max_energy_j, objective and
        decision_s, the time in which the policy decided.

    Raises:
        InputError: An argument is not valid.
        RunError: ns-3 or the policy failed.
    """
    parsed = resolved(scenario, policy, rounds)
    return judged(parsed, trace, policy or parsed.allocation.policy, progress)


def judged(
    scenario: "Scenario", trace: Trace | None, policy: Policy, progress: Progress | None
) -> "pd.DataFrame":
    """The work of `evaluate`, for a policy that need not be the scenario's own."""
    from orchestrator.api import say_left_out
    from orchestrator.policies.registry import evaluate as evaluate_policy

    say_left_out(scenario)
    name = policy if isinstance(policy, str) else scenario.allocation.policy
    with channel_of(scenario, trace) as source, followed(progress) as show:
        decide = decider_of(scenario, policy, source)
        return evaluate_policy(
            scenario, source, decide, progress=lambda done: show(name, done, scenario.rounds)
        )


@typed
def export(
    source: str | Path,
    out: str | Path,
    to: Literal["peft", "weights", "tensorboard", "mlflow"] = "peft",
    *,
    state: Literal["last", "best"] = "last",
    client: int | None = None,
    overwrite: bool = False,
) -> list[str]:
    """Export the trained model of a run, or its rounds and learning curves.

    Args:
        source: A run directory, or a folder of `learn`. With `tensorboard` or `mlflow`, it may also
            be a file written by `testbed predict --json`.
        out: Folder to create. With `mlflow`: the folder mlruns, to which a run is added.
        to: Format. `peft`: the trained adapters and head, or all weights if the network's own are
            trained. `weights`: all weights, with adapters merged, for timm and transformers.
            `tensorboard`, `mlflow`: the rounds and the learning curves.
        state: State of the model: after the last round, or of the best evaluation of `learn`.
        client: UAV whose own tensors are exported, where each UAV has its own.
        overwrite: Whether an earlier export in `out` is replaced.

    Returns:
        What was written, one line each.

    Raises:
        InputError: An argument is not valid, or there is no trained model.
    """
    run_dir = path_of(source, "`source`: must be a path")
    folder = path_of(out, "`out`: must be a path")
    if client is not None and (not isinstance(client, int) or client < 1):
        raise InputError(f"`client`: must be a whole number from 1 on, not {shortened(client)}")
    check_no_link(folder)
    if to in ("peft", "weights"):
        return _export_model(run_dir, folder, to, state, client, overwrite)
    given = {"overwrite": overwrite, "state": state != "last", "client": client}
    for name in (name for name, value in given.items() if value):
        raise InputError(f"`{name}`: has no effect with `to` {to}")
    return _export_series(run_dir, folder, to)


def _export_series(run_dir: Path, folder: Path, to: str) -> list[str]:
    from orchestrator.records.directory import MANIFEST
    from orchestrator.records.learned import has_trajectories
    from orchestrator.records.reader import read_object
    from orchestrator.records.results import Result, read_results
    from orchestrator.reporting.trackers import write_mlflow, write_tensorboard

    check_folder(folder)
    if has_trajectories(run_dir):
        return _export_learned(run_dir, folder, to)
    found = read_results(run_dir)
    if len(found) > 1 or not isinstance(found[0], Result):
        raise InputError(f"{run_dir}: must be one run or prediction to be exported")
    if to == "tensorboard":
        return [f"event file: {write_tensorboard(found[0], folder)}"]
    about = read_object(run_dir / MANIFEST) if run_dir.is_dir() else {}
    return [f"run of MLflow: {write_mlflow(found[0], folder, about)}"]


def _export_learned(run_dir: Path, folder: Path, to: str) -> list[str]:
    """Export what was learned without a network, one run of the tracker per seed."""
    from orchestrator.reporting.learned_report import read_learned
    from orchestrator.reporting.trackers import write_mlflow, write_tensorboard

    learned = read_learned(run_dir)
    results = [each.trajectory.as_result(each.curve) for each in learned]
    if to == "tensorboard" and len(learned) > 1:
        check_empty(folder, replaces=False)
    written = []
    for each, result in zip(learned, results, strict=True):
        if to == "tensorboard":
            own = folder / f"seed-{each.seed}" if len(learned) > 1 else folder
            written.append(f"event file: {write_tensorboard(result, own)}")
        else:
            written.append(f"run of MLflow: {write_mlflow(result, folder, each.manifest)}")
    return written


def _export_model(
    run_dir: Path, folder: Path, to: str, state: str, client: int | None, overwrite: bool
) -> list[str]:
    from orchestrator.records.learned import (
        BEST,
        STATE,
        has_trajectories,
        is_trajectory,
        read_trajectory,
    )
    from orchestrator.records.reader import read_run
    from orchestrator.scenario.profiles import model_of

    learned = is_trajectory(run_dir)
    if not learned and has_trajectories(run_dir):
        raise InputError(f"{run_dir}: has several seeds; name the folder of one")
    scenario = (read_trajectory if learned else read_run)(run_dir).scenario
    if state == "best" and not learned:
        raise InputError(
            f"`state`: must be last, because {run_dir} is no folder of `testbed learn`"
        )
    file = run_dir / (BEST if state == "best" else STATE)
    if not file.is_file():
        raise InputError(f"{run_dir}: has no trained model: {file.name} is missing")
    from workloads.learning.settings import OWN
    from workloads.learning.tensors import read_tensors

    tensors, count = read_tensors(file, "export"), scenario.uavs.count
    staying = scenario.workload.statistics_stay and any(n.startswith(OWN) for n in tensors)
    if staying and client is None:
        raise InputError(
            f"`client`: is needed, because with workload.batch_norm "
            f"{scenario.workload.batch_norm!r} each UAV has tensors of its own; give 1 to {count}"
        )
    if client is not None and not staying:
        raise InputError("`client`: has no effect, because all UAVs have the same tensors")
    if client is not None and client > count:
        raise InputError(f"`client`: must be from 1 to {count}, not {client}")
    exported = any((folder / name).is_file() for name in PEFT_FILES + WEIGHT_FILES)
    check_empty(folder, replaces=overwrite and exported)
    from testbed.system.folders import cache_folder
    from workloads.learning.cached import backbone_file
    from workloads.learning.export import BASE, export_peft, export_weights
    from workloads.models.language import is_language

    model = model_of(scenario)
    backbone = backbone_file(model, cache_folder())
    whose = "transformers'" if is_language(model.model) else "timm's"
    if to == "weights" or model.adapters in ("full", "none"):
        export_weights(tensors, folder, model, backbone, client)
        remove_results(folder, (*PEFT_FILES, *(f"{BASE}/{name}" for name in WEIGHT_FILES)))
        return [f"all weights, with {whose} names: {folder}"]
    export_peft(tensors, folder, model, backbone, client)
    remove_results(folder, WEIGHT_FILES)
    return [f"adapters and head: {folder}", f"frozen weights, with {whose} names: {backbone}"]
