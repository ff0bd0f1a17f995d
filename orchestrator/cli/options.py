# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

ScenarioFile = Annotated[
    Path,
    typer.Argument(
        metavar="SCENARIO",
        help="A scenario file (YAML), or a built-in scenario: paper, quickstart, hundred.",
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key, e.g. workload.split=3."),
]
Rounds = Annotated[int | None, typer.Option(min=1, help="Number of rounds (default: scenario).")]
TraceFile = Annotated[
    Path | None, typer.Option("--trace", metavar="T.npz", help="Replay this channel trace.")
]
HostScheduler = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Run the nodes on the hosts of this Dask scheduler."),
]
SchedulerKey = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The scheduler's key file, see `campaign scheduler`."),
]
JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write the results as JSON.")
]
RunDirectory = Annotated[Path, typer.Argument(metavar="DIR", help="A run directory.")]


def rounds_of(rounds: int | None) -> list[str]:
    """The scenario override that is equivalent to `--rounds`."""
    return [] if rounds is None else [f"rounds={rounds}"]
