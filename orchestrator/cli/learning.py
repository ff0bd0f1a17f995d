# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`testbed learn`, `train`, `evaluate`, `export`: learn without a network; train and evaluate
policies; export trained models."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import completion
from orchestrator.cli.console import out, shown
from orchestrator.cli.folders import check_resumable, empty, remove_results
from orchestrator.cli.options import (
    JsonFile,
    Overrides,
    Overwrite,
    Resume,
    Rounds,
    ScenarioFile,
    TraceFile,
    rounds_of,
)
from testbed.core.errors import InputError
from testbed.system.files import check_folder

if TYPE_CHECKING:
    import pandas as pd

VARIANTS = ("drl", "drl-", "fixed-ra", "fixed-u")
"""Variants of the agent; a list of its own, because help texts do without torch."""


def learn(
    scenario: ScenarioFile,
    output: Annotated[
        Path,
        typer.Option(
            "--out", metavar="DIR", help="Folder to create.", autocompletion=completion.folders
        ),
    ],
    rounds: Rounds = None,
    overrides: Overrides = None,
    seeds: Annotated[
        int,
        typer.Option(
            min=1,
            max=1000,
            metavar="N",
            help="Number of random seeds, from `seed` of the scenario on. With several seeds, each "
            "has a folder of its own in DIR.",
        ),
    ] = 1,
    overwrite: Overwrite = False,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue a training that was interrupted, round by round."),
    ] = False,
) -> None:
    """Train the model of a scenario without emulating a network.

    The page `report.html` in the output folder shows the learning curves, and the accuracy of each
    UAV and class. With the option `--learned`, `predict` and `compare` then pair each loss value
    with the time of the corresponding round, for any network.

    Examples:
        testbed learn quickstart --set workload.evaluate_every=1 --out runs/learned
        testbed learn quickstart --set workload.evaluate_every=1 --seeds 3 --out runs/seeds
        testbed predict quickstart --learned runs/learned --json predicted.json
    """
    from orchestrator.emulated.appraisal import learn_seeds
    from orchestrator.emulated.trajectory import check
    from orchestrator.records.learned import has_trajectories, is_trajectory
    from orchestrator.reporting.learned_report import learned_lines, write_learned_report
    from orchestrator.scenario.loading import load

    given = [*(overrides or []), *rounds_of(rounds)]
    parsed = load(scenario, given)
    if not resume:
        replaced = has_trajectories if seeds > 1 else is_trajectory
        _check_empty(output, replaces=overwrite and replaced(output))
    check(parsed)
    numbers = range(parsed.seed, parsed.seed + seeds)
    scenarios = [load(scenario, [*given, f"seed={seed}"]) for seed in numbers]
    with shown("rounds") as show:
        folders = learn_seeds(output, scenarios, overwrite=overwrite, resume=resume, progress=show)
    if overwrite and seeds > 1:
        empty(output, [folder.name for folder in folders])  # of other seeds, or of a single one
    for line in learned_lines(output):
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    out.print(f"learned: {output}", markup=False, highlight=False)
    out.print(f"report: {write_learned_report(output)}", markup=False, highlight=False)


def _check_empty(folder: Path, *, replaces: bool) -> None:
    """Refuse an output folder that is not empty, unless its content is to be replaced."""
    check_folder(folder)
    if not replaces and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"--out: {folder} exists already and is not an empty folder")


def train(
    scenario: ScenarioFile,
    output: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Output folder. An earlier training run of the same agent in this folder is "
            "resumed.",
            autocompletion=completion.folders,
        ),
    ],
    variant: Annotated[
        str,
        typer.Option(
            metavar="|".join(VARIANTS),
            help="Decisions of the agent. drl: split point and shares. drl-: the same without "
            "trajectories as input. fixed-ra: split point only. fixed-u: shares only.",
            autocompletion=completion.words(*VARIANTS),
        ),
    ] = "drl",
    rounds: Annotated[
        int, typer.Option(min=1, metavar="N", help="Total number of training rounds.")
    ] = 5000,
    overrides: Overrides = None,
    overwrite: Overwrite = False,
    resume: Resume = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write logs for TensorBoard to DIR.")
    ] = False,
    emulated: Annotated[
        bool,
        typer.Option(
            "--emulated",
            help="Train on the emulated network instead of with the engine. Such a training run "
            "cannot be resumed.",
        ),
    ] = False,
) -> None:
    """Train the agent of the paper, which chooses split points and shares.

    Examples:
        testbed train quickstart --rounds 500 --out results/agent
        testbed train paper --variant fixed-u --out results/fixed-u --resume
    """
    from orchestrator.api import say_left_out
    from orchestrator.cli.virtual import enter
    from orchestrator.emulated.backend import emulated_backend
    from orchestrator.policies.agent import CHECKPOINT, HISTORY, Settings
    from orchestrator.policies.agent import train as train_agent
    from orchestrator.policies.environment import engine_backend
    from orchestrator.scenario.loading import load
    from testbed.system.leftovers import temporary_folder

    check_resumable(output, CHECKPOINT, "trained agent", overwrite=overwrite, resume=resume)
    if resume and emulated:
        raise InputError("--resume: must be absent with --emulated, which cannot be resumed")
    # One round precedes the first decision, and training goes by whole batches.
    longest = [f"rounds={rounds + Settings().batch + 1}"] if emulated else []
    parsed = load(scenario, [*(overrides or []), *longest])
    if emulated:
        enter(parsed, "rounds")
    else:
        say_left_out(parsed)
    if overwrite:
        remove_results(output, (CHECKPOINT, HISTORY, "events.out.*"))
    with shown("rounds") as show, temporary_folder("train") as logs:
        history = train_agent(
            parsed,
            output,
            variant=variant,
            rounds=rounds,
            tensorboard=tensorboard,
            backend=emulated_backend(logs) if emulated else engine_backend,
            progress=lambda done: show("training", done, rounds),
        )
    last = history.tail(1000)
    out.print(f"objective, mean of the last {len(last)} rounds: {last['objective'].mean():.3f}")
    out.print(f"agent: {output}")


def evaluate(
    scenario: ScenarioFile,
    trace_file: TraceFile = None,
    rounds: Annotated[
        int, typer.Option(min=1, metavar="N", help="Number of rounds to predict.")
    ] = 1000,
    overrides: Overrides = None,
    json_file: JsonFile = None,
) -> None:
    """Predict rounds with an allocation policy, and print mean costs and decision times.

    The scenario's key `allocation.policy` sets the policy. For the policy `per-client-planner`,
    the gain over the best common split point is also printed.

    Examples:
        testbed evaluate quickstart --set allocation.policy=planner --rounds 100
        testbed evaluate paper --set allocation.agent=results/agent --set allocation.policy=agent
    """
    from orchestrator.api import say_left_out
    from orchestrator.policies.registry import evaluate as evaluate_policy
    from orchestrator.policies.registry import policy
    from orchestrator.scenario.channel import open_source
    from orchestrator.scenario.loading import load
    from testbed.system.files import check_writable, write_json

    parsed = load(scenario, [*(overrides or []), *rounds_of(rounds)])
    say_left_out(parsed)
    check_writable("json", json_file)
    agent = None if parsed.allocation.agent is None else Path(parsed.allocation.agent)

    def under(name: str) -> "pd.DataFrame":
        with open_source(parsed, trace_file) as source, shown("rounds") as show:
            decide = policy(parsed, name, agent, source)
            return evaluate_policy(
                parsed, source, decide, progress=lambda done: show(name, done, rounds)
            )

    table = under(parsed.allocation.policy)
    if json_file is not None:
        write_json(json_file, table.to_dict(orient="records"))
    out.print(f"{parsed.allocation.policy}, {rounds} rounds")
    for name in ("objective", "latency_s", "max_energy_j", "decision_s"):
        out.print(f"  {name:13s} mean {table[name].mean():.4f}")
    if parsed.allocation.kind.splits_clients:
        common = under("planner")["objective"].mean()
        gain = 1 - table["objective"].mean() / common
        out.print(f"  objective of the best common split point {common:.4f}: gain {gain:.1%}")


PEFT_FILES = ("adapter_config.json", "adapter_model.safetensors")
WEIGHT_FILES = ("model.safetensors", "config.json", "generation_config.json")


class State(StrEnum):
    """States of a training that can be exported."""

    LAST = "last"
    BEST = "best"


class Format(StrEnum):
    """Formats to which results are exported."""

    PEFT = "peft"
    WEIGHTS = "weights"
    TENSORBOARD = "tensorboard"
    MLFLOW = "mlflow"


def export(
    run_dir: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Run directory, or folder of `testbed learn`. With --to tensorboard or mlflow, it "
            "may also be a file written by `predict --json`.",
            autocompletion=completion.files(".json"),
        ),
    ],
    folder: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="FOLDER",
            help="Folder to create. With --to mlflow: the folder mlruns, to which a run is added.",
            autocompletion=completion.folders,
        ),
    ],
    to: Annotated[
        Format,
        typer.Option(
            metavar="|".join(Format),
            help="Format. peft: the trained adapters and head, or all weights if the network's own "
            "are trained. weights: all weights, with adapters merged, for timm and transformers. "
            "tensorboard, mlflow: the rounds and the learning curves.",
        ),
    ] = Format.PEFT,
    state: Annotated[
        State,
        typer.Option(
            metavar="|".join(State),
            help="State of the model: after the last round, or of the best evaluation of "
            "`testbed learn`.",
        ),
    ] = State.LAST,
    client: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="K",
            help="UAV whose own tensors are exported, with workload.batch_norm local or "
            "per-client.",
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Export the trained model of a run, or its rounds and learning curves.

    Examples:
        testbed export runs/first --out runs/adapters
        testbed export runs/first --to tensorboard --out runs/events
    """
    from testbed.system.files import check_no_link

    check_no_link(folder)
    if to in (Format.PEFT, Format.WEIGHTS):
        _export_model(run_dir, folder, to, state, client, overwrite)
        return
    given = {"overwrite": overwrite, "state": state is not State.LAST, "client": client}
    for name in (name for name, value in given.items() if value):
        raise InputError(f"--{name}: has no effect with --to {to.value}")
    _export_series(run_dir, folder, to)


def _export_series(run_dir: Path, folder: Path, to: Format) -> None:
    from orchestrator.records.directory import MANIFEST
    from orchestrator.records.learned import has_trajectories
    from orchestrator.records.reader import read_object
    from orchestrator.records.results import Result, read_results
    from orchestrator.reporting.trackers import write_mlflow, write_tensorboard

    check_folder(folder)
    if has_trajectories(run_dir):
        _export_learned(run_dir, folder, to)
        return
    found = read_results(run_dir)
    if len(found) > 1 or not isinstance(found[0], Result):
        raise InputError(f"{run_dir}: must be one run or prediction to be exported")
    if to is Format.TENSORBOARD:
        out.print(f"event file: {write_tensorboard(found[0], folder)}")
        return
    about = read_object(run_dir / MANIFEST) if run_dir.is_dir() else {}
    out.print(f"run of MLflow: {write_mlflow(found[0], folder, about)}")


def _export_learned(run_dir: Path, folder: Path, to: Format) -> None:
    """Export what was learned without a network, one run of the tracker per seed."""
    from orchestrator.reporting.learned_report import read_learned
    from orchestrator.reporting.trackers import write_mlflow, write_tensorboard

    learned = read_learned(run_dir)
    results = [each.trajectory.as_result(each.curve) for each in learned]
    if to is Format.TENSORBOARD and len(learned) > 1:
        _check_empty(folder, replaces=False)
    for each, result in zip(learned, results, strict=True):
        if to is Format.TENSORBOARD:
            own = folder / f"seed-{each.seed}" if len(learned) > 1 else folder
            out.print(f"event file: {write_tensorboard(result, own)}")
        else:
            out.print(f"run of MLflow: {write_mlflow(result, folder, each.manifest)}")


def _export_model(
    run_dir: Path, folder: Path, to: Format, state: State, client: int | None, overwrite: bool
) -> None:
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
    if state is State.BEST and not learned:
        raise InputError(
            f"--state: must be last, because {run_dir} is no folder of `testbed learn`"
        )
    file = run_dir / (BEST if state is State.BEST else STATE)
    if not file.is_file():
        raise InputError(f"{run_dir}: has no trained model: {file.name} is missing")
    from workloads.learning.settings import OWN
    from workloads.learning.tensors import read_tensors

    tensors, count = read_tensors(file, "export"), scenario.uavs.count
    staying = scenario.workload.statistics_stay and any(n.startswith(OWN) for n in tensors)
    if staying and client is None:
        raise InputError(
            f"--client: is needed, because with workload.batch_norm "
            f"{scenario.workload.batch_norm!r} each UAV has tensors of its own; give 1 to {count}"
        )
    if client is not None and not staying:
        raise InputError("--client: has no effect, because all UAVs have the same tensors")
    if client is not None and client > count:
        raise InputError(f"--client: must be from 1 to {count}, not {client}")
    exported = any((folder / name).is_file() for name in PEFT_FILES + WEIGHT_FILES)
    _check_empty(folder, replaces=overwrite and exported)
    from testbed.system.folders import cache_folder
    from workloads.learning.cached import backbone_file
    from workloads.learning.export import BASE, export_peft, export_weights
    from workloads.models.language import is_language

    model = model_of(scenario)
    backbone = backbone_file(model, cache_folder())
    whose = "transformers'" if is_language(model.model) else "timm's"
    if to is Format.WEIGHTS or model.adapters in ("full", "none"):
        export_weights(tensors, folder, model, backbone, client)
        remove_results(folder, (*PEFT_FILES, *(f"{BASE}/{name}" for name in WEIGHT_FILES)))
        out.print(f"all weights, with {whose} names: {folder}")
        return
    export_peft(tensors, folder, model, backbone, client)
    remove_results(folder, WEIGHT_FILES)
    out.print(f"adapters and head: {folder}")
    out.print(f"frozen weights, with {whose} names: {backbone}")
