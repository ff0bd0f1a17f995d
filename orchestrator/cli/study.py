# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`testbed theory`, `cross-check`, `overhead`, `reproduce`: studies of many rounds."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.console import out, shown
from orchestrator.cli.options import JsonFile, Overrides, Rounds, ScenarioFile, TraceFile, rounds_of
from testbed.core.errors import InputError


class Radio(StrEnum):
    """Radios other than the paper's."""

    LTE = "lte"
    FITTED = "fitted"


def theory(
    scenario: ScenarioFile,
    trace_file: TraceFile = None,
    overrides: Overrides = None,
    json_file: JsonFile = None,
) -> None:
    """Compare the paper's closed forms, bounds and theorems with the engine."""
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
            help="Output directory: page, JSON, charts, trace.",
        ),
    ] = None,
    kernel: Annotated[
        bool, typer.Option("--kernel/--no-kernel", help="Also emulate (default), or not.")
    ] = True,
    delay_ms: Annotated[
        str | None,
        typer.Option(
            "--delay-ms",
            metavar="MS[,MS...]",
            help="One or more one-way delays for ns-3's links instead of the emulation's.",
        ),
    ] = None,
) -> None:
    """Compare closed forms, engine, ns-3's packets and the kernel."""
    from contextlib import nullcontext

    from orchestrator.cli.tables import cross_check_tables
    from orchestrator.cli.virtual import enter
    from orchestrator.records.directory import run_folder
    from orchestrator.scenario.channel import open_source
    from orchestrator.scenario.loading import load
    from orchestrator.scenario.unused import say_unused
    from orchestrator.studies import cross_check as study
    from orchestrator.studies.cross_check_page import verdict, write
    from testbed.system.files import check_folder, check_writable, write_json

    parsed = load(scenario, [*(overrides or []), *rounds_of(rounds)])
    check_writable("json", json_file)
    check_folder(output)
    delays_s = [] if delay_ms is None else _delays(delay_ms)
    say_unused(parsed, "a run" if kernel else "a prediction")
    if kernel:
        enter(parsed, "emulated s", trace=trace_file)
    with (
        run_folder(None, parsed) if kernel else nullcontext() as folder,
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
        typer.Option("--sweep", metavar="KEY=V,V", help="Repeat for each value of a key."),
    ] = None,
    json_file: JsonFile = None,
    output: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Output directory: page, tables, charts"),
    ] = None,
) -> None:
    """Emulate rounds and attribute every byte and millisecond to a cause."""
    from orchestrator.cli.virtual import enter
    from orchestrator.scenario.channel import check_comparable, is_open, open_source, read_trace
    from orchestrator.scenario.loading import load
    from orchestrator.studies import overhead as studies
    from orchestrator.studies.overhead_page import sweep_verdict, verdict, write
    from testbed.system.files import check_folder, check_writable, write_json

    given = [*(overrides or []), *rounds_of(rounds)]
    points = [(value, load(scenario, [*given, *words])) for value, words in studies.sweep_of(sweep)]
    check_writable("json", json_file)
    check_folder(output)
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
        out.print(f"written to {write(output, key, outcomes, points[0][1])}")


def reproduce(
    what: Annotated[list[str], typer.Argument(help="table2, fig3 to fig8, or all (without fig8).")],
    output: Annotated[Path, typer.Option("--out", metavar="DIR", help="Output directory.")] = Path(
        "results/paper"
    ),
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Rounds per mean (default: 500, with --radio 40).")
    ] = None,
    radio: Annotated[
        Radio | None,
        typer.Option(help="Also evaluate the claims on figures 3 to 7 with this radio."),
    ] = None,
    fit: Annotated[
        Path | None,
        typer.Option(
            "--fit", metavar="FIT.json", help="Result of `testbed fit`, for --radio fitted."
        ),
    ] = None,
) -> None:
    """Reproduce the paper's table and figures, and compare the values."""
    from orchestrator.campaign.spec import load_campaign
    from orchestrator.scenario.loading import OWN
    from orchestrator.studies.paper_figures import run as reproduce_all

    if fit is not None and radio is not Radio.FITTED:
        raise InputError("--fit: must be absent without --radio fitted")
    if fit is None and radio is Radio.FITTED:
        raise InputError("--fit: is missing; --radio fitted needs the file of a fit")
    if radio is not None:
        for name in ("table2", "fig8"):
            if name in what:
                raise InputError(f"--radio: must be absent for {name}; it is for figures 3 to 7")
        _judge(what, output, rounds, fit)
        return
    if "fig8" in what:
        if what != ["fig8"]:
            raise InputError("reproduce: fig8 takes long (agents are trained); give it alone")
        if rounds is not None:
            raise InputError("--rounds: must be absent for fig8, whose campaign sets its rounds")
        _reproduce_fig8(output)
        return
    if what == ["table2"] and rounds is not None:
        raise InputError("--rounds: must be absent for table2, which has no rounds")
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


def _judge(what: list[str], output: Path, rounds: int | None, fit: Path | None) -> None:
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
            fit=content,
            progress=lambda done, total: show("reproduce", done, total),
        )
    out.print(made)
    out.print(f"written to {output}")


def _reproduce_fig8(output: Path) -> None:
    from orchestrator.campaign.spec import load_campaign
    from orchestrator.cli.tables import plain_table
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
