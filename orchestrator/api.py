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
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ns3_scenarios.errors import ChannelError
from ns3_scenarios.trace import ChannelSource, SlotTrace, TraceError, trace_of
from orchestrator.scenario.channel import check_comparable, is_open, open_source, replay
from orchestrator.scenario.combinations import check
from orchestrator.scenario.loading import changes_epochs, set_key, validate, with_epochs
from orchestrator.scenario.loading import load as load_file
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario
from orchestrator.scenario.unused import say_unused
from testbed.core.errors import InputError, RunError
from testbed.core.paradigm import Paradigm
from testbed.core.progress import Progress, silent
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

Trace = str | Path | SlotTrace | Mapping[str, Any]
"""A file, or its contents: `gain` of shape [K, S], linear, and `slot_s`; `position` if known.
Instead of `gain`: `gain_up` and `gain_down`, or the rates `uplink_bps` and `downlink_bps`."""
Policy: TypeAlias = "str | Decide"
"""A name of `allocation.policy`, or a function from a `Situation` to an `Allocation`."""
Comparable: TypeAlias = "Timeline | Run | str | Path"
Capture = Literal["frames", "headers"]

MOST_SHOWN = 60
"""Most characters of a wrong value that a message repeats."""
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
    file = _path(path, "`path`: must be the path or the name of a scenario")
    if isinstance(overrides, Mapping):
        return _changed(load_file(file), overrides, "`overrides`")
    if isinstance(overrides, str) or not all(isinstance(item, str) for item in overrides):
        raise InputError(
            "`overrides`: must be a list of texts such as 'rounds=3', or a mapping from keys to "
            f"values, not {_short(overrides)}"
        )
    return load_file(file, overrides)


def predict(
    scenario: Scenario | str | Path,
    trace: Trace | None = None,
    policy: "Policy | None" = None,
    rounds: int | None = None,
    *,
    wire: bool = False,
    progress: Progress = silent,
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

    Raises:
        InputError: The scenario, the trace or the policy is not valid; the message names the field.
        RunError: ns-3 or the policy failed.
    """
    resolved = _resolved(scenario, policy, rounds)
    say_left_out(resolved, wire=wire)
    with _channel(resolved, trace) as source:  # ns-3 starts while the engine is imported
        from orchestrator.engine.plan import link_bytes, payload_bytes
        from orchestrator.rounds.loop import predict as predict_rounds

        return predict_rounds(
            resolved,
            source,
            profile_of(resolved),
            sizing=link_bytes if wire else payload_bytes,
            decide=_decider(resolved, policy, source),
            progress=lambda done: progress("predicted", done, resolved.rounds),
        )


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
    progress: Progress = silent,
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

    Returns:
        The result of `read_run` for the run directory.

    Raises:
        InputError: An argument is not valid, or this machine cannot run the scenario.
        RunError: The run failed; the measurements up to that point are in `out`.
    """
    from orchestrator.emulated.guests import from_outside
    from orchestrator.emulated.options import RunOptions, check_options
    from testbed.system.leftovers import temporary_folder

    resolved = _resolved(scenario, policy, rounds)
    options = RunOptions(
        overwrite=overwrite,
        resume=resume,
        capture=capture,
        keep=out is not None,
        scheduler=scheduler,
        key=None if key is None else Path(key),
        progress=progress,
    )
    check_options(options, None if out is None else Path(out))
    check(resolved, "run")
    say_unused(resolved, "a run")
    with temporary_folder("run") as temporary:
        folder = temporary / "run" if out is None else Path(out)
        in_guest = scheduler is None and from_outside(resolved)
        play: Callable[..., object] = _emulate_in_guest if in_guest else emulate
        play(resolved, trace, policy, folder, options)
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
            _trace(trace).save(saved)
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
        _channel(scenario, trace) as source,
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
        if not (scenario.links.are_impaired or scenario.emulation.one_way_delay_s):
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

    resolved = _resolved(scenario, None, None)
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
        _channel(resolved, trace, by_slot=True) as source,
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

    return read(Path(path))


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
    from testbed.core.paradigm import paradigm
    from testbed.core.timeline import STEPS

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
    results: "Sequence[Comparable] | Mapping[str, Comparable]", out: str | Path | None = None
) -> "Comparison":
    """Compare any number of results, as `testbed compare` does.

    Args:
        results: Timelines, runs, and paths as for `testbed compare`, i.e. the directories of runs,
            sessions and cross-checks, and files written with `--json`. A mapping gives them names.
        out: HTML page to write.

    Returns:
        The tables `table` (one row per result), `rounds`, `steps`, `budgets`, `sessions`, and
        `differing` (the keys in which the scenarios differ).

    Raises:
        InputError: A result cannot be compared, or has no rounds.
    """
    from orchestrator.records.comparison import compare as hold
    from orchestrator.records.results import Result

    given = results.items() if isinstance(results, Mapping) else (("", each) for each in results)
    found = [(name, one) for name, each in given for one in _results_of(each)]
    rounds = [(name, one.execution) for name, one in found if isinstance(one, Result)]
    whose = [name for name, _ in rounds]
    names = [f"{name}, {by}" if whose.count(name) > 1 else name for name, by in rounds]
    held = hold([one for _, one in found], names if isinstance(results, Mapping) else ())
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
        return read_results(given)
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


def _resolved(
    given: Scenario | str | Path, policy: "Policy | None", rounds: int | None
) -> Scenario:
    """The scenario with further options applied."""
    scenario = given
    if not isinstance(scenario, Scenario):
        must = "`scenario`: must be a scenario, or the path or the name of one"
        scenario = load_file(_path(scenario, must))
    if policy is not None and not isinstance(policy, str) and not callable(policy):
        raise InputError(f"`policy`: must be a name or a function, not {_short(policy)}")
    asked = {"rounds": rounds, "policy": policy if isinstance(policy, str) else None}
    keys = {"policy": "allocation.policy"}
    for name, value in asked.items():
        if value is not None:
            scenario = _changed(scenario, {keys.get(name, name): value}, f"`{name}`")
    return scenario


def _path(given: object, must: str) -> Path:
    """A path that the user gave; `must` begins the message about another type."""
    if not isinstance(given, str | os.PathLike):
        raise InputError(f"{must}, not {_short(given)}")
    return Path(given)


def _short(value: object) -> str:
    return repr(value) if len(repr(value)) <= MOST_SHOWN else f"a {type(value).__name__}"


def _decider(scenario: Scenario, policy: "Policy | None", source: ChannelSource) -> "Decide | None":
    """The function that decides; None if split and shares are those of the scenario."""
    from orchestrator.policies.registry import checked, decider

    if policy is None or isinstance(policy, str):
        return decider(scenario, source)
    return checked(scenario, getattr(policy, "__name__", "given"), policy)


def _changed(scenario: Scenario, changes: Mapping[str, Any], argument: str) -> Scenario:
    """The scenario with other values under dotted keys.

    Raises:
        InputError: A value does not fit; the message names the argument, and the key unless the
            argument has only this one.
    """
    tree = scenario.model_dump(mode="json")
    for key, value in changes.items():
        set_key(tree, key, value, argument)
    try:
        return (with_epochs if changes_epochs(changes) else validate)(tree, argument)
    except InputError as error:
        if argument == "`overrides`":
            raise
        (key,) = changes
        raise InputError(str(error).replace(f"{argument}: {key}: ", f"{argument}: ", 1)) from None


@contextmanager
def _channel(
    scenario: Scenario, trace: Trace | None, *, by_slot: bool = False
) -> Iterator[ChannelSource]:
    """The channel, until the context ends; errors of ns-3 become `RunError`. See `ns3_source`."""
    try:
        if trace is None or isinstance(trace, str | Path):
            file = None if trace is None else Path(trace)
            with open_source(scenario, file, by_slot=by_slot) as source:
                yield source
        else:
            yield replay(scenario, _trace(trace))
    except ChannelError as error:
        raise RunError(str(error)) from error


def _trace(given: SlotTrace | Mapping[str, Any]) -> SlotTrace:
    if isinstance(given, SlotTrace):
        return given
    if not isinstance(given, Mapping):
        raise InputError(f"`trace`: must be a path, a trace or a mapping, not {_short(given)}")
    try:
        return trace_of(given, "`trace`")
    except TraceError as error:
        raise InputError(str(error)) from None
