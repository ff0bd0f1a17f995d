# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Emulated runs with faults by the real clock: whoever is lost, the rest goes on.

At which moments, `test_exact_faults.py` says, in virtual time: here it would be luck. So slow that
nobody else is lost where others compute beside it.
"""

import json
import re
from pathlib import Path

import pandas as pd
import pytest
import yaml
from console import run_testbed, wait_until_gone
from killed_run import killed
from small_scenario import TREE

SMALL = TREE | {"rounds": 2, "emulation": {"calibrate": False, "dilation": 5}}
"""A round of 0.92 s: uploads from 0.04 s and 0.45 s on, gradients from 0.3 s and 0.7 s on."""


def scenario(folder: Path, events: list[dict], *, on_loss: str = "drop", **keys) -> Path:
    faults = {"on_loss": on_loss, "loss_timeout_s": 0.3, "events": events}
    path = folder / "faulty.yaml"
    path.write_text(yaml.safe_dump(SMALL | {"faults": faults} | keys))
    return path


HAPPENS: list[tuple[list[dict], list[int]]] = [
    ([{"kind": "link-outage", "nodes": ["uav2"], "at_s": 0.4, "duration_s": 0.5}], [2]),
    (
        [{"kind": "partition", "nodes": ["uav2", "uav3"], "at_s": 0.2, "duration_s": 0.5}],
        [2, 3],
    ),
    ([{"kind": "link-outage", "nodes": ["uav2"], "at_s": 0, "duration_s": 0.5}], [2]),
    ([{"kind": "corrupt-frame", "nodes": ["uav3"], "at_s": 0.3}], [3]),
    ([{"kind": "duplicate-frame", "nodes": ["uav3"], "at_s": 0.3}], [3]),
    ([{"kind": "slow-node", "nodes": ["uav1", "bs"], "factor": 3, "duration_s": 0.5}], []),
    ([{"kind": "uav-crash", "nodes": ["uav1"], "at_s": 0.4}], [1]),
]
"""Faults, and whom they lose; after each comes a round for who was lost to come back."""


def lost_in(rounds: list[dict]) -> list[list[tuple[int, str]]]:
    """Clients and causes, by round."""
    return [[(loss["client"], loss["cause"]) for loss in r.get("lost", [])] for r in rounds]


def test_rounds_go_on_whatever_happens(tmp_path: Path) -> None:
    """By the real clock: who is lost to what; `test_exact_faults` has the moments."""
    events = [
        {"round": 2 * at, **event} for at, (begin, _) in enumerate(HAPPENS) for event in begin
    ]
    path, result = scenario(tmp_path, events, rounds=2 * len(HAPPENS)), tmp_path / "r.json"
    run_testbed("run", path, "--json", result)
    run = json.loads(result.read_text())
    found, due = (lost_in(run[kind])[::2] for kind in ("measured", "predicted_wire"))
    assert found == due
    assert [[client for client, _ in lost] for lost in found] == [lost for _, lost in HAPPENS]
    for round_, (_, gone) in zip(run["measured"][::2], HAPPENS, strict=True):
        finished = {step["client"] for step in round_["steps"] if step["step"] == "CM"}
        assert finished == {1, 2, 3} - set(gone)
    for budget in run["error_budget"]:
        total = budget["predicted_s"] + sum(budget["parts"].values())
        assert total == pytest.approx(budget["measured_s"], abs=1e-12)
    wait_until_gone()


def test_a_run_that_cannot_go_on_ends_with_one_line_and_keeps_what_it_has(tmp_path: Path) -> None:
    crash = {"kind": "uav-crash", "nodes": ["uav2"], "round": 1, "at_s": 0.2}
    path = scenario(tmp_path, [crash], on_loss="wait", rounds=3)
    done = run_testbed("run", path, "--out", tmp_path / "run", check=False)
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if "round 1: " in line]
    assert "uav2, lost" in line
    assert "Traceback" not in done.stderr
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["status"] == "failed"
    assert "uav2, lost" in manifest["failure"]
    assert pd.read_parquet(tmp_path / "run" / "rounds.parquet")["round"].unique().tolist() == [0]
    wait_until_gone()


@pytest.mark.docker
def test_in_containers_a_crash_is_no_other(tmp_path: Path) -> None:
    crash = {"kind": "uav-crash", "nodes": ["uav1"], "at_s": 0.4}
    path, result = scenario(tmp_path, [crash]), tmp_path / "r.json"
    run_testbed("run", path, "--json", result, "--set", "emulation.runtime=docker")
    run = json.loads(result.read_text())
    assert lost_in(run["measured"]) == lost_in(run["predicted_wire"])
    assert [[client for client, _ in lost] for lost in lost_in(run["measured"])] == [[1], [1]]


def test_a_run_that_was_killed_goes_on_with_its_faults(tmp_path: Path) -> None:
    events = [
        {"kind": "uav-crash", "nodes": ["uav1"], "at_s": 0.4},
        {"kind": "link-outage", "nodes": ["uav2"], "at_s": 0.4, "duration_s": 0.8},
        {"kind": "corrupt-frame", "nodes": ["uav2"], "round": 3, "at_s": 0.2},
    ]
    path, out = scenario(tmp_path, events, rounds=5), tmp_path / "run"
    killed("run", path, out=out, rounds=1, after_s=0.2)
    run_testbed("run", path, "--out", out, "--resume", "--json", tmp_path / "r.json")
    run = json.loads((tmp_path / "r.json").read_text())
    assert lost_in(run["measured"]) == lost_in(run["predicted_wire"])
    lost = [[client for client, _ in lost] for lost in lost_in(run["measured"])]
    assert lost == [[1, 2], [1, 2], [1], [1, 2], [1]]
    table = pd.read_parquet(out / "lost.parquet").query("kind == 'measured'")
    of_round = table.groupby("round")["client"].apply(list).tolist()
    assert of_round == lost
    manifest = json.loads((out / "manifest.json").read_text())
    assert [fault["kind"] for fault in manifest["faults"]] == [event["kind"] for event in events]
    page = (out / "report.html").read_text()
    assert 'id="faults"' in page
    assert len(re.findall("<td>corrupt-frame</td>", page)) == 1
    wait_until_gone()
