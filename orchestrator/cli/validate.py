# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`testbed validate`: compare an analytical model with the network."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import completion
from orchestrator.cli.console import out, shown
from orchestrator.cli.folders import check_resumable, empty
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
from testbed.core.errors import InputError


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
    from orchestrator.scenario.loading import load
    from orchestrator.studies.validation import study
    from orchestrator.studies.validation.outcome import Request
    from orchestrator.studies.validation.space import default_space, load_space
    from orchestrator.studies.validation.verdict import verdict
    from orchestrator.theory.models import model as check_model
    from testbed.host.dask_cluster import Cluster
    from testbed.system.files import check_writable, write_json
    from testbed.system.leftovers import temporary_folder

    parsed = load(scenario, overrides or [])
    check_model(model, parsed)
    varied = default_space(parsed) if space is None else load_space(space, parsed)
    if max(packets or 0, kernel) > samples:
        raise InputError("--packets, --kernel: must not be above --samples")
    check_writable("json", json_file)
    request = Request(parsed, model, varied, samples, packets, kernel, tolerance, metric, seed)
    cluster = Cluster(scheduler, workers, pool=scheduler is None, key=key)
    check_resumable(output, study.SETTINGS, "validation", overwrite=overwrite, resume=resume)
    if output is not None:
        from orchestrator.studies.validation.page import write

        if overwrite:
            empty(output)
        study.check_folder(request, output)
    with (
        temporary_folder("validate") if output is None else nullcontext(output) as folder,
        shown("points") as show,
    ):
        found = study.validate(
            request,
            folder,
            cluster=cluster,
            progress=show,
        )
        if output is not None:
            write(found, output)
    if json_file is not None:
        write_json(json_file, found.to_json())
    for line in [*validation_lines(found), " ".join(verdict(found))]:
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    if output is not None:
        out.print(f"written to {output}")
