# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`testbed doctor`, `clean`: what this machine can do, and what was left on it."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.console import out
from orchestrator.cli.options import JsonFile
from testbed.core.errors import RunError


def doctor(
    json_file: JsonFile = None,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Ask the hosts of this Dask scheduler instead."),
    ] = None,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="The scheduler's key.")] = None,
) -> None:
    """Tell what this machine can do, and what to do about what is missing."""
    from orchestrator.cli.tables import findings_table
    from testbed.host.doctor import examine
    from testbed.system.files import check_writable, write_json

    check_writable("json", json_file)
    if scheduler is not None:
        _doctors_of_hosts(scheduler, key, json_file)
        return
    findings = examine()
    if json_file is not None:
        write_json(json_file, [finding.to_json() for finding in findings])
    out.print(findings_table(findings))


def _doctors_of_hosts(scheduler: str, key: Path | None, json_file: Path | None) -> None:
    from orchestrator.cli.tables import findings_table
    from orchestrator.emulated.hosts import findings_of
    from testbed.system.files import write_json

    found = findings_of(scheduler, key)
    if json_file is not None:
        told = {host: [each.to_json() for each in of_host] for host, of_host in found.items()}
        write_json(json_file, told)
    for host, of_host in found.items():
        out.print(f"host {host}", markup=False)
        out.print(findings_table(of_host))
        out.print()


def clean() -> None:
    """Remove what dead runs have left on this machine, and say what that was.

    Running ones, and whatever is not the testbed's, are left untouched.
    """
    from testbed.runtimes import docker
    from testbed.system import leftovers

    found = leftovers.find()
    try:
        found += [*docker.find_leftovers(), *docker.find_image()]
    except RunError as error:
        print(f"testbed: containers were not looked for: {error}", file=sys.stderr)
    done = leftovers.remove(found)
    for what, problem in done.items():
        print(f"{'not ' if problem else ''}removed: {what}")
    if problems := [f"{what}: {problem}" for what, problem in done.items() if problem]:
        raise RunError("; ".join(problems))
    if not done:
        print("nothing was left")


def host(
    address: Annotated[str, typer.Argument(metavar="tls://HOST:PORT", help="The scheduler.")],
    key: Annotated[Path, typer.Option(metavar="FILE", help="The scheduler's key.")],
    name: Annotated[
        str | None, typer.Option(help="What the scenario calls it; left out: as it is called.")
    ] = None,
) -> None:
    """Carry nodes of runs that are spread over machines, until the scheduler is gone."""
    from testbed.host import dask_nodes

    dask_nodes.serve_host(address, key, name)
