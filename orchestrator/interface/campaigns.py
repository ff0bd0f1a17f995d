# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`campaign`: the scenarios of a campaign file; `report`: the pages of earlier results."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.interface.folders import check_resumable
from orchestrator.interface.given import path_of, typed
from orchestrator.interface.progress import followed
from orchestrator.interface.results import StudyResult
from testbed.core.errors import InputError, RunError
from testbed.core.progress import Progress

if TYPE_CHECKING:
    import pandas as pd

    from orchestrator.campaigning.cluster import Outcome
    from orchestrator.campaigning.folder import CampaignFolder
    from orchestrator.campaigning.spec import Campaign


@typed
def campaign(
    file: str | Path | Mapping[str, Any],
    out: str | Path | None = None,
    *,
    overwrite: bool = False,
    resume: bool = False,
    retry_invalid: bool = False,
    scheduler: str | None = None,
    key: str | Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> StudyResult:
    """Compute all points of a campaign that are not finished, and collect their results.

    Args:
        file: A campaign file (YAML), the directory of a campaign, or the name of an included
            campaign, such as `quickstart`; or the content of a campaign file, with paths relative
            to the working directory.
        out: Directory of the campaign. Default: `runs/NAME`.
        overwrite: Whether earlier points are removed.
        resume: Whether there must be earlier points.
        retry_invalid: Whether emulated points that were not valid are repeated.
        scheduler: Address of a Dask scheduler whose workers compute. Default: this machine.
        key: Key file of the scheduler.
        workers: Number of worker processes on this machine; 0: this process computes. Default: one
            per core.
        progress: Called with a description of the current step, its progress, and its total.
            Default: a bar in a notebook.

    Returns:
        The tables of the campaign's folder `results`, `points` first; the figures of its report;
        as Markdown, the tables of `testbed campaign table`.

    Raises:
        InputError: An argument is not valid.
        RunError: A point failed; the other points are finished.
    """
    place = None if out is None else path_of(out, "`out`: must be a path")
    given: Path | Campaign
    if isinstance(file, Mapping):
        from orchestrator.campaigning.spec import campaign_of

        given = campaign_of(file, "`file`", Path())
    else:
        given = path_of(file, "`file`: must be a mapping, or the path or name of a campaign")
    folder = folder_of(given, place)
    with followed(progress) as show:
        done = compute(
            given,
            folder,
            overwrite=overwrite,
            resume=resume,
            retry_invalid=retry_invalid,
            scheduler=scheduler,
            key=None if key is None else Path(key),
            workers=workers,
            progress=show,
        )
    result = collected(folder)
    complain(done)
    return result


def compute(
    given: "Path | Campaign",
    folder: "CampaignFolder",
    *,
    overwrite: bool,
    resume: bool,
    retry_invalid: bool,
    scheduler: str | None,
    key: Path | None,
    workers: int | None,
    progress: Progress,
) -> "Outcome":
    """Compute the points of a campaign that are not finished; see `campaign`."""
    from orchestrator.campaigning.cluster import run_campaign
    from orchestrator.campaigning.folder import CAMPAIGN
    from orchestrator.campaigning.spec import load_campaign
    from testbed.host.dask_cluster import Cluster

    loaded = load_campaign(given) if isinstance(given, Path) else given
    cluster = Cluster(scheduler, workers, key=key)
    check_resumable(folder.path, CAMPAIGN, "campaign", overwrite=overwrite, resume=resume)
    if overwrite:
        folder.clear()
    return run_campaign(
        loaded,
        folder,
        cluster=cluster,
        retry_invalid=retry_invalid,
        progress=lambda now, total: progress(loaded.name, now, total),
    )


def complain(done: "Outcome") -> None:
    """Raise an error if points failed.

    Raises:
        RunError: At least one point failed.
    """
    if done.failed:
        id_, why = next(iter(done.failed.items()))
        raise RunError(f"{len(done.failed)} points failed; {id_}: {why}")


def collected(folder: "CampaignFolder") -> StudyResult:
    """Collect the results of the finished points, and write the report and its figures."""
    from orchestrator.campaigning.plots import figures, measured
    from orchestrator.campaigning.report import write_campaign_report
    from orchestrator.campaigning.results import TABLES, write_results
    from orchestrator.campaigning.summary import notes
    from orchestrator.campaigning.tables import markdown
    from orchestrator.campaigning.verdict import conclusions, problems

    loaded = folder.campaign()
    results = write_results(folder, loaded)
    tables = _Stored(results, tuple(TABLES))
    points, validity, curves = (tables[name] for name in ("points", "validity", "curves"))
    sentences = [
        *conclusions(loaded, points, curves),
        *problems(points, validity),
        *notes(loaded, points),
    ]
    page = write_campaign_report(folder, loaded)
    drawn = measured(loaded, points)
    for own in figures(loaded, points, curves).values():
        drawn = own | drawn
    return StudyResult(
        f"campaign {loaded.name}",
        sentences,
        tables,
        drawn,
        page,
        folder.path,
        partial(markdown, loaded, points),
    )


class _Stored(Mapping[str, "pd.DataFrame"]):
    """The tables of a campaign, each read when it is asked for: that of the steps may be large."""

    def __init__(self, folder: Path, names: Sequence[str]):
        self._folder, self._names = folder, names

    def __getitem__(self, name: str) -> "pd.DataFrame":
        from orchestrator.records.tables import read_own

        if name not in self._names:
            raise KeyError(name)
        return read_own(self._folder / f"{name}.parquet")

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def folder_of(given: "Path | Campaign", out: Path | None) -> "CampaignFolder":
    """The directory of a campaign that is given itself, or by its file, name or directory."""
    from orchestrator.campaigning.folder import CampaignFolder
    from orchestrator.campaigning.spec import load_campaign

    if out is None and isinstance(given, Path) and given.is_dir():
        out = given
    elif out is None:
        loaded = load_campaign(given) if isinstance(given, Path) else given
        out = Path("runs") / loaded.name
    return CampaignFolder(out)


@typed
def report(folder: str | Path, *, figures: bool = False) -> list[Path]:
    """Write the page of a run, a session or a training again.

    Args:
        folder: Directory of a run, a session or `learn`.
        figures: Whether to write figures (PNG and PDF) of a run to its folder `figures`.

    Returns:
        The path of the page, and of each figure.

    Raises:
        InputError: The folder has no such results, or has no figures.
    """
    from orchestrator.records.learned import has_trajectories
    from orchestrator.records.session_reader import SESSION
    from orchestrator.reporting.report import write_report
    from orchestrator.reporting.session_report import write_session_report

    place = path_of(folder, "`folder`: must be a path")
    if (place / SESSION).is_file():
        if figures:
            raise InputError(f"`figures`: only for runs; {place} holds a session")
        return [write_session_report(place)]
    if has_trajectories(place):
        from orchestrator.reporting.learned_report import write_learned_report

        if figures:
            raise InputError(f"`figures`: only for runs; {place} holds what was learned")
        return [write_learned_report(place)]
    written = [write_report(place)]
    if figures:
        from orchestrator.reporting.run_plots import draw_run

        written += draw_run(place, place / "figures")
    return written
