# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Arguments and options that several commands share."""

import re
from pathlib import Path
from typing import Annotated

import typer

from testbed.core.errors import InputError

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
WaitQuiet = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="Wait up to TIME (90s, 10m, 1h) for other processes to be idle."
    ),
]
JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write the results as JSON.")
]
Learned = Annotated[
    list[Path] | None,
    typer.Option(
        "--learned",
        metavar="DIR",
        help="What `testbed learn` has learned, to be timed by these rounds; one DIR per seed.",
    ),
]
RunDirectory = Annotated[Path, typer.Argument(metavar="DIR", help="A run directory.")]


def rounds_of(rounds: int | None) -> list[str]:
    """The scenario override that is equivalent to `--rounds`."""
    return [] if rounds is None else [f"rounds={rounds}"]


def seconds_of(wait_quiet: str | None) -> float | None:
    """Parse the duration of `--wait-quiet`: `90s`, `10m`, `1h`, or a number of seconds.

    Raises:
        InputError: The text is not a duration.
    """
    if wait_quiet is None:
        return None
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)([smh]?)", wait_quiet)
    if found is None:
        raise InputError(f"--wait-quiet: must be like 90s, 10m or 1h, not {wait_quiet[:40]!r}")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2] or "s"]
