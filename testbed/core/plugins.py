# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What other packages add: objects that they register as entry points, by group and name.

A plugin is loaded when a scenario names it, never before, so that a broken one costs nobody
anything who does not use it. Names of what is built in cannot be taken.
"""

import hashlib
import inspect
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from testbed.core.errors import InputError

PARADIGMS, POLICIES, MOBILITY = "testbed.paradigms", "testbed.policies", "testbed.mobility"
ANALYTICAL_MODELS, METRICS = "testbed.analytical_models", "testbed.metrics"
MODELS, AGGREGATORS = "testbed.models", "testbed.aggregators"
CODECS, PARTICIPATION = "testbed.codecs", "testbed.participation"
CHANNELS, ORDERS = "testbed.channels", "testbed.orders"
FIELDS = {
    PARADIGMS: "paradigm",
    POLICIES: "allocation.policy",
    MOBILITY: "mobility.model",
    ANALYTICAL_MODELS: "analytical_models",
    METRICS: "metric",
    MODELS: "workload.model",
    AGGREGATORS: "workload.aggregation",
    CODECS: "workload.wire_dtype",
    PARTICIPATION: "participation.rule",
    CHANNELS: "radio.channel",
    ORDERS: "order",
}
"""The key of a scenario that names a plugin of each group."""

MOVED = {
    "orchestrator.plan": "Allocation",
    "orchestrator.predict": "Situation",
    "orchestrator.scenario": "Scenario",
    "testbed.errors": "InputError, RunError",
    "testbed.paradigm": "Paradigm",
    "testbed.timeline": "Round, Timeline",
}
"""By the module that plugins imported it from: what `orchestrator` itself offers now."""
OURS = ("orchestrator", "testbed", "workloads", "ns3_scenarios")


@cache
def installed() -> dict[str, dict[str, EntryPoint]]:
    """All plugins by group and name. Finding them reads a file of every installed package."""
    found = entry_points()
    return {group: {entry.name: entry for entry in found.select(group=group)} for group in FIELDS}


def registered(group: str) -> dict[str, EntryPoint]:
    """The plugins of a group by name; nothing is loaded."""
    return installed()[group]


def load(group: str, name: str) -> Any:
    """What is registered under that name.

    Raises:
        InputError: It cannot be loaded; the message says why.
    """
    entry = registered(group)[name]
    try:
        return entry.load()
    except ImportError as error:
        raise unfit(group, name, f"cannot be loaded: {_missing(error)}") from error
    except (Exception, SystemExit) as error:
        raise unfit(group, name, f"cannot be loaded: {reason(error)}") from error


def load_function(group: str, name: str) -> Callable[..., Any]:
    """As `load`, of a group of functions.

    Raises:
        InputError: It cannot be loaded, or is none.
    """
    function = load(group, name)
    if not callable(function):
        raise unfit(group, name, f"is no function: {function!r}")
    return function  # type: ignore[no-any-return]


def unfit(group: str, name: str, why: str) -> InputError:
    """The refusal of a plugin: one line with the scenario's key, its name, and where it is."""
    return InputError(f"{FIELDS[group]}: plugin {name!r} ({registered(group)[name].value}) {why}")


def _missing(error: ImportError) -> str:
    """What could not be imported; of what the testbed once had, what to import instead."""
    module = error.name or ""
    if module in MOVED:
        return f"what it imports from {module} has moved: from orchestrator import {MOVED[module]}"
    if isinstance(error, ModuleNotFoundError) and module.partition(".")[0] in OURS:
        return f"there is no {module}; what plugins may need, orchestrator itself offers"
    return reason(error)


def reason(error: BaseException) -> str:
    """An exception in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def check_parameters(
    name: str,
    function: Callable[..., Any],
    parameters: Mapping[str, Any],
    field: str,
    *,
    of_testbed: int = 1,
) -> None:
    """Refuse parameters that a plugin's function does not take, or the lack of some that it needs.

    Args:
        name: The plugin's.
        function: Takes arguments of the testbed, then parameters by keyword.
        parameters: As the scenario gives them.
        field: The scenario's key that holds them.
        of_testbed: How many arguments the testbed gives.

    Raises:
        InputError: Names the parameter.
    """
    taken = list(inspect.signature(function).parameters.values())[of_testbed:]
    known = {each.name: each for each in taken if each.kind is not each.VAR_KEYWORD}
    for given in parameters:
        if given not in known and len(known) == len(taken):
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise InputError(f"{field}.{given}: {name!r} has no such parameter; {has}")
    for each in known.values():
        if each.default is each.empty and each.name not in parameters:
            raise InputError(f"{field}.{each.name}: is missing; {name!r} needs it")


def fingerprint(group: str, name: str) -> str:
    """A digest of a plugin's version and of the sources around it: what is computed from a plugin
    and kept is kept under it. Loads nothing."""
    entry = registered(group)[name]
    digest = hashlib.sha256(str(origin(group, name)).encode())
    spec = find_spec(entry.module.partition(".")[0])
    assert spec is not None, entry
    folders = spec.submodule_search_locations
    files = [Path(spec.origin or "")] if not folders else sorted(Path(folders[0]).rglob("*.py"))
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def origin(group: str, name: str) -> str | None:
    """Package and version that a plugin came from; None for what is built in."""
    entry = registered(group).get(name)
    if entry is None:
        return None
    package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "no package"
    return f"{package} ({entry.value})"
