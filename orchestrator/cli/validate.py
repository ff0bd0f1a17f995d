# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`testbed validate`: compare an analytical model with the network."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.console import out, shown
from orchestrator.cli.options import JsonFile, Overrides, ScenarioFile
from testbed.core.errors import InputError


def validate(
    scenario: ScenarioFile,
    model: Annotated[
        str, typer.Option("--model", metavar="NAME", help="An equation of the paper, or a plug-in.")
    ],
    space: Annotated[
        Path | None,
        typer.Option("--space", metavar="FILE", help="Ranges of keys (default: around SCENARIO)."),
    ] = None,
    samples: Annotated[
        int, typer.Option(min=16, max=1_000_000, help="Points computed by the engine.")
    ] = 4000,
    packets: Annotated[
        int | None,
        typer.Option(min=0, help="Points simulated by ns-3 (default: 1 % of --samples)."),
    ] = None,
    kernel: Annotated[
        int, typer.Option(metavar="M", min=0, help="Points emulated on the kernel's links.")
    ] = 0,
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0, max=10, help="Tolerated relative error (default: 0.05; for bounds: 0)."
        ),
    ] = None,
    metric: Annotated[
        str | None, typer.Option(metavar="NAME", help="Metric to compare (default: the model's).")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 1,
    overrides: Overrides = None,
    json_file: JsonFile = None,
    output: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Keep page, JSON and YAML, and resume from DIR."),
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Use this Dask scheduler's workers.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes on this machine (default: one per core).")
    ] = None,
) -> None:
    """Find where an analytical model is valid, how large its error is, and why."""
    from orchestrator.cli.tables import validation_lines
    from orchestrator.scenario.loading import load
    from orchestrator.studies.validation import study
    from orchestrator.studies.validation.outcome import Request
    from orchestrator.studies.validation.space import default_space, load_space
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
    if output is not None:
        from orchestrator.studies.validation.page import write

        study.check_folder(request, output)
    with (
        temporary_folder("validate") if output is None else nullcontext(output) as folder,
        shown("points") as show,
    ):
        found = study.validate(
            request,
            folder,
            cluster=Cluster(scheduler, workers, pool=scheduler is None),
            progress=show,
        )
        if output is not None:
            write(found, output)
    if json_file is not None:
        write_json(json_file, found.to_json())
    for line in validation_lines(found):
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    if output is not None:
        out.print(f"written to {output}")
