# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Numbers that are read from what a session's programs have left."""

from pathlib import Path
from typing import Any

import pytest
from small_scenario import TREE

from orchestrator.emulated.session_request import (
    Read,
    SessionRequest,
    check,
    downlink_of,
    named_programs,
)
from orchestrator.scenario.loading import validate
from testbed.core.errors import InputError, RunError

SCENARIO = validate(TREE, "small")


@pytest.fixture
def left(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    for k in (1, 2, 3):
        (tmp_path / f"logs/uav{k}.log").write_text(f"at {k}.5 s\nat {k}e1 s\nat nothing\n")
        (home := tmp_path / f"nodes/uav{k}").mkdir(parents=True)
        (home / "r.json").write_text(f'{{"a": [{{"b": {k}}}], "t": true, "n": NaN}}')
    return tmp_path


@pytest.mark.parametrize(
    ("read", "value"),
    [
        ({"key": "a.0.b", "file": "r.json"}, 2.0),
        ({"key": "a.0.b", "file": "r.json", "over": "sum"}, 6.0),
        ({"key": "a.0.b", "file": "r.json", "over": "min", "node": "uav2"}, 2.0),
        ({"pattern": r"^at ([\d.e]+) s", "over": "max"}, 30.0),
        ({"pattern": r"^at ([\d.e]+) s", "match": "first", "over": "min"}, 1.5),
        ({"pattern": r"^at ([\d.e]+) s", "match": "sum", "node": "uav1"}, 11.5),
    ],
)
def test_a_number_is_found(left: Path, read: dict[str, Any], value: float) -> None:
    assert Read.model_validate(read).value(left, SCENARIO, "reads.x") == value


@pytest.mark.parametrize(
    ("read", "says"),
    [
        ({"key": "a", "file": "s.json"}, "reads.x: uav1 has not written s.json"),
        ({"key": "a.1.b", "file": "r.json"}, "nodes/uav1/r.json: has no key 'a.1.b': '1' is"),
        ({"key": "t", "file": "r.json"}, "r.json: t must be a number, not 'True'"),
        ({"key": "n", "file": "r.json"}, "r.json: n: nan is not finite"),
        ({"key": "a"}, "reads.x: logs/uav1.log: is not JSON"),
        ({"pattern": "(never)"}, "logs/uav1.log: nothing in it matches '(never)'"),
        ({"pattern": "(at)"}, "logs/uav1.log: 'at' is not a number"),
    ],
)
def test_one_that_is_not_there_fails_the_session_by_name(
    left: Path, read: dict[str, Any], says: str
) -> None:
    with pytest.raises(RunError) as failed:
        Read.model_validate(read).value(left, SCENARIO, "reads.x")
    assert says in str(failed.value)


def test_a_session_that_nothing_ends_is_refused() -> None:
    with pytest.raises(InputError, match=r"^seconds: must be given where no node has a command"):
        check(SCENARIO, SessionRequest())
    check(SCENARIO, SessionRequest(seconds=1))


def test_files_that_commands_name_are_found(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.py", "b.py", "c.py"):
        (tmp_path / name).touch()
    nodes = {"bs": {"command": "exec python3 a.py 2>log;./x"}, "uav1": {"command": ["sh", "b.py"]}}
    assert named_programs(validate(TREE | {"nodes": nodes}, "s")) == ["a.py", "b.py"]
    script = "python3 c.py " + "x" * 5000
    nodes = {"uav*": {"command": ["sh", "-c", script]}}
    assert named_programs(validate(TREE | {"nodes": nodes}, "s")) == ["c.py"]


def test_downlinks_of_an_lte_cell_are_shared_by_its_scheduler() -> None:
    radio = {"access": "lte", "uplink_bandwidth_hz": 5e6, "downlink_bandwidth_hz": 5e6}
    cell = validate(TREE | {"radio": radio}, "test")
    shares = validate(TREE | {"radio": radio | {"lte": {"scheduler": "shares"}}}, "test")
    assert [downlink_of(each, None) for each in (cell, shares, SCENARIO)] == [
        *("shared", "dedicated", "dedicated")
    ]
    assert downlink_of(cell, "shared") == downlink_of(shares, "shared") == "shared"
    assert downlink_of(shares, "dedicated") == "dedicated"
    refused = "`downlink`: must be 'shared' where the UAVs that send divide the band"
    with pytest.raises(InputError, match=refused):
        check(cell, SessionRequest(seconds=1, downlink="dedicated"))
    check(cell, SessionRequest(seconds=1))


def test_downlinks_of_an_access_point_share_its_channel() -> None:
    wifi = validate(TREE | {"radio": {"access": "wifi"}}, "test")
    assert downlink_of(wifi, None) == downlink_of(wifi, "shared") == "shared"
    with pytest.raises(InputError, match="must be 'shared' where the UAVs"):
        downlink_of(wifi, "dedicated")
