# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`testbed campaign`: run campaigns, and show, report and verify their results."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import completion
from orchestrator.cli.console import out, say, shown
from orchestrator.cli.help import Application
from orchestrator.cli.options import (
    FILES,
    JsonFile,
    Overwrite,
    OwnKey,
    Resume,
    SchedulerAddress,
    SchedulerKey,
    Workers,
    WorkScheduler,
)
from testbed.core.errors import InputError, RunError

if TYPE_CHECKING:
    from orchestrator.campaigning.folder import CampaignFolder

app = Application(
    help="""Run the scenarios that a campaign file describes, on one or several machines.

    Examples:
        testbed campaign run quickstart --out runs/campaign
        testbed campaign status runs/campaign
    """,
)


Given = Annotated[
    Path,
    typer.Argument(
        metavar="FILE|DIR",
        help="Campaign file (YAML), directory of a campaign, or name of a built-in campaign: "
        "paper, quickstart, learning or figure8.",
        autocompletion=completion.campaigns,
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Directory of the campaign.",
        show_default="runs/NAME",
        autocompletion=completion.folders,
    ),
]
Tolerance = Annotated[
    float,
    typer.Option(
        min=0, metavar="X", help="Largest allowed relative difference between measured latencies."
    ),
]


@app.command()
def run(
    given: Given,
    output: Output = None,
    overwrite: Overwrite = False,
    resume: Resume = False,
    scheduler: WorkScheduler = None,
    key: SchedulerKey = None,
    workers: Workers = None,
    retry_invalid: Annotated[
        bool,
        typer.Option("--retry-invalid", help="Repeat the emulated points that were not valid."),
    ] = False,
) -> None:
    """Compute all points of a campaign that are not finished.

    An interrupted campaign is therefore resumed even without `--resume`.

    Examples:
        testbed campaign run quickstart --out runs/campaign
        testbed campaign run my-campaign.yaml --workers 4
        testbed campaign run paper --scheduler tls://10.0.0.1:8786 --key campaign.key
    """
    from orchestrator.interface import campaigns

    folder = campaigns.folder_of(given, output)
    with shown("points") as show:
        done = campaigns.compute(
            given,
            folder,
            overwrite=overwrite,
            resume=resume,
            retry_invalid=retry_invalid,
            scheduler=scheduler,
            key=key,
            workers=workers,
            progress=show,
        )
    out.print(f"{done.points} points, {done.made} of them computed now, {len(done.failed)} failed")
    _report(folder)
    if done.invalid:
        out.print(f"{done.invalid} emulated points are not valid; --retry-invalid repeats them")
    campaigns.complain(done)


@app.command()
def status(given: Given, output: Output = None) -> None:
    """Show how many points are finished, and why points have failed.

    Examples:
        testbed campaign status runs/campaign
    """
    from orchestrator.campaigning.results import study_counts
    from orchestrator.cli.printed_tables import plain_table

    folder = _folder(given, output)
    counts, failures = study_counts(folder, folder.campaign())
    out.print(plain_table(counts))
    for id_, failure in failures.items():
        out.print(f"{id_} failed on {failure['host']}: {failure['failure']}", markup=False)


@app.command()
def report(given: Given, output: Output = None) -> None:
    """Collect the results of the finished points, and write the report and its figures.

    Examples:
        testbed campaign report runs/campaign
    """
    _report(_folder(given, output))


def _report(folder: "CampaignFolder") -> None:
    from orchestrator.interface.campaigns import collected

    done = collected(folder)
    for line in done.sentences:
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    out.print(f"results: {folder.path / 'results'}")
    out.print(f"report: {done.found}")


@app.command()
def table(given: Given, output: Output = None, json_file: JsonFile = None) -> None:
    """Print the means of each study and the verdicts on its claims, as Markdown tables.

    Examples:
        testbed campaign table runs/campaign
    """
    from orchestrator.campaigning.claims import judge
    from orchestrator.campaigning.results import write_results
    from orchestrator.campaigning.tables import markdown, means_of
    from orchestrator.records.tables import read_own
    from testbed.system.files import check_writable, write_json

    check_writable("json", json_file)
    folder = _folder(given, output)
    campaign = folder.campaign()
    points = read_own(write_results(folder, campaign) / "points.parquet")
    if json_file is not None:
        judged = [one.to_json() for one in judge(campaign, points)]
        write_json(json_file, {"means": means_of(campaign, points), "claims": judged})
    out.print(markdown(campaign, points), markup=False, highlight=False, soft_wrap=True)


@app.command()
def verify(
    given: Given,
    output: Output = None,
    sample: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Number of points to recompute.", show_default="all"),
    ] = None,
    tolerance: Tolerance = 0.05,
    scheduler: WorkScheduler = None,
    key: SchedulerKey = None,
    workers: Workers = None,
    json_file: JsonFile = None,
) -> None:
    """Recompute finished points, and print the differences.

    The exit status is 1 if there is a difference.

    Examples:
        testbed campaign verify runs/campaign --sample 3
    """
    from orchestrator.campaigning.verify import verify as replay
    from testbed.host.dask_cluster import Cluster
    from testbed.system.files import check_writable, write_json

    check_writable("json", json_file)
    with shown("points") as show:
        done = replay(
            _folder(given, output),
            sample=sample,
            tolerance=tolerance,
            cluster=Cluster(scheduler, workers, key=key),
            progress=lambda now, total: show("verify", now, total),
        )
    if json_file is not None:
        write_json(json_file, done.to_json())
    for line in done.lines():
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    if not done.ok:
        raise RunError(f"{sum(not r.ok for r in done.replays)} points differ from what is stored")


@app.command("scheduler")
def serve_scheduler(
    host: Annotated[
        str,
        typer.Option(metavar="IP", help="Address of this machine on which the scheduler listens."),
    ],
    key: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Shared key file. It is created if it does not exist.",
            autocompletion=FILES,
        ),
    ],
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="PORT", help="TCP port. 0: any free port.")
    ] = 8786,
) -> None:
    """Run a Dask scheduler, with TLS and without a dashboard.

    Examples:
        testbed campaign scheduler --host 10.0.0.1 --key campaign.key
    """
    from testbed.host import dask_nodes

    dask_nodes.serve_scheduler(host, port, key, say)


@app.command("worker")
def serve_worker(
    address: SchedulerAddress,
    key: OwnKey,
    workers: Workers = None,
    machine: Annotated[
        bool,
        typer.Option(
            "--machine",
            help="Also compute emulated points, in a single worker process. Start only one such "
            "worker per machine.",
        ),
    ] = False,
) -> None:
    """Compute points for a scheduler, until the scheduler ends.

    Examples:
        testbed campaign worker tls://10.0.0.1:8786 --key campaign.key
        testbed campaign worker tls://10.0.0.1:8786 --key campaign.key --machine
    """
    from testbed.host import dask_nodes

    if machine and workers is not None:
        raise InputError("--workers: must be absent with --machine, which starts one worker")
    count = 1 if machine else workers or len(os.sched_getaffinity(0))
    dask_nodes.serve_workers(address, key, count, machine=machine)


def _folder(given: Path, output: Path | None) -> "CampaignFolder":
    from orchestrator.interface.campaigns import folder_of

    return folder_of(given, output)
