# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""ns-2 movement files as their generators write them: numbers of nodes, spellings, other lines."""

from pathlib import Path

import numpy as np
import pytest

from orchestrator.exchange import ns2
from orchestrator.exchange.files import Flight
from testbed.core.errors import InputError


def read(tmp_path: Path, text: str) -> list[Flight]:
    path = tmp_path / "movement.tcl"
    path.write_text(text)
    return ns2.read(path)


def one(tmp_path: Path, text: str) -> Flight:
    (flight,) = read(tmp_path, text)
    return flight


PLAIN = """$node_(0) set X_ 10
$node_(0) set Y_ 20
$ns_ at 1.0 "$node_(0) setdest 110.0 20.0 10.0"
"""


def test_a_movement_begins_at_its_time(tmp_path: Path) -> None:
    flight = one(tmp_path, PLAIN)
    np.testing.assert_array_equal(
        flight.at(np.array([0, 1, 6, 11, 20]))[:, 0], [10, 10, 60, *[110] * 2]
    )


@pytest.mark.parametrize(
    "text",
    [
        PLAIN.replace("\n", ";\n"),
        PLAIN.replace("\n", " ; # SUMO-ID: veh0\n"),
        PLAIN.replace("\n", " # setdest 5 5 5\n"),
        PLAIN.replace("set Y_ 20\n", "set Y_ 20; "),
        PLAIN.replace("\n", "\r\n"),
        PLAIN.replace("$ns_", "$ns").replace("$node_", "$node"),
        PLAIN.replace('"$node_', '"node_'),
        PLAIN.replace(" ", "\t"),
        PLAIN.replace('10.0"', '10.0  "'),
        "".join(reversed(PLAIN.splitlines(keepends=True))),
        PLAIN + "$node_(0) set X_ 10.0\n",
    ],
)
def test_spellings_of_generators_are_the_same_movement(text: str, tmp_path: Path) -> None:
    flight, plain = one(tmp_path, text), one(tmp_path, PLAIN)
    np.testing.assert_array_equal(flight.times_s, plain.times_s)
    np.testing.assert_array_equal(flight.position_m, plain.position_m)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "# $node_(7) set X_ 5",
        "set god_ [God instance]",
        "$god_ set-dist 0 1 2",
        '$ns_ at 1.5 "$god_ set-dist 0 1 2"',
        "set opt(nn) 5",
        "set val(stop) 100.0",
        "set opt(min-x) 1.5",
        "$node_(0) color cyan",
        "$node_(0) random-motion 0",
        '$ns at 0.0 "$node_(0) label UAV"',
        '$ns_ at 150.0 "$node_(0) reset";',
        "$ns_ initial_node_pos $node_(0) 20",
    ],
)
def test_what_does_not_move_a_node_is_passed_over(line: str, tmp_path: Path) -> None:
    flight = one(tmp_path, f"{PLAIN}{line}\n")
    np.testing.assert_array_equal(flight.position_m, one(tmp_path, PLAIN).position_m)


@pytest.mark.parametrize("first", [0, 1])
def test_nodes_count_from_0_or_1(first: int, tmp_path: Path) -> None:
    lines = [f"$node_({first + n}) set X_ {n}" for n in (2, 0, 1)]
    flights = read(tmp_path, "\n".join(lines))
    assert [flight.position_m[0, 0] for flight in flights] == [0, 1, 2]


@pytest.mark.parametrize(
    ("nodes", "missing"), [((2,), 1), ((2, 3), 1), ((0, 2), 1), ((1, 3), 2), ((0, 1, 3), 2)]
)
def test_a_missing_node_is_refused(nodes: tuple[int, ...], missing: int, tmp_path: Path) -> None:
    says = rf"\$node_\({missing}\) is missing; nodes count from 0 or 1"
    with pytest.raises(InputError, match=says):
        read(tmp_path, "\n".join(f"$node_({n}) set X_ 1" for n in nodes))


def test_a_node_must_begin_somewhere(tmp_path: Path) -> None:
    move = '$ns_ at 1.0 "$node_(0) setdest 5 5 1"\n'
    with pytest.raises(InputError, match=r"movement\.tcl: \$node_\(0\) has no initial position"):
        read(tmp_path, move)
    jump = '$ns_ at 1.0 "$node_(0) set X_ 7"\n'
    np.testing.assert_array_equal(one(tmp_path, jump + move).at(np.array([1.0]))[0], [7, 0, 0])


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("$node_(0) set X_ 11", r"line 4: the initial X_ of \$node_\(0\) changes"),
        ("$node_(0) set X_ 1e", "line 4: is not a command of an ns-2 movement file"),
        ("node_(0) set X_ 10", "line 4: is not a command"),
        ("$node_(0) on", "line 4: is not a command"),
        ("$node_(0) random-motion 1", "line 4: is not a command"),
        ('$ns_ at 1 "$node_(0) setdest 1 1 1 1"', "line 4: is not a command"),
        ('$ns_ at 1 "$node_(0) off"', "line 4: is not a command"),
        ('$ns_ at 1 "$g(0) start"; # SUMO-ID: 5', "line 4: is not a command"),
        ('$ns_ at [expr 1] "$node_(0) setdest 1 1 1"', "line 4: is not a command"),
        ('$ns_ at 1 "$node_(0) setdest 1 1 1"; $node_(0) jump', r"line 4: .*: '\$node_\(0\) jump'"),
        ("puts hello", "line 4: is not a command"),
        ("setdest 1 1 1", "line 4: is not a command"),
    ],
)
def test_other_lines_are_refused(line: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=says):
        read(tmp_path, f"{PLAIN}{line}\n")
