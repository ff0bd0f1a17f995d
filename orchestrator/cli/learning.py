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
from orchestrator.cli.options import (
    JsonFile,
    Overrides,
    Overwrite,
    Resume,
    Rounds,
    ScenarioFile,
    SchedulerKey,
    TraceFile,
    Workers,
    WorkScheduler,
    rounds_of,
)
from orchestrator.interface.names import VARIANTS

if TYPE_CHECKING:
    import pandas as pd


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
    scheduler: WorkScheduler = None,
    key: SchedulerKey = None,
    workers: Workers = None,
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
    from orchestrator.interface import learning
    from orchestrator.scenario.loading import load
    from testbed.host.dask_cluster import Cluster

    given = [*(overrides or []), *rounds_of(rounds)]
    cluster = Cluster(scheduler, workers, pool=True, key=key)
    first = load(scenario, given).seed
    scenarios = [load(scenario, [*given, f"seed={n}"]) for n in range(first, first + seeds)]
    with shown("rounds") as show:
        done = learning.learn_each(
            output,
            scenarios,
            cluster=cluster,
            overwrite=overwrite,
            resume=resume,
            progress=show,
        )
    for line in done.sentences:
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    out.print(f"learned: {output}", markup=False, highlight=False)
    out.print(f"report: {output / 'report.html'}", markup=False, highlight=False)


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
    from orchestrator.cli.virtual import enter
    from orchestrator.interface import learning
    from orchestrator.scenario.loading import load

    parsed = load(scenario, overrides or [])
    if emulated and not resume:
        enter(parsed, "rounds")
    with shown("rounds") as show:
        history = learning.train(
            parsed,
            output,
            variant,
            rounds,
            overwrite=overwrite,
            resume=resume,
            tensorboard=tensorboard,
            emulated=emulated,
            progress=show,
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
    from orchestrator.interface import learning
    from orchestrator.scenario.loading import load
    from testbed.system.files import check_writable, write_json

    parsed = load(scenario, [*(overrides or []), *rounds_of(rounds)])
    check_writable("json", json_file)

    def under(policy: str) -> "pd.DataFrame":
        with shown("rounds") as show:
            return learning.judged(parsed, trace_file, policy, show)

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
    from orchestrator.interface import learning

    for line in learning.export(
        run_dir, folder, to.value, state=state.value, client=client, overwrite=overwrite
    ):
        out.print(line)
