# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`testbed doctor`, `combinations`, `clean`, `host`: what is supported, and this machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.console import out, plain, say
from orchestrator.cli.options import JsonFile, OwnKey, SchedulerAddress, SchedulerKey
from testbed.core.errors import InputError, RunError

if TYPE_CHECKING:
    from testbed.host.doctor import Finding


def doctor(
    json_file: JsonFile = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Check the hosts of the Dask scheduler at this address, instead of this machine.",
        ),
    ] = None,
    key: SchedulerKey = None,
) -> None:
    """Check what this machine supports, and print how to install missing parts.

    Examples:
        testbed doctor
        testbed doctor --scheduler tls://10.0.0.1:8786 --key hosts.key
    """
    from orchestrator.cli.printed_tables import findings_table
    from testbed.host.doctor import examine
    from testbed.system.files import check_writable, write_json

    check_writable("json", json_file)
    if key is not None and scheduler is None:
        raise InputError("--key: needs --scheduler, which the key belongs to")
    if scheduler is not None:
        _examine_hosts(scheduler, key, json_file)
        return
    findings = [*examine(), _nr()]
    if json_file is not None:
        write_json(json_file, [finding.to_json() for finding in findings])
    out.print(findings_table(findings))


def _nr() -> "Finding":
    from ns3_scenarios import nr_module
    from testbed.host.doctor import Finding

    try:
        found, detail = nr_module.find(), "not built"
    except RunError as error:
        found, detail = None, str(error)
    return Finding(
        "5G-LENA",
        found is not None,
        detail if found is None else f"{found.release}, built {found.built}",
        "emulation.air 'ns3' with radio.access 'nr', `trace --radio ns3-nr`",
        "" if found else "; ".join([*nr_module.missing(), nr_module.GET]),
    )


def _examine_hosts(scheduler: str, key: Path | None, json_file: Path | None) -> None:
    from orchestrator.cli.printed_tables import findings_table
    from orchestrator.emulated.hosts import findings_of
    from testbed.system.files import write_json

    found = findings_of(scheduler, key)
    if json_file is not None:
        by_host = {host: [each.to_json() for each in of_host] for host, of_host in found.items()}
        write_json(json_file, by_host)
    for host, of_host in found.items():
        out.print(f"host {host}", markup=False)
        out.print(findings_table(of_host))
        out.print()


def combinations(json_file: JsonFile = None) -> None:
    """Print which values of keys do not go together, and why.

    A scenario that breaks one of these rules is refused when it is loaded.

    Examples:
        testbed combinations
        testbed combinations --json rules.json
    """
    from orchestrator.scenario.combinations import COMBINATIONS
    from testbed.system.files import check_writable, write_json

    rows = [row.to_json() for row in COMBINATIONS]
    check_writable("json", json_file)
    if json_file is not None:
        write_json(json_file, rows)
    for row in COMBINATIONS:
        print(f"{row.name} ({row.kind}): {row.keys[0]}: {row.needs}, because {row.because}")


def clean() -> None:
    """Remove and list everything that killed runs have left behind on this machine.

    Runs that are in progress are not affected.

    Examples:
        testbed clean
    """
    from testbed.runtimes import docker
    from testbed.system import leftovers

    found, nothing = leftovers.find(), "nothing was left"
    try:
        found += [*docker.find_leftovers(), *docker.find_image()]
    except RunError as error:
        nothing = "nothing else was found"
        say(f"no search for containers: {error}")
    done = leftovers.remove(found)
    for what, problem in done.items():
        print(plain(f"{'not ' if problem else ''}removed: {what}"))
    if problems := [f"{what}: {problem}" for what, problem in done.items() if problem]:
        raise RunError("; ".join(problems))
    if not done:
        print(nothing)


def host(
    address: SchedulerAddress,
    key: OwnKey,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name by which scenarios refer to this host in `emulation.placement`.",
            show_default="hostname of this machine",
        ),
    ] = None,
) -> None:
    """Offer this machine as a host for the nodes of runs, until the scheduler ends.

    Examples:
        testbed host tls://10.0.0.1:8786 --key hosts.key --name desk
    """
    from testbed.host import dask_nodes

    dask_nodes.serve_host(address, key, name)
