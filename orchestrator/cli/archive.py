# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`testbed bundle` and `verify`: pack results into one file, and check such a file."""

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import completion
from orchestrator.cli.console import out, shown
from orchestrator.cli.options import PER_CORE, JsonFile
from orchestrator.scenario.yaml_text import dump
from testbed.core.errors import RunError

if TYPE_CHECKING:  # `--help` needs no scenario
    from orchestrator.scenario.schema import Scenario


ZIP_FILES = completion.files(".zip")


def bundle(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Directory of a run or of a campaign.",
            autocompletion=completion.folders,
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--out", metavar="FILE.zip", help="Bundle to write.", autocompletion=ZIP_FILES
        ),
    ],
    with_data: Annotated[
        bool,
        typer.Option(
            "--with-data", help="Include the datasets and the weights that the scenarios use."
        ),
    ] = False,
) -> None:
    """Pack a run or a campaign into one file, with everything that is needed to check it.

    Examples:
        testbed bundle runs/first --out first.zip
    """
    from orchestrator.archive.bundle import bundle as write

    with shown("files") as show:
        left = write(directory, output, with_data=with_data, progress=show)
    out.print(f"{output}: `testbed verify` checks it", highlight=False)
    for path in left:
        out.print(f"not included: {path}; use --with-data", markup=False, highlight=False)


def verify(
    bundle: Annotated[
        Path,
        typer.Argument(metavar="FILE.zip", help="Bundle to check.", autocompletion=ZIP_FILES),
    ],
    sample: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Number of rounds of a run, or of points of a campaign, to emulate again.",
        ),
    ] = 1,
    tolerance: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="X",
            help="Largest allowed relative difference between measured latencies.",
        ),
    ] = 0.05,
    clock: Annotated[
        str | None,
        typer.Option(
            metavar="real|virtual",
            help="Clock that is used to emulate rounds of a run again.",
            show_default="virtual if possible, otherwise the clock of the run",
            autocompletion=completion.words("real", "virtual"),
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Number of worker processes for a bundle of a campaign.",
            show_default=PER_CORE,
        ),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Check a bundle: recompute its predictions, emulate a sample, and explain the differences.

    The exit status is 1 if a difference is too large.

    Examples:
        testbed verify first.zip
        testbed verify first.zip --sample 3 --clock virtual --json checked.json
    """
    from orchestrator.archive.verify import verify as check
    from testbed.host.dask_cluster import Cluster
    from testbed.system.files import check_writable, write_json
    from testbed.virtual import kernel

    check_writable("json", json_file)
    _close_input()
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


def _close_input() -> None:
    """Put an empty file in place of the standard input: nothing may ask for an answer."""
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)


def _emulate(scenario: "Scenario", trace: Path, folder: Path) -> None:
    """Emulate a scenario with `testbed run`, which enters virtual time if the scenario needs it.

    It runs in a folder of its own, without input, and asks no hub.

    Raises:
        RunError: The run failed; the message is its last line on stderr.
    """
    file = folder.with_name("scenario.yaml")
    file.write_text(dump(scenario.model_dump(mode="json")), encoding="utf-8")
    words = ["run", str(file), "--trace", str(trace), "--out", str(folder)]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "orchestrator", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=folder.parent,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"},
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise RunError(lines[-1].removeprefix("testbed: "))
