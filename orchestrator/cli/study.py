# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`testbed theory`, `cross-check`, `overhead`, `reproduce`: studies of many rounds."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import completion
from orchestrator.cli.console import out, shown
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
from orchestrator.interface.folders import check_new, check_resumable
from testbed.core.errors import InputError
from testbed.core.words import not_one_of

FIGURES = ("table2", "fig3", "fig4", "fig5", "fig6", "fig7", "fig8")
"""What `testbed reproduce` can make, apart from `all`."""
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
    from orchestrator.interface import studies
    from orchestrator.scenario.loading import load
    from testbed.system.files import check_writable, write_json

    parsed = load(scenario, overrides or [])
    check_writable("json", json_file)
    table = studies.theory(parsed, trace_file)
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
    from orchestrator.cli.printed_tables import cross_check_tables
    from orchestrator.interface import studies
    from orchestrator.scenario.loading import load
    from testbed.system.files import check_writable, write_json

    parsed = load(scenario, [*(overrides or []), *rounds_of(rounds)])
    check_writable("json", json_file)
    with shown("emulated s") as show:
        done = studies.cross_check(
            parsed,
            trace_file,
            emulated=emulated,
            delays_s=[] if delay_ms is None else _delays(delay_ms),
            out=output,
            overwrite=overwrite,
            progress=show,
        )
    check = done.found
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
    out.print(" ".join(done.sentences), markup=False, highlight=False)
    if output is not None:
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
    from orchestrator.interface import studies
    from orchestrator.scenario.loading import load
    from orchestrator.studies.overhead import bytes_table, sweep_of, sweep_table, waterfall_table
    from testbed.system.files import check_writable, write_json

    given, key = [*(overrides or []), *rounds_of(rounds)], (sweep or "").partition("=")[0]
    points = [(value, load(scenario, [*given, *words])) for value, words in sweep_of(sweep)]
    check_writable("json", json_file)
    with shown("emulated s") as show:
        done = studies.overheads(
            key, points, trace_file, out=output, overwrite=overwrite, progress=show
        )
    outcomes = done.found
    for outcome in outcomes:
        if key:
            out.print(f"[bold]{key} {outcome.value}[/bold]")
        for table in (bytes_table(outcome), waterfall_table(outcome)):
            out.print(table)
            out.print()
        for complaint in outcome.complaints:
            out.print(f"not valid: {complaint}", markup=False)
    if key:
        out.print(sweep_table(key, outcomes))
    out.print(" ".join(done.sentences), markup=False, highlight=False)
    if json_file is not None:
        scenarios = [one.model_dump(mode="json") for _, one in points]
        values = [o.to_json() | {"scenario": s} for o, s in zip(outcomes, scenarios, strict=True)]
        write_json(json_file, {"sweep": key, "points": values})
    if output is not None:
        out.print(f"written to {output / 'overhead.html'}")


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
    from orchestrator.campaigning.folder import CAMPAIGN, CampaignFolder
    from orchestrator.campaigning.spec import load_campaign
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
    from orchestrator.campaigning.spec import load_campaign
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
    from orchestrator.campaigning.spec import load_campaign
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
