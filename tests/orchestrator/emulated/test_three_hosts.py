# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""One run over three hosts with clocks of their own: as on one, and nothing is left."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from console import run_testbed
from small_scenario import TEXT

from testbed.host.doctor import has_qdisc
from testbed.network.pcap import _FILE, RECORD, _records, frames

THREE_HOSTS = Path(__file__).parents[2] / "support" / "three_hosts.py"
PLACES = "emulation: {placement: {alpha: [bs, uav1], beta: [uav2], gamma: [uav3]}}\n"
AIR = ["--set", "links.one_way_delay_s=0.005", "--set", "links.loss=0.01"]
LONG = ["--rounds", "500", "--set", "emulation.calibrate=false"]
REAL = ["quickstart", "--rounds", "1", "--set", "workload.local_iterations=1"]
ANSWERS = """
import socket
with socket.create_server(("", 8000)) as server:
    there, (address, _) = server.accept()
    with there:
        there.sendall(address.encode())
"""
ASKS = """
import pathlib, socket
with socket.create_connection(("bs", 8000), 30) as there:
    print(there.recv(100).decode())
pathlib.Path.home().joinpath("left").write_text("by a visitor")
"""
DROPS = ["--rounds", "8", "--set", "emulation.calibrate=false", "--set", "faults.on_loss=drop"]

pytestmark = [
    pytest.mark.alone,
    pytest.mark.full,
    pytest.mark.skipif(os.geteuid() != 0, reason="hosts as namespaces need root"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where hosts and runs have their files."""
    made = tmp_path_factory.mktemp("hosts")
    (made / "small.yaml").write_text(TEXT + PLACES)
    return made


@pytest.fixture(scope="module")
def done(folder: Path) -> list[dict[str, Any]]:
    """What became of a run, of one over a narrow network, and of one that loses a host."""
    scenario = str(folder / "small.yaml")

    def struck(how: str, host: str, after_s: float) -> dict[str, Any]:
        return {"strike": how, "host": host, "after_s": after_s, "nodes": 4}

    def kept(name: str) -> list[str]:
        return ["--out", str(folder / name), "--json", str(folder / f"{name}.json")]

    jobs = [
        {
            "run": [
                *(scenario, "--out", str(folder / "run"), "--json", str(folder / "run.json")),
                "--capture-headers",
            ]
        },
        {"run": [scenario, *AIR, "--out", str(folder / "air")]},
        {"run": [scenario, "--out", str(folder / "narrow")], "narrow": "5mbit"},
        {"run": [scenario, *LONG], **struck("worker", "beta", 3)},
        {"run": [scenario, *DROPS, *kept("dropped")], **struck("agent", "gamma", 4)},
        {
            # So many rounds that the cut is in one of them, however long nodes take to start.
            "run": [scenario, *DROPS, "--rounds", "24", *kept("cut")],
            **struck("cut", "beta", 10),
            "lasts_s": 2,
        },
    ]
    return on_three_hosts(folder, jobs)


EDGES = """
topology:
  edges: [{uavs: [1, 3]}, {uavs: [2]}]
  edge_rounds: 2
  backhaul: {uplink_bps: 1.0e+7, downlink_bps: 2.0e+7}
faults: {on_loss: drop}
"""


def test_edge_servers_lose_the_uavs_of_a_host_in_all_their_rounds(tmp_path: Path) -> None:
    (tmp_path / "edges.yaml").write_text(TEXT + PLACES + EDGES)
    words = [str(tmp_path / "edges.yaml"), "--set", "emulation.calibrate=false"]
    whole = {"run": [*words, "--json", str(tmp_path / "whole.json")]}
    strike = {"strike": "agent", "host": "gamma", "after_s": 4, "nodes": 4}
    kept = ["--rounds", "4", "--json", str(tmp_path / "lost.json")]
    for job in on_three_hosts(tmp_path, [whole, {"run": [*words, *kept], **strike}]):
        assert job["status"] == 0, job["stderr"]
    (predicted,), (measured,) = (
        json.loads((tmp_path / "whole.json").read_text())[kind]
        for kind in ("predicted_wire", "measured")
    )
    assert measured["latency_s"] == pytest.approx(predicted["latency_s"], rel=0.05)
    rounds = json.loads((tmp_path / "lost.json").read_text())["measured"]
    assert [loss["client"] for loss in rounds[-1]["lost"]] == [3]
    assert {step["client"] for step in rounds[-1]["steps"]} == {1, 2}


def on_three_hosts(
    folder: Path, jobs: list[dict[str, Any]], **environment: str
) -> list[dict[str, Any]]:
    """What became of jobs; see `three_hosts`."""
    command = [sys.executable, THREE_HOSTS, folder, json.dumps(jobs)]
    namespaces = ["--net", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc"]
    ended = subprocess.run(
        ["unshare", *namespaces, *command],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | environment,
    )
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_hosts_of_an_ordinary_user_have_relays(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(TEXT + PLACES)
    words = [str(tmp_path / "small.yaml"), "--out", str(tmp_path / "run")]
    # Long packets are few, so that relays beside others' work bear the rates.
    slow = ["--set", "emulation.dilation=4", "--set", "emulation.mtu=1500"]
    jobs = [
        {"run": [*words, *slow]},
        {"run": [*words, "--overwrite", "--set", "emulation.dilation=0.05"]},
    ]
    told = on_three_hosts(tmp_path, jobs, ORDINARY="1")
    assert told[0]["status"] == 0, told[0]["stderr"]
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    for host in manifest["hosts"]:
        relay = host["network"]["relay"]
        assert 0 < relay["asked_packets_s"] < relay["packets_s"] / 2
    run = pd.read_parquet(tmp_path / "run" / "transfers.parquet")
    assert run["error"].min() > -0.02
    # What nobody can do is refused by a name, a number and a way out.
    assert told[1]["status"] == 2, told[1]["stderr"]
    assert re.search(
        r"emulation.dilation: must be at least [\d.]+ on these hosts: links need \d+ "
        r"packets per second through the relay of host \w+",
        told[1]["stderr"],
    )
    assert [job["left"] for job in told] == [[], []]


def test_a_run_over_three_hosts_measures_what_is_predicted(
    done: list[dict[str, Any]], folder: Path
) -> None:
    assert done[0]["status"] == 0, done[0]["stderr"]
    result = json.loads((folder / "run.json").read_text())
    (measured,), (predicted,), (wire,) = (
        result[kind] for kind in ("measured", "predicted", "predicted_wire")
    )

    def steps(round_: dict[str, Any]) -> list[tuple[Any, ...]]:
        keys = ("client", "iteration", "step", "bytes")
        return sorted(tuple(step[key] for key in keys) for step in round_["steps"])

    assert steps(measured) == steps(predicted)
    # Others compute beside it: it may be late, but never early.
    assert 0.99 < measured["latency_s"] / wire["latency_s"] < 1.5
    assert all(step["end_s"] > step["start_s"] for step in measured["steps"])
    (budget,) = result["error_budget"]
    apart_s = measured["latency_s"] - predicted["latency_s"]
    assert sum(budget["parts"].values()) == pytest.approx(apart_s)
    steps_s = pd.read_parquet(folder / "run" / "budget_steps.parquet")
    clock_s = steps_s[steps_s["part"] == "clock"].set_index("step")["seconds"]
    assert clock_s["CA"].abs().max() > 0
    assert clock_s["CF"].abs().max() < 1e-12


def test_the_manifest_says_who_was_where_and_how_well_clocks_were_known(
    done: list[dict[str, Any]], folder: Path
) -> None:
    assert done[0]["status"] == 0
    manifest = json.loads((folder / "run" / "manifest.json").read_text())
    assert {host["name"]: host["nodes"] for host in manifest["hosts"]} == {
        "alpha": ["bs", "uav1"],
        "beta": ["uav2"],
        "gamma": ["uav3"],
    }
    assert len({host["address"] for host in manifest["hosts"]}) == 3
    for host in manifest["hosts"]:
        assert host["mtu"] == 1600
        asked, carried = (host["network"][kind] for kind in ("asked", "carried"))
        assert all(0 < asked[way] < carried[way] for way in ("down_bps", "up_bps"))
    (check,) = [check for check in manifest["validity"] if check["check"] == "clock_error_s"]
    assert 0 < check["value"] < 0.05
    errors_s = sorted(host["clock"]["error_s"] for host in manifest["hosts"])
    # Those before the first round count here, too.
    assert sum(errors_s[-2:]) > 0.999 * check["value"]
    assert all(host["clock"]["jumped_s"] == 0 for host in manifest["hosts"])
    table = pd.read_parquet(folder / "run" / "calibration.parquet")
    beta = table[(table["client"] == 2) & (table["direction"] == "uplink")]["error"].abs()
    told = {host["name"]: host["calibration"] for host in manifest["hosts"]}
    assert told["beta"] == pytest.approx({"error_p50": beta.median(), "error_max": beta.max()})
    assert told["alpha"]["error_max"] == pytest.approx(
        table.drop(table[(table["client"] > 1) & (table["direction"] == "uplink")].index)["error"]
        .abs()
        .max()
    )
    assert {log.name for log in (folder / "run" / "logs").iterdir()} == {
        *(f"uav{k}.log" for k in (1, 2, 3)),
        "bs.log",
    }


def test_captures_come_back_with_the_bytes_of_the_accounts(
    done: list[dict[str, Any]], folder: Path
) -> None:
    assert done[0]["status"] == 0, done[0]["stderr"]
    accounts = pd.read_parquet(folder / "run" / "accounts.parquet")
    columns = [name for name in accounts if name.endswith("_bytes")]
    booked = accounts.groupby(["client", "direction"])[columns].sum().sum(axis=1)
    for client in (1, 2, 3):
        captured = list(frames(folder / "run" / "pcap" / f"uav{client}.pcap"))
        for direction, end in (("down", 1), ("up", 2)):
            sent = [f for f in captured if f.source == f"10.0.{client}.{end}"]
            size = sum(frame.header_bytes + frame.data_bytes for frame in sent)
            assert size == booked[client, direction]


def test_every_host_loses_and_delays_what_arrives_there(
    done: list[dict[str, Any]], folder: Path
) -> None:
    assert done[1]["status"] == 0, done[1]["stderr"]
    air = pd.read_parquet(folder / "air" / "air.parquet").set_index(["client", "direction"])
    assert len(air) == 6
    assert (air["arrived_frames"] > 100).all()
    share = air["lost_frames"].sum() / air[["lost_frames", "arrived_frames"]].to_numpy().sum()
    assert 0.003 < share < 0.03
    slots = pd.read_parquet(folder / "air" / "air_slots.parquet")
    by_way = slots.groupby(["client", "direction"])["lost_frames"].sum()
    assert by_way.to_dict() == air["lost_frames"].to_dict()


def test_a_network_that_is_too_narrow_is_refused_before_anything_is_written(
    done: list[dict[str, Any]], folder: Path
) -> None:
    assert done[2]["status"] == 2, done[2]["stderr"]
    assert re.search(
        r"emulation.dilation: must be at least [\d.]+ on these hosts: links from alpha to beta(, "
        r"gamma)? need [\d.]+ Mb/s with their headers, and the network carries",
        done[2]["stderr"],
    )
    assert not (folder / "narrow").exists()


def test_a_host_that_may_not_be_dropped_ends_the_run_with_its_name(
    done: list[dict[str, Any]],
) -> None:
    assert done[3]["status"] == 1
    said = r"round \d+: the base station waited for uav2, lost at .* \(loss of host beta\)"
    assert re.search(said, done[3]["stderr"])


def test_a_host_that_is_dropped_is_told_of_as_the_crash_of_its_uavs(
    done: list[dict[str, Any]], folder: Path
) -> None:
    assert done[4]["status"] == 0, done[4]["stderr"]
    manifest = json.loads((folder / "dropped" / "manifest.json").read_text())
    (fault,) = manifest["faults"]
    assert (fault["origin"], fault["nodes"]) == ("host gamma", ["uav3"])
    assert [h["lost"] is None for h in manifest["hosts"]] == [True, True, False]
    lost = pd.read_parquet(folder / "dropped" / "lost.parquet")
    assert set(lost["cause"]) == {"loss of host gamma"}
    assert set(lost["client"]) == {3}
    first = lost[lost["kind"] == "measured"]["round"].min()
    assert set(lost[lost["kind"] == "measured"]["round"]) == set(range(first, 8))
    assert set(lost["kind"]) == {"measured", "predicted", "predicted_wire"}
    result = json.loads((folder / "dropped.json").read_text())
    # A round that was about to end when it was struck is over already in the prediction.
    predicted = lost[lost["kind"] == "predicted_wire"]["round"].min()
    assert predicted in (first, first + 1)
    struck, wire = result["measured"][first], result["predicted_wire"][predicted]
    # What it had done is known, and the loss is when the prediction has it.
    assert [s for s in struck["steps"] if s["client"] == 3]
    assert struck["lost"][0]["lost_s"] == pytest.approx(wire["lost"][0]["lost_s"], abs=0.2)
    for after in result["measured"][first + 1 :]:
        assert {step["client"] for step in after["steps"]} == {1, 2}
    table = pd.read_parquet(folder / "dropped" / "accounts.parquet")
    assert len(table[table["round"] == 7])


def test_a_network_that_is_cut_for_two_seconds_is_survived_and_not_valid(
    done: list[dict[str, Any]], folder: Path
) -> None:
    assert done[5]["status"] == 0, done[5]["stderr"]
    manifest = json.loads((folder / "cut" / "manifest.json").read_text())
    assert manifest["status"] == "complete"
    assert manifest["valid"] is False
    assert not len(pd.read_parquet(folder / "cut" / "lost.parquet"))


def test_nothing_is_left_on_any_host(done: list[dict[str, Any]]) -> None:
    assert [job["left"] for job in done] == [[]] * 6
    assert [job["files"] for job in done] == [[]] * 6


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """What became of a session with visitors, of a run that learns, and of two with other links."""
    made = tmp_path_factory.mktemp("others")
    scenario = str(made / "small.yaml")
    (made / "small.yaml").write_text(TEXT + PLACES)
    (made / "answers.py").write_text(ANSWERS)
    (made / "asks.py").write_text(ASKS)
    session, python = str(made / "session"), sys.executable
    visits = [
        [session, "uav3", "--", "sh", "-c", "cat; echo $TESTBED_NODE; echo oops >&2; exit 3"],
        [session, "uav1"],  # A shell, which is told nothing that it could do.
        [session, "uav2", "--", python, str(made / "asks.py")],
    ]
    spread = ["--set", "emulation.placement=spread"]
    jobs = [
        {
            "command": "up",
            "run": [
                *(scenario, "--out", session, "--set", "emulation.calibrate=false"),
                *("--node", f"bs=exec {python} {made / 'answers.py'}"),
            ],
            "visits": visits,
        },
        {"run": [*REAL, *spread, "--out", str(made / "real")]},
        {
            "run": [
                *(scenario, "--set", "links.ecn=true", "--set", "emulation.calibrate=false"),
                *("--capture-headers", "--out", str(made / "marked")),
            ]
        },
        {"run": [scenario, "--set", "links.queue=red", "--out", str(made / "queued")]},
    ]
    return made, on_three_hosts(made, jobs)


def test_visitors_enter_nodes_on_other_hosts(others: tuple[Path, list[dict[str, Any]]]) -> None:
    folder, done = others
    assert done[0]["status"] == 0, done[0]["stderr"]
    told, shell, asked = done[0]["visits"]
    assert told == {"status": 3, "stdout": "hello\nuav3\n", "stderr": "oops\n"}
    # Its words are commands: there is none of that name.
    assert shell["status"] == 127
    assert "hello" in shell["stderr"]
    assert (asked["status"], asked["stdout"]) == (0, "10.0.2.2\n"), asked["stderr"]
    assert (folder / "session" / "nodes" / "uav2" / "left").read_text() == "by a visitor"
    assert (done[0]["left"], done[0]["files"]) == ([], [])


def test_what_is_learned_on_three_hosts_is_the_same_bytes_as_on_one(
    others: tuple[Path, list[dict[str, Any]]],
) -> None:
    folder, done = others
    assert done[1]["status"] == 0, done[1]["stderr"]
    run_testbed("run", *REAL, "--out", folder / "alone")
    manifest = json.loads((folder / "real" / "manifest.json").read_text())
    assert len(manifest["hosts"]) == 3
    spread, alone = ((folder / name / "adapters.safetensors") for name in ("real", "alone"))
    assert spread.read_bytes() == alone.read_bytes()
    losses = [
        pd.read_parquet(folder / name / "learning.parquet").sort_values(["client", "iteration"])
        for name in ("real", "alone")
    ]
    assert losses[0]["loss"].tolist() == losses[1]["loss"].tolist()
    assert (done[1]["left"], done[1]["files"]) == ([], [])


def test_marks_of_congestion_cross_between_hosts(
    others: tuple[Path, list[dict[str, Any]]],
) -> None:
    """Both ends have agreed on them: packets with data bear ECT(0), whichever way they go."""
    folder, done = others
    assert done[2]["status"] == 0, done[2]["stderr"]
    senders = set()
    for record in _records((folder / "marked" / "pcap" / "uav2.pcap").read_bytes(), _FILE.size):
        *_, length = RECORD.unpack_from(record)
        ip = record[RECORD.size + 14 :]
        if ip[0] == 0x45 and length > 1000:
            assert ip[1] & 3 == 2
            senders.add(ip[15])
    assert senders == {1, 2}


def test_queues_are_those_that_the_kernels_of_hosts_have(
    others: tuple[Path, list[dict[str, Any]]],
) -> None:
    folder, done = others
    if has_qdisc("red"):
        assert done[3]["status"] == 0, done[3]["stderr"]
        return
    assert done[3]["status"] == 2
    assert re.search(r"testbed: links.queue: the kernel of host \w+ has no red", done[3]["stderr"])
    assert not (folder / "queued").exists()
