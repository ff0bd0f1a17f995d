# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Reads ns-2 movement files of BonnMotion, SUMO and setdest, like ns-3's Ns2MobilityHelper.

Three commands are used: a node's initial position (`$node_(0) set X_ 1.0`), a movement from some
time on (`$ns_ at 2.0 "$node_(0) setdest x y speed"`), and a jump (`$ns_ at 2.0 "$node_(0) set X_
1.0"`), also as `$node(0)` and `$ns`. Comments, variables, commands to `$god_`, and commands that
only change a node's appearance are ignored.
"""

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from orchestrator.exchange.files import Flight, text_of
from testbed.core.errors import InputError

NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
NODE = r"node_?\((\d{1,6})\)"
LATER = r"\$ns_?\s+at\s+"
INITIAL = re.compile(rf"\${NODE}\s+set\s+([XYZ])_\s+({NUMBER})$")
SCHEDULED = re.compile(rf'{LATER}({NUMBER})\s+"\$?{NODE}\s+(.*?)\s*"$')
HEAD = re.compile(rf"setdest\s+({NUMBER})\s+({NUMBER})\s+({NUMBER})$")
PUT = re.compile(rf"set\s+([XYZ])_\s+({NUMBER})$")
LOOKS = r"(?:label|color|shape|add-mark|delete-mark|reset|random-motion\s+0)\b"
HARMLESS = re.compile(
    rf"$|\$god_\s|{LATER}\S+\s+\"\$god_\s|set\s+\w+(?:\([\w-]+\))?\s|"
    rf"\${NODE}\s+{LOOKS}|{LATER}\S+\s+\"\$?{NODE}\s+{LOOKS}|\$ns_?\s+initial_node_pos\s"
)
MOST_NODES = 10_000
MOST = 1e12
"""Limit of all numbers in a file, in m, s or m/s."""


@dataclass
class _Node:
    initial: dict[str, float] = field(default_factory=dict)
    commands: list[tuple[float, tuple[str, ...]]] = field(default_factory=list)


def read(path: Path) -> list[Flight]:
    """Read the flights of nodes 0, 1, … or 1, 2, …

    Raises:
        InputError: A line is not a movement command, or nodes or initial positions are missing.
    """
    nodes: dict[int, _Node] = {}
    for number, line in enumerate(text_of(path).splitlines(), 1):
        for command in line.partition("#")[0].split(";"):
            _follow(command.strip(), nodes, f"{path}, line {number}")
    if not nodes:
        raise InputError(f"{path}: moves no nodes; is it an ns-2 movement file?")
    if len(nodes) > MOST_NODES:
        raise InputError(f"{path}: has {len(nodes)} nodes; {MOST_NODES} may be imported")
    first = min(1, *nodes)
    if missing := [n for n in range(first, first + len(nodes)) if n not in nodes]:
        raise InputError(f"{path}: $node_({missing[0]}) is missing; nodes count from 0 or 1")
    for n, node in sorted(nodes.items()):
        if not node.initial and len(min(node.commands, key=lambda each: each[0])[1]) != 2:
            raise InputError(f"{path}: $node_({n}) has no initial position")
    return [replace(_flight(nodes[n]), name=str(n)) for n in sorted(nodes)]


def _follow(command: str, nodes: dict[int, _Node], where: str) -> None:
    if found := INITIAL.match(command):
        initial = nodes.setdefault(int(found[1]), _Node()).initial
        metres = _number(found[3], where)
        if initial.setdefault(found[2], metres) != metres:
            raise InputError(f"{where}: the initial {found[2]}_ of $node_({found[1]}) changes")
    elif (found := SCHEDULED.match(command)) and (
        to := HEAD.match(found[3]) or PUT.match(found[3])
    ):
        node = nodes.setdefault(int(found[2]), _Node())
        at_s, words = _number(found[1], where), to.groups()
        *_, last = (_number(word, where) for word in words if word not in "XYZ")
        if at_s < 0 or (len(words) == 3 and last < 0):
            raise InputError(f"{where}: time and speed must not be negative")
        node.commands.append((at_s, words))
    elif not HARMLESS.match(command):
        raise InputError(f"{where}: is not a command of an ns-2 movement file: {command[:60]!r}")


def _number(text: str, where: str) -> float:
    number = float(text)
    if abs(number) > MOST:
        raise InputError(f"{where}: numbers must be from -1e12 to 1e12, not {text[:40]}")
    return number


def _flight(node: _Node) -> Flight:
    """A node's waypoints, from its commands in order of time."""
    here, now_s = np.array([node.initial.get(axis, 0.0) for axis in "XYZ"]), 0.0
    goal, arrives_s, begins_s = here, 0.0, 0.0
    times, places = [0.0], [here]

    def note(at_s: float, place: np.ndarray) -> None:
        times.append(at_s)
        places.append(place)

    for at_s, words in sorted(node.commands, key=lambda command: command[0]):
        if arrives_s <= at_s:
            if arrives_s > now_s:
                note(arrives_s, goal)
            here = goal
        elif arrives_s > begins_s:
            here = here + (goal - here) * (at_s - begins_s) / (arrives_s - begins_s)
        note(at_s, here)
        now_s = begins_s = at_s
        if len(words) == 2:  # a jump
            here = here.copy()
            here["XYZ".index(words[0])] = float(words[1])
            note(at_s, here)
            goal, arrives_s = here, at_s
            continue
        x, y, speed = map(float, words)
        goal = np.array([x, y, here[2]])
        far_m = float(np.linalg.norm(goal - here))
        if speed == 0 or far_m == 0:
            goal, arrives_s = here, at_s
        else:
            arrives_s = at_s + far_m / speed
    if arrives_s > now_s:
        note(arrives_s, goal)
    return Flight(np.array(times), np.array(places))
