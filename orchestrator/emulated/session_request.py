# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The content of a session request: duration, end, and the metrics to read from the output."""

import json
import math
import re
import stat
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Literal

from pydantic import Field, field_validator, model_validator

from orchestrator.emulated.options import Downlink
from orchestrator.scenario.combinations import check as check_combinations
from orchestrator.scenario.schema import ALL_UAVS, Scenario, Section
from testbed.core.errors import InputError, RunError
from testbed.core.node import BS, NodeId, uavs
from testbed.core.words import not_one_of
from testbed.system.files import mode_of

SESSION_METRICS = ("session_s", "uplink_bps", "uplink_use", "downlink_bps", "downlink_use")
"""Metrics of every session: its duration, and for each direction the throughput of all links
together and its ratio to the capacity of the links."""
Several = Literal["mean", "sum", "min", "max"]
_MERGE: dict[str, Callable[[Sequence[float]], float]] = {
    "first": lambda found: found[0],
    "last": lambda found: found[-1],
    "mean": statistics.fmean,
    "sum": math.fsum,
    "min": min,
    "max": max,
}


def nodes_named(name: str, scenario: Scenario, source: str) -> list[NodeId]:
    """The nodes that a name denotes: one node, or all UAVs.

    Raises:
        InputError: No node has that name; the message begins with `source`.
    """
    if name == ALL_UAVS:
        return list(uavs(scenario.uavs.count))
    known = {str(node): node for node in (BS, *uavs(scenario.uavs.count))}
    if name not in known:
        raise InputError(f"{source}: {not_one_of(name, [*known, ALL_UAVS])}")
    return [known[name]]


class Read(Section):
    """A number to read from the output of programs, by a key in JSON or by a regular expression."""

    node: str = ALL_UAVS
    """Node whose programs write it: bs, uav1, …; uav* is every UAV."""
    file: str | None = None
    """File in the node's home. Default: the node's output."""
    key: str | None = Field(default=None, min_length=1)
    """Key in a JSON text: `end.streams.0.rtt`; a number is an index of a list, from 0."""
    pattern: str | None = None
    """A regular expression whose one group is the number."""
    match: Literal["first", "last"] | Several = "last"
    """Match of the pattern that is used in one node's text, or the way to combine all of them."""
    over: Several = "mean"
    """Function that combines the numbers of several nodes."""

    @field_validator("file")
    @classmethod
    def _stays_home(cls, file: str | None) -> str | None:
        if file is not None:
            path = PurePosixPath(file)
            if path.is_absolute() or ".." in path.parts or not path.name:
                raise ValueError("must be a path within the node's home")
        return file

    @field_validator("pattern")
    @classmethod
    def _has_a_group(cls, pattern: str | None) -> str | None:
        if pattern is None:
            return None
        try:
            groups = re.compile(pattern).groups
        except re.error as error:
            raise ValueError(f"is not a regular expression: {error}") from None
        if groups != 1:
            raise ValueError(f"must have one group, the number; has {groups}")
        return pattern

    @model_validator(mode="after")
    def _one_kind(self) -> "Read":
        if (self.key is None) == (self.pattern is None):
            raise ValueError("needs exactly one of key, pattern")
        if self.key is not None and "match" in self.model_fields_set:
            raise ValueError("match goes with pattern")
        return self

    def nodes(self, scenario: Scenario, source: str) -> list[NodeId]:
        """The nodes whose numbers are read.

        Raises:
            InputError: There is no such node; the message begins with `source`.
        """
        return nodes_named(self.node, scenario, f"{source}.node")

    def paths(self, scenario: Scenario) -> list[str]:
        """Paths of the files to read, within a session's folder."""
        return [self.path(node) for node in self.nodes(scenario, "reads")]

    def path(self, node: NodeId) -> str:
        """Path of the file of a node, within a session's folder."""
        return f"logs/{node}.log" if self.file is None else f"nodes/{node}/{self.file}"

    def value(self, folder: Path, scenario: Scenario, source: str) -> float:
        """The number, read from the folder of a session.

        Raises:
            RunError: The number is missing; the message begins with `source`, and names the file.
        """
        found = []
        for node in self.nodes(scenario, source):
            path = folder / self.path(node)
            if not path.is_file():
                raise RunError(f"{source}: {node} has not written {self.file}")
            place = f"{source}: {self.path(node)}"
            text = path.read_text(encoding="utf-8", errors="replace")
            found.append(self._keyed(text, place) if self.key else self._matched(text, place))
        return _MERGE[self.over](found)

    def _keyed(self, text: str, place: str) -> float:
        assert self.key is not None
        try:
            value = json.loads(text)
        except ValueError as error:
            raise RunError(f"{place}: is not JSON ({error})") from None
        for part in self.key.split("."):
            try:
                value = value[int(part)] if isinstance(value, list) else value[part]
            except (KeyError, IndexError, TypeError, ValueError):
                raise RunError(f"{place}: has no key {self.key!r}: {part!r} is missing") from None
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise RunError(f"{place}: {self.key} must be a number, not {str(value)[:80]!r}")
        return _finite(float(value), f"{place}: {self.key}")

    def _matched(self, text: str, place: str) -> float:
        assert self.pattern is not None
        found = re.findall(self.pattern, text, re.MULTILINE)
        if not found:
            raise RunError(f"{place}: nothing in it matches {self.pattern!r}")
        numbers = []
        for word in found:
            try:
                numbers.append(_finite(float(word), place))
            except ValueError:
                raise RunError(f"{place}: {word[:80]!r} is not a number") from None
        return _MERGE[self.match](numbers)


def _finite(value: float, place: str) -> float:
    if not math.isfinite(value):
        raise RunError(f"{place}: {value} is not finite")
    return value


class SessionRequest(Section):
    """Settings of a session, and the numbers that are read from its output."""

    seconds: float | None = Field(default=None, gt=0)
    """Largest duration in emulated seconds."""
    until: list[str] = Field(default=[])
    """Nodes whose commands end the session and must succeed; none: all nodes with a command."""
    downlink: Downlink | None = None
    """Whether each downlink has a share, or all share the airtime of the cell; see `downlink_of`.
    """
    reads: dict[str, Read] = Field(default={})
    """Numbers that programs write, by name."""


def check_scenario(scenario: Scenario) -> None:
    """Refuse keys that only rounds support, independent of this machine.

    Raises:
        InputError: A key does not fit; the message names it.
    """
    check_combinations(scenario, "up")


def downlink_of(scenario: Scenario, asked: Downlink | None) -> Downlink:
    """Division of the downlinks of a session.

    Default: active links share a Wi-Fi cell, or an LTE cell whose scheduler is `equal`; otherwise
    each downlink has a separate share.

    Raises:
        InputError: The radio leaves no shares.
    """
    divides = scenario.radio.dividing_key is not None
    if asked == "dedicated":
        check_combinations(scenario, "--downlink")
    return asked or ("shared" if divides else "dedicated")


def check(scenario: Scenario, request: SessionRequest) -> None:
    """Refuse a session that no machine could play.

    Raises:
        InputError: A key does not fit; the message names it.
    """
    check_combinations(scenario, "run", "up")
    downlink_of(scenario, request.downlink)
    nodes = (BS, *uavs(scenario.uavs.count))
    busy = [node for node in nodes if scenario.programs_of(node).command is not None]
    if request.seconds is None and not busy:
        raise InputError("seconds: must be given where no node has a command")
    for name in request.until:
        for node in nodes_named(name, scenario, "until"):
            if node not in busy:
                raise InputError(f"until: {node} has no command that could end")
    for name, read in request.reads.items():
        read.nodes(scenario, f"reads.{name}")


def named_programs(scenario: Scenario) -> list[str]:
    """Paths of the files that commands name, e.g. scripts and inputs, as they are written."""
    found = set()
    for programs in scenario.nodes.values():
        texts = programs.command or []
        for text in [texts] if isinstance(texts, str) else texts:
            words = [text, *re.findall(r"[^\s'\"`;|&<>()=$]+", text)]
            found |= {word for word in words if stat.S_ISREG(mode_of(word))}
    return sorted(found)
