# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Emulated runs with faults: what happens is what the engine says, and the rest goes on."""

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest
import yaml
from console import run_testbed, wait_until_gone
from killed_run import killed
from small_scenario import TREE

import orchestrator as tb
from orchestrator.emulation.learning import learning_settings, place
from orchestrator.prediction.plan import fixed_allocation, round_sizes
from orchestrator.scenario.loading import load
from orchestrator.scenario.profiles import profile_of
from workloads.learning.real import RealClient, RealServer, Settings

SMALL = TREE | {"rounds": 2, "emulation": {"calibrate": False}}
"""A round of 0.92 s: uploads from 0.04 s and 0.45 s on, gradients from 0.3 s and 0.7 s on."""


def scenario(folder: Path, events: list[dict], *, on_loss: str = "drop", **keys) -> Path:
    faults = {"on_loss": on_loss, "loss_timeout_s": 0.3, "events": events}
    path = folder / "faulty.yaml"
    path.write_text(yaml.safe_dump(SMALL | {"faults": faults} | keys))
    return path


def steps_of(round_: dict) -> set[tuple]:
    """The steps that were done, but those that ended just before their client was lost."""
    lost_s = {loss["client"]: loss["lost_s"] for loss in round_.get("lost", [])}
    return {
        (step["client"], step["iteration"], step["step"])
        for step in round_["steps"]
        # A node that wakes up late may lose its client before it can say that a step is done.
        if step["end_s"] < lost_s.get(step["client"], math.inf) - 0.1
    }


def assert_as_predicted(run: dict) -> None:
    """The measured rounds lost whom the predicted ones lost, and lasted as long."""
    for predicted, measured in zip(run["predicted_wire"], run["measured"], strict=True):
        # As generous as test_emulate, for several rounds: the machine is shared.
        assert measured["latency_s"] == pytest.approx(predicted["latency_s"], rel=0.2)
        lost, due = measured.get("lost", []), predicted.get("lost", [])
        assert [loss["cause"] for loss in lost] == [loss["cause"] for loss in due]
        for loss, due_loss in zip(lost, due, strict=True):
            assert loss["client"] == due_loss["client"]
            # What was refused counts when it was; a silence has its moment.
            tolerance = {"abs": 0.1} if "frame" in loss["cause"] else {"abs": 1e-9}
            assert loss["lost_s"] == pytest.approx(due_loss["lost_s"], **tolerance)
        if "duplicate-frame" not in {loss["cause"] for loss in lost}:
            # Else its turn at the server may have begun before the second copy came.
            assert steps_of(measured) == steps_of(predicted)
        assert measured["energy_j"] == pytest.approx(predicted["energy_j"], rel=0.2)
    for budget in run["error_budget"]:
        total = budget["predicted_s"] + sum(budget["parts"].values())
        assert total == pytest.approx(budget["measured_s"], abs=1e-12)


OUT = {"kind": "link-outage", "nodes": ["uav2"], "at_s": 0.4}
HAPPENS = {
    "a link is out for a while, and its client comes back": (
        [OUT | {"duration_s": 0.8}],
        [[2], [2], []],
    ),
    "two lose their links within a gradient": (
        [{"kind": "partition", "nodes": ["uav2", "uav3"], "at_s": 0.2, "duration_s": 0.5}],
        [[2, 3], []],
    ),
    "one never gets the broadcast": ([OUT | {"at_s": 0}], [[2], [2]]),
    "one crashes": ([{"kind": "uav-crash", "nodes": ["uav1"], "at_s": 0.4}], [[1], [1]]),
    "one sends nonsense": (
        [{"kind": "corrupt-frame", "nodes": ["uav3"], "at_s": 0.3}],
        [[3], []],
    ),
    "one sends twice": ([{"kind": "duplicate-frame", "nodes": ["uav3"], "at_s": 0.3}], [[3], []]),
    "an outage within the timeout, and slow nodes": (
        [
            OUT | {"duration_s": 0.2},
            {"kind": "slow-node", "nodes": ["uav1", "bs"], "round": 1, "factor": 3},
        ],
        [[], []],
    ),
}


@pytest.mark.parametrize("name", HAPPENS)
def test_rounds_go_on_as_predicted(tmp_path: Path, name: str) -> None:
    events, lost = HAPPENS[name]
    path, result = scenario(tmp_path, events, rounds=len(lost)), tmp_path / "r.json"
    run_testbed("run", path, "--json", result)
    run = json.loads(result.read_text())
    assert [[loss["client"] for loss in m.get("lost", [])] for m in run["measured"]] == lost
    assert_as_predicted(run)
    for round_, gone in zip(run["measured"], lost, strict=True):
        finished = {step["client"] for step in round_["steps"] if step["step"] == "CM"}
        assert finished >= {1, 2, 3} - set(gone)
    wait_until_gone()


@pytest.mark.parametrize("scheme", ["sfl-sp", "sfl-ps"])
def test_gates_and_queues_forget_the_lost(tmp_path: Path, scheme: str) -> None:
    events = [
        OUT | {"at_s": 0.3},
        {"kind": "uav-crash", "nodes": ["uav3"], "round": 1, "at_s": 0.2},
    ]
    path = scenario(tmp_path, events, paradigm=scheme)
    run_testbed("run", path, "--json", tmp_path / "r.json")
    run = json.loads((tmp_path / "r.json").read_text())
    assert_as_predicted(run)
    assert {step["client"] for step in run["measured"][1]["steps"] if step["step"] == "CM"} == {1}


def test_wait_waits_until_the_link_is_back(tmp_path: Path) -> None:
    path = scenario(tmp_path, [OUT | {"duration_s": 1.2}], on_loss="wait", rounds=1)
    run_testbed("run", path, "--json", tmp_path / "r.json")
    run = json.loads((tmp_path / "r.json").read_text())
    assert_as_predicted(run)
    assert run["measured"][0]["latency_s"] > 1.6


@pytest.mark.parametrize(
    ("on_loss", "event", "said"),
    [
        (
            "abort",
            {"kind": "corrupt-frame", "nodes": ["uav3"]},
            "waited for uav3, which is lost since",
        ),
        ("wait", {"kind": "uav-crash", "nodes": ["uav2"], "at_s": 0.2}, "uav2, which is lost"),
        ("drop", {"kind": "bs-crash", "at_s": 0.3}, "the base station crashed at"),
        (
            "drop",
            {"kind": "partition", "nodes": ["uav1", "uav2", "uav3"], "at_s": 0.2},
            "no client is left",
        ),
    ],
)
def test_a_run_that_cannot_go_on_ends_with_one_line_and_keeps_what_it_has(
    tmp_path: Path, on_loss: str, event: dict, said: str
) -> None:
    path = scenario(tmp_path, [event | {"round": 1}], on_loss=on_loss, rounds=3)
    done = run_testbed("run", path, "--out", tmp_path / "run", check=False)
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if "round 1: " in line]
    assert said in line
    assert "Traceback" not in done.stderr
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["status"] == "failed"
    assert said in manifest["failure"]
    assert pd.read_parquet(tmp_path / "run" / "rounds.parquet")["round"].unique().tolist() == [0]
    wait_until_gone()


@pytest.mark.docker
def test_in_containers_a_crash_is_no_other(tmp_path: Path) -> None:
    events, lost = HAPPENS["one crashes"]
    path, result = scenario(tmp_path, events), tmp_path / "r.json"
    run_testbed("run", path, "--json", result, "--set", "emulation.runtime=docker")
    run = json.loads(result.read_text())
    assert [[loss["client"] for loss in m.get("lost", [])] for m in run["measured"]] == lost
    assert_as_predicted(run)


def test_a_run_that_was_killed_goes_on_with_its_faults(tmp_path: Path) -> None:
    events = [
        {"kind": "uav-crash", "nodes": ["uav1"], "at_s": 0.4},
        OUT | {"duration_s": 0.8},
        {"kind": "corrupt-frame", "nodes": ["uav2"], "round": 3, "at_s": 0.2},
    ]
    path, out = scenario(tmp_path, events, rounds=5), tmp_path / "run"
    killed("run", path, out=out, rounds=1, after_s=0.2)
    run_testbed("run", path, "--out", out, "--resume", "--json", tmp_path / "r.json")
    run = json.loads((tmp_path / "r.json").read_text())
    assert_as_predicted(run)
    lost = [[loss["client"] for loss in m.get("lost", [])] for m in run["measured"]]
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


def test_the_average_is_that_of_those_who_finished(tmp_path: Path) -> None:
    """It is what one process learns for the others alone, to the last bit."""
    path = tmp_path / "learns.yaml"
    crash = {"kind": "uav-crash", "nodes": ["uav1"], "round": 1, "at_s": 0.2}
    path.write_text(
        yaml.safe_dump(
            learning(2, rounds=2)
            | {
                "faults": {"on_loss": "drop", "loss_timeout_s": 0.2, "events": [crash]},
            }
        )
    )
    run_testbed("run", path, "--out", tmp_path / "run")
    lost = pd.read_parquet(tmp_path / "run" / "lost.parquet").query("kind == 'measured'")
    assert lost[["round", "client"]].to_numpy().tolist() == [[1, 1]]
    batches = pd.read_parquet(tmp_path / "run" / "learning.parquet")
    assert len(batches.query("round == 1 and client != 1")) == 4

    assert (tmp_path / "run" / "adapters.safetensors").read_bytes() == in_one_process(
        path, ([1, 2, 3], [2, 3])
    )


def test_clients_cut_at_different_points_learn_what_one_process_does(tmp_path: Path) -> None:
    path, out, result = tmp_path / "mixed.yaml", tmp_path / "run", tmp_path / "run.json"
    path.write_text(yaml.safe_dump(learning([3, 1, 2], rounds=2)))
    run_testbed("run", path, "--out", out, "--json", result)
    run = json.loads(result.read_text())
    for kind in ("predicted", "predicted_wire", "measured"):
        assert [round_["split"] for round_ in run[kind]] == [[3, 1, 2]] * 2
    sizes = {s["client"]: s["bytes"] for s in run["measured"][0]["steps"] if s["step"] == "CA"}
    assert sizes == {1: 4 * 2 * 4 * 4 * 128, 2: 4 * 2 * 16 * 16 * 32, 3: 4 * 2 * 8 * 8 * 64}
    assert_as_predicted(run)
    read = tb.read_run(out)
    assert [round_.split for round_ in read.measured] == [(3, 1, 2)] * 2
    assert "1–3, by client" in (out / "report.html").read_text()
    assert (out / "adapters.safetensors").read_bytes() == in_one_process(path, [[1, 2, 3]] * 2)


def learning(split: object, rounds: int) -> dict[str, object]:
    """A scenario of three UAVs that really learn."""
    return {
        "rounds": rounds,
        "uavs": {"tx_power_w": [1, 0.4, 0.1], "compute_flops": 1e9},
        "base_station": {"compute_flops": 1e10},
        "workload": {
            "model": "swin_nano_patch4_window4_64",
            "classes": 5,
            "split": split,
            "batch_size": 2,
            "local_iterations": 2,
            "data": {"samples": 60},
        },
    }


def in_one_process(path: Path, who: Sequence[Sequence[int]]) -> bytes:
    """The global state after rounds of these clients, whose bytes no link carried."""
    parsed = load(path)
    settings = Settings.from_json(learning_settings(parsed) | place(parsed.base_station))
    server = RealServer(settings)
    clients = {k: RealClient(settings, k) for k in (1, 2, 3)}
    profile, splits = profile_of(parsed), fixed_allocation(parsed).splits.tolist()
    sizes = [round_sizes(parsed, profile, u) for u in splits]
    for round_, here in enumerate(who):
        server.begin_round(round_, splits, sizes)
        for k in here:
            clients[k].begin_round(round_, splits[k - 1], sizes[k - 1])
            clients[k].adapters_buffer()[:] = server.broadcast(k)
            clients[k].load_adapters()
        for iteration in (1, 2):
            for k in here:
                smashed, labels = clients[k].forward(iteration)
                server.smashed_buffer(k)[:], server.labels_buffer(k)[:] = smashed, labels
                ((gradient, _),) = server.forward_backward([k])
                clients[k].gradient_buffer()[:] = gradient
                clients[k].backward()
        for k in here:
            server.adapters_buffer(k)[:] = clients[k].adapters()
        server.aggregate(here)
    return server.state()
