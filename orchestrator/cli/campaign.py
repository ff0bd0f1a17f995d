# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`testbed campaign`: run campaigns, and show, report and verify their results."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.console import out, shown
from orchestrator.cli.grouped import Grouped
from orchestrator.cli.options import SchedulerKey
from testbed.core.errors import InputError, RunError

if TYPE_CHECKING:
    from orchestrator.campaign.folder import CampaignFolder

app = typer.Typer(
    cls=Grouped,
    help="Many scenarios from one file: reproducible, resumable, on one or several machines.",
)


Given = Annotated[
    Path,
    typer.Argument(
        metavar="FILE|DIR",
        help="A campaign file or directory; or a built-in campaign: paper, quickstart.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="The campaign's directory (default: runs/NAME)."),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Use the workers of this Dask scheduler (default: processes on this machine).",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Processes on this machine (default: one per core)."),
]


@app.command()
def run(
    given: Given,
    output: Output = None,
    scheduler: Scheduler = None,
    key: SchedulerKey = None,
    workers: Workers = None,
    retry_invalid: Annotated[
        bool, typer.Option("--retry-invalid", help="Repeat emulations that were not valid.")
    ] = False,
) -> None:
    """Compute all points that are not finished; an interrupted campaign resumes."""
    from orchestrator.campaign.cluster import run_campaign
    from orchestrator.campaign.spec import load_campaign
    from testbed.host.dask_cluster import Cluster

    campaign, folder = load_campaign(given), _folder(given, output)
    with shown("points") as show:
        done = run_campaign(
            campaign,
            folder,
            cluster=Cluster(scheduler, workers, key=key),
            retry_invalid=retry_invalid,
            progress=lambda now, total: show(campaign.name, now, total),
        )
    out.print(f"{done.points} points, {done.made} of them computed now, {len(done.failed)} failed")
    _report(folder)
    if done.invalid:
        out.print(f"{done.invalid} emulated points are not valid; --retry-invalid repeats them")
    if done.failed:
        id_, why = next(iter(done.failed.items()))
        raise RunError(f"{len(done.failed)} points failed; {id_}: {why}")


@app.command()
def status(given: Given, output: Output = None) -> None:
    """Show which points are finished, failed (and why) or missing."""
    from orchestrator.campaign.results import study_counts
    from orchestrator.cli.tables import plain_table

    folder = _folder(given, output)
    counts, failures = study_counts(folder, folder.campaign())
    out.print(plain_table(counts))
    for id_, failure in failures.items():
        out.print(f"{id_} failed on {failure['host']}: {failure['failure']}", markup=False)


@app.command()
def report(given: Given, output: Output = None) -> None:
    """Collect the results of the finished points; write the report and its charts."""
    _report(_folder(given, output))


def _report(folder: "CampaignFolder") -> None:
    import pandas as pd

    from orchestrator.campaign.report import write_campaign_report
    from orchestrator.campaign.results import write_results
    from orchestrator.campaign.summary import answers

    campaign = folder.campaign()
    results = write_results(folder, campaign)
    for line in answers(campaign, pd.read_parquet(results / "curves.parquet")):
        out.print(line, markup=False, highlight=False)
    out.print(f"results: {results}")
    out.print(f"report: {write_campaign_report(folder, campaign)}")


@app.command()
def verify(
    given: Given,
    output: Output = None,
    sample: Annotated[
        int | None, typer.Option(min=1, help="Number of points to repeat (default: all).")
    ] = None,
    tolerance: Annotated[
        float, typer.Option(min=0, help="Relative tolerance of measured latencies.")
    ] = 0.05,
    scheduler: Scheduler = None,
    key: SchedulerKey = None,
    workers: Workers = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the verdicts as JSON.")
    ] = None,
) -> None:
    """Compute finished points again and report differences; status 1 if there are any."""
    from orchestrator.campaign.verify import verify as replay
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
    host: Annotated[str, typer.Option(help="The address of this machine to listen on.")],
    key: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Shared key file (created if missing).",
        ),
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any.")] = 8786,
) -> None:
    """Run a Dask scheduler for campaigns (TLS with the shared key, no dashboard)."""
    from testbed.host import dask_nodes

    dask_nodes.make_key(key)
    dask_nodes.serve_scheduler(
        host, port, key, lambda address: print(f"testbed: {address}", file=sys.stderr, flush=True)
    )


@app.command("worker")
def serve_worker(
    address: Annotated[str, typer.Argument(metavar="tls://HOST:PORT", help="The scheduler.")],
    key: Annotated[Path, typer.Option(metavar="FILE", help="The scheduler's key.")],
    workers: Workers = None,
    machine: Annotated[
        bool,
        typer.Option("--machine", help="Also run emulated points; start one worker per machine."),
    ] = False,
) -> None:
    """Compute points for a scheduler until it ends."""
    from testbed.host import dask_nodes

    if machine and workers is not None:
        raise InputError("--workers: must be absent with --machine, which starts one worker")
    count = 1 if machine else workers or len(os.sched_getaffinity(0))
    dask_nodes.serve_workers(address, key, count, machine=machine)


def _folder(given: Path, output: Path | None) -> "CampaignFolder":
    from orchestrator.campaign.folder import CampaignFolder
    from orchestrator.campaign.spec import load_campaign

    if output is None:
        output = given if given.is_dir() else Path("runs") / load_campaign(given).name
    return CampaignFolder(output)
