# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`testbed theory`, `cross-check`, `overhead`, `reproduce`: studies of many rounds."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import completion
from orchestrator.cli.console import out, shown
from orchestrator.cli.folders import check_new, check_resumable, remove_results
from orchestrator.cli.options import (
    JSON_FILES,
    JsonFile,
    Overrides,
    Overwrite,
    Resume,
    Rounds,
    ScenarioFile,
    TraceFile,
    rounds_of,
)
from testbed.core.errors import InputError
from testbed.core.words import not_one_of

FIGURES = ("table2", "fig3", "fig4", "fig5", "fig6", "fig7", "fig8")
"""What `testbed reproduce` can make, apart from `all`."""
CROSS_CHECK_FILES = ("opinions.*", "cross-check.*", "delay.*", "trace.json")
OVERHEAD_FILES = ("overhead.html", "bytes.csv", "waterfall.csv", "waterfall*.p*", "sweep.p*")
REPRODUCE_FILES = ("report.html", "summary.*", "verdicts.*", "radios.csv")


class Radio(StrEnum):
    """Radios other than the paper's."""

    LTE = "lte"
    NR = "nr"
    FITTED = "fitted"


def theory(
    scenario: ScenarioFile,
    trace_file: TraceFile = None,
    overrides: Overrides = None,
    json_file: JsonFile = None,
) -> None:
    """Compare the closed forms, bounds and theorems of the paper with the engine.

    The comparison uses the first round of the scenario.

    Examples:
        testbed theory paper
        testbed theory paper --set workload.split=3 --json theory.json
    """
    from orchestrator.api import say_left_out
    from orchestrator.scenario.channel import open_source
    from orchestrator.scenario.loading import load
    from orchestrator.scenario.profiles import profile_of
    from orchestrator.theory.claims import run as check_claims
    from testbed.system.files import check_writable, write_json

    parsed = load(scenario, overrides or [])
    say_left_out(parsed)
    check_writable("json", json_file)
    with open_source(parsed, trace_file) as source:
        table = check_claims(parsed, source, profile_of(parsed))
    if json_file is not None:
        write_json(json_file, table.frame().to_dict(orient="records"))
    out.print(table)


def cross_check(
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
            help="Output folder for the page, the JSON file, the figures and the trace for "
            "Perfetto.",
            autocompletion=completion.folders,
        ),
    ] = None,
    overwrite: Overwrite = False,
    emulated: Annotated[
        bool,
        typer.Option(
            "--emulated/--no-emulated",
            "--kernel/--no-kernel",
            help="Include the emulation (the default), or leave it out.",
        ),
    ] = True,
    delay_ms: Annotated[
        str | None,
        typer.Option(
            "--delay-ms",
            metavar="MS[,MS...]",
            help="One-way delays of the links that ns-3 simulates, in ms: one number, or several "
            "numbers separated by commas.",
            show_default="`links.one_way_delay_s` of the scenario",
        ),
    ] = None,
) -> None:
    """Compare a round's latency from closed forms, the engine, ns-3 and the emulation.

    Examples:
        testbed cross-check quickstart --set workload.compute=none --out results/cross-check
        testbed cross-check paper --no-emulated --delay-ms 0,5,20
    """
    from contextlib import nullcontext

    from orchestrator.cli.printed_tables import cross_check_tables
    from orchestrator.cli.virtual import enter
    from orchestrator.records.directory import run_folder
    from orchestrator.scenario.channel import open_source
    from orchestrator.scenario.loading import load
    from orchestrator.scenario.unused import say_unused
    from orchestrator.studies import cross_check as study
    from orchestrator.studies.cross_check_page import verdict, write
    from testbed.system.files import check_writable, write_json

    parsed = load(scenario, [*(overrides or []), *rounds_of(rounds)])
    check_writable("json", json_file)
    check_new(output, CROSS_CHECK_FILES, overwrite=overwrite)
    delays_s = [] if delay_ms is None else _delays(delay_ms)
    say_unused(parsed, "a run" if emulated else "a prediction")
    if emulated:
        enter(parsed, "emulated s", trace=trace_file)
    with (
        run_folder(None, parsed) if emulated else nullcontext() as folder,
        open_source(parsed, trace_file) as source,
        shown("emulated s") as show,
    ):
        check = study.cross_check(parsed, source, folder, delays_s=delays_s, progress=show)
    if json_file is not None:
        write_json(json_file, check.to_json(parsed))
    out.print(f"radio: {check.radio}", markup=False, highlight=False)
    if check.packets_over:
        out.print(f"ns-3 packets: ns-3's TCP over {check.packets_over}", markup=False)
    for table in cross_check_tables(check):
        out.print(table)
        out.print()
    for complaint in check.complaints:
        out.print(f"the kernel's run is not valid: {complaint}", markup=False)
    out.print(" ".join(verdict(check)), markup=False, highlight=False)
    if output is not None:
        remove_results(output, CROSS_CHECK_FILES)
        write(check, parsed, output)
        out.print(f"written to {output}")


def _delays(text: str) -> list[float]:
    """Parse a list of milliseconds into seconds."""
    try:
        delays = [float(part) / 1e3 for part in text.split(",")]
    except ValueError:
        raise InputError(f"--delay-ms: {text!r} is not a comma-separated list of numbers") from None
    if not all(0 <= delay <= 10 for delay in delays):
        raise InputError(f"--delay-ms: must be 0 to 10000, not {text}")
    return delays


def overhead(
    scenario: ScenarioFile,
    trace_file: TraceFile = None,
    rounds: Rounds = None,
    overrides: Overrides = None,
    sweep: Annotated[
        str | None,
        typer.Option(
            "--sweep",
            metavar="KEY=V,V",
            help="Repeat the rounds for each of several values of a key.",
            autocompletion=completion.assignments,
        ),
    ] = None,
    json_file: JsonFile = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Output folder for the page, the tables (CSV) and the figures.",
            autocompletion=completion.folders,
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Emulate rounds, and break down the transmitted bytes and the latency by cause.

    Examples:
        testbed overhead quickstart --set workload.compute=none
        testbed overhead paper --sweep emulation.transport=tcp,tls,quic --out results/transports
    """
    from orchestrator.cli.virtual import enter
    from orchestrator.scenario.channel import check_comparable, is_open, open_source, read_trace
    from orchestrator.scenario.loading import load
    from orchestrator.studies import overhead as studies
    from orchestrator.studies.overhead_page import sweep_verdict, verdict, write
    from testbed.system.files import check_writable, write_json

    given = [*(overrides or []), *rounds_of(rounds)]
    points = [(value, load(scenario, [*given, *words])) for value, words in studies.sweep_of(sweep)]
    check_writable("json", json_file)
    check_new(output, OVERHEAD_FILES, overwrite=overwrite)
    if len({parsed.emulation.clock for _, parsed in points}) > 1:
        raise InputError("--sweep: emulation.clock cannot be swept; run once for each")
    if trace_file is not None:
        trace = read_trace(trace_file)
        check_comparable(parsed.scheme for _, parsed in points if is_open(parsed, trace))
    enter(points[0][1], "emulated s", trace=trace_file)
    with shown("emulated s") as show:
        outcomes = studies.study(
            points,
            lambda parsed: open_source(parsed, trace_file),
            lambda value: lambda text, done, total: show(f"{value} {text}".strip(), done, total),
        )
    key = (sweep or "").partition("=")[0]
    for outcome in outcomes:
        if key:
            out.print(f"[bold]{key} {outcome.value}[/bold]")
        for table in (studies.bytes_table(outcome), studies.waterfall_table(outcome)):
            out.print(table)
            out.print()
        for complaint in outcome.complaints:
            out.print(f"not valid: {complaint}", markup=False)
    if key:
        out.print(studies.sweep_table(key, outcomes))
    sentences = sweep_verdict(key, outcomes) if key else verdict(outcomes[0])
    out.print(" ".join(sentences), markup=False, highlight=False)
    if json_file is not None:
        scenarios = [parsed.model_dump(mode="json") for _, parsed in points]
        values = [o.to_json() | {"scenario": s} for o, s in zip(outcomes, scenarios, strict=True)]
        write_json(json_file, {"sweep": key, "points": values})
    if output is not None:
        remove_results(output, OVERHEAD_FILES)
        out.print(f"written to {write(output, key, outcomes, points[0][1])}")


def reproduce(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="FIGURE",
            help="Table or figure of the paper: table2, fig3, fig4, fig5, fig6, fig7 or fig8. "
            "`all` means all of them except fig8, which takes hours.",
            autocompletion=completion.words(*FIGURES, "all"),
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--out", metavar="DIR", help="Output folder.", autocompletion=completion.folders
        ),
    ] = Path("results/paper"),
    overwrite: Overwrite = False,
    resume: Resume = False,
    rounds: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Number of rounds over which each mean is computed.",
            show_default="500, or 40 with --radio",
        ),
    ] = None,
    radio: Annotated[
        Radio | None,
        typer.Option(
            metavar="|".join(Radio),
            help="Also check the claims of figures 3 to 7 with this radio.",
        ),
    ] = None,
    fit: Annotated[
        Path | None,
        typer.Option(
            "--fit",
            metavar="FIT.json",
            help="With --radio fitted: JSON file that `testbed fit` has written.",
            autocompletion=JSON_FILES,
        ),
    ] = None,
) -> None:
    """Reproduce the table and the figures of the paper, and compare the values.

    An interrupted computation of figure 8 can be resumed, because the output folder contains its
    finished points.

    Examples:
        testbed reproduce table2 fig3
        testbed reproduce all --radio lte --out results/lte
        testbed reproduce all --radio nr --out results/nr
    """
    from orchestrator.campaign.folder import CAMPAIGN, CampaignFolder
    from orchestrator.campaign.spec import load_campaign
    from orchestrator.scenario.loading import OWN
    from orchestrator.studies.paper_figures import run as reproduce_all

    known = (*FIGURES, "all")
    for name in what if radio is None else ():
        if name not in known:
            raise InputError(f"FIGURE: {not_one_of(name, known)}")
    if fit is not None and radio is not Radio.FITTED:
        raise InputError("--fit: must be absent without --radio fitted")
    if fit is None and radio is Radio.FITTED:
        raise InputError("--fit: is missing; --radio fitted needs the file of a fit")
    if radio is not None:
        for name in ("table2", "fig8"):
            if name in what:
                raise InputError(f"--radio: must be absent for {name}; it is for figures 3 to 7")
        _check_reproduced(output, what, overwrite=overwrite, resume=resume)
        _judge(what, output, rounds, radio, fit)
        return
    if "fig8" in what:
        if what != ["fig8"]:
            raise InputError("reproduce: fig8 takes long (agents are trained); give it alone")
        if rounds is not None:
            raise InputError("--rounds: must be absent for fig8, whose campaign sets its rounds")
        check_resumable(output, CAMPAIGN, "campaign", overwrite=overwrite, resume=resume)
        if overwrite:
            CampaignFolder(output).clear()
        _reproduce_fig8(output)
        return
    if what == ["table2"] and rounds is not None:
        raise InputError("--rounds: must be absent for table2, which has no rounds")
    _check_reproduced(output, what, overwrite=overwrite, resume=resume)
    with shown("points") as show:
        summary = reproduce_all(
            what,
            output,
            load_campaign(OWN / "campaigns" / "paper.yaml"),
            rounds=rounds or 500,
            progress=lambda done, total: show("reproduce", done, total),
        )
    out.print(summary)
    out.print(f"written to {output}")


def _check_reproduced(output: Path, what: list[str], *, overwrite: bool, resume: bool) -> None:
    """Refuse a folder that has a report or these figures, unless they are to be replaced."""
    if resume:
        raise InputError("--resume: only for fig8, which keeps its finished points")
    figures = FIGURES if "all" in what else what
    check_new(output, [*REPRODUCE_FILES, *(f"{name}*.*" for name in figures)], overwrite=overwrite)


def _judge(
    what: list[str], output: Path, rounds: int | None, radio: Radio, fit: Path | None
) -> None:
    from orchestrator.campaign.spec import load_campaign
    from orchestrator.scenario.loading import OWN, read_fit
    from orchestrator.studies.radio_figures import ROUNDS
    from orchestrator.studies.radio_figures import run as judge

    content = None if fit is None else read_fit(fit, "--fit")
    with shown("points") as show:
        made = judge(
            what,
            output,
            load_campaign(OWN / "campaigns" / "paper.yaml"),
            rounds=rounds or ROUNDS,
            access=Radio.LTE if fit is not None else radio,
            fit=content,
            progress=lambda done, total: show("reproduce", done, total),
        )
    out.print(made)
    out.print(f"written to {output}")


def _reproduce_fig8(output: Path) -> None:
    from orchestrator.campaign.spec import load_campaign
    from orchestrator.cli.printed_tables import plain_table
    from orchestrator.scenario.loading import OWN
    from orchestrator.studies.figure_8 import run as reproduce_figure

    with shown("trainings and evaluations") as show:
        table = reproduce_figure(
            output,
            load_campaign(OWN / "campaigns" / "figure8.yaml"),
            progress=lambda done, total: show("fig8", done, total),
        )
    out.print(plain_table(table))
    out.print(f"written to {output}")
