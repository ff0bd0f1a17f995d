# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`testbed bundle` and `verify`: pack results into one file, and check such a file."""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import yaml

from orchestrator.cli.console import out, shown
from orchestrator.cli.options import JsonFile
from testbed.core.errors import RunError

if TYPE_CHECKING:  # `--help` needs no scenario
    from orchestrator.scenario.schema import Scenario


def bundle(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A run directory, or a campaign's.")
    ],
    output: Annotated[Path, typer.Option("--out", metavar="FILE.zip", help="The bundle.")],
    with_data: Annotated[
        bool,
        typer.Option("--with-data", help="Include images and weights that scenarios name."),
    ] = False,
) -> None:
    """Put a run or a campaign into one file with everything needed to check it."""
    from orchestrator.archive.bundle import bundle as write

    with shown("files") as show:
        left = write(directory, output, with_data=with_data, progress=show)
    out.print(f"{output}: `testbed verify` checks it", highlight=False)
    for path in left:
        out.print(f"not included: {path}; use --with-data", markup=False, highlight=False)


def verify(
    bundle: Annotated[Path, typer.Argument(metavar="FILE.zip", help="A bundle.")],
    sample: Annotated[
        int,
        typer.Option(min=0, help="Rounds of a run, or points of a campaign, to emulate again."),
    ] = 1,
    tolerance: Annotated[
        float, typer.Option(min=0, help="Relative tolerance of measured latencies.")
    ] = 0.05,
    clock: Annotated[
        str | None,
        typer.Option(
            metavar="real|virtual",
            help="Clock of a run's sample (default: virtual if possible, else the run's).",
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes for a campaign (default: one per core).")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Predict a bundle again, emulate a sample and explain differences; status 1 if too large."""
    from orchestrator.archive.verify import verify as check
    from testbed.host.dask_cluster import Cluster
    from testbed.system.files import check_writable, write_json
    from testbed.virtual import kernel

    check_writable("json", json_file)
    with shown() as show:
        done = check(
            bundle,
            _emulate,
            clock=clock,
            usual_clock=None if kernel.find() is None else "virtual",
            sample=sample,
            tolerance=tolerance,
            cluster=Cluster(workers=workers),
            progress=show,
        )
    if json_file is not None:
        write_json(json_file, done.to_json())
    for line in done.lines():
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    if not done.ok:
        raise RunError(f"{bundle}: the recomputed results differ from the stored ones")


def _emulate(scenario: "Scenario", trace: Path, folder: Path) -> None:
    """Emulate a scenario with `testbed run`, which enters virtual time if the scenario needs it.

    Raises:
        RunError: The run failed; the message is its last line on stderr.
    """
    file = folder.with_name("scenario.yaml")
    file.write_text(yaml.safe_dump(scenario.model_dump(mode="json")), encoding="utf-8")
    words = ["run", str(file), "--trace", str(trace), "--out", str(folder)]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "orchestrator", *words], capture_output=True, text=True
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise RunError(lines[-1].removeprefix("testbed: "))
