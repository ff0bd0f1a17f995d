# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`testbed run`, `report`, `index`, `compare`, `perfetto`: emulate rounds, and write pages."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import completion
from orchestrator.cli.console import out, say, shown
from orchestrator.cli.options import (
    HostScheduler,
    JsonFile,
    Learned,
    Overrides,
    Overwrite,
    Resume,
    Rounds,
    RunDirectory,
    ScenarioFile,
    SchedulerKey,
    TraceFile,
    WaitQuiet,
    rounds_of,
    seconds_of,
)
from testbed.core.errors import InputError
from testbed.core.progress import Progress

NOT_VALID = 3
"""Exit status of `run --strict` if the run is not valid."""


def run(
    scenario: ScenarioFile,
    trace_file: TraceFile = None,
    rounds: Rounds = None,
    overrides: Overrides = None,
    json_file: JsonFile = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Run directory to create, with timelines, trace, manifest and report.",
            autocompletion=completion.folders,
        ),
    ] = None,
    overwrite: Overwrite = False,
    resume: Resume = False,
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="Serve a web page that shows the progress of the run. Only this machine can "
            "access it.",
        ),
    ] = False,
    capture: Annotated[
        bool,
        typer.Option(
            "--capture",
            help="Capture the frames of every link to pcap files in DIR/pcap.",
        ),
    ] = False,
    capture_headers: Annotated[
        bool,
        typer.Option(
            "--capture-headers",
            help="Capture only the headers of the frames of every link.",
        ),
    ] = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help=f"Exit with status {NOT_VALID} if the run is not valid."),
    ] = False,
    scheduler: HostScheduler = None,
    key: SchedulerKey = None,
    wait_quiet: WaitQuiet = None,
) -> None:
    """Emulate rounds and compare them with the prediction.

    Examples:
        testbed run quickstart --out runs/first
        testbed run paper --set workload.compute=none --rounds 3 --out runs/paper --capture
        testbed run quickstart --set emulation.clock=virtual --json measured.json
    """
    from orchestrator import api
    from orchestrator.cli.printed_tables import (
        budget_table,
        calibration_table,
        comparison_table,
        learning_lines,
        loss_lines,
        step_comparison_table,
        validity_lines,
    )
    from orchestrator.cli.virtual import check_waits, enter
    from orchestrator.emulated.options import RunOptions, check_options
    from orchestrator.engine.radio import describe_radio
    from orchestrator.scenario.channel import read_trace
    from orchestrator.scenario.combinations import check
    from testbed.host.quiet import wait_until_quiet
    from testbed.system import inside
    from testbed.system.files import check_writable, write_json
    from testbed.system.leftovers import running

    wait_s = seconds_of(wait_quiet)
    parsed = api.load(scenario, [*(overrides or []), *rounds_of(rounds)])
    check_writable("json", json_file)
    check_waits(parsed, wait_s)
    if capture and capture_headers:
        raise InputError("--capture, --capture-headers: give one of them")
    if (capture or capture_headers) and output is None:
        raise InputError("--capture: needs --out DIR, where captures are kept")
    captured: api.Capture | None = "frames" if capture else None
    if capture_headers:
        captured = "headers"
    check(parsed, "run", *["--scheduler", "run --scheduler"] * (scheduler is not None))
    options = RunOptions(
        overwrite=overwrite,
        resume=resume,
        capture=captured,
        keep=output is not None,
        scheduler=scheduler,
        key=key,
    )
    check_options(options, output)
    claim = None
    if output is not None:
        from orchestrator.records.directory import claimed

        claim = claimed(output, parsed, overwrite=overwrite, resume=resume)
    enter(parsed, "emulated s", trace=trace_file, live=live, holding=claim)
    if live:
        from orchestrator.reporting.live import forwarded, serve

        known = None if trace_file is None else read_trace(trace_file)
        here = inside.guest_settings() is None
        options = replace(options, view=partial(serve, trace=known) if here else forwarded)
    if wait_s is not None:
        with shown("s") as show:
            wait_until_quiet(wait_s, show)
    others = running() if wait_s is None else []
    with shown("emulated s") as show:
        done = api.emulate(
            parsed,
            trace_file,
            None,
            output,
            replace(options, progress=_with_note(others, show)),
        )
    if json_file is not None:
        write_json(json_file, done.to_json())
    out.print(f"radio: {describe_radio(parsed, done.channel.now)}", markup=False, highlight=False)
    tables = [comparison_table(done), step_comparison_table(done), budget_table(done)]
    if done.calibration is not None:
        tables.append(calibration_table(done.calibration))
    for table in tables:
        out.print(table)
        out.print()
    for line in [
        *learning_lines(done),
        *loss_lines(done),
        *validity_lines(done.checks, done.scenario.dilation),
    ]:
        out.print(line)
    if done.captured is not None:
        missed = done.captured.missed_packets
        out.print(
            f"captured: {done.captured.frames} frames" + (f", {missed} missed" * bool(missed))
        )
    if output is not None:
        out.print(f"report: {output / 'report.html'}")
    if strict and not done.valid:
        raise typer.Exit(NOT_VALID)


def _with_note(others: Sequence[int], show: Progress) -> Progress:
    """Show progress, and once the run begins, warn that another emulation is running."""
    notes = [
        f"note: another emulation runs on this machine (PID {pid}); if they disturb each "
        "other, the checks of the run report it"
        for pid in others[:1]
    ]

    def noted(what: str, done: float, total: float) -> None:
        if notes:
            say(notes.pop())
        show(what, done, total)

    return noted


def report(
    run_dir: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Directory of a run, a session or `testbed learn`.",
            autocompletion=completion.folders,
        ),
    ],
    figures: Annotated[
        bool, typer.Option("--figures", help="Also write figures (PNG and PDF) to DIR/figures.")
    ] = False,
) -> None:
    """Regenerate the report of a run, a session or `testbed learn`.

    Examples:
        testbed report runs/first
        testbed report runs/first --figures
    """
    from orchestrator.interface.campaigns import report as write_again

    for path in write_again(run_dir, figures=figures):
        out.print(f"{path}")


def index(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="[FOLDER]",
            help="Folder with results, for example of several runs.",
            autocompletion=completion.folders,
        ),
    ] = Path("runs"),
    json_file: JsonFile = None,
) -> None:
    """Write an index of all pages of results in a folder: FOLDER/index.html.

    Commands that write a page into the folder, or into a folder in it, update the index.

    Examples:
        testbed index
        testbed index runs --json index.json
    """
    from dataclasses import asdict

    from orchestrator.reporting.index import write_index
    from testbed.system.files import check_writable, write_json

    check_writable("json", json_file)
    page, entries = write_index(folder)
    if json_file is not None:
        write_json(json_file, {"pages": [asdict(entry) for entry in entries]})
    count = f"{len(entries)} page{'s' if len(entries) != 1 else ''}"
    out.print(f"{page}: {count} of results", markup=False, highlight=False)


def compare(
    given: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR|FILE",
            help="Directory of a run, a session or a cross-check, or a file written with --json.",
            autocompletion=completion.files(".json"),
        ),
    ],
    page: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="FILE.html",
            help="Web page to write.",
            autocompletion=completion.files(".html"),
        ),
    ] = Path("comparison.html"),
    target: Annotated[
        str | None,
        typer.Option(
            metavar="MEASURE=VALUE",
            help="Compare the times at which the results reach a target, such as accuracy=0.8, "
            "loss=1.2 or perplexity=30.",
            autocompletion=completion.words("accuracy=", "loss=", "perplexity="),
        ),
    ] = None,
    learned: Learned = None,
    figures: Annotated[
        Path | None,
        typer.Option(
            "--figures",
            metavar="DIR",
            help="Also write figures of the learning curves (PNG and PDF) to this folder.",
            autocompletion=completion.folders,
        ),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Compare the latencies, timelines, error budgets and learning curves of several results.

    Examples:
        testbed compare runs/cpsfl runs/pipesfl --out both.html
        testbed compare predicted.json runs/first --json compared.json
        testbed compare runs/cpsfl runs/pipesfl --target accuracy=0.8
    """
    from orchestrator.analysis.learned import Target
    from orchestrator.cli.printed_tables import comparison_tables
    from orchestrator.records.learned import read_trajectories
    from orchestrator.reporting.comparison import group_styles, write_comparison
    from orchestrator.reporting.comparison_verdict import invalid, verdict
    from testbed.system.files import check_folder, check_writable, write_json

    if page.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"`out`: {page} must end in .html: it is a web page")
    check_writable("out", page)
    check_writable("json", json_file)
    check_folder(figures)
    comparison = write_comparison(
        given,
        page,
        None if target is None else Target.parse(target, "`target`"),
        [each for folder in learned or [] for each in read_trajectories(folder)],
    )
    if comparison.race is not None:
        out.print(comparison.race.sentences(), markup=False, highlight=False)
        out.print()
    if json_file is not None:
        write_json(json_file, comparison.to_json())
    for table in comparison_tables(comparison):
        out.print(table)
        out.print()
    sentences = verdict(comparison)
    if names := invalid(comparison):
        sentences.append(f"Not valid: {', '.join(names)}.")
    out.print(" ".join(sentences), markup=False, highlight=False, soft_wrap=True)
    for line in comparison.lacks:
        say(line)
    if figures is not None:
        from orchestrator.reporting.learning_plots import draw_groups

        for path in draw_groups(
            comparison.groups, figures, comparison.target, group_styles(comparison)
        ):
            out.print(f"{path}", markup=False, highlight=False)
    out.print(f"comparison: {page}", markup=False, highlight=False)


def perfetto(
    run_dir: RunDirectory,
    output: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Perfetto trace (JSON) to write.",
            autocompletion=completion.files(".json"),
        ),
    ] = Path("trace.json"),
) -> None:
    """Export the timelines of a run for the viewer at https://ui.perfetto.dev.

    Examples:
        testbed perfetto runs/first --out first.json
    """
    from orchestrator.records.reader import read_run
    from orchestrator.reporting.perfetto import of_run
    from testbed.system.files import check_writable, write_json

    check_writable("out", output, ".json")
    write_json(output, of_run(read_run(run_dir).tables))
    out.print(f"{output}: open it in https://ui.perfetto.dev")
