# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Registries of the names that a scenario may use: built-in ones, and those that other packages
register as entry points.

Each group of names has one `Registry`. A package's object is loaded when a scenario names it, never
before, so that a broken one has no effect on other scenarios. A package cannot replace what is
built in.
"""

import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from sysconfig import get_path
from traceback import walk_tb
from typing import Any, TypeVar

from testbed.core.errors import InputError, RunError
from testbed.core.words import not_one_of

T = TypeVar("T")

MOVED = {
    "orchestrator.plan": "Allocation",
    "orchestrator.predict": "Situation",
    "orchestrator.scenario": "Scenario",
    "testbed.errors": "InputError, RunError",
    "testbed.paradigm": "Paradigm",
    "testbed.timeline": "Round, Timeline",
}
"""The present names in `orchestrator`, by the module from which plug-ins imported them earlier."""
OURS = ("orchestrator", "testbed", "workloads", "ns3_scenarios")
GROUPS: list["Registry"] = []
"""All groups of names."""


@cache
def installed() -> dict[str, dict[str, EntryPoint]]:
    """All plugins by group and name. Finding them reads a file of every installed package."""
    found = entry_points()
    return {
        each.group: {entry.name: entry for entry in found.select(group=each.group)}
        for each in GROUPS
    }


def reason(error: BaseException) -> str:
    """An exception in one line, with the file and line of the plug-in where it was raised."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}{_place(error)}"


@contextmanager
def failures(where: str, kind: type[Exception] = RunError) -> Iterator[None]:
    """Turn any exception that a plug-in raises within the context into an error of one line.

    Args:
        where: The key that names the plug-in, its name, and the round; it begins the line.
        kind: The exception that is raised instead.
    """
    try:
        yield
    except (Exception, SystemExit) as error:  # a plug-in does not decide how a run ends
        raise kind(f"{where}: {reason(error)}") from error


def _place(error: BaseException) -> str:
    """File and line of the innermost call in a plug-in; empty if none was called."""
    calls = [
        (frame.f_code.co_filename, line)
        for frame, line in walk_tb(error.__traceback__)
        if _is_plugin(frame.f_globals.get("__name__", ""), frame.f_code.co_filename)
    ]
    return f" ({calls[-1][0]}, line {calls[-1][1]})" if calls else ""


def _is_plugin(module: str, file: str) -> bool:
    """Whether a module is of a package with plug-ins, or neither ours nor of a library."""
    package = module.partition(".")[0]
    if package in {
        e.module.partition(".")[0] for group in installed().values() for e in group.values()
    }:
        return True
    known = [Path(get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    known += [Path(__file__).parents[2] / name for name in OURS]
    is_library = any(Path(file).is_relative_to(folder) for folder in known)
    return not (is_library or package in OURS or file.startswith("<frozen"))


class Registry:
    """The names of one group, and the objects behind them.

    Args:
        group: The group of entry points.
        key: The scenario's key that names one of the group.
        parameters: The scenario's key that contains its parameters; `{}` in it represents the name.
        given: Number of positional arguments that the testbed gives to a function of the group; the
            parameters follow by keyword.
    """

    def __init__(self, group: str, key: str, parameters: str = "", given: int = 0) -> None:
        self.group, self.key = group, key
        self.built_in: dict[str, Any] = {}
        self._parameters, self._given = parameters, given
        self._signatures: dict[str, tuple[Any, list[inspect.Parameter]]] = {}
        """By name: the object that was checked last, and its parameters."""
        GROUPS.append(self)

    def add(self, built_in: Mapping[str, Any]) -> None:
        """Register built-in objects by name; a text `module:name` is imported when it is used."""
        self.built_in.update(built_in)

    @property
    def plugins(self) -> dict[str, EntryPoint]:
        """Entry points that packages register, by name; nothing is loaded."""
        return installed()[self.group]

    def names(self) -> list[str]:
        """All known names, built-in ones first."""
        return list(dict.fromkeys([*self.built_in, *self.plugins]))

    def find(self, name: str, key: str = "") -> Any:
        """The object with that name.

        Args:
            name: Name, as in the scenario.
            key: Key to name in a refusal; default: the group's own key.

        Raises:
            InputError: Nothing has that name, or it cannot be loaded.
        """
        if name in self.built_in:
            found = self.built_in[name]
            return resolve_name(found) if isinstance(found, str) else found
        if name not in self.plugins:
            raise InputError(f"{key or self.key}: {not_one_of(name, self.names())}")
        return self.load(name)

    def load(self, name: str) -> Any:
        """The object that a package registers under that name.

        Raises:
            InputError: It cannot be loaded; the message gives the reason.
        """
        try:
            return self.plugins[name].load()
        except ImportError as error:
            raise self.unfit(name, f"cannot be loaded: {_missing(error)}") from error
        except (Exception, SystemExit) as error:
            raise self.unfit(name, f"cannot be loaded: {reason(error)}") from error

    def instance(self, name: str, kind: type[T]) -> T:
        """The object of that name, in a group of objects that have a `name` of their own.

        Raises:
            InputError: See `find`; or the object is not of that kind and name.
        """
        found = self.find(name)
        if not isinstance(found, kind) or getattr(found, "name", name) != name:
            raise self.unfit(name, f"is not a {kind.__name__} of that name: {found!r}")
        return found

    def function(self, name: str, key: str = "") -> Callable[..., Any]:
        """The function of that name.

        Raises:
            InputError: See `find`; or the object is not a function.
        """
        found = self.find(name, key)
        if not callable(found):
            raise self.unfit(name, f"is no function: {found!r}")
        return found  # type: ignore[no-any-return]

    def check(self, name: str, parameters: Mapping[str, Any]) -> None:
        """Refuse an unknown name, parameters that it does not take, or the lack of some it needs.

        Raises:
            InputError: A parameter is not valid; the message names it.
        """
        if name in self.built_in and not parameters:
            return  # Nothing is imported for it before it is used.
        self._check_signature(name, parameters)

    def _check_signature(self, name: str, parameters: Mapping[str, Any]) -> None:
        found = self.find(name) if name in self.built_in else self.function(name)
        if name not in self._signatures or self._signatures[name][0] is not found:
            signature = inspect.signature(found).parameters.values() if callable(found) else ()
            self._signatures[name] = found, list(signature)
        taken = self._signatures[name][1][self._given :]
        known = {each.name: each for each in taken if each.kind is not each.VAR_KEYWORD}
        where = self._parameters.format(name)
        if parameters and not taken:
            raise InputError(f"{where}: {name!r} has no parameters")
        for given in parameters:
            if given not in known and len(known) == len(taken):
                has = f"it has {', '.join(known)}"
                raise InputError(f"{where}.{given}: {name!r} has no such parameter; {has}")
        for each in known.values():
            if each.default is each.empty and each.name not in parameters:
                raise InputError(f"{where}.{each.name}: is missing; {name!r} needs it")

    def make(self, name: str, parameters: Mapping[str, Any], *given: Any) -> Any:
        """The result of calling the registered function of that name with the parameters.

        Args:
            name: Name, as in the scenario.
            parameters: Parameters of the function.
            given: The testbed's own arguments.

        Raises:
            InputError: See `check`; or the function refuses these values, or fails.
        """
        self._check_signature(name, parameters)
        function = self.function(name)
        try:
            return function(*given, **parameters)
        except InputError:
            raise
        except ValueError as error:
            raise self.refused(name, error) from error
        except (Exception, SystemExit) as error:
            raise self.unfit(name, f"fails: {reason(error)}") from error

    def refused(self, name: str, error: ValueError) -> InputError:
        """The refusal of parameters that a function does not accept."""
        return InputError(f"{self._parameters.format(name)}: {' '.join(str(error).split())}")

    def unfit(self, name: str, why: str) -> InputError:
        """The refusal of a plugin: one line with the scenario's key, its name, and where it is."""
        if name in self.built_in:
            return InputError(f"{self.key}: {name!r} {why}")
        return InputError(f"{self.key}: plugin {name!r} ({self.plugins[name].value}) {why}")

    def origin(self, name: str) -> str | None:
        """Package and version of a plug-in; None for a built-in name."""
        entry = self.plugins.get(name)
        if entry is None or name in self.built_in:
            return None
        package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "no package"
        return f"{package} ({entry.value})"

    def fingerprint(self, name: str) -> str:
        """A digest of a plugin's version and of all files of its package, without loading it."""
        entry = self.plugins[name]
        digest = hashlib.sha256(str(self.origin(name)).encode())
        spec = find_spec(entry.module.partition(".")[0])
        assert spec is not None, entry
        folders = spec.submodule_search_locations
        for place in folders or [spec.origin or ""]:
            digest.update(_package_digest(Path(place)).encode())
        return digest.hexdigest()[:16]


def _package_digest(path: Path) -> str:
    """SHA-256 of an installed file, or of the names and contents of all files of a folder, as
    hexadecimal digits; compiled files of Python are not included."""
    if not path.is_dir():
        with path.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            digest.update(f"{file.relative_to(path)}\0{_package_digest(file)}\0".encode())
    return digest.hexdigest()


def _missing(error: ImportError) -> str:
    """The missing module or name; for a name that the testbed once had, also its replacement."""
    module = error.name or ""
    if module in MOVED:
        return f"what it imports from {module} has moved: from orchestrator import {MOVED[module]}"
    if isinstance(error, ModuleNotFoundError) and module.partition(".")[0] in OURS:
        return f"there is no {module}; what plugins may need, orchestrator itself offers"
    return reason(error)


PARADIGMS = Registry("testbed.paradigms", "paradigm")
ORDERS = Registry("testbed.orders", "order", "order_parameters", given=1)
POLICIES = Registry("testbed.policies", "allocation.policy", "allocation.parameters", given=1)
MOBILITY = Registry("testbed.mobility", "mobility.model", "mobility.parameters", given=1)
RADIOS = Registry("testbed.radios", "radio.access", "radio.access_parameters", given=2)
CHANNELS = Registry("testbed.channels", "radio.channel", "radio.parameters", given=1)
METRICS = Registry("testbed.metrics", "metric")
ANALYTICAL_MODELS = Registry(
    "testbed.analytical_models", "analytical_models", "analytical_models.{}", given=4
)
MODELS = Registry("testbed.models", "workload.model", "workload.parameters", given=1)
AGGREGATORS = Registry(
    "testbed.aggregators", "workload.aggregation", "workload.aggregation_parameters"
)
LOCAL_STEPS = Registry(
    "testbed.local_steps", "workload.local_step", "workload.local_step_parameters"
)
CODECS = Registry("testbed.codecs", "workload.wire_dtype", "workload.wire_parameters")
PARTITIONS = Registry(
    "testbed.partitions", "workload.data.partition", "workload.data.partition_parameters", given=3
)
PARTICIPATION = Registry(
    "testbed.participation", "participation.rule", "participation.parameters", given=1
)
TRANSPORTS = Registry("testbed.transports", "emulation.transport")
