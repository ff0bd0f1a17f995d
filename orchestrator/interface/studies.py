# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`theory`, `cross_check`, `overhead`, `validate`: models, predictions and measurements."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.interface.folders import check_new, check_resumable, empty, remove_results
from orchestrator.interface.given import (
    ScenarioLike,
    Trace,
    changed,
    channel_of,
    path_of,
    resolved,
    shortened,
    trace_from,
    typed,
    whole,
)
from orchestrator.interface.progress import followed
from orchestrator.interface.results import StudyResult, figures_of
from orchestrator.scenario.channel import check_comparable, is_open, read_trace
from testbed.core.errors import InputError
from testbed.core.progress import Progress
from testbed.system.leftovers import temporary_folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from orchestrator.analytical.claims import TheoryTable
    from orchestrator.scenario.schema import Scenario

CROSS_CHECK_FILES = ("cross-check.*", "delay.*", "trace.json")
OVERHEAD_FILES = ("overhead.html", "bytes.csv", "waterfall.csv", "waterfall*.p*", "sweep.p*")
MOST_DELAY_S = 10.0


def theory(scenario: ScenarioLike, trace: Trace | None = None) -> "TheoryTable":
    """Compare the closed forms, bounds and theorems of the paper with the engine.

    The comparison uses the first round of the scenario.

    Args:
        scenario: A scenario, or the path or name of one, as for `load`.
        trace: Channel trace to replay. Default: ns-3 generates the channel of the scenario.

    Returns:
        The claims; `frame()` has one row per claim: claim, equation, assumes, value_s, relation,
        form_s, note, difference (relative) and holds.

    Raises:
        InputError: The scenario or the trace is not valid.
    """
    from orchestrator.analytical.claims import run
    from orchestrator.api import say_left_out
    from orchestrator.scenario.profiles import profile_of

    parsed = resolved(scenario, None, None)
    say_left_out(parsed)
    with channel_of(parsed, trace) as source:
        return run(parsed, source, profile_of(parsed))


@typed
def cross_check(
    scenario: ScenarioLike,
    trace: Trace | None = None,
    rounds: int | None = None,
    *,
    emulated: bool = True,
    delays_s: Sequence[float] = (),
    out: str | Path | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> StudyResult:
    """Compare a round's latency from closed forms, the engine, ns-3 and the emulation.

    Args:
        scenario: A scenario, or the path or name of one, as for `load`.
        trace: Channel trace to replay. Default: ns-3 generates the channel of the scenario.
        rounds: Number of rounds. Default: `rounds` of the scenario.
        emulated: Whether the rounds are also emulated.
        delays_s: One-way delays of the links that ns-3 simulates, s. Default: those of the
            scenario.
        out: Output folder for the page, the JSON file, the figures and the trace for Perfetto.
        overwrite: Whether earlier results in `out` are replaced.
        progress: Called with a description of the current step, its progress, and its total.
            Default: a bar in a notebook.

    Returns:
        The tables `latencies`, `steps` and `transfers`, and with several delays also `over_delay`;
        the figure `rounds` (Gantt charts of the first round), and `delay`.

    Raises:
        InputError: An argument is not valid, or this machine or ns-3 does not support the scenario.
        RunError: The emulation or ns-3 failed.
    """
    from orchestrator.api import run
    from orchestrator.reporting import plots
    from orchestrator.rounds.packet_rounds import check_packets
    from orchestrator.scenario.unused import say_unused
    from orchestrator.studies import cross_check as study
    from orchestrator.studies.cross_check_page import delay_chart, first_rounds, verdict, write

    parsed = resolved(scenario, None, rounds)
    folder = None if out is None else path_of(out, "`out`: must be a path")
    check_new(folder, CROSS_CHECK_FILES, overwrite=overwrite)
    for delay_s in delays_s:
        if not 0 <= delay_s <= MOST_DELAY_S:
            raise InputError(f"`delays_s`: must be from 0 to 10 s, not {shortened(delay_s)}")
    check_packets(parsed, delays=bool(delays_s))
    if not emulated:
        say_unused(parsed, "a prediction")
    with followed(progress) as show:
        done = run(parsed, trace, progress=show) if emulated else None
        with channel_of(parsed, trace) as source:
            check = study.cross_check(parsed, source, done, delays_s=delays_s, progress=show)
    if folder is not None:
        remove_results(folder, CROSS_CHECK_FILES)
        write(check, parsed, folder)
    tables = {
        "latencies": study.latencies(check),
        "steps": study.steps(check),
        "transfers": study.transfers(check),
    }
    figures: dict[str, Callable[[], Figure | None]] = {
        "rounds": lambda: plots.gantts(first_rounds(check))
    }
    if len(check.by_delay) > 1:
        tables["over_delay"] = study.over_delay(check)
        figures |= figures_of({"delay": delay_chart(check, parsed)})
    title = f"cross-check of {parsed.name}"
    return StudyResult(title, verdict(check), tables, figures, check, folder)


@typed
def overhead(
    scenario: ScenarioLike,
    trace: Trace | None = None,
    rounds: int | None = None,
    *,
    sweep: Mapping[str, Sequence[Any]] | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> StudyResult:
    """Emulate rounds, and break down the transmitted bytes and the latency by cause.

    Args:
        scenario: A scenario, or the path or name of one, as for `load`.
        trace: Channel trace to replay. Default: ns-3 generates the channel of the scenario.
        rounds: Number of rounds. Default: `rounds` of the scenario.
        sweep: A dotted key and its values, for example `{"emulation.transport": ["tcp", "quic"]}`.
            The rounds are repeated for each value.
        out: Output folder for the page, the tables (CSV) and the figures.
        overwrite: Whether earlier results in `out` are replaced.
        progress: Called with a description of the current step, its progress, and its total.
            Default: a bar in a notebook.

    Returns:
        The tables `latencies` (one row per value), `bytes` and `waterfall`; a figure `waterfall`
        per value, and with a sweep the figure `sweep`.

    Raises:
        InputError: An argument is not valid, or this machine cannot run the scenario.
        RunError: A run failed.
    """
    parsed = resolved(scenario, None, rounds)
    key, points = "", [("", parsed)]
    if sweep is not None:
        if not isinstance(sweep, Mapping) or len(sweep) != 1:
            raise InputError(
                f"`sweep`: must be a mapping from one key to its values, not {shortened(sweep)}"
            )
        ((key, values),) = sweep.items()
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise InputError(f"`sweep`: {key} must have a list of values, not {shortened(values)}")
        points = [(str(value), changed(parsed, {key: value}, "`sweep`")) for value in values]
    return overheads(key, points, trace, out=out, overwrite=overwrite, progress=progress)


def overheads(
    key: str,
    points: "Sequence[tuple[str, Scenario]]",
    trace: Trace | None,
    *,
    out: str | Path | None,
    overwrite: bool,
    progress: Progress | None,
) -> StudyResult:
    """The work of `overhead`, for values of a key (empty: no sweep) with their scenarios."""
    from orchestrator.api import run
    from orchestrator.emulated.guests import from_outside
    from orchestrator.emulated.network import check_machine
    from orchestrator.studies import overhead as study
    from orchestrator.studies import overhead_page as page

    folder = None if out is None else path_of(out, "`out`: must be a path")
    check_new(folder, OVERHEAD_FILES, overwrite=overwrite)
    if trace is not None:
        given = read_trace(Path(trace)) if isinstance(trace, str | Path) else trace_from(trace)
        check_comparable(one.scheme for _, one in points if is_open(one, given))
    for _, one in points:  # None is run if one of them cannot be.
        if not from_outside(one):
            check_machine(one, None)
    outcomes = []
    with followed(progress) as show:
        for value, one in points:

            def named(what: str, done: float, total: float, value: str = value) -> None:
                show(f"{value} {what}".strip(), done, total)

            outcomes.append(study.outcome_of(value, run(one, trace, progress=named)))
    parsed = points[0][1]
    if folder is not None:
        remove_results(folder, OVERHEAD_FILES)
        page.write(folder, key, outcomes, parsed)
    figures = {
        page.waterfall_name(outcome): partial(study.waterfall_figure, outcome)
        for outcome in outcomes
    }
    if key:
        figures = {"sweep": partial(study.sweep_figure, key, outcomes), **figures}
    sentences = page.sweep_verdict(key, outcomes) if key else page.verdict(outcomes[0])
    title = f"overhead of {parsed.name}" + (f" by {key}" if key else "")
    return StudyResult(title, sentences, study.frames(outcomes), figures, outcomes, folder)


@typed
def validate(
    scenario: ScenarioLike,
    model: str | Callable[..., Any],
    space: str | Path | Mapping[str, Any] | None = None,
    *,
    samples: int = 4000,
    packets: int | None = None,
    kernel: int = 0,
    tolerance: float | None = None,
    metric: str | None = None,
    seed: int = 1,
    out: str | Path | None = None,
    overwrite: bool = False,
    resume: bool = False,
    scheduler: str | None = None,
    key: str | Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> StudyResult:
    """Find where an analytical model is valid, and how large its error is.

    Args:
        scenario: A scenario, or the path or name of one, as for `load`.
        model: An analytical model: the name of an equation of the paper or of a plug-in; or a
            function of a `RoundPlan`, a `RadioAccess`, gains and the length of a slot, as in a
            plug-in, for which this process computes all points.
        space: Ranges from which the values of keys are drawn: a YAML file, or its content.
            Default: ranges around the values of the scenario.
        samples: Number of points to draw and to predict with the engine, at least 16.
        packets: Number of these points to simulate packet by packet with ns-3. Default: 1 %.
        kernel: Number of these points to emulate.
        tolerance: Relative error up to which the model is considered valid. Default: 0.05, or 0
            for bounds.
        metric: Metric to compare. Default: that of the model.
        seed: Random seed that determines the points.
        out: Output folder for the page, the JSON and the YAML files. An interrupted validation in
            it is resumed.
        overwrite: Whether an earlier validation in `out` is replaced.
        resume: Whether there must be an earlier validation in `out`.
        scheduler: Address of a Dask scheduler whose workers compute. Default: this machine.
        key: Key file of the scheduler.
        workers: Number of worker processes on this machine; 0: this process computes. Default: one
            per core.
        progress: Called with a description of the current step, its progress, and its total.
            Default: a bar in a notebook.

    Returns:
        The tables `methods` (statistics of the errors by method), `points` (the drawn values, and
        the metric by method) and `sensitivity`; the figure `errors`, a histogram.

    Raises:
        InputError: An argument is not valid.
        RunError: A point failed.
    """
    from orchestrator.analytical.models import EQUATIONS, named
    from orchestrator.analytical.models import model as check_model
    from orchestrator.studies.validation import study
    from orchestrator.studies.validation.outcome import Request
    from orchestrator.studies.validation.page import figure, write
    from orchestrator.studies.validation.space import default_space, load_space, read_space
    from orchestrator.studies.validation.verdict import verdict
    from testbed.core.paradigm import BUILT_IN
    from testbed.core.registry import METRICS
    from testbed.host.dask_cluster import Cluster

    folder = None if out is None else path_of(out, "`out`: must be a path")
    if callable(model):
        for name, unfit in (("scheduler", scheduler), ("workers", workers), ("resume", resume)):
            if unfit:
                raise InputError(f"`{name}`: must be absent if `model` is a function")
        # Earlier results may be those of a function with the same name.
        check_new(folder, [study.SETTINGS], overwrite=overwrite)
        with named(model) as own:
            return validate(
                scenario,
                own,
                space,
                samples=samples,
                packets=packets,
                kernel=kernel,
                tolerance=tolerance,
                metric=metric,
                seed=seed,
                out=out,
                overwrite=overwrite,
                workers=0,
                progress=progress,
            )
    parsed = resolved(scenario, None, None)
    check_model(model, parsed)
    if space is None:
        varied = default_space(parsed)
    elif isinstance(space, Mapping):
        varied = read_space(space, "`space`", parsed)
    else:
        varied = load_space(path_of(space, "`space`: must be a path or a mapping"), parsed)
    if metric is not None:
        METRICS.function(metric, "`metric`")
    drawn = {key.partition(".")[0] for key in varied.keys}
    form = None if drawn & {"paradigm", "order", "uploads"} else EQUATIONS.get(model)
    if form is not None and form.relation(parsed.scheme) is None:
        names = ", ".join(paradigm.name for paradigm in BUILT_IN if form.relation(paradigm))
        raise InputError(
            f"`model`: {model!r} does not apply to paradigm {parsed.paradigm!r}, only to {names}"
        )
    whole("samples", samples, 16, 1_000_000)
    whole("packets", packets or 0, 0, samples)
    whole("kernel", kernel, 0, samples)
    whole("seed", seed, 0, 2**63 - 1)
    if tolerance is not None and not 0 <= tolerance <= 10:
        raise InputError(f"`tolerance`: must be from 0 to 10, not {shortened(tolerance)}")
    request = Request(parsed, model, varied, samples, packets, kernel, tolerance, metric, seed)
    own_key = None if key is None else Path(key)
    cluster = Cluster(scheduler, workers, pool=scheduler is None, key=own_key)
    check_resumable(folder, study.SETTINGS, "validation", overwrite=overwrite, resume=resume)
    if folder is not None:
        if overwrite:
            empty(folder)
        study.check_folder(request, folder)
    with (
        temporary_folder("validate") if folder is None else nullcontext(folder) as place,
        followed(progress) as show,
    ):
        found = study.validate(request, place, cluster=cluster, progress=show)
    if folder is not None:
        write(found, folder)
    title = f"validation of {model} on {parsed.name}"
    draw = figure(found)
    figures = {} if draw is None else {"errors": draw}
    return StudyResult(title, verdict(found), found.frames(), figures, found, folder)
