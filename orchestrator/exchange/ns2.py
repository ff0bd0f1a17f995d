# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Reads ns-2 movement files of BonnMotion and SUMO, like ns-3's Ns2MobilityHelper.

Three commands are used: a node's initial position (`$node_(0) set X_ 1.0`), a movement from some
time on (`$ns_ at 2.0 "$node_(0) setdest x y speed"`), and a jump (`$ns_ at 2.0 "$node_(0) set X_
1.0"`). Comments and commands to `$god_` are ignored.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from orchestrator.exchange.files import Flight, text_of
from testbed.core.errors import InputError

NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
NODE = r"\$node_\((\d{1,6})\)"
INITIAL = re.compile(rf"{NODE}\s+set\s+([XYZ])_\s+({NUMBER})$")
LATER = re.compile(rf'\$ns_\s+at\s+({NUMBER})\s+"\$?node_\((\d{{1,6}})\)\s+(.*?)\s*"$')
HEAD = re.compile(rf"setdest\s+({NUMBER})\s+({NUMBER})\s+({NUMBER})$")
PUT = re.compile(rf"set\s+([XYZ])_\s+({NUMBER})$")
PASSED_OVER = re.compile(r"#|\$god_|\$ns_\s+at\s+\S+\s+\"\$god_|set\s+\w+\s|$")
MOST_NODES = 10_000
MOST = 1e12
"""Limit of all numbers in a file, in m, s or m/s."""


@dataclass
class _Node:
    position: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    commands: list[tuple[float, tuple[str, ...]]] = field(default_factory=list)


def read(path: Path) -> list[Flight]:
    """Read the flights of nodes 0, 1, …

    Raises:
        InputError: A line is not a movement command, or nodes are missing.
    """
    nodes: dict[int, _Node] = {}
    for number, raw in enumerate(text_of(path).splitlines(), 1):
        line = raw.strip()
        where = f"{path}, line {number}"
        if found := INITIAL.match(line):
            node = nodes.setdefault(int(found[1]), _Node())
            node.position["XYZ".index(found[2])] = _number(found[3], where)
        elif (found := LATER.match(line)) and (
            command := HEAD.match(found[3]) or PUT.match(found[3])
        ):
            node = nodes.setdefault(int(found[2]), _Node())
            at_s, words = _number(found[1], where), command.groups()
            *_, last = (_number(word, where) for word in words if word not in "XYZ")
            if at_s < 0 or (len(words) == 3 and last < 0):
                raise InputError(f"{where}: time and speed must not be negative")
            node.commands.append((at_s, words))
        elif not PASSED_OVER.match(line):
            raise InputError(f"{where}: is not a command of an ns-2 movement file: {line[:60]!r}")
    if not nodes:
        raise InputError(f"{path}: moves no nodes; is it an ns-2 movement file?")
    if len(nodes) > MOST_NODES:
        raise InputError(f"{path}: has {len(nodes)} nodes; {MOST_NODES} may be imported")
    if missing := [n for n in range(len(nodes)) if n not in nodes]:
        raise InputError(f"{path}: $node_({missing[0]}) is missing; nodes count from 0")
    return [_flight(nodes[n]) for n in range(len(nodes))]


def _number(text: str, where: str) -> float:
    number = float(text)
    if abs(number) > MOST:
        raise InputError(f"{where}: numbers must be from -1e12 to 1e12, not {text[:40]}")
    return number


def _flight(node: _Node) -> Flight:
    """A node's waypoints, from its commands in order of time."""
    here, now_s = np.array(node.position), 0.0
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
