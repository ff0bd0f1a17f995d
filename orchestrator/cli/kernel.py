# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`testbed kernel`: build and show the Linux kernel for virtual time."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.console import shown

if TYPE_CHECKING:
    from testbed.virtual.kernel import Kernel

app = typer.Typer(help="Build and show the kernel for virtual time.")


@app.command()
def build(
    source: Annotated[
        Path | None,
        typer.Option(
            "--source", metavar="TARBALL", help="Source archive of Linux 6.12 (default: Debian's)."
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Parallel jobs (default: one per core).")
    ] = None,
) -> None:
    """Build the kernel from Debian's source or another archive; keep it in the user's cache."""
    from testbed.virtual import kernel

    if lines := kernel.missing(source):
        for line in lines:
            print(f"testbed: kernel build: needs {line}", file=sys.stderr)
        raise typer.Exit(2)
    with shown("files") as show:
        built = kernel.build(source, jobs=jobs, progress=show)
    _print(built)


@app.command()
def status(
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Show the built kernel, or what is missing to build one."""
    from testbed.virtual import kernel

    found = kernel.find()
    if as_json:
        print(json.dumps(found and found.to_json()))
    elif found is not None:
        _print(found)
    else:
        print("not built: build it with `testbed kernel build` (some minutes)")
        for line in kernel.missing():
            print(f"it needs {line}")


def _print(kernel: "Kernel") -> None:
    print(f"Linux {kernel.version}, built {kernel.built} with {kernel.compiler}")
    print(f"{kernel.program}")
    for what, digest in (
        ("kernel", kernel.program_sha256),
        ("configuration", kernel.config_sha256),
        *kernel.patches_sha256.items(),
        ("recipe", kernel.recipe_sha256),
        ("source", kernel.source_sha256),
    ):
        print(f"  {what:24s} sha256 {digest}")
