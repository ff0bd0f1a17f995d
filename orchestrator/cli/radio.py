# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`testbed radio`: build and show the parts of ns-3's radio that its package lacks."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import completion
from orchestrator.cli.console import say, shown
from orchestrator.cli.help import Application
from orchestrator.cli.options import PER_CORE, JsonFile
from testbed.core.errors import InputError
from testbed.core.words import not_one_of

if TYPE_CHECKING:
    from ns3_scenarios.nr_module import Module

PARTS = ("nr",)

app = Application(
    help="""Build 5G-LENA, the NR module for ns-3, or show its status.

    Examples:
        testbed radio build nr --source 5g-lena
    """
)


@app.command()
def build(
    part: Annotated[
        str,
        typer.Argument(
            metavar="nr", help="Part to build.", autocompletion=completion.words(*PARTS)
        ),
    ],
    source: Annotated[
        Path,
        typer.Option(
            "--source",
            metavar="FOLDER",
            help="Source of 5G-LENA's release NR-v4.0: the folder contrib/nr.",
            autocompletion=completion.files(),
        ),
    ],
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            min=1,
            metavar="N",
            help="Number of parallel compilers. Each needs 1.5 GB of memory.",
            show_default=PER_CORE,
        ),
    ] = None,
) -> None:
    """Build 5G-LENA for NR over packets, and store it in the user's cache.

    Its source is the branch 5g-lena-v4.0.y of https://gitlab.com/cttc-lena/nr. The build takes
    about five minutes of CPU time on a fast machine, and up to an hour on a slow one. If it is
    interrupted, the next build continues it.

    Examples:
        testbed radio build nr --source 5g-lena
    """
    from ns3_scenarios import nr_module

    if part not in PARTS:
        raise InputError(f"radio build: {not_one_of(part[:40], PARTS)}")
    with shown("parts") as show:
        module, is_new = nr_module.build_module(source, jobs=jobs, progress=show)
    if not is_new:
        say("it had been built before")
    _print(module)


@app.command()
def status(json_file: JsonFile = None) -> None:
    """Show the parts of ns-3's radio that are built, or what is missing to build them.

    Examples:
        testbed radio status
        testbed radio status --json radio.json
    """
    from ns3_scenarios import nr_module
    from testbed.system.files import check_writable, write_json

    check_writable("json", json_file)
    found = nr_module.find()
    if json_file is not None:
        write_json(json_file, {"nr": found and found.to_json()})
    if found is not None:
        _print(found)
        return
    print(f"nr: not built: {nr_module.GET}")
    for line in nr_module.missing():
        print(f"it needs {line}")


def _print(module: "Module") -> None:
    print(f"nr: 5G-LENA {module.release}, built {module.built} for ns-3 {module.ns3}")
    print(module.library)
    for what, digest in (("source", module.source_sha256), ("recipe", module.recipe_sha256)):
        print(f"  {what:24s} sha256 {digest}")
