# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""YAML means what its author sees: numbers of YAML 1.2, no octal ones, no key twice, no bombs."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.analysis.axes import labels
from orchestrator.campaigning.spec import cells, load_campaign
from orchestrator.scenario.loading import load
from orchestrator.scenario.yaml_text import dump, parse
from testbed.core.errors import InputError
from testbed.core.node import NodeId

QUICK = "name: s\nuavs: {tx_power_w: [1, 1]}\nworkload: {compute: none}\n"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("1e6", 1e6), ("2.5e6", 2.5e6), ("1E+3", 1000.0), ("1.e5", 1e5), (".5", 0.5), ("0", 0)),
        *(("0o17", 15), ("0x1F", 31), ("+5", 5), ("-0.5", -0.5), ("0e3", 0.0), ("5.", 5.0)),
        *(("12:30", "12:30"), ("1:30:00", "1:30:00"), ("08:30", "08:30"), ("1_000", "1_000")),
        *(("yes", "yes"), ("off", "off"), ("0b101", "0b101"), ("2026-05-01", "2026-05-01")),
        *(("true", True), ("False", False), ("~", None), ("null", None), ("", None), ("=", "=")),
        *((".inf", float("inf")), ("-.INF", -float("inf")), ("'020'", "020"), ("1.2.3", "1.2.3")),
    ],
)
def test_plain_values_are_those_of_yaml_1_2(text: str, value: object) -> None:
    found = parse(f"a: {text}\n", "s")["a"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("020", "020 has a leading zero: write 20 for the number, or '020' for the text"),
        ("-08", "-08 has a leading zero: write -8 for"),
        ("007.50", "007.50 has a leading zero: write 7.50 for"),
        ("00", "00 has a leading zero: write 0 for"),
        ("01e3", "01e3 has a leading zero: write 1e3 for"),
        ("!!int 010", "'010' is not an integer"),
        ("!!bool yes", "'yes' is neither true nor false"),
        ("9" * 5000, "an integer has 5,000 characters; at most 300 are allowed"),
        ("0x" + "f" * 100_000, "an integer has 100,002 characters; at most 300 are allowed"),
        ("0." + "1" * 5000, "a number has 5,002 characters; at most 300 are allowed"),
        ("{b: 1, b: 2}", "the key 'b' occurs twice, both times in this line"),
        ("{16: x, 0x10: y}", "the key '0x10' occurs twice, both times in this line"),
        ("{1: x, 1.0: y}", "the key '1.0' occurs twice, both times in this line"),
        ("{b: 1, 'b': 2}", "the key 'b' occurs twice, both times in this line"),
    ],
)
def test_what_may_mean_something_else_is_refused_with_its_line(text: str, says: str) -> None:
    with pytest.raises(InputError) as refused:
        parse(f"name: s\na: {text}\n", "s.yaml")
    assert str(refused.value).startswith(f"s.yaml, line 2: {says}")


def test_a_key_in_two_lines_names_both() -> None:
    with pytest.raises(InputError, match=r"^s, line 3: the key 'a' occurs twice, first in line 1$"):
        parse("a: 1\nb: 2\na: 3\n", "s")


def _bomb(link: str) -> str:
    lines = ["x0: &x0 {a: 1, b: 2, c: 3, d: 4, e: 5, f: 6, g: 7, h: 8, i: 9, j: 10}"]
    for n in range(1, 10):
        lines.append(f"x{n}: &x{n} " + link % ", ".join([f"*x{n - 1}"] * 10))
    return "\n".join(lines)


@pytest.mark.parametrize("link", ["{<<: [%s]}", "[%s]", "{<<: [%s], a: 1}", "[[%s]]"])
def test_what_grows_by_aliases_is_refused_before_it_is_expanded(link: str) -> None:
    with pytest.raises(InputError, match="expands to more than 200000 values"):
        parse(_bomb(link), "s")


def test_a_value_that_contains_itself_is_refused() -> None:
    with pytest.raises(InputError, match="expands to more than"):
        parse("&a [*a]", "s")


@pytest.mark.parametrize(
    ("key", "text", "says"),
    [
        ("rounds", "1_000", "rounds: must be a number, not the text '1_000'"),
        ("rounds", "'3'", "rounds: must be a number, not the text '3'"),
        ("rounds", "1:30", "rounds: must be a whole number"),
        ("workload.split", "[1, '2']", "workload.split: must be a number, not the text '2'"),
        ("uavs.rings_m", "[['1', 20]]", "uavs.rings_m: must be a number, not the text '1'"),
        ("links.loss", "'0.1'", "links.loss: must be a number, not the text '0.1'"),
        ("emulation.nagle", "yes", "emulation.nagle: must be true or false, not 'yes'"),
        ("emulation.calibrate", "off", "emulation.calibrate: must be true or false, not 'off'"),
        ("seed", "9" * 250, "seed: must be below 2147483648"),
        ("slot_s", "1e400", "slot_s: must be a finite number"),
        ("nodes.uav1.env.X", "~", "nodes.uav1.env.X: must be a text; put it between quotes"),
    ],
)
def test_texts_are_neither_numbers_nor_truth_values(key: str, text: str, says: str) -> None:
    with pytest.raises(InputError) as refused:
        load(Path("paper"), [f"{key}={text}"])
    assert says in str(refused.value)


WRITTEN = ["0755", "1.10", "12:30", "00123", "8_080", "0x1F", "0.00001", "1e6", "yes", "true"]
WRITTEN += ["2026-05-01", "0o17", "+5", ".5", "1:2:3", "-08", "1" * 400]


@pytest.mark.parametrize("text", WRITTEN)
def test_programs_are_given_what_is_written(text: str, tmp_path: Path) -> None:
    tree = f"nodes:\n  uav1:\n    command: [echo, {text}]\n    env: {{X: {text}}}\n"
    (tmp_path / "s.yaml").write_text(QUICK + tree)
    set_too = [f"nodes.uav2.env.X={text}", f"nodes.uav*.command=[echo, {text}]"]
    scenario = load(tmp_path / "s.yaml", set_too)
    for client in (1, 2):
        programs = scenario.programs_of(NodeId(client))
        assert programs.env == {"X": text}
        assert programs.command == ["echo", text]
    again = tmp_path / "again.yaml"
    again.write_text(dump(scenario.model_dump(mode="json")))
    assert load(again) == scenario


def test_what_programs_share_with_numbers_stays_a_number_there() -> None:
    text = "n: &n 1e3\nnodes: {uav1: &p {env: {X: *n}}, uav2: {<<: *p, cpus: 1.0}}"
    made = parse(text, "s")
    assert made["n"] == 1000.0
    assert made["nodes"]["uav1"]["env"] == made["nodes"]["uav2"]["env"] == {"X": "1e3"}
    assert made["nodes"]["uav2"]["cpus"] == 1.0


def _campaign(folder: Path, axes: str) -> Path:
    (folder / "base.yaml").write_text(QUICK)
    path = folder / "c.yaml"
    path.write_text(f"name: c\nscenario: base.yaml\nstudies: {{one: {{axes: {axes}}}}}\n")
    return path


def test_the_values_of_an_axis_are_numbers(tmp_path: Path) -> None:
    axes = "{w: {key: radio.uplink_bandwidth_hz, values: [1e6, 2.5e6, 1.0e+7, 500000]}}"
    found = cells(load_campaign(_campaign(tmp_path, axes)))
    assert [cell.axes["w"] for cell in found] == [1e6, 2.5e6, 1e7, 5e5]


@pytest.mark.parametrize(
    "axes",
    [
        "{x: {key: nodes.uav1.env.X, values: [0755, 1.10]}}",
        "{nodes.uav1.env.X: [0755, 1.10]}",
        "{x: {points: {a: {nodes.uav1.env.X: 0755}, b: {nodes.uav1.env: {X: 1.10}}}}}",
    ],
)
def test_an_axis_of_environment_variables_has_texts(axes: str, tmp_path: Path) -> None:
    found = cells(load_campaign(_campaign(tmp_path, axes)))
    given = [cell.point.scenario.programs_of(NodeId(1)).env["X"] for cell in found]
    assert given == ["0755", "1.10"]


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([1, 2.5, 1e6], [1, 2.5, 1e6]),
        (["auto", 2.0], ["auto", "2.0"]),
        ([True, 1], ["true", "1"]),
        ([[1, 2], "equal"], ["[1, 2]", "equal"]),
        ([[1, 2], [2, 1]], ["[1, 2]", "[2, 1]"]),
        ([True, False], [True, False]),
    ],
)
def test_the_column_of_an_axis_has_one_type(values: list[Any], shown: list[Any]) -> None:
    assert labels(values) == shown
    assert list(map(type, labels(values))) == list(map(type, shown))


@pytest.mark.parametrize("read", [lambda text: parse(text, "s"), yaml.safe_load])
def test_a_written_file_means_the_same_to_every_reader(read: Any) -> None:
    tree = [*WRITTEN, "1e6", "~", "null", "on", 1e20, 1e-5, -0.5, 17, True, None, "", "<<", "="]
    assert read(dump(tree)) == tree
