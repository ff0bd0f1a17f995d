"""The console script `testbed`.

Progress and tables of a run in progress go to stderr; results to stdout or the named files. Wrong
input exits with status 2 and one line, a failed run with status 1.
"""

import errno
import signal
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from ns3_scenarios.trace import ChannelError
from orchestrator.cli import learning as learning_cli
from orchestrator.cli.campaign import app as campaign_app
from orchestrator.cli.progress import shown
from testbed.core.errors import InputError, RunError

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Emulate split federated learning over a UAV network, and predict the same rounds.",
)

app.add_typer(campaign_app, name="campaign")
learning_cli.add_to(app)

ScenarioFile = Annotated[Path, typer.Argument(metavar="SCENARIO", help="A scenario file (YAML).")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key, e.g. workload.split=3."),
]
Rounds = Annotated[int | None, typer.Option(min=1, help="In place of the scenario's.")]
TraceFile = Annotated[
    Path | None, typer.Option("--trace", metavar="T.npz", help="Replay this channel trace.")
]
JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write what was computed as JSON.")
]

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
PAPER = Path(__file__).parents[2] / "scenarios" / "paper.yaml"

out = Console()


@app.command()
def trace(
    scenario: ScenarioFile,
    slots: Annotated[int, typer.Option(min=1, help="Slots to generate.")],
    output: Annotated[Path, typer.Option("--out", metavar="T.npz", help="The file to write.")],
    overrides: Overrides = None,
) -> None:
    """Let ns-3 move the UAVs and write gains and positions of every slot."""
    from dataclasses import replace

    from orchestrator.scenario.channel import ns3_source
    from orchestrator.scenario.loading import load
    from testbed.system.files import check_writable

    parsed = load(scenario, overrides or [])
    check_writable("--out", output)
    with ns3_source(parsed) as source, shown("slots") as show:
        step, have = max(slots // 100, 1000), 0
        while have < slots:
            made = source.trace(min(have + step, slots))
            have = min(made.slots, slots)
            show("ns-3", have, slots)
        assert made.position_m is not None
        replace(
            made,
            gain=made.gain[:, :slots],
            position_m=made.position_m[:, :slots],
            seed=parsed.seed,
            scenario=parsed.model_dump_json(),
        ).save(output)
    out.print(f"{output}: {parsed.uavs.count} UAVs, {slots} slots of {parsed.slot_s:g} s")


@app.command()
def predict(
    scenario: ScenarioFile,
    trace_file: TraceFile = None,
    rounds: Rounds = None,
    overrides: Overrides = None,
    json_file: JsonFile = None,
) -> None:
    """Predict rounds with the slot-level engine."""
    from orchestrator.cli.tables import rounds_table
    from orchestrator.policies.registry import decider
    from orchestrator.prediction.rounds import predict as predict_rounds
    from orchestrator.scenario.channel import open_source
    from orchestrator.scenario.loading import load
    from orchestrator.scenario.profiles import profile_of
    from testbed.system.files import check_writable, write_json

    parsed = load(scenario, [*(overrides or []), *_rounds(rounds)])
    check_writable("--json", json_file)
    profile, decide = profile_of(parsed), decider(parsed)
    with open_source(parsed, trace_file) as source, shown("rounds") as show:
        timeline = predict_rounds(
            parsed,
            source,
            profile,
            decide=decide,
            progress=lambda done: show("predicted", done, parsed.rounds),
        )
    if json_file is not None:
        write_json(
            json_file,
            {"scenario": parsed.model_dump(mode="json"), "rounds": timeline.to_json()},
        )
    out.print(rounds_table(timeline))
    if timeline.ended is not None:
        raise timeline.ended


@app.command()
def run(
    scenario: ScenarioFile,
    trace_file: TraceFile = None,
    rounds: Rounds = None,
    overrides: Overrides = None,
    json_file: JsonFile = None,
    output: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Keep timelines, trace, manifest and report."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an earlier run in DIR.")
    ] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Serve a page on loopback that shows the run as it goes.")
    ] = False,
    pcap: Annotated[
        bool, typer.Option("--pcap", help="Capture every link into DIR/pcap, for tshark.")
    ] = False,
    pcap_headers: Annotated[
        bool, typer.Option("--pcap-headers", help="The same, headers of frames alone.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume a run of DIR that was killed or failed.")
    ] = False,
) -> None:
    """Emulate rounds on real links and hold them against the prediction."""
    from orchestrator.cli.tables import (
        budget_table,
        calibration_table,
        comparison_table,
        loss_lines,
        step_comparison_table,
        validity_lines,
    )
    from orchestrator.policies.registry import decider
    from orchestrator.reporting.live import serve
    from orchestrator.reporting.report import write_report
    from orchestrator.runs.directory import run_folder
    from orchestrator.runs.run import check_kernel
    from orchestrator.runs.run import run as run_scenario
    from orchestrator.scenario.channel import open_source
    from orchestrator.scenario.loading import load
    from testbed.system.files import check_writable, write_json
    from testbed.system.leftovers import noted, running

    parsed = load(scenario, [*(overrides or []), *_rounds(rounds)])
    check_writable("--json", json_file)
    if (pcap or pcap_headers) and output is None:
        raise InputError("--pcap: needs --out DIR, where captures are kept")
    capture: Literal["headers", "frames"] | None = "frames" if pcap else None
    if pcap_headers:
        capture = "headers"
    check_kernel(parsed)
    decide = decider(parsed)
    if others := running():
        print(
            f"testbed: note: another emulation runs on this machine (PID {others[0]}); if they "
            "disturb each other, the run's validity says so",
            file=sys.stderr,
        )
    with (
        run_folder(
            output, parsed, overwrite=overwrite, resume=resume, finish=write_report
        ) as folder,
        noted(folder, unless="checkpoint/round-*"),
        open_source(parsed, trace_file) as source,
        serve(parsed) if live else nullcontext() as view,
        shown("emulated s") as show,
    ):
        done = run_scenario(
            parsed,
            source,
            folder,
            decide=decide,
            capture=capture,
            keep=output is not None,
            progress=show,
            observer=view,
        )
    if json_file is not None:
        write_json(json_file, done.to_json())
    tables = [comparison_table(done), step_comparison_table(done), budget_table(done)]
    if done.calibration is not None:
        tables.append(calibration_table(done.calibration))
    for table in tables:
        out.print(table)
        out.print()
    for line in [*loss_lines(done), *validity_lines(done.checks)]:
        out.print(line)
    if done.captured is not None:
        missed = done.captured.missed_packets
        out.print(
            f"captured: {done.captured.frames} frames" + (f", {missed} missed" * bool(missed))
        )
    if output is not None:
        out.print(f"report: {output / 'report.html'}")


@app.command()
def overhead(
    scenario: ScenarioFile,
    trace_file: TraceFile = None,
    rounds: Rounds = None,
    overrides: Overrides = None,
    sweep: Annotated[
        str | None,
        typer.Option("--sweep", metavar="KEY=V,V", help="Once for each value of a choice."),
    ] = None,
    json_file: JsonFile = None,
    output: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Tables and pictures.")
    ] = None,
) -> None:
    """Emulate, and say what every byte and millisecond of a round is for."""
    from orchestrator.scenario.channel import open_source
    from orchestrator.scenario.loading import load
    from orchestrator.studies import overhead as studies
    from testbed.system.files import check_writable, write_json

    given = [*(overrides or []), *_rounds(rounds)]
    points = [(value, load(scenario, [*given, *words])) for value, words in studies.sweep_of(sweep)]
    check_writable("--json", json_file)
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
    if json_file is not None:
        scenarios = [parsed.model_dump(mode="json") for _, parsed in points]
        values = [o.to_json() | {"scenario": s} for o, s in zip(outcomes, scenarios, strict=True)]
        write_json(json_file, {"sweep": key, "points": values})
    if output is not None:
        for path in studies.write(output, key, outcomes):
            out.print(f"{path}")


@app.command()
def report(
    run_dir: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory.")],
    figures: Annotated[
        bool, typer.Option("--figures", help="Also PNG and PDF figures, in DIR/figures.")
    ] = False,
) -> None:
    """Write a run's report again, from what its directory holds."""
    from orchestrator.reporting.report import write_report

    out.print(f"{write_report(run_dir)}")
    if figures:
        from orchestrator.reporting.run_figures import figures as draw

        for path in draw(run_dir, run_dir / "figures"):
            out.print(f"{path}")


@app.command()
def theory(
    scenario: ScenarioFile,
    trace_file: TraceFile = None,
    overrides: Overrides = None,
    json_file: JsonFile = None,
) -> None:
    """Hold the paper's closed forms, bounds and theorems against the engine."""
    from orchestrator.scenario.channel import open_source
    from orchestrator.scenario.loading import load
    from orchestrator.scenario.profiles import profile_of
    from orchestrator.theory.claims import run as hold
    from testbed.system.files import check_writable, write_json

    parsed = load(scenario, overrides or [])
    check_writable("--json", json_file)
    with open_source(parsed, trace_file) as source:
        table = hold(parsed, source, profile_of(parsed))
    if json_file is not None:
        write_json(json_file, table.frame().to_dict(orient="records"))
    out.print(table)


@app.command()
def opinions(
    scenario: ScenarioFile,
    trace_file: TraceFile = None,
    rounds: Rounds = None,
    overrides: Overrides = None,
    json_file: JsonFile = None,
    output: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Keep JSON, figures and a trace for Perfetto."),
    ] = None,
    kernel: Annotated[
        bool, typer.Option("--kernel/--no-kernel", help="Emulate, too, or leave that out.")
    ] = True,
    delay_ms: Annotated[
        str | None,
        typer.Option(
            "--delay-ms",
            metavar="MS[,MS...]",
            help="One-way delay of ns-3's links, not the emulation's own; of several, each.",
        ),
    ] = None,
) -> None:
    """Ask closed forms, engine, ns-3's packets and the kernel how long the rounds take."""
    from contextlib import nullcontext

    from orchestrator.cli.tables import opinion_tables
    from orchestrator.runs.directory import run_folder
    from orchestrator.scenario.channel import open_source
    from orchestrator.scenario.loading import load
    from orchestrator.studies.cross_check import ask, keep
    from testbed.system.files import check_writable, write_json

    parsed = load(scenario, [*(overrides or []), *_rounds(rounds)])
    check_writable("--json", json_file)
    delays_s = [] if delay_ms is None else _delays(delay_ms)
    with (
        run_folder(None, parsed) if kernel else nullcontext() as folder,
        open_source(parsed, trace_file) as source,
        shown("emulated s") as show,
    ):
        said = ask(parsed, source, folder, delays_s=delays_s, progress=show)
    if json_file is not None:
        write_json(json_file, said.to_json(parsed))
    for table in opinion_tables(said):
        out.print(table)
        out.print()
    for complaint in said.complaints:
        out.print(f"the kernel's run is not valid: {complaint}", markup=False)
    if output is not None:
        keep(said, parsed, output)
        out.print(f"written to {output}")


def _delays(text: str) -> list[float]:
    """Seconds out of a list of milliseconds."""
    try:
        delays = [float(part) / 1e3 for part in text.split(",")]
    except ValueError:
        raise InputError(f"--delay-ms: {text!r} is not numbers with commas between") from None
    if not all(0 <= delay <= 10 for delay in delays):
        raise InputError(f"--delay-ms: must be 0 to 10000, not {text}")
    return delays


@app.command()
def perfetto(
    run_dir: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory.")],
    output: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The trace to write.")
    ] = Path("trace.json"),
) -> None:
    """Write a run's timelines as a trace that ui.perfetto.dev opens."""
    from orchestrator.reporting.perfetto import of_run
    from orchestrator.reporting.report import read_run
    from testbed.system.files import check_writable, write_json

    check_writable("--out", output)
    write_json(output, of_run(read_run(run_dir).tables))
    out.print(f"{output}: open it in https://ui.perfetto.dev")


@app.command()
def train(
    scenario: ScenarioFile,
    output: Annotated[Path, typer.Option("--out", metavar="DIR", help="Keeps the agent.")],
    variant: Annotated[str, typer.Option(help="drl, drl-, fixed-ra or fixed-u.")] = "drl",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds to train, in all.")] = 5000,
    overrides: Overrides = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write its logs.")] = False,
    emulated: Annotated[
        bool, typer.Option("--emulated", help="On the emulated network; cannot be resumed.")
    ] = False,
) -> None:
    """Train the paper's agent; goes on where an earlier training in DIR stopped."""
    from tempfile import TemporaryDirectory

    from orchestrator.emulation.backend import emulated_backend
    from orchestrator.policies.agent import Settings
    from orchestrator.policies.agent import train as train_agent
    from orchestrator.policies.environment import engine_backend
    from orchestrator.scenario.loading import load

    # The first round is flown before anything is decided, and batches are whole.
    longest = [f"rounds={rounds + Settings().batch + 1}"] if emulated else []
    parsed = load(scenario, [*(overrides or []), *longest])
    with shown("rounds") as show, TemporaryDirectory(prefix="testbed-train-") as logs:
        history = train_agent(
            parsed,
            output,
            variant=variant,
            rounds=rounds,
            tensorboard=tensorboard,
            backend=emulated_backend(Path(logs)) if emulated else engine_backend,
            progress=lambda done: show("training", done, rounds),
        )
    last = history.tail(1000)
    out.print(f"objective, mean of the last {len(last)} rounds: {last['objective'].mean():.3f}")
    out.print(f"agent: {output}")


@app.command()
def evaluate(
    scenario: ScenarioFile,
    trace_file: TraceFile = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds to predict.")] = 1000,
    overrides: Overrides = None,
    json_file: JsonFile = None,
) -> None:
    """Predict rounds under the scenario's allocation.policy; print means and decision time."""
    from orchestrator.policies.registry import evaluate as evaluate_policy
    from orchestrator.policies.registry import policy
    from orchestrator.scenario.channel import open_source
    from orchestrator.scenario.loading import load
    from testbed.system.files import check_writable, write_json

    parsed = load(scenario, [*(overrides or []), *_rounds(rounds)])
    check_writable("--json", json_file)
    agent = parsed.allocation.agent
    decide = policy(parsed, parsed.allocation.policy, None if agent is None else Path(agent))
    with open_source(parsed, trace_file) as source, shown("rounds") as show:
        table = evaluate_policy(
            parsed, source, decide, progress=lambda done: show("evaluated", done, rounds)
        )
    if json_file is not None:
        write_json(json_file, table.to_dict(orient="records"))
    out.print(f"{parsed.allocation.policy}, {rounds} rounds")
    for name in ("objective", "latency_s", "max_energy_j", "decision_s"):
        out.print(f"  {name:13s} mean {table[name].mean():.4f}")


@app.command()
def reproduce(
    what: Annotated[list[str], typer.Argument(help="table2, fig3 to fig8, or all (but fig8).")],
    output: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The folder to write to.")
    ] = Path("results/paper"),
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each mean.")] = 500,
) -> None:
    """Reproduce the paper's table and figures, its numbers beside ours."""
    from orchestrator.scenario.loading import load
    from orchestrator.studies.paper_figures import run as reproduce_all

    if "fig8" in what:
        if what != ["fig8"]:
            raise InputError("reproduce: fig8 takes long (it trains agents); ask for it alone")
        _reproduce_fig8(output)
        return
    with shown("points") as show:
        summary = reproduce_all(
            what,
            output,
            load(PAPER),
            rounds=rounds,
            progress=lambda done, total: show("reproduce", done, total),
        )
    out.print(summary)
    out.print(f"written to {output}")


def _reproduce_fig8(output: Path) -> None:
    from orchestrator.cli.tables import plain_table
    from orchestrator.scenario.loading import load
    from orchestrator.studies.figure_8 import run as play_all

    with shown("trainings and flights") as show:
        table = play_all(
            output, load(PAPER), progress=lambda done, total: show("fig8", done, total)
        )
    out.print(plain_table(table))
    out.print(f"written to {output}")


@app.command()
def doctor(json_file: JsonFile = None) -> None:
    """Tell what this machine can do, and what to do about what is missing."""
    from orchestrator.cli.tables import findings_table
    from testbed.host.doctor import examine
    from testbed.system.files import check_writable, write_json

    check_writable("--json", json_file)
    findings = examine()
    if json_file is not None:
        write_json(json_file, [finding.to_json() for finding in findings])
    out.print(findings_table(findings))


@app.command()
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


def _rounds(rounds: int | None) -> list[str]:
    return [] if rounds is None else [f"rounds={rounds}"]


class _Stopped(BaseException):
    """A signal asks us to end: every context is left, so that all that was made is removed."""

    def __init__(self, number: int):
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.status = 128 + number


def _stop(number: int, _: object) -> None:
    raise _Stopped(number)


def main() -> None:
    """Entry point of the console script."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    try:
        sys.exit(app(sys.argv[1:] or ["--help"], standalone_mode=False))
    except typer.TyperException as error:
        _leave(2, error.format_message())
    except InputError as error:
        _leave(2, str(error))
    except (RunError, ChannelError) as error:
        _leave(1, str(error))
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        _leave(1, f"{error.filename or 'output'}: {error.strerror}")
    except _Stopped as error:
        _leave(error.status, str(error))


def _leave(status: int, message: str) -> None:
    print(f"testbed: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(status)
