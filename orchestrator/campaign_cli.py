"""`testbed campaign`: run, look at, report and verify campaigns."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from orchestrator.progress import shown
from testbed.errors import RunError

if TYPE_CHECKING:
    from orchestrator.campaign_folder import CampaignFolder

app = typer.Typer(
    no_args_is_help=False,
    help="Many scenarios from one file: reproducible, resumable, spread over machines.",
)
out = Console()

Given = Annotated[
    Path, typer.Argument(metavar="FILE|DIR", help="A campaign file, or the directory of one.")
]
Output = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="The campaign's directory; left out: runs/NAME."),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Use the workers of this Dask scheduler; left out: processes on this machine.",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Processes on this machine; left out: one a core."),
]


@app.command()
def run(
    given: Given,
    output: Output = None,
    scheduler: Scheduler = None,
    workers: Workers = None,
    retry_invalid: Annotated[
        bool, typer.Option("--retry-invalid", help="Emulate again what was not valid.")
    ] = False,
) -> None:
    """Compute all points that are not finished; goes on where an earlier run stopped."""
    from orchestrator.campaign import load_campaign
    from orchestrator.campaign_run import Cluster, run_campaign

    campaign, folder = load_campaign(given), _folder(given, output)
    with shown("points") as show:
        done = run_campaign(
            campaign,
            folder,
            cluster=Cluster(scheduler, workers),
            retry_invalid=retry_invalid,
            progress=lambda now, total: show(campaign.name, now, total),
        )
    out.print(f"{done.points} points, {done.made} of them made now, {len(done.failed)} failed")
    if done.invalid:
        out.print(f"{done.invalid} emulated points are not valid; --retry-invalid tries them again")
    if done.failed:
        id_, why = next(iter(done.failed.items()))
        raise RunError(f"{len(done.failed)} points failed; {id_}: {why}")


def _folder(given: Path, output: Path | None) -> "CampaignFolder":
    from orchestrator.campaign import load_campaign
    from orchestrator.campaign_folder import CampaignFolder

    if output is None:
        output = given if given.is_dir() else Path("runs") / load_campaign(given).name
    return CampaignFolder(output)
