# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Rounds with faults in virtual time: what happens is what the engine says, at the same moments."""

import json
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
from exact import RESUMED_S, SMALL, Played, Run, assert_exact, each, played, result, spans, wanted

pytestmark = [pytest.mark.guest, pytest.mark.timeout(1200)]

OUT = {"kind": "link-outage", "nodes": ["uav2"]}
HAPPENS: dict[str, tuple[list[dict[str, Any]], list[int]]] = {
    "nothing": ([], []),
    "a link is out for a while": ([OUT | {"at_s": 0.4, "duration_s": 0.5}], [2]),
    "its client comes back": ([], []),
    "two lose their links within a gradient": (
        [{"kind": "partition", "nodes": ["uav2", "uav3"], "at_s": 0.2, "duration_s": 0.5}],
        [2, 3],
    ),
    "one never gets the broadcast": ([OUT | {"at_s": 0, "duration_s": 0.5}], [2]),
    "one sends nonsense": ([{"kind": "corrupt-frame", "nodes": ["uav3"], "at_s": 0.3}], [3]),
    "one sends twice": ([{"kind": "duplicate-frame", "nodes": ["uav3"], "at_s": 0.3}], [3]),
    "an outage within the timeout": ([OUT | {"at_s": 0.4, "duration_s": 0.2}], []),
    "slow nodes": ([{"kind": "slow-node", "nodes": ["uav1", "bs"], "factor": 3}], []),
    "one crashes": ([{"kind": "uav-crash", "nodes": ["uav1"], "at_s": 0.4}], [1]),
    "it is gone for good": ([], [1]),
}
"""By round: faults that begin in it, and who is lost."""
ENDS = {
    "abort": ({"kind": "corrupt-frame", "nodes": ["uav3"]}, "waited for uav3, lost at"),
    "wait": ({"kind": "uav-crash", "nodes": ["uav2"], "at_s": 0.2}, "uav2, lost"),
    "drop": ({"kind": "bs-crash", "at_s": 0.3}, "the base station crashed at"),
}
"""By `on_loss`: what ends a run, and what is said of it."""

GATED = ("sfl-sp", "sfl-ps")
ASYNCHRONOUS: dict[str, tuple[list[dict[str, Any]], list[list[int]]]] = {
    "asfl-ps": (
        [
            OUT | {"at_s": 0.4, "duration_s": 0.5},
            {"kind": "slow-node", "nodes": ["uav1", "bs"], "factor": 3, "duration_s": 1.5},
            {"kind": "corrupt-frame", "nodes": ["uav3"], "at_s": 5.0},
        ],
        [[2], [2, 3], [2, 3]],
    ),
    "asfl-sp": (
        [
            {"kind": "duplicate-frame", "nodes": ["uav3"], "at_s": 0.3},
            {"kind": "uav-crash", "nodes": ["uav1"], "at_s": 3.0},
        ],
        [[3], [1, 3], [1, 3]],
    ),
}
"""By paradigm: faults, and the clients that are lost until the end of each round."""
UPDATES = 5
LONG = {"sfl-ps", "asfl-sp", "some"}
"""What `make test` leaves to `full`."""
DIFFERING = {"tx_power_w": [1.0, 0.4, 0.1], "compute_flops": [2.5e12, 2.5e12, 0.1e12]}
"""The third UAV is slow."""


def faulty(on_loss: str, rounds: list[list[dict[str, Any]]], **keys: Any) -> dict[str, Any]:
    events = [{"round": at, **event} for at, begin in enumerate(rounds) for event in begin]
    faults = {"on_loss": on_loss, "loss_timeout_s": 0.3, "events": events}
    return SMALL | {"rounds": len(rounds), "faults": faults} | keys


def updates(count: int) -> dict[str, Any]:
    return SMALL["workload"] | {"asynchronous": {"updates": count}}


def runs() -> Iterator[Run]:
    yield "faults", faulty("drop", [begin for begin, _ in HAPPENS.values()]), []
    gone = [[OUT | {"at_s": 0.3, "duration_s": 0.5}], [ENDS["wait"][0]]]
    for paradigm in GATED:
        yield paradigm, faulty("drop", gone, paradigm=paradigm), []
    for paradigm, (begin, lost) in ASYNCHRONOUS.items():
        keys = {"paradigm": paradigm, "workload": updates(UPDATES), "uavs": DIFFERING}
        yield paradigm, faulty("drop", [begin], **keys) | {"rounds": len(lost)}, []
    out = {"kind": "partition", "nodes": ["uav1", "uav2", "uav3"], "at_s": 1.3, "duration_s": 3}
    deadline = {"participation": {"deadline_s": 1.3}, "paradigm": "cpsfl"}
    yield "empty", faulty("drop", [[out]], **deadline) | {"rounds": 5}, []
    some = {"paradigm": "asfl-pp", "participation": {"clients": 2, "rule": "round-robin"}}
    yield "some", SMALL | some | {"rounds": 2, "workload": updates(4)}, []
    yield (
        "deadline",
        faulty("drop", [[], []], participation={"deadline_s": 1.1}, uavs=DIFFERING),
        [],
    )
    yield "wait-back", faulty("wait", [[OUT | {"at_s": 0.4, "duration_s": 1.2}]]), []
    for on_loss, (event, _) in ENDS.items():
        yield f"ends-{on_loss}", faulty(on_loss, [[], [event], []]), ["--out", f"ends-{on_loss}"]


@pytest.fixture(scope="module")
def all_played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Played:
    return played(tmp_path_factory.mktemp("faults"), wanted(request, runs(), LONG))


def assert_lost_as_predicted(predicted: dict[str, Any], measured: dict[str, Any]) -> None:
    """The same clients at the same moments, and the same steps."""
    lost, due = measured.get("lost", []), predicted.get("lost", [])
    assert [(loss["client"], loss["cause"]) for loss in lost] == [
        (loss["client"], loss["cause"]) for loss in due
    ]
    for loss, due_loss in zip(lost, due, strict=True):
        # What is refused is so once its header has come.
        assert loss["lost_s"] == pytest.approx(due_loss["lost_s"], abs=RESUMED_S)
    assert spans(measured).keys() == spans(predicted).keys()
    assert measured["latency_s"] == pytest.approx(predicted["latency_s"], abs=RESUMED_S)


def test_rounds_go_on_as_predicted(all_played: Played) -> None:
    run = result(all_played, "faults")
    for (name, (_, lost)), predicted, measured in zip(
        HAPPENS.items(), run["predicted_wire"], run["measured"], strict=True
    ):
        assert [loss["client"] for loss in measured.get("lost", [])] == lost, name
        assert_lost_as_predicted(predicted, measured)
        finished = {client for client, _, step in spans(measured) if step == "CM"}
        assert finished == {1, 2, 3} - set(lost), name
    for budget in run["error_budget"]:
        total = budget["predicted_s"] + sum(budget["parts"].values())
        assert total == pytest.approx(budget["measured_s"], abs=1e-12)


@pytest.mark.parametrize("paradigm", each(GATED, LONG))
def test_gates_and_queues_forget_the_lost(all_played: Played, paradigm: str) -> None:
    run = result(all_played, paradigm)
    for predicted, measured in zip(run["predicted_wire"], run["measured"], strict=True):
        assert_lost_as_predicted(predicted, measured)
    assert {client for client, _, step in spans(run["measured"][1]) if step == "CM"} == {1, 3}


@pytest.mark.parametrize("paradigm", each(ASYNCHRONOUS, LONG))
def test_asynchronous_rounds_go_on_as_predicted(all_played: Played, paradigm: str) -> None:
    run = result(all_played, paradigm)
    for lost, predicted, measured in zip(
        ASYNCHRONOUS[paradigm][1], run["predicted_wire"], run["measured"], strict=True
    ):
        assert [loss["client"] for loss in measured.get("lost", [])] == lost
        assert_lost_as_predicted(predicted, measured)
        mixed = [client for client, _, step in spans(measured) if step == "CM"]
        assert len(mixed) == UPDATES, "others make up for the lost"
        gone = {k["client"] for k in measured["lost"] if k["lost_s"] <= measured["start_s"]}
        assert not set(mixed) & gone


@pytest.mark.full
def test_asynchronous_rounds_of_some_go_as_predicted(all_played: Played) -> None:
    run = result(all_played, "some")
    assert_exact(run)
    assert [round_["clients"] for round_ in run["measured"]] == [[1, 2], [1, 2]]


def test_rounds_that_nobody_finishes_last_until_their_deadline(all_played: Played) -> None:
    run = result(all_played, "empty")
    assert run["valid"]
    for predicted, measured in zip(run["predicted_wire"], run["measured"], strict=True):
        assert_lost_as_predicted(predicted, measured)
    assert [len(round_.get("lost", [])) for round_ in run["measured"]] == [0, 3, 3, 3, 0]
    assert [bool(round_["steps"]) for round_ in run["measured"]] == [True, True, False, False, True]
    for round_ in run["measured"][1:4]:
        assert round_["latency_s"] == pytest.approx(1.3, abs=1e-9)
        assert not any(step["step"] == "CM" for step in round_["steps"])


def test_who_is_late_is_left_out_and_is_back_in_the_next_round(all_played: Played) -> None:
    run = result(all_played, "deadline")
    for predicted, measured in zip(run["predicted_wire"], run["measured"], strict=True):
        assert_lost_as_predicted(predicted, measured)
        assert [(loss["client"], loss["cause"]) for loss in measured["lost"]] == [(3, "deadline")]
        assert {client for client, _, step in spans(measured) if step == "CM"} == {1, 2}
        assert 3 in {client for client, _, _ in spans(measured)}


def test_wait_waits_until_the_link_is_back(all_played: Played) -> None:
    run = result(all_played, "wait-back")
    assert_exact(run, RESUMED_S)
    assert run["measured"][0]["latency_s"] > 1.6


@pytest.mark.parametrize("on_loss", ENDS)
def test_a_run_that_cannot_go_on_ends_with_one_line_and_keeps_what_it_has(
    all_played: Played, on_loss: str
) -> None:
    folder, done = all_played
    said = ENDS[on_loss][1]
    ended = done[f"ends-{on_loss}"]
    assert ended.returncode == 1
    (line,) = [line for line in ended.stderr.splitlines() if "round 1: " in line]
    assert said in line
    manifest = json.loads((folder / f"ends-{on_loss}" / "manifest.json").read_text())
    assert manifest["status"] == "failed"
    assert said in manifest["failure"]
    kept = pd.read_parquet(folder / f"ends-{on_loss}" / "rounds.parquet")
    assert kept["round"].unique().tolist() == [0]
