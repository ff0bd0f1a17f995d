# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Arguments that the functions of the Python interface share: scenarios, traces and policies."""

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from numbers import Integral
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    ParamSpec,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
)

from ns3_scenarios.errors import ChannelError
from ns3_scenarios.trace import ChannelSource, SlotTrace, TraceError, trace_of
from orchestrator.scenario.channel import open_source, replay
from orchestrator.scenario.loading import changes_epochs, set_key, validate, with_epochs
from orchestrator.scenario.loading import load as load_file
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError, RunError
from testbed.core.words import not_one_of

if TYPE_CHECKING:
    from orchestrator.rounds.loop import Decide

ScenarioLike = Scenario | str | Path
"""A scenario, a YAML file, or the name of an included scenario."""
Trace = str | Path | SlotTrace | Mapping[str, Any]
"""A file, or its contents: `gain` of shape [K, S], linear, and `slot_s`; `position` if known.
Instead of `gain`: `gain_up` and `gain_down`, or the rates `uplink_bps` and `downlink_bps`."""
Policy: TypeAlias = "str | Decide"
"""A name of `allocation.policy`, or a function from a `Situation` to an `Allocation`."""

MOST_SHOWN = 60
"""Most characters of a wrong value that a message repeats."""


def resolved(given: Scenario | str | Path, policy: "Policy | None", rounds: int | None) -> Scenario:
    """The scenario with further options applied."""
    scenario = given
    if not isinstance(scenario, Scenario):
        must = "`scenario`: must be a scenario, or the path or the name of one"
        scenario = load_file(path_of(scenario, must))
    if policy is not None and not isinstance(policy, str) and not callable(policy):
        raise InputError(f"`policy`: must be a name or a function, not {shortened(policy)}")
    asked = {"rounds": rounds, "policy": policy if isinstance(policy, str) else None}
    keys = {"policy": "allocation.policy"}
    for name, value in asked.items():
        if value is not None:
            scenario = changed(scenario, {keys.get(name, name): value}, f"`{name}`")
    return scenario


def path_of(given: object, must: str) -> Path:
    """A path that the user gave; `must` begins the message about another type."""
    if not isinstance(given, str | os.PathLike):
        raise InputError(f"{must}, not {shortened(given)}")
    return Path(given)


P = ParamSpec("P")
R = TypeVar("R")


def typed(function: Callable[P, R]) -> Callable[P, R]:
    """The function; its arguments that must be booleans, or one of some words, are checked first.

    Otherwise `wire="no"` would count as true, and an unknown word as none.
    """
    signature = inspect.signature(function)

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:
            given = {}  # The function itself says what is wrong.
        for name, value in given.items():
            kind = signature.parameters[name].annotation
            if kind is bool and not isinstance(value, bool):
                raise InputError(f"`{name}`: must be True or False, not {shortened(value)}")
            words = [word for part in (kind, *get_args(kind)) for word in _words(part)]
            if words and value is not None and value not in words:
                raise InputError(f"`{name}`: {not_one_of(str(value), words)}")
        return function(*args, **kwargs)

    return checked


def _words(kind: object) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) is Literal else ()


def whole(name: str, value: object, least: int, most: int) -> None:
    """Refuse an argument that is not a whole number between two bounds."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InputError(f"`{name}`: must be a whole number, not {shortened(value)}")
    if not least <= int(value) <= most:
        raise InputError(f"`{name}`: must be from {least} to {most}, not {value}")


def shortened(value: object) -> str:
    """A wrong value for a message."""
    return repr(value) if len(repr(value)) <= MOST_SHOWN else f"a {type(value).__name__}"


def changed(scenario: Scenario, changes: Mapping[str, Any], argument: str) -> Scenario:
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
def channel_of(
    scenario: Scenario, trace: Trace | None, *, by_slot: bool = False
) -> Iterator[ChannelSource]:
    """The channel, until the context ends; errors of ns-3 become `RunError`. See `ns3_source`."""
    try:
        if trace is None or isinstance(trace, str | Path):
            file = None if trace is None else Path(trace)
            with open_source(scenario, file, by_slot=by_slot) as source:
                yield source
        else:
            yield replay(scenario, trace_from(trace))
    except ChannelError as error:
        raise RunError(str(error)) from error


def trace_from(given: SlotTrace | Mapping[str, Any]) -> SlotTrace:
    """A trace that is not a file.

    Raises:
        InputError: It is no trace, or one of its arrays does not fit.
    """
    if isinstance(given, SlotTrace):
        return given
    if not isinstance(given, Mapping):
        raise InputError(f"`trace`: must be a path, a trace or a mapping, not {shortened(given)}")
    try:
        return trace_of(given, "`trace`")
    except TraceError as error:
        raise InputError(str(error)) from None


def decider_of(scenario: Scenario, policy: Policy, source: ChannelSource) -> "Decide":
    """The function that decides for a policy."""
    from orchestrator.policies.registry import checked
    from orchestrator.policies.registry import policy as named

    if isinstance(policy, str):
        agent = scenario.allocation.agent
        return named(scenario, policy, None if agent is None else Path(agent), source)
    return checked(scenario, getattr(policy, "__name__", "given"), policy)
