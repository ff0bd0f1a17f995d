# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The functions of `import orchestrator as tb`, which the commands of `testbed` also call.

    import orchestrator as tb
    timeline = tb.predict("paper", rounds=10)
    run = tb.run("quickstart", out="runs/first")

The functions need neither the main thread nor the absence of a running event loop: scripts,
notebooks and coroutines may call them. A call blocks until its result is available.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ns3_scenarios.trace import ChannelSource
from orchestrator.interface.given import (
    Policy,
    Trace,
    changed,
    channel_of,
    path_of,
    shortened,
    trace_from,
    typed,
)
from orchestrator.interface.given import (
    resolved as resolved_of,
)
from orchestrator.interface.progress import followed
from orchestrator.scenario.channel import check_comparable, is_open
from orchestrator.scenario.combinations import check
from orchestrator.scenario.loading import load as load_file
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario
from orchestrator.scenario.unused import say_unused
from testbed.core.errors import InputError
from testbed.core.paradigm import Paradigm
from testbed.core.progress import Progress
from testbed.core.timeline import Timeline

if TYPE_CHECKING:
    import pandas as pd

    from orchestrator.emulated.network import Hosts
    from orchestrator.emulated.options import Placing, RunOptions, SessionOptions
    from orchestrator.emulated.up import Outcome
    from orchestrator.records.comparison import Comparison
    from orchestrator.records.emulation import Emulation
    from orchestrator.records.reader import Run
    from orchestrator.records.results import Result
    from orchestrator.records.session_reader import PlayedSession
    from orchestrator.rounds.loop import Decide

log = logging.getLogger(__name__)

Comparable: TypeAlias = "Timeline | Run | str | Path"
Capture = Literal["frames", "headers"]

KEYS = ("round", "client", "iteration", "step")
"""The columns that identify a step of a timeline."""


def load(path: str | Path, overrides: Sequence[str] | Mapping[str, Any] = ()) -> Scenario:
    """Read a scenario.

    Args:
        path: Path of a YAML file. If there is no such file, this is the name of a scenario that is
            included in the testbed, such as `paper` or `quickstart`.
        overrides: Items `dotted.key=value`, as for `--set`, or a mapping from dotted keys to
            values.

    Raises:
        InputError: The file or a field is not valid. The one-line message names the field and the
            allowed values.
    """
    file = path_of(path, "`path`: must be the path or the name of a scenario")
    if isinstance(overrides, Mapping):
        return changed(load_file(file), overrides, "`overrides`")
    if isinstance(overrides, str) or not all(isinstance(item, str) for item in overrides):
        raise InputError(
            "`overrides`: must be a list of texts such as 'rounds=3', or a mapping from keys to "
            f"values, not {shortened(overrides)}"
        )
    return load_file(file, overrides)


@typed
def predict(
    scenario: Scenario | str | Path,
    trace: Trace | None = None,
    policy: "Policy | None" = None,
    rounds: int | None = None,
    *,
    wire: bool = False,
    progress: Progress | None = None,
) -> Timeline:
    """Predict rounds with the slot-level engine. Round 0 starts at t = 0, and each of the other
    rounds starts when the previous one ends.

    If a planned fault ends the run early, the attribute `ended` of the timeline gives the reason.

    Args:
        scenario: A scenario, or the path or name of one, as for `load`.
        trace: Channel trace to replay. Default: ns-3 generates the channel of the scenario.
        policy: Policy that decides on the split point and the shares. Default: the scenario's
            `allocation`.
        rounds: Number of rounds. Default: `rounds` of the scenario.
        wire: Whether to take the size of whole frames and the delay and loss of links into account,
            as `run` does for `predicted_wire`. Otherwise, only the payload counts, as in the paper.
        progress: Called with a description of the current step, its progress, and its total.
            Default: a bar in a notebook.

    Raises:
        InputError: The scenario, the trace or the policy is not valid; the message names the field.
        RunError: ns-3 or the policy failed.
    """
    resolved = resolved_of(scenario, policy, rounds)
    say_left_out(resolved, wire=wire)
    # ns-3 starts while the engine is imported.
    with channel_of(resolved, trace) as source, followed(progress) as show:
        from orchestrator.engine.plan import link_bytes, payload_bytes
        from orchestrator.rounds.loop import predict as predict_rounds

        return predict_rounds(
            resolved,
            source,
            profile_of(resolved),
            sizing=link_bytes if wire else payload_bytes,
            decide=_decider(resolved, policy, source),
            progress=lambda done: show("predicted", done, resolved.rounds),
            forget=True,
        )


@typed
def run(
    scenario: Scenario | str | Path,
    trace: Trace | None = None,
    policy: "Policy | None" = None,
    out: str | Path | None = None,
    *,
    rounds: int | None = None,
    overwrite: bool = False,
    resume: bool = False,
    capture: Capture | None = None,
    scheduler: str | None = None,
    key: str | Path | None = None,
    progress: Progress | None = None,
) -> "Run":
    """Emulate rounds on real links and compare them with the prediction.

    Args:
        scenario: A scenario, or the path or name of one, as for `load`.
        trace: Channel trace to replay. Default: ns-3 generates the channel of the scenario.
        policy: Policy that decides on the split point and the shares. Default: the scenario's
            `allocation`.
        out: Run directory to write, with a report. Default: a temporary one, which is removed at
            the end.
        rounds: Number of rounds. Default: `rounds` of the scenario.
        overwrite: Whether an earlier run in `out` is replaced.
        resume: Whether to resume a killed or failed run in `out`.
        capture: Whether to capture whole frames, or only their headers, in the run directory.
        scheduler: Address of a Dask scheduler. The nodes run on the hosts of this scheduler.
            Default: this machine.
        key: Key file of the scheduler.
        progress: Called with a description of the current step, its progress, and its total.
            Default: a bar in a notebook.

    Returns:
        The result of `read_run` for the run directory.

    Raises:
        InputError: An argument is not valid, or this machine cannot run the scenario.
        RunError: The run failed; the measurements up to that point are in `out`.
    """
    from orchestrator.emulated.guests import from_outside
    from orchestrator.emulated.options import RunOptions, check_options
    from testbed.system.leftovers import temporary_folder

    resolved = resolved_of(scenario, policy, rounds)
    options = RunOptions(
        overwrite=overwrite,
        resume=resume,
        capture=capture,
        keep=out is not None,
        scheduler=scheduler,
        key=None if key is None else Path(key),
    )
    check_options(options, None if out is None else Path(out))
    check(resolved, "run")
    say_unused(resolved, "a run")
    with temporary_folder("run") as temporary, followed(progress) as show:
        folder = temporary / "run" if out is None else Path(out)
        in_guest = scheduler is None and from_outside(resolved)
        play: Callable[..., object] = _emulate_in_guest if in_guest else emulate
        play(resolved, trace, policy, folder, replace(options, progress=show))
        return read_run(folder)


def _emulate_in_guest(
    scenario: Scenario,
    trace: Trace | None,
    policy: "Policy | None",
    out: Path,
    options: "RunOptions",
) -> None:
    """The work of `run` for scenarios with virtual time."""
    from orchestrator.emulated.virtual import run_in_guest
    from testbed.system.leftovers import temporary_folder

    if callable(policy):
        raise InputError("`policy`: must be a name where emulation.clock is 'virtual'")
    with (
        temporary_folder("trace", "/tmp") as temporary,
        _run_folder(out, scenario, options) as folder,
    ):
        if trace is not None and not isinstance(trace, str | Path):
            saved = temporary / "trace.npz"
            trace_from(trace).save(saved)
            trace = saved
        run_in_guest(scenario, None if trace is None else Path(trace), folder, options)


def emulate(
    scenario: Scenario,
    trace: Trace | None,
    policy: "Policy | None",
    out: Path | None,
    options: "RunOptions",
) -> "Emulation":
    """The work of `run`; returns the measurements as they are in memory.

    Args:
        scenario: Scenario to emulate.
        trace: Channel to replay; None: ns-3 makes the scenario's own.
        policy: Policy that decides on the split point and the shares; None: the scenario's
            `allocation`.
        out: Run directory to write; None: a temporary one.
        options: Options of the run.
    """
    from orchestrator.emulated.network import check_machine
    from orchestrator.emulated.options import check_options
    from orchestrator.emulated.run import run as run_scenario

    check_options(options, out)
    if options.scheduler is None:
        check_machine(scenario, None)
    view = nullcontext() if options.view is None else options.view(scenario)
    with (
        _hosts(scenario, options) as hosts,
        _run_folder(out, scenario, options) as folder,
        channel_of(scenario, trace) as source,
        view as observer,
    ):
        began = replace(
            options,
            decide=_decider(scenario, policy, source),
            keep=options.keep and out is not None,
            hosts=hosts,
            observer=observer,
        )
        done = run_scenario(scenario, source, folder, began)
        if observer is not None:
            observer.concluded(done.checks, out)
        return done


def say_left_out(scenario: Scenario, *, wire: bool = False) -> None:
    """Log the keys that a prediction of a scenario does not consider, in one line per reason."""
    say_unused(scenario, "a prediction")
    if scenario.is_impaired and not wire:
        own = "links.one_way_delay_s and links.loss are"
        if not scenario.links.are_impaired:
            own = f"the delay of radio.access {scenario.radio.access!r} is"
        log.warning(
            f"{own} ignored: only the payload counts, as in the paper; `wire` counts frames, delay "
            "and loss"
        )


@contextmanager
def _run_folder(out: Path | None, scenario: Scenario, options: "RunOptions") -> Iterator[Path]:
    """The folder that a run fills; it gets a report, and is registered for `testbed clean`."""
    from orchestrator.records.directory import run_folder
    from orchestrator.reporting.report import write_report
    from testbed.system.leftovers import noted

    finish = write_report if options.keep and out is not None else _nothing
    claim = run_folder(
        out, scenario, overwrite=options.overwrite, resume=options.resume, finish=finish
    )
    with claim as folder, noted(folder, unless="checkpoint/round-*"):
        yield folder


def play_session(
    scenario: Scenario | str | Path,
    trace: Trace | None,
    out: Path,
    commands: Mapping[str, str | Sequence[str]],
    options: "SessionOptions",
    until: Sequence[str] = (),
) -> "Outcome":
    """Play a session with these commands in its nodes: the work of `testbed up`.

    Args:
        scenario: A scenario, or the path or name of one, as for `load`.
        trace: Channel to replay; None: ns-3 makes the scenario's own.
        out: Folder to create.
        commands: Commands by node, or `uav*`, which replace the scenario's: a command line for a
            shell, or a program and its arguments.
        options: Options of the session.
        until: Names of the nodes whose commands end the session; none: all nodes with a command.

    Raises:
        InputError: Something does not fit; the message names it.
        RunError: The session failed.
    """
    from orchestrator.emulated.options import check_options
    from orchestrator.emulated.programs import commands_of
    from orchestrator.emulated.session_request import downlink_of, nodes_named
    from orchestrator.emulated.up import check_playable, play

    resolved = resolved_of(scenario, None, None)
    check_options(options, out)
    downlink_of(resolved, options.downlink)
    say_unused(resolved, "a session")
    if options.scheduler is None:
        check_playable(resolved)
    named = commands_of(resolved, commands)
    awaited = [node for name in until for node in nodes_named(name, resolved, "`until`")]
    if idle := [node for node in awaited if node not in named]:
        raise InputError(f"`until`: {idle[0]} has no command that could end")
    with (
        _hosts(resolved, options, learns=False) as hosts,
        channel_of(resolved, trace, by_slot=True) as source,
    ):
        done = play(resolved, source, out, named, replace(options, until=awaited, hosts=hosts))
    report_session(out)
    return done


def report_session(out: Path) -> None:
    """Write a session's `report.html`, if the extra [report] is installed."""
    if find_spec("jinja2") is not None:
        from orchestrator.reporting.session_report import write_session_report

        write_session_report(out)


def read_run(path: str | Path) -> "Run":
    """Read a run directory: tables, timelines, error budget, validity.

    Raises:
        InputError: The folder is not a run directory: its manifest or scenario is missing or
            broken.
    """
    from orchestrator.records.reader import read_run as read

    return read(path_of(path, "`path`: must be the path of a run directory"))


def compare(left: "Timeline | Run", right: "Timeline | Run") -> "pd.DataFrame":
    """Join two timelines step by step.

    Args:
        left: A timeline or a run; the measured rounds of a run are used.
        right: The timeline or run with which `left` is compared.

    Returns:
        One row per step of either timeline, sorted by round, client, iteration and step:
        `left_start_s`, `left_s` (duration), `right_start_s`, `right_s`, `difference_s` (right minus
        left). If a step is missing from one timeline, e.g. after the loss of a client, the values
        of this timeline are NaN.

    Raises:
        InputError: One timeline has a sequential downlink, the other a parallel one, and their
            trace does not state whether its downlink rates apply to each link or to the whole cell.
    """
    from orchestrator.records.reader import Run
    from testbed.core.paradigm import paradigm
    from testbed.core.timeline import STEPS

    for name, each in (("left", left), ("right", right)):
        if not isinstance(each, Timeline | Run):
            raise InputError(f"`{name}`: must be a timeline or a run, not {shortened(each)}")

    def schemes(given: "Timeline | Run") -> list[Paradigm]:
        if isinstance(given, Timeline):
            open_, rounds = given.downlink_is_open, given.rounds
        else:
            open_ = given.trace is not None and is_open(given.scenario, given.trace)
            rounds = given.measured.rounds
        return [paradigm(round_.paradigm) for round_ in rounds[:1]] if open_ else []

    check_comparable([*schemes(left), *schemes(right)])

    def half(given: "Timeline | Run", side: str) -> "pd.DataFrame":
        timeline = given if isinstance(given, Timeline) else given.measured
        table = timeline.frame()
        table[f"{side}_s"] = table["end_s"] - table["start_s"]
        return table.rename(columns={"start_s": f"{side}_start_s"})[
            [*KEYS, f"{side}_start_s", f"{side}_s"]
        ].astype({"step": str})

    both = half(left, "left").merge(half(right, "right"), on=list(KEYS), how="outer")
    both["difference_s"] = both["right_s"] - both["left_s"]
    order = {step: at for at, step in enumerate(STEPS)}
    by = both.assign(step=both["step"].map(order)).sort_values(list(KEYS)).index
    return both.loc[by].reset_index(drop=True)


def comparison(
    results: "Sequence[Comparable] | Mapping[str, Comparable]",
    out: str | Path | None = None,
    *,
    target: str | None = None,
    learned: Sequence[str | Path] = (),
) -> "Comparison":
    """Compare any number of results, as `testbed compare` does.

    Args:
        results: Timelines, runs, and paths as for `testbed compare`, i.e. the directories of runs,
            sessions and cross-checks, and files written with `--json`. A mapping gives them names.
        out: HTML page to write.
        target: A target that results are to reach, such as `accuracy=0.8`.
        learned: Folders of `learn` for results without learning, one per random seed.

    Returns:
        The tables `table` (one row per result), `rounds`, `steps`, `budgets`, `sessions`, and
        `differing` (the keys in which the scenarios differ).

    Raises:
        InputError: A result cannot be compared, or has no rounds.
    """
    from orchestrator.analysis.learned import Target
    from orchestrator.records.comparison import compare as hold
    from orchestrator.records.learned import read_trajectories, with_learning
    from orchestrator.records.results import Result

    own = [each for folder in learned for each in read_trajectories(Path(folder))]
    given = results.items() if isinstance(results, Mapping) else (("", each) for each in results)
    found = [(name, one) for name, each in given for one in _results_of(each)]
    rounds = [(name, one.execution) for name, one in found if isinstance(one, Result)]
    whose = [name for name, _ in rounds]
    names = [f"{name}, {by}" if whose.count(name) > 1 else name for name, by in rounds]
    held = hold(
        with_learning([one for _, one in found], own),
        names if isinstance(results, Mapping) else (),
        None if target is None else Target.parse(target, "`target`"),
    )
    if out is not None:
        from orchestrator.reporting.comparison import write_page

        write_page(held, Path(out))
    return held


def _results_of(given: "Comparable") -> "Sequence[Result | PlayedSession]":
    from orchestrator.records.reader import Run
    from orchestrator.records.results import Result, read_results, result_of

    if isinstance(given, Run):
        return [result_of(given)]
    if not isinstance(given, Timeline):
        return read_results(path_of(given, "`results`: must be timelines, runs or paths"))
    if not len(given):
        raise InputError("`results`: a timeline has no round")
    open_ = given.downlink_is_open
    return [Result("given", None, "given", given, Timeline([]), downlink_is_open=open_)]


def _hosts(
    scenario: Scenario, options: "Placing", *, learns: bool = True
) -> "AbstractContextManager[Hosts | None]":
    """The hosts on which nodes live, until the context ends; None: this machine."""
    if options.scheduler is None:
        return nullcontext()
    from orchestrator.emulated.hosts import hosts_of

    return hosts_of(scenario, options.scheduler, options.key, learns=learns)


def _nothing(folder: Path) -> None:
    """Do nothing at the end, for a temporary folder."""


def _decider(scenario: Scenario, policy: "Policy | None", source: ChannelSource) -> "Decide | None":
    """The function that decides; None if split and shares are those of the scenario."""
    from orchestrator.policies.registry import checked, decider

    if policy is None or isinstance(policy, str):
        return decider(scenario, source)
    return checked(scenario, getattr(policy, "__name__", "given"), policy)
