# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Arguments and options that several commands share."""

import re
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import completion
from orchestrator.cli.console import json_only
from testbed.core.errors import InputError
from testbed.system.files import check_ending

FILES = completion.files()
JSON_FILES = completion.files(".json")
PER_SCENARIO = "`rounds` of the scenario"
PER_CORE = "one per core"
STDOUT = Path("-")

ScenarioFile = Annotated[
    Path,
    typer.Argument(
        metavar="SCENARIO",
        help="Scenario file (YAML), or the name of a built-in scenario: paper, quickstart or "
        "hundred.",
        autocompletion=completion.scenarios,
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set a key of the scenario, for example workload.split=3.",
        autocompletion=completion.assignments,
    ),
]
Rounds = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Number of rounds.", show_default=PER_SCENARIO),
]
TraceFile = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        metavar="T.npz",
        help="Channel trace to replay instead of generating a channel.",
        autocompletion=completion.files(".npz"),
    ),
]
HostScheduler = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="Run the nodes on the hosts of the Dask scheduler at this address."
    ),
]
SchedulerAddress = Annotated[
    str,
    typer.Argument(
        metavar="ADDRESS", help="Address of the scheduler, such as tls://10.0.0.1:8786."
    ),
]
OwnKey = Annotated[
    Path,
    typer.Option(metavar="FILE", help="Key file of the scheduler.", autocompletion=FILES),
]
WorkScheduler = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Use the workers of the Dask scheduler at this address.",
        show_default="processes on this machine",
    ),
]
SchedulerKey = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Key file of the scheduler, created by `testbed campaign scheduler`.",
        autocompletion=FILES,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Number of worker processes on this machine.",
        show_default=PER_CORE,
    ),
]
WaitQuiet = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Wait until other processes are idle, but no longer than this time, such as 90s, 10m "
        "or 1h. Then start.",
    ),
]


def _or_stdout(context: typer.Context, path: Path | None) -> Path | None:
    if path != STDOUT or context.resilient_parsing:
        check_ending("json", path, ".json")
        return path
    return context.with_resource(json_only())


CommandWords = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="COMMAND",
        help="Command to run, with its arguments, after `--`.",
        show_default="a shell",
    ),
]
JsonFile = Annotated[
    Path | None,
    typer.Option(
        "--json",
        metavar="FILE",
        help="Write the results as JSON to this file. With -, write it to stdout, and everything "
        "else to stderr.",
        callback=_or_stdout,
        autocompletion=JSON_FILES,
    ),
]
Learned = Annotated[
    list[Path] | None,
    typer.Option(
        "--learned",
        metavar="DIR",
        help="Output folder of a `testbed learn` run. Each loss value of that run is paired with "
        "the time of the corresponding round. Give one folder per random seed.",
        autocompletion=completion.folders,
    ),
]
RunDirectory = Annotated[
    Path,
    typer.Argument(metavar="DIR", help="Run directory.", autocompletion=completion.folders),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace earlier results in the output folder.")
]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Resume earlier work in the output folder, which must exist."),
]


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
