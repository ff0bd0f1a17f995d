# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`testbed validate`: compare an analytical model with the network."""

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import completion
from orchestrator.cli.console import out, shown
from orchestrator.cli.options import (
    JsonFile,
    Overrides,
    Overwrite,
    Resume,
    ScenarioFile,
    SchedulerKey,
    Workers,
    WorkScheduler,
)


def validate(
    scenario: ScenarioFile,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            metavar="NAME",
            help="Analytical model to validate: an equation of the paper, or a plug-in.",
            autocompletion=completion.analytical_models,
        ),
    ],
    space: Annotated[
        Path | None,
        typer.Option(
            "--space",
            metavar="FILE",
            help="YAML file with the ranges from which the values of keys are drawn.",
            show_default="ranges around the values of SCENARIO",
            autocompletion=completion.files(".yaml", ".yml"),
        ),
    ] = None,
    samples: Annotated[
        int,
        typer.Option(
            min=16,
            max=1_000_000,
            metavar="N",
            help="Number of points to draw and to predict with the engine.",
        ),
    ] = 4000,
    packets: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Number of these points to simulate packet by packet with ns-3.",
            show_default="1 % of --samples",
        ),
    ] = None,
    kernel: Annotated[
        int,
        typer.Option(metavar="M", min=0, help="Number of these points to emulate."),
    ] = 0,
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=10,
            metavar="X",
            help="Relative error up to which the model is considered valid.",
            show_default="0.05, or 0 for bounds",
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Metric to compare.",
            show_default="that of the model",
            autocompletion=completion.metrics,
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", help="Random seed that determines the points.")
    ] = 1,
    overrides: Overrides = None,
    json_file: JsonFile = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Output folder for the page, the JSON and the YAML files. An interrupted "
            "validation in this folder is resumed.",
            autocompletion=completion.folders,
        ),
    ] = None,
    overwrite: Overwrite = False,
    resume: Resume = False,
    scheduler: WorkScheduler = None,
    key: SchedulerKey = None,
    workers: Workers = None,
) -> None:
    """Find where an analytical model is valid, and how large its error is.

    Examples:
        testbed validate quickstart --model tau2-hat --samples 200
        testbed validate paper --model cpsfl-bounds --out results/bounds --json bounds.json
    """
    from orchestrator.cli.printed_tables import validation_lines
    from orchestrator.interface import studies
    from orchestrator.scenario.loading import load
    from testbed.system.files import check_writable, write_json

    parsed = load(scenario, overrides or [])
    check_writable("json", json_file)
    with shown("points") as show:
        done = studies.validate(
            parsed,
            model,
            space,
            samples=samples,
            packets=packets,
            kernel=kernel,
            tolerance=tolerance,
            metric=metric,
            seed=seed,
            out=output,
            overwrite=overwrite,
            resume=resume,
            scheduler=scheduler,
            key=key,
            workers=workers,
            progress=show,
        )
    if json_file is not None:
        write_json(json_file, done.found.to_json())
    for line in [*validation_lines(done.found), " ".join(done.sentences)]:
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    if output is not None:
        out.print(f"written to {output}")
